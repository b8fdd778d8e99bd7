//! What the gateway adds to a call: the same calls of the built-in tool server directly and through bridge and broker, in turns, beside the
//! floor of two synced commits.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

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

/// A folder with a gateway of its own.
struct Place<'a> {
    ua: &'a Path,
    folder: tempfile::TempDir,
}

impl Place<'_> {
    fn tool_server(&self) -> Vec<std::ffi::OsString> {
        let (work, outbox) = (self.folder.path().join("work"), self.folder.path().join("outbox"));
        vec![self.ua.into(), "toolserver".into(), "--workspace".into(), work.into(), "--outbox".into(), outbox.into()]
    }

    fn direct(&self) -> anyhow::Result<Client> {
        let words = self.tool_server();
        Client::start(Command::new(&words[0]).args(&words[1..]))
    }

    fn through(&self) -> anyhow::Result<Client> {
        let mut command = Command::new(self.ua);
        command.args(["gateway", "--root"]).arg(self.folder.path().join("gateway"));
        command.args(["--name", "work", "--project"]).arg(self.folder.path()).arg("--").args(self.tool_server());
        Client::start(&mut command)
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
    let ups = (0..20).map(|_| {
        let begun = Instant::now();
        let client = place.through()?;
        let took = begun.elapsed().as_secs_f64() * 1000.0;
        drop(client);
        Ok(took)
    });
    let up = median(ups.collect::<anyhow::Result<Vec<f64>>>()?);
    let floor =
        floor_of(&program, &place.folder.path().join("floor").display().to_string(), &options.calls.to_string())?;

    println!("| median of {} calls, in turns | directly | through the gateway | added |", options.calls);
    println!("|---|---|---|---|");
    let broker = broker_pid(&place)?;
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
    println!("| a bridge until the tool server behind it has answered the handshake | {up:.1} ms |");
    println!("| memory of a bridge | {} kB |", resident(through.pid())?);
    println!("| memory of the broker | {} kB |", resident(broker)?);
    let (one, one_busy) = at_once(&place, 1, options.calls)?;
    let (all, all_busy) = at_once(&place, options.clients, options.calls.div_ceil(options.clients).max(8))?;
    println!("| effects a second, one client | {one:.0}; {one_busy:.0} % of all cores busy |");
    println!(
        "| effects a second, {} clients at once | {all:.0}, {:.1} × one; {all_busy:.0} % of all cores busy |",
        options.clients,
        all / one
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

/// Effects a second of so many clients, each with a session and a tool server of its own, and how much of all cores' time was used meanwhile, in
/// percent.
fn at_once(place: &Place<'_>, clients: u32, calls: u32) -> anyhow::Result<(f64, f64)> {
    let mut ready: Vec<Client> = (0..clients).map(|_| place.through()).collect::<anyhow::Result<_>>()?;
    for (number, client) in ready.iter_mut().enumerate() {
        client.call("send_email", &arguments("send_email", &format!("first-{clients}-{number}"), 0))?;
    }
    let before = cores()?;
    let begun = Instant::now();
    let outcomes: Vec<anyhow::Result<()>> = std::thread::scope(|scope| {
        let work = |(number, mut client): (usize, Client)| {
            scope.spawn(move || {
                for call in 0..calls {
                    client.call("send_email", &arguments("send_email", &format!("one-{clients}-{number}"), call))?;
                }
                Ok(())
            })
        };
        let threads: Vec<_> = ready.into_iter().enumerate().map(work).collect();
        let ended = |thread: std::thread::ScopedJoinHandle<'_, anyhow::Result<()>>| {
            thread.join().unwrap_or_else(|_| Err(anyhow::anyhow!("a client panicked")))
        };
        threads.into_iter().map(ended).collect()
    });
    let took = begun.elapsed().as_secs_f64();
    let after = cores()?;
    outcomes.into_iter().collect::<anyhow::Result<Vec<()>>>()?;
    let (idle, all) = (after.0 - before.0, after.1 - before.1);
    let busy = 100.0 * (1.0 - number_of(idle) / number_of(all.max(1)));
    Ok((f64::from(clients) * f64::from(calls) / took, busy))
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
