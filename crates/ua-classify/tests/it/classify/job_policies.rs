//! Policy files that come with a job: what they raise, what they cannot lower, and what trust changes.

use std::collections::HashSet;

use ua_classify::{Classifier, JobPolicy, Lists, PolicyRules};
use ua_core::{CallPolicy, ClassSource, OnScopeConflict, OnUnknown, Reads, SideEffectClass, ToolSpec};

use super::{foreign, own};

/// A user's policy file, and a job's.
fn classifier(user: &str, job: &str, is_trusted: bool) -> Classifier {
    let user = PolicyRules::parse(user, "policy.toml").unwrap();
    let rules = PolicyRules::parse(job, "evil.toml").unwrap();
    let classifier = Classifier::new(vec![user], &Lists::default(), HashSet::new()).unwrap();
    classifier.with_job_policies(vec![JobPolicy { rules, is_trusted }]).unwrap()
}

fn rule(id: &str, name: &str, says: &str) -> String {
    format!("[[rule]]\nid = \"{id}\"\nname = \"{name}\"\n{says}\n")
}

/// Everything that a stranger's rule would like to say.
const LOOSE: [&str; 14] = [
    "side_effect_class = \"read_only\"",
    "side_effect_class = \"local\"\non_unknown = \"redo\"",
    "on_unknown = \"redo\"",
    "on_unknown = \"continue\"",
    "key_channel = \"meta\"",
    "key_channel = { argument = \"id\" }\non_unknown = \"redo_keyed\"",
    "reads = []",
    "approval = \"none\"",
    "on_scope_conflict = \"allow\"",
    "errors_without_effect = [\".*\"]",
    "harmless_programs = [\"sh\"]",
    "effect_kind = \"email.send\"\nscope = [{ addresses = \"cc\" }]",
    "volatile_fields = [\"to\"]",
    "composite = { list = \"calls\", name = \"tool\", arguments = \"input\" }",
];

fn tools() -> Vec<ToolSpec> {
    let own = ["send_email", "crawl_parallel", "run_command", "archival_memory_search", "write_local_file"].map(own);
    let foreign = ["post", "send_message", "fetch", "sprint", "search_emails"].map(foreign);
    own.into_iter().chain(foreign).collect()
}

#[test]
fn an_untrusted_policy_of_a_job_lowers_nothing() {
    for user in ["", "[[rule]]\nid = \"mine\"\npatterns = [\"*\"]\napproval = \"ask\"\nreads = [\"private\"]\n"] {
        let without = classifier(user, "", false);
        for (says, tool) in LOOSE.iter().flat_map(|says| tools().into_iter().map(move |tool| (*says, tool))) {
            let with = classifier(user, &rule("evil", &tool.name.tool, says), false);
            let [before, after] = [&without, &with].map(|classifier| classifier.classify(&tool, None));
            // A read may become an effect, and what is run again by itself may be told the model instead: both are more careful.
            let is_raised =
                after.class > before.class || (says.contains("continue") && before.on_unknown < OnUnknown::Hold);
            if is_raised {
                let is_kept = before.reads.iter().all(|reads| after.reads.contains(reads));
                assert!(is_kept && after.needs_approval == before.needs_approval, "{says} {}", tool.name.raw);
                assert!(matches!(after.on_unknown, OnUnknown::Hold | OnUnknown::Continue), "{says} {}", tool.name.raw);
            } else {
                assert_eq!(after, before, "{says} {}", tool.name.raw);
            }
            let line = with.explain(&tool).to_string();
            assert!(is_raised || line.contains("the job's evil.toml is not trusted"), "{line}");
        }
    }
}

#[test]
fn any_policy_of_a_job_raises_caution_over_the_users_own() {
    let user = rule(
        "mine",
        "fetch",
        "side_effect_class = \"read_only\"\non_unknown = \"redo\"\napproval = \"none\"\nreads = []",
    );
    let job = rule(
        "careful",
        "fetch",
        "side_effect_class = \"external\"\non_unknown = \"hold\"\napproval = \"ask\"\nreads = [\"private\"]\non_scope_conflict = \"refuse\"",
    );
    for is_trusted in [false, true] {
        let classifier = classifier(&user, &job, is_trusted);
        let policy = classifier.classify(&foreign("fetch"), None);
        assert_eq!(policy.class, SideEffectClass::External);
        assert_eq!((policy.on_unknown, policy.needs_approval), (OnUnknown::Hold, true));
        assert_eq!(
            (policy.reads.as_slice(), policy.on_scope_conflict),
            (&[Reads::Private][..], OnScopeConflict::Refuse)
        );
        assert_eq!((policy.class_source, policy.rule_id.as_str()), (ClassSource::JobPolicy, "careful"));
        assert!(
            policy.reason.contains("rule careful of the job's evil.toml raises it to external"),
            "{}",
            policy.reason
        );
    }
    // Which layer it was is told where another one decided the class, too.
    let classifier = classifier(&user, &rule("careful", "fetch", "approval = \"ask\""), false);
    let policy = classifier.classify(&foreign("fetch"), None);
    assert_eq!((policy.class, policy.needs_approval), (SideEffectClass::ReadOnly, true));
    let parts = ["rule mine of policy.toml calls it read_only", "rule careful of the job's evil.toml raises approval"];
    assert!(parts.iter().all(|part| policy.reason.contains(part)), "{}", policy.reason);
}

#[test]
fn a_trusted_policy_of_a_job_fills_in_what_no_rule_of_the_user_says() {
    let job = rule("jobs", "post", "side_effect_class = \"read_only\"\napproval = \"none\"\nreads = []");
    let alone = classifier("", &job, true).classify(&foreign("post"), None);
    assert_eq!((alone.class, alone.class_source), (SideEffectClass::ReadOnly, ClassSource::JobPolicy));
    assert!(alone.reason.contains("the job's evil.toml, which is trusted"), "{}", alone.reason);
    let user = rule("mine", "post", "side_effect_class = \"external\"\napproval = \"ask\"");
    let under = classifier(&user, &job, true).classify(&foreign("post"), None);
    assert_eq!((under.class, under.needs_approval), (SideEffectClass::External, true));
    assert_eq!(under.class_source, ClassSource::UserPolicy);
}

#[test]
fn a_raised_class_takes_no_caution_with_it() {
    // A local tool with a key is held when in doubt, an external one would be sent again under its key.
    let user = rule("mine", "sprint", "side_effect_class = \"local\"\nkey_channel = \"meta\"");
    let raised = classifier(&user, &rule("up", "sprint", "side_effect_class = \"external\""), false);
    let policy = raised.classify(&foreign("sprint"), None);
    assert_eq!((policy.class, policy.on_unknown), (SideEffectClass::External, OnUnknown::Hold));
    // What a foreign read brings in, it still brings in when it is called an effect.
    let raised = classifier("", &rule("up", "list_items", "side_effect_class = \"external\""), false);
    let CallPolicy { class, reads, .. } = raised.classify(&foreign("list_items"), None);
    assert_eq!((class, reads.as_slice()), (SideEffectClass::External, &[Reads::Untrusted][..]));
}

#[test]
fn the_first_rule_of_a_job_that_sets_a_field_is_the_one_that_counts() {
    let job = format!(
        "{}[[rule]]\nid = \"rest\"\npatterns = [\"list_*\"]\nside_effect_class = \"external\"\n",
        rule("one", "list_items", "side_effect_class = \"read_only\"")
    );
    let classifier = classifier("", &job, false);
    assert_eq!(classifier.classify(&foreign("list_items"), None).class, SideEffectClass::ReadOnly);
    assert_eq!(classifier.classify(&foreign("list_others"), None).class, SideEffectClass::External);
}

#[test]
fn trust_is_part_of_what_a_run_is_pinned_to_and_ids_are_unique_over_all_files() {
    let job = rule("a", "post", "approval = \"ask\"");
    let versions = [true, false].map(|is_trusted| classifier("", &job, is_trusted).version());
    assert_ne!(versions[0], versions[1]);
    let user = Classifier::new(vec![PolicyRules::parse(&job, "mine.toml").unwrap()], &Lists::default(), HashSet::new());
    let rules = PolicyRules::parse(&job, "evil.toml").unwrap();
    let both = user.unwrap().with_job_policies(vec![JobPolicy { rules, is_trusted: false }]);
    assert!(both.unwrap_err().to_string().contains("rename one"));
}
