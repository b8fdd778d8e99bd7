//! What the server may touch: flags of the command line, most of them variables of the environment too.
//!
//! An option is written here and nowhere else. `ua` starts its own tool server with the variables that [`environment`] picks
//! out of its own, so what is added here with an `env` is set by whoever sets the variable.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use clap::builder::{BoolishValueParser, FalseyValueParser, TypedValueParser as _};
use clap::{Arg, ArgAction, Command};
use secrecy::SecretString;
use ua_pdf::Layout;

use crate::confine::{Confiner, Limits, Sandbox};
use crate::page_reader::PageReader;
use crate::secrets::{self, Secrets};
use crate::trace::AdoptParent;

/// The settings of one tool server: the options of `ua toolserver`.
#[derive(Debug, Clone, clap::Args)]
#[command(mut_args = unless_off)]
pub struct Settings {
    /// The directory that the tools work in and cannot leave; created when missing.
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub workspace: PathBuf,

    /// A further directory that `crawl_parallel` may read through file:// addresses. May be repeated.
    #[arg(long = "allow-root", value_name = "DIR")]
    pub allow_roots: Vec<PathBuf>,

    /// The Maildir that `send_email` delivers into; outbox in the workspace when left out.
    #[arg(long, value_name = "DIR", env = OUTBOX, hide_env_values = true)]
    pub outbox: Option<PathBuf>,

    /// How `send_email` sends: `maildir:PATH`, `smtp://HOST[:PORT]?starttls=required` (or `never`),
    /// `smtps://HOST[:PORT]`, or `resend+https://HOST` for an API like Resend's. A Maildir when left out. Credentials
    /// come from the environment: `UA_MAIL_USER` and `UA_MAIL_PASSWORD`, or `UA_MAIL_API_KEY`.
    #[arg(long, value_name = "URL", conflicts_with = "outbox", env = MAIL, hide_env_values = true)]
    pub mail: Option<String>,

    /// A file with certificates in PEM form that may vouch for the SMTP server, besides those that this machine trusts.
    #[arg(long, value_name = "FILE", requires = "mail", env = "UA_MAIL_CA_FILE", hide_env_values = true)]
    pub mail_ca_file: Option<PathBuf>,

    /// Where to ask whether an SMTP message arrived: an http(s) address in which `{message_id}` stands for the
    /// Message-ID, without its angle brackets. 200 means it did, 404 that it did not. An address with a token in it
    /// belongs in the environment, because arguments can be read by every user of the machine.
    #[arg(long, value_name = "URL", env = "UA_MAIL_PROBE", hide_env_values = true)]
    pub mail_probe: Option<String>,

    /// How many seconds after an attempt the probe's "not there" can be believed.
    #[arg(long, value_name = "SECONDS", default_value_t = DEFAULT_SETTLE_SECONDS, env = "UA_MAIL_SETTLE_SECONDS", hide_env_values = true)]
    pub mail_settle_seconds: u32,

    /// The object store that `upload` creates objects in: the file:// URL of a directory, or `s3://BUCKET/PREFIX`;
    /// objects in the workspace when left out. S3 credentials come from the environment: `AWS_ACCESS_KEY_ID`,
    /// `AWS_SECRET_ACCESS_KEY` and, where there is one, `AWS_SESSION_TOKEN`.
    #[arg(long, value_name = "URL", env = "UA_OBJECTS", hide_env_values = true)]
    pub objects: Option<String>,

    /// The http(s) address of a store that speaks S3's protocol; Amazon's own when left out.
    #[arg(long, value_name = "URL", env = "UA_S3_ENDPOINT", hide_env_values = true)]
    pub s3_endpoint: Option<String>,

    /// The region that S3 requests are signed for.
    #[arg(long, value_name = "REGION", default_value = DEFAULT_REGION, env = "UA_S3_REGION", hide_env_values = true)]
    pub s3_region: String,

    /// The directory that `notify` writes into; notifications in the workspace when left out.
    #[arg(long, value_name = "DIR", env = "UA_NOTIFICATIONS", hide_env_values = true)]
    pub notifications: Option<PathBuf>,

    /// An http(s) address that `notify` posts to, instead of writing into a directory. An address with a token in it
    /// belongs in the environment, because arguments can be read by every user of the machine.
    #[arg(long, value_name = "URL", env = "UA_NOTIFY_WEBHOOK", hide_env_values = true)]
    pub notify_webhook: Option<String>,

    /// Declares that the receiver of `--notify-webhook` acts once per `Idempotency-Key`, so that a notification may be
    /// posted again under its key.
    #[arg(long, requires = "notify_webhook", env = "UA_NOTIFY_WEBHOOK_HONOURS_KEYS", hide_env_values = true, value_parser = FalseyValueParser::new())]
    pub notify_webhook_honours_keys: bool,

    /// The file that the memory tools keep what they are told in, shared by all jobs that name it; agent_core.db in the
    /// server's own folder of the workspace when left out.
    #[arg(long, value_name = "FILE", env = "UA_MEMORY", hide_env_values = true)]
    pub memory: Option<PathBuf>,

    /// The search engine that `web_search` asks: `searxng+https://HOST` or `brave+https://HOST`; without one the tool is
    /// not offered. The engine's key comes from the environment: `UA_SEARCH_API_KEY`.
    #[arg(long, value_name = "URL", env = "UA_SEARCH", hide_env_values = true)]
    pub search: Option<String>,

    /// The API that `describe_image` and `generate_image` ask: `anthropic` or `openai`, with an address such as
    /// `openai+http://127.0.0.1:8080/v1` where it is not the maker's own; without one they are not offered. Its key comes from
    /// the environment: `UA_IMAGE_API_KEY`.
    #[arg(long, value_name = "API", env = "UA_IMAGE_API", hide_env_values = true)]
    pub image_api: Option<String>,

    /// The model that `describe_image` asks; without one it is not offered.
    #[arg(long, value_name = "MODEL", requires = "image_api", env = "UA_IMAGE_MODEL", hide_env_values = true)]
    pub image_model: Option<String>,

    /// The model that `generate_image` asks; without one it is not offered.
    #[arg(
        long,
        value_name = "MODEL",
        requires = "image_api",
        env = "UA_IMAGE_GENERATION_MODEL",
        hide_env_values = true
    )]
    pub image_generation_model: Option<String>,

    /// Declares that the API of `--image-api` charges once per `Idempotency-Key`, so that a lost request may be sent again
    /// under its key.
    #[arg(long, requires = "image_api", env = "UA_IMAGE_API_HONOURS_KEYS", hide_env_values = true, value_parser = FalseyValueParser::new())]
    pub image_api_honours_keys: bool,

    /// Composio's address for `upload_to_composio`, such as <https://backend.composio.dev>; without one the tool is not
    /// offered. The key comes from the environment: `COMPOSIO_API_KEY`.
    #[arg(long, value_name = "URL", env = "UA_COMPOSIO", hide_env_values = true)]
    pub composio: Option<String>,

    /// The sender of every message of `send_email`.
    #[arg(long, value_name = "ADDRESS", default_value = DEFAULT_SENDER, env = "UA_MAIL_FROM", hide_env_values = true)]
    pub mail_from: String,

    /// Offers `run_command`, which runs any program, confined as the flags below say.
    #[arg(long)]
    pub enable_command: bool,

    /// Where `run_command` looks for programs: directories separated by colons.
    #[arg(long, value_name = "PATH", default_value = DEFAULT_COMMAND_PATH)]
    pub command_path: String,

    /// Whether programs of `run_command` are confined: as far as the kernel can, entirely or not started, or not at all.
    #[arg(long, value_enum, value_name = "HOW", default_value_t = Sandbox::Auto, env = "UA_COMMAND_SANDBOX", hide_env_values = true)]
    pub command_sandbox: Sandbox,

    /// Lets programs of `run_command` use the network, whatever else they are kept from.
    #[arg(long, env = "UA_COMMAND_NETWORK", hide_env_values = true, value_parser = BoolishValueParser::new())]
    pub command_network: bool,

    /// A further directory that programs of `run_command` may read and run files of. May be repeated.
    #[arg(long = "command-read", value_name = "DIR")]
    pub command_read: Vec<PathBuf>,

    /// A directory that neither programs of `run_command` nor file:// addresses may see, wherever it is, such as the user's home. What is named
    /// by itself inside of it stays open. May be repeated.
    #[arg(long = "command-private", value_name = "DIR")]
    pub command_private: Vec<PathBuf>,

    /// How much of the machine a program of `run_command` may use; 0 is no limit.
    #[command(flatten)]
    pub command_limits: Limits,

    /// What confines programs of `run_command`; set by the program that contains this server.
    #[arg(skip)]
    pub confiner: Option<Confiner>,

    /// What lays out the documents of `render_pdf`, which is offered only with one; set by the program that contains this server.
    #[arg(skip)]
    pub pdf: Option<Layout>,

    /// What reads long pages, so that one which takes too long can be ended; set by the program that contains this server. Without one they are read
    /// in this process, on threads that nobody can end.
    #[arg(skip)]
    pub page_reader: Option<PageReader>,

    /// Lets `crawl_parallel` reach loopback, private and link-local addresses.
    #[arg(long)]
    pub allow_private_addresses: bool,

    /// A host, with all hosts below it, that `crawl_parallel` may reach, redirects included; any when left out. May be repeated.
    #[arg(long = "allow-domain", value_name = "HOST")]
    pub allowed_domains: Vec<String>,

    /// Serves over Streamable HTTP at this address (127.0.0.1:0 takes a free port) instead of standard input and output.
    /// The full address is written to standard error. Clients need the token in `UA_TOOLSERVER_TOKEN`.
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub http: Option<SocketAddr>,

    /// Lets --http listen on an address that other machines can reach.
    #[arg(long, requires = "http")]
    pub http_allow_remote: bool,

    /// The token that clients of --http have to send. Taken from the environment, because arguments can be read by
    /// every user of the machine.
    #[arg(
        long,
        hide = true,
        env = "UA_TOOLSERVER_TOKEN",
        hide_env_values = true,
        value_parser = token
    )]
    pub http_token: Option<SecretString>,

    /// What seals the copies of pages and searches, so that a later server of the same run knows them again; drawn anew when left out. Taken from
    /// the environment, because arguments can be read by every user of the machine.
    #[arg(long, hide = true, env = crate::seal::COPY_KEY, hide_env_values = true, value_parser = token)]
    pub copy_key: Option<SecretString>,

    /// What only the environment gives.
    #[command(flatten)]
    pub secrets: Secrets,

    /// How a call's span is hung below the span of its client; set by the program that records spans.
    #[arg(skip)]
    pub adopt_parent: AdoptParent,
}

#[expect(clippy::unnecessary_wraps, reason = "the shape of a parser")]
fn token(text: &str) -> Result<SecretString, std::convert::Infallible> {
    Ok(SecretString::from(text))
}

/// A variable that is set to nothing is not set, nor is a flag that is set to `0`, `false`, `no` or `off`. The Maildir of the
/// environment counts only without its mail server, as in a run.
fn unless_off(argument: Arg) -> Arg {
    let value = |name: &str| std::env::var_os(name)?.into_string().ok();
    let is_off = argument.get_env().and_then(|name| value(name.to_str()?)).is_some_and(|text| is_off(&argument, &text));
    let is_beaten =
        argument.get_env().is_some_and(|name| name == OUTBOX) && value(MAIL).is_some_and(|mail| !mail.is_empty());
    if is_off || is_beaten { argument.env(None::<&'static str>) } else { argument }
}

fn is_off(argument: &Arg, value: &str) -> bool {
    let says_no = || FalseyValueParser::new().parse_ref(&Command::new(""), None, value.as_ref()).is_ok_and(|yes| !yes);
    value.is_empty() || matches!(argument.get_action(), ArgAction::SetTrue) && says_no()
}

/// What a tool server takes of an environment, by variable: the one that `ua` starts is given these and none of the others.
/// `read` says what a variable is, if it is set.
///
/// Of what belongs to another setting, credentials above all, only what is needed is taken. How programs of `run_command`
/// are confined is not: whoever offers that tool says it in flags. The token of `--http` is not either.
pub fn environment(read: impl Fn(&str) -> Option<String>) -> BTreeMap<String, String> {
    let read = |name: &str| read(name).filter(|value| !value.is_empty());
    let is_set = |name: &str| read(name).is_some();
    let is_needed = |name: &str| match name {
        OUTBOX => !is_set(MAIL),
        "UA_IMAGE_MODEL" | "UA_IMAGE_GENERATION_MODEL" | "UA_IMAGE_API_HONOURS_KEYS" => is_set("UA_IMAGE_API"),
        "UA_TOOLSERVER_TOKEN" | crate::seal::COPY_KEY => false,
        _ => !name.starts_with("UA_COMMAND_") && secrets::is_needed(name, read),
    };
    let all = <Settings as clap::Args>::augment_args(Command::new(""));
    let taken = all.get_arguments().filter_map(|argument| {
        let name = argument.get_env()?.to_str().filter(|name| is_needed(name))?;
        Some((name.to_owned(), read(name).filter(|value| !is_off(argument, value))?))
    });
    taken.collect()
}

/// Every variable that the server reads, whoever starts it.
pub fn variables() -> Vec<String> {
    let all = <Settings as clap::Args>::augment_args(Command::new(""));
    all.get_arguments().filter_map(|argument| argument.get_env()?.to_str().map(str::to_owned)).collect()
}

/// The variables that hold a path. A relative one starts at the folder that the server works in, so whoever starts it says them absolute.
pub fn path_variables() -> Vec<String> {
    let all = <Settings as clap::Args>::augment_args(Command::new(""));
    let is_path = |argument: &&clap::Arg| argument.get_value_parser().type_id() == std::any::TypeId::of::<PathBuf>();
    let named = all.get_arguments().filter(is_path).filter_map(|argument| argument.get_env()?.to_str());
    let mut named: Vec<String> = named.map(str::to_owned).collect();
    named.push(MAIL.to_owned()); // `maildir:PATH`
    named
}

/// Makes the paths in such variables absolute: relative ones are meant in the folder of this process.
///
/// # Errors
/// That folder is gone.
pub fn make_absolute(variables: &mut BTreeMap<String, String>) -> std::io::Result<()> {
    for name in path_variables() {
        let Some(value) = variables.get_mut(&name) else { continue };
        let (beginning, path) = match value.strip_prefix("maildir:") {
            Some(path) => ("maildir:", path),
            None if name == MAIL => continue,
            None => ("", value.as_str()),
        };
        *value = format!("{beginning}{}", std::path::absolute(path)?.to_string_lossy());
    }
    Ok(())
}

const MAIL: &str = "UA_MAIL";
const OUTBOX: &str = "UA_OUTBOX";
const DEFAULT_SENDER: &str = "ua@localhost";
const DEFAULT_SETTLE_SECONDS: u32 = 10;
const DEFAULT_REGION: &str = "us-east-1";
const DEFAULT_COMMAND_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

impl Settings {
    /// Reads the words that a server is started with, and its environment.
    ///
    /// # Errors
    /// What is wrong with them, in words.
    pub fn from_arguments(words: impl IntoIterator<Item = OsString>) -> Result<Self, String> {
        let command = <Self as clap::Args>::augment_args(Command::new("toolserver").no_binary_name(true));
        let read = command.try_get_matches_from(words).map_err(|error| error.to_string())?;
        <Self as clap::FromArgMatches>::from_arg_matches(&read).map_err(|error| error.to_string())
    }

    /// The defaults of the command line, with another workspace.
    pub fn in_workspace(workspace: impl Into<PathBuf>) -> Self {
        Self {
            workspace: workspace.into(),
            allow_roots: Vec::new(),
            outbox: None,
            mail: None,
            mail_ca_file: None,
            mail_probe: None,
            mail_settle_seconds: DEFAULT_SETTLE_SECONDS,
            objects: None,
            s3_endpoint: None,
            s3_region: DEFAULT_REGION.to_owned(),
            notifications: None,
            notify_webhook: None,
            notify_webhook_honours_keys: false,
            memory: None,
            search: None,
            image_api: None,
            image_model: None,
            image_generation_model: None,
            image_api_honours_keys: false,
            composio: None,
            mail_from: DEFAULT_SENDER.to_owned(),
            enable_command: false,
            command_path: DEFAULT_COMMAND_PATH.to_owned(),
            command_sandbox: Sandbox::Auto,
            command_network: false,
            command_read: Vec::new(),
            command_private: Vec::new(),
            command_limits: Limits::default(),
            confiner: None,
            pdf: None,
            page_reader: None,
            allow_private_addresses: false,
            allowed_domains: Vec::new(),
            http: None,
            http_allow_remote: false,
            http_token: None,
            copy_key: None,
            secrets: Secrets::default(),
            adopt_parent: AdoptParent::default(),
        }
    }

    /// The defaults with another workspace and what these variables say, as [`environment`] picks them; folders of this machine are left
    /// out, so that a server opened with it is good for finding out what is wrong with them, and which tools there are, and for nothing else.
    pub fn of_variables(workspace: impl Into<PathBuf>, variables: &BTreeMap<String, String>) -> Self {
        let value = |name: &str| variables.get(name).filter(|value| !value.is_empty()).cloned();
        let is_on = |name: &str| {
            let falsey = FalseyValueParser::new();
            value(name)
                .is_some_and(|value| falsey.parse_ref(&Command::new(""), None, value.as_ref()).is_ok_and(|on| on))
        };
        let mut settings = Self::in_workspace(workspace);
        settings.mail = value(MAIL);
        settings.mail_ca_file = value("UA_MAIL_CA_FILE").map(PathBuf::from);
        settings.mail_probe = value("UA_MAIL_PROBE");
        settings.mail_from = value("UA_MAIL_FROM").unwrap_or(settings.mail_from);
        settings.objects = value("UA_OBJECTS");
        settings.s3_endpoint = value("UA_S3_ENDPOINT");
        settings.s3_region = value("UA_S3_REGION").unwrap_or(settings.s3_region);
        settings.notify_webhook = value("UA_NOTIFY_WEBHOOK");
        settings.notify_webhook_honours_keys = is_on("UA_NOTIFY_WEBHOOK_HONOURS_KEYS");
        settings.search = value("UA_SEARCH");
        settings.image_api = value("UA_IMAGE_API");
        settings.image_model = value("UA_IMAGE_MODEL");
        settings.image_generation_model = value("UA_IMAGE_GENERATION_MODEL");
        settings.image_api_honours_keys = is_on("UA_IMAGE_API_HONOURS_KEYS");
        settings.composio = value("UA_COMPOSIO");
        settings.secrets = Secrets::of_variables(variables);
        settings
    }

    /// `chosen`, or the directory of that name in the workspace.
    pub(crate) fn directory(workspace: &Path, chosen: Option<&PathBuf>, default: &str) -> PathBuf {
        chosen.map_or_else(|| workspace.join(default), Clone::clone)
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Program {
        #[command(flatten)]
        settings: Settings,
    }

    #[test]
    fn no_flags_give_the_defaults() {
        let parsed = Program::parse_from(["toolserver"]).settings;
        assert_eq!(format!("{parsed:?}"), format!("{:?}", Settings::in_workspace(".")));
    }

    #[test]
    fn addresses_that_may_hold_a_token_are_taken_from_the_environment_and_not_shown_in_the_help() {
        let command = <Program as clap::CommandFactory>::command();
        for (id, variable) in [("mail_probe", "UA_MAIL_PROBE"), ("notify_webhook", "UA_NOTIFY_WEBHOOK")] {
            let argument = command.get_arguments().find(|argument| argument.get_id() == id).unwrap();
            assert_eq!(argument.get_env().unwrap(), variable);
            assert!(argument.is_hide_env_values_set());
        }
    }

    #[test]
    fn roots_may_be_repeated() {
        let parsed = Program::parse_from(["toolserver", "--allow-root", "a", "--allow-root", "b"]).settings;
        assert_eq!(parsed.allow_roots, [PathBuf::from("a"), PathBuf::from("b")]);
    }
}
