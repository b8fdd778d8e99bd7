//! Paths as a front door is given them, and files that a person names.

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::error::HostError;
use crate::settings::Settings;

/// The most that is read of a file that a person names: configuration, policies, prices, scripts.
const MAX_BYTES: u64 = 64 * 1024 * 1024;

/// What a job file is called that is none: the job came on standard input.
pub const NO_FILE: &str = "-";

/// Reads a file of text, named by a whole path; `what` says which one it is in an error.
pub fn read(file: &Path, what: &str) -> Result<String, HostError> {
    let read = ua_files::read_text(file, MAX_BYTES).map_err(|e| {
        HostError::usage(format!("cannot read {what} {}: {e}", file.display()))
            .hint("correct the path, or leave it out; nothing was started")
    })?;
    Ok(without_bom(&read).to_owned())
}

/// Text without the byte order mark that some editors put in front of it; it says nothing about UTF-8, and no parser here takes it.
pub(crate) fn without_bom(text: &str) -> &str {
    text.strip_prefix('\u{feff}').unwrap_or(text)
}

/// The folder of a job file, absolute and without links, so that it can be compared with what tools are asked for.
pub fn job_dir(settings: &Settings, job: &Path) -> Result<PathBuf, HostError> {
    let file = settings.absolute(job)?;
    // A job on standard input is as one in the current folder.
    let (place, is_folder) = match file.parent().filter(|_| job == Path::new(NO_FILE)) {
        Some(folder) => (folder, true),
        None => (file.as_path(), false),
    };
    let whole = place.canonicalize();
    let whole = whole.map_err(|e| HostError::usage(format!("cannot read the job file {}: {e}", job.display())))?;
    let folder = if is_folder { Some(whole.as_path()) } else { whole.parent() };
    Ok(folder.unwrap_or(Path::new("/")).to_path_buf())
}

/// A path as it may stand inside a JSON string.
pub fn json_fragment(path: &Path) -> String {
    let quoted = Value::String(path.display().to_string()).to_string();
    quoted[1..quoted.len() - 1].to_owned()
}
