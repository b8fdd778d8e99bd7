//! Files that a job gives its model: named in the job, taken when the run starts, the same for as long as the run lives.
//!
//! Durable Jobs v1 spec §6 (the contract is immutable), Context Storage & Durability §4 (what is large is kept once, by its content).
//! A job names a path. When the run is made, the path becomes a [`TakenFile`]: kind, digest and the blob that holds it. From then on
//! nobody reads the path again, so a file that changes later changes nothing about the run.

use serde::{Deserialize, Serialize};

use crate::blob::BlobRef;
use crate::canonical::Sha256;
use crate::spec::{RunSpec, SpecError};

/// The folder of a workspace that holds the files of its job.
pub const INPUT_FOLDER: &str = "job_files";

/// A file that a job gives its model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum InputFile {
    /// Its path, relative to the folder of the job file: as a job says it.
    Named(String),
    /// What it was when the run was made of the job: as a run has it.
    Taken(TakenFile),
}

/// A file as it was when a run was made of its job.
#[derive(Debug, Clone, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TakenFile {
    /// Its path, relative to the folder of the job file.
    pub path: String,
    /// Its kind by its bytes: `image/png`, `image/jpeg`, `image/gif`, `image/webp` or `text/plain`.
    pub media_type: String,
    /// Its size in bytes.
    pub size: u64,
    /// The digest of its bytes.
    pub sha256: Sha256,
    /// What holds it: the text itself, the Base64 of an image.
    pub blob: BlobRef,
    /// Whether it is hidden, by its name or by that of what it leads to: what nobody meant to show is private. Files that an earlier version took
    /// say nothing of it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_hidden: bool,
}

/// The same file is the same whoever judged it: an earlier version stored no judgement, and its run is still that of its job.
impl PartialEq for TakenFile {
    fn eq(&self, other: &Self) -> bool {
        let of = |file: &Self| (file.size, file.sha256);
        (&self.path, &self.media_type, of(self), &self.blob) == (&other.path, &other.media_type, of(other), &other.blob)
    }
}

impl InputFile {
    /// The path, as the job says it.
    pub fn path(&self) -> &str {
        match self {
            Self::Named(path) => path,
            Self::Taken(file) => &file.path,
        }
    }

    /// What was taken, if it was.
    pub fn taken(&self) -> Option<&TakenFile> {
        match self {
            Self::Named(_) => None,
            Self::Taken(file) => Some(file),
        }
    }
}

impl TakenFile {
    /// Whether it is a picture; it is text otherwise.
    pub fn is_image(&self) -> bool {
        self.media_type.starts_with("image/")
    }

    /// Where it lies in the workspace of its run.
    pub fn place(&self) -> String {
        format!("{INPUT_FOLDER}/{}", self.path)
    }
}

impl RunSpec {
    /// The files that were taken when the run was made.
    pub fn taken_files(&self) -> impl Iterator<Item = &TakenFile> {
        self.files.iter().filter_map(InputFile::taken)
    }

    pub(crate) fn check_files(&self) -> Result<(), SpecError> {
        for (index, file) in self.files.iter().enumerate() {
            let invalid = |why: &str| Err(SpecError::Invalid { field: format!("files[{index}]"), why: why.to_owned() });
            let path = file.path();
            let is_plain =
                |part: &str| !part.is_empty() && part != "." && part != ".." && !part.contains(['\\', '\0', '\n']);
            if !path.split('/').all(is_plain) {
                return invalid("is not a path below the folder of the job file, like `chart.png` or `data/notes.md`");
            }
            if self.files[..index].iter().any(|earlier| earlier.path() == path) {
                return invalid("is named twice");
            }
        }
        Ok(())
    }

    /// What the opening prompt says about the files: which, of what kind, where they lie.
    pub(crate) fn files_prompt(&self) -> String {
        if self.files.is_empty() {
            return String::new();
        }
        let mut text =
            "\n# Files\n\nThese files belong to the job; what they show or say follows below.\n\n".to_owned();
        for file in &self.files {
            match file {
                InputFile::Named(path) => text.push_str(&format!("- {path}\n")),
                InputFile::Taken(file) => text.push_str(&format!(
                    "- {}: {}, {} bytes, SHA-256 {}; in the workspace as {}\n",
                    file.path,
                    file.media_type,
                    file.size,
                    file.sha256.to_hex(),
                    file.place()
                )),
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::canonical::sha256;

    #[test]
    fn a_file_is_a_path_in_a_job_and_a_digest_in_a_run() {
        let mut spec = RunSpec::parse(r#"{"objective": "look", "files": ["a/chart.png"]}"#).unwrap();
        assert_eq!(spec.files, [InputFile::Named("a/chart.png".to_owned())]);
        assert_eq!(spec.taken_files().count(), 0);
        spec.files = vec![InputFile::Taken(TakenFile {
            path: "a/chart.png".to_owned(),
            media_type: "image/png".to_owned(),
            size: 3,
            sha256: sha256("abc"),
            blob: BlobRef::of("YWJj"),
            is_hidden: false,
        })];
        let stored = serde_json::to_string(&spec).unwrap();
        assert_eq!(serde_json::from_str::<RunSpec>(&stored).unwrap(), spec);
        assert_eq!(RunSpec::parse(&stored).unwrap(), spec);
        // What an earlier version stored reads as it did, and is the same file also where it would be called hidden now.
        assert!(!stored.contains("is_hidden"), "{stored}");
        let mut now = spec.clone();
        for file in &mut now.files {
            let InputFile::Taken(file) = file else { panic!("it was taken") };
            file.is_hidden = true;
        }
        assert_eq!(now, spec);
        let stored = serde_json::to_string(&now).unwrap();
        assert!(RunSpec::parse(&stored).unwrap().taken_files().all(|file| file.is_hidden), "{stored}");
        let told = spec.opening_prompt();
        assert!(told.contains("a/chart.png: image/png, 3 bytes") && told.contains("job_files/a/chart.png"), "{told}");
        // A job without files is stored and told as it was before there were any.
        let plain = RunSpec::parse(r#"{"objective": "look"}"#).unwrap();
        assert!(!serde_json::to_string(&plain).unwrap().contains("files"));
        assert!(!plain.opening_prompt().contains("# Files"));
    }

    #[test]
    fn a_path_that_leaves_the_folder_of_the_job_is_refused() {
        for path in ["", "/etc/passwd", "../a.png", "a/../b.png", "a//b.png", "./a.png", "a\\b.png"] {
            let job = serde_json::json!({"objective": "o", "files": [path]}).to_string();
            let error = RunSpec::parse(&job).unwrap_err().to_string();
            assert!(error.contains("`files[0]` is not a path below"), "{path:?}: {error}");
        }
        let twice = RunSpec::parse(r#"{"objective": "o", "files": ["a.png", "a.png"]}"#).unwrap_err();
        assert!(twice.to_string().contains("`files[1]` is named twice"), "{twice}");
    }
}
