//! Asking a person, at the start of a job and of a resume, about what nobody has trusted yet.

use ua_classify::PolicyRules;
use ua_core::{PrintedCommand, RunSpec, ShowPath as _};

use crate::error::HostError;
use crate::host::Host;
use crate::launch::Launch;
use crate::people::{People, Presence};
use crate::placed::{FileKind, Place, Placed};
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
