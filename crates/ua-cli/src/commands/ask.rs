//! Asking a person on the terminal: `ua answer` without arguments, and a run that would wait while somebody sits there.
//!
//! Durable Jobs v1 spec §6 (escalation). Invariants: what is asked about is shown escaped, with all arguments; Enter alone is *later*;
//! what cannot be taken back (something is sent, or held to have happened, or the run ends) is confirmed, and *no* to that asks again; an
//! answer goes the same way as one given with `ua answer`.

use std::collections::BTreeSet;

use serde_json::Value;
use ua_host::questions::{Asked, Beside, Reach, WayToAnswer, chosen};
use ua_host::{Host, questions};
use ua_resume::answers::{Whose, option_meant, options, ways, words};
use ua_store::{Answer, Choice, QuestionKind, QuestionRecord, RunStore as _, Store as _};

use crate::error::{HostError, OK, WAITING};
use crate::ids::short;
use crate::output::{line, plain, print_json, tell};
use crate::people::{AtTerminal, is_attended};
use crate::prompt::{AtSignal, Left, Offer, Picked, ask_line, confirm, is_keyed, offered, pick};
use crate::view::Answered;

use super::answer::{NOTHING_WAITS, arguments_in_full, nothing_waits, report, tell_of_the_gateway, word_of_answer};
use super::form::Filled;
use super::summary::{indented_to, known_lines, look_at, told, with_effects, words_of};

/// `ua answer` without a question: lists what is open, and asks about the one that is chosen.
pub(crate) async fn choose_and_answer(host: &Host) -> Result<u8, HostError> {
    if host.home().is_unused() {
        return nothing_is_open(host, NOTHING_WAITS).await;
    }
    let store = host.home().open_read_only()?;
    let open = questions::open(&store, None).await?;
    if open.is_empty() {
        return nothing_is_open(host, &nothing_waits(host, &store).await?).await;
    }
    if !is_attended() {
        return Err(unnamed(&open));
    }
    ua_host::home::close(store);
    ask_all_here(host, open).await
}

/// Says that no question is open here; where some of the gateway are, which.
async fn nothing_is_open(host: &Host, said: &str) -> Result<u8, HostError> {
    if crate::terminal::is_json() {
        print_json(&Answered { question_id: None, run_id: None, choice: None })?;
    } else if !tell_of_the_gateway(host).await {
        tell(said);
    }
    Ok(OK)
}

/// That whoever is not at a terminal has to name the question: those that are open, and what each takes.
fn unnamed(open: &[QuestionRecord]) -> HostError {
    let row = |question: &QuestionRecord| {
        let (id, asks) = (&question.question_id, line(&words_of(question), WHOLE));
        format!("\n  {id} {asks}\n    takes {}", words(question))
    };
    let rows: String = open.iter().map(row).collect();
    HostError::usage(format!("name the question; these are open:{rows}"))
        .hint("`ua answer QUESTION ANSWER` answers one; `ua questions` shows what is known about each")
}

/// Asks about the questions that are `open`, in the order that the person chooses, until none is left or the person leaves. Those that are asked
/// meanwhile are among them; one that was left open once is not offered again.
async fn ask_all_here(host: &Host, mut open: Vec<QuestionRecord>) -> Result<u8, HostError> {
    let (mut answered, mut left) = (0_usize, BTreeSet::new());
    while !open.is_empty() {
        let store = host.home().open_read_only()?;
        let mut objectives = Vec::with_capacity(open.len());
        for question in &open {
            let run = store.run(&question.run_id).await.map_err(|e| HostError::store("read the run", &e))?;
            objectives.push((Whose::of(&run) == Whose::SubAgent, run.spec.objective.clone()));
        }
        ua_host::home::close(store);
        let Some(question) = which(&open, &objectives).await? else {
            tell(left_unanswered(answered, open.len() + left.len()));
            if crate::terminal::is_json() {
                print_json(&Answered { question_id: None, run_id: None, choice: None })?;
            }
            return Ok(WAITING);
        };
        if ask_here(host, &question).await? == OK {
            answered += 1;
        } else {
            left.insert(question.question_id);
        }
        // One object is what a machine waits for.
        if crate::terminal::is_json() {
            break;
        }
        let store = host.home().open_read_only()?;
        open = questions::open(&store, None).await?;
        ua_host::home::close(store);
        open.retain(|question| !left.contains(&question.question_id));
    }
    Ok(if left.is_empty() { OK } else { WAITING })
}

/// Asks about one question, and says what is next.
pub(crate) async fn ask_here(host: &Host, question: &QuestionRecord) -> Result<u8, HostError> {
    let store = host.home().open_from_anywhere()?;
    let asked = questions::ask(host, &AtTerminal::default(), &store, question).await?;
    let code = match asked {
        Asked::Answered | Asked::Settled => {
            let then = super::cancel::after_answer(host, &store, &question.run_id).await?;
            tell(crate::ids::in_sentence(&then).as_ref());
            OK
        }
        Asked::LeftOpen => {
            tell("left open");
            WAITING
        }
    };
    let current = store.question(&question.question_id).await.map_err(|e| HostError::store("read the question", &e));
    ua_host::home::close(store);
    report(question, current?.answer.as_ref().map(|answer| word_of_answer(question.kind, answer)))?;
    Ok(code)
}

/// More than any question has: where nobody sits at a terminal nothing is cut.
const WHOLE: usize = 10_000;

/// A question in the list of those that are open: its id, which `ua answer` takes, what it asks, and what its run is for.
fn in_a_list(question: &QuestionRecord, is_of_sub_agent: bool, objective: &str) -> String {
    let (id, run) = (short(question.question_id.as_str()), short(question.run_id.as_str()));
    // What stands below its first line are its answers or its arguments.
    let told = words_of(question);
    let first = told.trim().lines().next().unwrap_or_default();
    let whose = if is_of_sub_agent { "sub-agent" } else { "run" };
    format!("{id} · {} · {whose} {run}: {}", line(first, 90), line(objective, 60))
}

/// What whoever chooses none of the open questions is told.
fn left_unanswered(answered: usize, open: usize) -> String {
    let done = if answered == 0 { "nothing".to_owned() } else { ua_core::counted(answered, "question") };
    let (was, are) = (if answered > 1 { "were" } else { "was" }, if open == 1 { "is" } else { "are" });
    format!("{done} {was} answered; {} {are} left open", ua_core::counted(open, "question"))
}

/// The question that somebody chooses among those that are open; `objectives` are those of their runs, and whether each is a sub-agent's.
async fn which(open: &[QuestionRecord], objectives: &[(bool, String)]) -> Result<Option<QuestionRecord>, HostError> {
    if let [only] = open {
        return Ok(Some(only.clone()));
    }
    let about = open
        .iter()
        .zip(objectives)
        .map(|(question, (is_of_sub_agent, objective))| in_a_list(question, *is_of_sub_agent, objective));
    let offers: Vec<Offer> =
        (1..).zip(about).map(|(number, meaning): (usize, _)| Offer { word: number.to_string(), meaning }).collect();
    let mut ask = format!(
        "Open questions\n{}Which one? Type its number, then Enter (Enter alone: none): ",
        offered(&offers, crate::terminal::err_width())
    );
    let left = Left {
        what: left_unanswered(0, open.len()),
        back: "`ua answer` asks again, `ua questions` shows them".to_owned(),
        signal: AtSignal::Waits,
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

/// One line of the menu.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Item {
    Choose(WayToAnswer),
    /// One of the answers that the model proposed, and what is typed for it: its number, unless another one reads like that.
    Say(String, String),
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
            Self::Say(word, _) => word.clone(),
            Self::Typed(text) => text.clone(),
            Self::Later => "later".to_owned(),
        }
    }

    fn meaning(&self) -> String {
        match self {
            Self::Choose(way) => way.meaning.to_owned(),
            Self::Say(_, option) => line(option, 100),
            Self::Typed(_) => "the answer".to_owned(),
            Self::Later => "leave it open".to_owned(),
        }
    }
}

/// Shows a question and takes its answer; `None` leaves it open.
pub(crate) async fn put(question: &QuestionRecord, beside: &Beside) -> Result<Option<Answer>, HostError> {
    let menu = menu(question, beside.reach);
    let mut before = shown(question, beside);
    let left = left_open(question, beside);
    let mut typed = serde_json::Map::new();
    loop {
        let Some(item) = choose(question, &before, &menu, &left).await? else { return Ok(None) };
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
            Item::Choose(way) => details(question, &way, beside.reach, &mut typed, &left).await?,
        };
        match answer {
            Ok(answer) => return Ok(Some(answer)),
            Err(why) => before = format!("{why}\n"),
        }
    }
}

/// What is left of a question that somebody leaves with Ctrl-C. A tool that waits on the connection of this process cannot be kept waiting: the
/// signal stops the run, and with it the question is over.
fn left_open(question: &QuestionRecord, beside: &Beside) -> Left {
    let (id, run) = (short(question.question_id.as_str()), short(question.run_id.as_str()));
    let open = format!("nothing was answered; question {id} is left open");
    let again = format!("`ua answer {id}` asks again");
    let resume = &beside.resume;
    let (what, back, signal) = match beside.reach {
        // Nobody resumes it.
        Reach::Session | Reach::EndedSession => (open, again, AtSignal::Waits),
        Reach::Nobody | Reach::NobodyInSubAgent => (
            open,
            format!("{resume}: that decides about the call, and the tool asks again if the call is made again"),
            AtSignal::Waits,
        ),
        Reach::Run | Reach::SubAgent if question.waits_on_its_connection() && beside.drives => (
            "nothing was answered; the tool is told that no decision was made, and the run stops".to_owned(),
            format!("{resume}: that continues with what the tool made of it; it asks again only in another call"),
            AtSignal::Stops,
        ),
        Reach::Run | Reach::SubAgent if question.waits_on_its_connection() => (
            format!("{open}, and a tool waits for it"),
            format!("{again}; its request is declined if nobody answers in time"),
            AtSignal::Waits,
        ),
        Reach::Run | Reach::SubAgent => {
            let whose = beside.reach.whose();
            (format!("{open}, and {whose} {run} waits for it"), format!("{again}, then {resume}"), AtSignal::Waits)
        }
    };
    Left { what, back, signal }
}

/// The question and what is known about it, as they stand above the answers.
fn shown(question: &QuestionRecord, beside: &Beside) -> String {
    let (id, run) = (short(question.question_id.as_str()), short(question.run_id.as_str()));
    let of = beside.reach.whose();
    let mut text = format!("\nQuestion {id} · {of} {run}\n");
    let room = crate::terminal::err_width();
    let is_ask = question.kind == QuestionKind::AskUser;
    let arguments = if is_ask { String::new() } else { arguments_in_full(question, "  ", room) };
    text.push_str(&format!(
        "{}\n",
        indented_to(&told(question, &without_arguments(&question.text, !arguments.is_empty())), room)
    ));
    text.push_str(&arguments);
    text.push_str(&known_lines(&beside.known, room));
    if let Some(call) = &question.call_id {
        text.push_str(&look_at(call));
    }
    if let Some(remark) = beside.reach.remark() {
        text.push_str(&format!("{}\n", indented_to(remark, room)));
    }
    text.push('\n');
    text
}

/// The text of a question, without the arguments where they stand below it in full.
fn without_arguments(text: &str, are_below: bool) -> String {
    if !are_below {
        return text.to_owned();
    }
    let lines = text.lines().filter(|line| !line.starts_with("Arguments: "));
    with_effects(&lines.collect::<Vec<_>>().join("\n"))
}

/// Shows the menu below `before` until something of it was typed, or something else where words are an answer.
async fn choose(
    question: &QuestionRecord,
    before: &str,
    menu: &[Item],
    left: &Left,
) -> Result<Option<Item>, HostError> {
    let offers: Vec<Offer> = menu.iter().map(|item| Offer { word: item.word(), meaning: item.meaning() }).collect();
    let words: Vec<&str> = offers.iter().map(|offer| offer.word.as_str()).collect();
    let mut ask = format!(
        "{before}{}Answer: type a key or a word, then Enter (Enter alone: later): ",
        offered(&offers, crate::terminal::err_width())
    );
    loop {
        let Some(typed) = ask_line(&ask, left).await? else { return Ok(None) };
        let option = || proposed(question, menu, &typed);
        match pick(&typed, &words) {
            // What the model proposed counts before the beginning of a word that is no key.
            Picked::One(at) if option().is_some() && !is_keyed(&typed, words[at]) => return Ok(option()),
            Picked::One(at) => return Ok(menu.get(at).cloned()),
            Picked::Nothing => return Ok(None),
            Picked::Unclear(_) if option().is_some() => return Ok(option()),
            Picked::Unclear(_) if question.kind == QuestionKind::AskUser => return Ok(Some(Item::Typed(typed))),
            Picked::Unclear(why) => match meant_by_older_word(question, menu, &typed) {
                Some(item) => return Ok(Some(item)),
                None => ask = format!("{why}. Answer: "),
            },
        }
    }
}

/// The option of the model's that was typed where a key was asked for, by the rule of `ua answer`.
fn proposed(question: &QuestionRecord, menu: &[Item], typed: &str) -> Option<Item> {
    let meant = option_meant(question, typed)?;
    menu.iter().find(|item| matches!(item, Item::Say(_, option) if option == meant)).cloned()
}

/// What an older word stands for that `ua answer` takes (`deny`), among what this question offers.
fn meant_by_older_word(question: &QuestionRecord, menu: &[Item], typed: &str) -> Option<Item> {
    let choice = chosen(question, &typed.to_lowercase())?;
    menu.iter().find(|item| matches!(item, Item::Choose(way) if way.choice == choice)).cloned()
}

/// What goes with an answer, and whether it is meant; otherwise why it is asked again. `typed` is what stands in the form of a tool that asks.
async fn details(
    question: &QuestionRecord,
    way: &WayToAnswer,
    reach: Reach,
    typed: &mut serde_json::Map<String, Value>,
    left: &Left,
) -> Result<Result<Answer, String>, HostError> {
    let words = async |ask: &str| Ok::<_, HostError>(ask_line(ask, left).await?.filter(|text| !text.is_empty()));
    let mut answer = Answer::new(way.choice);
    // Before what goes with it is asked for: whoever expects to be asked whether it is meant types a `y` there.
    if let Some(ask) = is_meant(question, way, reach)
        && !confirm(ask, left).await?
    {
        return Ok(Err(String::new()));
    }
    match way.word {
        // What an earlier call did has its receipt.
        "happened" if question.kind == QuestionKind::NearDuplicate => {}
        // What one of several did proves nothing of the others.
        "happened" if ua_store::rules::said_by_happened(question).len() > 1 => {}
        "happened" => answer.proof = proof(left).await?,
        QuestionRecord::CANCEL => answer.text = Some(QuestionRecord::CANCEL.to_owned()),
        "text" => {
            answer.text = words("Your answer: ").await?;
            if let Some(option) = answer.text.as_deref().and_then(|typed| option_meant(question, typed)) {
                answer.text = Some(option.to_owned());
            }
            if answer.text.is_none() {
                return Ok(Err("nothing was typed".to_owned()));
            }
        }
        "accept" => match super::form::fill(question, typed, left).await? {
            Filled::Values(values) => answer.text = Some(values),
            Filled::Not(why) => return Ok(Err(why)),
        },
        "skip" if question.call_id.is_some() && question.kind != QuestionKind::UnknownOutcome => {
            answer.text = words("What the model should know (Enter for nothing): ").await?;
        }
        // Where credentials or a process were in the way, there is nothing that a model is told.
        "retry" if matches!(question.kind, QuestionKind::RepeatedFailures | QuestionKind::MissingEvidence) => {
            answer.text = words("What the model should know (Enter for nothing): ").await?;
        }
        _ => {}
    }
    Ok(Ok(answer))
}

/// How it is asked whether an answer is meant that cannot be taken back; `None` for one that changes nothing outside.
fn is_meant(question: &QuestionRecord, way: &WayToAnswer, reach: Reach) -> Option<&'static str> {
    match way.word {
        "abort" if reach.is_session() => Some("End this session?"),
        "abort" if reach.is_sub_agent() => Some("End this sub-agent only? The run above it continues."),
        "abort" => Some("End the run?"),
        "approve" => Some("Let it run?"),
        "happened" if question.kind == QuestionKind::NearDuplicate => {
            Some("Use the answer of the earlier call, and never send this one?")
        }
        "happened" => Some("Record that it happened, and never send it again?"),
        "retry" if question.kind == QuestionKind::UnknownOutcome => Some("Send it again?"),
        _ => None,
    }
}

/// The other side's name of what happened. A yes or a no is none: it answers another question.
async fn proof(left: &Left) -> Result<Option<String>, HostError> {
    const ASK: &str = "The id that the other side gave it, as proof (Enter for none): ";
    let mut ask = ASK.to_owned();
    loop {
        let Some(typed) = ask_line(&ask, left).await?.filter(|text| !text.is_empty()) else { return Ok(None) };
        if !is_yes_or_no(&typed) {
            return Ok(Some(typed));
        }
        ask = format!("`{}` is not an id. {ASK}", plain(&typed));
    }
}

fn is_yes_or_no(typed: &str) -> bool {
    ["y", "yes", "n", "no"].iter().any(|word| typed.trim().eq_ignore_ascii_case(word))
}

fn menu(question: &QuestionRecord, reach: Reach) -> Vec<Item> {
    // What is typed is an option before it is a number.
    let word = |number: usize, text: &str| {
        let number = number.to_string();
        if option_meant(question, &number) == Some(text) { number } else { line(text, 100) }
    };
    let options = (1..).zip(options(question)).map(|(number, text)| Item::Say(word(number, text), text.to_owned()));
    let mut menu: Vec<Item> = options.chain(ways(question, reach).into_iter().map(Item::Choose)).collect();
    menu.push(Item::Later);
    menu
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
        menu(question, Reach::Run).iter().map(Item::word).collect()
    }

    #[test]
    fn a_menu_has_the_words_of_its_question_and_later() {
        let approval = question(QuestionKind::Approval, vec![Choice::Execute, Choice::Skip], Value::Null);
        assert_eq!(words_of(&approval), ["approve", "skip", "later"]);
        let options = json!({"options": ["red\u{1b}[2J", "blue"]});
        let asked = question(QuestionKind::AskUser, vec![Choice::Continue, Choice::Skip], options);
        assert_eq!(words_of(&asked), ["1", "2", "words", "skip", "later"]);
        assert_eq!(menu(&asked, Reach::Run)[0].meaning(), "red\\u{1b}[2J");
        // A number that is an option itself stands for that: the first one is not offered by its number.
        let numbers = QuestionRecord { detail: json!({"options": ["10", "1", "red"]}), ..asked };
        assert_eq!(words_of(&numbers), ["10", "2", "3", "words", "skip", "later"]);
        let all = menu(&numbers, Reach::Run);
        for (typed, meant) in [("1", Some("1")), ("RED", Some("red")), ("99", None)] {
            let option = proposed(&numbers, &all, typed).map(|item| item.meaning());
            assert_eq!(option.as_deref(), meant, "{typed}");
        }
        let choices = vec![Choice::Continue, Choice::Skip, Choice::Abort];
        let elicited = question(QuestionKind::Elicitation, choices, Value::Null);
        assert_eq!(words_of(&elicited), ["accept", "decline", "cancel", "abort", "later"]);
    }

    #[test]
    fn whoever_ends_a_sub_agent_is_told_before_that_its_run_continues() {
        let choices = vec![Choice::Execute, Choice::Skip, Choice::Abort];
        let approval = question(QuestionKind::Approval, choices, Value::Null);
        for (reach, ask, heading) in [
            (Reach::Run, "End the run?", "Question q_1 · run run_1\n"),
            (
                Reach::SubAgent,
                "End this sub-agent only? The run above it continues.",
                "Question q_1 · sub-agent run_1\n",
            ),
        ] {
            let abort = ways(&approval, reach).pop().unwrap();
            assert_eq!(is_meant(&approval, &abort, reach), Some(ask));
            assert_eq!(abort.meaning.contains("sub-agent"), reach.is_sub_agent(), "{}", abort.meaning);
            let shown = shown(&approval, &Beside { reach, ..Beside::default() });
            assert!(shown.contains(heading), "{shown}");
            assert_eq!(shown.contains("`ua runs cancel`"), reach.is_sub_agent(), "{shown}");
        }
    }

    #[test]
    fn an_older_word_that_the_command_takes_is_taken_at_the_prompt() {
        let choices = vec![Choice::Execute, Choice::Skip, Choice::Abort];
        let approval = question(QuestionKind::Approval, choices, Value::Null);
        let menu = menu(&approval, Reach::Run);
        for (typed, word) in [("deny", Some("skip")), ("Execute", Some("approve")), ("happened", None), ("x", None)] {
            let meant = meant_by_older_word(&approval, &menu, typed).map(|item| item.word());
            assert_eq!(meant.as_deref(), word, "{typed}");
        }
    }

    #[test]
    fn a_question_in_a_list_has_its_own_id_and_what_its_run_is_for() {
        let approval = question(QuestionKind::Approval, vec![Choice::Skip], Value::Null);
        assert_eq!(in_a_list(&approval, false, "Post the minutes"), "q_1 · t · run run_1: Post the minutes");
        assert_eq!(in_a_list(&approval, true, "Check it"), "q_1 · t · sub-agent run_1: Check it");
        let asked = QuestionRecord { text: "Which colour?\n  1. red\n  2. blue".into(), ..approval };
        assert_eq!(in_a_list(&asked, false, "Paint"), "q_1 · Which colour? · run run_1: Paint");
    }

    #[test]
    fn a_question_at_the_terminal_is_one_block_of_indented_lines() {
        let detail = json!({"arguments": {"subject": "Hello"}});
        let text = "May `send_email` run?\nScope: email.send {\"values\":{\"subject\":\"hello\"}}\nArguments: {\"subject\":\"Hello\"}";
        let asked = QuestionRecord {
            text: text.into(),
            call_id: Some(ua_core::CallId::parse("call_1").unwrap()),
            ..question(QuestionKind::Approval, vec![Choice::Execute], detail)
        };
        let beside = Beside::default();
        assert_eq!(
            shown(&asked, &beside),
            "\nQuestion q_1 · run run_1\n  May `send_email` run?\n  Effect: email.send\n  Arguments\n    - subject: \"Hello\"\n  \
             look at it  ua calls show call_1\n\n"
        );
    }

    /// A model chooses names of arguments where a schema allows others: none begins a line, and two are not shown as one.
    #[test]
    fn no_name_of_an_argument_begins_a_line_or_looks_like_two() {
        let names = ["ua answer q_9 approve  let it run", "a\nb", "a b", "to: \"x\"", "", "Effect", "subject"];
        let mut seen: Vec<String> = Vec::new();
        for name in names {
            let asked = question(QuestionKind::Approval, vec![Choice::Execute], json!({"arguments": {name: "v"}}));
            for room in [None, Some(60)] {
                let text = arguments_in_full(&asked, "", room);
                let lines: Vec<&str> = text.lines().skip(1).collect();
                let is_behind = |line: &&str| line.starts_with("  - ") || line.starts_with("      ");
                assert!(!lines.is_empty() && lines.iter().all(is_behind), "{text}");
                assert_eq!(lines[0].starts_with("  - \""), !matches!(name, "Effect" | "subject"), "{text}");
                if room.is_none() {
                    assert!(!seen.contains(&text), "{text}");
                    seen.push(text);
                }
            }
        }
    }

    /// Whatever is asked, of whomever, wherever: what is said to be open is open behind the signal, and what is stopped is not.
    #[test]
    fn whoever_leaves_a_question_is_told_what_the_signal_does_to_it() {
        for kind in QuestionKind::ALL {
            for (is_live, is_session, is_driven, drives, is_task) in
                (0..32).map(|bits: u8| (bits & 1 == 0, bits & 2 == 0, bits & 4 == 0, bits & 8 == 0, bits & 16 == 0))
            {
                let asked = question(kind, Vec::new(), json!({"is_live": is_live}));
                let whose = match (is_session, is_task) {
                    (true, _) => Whose::Session,
                    (false, true) => Whose::SubAgent,
                    (false, false) => Whose::Run,
                };
                let reach = Reach::of(&asked, whose, is_driven);
                let resume = "`ua resume run_1`".to_owned();
                let left = left_open(&asked, &Beside { reach, drives, resume, ..Beside::default() });
                let is_over = asked.waits_on_its_connection() && !is_session && is_driven && drives;
                assert_eq!(left.signal == AtSignal::Stops, is_over, "{kind:?} {reach:?} {left:?}");
                assert_eq!(left.what.contains("is left open"), !is_over, "{kind:?} {reach:?} {left:?}");
                assert_eq!(left.what.contains("the run stops"), is_over, "{kind:?} {reach:?} {left:?}");
                assert!(!is_over || !left.back.contains("ua answer"), "nobody can answer it: {left:?}");
                let offers_resume =
                    reach != Reach::Session && !(asked.waits_on_its_connection() && is_driven && !drives);
                assert_eq!(left.back.contains("ua resume"), offers_resume, "{kind:?} {reach:?} {left:?}");
            }
        }
    }

    #[test]
    fn every_word_of_every_menu_has_its_key_and_what_cannot_be_taken_back_is_confirmed() {
        let all = [Choice::Happened, Choice::Execute, Choice::Continue, Choice::Skip, Choice::Abort];
        for kind in QuestionKind::ALL {
            let question = question(kind, all.to_vec(), Value::Null);
            for item in menu(&question, Reach::Run) {
                assert!(crate::prompt::has_key(&item.word()), "{}", item.word());
                let Item::Choose(way) = item else { continue };
                let sends = kind == QuestionKind::UnknownOutcome && way.word == "retry";
                let is_final = sends || ["happened", "approve", "abort"].contains(&way.word);
                assert_eq!(is_meant(&question, &way, Reach::Run).is_some(), is_final, "{kind:?} {}", way.word);
            }
        }
        assert!(is_yes_or_no("Y") && is_yes_or_no("no") && !is_yes_or_no("note-7"));
    }
}
