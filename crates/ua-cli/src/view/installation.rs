//! What commands write about tools, settings, models, trust, and the database: what is installed, not what runs.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;
use ua_core::Timestamp;

use super::Row;

/// A tool that is offered.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ToolRow {
    /// Its name, as the model sees it.
    pub(crate) name: String,
    /// Its server.
    pub(crate) server: String,
    /// In the server's words.
    pub(crate) description: String,
    /// Digest of its definition.
    pub(crate) digest: Value,
    /// What was decided about it.
    pub(crate) policy: Value,
}

/// A tool of a past run that no rule knew.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(crate) struct AuditRow {
    /// Its name, as the model saw it.
    pub(crate) name: String,
    /// Its server.
    pub(crate) server: String,
    /// The run that met it first.
    pub(crate) run_id: String,
    /// When.
    pub(crate) at: String,
    /// Its class then.
    pub(crate) class: String,
    /// Why.
    pub(crate) reason: String,
    /// Its class by the policies of now.
    pub(crate) class_now: String,
    /// Whether a policy, its name or its server says something about it now.
    pub(crate) is_known: bool,
    /// A rule to start from, for a policy file.
    pub(crate) suggestion: String,
}

/// What is known of the tools of a server that many people use.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct PackRow {
    /// Its name.
    pub(crate) name: &'static str,
    /// The day on which it was last compared with the server.
    pub(crate) version: String,
    /// What it is about.
    pub(crate) about: String,
    /// Where the server can be read.
    pub(crate) source: String,
    /// The packages, programs and addresses that it applies to: `npm:`, `pypi:`, `python:`, `oci:`, `program:`, `host:`.
    pub(crate) packages: Vec<String>,
    /// Names of servers in a configuration for which it may raise caution, whoever they are.
    pub(crate) servers: Vec<String>,
    /// How many rules it has.
    pub(crate) rules: usize,
    /// The file; with a name only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) text: Option<&'static str>,
}

/// A setting and where it comes from.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(crate) struct SettingRow {
    /// Its key in a configuration file.
    pub(crate) key: &'static str,
    /// The environment variable that also sets it.
    pub(crate) variable: &'static str,
    /// Its value; `set` for a secret that exists.
    pub(crate) value: Option<String>,
    /// flag, environment, the file with its line, or default.
    pub(crate) source: String,
    /// What it is for.
    pub(crate) about: &'static str,
}

/// A model that is known by name.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ModelRow {
    /// The provider, or its kind: `openai` stands for `openai-chat` too.
    pub(crate) provider: String,
    /// The name; one that ends in `*` is a pattern.
    pub(crate) name: String,
    /// The most tokens of a request and its reply together.
    pub(crate) context_tokens: Option<u64>,
    /// The most tokens of one reply.
    pub(crate) max_output_tokens: Option<u64>,
    /// Whether it is known to read images.
    pub(crate) images: bool,
    /// Whether it is known to write replies by a JSON Schema.
    pub(crate) structured: bool,
    /// What it was said to cost.
    pub(crate) price: Option<ModelPriceShown>,
    /// Who says so: `shipped` with this version, the `user`, or the `project` whose ua.toml names the file.
    pub(crate) source: String,
}

/// What a model was said to cost, for reading: nothing is charged by it.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ModelPriceShown {
    /// US dollars per million tokens of input.
    pub(crate) input: String,
    /// The same for output.
    pub(crate) output: String,
    /// The same for input that is read from a cache.
    pub(crate) cache_read: Option<String>,
    /// The same for input that is written to a cache.
    pub(crate) cache_write: Option<String>,
    /// The day of the price; null for one that the user wrote.
    pub(crate) as_of: Option<String>,
}

/// What a run with a model would work with.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ModelShown {
    /// The provider.
    pub(crate) provider: String,
    /// The model.
    pub(crate) model: String,
    /// Whether it is known by its name. What is known of its family may be there all the same.
    pub(crate) known: bool,
    /// Of one that is not known, the name of a known model that may have been meant.
    pub(crate) nearest: Option<String>,
    /// The most tokens of a request and its reply together.
    pub(crate) context_tokens: Option<u64>,
    /// The most tokens that the model writes in one reply.
    pub(crate) max_output_tokens: Option<u64>,
    /// Whether images in tool results are sent to it.
    pub(crate) images: bool,
    /// Whether a job's `output_schema` is part of its requests.
    pub(crate) structured: bool,
    /// The longest reply of a job that does not say.
    pub(crate) reply_tokens: u64,
    /// The most tokens of history of a job that does not say.
    pub(crate) history_tokens: u64,
    /// What it was said to cost.
    pub(crate) price: Option<ModelPriceShown>,
    /// Whether the user's price table has it, so that runs know their cost.
    pub(crate) charged: bool,
}

/// The configuration.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ConfigShown {
    /// The files that were read, the weakest first.
    pub(crate) files: Vec<PathBuf>,
    /// Every setting.
    pub(crate) settings: Vec<SettingRow>,
}

/// A tool server, a policy file of jobs or a folder of runs that is trusted.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct TrustRow {
    /// The configuration file it is named in, the policy file, or the folder.
    pub(crate) file: PathBuf,
    /// `server`, `policy` or `runs`. A folder of runs that `ua` made itself, or that was named by `--root`, is one, too.
    pub(crate) kind: &'static str,
    /// The server's name; else empty.
    pub(crate) server: String,
    /// `trusted`, `changed` since it was trusted (and asked about again), or `gone`.
    pub(crate) state: &'static str,
    /// Of one that changed: what changed.
    pub(crate) why: Option<String>,
    /// What it was when it was trusted: the SHA-256 over all that decides what it does; empty for a folder of runs.
    pub(crate) digest: String,
    /// When it was trusted.
    #[schemars(with = "String")]
    pub(crate) at: Timestamp,
    /// Who trusted it; null for a folder of runs, and where an earlier version noted it.
    pub(crate) by: Option<String>,
    /// Whether what it says of its tools may confirm what their names suggest.
    pub(crate) annotations: bool,
}

/// A login at a remote tool server. No token is shown.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct LoginRow {
    /// The server's name in the configuration when the login was made.
    pub(crate) server: String,
    /// The address that its token goes to.
    pub(crate) address: String,
    /// Where the person logged in.
    pub(crate) issuer: Option<String>,
    /// What this program is registered as there.
    pub(crate) client_id: String,
    /// What the login allows.
    pub(crate) scopes: Vec<String>,
    /// When the token in use ends, if the server said.
    #[schemars(with = "Option<String>")]
    pub(crate) until: Option<Timestamp>,
    /// Whether it is renewed automatically.
    pub(crate) renewable: bool,
    /// `keyring` or `file`.
    pub(crate) kept_in: &'static str,
    /// When it was made or renewed last.
    #[schemars(with = "String")]
    pub(crate) at: Timestamp,
}

/// A login that is forgotten.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct LoggedOut {
    /// The server's name.
    pub(crate) server: String,
    /// The addresses that have no login any longer.
    pub(crate) addresses: Vec<String>,
}

/// How something is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Level {
    /// As it should be.
    Ok,
    /// Worth knowing.
    Warn,
    /// A job would not start, or not be safe.
    Fail,
}

/// One thing that was looked at.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(crate) struct DoctorFinding {
    /// What was looked at.
    pub(crate) check: String,
    /// How it is.
    pub(crate) level: Level,
    /// In words.
    pub(crate) detail: String,
    /// What to do about it.
    pub(crate) fix: Option<String>,
}

/// The result of a check.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct DoctorReport {
    /// Whether nothing fails.
    pub(crate) ok: bool,
    /// What was looked at.
    pub(crate) findings: Vec<DoctorFinding>,
    /// The tools of the servers that were started.
    pub(crate) tools: Vec<ToolRow>,
    /// The configuration.
    pub(crate) settings: Vec<SettingRow>,
}

/// What `ua db migrate` did.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct DbMigrated {
    /// The database.
    pub(crate) path: PathBuf,
    /// Its schema now.
    pub(crate) schema: i64,
}

/// What `ua db copy` did.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct DbMoved {
    /// The database on the server.
    pub(crate) path: PathBuf,
    /// How many rows this command copied; 0 where an earlier one had copied all of them and was killed.
    pub(crate) rows: u64,
    /// What the file is called now.
    pub(crate) kept: PathBuf,
}

/// What `ua db copy --undo` did.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct DbTakenBack {
    /// The file that the database is in.
    pub(crate) path: PathBuf,
    /// Whether it was being moved.
    pub(crate) was_leaving: bool,
}

/// What `ua db backup` made.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct DbCopied {
    /// The copy.
    pub(crate) file: PathBuf,
    /// Its size.
    pub(crate) bytes: u64,
}

/// What `ua db restore` put in place.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct DbRestored {
    /// The database.
    pub(crate) path: PathBuf,
    /// Where what was there before is kept.
    pub(crate) kept: Option<PathBuf>,
    /// What was sent, or said about it by a person, after the copy was made; and with `word` `unaccounted` the runs that are held because nobody knows what they sent then.
    pub(crate) forgotten: Vec<Value>,
    /// The newest moment that the copy knows of.
    pub(crate) knows_until: Option<String>,
    /// Whether `effects.log` of the time after the copy is missing, so that nobody knows what was sent then.
    pub(crate) lacks_effects_log: bool,
    /// Schedules that are paused now, because the copy does not know whether they were changed, paused or removed after it was made.
    pub(crate) paused_schedules: Vec<String>,
    /// Schedules that were there and are not in the copy.
    pub(crate) lost_schedules: Vec<String>,
    /// Runs that were there, unfinished, and are not in the copy.
    pub(crate) lost_runs: Vec<String>,
}

/// What `ua db accept` accepted.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct DbAccepted {
    /// The run.
    pub(crate) run_id: String,
    /// The attempts, and people's decisions about them, that the database does not know.
    pub(crate) accepted: Vec<Value>,
}

/// How the database is.
#[derive(Debug, JsonSchema)]
#[expect(dead_code, reason = "it describes what `ua db check` writes")]
pub(crate) struct DbChecked {
    /// Where it is.
    path: String,
    /// Distinguishes it from every other database.
    db_uuid: String,
    /// Its schema.
    schema: i64,
    /// Of a file: the SQLite library that reads it.
    #[serde(skip_serializing_if = "Option::is_none")]
    sqlite_version: Option<String>,
    /// Of a file: how it is journaled.
    #[serde(skip_serializing_if = "Option::is_none")]
    journal_mode: Option<String>,
    /// On a server: the version of PostgreSQL.
    #[serde(skip_serializing_if = "Option::is_none")]
    server_version: Option<String>,
    /// On a server: the limits of the promise.
    #[serde(skip_serializing_if = "Option::is_none")]
    warnings: Option<Vec<String>>,
    /// Its size, without its log.
    bytes: u64,
    /// What is wrong with it.
    findings: Vec<String>,
    /// Of a file: lines of effects.log.
    #[serde(skip_serializing_if = "Option::is_none")]
    mirror_lines: Option<u64>,
    /// Of a file: those of another database, or cut ones.
    #[serde(skip_serializing_if = "Option::is_none")]
    mirror_foreign_lines: Option<u64>,
    /// Of a file: attempts, and people's decisions about them, that effects.log knows and the database does not; on a server, with `word` `failed_over`, the runs that are held because another server took over, or a copy was put back.
    #[serde(skip_serializing_if = "Option::is_none")]
    forgotten: Option<Vec<Row>>,
    /// Whether nothing is wrong.
    ok: bool,
    /// With --invariants: how many runs were checked.
    #[serde(skip_serializing_if = "Option::is_none")]
    checked_runs: Option<u64>,
    /// With --invariants: what does not hold: run_id, invariant, row, why.
    #[serde(skip_serializing_if = "Option::is_none")]
    violations: Option<Vec<Row>>,
    /// With --invariants: where the records may not say what happened, which is no damage: run_id, invariant, row, why, advice.
    #[serde(skip_serializing_if = "Option::is_none")]
    to_look_at: Option<Vec<Row>>,
}

/// What a prune deleted.
#[derive(Debug, JsonSchema)]
#[expect(dead_code, reason = "it describes what `ua db prune` writes")]
pub(crate) struct DbPruned {
    /// Whether nothing was done.
    dry_run: bool,
    /// What was not used since then is deleted.
    used_before: Option<String>,
    /// The most bytes that stay.
    max_bytes: Option<u64>,
    /// What went: blob_id, size_bytes.
    freed: Vec<Row>,
    /// Its bytes.
    freed_bytes: u64,
    /// How many stay.
    kept: u64,
    /// Their bytes.
    kept_bytes: u64,
    /// How many of those belong to runs that are not finished.
    live: u64,
    /// Their bytes.
    live_bytes: u64,
}

/// The definitions of tools that were compared with `mcp.lock`, or written to it (`ua tools lock`).
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ToolsLocked {
    /// The file.
    pub(crate) file: PathBuf,
    /// Whether it was written: with --check it is only compared.
    pub(crate) written: bool,
    /// What differed from it, a sentence each.
    pub(crate) changes: Vec<String>,
}
