//! Calls of before there were doubts, in rows that were copied out of a file: a migration finds them.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use ua_core::{CallStatus, Resolution};
use ua_store::conformance::{Scene, samples};
use ua_store::{Choice, LedgerStore as _, RunStore as _, StartAttempt, invariants};
use ua_store_postgres::{PostgresStore, migrate};

use crate::cluster::blocking;
use crate::database::Database;

/// A call whose first attempt was lost and whose second did nothing, as a program left it that forgot the first; with what a person said between
/// the two, if anything.
async fn refused_after_a_loss(store: &PostgresStore, run: &str, said: Option<Choice>) {
    let scene = Scene::begin(store, run).await;
    let (id, question) = (format!("call_of_{run}"), format!("q_{run}"));
    scene.call_that_is(&id, CallStatus::Unknown).await;
    let approved_by = said.map(|_| samples::question_id(&question));
    if let Some(choice) = said {
        store.raise_question(&scene.lease, samples::question(&question, Some(&id))).await.unwrap();
        store.insert_answer(samples::answer(&question, choice)).await.unwrap();
    }
    let again = StartAttempt { ends_doubt: true, approved_by, at: samples::at(70), ..samples::start(&id, 2, &id) };
    store.start_attempt(&scene.lease, again).await.unwrap();
    let ended = ua_store::SettleAttempt { at: samples::at(80), ..samples::not_sent(&id, 2) };
    let failed = store.settle_attempt(&scene.lease, ended).await.unwrap();
    assert_eq!((failed.status, failed.doubt), (CallStatus::FailedDefinite, None));
}

#[tokio::test]
async fn a_migration_puts_in_doubt_what_was_called_failed_behind_a_loss() {
    let Some(database) = Database::fresh() else { return };
    let store = database.store();
    for (run, said) in [("run_1", None), ("run_2", Some(Choice::Execute))] {
        refused_after_a_loss(&store, run, said).await;
    }
    let by_hand = database.by_hand();
    let older = "DELETE FROM ua.refinery_schema_history WHERE version = 11";
    blocking(by_hand.batch_execute(older)).unwrap();
    assert_eq!(blocking(migrate(&database.direct())).unwrap(), 11);

    let store = database.store();
    for (run, wanted) in [
        ("run_1", (CallStatus::Unknown, Some(1), None)),
        ("run_2", (CallStatus::FailedDefinite, None, Some(Resolution::Executed))),
    ] {
        let records = store.load(&samples::run_id(run)).await.unwrap();
        let call = &records.calls[0];
        assert_eq!((call.status, call.doubt, call.resolution), wanted, "{run}");
        let events = store.events(&call.call_id).await.unwrap();
        let found = invariants::check(&records, &events);
        let of_doubt =
            found.iter().filter(|one| one.invariant.contains("doubt") || one.invariant == "legal_transitions");
        assert_eq!(of_doubt.count(), 0, "{run}: {found:?}");
    }
    // To everybody else it is no way that a call takes.
    let by_hand_moved = "UPDATE ua.tool_calls SET status = 'unknown', failure_kind = NULL WHERE run_id = 'run_2'";
    let refused = blocking(by_hand.batch_execute(by_hand_moved)).expect_err("it is guarded again");
    assert!(refused.as_db_error().is_some_and(|error| error.message().contains("does not move that way")));
}
