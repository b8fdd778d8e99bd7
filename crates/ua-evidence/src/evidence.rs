//! Whether a job reached what it was to reach, judged by receipts and files alone.
//!
//! Spec: Durable Jobs v1 spec §6 (`stop_conditions`, `expected_outputs`); Durability Architecture, "Evidence Summary": never
//! from model text; Context Storage & Durability §6: receipts count, not files that claim something was sent.
//! Invariants: an effect counts once per call that succeeded by a settled receipt of its own; a failed, lost or deduplicated
//! call adds nothing; a file counts unless it is empty, by its digest where it could be read, and by its first bytes where those can show its media
//! type. One that is there is never said to be missing.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use ua_core::{Audience, CallId, EvidenceLevel, Makes, PhaseSpec, RunId, RunSpec, Sha256, StopCondition};
use ua_store::{CallRecord, ReceiptRecord, RunRecords};

use crate::artifact::{Artifact, Unread};
use crate::call_line::{external_id, own_success};
use crate::quote::{code, line};
use crate::verdict::Verdict;

/// What proves that a condition holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum EvidenceKind {
    /// A call's own receipt.
    Receipt,
    /// A file of the workspace.
    Artifact,
}

/// One piece of evidence.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct EvidenceRef {
    /// What it is.
    pub kind: EvidenceKind,
    /// The call's id, or the file's path.
    pub id: String,
    /// For a receipt, how well it is vouched for.
    pub level: Option<EvidenceLevel>,
    /// For a file, the digest of its contents; `None` where it is too large to be read.
    pub sha256: Option<Sha256>,
    /// For a receipt, the other side's name for what happened.
    pub external_id: Option<String>,
}

/// One condition and what was found for it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ConditionResult {
    /// The condition as the job names it.
    pub condition: String,
    /// The phase whose condition it is; `None` for the run's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<String>,
    /// Whether it holds.
    pub met: bool,
    /// What it asks for, in words.
    pub needed: String,
    /// How many effects or files were found.
    pub found: u32,
    /// The effect, where the job allows no more of it than happened.
    #[serde(skip)]
    pub used_up: Option<String>,
    /// What was found.
    pub evidence: Vec<EvidenceRef>,
    /// When it does not hold: what is wrong, for whoever reads it.
    pub missing: Option<String>,
    /// What the model is to do about that, which nobody else is told.
    #[serde(skip)]
    pub to_do: Option<String>,
    /// Whether what is missing is for a person to say, and no work for the model.
    #[serde(skip)]
    pub for_a_person: bool,
    /// Calls that succeeded, or may have, and may have been it, which nobody declared: those of which a person may say so, no more than are missing.
    #[serde(skip)]
    pub undeclared: Vec<Undeclared>,
    /// How many calls there are that may have been it and that nobody declared.
    #[serde(skip)]
    pub perhaps: usize,
    /// Calls that may have happened, and of which no receipt says so.
    #[serde(skip)]
    pub in_doubt: Vec<InDoubt>,
    /// How often it has to happen still.
    #[serde(skip)]
    pub lacks: u32,
}

/// A call that may have happened, as a person is shown it who is to say whether it did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InDoubt {
    /// The call.
    pub call_id: CallId,
    /// Its run.
    run: RunId,
    /// Its tool, when it was made, and why nobody knows.
    shown: String,
    /// Its run has not decided about it yet, and nobody decides for it.
    is_open_there: bool,
}

impl InDoubt {
    fn of(call: &CallRecord) -> Self {
        let error = call.error_in_words().or(call.error_code.clone()).unwrap_or_default();
        let error = if error.trim().is_empty() { String::new() } else { format!(": {}", line(&error, 200)) };
        let (tool, turn) = (code(&call.name.raw, 100), call.position.turn);
        let (status, at) = (crate::call_in_words(call), call.updated_at);
        let shown = format!("{tool}, turn {turn}, {status} at {at}{error}");
        Self { call_id: call.call_id.clone(), run: call.run_id.clone(), shown, is_open_there: false }
    }

    /// The call in a line, and how its record is put right.
    fn for_person(&self, audience: Audience) -> String {
        let (id, run) = (&self.call_id, &self.run);
        if self.is_open_there {
            let record = audience.pick(
                format!(
                    ", or, while nobody drives that run, record it: `ua calls resolve {id} --as happened --reason TEXT`, or `--as \
                     not_happened`"
                ),
                String::new(),
            );
            return format!(
                "  {id} of run {run} ({})\n  That run has not decided about it yet: look whether it did, and answer that run's question about \
                 it{record}",
                self.shown
            );
        }
        let record = audience.pick(
            format!(", then record it: `ua calls resolve {id} --as happened --reason TEXT`, or `--as not_happened`"),
            " before you answer".to_owned(),
        );
        format!("  {id} ({})\n  Look whether it did{record}", self.shown)
    }
}

/// A call that succeeded, and an effect that it may have been.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Undeclared {
    /// The call.
    pub call_id: CallId,
    /// The kind of effect.
    pub effect: String,
}

impl ConditionResult {
    /// The calls that succeeded, of which a person may say that they were it.
    fn settled(&self) -> impl Iterator<Item = &Undeclared> {
        let is_settled = |call: &&Undeclared| !self.in_doubt.iter().any(|one| one.call_id == call.call_id);
        self.undeclared.iter().filter(is_settled)
    }

    /// What is asked for, and what is wrong with it.
    fn shortcoming(&self) -> String {
        format!("{}: {}", line(&self.needed, 300), self.missing.as_deref().unwrap_or("not met"))
    }
}

/// What is wrong, and what the model is to do about it.
type Shortcoming = (String, String);

/// All conditions of a job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct EvidenceReport {
    /// The stop conditions, then the expected outputs, in the order of the job.
    pub conditions: Vec<ConditionResult>,
    /// Whether every one of them holds; a job without conditions has nothing to miss.
    pub all_met: bool,
    /// Whom it speaks to.
    #[serde(skip)]
    pub audience: Audience,
}

/// Whose conditions are judged.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct EvidenceScope<'a> {
    phase: Option<&'a PhaseSpec>,
    /// Those of the job besides.
    run: bool,
    /// Whom what is missing is said to.
    audience: Audience,
}

impl<'a> EvidenceScope<'a> {
    /// What has to hold before the phase of this name is over: its own conditions, and with the last phase those of the job. A name
    /// that is no phase's means the job's.
    pub fn at_end_of(spec: &'a RunSpec, phase: &str) -> Self {
        let run = spec.phases_after(phase).is_empty();
        Self { phase: spec.phase(phase).map(|(_, phase)| phase), run, audience: Audience::default() }
    }

    /// The same, and what is missing is said to this audience.
    #[must_use]
    pub(crate) fn speaking_to(self, audience: Audience) -> Self {
        Self { audience, ..self }
    }

    /// Whether the conditions of the job count, and not only those of a phase.
    pub fn is_of_job(self) -> bool {
        self.run
    }

    /// What the run has to reach from where it stands: the conditions of its phase and those of the job.
    pub fn of(records: &'a RunRecords) -> Self {
        let current = records.current_step().map(|step| step.phase.as_str());
        Self { run: true, ..Self::at_end_of(&records.run.spec, current.unwrap_or_default()) }
    }
}

/// Judges the conditions in `scope` of the contract `spec`; `unread` are files that are there besides the `artifacts`, and the other arguments are
/// those of [`evaluate`].
pub fn evaluate_scope(
    spec: &RunSpec,
    scope: EvidenceScope<'_>,
    calls: &[CallRecord],
    receipts: &[ReceiptRecord],
    artifacts: &[Artifact],
    unread: &[Unread],
    media: &dyn Fn(&str) -> Option<String>,
) -> EvidenceReport {
    let found = Evidence { calls, receipts, artifacts, unread, media, audience: scope.audience };
    let mut conditions = Vec::new();
    if let Some(phase) = scope.phase {
        conditions.extend(found.judge(&phase.stop_conditions, &phase.expected_outputs));
        for condition in &mut conditions {
            condition.phase = Some(phase.name.clone());
        }
    }
    if scope.run {
        conditions.extend(found.judge(&spec.stop_conditions, &spec.artifacts.expected_outputs));
    }
    found.report(conditions)
}

/// Judges a job's stop conditions and expected outputs.
///
/// `calls` are the run's own, `artifacts` the files of its workspace. `media` says which media type the first bytes of the
/// file at a path show, `None` when they show none. A file that the runner itself writes at the end (`transcript.md`) counts
/// once the caller lists it among the artifacts.
pub fn evaluate(
    spec: &RunSpec,
    calls: &[CallRecord],
    receipts: &[ReceiptRecord],
    artifacts: &[Artifact],
    media: &dyn Fn(&str) -> Option<String>,
) -> EvidenceReport {
    let found = Evidence { calls, receipts, artifacts, unread: &[], media, audience: Audience::default() };
    found.report(found.judge(&spec.stop_conditions, &spec.artifacts.expected_outputs))
}

/// What there is to judge by.
struct Evidence<'a> {
    calls: &'a [CallRecord],
    receipts: &'a [ReceiptRecord],
    artifacts: &'a [Artifact],
    unread: &'a [Unread],
    media: &'a dyn Fn(&str) -> Option<String>,
    audience: Audience,
}

/// A file that is there.
#[derive(Clone, Copy)]
struct There<'a> {
    path: &'a str,
    bytes: u64,
    sha256: Option<Sha256>,
}

impl<'a> Evidence<'a> {
    fn files(&self) -> impl Iterator<Item = There<'a>> + use<'a> {
        let read = self.artifacts.iter();
        let read = read.map(|file| There { path: &file.path, bytes: file.bytes, sha256: Some(file.sha256) });
        read.chain(self.unread.iter().map(|file| There { path: &file.path, bytes: file.bytes, sha256: None }))
    }

    /// The stop conditions, then the expected outputs.
    fn judge(&self, conditions: &[StopCondition], outputs: &[String]) -> Vec<ConditionResult> {
        let conditions = conditions.iter().map(|condition| match condition.expanded() {
            StopCondition::Effect { effect, count, max } => {
                effect_result(condition, &DeclaredEffect { effect, count, max }, self)
            }
            StopCondition::Artifact { artifact, media_type } => {
                let found = self.files().find(|file| file.path == plain(&artifact));
                file_result(condition, found, &artifact, media_type.as_deref(), self.media)
            }
            StopCondition::Named(name) => ConditionResult {
                condition: name.clone(),
                phase: None,
                met: false,
                needed: format!("one of {}", StopCondition::NAMES.join(", ")),
                found: 0,
                used_up: None,
                evidence: Vec::new(),
                missing: Some("this condition is not known, so it cannot be met".to_owned()),
                to_do: Some("end your reply and say so".to_owned()),
                for_a_person: false,
                undeclared: Vec::new(),
                perhaps: 0,
                in_doubt: Vec::new(),
                lacks: 0,
            },
        });
        let outputs = outputs.iter().map(|output| {
            let condition = StopCondition::Artifact { artifact: output.clone(), media_type: None };
            file_result(&condition, expected(self.files(), output), output, None, self.media)
        });
        conditions.chain(outputs).collect()
    }

    fn report(&self, conditions: Vec<ConditionResult>) -> EvidenceReport {
        let all_met = conditions.iter().all(|condition| condition.met);
        EvidenceReport { conditions, all_met, audience: self.audience }
    }
}

impl EvidenceReport {
    /// The same report with one more condition.
    #[must_use]
    pub fn with(mut self, condition: ConditionResult) -> Self {
        self.all_met &= condition.met;
        self.conditions.push(condition);
        self
    }

    /// Whether something is missing that only a person can say anything about: it may have been done, and nobody declared that.
    pub fn needs_a_person(&self) -> bool {
        self.conditions.iter().any(|condition| !condition.met && condition.for_a_person)
    }

    /// The calls of which a person may say that they were what is missing.
    pub fn undeclared(&self) -> Vec<Undeclared> {
        let unmet = self.conditions.iter().filter(|condition| !condition.met);
        let named = unmet.flat_map(|condition| condition.undeclared.iter().cloned().map(move |call| (condition, call)));
        // Of one in doubt nobody can say so here where they could not say it of all that are.
        let in_doubt = self.in_doubt();
        let is_known = |(condition, call): &(&ConditionResult, Undeclared)| {
            !condition.in_doubt.iter().any(|one| one.call_id == call.call_id) || in_doubt.contains(&call.call_id)
        };
        named.filter(is_known).map(|(_, call)| call).collect()
    }

    /// The calls of which a person may say, all at once, that they happened: no more than are missing. Where there are more, or one whose own run
    /// has not decided about it yet, that is said of each.
    pub fn in_doubt(&self) -> Vec<CallId> {
        let missing = || self.conditions.iter().filter(|condition| !condition.met);
        let is_clear = |condition: &ConditionResult| {
            condition.in_doubt.len() + condition.settled().count() <= condition.lacks as usize
                && !condition.in_doubt.iter().any(|call| call.is_open_there)
        };
        if !missing().all(is_clear) {
            return Vec::new();
        }
        self.told_of()
    }

    /// All calls behind what is missing of which nobody knows whether they happened.
    pub fn told_of(&self) -> Vec<CallId> {
        let mut calls: Vec<CallId> = Vec::new();
        let missing = self.conditions.iter().filter(|condition| !condition.met);
        for call in missing.flat_map(|condition| &condition.in_doubt) {
            if !calls.contains(&call.call_id) {
                calls.push(call.call_id.clone());
            }
        }
        calls
    }

    /// Leaves these calls to their own runs, which have not decided about them yet: what is said of them here would not be taken.
    pub fn leave_to_their_runs(&mut self, calls: &[CallId]) {
        for call in self.conditions.iter_mut().flat_map(|condition| &mut condition.in_doubt) {
            call.is_open_there |= calls.contains(&call.call_id);
        }
    }

    /// What is missing, a line each, for a person, with the calls behind it of which nobody knows. Empty when every condition holds.
    pub fn missing_for_person(&self) -> String {
        let missing = self.conditions.iter().filter(|condition| !condition.met);
        let lines = missing.flat_map(|condition| {
            let calls = condition.in_doubt.iter().map(|call| call.for_person(self.audience));
            // Whoever answers has to know of which calls that is.
            let said = self.in_doubt();
            let open = condition.in_doubt.iter().map(|call| &call.call_id).filter(|call| said.contains(call));
            let of: Vec<&str> = condition.settled().map(|call| &call.call_id).chain(open).map(CallId::as_str).collect();
            let others = (!of.is_empty() && condition.perhaps > of.len())
                .then(|| format!("  `happened` says it of {}, and nothing of the others.", of.join(" and ")));
            std::iter::once(format!("- {}", condition.shortcoming())).chain(calls).chain(others)
        });
        lines.collect::<Vec<_>>().join("\n")
    }

    /// What is missing, in words for the model, with what to do. Empty when every condition holds.
    pub fn missing_for_model(&self) -> String {
        let missing: Vec<String> = self
            .conditions
            .iter()
            .filter(|condition| !condition.met)
            .map(|condition| {
                let to_do = condition.to_do.as_ref().map_or_else(String::new, |to_do| format!(". To do: {to_do}"));
                format!("- {}{to_do}", condition.shortcoming())
            })
            .collect();
        if missing.is_empty() {
            return String::new();
        }
        let of_phase = self.conditions.iter().filter(|condition| !condition.met).find_map(|c| c.phase.as_deref());
        let what =
            of_phase.map_or_else(|| format!("The {}", self.audience.work()), |phase| format!("The phase `{phase}`"));
        format!(
            "{what} is not finished. Judged by stored receipts and files, not by what was said, this is missing:\n\n{}\n\n\
             Do what is missing now with tool calls. If it cannot be done, say in one sentence why, and stop.",
            missing.join("\n")
        )
    }
}

/// What [`EvidenceReport::missing_for_model`] says is missing, in a few words each: `email.send (0 of 1), file report.html`. `None` of a text that
/// says nothing of the kind.
pub fn missing_in_short(guidance: &str) -> Option<String> {
    let missing = guidance.lines().filter_map(|line| line.strip_prefix("- ")).map(|line| {
        let (needed, what) = line.split_once(": ").unwrap_or((line, ""));
        let words: Vec<&str> = what.split(' ').take(3).collect();
        match words.as_slice() {
            // How often it is wanted stands in the number.
            [found, "of", wanted] if found.parse::<u32>().is_ok() => {
                format!("{} ({found} of {wanted})", needed.split(' ').next().unwrap_or(needed))
            }
            _ => needed.to_owned(),
        }
    });
    let missing: Vec<String> = missing.collect();
    (!missing.is_empty()).then(|| missing.join(", "))
}

/// Begins what a model is told that persons said to it.
fn persons_say(audience: Audience) -> String {
    format!("A person who was asked about this {} says:", audience.work())
}

/// What the model of a run is told that persons said beside their answers to questions about it, oldest first.
pub fn words_of_persons(words: &[String], audience: Audience) -> String {
    format!("{}\n\n{}", persons_say(audience), words.join("\n\n"))
}

/// What [`words_of_persons`] says that persons said. `None` of a text that says nothing of the kind.
pub fn said_by_persons(guidance: &str) -> Option<&str> {
    let said = |audience| guidance.strip_prefix(persons_say(audience).as_str());
    said(Audience::Terminal).or_else(|| said(Audience::Program)).map(str::trim)
}

/// A declared effect and how often it is wanted.
struct DeclaredEffect {
    effect: String,
    count: u32,
    max: Option<u32>,
}

fn effect_result(condition: &StopCondition, wanted: &DeclaredEffect, by: &Evidence<'_>) -> ConditionResult {
    let of_kind: Vec<&CallRecord> = by
        .calls
        .iter()
        .filter(|call| call.policy.effect_kind.as_ref().is_some_and(|kind| kind.as_str() == wanted.effect))
        .collect();
    let evidence: Vec<EvidenceRef> = of_kind
        .iter()
        .filter_map(|call| Some((call, own_success(by.receipts, call)?)))
        .map(|(call, receipt)| EvidenceRef {
            kind: EvidenceKind::Receipt,
            id: call.call_id.to_string(),
            level: Some(receipt.evidence),
            sha256: None,
            external_id: external_id(by.receipts, call),
        })
        .collect();
    let found = u32::try_from(evidence.len()).unwrap_or(u32::MAX);
    // Asked to make it, a model would make it again where one of these did.
    let may_be = |call: &&CallRecord| {
        Verdict::of(call).forbids_repeat() && call.policy.makes(&call.name.tool, &wanted.effect) == Makes::Perhaps
    };
    let perhaps: Vec<&CallRecord> = by.calls.iter().filter(may_be).collect();
    let too_many = wanted.max.is_some_and(|max| found > max);
    let met = found >= wanted.count && !too_many;
    let lacks = wanted.count.saturating_sub(found);
    let is_in_doubt = |call: &&CallRecord| may_count(by.calls, call);
    let is_open = !met && !too_many;
    let declared = of_kind.iter().copied().filter(|call| !perhaps.iter().any(|one| one.call_id == call.call_id));
    let in_doubt: Vec<&CallRecord> =
        declared.chain(perhaps.iter().copied()).filter(|call| is_open && is_in_doubt(call)).collect();
    // What succeeded is known, and may have been it by itself. Of what may have happened no call can be told from the others.
    let is_done = |call: &&CallRecord| own_success(by.receipts, call).is_some();
    let mut said: Vec<&CallRecord> = perhaps.iter().copied().filter(is_done).take(lacks as usize).collect();
    if said.is_empty() {
        said = perhaps.iter().copied().filter(is_in_doubt).collect();
    }
    let (missing, to_do) = (!met)
        .then(|| match perhaps.as_slice() {
            _ if too_many => overrun(&wanted.effect, found, by.audience),
            [] => shortfall(wanted, found, &of_kind, by.calls),
            calls => undeclared(wanted, found, calls),
        })
        .unzip();
    ConditionResult {
        condition: condition.describe(),
        phase: None,
        met,
        needed: condition.expanded().describe(),
        found,
        used_up: wanted.max.is_some_and(|max| found >= max).then(|| wanted.effect.clone()),
        evidence,
        for_a_person: is_open && !perhaps.is_empty(),
        undeclared: said
            .into_iter()
            .filter(|_| is_open)
            .map(|call| Undeclared { call_id: call.call_id.clone(), effect: wanted.effect.clone() })
            .collect(),
        perhaps: if is_open { perhaps.len() } else { 0 },
        in_doubt: in_doubt.into_iter().map(InDoubt::of).collect(),
        lacks,
        missing,
        to_do,
    }
}

/// Whether nobody knows whether a call happened, and it could count if it did. One whose key another call holds could not: one key stands for one
/// effect, and that call is asked about, or counts, for both.
fn may_count(calls: &[CallRecord], call: &CallRecord) -> bool {
    let holds_its_key = |other: &&CallRecord| {
        other.call_id != call.call_id
            && other.deduplicated_from.is_none()
            && other.status.claims_key()
            && other.idempotency_key == call.idempotency_key
    };
    let is_held =
        call.idempotency_key.is_some() && !call.status.claims_key() && calls.iter().any(|one| holds_its_key(&one));
    Verdict::of(call) == Verdict::MayHaveHappened && !is_held
}

fn overrun(effect: &str, found: u32, audience: Audience) -> Shortcoming {
    let work = audience.work();
    (
        format!("it happened {found}×, which is more than the {work} allows and cannot be undone here"),
        format!("do not repeat {effect}, and report it"),
    )
}

/// As many calls are named where it is said what may have been an effect.
const MOST_NAMED: usize = 8;

/// What is to be said when calls that nobody declared may have been the effect.
fn undeclared(wanted: &DeclaredEffect, found: u32, calls: &[&CallRecord]) -> Shortcoming {
    let named = calls.iter().take(MOST_NAMED).map(|call| {
        let succeeded = call.status == ua_core::CallStatus::Succeeded;
        let what = if succeeded { "succeeded" } else { "may have happened" };
        format!("call {} of {} {what}", call.call_id, code(&call.name.raw, 100))
    });
    let mut named: Vec<String> = named.collect();
    let further = calls.len().saturating_sub(MOST_NAMED);
    named.extend((further > 0).then(|| format!("{} may have been it too", ua_core::counted(further, "further call"))));
    let what = format!(
        "{found} of {} confirmed by a receipt; {}, and whether {} {} is not declared (a policy rule with `effect_kind` declares it for later runs)",
        wanted.count,
        named.join(", "),
        if calls.len() == 1 { "that is" } else { "one of them is" },
        wanted.effect
    );
    (what, "do not repeat it; a person has to say what is still to be done".to_owned())
}

/// What to do about effects that did not happen often enough; depends on how the attempts ended.
fn shortfall(wanted: &DeclaredEffect, found: u32, of_kind: &[&CallRecord], calls: &[CallRecord]) -> Shortcoming {
    let effect = &wanted.effect;
    let lost = of_kind.iter().filter(|call| may_count(calls, call)).count();
    let failed = of_kind.iter().filter(|call| Verdict::of(call) == Verdict::DidNotHappen).count();
    let seen = format!("{found} of {} confirmed by a receipt", wanted.count);
    if lost > 0 {
        let what = format!(
            "{seen}; not confirmed, though it may have happened: {lost}",
            lost = ua_core::counted(lost, "further call")
        );
        return (what, "do not repeat that; a person has to settle it".to_owned());
    }
    let after_failure = if failed > 0 {
        format!("; not counted, because it failed: {failed}", failed = ua_core::counted(failed, "call"))
    } else {
        String::new()
    };
    (format!("{seen}{after_failure}"), format!("call the tool whose effect is {effect} and wait for its success"))
}

fn file_result(
    condition: &StopCondition,
    found: Option<There<'_>>,
    wanted: &str,
    media_type: Option<&str>,
    media: &dyn Fn(&str) -> Option<String>,
) -> ConditionResult {
    let wrong_type =
        found.and_then(|file| media_type.and_then(|wanted| type_mismatch(wanted, media(file.path).as_deref())));
    let missing = match (found, wrong_type) {
        (None, _) => Some((format!("there is no file {} in the workspace", code(wanted, 200)), "create it")),
        (Some(file), _) if file.bytes == 0 => {
            Some((format!("{} is there, but it is empty", code(file.path, 200)), "create it again"))
        }
        (Some(file), Some(why)) => Some((format!("{} is there, but {why}", code(file.path, 200)), "create it again")),
        (Some(_), None) => None,
    };
    let (missing, to_do) = missing.unzip();
    let evidence = found.map(|file| EvidenceRef {
        kind: EvidenceKind::Artifact,
        id: file.path.to_owned(),
        level: None,
        sha256: file.sha256,
        external_id: None,
    });
    ConditionResult {
        condition: condition.describe(),
        phase: None,
        met: missing.is_none(),
        needed: condition.expanded().describe(),
        found: u32::from(found.is_some()),
        used_up: None,
        evidence: evidence.into_iter().collect(),
        missing,
        to_do: to_do.map(str::to_owned),
        for_a_person: false,
        undeclared: Vec::new(),
        perhaps: 0,
        in_doubt: Vec::new(),
        lacks: 0,
    }
}

/// Media types that the first bytes of a file always show; a file that does not show them is something else.
const SHOWN_BY_FIRST_BYTES: [&str; 7] =
    ["application/pdf", "application/zip", "application/gzip", "image/png", "image/jpeg", "image/gif", "image/webp"];

/// Why a file is not of the wanted type, if it is not. Text types show nothing in their first bytes and pass.
fn type_mismatch(wanted: &str, shown: Option<&str>) -> Option<String> {
    let essence = |media_type: &str| media_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    let wanted = essence(wanted);
    match shown.map(essence) {
        Some(shown) if shown == wanted => None,
        Some(shown) => {
            Some(format!("its first bytes are those of {}, not of {}", code(&shown, 100), code(&wanted, 100)))
        }
        None if SHOWN_BY_FIRST_BYTES.contains(&wanted.as_str()) => {
            Some(format!("its first bytes are not those of {}", code(&wanted, 100)))
        }
        None => None,
    }
}

/// The path without a leading `./`.
fn plain(path: &str) -> &str {
    path.strip_prefix("./").unwrap_or(path)
}

/// The file an expected output means: a path, or a bare name found anywhere, work products first.
fn expected<'a>(mut files: impl Iterator<Item = There<'a>>, output: &str) -> Option<There<'a>> {
    let output = plain(output);
    if output.contains('/') {
        return files.find(|file| file.path == output);
    }
    let has_the_name = |file: &There<'_>| file.path.rsplit('/').next() == Some(output);
    files.filter(has_the_name).min_by_key(|file| nearness(file.path))
}

/// Which of several files of one name is the one that is meant: the least, work products first.
pub fn nearness(path: &str) -> (bool, usize, &str) {
    (!path.starts_with("work_products/"), path.matches('/').count(), path)
}

/// The files that a job makes a condition of or expects, in any of its phases: paths, and bare names.
pub fn named_files(spec: &RunSpec) -> BTreeSet<String> {
    let phases = || spec.phases.iter();
    let conditions = phases().flat_map(|phase| &phase.stop_conditions).chain(&spec.stop_conditions);
    let of_conditions = conditions.filter_map(|condition| match condition.expanded() {
        StopCondition::Artifact { artifact, .. } => Some(artifact),
        StopCondition::Effect { .. } | StopCondition::Named(_) => None,
    });
    let outputs = phases().flat_map(|phase| &phase.expected_outputs).chain(&spec.artifacts.expected_outputs);
    of_conditions.chain(outputs.cloned()).map(|name| plain(&name).to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use ua_core::{CallPolicy, CallStatus, ClassSource, EffectKind, PossibleEffect, ToolName, ToolNamespace, sha256};

    use super::*;
    use crate::testing::{Story, mail_policy};

    const JOB: &str = r#"{"objective": "x", "stop_conditions": ["email_sent_once"]}"#;

    fn file(path: &str) -> Artifact {
        Artifact { path: path.to_owned(), bytes: 3, sha256: sha256(path) }
    }

    fn judge(story: &Story) -> EvidenceReport {
        let records = &story.records;
        evaluate(&records.run.spec, &records.calls, &records.receipts, &[], &|_| None)
    }

    fn files(job: &str, artifacts: &[Artifact], shown: Option<&str>) -> EvidenceReport {
        evaluate(&RunSpec::parse(job).unwrap(), &[], &[], artifacts, &|_| shown.map(str::to_owned))
    }

    fn one_send() -> (Story, ua_core::CallId) {
        let mut story = Story::new(JOB);
        let ids = story.asks("", &[("send_email", json!({"to": "a@example.test"}), mail_policy())]);
        (story, ids[0].clone())
    }

    #[test]
    fn a_success_with_its_own_receipt_counts_and_names_its_evidence() {
        let (mut story, id) = one_send();
        story.starts(&id);
        story.succeeds(&id, "sent", Some("<m-1@example.test>"));
        let report = judge(&story);
        assert!(report.all_met);
        assert_eq!(
            report.conditions,
            [ConditionResult {
                condition: "email_sent_once".to_owned(),
                phase: None,
                met: true,
                needed: "email.send exactly 1×".to_owned(),
                found: 1,
                used_up: Some("email.send".to_owned()),
                evidence: vec![EvidenceRef {
                    kind: EvidenceKind::Receipt,
                    id: id.to_string(),
                    level: Some(EvidenceLevel::Reported),
                    sha256: None,
                    external_id: Some("<m-1@example.test>".to_owned()),
                }],
                missing: None,
                to_do: None,
                for_a_person: false,
                undeclared: Vec::new(),
                perhaps: 0,
                in_doubt: Vec::new(),
                lacks: 0,
            }]
        );
        assert_eq!(report.missing_for_model(), "");
    }

    #[test]
    fn no_other_status_counts_whatever_receipt_lies_beside_it() {
        let (mut story, id) = one_send();
        story.starts(&id);
        story.succeeds(&id, "sent", None);
        for &status in CallStatus::ALL.iter().filter(|status| **status != CallStatus::Succeeded) {
            story.call(&id).status = status;
            assert_eq!(judge(&story).conditions[0].found, 0, "{status}");
        }
    }

    #[test]
    fn a_success_without_a_settled_receipt_does_not_count() {
        let (mut story, id) = one_send();
        story.starts(&id);
        story.call(&id).status = CallStatus::Succeeded;
        assert!(!judge(&story).all_met);
        story.replies(&id, "sent");
        assert!(!judge(&story).all_met, "a reply that nobody interpreted proves nothing");
        story.reports_failure(&id, "mailbox full", PossibleEffect::None);
        story.call(&id).status = CallStatus::Succeeded;
        assert!(!judge(&story).all_met, "a receipt of a failure proves no success");
    }

    #[test]
    fn a_deduplicated_twin_adds_nothing() {
        let (mut story, first) = one_send();
        story.starts(&first);
        story.succeeds(&first, "sent", None);
        story.commits();
        let twin = story.asks("", &[("send_email", json!({"to": "a@example.test"}), mail_policy())])[0].clone();
        story.deduplicates(&twin, &first);
        let report = judge(&story);
        assert_eq!((report.all_met, report.conditions[0].found), (true, 1));

        let copied = story.records.receipt(&first).cloned().unwrap();
        story.records.receipts.push(ReceiptRecord { call_id: twin, ..copied });
        assert_eq!(judge(&story).conditions[0].found, 1, "not even with a copy of the receipt");
    }

    #[test]
    fn what_happened_too_often_is_not_met_and_the_model_is_told_not_to_repeat_it() {
        let (mut story, first) = one_send();
        let second = story.asks("", &[("send_email", json!({"to": "b@example.test"}), mail_policy())])[0].clone();
        for id in [&first, &second] {
            story.starts(id);
            story.succeeds(id, "sent", None);
        }
        let report = judge(&story);
        assert_eq!((report.all_met, report.conditions[0].found), (false, 2));
        assert!(report.missing_for_model().contains("more than the job allows"), "{}", report.missing_for_model());
    }

    /// A foreign tool that nobody declared sent something: the model is not asked to send it again.
    #[test]
    fn what_an_undeclared_call_may_have_done_is_for_a_person_to_say() {
        let (mut story, id) = one_send();
        story.starts(&id);
        story.not_sent(&id, "connection refused");
        let foreign = |source, kind: Option<&str>| CallPolicy {
            class_source: source,
            effect_kind: kind.and_then(EffectKind::parse),
            kind_is_guessed: kind.is_some(),
            ..CallPolicy::unclassified()
        };
        let told = foreign(ClassSource::Name, Some("message.post"));
        let call = story.asks("", &[("mcp__chat__post_message", json!({"to": "a"}), told)])[0].clone();
        story.starts(&call);
        assert!(judge(&story).needs_a_person(), "it may have happened");
        story.succeeds(&call, "posted", None);
        let report = judge(&story);
        let text = report.missing_for_model();
        assert!(report.needs_a_person() && text.contains("post_message` succeeded"), "{text}");
        assert_eq!(report.undeclared(), [Undeclared { call_id: call.clone(), effect: "email.send".to_owned() }]);
        assert!(text.contains("To do: do not repeat it") && !text.contains("call the tool"), "{text}");
        // A tool that was declared to be something else, or whose name says that, leaves the model to its work.
        for (tool, other) in [
            (
                "post_message",
                CallPolicy { kind_is_guessed: false, ..foreign(ClassSource::Shipped, Some("message.post")) },
            ),
            ("create_issue", foreign(ClassSource::Name, Some("issue.create"))),
        ] {
            let call = story.call(&call);
            call.policy = other.into();
            call.name = ToolName::qualified(ToolNamespace::Mcp, "chat", tool);
            assert!(
                !judge(&story).needs_a_person() && judge(&story).missing_for_model().contains("To do: call the tool")
            );
        }
    }

    /// Of several nobody may say with one word that they were it: all are named, and the word is about as many as are missing.
    #[test]
    fn of_several_undeclared_calls_no_more_are_said_to_be_it_than_are_missing() {
        let (mut story, id) = one_send();
        story.starts(&id);
        story.not_sent(&id, "connection refused");
        let policy = CallPolicy { class_source: ClassSource::Name, may_make: true, ..CallPolicy::unclassified() };
        let calls: Vec<CallId> = (1..=3)
            .map(|n| story.asks("", &[("mcp__post__deliver", json!({"to": n}), policy.clone())])[0].clone())
            .collect();
        for call in &calls {
            story.starts(call);
            story.loses(call);
        }
        let report = judge(&story);
        let asked = report.missing_for_person();
        assert!(calls.iter().all(|call| asked.matches(call.as_str()).count() > 1), "{asked}");
        assert!(report.undeclared().is_empty() && report.in_doubt().is_empty() && !asked.contains("`happened` says"));
        assert_eq!(report.told_of().len(), 3);

        story.succeeds(&calls[1], "delivered", None);
        let report = judge(&story);
        let asked = report.missing_for_person();
        let said = [Undeclared { call_id: calls[1].clone(), effect: "email.send".to_owned() }];
        assert_eq!(report.undeclared(), said);
        assert!(report.in_doubt().is_empty(), "the word would say it of two");
        assert!(asked.contains(&format!("`happened` says it of {}, and nothing of the others.", calls[1])), "{asked}");
        assert!(calls.iter().all(|call| asked.contains(call.as_str())), "{asked}");
    }

    #[test]
    fn a_failed_send_is_to_be_repeated_and_a_lost_one_is_not() {
        let (mut story, id) = one_send();
        story.starts(&id);
        story.not_sent(&id, "connection refused");
        let text = judge(&story).missing_for_model();
        assert!(text.contains("not counted, because it failed: 1 call. To do: call the tool"), "{text}");

        story.starts(&id);
        story.loses(&id);
        let text = judge(&story).missing_for_model();
        assert!(text.contains("though it may have happened: 1 further call. To do: do not repeat that"), "{text}");
        assert!(!text.contains("call the tool") && !text.contains("ua calls"), "{text}");
    }

    /// Whoever is asked about what may have happened is told which calls that are and how their records are put right, and may say that they did,
    /// unless that would be more than is missing.
    #[test]
    fn a_person_is_told_which_calls_may_have_happened() {
        let (mut story, first) = one_send();
        story.starts(&first);
        story.loses(&first);
        let report = judge(&story);
        assert_eq!(report.in_doubt(), std::slice::from_ref(&first));
        let text = report.missing_for_person();
        let command = format!("`ua calls resolve {first} --as happened --reason TEXT`, or `--as not_happened`");
        assert!(text.contains(&command) && text.contains("send_email`, turn 1, unknown at "), "{text}");
        let second = story.asks("", &[("send_email", json!({"to": "b@example.test"}), mail_policy())])[0].clone();
        story.starts(&second);
        story.reports_failure(&second, "mailbox full", PossibleEffect::Maybe);
        let report = judge(&story);
        assert!(report.in_doubt().is_empty(), "one is missing, and two may have happened");
        let text = report.missing_for_person();
        assert!(
            text.contains(&command) && text.contains(": mailbox full)") && text.contains(second.as_str()),
            "{text}"
        );
        story.call(&first).status = CallStatus::FailedDefinite;
        let mut report = judge(&story);
        assert_eq!(report.in_doubt(), std::slice::from_ref(&second));
        // Its own run decides about it: nobody can say here that it happened.
        report.leave_to_their_runs(std::slice::from_ref(&second));
        assert_eq!((report.in_doubt(), report.told_of()), (vec![], vec![second.clone()]));
        let terminal = report.missing_for_person();
        report.audience = Audience::Program;
        let program = report.missing_for_person();
        let of_its_run = format!("{second} of run {}", story.call(&second).run_id);
        for text in [&terminal, &program] {
            assert!(text.contains(&of_its_run) && text.contains("answer that run's question about it"), "{text}");
        }
        assert!(
            terminal.contains(&format!("ua calls resolve {second} --as happened")) && !program.contains("ua calls")
        );
    }

    /// A failure that may have happened, behind which the same was done under its key, is no second effect: nobody could record it as one.
    #[test]
    fn one_key_stands_for_one_effect_also_where_a_call_of_it_failed() {
        let mut story = Story::new(r#"{"objective": "x", "stop_conditions": [{"effect": "email.send", "count": 2}]}"#);
        let same = ("send_email", json!({"to": "a@example.test"}), mail_policy());
        let first = story.asks("", std::slice::from_ref(&same))[0].clone();
        story.starts(&first);
        story.reports_failure(&first, "mailbox full", PossibleEffect::Maybe);
        assert_eq!(judge(&story).in_doubt(), std::slice::from_ref(&first));
        let second = story.asks("", &[same])[0].clone();
        story.starts(&second);
        story.succeeds(&second, "sent", None);
        let key = story.call(&first).idempotency_key.clone();
        assert!(key.is_some());
        story.call(&second).idempotency_key = key;
        let report = judge(&story);
        assert!(report.told_of().is_empty() && !report.all_met, "{report:?}");
        assert!(report.missing_for_model().contains("To do: call the tool"), "{}", report.missing_for_model());
        // Another key is another effect, of which nobody knows.
        story.call(&first).idempotency_key = None;
        assert_eq!(judge(&story).in_doubt(), [first]);
    }

    #[test]
    fn a_file_counts_by_path_and_by_its_first_bytes() {
        let job = r#"{"objective": "x", "stop_conditions": ["report_pdf_created"]}"#;
        let report = [file("work_products/report.pdf")];
        assert!(files(job, &report, Some("application/pdf")).all_met);
        assert!(!files(job, &report, None).all_met, "a PDF always shows itself");
        assert!(!files(job, &report, Some("text/html")).all_met);
        assert!(!files(job, &[file("report.pdf")], Some("application/pdf")).all_met, "another path");

        let text = files(job, &report, Some("text/html")).missing_for_model();
        assert!(text.contains("its first bytes are those of `text/html`, not of `application/pdf`"), "{text}");
        let text = files(job, &[], None).missing_for_model();
        assert!(
            text.contains("there is no file `work_products/report.pdf` in the workspace. To do: create it"),
            "{text}"
        );
    }

    /// What is too large to be read is there all the same: nobody is told to make it.
    #[test]
    fn a_file_that_could_not_be_read_is_there() {
        let job = r#"{"objective": "x", "stop_conditions": [{"artifact": "./out/film.mp4"}], "phases": [
            {"name": "p", "instructions": "i", "expected_outputs": ["film.mp4"]}]}"#;
        let spec = RunSpec::parse(job).unwrap();
        let unread = |path: &str, bytes| Unread { path: path.to_owned(), bytes };
        let judge = |unread: &[Unread]| {
            let old = [file("old/more/film.mp4")];
            evaluate_scope(&spec, EvidenceScope::at_end_of(&spec, "p"), &[], &[], &old, unread, &|_| None)
        };
        let report = judge(&[unread("out/film.mp4", 1)]);
        assert!(report.all_met, "{report:?}");
        for condition in &report.conditions {
            assert_eq!((condition.evidence[0].id.as_str(), condition.evidence[0].sha256), ("out/film.mp4", None));
        }
        assert!(judge(&[unread("out/film.mp4", 0)]).missing_for_model().contains("but it is empty"));
        assert_eq!(named_files(&spec), BTreeSet::from(["film.mp4", "out/film.mp4"].map(str::to_owned)));
    }

    #[test]
    fn an_empty_file_is_none() {
        let job = r#"{"objective": "x", "artifacts": {"expected_outputs": ["report.html"]}}"#;
        let empty = Artifact { bytes: 0, ..file("report.html") };
        let text = files(job, &[empty], None).missing_for_model();
        assert!(text.contains("`report.html` is there, but it is empty. To do: create it again"), "{text}");
    }

    #[test]
    fn a_phase_has_to_reach_what_is_its_own_and_the_last_one_the_rest() {
        let job = r#"{"objective": "x", "stop_conditions": ["email_sent_once"], "phases": [
            {"name": "write", "instructions": "w", "expected_outputs": ["report.html"]},
            {"name": "send", "instructions": "s", "stop_conditions": ["final_notification_sent"]}]}"#;
        let story = Story::new(job);
        let spec = story.records.run.spec.clone();
        let conditions = |phase: &str| {
            let report = evaluate_scope(&spec, EvidenceScope::at_end_of(&spec, phase), &[], &[], &[], &[], &|_| None);
            let names = report.conditions.iter().map(|c| (c.phase.clone(), c.condition.clone())).collect::<Vec<_>>();
            (names, report.missing_for_model())
        };
        let (write, missing) = conditions("write");
        assert_eq!(write, [(Some("write".to_owned()), "file report.html".to_owned())]);
        assert!(missing.starts_with("The phase `write` is not finished."), "{missing}");
        let (send, _) = conditions("send");
        assert_eq!(
            send,
            [(Some("send".to_owned()), "final_notification_sent".to_owned()), (None, "email_sent_once".to_owned())]
        );
    }

    #[test]
    fn a_text_type_cannot_be_shown_by_first_bytes_and_passes_unless_they_show_another() {
        let job = r#"{"objective": "x", "stop_conditions": [{"artifact": "./a.html", "media_type": "text/html; charset=utf-8"}]}"#;
        assert!(files(job, &[file("a.html")], None).all_met);
        assert!(files(job, &[file("a.html")], Some("TEXT/html")).all_met);
        assert!(!files(job, &[file("a.html")], Some("application/pdf")).all_met);
    }

    #[test]
    fn a_bare_expected_output_is_found_anywhere_and_preferred_among_work_products() {
        let job = r#"{"objective": "x", "artifacts": {"expected_outputs": ["report.html", "tasks/a/notes.md"]}}"#;
        let there = [
            file("report.html"),
            file("old/report.html"),
            file("work_products/v2/report.html"),
            file("tasks/a/notes.md"),
        ];
        let report = files(job, &there, None);
        assert!(report.all_met);
        assert_eq!(report.conditions[0].evidence[0].id, "work_products/v2/report.html");
        assert!(!files(job, &[file("report.html"), file("notes.md")], None).all_met, "a path is a path");
        assert!(files(r#"{"objective": "x"}"#, &[], None).all_met, "a job without conditions misses nothing");
    }
}
