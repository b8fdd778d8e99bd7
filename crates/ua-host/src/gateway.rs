//! The gateway of a user: where it is, what an entry of a client becomes, and its broker as a process.
//!
//! It has a folder of its own, the same wherever a client works, so that a person finds all its questions in one place.

mod agent;
mod alerting;
mod config;
mod environment;
mod fault;
mod install;
mod lately;
mod left;
mod look;
mod read;

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::ffi::OsString;
use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use ua_bridge::{Claim, Claims, Options};
use ua_broker::{
    Broker, BrokerConfig, BrokerLock, Entries, HttpSettings, KeptSessions, Tokens, ask_broker, hook_broker,
};
use ua_classify::Classifier;
use ua_core::{Env, PrintedCommand, ShowPath as _, Timestamp};
use ua_files::Folder;
use ua_mcp::ShimCommand;
use ua_resume::Commands;
use ua_store::{QuestionRecord, RunRecord, StoreError};

use crate::database::Database;
use crate::error::{HostError, Kind};
use crate::home::Home;
use crate::host::Host;
use crate::policies;
use crate::questions;
use crate::roots::state_folder;
use crate::settings::Settings;
use crate::text::foreign;

pub use alerting::alerts_fault;
pub use config::{FILE as CONFIG_FILE, GatewayConfig};
pub use fault::{Fault, last_fault, trouble, unmatched};
pub use install::{Change, Edited, Front, What, guard, install, unguard, uninstall};
pub use lately::{CallsLately, calls_beside};
pub use left::{Left, left, left_beside};
pub use look::{Looked, Moved, impatient, look, moved};
pub use read::{READ_AGAIN, changed_since};
pub use ua_broker::Served;

pub use agent::{approvers, only_people, only_people_may};
pub(crate) use environment::with_database;

/// The key with which accounts are told apart, in the gateway's folder.
const ACCOUNT_KEY: &str = "account.key";

/// Where sessions of clients over HTTP are kept, in the gateway's folder.
const HTTP_SESSIONS: &str = "http_sessions";

/// The broker's socket, in its folder.
const SOCKET: &str = "gateway.sock";
/// Where a broker that a client started says what it does, in that folder.
const LOG: &str = "gateway.log";
/// What the gateway keeps in its folder, which may be the root of jobs as well.
pub(crate) const FILES: [&str; 14] = [
    ACCOUNT_KEY,
    agent::APPROVERS,
    HTTP_SESSIONS,
    SOCKET,
    LOG,
    CALL_LOGS,
    CONFIG_FILE,
    config::SERVERS,
    config::TOKENS,
    environment::NOTE,
    fault::FILE,
    install::RECORDS,
    "gateway.starting",
    "installed.lock",
];
/// The folder with what tool servers said.
const CALL_LOGS: &str = "logs";
/// How often it is looked whether a broker that was started listens.
const POLL: Duration = Duration::from_millis(10);
/// How long after one that found another before it the next one is started.
const AGAIN: Duration = Duration::from_millis(200);
/// How long that may take.
const START: Duration = Duration::from_secs(30);
/// How long after it was given up a request may still be begun at a tool server over HTTP.
const HORIZON: Duration = Duration::from_secs(30);
/// How long a broker that is to end may take.
const DRAIN: Duration = Duration::from_mins(1);
/// With what a broker ends that cannot use its database.
const STORAGE: i32 = 74;
/// The longest that log gets, in bytes; then it begins anew. A tool server has the broker say something as often as it likes.
const MOST_OF_LOG: u64 = 4 * 1024 * 1024;
/// How often it is looked at.
const LOOK_AT_LOG: Duration = Duration::from_millis(500);
/// As much of what a broker says before it ends is told to whoever started it.
const MOST_SAID: u64 = 4_000;
/// The program that a bridge is, beside `ua`: smaller, and up sooner.
const BRIDGE: &str = "ua-bridge";

/// How long a request waits for a person, and the broker for a client.
#[derive(Debug, Clone, Copy)]
pub struct Waits {
    /// A request, where its client waits as long.
    pub hold: Duration,
    /// The broker.
    pub idle: Duration,
}

impl Default for Waits {
    fn default() -> Self {
        Self { hold: Duration::from_mins(10), idle: Duration::from_mins(15) }
    }
}

/// What an entry of a client becomes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The bridge's own program, if it is there.
    pub program: Option<PathBuf>,
    /// Its arguments.
    pub args: Vec<OsString>,
}

/// Why a session of the gateway is not gone on with from here.
pub(crate) fn refused(run: &RunRecord) -> HostError {
    HostError::usage(format!("run {} is a session of a client at the gateway", run.run_id))
        .hint("the client decides when: the same call, made again, returns its outcome")
}

/// The gateway's folder: the one that is named, else the user's own.
///
/// # Errors
/// Nobody says where the user's state is.
pub fn root(settings: &Settings, named: Option<&Path>) -> Result<PathBuf, HostError> {
    match named {
        Some(named) => settings.absolute(named),
        None => state_folder(settings).map(|state| state.join("gateway")).ok_or_else(|| {
            HostError::usage("the gateway has no folder for its records").hint("set HOME, or name a folder with --root")
        }),
    }
}

/// What the arguments behind `ua gateway` mean for the bridge: `[--root DIR] [--name N] [--env V]… [--project P] -- COMMAND ARG…`, or
/// `--url URL [--header LINE]… [--header-from NAME=VARIABLE]…` in the place of the command.
///
/// # Errors
/// Nobody says where the user's state is, or an option has no value.
pub fn entry(settings: &Settings, args: impl IntoIterator<Item = OsString>) -> Result<Entry, HostError> {
    let args: Vec<OsString> = args.into_iter().collect();
    let Options { options, command } = Options::of(&args);
    let (mut named, mut passed) = (None, Vec::new());
    for (option, value) in options {
        if option == "--root" {
            named = Some(PathBuf::from(value.ok_or_else(|| HostError::usage("`--root` needs a value"))?));
        } else {
            passed.extend(std::iter::once(option).chain(value).cloned());
        }
    }
    passed.extend(command.iter().flat_map(|command| std::iter::once("--".into()).chain(command.iter().cloned())));
    let root = root(settings, named.as_deref())?;
    let program = settings.program()?;
    let beside = program.with_file_name(BRIDGE);
    let mut all: Vec<OsString> = vec!["--socket".into(), root.join(SOCKET).into()];
    let start = called_program(settings)?;
    for word in
        [start.into_os_string(), "--root".into(), root.into(), "gateway".into(), "start".into(), "--for-client".into()]
    {
        all.extend(["--start".into(), word]);
    }
    all.extend(passed);
    Ok(Entry { program: beside.is_file().then_some(beside), args: all })
}

/// Where `ua` is found, for a configuration that is read long after: the path by which it is reached through the `PATH`, if that leads to this
/// program. Where packages keep each version in a folder of its own, that one is a link which stays, and the program's own path is gone with
/// the next version.
///
/// # Errors
/// The program's own file cannot be found.
pub fn stable_program(settings: &Settings) -> Result<PathBuf, HostError> {
    let own = settings.program()?;
    let (Ok(real), Some(name)) = (std::fs::canonicalize(&own), own.file_name()) else { return Ok(own) };
    let path = settings.of_environment("PATH").unwrap_or_default();
    let mut places = std::env::split_paths(&path).filter(|place| place.is_absolute()).map(|place| place.join(name));
    Ok(places.find(|place| std::fs::canonicalize(place).is_ok_and(|found| found == real)).unwrap_or(own))
}

/// The path by which this program was called, if it is one and leads here; else the stable one. A bridge starts the next broker by it, also when
/// an upgrade has removed the version that the bridge is.
fn called_program(settings: &Settings) -> Result<PathBuf, HostError> {
    let own = std::fs::canonicalize(settings.program()?).ok();
    let called = std::env::args_os().next().map(PathBuf::from).filter(|called| called.is_absolute());
    match called.filter(|called| own.is_some() && std::fs::canonicalize(called).ok() == own) {
        Some(called) => Ok(called),
        None => stable_program(settings),
    }
}

/// A client whose configuration is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Client {
    /// Claude Code.
    ClaudeCode,
    /// Cursor.
    Cursor,
    /// Visual Studio Code.
    VsCode,
    /// Codex.
    Codex,
    /// goose.
    Goose,
}

impl Client {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::ClaudeCode, Self::Cursor, Self::VsCode, Self::Codex, Self::Goose];
}

/// Where a client keeps the tool servers that a user has everywhere.
///
/// # Errors
/// Nobody says where the user's home is.
pub fn configuration(settings: &Settings, client: Client) -> Result<PathBuf, HostError> {
    let home = home(settings)?;
    let or = |name: &str, usual: &str| named_or(settings, name, || home.join(usual));
    Ok(match client {
        Client::ClaudeCode => home.join(".claude.json"),
        Client::Cursor => home.join(".cursor/mcp.json"),
        Client::VsCode => or("XDG_CONFIG_HOME", ".config").join("Code/User/mcp.json"),
        Client::Codex => or("CODEX_HOME", ".codex").join("config.toml"),
        Client::Goose => or("XDG_CONFIG_HOME", ".config").join("goose/config.yaml"),
    })
}

/// Where a client has rules about commands that keep its agent from going around the gateway; `None` of one that has none which can be written.
///
/// # Errors
/// Nobody says where the user's home is.
pub fn rules_of(settings: &Settings, client: Client) -> Result<Option<PathBuf>, HostError> {
    let home = home(settings)?;
    let or = |name: &str, usual: &str| named_or(settings, name, || home.join(usual));
    Ok(match client {
        Client::ClaudeCode => Some(or("CLAUDE_CONFIG_DIR", ".claude").join("settings.json")),
        Client::Codex => Some(or("CODEX_HOME", ".codex").join("rules/ua-gateway.rules")),
        Client::Cursor | Client::VsCode | Client::Goose => None,
    })
}

fn home(settings: &Settings) -> Result<PathBuf, HostError> {
    let home = settings.of_environment("HOME").map(PathBuf::from);
    home.ok_or_else(|| HostError::usage("HOME is not set").hint("name the configuration with --file"))
}

/// The folder that a variable names, else the usual one. A path that begins at the current folder is a checkout's to fill.
fn named_or(settings: &Settings, name: &str, usual: impl FnOnce() -> PathBuf) -> PathBuf {
    let named = settings.of_environment(name).map(PathBuf::from);
    named.filter(|folder| folder.is_absolute()).unwrap_or_else(usual)
}

/// What a broker is made from by what its user says: the gateway's file, and what that refers to.
struct Said {
    config: GatewayConfig,
    classifier: Classifier,
    entries: Entries,
}

impl Said {
    /// Reads all of it, so that whoever starts a broker, and `ua doctor`, refuse what the broker would.
    fn read(host: &Host, root: &Path) -> Result<Self, HostError> {
        let config = GatewayConfig::read(root)?;
        let classifier = policies::classifier_of_user(host.settings(), &config.policies, None, None)?;
        for (place, budget) in config.rules.budgets.iter().enumerate() {
            let Some(effect) = &budget.effect else { continue };
            if let Err(nearest) = classifier.can_be_effect(effect) {
                let nearest = nearest.map_or_else(String::new, |nearest| format!("; did you mean `{nearest}`?"));
                let file = root.join(config::FILE);
                return Err(HostError::usage(format!(
                    "{}: `budget[{}].effect` is \"{effect}\", which no tool can have{nearest}",
                    file.shown(),
                    place + 1
                ))
                .hint("a policy rule declares the effect of a tool (`effect_kind`); see docs/guide/policies.md"));
            }
        }
        let entries = config.entries(host, root)?;
        Ok(Self { config, classifier, entries })
    }
}

/// Who serves now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Started {
    /// One that was started for this.
    Now,
    /// One that served already.
    Before,
}

/// Who has a broker started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Starter {
    /// A person, whose folders and programs the broker has from now on, whoever starts the next one.
    Person,
    /// A client, or its hook: what is in its environment is its own.
    Client,
}

/// Starts a broker, unless one listens, and returns when one does. One that ends is waited for: it has the calls that are under way.
///
/// # Errors
/// None came up.
pub async fn start(host: &Host, named: Option<&Path>, by: Starter) -> Result<Started, HostError> {
    let root = root(host.settings(), named)?;
    let socket = root.join(SOCKET);
    if by == Starter::Person && root.is_dir() {
        environment::note(host.settings(), &root);
    }
    if stands(&socket).await? == Stands::Listens {
        return Ok(Started::Before);
    }
    let config = match by {
        // What the broker would refuse is said here, to whoever asks for it, and not only in its log.
        Starter::Person => Said::read(host, &root)?.config,
        // By these settings the broker would read other files.
        Starter::Client => GatewayConfig::read(&root)?,
    };
    environment::is_of_its_database(host.settings(), &root, &config)?;
    Folder::make(&root).map_err(|error| cannot_use(&root, named, &error))?;
    if by == Starter::Person {
        environment::note(host.settings(), &root);
    }
    let environment = environment::of_broker(host.settings(), &root, &config);
    let mut claims = Claims::beside(&socket);
    // Kept until one listens, or it is said why none does.
    let mut claim = None;
    let mut broker = None;
    let begun = host.env().now();
    let mut ends = begun.plus(START);
    while host.env().now() < ends {
        match (stands(&socket).await?, &mut broker) {
            (Stands::Listens, _) => return Ok(Started::Now),
            // It has the lock until the calls that it has under way are over; there is no use in starting one before.
            (Stands::Ends, _) => ends = host.env().now().plus(START),
            // Of many that want one at once, as bridges do whose broker was killed, one starts it, and looks before whether another one did.
            (Stands::Nowhere, None) if claim.is_none() => {
                claim = claims.take();
                if claim.is_some() {
                    continue;
                }
            }
            (Stands::Nowhere, None) => {
                claim.iter().for_each(Claim::begins);
                broker = Some(spawn(host, &root, &environment)?);
            }
            (Stands::Nowhere, Some((child, from))) => match child.try_wait() {
                // Another one has the lock: it is about to listen, or ends just now, and then the next one is started.
                Ok(Some(status)) if status.success() => {
                    broker = None;
                    host.env().clock.sleep(AGAIN).await;
                }
                Ok(Some(status)) => {
                    let error = ended_at_once(host, &root, begun, *from, status).await;
                    if let Some(claim) = &claim {
                        claim.failed(error.message());
                    }
                    return Err(error);
                }
                Ok(None) | Err(_) => {}
            },
        }
        host.env().clock.sleep(POLL).await;
    }
    let late = HostError::failed(format!("the gateway's broker did not start within {} seconds", START.as_secs()));
    if let Some(claim) = &claim {
        claim.failed(late.message());
    }
    let log = root.join(LOG);
    Err(late.hint(format!("{} has all that it said", log.shown())))
}

/// That the gateway's folder cannot be made or written to, and where another one is named.
fn cannot_use(root: &Path, named: Option<&Path>, error: &std::io::Error) -> HostError {
    let why = HostError::storage(format!("cannot write to the gateway's folder {}: {error}", root.shown()));
    let allow = crate::owner::allow(root, "u+rwx");
    why.hint(if named.is_some() {
        format!("{allow}, or name another folder with --root")
    } else {
        format!("{allow}, set XDG_STATE_HOME or HOME to a folder where it may write, or name one with --root")
    })
    .not_begun()
}

/// Why a broker that was started ended at once, in its own last words: whoever waits for it reads no log.
async fn ended_at_once(host: &Host, root: &Path, since: Timestamp, from: u64, status: ExitStatus) -> HostError {
    let log = root.join(LOG);
    if let Some(fault) = fault::last_words(root).filter(|fault| fault.at >= since) {
        let kind = if status.code() == Some(STORAGE) { Kind::Storage } else { Kind::Failed };
        let error = HostError::new(kind, format!("the gateway's broker cannot start: {}", fault.message));
        return fault.hint.iter().fold(error, |error, hint| error.hint(hint.as_str()));
    }
    let why = match last_words(&log, from) {
        Some(said) => format!("the gateway's broker cannot start: {said}"),
        // On a full disk not even that is written.
        None => match trouble(host, root).await {
            Some(trouble) => return trouble,
            None => format!("the gateway's broker ended at once ({status})"),
        },
    };
    let kind = if status.code() == Some(STORAGE) { Kind::Storage } else { Kind::Failed };
    HostError::new(kind, why).hint(format!("{} has all that it said", log.shown()))
}

/// What stands in a log from a place on; `None` when that is nothing.
fn last_words(log: &Path, from: u64) -> Option<String> {
    let mut file = Folder::open(log.parent()?).ok()?.open_file(log.file_name()?).ok()?;
    file.seek(SeekFrom::Start(from)).ok()?;
    let mut said = Vec::new();
    file.take(MOST_SAID).read_to_end(&mut said).ok()?;
    let said = String::from_utf8_lossy(&said);
    let lines: Vec<&str> = said.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    (!lines.is_empty()).then(|| lines.join("; "))
}

/// Starts a broker as a process of its own. With it, where in the log it begins to speak.
fn spawn(host: &Host, root: &Path, environment: &BTreeMap<String, String>) -> Result<(Child, u64), HostError> {
    let log = Folder::open(root).and_then(|root| root.append(LOG));
    let log = log.map_err(|error| cannot_use(root, Some(root), &error))?;
    let from = log.metadata().map_or(0, |log| log.len());
    let mut serve = Command::new(host.settings().program()?);
    serve.arg("--root").arg(root).args(["gateway", "serve"]).current_dir(root);
    serve
        .env_clear()
        .envs(environment)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log)
        .spawn()
        .map(|broker| (broker, from))
        .map_err(|error| HostError::failed(format!("cannot start the gateway's broker: {error}")))
}

/// What is wrong with `gateway.toml`, or with what that names, as it would be read now. A broker that runs keeps what it read when it started.
///
/// # Errors
/// That.
pub fn check(host: &Host, named: Option<&Path>) -> Result<(), HostError> {
    Said::read(host, &root(host.settings(), named)?).map(drop)
}

/// Notes where the user's files and programs are, by the environment of this command, which a person gave.
///
/// # Errors
/// Nobody says where the gateway is.
pub fn note_places(host: &Host, named: Option<&Path>) -> Result<(), HostError> {
    environment::note(host.settings(), &root(host.settings(), named)?);
    Ok(())
}

/// The variables of this environment that would say something to a broker and that none is given, since each client has others; and the file whose
/// `[env]` says what a broker is given.
///
/// # Errors
/// What is wrong with `gateway.toml`.
pub fn withheld(host: &Host, named: Option<&Path>) -> Result<(Vec<String>, PathBuf), HostError> {
    let root = root(host.settings(), named)?;
    let config = GatewayConfig::read(&root)?;
    Ok((environment::withheld(host.settings(), &config), root.join(CONFIG_FILE)))
}

/// Whether the broker, as it would be started now, has an address for clients over HTTP.
///
/// # Errors
/// What is wrong with `gateway.toml`.
pub fn listens_over_http(host: &Host, named: Option<&Path>) -> Result<bool, HostError> {
    Ok(Said::read(host, &root(host.settings(), named)?)?.config.listen.is_some())
}

/// Serves as the broker, until nobody needs it.
///
/// # Errors
/// The folder, the database or the policies cannot be used.
pub async fn serve(host: &Host, named: Option<&Path>, waits: Waits) -> Result<Served, HostError> {
    let root = root(host.settings(), named)?;
    let home = Home::new(host.settings(), Some(&root), host.known_secrets())?;
    let lock = BrokerLock::take(&home.locks());
    let lock = lock.map_err(|error| HostError::storage(format!("cannot lock the gateway: {error}")))?;
    let Some(lock) = lock else { return Ok(Served::Another) };
    let served = serve_alone(host, &root, &home, lock, waits).await;
    if let Err(error) = &served {
        fault::note(&root, &home.locks(), host.env().now(), error);
    }
    served
}

/// Serves as the one broker of this folder.
async fn serve_alone(
    host: &Host,
    root: &Path,
    home: &Home,
    lock: BrokerLock,
    waits: Waits,
) -> Result<Served, HostError> {
    // Before they are read: what is written meanwhile is told as changed, and not missed.
    let made_from = read::files(host, root);
    let Said { config: said, classifier, entries } = Said::read(host, root)?;
    let store = home.open()?;
    is_free_of_others(&store).await?;
    fault::forget(root);
    let config = BrokerConfig {
        socket: root.join(SOCKET),
        locks: home.locks(),
        logs: root.join(CALL_LOGS),
        late_replies: home.late_replies(),
        account_key: root.join(ACCOUNT_KEY),
        shim: ShimCommand { program: host.settings().program()?, args: vec!["__shim".into()] },
        person: PrintedCommand::of("ua").option("--root", root).to_string(),
        hold_wait: said.hold_wait.unwrap_or(waits.hold),
        rules: said.rules,
        http: said.listen.map(|address| HttpSettings {
            address,
            tokens: tokens(root),
            sessions: KeptSessions::at(root.join(HTTP_SESSIONS)),
            away_after: HttpSettings::AWAY_AFTER,
            again_within: HttpSettings::AGAIN_WITHIN,
        }),
        entries,
        remote_horizon: HORIZON,
        idle_exit: said.idle_exit.unwrap_or(waits.idle),
        logins: Some(host.logins()),
        made_from,
    };
    let store = Arc::new(store);
    let broker = Broker::new(config, store.clone(), Arc::new(classifier), host.redactor().clone(), home.env());
    let told = broker.clone();
    tokio::select! {
        served = ua_broker::serve(broker, lock) => served.map_err(|error| {
            // By the code with which this ends a bridge knows how soon its client is told.
            HostError::new(if error.is_of_store() { Kind::Storage } else { Kind::Failed }, error.to_string())
        }),
        never = keep_log_short(root, host.env()) => match never {},
        never = alerting::tell_of_questions(host, home, &store, &told) => match never {},
    }
}

/// Refuses a database that the gateway of another root has: which requests are the same call is told apart by one broker alone, so two would send
/// it twice.
async fn is_free_of_others(store: &Database) -> Result<(), HostError> {
    let failed = |error: StoreError| HostError::store("look whose gateway has the database", &error);
    let Some(other) = store.gateway_elsewhere().await.map_err(failed)? else { return Ok(()) };
    let why = format!(
        "the database has the gateway of {}, and a second one beside it could send a call twice",
        foreign(&other.shown)
    );
    Err(HostError::storage(why).hint(format!(
        "start this one with a database of its own (UA_DATABASE_URL under [env] of its gateway.toml, or none for a file in its folder), or use that one; if that one is gone for \
         good, {}",
        other.forget()
    )))
}

/// Keeps the log of this broker within its bound for as long as it is waited for. What a person has it written to otherwise is theirs.
async fn keep_log_short(root: &Path, env: &Env) -> Infallible {
    let log = Folder::open(root).and_then(|root| root.open_to_change(LOG));
    let log = log.ok().filter(|log| std::io::stderr().as_fd().try_clone_to_owned().is_ok_and(|own| is_same(log, own)));
    loop {
        env.clock.sleep(LOOK_AT_LOG).await;
        if let Some(Err(error)) = log.as_ref().map(shorten) {
            tracing::debug!(%error, "the log cannot be begun again");
        }
    }
}

fn is_same(log: &File, other: OwnedFd) -> bool {
    let place = |file: &File| file.metadata().map(|found| (found.dev(), found.ino())).ok();
    place(log).is_some_and(|log| place(&File::from(other)) == Some(log))
}

/// Begins a log anew that is too long. Whoever writes it appends.
fn shorten(log: &File) -> std::io::Result<()> {
    if log.metadata()?.len() > MOST_OF_LOG { log.set_len(0) } else { Ok(()) }
}

/// How things stand at the broker, or, with `stop`, its word that it ends; `None` when there is none.
///
/// # Errors
/// It does not answer as it should.
pub async fn ask(host: &Host, named: Option<&Path>, stop: bool) -> Result<Option<serde_json::Value>, HostError> {
    asked(&root(host.settings(), named)?.join(SOCKET), stop).await
}

/// Ends the broker, once what is under way is over, and starts the next one. Whether there was one.
///
/// # Errors
/// It does not end, or none comes up.
pub async fn restart(host: &Host, named: Option<&Path>) -> Result<bool, HostError> {
    let root = root(host.settings(), named)?;
    // What the next one would refuse is said before this one is ended.
    let said = Said::read(host, &root)?;
    environment::is_of_its_database(host.settings(), &root, &said.config)?;
    let was_there = ask(host, named, true).await?.is_some();
    let locks = Home::new(host.settings(), Some(&root), host.known_secrets())?.locks();
    let ends = host.env().now().plus(DRAIN);
    while was_there && host.env().now() < ends {
        // A client that is connected may be quicker, and that broker is the next one.
        let is_free = BrokerLock::take(&locks);
        let is_free =
            is_free.map_err(|error| HostError::storage(format!("cannot lock the gateway: {error}")))?.is_some();
        if is_free || stands(&root.join(SOCKET)).await? == Stands::Listens {
            break;
        }
        host.env().clock.sleep(POLL).await;
    }
    start(host, named, Starter::Person).await?;
    Ok(was_there)
}

/// A question of the gateway, and whom its answer reaches.
#[derive(Debug, Clone)]
pub struct Asked {
    /// The question.
    pub question: QuestionRecord,
    /// A session, or one that is ended.
    pub reach: questions::Reach,
    /// What is known about it beside its text.
    pub known: Vec<questions::KnownFact>,
}

/// The questions of the gateway that wait for an answer, and what makes commands about them complete. None where nobody uses a gateway.
///
/// # Errors
/// Its database is there and cannot be read.
pub async fn open_questions(host: &Host, named: Option<&Path>) -> Result<(Commands, Vec<Asked>), HostError> {
    let root = root(host.settings(), named)?;
    let commands = Commands::naming(&root);
    if !root.is_dir() {
        return Ok((commands, Vec::new()));
    }
    let home = Home::new(host.settings(), Some(&root), host.known_secrets())?;
    if home.is_unused() {
        return Ok((commands, Vec::new()));
    }
    let store = home.open_read_only()?;
    let mut open = Vec::new();
    for question in questions::open(&store, None).await? {
        let beside = questions::beside(&home, &store, &question).await?;
        open.push(Asked { question, reach: beside.reach, known: beside.known });
    }
    crate::home::close(store);
    Ok((commands, open))
}

/// What the gateway asks, for whoever looks at other runs.
#[derive(Debug, Clone, Default)]
pub struct Beside {
    /// What makes commands about it complete.
    pub commands: Commands,
    /// The questions that wait for an answer.
    pub asked: Vec<Asked>,
    /// Why nobody knows now whether there is any.
    pub unread: Option<HostError>,
}

impl Beside {
    /// That nobody knows it, as a sentence.
    pub fn unread_in_words(&self) -> Option<String> {
        self.unread.as_ref().map(|error| format!("whether the gateway asks something cannot be read now: {error}"))
    }
}

/// The same for whoever looks at other runs: none when these are the gateway's own.
pub async fn questions_beside(host: &Host) -> Beside {
    if home_beside(host).is_none() {
        return Beside::default();
    }
    match open_questions(host, None).await {
        Ok((commands, asked)) => Beside { commands, asked, unread: None },
        Err(error) => Beside { unread: Some(error), ..Beside::default() },
    }
}

/// Whether a broker has the lock of this place: its clients' runs are in the database, and the next ones begin there.
///
/// # Errors
/// The lock cannot be looked at.
pub fn is_served(home: &Home) -> Result<bool, HostError> {
    let failed = |error| HostError::storage(format!("cannot look whether a broker of the gateway runs: {error}"));
    // Where a server is named as well the locks are in the root, and those of the file are beside it.
    let beside = home.database().parent().map(|folder| folder.join(crate::home::LOCKS));
    for locks in std::iter::once(home.locks()).chain(beside) {
        if BrokerLock::is_taken(&locks).map_err(failed)? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// What makes commands about the user's gateway complete, if it has runs and these are not its own.
pub fn commands_beside(host: &Host) -> Option<Commands> {
    Some(Commands::naming(home_beside(host)?.root()))
}

/// The home of the user's gateway, if it has runs and these are not its own.
fn home_beside(host: &Host) -> Option<Home> {
    let root = root(host.settings(), None).ok()?;
    let home = Home::new(host.settings(), Some(&root), host.known_secrets()).ok()?;
    let is_the_same = home.root() == host.home().root() || home.has_the_database_of(host.home());
    (root.is_dir() && !is_the_same && !home.is_unused()).then_some(home)
}

/// Whether this is the folder of the user's gateway.
pub fn is_its_folder(host: &Host, folder: &Path) -> bool {
    let own = root(host.settings(), None).ok();
    let real = |path: &Path| std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    own.is_some_and(|own| real(&own) == real(folder))
}

/// Whether somebody here uses the gateway and runs no jobs.
pub fn is_all_that_is_used(host: &Host) -> bool {
    let is_used = root(host.settings(), None).is_ok_and(|root| root.is_dir());
    is_used && (host.home().is_unused() || is_its_folder(host, host.home().root()))
}

/// Who may come over HTTP.
pub fn tokens(root: &Path) -> Tokens {
    Tokens::at(root.join(config::TOKENS))
}

/// What a hook of a client says on its standard input: the session that its process is in from now on. What cannot be understood or told is
/// nobody's concern: a hook must not stop its client.
pub async fn hook(host: &Host, named: Option<&Path>, said: &str) -> Result<(), HostError> {
    let said: serde_json::Value = serde_json::from_str(said).unwrap_or_default();
    let Some(session) = said["session_id"].as_str() else { return Ok(()) };
    start(host, named, Starter::Client).await?;
    let socket = root(host.settings(), named)?.join(SOCKET);
    let status = asked(&socket, false).await?.unwrap_or_default();
    let clients: Vec<u64> =
        status["bridges"].as_array().into_iter().flatten().filter_map(|bridge| bridge["parent"].as_u64()).collect();
    let above = agent::ancestors();
    // The nearest process above that started a bridge; before there is one, the process that started the shell of this hook.
    let client = above.iter().find(|process| clients.contains(&u64::from(**process))).or_else(|| above.get(1)).copied();
    if let Some(client) = client {
        let told = hook_broker(&socket, client, session).await;
        told.map_err(|error| does_not_answer(&error))?;
    }
    Ok(())
}

/// How a broker stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stands {
    /// It lets clients in.
    Listens,
    /// It ends once what is under way is over.
    Ends,
    /// There is none that can be asked.
    Nowhere,
}

/// One that says nothing is an error: it has the lock, so that no other one can start.
async fn stands(socket: &Path) -> Result<Stands, HostError> {
    match ask_broker(socket, false).await {
        Ok(Some(status)) if status["is_ending"] == true => Ok(Stands::Ends),
        Ok(Some(_)) => Ok(Stands::Listens),
        Err(error) if error.kind() == std::io::ErrorKind::TimedOut => Err(does_not_answer(&error)),
        Ok(None) | Err(_) => Ok(Stands::Nowhere),
    }
}

async fn asked(socket: &Path, stop: bool) -> Result<Option<serde_json::Value>, HostError> {
    ask_broker(socket, stop).await.map_err(|error| does_not_answer(&error))
}

fn does_not_answer(error: &std::io::Error) -> HostError {
    HostError::failed(format!("the gateway's broker does not answer: {error}"))
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "tests make the files that they look at")]
mod tests {
    use super::*;
    use crate::env::Process;

    #[test]
    fn a_configuration_names_the_link_that_stays_when_versions_change() {
        let folder = tempfile::tempdir().unwrap();
        let (version, bin, other) =
            (folder.path().join("1.2/ua"), folder.path().join("bin"), folder.path().join("other"));
        for made in [version.parent().unwrap(), &bin, &other] {
            std::fs::create_dir(made).unwrap();
        }
        std::fs::write(&version, "").unwrap();
        std::fs::write(other.join("ua"), "another one").unwrap();
        let settings = || {
            let path = format!("relative:{}:{}", other.display(), bin.display());
            Settings::read(Process {
                variables: [("PATH".to_owned(), path)].into(),
                folder: None,
                program: Some(version.clone()),
            })
        };
        assert_eq!(stable_program(&settings()).unwrap(), version, "it is not in the PATH");
        std::os::unix::fs::symlink(&version, bin.join("ua")).unwrap();
        assert_eq!(stable_program(&settings()).unwrap(), bin.join("ua"));
    }

    #[test]
    fn an_entry_keeps_the_old_command_whole() {
        let folder = tempfile::tempdir().unwrap();
        let process = Process {
            variables: [("HOME".to_owned(), "/home/ada".to_owned())].into(),
            folder: None,
            program: Some(folder.path().join("ua")),
        };
        let settings = Settings::read(process);
        let words = ["--name", "mail", "--root", "/r", "--", "npx", "--root", "/kept"];
        let made = entry(&settings, words.map(OsString::from)).unwrap();
        let args: Vec<String> = made.args.iter().map(|arg| arg.to_string_lossy().into_owned()).collect();
        assert_eq!(args[..2], ["--socket", "/r/gateway.sock"]);
        assert!(args.ends_with(&["--name", "mail", "--", "npx", "--root", "/kept"].map(str::to_owned)), "{args:?}");
        assert_eq!(made.program, None);
        // The name of a variable is a project's to choose, and no flag.
        let words = ["--root", "/r", "--name", "m", "--env", "--root", "--env", "A=B", "--", "x"];
        let made = entry(&settings, words.map(OsString::from)).unwrap();
        assert_eq!(made.args[1], "/r/gateway.sock");
        assert!(made.args.ends_with(&words[2..].iter().map(OsString::from).collect::<Vec<_>>()), "{:?}", made.args);
        std::fs::write(folder.path().join("ua-bridge"), "").unwrap();
        let made = entry(&settings, ["--", "x"].map(OsString::from)).unwrap();
        assert_eq!(made.args[1], "/home/ada/.local/state/ua/gateway/gateway.sock");
        assert!(made.program.is_some());
    }

    #[test]
    fn a_log_that_is_too_long_begins_anew_and_only_the_brokers_own() {
        use std::io::Write as _;
        let folder = tempfile::tempdir().unwrap();
        let folder = Folder::open(folder.path()).unwrap();
        let (mut writer, log) = (folder.append(LOG).unwrap(), folder.open_to_change(LOG).unwrap());
        writer.write_all(&vec![b'x'; usize::try_from(MOST_OF_LOG).unwrap()]).unwrap();
        shorten(&log).unwrap();
        assert_eq!(log.metadata().unwrap().len(), MOST_OF_LOG);
        writer.write_all(b"x").unwrap();
        shorten(&log).unwrap();
        writer.write_all(b"next").unwrap();
        assert_eq!(folder.read(LOG, 9).unwrap(), b"next");
        let other = folder.append("other").unwrap();
        assert!(is_same(&log, writer.into()) && !is_same(&log, other.into()));
    }
}
