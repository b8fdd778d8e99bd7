//! Reading one configuration file, strictly: an unknown key is a typing error, and is answered with the nearest one and its line.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Component, Path, PathBuf};

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::FileValue;
use super::list::{SETTINGS, Setting, ValueKind};
use crate::error::HostError;
use crate::home::DEFAULT_ROOT;
use crate::placed::{FileKind, Place};
use ua_core::ShowPath as _;

/// The most that is read of a configuration file.
const MAX_BYTES: u64 = 1024 * 1024;

/// Whose file it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layer {
    /// The user's.
    User,
    /// The project's.
    Project,
}

/// A file while it is read.
struct Reader<'t> {
    layer: Layer,
    path: &'t Path,
    text: &'t str,
    /// What `~/` stands for.
    home: Option<&'t str>,
}

impl Layer {
    /// Reads a file: what it says, by variable. `home` is what `~/` stands for.
    pub fn read(self, path: &Path, home: Option<&str>) -> Result<Vec<(&'static str, FileValue)>, HostError> {
        let text = ua_files::read_text(path, MAX_BYTES)
            .map_err(|e| crate::paths::cannot_read("the configuration", path, &e))?;
        let said = match self {
            Self::User => self.parse(path, &text, home)?,
            Self::Project => {
                Place::named(FileKind::Project, path).with(text).parse(|text| self.parse(path, text, home))?
            }
        };
        let has_secret = said.iter().any(|(variable, _)| {
            SETTINGS.iter().any(|setting| setting.variable == *variable && setting.kind == ValueKind::Secret)
        });
        let is_open = std::fs::metadata(path).is_ok_and(|file| file.permissions().mode() & 0o077 != 0);
        if has_secret && is_open {
            return Err(HostError::usage(format!("{} holds a key and others can read it", path.shown()))
                .hint(format!("chmod 600 {}", ua_core::shell_word(path))));
        }
        Ok(said)
    }

    /// The same from its text.
    pub(super) fn parse(
        self,
        path: &Path,
        text: &str,
        home: Option<&str>,
    ) -> Result<Vec<(&'static str, FileValue)>, HostError> {
        let reader = Reader { layer: self, path, text, home };
        let document = DeTable::parse(text).map_err(|error| {
            let at = error.span().map_or(0, |span| span.start);
            reader
                .wrong(at, &ua_core::value_fault(&error.message().trim().replace('\n', ", ")))
                .hint("the file is TOML; `ua init` writes one, and `ua config show` lists every key")
        })?;
        let mut said = Vec::new();
        reader.table(document.get_ref(), "", &mut said)?;
        Ok(said)
    }
}

impl Reader<'_> {
    fn place(&self, at: usize) -> String {
        let line = self.text.get(..at).unwrap_or(self.text).matches('\n').count() + 1;
        format!("{}:{line}", self.path.shown())
    }

    fn wrong(&self, at: usize, why: &str) -> HostError {
        HostError::usage(format!("{}: {why}", self.place(at)))
    }

    fn table(
        &self,
        table: &DeTable<'_>,
        above: &str,
        said: &mut Vec<(&'static str, FileValue)>,
    ) -> Result<(), HostError> {
        for (name, value) in table {
            let key = if above.is_empty() { name.get_ref().to_string() } else { format!("{above}.{}", name.get_ref()) };
            let at = name.span().start;
            let is_above = SETTINGS.iter().any(|setting| setting.key.starts_with(&format!("{key}.")));
            match (SETTINGS.iter().find(|setting| setting.key == key), value.get_ref()) {
                (Some(setting), _) => {
                    if let (Layer::Project, Some(why)) = (self.layer, setting.only_user) {
                        return Err(self.wrong(at, &format!("a project may not set `{key}`: {why}")).hint(format!(
                            "move it to the user's config.toml, or set {} in the environment",
                            setting.variable
                        )));
                    }
                    let value = match (self.layer, setting.variable) {
                        (Layer::Project, "UA_ROOT") => self.root_of_project(setting, value)?,
                        (Layer::Project | Layer::User, _) => self.value(setting, value)?,
                    };
                    said.push((setting.variable, FileValue { value, place: self.place(at), layer: self.layer }));
                }
                (None, DeValue::Table(inner)) if is_above => self.table(inner, &key, said)?,
                (None, _) => return Err(self.unknown(&key, at)),
            }
        }
        Ok(())
    }

    fn unknown(&self, key: &str, at: usize) -> HostError {
        // Tables too: a misspelt one is refused by its own name, before anything in it is read.
        let tables = SETTINGS.iter().flat_map(|setting| {
            setting.key.match_indices('.').filter_map(|(at, _)| setting.key.get(..at)).collect::<Vec<_>>()
        });
        let hint = match ua_core::nearest(key, SETTINGS.iter().map(|setting| setting.key).chain(tables)) {
            Some(name) => format!("did you mean `{name}`?"),
            None => "`ua config show` lists every key".to_owned(),
        };
        // Not the value: it may be a secret under a misspelt key.
        self.wrong(at, &format!("there is no setting `{}`", ua_core::in_a_sentence(key))).hint(hint)
    }

    fn value(&self, setting: &Setting, value: &Spanned<DeValue<'_>>) -> Result<String, HostError> {
        let key = setting.key;
        let wrong = |what: &str| {
            self.wrong(value.span().start, &format!("`{key}` takes {what}")).hint("`ua config show` lists every key")
        };
        let text = |value: &DeValue<'_>| value.as_str().filter(|text| !text.is_empty()).map(str::to_owned);
        match setting.kind {
            ValueKind::Text | ValueKind::Secret => text(value.get_ref()).ok_or_else(|| wrong("text")),
            ValueKind::PathAfter(_) => {
                let said = text(value.get_ref()).ok_or_else(|| wrong("text"))?;
                Ok(setting.kind.with_paths(&said, |path| self.path_of(path)))
            }
            ValueKind::Path | ValueKind::Program => {
                let said = text(value.get_ref()).ok_or_else(|| wrong("a path as text"))?;
                self.refuse_variable(value.span().start, &said)?;
                Ok(self.path_of(&said))
            }
            ValueKind::Paths => {
                let DeValue::Array(items) = value.get_ref() else { return Err(wrong("a list of paths")) };
                let paths: Option<Vec<String>> = items.iter().map(|item| text(item.get_ref())).collect();
                let paths = paths.ok_or_else(|| wrong("a list of paths"))?;
                paths.iter().try_for_each(|path| self.refuse_variable(value.span().start, path))?;
                let paths = paths.iter().map(|path| self.path_of(path));
                let joined = std::env::join_paths(paths).map_err(|_| wrong("paths without a colon in them"))?;
                joined.into_string().map_err(|_| wrong("paths of UTF-8 text"))
            }
            ValueKind::Seconds | ValueKind::Number => {
                let what = if setting.kind == ValueKind::Seconds { "whole seconds" } else { "a whole number" };
                let DeValue::Integer(number) = value.get_ref() else { return Err(wrong(what)) };
                let is_plain = number.as_str().bytes().all(|byte| byte.is_ascii_digit());
                if is_plain { Ok(number.as_str().to_owned()) } else { Err(wrong(what)) }
            }
            ValueKind::Flag => {
                let DeValue::Boolean(flag) = value.get_ref() else { return Err(wrong("true or false")) };
                Ok(flag.to_string())
            }
            ValueKind::Word(words) => {
                let word = text(value.get_ref()).filter(|word| words.contains(&word.as_str()));
                word.ok_or_else(|| wrong(&format!("one of {}", words.join(", "))))
            }
        }
    }

    /// The root that a project names. Runs write files of a model's choosing there, so it is a folder of the project, and none that programs
    /// read code or settings from unasked: those are hidden, outside of the project, or have a name that a loader searches (`node_modules`, a
    /// package of Python). Of names only the usual one is known to be none of these; trust leaves what runs write in it out.
    fn root_of_project(&self, setting: &Setting, value: &Spanned<DeValue<'_>>) -> Result<String, HostError> {
        let whole = PathBuf::from(self.value(setting, value)?);
        let text = value.get_ref().as_str().unwrap_or_default();
        let wrong = |why: &str| {
            let why = format!(
                "`root` of a project is a plain folder inside of the project, but `{}` {why}",
                crate::text::line(text, 60)
            );
            self.wrong(value.span().start, &why)
                .hint("name another one yourself, with --root, in UA_ROOT, or in your own config.toml")
                .not_begun()
        };
        let project = self.path.parent().unwrap_or(Path::new("/"));
        let parts: Vec<Component<'_>> =
            Path::new(text).components().filter(|part| *part != Component::CurDir).collect();
        let is_inside = !parts.is_empty() && parts.iter().all(|part| matches!(part, Component::Normal(_)));
        if !is_inside || text.starts_with('~') {
            return Err(wrong("leads out of it"));
        }
        if parts.iter().any(|part| part.as_os_str().as_encoded_bytes().starts_with(b".")) {
            return Err(wrong("is hidden, or in a hidden folder"));
        }
        if parts.last().is_none_or(|name| name.as_os_str() != DEFAULT_ROOT) {
            return Err(wrong(&format!(
                "is not called {DEFAULT_ROOT}: programs of the project may load code from a folder of another name"
            )));
        }
        let mut folder = project.to_path_buf();
        for part in &parts {
            folder.push(part);
            if folder.is_symlink() {
                return Err(wrong("leads through a link"));
            }
        }
        // What lies in another project, or in a root, is not this project's.
        let mut between = whole.ancestors().skip(1).take_while(|above| *above != project);
        if between.any(|above| above.join(super::PROJECT_FILE).exists() || above.join(crate::roots::MARKER).exists()) {
            return Err(wrong("is in another project"));
        }
        Ok(folder.to_string_lossy().into_owned())
    }

    /// Refuses a path with the name of a variable, as a shell writes one: a folder of that name would be made and used.
    fn refuse_variable(&self, at: usize, text: &str) -> Result<(), HostError> {
        let is_variable = |part: &str| {
            let name = part.strip_prefix('$').map(|name| name.trim_start_matches('{'));
            name.and_then(|name| name.chars().next()).is_some_and(|first| first.is_ascii_alphabetic() || first == '_')
        };
        let Some(part) = text.split(['/', ':']).find(|part| is_variable(part)) else { return Ok(()) };
        let part = crate::text::line(part, 60);
        let how = match self.layer {
            Layer::Project => "write the path out",
            Layer::User => "write the path out; `~/` at its beginning stands for your home",
        };
        Err(self.wrong(at, &format!("`{part}` in a path is not replaced by the value of that variable")).hint(how))
    }

    /// A path as the file means it.
    fn path_of(&self, text: &str) -> String {
        if let (Some(rest), Some(home)) = (text.strip_prefix("~/"), self.home) {
            return Path::new(home).join(rest).to_string_lossy().into_owned();
        }
        let folder = self.path.parent().unwrap_or(Path::new("/"));
        folder.join(text).to_string_lossy().into_owned()
    }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "tests make the files that they look at")]
mod tests {
    use super::*;

    fn read(layer: Layer, text: &str) -> Result<Vec<(&'static str, String)>, String> {
        let said = layer.parse(Path::new("/conf/ua.toml"), text, None).map_err(|error| error.to_string())?;
        Ok(said.into_iter().map(|(variable, said)| (variable, said.value)).collect())
    }

    #[test]
    fn every_kind_of_setting_is_read() {
        let text = "root = \"runs\"\npolicies = [\"a.toml\", \"/b.toml\"]\nallow_private_addresses = true\n\
                    [model]\nname = \"m\"\ntimeout_seconds = 20\n[output]\ncolor = \"never\"\n\
                    [providers.anthropic]\nbase_url = \"http://127.0.0.1:1\"\n";
        let mut said = read(Layer::User, text).unwrap();
        said.sort_unstable();
        assert_eq!(
            said,
            [
                ("ANTHROPIC_BASE_URL", "http://127.0.0.1:1".to_owned()),
                ("ANTHROPIC_MODEL", "m".to_owned()),
                ("UA_ALLOW_PRIVATE_ADDRESSES", "true".to_owned()),
                ("UA_COLOR", "never".to_owned()),
                ("UA_MODEL_TIMEOUT", "20".to_owned()),
                ("UA_POLICY", "/conf/a.toml:/b.toml".to_owned()),
                ("UA_ROOT", "/conf/runs".to_owned()),
            ]
        );
    }

    /// Only shells replace variables: a folder of that name would be made beside the file.
    #[test]
    fn a_path_with_a_variable_is_refused_wherever_paths_are_read() {
        let paths = SETTINGS.iter().filter(|setting| match setting.kind {
            ValueKind::Path | ValueKind::Program | ValueKind::Paths => true,
            ValueKind::Text
            | ValueKind::PathAfter(_)
            | ValueKind::Seconds
            | ValueKind::Number
            | ValueKind::Flag
            | ValueKind::Word(_)
            | ValueKind::Secret => false,
        });
        let mut looked_at = 0;
        for setting in paths {
            for path in ["$HOME/x", "${HOME}/x", "x/$A_B/y"] {
                let value =
                    if setting.kind == ValueKind::Paths { format!("[\"{path}\"]") } else { format!("\"{path}\"") };
                let refused = read(Layer::User, &format!("{} = {value}\n", setting.key)).unwrap_err();
                assert!(refused.contains("is not replaced by the value"), "{}: {refused}", setting.key);
                looked_at += 1;
            }
        }
        assert!(looked_at > 6, "{looked_at}");
        for path in ["x$y", "a/$/b", "$5/x", "/srv/cost$"] {
            assert!(read(Layer::User, &format!("root = \"{path}\"\n")).is_ok(), "{path}");
        }
    }

    #[test]
    fn what_is_wrong_is_named_with_its_line() {
        let cases = [
            ("rot = \"x\"", "/conf/ua.toml:1: there is no setting `rot`"),
            ("\n[model]\nnam = \"x\"", "/conf/ua.toml:3: there is no setting `model.nam`"),
            ("[modell]\nname = \"x\"", "/conf/ua.toml:1: there is no setting `modell`"),
            ("model = 1", "/conf/ua.toml:1: there is no setting `model`"),
            ("root = 1", "/conf/ua.toml:1: `root` takes a path as text"),
            ("[model]\ntimeout_seconds = \"20\"", "/conf/ua.toml:2: `model.timeout_seconds` takes whole seconds"),
            ("[output]\ncolor = \"red\"", "/conf/ua.toml:2: `output.color` takes one of auto, always, never"),
            ("root = ", "/conf/ua.toml:1:"),
        ];
        for (text, wanted) in cases {
            let why = read(Layer::User, text).unwrap_err();
            assert!(why.starts_with(wanted), "{text:?}: {why}");
        }
    }

    #[test]
    fn a_misspelt_table_or_key_has_its_own_kind_suggested() {
        for (text, meant) in [
            ("[modle]\nname = \"x\"", "did you mean `model`?"),
            ("[model]\nnaem = \"x\"", "did you mean `model.name`?"),
            ("rot = \"x\"", "did you mean `root`?"),
        ] {
            let refused = Layer::User.parse(Path::new("/conf/ua.toml"), text, None).unwrap_err();
            assert_eq!(refused.hint_text(), Some(meant), "{text}");
        }
    }

    #[test]
    fn a_project_sets_nothing_that_runs_sends_or_opens() {
        for setting in SETTINGS.iter().filter(|setting| setting.only_user.is_some()) {
            let value = match setting.kind {
                ValueKind::Flag => "true".to_owned(),
                ValueKind::Paths => "[\"x\"]".to_owned(),
                ValueKind::Seconds | ValueKind::Number => "7".to_owned(),
                ValueKind::Word(words) => format!("{:?}", words[0]),
                ValueKind::Text
                | ValueKind::Path
                | ValueKind::Program
                | ValueKind::PathAfter(_)
                | ValueKind::Secret => "\"x\"".to_owned(),
            };
            let text = format!("{} = {value}", setting.key);
            assert!(read(Layer::User, &text).is_ok(), "{text}");
            let why = read(Layer::Project, &text).unwrap_err();
            assert!(why.contains("a project may not set"), "{why}");
        }
        assert!(read(Layer::Project, "root = \"AGENT_RUN_WORKSPACES\"\n[model]\nname = \"m\"").is_ok());
    }

    #[test]
    fn a_project_names_no_root_but_a_plain_folder_of_its_own() {
        let project = tempfile::tempdir().unwrap();
        let file = project.path().join("ua.toml");
        std::fs::create_dir_all(project.path().join("kept/deep")).unwrap();
        std::fs::create_dir_all(project.path().join("other/AGENT_RUN_WORKSPACES")).unwrap();
        std::fs::write(project.path().join("other/ua.toml"), "").unwrap();
        std::os::unix::fs::symlink("/tmp", project.path().join("link")).unwrap();
        let home = project.path().display().to_string();
        let root = |layer: Layer, root: &str| {
            let text = format!("root = {root:?}\n");
            layer.parse(&file, &text, Some(&home)).map(|mut said| said.remove(0).1.value)
        };
        for inside in ["AGENT_RUN_WORKSPACES", "./AGENT_RUN_WORKSPACES", "kept/deep/AGENT_RUN_WORKSPACES"] {
            let named = root(Layer::Project, inside).unwrap();
            assert_eq!(Path::new(&named), project.path().join(inside.trim_start_matches("./")));
        }
        for outside in [
            "~/.local/lib/python3.11",
            "~/.config",
            "~/AGENT_RUN_WORKSPACES",
            "~",
            "/tmp/AGENT_RUN_WORKSPACES",
            "../victim/AGENT_RUN_WORKSPACES",
            "kept/../../victim",
            ".",
            "./",
            ".git",
            ".vscode/x",
            "kept/.git/hooks",
            "link",
            "link/AGENT_RUN_WORKSPACES",
            "other/AGENT_RUN_WORKSPACES",
            "AGENT_RUN_WORKSPACES/x",
            // What loaders search by name.
            "node_modules",
            "google",
            "runs",
            "agent_run_workspaces",
        ] {
            let refused = root(Layer::Project, outside).unwrap_err();
            assert!(
                refused.to_string().contains("`root` of a project is a plain folder inside"),
                "{outside}: {refused}"
            );
            assert_eq!(refused.kind(), crate::error::Kind::Usage);
            assert!(refused.hint_text().unwrap().contains("--root"), "{outside}");
            // The user's own file may name any.
            assert!(root(Layer::User, outside).is_ok(), "{outside}");
        }
    }

    #[test]
    fn no_two_settings_share_a_key_or_a_variable() {
        let keys: std::collections::BTreeSet<_> = SETTINGS.iter().map(|setting| setting.key).collect();
        let variables: std::collections::BTreeSet<_> = SETTINGS.iter().map(|setting| setting.variable).collect();
        assert_eq!((keys.len(), variables.len()), (SETTINGS.len(), SETTINGS.len()));
    }

    #[test]
    fn the_guide_lists_every_setting() {
        let page = include_str!("../../../../docs/guide/cli.md");
        for setting in SETTINGS {
            let default = setting.default.unwrap_or("");
            let who = if setting.only_user.is_some() { "user" } else { "user, project" };
            let row = format!("| `{}` | `{}` | {} | {default} | {who} |", setting.key, setting.variable, setting.about);
            assert!(page.contains(&row), "docs/guide/cli.md lacks\n{row}");
        }
    }
}
