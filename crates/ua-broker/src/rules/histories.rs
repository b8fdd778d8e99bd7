//! All short histories of one session whose client wants two effects, each once: which of its requests make one.
//!
//! The client asks for what it has no answer to, and for that again when it is told to, when it gave up, or when it was killed. Whatever
//! happens in between, and in whichever order it asks: each effect is made once. And what it has heard of, it may want anew.

use super::*;

/// What may happen to the client beside being answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Trouble {
    /// It is told to ask again, as of what takes longer than it waits.
    Told,
    /// It gives up.
    Cancelled,
    /// It gives up, and that crosses the answer, which was written already.
    Crossed,
    /// It is killed, with all that it waits for; the next one of its session goes on.
    Killed,
}

const ALL: [Trouble; 4] = [Trouble::Told, Trouble::Cancelled, Trouble::Crossed, Trouble::Killed];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Ask(usize),
    Send(usize),
    Finish(usize),
    Trouble(Trouble, usize),
}

/// What the next client of the session knows of an answer that was written right before a kill.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Read {
    No,
    Yes,
}

#[derive(Debug, Clone)]
struct Request {
    call: usize,
    is_new: bool,
    at: i64,
    answered: Option<i64>,
    is_acknowledged: bool,
    /// Its client is there, and waits for it.
    waits: bool,
}

#[derive(Debug, Clone)]
struct Call {
    text: usize,
    at: i64,
    is_sent: bool,
    is_done: bool,
}

/// The gateway and its client.
#[derive(Debug, Clone, Default)]
struct World {
    now: i64,
    calls: Vec<Call>,
    requests: Vec<Request>,
    /// What was written to the client that is there.
    written: Vec<usize>,
    /// Of each text whether the client has an answer.
    has: [bool; 2],
    /// What the next client asks for before anything else: an answer to it was written, and not read.
    first: [bool; 2],
}

/// Whether a session went on from a call, as one set of rules has it.
type LeftBehind = fn(&World, usize, &[SeenArrival]) -> bool;

fn by_the_rules(world: &World, _call: usize, arrivals: &[SeenArrival]) -> bool {
    let is_heard = |request: &&Request| request.is_new && request.is_acknowledged && world.calls[request.call].is_sent;
    is_left_behind(arrivals, world.requests.iter().filter(is_heard).map(|request| at(request.at)).max())
}

/// As it was: whichever effect was asked for later, in whichever way, took the receipt of an earlier one away.
fn by_the_newest(world: &World, call: usize, _arrivals: &[SeenArrival]) -> bool {
    world.requests.last().is_some_and(|newest| newest.call != call)
}

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_millis(1_767_323_045_000 + seconds * 1_000)
}

impl World {
    fn seen(&self, call: usize, left_behind: LeftBehind) -> Seen {
        let of = &self.calls[call];
        let requests: Vec<&Request> = self.requests.iter().filter(|request| request.call == call).collect();
        let arrivals: Vec<SeenArrival> = requests
            .iter()
            .map(|request| SeenArrival {
                arrival: format!("a{}", request.at),
                client_call: None,
                is_acknowledged: request.is_acknowledged,
                is_family: true,
                is_of_client: true,
                arrived_at: at(request.at),
                answered_at: request.answered.map(at),
            })
            .collect();
        let (status, live) = match (of.is_done, of.is_sent, requests.iter().any(|request| request.waits)) {
            (true, ..) => (CallStatus::Succeeded, Live::No),
            (false, true, true) => (CallStatus::Running, Live::Awaited),
            (false, true, false) => (CallStatus::Running, Live::Left),
            (false, false, true) => (CallStatus::Prepared, Live::Awaited),
            // It is let go of.
            (false, false, false) => (CallStatus::Prepared, Live::No),
        };
        Seen {
            call: CallId::parse(&format!("call_{call}")).unwrap(),
            asked_at: at(of.at),
            is_family: true,
            is_of_client: true,
            is_same_server: true,
            is_left_behind: left_behind(self, call, &arrivals),
            has_effect: true,
            status,
            is_given_up: false,
            may_have_happened: true,
            live,
            is_held: false,
            is_withdrawn: false,
            arrivals,
        }
    }

    fn ruling(&self, text: usize, class: SideEffectClass, left_behind: LeftBehind) -> Ruling {
        let same = (0..self.calls.len()).filter(|call| self.calls[*call].text == text);
        let seen: Vec<Seen> = same.map(|call| self.seen(call, left_behind)).collect();
        let asked = Asked {
            arrival: "now",
            client_call: None,
            own_call: None,
            gives_up_within: None,
            class,
            is_declared: false,
            at: at(self.now),
        };
        decide(&asked, &seen)
    }

    /// The client goes on, so it has what was written to it.
    fn goes_on(&mut self) {
        for request in self.written.drain(..) {
            self.requests[request].is_acknowledged = true;
        }
    }

    fn write(&mut self, request: usize) {
        let now = self.now;
        let text = self.calls[self.requests[request].call].text;
        self.has[text] = true;
        self.first[text] = false;
        let request_of = &mut self.requests[request];
        (request_of.answered, request_of.waits) = (Some(now), false);
        self.written.push(request);
    }

    fn waits_for(&self, text: usize) -> bool {
        self.requests.iter().any(|request| request.waits && self.calls[request.call].text == text)
    }

    /// What may happen next, of these troubles.
    fn steps(&self, troubles: &[Trouble]) -> Vec<Step> {
        let mut steps = Vec::new();
        for text in 0..2 {
            let comes_later = !self.first[text] && self.first.contains(&true);
            if !self.has[text] && !self.waits_for(text) && !comes_later {
                steps.push(Step::Ask(text));
            }
        }
        for (number, call) in self.calls.iter().enumerate() {
            let is_awaited = self.requests.iter().any(|request| request.waits && request.call == number);
            if !call.is_sent && is_awaited {
                steps.push(Step::Send(number));
            }
            if call.is_sent && !call.is_done {
                steps.push(Step::Finish(number));
            }
        }
        for &trouble in troubles {
            let of: Vec<usize> = match trouble {
                Trouble::Told | Trouble::Cancelled => {
                    (0..self.requests.len()).filter(|request| self.requests[*request].waits).collect()
                }
                Trouble::Crossed => self.written.clone(),
                Trouble::Killed => vec![0],
            };
            steps.extend(of.into_iter().map(|request| Step::Trouble(trouble, request)));
        }
        steps
    }

    fn step(&mut self, step: Step, class: SideEffectClass, read: Read, left_behind: LeftBehind) {
        self.now += 1;
        match step {
            Step::Ask(text) => {
                self.goes_on();
                let ruling = self.ruling(text, class, left_behind);
                let number = |call: &CallId| call.as_str().trim_start_matches("call_").parse::<usize>().unwrap();
                let (call, is_over) = match &ruling {
                    Ruling::New => {
                        self.calls.push(Call { text, at: self.now, is_sent: false, is_done: false });
                        (self.calls.len() - 1, false)
                    }
                    Ruling::Join(call, _) | Ruling::Decide(call, _) => (number(call), false),
                    Ruling::HandOut(call, _) => (number(call), true),
                    Ruling::Ask(..) => panic!("nobody is asked about an effect that is not declared: {ruling:?}"),
                };
                let is_new = ruling == Ruling::New;
                let request =
                    Request { call, is_new, at: self.now, answered: None, is_acknowledged: false, waits: !is_over };
                self.requests.push(request);
                if is_over {
                    self.write(self.requests.len() - 1);
                }
            }
            Step::Send(call) => self.calls[call].is_sent = true,
            Step::Finish(call) => {
                self.calls[call].is_done = true;
                let waiting: Vec<usize> = (0..self.requests.len())
                    .filter(|request| self.requests[*request].waits && self.requests[*request].call == call)
                    .collect();
                for request in waiting {
                    self.write(request);
                }
            }
            Step::Trouble(Trouble::Told | Trouble::Cancelled, request) => self.requests[request].waits = false,
            Step::Trouble(Trouble::Crossed, request) => {
                self.written.retain(|written| *written != request);
                self.requests[request].answered = None;
                self.has[self.calls[self.requests[request].call].text] = false;
            }
            Step::Trouble(Trouble::Killed, _) => {
                for request in &mut self.requests {
                    request.waits = false;
                }
                for request in std::mem::take(&mut self.written) {
                    let text = self.calls[self.requests[request].call].text;
                    (self.has[text], self.first[text]) = (read == Read::Yes, read == Read::No);
                }
            }
        }
    }

    fn made(&self, text: usize) -> usize {
        self.calls.iter().filter(|call| call.text == text && call.is_sent).count()
    }

    /// What is wrong with where it stands.
    fn wrong(&self, class: SideEffectClass, left_behind: LeftBehind) -> Option<&'static str> {
        if (0..2).any(|text| self.made(text) > 1) {
            return Some("made twice");
        }
        // Whoever has its answer and goes on wants another one by the same words.
        let mut next = self.clone();
        next.now += 1;
        next.goes_on();
        let is_heard = |text: usize| {
            let of_text = |request: &&Request| next.calls[request.call].text == text;
            next.requests.iter().filter(of_text).any(|request| request.is_acknowledged)
        };
        let is_over = next.calls.iter().all(|call| call.is_done);
        let is_lost = |text| is_over && is_heard(text) && next.ruling(text, class, left_behind) != Ruling::New;
        (0..2).any(is_lost).then_some("a new one is not made")
    }
}

/// The first history that goes wrong, of all of so many steps.
fn first_wrong(
    depth: usize,
    troubles: &[Trouble],
    class: SideEffectClass,
    left_behind: LeftBehind,
) -> Option<(Vec<Step>, &'static str)> {
    fn search(
        world: &World,
        depth: usize,
        steps: &mut Vec<Step>,
        next: &impl Fn(&World, Step) -> World,
        wrong: &impl Fn(&World) -> Option<&'static str>,
        troubles: &[Trouble],
    ) -> Option<(Vec<Step>, &'static str)> {
        if let Some(why) = wrong(world) {
            return Some((steps.clone(), why));
        }
        if depth == 0 {
            return None;
        }
        for step in world.steps(troubles) {
            steps.push(step);
            let found = search(&next(world, step), depth - 1, steps, next, wrong, troubles);
            steps.pop();
            if found.is_some() {
                return found;
            }
        }
        None
    }
    [Read::No, Read::Yes].into_iter().find_map(|read| {
        let next = |world: &World, step: Step| {
            let mut world = world.clone();
            world.step(step, class, read, left_behind);
            world
        };
        let wrong = |world: &World| world.wrong(class, left_behind);
        search(&World::default(), depth, &mut Vec::new(), &next, &wrong, troubles)
    })
}

#[test]
fn in_all_short_histories_of_a_session_each_effect_is_made_once() {
    for class in [SideEffectClass::External, SideEffectClass::Local] {
        assert_eq!(first_wrong(9, &ALL, class, by_the_rules), None, "{class:?}");
    }
}

/// The search finds what was wrong: an effect that is asked for in between, or beside, took the receipt away.
#[test]
fn a_younger_effect_alone_takes_no_receipt_away() {
    for trouble in ALL {
        let found = first_wrong(9, &[trouble], SideEffectClass::External, by_the_newest);
        assert_eq!(found.map(|(_, why)| why), Some("made twice"), "{trouble:?}");
    }
}
