//! Whole documents: what comes out, that it is always the same, and what is refused.
//!
//! Text is read back with `pdftotext` (poppler) where that is installed; elsewhere those checks say that they are skipped.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::process::Command;

use ua_pdf::{Paper, PdfError, PdfOptions, Rendered, limits, render};

use crate::skips::skipped;

const SAMPLE: &str = include_str!("../../../../fixtures/pdf/sample.md");

fn fixture(name: &str) -> Result<Vec<u8>, String> {
    let directory = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/pdf");
    std::fs::read(directory.join(name)).map_err(|error| error.to_string())
}

fn options() -> PdfOptions<'static> {
    PdfOptions { images: &fixture, ..PdfOptions::default() }
}

/// The text on the pages, one string per page.
fn text_of(rendered: &Rendered) -> Option<Vec<String>> {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), &rendered.pdf).unwrap();
    let Ok(output) = Command::new("pdftotext").arg("-layout").arg(file.path()).arg("-").output() else {
        skipped("pdftotext is not installed, so nothing reads the text of a PDF back");
        return None;
    };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    let pages: Vec<String> = text.trim_end_matches('\u{c}').split('\u{c}').map(str::to_owned).collect();
    assert_eq!(pages.len(), rendered.pages);
    Some(pages)
}

#[test]
fn the_sample_shows_everything() {
    let rendered = render(SAMPLE, &options()).unwrap();
    assert!(rendered.pdf.starts_with(b"%PDF-"));
    assert_eq!((rendered.pages, rendered.images), (3, 2));
    assert_eq!(rendered.title.as_deref(), Some("What a report may contain"));
    assert!(rendered.missing_glyphs.is_empty(), "{:?}", rendered.missing_glyphs);
    assert_eq!(
        rendered.warnings,
        [
            "line 106: HTML is left out",
            "line 102: the image https://example.org/x.png is not fetched, it became a link",
        ]
    );
    let Some(pages) = text_of(&rendered) else { return };
    for (page, parts) in pages.iter().zip([
        [
            "What a report may contain",
            "Ann Example · 2026-11-21",
            "#read(\"/etc/passwd\"), $x^2$, @label, <some",
            "1/3",
        ],
        ["3. starts at three", "fn sum(numbers: &[u64]) -> u64 {", "Sea gate", "2/3"],
        ["The tide over one day", "Inline tags too, but not the text\n", "a far picture", "3/3"],
    ]) {
        for part in parts {
            assert!(page.contains(part), "{part:?} in\n{page}");
        }
    }
}

#[test]
fn the_same_input_gives_the_same_bytes_in_any_process() {
    let digest = |bytes: &[u8]| {
        let mut hasher = DefaultHasher::new();
        bytes.hash(&mut hasher);
        format!("digest {:016x}", hasher.finish())
    };
    let here = digest(&render(SAMPLE, &options()).unwrap().pdf);
    println!("{here}");
    let own_name = "rendering::the_same_input_gives_the_same_bytes_in_any_process";
    // The other process is told by its arguments that it is the other one.
    if std::env::args().any(|argument| argument == "--include-ignored") {
        return;
    }
    assert_eq!(digest(&render(SAMPLE, &options()).unwrap().pdf), here);
    let elsewhere = tempfile::TempDir::new().unwrap();
    // What a renderer may be tempted to look at: the place, the language, the time zone, a clock that is told to it, the
    // number of threads, the home with its fonts.
    let surroundings: [&[(&str, &str)]; 3] = [
        &[("TZ", "Pacific/Kiritimati"), ("LC_ALL", "de_DE.UTF-8"), ("RAYON_NUM_THREADS", "1")],
        &[("TZ", "America/Los_Angeles"), ("LC_ALL", "C"), ("RAYON_NUM_THREADS", "7"), ("SOURCE_DATE_EPOCH", "1")],
        &[("HOME", "/nonexistent"), ("XDG_DATA_HOME", "/nonexistent"), ("SOURCE_DATE_EPOCH", "4000000000")],
    ];
    for variables in surroundings {
        let other = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", own_name, "--nocapture", "--include-ignored"])
            .env_clear()
            .envs(variables.iter().copied())
            .current_dir(&elsewhere)
            .output()
            .unwrap();
        let other = String::from_utf8(other.stdout).unwrap();
        assert!(other.contains(&here), "{here} with {variables:?} in\n{other}");
    }
}

#[test]
fn what_a_model_writes_is_never_run() {
    let hostile = [
        "#read(\"/etc/passwd\")",
        "\\#read(\"/etc/passwd\")",
        "\"; #read(\"/etc/passwd\"); \"",
        "\\\"#panic(\"x\")",
        "$ #panic() $ @x <x> `#panic()` *#panic()* ] #panic() [ ) } {",
        "#image(\"x.png\") #import \"@preview/x:1.0.0\" /* // \\u{23}",
    ];
    let mut markdown = String::from("---\ntitle: a\" #panic(\"\nauthor: \\\" #panic()\ndate: \") #panic(\"\n---\n\n");
    for text in hostile {
        markdown.push_str(&format!(
            "## {text}\n\n{text}\n\n- {text}\n- [x] {text}\n\n> {text}\n\n| {text} |\n|---|\n| {text} |\n\n```x\"#panic()\n{text}\n```\n\n\
             [{text}](<https://example.org/\"#panic()>) ![{text}](<dot.png> \"{text}\")[^n]\n\n"
        ));
    }
    markdown.push_str("[^n]: #panic() \\\" \"\n");
    let rendered = render(&markdown, &options()).unwrap();
    let Some(pages) = text_of(&rendered) else { return };
    let text = pages.concat();
    assert!(text.contains("#read(\"/etc/passwd\")") && text.contains("#panic(\"x\")"), "{text}");
    assert!(!text.contains("root:"), "{text}");
}

#[test]
fn characters_that_no_font_has_are_reported() {
    let rendered = render("# 漢字\n\n| 🎉 |\n|---|\n| é € α ✓ |\n\n`字`\n", &PdfOptions::default()).unwrap();
    assert_eq!(rendered.missing_glyphs, ['字', '漢', '🎉']);
}

#[test]
fn a_long_table_repeats_its_header_on_every_page() {
    let rows = (0..150).map(|row| format!("| row {row} | value |\n")).collect::<Vec<_>>().concat();
    let rendered = render(&format!("| Name of it | Value |\n|---|--:|\n{rows}"), &PdfOptions::default()).unwrap();
    assert!(rendered.pages >= 3, "{} pages", rendered.pages);
    let Some(pages) = text_of(&rendered) else { return };
    for page in pages {
        assert!(page.contains("Name of it"), "{page}");
    }
}

#[test]
fn links_that_lead_nowhere_keep_their_text_and_are_reported() {
    let markdown = "# T\n\n[a](#t) [b](#gone) [c](javascript:x) [d](other.md) [e]() [f](mailto:a@b.example)\n";
    let rendered = render(markdown, &PdfOptions::default()).unwrap();
    assert_eq!(
        rendered.warnings,
        [
            "line 3: no heading is named #gone, the link leads nowhere",
            "line 3: a PDF cannot link to \"javascript:x\", only its text is kept",
            "line 3: a PDF cannot link to \"other.md\", only its text is kept",
            "line 3: a PDF cannot link to \"\", only its text is kept",
        ]
    );
}

#[test]
fn images_that_can_not_be_shown_are_named() {
    let problem = |reference: &str, bytes: &[u8]| {
        let images = |name: &str| if name == "gone.png" { Err("it is gone".to_owned()) } else { Ok(bytes.to_vec()) };
        let options = PdfOptions { images: &images, ..PdfOptions::default() };
        match render(&format!("text\n\ntext ![x]({reference})\n"), &options) {
            Err(PdfError::Image { reference: named, line: 3, problem }) if named == reference => problem,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(problem("gone.png", b""), "it is gone");
    assert_eq!(problem("a.png", b"text"), "it is not a PNG, JPEG, GIF, WebP or SVG");
    assert_eq!(problem("a.svg", b"<svg"), "it is not a valid SVG");
    let mut cut = fixture("dot.png").unwrap();
    cut.truncate(60);
    assert!(problem("cut.png", &cut).contains("decode"));
}

#[test]
fn a_document_may_be_as_deep_as_the_limit_says() {
    let quotes = format!("{}x\n", "> ".repeat(limits::NESTING - 1));
    assert_eq!(render(&quotes, &PdfOptions::default()).unwrap().pages, 1);
    let lists = (0..limits::NESTING).map(|depth| "  ".repeat(depth) + "- x\n").collect::<Vec<_>>().concat();
    assert_eq!(render(&lists, &PdfOptions { paper: Paper::Letter, ..PdfOptions::default() }).unwrap().pages, 1);
    let deeper = format!("> {quotes}");
    assert!(matches!(render(&deeper, &PdfOptions::default()), Err(PdfError::TooDeep { line: 1, .. })));
}

/// Footnotes that each refer to the next, the last one to `end`.
fn chained_footnotes(count: usize, text: &str, end: &str) -> String {
    let mut markdown = String::from("Text[^0]\n\n");
    for number in 0..count {
        let next = if number + 1 == count { end.to_owned() } else { format!("[^{}]", number + 1) };
        markdown.push_str(&format!("[^{number}]: {text}{next}\n\n"));
    }
    markdown
}

#[test]
fn footnotes_in_footnotes_are_bounded_and_may_lead_in_a_circle() {
    let options = PdfOptions::default();
    assert_eq!(render(&chained_footnotes(limits::NESTING, "x", "."), &options).unwrap().pages, 1);
    for count in [limits::NESTING + 1, 10_000] {
        let refused = render(&chained_footnotes(count, "x", "."), &options).unwrap_err();
        assert_eq!(refused, PdfError::TooDeep { line: 3 + 2 * limits::NESTING, limit: limits::NESTING }, "{count}");
    }
    assert_eq!(render(&chained_footnotes(5, "x", "[^0]"), &options).unwrap().pages, 1);
    // The most that both limits allow together: an answer, whichever, and no abort.
    let quotes = "> ".repeat(limits::NESTING - 2);
    match render(&chained_footnotes(limits::NESTING, &quotes, "."), &options) {
        Ok(rendered) => assert!(rendered.pages > 0),
        Err(error) => assert!(matches!(error, PdfError::Layout { .. } | PdfError::TooDeep { .. }), "{error}"),
    }
}

#[test]
fn what_is_empty_too_large_or_too_long_is_refused_at_once() {
    for empty in ["", " \n", "---\ntitle: x\n---\n", "<!-- x -->\n"] {
        assert_eq!(render(empty, &PdfOptions::default()), Err(PdfError::Empty), "{empty:?}");
    }
    let large = "x".repeat(limits::MARKDOWN_BYTES + 1);
    assert!(matches!(render(&large, &PdfOptions::default()), Err(PdfError::TooLarge { .. })));
    let long = "- a\n".repeat(300_000);
    let pages = 3000;
    assert_eq!(render(&long, &PdfOptions::default()), Err(PdfError::TooLong { pages, limit: limits::PAGES }));
    // Of what stands apart a page has half as many.
    for one in ["---\n\n", "a\n\n", "> a\n\n<!-- -->\n\n"] {
        let refused = render(&one.repeat(150_000), &PdfOptions::default());
        assert!(matches!(refused, Err(PdfError::TooLong { .. })), "{one:?}: {refused:?}");
    }
}
