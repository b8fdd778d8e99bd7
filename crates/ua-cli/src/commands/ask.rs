//! Asking a person on the terminal: `ua answer` without arguments, and a run that would wait while somebody sits there.
//!
//! Durable Jobs v1 spec §6 (escalation). Invariants: what is asked about is shown escaped, with all arguments; Enter alone is *later*;
//! letting something run, or ending the run, is confirmed, and *no* to that asks again; an answer goes the same way as one given with
//! `ua answer`.

use serde_json::Value;
use ua_host::people::WhichRun;
use ua_host::questions::{KnownFact, WayToAnswer};
use ua_host::{Host, job, questions};
use ua_resume::answers::ways;
use ua_store::{Answer, Choice, QuestionKind, QuestionRecord, RunRecord};

use crate::error::{HostError, OK, WAITING};
use crate::ids::short;
use crate::output::{line, plain, tell};
use crate::people::{AtTerminal, is_attended};
use crate::prompt::{Left, Offer, Picked, ask_line, confirm, offered, pick};

use super::answer::arguments_in_full;
use super::summary::{known_lines, told};

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
        return Err(HostError::usage(format!("name the question; these are open:\n{}", list.join("\n")))
            .hint("`ua answer QUESTION CHOICE`; `ua questions` shows what each of them takes"));
    }
    let Some(question) = which(&open).await? else { return Ok(WAITING) };
    drop(store);
    let store = host.home().open()?;
    let answered = questions::ask(host, &AtTerminal::default(), &store, &question).await?;
    let then = questions::after_answer(&store, &question.run_id).await?;
    ua_host::home::close(store);
    Ok(report_answered(answered, &then))
}

/// The question that somebody chooses among those that are open.
async fn which(open: &[QuestionRecord]) -> Result<Option<QuestionRecord>, HostError> {
    if let [only] = open {
        return Ok(Some(only.clone()));
    }
    let about = |q: &QuestionRecord| format!("{} · {}", short(q.run_id.as_str()), line(&q.text, 90));
    let offers: Vec<Offer> =
        (1..).zip(open).map(|(number, q)| Offer { word: number.to_string(), meaning: about(q) }).collect();
    let mut ask = format!(
        "Open questions\n{}Which one? Type its number, then Enter (Enter alone: none): ",
        offered(&offers, crate::terminal::err_width())
    );
    let left = Left {
        what: format!("nothing was answered; {} are left open", ua_core::counted(open.len(), "question")),
        back: "`ua answer` asks again, `ua questions` shows them".to_owned(),
    };
    loop {
        let Some(typed) = ask_line(&ask, &left).await?.filter(|typed| !typed.is_empty()) else { return Ok(None) };
        let chosen = typed.parse::<usize>().ok().and_then(|number| open.get(number.checked_sub(1)?));
        if let Some(question) = chosen {
            return Ok(Some(question.clone()));
        }
        ask = format!("type a number from 1 to {}: ", open.len());
    }
}

/// Asks what is to become of a job of which an earlier run is not finished.
pub(crate) async fn which_run(left: &RunRecord) -> Result<WhichRun, HostError> {
    let offer = |word: &str, meaning: &str| Offer { word: word.to_owned(), meaning: meaning.to_owned() };
    let offers = [
        offer("resume", "finish that run"),
        offer("new", "start another run; what that run did outside may be done again"),
    ];
    let id = short(left.run_id.as_str());
    let interrupted = Left {
        what: format!("nothing was started; run {id} is left as it is"),
        back: format!("`ua resume {id}` finishes it; the same command with `--new` starts another run"),
    };
    let mut ask = format!(
        "Run {id} of this job {}.\n{}Type a key or a word, then Enter (Enter alone: neither): ",
        job::left_as(left),
        offered(&offers, crate::terminal::err_width())
    );
    loop {
        let Some(typed) = ask_line(&ask, &interrupted).await? else { return Ok(WhichRun::Neither) };
        match pick(&typed, &["resume", "new"]) {
            Picked::One(0) => return Ok(WhichRun::Resume),
            Picked::One(_) => return Ok(WhichRun::New),
            Picked::Nothing => return Ok(WhichRun::Neither),
            Picked::Unclear(why) => ask = format!("{why}. Which one? "),
        }
    }
}

/// Says what is next and returns the exit code.
pub(crate) fn report_answered(is_answered: bool, then: &str) -> u8 {
    if is_answered {
        tell(then);
        OK
    } else {
        tell("left open");
        WAITING
    }
}

/// One line of the menu.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Item {
    Choose(WayToAnswer),
    /// To a tool that asks: neither yes nor no.
    Cancel,
    /// One of the answers that the model proposed, by its number.
    Say(usize, String),
    /// An answer to the model that was typed where a key was asked for.
    Typed(String),
    Later,
}

impl Item {
    /// What is typed for it.
    fn word(&self) -> String {
        match self {
            Self::Choose(way) if way.word == "text" => "words".to_owned(),
            Self::Choose(way) => way.word.to_owned(),
            Self::Cancel => "cancel".to_owned(),
            Self::Say(number, _) => number.to_string(),
            Self::Typed(text) => text.clone(),
            Self::Later => "later".to_owned(),
        }
    }

    fn meaning(&self) -> String {
        match self {
            Self::Choose(way) => way.meaning.to_owned(),
            Self::Cancel => "the tool is told that nobody decided".to_owned(),
            Self::Say(_, option) => line(option, 100),
            Self::Typed(_) => "the answer".to_owned(),
            Self::Later => "leave it open".to_owned(),
        }
    }
}

/// Shows a question and takes its answer; `None` leaves it open.
pub(crate) async fn put(question: &QuestionRecord, known: &[KnownFact]) -> Result<Option<Answer>, HostError> {
    let menu = menu(question);
    let mut before = shown(question, known);
    let left = left_open(question);
    loop {
        let takes_words = question.kind == QuestionKind::AskUser;
        let Some(item) = choose(&before, &menu, takes_words, &left).await? else { return Ok(None) };
        let answer = match item {
            Item::Later => return Ok(None),
            Item::Say(_, option) => Ok(Answer::new(Choice::Continue).text(option)),
            Item::Typed(text) => {
                // A mistyped key is no answer to the model.
                if confirm(&format!("Answer {:?}?", line(&text, 200)), &left).await? {
                    Ok(Answer::new(Choice::Continue).text(text))
                } else {
                    Err(String::new())
                }
            }
            Item::Cancel => Ok(Answer::new(Choice::Skip).text(ua_ledger::CANCEL)),
            Item::Choose(way) => details(question, &way, &left).await?,
        };
        match answer {
            Ok(answer) => return Ok(Some(answer)),
            Err(why) => before = format!("{why}\n"),
        }
    }
}

/// What is left of a question that somebody leaves with Ctrl-C.
fn left_open(question: &QuestionRecord) -> Left {
    let (id, run) = (short(question.question_id.as_str()), short(question.run_id.as_str()));
    Left {
        what: format!("nothing was answered; question {id} is left open, and run {run} waits for it"),
        back: format!("`ua answer {id}` asks again, then `ua resume {run}`"),
    }
}

/// The question and what is known about it, as they stand above the answers.
fn shown(question: &QuestionRecord, known: &[KnownFact]) -> String {
    let (id, run) = (short(question.question_id.as_str()), short(question.run_id.as_str()));
    let mut text = format!("\nQuestion {id} · run {run}\n");
    let arguments = if question.kind == QuestionKind::AskUser { String::new() } else { arguments_in_full(question) };
    text.push_str(&format!("{}\n", indented(&told(&without_arguments(&question.text, !arguments.is_empty())))));
    text.push_str(&arguments);
    text.push_str(&known_lines(known));
    text.push('\n');
    text
}

/// The text of a question, without what stands below it: its arguments in full, and how a form is filled in here.
fn without_arguments(text: &str, are_below: bool) -> String {
    let is_below = |line: &&str| {
        (are_below && line.starts_with("Arguments: ")) || line.starts_with("Answer `accept` with --values")
    };
    text.lines().filter(|line| !is_below(line)).collect::<Vec<_>>().join("\n")
}

/// Shows the menu below `before` until something of it was typed, or something else where words are an answer.
async fn choose(before: &str, menu: &[Item], takes_words: bool, left: &Left) -> Result<Option<Item>, HostError> {
    let offers: Vec<Offer> = menu.iter().map(|item| Offer { word: item.word(), meaning: item.meaning() }).collect();
    let words: Vec<&str> = offers.iter().map(|offer| offer.word.as_str()).collect();
    let mut ask = format!(
        "{before}{}Answer: type a key or a word, then Enter (Enter alone: later): ",
        offered(&offers, crate::terminal::err_width())
    );
    loop {
        let Some(typed) = ask_line(&ask, left).await? else { return Ok(None) };
        match pick(&typed, &words) {
            Picked::One(at) => return Ok(menu.get(at).cloned()),
            Picked::Nothing => return Ok(None),
            Picked::Unclear(_) if takes_words => return Ok(Some(Item::Typed(typed))),
            Picked::Unclear(why) => ask = format!("{why}. Answer: "),
        }
    }
}

/// What goes with an answer, and whether it is meant; otherwise why it is asked again.
async fn details(
    question: &QuestionRecord,
    way: &WayToAnswer,
    left: &Left,
) -> Result<Result<Answer, String>, HostError> {
    let words = async |ask: &str| Ok::<_, HostError>(ask_line(ask, left).await?.filter(|text| !text.is_empty()));
    let mut answer = Answer::new(way.choice);
    match way.word {
        "happened" => answer.proof = words("Provider's id, if any: ").await?,
        "text" => {
            answer.text = words("Your answer: ").await?;
            if answer.text.is_none() {
                return Ok(Err("nothing was typed".to_owned()));
            }
        }
        "accept" => {
            answer.text = super::form::fill(question, left).await?;
            if answer.text.is_none() {
                return Ok(Err("the form was not filled in".to_owned()));
            }
            if let Err(why) = ua_ledger::check_elicited(question, answer.text.as_deref()) {
                return Ok(Err(format!("the tool cannot take that: {}", plain(&why))));
            }
        }
        "skip" if question.call_id.is_some() && question.kind != QuestionKind::UnknownOutcome => {
            answer.text = words("What the model should know (Enter for nothing): ").await?;
        }
        "retry" if question.call_id.is_none() => {
            answer.text = words("What the model should know (Enter for nothing): ").await?;
        }
        _ => {}
    }
    let ask = match way.word {
        "abort" => "End the run?",
        "approve" => "Let it run?",
        "retry" if question.kind == QuestionKind::UnknownOutcome => "Send it again?",
        _ => return Ok(Ok(answer)),
    };
    Ok(if confirm(ask, left).await? { Ok(answer) } else { Err(String::new()) })
}

fn menu(question: &QuestionRecord) -> Vec<Item> {
    let options = question.detail.get("options").and_then(Value::as_array).into_iter().flatten();
    let options = (1..).zip(options.filter_map(Value::as_str)).map(|(number, text)| Item::Say(number, text.to_owned()));
    let mut menu: Vec<Item> = options.chain(ways(question).into_iter().map(Item::Choose)).collect();
    if question.kind == QuestionKind::Elicitation {
        let behind = menu.iter().position(|item| item.word() == "decline").map_or(menu.len(), |at| at + 1);
        menu.insert(behind, Item::Cancel);
    }
    menu.push(Item::Later);
    menu
}

fn indented(text: &str) -> String {
    plain(text.trim()).lines().map(|line| format!("  {line}")).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use ua_store::QuestionStatus;

    use super::*;

    fn question(kind: QuestionKind, choices: Vec<Choice>, detail: Value) -> QuestionRecord {
        QuestionRecord {
            question_id: ua_core::QuestionId::parse("q_1").unwrap(),
            run_id: ua_core::RunId::parse("run_1").unwrap(),
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

    fn words_of(question: &QuestionRecord) -> Vec<String> {
        menu(question).iter().map(Item::word).collect()
    }

    #[test]
    fn a_menu_has_the_words_of_its_question_and_later() {
        let approval = question(QuestionKind::Approval, vec![Choice::Execute, Choice::Skip], Value::Null);
        assert_eq!(words_of(&approval), ["approve", "skip", "later"]);
        let options = json!({"options": ["red\u{1b}[2J", "blue"]});
        let asked = question(QuestionKind::AskUser, vec![Choice::Continue, Choice::Skip], options);
        assert_eq!(words_of(&asked), ["1", "2", "words", "skip", "later"]);
        assert_eq!(menu(&asked)[0].meaning(), "red\\u{1b}[2J");
        let choices = vec![Choice::Continue, Choice::Skip, Choice::Abort];
        let elicited = question(QuestionKind::Elicitation, choices, Value::Null);
        assert_eq!(words_of(&elicited), ["accept", "decline", "cancel", "abort", "later"]);
    }
}
