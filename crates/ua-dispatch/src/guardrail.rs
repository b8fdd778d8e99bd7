//! Guardrails: what the dispatcher refuses before anything is sent, and what it tells the model to do instead.
//!
//! Durability Architecture, guardrails; RunSpec `constraints` (Durable Jobs v1 spec §6).

use globset::{Glob, GlobSet, GlobSetBuilder};
use serde_json::{Map, Value};
use ua_core::{Audience, CallPolicy, OnScopeConflict, RunSpec, SecretGrants, SideEffectClass, ToolName, ToolNamespace};
use ua_ledger::{decide_yourself, leads_elsewhere};

/// File-edit tools and remote workbenches of other servers: in a durable job files are written through the ledger's own
/// tools only.
const DENIED_IN_JOBS: [&str; 6] =
    ["Write", "Edit", "MultiEdit", "NotebookEdit", "COMPOSIO_REMOTE_WORKBENCH", "COMPOSIO_REMOTE_BASH_TOOL"];

/// What a server of servers puts between the name of a server and that of its tool.
const SEPARATORS: [&str; 4] = ["__", ".", "/", ":"];

/// The name on that list which a tool has, alone or behind any prefix.
fn denied_in_jobs(tool: &str) -> Option<&'static str> {
    DENIED_IN_JOBS.into_iter().find(|denied| {
        tool.strip_suffix(denied)
            .is_some_and(|prefix| prefix.is_empty() || SEPARATORS.iter().any(|by| prefix.ends_with(by)))
    })
}

/// What a job allows and forbids.
#[derive(Debug, Clone, Default)]
pub struct Rules {
    allow: Option<GlobSet>,
    deny: GlobSet,
    forbidden: GlobSet,
    ask_before: GlobSet,
    ask_before_classes: Vec<SideEffectClass>,
    ask_user: bool,
    /// How deep tasks may still be nested; `None` when the job has no sub-agents.
    task_depth: Option<u32>,
    task_tools: Option<GlobSet>,
    allowed_domains: Vec<String>,
    file_edit_tools: bool,
    enforce_idempotency: bool,
    on_scope_conflict: Option<OnScopeConflict>,
    secrets: SecretGrants,
    audience: Audience,
}

fn globs(patterns: &[String], field: &str) -> Result<GlobSet, String> {
    let mut set = GlobSetBuilder::new();
    for pattern in patterns {
        set.add(Glob::new(pattern).map_err(|e| format!("`{field}` has the pattern {pattern:?}: {}", e.kind()))?);
    }
    set.build().map_err(|e| format!("`{field}`: {e}"))
}

impl Rules {
    /// Reads the rules of a job. The error names the field.
    pub fn of(spec: &RunSpec) -> Result<Self, String> {
        let allow = &spec.tools.allow;
        let ask_before = &spec.escalation.ask_human_before;
        Ok(Self {
            ask_before: globs(ask_before, "escalation.ask_human_before")?,
            ask_before_classes: ask_before.iter().filter_map(|word| word.parse().ok()).collect(),
            ask_user: spec.escalation.ask_user,
            task_depth: spec.subagents.as_ref().map(|agents| agents.max_depth),
            task_tools: match &spec.subagents {
                Some(agents) if !agents.tools.is_empty() => Some(globs(&agents.tools, "subagents.tools")?),
                Some(_) | None => None,
            },
            allow: if allow.is_empty() { None } else { Some(globs(allow, "tools.allow")?) },
            deny: globs(&spec.tools.deny, "tools.deny")?,
            forbidden: globs(&spec.constraints.forbidden_actions, "constraints.forbidden_actions")?,
            allowed_domains: spec
                .constraints
                .allowed_domains
                .iter()
                .map(|d| d.trim_start_matches('.').to_lowercase())
                .collect(),
            file_edit_tools: spec.tools.allow_file_edit_tools,
            enforce_idempotency: spec.settings.enforce_idempotency,
            on_scope_conflict: spec.constraints.on_scope_conflict,
            secrets: SecretGrants::default(),
            audience: Audience::default(),
        })
    }

    /// The same rules, with the secrets that the user lets tools have. A job cannot say this.
    #[must_use]
    pub fn with_secrets(mut self, secrets: SecretGrants) -> Self {
        self.secrets = secrets;
        self
    }

    /// The same rules, whose messages speak to `audience`.
    #[must_use]
    pub fn speaking_to(mut self, audience: Audience) -> Self {
        self.audience = audience;
        self
    }

    /// Whom messages speak to.
    pub(crate) fn audience(&self) -> Audience {
        self.audience
    }

    /// Why these arguments refer to a secret that the tool may not have. An action of a composite tool may have none.
    pub(crate) fn refused_secret(&self, tool: Option<&ToolName>, arguments: &Map<String, Value>) -> Option<String> {
        match tool {
            Some(tool) => self.secrets.check(tool, arguments).err(),
            None => SecretGrants::default().check(&ToolName::qualified(ToolNamespace::Mcp, "", ""), arguments).err(),
        }
    }

    /// What the job says about near-duplicates of tools whose policy does not.
    pub(crate) fn on_scope_conflict(&self) -> Option<OnScopeConflict> {
        self.on_scope_conflict
    }

    /// The tools that the job lets sub-agents use; `None` for all.
    pub(crate) fn tools_of_sub_agents(&self) -> Option<&GlobSet> {
        self.task_tools.as_ref()
    }

    /// Whether every call that does harm when repeated needs an idempotency key.
    pub(crate) fn enforces_keys(&self) -> bool {
        self.enforce_idempotency
    }

    /// The policy as the job wants it: whatever the job names is approved by a person first.
    pub(crate) fn with_approval(&self, name: &ToolName, mut policy: CallPolicy) -> CallPolicy {
        let effect = policy.effect_kind.as_ref().map(ua_core::EffectKind::as_str);
        policy.needs_approval |= self.ask_before.is_match(&name.raw)
            || self.ask_before.is_match(&name.tool)
            || effect.is_some_and(|kind| self.ask_before.is_match(kind))
            || self.ask_before_classes.contains(&policy.class)
            || policy.raised_from.is_some_and(|class| self.ask_before_classes.contains(&class));
        policy
    }

    /// Why a tool is neither offered nor run, if it is not.
    pub(crate) fn denies(&self, name: &ToolName, policy: &CallPolicy) -> Option<String> {
        let work = self.audience.work();
        if name.is_ask_user() && !self.ask_user {
            return Some(format!("Nobody can be asked in this {work}. {}", decide_yourself(self.audience)));
        }
        if name.is_task() {
            match self.task_depth {
                None => {
                    return Some(format!("This {work} has no sub-agents. Do the work yourself, with your own tools."));
                }
                Some(0) => {
                    return Some(
                        "A sub-agent may not hand on tasks here (`subagents.max_depth` is reached). Do the work yourself, with your \
                         own tools, and say in your answer what you could not do."
                            .to_owned(),
                    );
                }
                Some(_) => {}
            }
        }
        let named = |set: &GlobSet| set.is_match(&name.raw) || set.is_match(&name.tool);
        if let Some(denied) = denied_in_jobs(&name.tool).filter(|_| !self.file_edit_tools) {
            let instead = if denied.starts_with("COMPOSIO_") {
                "Ask for each action that you need as a call of its own, or by COMPOSIO_MULTI_EXECUTE_TOOL, and use write_local_file for files."
            } else {
                "Use write_local_file or append_to_file instead."
            };
            return Some(format!(
                "`{}` is not available in a durable {work}, because its effects could not be recorded. {instead}",
                name.tool
            ));
        }
        // The job asks for these by switches of their own.
        let has_switch = name.is_ask_user() || name.is_task();
        if self.allow.as_ref().is_some_and(|allow| !named(allow)) && !has_switch {
            return Some(format!(
                "`{}` is not among the tools this {work} allows. Continue with those that are offered.",
                name.tool
            ));
        }
        let effect = policy.effect_kind.as_ref().map(ua_core::EffectKind::as_str);
        if named(&self.deny) || named(&self.forbidden) || effect.is_some_and(|kind| self.forbidden.is_match(kind)) {
            return Some(format!("This {work} forbids `{}`. Continue without it.", name.tool));
        }
        None
    }

    /// The first address in the arguments whose host this job does not allow: whatever the taint rule reads as one, in whatever spelling.
    pub(crate) fn forbidden_url(&self, tool: Option<&ToolName>, arguments: &Map<String, Value>) -> Option<String> {
        if self.allowed_domains.is_empty() {
            return None;
        }
        let is_own = tool.is_some_and(ToolName::is_built_in);
        leads_elsewhere(&Value::Object(arguments.clone()), is_own, |host| self.allows_host(host))
    }

    fn allows_host(&self, host: &str) -> bool {
        let is_within = |host: &str| {
            self.allowed_domains
                .iter()
                .any(|domain| host == domain || host.ends_with(&format!(".{domain}")) || *host == format!("[{domain}]"))
        };
        // A name that is written in letters beyond ASCII has a second spelling, which is the same host to everybody.
        let in_ascii = url::Url::parse(&format!("https://{host}/")).ok().filter(|_| !host.is_ascii());
        is_within(host) || in_ascii.and_then(|url| url.host_str().map(&is_within)).unwrap_or(false)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use ua_core::ToolNamespace;

    use super::*;

    fn rules(job: Value) -> Rules {
        let mut job = job;
        job["objective"] = "x".into();
        Rules::of(&RunSpec::parse(&job.to_string()).unwrap()).unwrap()
    }

    #[test]
    fn file_edit_tools_are_denied_under_any_prefix() {
        let policy = CallPolicy::unclassified();
        for tool in DENIED_IN_JOBS {
            for prefix in ["", "fs__", "mcp__composio__", "tools.", "files/", "ns:"] {
                let name = ToolName::qualified(ToolNamespace::Mcp, "any", &format!("{prefix}{tool}"));
                let said = rules(json!({})).denies(&name, &policy).unwrap();
                assert!(said.contains("write_local_file"), "{said}");
                assert!(rules(json!({"tools": {"allow_file_edit_tools": true}})).denies(&name, &policy).is_none());
            }
        }
        // Only these exact names: a tool that merely contains one is judged by its class.
        assert!(
            rules(json!({})).denies(&ToolName::qualified(ToolNamespace::Mcp, "s", "Write_note"), &policy).is_none()
        );
    }

    #[test]
    fn forbidden_actions_are_tool_globs_or_effect_kinds() {
        let mail = CallPolicy { effect_kind: ua_core::EffectKind::parse("email.send"), ..CallPolicy::unclassified() };
        let name = ToolName::qualified(ToolNamespace::Local, "ua", "send_email");
        for pattern in ["email.*", "send_*", "mcp__ua__*"] {
            assert!(
                rules(json!({"constraints": {"forbidden_actions": [pattern]}})).denies(&name, &mail).is_some(),
                "{pattern}"
            );
        }
        assert!(rules(json!({"constraints": {"forbidden_actions": ["file.*"]}})).denies(&name, &mail).is_none());
    }

    #[test]
    fn allowed_domains_are_host_suffixes() {
        let rules = rules(json!({"constraints": {"allowed_domains": ["example.test"]}}));
        let args = |url: &str| json!({"urls": [url]}).as_object().cloned().unwrap();
        assert_eq!(rules.forbidden_url(None, &args("https://docs.example.test/a")), None);
        assert_eq!(rules.forbidden_url(None, &args("file:///x")), None);
        for bad in ["https://badexample.test/", "https://example.test.evil.test/", "http://127.0.0.1/"] {
            assert_eq!(rules.forbidden_url(None, &args(bad)).as_deref(), Some(bad));
            for nested in
                [json!({"page_url": bad}), json!({"pages": [{"url": bad}]}), json!({"target": {"baseUrl": bad}})]
            {
                assert_eq!(rules.forbidden_url(None, nested.as_object().unwrap()).as_deref(), Some(bad), "{nested}");
            }
        }
        // The spellings and the places are searched in `ua-ledger`'s `leads_to`; here is that the guard asks it.
        for bad in ["\u{2028}https://evil.test", "<https://evil.test>", "//evil.test", "view-source:https://evil.test"]
        {
            assert!(rules.forbidden_url(None, &args(bad)).is_some(), "{bad:?}");
            assert!(rules.forbidden_url(None, json!({"url": {"x": bad}}).as_object().unwrap()).is_some(), "{bad:?}");
        }
        // Text that speaks of an address is no address that is asked for.
        let text = json!({"body": "see https://badexample.test/"});
        assert_eq!(rules.forbidden_url(None, text.as_object().unwrap()), None);
    }

    #[test]
    fn an_allowed_host_passes_in_both_of_its_spellings() {
        let rules = rules(
            json!({"constraints": {"allowed_domains": ["münchen.test", "xn--bcher-kva.test", "::1", "10.0.0.1"]}}),
        );
        for good in [
            "https://www.münchen.test/a",
            "https://bücher.test/",
            "https://xn--bcher-kva.test/",
            "http://[::1]:8080/x",
            "http://10.0.0.1/",
        ] {
            assert_eq!(rules.forbidden_url(None, json!({ "url": good }).as_object().unwrap()), None, "{good}");
        }
        assert!(rules.forbidden_url(None, json!({"url": "https://muenchen.test/"}).as_object().unwrap()).is_some());
    }

    #[test]
    fn tasks_are_handed_on_only_where_the_job_says_so_and_only_so_deep() {
        let (name, policy) = (ToolName::task(), CallPolicy::unclassified());
        assert!(rules(json!({})).denies(&name, &policy).unwrap().contains("has no sub-agents"));
        let on = json!({"subagents": {"tools": ["read_*"]}, "tools": {"allow": ["send_email"]}});
        let on = rules(on);
        assert_eq!(on.denies(&name, &policy), None, "its switch is its own");
        assert!(on.tools_of_sub_agents().unwrap().is_match("read_local_file"));
        let mut spec = RunSpec::parse(r#"{"objective": "o", "subagents": {}}"#).unwrap();
        spec.subagents.as_mut().unwrap().max_depth = 0;
        assert!(Rules::of(&spec).unwrap().denies(&name, &policy).unwrap().contains("max_depth"));
        let denied = rules(json!({"subagents": {}, "tools": {"deny": ["task"]}}));
        assert!(denied.denies(&name, &policy).is_some());
    }

    #[test]
    fn a_job_may_want_approval_by_tool_effect_or_class() {
        let mail = CallPolicy { effect_kind: ua_core::EffectKind::parse("email.send"), ..CallPolicy::unclassified() };
        let read = CallPolicy { class: SideEffectClass::ReadOnly, ..CallPolicy::unclassified() };
        let name = ToolName::qualified(ToolNamespace::Local, "ua", "send_email");
        for (pattern, asks_mail, asks_read) in [
            ("email.*", true, false),
            ("send_*", true, true),
            ("mcp__ua__*", true, true),
            ("external", true, false),
            ("read_only", false, true),
            ("file.*", false, false),
        ] {
            let rules = rules(json!({"escalation": {"ask_human_before": [pattern]}}));
            assert_eq!(rules.with_approval(&name, mail.clone()).needs_approval, asks_mail, "{pattern}");
            assert_eq!(rules.with_approval(&name, read.clone()).needs_approval, asks_read, "{pattern}");
        }
        // What somebody called an effect, who may only raise caution, is asked about as the read that it was.
        let raised = CallPolicy { raised_from: Some(SideEffectClass::ReadOnly), ..CallPolicy::unclassified() };
        let rules_of = |word: &str| rules(json!({"escalation": {"ask_human_before": [word]}}));
        for (word, asks) in [("read_only", true), ("external", true), ("local", false)] {
            assert_eq!(rules_of(word).with_approval(&name, raised.clone()).needs_approval, asks, "{word}");
        }
        let by_policy = CallPolicy { needs_approval: true, ..mail };
        assert!(rules(json!({})).with_approval(&name, by_policy).needs_approval);
    }

    #[test]
    fn ask_user_is_offered_by_its_own_switch_alone() {
        let (name, policy) = (ToolName::ask_user(), CallPolicy::unclassified());
        let off = rules(json!({})).denies(&name, &policy).unwrap();
        assert!(off.contains("Decide yourself"), "{off}");
        let on = json!({"escalation": {"ask_user": true}, "tools": {"allow": ["send_email"]}});
        assert_eq!(rules(on.clone()).denies(&name, &policy), None);
        let mut forbidden = on;
        forbidden["constraints"] = json!({"forbidden_actions": ["ask_user"]});
        assert!(rules(forbidden).denies(&name, &policy).is_some());
    }
}
