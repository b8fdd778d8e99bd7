//! `workbench_download`: a file of the workbench, as a file of the workspace.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::Deserialize;

use super::super::{ObjectStore, directory};
use super::{Passed, object};
use crate::answer::{Answer, success};
use crate::context::{Context, Order, Setup, blocking};
use crate::digest::{copy_hashing, sha256_hex};
use crate::tool::{Description, Effect, Opened, Tool};

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::tools) struct Arguments {
    /// The file's name on the workbench.
    #[schemars(length(min = 1, max = 512))]
    remote_path: String,
    /// The file to write, relative to the workspace; it is replaced.
    local_path: String,
}

#[derive(Debug)]
pub(in crate::tools) struct WorkbenchDownload(Arc<ObjectStore>);

impl Tool for WorkbenchDownload {
    const NAME: &'static str = "workbench_download";
    type Arguments = Arguments;

    fn open(setup: &Setup<'_>) -> Opened<Self> {
        Ok(Some(Self(ObjectStore::of(setup)?)))
    }

    fn describe(&self) -> Description {
        Description::new(
            "Get a file from the workbench",
            "Copies a file from the workbench, a folder that other runs and people share, into the workspace.",
            Effect::FetchesInto,
        )
    }

    async fn call(&self, context: &Context, given: Arguments, _: Order<'_>) -> Answer {
        let object = object(&given.remote_path)?;
        let output = context.workspace.writable(&given.local_path)?;
        let local_path = output.to_string_lossy().into_owned();
        let workspace = Arc::clone(&context.workspace);
        let (url, sha256, bytes) = match self.0.as_ref() {
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
                    workspace
                        .area()
                        .replace(&output, &content)
                        .map_err(|error| error.into_failure("write the file"))?;
                    Ok((url, sha256_hex(&content), content.len() as u64))
                })
                .await?
            }
        };
        let remote_path = given.remote_path;
        success(format!("wrote {bytes} bytes to {local_path}"), &Passed { local_path, remote_path, url, sha256, bytes })
    }
}
