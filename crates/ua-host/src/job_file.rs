//! Reading a job: a file, or text that came another way.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use ua_core::{RunSpec, ShowPath as _, SpecError};

use crate::error::HostError;
use crate::paths::{NO_FILE, cannot_read_or, job_dir, json_fragment, without_bom};
use crate::placed::{FileKind, Place};
use crate::settings::Settings;

/// The largest job file.
pub const MAX_JOB_BYTES: u64 = 256 * 1024;

/// Reads a job file.
pub fn read(settings: &Settings, file: &Path) -> Result<RunSpec, HostError> {
    let whole = settings.absolute(file)?;
    if let Some(size) = fs::metadata(&whole).ok().map(|meta| meta.len()).filter(|size| *size > MAX_JOB_BYTES) {
        return Err(too_large(&file.shown(), size));
    }
    let text = ua_files::read_text(&whole, MAX_JOB_BYTES).map_err(|e| {
        let missing = "a job file is JSON: `ua job --help` shows one, `ua init` writes one";
        let failure = cannot_read_or("the job file", file, &e, missing);
        if e.kind() == ErrorKind::InvalidData {
            failure.hint("a job file is JSON, in UTF-8 text").not_begun()
        } else {
            failure
        }
    })?;
    // The name as it was typed stands in what is told.
    Place::named(FileKind::Job, file).at(&whole).with(text).parse(|text| parse(settings, file, text))
}

fn too_large(file: &dyn std::fmt::Display, size: impl std::fmt::Display) -> HostError {
    HostError::usage(format!("{file} has {size} bytes; a job file has at most {MAX_JOB_BYTES}"))
        .hint("move material into separate files, and name them in the job")
}

/// Reads the text of a job. `file` is where it stands, or would.
pub(crate) fn parse(settings: &Settings, file: &Path, text: &str) -> Result<RunSpec, HostError> {
    let name = if file == Path::new(NO_FILE) {
        "invalid job on standard input".to_owned()
    } else {
        format!("invalid job file {}", file.shown())
    };
    if text.len() as u64 > MAX_JOB_BYTES {
        return Err(too_large(&"the job on standard input", text.len()));
    }
    // Inside a job file `${JOB_DIR}` is its folder, so that a job can name files beside it wherever it lies.
    let text = without_bom(text).replace("${JOB_DIR}", &json_fragment(&job_dir(settings, file)?));
    RunSpec::parse(&text).map_err(|error| {
        let failure = HostError::usage(format!("{name}: {}", error.why()));
        match error {
            SpecError::Syntax(_) => failure.hint("a job file is a JSON object with at least an `objective`"),
            SpecError::UnknownField { .. } => failure.hint("`ua schema job-file` lists every field").not_begun(),
            SpecError::Invalid { .. } => failure.hint("`ua schema job-file` describes the field").not_begun(),
            SpecError::Several(_) => failure.hint("`ua schema job-file` describes each field").not_begun(),
        }
    })
}
