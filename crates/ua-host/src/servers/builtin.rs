//! Our own tool server, told by its arguments and environment what the user's settings say.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use ua_classify::Classifier;
use ua_core::{RunSpec, ShowPath as _, ToolNamespace, ToolSpec};
use ua_dispatch::{Catalog, Rules};
use ua_mcp::{Decides, Protocol, Reach, ServerSpec};

use crate::error::HostError;
use crate::host::Host;
use crate::launch::Launch;
#[cfg(feature = "toolserver")]
use crate::settings::SETTINGS;
use crate::settings::Settings;

/// Its name.
pub const BUILTIN: &str = "ua";

/// Our own tool server, as a process like any other.
pub fn builtin_server(
    host: &Host,
    root: &Path,
    workspace: &Path,
    launch: &Launch,
    run_command: bool,
) -> Result<ServerSpec, HostError> {
    let text = |path: &Path| path.to_string_lossy().into_owned();
    // A run goes on wherever it is resumed with what was meant where it was started.
    let settings = &host.settings().clone().begun_in(launch.folder());
    // What it takes of our settings, and our folders where nobody named others. All of it goes by the environment, because every user of
    // the machine can read arguments.
    #[cfg(feature = "toolserver")]
    let mut own = ua_toolserver::environment(|name| settings.var(name));
    #[cfg(not(feature = "toolserver"))]
    let mut own = BTreeMap::new();
    for (name, place) in folders_of_ours(root, &own) {
        own.insert(name.to_owned(), if name == "UA_OBJECTS" { file_url(&place)? } else { text(&place) });
    }
    #[cfg(feature = "toolserver")]
    let receivers = ua_toolserver::receivers(&own);
    #[cfg(not(feature = "toolserver"))]
    let receivers = BTreeMap::new();
    let mut args = vec!["toolserver".to_owned(), "--workspace".to_owned(), text(workspace)];
    args.extend(["--allow-root".to_owned(), text(launch.job_dir())]);
    if let Some(path) = settings.var("PATH") {
        args.extend(["--command-path".to_owned(), path]);
    }
    if run_command {
        args.push("--enable-command".to_owned());
        args.extend(crate::sandbox::flags(settings)?);
    }
    args.extend(crate::sandbox::private_flags(settings, root, launch.job_dir()));
    if launch.allows_private_addresses() {
        args.push("--allow-private-addresses".to_owned());
    }
    let mut env = settings.for_tool_servers();
    env.extend(host.spans().for_own_tool_server());
    env.extend(own);
    let reach = Reach::Stdio { command: text(&settings.program()?), args, env, cwd: Some(workspace.to_path_buf()) };
    // A program that was replaced, and the run's folder, are no other receivers.
    let decides = Decides::Tools(receivers);
    // Of the same build, so nothing is to be found out about it.
    let protocol = Protocol::Handshake;
    Ok(ServerSpec { protocol, decides, ..ServerSpec::new(BUILTIN, ToolNamespace::Local, reach) })
}

/// By tool, the settings that make it what it is and which of them there are here: a person who resumes a run in another shell than it was begun in
/// may lack one.
pub fn made_of(settings: &Settings) -> BTreeMap<String, String> {
    #[cfg(feature = "toolserver")]
    let shaped = ua_toolserver::tool_names().iter().map(|tool| (*tool, ua_toolserver::shaped_by(tool)));
    #[cfg(not(feature = "toolserver"))]
    let shaped = std::iter::empty::<(&str, &[&str])>();
    let is_set = |name: &str| settings.var(name).is_some_and(|value| !value.is_empty());
    let in_words = |names: &[&str]| {
        let (set, missing): (Vec<&str>, Vec<&str>) = names.iter().copied().partition(|name| is_set(name));
        let here = match (set.as_slice(), missing.as_slice()) {
            (_, []) => "set here".to_owned(),
            ([], [_]) => "not set here".to_owned(),
            ([], _) => "none of them set here".to_owned(),
            (set, missing) => format!("set here: {}; not set here: {}", set.join(", "), missing.join(", ")),
        };
        format!("{}, {here}", names.join(", "))
    };
    shaped
        .filter(|(_, names)| !names.is_empty())
        .map(|(tool, names)| (format!("mcp__{BUILTIN}__{tool}"), in_words(names)))
        .collect()
}

/// Where its tools work, by the variable that says so, as far as none of these `variables` does.
fn folders_of_ours(root: &Path, variables: &BTreeMap<String, String>) -> Vec<(&'static str, PathBuf)> {
    let ours = [
        ("UA_OUTBOX", "outbox"),
        ("UA_OBJECTS", "objects"),
        ("UA_NOTIFICATIONS", "notifications"),
        ("UA_MEMORY", "agent_core.db"),
    ];
    let is_named =
        |name: &str| variables.contains_key(name) || name == "UA_OUTBOX" && variables.contains_key("UA_MAIL");
    ours.into_iter().filter(|(name, _)| !is_named(name)).map(|(name, place)| (name, root.join(place))).collect()
}

/// The folder into which the built-in `send_email` writes mails, where no mail server is set.
fn mail_folder(settings: &Settings, root: &Path) -> Option<PathBuf> {
    match settings.var("UA_MAIL").filter(|way| !way.is_empty()) {
        Some(way) => way.strip_prefix("maildir:").map(PathBuf::from),
        None => Some(
            settings
                .var("UA_OUTBOX")
                .filter(|folder| !folder.is_empty())
                .map_or_else(|| root.join("outbox"), PathBuf::from),
        ),
    }
}

/// That mails of the built-in tool go into a folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MailFolder {
    /// The same as a sentence.
    pub sentence: String,
    /// Other tools send mail as well, and the model chooses.
    pub has_others: bool,
}

/// What is said of the built-in `send_email`, where a job is offered it and it sends nothing itself: into which folder it writes, and which others of
/// its tools send mail.
pub fn mail_in_a_folder(
    settings: &Settings,
    root: &Path,
    spec: &RunSpec,
    tools: Vec<ToolSpec>,
    classifier: &Classifier,
) -> Option<MailFolder> {
    let folder = mail_folder(settings, root)?;
    let ours = format!("mcp__{BUILTIN}__send_email");
    // A start waits for what is decided about each tool here, and no other tool of ours sends mail.
    let of_others = |tool: &ToolSpec| tool.name.server != BUILTIN;
    let tools: Vec<ToolSpec> = tools.into_iter().filter(|tool| of_others(tool) || tool.name.raw == ours).collect();
    // A job whose rules or tools cannot be used is refused for that.
    let catalog = Catalog::new(tools, classifier, &Rules::of(spec).ok()?).ok()?;
    let (mut others, _) = catalog.makers_of("email.send");
    let offered = others.len();
    others.retain(|name| *name != ours);
    if others.len() == offered {
        return None;
    }
    let beside = if others.is_empty() {
        String::new()
    } else {
        format!(
            "; beside it the model may choose {}: where mails are to go out by that one, switch the built-in tool off in the job \
             (`\"tools\": {{\"deny\": [\"{}\"]}}`)",
            others.join(", "),
            ours
        )
    };
    let sentence = format!(
        "{} writes each mail into the folder {}, and nothing sends it from there: no mail server is set (`UA_MAIL`){beside}",
        ours,
        folder.shown()
    );
    Some(MailFolder { sentence, has_others: !others.is_empty() })
}

/// Refuses settings that our own tool server cannot work with, by the names that the user gave them: otherwise a run would be stored, and
/// stop because the server does not start. And places that its tools would find out to be of no use in the middle of the work.
///
/// # Errors
/// The first setting or place that is wrong.
#[cfg(feature = "toolserver")]
pub fn check_builtin(settings: &Settings, root: &Path) -> Result<(), HostError> {
    use ua_toolserver::Holds;

    if root.metadata().is_ok_and(|there| !there.is_dir()) {
        let why = format!("{} is not a folder, but the folder of all runs must be one", root.shown());
        return Err(HostError::storage(why).hint("name another folder with --root").not_begun());
    }
    let variables = ua_toolserver::environment(|name| settings.var(name));
    for (name, place) in folders_of_ours(root, &variables) {
        let holds = if name == "UA_MEMORY" { Holds::Database } else { Holds::Files };
        ua_toolserver::look_at(&place, holds).map_err(|error| {
            // Where nothing can be made in the folder of all runs, or that cannot be made itself, no other place for one of these helps.
            let is_missing = place.symlink_metadata().is_err();
            let there = root.ancestors().find(|folder| folder.is_dir()).filter(|_| is_missing);
            if let Some((why, how)) = there.and_then(crate::home::cannot_write) {
                return HostError::storage(why).hint(format!("{how}, or name another folder with --root")).not_begun();
            }
            HostError::storage(format!("cannot use {}, where built-in tools work: {error}", place.shown()))
                .hint(format!("move it away or correct its rights, or name another place in {name}"))
                .not_begun()
        })?;
    }
    if !variables.keys().any(|name| name.starts_with("UA_")) {
        return Ok(());
    }
    let folder = crate::paths::temporary_folder()?;
    let mut wanted = ua_toolserver::Settings::of_variables(folder.path(), &variables);
    let chosen = |name: &str| variables.get(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    wanted.outbox = chosen("UA_OUTBOX").filter(|_| wanted.mail.is_none());
    (wanted.notifications, wanted.memory) = (chosen("UA_NOTIFICATIONS"), chosen("UA_MEMORY"));
    let looked = ua_toolserver::ToolServer::open(&wanted, ua_core::system::env());
    let Err(error) = looked.and_then(|server| server.look_at_places()) else { return Ok(()) };
    // Anything else is for the server itself to say, which is in the folder that it works in.
    let Some((variable, value, why)) = error.variable() else { return Ok(()) };
    let key = SETTINGS.iter().find(|setting| setting.variable == variable).map(|setting| setting.key);
    let name = key.map_or_else(|| variable.clone(), |key| format!("{variable} ({key})"));
    Err(HostError::usage(format!("cannot use {name} {value:?}: {why}"))
        .hint(format!("correct {variable}, or unset it; `ua config show` says where it is set"))
        .not_begun())
}

/// A build without the tool server has nothing to find out.
///
/// # Errors
/// None.
#[cfg(not(feature = "toolserver"))]
pub fn check_builtin(_settings: &Settings, _root: &Path) -> Result<(), HostError> {
    Ok(())
}

fn file_url(path: &Path) -> Result<String, HostError> {
    url::Url::from_directory_path(path)
        .map(String::from)
        .map_err(|()| HostError::usage(format!("{} cannot be written as a file:// address", path.shown())))
}
