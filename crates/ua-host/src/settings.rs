//! Settings in layers: built-in defaults, the user's `config.toml`, the project's `ua.toml`, the environment, flags. Later wins.
//!
//! Read once, into a [`Settings`] that is handed down: nothing else looks at the files or the environment. A setting has a key in the
//! files and a variable in the environment; whoever needs it asks [`Settings::var`] for the variable, and gets what the strongest layer
//! says. The one list of them is [`SETTINGS`].
//!
//! The project's file comes with whatever was checked out there, so it may not set what runs programs, names where requests go, or
//! holds keys; nor is one read that belongs to somebody else.

mod file;
mod list;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::StatVfsMountFlags;

use crate::env::Process;
use crate::error::HostError;
use crate::owner;
use ua_core::{PrintedCommand, ShowPath as _};

pub use file::Layer;
pub use list::{LOG_DEFAULT, SETTINGS, Setting, ValueKind};

/// The name of the project's file.
pub(crate) const PROJECT_FILE: &str = "ua.toml";

/// Whether a text is valid as the settings of a project.
pub(crate) fn is_project_settings(path: &Path, text: &str) -> bool {
    Layer::Project.parse(path, text, None).is_ok()
}

/// What is believed as the user's own word. `secrets.toml` has a stricter rule of its own beside it.
const USER_FILES: [&str; 5] = ["config.toml", "policy.toml", "pricing.toml", "models.toml", "secrets.toml"];

/// Variables that tool servers may see; everything else, keys and tokens above all, stays with us.
const PASSED_ON: [&str; 16] = [
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "LANG",
    "LC_ALL",
    "LC_CTYPE",
    "TZ",
    "TMPDIR",
    "TERM",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "XDG_CONFIG_HOME",
    "XDG_CACHE_HOME",
    "XDG_DATA_HOME",
    "XDG_RUNTIME_DIR",
];

/// What the names of our variables begin with.
const OURS: &str = "UA_";
/// Variables of ours that are no settings, and what the names of stored secrets begin with.
const BESIDE_SETTINGS: [&str; 6] = [
    "UA_APPROVER_TOKEN",
    "UA_COMPLETE",
    "UA_LOGIN_CLIENT_SECRET",
    "UA_TOOLSERVER_TOKEN",
    "UA_TOOL_SERVER_LOCK",
    SECRETS,
];
const SECRETS: &str = "UA_SECRET_";

/// What a file says about a setting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileValue {
    /// As the environment would have it.
    pub value: String,
    /// The file and its line.
    pub place: String,
    /// Whose file it is.
    pub layer: Layer,
}

/// What the files and the environment of one process say.
#[derive(Debug, Clone, Default)]
pub struct Settings {
    process: Process,
    /// Who the person who gave this command says that they are.
    said_by: Option<String>,
    /// The variables in whose place the command line says something.
    by_flag: BTreeSet<String>,
    /// What the files say, by variable.
    values: BTreeMap<&'static str, FileValue>,
    /// What the user's own file says, whatever the project's says over it.
    of_user: BTreeMap<&'static str, FileValue>,
    files: Vec<PathBuf>,
    notes: Vec<String>,
    refused: Option<HostError>,
}

impl Settings {
    /// Reads the files that this process's environment and folder lead to.
    pub fn of_process() -> Self {
        Self::read(Process::own())
    }

    /// Reads the files that a process with this environment and folder has. Whatever can be read counts even if another file is wrong:
    /// [`Self::check`] says what is.
    pub fn read(process: Process) -> Self {
        let mut settings = Self { process, ..Self::default() };
        settings.refused = settings.read_files().err();
        settings
    }

    fn read_files(&mut self) -> Result<(), HostError> {
        for name in USER_FILES {
            self.user_path(name).map_or(Ok(()), |path| believed(&path))?;
        }
        if let Some(path) = self.user_file("config.toml") {
            self.add(Layer::User, path)?;
            // What it names decides as much: programs of tool servers, policies, prices.
            let files =
                |setting: &&Setting| matches!(setting.kind, ValueKind::Path | ValueKind::Program | ValueKind::Paths);
            for setting in SETTINGS.iter().filter(files) {
                let Some(named) = self.of_user.get(setting.variable) else { continue };
                std::env::split_paths(&named.value)
                    .filter(|path| path.is_file())
                    .try_for_each(|path| believed_as(Some(setting.kind), &path))?;
            }
        }
        if let Some(path) = self.project_file() {
            if is_foreign(&path) {
                let owner = owner::other(&path).map_or_else(String::new, |owner| format!(" ({})", owner::named(owner)));
                self.notes.push(format!("{} belongs to another user{owner} and was not read", path.shown()));
            } else {
                self.add(Layer::Project, path)?;
            }
        }
        Ok(())
    }

    fn add(&mut self, layer: Layer, path: PathBuf) -> Result<(), HostError> {
        let said = layer.read(&path, self.of_environment("HOME").as_deref())?;
        if layer == Layer::User {
            self.of_user.extend(said.iter().cloned());
        }
        self.values.extend(said);
        self.files.push(path);
        Ok(())
    }

    /// `ua.toml` of the working directory, or of the nearest folder above it that has one.
    fn project_file(&self) -> Option<PathBuf> {
        let here = self.process.folder.as_deref()?;
        // A pipe or a device in its place is not passed over: reading refuses it.
        let is_there = |path: &PathBuf| path.metadata().is_ok_and(|found| !found.is_dir());
        here.ancestors().map(|folder| folder.join(PROJECT_FILE)).find(is_there)
    }

    /// The folder of the project's file, where that was found.
    pub(crate) fn project_folder(&self) -> Option<PathBuf> {
        self.project_file()?.parent().map(Path::to_path_buf)
    }

    /// The same with what the command line says in the place of a variable.
    #[must_use]
    pub fn with(mut self, name: &str, value: Option<String>) -> Self {
        if let Some(value) = value {
            self.by_flag.insert(name.to_owned());
            self.process.variables.insert(name.to_owned(), value);
        }
        self
    }

    /// Whether the command line says something in the place of a variable.
    pub(crate) fn is_by_flag(&self, name: &str) -> bool {
        self.by_flag.contains(name)
    }

    /// The same with this in the environment in the place of a variable; without the variable where that is nothing.
    #[must_use]
    pub(crate) fn in_place_of(mut self, name: &str, value: Option<String>) -> Self {
        match value {
            Some(value) => self.process.variables.insert(name.to_owned(), value),
            None => self.process.variables.remove(name),
        };
        self
    }

    /// The same, with who the person who gave this command says that they are.
    #[must_use]
    pub fn said_by(mut self, name: Option<String>) -> Self {
        self.said_by = name;
        self
    }

    /// Says what is wrong with a file, or with a variable of the environment: a value that it does not take would count as none.
    ///
    /// # Errors
    /// The first of what [`Self::problems`] finds.
    pub fn check(&self) -> Result<(), HostError> {
        self.problems().into_iter().next().map_or(Ok(()), Err)
    }

    /// Everything that is wrong with the files and the variables of the environment.
    pub fn problems(&self) -> Vec<HostError> {
        let refused = self.refused.clone().into_iter();
        let known = known_variables();
        let misspelt = self.process.variables.keys().filter_map(|name| misspelt(name, &known));
        let settings = SETTINGS.iter().filter_map(|setting| self.problem(setting));
        refused.chain(misspelt).chain(self.state_of_others()).chain(settings).collect()
    }

    /// The variables of the environment that begin as ours do and that nothing reads, each with the one that is most like it. What a name is near enough
    /// to be one of ours misspelt, or what a job says, is an error of every command ([`Self::problems`]) and not among these.
    pub fn unread(&self) -> Vec<(String, Option<String>)> {
        let known = known_variables();
        let is_unread = |name: &&String| {
            name.starts_with(OURS)
                && !name.starts_with(SECRETS)
                && !known.contains(*name)
                && misspelt(name, &known).is_none()
        };
        let nearest = |name: &String| {
            let others = known.iter().filter_map(|known| known.strip_prefix(OURS));
            ua_core::nearest(name.trim_start_matches(OURS), others).map(|nearest| format!("{OURS}{nearest}"))
        };
        let unread = self.process.variables.keys().filter(is_unread);
        unread.map(|name| (name.clone(), nearest(name))).collect()
    }

    /// The variables of the environment that hold a secret of the user's, by name.
    pub(crate) fn secrets_of_environment(&self) -> impl Iterator<Item = String> {
        self.process.variables.keys().filter(|name| name.starts_with(SECRETS)).cloned()
    }

    /// That others may change what is believed because it is in the user's state folder: which servers are trusted, which roots are this user's.
    fn state_of_others(&self) -> Option<HostError> {
        let state = crate::roots::state_folder(self)?;
        // A first start makes it, and every command after that looks at what it is in: what they would refuse is said before anything is
        // sent. Where it cannot be made, nothing is ever believed because it is in there.
        if !state.is_dir() {
            let there = state.ancestors().find(|folder| folder.exists())?;
            rustix::fs::access(there, rustix::fs::Access::WRITE_OK).ok()?;
        }
        changed_by_others(&state.join("trust.json"))
    }

    /// What is wrong with one setting. A file's kinds of values were looked at when it was read.
    fn problem(&self, setting: &Setting) -> Option<HostError> {
        if setting.is_believed() && self.is_relative(setting.variable) {
            return Some(self.relative(setting));
        }
        let of_environment = self.of_environment(setting.variable);
        let value = of_environment.clone().or_else(|| self.var(setting.variable))?;
        let is_number = || value.bytes().all(|byte| byte.is_ascii_digit());
        let of_kind = of_environment.as_ref().and_then(|_| {
            Some(match setting.kind {
                ValueKind::Seconds if !is_number() => "whole seconds".to_owned(),
                ValueKind::Number if !is_number() => "a whole number".to_owned(),
                ValueKind::Flag if !matches!(value.as_str(), "1" | "0" | "true" | "false") => {
                    "`true` or `false`".to_owned()
                }
                ValueKind::Word(words) if !words.contains(&value.as_str()) => format!("one of {}", words.join(", ")),
                ValueKind::Text
                | ValueKind::Path
                | ValueKind::Program
                | ValueKind::PathAfter(_)
                | ValueKind::Paths
                | ValueKind::Secret
                | ValueKind::Seconds
                | ValueKind::Number
                | ValueKind::Flag
                | ValueKind::Word(_) => return None,
            })
        });
        let takes = of_kind.or_else(|| list::takes_instead(setting.variable, &value))?;
        let place = if of_environment.is_some() {
            setting.variable.to_owned()
        } else {
            let place = self.of_files(setting.variable).map_or_else(String::new, |said| format!("{}: ", said.place));
            format!("{place}`{}`", setting.key)
        };
        let said = crate::text::line(&value, 60);
        Some(
            HostError::usage(format!("{place} is `{said}`, but must be {takes}"))
                .hint("`ua config show` lists every setting; nothing was done"),
        )
    }

    /// Whether a variable of the environment names a place that begins at the current folder. It is set once and meant for everywhere, so in each
    /// checkout it is what that checkout brought, and no word of the user's.
    fn is_relative(&self, name: &str) -> bool {
        // One that is empty names no place: it is as good as not set, or refused in its own words.
        let given = self.process.variables.get(name).filter(|value| !value.is_empty());
        let Some(value) = given.filter(|_| !self.by_flag.contains(name)) else {
            return false;
        };
        let Some(setting) = SETTINGS.iter().find(|setting| setting.variable == name) else { return false };
        setting.kind.paths_in(value).iter().any(|path| path.is_relative())
    }

    /// The refusal of such a one, of what is believed without a look.
    fn relative(&self, setting: &Setting) -> HostError {
        let variable = setting.variable;
        let said = self.process.variables.get(variable).map(|value| crate::text::line(value, 60)).unwrap_or_default();
        let whole = self.of_environment(variable).unwrap_or_default();
        let export = PrintedCommand::of("export").word(format!("{variable}={whole}"));
        HostError::usage(format!(
            "{variable} is `{said}`, a path that begins at the current folder: in a checkout it would be what the checkout brought"
        ))
        .hint(format!("if it is the one meant here, write it whole, `{export}`; nothing was done"))
    }

    /// Refuses a variable that is set to nothing, where to take it for one that is not set means another place: a secret of a deployment that is
    /// missing, a variable of a script that has another name.
    ///
    /// # Errors
    /// It is set, and empty.
    pub(crate) fn not_empty(&self, variable: &str) -> Result<(), HostError> {
        if self.process.variables.get(variable).is_none_or(|value| !value.is_empty()) {
            return Ok(());
        }
        Err(HostError::usage(format!("the variable {variable} is set and empty")).hint(format!(
            "it says where runs are kept: give it its value, or `unset {variable}` to do without it; nothing was done"
        )))
    }

    /// A variable of the environment, or what the files say in its place. One that is empty is as good as not set.
    pub fn var(&self, name: &str) -> Option<String> {
        self.of_environment(name).or_else(|| self.values.get(name).map(|said| said.value.clone()))
    }

    /// A variable of the environment alone, unless it is missing, empty or not text. A path of a setting is absolute, so that it means the same to
    /// whoever it is handed to: a tool server works in another folder.
    pub fn of_environment(&self, name: &str) -> Option<String> {
        let value = self.process.variables.get(name).filter(|value| !value.is_empty())?;
        let kind = SETTINGS.iter().find(|setting| setting.variable == name).map(|setting| setting.kind);
        // One that cannot be made absolute is for whoever uses it to refuse.
        let whole = |path: &str| {
            self.absolute(Path::new(path)).map_or_else(|_| path.to_owned(), |path| path.to_string_lossy().into_owned())
        };
        Some(kind.map_or_else(|| value.clone(), |kind| kind.with_paths(value, whole)))
    }

    /// The same settings for what was begun in another folder, at which relative paths of the environment start then.
    #[must_use]
    pub fn begun_in(mut self, folder: Option<&Path>) -> Self {
        if let Some(folder) = folder {
            self.process.folder = Some(folder.to_path_buf());
        }
        self
    }

    /// A setting by the name that it was given with: its variable, or its key in a file with the line. What is wrong with a setting is said of
    /// this, so that whoever reads it finds it.
    pub fn said_as(&self, variable: &str) -> String {
        let key = || SETTINGS.iter().find(|setting| setting.variable == variable).map(|setting| setting.key);
        match (self.of_environment(variable), self.of_files(variable)) {
            (None, Some(said)) => format!("`{}` ({})", key().unwrap_or(variable), said.place),
            (Some(_), _) | (None, None) => variable.to_owned(),
        }
    }

    /// What a file says in the place of a variable, and where.
    pub fn of_files(&self, name: &str) -> Option<&FileValue> {
        self.values.get(name)
    }

    /// What the user's own file says in the place of a variable, even where a project says otherwise.
    pub(crate) fn of_users_file(&self, name: &str) -> Option<&str> {
        self.of_user.get(name).map(|said| said.value.as_str())
    }

    /// Whether only a project says it.
    pub(crate) fn is_the_projects(&self, name: &str) -> bool {
        self.var(name).is_some() && !self.is_the_users(name)
    }

    /// Whether the user says it, by the environment or their own configuration, and not the project: neither by its file nor by what lies in its
    /// folder under the name that the environment has.
    pub(crate) fn is_the_users(&self, name: &str) -> bool {
        if self.of_environment(name).is_some() {
            return !self.is_relative(name);
        }
        self.values.get(name).is_some_and(|said| said.layer == Layer::User)
    }

    /// Whether a switch is on: `1` or `true`.
    pub fn is_on(&self, name: &str) -> bool {
        self.var(name).is_some_and(|value| value == "1" || value == "true")
    }

    /// Every file and folder that a setting names, with the key of the setting.
    pub(crate) fn places(&self) -> Vec<(&'static str, PathBuf)> {
        let named = SETTINGS.iter().filter_map(|setting| Some((setting, self.var(setting.variable)?)));
        let places = named
            .flat_map(|(setting, value)| setting.kind.paths_in(&value).into_iter().map(|path| (setting.key, path)));
        places.filter_map(|(key, path)| Some((key, self.absolute(&path).ok()?))).collect()
    }

    /// Every variable of the environment whose name begins with one of `prefixes`.
    pub fn beginning_with(&self, prefixes: &[&str]) -> BTreeMap<String, String> {
        let all = self.process.variables.iter();
        let wanted = all.filter(|(name, _)| prefixes.iter().any(|prefix| name.starts_with(prefix)));
        wanted.map(|(name, value)| (name.clone(), value.clone())).collect()
    }

    /// The environment a tool server starts with, before its own configuration is added.
    pub fn for_tool_servers(&self) -> BTreeMap<String, String> {
        PASSED_ON.iter().filter_map(|name| Some(((*name).to_owned(), self.var(name)?))).collect()
    }

    /// A file of the user's own configuration, if there is one. One that others may change is none: [`Self::check`] says so.
    pub fn user_file(&self, name: &str) -> Option<PathBuf> {
        self.user_path(name).filter(|file| changed_by_others(file).is_none())
    }

    fn user_path(&self, name: &str) -> Option<PathBuf> {
        self.user_place(name).filter(|file| file.exists())
    }

    /// Where a file of the user's configuration would be, whether or not it is there.
    pub fn user_place(&self, name: &str) -> Option<PathBuf> {
        // One that begins at the current folder is none: the folder may be a checkout's.
        let absolute = |name: &str| self.var(name).map(PathBuf::from).filter(|path| path.is_absolute());
        let config = absolute("XDG_CONFIG_HOME").or_else(|| Some(absolute("HOME")?.join(".config")))?;
        Some(config.join("ua").join(name))
    }

    /// Who decides here, for what is noted as said by a person, wherever it is noted: who they say they are, or who called `sudo`, beside the user
    /// that this process runs as. Several people may answer as the user of a service, and which of them it was is asked later.
    pub fn user(&self) -> String {
        // A bare shell (`docker exec`) has no such variable, and is somebody's all the same.
        let named = ["USER", "LOGNAME"].into_iter().find_map(|name| self.of_environment(name));
        let user = named.unwrap_or_else(|| ua_files::user_name(rustix::process::geteuid().as_raw()));
        let person = self.said_by.clone().or_else(|| self.of_environment("SUDO_USER"));
        match person.filter(|person| *person != user) {
            Some(person) => format!("{person} as {user}"),
            None => user,
        }
    }

    /// The program that helpers are started as ([`Process::program`]).
    pub fn program(&self) -> Result<PathBuf, HostError> {
        self.process.program.clone().ok_or_else(|| HostError::failed("cannot find this program's own file"))
    }

    /// What a path means to this process: relative ones are of the folder it works in.
    pub fn absolute(&self, path: &Path) -> Result<PathBuf, HostError> {
        let unusable = |why: &dyn std::fmt::Display| HostError::usage(format!("cannot use {}: {why}", path.shown()));
        if path.as_os_str().is_empty() {
            return Err(unusable(&"a path cannot be empty"));
        }
        let whole = self.process.folder.as_ref().map_or_else(|| path.to_path_buf(), |folder| folder.join(path));
        std::path::absolute(whole).map_err(|error| unusable(&error))
    }

    /// The files that were read, the weakest first.
    pub fn files(&self) -> &[PathBuf] {
        &self.files
    }

    /// What is worth knowing about files that were not read.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }
}

/// The variables of ours that something reads, without the names of stored secrets.
fn known_variables() -> Vec<String> {
    let own = SETTINGS.iter().map(|setting| setting.variable).chain(BESIDE_SETTINGS).map(str::to_owned);
    #[cfg(feature = "toolserver")]
    return own.chain(ua_toolserver::variables()).collect();
    #[cfg(not(feature = "toolserver"))]
    own.collect()
}

/// Words that people have for what a job says in a field of another name.
const SAID_BY_A_JOB: [(&str, &str); 10] = [
    ("allow", "tools.allow"),
    ("allowed_tools", "tools.allow"),
    ("approval", "escalation.ask_human_before"),
    ("approvals", "escalation.ask_human_before"),
    ("ask_before", "escalation.ask_human_before"),
    ("require_approval", "escalation.ask_human_before"),
    ("budget", "budgets.max_cost"),
    ("max_budget", "budgets.max_cost"),
    ("denied_tools", "tools.deny"),
    ("deny", "tools.deny"),
];

/// What is wrong with a variable whose name is nearly one of ours, or what a job says: it would count as none, and what it was to protect is not
/// protected. One that only begins like ours may be anybody's.
fn misspelt(name: &str, known: &[String]) -> Option<HostError> {
    let said = name.strip_prefix(OURS)?;
    if name.starts_with(SECRETS) || known.iter().any(|known| known == name) {
        return None;
    }
    let key = said.to_lowercase();
    let by_key = SETTINGS.iter().find(|setting| setting.key == key).map(|setting| setting.variable);
    let may_slip = if said.len() < 6 { 1 } else { 2 };
    let is_near = |known: &&str| {
        let known = known.trim_start_matches(OURS);
        ua_core::slips(said, known) <= may_slip
            || (said.len() >= 6 && known.strip_prefix(said).is_some_and(|rest| rest.starts_with('_')))
            || (said.len() >= 7 && known.strip_suffix(said).is_some_and(|rest| rest.ends_with('_')))
    };
    let nearest = || known.iter().map(String::as_str).filter(is_near).min_by_key(|known| ua_core::slips(name, known));
    let refused = HostError::usage(format!("there is no environment variable `{}`", crate::text::line(name, 60)));
    let by_words = || SAID_BY_A_JOB.iter().find(|(words, _)| *words == key).map(|(_, field)| (*field).to_owned());
    let Some(meant) = by_key.or_else(nearest) else {
        let field = ua_core::guard_meant(&key).or_else(by_words)?;
        return Some(refused.hint(format!(
            "a job says it itself, in its field `{field}` (docs/guide/job-file.md); the variable would count for nothing, so unset it; nothing was done"
        )));
    };
    Some(refused.hint(format!("did you mean `{meant}`? `ua config show` lists every setting; nothing was done")))
}

/// Refuses a file of the user's that others may change: they would decide what is run and sent.
///
/// # Errors
/// It, or its folder, belongs to another user or may be changed by one.
pub(crate) fn believed(path: &Path) -> Result<(), HostError> {
    changed_by_others(path).map_or(Ok(()), Err)
}

/// The same of what a value of this kind names. A program of the machine's own is its administrators', whoever they are (`/opt/homebrew`).
///
/// # Errors
/// See there.
pub(crate) fn believed_as(kind: Option<ValueKind>, path: &Path) -> Result<(), HostError> {
    let is_machines = |path: &Path| is_systems(path) && program_open_to_strangers(path).is_none();
    let with_folder = |path: &Path| is_machines(path) && path.parent().is_some_and(is_machines);
    // And where a link leads.
    if kind == Some(ValueKind::Program) && with_folder(path) && path.canonicalize().is_ok_and(|path| with_folder(&path))
    {
        return Ok(());
    }
    believed(path)
}

/// The refusal of a file that others may change. Root, who may change everything, may own it.
fn changed_by_others(path: &Path) -> Option<HostError> {
    let file = path;
    let refused = |path: &Path, why: &str, how: String| {
        Some(HostError::usage(format!("cannot trust {}: {why}", path.shown())).hint(format!("{how}; nothing was done")))
    };
    // Whoever made a link chose what is believed, however well that is kept: a checkout of this user's has files of others.
    let (ways, links) = ways_to(path);
    if let Some((link, owner)) = links.iter().find_map(|link| Some((link, maker_of(link)?))) {
        let how = format!("look at where it leads, then make it yourself: {}", ua_core::shell_word(link));
        return refused(link, &format!("it is a link of another user ({})", owner::named(owner)), how);
    }
    // The folder, too: whoever may write there puts another file in its place. And where a link leads.
    for path in ways.iter().map(PathBuf::as_path).flat_map(|path| [path.parent().unwrap_or(path), path]) {
        if let Some((why, how)) = open_to_others(path) {
            return refused(path, &why, how);
        }
    }
    // Above it, whoever may write puts another folder in its place, or a link.
    let above = ways.iter().flat_map(|path| path.ancestors().skip(2));
    above.into_iter().find_map(|folder| Some((folder, folder_open_to_others(folder)?))).and_then(|(folder, why)| {
        let foreign = owner::other(folder).filter(|_| is_anothers(folder));
        let mut how = closing(folder).map_or_else(
            || format!("keep {} in a folder that only you can change", ua_core::shell_word(file)),
            |mend| format!("look at what is in it, then {mend} {}", ua_core::shell_word(folder)),
        );
        if let Some(owner) = foreign.filter(|_| rustix::process::geteuid().is_root()) {
            how = format!("{}, or {how}", owner::as_that_user(owner));
        }
        refused(folder, &foreign.map_or_else(|| why.to_owned(), foreign_in_words), how)
    })
}

/// As many links as the kernel follows for one path.
const MAX_LINKS: usize = 40;

/// The ways to what a path names: the path itself, what each link on it makes of it in turn, and where that is in the end. And the links.
fn ways_to(path: &Path) -> (Vec<PathBuf>, Vec<PathBuf>) {
    let (mut ways, mut links) = (vec![path.to_path_buf()], Vec::new());
    let mut way = path.to_path_buf();
    for _ in 0..MAX_LINKS {
        let is_link = |above: &&Path| std::fs::symlink_metadata(above).is_ok_and(|file| file.is_symlink());
        let above: Vec<&Path> = way.ancestors().collect();
        let Some(link) = above.into_iter().rev().find(is_link).map(Path::to_path_buf) else { break };
        let (Ok(target), Ok(behind)) = (std::fs::read_link(&link), way.strip_prefix(&link)) else { break };
        let leads_to = link.parent().unwrap_or(Path::new("")).join(target);
        // With nothing behind it, `join` would only add a slash, and with that a link is followed where it is looked at.
        way = if behind.as_os_str().is_empty() { leads_to } else { leads_to.join(behind) };
        ways.push(way.clone());
        links.push(link);
    }
    ways.extend(path.canonicalize());
    (ways, links)
}

/// Who made a link, if that is neither this user nor root.
fn maker_of(link: &Path) -> Option<u32> {
    let owner = std::fs::symlink_metadata(link).ok()?.uid();
    let is_ours = [rustix::process::geteuid().as_raw(), 0].contains(&owner);
    // Where root has no number, what stands right below `/` is its, as in `is_roots_unmapped`.
    let is_roots = || is_roots_unmapped(link) && std::fs::metadata("/").is_ok_and(|root| root.uid() == owner);
    (!is_ours && !is_roots()).then_some(owner)
}

/// Why others than this user and root may change what is above a file that is believed; a group that this user shares with somebody is others.
fn folder_open_to_others(folder: &Path) -> Option<&'static str> {
    std::fs::metadata(folder).ok()?;
    if is_anothers(folder) {
        return Some(FOREIGN);
    }
    // Of these folders alone also root's group, which is root, may change one: containers with users of any number have their homes open to
    // it (OpenShift), and nobody else there. The file and the folder that it is in are closed to it.
    open_beyond(folder, |group| group == 0 || ua_files::is_own_group(group)).then_some(CHANGED)
}

/// Why others than this user and root may change a file, or what a folder has under a name, and what ends it; `None` where nobody else may, or
/// nothing is there.
fn open_to_others(path: &Path) -> Option<(String, String)> {
    std::fs::metadata(path).ok()?;
    if let Some(owner) = owner::other(path).filter(|_| is_foreign(path)) {
        return Some((foreign_in_words(owner), owner::believe_own(owner, path)));
    }
    let is_open = open_beyond(path, ua_files::is_own_group);
    is_open.then(|| {
        let mend = format!("look at what is in it, then chmod go-w {}", ua_core::shell_word(path));
        (CHANGED.to_owned(), mend)
    })
}

/// The same of a program that was found through `PATH`, and of a folder on the way to it. What the machine's own programs are in is its
/// administrators', whoever they are (`/opt/homebrew`, of another user or of the group `admin`): whoever works there runs these programs anyway.
pub(crate) fn program_open_to_strangers(path: &Path) -> Option<&'static str> {
    if is_systems(path) { open_to_all(path).then_some(CHANGED) } else { open_to_strangers(path) }
}

/// The same of what a project and this machine have for more than one, and why alone: who is in a group with others (a team's checkout) shares what
/// the group may change.
pub(crate) fn open_to_strangers(path: &Path) -> Option<&'static str> {
    std::fs::metadata(path).ok()?;
    if is_anothers(path) {
        return Some(FOREIGN);
    }
    let own = rustix::process::getegid().as_raw();
    let others = rustix::process::getgroups().unwrap_or_default();
    let is_ours = |group| group == own || others.iter().any(|other| other.as_raw() == group);
    open_beyond(path, is_ours).then_some(CHANGED)
}

/// The command by which this user ends that others may change it; `None` where it is not theirs to end, or modes mean nothing there.
pub(crate) fn closing(path: &Path) -> Option<&'static str> {
    let is_own = std::fs::metadata(path).is_ok_and(|file| file.uid() == rustix::process::geteuid().as_raw());
    (is_own && !is_systems(path) && has_modes(path)).then_some("chmod go-w")
}

/// Folders in which the machine's own programs are, which change by its updates.
const OF_SYSTEM: [&str; 10] = ["/bin", "/etc", "/gnu", "/lib", "/lib64", "/nix", "/opt", "/sbin", "/snap", "/usr"];

pub(crate) fn is_systems(path: &Path) -> bool {
    OF_SYSTEM.iter().any(|folder| path.starts_with(folder))
}

/// Whether the folder stands right below `/`, or is that, and root's, in a user namespace (a sandbox) that has no number for root: there all that
/// is of no user of it has the same owner, so that of nothing further down it is known whose it is.
#[expect(clippy::disallowed_methods, reason = "the kernel's own file")]
fn is_roots_unmapped(path: &Path) -> bool {
    let unmapped = std::fs::read_to_string("/proc/sys/kernel/overflowuid").ok();
    let unmapped: Option<u32> = unmapped.and_then(|number| number.trim().parse().ok());
    let owner = |path: &Path| std::fs::metadata(path).map(|file| file.uid()).ok();
    let is_top = path.is_absolute() && path.components().count() <= 2;
    is_top && unmapped.is_some() && owner(Path::new("/")) == unmapped && owner(path) == unmapped
}

/// Whether `chmod` does something there: a drive of Windows (WSL) gives whatever it has all modes.
#[cfg(target_os = "linux")]
fn has_modes(path: &Path) -> bool {
    const OF_PLAN_9: u64 = 0x0102_1997;
    const OF_WSL: u64 = 0x5346_4846;
    let kind = rustix::fs::statfs(path).map(|mount| u64::try_from(mount.f_type).unwrap_or_default());
    !kind.is_ok_and(|kind| [OF_PLAN_9, OF_WSL].contains(&kind))
}

#[cfg(not(target_os = "linux"))]
fn has_modes(_: &Path) -> bool {
    true
}

const FOREIGN: &str = "it belongs to another user";
const CHANGED: &str = "other users can change it";

fn foreign_in_words(owner: u32) -> String {
    format!("{FOREIGN} ({})", owner::named(owner))
}

/// Whether somebody who is not `is_ours` may change it by its group, or anybody.
fn open_beyond(path: &Path, is_ours: impl Fn(u32) -> bool) -> bool {
    let by_group = |meta: &Metadata| meta.mode() & 0o020 != 0 && !is_ours(meta.gid());
    changeable(path, |meta| meta.mode() & 0o002 != 0 || by_group(meta))
}

fn open_to_all(path: &Path) -> bool {
    changeable(path, |meta| meta.mode() & 0o002 != 0)
}

fn changeable(path: &Path, by_modes: impl Fn(&Metadata) -> bool) -> bool {
    let Ok(meta) = std::fs::metadata(path) else { return false };
    // A mount that nobody may write (a container's configuration) often has the modes of nobody's care.
    let is_fixed = rustix::fs::statvfs(path).is_ok_and(|mount| mount.f_flag.contains(StatVfsMountFlags::RDONLY));
    // In a folder like /tmp nobody replaces what is another's.
    let is_kept = meta.is_dir() && meta.mode() & 0o1000 != 0;
    !is_fixed && !is_kept && by_modes(&meta)
}

/// Whether a file belongs neither to this user nor to root.
fn is_foreign(path: &Path) -> bool {
    let ours = rustix::process::geteuid().as_raw();
    std::fs::metadata(path).map_or(true, |file| file.uid() != ours && file.uid() != 0)
}

/// Whether a file is another user's, as far as anybody can tell here.
fn is_anothers(path: &Path) -> bool {
    is_foreign(path) && !is_roots_unmapped(path)
}

/// Gives a file to a group in which this user is not alone, for tests; says whether there is one that it can be given to.
#[cfg(test)]
pub(crate) fn shared_with_a_group(path: &Path) -> bool {
    // Root may give it to any.
    let nobodys = rustix::process::geteuid().is_root().then_some(65_534);
    let own = rustix::process::getgroups().unwrap_or_default().into_iter().map(rustix::fs::Gid::as_raw);
    let group = nobodys.or_else(|| own.into_iter().find(|group| *group != 0 && !ua_files::is_own_group(*group)));
    group.is_some_and(|group| std::os::unix::fs::chown(path, None, Some(group)).is_ok())
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "tests make the files that they look at")]
mod tests {
    use super::*;

    #[test]
    fn who_decides_is_named_beside_the_user_whose_rights_they_have() {
        let who = |variables: &[(&str, &str)], by: Option<&str>| {
            let variables = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
            let settings = Settings::read(Process { variables, ..Process::default() });
            settings.said_by(by.map(str::to_owned)).user()
        };
        let nameless = ua_files::user_name(rustix::process::geteuid().as_raw());
        assert_eq!(who(&[], None), nameless);
        assert_eq!(who(&[("USER", ""), ("LOGNAME", "alice")], None), "alice");
        assert_eq!(who(&[("USER", "alice")], None), "alice");
        assert_eq!(who(&[("USER", "ua"), ("SUDO_USER", "alice")], None), "alice as ua");
        assert_eq!(who(&[("USER", "alice"), ("SUDO_USER", "alice")], None), "alice");
        assert_eq!(who(&[("USER", "ua"), ("SUDO_USER", "alice")], Some("Ada")), "Ada as ua");
        assert_eq!(who(&[], Some("Ada")), format!("Ada as {nameless}"));
    }

    /// Over every setting with a path: what a checkout would bring is refused where it would be believed, and is never the user's word.
    #[test]
    fn s18_a_relative_path_in_the_environment_is_no_word_of_the_users() {
        let read = |variable: &str, value: &str| {
            let variables = [(variable.to_owned(), value.to_owned())].into();
            Settings::read(Process { variables, folder: Some("/checkout".into()), program: None })
        };
        let mut believed = Vec::new();
        for setting in SETTINGS {
            let (relative, whole) = match setting.kind {
                ValueKind::Path => ("here/it", "/own/it"),
                ValueKind::Program => ("./it", "/own/it"),
                ValueKind::Paths => ("/own/it:it", "/own/it:/own/other"),
                ValueKind::PathAfter("maildir:") => ("maildir:it", "maildir:/own/it"),
                ValueKind::PathAfter(_) => panic!("{}: say what it looks like", setting.variable),
                ValueKind::Text
                | ValueKind::Secret
                | ValueKind::Seconds
                | ValueKind::Number
                | ValueKind::Flag
                | ValueKind::Word(_) => continue,
            };
            let found = read(setting.variable, relative);
            assert!(!found.is_the_users(setting.variable), "{}", setting.variable);
            if setting.is_believed() {
                believed.push(setting.variable);
                let refused = found.check().unwrap_err().to_string();
                assert!(refused.contains(setting.variable) && refused.contains(relative), "{refused}");
            }
            let given = found.with(setting.variable, Some(relative.to_owned()));
            assert!(given.is_the_users(setting.variable), "{}: a flag is given with the command", setting.variable);
            let named = read(setting.variable, whole);
            assert!(named.is_the_users(setting.variable) && named.check().is_ok(), "{}", setting.variable);
            // Nothing is no path, and nobody's word: where that means another place, it is refused in words of its own.
            let empty = read(setting.variable, "");
            assert!(!empty.is_the_users(setting.variable) && empty.check().is_ok(), "{}", setting.variable);
        }
        let wanted = [
            "UA_RUNTIME_DB_PATH",
            "UA_MCP_CONFIG",
            "UA_POLICY",
            "UA_CASSETTE",
            "UA_CLAUDE_CODE",
            "UA_COMMAND_READ",
            "UA_MAIL_CA_FILE",
            "UA_MEMORY",
        ];
        assert_eq!(believed, wanted);
    }

    /// What this user cannot close is not told to be closed, and what the machine's administrators have is theirs.
    #[test]
    fn what_strangers_may_change_is_told_apart_from_what_administrators_do() {
        use std::os::unix::fs::PermissionsExt as _;
        for systems in ["/usr", "/usr/bin", "/opt"].map(Path::new) {
            assert_eq!((program_open_to_strangers(systems), closing(systems)), (None, None), "{}", systems.display());
        }
        assert_eq!(open_to_strangers(Path::new("/nowhere/at/all")), None);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        std::fs::write(&path, "").unwrap();
        for (mode, why) in [(0o644, None), (0o664, None), (0o666, Some(CHANGED))] {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(open_to_strangers(&path), why, "{mode:o}");
        }
        assert_eq!(closing(&path), Some("chmod go-w"));
        // Only root can give a file to somebody.
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(&path, Some(65_534), None).unwrap();
            assert_eq!((open_to_strangers(&path), closing(&path)), (Some(FOREIGN), None));
            // Below a folder of the system a checkout of another user is no less theirs; of a program that is looked up it is not asked.
            if let Ok(below) = tempfile::tempdir_in("/opt") {
                let path = below.path().join("srv.py");
                std::fs::write(&path, "").unwrap();
                std::os::unix::fs::chown(&path, Some(65_534), None).unwrap();
                assert_eq!((open_to_strangers(&path), program_open_to_strangers(&path)), (Some(FOREIGN), None));
            }
        }
    }

    #[test]
    fn two_processes_in_one_have_settings_of_their_own() {
        let folder = tempfile::tempdir().unwrap();
        let (home, project) = (folder.path().join("home"), folder.path().join("project"));
        std::fs::create_dir_all(home.join(".config/ua")).unwrap();
        std::fs::create_dir_all(project.join("below")).unwrap();
        std::fs::write(home.join(".config/ua/config.toml"), "root = \"~/runs\"\n[model]\nname = \"users\"").unwrap();
        std::fs::write(project.join("ua.toml"), "[model]\nname = \"projects\"").unwrap();
        let with = |variables: &[(&str, &str)], folder: Option<PathBuf>| {
            let own = [("HOME".to_owned(), home.display().to_string())];
            let more = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
            Settings::read(Process { variables: own.into_iter().chain(more).collect(), folder, program: None })
        };
        let inside = with(&[("UA_PROVIDER", "openai"), ("UA_COLOR", "")], Some(project.join("below")));
        let model = |settings: &Settings| settings.var("ANTHROPIC_MODEL");
        assert_eq!(model(&inside).as_deref(), Some("projects"));
        assert_eq!(inside.var("UA_ROOT"), Some(home.join("runs").display().to_string()));
        assert_eq!((inside.var("UA_PROVIDER").as_deref(), inside.var("UA_COLOR")), (Some("openai"), None));
        assert_eq!(inside.files().len(), 2);
        let outside = with(&[], None);
        assert_eq!((model(&outside).as_deref(), outside.var("UA_PROVIDER")), (Some("users"), None));
        assert_eq!(model(&with(&[("ANTHROPIC_MODEL", "environments")], None)).as_deref(), Some("environments"));
    }

    #[test]
    fn a_variable_whose_name_is_nearly_one_of_ours_is_refused() {
        for (name, meant) in [
            ("UA_POLICIES", Some("UA_POLICY")),
            ("UA_ROT", Some("UA_ROOT")),
            ("UA_RUNTIME_DB", Some("UA_RUNTIME_DB_PATH")),
            ("UA_SIDE_EFFECTS_DENYLIST", Some("UA_SIDE_EFFECT_DENYLIST")),
            ("UA_ALERT_COMAND", Some("UA_ALERT_COMMAND")),
            ("UA_DENYLIST", Some("UA_SIDE_EFFECT_DENYLIST")),
            ("UA_SANDBOX", Some("UA_COMMAND_SANDBOX")),
            ("UA_SECRET_ROT", None),
            ("UA_BUILT", None),
            ("UA_ONE", None),
            ("MY_UA_ROT", None),
        ] {
            let said = misspelt(name, &known_variables()).map(|error| format!("{error:?}"));
            assert_eq!(said.is_some(), meant.is_some(), "{name}");
            assert!(meant.is_none_or(|meant| said.unwrap().contains(&format!("`{meant}`"))), "{name}");
        }
        // No variable of ours is taken for a slip of another.
        let known = known_variables();
        assert!(known.iter().all(|name| misspelt(name, &known).is_none()));
    }

    #[test]
    fn a_variable_that_says_what_a_job_says_is_refused_and_one_that_nothing_reads_is_known() {
        let settings = |names: &[&str]| {
            let variables = names.iter().map(|name| ((*name).to_owned(), "1".to_owned())).collect();
            Settings::read(Process { variables, folder: None, program: None })
        };
        for (name, field) in [
            ("UA_TOOLS_DENY", "tools.deny"),
            ("UA_DENY", "tools.deny"),
            ("UA_APPROVAL", "escalation.ask_human_before"),
            ("UA_MAX_COST", "budgets.max_cost"),
            ("UA_ALLOWED_RECIPIENTS", "constraints.allowed_recipients"),
        ] {
            let settings = settings(&[name]);
            let error = settings.check().unwrap_err();
            assert!(error.to_string().contains(name), "{error}");
            assert!(error.hint_text().unwrap().contains(&format!("`{field}`")), "{name}: {error:?}");
            assert_eq!(settings.unread(), []);
        }
        // Of the built-in tool server, where that is built in.
        let tools = if cfg!(feature = "toolserver") { "UA_MAIL_USER" } else { "UA_MAIL" };
        let well = [tools, "UA_SECRET_CRM", "UA_OTEL_LEVEL", "UA_ROOT", "MY_UA_THING"];
        assert!(well.iter().all(|name| misspelt(name, &known_variables()).is_none()));
        let unread = settings(&[&well[..], &["UA_TIMEOUT_MODEL", "UA_WEATHER"]].concat()).unread();
        let names: Vec<&str> = unread.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["UA_TIMEOUT_MODEL", "UA_WEATHER"]);
    }

    /// Goes over every setting, so that one that is added takes part, and over every path that our tool server takes.
    #[test]
    fn a_relative_path_of_a_setting_starts_at_one_folder() {
        let (mut paths, mut texts) = (Vec::new(), Vec::new());
        for setting in SETTINGS {
            let (said, wanted) = match setting.kind {
                ValueKind::Path => ("o/p", "/start/o/p"),
                ValueKind::Program => ("./o", "/start/o"),
                ValueKind::Paths => ("o:/p:./q", "/start/o:/p:/start/q"),
                ValueKind::PathAfter("maildir:") => ("maildir:o", "maildir:/start/o"),
                ValueKind::PathAfter(_) => panic!("{}: say what it looks like", setting.variable),
                ValueKind::Text
                | ValueKind::Secret
                | ValueKind::Seconds
                | ValueKind::Number
                | ValueKind::Flag
                | ValueKind::Word(_) => {
                    texts.push((setting.variable, setting.about));
                    continue;
                }
            };
            paths.push(setting.variable);
            let variables = [(setting.variable.to_owned(), said.to_owned())].into();
            let process = Process { variables, folder: Some("/start".into()), program: None };
            let settings = Settings::read(process);
            assert_eq!(settings.var(setting.variable).as_deref(), Some(wanted), "{}", setting.variable);
            let elsewhere = settings.begun_in(Some(Path::new("/other")));
            let wanted = wanted.replace("/start", "/other");
            assert_eq!(elsewhere.var(setting.variable), Some(wanted), "{}", setting.variable);
        }
        // What is said to be a file or a folder is one. A command is a line of words.
        let is_path =
            |about: &str| ["File ", "Folder ", "Maildir ", "Program "].iter().any(|word| about.starts_with(word));
        texts.retain(|(_, about)| is_path(about));
        assert_eq!(texts.iter().map(|(name, _)| *name).collect::<Vec<_>>(), ["UA_ALERT_COMMAND"]);
        #[cfg(feature = "toolserver")]
        for variable in ua_toolserver::path_variables() {
            assert!(paths.contains(&variable.as_str()), "{variable}");
        }
    }

    #[test]
    fn a_value_that_a_setting_does_not_take_is_refused_by_its_name() {
        let problems = |variable: &str, value: &str| {
            let variables = [(variable.to_owned(), value.to_owned())].into();
            let settings = Settings::read(Process { variables, folder: None, program: None });
            settings.problems().iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        for (variable, wrong, right) in [
            ("UA_MODEL_TIMEOUT", "0", "1"),
            ("UA_MODEL_TIMEOUT", "999999", "86400"),
            ("UA_MODEL_REPLY_TIMEOUT", "0", "3600"),
            ("UA_SERVER_START_TIMEOUT", "0", "120"),
            ("UA_PROVIDER", "antropic", "claude-code"),
            ("UA_ALERT_ON", "never", "waiting,ended"),
            ("UA_OTEL_LEVEL", "zz", "debug"),
            ("UA_OTEL_CONTENT", "zz", "true"),
            ("UA_LOG", "blah", "info"),
            ("UA_LOG", "ua_mcp=loud", "warn,ua_mcp=trace"),
        ] {
            assert_eq!(problems(variable, right), [""; 0], "{variable}={right}");
            let said = problems(variable, wrong).join("");
            assert!(said.starts_with(&format!("{variable} is `{wrong}`, but must be ")), "{said}");
        }
        assert!(problems("UA_PROVIDER", "antropic")[0].ends_with("(did you mean `anthropic`?)"));
    }

    #[test]
    fn a_file_of_the_users_that_others_can_change_is_not_believed() {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = tempfile::tempdir().unwrap();
        let own = folder.path().join("ua");
        std::fs::create_dir(&own).unwrap();
        let mode =
            |path: &Path, mode: u32| std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
        let variables = [("XDG_CONFIG_HOME".to_owned(), folder.path().display().to_string())];
        let settings = || Settings::read(Process { variables: variables.clone().into(), folder: None, program: None });
        for name in USER_FILES {
            let file = own.join(name);
            std::fs::write(&file, "").unwrap();
            mode(&file, 0o644);
            assert!(settings().check().is_ok() && settings().user_file(name).is_some(), "{name}");
            // Open to everybody itself, or in a folder that is.
            for (file_mode, folder_mode) in [(0o646, 0o755), (0o600, 0o777)] {
                mode(&file, file_mode);
                mode(&own, folder_mode);
                let why = settings().check().unwrap_err();
                assert!(why.to_string().contains("other users can change it"), "{name}: {why}");
                assert_eq!(settings().user_file(name), None, "{name}");
                mode(&own, 0o755);
            }
            // Only root can give a file away.
            if rustix::process::geteuid().is_root() {
                mode(&file, 0o600);
                std::os::unix::fs::chown(&file, Some(65534), None).unwrap();
                let why = settings().check().unwrap_err();
                assert!(why.to_string().contains("belongs to another user"), "{name}: {why}");
                assert_eq!(settings().user_file(name), None, "{name}");
            }
            std::fs::remove_file(&file).unwrap();
        }
    }

    /// Whoever may write in a folder on the way to it, or on the way to where it leads, decides what is in it.
    #[test]
    fn a_file_of_the_users_is_not_believed_where_others_can_put_another_in_its_place() {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        for made in ["home/.config/ua", "elsewhere/deep"] {
            std::fs::create_dir_all(path(made)).unwrap();
        }
        std::fs::write(path("elsewhere/deep/s.toml"), "").unwrap();
        let file = path("home/.config/ua/config.toml");
        std::os::unix::fs::symlink(path("elsewhere/deep/s.toml"), &file).unwrap();
        assert!(believed(&file).is_ok());
        for open in ["home", "home/.config", "home/.config/ua", "elsewhere", "elsewhere/deep", "elsewhere/deep/s.toml"]
        {
            let mode = |mode| std::fs::set_permissions(path(open), std::fs::Permissions::from_mode(mode)).unwrap();
            mode(0o777);
            let refused = believed(&file).unwrap_err();
            assert!(refused.to_string().contains("other users can change it"), "{open}: {refused}");
            assert!(refused.hint_text().unwrap_or_default().contains("chmod go-w"), "{open}");
            mode(0o755);
        }
    }

    /// Who shares a group with this user may not choose what is believed: in no folder above it, and by no link.
    #[test]
    fn what_a_group_can_put_in_the_place_of_a_file_of_the_users_is_not_believed() {
        use std::os::unix::fs::{PermissionsExt as _, chown, lchown, symlink};
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().canonicalize().unwrap();
        let path = |name: &str| place.join(name);
        for made in ["home/.config", "checkout/ua", "between"] {
            std::fs::create_dir_all(path(made)).unwrap();
        }
        std::fs::write(path("checkout/ua/config.toml"), "").unwrap();
        symlink(path("between/ua"), path("home/.config/ua")).unwrap();
        symlink(path("checkout/ua"), path("between/ua")).unwrap();
        let file = path("home/.config/ua/config.toml");
        assert!(believed(&file).is_ok());
        // Each link on the way, and the folder that it is in, also where neither the name nor the place in the end has them.
        let (ways, links) = ways_to(&file);
        assert_eq!(links, [path("home/.config/ua"), path("between/ua")]);
        assert!(ways.contains(&path("checkout/ua/config.toml")), "{ways:?}");
        let mode = |name: &str, mode| {
            std::fs::set_permissions(path(name), std::fs::Permissions::from_mode(mode)).unwrap();
        };
        let refused = || believed(&file).unwrap_err().to_string();
        mode("between", 0o777);
        assert!(refused().contains("other users can change it"), "{}", refused());
        mode("between", 0o755);
        // A group that this user has with others: only there is one to give a folder to.
        let groups = rustix::process::getgroups().unwrap().into_iter().map(rustix::fs::Gid::as_raw);
        if let Some(shared) = groups.into_iter().find(|group| *group != 0 && !ua_files::is_own_group(*group)) {
            for shut in ["home", "home/.config", "between", "checkout"] {
                chown(path(shut), None, Some(shared)).unwrap();
                mode(shut, 0o775);
                assert!(refused().contains("other users can change it"), "{shut}: {}", refused());
                mode(shut, 0o755);
            }
        }
        // Only root can give a link away.
        if rustix::process::geteuid().is_root() {
            for link in ["home/.config/ua", "between/ua"] {
                lchown(path(link), Some(65_534), None).unwrap();
                assert!(refused().contains("it is a link of another user"), "{link}: {}", refused());
                lchown(path(link), Some(0), None).unwrap();
            }
        }
        assert!(believed(&file).is_ok());
    }

    #[test]
    fn a_state_folder_that_others_can_change_is_not_believed() {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = tempfile::tempdir().unwrap();
        let state = folder.path().join("ua");
        let variables = [("XDG_STATE_HOME".to_owned(), folder.path().display().to_string())];
        let settings = || Settings::read(Process { variables: variables.clone().into(), folder: None, program: None });
        assert!(settings().check().is_ok(), "it is not there yet");
        // What a first start would make it in is looked at before that start, as it is by every command after it.
        let above = |mode| std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(mode)).unwrap();
        above(0o777);
        let refused = settings().check().unwrap_err();
        assert!(refused.to_string().contains("other users can change it"), "{refused}");
        assert!(refused.hint_text().unwrap_or_default().contains("chmod go-w"), "{refused}");
        above(0o700);
        std::fs::create_dir(&state).unwrap();
        for (mode, is_believed) in [(0o700, true), (0o755, true), (0o757, false), (0o777, false), (0o1777, true)] {
            std::fs::set_permissions(&state, std::fs::Permissions::from_mode(mode)).unwrap();
            let found = settings().check();
            assert_eq!(found.is_ok(), is_believed, "{mode:o}");
            assert!(found.err().is_none_or(|why| why.to_string().contains("other users can change it")), "{mode:o}");
        }
        // Only root can give a folder away.
        if rustix::process::geteuid().is_root() {
            std::fs::set_permissions(&state, std::fs::Permissions::from_mode(0o700)).unwrap();
            std::os::unix::fs::chown(&state, Some(65534), None).unwrap();
            assert!(settings().check().unwrap_err().to_string().contains("belongs to another user"));
        }
    }

    #[test]
    fn a_file_that_the_users_settings_name_is_not_believed_either_where_others_can_change_it() {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = tempfile::tempdir().unwrap();
        let own = folder.path().join("ua");
        std::fs::create_dir(&own).unwrap();
        let variables = [("XDG_CONFIG_HOME".to_owned(), folder.path().display().to_string())];
        let settings = || Settings::read(Process { variables: variables.clone().into(), folder: None, program: None });
        let named = folder.path().join("named");
        std::fs::write(&named, "{}").unwrap();
        for said in ["mcp_config = \"../named\"", "policies = [\"../named\"]", "pricing = \"../named\""] {
            std::fs::write(own.join("config.toml"), said).unwrap();
            for (mode, is_believed) in [(0o644, true), (0o666, false), (0o600, true)] {
                std::fs::set_permissions(&named, std::fs::Permissions::from_mode(mode)).unwrap();
                assert_eq!(settings().check().is_ok(), is_believed, "{said} {mode:o}");
            }
            if shared_with_a_group(&named) {
                for (mode, is_believed) in [(0o640, true), (0o660, false), (0o600, true)] {
                    std::fs::set_permissions(&named, std::fs::Permissions::from_mode(mode)).unwrap();
                    assert_eq!(settings().check().is_ok(), is_believed, "{said} {mode:o}, of a group");
                }
            }
        }
    }

    #[test]
    fn a_setting_is_called_what_it_was_given_as() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(folder.path().join("ua")).unwrap();
        let file = folder.path().join("ua/config.toml");
        std::fs::write(&file, "[providers.anthropic]\nbase_url = \"foo\"\n").unwrap();
        let config = ("XDG_CONFIG_HOME".to_owned(), folder.path().display().to_string());
        let refused = |more: &[(&str, &str)]| {
            let more = more.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
            let key = ("ANTHROPIC_API_KEY".to_owned(), "sk".to_owned());
            let variables = [config.clone(), key].into_iter().chain(more).collect();
            let settings = Settings::read(Process { variables, folder: None, program: None });
            let (extras, env) = (ua_llm::ModelExtras::default(), ua_core::Env::simulated(1));
            let made = crate::providers::by_settings(&settings, "anthropic", false, &extras, &env).unwrap();
            made.map(|_| ()).unwrap_err()
        };
        let place = format!("cannot use `providers.anthropic.base_url` ({}:2): it is not an address", file.display());
        assert!(refused(&[]).to_string().starts_with(&place), "{}", refused(&[]));
        assert!(refused(&[("ANTHROPIC_BASE_URL", "bar")]).to_string().starts_with("cannot use ANTHROPIC_BASE_URL: "));
        // A key that no header takes is refused as well, here and in a job.
        let fine = ("ANTHROPIC_BASE_URL", "https://api.anthropic.com");
        let key = refused(&[fine, ("ANTHROPIC_API_KEY", "a\nb")]);
        assert_eq!(key.to_string().matches("cannot set up").count(), 1, "{key}");
        assert!(key.to_string().starts_with("cannot set up the provider `anthropic`: "), "{key}");
        // A mistake of configuration, and no outage that somebody waits for.
        assert_eq!(key.kind(), crate::error::Kind::Usage);
    }

    #[test]
    fn what_can_be_read_counts_and_what_is_wrong_is_said() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(folder.path().join("ua")).unwrap();
        std::fs::write(folder.path().join("ua/config.toml"), "root = \"/r\"").unwrap();
        std::fs::write(folder.path().join("ua.toml"), "rot = \"/r\"").unwrap();
        let variables = [("XDG_CONFIG_HOME".to_owned(), folder.path().display().to_string())].into();
        let settings = Settings::read(Process { variables, folder: Some(folder.path().to_path_buf()), program: None });
        assert_eq!(settings.var("UA_ROOT").as_deref(), Some("/r"));
        assert!(settings.check().unwrap_err().to_string().contains("there is no setting `rot`"));
    }
}
