//! Policy files that come with a job: what they may say depends on whether a person trusted them.
//!
//! A job may be from anywhere, and so may its policies. A file that a person trusted as it is fills in what no rule of the user says. Any
//! other may only raise caution: over the built-in rules, over what names and servers say, and over the user's own rules. Whatever lowers a
//! class, lets a call be repeated, says that answers are clean, or changes by what a call is known, it may not say.
//! Invariant: with an untrusted file no decision is less careful than without it. Proved by: `tests/it/classify/job_policies.rs`.

use ua_core::{CallPolicy, OnScopeConflict, OnUnknown, Reads, ToolSpec};

use crate::classifier::Opinion;
use crate::rule::{PolicyRules, Settings};

/// The rules of a policy file that a job names.
#[derive(Debug, Clone)]
pub struct JobPolicy {
    /// What the file says.
    pub rules: PolicyRules,
    /// A person trusted the file as it is.
    pub is_trusted: bool,
}

/// How careful it is to do this with a call whose outcome is lost.
fn care_of(on_unknown: OnUnknown) -> u8 {
    match on_unknown {
        OnUnknown::Redo => 0,
        OnUnknown::RedoKeyed => 1,
        OnUnknown::Probe => 2,
        OnUnknown::Continue => 3,
        OnUnknown::Hold => 4,
    }
}

/// How careful it is to do this with a near-duplicate.
fn care_of_conflict(on_conflict: OnScopeConflict) -> u8 {
    match on_conflict {
        OnScopeConflict::Allow => 0,
        OnScopeConflict::Ask => 1,
        OnScopeConflict::Refuse => 2,
    }
}

impl Settings {
    /// What of this makes a decision more careful; where an earlier rule of the job said something, that one counts.
    fn raising(&self, base: &CallPolicy, earlier: &Self) -> Self {
        let on_unknown = self.on_unknown.filter(|said| matches!(said, OnUnknown::Hold | OnUnknown::Continue));
        let horizon = base.horizon.unwrap_or(CallPolicy::DEFAULT_HORIZON);
        let reads = self.reads.as_ref().filter(|_| earlier.reads.is_none());
        let more: Vec<Reads> =
            reads.into_iter().flatten().filter(|reads| !base.reads.contains(reads)).copied().collect();
        Self {
            side_effect_class: self
                .side_effect_class
                .filter(|class| earlier.side_effect_class.is_none() && *class > base.class),
            on_unknown: on_unknown
                .filter(|said| earlier.on_unknown.is_none() && care_of(*said) > care_of(base.on_unknown)),
            approval: self.approval.filter(|asks| earlier.approval.is_none() && *asks && !base.needs_approval),
            reads: (!more.is_empty()).then(|| base.reads.iter().copied().chain(more).collect()),
            on_scope_conflict: self.on_scope_conflict.filter(|said| {
                earlier.on_scope_conflict.is_none()
                    && care_of_conflict(*said) > care_of_conflict(base.on_scope_conflict)
            }),
            requires_idempotency_key: self.requires_idempotency_key.filter(|required| {
                earlier.requires_idempotency_key.is_none() && *required && !base.requires_idempotency_key
            }),
            horizon: self.horizon.filter(|said| earlier.horizon.is_none() && *said > horizon),
            ..Self::default()
        }
    }

    /// Notes what a rule said, so that no later one of the job is asked about it.
    fn absorb(&mut self, said: &Self) {
        self.side_effect_class = self.side_effect_class.or(said.side_effect_class);
        self.on_unknown = self.on_unknown.or(said.on_unknown);
        self.approval = self.approval.or(said.approval);
        self.reads = self.reads.take().or_else(|| said.reads.clone());
        self.on_scope_conflict = self.on_scope_conflict.or(said.on_scope_conflict);
        self.requires_idempotency_key = self.requires_idempotency_key.or(said.requires_idempotency_key);
        self.horizon = self.horizon.or(said.horizon);
    }

    /// The fields that raise something, as a policy file calls them.
    pub(crate) fn raised_fields(&self) -> Vec<&'static str> {
        let set = [
            ("side_effect_class", self.side_effect_class.is_some()),
            ("on_unknown", self.on_unknown.is_some()),
            ("approval", self.approval.is_some()),
            ("reads", self.reads.is_some()),
            ("on_scope_conflict", self.on_scope_conflict.is_some()),
            ("requires_idempotency_key", self.requires_idempotency_key.is_some()),
            ("horizon", self.horizon.is_some()),
        ];
        set.into_iter().filter(|(_, is_set)| *is_set).map(|(name, _)| name).collect()
    }
}

/// The opinions of a job's rules that raise the caution of a decision, trusted or not; empty when none does.
pub(crate) fn raising<'a>(job: &'a [JobPolicy], tool: &ToolSpec, base: &CallPolicy) -> Vec<Opinion<'a>> {
    let mut earlier = Settings::default();
    let mut raising = Vec::new();
    for file in job {
        for rule in file.rules.rules.iter().filter(|rule| rule.selector.matches(tool)) {
            let settings = rule.settings.raising(base, &earlier);
            earlier.absorb(&rule.settings);
            let fields = settings.raised_fields();
            if !fields.is_empty() {
                raising.push(Opinion::raising(rule, &file.rules.file, settings, &fields));
            }
        }
    }
    raising
}

/// Whether a call that was planned under `then` would be handled with more care under `now`, but for a person's approval: what would then be
/// recorded of it, or done when it is lost, is not what was planned.
pub fn is_more_careful(now: &CallPolicy, then: &CallPolicy) -> bool {
    let counts_otherwise = now.effect_kind.is_some() && now.effect_kind != then.effect_kind;
    let is_named_otherwise = !now.scope.0.is_empty() && now.scope != then.scope;
    let key_is_another = then.key_channel.is_some() && now.key_channel != then.key_channel;
    let key_ends_sooner = now.key_ttl.is_some_and(|now| then.key_ttl.is_none_or(|then| now < then));
    let believes_less = then.errors_without_effect.iter().any(|known| !now.errors_without_effect.contains(known));
    now.class > then.class
        || care_of(now.on_unknown) > care_of(then.on_unknown)
        || care_of_conflict(now.on_scope_conflict) > care_of_conflict(then.on_scope_conflict)
        || (now.requires_idempotency_key && !then.requires_idempotency_key)
        || counts_otherwise
        || is_named_otherwise
        || key_is_another
        || key_ends_sooner
        || believes_less
        || (then.only_is_error && !now.only_is_error)
        || now.horizon > then.horizon
        || now.sends_files.iter().any(|name| !then.sends_files.contains(name))
        || now.reads.iter().any(|reads| !then.reads.contains(reads))
}

/// What a word that may only raise caution would have taken away with it, because the higher class has other defaults and another rule
/// decided: each fact is as careful as in `base`, which was decided without that word.
pub(crate) fn keep_caution(policy: &mut CallPolicy, base: &CallPolicy) {
    let lower = base.raised_from.unwrap_or(base.class);
    policy.raised_from = Some(lower).filter(|lower| *lower < policy.class);
    policy.needs_approval |= base.needs_approval;
    if policy.effect_kind.is_none() {
        policy.effect_kind.clone_from(&base.effect_kind);
        if base.effect_kind.is_some() {
            policy.kind_is_guessed = base.kind_is_guessed;
            policy.makes_anew = base.makes_anew;
        } else {
            policy.kind_is_guessed |= base.kind_is_guessed;
            policy.makes_anew |= base.makes_anew;
        }
        policy.may_make |= base.may_make;
    }
    if care_of(base.on_unknown) > care_of(policy.on_unknown) {
        policy.on_unknown = base.on_unknown;
    }
    for reads in &base.reads {
        if !policy.reads.contains(reads) {
            policy.reads.push(*reads);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use ua_core::{EffectKind, KeyChannel, ScopeField, ScopeRule, SideEffectClass};

    use super::*;

    /// What is changed, whether that is stricter, and the change.
    type Changed = (&'static str, bool, fn(&mut CallPolicy));

    #[test]
    fn what_is_planned_is_planned_anew_for_what_is_more_careful_and_for_nothing_else() {
        let planned = CallPolicy {
            class: SideEffectClass::Memory,
            on_unknown: OnUnknown::RedoKeyed,
            key_channel: Some(KeyChannel::Meta),
            key_ttl: Some(Duration::from_hours(2)),
            errors_without_effect: vec!["refused".to_owned()],
            only_is_error: true,
            ..CallPolicy::unclassified()
        };
        let changes: [Changed; 17] = [
            ("as it was", false, |_| {}),
            ("class", true, |now| now.class = SideEffectClass::External),
            ("lower class", false, |now| now.class = SideEffectClass::Local),
            ("held", true, |now| now.on_unknown = OnUnknown::Hold),
            ("redone", false, |now| now.on_unknown = OnUnknown::Redo),
            ("no key", true, |now| now.key_channel = None),
            ("shorter key", true, |now| now.key_ttl = Some(Duration::from_hours(1))),
            ("longer key", false, |now| now.key_ttl = None),
            ("key needed", true, |now| now.requires_idempotency_key = true),
            ("believes no error", true, |now| now.errors_without_effect.clear()),
            ("reads results", true, |now| now.only_is_error = false),
            ("counted", true, |now| now.effect_kind = EffectKind::parse("email.send")),
            ("named", true, |now| now.scope = ScopeRule(vec![ScopeField::Value("to".to_owned())])),
            ("sends files", true, |now| now.sends_files.push("path".to_owned())),
            ("refused beside", true, |now| now.on_scope_conflict = OnScopeConflict::Refuse),
            ("horizon", true, |now| now.horizon = Some(Duration::from_secs(1))),
            ("approved", false, |now| now.needs_approval = true),
        ];
        for (what, expected, change) in changes {
            let mut now = planned.clone();
            change(&mut now);
            assert_eq!(is_more_careful(&now, &planned), expected, "{what}");
        }
    }
}
