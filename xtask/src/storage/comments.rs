//! The job of the storage lanes: three comments through a tool server that takes no key, and a model that words things
//! differently each time it is asked. The server's own record stands for the world; it is what effects are counted in.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};
use ua_testkit::{ModelServer, ModelServerConfig, OPAQUE_TOOL, ua_program, workspace_root};

/// Comments that the job posts, one a turn.
pub(crate) const COMMENTS: [&str; 3] = ["alpha", "beta", "gamma"];
/// The run's name.
const RUN: &str = "comments";
/// How often one run may be resumed before the harness gives up.
const MAX_LIVES: u32 = 8;

/// The folder of one run: `root/` is on the disk that fails, the rest is not.
pub(crate) struct Forum {
    folder: tempfile::TempDir,
}

impl Forum {
    pub(crate) fn new() -> anyhow::Result<Self> {
        let world = Self { folder: tempfile::Builder::new().prefix("ua-storage-").tempdir()? };
        let server = json!({"command": std::env::current_exe()?, "args": ["opaque-server", "--log", world.comments()]});
        fs::write(world.path("mcp.json"), json!({"mcpServers": {"forum": server}}).to_string())?;
        let job = json!({"objective": "Post three comments.", "tools": {"builtin": false}});
        fs::write(world.path("job.json"), job.to_string())?;
        Ok(world)
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn root(&self) -> PathBuf {
        self.path("root")
    }

    /// The world's record.
    pub(crate) fn comments(&self) -> PathBuf {
        self.path("comments.log")
    }

    /// How often each comment was posted, whatever its wording.
    pub(crate) fn counts(&self) -> Vec<usize> {
        let text = fs::read_to_string(self.comments()).unwrap_or_default();
        COMMENTS.iter().map(|comment| text.lines().filter(|line| line.contains(comment)).count()).collect()
    }

    /// Everything that was printed.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.path("ua.log")).unwrap_or_default()
    }

    /// Empties the root, but for the workspaces found in `kept`.
    pub(crate) fn empty_root(&self, kept: Option<&Path>) -> anyhow::Result<()> {
        if self.root().exists() {
            fs::remove_dir_all(self.root())?;
        }
        fs::create_dir(self.root())?;
        fs::write(self.path("ua.log"), "")?;
        let Some(kept) = kept else { return Ok(()) };
        for entry in fs::read_dir(kept)? {
            let entry = entry?;
            if entry.file_name().to_string_lossy().starts_with("session_") {
                copy_folder(&entry.path(), &self.root().join(entry.file_name()))?;
            }
        }
        Ok(())
    }
}

fn copy_folder(from: &Path, to: &Path) -> anyhow::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy_folder(&entry.path(), &target)?;
        } else {
            fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}

/// What came of one run.
pub(crate) struct Ended {
    /// How often each comment was posted.
    pub(crate) counts: Vec<usize>,
    /// Questions that a person had to answer.
    pub(crate) asked: u32,
    /// The last exit code.
    pub(crate) code: Option<i32>,
    /// Whether every statement about the database holds.
    pub(crate) is_consistent: bool,
}

impl Ended {
    pub(crate) fn has_duplicate(&self) -> bool {
        self.counts.iter().any(|count| *count > 1)
    }

    pub(crate) fn is_right(&self) -> bool {
        self.code == Some(0) && self.is_consistent && self.counts.iter().all(|count| *count == 1)
    }
}

/// Starts processes of the lanes.
pub(crate) struct Bench {
    program: PathBuf,
    runtime: tokio::runtime::Runtime,
}

impl Bench {
    pub(crate) fn new() -> anyhow::Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        Ok(Self { program: ua_program().clone(), runtime })
    }

    /// A model that posts one comment a turn.
    pub(crate) fn model(&self) -> anyhow::Result<ModelServer> {
        let post = |comment: &str| {
            let text = format!("{comment} (request {{{{request}}}})");
            json!({"tools": [{"name": format!("mcp__forum__{OPAQUE_TOOL}"), "input": {"text": text}}]})
        };
        let mut turns: Vec<Value> = COMMENTS.iter().map(|comment| post(comment)).collect();
        turns.push(json!({"text": "Posted."}));
        let script = ua_llm::Script::parse(&json!({ "turns": turns }).to_string())?;
        Ok(self.runtime.block_on(ModelServer::start(ModelServerConfig::new(script)))?)
    }

    /// One life of the run: started, or resumed if it is stored. `below` runs the program, if it is to be traced.
    pub(crate) fn live(
        &self,
        world: &Forum,
        model: &ModelServer,
        below: Option<Command>,
    ) -> anyhow::Result<ExitStatus> {
        let config = world.path("mcp.json").display().to_string();
        let job = world.path("job.json").display().to_string();
        let show = self
            .ua(None, world, &["runs", "show", RUN, "--json"])?
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()?;
        let arguments = if show.success() {
            vec!["resume", RUN, "--mcp-config", &config]
        } else {
            vec![
                "job",
                &job,
                "--run-id",
                RUN,
                "--provider",
                "anthropic",
                "--model",
                "scripted",
                "--mcp-config",
                &config,
            ]
        };
        let mut command = self.ua(below, world, &arguments)?;
        command.env("ANTHROPIC_BASE_URL", &model.base_url).env("ANTHROPIC_API_KEY", "storage");
        command.status().context("start ua")
    }

    /// Goes on until the run ends or `gives_up` says so of an exit code; doubts are answered with what the world has seen.
    pub(crate) fn finish(
        &self,
        world: &Forum,
        model: &ModelServer,
        gives_up: impl Fn(i32) -> bool,
    ) -> anyhow::Result<Ended> {
        let (mut asked, mut code) = (0, None);
        for _ in 0..MAX_LIVES {
            code = self.live(world, model, None)?.code();
            match code {
                Some(75) => {
                    asked += 1;
                    self.answer(world)?;
                }
                Some(74) if !gives_up(74) => {}
                _ => break,
            }
        }
        let check = self.ua(None, world, &["db", "check", "--invariants"])?.status()?;
        Ok(Ended { counts: world.counts(), asked, code, is_consistent: check.success() })
    }

    /// Answers every doubt truthfully.
    fn answer(&self, world: &Forum) -> anyhow::Result<()> {
        let mut list = self.ua(None, world, &["calls", "list", "--run", RUN, "--unknown", "--json"])?;
        let listed = list.stdout(Stdio::piped()).output()?;
        let calls: Vec<Value> = serde_json::from_slice(&listed.stdout).context("read the unknown calls")?;
        for call in &calls {
            let text = call["arguments"]["text"].as_str().unwrap_or_default();
            let about =
                COMMENTS.iter().position(|comment| text.contains(comment)).context("a call about no comment")?;
            let answer = if world.counts()[about] > 0 { "--happened" } else { "--execute" };
            let id = call["tool_call_id"].as_str().context("a call has an id")?;
            let resolved = self.ua(None, world, &["calls", "resolve", id, answer])?.status()?;
            ensure!(resolved.success(), "`ua calls resolve {id} {answer}` failed");
        }
        Ok(())
    }

    /// The program, below `below` if there is one. Files, never pipes: an orphan must not keep the harness waiting.
    fn ua(&self, below: Option<Command>, world: &Forum, arguments: &[&str]) -> anyhow::Result<Command> {
        let log = File::options().create(true).append(true).open(world.path("ua.log"))?;
        let mut command = if let Some(mut below) = below {
            below.arg(&self.program);
            below
        } else {
            Command::new(&self.program)
        };
        command.args(arguments).arg("--root").arg(world.root()).current_dir(workspace_root());
        command.env_remove("UA_RUNTIME_DB_PATH").stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        Ok(command)
    }
}
