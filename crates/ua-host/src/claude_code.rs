//! The provider `claude-code`: which program it is, what it may see of our environment, and where it lives.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use ua_claude_code::{ClaudeCode, ClaudeCodeConfig, ForkedFrom};
use ua_core::RunId;
use ua_llm::{LlmProvider, PlainHttpHosts};
use ua_mcp::{LockDir, ShimCommand};
use ua_store::{RunRecord, Store, Walk, shares_with};

use crate::base_url;
use crate::error::HostError;
use crate::host::Host;
use crate::providers;
use crate::settings::Settings;

pub use ua_claude_code::NAME;

/// What it may sign in with; one of them has to be there, because its home is not the user's.
pub const CREDENTIALS: [&str; 3] = ["ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN"];

/// Where it sends them, if not to its maker.
const ADDRESS: &str = "ANTHROPIC_BASE_URL";

/// What else of our environment it may see.
const PASSED_ON: [&str; 16] = [
    "PATH",
    "USER",
    "LANG",
    "LC_ALL",
    "LC_CTYPE",
    "TZ",
    "TMPDIR",
    ADDRESS,
    "ANTHROPIC_CUSTOM_HEADERS",
    "SSL_CERT_FILE",
    "NODE_EXTRA_CA_CERTS",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "NO_PROXY",
    "http_proxy",
    "https_proxy",
];

/// How long it may take to end once its input is closed. Nothing of ours depends on what it still does.
const GRACE: Duration = Duration::from_millis(500);

/// The program: the configured one, else `claude` in one of the folders of `PATH`. Not in one that is named from the folder in which somebody
/// works: what a checkout has there is started by nobody who looks.
pub fn program(settings: &Settings) -> Option<PathBuf> {
    let named = settings.var("UA_CLAUDE_CODE").unwrap_or_else(|| "claude".to_owned());
    if named.contains('/') {
        return settings.absolute(Path::new(&named)).ok().filter(|file| is_program(file));
    }
    let path = settings.var("PATH").unwrap_or_default();
    let mut places =
        std::env::split_paths(&path).filter(|folder| folder.is_absolute()).map(|folder| folder.join(&named));
    places.find(|file| is_program(file))
}

fn is_program(file: &Path) -> bool {
    file.metadata().is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}

/// What the program says its version is. It is asked in no folder of anybody's: what lies where a program works may be settings to what it is made
/// with.
pub fn version(settings: &Settings, program: &Path) -> Option<String> {
    let mut command = Command::new(program);
    command
        .arg("--version")
        .env_clear()
        .envs(environment(settings))
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .current_dir("/");
    let output = command.output().ok().filter(|output| output.status.success())?;
    String::from_utf8_lossy(&output.stdout).lines().next().map(str::to_owned)
}

/// Refuses to send its credentials anywhere in the clear: it gets the address as it is, and would follow it.
fn check_address(address: Option<&str>, plain: &PlainHttpHosts) -> Result<(), HostError> {
    address.map_or(Ok(()), |address| base_url::check(ADDRESS, address, plain))
}

/// Finds what can be known to be missing or wrong before anything is stored.
pub fn check(settings: &Settings) -> Result<PathBuf, HostError> {
    check_address(settings.var(ADDRESS).as_deref(), &providers::plain_http_hosts(settings)?)?;
    if !CREDENTIALS.iter().any(|name| settings.var(name).is_some()) {
        return Err(HostError::usage("there are no credentials for the provider `claude-code`")
            .hint("set ANTHROPIC_API_KEY or CLAUDE_CODE_OAUTH_TOKEN: it runs with a home folder of its own, which has no login"));
    }
    program(settings).ok_or_else(|| {
        HostError::usage("the program `claude` was not found")
            .hint("install it with `npm install -g @anthropic-ai/claude-code`, or name it with UA_CLAUDE_CODE")
            .not_begun()
    })
}

/// The runs whose turns a fork shares, the nearest first; none for a run that is no fork.
pub(crate) async fn shared_runs(store: &dyn Store, run: &RunRecord) -> Vec<RunId> {
    let (mut walk, mut found) = (Walk::from(&run.run_id), Vec::new());
    let mut next = shares_with(run).cloned();
    while let Ok(Some(id)) = walk.up(next.as_ref()) {
        let Ok(parent) = store.run(&id).await else { break };
        next = shares_with(&parent).cloned();
        found.push(parent.run_id);
    }
    found
}

/// The provider for a run, which shares turns with the runs `shared`.
pub(crate) fn provider(host: &Host, run: &RunRecord, shared: &[RunId]) -> Result<Arc<dyn LlmProvider>, HostError> {
    let (settings, home, env) = (host.settings(), host.home(), host.env());
    let (own_program, idle_timeout) = (settings.program()?, providers::model_timeout(settings)?);
    let locks = LockDir::new(&home.locks(), run.run_id.clone(), env.clone())
        .map_err(|e| HostError::storage(format!("cannot use the folder of locks: {e}")))?;
    let folder = home.make_agent_folder(&run.run_id)?;
    let forked_from = run.provider_session_forked_from.clone().filter(|_| !shared.is_empty());
    let forked_from = forked_from
        .map(|session| ForkedFrom { session, folders: shared.iter().map(|run| home.agent_folder(run)).collect() });
    let hidden = |name: &str| vec![OsString::from(name)];
    Ok(Arc::new(ClaudeCode::new(ClaudeCodeConfig {
        program: check(settings)?,
        folder,
        env: environment(settings),
        shim: ShimCommand { program: own_program.clone(), args: hidden("__shim") },
        locks,
        bridge: (own_program, hidden("__tool-bridge")),
        session: run.provider_session_id.clone(),
        forked_from,
        idle_timeout: idle_timeout.unwrap_or(Duration::from_mins(5)),
        grace: GRACE,
        clock: env.clone(),
    })))
}

fn environment(settings: &Settings) -> BTreeMap<String, String> {
    let names = PASSED_ON.iter().chain(&CREDENTIALS);
    names.filter_map(|name| Some(((*name).to_owned(), settings.var(name)?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s10_an_agent_that_owns_the_loop_gets_no_address_in_the_clear() {
        let check = |address| check_address(address, &PlainHttpHosts::default());
        assert!(check(None).is_ok());
        assert!(check(Some("https://gateway.example.test")).is_ok());
        assert!(check(Some("http://127.0.0.1:8080")).is_ok());
        let error = check(Some("http://gateway.example.test")).unwrap_err().to_string();
        assert!(error.contains("ANTHROPIC_BASE_URL") && error.contains("unencrypted"), "{error}");
    }
}
