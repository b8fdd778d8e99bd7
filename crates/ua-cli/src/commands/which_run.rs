//! Asking which run of a job is meant, of which an earlier run is not finished.
//!
//! Invariants: whoever is asked reads why that run stopped, and `resume` names the flags without which it would stop at the same again; what
//! changed since the run started is accepted only once that is confirmed; Enter alone starts and resumes nothing.

use clap::Parser;
use ua_core::{Component, RunStatus};
use ua_host::people::{Unfinished, WhichRun};
use ua_host::resume::Changes;
use ua_resume::{NextStep, Standing};
use ua_store::RunRecord;

use super::accept;
use super::summary::indented_to;
use crate::args::{BudgetArgs, not_empty};
use crate::error::HostError;
use crate::ids::{short, shortened};
use crate::output::line;
use crate::prompt::{AtSignal, Left, Offer, Picked, ask_line, confirm, offered, pick};

/// What may be typed behind `resume`: the flags of `ua resume` that change the run.
#[derive(Debug, Parser)]
#[command(name = "resume", no_binary_name = true, disable_help_flag = true)]
struct Flags {
    #[command(flatten)]
    budgets: BudgetArgs,
    #[arg(long, value_parser = not_empty(), value_delimiter = ',')]
    accept: Vec<String>,
}

/// Asks what is to become of a job of which an earlier run is not finished and stands like this.
pub(crate) async fn ask(unfinished: &Unfinished<'_>) -> Result<WhichRun, HostError> {
    let Unfinished { run: left, standing, how, is_in_doubt } = *unfinished;
    let offer = |word: &str, meaning: String| Offer { word: word.to_owned(), meaning };
    let (id, next) = (short(left.run_id.as_str()), NextStep::of(left));
    let again = if is_in_doubt { ", and the call in doubt," } else { "" };
    let offers = [
        offer("resume", resumes(left, standing, &next)),
        offer("new", format!("start another run; what that run did outside{again} may be done again")),
    ];
    let interrupted = Left {
        what: format!("nothing was started; run {id} is left as it is"),
        back: format!(
            "{} {}; the same command with `--new` starts another run",
            shortened(&next.who(), &[left.run_id.as_str()]),
            next.does()
        ),
        signal: AtSignal::Waits,
    };
    let doubt = if is_in_doubt { " Nobody knows what happened to a call that it sent." } else { "" };
    let room = crate::terminal::err_width();
    let why = why_it_stopped(left).map_or_else(String::new, |why| format!("{}\n", indented_to(&why, room)));
    let mut ask = format!(
        "Run {id} of this job {how}.{doubt}\n{why}{}Type a key or a word, then Enter (Enter alone: neither): ",
        offered(&offers, room)
    );
    loop {
        let Some(typed) = ask_line(&ask, &interrupted).await? else { return Ok(WhichRun::Neither) };
        let (word, rest) = typed.split_once(char::is_whitespace).unwrap_or((typed.as_str(), ""));
        let refused = match pick(word, &["resume", "new"]) {
            Picked::Nothing => return Ok(WhichRun::Neither),
            Picked::Unclear(why) => why,
            Picked::One(0) => {
                let flags = if rest.is_empty() { next.flags().unwrap_or_default() } else { rest };
                match changes(flags) {
                    Err(why) => why,
                    Ok(changes) => {
                        if is_meant(&changes.accept, &interrupted).await? {
                            return Ok(WhichRun::Resume(changes));
                        }
                        "nothing was accepted".to_owned()
                    }
                }
            }
            Picked::One(_) if rest.is_empty() => return Ok(WhichRun::New),
            Picked::One(_) => "nothing may follow `new`".to_owned(),
        };
        ask = format!("{refused}. Which one? ");
    }
}

/// What `resume` does with a run that stands like this.
fn resumes(left: &RunRecord, standing: &Standing, next: &NextStep) -> String {
    if left.end_mark().is_some() {
        return "end that run, as was asked for; the same command starts the job again then".to_owned();
    }
    match next.flags() {
        Some(flags) => format!("finish that run, with {flags} (or with what you type behind `resume`)"),
        None if next.needs_correction() => {
            "finish that run, once what stopped it is corrected; before that, it stops again".to_owned()
        }
        // Before it asks, it looks whether what shaped it is as it was.
        None if matches!(standing, Standing::Stored(RunStatus::WaitingForHuman, _)) => {
            "finish that run, which waits for an answer".to_owned()
        }
        None => "finish that run".to_owned(),
    }
}

/// Why a run stopped, with its instants and its id as people read them; `None` for one that is left otherwise.
fn why_it_stopped(left: &RunRecord) -> Option<String> {
    let why = left.status_detail.as_deref().filter(|_| left.status == RunStatus::Stopped)?;
    let why = crate::moment::in_sentence(why, ua_core::system::env().now());
    Some(shortened(&why, &[left.run_id.as_str()]).into_owned())
}

/// Whether what changed is to be accepted: who resumes a run may not have thought of it.
async fn is_meant(accepted: &[Component], left: &Left) -> Result<bool, HostError> {
    if accepted.is_empty() {
        return Ok(true);
    }
    let names: Vec<&str> = accepted.iter().map(|component| component.as_str()).collect();
    confirm(&format!("Accept what changed since that run started ({})?", names.join(", ")), left).await
}

/// What these flags change about a run; otherwise why they cannot be taken.
fn changes(flags: &str) -> Result<Changes, String> {
    let told = |error: &HostError| {
        error.hint_text().map_or_else(|| error.message().to_owned(), |hint| format!("{}: {hint}", error.message()))
    };
    let words = shlex::split(flags).ok_or_else(|| "a quote is not closed".to_owned())?;
    let typed =
        Flags::try_parse_from(words).map_err(|error| line(&crate::mistakes::said_by_the_parser(&error), 200))?;
    Ok(Changes {
        accept: accept::components(&typed.accept).map_err(|error| told(&error))?,
        budgets: typed.budgets.changes().map_err(|error| told(&error))?,
    })
}

#[cfg(test)]
mod tests {
    use ua_core::{BudgetStop, Money, RequestTokens, RunStop};
    use ua_evidence::testing::Story;

    use super::*;

    fn stopped(reason: RunStop, detail: &str) -> RunRecord {
        let mut story = Story::new(r#"{"objective": "x"}"#);
        story.ends(RunStatus::Stopped, Some(reason), detail);
        story.records.run
    }

    fn offer_of(run: &RunRecord) -> String {
        resumes(run, &Standing::Stored(run.status, run.stop_reason), &NextStep::of(run))
    }

    /// Whatever lifts a stop is said before somebody types the word, and is understood as it is said.
    #[test]
    fn what_lifts_a_stop_is_offered_and_read_as_it_is_printed() {
        let money = |text| Money::parse(text).unwrap();
        let next = RequestTokens { input: 830, output: 8_192, fitting: None };
        let changed = "policy changed since the run started. Accept it: `ua resume r --accept policy,tools`.";
        for (reason, detail, flags, accepts) in [
            (RunStop::Budget, BudgetStop::turns(1, 1).to_string(), "--max-turns +5", false),
            (
                RunStop::Budget,
                BudgetStop::cost(money("0.05"), money("0"), money("0.1352"), next).to_string(),
                "--max-cost '+0.09 USD'",
                false,
            ),
            (
                RunStop::Budget,
                BudgetStop::turns(2, 2).of_phase(Some("write")).to_string(),
                "--phase write --max-turns +5",
                false,
            ),
            (RunStop::Fingerprint, changed.to_owned(), "--accept policy,tools", true),
        ] {
            let run = stopped(reason, &detail);
            assert!(offer_of(&run).starts_with(&format!("finish that run, with {flags} ")), "{}", offer_of(&run));
            assert!(why_it_stopped(&run).is_some_and(|why| why.contains(detail.lines().next().unwrap())));
            let changes = changes(NextStep::of(&run).flags().unwrap()).unwrap();
            assert_eq!((changes.accept.is_empty(), changes.budgets.is_empty()), (!accepts, accepts), "{flags}");
        }
        let run = stopped(RunStop::Interrupt, "Ctrl-C");
        assert_eq!(offer_of(&run), "finish that run");
        let run = stopped(RunStop::Fingerprint, "the prompt changed");
        assert!(offer_of(&run).ends_with("before that, it stops again"));
        let mut run = run;
        (run.status, run.stop_reason) = (RunStatus::WaitingForHuman, None);
        assert_eq!(offer_of(&run), "finish that run, which waits for an answer");
        assert_eq!(why_it_stopped(&run), None);
    }

    #[test]
    fn what_is_typed_behind_the_word_is_read_as_a_shell_reads_it() {
        let read = |text| shlex::split(text).map(|words| words.join("|"));
        assert_eq!(read(""), Some(String::new()));
        assert_eq!(read("  --max-turns  +5 ").as_deref(), Some("--max-turns|+5"));
        assert_eq!(read("--max-cost '+1.50 USD' \"\"").as_deref(), Some("--max-cost|+1.50 USD|"));
        assert_eq!(read("--max-cost=\"+1 'USD'\"").as_deref(), Some("--max-cost=+1 'USD'"));
        assert_eq!(read("--max-cost '+1"), None);
        assert_eq!(changes("--max-turns +5").unwrap(), changes("--max-turns=+5").unwrap());
        assert_eq!(changes("").unwrap(), Changes::default());
        for (typed, why) in [
            ("--max-turns", "--max-turns"),
            ("--max-turns much", "cannot use --max-turns much"),
            ("--accept nothing", "there is no component `nothing`"),
            ("--accept model", "cannot be accepted"),
            ("--take-over", "--take-over"),
            ("+5", "+5"),
            ("'", "not closed"),
        ] {
            let said = changes(typed).unwrap_err();
            assert!(said.contains(why) && !said.contains('\n'), "{typed}: {said}");
        }
    }
}
