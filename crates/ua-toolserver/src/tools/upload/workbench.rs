//! `workbench_upload` and `workbench_download`: files that people, programs and jobs pass to each other by name.
//!
//! The workbench is the folder `workbench` of the object store. Other than `upload`, which never replaces an object, it keeps
//! the newest file under each name; the same file put there again changes nothing (Durable Jobs v1 spec §7.3).

pub(in crate::tools) mod download;
pub(in crate::tools) mod upload;

use std::path::{Component, Path};

use serde::Serialize;

use crate::answer::Failure;
use crate::names;

const FOLDER: &str = "workbench";
const MAX_NAME_BYTES: usize = 512;

/// A file that is in both places now.
#[derive(Debug, Serialize)]
struct Passed {
    local_path: String,
    remote_path: String,
    url: String,
    sha256: String,
    bytes: u64,
}

/// The object that a name on the workbench means.
fn object(remote_path: &str) -> Result<String, Failure> {
    let path = Path::new(remote_path);
    let is_plain = path.components().all(|part| matches!(part, Component::Normal(_)));
    let is_clean = remote_path.split('/').all(|part| !part.is_empty() && part != "." && part != "..");
    let is_read_as_it_is = remote_path.split('/').all(|part| names::misread(part).is_none());
    if is_plain && is_clean && is_read_as_it_is && (1..=MAX_NAME_BYTES).contains(&remote_path.len()) {
        return Ok(format!("{FOLDER}/{remote_path}"));
    }
    Err(Failure::refused(
        format!("{remote_path:?} is not a name on the workbench"),
        "give a relative path without \"..\", such as shared/report.pdf",
    ))
}

#[cfg(test)]
mod tests {
    use super::object;

    #[test]
    fn names_stay_on_the_workbench() {
        assert_eq!(object("a/b.txt").unwrap(), "workbench/a/b.txt");
        for outside in ["", "/a", "a/", "../a", "a/../b", "a//b", "./a", "a\\b", "a\nb", "a/C:b", &"x".repeat(513)] {
            assert!(object(outside).is_err(), "{outside:?}");
        }
    }
}
