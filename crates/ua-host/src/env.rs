//! What this process was given by whoever started it: the one place that asks for it.

use std::collections::BTreeMap;
use std::path::PathBuf;

/// What a process is given: variables, the folder it works in, its own file.
#[derive(Debug, Clone, Default)]
pub struct Process {
    /// The environment; variables that are not text are left out.
    pub variables: BTreeMap<String, String>,
    /// The working directory, below or in which a project's `ua.toml` is looked for; `None` looks for none.
    pub folder: Option<PathBuf>,
    /// The program that answers to the hidden words by which helpers are started (`__shim`, `toolserver`, `__tool-bridge`): `ua`
    /// itself. `None` when it cannot be found.
    pub program: Option<PathBuf>,
}

impl Process {
    /// What this very process was given.
    #[expect(clippy::disallowed_methods, reason = "this is the one reader of the environment")]
    pub fn own() -> Self {
        let texts =
            std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
        Self { variables: texts.collect(), folder: std::env::current_dir().ok(), program: std::env::current_exe().ok() }
    }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "tests make the files that they look at")]
mod tests {
    use std::fs;
    use std::path::Path;

    /// The files below `folder` in which one of `words` stands.
    fn files_with(folder: &Path, words: &[&str]) -> Vec<String> {
        let mut found = Vec::new();
        for path in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            if path.is_dir() {
                found.extend(files_with(&path, words));
            } else if words.iter().any(|word| fs::read_to_string(&path).unwrap_or_default().contains(word)) {
                found.push(path.file_name().unwrap().to_string_lossy().into_owned());
            }
        }
        found
    }

    #[test]
    fn nothing_else_asks_for_the_environment() {
        let (host, crates) = (Path::new(env!("CARGO_MANIFEST_DIR")), Path::new(env!("CARGO_MANIFEST_DIR")).join(".."));
        // In two pieces, or this file would be found for these lines.
        let variable = concat!("env::", "var");
        assert_eq!(files_with(&host.join("src"), &[variable, "env::current_"]), ["env.rs"]);
        assert_eq!(files_with(&crates.join("ua-cli/src"), &[variable]), [""; 0]);
    }
}
