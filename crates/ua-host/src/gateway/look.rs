//! How the gateway stands, for `ua doctor`: its file, its broker, its socket, and the configurations of clients.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use ua_core::{PrintedCommand, ShowPath as _};

use super::alerting::alerts_fault;
use super::fault::{Fault, last_fault, trouble, unmatched};
use super::install::{Program, program_of};
use super::{BRIDGE, Change, Client, Front, SOCKET, What, asked, configuration, install};
use crate::error::HostError;
use crate::host::Host;

/// This version.
const OWN: &str = env!("CARGO_PKG_VERSION");
/// A client that waits for less, in seconds, has little of a tool that takes its time, and nothing of a person.
const TOO_SHORT: u32 = 10;
/// How long another `ua` may take to say its version, which takes it no time.
const ANSWERS: Duration = Duration::from_secs(5);

/// Entries of one configuration that go through the gateway by a program that is not this one, as it should be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Moved {
    /// The configuration.
    pub file: PathBuf,
    /// Their tool servers, each once.
    pub servers: Vec<String>,
    /// The program.
    pub program: String,
    /// What it says that it is; `None` where there is none.
    pub version: Option<String>,
    root: Option<PathBuf>,
}

impl Moved {
    /// What is so, as the beginning of a sentence.
    pub fn in_words(&self) -> String {
        let (noun, goes, them) =
            if self.servers.len() == 1 { ("tool server", "goes", "it") } else { ("tool servers", "go", "them") };
        let (names, file, program) = (self.servers.join(", "), self.file.shown(), &self.program);
        let these = format!("{noun} {names} of {file} {goes} through {program}");
        match &self.version {
            None => format!("{these}, which does not exist, so that the client cannot start {them}"),
            Some(version) => format!("{these}, which is {version}; this program is ua {OWN}"),
        }
    }

    /// The command that has them go through it by this program.
    pub fn mended_by(&self) -> String {
        let install = PrintedCommand::of("ua gateway install").option("--file", &self.file);
        let install = self.root.iter().fold(install, |install, root| install.option("--root", root));
        self.servers.iter().fold(install, PrintedCommand::word).in_code()
    }
}

/// What a program says that it is; nobody is waited for who does not say it.
async fn said_version(host: &Host, program: &Path) -> String {
    let mut asked = tokio::process::Command::new(program);
    asked.arg("--version").stdin(Stdio::null()).stderr(Stdio::null()).kill_on_drop(true);
    let said = tokio::select! {
        said = asked.output() => said.ok(),
        () = host.env().clock.sleep(ANSWERS) => None,
    };
    let said = said.filter(|said| said.status.success());
    let said = said.map(|said| String::from_utf8_lossy(&said.stdout).lines().next().unwrap_or_default().to_owned());
    match said.filter(|said| (said.starts_with("ua ") || said.starts_with("ua-bridge ")) && said.len() < 100) {
        Some(said) => crate::text::plain(said.trim()),
        None => "of a version that it does not say".to_owned(),
    }
}

/// The entries of clients that go through the gateway by a program which does not exist any more, or has another version than this one.
///
/// # Errors
/// Nobody says where the user's state is.
pub async fn moved(host: &Host, named: Option<&Path>) -> Result<Vec<Moved>, HostError> {
    let (root, front) = front(host, named)?;
    let mut all = Vec::new();
    for (file, changes) in configurations(host, &root, &front) {
        all.extend(moved_in(host, &file, &changes, &front).await);
    }
    Ok(all)
}

/// The same of one configuration.
async fn moved_in(host: &Host, file: &Path, changes: &[Change], front: &Front) -> Vec<Moved> {
    let mut of: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for change in changes {
        let is_ours = matches!(change.what, What::Already | What::Moved);
        if let Some(program) = change.program.as_deref().filter(|_| is_ours) {
            let servers = of.entry(program).or_default();
            if !servers.contains(&change.server) {
                servers.push(change.server.clone());
            }
        }
    }
    let mut found = Vec::new();
    for (program, servers) in of {
        let version = match program_of(Some(program), front) {
            Program::Here => continue,
            Program::Gone => None,
            Program::Another => {
                let said = said_version(host, Path::new(program)).await;
                if said == format!("ua {OWN}") {
                    continue;
                }
                Some(said)
            }
        };
        let (file, program, root) = (file.to_owned(), program.to_owned(), front.root.as_ref().map(PathBuf::from));
        found.push(Moved { file, servers, program, version, root });
    }
    found
}

/// The entries that go through the gateway and whose client waits for less than a person, or a tool server that starts, may need: each in a sentence.
///
/// # Errors
/// Nobody says where the user's state is.
pub fn impatient(host: &Host, named: Option<&Path>) -> Result<Vec<String>, HostError> {
    let (root, front) = front(host, named)?;
    let all = configurations(host, &root, &front).into_iter();
    Ok(all.flat_map(|(file, changes)| impatient_in(&file, &changes)).collect())
}

fn impatient_in(file: &Path, changes: &[Change]) -> Vec<String> {
    let words = |change: &Change| {
        let seconds = change.patience.filter(|seconds| *seconds < TOO_SHORT)?;
        matches!(change.what, What::Already | What::Moved).then(|| {
            format!(
                "the client of tool server {} of {} waits only {seconds} s for a tool, by its time-out there: a call that takes longer is told to be \
                 under way, and nobody can decide in that time",
                change.server,
                file.shown()
            )
        })
    };
    changes.iter().filter_map(words).collect()
}

fn front(host: &Host, named: Option<&Path>) -> Result<(PathBuf, Front), HostError> {
    let settings = host.settings();
    let root = super::root(settings, named)?;
    let shown = |root: PathBuf| root.to_string_lossy().into_owned();
    let front = Front {
        program: settings.program()?.to_string_lossy().into_owned(),
        root: named.map(|_| shown(root.clone())),
        own_root: super::root(settings, None).ok().map(shown),
    };
    Ok((root, front))
}

/// What `install` would do with the configurations of clients, of those that have one.
fn configurations(host: &Host, root: &Path, front: &Front) -> Vec<(PathBuf, Vec<Change>)> {
    let files = Client::ALL.into_iter().filter_map(|client| configuration(host.settings(), client).ok());
    // Without tool servers there is nothing to be said.
    files.filter_map(|file| Some((file.clone(), install(root, &file, front, &[], true).ok()?.changes))).collect()
}

/// What was found.
#[derive(Debug, Default)]
pub struct Looked {
    /// The gateway's folder; `None` when nobody uses a gateway.
    pub root: Option<PathBuf>,
    /// What would keep a broker from starting now: its file, what that refers to, its database, its disk.
    pub trouble: Option<HostError>,
    /// What the last broker said before it ended by an error; nothing while one serves.
    pub last_fault: Option<Fault>,
    /// Names in its file that stand for nobody so far, each in a sentence.
    pub unmatched: Vec<String>,
    /// What is wrong with its alerts: nobody would be told that a question waits.
    pub alerts: Option<HostError>,
    /// The bridge's program beside this one, and what it says that it is, where it is not of this version.
    pub bridge: Option<(PathBuf, String)>,
    /// The version of the broker that runs, if one does and says it.
    pub broker: Option<String>,
    /// Why the broker that holds the lock cannot be asked, if one does and says nothing, or nothing that is understood.
    pub silent: Option<HostError>,
    /// Why clients over HTTP do not reach that, where another program has the address.
    pub http_taken: Option<String>,
    /// Files that say something else than when that read them, each in a sentence.
    pub changed: Vec<String>,
    /// Files that others may use, though they are the owner's alone.
    pub open_to_others: Vec<PathBuf>,
    /// Tool servers of clients that go through it, and those that do not, each with the configuration's file.
    pub wrapped: Vec<(PathBuf, String)>,
    /// Those that go through it by a program which does not exist, or has another version.
    pub moved: Vec<Moved>,
    /// Those whose client gives up too soon, each in a sentence.
    pub impatient: Vec<String>,
    /// The same as of `wrapped` for those that go through the gateway of another folder.
    pub elsewhere: Vec<(PathBuf, String)>,
    /// The same for those that could.
    pub unwrapped: Vec<(PathBuf, String)>,
    /// The same for those that may want their client to log in.
    pub may_log_in: Vec<(PathBuf, String)>,
    /// The same for those of which something cannot be read.
    pub not_read: Vec<(PathBuf, String)>,
}

/// Looks.
///
/// # Errors
/// Nobody says where the user's state is.
pub async fn look(host: &Host, named: Option<&Path>) -> Result<Looked, HostError> {
    let (root, front) = front(host, named)?;
    let mut looked = Looked::default();
    for (file, changes) in configurations(host, &root, &front) {
        looked.moved.extend(moved_in(host, &file, &changes, &front).await);
        looked.impatient.extend(impatient_in(&file, &changes));
        for change in changes {
            let of = match change.what {
                What::Already => &mut looked.wrapped,
                What::Elsewhere => &mut looked.elsewhere,
                What::Wrapped => &mut looked.unwrapped,
                What::MayLogIn => &mut looked.may_log_in,
                What::NotRead | What::Shared | What::Twice => &mut looked.not_read,
                What::Moved
                | What::Unwrapped
                | What::Unreachable
                | What::NotWrapped
                | What::All
                | What::NotRestored => continue,
            };
            of.push((file.clone(), change.server));
        }
    }
    if !root.exists() && looked.wrapped.is_empty() && looked.moved.is_empty() {
        return Ok(Looked::default());
    }
    let beside = host.settings().program()?.with_file_name(BRIDGE);
    if beside.is_file() {
        let said = said_version(host, &beside).await;
        looked.bridge = (said != format!("{BRIDGE} {OWN}")).then_some((beside, said));
    }
    looked.trouble = trouble(host, &root).await;
    looked.unmatched = unmatched(host, &root).await.unwrap_or_default();
    looked.alerts = alerts_fault(host, &root).err();
    let socket = root.join(SOCKET);
    match asked(&socket, false).await {
        Ok(Some(status)) => {
            looked.broker = Some(status["version"].as_str().unwrap_or("an earlier version").to_owned());
            looked.http_taken = status["http_taken"].as_str().map(str::to_owned);
            looked.changed = super::changed_since(&status);
        }
        Ok(None) => {}
        Err(error) => looked.silent = Some(error),
    }
    // One that serves has said all that was wrong before it.
    looked.last_fault = last_fault(&root).filter(|_| looked.broker.is_none());
    let others = |path: &PathBuf| std::fs::metadata(path).is_ok_and(|meta| meta.permissions().mode() & 0o077 != 0);
    looked.open_to_others = [socket, root.join(super::config::TOKENS), root.join(super::agent::APPROVERS)]
        .into_iter()
        .filter(others)
        .collect();
    looked.root = Some(root);
    Ok(looked)
}
