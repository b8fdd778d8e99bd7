//! What a server is set to, and what that means for the promise.
//!
//! `synchronous_commit` is not asked for: each transaction sets its own, whatever the server, the database or the role has.

use std::collections::BTreeMap;

use crate::db::Db;
use crate::error::DbError;
use crate::schema;
use crate::value::params;

/// What a server says about itself.
#[derive(Debug, Default)]
pub(crate) struct Facts {
    /// Its settings, by name.
    settings: BTreeMap<String, String>,
    /// What `version()` says.
    version: String,
    /// It is a standby itself.
    is_standby: bool,
    /// Who follows its log to take over, with how it is waited for; `None` where this role may not see that.
    standbys: Vec<(Option<String>, Option<String>)>,
    /// Tables of ours that this role may not write.
    unwritable: Vec<String>,
    /// The role, as SQL writes it.
    role: String,
}

/// Settings that have to have this value, and what comes of another.
const NEEDED: [(&str, &str, &str); 4] = [
    ("fsync", "on", "a crash of the server damages the database"),
    ("full_page_writes", "on", "a power cut damages the database, unless its disk writes whole pages"),
    ("zero_damaged_pages", "off", "damaged data is read as if it were absent"),
    ("ignore_checksum_failure", "off", "damaged data is read as if it were intact"),
];

/// Services that speak PostgreSQL over a storage of their own, by how their settings begin.
const SERVICES: [(&str, &str); 4] =
    [("rds.", "Amazon RDS or Aurora"), ("alloydb.", "AlloyDB"), ("neon.", "Neon"), ("azure.", "Azure")];

/// Other databases that speak its protocol, by what `version()` says.
const OTHERS: [(&str, &str); 2] = [("CockroachDB", "CockroachDB"), ("-YB-", "YugabyteDB")];

impl Facts {
    /// Asks the server.
    pub(crate) fn of(db: &Db) -> Result<Self, DbError> {
        let pair = |row: &tokio_postgres::Row| Ok((row.try_get::<_, String>(0)?, row.try_get::<_, String>(1)?));
        let sql = "SELECT name::text, coalesce(setting, '')::text FROM pg_settings \
                   WHERE name IN ('fsync', 'full_page_writes', 'zero_damaged_pages', 'ignore_checksum_failure', \
                   'synchronous_standby_names') OR name ~ '^(rds|alloydb|neon|azure)[.]'";
        let settings = db.rows(sql, params![], pair)?.into_iter().collect();
        // Who decodes the log is no standby.
        let sql = "SELECT r.application_name::text, r.sync_state::text FROM pg_stat_replication r WHERE NOT EXISTS \
                   (SELECT FROM pg_replication_slots s WHERE s.active_pid = r.pid AND s.slot_type = 'logical') ORDER BY 1";
        let standbys = db.rows(sql, params![], |row| {
            Ok((row.try_get::<_, Option<String>>(0)?, row.try_get::<_, Option<String>>(1)?))
        })?;
        let sql = "SELECT c.relname::text FROM pg_class c WHERE c.relnamespace = 'ua'::regnamespace AND c.relkind = 'r' \
                   AND c.relname <> 'refinery_schema_history' \
                   AND NOT (has_table_privilege(c.oid, 'SELECT') AND has_table_privilege(c.oid, 'INSERT') \
                   AND has_table_privilege(c.oid, 'UPDATE') AND has_table_privilege(c.oid, 'DELETE')) ORDER BY 1";
        let unwritable = db.rows(sql, params![], |row| Ok(row.try_get::<_, String>(0)?))?;
        let sql = "SELECT version(), quote_ident(current_user), pg_is_in_recovery()";
        let about = db.row(sql, params![], |row| {
            Ok((row.try_get::<_, String>(0)?, row.try_get::<_, String>(1)?, row.try_get::<_, bool>(2)?))
        })?;
        let (version, role, is_standby) = about.unwrap_or_default();
        Ok(Self { settings, version, is_standby, standbys, unwritable, role })
    }

    fn setting(&self, name: &str) -> &str {
        self.settings.get(name).map_or("", String::as_str)
    }

    /// What is wrong: the promise is not kept.
    pub(crate) fn findings(&self) -> Vec<String> {
        let mut findings = Vec::new();
        for (other, name) in OTHERS {
            if self.version.contains(other) {
                findings.push(format!(
                    "the server is {name}, which speaks PostgreSQL's protocol but locks differently; it is not supported"
                ));
            }
        }
        for (name, needed, why) in NEEDED {
            let value = self.setting(name);
            if value != needed {
                findings.push(format!("the server runs with {name} = {value}: {why}"));
            }
        }
        if self.is_standby {
            findings.push(
                "the server is a standby, which takes no writes; name the primary in the database URL".to_owned(),
            );
        }
        if !self.unwritable.is_empty() {
            let (role, tables) = (&self.role, self.unwritable.join(", "));
            findings.push(format!(
                "the role {role} may not read and write {tables} of the schema ua; as the owner of the schema: {}",
                schema::grants(role)
            ));
        }
        findings
    }

    /// Where the promise ends.
    pub(crate) fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        let is_waited_for = |state: &str| matches!(state, "sync" | "quorum");
        let (seen, hidden): (Vec<_>, Vec<_>) = self.standbys.iter().partition(|(_, state)| state.is_some());
        let waited = seen.iter().filter(|(_, state)| state.as_deref().is_some_and(is_waited_for)).count();
        let others: Vec<&str> = seen
            .iter()
            .filter(|(_, state)| !state.as_deref().is_some_and(is_waited_for))
            .map(|(name, _)| name.as_deref().unwrap_or("one without a name"))
            .collect();
        let names = self.setting("synchronous_standby_names");
        if !hidden.is_empty() {
            warnings.push(format!(
                "there are standbys, and the role {} cannot see whether commits wait for them; `GRANT pg_monitor TO {0}` lets it",
                self.role
            ));
        }
        if names.is_empty() && !seen.is_empty() {
            warnings.push(
                "there are standbys, and commits wait for none of them (synchronous_standby_names): a failover may lose the record of what was \
                 sent"
                    .to_owned(),
            );
        } else if !others.is_empty() {
            warnings.push(format!(
                "commits do not wait for these standbys: {}; a failover to one of them may lose the record of what was sent",
                others.join(", ")
            ));
        }
        if !names.is_empty() && waited == 0 && hidden.is_empty() {
            warnings.push(format!(
                "no standby of synchronous_standby_names ({names}) is connected: writes wait until one is, and runs with them"
            ));
        }
        for (begin, name) in SERVICES {
            if self.settings.keys().any(|setting| setting.starts_with(begin)) {
                warnings.push(format!(
                    "the server is a managed service ({name}): ua cannot check what its storage and its failover keep; ask its operator whether \
                     a failover keeps every acknowledged commit"
                ));
            }
        }
        warnings
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn healthy() -> Facts {
        let settings = NEEDED.map(|(name, value, _)| (name.to_owned(), value.to_owned())).into();
        Facts { settings, version: "PostgreSQL 17.2".to_owned(), role: "ua".to_owned(), ..Facts::default() }
    }

    fn set(mut facts: Facts, name: &str, value: &str) -> Facts {
        facts.settings.insert(name.to_owned(), value.to_owned());
        facts
    }

    fn with_standbys(names: &str, states: &[Option<&str>]) -> Facts {
        let standbys = states.iter().map(|state| (Some("s".to_owned()), state.map(str::to_owned))).collect();
        set(Facts { standbys, ..healthy() }, "synchronous_standby_names", names)
    }

    #[test]
    fn a_server_that_keeps_the_promise_is_not_complained_about() {
        for facts in [healthy(), with_standbys("ANY 1 (s)", &[Some("quorum")]), with_standbys("s", &[Some("sync")])] {
            assert_eq!((facts.findings(), facts.warnings()), (Vec::new(), Vec::new()));
        }
    }

    #[test]
    fn each_thing_that_breaks_the_promise_is_named() {
        let table = [
            (set(healthy(), "fsync", "off"), "fsync = off"),
            (set(healthy(), "full_page_writes", "off"), "full_page_writes = off"),
            (set(healthy(), "zero_damaged_pages", "on"), "zero_damaged_pages = on"),
            (set(healthy(), "ignore_checksum_failure", "on"), "ignore_checksum_failure = on"),
            (Facts { is_standby: true, ..healthy() }, "is a standby"),
            (Facts { version: "CockroachDB CCL v24".to_owned(), ..healthy() }, "the server is CockroachDB"),
            (Facts { version: "PostgreSQL 15.2-YB-2024".to_owned(), ..healthy() }, "the server is YugabyteDB"),
            (
                Facts { unwritable: vec!["runs".to_owned()], ..healthy() },
                "of the schema ua; as the owner of the schema: GRANT USAGE ON SCHEMA ua TO ua; GRANT SELECT, INSERT",
            ),
        ];
        for (facts, wanted) in table {
            let findings = facts.findings();
            assert!(findings.len() == 1 && findings[0].contains(wanted), "{wanted}: {findings:?}");
        }
    }

    #[test]
    fn each_place_where_the_promise_ends_is_named() {
        let table = [
            (with_standbys("", &[Some("async")]), "commits wait for none of them"),
            (with_standbys("ANY 1 (s)", &[Some("quorum"), Some("async")]), "commits do not wait for these standbys: s"),
            (with_standbys("ANY 1 (s)", &[]), "writes wait until one is"),
            (with_standbys("ANY 1 (s)", &[None]), "GRANT pg_monitor TO ua"),
            (set(healthy(), "rds.extensions", "x"), "Amazon RDS or Aurora"),
            (set(healthy(), "neon.timeline_id", "x"), "Neon"),
        ];
        for (facts, wanted) in table {
            let warnings = facts.warnings();
            assert!(warnings.len() == 1 && warnings[0].contains(wanted), "{wanted}: {warnings:?}");
        }
    }
}
