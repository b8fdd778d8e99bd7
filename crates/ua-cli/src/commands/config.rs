//! `ua config show`: every setting, and who said so.

use std::path::Path;

use clap::Subcommand;
use ua_host::Host;
use ua_host::home::Home;
use ua_host::settings::{SETTINGS, Setting, ValueKind};

use crate::error::{HostError, OK};
use crate::output::{plain, print, print_json, print_table};
use crate::terminal::Color;
use crate::view::{ConfigShown, SettingRow};
use ua_core::ShowPath as _;

/// `ua config …`.
#[derive(Debug, Subcommand)]
pub enum ConfigCommand {
    /// Show every setting with its value and where it comes from
    #[command(after_help = "\
Examples:
  ua config show
  ua config show --json | jq '.settings[] | select(.source != \"default\")'

Later wins: built-in defaults, the user's config.toml, the project's ua.toml, the environment, flags. Keys are never printed. \
docs/guide/cli.md explains each of them.")]
    Show,
}

pub(crate) fn run(
    host: &Host,
    root: Option<&Path>,
    color: Option<Color>,
    command: &ConfigCommand,
) -> Result<u8, HostError> {
    let ConfigCommand::Show = command;
    let settings = host.settings();
    let shown = ConfigShown { files: settings.files().to_vec(), settings: rows(host, root, color) };
    if crate::terminal::is_json() {
        print_json(&shown)?;
        return Ok(OK);
    }
    print_settings(&shown.settings)?;
    let files: Vec<String> = shown.files.iter().map(|file| file.shown().to_string()).collect();
    let files = if files.is_empty() { "none".to_owned() } else { files.join(", ") };
    print(plain(&format!("\nFiles          {files}\n")))?;
    for note in settings.notes() {
        crate::output::tell(plain(&format!("note: {note}")));
    }
    Ok(OK)
}

/// Every setting with its value and where it comes from; a secret is only said to be there.
pub(super) fn rows(host: &Host, root: Option<&Path>, color: Option<Color>) -> Vec<SettingRow> {
    let settings = host.settings();
    let flag = |key: &str| match key {
        "root" => root.map(|root| root.to_string_lossy().into_owned()),
        "output.color" => color.map(|color| format!("{color:?}").to_lowercase()),
        _ => None,
    };
    let row = |setting: &Setting| {
        let (value, source) = if let Some(value) = flag(setting.key) {
            (Some(value), "flag".to_owned())
        } else if let Some(value) = settings.of_environment(setting.variable) {
            (Some(value), format!("environment ({})", setting.variable))
        } else if let Some(said) = settings.of_files(setting.variable).cloned() {
            (Some(said.value), said.place)
        } else {
            (setting.default.map(str::to_owned), "default".to_owned())
        };
        let value = value.map(|value| in_use(host.home(), setting, value));
        // An address may have a password in it.
        let shown = |value: String| {
            if setting.kind == ValueKind::Secret { "set".to_owned() } else { ua_core::without_secrets(&value) }
        };
        let value = value.map(shown);
        SettingRow { key: setting.key, variable: setting.variable, value, source, about: setting.about }
    };
    SETTINGS.iter().map(row).collect()
}

/// A value as this command uses it: the folder of all runs may be one above, and what is in it is named by its place.
fn in_use(home: &Home, setting: &Setting, value: String) -> String {
    match setting.key {
        "root" => home.root().to_string_lossy().into_owned(),
        "database" => home.database().to_string_lossy().into_owned(),
        _ => match value.strip_prefix(IN_THE_ROOT) {
            Some(name) => home.root().join(name).to_string_lossy().into_owned(),
            None => value,
        },
    }
}

/// How a default begins that is a place in the folder of all runs.
const IN_THE_ROOT: &str = "<root>/";

/// The settings as a table.
pub(super) fn print_settings(settings: &[SettingRow]) -> Result<(), HostError> {
    let rows = settings
        .iter()
        .map(|row| vec![row.key.to_owned(), row.value.clone().unwrap_or_else(|| "-".to_owned()), row.source.clone()]);
    print_table(&crate::listings::SETTINGS, rows.collect())
}
