//! Configuration in layers: built-in defaults, the user's `config.toml`, the project's `ua.toml`, the environment, flags. Later wins.
//!
//! A setting has a key in the files and a variable in the environment; the rest of the program asks for the variable
//! ([`crate::env::var`]), and gets what the strongest layer says. The one list of them is [`SETTINGS`].
//!
//! The project's file comes with whatever was checked out there, so it may not set what runs programs, names where requests go, or
//! holds keys; nor is one read that belongs to somebody else.

mod file;
mod settings;

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use crate::error::CliError;
use crate::terminal::Color;
use crate::view::SettingRow;

pub(crate) use file::Layer;
pub(crate) use settings::{Kind, SETTINGS, Setting};

/// The name of the project's file.
const PROJECT_FILE: &str = "ua.toml";

/// What a file says about a setting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Said {
    /// As the environment would have it.
    pub(crate) value: String,
    /// The file and its line.
    pub(crate) place: String,
}

/// What the files say.
#[derive(Debug, Default)]
struct Config {
    /// By variable.
    values: BTreeMap<&'static str, Said>,
    files: Vec<PathBuf>,
    /// Files that were passed over, and why.
    notes: Vec<String>,
    /// What is wrong with a file.
    refused: Option<CliError>,
}

static CONFIG: OnceLock<Config> = OnceLock::new();

/// Reads the files. Whatever can be read counts even if another file is wrong.
pub(crate) fn init() -> Result<(), CliError> {
    let mut config = Config::default();
    let read = read_into(&mut config);
    config.refused = read.as_ref().err().cloned();
    // A test that calls `main` twice keeps the first.
    CONFIG.set(config).ok();
    read
}

/// Says again what is wrong with a file.
pub(crate) fn check() -> Result<(), CliError> {
    CONFIG.get().and_then(|config| config.refused.clone()).map_or(Ok(()), Err)
}

fn read_into(config: &mut Config) -> Result<(), CliError> {
    if let Some(path) = crate::compose::user_file("config.toml") {
        let said = Layer::User.read(&path)?;
        config.values.extend(said);
        config.files.push(path);
    }
    if let Some(path) = project_file() {
        if is_foreign(&path) {
            config.notes.push(format!("{} belongs to another user and was not read", path.display()));
        } else {
            let said = Layer::Project.read(&path)?;
            config.values.extend(said);
            config.files.push(path);
        }
    }
    Ok(())
}

/// `ua.toml` of the working directory, or of the nearest folder above it that has one.
fn project_file() -> Option<PathBuf> {
    let here = std::env::current_dir().ok()?;
    here.ancestors().map(|folder| folder.join(PROJECT_FILE)).find(|path| path.is_file())
}

/// Whether a file belongs neither to this user nor to root.
fn is_foreign(path: &Path) -> bool {
    let ours = rustix::process::geteuid().as_raw();
    std::fs::metadata(path).map_or(true, |file| file.uid() != ours && file.uid() != 0)
}

/// What the files say for a variable.
pub(crate) fn value(variable: &str) -> Option<String> {
    CONFIG.get()?.values.get(variable).map(|said| said.value.clone())
}

/// The files that were read, the weakest first.
pub(crate) fn files() -> Vec<PathBuf> {
    CONFIG.get().map(|config| config.files.clone()).unwrap_or_default()
}

/// What is worth knowing about files that were not read.
pub(crate) fn notes() -> Vec<String> {
    CONFIG.get().map(|config| config.notes.clone()).unwrap_or_default()
}

/// Every setting with its value and where it comes from; a secret is only said to be there.
pub(crate) fn rows(root: Option<&Path>, color: Option<Color>) -> Vec<SettingRow> {
    let flag = |key: &str| match key {
        "root" => root.map(|root| root.display().to_string()),
        "output.color" => color.map(|color| format!("{color:?}").to_lowercase()),
        _ => None,
    };
    let row = |setting: &Setting| {
        let said = || CONFIG.get().and_then(|config| config.values.get(setting.variable)).cloned();
        let (value, source) = if let Some(value) = flag(setting.key) {
            (Some(value), "flag".to_owned())
        } else if let Some(value) = crate::env::of_process(setting.variable) {
            (Some(value), format!("environment ({})", setting.variable))
        } else if let Some(said) = said() {
            (Some(said.value), said.place)
        } else {
            (setting.default.map(str::to_owned), "default".to_owned())
        };
        let value = value.map(|value| if setting.kind == Kind::Secret { "set".to_owned() } else { value });
        SettingRow { key: setting.key, variable: setting.variable, value, source, about: setting.about }
    };
    SETTINGS.iter().map(row).collect()
}
