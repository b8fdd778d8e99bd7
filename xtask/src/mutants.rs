//! Seeded bugs: for each, the lane that sees it, the test that fails once it is patched in, or why it cannot be built.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, bail, ensure};
use ua_testkit::workspace_root;

use crate::made::Made;
use crate::patched;

/// How to run them.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Only the bugs of this number, as in M4, or of which the table says this
    #[arg(long, value_name = "NUMBER")]
    only: Option<String>,
    /// Only one bug for each lane, as on every push
    #[arg(long, conflicts_with_all = ["only", "patches", "rules", "write"])]
    push: bool,
    /// Only those that a lane builds in at a seam
    #[arg(long, conflicts_with_all = ["only", "patches"])]
    rules: bool,
    /// Only those that a patch puts into a copy of the tree
    #[arg(long, conflicts_with = "only")]
    patches: bool,
    /// Only see that every patch still fits the sources
    #[arg(long, conflicts_with = "write")]
    check: bool,
    /// Write the table to this file as well; its rows of bugs that were not built in stay as they are
    #[arg(long, value_name = "FILE")]
    write: Option<PathBuf>,
}

/// How a bug is noticed.
enum Seen {
    /// By `cargo xtask` with these words, which fails unless it sees the bug.
    Lane(&'static [&'static str]),
    /// By a test that has to fail once the bug is in: a patch puts it into a copy of the tree. The words go to `cargo test`.
    Patch { file: &'static str, name: &'static str, words: &'static [&'static str] },
}

/// Which script a bug turns red.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Script {
    /// `.ci/run`, before a change lands.
    Push,
    /// `.ci/nightly` only.
    Nightly,
}

impl Script {
    fn name(self) -> &'static str {
        match self {
            Self::Push => "`.ci/run`",
            Self::Nightly => "`.ci/nightly`",
        }
    }
}

struct Mutant {
    number: &'static str,
    bug: &'static str,
    seen: Seen,
    /// What the bug turns red when somebody writes it.
    caught: Script,
    /// What builds the bug in on purpose, to show that.
    shown: Script,
}

const fn lane(number: &'static str, bug: &'static str, words: &'static [&'static str]) -> Mutant {
    Mutant { number, bug, seen: Seen::Lane(words), caught: Script::Push, shown: Script::Nightly }
}

impl Mutant {
    /// The one bug that is built in for its lane on every push.
    const fn on_push(mut self) -> Self {
        self.shown = Script::Push;
        self
    }
}

const fn patch(
    number: &'static str,
    bug: &'static str,
    file: &'static str,
    name: &'static str,
    words: &'static [&'static str],
) -> Mutant {
    // Its test is one of those that run before a change lands; a copy of the tree takes too long to build there.
    Mutant { number, bug, seen: Seen::Patch { file, name, words }, caught: Script::Push, shown: Script::Nightly }
}

const MUTANTS: [Mutant; 77] = [
    lane(
        "M1",
        "RUNNING is written after the dispatch",
        &["crash-matrix", "--quick", "--only", "external opaque", "--broken-rule", "running-after-dispatch"],
    )
    .on_push(),
    lane("M1", "the same, in the simulation", &["sim", "--broken-rule", "running-after-dispatch"]),
    lane(
        "M1",
        "the same, in the real program",
        &[
            "acceptance",
            "--quick",
            "--broken-rule",
            "running-after-dispatch",
            "--only",
            "post_comment",
            "--random",
            "0",
        ],
    ),
    lane(
        "M2",
        "tool servers of an earlier life are taken for gone",
        &["crash-matrix", "--quick", "--only", "external opaque", "--broken-rule", "no-fence"],
    ),
    lane("M2", "the same, in the simulation", &["sim", "--broken-rule", "no-fence"]),
    lane(
        "M3",
        "the intent is written and not synced",
        &["power-cut", "--variants", "0", "--broken-rule", "intent-relaxed"],
    )
    .on_push(),
    lane(
        "M4",
        "an opaque call found running is sent again",
        &["crash-matrix", "--quick", "--only", "external opaque", "--broken-rule", "forced-replay"],
    ),
    lane("M4", "the same, in the simulation", &["sim", "--broken-rule", "forced-replay"]),
    lane(
        "M5",
        "a key by position says nothing of the position",
        &["crash-matrix", "--quick", "--only", "by position", "--broken-rule", "key-without-position"],
    ),
    lane("M5", "the same, in the simulation", &["sim", "--broken-rule", "key-without-position"]),
    lane(
        "M6",
        "another life makes another key for the same call",
        &["crash-matrix", "--quick", "--only", "key in a header", "--broken-rule", "key-of-this-process"],
    ),
    lane(
        "M7",
        "an answer that never came is taken for a request that never left",
        &["crash-matrix", "--quick", "--only", "external opaque", "--broken-rule", "lost-is-failed"],
    ),
    lane("M7", "the same, in the simulation", &["sim", "--broken-rule", "lost-is-failed"]).on_push(),
    lane(
        "M8",
        "the store takes writes of a stale epoch",
        &["crash-matrix", "--quick", "--only", "external opaque", "--broken-rule", "no-epoch-check"],
    ),
    lane("M8", "the same, in the simulation", &["sim", "--broken-rule", "no-epoch-check"]),
    patch(
        "M9",
        "a turn may be committed before its receipts are written",
        "crates/ua-store/src/conformance/turns.rs",
        "a_commit_names_the_call_that_is_not_settled",
        &["-p", "ua-store", "--features", "conformance", "--test", "it"],
    ),
    patch(
        "M10",
        "a result refers to a blob that is not stored",
        "crates/ua-runner/tests/it/crash_anywhere.rs",
        "large_results_survive_wherever_we_die",
        &["-p", "ua-runner", "--test", "it"],
    ),
    patch(
        "M11",
        "a write transaction starts as a reader",
        "crates/ua-store-sqlite/tests/it/two_writers.rs",
        "a_write_that_reads_first_is_never_refused_because_another_process_wrote",
        &["-p", "ua-store-sqlite", "--test", "it"],
    ),
    lane(
        "M12",
        "a probe's absence counts before the horizon",
        &["crash-matrix", "--quick", "--only", "with probe", "--broken-rule", "probe-without-horizon"],
    ),
    lane("M12", "the same, in the simulation", &["sim", "--broken-rule", "probe-without-horizon"]),
    patch(
        "M13",
        "the HTTP client posts a call again",
        "crates/ua-mcp/src/tests/http.rs",
        "a_broken_answer_loses_the_call_and_never_sends_it_again",
        &["-p", "ua-mcp", "--lib", "--examples"],
    ),
    patch(
        "M14",
        "secrets are stored, and removed only when a record is read",
        "tests/e2e/secrets.rs",
        "what_a_tool_answers_is_kept_without_secrets",
        &["-p", "ua-e2e", "--test", "e2e"],
    ),
    patch(
        "M15",
        "a tool server is in the runner's process group",
        "crates/ua-mcp/src/tests/shim.rs",
        "a_server_runs_in_the_shims_own_session",
        &["-p", "ua-mcp", "--lib", "--examples"],
    ),
    patch(
        "M16",
        "a SQLite that can damage its log is accepted",
        "crates/ua-store-sqlite/src/pragma.rs",
        "a_sqlite_that_can_damage_its_log_is_refused_by_name",
        &["-p", "ua-store-sqlite", "--lib"],
    ),
    patch(
        "M17",
        "a full disk ends with exit code 0",
        "tests/e2e/bad_storage.rs",
        "a_full_disk_sends_nothing_and_loses_nothing",
        &["-p", "ua-e2e", "--test", "e2e"],
    ),
    patch(
        "M18",
        "a start does not look for a cancel",
        "crates/ua-store/src/conformance/calls.rs",
        "nothing_starts_after_a_cancel_request",
        &["-p", "ua-store", "--features", "conformance", "--test", "it"],
    ),
    patch(
        "M19",
        "an attempt is written a second time",
        "crates/ua-store/src/conformance/calls.rs",
        "attempts_are_numbered_and_keep_their_key",
        &["-p", "ua-store", "--features", "conformance", "--test", "it"],
    ),
    patch(
        "M20",
        "what is in doubt may be sent under another key",
        "crates/ua-store/src/conformance/calls.rs",
        "only_what_did_nothing_may_get_another_key",
        &["-p", "ua-store", "--features", "conformance", "--test", "it"],
    ),
    patch(
        "M21",
        "a key in flight or in doubt is given to another call",
        "crates/ua-store/src/conformance/calls.rs",
        "a_held_key_refuses_every_other_call",
        &["-p", "ua-store", "--features", "conformance", "--test", "it"],
    ),
    patch(
        "M22",
        "a start does not see what began since it was decided",
        "crates/ua-store/src/conformance/calls.rs",
        "a_start_sees_what_touched_its_scope_meanwhile",
        &["-p", "ua-store", "--features", "conformance", "--test", "it"],
    ),
    patch(
        "M23",
        "an effect limit lets one more through",
        "crates/ua-store/src/conformance/calls.rs",
        "an_effect_limit_counts_the_lineage",
        &["-p", "ua-store", "--features", "conformance", "--test", "it"],
    ),
    patch(
        "M24",
        "an approval lets a second attempt run",
        "crates/ua-store/src/conformance/calls.rs",
        "an_approval_lets_one_attempt_run",
        &["-p", "ua-store", "--features", "conformance", "--test", "it"],
    ),
    patch(
        "M25",
        "a batch whose answer was lost is written twice",
        "crates/ua-store/src/conformance/batches.rs",
        "a_numbered_batch_is_written_once",
        &["-p", "ua-store", "--features", "conformance", "--test", "it"],
    ),
    patch(
        "M26",
        "an epoch that a restored copy gives twice has two owners",
        "crates/ua-store/src/conformance/batches.rs",
        "an_epoch_that_is_given_twice_has_one_owner",
        &["-p", "ua-store", "--features", "conformance", "--test", "it"],
    ),
    patch(
        "M27",
        "a turn that is committed is executed again",
        "crates/ua-runner/tests/it/crash_anywhere/turn_guard.rs",
        "test_granular_cas_guard_skip",
        &["-p", "ua-runner", "--test", "it"],
    ),
    patch(
        "M28",
        "a turn is appended over a gap",
        "crates/ua-runner/tests/it/crash_anywhere/turn_guard.rs",
        "test_granular_cas_gap_failure",
        &["-p", "ua-runner", "--test", "it"],
    ),
    patch(
        "M29",
        "a request that was not answered is free",
        "crates/ua-runner/tests/it/granular/named.rs",
        "test_granular_usage_baseline_on_timeout",
        &["-p", "ua-runner", "--test", "it"],
    ),
    patch(
        "M30",
        "a resume compares nothing but the model",
        "crates/ua-runner/tests/it/granular/named.rs",
        "test_granular_fingerprint_mismatch",
        &["-p", "ua-runner", "--test", "it"],
    ),
    patch(
        "M31",
        "enforcement asks keys of the harmless tools alone",
        "crates/ua-runner/tests/it/granular/named.rs",
        "test_idempotency_enforced_tool",
        &["-p", "ua-runner", "--test", "it"],
    ),
    patch(
        "M32",
        "a model reads the reference to a large result",
        "crates/ua-runner/tests/it/granular/named.rs",
        "test_blob_offload_and_rehydrate",
        &["-p", "ua-runner", "--test", "it"],
    ),
    patch(
        "M33",
        "a cut history loses its first message",
        "crates/ua-checkpoint/src/truncate_tests.rs",
        "test_history_truncation_middle_out",
        &["-p", "ua-checkpoint", "--lib"],
    ),
    patch(
        "M34",
        "a turn whose commit failed counts as committed",
        "crates/ua-runner/tests/it/crash_anywhere/loop_contract.rs",
        "test_loop_abort_on_failure",
        &["-p", "ua-runner", "--test", "it"],
    ),
    patch(
        "M35",
        "a skipped turn reserves a request",
        "crates/ua-runner/tests/it/crash_anywhere/loop_contract.rs",
        "test_cas_skip_no_quota_touch",
        &["-p", "ua-runner", "--test", "it"],
    ),
    patch(
        "M36",
        "a result that is gone is replaced without asking",
        "crates/ua-runner/tests/it/granular/named.rs",
        "test_blob_ref_missing_fails_fast",
        &["-p", "ua-runner", "--test", "it"],
    ),
    patch(
        "M37",
        "a call is judged, and then its server is started",
        "crates/ua-runner/tests/it/crash_anywhere/unknown.rs",
        "a_call_is_judged_anew_behind_the_start_of_its_server",
        &["-p", "ua-runner", "--test", "it"],
    ),
    lane("M37", "the same, in the simulation", &["sim", "--broken-rule", "judged-before-waiting"]),
    lane(
        "M38",
        "where an attempt went is not stored",
        &[
            "explore",
            "--scene",
            "moved",
            "--deviations",
            "1",
            "--most-wrong",
            "1",
            "--broken-rule",
            "destinations-forgotten",
        ],
    )
    .on_push(),
    patch(
        "M39",
        "the clock says what was done since a call was sent",
        "crates/ua-ledger/tests/it/identity/forks.rs",
        "a_call_in_doubt_is_overtaken_whatever_the_clocks_say",
        &["-p", "ua-ledger", "--test", "it"],
    ),
    lane(
        "M23",
        "what is in doubt does not count towards it, in the simulation",
        &["sim", "--broken-rule", "doubts-uncounted"],
    ),
    lane("M22", "the same, in the simulation", &["sim", "--broken-rule", "starts-unguarded"]),
    lane(
        "M22",
        "the same, on every path",
        &["explore", "--scene", "fork", "--deviations", "1", "--most-wrong", "1", "--broken-rule", "starts-unguarded"],
    ),
    lane(
        "–",
        "a sub-agent is started anew instead of reused or resumed",
        &[
            "crash-matrix",
            "--quick",
            "--only",
            "after:store.settle_attempt:post_comment",
            "--broken-rule",
            "children-start-again",
        ],
    ),
    lane(
        "–",
        "an iteration begins without what was done before it",
        &["crash-matrix", "--quick", "--only", "store.enter_step", "--broken-rule", "handoff-forgotten"],
    ),
    lane(
        "–",
        "a server is said to honour keys when it does not",
        &[
            "acceptance",
            "--quick",
            "--broken-rule",
            "unhonoured-keys",
            "--only",
            "plain SMTP: during the notification",
            "--random",
            "0",
        ],
    )
    .on_push(),
    lane(
        "–",
        "nothing takes secrets out of what tools answer",
        &["acceptance", "--quick", "--broken-rule", "no-redactor", "--only", "post_comment", "--random", "0"],
    ),
    lane(
        "–",
        "an iteration begins without what was done before it, in the simulation",
        &["sim", "--seed", "60", "--broken-rule", "handoff-forgotten"],
    ),
    lane(
        "–",
        "a refusal of a later attempt ends the doubt about an earlier one",
        &["sim", "--broken-rule", "refusal-ends-doubt"],
    ),
    lane(
        "–",
        "the same, on every path",
        &[
            "explore",
            "--scene",
            "plain",
            "--deviations",
            "2",
            "--most-wrong",
            "1",
            "--broken-rule",
            "refusal-ends-doubt",
        ],
    ),
    lane("–", "forks and parents do not see what sub-agents did", &["sim", "--broken-rule", "sub-agents-unseen"]),
    lane(
        "–",
        "the same, on every path",
        &["explore", "--scene", "fork-beside-tasks", "--deviations", "0", "--broken-rule", "sub-agents-unseen"],
    ),
    lane(
        "–",
        "after a restore only what the run itself sent counts as forgotten",
        &["sim", "--broken-rule", "restore-looks-at-one-run"],
    ),
    lane(
        "–",
        "the same, on every path",
        &["explore", "--scene", "restore-of-tasks", "--deviations", "0", "--broken-rule", "restore-looks-at-one-run"],
    ),
    lane("–", "a person's abort ends a call, not the run", &["sim", "--broken-rule", "abort-of-one-call"]),
    lane(
        "–",
        "the same, on every path",
        &["explore", "--scene", "approved", "--deviations", "1", "--broken-rule", "abort-of-one-call"],
    ),
    lane(
        "–",
        "a call that was refused is tried again without looking beside it",
        &["sim", "--seed", "900", "--seeds", "60", "--broken-rule", "retries-look-at-nobody"],
    ),
    lane(
        "–",
        "the same, on every path",
        &[
            "explore",
            "--scene",
            "fork-behind-failure",
            "--deviations",
            "1",
            "--most-wrong",
            "1",
            "--broken-rule",
            "retries-look-at-nobody",
        ],
    ),
    lane(
        "–",
        "a key under which something was done is used again where a person said that it did not happen",
        &[
            "explore",
            "--scene",
            "fork-behind-correction",
            "--deviations",
            "0",
            "--broken-rule",
            "corrected-keys-stay-good",
        ],
    ),
    lane(
        "–",
        "what a person answered is handed over to a tool without looking beside its call",
        &["explore", "--scene", "fork-beside-form", "--deviations", "0", "--broken-rule", "hand-overs-look-at-nobody"],
    ),
    lane(
        "–",
        "the same, where the effect is known by its content",
        &[
            "explore",
            "--scene",
            "fork-beside-form-by-content",
            "--deviations",
            "0",
            "--broken-rule",
            "hand-overs-look-at-nobody",
        ],
    ),
    lane(
        "–",
        "what became known of other calls since a call was asked for is not looked at",
        &["sim", "--broken-rule", "ends-of-doubt-unseen"],
    ),
    lane(
        "–",
        "the same, on every path",
        &["explore", "--scene", "repeat-in-doubt", "--deviations", "0", "--broken-rule", "ends-of-doubt-unseen"],
    ),
    lane(
        "–",
        "the same, of what is corrected while a model thinks",
        &[
            "explore",
            "--scene",
            "repeat-behind-correction",
            "--deviations",
            "0",
            "--broken-rule",
            "ends-of-doubt-unseen",
        ],
    ),
    lane(
        "–",
        "what sub-agents did before an iteration began is not looked at behind it",
        &["sim", "--broken-rule", "sub-agents-forgotten"],
    ),
    lane(
        "–",
        "the same, on every path",
        &["explore", "--scene", "iterations-of-tasks", "--deviations", "0", "--broken-rule", "sub-agents-forgotten"],
    ),
    lane(
        "–",
        "what was accepted of a copy that was put back counts as never sent",
        &["explore", "--scene", "restore-of-planned", "--deviations", "0", "--broken-rule", "accepted-as-unsent"],
    ),
    lane(
        "–",
        "what was accepted of a copy that was put back, and is in no row of it, is done again unasked",
        &["explore", "--scene", "restore-of-forked", "--deviations", "0", "--broken-rule", "accepted-is-forgotten"],
    ),
    lane(
        "–",
        "what a model's provider refuses for good is asked for again as it was",
        &["sim", "--broken-rule", "refusals-pass"],
    ),
];

/// What a lane says when it saw the bug.
const WAS_SEEN: &str = "was seen";

pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    let is_wanted = |mutant: &&Mutant| {
        let is_patch = matches!(mutant.seen, Seen::Patch { .. });
        options.only.as_ref().is_none_or(|only| only == mutant.number || mutant.bug.contains(only.as_str()))
            && (!options.push || mutant.shown == Script::Push)
            && (!options.rules || !is_patch)
            && (!options.patches || is_patch)
    };
    let chosen: Vec<&Mutant> = MUTANTS.iter().filter(is_wanted).collect();
    ensure!(!chosen.is_empty(), "no bug has that number; they are M1 to M{}", last_number());
    if options.check {
        for mutant in chosen {
            mutant.find_test()?;
        }
        println!("every patch fits the sources");
        return Ok(());
    }
    let made = Made::begin(options.write.as_deref())?;
    let source = made.as_ref().map_or("", Made::source);
    let (mut rows, mut missed, mut skipped) = (Vec::new(), Vec::new(), 0);
    for mutant in chosen {
        let result = mutant.result().with_context(|| format!("{}: {}", mutant.number, mutant.bug))?;
        eprintln!("{}: {}: {}", mutant.number, mutant.bug, result.words());
        if matches!(result, Outcome::Unnoticed(_)) {
            missed.push(mutant.number);
        }
        skipped += u32::from(matches!(result, Outcome::Skipped));
        rows.push(format!("{} {} | {source} |\n", mutant.columns(), result.words()));
    }
    println!("{HEADER}{}", rows.concat());
    ensure!(missed.is_empty(), "went unnoticed: {}", missed.join(", "));
    if let Some(made) = made {
        ensure!(skipped == 0, "{skipped} lane(s) cannot run here, so the page would say less than it should");
        let rows = merged(&made.before(), &rows);
        let (command, line) = (made.command(), made.line());
        made.write(&format!("# Seeded bugs\n\nWritten by `{command}`, {INTRODUCTION}\n{line}\n\n{HEADER}{rows}"))?;
    }
    Ok(())
}

/// The rows of all bugs, in their order: those that were made now, and of the others what the page has.
fn merged(before: &str, now: &[String]) -> String {
    let of = |mutant: &Mutant| {
        let is_its = |row: &&str| row.starts_with(&mutant.columns());
        now.iter().map(String::as_str).find(is_its).or_else(|| before.split_inclusive('\n').find(is_its))
    };
    MUTANTS.iter().filter_map(of).collect()
}

/// The highest number of a bug.
fn last_number() -> u32 {
    MUTANTS.iter().filter_map(|mutant| mutant.number.strip_prefix('M')?.parse().ok()).max().unwrap_or(0)
}

const HEADER: &str =
    "| number | bug | what sees it | turns red | built in by | result | commit, day |\n|---|---|---|---|---|---|---|\n";

const INTRODUCTION: &str = "which builds each bug into a run where a lane can, and fails when the lane does not see it.\n\
    A bug that no lane can build in is patched into a copy of the tree, where a test has to fail. Some bugs alone (`--only`) get their rows anew, and\n\
    the others keep theirs.\n\n\
    *Turns red* is the script that fails when somebody writes the bug: a test, or a lane in the short form of every push, of which a part is\n\
    run here. *Built in by* is the script that writes the bug on purpose and fails unless it is seen: one bug a lane on every push, all of them at night.\n";

/// Fails when the page does not tell these bugs and lanes, or a test that is named is gone.
pub(crate) fn check(page: &Path) -> anyhow::Result<()> {
    let text = fs::read_to_string(page).with_context(|| format!("read {}", page.display()))?;
    for mutant in &MUTANTS {
        ensure!(
            text.lines().any(|line| line.starts_with(&mutant.columns())),
            "{} says something else of {} ({}); run `cargo xtask mutants --write docs/mutants.md`",
            page.display(),
            mutant.number,
            mutant.bug
        );
        mutant.find_test()?;
    }
    let rows = text.lines().filter(|line| line.starts_with("| M") || line.starts_with("| –")).count();
    ensure!(rows == MUTANTS.len(), "{} has {rows} rows for {} bugs", page.display(), MUTANTS.len());
    Ok(())
}

/// How many bugs are noticed in which way, for a sentence.
pub(crate) fn counts() -> String {
    let count = |is: fn(&Seen) -> bool| MUTANTS.iter().filter(|mutant| is(&mutant.seen)).count();
    format!(
        "{} seeded bugs: {} are built in and seen by a lane, {} are patched in and seen by a test",
        MUTANTS.len(),
        count(|seen| matches!(seen, Seen::Lane(_))),
        count(|seen| matches!(seen, Seen::Patch { .. })),
    )
}

enum Outcome {
    Seen(String),
    Unnoticed(String),
    Skipped,
}

impl Outcome {
    fn words(&self) -> String {
        match self {
            Self::Seen(line) => line.replace('|', "\\|"),
            Self::Unnoticed(why) => format!("UNNOTICED: {why}"),
            Self::Skipped => "not run: this machine cannot trace".to_owned(),
        }
    }
}

impl Mutant {
    /// The columns that do not depend on a run, up to the last bar before its result.
    fn columns(&self) -> String {
        let seen = match self.seen {
            Seen::Lane(words) => {
                let quote = |word: &&str| if word.contains(' ') { format!("\"{word}\"") } else { (*word).to_owned() };
                format!("`cargo xtask {}`", words.iter().map(quote).collect::<Vec<_>>().join(" "))
            }
            Seen::Patch { name, .. } => format!("`{name}`, with `{}`", patched::file_of(self.number)),
        };
        format!("| {} | {} | {seen} | {} | {} |", self.number, self.bug, self.caught.name(), self.shown.name())
    }

    fn result(&self) -> anyhow::Result<Outcome> {
        let words = match self.seen {
            Seen::Lane(words) => words,
            Seen::Patch { name, words, .. } => {
                self.find_test()?;
                return Ok(match patched::run(self.number, words, name)? {
                    None => Outcome::Seen(format!("the bug {WAS_SEEN}: the test fails with it")),
                    Some(why) => Outcome::Unnoticed(why),
                });
            }
        };
        let output = Command::new(std::env::current_exe()?).args(words).current_dir(workspace_root()).output()?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let line = text.lines().rev().find(|line| line.contains(WAS_SEEN));
        Ok(match (output.status.success(), line) {
            // What follows is an example with ids and words of that run.
            (true, Some(line)) => Outcome::Seen(line.split("; for example").next().unwrap_or(line).to_owned()),
            (true, None) => {
                ua_testkit::skipped(&format!("{} was not built in: {}", self.number, self.bug));
                Outcome::Skipped
            }
            (false, _) => {
                let said = String::from_utf8_lossy(&output.stderr).into_owned();
                Outcome::Unnoticed(said.lines().last().unwrap_or("it failed without a word").to_owned())
            }
        })
    }

    /// The test that is named exists, and the patch that it is to see still fits.
    fn find_test(&self) -> anyhow::Result<()> {
        let Seen::Patch { file, name, .. } = self.seen else { return Ok(()) };
        let source = fs::read_to_string(workspace_root().join(file)).with_context(|| format!("read {file}"))?;
        if !source.contains(&format!("fn {name}(")) {
            bail!("{} is to be seen by `{name}`, which is not in {file}", self.number);
        }
        patched::fits(self.number)
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[test]
    fn every_bug_is_numbered_and_every_rule_of_the_testkit_is_broken_by_one() {
        for number in 1..=last_number() {
            let number = format!("M{number}");
            assert!(MUTANTS.iter().any(|mutant| mutant.number == number), "{number}");
        }
        for rule in ua_testkit::BrokenRule::ALL {
            let breaks = |mutant: &Mutant| matches!(mutant.seen, Seen::Lane(words) if words.contains(&rule.name()));
            assert!(MUTANTS.iter().any(breaks), "{}", rule.name());
        }
        // One a lane on every push.
        let mut lanes: Vec<&str> = Vec::new();
        for mutant in MUTANTS.iter().filter(|mutant| mutant.shown == Script::Push) {
            let Seen::Lane(words) = mutant.seen else { panic!("{} needs a build of its own", mutant.number) };
            lanes.push(words[0]);
        }
        lanes.sort_unstable();
        assert_eq!(lanes, ["acceptance", "crash-matrix", "explore", "power-cut", "sim"]);
    }

    #[test]
    fn a_row_that_was_not_made_anew_stays_and_one_of_no_bug_goes() {
        let row = |mutant: &Mutant, result: &str| format!("{} {result} | aaaa, 2026-11-29 |\n", mutant.columns());
        let before: String = MUTANTS.iter().map(|mutant| row(mutant, "seen before")).collect();
        let (first, second) = (row(&MUTANTS[0], "seen before"), row(&MUTANTS[1], "seen now"));
        let page =
            merged(&format!("# X\n\n{before}| M0 | of old | – | – | – | seen |\n"), std::slice::from_ref(&second));
        assert_eq!(page.lines().count(), MUTANTS.len());
        assert!(page.starts_with(&format!("{first}{second}")), "{page}");
    }

    #[test]
    fn every_lane_is_asked_for_something_that_it_has() {
        for mutant in &MUTANTS {
            let Seen::Lane(words) = mutant.seen else { continue };
            let cli = crate::Cli::try_parse_from(std::iter::once("xtask").chain(words.iter().copied())).unwrap();
            assert!(cli.chooses_something(), "{words:?}");
        }
    }

    #[test]
    fn every_test_that_is_named_exists() {
        for mutant in &MUTANTS {
            mutant.find_test().unwrap();
        }
    }

    #[test]
    fn a_page_that_tells_something_else_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let page = folder.path().join("mutants.md");
        let rows: Vec<String> = MUTANTS.iter().map(|mutant| format!("{} seen |", mutant.columns())).collect();
        fs::write(&page, rows.join("\n")).unwrap();
        check(&page).unwrap();
        fs::write(&page, rows[1..].join("\n")).unwrap();
        assert!(check(&page).unwrap_err().to_string().contains("M1"));
        fs::write(&page, format!("{}\n| M18 | – | – | – |", rows.join("\n"))).unwrap();
        assert!(check(&page).unwrap_err().to_string().contains(&format!("{} rows", MUTANTS.len() + 1)));
    }
}
