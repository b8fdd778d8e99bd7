//! `ua questions` and `ua answer`.

use std::collections::HashSet;
use std::time::Duration;

use serde_json::Value;
use ua_core::RunId;
use ua_store::{Choice, NewAnswer, QuestionKind, QuestionRecord, QuestionStatus, RunStore};
use ua_store_sqlite::SqliteStore;

use crate::args::{AnswerArgs, AnswerChoice, QuestionsArgs};
use crate::error::{CliError, OK};
use crate::find;
use crate::home::Home;
use crate::output::{line, plain, print, print_json};
use crate::view::Answered;

use super::summary::{question_text, word};

/// How often `--watch` looks.
const LOOK_EVERY: Duration = Duration::from_millis(500);

pub(crate) async fn list(home: &Home, args: QuestionsArgs) -> Result<u8, CliError> {
    let store = home.open_read_only()?;
    let run = match &args.run {
        Some(name) => Some(find::run(&store, name).await?.run_id),
        None => None,
    };
    let clock = ua_core::system::env().clock;
    let mut shown = HashSet::new();
    loop {
        let open = store.open_questions(run.as_ref()).await.map_err(|e| CliError::store("read the questions", &e))?;
        if args.json && !args.watch {
            print_json(&open)?;
            return Ok(OK);
        }
        if open.is_empty() && shown.is_empty() && !args.watch {
            crate::output::tell("nothing waits for an answer");
        }
        for question in open.iter().filter(|question| shown.insert(question.question_id.clone())) {
            if args.json {
                let line = serde_json::to_value(question).unwrap_or_default();
                print(&format!("{}\n", crate::output::json_line(&line)?))?;
            } else {
                let top = super::tree::top(&store, &question.run_id).await?;
                print(&shown_question(question, &top, args.full))?;
            }
        }
        if !args.watch {
            return Ok(OK);
        }
        clock.sleep(LOOK_EVERY).await;
    }
}

fn shown_question(question: &QuestionRecord, top: &RunId, full: bool) -> String {
    let state = match question.status {
        QuestionStatus::Open => String::new(),
        QuestionStatus::Answered | QuestionStatus::Closed => {
            let choice = question.answer.as_ref().map_or("?", |answer| word(answer.choice));
            format!("Answered       {choice}; go on with `ua resume {top}`\n")
        }
    };
    let arguments = if full { arguments_in_full(question) } else { String::new() };
    let of = if *top == question.run_id { String::new() } else { format!(", a sub-agent of {top}") };
    format!("{}Run            {}{of}\n{state}{arguments}", question_text(question).trim_start(), question.run_id)
}

/// Each argument of the call on a line of its own, whole and harmless for a terminal.
pub(super) fn arguments_in_full(question: &QuestionRecord) -> String {
    let arguments = question.detail.get("arguments").and_then(Value::as_object);
    let lines = arguments.into_iter().flatten().map(|(name, value)| {
        let value = value.as_str().map_or_else(|| value.to_string(), |text| format!("{text:?}"));
        format!("  {}: {}\n", line(name, 200), plain(&value).replace(['\n', '\t'], " "))
    });
    let lines: String = lines.collect();
    if lines.is_empty() { lines } else { format!("Arguments\n{lines}") }
}

pub(crate) async fn run(home: &Home, args: AnswerArgs) -> Result<u8, CliError> {
    crate::person::required("answer a question")?;
    let AnswerArgs { question, choice, proof, text, values } = args;
    let for_a_tool =
        values.is_some() || matches!(choice, Some(AnswerChoice::Accept | AnswerChoice::Decline | AnswerChoice::Cancel));
    let choice = choice.or(values.is_some().then_some(AnswerChoice::Accept));
    let text = match choice {
        Some(AnswerChoice::Accept) => values.or(text),
        Some(AnswerChoice::Cancel) => Some(ua_ledger::CANCEL.to_owned()),
        _ => text,
    };
    let Some(name) = question else { return super::ask::choose_and_answer(home).await };
    let choice = choice.map(|choice| match choice {
        AnswerChoice::Happened => Choice::Happened,
        AnswerChoice::Execute => Choice::Execute,
        AnswerChoice::Abort => Choice::Abort,
        AnswerChoice::Continue | AnswerChoice::Accept => Choice::Continue,
        AnswerChoice::Skip | AnswerChoice::Decline | AnswerChoice::Cancel => Choice::Skip,
    });
    let store = home.open()?;
    let question = find::question(&store, &name).await?;
    if for_a_tool && question.kind != QuestionKind::Elicitation {
        let words: Vec<&str> = question.choices.iter().map(|choice| word(*choice)).collect();
        return Err(CliError::usage(format!("no tool asks in question {}", question.question_id))
            .hint(format!("it takes {}", words.join(", "))));
    }
    let choice = match choice {
        Some(choice) => choice,
        // What the model asked is answered by words alone.
        None if question.kind == QuestionKind::AskUser && text.is_some() => Choice::Continue,
        None if super::ask::is_attended() && text.is_none() && proof.is_none() => {
            let answered = super::ask::one(&store, &question).await?;
            let top = super::tree::top(&store, &question.run_id).await?;
            crate::home::close(store);
            return Ok(super::ask::told(answered, &top));
        }
        None => {
            let words: Vec<&str> = question.choices.iter().map(|choice| word(*choice)).collect();
            return Err(CliError::usage(format!("question {} needs an answer", question.question_id))
                .hint(format!("it takes {}", words.join(", "))));
        }
    };
    let then = insert(&store, &question, choice, proof, text).await?;
    crate::home::close(store);
    report(&question, choice)?;
    crate::output::tell(&then);
    Ok(OK)
}

/// Says for a machine what was answered.
pub(crate) fn report(question: &QuestionRecord, choice: Choice) -> Result<(), CliError> {
    if !crate::terminal::is_json() {
        return Ok(());
    }
    let (question_id, run_id) = (question.question_id.to_string(), question.run_id.to_string());
    print_json(&Answered { question_id, run_id, choice })
}

/// The most bytes of words that go with an answer; they become part of the conversation.
const MAX_TEXT: usize = 16 * 1024;

/// Stores an answer and says what comes of it. The owner of a run applies answers when it goes on; what a run that has ended left open is
/// settled at once.
pub(crate) async fn insert(
    store: &SqliteStore,
    question: &QuestionRecord,
    choice: Choice,
    proof: Option<String>,
    text: Option<String>,
) -> Result<String, CliError> {
    if question.status != QuestionStatus::Open {
        return Err(CliError::usage(format!("question {} is answered already", question.question_id))
            .hint(format!("`ua resume {}` acts on the answer", super::tree::top(store, &question.run_id).await?)));
    }
    let run = store.run(&question.run_id).await.map_err(|e| CliError::store("read the run", &e))?;
    if run.status.is_terminal() && !outlives_its_run(store, question).await? {
        return Err(CliError::usage(format!("run {} is {}: nothing would act on an answer", run.run_id, run.status))
            .hint(format!("`ua runs show {}` says how it ended", run.run_id)));
    }
    if !question.choices.contains(&choice) {
        let words: Vec<&str> = question.choices.iter().map(|choice| word(*choice)).collect();
        return Err(CliError::usage(format!("question {} does not take `{}`", question.question_id, word(choice)))
            .hint(format!("it takes {}", words.join(", "))));
    }
    if question.kind == QuestionKind::AskUser
        && choice == Choice::Continue
        && text.as_deref().is_none_or(|text| text.trim().is_empty())
    {
        return Err(CliError::usage(format!("question {} is answered by words", question.question_id))
            .hint("give them with --text, or let the model decide with `skip`"));
    }
    if question.kind == QuestionKind::Elicitation && choice == Choice::Continue {
        ua_ledger::check_elicited(question, text.as_deref()).map_err(|why| {
            CliError::usage(format!("question {} does not take that: {why}", question.question_id))
                .hint("`ua questions --full` shows the form; give values with --values '{…}', or `decline`")
        })?;
    }
    if text.as_deref().is_some_and(|text| text.len() > MAX_TEXT) {
        return Err(CliError::usage(format!("--text is longer than {MAX_TEXT} bytes"))
            .hint("put it into a file of the workspace and name the file"));
    }
    if proof.is_some() && choice != Choice::Happened {
        return Err(CliError::usage("--proof names what happened, so it goes with `happened` only"));
    }
    let by = crate::env::var("USER").unwrap_or_else(|| "a person".to_owned());
    let answer = NewAnswer {
        question_id: question.question_id.clone(),
        choice,
        proof,
        text,
        by,
        at: ua_core::system::env().now(),
    };
    let env = ua_core::system::env();
    store.insert_answer(answer).await.map_err(|e| CliError::store("store the answer", &e))?;
    let settled = ua_ledger::settle_late_answers(store, &env, &run.run_id).await;
    let settled = settled.map_err(|e| CliError::store("apply the answer", &e))?;
    Ok(match settled.first() {
        Some(call) => format!("answered; call {} is {} now", call.call_id, call.status),
        None => format!("answered; go on with `ua resume {}`", super::tree::top(store, &run.run_id).await?),
    })
}

/// Whether the question is about a call that its run went on without, which may be answered after the run has ended.
async fn outlives_its_run(store: &SqliteStore, question: &QuestionRecord) -> Result<bool, CliError> {
    let Some(call) = &question.call_id else { return Ok(false) };
    let call = ua_store::LedgerStore::call(store, call).await.map_err(|e| CliError::store("read the call", &e))?;
    Ok(ua_ledger::is_left_open(&call))
}
