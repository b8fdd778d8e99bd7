//! Weighing: what follows from all opinions about a tool, field by field.
//!
//! Invariants: the first opinion that names a class decides; each field comes from the strongest rule that sets it; what a rule says about
//! lost outcomes beside one class is never applied to another class; each fact about a tool (its class, what its answers bring in, whether a
//! person is asked, what happens to a lost call) is as careful as without the words that may only raise caution.

use std::time::Duration;

use serde_json::Value;
use ua_core::{
    CallPolicy, ClassSource, EffectKind, KeyChannel, OnUnknown, Reads, SideEffectClass, ToolNamespace, ToolSpec,
    arguments_tell,
};

use super::Classifier;
use super::misnamed;
use super::opinion::{Believed, Opinion};
use crate::job;
use crate::name::{leaves_open, made_by_kind, made_by_name, made_by_word, makes_named, moves_amount};
use crate::rule::{MarkerSetting, Settings};

/// All opinions, and what follows from them.
pub(super) struct Decision<'a> {
    pub(super) opinions: Vec<Opinion<'a>>,
    /// The opinion that decided the class.
    pub(super) winner: usize,
    pub(super) policy: CallPolicy,
    /// Per opinion, the fields of the policy that came from it.
    pub(super) used: Vec<Vec<&'static str>>,
    /// Programs that make a call with an `argv` read-only, and the opinion that says so.
    pub(super) harmless: Option<(usize, Vec<String>)>,
}

/// The tool of ours that starts programs.
const OWN_SHELL: &str = "run_command";

impl Classifier {
    pub(super) fn decide<'a>(&'a self, tool: &ToolSpec) -> Decision<'a> {
        let without = self.decide_without_job(tool);
        let mut opinions = job::raising(&self.job, tool, &without.policy);
        if opinions.is_empty() {
            return without;
        }
        let raised_by: Vec<String> = opinions.iter().map(|opinion| opinion.note.clone()).collect();
        opinions.extend(without.opinions);
        let mut decision = self.weigh(tool, opinions);
        job::keep_caution(&mut decision.policy, &without.policy);
        if decision.winner >= raised_by.len() {
            decision.policy.reason = format!("{}; {}", decision.policy.reason, raised_by.join("; "));
        }
        decision
    }

    /// What the user, the lists, the shipped rules, the server and the name say. What only raises caution is heard last, over what was decided
    /// without it: a higher class brings other defaults with it, and some of these are less careful than those of the lower one.
    fn decide_without_job<'a>(&'a self, tool: &ToolSpec) -> Decision<'a> {
        let opinions = self.opinions(tool);
        if !opinions.iter().any(Opinion::raises) {
            return self.weigh(tool, opinions);
        }
        let mut decision = self.weigh(tool, opinions);
        let mut unraised = self.opinions(tool);
        for opinion in unraised.iter_mut().filter(|opinion| opinion.only_raises) {
            (opinion.class, opinion.settings) = (None, None);
        }
        job::keep_caution(&mut decision.policy, &self.weigh(tool, unraised).policy);
        decision
    }

    fn weigh<'a>(&'a self, tool: &ToolSpec, opinions: Vec<Opinion<'a>>) -> Decision<'a> {
        // The last opinion, the default, always has a class.
        let winner = opinions.iter().position(|opinion| opinion.class.is_some()).unwrap_or(opinions.len() - 1);
        let decided = &opinions[winner];
        let class = decided.class.unwrap_or(SideEffectClass::External);
        let is_idempotent =
            self.trusted_servers.contains(&tool.name.server) && tool.annotations.idempotent == Some(true);

        let mut picker = Picker { opinions: &opinions, used: vec![Vec::new(); opinions.len()] };
        let mut policy = CallPolicy {
            class,
            key_channel: picker.first("key_channel", |settings| settings.key_channel.clone()),
            key_ttl: picker.first("key_ttl", |settings| settings.key_ttl),
            volatile_fields: picker
                .first("volatile_fields", |settings| settings.volatile_fields.clone())
                .unwrap_or_default(),
            timeout: picker.first("timeout", |settings| settings.timeout),
            needs_approval: picker.first("approval", |settings| settings.approval).unwrap_or_default(),
            reads: picker.first("reads", |settings| settings.reads.clone()).unwrap_or_else(|| reads_of(tool)),
            composite: picker.first("composite", |settings| settings.composite.clone()).map(Box::new),
            rule_id: decided.rule_id.clone(),
            class_source: decided.source,
            reason: decided.note.clone(),
            ..CallPolicy::unclassified()
        };
        if let Some(KeyChannel::Argument(name)) = &policy.key_channel
            && !policy.volatile_fields.contains(name)
        {
            // The key is computed over the arguments, so it cannot be one of them.
            policy.volatile_fields.push(name.clone());
        }
        if class.has_effect() {
            let required = picker.first("requires_idempotency_key", |settings| settings.requires_idempotency_key);
            policy.requires_idempotency_key = required.unwrap_or_default();
            policy.effect_kind = picker.first("effect_kind", |settings| settings.effect_kind.clone());
            if let Some(kind) = &policy.effect_kind {
                // A word about what it is called takes nothing away that its name says, unless it says that nothing is made.
                let says = picker.first("creates", |settings| settings.creates);
                let is_foreign = class == SideEffectClass::External && !tool.name.is_built_in();
                let makes = made_by_name(&tool.name).is_some() || makes_named(&tool.name) || made_by_kind(kind);
                let by_name = says.is_none() && is_foreign && makes;
                policy.makes_anew = !kind.is_creating() && (says == Some(true) || by_name);
                policy.kind_is_guessed = policy.makes_anew && by_name;
            } else {
                let is_believed = self.believed(&tool.name.server) != Believed::Untrusted;
                policy.effect_kind = picker.made(tool, class, decided.source, is_believed);
                policy.makes_anew =
                    policy.effect_kind.is_none() && picker.makes_named(tool, class, decided.source, is_believed);
                policy.kind_is_guessed = policy.effect_kind.is_some() || policy.makes_anew;
                policy.may_make = policy.effect_kind.is_none()
                    && class == SideEffectClass::External
                    && decided.source == ClassSource::Name
                    && leaves_open(&tool.name);
            }
            // What it carries may be anything.
            let carries = picker.first("carries_tools", |settings| settings.carries_tools) == Some(true);
            let is_shell = self.commands_reach_out && tool.name.is_built_in() && tool.name.tool == OWN_SHELL;
            policy.may_make |= carries || is_shell || (policy.effect_kind.is_none() && policy.composite.is_some());
            policy.scope = picker.first("scope", |settings| settings.scope.clone()).unwrap_or_default();
            policy.sends_files =
                picker.first("sends_files", |settings| settings.sends_files.clone()).unwrap_or_default();
            let proofs = picker.first("errors_without_effect", |settings| settings.errors_without_effect.clone());
            policy.errors_without_effect = proofs.unwrap_or_default();
            policy.only_is_error = picker.first("only_is_error", |settings| settings.only_is_error).unwrap_or_default();
            policy.probe = picker.first("probe", |settings| settings.probe.clone());
            policy.marker = match picker.first("marker", |settings| settings.marker.clone()) {
                Some(MarkerSetting::Mark(marker)) => Some(marker),
                Some(MarkerSetting::Nothing) | None => None,
            };
            policy.found_by = picker.first("found_by", |settings| settings.found_by.clone()).unwrap_or_default();
            policy.horizon = picker.first("horizon", |settings| settings.horizon);
            if let Some(on_conflict) = picker.first("on_scope_conflict", |settings| settings.on_scope_conflict) {
                policy.on_scope_conflict = on_conflict;
            }
        }
        let lost_its_way = misnamed::believed(tool, &mut policy, &self.over_pipes);
        // Beside a class, `on_unknown` was written about that class: shipped `redo` is no licence for a tool that the
        // user calls external.
        let said = picker.first("on_unknown", |settings| {
            settings.on_unknown.filter(|_| settings.side_effect_class.is_none_or(|its| its == class))
        });
        policy.on_unknown = said.unwrap_or_else(|| default_on_unknown(class, &policy, is_idempotent));
        let needs_it = match policy.on_unknown {
            OnUnknown::RedoKeyed => policy.key_channel.is_none(),
            OnUnknown::Probe => policy.probe.is_none(),
            OnUnknown::Hold | OnUnknown::Redo | OnUnknown::Continue => false,
        };
        if lost_its_way && needs_it {
            policy.on_unknown = OnUnknown::Hold;
        }
        Self::take_back(tool, &opinions, &mut policy);
        Self::watch_fetches(tool, &opinions, &mut policy);
        // A list of harmless programs lowers the class, so it counts only from the deciding rule or a stronger one.
        let harmless = opinions[..=winner].iter().enumerate().find_map(|(index, opinion)| {
            let programs = opinion.settings.as_ref().and_then(|settings| settings.harmless_programs.clone());
            programs.map(|programs| (index, programs))
        });
        let mut used = picker.used;
        if let Some((index, _)) = &harmless {
            used[*index].push("harmless_programs");
        }
        Decision { opinions, winner, policy, used, harmless }
    }

    /// Has a tool that says it fetches bring in words of others, whatever rule forgot to say so: reads of such a tool are a way out, too. A
    /// user's own word stands.
    fn watch_fetches(tool: &ToolSpec, opinions: &[Opinion<'_>], policy: &mut CallPolicy) {
        let says_user = |opinion: &Opinion<'_>| {
            opinion.source == ClassSource::UserPolicy
                && opinion.settings.as_ref().is_some_and(|settings| settings.reads.is_some())
        };
        let is_forgotten = tool.annotations.fetches == Some(true) && !policy.reads.contains(&Reads::Untrusted);
        if is_forgotten && !opinions.iter().any(says_user) {
            policy.reads.push(Reads::Untrusted);
        }
    }

    /// Takes back what a tool of our own server says it cannot promise: its transports differ, and only it knows which one it
    /// was given. An external tool that honours no keys is held when in doubt; a time to live caps ours. A
    /// user's own word stands.
    fn take_back(tool: &ToolSpec, opinions: &[Opinion<'_>], policy: &mut CallPolicy) {
        let says_user = |opinion: &Opinion<'_>| {
            matches!(opinion.source, ClassSource::UserPolicy | ClassSource::JobPolicy)
                && opinion.settings.as_ref().is_some_and(|settings| settings.on_unknown.is_some())
        };
        if policy.on_unknown != OnUnknown::RedoKeyed || opinions.iter().any(says_user) {
            return;
        }
        let is_own = tool.name.namespace == ToolNamespace::Local && policy.class == SideEffectClass::External;
        if is_own && tool.annotations.honours_keys == Some(false) {
            policy.on_unknown = OnUnknown::Hold;
            policy.reason =
                format!("{}; the way it is set up cannot honour a key, so a lost call is held", policy.reason);
        }
        if let Some(seconds) = tool.annotations.key_ttl_seconds {
            let said = Duration::from_secs(seconds);
            policy.key_ttl = Some(policy.key_ttl.map_or(said, |ours| ours.min(said)));
        }
    }
}

/// Takes each field from the strongest rule that sets it, and remembers which one that was.
struct Picker<'a> {
    opinions: &'a [Opinion<'a>],
    used: Vec<Vec<&'static str>>,
}

impl Picker<'_> {
    fn first<T>(&mut self, field: &'static str, get: impl Fn(&Settings) -> Option<T>) -> Option<T> {
        let mut set = self.opinions.iter().enumerate();
        let (index, value) = set.find_map(|(index, opinion)| Some((index, get(opinion.settings.as_deref()?)?)))?;
        self.used[index].push(field);
        Some(value)
    }

    /// What a call makes when no rule names its kind: by a rule's `creates`, else by the tool's name, or, where that leaves it open, by
    /// the word of a server that is believed (it only adds, and a repeat adds again), unless a rule decided the class and so knows the tool
    /// better than its name does.
    fn made(
        &mut self,
        tool: &ToolSpec,
        class: SideEffectClass,
        decided_by: ClassSource,
        is_believed: bool,
    ) -> Option<EffectKind> {
        if let Some(creates) = self.first("creates", |settings| settings.creates) {
            return if creates { made_by_word(&tool.name) } else { None };
        }
        if !is_for_its_name(tool, class, decided_by) {
            return None;
        }
        let hints = &tool.annotations;
        let adds = hints.destructive == Some(false) && hints.idempotent == Some(false) && hints.read_only != Some(true);
        let leaves_it_open = leaves_open(&tool.name) && made_by_name(&tool.name).is_none();
        if let Some(kind) = made_by_word(&tool.name).filter(|_| is_believed && adds && leaves_it_open) {
            if let Some(said) = self.opinions.iter().position(|opinion| opinion.source == ClassSource::Annotation) {
                self.used[said].push("effect_kind");
            }
            return Some(kind);
        }
        let kind = made_by_name(&tool.name)?;
        self.note_name();
        Some(kind)
    }

    /// Whether the tool makes a thing, or moves money, of which only its server knows if a second one is one more, as far as anybody says: no
    /// rule does, and a server that is believed does not say that a repeat changes nothing.
    fn makes_named(
        &mut self,
        tool: &ToolSpec,
        class: SideEffectClass,
        decided_by: ClassSource,
        is_believed: bool,
    ) -> bool {
        let says =
            self.opinions.iter().any(|opinion| opinion.settings.as_ref().is_some_and(|own| own.creates.is_some()));
        let is_same = is_believed && tool.annotations.idempotent == Some(true);
        let schema = &tool.input_schema;
        let fields = || schema.get("properties").and_then(Value::as_object).into_iter().flatten();
        let by_name = || {
            makes_named(&tool.name)
                || moves_amount(&tool.name, schema)
                || arguments_tell(fields().map(|(name, _)| name.as_str()))
        };
        let makes = !says && !is_same && is_for_its_name(tool, class, decided_by) && by_name();
        if makes {
            self.note_name();
        }
        makes
    }

    /// Notes that the name says what a call makes.
    fn note_name(&mut self) {
        if let Some(name) = self.opinions.iter().position(|opinion| opinion.source == ClassSource::Name) {
            self.used[name].push("effect_kind");
        }
    }
}

/// Whether what a call makes is for the tool's name to say: no rule decided its class, and so knows the tool better than its name does.
fn is_for_its_name(tool: &ToolSpec, class: SideEffectClass, decided_by: ClassSource) -> bool {
    let is_guess =
        matches!(decided_by, ClassSource::List | ClassSource::Annotation | ClassSource::Name | ClassSource::Default);
    is_guess && class == SideEffectClass::External && !tool.name.is_built_in()
}

/// What happens to a lost call when no rule says it.
fn default_on_unknown(class: SideEffectClass, policy: &CallPolicy, is_idempotent: bool) -> OnUnknown {
    let has_key = policy.key_channel.is_some();
    match class {
        SideEffectClass::ReadOnly => OnUnknown::Redo,
        SideEffectClass::Local if is_idempotent => OnUnknown::Redo,
        SideEffectClass::Local | SideEffectClass::Memory | SideEffectClass::External if policy.probe.is_some() => {
            OnUnknown::Probe
        }
        SideEffectClass::Memory | SideEffectClass::External if has_key => OnUnknown::RedoKeyed,
        SideEffectClass::Local | SideEffectClass::Memory | SideEffectClass::External => OnUnknown::Hold,
    }
}

/// What a tool brings in when no rule says it: whatever one of others answers, others wrote. Its class says what it does, and not what it
/// answers: a browser that goes to a page is an effect, and shows the page.
fn reads_of(tool: &ToolSpec) -> Vec<Reads> {
    let is_foreign = !tool.name.is_built_in();
    if is_foreign { vec![Reads::Untrusted] } else { Vec::new() }
}
