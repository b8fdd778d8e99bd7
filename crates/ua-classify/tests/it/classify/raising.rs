//! What may only raise caution raises it: each fact about a tool by itself, whatever else is known of the tool.

use std::collections::{BTreeMap, HashSet};

use ua_classify::{Classifier, JobPolicy, Lists, PolicyRules};
use ua_core::{
    CallPolicy, OnScopeConflict, OnUnknown, Reads, SideEffectClass, ToolAnnotations, ToolNamespace, ToolSpec,
};

use super::{foreign, own, plain, tool, with_policy};

/// Names that sound like reads, effects, both and neither.
const NAMES: [&str; 30] = [
    "get_page",
    "list_items",
    "search_emails",
    "check_quota",
    "fetch",
    "browser_navigate",
    "browser_click",
    "browser_snapshot",
    "execute_sql",
    "run_query",
    "http_post",
    "open_page",
    "import_page",
    "clone_repo",
    "start_crawl",
    "run_actor",
    "execute_code",
    "create_event",
    "send_email",
    "send_message",
    "slack_post_message",
    "delete_item",
    "download_file",
    "parcel",
    "COMPOSIO_MULTI_EXECUTE_TOOL",
    "GMAIL_SEND_EMAIL",
    "archival_memory_insert",
    "core_memory_append",
    "workbench_upload",
    "upload_to_composio",
];

const OWN: [&str; 12] = [
    "run_command",
    "crawl_parallel",
    "web_search",
    "read_local_file",
    "describe_image",
    "append_to_file",
    "write_local_file",
    "finalize_research",
    "send_email",
    "core_memory_append",
    "generate_image",
    "workbench_download",
];

/// What the user may have said of the tool `NAME`, or of all.
const OF_USER: [&str; 9] = [
    "",
    "side_effect_class = \"read_only\"",
    "side_effect_class = \"local\"\nkey_channel = \"meta\"",
    "key_channel = \"meta\"",
    "on_unknown = \"hold\"\nkey_channel = \"meta\"",
    "reads = [\"private\"]",
    "reads = []",
    "approval = \"ask\"\non_scope_conflict = \"refuse\"",
    "effect_kind = \"event.create\"",
];

/// What a stranger may say: in a list, or in the policy of a job.
const OF_STRANGERS: [&str; 12] = [
    "side_effect_class = \"external\"",
    "side_effect_class = \"memory\"",
    "side_effect_class = \"local\"\non_unknown = \"redo\"",
    "side_effect_class = \"external\"\nreads = []",
    "side_effect_class = \"external\"\nkey_channel = \"meta\"\non_unknown = \"redo_keyed\"",
    "side_effect_class = \"external\"\neffect_kind = \"email.send\"\nscope = [{ addresses = \"to\" }]",
    "side_effect_class = \"external\"\napproval = \"none\"\non_scope_conflict = \"allow\"",
    "reads = []",
    "reads = [\"private\"]",
    "on_unknown = \"continue\"",
    "creates = false",
    "effect_kind = \"x.y\"",
];

fn tools() -> Vec<ToolSpec> {
    let servers = ["other", "gmail", "slack", "playwright", "composio"];
    let foreign = servers.into_iter().flat_map(|server| NAMES.map(|name| tool(ToolNamespace::Mcp, server, name)));
    OWN.map(own).into_iter().chain(foreign).collect()
}

fn rule(id: &str, name: &str, says: &str) -> PolicyRules {
    let text = if says.is_empty() {
        String::new()
    } else {
        format!("[[rule]]\nid = \"{id}\"\npatterns = [\"{name}\"]\n{says}\n")
    };
    PolicyRules::parse(&text, &format!("{id}.toml")).unwrap()
}

/// What is asked less with `after` than with `before`.
fn lowered(before: &CallPolicy, after: &CallPolicy) -> Option<&'static str> {
    let care = |on_unknown| match on_unknown {
        OnUnknown::Redo => 0,
        OnUnknown::RedoKeyed => 1,
        OnUnknown::Probe => 2,
        OnUnknown::Continue => 3,
        OnUnknown::Hold => 4,
    };
    let of_conflict = |said| match said {
        OnScopeConflict::Allow => 0,
        OnScopeConflict::Ask => 1,
        OnScopeConflict::Refuse => 2,
    };
    let keeps_class = after.class == before.class || after.raised_from == Some(before.class);
    let lost = [
        ("the class", after.class < before.class || !keeps_class),
        ("what answers bring in", before.reads.iter().any(|reads| !after.reads.contains(reads))),
        ("an approval", before.needs_approval && !after.needs_approval),
        ("what happens to a lost call", care(after.on_unknown) < care(before.on_unknown)),
        (
            "what happens to a near-duplicate",
            before.class.has_effect() && of_conflict(after.on_scope_conflict) < of_conflict(before.on_scope_conflict),
        ),
        ("the effect's kind", before.effect_kind.is_some() && after.effect_kind.is_none()),
        ("a key that it needs", before.requires_idempotency_key && !after.requires_idempotency_key),
    ];
    lost.into_iter().find(|(_, is_lost)| *is_lost).map(|(what, _)| what)
}

fn vouching(classifier: Classifier, is_vouched: bool) -> Classifier {
    let chosen = ["gmail", "slack", "playwright"].map(|server| (server.to_owned(), Some(server.to_owned())));
    if is_vouched { classifier.with_packs(&BTreeMap::from(chosen)).unwrap() } else { classifier }
}

#[test]
fn s1_no_entry_of_a_list_and_no_rule_of_a_stranger_takes_any_caution_away() {
    let mut compared = 0;
    for (user, is_vouched) in OF_USER.iter().flat_map(|user| [false, true].map(|is_vouched| (*user, is_vouched))) {
        let made = |deny: &[&str], job: &str| {
            let denied = deny.iter().map(|entry| (*entry).to_owned()).collect();
            let lists = Lists { side_effect_denylist: denied, ..Lists::default() };
            let made = Classifier::new(vec![rule("mine", "*", user)], &lists, HashSet::new()).unwrap();
            let job = JobPolicy { rules: rule("evil", "*", job), is_trusted: false };
            vouching(made.with_job_policies(vec![job]).unwrap(), is_vouched)
        };
        let without = made(&[], "");
        let names: Vec<&str> = NAMES.into_iter().chain(OWN).collect();
        let lists = [(names, ""), (vec!["mcp__*"], ""), (vec!["*"], "")];
        let strangers = OF_STRANGERS.map(|says| (Vec::new(), says));
        for (deny, says) in lists.into_iter().chain(strangers).chain([(vec!["*"], OF_STRANGERS[3])]) {
            let with = made(&deny, says);
            for tool in tools() {
                let [before, after] = [&without, &with].map(|made| made.classify(&tool, None));
                let lost = lowered(&before, &after);
                assert_eq!(lost, None, "{}; user {user:?}; {deny:?} {says:?}: {before:?} {after:?}", tool.name.raw);
                compared += 1;
            }
        }
    }
    assert!(compared > 40_000, "{compared}");
}

#[test]
fn s1_no_server_takes_caution_away_by_what_it_says_of_its_tools() {
    for (user, spec) in OF_USER.into_iter().flat_map(|user| tools().into_iter().map(move |spec| (user, spec))) {
        let classifier = Classifier::new(vec![rule("mine", "*", user)], &Lists::default(), HashSet::new()).unwrap();
        let before = classifier.classify(&spec, None);
        let says = [
            ToolAnnotations { read_only: Some(true), ..ToolAnnotations::default() },
            ToolAnnotations { read_only: Some(false), ..ToolAnnotations::default() },
            ToolAnnotations { destructive: Some(true), ..ToolAnnotations::default() },
            ToolAnnotations { destructive: Some(false), idempotent: Some(true), ..ToolAnnotations::default() },
            ToolAnnotations { fetches: Some(false), ..ToolAnnotations::default() },
            ToolAnnotations { fetches: Some(true), ..ToolAnnotations::default() },
        ];
        for annotations in says {
            let after = classifier.classify(&ToolSpec { annotations, ..spec.clone() }, None);
            assert_eq!(lowered(&before, &after), None, "{} {user:?} {annotations:?}", spec.name.raw);
        }
    }
}

#[test]
fn s1_whatever_a_tool_of_others_answers_is_words_of_others_whatever_it_does() {
    for name in NAMES {
        for classifier in [plain(), with_policy("[[rule]]\nid = \"mine\"\npatterns = [\"*\"]\ntimeout = \"9s\"")] {
            let reads = classifier.classify(&foreign(name), None).reads;
            assert!(reads.contains(&Reads::Untrusted), "{name}: {reads:?}");
        }
        for class in SideEffectClass::ALL {
            let says = format!("side_effect_class = \"{class}\"");
            let said = Classifier::new(vec![rule("mine", name, &says)], &Lists::default(), HashSet::new()).unwrap();
            assert!(said.classify(&foreign(name), None).reads.contains(&Reads::Untrusted), "{name} {class}");
        }
        let said = Classifier::new(vec![rule("mine", name, "reads = []")], &Lists::default(), HashSet::new()).unwrap();
        assert_eq!(said.classify(&foreign(name), None).reads, [], "{name}: the user's own word stands");
    }
    let of_pack = |server: &str, name: &str, is_vouched: bool| {
        vouching(plain(), is_vouched).classify(&tool(ToolNamespace::Mcp, server, name), None).reads
    };
    // A browser shows the page that it goes to.
    for name in ["browser_navigate", "browser_click", "browser_type", "browser_close"] {
        assert_eq!(of_pack("playwright", name, true), [Reads::Untrusted], "{name}");
    }
    // Whoever sends a message gets a receipt, if the server is the one that the pack knows.
    for (server, name) in [("slack", "slack_post_message"), ("gmail", "send_email")] {
        assert_eq!(of_pack(server, name, true), [], "{name}");
        assert_eq!(of_pack(server, name, false), [Reads::Untrusted], "{name}");
    }
}
