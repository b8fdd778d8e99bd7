//! What was sent for a family and is in no row of its database: nobody does the like again before a person was asked, and nobody is asked more often
//! than something was lost.

use serde_json::json;
use ua_core::{
    CallId, CallPolicy, CallStatus, CorrectedTo, KeyChannel, Marker, MarkerForm, OnScopeConflict, OnUnknown, Outcome,
    QuestionText, SideEffectClass, sha256,
};
use ua_ledger::{Admission, Facts, Recovery};
use ua_store::conformance::samples;
use ua_store::{
    CallRecord, Choice, Correction, Forgotten, LedgerStore as _, Lost, QuestionKind, QuestionRecord, RunStore as _,
};

use super::member::{Ask, ELSEWHERE, FIRST, Fate, Member, OTHER_WORDS, lineage};

/// A line about a call that is not there, and whose status is `status`.
pub(crate) fn line(call: &CallRecord, id: &str, scope: Option<&str>, status: CallStatus) -> Lost {
    let known = Forgotten {
        at: samples::at(70).to_string(),
        root: Some(call.root_run_id.to_string()),
        run_id: "run_lost".to_owned(),
        tool_call_id: Some(id.to_owned()),
        attempt: 1,
        tool: call.name.raw.clone(),
        args_hash: Some(call.args_hash.to_hex()),
        idempotency_key: Some(format!("key_{id}")),
        external_correlation_id: Some(format!("<{id}@there>")),
        scope: scope.map(|scope| format!("email.send {scope}")),
        status: status.as_str().to_owned(),
        ..Forgotten::default()
    };
    Lost { known, was_suspected: false, was_recalled: false }
}

/// The same of one that succeeded, about what an ask touches.
fn like(call: &CallRecord, id: &str, ask: Option<&Ask>) -> Lost {
    line(call, id, ask.map(|ask| ask.scope), CallStatus::Succeeded)
}

fn with_lost(mut member: Member, lost: Vec<Lost>) -> Member {
    member.ledger = member.ledger.with_lost(lost);
    member
}

/// The question about a call that is in doubt.
async fn question(member: &Member, call: &CallRecord, facts: &Facts) -> QuestionRecord {
    assert!(member.ledger.admit_planned(call, facts).is_none(), "it was let through without a look");
    let admission = member.ledger.admit(&call.call_id, facts.clone()).await.unwrap();
    let Admission::Unknown(unknown) = admission else { panic!("not in doubt: {admission:?}") };
    let Recovery::Decided(held) = member.ledger.recover(&unknown, facts).await.unwrap() else { panic!("not decided") };
    let Admission::Held(question) = *held else { panic!("not held: {held:?}") };
    assert_eq!(question.kind, QuestionKind::UnknownOutcome);
    question
}

/// Of an e-mail that was sent and lost each one to the same person is asked about, in whatever words, and none to another one; and none that
/// may be sent as often as a model likes.
#[tokio::test]
async fn a_call_that_may_be_what_was_lost_is_asked_about() {
    for ask in [FIRST, OTHER_WORDS, ELSEWHERE] {
        for on_conflict in [OnScopeConflict::Ask, OnScopeConflict::Refuse, OnScopeConflict::Allow] {
            let ask = Ask { on_conflict, ..ask.clone() };
            let (run, _) = lineage().await;
            let id = run.plan(&ask).await;
            let call = run.store.call(&id).await.unwrap();
            let first = CallRecord { args_hash: sha256(FIRST.words), ..call.clone() };
            let run = with_lost(run, vec![like(&first, "call_lost", Some(&FIRST))]);
            let is_allowed = on_conflict == OnScopeConflict::Allow && ask.words != FIRST.words;
            let is_free = ask.scope == ELSEWHERE.scope || is_allowed;
            if is_free {
                let admission = run.admit(&id, &ask).await;
                assert!(matches!(admission, Admission::Ready(_)), "{ask:?}: {admission:?}");
                continue;
            }
            let asked = question(&run, &call, &ask.facts()).await;
            for word in ["was not sent itself", "call_lost", "run_lost", "succeeded, as <call_lost@there>"] {
                assert!(asked.text.contains(word), "{word} is not in {}", asked.text);
            }
            // It is looked for by what was sent, and not by a name of its own, which nobody sent.
            assert_eq!(asked.detail["found_by"][0], "<call_lost@there>, as its tool called it", "{}", asked.text);
            let own = run.store.call(&id).await.unwrap().idempotency_key.unwrap();
            assert!(!asked.detail["found_by"].to_string().contains(own.as_str()), "{}", asked.detail);
            assert_eq!(asked.text.contains("with the same arguments"), ask.words == FIRST.words, "{}", asked.text);
            assert!(QuestionText::new(&asked.text).as_str().lines().count() > 1, "{}", asked.text);
        }
    }
}

/// So is one that was sent before and would be sent once more by itself: in doubt, or because it did nothing.
#[tokio::test]
async fn a_call_that_would_be_sent_once_more_is_asked_about() {
    for fate in [Fate::Lost, Fate::NotSent] {
        for other in [FIRST, OTHER_WORDS, ELSEWHERE] {
            let (run, _) = lineage().await;
            let keyed = |id: &str, turn| {
                let mut call = FIRST.planned(id, turn);
                call.policy.on_unknown = OnUnknown::RedoKeyed;
                call
            };
            let id = run.plan_as(keyed).await;
            let call = run.take(&id, &FIRST.facts(), fate).await;
            let lost = CallRecord { args_hash: sha256(other.words), ..call.clone() };
            let run = with_lost(run, vec![like(&lost, "call_lost", Some(&other))]);
            let what = format!("{fate:?}, {other:?}");
            if other.scope != FIRST.scope {
                let mut admission = run.admit(&id, &FIRST).await;
                if let Admission::Unknown(unknown) = &admission {
                    let recovery = run.ledger.recover(unknown, &FIRST.facts()).await.unwrap();
                    let Recovery::Decided(decided) = recovery else { panic!("{what}: {recovery:?}") };
                    admission = *decided;
                }
                assert!(matches!(admission, Admission::Ready(_)), "{what}: {admission:?}");
                continue;
            }
            let asked = question(&run, &call, &FIRST.facts()).await;
            assert!(asked.text.contains("call_lost"), "{what}: {}", asked.text);
            run.answer(&asked, Choice::Execute).await;
            let Admission::Unknown(unknown) = run.admit(&id, &FIRST).await else { panic!("{what}: not in doubt") };
            let Recovery::Decided(ready) = run.ledger.recover(&unknown, &FIRST.facts()).await.unwrap() else {
                panic!("{what}: not decided")
            };
            let Admission::Ready(prepared) = *ready else { panic!("{what}: {ready:?}") };
            let permit = run.ledger.start(prepared, "1").await.unwrap().unwrap();
            // Under the key that it may have been done under, if it may have been.
            assert_eq!(Some(permit.key()) == call.idempotency_key.as_ref(), fate == Fate::Lost, "{what}");
            let sent = run.ledger.settle(permit, Outcome::Raw(samples::raw())).await.unwrap();
            assert_eq!((sent.status, sent.attempt), (CallStatus::Succeeded, 3), "{what}");
        }
    }
}

/// What comes of a person's word: it counts as done and is not sent, or goes out under a key that nobody got before.
#[tokio::test]
async fn a_persons_word_decides_about_it() {
    for choice in [Choice::Happened, Choice::Execute, Choice::Skip] {
        let (run, _) = lineage().await;
        let id = run.plan(&FIRST).await;
        let call = run.store.call(&id).await.unwrap();
        let run = with_lost(run, vec![like(&call, "call_lost", Some(&FIRST))]);
        let asked = question(&run, &call, &FIRST.facts()).await;
        run.answer(&asked, choice).await;
        let Admission::Unknown(unknown) = run.admit(&id, &FIRST).await else {
            let settled = run.settled(&id, &FIRST).await;
            let expected = if choice == Choice::Happened { CallStatus::Succeeded } else { CallStatus::Unknown };
            assert_eq!((settled.status, choice != Choice::Execute), (expected, true), "{choice:?}");
            continue;
        };
        assert_eq!(choice, Choice::Execute);
        let Recovery::Decided(ready) = run.ledger.recover(&unknown, &FIRST.facts()).await.unwrap() else {
            panic!("not decided")
        };
        let Admission::Ready(prepared) = *ready else { panic!("not let through: {ready:?}") };
        let permit = run.ledger.start(prepared, "1").await.unwrap().unwrap();
        assert_ne!(permit.key().as_str(), "key_call_lost");
        let sent = run.ledger.settle(permit, Outcome::Raw(samples::raw())).await.unwrap();
        assert_eq!((sent.status, sent.attempt), (CallStatus::Succeeded, 2));
    }
}

/// As often as a call was lost, and no more often.
#[tokio::test]
async fn no_more_is_asked_than_was_lost() {
    for lost in 0..3 {
        let (run, _) = lineage().await;
        let plan = async |run: &Member| {
            let id = run
                .plan_as(|id, turn| {
                    let mut call = samples::planned_call(id, turn, 1);
                    call.policy.class = SideEffectClass::External;
                    call.policy.on_unknown = OnUnknown::Hold;
                    call
                })
                .await;
            run.store.call(&id).await.unwrap()
        };
        let first = plan(&run).await;
        let lines = (0..lost).map(|number| like(&first, &format!("call_lost_{number}"), None)).collect();
        let run = with_lost(run, lines);
        let mut call = first;
        for number in 0..lost {
            let asked = question(&run, &call, &Facts::default()).await;
            assert!(asked.text.contains(&format!("call_lost_{number}")), "{}", asked.text);
            run.answer(&asked, Choice::Happened).await;
            let settled = run.ledger.admit(&call.call_id, Facts::default()).await.unwrap();
            assert!(matches!(settled, Admission::Settled(_)), "{settled:?}");
            call = plan(&run).await;
        }
        let admission = run.ledger.admit(&call.call_id, Facts::default()).await.unwrap();
        assert!(matches!(admission, Admission::Ready(_)), "{lost}: {admission:?}");
    }
}

/// The key under which a planned call goes out.
async fn key_of(run: &Member, id: &CallId) -> String {
    let Admission::Ready(prepared) = run.admit(id, &FIRST).await else { panic!("not let through") };
    run.ledger.start(prepared, "1").await.unwrap().unwrap().key().as_str().to_owned()
}

/// The key under which a lost call was answered is not used once more, also where a person undid since what it did: over what the log says, the call
/// in the same words goes out under another key exactly where that key was answered.
#[tokio::test]
async fn the_key_of_a_lost_call_that_was_answered_is_used_up() {
    let (run, _) = lineage().await;
    let key = key_of(&run, &run.plan(&FIRST).await).await;
    for status in CallStatus::ALL {
        for is_its_key in [true, false] {
            let (run, _) = lineage().await;
            let id = run.plan(&FIRST).await;
            let call = run.store.call(&id).await.unwrap();
            let mut lost = line(&call, "call_lost", Some(FIRST.scope), *status);
            let word = samples::correct(&call, CorrectedTo::NotHappened, 90).correction;
            lost.known.correction = Some(Correction { was: *status, ..word });
            if is_its_key {
                lost.known.idempotency_key = Some(key.clone());
            }
            let was_answered = lost.known.was_answered();
            assert_eq!(was_answered, matches!(status, CallStatus::Succeeded | CallStatus::FailedReported), "{status}");
            let run = with_lost(run, vec![lost]);
            assert_eq!(key_of(&run, &id).await != key, was_answered && is_its_key, "{status}, {is_its_key}");
        }
    }
}

/// Tools that give what they do a name of its own, each in another way: as the shipped policies do for mail, notifications, posts and uploads, and as
/// the policy of a foreign tool may.
fn named_tools() -> Vec<(&'static str, CallPolicy)> {
    let keyed = |channel: Option<KeyChannel>, found_by: &[&str]| CallPolicy {
        key_channel: channel,
        found_by: found_by.iter().map(|name| (*name).to_owned()).collect(),
        ..CallPolicy::unclassified()
    };
    let marked = |argument: &str, form| CallPolicy {
        marker: Some(Marker { argument: argument.to_owned(), form, given: false }),
        ..CallPolicy::unclassified()
    };
    vec![
        ("mail", keyed(Some(KeyChannel::Meta), &["Message-ID <{key_id}@ua.invalid>"])),
        (
            "notification",
            keyed(Some(KeyChannel::Meta), &["`id` {key_id} in the notification", "webhook header: {key}"]),
        ),
        ("post", keyed(Some(KeyChannel::Header("Idempotency-Key".to_owned())), &[])),
        ("upload", keyed(Some(KeyChannel::Argument("upload_id".to_owned())), &[])),
        ("keyed", keyed(Some(KeyChannel::Meta), &[])),
        ("appended", marked("body", MarkerForm::Append("\n[ua {key}]".to_owned()))),
        ("put", marked("reference", MarkerForm::Set(json!("{key_id}")))),
        ("plain", keyed(None, &[])),
    ]
}

/// Over tools whose effects have names, what came of the call that was lost, in which words it was, what its policy says of a doubt and whether a
/// person is asked before: whatever a question names is of the call that was lost, and what it says first is what the log says.
#[tokio::test]
async fn a_question_names_the_lost_call_by_its_own_names() {
    let mut asked_about = 0;
    for (name, policy) in named_tools() {
        for status in [CallStatus::Succeeded, CallStatus::FailedReported, CallStatus::Unknown, CallStatus::Running] {
            for on_unknown in [OnUnknown::Hold, OnUnknown::RedoKeyed, OnUnknown::Continue] {
                for (is_same, needs_approval) in [(true, false), (false, false), (true, true), (false, true)] {
                    let what =
                        format!("{name}, {status}, {on_unknown}, same words: {is_same}, approval: {needs_approval}");
                    let (run, _) = lineage().await;
                    let plan = |id: &str, turn| {
                        let mut call = samples::planned_call(id, turn, 1);
                        call.arguments = json!({"body": "Dear boss"}).into();
                        let class = SideEffectClass::External;
                        call.policy = CallPolicy { class, on_unknown, needs_approval, ..policy.clone() }.into();
                        call
                    };
                    let id = run.plan_as(plan).await;
                    let call = run.store.call(&id).await.unwrap();
                    let key = "key-of-the-lost-call";
                    let names = policy.names_outside(Some(key), call.arguments.as_object().unwrap());
                    assert_eq!(names.is_empty(), name == "plain", "{what}");
                    let mut lost = line(&call, "call_lost", None, status);
                    lost.known.idempotency_key = Some(key.to_owned());
                    lost.known.found_by = Some(names.clone());
                    let id_there = (status == CallStatus::Succeeded).then(|| "<id-of-the-lost>".to_owned());
                    lost.known.external_correlation_id.clone_from(&id_there);
                    if !is_same {
                        lost.known.args_hash = Some(sha256("other words").to_hex());
                    }
                    let run = with_lost(run, vec![lost]);
                    let mut seen = Vec::new();
                    // A person lets it run, where they are asked that before.
                    for _ in 0..2 {
                        let admission = run.ledger.admit(&id, Facts::default()).await.unwrap();
                        if let Admission::Unknown(unknown) = &admission {
                            run.ledger.recover(unknown, &Facts::default()).await.unwrap();
                        }
                        let open = run.store.open_questions(Some(&run.lease.run_id)).await.unwrap();
                        let [asked] = &open[..] else { panic!("{what}: {open:?}") };
                        seen.push(asked.clone());
                        if asked.kind == QuestionKind::UnknownOutcome {
                            break;
                        }
                        run.answer(asked, Choice::Execute).await;
                    }
                    assert_eq!(seen.len(), 1 + usize::from(needs_approval), "{what}");
                    let own = run.store.call(&id).await.unwrap().names_if_sent();
                    assert_eq!(own.is_empty(), name == "plain", "{what}: {own:?}");
                    for asked in &seen {
                        let text = &asked.text;
                        assert!(text.contains("call_lost") && text.contains("run_lost"), "{what}: {text}");
                        assert!(names.iter().all(|name| text.contains(name.as_str())), "{what}: {names:?} in {text}");
                        assert!(!own.iter().any(|name| text.contains(name.as_str())), "{what}: {own:?} in {text}");
                        let found_by = asked.detail.get("found_by").cloned().unwrap_or_else(|| json!([]));
                        let by_id = id_there.iter().map(|id| format!("{id}, as its tool called it"));
                        let expected: Vec<String> = by_id.chain(names.clone()).collect();
                        assert_eq!(found_by, json!(expected), "{what}");
                        assert_eq!(text.contains("as <id-of-the-lost>"), id_there.is_some(), "{what}: {text}");
                        let shown = &asked.detail["lost"][0];
                        assert_eq!(shown["external_id"], json!(id_there), "{what}");
                        assert_eq!((&shown["call"], &shown["said"]), (&json!("call_lost"), &json!(status)), "{what}");
                        let says_so = text.lines().next().unwrap().contains("The answer is that it happened");
                        let is_answer = asked.kind == QuestionKind::UnknownOutcome && status == CallStatus::Succeeded;
                        assert_eq!(says_so, is_answer && is_same, "{what}: {text}");
                        asked_about += 1;
                    }
                }
            }
        }
    }
    assert!(asked_about > 500, "{asked_about}");
}

/// A question that was open in the copy knows nothing of what came behind it: it is asked once more, with what was lost.
#[tokio::test]
async fn an_approval_that_the_copy_had_asked_for_is_asked_with_what_was_lost() {
    let (run, _) = lineage().await;
    let ask = Ask { needs_approval: true, ..FIRST };
    let id = run.plan(&ask).await;
    let Admission::Held(before) = run.admit(&id, &ask).await else { panic!("not asked") };
    assert!(!before.text.contains("effects.log"), "{}", before.text);
    let call = run.store.call(&id).await.unwrap();
    let run = with_lost(run, vec![like(&call, "call_lost", Some(&FIRST))]);
    let Admission::Held(asked) = run.admit(&id, &ask).await else { panic!("not asked") };
    assert_ne!(asked.question_id, before.question_id);
    assert!(asked.text.contains("call_lost") && asked.text.contains("effects.log"), "{}", asked.text);
    let Admission::Held(again) = run.admit(&id, &ask).await else { panic!("not asked") };
    assert_eq!(again.question_id, asked.question_id, "it is asked once");
}
