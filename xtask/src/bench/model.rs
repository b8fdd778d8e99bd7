//! A model for measurements: it reads a request, notes when its first byte came, and answers from a plan at once.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

/// A model at work, as long as the process.
#[derive(Debug)]
pub(super) struct Model {
    /// Where it is: `http://127.0.0.1:PORT`.
    pub(super) base_url: String,
    shared: Arc<Mutex<Shared>>,
}

#[derive(Debug)]
struct Shared {
    /// When the first byte of each request came.
    asked: Vec<Instant>,
    /// Requests that are answered with a tool use; the one behind them, and all that follow, get no answer.
    tool_uses: usize,
    asks: Asks,
}

/// What a model asks for in each of its replies.
#[derive(Debug, Clone, Copy)]
pub(super) enum Asks {
    /// A listing of the workspace.
    Listing,
    /// An e-mail, each time another one.
    Mail,
}

impl Asks {
    fn tool(self) -> &'static str {
        match self {
            Self::Listing => "mcp__ua__list_directory",
            Self::Mail => "mcp__ua__send_email",
        }
    }

    fn arguments(self, number: usize) -> Value {
        match self {
            Self::Listing => json!({"path": "work_products"}),
            Self::Mail => {
                json!({"to": ["a@example.test"], "subject": format!("Part {number}"), "body": "As promised."})
            }
        }
    }
}

impl Model {
    /// Begins to listen. The first `tool_uses` requests ask for a listing of the workspace; whoever asks once more waits for ever.
    pub(super) fn start(tool_uses: usize) -> anyhow::Result<Self> {
        Self::asking(Asks::Listing, tool_uses)
    }

    /// The same, asking for something else.
    pub(super) fn asking(asks: Asks, tool_uses: usize) -> anyhow::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let base_url = format!("http://{}", listener.local_addr()?);
        let shared = Arc::new(Mutex::new(Shared { asked: Vec::new(), tool_uses, asks }));
        let serving = Arc::clone(&shared);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let shared = Arc::clone(&serving);
                std::thread::spawn(move || serve(&stream, &shared));
            }
        });
        Ok(Self { base_url, shared })
    }

    /// When each request began to come, so far.
    pub(super) fn asked(&self) -> Vec<Instant> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner).asked.clone()
    }

    /// Waits until so many requests came, as long as `goes_on` says so.
    pub(super) fn until(
        &self,
        count: usize,
        mut goes_on: impl FnMut() -> anyhow::Result<()>,
    ) -> anyhow::Result<Instant> {
        loop {
            if let Some(at) = self.asked().get(count - 1) {
                return Ok(*at);
            }
            goes_on()?;
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Serves one connection until it is closed, or waits.
fn serve(stream: &TcpStream, shared: &Mutex<Shared>) -> Option<()> {
    let mut reader = BufReader::new(stream.try_clone().ok()?);
    loop {
        if reader.fill_buf().ok()?.is_empty() {
            return Some(());
        }
        let came = Instant::now();
        let mut length = 0;
        loop {
            let mut line = String::new();
            reader.read_line(&mut line).ok()?;
            if line.trim().is_empty() {
                break;
            }
            if let Some((name, value)) = line.split_once(':')
                && name.eq_ignore_ascii_case("content-length")
            {
                length = value.trim().parse().ok()?;
            }
        }
        reader.by_ref().take(length).read_to_end(&mut Vec::new()).ok()?;
        let (number, is_answered, asks) = {
            let mut shared = shared.lock().unwrap_or_else(PoisonError::into_inner);
            shared.asked.push(came);
            (shared.asked.len(), shared.asked.len() <= shared.tool_uses, shared.asks)
        };
        if !is_answered {
            // The connection stays open until whoever asked gives up.
            reader.read_to_end(&mut Vec::new()).ok()?;
            return Some(());
        }
        let body = reply(number, asks);
        let head =
            format!("HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: {}\r\n\r\n", body.len());
        let mut out = stream;
        out.write_all(format!("{head}{body}").as_bytes()).ok()?;
    }
}

/// A reply as the Messages API streams it: a sentence, and one tool use.
fn reply(number: usize, asks: Asks) -> String {
    let events: [Value; 9] = [
        json!({"type": "message_start", "message": {"id": format!("msg_{number}"), "type": "message", "role": "assistant",
            "model": "measured", "content": [], "stop_reason": null, "usage": {"input_tokens": 1_000, "output_tokens": 1}}}),
        json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}),
        json!({"type": "content_block_delta", "index": 0,
            "delta": {"type": "text_delta", "text": format!("Turn {number}: I look again.")}}),
        json!({"type": "content_block_stop", "index": 0}),
        json!({"type": "content_block_start", "index": 1, "content_block":
            {"type": "tool_use", "id": format!("toolu_{number}"), "name": asks.tool(), "input": {}}}),
        json!({"type": "content_block_delta", "index": 1,
            "delta": {"type": "input_json_delta", "partial_json": asks.arguments(number).to_string()}}),
        json!({"type": "content_block_stop", "index": 1}),
        json!({"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 50}}),
        json!({"type": "message_stop"}),
    ];
    let line = |event: &Value| format!("event: {}\ndata: {event}\n\n", event["type"].as_str().unwrap_or_default());
    events.iter().map(line).collect()
}
