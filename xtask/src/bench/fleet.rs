//! What `ua` costs on a PostgreSQL server, beside what the same server, driver and disk can do in the same rounds; and how soon another worker
//! has the runs of one that ends.
//!
//! The server is the bench's own, in a temporary folder, and syncs what it commits. Turns are taken by `ua-testkit`'s example `call_bench`, in
//! a release build.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use ua_testkit::postgres::SERVER;
use ua_testkit::{OPAQUE_TOOL, PostgresServer, Proxy, ua_program};

use super::calls::{built, median};

/// How to run it.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// How many turns a run takes
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(20..))]
    turns: u32,
    /// How often everything is measured, one after the other; the median counts
    #[arg(long, default_value_t = 3)]
    rounds: u32,
    /// The most workers at once
    #[arg(long, default_value_t = 8)]
    workers: u32,
    /// Milliseconds that each commit takes longer where workers are counted, as one does that waits for another machine
    #[arg(long, default_value_t = 10)]
    commit_delay: u32,
    /// Finished runs beside the queue whose claims are measured
    #[arg(long, default_value_t = 1_000_000)]
    finished: u32,
    /// Only these parts: turns, flights, takeover, workers, claims, peers
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Where the peers are installed, and stay for the next time
    #[arg(long, value_name = "DIR", default_value = "target/peers")]
    peers: PathBuf,
    /// A program that was built before (`call_bench`); it is built for release when missing
    #[arg(long, value_name = "PROGRAM")]
    program: Option<PathBuf>,
    /// The `ua` whose workers end; the one of tests when missing
    #[arg(long, value_name = "PROGRAM")]
    ua: Option<PathBuf>,
}

/// What is installed of peers, by its version.
const PEERS: [&str; 2] = ["dbos==3.4.0", "psycopg[binary]==3.2.13"];

/// Runs at once in one worker.
const MANY: u32 = 64;
/// Connections that a worker keeps; the floor beside many runs has as many.
const CONNECTIONS: u32 = 8;

pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    let is_wanted = |part: &str| options.only.is_empty() || options.only.iter().any(|one| one == part);
    let server = PostgresServer::start("-c fsync=on -c synchronous_commit=on -c max_wal_size=4GB");
    let server = server.map_err(|why| anyhow::anyhow!(why))?;
    let program = options.program.clone().map_or_else(built, Ok)?;
    let ua = options.ua.clone().unwrap_or_else(|| ua_program().clone());
    let bench = Bench { options, server, program, ua };
    println!("| what | median of {} |", options.rounds);
    println!("|---|---|");
    if is_wanted("turns") {
        bench.turns()?;
    }
    if is_wanted("flights") {
        bench.flights()?;
    }
    if is_wanted("takeover") {
        bench.takeover()?;
    }
    if is_wanted("workers") {
        bench.workers()?;
    }
    if is_wanted("claims") {
        bench.claims()?;
    }
    if is_wanted("peers") {
        bench.peers()?;
    }
    Ok(())
}

struct Bench<'a> {
    options: &'a Options,
    server: PostgresServer,
    program: PathBuf,
    ua: PathBuf,
}

/// What a program said in its last line.
struct Said(Value);

impl Said {
    fn of(child: Child) -> anyhow::Result<Self> {
        let output = child.wait_with_output()?;
        ensure!(output.status.success(), "a program of the bench ended with {}", output.status);
        let text = String::from_utf8(output.stdout)?;
        Ok(Self(
            serde_json::from_str(text.lines().last().unwrap_or_default())
                .with_context(|| format!("it said {text:?}"))?,
        ))
    }

    fn number(&self, name: &str) -> anyhow::Result<f64> {
        self.0[name].as_f64().with_context(|| format!("no {name} in {}", self.0))
    }

    fn steps_a_second(&self) -> anyhow::Result<f64> {
        Ok(self.number("steps")? / self.number("micros")? * 1_000_000.0)
    }
}

impl Bench<'_> {
    fn sql(&self, database: &str, sql: &str) -> anyhow::Result<Vec<String>> {
        self.server.sql(database, sql).map_err(|why| anyhow::anyhow!("{sql}: {why}"))
    }

    /// A database with our schema.
    fn database(&self, name: &str) -> anyhow::Result<String> {
        self.server.create(name, "");
        let url = self.server.url(name, SERVER);
        let migrated =
            Command::new(&self.ua).args(["db", "migrate", "--database-url", &url]).stdout(Stdio::null()).status()?;
        ensure!(migrated.success(), "`ua db migrate` ended with {migrated}");
        Ok(url)
    }

    fn begin(&self, words: &[&str]) -> anyhow::Result<Child> {
        let mut command = Command::new(&self.program);
        command.args(words).stdin(Stdio::null()).stdout(Stdio::piped());
        command.spawn().with_context(|| format!("run {}", self.program.display()))
    }

    fn said(&self, words: &[&str]) -> anyhow::Result<Said> {
        Said::of(self.begin(words)?)
    }

    /// One run, and many in one worker, beside floors.
    fn turns(&self) -> anyhow::Result<()> {
        let (mut floors, mut ones, mut cpus, mut floors_of_many, mut many) = (vec![], vec![], vec![], vec![], vec![]);
        let turns = self.options.turns.to_string();
        let few = (self.options.turns / 8).max(10).to_string();
        for round in 1..=self.options.rounds {
            let url = self.database(&format!("turns_{round}"))?;
            let folder = tempfile::tempdir()?;
            let folder = folder.path().display().to_string();
            floors.push(self.said(&["floor-server", &url, &turns, "1"])?.steps_a_second()?);
            let one = self.said(&["calls-server", &url, &folder, &turns, "1", "one"])?;
            ones.push(one.steps_a_second()?);
            cpus.push(one.number("cpu_micros")? / one.number("steps")?);
            let steps = (self.options.turns * CONNECTIONS).to_string();
            floors_of_many
                .push(self.said(&["floor-server", &url, &steps, &CONNECTIONS.to_string()])?.steps_a_second()?);
            many.push(self.said(&["calls-server", &url, &folder, &few, &MANY.to_string(), "many"])?.steps_a_second()?);
            eprintln!("turns, round {round}: {floors:.0?} {ones:.0?} {floors_of_many:.0?} {many:.0?} a second");
        }
        let (floor, one, cpu) = (median(floors), median(ones), median(cpus));
        let (floor_of_many, many) = (median(floors_of_many), median(many));
        println!("| the floor: a step of two synced commits of one row | {:.2} ms |", 1_000.0 / floor);
        println!("| a turn with one effect, one run | {:.2} ms |", 1_000.0 / one);
        println!("| turns to steps of the floor, one run | {:.3} |", one / floor);
        println!("| CPU of a turn in the worker | {:.2} ms |", cpu / 1_000.0);
        println!("| the floor with {CONNECTIONS} connections, steps a second | {floor_of_many:.0} |");
        println!("| turns a second of {MANY} runs in one worker | {many:.0} |");
        println!("| turns to steps of the floor, {MANY} runs | {:.3} |", many / floor_of_many);
        Ok(())
    }

    /// Flights and syncs of a turn: what a longer run needs more than a shorter one.
    fn flights(&self) -> anyhow::Result<()> {
        self.database("flights")?;
        let proxy = Proxy::before(self.server.socket(SERVER))?;
        let folder = tempfile::tempdir()?;
        let folder = folder.path().display().to_string();
        let syncs = || -> anyhow::Result<u64> {
            // What each process counts is told at its end, and by the others once in a while.
            self.sql("flights", "SELECT pg_stat_force_next_flush()")?;
            let synced = self.sql("flights", "SELECT wal_sync FROM pg_stat_wal")?;
            Ok(synced.first().context("pg_stat_wal is empty")?.parse()?)
        };
        let mut measured = Vec::new();
        for (name, turns) in [("short", 50), ("long", 150)] {
            let (flights, synced) = (proxy.flights(), syncs()?);
            self.said(&["calls-server", &proxy.url("flights"), &folder, &turns.to_string(), "1", name])?;
            measured.push((proxy.flights() - flights, syncs()?.saturating_sub(synced)));
        }
        let of = |value: fn(&(u64, u64)) -> u64| {
            let more = value(&measured[1]).saturating_sub(value(&measured[0]));
            f64::from(u32::try_from(more).unwrap_or(u32::MAX)) / 100.0
        };
        println!("| flights to the server and back, a turn | {:.2} |", of(|(flights, _)| *flights));
        println!("| syncs of the server's log, a turn | {:.2} |", of(|(_, syncs)| *syncs));
        Ok(())
    }

    /// One worker to many, each commit delayed as by another machine.
    fn workers(&self) -> anyhow::Result<()> {
        let delay = self.options.commit_delay;
        let set = format!("ALTER SYSTEM SET commit_delay = {}", delay * 1_000);
        for sql in [set.as_str(), "ALTER SYSTEM SET commit_siblings = 0", "SELECT pg_reload_conf()"] {
            self.sql("postgres", sql)?;
        }
        let turns = (self.options.turns / 2).max(20).to_string();
        let counts: Vec<u32> = [1, 2, 4, 8, 16].into_iter().filter(|count| *count <= self.options.workers).collect();
        let mut rates: Vec<Vec<f64>> = counts.iter().map(|_| Vec::new()).collect();
        let mut cpus = rates.clone();
        for round in 1..=self.options.rounds {
            for (place, count) in counts.iter().enumerate() {
                let url = self.database(&format!("workers_{round}_{count}"))?;
                let folder = tempfile::tempdir()?;
                let begin = |number: u32| {
                    let (own, name) = (folder.path().join(number.to_string()), format!("w{number}"));
                    fs::create_dir(&own)?;
                    self.begin(&["calls-server", &url, &own.display().to_string(), &turns, "1", &name])
                };
                let workers: Vec<Child> = (0..*count).map(begin).collect::<anyhow::Result<_>>()?;
                let said: Vec<Said> = workers.into_iter().map(Said::of).collect::<anyhow::Result<_>>()?;
                let rate = said.iter().map(Said::steps_a_second).sum::<anyhow::Result<f64>>()?;
                let cpu = said.iter().map(|said| said.number("cpu_micros")).sum::<anyhow::Result<f64>>()?;
                let steps = said.iter().map(|said| said.number("steps")).sum::<anyhow::Result<f64>>()?;
                rates[place].push(rate);
                cpus[place].push(cpu / steps / 1_000.0);
                eprintln!("{count} worker(s), round {round}: {rate:.0} turns a second");
            }
        }
        for sql in ["ALTER SYSTEM RESET commit_delay", "ALTER SYSTEM RESET commit_siblings", "SELECT pg_reload_conf()"]
        {
            self.sql("postgres", sql)?;
        }
        let first = rates.first().cloned().map_or(0.0, median);
        for ((count, rate), cpu) in counts.iter().zip(rates).zip(cpus) {
            let rate = median(rate);
            println!(
                "| {count} worker(s), each commit {delay} ms longer | {rate:.1} turns a second, {:.2} of {count} × one; CPU {:.2} ms a turn |",
                rate / (first * f64::from(*count)),
                median(cpu)
            );
        }
        Ok(())
    }

    /// Claims of a queue of ten thousand runs of a hundred keys, beside finished runs, and beside a transaction that stays open.
    fn claims(&self) -> anyhow::Result<()> {
        let url = self.database("claims")?;
        let mut queued = self.begin(&["queued-server", &url])?;
        ensure!(queued.wait()?.success(), "no run could be queued");
        let copies = |from: u32, count: u32, status: &str| {
            format!(
                "SET session_replication_role = replica; SET search_path = ua; \
                 INSERT INTO runs OVERRIDING SYSTEM VALUE SELECT (jsonb_populate_record(r, jsonb_build_object('run_id', 'run_c' || n, 'root_run_id', 'run_c' || n, \
                 'seq', n, 'status', '{status}'))).* FROM runs r, generate_series({from}, {}) n WHERE r.run_id = 'run_template'",
                from + count - 1
            )
        };
        self.sql("claims", &copies(1_000, 10_000, "queued"))?;
        let entries = "SET search_path = ua; INSERT INTO run_queue SELECT (jsonb_populate_record(q, jsonb_build_object('run_id', 'run_c' || n, \
                       'seq', n, 'line', 1000 + n % 100, 'fair_key', 'k' || n % 100, 'concurrency_key', 'k' || n % 100, 'concurrency_limit', 4))).* \
                       FROM run_queue q, generate_series(1000, 10999) n WHERE q.run_id = 'run_template'; \
                       INSERT INTO queue_lines SELECT 1000 + n, 0, 'default', 'k' || n, 0 FROM generate_series(0, 99) n; ANALYZE";
        self.sql("claims", entries)?;
        let measure = |what: &str| -> anyhow::Result<()> {
            let said = self.said(&["claims-server", &url, "300"])?;
            let (median, p99) = (said.number("median_micros")? / 1_000.0, said.number("p99_micros")? / 1_000.0);
            println!("| a claim of 10,000 waiting runs of 100 keys{what} | {median:.1} ms, p99 {p99:.1} ms |");
            Ok(())
        };
        measure("")?;
        let finished = self.options.finished;
        let mut from = 100_000;
        while from < 100_000 + finished {
            let count = (100_000 + finished - from).min(100_000);
            self.sql("claims", &copies(from, count, "succeeded"))?;
            from += count;
        }
        self.sql("claims", "ANALYZE")?;
        measure(&format!(", beside {finished} finished ones"))?;
        // Whoever looks at the database for long keeps what was changed since from being cleaned away.
        let open = "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM ua.runs; SELECT pg_sleep(3600)";
        let mut long = self.server.program("psql");
        long.args(["-X", "-q", "-U", "ua", "-d", "claims", "-p", &SERVER.to_string(), "-c", open])
            .arg("-h")
            .arg(self.server.folder());
        let mut long = long.spawn().context("run psql")?;
        let measured = (1..=3)
            .try_for_each(|part| measure(&format!(", and a transaction that has been open for {} claims", 300 * part)));
        long.kill()?;
        long.wait()?;
        measured
    }

    /// How soon another worker has a run.
    fn takeover(&self) -> anyhow::Result<()> {
        let (mut told, mut killed) = (Vec::new(), Vec::new());
        for round in 1..=self.options.rounds {
            told.push(Takeover::new(self, &format!("told_{round}"))?.here(Signal::TERM)?);
            killed.push(Takeover::new(self, &format!("killed_{round}"))?.here(Signal::KILL)?);
            eprintln!("takeover, round {round}: {told:.3?} {killed:.3?}");
        }
        println!(
            "| another worker of the machine has the run, after SIGTERM | {:.2} s after it was given back |",
            median(told)
        );
        println!("| the same after SIGKILL | {:.2} s |", median(killed));
        // It takes a lease.
        let elsewhere = Takeover::new(self, "elsewhere")?.elsewhere()?;
        let after = elsewhere.map_or_else(
            || "not measured: the program of `--ua` has no kill points".to_owned(),
            |seconds| format!("{seconds:.1} s, the lease being 30 s"),
        );
        println!("| a worker of another machine has a run that was claimed and not begun, after SIGKILL | {after} |");
        Ok(())
    }

    /// Steps of others on this server, in the same minutes.
    fn peers(&self) -> anyhow::Result<()> {
        fs::create_dir_all(&self.options.peers)?;
        let folder = self.options.peers.canonicalize()?;
        let mut peers = Vec::new();
        match durare(&folder) {
            Ok(program) => peers.push(("durare 0.5.0", vec![program])),
            Err(why) => ua_testkit::skipped(&format!("durare could not be installed: {why:#}")),
        }
        match dbos(&folder) {
            Ok(program) => peers.push(("DBOS 3.4.0", program)),
            Err(why) => ua_testkit::skipped(&format!("DBOS could not be installed: {why:#}")),
        }
        let steps = self.options.turns.to_string();
        let mut floors = Vec::new();
        let mut taken: Vec<Vec<f64>> = peers.iter().map(|_| Vec::new()).collect();
        for round in 1..=self.options.rounds {
            let url = self.database(&format!("floor_{round}"))?;
            floors.push(1_000_000.0 / self.said(&["floor-server", &url, &steps, "1"])?.steps_a_second()?);
            for (number, (name, program)) in peers.iter().enumerate() {
                let database = format!("peer_{number}_{round}");
                self.server.create(&database, "");
                let proxy = Proxy::before(self.server.socket(SERVER))?;
                let output =
                    Command::new(&program[0]).args(&program[1..]).args([&proxy.url(&database), &steps]).output()?;
                ensure!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
                let text = String::from_utf8_lossy(&output.stdout);
                let micros: f64 = text
                    .lines()
                    .last()
                    .and_then(|line| line.trim().parse().ok())
                    .with_context(|| format!("{name} said {text}"))?;
                taken[number].push(micros / f64::from(self.options.turns));
            }
        }
        let floor = median(floors);
        for ((name, _), taken) in peers.iter().zip(taken) {
            let step = median(taken);
            println!(
                "| {name}: a step, through the proxy | {:.2} ms, {:.1} steps of the floor |",
                step / 1_000.0,
                step / floor
            );
        }
        Ok(())
    }
}

/// Two workers and one run.
struct Takeover<'a> {
    bench: &'a Bench<'a>,
    folder: tempfile::TempDir,
    url: String,
}

/// A worker, and what it wrote.
struct Worker {
    child: Child,
    log: PathBuf,
}

impl Drop for Worker {
    fn drop(&mut self) {
        // Both fail when it has ended and was waited for.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

impl Worker {
    /// Waits until it has written `words`.
    fn until(&self, words: &str) -> anyhow::Result<Instant> {
        let begun = Instant::now();
        loop {
            if fs::read_to_string(&self.log)?.contains(words) {
                return Ok(Instant::now());
            }
            ensure!(
                begun.elapsed() < Duration::from_mins(2),
                "a worker never said {words:?}: {}",
                fs::read_to_string(&self.log)?
            );
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

impl<'a> Takeover<'a> {
    fn new(bench: &'a Bench<'a>, name: &str) -> anyhow::Result<Self> {
        let folder = tempfile::tempdir()?;
        let url = bench.database(name)?;
        let takeover = Self { bench, folder, url };
        fs::create_dir_all(takeover.path("home/.config"))?;
        let forum = json!({
            "command": std::env::current_exe()?,
            "args": ["opaque-server", "--answer-after", "500", "--log", takeover.path("comments.log")],
        });
        fs::write(takeover.path("servers.json"), json!({"mcpServers": {"forum": forum}}).to_string())?;
        let call = |number: u32| json!({"tools": [{"name": format!("mcp__forum__{OPAQUE_TOOL}"), "input": {"text": format!("{number}")}}]});
        fs::write(
            takeover.path("script.json"),
            json!({"turns": [call(1), call(2), call(3), {"text": "Done."}]}).to_string(),
        )?;
        let job = json!({"objective": "Post.", "model": {"provider": "scripted", "script": "script.json"}, "tools": {"builtin": false}});
        fs::write(takeover.path("job.json"), job.to_string())?;
        let submitted =
            takeover.command(&["submit", "job.json", "--run-id", "r", "--mcp-config", "servers.json"]).output()?;
        ensure!(submitted.status.success(), "{}", String::from_utf8_lossy(&submitted.stderr));
        Ok(takeover)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(&self.bench.ua);
        command.args(words).arg("--root").arg(self.path("root")).current_dir(self.folder.path()).env_clear();
        command.env("PATH", "/usr/local/bin:/usr/bin:/bin").env("HOME", self.path("home"));
        command
            .env("UA_DATABASE_URL", &self.url)
            .env("E2E_ENDS_WITH", std::process::id().to_string())
            .stdin(Stdio::null());
        command
    }

    fn worker(&self, name: &str, variables: &[(&str, &str)]) -> anyhow::Result<Worker> {
        let log = self.path(&format!("{name}.log"));
        let file = fs::File::create(&log)?;
        let mut command = self.command(&["worker", "--name", name]);
        let child = command.envs(variables.iter().copied()).stdout(Stdio::null()).stderr(file).spawn()?;
        Ok(Worker { child, log })
    }

    /// Two workers of one machine: seconds from the death of the first, or from when it gave the run back, until the second has it.
    fn here(&self, signal: Signal) -> anyhow::Result<f64> {
        let first = self.worker("first", &[])?;
        first.until("run r: taken")?;
        let second = self.worker("second", &[])?;
        second.until("takes runs")?;
        let seen = Instant::now();
        while self.comments() == 0 {
            ensure!(seen.elapsed() < Duration::from_mins(1), "nothing was posted");
            std::thread::sleep(Duration::from_millis(1));
        }
        let pid = Pid::from_raw(i32::try_from(first.child.id())?).context("a child has a process id")?;
        kill_process(pid, signal)?;
        let gone = if signal == Signal::TERM { first.until("run r: stopped")? } else { Instant::now() };
        Ok(second.until("run r: taken")?.duration_since(gone).as_secs_f64())
    }

    /// Two workers of two machines: seconds from the death of the first, which had begun nothing, until the second has its run.
    fn elsewhere(&self) -> anyhow::Result<Option<f64>> {
        let mut first = self.worker("first", &[("UA_KILL_AT", "before:store.acquire_run")])?;
        let status = loop {
            if let Some(status) = first.child.try_wait()? {
                break status;
            }
            if self.comments() > 0 {
                return Ok(None);
            }
            std::thread::sleep(Duration::from_millis(1));
        };
        let gone = Instant::now();
        if status.success() || status.code().is_some() {
            bail!("the first worker was not killed ({status}): {}", fs::read_to_string(&first.log)?);
        }
        // Another machine has the same paths and a root of its own.
        fs::rename(self.path("root"), self.path("root.first"))?;
        fs::create_dir(self.path("root"))?;
        let second = self.worker("second", &[])?;
        Ok(Some(second.until("run r: taken")?.duration_since(gone).as_secs_f64()))
    }

    fn comments(&self) -> usize {
        fs::read_to_string(self.path("comments.log")).unwrap_or_default().lines().count()
    }
}

/// Built beside the workspace, from a manifest of its own.
fn durare(folder: &Path) -> anyhow::Result<PathBuf> {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("peers/durare-server");
    let sources = folder.join("durare-server");
    fs::create_dir_all(sources.join("src"))?;
    for file in ["Cargo.toml", "src/main.rs"] {
        fs::copy(manifest.join(file), sources.join(file)).with_context(|| format!("copy {file}"))?;
    }
    let mut command = Command::new(option_env!("CARGO").unwrap_or("cargo"));
    command.args(["build", "--release", "--quiet", "--target-dir"]).arg(folder.join("target")).current_dir(&sources);
    ensure!(command.status()?.success(), "it does not build");
    Ok(folder.join("target/release/durare-server-steps"))
}

/// Installed into an environment of its own.
fn dbos(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let environment = folder.join("python-server");
    let python = environment.join("bin/python");
    if !python.exists() {
        let made = Command::new("python3").args(["-m", "venv"]).arg(&environment).status()?;
        ensure!(made.success(), "`python3 -m venv` ended with {made}");
    }
    let installed = Command::new(&python).args(["-m", "pip", "install", "--quiet"]).args(PEERS).status()?;
    ensure!(installed.success(), "pip ended with {installed}");
    Ok(vec![python, Path::new(env!("CARGO_MANIFEST_DIR")).join("peers/dbos_server_steps.py")])
}
