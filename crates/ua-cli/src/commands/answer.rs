//! `ua questions` and `ua answer`.

use std::collections::HashSet;
use std::time::Duration;

use serde_json::Value;
use ua_core::RunId;
use ua_host::people::Answer;
use ua_host::{Host, questions, tree};
use ua_store::{Choice, QuestionKind, QuestionRecord, QuestionStatus, RunStore as _};

use crate::args::{AnswerArgs, AnswerChoice, QuestionsArgs};
use crate::error::{HostError, OK};
use crate::find;
use crate::output::{line, plain, print, print_json};
use crate::people::{AtTerminal, is_attended};
use crate::view::Answered;

use super::summary::{question_text, word};

/// How often `--watch` looks.
const LOOK_EVERY: Duration = Duration::from_millis(500);

pub(crate) async fn list(host: &Host, args: QuestionsArgs) -> Result<u8, HostError> {
    let store = host.home().open_read_only()?;
    let run = match &args.run {
        Some(name) => Some(find::run(&store, name).await?.run_id),
        None => None,
    };
    let clock = host.env().clock.clone();
    let mut shown = HashSet::new();
    loop {
        let open = store.open_questions(run.as_ref()).await.map_err(|e| HostError::store("read the questions", &e))?;
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
                print(format!("{}\n", crate::output::json_line(&line)?))?;
            } else {
                let top = tree::top(&store, &question.run_id).await?;
                print(shown_question(question, &top, args.full))?;
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

pub(crate) async fn run(host: &Host, args: AnswerArgs) -> Result<u8, HostError> {
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
    let Some(name) = question else { return super::ask::choose_and_answer(host).await };
    let choice = choice.map(|choice| match choice {
        AnswerChoice::Happened => Choice::Happened,
        AnswerChoice::Execute => Choice::Execute,
        AnswerChoice::Abort => Choice::Abort,
        AnswerChoice::Continue | AnswerChoice::Accept => Choice::Continue,
        AnswerChoice::Skip | AnswerChoice::Decline | AnswerChoice::Cancel => Choice::Skip,
    });
    let store = host.home().open()?;
    let question = find::question(&store, &name).await?;
    if for_a_tool && question.kind != QuestionKind::Elicitation {
        let words: Vec<&str> = question.choices.iter().map(|choice| word(*choice)).collect();
        return Err(HostError::usage(format!("no tool asks in question {}", question.question_id))
            .hint(format!("it takes {}", words.join(", "))));
    }
    let choice = match choice {
        Some(choice) => choice,
        // What the model asked is answered by words alone.
        None if question.kind == QuestionKind::AskUser && text.is_some() => Choice::Continue,
        None if is_attended() && text.is_none() && proof.is_none() => {
            let answered = questions::ask(host, &AtTerminal::default(), &store, &question).await?;
            let top = tree::top(&store, &question.run_id).await?;
            ua_host::home::close(store);
            return Ok(super::ask::report_answered(answered, &top));
        }
        None => {
            let words: Vec<&str> = question.choices.iter().map(|choice| word(*choice)).collect();
            return Err(HostError::usage(format!("question {} needs an answer", question.question_id))
                .hint(format!("it takes {}", words.join(", "))));
        }
    };
    let then = questions::answer(host, &store, &question, Answer { choice, proof, text }).await?;
    ua_host::home::close(store);
    report(&question, choice)?;
    crate::output::tell(&then);
    Ok(OK)
}

/// Says for a machine what was answered.
pub(crate) fn report(question: &QuestionRecord, choice: Choice) -> Result<(), HostError> {
    if !crate::terminal::is_json() {
        return Ok(());
    }
    let (question_id, run_id) = (question.question_id.to_string(), question.run_id.to_string());
    print_json(&Answered { question_id, run_id, choice })
}
