//! The policy version: one digest of everything that decides, and one of each of its parts, which says what of it changed.
//!
//! Granular Execution PRD §5.2. Both are made of the same fields. Invariant: where the versions of two classifiers differ, a part differs, or the
//! order of rules does. Proved by: the test of this file, `tests/it/classify/packs.rs`.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, LazyLock};

use ua_core::{KeyBuilder, PolicyWords, Sha256};

use super::{ALGORITHM, Classifier, SHIPPED_RULES};
use crate::name::vocabulary;
use crate::packs::Pack;
use crate::rule::Rule;

/// What comes with the program and is no pack.
const OF_THIS_PROGRAM: &str = "what this program knows of tools";
/// The packs that come with it.
const PACKS: &str = "the packs of this program";

/// The texts of what comes with this program, which every process of a run hashes. They are the same for all, so they are written once.
struct Texts {
    words: String,
    /// Of the shipped rules, in their order.
    rules: Vec<String>,
    /// Each pack's name and text.
    packs: Vec<(&'static str, String)>,
}

static TEXTS: LazyLock<Texts> = LazyLock::new(|| Texts {
    words: vocabulary(),
    rules: SHIPPED_RULES.iter().flat_map(|file| &file.rules).map(text_of).collect(),
    packs: Pack::all().unwrap_or_default().iter().map(|pack| (pack.id(), pack.pinned_text())).collect(),
});

/// One thing that decides.
struct Field<'a> {
    /// What people call it.
    part: Cow<'a, str>,
    /// What it is, in the digest.
    label: &'static str,
    text: Cow<'a, str>,
}

impl<'a> Field<'a> {
    fn new(part: impl Into<Cow<'a, str>>, label: &'static str, text: impl Into<Cow<'a, str>>) -> Self {
        Self { part: part.into(), label, text: text.into() }
    }

    /// A rule that somebody wrote.
    fn of_rule(label: &'static str, rule: &Rule) -> Self {
        Self::new(name_of(rule), label, text_of(rule))
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
        let mut parts: BTreeMap<Cow<'_, str>, Vec<Field<'_>>> = BTreeMap::new();
        for field in self.fields() {
            parts.entry(field.part.clone()).or_default().push(field);
        }
        parts.into_iter().map(|(part, fields)| (part.into_owned(), digest("ua.policy.part.v1", &fields))).collect()
    }

    /// What somebody wrote in each of these parts, field by field; nothing of what comes with the program. Of two rules of one name, it is the
    /// later one's.
    pub fn words_of_parts(&self) -> BTreeMap<String, PolicyWords> {
        let mut parts: BTreeMap<String, PolicyWords> = BTreeMap::new();
        let policies = self.user.iter().filter(|file| !file.is_of_tools).map(|file| (file, None));
        let of_job = self.job.iter().map(|policy| (&policy.rules, Some(policy.is_trusted)));
        for (file, is_trusted) in policies.chain(of_job) {
            for rule in &file.rules {
                let mut words = PolicyWords::of(Some(&file.file));
                for (field, text) in rule.in_words() {
                    words.add(&field, &text);
                }
                if let Some(is_trusted) = is_trusted {
                    words.add("trusted", if is_trusted { "yes" } else { "no" });
                }
                parts.insert(name_of(rule), words);
            }
        }
        for (part, _, names) in self.lists() {
            let words = parts.entry(part.to_owned()).or_default();
            for name in names {
                words.list(name);
            }
        }
        for (server, pack) in &self.packs.chosen {
            let words = parts.entry(format!("the pack of `{server}`")).or_default();
            words.add("pack", pack.map_or("none", Pack::id));
        }
        parts
    }

    /// The lists that somebody wrote, each with its label in the digest.
    fn lists(&self) -> [(&'static str, &'static str, BTreeSet<&String>); 4] {
        [
            ("side_effect_denylist", "denylist", self.denylist.texts().iter().collect()),
            ("read_only_allowlist", "allowlist", self.allowlist.texts().iter().collect()),
            ("the trusted servers", "trusted", self.trusted_servers.iter().collect()),
            ("the servers whose annotations count", "confirming", self.confirming_servers.iter().collect()),
        ]
    }

    /// Everything that decides, in its order.
    fn fields(&self) -> Vec<Field<'_>> {
        let mut fields = vec![
            Field::new(OF_THIS_PROGRAM, "algorithm", ALGORITHM),
            Field::new(OF_THIS_PROGRAM, "words", &TEXTS.words),
        ];
        let policies = self.user.iter().filter(|file| !file.is_of_tools);
        fields.extend(policies.flat_map(|file| &file.rules).map(|rule| Field::of_rule("rule", rule)));
        if SHIPPED_RULES.as_ref().is_ok_and(|shipped| Arc::ptr_eq(shipped, &self.shipped)) {
            fields.extend(TEXTS.rules.iter().map(|text| Field::new(OF_THIS_PROGRAM, "rule", text)));
        } else {
            fields.extend(self.shipped.rules.iter().map(|rule| Field::new(OF_THIS_PROGRAM, "rule", text_of(rule))));
        }
        for file in &self.job {
            let label = if file.is_trusted { "trusted job rule" } else { "job rule" };
            fields.extend(file.rules.rules.iter().map(|rule| Field::of_rule(label, rule)));
        }
        for (part, label, names) in self.lists() {
            fields.extend(names.into_iter().map(|name| Field::new(part, label, name)));
        }
        for (server, pack) in &self.packs.chosen {
            let part = format!("the pack of `{server}`");
            fields.push(Field::new(part.clone(), "pack of", server));
            fields.push(Field::new(part, "pack", pack.map_or("", Pack::id)));
        }
        if !self.packs.are_off {
            for (id, text) in &TEXTS.packs {
                fields.push(Field::new(PACKS, "pack", *id));
                fields.push(Field::new(PACKS, "text", text));
            }
        }
        fields
    }
}

/// What people call a rule that somebody wrote.
fn name_of(rule: &Rule) -> String {
    format!("rule `{}`", rule.id)
}

/// A rule as it is hashed.
fn text_of(rule: &Rule) -> String {
    // A rule is made of texts, numbers and enums, which serde_json always can write.
    serde_json::to_string(rule).unwrap_or_else(|_| format!("{rule:?}"))
}

fn digest(kind: &str, fields: &[Field<'_>]) -> Sha256 {
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
            // What is told of them differs as well.
            let (was, is) = (before.words_of_parts(), now.words_of_parts());
            for part in differ {
                assert_ne!(was.get(part), is.get(part), "{part}");
            }
        }
    }

    #[test]
    fn every_field_of_a_rule_is_said_as_its_file_says_it() {
        let rule = "[[rule]]\nid = \"a\"\npatterns = [\"post_*\"]\nserver = \"shop\"\nside_effect_class = \"external\"\n\
                    approval = \"ask\"\ntimeout = \"90s\"\nvolatile_fields = [\"at\"]\n";
        let file = PolicyRules::parse(rule, "/srv/p.toml").unwrap();
        let classifier = Classifier::new(vec![file], &Lists::default(), HashSet::new()).unwrap();
        let words = &classifier.words_of_parts()["rule `a`"];
        assert_eq!(words.file.as_deref(), Some("/srv/p.toml"));
        let said: Vec<(&str, &str)> = words.fields.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
        let wanted = [
            ("approval", "ask"),
            ("patterns", "[\"post_*\"]"),
            ("server", "shop"),
            ("side_effect_class", "external"),
            ("timeout", "90s"),
            ("volatile_fields", "[\"at\"]"),
        ];
        assert_eq!(said, wanted);
    }
}
