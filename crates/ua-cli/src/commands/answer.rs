//! `ua questions` and `ua answer`.

use std::collections::HashSet;
use std::time::Duration;

use serde_json::Value;
use ua_core::RunId;
use ua_host::people::Answer;
use ua_host::questions::KnownFact;
use ua_host::{Host, questions, tree};
use ua_resume::answers::{chosen, words};
use ua_store::{Choice, QuestionKind, QuestionRecord};

use crate::args::{AnswerArgs, AnswerChoice, QuestionsArgs};
use crate::error::{HostError, OK};
use crate::find;
use crate::ids::shortened;
use crate::output::{line, plain, print, print_json};
use crate::people::{AtTerminal, is_attended};
use crate::view::{Answered, OpenQuestion};

use super::summary::{ids_of, question_text};

/// How often `--watch` looks.
const LOOK_EVERY: Duration = Duration::from_millis(500);

pub(crate) async fn list(host: &Host, args: QuestionsArgs) -> Result<u8, HostError> {
    if args.run.is_none() && !args.watch && host.home().is_unused() {
        if args.json {
            print_json(&Vec::<OpenQuestion>::new())?;
        }
        crate::output::tell("nothing waits for an answer");
        return Ok(OK);
    }
    let store = host.home().open_read_only()?;
    let run = match &args.run {
        Some(name) => Some(find::run(&store, name).await?.run_id),
        None => None,
    };
    let clock = host.env().clock.clone();
    let mut shown = HashSet::new();
    loop {
        let open = questions::open(&store, run.as_ref()).await?;
        if args.json && !args.watch {
            print_json(&open.iter().map(OpenQuestion::of).collect::<Vec<_>>())?;
            return Ok(OK);
        }
        if open.is_empty() && shown.is_empty() && !args.watch {
            crate::output::tell("nothing waits for an answer");
        }
        for question in open.iter().filter(|question| shown.insert(question.question_id.clone())) {
            if args.json {
                print(format!("{}\n", crate::output::json_line(&OpenQuestion::of(question))?))?;
            } else {
                let top = tree::top(&store, &question.run_id).await?;
                let known = questions::known(&store, question).await?;
                print(shown_question(question, &known, &top, args.full))?;
            }
        }
        if !args.watch {
            return Ok(OK);
        }
        clock.sleep(LOOK_EVERY).await;
    }
}

fn shown_question(question: &QuestionRecord, known: &[KnownFact], top: &RunId, full: bool) -> String {
    let arguments = if full { arguments_in_full(question) } else { String::new() };
    let of = if *top == question.run_id { String::new() } else { format!(", a sub-agent of {top}") };
    let text =
        format!("{}Run            {}{of}\n{arguments}", question_text(question, known).trim_start(), question.run_id);
    shortened(&text, &ids_of(question, top)).into_owned()
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
    let AnswerArgs { question, choice, proof, text, values } = args;
    let word = choice.or(values.is_some().then_some(AnswerChoice::Accept));
    let for_a_tool = matches!(word, Some(AnswerChoice::Accept | AnswerChoice::Decline | AnswerChoice::Cancel));
    let text = match word {
        Some(AnswerChoice::Accept) => values.or(text),
        Some(AnswerChoice::Cancel) => Some(ua_ledger::CANCEL.to_owned()),
        _ => text,
    };
    let Some(name) = question else { return super::ask::choose_and_answer(host).await };
    // Looked up without touching anything first, so that a typing error changes nothing.
    let question = find::question(&host.home().open_read_only()?, &name).await?;
    let takes = || format!("it takes {}", words(&question));
    if for_a_tool && question.kind != QuestionKind::Elicitation {
        return Err(HostError::usage(format!("question {} is not asked by a tool", question.question_id)).hint(takes()));
    }
    let choice = match word {
        Some(word) => chosen(&question, word.as_str()).ok_or_else(|| {
            HostError::usage(format!("question {} does not take `{}`", question.question_id, word.as_str()))
                .hint(takes())
        })?,
        // What the model asked is answered by words alone.
        None if question.kind == QuestionKind::AskUser && text.is_some() => Choice::Continue,
        None if is_attended() && text.is_none() && proof.is_none() => {
            let store = host.home().open()?;
            let answered = questions::ask(host, &AtTerminal::default(), &store, &question).await?;
            let top = tree::top(&store, &question.run_id).await?;
            ua_host::home::close(store);
            return Ok(super::ask::report_answered(answered, &top));
        }
        None => {
            return Err(HostError::usage(format!("question {} needs an answer", question.question_id)).hint(takes()));
        }
    };
    let store = host.home().open()?;
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
