//! The research job on a documentation tree that people wrote: some hundred pages, the program killed while it crawls them.
//!
//! Context Storage & Durability §5 and Durable Jobs v1 spec §11. The site counts what it is asked for. A page whose copy was stored when
//! the program died must never be asked for again; only those that were on their way may be. What the job sends it sends once.

mod job;
mod tree;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use ua_testkit::{SiteConfig, serve_site, ua_program};

use self::tree::Tree;
use crate::random::Random;

/// How many pages are on their way, or come and not stored yet, at once.
const ON_THEIR_WAY: usize = 8;
const PATIENCE: Duration = Duration::from_mins(10);
const GLANCE: Duration = Duration::from_millis(2);
const RUN: &str = "tree";

/// How to run it.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// The folder of HTML pages; a documentation tree that is installed here when left out, else our fixture
    #[arg(long, value_name = "DIR")]
    tree: Option<PathBuf>,
    /// The most pages to crawl
    #[arg(long, default_value_t = 300)]
    pages: usize,
    /// How often the program is killed during the crawl
    #[arg(long, default_value_t = 4)]
    kills: usize,
    /// Seed of the moments
    #[arg(long, default_value_t = 20_261_121)]
    seed: u64,
    /// Forget the stored copies before each resume, and expect that pages are fetched twice: shows that the count sees it
    #[arg(long)]
    forget_copies: bool,
}

pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    let tree = Tree::find(options.tree.as_deref(), options.pages.clamp(1, 1_000))?;
    if tree.is_fixture {
        println!(
            "No documentation tree is installed here (apt-get install sqlite3-doc, or rustup component add rust-docs)."
        );
        println!("The fixture site is used instead.");
    }
    println!("tree: {} ({} pages)", tree.folder.display(), tree.pages.len());
    let world = SiteAndModel::new(&tree)?;
    let started = Instant::now();
    let mut stored_before = Stored::new();
    for at in moments(options, tree.pages.len()) {
        let status = world.live(Some(at))?;
        if status.success() {
            bail!("the job ended before page {at} was asked for; there was nothing to kill");
        }
        // First what is stored, then how often it was asked for: a stored page is not asked for any more.
        let stored = world.stored()?;
        let asked = world.asked()?;
        println!("killed when {} pages were asked for; {} are stored", asked.len(), stored.len());
        let repeated = repeated(&asked, &stored_before);
        if !options.forget_copies {
            ensure!(repeated.is_empty(), "fetched again although they were stored: {repeated:?}");
        }
        let counts = counts(&asked);
        for page in stored {
            let count = counts.get(page.as_str()).copied().unwrap_or(0);
            stored_before.entry(page).or_insert(count);
        }
        if options.forget_copies {
            world.forget()?;
        }
    }
    let status = world.live(None)?;
    ensure!(status.success(), "the job did not succeed ({status}):\n{}", world.log());
    world.conclude(&tree, options, &stored_before, started.elapsed())
}

/// After how many pages the program is killed: evenly over the crawl, moved by chance.
fn moments(options: &Options, pages: usize) -> Vec<usize> {
    let mut random = Random(options.seed);
    let part = pages / (options.kills + 1);
    let moved = |n: usize| n * part + usize::try_from(random.below(part.max(1) as u64)).unwrap_or(0) / 2;
    let mut moments: Vec<usize> = (1..=options.kills).map(moved).filter(|at| *at > 0).collect();
    moments.dedup();
    moments
}

/// How often each page had been asked for when its copy was first seen.
type Stored = BTreeMap<String, usize>;

/// The pages that were asked for again after they had been stored.
fn repeated<'a>(asked: &'a [String], stored: &Stored) -> Vec<&'a str> {
    let was_again = |(page, count): &(&str, usize)| stored.get(*page).is_some_and(|then| count > then);
    counts(asked).into_iter().filter(was_again).map(|(page, _)| page).collect()
}

fn counts(asked: &[String]) -> BTreeMap<&str, usize> {
    let mut counts = BTreeMap::new();
    for page in asked {
        *counts.entry(page.as_str()).or_default() += 1;
    }
    counts
}

/// A folder for the program, and the site.
struct SiteAndModel {
    folder: TempDir,
    site: String,
    program: &'static Path,
    _runtime: Runtime,
}

impl SiteAndModel {
    fn new(tree: &Tree) -> anyhow::Result<Self> {
        let folder = tempfile::Builder::new().prefix("ua-research-tree-").tempdir()?;
        for name in ["work", "home"] {
            fs::create_dir(folder.path().join(name))?;
        }
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        let listener = runtime.block_on(TcpListener::bind((Ipv4Addr::LOCALHOST, 0)))?;
        let site = format!("http://{}", listener.local_addr()?);
        let config =
            SiteConfig { pages: tree.folder.clone(), log: folder.path().join("asked.log"), faults: BTreeMap::new() };
        runtime.spawn(serve_site(listener, config));
        job::write(&folder.path().join("work"), &site, &tree.pages)?;
        Ok(Self { folder, site, program: ua_program(), _runtime: runtime })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn log(&self) -> String {
        fs::read_to_string(self.path("ua.log")).unwrap_or_default()
    }

    /// Lets the program live until its job ends, or until the site was asked for so many pages.
    fn live(&self, kill_at: Option<usize>) -> anyhow::Result<ExitStatus> {
        let log = File::options().create(true).append(true).open(self.path("ua.log"))?;
        let mut command = Command::new(self.program);
        let is_new = !self.path("root/runtime_state.db").exists();
        if is_new {
            command.args(["job", "job.json", "--run-id", RUN, "--allow-private-addresses"]);
        } else {
            command.args(["resume", RUN]);
        }
        command.arg("--root").arg(self.path("root")).current_dir(self.path("work"));
        command.env_clear().env("PATH", "/usr/local/bin:/usr/bin:/bin").env("LANG", "C.UTF-8");
        command.env("HOME", self.path("home"));
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        let mut child = command.spawn().context("start ua")?;
        self.wait(&mut child, kill_at)
    }

    fn wait(&self, child: &mut Child, kill_at: Option<usize>) -> anyhow::Result<ExitStatus> {
        let started = Instant::now();
        loop {
            if let Some(status) = child.try_wait()? {
                return Ok(status);
            }
            if kill_at.is_some_and(|at| self.asked().is_ok_and(|asked| asked.len() >= at)) {
                child.kill()?;
                return Ok(child.wait()?);
            }
            if started.elapsed() > PATIENCE {
                child.kill()?;
                child.wait()?;
                bail!("ua did not end within {} s", PATIENCE.as_secs());
            }
            std::thread::sleep(GLANCE);
        }
    }

    /// The pages that the site was asked for, in order.
    fn asked(&self) -> anyhow::Result<Vec<String>> {
        let path = self.path("asked.log");
        let text = if path.exists() { fs::read_to_string(path)? } else { String::new() };
        Ok(text.lines().map(|line| line.trim_start_matches('/').to_owned()).collect())
    }

    fn session(&self) -> anyhow::Result<PathBuf> {
        let mut sessions = fs::read_dir(self.path("root"))?.flatten().map(|entry| entry.path());
        let is_session = |path: &PathBuf| {
            path.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with("session_"))
        };
        sessions.find(is_session).context("there is no workspace")
    }

    /// The pages whose copies are stored. A tool server that is just dying may store one more, which is no harm.
    fn stored(&self) -> anyhow::Result<BTreeSet<String>> {
        let inbox = self.session()?.join("search_results");
        let mut stored = BTreeSet::new();
        for entry in fs::read_dir(inbox).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let is_page = entry.path().extension().is_some_and(|extension| extension == "md");
            if name.starts_with('.') || !is_page {
                continue;
            }
            let text = fs::read_to_string(entry.path()).unwrap_or_default();
            let source = text.lines().take(12).find_map(|line| line.strip_prefix("source: \"")?.strip_suffix('"'));
            stored.extend(source.and_then(|source| source.strip_prefix(&format!("{}/", self.site))).map(str::to_owned));
        }
        Ok(stored)
    }

    /// Removes the stored copies. A tool server that is just dying may put one more there, so this is tried until it holds.
    fn forget(&self) -> anyhow::Result<()> {
        let inbox = self.session()?.join("search_results");
        let started = Instant::now();
        while let Err(error) = fs::remove_dir_all(&inbox) {
            if !inbox.exists() {
                break;
            }
            ensure!(started.elapsed() < Duration::from_secs(10), "remove {}: {error}", inbox.display());
            std::thread::sleep(GLANCE);
        }
        Ok(())
    }

    fn conclude(&self, tree: &Tree, options: &Options, stored_before: &Stored, took: Duration) -> anyhow::Result<()> {
        let asked = self.asked()?;
        let counts = counts(&asked);
        let again: usize = counts.values().map(|count| count - 1).sum();
        let repeated = repeated(&asked, stored_before);
        if options.forget_copies {
            ensure!(!repeated.is_empty(), "pages were fetched twice and went unnoticed");
            println!("{} pages were fetched twice, and it was seen, as it must be", repeated.len());
            return Ok(());
        }
        ensure!(repeated.is_empty(), "fetched again although they were stored: {repeated:?}");
        ensure!(
            again <= options.kills * ON_THEIR_WAY,
            "{again} pages were asked for again, more than can have been on their way at {} kills",
            options.kills
        );
        let missing: Vec<_> = tree.pages.iter().filter(|page| !counts.contains_key(page.as_str())).collect();
        ensure!(missing.is_empty(), "never asked for: {missing:?}");
        for (what, folder, count) in
            [("uploaded", "root/objects", 1), ("mailed", "root/outbox/new", 1), ("notified", "root/notifications", 1)]
        {
            ensure!(self.visible(folder) == count, "{what} {} times", self.visible(folder));
        }
        let session = self.session()?;
        let sources: serde_json::Value =
            serde_json::from_slice(&fs::read(session.join("tasks/tree/sources.json")).context("there is no corpus")?)?;
        let kept = sources["sources"].as_array().map_or(0, Vec::len);
        ensure!(kept > 0, "the corpus has no sources");
        println!(
            "{} pages, {} kills, {:.0} s: no stored page was fetched twice; {again} were on their way at a kill and fetched again",
            counts.len(),
            options.kills,
            took.as_secs_f64(),
        );
        println!("corpus: {kept} sources, {} words; 1 upload, 1 e-mail, 1 notification", sources["words"]);
        Ok(())
    }

    fn visible(&self, folder: &str) -> usize {
        let entries = fs::read_dir(self.path(folder)).into_iter().flatten().flatten();
        entries.filter(|entry| entry.path().is_file() && !entry.file_name().to_string_lossy().starts_with('.')).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_counts_as_repeated_only_after_it_was_stored() {
        let asked: Vec<String> = ["a", "b", "b", "c", "a"].map(str::to_owned).into();
        let stored = Stored::from([("a".to_owned(), 1), ("b".to_owned(), 2)]);
        assert_eq!(repeated(&asked, &stored), ["a"], "b was on its way twice and stored then, c never");
    }
}
