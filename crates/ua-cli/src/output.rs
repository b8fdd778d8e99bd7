//! Text for a terminal and JSON for a machine.

use std::io::{self, Write as _};

use comfy_table::{ContentArrangement, Table, presets};
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
    (c.is_control() && c != '\n' && c != '\t')
        || matches!(c, '\u{200B}'..='\u{200F}' | '\u{202A}'..='\u{202E}' | '\u{2060}'..='\u{2069}' | '\u{FEFF}')
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
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(CliError::new(FAILED, format!("cannot write to standard output: {error}")))
        }
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Writes pretty JSON.
pub(crate) fn print_json(value: &impl Serialize) -> Result<(), CliError> {
    let text =
        serde_json::to_string_pretty(value).map_err(|e| CliError::new(FAILED, format!("cannot write JSON: {e}")))?;
    print(&format!("{}\n", plain_json(&text)))
}

/// JSON on one line.
pub(crate) fn json_line(value: &serde_json::Value) -> String {
    plain_json(&value.to_string())
}

/// JSON in which no character drives a terminal: what may stand unescaped in a string, and should not be seen raw, is escaped.
fn plain_json(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if is_hidden(c) {
            out.push_str(&format!("\\u{:04x}", u32::from(c)));
        } else {
            out.push(c);
        }
    }
    out
}

/// Tells a person something on standard error. A terminal that went away, or a log on a full disk, is no reason to end a run.
pub(crate) fn tell(text: &str) {
    let mut out = io::stderr().lock();
    // Nobody is left who could be told that this failed.
    writeln!(out, "{text}").ok();
}

/// Writes a table that fits the terminal; every cell is foreign text.
pub(crate) fn print_table(header: &[&str], rows: Vec<Vec<String>>) -> Result<(), CliError> {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Dynamic).set_header(header.to_vec());
    for row in rows {
        table.add_row(row.iter().map(|cell| plain(cell)).collect::<Vec<_>>());
    }
    let mut text = String::new();
    for line in table.lines() {
        text.push_str(line.trim_end());
        text.push('\n');
    }
    print(&text)
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
