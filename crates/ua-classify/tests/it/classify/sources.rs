//! Who is believed about a tool, and what follows (Durable Jobs v1 spec §7.2 and §8.1).

use std::collections::HashSet;
use std::time::Duration;

use serde_json::json;
use ua_classify::{Classifier, Lists, PolicyError, PolicyRules, project_scope};
use ua_core::{
    CallPolicy, ClassSource, EffectKind, KeyChannel, OnScopeConflict, OnUnknown, Reads, SideEffectClass,
    ToolAnnotations, ToolNamespace, ToolSpec, sha256,
};

use super::{class, foreign, own, plain, tool, trusting, with_policy};

fn annotated(tool: ToolSpec, read_only: Option<bool>, destructive: Option<bool>) -> ToolSpec {
    ToolSpec { annotations: ToolAnnotations { read_only, destructive, ..ToolAnnotations::default() }, ..tool }
}

#[test]
fn a_stronger_source_beats_every_weaker_one() {
    // One tool about which all sources disagree; take them away one by one, the strongest first.
    let spec = annotated(tool(ToolNamespace::Local, "ua", "send_email"), Some(true), None);
    let policy = "[[rule]]\nid = \"mine\"\nname = \"send_email\"\nside_effect_class = \"local\"";
    let lists = Lists {
        side_effect_denylist: vec!["mcp__ua__send_*".to_owned()],
        read_only_allowlist: vec!["send_email".to_owned()],
    };
    let allow_only = Lists { side_effect_denylist: Vec::new(), ..lists.clone() };
    let decided = |policy: &str, lists: &Lists, spec: &ToolSpec| {
        let rules = PolicyRules::parse(policy, "policy.toml").unwrap();
        let classifier = Classifier::new(vec![rules], lists, HashSet::from(["ua".to_owned()])).unwrap();
        let CallPolicy { class, class_source, rule_id, .. } = classifier.classify(spec, None);
        (class, class_source, rule_id)
    };
    let steps = [
        (decided(policy, &lists, &spec), SideEffectClass::Local, ClassSource::UserPolicy, "mine"),
        (decided("", &lists, &spec), SideEffectClass::External, ClassSource::List, "list:side_effect_denylist"),
        (decided("", &allow_only, &spec), SideEffectClass::ReadOnly, ClassSource::List, "list:read_only_allowlist"),
        (decided("", &Lists::default(), &spec), SideEffectClass::External, ClassSource::Shipped, "shipped:own-email"),
    ];
    for (found, class, source, rule) in steps {
        assert_eq!(found, (class, source, rule.to_owned()));
    }
    // Not shipped: the trusted annotation, then the name, then nothing.
    let unknown = |name, hint| annotated(tool(ToolNamespace::Local, "ua", name), hint, None);
    let rest = [
        (
            unknown("send_parcel", Some(true)),
            SideEffectClass::ReadOnly,
            ClassSource::Annotation,
            "annotation:readOnlyHint",
        ),
        (unknown("send_parcel", None), SideEffectClass::External, ClassSource::Name, "name:send"),
        (unknown("parcel", None), SideEffectClass::External, ClassSource::Default, "default"),
    ];
    for (spec, class, source, rule) in rest {
        assert_eq!(decided("", &Lists::default(), &spec), (class, source, rule.to_owned()));
    }
}

#[test]
fn the_first_matching_rule_decides_and_overlays_come_first() {
    let file = |name: &str, text: &str| PolicyRules::parse(text, name).unwrap();
    let overlay = file("overlay.toml", "[[rule]]\nid = \"a\"\npatterns = [\"x_*\"]\nside_effect_class = \"memory\"");
    let base = file(
        "base.toml",
        "[[rule]]\nid = \"b\"\nname = \"x_one\"\nside_effect_class = \"local\"\ntimeout = \"9s\"\n\
         [[rule]]\nid = \"c\"\nserver = \"other\"\nside_effect_class = \"read_only\"",
    );
    let classifier = Classifier::new(vec![overlay, base], &Lists::default(), HashSet::new()).unwrap();
    let policy = classifier.classify(&foreign("x_one"), None);
    // The class is the overlay's; what the overlay leaves out comes from the next rule that says it.
    assert_eq!((policy.class, policy.rule_id.as_str()), (SideEffectClass::Memory, "a"));
    assert_eq!(policy.timeout, Some(Duration::from_secs(9)));
    assert_eq!(class(&classifier, &foreign("y")), SideEffectClass::ReadOnly);
}

#[test]
fn an_untrusted_server_can_only_raise_caution() {
    let cases = [
        // name, readOnlyHint, destructiveHint, class, decided by
        ("list_items", None, None, SideEffectClass::ReadOnly, ClassSource::Name),
        ("list_items", Some(true), None, SideEffectClass::ReadOnly, ClassSource::Name),
        ("list_items", Some(false), None, SideEffectClass::External, ClassSource::Annotation),
        ("list_items", None, Some(true), SideEffectClass::External, ClassSource::Annotation),
        ("list_items", Some(true), Some(true), SideEffectClass::External, ClassSource::Annotation),
        ("list_items", None, Some(false), SideEffectClass::ReadOnly, ClassSource::Name),
        ("send_items", Some(true), None, SideEffectClass::External, ClassSource::Name),
        ("items", Some(true), None, SideEffectClass::External, ClassSource::Default),
    ];
    for (name, read_only, destructive, class, source) in cases {
        let policy = plain().classify(&annotated(foreign(name), read_only, destructive), None);
        assert_eq!((policy.class, policy.class_source), (class, source), "{name} {read_only:?} {destructive:?}");
    }
}

#[test]
fn a_trusted_server_is_believed() {
    let trusting = trusting("other");
    let cases = [
        ("send_items", Some(true), None, SideEffectClass::ReadOnly),
        // MCP: `destructiveHint` means something only for tools that are not read-only.
        ("items", Some(true), Some(true), SideEffectClass::ReadOnly),
        ("list_items", Some(false), None, SideEffectClass::External),
    ];
    for (name, read_only, destructive, expected) in cases {
        assert_eq!(class(&trusting, &annotated(foreign(name), read_only, destructive)), expected, "{name}");
    }
    // Trust is given to one server, not to a name.
    let elsewhere = annotated(tool(ToolNamespace::Mcp, "another", "items"), Some(true), None);
    assert_eq!(class(&trusting, &elsewhere), SideEffectClass::External);
}

#[test]
fn what_a_server_of_others_says_may_confirm_what_a_name_suggests() {
    let believing = plain().trusting_annotations_of(["other".to_owned()]);
    let cases = [
        ("check_items", Some(true), None, SideEffectClass::ReadOnly),
        // MCP: `destructiveHint` means something only for tools that are not read-only.
        ("check_items", Some(true), Some(true), SideEffectClass::ReadOnly),
        ("list_items", Some(false), None, SideEffectClass::External),
        // It is not believed alone: servers say it of what sends, starts and writes.
        ("send_items", Some(true), None, SideEffectClass::External),
        ("start_tracing", Some(true), None, SideEffectClass::External),
        ("items", Some(true), None, SideEffectClass::External),
    ];
    for (name, read_only, destructive, expected) in cases {
        assert_eq!(class(&believing, &annotated(foreign(name), read_only, destructive)), expected, "{name}");
    }
    let elsewhere = annotated(tool(ToolNamespace::Mcp, "another", "check_items"), Some(true), None);
    assert_eq!(class(&believing, &elsewhere), SideEffectClass::External);
}

#[test]
fn what_happens_to_a_lost_call_follows_from_its_class() {
    let cases = [
        ("side_effect_class = \"read_only\"", OnUnknown::Redo),
        ("side_effect_class = \"local\"", OnUnknown::Hold),
        ("side_effect_class = \"memory\"", OnUnknown::Hold),
        ("side_effect_class = \"memory\"\nkey_channel = \"meta\"", OnUnknown::RedoKeyed),
        ("side_effect_class = \"external\"", OnUnknown::Hold),
        ("side_effect_class = \"external\"\nkey_channel = { header = \"Idempotency-Key\" }", OnUnknown::RedoKeyed),
        ("side_effect_class = \"external\"\nkey_channel = \"meta\"\non_unknown = \"hold\"", OnUnknown::Hold),
        ("side_effect_class = \"external\"\non_unknown = \"continue\"", OnUnknown::Continue),
        ("side_effect_class = \"local\"\non_unknown = \"redo\"", OnUnknown::Redo),
    ];
    for (settings, expected) in cases {
        let classifier = with_policy(&format!("[[rule]]\nid = \"r\"\nname = \"x\"\n{settings}"));
        assert_eq!(classifier.classify(&foreign("x"), None).on_unknown, expected, "{settings}");
    }
}

#[test]
fn an_idempotent_hint_counts_only_for_local_tools_of_a_trusted_server() {
    let text = "[[rule]]\nid = \"l\"\nname = \"local_x\"\nside_effect_class = \"local\"\n\
                [[rule]]\nid = \"e\"\nname = \"external_x\"\nside_effect_class = \"external\"";
    let on_unknown = |name: &str, trusted: &[&str]| {
        let rules = PolicyRules::parse(text, "policy.toml").unwrap();
        let trusted = trusted.iter().map(|&server| server.to_owned()).collect();
        let classifier = Classifier::new(vec![rules], &Lists::default(), trusted).unwrap();
        let annotations = ToolAnnotations { idempotent: Some(true), ..ToolAnnotations::default() };
        classifier.classify(&ToolSpec { annotations, ..foreign(name) }, None).on_unknown
    };
    assert_eq!(on_unknown("local_x", &["other"]), OnUnknown::Redo);
    assert_eq!(on_unknown("local_x", &[]), OnUnknown::Hold);
    assert_eq!(on_unknown("external_x", &["other"]), OnUnknown::Hold);
}

#[test]
fn a_raised_class_does_not_inherit_the_weaker_rules_redo() {
    let classifier = with_policy(
        "[[rule]]\nid = \"r\"\npatterns = [\"write_local_file\", \"crawl_parallel\"]\nside_effect_class = \"external\"",
    );
    for name in ["write_local_file", "crawl_parallel"] {
        let policy = classifier.classify(&own(name), None);
        assert_eq!((policy.class, policy.on_unknown), (SideEffectClass::External, OnUnknown::Hold), "{name}");
    }
    // With the class unchanged, the shipped answer stays.
    let classifier = with_policy("[[rule]]\nid = \"r\"\nname = \"write_local_file\"\nside_effect_class = \"local\"");
    assert_eq!(classifier.classify(&own("write_local_file"), None).on_unknown, OnUnknown::Redo);
}

#[test]
fn a_key_channel_of_the_users_makes_a_shipped_tool_repeatable() {
    let classifier =
        with_policy("[[rule]]\nid = \"r\"\nname = \"GMAIL_SEND_EMAIL\"\nkey_channel = { argument = \"nonce\" }");
    let policy = classifier.classify(&tool(ToolNamespace::Composio, "composio", "GMAIL_SEND_EMAIL"), None);
    assert_eq!((policy.on_unknown, policy.class_source), (OnUnknown::RedoKeyed, ClassSource::Shipped));
    assert_eq!(policy.volatile_fields, ["nonce"], "the key is no part of what the key is computed over");
}

#[test]
fn a_read_only_tool_keeps_no_settings_of_an_effect() {
    let lists = Lists { read_only_allowlist: vec!["send_email".to_owned()], ..Lists::default() };
    let classifier = Classifier::new(Vec::new(), &lists, HashSet::new()).unwrap();
    let policy = classifier.classify(&own("send_email"), None);
    assert_eq!((policy.class, policy.on_unknown), (SideEffectClass::ReadOnly, OnUnknown::Redo));
    assert_eq!((policy.effect_kind, policy.scope.0, policy.sends_files), (None, Vec::new(), Vec::new()));
}

#[test]
fn harmless_programs_only_look() {
    let run = |classifier: &Classifier, arguments: serde_json::Value| {
        let policy = classifier.classify(&own("run_command"), Some(&arguments));
        (policy.class, policy.on_unknown)
    };
    let (harmless, opaque) = ((SideEffectClass::ReadOnly, OnUnknown::Redo), (SideEffectClass::Local, OnUnknown::Hold));
    for argv in [json!(["ls", "-l"]), json!(["sleep", "5"]), json!(["grep", "-r", "x", "."])] {
        assert_eq!(run(&plain(), json!({ "argv": argv })), harmless, "{argv}");
    }
    for argv in [
        json!(["rm", "x"]),
        json!(["./ls"]),
        json!(["/bin/ls"]),
        json!(["find"]),
        json!([]),
        json!("ls"),
        json!([["ls"]]),
    ] {
        assert_eq!(run(&plain(), json!({ "argv": argv })), opaque, "{argv}");
    }
    let without_arguments = plain().classify(&own("run_command"), None);
    assert_eq!((without_arguments.class, without_arguments.on_unknown), opaque);
    // Another server's tool of that name is none of ours.
    let elsewhere = plain().classify(&foreign("run_command"), Some(&json!({"argv": ["ls"]})));
    assert_eq!(elsewhere.class, SideEffectClass::External);
}

#[test]
fn a_stronger_source_switches_harmless_programs_off() {
    let ls = json!({"argv": ["ls"]});
    let jq = json!({"argv": ["jq", "."]});
    let class = |classifier: &Classifier, arguments| classifier.classify(&own("run_command"), Some(arguments)).class;
    let raised = with_policy("[[rule]]\nid = \"r\"\nname = \"run_command\"\nside_effect_class = \"external\"");
    assert_eq!(class(&raised, &ls), SideEffectClass::External);
    let lists = Lists { side_effect_denylist: vec!["run_command".to_owned()], ..Lists::default() };
    let denied = Classifier::new(Vec::new(), &lists, HashSet::new()).unwrap();
    assert_eq!(class(&denied, &ls), SideEffectClass::External);
    let replaced = with_policy("[[rule]]\nid = \"r\"\nname = \"run_command\"\nharmless_programs = [\"jq\"]");
    assert_eq!((class(&replaced, &jq), class(&replaced, &ls)), (SideEffectClass::ReadOnly, SideEffectClass::Local));
    assert_eq!(replaced.classify(&own("run_command"), Some(&jq)).rule_id, "r");
}

#[test]
fn our_own_tools_complete_exactly_once() {
    for (name, effect) in [
        ("send_email", Some("email.send")),
        ("upload", Some("file.upload")),
        ("notify", Some("run.notify")),
        ("archival_memory_insert", Some("memory.create")),
        ("core_memory_append", None),
        ("append_to_file", None),
    ] {
        let policy = plain().classify(&own(name), None);
        assert_eq!((policy.on_unknown, &policy.key_channel), (OnUnknown::RedoKeyed, &Some(KeyChannel::Meta)), "{name}");
        assert_eq!(policy.effect_kind.as_ref().map(EffectKind::as_str), effect, "{name}");
        assert_eq!(policy.is_by_content(), effect.is_some(), "{name}");
        assert_eq!(policy.errors_without_effect, [".*"], "{name}");
        assert_eq!(policy.on_scope_conflict, OnScopeConflict::Ask);
    }
    for name in ["write_local_file", "render_html", "render_pdf", "compress_files"] {
        let policy = plain().classify(&own(name), None);
        assert_eq!((policy.class, policy.on_unknown), (SideEffectClass::Local, OnUnknown::Redo), "{name}");
    }
}

#[test]
fn foreign_tools_of_our_names_get_no_licence() {
    for (name, class) in [
        ("send_email", SideEffectClass::External),
        ("upload", SideEffectClass::External),
        ("write_local_file", SideEffectClass::External),
        ("describe_image_and_post", SideEffectClass::External),
        ("core_memory_append", SideEffectClass::Memory),
        ("archival_memory_insert", SideEffectClass::Memory),
    ] {
        let policy = plain().classify(&foreign(name), None);
        assert_eq!((policy.class, policy.on_unknown, policy.key_channel), (class, OnUnknown::Hold, None), "{name}");
    }
}

#[test]
fn composio_meta_tools_are_known() {
    for (name, class, on_unknown) in [
        ("COMPOSIO_SEARCH_TOOLS", SideEffectClass::ReadOnly, OnUnknown::Redo),
        ("COMPOSIO_GET_TOOL_SCHEMAS", SideEffectClass::ReadOnly, OnUnknown::Redo),
        ("COMPOSIO_REMOTE_WORKBENCH", SideEffectClass::External, OnUnknown::Hold),
        ("COMPOSIO_REMOTE_BASH_TOOL", SideEffectClass::External, OnUnknown::Hold),
        ("COMPOSIO_MULTI_EXECUTE_TOOL", SideEffectClass::External, OnUnknown::Hold),
        ("GMAIL_SEND_EMAIL", SideEffectClass::External, OnUnknown::Hold),
    ] {
        let policy = plain().classify(&tool(ToolNamespace::Composio, "composio", name), None);
        assert_eq!(
            (policy.class, policy.on_unknown, policy.class_source),
            (class, on_unknown, ClassSource::Shipped),
            "{name}"
        );
    }
}

#[test]
fn the_same_email_by_another_route_has_the_same_scope() {
    let scope = |spec: &ToolSpec, arguments: serde_json::Value| {
        let policy = plain().classify(spec, Some(&arguments));
        let effect = policy.effect_kind.unwrap();
        project_scope(&policy.scope, effect.as_str(), &arguments, &|path| Some(sha256(path))).unwrap()
    };
    let ours = json!({"to": ["Ada <ada@example.test>"], "cc": ["bob@example.test"], "subject": "Report", "body": "a"});
    let theirs =
        json!({"recipient_email": "BOB@example.test", "extra_recipients": ["ada@example.test"], "subject": "Report"});
    assert_eq!(
        scope(&own("send_email"), ours),
        scope(&tool(ToolNamespace::Composio, "composio", "GMAIL_SEND_EMAIL"), theirs)
    );
}

#[test]
fn the_version_changes_with_everything_that_decides_and_with_nothing_else() {
    let rule = "[[rule]]\nid = \"r\"\nname = \"x\"\nside_effect_class = \"local\"\n";
    let rules = |text: &str| PolicyRules::parse(text, "policy.toml").unwrap();
    let version = |files: Vec<PolicyRules>, lists: &Lists, trusted: &[&str]| {
        let trusted = trusted.iter().map(|&server| server.to_owned()).collect();
        Classifier::new(files, lists, trusted).unwrap().version()
    };
    let none = Lists::default();
    let base = version(vec![rules(rule)], &none, &["a", "b"]);
    let same = PolicyRules::parse(&format!("# a remark\n\n{rule}"), "moved.toml").unwrap();
    assert_eq!(base, version(vec![same], &none, &["b", "a"]));
    let deny = Lists { side_effect_denylist: vec!["x".to_owned()], ..Lists::default() };
    let allow = Lists { read_only_allowlist: vec!["x".to_owned()], ..Lists::default() };
    let others = [
        version(vec![], &none, &["a", "b"]),
        version(vec![rules(&rule.replace("local", "memory"))], &none, &["a", "b"]),
        version(vec![rules(&rule.replace("name = \"x\"", "patterns = [\"x\"]"))], &none, &["a", "b"]),
        version(vec![rules(rule)], &none, &["a"]),
        version(vec![rules(rule)], &deny, &["a", "b"]),
        version(vec![rules(rule)], &allow, &["a", "b"]),
    ];
    let distinct: HashSet<_> = others.iter().chain([&base]).collect();
    assert_eq!(distinct.len(), others.len() + 1);
}

#[test]
fn sources_that_can_not_be_put_together_are_refused() {
    let rule = "[[rule]]\nid = \"r\"\nname = \"x\"\nside_effect_class = \"local\"";
    let files = vec![PolicyRules::parse(rule, "a.toml").unwrap(), PolicyRules::parse(rule, "b.toml").unwrap()];
    let error = Classifier::new(files, &Lists::default(), HashSet::new()).unwrap_err();
    let expected =
        PolicyError::DuplicateId { id: "r".to_owned(), first: "a.toml".to_owned(), second: "b.toml".to_owned() };
    assert_eq!(error, expected);

    let lists = Lists { read_only_allowlist: vec!["get_[".to_owned()], ..Lists::default() };
    let error = Classifier::new(Vec::new(), &lists, HashSet::new()).unwrap_err();
    assert!(
        matches!(&error, PolicyError::List { list: "read_only_allowlist", entry, .. } if entry == "get_["),
        "{error}"
    );
}

#[test]
fn our_own_server_may_take_a_promise_back_and_never_add_one() {
    let classifier = Classifier::shipped().unwrap();
    let mail = |honours_keys, key_ttl_seconds| ToolSpec {
        annotations: ToolAnnotations { honours_keys, key_ttl_seconds, ..ToolAnnotations::default() },
        ..own("send_email")
    };
    let says = |spec: &ToolSpec| {
        let policy = classifier.classify(spec, None);
        (policy.on_unknown, policy.key_ttl)
    };
    assert_eq!(says(&mail(Some(true), None)), (OnUnknown::RedoKeyed, None));
    assert_eq!(says(&mail(Some(false), None)), (OnUnknown::Hold, None));
    let day = std::time::Duration::from_hours(24);
    assert_eq!(says(&mail(Some(true), Some(86_400))), (OnUnknown::RedoKeyed, Some(day)));
    // A foreign server's word changes nothing about a tool that takes no key.
    let foreign = ToolSpec {
        annotations: ToolAnnotations { honours_keys: Some(true), ..ToolAnnotations::default() },
        ..foreign("send_email")
    };
    assert_eq!(says(&foreign).0, OnUnknown::Hold);
}

#[test]
fn s1_what_an_earlier_run_kept_is_words_of_others_and_private() {
    let shipped = Classifier::shipped().unwrap();
    for tool in [
        "archival_memory_search",
        "core_memory_append",
        "core_memory_replace",
        "get_core_memory_blocks",
        "workbench_download",
    ] {
        let reads = shipped.classify(&own(tool), None).reads;
        assert_eq!(reads, [Reads::Untrusted, Reads::Private], "{tool}");
    }
    for tool in ["archival_memory_insert", "workbench_upload", "write_local_file"] {
        assert_eq!(shipped.classify(&own(tool), None).reads, [], "{tool}");
    }
}

#[test]
fn a_tool_that_says_it_fetches_is_watched_whatever_rule_forgot_it_and_files_of_this_machine_are_private() {
    let shipped = Classifier::shipped().unwrap();
    let (others, both) = (vec![Reads::Untrusted], vec![Reads::Untrusted, Reads::Private]);
    let fetching = |name: &str| ToolSpec {
        annotations: ToolAnnotations { fetches: Some(true), ..ToolAnnotations::default() },
        ..own(name)
    };
    // `write_local_file` stands for a tool whose rule says nothing of what it reads.
    for (spec, reads) in [
        (own("write_local_file"), Vec::new()),
        (fetching("write_local_file"), others.clone()),
        (own("finalize_research"), others.clone()),
        (fetching("crawl_parallel"), others.clone()),
    ] {
        assert_eq!(shipped.classify(&spec, None).reads, reads, "{}", spec.name.raw);
    }
    let policy = "[[rule]]\nid = \"mine\"\nname = \"write_local_file\"\nreads = []";
    let rules = PolicyRules::parse(policy, "policy.toml").unwrap();
    let with_policy = Classifier::new(vec![rules], &Lists::default(), HashSet::new()).unwrap();
    assert_eq!(with_policy.classify(&fetching("write_local_file"), None).reads, [], "a user's own word stands");

    let crawl =
        |urls: serde_json::Value| shipped.classify(&own("crawl_parallel"), Some(&json!({ "urls": urls }))).reads;
    assert_eq!(crawl(json!(["https://example.org/file:x"])), others);
    for urls in [
        json!(["file:///home/u/notes.md"]),
        json!(["https://example.org/", "FILE:///x"]),
        json!([" fi\tle:///x"]),
        json!(["\u{1}file:/x"]),
    ] {
        assert_eq!(crawl(urls.clone()), both, "{urls}");
    }
    let write = shipped.classify(&own("write_local_file"), Some(&json!({ "content": "file:///x" })));
    assert_eq!(write.reads, [], "it reads no address");
}

/// What a program says of its function is that it has an effect, or which; a repeat in the same words is held as that of the same tool of a
/// server of others is.
#[test]
fn a_function_of_a_program_is_held_as_the_same_tool_of_a_server_is() {
    let policy = |namespace, server: &str, name: &str, said: &str, of_the_tools: bool| {
        let rule = format!(
            "[[rule]]\nid = \"a\"\nserver = \"{server}\"\nname = \"{name}\"\nside_effect_class = \"external\"\n{said}"
        );
        let rules = PolicyRules::parse(&rule, "policy.toml").unwrap();
        let rules = if of_the_tools { rules.of_the_tools() } else { rules };
        let trusted = HashSet::from(["program".to_owned()]);
        let classifier = Classifier::new(vec![rules], &Lists::default(), trusted).unwrap();
        classifier.classify(&tool(namespace, server, name), None)
    };
    let names = [
        "create_invoice",
        "create_folder",
        "send_email",
        "order_pizza",
        "place_order",
        "pay_invoice",
        "transfer_usdc",
        "push_message",
        "frobnicate",
        "update_title",
        "get_price",
    ];
    for name in names {
        // Nothing is said of its effect: the name says it, as that of a server's tool does of which nothing is said.
        let unsaid = policy(ToolNamespace::Local, "program", name, "", true);
        let foreign = plain().classify(&foreign(name), None);
        assert_eq!(unsaid.class, SideEffectClass::External, "{name}");
        assert!(unsaid.is_by_content() || !foreign.is_by_content(), "{name}");
        assert_eq!(unsaid.kind_is_guessed, unsaid.is_by_content(), "{name}");
        if foreign.class == SideEffectClass::External {
            assert_eq!(unsaid.effect_kind, foreign.effect_kind, "{name}");
            for effect in ["email.send", "invoice.create", "message.push"] {
                let careful = |policy: &ua_core::CallPolicy| policy.makes(name, effect);
                assert!(
                    careful(&unsaid) != ua_core::Makes::No || careful(&foreign) == ua_core::Makes::No,
                    "{name} {effect}"
                );
            }
        }
        // The same rule, of its program or of its user, comes to the same as about a tool of a server.
        for said in [
            "effect_kind = \"parcel.expedite\"\n",
            "effect_kind = \"invoice.send\"\n",
            "effect_kind = \"stock.sell\"\n",
        ] {
            let of_server = policy(ToolNamespace::Mcp, "shop", name, said, false);
            for of_the_tools in [true, false] {
                let of_program = policy(ToolNamespace::Local, "program", name, said, of_the_tools);
                assert_eq!(
                    of_program.reads, of_server.reads,
                    "{name} {said}: what it answers, others may have written"
                );
                assert_eq!(
                    (of_program.is_by_content(), of_program.kind_is_guessed, of_program.on_scope_conflict),
                    (of_server.is_by_content(), of_server.kind_is_guessed, of_server.on_scope_conflict),
                    "{name} {said}"
                );
            }
        }
    }
}
