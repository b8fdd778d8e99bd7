//! What the bridge is told, and what it tells the broker first.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use crate::line::{object, quoted};
use crate::options::Options;

/// The version of what bridge and broker say to each other.
pub const WIRE: u32 = 1;

/// What a tool server is given of the client's environment besides what its entry names.
const PASSED: [&str; 12] = [
    "HOME",
    "PATH",
    "LANG",
    "LANGUAGE",
    "TERM",
    "USER",
    "LOGNAME",
    "SHELL",
    "TMPDIR",
    "TZ",
    "XDG_RUNTIME_DIR",
    "SSL_CERT_FILE",
];

/// What says which project and which session a client is in. Hints: they are inherited by whatever the client starts.
const HINTS: [&str; 3] = ["CLAUDE_PROJECT_DIR", "CLAUDE_CODE_SESSION_ID", "GROK_SESSION_ID"];

/// What the bridge is told: `--socket PATH --name NAME [--start WORD]… [--env NAME]… [--project FOLDER] [--patience SECONDS] --
/// COMMAND ARG…`, or in the place of the command `--url URL [--header LINE]… [--header-from NAME=VARIABLE]…`, or `--all`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Args {
    /// Where the broker listens.
    pub socket: PathBuf,
    /// How the broker is started when nobody listens: a program and its arguments, which return when somebody does.
    pub start: Vec<OsString>,
    /// The tool server's name in the client's configuration.
    pub name: String,
    /// Variables that the client's entry gives to the tool server.
    pub env: Vec<String>,
    /// The project, where the client's own word for it is not to count.
    pub project: Option<String>,
    /// How long the client waits for an answer, in seconds, where its entry says so.
    pub patience: Option<u32>,
    /// The tool server's command, as the entry had it; empty when it is reached over HTTP.
    pub command: Vec<OsString>,
    /// Where it is, when it is reached over HTTP.
    pub url: Option<String>,
    /// Whether it is all of the user's tool servers as one, which the broker knows.
    pub all: bool,
    /// What goes with every request there: `Name: value`, where `${NAME}` stands for a variable of `env`.
    pub headers: Vec<String>,
}

/// Whether a tool server's command is an entry of the same gateway. One with a folder of its own is another one.
fn is_the_gateway(command: &[OsString]) -> bool {
    let [program, first, rest @ ..] = command else { return false };
    let is_ua = Path::new(program).file_name().is_some_and(|name| name == "ua");
    is_ua && first == "gateway" && !Options::of(rest).has("--root")
}

impl Args {
    /// Reads the arguments.
    ///
    /// # Errors
    /// A sentence about the first that does not fit.
    pub fn parse(args: impl IntoIterator<Item = OsString>) -> Result<Self, String> {
        let args: Vec<OsString> = args.into_iter().collect();
        let Options { options, command } = Options::of(&args);
        let mut read = Self::default();
        let text = |option: &str, value: Option<&OsString>| -> Result<String, String> {
            let value = value.ok_or_else(|| format!("`{option}` needs a value"))?;
            value.clone().into_string().map_err(|_| format!("the value of `{option}` is not UTF-8"))
        };
        for (option, value) in options {
            match option.to_str() {
                Some("--socket") => read.socket = value.map(PathBuf::from).unwrap_or_default(),
                Some("--start") => read.start.extend(value.cloned()),
                Some("--name") => read.name = text("--name", value)?,
                Some("--env") => read.env.push(text("--env", value)?),
                Some("--all") => read.all = true,
                Some("--url") => read.url = Some(text("--url", value)?),
                Some("--header") => read.headers.push(text("--header", value)?),
                Some("--header-from") => {
                    let value = text("--header-from", value)?;
                    let (header, variable) = value
                        .split_once('=')
                        .filter(|(header, variable)| !header.is_empty() && !variable.is_empty())
                        .ok_or_else(|| format!("`--header-from` wants `HEADER=VARIABLE`, not `{value}`"))?;
                    read.headers.push(format!("{header}: ${{{variable}}}"));
                    read.env.push(variable.to_owned());
                }
                Some("--project") => read.project = Some(text("--project", value)?),
                Some("--patience") => {
                    let value = text("--patience", value)?;
                    let seconds = value.parse::<u32>().ok().filter(|seconds| *seconds > 0);
                    let wrong = || format!("`--patience` wants whole seconds, not `{value}`");
                    read.patience = Some(seconds.ok_or_else(wrong)?);
                }
                Some(_) | None => return Err(format!("unknown option `{}`", crate::shown(option))),
            }
        }
        if command.is_none() && read.url.is_none() && !read.all {
            return Err("`--` and the tool server's command are missing".to_owned());
        }
        read.command = command.unwrap_or_default().to_vec();
        if is_the_gateway(&read.command) {
            return Err("the command after `--` is this gateway itself, so that each call with an effect would wait for itself; \
                        write the entry without the gateway in front"
                .to_owned());
        }
        if read.url.is_some() && !read.command.is_empty() {
            return Err("a tool server has a `--url` or a command, not both".to_owned());
        }
        if read.all && (read.url.is_some() || !read.command.is_empty()) {
            return Err("`--all` stands for the user's tool servers, and takes no other".to_owned());
        }
        if read.all && read.name.is_empty() {
            "all".clone_into(&mut read.name);
        }
        if read.url.is_none() && !read.headers.is_empty() {
            return Err("`--header` needs a `--url`".to_owned());
        }
        if read.url.is_some() && read.name.is_empty() {
            return Err("`--name` is missing: a `--url` names no tool server".to_owned());
        }
        if read.url.is_none() && read.command.is_empty() && !read.all {
            return Err("the tool server's command is missing after `--`".to_owned());
        }
        if read.socket.as_os_str().is_empty() {
            return Err("`--socket` is missing".to_owned());
        }
        if read.name.is_empty() {
            // As clients name a server that nobody named: by its program.
            let program = PathBuf::from(&read.command[0]);
            read.name = program.file_stem().map(OsStr::to_string_lossy).unwrap_or_default().into_owned();
        }
        let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        if read.name.is_empty() || !read.name.chars().all(is_plain) || read.name.contains("__") {
            return Err(format!(
                "`{}` is not a valid name of a tool server: letters, digits, `-` and single `_`",
                read.name
            ));
        }
        Ok(read)
    }

    /// Why the tool server cannot be started from here, if its program is not there: by its path, or in a folder of the `PATH`.
    pub(crate) fn missing_program(&self, environment: &Environment) -> Option<String> {
        let program = self.command.first()?;
        let is_there = |place: &Path| std::fs::metadata(place.join(program)).is_ok_and(|found| found.is_file());
        let is_found = if program.as_encoded_bytes().contains(&b'/') {
            is_there(Path::new(&environment.cwd))
        } else {
            // Without one the system has folders of its own.
            let path = environment.variables.get("PATH").filter(|path| !path.is_empty());
            path.is_none_or(|path| {
                std::env::split_paths(path).any(|place| is_there(&Path::new(&environment.cwd).join(place)))
            })
        };
        (!is_found).then(|| {
            format!(
                "the tool server's program `{}` was not found: install it, or correct the command after `--` in the client's configuration",
                crate::shown(program.as_os_str())
            )
        })
    }

    /// What the broker is told first, on one line: who asks, for which tool server, from where. `handshake` is the client's `initialize` of
    /// this connection, when it was answered before; `asked`, how long ago its requests came that stand behind this line, as JSON.
    pub(crate) fn hello(
        &self,
        bridge: &str,
        environment: &Environment,
        asked: &str,
        handshake: Option<&str>,
    ) -> String {
        let passed = environment.variables.iter().filter(|(name, _)| {
            PASSED.contains(&name.as_str()) || name.starts_with("LC_") || self.env.iter().any(|own| own == *name)
        });
        let hints = environment.variables.iter().filter(|(name, _)| HINTS.contains(&name.as_str()));
        let list =
            |words: &[String]| format!("[{}]", words.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(","));
        let command: Vec<String> = self.command.iter().map(|word| word.to_string_lossy().into_owned()).collect();
        format!(
            "{{\"wire\":{WIRE},\"says_again\":true,\"asks_first\":true,\"asked\":{asked},\"bridge\":{},\"name\":{},\"command\":{},\"url\":{},\"all\":{},\"headers\":{},\"cwd\":{},\"project\":{},\"patience\":{},\"parent\":{},\"secret\":{},\"env\":{},\"hints\":{},\"handshake\":{}}}",
            quoted(bridge),
            quoted(&self.name),
            list(&command),
            self.url.as_deref().map_or_else(|| "null".to_owned(), quoted),
            self.all,
            list(&self.headers),
            quoted(&environment.cwd),
            self.project.as_deref().map_or_else(|| "null".to_owned(), quoted),
            self.patience.map_or_else(|| "null".to_owned(), |seconds| seconds.to_string()),
            environment.parent,
            list(&self.env),
            object(passed),
            object(hints),
            handshake.unwrap_or("null"),
        )
    }
}

/// Where the bridge was started.
#[derive(Debug, Clone, Default)]
pub(crate) struct Environment {
    /// Variables whose names and values are UTF-8; no other is passed on.
    pub(crate) variables: BTreeMap<String, String>,
    /// The folder.
    pub(crate) cwd: String,
    /// The process that started it.
    pub(crate) parent: u32,
}

impl Environment {
    #[expect(
        clippy::disallowed_methods,
        reason = "the tool server is given what the client gave to this program, and there is no host in it"
    )]
    pub(crate) fn here() -> Self {
        let variables = std::env::vars_os();
        Self {
            variables: variables
                .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
                .collect(),
            cwd: std::env::current_dir().map(|cwd| cwd.to_string_lossy().into_owned()).unwrap_or_default(),
            parent: std::os::unix::process::parent_id(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &str) -> Result<Args, String> {
        Args::parse(words.split_whitespace().map(OsString::from))
    }

    #[test]
    fn an_entry_is_a_name_and_the_old_command() {
        let read =
            parse("--socket /s --name mail --start ua --start gateway --env KEY -- npx -y mail --name x").unwrap();
        assert_eq!((read.name.as_str(), read.env.as_slice()), ("mail", &["KEY".to_owned()][..]));
        assert_eq!((read.start.len(), read.command.len()), (2, 5));
        assert_eq!(parse("--socket /s -- /opt/mail-server --x").unwrap().name, "mail-server");
        assert_eq!(parse("--socket /s --name a -- ua gateway --root /other --all").unwrap().command.len(), 5);
        let all = parse("--socket /s --all").unwrap();
        assert!(all.all && all.name == "all" && all.command.is_empty());
        for (words, why) in [
            ("--socket /s mail", "unknown option"),
            ("--socket /s", "are missing"),
            ("--socket /s --", "is missing after"),
            ("-- mail", "--socket"),
            ("--socket /s --name a__b -- mail", "is not a valid name"),
            ("--socket /s --name", "needs a value"),
            ("--socket /s --url http://x/mcp", "`--name` is missing"),
            ("--socket /s --name a --patience 0 -- mail", "whole seconds, not `0`"),
            ("--socket /s --name a --patience 5s -- mail", "whole seconds, not `5s`"),
            ("--socket /s --name a --url http://x/mcp -- mail", "not both"),
            ("--socket /s --name a --header A:b -- mail", "needs a `--url`"),
            ("--socket /s --all -- mail", "takes no other"),
            ("--socket /s --name a --header-from A --url http://x/mcp", "HEADER=VARIABLE"),
            ("--socket /s --name all -- /opt/bin/ua gateway --all", "this gateway itself"),
            ("--socket /s --name a -- ua gateway --env --root -- mail", "this gateway itself"),
            ("--socket /s --name a -- ua gateway --name a -- mail", "this gateway itself"),
        ] {
            let refused = parse(words).unwrap_err();
            assert!(refused.contains(why), "{words}: {refused}");
        }
    }

    #[test]
    fn a_program_that_is_not_there_is_named_with_what_helps() {
        let variables = [("PATH".to_owned(), "/nowhere:/bin".to_owned())].into();
        let here = Environment { variables, cwd: "/bin".to_owned(), parent: 7 };
        let missing =
            |command: &str| parse(&format!("--socket /s --name a -- {command}")).unwrap().missing_program(&here);
        for there in ["sh", "/bin/sh", "./sh"] {
            assert_eq!(missing(there), None, "{there}");
        }
        for gone in ["no-such-server", "/no/such", "./no-such-server"] {
            assert!(
                missing(gone).is_some_and(|why| why.contains(&format!("`{gone}` was not found: install"))),
                "{gone}"
            );
        }
        assert_eq!(parse("--socket /s --name a --url http://x/mcp").unwrap().missing_program(&here), None);
        let pathless = Environment { variables: BTreeMap::new(), ..here.clone() };
        assert_eq!(parse("--socket /s -- sh").unwrap().missing_program(&pathless), None);
    }

    #[test]
    fn a_tool_server_may_be_an_address() {
        let args =
            parse("--socket /s --name web --patience 9 --header X-Key:${KEY} --env KEY --url http://x/mcp").unwrap();
        let variables = [("KEY".to_owned(), "k".to_owned())].into();
        let hello = args.hello("01", &Environment { variables, cwd: "/".to_owned(), parent: 7 }, "{}", None);
        assert!(
            hello.contains("\"command\":[],\"url\":\"http://x/mcp\",\"all\":false,\"headers\":[\"X-Key:${KEY}\"],"),
            "{hello}"
        );
        assert!(hello.contains("\"project\":null,\"patience\":9,\"parent\":7,"), "{hello}");
        let whole = parse("--socket /s --name web --header-from X-Key=KEY --url http://x/mcp").unwrap();
        assert_eq!((whole.headers, whole.env), (vec!["X-Key: ${KEY}".to_owned()], vec!["KEY".to_owned()]));
    }

    #[test]
    fn a_tool_server_is_given_what_its_entry_names_and_no_key_of_the_client() {
        let args = parse("--socket /s --name mail --env SMTP_PASSWORD -- mail").unwrap();
        let variables = [
            ("PATH", "/bin"),
            ("SMTP_PASSWORD", "a\"b"),
            ("ANTHROPIC_API_KEY", "sk-key"),
            ("CLAUDE_PROJECT_DIR", "/p"),
        ];
        let variables = variables.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        let hello =
            args.hello("01", &Environment { variables, cwd: "/p".to_owned(), parent: 7 }, "{}", Some("{\"id\":1}"));
        assert!(hello.contains("\"env\":{\"PATH\":\"/bin\",\"SMTP_PASSWORD\":\"a\\\"b\"}"), "{hello}");
        assert!(
            hello.contains("\"hints\":{\"CLAUDE_PROJECT_DIR\":\"/p\"}") && hello.ends_with("\"handshake\":{\"id\":1}}")
        );
        assert!(!hello.contains("sk-key") && !hello.contains('\n'), "{hello}");
    }
}
