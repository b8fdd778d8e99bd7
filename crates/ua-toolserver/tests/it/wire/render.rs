//! Markdown to HTML: self-contained, safe and always the same.

#![expect(clippy::disallowed_methods, reason = "tests make the files that they look at")]

use serde_json::json;

use super::{TestServer, sha256};

const MARKDOWN: &str = "# A *fine* <report>\n\n| a | b |\n|---|--:|\n| 1 | ~~2~~ |\n\nNote[^1].\n\n[^1]: Said so.\n\n\
    <script>alert(1)</script>\n\nInline <b onclick=x>raw</b>, [bad](javascript:alert(1)), [good](https://example.org/).\n\n\
    ![dot](../img/dot.png) ![far](https://example.org/x.png)\n\n- [x] done\n";

#[tokio::test]
async fn a_page_is_self_contained_and_safe() {
    let world = TestServer::new().await;
    world.put("docs/report.md", MARKDOWN);
    world.put("img/dot.png", b"\x89PNG dot");
    let arguments = json!({ "source": "docs/report.md", "output": "out/report.html" });
    let rendered = world.call("render_html", arguments.clone()).await.back();
    let page = world.text("out/report.html");
    assert_eq!(
        rendered,
        json!({
            "path": "out/report.html", "title": "A fine <report>", "bytes": page.len(), "sha256": sha256(&page), "images": 1,
        })
    );
    for part in [
        "<title>A fine &lt;report&gt;</title>",
        "<table>",
        "<del>2</del>",
        "footnote-definition",
        "<style>",
        "src=\"data:image/png;base64,iVBORyBkb3Q=\"",
        "<a href=\"https://example.org/x.png\">far</a>",
        "<a href=\"#\">bad</a>",
        "<a href=\"https://example.org/\">good</a>",
        "&lt;script&gt;alert(1)&lt;/script&gt;",
        "&lt;b onclick=x&gt;",
        "checkbox",
    ] {
        assert!(page.contains(part), "{part} in\n{page}");
    }
    assert!(!page.contains("<script") && !page.contains("<b ") && !page.contains("javascript:"), "{page}");

    world.call("render_html", arguments).await.back();
    assert_eq!(world.text("out/report.html"), page, "the same bytes again");
}

#[tokio::test]
async fn an_alert_is_marked_as_one() {
    let world = TestServer::new().await;
    world.put("a.md", "# T\n\n> [!WARNING]\n> The tide *turns*.\n\n> [!not one]\n");
    world.call("render_html", json!({ "source": "a.md", "output": "a.html" })).await.back();
    let page = world.text("a.html");
    for part in
        ["<blockquote class=\"markdown-alert-warning\">\n<p>The tide <em>turns</em>.", "<blockquote>\n<p>[!not one]"]
    {
        assert!(page.contains(part), "{part} in\n{page}");
    }
}

#[tokio::test]
async fn a_title_may_be_given_or_comes_from_the_file() {
    let world = TestServer::new().await;
    world.put("plain.md", "no heading");
    let title = async |arguments| world.call("render_html", arguments).await.back()["title"].clone();
    assert_eq!(title(json!({ "source": "plain.md", "output": "a.html" })).await, "plain");
    assert_eq!(title(json!({ "source": "plain.md", "output": "a.html", "title": "<T>" })).await, "<T>");
    assert!(world.text("a.html").contains("<title>&lt;T&gt;</title>"));
}

#[tokio::test]
async fn nothing_is_written_when_something_is_missing() {
    let world = TestServer::new().await;
    std::fs::write(world.directory.path().join("secret.png"), "x").unwrap();
    world.put("broken.md", "![x](gone.png)");
    world.put("out.md", "![x](../secret.png)");
    world.put("typed.md", "![x](broken.md)");
    let render = |source: &str| world.call("render_html", json!({ "source": source, "output": "a.html" }));
    render("broken.md").await.refused("\"gone.png\" cannot be embedded");
    // Of one file of nine MiB a little Markdown makes a page of any size.
    world.put("large.svg", format!("<svg>{}</svg>", " ".repeat(9 * 1024 * 1024)));
    world.put("bomb.md", "![x](large.svg)\n".repeat(8));
    render("bomb.md").await.refused("the images of the page come to more than 64 MiB");
    render("out.md").await.refused("not in the workspace");
    render("typed.md").await.refused("not a type of image");
    render("gone.md").await.refused("could not read");
    world.call("render_html", json!({ "source": "out.md", "output": "out.md" })).await.refused("same file");
    assert!(!world.workspace().join("a.html").exists());
}
