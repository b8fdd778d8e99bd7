//! What confines the programs that a job starts with `run_command`: settings of the user, as flags of our own tool server.
//!
//! The walls themselves are `ua_toolserver`'s. They are set up by this very program under a hidden name ([`CONFINED`]), which runs in front
//! of everything else in `main`: it reads no configuration, because the folder it is started in is the model's.

use std::path::{Path, PathBuf};

use crate::error::CliError;

/// The hidden name under which this program confines itself and becomes, or starts, a program of `run_command`.
#[cfg(feature = "toolserver")]
pub(crate) const CONFINED: &str = "__confined";

/// Limits, each as its flag and its variable.
const LIMITS: [(&str, &str); 5] = [
    ("--command-processes", "UA_COMMAND_PROCESSES"),
    ("--command-open-files", "UA_COMMAND_OPEN_FILES"),
    ("--command-memory-mib", "UA_COMMAND_MEMORY_MIB"),
    ("--command-file-mib", "UA_COMMAND_FILE_MIB"),
    ("--command-cpu-seconds", "UA_COMMAND_CPU_SECONDS"),
];

/// The words of `run_command.sandbox`.
pub(crate) const HOW: &[&str] = &["auto", "required", "off"];

/// Runs as the hidden program, when this process was started as that; its exit code then.
#[cfg(feature = "toolserver")]
pub(crate) fn run() -> Option<std::process::ExitCode> {
    let mut args = std::env::args_os().skip(1).peekable();
    args.next_if(|word| word == CONFINED)?;
    Some(std::process::ExitCode::from(u8::try_from(ua_toolserver::run_confined(args)).unwrap_or(1)))
}

/// This program under its hidden name.
#[cfg(feature = "toolserver")]
pub(crate) fn confiner() -> Option<ua_toolserver::Confiner> {
    let program = std::env::current_exe().ok()?;
    Some(ua_toolserver::Confiner { program, args: vec![CONFINED.into()] })
}

/// The flags that tell our tool server how to confine programs.
pub(crate) fn flags(root: &Path) -> Result<Vec<String>, CliError> {
    let mut flags = Vec::new();
    if let Some(how) = crate::env::var("UA_COMMAND_SANDBOX") {
        if !HOW.contains(&how.as_str()) {
            return Err(
                CliError::usage(format!("UA_COMMAND_SANDBOX is {how:?}")).hint("it takes auto, required or off")
            );
        }
        flags.push(format!("--command-sandbox={how}"));
    }
    if has_network() {
        flags.push("--command-network".to_owned());
    }
    for (flag, variable) in LIMITS {
        let Some(text) = crate::env::var(variable) else { continue };
        let number: u64 = text.parse().map_err(|_| {
            CliError::usage(format!("{variable} is {text:?}")).hint("it takes a whole number; 0 is no limit")
        })?;
        flags.push(format!("{flag}={number}"));
    }
    let read = crate::env::var("UA_COMMAND_READ").unwrap_or_default();
    let read = std::env::split_paths(&read).filter(|folder| folder.is_absolute());
    flags.extend(read.map(|folder| format!("--command-read={}", folder.display())));
    flags.extend(private(root).into_iter().map(|folder| format!("--command-private={}", folder.display())));
    Ok(flags)
}

/// Whether programs may use the network.
pub(crate) fn has_network() -> bool {
    crate::env::var("UA_COMMAND_NETWORK").is_some_and(|value| matches!(value.as_str(), "1" | "true"))
}

/// What programs may not see, wherever it lies: the user's home and folders for programs, and where runs are kept.
fn private(root: &Path) -> Vec<PathBuf> {
    let folders = ["HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_DATA_HOME", "XDG_RUNTIME_DIR"];
    let mut private: Vec<PathBuf> =
        folders.iter().filter_map(|name| crate::env::var(name)).map(PathBuf::from).collect();
    let database = crate::env::var("UA_RUNTIME_DB_PATH").map(PathBuf::from);
    private.extend(database.as_deref().and_then(Path::parent).map(Path::to_path_buf));
    private.push(root.to_path_buf());
    private.into_iter().filter_map(|folder| std::path::absolute(folder).ok()).collect()
}
