//! The user's secrets, and who may have them: `secrets.toml` beside the user's `config.toml`.
//!
//! A configuration of tool servers and a model write `${secret:NAME}`; the value comes from `UA_SECRET_<NAME>`, this file, or a command it
//! names, when a server is started or a call is sent. Only this file says who may have it: servers, for their environment and headers;
//! single arguments of single tools. Nothing that a project, a job or a model says widens that, or a model could mail a secret to
//! itself. Invariants: the file is the user's alone (0600); a value is learned by the redactor before anybody is given it; a value that
//! is too short to be told from words is refused. Proved by: this file's tests and the end-to-end tests `secret_references`.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Map, Value};
use ua_core::{Redactor, SecretFiller, SecretGrants, ShowPath as _, ToolName};
use ua_files::Exposed;

use crate::error::HostError;
use crate::paths::what_helps;
use crate::settings::Settings;

/// The shortest value. A shorter one could not be kept out of records.
const MIN_BYTES: usize = 8;
/// The longest.
const MAX_BYTES: u64 = 64 * 1024;
/// The longest file.
const MAX_FILE_BYTES: u64 = 1024 * 1024;
/// How long a command may take, in steps of [`STEP`].
const STEPS: u32 = 500;
const STEP: Duration = Duration::from_millis(20);

/// The file.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    secrets: BTreeMap<String, Declared>,
}

/// What it says about one secret.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Declared {
    value: Option<String>,
    command: Option<Vec<String>>,
    /// Servers whose environment, arguments and headers may refer to it.
    #[serde(default)]
    servers: BTreeSet<String>,
    /// Tools, as a model names them, and their arguments that may refer to it.
    #[serde(default)]
    tools: BTreeMap<String, BTreeSet<String>>,
}

impl std::fmt::Debug for Declared {
    /// Who may have it, and nothing else.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Declared").field("servers", &self.servers).field("tools", &self.tools).finish_non_exhaustive()
    }
}

/// The secrets of one host.
#[derive(Debug)]
pub struct Secrets {
    settings: Arc<Settings>,
    redactor: Redactor,
    declared: BTreeMap<String, Declared>,
    /// What commands said.
    said: Mutex<BTreeMap<String, String>>,
}

impl Secrets {
    /// Reads the file. `redactor` learns every value that can be known without asking a command.
    pub fn read(settings: Arc<Settings>, redactor: Redactor) -> Result<Self, HostError> {
        let declared = match settings.user_file("secrets.toml") {
            Some(path) => read_file(&path)?,
            None => BTreeMap::new(),
        };
        // Whatever is known without asking a command is learned at once: a tool may bring it along before it is used.
        let known = declared.iter().filter_map(|(name, said)| Some((name.clone(), said.value.clone()?)));
        redactor.learn(known);
        let of_process = settings.beginning_with(&["UA_SECRET_"]).into_iter();
        redactor.learn(of_process.map(|(name, value)| (name.trim_start_matches("UA_SECRET_").to_owned(), value)));
        Ok(Self { settings, redactor, declared, said: Mutex::default() })
    }

    /// Which tools may have which.
    pub fn grants(&self) -> SecretGrants {
        SecretGrants(self.declared.iter().map(|(name, said)| (name.clone(), said.tools.clone())).collect())
    }

    /// The value of a secret for the configuration of a tool server.
    pub fn for_server(&self, server: &str, name: &str) -> Result<String, HostError> {
        let file = "~/.config/ua/secrets.toml";
        let Some(declared) = self.declared.get(name) else {
            return Err(HostError::usage(format!(
                "the tool server `{server}` refers to the secret `{name}`, which is not defined"
            ))
            .hint(format!("declare it in {file}: [secrets.{name}] with servers = [\"{server}\"]")));
        };
        if !declared.servers.contains(server) {
            return Err(HostError::usage(format!("the tool server `{server}` may not have the secret `{name}`"))
                .hint(format!("if it is to have it, add \"{server}\" to `servers` of [secrets.{name}] in {file}")));
        }
        self.learned(name).map_err(|why| {
            HostError::usage(format!("cannot get the secret `{name}`: {why}"))
                .hint(format!("set UA_SECRET_{name}, or correct [secrets.{name}] in {file}"))
        })
    }

    /// The value, learned before it is returned. Errors hold no value.
    fn learned(&self, name: &str) -> Result<String, String> {
        let declared = self.declared.get(name).ok_or_else(|| "it is not declared".to_owned())?;
        let value = if let Some(value) = self.settings.of_environment(&format!("UA_SECRET_{name}")) {
            value
        } else if let Some(value) = &declared.value {
            value.clone()
        } else if let Some(command) = &declared.command {
            let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(value) = said.get(name) {
                value.clone()
            } else {
                let value = tokio::task::block_in_place(|| run(command, self.settings.for_tool_servers()))?;
                said.insert(name.to_owned(), value.clone());
                value
            }
        } else {
            return Err(format!("UA_SECRET_{name} is not set, and it has neither a value nor a command"));
        };
        let value = value.trim().to_owned();
        if value.len() < MIN_BYTES {
            return Err(format!("it has fewer than {MIN_BYTES} bytes, so it could not be kept out of records"));
        }
        self.redactor.learn([(name.to_owned(), value.clone())]);
        Ok(value)
    }
}

impl SecretFiller for Secrets {
    fn check(&self, tool: &ToolName, arguments: &Map<String, Value>) -> Result<(), String> {
        self.grants().check(tool, arguments)
    }

    fn value(&self, name: &str) -> Result<String, String> {
        self.learned(name).map_err(|why| format!("cannot get the secret `{name}`: {why}"))
    }
}

fn read_file(path: &Path) -> Result<BTreeMap<String, Declared>, HostError> {
    let shown = path.shown();
    let unusable = |why: String| HostError::usage(format!("cannot use {shown}: {why}"));
    let text = ua_files::read_private_text(path, MAX_FILE_BYTES).map_err(|exposed| match exposed {
        Exposed::Unread(e) => {
            unusable(e.to_string()).hint(what_helps(&e, "write it again, or remove what is left of it"))
        }
        Exposed::OfAnother(owner) => {
            let whose = format!("it belongs to another user ({})", crate::owner::named(owner));
            unusable(whose).hint(crate::owner::believe_own(owner, path))
        }
        Exposed::OpenToOthers => unusable("it holds secrets, and others can read or change it".to_owned())
            .hint(format!("chmod 600 {}", ua_core::shell_word(path))),
    })?;
    parse(&text).map_err(|why| {
        unusable(why).hint(
            "it is TOML: [secrets.NAME] with `value` or `command`, `servers`, `tools`; docs/guide/secrets.md shows one",
        )
    })
}

pub fn parse(text: &str) -> Result<BTreeMap<String, Declared>, String> {
    let file: File = toml::from_str(text).map_err(|error| ua_core::toml_fault_without_values(text, &error))?;
    for (name, declared) in &file.secrets {
        let is_name = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
            && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
        if !is_name {
            // A value may stand in the place of the name.
            return Err("a name in [secrets.NAME] is not valid: use letters, digits and `_`".to_owned());
        }
        if declared.value.is_some() && declared.command.is_some() {
            return Err(format!("[secrets.{name}] has a value and a command; keep one of them"));
        }
        if declared.value.as_ref().is_some_and(|value| value.trim().len() < MIN_BYTES) {
            return Err(format!(
                "[secrets.{name}] is shorter than {MIN_BYTES} bytes and could not be kept out of records"
            ));
        }
        if declared.command.as_ref().is_some_and(|command| command.first().is_none_or(String::is_empty)) {
            return Err(format!("`command` of [secrets.{name}] is a list: the program and its arguments"));
        }
        if declared.tools.keys().any(|tool| tool.contains('*')) {
            return Err(format!("`tools` of [secrets.{name}] names single tools, and one of them is a pattern"));
        }
    }
    Ok(file.secrets)
}

/// What a command prints, without its last line break.
fn run(command: &[String], environment: BTreeMap<String, String>) -> Result<String, String> {
    let (program, args) = command.split_first().ok_or("its command is empty")?;
    let mut child = Command::new(program)
        .args(args)
        .env_clear()
        .envs(environment)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|e| format!("`{program}` cannot be run: {e}"))?;
    let Some(stdout) = child.stdout.take() else { unreachable!("its output was asked for") };
    let reader = std::thread::spawn(move || {
        let mut text = String::new();
        stdout.take(MAX_BYTES).read_to_string(&mut text).map(|_| text)
    });
    let mut ended = None;
    for _ in 0..STEPS {
        ended = child.try_wait().map_err(|e| e.to_string())?;
        if ended.is_some() {
            break;
        }
        std::thread::sleep(STEP);
    }
    let Some(status) = ended else {
        child.kill().and_then(|()| child.wait()).map_err(|e| e.to_string())?;
        return Err(format!("`{program}` did not end within {} s", (STEP * STEPS).as_secs()));
    };
    if !status.success() {
        return Err(format!("`{program}` failed ({status})"));
    }
    let text = reader.join().map_err(|_| "its output could not be read".to_owned())?;
    text.map(|text| text.trim_end_matches(['\n', '\r']).to_owned()).map_err(|_| "its output is not text".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_is_read_strictly_and_errors_show_no_value() {
        let fine = "[secrets.CRM]\nvalue = \"sk-canary-1\"\nservers = [\"crm\"]\ntools = { mcp__crm__login = [\"password\"] }\n";
        let declared = parse(fine).unwrap();
        assert!(declared["CRM"].tools["mcp__crm__login"].contains("password"));
        assert!(!format!("{declared:?}").contains("canary"));
        let wrong = [
            (
                "[secrets.A]\nvalue = \"sk-canary-1\"\nvalu = 1",
                "line 3: there is a field with an unknown name; did you mean `value`?",
            ),
            ("[secrets.A]\nvalue = sk-canary-1", "line 2:"),
            ("[secrets.\"a b\"]\nvalue = \"sk-canary-1\"", "a name in [secrets.NAME] is not valid"),
            ("[secrets.\"sk-canary-1\"]\nservers = []", "a name in [secrets.NAME] is not valid"),
            ("[secrets]\nA = \"sk-canary-1\"", "line 2: it is a string, but must be an object"),
            ("secrets = \"sk-canary-1\"", "line 1: it is a string, but must be an object"),
            ("[secrets.A]\ntools = \"sk-canary-1\"", "line 2: it is a string"),
            ("[secrets.A]\ncommand = \"printf sk-canary-1\"", "line 2: it is a string, but must be a list"),
            ("[secrets.A]\nvalue = \"sk-canary-1\"\ncommand = [\"x\"]", "keep one"),
            ("[secrets.A]\nvalue = \"short\"", "shorter than 8"),
            ("[secrets.A]\ncommand = []", "the program and its arguments"),
            ("[secrets.A]\ntools = { \"mcp__*\" = [\"x\"] }", "one of them is a pattern"),
        ];
        for (text, words) in wrong {
            let why = parse(text).unwrap_err();
            assert!(why.contains(words) && !why.contains("canary"), "{text:?}: {why}");
        }
    }

    #[test]
    fn a_command_is_run_without_a_shell_and_fails_by_name() {
        let own = || Settings::of_process().for_tool_servers();
        let words = |all: &[&str]| all.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
        assert_eq!(run(&words(&["printf", "%s\\n", "a value; $HOME"]), own()).unwrap(), "a value; $HOME");
        assert!(run(&words(&["false"]), own()).unwrap_err().contains("failed"));
        assert!(run(&words(&["/no/such/program"]), own()).unwrap_err().contains("cannot be run"));
    }
}
