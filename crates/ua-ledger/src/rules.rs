//! What holds for every call of a run, as one value: the contract, what people are asked about, what the tools are now, and the time.
//!
//! Pure; the part of [`verdict`](crate::verdict::verdict)'s input that no row of the store says.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use ua_core::{CallId, CallStatus, Destination, IdempotencyKey, KeyBuilder, Resolution, Scope, Sha256, Time};
use ua_store::rules::is_learnt_of_another;
use ua_store::{AttemptRecord, CallRecord, QuestionRecord};

use crate::admission::Facts;
use crate::interpret::another_attempt_may_help;
use crate::ledger::{LedgerConfig, Lineage};
use crate::people::{CallsOf, PeopleRules};
use crate::sent_files::SentFiles;

/// The field of a word's binding that says where the call would go.
const DESTINATION: &str = "destination";

/// What a verdict goes by, beside the rows.
#[derive(Clone)]
pub(crate) struct Rules<'a> {
    /// What the run's contract says about its calls.
    pub(crate) config: &'a LedgerConfig,
    /// When a person is asked.
    pub(crate) people: &'a PeopleRules,
    /// What the tools are now, by qualified name; `None` while nobody has looked.
    pub(crate) definitions: Option<&'a BTreeMap<String, Sha256>>,
    /// Whether a call goes to the tool that it was planned for and to no other; else a person accepts other tools for the whole run.
    pub(crate) is_held_to_definitions: bool,
    /// Who makes the calls.
    pub(crate) calls_of: CallsOf,
    /// Whose effects are told apart.
    pub(crate) lineage: &'a Lineage,
    /// The epoch of the process that asks.
    pub(crate) epoch: u64,
    /// The time.
    pub(crate) time: Time,
}

impl Rules<'_> {
    /// What a person's word about this call is bound to.
    pub(crate) fn binding(&self, call: &CallRecord, facts: &Facts) -> Value {
        let mut binding = json!({
            "args_hash": call.args_hash,
            "tool_digest": self.definition(&call.name.raw).or(call.tool_digest.as_ref()),
            "scope": facts.scope,
            "file_digests": facts.files.digests(),
        });
        // Whoever was told that nobody could look at a file said yes to whatever it holds; whoever was not did not.
        let unknown = facts.files.unknown();
        if !unknown.is_empty() {
            binding["unknown_files"] = json!(unknown);
        }
        if let Some(destination) = &facts.destination {
            binding[DESTINATION] = json!(destination);
        }
        binding
    }

    /// Whether the call still is what the question showed, and would go where it would have gone then. A question of an earlier version,
    /// which shows less, is taken at its word.
    pub(crate) fn is_as_asked(&self, call: &CallRecord, facts: &Facts, asked: &QuestionRecord) -> bool {
        let Some(shown) = asked.detail.get("binding").filter(|shown| !shown.is_null()) else { return true };
        let mut now = self.binding(call, facts);
        if shown.get(DESTINATION).is_none()
            && let Some(now) = now.as_object_mut()
        {
            now.remove(DESTINATION);
        }
        *shown == now
    }

    /// What is not as a question showed it that a person answered, as clauses: `shown` says what they did with it. Empty for one of an earlier
    /// version, and where nothing is.
    pub(crate) fn changed_since(
        &self,
        call: &CallRecord,
        facts: &Facts,
        asked: &QuestionRecord,
        shown: &str,
    ) -> Vec<String> {
        let Some(then) = asked.detail.get("binding").filter(|binding| binding.is_object()) else { return Vec::new() };
        let now = self.binding(call, facts);
        let is_other = |names: &[&str]| names.iter().any(|name| then.get(name) != now.get(name));
        let mut changes = Vec::new();
        if let Some(place) = then.get(DESTINATION)
            && now.get(DESTINATION) != Some(place)
        {
            let place: Option<Destination> = serde_json::from_value(place.clone()).ok();
            let names = place.map(|place| format!(" ({})", place.changes_in_words(facts.destination.as_ref())));
            changes.push(format!(
                "it would now go to another place, or as another account, than the one that you {shown}{}",
                names.unwrap_or_default()
            ));
        }
        if is_other(&["file_digests", "unknown_files"]) {
            changes.push(format!("its files are not those that you {shown}"));
        }
        if is_other(&["tool_digest"]) {
            changes.push(format!("the definition of its tool is another one than the one that you {shown}"));
        }
        if is_other(&["args_hash"]) || (is_other(&["scope"]) && changes.is_empty()) {
            changes.push(format!("what it would do is not what you {shown}"));
        }
        changes
    }

    /// Whether a question showed the place where its call would go now. One of an earlier version, and one about what is not sent, showed none.
    pub(crate) fn showed_place_of(facts: &Facts, asked: &QuestionRecord) -> bool {
        let shown = asked.detail.get("binding").and_then(|binding| binding.get(DESTINATION));
        shown.is_none_or(|shown| facts.destination.as_ref().is_some_and(|now| *shown == json!(now)))
    }

    /// Whether a call was planned for another tool than is there now under its name, and nobody accepts that: what was decided about that one
    /// (its class, its key, what its arguments mean) says nothing about this one.
    pub(crate) fn is_for_another_tool(&self, call: &CallRecord) -> bool {
        let now = self.definition(&call.name.raw);
        self.is_held_to_definitions && now.zip(call.tool_digest.as_ref()).is_some_and(|(now, then)| now != then)
    }

    fn definition(&self, tool: &str) -> Option<&Sha256> {
        self.definitions?.get(tool)
    }

    /// Whether the tool that a call goes to is not there any more: nothing is sent to what nobody offers, whoever accepts other tools.
    pub(crate) fn is_gone(&self, call: &CallRecord) -> bool {
        self.definitions.is_some_and(|there| !there.contains_key(&call.called_tool().raw))
    }

    /// Whether a call that definitely failed has attempts left, and another one may end otherwise. Whoever says that it did not happen does
    /// not say that it is to be sent again: the model decides.
    pub(crate) fn may_retry(&self, call: &CallRecord) -> bool {
        call.status == CallStatus::FailedDefinite
            && call.resolution != Some(Resolution::NotHappened)
            && (call.attempt <= self.config.max_retries || call.was_kept_back())
            && !self.is_for_another_tool(call)
            && !self.is_gone(call)
            && another_attempt_may_help(call.error_code.as_deref())
    }

    /// Whether a person is asked to mend the credentials that this call was refused with.
    pub(crate) fn asks_for_credentials(&self, call: &CallRecord) -> bool {
        self.people.ask_on_auth_failure && was_refused_credentials(call)
    }

    /// Whether a call was sent as often as the job and its policy allow. An attempt that never left us does not count.
    pub(crate) fn is_exhausted(&self, call: &CallRecord, attempts: &[AttemptRecord]) -> bool {
        let sent = attempts.iter().filter(|attempt| is_a_send(attempt)).count();
        sent > self.config.retries_in_doubt(call) as usize
    }

    /// Whether this process has found often enough that the call's server cannot be reached.
    pub(crate) fn is_unreachable(&self, attempts: &[AttemptRecord]) -> bool {
        let in_vain = |attempt: &&AttemptRecord| attempt.never_left() && attempt.epoch == self.epoch;
        attempts.iter().rev().take_while(in_vain).count() > self.config.max_retries as usize
    }

    /// The call's identity: by content for declared creating effects whose content is known, by position for everything else. What another
    /// effect is in the same words carries the id of a call as well: a repeat that a person ordered its own, and one in the place of a call
    /// whose record a person put right (*it did not happen*) that call's, since the other side may know the first key.
    pub(crate) fn key(&self, call: &CallRecord, facts: &Facts, repeat: Option<&CallId>) -> IdempotencyKey {
        call.idempotency_key.clone().unwrap_or_else(|| self.identity(call, facts, repeat))
    }

    /// The key of a call that definitely did nothing, for another attempt: nothing of it is outside, so it is the request that its files
    /// make it now; a repeat that a person ordered stays one.
    pub(crate) fn key_of_retry(&self, call: &CallRecord, facts: &Facts, place: Option<&CallId>) -> IdempotencyKey {
        let first = Facts {
            scope: call.scope.clone(),
            files: SentFiles::of_digests(call.file_digests.clone()),
            ..Facts::default()
        };
        let is_repeat = call.idempotency_key == Some(self.identity(call, &first, Some(&call.call_id)));
        self.identity(call, facts, if is_repeat { Some(&call.call_id) } else { place })
    }

    /// The key that a call gets which has none.
    pub(crate) fn identity(&self, call: &CallRecord, facts: &Facts, repeat: Option<&CallId>) -> IdempotencyKey {
        let by_content = facts.are_by_content(call) && self.config.no_duplicate_external_actions;
        let root = &self.lineage.root;
        let (root, position) = match (by_content, repeat) {
            (true, None) => (root.as_str(), String::new()),
            (true, Some(id)) => (root.as_str(), id.to_string()),
            (false, _) => (call.run_id.as_str(), position_of(call)),
        };
        let lineage = (self.lineage.database.as_str(), self.lineage.mark.as_deref());
        key_of(lineage, call, facts.scope.as_ref(), (root, &position))
    }
}

/// The key of a call in a lineage, which is told by its database and its mark: among all calls of `root` that have this position, or in their
/// place.
pub(crate) fn key_of(
    (database, mark): (&str, Option<&str>),
    call: &CallRecord,
    scope: Option<&Scope>,
    (root, position): (&str, &str),
) -> IdempotencyKey {
    let builder = KeyBuilder::new("ua.idempotency.v2").field("database", database);
    // A lineage that an earlier version began keeps the keys that it has.
    let builder = match mark {
        Some(mark) => builder.field("lineage", mark),
        None => builder,
    };
    builder
        .field("root", root)
        .field("namespace", call.name.namespace.as_str())
        .field("server", &call.name.server)
        .field("tool", &call.name.tool)
        .field("args", &call.args_hash.to_hex())
        .field("scope", scope.map_or("", Scope::as_str))
        .field("position", position)
        .finish()
}

/// Where a call stands, as the key of what is no effect by content has it.
pub(crate) fn position_of(call: &CallRecord) -> String {
    let position = call.position;
    format!("{}/{}/{}", call.step_id, position.turn, position.ordinal)
}

/// Whether a call failed because its tool refused the credentials (HTTP 401 or 403): trying it again as it is changes nothing.
pub(crate) fn was_refused_credentials(call: &CallRecord) -> bool {
    call.status == CallStatus::FailedDefinite
        && call.error_code.as_deref().is_some_and(|code| matches!(code, "http_401" | "http_403"))
}

/// Whether an attempt left for its server, and is not what became known later of one that did.
pub(crate) fn is_a_send(attempt: &AttemptRecord) -> bool {
    !attempt.never_left() && !is_learnt_of_another(attempt)
}
