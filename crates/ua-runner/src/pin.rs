//! What a step is pinned to, and what a person accepted since.
//!
//! Granular Execution PRD §5.2. The fingerprint is stored when the step opens, in the same write. A resume compares what it
//! would run with; a change that a person accepts is a row beside the contract, so that it can be seen later who accepted what.
//! Invariant: nothing is sent under another setup. Proved by: `crash_anywhere::pinned_setup`, the e2e tests `fingerprint`.

use std::sync::OnceLock;

use serde_json::{Value, json};
use ua_core::{
    Audience, Component, Difference, Fingerprint, FingerprintDiff, FingerprintError, FingerprintInput, MAIN_PHASE,
    Message, Origin, PriceTable, RunSpec, RunStatus, StepId,
};
use ua_store::{
    NewIteration, NewOverride, NewStep, OverrideKind, RunRecord, RunRecords, RunStore, StepEntry, StepRecord, Store,
};

use crate::cas::{StoredTurns, TurnAdmission, admit_turn};
use crate::error::{ResumeError, RunError, another_run_hint};
use crate::machine::Conclusion;
use crate::ports::{Ports, RunSettings};
use crate::watch::RunEvent;

/// What shapes a run beside its job, its model and its tools, and what a person accepts about it now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PinSettings {
    /// The price table in use: a name and version, or a digest.
    pub pricing: String,
    /// The size in bytes from which a result is stored apart, as text.
    pub blob_threshold: String,
    /// The token estimator's name.
    pub estimator: String,
    /// Further switches that shape what the run may do, by name.
    pub switches: std::collections::BTreeMap<String, String>,
    /// Changed components that a person accepts: they are pinned as they are now. Only those that
    /// [`Component::may_be_accepted`] allows.
    pub accept: Vec<Component>,
    /// What is stored with what is accepted about a component that no step is pinned to, once nothing else differs.
    pub also: Vec<(Component, Value)>,
    /// Who accepts.
    pub accepted_by: String,
    /// By tool, the settings that make it what it is, and which of them there are here, as a part of a sentence.
    pub made_of: std::collections::BTreeMap<String, String>,
}

impl PinSettings {
    /// What a run of this contract with these prices is pinned to; nothing is accepted.
    pub fn of(spec: &RunSpec, prices: &PriceTable) -> Self {
        let settings = &spec.settings;
        let switches = [
            ("history_max_tokens", settings.history_max_tokens.to_string()),
            ("degraded_replay", settings.degraded_replay.to_string()),
            ("enforce_idempotency", settings.enforce_idempotency.to_string()),
        ];
        Self {
            pricing: prices.digest().to_hex(),
            blob_threshold: settings.blob_threshold_bytes.to_string(),
            estimator: ua_llm::ESTIMATOR.to_owned(),
            switches: switches.into_iter().map(|(name, value)| (name.to_owned(), value)).collect(),
            ..Self::default()
        }
    }
}

impl Default for PinSettings {
    fn default() -> Self {
        let none = || "none".to_owned();
        Self {
            pricing: none(),
            blob_threshold: none(),
            estimator: none(),
            switches: std::collections::BTreeMap::new(),
            accept: Vec::new(),
            also: Vec::new(),
            accepted_by: "a person".to_owned(),
            made_of: std::collections::BTreeMap::new(),
        }
    }
}

/// The pins of the step that is driven.
#[derive(Debug, Clone)]
pub(crate) struct PinnedStep {
    pub(crate) step_id: StepId,
    pub(crate) step_index: u32,
    /// The phase that the step is.
    pub(crate) phase: String,
    fingerprint: Fingerprint,
    /// What is not as it was pinned, once somebody asked: what a process runs with stays as it is for the process's whole work on the run.
    differs: OnceLock<FingerprintDiff>,
}

impl PinnedStep {
    /// What is not as it was pinned.
    pub(crate) fn diff(&self, ports: &Ports, settings: &RunSettings, spec: &RunSpec) -> FingerprintDiff {
        let differs = || self.fingerprint.diff(&fingerprint_now(ports, settings, spec, &self.phase));
        self.differs.get_or_init(differs).clone()
    }

    /// A step for `phase`, to be opened, pinned to what this process runs with.
    pub(crate) fn new_step(ports: &Ports, settings: &RunSettings, spec: &RunSpec, phase: &str) -> NewStep {
        NewStep {
            step_id: StepId::new(&ports.env),
            phase: phase.to_owned(),
            created_at: ports.env.now(),
            fingerprint: Some(fingerprint_now(ports, settings, spec, phase).to_stored()),
        }
    }

    /// The pins that count for a stored step.
    pub(crate) fn of(records: &RunRecords, step: &StepRecord) -> Result<Self, ResumeError> {
        let fingerprint = effective_pins(records, step)?;
        let (step_id, step_index, phase) = (step.step_id.clone(), step.step_index, step.phase.clone());
        Ok(Self { step_id, step_index, phase, fingerprint, differs: OnceLock::new() })
    }

    /// The names of the tools that the model is offered.
    pub(crate) fn tool_names(&self) -> std::collections::BTreeSet<String> {
        self.fingerprint.tool_names()
    }
}

/// The fingerprint of what this process would run a step with.
fn fingerprint_now(ports: &Ports, settings: &RunSettings, spec: &RunSpec, phase: &str) -> Fingerprint {
    let mut sampling =
        json!({"max_output_tokens": settings.max_output_tokens, "temperature_milli": settings.temperature_milli});
    // Runs from before there was one have a fingerprint without it.
    if let Some(seed) = settings.seed {
        sampling["seed"] = json!(seed);
    }
    let switches = json!({
        "builtin_tools": spec.tools.builtin,
        "run_command": spec.tools.run_command,
        "file_edit_tools": spec.tools.allow_file_edit_tools,
        "others": settings.pins.switches,
    });
    Fingerprint::of(FingerprintInput {
        spec,
        phase: Some(phase),
        system: &settings.system,
        provider: ports.llm.name(),
        model: &settings.model,
        pricing: &settings.pins.pricing,
        tools: ports.dispatcher.catalog().tool_pins(),
        settings: &sampling,
        policy: ports.dispatcher.policy(),
        blob_threshold: &settings.pins.blob_threshold,
        switches: &switches,
        execution_mode: "granular",
        estimator: &settings.pins.estimator,
    })
}

/// The pins that count for a step: those it was opened with, or those that were accepted last.
///
/// # Errors
/// [`ResumeError::CorruptState`] when the step has none or they cannot be read, [`ResumeError::SchemaTooNew`] when a newer
/// program wrote them.
pub fn effective_pins(records: &RunRecords, step: &StepRecord) -> Result<Fingerprint, ResumeError> {
    let of_step = |value: &Value| value["step_id"].as_str() == Some(step.step_id.as_str());
    let accepted = records.overrides.iter().rev().find(|row| row.kind == OverrideKind::Pin && of_step(&row.value));
    let stored = accepted.map(|row| &row.value["fingerprint"]).or(step.fingerprint.as_deref());
    let corrupt =
        |why: String| ResumeError::CorruptState { why: format!("step {}: {why}", step.step_id), source: None };
    let Some(stored) = stored else { return Err(corrupt("it was opened without a fingerprint".to_owned())) };
    Fingerprint::from_stored(stored).map_err(|error| match error {
        FingerprintError::TooNew { found, known } => ResumeError::SchemaTooNew { found, known },
        FingerprintError::Unreadable(why) => corrupt(why),
    })
}

/// Finds the current step, or opens the first one, pinned to what this process runs with. What a person accepts is stored
/// first; then the model is offered the pinned tools and no others.
pub(crate) async fn open_step(
    ports: &Ports,
    settings: &RunSettings,
    records: &RunRecords,
) -> Result<PinnedStep, RunError> {
    if let Some(component) = settings.pins.accept.iter().copied().find(|component| !component.may_be_accepted()) {
        return Err(ResumeError::NotAcceptable { component, audience: Audience::of(&records.run.entrypoint) }.into());
    }
    let pinned = match records.current_step() {
        Some(step) => PinnedStep::of(records, step)?,
        None => PinnedStep::of(records, &first_step(ports, settings, records).await?)?,
    };
    let now = fingerprint_now(ports, settings, &records.run.spec, &pinned.phase);
    let pinned = accept(ports, settings, pinned, &now).await?;
    ports.dispatcher.catalog().pin(pinned.fingerprint.tool_names());
    Ok(pinned)
}

/// Opens the first step of a run: its one step, or its first phase with what the model is told about it. A run that took over
/// another one's history goes on with the phase that this history ends in.
async fn first_step(ports: &Ports, settings: &RunSettings, records: &RunRecords) -> Result<StepRecord, RunError> {
    let spec = &records.run.spec;
    let told = records.messages.iter().filter(|message| message.message.origin == Origin::Phase).count();
    let number = told.clamp(1, spec.phases.len().max(1));
    let phase = spec.phases.get(number - 1).map_or(MAIN_PHASE, |phase| phase.name.as_str());
    let step = PinnedStep::new_step(ports, settings, spec, phase);
    let message = spec.phase_message(number).filter(|_| told == 0);
    let iteration = records.max_iterations().map(|max_iterations| NewIteration { number: 1, max_iterations });
    let opened = if message.is_none() && iteration.is_none() {
        ports.store.open_step(&ports.lease, step).await
    } else {
        if message.is_some() {
            (ports.watcher)(RunEvent::PhaseEntered { phase: phase.to_owned(), number, of: spec.phases.len() });
        }
        let messages = message.map(|text| Message::user(Origin::Phase, text)).into_iter().collect();
        let entry = StepEntry { end: None, checkpoints: Vec::new(), step, messages, iteration };
        ports.store.enter_step(&ports.lease, entry).await
    };
    opened.map_err(RunError::at("open the step"))
}

/// Pins what a person accepts, as it is now. What did not change is said and not stored. All is compared before anything is stored: while
/// something else differs, the run is refused as it stands, and putting everything back makes it the old run again.
async fn accept(
    ports: &Ports,
    settings: &RunSettings,
    pinned: PinnedStep,
    now: &Fingerprint,
) -> Result<PinnedStep, RunError> {
    let pins = &settings.pins;
    let row = |component: Component, value: Value| NewOverride {
        run_id: ports.lease.run_id.clone(),
        kind: OverrideKind::Pin,
        component: component.as_str().to_owned(),
        value,
        made_by: pins.accepted_by.clone(),
        at: ports.env.now(),
    };
    let mut fingerprint = pinned.fingerprint.clone();
    let mut rows: Vec<NewOverride> =
        pins.also.iter().map(|(component, value)| row(*component, value.clone())).collect();
    let mut accepted = Vec::new();
    for component in pins.accept.iter().copied() {
        let changes = fingerprint.diff(now).of(component);
        let repinned = fingerprint.clone().repinned(component, now);
        // Tools that are new are no difference, and a person who accepts the tools wants them.
        if repinned == fingerprint {
            if pins.also.iter().all(|(also, _)| *also != component) {
                (ports.watcher)(RunEvent::NothingToAccept { component });
            }
            continue;
        }
        let value = json!({
            "step_id": pinned.step_id,
            "differences": changes_in_words(&changes).collect::<Vec<_>>(),
            "fingerprint": repinned.to_stored(),
        });
        rows.push(row(component, value));
        accepted.push(RunEvent::Accepted { component, changes });
        fingerprint = repinned;
    }
    if rows.is_empty() || !fingerprint.diff(now).is_empty() {
        return Ok(pinned);
    }
    let stored = ports.store.insert_overrides(&ports.lease, rows).await;
    stored.map_err(RunError::at("store what was accepted"))?;
    for event in accepted {
        (ports.watcher)(event);
    }
    Ok(PinnedStep { fingerprint, differs: OnceLock::new(), ..pinned })
}

/// What changed, a text each, with the tools that are offered besides.
pub fn changes_in_words(changes: &FingerprintDiff) -> impl Iterator<Item = String> {
    let offered = changes.new_tools().iter().map(|tool| format!("new, and offered: {tool}"));
    changes.iter().map(ToString::to_string).chain(offered)
}

/// What a person is told when the setup is not the pinned one: what changed, and what can be done about it.
pub(crate) fn mismatch_text(diff: &FingerprintDiff, run: &RunRecord, pins: &PinSettings) -> String {
    let audience = Audience::of(&run.entrypoint);
    let components = diff.components();
    let accepted: Vec<&str> = components.iter().filter(|c| c.may_be_accepted()).map(|c| c.as_str()).collect();
    let changed: Vec<&str> = components.iter().map(|component| component.as_str()).collect();
    let mut text = format!("{} changed since the run started, so nothing was sent", changed.join(", "));
    for difference in diff.iter() {
        text.push_str(&format!("\n  {difference}"));
    }
    // A setting that is missing here is set, and not accepted.
    let tools: std::collections::BTreeSet<&String> =
        diff.iter().filter_map(|difference| difference.tool.as_ref()).collect();
    for (tool, of) in tools.iter().filter_map(|tool| Some((tool, pins.made_of.get(*tool)?))) {
        text.push_str(&format!("\n  ({tool} depends on {of})"));
    }
    // Whoever accepts has seen what that is.
    if components.contains(&Component::Tools) && !diff.new_tools().is_empty() {
        let tools = diff.new_tools().join(", ");
        text.push_str(&format!("\n  new, not offered unless the tools are accepted: {tools}"));
    }
    let of_policy = || diff.iter().filter(|difference| difference.component == Component::Policy);
    if components.contains(&Component::Policy) && of_policy().all(|difference| difference.tool.is_none()) {
        text.push_str("\n  (the class of every tool is unchanged");
        // What is known by its digest alone may be any of these.
        if of_policy().any(Difference::was_by_digest) {
            text.push_str(": keys, probes, approvals or other settings of a rule changed");
        }
        text.push(')');
    }
    if components.contains(&Component::Policy) && audience == Audience::Terminal {
        text.push_str("\n  (`ua tools explain TOOL` shows which rule decides about a tool now)");
    }
    text.push_str(audience.pick("\nRestore it and resume", "\nRestore it and run it again"));
    let names = accepted.join(",");
    text.push_str(&match (accepted.len() == components.len(), audience) {
        (true, Audience::Terminal) => format!(", or accept it: `ua resume {} --accept {names}`.", run.run_id),
        (true, Audience::Program) => {
            let names: Vec<String> = components.iter().map(|component| format!("Component::{component:?}")).collect();
            format!(
                ", or accept it: `Runs::run_accepting` (of a typed result `Runs::run_for_accepting`) with {}; all that changed is accepted in one \
                 call.",
                names.join(", ")
            )
        }
        (false, audience) => format!("; {}.", another_run_hint(audience)),
    });
    text
}

/// The stored result of a run that has ended, for a driver that comes too late. It is not reported under another setup.
pub(crate) async fn already_complete(
    ports: &Ports,
    settings: &RunSettings,
) -> Result<Option<(Conclusion, RunRecord)>, RunError> {
    let run = ports.store.run(&ports.lease.run_id).await.map_err(RunError::at("read the run"))?;
    if !run.status.is_terminal() {
        return Ok(None);
    }
    let records = ports.store.load(&run.run_id).await.map_err(RunError::at("load the run"))?;
    let diff = match records.current_step() {
        Some(step) => effective_pins(&records, step)?.diff(&fingerprint_now(ports, settings, &run.spec, &step.phase)),
        None => FingerprintDiff::default(),
    };
    match admit_turn(run.turn_index + 1, StoredTurns::of(&run), &diff)? {
        TurnAdmission::AlreadyComplete => Ok(Some((conclusion_of(&run), run))),
        TurnAdmission::Execute | TurnAdmission::Skip => Ok(None),
    }
}

fn conclusion_of(run: &RunRecord) -> Conclusion {
    match run.status {
        RunStatus::Succeeded => Conclusion::Succeeded { final_output: run.final_output.clone().unwrap_or_default() },
        RunStatus::Cancelled => Conclusion::Cancelled,
        RunStatus::Failed
        | RunStatus::Queued
        | RunStatus::Running
        | RunStatus::WaitingForHuman
        | RunStatus::Stopped => Conclusion::Failed { why: run.status_detail.clone().unwrap_or_default() },
    }
}
