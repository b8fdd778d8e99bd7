//! Calls of before there were doubts, in rows that were copied out of a file: a migration finds them, whatever schema the database has.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use ua_core::{CallStatus, Resolution};
use ua_store::conformance::before_doubts::{Seen, cases, written};
use ua_store::conformance::{Scene, samples};
use ua_store::{Choice, LedgerStore as _, RunStore as _, StartAttempt, invariants};
use ua_store_postgres::{PostgresStore, migrate};

use crate::cluster::blocking;
use crate::database::{Database, Fresh};
use crate::earlier::{SCHEMAS, take_back_to};

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

/// What an examination finds.
async fn findings(store: &PostgresStore) -> Vec<String> {
    store.examine().await.unwrap().findings
}

/// Every schema that there was, with the same rows as in a file: as a program wrote them that forgot a doubt behind a refusal, and as one did that
/// knew none at all.
#[tokio::test]
async fn whatever_a_database_of_before_doubts_has_stands_as_this_program_would_have_left_it() {
    let Some(made) = Database::fresh() else { return };
    let store = made.store();
    let cases = cases();
    let mut before = Vec::new();
    for (number, case) in cases.iter().enumerate() {
        written(&store, number, case).await;
        before.push(Seen::of(&store, number).await);
    }
    let found_before = findings(&store).await;
    store.close();
    drop(store);
    let forgotten = before.iter().filter(|was| was.forgets_a_doubt()).count();
    assert!(forgotten > 20, "{forgotten} of {} calls are not as they have to be", cases.len());

    let (mut found, mut left) = (0, 0);
    for schema in SCHEMAS {
        let Some(database) = Database::made(&format!("TEMPLATE {}", made.name)) else { return };
        take_back_to(&database, schema);
        let knows_none = schema % 2 == 1;
        if knows_none {
            let none = "SET session_replication_role = replica; UPDATE ua.tool_calls SET doubt = NULL";
            blocking(database.by_hand().batch_execute(none)).unwrap();
        }
        assert_eq!(blocking(migrate(&database.direct())).unwrap(), 11);
        let config = database.direct();
        let fresh = Fresh::with(database, &config);
        // All of them from the oldest schema and from the newest, and everywhere else a part.
        let is_whole = schema == *SCHEMAS.start() || schema == *SCHEMAS.end();
        for number in (0..cases.len()).filter(|number| is_whole || number % 10 == schema) {
            let now = Seen::of(&fresh.store, number).await;
            let what = format!("schema {schema}, without doubts: {knows_none}");
            let is_in_doubt = now.check(&cases[number], &before[number], &what);
            found += u32::from(is_in_doubt);
            left += u32::from(!is_in_doubt);
        }
        assert_eq!(findings(&fresh.store).await, found_before, "schema {schema}");
    }
    assert!(found > 200 && left > 200, "{found} in doubt, {left} not");
}
