//! A tool server that keeps no promise: it takes no key, cannot be asked afterwards, and does what it is told each time.
//!
//! Speaks MCP over standard input and output, line by line, with nothing but JSON. Each call of its one effect appends a
//! line to a file that outlives it, which is how a harness counts from outside.

use std::fs::OpenOptions;
use std::io::{self, BufRead as _, Write as _};
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

/// The effect's name.
pub const OPAQUE_TOOL: &str = "post_comment";

/// Serves until standard input ends. `log` gets one line per effect.
pub fn serve_opaque(log: &Path) -> io::Result<()> {
    serve_opaque_slowly(log, Duration::ZERO)
}

/// The same, with a wait between an effect and its answer: the time in which nobody but the server knows of it.
pub fn serve_opaque_slowly(log: &Path, answer_after: Duration) -> io::Result<()> {
    let (input, mut output) = (io::stdin().lock(), io::stdout().lock());
    for line in input.lines() {
        let Ok(request) = serde_json::from_str::<Value>(&line?) else { continue };
        let Some(id) = request.get("id").cloned() else { continue };
        let answer = match request["method"].as_str() {
            Some("initialize") => json!({
                "protocolVersion": request.pointer("/params/protocolVersion").cloned().unwrap_or_else(|| json!("2025-06-18")),
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "opaque", "version": "1"},
            }),
            Some("ping") => json!({}),
            Some("tools/list") => json!({"tools": [{
                "name": OPAQUE_TOOL,
                "description": "Posts a comment; every call posts one.",
                "inputSchema": {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]},
            }]}),
            Some("tools/call") => {
                let mut file = OpenOptions::new().create(true).append(true).open(log)?;
                file.write_all(format!("{}\n", request["params"]["arguments"]).as_bytes())?;
                file.sync_data()?;
                std::thread::sleep(answer_after);
                json!({"content": [{"type": "text", "text": "posted"}]})
            }
            _ => {
                let error =
                    json!({"jsonrpc": "2.0", "id": id, "error": {"code": -32601, "message": "method not found"}});
                writeln!(output, "{error}")?;
                output.flush()?;
                continue;
            }
        };
        writeln!(output, "{}", json!({"jsonrpc": "2.0", "id": id, "result": answer}))?;
        output.flush()?;
    }
    Ok(())
}
