//! A layout in a process of its own: the same document, and an end to what a document may cost.

use std::path::PathBuf;

use ua_pdf::{Layout, LayoutProcess, PdfError, PdfOptions, render};

const DOT: &[u8] = include_bytes!("../../../../fixtures/pdf/dot.png");

fn md2pdf() -> LayoutProcess {
    LayoutProcess::new(PathBuf::from(env!("CARGO_BIN_EXE_md2pdf")), ["--serve".into()])
}

fn dot(name: &str) -> Result<Vec<u8>, String> {
    if name == "dot.png" { Ok(DOT.to_vec()) } else { Err(format!("there is no {name}")) }
}

fn options() -> PdfOptions<'static> {
    PdfOptions { author: Some("Ann".into()), date: Some("2026-11-24".into()), images: &dot, ..PdfOptions::default() }
}

#[test]
fn the_same_document_comes_from_a_process_of_its_own() {
    let markdown = "# Tide mills\n\nA wheel\u{6f22} turns.\n\n![a dot](dot.png)\n\n<div>gone</div>\n";
    let apart = Layout::Apart(md2pdf()).render(markdown, &options()).unwrap();
    assert_eq!(apart, render(markdown, &options()).unwrap());
    assert_eq!((apart.images, apart.pages), (1, 1));
}

#[test]
fn a_refusal_comes_over_as_it_is() {
    let layout = Layout::Apart(md2pdf());
    for markdown in ["", "a\n\n![x](gone.png)", &format!("{}x", "> ".repeat(100))] {
        assert_eq!(layout.render(markdown, &options()), render(markdown, &options()), "{markdown:?}");
    }
}

#[test]
fn a_document_that_takes_more_memory_or_time_than_there_is_for_one_is_refused() {
    // Many pages of a table: cheap to write, dear to lay out.
    let mut rows = String::new();
    for n in 0..3_000 {
        rows.push_str(&format!("| {n} | some words in a cell | more of them |\n"));
    }
    let markdown = format!("| a | b | c |\n|---|---|---|\n{rows}");
    let refused = |process: LayoutProcess| match Layout::Apart(process).render(&markdown, &options()) {
        Err(PdfError::TooCostly { limit }) => limit,
        other => panic!("expected a refusal: {:?}", other.map(|done| done.pages)),
    };
    assert_eq!(refused(md2pdf().within(120, 160 << 20)), "160 MiB of memory");
    assert_eq!(refused(md2pdf().within(1, 2 << 30)), "1 s of computing");
}

#[test]
fn a_program_that_does_not_answer_is_an_error_and_not_waited_for() {
    let silent = LayoutProcess::new(PathBuf::from("/bin/true"), []);
    let error = Layout::Apart(silent).render("text", &options()).unwrap_err();
    assert!(matches!(&error, PdfError::Renderer { problem } if problem.contains("gave no answer")), "{error}");
    let absent = LayoutProcess::new(PathBuf::from("/nowhere/at/all"), []);
    let error = Layout::Apart(absent).render("text", &options()).unwrap_err();
    assert!(matches!(&error, PdfError::Renderer { problem } if problem.contains("could not be started")), "{error}");
}

/// What lays out somebody else's document may have been taken over by it, and is not read without end.
#[test]
fn what_a_layout_says_without_end_is_not_kept() {
    let says = |script: &str| {
        let process = LayoutProcess::new(PathBuf::from("/bin/sh"), ["-c".into(), script.into()]);
        Layout::Apart(process).render("text", &options()).unwrap_err().to_string()
    };
    let endless = says("read -r _; exec tr '\\0' x </dev/zero");
    assert!(endless.contains("a line of more than 32 MiB"), "{endless}");
    let done = r#"{"done":{"bytes":99999999999,"pages":1,"title":null,"images":0,"missing_glyphs":[],"warnings":[]}}"#;
    let huge = says(&format!("read -r _; printf '%s\\n' '{done}'; exec tr '\\0' x </dev/zero"));
    assert!(huge.contains("99999999999 bytes"), "{huge}");
}

#[test]
fn a_file_without_end_and_one_that_nobody_writes_are_said_to_be_so() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let large = std::fs::File::create(at("large.md")).unwrap();
    large.set_len(1 << 40).unwrap();
    std::fs::File::create(at("large.png")).unwrap().set_len(1 << 40).unwrap();
    std::fs::write(at("images.md"), "![a](large.png)\n\n![b](pipe.png)\n").unwrap();
    let made = std::process::Command::new("mkfifo").arg(at("pipe.png")).arg(at("pipe.md")).status().unwrap();
    assert!(made.success());
    for (source, words) in [
        ("large.md", "large.md is larger than 4 MiB"),
        ("pipe.md", "is no regular file"),
        ("images.md", "large.png is larger than 20 MiB"),
    ] {
        let output = std::process::Command::new(env!("CARGO_BIN_EXE_md2pdf"))
            .arg(at(source))
            .arg(at("out.pdf"))
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.contains(words), "{source}: {said}");
    }
}
