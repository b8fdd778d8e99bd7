//! `workbench_upload`: a file of the workspace, under a name of its own on the workbench.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::Deserialize;

use super::super::{ObjectStore, directory, receivers, s3, too_large};
use super::{Passed, object};
use crate::answer::{Answer, success};
use crate::context::{Context, Order, Setup, blocking};
use crate::media;
use crate::tool::{Description, Effect, Opened, Tool};

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::tools) struct Arguments {
    /// The file, relative to the workspace.
    local_path: String,
    /// Its name on the workbench, such as shared/report.pdf. A file of that name is replaced.
    #[schemars(length(min = 1, max = 512))]
    remote_path: String,
}

#[derive(Debug)]
pub(in crate::tools) struct WorkbenchUpload(Arc<ObjectStore>);

impl Tool for WorkbenchUpload {
    const NAME: &'static str = "workbench_upload";
    type Arguments = Arguments;

    fn receivers(variables: &BTreeMap<String, String>) -> &'static [&'static str] {
        receivers(variables)
    }

    fn open(setup: &Setup<'_>) -> Opened<Self> {
        Ok(Some(Self(ObjectStore::of(setup)?)))
    }

    fn describe(&self) -> Description {
        Description::new(
            "Put a file on the workbench",
            "Copies a file of the workspace to the workbench, a folder that other runs and people share, under a name of your choice. A file of that name is replaced.",
            Effect::ReplacesOutside,
        )
    }

    async fn call(&self, context: &Context, given: Arguments, order: Order<'_>) -> Answer {
        let object = object(&given.remote_path)?;
        let (workspace, local) = (Arc::clone(&context.workspace), given.local_path.clone());
        let files = order.files.clone();
        let open = move || {
            let file = files.open("open", "local_path", &workspace, &local)?;
            Ok((file.name()?, file))
        };
        let (url, sha256, bytes) = match self.0.as_ref() {
            ObjectStore::Directory(root) => {
                let root = root.clone();
                blocking(move || {
                    let (_, file) = open()?;
                    directory::put_at(&root, &object, file)
                })
                .await?
            }
            ObjectStore::Bucket(bucket) => {
                let content = blocking(move || {
                    let (name, file) = open()?;
                    file.read(s3::MAX_BYTES, || too_large(&name, s3::MAX_BYTES))
                })
                .await?;
                bucket.put_at(&object, media::type_of(Path::new(&object)), content).await?
            }
        };
        let Arguments { local_path, remote_path } = given;
        success(format!("put on the workbench: {remote_path}"), &Passed { local_path, remote_path, url, sha256, bytes })
    }
}
