//! How often a job lets an effect happen: the store counts at the start, and nobody is asked about a call that it would refuse there.

use ua_core::{CallId, CallStatus, CorrectedTo, OnScopeConflict, OnUnknown, Resolution, sha256};
use ua_ledger::{Admission, PeopleRules, Recovery};
use ua_store::conformance::samples;
use ua_store::{
    CallRecord, Choice, LedgerStore as _, QuestionRecord, QuestionStatus, QuestionsOf, RunStore as _, Store as _,
};

use super::lost::line;
use super::member::{Ask, ELSEWHERE, FIRST, Fate, Member, OTHER_WORDS, lineage};
use super::twins::allowing;

const FATES: [Fate; 7] =
    [Fate::Done, Fate::FailedMaybe, Fate::FailedNone, Fate::NotSent, Fate::Unauthorized, Fate::Lost, Fate::UnderWay];

fn counts(fate: Fate) -> bool {
    match fate {
        Fate::Done | Fate::FailedMaybe | Fate::Lost | Fate::UnderWay => true,
        Fate::FailedNone | Fate::NotSent | Fate::Unauthorized => false,
    }
}

/// What became of a call about which a person says yes whenever they are asked.
#[derive(Debug, Clone, Copy, PartialEq)]
enum End {
    Sent,
    /// Refused for the limit.
    Refused,
    /// Asked about as what was lost.
    InDoubt,
    /// Whatever sends nothing for another reason.
    Otherwise,
}

impl Member {
    async fn questions_about(&self, id: &CallId) -> Vec<QuestionRecord> {
        let all = self.store.questions_of(QuestionsOf::Run(self.lease.run_id.clone())).await.unwrap();
        all.into_iter().filter(|question| question.call_id.as_ref() == Some(id)).collect()
    }

    /// How a call ends, and how often a person said yes.
    async fn let_go(&self, id: &CallId, ask: &Ask) -> (End, usize) {
        for said in 0..5 {
            match self.admit(id, ask).await {
                Admission::Held(question) => self.answer(&question, Choice::Execute).await,
                Admission::Ready(prepared) => {
                    let permit = self.ledger.start(prepared, "1").await.unwrap();
                    assert!(permit.is_some(), "{id}: nothing has changed since it was let through");
                    return (End::Sent, said);
                }
                Admission::Settled(call) if call.error_code.as_deref() == Some("effect_limit") => {
                    assert_eq!(call.status, CallStatus::Cancelled);
                    return (End::Refused, said);
                }
                Admission::Settled(_) | Admission::WaitFor(_) => return (End::Otherwise, said),
                Admission::Unknown(_) => return (End::InDoubt, said),
                admission @ (Admission::Continues(_) | Admission::Ongoing(_)) => panic!("{admission:?}"),
            }
        }
        panic!("{id}: asked again and again");
    }
}

/// Over what became of an earlier call, what the next one says, what it needs a word for, whose it is, what was lost, and how often the job allows it:
/// whoever is asked lets it go by a yes, and whoever would say yes in vain is not asked.
#[tokio::test]
async fn nobody_is_asked_about_what_the_limit_refuses() {
    let (mut refused, mut asked, mut sent) = (0, 0, 0);
    for fate in FATES {
        for ask in [FIRST, OTHER_WORDS, ELSEWHERE] {
            for needs_approval in [false, true] {
                for on_conflict in [OnScopeConflict::Ask, OnScopeConflict::Allow] {
                    for scope in [None, Some("boss"), Some("the board")] {
                        for max in 0..3 {
                            // A turn ends once it is known what came of its calls.
                            let is_open = matches!(fate, Fate::Lost | Fate::UnderWay);
                            for is_of_child in [false, true].into_iter().filter(|is_of_child| *is_of_child || !is_open)
                            {
                                let ask = Ask { on_conflict, needs_approval, ..ask.clone() };
                                let (parent, child) = lineage().await;
                                let first = parent.sent(&FIRST, fate).await;
                                let run = if is_of_child { child } else { parent };
                                let is_in_words = scope == Some(FIRST.scope);
                                let words = if is_in_words { first.args_hash } else { sha256("lost") };
                                let like = CallRecord { args_hash: words, ..first.clone() };
                                let line = |scope| line(&like, "call_lost", Some(scope), CallStatus::Succeeded);
                                let lost = scope.map(line);
                                let is_lost = lost.is_some();
                                let run = allowing(run, max, lost.into_iter().collect()).await;
                                let id = run.plan(&ask).await;
                                let ahead = run.ledger.ask_ahead(&id, &ask.facts()).await.unwrap();
                                let (end, said) = run.let_go(&id, &ask).await;
                                let what = format!(
                                    "{fate:?}, then {ask:?}, of the child: {is_of_child}, lost: {scope:?}, {max} allowed: {end:?}, {said} said"
                                );
                                // What was lost counts as the call that is asked about in its place.
                                let may_be_lost = scope == Some(ask.scope)
                                    && (on_conflict == OnScopeConflict::Ask
                                        || (is_in_words && ask.words == FIRST.words));
                                let is_lost = is_lost && !may_be_lost;
                                let is_used_up = u32::from(counts(fate)) + u32::from(is_lost) >= max;
                                match end {
                                    End::Refused => {
                                        assert!(is_used_up && said == 0 && ahead.is_none(), "{what}");
                                        assert!(run.questions_about(&id).await.is_empty(), "{what}");
                                        refused += 1;
                                    }
                                    End::Sent => {
                                        assert!(!is_used_up, "{what}");
                                        sent += 1;
                                    }
                                    End::InDoubt => assert!(!is_used_up && may_be_lost, "{what}"),
                                    End::Otherwise => {
                                        assert_eq!(said, 0, "{what}");
                                        assert!(matches!(fate, Fate::Done | Fate::UnderWay), "{what}");
                                    }
                                }
                                asked += said;
                            }
                        }
                    }
                }
            }
        }
    }
    assert!(refused > 500 && asked > 100 && sent > 200, "{refused} refused, {asked} asked, {sent} sent");
}

/// What somebody was asked about while it could still go out is taken back once it cannot, whether they have said yes by then or not; who has said no, or
/// ends the run, is heard.
#[tokio::test]
async fn a_question_that_the_limit_answers_meanwhile_is_taken_back() {
    for fate in FATES {
        for choice in [None, Some(Choice::Execute), Some(Choice::Skip), Some(Choice::Abort)] {
            let (parent, child) = lineage().await;
            let run = allowing(child, 1, Vec::new()).await;
            let ask = Ask { needs_approval: true, ..ELSEWHERE };
            let id = run.plan(&ask).await;
            let Admission::Held(question) = run.admit(&id, &ask).await else { panic!("not held") };
            parent.sent(&FIRST, fate).await;
            if let Some(choice) = choice {
                run.answer(&question, choice).await;
            }
            let what = format!("{fate:?}, {choice:?}");
            let admission = run.ledger.admit(&id, ask.facts()).await;
            if choice == Some(Choice::Abort) {
                assert!(admission.is_err(), "{what}");
                continue;
            }
            let admission = admission.unwrap();
            let status = run.store.question(&question.question_id).await.unwrap().status;
            let code = |call: &CallRecord| call.error_code.clone();
            match (choice, admission) {
                (Some(Choice::Skip), Admission::Settled(call)) => {
                    assert_eq!(code(&call).as_deref(), Some("declined"), "{what}");
                }
                (_, Admission::Settled(call)) => {
                    assert!(counts(fate), "{what}");
                    assert_eq!(
                        (code(&call).as_deref(), status),
                        (Some("effect_limit"), QuestionStatus::Closed),
                        "{what}"
                    );
                }
                (None, Admission::Held(_)) => assert!(!counts(fate) && status == QuestionStatus::Open, "{what}"),
                (Some(Choice::Execute), Admission::Ready(_)) => assert!(!counts(fate), "{what}"),
                (_, admission) => panic!("{what}: {admission:?}"),
            }
        }
    }
}

/// A call that did nothing stays as it failed where another one has used the limit up since: it is not tried again, and nobody is asked to mend its
/// credentials for that.
#[tokio::test]
async fn a_failed_call_is_not_asked_about_where_another_used_the_limit_up() {
    for fate in [Fate::NotSent, Fate::Unauthorized] {
        for is_used_up in [false, true] {
            for is_asked_before in [false, true] {
                let people = || PeopleRules { ask_on_auth_failure: true, ..PeopleRules::default() };
                let (parent, child) = lineage().await;
                let run = allowing(child, 1, Vec::new()).await.asking(people());
                let failed = run.sent(&ELSEWHERE, fate).await;
                assert_eq!(failed.status, CallStatus::FailedDefinite);
                let id = &failed.call_id;
                if is_asked_before {
                    run.admit(id, &ELSEWHERE).await;
                }
                if is_used_up {
                    parent.sent(&FIRST, Fate::Done).await;
                }
                let admission = run.admit(id, &ELSEWHERE).await;
                let what = format!("{fate:?}, {is_used_up}, {is_asked_before}: {admission:?}");
                match admission {
                    Admission::Settled(call) => {
                        assert!(is_used_up && call.status == CallStatus::FailedDefinite, "{what}");
                    }
                    Admission::Held(_) => assert!(!is_used_up && fate == Fate::Unauthorized, "{what}"),
                    Admission::Ready(_) => assert!(!is_used_up && fate == Fate::NotSent, "{what}"),
                    Admission::Unknown(_) | Admission::Continues(_) | Admission::Ongoing(_) | Admission::WaitFor(_) => {
                        panic!("{what}")
                    }
                }
                let is_open = |question: &QuestionRecord| question.status != QuestionStatus::Closed;
                let open = run.questions_about(id).await.iter().any(is_open);
                assert_eq!(open, !is_used_up && fate == Fate::Unauthorized, "{what}");
            }
        }
    }
}

/// When other calls use up what a call in doubt needs to be sent again: a person puts the record of one right that had done nothing.
#[derive(Debug, Clone, Copy, PartialEq)]
enum UsedUp {
    Never,
    BeforeItIsAsked,
    WhileItIsAsked,
    /// It was decided to send it, and the write that starts it sees it.
    WhileItStarts,
}

/// A call in doubt counts for others and not for itself. Where others have used up what its job allows, it is not sent again: what would have been sent
/// by itself is asked about, whoever says that it did not happen is heard, and that is its record.
#[tokio::test]
async fn a_call_in_doubt_is_not_sent_again_beyond_the_limit() {
    let facts = ELSEWHERE.facts();
    for policy in [OnUnknown::Hold, OnUnknown::RedoKeyed] {
        for when in [UsedUp::Never, UsedUp::BeforeItIsAsked, UsedUp::WhileItIsAsked, UsedUp::WhileItStarts] {
            let what = format!("{policy:?}, {when:?}");
            let (parent, child) = lineage().await;
            let run = allowing(child, 1, Vec::new()).await;
            let other = parent.sent(&FIRST, Fate::NotSent).await;
            let planned = |id: &str, turn| {
                let mut call = ELSEWHERE.planned(id, turn);
                call.policy.on_unknown = policy;
                call
            };
            let id = run.plan_as(planned).await;
            run.take(&id, &facts, Fate::Lost).await;
            let happened = async || {
                let mut word = samples::correct(&other, CorrectedTo::Happened, 90);
                word.is_idle = true;
                parent.store.correct_call(word).await.unwrap();
            };
            if when == UsedUp::BeforeItIsAsked {
                happened().await;
            }
            let (mut asked, mut sent, mut ended) = (None, false, None);
            for _ in 0..4 {
                let admission = run.admit(&id, &ELSEWHERE).await;
                let decided = if let Admission::Unknown(unknown) = &admission {
                    let recovery = run.ledger.recover(unknown, &facts).await.unwrap();
                    let Recovery::Decided(decided) = recovery else { panic!("{what}: {recovery:?}") };
                    *decided
                } else {
                    admission
                };
                match decided {
                    Admission::Held(question) => {
                        assert!(asked.is_none(), "{what}: asked again");
                        let is_told = question.text.contains("and it is not sent again");
                        let is_so = when == UsedUp::BeforeItIsAsked
                            || (when == UsedUp::WhileItStarts && policy == OnUnknown::RedoKeyed);
                        assert_eq!(is_told, is_so, "{what}: {}", question.text);
                        if when == UsedUp::WhileItIsAsked {
                            happened().await;
                        }
                        run.answer(&question, Choice::Execute).await;
                        asked = Some(question);
                    }
                    Admission::Ready(prepared) => {
                        if when == UsedUp::WhileItStarts {
                            happened().await;
                        }
                        sent = run.ledger.start(prepared, "1").await.unwrap().is_some();
                    }
                    Admission::Settled(call) => ended = Some(call),
                    admission @ (Admission::Unknown(_)
                    | Admission::Continues(_)
                    | Admission::Ongoing(_)
                    | Admission::WaitFor(_)) => panic!("{what}: {admission:?}"),
                }
                if sent || ended.is_some() {
                    break;
                }
            }
            let is_used_up = match when {
                UsedUp::Never => false,
                UsedUp::BeforeItIsAsked | UsedUp::WhileItStarts => true,
                UsedUp::WhileItIsAsked => policy == OnUnknown::Hold,
            };
            assert_eq!((sent, ended.is_some()), (!is_used_up, is_used_up), "{what}");
            let Some(call) = ended else { continue };
            assert_eq!(
                (call.status, call.resolution, call.attempt),
                (CallStatus::FailedDefinite, Some(Resolution::NotHappened), 1),
                "{what}"
            );
            let told = call.error_detail.unwrap();
            let words = "says that it did not happen. It is not sent again: this job allows email.send 1×";
            assert!(told.contains(words), "{what}: {told}");
            let question = run.store.question(&asked.unwrap().question_id).await.unwrap();
            assert_eq!(question.status, QuestionStatus::Closed, "{what}");
        }
    }
}

/// The store counts once more in the write that starts a call: what another one used up since it was looked at refuses it in the same words.
#[tokio::test]
async fn a_limit_that_is_used_up_meanwhile_refuses_the_start() {
    let mut told = Vec::new();
    for is_meanwhile in [false, true] {
        let (parent, child) = lineage().await;
        let run = allowing(child, 1, Vec::new()).await;
        let id = run.plan(&ELSEWHERE).await;
        if is_meanwhile {
            let Admission::Ready(prepared) = run.admit(&id, &ELSEWHERE).await else { panic!("not let through") };
            parent.sent(&FIRST, Fate::FailedMaybe).await;
            assert!(run.ledger.start(prepared, "1").await.unwrap().is_none());
        } else {
            parent.sent(&FIRST, Fate::FailedMaybe).await;
        }
        let call = run.settled(&id, &ELSEWHERE).await;
        assert_eq!((call.status, call.attempt), (CallStatus::Cancelled, 0));
        told.push((call.error_code, call.error_detail, call.resolution));
    }
    assert_eq!(told[0], told[1]);
    // The calls of its own run that count are named: a person may know that one of them did not happen.
    let (parent, _) = lineage().await;
    let run = allowing(parent, 1, Vec::new()).await;
    let first = run.sent(&FIRST, Fate::FailedMaybe).await;
    let id = run.plan(&ELSEWHERE).await;
    let words = run.settled(&id, &ELSEWHERE).await.error_detail.unwrap();
    assert!(words.contains(&format!("(call {}, turn 1: failed, may have happened)", first.call_id)), "{words}");
    let words = told[0].1.as_deref().unwrap();
    assert!(words.contains("email.send 1×") && words.contains("does not say that nothing happened"), "{words}");
}
