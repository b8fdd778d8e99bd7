//! Text for a terminal and JSON for a machine.

use std::io::{self, Write as _};

use clap::builder::styling::AnsiColor;
use comfy_table::{Cell, Color, ColumnConstraint, ContentArrangement, Table, presets};
use serde::Serialize;

use crate::error::{CliError, FAILED};

/// Makes foreign text harmless for a terminal: control characters (escape sequences among them), bidirectional overrides
/// and zero-width characters are shown as what they are. Line breaks and tabs stay.
pub(crate) fn plain(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if is_hidden(c) {
            out.extend(c.escape_unicode());
        } else {
            out.push(c);
        }
    }
    out
}

fn is_hidden(c: char) -> bool {
    // Separators of lines and paragraphs break a line where nobody sees it.
    (c.is_control() && c != '\n' && c != '\t')
        || matches!(c, '\u{200B}'..='\u{200F}' | '\u{202A}'..='\u{202E}' | '\u{2028}' | '\u{2029}' | '\u{2060}'..='\u{206F}' | '\u{061C}' | '\u{180E}' | '\u{FEFF}' | '\u{FFF9}'..='\u{FFFB}' | '\u{E0000}'..='\u{E007F}')
}

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

/// JSON in which no character drives a terminal: what may stand unescaped in a string, and should not be seen raw, is escaped.
fn plain_json(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if is_hidden(c) {
            // Beyond the first plane JSON writes a pair.
            let mut units = [0; 2];
            for unit in c.encode_utf16(&mut units) {
                out.push_str(&format!("\\u{unit:04x}"));
            }
        } else {
            out.push(c);
        }
    }
    out
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
