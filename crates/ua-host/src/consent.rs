//! Asking a person, at the start of a job and of a resume, about what nobody has trusted yet.

use ua_classify::PolicyRules;
use ua_core::{PrintedCommand, RunSpec, ShowPath as _};

use crate::error::HostError;
use crate::host::Host;
use crate::launch::Launch;
use crate::people::{People, Presence};
use crate::placed::{FileKind, Place, Placed};
use crate::settings::Settings;
use crate::trust;

/// Asks about the servers that a job needs and that nobody let in, while somebody is here. Without anybody, or after a no, the check that
/// follows refuses them.
pub(crate) async fn ask_about(
    host: &Host,
    people: &dyn People,
    launch: &Launch,
    spec: &RunSpec,
) -> Result<(), HostError> {
    let may_ask = people.presence() == Presence::Here;
    let Some(file) = launch.mcp_file().filter(|file| file.is_found && may_ask) else { return Ok(()) };
    let unknown = launch.untrusted_servers(host.settings(), spec)?;
    if !unknown.is_empty() && people.ask_to_trust(&file.path, &unknown).await? {
        trust::remember(host, &file, unknown)?;
    }
    Ok(())
}

/// The questions that a job may take away, by its fields.
const QUESTIONS: [&str; 3] =
    ["ask_human_on_tainted_effect", "ask_human_on_ambiguous_recipient", "no_duplicate_external_actions"];

/// Whether the user wants to be asked about effects of a tainted run, whatever its job says.
fn always_asks_once_tainted(settings: &Settings) -> bool {
    settings.is_on("UA_ASK_ON_TAINTED_EFFECT")
}

/// Lets no job take away what the user wants to be asked.
pub(crate) fn keep_questions(settings: &Settings, spec: &mut RunSpec) {
    spec.escalation.ask_human_on_tainted_effect |= always_asks_once_tainted(settings);
}

/// Refuses to drive a run whose job, as it is stored, takes away what the user wants to be asked.
///
/// # Errors
/// It does.
pub(crate) fn check_questions(settings: &Settings, spec: &RunSpec) -> Result<(), HostError> {
    if spec.escalation.ask_human_on_tainted_effect || !always_asks_once_tainted(settings) {
        return Ok(());
    }
    Err(HostError::usage(format!(
        "the job of this run sends unasked what it has read (`escalation.ask_human_on_tainted_effect` is false), and {} says that you want to be asked",
        settings.said_as("UA_ASK_ON_TAINTED_EFFECT")
    ))
    .hint("`ua fork` continues the run as one that asks; or set it to false for this command")
    .not_begun())
}

/// Which questions a job takes away, in a sentence; `None` when it takes none.
pub(crate) fn lifted_questions(spec: &RunSpec) -> Option<String> {
    let lifts = spec.lifts();
    let questions = lifts.iter().filter(|lift| QUESTIONS.iter().any(|field| lift.contains(field)));
    let questions: Vec<&str> = questions.map(String::as_str).collect();
    (!questions.is_empty()).then(|| format!("note: this job, without a question: {}", questions.join("; ")))
}

/// Says at each start which questions a job takes away: whoever starts it need not have written it.
pub(crate) fn tell_lifted_questions(people: &dyn People, spec: &RunSpec) {
    if let Some(lifted) = lifted_questions(spec) {
        people.tell(&lifted);
    }
}

/// Says once that nothing but the database says how a run is started, where that decides something.
pub(crate) fn tell_unsaid(people: &dyn People, launch: &Launch) {
    if launch.is_unsaid() {
        people.tell(
            "note: your own ua did not begin this run, or before its folder was yours, so what is stored of its start counts as found: its tool \
             servers have to be trusted, its policies can only raise caution, and no private address is reached; `--mcp-config` names its file of \
             servers again, and `--trust-root` believes what is stored",
        );
    }
}

/// Says once that policy files of a job only raise caution.
pub(crate) fn tell_untrusted_policies(host: &Host, people: &dyn People, launch: &Launch) {
    for file in launch.untrusted_policies(host.settings()) {
        // What only raises caution counts as it is.
        let text = Place::named(FileKind::Policy, &file).read().map(Placed::into_text).unwrap_or_default();
        if PolicyRules::parse(&text, &file.shown().to_string()).is_ok_and(|rules| rules.only_raises()) {
            continue;
        }
        let trust = PrintedCommand::of("ua trust").word(&file).in_code();
        let file = file.shown().to_string();
        people.tell(&format!(
            "note: the job's policy file {file} is not trusted as it is, so it can only raise caution; {trust} shows it and asks"
        ));
    }
}
