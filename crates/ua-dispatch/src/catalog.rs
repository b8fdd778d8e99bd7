//! The tools of a step: pinned when the step begins, offered to the model, looked up when it asks for one.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock, PoisonError, RwLock};

use serde_json::Value;
use ua_classify::{Classifier, declared_keys, without_argument, without_key_argument};
use ua_core::{Audience, CallPolicy, KeyChannel, Makes, Sha256, Shared, ToolPin, ToolSpec};

use crate::enforce::{self, enforced};
use crate::error::DispatchError;
use crate::guardrail::Rules;
use crate::names::{plain, tail};
use crate::schema::{Checker, Unusable};

/// A tool as a model sees it.
#[derive(Debug, Clone, PartialEq)]
pub struct Offer {
    /// The qualified name.
    pub name: String,
    /// What it does.
    pub description: String,
    /// JSON Schema of its arguments, without the argument that carries the key.
    pub input_schema: Value,
}

pub(crate) struct Entry {
    pub(crate) spec: ToolSpec,
    pub(crate) digest: Sha256,
    pub(crate) pin: ToolPin,
    pub(crate) offer: Offer,
    /// What checks arguments, made when the first call is planned; `None` when the schema cannot be used for that.
    checker: OnceLock<Option<Checker>>,
    pub(crate) denied: Option<String>,
    /// The policy of the tool as it is offered, before the job bends it.
    offered_policy: CallPolicy,
    /// What the classifier says of its calls, as far as that does not depend on their arguments; asked when the first one is planned.
    pub(crate) classified: OnceLock<CallPolicy>,
    /// The policy of its calls, as the job bends that.
    pub(crate) policy: OnceLock<Shared<CallPolicy>>,
}

impl Entry {
    /// What checks the arguments of a call, if the tool's schema can.
    fn checker(&self) -> Option<&Checker> {
        let made = || match Checker::of_tool(&self.offer.input_schema) {
            Ok(checker) => Some(checker),
            Err(why) => {
                let why = match why {
                    Unusable::Costly(why) => format!("it {why}"),
                    Unusable::Invalid(_) => "it is not a valid JSON Schema".to_owned(),
                };
                tracing::warn!(
                    tool = self.offer.name,
                    "the schema of the tool `{}` cannot be used for checks: {why}; its arguments are passed on unchecked",
                    self.offer.name
                );
                None
            }
        };
        self.checker.get_or_init(made).as_ref()
    }

    /// In what arguments do not fit the tool's schema; `None` where they do, and where that cannot be told within the bounds of a check: the
    /// server looks at them itself.
    pub(crate) fn violations(&self, arguments: &Value) -> Option<String> {
        self.checker()?.violations(arguments).unwrap_or_else(|why| {
            let tool = &self.offer.name;
            tracing::warn!(tool, "arguments of `{tool}` are passed on unchecked: {why}");
            None
        })
    }
}

/// The tools of a step.
pub struct Catalog {
    entries: BTreeMap<String, Entry>,
    /// The tools of the step; everything that is allowed while no step pinned any.
    pinned: RwLock<Option<Arc<BTreeSet<String>>>>,
    /// Whom what is said about tools speaks to.
    pub(crate) audience: Audience,
}

impl Catalog {
    /// Classifies and checks every tool. Fails when a tool could not keep what is asked of it.
    pub fn new(specs: Vec<ToolSpec>, classifier: &Classifier, rules: &Rules) -> Result<Self, DispatchError> {
        let (catalog, problems) = Self::gathered(specs, classifier, rules);
        problems.into_iter().next().map_or(Ok(catalog), Err)
    }

    /// Everything for which [`Self::new`] would fail.
    pub fn problems(specs: Vec<ToolSpec>, classifier: &Classifier, rules: &Rules) -> Vec<DispatchError> {
        Self::gathered(specs, classifier, rules).1
    }

    fn gathered(specs: Vec<ToolSpec>, classifier: &Classifier, rules: &Rules) -> (Self, Vec<DispatchError>) {
        let (mut entries, mut problems) = (BTreeMap::new(), Vec::new());
        for spec in specs {
            let raw = spec.name.raw.clone();
            let policy = enforced(classifier.classify(&spec, None), rules.enforces_keys());
            let denied = rules.denies(&spec.name, &policy);
            if denied.is_none() {
                problems.extend(enforce::check(&spec, &policy, rules.audience()).err());
            }
            let shown = match &policy.key_channel {
                Some(channel) => without_key_argument(&spec.input_schema, channel),
                None => spec.input_schema.clone(),
            };
            let made_up = made_up_keys(&policy, &spec.input_schema);
            let input_schema = made_up.iter().fold(shown, |shown, name| without_argument(&shown, name));
            let offer = Offer { name: raw.clone(), description: spec.description.clone(), input_schema };
            let pin = ToolPin::of(&spec, policy.class).declaring(classifier.declared_by(&spec));
            let entry = Entry {
                digest: spec.digest(),
                pin,
                denied,
                offer,
                checker: OnceLock::new(),
                spec,
                offered_policy: policy,
                classified: OnceLock::new(),
                policy: OnceLock::new(),
            };
            if entries.insert(raw.clone(), entry).is_some() {
                problems.push(DispatchError::Configuration {
                    tool: raw,
                    why: "two servers offer a tool of this name; rename one of them".to_owned(),
                });
            }
        }
        let catalog = Self { entries, pinned: RwLock::new(None), audience: rules.audience() };
        problems.extend(catalog.probe_problems(classifier));
        (catalog, problems)
    }

    /// The offered tools that have an effect by what was declared, and those that nobody declared and that may have it.
    pub fn makers_of(&self, effect: &str) -> (Vec<String>, Vec<String>) {
        let offered = || self.entries.values().filter(|entry| entry.denied.is_none());
        let that = |wanted: Makes| {
            let makes = |entry: &&Entry| entry.offered_policy.makes(&entry.spec.name.tool, effect) == wanted;
            let seems = |entry: &&Entry| entry.offered_policy.seems_to_make(&entry.spec.name.tool, effect);
            // A person who reads on no further has read of those that look like it.
            let (likely, others): (Vec<&Entry>, Vec<&Entry>) = offered().filter(makes).partition(seems);
            likely.into_iter().chain(others).map(|entry| entry.offer.name.clone()).collect()
        };
        (that(Makes::Declared), that(Makes::Perhaps))
    }

    /// The tools that the model is offered, by name.
    pub fn offers(&self) -> impl Iterator<Item = &Offer> {
        let pinned = self.pinned();
        self.entries
            .values()
            .filter(move |entry| entry.denied.is_none() && is_pinned(pinned.as_deref(), &entry.offer.name))
            .map(|entry| &entry.offer)
    }

    pub(crate) fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.entries.values()
    }

    /// Pins the tools of a step: others are neither offered nor found by name, as if their servers did not have them.
    pub fn pin(&self, names: BTreeSet<String>) {
        *self.pinned.write().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(names));
    }

    /// What every tool that may be offered is now, whether or not it is pinned.
    pub fn tool_pins(&self) -> BTreeMap<String, ToolPin> {
        let allowed = self.entries.iter().filter(|(_, entry)| entry.denied.is_none());
        allowed.map(|(name, entry)| (name.clone(), entry.pin.clone())).collect()
    }

    /// The digest of each tool's definition as it is now, by qualified name.
    pub(crate) fn definitions(&self) -> BTreeMap<String, Sha256> {
        self.entries.iter().map(|(name, entry)| (name.clone(), entry.digest)).collect()
    }

    fn pinned(&self) -> Option<Arc<BTreeSet<String>>> {
        self.pinned.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// A tool by its exact name. One that is denied is found, so that a refusal can say why.
    pub(crate) fn get(&self, raw: &str) -> Option<&Entry> {
        self.entries.get(raw).filter(|entry| entry.denied.is_some() || is_pinned(self.pinned().as_deref(), raw))
    }

    /// Offered names that a model may have meant by `raw`: the same bare name, else the most similar one.
    pub(crate) fn similar(&self, raw: &str) -> Vec<&str> {
        let bare = raw.rsplit("__").next().unwrap_or(raw).trim();
        let is_same = |name: &str| self.entries.get(name).is_some_and(|entry| entry.spec.name.tool == bare);
        let same: Vec<&str> = self.offers().map(|offer| offer.name.as_str()).filter(|name| is_same(name)).collect();
        if !same.is_empty() {
            return same;
        }
        // Other letters' case, other separators, another server in front.
        let typed = bare;
        let (bare, whole) = (plain(bare), plain(raw));
        let spelt = |name: &&str| {
            let is_tool = self.entries.get(*name).is_some_and(|entry| plain(&entry.spec.name.tool) == bare);
            is_tool || plain(name) == whole
        };
        let spelt: Vec<&str> = self.offers().map(|offer| offer.name.as_str()).filter(spelt).collect();
        if !spelt.is_empty() {
            return spelt;
        }
        // What stands in front of every name is no likeness.
        let likeness = |name: &str| strsim::jaro_winkler(typed, name.rsplit("__").next().unwrap_or(name));
        let mut scored: Vec<(f64, &str)> =
            self.offers().map(|offer| (likeness(&offer.name), offer.name.as_str())).collect();
        scored.sort_by(|a, b| b.0.total_cmp(&a.0));
        scored.into_iter().take(2).filter(|(score, _)| *score > 0.8).map(|(_, name)| name).collect()
    }
}

impl Catalog {
    /// The offered tool that a name means into which something else ran, and what that is: the longest whose name it begins with,
    /// else the most similar one.
    pub(crate) fn meant_by<'a>(&'a self, base: &'a str) -> Option<(&'a str, &'a str)> {
        let bare = base.rsplit("__").next().unwrap_or(base);
        let begun = self.offers().filter_map(|offer| {
            let tool = &self.entries.get(&offer.name)?.spec.name.tool;
            Some((tool.len(), offer.name.as_str(), tail(bare, tool)?))
        });
        let longest = begun.max_by_key(|(length, ..)| *length).map(|(_, name, ran_in)| (name, ran_in));
        longest.or_else(|| self.similar(base).first().map(|name| (*name, "")))
    }
}

fn is_pinned(pinned: Option<&BTreeSet<String>>, name: &str) -> bool {
    pinned.is_none_or(|names| names.contains(name))
}

/// Arguments that the schema declares as a key beside the one that is ours to set. Where nothing says that a call has a key, by
/// channel or by content, and where the tool insists on one, they are the model's to fill in.
pub(crate) fn made_up_keys(policy: &CallPolicy, schema: &Value) -> Vec<String> {
    if policy.key_channel.is_none() && !policy.requires_idempotency_key && !policy.is_by_content() {
        return Vec::new();
    }
    let ours = |name: &String| matches!(&policy.key_channel, Some(KeyChannel::Argument(own)) if own == name);
    let required = schema.get("required").and_then(Value::as_array);
    let is_required = |name: &String| required.is_some_and(|names| names.iter().any(|n| n.as_str() == Some(name)));
    declared_keys(schema).into_iter().filter(|name| !ours(name) && !is_required(name)).collect()
}
