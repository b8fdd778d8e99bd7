//! Variables by which a program is told where code is.
//!
//! What one of these names in the checkout counts, all of it that is not data: a `src/` that `PYTHONPATH` names is the most usual layout of all.
//! Of any other variable the files count that its value names, and no folder: that is where a server works.

use std::path::Path;

use super::covered::Covered;
use super::env_words::split_string;
use super::kinds::has_ending;
use super::named::{inside, pieces, whole_pieces};
use ua_core::ShowPath as _;

/// Variables that decide what code a program loads.
const LOADERS: [&str; 61] = [
    "BASH_ENV",
    "BUNDLE_GEMFILE",
    "BUN_OPTIONS",
    "CARGO_HOME",
    "CLASSPATH",
    "DENO_DIR",
    "DYLD_FALLBACK_LIBRARY_PATH",
    "DYLD_FRAMEWORK_PATH",
    "DYLD_INSERT_LIBRARIES",
    "DYLD_LIBRARY_PATH",
    "ENV",
    "ERL_LIBS",
    "GCONV_PATH",
    "GEM_HOME",
    "GEM_PATH",
    "GIT_CONFIG_GLOBAL",
    "GIT_CONFIG_SYSTEM",
    "GIT_EXEC_PATH",
    "GIT_SSH_COMMAND",
    "GOFLAGS",
    "GOPATH",
    "HOME",
    "JAVA_TOOL_OPTIONS",
    "JDK_JAVA_OPTIONS",
    "JULIA_DEPOT_PATH",
    "JULIA_LOAD_PATH",
    "JULIA_PROJECT",
    "LD_AUDIT",
    "LD_LIBRARY_PATH",
    "LD_PRELOAD",
    "LUA_CPATH",
    "LUA_INIT",
    "LUA_PATH",
    "NODE_OPTIONS",
    "NODE_PATH",
    "NODE_REPL_EXTERNAL_MODULE",
    "NPM_CONFIG_PREFIX",
    "PATH",
    "PERL5DB",
    "PERL5LIB",
    "PERL5OPT",
    "PERLLIB",
    "PHPRC",
    "PHP_INI_SCAN_DIR",
    "PYTHONHOME",
    "PYTHONPATH",
    "PYTHONSTARTUP",
    "PYTHONUSERBASE",
    "RUBYLIB",
    "RUBYOPT",
    "RUSTC_WRAPPER",
    "R_LIBS",
    "R_LIBS_USER",
    "R_PROFILE",
    "R_PROFILE_USER",
    "TCLLIBPATH",
    "UV_PROJECT",
    "VIRTUAL_ENV",
    "XDG_CONFIG_HOME",
    "ZDOTDIR",
    "_JAVA_OPTIONS",
];

/// Beginnings of the names of variables of programs that load, fetch or keep code: where it is, and what is loaded besides.
const OF_LOADERS: [&str; 32] = [
    "BUN_",
    "BUNDLE_",
    "CARGO_",
    "COMPOSER_",
    "CONDA_",
    "DENO_",
    "DOTNET_",
    "DYLD_",
    "GEM_",
    "GRADLE_",
    "JAVA_",
    "JDK_",
    "JULIA_",
    "LD_",
    "LUA_",
    "MAVEN_",
    "NODE_",
    "NPM_",
    "OPENSSL_",
    "PERL",
    "PIPX_",
    "PIP_",
    "PNPM_",
    "POETRY_",
    "PYENV_",
    "PYTHON",
    "RUBY",
    "RUSTUP_",
    "R_",
    "UV_",
    "XDG_",
    "YARN_",
];

/// Ends of the names of variables that name a folder from which whatever program it is loads code.
const NAMES_CODE: [&str; 8] =
    ["_ENGINES", "_HOME", "_LOAD_PATH", "_MODULES", "_MODULE_PATH", "_PLUGINS", "_PLUGIN_PATH", "_PREFIX"];

/// Whether a variable decides what code a program loads. Which variables there are nobody knows; those that are not known here name files.
pub(super) fn is_loader(name: &str) -> bool {
    let name = name.to_uppercase();
    LOADERS.contains(&name.as_str())
        || OF_LOADERS.iter().any(|begin| name.starts_with(begin))
        || NAMES_CODE.iter().any(|end| name.ends_with(end))
}

/// Endings that an interpreter adds to a name that has none (`-r./x/hook`).
const ADDED: [&str; 7] = ["js", "lua", "mjs", "pl", "pm", "py", "rb"];

/// Endings of what a server writes or works on.
const DATA: [&str; 12] =
    ["csv", "db", "json", "jsonl", "log", "md", "ndjson", "pdf", "sqlite", "sqlite3", "tsv", "txt"];

/// Whether a list of folders has an empty part, which is the folder that the program works in. A list without any part is none, but for two.
fn means_here(name: &str, value: &str) -> bool {
    let name = name.to_uppercase();
    let is_list = name.contains("PATH") || name.ends_with("LIB") || name.ends_with("LIBS");
    let is_any = !value.is_empty() || matches!(name.as_str(), "PATH" | "CLASSPATH");
    is_list && is_any && value.split(':').any(str::is_empty)
}

impl Covered {
    /// What variables name in the checkout, for a program that works in `base`.
    pub(super) fn variables<'v>(&mut self, all: impl Iterator<Item = (&'v str, &'v str)>, base: &Path) {
        for (name, value) in all {
            let loads = is_loader(name);
            let here = (loads && means_here(name, value)).then_some(".");
            // Options of a program, whose words may have quotation marks and backslashes in them.
            let words = if loads { split_string(value) } else { Vec::new() };
            let of_words = words.iter().flat_map(|word| whole_pieces(word));
            for piece in pieces(value).into_iter().chain(of_words).chain(here) {
                if let Some(path) = inside(base, piece) {
                    if path.is_dir() && loads {
                        self.whole(&path);
                        self.warn(format!("{name} names {}: all that is not data counts there", path.shown()));
                    } else if path.is_file() && loads {
                        self.name(&path);
                    } else if path.is_file() && !has_ending(&path, &DATA) {
                        self.may_be_code(&path);
                    }
                }
                for ending in ADDED.into_iter().filter(|_| loads) {
                    if let Some(path) = inside(base, &format!("{piece}.{ending}")).filter(|path| path.is_file()) {
                        self.name(&path);
                    }
                }
            }
        }
    }
}
