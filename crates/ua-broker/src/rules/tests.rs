//! Every rule by a row, and what holds of all requests.

use proptest::prelude::*;

use super::*;

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_millis(1_767_323_045_000 + seconds * 1_000)
}

fn email(arrival: &'static str) -> Asked<'static> {
    Asked {
        arrival,
        client_call: None,
        own_call: None,
        gives_up_within: None,
        class: SideEffectClass::External,
        is_declared: true,
        at: at(100),
    }
}

fn append(arrival: &'static str) -> Asked<'static> {
    Asked { is_declared: false, ..email(arrival) }
}

fn seen(id: &str, status: CallStatus) -> Seen {
    Seen {
        call: CallId::parse(id).unwrap(),
        asked_at: at(0),
        is_family: true,
        is_of_client: true,
        is_same_server: true,
        is_left_behind: false,
        has_effect: true,
        status,
        is_given_up: false,
        may_have_happened: false,
        was_doubted: false,
        was_unanswered: false,
        told_at: None,
        live: Live::No,
        is_held: false,
        is_withdrawn: false,
        arrivals: vec![SeenArrival {
            arrival: format!("a_{id}"),
            client_call: Some("toolu_1".into()),
            is_acknowledged: false,
            is_family: true,
            is_of_client: true,
            earlier: Earlier::No,
            arrived_at: at(0),
            answered_at: None,
        }],
    }
}

fn acknowledged(mut call: Seen) -> Seen {
    call.arrivals[0].is_acknowledged = true;
    call
}

fn elsewhere(mut call: Seen) -> Seen {
    call.arrivals.iter_mut().for_each(|arrival| (arrival.is_family, arrival.is_of_client) = (false, false));
    Seen { is_family: false, is_of_client: false, ..call }
}

/// One of a client that has gone, and that this one may be.
fn left(call: Seen) -> Seen {
    let mut call = elsewhere(call);
    call.arrivals[0].earlier = Earlier::Gone { is_told: true };
    call
}

/// The same where neither says what it is.
fn left_untold(call: Seen) -> Seen {
    let mut call = left(call);
    call.arrivals[0].earlier = Earlier::Gone { is_told: false };
    call
}

/// Its receipt was handed to one of the same kind, that is there still.
fn taken(call: Seen) -> Seen {
    let mut call = call;
    let other = SeenArrival { earlier: Earlier::Beside, is_acknowledged: true, ..call.arrivals[0].clone() };
    call.arrivals.push(SeenArrival { arrival: "taken".into(), arrived_at: at(50), ..other });
    call
}

/// One of another family, for which this one asked as well.
fn joined(mut call: Seen, is_acknowledged: bool) -> Seen {
    let own = SeenArrival { arrival: "own".into(), client_call: None, is_acknowledged, ..call.arrivals[0].clone() };
    call.arrivals.push(SeenArrival { is_family: true, is_of_client: true, arrived_at: at(50), ..own });
    call
}

fn other_server(call: Seen) -> Seen {
    let mut call = call;
    call.arrivals.iter_mut().for_each(|arrival| arrival.is_family = false);
    Seen { is_same_server: false, is_family: false, ..call }
}

/// One that was in doubt until somebody said that it happened.
fn doubted() -> Seen {
    Seen { was_doubted: true, ..seen("c", CallStatus::Succeeded) }
}

/// One that a person did not let go out.
fn withdrawn() -> Seen {
    Seen { is_withdrawn: true, ..seen("c", CallStatus::Prepared) }
}

/// Of a client that may give up without a word.
fn impatient(arrival: &'static str) -> Asked<'static> {
    Asked { gives_up_within: Some(Duration::from_mins(1)), ..append(arrival) }
}

/// Its answer was written at 99 seconds.
fn slow(call: Seen) -> Seen {
    let mut call = acknowledged(call);
    call.arrivals[0].answered_at = Some(at(99));
    call
}

/// It was handed out at once to a second request.
fn heard_soon(call: Seen) -> Seen {
    let mut call = call;
    let second = SeenArrival { arrived_at: at(99), ..call.arrivals[0].clone() };
    call.arrivals.push(second);
    call
}

/// The session asked for it once more behind the request that has its answer, and was told to ask again.
fn told_to_ask_again(call: Seen) -> Seen {
    let mut call = acknowledged(call);
    let (arrival, client_call) = ("again".into(), None);
    let second =
        SeenArrival { arrival, client_call, is_acknowledged: false, answered_at: None, ..call.arrivals[0].clone() };
    call.arrivals.push(SeenArrival { arrived_at: at(50), ..second });
    call
}

/// Another session asked for the same while nobody waited for it, and has its answer.
fn heard_elsewhere(call: Seen) -> Seen {
    let mut call = call;
    let other =
        SeenArrival { is_acknowledged: true, is_family: false, is_of_client: false, ..call.arrivals[0].clone() };
    call.arrivals.push(other);
    call
}

/// The same of a session that says which one it is.
fn heard_elsewhere_named(call: Seen) -> Seen {
    let mut call = heard_elsewhere(call);
    call.arrivals[1].earlier = Earlier::No;
    call
}

/// One of a client like this one, that is there or was when this one came.
fn beside(call: Seen) -> Seen {
    let mut call = elsewhere(call);
    call.arrivals[0].earlier = Earlier::Beside;
    call
}

/// A call of another family whose receipt this family was handed.
fn heard_of(call: Seen) -> Seen {
    let mut call = elsewhere(acknowledged(call));
    let arrival = "late".into();
    let own = SeenArrival { arrival, client_call: None, is_acknowledged: true, ..call.arrivals[0].clone() };
    let own = SeenArrival { is_family: true, is_of_client: true, ..own };
    call.arrivals.push(own);
    call
}

#[test]
fn each_rule_has_its_rows() {
    use CallStatus::{Cancelled, FailedDefinite, FailedReported, Prepared, Running, Succeeded, Unknown};
    let call = || CallId::parse("c").unwrap();
    let (join, settle, hand_out) =
        (|rule| Ruling::Join(call(), rule), |rule| Ruling::Decide(call(), rule), |rule| Ruling::HandOut(call(), rule));
    let c = |status| seen("c", status);
    let live = |live, status| Seen { live, ..c(status) };
    let held = || Seen { is_held: true, ..live(Live::Awaited, Prepared) };
    let again = |asked: Asked<'static>| Asked { arrival: "a_c", ..asked };
    let posted = |asked: Asked<'static>| Asked { client_call: Some("toolu_1"), ..asked };
    let ask = |why| Ruling::Ask(call(), why);
    let days_later = |asked: Asked<'static>| Asked { at: at(8 * 86_400), ..asked };
    let read = Asked { class: SideEffectClass::ReadOnly, is_declared: false, ..email("a") };
    let shell = Asked { class: SideEffectClass::Local, ..append("a") };
    let rows: Vec<(&str, Asked<'static>, Vec<Seen>, Ruling)> = vec![
        ("nothing is there", email("a"), vec![], Ruling::New),
        // R1
        (
            "the bridge sends again what is under way",
            again(append("a")),
            vec![live(Live::Left, Running)],
            join(Rule::Exact),
        ),
        ("… what the broker before had sent", again(append("a")), vec![c(Running)], settle(Rule::Exact)),
        ("… what it had not sent", again(append("a")), vec![c(Prepared)], settle(Rule::Exact)),
        ("… what is in doubt", again(append("a")), vec![c(Unknown)], settle(Rule::Exact)),
        (
            "… what is done, although its answer was written",
            again(append("a")),
            vec![acknowledged(c(Succeeded))],
            hand_out(Rule::Exact),
        ),
        ("… what failed", again(append("a")), vec![c(FailedDefinite)], hand_out(Rule::Exact)),
        ("… a read", again(read), vec![c(Succeeded)], hand_out(Rule::Exact)),
        ("a transport posts again, under another name", posted(append("b")), vec![c(Succeeded)], hand_out(Rule::Exact)),
        (
            "… in another family the name says nothing",
            posted(append("b")),
            vec![elsewhere(c(FailedDefinite))],
            Ruling::New,
        ),
        ("a name that a script uses again", posted(append("b")), vec![acknowledged(c(Succeeded))], Ruling::New),
        (
            "a doubt that a person gave up",
            again(append("a")),
            vec![Seen { is_given_up: true, ..c(Unknown) }],
            hand_out(Rule::Exact),
        ),
        // R2
        (
            "nobody waits for it any more",
            append("b"),
            vec![elsewhere(live(Live::Left, Running))],
            join(Rule::Unsettled),
        ),
        (
            "it is in doubt, in another family",
            append("b"),
            vec![elsewhere(acknowledged(c(Unknown)))],
            settle(Rule::Unsettled),
        ),
        (
            "a person is asked about it, and somebody waits",
            append("b"),
            vec![live(Live::Awaited, Unknown)],
            join(Rule::Unsettled),
        ),
        (
            "an approval is waited for, and whoever asked for it has gone",
            append("b"),
            vec![elsewhere(Seen { is_held: true, ..live(Live::Left, Prepared) })],
            join(Rule::Unsettled),
        ),
        ("a dead broker had sent it", append("b"), vec![elsewhere(c(Running))], settle(Rule::Unsettled)),
        ("it was never sent", email("b"), vec![elsewhere(c(Prepared))], settle(Rule::Unsettled)),
        (
            "in doubt at another server of that name",
            email("b"),
            vec![elsewhere(other_server(c(Unknown)))],
            Ruling::Ask(call(), Asks::Elsewhere),
        ),
        (
            "done there, for this session",
            email("b"),
            vec![other_server(acknowledged(c(Succeeded)))],
            Ruling::Ask(call(), Asks::Elsewhere),
        ),
        (
            "under way there",
            email("b"),
            vec![other_server(live(Live::Awaited, Running))],
            Ruling::Ask(call(), Asks::Elsewhere),
        ),
        (
            "an approval is waited for there",
            append("b"),
            vec![other_server(Seen { is_held: true, ..live(Live::Awaited, Prepared) })],
            Ruling::Ask(call(), Asks::Elsewhere),
        ),
        (
            "an append is done there and heard of",
            append("b"),
            vec![other_server(acknowledged(c(Succeeded)))],
            Ruling::New,
        ),
        (
            "done there on another day",
            email("b"),
            vec![elsewhere(other_server(acknowledged(c(Succeeded))))],
            Ruling::New,
        ),
        // R5, not declared
        ("asked again under way", append("b"), vec![live(Live::Awaited, Running)], join(Rule::Again)),
        (
            "… by a session that was joined to it before",
            append("b"),
            vec![joined(elsewhere(live(Live::Awaited, Running)), false)],
            join(Rule::Again),
        ),
        (
            "… under another name that says nothing",
            Asked { client_call: Some("toolu_2"), ..append("b") },
            vec![live(Live::Awaited, Running)],
            join(Rule::Again),
        ),
        (
            "… under one that means another",
            Asked { client_call: Some("two"), own_call: Some("two"), ..append("b") },
            vec![live(Live::Awaited, Running)],
            Ruling::New,
        ),
        ("asked again behind a slow answer", impatient("b"), vec![slow(c(Succeeded))], hand_out(Rule::Again)),
        ("… by a client that says when it gives up", append("b"), vec![slow(c(Succeeded))], Ruling::New),
        ("… long after", Asked { at: at(161), ..impatient("b") }, vec![slow(c(Succeeded))], Ruling::New),
        (
            "… behind another effect",
            impatient("b"),
            vec![Seen { is_left_behind: true, ..slow(c(Succeeded)) }],
            Ruling::New,
        ),
        ("… when it was handed out since", impatient("b"), vec![heard_soon(slow(c(Succeeded)))], Ruling::New),
        ("… of another session", impatient("b"), vec![elsewhere(slow(c(Succeeded)))], Ruling::New),
        ("a shell of another session", shell, vec![elsewhere(c(Unknown))], Ruling::New),
        ("a shell of this session", shell, vec![c(Unknown)], settle(Rule::Unsettled)),
        ("a read is made again", read, vec![c(Unknown)], Ruling::New),
        // R3
        ("a declared effect that nobody heard of", email("b"), vec![elsewhere(c(Succeeded))], hand_out(Rule::Owed)),
        (
            "… or whose failure may have had it",
            email("b"),
            vec![elsewhere(Seen { may_have_happened: true, ..c(FailedReported) })],
            hand_out(Rule::Owed),
        ),
        ("… but not one that had none", email("b"), vec![elsewhere(c(FailedReported))], Ruling::New),
        ("another effect of this family, first thing", append("b"), vec![c(Succeeded)], hand_out(Rule::Owed)),
        (
            "… whose family went on from it",
            append("b"),
            vec![Seen { is_left_behind: true, ..c(Succeeded) }],
            Ruling::New,
        ),
        (
            "… of which another session heard alone",
            append("b"),
            vec![heard_elsewhere(c(Succeeded))],
            hand_out(Rule::Owed),
        ),
        (
            "… of another family, that this one asked for as well and was told to ask for again",
            append("b"),
            vec![joined(elsewhere(c(Succeeded)), false)],
            hand_out(Rule::Owed),
        ),
        ("… and whose receipt it has had", append("b"), vec![joined(elsewhere(c(Succeeded)), true)], Ruling::New),
        ("… of another family", append("b"), vec![elsewhere(c(Succeeded))], Ruling::New),
        ("… which was in doubt", append("b"), vec![elsewhere(doubted())], hand_out(Rule::Owed)),
        ("… and whoever asked first was told", append("b"), vec![elsewhere(acknowledged(doubted()))], Ruling::New),
        ("… or somebody else was", append("b"), vec![elsewhere(heard_elsewhere(doubted()))], Ruling::New),
        ("… or this one was", append("b"), vec![heard_of(doubted())], Ruling::New),
        (
            "… and somebody else was, before who asked first",
            append("b"),
            vec![heard_elsewhere(doubted())],
            hand_out(Rule::Owed),
        ),
        (
            "… and this one is called another one",
            Asked { own_call: Some("toolu_2"), ..append("b") },
            vec![elsewhere(doubted())],
            Ruling::New,
        ),
        (
            "… by another tool server",
            append("b"),
            vec![elsewhere(other_server(doubted()))],
            Ruling::Ask(call(), Asks::Elsewhere),
        ),
        ("… in a shell of another session", shell, vec![elsewhere(doubted())], Ruling::New),
        ("… a week ago", days_later(append("b")), vec![elsewhere(doubted())], ask(Asks::Unread)),
        (
            "… and another one went out since",
            days_later(append("b")),
            vec![elsewhere(doubted()), Seen { asked_at: at(5), ..elsewhere(acknowledged(seen("d", Succeeded))) }],
            Ruling::New,
        ),
        (
            "after a week nobody knows whether that one is meant",
            days_later(email("b")),
            vec![elsewhere(c(Succeeded))],
            ask(Asks::Unread),
        ),
        (
            "… and it may have failed",
            days_later(email("b")),
            vec![elsewhere(Seen { may_have_happened: true, ..c(FailedReported) })],
            ask(Asks::Unread),
        ),
        (
            "… and another one was sent since",
            days_later(email("b")),
            vec![elsewhere(c(Succeeded)), Seen { asked_at: at(5), ..elsewhere(acknowledged(seen("d", Succeeded))) }],
            Ruling::New,
        ),
        ("… and somebody read it", days_later(email("b")), vec![elsewhere(acknowledged(c(Succeeded)))], Ruling::New),
        ("… an append of this session", days_later(append("b")), vec![c(Succeeded)], ask(Asks::Unread)),
        ("… a shell of this session", days_later(shell), vec![c(Succeeded)], ask(Asks::Unread)),
        ("… of another one", days_later(shell), vec![elsewhere(c(Succeeded))], Ruling::New),
        (
            "… and this session made another one since",
            days_later(append("b")),
            vec![c(Succeeded), Seen { asked_at: at(5), ..acknowledged(seen("d", Succeeded)) }],
            Ruling::New,
        ),
        (
            "… another session did",
            days_later(append("b")),
            vec![c(Succeeded), Seen { asked_at: at(5), ..elsewhere(acknowledged(seen("d", Succeeded))) }],
            ask(Asks::Unread),
        ),
        (
            "… and went on from it",
            days_later(append("b")),
            vec![Seen { is_left_behind: true, ..c(Succeeded) }],
            Ruling::New,
        ),
        (
            "… and calls this another one",
            Asked { own_call: Some("two"), ..days_later(append("b")) },
            vec![c(Succeeded)],
            Ruling::New,
        ),
        // R3, of clients that nothing names.
        ("an append of a client that has gone", append("b"), vec![left(c(Succeeded))], hand_out(Rule::Owed)),
        (
            "… or whose failure may have had it",
            append("b"),
            vec![left(Seen { may_have_happened: true, ..c(FailedReported) })],
            hand_out(Rule::Owed),
        ),
        ("… but not one that had none", append("b"), vec![left(c(FailedReported))], Ruling::New),
        ("… and had its answer", append("b"), vec![acknowledged(left(c(Succeeded)))], Ruling::New),
        ("… and another one of its kind has", append("b"), vec![taken(left(c(Succeeded)))], Ruling::New),
        (
            "… while a session with a name read it as well",
            append("b"),
            vec![heard_elsewhere_named(left(c(Succeeded)))],
            hand_out(Rule::Owed),
        ),
        ("… beside which this one was there", append("b"), vec![beside(c(Succeeded))], Ruling::New),
        (
            "… and this one made one itself",
            append("b"),
            vec![left(c(Succeeded)), Seen { asked_at: at(5), ..acknowledged(seen("d", Succeeded)) }],
            Ruling::New,
        ),
        (
            "… and this one is called another one",
            Asked { own_call: Some("two"), ..append("b") },
            vec![left(c(Succeeded))],
            Ruling::New,
        ),
        ("… a shell", shell, vec![left(c(Succeeded))], Ruling::New),
        (
            "… what its tool asked for was answered in its place",
            append("b"),
            vec![Seen { was_unanswered: true, ..left(c(Succeeded)) }],
            Ruling::New,
        ),
        ("… and says as little of itself as this one", append("b"), vec![left_untold(c(Succeeded))], ask(Asks::Unread)),
        (
            "… and a person let another one go out for it",
            append("b"),
            vec![left_untold(c(Succeeded)), Seen { asked_at: at(5), ..acknowledged(seen("d", Succeeded)) }],
            Ruling::New,
        ),
        (
            "… and a person did not",
            append("b"),
            vec![left_untold(c(Succeeded)), Seen { asked_at: at(5), ..seen("d", Cancelled) }],
            ask(Asks::Unread),
        ),
        (
            "… and was sent as another account",
            append("b"),
            vec![other_server(left(c(Succeeded)))],
            Ruling::Ask(call(), Asks::Elsewhere),
        ),
        ("… a week ago", days_later(append("b")), vec![left(c(Succeeded))], ask(Asks::Unread)),
        (
            "what was read before its tool had an effect",
            email("b"),
            vec![Seen { has_effect: false, ..acknowledged(c(Succeeded)) }],
            Ruling::New,
        ),
        ("… and of which nobody heard", append("b"), vec![Seen { has_effect: false, ..c(Succeeded) }], Ruling::New),
        ("a shell of this session that nobody heard of", shell, vec![c(Succeeded)], hand_out(Rule::Owed)),
        ("… of another session", shell, vec![elsewhere(c(Succeeded))], Ruling::New),
        (
            "… answered to one request, and asked for again behind it without an answer",
            shell,
            vec![told_to_ask_again(c(Succeeded))],
            hand_out(Rule::Owed),
        ),
        ("… by another session", shell, vec![elsewhere(told_to_ask_again(c(Succeeded)))], Ruling::New),
        (
            "… before the session went on from it",
            shell,
            vec![Seen { is_left_behind: true, ..told_to_ask_again(c(Succeeded)) }],
            Ruling::New,
        ),
        (
            "… told again behind a slow answer",
            Asked { class: SideEffectClass::Local, ..impatient("b") },
            vec![slow(c(Succeeded))],
            Ruling::New,
        ),
        // R4
        ("a declared effect, again", email("b"), vec![acknowledged(c(Succeeded))], hand_out(Rule::Repeat)),
        ("the same, another day's session", email("b"), vec![elsewhere(acknowledged(c(Succeeded)))], Ruling::New),
        (
            "… whose late receipt this session was handed",
            email("b"),
            vec![heard_of(c(Succeeded))],
            hand_out(Rule::Repeat),
        ),
        ("an append whose late receipt it was handed", append("b"), vec![heard_of(c(Succeeded))], Ruling::New),
        ("an append, again", append("b"), vec![acknowledged(c(Succeeded))], Ruling::New),
        (
            "… where the session asked for it once more before, and has no answer to that",
            append("b"),
            vec![told_to_ask_again(c(Succeeded))],
            hand_out(Rule::Owed),
        ),
        (
            "a declared effect that was asked for so is a repeat",
            email("b"),
            vec![told_to_ask_again(c(Succeeded))],
            hand_out(Rule::Repeat),
        ),
        (
            "… owed, and called another one by a program that names its calls",
            Asked { client_call: Some("two"), own_call: Some("two"), ..append("b") },
            vec![c(Succeeded)],
            Ruling::New,
        ),
        (
            "… and asked for under its own name again",
            Asked { own_call: Some("toolu_1"), ..append("b") },
            vec![c(Succeeded)],
            hand_out(Rule::Owed),
        ),
        (
            "… its own, beside one of another session of which nobody knows what came",
            append("b"),
            vec![c(Succeeded), Seen { asked_at: at(5), ..elsewhere(seen("d", Unknown)) }],
            hand_out(Rule::Owed),
        ),
        // R6: what its own session's ledger does not find.
        (
            "it failed for another session, and this one read so",
            email("b"),
            vec![Seen { may_have_happened: true, ..heard_of(c(FailedReported)) }],
            Ruling::Ask(call(), Asks::Failed),
        ),
        ("… without an effect", email("b"), vec![heard_of(c(FailedReported))], Ruling::New),
        (
            "… and this one has not read so",
            email("b"),
            vec![elsewhere(acknowledged(Seen { may_have_happened: true, ..c(FailedReported) }))],
            Ruling::New,
        ),
        (
            "… an append",
            append("b"),
            vec![Seen { may_have_happened: true, ..heard_of(c(FailedReported)) }],
            Ruling::New,
        ),
        (
            "it failed for this client, at another server or as another account",
            email("b"),
            vec![other_server(acknowledged(Seen { may_have_happened: true, ..c(FailedReported) }))],
            Ruling::Ask(call(), Asks::Failed),
        ),
        (
            "… more than a week ago",
            days_later(email("b")),
            vec![other_server(acknowledged(Seen { may_have_happened: true, ..c(FailedReported) }))],
            Ruling::Ask(call(), Asks::Failed),
        ),
        (
            "… in an earlier session, which a person ended",
            email("b"),
            vec![Seen {
                is_of_client: true,
                ..elsewhere(acknowledged(Seen { may_have_happened: true, ..c(FailedReported) }))
            }],
            Ruling::Ask(call(), Asks::Failed),
        ),
        (
            "a person ended its session instead of letting it go out",
            append("b"),
            vec![elsewhere(withdrawn())],
            Ruling::Ask(call(), Asks::Withdrawn),
        ),
        ("… the very request", again(append("a")), vec![withdrawn()], settle(Rule::Exact)),
        (
            "… under its name for the tool use",
            posted(append("b")),
            vec![withdrawn()],
            Ruling::Ask(call(), Asks::Withdrawn),
        ),
        (
            "… and another one went out since",
            append("b"),
            vec![elsewhere(withdrawn()), Seen { asked_at: at(5), ..elsewhere(acknowledged(seen("d", Succeeded))) }],
            Ruling::New,
        ),
        ("… a shell of another session", shell, vec![elsewhere(withdrawn())], Ruling::New),
        (
            "… more than a week ago",
            Asked { at: at(8 * 86_400), ..email("b") },
            vec![elsewhere(withdrawn())],
            Ruling::New,
        ),
        ("it failed for certain", email("b"), vec![acknowledged(c(FailedDefinite))], Ruling::New),
        ("it was refused", email("b"), vec![c(Cancelled)], Ruling::New),
        // R5
        ("two clients send one e-mail", email("b"), vec![elsewhere(live(Live::Awaited, Running))], join(Rule::Twin)),
        ("two clients append", append("b"), vec![elsewhere(live(Live::Awaited, Running))], Ruling::New),
        (
            "two clients send one e-mail that waits for an approval",
            email("b"),
            vec![elsewhere(held())],
            join(Rule::Twin),
        ),
        ("two clients append, and an approval is waited for", append("b"), vec![elsewhere(held())], Ruling::New),
        ("one client appends twice, and an approval is waited for", append("b"), vec![held()], join(Rule::Again)),
        (
            "… and calls them by two names of its own",
            Asked { own_call: Some("toolu_2"), ..append("b") },
            vec![held()],
            Ruling::New,
        ),
    ];
    for (why, asked, seen, ruling) in rows {
        assert_eq!(decide(&asked, &seen), ruling, "{why}");
    }
}

/// A command that its client gave up is owed until the session went on behind it; what had no answer for another reason, until it is returned.
#[test]
fn what_was_given_up_is_left_behind_once_the_session_went_on() {
    let (none, early, late) = (None, Some(at(10)), Some(at(90)));
    for (answered, heard, dropped, is_left) in [
        (none, late, none, false),
        (none, late, early, true),
        (none, early, late, false),
        (none, none, early, false),
        (early, late, none, true),
        (late, early, none, false),
    ] {
        let mut arrivals = seen("c", CallStatus::Succeeded).arrivals;
        arrivals[0].answered_at = answered;
        assert_eq!(is_left_behind(&arrivals, None, heard, dropped), is_left, "{answered:?} {heard:?} {dropped:?}");
        // What it was told to ask for again is owed whatever it heard of since.
        assert!(!is_left_behind(&arrivals, Some(at(80)), heard, None), "{answered:?} {heard:?}");
    }
}

/// A session asked at 0 and was answered when its client had given up without a word; what it asked for, or was told, behind that it is owed.
#[test]
fn an_answer_pays_for_no_later_request() {
    let (had, none) = (true, false);
    for (requests, told_at, is_owed) in [
        (vec![(0, had)], None, false),
        (vec![(0, none)], None, true),
        (vec![(0, had), (4, none)], None, true),
        (vec![(0, none), (4, had)], None, false),
        (vec![(0, had)], Some(5), true),
        // It was told so, and had what it was told to ask for.
        (vec![(0, none), (6, had)], Some(5), false),
        // Two of one session waited at once: the one that was told is owed what the other one has.
        (vec![(0, none), (1, had)], Some(5), true),
        (vec![(0, had), (4, none), (6, had)], Some(5), false),
    ] {
        let call = seen("c", CallStatus::Succeeded);
        let arrival = |(arrived, is_acknowledged): &(i64, bool)| SeenArrival {
            is_acknowledged: *is_acknowledged,
            arrived_at: at(*arrived),
            answered_at: is_acknowledged.then(|| at(10)),
            ..call.arrivals[0].clone()
        };
        let call = Seen { arrivals: requests.iter().map(arrival).collect(), told_at: told_at.map(at), ..call.clone() };
        for asked in [append("b"), Asked { class: SideEffectClass::Local, ..append("b") }] {
            let wanted = if is_owed { Ruling::HandOut(call.call.clone(), Rule::Owed) } else { Ruling::New };
            assert_eq!(decide(&asked, std::slice::from_ref(&call)), wanted, "{requests:?} {told_at:?}");
        }
    }
}

#[test]
fn of_several_the_doubt_comes_first_and_then_the_newest() {
    let old = Seen { asked_at: at(-50), ..seen("c1", CallStatus::Unknown) };
    let new = acknowledged(seen("c2", CallStatus::Succeeded));
    let c1 = CallId::parse("c1").unwrap();
    assert_eq!(decide(&email("b"), &[new.clone(), old.clone()]), Ruling::Decide(c1, Rule::Unsettled));
    let newer = Seen { asked_at: at(-10), ..seen("c3", CallStatus::Unknown) };
    let c3 = CallId::parse("c3").unwrap();
    assert_eq!(decide(&email("b"), &[old, newer, new]), Ruling::Decide(c3, Rule::Unsettled));
}

fn any_status() -> impl Strategy<Value = CallStatus> {
    prop::sample::select(vec![
        CallStatus::Prepared,
        CallStatus::Running,
        CallStatus::Succeeded,
        CallStatus::FailedDefinite,
        CallStatus::FailedReported,
        CallStatus::Unknown,
        CallStatus::Cancelled,
    ])
}

fn any_earlier() -> impl Strategy<Value = Earlier> {
    let gone = |is_told| Earlier::Gone { is_told };
    prop::sample::select(vec![Earlier::No, Earlier::Beside, gone(true), gone(false)])
}

prop_compose! {
    fn any_seen()(
        id in 0..4_u32, seconds in 0..90_i64, status in any_status(), flags in prop::array::uniform8(any::<bool>()), is_of_client in any::<bool>(), is_withdrawn in any::<bool>(),
        live in prop::sample::select(vec![Live::No, Live::Awaited, Live::Left]),
        arrivals in prop::collection::vec((0..3_u32, prop::option::of(0..2_u32), any::<bool>(), any_earlier()), 0..3),
    ) -> Seen {
        let [is_family, is_same_server, is_left_behind, is_given_up, may_have_happened, is_held, has_effect, was_doubted] = flags;
        Seen {
            call: CallId::parse(&format!("call_{id}_{seconds}")).unwrap(), asked_at: at(seconds), is_family, is_of_client: is_of_client || is_family, is_same_server,
            is_left_behind, has_effect, status, is_given_up, may_have_happened, was_doubted,
            was_unanswered: false, told_at: None, live, is_held,
            is_withdrawn: is_withdrawn && live == Live::No && status == CallStatus::Prepared,
            arrivals: arrivals.into_iter().map(|(arrival, client, is_acknowledged, earlier)| SeenArrival {
                arrival: format!("a{arrival}"), client_call: client.map(|id| format!("t{id}")), is_acknowledged, is_family, is_of_client: is_of_client || is_family,
                earlier: if is_family { Earlier::No } else { earlier },
                arrived_at: at(seconds), answered_at: is_acknowledged.then(|| at(seconds + 3)),
            }).collect(),
        }
    }
}

fn any_class() -> impl Strategy<Value = SideEffectClass> {
    use SideEffectClass::{External, Local, Memory, ReadOnly};
    prop::sample::select(vec![External, Memory, Local, ReadOnly])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_000))]

    #[test]
    fn what_is_open_is_never_sent_beside_itself(
        all in prop::collection::vec(any_seen(), 0..5), class in any_class(), is_declared in any::<bool>(),
    ) {
        let asked = Asked { class, is_declared, ..email("other") };
        let ruling = decide(&asked, &all);
        let reaches = |seen: &&Seen| seen.is_same_server && (seen.is_family || class != SideEffectClass::Local);
        let is_open = |seen: &&Seen| seen.live == Live::Left || (seen.live == Live::No && !seen.is_withdrawn
            && matches!(seen.status, CallStatus::Prepared | CallStatus::Running | CallStatus::Unknown));
        let open = all.iter().filter(reaches).any(|seen| is_open(&seen));
        if open && class != SideEffectClass::ReadOnly {
            prop_assert_ne!(&ruling, &Ruling::New);
        }
        if class == SideEffectClass::ReadOnly {
            prop_assert_eq!(&ruling, &Ruling::New);
        }
        // What is under way is waited for, and nothing else is.
        let of = |call: &CallId| all.iter().filter(|seen| seen.call == *call).map(|seen| seen.live).collect::<Vec<_>>();
        match &ruling {
            Ruling::Join(call, _) => prop_assert!(of(call).iter().any(|live| *live != Live::No)),
            Ruling::Decide(call, _) | Ruling::HandOut(call, _) => prop_assert!(of(call).contains(&Live::No)),
            // What would be a call that is there if its server were the same.
            Ruling::Ask(call, Asks::Elsewhere) => prop_assert!(all.iter().any(|seen| seen.call == *call && !seen.is_same_server)),
            // What was not let go out, or failed.
            Ruling::Ask(call, Asks::Withdrawn) => prop_assert!(all.iter().any(|seen| seen.call == *call && seen.is_withdrawn)),
            Ruling::Ask(call, Asks::Failed) => prop_assert!(all.iter().any(|seen| seen.call == *call && seen.may_have_happened)),
            // What happened, and may have been read by nobody.
            Ruling::Ask(call, Asks::Unread) => prop_assert!(all.iter().any(|seen| seen.call == *call && seen.happened())),
            Ruling::New => {}
        }
    }

    /// Whatever the pair of sessions: the answer of another server is nobody's, nothing there is joined or decided, and what would be the same
    /// call with one server is not sent without a question.
    #[test]
    fn another_account_is_asked_about_and_never_told_for_made(
        all in prop::collection::vec(any_seen(), 0..5), class in any_class(), is_declared in any::<bool>(), client in 0..4_u32,
    ) {
        let mut all = all;
        all.sort_by(|a, b| a.call.cmp(&b.call));
        all.dedup_by(|a, b| a.call == b.call);
        for seen in &mut all {
            // Whose connection one of them had, no account says.
            seen.arrivals.iter_mut().for_each(|arrival| arrival.earlier = Earlier::No);
        }
        for seen in all.iter_mut().filter(|seen| !seen.is_same_server) {
            seen.is_family = false;
            seen.arrivals.iter_mut().for_each(|arrival| arrival.is_family = false);
        }
        let name = format!("t{client}");
        let asked = Asked { class, is_declared, client_call: Some(&name), ..email("other") };
        let ruling = decide(&asked, &all);
        let same = |call: &CallId| all.iter().any(|seen| seen.call == *call && seen.is_same_server);
        if let Ruling::Join(call, _) | Ruling::Decide(call, _) | Ruling::HandOut(call, _) = &ruling {
            prop_assert!(same(call));
        }
        let as_one: Vec<Seen> = all.iter().map(|seen| if seen.is_same_server { seen.clone() } else { seen.as_if_same_server() }).collect();
        // A read of another account is made, whatever the client calls it.
        if class != SideEffectClass::ReadOnly {
            // What failed in its own run is the verdict's to find, which sees no other one.
            let is_failed = matches!(ruling, Ruling::Ask(_, Asks::Failed));
            prop_assert!(is_failed || (ruling == Ruling::New) == (decide(&asked, &as_one) == Ruling::New));
        }
    }

    /// A doubt that ends reaches as far as it did: while nobody was told, nobody's call for the same is sent silently.
    #[test]
    fn how_a_doubt_ended_is_told_to_whoever_asks_first(
        all in prop::collection::vec(any_seen(), 0..5), class in any_class(), is_declared in any::<bool>(), is_own in any::<bool>(),
    ) {
        let ended = if is_own { doubted() } else { elsewhere(doubted()) };
        let mut all = all;
        all.push(ended);
        let asked = Asked { class, is_declared, ..email("other") };
        let reaches = class != SideEffectClass::ReadOnly && (is_own || class != SideEffectClass::Local);
        if reaches {
            prop_assert_ne!(decide(&asked, &all), Ruling::New);
        }
    }

    /// Whoever was told that the same call again returns what came of it is given no other one, whatever else is there and was asked for since.
    #[test]
    fn what_was_told_is_kept(
        all in prop::collection::vec(any_seen(), 0..5), told in any_seen(), class in any_class(), is_declared in any::<bool>(),
        heard in prop::option::of(0..200_i64),
    ) {
        let mut told = Seen { told_at: Some(at(95)), is_same_server: true, is_withdrawn: false, has_effect: true, ..told };
        told.is_family |= class == SideEffectClass::Local;
        told.is_left_behind = is_left_behind(&told.arrivals, told.told_at, heard.map(at), None);
        let is_there = told.live != Live::No || !matches!(told.status, CallStatus::FailedDefinite | CallStatus::Cancelled)
            && (told.status != CallStatus::FailedReported || told.may_have_happened);
        let mut all = all;
        all.push(told);
        // What is declared, failed and was heard of is the verdict's to find.
        if class != SideEffectClass::ReadOnly && is_there && !is_declared {
            prop_assert_ne!(decide(&Asked { class, is_declared, ..email("other") }, &all), Ruling::New);
        }
    }

    /// However long ago, whatever the clock says, and whatever else is there that was asked for before: what happened, and nobody is known to have
    /// read, is not made once more without a word. So it is of what is known by its content, of what its own session asked for, and of what a client
    /// asked for that has gone, and that this one may be.
    #[test]
    fn what_nobody_read_is_not_made_again_silently_at_any_time(
        all in prop::collection::vec(any_seen(), 0..5), days in 0..4_000_i64, class in any_class(), kind in 0..4_u32,
    ) {
        let unread = Seen { asked_at: at(95), ..seen("unread", CallStatus::Succeeded) };
        let (unread, is_declared) = match kind {
            0 => (elsewhere(unread), true),
            1 => (unread, false),
            2 => (left(unread), false),
            _ => (left_untold(unread), false),
        };
        let reaches = class != SideEffectClass::ReadOnly && (kind == 1 || class != SideEffectClass::Local);
        let mut all = all;
        // What its session made meanwhile, while the other one was under way, says that it means another one.
        all.retain(|seen| kind < 2 || !seen.is_family);
        all.push(unread);
        let asked = Asked { class, is_declared, at: at(100 + days * 86_400), ..email("other") };
        if reaches {
            prop_assert_ne!(decide(&asked, &all), Ruling::New);
        }
    }

    /// In a session no equal effect is sent beside one that is under way, unless the client means another one.
    #[test]
    fn nothing_is_sent_beside_itself_in_a_session(
        all in prop::collection::vec(any_seen(), 0..5), class in any_class(), is_declared in any::<bool>(),
    ) {
        let asked = Asked { class, is_declared, ..impatient("other") };
        let is_there = |seen: &Seen| seen.is_same_server && seen.is_family && seen.live != Live::No;
        if class != SideEffectClass::ReadOnly && all.iter().any(is_there) {
            prop_assert_ne!(decide(&asked, &all), Ruling::New);
        }
    }

    /// What a person did not let go out is not sent without a word while nothing like it went out since.
    #[test]
    fn what_was_withdrawn_is_asked_about(all in prop::collection::vec(any_seen(), 0..5), class in any_class(), is_declared in any::<bool>()) {
        let mut all = all;
        all.push(Seen { asked_at: at(95), ..withdrawn() });
        let asked = Asked { class, is_declared, ..email("other") };
        if class != SideEffectClass::ReadOnly {
            prop_assert_ne!(decide(&asked, &all), Ruling::New);
        }
    }

    #[test]
    fn the_order_of_rows_says_nothing(all in prop::collection::vec(any_seen(), 0..5), client in 0..3_u32) {
        let mut all = all;
        all.sort_by(|a, b| a.call.cmp(&b.call));
        all.dedup_by(|a, b| a.call == b.call);
        let name = format!("t{client}");
        let asked = Asked { client_call: Some(&name), ..email("a1") };
        let one = decide(&asked, &all);
        all.reverse();
        prop_assert_eq!(one, decide(&asked, &all));
    }

    #[test]
    fn an_effect_of_another_family_that_was_heard_of_is_no_ones_answer(all in prop::collection::vec(any_seen(), 0..5)) {
        let mut all = all;
        for seen in &mut all {
            (seen.is_family, seen.is_of_client, seen.is_withdrawn) = (false, false, false);
            (seen.live, seen.status) = (Live::No, CallStatus::Succeeded);
            seen.arrivals =
                vec![SeenArrival { arrival: "z".into(), ..acknowledged(elsewhere(super::tests::seen("z", CallStatus::Succeeded))).arrivals.remove(0) }];
        }
        prop_assert_eq!(decide(&email("a1"), &all), Ruling::New);
    }
}
