//! Finding rows by what a person types: an id, the beginning of one, the end of one ([`crate::ids`]), the beginning of what people are shown
//! of one, or `last`.
//!
//! A whole id wins over those that only begin with it, these over those that end so, and these over those that are shown so.

use std::collections::BTreeSet;

use ua_core::{CallId, QuestionId, RunId};
use ua_host::job::LAST;
use ua_store::{
    CallQuery, CallRecord, LedgerStore, QuestionRecord, QuestionStatus, QuestionsOf, RunQuery, RunRecord, RunStore,
    Store, StoreError,
};

use crate::error::HostError;

/// How many candidates are read for a prefix; as many as an error names, and one that says that there are more.
const FEW: u32 = 6;

/// What is shorter is the end of no id: a few letters are typed by accident.
const SHORTEST_END: usize = 4;

/// An answer cannot be taken back, so its question is named by no fewer letters than this.
pub(crate) const SHORTEST_QUESTION: usize = 6;

/// The run that `text` names.
pub(crate) async fn run(store: &dyn Store, text: &str) -> Result<RunRecord, HostError> {
    let id = run_id(store, text).await?;
    store.run(&id).await.map_err(|e| HostError::store("look for the run", &e))
}

/// The id of the run that `text` names. Deleted runs are not found.
async fn run_id(store: &dyn Store, text: &str) -> Result<RunId, HostError> {
    let fail = |error: &StoreError| HostError::store("look for the run", error);
    let find = async |prefix: &str, ending: &str| {
        let (prefix, ending) = (prefix.to_owned(), ending.to_owned());
        let query = RunQuery { prefix, ending, limit: u32::MAX, ..RunQuery::default() };
        let found = store.find_runs(&query).await.map_err(|e| fail(&e))?;
        Ok::<_, HostError>(found.into_iter().map(|run| run.run_id).collect::<Vec<_>>())
    };
    if text == LAST {
        let query = RunQuery { limit: 1, without_tasks: true, ..RunQuery::default() };
        let found = store.find_runs(&query).await.map_err(|e| fail(&e))?;
        let newest = found.into_iter().map(|run| run.run_id).next();
        return newest.ok_or_else(|| HostError::usage("there is no run yet").hint("start one with `ua job FILE`"));
    }
    let no_run = |error: HostError| error.hint(RUNS_ARE_LISTED);
    // No id begins with nothing, and one that is whole wins over those that only begin with it.
    let mut found = if RunId::parse(text).is_ok() { find(text, "").await? } else { Vec::new() };
    let mut part = Part::Beginning;
    if found.is_empty() && is_end(text) {
        (found, part) = (find("", text).await?, Part::End);
    }
    if let Some(whole) = found.iter().find(|id| id.as_str() == text) {
        return Ok(whole.clone());
    }
    if found.is_empty() {
        let all = find("", "").await?;
        if is_end(text) {
            (found, part) = (shown_so(text, all.clone(), RunId::as_str), Part::Shown);
        }
        if !found.is_empty() {
            return one("run", (text, part), found, RunId::to_string).map_err(no_run);
        }
        let names = [alike(all.iter().map(RunId::as_str)), vec!["last"]].concat();
        return Err(no_such(store, Kind::Run, text, &names, RUNS_ARE_LISTED).await);
    }
    one("run", (text, part), found, RunId::to_string).map_err(no_run)
}

/// The call that `text` names, for whoever looks at it: `last` is the newest one.
pub(crate) async fn call_to_show(store: &dyn Store, text: &str) -> Result<CallRecord, HostError> {
    if text != LAST {
        return call(store, text).await;
    }
    let newest = CallQuery { limit: 1, ..CallQuery::default() };
    let newest = store.find_calls(&newest).await.map_err(|e| HostError::store("look for the call", &e))?;
    newest
        .into_iter()
        .next()
        .ok_or_else(|| HostError::usage("there is no call yet").hint("`ua runs list` shows the runs"))
}

/// The call that `text` names, for whoever does something about it.
pub(crate) async fn call(store: &dyn Store, text: &str) -> Result<CallRecord, HostError> {
    if text == LAST {
        // Another one may be the newest by then, and what is recorded of a call cannot be taken back.
        return Err(HostError::usage("`last` names the newest call only for `ua calls show`").hint(
            "name the call by its id: `ua calls list --run last --unknown` shows those whose outcome is unknown",
        ));
    }
    let fail = |error: &StoreError| HostError::store("look for the call", error);
    if let Ok(id) = CallId::parse(text) {
        match store.call(&id).await {
            Ok(call) => return Ok(call),
            Err(StoreError::NotFound { .. }) => {}
            Err(error) => return Err(fail(&error)),
        }
    }
    let query = CallQuery { prefix: text.to_owned(), limit: FEW, ..CallQuery::default() };
    // No id begins with nothing.
    let mut found =
        if CallId::parse(text).is_ok() { store.find_calls(&query).await.map_err(|e| fail(&e))? } else { Vec::new() };
    let mut part = Part::Beginning;
    if found.is_empty() && is_end(text) {
        part = Part::End;
        let query = CallQuery { ending: text.to_owned(), limit: FEW, ..CallQuery::default() };
        found = store.find_calls(&query).await.map_err(|e| fail(&e))?;
    }
    let listed = "`ua calls list --run last` shows them";
    if found.is_empty() {
        let newest = CallQuery { limit: LOOKED_AT, ..CallQuery::default() };
        let newest = store.find_calls(&newest).await.map_err(|e| fail(&e))?;
        let found =
            if is_end(text) { shown_so(text, newest.clone(), |call| call.call_id.as_str()) } else { Vec::new() };
        if !found.is_empty() {
            return one("call", (text, Part::Shown), found, |call| call.call_id.to_string())
                .map_err(|error| error.hint(listed));
        }
        let names = alike(newest.iter().map(|call| call.call_id.as_str()));
        return Err(no_such(store, Kind::Call, text, &names, listed).await);
    }
    one("call", (text, part), found, |call| call.call_id.to_string()).map_err(|error| error.hint(listed))
}

/// The question that `text` names. Of several that begin alike none is meant, whatever became of them and in whichever run: an answer cannot be
/// taken back.
pub(crate) async fn question(store: &dyn Store, text: &str) -> Result<QuestionRecord, HostError> {
    if let Ok(id) = QuestionId::parse(text)
        && let Ok(question) = store.question(&id).await
    {
        return Ok(question);
    }
    let fail = |error: &StoreError| HostError::store("look for the question", error);
    let open = store.open_questions(None).await.map_err(|e| fail(&e))?;
    if text == "last" {
        return Err(HostError::usage("`last` names a run, not a question").hint(open_ones(&open)));
    }
    if text.len() < SHORTEST_QUESTION {
        return Err(HostError::usage(format!("`{text}` is too short to name a question"))
            .hint(format!("write at least {SHORTEST_QUESTION} characters of its id: an answer cannot be taken back")));
    }
    // Those that are answered or closed as well: whoever names one of them does not mean another one that begins alike.
    let runs: BTreeSet<&RunId> = open.iter().map(|question| &question.run_id).collect();
    let mut all = Vec::new();
    for run in &runs {
        all.extend(store.questions_of(QuestionsOf::Run((*run).clone())).await.map_err(|e| fail(&e))?);
    }
    // What is asked within the same hours begins alike, in other runs as well; what ends alike is one. What is not found yet was asked by a run that
    // asks nothing now.
    let any = |is_meant: &dyn Fn(&str) -> bool| all.iter().any(|question| is_meant(question.question_id.as_str()));
    if any(&|id| id.starts_with(text)) || !any(&|id| id.ends_with(text)) {
        let query = RunQuery { limit: u32::MAX, ..RunQuery::default() };
        for run in store.find_runs(&query).await.map_err(|e| fail(&e))? {
            if !runs.contains(&run.run_id) {
                all.extend(store.questions_of(QuestionsOf::Run(run.run_id)).await.map_err(|e| fail(&e))?);
            }
        }
    }
    let of = |is_meant: &dyn Fn(&str) -> bool| {
        all.iter().filter(|question| is_meant(question.question_id.as_str())).cloned().collect::<Vec<QuestionRecord>>()
    };
    let mut found = of(&|id| id.starts_with(text));
    let mut part = Part::Beginning;
    if found.is_empty() {
        (found, part) = (of(&|id| id.ends_with(text)), Part::End);
    }
    let listed = open_ones(&open);
    if found.is_empty() {
        let names = alike(open.iter().map(|q| q.question_id.as_str()));
        return Err(no_such(store, Kind::Question, text, &names, &listed).await);
    }
    let named = |q: &QuestionRecord| match q.status {
        QuestionStatus::Open => q.question_id.to_string(),
        QuestionStatus::Answered => format!("{} (answered)", q.question_id),
        QuestionStatus::Closed => format!("{} (closed)", q.question_id),
    };
    one("question", (text, part), found, named).map_err(|error| error.hint(listed))
}

/// The questions that can be answered instead of the one that was named, and how.
fn open_ones(asked: &[QuestionRecord]) -> String {
    // One that is answered is among those that a run waits for until it takes the answer.
    let open: Vec<&QuestionRecord> = asked.iter().filter(|asked| asked.status == QuestionStatus::Open).collect();
    match open.as_slice() {
        [] => "no question is open; `ua questions --answered` lists those that were answered".to_owned(),
        [only] => {
            let (id, takes) = (&only.question_id, ua_resume::answers::words(only));
            format!("one question is open, and takes {takes}: `ua answer {id} ANSWER`; `ua questions` shows it")
        }
        [_, _, ..] => {
            let ids: Vec<&str> = open.iter().take(OPEN_ONES).map(|question| question.question_id.as_str()).collect();
            let more = open.len().saturating_sub(OPEN_ONES);
            let more = if more == 0 { String::new() } else { format!(" and {more} more") };
            format!("{} are open ({}{more}): `ua questions` shows what each takes", open.len(), ids.join(", "))
        }
    }
}

/// The name that `typed` is, or that begins or ends so, among a few.
pub(crate) fn name<'a>(what: &str, typed: &str, names: &[&'a str], hint: &str) -> Result<&'a str, HostError> {
    if let Some(whole) = names.iter().find(|name| **name == typed) {
        return Ok(whole);
    }
    let some =
        |is_meant: &dyn Fn(&str) -> bool| names.iter().copied().filter(|name| is_meant(name)).collect::<Vec<_>>();
    let mut found = if typed.is_empty() { Vec::new() } else { some(&|name| name.starts_with(typed)) };
    let mut part = Part::Beginning;
    if found.is_empty() && is_end(typed) {
        (found, part) = (some(&|name| name.ends_with(typed)), Part::End);
    }
    if found.is_empty() {
        return Err(none(what, typed, &alike(names.iter().copied()), hint));
    }
    one(what, (typed, part), found, |name| (*name).to_owned()).map_err(|error| error.hint(hint))
}

/// Open questions that are named to whoever named another one.
const OPEN_ONES: usize = 4;

/// Where runs are found.
const RUNS_ARE_LISTED: &str = "`ua runs list` shows them; `last` is the newest";

/// At most so many calls are looked at for one that was meant.
const LOOKED_AT: u32 = 2_000;

/// What ids are of that people type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Run,
    Call,
    Question,
}

impl Kind {
    fn word(self) -> &'static str {
        match self {
            Self::Run => "run",
            Self::Call => "call",
            Self::Question => "question",
        }
    }
}

/// That nothing of the kind has this name; where something of another kind has it, what that is, and what of the kind that is wanted belongs to
/// it. Whatever is looked up here by an id is refused by this.
async fn no_such(store: &dyn Store, wanted: Kind, typed: &str, names: &[&str], hint: &str) -> HostError {
    match of_another_kind(store, wanted, typed).await {
        Ok(Some(error)) | Err(error) => error,
        Ok(None) => none(wanted.word(), typed, names, hint),
    }
}

/// What has the name that was typed and is not of the kind that is wanted. Only what the name names alone is taken for meant.
async fn of_another_kind(store: &dyn Store, wanted: Kind, typed: &str) -> Result<Option<HostError>, HostError> {
    if !is_end(typed) {
        return Ok(None);
    }
    let fail = |error: &StoreError| HostError::store("look for what has this id", error);
    let open = store.open_questions(None).await.map_err(|e| fail(&e))?;
    let is_named = |id: &str| id.starts_with(typed) || id.ends_with(typed);
    let mut found = Vec::new();
    if wanted != Kind::Run {
        for (prefix, ending) in [(typed, ""), ("", typed)] {
            let (prefix, ending) = (prefix.to_owned(), ending.to_owned());
            let query = RunQuery { prefix, ending, limit: FEW, ..RunQuery::default() };
            for run in store.find_runs(&query).await.map_err(|e| fail(&e))? {
                let hint = match wanted {
                    Kind::Question => questions_of_run(&run.run_id, &open),
                    Kind::Call | Kind::Run => format!("`ua calls list --run {}` shows its calls", run.run_id),
                };
                found.push((run.run_id.to_string(), Kind::Run, hint));
            }
        }
    }
    if wanted != Kind::Call {
        for (prefix, ending) in [(typed, ""), ("", typed)] {
            let (prefix, ending) = (prefix.to_owned(), ending.to_owned());
            let query = CallQuery { prefix, ending, limit: FEW, ..CallQuery::default() };
            for call in store.find_calls(&query).await.map_err(|e| fail(&e))? {
                let hint = match wanted {
                    Kind::Question => question_of_call(&call.call_id, &open),
                    Kind::Run | Kind::Call => format!("it is a call of run {}", call.run_id),
                };
                found.push((call.call_id.to_string(), Kind::Call, hint));
            }
        }
    }
    if wanted != Kind::Question {
        let mut questions: Vec<QuestionRecord> =
            open.iter().filter(|question| is_named(question.question_id.as_str())).cloned().collect();
        // One that is closed has its whole name alone.
        if let Ok(id) = QuestionId::parse(typed)
            && questions.is_empty()
        {
            questions.extend(store.question(&id).await.ok());
        }
        for question in questions {
            let (id, run) = (&question.question_id, &question.run_id);
            let waits = question.status == QuestionStatus::Open;
            let answer = if waits { format!("; `ua answer {id}` answers it") } else { String::new() };
            let hint = match (&question.call_id, wanted) {
                (Some(call), Kind::Call) => format!("it asks about call {call}{answer}"),
                (None, Kind::Call) => format!("it asks about run {run} itself, and no call{answer}"),
                (_, Kind::Run | Kind::Question) => format!("it is a question of run {run}{answer}"),
            };
            found.push((id.to_string(), Kind::Question, hint));
        }
    }
    found.dedup_by(|one, other| one.0 == other.0);
    let [(_, kind, hint)] = found.as_slice() else { return Ok(None) };
    let typed = crate::output::line(typed, 100);
    Ok(Some(HostError::usage(format!("`{typed}` is a {}, not a {}", kind.word(), wanted.word())).hint(hint.clone())))
}

/// Which question of a run may have been meant.
fn questions_of_run(run: &RunId, open: &[QuestionRecord]) -> String {
    let of_run = |question: &&QuestionRecord| question.run_id == *run && question.status == QuestionStatus::Open;
    let ids: Vec<&str> = open.iter().filter(of_run).map(|question| question.question_id.as_str()).collect();
    match ids.as_slice() {
        [] => format!("none of its questions is open; `ua runs show {run}` says how it stands"),
        [only] => format!("its question is {only}: `ua answer {only}`"),
        [_, _, ..] => format!("its open questions are {}; `ua questions --run {run}` shows them", ids.join(", ")),
    }
}

/// Which question about a call may have been meant.
fn question_of_call(call: &CallId, open: &[QuestionRecord]) -> String {
    let is_about =
        |question: &&QuestionRecord| question.call_id.as_ref() == Some(call) && question.status == QuestionStatus::Open;
    match open.iter().find(is_about) {
        Some(question) => format!("the question about it is {id}: `ua answer {id}`", id = question.question_id),
        None => format!("no question about it is open; `ua calls show {call}` says where it stands"),
    }
}

/// The names that somebody may have meant: those that people chose. An id that was made up is as like to any other as chance wants, and
/// whoever takes one that is offered acts on something else.
fn alike<'a>(ids: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    ids.filter(|id| crate::ids::end(id) == *id).collect()
}

/// Those of which people are shown an end that begins so.
fn shown_so<T>(text: &str, mut all: Vec<T>, id: impl Fn(&T) -> &str) -> Vec<T> {
    all.retain(|one| crate::ids::end(id(one)).starts_with(text));
    all
}

/// That nothing has this name.
fn none(what: &str, typed: &str, names: &[&str], hint: &str) -> HostError {
    HostError::no_such(what, typed, names.iter().copied(), hint)
}

/// Whether what was typed may be the end of an id.
fn is_end(text: &str) -> bool {
    text.len() >= SHORTEST_END && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte))
}

/// Which part of an id was typed.
#[derive(Debug, Clone, Copy)]
enum Part {
    Beginning,
    End,
    /// The beginning of the end that people are shown.
    Shown,
}

fn one<T>(
    what: &str,
    (text, part): (&str, Part),
    mut found: Vec<T>,
    id: impl Fn(&T) -> String,
) -> Result<T, HostError> {
    if found.len() == 1 {
        return Ok(found.remove(0));
    }
    let ids: Vec<String> = found.iter().take(5).map(id).collect();
    let more = if found.len() > ids.len() { ", …" } else { "" };
    let many = if found.len() >= FEW as usize { "several".to_owned() } else { found.len().to_string() };
    let part = match part {
        Part::Beginning | Part::Shown => "prefix",
        Part::End => "suffix",
    };
    Err(HostError::usage(format!("`{text}` is a {part} of {many} {what}s: {}{more}", ids.join(", "))))
}
