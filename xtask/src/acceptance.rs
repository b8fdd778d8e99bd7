//! The acceptance run (Durable Jobs v1 spec §11): the research job against real processes, killed with SIGKILL at every named
//! stage and at seeded random moments, resumed by name, and its effects counted outside the runner.
//!
//! The model is a scripted one behind a real HTTP server that words things differently each time it is asked. Beside the
//! built-in tools, which take a key, the job calls one tool that takes none and cannot be asked afterwards: there the run must
//! stop and ask, and is given the truth as counted outside.

use std::fmt;
use std::fs::{self, File};
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use serde_json::{Value, json};
use ua_testkit::{ModelServer, ModelServerConfig, OPAQUE_TOOL, ua_program, workspace_root};

/// How to run it.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Seed of the random kills
    #[arg(long, default_value_t = 20_261_121)]
    seed: u64,
    /// How many runs are killed at random moments
    #[arg(long, default_value_t = 12)]
    random: u32,
    /// Break a rule on purpose and expect duplicates: running-after-dispatch
    #[arg(long, value_name = "RULE")]
    broken_rule: Option<String>,
    /// Only kill points whose name contains this
    #[arg(long)]
    only: Option<String>,
    /// Write the table to this file as well
    #[arg(long, value_name = "FILE")]
    write: Option<PathBuf>,
}

/// What the job does outside, and who counts it.
const EFFECTS: [&str; 4] = ["upload", "send_email", "notify", OPAQUE_TOOL];

/// Tools of the job in the order of its turns.
const TOOLS: [&str; 7] =
    ["crawl_parallel", "write_local_file", "render_html", "upload", "send_email", OPAQUE_TOOL, "notify"];

/// The run's name.
const RUN: &str = "acceptance";

/// How often one cell may be resumed before the harness gives up.
const MAX_RESUMES: u32 = 8;

/// The longest one process may take.
const PATIENCE: Duration = Duration::from_mins(1);

pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let started = Instant::now();
    let program = ua_program().clone();
    let bench = Bench { program, broken_rule: options.broken_rule.clone(), runtime };
    let points =
        kill_points().into_iter().filter(|point| options.only.as_ref().is_none_or(|only| point.contains(only)));
    let mut cells = Vec::new();

    let clean = bench.cell("no kill", None, None)?;
    ensure!(clean.is_right(), "the job does not work even without a kill: {clean}");
    let span = clean.took;
    cells.push(clean);
    for point in points {
        cells.push(bench.cell(&point.clone(), Some(&point), None)?);
    }
    let mut random = Random(options.seed);
    for n in 1..=options.random {
        let moments: Vec<Duration> = (0..=random.below(3)).map(|_| span.mul_f64(random.unit())).collect();
        let shown: Vec<String> = moments.iter().map(|moment| format!("{} ms", moment.as_millis())).collect();
        cells.push(bench.cell(&format!("random {n}: {}", shown.join(", ")), None, Some(moments))?);
    }
    report(&cells, options, started.elapsed())
}

/// Every named stage: around the model's answer, around each turn's writes, and around the dispatch of each tool.
fn kill_points() -> Vec<String> {
    let mut points = Vec::new();
    let turn_writes = ["store.acquire_run", "store.open_step", "store.end_run"];
    for write in turn_writes {
        points.extend(["before", "after"].map(|side| format!("{side}:{write}")));
    }
    for turn in [1, 4, 6] {
        for write in ["store.reserve_request", "model.complete", "store.record_turn", "store.commit_turn"] {
            points.extend(["before", "after"].map(|side| format!("{side}:{write}#{turn}")));
        }
    }
    for tool in TOOLS {
        points.push(format!("before:store.start_attempt:{tool}"));
        points.push(format!("after:store.start_attempt:{tool}"));
        points.push(format!("after:tool.invoke:{tool}"));
        points.push(format!("after:store.settle_attempt:{tool}"));
    }
    points
}

/// What came of one kill point.
struct Cell {
    point: String,
    counts: Vec<usize>,
    kills: u32,
    asked: u32,
    outcome: String,
    took: Duration,
    reached: bool,
}

impl Cell {
    fn is_right(&self) -> bool {
        self.reached && self.outcome == "succeeded" && self.counts.iter().all(|count| *count == 1)
    }

    fn has_duplicate(&self) -> bool {
        self.counts.iter().any(|count| *count > 1)
    }
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counts: Vec<String> =
            EFFECTS.iter().zip(&self.counts).map(|(effect, count)| format!("{effect} {count}")).collect();
        let reached = if self.reached { "" } else { " (the point was never reached)" };
        write!(
            f,
            "{}: {}; {} after {} kill(s), {} question(s){reached}",
            self.point,
            counts.join(", "),
            self.outcome,
            self.kills,
            self.asked
        )
    }
}

fn report(cells: &[Cell], options: &Options, took: Duration) -> anyhow::Result<()> {
    let mut table = String::from(
        "| kill point | upload | e-mail | notification | opaque comment | kills | questions | outcome |\n|---|---|---|---|---|---|---|---|\n",
    );
    for cell in cells {
        let counts: Vec<String> = cell.counts.iter().map(ToString::to_string).collect();
        table.push_str(&format!(
            "| {} | {} | {} | {} | {} |\n",
            cell.point,
            counts.join(" | "),
            cell.kills,
            cell.asked,
            cell.outcome
        ));
    }
    print!("{table}");
    let duplicates = cells.iter().filter(|cell| cell.has_duplicate()).count();
    let wrong: Vec<&Cell> = cells.iter().filter(|cell| !cell.is_right()).collect();
    println!(
        "\n{} cells, seed {}, {:.0} s: {duplicates} with a duplicate, {} not exactly once",
        cells.len(),
        options.seed,
        took.as_secs_f64(),
        wrong.len()
    );
    if let Some(rule) = &options.broken_rule {
        ensure!(duplicates > 0, "the broken rule `{rule}` went unnoticed");
        println!("the broken rule `{rule}` was seen, as it must be");
        return Ok(());
    }
    for cell in &wrong {
        eprintln!("wrong: {cell}");
    }
    ensure!(wrong.is_empty(), "the promise does not hold");
    if let Some(path) = &options.write {
        let page = format!(
            "# Acceptance\n\nWritten by `cargo xtask acceptance`: the research job, killed with SIGKILL at each point and resumed with `--resume --run-id`. \
             The numbers are effects counted outside the runner; a question is one that a person had to answer.\n\n{table}"
        );
        fs::write(path, page).with_context(|| format!("write {}", path.display()))?;
    }
    Ok(())
}

/// Everything that stays the same between cells.
struct Bench {
    program: PathBuf,
    broken_rule: Option<String>,
    runtime: tokio::runtime::Runtime,
}

impl Bench {
    /// One job, killed as told, resumed until it ends.
    fn cell(&self, name: &str, point: Option<&str>, moments: Option<Vec<Duration>>) -> anyhow::Result<Cell> {
        let folder = tempfile::tempdir()?;
        let world = World::new(folder.path())?;
        let server = self.runtime.block_on(ModelServer::start(ModelServerConfig::new(script()?)))?;
        let lives = Lives { bench: self, world: &world, base_url: &server.base_url };
        let started = Instant::now();
        let (mut kills, mut asked) = (0, 0);
        let mut moments = moments.unwrap_or_default().into_iter();

        let mut status = lives.live(true, point, moments.next())?;
        let reached = point.is_none() || status.signal() == Some(9);
        for _ in 0..MAX_RESUMES {
            match (status.code(), status.signal()) {
                (Some(75), _) if asked < 3 => {
                    asked += 1;
                    lives.answer_truthfully()?;
                }
                (None, Some(9)) => kills += 1,
                _ => break,
            }
            status = lives.live(false, None, moments.next())?;
        }
        let outcome = match (status.code(), status.signal()) {
            (Some(0), _) => "succeeded".to_owned(),
            (Some(code), _) => format!("exit {code}"),
            (None, signal) => format!("signal {}", signal.unwrap_or(0)),
        };
        let cell = Cell {
            point: name.to_owned(),
            counts: world.counts(),
            kills,
            asked,
            outcome,
            took: started.elapsed(),
            reached,
        };
        if !cell.is_right() && self.broken_rule.is_none() {
            eprintln!("--- {cell}\n{}", fs::read_to_string(&world.log).unwrap_or_default());
        }
        Ok(cell)
    }
}

/// The script of the research job, with one comment through the opaque server, and an e-mail worded differently each time.
fn script() -> anyhow::Result<ua_llm::Script> {
    let text = fs::read_to_string(workspace_root().join("fixtures/scripts/research_report.json"))?;
    let jobs = workspace_root().join("fixtures/jobs").canonicalize()?;
    let mut script: Value = serde_json::from_str(&text.replace("${JOB_DIR}", &jobs.display().to_string()))?;
    let turns = script["turns"].as_array_mut().context("the script has turns")?;
    let mail = turns
        .iter_mut()
        .find(|turn| turn["tools"][0]["name"] == "mcp__ua__send_email")
        .context("the script sends a mail")?;
    let body = mail["tools"][0]["input"]["body"].as_str().unwrap_or_default().to_owned();
    mail["tools"][0]["input"]["body"] = json!(format!("{body}\n(request {{{{request}}}})"));
    let comment = json!({"tools": [{"name": format!("mcp__forum__{OPAQUE_TOOL}"), "input": {"text": "The report is out (request {{request}})."}}]});
    let before_notify = turns.len().checked_sub(2).context("the script ends with a notification and a last word")?;
    turns.insert(before_notify, comment);
    Ok(ua_llm::Script::parse(&script.to_string())?)
}

/// Where the effects of one cell land.
struct World {
    root: PathBuf,
    comments: PathBuf,
    mcp_config: PathBuf,
    log: PathBuf,
}

impl World {
    fn new(folder: &Path) -> anyhow::Result<Self> {
        let world = Self {
            root: folder.join("root"),
            comments: folder.join("comments.log"),
            mcp_config: folder.join("mcp.json"),
            log: folder.join("ua.log"),
        };
        let server = json!({"command": std::env::current_exe()?, "args": ["opaque-server", "--log", world.comments]});
        fs::write(&world.mcp_config, json!({"mcpServers": {"forum": server}}).to_string())?;
        Ok(world)
    }

    /// Counts from outside, in the order of [`EFFECTS`].
    fn counts(&self) -> Vec<usize> {
        let files = |path: &Path| {
            fs::read_dir(path).map_or(0, |entries| entries.flatten().filter(|e| is_visible(&e.path())).count())
        };
        vec![
            files(&self.root.join("objects")),
            files(&self.root.join("outbox/new")),
            files(&self.root.join("notifications")),
            fs::read_to_string(&self.comments).map_or(0, |text| text.lines().count()),
        ]
    }
}

fn is_visible(path: &Path) -> bool {
    path.is_file() && !path.file_name().unwrap_or_default().to_string_lossy().starts_with('.')
}

/// Starts processes of one cell.
struct Lives<'a> {
    bench: &'a Bench,
    world: &'a World,
    base_url: &'a str,
}

impl Lives<'_> {
    fn command(&self, arguments: &[&str]) -> anyhow::Result<Command> {
        let log = File::options().create(true).append(true).open(&self.world.log)?;
        let mut command = Command::new(&self.bench.program);
        command.args(arguments).arg("--root").arg(&self.world.root).current_dir(workspace_root());
        command
            .env("ANTHROPIC_BASE_URL", self.base_url)
            .env("ANTHROPIC_API_KEY", "acceptance")
            .env_remove("UA_RUNTIME_DB_PATH");
        // Files, never pipes: a tool server that outlives the runner must not keep the harness waiting.
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        Ok(command)
    }

    /// One life of the runner: started, or resumed by name; ends by itself, at the kill point, or at the moment.
    fn live(&self, is_first: bool, point: Option<&str>, moment: Option<Duration>) -> anyhow::Result<ExitStatus> {
        let mcp_config = self.world.mcp_config.display().to_string();
        let started = self.world.root.join("runtime_state.db").exists();
        let first = [
            "job",
            "fixtures/jobs/research_report.json",
            "--run-id",
            RUN,
            "--provider",
            "anthropic",
            "--model",
            "scripted",
            "--mcp-config",
            &mcp_config,
        ];
        // A process killed before it stored its run has nothing to resume; the same command starts it.
        let resume = ["job", "--resume", "--run-id", RUN];
        let mut command =
            if is_first || !started || !self.is_stored()? { self.command(&first)? } else { self.command(&resume)? };
        if let Some(point) = point {
            command.env("UA_KILL_AT", point);
        }
        if let Some(rule) = self.bench.broken_rule.as_ref().filter(|_| is_first) {
            command.env("UA_BROKEN_RULE", rule);
        }
        let mut child = command.spawn().context("start ua")?;
        wait(&mut child, moment)
    }

    /// Whether the run is in the database, asked through the program itself.
    fn is_stored(&self) -> anyhow::Result<bool> {
        let status =
            self.command(&["runs", "show", RUN, "--json"])?.stdout(Stdio::null()).stderr(Stdio::null()).status()?;
        Ok(status.success())
    }

    /// Answers every open question with what was counted outside.
    fn answer_truthfully(&self) -> anyhow::Result<()> {
        let listed =
            self.command(&["calls", "list", "--run", RUN, "--unknown", "--json"])?.stdout(Stdio::piped()).output()?;
        let calls: Vec<Value> = serde_json::from_slice(&listed.stdout).context("read the unknown calls")?;
        for call in &calls {
            let tool = call["tool_name"].as_str().unwrap_or_default();
            let id = call["tool_call_id"].as_str().context("a call has an id")?;
            let index = EFFECTS.iter().position(|effect| *effect == tool);
            let Some(index) = index else { bail!("a question about `{tool}`, which should settle by itself") };
            let answer = if self.world.counts()[index] > 0 { "--happened" } else { "--execute" };
            let resolved = self.command(&["calls", "resolve", id, answer])?.status()?;
            ensure!(resolved.success(), "`ua calls resolve {id} {answer}` failed");
        }
        Ok(())
    }
}

/// Waits for the process, kills it at `moment` if there is one.
fn wait(child: &mut Child, moment: Option<Duration>) -> anyhow::Result<ExitStatus> {
    let started = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        if moment.is_some_and(|moment| started.elapsed() >= moment) {
            child.kill()?;
            return Ok(child.wait()?);
        }
        if started.elapsed() > PATIENCE {
            child.kill()?;
            child.wait()?;
            bail!("ua did not end within {} s", PATIENCE.as_secs());
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Random numbers decided by a seed (SplitMix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    /// Between 0 and 1.
    fn unit(&mut self) -> f64 {
        f64::from(u32::try_from(self.next() >> 32).unwrap_or(0)) / f64::from(u32::MAX)
    }
}
