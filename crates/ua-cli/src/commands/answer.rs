//! `ua questions` and `ua answer`.

use std::collections::HashSet;
use std::time::Duration;

use clap::{Args, ValueEnum};
use clap_complete::engine::ArgValueCompleter;
use serde_json::Value;
use ua_core::RunId;
use ua_host::questions::Beside;
use ua_host::{Host, gateway, questions, tree};
use ua_resume::answers::{chosen, words};
use ua_store::{Answer, Choice, QuestionKind, QuestionRecord};

use super::summary::{ids_of, question_text};
use crate::error::{HostError, OK};
use crate::ids::shortened;
use crate::output::{line, plain, print, print_exactly, print_json};
use crate::people::{AtTerminal, is_attended};
use crate::shown::Shown;
use crate::view::{Answered, OpenQuestion};
use crate::{complete, find};

/// `ua questions`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ua questions
  ua questions --run last --full         show the complete arguments of the calls
  ua questions --watch                   shows each new question as it is asked, until Ctrl-C
  ua questions --run last --json | jq -r '.[].question_id'")]
pub struct QuestionsArgs {
    /// Only this run: an id, a unique prefix or suffix of one, or `last`
    #[arg(long, add = ArgValueCompleter::new(complete::runs))]
    pub run: Option<String>,
    /// Show the arguments of each call in full, one field per line
    #[arg(long)]
    pub full: bool,
    /// Keep showing new questions as they are asked
    #[arg(long)]
    pub watch: bool,
    /// As JSON; with --watch one line per question
    #[arg(long)]
    pub json: bool,
}

/// `ua answer`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ua answer                                       choose and answer on the terminal
  ua answer q_01… approve
  ua answer q_01… skip --text \"ask the board first\"
  ua answer q_01… --text \"the blue one\"            answer what the model asked with ask_user
  ua answer q_01… accept --values '{\"size\": 3}'    give the values that a tool asks for

Then resume: `ua resume RUN`.")]
pub struct AnswerArgs {
    /// A question id, or a unique prefix or suffix of one; without it, you choose one on the terminal
    #[arg(add = ArgValueCompleter::new(complete::questions))]
    pub question: Option<String>,
    /// The answer; a question says which it takes
    pub choice: Option<AnswerChoice>,
    /// With `happened`: the provider's id of what happened
    #[arg(long, value_name = "ID")]
    pub proof: Option<String>,
    /// What the model is told: the answer to its question, or a remark about a call that is skipped
    #[arg(long)]
    pub text: Option<String>,
    /// With `accept`: the values that a tool asks for, as a JSON object; fields left out take their default
    #[arg(long, value_name = "OBJECT", conflicts_with = "text")]
    pub values: Option<String>,
}

/// What may be answered; a question says which of these it takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum AnswerChoice {
    /// It happened
    Happened,
    /// It did not happen, or what was wrong has been fixed: try again
    Retry,
    /// Allow a call that has not been sent yet
    Approve,
    /// Do not run it, or leave it unresolved
    #[value(alias = "deny")]
    Skip,
    /// End the run
    Abort,
    /// Accept what a tool asks for, with --values
    Accept,
    /// Decline what a tool asks for
    Decline,
    /// Dismiss what a tool asks for, without an answer
    Cancel,
    /// An older word for `retry` and `approve`
    #[value(hide = true)]
    Execute,
    /// An older word for `retry`
    #[value(hide = true)]
    Continue,
}

impl AnswerChoice {
    /// The word, as it is typed.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Happened => "happened",
            Self::Retry => "retry",
            Self::Approve => "approve",
            Self::Skip => "skip",
            Self::Abort => "abort",
            Self::Accept => "accept",
            Self::Decline => "decline",
            Self::Cancel => "cancel",
            Self::Execute => "execute",
            Self::Continue => "continue",
        }
    }
}

/// How often `--watch` looks.
const LOOK_EVERY: Duration = Duration::from_millis(500);

pub(crate) async fn list(host: &Host, args: QuestionsArgs) -> Result<u8, HostError> {
    if args.run.is_none() && !args.watch && host.home().is_unused() {
        if args.json {
            print_json(&Vec::<OpenQuestion>::new())?;
        }
        if !tell_of_the_gateway(host).await {
            crate::output::tell("nothing waits for an answer");
        }
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
            print_json(&OpenQuestion::all(&store, &open).await?)?;
            return Ok(OK);
        }
        let is_told = !args.watch && run.is_none() && tell_of_the_gateway(host).await;
        if open.is_empty() && shown.is_empty() && !args.watch && !is_told {
            crate::output::tell("nothing waits for an answer");
        }
        for question in open.iter().filter(|question| shown.insert(question.question_id.clone())) {
            if args.json {
                let reach = questions::reach(&store, question).await?;
                let line = crate::output::json_line(&OpenQuestion::of(question, reach))?;
                print_exactly(Shown::exact(&format!("{line}\n")))?;
            } else {
                let top = tree::top(&store, &question.run_id).await?;
                let beside = questions::beside(host.home(), &store, question).await?;
                print(shown_question(question, &beside, &top, args.full))?;
            }
        }
        if !args.watch {
            return Ok(OK);
        }
        clock.sleep(LOOK_EVERY).await;
    }
}

/// Says that questions of the gateway wait, which are in a folder of their own. Whether there is one.
async fn tell_of_the_gateway(host: &Host) -> bool {
    let (commands, asked) = gateway::questions_beside(host).await;
    let waits = super::status::at_the_gateway(&commands, &asked);
    waits.is_some_and(|waits| {
        crate::output::tell(waits.replace('\n', "; "));
        true
    })
}

/// The question that `name` names. One of the gateway is in another folder, and the error says in which.
async fn named(host: &Host, name: &str) -> Result<QuestionRecord, HostError> {
    let found = match host.home().open_read_only() {
        Ok(store) => find::question(&store, name).await,
        Err(error) => Err(error),
    };
    let error = match found {
        Ok(question) => return Ok(question),
        Err(error) => error,
    };
    let (commands, asked) = gateway::questions_beside(host).await;
    let mut meant = asked.iter().map(|question| question.question_id.as_str());
    let is_it = |id: &&str| name.len() >= find::SHORTEST_QUESTION && (id.starts_with(name) || id.ends_with(name));
    let Some(id) = meant.find(is_it) else { return Err(error) };
    Err(HostError::usage(format!("question {id} belongs to the gateway, which keeps its runs in a folder of its own"))
        .hint(commands.complete(&format!("`ua answer {id}`")).into_owned()))
}

fn shown_question(question: &QuestionRecord, beside: &Beside, top: &RunId, full: bool) -> String {
    let arguments = if full { arguments_in_full(question) } else { String::new() };
    let of = if *top == question.run_id { String::new() } else { format!(", a sub-agent of {top}") };
    let text =
        format!("{}Run            {}{of}\n{arguments}", question_text(question, beside).trim_start(), question.run_id);
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
    let Some(name) = question else {
        if host.home().is_unused() && tell_of_the_gateway(host).await {
            return Ok(OK);
        }
        return super::ask::choose_and_answer(host).await;
    };
    // Looked up without touching anything first, so that a typing error changes nothing.
    let question = named(host, &name).await?;
    let takes = || format!("it takes {}", words(&question));
    if for_a_tool && question.kind != QuestionKind::Elicitation {
        return Err(
            HostError::usage(format!("question {} was not asked by a tool", question.question_id)).hint(takes())
        );
    }
    let choice = match word {
        Some(word) => chosen(&question, word.as_str()).ok_or_else(|| {
            HostError::usage(format!("question {} does not take `{}`", question.question_id, word.as_str()))
                .hint(takes())
        })?,
        // What the model asked is answered by words alone.
        None if question.kind == QuestionKind::AskUser && text.is_some() => Choice::Continue,
        None if question.status == ua_store::QuestionStatus::Open
            && is_attended()
            && text.is_none()
            && proof.is_none() =>
        {
            let store = host.home().open()?;
            let answered = questions::ask(host, &AtTerminal::default(), &store, &question).await?;
            let then = super::cancel::after_answer(host, &store, &question.run_id).await?;
            ua_host::home::close(store);
            return Ok(super::ask::report_answered(answered, &then));
        }
        // What needs none any more is not asked for one.
        None if question.status != ua_store::QuestionStatus::Open => {
            let store = host.home().open_read_only()?;
            return Err(questions::settled(&store, &question).await?);
        }
        None => {
            return Err(HostError::usage(format!("question {} needs an answer", question.question_id)).hint(takes()));
        }
    };
    let text = text.map(|text| proposed(&question, &text).unwrap_or(text));
    let store = host.home().open()?;
    let mut then = questions::answer(host, &store, &question, Answer { choice, proof, text }).await?;
    if choice == Choice::Abort {
        then = match super::cancel::end_if_asked(host, &store, &question.run_id).await {
            Ok(ended) => ended.unwrap_or(then),
            // The answer is stored; what keeps the run from ending is said.
            Err(kept) if kept.kind() == ua_host::Kind::Waiting => {
                format!("{}; {}", kept.message(), kept.hint_text().unwrap_or_default())
            }
            Err(error) => return Err(error),
        };
    }
    ua_host::home::close(store);
    let said = match word {
        // Which of the two ways to say no to a tool is no choice of its own.
        Some(AnswerChoice::Cancel) => AnswerChoice::Cancel.as_str(),
        _ => ua_resume::answers::word(question.kind, choice),
    };
    report(&question, said)?;
    crate::output::tell(crate::ids::in_sentence(&then).as_ref());
    Ok(OK)
}

/// The answer that the model proposed under this number.
fn proposed(question: &QuestionRecord, typed: &str) -> Option<String> {
    let options = question.detail.get("options").and_then(Value::as_array)?;
    let number = typed.trim().parse::<usize>().ok()?;
    // What is an answer itself is meant as it stands.
    if options.iter().any(|option| option.as_str() == Some(typed.trim())) {
        return None;
    }
    options.get(number.checked_sub(1)?)?.as_str().map(str::to_owned)
}

/// Says for a machine what was answered.
fn report(question: &QuestionRecord, choice: &'static str) -> Result<(), HostError> {
    if !crate::terminal::is_json() {
        return Ok(());
    }
    let (question_id, run_id) = (question.question_id.to_string(), question.run_id.to_string());
    print_json(&Answered { question_id, run_id, choice })
}
