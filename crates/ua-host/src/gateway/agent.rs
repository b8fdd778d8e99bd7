//! Who stands above this process: an agent must not decide what a person is asked.
//!
//! An agent with a shell runs programs as its user, so this holds off no agent that means to pass; it holds off one that only goes on.

use std::fs;

use ua_store::RunRecord;

use crate::error::HostError;

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

#[expect(clippy::disallowed_methods, reason = "the kernel's own files")]
fn parent_of(process: u32) -> Option<u32> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // Its name may hold anything; what follows it does not.
    stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
}

/// Refuses what only a person may say of a session of the gateway where an agent stands above. `what` is that, as the beginning of a sentence:
/// "question q must be answered".
///
/// # Errors
/// It was started by an agent.
pub fn only_people(run: &RunRecord, what: &str) -> Result<(), HostError> {
    let agent = if ua_store::is_gateway(run) { above() } else { None };
    let Some(agent) = agent else { return Ok(()) };
    Err(HostError::usage(format!("{what} by a person, and this command was started by an agent ({agent})"))
        .hint("run it in a terminal of your own"))
}

/// The agent that this process, or one above it, was started by, as far as can be seen.
#[expect(clippy::disallowed_methods, reason = "the kernel's own files")]
fn above() -> Option<&'static str> {
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
