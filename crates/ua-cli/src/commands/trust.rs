//! `ua trust`: lets the tool servers of a project in, after a person has seen them; and asking the same when a job needs them.

use std::path::{Path, PathBuf};

use dialoguer::Confirm;
use ua_core::RunSpec;

use crate::args::TrustArgs;
use crate::compose::{self, Launch};
use crate::error::{CliError, FAILED, OK};
use crate::output::{plain, print, print_json, print_table, tell};
use crate::trust::{self, ConfigFile, Entry, PROJECT_FILE, Sight, Trusted};
use crate::view::TrustRow;

use super::ask::{is_attended, prompt};

pub(crate) async fn run(args: &TrustArgs) -> Result<u8, CliError> {
    if args.list {
        return list(args.file.as_deref());
    }
    crate::person::required("let tool servers in")?;
    let code = decide(args).await?;
    // A machine is told what is let in now.
    if crate::terminal::is_json() {
        list(args.file.as_deref())?;
    }
    Ok(code)
}

/// For a person on standard output, beside what a machine reads on standard error.
fn say(text: &str) -> Result<(), CliError> {
    if crate::terminal::is_json() {
        tell(text.trim_end());
        return Ok(());
    }
    print(text)
}

async fn decide(args: &TrustArgs) -> Result<u8, CliError> {
    let path = args.file.clone().unwrap_or_else(|| PathBuf::from(PROJECT_FILE));
    if args.revoke {
        let mut trusted = Trusted::read()?;
        let count = trusted.revoke(&trust::canonical(&path));
        trusted.write()?;
        say(&format!("{count} server(s) of {} are not let in any more\n", plain(&path.display().to_string())))?;
        return Ok(OK);
    }
    if !path.exists() {
        return Err(CliError::usage(format!("there is no {}", path.display()))
            .hint("name the file with an `mcpServers` object, or go to the folder that has one"));
    }
    let file = ConfigFile { path, is_found: true };
    let config = compose::mcp_config(Some(&file))?;
    let unknown = trust::untrusted(&file, &config.servers)?;
    if unknown.is_empty() {
        let count = config.servers.len();
        say(&format!("{}: {count} server(s), nothing new to let in\n", plain(&file.path.display().to_string())))?;
        return Ok(OK);
    }
    say(&shown(&file.path, &unknown))?;
    if args.yes {
        if let Some(loose) = unknown.iter().find(|sight| sight.is_unpinned).filter(|_| !args.allow_unpinned) {
            return Err(CliError::usage(format!(
                "`{}` runs whatever version of its package there is that day",
                loose.server
            ))
            .hint("name an exact version in the file, or add --allow-unpinned"));
        }
    } else if !is_attended() {
        return Err(
            CliError::usage("nobody is here who could say yes").hint("run `ua trust` on a terminal, or add --yes")
        );
    } else if !ask().await? {
        tell("nothing was let in");
        return Ok(FAILED);
    }
    let count = remember(&file, unknown)?;
    say(&format!("{count} server(s) are let in as they are now\n"))?;
    Ok(OK)
}

/// Asks about the servers that a job needs and that nobody let in, while somebody sits at the terminal. Without anybody, or after a no,
/// the check that follows refuses them.
pub(crate) async fn ask_about(launch: &Launch, spec: &RunSpec, may_ask: bool) -> Result<(), CliError> {
    let Some(file) = launch.mcp_file().filter(|file| file.is_found && may_ask && is_attended()) else { return Ok(()) };
    let unknown = launch.untrusted_servers(spec)?;
    if unknown.is_empty() {
        return Ok(());
    }
    tell(shown(&file.path, &unknown).trim_end());
    if ask().await? {
        remember(&file, unknown)?;
    }
    Ok(())
}

fn shown(file: &Path, sights: &[Sight]) -> String {
    let servers: String = sights.iter().map(Sight::shown).collect();
    format!("{} names tool servers that nobody let in as they are now:\n{servers}", plain(&file.display().to_string()))
}

async fn ask() -> Result<bool, CliError> {
    prompt(|| Confirm::new().with_prompt("Let them in, to run and be reached from here?").default(false).interact())
        .await
}

fn remember(file: &ConfigFile, sights: Vec<Sight>) -> Result<usize, CliError> {
    let mut trusted = Trusted::read()?;
    let (path, at, count) = (trust::canonical(&file.path), ua_core::system::env().now(), sights.len());
    for Sight { server, digest, .. } in sights {
        trusted.add(Entry { file: path.clone(), server, digest, at });
    }
    trusted.write()?;
    Ok(count)
}

fn list(only: Option<&Path>) -> Result<u8, CliError> {
    let only = only.map(trust::canonical);
    let trusted = Trusted::read()?;
    let entries = trusted.entries().iter().filter(|entry| only.as_ref().is_none_or(|only| entry.file == *only));
    let rows: Vec<TrustRow> = entries
        .map(|entry| TrustRow {
            file: entry.file.clone(),
            server: entry.server.clone(),
            state: state(entry),
            digest: entry.digest.clone(),
            at: entry.at,
        })
        .collect();
    if crate::terminal::is_json() {
        print_json(&rows)?;
        return Ok(OK);
    }
    let cells = rows
        .iter()
        .map(|row| vec![row.server.clone(), row.state.to_owned(), row.at.to_string(), row.file.display().to_string()]);
    print_table(&["SERVER", "STATE", "SINCE", "FILE"], cells.collect())?;
    Ok(OK)
}

/// How a server that was let in is now.
fn state(entry: &Entry) -> &'static str {
    let config = compose::mcp_config(Some(&ConfigFile::named(&entry.file)));
    let found = config.ok().and_then(|config| config.servers.into_iter().find(|(name, _)| *name == entry.server));
    match found {
        None => "gone",
        Some((name, reach)) if Sight::of(&name, &reach).digest == entry.digest => "trusted",
        Some(_) => "changed",
    }
}
