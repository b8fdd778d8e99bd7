//! The files of a job, as a front door meets them: taken when a run is made, compared when it goes on.

use std::path::Path;

use ua_core::{InputFile, RunSpec};
use ua_runner::{input_file_now, take_input_files};
use ua_store::NewBlob;

use crate::error::HostError;
use crate::host::Host;
use crate::people::People;
use crate::sandbox;

/// Takes the files that a job names, which lie in `folder`. Returns what they hold.
pub fn take(host: &Host, spec: &mut RunSpec, folder: &Path) -> Result<Vec<NewBlob>, HostError> {
    refuse_taken(spec)?;
    let closed = sandbox::closed_to_files(host.settings(), host.home().root(), folder);
    let held = take_input_files(spec, folder, &closed).map_err(|error| {
        let hint = if error.is_private {
            "if the model is to see it, copy it to a folder that is the job's alone, under a plain name"
        } else {
            "name PNG, JPEG, GIF or WebP images and UTF-8 texts below the folder of the job file"
        };
        HostError::usage(error.to_string()).hint(hint).not_begun()
    })?;
    for (file, blob) in spec.taken_files().zip(&held) {
        if let Some(name) = host.redactor().found_in(&blob.content) {
            return Err(HostError::usage(format!("the job's file {} contains the value of {name}", file.path))
                .hint("remove it: the file would be stored, and sent to the model")
                .not_begun());
        }
    }
    Ok(held)
}

/// A job says which files it wants; what they are is ours to say.
fn refuse_taken(spec: &RunSpec) -> Result<(), HostError> {
    match spec.taken_files().next() {
        None => Ok(()),
        Some(file) => Err(HostError::usage(format!("`files` describes {} instead of naming it", file.path))
            .hint("write the path alone, relative to the job file")
            .not_begun()),
    }
}

/// Refuses other files for a fork, which goes on with what its run was shown.
pub(crate) fn refuse_other(spec: &RunSpec) -> Result<(), HostError> {
    let named = spec.files.iter().find(|file| matches!(file, InputFile::Named(_)));
    named.map_or(Ok(()), |file| {
        Err(HostError::usage(format!("a fork cannot be given another file ({})", file.path())).hint(
            "it continues with the files of its run, or without any (`\"files\": null`); start a new job for other files",
        ))
    })
}

/// Refuses a job with images for a model that is not known to read any.
pub(crate) fn check_model(spec: &RunSpec, provider: &str, model: &str, reads_images: bool) -> Result<(), HostError> {
    // The first two answer by what was written down before. An agent that owns the loop opens the file itself.
    if reads_images || ["scripted", "replay", ua_claude_code::NAME].contains(&provider) {
        return Ok(());
    }
    match spec.files.iter().filter_map(InputFile::taken).find(|file| file.is_image()) {
        None => Ok(()),
        Some(file) => Err(HostError::usage(format!(
            "the job has an image ({}), and the model {model} of {provider} is not known to read images",
            file.path
        ))
        .hint(format!(
            "choose another model, or, if it reads images, say so in your models.toml: [{provider}.\"{model}\"] with `images = true` \
             (docs/guide/models.md)"
        ))),
    }
}

/// Says which files of the job are not any more what the run was started with: it goes on with what it was given.
pub(crate) fn tell_changed(host: &Host, people: &dyn People, spec: &RunSpec, folder: &Path) {
    if spec.files.is_empty() {
        return;
    }
    let closed = sandbox::closed_to_files(host.settings(), host.home().root(), folder);
    for file in spec.taken_files() {
        if let Some(now) = input_file_now(folder, &file.path, &closed).filter(|now| *now != file.sha256) {
            people.tell(&format!(
                "{} has changed since the run was started (SHA-256 {now}, was {}); the run continues with what it was started with",
                crate::text::place(&file.path),
                file.sha256
            ));
        }
    }
}

/// The files in which two contracts differ, if they differ in nothing else.
pub(crate) fn differing(stored: &RunSpec, given: &RunSpec) -> Option<Vec<String>> {
    let mut same = given.clone();
    same.files.clone_from(&stored.files);
    if same != *stored {
        return None;
    }
    let others = |a: &RunSpec, b: &RunSpec| {
        let missing = a.files.iter().filter(|file| !b.files.contains(file));
        missing.map(|file| file.path().to_owned()).collect::<Vec<String>>()
    };
    let mut paths = others(stored, given);
    paths.extend(others(given, stored));
    paths.sort();
    paths.dedup();
    Some(paths)
}
