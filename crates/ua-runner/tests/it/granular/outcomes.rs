//! Every outcome of a step, and what is an error instead.

#![expect(clippy::disallowed_methods, reason = "tests make the files that they look at")]

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use serde_json::json;
use ua_core::{
    Budgets, CallStatus, Env, Message, Money, Origin, PriceTable, Redactor, RunSpec, RunStatus, RunStop, Settings,
    Trace,
};
use ua_dispatch::{LocalCall, LocalFailure};
use ua_runner::{LockError, RunLock, StepError, StepOutcome, owner_stamp};
use ua_store::{Choice, NewOverride, NewRun, OverrideKind, RunStore as _, Store};

use super::shop::{POLICY, SCRIPT, Shop, done, run_id, spec};

#[tokio::test]
async fn a_complete_step_says_its_result_again_without_a_request() {
    let shop = Shop::new(SCRIPT, POLICY, done);
    let first = shop.run().await.unwrap();
    let StepOutcome::Complete { final_output, turns, usage } = &first else { panic!("{first:?}") };
    assert_eq!((final_output.as_str(), *turns, usage.requests["actual"]), (Some("Ordered."), 3, 3));
    assert_eq!(shop.run().await.unwrap(), first);
    assert_eq!((shop.requests(), shop.orders().len()), (3, 1));
    let run = shop.records().await.run;
    assert_eq!((run.entrypoint.as_str(), run.run_mode.as_str()), ("library", "library"));
}

#[tokio::test]
async fn the_defaults_are_those_of_the_prd() {
    let shop = Shop::new(SCRIPT, POLICY, done);
    let _outcome = shop.run().await.unwrap();
    let spec = shop.records().await.run.spec;
    assert_eq!(spec.budgets, Budgets { max_turns: Some(20), ..Budgets::default() });
    let expected = Settings {
        blob_threshold_bytes: 20_000,
        history_max_tokens: 128_000,
        degraded_replay: false,
        enforce_idempotency: false,
        provider_sessions: None,
    };
    assert_eq!((spec.settings.clone(), spec.objective.as_str()), (expected, "Restock."));
}

#[tokio::test]
async fn an_input_that_is_no_text_stands_under_the_steps_name() {
    let mut shop = Shop::new(SCRIPT, POLICY, done);
    shop.step.input = json!({"articles": ["pen"], "urgent": true});
    let _outcome = shop.run().await.unwrap();
    let prompt = shop.records().await.run.last_job_prompt;
    assert!(prompt.contains("restock") && prompt.contains("\"urgent\": true"), "{prompt}");
}

#[tokio::test]
async fn max_turns_stops_the_step_and_nothing_spins() {
    let mut shop = Shop::new(SCRIPT, POLICY, done);
    shop.step.max_turns = 2;
    for _ in 0..3 {
        let outcome = shop.run().await.unwrap();
        let StepOutcome::Stopped { reason: RunStop::Budget, detail } = &outcome else { panic!("{outcome:?}") };
        assert!(detail.contains("turn"), "{detail}");
    }
    assert_eq!((shop.requests(), shop.records().await.run.turn_index), (2, 2));
}

#[tokio::test]
async fn a_signal_stops_the_step_between_turns_and_the_next_call_goes_on() {
    let mut shop = Shop::new(SCRIPT, POLICY, done);
    let stop = shop.host.stop.clone();
    shop.host.watcher = std::sync::Arc::new(move |signal| {
        if matches!(signal, ua_runner::RunEvent::Committed { turn: 1 }) {
            stop.stop_gently();
        }
    });
    let outcome = shop.run().await.unwrap();
    assert!(matches!(outcome, StepOutcome::Stopped { reason: RunStop::Interrupt, .. }), "{outcome:?}");
    shop.host.stop = ua_dispatch::StopSignal::default();
    let outcome = shop.run().await.unwrap();
    assert!(matches!(outcome, StepOutcome::Complete { turns: 3, .. }), "{outcome:?}");
    assert_eq!((shop.requests(), shop.orders().len()), (3, 1));
}

#[tokio::test]
async fn a_cancelled_step_sends_nothing_more() {
    let shop = Shop::new(SCRIPT, POLICY, |_| Err(LocalFailure::Unknown("the line went dead".into())));
    let outcome = shop.run().await.unwrap();
    assert!(matches!(outcome, StepOutcome::Waiting { .. }), "{outcome:?}");
    shop.store.request_cancel(&run_id(), "not needed", shop.host.env.now()).await.unwrap();
    assert_eq!(shop.run().await.unwrap(), StepOutcome::Cancelled);
    assert_eq!(shop.run().await.unwrap(), StepOutcome::Cancelled);
    assert_eq!((shop.requests(), shop.orders().len()), (2, 1));
}

#[tokio::test]
async fn an_abort_fails_the_step_for_good() {
    let shop = Shop::new(SCRIPT, POLICY, |_| Err(LocalFailure::Unknown("the line went dead".into())));
    let StepOutcome::Waiting { question } = shop.run().await.unwrap() else { panic!("a lost order is asked about") };
    shop.answer(&question, Choice::Abort).await;
    for _ in 0..2 {
        let outcome = shop.run().await.unwrap();
        assert!(matches!(&outcome, StepOutcome::Failed { why } if !why.is_empty()), "{outcome:?}");
    }
    assert_eq!((shop.requests(), shop.orders().len()), (2, 1));
}

type Change = fn(&mut Shop);

#[tokio::test]
async fn the_same_id_with_another_definition_is_refused_by_its_parts() {
    let mut shop = Shop::new(SCRIPT, POLICY, done);
    shop.step.max_turns = 1;
    let _stopped = shop.run().await.unwrap();
    let before = shop.records().await;
    let original = shop.step.clone();
    let workspace = shop.host.workspace.clone();
    let changes: [(&str, Change); 6] = [
        ("input", |shop| shop.step.input = "Restock everything.".into()),
        ("max_turns", |shop| shop.step.max_turns = 9),
        ("blob_threshold_bytes", |shop| shop.step.blob_threshold_bytes = 300),
        ("model", |shop| shop.step.agent.model = "another".into()),
        ("system", |shop| shop.step.agent.system = "Be brief.".into()),
        ("workspace", |shop| shop.host.workspace = shop.host.workspace.with_file_name("elsewhere")),
    ];
    for (part, change) in changes {
        change(&mut shop);
        let error = shop.run().await.unwrap_err();
        let StepError::AnotherDefinition { differs, .. } = &error else { panic!("{part}: {error}") };
        assert_eq!(differs.iter().map(|differs| differs.part.as_str()).collect::<Vec<_>>(), [part]);
        let (told, differs) = (error.to_string(), &differs[0]);
        assert!(differs.stored != differs.now && told.contains("(stored: ") && told.contains(", now: "), "{told}");
        shop.step = original.clone();
        shop.host.workspace.clone_from(&workspace);
    }
    assert_eq!(shop.records().await, before, "nothing was changed, and nothing taken");
    assert_eq!(shop.requests(), 1);
}

#[tokio::test]
async fn a_definition_that_cannot_be_worked_with_stores_nothing() {
    let mut shop = Shop::new(SCRIPT, POLICY, done);
    shop.step.blob_threshold_bytes = 1;
    let error = shop.run().await.unwrap_err();
    assert!(matches!(error, StepError::Definition(_)), "{error}");
    shop.step.blob_threshold_bytes = 20_000;
    shop.step.name = String::new();
    assert!(matches!(shop.run().await.unwrap_err(), StepError::Definition(_)));
    assert!(shop.store.run(&run_id()).await.is_err());
}

#[tokio::test]
async fn a_step_that_somebody_drives_is_left_alone() {
    let shop = Shop::new(SCRIPT, POLICY, done);
    let owner = owner_stamp(Trace::new(&shop.host.env));
    let lock = RunLock::take(&shop.locks(), &run_id(), &owner).unwrap();
    let error = shop.run().await.unwrap_err();
    assert!(matches!(error, StepError::Lock(LockError::Held { .. })), "{error}");
    assert_eq!(shop.requests(), 0);
    drop(lock);
    let outcome = shop.run().await.unwrap();
    assert!(matches!(outcome, StepOutcome::Complete { .. }), "{outcome:?}");
}

/// A process that is killed and waited for, so that its stamp is that of nobody.
#[tokio::test]
async fn without_a_lock_folder_a_living_owner_is_respected_and_a_dead_one_is_not() {
    let mut shop = Shop::new(SCRIPT, POLICY, done);
    shop.step.max_turns = 1;
    let _stopped = shop.run().await.unwrap();
    shop.host.locks = None;
    let mut other = std::process::Command::new("sleep").arg("60").spawn().unwrap();
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", other.id())).unwrap();
    let start = stat.rsplit(')').next().unwrap().split_whitespace().nth(19).unwrap();
    let mut owner = owner_stamp(Trace::new(&shop.host.env));
    (owner.pid, owner.start_ticks) = (other.id(), start.parse().unwrap());
    shop.store.acquire_run(&run_id(), &owner, shop.host.env.now()).await.unwrap();
    let error = shop.run().await.unwrap_err();
    assert!(matches!(error, StepError::Lock(LockError::Held { .. })), "{error}");
    other.kill().unwrap();
    other.wait().unwrap();
    let outcome = shop.run().await.unwrap();
    assert!(matches!(outcome, StepOutcome::Stopped { reason: RunStop::Budget, .. }), "{outcome:?}");
}

#[tokio::test]
async fn a_run_of_something_else_is_not_taken() {
    let shop = Shop::new(SCRIPT, POLICY, done);
    let spec = RunSpec::parse(r#"{"objective": "A job."}"#).unwrap();
    let job = NewRun {
        run_id: run_id(),
        created_at: shop.host.env.now(),
        entrypoint: "cli".into(),
        run_mode: "job".into(),
        opening: Message::user(Origin::Prompt, spec.opening_prompt()),
        spec,
        files: Vec::new(),
        job_path: None,
        workspace_dir: shop.host.workspace.display().to_string(),
        launch: serde_json::Value::Null,
        parent_run_id: None,
    };
    shop.store.submit_run(job).await.unwrap();
    let error = shop.run().await.unwrap_err();
    assert!(matches!(&error, StepError::AnotherEntrypoint { entrypoint, .. } if entrypoint == "cli"), "{error}");
    assert_eq!(shop.records().await.run.status, RunStatus::Queued);
}

#[tokio::test]
async fn a_workspace_that_is_gone_is_not_made_anew() {
    let mut shop = Shop::new(SCRIPT, POLICY, done);
    shop.step.max_turns = 1;
    let _stopped = shop.run().await.unwrap();
    std::fs::remove_dir_all(&shop.host.workspace).unwrap();
    let error = shop.run().await.unwrap_err();
    assert!(matches!(error, StepError::WorkspaceGone { .. }), "{error}");
    assert!(!shop.host.workspace.exists());
}

#[tokio::test]
async fn the_time_being_up_cuts_no_call_and_starts_none() {
    let script = r#"{"turns": [
      {"tools": [{"name": "mcp__shop__order_slowly", "input": {"article": "pen"}},
                 {"name": "mcp__shop__order_slowly", "input": {"article": "ink"}}]},
      {"text": "Ordered."}]}"#;
    let clock = Arc::new(OnceLock::<Env>::new());
    let of_tool = clock.clone();
    // Each order takes two minutes of the one that is allowed.
    let mut shop = Shop::with_tools(script, POLICY, done, move |tools, orders| {
        tools.with(spec("order_slowly", &json!({"article": {"type": "string"}})), move |call: LocalCall| {
            let (orders, clock) = (orders.clone(), of_tool.clone());
            async move {
                clock.get().unwrap().clock.sleep(Duration::from_mins(2)).await;
                orders.lock().unwrap().push(call);
                Ok(json!({"ok": true}))
            }
        })
    });
    clock.set(shop.host.env.clone()).unwrap();
    shop.step.budgets.max_wallclock_minutes = 1;
    for _ in 0..2 {
        let outcome = shop.run().await.unwrap();
        let StepOutcome::Stopped { reason: RunStop::Budget, detail } = &outcome else { panic!("{outcome:?}") };
        assert_eq!(detail, "the budget max_wallclock_minutes (1) is reached: the run was active for 120 seconds");
        let statuses: Vec<CallStatus> = shop.records().await.calls.iter().map(|call| call.status).collect();
        assert_eq!(statuses, [CallStatus::Succeeded, CallStatus::Prepared]);
    }
    // With more time it goes on where it stopped: the first order is not repeated, the second is made for the first time.
    let change = NewOverride {
        run_id: run_id(),
        kind: OverrideKind::Budget,
        component: "max_wallclock_minutes".to_owned(),
        value: json!(10),
        made_by: "a tester".to_owned(),
        at: shop.host.env.now(),
    };
    shop.store.insert_override(change).await.unwrap();
    assert!(matches!(shop.run().await.unwrap(), StepOutcome::Complete { .. }));
    let articles: Vec<String> = shop.orders().iter().map(|call| call.text("article").to_owned()).collect();
    assert_eq!(articles, ["pen", "ink"]);
    assert_eq!(shop.records().await.run.held_millis, 240_000);
}

#[tokio::test]
async fn nothing_is_kept_of_a_secret_that_the_host_knows() {
    let leaks = |_: &[LocalCall]| Ok(json!({"order": 1, "note": "paid with sk-very-secret-1"}));
    let script = SCRIPT.replace("Ordered.", "Ordered with sk-very-secret-1.");
    let mut shop = Shop::new(&script, POLICY, leaks);
    let secrets = [("SHOP_KEY".to_owned(), "sk-very-secret-1".to_owned())];
    shop.host = shop.host.with_redactor(Redactor::new(secrets));
    let outcome = shop.run().await.unwrap();
    let StepOutcome::Complete { final_output, .. } = &outcome else { panic!("{outcome:?}") };
    assert_eq!(final_output, "Ordered with [secret SHOP_KEY].");
    let records = format!("{:?}", shop.records().await);
    assert!(!records.contains("sk-very-secret-1"), "{records}");
    assert!(records.contains("paid with [secret SHOP_KEY]"), "{records}");
}

#[tokio::test]
async fn what_a_step_costs_is_counted_by_its_agents_prices() {
    let mut shop = Shop::new(SCRIPT, POLICY, done);
    let prices = "[providers.scripted.scripted]\ninput = 3\noutput = 15\n";
    shop.step.agent.prices = PriceTable::parse("prices", prices).unwrap();
    shop.step.budgets.max_cost = Money::parse("$0.000001");
    let outcome = shop.run().await.unwrap();
    let StepOutcome::Stopped { reason: RunStop::Budget, detail } = &outcome else { panic!("{outcome:?}") };
    assert!(detail.contains("cost"), "{detail}");
}

/// Another attempt that would come when the run's time is used up is not waited for: the run stops at once, with what lifts it, and a resume makes
/// the attempt.
#[tokio::test]
async fn another_attempt_that_does_not_fit_the_runs_time_is_not_waited_for() {
    let script = r#"{"turns": [
      {"tools": [{"name": "mcp__shop__order_slowly", "input": {"article": "pen"}}]},
      {"text": "Ordered."}]}"#;
    let clock = Arc::new(OnceLock::<Env>::new());
    let (of_tool, tries) = (clock.clone(), Arc::new(AtomicU32::new(0)));
    // The first try takes all but a third of a second of the minute that is allowed, and the second would come after half a second.
    let mut shop = Shop::with_tools(script, POLICY, done, move |tools, orders| {
        tools.with(spec("order_slowly", &json!({"article": {"type": "string"}})), move |call: LocalCall| {
            let (orders, clock, tries) = (orders.clone(), of_tool.clone(), tries.clone());
            async move {
                if tries.fetch_add(1, Ordering::SeqCst) == 0 {
                    clock.get().unwrap().clock.sleep(Duration::from_millis(59_700)).await;
                    return Err(LocalFailure::NotDone("the shop opens soon".into()));
                }
                orders.lock().unwrap().push(call);
                Ok(json!({"ok": true}))
            }
        })
    });
    clock.set(shop.host.env.clone()).unwrap();
    shop.step.budgets.max_wallclock_minutes = 1;
    let outcome = shop.run().await.unwrap();
    let StepOutcome::Stopped { reason: RunStop::Budget, detail } = &outcome else { panic!("{outcome:?}") };
    let left = "1 s of the run's time are left, and `order_slowly` would be tried again after 1 s";
    assert_eq!(*detail, format!("the budget max_wallclock_minutes (1) is reached: {left}"));
    let run = shop.records().await.run;
    assert!(run.held_millis < 60_000, "{} ms", run.held_millis);
    assert_eq!(ua_runner::raise_flags(&run).as_deref(), Some("--max-wallclock-minutes +10"));
    let change = NewOverride {
        run_id: run_id(),
        kind: OverrideKind::Budget,
        component: "max_wallclock_minutes".to_owned(),
        value: json!(11),
        made_by: "a tester".to_owned(),
        at: shop.host.env.now(),
    };
    shop.store.insert_override(change).await.unwrap();
    assert!(matches!(shop.run().await.unwrap(), StepOutcome::Complete { .. }));
    assert_eq!(shop.orders().len(), 1);
}
