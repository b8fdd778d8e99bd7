//! The policy version: one digest of everything that decides, and one of each of its parts, which says what of it changed.
//!
//! Granular Execution PRD §5.2. Both are made of the same fields. Invariant: where the versions of two classifiers differ, a part differs, or the
//! order of rules does. Proved by: the test of this file, `tests/it/classify/packs.rs`.

use std::collections::{BTreeMap, BTreeSet};

use ua_core::{KeyBuilder, Sha256};

use super::{ALGORITHM, Classifier};
use crate::name::vocabulary;
use crate::packs::Pack;
use crate::rule::Rule;

/// What comes with the program and is no pack.
const OF_THIS_PROGRAM: &str = "what this program knows of tools";
/// The packs that come with it.
const PACKS: &str = "the packs of this program";

/// One thing that decides.
struct Field {
    /// What people call it.
    part: String,
    /// What it is, in the digest.
    label: &'static str,
    text: String,
}

impl Field {
    fn new(part: impl Into<String>, label: &'static str, text: impl Into<String>) -> Self {
        Self { part: part.into(), label, text: text.into() }
    }

    /// A rule that somebody wrote.
    fn of_rule(label: &'static str, rule: &Rule) -> Self {
        Self { part: format!("rule `{}`", rule.id), ..Self::of_program(label, rule) }
    }

    /// A rule that comes with the program.
    fn of_program(label: &'static str, rule: &Rule) -> Self {
        // A rule is made of texts, numbers and enums, which serde_json always can write.
        Self::new(OF_THIS_PROGRAM, label, serde_json::to_string(rule).unwrap_or_else(|_| format!("{rule:?}")))
    }
}

impl Classifier {
    /// The digest of everything that decides (`policy_version`), but for what tools say of themselves: rules, lists, trusted servers and vocabulary.
    /// File names, comments and layout do not count.
    pub fn version(&self) -> Sha256 {
        digest("ua.policy.v1", &self.fields())
    }

    /// The digest of each part of what [`Classifier::version`] is the digest of, by what people call the part: `` rule `ID` ``, the lists of the
    /// configuration, and what comes with the program.
    pub fn parts(&self) -> BTreeMap<String, Sha256> {
        let mut parts: BTreeMap<String, Vec<Field>> = BTreeMap::new();
        for field in self.fields() {
            parts.entry(field.part.clone()).or_default().push(field);
        }
        parts.into_iter().map(|(part, fields)| (part, digest("ua.policy.part.v1", &fields))).collect()
    }

    /// Everything that decides, in its order.
    fn fields(&self) -> Vec<Field> {
        let mut fields = vec![
            Field::new(OF_THIS_PROGRAM, "algorithm", ALGORITHM),
            Field::new(OF_THIS_PROGRAM, "words", vocabulary()),
        ];
        let policies = self.user.iter().filter(|file| !file.is_of_tools);
        fields.extend(policies.flat_map(|file| &file.rules).map(|rule| Field::of_rule("rule", rule)));
        fields.extend(self.shipped.rules.iter().map(|rule| Field::of_program("rule", rule)));
        for file in &self.job {
            let label = if file.is_trusted { "trusted job rule" } else { "job rule" };
            fields.extend(file.rules.rules.iter().map(|rule| Field::of_rule(label, rule)));
        }
        let denylist: BTreeSet<_> = self.denylist.texts().iter().collect();
        let allowlist: BTreeSet<_> = self.allowlist.texts().iter().collect();
        let trusted: BTreeSet<_> = self.trusted_servers.iter().collect();
        let confirming: BTreeSet<_> = self.confirming_servers.iter().collect();
        for (part, label, names) in [
            ("side_effect_denylist", "denylist", denylist),
            ("read_only_allowlist", "allowlist", allowlist),
            ("the trusted servers", "trusted", trusted),
            ("the servers whose annotations count", "confirming", confirming),
        ] {
            fields.extend(names.into_iter().map(|name| Field::new(part, label, name)));
        }
        for (server, pack) in &self.packs.chosen {
            let part = format!("the pack of `{server}`");
            fields.push(Field::new(&part, "pack of", server));
            fields.push(Field::new(&part, "pack", pack.map_or("", Pack::id)));
        }
        if !self.packs.are_off {
            for pack in Pack::all().unwrap_or_default() {
                fields.push(Field::new(PACKS, "pack", pack.id()));
                fields.push(Field::new(PACKS, "text", pack.pinned_text()));
            }
        }
        fields
    }
}

fn digest(kind: &str, fields: &[Field]) -> Sha256 {
    fields.iter().fold(KeyBuilder::new(kind), |key, field| key.field(field.label, &field.text)).digest()
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::super::Lists;
    use super::*;
    use crate::job::JobPolicy;
    use crate::rule::PolicyRules;

    /// Rules of a user and of a job, as `user` and `job` say them: an id and a class each.
    fn classifier(user: &[(&str, &str)], job: &[(&str, &str)], is_trusted: bool) -> Classifier {
        let file = |name: &str, rules: &[(&str, &str)]| {
            let texts: Vec<String> = rules
                .iter()
                .map(|(id, class)| {
                    format!("[[rule]]\nid = \"{id}\"\nname = \"post\"\nside_effect_class = \"{class}\"\n")
                })
                .collect();
            PolicyRules::parse(&texts.concat(), name).unwrap()
        };
        let of_job = vec![JobPolicy { rules: file("job.toml", job), is_trusted }];
        let of_user = vec![file("user.toml", user)];
        let classifier = Classifier::new(of_user, &Lists::default(), HashSet::new()).unwrap();
        classifier.with_job_policies(of_job).unwrap()
    }

    #[test]
    fn the_parts_that_differ_are_those_that_changed() {
        let (rules, of_job) = ([("a", "external"), ("b", "external")], [("j", "external")]);
        let before = classifier(&rules, &of_job, true);
        let changes = [
            (classifier(&rules, &of_job, true), vec![]),
            (classifier(&[("a", "local"), ("b", "external")], &of_job, true), vec!["rule `a`"]),
            (classifier(&rules[1..], &of_job, true), vec!["rule `a`"]),
            (classifier(&rules, &[("j", "local")], true), vec!["rule `j`"]),
            (classifier(&rules, &of_job, false), vec!["rule `j`"]),
            (classifier(&rules, &[], true), vec!["rule `j`"]),
        ];
        for (now, wanted) in changes {
            let (was, is) = (before.parts(), now.parts());
            let names: BTreeSet<&String> = was.keys().chain(is.keys()).collect();
            let differ: Vec<&String> = names.into_iter().filter(|name| was.get(*name) != is.get(*name)).collect();
            assert_eq!(differ, wanted);
            assert_eq!(before.version() == now.version(), wanted.is_empty(), "{wanted:?}");
        }
    }
}
