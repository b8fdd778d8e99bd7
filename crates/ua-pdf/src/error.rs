//! Why there is no PDF.

use serde::{Deserialize, Serialize};

/// Why Markdown could not be rendered. Lines are those of the Markdown, counted from 1.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "snake_case")]
pub enum PdfError {
    /// There is nothing to show.
    #[error("the Markdown has no content")]
    Empty,
    /// The Markdown is larger than [`limits::MARKDOWN_BYTES`](crate::limits::MARKDOWN_BYTES).
    #[error("the Markdown has {bytes} bytes, more than the limit of {limit}")]
    TooLarge {
        /// Its size in bytes.
        bytes: usize,
        /// The limit in bytes.
        limit: usize,
    },
    /// Lists, quotes, emphasis or footnotes in footnotes are nested deeper than
    /// [`limits::NESTING`](crate::limits::NESTING).
    #[error("line {line} is nested deeper than {limit} levels")]
    TooDeep {
        /// Where.
        line: usize,
        /// The limit in levels.
        limit: usize,
    },
    /// The tables have more cells than [`limits::CELLS`](crate::limits::CELLS), or one has more columns than
    /// [`limits::COLUMNS`](crate::limits::COLUMNS).
    #[error("the tables have more {what} than the limit of {limit}, up to line {line}")]
    TooManyCells {
        /// Cells, or columns.
        what: String,
        /// Where the one begins that is too much.
        line: usize,
        /// The limit.
        limit: usize,
    },
    /// An image cannot be shown.
    #[error("the image {reference:?} in line {line} cannot be shown: {problem}")]
    Image {
        /// The image as the Markdown names it.
        reference: String,
        /// Where.
        line: usize,
        /// What is wrong with it.
        problem: String,
    },
    /// The document is longer than [`limits::PAGES`](crate::limits::PAGES).
    #[error("the document has at least {pages} pages, more than the limit of {limit}")]
    TooLong {
        /// How many pages it has at least.
        pages: usize,
        /// The limit in pages.
        limit: usize,
    },
    /// The layout needs more time or memory than there is for one document.
    #[error("the layout needs more than {limit}, the limit of one document")]
    TooCostly {
        /// How much of what there is.
        limit: String,
    },
    /// The layout refused something.
    #[error("line {line} cannot be laid out: {problem}")]
    Layout {
        /// Where, or near it.
        line: usize,
        /// What the layout says.
        problem: String,
    },
    /// The renderer itself failed; no Markdown should be able to do that.
    #[error("the renderer failed: {problem}")]
    Renderer {
        /// What is known about it.
        problem: String,
    },
}
