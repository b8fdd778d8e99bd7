//! As much of an HTTP client as it takes to ask our own servers for their log.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use serde_json::Value;

/// How long a server may take to say what it knows.
const PATIENCE: Duration = Duration::from_secs(20);

/// The JSON that `GET /__log` of the server at `url` answers with.
pub(super) fn log_of(url: &str) -> anyhow::Result<Value> {
    let address = url.strip_prefix("http://").with_context(|| format!("{url} is no plain address"))?;
    let mut stream = TcpStream::connect(address).with_context(|| format!("reach {url}"))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    write!(stream, "GET /__log HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n")?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    let answer = String::from_utf8(answer)?;
    let (head, body) = answer.split_once("\r\n\r\n").context("the answer has no head")?;
    ensure!(head.split(' ').nth(1) == Some("200"), "{url} answered {head:?}");
    Ok(serde_json::from_str(body)?)
}
