//! The guide's tables of tools are made from what the server lists and what the built-in policy says, and compared here.
//!
//! `UA_WRITE_DOCS=1 cargo test -p ua-toolserver --test it documented` writes them anew.

#![expect(clippy::disallowed_methods, reason = "tests make the files that they look at")]

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use rmcp::model::Tool;
use serde_json::Value;
use ua_classify::Classifier;
use ua_core::{CallPolicy, KeyChannel, OnUnknown, ToolAnnotations, ToolName, ToolNamespace, ToolSpec};
use ua_toolserver::HONOURS_KEYS;

use super::TestServer;
use super::listing::everything;

/// Why a call of each tool may be repeated as it is, or may not: the last column of the guide's table.
const WHY: &[(&str, &str)] = &[
    ("read_local_file", "it only looks"),
    ("list_directory", "it only looks"),
    ("crawl_parallel", "pages that the run has stored are taken from their copies"),
    ("finalize_research", "its files are replaced whole; stored pages are not fetched again"),
    ("read_research_files", "it only looks"),
    ("build_evidence_ledger", "its files are replaced whole"),
    ("write_local_file", "the file is replaced whole"),
    ("render_html", "the same source gives the same bytes, put in place whole"),
    ("render_pdf", "the same source gives the same bytes, put in place whole"),
    ("compress_files", "the same files give the same bytes, put in place whole"),
    ("preview_image", "the same image gives the same copy, put in place whole"),
    ("append_to_file", "a journal knows where the text of each key went"),
    ("upload", "an object is named by its content and created only if it is absent"),
    ("workbench_upload", "the same file under the same name is the same object"),
    ("workbench_download", "the file is replaced whole"),
    ("send_email", "the Maildir and mail APIs know the key; with bare SMTP a person is asked"),
    ("notify", "a notification is named by its key; a webhook that ignores keys is asked about"),
    ("get_core_memory_blocks", "it only looks"),
    ("core_memory_append", "the key is noted in the transaction of the change"),
    ("core_memory_replace", "the key is noted in the transaction of the change"),
    ("archival_memory_insert", "the key is noted in the transaction of the change"),
    ("archival_memory_search", "it only looks"),
    ("web_search", "a search that the run has made is taken from its copy"),
    ("describe_image", "it only looks, but each answer is paid for"),
    ("generate_image", "each image is paid for, and hardly any API charges once per key"),
    ("upload_to_composio", "the same bytes go under the name of the first attempt"),
    ("run_command", "a program may do anything; harmless ones are run again"),
];

fn guide() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guide/tools.md")
}

/// The tool as the runner knows it.
pub(super) fn spec(tool: &Tool) -> ToolSpec {
    let honours_keys = tool.meta.as_ref().and_then(|meta| meta.get(HONOURS_KEYS)?.as_bool());
    ToolSpec {
        name: ToolName::qualified(ToolNamespace::Local, "ua", &tool.name),
        description: String::new(),
        input_schema: Value::Object(tool.input_schema.as_ref().clone()),
        annotations: ToolAnnotations { honours_keys, ..ToolAnnotations::default() },
    }
}

fn in_doubt(policy: &CallPolicy) -> &'static str {
    match policy.on_unknown {
        OnUnknown::Redo => "run again",
        OnUnknown::RedoKeyed => "run again under its key",
        OnUnknown::Probe => "look, then decide",
        OnUnknown::Hold => "ask a person",
        OnUnknown::Continue => "go on without it",
    }
}

/// The heading under which a tool is described: its own, or that of its family.
fn section<'a>(guide: &'a str, tool: &str) -> &'a str {
    let headings = guide.split("\n## ").skip(1).filter_map(|section| section.split_once('\n'));
    let own = headings.clone().map(|(heading, _)| heading).find(|heading| *heading == tool);
    let family = |(heading, text): &(&str, &str)| {
        ["research", "memory", "images", "workbench"].contains(heading) && text.contains(&format!("`{tool}`"))
    };
    own.or_else(|| headings.clone().find(family).map(|(heading, _)| heading)).unwrap_or("arguments")
}

fn overview(tools: &[Tool], classifier: &Classifier, guide: &str) -> String {
    let mut table = "| tool | class | key | on unknown | effect | why |\n|---|---|---|---|---|---|\n".to_owned();
    for tool in tools {
        let policy = classifier.classify(&spec(tool), None);
        let key = match &policy.key_channel {
            Some(KeyChannel::Meta) => "`_meta`",
            Some(KeyChannel::Argument(_) | KeyChannel::Header(_)) => "declared",
            None => "–",
        };
        let effect = policy.effect_kind.as_ref().map_or(String::new(), |kind| format!("`{}`", kind.as_str()));
        let why = WHY.iter().find(|(name, _)| *name == tool.name).map_or("", |(_, why)| why);
        assert!(!why.is_empty(), "{}: say why it is repeated as it is", tool.name);
        writeln!(
            table,
            "| [`{}`](#{}) | `{}` | {key} | {} | {effect} | {why} |",
            tool.name,
            section(guide, &tool.name),
            policy.class,
            in_doubt(&policy)
        )
        .unwrap();
    }
    table
}

fn arguments(tools: &[Tool]) -> String {
    let mut text = String::new();
    for tool in tools {
        let schema = Value::Object(tool.input_schema.as_ref().clone());
        let required = schema["required"].as_array().cloned().unwrap_or_default();
        let about = format!("**`{}`** {}", tool.name, tool.description.as_deref().unwrap_or_default());
        writeln!(text, "{}\n", ua_testkit::docs::filled(&about)).unwrap();
        let properties = schema["properties"].as_object().unwrap();
        if properties.is_empty() {
            continue;
        }
        text.push_str("| argument | type | |\n|---|---|---|\n");
        for (name, property) in properties {
            let must = if required.iter().any(|each| each == name) { ", required" } else { "" };
            let description =
                property["description"].as_str().unwrap_or_default().replace('\n', " ").replace('|', "\\|");
            writeln!(text, "| `{name}` | {}{must} | {description} |", kind(property)).unwrap();
        }
        text.push('\n');
    }
    text.trim_end().to_owned() + "\n"
}

/// The type of an argument in words.
fn kind(property: &Value) -> String {
    if let Some(words) = property["enum"].as_array() {
        return words
            .iter()
            .map(|word| format!("`{}`", word.as_str().unwrap_or_default()))
            .collect::<Vec<_>>()
            .join(", ");
    }
    if let Some(choices) = property["oneOf"].as_array() {
        let words = choices.iter().filter_map(|choice| choice["const"].as_str()).map(|word| format!("`{word}`"));
        return words.collect::<Vec<_>>().join(", ");
    }
    let of = property["items"]["type"].as_str().map_or_else(String::new, |of| format!(" of {of}s"));
    let number = |name: &str| property[name].as_i64();
    let limits = match (number("minimum"), number("maximum")) {
        (Some(least), Some(most)) => format!(" {least} to {most}"),
        (Some(_) | None, _) => String::new(),
    };
    format!("{}{of}{limits}", property["type"].as_str().unwrap_or("any"))
}

/// The text between the marks of a generated part; also what stands before and behind it.
fn part<'a>(text: &'a str, name: &str) -> (&'a str, &'a str, &'a str) {
    let (begin, end) = (format!("<!-- begin {name} -->\n"), format!("<!-- end {name} -->"));
    let (before, rest) = text.split_once(&begin).unwrap_or_else(|| panic!("the guide has no mark {begin:?}"));
    let (inside, _) = rest.split_once(&end).unwrap_or_else(|| panic!("the guide has no mark {end:?}"));
    let at = before.len() + begin.len();
    (&text[..at], inside, &text[at + inside.len()..])
}

#[tokio::test]
async fn the_guide_says_what_the_server_lists_and_what_the_policy_decides() {
    let world = TestServer::with(everything).await;
    let tools = world.tools().await;
    let classifier = Classifier::shipped().unwrap();
    let gone: Vec<_> = WHY.iter().filter(|(name, _)| !ua_toolserver::tool_names().contains(name)).collect();
    assert!(gone.is_empty(), "these tools are gone: {gone:?}");
    let mut text = std::fs::read_to_string(guide()).unwrap();
    #[expect(clippy::disallowed_methods, reason = "says whether the guide is written or compared")]
    let writes = std::env::var("UA_WRITE_DOCS").is_ok();
    for (name, fresh) in [("overview", overview(&tools, &classifier, &text)), ("arguments", arguments(&tools))] {
        let (before, inside, behind) = part(&text, name);
        if writes {
            text = format!("{before}{fresh}{behind}");
            continue;
        }
        assert!(
            inside == fresh,
            "docs/guide/tools.md is not what the tools are; run\n  UA_WRITE_DOCS=1 cargo test -p ua-toolserver --test it documented\nexpected:\n{fresh}"
        );
    }
    if writes {
        std::fs::write(guide(), text).unwrap();
    }
}

/// The sections that people wrote name every tool and argument too.
#[tokio::test]
async fn each_tool_has_a_section_that_names_its_arguments() {
    let world = TestServer::with(everything).await;
    let text = std::fs::read_to_string(guide()).unwrap();
    let written = text.split("<!-- begin arguments -->").next().unwrap().split("<!-- end overview -->").nth(1).unwrap();
    for tool in world.tools().await {
        assert!(
            written.contains(&format!("`{}`", tool.name)) || written.contains(&format!("## {}\n", tool.name)),
            "{}: no section",
            tool.name
        );
        for name in tool.input_schema["properties"].as_object().unwrap().keys() {
            assert!(written.contains(&format!("`{name}`")), "{}: no section speaks of `{name}`", tool.name);
        }
    }
}
