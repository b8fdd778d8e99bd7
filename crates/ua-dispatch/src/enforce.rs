//! Enforcement: a call that must carry an idempotency key carries exactly ours, or is not sent.
//!
//! Granular Execution PRD §7: the tool says that it needs a key, or the job says that every tool does. Three gates: a tool
//! without a way to receive a key is refused when the step's tools are gathered; a call that got past that is refused before
//! RUNNING; and what is about to leave is compared with the permit, channel by channel.
//!
//! Proved by: this file's tests, `ua-mcp`'s tests of permitted calls, and the end-to-end tests of `settings.enforce_idempotency`.

use serde_json::{Map, Value};
use ua_core::{Audience, CallPolicy, KeyChannel, OnUnknown, SideEffectClass, ToolName, ToolNamespace, ToolSpec};
use ua_ledger::Permit;

use crate::error::DispatchError;

/// What is about to leave for one attempt.
#[derive(Debug, Clone, Copy)]
pub struct Payload<'a> {
    /// The tool's arguments.
    pub arguments: &'a Map<String, Value>,
    /// The request's `_meta`.
    pub meta: &'a Map<String, Value>,
    /// The header that carries the key: name and value.
    pub header: Option<(&'a str, &'a str)>,
}

/// Checks that `payload` carries the permit's key where the call's policy declares it.
///
/// # Errors
///
/// A sentence about what is missing or differs. The caller sends nothing then.
pub fn verify_key(permit: &Permit, payload: Payload<'_>) -> Result<(), String> {
    let (policy, key) = (&permit.call().policy, permit.key().as_str());
    let (place, found) = match &policy.key_channel {
        Some(KeyChannel::Argument(name)) => {
            let arguments = match &policy.via {
                Some(via) => via.unwrap(payload.arguments),
                None => Some(payload.arguments),
            };
            (format!("argument `{name}`"), arguments.and_then(|arguments| arguments.get(name)).and_then(Value::as_str))
        }
        Some(KeyChannel::Header(name)) => {
            let header = payload.header.filter(|(header, _)| header.eq_ignore_ascii_case(name));
            (format!("header `{name}`"), header.map(|(_, value)| value))
        }
        Some(KeyChannel::Meta) => ("request's _meta".to_owned(), permit.key_in(payload.meta)),
        None if policy.requires_idempotency_key => {
            return Err("the call requires an idempotency key, and its tool has no way to receive one".to_owned());
        }
        None => return Ok(()),
    };
    match found {
        Some(found) if found == key => Ok(()),
        Some(_) => Err(format!("the {place} carries another idempotency key than the one that was committed")),
        None => Err(format!("the {place} does not carry the idempotency key")),
    }
}

/// The policy as the job enforces it: with `all`, whatever is not harmless to repeat needs a key.
pub(crate) fn enforced(mut policy: CallPolicy, all: bool) -> CallPolicy {
    policy.requires_idempotency_key |= all && repeats_do_harm(&policy);
    policy
}

/// Reads and files that are replaced may be repeated as they are.
fn repeats_do_harm(policy: &CallPolicy) -> bool {
    match policy.class {
        SideEffectClass::ReadOnly => false,
        SideEffectClass::Local => policy.on_unknown != OnUnknown::Redo,
        SideEffectClass::External | SideEffectClass::Memory => true,
    }
}

/// Refuses a tool that must get a key and cannot.
pub(crate) fn check(spec: &ToolSpec, policy: &CallPolicy, audience: Audience) -> Result<(), DispatchError> {
    // A composite tool is never sent as it is; its actions are looked at when they are planned.
    if policy.composite.is_none() && policy.requires_idempotency_key && policy.key_channel.is_none() {
        let (tool, mut why) = (spec.name.raw.clone(), no_channel(Some(&spec.name), policy, audience));
        if let Some(argument) = ua_classify::likely_key_arguments(&spec.input_schema).first() {
            why.push_str(&format!("; its argument `{argument}` looks like one"));
        }
        return Err(DispatchError::Configuration { tool, why });
    }
    Ok(())
}

/// What is wrong with a tool that must get a key and cannot, and how to fix it.
pub(crate) fn no_channel(tool: Option<&ToolName>, policy: &CallPolicy, audience: Audience) -> String {
    let (who, out) = audience.pick(
        ("`settings.enforce_idempotency` of the job", " with `tools.deny`"),
        ("`enforce_idempotency` of the step", ""),
    );
    // A closure of the program has no policy that anybody wrote, and no arguments or headers beside its own.
    let is_closure = audience == Audience::Program && tool.is_some_and(|tool| tool.namespace == ToolNamespace::Local);
    let how = if is_closure {
        "let it use the key of its call, and say so with `keyed()` (`key_channel = \"meta\"` in a policy)".to_owned()
    } else {
        // What was told by the tool's name, and by no rule, is in no file.
        let rule = if policy.rule_id.contains(':') {
            "say in a policy of the tool its".to_owned()
        } else {
            format!("give the policy `{}` a", policy.rule_id)
        };
        format!("{rule} `key_channel` (\"meta\", {{ argument = \"…\" }} or {{ header = \"…\" }})")
    };
    format!(
        "it requires an idempotency key (`requires_idempotency_key` of its policy, or {who}), but has no way to receive one; {how}, \
         leave the tool out{out}, or do not enforce keys"
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use ua_classify::Classifier;
    use ua_core::{ToolAnnotations, ToolName, ToolNamespace};

    use super::*;
    use crate::{Catalog, Rules};

    fn spec(tool: &str, schema: Value) -> ToolSpec {
        ToolSpec {
            name: ToolName::qualified(ToolNamespace::Mcp, "shop", tool),
            description: String::new(),
            input_schema: schema,
            annotations: ToolAnnotations::default(),
        }
    }

    fn rules(job: &Value) -> Rules {
        let mut job = job.clone();
        job["objective"] = json!("x");
        Rules::of(&ua_core::RunSpec::parse(&job.to_string()).unwrap()).unwrap()
    }

    /// Granular Execution PRD §11.
    #[test]
    fn idempotency_enforced_tool() {
        let order = spec("order_now", json!({"type": "object", "properties": {"client_token": {"type": "string"}}}));
        let catalog = |rules: &Rules| Catalog::new(vec![order.clone()], &Classifier::shipped().unwrap(), rules);
        assert!(catalog(&rules(&json!({}))).is_ok(), "without enforcement it is accepted, and held in doubt");
        let enforced = rules(&json!({"settings": {"enforce_idempotency": true}}));
        let Err(error) = catalog(&enforced) else { panic!("a tool without a channel is refused") };
        let text = error.to_string();
        for word in ["mcp__shop__order_now", "key_channel", "`client_token` looks like one", "tools.deny"] {
            assert!(text.contains(word), "{word}: {text}");
        }
        let program = enforced.clone().speaking_to(Audience::Program);
        let Err(error) = catalog(&program) else { panic!("a tool without a channel is refused") };
        let text = error.to_string();
        assert!(text.contains("of the step") && !text.contains("tools.deny") && !text.contains("job"), "{text}");
        // A closure has neither a policy file nor arguments for a key.
        let closure = ToolSpec {
            name: ToolName::qualified(ToolNamespace::Local, "program", "order_now"),
            ..spec("order_now", json!({"type": "object"}))
        };
        let told = check(
            &closure,
            &CallPolicy { requires_idempotency_key: true, ..CallPolicy::unclassified() },
            Audience::Program,
        );
        let told = told.unwrap_err().to_string();
        assert!(told.contains("`keyed()`") && !told.contains("the policy") && !told.contains("argument ="), "{told}");
        let denied = rules(&json!({"settings": {"enforce_idempotency": true}, "tools": {"deny": ["order_*"]}}));
        assert!(catalog(&denied).is_ok(), "a tool that is not offered needs no key");
    }

    #[test]
    fn only_what_does_harm_when_repeated_needs_a_key() {
        let of = |class, on_unknown| CallPolicy { class, on_unknown, ..CallPolicy::unclassified() };
        let cases = [
            (SideEffectClass::ReadOnly, OnUnknown::Redo, false),
            (SideEffectClass::Local, OnUnknown::Redo, false),
            (SideEffectClass::Local, OnUnknown::Hold, true),
            (SideEffectClass::Memory, OnUnknown::RedoKeyed, true),
            (SideEffectClass::External, OnUnknown::Hold, true),
            (SideEffectClass::External, OnUnknown::Redo, true),
        ];
        for (class, on_unknown, needs) in cases {
            assert_eq!(enforced(of(class, on_unknown), true).requires_idempotency_key, needs, "{class} {on_unknown}");
            assert!(!enforced(of(class, on_unknown), false).requires_idempotency_key);
        }
    }
}
