//! What `ua tools explain` has to show.

use serde_json::json;
use ua_classify::{JobPolicy, PolicyRules, Verdict};
use ua_core::{ClassSource, SideEffectClass, ToolAnnotations, ToolSpec};

use super::{foreign, own, plain, with_policy};

#[test]
fn every_source_is_shown_in_order_with_the_one_that_won() {
    let job = "[[rule]]\nid = \"cheap\"\nname = \"buy_items\"\nside_effect_class = \"read_only\"\n";
    let rules = PolicyRules::parse(job, "job.toml").unwrap();
    let classifier = with_policy(
        "[[rule]]\nid = \"slow\"\npatterns = [\"*_items\"]\ntimeout = \"5s\"\n\
         [[rule]]\nid = \"unrelated\"\nname = \"other\"\ntimeout = \"6s\"",
    )
    .with_job_policies(vec![JobPolicy { rules, is_trusted: false }])
    .unwrap();
    let annotations = ToolAnnotations { read_only: Some(true), ..ToolAnnotations::default() };
    let spec = ToolSpec {
        annotations,
        input_schema: json!({"type": "object", "properties": {"request_id": {"type": "string"}}}),
        ..foreign("buy_items")
    };
    let explanation = classifier.explain(&spec);
    insta::assert_snapshot!(explanation, @r#"
    mcp__other__buy_items
      class          external, because its name contains the side-effect word "buy"
      on unknown     hold: stop and ask a person
      key            this tool cannot take an idempotency key
      effect         item.pay (inferred from its name only: the same content again is a question in a job, and returns the first answer at the gateway)
      reads          untrusted (counts towards the taint of the run)
    considered, the strongest first:
      user_policy slow                         -           it sets no class [timeout]
      job_policy  cheap                        -           the job's job.toml is not trusted, so it cannot lower the class
      annotation  annotation:readOnlyHint      -           its server says readOnlyHint = true, but is not trusted, so that does not lower the class
    * name        name:buy                     external    its name contains the side-effect word "buy" [effect_kind]
      default     default                      (external)  nothing is known about this tool, so it is treated as an external side effect
      (33 others do not apply)
    hint: the argument "request_id" looks like an idempotency key; if the tool honours it, say so with key_channel = { argument = "request_id" }
    "#);
    assert_eq!(explanation.policy, classifier.classify(&spec, None));
    let winners: Vec<_> = explanation.considered.iter().filter(|c| matches!(c.verdict, Verdict::Decides(_))).collect();
    assert_eq!(winners.len(), 1);
    assert_eq!(winners[0].rule_id, explanation.policy.rule_id);
    let mut sources: Vec<_> = explanation.considered.iter().map(|considered| considered.source).collect();
    sources.dedup();
    assert_eq!(sources, ClassSource::ALL, "the strongest first, none left out");
}

#[test]
fn a_keyed_tool_and_an_opaque_one_explain_themselves() {
    insta::assert_snapshot!(plain().explain(&own("send_email")), @r#"
    mcp__ua__send_email
      class          external, because rule own-email of the built-in policy calls it external
      on unknown     redo_keyed: run it again under the same key
      key            in the request's _meta
      found by       Message-ID <{key_id}@ua.invalid>
      effect         email.send (the same content is the same effect)
    considered, the strongest first:
    * shipped     shipped:own-email            external    rule own-email of the built-in policy calls it external [key_channel, effect_kind, scope, sends_files, errors_without_effect, found_by, on_unknown]
      name        name:send                    (external)  its name contains the side-effect word "send"
      default     default                      (external)  nothing is known about this tool, so it is treated as an external side effect
      (32 others do not apply)
    "#);
    insta::assert_snapshot!(plain().explain(&own("run_command")), @r#"
    mcp__ua__run_command
      class          local, because rule own-command of the built-in policy calls it local
      on unknown     hold: stop and ask a person
      key            this tool cannot take an idempotency key
      reads          private (counts towards the taint of the run)
      read_only      when argv begins with sleep, ls, cat, pwd, echo, date, wc, head, tail, grep, stat, true, uname, whoami, basename, dirname
    considered, the strongest first:
    * shipped     shipped:own-command          local       rule own-command of the built-in policy calls it local [timeout, reads, errors_without_effect, harmless_programs]
      name        name:run                     (external)  its name contains the side-effect word "run"
      default     default                      (external)  nothing is known about this tool, so it is treated as an external side effect
      (32 others do not apply)
    "#);
}

#[test]
fn a_policy_that_can_not_work_is_hinted_at() {
    let hints = |settings: &str| {
        let text = format!("[[rule]]\nid = \"r\"\nname = \"x\"\nside_effect_class = \"external\"\n{settings}");
        let input_schema = json!({"type": "object", "properties": {"a": {}}});
        with_policy(&text).explain(&ToolSpec { input_schema, ..foreign("x") }).hints
    };
    assert_eq!(hints(""), [""; 0]);
    assert_eq!(hints("key_channel = { argument = \"a\" }"), [""; 0]);
    assert!(hints("key_channel = { argument = \"b\" }")[0].contains("does not have"));
    assert!(hints("requires_idempotency_key = true")[0].contains("add key_channel"));
    assert!(hints("on_unknown = \"redo\"")[0].contains("at least once"));
}

/// A rule that says that calls make something, and a server that is believed, are no guess from a name.
#[test]
fn who_says_that_calls_make_something_is_named() {
    let rule = "[[rule]]\nid = \"r\"\nname = \"escalate_incident\"\nside_effect_class = \"external\"\ncreates = true\n";
    let shown = with_policy(rule).explain(&foreign("escalate_incident")).to_string();
    assert!(shown.contains("incident.create (that each call makes one says `creates` of r, and"), "{shown}");
    let adds = ToolAnnotations { destructive: Some(false), idempotent: Some(false), ..ToolAnnotations::default() };
    let spec = ToolSpec { annotations: adds, ..foreign("frobnicate") };
    let shown = plain().trusting_annotations_of(["other".to_owned()]).explain(&spec).to_string();
    assert!(shown.contains("says the server, whose annotations are trusted"), "{shown}");
    let shown = plain().explain(&foreign("create_issue")).to_string();
    assert!(shown.contains("issue.create (inferred from its name only"), "{shown}");
}

#[test]
fn by_what_a_lost_call_would_be_known_is_said() {
    let text = "[[rule]]\nid = \"r\"\nname = \"x\"\nside_effect_class = \"external\"\n[rule.probe]\ntool = \"list_x\"\n\
                found = { same = { name = \"{arg.name}\", \"\" = \"{arg.all}\" }, made = { field = \"at\" } }\nsettle = \"1s\"";
    let shown = with_policy(text).explain(&foreign("x")).to_string();
    assert!(
        shown.contains("probe          list_x by contents, `name` and the time at which it was made; it can only"),
        "{shown}"
    );
}

#[test]
fn foreign_names_can_not_write_to_the_terminal() {
    let shown = plain().explain(&foreign("list\u{1b}[2J\u{202e}")).to_string();
    assert!(!shown.contains(['\u{1b}', '\u{202e}']), "{shown:?}");
    assert!(shown.contains("\\u{1b}[2J\\u{202e}"), "{shown}");
}

#[test]
fn an_explanation_is_data_too() {
    let shown = serde_json::to_value(plain().explain(&own("list_directory"))).unwrap();
    let decides = json!({"decides": SideEffectClass::ReadOnly});
    let winner = shown["considered"].as_array().unwrap().iter().find(|considered| considered["verdict"] == decides);
    assert_eq!(winner.unwrap()["rule_id"], "shipped:own-reads");
}
