//! What confines the programs that a job starts with `run_command`: settings of the user, as flags of our own tool server.
//!
//! The walls themselves are `ua_toolserver`'s.

use std::path::{Path, PathBuf};

use crate::error::HostError;
use crate::settings::Settings;

/// Limits, each as its flag and its variable.
const LIMITS: [(&str, &str); 5] = [
    ("--command-processes", "UA_COMMAND_PROCESSES"),
    ("--command-open-files", "UA_COMMAND_OPEN_FILES"),
    ("--command-memory-mib", "UA_COMMAND_MEMORY_MIB"),
    ("--command-file-mib", "UA_COMMAND_FILE_MIB"),
    ("--command-cpu-seconds", "UA_COMMAND_CPU_SECONDS"),
];

/// The words of `run_command.sandbox`.
pub const HOW: &[&str] = &["auto", "required", "off"];

/// The flags that tell our tool server how to confine programs.
pub(crate) fn flags(settings: &Settings) -> Result<Vec<String>, HostError> {
    let mut flags = Vec::new();
    if let Some(how) = settings.var("UA_COMMAND_SANDBOX") {
        if !HOW.contains(&how.as_str()) {
            return Err(
                HostError::usage(format!("UA_COMMAND_SANDBOX is {how:?}")).hint("it takes auto, required or off")
            );
        }
        flags.push(format!("--command-sandbox={how}"));
    }
    if has_network(settings) {
        flags.push("--command-network".to_owned());
    }
    for (flag, variable) in LIMITS {
        let Some(text) = settings.var(variable) else { continue };
        let number: u64 = text.parse().map_err(|_| {
            HostError::usage(format!("{variable} is {text:?}")).hint("it takes a whole number; 0 is no limit")
        })?;
        flags.push(format!("{flag}={number}"));
    }
    let read = settings.var("UA_COMMAND_READ").unwrap_or_default();
    let read = std::env::split_paths(&read).filter(|folder| folder.is_absolute());
    flags.extend(read.map(|folder| format!("--command-read={}", folder.to_string_lossy())));
    Ok(flags)
}

/// The flags that tell our tool server what neither programs nor `file` addresses see.
pub(crate) fn private_flags(settings: &Settings, root: &Path, job_dir: &Path) -> Vec<String> {
    private(settings, root, job_dir)
        .into_iter()
        .map(|folder| format!("--command-private={}", folder.to_string_lossy()))
        .collect()
}

/// Whether programs may use the network.
pub fn has_network(settings: &Settings) -> bool {
    settings.is_on("UA_COMMAND_NETWORK")
}

/// The settings that name where our own tools write.
const KEPT: [&str; 5] = ["tools.mail", "tools.outbox", "tools.objects", "tools.notifications", "tools.memory"];

/// What programs and `file` addresses may not see, wherever it lies: the user's home and folders for programs, what `ua` keeps in them, and
/// where runs are kept, these and others.
fn private(settings: &Settings, root: &Path, job_dir: &Path) -> Vec<PathBuf> {
    let folders = ["HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_DATA_HOME", "XDG_RUNTIME_DIR"];
    let mut private: Vec<PathBuf> = folders.iter().filter_map(|name| settings.var(name)).map(PathBuf::from).collect();
    let database = settings.var("UA_RUNTIME_DB_PATH").map(PathBuf::from);
    private.extend(database.as_deref().and_then(Path::parent).map(Path::to_path_buf));
    // By themselves too: a job may lie in a folder that holds them, below the home.
    private.extend(crate::roots::state_folder(settings));
    let config = settings.var("XDG_CONFIG_HOME").map(PathBuf::from);
    let config = config.or_else(|| Some(PathBuf::from(settings.var("HOME")?).join(".config")));
    private.extend(config.map(|config| config.join("ua")));
    private.push(root.to_path_buf());
    // Where our tools put what they send and keep, of all runs.
    private.extend(settings.places().into_iter().filter(|(key, _)| KEPT.contains(key)).map(|(_, place)| place));
    // The user's other roots below what is opened, however deep; the server looks for roots that nobody noted.
    let read = settings.var("UA_COMMAND_READ").unwrap_or_default();
    let opened =
        std::env::split_paths(&read).chain([job_dir.to_path_buf()]).filter_map(|folder| folder.canonicalize().ok());
    let opened: Vec<PathBuf> = opened.collect();
    let others = crate::roots::Roots::new(crate::roots::state_folder(settings)).all();
    private.extend(others.into_iter().filter(|other| opened.iter().any(|folder| other.starts_with(folder))));
    private.into_iter().filter_map(|folder| settings.absolute(&folder).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::env::Process;
    use crate::roots::{Roots, state_folder};

    #[test]
    fn other_roots_and_what_our_tools_keep_below_the_folder_of_a_job_are_private() {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().canonicalize().unwrap();
        let (job, elsewhere) = (place.join("job"), place.join("elsewhere/runs"));
        let other = job.join("deep/a/b/c/d/e/f/g/runs");
        let kept = [
            ("UA_MEMORY", "", "memory.db"),
            ("UA_MAIL", "maildir:", "mail"),
            ("UA_OUTBOX", "", "outbox"),
            ("UA_OBJECTS", "file://", "objects"),
            ("UA_NOTIFICATIONS", "", "told"),
        ];
        let variables = kept.map(|(name, begins, file)| (name, format!("{begins}{}", job.join(file).display())));
        let home = ("HOME", place.join("home").display().to_string());
        let variables = variables.into_iter().chain([home]).map(|(name, value)| (name.to_owned(), value));
        let settings =
            Settings::read(Process { variables: variables.collect(), folder: Some(job.clone()), program: None });
        let roots = Roots::new(state_folder(&settings));
        roots.make(&other).unwrap();
        roots.make(&elsewhere).unwrap();
        let flags = private_flags(&settings, &place.join("own"), &job);
        let is_private = |path: &Path| flags.contains(&format!("--command-private={}", path.display()));
        assert!(
            is_private(&other)
                && kept.iter().all(|(_, _, file)| is_private(&job.join(file)))
                && is_private(&place.join("own")),
            "{flags:?}"
        );
        assert!(!is_private(&elsewhere), "nothing opens it: {flags:?}");
        std::fs::remove_dir_all(&other).unwrap();
        let gone = format!("--command-private={}", other.display());
        assert!(!private_flags(&settings, &place.join("own"), &job).contains(&gone));
    }
}
