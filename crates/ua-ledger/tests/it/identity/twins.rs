//! What a policy allows in other words, what a job limits, and twins that work beside each other: nobody has an effect twice in the same words, and
//! nobody is asked about what its own run is about to find out.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use ua_core::{CallId, CallStatus, CorrectedTo, OnScopeConflict, RunStatus, sha256};
use ua_ledger::{Admission, Facts, Ledger, LedgerConfig, Recovery, SoonKnown};
use ua_store::conformance::{Crossing, Plan, StoreSeam, samples};
use ua_store::{
    CallRecord, Choice, Correction, LedgerStore as _, Lost, NewRun, QuestionKind, RunStore as _, Store as _,
};

use super::lost::line;
use super::member::{Ask, ELSEWHERE, FIRST, Fate, Member, OTHER_WORDS, lineage};

/// The same run, whose job allows so many e-mails, with what its family lost.
pub(crate) async fn allowing(member: Member, max: u32, lost: Vec<Lost>) -> Member {
    let run = member.store.run(&member.lease.run_id).await.unwrap();
    let lineage = ua_ledger::Lineage { mark: run.lineage_mark, ..super::member::in_database("d", run.root_run_id) };
    let config = LedgerConfig {
        no_duplicate_external_actions: true,
        max_retries: 1,
        max_effects: BTreeMap::from([("email.send".to_owned(), max)]),
        ..LedgerConfig::default()
    };
    let (port, env) = (member.ledger.store().clone(), member.ledger.env().clone());
    let trace = ua_core::Trace::new(&env);
    let ledger = Ledger::new(port, member.lease.clone(), lineage, config, env, trace).with_lost(lost);
    Member { ledger, ..member }
}

/// Over all that a line may say: what was lost counts towards what a job allows if it may have happened and no call stands for it.
#[tokio::test]
async fn what_was_lost_counts_towards_what_a_job_allows() {
    let refuted = |lost: &mut Lost| {
        lost.known.correction = Some(Correction {
            outcome: CorrectedTo::NotHappened,
            was: CallStatus::Succeeded,
            was_answered: true,
            reason: "I looked".to_owned(),
            proof: None,
            by: "ana".to_owned(),
            at: samples::at(80),
            of: None,
        });
    };
    let (mut counted, mut free) = (0, 0);
    for status in CallStatus::ALL {
        for scope in [Some("bob"), None] {
            for stands in [
                "nothing",
                "a call in the same words",
                "a call in other words",
                "a word",
                "another kind",
                "another job",
            ] {
                for max in 0..3 {
                    let (run, _) = lineage().await;
                    let id = run.plan(&ELSEWHERE).await;
                    let call = CallRecord { args_hash: sha256("lost"), ..run.store.call(&id).await.unwrap() };
                    let mut lost = line(&call, "call_lost", scope, *status);
                    match stands {
                        "a call in the same words" => lost.was_recalled = true,
                        "a call in other words" => lost.was_suspected = true,
                        "a word" => refuted(&mut lost),
                        "another kind" => lost.known.scope = Some("parcel.send bob".to_owned()),
                        // Its lines are known to each that begins later, and what it did is nothing that this job did.
                        "another job" => lost.known.root = Some("run_of_another_job".to_owned()),
                        _ => {}
                    }
                    // Attempts of one call are one effect.
                    let mut again = lost.clone();
                    again.known.attempt = 2;
                    let run = allowing(run, max, vec![lost, again]).await;
                    let did_nothing = matches!(status, CallStatus::FailedDefinite | CallStatus::Cancelled);
                    let counts = stands == "nothing" && !did_nothing;
                    let what = format!("{status}, {scope:?}, {stands}, {max}");
                    let is_refused = match run.admit(&id, &ELSEWHERE).await {
                        Admission::Ready(prepared) => run.ledger.start(prepared, "1").await.unwrap().is_none(),
                        Admission::Settled(_) => true,
                        // Without a scope nothing says that it is another effect, so it is asked about first.
                        admission @ (Admission::Held(_)
                        | Admission::Continues(_)
                        | Admission::Ongoing(_)
                        | Admission::WaitFor(_)
                        | Admission::Unknown(_)) => {
                            assert!(scope.is_none() && !did_nothing && max > 0, "{what}: {admission:?}");
                            continue;
                        }
                    };
                    assert_eq!(is_refused, max < 1 + u32::from(counts), "{what}");
                    if is_refused {
                        let call = run.store.call(&id).await.unwrap();
                        assert_eq!(
                            (call.status, call.error_code.as_deref()),
                            (CallStatus::Cancelled, Some("effect_limit"))
                        );
                        let why = call.error_detail.unwrap();
                        assert!(why.contains(&format!("email.send {max}×")), "{what}: {why}");
                        // One that may be this very call is none besides it.
                        let may_be_this_one = scope.is_none() && !did_nothing;
                        assert!(may_be_this_one || why.contains("(1 call)") == counts, "{what}: {why}");
                    }
                    *(if counts { &mut counted } else { &mut free }) += 1;
                }
            }
        }
    }
    assert!(counted > 9 && free > 30, "{counted} {free}");
}

/// What a policy allows in other words and was lost is asked about in the same ones, where the words say what it is.
#[tokio::test]
async fn what_is_allowed_and_was_lost_is_asked_about_in_the_same_words_alone() {
    for ask in [FIRST, OTHER_WORDS, ELSEWHERE] {
        for is_guessed in [false, true] {
            for is_seen in [false, true] {
                let ask = Ask { on_conflict: OnScopeConflict::Allow, ..ask.clone() };
                let (run, _) = lineage().await;
                let id = run
                    .plan_as(|id, turn| {
                        let mut call = ask.planned(id, turn);
                        call.policy.kind_is_guessed = is_guessed;
                        call
                    })
                    .await;
                let facts = if is_seen { ask.facts() } else { ask.unseen() };
                let call = run.store.call(&id).await.unwrap();
                let first = CallRecord { args_hash: sha256(FIRST.words), ..call.clone() };
                let lost = line(&first, "call_lost", Some("boss"), CallStatus::Succeeded);
                let ledger = run.ledger.with_lost(vec![lost]);
                let admission = ledger.admit(&id, facts.clone()).await.unwrap();
                let is_same = ask.words == FIRST.words && !is_guessed && is_seen;
                let what = format!("{ask:?} {is_guessed} {is_seen}: {admission:?}");
                match admission {
                    Admission::Ready(_) => assert!(!is_same, "{what}"),
                    Admission::Unknown(unknown) => {
                        assert!(is_same, "{what}");
                        let Recovery::Decided(held) = ledger.recover(&unknown, &facts).await.unwrap() else {
                            panic!("{what}")
                        };
                        let Admission::Held(question) = *held else { panic!("{what}: {held:?}") };
                        assert!(question.text.contains("call_lost"), "{}", question.text);
                    }
                    Admission::Settled(_)
                    | Admission::Held(_)
                    | Admission::Continues(_)
                    | Admission::Ongoing(_)
                    | Admission::WaitFor(_) => panic!("{what}"),
                }
            }
        }
    }
}

/// Whatever came of the first one: what a policy allows goes out in other words, and in the same ones where nobody declared that they are one
/// effect, or where the first one did nothing; beside one of which nobody knows what came a person is asked, and its receipt is the other's, too.
#[tokio::test]
async fn what_is_allowed_is_made_once_in_the_same_words() {
    for fate in [Fate::Done, Fate::FailedMaybe, Fate::FailedNone, Fate::NotSent, Fate::Lost, Fate::UnderWay] {
        for ask in [FIRST, OTHER_WORDS] {
            for is_guessed in [false, true] {
                let planned = |ask: Ask| {
                    move |id: &str, turn| {
                        let mut call = Ask { on_conflict: OnScopeConflict::Allow, ..ask }.planned(id, turn);
                        call.policy.kind_is_guessed = is_guessed;
                        call
                    }
                };
                let (parent, child) = lineage().await;
                let id = parent.plan_as(planned(FIRST)).await;
                let first = parent.take(&id, &FIRST.facts(), fate).await;
                let id = child.plan_as(planned(ask.clone())).await;
                let admission = child.admit(&id, &ask).await;
                let what = format!("{fate:?}, then {ask:?}, guessed: {is_guessed}: {admission:?}");
                let is_one = ask.words == FIRST.words && !is_guessed;
                match (fate, admission) {
                    (Fate::Done, Admission::Settled(call)) if is_one => {
                        assert_eq!(call.deduplicated_from, Some(first.call_id), "{what}");
                    }
                    (Fate::Lost | Fate::UnderWay, Admission::Held(question)) if is_one => {
                        assert_eq!(question.kind, QuestionKind::NearDuplicate);
                        // Nobody has to answer what the first one's receipt answers.
                        if fate == Fate::UnderWay {
                            continue;
                        }
                        child.answer(&question, Choice::Execute).await;
                        let repeat = child.run(&id, &ask, Fate::Done).await;
                        assert_ne!(repeat.idempotency_key, first.idempotency_key, "{what}");
                    }
                    (_, Admission::Ready(prepared)) => {
                        assert!(!is_one || !matches!(fate, Fate::Done | Fate::Lost | Fate::UnderWay), "{what}");
                        let permit = child.ledger.start(prepared, "1").await.unwrap().unwrap();
                        let is_free = matches!(fate, Fate::FailedMaybe | Fate::FailedNone | Fate::NotSent);
                        let has_own_key = Some(permit.key()) != first.idempotency_key.as_ref();
                        assert!(has_own_key || (is_free && ask.words == FIRST.words), "{what}");
                    }
                    (_, _) => panic!("{what}"),
                }
            }
        }
    }
}

/// Of two sub-agents that want one effect the second waits for the first, also where that one is in doubt and its own run is about to decide about
/// it; for no one else, and not without end.
#[tokio::test]
async fn a_twin_that_its_own_run_is_about_to_decide_about_is_waited_for() {
    for fate in [Fate::UnderWay, Fate::Lost] {
        for is_beside in [true, false] {
            for stands in ["as it is", "asked about", "left", "its run has ended", "sent again"] {
                for has_waited in [false, true] {
                    if stands != "as it is" && fate == Fate::UnderWay {
                        continue;
                    }
                    let (parent, _) = lineage().await;
                    let agent = |id: &str| NewRun {
                        run_mode: if is_beside { "task" } else { "job" }.to_owned(),
                        ..samples::child_run(id, "run_1")
                    };
                    let one = Member::of(&parent.store, agent("run_3"), true).await;
                    let two = Member::of(&parent.store, agent("run_4"), true).await;
                    let keyed = |id: &str, turn| {
                        let mut call = FIRST.planned(id, turn);
                        call.policy.on_unknown = ua_core::OnUnknown::RedoKeyed;
                        call.policy.key_channel = Some(ua_core::KeyChannel::Meta);
                        call
                    };
                    let held = |id: &str, turn| FIRST.planned(id, turn);
                    let id = if matches!(stands, "asked about" | "left") {
                        one.plan_as(held).await
                    } else {
                        one.plan_as(keyed).await
                    };
                    let first = one.take(&id, &FIRST.facts(), fate).await;
                    match stands {
                        "asked about" => {
                            one.in_doubt(&first, &FIRST).await;
                        }
                        "left" => one.skip(&first, &FIRST).await,
                        "its run has ended" => {
                            let end = samples::run_end(RunStatus::Failed);
                            one.store.end_run(&one.lease, end).await.unwrap();
                        }
                        "sent again" => {
                            let Admission::Unknown(unknown) = one.admit(&id, &FIRST).await else {
                                panic!("not in doubt")
                            };
                            let Recovery::Decided(ready) = one.ledger.recover(&unknown, &FIRST.facts()).await.unwrap()
                            else {
                                panic!("not decided")
                            };
                            let Admission::Ready(prepared) = *ready else { panic!("{ready:?}") };
                            let again = one.send(prepared, Fate::UnderWay).await;
                            assert_eq!((again.status, again.doubt), (CallStatus::Running, Some(1)));
                        }
                        _ => {}
                    }
                    let id = two.plan(&FIRST).await;
                    let facts = Facts { has_waited, ..FIRST.facts() };
                    let admission = two.ledger.admit(&id, facts).await.unwrap();
                    let is_under_way = fate == Fate::UnderWay || stands == "sent again";
                    let is_waited_for = is_beside && (is_under_way || (stands == "as it is" && !has_waited));
                    let what = format!("{fate:?}, beside: {is_beside}, {stands}, {has_waited}: {admission:?}");
                    match admission {
                        Admission::WaitFor(twin) => assert!(is_waited_for && twin == first.call_id, "{what}"),
                        Admission::Held(question) => {
                            assert!(!is_waited_for && question.kind == QuestionKind::NearDuplicate, "{what}");
                        }
                        Admission::Settled(_)
                        | Admission::Ready(_)
                        | Admission::Continues(_)
                        | Admission::Ongoing(_)
                        | Admission::Unknown(_) => panic!("{what}"),
                    }
                }
            }
        }
    }
}

/// What its own run does with a twin in doubt while another one looks.
struct MovesOn {
    /// The number of the read before which it does so.
    at: usize,
    reads: AtomicUsize,
    run: Member,
    call: CallId,
    /// How far it comes: 0 to sending it again, 1 to its receipt, 2 to the end of the run.
    how_far: u32,
}

#[async_trait]
impl Plan for MovesOn {
    async fn before(&self, _: &Crossing) {}
    async fn after(&self, _: &Crossing) {}

    async fn before_read(&self) {
        if self.reads.fetch_add(1, Ordering::SeqCst) != self.at {
            return;
        }
        let Admission::Unknown(unknown) = self.run.admit(&self.call, &FIRST).await else { panic!("not in doubt") };
        let decided = self.run.ledger.recover(&unknown, &FIRST.facts()).await.unwrap();
        let Recovery::Decided(ready) = decided else { panic!("not decided") };
        let Admission::Ready(prepared) = *ready else { panic!("{ready:?}") };
        self.run.send(prepared, if self.how_far == 0 { Fate::UnderWay } else { Fate::Done }).await;
        if self.how_far == 2 {
            let end = samples::run_end(RunStatus::Succeeded);
            self.run.store.end_run(&self.run.lease, end).await.unwrap();
        }
    }
}

/// Whenever the run of a twin in doubt learns what came of it while another one looks how it stands: it is waited for, or its receipt counts, and
/// nobody is asked.
#[tokio::test]
async fn a_twin_that_moves_on_while_it_is_looked_at_is_asked_about_by_nobody() {
    for how_far in 0..3 {
        for at in 0.. {
            let (parent, _) = lineage().await;
            let agent = |id: &str| NewRun { run_mode: "task".to_owned(), ..samples::child_run(id, "run_1") };
            let one = Member::of(&parent.store, agent("run_3"), true).await;
            let two = Member::of(&parent.store, agent("run_4"), true).await;
            let keyed = |id: &str, turn| {
                let mut call = FIRST.planned(id, turn);
                call.policy.on_unknown = ua_core::OnUnknown::RedoKeyed;
                call.policy.key_channel = Some(ua_core::KeyChannel::Meta);
                call
            };
            let id = one.plan_as(keyed).await;
            let first = one.take(&id, &FIRST.facts(), Fate::Lost).await;
            let moves_on =
                Arc::new(MovesOn { at, reads: AtomicUsize::new(0), run: one, call: first.call_id.clone(), how_far });
            let id = two.plan(&FIRST).await;
            let seam = StoreSeam::new(two.store.clone(), moves_on.clone());
            let two = two.behind(Arc::new(seam)).await;
            moves_on.reads.store(0, Ordering::SeqCst);
            let admission = two.admit(&id, &FIRST).await;
            let what = format!("{how_far}, before read {at}: {admission:?}");
            match admission {
                Admission::WaitFor(twin) => assert_eq!(twin, first.call_id, "{what}"),
                Admission::Settled(settled) => {
                    assert!(settled.status == CallStatus::Succeeded && how_far > 0, "{what}");
                }
                Admission::Held(_)
                | Admission::Ready(_)
                | Admission::Continues(_)
                | Admission::Ongoing(_)
                | Admission::Unknown(_) => panic!("{what}"),
            }
            if moves_on.reads.load(Ordering::SeqCst) <= at {
                assert!(at > 5, "only {at} reads");
                break;
            }
        }
    }
}

/// Who is about to find out what came of a call is told apart: this very process, which has begun to, another one, or nobody.
#[tokio::test]
async fn who_recovers_a_call_is_known_by_who_drives_its_run() {
    let (parent, _) = lineage().await;
    let agent = |id: &str| NewRun { run_mode: "task".to_owned(), ..samples::child_run(id, "run_1") };
    let one = Member::of(&parent.store, agent("run_3"), true).await;
    let two = Member::of(&parent.store, agent("run_4"), true).await;
    let id = one.plan(&FIRST).await;
    let call = one.take(&id, &FIRST.facts(), Fate::Lost).await.call_id;
    let by = async || two.ledger.soon_known(&call).await.unwrap();
    assert_eq!(by().await, Some(SoonKnown::RecoveredHere));
    let (lease, _) = one.store.acquire_run(&one.lease.run_id, &samples::owner(200), samples::at(60)).await.unwrap();
    assert_eq!(by().await, Some(SoonKnown::RecoveredElsewhere), "another process has taken it");
    one.store.end_run(&lease, samples::run_end(RunStatus::Failed)).await.unwrap();
    assert_eq!(by().await, None, "its run has ended");
}
