//! Power cuts: one run is traced, and at every sync and every effect the disk is rebuilt as a cut would have left it; each of
//! these disks is resumed, and the effects are counted from outside.
//!
//! The world's record always survives. The database keeps what was synced; what was not is lost, or arrives in part. An
//! intent that was only written and not synced would be forgotten while its effect is in the world, and come out as a
//! duplicate: `--broken-rule intent-relaxed` ignores exactly those syncs, and must be seen.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use anyhow::{bail, ensure};

use super::comments::{Bench, COMMENTS, Forum};
use super::disk::{self, Disk, Event, Unsynced};
use super::{can_trace, progress};

/// How to run it.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Seed of what arrives of the writes that were not synced
    #[arg(long, default_value_t = 20_261_121)]
    seed: u64,
    /// How many times each disk is rebuilt with a random part of the unsynced writes, besides once without
    #[arg(long, default_value_t = 1)]
    variants: u32,
    /// Break a rule on purpose and expect duplicates: intent-relaxed
    #[arg(long, value_name = "RULE")]
    broken_rule: Option<String>,
}

pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    let breaks = match options.broken_rule.as_deref() {
        None => false,
        Some("intent-relaxed") => true,
        Some(other) => bail!("there is no rule `{other}`; `intent-relaxed` can be broken"),
    };
    if !can_trace() {
        return Ok(());
    }
    let started = Instant::now();
    let bench = Bench::new()?;
    let world = Forum::new()?;
    let events = trace(&bench, &world)?;
    let cuts = cuts(&events, &world, breaks);
    ensure!(cuts.len() > 3 * COMMENTS.len(), "only {} cuts were found: nothing was synced", cuts.len());

    let (mut disks, mut duplicates, mut wrong, mut asked, mut empty) = (0_u32, 0, 0, 0, 0);
    for (n, cut) in cuts.iter().enumerate() {
        progress(&format!("power cut {} of {}", n + 1, cuts.len()));
        let seeds = (0..u64::from(options.variants)).map(|v| Unsynced::Some(options.seed ^ ((n as u64) << 8) ^ v));
        for unsynced in std::iter::once(Unsynced::Lost).chain(seeds) {
            let model = bench.model()?;
            world.empty_root(Some(&world.path("traced")))?;
            cut.disk.cut(&world.root(), unsynced)?;
            fs::write(world.comments(), &cut.comments)?;
            // A disk without a run yet beside a workspace is refused, which is right as long as nothing was sent.
            let nothing_sent = cut.comments.is_empty();
            let ended = bench.finish(&world, &model, |_| nothing_sent)?;
            disks += 1;
            asked += u32::from(ended.asked > 0);
            duplicates += u32::from(ended.has_duplicate());
            if ended.code == Some(74) && nothing_sent && ended.counts.iter().all(|count| *count == 0) {
                empty += 1;
            } else if !ended.is_right() {
                wrong += 1;
                if !breaks {
                    eprintln!("\ncut {n}, {unsynced:?}: {:?}, exit {:?}\n{}", ended.counts, ended.code, world.log());
                }
            }
        }
    }
    eprintln!();
    println!(
        "{disks} disks after {} power cuts of one run, seed {}, {:.0} s: {duplicates} with a duplicate, {wrong} not exactly once, \
         {asked} asked a person, {empty} held no run yet and were refused",
        cuts.len(),
        options.seed,
        started.elapsed().as_secs_f64(),
    );
    if breaks {
        ensure!(duplicates > 0, "the broken rule `intent-relaxed` went unnoticed");
        println!("the broken rule `intent-relaxed` was seen, as it must be");
        return Ok(());
    }
    ensure!(wrong == 0, "the promise does not hold");
    Ok(())
}

/// Runs the job once under the eyes of strace, and keeps its root as `traced`.
fn trace(bench: &Bench, world: &Forum) -> anyhow::Result<Vec<Event>> {
    let file = world.path("trace.txt");
    let mut strace = Command::new("strace");
    strace.args(["-f", "-xx", "-y", "-s", "10000000", "-o"]).arg(&file);
    strace.args(["-e", "trace=write,writev,pwrite64,pwritev,pwritev2,ftruncate,fsync,fdatasync,unlink,unlinkat"]);
    let status = bench.live(world, &bench.model()?, Some(strace))?;
    let is_right = status.success() && world.counts().iter().all(|count| *count == 1);
    ensure!(is_right, "the job does not work even without a cut: {:?}\n{}", world.counts(), world.log());
    let events = disk::parse(&fs::read_to_string(&file)?, &world.folder().canonicalize()?)?;
    fs::remove_file(file)?;
    fs::rename(world.root(), world.path("traced"))?;
    Ok(events)
}

/// A moment at which the power is cut.
struct Cut {
    disk: Disk,
    /// What the world had seen by then.
    comments: Vec<u8>,
}

/// The disks after each sync and each effect. With `breaks`, the syncs that an effect directly follows are ignored.
fn cuts(events: &[Event], world: &Forum, breaks: bool) -> Vec<Cut> {
    let (root, comments) = (world.root(), world.comments());
    let is_effect = |event: &Event| matches!(event, Event::Write { path, .. } if *path == comments);
    let is_sync = |event: &Event| matches!(event, Event::Sync { path } if is_of_the_database(path, &root));
    let (mut disk, mut seen, mut cuts) = (Disk::default(), Vec::new(), Vec::new());
    for (n, event) in events.iter().enumerate() {
        if let Event::Write { bytes, .. } = event
            && is_effect(event)
        {
            seen.extend_from_slice(bytes);
        } else if is_of_the_database(event.path(), &root) {
            let next = events[n + 1..].iter().find(|event| is_effect(event) || is_sync(event));
            if breaks && is_sync(event) && next.is_some_and(is_effect) {
                continue;
            }
            disk.apply(event);
        }
        if is_effect(event) || is_sync(event) {
            cuts.push(Cut { disk: disk.clone(), comments: seen.clone() });
        }
    }
    cuts
}

/// The shared memory of the log is not on disk.
fn is_of_the_database(path: &Path, root: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let is_database = name.starts_with("runtime_state.db") && !name.ends_with("-shm") && !name.ends_with(".lock");
    path.parent() == Some(root) && (is_database || name == "effects.log")
}
