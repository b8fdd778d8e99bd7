//! Which tool servers of a project a person has let in.
//!
//! A `.mcp.json` that lies in the current folder came with whatever was checked out there, and it names programs to run and addresses
//! to send to. So nothing of it is started or reached until a person has seen it and said yes (`ua trust`). A file that a person
//! names, by `--mcp-config`, `UA_MCP_CONFIG` or the user's own `config.toml`, is trusted by naming it. The last two are named for every folder,
//! whatever is checked out there: where the folder decides what a name in a server's command line means, nobody has seen what would be run.
//!
//! A policy file that comes with a job says what its tools may do unasked; it lowers caution only after a person trusted it, likewise
//! ([`policy`]).
//!
//! Invariants: what was said yes to is the digest of everything that decides what happens (command line, environment, program file, files,
//! folders and modules that the command names and what lies beside scripts, address, headers, secrets), and a person is told what it does
//! not cover; any other digest is asked about again; the answers lie in the user's state
//! folder, where no project reaches, in a file that only the user may read.
//! Proved by: this file's tests and the end-to-end tests `trust`.

pub mod policy;
mod record;
pub mod runs;

use std::path::{Path, PathBuf};

use ua_core::{PrintedCommand, ShowPath as _};
use ua_mcp::Reach;

use crate::error::HostError;
use crate::hint::{Word, text};
use crate::host::Host;
use crate::mcp_files::mcp_config;
use crate::review::{ServerReview, Start, checkout_of, shadow};
use crate::settings::{Settings, closing, open_to_strangers};
use crate::text::plain;

pub use record::{Entry, Trusted};

/// The file that is looked for in the current folder.
pub const PROJECT_FILE: &str = ".mcp.json";

/// A file with an `mcpServers` object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigFile {
    /// Where it is.
    pub path: PathBuf,
    /// It was found in the current folder; nobody named it.
    pub is_found: bool,
    /// It is named for every folder, by the user's environment or configuration, and not with this command.
    pub is_standing: bool,
}

impl ConfigFile {
    /// A file that a person named.
    pub fn named(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), is_found: false, is_standing: false }
    }

    /// A file that was found in the current folder.
    pub fn found(path: impl Into<PathBuf>) -> Self {
        Self { is_found: true, ..Self::named(path) }
    }

    /// A file that a person named for every folder.
    pub fn standing(path: impl Into<PathBuf>) -> Self {
        Self { is_standing: true, ..Self::named(path) }
    }
}

/// The servers of a file that nobody let in as they are now.
///
/// # Errors
/// Others than this user and root may change what a server runs, or the file itself: what was looked at need not be what is started.
pub fn untrusted(
    settings: &Settings,
    file: &ConfigFile,
    servers: &[(String, Reach)],
) -> Result<Vec<ServerReview>, HostError> {
    if !file.is_found || servers.is_empty() {
        return Ok(Vec::new());
    }
    let trusted = Trusted::read(settings)?;
    let path = canonical(&file.path);
    let base = path.parent().unwrap_or(Path::new("/"));
    if let Some(why) = open_to_strangers(&path) {
        return Err(of_others(file, None, &path, why));
    }
    let seen: Vec<_> = servers.iter().map(|(name, reach)| ServerReview::of(settings, base, name, reach)).collect();
    for review in &seen {
        if let Some((path, why)) = &review.of_others {
            return Err(of_others(file, Some(&review.server), path, why));
        }
    }
    let seen = seen.into_iter();
    let mut unknown: Vec<_> = seen.filter(|review| !trusted.allows(&path, &review.server, &review.digest)).collect();
    for review in &mut unknown {
        if let Some(changes) = trusted.changes(&path, review) {
            review.lines.insert(0, ("changed", changes));
        }
    }
    Ok(unknown)
}

fn of_others(file: &ConfigFile, server: Option<&str>, path: &Path, why: &str) -> HostError {
    let what = match server {
        Some(server) => format!("the tool server {server} of {}", file.path.shown()),
        None => file.path.shown().to_string(),
    };
    // What is not this user's is not theirs to close.
    let mend = closing(path).map_or_else(String::new, |mend| {
        format!("look at what is in it, then {mend} {}, or ", ua_core::shell_word(path))
    });
    HostError::usage(format!("cannot trust {what}: {}: {why}", path.shown())).hint(format!(
        "whoever may change it can put another program there between the look at it and its start; {mend}name the file with `--mcp-config {}` if \
         you trust them",
        ua_core::shell_word(&file.path)
    )).not_begun()
}

/// Refuses servers that nobody let in.
pub(crate) fn check(settings: &Settings, file: &ConfigFile, servers: &[(String, Reach)]) -> Result<(), HostError> {
    check_shadows(settings, file, servers)?;
    let unknown = untrusted(settings, file, servers)?;
    if unknown.is_empty() {
        return Ok(());
    }
    let named = |review: &ServerReview| match review.lines.first() {
        Some(("changed", changes)) => format!("{} ({changes})", review.server),
        Some(_) | None => review.server.clone(),
    };
    let names: Vec<String> = unknown.iter().map(named).collect();
    // Only what is told to have changed can be a file that nobody meant as code.
    let is_beside = names.iter().any(|name| name.contains("the file "));
    let beside = if is_beside {
        "; whatever could be code in the folder of a server's script counts as its code: keep what you edit yourself in another folder"
    } else {
        ""
    };
    Err(HostError::usage(format!(
        "{} was found here and lists tool servers that are not trusted yet, or changed since: {}",
        file.path.shown(),
        names.join(", ")
    ))
    .hint([
        text(format!(
            "look at them with {}, or name the file with `--mcp-config {}` if it is yours; ",
            PrintedCommand::of("ua trust").word(&file.path).in_code(),
            ua_core::shell_word(&file.path)
        )),
        Word::NothingBegun,
        text(beside),
    ]))
}

/// Refuses servers that are configured for every folder where this one decides what a name in their command line means.
fn check_shadows(settings: &Settings, file: &ConfigFile, servers: &[(String, Reach)]) -> Result<(), HostError> {
    if !file.is_standing {
        return Ok(());
    }
    let here = settings.absolute(Path::new("."))?;
    // A file that lies in the checkout is about the checkout.
    if checkout_of(canonical(&here)) == checkout_of(canonical(file.path.parent().unwrap_or(Path::new(".")))) {
        return Ok(());
    }
    let home = settings.of_environment("HOME").map(PathBuf::from);
    for (server, reach) in servers {
        let Reach::Stdio { command, args, env, cwd } = reach else { continue };
        let folder = cwd.as_ref().map_or_else(|| here.clone(), |cwd| here.join(cwd));
        let path = env.get("PATH").cloned().or_else(|| settings.var("PATH")).unwrap_or_default();
        let start = Start { folder: &folder, path: &path, home: home.as_deref() };
        let Some(shadow) = shadow(command, args, start) else { continue };
        let (shadow, named) = (shadow.shown().to_string(), file.path.shown().to_string());
        return Err(HostError::usage(format!(
            "the tool server {} of {named} would run or load {shadow} of this folder instead of what its command line names",
            plain(server)
        ))
        .hint([
            text(format!(
                "name the file with `--mcp-config {named}` if it may run that, or write its entry so that it means the same in every folder \
                 (`python3 -P -m`, an absolute path, a `cwd`); "
            )),
            Word::NothingBegun,
        ])
        .not_begun());
    }
    Ok(())
}

/// Which of these servers of a file a person has let in, in whatever form.
///
/// # Errors
/// The record of what was let in cannot be read.
pub fn ever_trusted(settings: &Settings, path: &Path, servers: &[String]) -> Result<Vec<String>, HostError> {
    let trusted = Trusted::read(settings)?;
    let path = canonical(path);
    Ok(servers.iter().filter(|server| trusted.has(&path, server)).cloned().collect())
}

/// Which of these servers of a file a person has let in, and not in the form that they have now: `ua` itself uses none of them before it is asked
/// about again.
///
/// # Errors
/// The record of what was let in, or the file, cannot be read.
pub fn no_longer_trusted(settings: &Settings, path: &Path, servers: &[String]) -> Result<Vec<String>, HostError> {
    let known = ever_trusted(settings, path, servers)?;
    if known.is_empty() {
        return Ok(known);
    }
    let file = ConfigFile::found(path);
    let mut config = mcp_config(Some(&file))?;
    config.servers.retain(|(server, _)| known.contains(server));
    Ok(untrusted(settings, &file, &config.servers)?.into_iter().map(|review| review.server).collect())
}

/// Lets servers of a file in as they are now. Returns how many.
pub fn remember(host: &Host, file: &ConfigFile, reviews: Vec<ServerReview>) -> Result<usize, HostError> {
    let mut trusted = Trusted::read(host.settings())?;
    let (path, at, count) = (canonical(&file.path), host.env().now(), reviews.len());
    for ServerReview { server, digest, parts, .. } in reviews {
        let (file, by) = (path.clone(), Some(host.settings().user()));
        trusted.add(Entry { file, server, digest, parts, at, by, annotations: false, is_policy: false });
    }
    trusted.write(host.settings())?;
    Ok(count)
}

/// The servers of a file whose annotations may confirm what names suggest: a person said so of each as it is now.
pub(crate) fn believed(settings: &Settings, file: &ConfigFile, servers: &[(String, Reach)]) -> Vec<String> {
    // Nothing is read, and no program is digested, for those of whom nobody ever said it.
    let Ok(trusted) = Trusted::read(settings) else { return Vec::new() };
    let path = canonical(&file.path);
    let asked = servers.iter().filter(|(name, _)| trusted.may_believe(&path, name));
    let base = path.parent().unwrap_or(Path::new("/"));
    let reviews = asked.map(|(name, reach)| ServerReview::of(settings, base, name, reach));
    reviews
        .filter(|review| trusted.believes(&path, &review.server, &review.digest))
        .map(|review| review.server)
        .collect()
}

/// Lets the annotations of the servers of a file that are trusted as they are now confirm what names suggest. Returns how many.
pub fn believe_annotations(
    settings: &Settings,
    file: &ConfigFile,
    servers: &[(String, Reach)],
) -> Result<usize, HostError> {
    let mut trusted = Trusted::read(settings)?;
    let path = canonical(&file.path);
    let base = path.parent().unwrap_or(Path::new("/"));
    let reviews = servers.iter().map(|(name, reach)| ServerReview::of(settings, base, name, reach));
    let count = reviews.filter(|review| trusted.believe(&path, &review.server, &review.digest)).count();
    trusted.write(settings)?;
    Ok(count)
}

/// A path under which the same file is found again, from wherever it was named.
pub fn canonical(path: &Path) -> PathBuf {
    path.canonicalize().or_else(|_| std::path::absolute(path)).unwrap_or_else(|_| path.to_path_buf())
}
