//! Research by files (Context Storage & Durability §5): searches and pages land in the inbox `search_results/`, are
//! made one corpus with its sources, and that a ledger of what can be cited. Every output is a function of the inbox and
//! replaces its own file, so each tool may be asked again at any time.

pub(super) mod corpus;
pub(super) mod evidence;
mod extract;
mod inbox;
pub(super) mod read_many;
pub(super) mod search;

use std::path::PathBuf;

use crate::answer::Failure;

/// The folder of a task.
fn folder_of(task_name: &str) -> Result<PathBuf, Failure> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    if (1..=64).contains(&task_name.len()) && task_name.chars().all(is_plain) {
        return Ok(PathBuf::from("tasks").join(task_name));
    }
    Err(Failure::refused(
        format!("{task_name:?} is not the name of a task"),
        "use 1 to 64 letters, digits, `-` and `_`, such as q3-market",
    ))
}

fn default_task() -> String {
    "default".to_owned()
}
