//! Whether a person speaks: words that let something happen are not taken from a program that a tool server started.
//!
//! A job may run programs (`run_command`), and a model could have one of them answer its own question. Tool servers live below a shim;
//! a command that finds the shim among its ancestors was started by one. A shim is the parent of whatever loses its own below it, so a daemon
//! finds it, too, and ends with it. This is no wall against code that runs with the user's rights (it could kill the shim first, or write the
//! database file itself); it keeps a model from approving itself by the front door.

use crate::error::HostError;

/// More ancestors than a process has.
const MAX_ANCESTORS: usize = 64;

/// Refuses a command that was started by a tool server. `doing` says what it would do.
pub(crate) fn required(doing: &str) -> Result<(), HostError> {
    if is_below_a_shim() {
        return Err(HostError::usage(format!("cannot {doing} from inside a tool server"))
            .hint("a person does this, in a terminal of their own"));
    }
    Ok(())
}

/// Whether this process was started, over however many others, by a tool server of ours. Where the system does not say, it was not.
pub(crate) fn is_below_a_shim() -> bool {
    // Not by the number that this process knows itself by: in a process namespace that is another one than `/proc` has.
    let mut process = "self".to_owned();
    for _ in 0..MAX_ANCESTORS {
        let Some(parent) = parent_of(&process).filter(|parent| *parent > 1) else { return false };
        let line = std::fs::read(format!("/proc/{parent}/cmdline")).unwrap_or_default();
        // Its first argument, as `ua __shim` is started.
        if line.split(|byte| *byte == 0).nth(1) == Some(b"__shim") {
            return true;
        }
        process = parent.to_string();
    }
    false
}

fn parent_of(process: &str) -> Option<u32> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The name stands in parentheses and may hold anything; behind the last one come the state and the parent.
    stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_knows_its_parent() {
        assert_eq!(parent_of("self"), Some(std::os::unix::process::parent_id()));
        assert!(required("answer").is_ok());
    }
}
