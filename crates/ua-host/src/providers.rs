//! The model providers by name: what each needs of the user's configuration, and how it is made.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ua_core::{Env, PrintedCommand, Redactor, RunSpec, ShowPath as _};
use ua_files::Folder;
use ua_llm::{
    AnthropicConfig, AnthropicProvider, ChatConfig, ChatProvider, DEFAULT_MODEL, LlmError, LlmProvider, ModelExtras,
    OpenAiConfig, OpenAiProvider, Places, PlainHttpHosts, RecordingProvider, ReplayProvider,
};
use ua_store::RunRecord;

use crate::error::{HostError, chain};
use crate::placed::{FileKind, Place, refuse_leading_out};
use crate::redaction::LOGS;
use crate::settings::Settings;

/// The provider of a job that names none.
pub fn default_provider(settings: &Settings) -> String {
    settings.var("UA_PROVIDER").unwrap_or_else(|| "anthropic".to_owned())
}

/// The model of a job that names none; `None` where there is no sensible one.
pub fn default_model(
    settings: &Settings,
    provider: &str,
    cassette: Option<&Path>,
) -> Result<Option<String>, HostError> {
    Ok(match provider {
        "anthropic" => Some(settings.var("ANTHROPIC_MODEL").unwrap_or_else(|| DEFAULT_MODEL.to_owned())),
        "openai" | "openai-chat" => settings.var("OPENAI_MODEL"),
        "scripted" => Some("scripted".to_owned()),
        "replay" => Some(open_cassette(cassette, Redactor::default(), Places::default())?.recorded_model().to_owned()),
        // No such provider: it is refused by its name, and not for its model.
        _ => Some(DEFAULT_MODEL.to_owned()),
    })
}

/// Every provider there is.
pub const NAMES: [&str; 6] = ["anthropic", "openai", "openai-chat", ua_claude_code::NAME, "scripted", "replay"];

/// That no provider has this name.
pub(crate) fn unknown(provider: &str) -> HostError {
    let hint = "use `anthropic`, `openai`, `openai-chat`, `claude-code`, `scripted` or `replay`";
    HostError::not_found(
        format!("unknown model provider `{}`", crate::text::line(provider, 100)),
        provider,
        NAMES,
        hint,
    )
}

/// Refuses a name that no provider has.
///
/// # Errors
/// That, with the names that there are.
pub fn check_name(provider: &str) -> Result<(), HostError> {
    if NAMES.contains(&provider) { Ok(()) } else { Err(unknown(provider)) }
}

/// Why no model can be asked, when none was named.
pub fn no_model(provider: &str) -> HostError {
    if !NAMES.contains(&provider) {
        return unknown(provider);
    }
    HostError::usage(format!("no model is named for the provider `{provider}`"))
        .hint("name one with --model, in the job's `model.name`, or with OPENAI_MODEL for `openai` and `openai-chat`")
}

/// The key that a provider has in the environment or the user's configuration, by the names of both; `None` for a provider without.
pub fn key_of(settings: &Settings, provider: &str) -> Option<(&'static str, &'static str)> {
    // A server on this machine, or in a network that is named as private, may do without.
    let needs_none = provider == "openai-chat" && is_near(settings, "OPENAI_BASE_URL");
    key_names(provider).filter(|_| !needs_none)
}

/// The names that a provider's key has in the environment and in the configuration, whether or not it needs one where it is.
pub(crate) fn key_names(provider: &str) -> Option<(&'static str, &'static str)> {
    match provider {
        "anthropic" => Some(("ANTHROPIC_API_KEY", "providers.anthropic.api_key")),
        "openai" | "openai-chat" => Some(("OPENAI_API_KEY", "providers.openai.api_key")),
        _ => None,
    }
}

/// The variable that names the address of a provider, and where it is otherwise.
fn address_names(provider: &str) -> Option<(&'static str, &'static str)> {
    match provider {
        "anthropic" => Some(("ANTHROPIC_BASE_URL", "https://api.anthropic.com")),
        "openai" | "openai-chat" => Some(("OPENAI_BASE_URL", "https://api.openai.com")),
        _ => None,
    }
}

/// Which server a provider is asked at, as `https://host`; `None` for one that has no address, or none that can be used.
pub(crate) fn server_of(settings: &Settings, provider: &str) -> Option<String> {
    let (variable, default) = address_names(provider)?;
    let said = settings.var(variable);
    let url = url::Url::parse(said.as_deref().unwrap_or(default).trim()).ok()?;
    Some(url.origin().ascii_serialization())
}

/// Refuses to send the conversation of a run to another server than the one it was begun with: what it read may be meant for that one alone. Another
/// place on this machine is none.
pub(crate) fn check_server(settings: &Settings, provider: &str, begun_at: &str) -> Result<(), HostError> {
    let (Some(now), Some((variable, _))) = (server_of(settings, provider), address_names(provider)) else {
        return Ok(());
    };
    let is_here = |server: &str| url::Url::parse(server).is_ok_and(|url| crate::base_url::is_this_machine(&url));
    if now == begun_at || (is_here(&now) && is_here(begun_at)) {
        return Ok(());
    }
    Err(HostError::usage(format!(
        "the run was started with the model provider at {begun_at}, and its conversation would now go to {now}"
    ))
    .hint(format!(
        "set {variable} as it was; if the conversation may go to {now}, {} continues it there",
        PrintedCommand::of("ua fork RUN").option("--provider", provider).in_code()
    )))
}

fn is_near(settings: &Settings, variable: &str) -> bool {
    let url = settings.var(variable).and_then(|text| url::Url::parse(text.trim()).ok());
    let is_plain = |url: &url::Url| plain_http_hosts(settings).is_ok_and(|hosts| hosts.covers(url));
    url.is_some_and(|url| crate::base_url::is_this_machine(&url) || is_plain(&url))
}

/// The hosts that the user lets be reached by plain http.
pub(crate) fn plain_http_hosts(settings: &Settings) -> Result<PlainHttpHosts, HostError> {
    let text = settings.var("UA_PLAIN_HTTP_HOSTS").unwrap_or_default();
    PlainHttpHosts::parse(&text).map_err(|entry| {
        HostError::usage(format!(
            "cannot use {}: `{}` is not a host",
            settings.said_as("UA_PLAIN_HTTP_HOSTS"),
            crate::text::line(&entry, 100)
        ))
        .hint(
            "name hosts with or without a port, separated by commas: `ollama`, `litellm:4000`, `[fd00::1]:8080`; no pattern stands for others",
        )
    })
}

/// That what a run holds goes to its model in the clear, in a sentence; `None` where it does not.
pub(crate) fn in_the_clear(settings: &Settings, provider: &str) -> Option<String> {
    let variable = match provider {
        "anthropic" | ua_claude_code::NAME => "ANTHROPIC_BASE_URL",
        _ => address_names(provider)?.0,
    };
    let url = url::Url::parse(settings.var(variable)?.trim()).ok()?;
    let is_told =
        plain_http_hosts(settings).is_ok_and(|hosts| hosts.covers(&url)) && !crate::base_url::is_this_machine(&url);
    is_told.then(|| {
        format!(
            "the conversation and the key go to {} unencrypted, as `model.plain_http_hosts` allows: whoever is in that network can read and change them",
            url.origin().ascii_serialization()
        )
    })
}

/// Refuses a provider whose key is not there.
fn needed_key(settings: &Settings, provider: &str) -> Result<Option<String>, HostError> {
    let Some((variable, _)) = key_of(settings, provider) else { return Ok(None) };
    settings.var(variable).map(Some).ok_or_else(|| {
        // A server in a private network may need none, once it is named.
        let near = settings.var("OPENAI_BASE_URL").filter(|_| provider == "openai-chat");
        if let Some(host) = near.as_deref().and_then(crate::base_url::host_in_the_clear) {
            if let Err(unreadable) = plain_http_hosts(settings) {
                return unreadable;
            }
            return HostError::usage(format!("there is no API key for the provider `{provider}`, and {host} is not on this machine"))
                .hint(format!(
                    "if it is in a private network, name it: UA_PLAIN_HTTP_HOSTS={host} (`model.plain_http_hosts`), and it needs no key; otherwise set \
                     OPENAI_BASE_URL to an https:// address, and {variable}"
                ));
        }
        let (nor, or_local) = if provider == "openai-chat" {
            (
                ", nor OPENAI_BASE_URL with a server on this machine that needs none",
                ", or OPENAI_BASE_URL to the address of a model on this machine, which needs no key",
            )
        } else {
            ("", "")
        };
        HostError::usage(format!("there is no API key for the provider `{provider}`{nor}")).hint(format!(
            "set {variable}{or_local}, or run a job offline with `\"model\": {{\"provider\": \"scripted\", …}}`"
        ))
    })
}

/// What is not here of what a provider needs besides the job: its key, or its program. Nothing for one that needs neither.
pub(crate) fn lacking(settings: &Settings, provider: &str) -> Option<HostError> {
    if provider == ua_claude_code::NAME {
        return crate::claude_code::check(settings).err();
    }
    needed_key(settings, provider).err()
}

/// Whether a provider that [needs a key](key_names) takes a seed, as it says itself once it is made.
pub(crate) fn takes_seed(provider: &str) -> bool {
    provider == "openai-chat"
}

/// What the job asks of its model besides.
pub fn extras_of(spec: &RunSpec) -> Result<ModelExtras, HostError> {
    let model = &spec.model;
    let extras = ModelExtras {
        effort: model.effort.clone(),
        thinking: model.thinking.clone(),
        thinking_tokens: model.thinking_tokens,
        tool_choice: model.tool_choice.clone(),
        headers: model.headers.clone(),
    };
    extras.check().map_err(|why| {
        HostError::usage(format!("the job's `model.headers`: {why}")).hint("take it out of the job").not_begun()
    })?;
    Ok(extras)
}

/// The provider of this name that is made of the settings alone, its address and its key looked at; `None` for one that needs something of the
/// job or another program. A job and `ua doctor` both come here, so that what one passes the other does not refuse.
pub fn by_settings(
    settings: &Settings,
    provider: &str,
    keep_replies: bool,
    extras: &ModelExtras,
    env: &Env,
) -> Option<Result<Arc<dyn LlmProvider>, HostError>> {
    Some(match provider {
        "anthropic" => anthropic(settings, extras.clone(), env),
        "openai" => openai(settings, keep_replies, extras.clone(), env),
        "openai-chat" => openai_chat(settings, extras.clone(), env),
        _ => return None,
    })
}

fn anthropic(settings: &Settings, extras: ModelExtras, env: &Env) -> Result<Arc<dyn LlmProvider>, HostError> {
    let mut config = AnthropicConfig::new(needed_key(settings, "anthropic")?.unwrap_or_default().into());
    config.extras = extras;
    config.models = crate::models::table(settings)?;
    if let Some(base_url) = settings.var("ANTHROPIC_BASE_URL") {
        let plain = plain_http_hosts(settings)?;
        crate::base_url::check(&settings.said_as("ANTHROPIC_BASE_URL"), &base_url, &plain)?;
        config.base_url = base_url;
    }
    if let Some(timeout) = model_timeout(settings)? {
        config.idle_timeout = timeout;
    }
    if let Some(timeout) = reply_timeout(settings)? {
        config.reply_timeout = timeout;
    }
    Ok(Arc::new(AnthropicProvider::new(config, env.clone()).map_err(|error| not_set_up("anthropic", &error))?))
}

/// Whether the provider may keep the conversation: as the job says, else the user, else no.
pub fn wants_sessions(settings: &Settings, spec: &RunSpec) -> bool {
    let by_user = || settings.is_on("UA_PROVIDER_SESSIONS");
    spec.settings.provider_sessions.unwrap_or_else(by_user)
}

fn openai(
    settings: &Settings,
    keep_replies: bool,
    extras: ModelExtras,
    env: &Env,
) -> Result<Arc<dyn LlmProvider>, HostError> {
    let key = needed_key(settings, "openai")?.unwrap_or_default();
    let plain_http_hosts = plain_http_hosts(settings)?;
    let mut config = OpenAiConfig { keep_replies, extras, plain_http_hosts, ..OpenAiConfig::new(key.into()) };
    if let Some(base_url) = settings.var("OPENAI_BASE_URL") {
        crate::base_url::check(&settings.said_as("OPENAI_BASE_URL"), &base_url, &config.plain_http_hosts)?;
        config.base_url = base_url;
    }
    if let Some(timeout) = model_timeout(settings)? {
        config.idle_timeout = timeout;
    }
    if let Some(timeout) = reply_timeout(settings)? {
        config.reply_timeout = timeout;
    }
    Ok(Arc::new(OpenAiProvider::new(config, env.clone()).map_err(|error| not_set_up("openai", &error))?))
}

fn openai_chat(settings: &Settings, extras: ModelExtras, env: &Env) -> Result<Arc<dyn LlmProvider>, HostError> {
    needed_key(settings, "openai-chat")?;
    let mut config = ChatConfig::new(settings.var("OPENAI_API_KEY").map(Into::into));
    (config.extras, config.plain_http_hosts) = (extras, plain_http_hosts(settings)?);
    if let Some(base_url) = settings.var("OPENAI_BASE_URL") {
        crate::base_url::check(&settings.said_as("OPENAI_BASE_URL"), &base_url, &config.plain_http_hosts)?;
        config.base_url = base_url;
    }
    if let Some(timeout) = model_timeout(settings)? {
        config.idle_timeout = timeout;
    }
    if let Some(timeout) = reply_timeout(settings)? {
        config.reply_timeout = timeout;
    }
    Ok(Arc::new(ChatProvider::new(config, env.clone()).map_err(|error| not_set_up("openai-chat", &error))?))
}

fn not_set_up(provider: &str, error: &LlmError) -> HostError {
    let doing = format!("cannot set up the provider `{provider}`");
    let refused = if let LlmError::Setup { why } = error {
        // What is configured cannot be used: nothing was sent, and there is nothing to wait for.
        HostError::usage(format!("{doing}: {why}"))
    } else {
        HostError::provider(format!("{doing}: {}", chain(error)))
    };
    refused.hint(error.hint(provider).unwrap_or_else(|| "see docs/guide/models.md".to_owned()))
}

/// The longest silence of a model, as it is configured.
pub fn model_timeout(settings: &Settings) -> Result<Option<Duration>, HostError> {
    settings.var("UA_MODEL_TIMEOUT").map(|seconds| idle_timeout(&seconds)).transpose()
}

/// The longest that one reply of a model may take, as it is configured.
fn reply_timeout(settings: &Settings) -> Result<Option<Duration>, HostError> {
    let Some(text) = settings.var("UA_MODEL_REPLY_TIMEOUT") else { return Ok(None) };
    let read = text.trim().parse().ok().filter(|seconds| (1..=86_400_u64).contains(seconds));
    let seconds = read.ok_or_else(|| {
        HostError::usage(format!("cannot use UA_MODEL_REPLY_TIMEOUT={text}"))
            .hint("write whole seconds, from 1 to 86400; without it a reply may take 3600")
    })?;
    Ok(Some(Duration::from_secs(seconds)))
}

/// The longest silence of a model, from its text in seconds.
fn idle_timeout(seconds: &str) -> Result<Duration, HostError> {
    let read = seconds.trim().parse().ok().filter(|seconds| (1..=86_400_u64).contains(seconds));
    read.map(Duration::from_secs).ok_or_else(|| {
        HostError::usage(format!("cannot use UA_MODEL_TIMEOUT={seconds}"))
            .hint("write whole seconds, from 1 to 86400; without it a model may be silent for 300")
    })
}

/// The cassette of a run: the one that is named, else the configured one.
pub fn cassette_file(settings: &Settings, named: Option<&Path>) -> Result<Option<PathBuf>, HostError> {
    let named = named.map(Path::to_path_buf).or_else(|| settings.var("UA_CASSETTE").map(PathBuf::from));
    named.map(|file| settings.absolute(&file)).transpose()
}

/// What a run has for itself: its folders and its name, which a cassette does not keep.
pub fn places_of(run: &RunRecord, job_dir: &Path) -> Places {
    let workspace = Path::new(&run.workspace_dir);
    let text = |path: &Path| path.to_string_lossy().into_owned();
    let session = workspace.file_name().map(|name| name.to_string_lossy().into_owned());
    // A name that a person gave may be a word of the job.
    let run_id = run.run_id.to_string();
    let is_made_up = run_id.starts_with("run_") && run_id.len() > 20;
    Places::new([
        ("workspace", text(workspace)),
        ("root", workspace.parent().map(text).unwrap_or_default()),
        ("session", session.unwrap_or_default()),
        ("job_dir", text(job_dir)),
        ("run_id", if is_made_up { run_id } else { String::new() }),
    ])
}

pub fn replay(cassette: Option<&Path>, redactor: Redactor, places: Places) -> Result<Arc<dyn LlmProvider>, HostError> {
    Ok(Arc::new(open_cassette(cassette, redactor, places)?))
}

fn open_cassette(cassette: Option<&Path>, redactor: Redactor, places: Places) -> Result<ReplayProvider, HostError> {
    let Some(file) = cassette else {
        return Err(HostError::usage("the provider `replay` needs a cassette")
            .hint("name one with --cassette or UA_CASSETTE; `--record FILE` makes one"));
    };
    ReplayProvider::open(file, redactor, places)
        .map_err(|error| HostError::usage(chain(&error)).hint("`ua job FILE --record FILE` makes a cassette"))
        .map_err(|error| Place::named(FileKind::Cassette, file).told(error))
}

/// The file that exchanges of a run go into: in a folder, one of the run's name.
pub fn recording_file(path: &Path, run: &RunRecord) -> PathBuf {
    if path.is_dir() { path.join(format!("{}.jsonl", run.run_id)) } else { path.to_path_buf() }
}

/// The place that a person named for a recording, absolute: a folder, a cassette, or a file that is empty or not there.
pub fn cassette_to_record(settings: &Settings, file: &Path) -> Result<PathBuf, HostError> {
    let file = settings.absolute(file)?;
    // A folder, in which each run has a file of its own, may be a link itself.
    refuse_leading_out(if file.is_dir() { &file } else { file.parent().unwrap_or(&file) })?;
    // Also one to nothing: it would be written where a checkout says.
    if file.is_symlink() && !file.is_dir() {
        return Err(not_a_cassette(&file, "it is a link"));
    }
    match RecordingProvider::may_append_to(&file) {
        Ok(false) => Err(not_a_cassette(&file, "it already exists and is not a recording")),
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => Err(not_a_cassette(&file, &error.to_string())),
        // What cannot be read is refused where it is opened.
        Ok(_) | Err(_) => Ok(file),
    }
}

/// A file that nothing is recorded into.
pub(crate) fn not_a_cassette(file: &Path, why: &str) -> HostError {
    HostError::usage(format!("cannot record into {}: {why}", file.shown()))
        .hint("name a new file, or a cassette to add to; nothing was written")
}

/// `provider`, whose exchanges are kept in a file that a person named.
pub fn recorded(
    provider: Arc<dyn LlmProvider>,
    file: &Path,
    redactor: Redactor,
    places: Places,
) -> Result<Arc<dyn LlmProvider>, HostError> {
    let recording = RecordingProvider::new(provider, file, redactor, places)
        .map_err(|error| not_a_cassette(file, &error.to_string()))?;
    Ok(Arc::new(recording))
}

/// `provider`, whose exchanges are kept among the logs of a workspace, where programs of the model write, too.
pub(crate) fn recorded_in(
    provider: Arc<dyn LlmProvider>,
    workspace: &Path,
    redactor: Redactor,
    places: Places,
) -> Result<Arc<dyn LlmProvider>, HostError> {
    let file = Folder::open_itself(workspace).and_then(|folder| folder.make_folder(LOGS)?.append("model.jsonl"));
    let recording = file.and_then(|file| RecordingProvider::to(provider, file, redactor, places)).map_err(|error| {
        HostError::storage(format!("cannot record what is asked of the model: {error}"))
            .hint("remove that name from the workspace, or switch model.keep_bodies off")
    })?;
    Ok(Arc::new(recording))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A model in the network of a composition is asked without a key, and whoever starts a run is told what that means.
    #[test]
    fn s10_a_host_that_is_named_for_it_is_asked_in_the_clear_and_that_is_told() {
        let settings = |hosts: &str, address: &str| {
            let said = [("UA_PLAIN_HTTP_HOSTS", hosts), ("OPENAI_BASE_URL", address)];
            let variables = said.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
            Settings::read(crate::Process { variables, ..crate::Process::default() })
        };
        let env = Env::simulated(1);
        let made = |settings: &Settings| {
            by_settings(settings, "openai-chat", false, &ModelExtras::default(), &env).unwrap().map(drop)
        };
        let named = settings("ollama", "http://ollama:11434");
        assert!(made(&named).is_ok() && key_of(&named, "openai-chat").is_none());
        let told = in_the_clear(&named, "openai-chat").unwrap();
        assert!(told.contains("http://ollama:11434 unencrypted"), "{told}");
        for (hosts, address) in
            [("", "http://ollama:11434"), ("ollama:80", "http://ollama:11434"), ("*", "http://ollama")]
        {
            let settings = settings(hosts, address);
            assert!(made(&settings).is_err() && in_the_clear(&settings, "openai-chat").is_none(), "{hosts} {address}");
        }
        assert_eq!(in_the_clear(&settings("ollama", "https://ollama"), "openai-chat"), None);
        // Whoever did not name it reads how, with the host as it is to be written.
        for (address, host) in [("http://ollama:11434/v1", "ollama:11434"), ("http://[fd00::1]:9", "[fd00::1]:9")] {
            let refused = made(&settings("", address)).unwrap_err();
            let hint = refused.hint_text().unwrap();
            assert!(hint.contains(&format!("UA_PLAIN_HTTP_HOSTS={host} ")), "{hint}");
            assert!(made(&settings(host, address)).is_ok(), "{host}");
        }
        let elsewhere = made(&settings("", "https://models.example.test")).unwrap_err();
        assert!(!elsewhere.hint_text().unwrap().contains("UA_PLAIN_HTTP_HOSTS"));
    }
}
