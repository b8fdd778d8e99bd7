//! The crash loop: the real program under a job of twenty mixed calls, with the runner, its tool servers or both killed with
//! SIGKILL at random moments, until the time is up. Effects are counted outside.
//!
//! Where the crash matrix knows its boundaries, the loop does not: it finds the windows nobody thought of.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use serde_json::{Value, json};
use ua_testkit::{ModelServer, ModelServerConfig, OPAQUE_TOOL, ua_program, workspace_root};

use crate::random::Random;

/// How to run it.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// How long to go on; the job that is under way then is finished
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// Seed of the kills
    #[arg(long, default_value_t = 20_261_121)]
    seed: u64,
}

/// The most kills of one job.
const MAX_KILLS: u64 = 5;
/// The most lives of one job.
const MAX_LIVES: u32 = 16;
/// The longest one process may take.
const PATIENCE: Duration = Duration::from_mins(2);
const RUN: &str = "loop";
/// The recipient is named, or the run would ask about it.
const JOB: &str = r#"{"objective": "Publish both parts, and tell everybody at team@example.test once."}"#;

/// What the job does outside, each name as often as wanted.
const WANTED: [(&str, usize); 6] =
    [("upload", 2), ("send_email", 2), ("notify", 2), (OPAQUE_TOOL, 3), ("append_to_file", 3), ("write_local_file", 2)];

/// Who is killed.
#[derive(Debug, Clone, Copy)]
enum Victim {
    Runner,
    ToolServer,
    Both,
}

#[derive(Debug, Default)]
struct Tally {
    jobs: u32,
    runners: u32,
    servers: u32,
    resumes: u32,
    questions: u32,
    duplicates: usize,
    lost: usize,
    wrong: Vec<String>,
}

pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    let program = ua_program().clone();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let mut random = Random(options.seed);
    let started = Instant::now();
    let mut tally = Tally::default();
    let mut job = Job::new(&program, &runtime)?;
    let clean = Instant::now();
    job.finish(None, Duration::ZERO, &mut Tally::default())?;
    ensure!(job.counts()? == wanted(), "the job does not work even without a kill: {:?}\n{}", job.counts()?, job.log());
    let span = clean.elapsed();
    while started.elapsed() < Duration::from_secs(options.seconds) {
        job = Job::new(&program, &runtime)?;
        let kills = 1 + random.below(MAX_KILLS);
        let ended = job.finish(Some((&mut random, kills)), span, &mut tally);
        tally.jobs += 1;
        let (counts, wanted) = (job.counts()?, wanted());
        for (name, wanted) in &wanted {
            let count = counts.get(name).copied().unwrap_or(0);
            tally.duplicates += count.saturating_sub(*wanted);
            tally.lost += wanted.saturating_sub(count);
        }
        let ended = ended.and_then(|()| job.check_records());
        if ended.is_err() || counts != wanted {
            let why = ended.err().map_or(String::new(), |error| format!(": {error:#}"));
            eprintln!("wrong: job {}: {counts:?}{why}\n{}", tally.jobs, job.log());
            tally.wrong.push(format!("job {}", tally.jobs));
        }
    }
    println!(
        "{} jobs of {} effects, {} kills of a runner, {} of tool servers, {} resumes, {} questions: {} duplicates, {} lost\nseed {}, {:.0} s",
        tally.jobs,
        WANTED.iter().map(|(_, n)| n).sum::<usize>(),
        tally.runners,
        tally.servers,
        tally.resumes,
        tally.questions,
        tally.duplicates,
        tally.lost,
        options.seed,
        started.elapsed().as_secs_f64()
    );
    ensure!(tally.wrong.is_empty(), "wrong: {}", tally.wrong.join(", "));
    ensure!(tally.jobs > 0 && tally.runners + tally.servers > 0, "nothing was killed; give it more --seconds");
    Ok(())
}

fn wanted() -> BTreeMap<&'static str, usize> {
    WANTED.into_iter().collect()
}

/// Twenty calls in nine turns, each worded differently when the model is asked again.
fn script() -> anyhow::Result<ua_llm::Script> {
    let ua = |tool: &str, input: Value| json!({"name": format!("mcp__ua__{tool}"), "input": input});
    let write = |name: &str| {
        ua("write_local_file", json!({"path": name, "content": format!("{name}, request {{{{request}}}}\n")}))
    };
    let read = |name: &str| ua("read_local_file", json!({"path": name}));
    let list = || ua("list_directory", json!({"path": "."}));
    let append = |n: u32| {
        ua("append_to_file", json!({"path": "diary.txt", "content": format!("entry {n}, request {{{{request}}}}\n")}))
    };
    let upload = |name: &str| ua("upload", json!({"path": name}));
    let mail = |n: u32| {
        let body = "Worded by request {{request}}, turn {{turn}}.";
        ua("send_email", json!({"to": ["team@example.test"], "subject": format!("Part {n}"), "body": body}))
    };
    let notify = |n: u32| ua("notify", json!({"message": format!("part {n} is out, says request {{{{request}}}}")}));
    let comment = |n: u32| json!({"name": format!("mcp__forum__{OPAQUE_TOOL}"), "input": {"text": format!("comment {n}, request {{{{request}}}}")}});
    let turn = |calls: Vec<Value>| json!({"text": "Request {{request}}.", "tools": calls});
    let script = json!({"name": "crash loop", "turns": [
        turn(vec![list(), list()]),
        turn(vec![write("one.md"), append(1)]),
        turn(vec![read("one.md"), comment(1), upload("one.md")]),
        turn(vec![mail(1), notify(1)]),
        turn(vec![write("two.md"), read("two.md"), append(2)]),
        turn(vec![comment(2), upload("two.md")]),
        turn(vec![list(), mail(2)]),
        turn(vec![append(3), read("diary.txt"), comment(3)]),
        turn(vec![notify(2)]),
        {"text": "All parts are out."},
    ]});
    Ok(ua_llm::Script::parse(&script.to_string())?)
}

/// One job in a folder of its own, with its own model and its own world.
struct Job<'a> {
    program: &'a Path,
    folder: tempfile::TempDir,
    server: ModelServer,
}

impl<'a> Job<'a> {
    fn new(program: &'a Path, runtime: &tokio::runtime::Runtime) -> anyhow::Result<Self> {
        let folder = tempfile::tempdir()?;
        let server = runtime.block_on(ModelServer::start(ModelServerConfig::new(script()?)))?;
        let opaque = json!({
            "command": std::env::current_exe()?,
            "args": ["opaque-server", "--answer-after", "150", "--log", folder.path().join("comments.log")],
        });
        fs::write(folder.path().join("mcp.json"), json!({"mcpServers": {"forum": opaque}}).to_string())?;
        fs::write(folder.path().join("job.json"), JOB)?;
        Ok(Self { program, folder, server })
    }

    fn root(&self) -> PathBuf {
        self.folder.path().join("root")
    }

    fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("ua.log")).unwrap_or_default()
    }

    fn command(&self, arguments: &[&str]) -> anyhow::Result<Command> {
        let log = File::options().create(true).append(true).open(self.folder.path().join("ua.log"))?;
        let mut command = Command::new(self.program);
        command.args(arguments).arg("--root").arg(self.root()).current_dir(workspace_root());
        command.env("ANTHROPIC_BASE_URL", &self.server.base_url).env("ANTHROPIC_API_KEY", "loop");
        command.env_remove("UA_RUNTIME_DB_PATH").env_remove("UA_KILL_AT").env_remove("UA_BROKEN_RULE");
        // Files, never pipes: a tool server that outlives the runner must not keep the harness waiting.
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        Ok(command)
    }

    /// Starts the job and resumes it until it has succeeded, with so many kills on the way.
    fn finish(&self, mut chaos: Option<(&mut Random, u64)>, span: Duration, tally: &mut Tally) -> anyhow::Result<()> {
        for life in 0..MAX_LIVES {
            let plan = match &mut chaos {
                // A resumed job has less left to do; a moment after its end kills nothing.
                Some((random, kills)) => moments(random, *kills, span / (1 + life))?,
                None => Vec::new(),
            };
            let killed_before = tally.runners + tally.servers;
            tally.resumes += u32::from(life > 0);
            let (status, done) = self.live(&plan, tally)?;
            if let Some((_, kills)) = &mut chaos {
                *kills = kills.saturating_sub(done);
            }
            match (status.code(), status.signal()) {
                (Some(0), _) => return Ok(()),
                (Some(75), _) => {
                    let answered = self.answer_truthfully()?;
                    // Without a question it is parked because a tool server could not be started, having been killed.
                    let was_killed = tally.runners + tally.servers > killed_before;
                    ensure!(answered > 0 || was_killed, "the run waits, but not for an answer about a call");
                    tally.questions += answered;
                }
                (None, Some(9)) => {}
                // A tool server that was killed while it started: nothing was sent.
                (Some(_), _) if tally.runners + tally.servers > killed_before => {}
                (code, signal) => bail!("ended with {code:?}, signal {signal:?}"),
            }
        }
        bail!("not finished after {MAX_LIVES} lives")
    }

    /// One life, and how many of the planned kills it met.
    fn live(&self, plan: &[(Victim, Duration)], tally: &mut Tally) -> anyhow::Result<(ExitStatus, u64)> {
        let (job, servers) = (self.folder.path().join("job.json"), self.folder.path().join("mcp.json"));
        let (job, servers) = (job.display().to_string(), servers.display().to_string());
        let first =
            ["job", &job, "--run-id", RUN, "--provider", "anthropic", "--model", "scripted", "--mcp-config", &servers];
        let is_stored = self.root().join("runtime_state.db").exists()
            && self.command(&["runs", "show", RUN, "--json"])?.stdout(Stdio::null()).status()?.success();
        let mut command =
            if is_stored { self.command(&["job", "--resume", "--run-id", RUN])? } else { self.command(&first)? };
        let mut child = command.spawn().context("start ua")?;
        let started = Instant::now();
        let (mut plan, mut done) = (plan.iter(), 0);
        let mut next = plan.next();
        loop {
            if let Some(status) = child.try_wait()? {
                return Ok((status, done));
            }
            if let Some((victim, moment)) = next
                && started.elapsed() >= *moment
            {
                next = plan.next();
                done += 1;
                kill(*victim, &mut child, tally)?;
            }
            if started.elapsed() > PATIENCE {
                child.kill()?;
                child.wait()?;
                bail!("ua did not end within {} s", PATIENCE.as_secs());
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Answers every open question with what the world knows. Only the tool without a key may be asked about.
    fn answer_truthfully(&self) -> anyhow::Result<u32> {
        let listed =
            self.command(&["calls", "list", "--run", RUN, "--unknown", "--json"])?.stdout(Stdio::piped()).output()?;
        let calls: Vec<Value> = serde_json::from_slice(&listed.stdout).context("read the unknown calls")?;
        let comments = fs::read_to_string(self.folder.path().join("comments.log")).unwrap_or_default();
        let open = self.open_questions()?;
        let asked = calls.iter().filter(|call| open.contains(&call["tool_call_id"]));
        let mut answers = 0;
        for call in asked {
            answers += 1;
            let id = call["tool_call_id"].as_str().context("a call has an id")?;
            ensure!(call["tool_name"] == OPAQUE_TOOL, "asked about `{}`, which settles by itself", call["tool_name"]);
            let text = call["arguments"]["text"].as_str().context("a comment has a text")?;
            let answer = if comments.contains(text) { "--happened" } else { "--execute" };
            let resolved = self.command(&["calls", "resolve", id, answer])?.status()?;
            ensure!(resolved.success(), "`ua calls resolve {id} {answer}` failed");
        }
        Ok(answers)
    }

    /// The calls that a person is asked about. A process that was killed before it acted on an answer leaves a doubt that nobody
    /// has to be asked about again.
    fn open_questions(&self) -> anyhow::Result<Vec<Value>> {
        let listed = self.command(&["questions", "--run", RUN, "--json"])?.stdout(Stdio::piped()).output()?;
        let questions: Vec<Value> = serde_json::from_slice(&listed.stdout).context("read the questions")?;
        let open = questions.into_iter().filter(|question| question["status"] == "open");
        Ok(open.map(|question| question["call_id"].clone()).collect())
    }

    /// Every statement about the records holds, asked through the program itself.
    fn check_records(&self) -> anyhow::Result<()> {
        let check = self.command(&["db", "check", "--invariants"])?.status()?;
        ensure!(check.success(), "`ua db check --invariants` found the records broken");
        Ok(())
    }

    /// What happened, counted outside.
    fn counts(&self) -> anyhow::Result<BTreeMap<&'static str, usize>> {
        let visible =
            |entry: &fs::DirEntry| entry.path().is_file() && !entry.file_name().to_string_lossy().starts_with('.');
        let files = |path: PathBuf| fs::read_dir(path).map_or(0, |entries| entries.flatten().filter(visible).count());
        let comments = fs::read_to_string(self.folder.path().join("comments.log")).unwrap_or_default();
        let sessions = fs::read_dir(self.root())?.flatten().map(|entry| entry.path());
        let workspace = sessions
            .into_iter()
            .find(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("session_")));
        let workspace = workspace.context("the run has no workspace")?;
        let written = ["one.md", "two.md"].into_iter().filter(|name| workspace.join(name).is_file()).count();
        let diary = fs::read_to_string(workspace.join("diary.txt")).unwrap_or_default();
        Ok(BTreeMap::from([
            ("upload", files(self.root().join("objects"))),
            ("send_email", files(self.root().join("outbox/new"))),
            ("notify", files(self.root().join("notifications"))),
            (OPAQUE_TOOL, comments.lines().count()),
            ("append_to_file", diary.lines().count()),
            ("write_local_file", written),
        ]))
    }
}

/// Who is killed when, within `span`, in order.
fn moments(random: &mut Random, kills: u64, span: Duration) -> anyhow::Result<Vec<(Victim, Duration)>> {
    let victims = [Victim::Runner, Victim::ToolServer, Victim::Both];
    let mut moments = Vec::new();
    for _ in 0..kills {
        moments.push((victims[usize::try_from(random.below(3))?], span.mul_f64(random.unit())));
    }
    moments.sort_by_key(|(_, moment)| *moment);
    Ok(moments)
}

fn kill(victim: Victim, child: &mut Child, tally: &mut Tally) -> anyhow::Result<()> {
    if matches!(victim, Victim::ToolServer | Victim::Both) {
        // Runner → shim → server.
        for server in children_of(child.id()).into_iter().flat_map(children_of) {
            let killed = Command::new("kill").args(["-KILL", &server.to_string()]).stderr(Stdio::null()).status()?;
            tally.servers += u32::from(killed.success());
        }
    }
    if matches!(victim, Victim::Runner | Victim::Both) && child.try_wait()?.is_none() {
        child.kill()?;
        tally.runners += 1;
    }
    Ok(())
}

/// The processes whose parent is `pid`.
fn children_of(pid: u32) -> Vec<u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let parent_of = |child: u32| -> Option<u32> {
        let stat = fs::read_to_string(format!("/proc/{child}/stat")).ok()?;
        stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
    };
    let pids = entries.filter_map(|entry| entry.file_name().to_string_lossy().parse().ok());
    pids.filter(|child| parent_of(*child) == Some(pid)).collect()
}
