//! `render_pdf`: a Markdown file as a PDF.
//!
//! The layout is `ua-pdf`'s. The same source and images give the same bytes, so a lost call is simply run again. Images
//! come from the workspace only; those of the network become links, and nothing is fetched.

use std::path::Path;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use ua_pdf::{Layout, Paper, PdfError, PdfOptions, limits};

use super::render::{image_path, read_markdown};
use crate::answer::{Answer, Failure, success};
use crate::context::{Context, Order, Setup, blocking};
use crate::digest::sha256_hex;
use crate::regular;
use crate::tool::{Description, Effect, Opened, Tool};
use crate::workspace::Workspace;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Arguments {
    /// The Markdown file, relative to the workspace.
    source: String,
    /// The PDF file to write, relative to the workspace.
    output: String,
    /// The title; that of the front matter or the first heading when left out.
    title: Option<String>,
    /// The author to name below the title; the front matter's when left out.
    author: Option<String>,
    /// The date to show below the title, best as 2026-11-21; the front matter's when left out.
    date: Option<String>,
    /// The size of the pages; a4 when left out.
    #[serde(default)]
    paper: Size,
}

#[derive(Debug, Clone, Copy, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Size {
    #[default]
    A4,
    Letter,
}

#[derive(Debug, Serialize)]
struct Rendered {
    path: String,
    title: Option<String>,
    bytes: usize,
    sha256: String,
    pages: usize,
    images: usize,
    missing_glyphs: Vec<char>,
    warnings: Vec<String>,
}

/// The tool, with what lays documents out.
#[derive(Debug)]
pub(super) struct RenderPdf(Layout);

impl Tool for RenderPdf {
    const NAME: &'static str = "render_pdf";
    type Arguments = Arguments;

    fn open(setup: &Setup<'_>) -> Opened<Self> {
        Ok(setup.settings.pdf.clone().map(Self))
    }

    fn describe(&self) -> Description {
        Description::new(
            "Render Markdown as PDF",
            "Renders a Markdown file of the workspace (title block, tables, footnotes, task lists, code, images of the workspace) as a PDF with page numbers. Characters that no font has, such as Chinese ones and emoji, are shown as boxes and reported.",
            Effect::Replaces,
        )
    }

    async fn call(&self, context: &Context, given: Arguments, _: Order<'_>) -> Answer {
        let (workspace, layout) = (Arc::clone(&context.workspace), self.0.clone());
        let rendered = blocking(move || render(&workspace, &layout, &given)).await?;
        let pages = if rendered.pages == 1 { "page" } else { "pages" };
        let mut summary = format!("rendered {} with {} {pages}", rendered.path, rendered.pages);
        for warning in &rendered.warnings {
            summary.push_str("\nwarning: ");
            summary.push_str(warning);
        }
        success(summary, &rendered)
    }
}

fn render(workspace: &Workspace, layout: &Layout, given: &Arguments) -> Result<Rendered, Failure> {
    let source = workspace.readable(&given.source)?;
    let output = workspace.writable(&given.output)?;
    if source == output {
        let hint = "give another output, such as report.pdf";
        return Err(Failure::refused("source and output are the same file", hint));
    }
    let markdown = read_markdown(workspace, &source, &given.source, limits::MARKDOWN_BYTES as u64)?;

    let images = |reference: &str| image(workspace, &source, reference);
    let options = PdfOptions {
        title: given.title.clone(),
        author: given.author.clone(),
        date: given.date.clone(),
        paper: match given.paper {
            Size::A4 => Paper::A4,
            Size::Letter => Paper::Letter,
        },
        images: &images,
    };
    let done = layout
        .render(&markdown, &options)
        .map_err(|error| Failure::refused(format!("could not render {:?}: {error}", given.source), hint(&error)))?;
    let mut warnings = done.warnings;
    if !done.missing_glyphs.is_empty() {
        let shown: String = done.missing_glyphs.iter().take(40).collect();
        let count = done.missing_glyphs.len();
        warnings.push(format!("no font has these {count} characters, they are shown as boxes: {shown}"));
    }

    let _lock = workspace.exclusive()?;
    workspace
        .area()
        .replace(&output, &done.pdf)
        .map_err(|error| error.into_failure(format!("write {:?}", given.output)))?;
    Ok(Rendered {
        path: output.to_string_lossy().into_owned(),
        title: done.title,
        bytes: done.pdf.len(),
        sha256: sha256_hex(&done.pdf),
        pages: done.pages,
        images: done.images,
        missing_glyphs: done.missing_glyphs,
        warnings,
    })
}

/// What to do about Markdown that is not rendered.
fn hint(error: &PdfError) -> &'static str {
    match error {
        PdfError::Empty => "write some text into the file first",
        PdfError::TooLarge { .. } | PdfError::TooLong { .. } | PdfError::TooCostly { .. } => "split the document",
        PdfError::TooManyCells { .. } => "give the table as a file of its own, and sum it up here",
        PdfError::TooDeep { .. } => "flatten the lists, quotes, emphasis or footnotes there",
        PdfError::Image { .. } => "name an image file of the workspace, relative to the Markdown file, or take it out",
        PdfError::Layout { .. } => "change what is there and try again",
        PdfError::Renderer { .. } => "try again with a simpler document, or use render_html",
    }
}

/// The bytes of the image that the Markdown file `source` calls `reference`.
fn image(workspace: &Workspace, source: &Path, reference: &str) -> Result<Vec<u8>, String> {
    let path = image_path(source, reference).ok_or("it is not in the workspace")?;
    let path = workspace.readable(&path.to_string_lossy()).map_err(|failure| failure.text())?;
    regular::read_up_to(workspace.area().dir(), &path, reference, limits::IMAGE_BYTES as u64)
        .map_err(|failure| failure.text())
}
