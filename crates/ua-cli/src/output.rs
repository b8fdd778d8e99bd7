//! Text for a terminal and JSON for a machine.

use std::io::{self, Write as _};

use clap::builder::styling::AnsiColor;
use comfy_table::{Cell, Color, ColumnConstraint, ContentArrangement, Table, presets};
use serde::Serialize;

use crate::error::{CliError, FAILED};
use crate::escape::{is_hidden, plain_json};

pub(crate) use crate::escape::plain;

/// Text as a TOML string: quoted, and without a character that drives a terminal.
pub(crate) fn toml_text(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            c if is_hidden(c) || c.is_control() => out.push_str(&format!("\\U{:08X}", u32::from(c))),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// The same on one line, cut to `width` characters.
pub(crate) fn line(text: &str, width: usize) -> String {
    let flat = plain(text).replace(['\n', '\t'], " ");
    if flat.chars().count() <= width {
        return flat;
    }
    let mut cut: String = flat.chars().take(width.saturating_sub(1)).collect();
    cut.push('…');
    cut
}

/// Writes to standard output. A reader that went away (`| head`) is no failure.
pub(crate) fn print(text: &str) -> Result<(), CliError> {
    print_on(text).map(drop)
}

/// The same for what goes on and on; `false` when the reader went away, and nobody reads any more.
pub(crate) fn print_on(text: &str) -> Result<bool, CliError> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(CliError::new(FAILED, format!("cannot write to standard output: {error}")))
        }
        Err(_) => Ok(false),
        Ok(()) => Ok(true),
    }
}

/// Writes pretty JSON.
pub(crate) fn print_json(value: &impl Serialize) -> Result<(), CliError> {
    let text =
        serde_json::to_string_pretty(value).map_err(|e| CliError::new(FAILED, format!("cannot write JSON: {e}")))?;
    print(&format!("{}\n", plain_json(&text)))
}

/// The same on one line.
pub(crate) fn json_line(value: &impl Serialize) -> Result<String, CliError> {
    let text = serde_json::to_string(value).map_err(|e| CliError::new(FAILED, format!("cannot write JSON: {e}")))?;
    Ok(plain_json(&text))
}

/// Tells a person something on standard error. A terminal that went away, or a log on a full disk, is no reason to end a run.
pub(crate) fn tell(text: &str) {
    // Nobody is left who could be told that this failed.
    crate::terminal::write_err(format!("{text}\n").as_bytes()).ok();
}

/// Writes a table that fits the terminal; every cell is foreign text. The first column, by which a row is named, is never broken; a
/// column called STATUS or LEVEL has the colour of its word.
pub(crate) fn print_table(header: &[&str], rows: Vec<Vec<String>>) -> Result<(), CliError> {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Dynamic).set_header(header.to_vec());
    let has_color = crate::terminal::out_has_color();
    if has_color {
        table.enforce_styling();
    }
    for row in rows {
        let cells = row.iter().enumerate().map(|(index, cell)| {
            let is_status = matches!(header.get(index), Some(&("STATUS" | "LEVEL")));
            let shown = Cell::new(plain(cell));
            match crate::terminal::status_color(cell).filter(|_| has_color && is_status) {
                Some(color) => shown.fg(table_color(color)),
                None => shown,
            }
        });
        table.add_row(cells.collect::<Vec<_>>());
    }
    if let Some(first) = table.column_mut(0) {
        first.set_constraint(ColumnConstraint::ContentWidth);
    }
    let mut text = String::new();
    for line in table.lines() {
        text.push_str(line.trim_end());
        text.push('\n');
    }
    print(&text)
}

fn table_color(color: AnsiColor) -> Color {
    let known = [
        (AnsiColor::Green, Color::Green),
        (AnsiColor::Red, Color::Red),
        (AnsiColor::Yellow, Color::Yellow),
        (AnsiColor::Cyan, Color::Cyan),
    ];
    known.into_iter().find(|(name, _)| *name == color).map_or(Color::Reset, |(_, color)| color)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn foreign_text_cannot_drive_the_terminal() {
        assert_eq!(plain("a\u{1b}[2Jb\u{202e}c\nd"), "a\\u{1b}[2Jb\\u{202e}c\nd");
        assert_eq!(line("one\ntwo three", 7), "one tw…");
        assert_eq!(plain_json("{\"a\": \"b\u{202e}\u{9b}c\"}"), r#"{"a": "b\u202e\u009bc"}"#);
    }
}
