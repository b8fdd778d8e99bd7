//! Programs that others made, as independent judges of ours: `cargo xtask third-party` installs them.

use std::path::{Path, PathBuf};

use crate::program::workspace_root;
use crate::skips::skipped;

/// Python's virtual environments, each with packages that go together. The first has the Python that tests start.
pub const PYTHONS: [&str; 4] = ["agents", "servers", "llmock", "litellm"];

/// Where third-party programs are: the environment's `UA_THIRD_PARTY`, else `target/third-party`.
#[derive(Debug, Clone)]
pub struct ThirdParty {
    /// The folder that holds `npm`, `python` and `cargo`.
    pub root: PathBuf,
}

impl ThirdParty {
    /// The folder for an environment that sets `UA_THIRD_PARTY` to `setting`, or does not.
    pub fn at(setting: Option<PathBuf>) -> Self {
        Self { root: setting.unwrap_or_else(|| workspace_root().join("target/third-party")) }
    }

    /// The folder of npm's packages.
    pub fn npm(&self) -> PathBuf {
        self.root.join("npm")
    }

    /// A virtual environment of Python's packages, one of [`PYTHONS`].
    pub fn python(&self, name: &str) -> PathBuf {
        self.root.join("python").join(name)
    }

    /// The folder of Cargo's packages.
    pub fn cargo(&self) -> PathBuf {
        self.root.join("cargo")
    }

    /// The folders that `PATH` starts with, so that the packages find the Node.js they were installed with.
    pub fn path(&self) -> Vec<PathBuf> {
        let mut folders = vec![self.npm().join("node_modules/.bin")];
        folders.extend(PYTHONS.map(|name| self.python(name).join("bin")));
        folders.push(self.cargo().join("bin"));
        folders
    }

    /// Where the program `name` is, if it is installed here. It needs [`Self::path`] in its `PATH`.
    pub fn find(&self, name: &str) -> Option<PathBuf> {
        self.path().iter().map(|folder| folder.join(name)).find(|program| is_file(program))
    }

    /// Where it is; else this says which check is skipped, and what would install it.
    pub fn find_or_say(&self, name: &str, check: &str) -> Option<PathBuf> {
        let found = self.find(name);
        if found.is_none() {
            not_installed(check, name);
        }
        found
    }
}

/// Says that a check is skipped for want of `name`, and what would install that.
pub fn not_installed(check: &str, name: &str) {
    skipped(&format!("{check}: {name} is not installed (`cargo xtask third-party` does that)"));
}

fn is_file(path: &Path) -> bool {
    path.metadata().is_ok_and(|meta| meta.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_found_where_its_package_manager_put_it() -> std::io::Result<()> {
        let folder = tempfile::tempdir()?;
        let installed = ThirdParty::at(Some(folder.path().to_owned()));
        assert_eq!(installed.find("judge"), None);
        // The one of npm's packages comes first.
        for folder in [
            installed.cargo(),
            installed.python("llmock"),
            installed.python("agents"),
            installed.npm().join("node_modules"),
        ] {
            let bin = folder.join(if folder.ends_with("node_modules") { ".bin" } else { "bin" });
            std::fs::create_dir_all(&bin)?;
            std::fs::write(bin.join("judge"), "#!/bin/sh\n")?;
            assert_eq!(installed.find("judge"), Some(bin.join("judge")));
        }
        Ok(())
    }
}
