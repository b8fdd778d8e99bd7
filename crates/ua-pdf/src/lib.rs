//! Markdown to PDF, laid out by [Typst](https://typst.app) as a library.
//!
//! The deliverable of a research job is a report one is glad to send (Durable Jobs v1 spec §6, `report_pdf_created`).
//! `render` makes it from Markdown without a browser, a network, or anything installed on the machine: fonts are part
//! of the program, images come from the caller.
//!
//! - **Always the same.** The same Markdown, options and images give the same bytes, in any process, so a call that was
//!   lost may be run again and the content's hash names the document. No clock is read.
//! - **Text stays text.** Every piece of text becomes a Typst string literal; nothing that a model writes is code. Raw
//!   HTML is left out, links that could run something lose their target, and the layout has no files but the images.
//! - **Nothing is lost silently.** Characters that no font has, links that lead nowhere and HTML that was left out are
//!   reported in [`Rendered`]; an image that is missing is an error.
//! - **Bounded.** Input, images, nesting and pages have limits, and in a process of its own ([`Layout::Apart`]) so have
//!   time and memory (see [`limits`]).
//!
//! What is understood: CommonMark with tables, footnotes, task lists, strikethrough and GitHub's alerts, and a front
//! matter with `title`, `author` and `date`. The title is the one of the options, else of the front matter, else the
//! first heading of level 1; a document that begins with that heading has it as its title block. A paragraph that is
//! only an image becomes a figure whose caption is the image's title, else its alternative text.
//!
//! ```
//! use ua_pdf::{PdfOptions, render};
//!
//! let rendered = render("# Tide mills\n\nPower *by appointment*.", &PdfOptions::default())?;
//! assert!(rendered.pdf.starts_with(b"%PDF-"));
//! assert_eq!(rendered.pages, 1);
//! assert!(rendered.missing_glyphs.is_empty());
//! # Ok::<(), ua_pdf::PdfError>(())
//! ```

mod apart;
#[cfg(feature = "layout")]
mod document;
mod error;
#[cfg(feature = "layout")]
mod images;
pub mod limits;
mod options;
#[cfg(feature = "layout")]
mod outline;
#[cfg(feature = "layout")]
mod reader;
#[cfg(feature = "layout")]
mod render;
#[cfg(feature = "layout")]
mod source;
#[cfg(feature = "layout")]
mod world;

pub use apart::{Layout, LayoutProcess, serve};
pub use error::PdfError;
pub use options::{Paper, PdfOptions, Rendered, Renderer};
#[cfg(feature = "layout")]
pub use render::render;
