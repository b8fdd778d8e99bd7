//! Policy files: what a good one means, and how a bad one is refused.

use std::time::Duration;

use serde_json::json;
use ua_classify::{PolicyError, PolicyRules, file_arguments};
use ua_core::{
    EffectKind, FailureClass, FoundBy, KeyChannel, OnScopeConflict, OnUnknown, ScopeField, ScopeRule, SideEffectClass,
    ToolNamespace,
};

use super::{own, tool, with_policy};

const EXAMPLE: &str = include_str!("../../../../../fixtures/policies/example.toml");

#[test]
fn the_example_means_what_it_says() {
    let classifier = with_policy(EXAMPLE);
    let mcp = |server, name| tool(ToolNamespace::Mcp, server, name);

    let create = classifier.classify(&mcp("tracker", "create_issue"), None);
    assert_eq!((create.class, create.on_unknown), (SideEffectClass::External, OnUnknown::RedoKeyed));
    assert_eq!(create.key_channel, Some(KeyChannel::Argument("client_token".to_owned())));
    assert_eq!(create.key_ttl, Some(Duration::from_hours(24)));
    assert!(create.requires_idempotency_key && create.is_by_content() && !create.needs_approval);
    assert_eq!(create.effect_kind, EffectKind::parse("issue.create"));
    let scope = ["project", "title"].map(|name| ScopeField::Value(name.to_owned()));
    assert_eq!(create.scope, ScopeRule(scope.to_vec()));
    assert_eq!(create.volatile_fields, ["requested_at", "client_token"]);
    // Two rules are about this tool; the second adds what the first leaves out.
    assert_eq!(create.errors_without_effect, ["^validation failed", "^unknown project"]);
    assert_eq!((create.timeout, create.rule_id.as_str()), (Some(Duration::from_mins(1)), "tracker-create"));

    let mail = classifier.classify(&mcp("office", "mail_message"), None);
    assert_eq!((mail.on_unknown, mail.on_scope_conflict), (OnUnknown::Hold, OnScopeConflict::Refuse));
    let files = file_arguments(&mail, &json!({"files": ["report.pdf"]}));
    assert_eq!(files, [("files[0]".to_owned(), "report.pdf".to_owned())]);

    for deploy in [mcp("any", "deploy_site"), mcp("cluster", "start-rollout-now")] {
        let policy = classifier.classify(&deploy, None);
        assert!(policy.needs_approval && policy.class == SideEffectClass::External, "{}", deploy.name);
    }
    assert_eq!(classifier.classify(&mcp("weather", "forecast"), None).class, SideEffectClass::ReadOnly);
    assert_eq!(classifier.classify(&mcp("board", "wipe"), None).on_unknown, OnUnknown::Redo);
    let desk = classifier.classify(&mcp("desk", "file_ticket"), None);
    assert_eq!((desk.on_unknown, desk.horizon), (OnUnknown::Probe, Some(Duration::from_mins(1))));
    let FoundBy::Mark { value, .. } = desk.probe.unwrap().found.by else { panic!("it goes by the key") };
    assert_eq!(value, "{key}");
    let jq = classifier.classify(&own("run_command"), Some(&json!({"argv": ["jq", ".", "x.json"]})));
    assert_eq!(jq.class, SideEffectClass::ReadOnly);
}

/// Parses a file whose second rule, from line 6, has these lines after its `id` and `name`.
fn refused(lines: &str) -> PolicyError {
    let good = "[[rule]]\nid = \"good\"\nname = \"x\"\ntimeout = \"1s\"\n";
    let error =
        PolicyRules::parse(&format!("{good}\n[[rule]]\nid = \"bad\"\nname = \"y\"\n{lines}\n"), "p.toml").unwrap_err();
    assert_eq!(error.class(), FailureClass::Operator);
    error
}

#[test]
fn a_bad_field_is_refused_with_file_line_and_field() {
    let cases = [
        ("side_effect_clas = \"local\"", "side_effect_clas", "did you mean `side_effect_class`?"),
        ("tool = \"notify\"", "tool", "did you mean `name`?"),
        ("tools = [\"notify\"]", "tools", "did you mean `patterns`?"),
        ("class = \"local\"", "class", "did you mean `side_effect_class`?"),
        ("colour = \"red\"", "colour", "a rule has id, name, patterns"),
        ("side_effect_class = \"harmless\"", "side_effect_class", "not one of read_only, local, memory, external"),
        ("on_unknown = \"retry\"", "on_unknown", "not one of redo, redo_keyed, probe, hold, continue"),
        ("on_unknown = 1", "on_unknown", "write a string in quotes"),
        ("on_unknown = \"probe\"", "on_unknown", "add probe"),
        ("probe = \"find\"", "probe", "write a table"),
        ("horizon = \"soon\"", "horizon", "not a valid time span"),
        ("has_arguments = \"body\"", "has_arguments", "write a list of strings"),
        ("marker = { argument = \"body\" }", "marker", "append"),
        ("marker = { argument = \"body\", append = \"ref\" }", "marker", "has to hold {key}"),
        ("on_unknown = \"redo_keyed\"", "on_unknown", "add key_channel"),
        ("tool_namespace = \"mpc\"", "tool_namespace", "not one of local, mcp, composio, claude_code"),
        ("key_channel = \"header\"", "key_channel", "{ header = \"NAME\" }"),
        ("key_channel = { argument = \"a\", header = \"b\" }", "key_channel", "{ header = \"NAME\" }"),
        ("key_channel = { cookie = \"a\" }", "key_channel", "{ header = \"NAME\" }"),
        ("key_channel = { header = \"Two Words\" }", "key_channel", "not the name of an HTTP header"),
        ("key_ttl = \"24\"", "key_ttl", "not a valid time span"),
        ("timeout = \"0s\"", "timeout", "not a valid time span"),
        ("timeout = \"99999999999999999d\"", "timeout", "not a valid time span"),
        ("timeout = 60", "timeout", "write a string in quotes"),
        ("requires_idempotency_key = \"yes\"", "requires_idempotency_key", "write true or false"),
        ("effect_kind = \"send email\"", "effect_kind", "<object>.<verb>"),
        ("scope = [\"to\"]", "scope", "write a list like"),
        ("scope = []", "scope", "write a list like"),
        ("scope = [{ value = \"\" }]", "scope", "empty"),
        ("volatile_fields = \"a\"", "volatile_fields", "write a list of strings"),
        ("errors_without_effect = [\"(\"]", "errors_without_effect", "unclosed group"),
        ("harmless_programs = [\"/bin/ls\"]", "harmless_programs", "is a path"),
        ("approval = \"yes\"", "approval", "not one of ask, none"),
        ("on_scope_conflict = \"block\"", "on_scope_conflict", "not one of ask, refuse, allow"),
        ("patterns = [\"x\"]\ntimeout = \"1s\"", "patterns", "name or patterns, not both"),
        ("patterns = []", "patterns", "no tool"),
        ("patterns = [\"a[\"]", "patterns", "is not a glob"),
        ("side_effect_class = \"read_only\"\neffect_kind = \"a.send\"", "effect_kind", "has no effect"),
        ("scope = [{ value = \"a\" }]\nvolatile_fields = [\"a\"]", "volatile_fields", "be volatile"),
        ("key_channel = { argument = \"a\" }\nscope = [{ value = \"a\" }]", "key_channel", "carries the key"),
    ];
    for (lines, expected_field, expected_why) in cases {
        let error = refused(lines);
        let PolicyError::Field { file, line, rule, field, why } = error else { panic!("{lines}: {error}") };
        let at = lines.lines().position(|line| line.starts_with(expected_field)).unwrap() + 9;
        assert_eq!((file.as_str(), rule.as_str(), line), ("p.toml", "rule \"bad\"", at), "{lines}");
        assert_eq!(field, expected_field, "{lines}");
        assert!(why.contains(expected_why), "{lines}: {why}");
    }
}

/// A rule with a probe, whose `[rule.probe]` table has these lines from line 10 on.
fn refused_probe(lines: &str) -> (usize, String, String) {
    let error = refused(&format!("key_channel = \"meta\"\n[rule.probe]\n{lines}"));
    let PolicyError::Field { line, field, why, .. } = error else { panic!("{lines}: {error}") };
    (line, field, why)
}

#[test]
fn a_probe_that_proves_nothing_is_refused_with_line_and_field() {
    let whole = "tool = \"find\"\nfound = { field = \"id\", equals = \"{key}\" }\nsettle = \"5s\"";
    let with = |line: &str| format!("{whole}\n{line}");
    let instead = |line: &str| with("").replace("found = { field = \"id\", equals = \"{key}\" }", line);
    let cases = [
        (String::from("tool = \"find\""), 10, "probe", "needs found"),
        (whole.replace("settle = \"5s\"", ""), 10, "probe", "needs settle"),
        (whole.replace("tool = \"find\"", ""), 10, "probe", "needs tool"),
        (with("ask = 1"), 14, "ask", "a probe has no \"ask\""),
        (with("arguments = \"x\""), 14, "arguments", "table of arguments"),
        (with("arguments = { q = \"{title}\" }"), 14, "arguments", "write {key}"),
        (with("arguments = { q = 1.5 }"), 14, "arguments", "whole numbers"),
        (with("absent = {}"), 14, "absent", "proves nothing"),
        (with("absent = { items_below = 0 }"), 14, "items_below", "from 1 on"),
        (with("absent = { error = \"(\" }"), 14, "error", "unclosed group"),
        (with("absent = { complete = { field = \"more\" } }"), 14, "complete", "equals"),
        (instead("found = { field = \"id\" }"), 12, "found", "equals or contains"),
        (instead("found = { equals = \"{key}\", contains = \"{key}\" }"), 12, "contains", "not both"),
        (instead("found = { field = \"title\", equals = \"{arg.title}\" }"), 10, "probe", "ordinary fields"),
        (instead("found = { field = \"title\", equals = \"done\" }"), 10, "probe", "ordinary fields"),
        (instead("found = { same = { title = \"{arg.title}\" } }"), 12, "found", "add made"),
        (instead("found = { made = { field = \"at\" } }"), 12, "found", "same or holds"),
        (instead("found = { same = { a = \"{arg.a}\" }, made = { form = \"unix\" } }"), 12, "made", "field ="),
        (
            instead("found = { same = { a = \"{arg.a}\" }, made = { field = \"at\", form = \"x\" } }"),
            12,
            "form",
            "snowflake",
        ),
        (
            instead("found = { same = { a = \"b\" }, made = { field = \"at\" } }"),
            10,
            "probe",
            "nothing that the call says",
        ),
        (instead("found = { same = { a = \"{key}\" }, made = { field = \"at\" } }"), 10, "probe", "unique by itself"),
        (
            instead(
                "found = { field = \"id\", equals = \"{key}\", same = { a = \"{arg.a}\" }, made = { field = \"at\" } }",
            ),
            12,
            "found",
            "not both",
        ),
        (instead("found = { entry = \"(x\", contains = \"{key}\" }"), 12, "entry", "unclosed group"),
        (instead("found = { entry = \"x\", contains = \"{key}\" }"), 12, "entry", "name the fields"),
        (with("absent = { newest_first = true }"), 10, "probe", "write same and made"),
        (with("when = \"create\""), 14, "when", "table of arguments"),
    ];
    for (lines, line, field, expected) in cases {
        let (found_line, found_field, why) = refused_probe(&lines);
        assert!(why.contains(expected), "{lines}: {why}");
        assert_eq!((found_line, found_field.as_str()), (line, field), "{lines}: {why}");
    }
    let (line, field, why) = {
        let error = refused(&format!("[rule.probe]\n{whole}"));
        let PolicyError::Field { line, field, why, .. } = error else { panic!("{error}") };
        (line, field, why)
    };
    assert_eq!((line, field.as_str()), (9, "probe"));
    assert!(why.contains("never reaches the tool"), "{why}");
}

#[test]
fn a_probe_is_read_whole_and_decides_what_happens_to_a_lost_call() {
    let text = "[[rule]]\nid = \"p\"\nserver = \"tracker\"\nname = \"file_ticket\"\nside_effect_class = \"external\"\n\
                has_arguments = [\"body\"]\nhorizon = \"1m\"\nmarker = { argument = \"body\", append = \"\\nref {key}\" }\n\
                [rule.probe]\ntool = \"list_tickets\"\narguments = { project = \"{arg.project}\", page = 1 }\n\
                found = { items = \"tickets\", field = \"body\", contains = \"{key}\", id = \"number\" }\n\
                absent = { items_below = 30 }\nsettle = \"10s\"\n";
    let classifier = with_policy(text);
    let mut tool = tool(ToolNamespace::Mcp, "tracker", "file_ticket");
    let other = classifier.classify(&tool, None);
    assert_eq!((other.on_unknown, other.probe), (OnUnknown::Hold, None), "its schema does not declare `body`");
    tool.input_schema = json!({"type": "object", "properties": {"body": {"type": "string"}}});
    let policy = classifier.classify(&tool, None);
    assert_eq!(policy.on_unknown, OnUnknown::Probe);
    assert_eq!(policy.horizon, Some(Duration::from_mins(1)));
    let probe = policy.probe.unwrap();
    assert_eq!((probe.tool.as_str(), probe.settle), ("list_tickets", Duration::from_secs(10)));
    assert_eq!(probe.arguments, json!({"project": "{arg.project}", "page": 1}));
    assert_eq!(probe.absent.unwrap().items_below, Some(30));
    assert_eq!(policy.marker.unwrap().argument, "body");
}

#[test]
fn a_refusal_reads_well() {
    insta::assert_snapshot!(
        refused("side_effect_clas = \"local\""),
        @r#"invalid policy file p.toml, line 9: rule "bad", field `side_effect_clas`: it does not exist; did you mean `side_effect_class`?"#
    );
    insta::assert_snapshot!(PolicyRules::parse("[[rule]]\nid = \"x", "p.toml").unwrap_err(), @r#"invalid policy file p.toml, line 2: a closing " is missing"#);
}

#[test]
fn a_rule_that_is_about_nothing_or_says_nothing_is_refused() {
    let why = |text: &str| {
        let error = PolicyRules::parse(text, "p.toml").unwrap_err();
        let PolicyError::Field { field, line, .. } = error else { panic!("{text}: {error}") };
        (field, line)
    };
    assert_eq!(why("\n[[rule]]\nname = \"x\"\ntimeout = \"1s\""), ("id".to_owned(), 2));
    assert_eq!(why("[[rule]]\nid = \"a\"\ntimeout = \"1s\""), ("name".to_owned(), 1));
    assert_eq!(why("[[rule]]\nid = \"a\"\nname = \"x\""), ("side_effect_class".to_owned(), 1));
    assert_eq!(why("[[rule]]\nid = \"a b\"\nname = \"x\""), ("id".to_owned(), 2));
    assert_eq!(why("[rule]\nid = \"a\""), ("rule".to_owned(), 1));
    assert_eq!(why("rule = [1]"), ("rule".to_owned(), 1));
    assert_eq!(why("default = \"hold\""), ("default".to_owned(), 1));
}

#[test]
fn two_rules_of_one_id_are_refused() {
    let rule = "[[rule]]\nid = \"a\"\nname = \"x\"\ntimeout = \"1s\"\n";
    let error = PolicyRules::parse(&rule.repeat(2), "p.toml").unwrap_err();
    assert!(matches!(error, PolicyError::DuplicateId { id, .. } if id == "a"));
}

#[test]
fn an_empty_file_says_nothing() {
    let rules = PolicyRules::parse("# nothing yet\n", "p.toml").unwrap();
    assert!(rules.is_empty());
    assert_eq!((rules.len(), rules.file()), (0, "p.toml"));
}
