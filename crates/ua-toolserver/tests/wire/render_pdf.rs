//! Markdown to PDF: what comes back, that it is always the same, and what is refused.

use serde_json::json;

use super::{World, sha256};

const DOT: &[u8] = include_bytes!("../../../../fixtures/pdf/dot.png");

#[tokio::test]
async fn a_report_is_a_pdf_that_is_always_the_same() {
    let world = World::new().await;
    world.put(
        "docs/report.md",
        "# A *fine* <report>\n\nText.\n\n![dot](../img/my%20dot.png)\n\n<div>gone</div>\n\n漢 é 漢\n",
    );
    world.put("img/my dot.png", DOT);
    let arguments =
        json!({ "source": "docs/report.md", "output": "out/report.pdf", "author": "Ann", "date": "2026-11-21" });
    let rendered = world.call("render_pdf", arguments.clone()).await.back();
    let pdf = std::fs::read(world.workspace().join("out/report.pdf")).unwrap();
    assert!(pdf.starts_with(b"%PDF-"));
    assert_eq!(
        rendered,
        json!({
            "path": "out/report.pdf", "title": "A fine <report>", "bytes": pdf.len(), "sha256": sha256(&pdf), "pages": 1,
            "images": 1, "missing_glyphs": ["漢"],
            "warnings": [
                "line 7: HTML is left out",
                "no font has these 1 characters, they are shown as boxes: 漢",
            ],
        })
    );
    assert_eq!(world.call("render_pdf", arguments).await.back(), rendered);

    let letter = json!({ "source": "docs/report.md", "output": "b.pdf", "title": "Other", "paper": "letter" });
    let letter = world.call("render_pdf", letter).await.back();
    assert_eq!(letter["title"], "Other");
    assert_ne!(letter["sha256"], rendered["sha256"]);
}

#[tokio::test]
async fn what_can_not_be_rendered_is_refused_with_what_and_where() {
    let world = World::new().await;
    std::fs::write(world.directory.path().join("secret.png"), DOT).unwrap();
    world.put("empty.md", " \n");
    world.put("missing.md", "a\n\n![x](gone.png)");
    world.put("outside.md", "![x](../secret.png)");
    world.put("typed.md", "![x](empty.md)");
    world.put("binary.md", b"a\xffb");
    world.put("deep.md", format!("{}x", "> ".repeat(100)));
    world.put("large.md", "word ".repeat(1 << 20));
    let render = |source: &str| world.call("render_pdf", json!({ "source": source, "output": "a.pdf" }));
    render("empty.md").await.refused("has no content");
    render("missing.md").await.refused("the image \"gone.png\" in line 3 can not be shown");
    render("outside.md").await.refused("not in the workspace");
    render("typed.md").await.refused("no PNG, JPEG, GIF, WebP or SVG");
    render("binary.md").await.refused("not UTF-8 text at byte 1");
    render("deep.md").await.refused("line 1 is nested deeper than");
    render("large.md").await.refused("more than the limit of 4194304");
    render("gone.md").await.refused("could not read");
    world.call("render_pdf", json!({ "source": "deep.md", "output": "deep.md" })).await.refused("same file");
    assert!(!world.workspace().join("a.pdf").exists());
}
