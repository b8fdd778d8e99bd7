//! Asking a person on the terminal: `ua answer` without arguments, and a run that would wait while somebody sits there.
//!
//! Durable Jobs v1 spec §6 (escalation). Invariants: what is asked about is shown escaped, with all arguments; the answer that is
//! chosen by pressing Enter is *later*; letting something run, or ending the run, is confirmed; an answer goes the same way as one
//! given with `ua answer`.

use std::io;

use dialoguer::{Confirm, Input, Select};
use serde_json::Value;
use ua_core::RunId;
use ua_host::people::Answer;
use ua_host::{Host, questions, tree};
use ua_store::{Choice, QuestionKind, QuestionRecord};

use crate::error::{HostError, OK, WAITING};
use crate::output::{line, plain, tell};
use crate::people::{AtTerminal, is_attended};

use super::answer::arguments_in_full;
use super::summary::word;

/// `ua answer` without a question: lists what is open, and asks about the one that is chosen.
pub(crate) async fn choose_and_answer(host: &Host) -> Result<u8, HostError> {
    let store = host.home().open_read_only()?;
    let open = questions::open(&store, None).await?;
    if open.is_empty() {
        tell("nothing waits for an answer");
        return Ok(OK);
    }
    if !is_attended() {
        let list: Vec<String> = open.iter().map(|q| format!("  {} {}", q.question_id, line(&q.text, 100))).collect();
        return Err(HostError::usage(format!("which question is answered? Open are\n{}", list.join("\n")))
            .hint("`ua answer QUESTION CHOICE`; `ua questions` shows what each of them takes"));
    }
    let chosen = if open.len() == 1 {
        Some(0)
    } else {
        let items: Vec<String> =
            open.iter().map(|q| format!("{} · {}", run_tail(&q.run_id), line(&q.text, 90))).collect();
        prompt(move || Select::new().with_prompt("Which question?").items(&items).default(0).interact_opt()).await?
    };
    let Some(question) = chosen.and_then(|index| open.into_iter().nth(index)) else { return Ok(WAITING) };
    drop(store);
    let store = host.home().open()?;
    let answered = questions::ask(host, &AtTerminal::default(), &store, &question).await?;
    let top = tree::top(&store, &question.run_id).await?;
    ua_host::home::close(store);
    Ok(report_answered(answered, &top))
}

/// Says how to go on and returns the exit code.
pub(crate) fn report_answered(is_answered: bool, top: &RunId) -> u8 {
    if is_answered {
        tell(format!("answered; go on with `ua resume {top}`"));
        OK
    } else {
        tell("left open");
        WAITING
    }
}

/// One line of the menu, and what it means.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Item {
    Choose(Choice),
    /// One of the answers that the model proposed.
    Say(String),
    Later,
}

/// Shows a question and takes its answer; `None` leaves it open.
pub(crate) async fn put(question: &QuestionRecord) -> Result<Option<Answer>, HostError> {
    tell(format!("\nQuestion {} · run {}", question.question_id, question.run_id));
    tell(indented(&question.text));
    if question.kind != QuestionKind::AskUser {
        tell(arguments_in_full(question).trim_end());
    }
    let menu = menu(question);
    loop {
        let labels: Vec<String> = menu.iter().map(|item| label(question.kind, item)).collect();
        let last = labels.len() - 1;
        let chosen =
            prompt(move || Select::new().with_prompt("Answer").items(&labels).default(last).interact_opt()).await?;
        let (choice, mut text) = match chosen.map(|index| menu[index].clone()) {
            None | Some(Item::Later) => return Ok(None),
            Some(Item::Say(option)) => (Choice::Continue, Some(option)),
            Some(Item::Choose(choice)) => (choice, None),
        };
        let mut proof = None;
        if choice == Choice::Happened {
            proof = words("The other side's id of it (empty for none)", true).await?;
        } else if question.kind == QuestionKind::AskUser && choice == Choice::Continue && text.is_none() {
            text = words("Your answer", false).await?;
        } else if question.kind == QuestionKind::Elicitation && choice == Choice::Continue {
            text = words("The values, as a JSON object (empty for the defaults)", true).await?;
            if let Err(why) = ua_ledger::check_elicited(question, text.as_deref()) {
                tell(format!("that does not do: {why}"));
                continue;
            }
        } else if choice == Choice::Skip
            && question.call_id.is_some()
            && !matches!(question.kind, QuestionKind::UnknownOutcome | QuestionKind::Elicitation)
        {
            text = words("What the model should know (empty for nothing)", true).await?;
        }
        if matches!(choice, Choice::Execute | Choice::Abort) {
            let ask = if choice == Choice::Abort { "End the run?" } else { "Let it run?" };
            let is_sure = prompt(move || Confirm::new().with_prompt(ask).default(false).interact_opt()).await?;
            if is_sure != Some(true) {
                continue;
            }
        }
        return Ok(Some(Answer { choice, proof, text }));
    }
}

fn menu(question: &QuestionRecord) -> Vec<Item> {
    let options = question.detail.get("options").and_then(Value::as_array).into_iter().flatten();
    let options = options.filter_map(Value::as_str).map(|option| Item::Say(option.to_owned()));
    options.chain(question.choices.iter().copied().map(Item::Choose)).chain([Item::Later]).collect()
}

fn label(kind: QuestionKind, item: &Item) -> String {
    let choice = match item {
        Item::Say(option) => return line(option, 100),
        Item::Later => return "later    leave it open".to_owned(),
        Item::Choose(choice) => *choice,
    };
    let meaning = match (choice, kind) {
        (Choice::Happened, _) => "it happened",
        (Choice::Execute, QuestionKind::UnknownOutcome) => "it did not happen: do it (again)",
        (Choice::Execute, _) => "let it run",
        (Choice::Skip, QuestionKind::AskUser) => "let the model decide",
        (Choice::Skip, QuestionKind::Elicitation) => "decline: the tool is told no",
        (Choice::Continue, QuestionKind::Elicitation) => "accept",
        (Choice::Skip, QuestionKind::UnknownOutcome) => "nobody knows; go on without it",
        (Choice::Skip, _) => "do not do it; the model is told",
        (Choice::Abort, _) => "end the run",
        (Choice::Continue, QuestionKind::AskUser) => "answer in your own words",
        (Choice::Continue, _) => "go on",
    };
    format!("{:<9}{meaning}", word(choice))
}

fn indented(text: &str) -> String {
    plain(text.trim()).lines().map(|line| format!("  {line}")).collect::<Vec<_>>().join("\n")
}

async fn words(prompt_text: &'static str, may_be_empty: bool) -> Result<Option<String>, HostError> {
    let asked = move || Input::<String>::new().with_prompt(prompt_text).allow_empty(may_be_empty).interact_text();
    let text = prompt(asked).await?;
    Ok(Some(text.trim().to_owned()).filter(|text| !text.is_empty()))
}

/// Runs a prompt where it may block.
pub(super) async fn prompt<T: Send + 'static>(
    ask: impl FnOnce() -> dialoguer::Result<T> + Send + 'static,
) -> Result<T, HostError> {
    let asked = tokio::task::spawn_blocking(ask).await;
    let failed = |why: String| HostError::failed(format!("cannot ask on this terminal: {why}"));
    match asked {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(dialoguer::Error::IO(error))) if error.kind() == io::ErrorKind::Interrupted => {
            Err(HostError::waiting("nothing was answered").hint("`ua answer` asks again; the question stays open"))
        }
        Ok(Err(error)) => Err(failed(error.to_string()).hint("use `ua answer QUESTION CHOICE`, or `--no-input`")),
        Err(error) => Err(failed(error.to_string())),
    }
}

/// The end of a run's id, which tells it from others.
fn run_tail(run: &RunId) -> String {
    let text = run.as_str();
    let start = text.char_indices().rev().nth(7).map_or(0, |(at, _)| at);
    text[start..].to_owned()
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use ua_store::QuestionStatus;

    use super::*;

    fn question(kind: QuestionKind, choices: Vec<Choice>, detail: Value) -> QuestionRecord {
        QuestionRecord {
            question_id: ua_core::QuestionId::parse("q_1").unwrap(),
            run_id: RunId::parse("run_1").unwrap(),
            call_id: None,
            kind,
            text: "t".into(),
            detail,
            choices,
            created_at: ua_core::Env::simulated(1).now(),
            status: QuestionStatus::Open,
            answer: None,
            closed_because: None,
        }
    }

    #[test]
    fn what_enter_chooses_is_later() {
        let approval = question(QuestionKind::Approval, vec![Choice::Execute, Choice::Skip], Value::Null);
        let items = menu(&approval);
        assert_eq!(items, [Item::Choose(Choice::Execute), Item::Choose(Choice::Skip), Item::Later]);
        let options = json!({"options": ["red\u{1b}[2J", "blue"]});
        let asked = question(QuestionKind::AskUser, vec![Choice::Continue, Choice::Skip], options);
        let labels: Vec<String> = menu(&asked).iter().map(|item| label(asked.kind, item)).collect();
        assert_eq!(labels[0], "red\\u{1b}[2J");
        assert_eq!(labels[2], "continue answer in your own words");
        assert_eq!(labels.len(), 5);
    }
}
