//! `cargo xtask fuzz`: each fuzz target for a while, from the corpus of this repository.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, bail};
use ua_testkit::{skipped, workspace_root};

/// The most memory of a target, in MiB; a reader that takes more on one small input is wrong.
const MEMORY: u32 = 2_048;

/// The longest one input may take, in seconds.
const PATIENCE: u32 = 20;

/// How long, and which.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Seconds for each target
    #[arg(long, default_value_t = 60)]
    seconds: u32,
    /// Only these targets
    #[arg(value_name = "TARGET")]
    targets: Vec<String>,
    /// Adds the smallest inputs that widen the coverage to the corpus of this repository
    #[arg(long)]
    keep: bool,
}

/// What a target came to.
#[derive(Debug, Default, PartialEq, Eq)]
struct Came {
    executions: u64,
    coverage: u64,
    features: u64,
    inputs: u64,
}

pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    let root = workspace_root();
    let all = targets(&root)?;
    if let Some(unknown) = options.targets.iter().find(|target| !all.contains(target)) {
        bail!("there is no target {unknown}; there are {}", all.join(", "));
    }
    if let Some(missing) = missing() {
        skipped(missing);
        return Ok(());
    }
    let wanted = all.iter().filter(|target| options.targets.is_empty() || options.targets.contains(target));
    println!("| target | seconds | executions | coverage | features | inputs |\n|---|--:|--:|--:|--:|--:|");
    let mut failed = Vec::new();
    for target in wanted {
        match fuzz(&root, target, options) {
            Ok(came) => println!(
                "| `{target}` | {} | {} | {} | {} | {} |",
                options.seconds, came.executions, came.coverage, came.features, came.inputs
            ),
            Err(error) => {
                eprintln!("{error:#}");
                failed.push(target.as_str());
            }
        }
    }
    if !failed.is_empty() {
        bail!(
            "found something in {}: the input is below fuzz/artifacts; mend the reader and add it to the corpus",
            failed.join(", ")
        );
    }
    Ok(())
}

/// The targets, as their files are called.
fn targets(root: &Path) -> anyhow::Result<Vec<String>> {
    let folder = root.join("fuzz/fuzz_targets");
    let entries = std::fs::read_dir(&folder).with_context(|| format!("cannot read {}", folder.display()))?;
    let mut names: Vec<String> =
        entries.flatten().filter_map(|entry| Some(entry.path().file_stem()?.to_str()?.to_owned())).collect();
    names.sort();
    Ok(names)
}

/// What is not here that fuzzing needs.
fn missing() -> Option<&'static str> {
    let mut command = fuzzer(&["--version"]);
    command.stdout(Stdio::null()).stderr(Stdio::null());
    (!command.status().is_ok_and(|status| status.success()))
        .then_some("it needs cargo-fuzz (`cargo install cargo-fuzz --locked`) in PATH")
}

/// Cargo-fuzz as its user would run it: not as the one that runs this, whose choices of toolchain and features are its own. What it counts coverage
/// with is in each compiler; that it may be asked for is said to one that is not a nightly build.
fn fuzzer(args: &[&str]) -> Command {
    let mut command = Command::new("cargo");
    command.arg("fuzz").args(args);
    for name in ["CARGO", "RUSTC", "RUSTUP_TOOLCHAIN", "RUSTFLAGS", "CARGO_TARGET_DIR"] {
        command.env_remove(name);
    }
    command.env("RUSTC_BOOTSTRAP", "1");
    command
}

fn fuzz(root: &Path, target: &str, options: &Options) -> anyhow::Result<Came> {
    // What is found goes into a folder of its own; the corpus of the repository is read only.
    let found = root.join("fuzz/found").join(target);
    std::fs::create_dir_all(&found).with_context(|| format!("cannot make {}", found.display()))?;
    let shipped = root.join("fuzz/corpus").join(target);
    let limits = [
        format!("-max_total_time={}", options.seconds),
        format!("-rss_limit_mb={MEMORY}"),
        format!("-timeout={PATIENCE}"),
        "-print_final_stats=1".to_owned(),
    ];
    let mut command = fuzzer(&["run", "-s", "none", target]);
    command.arg(&found).arg(&shipped).arg("--").args(&limits).current_dir(root);
    let said = output(&mut command, target)?;
    let came = read(&said).with_context(|| format!("{target} said nothing about what it did"))?;
    if options.keep {
        let mut command = fuzzer(&["run", "-s", "none", target]);
        command.args([&shipped, &found]).args(["--", "-merge=1", "-max_len=4096"]).current_dir(root);
        output(&mut command, target)?;
    }
    Ok(came)
}

/// What a command that has to succeed says on standard error.
fn output(command: &mut Command, target: &str) -> anyhow::Result<String> {
    let output = command.output().with_context(|| format!("cannot run the target {target}"))?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    if output.status.success() {
        return Ok(said);
    }
    let last: Vec<&str> = said.lines().rev().take(40).collect();
    let last: Vec<&str> = last.into_iter().rev().collect();
    bail!("{target}: {}\n{}", output.status, last.join("\n"))
}

/// Reads libFuzzer's last line of statistics and its final numbers.
fn read(said: &str) -> Option<Came> {
    let number = |text: &str| text.split(|c: char| !c.is_ascii_digit()).next().and_then(|digits| digits.parse().ok());
    let last = said.lines().rev().find(|line| line.contains(" cov: "))?;
    let field = |name: &str| last.split(name).nth(1).and_then(number);
    let executions = said.lines().find_map(|line| line.strip_prefix("stat::number_of_executed_units:"))?;
    Some(Came {
        executions: executions.trim().parse().ok()?,
        coverage: field(" cov: ")?,
        features: field(" ft: ")?,
        inputs: field(" corp: ")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_target_has_a_body_and_a_corpus_that_is_replayed() {
        let root = workspace_root();
        let targets = targets(&root).unwrap();
        assert!(targets.len() >= 8, "{targets:?}");
        for target in targets {
            assert!(root.join("fuzz/bodies").join(format!("{target}.rs")).is_file(), "{target}");
            assert!(std::fs::read_dir(root.join("fuzz/corpus").join(&target)).unwrap().count() > 0, "{target}");
        }
    }

    #[test]
    fn the_numbers_of_a_target_are_read_off_what_it_says() {
        let said = "#2\tINITED cov: 9 ft: 10 corp: 1/1b exec/s: 0 rss: 30Mb\n\
                    #524288\tDONE   cov: 1234 ft: 5678 corp: 321/45Kb lim: 4096 exec/s: 9000 rss: 55Mb\n\
                    Done 524288 runs in 61 second(s)\nstat::number_of_executed_units: 524288\n";
        let came = Came { executions: 524_288, coverage: 1_234, features: 5_678, inputs: 321 };
        assert_eq!(read(said), Some(came));
        assert_eq!(read("error: could not compile"), None);
    }
}
