//! Text for a terminal and JSON for a machine.

use std::io::{self, IsTerminal as _, Write as _};

use clap::builder::styling::AnsiColor;
use comfy_table::{Cell, Color, ColumnConstraint, ContentArrangement, Table, presets};
use serde::Serialize;
use ua_host::escape::{is_hidden, plain_json};

use crate::error::HostError;
use crate::shown::Shown;

pub(crate) use ua_host::text::{line, plain};

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

/// Writes to standard output. A reader that went away (`| head`) is no failure.
pub(crate) fn print(text: impl Into<Shown>) -> Result<(), HostError> {
    print_on(text).map(drop)
}

/// Writes a document to standard output, byte for byte unless that is a terminal.
pub(crate) fn print_document(text: &str) -> Result<(), HostError> {
    if io::stdout().is_terminal() { print(text) } else { write_out(text.as_bytes()).map(drop) }
}

/// The same for what goes on and on; `false` when the reader went away, and nobody reads any more.
pub(crate) fn print_on(text: impl Into<Shown>) -> Result<bool, HostError> {
    write_out(text.into().as_str().as_bytes())
}

fn write_out(bytes: &[u8]) -> Result<bool, HostError> {
    let mut out = io::stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(HostError::failed(format!("cannot write to standard output: {error}")))
        }
        Err(_) => Ok(false),
        Ok(()) => Ok(true),
    }
}

/// Writes pretty JSON.
pub(crate) fn print_json(value: &impl Serialize) -> Result<(), HostError> {
    let text = serde_json::to_string_pretty(value).map_err(|e| HostError::failed(format!("cannot write JSON: {e}")))?;
    print(format!("{}\n", plain_json(&text)))
}

/// The same on one line.
pub(crate) fn json_line(value: &impl Serialize) -> Result<String, HostError> {
    let text = serde_json::to_string(value).map_err(|e| HostError::failed(format!("cannot write JSON: {e}")))?;
    Ok(plain_json(&text))
}

/// Tells a person something on standard error. A terminal that went away, or a log on a full disk, is no reason to end a run.
pub(crate) fn tell(text: impl Into<Shown>) {
    // Nobody is left who could be told that this failed.
    crate::terminal::write_err(&text.into().then("\n")).ok();
}

/// Writes a table that fits the terminal; every cell is foreign text. The first column, by which a row is named, is never broken; a
/// column called STATUS or LEVEL has the colour of its word.
pub(crate) fn print_table(header: &[&str], rows: Vec<Vec<String>>) -> Result<(), HostError> {
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
    print(Shown::laid_out(table.lines()))
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
