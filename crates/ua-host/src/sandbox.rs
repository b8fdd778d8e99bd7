//! What confines the programs that a job starts with `run_command`: settings of the user, as flags of our own tool server.
//!
//! The walls themselves are `ua_toolserver`'s.

use std::path::{Path, PathBuf};

use ua_files::Closed;

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

/// What files of a job in `job_dir` may not be, though they lie below it: what neither programs nor `file` addresses see. A job may lie in the home
/// itself, though, and name what lies in the open there.
pub(crate) fn closed_to_files(settings: &Settings, root: &Path, job_dir: &Path) -> Closed {
    let of_job = job_dir.canonicalize().ok();
    let home = settings.var("HOME").and_then(|home| settings.absolute(Path::new(&home)).ok());
    let is_home_of_job =
        |path: &PathBuf| of_job.is_some() && Some(path) == home.as_ref() && path.canonicalize().ok() == of_job;
    let private = private(settings, root, job_dir).into_iter().filter(|path| !is_home_of_job(path));
    Closed::new(&private.collect::<Vec<_>>())
}

/// Whether programs may use the network.
pub fn has_network(settings: &Settings) -> bool {
    settings.is_on("UA_COMMAND_NETWORK")
}

/// Whether programs may reach others: by the network, or because nothing confines them.
pub(crate) fn reaches_out(settings: &Settings) -> bool {
    has_network(settings) || settings.var("UA_COMMAND_SANDBOX").as_deref() == Some("off")
}

/// The settings that name where our own tools write.
const KEPT: [&str; 5] = ["tools.mail", "tools.outbox", "tools.objects", "tools.notifications", "tools.memory"];

/// What programs, `file` addresses and files of a job may not see, wherever it lies: the user's home and folders for programs, what `ua` keeps
/// in them, and where runs are kept, these and others.
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
#[expect(clippy::disallowed_methods, reason = "tests make the folders that they look at")]
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

    #[test]
    fn a_job_in_the_home_itself_reads_what_lies_in_the_open_there_and_nothing_of_uas() {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().canonicalize().unwrap();
        let home = place.join("home");
        let own = home.join("AGENT_RUN_WORKSPACES");
        for name in [".config/ua", ".local/state/ua", "AGENT_RUN_WORKSPACES", "jobs"] {
            std::fs::create_dir_all(home.join(name)).unwrap();
        }
        let variables = [("HOME".to_owned(), home.display().to_string())];
        let settings = Settings::read(Process {
            variables: variables.into_iter().collect(),
            folder: Some(home.clone()),
            program: None,
        });
        let closed = closed_to_files(&settings, &own, &home);
        assert!(!closed.has(&home, &home.join("report.md")));
        for private in
            [".config/ua/config.toml", ".local/state/ua/trust.json", "AGENT_RUN_WORKSPACES/effects.log", ".ssh/id"]
        {
            assert!(closed.has(&home, &home.join(private)), "{private}");
        }
        // A job above the home reads nothing of it, and one in a folder of it what is beside it.
        assert!(closed_to_files(&settings, &own, &place).has(&place, &home.join("report.md")));
        let jobs = home.join("jobs");
        assert!(!closed_to_files(&settings, &own, &jobs).has(&jobs, &jobs.join("report.md")));
    }
}
