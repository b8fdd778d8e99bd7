//! `mcp.lock`, beside the MCP configuration it belongs to.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use ua_core::{PrintedCommand, ShowPath as _};
use ua_mcp::DefinitionLock;

use crate::error::HostError;
use crate::placed::{FileKind, Place};
use crate::trust::ConfigFile;

/// Where the lock of an MCP configuration is.
pub fn path_for(config: &Path) -> PathBuf {
    config.with_file_name("mcp.lock")
}

/// The command that writes it: of a file that was found in the current folder, it finds the file itself.
pub fn command(config: &ConfigFile) -> String {
    let lock = PrintedCommand::of("ua tools lock");
    if config.is_found { lock } else { lock.option("--mcp-config", &config.path) }.to_string()
}

/// The most that is read of it.
const MAX_BYTES: u64 = 64 * 1024 * 1024;

/// The lock of an MCP configuration, if there is one.
pub fn read(config: &Path) -> Result<Option<DefinitionLock>, HostError> {
    let path = path_for(config);
    let text = match ua_files::read_text(&path, MAX_BYTES) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(crate::paths::cannot_read("the lock", &path, &error)),
    };
    let lock = Place::named(FileKind::Lock, &path).with(text).parse(|text| {
        DefinitionLock::parse(text).map_err(|why| {
            HostError::usage(format!("cannot read {}: {why}", path.shown()))
                .hint("look at the tools (`ua tools list`), then write it again with `ua tools lock`")
                .not_begun()
        })
    })?;
    Ok(Some(lock))
}

/// Writes a lock in one step.
pub fn write(path: &Path, text: &str) -> Result<(), HostError> {
    let cannot = |error: &std::io::Error| HostError::storage(format!("cannot write {}: {error}", path.shown()));
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    crate::placed::refuse_leading_out(folder)?;
    let mut file = tempfile::NamedTempFile::new_in(folder).map_err(|e| cannot(&e))?;
    file.write_all(text.as_bytes()).and_then(|()| file.as_file().sync_all()).map_err(|e| cannot(&e))?;
    file.persist(path).map(drop).map_err(|e| cannot(&e.error))
}
