//! Composite tools: planning each action of a tool use as a call of its own.
//!
//! Durable Jobs v1 spec §7.4 and §8.2. An action has the class, policy, key and scope of its own name, so a mail that is asked for in a batch
//! and one that is asked for directly are the same effect. Deny lists, required keys, approvals and budgets hold for each action. There
//! is no row for the composite tool itself: it is never sent with more than one action, and its result is put together from theirs.
//! Invariants: a list that cannot be taken apart runs nothing; a refused action does not keep the others from running.

use serde_json::{Value, json};
use ua_core::{
    Action, CallId, CallPolicy, CanonicalJson, KeyChannel, OnUnknown, PlannedCall, Refusal, Resolution,
    SideEffectClass, ToolAnnotations, ToolName, ToolSpec, ToolUse, sha256,
};

use crate::catalog::Entry;
use crate::plan::{Planner, UNPLACED, not_given, refused, schema_errors, too_large};
use crate::texts::read_texts_of;

impl Planner<'_> {
    /// The actions of a composite tool use, planned. `None` for every other tool use, and for one whose tool is not offered or is
    /// denied; one that cannot be taken apart is a single call that is refused.
    pub(crate) fn plan_actions(&self, tool_use: &ToolUse) -> Option<Vec<PlannedCall>> {
        let entry = self.catalog.get(&tool_use.name).filter(|entry| entry.denied.is_none())?;
        let policy = self.classified(entry, &tool_use.input);
        let layout = policy.composite.as_ref()?;
        let arguments = tool_use.input.as_object()?;
        let refuse = |message: String| {
            let refusal = refused(Resolution::Refused, "invalid_arguments", message);
            vec![self.container(tool_use, entry, policy.clone().into_owned(), refusal)]
        };
        if let Some(message) = too_large(&tool_use.input) {
            return Some(refuse(message));
        }
        let apart = match layout.take_apart(&entry.spec.name, arguments) {
            Ok(apart) => apart,
            Err(message) => return Some(refuse(message)),
        };
        if let Some(message) = schema_errors(entry, &Value::Object(apart.arguments)) {
            return Some(refuse(message));
        }
        Some(apart.actions.into_iter().map(|action| self.plan_action(tool_use, entry, action)).collect())
    }

    /// The composite tool use as one call that is refused.
    fn container(&self, tool_use: &ToolUse, entry: &Entry, policy: CallPolicy, refusal: Refusal) -> PlannedCall {
        PlannedCall {
            call_id: CallId::new(self.env),
            tool_use_id: tool_use.id.clone(),
            position: UNPLACED,
            name: entry.spec.name.clone(),
            arguments: tool_use.input.clone().into(),
            args_hash: CanonicalJson::of(&tool_use.input, &[])
                .map_or_else(|_| sha256(tool_use.input.to_string()), |canonical| canonical.hash()),
            tool_digest: Some(entry.digest),
            policy: policy.into(),
            refusal: Some(refusal),
        }
    }

    /// The policy of the tool that an action is of, which may be in no listing.
    fn policy_of_tool(&self, direct: Option<&Entry>, name: &ToolName, arguments: &Value) -> CallPolicy {
        let spec = direct.map_or_else(|| unlisted(name), |entry| entry.spec.clone());
        self.policy(&spec, arguments)
    }

    /// The policy of an action.
    pub(crate) fn policy_of_action(&self, direct: Option<&Entry>, name: &ToolName, arguments: &Value) -> CallPolicy {
        in_a_batch(self.policy_of_tool(direct, name, arguments))
    }

    fn plan_action(&self, tool_use: &ToolUse, composite: &Entry, action: Action) -> PlannedCall {
        let Action { name, arguments, via } = action;
        let of = &composite.spec.name;
        let name = ToolName::qualified(of.namespace, &of.server, &name);
        let direct = self.catalog.get(&name.raw);
        let arguments = match direct {
            Some(entry) => read_texts_of(&entry.offer.input_schema, arguments),
            None => arguments,
        };
        let input = Value::Object(arguments.clone());
        let policy = self.policy_of_tool(direct, &name, &input);
        let nested = policy.composite.is_some();
        let mut policy = in_a_batch(policy);
        let denied = direct.and_then(|entry| entry.denied.clone()).or_else(|| self.rules.denies(&name, &policy));
        let refusal = if nested {
            let message = format!("Not run: `{}` cannot be an action of itself. List its actions directly.", name.tool);
            Some(refused(Resolution::Refused, "invalid_arguments", message))
        } else if let Some(why) = denied {
            Some(refused(Resolution::Refused, "denied", why))
        } else if let Some(why) = self.rules.refused_secret(None, &arguments) {
            Some(refused(Resolution::Refused, "secret_not_allowed", not_given(&why)))
        } else {
            self.refuse_arguments(direct, &arguments, &policy)
        };
        policy.via = Some(Box::new(via));
        let canonical = CanonicalJson::of(&input, &policy.volatile_fields);
        PlannedCall {
            call_id: CallId::new(self.env),
            tool_use_id: tool_use.id.clone(),
            position: UNPLACED,
            name,
            args_hash: canonical.map_or_else(|_| sha256(input.to_string()), |canonical| canonical.hash()),
            arguments: input.into(),
            tool_digest: Some(direct.map_or(composite.digest, |entry| entry.digest)),
            policy: policy.into(),
            refusal,
        }
    }
}

/// A tool of a dynamic catalog that is only reached through the composite one: nothing is known of it but its name.
fn unlisted(name: &ToolName) -> ToolSpec {
    let annotations = ToolAnnotations::default();
    ToolSpec { name: name.clone(), description: String::new(), input_schema: json!({}), annotations }
}

/// The policy of a tool as it holds for an action. What a policy says about a header or the `_meta` of the tool's own request says
/// nothing about the request of the composite tool; only a key among the action's arguments is sure to arrive.
fn in_a_batch(mut policy: CallPolicy) -> CallPolicy {
    policy.composite = None;
    match policy.key_channel {
        Some(KeyChannel::Header(_) | KeyChannel::Meta) => {
            policy.key_channel = None;
            if policy.on_unknown == OnUnknown::RedoKeyed && policy.class != SideEffectClass::ReadOnly {
                policy.on_unknown = OnUnknown::Hold;
                policy.reason =
                    format!("{}; in a batch its key would not arrive, so a lost call is held", policy.reason);
            }
        }
        Some(KeyChannel::Argument(_)) | None => {}
    }
    policy
}

#[cfg(test)]
mod tests {
    use ua_classify::{Classifier, Lists, PolicyRules};
    use ua_core::{Block, Env, ModelTurn, RunSpec, StopReason, ToolNamespace};

    use super::*;
    use crate::{Catalog, Rules};

    const MULTI: &str = "COMPOSIO_MULTI_EXECUTE_TOOL";

    fn spec(tool: &str, properties: &Value) -> ToolSpec {
        ToolSpec {
            name: ToolName::qualified(ToolNamespace::Composio, "composio", tool),
            description: String::new(),
            input_schema: json!({"type": "object", "properties": properties}),
            annotations: ToolAnnotations::default(),
        }
    }

    /// Plans tool uses of a server with the composite tool and one direct one.
    fn plan(job: &Value, policy: &str, uses: &[(&str, Value)]) -> Vec<PlannedCall> {
        let mut job = job.clone();
        job["objective"] = json!("x");
        let rules = Rules::of(&RunSpec::parse(&job.to_string()).unwrap()).unwrap();
        let policies = vec![PolicyRules::parse(policy, "policy.toml").unwrap()];
        let classifier = Classifier::new(policies, &Lists::default(), std::collections::HashSet::new()).unwrap();
        let list = json!({"tools": {"type": "array", "maxItems": 3}, "session_id": {"type": "string"}});
        let direct = json!({"recipient_email": {"type": "string"}, "subject": {}, "body": {}});
        let specs = vec![spec(MULTI, &list), spec("GMAIL_SEND_EMAIL", &direct)];
        let catalog = Catalog::new(specs, &classifier, &rules).unwrap();
        let env = Env::simulated(1);
        let blocks = (1..).zip(uses).map(|(n, (name, input))| {
            let name = format!("mcp__composio__{name}");
            Block::ToolUse(ToolUse { id: format!("t{n}"), name, input: input.clone() })
        });
        let reply = ModelTurn {
            blocks: blocks.collect(),
            stop_reason: StopReason::ToolUse,
            usage: None,
            model: "m".into(),
            response_id: None,
        };
        Planner { catalog: &catalog, classifier: &classifier, rules: &rules, env: &env }.plan(&reply, 2)
    }

    fn batch(actions: &[(&str, Value)]) -> (&'static str, Value) {
        let items: Vec<Value> =
            actions.iter().map(|(slug, arguments)| json!({"tool_slug": slug, "arguments": arguments})).collect();
        (MULTI, json!({"tools": items, "session_id": "s"}))
    }

    fn mail(body: &str) -> Value {
        json!({"recipient_email": "a@example.test", "subject": "Hi", "body": body})
    }

    fn codes(calls: &[PlannedCall]) -> Vec<&str> {
        let code = |call: &PlannedCall| call.refusal.as_ref().map(|refusal| refusal.code.clone());
        calls.iter().map(|call| code(call).map_or("", |code| Box::leak(code.into_boxed_str()))).collect()
    }

    #[test]
    fn an_action_is_planned_like_the_tool_of_its_name() {
        let uses = [
            batch(&[("GMAIL_FETCH_EMAILS", json!({"max": 1})), ("GMAIL_SEND_EMAIL", mail("one"))]),
            ("GMAIL_SEND_EMAIL", mail("one")),
        ];
        let calls = plan(&json!({}), "", &uses);
        let places: Vec<(u32, &str)> =
            calls.iter().map(|call| (call.position.ordinal, call.tool_use_id.as_str())).collect();
        assert_eq!(places, [(1, "t1"), (2, "t1"), (3, "t2")]);
        assert_eq!(codes(&calls), ["", "", ""]);
        let (fetch, sent, direct) = (&calls[0], &calls[1], &calls[2]);
        assert_eq!((fetch.policy.class, sent.policy.class), (SideEffectClass::ReadOnly, SideEffectClass::External));
        assert_eq!(
            (&sent.name, sent.args_hash, sent.tool_digest),
            (&direct.name, direct.args_hash, direct.tool_digest)
        );
        assert_eq!(CallPolicy { via: None, ..sent.policy.clone().unshared() }, direct.policy.clone().unshared());
        assert_eq!(sent.policy.via.as_ref().unwrap().tool.tool, MULTI);
    }

    #[test]
    fn what_is_refused_is_refused_for_one_action() {
        let action = |slug: &'static str| (slug, json!({}));
        let job = json!({"tools": {"deny": ["SLACK_*"]}, "constraints": {"forbidden_actions": ["email.send"]}});
        let uses =
            [batch(&[action("SLACK_POST"), ("GMAIL_SEND_EMAIL", mail("x")), action("composio_remote_workbench")])];
        assert_eq!(codes(&plan(&job, "", &uses)), ["denied", "denied", "denied"]);
        let uses =
            [batch(&[("GMAIL_SEND_EMAIL", json!({"recipient_email": 7})), action("GMAIL_LIST_LABELS"), action(MULTI)])];
        assert_eq!(codes(&plan(&json!({}), "", &uses)), ["invalid_arguments", "", "invalid_arguments"]);
    }

    #[test]
    fn a_batch_that_cannot_be_taken_apart_is_one_refused_call() {
        let uses = [
            (MULTI, json!({"tools": [{"slug": "A_GET"}]})),
            (MULTI, json!({"tools": "[]"})),
            batch(&[("A_GET", json!({})), ("B_GET", json!({})), ("C_GET", json!({})), ("D_GET", json!({}))]),
        ];
        let calls = plan(&json!({}), "", &uses);
        assert_eq!(codes(&calls), ["invalid_arguments"; 3]);
        assert!(calls.iter().all(|call| call.name.tool == MULTI && call.policy.via.is_none()));
        assert!(calls[2].refusal.as_ref().unwrap().message.contains("tools"), "{:?}", calls[2].refusal);
    }

    #[test]
    fn a_key_reaches_an_action_only_among_its_arguments() {
        let rule = |channel: &str| {
            format!(
                "[[rule]]\nid = \"pay\"\nname = \"SHOP_PAY\"\nside_effect_class = \"external\"\non_unknown = \"redo_keyed\"\n\
                 key_channel = {channel}\n"
            )
        };
        let uses = [batch(&[("SHOP_PAY", json!({"cents": 5}))])];
        for (channel, job, on_unknown, code) in [
            ("{ argument = \"client_request_id\" }", json!({}), OnUnknown::RedoKeyed, ""),
            ("\"meta\"", json!({}), OnUnknown::Hold, ""),
            (
                "{ header = \"Key\" }",
                json!({"settings": {"enforce_idempotency": true}}),
                OnUnknown::Hold,
                "no_key_channel",
            ),
            (
                "{ argument = \"client_request_id\" }",
                json!({"settings": {"enforce_idempotency": true}}),
                OnUnknown::RedoKeyed,
                "",
            ),
        ] {
            let mut job = job;
            job["tools"] = json!({"deny": ["GMAIL_*"]}); // a direct tool without a key would not let an enforcing job start
            let calls = plan(&job, &rule(channel), &uses);
            assert_eq!((calls[0].policy.on_unknown, codes(&calls)[0]), (on_unknown, code), "{channel} {job}");
        }
        let made_up = [batch(&[("SHOP_PAY", json!({"cents": 5, "client_request_id": "mine"}))])];
        let calls = plan(&json!({}), &rule("{ argument = \"client_request_id\" }"), &made_up);
        assert_eq!(codes(&calls), ["spoofed_key"]);
    }
}
