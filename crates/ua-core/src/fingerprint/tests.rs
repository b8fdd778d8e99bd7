//! What is a difference, and how it is said.

use super::*;
use crate::tool::{ToolAnnotations, ToolName, ToolNamespace};

fn spec(job: &Value) -> RunSpec {
    RunSpec::parse(&job.to_string()).unwrap()
}

fn tool(name: &str, description: &str) -> (String, ToolSpec) {
    let spec = ToolSpec {
        name: ToolName::qualified(ToolNamespace::Mcp, "forum", name),
        description: description.to_owned(),
        input_schema: json!({"type": "object"}),
        annotations: ToolAnnotations::default(),
    };
    (spec.name.raw.clone(), spec)
}

fn tools(of: &[(&str, &str)]) -> BTreeMap<String, ToolPin> {
    of.iter()
        .map(|(name, description)| tool(name, description))
        .map(|(raw, spec)| (raw, ToolPin::of(&spec, SideEffectClass::External)))
        .collect()
}

/// A policy of these parts.
fn policy(parts: &[(&str, &str)]) -> PolicyPin {
    let whole: Vec<String> = parts.iter().map(|(name, text)| format!("{name}={text}")).collect();
    let digests = parts.iter().map(|(name, text)| ((*name).to_owned(), sha256(text))).collect();
    let words = |text: &str| {
        let mut words = PolicyWords::of(Some("/srv/p.toml"));
        text.split(' ').filter_map(|field| field.split_once(':')).for_each(|(name, text)| words.add(name, text));
        words
    };
    let words = parts.iter().map(|(name, text)| ((*name).to_owned(), words(text))).collect();
    PolicyPin { version: sha256(whole.join(" ")), parts: digests, words }
}

fn other_policy(parts: &[(&str, &str)]) -> &'static PolicyPin {
    Box::leak(Box::new(policy(parts)))
}

/// The fingerprint of a small step, after `change`.
fn taken(job: &Value, change: impl FnOnce(&mut FingerprintInput<'_>)) -> Fingerprint {
    let spec = spec(job);
    let (settings, switches) = (json!({"max_output_tokens": 100}), json!({"builtin": true}));
    let p1 = policy(&[("rule `a`", "a1"), ("rule `b`", "b1")]);
    let mut input = FingerprintInput {
        spec: &spec,
        phase: None,
        system: "be careful",
        provider: "scripted",
        model: "m1",
        pricing: "none",
        tools: tools(&[("post", "Posts."), ("read", "Reads.")]),
        settings: &settings,
        policy: &p1,
        blob_threshold: "20000",
        switches: &switches,
        execution_mode: "granular",
        estimator: "bytes/4",
    };
    change(&mut input);
    Fingerprint::of(input)
}

fn job() -> Value {
    json!({"objective": "Do it.", "inputs": {"a": 1, "b": [1, 2]}})
}

#[test]
fn granular_fingerprint_mismatch() {
    let pinned = taken(&job(), |_| {});
    assert!(pinned.diff(&taken(&job(), |_| {})).is_empty());
    let other: &'static Value = Box::leak(Box::new(json!({"other": true})));
    let now: [(Component, Fingerprint); 14] = [
        (Component::Prompt, taken(&json!({"objective": "Do that.", "inputs": job()["inputs"]}), |_| {})),
        (Component::Inputs, taken(&json!({"objective": "Do it.", "inputs": {"a": 2}}), |_| {})),
        (Component::Constraints, {
            let mut job = job();
            job["constraints"] = json!({"forbidden_actions": ["post"]});
            taken(&job, |_| {})
        }),
        (Component::System, taken(&job(), |input| input.system = "be quick")),
        (Component::Provider, taken(&job(), |input| input.provider = "anthropic")),
        (Component::Model, taken(&job(), |input| input.model = "m2")),
        (Component::Pricing, taken(&job(), |input| input.pricing = "2026-11")),
        (Component::Tools, taken(&job(), |input| input.tools = tools(&[("post", "Posts."), ("read", "Looks.")]))),
        (Component::Settings, taken(&job(), |input| input.settings = other)),
        (Component::Policy, taken(&job(), |input| input.policy = other_policy(&[("rule `a`", "a2")]))),
        (Component::BlobThreshold, taken(&job(), |input| input.blob_threshold = "10")),
        (Component::Switches, taken(&job(), |input| input.switches = other)),
        (Component::ExecutionMode, taken(&job(), |input| input.execution_mode = "atomic")),
        (Component::Estimator, taken(&job(), |input| input.estimator = "tiktoken")),
    ];
    // Servers are compared before one is started, and are in no step's pins.
    assert_eq!(now.len() + 1, Component::ALL.len(), "a component is not varied");
    assert!(now.iter().all(|(component, _)| *component != Component::Servers));
    for (component, now) in now {
        let diff = pinned.diff(&now);
        assert_eq!(diff.components().into_iter().collect::<Vec<_>>(), [component], "{diff}");
        let accepted = pinned.clone().repinned(component, &now);
        assert!(accepted.diff(&now).is_empty(), "{component}");
    }
}

#[test]
fn the_order_of_keys_in_the_inputs_changes_nothing() {
    let turned: Value = serde_json::from_str(r#"{"inputs": {"b": [1, 2], "a": 1}, "objective": "Do it."}"#).unwrap();
    assert_eq!(taken(&job(), |_| {}), taken(&turned, |_| {}));
}

#[test]
fn what_a_run_may_spend_is_no_part_of_it() {
    let mut raised = job();
    raised["budgets"] = json!({"max_tool_calls": 1});
    assert_eq!(taken(&job(), |_| {}), taken(&raised, |_| {}));
}

#[test]
fn a_new_tool_is_no_difference_and_a_tool_that_went_away_is_one() {
    let pinned = taken(&job(), |_| {});
    let more = taken(&job(), |input| input.tools = tools(&[("post", "Posts."), ("read", "Reads."), ("new", "New.")]));
    assert!(pinned.diff(&more).is_empty());
    assert_eq!(pinned.diff(&more).new_tools().len(), 1);
    assert!(pinned.diff(&more).of(Component::Tools).new_tools()[0].starts_with("mcp__forum__new ("));
    assert_eq!(pinned.diff(&more).of(Component::Policy).new_tools(), [""; 0]);
    let accepted = pinned.clone().repinned(Component::Tools, &more);
    assert!(accepted.tool_names().contains("mcp__forum__new"), "accepting the tools offers the new ones");

    let fewer = taken(&job(), |input| input.tools = tools(&[("read", "Reads.")]));
    let text = pinned.diff(&fewer).to_string();
    assert_eq!(text, "tools mcp__forum__post: offered (external) → gone");
}

#[test]
fn a_difference_names_the_part_of_a_tool_that_changed() {
    let pinned = taken(&job(), |_| {});
    let now = taken(&job(), |input| input.tools = tools(&[("post", "Posts twice."), ("read", "Reads.")]));
    let text = pinned.diff(&now).to_string();
    assert_eq!(text, "tools mcp__forum__post: description \"Posts.\" → description \"Posts twice.\"");
    // What differs behind what is kept, and a pin from before words were kept.
    let long =
        |end: &str| taken(&job(), |input| input.tools = tools(&[("post", &format!("{} {end}", "Posts. ".repeat(30)))]));
    let text = long("A").diff(&long("B")).to_string();
    assert!(text.starts_with("tools mcp__forum__post: description ") && !text.contains("Posts"), "{text}");
    let mut old = pinned.to_stored();
    old["tools"]["mcp__forum__post"].as_object_mut().unwrap().remove("words").unwrap();
    let text = Fingerprint::from_stored(&old).unwrap().diff(&now).to_string();
    assert!(text.starts_with("tools mcp__forum__post: description ") && !text.contains("Posts"), "{text}");
}

#[test]
fn changed_arguments_are_said_by_name_and_type() {
    let schema =
        |properties: Value, required: Value| json!({"type": "object", "properties": properties, "required": required});
    let pin = |schema: Value| {
        let spec = ToolSpec { input_schema: schema, ..tool("post", "Posts.").1 };
        taken(&job(), |input| {
            input.tools = [("mcp__forum__post".to_owned(), ToolPin::of(&spec, SideEffectClass::External))].into();
        })
    };
    let before = pin(schema(json!({"text": {"type": "string"}}), json!(["text"])));
    let after = pin(schema(json!({"text": {"type": "string"}, "to": {}}), json!(["text"])));
    let text = before.diff(&after).to_string();
    assert_eq!(text, "tools mcp__forum__post: schema \"text: string\" → schema \"text: string, to?\"");
    // Other words about the same arguments are no reason to look at the calls; what nobody sees in a list of names and types is.
    let about = |words: &str, longest: u32| {
        pin(schema(json!({"text": {"type": "string", "description": words, "maxLength": longest}}), json!(["text"])))
    };
    let told = |now: &Fingerprint| about("What to post.", 9).diff(now).to_string();
    let text = told(&about("What is posted.", 9));
    assert!(
        text.starts_with("tools mcp__forum__post: schema ") && text.ends_with(" (only descriptions differ)"),
        "{text}"
    );
    for other in [about("What to post.", 8), about("What is posted.", 8)] {
        assert!(!told(&other).is_empty() && !told(&other).contains("only descriptions"), "{}", told(&other));
    }
}

#[test]
fn a_class_that_changed_under_the_same_tool_is_the_policys_doing() {
    let pinned = taken(&job(), |_| {});
    let now = taken(&job(), |input| {
        input.policy = other_policy(&[("rule `a`", "a2"), ("rule `b`", "b1")]);
        for pin in input.tools.values_mut() {
            pin.class = SideEffectClass::ReadOnly;
        }
    });
    let diff = pinned.diff(&now);
    assert_eq!(diff.components().into_iter().collect::<Vec<_>>(), [Component::Policy]);
    assert!(diff.to_string().contains("policy mcp__forum__post: external → read_only"), "{diff}");
    assert!(pinned.repinned(Component::Policy, &now).diff(&now).is_empty());
}

#[test]
fn what_changed_in_the_policy_is_said_part_by_part() {
    let pinned = taken(&job(), |_| {});
    let lines = |of: &Fingerprint, parts: &[(&str, &str)]| {
        let now = taken(&job(), |input| input.policy = other_policy(parts));
        assert!(of.clone().repinned(Component::Policy, &now).diff(&now).is_empty(), "{parts:?}");
        of.diff(&now).to_string().lines().map(str::to_owned).collect::<Vec<_>>()
    };
    let (a, b) = (("rule `a`", "a1"), ("rule `b`", "b1"));
    assert_eq!(lines(&pinned, &[a, b]), [""; 0]);
    assert_eq!(lines(&pinned, &[a]), ["policy rule `b` in /srv/p.toml: there → gone"]);
    assert_eq!(lines(&pinned, &[a, b, ("rule `c`", "c")]), ["policy rule `c` in /srv/p.toml: none → new"]);
    let changed = lines(&pinned, &[("rule `a`", "a2"), b]);
    let digests = "policy rule `a` in /srv/p.toml: changed (digest ";
    assert!(matches!(&changed[..], [one] if one.starts_with(digests)), "{changed:?}");
    // Field by field, where they are known: also of a field that says the same for a long way.
    let long = |end: &str| format!("approval:ask timeout:30s probe:{}{end}", "p".repeat(200)).leak() as &str;
    let fields = taken(&job(), |input| input.policy = other_policy(&[("rule `a`", long("1")), b]));
    let said = "policy rule `a` in /srv/p.toml: approval ask → not set";
    assert_eq!(lines(&fields, &[("rule `a`", long("1").strip_prefix("approval:ask ").unwrap()), b]), [said]);
    let changed = lines(&fields, &[("rule `a`", long("2").replace("30", "60").leak()), b]);
    assert!(changed[0].contains(": probe ppp") && changed[0].matches("… (sha256 ").count() == 2, "{changed:?}");
    assert_eq!(changed[1..], ["policy rule `a` in /srv/p.toml: timeout 30s → 60s"]);
    // Steps from before words were kept.
    let mut old = fields.to_stored();
    old.as_object_mut().unwrap().remove("policy_words");
    let changed = lines(&Fingerprint::from_stored(&old).unwrap(), &[("rule `a`", "timeout:1s"), b]);
    assert!(matches!(&changed[..], [one] if one.starts_with(digests)), "{changed:?}");
    // Their order, and steps from before parts were kept.
    let without_words = |lines: Vec<String>| matches!(&lines[..], [one] if one.starts_with("policy: changed ("));
    assert_eq!(lines(&pinned, &[b, a]), ["policy: its rules as they stood → the same in another order"]);
    let mut old = pinned.to_stored();
    old.as_object_mut().unwrap().remove("policy_parts");
    let old = Fingerprint::from_stored(&old).unwrap();
    assert!(without_words(lines(&old, &[a])));
    assert_eq!(old.clone().repinned(Component::Policy, &pinned), old, "nothing is to be accepted");
}

#[test]
fn long_values_are_shown_short_and_told_apart() {
    let long: &'static str = "x".repeat(500).leak();
    let (pinned, now) = (taken(&job(), |_| {}), taken(&job(), |input| input.system = long));
    let text = pinned.diff(&now).to_string();
    assert!(text.contains("system: be careful → xxx") && text.contains("(500 bytes, sha256 "), "{text}");
    assert!(text.len() < 200, "{text}");
}

#[test]
fn a_stored_fingerprint_is_read_back_and_a_newer_one_is_refused() {
    let taken = taken(&job(), |_| {});
    assert_eq!(Fingerprint::from_stored(&taken.to_stored()), Ok(taken.clone()));
    let mut newer = taken.to_stored();
    newer["version"] = json!(2);
    assert_eq!(Fingerprint::from_stored(&newer), Err(FingerprintError::TooNew { found: 2, known: 1 }));
    assert!(matches!(Fingerprint::from_stored(&json!({"a": 1})), Err(FingerprintError::Unreadable(_))));
}

#[test]
fn only_what_does_not_make_it_another_run_may_be_accepted() {
    let may: Vec<&str> = Component::ALL.iter().filter(|c| c.may_be_accepted()).map(|c| c.as_str()).collect();
    assert_eq!(may, ["pricing", "tools", "servers", "policy", "blob-threshold"]);
}
