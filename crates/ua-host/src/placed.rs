//! Files that a checkout may have placed: whether one is where its name says, and what an error says of the words in it.
//!
//! A checkout brings links as well as files, and a job names whatever path it likes. So what is read under a name as a job, a configuration or a
//! table of prices may be any file of the user: a key, a list of passwords. An error that repeats its first word tells that word to whoever reads
//! the log. Every file that the program takes apart is read by `Placed`, which lets nobody explain what is wrong with a text before it has asked
//! where the text lies: of a file that a link outside of its folder leads to, and of one that lies outside of the folder whose file names it, an
//! error says the kind and the place, and no word.
//!
//! Writing has the other half of the question ([`refuse_leading_out`]): what a person names in a checkout is not written to where a link leads.
//!
//! Threat S17 of `docs/security.md`. Proved by: this file's tests, the end-to-end tests `placed` and `cargo xtask attacks`.

use std::ffi::OsStr;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Component, Path, PathBuf};

use serde::de::IgnoredAny;

use crate::error::HostError;
use crate::paths::{cannot_read, is_below, resolved, without_bom};
use crate::review::is_in_a_checkout;
use crate::settings::Settings;
use ua_core::ShowPath as _;

/// The most that is read of a file that a person names.
const MAX_BYTES: u64 = 64 * 1024 * 1024;

/// More links than the kernel follows.
const MOST_LINKS: usize = 40;

/// What a file is read as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FileKind {
    /// A job.
    Job,
    /// What a fork changes about a job.
    JobOverrides,
    /// Tool servers: `.mcp.json`, and `servers.json` of a gateway.
    Servers,
    /// Locked definitions of tools.
    Lock,
    /// `ua.toml`.
    Project,
    /// `gateway.toml`.
    Gateway,
    /// The configuration of a client of the gateway.
    Client,
    /// Policies.
    Policy,
    /// Prices of models.
    Prices,
    /// What is known about models.
    Models,
    /// What the model of `scripted` says.
    Script,
    /// Recorded replies.
    Cassette,
}

/// How the text of a file is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Json,
    Toml,
    /// In one of several.
    Any,
}

impl FileKind {
    #[cfg(test)]
    const ALL: [Self; 12] = [
        Self::Job,
        Self::JobOverrides,
        Self::Servers,
        Self::Lock,
        Self::Project,
        Self::Gateway,
        Self::Client,
        Self::Policy,
        Self::Prices,
        Self::Models,
        Self::Script,
        Self::Cassette,
    ];

    /// What the file is called where it cannot be read.
    fn name(self) -> &'static str {
        match self {
            Self::Job => "the job file",
            Self::JobOverrides => "the job overrides",
            Self::Servers => "the MCP configuration",
            Self::Lock => "the lock",
            Self::Project | Self::Gateway | Self::Client => "the configuration",
            Self::Policy => "the policy file",
            Self::Prices => "the price table",
            Self::Models => "the models",
            Self::Script => "the script",
            Self::Cassette => "the cassette",
        }
    }

    /// What a text that cannot be used is not.
    fn sort(self) -> &'static str {
        match self {
            Self::Job => "a job file",
            Self::JobOverrides => "a file of job overrides",
            Self::Servers => "an MCP configuration",
            Self::Lock => "a lock of tool definitions",
            Self::Project | Self::Gateway => "a configuration",
            Self::Client => "a configuration of a client",
            Self::Policy => "a policy file",
            Self::Prices => "a price table",
            Self::Models => "a file about models",
            Self::Script => "a script",
            Self::Cassette => "a cassette",
        }
    }

    fn form(self) -> Form {
        match self {
            Self::Job | Self::JobOverrides | Self::Servers | Self::Lock | Self::Script => Form::Json,
            Self::Project | Self::Gateway | Self::Policy | Self::Prices | Self::Models => Form::Toml,
            Self::Client | Self::Cassette => Form::Any,
        }
    }
}

/// A file as it was read, whose words nobody repeats in an error before it is known where it lies.
#[derive(Debug)]
pub(crate) struct Placed<'p> {
    text: String,
    place: Place<'p>,
}

/// Where a file is named, and as what.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place<'p> {
    kind: FileKind,
    path: &'p Path,
    whole: &'p Path,
    /// The folder whose file names it, if one does, and what that is called.
    of: Option<(&'p Path, &'static str)>,
    /// Whether it is a file of the user's own configuration, where a link is the user's.
    is_own: bool,
}

impl<'p> Place<'p> {
    /// A file that a person names, or that is looked for by its name.
    pub(crate) fn named(kind: FileKind, path: &'p Path) -> Self {
        Self { kind, path, whole: path, of: None, is_own: false }
    }

    /// The same, which may be a file of the user's own configuration.
    pub(crate) fn of_user(settings: &Settings, kind: FileKind, path: &'p Path) -> Self {
        let own = path.file_name().and_then(OsStr::to_str).and_then(|name| settings.user_file(name));
        Self { is_own: own.as_deref() == Some(path), ..Self::named(kind, path) }
    }

    /// A file that a job in `folder` names.
    pub(crate) fn of_job(kind: FileKind, path: &'p Path, folder: &'p Path) -> Self {
        Self { of: Some((folder, "the folder of the job")), ..Self::named(kind, path) }
    }

    /// A file that the settings of a project name, which lie in `folder`.
    pub(crate) fn of_project(kind: FileKind, path: &'p Path, folder: &'p Path) -> Self {
        Self { of: Some((folder, "the project")), ..Self::named(kind, path) }
    }

    /// The same by its whole path, where it is told of by the one that was typed.
    pub(crate) fn at(self, whole: &'p Path) -> Self {
        Self { whole, ..self }
    }

    /// Reads it.
    pub(crate) fn read(self) -> Result<Placed<'p>, HostError> {
        let text = ua_files::read_text(self.whole, MAX_BYTES)
            .map_err(|error| cannot_read(self.kind.name(), self.path, &error))?;
        Ok(self.with(without_bom(&text).to_owned()))
    }

    /// The same with what somebody has read of it.
    pub(crate) fn with(self, text: String) -> Placed<'p> {
        Placed { text, place: self }
    }

    /// What is told of an error about what is in it: all of it, or of a file that is not where it is named nothing but its kind.
    pub(crate) fn told(self, error: HostError) -> HostError {
        self.told_with(None, error)
    }

    fn told_with(self, text: Option<&str>, error: HostError) -> HostError {
        let Some(why) = self.elsewhere() else { return error };
        let at = text.map(|text| fault_of(self.kind.form(), text)).unwrap_or_default();
        let words = format!("{}: not {}{at}; {why}, so nothing of it is shown", self.path.shown(), self.kind.sort());
        let hint = if self.of.is_some() { "name a file in it" } else { "look at the file that the link leads to" };
        HostError::usage(words).hint(hint.to_owned()).not_begun()
    }

    /// Why nothing of it is shown, if it lies elsewhere.
    fn elsewhere(self) -> Option<String> {
        if let Some((folder, called)) = self.of {
            return (!is_below(self.whole, folder)).then(|| format!("it is outside of {called}"));
        }
        if self.is_own {
            return None;
        }
        // A person's own configuration of a client is often kept as a link into a folder of such files.
        let is_clients = self.kind == FileKind::Client;
        let link = leading_out(self.whole, |folder| !is_clients || is_of_the_work(folder));
        link.map(|_| "a link leads to it from another folder".to_owned())
    }
}

impl Placed<'_> {
    /// What `parse` makes of it. What it says is wrong is told if the file is where it is named.
    pub(crate) fn parse<T>(&self, parse: impl FnOnce(&str) -> Result<T, HostError>) -> Result<T, HostError> {
        parse(&self.text).map_err(|error| self.place.told_with(Some(&self.text), error))
    }

    /// Its text, to be compared or digested; no error has a word of it.
    pub(crate) fn into_text(self) -> String {
        self.text
    }
}

/// Where a text is no text of its form, in brackets, without a word of it.
fn fault_of(form: Form, text: &str) -> String {
    let line_of = |at: usize| text.get(..at).unwrap_or_default().matches('\n').count() + 1;
    match form {
        Form::Json => match serde_json::from_str::<IgnoredAny>(text) {
            Err(error) => format!(" (no JSON from line {} on)", error.line().max(1)),
            Ok(_) => String::new(),
        },
        Form::Toml => match toml::de::DeTable::parse(text) {
            Err(error) => format!(" (no TOML in line {})", line_of(error.span().map_or(0, |span| span.start))),
            Ok(_) => String::new(),
        },
        Form::Any => String::new(),
    }
}

/// The first link on the way to `path`, as the kernel walks it, that leads out of the folder in which it lies, of those in folders that `counts`
/// names. Links that root placed do not count for another user: those are the machine's.
fn leading_out(path: &Path, counts: impl Fn(&Path) -> bool) -> Option<PathBuf> {
    let whole = std::path::absolute(path).ok()?;
    let is_root = rustix::process::geteuid().is_root();
    let mut place = PathBuf::from("/");
    for part in whole.components() {
        match part {
            Component::Prefix(_) | Component::RootDir | Component::CurDir => {}
            Component::ParentDir => {
                place.pop();
            }
            Component::Normal(name) => {
                let next = place.join(name);
                let link = std::fs::symlink_metadata(&next).ok().filter(std::fs::Metadata::is_symlink);
                let Some(link) = link else {
                    place = next;
                    continue;
                };
                let target = end_of(&next);
                let is_machines = link.uid() == 0 && !is_root;
                let stays = target.as_ref().is_some_and(|target| target.starts_with(&place));
                if !stays && !is_machines && counts(&place) {
                    return Some(next);
                }
                place = target?;
            }
        }
    }
    None
}

/// Where a link leads in the end, also where nothing is yet; `None` of links without an end.
fn end_of(link: &Path) -> Option<PathBuf> {
    let mut at = link.to_path_buf();
    for _ in 0..MOST_LINKS {
        match std::fs::read_link(&at) {
            Ok(target) => at = resolved(&at.parent().unwrap_or(Path::new("/")).join(target)),
            Err(_) => return Some(resolved(&at)),
        }
    }
    None
}

/// Whether a folder is one that somebody works in: the current one, one below it, or a checkout's.
fn is_of_the_work(folder: &Path) -> bool {
    let here = std::path::absolute(".").map(|here| resolved(&here));
    here.is_ok_and(|here| folder.starts_with(here)) || is_in_a_checkout(folder)
}

/// Refuses to write to `path` where a link in the current folder, below it, or in a checkout leads out of the folder in which it lies: who
/// named the path meant that folder, and a checkout may have placed the link.
///
/// # Errors
/// Such a link is on the way. It says how to write there all the same.
pub fn refuse_leading_out(path: &Path) -> Result<(), HostError> {
    let Some(link) = leading_out(path, is_of_the_work) else { return Ok(()) };
    let rest = std::path::absolute(path).ok();
    let rest = rest.as_deref().and_then(|whole| whole.strip_prefix(&link).ok()).unwrap_or(Path::new(""));
    let real = end_of(&link).map(|end| if rest.as_os_str().is_empty() { end } else { end.join(rest) });
    let is_itself = std::path::absolute(path).is_ok_and(|whole| whole == link);
    let what = if is_itself { "it".to_owned() } else { link.shown().to_string() };
    let words = format!("cannot write to {}: {what} is a link that leads out of its folder", path.shown());
    let hint = match real {
        Some(real) => format!("nothing was written; to write there, name the place itself: {}", real.shown()),
        None => "nothing was written; it leads nowhere, so name another place".to_owned(),
    };
    Err(HostError::usage(words).hint(hint))
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "tests make the files that they look at")]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use ua_core::Redactor;
    use ua_llm::Places;

    use super::*;
    use crate::Process;
    use crate::gateway::GatewayConfig;
    use crate::launch::Launch;
    use crate::policies::OfJob;
    use crate::trust::ConfigFile;

    /// Files of a person that are none of these kinds, as they are on many machines.
    const SECRETS: [&str; 9] = [
        "hushhush\n",
        "hushhush:hush:hush\n",
        "hushhush = [",
        "hushhush = 1\n",
        "[hushhush]\nhush = \"hush\"\n",
        "\"hushhush\"\n",
        "{\"hushhush\": 1}\n",
        "{\"objective\": \"hush\", \"hushhush\": 1}\n",
        "{\"mcpServers\": {\"hushhush\": 1}}\n",
    ];

    /// What is said of the file at `path`, in the folder of a project and of a job, by whoever reads files of this kind; `None` where they take it.
    fn said(kind: FileKind, project: &Path, path: &Path) -> Option<String> {
        let process = Process { folder: Some(project.to_path_buf()), ..Process::default() };
        let settings = Settings::read(process);
        let error = match kind {
            FileKind::Job => crate::job_file::read(&settings, path).map(drop),
            FileKind::Servers => {
                let file = ConfigFile::found(path);
                crate::mcp_files::mcp_config(Some(&file)).map(drop)
            }
            FileKind::Lock => crate::tool_lock::read(&path.with_file_name(".mcp.json")).map(drop),
            FileKind::Project => settings.check(),
            FileKind::Gateway => GatewayConfig::read(project).map(drop),
            FileKind::Policy => {
                let of_job = OfJob { folder: project.to_path_buf(), files: vec![path.to_path_buf()] };
                let of_job = crate::policies::classifier_of_user(&settings, &[], Some(&of_job), None).map(drop);
                let named = crate::policies::classifier_of_user(&settings, &[path.to_path_buf()], None, None).map(drop);
                let trusted = crate::trust::policy::PolicyReview::of(&settings, path).map(drop);
                let all = [of_job, named, trusted].map(|one| one.err().map(|error| told(&error)));
                return all.into_iter().collect::<Option<Vec<String>>>().map(|all| all.join("\n"));
            }
            FileKind::Prices => crate::pricing::table(&settings, Some(path), false).map(drop),
            FileKind::Models => {
                let named = settings.with("UA_MODELS", Some(path.display().to_string()));
                crate::models::of_user(&named).map(drop)
            }
            FileKind::Script => {
                Launch::scripted(project.to_path_buf(), path.to_path_buf()).script_asks_for("x").map(drop)
            }
            FileKind::Cassette => {
                crate::providers::replay(Some(path), Redactor::default(), Places::default()).map(drop)
            }
            // Read deeper inside; the end-to-end test has the commands.
            FileKind::JobOverrides | FileKind::Client => Place::named(kind, path)
                .read()
                .and_then(|placed| placed.parse(|text| Err(HostError::usage(format!("{}: {text}", path.display()))))),
        };
        error.err().map(|error| told(&error))
    }

    fn told(error: &HostError) -> String {
        format!("{error}\n{}", error.hint_text().unwrap_or_default())
    }

    /// The name by which a file of this kind is found, where it is found by that.
    fn name_of(kind: FileKind) -> &'static str {
        match kind {
            FileKind::Lock => "mcp.lock",
            FileKind::Project => "ua.toml",
            FileKind::Gateway => "gateway.toml",
            FileKind::Job
            | FileKind::JobOverrides
            | FileKind::Servers
            | FileKind::Client
            | FileKind::Policy
            | FileKind::Prices
            | FileKind::Models
            | FileKind::Script
            | FileKind::Cassette => "placed",
        }
    }

    #[test]
    fn s17_no_error_says_what_is_in_a_file_that_is_not_the_jobs() {
        for kind in FileKind::ALL {
            let mut explained = 0;
            for secret in SECRETS {
                let dir = tempfile::tempdir().unwrap();
                let (home, project) = (dir.path().join("home"), dir.path().join("project"));
                for folder in [&home, &project, &project.join(".git"), &project.join("own")] {
                    fs::create_dir_all(folder).unwrap();
                }
                let name = name_of(kind);
                fs::write(home.join(name), secret).unwrap();
                // A link to it, a link to a link, and a folder that is one.
                let ways: [&dyn Fn() -> PathBuf; 3] = [
                    &|| {
                        symlink(home.join(name), project.join(name)).unwrap();
                        project.join(name)
                    },
                    &|| {
                        symlink("../home", project.join("sub")).unwrap();
                        symlink("sub/".to_owned() + name, project.join(name)).unwrap();
                        project.join(name)
                    },
                    &|| project.join("sub").join(name),
                ];
                for (number, way) in ways.iter().enumerate() {
                    let path = way();
                    let root = if number == 2 { project.join("sub") } else { project.clone() };
                    let told = said(kind, &root, &path);
                    let _gone = fs::remove_file(project.join(name));
                    let Some(told) = told else { continue };
                    // Where the folder itself is what is worked in, it is the user's word.
                    let is_word =
                        number == 2 && matches!(kind, FileKind::Project | FileKind::Script | FileKind::Policy);
                    assert!(is_word || !told.contains("hush"), "{kind:?} by way {number} of {secret:?}: {told}");
                    assert!(is_word || told.contains("nothing of it is shown"), "{kind:?}: {told}");
                }
                // The same where it belongs is explained.
                let own = project.join("own");
                fs::write(own.join(name), secret).unwrap();
                let told = said(kind, &own, &own.join(name)).unwrap_or_default();
                assert!(!told.contains("nothing of it is shown"), "{kind:?}: {told}");
                explained += usize::from(told.contains("hush"));
            }
            let never_says = matches!(kind, FileKind::Cassette);
            assert!(explained > 0 || never_says, "{kind:?}: its own files are explained");
        }
    }

    #[test]
    fn s17_what_a_job_or_a_project_names_elsewhere_is_not_explained() {
        let dir = tempfile::tempdir().unwrap();
        let (home, project) = (dir.path().join("home"), dir.path().join("project"));
        fs::create_dir_all(&home).unwrap();
        fs::create_dir_all(&project).unwrap();
        for secret in SECRETS {
            fs::write(home.join("key"), secret).unwrap();
            for path in [home.join("key"), project.join("../home/key")] {
                for kind in [FileKind::Script, FileKind::Policy] {
                    let of_job = Place::of_job(kind, &path, &project).read().unwrap();
                    let error = of_job.parse(|text| Err::<(), _>(HostError::usage(text))).unwrap_err();
                    assert!(!told(&error).contains("hush") && told(&error).contains("the folder of the job"));
                }
                let settings = format!("models = {0:?}\npricing = {0:?}\n", path.display().to_string());
                fs::write(project.join("ua.toml"), settings).unwrap();
                let process = Process { folder: Some(project.clone()), ..Process::default() };
                let settings = Settings::read(process);
                settings.check().unwrap();
                let models = crate::models::of_user(&settings).unwrap_err();
                let file = crate::pricing::file(&settings, None).unwrap();
                let prices = crate::pricing::table(&settings, file.as_deref(), true).unwrap_err();
                for error in [models, prices].map(|error| told(&error)) {
                    assert!(!error.contains("hush") && error.contains("outside of the project"), "{error}");
                }
            }
        }
    }

    #[test]
    fn a_file_that_is_elsewhere_is_told_of_by_its_place() {
        assert_eq!(fault_of(Form::Json, "{\n  hush"), " (no JSON from line 2 on)");
        assert_eq!(fault_of(Form::Json, "{}"), "");
        assert_eq!(fault_of(Form::Toml, "a = 1\nhush"), " (no TOML in line 2)");
    }

    #[test]
    fn links_that_stay_in_their_folder_are_followed() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().canonicalize().unwrap();
        for folder in ["work/.git", "work/out", "work/deep/er", "home"] {
            fs::create_dir_all(dir.join(folder)).unwrap();
        }
        let links = [
            ("work/inside", "out"),
            ("work/over", "inside/../out"),
            ("work/new", "out/not-yet"),
            ("work/away", "../home"),
            ("work/dangling", "../home/not-yet"),
            ("work/chain", "away"),
            ("work/twice", "dangling"),
            ("work/round", "round"),
            ("work/deep/up", "../out"),
            ("home/own", "../work"),
        ];
        for (link, target) in links {
            symlink(target, dir.join(link)).unwrap();
        }
        let refused = |path: &str| refuse_leading_out(&dir.join(path)).err().map(|error| told(&error));
        for path in ["work/inside/x", "work/over", "work/new", "work/out/x", "work/deep/er/x", "home/x", "home/own/x"] {
            assert_eq!(refused(path), None, "{path}");
        }
        for path in [
            "work/away/x",
            "work/dangling",
            "work/chain/a/b",
            "work/twice",
            "work/round",
            "work/deep/up",
            "home/own/away",
        ] {
            assert!(refused(path).is_some(), "{path}");
        }
        let away = refused("work/away/a/b").unwrap();
        assert!(away.contains(&dir.join("home/a/b").display().to_string()), "it says how to do it on purpose: {away}");
    }
}
