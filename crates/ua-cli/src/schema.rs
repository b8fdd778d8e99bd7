//! The schemas of what commands write with `--json`, and the page of the guide made of them.

use schemars::{JsonSchema, Schema, SchemaGenerator, generate::SchemaSettings};
use serde_json::Value;

use crate::view;

/// What a command writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shape {
    /// One object.
    One,
    /// One array of objects.
    Many,
    /// One object a line, as they come.
    Lines,
}

/// The schema of one command.
pub(crate) struct Entry {
    /// The command, without `ua`.
    pub(crate) command: &'static str,
    /// What it writes.
    pub(crate) shape: Shape,
    item: fn(&mut SchemaGenerator) -> Schema,
}

const fn entry<T: JsonSchema>(command: &'static str, shape: Shape) -> Entry {
    Entry { command, shape, item: root::<T> }
}

fn root<T: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    generator.root_schema_for::<T>()
}

/// Every command that writes JSON.
pub(crate) const ENTRIES: &[Entry] = &[
    entry::<view::ProjectMade>("init", Shape::One),
    entry::<view::RunEnded>("job", Shape::One),
    entry::<view::JobChecked>("job --check", Shape::One),
    entry::<view::RunEnded>("resume", Shape::One),
    entry::<view::RunEnded>("fork", Shape::One),
    entry::<view::ForkShown>("fork --dry-run", Shape::One),
    entry::<view::RunSubmitted>("submit", Shape::One),
    entry::<view::WorkerDid>("worker", Shape::Lines),
    entry::<view::QueueDepthRow>("queue depth", Shape::Many),
    entry::<view::QueueRow>("queue list", Shape::Many),
    entry::<view::QueueRow>("queue move", Shape::Many),
    entry::<view::QueueRow>("queue remove", Shape::One),
    entry::<view::WorkerRow>("workers list", Shape::Many),
    entry::<view::WorkerDrained>("workers drain", Shape::One),
    entry::<view::MachineForgotten>("workers forget", Shape::One),
    entry::<view::ScheduleRow>("schedule add", Shape::One),
    entry::<view::ScheduleRow>("schedule list", Shape::Many),
    entry::<view::ScheduleRow>("schedule pause", Shape::One),
    entry::<view::ScheduleRow>("schedule resume", Shape::One),
    entry::<view::RunSubmitted>("schedule run", Shape::One),
    entry::<view::ScheduleRemoved>("schedule remove", Shape::One),
    entry::<view::StatusShown>("status", Shape::One),
    entry::<view::RunRow>("runs list", Shape::Many),
    entry::<view::RunShown<'static>>("runs show", Shape::One),
    entry::<view::TailEvent>("runs tail", Shape::Lines),
    entry::<view::Row>("runs diff", Shape::One),
    entry::<view::Row>("runs export", Shape::One),
    entry::<view::RunCancelled>("runs cancel", Shape::One),
    entry::<view::RunsDeleted>("runs delete", Shape::One),
    entry::<view::CallListed>("calls list", Shape::Many),
    entry::<view::CallShown>("calls show", Shape::One),
    entry::<view::CallProbed>("calls probe", Shape::One),
    entry::<view::Resolved>("calls resolve", Shape::One),
    entry::<view::OpenQuestion>("questions", Shape::Many),
    entry::<view::OpenQuestion>("questions --watch", Shape::Lines),
    entry::<view::AnsweredQuestion>("questions --answered", Shape::Many),
    entry::<view::Answered>("answer", Shape::One),
    entry::<view::TurnShown>("turns show", Shape::One),
    entry::<view::ToolRow>("tools list", Shape::Many),
    entry::<view::Row>("tools explain", Shape::Many),
    entry::<view::PackRow>("tools packs", Shape::Many),
    entry::<view::AuditRow>("tools audit", Shape::Many),
    entry::<view::ToolsLocked>("tools lock", Shape::One),
    entry::<view::ModelRow>("models list", Shape::Many),
    entry::<view::ModelShown>("models show", Shape::One),
    entry::<view::ConfigShown>("config show", Shape::One),
    entry::<view::TrustRow>("trust", Shape::Many),
    entry::<view::LoginRow>("login", Shape::Many),
    entry::<view::LoggedOut>("logout", Shape::One),
    entry::<view::DoctorReport>("doctor", Shape::One),
    entry::<view::DbChecked>("db check", Shape::One),
    entry::<view::DbMigrated>("db migrate", Shape::One),
    entry::<view::DbMoved>("db copy", Shape::One),
    entry::<view::DbTakenBack>("db copy --undo", Shape::One),
    entry::<view::DbCopied>("db backup", Shape::One),
    entry::<view::DbRestored>("db restore", Shape::One),
    entry::<view::DbAccepted>("db accept", Shape::One),
    entry::<view::DbPruned>("db prune", Shape::One),
    entry::<view::GatewayStatus>("gateway status", Shape::One),
    entry::<view::GatewayChanged>("gateway install", Shape::One),
    entry::<view::GatewayChanged>("gateway uninstall", Shape::One),
    entry::<view::GatewayStarted>("gateway start", Shape::One),
    entry::<view::GatewayStarted>("gateway restart", Shape::One),
    entry::<view::GatewayStopped>("gateway stop", Shape::One),
    entry::<view::GatewayToken>("gateway token", Shape::One),
    entry::<view::GatewayToken>("gateway token --list", Shape::Many),
    entry::<view::ErrorShown>("error", Shape::One),
];

impl Entry {
    /// The schema of one object.
    pub(crate) fn item(&self) -> Value {
        // What is written, not what is read.
        let settings =
            SchemaSettings::draft2020_12().for_serialize().with(|settings| settings.inline_subschemas = true);
        (self.item)(&mut settings.into_generator()).to_value()
    }

    /// The schema of everything that is written; of a line, where it is lines.
    pub(crate) fn schema(&self) -> Value {
        let item = self.item();
        match self.shape {
            Shape::One | Shape::Lines => item,
            Shape::Many => serde_json::json!({
                "$schema": item["$schema"], "title": self.command, "type": "array", "items": item,
            }),
        }
    }

    /// The command, in words that are no command for errors.
    #[cfg(test)]
    fn title(&self) -> String {
        if self.command == "error" { "Errors".to_owned() } else { format!("`ua {} --json`", self.command) }
    }
}

/// The entry of a command.
pub(crate) fn find(command: &str) -> Option<&'static Entry> {
    // A flag that makes another command of it may be given as one, or as a word.
    let plain = |name: &str| name.replace("--", "");
    ENTRIES.iter().find(|entry| plain(entry.command) == plain(command))
}

/// The page of the guide.
#[cfg(test)]
pub(crate) fn page() -> String {
    let prose = |text: &str| crate::output::wrapped_to(text, 0, Some(120));
    let mut out = prose(
        "# JSON for machines\n\n\
         Every command takes `--json`. Standard output is then JSON and nothing else; what is meant for a person goes to standard error. \
         (`ua man`, `ua completions` and `--version` write what another program reads as it is, also then.) \
         An error is one line of JSON there, the last one; sentences for a person (`note: …`) may come before it.\n\
         That of a job of which a run is not finished has `run_id`, `status` as it is stored, and `shown_status` as a person is told it \
         (`answered`, `crashed`).\n\
         `ua schema COMMAND` prints the JSON Schema of what is described here. Fields are added, never renamed or removed: ignore those \
         you do not know.\n\n\
         Instants are RFC 3339 text in UTC. Text from a model, a tool or a file is unchanged, with control characters escaped as JSON \
         requires. A *row* is a record of the runtime database as it is stored; its fields carry the names of the columns; \
         [database.md](database.md#what-is-in-it) says what each table is for.\n\n\
         This page is made from the program's types; a test fails when they differ (`UPDATE_PAGES=1 cargo test -p ua-cli the_page` writes it again).\n",
    );
    for entry in ENTRIES {
        let what = match entry.shape {
            Shape::One if entry.command == "error" => "One object on a line of standard error.",
            Shape::One => "One object.",
            Shape::Many => "An array of objects.",
            Shape::Lines => "One object per line, as things happen.",
        };
        let item = entry.item();
        let about = item["description"].as_str().unwrap_or_default();
        out.push_str(&format!("\n## {}\n\n{}\n", entry.title(), prose(&format!("{what} {about}"))));
        fields(&mut out, &item);
        nested(&mut out, &item);
    }
    out
}

/// The fields of an object as a table.
#[cfg(test)]
fn fields(out: &mut String, schema: &Value) {
    let Some(properties) = schema["properties"].as_object().filter(|fields| !fields.is_empty()) else {
        out.push_str("\nA row.\n");
        return;
    };
    out.push_str("\n| field | type | meaning |\n|---|---|---|\n");
    for (name, field) in properties {
        let about = field["description"].as_str().unwrap_or_default().replace('\n', " ").replace('|', "\\|");
        out.push_str(&format!("| `{name}` | {} | {about} |\n", kind(field)));
    }
}

/// The objects inside, each as a table of its own.
#[cfg(test)]
fn nested(out: &mut String, schema: &Value) {
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        let inner = if field["items"].is_object() { &field["items"] } else { field };
        if inner["properties"].as_object().is_some_and(|fields| !fields.is_empty()) {
            out.push_str(&format!("\n`{name}`:\n"));
            fields(out, inner);
        }
    }
}

#[cfg(test)]
fn kind(field: &Value) -> String {
    let types: Vec<&str> = match &field["type"] {
        Value::String(one) => vec![one],
        Value::Array(many) => many.iter().filter_map(Value::as_str).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => Vec::new(),
    };
    let is_optional = types.contains(&"null");
    let words: Vec<String> = types
        .iter()
        .filter(|word| **word != "null")
        .map(|word| match *word {
            "array" => match field["items"]["type"].as_str() {
                Some("object") => "array of objects".to_owned(),
                Some(inner) => format!("array of {inner}s"),
                None => "array".to_owned(),
            },
            other => other.to_owned(),
        })
        .collect();
    let text = if words.is_empty() {
        if field["oneOf"].is_array() || field["enum"].is_array() { "string".to_owned() } else { "any".to_owned() }
    } else {
        words.join(" or ")
    };
    if is_optional { format!("{text} or null") } else { text }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "tests make the files that they look at")]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn the_page_of_the_guide_is_what_the_program_writes() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guide/json.md");
        if ua_host::Settings::of_process().var("UPDATE_PAGES").is_some() {
            std::fs::write(&path, page()).unwrap();
        }
        let found = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(found == page(), "docs/guide/json.md is out of date: UPDATE_PAGES=1 cargo test -p ua-cli the_page");
    }

    #[test]
    fn every_field_of_a_job_file_is_described() {
        let schema = ua_core::RunSpec::json_schema();
        let parts = schema["$defs"].as_object().unwrap().values().chain([&schema]);
        let mut count = 0;
        for (name, field) in parts.filter_map(|part| part["properties"].as_object()).flatten() {
            let about = field["description"].as_str().unwrap_or_default();
            assert!(!about.is_empty(), "{name} is not described");
            count += 1;
        }
        assert!(count > 60, "{count} fields");
        assert_eq!(schema["additionalProperties"], false);
        assert_eq!(schema["required"], serde_json::json!(["objective"]));
        assert_eq!(schema["$defs"]["Budgets"]["properties"]["max_tool_calls"]["default"], 250);
    }

    /// Commands that write no JSON: what they write is for a shell, for `man` or for a client that started them, or they are at work until they
    /// are ended and say what happens on standard error.
    const WITHOUT: [&str; 6] = ["completions", "man", "schema", "toolserver", "gateway serve", "gateway hook"];

    #[test]
    fn every_command_that_is_not_one_of_a_few_writes_json() {
        fn leaves(command: &clap::Command, path: &str, found: &mut Vec<String>) {
            let inner: Vec<_> =
                command.get_subcommands().filter(|inner| !inner.is_hide_set() && inner.get_name() != "help").collect();
            if inner.is_empty() {
                found.push(path.trim().to_owned());
            }
            for one in inner {
                leaves(one, &format!("{path} {}", one.get_name()), found);
            }
        }
        let mut found = Vec::new();
        leaves(&<crate::Cli as clap::CommandFactory>::command(), "", &mut found);
        let has = |name: &String| ENTRIES.iter().any(|entry| entry.command == name);
        let mut without: Vec<String> = found.into_iter().filter(|name| !has(name)).collect();
        let mut wanted = WITHOUT.map(str::to_owned).to_vec();
        without.sort();
        wanted.sort();
        assert_eq!(without, wanted, "`--json` of these writes no JSON");
    }

    #[test]
    fn every_field_is_described() {
        for entry in ENTRIES {
            for (name, field) in entry.item()["properties"].as_object().into_iter().flatten() {
                let about = field["description"].as_str().unwrap_or_default();
                assert!(!about.is_empty(), "`ua {}`: {name} is not described", entry.command);
            }
        }
    }
}
