//! What a call might repeat: of related calls that agree in all that matters, the newest and how many they are.
//!
//! Nothing but these rows is read whole, so that a decision in a run of ten thousand calls takes the rows that one in a run of ten takes. What
//! two calls have to agree in is all that `ua_store::Relations` asks of them; the conformance suite compares with the model.

use rusqlite::{Row, ToSql};
use ua_core::{EffectKind, Scope};
use ua_store::{CallRecord, Related, Relations, rules};

use crate::column::text;
use crate::db::Db;
use crate::error::DbError;
use crate::ledger_rows::call_record;
use crate::lineage_rows::FAMILY;
use crate::run_rows::run_record;

type DbResult<T> = Result<T, DbError>;

/// How many runs a family has, counted up to two.
const FAMILY_SIZE: &str = "SELECT count(*) FROM (SELECT 1 FROM runs WHERE root_run_id = ?1 LIMIT 2)";

/// The newest of each group of the calls that a condition finds, with the size of the group.
macro_rules! newest_of {
    ($found:literal) => {
        concat!(
            "SELECT c.*, related.count FROM (SELECT tool_call_id, count(*) AS count, \
             max(updated_at || (run_id = :run) || printf('%010d%010d', turn, ordinal) || tool_call_id) AS newest FROM tool_calls WHERE ",
            $found,
            " AND attempt > 0 AND tool_call_id <> :call GROUP BY \
             CASE WHEN status = 'unknown' OR doubt IS NOT NULL THEN 'in doubt' ELSE status END, \
             status = 'unknown' AND resolution IS 'skipped' AND replay_policy = 'continue', \
             raw_tool_name = :tool, CASE WHEN tool_name = :name THEN raw_tool_name END, normalized_args_hash = :words, side_effect_scope IS :scope, \
             side_effect_scope IS NULL OR instr(side_effect_scope, ' {\"arguments\":') > 0, \
             effect_kind IS :kind, side_effect_class, \
             created_at > :at, created_at = :at, run_id = :run AND (turn, ordinal) > (:turn, :ordinal)) related \
             JOIN tool_calls c USING (tool_call_id) ORDER BY related.newest"
        )
    };
}

/// Whether there is a call of the family with the same scope, or one in doubt of the same tool: most calls have neither, and what they might repeat
/// is asked for only of the others.
const ANY_WITH_SCOPE: &str =
    "SELECT 1 FROM tool_calls WHERE root_run_id = ?1 AND side_effect_scope = ?2 AND tool_call_id <> ?3 LIMIT 1";
const ANY_IN_DOUBT: &str = "SELECT 1 FROM tool_calls WHERE (status = 'unknown' OR doubt IS NOT NULL) AND root_run_id = ?1 \
     AND (raw_tool_name = ?2 OR (tool_name = ?4 AND normalized_args_hash = ?5)) AND tool_call_id <> ?3 LIMIT 1";

/// Calls of the family with the same scope that may have happened.
const RIVALS: &str = newest_of!(
    "root_run_id = :of AND side_effect_scope = :scope AND deduplicated_from IS NULL AND (doubt IS NOT NULL \
     OR status IN ('running', 'unknown', 'succeeded') OR (failure_kind = 'reported' AND possible_effect IS NOT 'none'))"
);
/// Calls of the family and of the same tool, or in the same words for a tool of the same own name, with another scope or none, of which an attempt is
/// in doubt.
const DOUBTS: &str = newest_of!(
    "(status = 'unknown' OR doubt IS NOT NULL) AND root_run_id = :of \
     AND (raw_tool_name = :tool OR (tool_name = :name AND normalized_args_hash = :words)) \
     AND (:scope IS NULL OR side_effect_scope IS NOT :scope)"
);
/// Calls of a run of another tree, from behind a turn on, of the same tool, in the same words for a tool of the same own name, or with the same
/// scope, that may have happened.
const KIN: &str = newest_of!(
    "run_id = :of AND turn > :behind AND side_effect_class <> 'read_only' \
     AND (raw_tool_name = :tool OR (tool_name = :name AND normalized_args_hash = :words) OR side_effect_scope = :scope) \
     AND deduplicated_from IS NULL AND (doubt IS NOT NULL \
     OR status IN ('running', 'unknown', 'succeeded') OR (failure_kind = 'reported' AND possible_effect IS NOT 'none'))"
);

impl Db<'_> {
    /// What a call might repeat whose effect is `scope`.
    pub(crate) fn relations(&self, call: &CallRecord, scope: Option<&Scope>) -> DbResult<Relations> {
        let mut relations = Relations::default();
        let root = call.root_run_id.as_str();
        let id = call.call_id.as_str();
        if let Some(of) = scope
            && self.connection.prepare_cached(ANY_WITH_SCOPE)?.exists([root, of.as_str(), id])?
        {
            for other in self.related(RIVALS, call, scope, root, None)? {
                relations.add(call, scope, &other);
            }
        }
        let words = call.args_hash.to_hex();
        let of_tool = [root, call.name.raw.as_str(), id, call.name.tool.as_str(), words.as_str()];
        if self.connection.prepare_cached(ANY_IN_DOUBT)?.exists(of_tool)? {
            for other in self.related(DOUBTS, call, scope, root, None)? {
                relations.add(call, scope, &other);
            }
        }
        // Most families are one run.
        if self.number(FAMILY_SIZE, [root])? > 1 {
            let family = self.rows(FAMILY, [root], run_record)?;
            let run = self.run(&call.run_id)?;
            for kin in rules::kin_of(&run, &family, |task| Ok::<_, DbError>(self.call(task)?.position.turn))? {
                for other in self.related(KIN, call, scope, kin.run_id.as_str(), Some(kin.behind))? {
                    relations.add_kin(call, scope, &other);
                }
            }
        }
        for other in self.open_in_project(call, scope)? {
            relations.add_open(call, scope, other);
        }
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
        let (words, at) = (call.args_hash.to_hex(), text(&call.created_at));
        let (id, run, scope) = (call.call_id.as_str(), call.run_id.as_str(), scope.map(Scope::as_str));
        let kind = call.policy.effect_kind.as_ref().map(EffectKind::as_str);
        let mut values: Vec<(&str, &dyn ToSql)> = vec![
            (":of", &of),
            (":call", &id),
            (":run", &run),
            (":tool", &call.name.raw),
            (":name", &call.name.tool),
            (":words", &words),
            (":scope", &scope),
            (":kind", &kind),
            (":at", &at),
            (":turn", &call.position.turn),
            (":ordinal", &call.position.ordinal),
        ];
        if let Some(behind) = &behind {
            values.push((":behind", behind));
        }
        self.rows(sql, values.as_slice(), related)
    }
}

fn related(row: &Row<'_>) -> DbResult<Related> {
    let count: i64 = row.get("count")?;
    Ok(Related { newest: call_record(row)?, count: u64::try_from(count).unwrap_or(1) })
}

#[cfg(test)]
mod tests {
    use ua_store::{NewRun, RunStore as _};

    use super::*;
    use crate::gateway_rows::{DOUBTS_BESIDE, PROJECT, RUNNING_BESIDE, SAME};
    use crate::ledger_rows::{CALL, EFFECTS_BEHIND, EVENTS_BACK, HOLDER, OTHER_EFFECTS, SCOPE_BEGINS};
    use crate::lineage_rows::FAMILY;
    use crate::{SqliteConfig, SqliteStore};

    /// What is read for a decision about a call, and again in the write that starts it, is found by an index: never by looking at all rows.
    #[tokio::test]
    async fn every_query_of_a_decision_uses_an_index() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("runtime_state.db");
        let store = SqliteStore::open(SqliteConfig::new(&path)).unwrap();
        let run: NewRun = ua_store::conformance::samples::new_run("run_1");
        store.submit_run(run).await.unwrap();
        let queries = [
            (CALL, "sqlite_autoindex_tool_calls"),
            (HOLDER, "idx_tool_calls_key"),
            (ANY_WITH_SCOPE, "idx_tool_calls_scope"),
            (ANY_IN_DOUBT, "idx_tool_calls_doubts"),
            (RIVALS, "idx_tool_calls_scope"),
            (DOUBTS, "idx_tool_calls_doubts"),
            (OTHER_EFFECTS, "idx_tool_calls_effect"),
            (SCOPE_BEGINS, "idx_tool_calls_scope"),
            (EFFECTS_BEHIND, "INTEGER PRIMARY KEY"),
            (EVENTS_BACK, "idx_tool_call_events_run"),
            (PROJECT, "PRIMARY KEY"),
            (DOUBTS_BESIDE, "idx_tool_calls_doubts"),
            (RUNNING_BESIDE, "idx_tool_calls_scope"),
            (SAME, "idx_gateway_arrivals_same"),
            (FAMILY, "idx_runs_root"),
            (FAMILY_SIZE, "idx_runs_root"),
            (KIN, "idx_tool_calls_position"),
            ("SELECT * FROM runs WHERE run_id = ?1", "sqlite_autoindex_runs"),
            ("SELECT batches, words FROM run_writes WHERE run_id = ?1", "PRIMARY KEY"),
            ("SELECT * FROM tool_attempts WHERE tool_call_id = ?1 AND attempt = ?2", "tool_attempts"),
            (
                "SELECT 1 FROM questions q WHERE q.tool_call_id = ?1 AND q.status <> 'closed'",
                "idx_questions_one_per_call",
            ),
        ];
        let connection = rusqlite::Connection::open(&path).unwrap();
        for (sql, index) in queries {
            let mut plan = connection.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
            let values = vec![rusqlite::types::Null; plan.parameter_count()];
            let steps = plan.query_map(rusqlite::params_from_iter(values), |row| row.get::<_, String>(3)).unwrap();
            let steps: Vec<String> = steps.map(Result::unwrap).collect();
            // What was found of the groups is gone through, and nothing else.
            let looks =
                |step: &&String| step.contains("SCAN") && !step.contains("(subquery") && *step != "SCAN related";
            assert!(!steps.iter().any(|step| looks(&step)), "{sql}: {steps:?}");
            assert!(steps.iter().any(|step| step.contains(index)), "{sql}: {steps:?}");
        }
    }
}
