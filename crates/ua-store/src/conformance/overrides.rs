//! What a person changes after a run's start.

use serde_json::json;
use ua_core::RunStatus;

use super::samples::{self, at, run_id};
use super::{Scene, refused};
use crate::error::StoreError;
use crate::overrides::OverrideKind;
use crate::{RunStore, Store};

/// Changes are kept in order beside the contract, which stays; a run shows them with everything else about it.
pub async fn overrides_are_kept_in_order_beside_the_contract(store: &dyn Store) {
    let scene = Scene::begin(store, "run_1").await;
    Scene::begin(store, "run_2").await;
    let before = store.run(scene.run_id()).await.unwrap();
    let mut made = Vec::new();
    for (kind, component, value) in [
        (OverrideKind::Pin, "tools", json!({"n": 1})),
        (OverrideKind::Budget, "max_tool_calls", json!(300)),
        (OverrideKind::Pin, "tools", json!({"n": 2})),
        (OverrideKind::Pin, "tools", json!({"n": 1})),
    ] {
        let new = samples::new_override("run_1", kind, component, value.clone());
        let row = store.insert_override(new.clone()).await.unwrap();
        assert_eq!((&row.run_id, row.kind, row.component.as_str()), (&run_id("run_1"), kind, component));
        assert_eq!((&row.value, &row.made_by, row.created_at), (&value, &new.made_by, new.at));
        made.push(row);
    }
    assert_eq!(store.overrides(scene.run_id()).await.unwrap(), made);
    assert_eq!(scene.records().await.overrides, made);
    assert_eq!(store.overrides(&run_id("run_2")).await.unwrap(), []);
    assert_eq!(store.run(scene.run_id()).await.unwrap(), before);
}

/// A change is applied by the run's owner, so it needs no lease; the same one again is the same row, and a finished run
/// takes none.
pub async fn an_override_needs_no_lease_and_no_second_row(store: &dyn Store) {
    let scene = Scene::begin(store, "run_1").await;
    let new = || samples::new_override("run_1", OverrideKind::Budget, "max_turns", json!(9));
    let first = store.insert_override(new()).await.unwrap();
    let mut later = new();
    later.at = at(500);
    assert_eq!(store.insert_override(later).await.unwrap(), first);
    assert_eq!(store.overrides(scene.run_id()).await.unwrap().len(), 1);

    let mut nowhere = new();
    nowhere.run_id = run_id("run_0");
    assert!(matches!(store.insert_override(nowhere).await, Err(StoreError::NotFound { .. })));
    store.end_run(&scene.lease, samples::run_end(RunStatus::Failed)).await.unwrap();
    refused(store.insert_override(new()).await, "failed");
    assert_eq!(store.overrides(scene.run_id()).await.unwrap(), [first]);
}

/// Several changes of an owner are one write: all of them or none, and none of an owner that was replaced.
pub async fn what_is_accepted_together_is_stored_together(store: &dyn Store) {
    let scene = Scene::begin(store, "run_1").await;
    let new = |run: &str, component: &str| {
        samples::new_override(run, OverrideKind::Pin, component, json!({"component": component}))
    };
    let stored = async || {
        let rows = store.overrides(scene.run_id()).await.unwrap();
        rows.into_iter().map(|row| row.component).collect::<Vec<_>>()
    };
    let half = store.insert_overrides(&scene.lease, vec![new("run_1", "tools"), new("run_0", "policy")]).await;
    assert!(half.is_err(), "one of them is about no run");
    assert_eq!(stored().await, [""; 0]);
    store.insert_overrides(&scene.lease, vec![new("run_1", "tools"), new("run_1", "policy")]).await.unwrap();
    assert_eq!(stored().await, ["tools", "policy"]);

    store.acquire_run(scene.run_id(), &samples::owner(2), at(70)).await.unwrap();
    let late = store.insert_overrides(&scene.lease, vec![new("run_1", "pricing")]).await;
    assert!(matches!(late, Err(StoreError::Fenced { .. })), "{late:?}");
    assert_eq!(stored().await, ["tools", "policy"]);
}
