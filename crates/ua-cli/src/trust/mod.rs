//! Which tool servers of a project a person has let in.
//!
//! A `.mcp.json` that lies in the current folder came with whatever was checked out there, and it names programs to run and addresses
//! to send to. So nothing of it is started or reached until a person has seen it and said yes (`ua trust`). A file that a person
//! names, by `--mcp-config`, `UA_MCP_CONFIG` or the user's own `config.toml`, is trusted by naming it.
//!
//! Invariants: what was said yes to is the digest of everything that decides what happens (command line, environment, program file,
//! scripts named in arguments, address, headers, secrets); any other digest is asked about again; the answers lie in the user's state
//! folder, where no project reaches, in a file that only the user may read.
//! Proved by: this file's tests and the end-to-end tests `trust`.

mod record;
mod sight;

use std::path::{Path, PathBuf};

use ua_mcp::Reach;

use crate::error::CliError;

pub(crate) use record::{Entry, Trusted};
pub(crate) use sight::Sight;

/// The file that is looked for in the current folder.
pub(crate) const PROJECT_FILE: &str = ".mcp.json";

/// A file with an `mcpServers` object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ConfigFile {
    /// Where it is.
    pub(crate) path: PathBuf,
    /// It was found in the current folder; nobody named it.
    pub(crate) is_found: bool,
}

impl ConfigFile {
    /// A file that a person named.
    pub(crate) fn named(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), is_found: false }
    }
}

/// The servers of a file that nobody let in as they are now.
pub(crate) fn untrusted(file: &ConfigFile, servers: &[(String, Reach)]) -> Result<Vec<Sight>, CliError> {
    if !file.is_found || servers.is_empty() {
        return Ok(Vec::new());
    }
    let trusted = Trusted::read()?;
    let path = canonical(&file.path);
    let seen = servers.iter().map(|(name, reach)| Sight::of(name, reach));
    Ok(seen.filter(|sight| !trusted.allows(&path, &sight.server, &sight.digest)).collect())
}

/// Refuses servers that nobody let in.
pub(crate) fn check(file: &ConfigFile, servers: &[(String, Reach)]) -> Result<(), CliError> {
    let unknown = untrusted(file, servers)?;
    if unknown.is_empty() {
        return Ok(());
    }
    let names: Vec<&str> = unknown.iter().map(|sight| sight.server.as_str()).collect();
    Err(CliError::usage(format!(
        "{} was found here and names tool servers that nobody let in as they are now: {}",
        file.path.display(),
        names.join(", ")
    ))
    .hint(format!(
        "look at them with `ua trust {0}`, or name the file with `--mcp-config {0}` if it is yours; nothing was started",
        file.path.display()
    )))
}

/// A path under which the same file is found again, from wherever it was named.
pub(crate) fn canonical(path: &Path) -> PathBuf {
    path.canonicalize().or_else(|_| std::path::absolute(path)).unwrap_or_else(|_| path.to_path_buf())
}
