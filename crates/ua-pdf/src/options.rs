//! What goes into a rendering besides the Markdown, and what comes out.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::error::PdfError;

/// What lays Markdown out as a PDF: `ua_pdf::render`, where the feature `layout` is on.
///
/// A program that offers PDF hands it to its tool server. One that does not never names it, and so has no layout engine in it.
pub type Renderer = fn(&str, &PdfOptions<'_>) -> Result<Rendered, PdfError>;

/// The size of the pages.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Paper {
    /// 210 mm by 297 mm.
    #[default]
    A4,
    /// 8.5 in by 11 in.
    Letter,
}

/// How to render, and where images come from.
pub struct PdfOptions<'a> {
    /// The title; when left out, that of the front matter or the first heading of level 1.
    pub title: Option<String>,
    /// Who wrote it; when left out, the front matter's `author`.
    pub author: Option<String>,
    /// The date to show below the title, as it is to be shown; when left out, the front matter's `date`. Only one of the
    /// form `2026-11-21` becomes the document's date in its metadata too.
    pub date: Option<String>,
    /// The size of the pages.
    pub paper: Paper,
    /// Finds the bytes of the image that the Markdown names so, or says why it cannot; the text reads after
    /// "cannot be shown:". PNG, JPEG, GIF, WebP and SVG are understood.
    pub images: &'a dyn Fn(&str) -> Result<Vec<u8>, String>,
}

impl Default for PdfOptions<'_> {
    /// A4, everything from the Markdown, and no images to be found.
    fn default() -> Self {
        Self {
            title: None,
            author: None,
            date: None,
            paper: Paper::A4,
            images: &|_| Err("there are no images here".to_owned()),
        }
    }
}

impl fmt::Debug for PdfOptions<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PdfOptions")
            .field("title", &self.title)
            .field("author", &self.author)
            .field("date", &self.date)
            .field("paper", &self.paper)
            .finish_non_exhaustive()
    }
}

/// A finished document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rendered {
    /// The file.
    pub pdf: Vec<u8>,
    /// How many pages it has.
    pub pages: usize,
    /// The title in its metadata, if it has one.
    pub title: Option<String>,
    /// How many different images it shows.
    pub images: usize,
    /// The characters that no font has and that are shown as boxes, sorted.
    pub missing_glyphs: Vec<char>,
    /// What a reader of the Markdown would expect to see and does not, each a sentence fragment with its line.
    pub warnings: Vec<String>,
}
