//! `ua trust`: lets the tool servers of a project in, and policies of a job lower caution, after a person has seen them.

use std::path::{Path, PathBuf};

use clap::Args;
use ua_core::{PrintedCommand, ShowPath as _};
use ua_host::home::Home;
use ua_host::mcp_files::mcp_config;
use ua_host::review::ServerReview;
use ua_host::trust::policy::{self, PolicyReview};
use ua_host::trust::runs::{self, RunsReview, TrustedRuns};
use ua_host::trust::{self, ConfigFile, Entry, PROJECT_FILE, Trusted};
use ua_host::{Host, Settings};
use ua_mcp::Reach;

use crate::error::{FAILED, HostError, OK};
use crate::output::{did, print, print_json, print_table, tell};
use crate::people::is_attended;
use crate::prompt::{AtSignal, Left, confirm};
use crate::view::TrustRow;

/// `ua trust`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ua trust
      show the servers of .mcp.json, and ask whether to trust them
  ua trust --yes
      trust them without asking
  ua trust --list
      list what is trusted, and whether it changed since
  ua trust --revoke
      revoke the trust
  ua trust DIR
      show the runs in a folder, and ask whether to trust them
  ua trust --revoke DIR
      revoke that
  ua trust policy.toml
      also allow a job's policy file to lower caution

A .mcp.json in the current folder is not used before that: no program of it is started and no address of it is reached. \
Any change to a command, its arguments, environment, program file, script, address or headers requires trust again. A file that you name with \
--mcp-config is yours and needs no confirmation.

The runs of an AGENT_RUN_WORKSPACES that somebody else made are not used until you trust the folder: \
`ua trust AGENT_RUN_WORKSPACES`. A policy file that a job names can only raise caution until you have looked at it and trusted it; \
one that you name with --policy is yours. docs/security.md explains why.")]
pub struct TrustArgs {
    /// The configuration [default: .mcp.json of the current folder], a job's policy file (.toml), or a folder of workspaces
    #[arg(value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// List what is trusted, of FILE or of all files
    #[arg(long, conflicts_with_all = ["revoke", "yes"])]
    pub list: bool,
    /// Revoke the trust in the file
    #[arg(long, conflicts_with = "yes")]
    pub revoke: bool,
    /// Do not ask for confirmation
    #[arg(long, short)]
    pub yes: bool,
    /// With --yes: also servers that fetch the latest version of a package, whichever that is (npx -y pkg@latest)
    #[arg(long, requires = "yes")]
    pub allow_unpinned: bool,
    /// Believe what the servers declare about their tools (readOnlyHint) where it confirms what the tools' names suggest
    #[arg(long, conflicts_with_all = ["list", "revoke"])]
    pub trust_annotations: bool,
}

pub(crate) async fn run(host: &Host, args: &TrustArgs) -> Result<u8, HostError> {
    if args.list {
        return list(host.settings(), args.file.as_deref());
    }
    let code = decide(host, args).await?;
    // A machine is told what is let in now.
    if crate::terminal::is_json() {
        list(host.settings(), args.file.as_deref())?;
    }
    Ok(code)
}

/// For a person on standard output, beside what a machine reads on standard error.
fn say(text: &str) -> Result<(), HostError> {
    if crate::terminal::is_json() {
        tell(text.trim_end());
        return Ok(());
    }
    print(text)
}

/// The same of what was done.
fn say_done(text: &str) -> Result<(), HostError> {
    did(text);
    say(text)
}

async fn decide(host: &Host, args: &TrustArgs) -> Result<u8, HostError> {
    let path = args.file.clone().unwrap_or_else(|| PathBuf::from(PROJECT_FILE));
    if args.revoke {
        return revoke(host.settings(), &path);
    }
    if ua_host::paths::is_missing(&path) {
        let what = if is_policy(&path) {
            "name an existing policy file"
        } else {
            "name the file with an `mcpServers` object, or go to the folder that has one"
        };
        let meant = ua_host::paths::did_you_mean(&path);
        return Err(HostError::usage(format!("there is no {}", path.shown())).hint(format!("{meant}{what}")));
    }
    if path.is_dir() {
        return decide_about_runs(host, args, &path).await;
    }
    if is_policy(&path) {
        return decide_about_policy(host, args, &path).await;
    }
    let file = ConfigFile::found(path);
    let config = mcp_config(Some(&file))?;
    let unknown = trust::untrusted(host.settings(), &file, &config.servers)?;
    if unknown.is_empty() && args.trust_annotations {
        return believe(host, &file, &config.servers);
    }
    if unknown.is_empty() {
        let count = config.servers.len();
        say(&format!(
            "{}: {count}, nothing new to trust\n",
            file.path.shown(),
            count = ua_core::counted(count, "server")
        ))?;
        return Ok(OK);
    }
    say(&shown(&file.path, &unknown))?;
    if args.yes
        && !args.allow_unpinned
        && let Some(loose) = unknown.iter().find(|review| review.is_unpinned)
    {
        let why = format!("`{}` runs the latest version of its package, whichever that is", loose.server);
        return Err(HostError::usage(why).hint("name an exact version in the file, or add --allow-unpinned"));
    }
    if !is_agreed(args, "Trust these servers: may ua start them and connect to them?").await? {
        return Ok(FAILED);
    }
    let count = trust::remember(host, &file, unknown)?;
    say_done(&format!("trusted: {count}, in their current form\n", count = ua_core::counted(count, "server")))?;
    if args.trust_annotations || (!args.yes && ask_about_annotations().await?) {
        return believe(host, &file, &config.servers);
    }
    Ok(OK)
}

/// The command that takes back what was said about a file.
fn revoking(file: &Path) -> String {
    PrintedCommand::of("ua trust").option("--revoke", file).in_code()
}

/// Takes back what was said about a file or a folder.
fn revoke(settings: &Settings, path: &Path) -> Result<u8, HostError> {
    let file = path.shown().to_string();
    let mut trusted = Trusted::read(settings)?;
    let count = trusted.revoke(&trust::canonical(path));
    if count > 0 {
        trusted.write(settings)?;
    }
    let had_runs = runs::revoke(settings, path)?;
    if count == 0 && !had_runs {
        let inner = trust::canonical(&path.join(PROJECT_FILE));
        let hint = if trusted.entries().iter().any(|entry| entry.file == inner) {
            format!("its tool servers are trusted: {}", revoking(&path.join(PROJECT_FILE)))
        } else {
            "`ua trust --list` shows what is trusted".to_owned()
        };
        // What its own list prints first is the name of a server.
        let named: Vec<String> = trusted
            .entries()
            .iter()
            .filter(|entry| !entry.server.is_empty() && Path::new(&entry.server) == path)
            .map(|entry| revoking(&entry.file))
            .collect();
        if !named.is_empty() {
            return Err(HostError::usage(format!(
                "{file} is a tool server, and trust is revoked for the file that names it"
            ))
            .hint(format!("{}; nothing was revoked", named.join(" or "))));
        }
        return Err(HostError::usage(format!("{file} is not trusted, so nothing was revoked")).hint(hint));
    }
    if had_runs {
        say_done(&format!("no longer trusted: the runs in {file}\n"))?;
    }
    if count > 0 && is_policy(path) {
        say_done(&format!("{file} is no longer trusted\n"))?;
    } else if count > 0 {
        say_done(&format!("no longer trusted: {count} of {file}\n", count = ua_core::counted(count, "server")))?;
    }
    Ok(OK)
}

/// Lets the runs in a folder be used, after a person saw what is there.
async fn decide_about_runs(host: &Host, args: &TrustArgs, path: &Path) -> Result<u8, HostError> {
    let review = RunsReview::of(host.settings(), path).await?;
    let folder = path.shown().to_string();
    if review.is_trusted {
        say(&format!("{folder}: nothing new to trust\n"))?;
        return Ok(OK);
    }
    say(&format!("the runs in {folder} are not trusted yet:\n{}", review.shown()))?;
    if !is_agreed(args, "Trust these runs: may ua start what they name when they are resumed?").await? {
        return Ok(FAILED);
    }
    Home::adopt(host.settings(), path)?;
    say_done(&format!("trusted: the runs in {folder}\n"))?;
    Ok(OK)
}

fn is_policy(path: &Path) -> bool {
    path.extension().is_some_and(|ending| ending == policy::ENDING)
}

/// What is left of this question when somebody leaves it with Ctrl-C.
fn not_trusted() -> Left {
    Left::undone("nothing was trusted, and nothing was started")
}

/// Whether a person says yes to what was shown, or said it before.
async fn is_agreed(args: &TrustArgs, question: &str) -> Result<bool, HostError> {
    if args.yes {
        return Ok(true);
    }
    if !is_attended() {
        return Err(HostError::usage("not a terminal, so nobody can confirm it")
            .hint("run `ua trust` on a terminal, or add --yes"));
    }
    let agreed = confirm(question, &not_trusted()).await?;
    if !agreed {
        tell("nothing was trusted");
    }
    Ok(agreed)
}

/// Lets a policy file of jobs lower caution, as it is now.
async fn decide_about_policy(host: &Host, args: &TrustArgs, path: &Path) -> Result<u8, HostError> {
    let review = PolicyReview::of(host.settings(), path)?;
    let file = path.shown().to_string();
    if review.is_trusted {
        say(&format!("{file}: nothing new to trust\n"))?;
        return Ok(OK);
    }
    say(&format!("{file} is not trusted yet, or changed since. It says:\n{}", review.shown()))?;
    if !is_agreed(args, "Allow it to lower caution in the jobs that name it?").await? {
        return Ok(FAILED);
    }
    policy::remember(host, path, &review)?;
    say_done(&format!("trusted: {file}, in its current form\n"))?;
    Ok(OK)
}

/// Lets what the servers say of their tools count for something.
fn believe(host: &Host, file: &ConfigFile, servers: &[(String, Reach)]) -> Result<u8, HostError> {
    let count = trust::believe_annotations(host.settings(), file, servers)?;
    say(&format!(
        "{count}: what they declare about their tools may confirm what the names suggest\n",
        count = ua_core::counted(count, "server")
    ))?;
    Ok(OK)
}

async fn ask_about_annotations() -> Result<bool, HostError> {
    tell(
        "A server may declare that a tool only reads (readOnlyHint). If the tool's name suggests the same, trusting that saves you questions.",
    );
    let left = Left {
        what: "what the servers declare about their tools is ignored, as before".to_owned(),
        back: "`ua trust --trust-annotations` asks again".to_owned(),
        signal: AtSignal::Undone,
    };
    confirm("Trust what they declare about their tools? A tool that wrongly claims to only read is run again if its answer is lost", &left)
        .await
}

pub(crate) fn shown(file: &Path, reviews: &[ServerReview]) -> String {
    let servers: String = reviews.iter().map(ServerReview::shown).collect();
    format!("{} lists tool servers that are not trusted yet, or changed since:\n{servers}", file.shown())
}

pub(crate) async fn ask() -> Result<bool, HostError> {
    confirm("Trust these servers: may ua start them and connect to them?", &not_trusted()).await
}

fn list(settings: &Settings, only: Option<&Path>) -> Result<u8, HostError> {
    let only = only.map(trust::canonical);
    let trusted = Trusted::read(settings)?;
    let entries = trusted.entries().iter().filter(|entry| only.as_ref().is_none_or(|only| entry.file == *only));
    let row = |entry: &Entry| {
        let (state, why) = state(settings, &trusted, entry);
        TrustRow {
            file: entry.file.clone(),
            kind: if entry.is_policy { "policy" } else { "server" },
            server: entry.server.clone(),
            state,
            why,
            digest: entry.digest.clone(),
            at: entry.at,
            by: entry.by.clone(),
            annotations: entry.annotations,
        }
    };
    let of_runs = |noted: TrustedRuns| TrustRow {
        file: noted.folder,
        kind: "runs",
        server: String::new(),
        state: match (noted.is_there, noted.is_changed) {
            (true, false) => "trusted",
            (true, true) => "changed",
            (false, _) => "gone",
        },
        why: noted.is_changed.then(|| "somebody put another database there, or a log beside it".to_owned()),
        digest: String::new(),
        at: noted.at,
        by: None,
        annotations: false,
    };
    let folders =
        runs::all(settings).into_iter().filter(|noted| only.as_ref().is_none_or(|only| noted.folder == *only));
    let rows: Vec<TrustRow> = entries.map(row).chain(folders.map(of_runs)).collect();
    if crate::terminal::is_json() {
        print_json(&rows)?;
        return Ok(OK);
    }
    if rows.is_empty() {
        tell("nothing is trusted yet; `ua trust FILE` shows what a file names, and asks");
    }
    let now = ua_core::system::env().now();
    let cells = rows.iter().map(|row| {
        vec![named(row), row.state.to_owned(), crate::moment::ago(row.at, now), row.file.shown().to_string()]
    });
    print_table(&crate::listings::TRUSTED, cells.collect())?;
    for row in &rows {
        if let Some(why) = &row.why {
            let again = PrintedCommand::of("ua trust").word(&row.file);
            print(format!("\n{} changed: {why}\n  {again}   asks about it again\n", named(row)))?;
        }
    }
    if rows.iter().any(|row| row.state == "gone") {
        tell("what is gone is no longer where it was trusted; `ua trust --revoke FILE` removes it from this list");
    }
    Ok(OK)
}

fn named(row: &TrustRow) -> String {
    match row.kind {
        "policy" => "(policy file)".to_owned(),
        "runs" => "(runs)".to_owned(),
        _ => row.server.clone(),
    }
}

/// How a server that was let in, or a policy file, is now; of one that changed, what is not as it was.
fn state(settings: &Settings, trusted: &Trusted, entry: &Entry) -> (&'static str, Option<String>) {
    let gone = ("gone", None);
    if entry.is_policy {
        return match PolicyReview::of(settings, &entry.file) {
            Ok(review) if review.digest == entry.digest => ("trusted", None),
            Ok(_) => ("changed", Some("its text".to_owned())),
            Err(error) if entry.file.exists() => ("changed", Some(error.message().to_owned())),
            Err(_) => gone,
        };
    }
    let config = mcp_config(Some(&ConfigFile::named(&entry.file)));
    let base = entry.file.parent().unwrap_or(Path::new("/"));
    let found = config.ok().and_then(|config| config.servers.into_iter().find(|(name, _)| *name == entry.server));
    let Some((name, reach)) = found else { return gone };
    match trusted.changes(&entry.file, &ServerReview::of(settings, base, &name, &reach)) {
        None => ("trusted", None),
        why => ("changed", why),
    }
}
