//! What commands write before a run and between runs: `ua init`, `ua job --check`, `ua status`.

use std::collections::BTreeMap;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::Serialize;
use ua_core::{Costs, RunId};
use ua_host::gateway::CallsLately;

use super::{OpenQuestion, RunRow, ToolRow};

/// A project that was made.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ProjectMade {
    /// Its folder.
    pub(crate) dir: PathBuf,
    /// The files that were written.
    pub(crate) files: Vec<PathBuf>,
}

/// What is known about a job that was not started.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct JobChecked {
    /// Whether it would start.
    pub(crate) would_start: bool,
    /// What it is for.
    pub(crate) objective: String,
    /// The model provider.
    pub(crate) provider: String,
    /// The provider's name of the model.
    pub(crate) model: String,
    /// The tools that it would be offered.
    pub(crate) tools: Vec<ToolRow>,
    /// Its conditions and selectors, and what each selects.
    pub(crate) words: Vec<CheckedWord>,
    /// The effects that its conditions count, and by which tools.
    pub(crate) counted_effects: Vec<CheckedEffect>,
    /// The rules of its policy files and of the user's, and the names in the user's lists.
    pub(crate) rules: Vec<CheckedRule>,
    /// That mails of the built-in `send_email` go into a folder, since no mail server is set; null where they do not.
    pub(crate) mail_folder: Option<String>,
    /// What it does without a question that it could be asked about: questions that it switches off, destinations and recipients that it allows,
    /// programs that it runs.
    pub(crate) not_asked: Vec<String>,
    /// What of the script that plays its model would fail when it is played.
    pub(crate) script_doubts: Vec<String>,
    /// What is in doubt about the name of its model; null when a model of this name is known.
    pub(crate) model_doubt: Option<String>,
    /// Which of its budgets end every run of it before it is done, and what they would have to be.
    pub(crate) budget_doubts: Vec<String>,
    /// The run that has its job key.
    #[schemars(with = "Option<String>")]
    pub(crate) job_key_used_by: Option<RunId>,
    /// An unfinished run of the same job.
    #[schemars(with = "Option<String>")]
    pub(crate) unfinished_run: Option<RunId>,
}

/// A word of a job that selects tools.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct CheckedWord {
    /// The field that it is in.
    pub(crate) field: &'static str,
    /// The word itself; of a condition the effect kind, or the file.
    pub(crate) word: String,
    /// The tools that it selects.
    pub(crate) tools: Vec<String>,
    /// Whether it is the name of anything; a job with one that is not does not start.
    pub(crate) is_known: bool,
    /// Of one that is not, the name that is most like it.
    pub(crate) nearest: Option<String>,
}

/// An effect that the conditions of a job count.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct CheckedEffect {
    /// Its kind.
    pub(crate) effect: String,
    /// The tools that are counted for it.
    pub(crate) tools: Vec<String>,
    /// The tools that may make it and are not counted, because their effect is not declared; those first whose name suggests it.
    pub(crate) undeclared: Vec<String>,
}

/// A rule of a policy file, or a name in a setting.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct CheckedRule {
    /// The policy file, or the setting.
    pub(crate) place: String,
    /// The rule's id, or the name.
    pub(crate) rule: String,
    /// The tools that it is about.
    pub(crate) tools: Vec<String>,
}

/// What is running, what waits for a person, and what it costs.
#[derive(Debug, Default, Serialize, JsonSchema)]
pub(crate) struct StatusShown {
    /// Runs that are not finished, the newest first.
    pub(crate) runs: Vec<StatusRun>,
    /// Questions that wait for an answer.
    pub(crate) questions: Vec<OpenQuestion>,
    /// Questions of the user's gateway that wait for an answer; they are in a folder of its own.
    pub(crate) gateway_questions: Vec<OpenQuestion>,
    /// What went through the user's gateway in the last 24 hours; none where nobody uses one.
    pub(crate) gateway_lately: Option<GatewayLately>,
    /// What the requests of these runs cost, one amount per currency, as far as prices are known.
    #[schemars(with = "serde_json::Value")]
    pub(crate) cost_of_open: Costs,
    /// What the requests of the runs that ended in the last 24 hours cost.
    #[schemars(with = "serde_json::Value")]
    pub(crate) cost_of_ended: Costs,
    /// Requests of the runs that are not added to the first of these sums, for want of a price.
    #[serde(skip)]
    pub(crate) unpriced_of_open: u32,
    /// The same of the second.
    #[serde(skip)]
    pub(crate) unpriced_of_ended: u32,
    /// Runs that succeeded in the last 24 hours.
    pub(crate) succeeded_lately: u32,
    /// Runs that failed in the last 24 hours.
    pub(crate) failed_lately: u32,
    /// Runs that were cancelled in the last 24 hours.
    pub(crate) cancelled_lately: u32,
}

/// The calls that clients made through the gateway in the last 24 hours.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct GatewayLately {
    /// All of them.
    pub(crate) calls: u32,
    /// Those with an effect, by where they stand: succeeded, failed, `failed, may have happened`, unknown, running, not sent yet,
    /// not repeated.
    pub(crate) effects: BTreeMap<&'static str, u32>,
}

impl From<CallsLately> for GatewayLately {
    fn from(found: CallsLately) -> Self {
        Self { calls: found.calls, effects: found.effects }
    }
}

/// A run that is not finished.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct StatusRun {
    /// The run.
    #[serde(flatten)]
    pub(crate) run: RunRow,
    /// The command that resumes it; who does, where no command can.
    pub(crate) resume_with: String,
    /// Why no worker continues it, or none of this machine, and what to do about it.
    pub(crate) blocked: Option<String>,
    /// What is away that it waits for while a process of this machine drives it (its provider, a tool server, the database): since when, why and until when.
    pub(crate) waits: Option<String>,
    /// Whether that comes to the same until something outside is corrected.
    #[serde(skip)]
    pub(crate) needs_correction: bool,
    /// Whether nothing but a resume is missing.
    #[serde(skip)]
    pub(crate) waits_for_a_resume: bool,
    /// Who gets it further where no command does, as a sentence: the program that began it.
    #[serde(skip)]
    pub(crate) resumed_by: Option<String>,
    /// Why it is stopped, for a person.
    #[serde(skip)]
    pub(crate) why: Option<String>,
}
