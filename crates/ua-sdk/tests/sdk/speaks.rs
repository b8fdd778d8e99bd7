//! Whom the texts speak to: a program has neither the commands and settings of `ua` nor a job.

use std::path::Path;

use serde_json::{Value, json};
use ua_sdk::crates::ua_core::{Audience, RunId, ToolName};
use ua_sdk::crates::ua_dispatch::WithAskUser;
use ua_sdk::crates::ua_store::RunStore as _;
use ua_sdk::prelude::*;
use ua_sdk::{Constraints, Escalation, QuestionKind, StopCondition};

use crate::{Invoice, model};

/// A message with a command of `ua`, one of its flags or a setting of a job file in a crate that a program links is chosen by whom it speaks to:
/// where one is written, its file is on this list with the reason.
#[test]
fn no_message_of_the_library_names_a_command_or_a_setting_by_accident() {
    let known = [
        ("ua-core/src/other_model.rs", "chosen by the audience in `LlmError::hint_to`"),
        ("ua-core/src/spec.rs", "what a job does unasked, which `ua job --check` shows"),
        ("ua-dispatch/src/enforce.rs", "chosen by the audience"),
        ("ua-evidence/src/evidence.rs", "chosen by the audience"),
        ("ua-evidence/src/unchecked.rs", "a page in the run's folder, which is for people"),
        ("ua-llm/src/error.rs", "chosen by the audience"),
        ("ua-mcp/src/definitions.rs", "`mcp.lock` is of the command line alone"),
        ("ua-mcp/src/logins/assertion.rs", "lines of a key file, which begin with dashes"),
        ("ua-mcp/src/server.rs", "`mcp.lock` is of the command line alone"),
        ("ua-mcp/src/shim.rs", "what the helper says, which the library starts itself"),
        ("ua-report/src/restart.rs", "a page in the folder, which is for people"),
        ("ua-report/src/transcript.rs", "a page in the run's folder, which is for people"),
        ("ua-resume/src/answers.rs", "what a tool asked is answered at a terminal alone"),
        ("ua-resume/src/fork.rs", "chosen by the audience"),
        ("ua-resume/src/in_queue.rs", "a queue is of the command line alone"),
        (
            "ua-resume/src/next_step.rs",
            "a copy of a database that was put back is looked at by `ua db check` and accepted by `ua db accept` alone",
        ),
        ("ua-resume/src/question.rs", "how the command line shows a question"),
        ("ua-runner/src/drive/refused_tools.rs", "chosen by the audience"),
        ("ua-runner/src/error.rs", "chosen by the audience"),
        ("ua-runner/src/files.rs", "a page in the run's folder, which is for people"),
        ("ua-runner/src/foresee.rs", "what `ua job --check` foresees"),
        ("ua-runner/src/granular/error.rs", "beside the word of the library"),
        ("ua-runner/src/machine/request.rs", "chosen by the audience"),
        ("ua-runner/src/pin.rs", "chosen by the audience"),
        ("ua-sdk/src/runs.rs", "a database is moved by `ua db copy` alone"),
        (
            "ua-sdk/src/runs/let_go.rs",
            "a run that may have done something is deleted by `ua runs delete --force` alone",
        ),
        ("ua-sdk/src/runs/resolve.rs", "of a run that no program began"),
        ("ua-store-postgres/src/config.rs", "what the command line says; `Runs::on_server` names its own word"),
        (
            "ua-store-postgres/src/filling.rs",
            "the schema on a server is made by `ua db migrate`, as `Runs::on_server` says",
        ),
        ("ua-store-postgres/src/history.rs", "of the gateway, which is of the command line alone"),
        ("ua-store-postgres/src/notes.rs", "what `ua db check` says"),
        (
            "ua-store-postgres/src/owners.rs",
            "the schema on a server is made by `ua db migrate`, as `Runs::on_server` says",
        ),
        ("ua-store-postgres/src/places.rs", "of the gateway, which is of the command line alone"),
        ("ua-store-sqlite/src/departure.rs", "a database is moved by `ua db copy` alone"),
        ("ua-store-sqlite/src/open.rs", "beside what a program does"),
        ("ua-store/src/invariants/known.rs", "what `ua db check` says"),
        ("ua-toolserver/src/tools/command.rs", "`run_command`, which a program is not offered"),
    ];
    let found: Vec<String> =
        sources(&LINKED).into_iter().filter(|(_, code)| speaks_to_a_terminal(code)).map(|(file, _)| file).collect();
    let known: Vec<&str> = known.iter().map(|(file, _)| *file).collect();
    assert_eq!(
        found, known,
        "say it without a command or setting, or choose it by `Audience`, and list it with the reason"
    );
}

/// The crates that a program links.
const LINKED: [&str; 18] = [
    "ua-checkpoint",
    "ua-classify",
    "ua-core",
    "ua-dispatch",
    "ua-evidence",
    "ua-files",
    "ua-http",
    "ua-ledger",
    "ua-llm",
    "ua-mcp",
    "ua-report",
    "ua-resume",
    "ua-runner",
    "ua-sdk",
    "ua-store",
    "ua-store-postgres",
    "ua-store-sqlite",
    "ua-toolserver",
];

/// The files of these crates, each up to its tests.
fn sources(of: &[&str]) -> Vec<(String, String)> {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut found = Vec::new();
    for name in of {
        let mut folders = vec![crates.join(name).join("src")];
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()) {
                let shown = entry.strip_prefix(crates).unwrap().display().to_string();
                if entry.is_dir() {
                    folders.push(entry);
                } else if entry.extension().is_some_and(|end| end == "rs") && !shown.contains("tests") {
                    let text = std::fs::read_to_string(&entry).unwrap();
                    let code = text.split("\nmod tests {").next().unwrap_or_default();
                    found.push((shown, code.to_owned()));
                }
            }
        }
    }
    found.sort();
    found
}

/// Whether code has, outside its comments, what exists at a terminal alone: a command of `ua`, a flag, or a setting of a job file.
fn speaks_to_a_terminal(code: &str) -> bool {
    let words = ["`ua ", "`--", "`tools.", "`settings.", "`model."];
    code.lines().any(|line| !line.trim_start().starts_with("//") && words.iter().any(|word| line.contains(word)))
}

/// The other way round: at a terminal there are no methods. A text of a crate that `ua` links and that names one is chosen by whom it speaks to, or is of
/// the library's own face: where one is written, its file is on this list with the reason.
#[test]
fn no_message_of_the_command_line_names_a_method_by_accident() {
    let known = [
        ("ua-core/src/audience.rs", "where it is chosen"),
        ("ua-core/src/wait_budgets.rs", "chosen by the audience"),
        ("ua-host/src/fork.rs", "who forks a run that a program began"),
        ("ua-runner/src/error.rs", "chosen by the audience"),
        ("ua-runner/src/granular/definition.rs", "the library's own face"),
        ("ua-runner/src/granular/error.rs", "the library's own face"),
        ("ua-runner/src/granular/fits.rs", "the library's own face"),
        ("ua-runner/src/granular/outcome.rs", "the library's own face"),
        ("ua-runner/src/pin.rs", "chosen by the audience"),
    ];
    let all = LINKED.iter().copied().filter(|name| *name != "ua-sdk").chain(["ua-broker", "ua-cli", "ua-host"]);
    let mut found = Vec::new();
    for (file, code) in sources(&all.collect::<Vec<_>>()) {
        // Types that nothing but the library has.
        if texts_in(&code).into_iter().flat_map(methods_in).any(|(of, _)| ["Runs", "Step", "Component"].contains(&of)) {
            found.push(file);
        }
    }
    let known: Vec<&str> = known.iter().map(|(file, _)| *file).collect();
    assert_eq!(found, known, "say it with a command, or choose it by `Audience`, and list it with the reason");
}

/// What a text tells a program to call is there: a method that is renamed is renamed in the texts and in the guide.
#[test]
fn what_texts_and_the_guide_tell_a_program_to_call_is_in_the_public_surface() {
    let surface = crate::guidelines::surface();
    let guide = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guide/library.md");
    let guide = std::fs::read_to_string(guide).unwrap();
    let sources = sources(&LINKED);
    let texts =
        sources.iter().flat_map(|(file, code)| texts_in(code).into_iter().map(move |text| (file.as_str(), text)));
    let mut seen = 0;
    for (file, text) in texts.chain([("library.md", guide.as_str())]) {
        for (of, name) in methods_in(text) {
            // Names of the crates below, and of others.
            let Some(lines) = surface.get(of) else { continue };
            let is_there = lines.iter().any(|line| {
                let words = ["fn ", "const "].iter().find_map(|word| line.split_once(*word)).map(|(_, rest)| rest);
                let rest = words.unwrap_or(line.strip_prefix("pub ").unwrap_or(line)).strip_prefix(name);
                rest.is_some_and(|rest| !rest.starts_with(|c: char| c.is_alphanumeric() || c == '_'))
            });
            assert!(is_there, "{file} names `{of}::{name}`, which is not in public-api.txt");
            seen += 1;
        }
    }
    assert!(seen > 40, "{seen}");
}

/// The methods and variants that a text names: `` `Type::name` ``, also with more behind the name.
fn methods_in(text: &str) -> impl Iterator<Item = (&str, &str)> {
    text.split('`').skip(1).step_by(2).filter_map(|word| {
        let (of, rest) = word.split_once("::")?;
        let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
        let is_type = of.starts_with(|c: char| c.is_ascii_uppercase()) && of.chars().all(char::is_alphanumeric);
        (is_type && end > 0).then(|| (of, &rest[..end]))
    })
}

#[test]
fn methods_are_told_from_what_stands_around_them() {
    let text = "`Runs::open` the folder, `Answer::new(…).text(…)`; `std::fs`, `Choice::{choice:?}` and Runs::get";
    assert_eq!(methods_in(text).collect::<Vec<_>>(), [("Runs", "open"), ("Answer", "new")]);
}

/// A text that has the word is chosen by whom it speaks to (`Audience::work`): where one is written, its file is on this list with the reason, and
/// with how many there are.
#[test]
fn no_text_that_a_step_can_show_has_the_word_job() {
    let known = [
        ("ua-classify/src/classifier.rs", 1, "policies of a job file, of which a step has none"),
        ("ua-classify/src/classifier/opinion.rs", 3, "policies of a job file, of which a step has none"),
        ("ua-classify/src/classifier/version.rs", 2, "policies of a job file, of which a step has none"),
        ("ua-classify/src/explain.rs", 2, "what `ua tools explain` says"),
        ("ua-classify/src/name/acts.rs", 4, "a word in names of tools"),
        ("ua-classify/src/name/vocabulary.rs", 2, "a word in names of tools"),
        ("ua-core/src/audience.rs", 1, "where it is chosen"),
        ("ua-core/src/harness.rs", 3, "iterations, of which a step has none"),
        ("ua-core/src/input_file.rs", 2, "files of a job, of which a step has none"),
        ("ua-core/src/other_model.rs", 1, "a flag of the command line, which is named there alone"),
        ("ua-core/src/phase.rs", 1, "phases, of which a step has none"),
        ("ua-core/src/policy.rs", 1, "a word in names of tools"),
        ("ua-core/src/spec.rs", 6, "what is wrong with a job file: `words_of_a_step` says it of a step; phases"),
        ("ua-core/src/spec/check.rs", 1, "iterations, of which a step has none"),
        ("ua-dispatch/src/enforce.rs", 1, "chosen by the audience"),
        ("ua-dispatch/src/task.rs", 2, "sub-agents, of which a step has none"),
        ("ua-evidence/src/testing.rs", 2, "for tests"),
        ("ua-ledger/src/verdict/table.rs", 1, "tests"),
        ("ua-llm/src/script/doubts.rs", 1, "what `ua job --check` says of a script"),
        ("ua-report/src/summary_render.rs", 1, "the job file, of which a step has none"),
        ("ua-report/src/transcript.rs", 1, "chosen by the audience"),
        ("ua-resume/src/commands.rs", 1, "the name of a command"),
        ("ua-resume/src/handoff_note.rs", 3, "iterations, of which a step has none"),
        ("ua-resume/src/next_step.rs", 2, "what `ua` says beside a command that it names"),
        ("ua-runner/src/error.rs", 1, "chosen by the audience"),
        ("ua-runner/src/input_files.rs", 5, "files of a job, of which a step has none"),
        ("ua-runner/src/iteration.rs", 1, "iterations, of which a step has none"),
        ("ua-runner/src/machine/iteration.rs", 1, "iterations, of which a step has none"),
        ("ua-runner/src/tasks.rs", 1, "sub-agents, of which a step has none"),
        ("ua-runner/src/tasks/carve.rs", 2, "sub-agents, of which a step has none"),
        ("ua-store-postgres/src/fleet_rows.rs", 2, "SQL"),
        ("ua-store-postgres/src/lineage_rows.rs", 1, "job keys, of which a step has none"),
        ("ua-store-sqlite/src/fleet_rows.rs", 2, "SQL"),
        ("ua-store-sqlite/src/lineage_rows.rs", 1, "job keys, of which a step has none"),
        ("ua-store/src/conformance/calls.rs", 1, "tests of stores"),
        ("ua-store/src/conformance/ownership.rs", 2, "tests of stores"),
        ("ua-store/src/conformance/samples.rs", 2, "tests of stores"),
        ("ua-store/src/invariants/agreement.rs", 1, "what `ua db check` says"),
        ("ua-store/src/mem/lineage.rs", 1, "job keys, of which a step has none"),
        ("ua-store/src/rules/fork.rs", 1, "job keys, of which a step has none"),
        (
            "ua-store/src/said.rs",
            2,
            "the name of a field of a job; what a step is to do is looked at before it is stored",
        ),
        ("ua-toolserver/src/tools/crawl/fetch.rs", 1, "the name under which it fetches pages"),
    ];
    let counted = |(file, code): (String, String)| {
        let texts = texts_in(&code);
        let with_it = texts.into_iter().filter(|text| speaks_of_a_job(text)).count();
        (with_it > 0).then_some((file, with_it))
    };
    let found: Vec<(String, usize)> = sources(&LINKED).into_iter().filter_map(counted).collect();
    let known: Vec<(String, usize)> = known.iter().map(|(file, many, _)| ((*file).to_owned(), *many)).collect();
    assert_eq!(found, known, "say it without the word, or choose it by `Audience::work`, or list it with the reason");
}

/// The command line shows and changes runs of programs as well. What it says of the work of a run is chosen by who began it, or is true for both;
/// where "the job" is meant, a text is in one of these files, which are about nothing else, or is counted here with its reason.
#[test]
fn the_command_line_calls_nothing_a_job_that_may_be_a_step() {
    let about_jobs = [
        ("ua-cli/src/commands.rs", "what is done for a moment before a job begins"),
        ("ua-cli/src/commands/check.rs", "`ua job --check`"),
        ("ua-cli/src/commands/doctor.rs", "an example with a job file"),
        ("ua-cli/src/commands/doctor/setup.rs", "the job that is looked at with `--job`"),
        ("ua-cli/src/commands/fleet.rs", "`ua submit`"),
        ("ua-cli/src/commands/fork.rs", "`ua fork`, which is refused for a run of a program"),
        ("ua-cli/src/commands/init.rs", "`ua init`"),
        ("ua-cli/src/commands/job.rs", "`ua job`"),
        ("ua-cli/src/commands/models.rs", "the model of a job"),
        ("ua-cli/src/commands/schedule.rs", "`ua schedule`"),
        ("ua-cli/src/commands/tools.rs", "an example with a job file"),
        ("ua-cli/src/commands/trust.rs", "policies of job files"),
        ("ua-cli/src/stray.rs", "words that are no command"),
        ("ua-host/src/check.rs", "`ua job --check`"),
        ("ua-host/src/consent.rs", "policies of job files"),
        ("ua-host/src/fleet/due.rs", "schedules"),
        ("ua-host/src/fleet/queues.rs", "the queue, in which no program's run is"),
        ("ua-host/src/fleet/schedule.rs", "schedules"),
        ("ua-host/src/fork.rs", "`ua fork`, which is refused for a run of a program"),
        ("ua-host/src/input_files.rs", "files of a job"),
        ("ua-host/src/job.rs", "`ua job`"),
        ("ua-host/src/job/anew.rs", "`ua job`"),
        ("ua-host/src/job/beginning.rs", "`ua job`"),
        ("ua-host/src/job/done_before.rs", "`ua job`"),
        ("ua-host/src/job/earlier_text.rs", "`ua job`"),
        ("ua-host/src/job/unfinished.rs", "`ua job`"),
        ("ua-host/src/job_file.rs", "the job file"),
        ("ua-host/src/launch.rs", "how a job is begun"),
        ("ua-host/src/launch/named_policies.rs", "policies of job files"),
        ("ua-host/src/launch/script.rs", "the script of a job"),
        ("ua-host/src/placed.rs", "settings that a job overrides"),
        ("ua-host/src/pricing.rs", "the budget of a job"),
        ("ua-host/src/progress.rs", "what a run says that `ua` drives"),
        ("ua-host/src/providers.rs", "the model of a job"),
        ("ua-host/src/selectors.rs", "tools that a job names"),
        ("ua-host/src/servers/builtin.rs", "the tools of a job"),
    ];
    let counted = [
        ("ua-cli/src/commands/cancel.rs", 1, "chosen by the audience"),
        ("ua-cli/src/commands/db.rs", 1, "beside the step"),
        ("ua-cli/src/commands/delete.rs", 2, "job keys, of which a step has none"),
        ("ua-cli/src/commands/which_run.rs", 2, "the run that keeps `ua job` from starting another one"),
        ("ua-host/src/error.rs", 1, "beside `settings.degraded_replay`, which a resume of a job is told of"),
        ("ua-host/src/settings/list.rs", 1, "a field of a job file, which no step has"),
    ];
    let (mut files, mut counts) = (Vec::new(), Vec::new());
    for (file, code) in sources(&["ua-cli", "ua-host"]) {
        let many = texts_in(&code).into_iter().filter(|text| speaks_of_the_job(text)).count();
        match many {
            0 => {}
            _ if about_jobs.iter().any(|(known, _)| *known == file) => files.push(file),
            many => counts.push((file, many)),
        }
    }
    let about_jobs: Vec<&str> = about_jobs.iter().map(|(file, _)| *file).collect();
    assert_eq!(files, about_jobs, "leave out of the list what says nothing of a job any more");
    let counted: Vec<(String, usize)> = counted.iter().map(|(file, many, _)| ((*file).to_owned(), *many)).collect();
    assert_eq!(counts, counted, "choose it by `Audience::work`, say it of the run, or list it with the reason");
}

/// Whether a text says of some work that it is a job: "the job", "this job", and not "the job file" or "the job key".
fn speaks_of_the_job(text: &str) -> bool {
    let text = text.replace("\\n", " ");
    let words = text.split(|letter: char| !letter.is_alphanumeric() && letter != '_');
    let words: Vec<String> = words.filter(|word| !word.is_empty()).map(str::to_lowercase).collect();
    (1..words.len()).any(|at| {
        let is_one = matches!(words[at].as_str(), "job" | "jobs");
        let is_named = matches!(words[at - 1].as_str(), "the" | "this" | "its" | "same" | "your");
        let goes_on = words.get(at + 1).is_some_and(|next| matches!(next.as_str(), "file" | "files" | "key" | "keys"));
        is_one && is_named && !goes_on
    })
}

#[test]
fn the_job_is_told_from_its_file_and_its_key() {
    for text in ["the job is not started", "Is\\nthis job's end", "Same jobs"] {
        assert!(speaks_of_the_job(text), "{text}");
    }
    for text in ["the job file", "the job keys of two", "a job", "the step", "the joblist"] {
        assert!(!speaks_of_the_job(text), "{text}");
    }
}

fn speaks_of_a_job(text: &str) -> bool {
    let mut words = text.split(|letter: char| !letter.is_alphanumeric() && letter != '_');
    words.any(|word| matches!(word.to_lowercase().as_str(), "job" | "jobs"))
}

/// The texts of code, as they are written there.
fn texts_in(code: &str) -> Vec<&str> {
    let (mut rest, mut found) = (code, Vec::new());
    while let Some(at) = rest.find(['"', '\'', '/']) {
        let (before, after) = (rest[..at].trim_end_matches('#'), &rest[at + 1..]);
        let hashes = &rest[before.len()..at];
        rest = match &rest[at..=at] {
            "/" if after.starts_with('/') => after.split_once('\n').map_or("", |(_, rest)| rest),
            // A letter, which may be a quotation mark.
            "'" if after.starts_with(['"', '\\']) => after.get(2..).unwrap_or_default(),
            "\"" => {
                let end = if before.ends_with('r') { after.find(&format!("\"{hashes}")) } else { end_of_text(after) };
                let (text, rest) = after.split_at(end.unwrap_or(after.len()));
                found.push(text);
                rest.get(1..).unwrap_or_default()
            }
            _ => after,
        };
    }
    found
}

/// Where the quotation mark is that ends a text, whose beginning this is.
fn end_of_text(text: &str) -> Option<usize> {
    let mut is_escaped = false;
    text.bytes().position(|byte| {
        let ends = byte == b'"' && !is_escaped;
        is_escaped = byte == b'\\' && !is_escaped;
        ends
    })
}

#[test]
fn texts_are_told_from_the_code_around_them() {
    let code = "let a = \"a \\\"job\\\" \\\\\"; // \"no job\"\n match b { '\"' => '\\'', _ => r#\"the \"job\"\"# } f(\"one \\\n          text\", 'a)";
    assert_eq!(texts_in(code), ["a \\\"job\\\" \\\\", "the \"job\"", "one \\\n          text"]);
    assert!(speaks_of_a_job("This Job") && !speaks_of_a_job("job_json of jobless"));
}

#[derive(Deserialize, JsonSchema)]
struct Page {
    #[expect(dead_code, reason = "the runner looks at it")]
    url: String,
}

/// A run that meets what a step can meet: what its model was told, and what persons were asked.
#[tokio::test]
async fn a_model_and_the_persons_of_a_step_are_told_of_a_step() {
    let folder = tempfile::tempdir().unwrap();
    let runs = Runs::open(folder.path()).unwrap();
    let look = tool("look", "Looks at a page.", async |_: Call, _: Page| Ok::<_, Failure>("seen")).reads();
    let erase = tool("erase", "Erases.", async |_: Call, (): ()| Ok::<_, Failure>("erased")).external("page.delete");
    let lost = tool("send_invoice", "Sends.", async |_: Call, _: Invoice| Err::<(), _>(Failure::unknown("gone")));
    let ask = |name: &str, input: Value| json!({"tools": [{"name": name, "input": input}]});
    let send = ask("mcp__program__send_invoice", json!({"order": "A-17", "cents": 900}));
    let turns = json!([
        ask("mcp__program__erase", json!({})),
        ask("mcp__program__look", json!({"url": "https://elsewhere.example/"})),
        ask(&ToolName::ask_user().raw, json!({"question": "Which order?"})),
        {"text": "I will not.", "stop_reason": "refusal"},
        {"text": "All is done."},
        send,
        send,
        {"text": "Sent."},
    ]);
    let step = Step::new("invoices")
        .model(model(&turns))
        .tool(look)
        .tool(erase)
        .tool(lost.external("invoice.send"))
        .constraints(Constraints {
            forbidden_actions: vec!["erase".to_owned()],
            allowed_domains: vec!["example.org".to_owned()],
            ..Constraints::default()
        })
        .escalation(Escalation { ask_user: true, ..Escalation::default() })
        .stop_when(StopCondition::Effect { effect: "invoice.send".to_owned(), count: 1, max: None })
        .input("Send the invoice.");
    let mut told = Vec::new();
    let outcome = loop {
        let question = match runs.run(&step, "november").await.unwrap() {
            Outcome::Waiting { question } => question,
            ended @ (Outcome::Complete { .. }
            | Outcome::Stopped { .. }
            | Outcome::Failed { .. }
            | Outcome::Cancelled) => {
                break ended;
            }
        };
        told.push(question.text.clone());
        let answer = if question.kind == QuestionKind::AskUser {
            Answer::new(Choice::Skip)
        } else {
            Answer::new(Choice::Happened).proof("invoice 4711")
        };
        runs.answer(&question, answer).await.unwrap();
    };
    assert!(matches!(outcome, Outcome::Complete { .. }), "{outcome:?}");
    runs.fork(&step.input("Send the invoice for A-17."), "fork", "november", Some(2)).await.unwrap();
    for run in ["november", "fork"] {
        let records = runs.store().load(&RunId::parse(run).unwrap()).await.unwrap();
        told.extend(records.messages.iter().map(|record| json!(record.message).to_string()));
    }
    told.push(WithAskUser::spec(Audience::Program).description);
    for text in &told {
        assert!(!speaks_of_a_job(text), "{text}");
    }
    for part in [
        "This step forbids `erase`",
        "this step may not reach https://elsewhere.example/",
        "by what the step says",
        "part of the step can be done",
        "The step is not finished",
        "already happened in this step",
        "Go on with the step",
        "A person changed the step",
    ] {
        assert!(told.iter().any(|text| text.contains(part)), "{part}: {told:#?}");
    }
}
