//! MCP over standard input and output, line by line, with nothing but JSON.

use std::io::{self, BufRead as _, Write as _};

use serde_json::{Value, json};

/// Serves `tools` until standard input ends. `call` answers a call with a text, or reports an error; its own error ends the server.
pub(crate) fn serve_lines(
    name: &str,
    tools: &[Value],
    mut call: impl FnMut(&str, &Value) -> io::Result<Result<String, String>>,
) -> io::Result<()> {
    let (input, mut output) = (io::stdin().lock(), io::stdout().lock());
    for line in input.lines() {
        let Ok(request) = serde_json::from_str::<Value>(&line?) else { continue };
        let Some(id) = request.get("id").cloned() else { continue };
        let answer = match request["method"].as_str() {
            Some("initialize") => json!({
                "protocolVersion": request.pointer("/params/protocolVersion").cloned().unwrap_or_else(|| json!("2025-06-18")),
                "capabilities": {"tools": {}},
                "serverInfo": {"name": name, "version": "1"},
            }),
            Some("ping") => json!({}),
            Some("tools/list") => json!({ "tools": tools }),
            Some("tools/call") => {
                let name = request["params"]["name"].as_str().unwrap_or_default();
                let (text, is_error) = match call(name, &request["params"]["arguments"])? {
                    Ok(answer) => (answer, false),
                    Err(error) => (error, true),
                };
                json!({"content": [{"type": "text", "text": text}], "isError": is_error})
            }
            _ => {
                let error = json!({"code": -32601, "message": "method not found"});
                writeln!(output, "{}", json!({"jsonrpc": "2.0", "id": id, "error": error}))?;
                output.flush()?;
                continue;
            }
        };
        writeln!(output, "{}", json!({"jsonrpc": "2.0", "id": id, "result": answer}))?;
        output.flush()?;
    }
    Ok(())
}
