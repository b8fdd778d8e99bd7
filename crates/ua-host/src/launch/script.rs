//! The script that plays the model of a run of `scripted`.

use std::collections::BTreeSet;
use std::path::Path;

use ua_llm::Script;

use super::Launch;
use crate::error::{HostError, chain};
use crate::paths::json_fragment;
use crate::placed::{FileKind, Place};
use crate::selectors;
use ua_core::ShowPath as _;

impl Launch {
    /// The script that plays the model of a run of `scripted`, and its file.
    pub(super) fn read_script(&self) -> Result<(&Path, Script), HostError> {
        let Some(file) = &self.script else {
            return Err(HostError::usage("the provider `scripted` needs a script")
                .hint("name one in the job's `model.script`, relative to the job file"));
        };
        let script = Place::of_job(FileKind::Script, file, &self.job_dir).read()?.parse(|text| {
            Script::parse(&text.replace("${JOB_DIR}", &json_fragment(&self.job_dir))).map_err(|e| {
                let words = format!("{}: {}", file.shown(), chain(&e));
                HostError::usage(words).hint("correct the script").not_begun()
            })
        })?;
        Ok((file, script))
    }

    /// Whether the model is a script that asks for this tool.
    ///
    /// # Errors
    /// The script cannot be read.
    pub(crate) fn script_asks_for(&self, tool: &str) -> Result<bool, HostError> {
        Ok(self.provider == "scripted" && self.read_script()?.1.asks_for(tool))
    }

    /// What of the script that plays the model would fail when it is played with these tools, a sentence each; nothing of another provider.
    ///
    /// # Errors
    /// The script cannot be read.
    pub(crate) fn script_doubts(&self, offered: &BTreeSet<&str>) -> Result<Vec<String>, HostError> {
        if self.provider != "scripted" {
            return Ok(Vec::new());
        }
        let (file, script) = self.read_script()?;
        let name = file.file_name().unwrap_or(file.as_os_str()).to_string_lossy();
        let own: Vec<String> = selectors::own_names().map(|name| name.raw).collect();
        let known = own.iter().map(String::as_str).collect();
        Ok(script.doubts(offered, &known).into_iter().map(|doubt| format!("{name}: {doubt}")).collect())
    }
}
