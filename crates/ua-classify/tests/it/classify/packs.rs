//! Which pack counts for which server, and how far (docs/adr/0022).

use std::collections::BTreeMap;

use serde_json::{Value, json};
use ua_classify::{Classifier, Pack, PolicyError};
use ua_core::{
    CallPolicy, FoundBy, Makes, OnUnknown, SideEffectClass, TimeForm, ToolAnnotations, ToolNamespace, ToolSpec,
};

use super::{plain, tool};

fn of(server: &str, name: &str, arguments: &[&str]) -> ToolSpec {
    let properties: serde_json::Map<String, Value> =
        arguments.iter().map(|argument| ((*argument).to_owned(), json!({}))).collect();
    ToolSpec {
        input_schema: json!({"type": "object", "properties": properties}),
        ..tool(ToolNamespace::Mcp, server, name)
    }
}

fn vouched(server: &str, pack: &str) -> Classifier {
    let chosen = BTreeMap::from([(server.to_owned(), Some(pack.to_owned()))]);
    plain().with_packs(&chosen).unwrap()
}

fn with_hint(read_only: bool, tool: ToolSpec) -> ToolSpec {
    ToolSpec { annotations: ToolAnnotations { read_only: Some(read_only), ..ToolAnnotations::default() }, ..tool }
}

#[test]
fn a_pack_counts_for_the_server_that_somebody_vouches_for() {
    let branch = of("work", "git_branch", &[]);
    assert_eq!(plain().classify(&branch, None).class, SideEffectClass::External);
    let policy = vouched("work", "git").classify(&branch, None);
    assert_eq!((policy.class, policy.rule_id.as_str()), (SideEffectClass::ReadOnly, "pack:git:reads"));
    assert!(policy.reason.contains("rule reads of the pack git"), "{}", policy.reason);
    // Another server of the same configuration is none of it.
    assert_eq!(vouched("other", "git").classify(&branch, None).class, SideEffectClass::External);
}

#[test]
fn a_lost_message_is_looked_for_by_its_mark() {
    let post = of("chat", "slack_post_message", &["channel_id", "text"]);
    let policy = vouched("chat", "slack").classify(&post, None);
    assert_eq!((policy.class, policy.on_unknown), (SideEffectClass::External, OnUnknown::Probe));
    assert_eq!(policy.effect_kind.unwrap().as_str(), "message.post");
    assert!(policy.probe.is_some() && policy.marker.is_some());
}

/// What is put into another place is not made once more, whatever its name says.
#[test]
fn a_task_that_is_moved_is_no_new_task() {
    let moved = of("asana", "asana_add_task_to_section", &["section_id", "task_id"]);
    assert_eq!(plain().classify(&moved, None).effect_kind.unwrap().as_str(), "task.create");
    let policy = vouched("asana", "asana").classify(&moved, None);
    assert_eq!((policy.class, policy.effect_kind, policy.makes_anew), (SideEffectClass::External, None, false));
    for (name, arguments, kind) in [
        ("asana_create_task", ["project_id", "name", "notes"], "task.create"),
        ("asana_create_subtask", ["parent_task_id", "name", "notes"], "task.create"),
        ("asana_create_task_story", ["task_id", "text", "html_text"], "task.comment"),
    ] {
        let policy = vouched("asana", "asana").classify(&of("asana", name, &arguments), None);
        assert_eq!((policy.on_unknown, policy.effect_kind.unwrap().as_str()), (OnUnknown::Probe, kind), "{name}");
        assert!(policy.marker.is_some_and(|marker| marker.given), "{name}");
    }
}

#[test]
fn reads_that_their_names_do_not_say_are_reads_by_their_packs() {
    for (pack, name) in [("quickbooks", "query"), ("quickbooks", "get_deposit"), ("kubernetes", "explain_resource")] {
        let tool = of(pack, name, &[]);
        assert!(plain().classify(&tool, None).class.has_effect(), "{name}");
        assert_eq!(vouched(pack, pack).classify(&tool, None).class, SideEffectClass::ReadOnly, "{name}");
    }
}

/// A call that only drafts an entry is not counted as the entry, and who counts entries is asked about it.
#[test]
fn what_is_only_drafted_is_not_counted_as_made() {
    for (name, effect) in [("create_invoice", "invoice.create"), ("receive_payment", "payment.create")] {
        let tool = of("quickbooks", name, &["customer_name", "amount", "draft"]);
        let policy = vouched("quickbooks", "quickbooks").classify(&tool, None);
        assert_eq!((policy.class, policy.on_unknown), (SideEffectClass::External, OnUnknown::Hold), "{name}");
        assert_eq!((policy.makes(name, effect), policy.is_by_content()), (Makes::Perhaps, true), "{name}");
        // Of a server that does not draft first its name says it.
        let at_once = of("books", name, &["customer_name", "amount"]);
        assert!(plain().classify(&at_once, None).effect_kind.is_some(), "{name}");
    }
}

/// Its pack knows the class of a tool that runs what it is given, and not what somebody gives it.
#[test]
fn what_runs_whatever_it_is_given_may_have_made_anything() {
    for (pack, name, argument) in [
        ("aws-api", "call_aws", "cli_command"),
        ("docker", "run_container", "image"),
        ("postgres", "execute_sql", "sql"),
        ("supabase", "execute_sql", "query"),
        ("supabase", "deploy_edge_function", "files"),
        ("mysql-benborla", "mysql_query", "sql"),
    ] {
        let policy = vouched(pack, pack).classify(&of(pack, name, &[argument]), None);
        assert_eq!(policy.makes(name, "email.send"), Makes::Perhaps, "{pack}: {name}");
    }
    // Programs of ours, where they reach somebody.
    let own = tool(ToolNamespace::Local, "ua", "run_command");
    for (reach_out, makes) in [(false, Makes::No), (true, Makes::Perhaps)] {
        let policy = plain().with_commands_that_reach_out(reach_out).classify(&own, None);
        assert_eq!(policy.makes("run_command", "email.send"), makes);
    }
}

/// Whatever a tool is called that says something to somebody.
#[test]
fn what_is_addressed_is_one_more_each_time() {
    for name in ["write_email", "page", "postmark", "outbound", "whisper", "relay"] {
        for fields in [["to", "body"], ["recipient", "message"], ["To", "Subject"]] {
            assert!(plain().classify(&of("s", name, &fields), None).is_by_content(), "{name} {fields:?}");
        }
    }
    // Whatever else goes from one thing to another.
    for (name, fields) in [("relay", ["to", "amount"]), ("translate", ["text", "to"]), ("rewrite", ["to", "content"])] {
        assert!(!plain().classify(&of("s", name, &fields), None).is_by_content(), "{name} {fields:?}");
    }
    assert!(!plain().classify(&of("s", "get_page", &["to", "text"]), None).is_by_content(), "it reads");
}

#[test]
fn s13_a_name_in_the_configuration_vouches_for_nothing() {
    // A server that is called github, whatever it is: every tool that a pack calls a read, and every one that it would look up.
    for pack in Pack::all().unwrap() {
        for server in pack.servers() {
            let (claimed, without) = (plain(), Classifier::without_packs().unwrap());
            for name in names_in(pack) {
                for hint in [None, Some(true), Some(false)] {
                    let bare = of(server, &name, &["owner", "repo", "title", "body", "idempotency_key"]);
                    let spec = hint.map_or(bare.clone(), |hint| with_hint(hint, bare));
                    let (of_pack, of_name) = (claimed.classify(&spec, None), without.classify(&spec, None));
                    assert!(of_pack.class >= of_name.class, "{server}:{name}");
                    let is_held = !of_pack.class.has_effect() || of_pack.on_unknown == OnUnknown::Hold;
                    let CallPolicy { probe, marker, key_channel, errors_without_effect, .. } = &of_pack;
                    assert!(is_held && probe.is_none() && marker.is_none() && key_channel.is_none(), "{server}:{name}");
                    assert!(errors_without_effect.is_empty(), "{server}:{name}");
                    // What its name says that it makes is not taken back either.
                    assert!(of_pack.effect_kind.is_some() || of_name.effect_kind.is_none(), "{server}:{name}");
                }
            }
        }
    }
}

/// The names in a pack's rules, and a few that only a pattern could match.
fn names_in(pack: &Pack) -> Vec<String> {
    let texts = pack.text().split('"').skip(1).step_by(2).filter(|text| !text.contains([' ', ':', '{', '/']));
    texts.map(|text| text.replace('*', "thing")).collect()
}

#[test]
fn a_name_in_the_configuration_may_raise_caution() {
    // The name of this one looks; it makes an export.
    let mock = of("terraform", "get_sentinel_mock_bundle", &[]);
    assert_eq!(plain().classify(&mock, None).class, SideEffectClass::External);
    let message = of("whatsapp", "download_media", &[]);
    assert_eq!(plain().classify(&message, None).class, SideEffectClass::External);
    let read = of("redis", "search_redis_documents", &[]);
    assert_eq!(plain().classify(&read, None).class, SideEffectClass::ReadOnly);
    // Its name says no kind; the pack does, and that only makes a repeat ask.
    let save = plain().classify(&of("linear", "save_issue", &[]), None);
    assert_eq!(save.effect_kind.map(|kind| kind.as_str().to_owned()).as_deref(), Some("issue.create"));
}

#[test]
fn a_pack_can_be_switched_off_and_has_to_exist() {
    let off = plain().with_packs(&BTreeMap::from([("linear".to_owned(), None)])).unwrap();
    assert_eq!(off.classify(&of("linear", "save_issue", &[]), None).effect_kind, None);
    let unknown = BTreeMap::from([("a".to_owned(), Some("no-such".to_owned()))]);
    let error = plain().with_packs(&unknown).unwrap_err();
    assert!(matches!(&error, PolicyError::UnknownPack { pack, .. } if pack == "no-such"), "{error}");
}

#[test]
fn a_pack_that_counts_makes_another_policy_version() {
    let versions = [plain().version(), vouched("a", "git").version(), vouched("a", "github").version()];
    assert!(versions[0] != versions[1] && versions[1] != versions[2]);
}

#[test]
fn a_users_rule_is_stronger_than_a_pack() {
    let text = "[[rule]]\nid = \"mine\"\nname = \"slack_post_message\"\nmarker = \"none\"\non_unknown = \"hold\"";
    let chosen = BTreeMap::from([("chat".to_owned(), Some("slack".to_owned()))]);
    let classifier = super::with_policy(text).with_packs(&chosen).unwrap();
    let policy = classifier.classify(&of("chat", "slack_post_message", &["channel_id", "text"]), None);
    assert_eq!((policy.on_unknown, policy.marker), (OnUnknown::Hold, None));
    assert!(policy.effect_kind.is_some());
}

#[test]
fn a_rule_may_say_that_a_tool_makes_something_or_that_it_does_not() {
    let rule = |name: &str, says: &str| {
        let text = format!("[[rule]]\nid = \"r\"\nname = \"{name}\"\n{says}");
        super::with_policy(&text).classify(&super::foreign(name), None).effect_kind.map(|kind| kind.as_str().to_owned())
    };
    assert_eq!(rule("escalate_incident", "creates = true").as_deref(), Some("incident.create"));
    assert_eq!(rule("create_issue", "creates = false"), None);
    assert_eq!(rule("create_issue", "timeout = \"9s\"").as_deref(), Some("issue.create"));
    // A rule that decides the class knows the tool better than its name does.
    assert_eq!(rule("create_issue", "side_effect_class = \"external\""), None);
}

/// Over verbs that people declare and names of tools: to say what an effect is called takes no protection against a repeat away.
#[test]
fn a_declared_kind_takes_no_protection_away() {
    let rule = |name: &str, says: &str| {
        let text = format!("[[rule]]\nid = \"r\"\nname = \"{name}\"\n{says}");
        super::with_policy(&text).classify(&super::foreign(name), None)
    };
    for name in ["place_order", "create_issue", "create_folder", "send_invoice", "do_it", "update_row"] {
        let plain = super::plain().classify(&super::foreign(name), None);
        for verb in ua_core::EffectKind::CREATING {
            let declared = rule(name, &format!("effect_kind = \"parcel.{verb}\""));
            assert!(declared.is_by_content() && !declared.kind_is_guessed, "{name} {verb}");
        }
        for verb in ["expedite", "delete", "move"] {
            let kind = format!("effect_kind = \"parcel.{verb}\"");
            let declared = rule(name, &kind);
            assert_eq!(declared.is_by_content(), plain.is_by_content(), "{name} {verb}");
            assert_eq!(declared.kind_is_guessed, plain.is_by_content(), "a repeat is a question: {name} {verb}");
            let said = rule(name, &format!("{kind}\ncreates = true"));
            assert!(said.is_by_content() && !said.kind_is_guessed, "{name} {verb}");
            assert!(!rule(name, &format!("{kind}\ncreates = false")).is_by_content(), "{name} {verb}");
        }
    }
}

/// A second folder of one name is refused, is the same one, or is another one: nobody gives it a kind for its name, and a repeat in the same words
/// is a question, until somebody who knows the service says what it does.
#[test]
fn a_thing_that_may_be_kept_once_under_its_name_is_asked_about() {
    for thing in ["contact", "folder", "list", "group", "label", "database", "release", "collection", "team", "user"] {
        for name in [
            format!("create_{thing}"),
            format!("new_{thing}"),
            format!("insert_{thing}s"),
            format!("drive_create_{thing}"),
            format!("{thing}s_create"),
            format!("get_report_and_create_{thing}"),
        ] {
            let tool = super::foreign(&name);
            let policy = super::plain().classify(&tool, None);
            assert_eq!(policy.effect_kind, None, "{name}");
            assert!(policy.is_by_content() && policy.kind_is_guessed, "{name}");
            let rule = |says: &str| {
                let text = format!("[[rule]]\nid = \"r\"\nname = \"{name}\"\n{says}");
                super::with_policy(&text).classify(&tool, None)
            };
            assert!(!rule("creates = false").is_by_content(), "{name}");
            assert!(rule("creates = true").effect_kind.is_some(), "{name}");
            assert!(rule("timeout = \"9s\"").kind_is_guessed, "{name}");
        }
    }
    for name in ["get_or_create_folder", "update_folder", "delete_list", "list_groups", "add_label"] {
        assert!(!super::plain().classify(&super::foreign(name), None).is_by_content(), "{name}");
    }
}

/// A payment that is made a second time is one more, whoever wrote the server, and in whatever words it says so.
#[test]
fn money_that_moves_twice_is_asked_about_without_a_kind_and_without_a_pack() {
    for name in
        ["pay", "charge_card", "transfer", "transfer_usdc", "refund", "payout", "capture", "capture_order", "debit"]
    {
        let policy = super::plain().classify(&super::foreign(name), None);
        assert!(policy.is_by_content() && policy.kind_is_guessed, "{name}");
        let text = format!("[[rule]]\nid = \"r\"\nname = \"{name}\"\ncreates = false");
        let said = super::with_policy(&text).classify(&super::foreign(name), None);
        assert!(!said.is_by_content(), "{name}");
    }
    // A verb that leaves it open, and arguments that do not.
    let checkout = |keys: &[&str]| super::plain().classify(&of("shop", "checkout", keys), None).is_by_content();
    assert!(checkout(&["amount", "currency"]) && !checkout(&["branch"]));
    // To top up a card is no list of the best: it was read as one, and a lost call would have been made again.
    for name in [
        "top_up",
        "top_up_wallet",
        "topUpCard",
        "reimburse_details",
        "forget_history",
        "scrub_metadata",
        "disclose_details",
        "resubmit_details",
        "invalidate_metadata",
        "override_status",
    ] {
        assert!(super::plain().classify(&super::foreign(name), None).class.has_effect(), "{name}");
    }
}

/// A verb that names of tools are read by protects a kind, too, whatever the tool is called, until the rule says otherwise.
#[test]
fn a_verb_that_makes_something_does_so_in_a_name_and_in_a_kind() {
    for kind in
        ["stock.sell", "payout.initiate", "money.wire", "courier.dispatch", "expense.file", "coupon.issue", "bid.place"]
    {
        let rule = |more: &str| {
            let text = format!("[[rule]]\nid = \"r\"\nname = \"do_it\"\neffect_kind = \"{kind}\"{more}");
            super::with_policy(&text).classify(&super::foreign("do_it"), None)
        };
        assert!(rule("").is_by_content() && rule("").kind_is_guessed, "{kind}");
        assert!(!rule("\ncreates = false").is_by_content(), "{kind}");
    }
}

/// What takes no mark is looked for by its values and its time, and only of calls that make something.
#[test]
fn a_lost_call_that_takes_no_mark_is_looked_for_by_its_values() {
    let issue = of("work", "issue_write", &["method", "owner", "repo", "title", "body"]);
    let policy = vouched("work", "github").classify(&issue, None);
    assert_eq!((policy.on_unknown, policy.rule_id.as_str()), (OnUnknown::Probe, "pack:github:issue-by-title"));
    assert_eq!((policy.marker.as_ref(), policy.is_by_content()), (None, true));
    let probe = policy.probe.unwrap();
    assert_eq!(probe.when, json!({"method": "create"}).as_object().unwrap().clone());
    let FoundBy::Values(values) = probe.found.by else { panic!("it has no mark") };
    assert_eq!((values.names().as_str(), values.made.form), ("`title`", TimeForm::Rfc3339));
    // A reaction is no comment, so nothing is put into it that would make it one.
    let comment = of("work", "add_issue_comment", &["owner", "repo", "issue_number", "body", "reaction"]);
    let marker = vouched("work", "github").classify(&comment, None).marker.unwrap();
    assert!(!marker.apply(&mut json!({"reaction": "+1"}).as_object().unwrap().clone(), "k"));
}

/// Servers that only answer, and the two tools of another one that look and leave something behind.
#[test]
fn servers_that_only_answer_are_read_by_their_packs() {
    for (pack, name) in [
        ("context7", "resolve-library-id"),
        ("context7", "query-docs"),
        ("time", "convert_time"),
        ("google-maps", "maps_geocode"),
        ("google-maps", "maps_directions"),
        ("perplexity", "perplexity_ask"),
        ("perplexity", "perplexity_research"),
        ("grafana", "query_loki_logs"),
        ("grafana", "generate_deeplink"),
    ] {
        let class = vouched("work", pack).classify(&of("work", name, &[]), None).class;
        assert_eq!(class, SideEffectClass::ReadOnly, "{pack}: {name}");
    }
    for (pack, name, kind) in [
        ("grafana", "find_slow_requests", "investigation.create"),
        ("perplexity", "perplexity_research_start", "research_run.create"),
    ] {
        let policy = vouched("work", pack).classify(&of("work", name, &[]), None);
        assert_eq!((policy.class, policy.effect_kind.unwrap().as_str()), (SideEffectClass::External, kind), "{name}");
        // By the server's name alone the pack may still raise caution.
        let claimed = plain().classify(&of(pack, name, &[]), None);
        assert_eq!(claimed.class, SideEffectClass::External, "{name}");
    }
}

/// Whom a call reaches is told by the same words as that a second one is one more, also where a name has nobody in it.
#[test]
fn what_reaches_somebody_is_asked_about_when_it_is_repeated() {
    for name in ["sms", "call_phone", "generate_image", "start_thread", "fork_repository", "text_to_speech"] {
        let policy = plain().classify(&of("other", name, &[]), None);
        let makes = policy.makes_anew || policy.effect_kind.as_ref().is_some_and(ua_core::EffectKind::is_creating);
        assert!(policy.class == SideEffectClass::External && makes, "{name}: {policy:?}");
    }
    for name in ["get_sms", "list_threads", "generate_uuid", "generate_report_preview"] {
        let policy = plain().classify(&of("other", name, &[]), None);
        assert!(policy.effect_kind.is_none() && !policy.makes_anew, "{name}: {policy:?}");
    }
}
