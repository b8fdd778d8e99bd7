//! The layout behind the tool `render_pdf` of the real tool server: what comes back, that it is always the same, and what is refused.

use std::path::PathBuf;

use rmcp::model::CallToolRequestParams;
use rmcp::service::RunningService;
use rmcp::{RoleClient, ServiceExt as _};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tempfile::TempDir;
use ua_core::Env;
use ua_pdf::{Layout, LayoutProcess};
use ua_toolserver::{Settings, ToolServer};

const DOT: &[u8] = include_bytes!("../../../../fixtures/pdf/dot.png");

/// A workspace, a server on it that lays out for real, and a client of that.
struct RenderServer {
    directory: TempDir,
    client: RunningService<RoleClient, ()>,
}

/// What a call came to: its structured content, or the words of the refusal.
struct Came(Result<Value, String>);

impl RenderServer {
    async fn new() -> Self {
        let directory = TempDir::new().unwrap();
        let mut settings = Settings::in_workspace(directory.path().join("w"));
        // As `ua` has it: laid out in a process of its own.
        let program = PathBuf::from(env!("CARGO_BIN_EXE_md2pdf"));
        settings.pdf = Some(Layout::Apart(LayoutProcess::new(program, ["--serve".into()])));
        let server = ToolServer::open(&settings, Env::simulated(7)).unwrap();
        let (ours, theirs) = tokio::io::duplex(64 * 1024);
        let (read, write) = tokio::io::split(theirs);
        drop(tokio::spawn(server.serve(read, write)));
        Self { client: ().serve(ours).await.unwrap(), directory }
    }

    fn workspace(&self) -> PathBuf {
        self.directory.path().join("w").canonicalize().unwrap()
    }

    fn put(&self, path: &str, content: impl AsRef<[u8]>) {
        let path = self.workspace().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }

    async fn call(&self, arguments: Value) -> Came {
        let arguments = arguments.as_object().unwrap().clone();
        let request = CallToolRequestParams::new("render_pdf").with_arguments(arguments);
        let result = self.client.call_tool(request).await.unwrap();
        let text = result.content.iter().filter_map(|block| block.as_text()).map(|text| text.text.as_str());
        Came(if result.is_error == Some(true) { Err(text.collect()) } else { Ok(result.structured_content.unwrap()) })
    }
}

impl Came {
    #[track_caller]
    fn back(self) -> Value {
        self.0.unwrap()
    }

    /// The refusal has a hint and says `what`.
    #[track_caller]
    fn refused(self, what: &str) {
        let text = self.0.unwrap_err();
        assert!(text.contains(what) && text.contains("hint: "), "expected a refusal that says {what:?}: {text}");
    }
}

#[tokio::test]
async fn a_report_is_a_pdf_that_is_always_the_same() {
    let world = RenderServer::new().await;
    world.put(
        "docs/report.md",
        "# A *fine* <report>\n\nText.\n\n![dot](../img/my%20dot.png)\n\n<div>gone</div>\n\n漢 é 漢\n",
    );
    world.put("img/my dot.png", DOT);
    let arguments =
        json!({ "source": "docs/report.md", "output": "out/report.pdf", "author": "Ann", "date": "2026-11-21" });
    let rendered = world.call(arguments.clone()).await.back();
    let pdf = std::fs::read(world.workspace().join("out/report.pdf")).unwrap();
    assert!(pdf.starts_with(b"%PDF-"));
    let sha256 = Sha256::digest(&pdf).iter().fold(String::new(), |hex, byte| format!("{hex}{byte:02x}"));
    assert_eq!(
        rendered,
        json!({
            "path": "out/report.pdf", "title": "A fine <report>", "bytes": pdf.len(), "sha256": sha256, "pages": 1,
            "images": 1, "missing_glyphs": ["漢"],
            "warnings": [
                "line 7: HTML is left out",
                "no font has these 1 characters, they are shown as boxes: 漢",
            ],
        })
    );
    assert_eq!(world.call(arguments).await.back(), rendered);

    let letter = json!({ "source": "docs/report.md", "output": "b.pdf", "title": "Other", "paper": "letter" });
    let letter = world.call(letter).await.back();
    assert_eq!(letter["title"], "Other");
    assert_ne!(letter["sha256"], rendered["sha256"]);
}

#[tokio::test]
async fn what_can_not_be_rendered_is_refused_with_what_and_where() {
    let world = RenderServer::new().await;
    std::fs::write(world.directory.path().join("secret.png"), DOT).unwrap();
    world.put("empty.md", " \n");
    world.put("missing.md", "a\n\n![x](gone.png)");
    world.put("outside.md", "![x](../secret.png)");
    world.put("typed.md", "![x](empty.md)");
    world.put("binary.md", b"a\xffb");
    world.put("deep.md", format!("{}x", "> ".repeat(100)));
    world.put("large.md", "word ".repeat(1 << 20));
    let render = |source: &str| world.call(json!({ "source": source, "output": "a.pdf" }));
    render("empty.md").await.refused("has no content");
    render("missing.md").await.refused("the image \"gone.png\" in line 3 cannot be shown");
    render("outside.md").await.refused("not in the workspace");
    render("typed.md").await.refused("not a PNG, JPEG, GIF, WebP or SVG");
    render("binary.md").await.refused("not UTF-8 text at byte 1");
    render("deep.md").await.refused("line 1 is nested deeper than");
    render("large.md").await.refused("more than the limit of 4194304");
    render("gone.md").await.refused("could not read");
    world.call(json!({ "source": "deep.md", "output": "deep.md" })).await.refused("same file");
    assert!(!world.workspace().join("a.pdf").exists());
}

#[tokio::test]
async fn markdown_that_is_nested_too_deep_does_not_end_the_server() {
    let world = RenderServer::new().await;
    for (name, text) in [
        ("quotes.md", format!("{}x\n", "> ".repeat(150))),
        ("many-quotes.md", format!("{}x\n", ">".repeat(20_000))),
        ("emphasis.md", format!("{}x{}\n", "*a _b ".repeat(1000), "b_ a* ".repeat(1000))),
    ] {
        world.put(name, text);
        let pdf = world.call(json!({"source": name, "output": "o.pdf"})).await;
        pdf.refused("line 1 is nested deeper than 16 levels");
    }
}
