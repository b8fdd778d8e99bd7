//! All short histories of sessions whose clients want effects, each once: which of their requests make one.
//!
//! A client asks for what it has no answer to, and for that again when it is told to, when it gave up, or when it was killed. Whatever happens in
//! between, whoever else asks for the same, and in whichever order: no session makes an effect that it asked for before and has no answer to.
//! And what it has heard of, it may want anew.

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
    /// A session asks for an effect.
    Ask(usize, usize),
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
    session: usize,
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
    session: usize,
    text: usize,
    at: i64,
    is_sent: bool,
    done_at: Option<i64>,
    /// Its client gave it up, and was told nothing of it.
    is_dropped: bool,
}

/// What a session's client knows.
#[derive(Debug, Clone, Default)]
struct Client {
    /// What was written to the one that is there.
    written: Vec<usize>,
    /// Of each text whether it has an answer.
    has: [bool; 2],
    /// What the next one asks for before anything else: an answer to it was written, and not read.
    first: [bool; 2],
}

/// How a search goes.
#[derive(Clone, Copy)]
struct Scene {
    sessions: usize,
    texts: usize,
    depth: usize,
    class: SideEffectClass,
    left_behind: LeftBehind,
}

/// The gateway and its clients.
#[derive(Debug, Clone, Default)]
struct World {
    now: i64,
    calls: Vec<Call>,
    requests: Vec<Request>,
    clients: [Client; 2],
    /// A session made an effect that it had asked for, and has no answer to.
    is_made_again: bool,
}

/// Whether a session went on from a call, as one set of rules has it.
type LeftBehind = fn(&World, usize, usize, &[SeenArrival], SideEffectClass) -> bool;

fn by_the_rules(world: &World, session: usize, call: usize, arrivals: &[SeenArrival], class: SideEffectClass) -> bool {
    let of = &world.calls[call];
    let dropped_at = of.done_at.filter(|_| of.is_dropped && class == SideEffectClass::Local);
    is_left_behind(arrivals, world.heard_at(session).map(at), dropped_at.map(at))
}

/// As it was: whichever effect was asked for later, in whichever way, took the receipt of an earlier one away.
fn by_the_newest(
    world: &World,
    session: usize,
    call: usize,
    _arrivals: &[SeenArrival],
    _class: SideEffectClass,
) -> bool {
    world.requests.iter().rfind(|request| request.session == session).is_some_and(|newest| newest.call != call)
}

/// As it was: a receipt was owed to nobody but whoever asked for its call first.
fn by_who_began(world: &World, session: usize, call: usize, arrivals: &[SeenArrival], class: SideEffectClass) -> bool {
    world.calls[call].session != session || by_the_rules(world, session, call, arrivals, class)
}

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_millis(1_767_323_045_000 + seconds * 1_000)
}

impl World {
    /// When a session asked for the newest effect of its own whose answer its client has.
    fn heard_at(&self, session: usize) -> Option<i64> {
        let is_heard = |request: &&Request| {
            let is_own = request.session == session && request.is_new;
            is_own && request.is_acknowledged && self.calls[request.call].is_sent
        };
        self.requests.iter().filter(is_heard).map(|request| request.at).max()
    }

    fn seen(&self, session: usize, call: usize, scene: Scene) -> Seen {
        let of = &self.calls[call];
        let requests: Vec<&Request> = self.requests.iter().filter(|request| request.call == call).collect();
        let arrivals: Vec<SeenArrival> = requests
            .iter()
            .map(|request| SeenArrival {
                arrival: format!("a{}", request.at),
                client_call: None,
                is_acknowledged: request.is_acknowledged,
                is_family: request.session == session,
                is_of_client: request.session == session,
                arrived_at: at(request.at),
                answered_at: request.answered.map(at),
            })
            .collect();
        let (status, live) = match (of.done_at.is_some(), of.is_sent, requests.iter().any(|request| request.waits)) {
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
            is_family: of.session == session,
            is_of_client: of.session == session,
            is_same_server: true,
            is_left_behind: (scene.left_behind)(self, session, call, &arrivals, scene.class),
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

    fn ruling(&self, session: usize, text: usize, scene: Scene) -> Ruling {
        let same = (0..self.calls.len()).filter(|call| self.calls[*call].text == text);
        let seen: Vec<Seen> = same.map(|call| self.seen(session, call, scene)).collect();
        let asked = Asked {
            arrival: "now",
            client_call: None,
            own_call: None,
            gives_up_within: None,
            class: scene.class,
            is_declared: false,
            at: at(self.now),
        };
        decide(&asked, &seen)
    }

    /// The client goes on, so it has what was written to it.
    fn goes_on(&mut self, session: usize) {
        for request in self.clients[session].written.drain(..) {
            self.requests[request].is_acknowledged = true;
        }
    }

    fn text_of(&self, request: usize) -> usize {
        self.calls[self.requests[request].call].text
    }

    fn write(&mut self, request: usize) {
        let (now, text) = (self.now, self.text_of(request));
        let request_of = &mut self.requests[request];
        (request_of.answered, request_of.waits) = (Some(now), false);
        let client = &mut self.clients[request_of.session];
        (client.has[text], client.first[text]) = (true, false);
        client.written.push(request);
    }

    /// Whether a session asked for it and is answered by nobody yet.
    fn waits_for(&self, session: usize, text: usize) -> bool {
        let is_it = |request: &Request| request.session == session && self.calls[request.call].text == text;
        self.requests.iter().any(|request| request.waits && is_it(request))
    }

    /// What may happen next, of these troubles.
    fn steps(&self, troubles: &[Trouble], scene: Scene) -> Vec<Step> {
        let mut steps = Vec::new();
        for (session, client) in self.clients.iter().enumerate().take(scene.sessions) {
            for text in 0..scene.texts {
                let comes_later = !client.first[text] && client.first.contains(&true);
                if !client.has[text] && !self.waits_for(session, text) && !comes_later {
                    steps.push(Step::Ask(session, text));
                }
            }
        }
        for (number, call) in self.calls.iter().enumerate() {
            let is_awaited = self.requests.iter().any(|request| request.waits && request.call == number);
            if !call.is_sent && is_awaited {
                steps.push(Step::Send(number));
            }
            if call.is_sent && call.done_at.is_none() {
                steps.push(Step::Finish(number));
            }
        }
        for &trouble in troubles {
            let of: Vec<usize> = match trouble {
                Trouble::Told | Trouble::Cancelled => {
                    (0..self.requests.len()).filter(|request| self.requests[*request].waits).collect()
                }
                Trouble::Crossed => self.clients.iter().flat_map(|client| client.written.clone()).collect(),
                Trouble::Killed => (0..scene.sessions).collect(),
            };
            steps.extend(of.into_iter().map(|number| Step::Trouble(trouble, number)));
        }
        steps
    }

    /// A session asks for what it has no answer to.
    fn ask(&mut self, session: usize, text: usize, scene: Scene) {
        self.goes_on(session);
        let ruling = self.ruling(session, text, scene);
        let number = |call: &CallId| call.as_str().trim_start_matches("call_").parse::<usize>().unwrap();
        let is_new = ruling == Ruling::New;
        let (call, is_over) = match &ruling {
            Ruling::New => {
                self.is_made_again |= self.is_wanted_still(session, text, scene.class);
                let call = Call { session, text, at: self.now, is_sent: false, done_at: None, is_dropped: false };
                self.calls.push(call);
                (self.calls.len() - 1, false)
            }
            Ruling::Join(call, _) | Ruling::Decide(call, _) => (number(call), false),
            Ruling::HandOut(call, _) => (number(call), true),
            Ruling::Ask(..) => panic!("nobody is asked about an effect that is not declared: {ruling:?}"),
        };
        self.calls[call].is_dropped = false;
        let at = self.now;
        let waits = !is_over;
        self.requests.push(Request { session, call, is_new, at, answered: None, is_acknowledged: false, waits });
        if is_over {
            self.write(self.requests.len() - 1);
        }
    }

    /// Whether a session that has no answer to an effect means the one that it asked for before: but for a command that its client gave up, and
    /// behind which it went on.
    fn is_wanted_still(&self, session: usize, text: usize, class: SideEffectClass) -> bool {
        let is_it = |request: &&Request| request.session == session && self.calls[request.call].text == text;
        let Some(last) = self.requests.iter().rfind(is_it) else { return false };
        let call = &self.calls[last.call];
        let went_on = call.done_at.zip(self.heard_at(session)).is_some_and(|(done, heard)| heard > done);
        !(class == SideEffectClass::Local && call.is_dropped && went_on)
    }

    fn step(&mut self, step: Step, read: Read, scene: Scene) {
        self.now += 1;
        match step {
            Step::Ask(session, text) => self.ask(session, text, scene),
            Step::Send(call) => self.calls[call].is_sent = true,
            Step::Finish(call) => {
                self.calls[call].done_at = Some(self.now);
                let waiting: Vec<usize> = (0..self.requests.len())
                    .filter(|request| self.requests[*request].waits && self.requests[*request].call == call)
                    .collect();
                for request in waiting {
                    self.write(request);
                }
            }
            Step::Trouble(trouble @ (Trouble::Told | Trouble::Cancelled), request) => {
                self.requests[request].waits = false;
                self.calls[self.requests[request].call].is_dropped = trouble == Trouble::Cancelled;
            }
            Step::Trouble(Trouble::Crossed, request) => {
                let text = self.text_of(request);
                self.requests[request].answered = None;
                let client = &mut self.clients[self.requests[request].session];
                client.written.retain(|written| *written != request);
                client.has[text] = false;
            }
            Step::Trouble(Trouble::Killed, session) => {
                for request in self.requests.iter_mut().filter(|request| request.session == session) {
                    request.waits = false;
                }
                for request in std::mem::take(&mut self.clients[session].written) {
                    let text = self.text_of(request);
                    let client = &mut self.clients[session];
                    (client.has[text], client.first[text]) = (read == Read::Yes, read == Read::No);
                }
            }
        }
    }

    fn made(&self, text: usize) -> usize {
        self.calls.iter().filter(|call| call.text == text && call.is_sent).count()
    }

    /// What is wrong with where it stands.
    fn wrong(&self, scene: Scene) -> Option<&'static str> {
        let is_owed_to_one = scene.class != SideEffectClass::Local;
        if self.is_made_again || (is_owed_to_one && (0..2).any(|text| self.made(text) > scene.sessions)) {
            return Some("made twice");
        }
        // Whoever has its answer and goes on wants another one by the same words.
        let is_over = self.calls.iter().all(|call| call.done_at.is_some());
        let is_lost = |session: usize| {
            let mut next = self.clone();
            next.now += 1;
            next.goes_on(session);
            let is_heard = |text: usize| {
                let is_of = |request: &&Request| request.session == session && next.calls[request.call].text == text;
                next.requests.iter().filter(is_of).any(|request| request.is_acknowledged)
            };
            (0..scene.texts).any(|text| is_heard(text) && next.ruling(session, text, scene) != Ruling::New)
        };
        (is_over && (0..scene.sessions).any(is_lost)).then_some("a new one is not made")
    }
}

/// The first history that goes wrong, of all of a scene.
fn first_wrong(troubles: &[Trouble], scene: Scene) -> Option<(Vec<Step>, &'static str)> {
    fn search(
        world: &World,
        depth: usize,
        steps: &mut Vec<Step>,
        next: &impl Fn(&World, Step) -> World,
        troubles: &[Trouble],
        scene: Scene,
    ) -> Option<(Vec<Step>, &'static str)> {
        if let Some(why) = world.wrong(scene) {
            return Some((steps.clone(), why));
        }
        if depth == 0 {
            return None;
        }
        for step in world.steps(troubles, scene) {
            steps.push(step);
            let found = search(&next(world, step), depth - 1, steps, next, troubles, scene);
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
            world.step(step, read, scene);
            world
        };
        search(&World::default(), scene.depth, &mut Vec::new(), &next, troubles, scene)
    })
}

const ONE: Scene =
    Scene { sessions: 1, texts: 2, depth: 9, class: SideEffectClass::External, left_behind: by_the_rules };
const TWO: Scene = Scene { sessions: 2, texts: 1, depth: 8, ..ONE };

#[test]
fn in_all_short_histories_of_a_session_each_effect_is_made_once() {
    for class in [SideEffectClass::External, SideEffectClass::Local] {
        assert_eq!(first_wrong(&ALL, Scene { class, ..ONE }), None, "{class:?}");
    }
}

#[test]
fn in_all_short_histories_of_two_sessions_none_makes_again_what_it_asked_for() {
    for class in [SideEffectClass::External, SideEffectClass::Local] {
        assert_eq!(first_wrong(&ALL, Scene { class, ..TWO }), None, "{class:?}");
    }
}

/// The search finds what was wrong: an effect that is asked for in between, or beside, took the receipt away.
#[test]
fn a_younger_effect_alone_takes_no_receipt_away() {
    for trouble in ALL {
        let found = first_wrong(&[trouble], Scene { left_behind: by_the_newest, ..ONE });
        assert_eq!(found.map(|(_, why)| why), Some("made twice"), "{trouble:?}");
    }
}

/// And that a session which was told to ask again for another's call made one of its own.
#[test]
fn whoever_was_joined_to_a_call_of_another_is_owed_it_too() {
    let troubles = [Trouble::Told, Trouble::Cancelled, Trouble::Killed];
    let found = first_wrong(&troubles, Scene { left_behind: by_who_began, ..TWO });
    assert_eq!(found.map(|(_, why)| why), Some("made twice"));
}
