//! A Markdown file as a PDF: `cargo run -p ua-pdf --bin md2pdf -- report.md report.pdf`.
//!
//! Images are looked for beside the Markdown file. With `--serve` it lays out one document for the process that started it.

use std::path::Path;
use std::process::ExitCode;

use ua_pdf::{PdfOptions, render};

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
    let images = |name: &str| std::fs::read(directory.join(name)).map_err(|error| error.to_string());
    let rendered = render(&std::fs::read_to_string(source)?, &PdfOptions { images: &images, ..PdfOptions::default() })?;
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
