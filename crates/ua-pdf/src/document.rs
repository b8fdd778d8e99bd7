//! A Markdown document as a tree.

use std::collections::BTreeMap;

pub(crate) use pulldown_cmark::{Alignment, BlockQuoteKind};

/// The whole document.
#[derive(Debug, Default)]
pub(crate) struct Document {
    pub(crate) front: FrontMatter,
    pub(crate) blocks: Vec<Block>,
    /// The footnotes by label.
    pub(crate) footnotes: BTreeMap<String, Footnote>,
    /// What was left out.
    pub(crate) warnings: Vec<String>,
}

/// What the lines between `---` at the very start say.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct FrontMatter {
    pub(crate) title: Option<String>,
    pub(crate) author: Option<String>,
    pub(crate) date: Option<String>,
}

#[derive(Debug)]
pub(crate) struct Footnote {
    pub(crate) line: usize,
    pub(crate) blocks: Vec<Block>,
}

/// A block and the line it begins in.
#[derive(Debug)]
pub(crate) struct Block {
    pub(crate) line: usize,
    pub(crate) kind: BlockKind,
}

#[derive(Debug)]
pub(crate) enum BlockKind {
    Paragraph(Vec<Inline>),
    /// Levels are 1 to 6.
    Heading(usize, Vec<Inline>),
    List(List),
    Quote(Option<BlockQuoteKind>, Vec<Block>),
    /// The language, if named, and the text.
    Code(Option<String>, String),
    Table(Table),
    Rule,
}

#[derive(Debug)]
pub(crate) struct List {
    /// The first number of an ordered list.
    pub(crate) start: Option<u64>,
    /// Whether there is no blank line between the items.
    pub(crate) is_tight: bool,
    pub(crate) items: Vec<Item>,
}

#[derive(Debug)]
pub(crate) struct Item {
    /// Whether a task is done; `None` when the item is no task.
    pub(crate) task: Option<bool>,
    pub(crate) blocks: Vec<Block>,
}

#[derive(Debug)]
pub(crate) struct Table {
    pub(crate) columns: Vec<Alignment>,
    pub(crate) head: Vec<Vec<Inline>>,
    pub(crate) rows: Vec<Vec<Vec<Inline>>>,
}

#[derive(Debug)]
pub(crate) enum Inline {
    Text(String),
    Code(String),
    Emphasis(Vec<Inline>),
    Strong(Vec<Inline>),
    Strike(Vec<Inline>),
    Link { target: String, line: usize, content: Vec<Inline> },
    Image { reference: String, title: String, alt: String, line: usize },
    Footnote(String),
    Task(bool),
    Break,
}

/// The text of inline content, without its form.
pub(crate) fn plain(content: &[Inline]) -> String {
    let mut text = String::new();
    push_plain(content, &mut text);
    text
}

fn push_plain(content: &[Inline], text: &mut String) {
    for part in content {
        match part {
            Inline::Text(part) | Inline::Code(part) | Inline::Image { alt: part, .. } => text.push_str(part),
            Inline::Emphasis(parts)
            | Inline::Strong(parts)
            | Inline::Strike(parts)
            | Inline::Link { content: parts, .. } => {
                push_plain(parts, text);
            }
            Inline::Break => text.push(' '),
            Inline::Footnote(_) | Inline::Task(_) => {}
        }
    }
}
