//! What the gateway adds to a call: the same calls of the built-in tool server directly and through bridge and broker, in turns, beside the
//! floor of two synced commits.
//!
//! What a call costs, what a client costs that comes, and what one costs that goes are three things: none of them is counted as another.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};

use super::calls::{built, floor_of, median, number_of};
use super::client::Client;

/// How to run it.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// The program that is measured, built for release, with `ua-bridge` beside it
    #[arg(long, value_name = "PATH")]
    ua: PathBuf,
    /// How many calls of each kind are measured
    #[arg(long, default_value_t = 500, value_parser = clap::value_parser!(u32).range(20..))]
    calls: u32,
    /// How many clients call at once in the last part
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=500))]
    clients: u32,
    /// The program that measures the floor (`call_bench`), if it was built before; it is built for release when missing
    #[arg(long, value_name = "PROGRAM")]
    program: Option<PathBuf>,
}

/// The fewest calls of each of several clients: so many that what is under way when the first of them begins and the last one ends is little.
const LEAST_EACH: u32 = 32;
/// How long tool servers may take to end behind their clients.
const ENDS_WITHIN: Duration = Duration::from_secs(30);
/// How often it is looked whether they have.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// A folder with a gateway of its own.
struct Place<'a> {
    ua: &'a Path,
    folder: tempfile::TempDir,
}

impl Place<'_> {
    fn tool_server(&self, outbox: &str) -> Vec<std::ffi::OsString> {
        let (work, outbox) = (self.folder.path().join("work"), self.folder.path().join(outbox));
        vec![self.ua.into(), "toolserver".into(), "--workspace".into(), work.into(), "--outbox".into(), outbox.into()]
    }

    fn direct(&self) -> anyhow::Result<Client> {
        let words = self.tool_server("outbox");
        Client::start(Command::new(&words[0]).args(&words[1..]))
    }

    fn through(&self) -> anyhow::Result<Client> {
        self.through_with("outbox")
    }

    /// With an outbox of its own: of one that several tool servers share, one writes at a time, however many clients there are.
    fn through_with(&self, outbox: &str) -> anyhow::Result<Client> {
        Client::start(&mut self.entry(outbox))
    }

    /// What stands in a client's configuration.
    fn entry(&self, outbox: &str) -> Command {
        let mut command = Command::new(self.ua);
        command.args(["gateway", "--root"]).arg(self.folder.path().join("gateway"));
        command.args(["--name", "work", "--project"]).arg(self.folder.path()).arg("--").args(self.tool_server(outbox));
        command
    }

    fn broker(&self, word: &str) -> anyhow::Result<Value> {
        let mut command = Command::new(self.ua);
        command.args(["gateway", word, "--root"]).arg(self.folder.path().join("gateway"));
        if word == "status" {
            command.arg("--json");
        }
        let output = command.stderr(Stdio::null()).output()?;
        ensure!(output.status.success(), "`ua gateway {word}` ended with {}", output.status);
        Ok(serde_json::from_slice(&output.stdout).unwrap_or_default())
    }
}

pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    let ua = options.ua.canonicalize().with_context(|| format!("find {}", options.ua.display()))?;
    ensure!(ua.with_file_name("ua-bridge").is_file(), "there is no `ua-bridge` beside {}", ua.display());
    let program = options.program.clone().map_or_else(built, Ok)?;
    let place = Place { ua: &ua, folder: tempfile::tempdir()? };
    std::fs::create_dir(place.folder.path().join("work"))?;
    std::fs::write(place.folder.path().join("work/page.txt"), "a page\n")?;

    // The broker starts with the first bridge; those after it only carry lines.
    let mut through = place.through()?;
    let mut direct = place.direct()?;
    let broker = broker_pid(&place)?;
    let ups = (0..20).map(|_| Up::measure(&place)).collect::<anyhow::Result<Vec<Up>>>()?;
    let up = |of: fn(&Up) -> f64| median(ups.iter().map(of).collect());
    let floor =
        floor_of(&program, &place.folder.path().join("floor").display().to_string(), &options.calls.to_string())?;

    println!("| median of {} calls, in turns | directly | through the gateway | added |", options.calls);
    println!("|---|---|---|---|");
    for (what, tool) in
        [("a read (`read_local_file`)", "read_local_file"), ("an effect (`send_email` to a folder)", "send_email")]
    {
        let (mut without, mut with) = (Vec::new(), Vec::new());
        let (mut cpu, mut before) = (0.0, 0.0);
        for number in 0..options.calls + 10 {
            if number == 10 {
                before = cpu_of(broker)? + cpu_of(through.pid())?;
            }
            let one = direct.call(tool, &arguments(tool, "direct", number))?;
            let other = through.call(tool, &arguments(tool, "through", number))?;
            if number >= 10 {
                without.push(one);
                with.push(other);
            }
            cpu = cpu_of(broker)? + cpu_of(through.pid())? - before;
        }
        let (without, with) = (median(without), median(with));
        println!(
            "| {what} | {without:.2} ms | {with:.2} ms | {:.2} ms; {:.0} µs of CPU of broker and bridge a call |",
            with - without,
            cpu * 1_000.0 / f64::from(options.calls)
        );
    }
    println!();
    println!("| what | |");
    println!("|---|---|");
    println!("| two synced commits of one row, the floor of an effect | {:.2} ms |", floor / 1_000.0);
    println!(
        "| until a bridge is up: its client's `ping` is answered, which takes a broker and no tool server | {:.1} ms |",
        up(|up| up.reached)
    );
    println!(
        "| until the handshake is answered: by the tool server, started directly | {:.1} ms |",
        up(|up| up.direct)
    );
    println!("| by the same through a bridge, whose broker starts it | {:.1} ms |", up(|up| up.through));
    println!("| of these, what is not the tool server's own | {:.1} ms |", up(|up| up.through - up.direct));
    println!(
        "| `ua --version`: what `ua` takes to become a bridge, or a shim, is a little more | {:.1} ms |",
        up(|up| up.program)
    );
    println!("| processor time until then: of the tool server, started directly | {:.1} ms |", up(|up| up.direct_cpu));
    println!(
        "| of the bridge, of the shim and the tool server below it, and of the broker | {:.1} ms, {:.1} ms, {:.1} ms |",
        up(|up| up.bridge_cpu),
        up(|up| up.server_cpu),
        up(|up| up.broker_cpu)
    );
    println!("| memory of a bridge | {} kB |", resident(through.pid())?);
    println!("| memory of the broker | {} kB |", resident(broker)?);
    let one = at_once(&place, broker, 1, options.calls)?;
    let each = options.calls.div_ceil(options.clients).max(LEAST_EACH);
    let all = at_once(&place, broker, options.clients, each)?;
    println!("| effects a second, one client | {:.0}; {:.0} % of all cores busy |", one.a_second, one.busy);
    println!(
        "| effects a second, {} clients at once | {:.0}, {:.1} × one; {:.0} % of all cores busy |",
        options.clients,
        all.a_second,
        all.a_second / one.a_second,
        all.busy
    );
    for (who, of) in [("one client", &one), ("so many clients", &all)] {
        println!(
            "| processor time of an effect, {who}: broker, bridge, tool server | {:.0} µs, {:.0} µs, {:.0} µs |",
            of.broker, of.bridges, of.servers
        );
    }
    println!(
        "| {} clients that go at once: until the last tool server is gone; processor time of the broker for each | {:.0} ms; {:.1} ms |",
        options.clients,
        all.gone.as_secs_f64() * 1000.0,
        all.end
    );
    drop((through, direct));
    place.broker("stop")?;
    Ok(())
}

/// Each call is another one: an equal one would have the receipt of the first.
fn arguments(tool: &str, who: &str, number: u32) -> Value {
    if tool == "read_local_file" {
        json!({"path": "page.txt"})
    } else {
        json!({"to": [format!("{who}-{number}@example.test")], "subject": format!("{who} {number}"), "body": "x"})
    }
}

/// What it takes until a client has its handshake answered, in milliseconds.
struct Up {
    program: f64,
    /// The same until the bridge itself is up, and the broker answers.
    reached: f64,
    direct: f64,
    through: f64,
    direct_cpu: f64,
    bridge_cpu: f64,
    server_cpu: f64,
    broker_cpu: f64,
}

impl Up {
    fn measure(place: &Place<'_>) -> anyhow::Result<Self> {
        let broker = broker_pid(place)?;
        let begun = Instant::now();
        let version = Command::new(place.ua).arg("--version").stdout(Stdio::null()).status()?;
        let program = millis(begun);
        ensure!(version.success(), "`ua --version` ended with {version}");
        let begun = Instant::now();
        let client = Client::reach(&mut place.entry("outbox"))?;
        let reached = millis(begun);
        drop(client);
        let begun = Instant::now();
        let client = place.direct()?;
        let direct = millis(begun);
        let direct_cpu = cpu_of(client.pid())?;
        drop(client);
        let (others, before) = (below(broker)?, cpu_of(broker)?);
        let begun = Instant::now();
        let client = place.through()?;
        let through = millis(begun);
        let (bridge_cpu, broker_cpu) = (cpu_of(client.pid())?, cpu_of(broker)? - before);
        let own: Vec<u32> = below(broker)?.into_iter().filter(|process| !others.contains(process)).collect();
        let server_cpu = cpu_of_all(&own)?;
        drop(client);
        wait_for_the_end_of(&own)?;
        Ok(Self { program, reached, direct, through, direct_cpu, bridge_cpu, server_cpu, broker_cpu })
    }
}

fn millis(since: Instant) -> f64 {
    since.elapsed().as_secs_f64() * 1000.0
}

/// What several clients are, that make effects at once.
struct AtOnce {
    /// How many in a second.
    a_second: f64,
    /// How much of all cores' time was used meanwhile, in percent.
    busy: f64,
    /// Processor time of an effect, in microseconds: of the broker, of its client's bridge, of its tool server with the shim.
    broker: f64,
    bridges: f64,
    servers: f64,
    /// How long it takes until all tool servers are gone when the clients go.
    gone: Duration,
    /// Processor time of the broker for each client that goes, in milliseconds.
    end: f64,
}

/// So many clients, each with a session and a tool server of its own. None of them comes or goes while it is measured what their calls take.
fn at_once(place: &Place<'_>, broker: u32, clients: u32, calls: u32) -> anyhow::Result<AtOnce> {
    let others = below(broker)?;
    let start = |number: u32| place.through_with(&format!("outbox-{clients}-{number}"));
    let mut ready: Vec<Client> = (0..clients).map(start).collect::<anyhow::Result<_>>()?;
    for (number, client) in ready.iter_mut().enumerate() {
        client.call("send_email", &arguments("send_email", &format!("first-{clients}-{number}"), 0))?;
    }
    let bridges: Vec<u32> = ready.iter().map(Client::pid).collect();
    let servers: Vec<u32> = below(broker)?.into_iter().filter(|process| !others.contains(process)).collect();
    let used = || Ok::<_, anyhow::Error>((cpu_of(broker)?, cpu_of_all(&bridges)?, cpu_of_all(&servers)?));
    let (before, used_before) = (cores()?, used()?);
    let begun = Instant::now();
    let outcomes: Vec<anyhow::Result<()>> = std::thread::scope(|scope| {
        let mut threads = Vec::new();
        for (number, client) in ready.iter_mut().enumerate() {
            let who = format!("one-{clients}-{number}");
            threads.push(scope.spawn(move || {
                (0..calls)
                    .try_for_each(|call| client.call("send_email", &arguments("send_email", &who, call)).map(drop))
            }));
        }
        let ended = |thread: std::thread::ScopedJoinHandle<'_, anyhow::Result<()>>| {
            thread.join().unwrap_or_else(|_| Err(anyhow::anyhow!("a client panicked")))
        };
        threads.into_iter().map(ended).collect()
    });
    let took = begun.elapsed().as_secs_f64();
    let (after, used_after) = (cores()?, used()?);
    outcomes.into_iter().collect::<anyhow::Result<Vec<()>>>()?;

    let (begun, of_broker) = (Instant::now(), cpu_of(broker)?);
    drop(ready);
    wait_for_the_end_of(&servers)?;
    let (gone, end) = (begun.elapsed(), (cpu_of(broker)? - of_broker) / f64::from(clients));
    let (idle, all) = (after.0 - before.0, after.1 - before.1);
    let count = f64::from(clients) * f64::from(calls);
    let of_each = |after: f64, before: f64| (after - before) * 1000.0 / count;
    Ok(AtOnce {
        a_second: count / took,
        busy: 100.0 * (1.0 - number_of(idle) / number_of(all.max(1))),
        broker: of_each(used_after.0, used_before.0),
        bridges: of_each(used_after.1, used_before.1),
        servers: of_each(used_after.2, used_before.2),
        gone,
        end,
    })
}

/// The processes below another one.
fn below(process: u32) -> anyhow::Result<Vec<u32>> {
    let mut children: HashMap<u32, Vec<u32>> = HashMap::new();
    for entry in std::fs::read_dir("/proc")?.flatten() {
        let Some(number) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        let stat = std::fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        // The name stands in parentheses and may hold anything; behind the last one come the state and the parent.
        let parent = stat.rsplit_once(')').and_then(|(_, rest)| rest.split_whitespace().nth(1)?.parse().ok());
        if let Some(parent) = parent {
            children.entry(parent).or_default().push(number);
        }
    }
    let (mut found, mut next) = (Vec::new(), vec![process]);
    while let Some(parent) = next.pop() {
        let own = children.remove(&parent).unwrap_or_default();
        next.extend(&own);
        found.extend(own);
    }
    Ok(found)
}

fn wait_for_the_end_of(processes: &[u32]) -> anyhow::Result<()> {
    let begun = Instant::now();
    while processes.iter().any(|process| Path::new("/proc").join(process.to_string()).exists()) {
        ensure!(begun.elapsed() < ENDS_WITHIN, "a tool server does not end behind its client");
        std::thread::sleep(LOOK_EVERY);
    }
    Ok(())
}

/// Of all cores, how long they were idle since the machine started, and how long it is running: in ticks, those of each core added up.
fn cores() -> anyhow::Result<(usize, usize)> {
    let text = std::fs::read_to_string("/proc/stat")?;
    let line = text.lines().next().and_then(|line| line.strip_prefix("cpu ")).context("no line of all cores")?;
    // The first eight: what guests took is among what was used already.
    let ticks: Vec<usize> = line.split_whitespace().take(8).map(str::parse).collect::<Result<_, _>>()?;
    let idle = ticks.iter().skip(3).take(2).sum();
    Ok((idle, ticks.iter().sum()))
}

fn broker_pid(place: &Place<'_>) -> anyhow::Result<u32> {
    let status = place.broker("status")?;
    let pid = status["broker"]["pid"].as_u64().context("no broker is running")?;
    Ok(u32::try_from(pid)?)
}

/// Kilobytes that a process holds.
fn resident(pid: u32) -> anyhow::Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS")?;
    Ok(line.trim().trim_end_matches(" kB").trim().parse()?)
}

/// The same of several.
fn cpu_of_all(processes: &[u32]) -> anyhow::Result<f64> {
    processes.iter().map(|process| cpu_of(*process)).sum()
}

/// Milliseconds of CPU that a process took.
fn cpu_of(pid: u32) -> anyhow::Result<f64> {
    // Nanoseconds on a core, of each of its threads.
    let mut nanos = 0;
    for thread in std::fs::read_dir(format!("/proc/{pid}/task"))? {
        let text = std::fs::read_to_string(thread?.path().join("schedstat")).unwrap_or_default();
        nanos += text.split_whitespace().next().and_then(|word| word.parse::<usize>().ok()).unwrap_or_default();
    }
    Ok(number_of(nanos / 1_000) / 1_000.0)
}
