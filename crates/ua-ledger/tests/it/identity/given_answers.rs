//! What of a person's answers is taken, whoever hands it in: every kind of question, every choice, with words and a proof and without.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::json;
use ua_core::{CallStatus, Clock, Env, Looks, RunStatus, Sleep, Time, Timestamp};
use ua_ledger::{MAX_ANSWER, MayAct, NotTaken, Outside, give_answer};
use ua_store::conformance::samples;
use ua_store::{
    Answer, AttemptRecord, CallRecord, Choice, LedgerStore as _, NewQuestion, QuestionKind, QuestionRecord,
    QuestionStatus, RunDeletion, RunRecord, RunStore as _,
};

use super::doubts::left_open;
use super::member::{FIRST, Fate, Member, OTHER_WORDS, lineage};

const KINDS: [QuestionKind; 11] = [
    QuestionKind::UnknownOutcome,
    QuestionKind::NearDuplicate,
    QuestionKind::Approval,
    QuestionKind::RepeatedFailures,
    QuestionKind::MissingEvidence,
    QuestionKind::OrphanAlive,
    QuestionKind::CrashLoop,
    QuestionKind::AskUser,
    QuestionKind::AuthFailure,
    QuestionKind::AmbiguousRecipient,
    QuestionKind::Elicitation,
];
const CHOICES: [Choice; 5] = [Choice::Happened, Choice::Execute, Choice::Skip, Choice::Abort, Choice::Continue];

/// A question about the run of `member` that takes `offered`; a form asks for a number.
async fn asked(member: &Member, id: &str, kind: QuestionKind, offered: &[Choice]) -> QuestionRecord {
    let form =
        json!({"params": {"requestedSchema": {"properties": {"size": {"type": "integer"}}, "required": ["size"]}}});
    let question = NewQuestion { kind, choices: offered.to_vec(), detail: form, ..samples::question(id, None) };
    member.store.raise_question(&member.lease, question).await.unwrap()
}

async fn give(member: &Member, question: &QuestionRecord, answer: Answer) -> Result<(), NotTaken> {
    give_answer(&*member.store, member.ledger.env(), question, answer, "ada", &|_: &ua_store::RunRecord| true)
        .await
        .map(drop)
}

async fn stored(member: &Member, question: &QuestionRecord) -> QuestionRecord {
    member.store.question(&question.question_id).await.unwrap()
}

/// What this page says of it, in words that are not those of the code.
fn is_taken(kind: QuestionKind, offered: &[Choice], answer: &Answer) -> bool {
    let fills_the_form = answer.text.as_deref() == Some(r#"{"size": 3}"#);
    let says_something = answer.text.as_deref().is_some_and(|text| !text.trim().is_empty());
    let needs = match (kind, answer.choice) {
        (QuestionKind::AskUser, Choice::Continue) => says_something,
        (QuestionKind::Elicitation, Choice::Continue) => fills_the_form,
        _ => true,
    };
    let is_short = answer.text.as_ref().is_none_or(|text| text.len() <= MAX_ANSWER);
    offered.contains(&answer.choice)
        && needs
        && is_short
        && (answer.proof.is_none() || (answer.choice == Choice::Happened && kind != QuestionKind::NearDuplicate))
}

#[tokio::test]
async fn every_kind_takes_what_it_offers_and_nothing_else_changes_anything() {
    let (mut member, _child) = lineage().await;
    let long = "x".repeat(MAX_ANSWER + 1);
    let texts = [
        None,
        Some(" "),
        Some("the blue one"),
        Some(r#"{"size": 3}"#),
        Some(r#"{"size": "big"}"#),
        Some(long.as_str()),
    ];
    let (mut number, mut taken) = (0, 0);
    for kind in KINDS {
        for choice in CHOICES {
            for offered in [vec![choice], CHOICES.into_iter().filter(|other| *other != choice).collect()] {
                for text in texts {
                    for proof in [None, Some("invoice 4711")] {
                        number += 1;
                        // An abort ends the run: each of these has one of its own.
                        if choice == Choice::Abort {
                            member = lineage().await.0;
                        }
                        let question = asked(&member, &format!("q_{number}"), kind, &offered).await;
                        let answer = Answer { choice, text: text.map(str::to_owned), proof: proof.map(str::to_owned) };
                        let expected = is_taken(kind, &offered, &answer);
                        let given = give(&member, &question, answer.clone()).await;
                        assert_eq!(given.is_ok(), expected, "{kind:?} offers {offered:?}: {answer:?}: {given:?}");
                        let now = stored(&member, &question).await;
                        if expected {
                            let record = now.answer.as_ref().unwrap();
                            let what = Answer {
                                choice: record.choice,
                                proof: record.proof.clone(),
                                text: record.text.clone(),
                            };
                            assert_eq!((what, record.by.as_str()), (answer.clone(), "ada"));
                            let again = give(&member, &question, answer).await;
                            assert!(
                                matches!(&again, Err(NotTaken::Settled(now)) if now.status == QuestionStatus::Answered),
                                "{again:?}"
                            );
                            taken += 1;
                        } else {
                            assert_eq!(now, question);
                        }
                    }
                }
            }
        }
    }
    assert!(taken > 100, "{taken} of {number} were taken");
}

/// What proves that one of several calls happened proves nothing of the others, and nobody is told which one it was.
#[tokio::test]
async fn a_proof_is_taken_for_one_call_and_for_no_more() {
    let (member, _child) = lineage().await;
    let named = [
        (json!({"in_doubt": ["call_1"], "undeclared": [{"call_id": "call_1", "effect": "email.send"}]}), 1),
        (json!({"in_doubt": ["call_1", "call_2"]}), 2),
        (json!({"in_doubt": ["call_1"], "undeclared": [{"call_id": "call_2", "effect": "email.send"}]}), 2),
        (json!({"told_of": ["call_1", "call_2"], "in_doubt": ["call_1"]}), 1),
    ];
    for (number, (detail, about)) in named.into_iter().enumerate() {
        let (kind, choices) = (QuestionKind::MissingEvidence, vec![Choice::Happened, Choice::Continue]);
        let question = NewQuestion { kind, choices, detail, ..samples::question(&format!("q_{number}"), None) };
        let question = member.store.raise_question(&member.lease, question).await.unwrap();
        let answer = |proof: Option<&str>| Answer { proof: proof.map(str::to_owned), ..Answer::new(Choice::Happened) };
        let given = give(&member, &question, answer(Some("msg_7"))).await;
        if about == 1 {
            given.unwrap();
        } else {
            assert!(matches!(given, Err(NotTaken::ProofOfSeveral { calls, .. }) if calls == about), "{given:?}");
            assert_eq!(stored(&member, &question).await, question, "nothing was stored");
            give(&member, &question, answer(None)).await.unwrap();
        }
    }
}

#[tokio::test]
async fn a_run_that_has_ended_takes_answers_about_what_it_left_open_alone() {
    let (member, _child) = lineage().await;
    let (doubt, about_it) = Box::pin(left_open(&member)).await;
    let about_the_run = asked(&member, "q_run", QuestionKind::CrashLoop, &CHOICES).await;
    let commit = samples::commit(&format!("step_{}", member.lease.run_id), 1, "ckpt_last");
    member.store.commit_turn(&member.lease, commit).await.unwrap();
    member.store.end_run(&member.lease, samples::run_end(RunStatus::Succeeded)).await.unwrap();
    let refused = give(&member, &about_the_run, Answer::new(Choice::Skip)).await;
    assert!(matches!(refused, Err(NotTaken::RunEnded { .. })), "{refused:?}");
    // As long as it goes on it can be ended by the same question; now nothing is left to end.
    assert!(about_it.choices.contains(&Choice::Abort));
    let refused = give(&member, &about_it, Answer::new(Choice::Abort)).await;
    assert!(matches!(refused, Err(NotTaken::RunEnded { .. })), "{refused:?}");
    let given = give_answer(
        &*member.store,
        member.ledger.env(),
        &about_it,
        Answer::new(Choice::Happened),
        "ada",
        &|_: &ua_store::RunRecord| false,
    );
    let settled: Vec<_> = given.await.unwrap().into_iter().map(|call| (call.call_id, call.status)).collect();
    assert_eq!(settled, [(doubt.call_id, CallStatus::Succeeded)]);
}

/// A tool that waits on the connection of a process that was killed gets no answer, so none is taken; one that can wait gets it later.
#[tokio::test]
async fn an_answer_that_nobody_can_hand_over_any_more_is_not_taken() {
    let (member, _child) = lineage().await;
    let mut number = 0;
    for is_live in [true, false] {
        for is_driven in [true, false] {
            for choice in [Choice::Continue, Choice::Skip, Choice::Abort] {
                number += 1;
                let id = format!("q_live_{number}");
                let detail = json!({"params": {}, "is_live": is_live});
                let new = NewQuestion {
                    kind: QuestionKind::Elicitation,
                    choices: vec![Choice::Continue, Choice::Skip, Choice::Abort],
                    detail,
                    ..samples::question(&id, None)
                };
                let question = member.store.raise_question(&member.lease, new).await.unwrap();
                let (store, env) = (&*member.store, member.ledger.env());
                let given =
                    give_answer(store, env, &question, Answer::new(choice), "ada", &|_: &ua_store::RunRecord| {
                        is_driven
                    })
                    .await;
                if is_live && !is_driven && choice != Choice::Abort {
                    let Err(why @ NotTaken::NobodyWaits { .. }) = given else { panic!("{given:?}") };
                    assert!(why.to_string().contains("Resume the run"), "{why}");
                    assert_eq!(stored(&member, &question).await, question);
                } else {
                    given.unwrap();
                }
            }
        }
    }
}

#[tokio::test]
async fn that_it_did_not_happen_is_not_taken_while_it_may_still_begin() {
    let (member, _child) = lineage().await;
    let id = member
        .plan_as(|id, turn| {
            let mut planned = FIRST.planned(id, turn);
            planned.policy.horizon = Some(Duration::from_mins(1));
            planned
        })
        .await;
    let call = member.take(&id, &FIRST.facts(), Fate::Lost).await;
    let question = member.in_doubt(&call, &FIRST).await;
    let early = give(&member, &question, Answer::new(Choice::Execute)).await;
    let Err(NotTaken::MayStillBegin { until, .. }) = early else { panic!("{early:?}") };
    assert_eq!(stored(&member, &question).await, question);
    let env = member.ledger.env();
    env.clock.sleep(until.since(env.now())).await;
    give(&member, &question, Answer::new(Choice::Execute)).await.unwrap();
}

/// A clock that somebody set, where it is kept how it was seen.
#[derive(Debug)]
struct SetAhead {
    clock: Arc<dyn Clock>,
    by: Duration,
    looks: Mutex<Looks>,
}

impl Clock for SetAhead {
    fn now(&self) -> Timestamp {
        self.clock.now().plus(self.by)
    }

    fn uptime(&self) -> Duration {
        self.clock.uptime()
    }

    fn kept_time(&self) -> Option<Time> {
        let mut looks = self.looks.lock().unwrap_or_else(PoisonError::into_inner);
        looks.look("boot", self.uptime(), self.now());
        Some(looks.time("boot", self.now()))
    }

    fn sleep(&self, span: Duration) -> Sleep {
        self.clock.sleep(span)
    }
}

#[tokio::test]
async fn nor_when_the_clock_was_set_ahead_since_it_was_lost() {
    let (member, _child) = lineage().await;
    let env = member.ledger.env();
    let mut looks = Looks::default();
    looks.look("boot", env.clock.uptime(), env.now());
    let id = member
        .plan_as(|id, turn| {
            let mut planned = FIRST.planned(id, turn);
            planned.policy.horizon = Some(Duration::from_mins(1));
            planned
        })
        .await;
    let call = member.take(&id, &FIRST.facts(), Fate::Lost).await;
    let question = member.in_doubt(&call, &FIRST).await;
    let clock = SetAhead { clock: env.clock.clone(), by: Duration::from_hours(1), looks: Mutex::new(looks) };
    let ahead = Env { clock: Arc::new(clock), entropy: env.entropy.clone() };
    let give = async || {
        let nobody = |_: &RunRecord| false;
        give_answer(&*member.store, &ahead, &question, Answer::new(Choice::Execute), "ada", &nobody).await
    };
    let early = give().await;
    let Err(NotTaken::MayStillBegin { until, .. }) = early else { panic!("{early:?}") };
    let left = until.since(ahead.now());
    assert!(Duration::from_secs(50) < left && left < Duration::from_hours(1), "{left:?}");
    env.clock.sleep(left).await;
    give().await.unwrap();
}

/// What somebody who takes an answer sees of the other call's server, and of who drives its run.
struct Sees(MayAct, bool);

impl Outside for Sees {
    fn may_act(&self, _call: &CallRecord, _last: &AttemptRecord) -> MayAct {
        self.0
    }

    fn may_be_driven(&self, _run: &RunRecord) -> bool {
        self.1
    }
}

/// Nothing is let out beside a call that is under way or may still begin, whoever takes the word; what sends nothing is taken at once.
#[tokio::test]
async fn nothing_is_let_out_beside_a_call_that_is_not_over() {
    let mut refused = 0;
    for fate in [Fate::Lost, Fate::UnderWay] {
        for acts in [MayAct::No, MayAct::For(Duration::from_secs(5)), MayAct::Yes] {
            for is_driven in [false, true] {
                for choice in [Choice::Execute, Choice::Skip] {
                    let (parent, child) = lineage().await;
                    let other = parent.sent(&FIRST, fate).await;
                    let (_, question) = child.near_duplicate(&OTHER_WORDS).await;
                    let (env, sees) = (child.ledger.env(), Sees(acts, is_driven));
                    let given = give_answer(&*child.store, env, &question, Answer::new(choice), "ada", &sees).await;
                    let at = format!("{fate:?}, {acts:?}, driven: {is_driven}, {choice:?}: {given:?}");
                    let is_at_it = acts == MayAct::Yes || (fate == Fate::UnderWay && is_driven);
                    match &given {
                        Ok(_) => {
                            assert!(choice == Choice::Skip || (acts == MayAct::No && !is_at_it), "{at}");
                            continue;
                        }
                        Err(NotTaken::UnderWay { call, .. }) => assert!(is_at_it && *call == other.call_id, "{at}"),
                        Err(NotTaken::MayStillBegin { call, until }) => {
                            assert!(!is_at_it && *call == other.call_id && *until > env.now(), "{at}");
                        }
                        Err(error) => panic!("{at}: {error}"),
                    }
                    assert_eq!(choice, Choice::Execute, "{at}");
                    assert_eq!(stored(&child, &question).await, question, "{at}");
                    refused += 1;
                }
            }
        }
    }
    assert!(refused > 5, "{refused}");
}

/// Sees a server that cannot be ended: of the time since nobody waits for the call half counts.
struct HalfTime(Env);

impl Outside for HalfTime {
    fn may_act(&self, _call: &CallRecord, last: &AttemptRecord) -> MayAct {
        let Some(ended_at) = last.ended_at else { return MayAct::Yes };
        let left = Duration::from_secs(30).saturating_sub(self.0.now().since(ended_at) / 2);
        if left.is_zero() { MayAct::No } else { MayAct::For(left) }
    }

    fn may_be_driven(&self, _run: &RunRecord) -> bool {
        false
    }
}

/// Whoever is refused is told once when they are not: at that time, and not at another one that is said then. Over when they first ask.
#[tokio::test]
async fn the_time_that_is_said_is_the_time_from_when_on_it_is_taken() {
    for first in [0, 1, 20, 59] {
        let (parent, child) = lineage().await;
        parent.sent(&FIRST, Fate::UnderWay).await;
        let (_, question) = child.near_duplicate(&OTHER_WORDS).await;
        // It is lost behind the question, which says no time for it.
        let env = child.ledger.env();
        parent.store.mark_lost(&parent.lease, "killed", env.now()).await.unwrap();
        env.clock.sleep(Duration::from_secs(first)).await;
        let sees = HalfTime(env.clone());
        let give =
            async || give_answer(&*child.store, env, &question, Answer::new(Choice::Execute), "ada", &sees).await;
        let Err(NotTaken::MayStillBegin { until, .. }) = give().await else { panic!("{first}: it is taken") };
        env.clock.sleep(until.since(env.now()) / 2).await;
        let again = give().await;
        assert!(
            matches!(again, Err(NotTaken::MayStillBegin { until: then, .. }) if then == until),
            "{first}: {again:?}"
        );
        env.clock.sleep(until.since(env.now())).await;
        give().await.unwrap();
    }
}

/// Whoever asked saw more of where the other call went than whoever takes the answer: until the time that the question says it is refused.
#[tokio::test]
async fn the_time_that_a_question_says_counts_for_whoever_takes_its_answer() {
    let (parent, child) = lineage().await;
    parent.sent(&FIRST, Fate::Lost).await;
    let sees = Arc::new(Sees(MayAct::For(Duration::from_secs(30)), false));
    let child = Member { ledger: child.ledger.with_outside(sees), ..child };
    let (_, question) = child.near_duplicate(&OTHER_WORDS).await;
    let env = child.ledger.env();
    let give = async || {
        let sees_nothing = Sees(MayAct::No, false);
        give_answer(&*child.store, env, &question, Answer::new(Choice::Execute), "ada", &sees_nothing).await
    };
    let Err(NotTaken::MayStillBegin { until, .. }) = give().await else { panic!("it is taken") };
    assert_eq!(question.detail["look_after"], json!(until));
    env.clock.sleep(until.since(env.now())).await;
    give().await.unwrap();
}

/// Sees a server that cannot be ended, and may begin a call for a while from when on nobody waits for it.
struct Remote;

impl Outside for Remote {
    fn may_act(&self, _call: &CallRecord, last: &AttemptRecord) -> MayAct {
        last.ended_at.map_or(MayAct::Yes, |_| MayAct::For(Duration::from_secs(5)))
    }

    fn may_be_driven(&self, _run: &RunRecord) -> bool {
        false
    }
}

/// Nobody comes back to a run that was deleted: what it had under way bars its family for as long as the server may begin it, and no longer.
#[tokio::test]
async fn a_call_of_a_deleted_run_bars_nobody_for_longer_than_its_server_may_begin_it() {
    let (parent, child) = lineage().await;
    parent.sent(&FIRST, Fate::UnderWay).await;
    let (_, question) = child.near_duplicate(&OTHER_WORDS).await;
    let env = child.ledger.env();
    let execute = || Answer::new(Choice::Execute);
    let given = give_answer(&*child.store, env, &question, execute(), "ada", &Remote).await;
    assert!(matches!(given, Err(NotTaken::UnderWay { .. })), "its run may be gone on with: {given:?}");
    let run_id = parent.lease.run_id.clone();
    parent.store.delete_run(&RunDeletion { run_id, force: true, by: None, at: env.now() }).await.unwrap();
    let given = give_answer(&*child.store, env, &question, execute(), "ada", &Remote).await;
    assert!(matches!(given, Err(NotTaken::MayStillBegin { .. })), "{given:?}");
}
