//! What names say (Durable Jobs v1 spec §7.3 and §7.4), on whole words.

use std::collections::HashSet;
use std::sync::LazyLock;

use proptest::prelude::*;
use ua_classify::{Classifier, Lists};
use ua_core::{ClassSource, OnUnknown, SideEffectClass, ToolAnnotations, ToolNamespace, ToolSpec};

use super::{class, own, plain, tool};

/// Names that a search for substrings gets wrong, and relatives of theirs.
const TRICKY: [(&str, SideEffectClass); 20] = [
    // Contain READ, GET or LIST inside a word.
    ("SPREADSHEET_CLEAR_VALUES", SideEffectClass::External),
    ("SPREADSHEET_ADD_ROW", SideEffectClass::External),
    ("GOOGLESHEETS_APPEND_VALUES_TO_SPREADSHEET", SideEffectClass::External),
    ("THREAD_TRASH", SideEffectClass::External),
    ("NOTION_ADD_THREAD", SideEffectClass::External),
    ("BUDGET_APPLY", SideEffectClass::External),
    ("WIDGET_RUN", SideEffectClass::External),
    ("TARGET_PAY", SideEffectClass::External),
    ("BLOCKLIST_ADD", SideEffectClass::External),
    // Begin with a read verb and do more.
    ("GET_OR_PURCHASE", SideEffectClass::External),
    ("FETCH_AND_PURGE", SideEffectClass::External),
    ("QUEUE_GET_NEXT", SideEffectClass::External),
    ("QUEUE_FETCH_ACK", SideEffectClass::External),
    ("getOrCreateChannel", SideEffectClass::External),
    ("search_and_replace", SideEffectClass::External),
    // Contain a side-effect verb only inside a word, or as a noun in the plural.
    ("GMAIL_LIST_LABELS", SideEffectClass::ReadOnly),
    ("GITHUB_GET_REPOSITORY_COMMENTS", SideEffectClass::ReadOnly),
    ("FORUM_LIST_POSTERS", SideEffectClass::ReadOnly),
    ("GMAIL_FETCH_EMAILS", SideEffectClass::ReadOnly),
    ("listUpdates", SideEffectClass::ReadOnly),
];

#[test]
fn words_decide_and_substrings_do_not() {
    for (name, expected) in TRICKY {
        let policy = plain().classify(&tool(ToolNamespace::Composio, "tools", name), None);
        assert_eq!(policy.class, expected, "{name}: {}", policy.reason);
    }
}

#[test]
fn the_verbs_of_the_spec_decide() {
    let effects = "SEND CREATE UPDATE DELETE PATCH POST MERGE UPLOAD INVITE PUBLISH COMMENT REPLY FORWARD ARCHIVE LABEL MOVE MARK ASSIGN";
    for verb in effects.split(' ') {
        let names =
            [format!("GMAIL_{verb}_THING"), format!("{verb}_THING"), format!("LIST_{verb}"), verb.to_lowercase()];
        for name in names {
            let policy = plain().classify(&tool(ToolNamespace::Composio, "tools", &name), None);
            assert_eq!((policy.class, policy.class_source), (SideEffectClass::External, ClassSource::Name), "{name}");
            assert_eq!(policy.rule_id, format!("name:{}", verb.to_lowercase()));
        }
    }
    for verb in ["GET", "LIST", "SEARCH", "READ", "FETCH", "RETRIEVE"] {
        for name in [format!("GMAIL_{verb}_THINGS"), format!("{verb}_THINGS"), verb.to_lowercase()] {
            let policy = plain().classify(&tool(ToolNamespace::Composio, "tools", &name), None);
            assert_eq!((policy.class, policy.class_source), (SideEffectClass::ReadOnly, ClassSource::Name), "{name}");
        }
    }
}

#[test]
fn the_known_tools_of_the_spec_have_their_classes() {
    let known = [
        // `generate_image` is local in the spec; ours is paid for outside, so it is taken for more.
        (SideEffectClass::External, "workbench_upload upload_to_composio send_email upload notify generate_image"),
        (
            SideEffectClass::Local,
            "write_local_file render_html render_pdf append_to_file run_command compress_files finalize_research preview_image workbench_download build_evidence_ledger",
        ),
        (SideEffectClass::Memory, "core_memory_replace core_memory_append archival_memory_insert"),
        (
            SideEffectClass::ReadOnly,
            "read_local_file read_research_files list_directory archival_memory_search get_core_memory_blocks describe_image crawl_parallel web_search",
        ),
    ];
    for (expected, names) in known {
        for name in names.split(' ') {
            let policy = plain().classify(&own(name), None);
            assert_eq!((policy.class, policy.class_source), (expected, ClassSource::Shipped), "{name}");
        }
    }
}

#[test]
fn what_is_paid_for_is_never_repeated_by_itself() {
    let with = |name: &str, honours_keys| {
        let mut tool = own(name);
        tool.annotations.honours_keys = honours_keys;
        plain().classify(&tool, None).on_unknown
    };
    assert_eq!(with("describe_image", None), OnUnknown::Hold);
    assert_eq!(with("generate_image", Some(false)), OnUnknown::Hold);
    // Only an API that charges once per key is asked again under it.
    assert_eq!(with("generate_image", Some(true)), OnUnknown::RedoKeyed);
}

#[test]
fn the_first_word_of_a_foreign_name_is_no_prefix() {
    // Who knows what `approve_list` does.
    assert_eq!(class(&plain(), &tool(ToolNamespace::Mcp, "other", "approval_list")), SideEffectClass::External);
    assert_eq!(class(&plain(), &tool(ToolNamespace::Mcp, "github", "github_list_issues")), SideEffectClass::ReadOnly);
}

/// Servers of the property test, two of which are named like words that matter.
const SERVERS: [&str; 4] = ["tools", "gmail", "composio", "send"];

static PLAIN: LazyLock<Classifier> = LazyLock::new(plain);
static TRUSTING: LazyLock<Classifier> = LazyLock::new(|| {
    let trusted: HashSet<_> = SERVERS.iter().map(|&server| server.to_owned()).collect();
    Classifier::new(Vec::new(), &Lists::default(), trusted).unwrap()
});

fn any_namespace() -> impl Strategy<Value = ToolNamespace> {
    prop::sample::select(ToolNamespace::ALL.iter().filter(|n| **n != ToolNamespace::Local).copied().collect::<Vec<_>>())
}

fn any_annotations() -> impl Strategy<Value = ToolAnnotations> {
    (any::<Option<bool>>(), any::<Option<bool>>(), any::<Option<bool>>()).prop_map(
        |(read_only, destructive, idempotent)| ToolAnnotations {
            read_only,
            destructive,
            idempotent,
            ..ToolAnnotations::default()
        },
    )
}

fn any_words() -> impl Strategy<Value = Vec<String>> {
    const KNOWN: &[&str] =
        &["get", "list", "read", "items", "gmail", "composio", "core", "memory", "append", "tools", "search"];
    prop::collection::vec(prop_oneof![prop::sample::select(KNOWN).prop_map(str::to_owned), "[a-z]{1,8}"], 1..5)
}

proptest! {
    #[test]
    fn a_side_effect_word_more_never_lowers_the_class(
        words in any_words(),
        effect in prop::sample::select(vec!["send", "delete", "ack", "next", "pop", "purge", "or", "merge", "upload"]),
        place in any::<prop::sample::Index>(),
        is_shouted in any::<bool>(),
        separator in prop::sample::select(vec!["_", "-", "."]),
        namespace in any_namespace(),
        server in prop::sample::select(&SERVERS[..]),
        annotations in any_annotations(),
        is_trusted in any::<bool>(),
    ) {
        let spell = |words: &[String]| {
            let name = words.join(separator);
            if is_shouted { name.to_uppercase() } else { name }
        };
        let mut more = words.clone();
        more.insert(place.index(words.len() + 1), effect.to_owned());
        let classifier: &Classifier = if is_trusted { &TRUSTING } else { &PLAIN };
        let class_of = |words: &[String]| {
            let spec = ToolSpec { annotations, ..tool(namespace, server, &spell(words)) };
            class(classifier, &spec)
        };
        // A known memory tool is named in full; with a word more it is some other tool, and external.
        prop_assert!(class_of(&more) >= class_of(&words), "{} → {}", spell(&words), spell(&more));
    }

    #[test]
    fn no_claim_of_an_untrusted_server_lowers_the_class(words in any_words(), annotations in any_annotations()) {
        let silent = tool(ToolNamespace::Mcp, "other", &words.join("_"));
        let claiming = ToolSpec { annotations, ..silent.clone() };
        prop_assert!(class(&PLAIN, &claiming) >= class(&PLAIN, &silent));
    }
}
