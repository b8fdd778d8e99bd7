//! Who stands above this process: an agent must not decide what a person is asked.
//!
//! A known agent marks what it starts. Any other one is known by the bridge that it started, as long as what answers is below it; and what it lets
//! go of, into a session of its own, has no terminal. A person's own script has none either, and a token instead, of which the gateway's folder has a
//! digest only.
//!
//! An agent with a shell runs programs as its user, so this holds off no agent that means to pass; it holds off one that only goes on.
//! Proved by: `tests/e2e/gateway.rs`.

use std::fs;
use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};

use ua_broker::{Tokens, ask_broker};
use ua_store::RunRecord;

use super::SOCKET;
use crate::error::HostError;
use crate::host::Host;
use crate::settings::believed;

/// Who may answer without a terminal: digests of their tokens, in the gateway's folder.
pub(super) const APPROVERS: &str = "approvers.json";
/// The variable that one of them gives their token in.
const TOKEN: &str = "UA_APPROVER_TOKEN";

/// What agents set for what they start, each with the agent. `CURSOR_TRACE_ID` is none: a person's own terminal in Cursor has it too.
const MARKS: [(&str, &str); 11] = [
    ("CLAUDECODE", "Claude Code"),
    ("CODEX_SANDBOX", "Codex"),
    ("CODEX_SANDBOX_NETWORK_DISABLED", "Codex"),
    ("CODEX_THREAD_ID", "Codex"),
    ("GROK_SESSION_ID", "Grok"),
    ("GEMINI_CLI", "Gemini CLI"),
    ("GOOSE_TERMINAL", "goose"),
    ("CURSOR_AGENT", "Cursor"),
    ("OPENCODE", "OpenCode"),
    // Agreed on by several: goose, Amp and others put their name there.
    ("AGENT", "`AGENT` is set"),
    ("AI_AGENT", "`AI_AGENT` is set"),
];
/// How many processes are looked at.
const MOST: usize = 64;

/// The processes above this one, the nearest first.
pub(super) fn ancestors() -> Vec<u32> {
    let mut above = Vec::new();
    let mut process = std::os::unix::process::parent_id();
    while process > 0 && above.len() < MOST {
        above.push(process);
        process = parent_of(process).unwrap_or(0);
    }
    above
}

fn parent_of(process: u32) -> Option<u32> {
    field(&process.to_string(), 1)?.parse().ok()
}

/// A field of what the kernel says of a process, counted from behind its name.
#[expect(clippy::disallowed_methods, reason = "the kernel's own files")]
fn field(process: &str, place: usize) -> Option<String> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // Its name may hold anything; what follows it does not.
    stat.rsplit_once(')')?.1.split_whitespace().nth(place).map(str::to_owned)
}

/// Whether a terminal controls this process, as it does what a person starts in one, also where its input is a pipe.
fn has_terminal() -> bool {
    match field("self", 4) {
        Some(terminal) => terminal != "0",
        None => std::io::stdin().is_terminal(),
    }
}

/// Who may answer without a terminal, in the folder of this gateway.
pub fn approvers(root: &Path) -> Tokens {
    Tokens::at(root.join(APPROVERS))
}

/// Refuses what only a person may say of a session of the gateway where no person can be seen. `what` is that, as the beginning of a sentence:
/// "question q must be answered".
///
/// # Errors
/// It was started by an agent or a client, or without a terminal, and has no token of an approver.
pub async fn only_people(host: &Host, run: &RunRecord, what: &str) -> Result<(), HostError> {
    if ua_store::is_gateway(run) { only_people_may(host, what).await } else { Ok(()) }
}

/// The same, whatever it is about.
///
/// # Errors
/// See there.
pub async fn only_people_may(host: &Host, what: &str) -> Result<(), HostError> {
    let mut roots = vec![host.home().root().to_path_buf()];
    // On a server the session may be of the user's own gateway, whatever root its question was found from.
    if let Ok(own) = super::root(host.settings(), None)
        && own != roots[0]
    {
        roots.push(own);
    }
    if is_approved(host, &roots)? {
        return Ok(());
    }
    let who = match marked_above() {
        Some(agent) => format!("was started by an agent ({agent})"),
        None => match client_above(&roots, &ancestors()).await {
            Some(client) => {
                format!("was started by process {client}, which is a client of the gateway, or by one below it")
            }
            None if has_terminal() => return Ok(()),
            None => "has no terminal, as what an agent starts has none".to_owned(),
        },
    };
    Err(HostError::usage(format!("{what} by a person, and this command {who}")).hint(format!(
        "run it in a terminal of your own (`ssh -t` has one); a script of yours gets a token by `ua gateway token NAME --approver`, and gives it in {TOKEN}"
    )))
}

/// Whether the environment has a token of an approver. One that is wrong is an error: whoever gave it takes it for right.
fn is_approved(host: &Host, roots: &[PathBuf]) -> Result<bool, HostError> {
    let Some(token) = host.settings().of_environment(TOKEN) else { return Ok(false) };
    for root in roots {
        let file = root.join(APPROVERS);
        if file.exists() {
            believed(&file)?;
            if approvers(root).whose(&token).is_some() {
                return Ok(true);
            }
        }
    }
    Err(HostError::usage(format!("{TOKEN} is not the token of an approver of this gateway"))
        .hint("`ua gateway token NAME --approver` in a terminal of yours makes one"))
}

/// The nearest of these processes that started a bridge which is connected now. The first process of the system is nobody's client, unless in a
/// container, where what a person starts is not below it.
async fn client_above(roots: &[PathBuf], above: &[u32]) -> Option<u32> {
    let mut clients = Vec::new();
    for root in roots {
        // One that does not answer names none, and the other marks hold.
        let status = ask_broker(&root.join(SOCKET), false).await.ok().flatten().unwrap_or_default();
        clients
            .extend(status["bridges"].as_array().into_iter().flatten().filter_map(|bridge| bridge["parent"].as_u64()));
    }
    above.iter().copied().find(|process| *process > 1 && clients.contains(&u64::from(*process)))
}

/// The agent that this process, or one above it, was started by, as far as its marks are there.
#[expect(clippy::disallowed_methods, reason = "the kernel's own files")]
fn marked_above() -> Option<&'static str> {
    let mut own = std::iter::once("self".to_owned()).chain(ancestors().into_iter().map(|process| process.to_string()));
    own.find_map(|process| marked(&fs::read(format!("/proc/{process}/environ")).ok()?))
}

/// The agent whose mark stands in an environment.
fn marked(environment: &[u8]) -> Option<&'static str> {
    environment.split(|byte| *byte == 0).find_map(|variable| {
        let (name, value) = std::str::from_utf8(variable).ok()?.split_once('=')?;
        MARKS.iter().find(|(mark, _)| *mark == name && !matches!(value, "" | "0")).map(|(_, agent)| *agent)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_agent_is_known_by_its_mark() {
        assert_eq!(marked(b"PATH=/bin\0CLAUDECODE=1\0"), Some("Claude Code"));
        assert_eq!(marked(b"CODEX_SANDBOX_NETWORK_DISABLED=1\0"), Some("Codex"));
        assert_eq!(marked(b"AGENT=goose\0"), Some("`AGENT` is set"));
        assert_eq!(marked(b"AI_AGENT=1\0"), Some("`AI_AGENT` is set"));
        for none in [
            &b""[..],
            b"CURSOR_TRACE_ID=1\0",
            b"SSH_AGENT_PID=1\0",
            b"CLAUDECODE=0\0",
            b"CLAUDECODE=\0",
            b"MY_CLAUDECODE=1\0",
            b"\xff=1\0",
        ] {
            assert_eq!(marked(none), None);
        }
        assert!(
            ancestors().last().is_some_and(|first| *first == 1 || parent_of(*first).is_none_or(|above| above == 0))
        );
    }
}
