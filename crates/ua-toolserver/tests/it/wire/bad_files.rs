//! Things in the workspace that are no files, and files that are too much.

use std::os::unix::net::UnixListener;

use rustix::fs::{CWD, FileType, Mode};
use serde_json::{Value, json};

use super::{Came, TestServer};

/// A world with a named pipe and a socket of these names.
async fn with_pipe_and_socket(names: &[(&str, &str)]) -> TestServer {
    let world = TestServer::new().await;
    for (pipe, socket) in names {
        let mode = Mode::RUSR | Mode::WUSR;
        rustix::fs::mknodat(CWD, world.workspace().join(pipe), FileType::Fifo, mode, 0).unwrap();
        drop(UnixListener::bind(world.workspace().join(socket)).unwrap());
    }
    world
}

#[tokio::test]
async fn what_is_no_file_is_refused_by_every_tool_that_opens_files_and_none_waits_for_it() {
    let names = [("pipe.md", "socket.md"), ("pipe.png", "socket.png")];
    let world = with_pipe_and_socket(&names).await;
    world.put("pipe-image.md", "![x](pipe.png)");
    world.put("socket-image.md", "![x](socket.png)");
    let file_url = |name: &str| format!("file://{}", world.workspace().join(name).display());
    for (name, kind) in [("pipe", "a named pipe"), ("socket", "a socket")] {
        let file = format!("{name}.md");
        let letter = json!({"to": ["ada@example.org"], "subject": "s", "body": "b", "attachments": [file]});
        let calls: Vec<(&'static str, Value)> = vec![
            ("read_local_file", json!({"path": file})),
            ("upload", json!({"path": file})),
            ("send_email", letter),
            ("render_html", json!({"source": file, "output": "out.html"})),
            ("render_html", json!({"source": format!("{name}-image.md"), "output": "out.html"})),
            ("crawl_parallel", json!({"urls": [file_url(&file)]})),
            ("render_pdf", json!({"source": file, "output": "out.pdf"})),
            ("render_pdf", json!({"source": format!("{name}-image.md"), "output": "out.pdf"})),
        ];
        for (tool, arguments) in calls {
            world.call(tool, arguments).await.refused(&format!("it is {kind}, not a file"));
        }
        world.call("append_to_file", json!({"path": file, "content": "x"})).await.refused("is not a file");
    }
    assert!(!world.workspace().join("out.html").exists());
}

#[tokio::test]
async fn markdown_that_is_too_large_is_refused_with_its_size() {
    let world = TestServer::new().await;
    // 50 MB of a character with two bytes, shifted by one: the limit would cut a character in two.
    world.put("large.md", format!("x{}", "ä".repeat(25_000_000)));
    let size = "\"large.md\" has 50000001 bytes, more than the limit of ";
    world
        .call("render_html", json!({"source": "large.md", "output": "o.html"}))
        .await
        .refused(&format!("{size}16777216"));
    world.call("render_pdf", json!({"source": "large.md", "output": "o.pdf"})).await.refused(&format!("{size}4194304"));
}

#[tokio::test]
async fn markdown_that_is_nested_too_deep_does_not_end_the_server() {
    let world = TestServer::new().await;
    for (name, text) in [
        ("quotes.md", format!("{}x\n", "> ".repeat(150))),
        ("many-quotes.md", format!("{}x\n", ">".repeat(20_000))),
        ("emphasis.md", format!("{}x{}\n", "*a _b ".repeat(1000), "b_ a* ".repeat(1000))),
        ("brackets.md", format!("{}x{}\n", "[".repeat(5000), "](x)".repeat(5000))),
    ] {
        world.put(name, text);
        // HTML has no such limit, and shows what is there.
        match world.call("render_html", json!({"source": name, "output": "o.html"})).await {
            Came::Back(done) => assert!(done["bytes"].as_u64().unwrap() > 0, "{done}"),
            other @ (Came::Refused(_) | Came::Broken(..)) => panic!("{name}: {other:?}"),
        }
    }
}
