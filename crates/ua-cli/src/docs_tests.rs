//! Every command that README, docs, the help and the hints of this program show is one that it takes, and so is every file that they
//! show: job files, scripts, policies, configuration, secrets, prices, tool servers.
//!
//! What the commands name besides (files, tests, settings) is checked by `crates/ua-testkit/tests/it/docs.rs`, `cargo` commands by `xtask`.

#![expect(clippy::disallowed_methods, reason = "tests make the files that they look at")]

use std::collections::BTreeSet;
use std::fs;
use std::io::Write as _;
use std::path::Path;

use clap::error::ErrorKind;
use clap::{CommandFactory as _, Parser as _};
use serde_json::{Value, json};
use ua_core::{PriceTable, RunSpec, SpecError};
use ua_host::settings::{Layer, SETTINGS};
use ua_testkit::docs::{Page, Script, SimpleCommand, mentions, pages};
use ua_testkit::workspace_root;

use crate::Cli;

/// How a command stands in the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shown {
    /// To be copied: it has to be complete.
    Whole,
    /// In a sentence: arguments that it needs may be missing.
    InPart,
}

/// What is wrong with a command line of `ua`.
fn problem(words: &[String], shown: Shown) -> Option<String> {
    let error = Cli::try_parse_from(words).err()?;
    let is_help = matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion);
    let is_incomplete = matches!(
        error.kind(),
        ErrorKind::MissingRequiredArgument
            | ErrorKind::MissingSubcommand
            | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
    );
    let text = error.render().to_string();
    // A flag may be named without its value, too.
    let is_incomplete = is_incomplete || text.contains("but none was supplied");
    if is_help || (is_incomplete && shown == Shown::InPart) {
        return None;
    }
    Some(format!("`{}`: {}", words.join(" "), text.lines().next().unwrap_or_default()))
}

/// The command line of `ua` that a command of a script is, under its own name or through `cargo run`.
fn of_ua(command: &SimpleCommand) -> Option<Vec<String>> {
    let words = &command.words;
    let program = words.first()?;
    if program == "ua" || program.ends_with("/ua") {
        return Some(words.clone());
    }
    let is_run = program == "cargo" && words.get(1)? == "run" && words.windows(2).any(|two| two == ["-p", "ua-cli"]);
    let at = words.iter().position(|word| word == "--").filter(|_| is_run)?;
    Some(std::iter::once("ua".to_owned()).chain(words[at + 1..].iter().cloned()).collect())
}

/// The commands of a page that are wrong, and how many there are: those of scripts, and those of sentences.
fn commands(page: &Page) -> (Vec<String>, [usize; 2]) {
    let mut wrong = Vec::new();
    let mut counts = [0, 0];
    match page.commands() {
        Ok(commands) => {
            for (place, words) in commands.iter().filter_map(|(place, command)| Some((place, of_ua(command)?))) {
                counts[0] += 1;
                wrong.extend(problem(&words, Shown::Whole).map(|why| format!("{place}: {why}")));
            }
        }
        Err(why) => wrong.push(why),
    }
    for span in &page.spans {
        for mention in mentions("ua", &span.text) {
            counts[1] += 1;
            wrong.extend(problem(&mention.words, Shown::InPart).map(|why| format!("{}: {why}", span.place)));
        }
    }
    (wrong, counts)
}

#[test]
fn every_command_of_the_documentation_is_one_of_this_program() {
    let found: Vec<_> = pages().iter().map(commands).collect();
    let wrong: Vec<_> = found.iter().flat_map(|(wrong, _)| wrong.clone()).collect();
    assert!(wrong.is_empty(), "no such command:\n{}", wrong.join("\n"));
    let [scripts, sentences] = [0, 1].map(|kind| found.iter().map(|(_, counts)| counts[kind]).sum::<usize>());
    assert!(
        scripts > 90 && sentences > 180,
        "{scripts} in scripts, {sentences} in sentences: the pages are not read right"
    );
}

/// A job that the pages start more than once (with another model, to be killed, to be forked) has no key, by which its second start would print the
/// result of the first; any other has one, as a job of a user has that is to be done once.
#[test]
fn an_example_job_has_a_key_unless_the_pages_start_it_more_than_once() {
    let mut started: Vec<Vec<String>> = Vec::new();
    for page in pages() {
        started.extend(page.commands().unwrap().iter().filter_map(|(_, command)| of_ua(command)));
    }
    started
        .retain(|words| words.get(1).is_some_and(|word| word == "job") && !words.iter().any(|word| word == "--check"));
    let mut seen = 0;
    for entry in fs::read_dir(workspace_root().join("fixtures/jobs")).unwrap().flatten() {
        let path = entry.path();
        if path.extension().is_some_and(|ending| ending == "json") {
            seen += 1;
            let name = format!("fixtures/jobs/{}", path.file_name().unwrap().to_string_lossy());
            let times = started.iter().filter(|words| words.contains(&name)).count();
            let job: Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
            assert!(times > 0, "no page starts {name}");
            assert_eq!(job["job_key"].is_string(), times == 1, "{name}: the pages start it {times} times");
        }
    }
    assert!(seen >= 3, "{seen} jobs: the folder is not read right");
}

#[test]
fn a_made_up_command_is_seen() {
    let page = "`ua runs shw RUN`, `UA_LOG=info ua rnus list`, `ua runs show RUN --jsn`, `ua runs show`, `ua resume RUN --accept tools|policy`\n\n```sh\n\
                ua runs list; ua run list\nua runs show\nua questions --fulll   # all of it\nUA_LOG=info target/debug/ua jb a.json\n\
                cargo run -p ua-cli -- job a.json --provder scripted\n```\n";
    let (wrong, counts) = commands(&Page::parse("docs/x.md", page));
    let wanted = [
        "docs/x.md:4: `ua run list`: error: unrecognized subcommand 'run'",
        "docs/x.md:5: `ua runs show`: error: the following required arguments were not provided:",
        "docs/x.md:6: `ua questions --fulll`: error: unexpected argument '--fulll' found",
        "docs/x.md:7: `target/debug/ua jb a.json`: error: unrecognized subcommand 'jb'",
        "docs/x.md:8: `ua job a.json --provder scripted`: error: unexpected argument '--provder' found",
        "docs/x.md:1: `ua runs shw last`: error: unrecognized subcommand 'shw'",
        "docs/x.md:1: `ua rnus list`: error: unrecognized subcommand 'rnus'",
        "docs/x.md:1: `ua runs show last --jsn`: error: unexpected argument '--jsn' found",
    ];
    assert_eq!((wrong.as_slice(), counts), (wanted.map(str::to_owned).as_slice(), [6, 6]));
}

/// Programs that a reader has, or has built.
const KNOWN: [&str; 32] = [
    "./target/debug/invoices",
    "ua",
    "cargo",
    "cat",
    "cd",
    "chmod",
    "claude",
    "docker",
    "echo",
    "export",
    "install",
    "journalctl",
    "jq",
    "kill",
    "kubectl",
    "less",
    "loginctl",
    "npm",
    "ollama",
    "openssl",
    "rm",
    "sleep",
    "source",
    "sudo",
    "systemctl",
    "systemd-run",
    "target/debug/ua",
    "target/debug/ua-e2e-ua-pdf",
    "touch",
    "useradd",
    "wait",
    "xargs",
];

/// The steps of a script of `.ci`, as it lists them itself.
fn steps(script: &str) -> Option<Vec<String>> {
    let path = workspace_root().join(script);
    let text = std::fs::read_to_string(path).ok().filter(|_| script.starts_with(".ci/"))?;
    let listed = text.lines().find_map(|line| line.strip_prefix("run_steps \""))?.split('"').next()?;
    Some(listed.split(' ').map(str::to_owned).collect())
}

/// What a command of a script starts that nobody has: the program, or a step of a script of ours.
fn unknown_program(words: &[String]) -> Option<String> {
    let (program, arguments) = words.split_first()?;
    match steps(program) {
        Some(steps) => arguments.iter().find(|step| !steps.contains(step)).map(|step| format!("{program} {step}")),
        None => (!KNOWN.contains(&program.as_str())).then(|| program.clone()),
    }
}

/// Every script of the pages uses programs that a reader has, and no word that the reader of scripts did not understand.
#[test]
fn scripts_of_the_documentation_start_known_programs_only() {
    for page in pages() {
        for (place, command) in page.commands().unwrap_or_else(|why| panic!("{why}")) {
            assert_eq!(unknown_program(&command.words), None, "{place}");
        }
    }
}

#[test]
fn a_made_up_program_or_step_is_seen() {
    let unknown = |line: &str| unknown_program(&Script::parse(line).unwrap().commands[0].words);
    assert_eq!(unknown(".ci/run test lint"), None);
    assert_eq!(unknown(".ci/run tests"), Some(".ci/run tests".to_owned()));
    assert_eq!(unknown(".ci/walk"), Some(".ci/walk".to_owned()));
    assert_eq!(unknown("ub job a.json"), Some("ub".to_owned()));
}

/// The examples of a command's help: its lines up to the remark behind them, which may also stand below.
fn examples(command: &clap::Command, found: &mut Vec<String>) {
    let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    let lines = help.lines().filter_map(|line| line.strip_prefix("  ")).filter(|line| !line.starts_with(' '));
    found.extend(lines.map(|line| line.split("  ").next().unwrap_or(line).to_owned()));
    for inner in command.get_subcommands() {
        examples(inner, found);
    }
}

#[test]
fn every_example_of_the_help_is_a_command_of_this_program() {
    let mut lines = Vec::new();
    examples(&Cli::command(), &mut lines);
    let mut count = 0;
    for line in lines.iter().filter(|line| line.starts_with("ua ") || line.contains(" ua ")) {
        let script = Script::parse(line).unwrap_or_else(|why| panic!("{line}: {why}"));
        for words in script.commands.iter().filter_map(of_ua) {
            count += 1;
            assert_eq!(problem(&words, Shown::Whole), None);
        }
    }
    assert!(count > 80, "only {count} examples were found");
}

/// The commands between backticks in the texts of a source file, with a value wherever the program puts one in.
fn hinted(source: &str) -> Vec<Vec<String>> {
    let code = source.lines().filter(|line| !line.trim_start().starts_with("//"));
    let mut found = Vec::new();
    for line in code {
        let mut plain = String::new();
        let mut depth = 0_u32;
        for c in line.chars() {
            match c {
                '{' => depth += 1,
                '}' => {
                    depth = depth.saturating_sub(1);
                    plain.push_str("last");
                }
                c if depth == 0 => plain.push(c),
                _ => {}
            }
        }
        for code in plain.split('`').skip(1).step_by(2) {
            let words = mentions("ua", code).into_iter().map(|mention| mention.words);
            // Where the program puts in the command itself, there is nothing to look up.
            found.extend(words.filter(|words| words.get(1).is_some_and(|word| word != "last")));
        }
    }
    found
}

/// Files in which commands are told apart, and of which no person reads one.
fn of_commands(path: &Path) -> bool {
    ["docs_tests.rs", "ua-cli/src/symbols.rs", "ua-resume/src/commands.rs"].iter().any(|file| path.ends_with(file))
}

/// Whether these words name a command, and give it nothing.
fn is_a_name(words: &[String]) -> bool {
    let whole = Cli::command();
    let mut command = &whole;
    words[1..].iter().all(|word| match command.find_subcommand(word) {
        Some(inner) => {
            command = inner;
            true
        }
        None => false,
    })
}

#[test]
fn every_command_in_a_hint_is_one_of_this_program() {
    let crates = workspace_root().join("crates");
    // Whatever ships; the kit of the tests has made up commands.
    let all = fs::read_dir(&crates).unwrap().map(|entry| entry.unwrap().path());
    let mut folders: Vec<_> =
        all.filter(|folder| !folder.ends_with("ua-testkit")).map(|folder| folder.join("src")).collect();
    let (mut wrong, mut count) = (Vec::new(), 0);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|it| it == "rs") && !of_commands(&path) {
                for words in hinted(&fs::read_to_string(&path).unwrap()) {
                    count += 1;
                    // The name of a command stands in many sentences; what has arguments is to be copied.
                    let shown = if is_a_name(&words) { Shown::InPart } else { Shown::Whole };
                    let why = problem(&words, shown);
                    // The program puts in a number, a word of a list or the name of a flag, where this test puts in a run.
                    let is_put_in = |why: &String| {
                        why.contains("invalid value 'last' for '--") || why.contains("unexpected argument '--last'")
                    };
                    let why = why.filter(|why| !is_put_in(why));
                    wrong.extend(why.map(|why| format!("{}: {why}", path.display())));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "a hint names no command of this program:\n{}", wrong.join("\n"));
    assert!(count > 60, "only {count} commands were found in hints");
    assert_eq!(hinted("hint(format!(\"go on with `ua resume {run}`\"))"), [["ua", "resume", "last"]]);
}

/// Where a next step is made of a run's row alone, and why that is enough: whoever else names one asks `restart::next_step`, which knows of a run that
/// `effects.log` knows more about than its database, and that nobody resumes.
const BY_THE_ROW_ALONE: [(&str, &str); 10] = [
    ("ua-host/src/restart.rs", "it is the place that asks"),
    ("ua-host/src/resume.rs", "the run was taken"),
    ("ua-host/src/job/unfinished.rs", "such a run is met before"),
    ("ua-host/src/fleet/worker.rs", "a worker came to that, and says so"),
    ("ua-report/src/restart.rs", "whoever writes the page says of which runs it is so"),
    ("ua-report/src/summary.rs", "its process writes it"),
    ("ua-cli/src/commands/summary.rs", "its process drove it"),
    ("ua-cli/src/commands/which_run.rs", "of such a run nobody is asked"),
    ("ua-cli/src/commands/cancel.rs", "it is ended, and nothing of it is sent"),
    ("ua-cli/src/commands/status.rs", "why it is held is said first"),
];

/// The files of the sources in which a next step is made of a row alone.
#[test]
fn nobody_else_names_the_next_step_of_a_run_by_its_row_alone() {
    let crates = workspace_root().join("crates");
    let mut folders: Vec<_> = ["ua-cli", "ua-host", "ua-report"].map(|name| crates.join(name).join("src")).into();
    let mut found = BTreeSet::new();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let is_source = path.extension().is_some_and(|it| it == "rs") && !of_commands(&path);
            if !is_source || path.ends_with("tests.rs") {
                continue;
            }
            let text = fs::read_to_string(&path).unwrap();
            let source = text.split("\n#[cfg(test)]").next().unwrap_or_default();
            if ["NextStep::of(", "NextStep::of_queued"].iter().any(|made| source.contains(made)) {
                found.insert(path.strip_prefix(&crates).unwrap().display().to_string());
            }
        }
    }
    let known: BTreeSet<String> = BY_THE_ROW_ALONE.iter().map(|(file, _)| (*file).to_owned()).collect();
    assert_eq!(found, known);
}

// Files.

/// Why a JSON text that a page shows is not what the program reads: the tool servers of a configuration, a script, one call of a script, a
/// stop condition, or a job or a part of one.
fn json_problem(text: &str) -> Option<String> {
    let mut value: Value = match serde_json::from_str(text) {
        Ok(value) => value,
        Err(error) => return Some(format!("it is no JSON: {error}")),
    };
    if value.get("hooks").is_some() || value.get("permissions").is_some() {
        // Settings of a client.
        return None;
    }
    if value.get("mcpServers").is_some() {
        return ua_mcp::McpConfig::parse(text, "it").err().map(|error| error.to_string());
    }
    if value["name"].as_str().is_some_and(|name| name.starts_with("mcp__")) {
        value = json!({"turns": [{"tools": [value]}]});
    }
    if value.get("turns").is_some() {
        return ua_llm::Script::parse(&value.to_string()).err().map(|error| error.to_string());
    }
    if value.get("effect").is_some() || value.get("artifact").is_some() {
        value = json!({"stop_conditions": [value]});
    }
    if value.get("objective").is_none() {
        value["objective"] = json!("what the rest of the job is for");
    }
    RunSpec::parse(&value.to_string()).err().map(|error| error.to_string())
}

/// The tables of a file about models.
const MODEL_PROVIDERS: [&str; 5] = ["anthropic", "openai", "openai-chat", "scripted", "claude-code"];

/// Tables that only the gateway's configuration has.
const GATEWAY: [&str; 4] = ["http", "approvals", "budget", "client"];

/// Why a TOML text that a page shows is not what the program reads: a policy, secrets, prices, facts about models, or configuration. A value
/// that is written as `"…"` stands for one of a reader.
fn toml_problem(text: &str) -> Option<String> {
    let text = &text.replace("\"…\"", "\"a value of a reader\"");
    let table: toml::Table = match text.parse() {
        Ok(table) => table,
        Err(error) => return Some(format!("it is not valid TOML: {error}")),
    };
    let of_models = |value: &toml::Value| {
        let mut entries = value.as_table().into_iter().flatten();
        entries.next().is_some() && entries.all(|(_, entry)| entry.is_table())
    };
    let is_prices = table.get("providers").and_then(toml::Value::as_table).is_some_and(|it| it.values().any(of_models));
    if table.contains_key("dependencies") {
        // A `Cargo.toml`: `cargo xtask outside` builds with it.
        None
    } else if table.contains_key("rule") {
        ua_classify::PolicyRules::parse(text, "it").err().map(|error| error.to_string())
    } else if table.contains_key("secrets") {
        ua_host::secrets::parse(text).err()
    } else if table.contains_key("currency") && is_prices {
        PriceTable::parse("it", text).err().map(|error| error.to_string())
    } else if table.keys().all(|key| MODEL_PROVIDERS.contains(&key.as_str())) {
        ua_llm::ModelTable::parse("it", text).err().map(|error| error.to_string())
    } else if GATEWAY.iter().any(|key| table.contains_key(*key)) {
        ua_host::gateway::GatewayConfig::parse(text, Path::new("/root/of/the/gateway")).err()
    } else {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(text.as_bytes()).unwrap();
        Layer::User.read(file.path(), None).err().map(|error| error.to_string())
    }
}

/// The files of a page that are wrong, and how many there are: blocks of JSON and TOML, and what scripts write.
fn files(page: &Page) -> (Vec<String>, usize) {
    let mut all: Vec<(String, String, String)> = Vec::new();
    for block in &page.blocks {
        all.push((block.place.to_string(), format!("block.{}", block.language()), block.text.clone()));
        let script =
            if block.language() == "sh" { Script::parse(&block.text).unwrap_or_default() } else { Script::default() };
        all.extend(
            script
                .files
                .into_iter()
                .map(|file| (format!("{}:{}", page.path, block.place.line + file.line), file.file, file.text)),
        );
    }
    // JSON in a sentence counts where nothing of it is left out.
    let objects = page.spans.iter().filter(|span| span.text.starts_with("{\""));
    let whole = objects.filter(|span| serde_json::from_str::<Value>(&span.text).is_ok());
    all.extend(whole.map(|span| (span.place.to_string(), "span.json".to_owned(), span.text.clone())));
    let (mut wrong, mut count) = (Vec::new(), 0);
    for (place, name, text) in all {
        let problem = match name.rsplit_once('.').map(|(_, ending)| ending) {
            Some("json") => json_problem(&text),
            Some("toml") => toml_problem(&text),
            _ => continue,
        };
        count += 1;
        wrong.extend(problem.map(|why| format!("{place}: {why}")));
    }
    (wrong, count)
}

#[test]
fn every_file_that_a_page_shows_is_read_by_this_program() {
    let found: Vec<_> = pages().iter().map(files).collect();
    let wrong: Vec<_> = found.iter().flat_map(|(wrong, _)| wrong.clone()).collect();
    assert!(wrong.is_empty(), "the documentation shows files that are refused:\n{}", wrong.join("\n"));
    let count: usize = found.iter().map(|(_, count)| count).sum();
    assert!(count > 35, "only {count} files were found: the pages are not read right");
}

#[test]
fn a_file_that_would_be_refused_is_seen() {
    let cases = [
        ("json", "{\"objective\": \"x\", \"budgets\": {\"max_turn\": 3}}", "unknown field `budgets.max_turn`"),
        ("json", "{\"mcpServers\": {\"notes\": {\"comand\": \"x\"}}}", "`command`"),
        ("json", "{\"name\": \"mcp__ua__notify\", \"inputs\": {}}", "no field `inputs`"),
        ("json", "{\"objective\": ", "it is no JSON"),
        ("toml", "[[rule]]\nid = \"a\"\nname = \"b\"\naproval = \"ask\"", "aproval"),
        ("toml", "[model]\ntimeout = 3", "there is no setting `model.timeout`"),
        ("toml", "[secrets.A]\nvalues = \"x\"", "did you mean `value`?"),
        ("toml", "currency = \"USD\"\n[providers.anthropic.\"m\"]\nintput = 3.0", "intput"),
        ("toml", "[openai.\"m\"]\ncontxt = 3", "contxt"),
    ];
    for (language, text, wanted) in cases {
        let (wrong, _) = files(&Page::parse("docs/x.md", &format!("```{language}\n{text}\n```\n")));
        assert!(wrong.len() == 1 && wrong[0].contains(wanted), "{text}: {wrong:?}");
    }
    let page = "`{\"effect\": \"mail\"}`, `{\"effect\": \"email.send\"}`, `{\"effect\": …}`";
    let (wrong, count) = files(&Page::parse("docs/x.md", page));
    assert_eq!((wrong.len(), count), (1, 2), "{wrong:?}");
    let (wrong, count) =
        files(&Page::parse("docs/x.md", "```sh\ncat > a.json <<'JSON'\n{\"objektive\": \"x\"}\nJSON\n```\n"));
    assert_eq!((wrong.len(), count), (1, 1), "{wrong:?}");
}

// Settings.

/// What a sentence may mean by `model.complete`: crossings of a seam have such names, too.
const SEAMS: [&str; 1] = ["model.complete"];

/// Names like `model.name` in sentences that are neither a setting nor a field of a job.
fn keys(page: &Page) -> (Vec<String>, usize) {
    let sections = ["constraints", "budgets", "escalation", "artifacts", "settings", "harness", "subagents"];
    let heads: BTreeSet<&str> =
        SETTINGS.iter().filter_map(|setting| setting.key.split_once('.')).map(|(head, _)| head).collect();
    let (mut wrong, mut count) = (Vec::new(), 0);
    for span in &page.spans {
        let Some((head, rest)) = span.text.split_once('.') else { continue };
        let is_key = rest.chars().all(|c| c.is_ascii_lowercase() || c == '_' || c == '.') && !rest.is_empty();
        let is_file = ["toml", "json", "jsonl", "md", "rs", "log"].contains(&rest);
        if !is_key
            || is_file
            || !(heads.contains(head) || sections.contains(&head))
            || SEAMS.contains(&span.text.as_str())
        {
            continue;
        }
        count += 1;
        let is_setting = SETTINGS.iter().any(|setting| setting.key == span.text);
        if !is_setting && !is_job_field(head, rest) {
            wrong.push(format!("{}: there is no setting or field `{}`", span.place, span.text));
        }
    }
    (wrong, count)
}

/// Whether a job file may have this field: a wrong value of one that it has is another error.
fn is_job_field(head: &str, field: &str) -> bool {
    let job = json!({"objective": "x", (head): {(field): null}});
    !matches!(RunSpec::parse(&job.to_string()), Err(SpecError::UnknownField { .. }))
}

#[test]
fn every_key_in_a_sentence_is_a_setting_or_a_field_of_a_job() {
    let found: Vec<_> = pages().iter().map(keys).collect();
    let wrong: Vec<_> = found.iter().flat_map(|(wrong, _)| wrong.clone()).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let count: usize = found.iter().map(|(_, count)| count).sum();
    assert!(count > 40, "only {count} keys were found: the pages are not read right");
}

#[test]
fn a_made_up_key_is_seen() {
    let page = "`model.timeout_seconds`, `model.timeouts`, `settings.blob_threshold_bytes`, `settings.blob_bytes`, `model.script`";
    let (wrong, count) = keys(&Page::parse("docs/x.md", page));
    let wanted = ["model.timeouts", "settings.blob_bytes"];
    assert_eq!(wrong, wanted.map(|key| format!("docs/x.md:1: there is no setting or field `{key}`")));
    assert_eq!(count, 5);
}

/// The table of settings has one row for each (`the_guide_lists_every_setting`), and no row more.
#[test]
fn the_guide_lists_no_setting_that_is_not_there() {
    let pages = pages();
    let page = pages.iter().find(|page| page.path == "docs/guide/cli.md").unwrap();
    let rows: Vec<_> = page.rows.iter().filter(|row| row.cells.len() == 5).collect();
    for row in &rows {
        let codes = (row.cells[0].text.as_str(), row.cells[1].text.as_str());
        let is_there = SETTINGS.iter().any(|setting| (setting.key, setting.variable) == codes);
        assert!(is_there, "{}: there is no setting {codes:?}", row.place);
    }
    assert_eq!(rows.len(), SETTINGS.len());
}
