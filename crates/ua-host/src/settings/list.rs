//! Every setting there is.

use std::cell::RefCell;
use std::path::PathBuf;

use crate::providers::NAMES;

/// What a setting takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ValueKind {
    /// Any text.
    Text,
    /// A path; in a file a relative one starts at the file's folder and `~/` at home, in the environment it starts at the folder of the process.
    Path,
    /// The same of a program; a plain name in the environment is looked for in `PATH`.
    Program,
    /// Text, or such a path after this beginning.
    PathAfter(&'static str),
    /// A list of paths.
    Paths,
    /// A whole number of seconds.
    Seconds,
    /// A whole number.
    Number,
    /// true or false.
    Flag,
    /// One of these words.
    Word(&'static [&'static str]),
    /// A key, which is never shown.
    Secret,
}

impl ValueKind {
    /// A value with every path in it made absolute by `whole`. This is the one place where it is said which part of a value is a path.
    pub(crate) fn with_paths(self, value: &str, whole: impl Fn(&str) -> String) -> String {
        match self {
            Self::Path => whole(value),
            Self::Program if value.contains('/') => whole(value),
            Self::PathAfter(beginning) => match value.strip_prefix(beginning).filter(|path| !path.is_empty()) {
                Some(path) => format!("{beginning}{}", whole(path)),
                None => value.to_owned(),
            },
            Self::Paths => {
                let each = |path: &str| if path.is_empty() { String::new() } else { whole(path) };
                value.split(':').map(each).collect::<Vec<_>>().join(":")
            }
            Self::Program | Self::Text | Self::Seconds | Self::Number | Self::Flag | Self::Word(_) | Self::Secret => {
                value.to_owned()
            }
        }
    }

    /// Every path in a value, also one that is written as a `file://` address.
    pub(crate) fn paths_in(self, value: &str) -> Vec<PathBuf> {
        let found = RefCell::new(Vec::new());
        self.with_paths(value, |path| {
            found.borrow_mut().push(PathBuf::from(path));
            path.to_owned()
        });
        let address = url::Url::parse(value).ok().filter(|address| address.scheme() == "file");
        found.into_inner().into_iter().chain(address.and_then(|address| address.to_file_path().ok())).collect()
    }
}

/// One setting.
#[derive(Debug)]
pub struct Setting {
    /// Its key in a file.
    pub key: &'static str,
    /// Its variable in the environment.
    pub variable: &'static str,
    /// What it takes.
    pub kind: ValueKind,
    /// What it is for. The page of the guide has these words.
    pub about: &'static str,
    /// What holds when nobody says anything; `None` when nothing does.
    pub default: Option<&'static str>,
    /// Why the project's file may not set it; `None` when it may.
    pub only_user: Option<&'static str>,
}

impl Setting {
    /// Whether what lies at a path of it counts as the user's own word: programs and servers that are run, policies, a database, what a model is said
    /// to have answered, what was kept for it to remember, who vouches for a server. What a place merely receives is none of these.
    pub(super) fn is_believed(&self) -> bool {
        self.only_user.is_some() && self.only_user != SENDS
    }
}

const RUNS_PROGRAMS: Option<&str> = Some("it decides which programs are run");
const SENDS: Option<&str> = Some("it decides where things are sent");
const OPENS: Option<&str> = Some("it decides what programs of a job can reach");
const DECIDES: Option<&str> = Some("its content decides what is sent again");
const BELIEVED: Option<&str> = Some("its content is believed");
const KEY: Option<&str> = Some("it is a key");

const fn setting(
    key: &'static str,
    variable: &'static str,
    kind: ValueKind,
    default: Option<&'static str>,
    only_user: Option<&'static str>,
    about: &'static str,
) -> Setting {
    Setting { key, variable, kind, about, default, only_user }
}

/// What is said on standard error where nobody asked for more: our warnings, but not those of the model client, whose retries are lines of
/// progress already. What libraries say of themselves (a protocol's error codes, a pool's lost connections) is not written for people: what
/// matters of it is an error of ours.
pub const LOG_DEFAULT: &str = "off,ua_=warn,ua_llm=error";

/// The list. A setting that is added here can be set in the files, is asked for by [`crate::settings::Settings::var`], and is shown by `ua config show`.
pub const SETTINGS: &[Setting] = &[
    setting("root", "UA_ROOT", ValueKind::Path, Some("AGENT_RUN_WORKSPACES"), None, "Folder of all workspaces"),
    setting(
        "database",
        "UA_RUNTIME_DB_PATH",
        ValueKind::Path,
        Some("<root>/runtime_state.db"),
        DECIDES,
        "The runtime database",
    ),
    setting(
        "database_url",
        "UA_DATABASE_URL",
        ValueKind::Secret,
        None,
        DECIDES,
        "The runtime database on a PostgreSQL server, instead of the file",
    ),
    setting(
        "mcp_config",
        "UA_MCP_CONFIG",
        ValueKind::Path,
        Some(".mcp.json if there is one"),
        RUNS_PROGRAMS,
        "File with an `mcpServers` object",
    ),
    setting(
        "policies",
        "UA_POLICY",
        ValueKind::Paths,
        None,
        Some("it can let tools be run again"),
        "Policy files, the strongest first; in the environment separated by colons",
    ),
    setting(
        "side_effect_denylist",
        "UA_SIDE_EFFECT_DENYLIST",
        ValueKind::Text,
        None,
        None,
        "Tools that have an effect outside, whatever their names say: names or globs, separated by commas",
    ),
    setting(
        "read_only_allowlist",
        "UA_READ_ONLY_ALLOWLIST",
        ValueKind::Text,
        None,
        Some("it lets tools be run again"),
        "Tools that only look, whatever their names say: names or globs, separated by commas",
    ),
    setting(
        "ask_on_tainted_effect",
        "UA_ASK_ON_TAINTED_EFFECT",
        ValueKind::Flag,
        Some("false"),
        Some("it could take a question away that you want to be asked"),
        "Ask about effects of a tainted run whatever its job says",
    ),
    setting(
        "server_packs",
        "UA_SERVER_PACKS",
        ValueKind::Text,
        None,
        Some("it lets tools be run again"),
        "Policy packs of tool servers whose configuration does not name their package: `SERVER=PACK` or `SERVER=none`, separated by commas",
    ),
    setting(
        "trust_annotations",
        "UA_TRUST_ANNOTATIONS",
        ValueKind::Text,
        None,
        Some("it lets tools be run again"),
        "Tool servers whose `readOnlyHint` may confirm what a tool's name suggests, separated by commas",
    ),
    setting(
        "login_store",
        "UA_LOGIN_STORE",
        ValueKind::Word(&["auto", "keyring", "file"]),
        Some("auto"),
        Some("it decides where keys are kept"),
        "Where logins at tool servers are kept: the desktop's keyring where there is one, always it, or files",
    ),
    setting(
        "pricing",
        "UA_PRICING",
        ValueKind::Path,
        Some("pricing.toml beside the user's config.toml, if there is one"),
        None,
        "Price table (TOML or JSON)",
    ),
    setting(
        "allow_private_addresses",
        "UA_ALLOW_PRIVATE_ADDRESSES",
        ValueKind::Flag,
        Some("false"),
        Some("it opens the network of this machine to crawls"),
        "Let crawls reach loopback and private addresses",
    ),
    setting(
        "model.provider",
        "UA_PROVIDER",
        ValueKind::Text,
        Some("anthropic"),
        None,
        "Model provider of a job that names none",
    ),
    setting(
        "model.name",
        "ANTHROPIC_MODEL",
        ValueKind::Text,
        Some("claude-sonnet-4-5"),
        None,
        "Model of a job that names none, for the provider `anthropic`",
    ),
    setting(
        "model.keep_bodies",
        "UA_KEEP_BODIES",
        ValueKind::Flag,
        Some("false"),
        None,
        "Keep every exchange with the model in the workspace, as logs/model.jsonl",
    ),
    setting(
        "model.cassette",
        "UA_CASSETTE",
        ValueKind::Path,
        None,
        Some("it decides what the model says"),
        "Cassette that the provider `replay` answers from",
    ),
    setting(
        "models",
        "UA_MODELS",
        ValueKind::Path,
        Some("models.toml beside the user's config.toml, if there is one"),
        None,
        "File with what is known about models, overriding what this version knows",
    ),
    setting(
        "model.timeout_seconds",
        "UA_MODEL_TIMEOUT",
        ValueKind::Seconds,
        Some("300"),
        None,
        "How long a model may be silent, 1 to 86400",
    ),
    setting(
        "model.reply_timeout_seconds",
        "UA_MODEL_REPLY_TIMEOUT",
        ValueKind::Seconds,
        Some("3600"),
        None,
        "How long one reply may take altogether, however steadily it comes, 1 to 86400",
    ),
    setting(
        "model.provider_sessions",
        "UA_PROVIDER_SESSIONS",
        ValueKind::Flag,
        Some("false"),
        Some("it decides what a provider keeps"),
        "Let the provider `openai` keep conversations, for a job that does not say",
    ),
    setting(
        "model.plain_http_hosts",
        "UA_PLAIN_HTTP_HOSTS",
        ValueKind::Text,
        None,
        SENDS,
        "Hosts of a private network that models may be asked at over plain http, separated by commas: `ollama`, `litellm:4000`",
    ),
    setting(
        "providers.anthropic.api_key",
        "ANTHROPIC_API_KEY",
        ValueKind::Secret,
        None,
        KEY,
        "Key for the provider `anthropic`",
    ),
    setting(
        "providers.anthropic.base_url",
        "ANTHROPIC_BASE_URL",
        ValueKind::Text,
        Some("https://api.anthropic.com"),
        SENDS,
        "Where the provider `anthropic` is",
    ),
    setting(
        "providers.openai.api_key",
        "OPENAI_API_KEY",
        ValueKind::Secret,
        None,
        KEY,
        "Key for the providers `openai` and `openai-chat`",
    ),
    setting(
        "providers.openai.base_url",
        "OPENAI_BASE_URL",
        ValueKind::Text,
        Some("https://api.openai.com/v1"),
        SENDS,
        "Where the providers `openai` and `openai-chat` are",
    ),
    setting(
        "providers.openai.model",
        "OPENAI_MODEL",
        ValueKind::Text,
        None,
        None,
        "Model of a job that names none, for the providers `openai` and `openai-chat`",
    ),
    setting(
        "providers.claude_code.program",
        "UA_CLAUDE_CODE",
        ValueKind::Program,
        Some("claude, in a folder of PATH"),
        RUNS_PROGRAMS,
        "Program of the provider `claude-code`",
    ),
    setting(
        "output.color",
        "UA_COLOR",
        ValueKind::Word(&["auto", "always", "never"]),
        Some("auto"),
        None,
        "Colours; NO_COLOR and CLICOLOR_FORCE apply with auto",
    ),
    setting(
        "output.progress",
        "UA_PROGRESS",
        ValueKind::Word(&["auto", "lines"]),
        Some("auto"),
        None,
        "Progress: live on a terminal, or lines everywhere",
    ),
    setting(
        "output.log",
        "UA_LOG",
        ValueKind::Text,
        Some(LOG_DEFAULT),
        None,
        "Diagnostics on standard error, for example debug or ua_mcp=trace",
    ),
    setting(
        "alert.command",
        "UA_ALERT_COMMAND",
        ValueKind::Text,
        None,
        RUNS_PROGRAMS,
        "Program that is run when a run, or the gateway, starts to wait for a person",
    ),
    setting(
        "alert.webhook",
        "UA_ALERT_WEBHOOK",
        ValueKind::Secret,
        None,
        SENDS,
        "Address that is notified when a run, or the gateway, starts to wait for a person; it may hold a token",
    ),
    setting(
        "alert.on",
        "UA_ALERT_ON",
        ValueKind::Text,
        Some("waiting"),
        None,
        "When to send alerts: waiting, or waiting,ended",
    ),
    setting(
        "telemetry.otlp_endpoint",
        "OTEL_EXPORTER_OTLP_ENDPOINT",
        ValueKind::Text,
        None,
        SENDS,
        "Where traces and metrics go by OTLP",
    ),
    setting(
        "telemetry.level",
        "UA_OTEL_LEVEL",
        ValueKind::Word(&["off", "error", "warn", "info", "debug", "trace"]),
        Some("info"),
        None,
        "How much of what happens becomes spans and events",
    ),
    setting(
        "telemetry.content",
        "UA_OTEL_CONTENT",
        ValueKind::Flag,
        Some("false"),
        SENDS,
        "Send prompts, replies, arguments and results with the spans",
    ),
    setting(
        "tools.start_timeout_seconds",
        "UA_SERVER_START_TIMEOUT",
        ValueKind::Seconds,
        Some("30"),
        None,
        "How long a tool server may take to answer its first request, 1 to 86400",
    ),
    setting(
        "tools.elicitation_wait",
        "UA_ELICITATION_WAIT",
        ValueKind::Seconds,
        Some("300"),
        None,
        "How long a tool that asks in the middle of a call waits for an answer",
    ),
    setting(
        "run_command.sandbox",
        "UA_COMMAND_SANDBOX",
        ValueKind::Word(crate::sandbox::HOW),
        Some("auto"),
        OPENS,
        "Confine programs of `run_command`: as far as the kernel can, or not start them otherwise, or not at all",
    ),
    setting(
        "run_command.network",
        "UA_COMMAND_NETWORK",
        ValueKind::Flag,
        Some("false"),
        OPENS,
        "Let programs of `run_command` use the network",
    ),
    setting(
        "run_command.read",
        "UA_COMMAND_READ",
        ValueKind::Paths,
        None,
        OPENS,
        "Further folders that programs of `run_command` may read and run files of",
    ),
    setting(
        "run_command.processes",
        "UA_COMMAND_PROCESSES",
        ValueKind::Number,
        Some("512"),
        OPENS,
        "Processes and threads of such a program, with all it starts; 0 is no limit, here and below",
    ),
    setting(
        "run_command.open_files",
        "UA_COMMAND_OPEN_FILES",
        ValueKind::Number,
        Some("1024"),
        OPENS,
        "Open files of each",
    ),
    setting(
        "run_command.memory_mib",
        "UA_COMMAND_MEMORY_MIB",
        ValueKind::Number,
        Some("16384"),
        OPENS,
        "Address space of each, in MiB",
    ),
    setting(
        "run_command.file_mib",
        "UA_COMMAND_FILE_MIB",
        ValueKind::Number,
        Some("4096"),
        OPENS,
        "Size of a file that one writes, in MiB",
    ),
    setting(
        "run_command.cpu_seconds",
        "UA_COMMAND_CPU_SECONDS",
        ValueKind::Number,
        Some("21600"),
        OPENS,
        "CPU seconds that each may use",
    ),
    setting(
        "tools.mail",
        "UA_MAIL",
        ValueKind::PathAfter("maildir:"),
        None,
        SENDS,
        "Mail server or mail API of `send_email`",
    ),
    setting("tools.mail_from", "UA_MAIL_FROM", ValueKind::Text, None, SENDS, "Sender of `send_email`"),
    setting(
        "tools.mail_ca_file",
        "UA_MAIL_CA_FILE",
        ValueKind::Path,
        None,
        BELIEVED,
        "Certificate authority that may vouch for the mail server",
    ),
    setting(
        "tools.outbox",
        "UA_OUTBOX",
        ValueKind::Path,
        Some("<root>/outbox"),
        SENDS,
        "Maildir of `send_email` without a mail server",
    ),
    setting(
        "tools.objects",
        "UA_OBJECTS",
        ValueKind::Text,
        Some("<root>/objects"),
        SENDS,
        "Where `upload` puts files: file:// or s3://",
    ),
    setting("tools.s3_endpoint", "UA_S3_ENDPOINT", ValueKind::Text, None, SENDS, "Address of an S3-compatible store"),
    setting("tools.s3_region", "UA_S3_REGION", ValueKind::Text, None, SENDS, "Its region"),
    setting(
        "tools.notifications",
        "UA_NOTIFICATIONS",
        ValueKind::Path,
        Some("<root>/notifications"),
        SENDS,
        "Folder of `notify` without a webhook",
    ),
    setting(
        "tools.notify_webhook",
        "UA_NOTIFY_WEBHOOK",
        ValueKind::Secret,
        None,
        SENDS,
        "Address that `notify` posts to; it may hold a token",
    ),
    setting(
        "tools.memory",
        "UA_MEMORY",
        ValueKind::Path,
        Some("<root>/agent_core.db"),
        BELIEVED,
        "File of the memory tools",
    ),
    setting("tools.search", "UA_SEARCH", ValueKind::Text, None, SENDS, "Search engine of `web_search`"),
    setting("tools.search_api_key", "UA_SEARCH_API_KEY", ValueKind::Secret, None, KEY, "Its key"),
    setting(
        "tools.image_api",
        "UA_IMAGE_API",
        ValueKind::Text,
        None,
        SENDS,
        "API of `describe_image` and `generate_image`: anthropic, openai, or one of them with +address",
    ),
    setting("tools.image_api_key", "UA_IMAGE_API_KEY", ValueKind::Secret, None, KEY, "Its key"),
    setting("tools.image_model", "UA_IMAGE_MODEL", ValueKind::Text, None, SENDS, "Model of `describe_image`"),
    setting(
        "tools.image_generation_model",
        "UA_IMAGE_GENERATION_MODEL",
        ValueKind::Text,
        None,
        SENDS,
        "Model of `generate_image`",
    ),
    setting(
        "tools.composio",
        "UA_COMPOSIO",
        ValueKind::Text,
        None,
        SENDS,
        "Address of Composio for `upload_to_composio`",
    ),
    setting("tools.composio_api_key", "COMPOSIO_API_KEY", ValueKind::Secret, None, KEY, "Its key"),
];

/// What a setting takes in the place of a value that is of its kind and still none of its own; `None` for one that it takes.
pub(super) fn takes_instead(variable: &str, value: &str) -> Option<String> {
    let is_taken = match variable {
        "UA_MODEL_TIMEOUT" | "UA_MODEL_REPLY_TIMEOUT" | "UA_SERVER_START_TIMEOUT" => {
            value.parse().is_ok_and(|seconds: u64| (1..=86_400).contains(&seconds))
        }
        "UA_PROVIDER" => NAMES.contains(&value),
        "UA_ALERT_ON" => matches!(value, "waiting" | "waiting,ended"),
        "UA_LOG" => value.split(',').all(is_directive),
        "UA_PLAIN_HTTP_HOSTS" => ua_llm::PlainHttpHosts::parse(value).is_ok(),
        _ => true,
    };
    if is_taken {
        return None;
    }
    Some(match variable {
        "UA_PROVIDER" => {
            let nearest = ua_core::nearest(value, NAMES);
            let meant = nearest.map_or_else(String::new, |name| format!(" (did you mean `{name}`?)"));
            format!("one of {}{meant}", NAMES.join(", "))
        }
        "UA_ALERT_ON" => "`waiting` or `waiting,ended`".to_owned(),
        "UA_LOG" => "off, error, warn, info, debug or trace, or such a word for one crate as in `ua_mcp=trace`; several with commas".to_owned(),
        "UA_PLAIN_HTTP_HOSTS" => "hosts with or without a port, such as `ollama` or `litellm:4000`, separated by commas".to_owned(),
        _ => "whole seconds from 1 to 86400".to_owned(),
    })
}

/// Whether this is a word for how much is logged, of everything or of what stands before it.
fn is_directive(text: &str) -> bool {
    let level = text.rsplit_once('=').map_or(text, |(_, level)| level).trim().to_ascii_lowercase();
    matches!(level.as_str(), "off" | "error" | "warn" | "info" | "debug" | "trace" | "0" | "1" | "2" | "3" | "4" | "5")
}
