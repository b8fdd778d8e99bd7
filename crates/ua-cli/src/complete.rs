//! Completion while one types: run, call and question ids of the database, and names of tools, providers, models and packs.
//!
//! It reads without writing, never makes a database, and says nothing when something is wrong: a shell is no place for errors.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::path::PathBuf;

use clap::{CommandFactory as _, ValueEnum};
use clap_complete::engine::CompletionCandidate;
use clap_complete::env::CompleteEnv;
use ua_host::Database;
use ua_host::Settings;
use ua_host::home::Home;
use ua_host::job::LAST;
use ua_host::words::KnownSecrets;
use ua_resume::answers;
use ua_store::{CallQuery, CallRecord, LedgerStore as _, QuestionStatus, RunQuery, RunStore as _, Store};

use crate::commands::answer::AnswerChoice;
use crate::output::line;

/// What the completion script sets for `ua` to complete instead of working.
pub(crate) const VARIABLE: &str = "UA_COMPLETE";

/// At most so many candidates: more than anybody reads.
const LIMIT: u32 = 200;

/// Answers a completion script, if one asks. Returns whether one did.
pub(crate) fn answered() -> bool {
    let args = std::env::args_os();
    let folder = std::env::current_dir().ok();
    let completion = CompleteEnv::with_factory(crate::Cli::command).var(VARIABLE);
    completion.try_complete(args, folder.as_deref()).unwrap_or(true)
}

/// Runs by the beginning of their id.
pub(crate) fn runs(current: &OsStr) -> Vec<CompletionCandidate> {
    from_database(current, async |store, prefix| {
        let query = RunQuery { prefix: prefix.to_owned(), limit: LIMIT, ..RunQuery::default() };
        let found = store.find_runs(&query).await.ok()?;
        let mut candidates: Vec<(String, String)> = found
            .into_iter()
            .map(|run| (run.run_id.to_string(), format!("{} · {}", run.status, line(&run.objective, 60))))
            .collect();
        if candidates.is_empty() {
            let query = RunQuery { limit: LIMIT, ..RunQuery::default() };
            let found = store.find_runs(&query).await.ok()?.into_iter();
            candidates = as_shown(
                prefix,
                found.map(|run| (run.run_id.to_string(), format!("{} · {}", run.status, line(&run.objective, 60)))),
            );
        }
        if LAST.starts_with(prefix) {
            candidates.insert(0, (LAST.to_owned(), "the newest run".to_owned()));
        }
        Some(candidates)
    })
}

/// Calls by the beginning of their id.
pub(crate) fn calls(current: &OsStr) -> Vec<CompletionCandidate> {
    from_database(current, calls_named)
}

/// The same and `last`, for whoever looks at one.
pub(crate) fn calls_to_show(current: &OsStr) -> Vec<CompletionCandidate> {
    from_database(current, async |store, prefix| {
        let mut candidates = calls_named(store, prefix).await?;
        if LAST.starts_with(prefix) {
            candidates.insert(0, (LAST.to_owned(), "the newest call".to_owned()));
        }
        Some(candidates)
    })
}

async fn calls_named(store: &Database, prefix: &str) -> Option<Vec<(String, String)>> {
    let query = CallQuery { prefix: prefix.to_owned(), limit: LIMIT, ..CallQuery::default() };
    let found = store.find_calls(&query).await.ok()?;
    if !found.is_empty() {
        return Some(found.iter().map(named_call).collect());
    }
    let query = CallQuery { limit: LIMIT, ..CallQuery::default() };
    let newest = store.find_calls(&query).await.ok()?;
    Some(as_shown(prefix, newest.iter().map(named_call)))
}

/// Calls whose outcome nobody knows.
pub(crate) fn unknown_calls(current: &OsStr) -> Vec<CompletionCandidate> {
    from_database(current, async |store, prefix| {
        let found = store.unknown_calls().await.ok()?;
        Some(of_ids(prefix, found.iter().map(named_call).collect()))
    })
}

fn named_call(call: &CallRecord) -> (String, String) {
    (call.call_id.to_string(), format!("{} {}", call.name.tool, ua_resume::call_standing(call)))
}

/// Questions that wait for an answer.
pub(crate) fn questions(current: &OsStr) -> Vec<CompletionCandidate> {
    from_database(current, async |store, prefix| {
        let found = store.open_questions(None).await.ok()?.into_iter();
        let open = found.filter(|question| question.status == QuestionStatus::Open);
        Some(of_ids(prefix, open.map(|question| (question.question_id.to_string(), question.text)).collect()))
    })
}

/// What the question takes that stands before it on the line; every word, where none is known.
pub(crate) fn answers(current: &OsStr) -> Vec<CompletionCandidate> {
    let words: Vec<_> = std::env::args_os().skip_while(|word| word != "--").collect();
    let named = words.iter().skip_while(|word| *word != "answer").skip(1).find_map(|word| word.to_str());
    let named = named.unwrap_or_default().to_owned();
    let taken = from_database(current, async |store, prefix| {
        let question = crate::find::question(store, &named).await.ok()?;
        let reach = ua_host::questions::reach(store, &question).await.ok()?;
        let ways = answers::ways(&question, reach).into_iter();
        let ways = ways.map(|way| (way.word.to_owned(), way.meaning.to_owned()));
        Some(ways.filter(|(word, _)| word.starts_with(prefix)).collect())
    });
    if !taken.is_empty() {
        return taken;
    }
    let all = AnswerChoice::value_variants().iter().filter_map(ValueEnum::to_possible_value);
    let all = all.filter(|word| !word.is_hide_set());
    among(current, all.map(|word| (word.get_name().to_owned(), String::new())))
}

/// The next word of one of these names, each of which is one or several words: `runs list`. The words before stand on the line behind `command`.
pub(crate) fn next_word(current: &OsStr, command: &str, names: &BTreeSet<String>) -> Vec<CompletionCandidate> {
    let line: Vec<String> = std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect();
    let behind = line.iter().skip_while(|word| *word != "--").skip_while(|word| *word != command).skip(1);
    let typed = current.to_string_lossy();
    let mut before: Vec<&str> = behind.map(String::as_str).filter(|word| !word.starts_with('-')).collect();
    if before.last() == Some(&&*typed) {
        before.pop();
    }
    let next = |name: &String| {
        let words: Vec<&str> = name.split(' ').collect();
        let rest = words.strip_prefix(before.as_slice())?;
        rest.first().map(|word| (*word).to_owned())
    };
    let words: BTreeSet<String> = names.iter().filter_map(next).collect();
    among(current, words.into_iter().map(|word| (word, String::new())))
}

/// Those that begin as was typed, or else those that a person is shown so.
fn of_ids(prefix: &str, all: Vec<(String, String)>) -> Vec<(String, String)> {
    let begins: Vec<(String, String)> = all.iter().filter(|(id, _)| id.starts_with(prefix)).cloned().collect();
    let found = if begins.is_empty() { as_shown(prefix, all.into_iter()) } else { begins };
    found.into_iter().take(LIMIT as usize).collect()
}

/// Those whose short form begins as was typed, in that form: it is what people see, and may type.
fn as_shown(prefix: &str, all: impl Iterator<Item = (String, String)>) -> Vec<(String, String)> {
    let short = all.map(|(id, about)| (crate::ids::end(&id).to_owned(), about));
    short.filter(|(id, _)| id.starts_with(prefix)).collect()
}

/// Tools by name: our own, and those of others that runs of the database called. No server is started for a completion.
pub(crate) fn tools(current: &OsStr) -> Vec<CompletionCandidate> {
    let called = from_database(current, async |store, prefix| {
        let calls = store.find_calls(&CallQuery { limit: LIMIT, ..CallQuery::default() }).await.ok()?;
        let names: BTreeSet<String> = calls.into_iter().flat_map(|call| [call.name.raw, call.name.tool]).collect();
        let ours = own_tools().into_iter().flat_map(|tool| [format!("mcp__ua__{tool}"), tool]);
        let all: BTreeSet<String> = names.into_iter().chain(ours).filter(|name| name.starts_with(prefix)).collect();
        Some(all.into_iter().map(|name| (name, String::new())).collect())
    });
    if called.is_empty() { among(current, own_tools().into_iter().map(|tool| (tool, String::new()))) } else { called }
}

#[cfg(feature = "toolserver")]
pub(crate) fn own_tools() -> Vec<String> {
    ua_toolserver::tool_names().iter().map(|name| (*name).to_owned()).collect()
}

#[cfg(not(feature = "toolserver"))]
pub(crate) fn own_tools() -> Vec<String> {
    Vec::new()
}

/// Model providers.
pub(crate) fn providers(current: &OsStr) -> Vec<CompletionCandidate> {
    among(current, ua_host::providers::NAMES.iter().map(|name| ((*name).to_owned(), String::new())))
}

/// Models that are known by name.
pub(crate) fn models(current: &OsStr) -> Vec<CompletionCandidate> {
    let Ok(table) = ua_host::models::table(&Settings::of_process()) else { return Vec::new() };
    // A pattern is completed up to its star, the date of a version may follow; where that is only a part of a name it is none.
    let names = table.all().map(|(provider, name, _)| (name.trim_end_matches('*').to_owned(), provider.to_owned()));
    let names = names.filter(|(name, _)| !name.ends_with(['-', '.', ':', '/']));
    let names: BTreeSet<(String, String)> = names.collect();
    among(current, names.into_iter())
}

/// What a resume may accept; several with commas.
pub(crate) fn components(current: &OsStr) -> Vec<CompletionCandidate> {
    let text = current.to_string_lossy();
    let before = text.rfind(',').map_or("", |at| &text[..=at]);
    let names = ["policy", "tools", "servers", "pricing", "blob-threshold"];
    among(current, names.iter().map(|name| (format!("{before}{name}"), String::new())))
}

/// Policy packs.
pub(crate) fn packs(current: &OsStr) -> Vec<CompletionCandidate> {
    let packs = ua_classify::Pack::all().unwrap_or_default();
    among(current, packs.iter().map(|pack| (pack.id().to_owned(), pack.about().to_owned())))
}

/// Those words that begin as what was typed, each with what it is.
fn among(current: &OsStr, words: impl Iterator<Item = (String, String)>) -> Vec<CompletionCandidate> {
    let typed = current.to_string_lossy();
    words.filter(|(word, _)| word.starts_with(&*typed)).filter_map(candidate).collect()
}

/// A candidate, unless a shell would take it for more than a word: it puts what it is given on the line as it is, and files of a project, a
/// model and tool servers decide what things are called.
fn candidate((word, about): (String, String)) -> Option<CompletionCandidate> {
    if !ua_core::is_plain_name(&word) {
        return None;
    }
    // Shells show what it is, and some read it again.
    let about: String = line(&about, 80).chars().map(|c| if "$`\\\"'!".contains(c) { ' ' } else { c }).collect();
    let help = Some(about).filter(|about| !about.is_empty()).map(Into::into);
    Some(CompletionCandidate::new(word).help(help))
}

fn from_database(
    current: &OsStr,
    look: impl AsyncFnOnce(&Database, &str) -> Option<Vec<(String, String)>>,
) -> Vec<CompletionCandidate> {
    let found = (|| {
        let prefix = current.to_str()?;
        let home = Home::new(&Settings::of_process(), root_on_the_line().as_deref(), &KnownSecrets::default()).ok()?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().ok()?;
        runtime.block_on(async {
            let store = home.open_read_only().ok()?;
            look(&store, prefix).await
        })
    })();
    let candidates = found.unwrap_or_default().into_iter().enumerate();
    candidates.filter_map(|(index, found)| Some(candidate(found)?.display_order(Some(index)))).collect()
}

/// The value of `--root` on the line that is being completed.
fn root_on_the_line() -> Option<PathBuf> {
    let words: Vec<_> = std::env::args_os().skip_while(|word| word != "--").collect();
    let after = words.iter().position(|word| word == "--root").and_then(|at| words.get(at + 1));
    let joined = words.iter().find_map(|word| word.to_str()?.strip_prefix("--root="));
    after.map(PathBuf::from).or_else(|| joined.map(PathBuf::from))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_candidate_is_more_than_a_word_to_a_shell() {
        let offered = |words: &[&str]| {
            let words = words.iter().map(|word| ((*word).to_owned(), "$(touch x) `y`".to_owned()));
            among(OsStr::new(""), words)
        };
        let plain = ["claude-sonnet-4-5", "run_1", "mcp__ua__send_email", "meta/llama-3:70b@v1.2", "policy,tools"];
        assert_eq!(offered(&plain).len(), plain.len());
        for candidate in offered(&plain) {
            let help = candidate.get_help().unwrap().to_string();
            assert!(!help.contains(['$', '`']), "{help}");
        }
        let more = ["m$(touch${IFS}PWN)", "a b", "a;b", "a\nb", "`x`", "a\u{1b}[0m", "a'b", "a>b", "~x", "-x", "ä", ""];
        assert_eq!(offered(&more).len(), 0);
    }
}
