//! What is stored of a call and follows from the rest of it: made once more, and compared.
//!
//! The digest of arguments and the key decide what is the same effect and what is sent again, and triggers keep the program from changing them.
//! Whoever writes the file past the program may put others there. There is nothing secret in either, so somebody who knows how they are made
//! makes fitting ones; what is found are edits, losses and mistakes. Threat S19. Proved by: this file's tests.

use std::collections::BTreeMap;

use ua_core::{CallId, CanonicalJson, IdempotencyKey};
use ua_store::invariants::Violation;
use ua_store::{CallRecord, RunRecords, is_gateway};

use crate::rules::{key_of, position_of};

/// What of the calls of a family of runs, in the database of this id, is not what it is made of.
pub fn check_recomputed(database: &str, family: &[RunRecords]) -> Vec<Violation> {
    let lineages = family.iter().flat_map(|records| records.lineage.calls.iter().chain(&records.lineage.elsewhere));
    let calls = family.iter().flat_map(|records| &records.calls).chain(lineages);
    let keys: BTreeMap<&CallId, Option<&IdempotencyKey>> =
        calls.map(|call| (&call.call_id, call.idempotency_key.as_ref())).collect();
    let mut found = Vec::new();
    // What a client of the gateway keeps to itself is stored without, so nothing can be made of it again.
    let calls = family.iter().filter(|records| !is_gateway(&records.run));
    for (mark, call) in
        calls.flat_map(|records| records.calls.iter().map(|call| (records.run.lineage_mark.as_deref(), call)))
    {
        let mut add = |invariant, why: String| {
            found.push(Violation { invariant, row: call.call_id.to_string(), why });
        };
        if !has_digest_of_arguments(call) {
            add("arguments_have_their_digest", "the digest stored beside its arguments is not theirs".to_owned());
        }
        // Whoever said that an earlier call was it may have said so of one in other words, or of another run.
        let has_key_of_another = call.deduplicated_from.as_ref().is_some_and(|from| {
            call.idempotency_key.is_some() && keys.get(from).is_none_or(|key| *key == call.idempotency_key.as_ref())
        });
        if !has_key_of_another && !has_key_of_its_own((database, mark), call, &keys) {
            let why = "its idempotency key is not one that this program makes of its tool, arguments and place";
            add("keys_are_of_their_calls", why.to_owned());
        }
    }
    found
}

fn has_digest_of_arguments(call: &CallRecord) -> bool {
    // What has no canonical form is told apart by its text as it came, which is not kept.
    let digest = |volatile: &[String]| CanonicalJson::of(&call.arguments, volatile).map(|canonical| canonical.hash());
    match (digest(&call.policy.volatile_fields), digest(&[])) {
        (Ok(without), Ok(whole)) => call.args_hash == without || call.args_hash == whole,
        (Err(_), _) | (_, Err(_)) => true,
    }
}

/// Whether the key is that of the effect, of a repeat of it or one in the place of another call, or of where the call stands.
fn has_key_of_its_own(
    lineage: (&str, Option<&str>),
    call: &CallRecord,
    places: &BTreeMap<&CallId, Option<&IdempotencyKey>>,
) -> bool {
    let Some(key) = &call.idempotency_key else { return true };
    let root = call.root_run_id.as_str();
    [call.scope.as_ref(), None].into_iter().any(|scope| {
        let is = |at: (&str, &str)| key_of(lineage, call, scope, at) == *key;
        is((root, ""))
            || is((call.run_id.as_str(), &position_of(call)))
            || places.keys().any(|id| is((root, id.as_str())))
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use ua_core::{Scope, sha256};
    use ua_store::conformance::{Scene, samples};
    use ua_store::{MemStore, RunStore as _};

    use super::*;

    type Edit = fn(&mut CallRecord);

    /// Each part that a digest or a key is made of, and these themselves, edited one by one.
    #[tokio::test]
    async fn s19_a_call_whose_digest_or_key_is_not_of_its_parts_is_named() {
        let store = MemStore::default();
        let scene = Scene::begin(&store, "run_1").await;
        scene.turn(vec![samples::planned_email("call_1", 1, 1), samples::planned_call("call_2", 1, 2)]).await;
        let mut records = store.load(scene.run_id()).await.unwrap();
        for call in &mut records.calls {
            call.args_hash = CanonicalJson::of(&call.arguments, &[]).unwrap().hash();
        }
        let places = [("run_1", String::new()), ("run_1", "call_1".to_owned()), ("run_1", "call_2".to_owned())];
        let own = ("run_1", position_of(&records.calls[0]));
        for (root, position) in places.iter().chain([&own]) {
            let mut whole = records.clone();
            let mark = whole.run.lineage_mark.clone();
            let call = &mut whole.calls[0];
            call.scope = Some(Scope::from_stored("email.send {}".to_owned()));
            call.idempotency_key = Some(key_of(("db", mark.as_deref()), call, call.scope.as_ref(), (root, position)));
            let found = |whole: &RunRecords| -> Vec<&str> {
                check_recomputed("db", std::slice::from_ref(whole)).into_iter().map(|one| one.invariant).collect()
            };
            assert_eq!(found(&whole), [""; 0], "{position}");
            assert_eq!(check_recomputed("other", std::slice::from_ref(&whole)).len(), 1);
            let edits: [(&str, Edit); 8] = [
                ("arguments", |call| call.arguments = json!({"to": "eve@example.test"}).into()),
                ("hash", |call| call.args_hash = sha256("other")),
                ("key", |call| call.idempotency_key = Some(IdempotencyKey::from_stored("0000".to_owned()))),
                ("tool", |call| call.name.tool.push('x')),
                ("server", |call| call.name.server.push('x')),
                ("scope", |call| call.scope = Some(Scope::from_stored("email.send {\"to\":1}".to_owned()))),
                ("root", |call| call.root_run_id = ua_core::RunId::parse("run_2").unwrap()),
                ("ordinal", |call| call.position.ordinal += 1),
            ];
            for (what, edit) in edits {
                let mut edited = whole.clone();
                edit(&mut edited.calls[0]);
                // The place counts for what is no effect by content alone, and the root for what is one.
                let is_of_no_key = (what == "ordinal" && *position != own.1) || (what == "root" && *position == own.1);
                assert_eq!(found(&edited).is_empty(), is_of_no_key, "{what}, {position:?}");
            }
        }
    }
}
