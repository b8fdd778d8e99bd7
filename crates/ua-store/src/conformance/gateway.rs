//! The gateway: sessions, requests that are calls, and how far a doubt reaches.

use ua_core::{CallStatus, CorrectedTo, PlannedCall, Resolution, RunStatus, RunStop, Scope};

use super::lost_answers::lossy;
use super::samples::{self, at, call_id, question_id, run_id};
use super::{Scene, refused};
use crate::change::{Author, Batch, Change};
use crate::commit::{CorrectCall, NewRun, RunEnd, StartAttempt, UnknownResolution};
use crate::error::StoreError;
use crate::gateway::{
    ArrivalRecord, ArrivalsOf, Delivery, GATEWAY_MODE, NewArrival, NewSession, SameCall, SessionRecord, SessionsOf,
};
use crate::record::{Choice, QuestionStatus, RunLease};
use crate::{GatewayStore, LedgerStore, RunStore, Store};

fn new_session(id: &str, project: &str, key: &str) -> NewSession {
    let run = NewRun {
        entrypoint: "gateway".to_owned(),
        run_mode: GATEWAY_MODE.to_owned(),
        job_path: None,
        ..samples::new_run(id)
    };
    let session = SessionRecord {
        run_id: run_id(id),
        project: project.to_owned(),
        server: "mail".to_owned(),
        session_key: key.to_owned(),
        client: "claude-code".to_owned(),
        identity: "exact".to_owned(),
        reach: "npx mail".to_owned(),
        opened_at: at(0),
    };
    NewSession { run, session }
}

async fn open(store: &dyn Store, new: NewSession) -> Result<(), StoreError> {
    let batch = Batch::of([Change::OpenSession(Box::new(new))]);
    store.commit(&Author::Command, batch).await.map(drop)
}

pub(super) async fn session<'s>(store: &'s dyn Store, id: &str, project: &str) -> Scene<'s> {
    open(store, new_session(id, project, id)).await.unwrap();
    Scene::take(store, id).await
}

pub(super) fn arrival(scene: &Scene<'_>, id: &str, planned: Option<PlannedCall>, call: &str) -> NewArrival {
    let like = samples::planned_email(call, 1, 1);
    NewArrival {
        arrival: ArrivalRecord {
            arrival_id: id.to_owned(),
            run_id: scene.run_id().clone(),
            call_id: call_id(call),
            client_call: Some("toolu_1".to_owned()),
            rule: "new".to_owned(),
            project: "/home/ada/project".to_owned(),
            tool: like.name.raw,
            args_hash: like.args_hash,
            arrived_at: at(5),
            answered_at: None,
            acknowledged_at: None,
            unread_until: None,
        },
        call: planned.map(Box::new),
        step: samples::step_id(&scene.step),
    }
}

pub(super) async fn write(store: &dyn Store, lease: &RunLease, change: Change) -> Result<(), StoreError> {
    store.commit(&Author::Owner(lease.clone()), Batch::of([change])).await.map(drop)
}

async fn arrive(scene: &Scene<'_>, store: &dyn Store, id: &str, call: &str, turn: u32) {
    let planned = samples::planned_email(call, turn, 1);
    let new = arrival(scene, id, Some(planned), call);
    write(store, &scene.lease, Change::Arrive(new)).await.unwrap();
}

/// With a session that a person ends, however they do, goes what is asked in it and what was not answered, unless an answer counts behind the end; and
/// nothing more is asked for it. A run of a job has an owner who does that.
pub async fn what_is_asked_in_a_session_ends_with_it(store: &dyn Store) {
    let job = Scene::begin(store, "run_job").await;
    store.raise_question(&job.lease, samples::question("q_job", None)).await.unwrap();
    for (number, is_abort) in [(1, true), (2, false)] {
        let run = format!("run_{number}");
        let scene = session(store, &run, "/p").await;
        let id = |name: &str| format!("{name}_{number}");
        arrive(&scene, store, &id("a"), &id("call"), 1).await;
        scene.bring(&id("call"), CallStatus::Unknown).await;
        let asked = async |name: &str, call: Option<&str>| {
            let call = call.map(id);
            store.raise_question(&scene.lease, samples::question(&id(name), call.as_deref())).await
        };
        for name in ["q_one", "q_other", "q_given"] {
            asked(name, None).await.unwrap();
        }
        asked("q_doubt", Some("call")).await.unwrap();
        store.insert_answer(samples::answer(&id("q_given"), Choice::Execute)).await.unwrap();
        if is_abort {
            store.insert_answer(samples::answer(&id("q_one"), Choice::Abort)).await.unwrap();
        } else {
            store.request_cancel(&run_id(&run), "not wanted", at(62)).await.unwrap();
            store.request_cancel(&run_id("run_job"), "not wanted", at(62)).await.unwrap();
        }
        let stands = async |name: &str| store.question(&question_id(&id(name))).await.unwrap();
        let one = if is_abort { QuestionStatus::Answered } else { QuestionStatus::Closed };
        assert_eq!(stands("q_one").await.status, one);
        let other = stands("q_other").await;
        assert_eq!((other.status, other.answer.is_none()), (QuestionStatus::Closed, true));
        assert!(other.closed_because.is_some_and(|why| why.contains("ended its session")));
        assert_eq!(stands("q_given").await.status, QuestionStatus::Answered, "what was said stays");
        assert_eq!(stands("q_doubt").await.status, QuestionStatus::Open);
        refused(asked("q_late", None).await, "ended this session");
    }
    let of_job = store.question(&question_id("q_job")).await.unwrap();
    assert_eq!(of_job.status, QuestionStatus::Open, "its owner closes it");
}

/// What a person left in doubt in a session is put right while its client is connected: its owner decides about it no more. A call of a job whose turn
/// is open is its owner's all the same.
pub async fn what_a_person_left_in_a_session_is_put_right_beside_its_owner(store: &dyn Store) {
    let scene = session(store, "run_1", "/p").await;
    arrive(&scene, store, "a_1", "call_1", 1).await;
    let job = Scene::begin(store, "run_2").await;
    scene.bring("call_1", CallStatus::Unknown).await;
    job.call_that_is("call_2", CallStatus::Unknown).await;
    for (scene, id, is_session) in [(&scene, "call_1", true), (&job, "call_2", false)] {
        let id = call_id(id);
        let word = |call: &_| CorrectCall { is_idle: false, ..samples::correct(call, CorrectedTo::Happened, 70) };
        let call = store.call(&id).await.unwrap();
        refused(store.correct_call(word(&call)).await, "its owner decides");
        let left = store.resolve_unknown(&scene.lease, &id, UnknownResolution::Skipped, None, at(60)).await.unwrap();
        let corrected = store.correct_call(word(&left)).await;
        if is_session {
            assert_eq!(corrected.unwrap().status, CallStatus::Succeeded);
        } else {
            refused(corrected, "its owner decides");
        }
    }
}

/// A session that a person ended is over, although its run still stands where its owner left it: what is said of its calls then settles them, once,
/// with the question, and its owner finds it so. A run of a job has an owner who applies it, behind the same word.
pub async fn what_is_said_of_a_call_counts_when_its_session_was_ended(store: &dyn Store) {
    let scene = session(store, "run_1", "/p").await;
    let job = Scene::begin(store, "run_2").await;
    arrive(&scene, store, "a_1", "call_1", 1).await;
    scene.bring("call_1", CallStatus::Unknown).await;
    job.call_that_is("call_2", CallStatus::Unknown).await;
    let (question, of_job) = (question_id("q_1"), question_id("q_2"));
    store.raise_question(&scene.lease, samples::question("q_1", Some("call_1"))).await.unwrap();
    store.raise_question(&job.lease, samples::question("q_2", Some("call_2"))).await.unwrap();
    store.insert_answer(samples::answer("q_1", Choice::Execute)).await.unwrap();
    store.insert_answer(samples::answer("q_2", Choice::Execute)).await.unwrap();
    let no = || UnknownResolution::NotHappened { why: "nobody saw it".to_owned() };
    let (id, other) = (call_id("call_1"), call_id("call_2"));
    refused(store.resolve_late(&id, no(), &question, at(61)).await, "its owner applies");

    for run in ["run_1", "run_2"] {
        store.request_cancel(&run_id(run), "not wanted", at(62)).await.unwrap();
    }
    let (lossy, answers) = lossy(store);
    answers.lose_next();
    let lost = lossy.resolve_late(&id, no(), &question, at(63)).await;
    assert!(matches!(lost, Err(StoreError::Unavailable { .. })), "{lost:?}");
    let call = store.call(&id).await.unwrap();
    assert_eq!((call.status, call.resolution), (CallStatus::FailedDefinite, Some(Resolution::NotHappened)));
    refused(store.resolve_late(&id, no(), &question, at(64)).await, "not unknown");
    let records = scene.records().await;
    assert_eq!((records.run.status, records.questions[0].status), (RunStatus::Running, QuestionStatus::Closed));
    refused(store.resolve_late(&other, no(), &of_job, at(65)).await, "its owner applies");

    // Its owner has it still, and writes on from there; the same again is no doubt of anybody.
    arrive(&scene, store, "a_2", "call_3", 2).await;
    assert!(store.relations(&call_id("call_3"), None).await.unwrap().doubts.is_empty());
    refused(store.start_attempt(&scene.lease, samples::start("call_3", 1, "call_3")).await, "cancel was requested");
    store
        .end_run(&scene.lease, RunEnd { stop_reason: Some(RunStop::Idle), ..samples::run_end(RunStatus::Stopped) })
        .await
        .unwrap();
    assert_eq!(store.call(&id).await.unwrap(), call, "as it was settled");
}

/// A session is found by its project, tool server and key, or by its run; there is one of each.
pub async fn a_session_is_one_of_its_project(store: &dyn Store) {
    open(store, new_session("run_1", "/p", "s1")).await.unwrap();
    open(store, new_session("run_2", "/p", "s2")).await.unwrap();
    open(store, new_session("run_3", "/q", "s1")).await.unwrap();
    let twice = open(store, new_session("run_4", "/p", "s1")).await;
    assert!(matches!(twice, Err(StoreError::Exists { .. })), "{twice:?}");
    assert!(store.run(&run_id("run_4")).await.is_err(), "its run is not there either");
    let key = |project: &str, session_key: &str| SessionsOf::Key {
        project: project.to_owned(),
        server: "mail".to_owned(),
        session_key: session_key.to_owned(),
    };
    let found = store.sessions_of(key("/p", "s1")).await.unwrap();
    assert_eq!(found, [new_session("run_1", "/p", "s1").session]);
    assert_eq!(store.sessions_of(key("/p", "s9")).await.unwrap(), []);
    assert_eq!(store.sessions_of(SessionsOf::Run(run_id("run_3"))).await.unwrap()[0].project, "/q");
    assert_eq!(store.sessions_of(SessionsOf::Newest(2)).await.unwrap().len(), 2);
    let job = NewSession { run: samples::new_run("run_5"), ..new_session("run_5", "/p", "s5") };
    refused(open(store, job).await, "not a session of the gateway");
}

/// A request and the call that it is stand in one write, which may be made again; another request may be the same call.
pub async fn a_request_and_its_call_are_one_write(store: &dyn Store) {
    let scene = session(store, "run_1", "/home/ada/project").await;
    let planned = samples::planned_email("call_1", 1, 1);
    let new = arrival(&scene, "a1", Some(planned.clone()), "call_1");
    write(store, &scene.lease, Change::Arrive(new.clone())).await.unwrap();
    write(store, &scene.lease, Change::Arrive(new.clone())).await.unwrap();
    let call = store.call(&call_id("call_1")).await.unwrap();
    assert_eq!((call.status, call.position), (CallStatus::Prepared, planned.position));
    // In no turn, so it can be started at any time.
    store.start_attempt(&scene.lease, samples::start("call_1", 1, "call_1")).await.unwrap();
    write(store, &scene.lease, Change::Arrive(arrival(&scene, "a2", None, "call_1"))).await.unwrap();
    let same = |projects: &[&str], tools: &[&str], args_hashes: &[ua_core::ArgsHash]| {
        let owned = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
        ArrivalsOf::Same(SameCall { projects: owned(projects), tools: owned(tools), args_hashes: args_hashes.to_vec() })
    };
    let (project, tool, own) = ("/home/ada/project", planned.name.raw.as_str(), planned.args_hash);
    let other = ua_core::sha256("other arguments");
    for (of, wanted) in [
        (ArrivalsOf::Call(call_id("call_1")), &["a1", "a2"][..]),
        (same(&[project], &[tool], &[own]), &["a1", "a2"]),
        // Under whichever of its names, and each once.
        (same(&["/nowhere", project], &["another", tool], &[other, own]), &["a1", "a2"]),
        (same(&["/nowhere"], &[tool], &[own]), &[]),
        (same(&[project], &["another"], &[own]), &[]),
        (same(&[project], &[tool], &[other]), &[]),
        (same(&[project], &[tool], &[]), &[]),
    ] {
        let ids: Vec<String> = store.arrivals_of(of).await.unwrap().into_iter().map(|a| a.arrival_id).collect();
        assert_eq!(ids, wanted);
    }
    assert_eq!(store.arrivals_of(ArrivalsOf::One("a1".to_owned())).await.unwrap(), std::slice::from_ref(&new.arrival));
    for (run, wanted) in [("run_1", &["a1", "a2"][..]), ("run_9", &[])] {
        let of = store.arrivals_of(ArrivalsOf::Session(run_id(run))).await.unwrap();
        assert_eq!(of.iter().map(|a| a.arrival_id.as_str()).collect::<Vec<_>>(), wanted);
    }

    let other = arrival(&scene, "a1", Some(samples::planned_email("call_2", 2, 1)), "call_2");
    refused(write(store, &scene.lease, Change::Arrive(other)).await, "already");
    let nobody = arrival(&scene, "a3", None, "call_9");
    assert!(write(store, &scene.lease, Change::Arrive(nobody)).await.is_err());
    let job = Scene::begin(store, "run_9").await;
    let of_job = arrival(&job, "a4", Some(samples::planned_email("call_3", 1, 1)), "call_3");
    refused(write(store, &job.lease, Change::Arrive(of_job)).await, "not a request of this session");
    let events = store.events(&call_id("call_1")).await.unwrap();
    let violations = crate::invariants::check(&scene.records().await, &events);
    assert!(violations.is_empty(), "{violations:?}");
}

/// That an answer was written, and that it is known to have arrived, is noted once, by the session that asked. What its client did not take
/// counts as not written.
pub async fn an_answer_is_noted_by_the_session_that_asked(store: &dyn Store) {
    let scene = session(store, "run_1", "/home/ada/project").await;
    let other = session(store, "run_2", "/home/ada/project").await;
    arrive(&scene, store, "a1", "call_1", 1).await;
    write(store, &other.lease, Change::Arrive(arrival(&other, "a2", None, "call_1"))).await.unwrap();
    let deliver = |ids: &[&str], delivery, seconds| Change::Deliver {
        arrivals: ids.iter().map(|id| (*id).to_owned()).collect(),
        delivery,
        at: at(seconds),
    };
    let noted = async |id: &str| {
        let found = store.arrivals_of(ArrivalsOf::One(id.to_owned())).await.unwrap().remove(0);
        (found.answered_at, found.acknowledged_at)
    };
    write(store, &scene.lease, deliver(&["a1"], Delivery::Written, 8)).await.unwrap();
    write(store, &scene.lease, deliver(&["a1"], Delivery::NotTaken, 9)).await.unwrap();
    assert_eq!(noted("a1").await, (None, None));
    write(store, &scene.lease, deliver(&["a1"], Delivery::Written, 10)).await.unwrap();
    assert_eq!(noted("a1").await, (Some(at(10)), None));
    write(store, &scene.lease, deliver(&["a1"], Delivery::Had, 11)).await.unwrap();
    write(store, &scene.lease, deliver(&["a1"], Delivery::Had, 12)).await.unwrap();
    write(store, &scene.lease, deliver(&["a1"], Delivery::NotTaken, 13)).await.unwrap();
    assert_eq!(noted("a1").await, (Some(at(10)), Some(at(11))), "it was heard of");
    assert!(write(store, &scene.lease, deliver(&["a1", "a2"], Delivery::Written, 13)).await.is_err(), "not its own");
    assert_eq!(noted("a2").await, (None, None));
}

/// An answer that is known not to have been read is so until the time that is noted with it, or until it is written once more or had.
pub async fn an_answer_that_was_not_read_is_noted_with_its_time(store: &dyn Store) {
    let scene = session(store, "run_1", "/home/ada/project").await;
    for (id, call, then) in [
        ("a1", "call_1", None),
        ("a2", "call_2", Some(Delivery::Written)),
        ("a3", "call_3", Some(Delivery::Had)),
        ("a4", "call_4", Some(Delivery::NotTaken)),
    ] {
        let turn = u32::from(id.as_bytes()[1] - b'0');
        arrive(&scene, store, id, call, turn).await;
        let note = async |delivery, seconds| {
            let change = Change::Deliver { arrivals: vec![id.to_owned()], delivery, at: at(seconds) };
            write(store, &scene.lease, change).await.unwrap();
            store.arrivals_of(ArrivalsOf::One(id.to_owned())).await.unwrap().remove(0)
        };
        note(Delivery::Written, 10).await;
        let unread = note(Delivery::Unread { until: at(20) }, 11).await;
        assert_eq!(
            (unread.answered_at, unread.acknowledged_at, unread.unread_until),
            (Some(at(10)), None, Some(at(20)))
        );
        assert!(unread.is_unread(at(20)) && !unread.is_unread(at(21)));
        let Some(then) = then else { continue };
        let found = note(then, 12).await;
        let (answered, had, unread) = match then {
            Delivery::Written => (Some(at(10)), None, None),
            Delivery::Had => (Some(at(10)), Some(at(12)), None),
            Delivery::NotTaken => (None, None, None),
            Delivery::Unread { .. } => unreachable!(),
        };
        assert_eq!((found.answered_at, found.acknowledged_at, found.unread_until), (answered, had, unread), "{then:?}");
        let after = note(Delivery::Unread { until: at(30) }, 13).await;
        assert_eq!(after.unread_until, if had.is_some() { None } else { Some(at(30)) }, "{then:?}");
    }
}

/// A session has heard of an effect of its own that was sent and whose answer its client has: of the newest of these by when it was asked for.
pub async fn a_session_has_heard_of_what_was_sent_and_answered(store: &dyn Store) {
    let scene = session(store, "run_1", "/home/ada/project").await;
    let other = session(store, "run_2", "/home/ada/project").await;
    let heard = async || {
        let found = store.arrivals_of(ArrivalsOf::NewestHeardOf(run_id("run_1"))).await.unwrap();
        found.into_iter().map(|arrival| arrival.arrival_id).collect::<Vec<_>>()
    };
    let asks = async |scene: &Scene<'_>, id: &str, call: &str, turn: u32, seconds: i64| {
        let other_words = PlannedCall { args_hash: ua_core::sha256(call), ..samples::planned_email(call, turn, 1) };
        let mut new = NewArrival { call: Some(Box::new(other_words)), ..arrival(scene, id, None, call) };
        new.arrival.arrived_at = at(seconds);
        write(store, &scene.lease, Change::Arrive(new)).await.unwrap();
    };
    let has = async |scene: &Scene<'_>, id: &str, delivery| {
        let change = Change::Deliver { arrivals: vec![id.to_owned()], delivery, at: at(20) };
        write(store, &scene.lease, change).await.unwrap();
    };
    let start = |call: &str| samples::start(call, 1, call);
    asks(&scene, "a1", "call_1", 1, 5).await;
    has(&scene, "a1", Delivery::Had).await;
    assert_eq!(heard().await, [""; 0], "it was not sent");
    store.start_attempt(&scene.lease, start("call_1")).await.unwrap();
    assert_eq!(heard().await, ["a1"]);
    asks(&scene, "a2", "call_2", 2, 7).await;
    store.start_attempt(&scene.lease, start("call_2")).await.unwrap();
    has(&scene, "a2", Delivery::Written).await;
    assert_eq!(heard().await, ["a1"], "nobody is known to have that answer");
    // What is the earlier call once more is no other one.
    let mut again = arrival(&scene, "a3", None, "call_1");
    (again.arrival.rule, again.arrival.arrived_at) = ("owed".to_owned(), at(9));
    write(store, &scene.lease, Change::Arrive(again)).await.unwrap();
    has(&scene, "a3", Delivery::Had).await;
    assert_eq!(heard().await, ["a1"]);
    asks(&other, "b1", "call_3", 1, 11).await;
    store.start_attempt(&other.lease, start("call_3")).await.unwrap();
    has(&other, "b1", Delivery::Had).await;
    assert_eq!(heard().await, ["a1"], "another session did");
    has(&scene, "a2", Delivery::Had).await;
    assert_eq!(heard().await, ["a2"]);
}

/// In a project of sessions a call that is in doubt, or being sent, is seen by others; one that succeeded only by its own family.
pub async fn only_doubt_reaches_beyond_the_family(store: &dyn Store) {
    let scope = Scope::new("email.send", "b@example.com");
    let first = session(store, "run_1", "/home/ada/project").await;
    let second = session(store, "run_2", "/home/ada/project").await;
    let stranger = session(store, "run_3", "/elsewhere").await;
    arrive(&first, store, "a1", "call_1", 1).await;
    let other_words =
        PlannedCall { args_hash: ua_core::sha256("other words"), ..samples::planned_email("call_2", 1, 1) };
    let new = NewArrival { call: Some(Box::new(other_words)), ..arrival(&second, "a2", None, "call_2") };
    write(store, &second.lease, Change::Arrive(new)).await.unwrap();
    arrive(&stranger, store, "a3", "call_3", 1).await;
    let seen = async |call: &str| {
        let relations = store.relations(&call_id(call), Some(&scope)).await.unwrap();
        relations.all().into_iter().map(|other| other.newest.call_id.to_string()).collect::<Vec<_>>()
    };
    let start = StartAttempt { scope: Some(scope.clone()), ..samples::start("call_1", 1, "call_1") };
    assert_eq!(seen("call_2").await, [""; 0]);
    store.start_attempt(&first.lease, start).await.unwrap();
    assert_eq!((seen("call_2").await, seen("call_3").await), (vec!["call_1".to_owned()], Vec::new()));
    store.settle_attempt(&first.lease, samples::lost("call_1", 1)).await.unwrap();
    assert_eq!((seen("call_2").await, seen("call_3").await), (vec!["call_1".to_owned()], Vec::new()));
    // The start is refused on news of it.
    let blind =
        StartAttempt { scope: Some(scope.clone()), seen: Some(Vec::new()), ..samples::start("call_2", 1, "call_2") };
    let started = store.start_attempt(&second.lease, blind).await;
    assert!(matches!(started, Err(StoreError::ScopeTouched { .. })), "{started:?}");

    arrive(&first, store, "a4", "call_4", 2).await;
    let start = StartAttempt { scope: Some(scope.clone()), ..samples::start("call_4", 1, "call_4") };
    store.start_attempt(&first.lease, start).await.unwrap();
    store.settle_attempt(&first.lease, samples::settle("call_4", 1, CallStatus::Succeeded)).await.unwrap();
    assert_eq!(seen("call_2").await, ["call_1"]);
}
