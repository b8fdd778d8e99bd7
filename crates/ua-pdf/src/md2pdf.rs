//! A Markdown file as a PDF: `cargo run -p ua-pdf --bin md2pdf -- report.md report.pdf`.
//!
//! Images are looked for beside the Markdown file. With `--serve` it lays out one document for the process that started it.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;
use std::process::ExitCode;

use ua_pdf::{PdfOptions, limits, render};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments == ["--serve"] {
        return ExitCode::from(u8::try_from(ua_pdf::serve(render)).unwrap_or(1));
    }
    let [source, output] = arguments.as_slice() else {
        eprintln!("usage: md2pdf SOURCE.md OUTPUT.pdf");
        return ExitCode::from(2);
    };
    match convert(Path::new(source), Path::new(output)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("could not render {source}: {error}");
            ExitCode::FAILURE
        }
    }
}

fn convert(source: &Path, output: &Path) -> Result<(), Box<dyn std::error::Error>> {
    let directory = source.parent().unwrap_or(Path::new(""));
    let images = |name: &str| read(&directory.join(name), limits::IMAGE_BYTES).map_err(|error| error.to_string());
    let markdown = String::from_utf8(read(source, limits::MARKDOWN_BYTES)?)?;
    let rendered = render(&markdown, &PdfOptions { images: &images, ..PdfOptions::default() })?;
    std::fs::write(output, &rendered.pdf)?;
    eprintln!("{} pages, {} bytes", rendered.pages, rendered.pdf.len());
    for warning in &rendered.warnings {
        eprintln!("warning: {warning}");
    }
    if !rendered.missing_glyphs.is_empty() {
        eprintln!("warning: no font has {:?}", rendered.missing_glyphs);
    }
    Ok(())
}

/// A file of at most so many bytes. The Markdown names the images: one may be a pipe that nobody writes into, or have no end.
fn read(path: &Path, most: usize) -> io::Result<Vec<u8>> {
    if !std::fs::metadata(path)?.is_file() {
        return Err(io::Error::other(format!("{} is no regular file", shown(path))));
    }
    let mut bytes = Vec::new();
    File::open(path)?.take(most as u64 + 1).read_to_end(&mut bytes)?;
    if bytes.len() > most {
        return Err(io::Error::other(format!("{} is larger than {} MiB", shown(path), most >> 20)));
    }
    Ok(bytes)
}

/// A path on one line: whoever made a file chose its name.
fn shown(path: &Path) -> String {
    path.to_string_lossy().escape_debug().to_string()
}
