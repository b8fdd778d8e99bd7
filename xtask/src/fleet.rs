//! Three workers on one machine, one of them killed again and again while jobs keep coming: the receiving ends count each effect once.
//!
//! The workers are the real program, on a PostgreSQL server of the lane's own (directly or through its pooler) or on a file. Each job sends an
//! e-mail and a notification under keys, and three comments by a tool that takes no key and answers late. What a kill left in doubt is asked
//! about, and answered with what the receiving end has.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use ua_testkit::postgres::{POOLER, SERVER};
use ua_testkit::{OPAQUE_TOOL, PostgresServer, ua_program};

use crate::random::Random;

/// How to run it.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// How many jobs there are; they are submitted evenly over the time
    #[arg(long, default_value_t = 300, value_parser = clap::value_parser!(u32).range(1..))]
    jobs: u32,
    /// For how many seconds workers are killed; what is left then is finished
    #[arg(long, default_value_t = 600)]
    seconds: u64,
    /// A worker is killed every so many seconds
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..))]
    every: u64,
    /// How many workers there are
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(2..))]
    workers: u32,
    /// Where the database is
    #[arg(long, value_enum, default_value = "pooler")]
    on: On,
    /// Milliseconds between a comment and its answer
    #[arg(long, default_value_t = 700)]
    answer_after: u64,
    /// Seed of who is killed
    #[arg(long, default_value_t = 20_261_124)]
    seed: u64,
}

/// Where the database is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum On {
    /// In a file
    File,
    /// On a server
    Server,
    /// On a server, behind a pooler in transaction mode
    Pooler,
}

/// Effects of a job: an e-mail and a notification, and so many comments.
const COMMENTS: u32 = 3;
/// The longest that one command may take, and that nothing may happen for.
const PATIENCE: Duration = Duration::from_mins(3);
/// How often the harness looks.
const GLANCE: Duration = Duration::from_millis(200);

#[derive(Debug, Default)]
struct Tally {
    kills: u32,
    /// Runs that dead workers had, as the others found them.
    takeovers: u64,
    questions: u32,
    /// Of these, how many comments had been posted.
    happened: u32,
    moved: u32,
}

pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    let server = match options.on {
        On::File => None,
        On::Server | On::Pooler => match PostgresServer::start("") {
            Ok(server) => Some(server),
            Err(why) if std::env::var_os("UA_NEED_POSTGRES").is_none() => {
                ua_testkit::skipped(&why);
                return Ok(());
            }
            Err(why) => bail!(why),
        },
    };
    let stage = Stage::new(options, server)?;
    let mut random = Random(options.seed);
    let mut tally = Tally::default();
    let begun = Instant::now();
    let mut workers: Vec<Worker> = (0..options.workers).map(|_| stage.worker()).collect::<anyhow::Result<_>>()?;
    let span = Duration::from_secs(options.seconds);
    let (mut submitted, mut killed_at) = (0, Duration::ZERO);
    while begun.elapsed() < span {
        let due = u128::from(options.jobs) * begun.elapsed().as_millis() / span.as_millis().max(1) + 1;
        let due = u32::try_from(due).unwrap_or(u32::MAX).min(options.jobs);
        while submitted < due {
            stage.submit(submitted)?;
            submitted += 1;
        }
        if begun.elapsed() >= killed_at + Duration::from_secs(options.every) {
            killed_at += Duration::from_secs(options.every);
            let victim = usize::try_from(random.below(workers.len() as u64))?;
            let worker = workers.swap_remove(victim);
            tally.takeovers += worker.takeovers()?;
            worker.kill()?;
            tally.kills += 1;
            workers.push(stage.worker()?);
        }
        stage.attend(&mut tally)?;
        std::thread::sleep(GLANCE);
    }
    for number in submitted..options.jobs {
        stage.submit(number)?;
    }
    let mut moved_at = (Instant::now(), usize::MAX);
    loop {
        stage.attend(&mut tally)?;
        let left = stage.json(&["queue", "list", "--limit", "1000"])?.as_array().map_or(0, Vec::len);
        if left == 0 {
            break;
        }
        if left != moved_at.1 {
            moved_at = (Instant::now(), left);
        }
        ensure!(
            moved_at.0.elapsed() < PATIENCE,
            "{left} run(s) are not finished: {}",
            stage.json(&["queue", "list", "--limit", "1000"])?
        );
        std::thread::sleep(GLANCE);
    }
    for worker in workers {
        tally.takeovers += worker.takeovers()?;
        worker.ends()?;
    }
    let (twice, lost) = stage.counts(options.jobs)?;
    let unfinished = stage.json(&["runs", "list", "--limit", "1000000"])?;
    let unfinished =
        unfinished.as_array().map_or(0, |runs| runs.iter().filter(|run| run["status"] != "succeeded").count());
    let invariants = stage.json_of(&["db", "check", "--invariants"], &[0, 74])?;
    let violations = invariants["violations"].as_array().map_or(usize::MAX, Vec::len);
    println!(
        "{} workers on a {}, {} jobs of {} effects, {} kills in {} s: {} runs taken over, {} questions ({} had happened), {} runs tried again by a \
         person: {} effects twice, {} lost, {} runs not succeeded, {} violations\nseed {}, {:.0} s",
        options.workers,
        match options.on {
            On::File => "file",
            On::Server => "server",
            On::Pooler => "server behind a pooler",
        },
        options.jobs,
        COMMENTS + 2,
        tally.kills,
        options.seconds,
        tally.takeovers,
        tally.questions,
        tally.happened,
        tally.moved,
        twice.len(),
        lost.len(),
        unfinished,
        violations,
        options.seed,
        begun.elapsed().as_secs_f64()
    );
    ensure!(twice.is_empty() && lost.is_empty(), "twice: {twice:?}, lost: {lost:?}");
    ensure!(unfinished == 0 && violations == 0, "the records are not as they must be: {}", invariants["violations"]);
    ensure!(tally.kills > 0, "nobody was killed; give it more --seconds");
    Ok(())
}

/// What workers and receivers share.
struct Stage {
    folder: tempfile::TempDir,
    url: Option<String>,
    _server: Option<PostgresServer>,
    born: std::cell::Cell<u32>,
}

impl Stage {
    fn new(options: &Options, server: Option<PostgresServer>) -> anyhow::Result<Self> {
        let folder = tempfile::Builder::new().prefix("ua-fleet-").tempdir()?;
        fs::create_dir_all(folder.path().join("home/.config"))?;
        let forum = json!({
            "command": std::env::current_exe()?,
            "args": ["opaque-server", "--answer-after", options.answer_after.to_string(), "--log", folder.path().join("comments.log")],
        });
        fs::write(folder.path().join("servers.json"), json!({"mcpServers": {"forum": forum}}).to_string())?;
        let url = |port| server.as_ref().map(|server| server.url("fleet", port));
        let (direct, pooled) = (url(SERVER), url(POOLER));
        if let Some(server) = &server {
            ensure!(
                options.on == On::Server || server.has_pooler(),
                "pgbouncer is not installed; `--on server` does without"
            );
            server.create("fleet", "");
        }
        let mut stage = Self { folder, url: direct, _server: server, born: std::cell::Cell::new(0) };
        if stage.url.is_some() {
            stage.done(&["db", "migrate"])?;
        }
        if options.on == On::Pooler {
            stage.url = pooled;
        }
        Ok(stage)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(ua_program());
        command.args(words).arg("--root").arg(self.path("root")).current_dir(self.folder.path()).env_clear();
        command.env("PATH", "/usr/local/bin:/usr/bin:/bin").env("HOME", self.path("home"));
        command.env("E2E_ENDS_WITH", std::process::id().to_string()).stdin(Stdio::null());
        if let Some(url) = &self.url {
            command.env("UA_DATABASE_URL", url);
        }
        command
    }

    /// The JSON of a command that ends with one of these codes.
    fn json_of(&self, words: &[&str], codes: &[i32]) -> anyhow::Result<Value> {
        let output = self.command(&[words, &["--json"]].concat()).output()?;
        let errors = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.code().is_some_and(|code| codes.contains(&code)), "`ua {}`: {errors}", words.join(" "));
        serde_json::from_slice(&output.stdout).with_context(|| format!("`ua {}` shows no JSON", words.join(" ")))
    }

    fn json(&self, words: &[&str]) -> anyhow::Result<Value> {
        self.json_of(words, &[0])
    }

    fn done(&self, words: &[&str]) -> anyhow::Result<()> {
        let output = self.command(words).output()?;
        ensure!(output.status.success(), "`ua {}`: {}", words.join(" "), String::from_utf8_lossy(&output.stderr));
        Ok(())
    }

    /// Stores and queues a job.
    fn submit(&self, number: u32) -> anyhow::Result<()> {
        let ua = |tool: &str, input: Value| json!({"name": format!("mcp__ua__{tool}"), "input": input});
        let turn = |call: Value| json!({"text": "One more.", "tools": [call]});
        let comment = |part: u32| {
            turn(
                json!({"name": format!("mcp__forum__{OPAQUE_TOOL}"), "input": {"text": format!("comment {part} of job {number}.")}}),
            )
        };
        let subject = format!("mail of job {number}.");
        let mut turns = vec![turn(ua(
            "send_email",
            json!({"to": ["team@example.test"], "subject": subject, "body": "As promised."}),
        ))];
        turns.extend((0..COMMENTS).map(comment));
        turns.push(turn(ua("notify", json!({"message": format!("notice of job {number}.")}))));
        turns.push(json!({"text": "All is out."}));
        let (script, job) = (format!("script{number}.json"), format!("job{number}.json"));
        fs::write(self.path(&script), json!({"turns": turns}).to_string())?;
        let spec = json!({
            "objective": "Tell team@example.test.", "model": {"provider": "scripted", "script": script},
            "constraints": {"allowed_recipients": ["@example.test"]},
        });
        fs::write(self.path(&job), spec.to_string())?;
        self.done(&["submit", &job, "--run-id", &format!("job_{number}"), "--mcp-config", "servers.json"])
    }

    fn worker(&self) -> anyhow::Result<Worker> {
        let number = self.born.replace(self.born.get() + 1);
        let log = self.path(&format!("worker{number}.log"));
        let mut command = self.command(&["worker", "--concurrency", "2", "--name", &format!("w{number}")]);
        // A group of its own, as a service has it.
        let file = File::create(&log)?;
        let child =
            command.stdout(file.try_clone()?).stderr(file).process_group(0).spawn().context("start a worker")?;
        Ok(Worker { child, log })
    }

    /// Does what a person does: answers with what the receiving end has, and has runs tried again that workers died with.
    fn attend(&self, tally: &mut Tally) -> anyhow::Result<()> {
        for entry in self.json(&["queue", "list", "--limit", "1000"])?.as_array().into_iter().flatten() {
            let is_given_up =
                entry["state"] == "parked" && entry["why"].as_str().is_some_and(|why| why.contains("workers in a row"));
            if is_given_up {
                self.done(&["queue", "move", entry["run_id"].as_str().context("an entry has a run")?])?;
                tally.moved += 1;
            }
        }
        let asked = self.json(&["questions"])?;
        for question in asked.as_array().into_iter().flatten().filter(|question| question["status"] == "open") {
            let id = question["question_id"].as_str().context("a question has an id")?;
            let call = question["call_id"].as_str().with_context(|| format!("nobody had to be asked: {question}"))?;
            let call = self.json(&["calls", "show", call])?;
            let text = call["arguments"]["text"].as_str().with_context(|| format!("this settles by itself: {call}"))?;
            let has_happened = fs::read_to_string(self.path("comments.log")).unwrap_or_default().contains(text);
            let answer = if has_happened { "happened" } else { "execute" };
            // Closed meanwhile by the run itself: nothing is left to say.
            if self.done(&["answer", id, answer]).is_ok() {
                tally.questions += 1;
                tally.happened += u32::from(has_happened);
            }
        }
        Ok(())
    }

    /// What the receiving ends have more than once, and not at all.
    fn counts(&self, jobs: u32) -> anyhow::Result<(Vec<String>, Vec<String>)> {
        let texts = |folder: &str| -> anyhow::Result<Vec<String>> {
            let files = fs::read_dir(self.path(folder)).with_context(|| format!("read {folder}"))?.flatten();
            let files =
                files.filter(|file| !file.file_name().to_string_lossy().starts_with('.') && file.path().is_file());
            files.map(|file| Ok(fs::read_to_string(file.path())?)).collect()
        };
        let (mails, notices) = (texts("root/outbox/new")?, texts("root/notifications")?);
        let comments: Vec<String> = fs::read_to_string(self.path("comments.log"))?.lines().map(str::to_owned).collect();
        let mut counted: BTreeMap<String, usize> = BTreeMap::new();
        for job in 0..jobs {
            let mut count = |what: String, all: &[String]| {
                let found = all.iter().filter(|text| text.contains(&what)).count();
                counted.insert(what, found);
            };
            count(format!("mail of job {job}."), &mails);
            count(format!("notice of job {job}."), &notices);
            (0..COMMENTS).for_each(|part| count(format!("comment {part} of job {job}."), &comments));
        }
        let having = |is_so: fn(usize) -> bool| -> Vec<String> {
            counted.iter().filter(|(_, count)| is_so(**count)).map(|(what, count)| format!("{what} {count}")).collect()
        };
        Ok((having(|count| count > 1), having(|count| count == 0)))
    }
}

struct Worker {
    child: Child,
    log: PathBuf,
}

impl Worker {
    fn kill(mut self) -> anyhow::Result<()> {
        ensure!(self.child.try_wait()?.is_none(), "a worker ended by itself: {}", fs::read_to_string(&self.log)?);
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    /// How many runs of dead workers it has found.
    fn takeovers(&self) -> anyhow::Result<u64> {
        let text = fs::read_to_string(&self.log)?;
        let found = text
            .lines()
            .filter_map(|line| line.split_once(" of dead workers")?.0.rsplit(' ').nth(1)?.parse::<u64>().ok());
        Ok(found.sum())
    }

    /// Told to stop, it ends well.
    fn ends(mut self) -> anyhow::Result<()> {
        let pid = Pid::from_raw(i32::try_from(self.child.id())?).context("a child has a process id")?;
        kill_process(pid, Signal::TERM)?;
        let asked = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait()? {
                ensure!(status.success(), "a worker ended with {status}: {}", fs::read_to_string(&self.log)?);
                return Ok(());
            }
            ensure!(asked.elapsed() < PATIENCE, "a worker does not end");
            std::thread::sleep(GLANCE);
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // Both fail when it has ended and was waited for.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}
