//! All short histories of sessions whose clients want effects, each once: which of their requests make one.
//!
//! A client asks for what it has no answer to, and for that again when it is told to, when it gave up, or when it was killed. Whatever happens in
//! between, whoever else asks for the same, and in whichever order: no session makes an effect that it asked for before and has no answer to.
//! And what it has heard of, it may want anew. So it is where the broker dies at any moment, and clients ask and give up while there is none; and,
//! but for which agent reads which receipt, where nothing names a session but its connection, and the next client of a killed one has another one.

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
    /// It gives up without a word: the gateway answers it all the same, and takes the answer for read.
    Silent,
    /// The broker is killed, with all that it knows; the bridge keeps what has no answer for the next one.
    BrokerKilled,
}

const ALL: [Trouble; 4] = [Trouble::Told, Trouble::Cancelled, Trouble::Crossed, Trouble::Killed];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    /// A session asks for an effect.
    Ask(usize, usize),
    Send(usize),
    Finish(usize),
    Trouble(Trouble, usize),
    /// The next broker comes, and is asked for all that has no answer.
    BrokerComes,
    /// A person says, as it was, that a call in doubt did not happen.
    Retry(usize),
    /// A client gives up what it asked for while there was no broker.
    CancelUnsaid(usize),
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
    /// Over which connection it came.
    connection: usize,
    call: usize,
    is_new: bool,
    at: i64,
    answered: Option<i64>,
    is_acknowledged: bool,
    /// As far as the gateway knows its client is there, and waits for it.
    waits: bool,
    /// Its client takes no answer to it, whoever knows that.
    is_left: bool,
    /// When it was told to ask again.
    told_at: Option<i64>,
}

/// How it is remembered that a session was told to ask again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Promises {
    /// By the request, which stands in the store.
    Stored,
    /// By the broker that told it, where the request could not be stored.
    InMind,
    /// Not at all, as it was where the request could not be stored, or an answer to an earlier one counted for it.
    Forgotten,
}

/// A request that no broker was told yet.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Unsaid {
    session: usize,
    text: usize,
    is_left: bool,
}

#[derive(Debug, Clone)]
struct Call {
    session: usize,
    /// Over which connection it was asked for first.
    connection: usize,
    text: usize,
    at: i64,
    is_sent: bool,
    /// Its broker was killed, and nobody knows what came of it.
    is_in_doubt: bool,
    done_at: Option<i64>,
    /// Its client gave it up, and was told nothing of it.
    is_dropped: bool,
}

/// What a session's client knows.
#[derive(Debug, Clone, Default)]
struct Client {
    /// How many there were before it.
    number: usize,
    /// What was written to the one that is there.
    written: Vec<usize>,
    /// Of each text whether it has an answer.
    has: [bool; 2],
    /// What the next one asks for before anything else: an answer to it was written, and not read.
    first: [bool; 2],
    /// When it was told to ask again, while no answer was written to what it asked for behind that.
    told_at: [Option<i64>; 2],
    /// What it once gave up without a word.
    was_silent: [bool; 2],
}

/// How a search goes.
#[derive(Clone, Copy)]
struct Scene {
    sessions: usize,
    texts: usize,
    depth: usize,
    class: SideEffectClass,
    left_behind: LeftBehind,
    /// Whether the bridge keeps a cancellation with the request that it asks for again, and withdraws what it told nobody.
    keeps_cancels: bool,
    promises: Promises,
    names: Names,
}

/// What the gateway knows a session by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Names {
    /// By its name, which the next client of it says as well.
    Said,
    /// By its connection alone; what of a client that has gone was never read is handed to the next one of its kind.
    None,
    /// The same, as it was: the next one is anybody.
    NoneAndForgotten,
}

/// The gateway and its clients.
#[derive(Debug, Clone, Default)]
struct World {
    now: i64,
    calls: Vec<Call>,
    requests: Vec<Request>,
    clients: [Client; 2],
    /// There is no broker.
    is_away: bool,
    /// What was asked for since.
    unsaid: Vec<Unsaid>,
    /// A session made an effect that it had asked for, and has no answer to.
    is_made_again: bool,
}

/// Whether a session went on from a call, as one set of rules has it.
type LeftBehind = fn(&World, usize, usize, &Known, Scene) -> bool;

/// What the gateway knows of who asked for a call.
struct Known {
    arrivals: Vec<SeenArrival>,
    told_at: Option<Timestamp>,
}

fn by_the_rules(world: &World, session: usize, call: usize, known: &Known, scene: Scene) -> bool {
    let of = &world.calls[call];
    let dropped_at = of.done_at.filter(|_| of.is_dropped && scene.class == SideEffectClass::Local);
    is_left_behind(&known.arrivals, known.told_at, world.heard_at(session, scene.names).map(at), dropped_at.map(at))
}

/// As it was: whichever effect was asked for later, in whichever way, took the receipt of an earlier one away.
fn by_the_newest(world: &World, session: usize, call: usize, _known: &Known, _scene: Scene) -> bool {
    world.requests.iter().rfind(|request| request.session == session).is_some_and(|newest| newest.call != call)
}

/// As it was: a receipt was owed to nobody but whoever asked for its call first.
fn by_who_began(world: &World, session: usize, call: usize, known: &Known, scene: Scene) -> bool {
    world.calls[call].session != session || by_the_rules(world, session, call, known, scene)
}

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_millis(1_767_323_045_000 + seconds * 1_000)
}

impl World {
    /// The connection of a session's client, told from all others.
    fn connection(&self, session: usize) -> usize {
        self.clients[session].number * self.clients.len() + session
    }

    /// Whether a request is, as far as the gateway knows, of the session of this one's client.
    fn is_of(&self, request: &Request, session: usize, names: Names) -> bool {
        match names {
            Names::Said => request.session == session,
            Names::None | Names::NoneAndForgotten => request.connection == self.connection(session),
        }
    }

    /// Whether a request of another session may be of this one's client.
    fn earlier(&self, request: &Request, session: usize, names: Names) -> Earlier {
        if names != Names::None || self.is_of(request, session, names) {
            return Earlier::No;
        }
        // A session is opened with its first request.
        let connection = self.connection(session);
        let own = self.requests.iter().filter(|request| request.connection == connection).map(|request| request.at);
        let is_behind = own.min().unwrap_or(self.now) > request.at;
        let has_gone = self.connection(request.session) != request.connection;
        if is_behind && has_gone { Earlier::Gone { is_told: true } } else { Earlier::Beside }
    }

    /// When a session asked for the newest effect of its own whose answer its client has.
    fn heard_at(&self, session: usize, names: Names) -> Option<i64> {
        let is_heard = |request: &&Request| {
            let is_own = self.is_of(request, session, names) && request.is_new;
            is_own && request.is_acknowledged && self.calls[request.call].is_sent
        };
        self.requests.iter().filter(is_heard).map(|request| request.at).max()
    }

    fn seen(&self, session: usize, call: usize, scene: Scene) -> Seen {
        let of = &self.calls[call];
        let requests: Vec<&Request> = self.requests.iter().filter(|request| request.call == call).collect();
        let is_stored = |request: &&&Request| request.told_at.is_none() || scene.promises == Promises::Stored;
        let arrivals: Vec<SeenArrival> = requests
            .iter()
            .filter(is_stored)
            .map(|request| SeenArrival {
                arrival: format!("a{}", request.at),
                client_call: None,
                is_acknowledged: request.is_acknowledged,
                is_family: self.is_of(request, session, scene.names),
                is_of_client: self.is_of(request, session, scene.names),
                earlier: self.earlier(request, session, scene.names),
                arrived_at: at(request.at),
                answered_at: request.answered.map(at),
            })
            .collect();
        let is_own = |request: &&&Request| self.is_of(request, session, scene.names);
        let told = requests.iter().filter(is_own).filter_map(|request| request.told_at);
        let told_at = told.max().filter(|_| scene.promises == Promises::InMind).map(at);
        let known = Known { arrivals, told_at };
        let is_family = |of: &Call| match scene.names {
            Names::Said => of.session == session,
            Names::None | Names::NoneAndForgotten => of.connection == self.connection(session),
        };
        let (status, live) = match (of.done_at.is_some(), of.is_sent, requests.iter().any(|request| request.waits)) {
            (false, _, is_awaited) if of.is_in_doubt => {
                (CallStatus::Unknown, if is_awaited { Live::Awaited } else { Live::No })
            }
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
            is_family: is_family(of),
            is_of_client: is_family(of),
            is_same_server: true,
            is_left_behind: (scene.left_behind)(self, session, call, &known, scene),
            has_effect: true,
            status,
            is_given_up: false,
            may_have_happened: true,
            was_doubted: false,
            was_unanswered: false,
            told_at,
            live,
            is_held: false,
            is_withdrawn: false,
            arrivals: known.arrivals,
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
        let (is_left, asked_at) = (request_of.is_left, request_of.at);
        let client = &mut self.clients[request_of.session];
        if !is_left {
            (client.has[text], client.first[text]) = (true, false);
        }
        client.told_at[text] = client.told_at[text].filter(|told| *told > asked_at);
        client.written.push(request);
    }

    /// Whether a session asked for it, is answered by nobody yet, and did not give it up.
    fn waits_for(&self, session: usize, text: usize) -> bool {
        let is_it = |request: &Request| request.session == session && self.calls[request.call].text == text;
        let is_unsaid = self.unsaid.contains(&Unsaid { session, text, is_left: false });
        is_unsaid || self.requests.iter().any(|request| request.waits && !request.is_left && is_it(request))
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
            if call.is_in_doubt && !self.is_away {
                steps.push(Step::Retry(number));
            } else if !call.is_sent && is_awaited && !self.is_away {
                steps.push(Step::Send(number));
            } else if call.is_sent && call.done_at.is_none() && !call.is_in_doubt {
                steps.push(Step::Finish(number));
            }
        }
        if self.is_away {
            steps.push(Step::BrokerComes);
        }
        let unsaid =
            (0..self.unsaid.len()).filter(|one| troubles.contains(&Trouble::Cancelled) && !self.unsaid[*one].is_left);
        steps.extend(unsaid.map(Step::CancelUnsaid));
        for &trouble in troubles {
            let of: Vec<usize> = match trouble {
                // While there is no broker nobody hears of these.
                Trouble::Told | Trouble::Crossed | Trouble::Killed if self.is_away => Vec::new(),
                Trouble::Told | Trouble::Cancelled | Trouble::Silent => {
                    let waits = |request: &usize| self.requests[*request].waits && !self.requests[*request].is_left;
                    (0..self.requests.len()).filter(waits).collect()
                }
                Trouble::BrokerKilled => (0..usize::from(!self.is_away)).collect(),
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
                self.is_made_again |= self.is_wanted_still(session, text, scene);
                self.calls.push(Call {
                    session,
                    connection: self.connection(session),
                    text,
                    at: self.now,
                    is_sent: false,
                    is_in_doubt: false,
                    done_at: None,
                    is_dropped: false,
                });
                (self.calls.len() - 1, false)
            }
            Ruling::Join(call, _) | Ruling::Decide(call, _) => (number(call), false),
            Ruling::HandOut(call, _) => (number(call), true),
            Ruling::Ask(..) => panic!("nobody is asked about an effect that is not declared: {ruling:?}"),
        };
        self.calls[call].is_dropped = false;
        let at = self.now;
        let waits = !is_over;
        let (answered, is_acknowledged, is_left, told_at) = (None, false, false, None);
        let connection = self.connection(session);
        let request =
            Request { session, connection, call, is_new, at, answered, is_acknowledged, waits, is_left, told_at };
        self.requests.push(request);
        if is_over {
            self.write(self.requests.len() - 1);
        }
    }

    /// Whether a session that has no answer to an effect means the one that it asked for before: but for a command that its client gave up, and
    /// behind which it went on. What it once gave up without a word it is promised only where it was told to ask again.
    fn is_wanted_still(&self, session: usize, text: usize, scene: Scene) -> bool {
        let is_it = |request: &&Request| request.session == session && self.calls[request.call].text == text;
        let Some(last) = self.requests.iter().rfind(is_it) else { return false };
        let call = &self.calls[last.call];
        let heard_at = self.heard_at(session, scene.names);
        let went_on = call.done_at.zip(heard_at).is_some_and(|(done, heard)| heard > done);
        let client = &self.clients[session];
        let is_promised = !client.was_silent[text] || client.told_at[text].is_some();
        is_promised && !(scene.class == SideEffectClass::Local && call.is_dropped && went_on)
    }

    fn step(&mut self, step: Step, read: Read, scene: Scene) {
        self.now += 1;
        match step {
            Step::Ask(session, text) if self.is_away => self.unsaid.push(Unsaid { session, text, is_left: false }),
            Step::Ask(session, text) => self.ask(session, text, scene),
            Step::CancelUnsaid(unsaid) => self.unsaid[unsaid].is_left = true,
            Step::Retry(call) => (self.calls[call].is_in_doubt, self.calls[call].is_sent) = (false, false),
            Step::Trouble(Trouble::BrokerKilled, _) => {
                self.is_away = true;
                for call in self.calls.iter_mut().filter(|call| call.is_sent && call.done_at.is_none()) {
                    call.is_in_doubt = true;
                }
            }
            Step::BrokerComes => {
                self.is_away = false;
                for request in self.requests.iter_mut().filter(|request| request.is_left && scene.keeps_cancels) {
                    request.waits = false;
                }
                for unsaid in std::mem::take(&mut self.unsaid) {
                    if unsaid.is_left && scene.keeps_cancels {
                        continue;
                    }
                    self.now += 1;
                    self.ask(unsaid.session, unsaid.text, scene);
                    if let Some(request) = self.requests.last_mut() {
                        request.is_left = unsaid.is_left;
                    }
                }
            }
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
            Step::Trouble(Trouble::Cancelled, request) if self.is_away => {
                self.requests[request].is_left = true;
                self.calls[self.requests[request].call].is_dropped = true;
            }
            Step::Trouble(trouble @ (Trouble::Told | Trouble::Cancelled), request) => {
                self.requests[request].waits = false;
                self.calls[self.requests[request].call].is_dropped = trouble == Trouble::Cancelled;
                if trouble == Trouble::Told {
                    self.requests[request].told_at = Some(self.now);
                    let text = self.text_of(request);
                    self.clients[self.requests[request].session].told_at[text] = Some(self.now);
                }
            }
            Step::Trouble(Trouble::Silent, request) => {
                self.requests[request].is_left = true;
                let text = self.text_of(request);
                self.clients[self.requests[request].session].was_silent[text] = true;
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
                self.clients[session].number += 1;
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
        let is_silent = |text: usize| self.clients.iter().any(|client| client.was_silent[text]);
        let is_too_many = |text: usize| !is_silent(text) && self.made(text) > scene.sessions;
        // Of two that nothing names one may be handed the receipt of the other, and the other makes its own.
        let is_anybodys = scene.sessions > 1 && scene.names != Names::Said;
        if (self.is_made_again && !is_anybodys) || (is_owed_to_one && (0..2).any(is_too_many)) {
            return Some("made twice");
        }
        // Whoever has its answer and goes on wants another one by the same words.
        let is_over = !self.is_away && self.calls.iter().all(|call| call.done_at.is_some());
        let is_lost = |session: usize| {
            let mut next = self.clone();
            next.now += 1;
            next.goes_on(session);
            let is_heard = |text: usize| {
                let is_of = |request: &&Request| request.session == session && next.calls[request.call].text == text;
                let is_had = next.clients[session].has[text];
                is_had && next.requests.iter().filter(is_of).any(|request| request.is_acknowledged)
            };
            (0..scene.texts).any(|text| is_heard(text) && next.ruling(session, text, scene) != Ruling::New)
        };
        (is_over && !is_anybodys && (0..scene.sessions).any(is_lost)).then_some("a new one is not made")
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

const ONE: Scene = Scene {
    sessions: 1,
    texts: 2,
    depth: 9,
    class: SideEffectClass::External,
    left_behind: by_the_rules,
    keeps_cancels: true,
    promises: Promises::Stored,
    names: Names::Said,
};
const TWO: Scene = Scene { sessions: 2, texts: 1, depth: 8, ..ONE };
/// One effect, so that more may happen to it.
const SHORT: Scene = Scene { texts: 1, ..ONE };
/// What happens where a broker dies and clients give up.
const NO_BROKER: [Trouble; 2] = [Trouble::Cancelled, Trouble::BrokerKilled];

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

/// Whenever the broker dies, and whenever a client gives up: also while there is none, and what it asked for meanwhile.
#[test]
fn what_is_given_up_while_there_is_no_broker_is_answered_to_nobody() {
    for class in [SideEffectClass::External, SideEffectClass::Local] {
        assert_eq!(first_wrong(&NO_BROKER, Scene { class, ..SHORT }), None, "{class:?}");
    }
}

/// As it was: a cancellation that no broker heard was lost, so the next one answered a request for whose answer nobody waited, and took it for read.
#[test]
fn a_cancellation_that_is_lost_with_its_broker_makes_an_effect_twice() {
    for class in [SideEffectClass::External, SideEffectClass::Local] {
        let found = first_wrong(&NO_BROKER, Scene { class, keeps_cancels: false, ..SHORT });
        assert_eq!(found.map(|(_, why)| why), Some("made twice"), "{class:?}");
    }
}

/// Clients that give up without a word, and are told, when they ask again, that the same call once more returns what came of it: that is kept,
/// whoever remembers it, though an answer to the request that they gave up was written to them.
#[test]
fn what_a_session_was_told_to_ask_for_again_it_is_owed() {
    let troubles = [Trouble::Told, Trouble::Silent, Trouble::Cancelled];
    for class in [SideEffectClass::External, SideEffectClass::Local] {
        for promises in [Promises::Stored, Promises::InMind] {
            let scene = Scene { class, promises, depth: 8, ..SHORT };
            assert_eq!(first_wrong(&troubles, scene), None, "{class:?} {promises:?}");
        }
    }
}

/// As it was.
#[test]
fn a_promise_that_is_forgotten_makes_an_effect_twice() {
    for class in [SideEffectClass::External, SideEffectClass::Local] {
        let scene = Scene { class, promises: Promises::Forgotten, depth: 8, ..SHORT };
        let found = first_wrong(&[Trouble::Told, Trouble::Silent], scene);
        assert_eq!(found.map(|(_, why)| why), Some("made twice"), "{class:?}");
    }
}

/// Nothing names the sessions: a client that was killed has another connection next, and no effect is made more often than there are agents.
#[test]
fn what_nothing_names_is_made_once_for_each_agent() {
    for scene in [ONE, TWO] {
        assert_eq!(first_wrong(&ALL, Scene { names: Names::None, ..scene }), None, "{} sessions", scene.sessions);
    }
}

/// As it was.
#[test]
fn a_client_that_is_taken_for_another_one_after_a_kill_makes_an_effect_twice() {
    for scene in [ONE, TWO] {
        let found = first_wrong(&[Trouble::Killed], Scene { names: Names::NoneAndForgotten, ..scene });
        assert_eq!(found.map(|(_, why)| why), Some("made twice"), "{} sessions", scene.sessions);
    }
}
