//! Putting `ua gateway` in front of the tool servers of a client's configuration, and taking it away again.
//!
//! What is not changed stays as it was typed: order, blanks, comments. What a file was before is kept beside the gateway, so that it is put back to
//! the byte; when somebody changed the file since, each entry is taken apart again instead.

use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use ua_core::sha256;
use ua_files::Folder;

use super::spans::members;
use crate::error::HostError;

/// Where clients keep their tool servers, in a JSON file.
const LISTS: [&str; 2] = ["mcpServers", "servers"];
/// What an entry begins with.
const WORD: &str = "gateway";

/// What became of an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// The tool server's name.
    pub server: String,
    /// What was done, or why nothing was.
    pub what: What,
}

/// What was done about an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    /// It goes through the gateway now.
    Wrapped,
    /// It did already.
    Already,
    /// It is as it was before the gateway.
    Unwrapped,
    /// It is no program that is started: not yet.
    NotStdio,
    /// It does not go through the gateway.
    NotWrapped,
}

impl What {
    /// Its word for machines.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Wrapped => "wrapped",
            Self::Already => "already",
            Self::Unwrapped => "unwrapped",
            Self::NotStdio => "not_stdio",
            Self::NotWrapped => "not_wrapped",
        }
    }
}

/// A file as it is after a change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Edited {
    /// Its text.
    pub text: String,
    /// What was changed.
    pub changes: Vec<Change>,
}

struct Edit {
    place: std::ops::Range<usize>,
    text: String,
}

/// The text with `ua gateway` in front of these tool servers, or of all.
///
/// # Errors
/// The text is no configuration that is understood.
fn wrapped(text: &str, program: &str, servers: &[String]) -> Result<Edited, HostError> {
    edited(text, servers, |server, entry| {
        if entry.is_wrapped() {
            return (What::Already, None);
        }
        let Some(command) = entry.command.clone() else { return (What::NotStdio, None) };
        let mut args = vec![json!(WORD), json!("--name"), json!(server)];
        args.extend(entry.env.iter().flat_map(|name| [json!("--env"), json!(name)]));
        args.extend([json!("--"), json!(command)]);
        args.extend(entry.args.iter().cloned());
        (What::Wrapped, Some((program.to_owned(), args)))
    })
}

/// The text with the old commands of these tool servers, or of all.
///
/// # Errors
/// The text is no configuration that is understood.
fn unwrapped(text: &str, servers: &[String]) -> Result<Edited, HostError> {
    edited(text, servers, |_, entry| {
        let behind = entry.args.iter().position(|arg| arg == "--");
        let old = behind.filter(|_| entry.is_wrapped()).and_then(|place| entry.args[place + 1..].split_first());
        match old.and_then(|(command, args)| Some((command.as_str()?.to_owned(), args.to_vec()))) {
            Some(old) => (What::Unwrapped, Some(old)),
            None => (What::NotWrapped, None),
        }
    })
}

/// An entry, as far as it is looked at.
struct Entry {
    command: Option<String>,
    args: Vec<Value>,
    env: Vec<String>,
}

impl Entry {
    /// Whether it goes through a gateway.
    fn is_wrapped(&self) -> bool {
        self.args.first().is_some_and(|first| first == WORD) && self.args.iter().any(|arg| arg == "--")
    }
}

fn edited(
    text: &str,
    servers: &[String],
    change: impl Fn(&str, &Entry) -> (What, Option<(String, Vec<Value>)>),
) -> Result<Edited, HostError> {
    let not_understood = || HostError::usage("this is no client's configuration in JSON");
    let top = members(text, &(0..text.len())).ok_or_else(not_understood)?;
    let list = top.iter().find(|member| LISTS.contains(&member.name.as_str()));
    let list =
        list.ok_or_else(|| HostError::usage("this configuration names no tool servers (`mcpServers`, `servers`)"))?;
    let (mut edits, mut changes) = (Vec::new(), Vec::new());
    for server in members(text, &list.value).ok_or_else(not_understood)? {
        if !servers.is_empty() && !servers.contains(&server.name) {
            continue;
        }
        let fields = members(text, &server.value).ok_or_else(not_understood)?;
        let field = |name: &str| fields.iter().find(|field| field.name == name);
        let read =
            |name: &str| field(name).and_then(|field| serde_json::from_str::<Value>(&text[field.value.clone()]).ok());
        let env = field("env").and_then(|env| members(text, &env.value)).unwrap_or_default();
        let entry = Entry {
            command: read("command").and_then(|command| command.as_str().map(str::to_owned)),
            args: read("args").and_then(|args| args.as_array().cloned()).unwrap_or_default(),
            env: env.into_iter().map(|variable| variable.name).collect(),
        };
        let (what, new) = change(&server.name, &entry);
        changes.push(Change { server: server.name.clone(), what });
        let (Some((command, args)), Some(place)) = (new, field("command")) else { continue };
        let (command, args) = (json!(command).to_string(), Value::Array(args).to_string());
        match field("args") {
            Some(old) => {
                edits.push(Edit { place: place.value.clone(), text: command });
                edits.push(Edit { place: old.value.clone(), text: args });
            }
            None => edits.push(Edit { place: place.value.clone(), text: format!("{command}, \"args\": {args}") }),
        }
    }
    if let Some(missing) = servers.iter().find(|name| !changes.iter().any(|change| change.server == **name)) {
        return Err(HostError::usage(format!("the configuration names no tool server `{missing}`")));
    }
    edits.sort_by_key(|edit| std::cmp::Reverse(edit.place.start));
    let mut edited = text.to_owned();
    for edit in edits {
        edited.replace_range(edit.place, &edit.text);
    }
    Ok(Edited { text: edited, changes })
}

/// What is kept of a file that was changed.
#[derive(Debug, Serialize, Deserialize)]
struct Kept {
    path: PathBuf,
    /// Digest of the text that was written.
    written: String,
    /// The text before the first change.
    before: String,
}

fn kept_at(root: &Path, path: &Path) -> PathBuf {
    root.join("installed").join(format!("{}.json", &sha256(path.display().to_string()).to_hex()[..32]))
}

/// Puts `ua gateway` in front of tool servers of the file at `path`; with `dry_run` only says what would be done.
///
/// # Errors
/// The file cannot be read, understood or written.
pub fn install(
    root: &Path,
    path: &Path,
    program: &str,
    servers: &[String],
    dry_run: bool,
) -> Result<Edited, HostError> {
    let before = read(path)?;
    let edited = wrapped(&before, program, servers)?;
    if dry_run || edited.text == before {
        return Ok(edited);
    }
    let place = kept_at(root, path);
    // A file that is wrapped further keeps what it was before the first time, unless somebody changed it since.
    let earlier = kept(&place).filter(|kept| kept.written == sha256(&before).to_hex());
    let kept = Kept {
        path: path.to_owned(),
        written: sha256(&edited.text).to_hex(),
        before: earlier.map_or(before, |kept| kept.before),
    };
    let folder = place.parent().unwrap_or(root);
    fs::create_dir_all(folder)
        .map_err(|error| HostError::storage(format!("cannot make {}: {error}", folder.display())))?;
    let text = serde_json::to_string(&kept).map_err(|error| HostError::failed(error.to_string()))?;
    // What the file was is kept before it is another one.
    replace(&place, text.as_bytes())?;
    replace(path, edited.text.as_bytes())?;
    Ok(edited)
}

/// Takes `ua gateway` away again: to the byte, if the file is as it was left.
///
/// # Errors
/// The file cannot be read, understood or written.
pub fn uninstall(root: &Path, path: &Path, servers: &[String], dry_run: bool) -> Result<Edited, HostError> {
    let now = read(path)?;
    let place = kept_at(root, path);
    let is_whole = servers.is_empty();
    let kept = kept(&place).filter(|kept| is_whole && kept.written == sha256(&now).to_hex());
    let mut edited = unwrapped(&now, servers)?;
    if let Some(kept) = kept {
        edited.text = kept.before;
    }
    if dry_run {
        return Ok(edited);
    }
    if edited.text != now {
        replace(path, edited.text.as_bytes())?;
    }
    if is_whole {
        match fs::remove_file(&place) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                tracing::debug!(%error, "the record of what a configuration was before could not be removed");
            }
            Ok(()) | Err(_) => {}
        }
    }
    Ok(edited)
}

fn kept(place: &Path) -> Option<Kept> {
    serde_json::from_str(&fs::read_to_string(place).ok()?).ok()
}

fn read(path: &Path) -> Result<String, HostError> {
    fs::read_to_string(path).map_err(|error| HostError::usage(format!("cannot read {}: {error}", path.display())))
}

/// Whoever reads the file sees this text or the one before. Its rights stay; a link stays one.
fn replace(path: &Path, content: &[u8]) -> Result<(), HostError> {
    let failed = |error: io::Error| HostError::storage(format!("cannot write {}: {error}", path.display()));
    let path = match fs::canonicalize(path) {
        Ok(real) => real,
        Err(error) if error.kind() == io::ErrorKind::NotFound => path.to_owned(),
        Err(error) => return Err(failed(error)),
    };
    let mode = fs::metadata(&path).map_or(0o600, |meta| meta.mode() & 0o777);
    let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(failed(io::ErrorKind::InvalidInput.into()));
    };
    Folder::open_itself(folder).and_then(|folder| folder.replace(name, content)).map_err(failed)?;
    fs::set_permissions(&path, fs::Permissions::from_mode(mode)).map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONFIG: &str = "// my servers\n{\n  \"theme\": \"dark\",\n  \"mcpServers\": {\n    \"mail\": {\"command\": \"npx\", \"args\": [\"-y\",   \"mail\"], \"env\": {\"KEY\": \"k\"}},\n    /* plain */ \"notes\": { \"command\" : \"notes-server\" },\n    \"web\": {\"url\": \"https://x\"},\n  },\n}\n";

    #[test]
    fn an_entry_is_wrapped_and_nothing_else_moves() {
        let made = wrapped(CONFIG, "ua", &[]).unwrap();
        let whats: Vec<What> = made.changes.iter().map(|change| change.what).collect();
        assert_eq!(whats, [What::Wrapped, What::Wrapped, What::NotStdio]);
        let text = &made.text;
        assert!(text.contains(r#""mail": {"command": "ua", "args": ["gateway","--name","mail","--env","KEY","--","npx","-y","mail"], "env": {"KEY": "k"}}"#), "{text}");
        assert!(
            text.contains(
                r#"/* plain */ "notes": { "command" : "ua", "args": ["gateway","--name","notes","--","notes-server"] }"#
            ),
            "{text}"
        );
        assert!(
            text.starts_with("// my servers\n{\n  \"theme\": \"dark\",")
                && text.contains("\"web\": {\"url\": \"https://x\"},\n  },")
        );
        let again = wrapped(text, "ua", &[]).unwrap();
        assert_eq!((&again.text, again.changes[0].what), (text, What::Already));
        let one = wrapped(CONFIG, "ua", &["notes".to_owned()]).unwrap();
        assert!(one.changes.len() == 1 && one.text.contains("\"command\": \"npx\""));
        assert!(wrapped(CONFIG, "ua", &["nobody".to_owned()]).is_err() && wrapped("{}", "ua", &[]).is_err());
    }

    #[test]
    fn what_was_installed_is_taken_away_to_the_byte() {
        let folder = tempfile::tempdir().unwrap();
        let (root, path) = (folder.path().join("gateway"), folder.path().join("mcp.json"));
        fs::create_dir(&root).unwrap();
        fs::write(&path, CONFIG).unwrap();
        install(&root, &path, "ua", &["mail".to_owned()], true).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), CONFIG);
        install(&root, &path, "ua", &["mail".to_owned()], false).unwrap();
        install(&root, &path, "ua", &[], false).unwrap();
        assert_ne!(fs::read_to_string(&path).unwrap(), CONFIG);
        uninstall(&root, &path, &[], false).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), CONFIG);
        assert!(!kept_at(&root, &path).exists());

        // Somebody changed it in between: theirs stays, ours goes.
        install(&root, &path, "ua", &[], false).unwrap();
        let theirs = fs::read_to_string(&path).unwrap().replace("dark", "light");
        fs::write(&path, &theirs).unwrap();
        let taken = uninstall(&root, &path, &[], false).unwrap();
        assert!(
            taken.text.contains("light") && taken.text.contains(r#""command": "npx", "args": ["-y","mail"]"#),
            "{}",
            taken.text
        );
        assert!(taken.text.contains(r#""command" : "notes-server", "args": []"#) && !taken.text.contains("gateway"));
    }
}
