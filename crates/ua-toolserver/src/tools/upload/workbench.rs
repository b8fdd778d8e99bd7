//! `workbench_upload` and `workbench_download`: files that people, programs and jobs pass to each other by name.
//!
//! The workbench is the folder `workbench` of the object store. Other than `upload`, which never replaces an object, it keeps
//! the newest file under each name; the same file put there again changes nothing (Durable Jobs v1 spec §7.3).

use std::io::Read as _;
use std::path::{Component, Path};
use std::sync::Arc;

use rmcp::model::Tool;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{ObjectStore, directory, open, s3};
use crate::answer::{Answer, Failure, success};
use crate::digest::{copy_hashing, sha256_hex};
use crate::media;
use crate::schema::{self, Effect};
use crate::tools::blocking;
use crate::workspace::Workspace;

pub(in crate::tools) const UPLOAD: &str = "workbench_upload";
pub(in crate::tools) const DOWNLOAD: &str = "workbench_download";
const FOLDER: &str = "workbench";
const MAX_NAME_BYTES: usize = 512;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::tools) struct Upload {
    /// The file, relative to the workspace.
    local_path: String,
    /// Its name on the workbench, such as shared/report.pdf. A file of that name is replaced.
    #[schemars(length(min = 1, max = 512))]
    remote_path: String,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::tools) struct Download {
    /// The file's name on the workbench.
    #[schemars(length(min = 1, max = 512))]
    remote_path: String,
    /// The file to write, relative to the workspace; it is replaced.
    local_path: String,
}

/// A file that is in both places now.
#[derive(Debug, Serialize)]
struct Passed {
    local_path: String,
    remote_path: String,
    url: String,
    sha256: String,
    bytes: u64,
}

pub(in crate::tools) fn describe() -> [Tool; 2] {
    [
        schema::tool::<Upload>(
            UPLOAD,
            "Put a file on the workbench",
            "Copies a file of the workspace to the workbench, a folder that other jobs and people share, under a name of your choice. A file of that name is replaced.",
            Effect::ReplacesOutside,
        ),
        schema::tool::<Download>(
            DOWNLOAD,
            "Get a file from the workbench",
            "Copies a file from the workbench, a folder that other jobs and people share, into the workspace.",
            Effect::FetchesInto,
        ),
    ]
}

pub(in crate::tools) async fn upload(workspace: &Arc<Workspace>, store: &ObjectStore, given: Upload) -> Answer {
    let object = object(&given.remote_path)?;
    let (workspace, local) = (Arc::clone(workspace), given.local_path.clone());
    let (url, sha256, bytes) = match store {
        ObjectStore::Directory(root) => {
            let root = root.clone();
            blocking(move || {
                let (_, mut file) = open(&workspace, &local)?;
                directory::put_at(&root, &object, &mut file)
            })
            .await?
        }
        ObjectStore::Bucket(bucket) => {
            let content = blocking(move || {
                let (_, file) = open(&workspace, &local)?;
                let mut content = Vec::new();
                let failed = |error: &std::io::Error| Failure::io(format_args!("read {local:?}"), error);
                file.take(s3::MAX_BYTES + 1).read_to_end(&mut content).map_err(|error| failed(&error))?;
                if content.len() as u64 > s3::MAX_BYTES {
                    let problem = format!("{local:?} is larger than {} MiB", s3::MAX_BYTES >> 20);
                    return Err(Failure::refused(problem, "split or compress the file"));
                }
                Ok(content)
            })
            .await?;
            bucket.put_at(&object, media::type_of(Path::new(&object)), content).await?
        }
    };
    let Upload { local_path, remote_path } = given;
    success(format!("put on the workbench: {remote_path}"), &Passed { local_path, remote_path, url, sha256, bytes })
}

pub(in crate::tools) async fn download(workspace: &Arc<Workspace>, store: &ObjectStore, given: Download) -> Answer {
    let object = object(&given.remote_path)?;
    let output = workspace.writable(&given.local_path)?;
    let local_path = output.display().to_string();
    let workspace = Arc::clone(workspace);
    let (url, sha256, bytes) = match store {
        ObjectStore::Directory(root) => {
            let root = root.clone();
            blocking(move || {
                let (url, mut file) = directory::open_at(&root, &object)?;
                let _lock = workspace.exclusive()?;
                let (sha256, bytes) = workspace
                    .area()
                    .replace_with(&output, |temp| copy_hashing(&mut file, temp))
                    .map_err(|error| error.into_failure("write the file"))?;
                Ok((url, sha256, bytes))
            })
            .await?
        }
        ObjectStore::Bucket(bucket) => {
            let (url, content) = bucket.get_at(&object).await?;
            blocking(move || {
                let _lock = workspace.exclusive()?;
                workspace.area().replace(&output, &content).map_err(|error| error.into_failure("write the file"))?;
                Ok((url, sha256_hex(&content), content.len() as u64))
            })
            .await?
        }
    };
    let remote_path = given.remote_path;
    success(format!("wrote {bytes} bytes to {local_path}"), &Passed { local_path, remote_path, url, sha256, bytes })
}

/// The object that a name on the workbench means.
fn object(remote_path: &str) -> Result<String, Failure> {
    let path = Path::new(remote_path);
    let is_plain = path.components().all(|part| matches!(part, Component::Normal(_)));
    let is_clean = remote_path.split('/').all(|part| !part.is_empty() && part != "." && part != "..");
    let is_shown = !remote_path.chars().any(|letter| letter.is_control() || letter == '\\');
    if is_plain && is_clean && is_shown && (1..=MAX_NAME_BYTES).contains(&remote_path.len()) {
        return Ok(format!("{FOLDER}/{remote_path}"));
    }
    Err(Failure::refused(
        format!("{remote_path:?} is no name on the workbench"),
        "give a relative path without \"..\", such as shared/report.pdf",
    ))
}

#[cfg(test)]
mod tests {
    use super::object;

    #[test]
    fn names_stay_on_the_workbench() {
        assert_eq!(object("a/b.txt").unwrap(), "workbench/a/b.txt");
        for outside in ["", "/a", "a/", "../a", "a/../b", "a//b", "./a", "a\\b", "a\nb", &"x".repeat(513)] {
            assert!(object(outside).is_err(), "{outside:?}");
        }
    }
}
