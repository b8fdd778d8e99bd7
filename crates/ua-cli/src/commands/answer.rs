//! `ua questions` and `ua answer`.

use std::collections::HashSet;
use std::time::Duration;

use clap::{Args, ValueEnum};
use clap_complete::engine::ArgValueCompleter;
use serde_json::Value;
use ua_core::{RunId, RunStatus, ShowPath as _};
use ua_host::questions::Beside;
use ua_host::standing::standings;
use ua_host::{Database, Host, gateway, questions, tree};
use ua_resume::answers::{chosen, option_meant, options, words};
use ua_store::{Answer, AnswerRecord, Choice, QuestionKind, QuestionRecord, QuestionsOf, RunQuery, Store as _};

use super::summary::{FOREIGN, ids_of, question_text};
use crate::args::{not_empty, parse_ago};
use crate::error::{HostError, OK};
use crate::ids::shortened;
use crate::output::{did, foreign_to, line, plain, print, print_exactly, print_json};
use crate::people::is_attended;
use crate::shown::Shown;
use crate::view::{Answered, OpenQuestion};
use crate::{complete, find};

/// `ua questions`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ua questions
  ua questions --run last --full
      show the complete arguments of the calls
  ua questions --watch
      shows each new question as it is asked, until Ctrl-C
  ua questions --answered --since 7d
      list who answered what in the last week
  ua questions --run last --json | jq -r '.[].question_id'")]
pub struct QuestionsArgs {
    /// Only this run and its sub-agents: an id, a unique prefix or suffix of one, or `last`
    #[arg(long, value_parser = not_empty(), add = ArgValueCompleter::new(complete::runs))]
    pub run: Option<String>,
    /// Show the arguments of each call in full, one field per line
    #[arg(long)]
    pub full: bool,
    /// Keep showing new questions as they are asked
    #[arg(long)]
    pub watch: bool,
    /// Those that were answered instead: who answered what, and when, newest first
    #[arg(long, conflicts_with_all = ["watch", "full"])]
    pub answered: bool,
    /// With --answered: only answers given within this time: a number and d, h, m or s, for example 7d
    #[arg(long, value_name = "TIME", value_parser = parse_ago, requires = "answered")]
    pub since: Option<Duration>,
    /// As JSON; with --watch one line per question
    #[arg(long)]
    pub json: bool,
}

/// `ua answer`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ua answer
      choose and answer on the terminal, one after the other
  ua answer q_01… approve
  ua answer q_01… skip --text \"ask the board first\"
  ua answer q_01… --text \"the blue one\"
      answer what the model asked with ask_user
  ua answer q_01… accept --values '{\"size\": 3}'
      give the values that a tool asks for

Then resume: `ua resume RUN`.")]
pub struct AnswerArgs {
    /// A question id, or a unique prefix or suffix of one; without it, you choose on the terminal
    #[arg(add = ArgValueCompleter::new(complete::questions))]
    pub question: Option<String>,
    /// The answer; a question says which it takes
    #[arg(value_parser = AnyChoice, add = ArgValueCompleter::new(complete::answers))]
    pub choice: Option<String>,
    /// With `happened`: the provider's id of what happened
    #[arg(long, value_parser = not_empty(), value_name = "ID")]
    pub proof: Option<String>,
    /// What the model is told: the answer to its question, or a remark beside another answer
    #[arg(long, value_parser = not_empty())]
    pub text: Option<String>,
    /// With `accept`: the values that a tool asks for, as a JSON object; fields left out take their default
    #[arg(long, value_parser = not_empty(), value_name = "OBJECT", conflicts_with = "text")]
    pub values: Option<String>,
}

/// Takes whatever is typed as an answer, and names the words that there are: which of them a question takes, and what else (the model's options),
/// is known once it is looked up.
#[derive(Debug, Clone)]
struct AnyChoice;

impl clap::builder::TypedValueParser for AnyChoice {
    type Value = String;

    fn parse_ref(
        &self,
        command: &clap::Command,
        arg: Option<&clap::Arg>,
        value: &std::ffi::OsStr,
    ) -> Result<String, clap::Error> {
        clap::builder::StringValueParser::new().parse_ref(command, arg, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = clap::builder::PossibleValue> + '_>> {
        Some(Box::new(AnswerChoice::value_variants().iter().filter_map(ValueEnum::to_possible_value)))
    }
}

/// What may be answered; a question says which of these it takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum AnswerChoice {
    /// It happened
    Happened,
    /// It did not happen, or what was wrong has been fixed: try again
    Retry,
    /// Allow a call that has not been sent yet
    Approve,
    /// Do not run it, or leave it unresolved
    #[value(alias = "deny")]
    Skip,
    /// End the run; at a sub-agent's question only the sub-agent
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
/// How often it looks at a database that is being made.
const PATIENCE: u32 = 20;

/// What whoever looks for questions is told when there are none.
pub(super) const NOTHING_WAITS: &str = "nothing waits for an answer";

/// The same where there are runs: some may ask once they are resumed, and some asked before.
pub(super) async fn nothing_waits(host: &Host, store: &Database) -> Result<String, HostError> {
    Ok(match crashed(host, store).await? {
        0 if any_answered(store).await? => {
            format!("{NOTHING_WAITS}; `ua questions --answered` lists those that were answered")
        }
        0 => NOTHING_WAITS.to_owned(),
        count => format!(
            "{NOTHING_WAITS}; {} crashed, and may ask about a call that was sent once it is resumed: `ua status`",
            ua_core::counted(count, "run")
        ),
    })
}

/// Whether a question of the newest runs was answered.
async fn any_answered(store: &Database) -> Result<bool, HostError> {
    const NEWEST: u32 = 50;
    let fail = |error: &ua_store::StoreError| HostError::store("read the questions", error);
    let newest = RunQuery { limit: NEWEST, ..RunQuery::default() };
    for run in store.find_runs(&newest).await.map_err(|e| fail(&e))? {
        let asked = store.questions_of(QuestionsOf::Run(run.run_id)).await.map_err(|e| fail(&e))?;
        if asked.iter().any(|question| question.answer.is_some()) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// How many runs nobody drives that were driven: of what they had sent a person is asked when they are resumed.
async fn crashed(host: &Host, store: &Database) -> Result<usize, HostError> {
    let query =
        RunQuery { statuses: vec![RunStatus::Running], limit: u32::MAX, without_tasks: true, ..RunQuery::default() };
    let runs = store.find_runs(&query).await.map_err(|e| HostError::store("look for runs", &e))?;
    let standings = standings(host.home(), store, &runs).await?;
    Ok(standings.iter().filter(|standing| standing.waits_for_a_resume()).count())
}

pub(crate) async fn list(host: &Host, args: QuestionsArgs) -> Result<u8, HostError> {
    if args.answered {
        return super::answered::list(host, &args).await;
    }
    if args.run.is_none() && !args.watch && host.home().is_unused() {
        if args.json {
            print_json(&Vec::<OpenQuestion>::new())?;
        }
        if !tell_of_the_gateway(host).await {
            crate::output::tell(NOTHING_WAITS);
        }
        return Ok(OK);
    }
    let clock = host.env().clock.clone();
    // Whoever watches may well do so before the first job.
    if args.run.is_none() && host.home().is_unused() {
        crate::output::tell(format!("no job was run yet in {}; waiting", host.home().root().shown()));
        while host.home().is_unused() {
            clock.sleep(LOOK_EVERY).await;
        }
        // A database that is being made is there before its tables are.
        for _ in 0..PATIENCE {
            if host.home().open_read_only().is_ok() {
                break;
            }
            clock.sleep(LOOK_EVERY).await;
        }
    }
    let store = host.home().open_read_only()?;
    let run = match &args.run {
        Some(name) => Some(find::run(&store, name).await?.run_id),
        None => None,
    };
    let mut shown = HashSet::new();
    loop {
        let open = questions::open(&store, run.as_ref()).await?;
        if args.json && !args.watch {
            print_json(&OpenQuestion::all(host.home(), &store, &open).await?)?;
            return Ok(OK);
        }
        let is_told = !args.watch && run.is_none() && tell_of_the_gateway(host).await;
        if open.is_empty() && shown.is_empty() && !args.watch && !is_told {
            crate::output::tell(nothing_waits(host, &store).await?);
        }
        let is_first = shown.is_empty();
        for (nth, question) in open.iter().filter(|question| shown.insert(question.question_id.clone())).enumerate() {
            if args.json {
                let shown = OpenQuestion::with_what_is_known(host.home(), &store, question).await?;
                let line = crate::output::json_line(&shown)?;
                print_exactly(Shown::exact(&format!("{line}\n")))?;
            } else {
                let top = tree::top(&store, &question.run_id).await?;
                let beside = questions::beside(host.home(), &store, question).await?;
                // Each is a block of its own, its run in its heading.
                let gap = if is_first && nth == 0 { "" } else { "\n" };
                print(format!("{gap}{}", shown_question(question, &beside, &top, args.full)))?;
            }
        }
        if !args.watch {
            return Ok(OK);
        }
        clock.sleep(LOOK_EVERY).await;
    }
}

/// Says that questions of the gateway wait, which are in a folder of their own, and what its broker left in doubt. Whether there is any.
pub(super) async fn tell_of_the_gateway(host: &Host) -> bool {
    let beside = gateway::questions_beside(host).await;
    let unread = beside.unread_in_words();
    let waits = super::status::at_the_gateway(&beside.commands, &beside.asked);
    // One that cannot be read is not waited for again.
    let left = if unread.is_none() { gateway::left_beside(host).await } else { None };
    let all: Vec<String> = unread.into_iter().chain(waits).chain(left.map(|left| plain(&left))).collect();
    for said in &all {
        crate::output::tell(said.replace('\n', "; "));
    }
    !all.is_empty()
}

/// The question that `name` names. One of the gateway is in another folder, and the error says in which.
async fn named(host: &Host, name: &str) -> Result<QuestionRecord, HostError> {
    let found = match host.home().open_read_only() {
        Ok(store) => match find::question(&store, name).await {
            Err(_) if AnswerChoice::from_str(name, true).is_ok() => Err(without_its_question(&store, name).await?),
            found => found,
        },
        Err(error) => Err(error),
    };
    let error = match found {
        Ok(question) => return Ok(question),
        Err(error) => error,
    };
    let gateway::Beside { commands, asked, .. } = gateway::questions_beside(host).await;
    let mut meant = asked.iter().map(|asked| asked.question.question_id.as_str());
    let is_it = |id: &&str| name.len() >= find::SHORTEST_QUESTION && (id.starts_with(name) || id.ends_with(name));
    let Some(id) = meant.find(is_it) else { return Err(error) };
    Err(HostError::usage(format!("question {id} belongs to the gateway, which keeps its runs in a folder of its own"))
        .hint(commands.complete(&format!("`ua answer {id}`")).into_owned()))
}

/// That an answer was typed where its question belongs.
async fn without_its_question(store: &ua_host::Database, word: &str) -> Result<HostError, HostError> {
    let open = questions::open(store, None).await?;
    let error = HostError::usage(format!("`{word}` is an answer; the question that it is for comes before it"));
    Ok(match open.as_slice() {
        [] => error.hint("no question is open at the moment"),
        [only] => error.hint(format!("one question is open: `ua answer {} {word}`", only.question_id)),
        [_, ..] => error.hint(format!("`ua questions` lists those that are open; then `ua answer QUESTION {word}`")),
    })
}

fn shown_question(question: &QuestionRecord, beside: &Beside, top: &RunId, full: bool) -> String {
    let arguments = if full { arguments_in_full(question, "", crate::terminal::width()) } else { String::new() };
    let of = if *top == question.run_id { String::new() } else { format!(", a sub-agent of {top}") };
    let text = question_text(question, beside);
    let (heading, rest) = text.trim_start().split_once('\n').unwrap_or((text.trim_start(), ""));
    let whose = beside.reach.whose();
    let whose = if of.is_empty() { whose } else { "run" };
    let text = format!("{heading} · {whose} {}{of}\n{rest}{arguments}", question.run_id);
    shortened(&text, &ids_of(question, top)).into_owned()
}

/// Each argument of the call on a line of its own behind `indent`, whole and harmless for a terminal of so many columns.
pub(super) fn arguments_in_full(question: &QuestionRecord, indent: &str, room: Option<usize>) -> String {
    let arguments = question.detail.get("arguments").and_then(Value::as_object);
    let lines = arguments.into_iter().flatten().map(|(name, value)| {
        let value = value.as_str().map_or_else(|| value.to_string(), |text| format!("{text:?}"));
        // No name begins a line, where it could be one of ours.
        let said = format!("- {}: {}", name_shown(name), plain(&value).replace(['\n', '\t'], " "));
        format!("{indent}  {}\n", foreign_to(&said, indent.len() + FOREIGN, room))
    });
    let lines: String = lines.collect();
    if lines.is_empty() { lines } else { format!("{indent}Arguments\n{lines}") }
}

/// The name of an argument, which a model may have chosen: as it is where it is one plain word, else quoted, so that what stands in it is
/// neither a name and its value nor a line of its own, and two names are never shown as one.
fn name_shown(name: &str) -> String {
    let is_plain =
        !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | '$'));
    if is_plain { line(name, 200) } else { line(&format!("{name:?}"), 400) }
}

pub(crate) async fn run(host: &Host, args: AnswerArgs) -> Result<u8, HostError> {
    let AnswerArgs { question, choice, proof, text, values } = args;
    let Some(name) = question else {
        return super::ask::choose_and_answer(host).await;
    };
    // Looked up without touching anything first, so that a typing error changes nothing.
    let question = named(host, &name).await?;
    let (choice, text) = match choice {
        Some(typed) => match understood(&question, &typed) {
            Some(Typed::Word(word)) => (Some(word), text),
            // One answer to the model: its words stand where --text would.
            Some(Typed::Option(option)) if text.is_none() => (None, Some(option)),
            Some(Typed::Option(_)) | None => return Err(not_taken(&question, &typed)),
        },
        None => (None, text),
    };
    let word = choice.or(values.is_some().then_some(AnswerChoice::Accept));
    let for_a_tool = matches!(word, Some(AnswerChoice::Accept | AnswerChoice::Decline | AnswerChoice::Cancel));
    let text = match word {
        Some(AnswerChoice::Accept) => values.or(text),
        Some(AnswerChoice::Cancel) => Some(ua_ledger::CANCEL.to_owned()),
        _ => text,
    };
    let takes = || it_takes(&question);
    if for_a_tool && question.kind != QuestionKind::Elicitation {
        return Err(
            HostError::usage(format!("question {} was not asked by a tool", question.question_id)).hint(takes())
        );
    }
    let choice = match word {
        Some(word) => chosen(&question, word.as_str()).ok_or_else(|| not_taken(&question, word.as_str()))?,
        // What the model asked is answered by words alone.
        None if question.kind == QuestionKind::AskUser && text.is_some() => Choice::Continue,
        None if question.status == ua_store::QuestionStatus::Open
            && is_attended()
            && text.is_none()
            && proof.is_none() =>
        {
            return super::ask::ask_here(host, &question).await;
        }
        // What needs none any more is not asked for one.
        None if question.status != ua_store::QuestionStatus::Open => {
            let store = host.home().open_read_only()?;
            return Err(questions::settled(host.home(), &store, &question).await?);
        }
        None => {
            return Err(HostError::usage(format!("question {} needs an answer", question.question_id)).hint(takes()));
        }
    };
    let is_answer_in_words = question.kind == QuestionKind::AskUser && choice == Choice::Continue;
    let meant = text.as_deref().filter(|_| is_answer_in_words).and_then(|text| option_meant(&question, text));
    let own_words =
        text.as_deref().filter(|_| is_answer_in_words && meant.is_none()).and_then(|text| own_words(&question, text));
    let text = meant.map(str::to_owned).or(text);
    let store = host.home().open_from_anywhere()?;
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
    report(&question, Some(said))?;
    if let Some(own_words) = own_words {
        crate::output::tell(own_words);
    }
    crate::output::tell(crate::ids::in_sentence(&then).as_ref());
    Ok(OK)
}

/// What was typed as the answer to a question.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Typed {
    /// A word that is an answer, to this question or to another one.
    Word(AnswerChoice),
    /// An answer that the model proposed.
    Option(String),
}

/// Reads what was typed as the answer to `question`: a word, or one of the model's options, by its number or its text.
fn understood(question: &QuestionRecord, typed: &str) -> Option<Typed> {
    // A word that the question takes is one, as at the prompt; another one may be an option of the model's.
    let word = AnswerChoice::from_str(typed, true).ok();
    if let Some(word) = word.filter(|word| chosen(question, word.as_str()).is_some()) {
        return Some(Typed::Word(word));
    }
    let is_asked = question.kind == QuestionKind::AskUser;
    let option = option_meant(question, typed).map(str::to_owned);
    option.filter(|_| is_asked).map(Typed::Option).or(word.map(Typed::Word))
}

/// That what was typed is none of the options that the model proposes: a mistyped one goes out as it is. `None` where there are none.
fn own_words(question: &QuestionRecord, text: &str) -> Option<String> {
    let options: Vec<String> = numbered(question).collect();
    let (text, options) = (line(text, 60), options.join(", "));
    (!options.is_empty())
        .then(|| format!("note: {text:?} is none of the options {options}: the model gets it as your own words"))
}

/// The model's options, each behind its number.
fn numbered(question: &QuestionRecord) -> impl Iterator<Item = String> {
    (1..).zip(options(question)).map(|(number, option): (usize, _)| format!("{number} ({})", line(option, 60)))
}

/// What a question takes, options of the model first.
fn it_takes(question: &QuestionRecord) -> String {
    let takes: Vec<String> = numbered(question).chain([words(question)]).collect();
    format!("it takes {}", takes.join(", "))
}

fn not_taken(question: &QuestionRecord, typed: &str) -> HostError {
    let offered = words(question);
    let meant = ua_core::nearest(typed, offered.split(", "));
    let meant = meant.map_or_else(String::new, |meant| format!("did you mean `{meant}`? "));
    HostError::usage(format!("question {} does not take `{}`", question.question_id, line(typed, 60)))
        .hint(format!("{meant}{}", it_takes(question)))
}

/// The word for an answer that is stored.
pub(super) fn word_of_answer(kind: QuestionKind, answer: &AnswerRecord) -> &'static str {
    // Which of the two ways to say no to a tool is no choice of its own.
    let is_cancel = kind == QuestionKind::Elicitation && answer.text.as_deref() == Some(ua_ledger::CANCEL);
    if is_cancel { AnswerChoice::Cancel.as_str() } else { ua_resume::answers::word(kind, answer.choice) }
}

/// Says for a machine what was answered; `None`: nothing was.
pub(super) fn report(question: &QuestionRecord, choice: Option<&'static str>) -> Result<(), HostError> {
    if !crate::terminal::is_json() {
        return Ok(());
    }
    let (question_id, run_id) = (question.question_id.to_string(), question.run_id.to_string());
    did(match choice {
        Some(choice) => format!("question {question_id} is answered with {choice}"),
        None => format!("question {question_id} was not answered"),
    });
    print_json(&Answered { question_id: Some(question_id), run_id: Some(run_id), choice })
}
