//! `ua config show`: every setting, and who said so.

use std::path::Path;

use crate::args::ConfigCommand;
use crate::config;
use crate::error::{CliError, OK};
use crate::output::{plain, print, print_json, print_table};
use crate::terminal::Color;
use crate::view::{ConfigShown, SettingRow};

pub(crate) fn run(root: Option<&Path>, color: Option<Color>, command: &ConfigCommand) -> Result<u8, CliError> {
    let ConfigCommand::Show = command;
    let shown = ConfigShown { files: config::files(), settings: config::rows(root, color) };
    if crate::terminal::is_json() {
        print_json(&shown)?;
        return Ok(OK);
    }
    print_settings(&shown.settings)?;
    let files: Vec<String> = shown.files.iter().map(|file| file.display().to_string()).collect();
    let files = if files.is_empty() { "none".to_owned() } else { files.join(", ") };
    print(&plain(&format!("\nFiles          {files}\n")))?;
    for note in config::notes() {
        crate::output::tell(&plain(&format!("note: {note}")));
    }
    Ok(OK)
}

/// The settings as a table.
pub(super) fn print_settings(settings: &[SettingRow]) -> Result<(), CliError> {
    let rows = settings
        .iter()
        .map(|row| vec![row.key.to_owned(), row.value.clone().unwrap_or_else(|| "-".to_owned()), row.source.clone()]);
    print_table(&["SETTING", "VALUE", "SOURCE"], rows.collect())
}
