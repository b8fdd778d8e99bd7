//! What a call might repeat: of related calls that agree in all that matters, the newest and how many they are.
//!
//! Nothing but these rows is read whole, so that a decision in a run of ten thousand calls takes the rows that one in a run of ten takes. What
//! two calls have to agree in is all that `ua_store::Relations` asks of them; the conformance suite compares with the model.

use tokio_postgres::Row;
use ua_core::{EffectKind, Scope};
use ua_store::{CallRecord, Related, Relations, rules};

use crate::column::text;
use crate::db::Db;
use crate::error::DbError;
use crate::gateway_rows::PROJECT;
use crate::ledger_rows::call_record;
use crate::lineage_rows::FAMILY;
use crate::run_rows::run_record;
use crate::value::{ToValue as _, Value, params};

type DbResult<T> = Result<T, DbError>;

/// The newest of each group of the calls that a condition finds, with the size of the group. $1 is what the condition looks in, then come the
/// call, its run, tool, words and scope, when it was decided, its position, its kind of effect and the own name of its tool.
macro_rules! newest_of {
    ($found:expr) => {
        concat!(
            "SELECT c.*, related.count FROM (SELECT DISTINCT ON (standing, is_left_open, is_of_tool, of_name, has_words, has_scope, is_of_whole_call, is_after, \
             is_at_once, is_behind, has_kind, side_effect_class) tool_call_id, count(*) OVER (PARTITION BY standing, is_left_open, is_of_tool, of_name, has_words, has_scope, \
             is_of_whole_call, is_after, is_at_once, is_behind, has_kind, side_effect_class) AS count FROM (SELECT tool_call_id, updated_at, turn, ordinal, run_id = $3 AS is_own, \
             CASE WHEN status = 'unknown' OR doubt IS NOT NULL THEN 'in doubt' ELSE status END AS standing, \
             status = 'unknown' AND resolution IS NOT DISTINCT FROM 'skipped' AND replay_policy = 'continue' AS is_left_open, \
             raw_tool_name = $4 AS is_of_tool, CASE WHEN tool_name = $11 THEN raw_tool_name END AS of_name, normalized_args_hash = $5 AS has_words, side_effect_scope IS NOT DISTINCT FROM $6 AS has_scope, \
             side_effect_scope IS NULL OR strpos(side_effect_scope, ' {\"arguments\":') > 0 AS is_of_whole_call, \
             created_at > $7 AS is_after, created_at = $7 AS is_at_once, run_id = $3 AND (turn, ordinal) > ($8, $9) AS is_behind, \
             effect_kind IS NOT DISTINCT FROM $10 AS has_kind, side_effect_class \
             FROM tool_calls WHERE ",
            $found,
            " AND attempt > 0 AND tool_call_id <> $2) found \
             ORDER BY standing, is_left_open, is_of_tool, of_name, has_words, has_scope, is_of_whole_call, is_after, is_at_once, is_behind, has_kind, \
             side_effect_class, \
             updated_at DESC, is_own DESC, turn DESC, ordinal DESC, tool_call_id DESC) related \
             JOIN tool_calls c USING (tool_call_id) ORDER BY c.updated_at, c.tool_call_id"
        )
    };
}

/// Calls of the family with the same scope that may have happened.
macro_rules! rivals {
    () => {
        "root_run_id = $1 AND side_effect_scope = $6 AND deduplicated_from IS NULL AND (doubt IS NOT NULL \
         OR status IN ('running', 'unknown', 'succeeded') \
         OR (failure_kind = 'reported' AND possible_effect IS DISTINCT FROM 'none'))"
    };
}
/// Calls of the family and of the same tool, or in the same words for a tool of the same own name, with another scope or none, of which an attempt is
/// in doubt.
macro_rules! doubts {
    () => {
        "(status = 'unknown' OR doubt IS NOT NULL) AND root_run_id = $1 \
         AND (raw_tool_name = $4 OR (tool_name = $11 AND normalized_args_hash = $5)) \
         AND ($6 IS NULL OR side_effect_scope IS DISTINCT FROM $6)"
    };
}
const RIVALS: &str = newest_of!(rivals!());
const DOUBTS: &str = newest_of!(doubts!());
/// Refuses a write that was computed as if nothing were related to a call, in a family of one run and outside of the gateway.
const IS_ALONE: &str = concat!(
    "SELECT 1 / (CASE WHEN EXISTS (SELECT FROM tool_calls WHERE ",
    rivals!(),
    " AND attempt > 0 AND tool_call_id <> $2) OR EXISTS (SELECT FROM tool_calls WHERE ",
    doubts!(),
    " AND attempt > 0 AND tool_call_id <> $2) OR EXISTS (SELECT FROM runs WHERE root_run_id = $1 AND run_id <> $3) \
     OR EXISTS (SELECT FROM gateway_sessions WHERE run_id = $3) THEN 0 ELSE 1 END)"
);
/// Calls of a run of another tree, from behind a turn on, of the same tool, in the same words for a tool of the same own name, or with the same
/// scope, that may have happened.
const KIN: &str = newest_of!(
    "run_id = $1 AND turn > $12 AND side_effect_class <> 'read_only' \
     AND (raw_tool_name = $4 OR (tool_name = $11 AND normalized_args_hash = $5) OR side_effect_scope = $6) \
     AND deduplicated_from IS NULL AND (doubt IS NOT NULL OR status IN ('running', 'unknown', 'succeeded') \
     OR (failure_kind = 'reported' AND possible_effect IS DISTINCT FROM 'none'))"
);

/// These queries, each with the index that finds its rows; for the test that asks the server.
#[doc(hidden)]
pub const RELATED: [(&str, &str); 3] =
    [(RIVALS, "idx_tool_calls_scope"), (DOUBTS, "idx_tool_calls_doubts"), (KIN, "idx_tool_calls_run_step")];

impl Db {
    /// What a call might repeat whose effect is `scope`.
    pub(crate) fn relations(&self, call: &CallRecord, scope: Option<&Scope>) -> DbResult<Relations> {
        let root = call.root_run_id.as_str();
        if self.is_computed() {
            if !self.known(|rows| Some(rows.was_alone)).unwrap_or(false) {
                return Err(DbError::NotKnown);
            }
            self.execute(IS_ALONE, about(call, scope, root));
            return Ok(Relations::default());
        }
        let mut asked = vec![
            ("tool_calls", DOUBTS, about(call, scope, root)),
            ("runs", FAMILY, params![root].to_vec()),
            ("gateway_sessions", PROJECT, params![call.run_id.as_str()].to_vec()),
        ];
        asked.extend(scope.map(|_| ("tool_calls", RIVALS, about(call, scope, root))));
        self.look_ahead(asked)?;
        let mut relations = Relations::default();
        if scope.is_some() {
            for other in self.related(RIVALS, call, scope, root, None)? {
                relations.add(call, scope, &other);
            }
        }
        for other in self.related(DOUBTS, call, scope, root, None)? {
            relations.add(call, scope, &other);
        }
        let family = self.rows(FAMILY, params![root], run_record)?;
        if family.len() > 1 {
            let run = self.run(&call.run_id)?;
            for kin in rules::kin_of(&run, &family, |task| Ok::<_, DbError>(self.call(task)?.position.turn))? {
                for other in self.related(KIN, call, scope, kin.run_id.as_str(), Some(kin.behind))? {
                    relations.add_kin(call, scope, &other);
                }
            }
        }
        let is_session = self.project_of(&call.run_id)?.is_some();
        for other in self.open_in_project(call, scope)? {
            relations.add_open(call, scope, other);
        }
        let was_alone = family.len() == 1 && !is_session && relations == Relations::default();
        self.note_of(&call.run_id, |rows| rows.was_alone = was_alone);
        Ok(relations)
    }

    fn related(
        &self,
        sql: &str,
        call: &CallRecord,
        scope: Option<&Scope>,
        of: &str,
        behind: Option<u32>,
    ) -> DbResult<Vec<Related>> {
        let mut values = about(call, scope, of);
        values.extend(behind.map(|behind| behind.value()));
        self.rows(sql, values, related)
    }
}

/// What the queries look for.
fn about(call: &CallRecord, scope: Option<&Scope>, of: &str) -> Vec<Value> {
    params![
        of,
        call.call_id.as_str(),
        call.run_id.as_str(),
        call.name.raw,
        call.args_hash.to_hex(),
        scope.map(Scope::as_str),
        text(&call.created_at),
        call.position.turn,
        call.position.ordinal,
        call.policy.effect_kind.as_ref().map(EffectKind::as_str),
        call.name.tool,
    ]
    .to_vec()
}

fn related(row: &Row) -> DbResult<Related> {
    let count: i64 = row.try_get("count")?;
    Ok(Related { newest: call_record(row)?, count: u64::try_from(count).unwrap_or(1) })
}
