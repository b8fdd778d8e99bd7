//! The same job over each way to the same tools: as the built-in server, as a configured one over standard input and
//! output, and over Streamable HTTP. What is in the ledger afterwards is the same.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use ua_core::sha256;
use ua_e2e::{Live, TestEnv, eventually, ua_pdf_program};

use super::env;

/// What a run left: a line per call, and the digest of each file that it made.
#[derive(Debug, PartialEq)]
struct Left {
    calls: Vec<String>,
    files: Vec<(&'static str, String)>,
}

const FILES: [&str; 4] =
    ["work_products/log.txt", "work_products/report.html", "work_products/report.md", "work_products/report.pdf"];

/// Reads, writes, appends, renderings, effects, two calls in one turn, a refused call and one that no schema fits.
fn turns(server: &str) -> Value {
    let tool = |name: &str, input: Value| json!({"name": format!("mcp__{server}__{name}"), "input": input});
    let report = "# Tides\n\nThey *turn*.[^1]\n\n| a | b |\n|---|--:|\n| 1 | 2 |\n\n[^1]: A source\n";
    let rendered =
        |format: &str| json!({"source": "work_products/report.md", "output": format!("work_products/report.{format}")});
    let mail = json!({"to": ["team@example.test"], "subject": "Tides", "body": "Attached.", "attachments": ["work_products/report.pdf"]});
    json!([
        {"tools": [tool("write_local_file", json!({"path": "work_products/report.md", "content": report}))]},
        {"tools": [tool("render_html", rendered("html")), tool("render_pdf", rendered("pdf"))]},
        {"tools": [tool("append_to_file", json!({"path": "work_products/log.txt", "content": "rendered\n"}))]},
        {"tools": [
            tool("read_local_file", json!({"path": "work_products/report.md"})),
            tool("read_local_file", json!({"path": "work_products/none.md"})),
        ]},
        {"tools": [tool("render_pdf", json!({"source": "work_products/report.md"}))]},
        {"tools": [tool("upload", json!({"path": "work_products/report.pdf"}))]},
        {"tools": [tool("send_email", mail)]},
        {"tools": [tool("notify", json!({"title": "Sent", "message": "The report was mailed."}))]},
        {"text": "Done."},
    ])
}

/// The arguments of a tool server that works in `workspace` and sends to where the built-in one does.
fn server_args(env: &TestEnv, workspace: &Path) -> Vec<String> {
    let text = |path: PathBuf| path.display().to_string();
    let objects = format!("file://{}/", text(env.root().join("objects")));
    let flags = [
        ("--workspace", text(workspace.to_path_buf())),
        ("--outbox", text(env.root().join("outbox"))),
        ("--objects", objects),
        ("--notifications", text(env.root().join("notifications"))),
    ];
    let flags = flags.into_iter().flat_map(|(flag, value)| [flag.to_owned(), value]);
    std::iter::once("toolserver".to_owned()).chain(flags).collect()
}

/// The ledger of the only run, times and ids aside.
fn left(env: &TestEnv, workspace: &Path) -> Left {
    let rows = env.rows(
        "SELECT turn, ordinal, tool_name, normalized_args_hash, attempt, status, coalesce(failure_kind, '-'), \
         coalesce(evidence, '-'), coalesce(raw_json, '-'), coalesce(settlement_json ->> '$.content', '-') \
         FROM tool_calls LEFT JOIN tool_receipts USING (tool_call_id, attempt) ORDER BY turn, ordinal",
    );
    let here = env.path("").display().to_string();
    // The newest revision of MCP says of each result that it is the last one.
    let plain = |row: &String| row.replace(&here, "[here]/").replace(r#""resultType":"complete","#, "");
    let calls = rows.iter().map(|row| without_ids(&plain(row))).collect();
    let digest = |name: &str| match std::fs::read(workspace.join(name)) {
        Ok(bytes) => sha256(&bytes).to_string(),
        Err(error) => panic!("{name}: {error}"),
    };
    Left { calls, files: FILES.map(|name| (name, digest(name))).into() }
}

/// `text` with every run of exactly 32 hexadecimal digits, which is what ids are made of, taken out.
pub(super) fn without_ids(text: &str) -> String {
    let mut clean = String::new();
    let mut digits = String::new();
    for c in text.chars().chain(['\n']) {
        if c.is_ascii_digit() || ('a'..='f').contains(&c) {
            digits.push(c);
            continue;
        }
        clean.push_str(if digits.len() == 32 { "[id]" } else { &digits });
        digits.clear();
        clean.push(c);
    }
    clean.trim_end().to_owned()
}

fn run(env: &TestEnv, server: &str) {
    let job = env.job(&json!({"tools": {"builtin": server == "ua"}}), &turns(server));
    env.run(&["job", &job, "--run-id", "r"]).code(0);
    assert_eq!(env.effects(), [1, 1, 1, 0]);
}

fn builtin() -> Left {
    let env = env().with_pdf();
    run(&env, "ua");
    left(&env, &env.workspace())
}

fn over_stdio() -> Left {
    let env = env().with_pdf();
    let workspace = env.path("served");
    let entry = json!({"command": ua_pdf_program(), "args": server_args(&env, &workspace)});
    env.mcp_config("work/.mcp.json", &json!({"office": entry}));
    run(&env, "office");
    assert_eq!(env.value("SELECT DISTINCT tool_namespace FROM tool_calls"), "mcp");
    left(&env, &workspace)
}

fn over_http() -> Left {
    let env = env().with_pdf().with_env("UA_TOOLSERVER_TOKEN", "a-token-of-this-test");
    let workspace = env.path("served");
    let mut args = server_args(&env, &workspace);
    args.extend(["--http".to_owned(), "127.0.0.1:0".to_owned()]);
    let server: Live = env.start_bare(&args.iter().map(String::as_str).collect::<Vec<_>>());
    let url = eventually("the address of the tool server", || {
        let said = server.stderr();
        let start = said.find("http://127.0.0.1:")?;
        let line = said[start..].split_once(['\n', ' '])?.0;
        Some(line.to_owned())
    });
    env.mcp_config(
        "work/.mcp.json",
        &json!({"office": {"type": "http", "url": url, "headers": {"Authorization": "Bearer ${UA_TOOLSERVER_TOKEN}"}}}),
    );
    run(&env, "office");
    assert_eq!(env.value("SELECT DISTINCT tool_namespace FROM tool_calls"), "mcp");
    left(&env, &workspace)
}

#[test]
fn the_same_job_leaves_the_same_receipts_over_every_way_to_its_tools() {
    let here = builtin();
    // One line per call, and the receipts say what was done.
    assert_eq!(here.calls.len(), 10, "{:#?}", here.calls);
    for (call, part) in here.calls.iter().zip([
        "wrote 73 bytes",
        "report.html",
        "with 1 page",
        "log.txt",
        "They *turn*",
        "none.md",
        "cancelled",
        "uploaded: file://[here]/root/objects/",
        "sent: <[id]@ua.invalid> to team@example.test",
        "sent: notification [id]",
    ]) {
        assert!(call.contains(part), "{part:?} in {call}");
    }
    assert_eq!(over_stdio(), here);
    assert_eq!(over_http(), here);
}
