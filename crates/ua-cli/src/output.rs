//! Text for a terminal and JSON for a machine.

use std::io::{self, IsTerminal as _, Write as _};

use serde::Serialize;
use ua_host::escape::{is_hidden, plain_json};

use crate::error::HostError;
use crate::shown::Shown;

pub(crate) use crate::table::{Column, print_columns, print_table};
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
