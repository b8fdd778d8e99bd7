//! What the provider is made from.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use ua_core::Env;
use ua_mcp::{LockDir, ShimCommand};

/// The provider's name; also that of its lock files and its folder's log.
pub const NAME: &str = "claude-code";

/// The folders in its folder: its home, and where it works.
pub(crate) const HOME: &str = "home";
pub(crate) const WORK: &str = "work";

/// What a [`ClaudeCode`](crate::ClaudeCode) is made from.
#[derive(Debug, Clone)]
pub struct ClaudeCodeConfig {
    /// The program `claude`.
    pub program: PathBuf,
    /// The folder that its home and its working directory are in, kept for as long as the run: its sessions lie there. Absolute, and there. No
    /// tool may write in it: what lies in its home, or in a repository that it works in, says which programs it starts, outside of every wall.
    pub folder: PathBuf,
    /// Its environment, to which only what keeps it quiet and its `HOME` are added: `PATH`, and how it reaches its provider.
    pub env: BTreeMap<String, String>,
    /// How to run the shim below which it runs, so that it does not outlive this process.
    pub shim: ShimCommand,
    /// Where its locks are: a resume fences it as it fences tool servers.
    pub locks: LockDir,
    /// The program of the bridge and the arguments before its own, which are a socket and the name of a tool server.
    pub bridge: (PathBuf, Vec<OsString>),
    /// The session that the run's last committed turn belongs to; what the folder says is newer.
    pub session: Option<String>,
    /// What a fork may go on from, until it has a session of its own.
    pub forked_from: Option<ForkedFrom>,
    /// How long it may be silent while it thinks.
    pub idle_timeout: Duration,
    /// How long it may take to end once its input is closed.
    pub grace: Duration,
    /// Time. The real one: processes do not live in simulated time.
    pub clock: Env,
}

/// The session of the last turn that a fork shares, and where it may be.
#[derive(Debug, Clone)]
pub struct ForkedFrom {
    /// Its id.
    pub session: String,
    /// The folders of `claude` (see [`ClaudeCodeConfig::folder`]) of the runs that turns are shared with. They are only read.
    pub folders: Vec<PathBuf>,
}

impl ClaudeCodeConfig {
    /// The variables that make `claude` a quiet, predictable child.
    pub(crate) fn variables(&self, max_output_tokens: u32) -> BTreeMap<String, String> {
        // Tools may take hours, and a result is for the ledger to cut, not for the client.
        let fixed = [
            ("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1"),
            ("DISABLE_TELEMETRY", "1"),
            ("DISABLE_ERROR_REPORTING", "1"),
            ("DISABLE_AUTOUPDATER", "1"),
            ("CLAUDE_CODE_DISABLE_CLAUDE_MDS", "1"),
            ("CLAUDE_CODE_DISABLE_AUTO_MEMORY", "1"),
            ("CLAUDE_CODE_DISABLE_BACKGROUND_TASKS", "1"),
            // Without it a reply that came without a stream would be no turn that we see.
            ("CLAUDE_CODE_DISABLE_NONSTREAMING_FALLBACK", "1"),
            ("CLAUDE_CODE_MAX_RETRIES", "3"),
            ("ENABLE_TOOL_SEARCH", "false"),
            ("MCP_TOOL_TIMEOUT", "2000000000"),
            ("MAX_MCP_OUTPUT_TOKENS", "1000000"),
        ];
        let mut all: BTreeMap<String, String> =
            fixed.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        all.insert("CLAUDE_CODE_MAX_OUTPUT_TOKENS".to_owned(), max_output_tokens.to_string());
        all.extend(self.env.clone());
        all.insert("HOME".to_owned(), self.home().to_string_lossy().into_owned());
        // It asks Git about where it is at each start, and settings of Git name programs. So Git looks for no repository, neither here nor in
        // the folders above, which may be a checkout, and reads no settings of anybody.
        for name in ["GIT_DIR", "GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM"] {
            all.insert(name.to_owned(), "/dev/null".to_owned());
        }
        all.insert("GIT_CONFIG_NOSYSTEM".to_owned(), "1".to_owned());
        all.insert("GIT_CEILING_DIRECTORIES".to_owned(), self.folder.to_string_lossy().into_owned());
        all
    }

    pub(crate) fn home(&self) -> PathBuf {
        self.folder.join(HOME)
    }

    /// Where it works: nothing is in there.
    pub(crate) fn work(&self) -> PathBuf {
        self.folder.join(WORK)
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.folder.join("tools.sock")
    }
}
