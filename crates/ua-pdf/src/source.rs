//! Writes the tree as a Typst program in which every text of the document is a string literal.
//!
//! Invariant: what comes from the Markdown reaches the program through [`literal`] only, or as a number. Labels and file
//! names are our own.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::document::{Alignment, Block, BlockKind, BlockQuoteKind, Footnote, Inline, List, Table};
use crate::error::PdfError;
use crate::images::Images;
use crate::limits;
use crate::outline::Outline;

/// Words longer than this may be broken anywhere, so that they do not run off the page.
const LONG_WORD: usize = 40;
/// The same in a table.
const LONG_WORD_IN_TABLE: usize = 18;
/// What stands between blocks with a space between them.
const APART: &str = "\n\n";
/// The longest link target; the layout takes no longer ones.
const MAX_TARGET: usize = 4000;

/// Writes a program.
pub(crate) struct Writer<'a> {
    out: String,
    /// Where in the program each line of the Markdown begins: offset and line, both rising.
    marks: Vec<(usize, usize)>,
    /// The least number of lines on paper (`limits::LINES_PER_PAGE`).
    lines: usize,
    warnings: Vec<String>,
    images: Images<'a>,
    outline: &'a Outline,
    footnotes: &'a BTreeMap<String, Footnote>,
    /// The footnotes that were written, numbered.
    noted: BTreeMap<&'a str, usize>,
    headings: usize,
    /// Whether this is the text of a footnote, which has no targets for links.
    in_footnote: bool,
    /// How many footnotes are being written, each referred to by the one before it.
    open_footnotes: usize,
    in_table: bool,
}

/// A written program.
pub(crate) struct Program<'a> {
    pub(crate) text: String,
    pub(crate) marks: Vec<(usize, usize)>,
    pub(crate) lines: usize,
    pub(crate) warnings: Vec<String>,
    pub(crate) images: Images<'a>,
}

/// A string literal of the layout's language with the given value. Control characters are left out.
pub(crate) fn literal(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            c if c.is_control() => {}
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

impl<'a> Writer<'a> {
    /// A writer that continues `start`, for a document with these images, headings and footnotes.
    pub(crate) fn new(
        start: String,
        images: Images<'a>,
        outline: &'a Outline,
        footnotes: &'a BTreeMap<String, Footnote>,
    ) -> Self {
        Self {
            out: start,
            marks: Vec::new(),
            lines: 0,
            warnings: Vec::new(),
            images,
            outline,
            footnotes,
            noted: BTreeMap::new(),
            // The heading that became the title has a number too.
            headings: usize::from(outline.has_lead),
            in_footnote: false,
            open_footnotes: 0,
            in_table: false,
        }
    }

    /// Writes what is not part of the document.
    pub(crate) fn code(&mut self, code: &str) {
        self.out.push_str(code);
    }

    pub(crate) fn finish(mut self) -> Program<'a> {
        for (label, footnote) in self.footnotes {
            if !self.noted.contains_key(label.as_str()) {
                self.warnings
                    .push(format!("line {}: nothing refers to the footnote {label:?}, it is left out", footnote.line));
            }
        }
        Program { text: self.out, marks: self.marks, lines: self.lines, warnings: self.warnings, images: self.images }
    }

    /// Writes blocks as markup.
    pub(crate) fn blocks(&mut self, blocks: &'a [Block]) -> Result<(), PdfError> {
        self.blocks_apart(blocks, APART)
    }

    fn blocks_apart(&mut self, blocks: &'a [Block], between: &str) -> Result<(), PdfError> {
        for (index, block) in blocks.iter().enumerate() {
            if index > 0 {
                self.code(between);
            }
            self.marks.push((self.out.len(), block.line));
            // Blocks that stand apart have more than a line's height between them.
            self.lines += if index > 0 && between == APART { 2 } else { 1 };
            self.block(block)?;
        }
        Ok(())
    }

    fn block(&mut self, block: &'a Block) -> Result<(), PdfError> {
        match &block.kind {
            BlockKind::Paragraph(content) => match content.as_slice() {
                [Inline::Image { reference, title, alt, line }] if !is_remote(reference) => {
                    self.figure(reference, title, alt, *line)?;
                }
                content => self.inline(content)?,
            },
            BlockKind::Heading(level, content) => {
                let level = level.saturating_sub(self.outline.rise).max(1);
                write_to(&mut self.out, format_args!("#heading(level: {level})["));
                self.inline(content)?;
                self.code("]");
                if !self.in_footnote {
                    write_to(&mut self.out, format_args!("<heading-{}>", self.headings));
                    self.headings += 1;
                }
            }
            BlockKind::List(list) => self.list(list)?,
            BlockKind::Quote(None, blocks) => {
                self.code("#quoted[");
                self.blocks(blocks)?;
                self.code("];");
            }
            BlockKind::Quote(Some(kind), blocks) => {
                let (label, color) = match kind {
                    BlockQuoteKind::Note => ("Note", "#0969da"),
                    BlockQuoteKind::Tip => ("Tip", "#1a7f37"),
                    BlockQuoteKind::Important => ("Important", "#8250df"),
                    BlockQuoteKind::Warning => ("Warning", "#9a6700"),
                    BlockQuoteKind::Caution => ("Caution", "#cf222e"),
                };
                write_to(&mut self.out, format_args!("#alert(\"{label}\", \"{color}\")["));
                self.blocks(blocks)?;
                self.code("];");
            }
            BlockKind::Code(language, text) => {
                let text = text.strip_suffix('\n').unwrap_or(text);
                self.lines += text.lines().count();
                let language = language.as_deref().map_or_else(|| "none".to_owned(), literal);
                write_to(&mut self.out, format_args!("#raw(block: true, lang: {language}, {});", literal(text)));
            }
            BlockKind::Table(table) => self.table(table)?,
            BlockKind::Rule => self.code("#rule;"),
        }
        Ok(())
    }

    fn list(&mut self, list: &'a List) -> Result<(), PdfError> {
        let is_tight = list.is_tight;
        let has_tasks = list.items.iter().any(|item| item.task.is_some());
        match list.start {
            _ if has_tasks => write_to(&mut self.out, format_args!("#tasks({is_tight}, ")),
            Some(start) => write_to(&mut self.out, format_args!("#enum(tight: {is_tight}, start: {start}, ")),
            None => write_to(&mut self.out, format_args!("#list(tight: {is_tight}, ")),
        }
        for item in &list.items {
            if has_tasks {
                match item.task {
                    Some(is_done) => write_to(&mut self.out, format_args!("checkbox({is_done}), ")),
                    None => self.code("[•], "),
                }
            }
            self.lines += usize::from(item.blocks.is_empty());
            self.code("[");
            self.blocks_apart(&item.blocks, if is_tight { "\n" } else { APART })?;
            self.code("], ");
        }
        self.code(");");
        Ok(())
    }

    fn table(&mut self, table: &'a Table) -> Result<(), PdfError> {
        let columns = table.columns.len();
        write_to(&mut self.out, format_args!("#table(columns: {columns}, align: ("));
        for column in &table.columns {
            self.code(match column {
                Alignment::None | Alignment::Left => "left, ",
                Alignment::Center => "center, ",
                Alignment::Right => "right, ",
            });
        }
        self.code("), table.header(");
        let was_in_table = std::mem::replace(&mut self.in_table, true);
        self.cells(&table.head, columns)?;
        self.code("), ");
        for row in &table.rows {
            self.lines += 1;
            self.cells(row, columns)?;
        }
        self.in_table = was_in_table;
        self.code(");");
        Ok(())
    }

    fn cells(&mut self, cells: &'a [Vec<Inline>], columns: usize) -> Result<(), PdfError> {
        let none: &[Inline] = &[];
        for cell in cells.iter().map(Vec::as_slice).chain(std::iter::repeat(none)).take(columns) {
            self.code("[");
            self.inline(cell)?;
            self.code("], ");
        }
        Ok(())
    }

    /// Writes inline content as markup.
    pub(crate) fn inline(&mut self, content: &'a [Inline]) -> Result<(), PdfError> {
        for part in content {
            match part {
                Inline::Text(text) => self.text(text),
                Inline::Code(code) => write_to(&mut self.out, format_args!("#raw({});", literal(code))),
                Inline::Emphasis(content) => self.within("#emph", content)?,
                Inline::Strong(content) => self.within("#strong", content)?,
                Inline::Strike(content) => self.within("#strike", content)?,
                Inline::Link { target, line, content } => match self.target(target, *line) {
                    Some(target) => self.within(&format!("#link({target})"), content)?,
                    None => self.inline(content)?,
                },
                Inline::Image { reference, alt, line, .. } if is_remote(reference) => {
                    self.warnings.push(format!("line {line}: the image {reference} is not fetched, it became a link"));
                    let shown = if alt.is_empty() { reference } else { alt };
                    write_to(&mut self.out, format_args!("#link({})[", literal(reference)));
                    self.text(shown);
                    self.code("];");
                }
                Inline::Image { reference, alt, line, .. } => {
                    let path = self.images.path(reference, *line)?;
                    write_to(&mut self.out, format_args!("#small-picture(\"{path}\", {});", alternative(alt)));
                }
                Inline::Footnote(label) => self.footnote(label)?,
                Inline::Task(_) => {}
                Inline::Break => self.code("#linebreak();"),
            }
        }
        Ok(())
    }

    fn within(&mut self, function: &str, content: &'a [Inline]) -> Result<(), PdfError> {
        self.code(function);
        self.code("[");
        self.inline(content)?;
        self.code("];");
        Ok(())
    }

    /// Writes text; long words get places where a line may end.
    fn text(&mut self, text: &str) {
        let limit = if self.in_table { LONG_WORD_IN_TABLE } else { LONG_WORD };
        let mut piece = String::new();
        let mut word = 0;
        for c in text.chars() {
            word = if c.is_whitespace() { 0 } else { word + 1 };
            if word > limit {
                write_to(&mut self.out, format_args!("#{};#gap;", literal(&piece)));
                piece.clear();
                word = 1;
            }
            piece.push(c);
        }
        write_to(&mut self.out, format_args!("#{};", literal(&piece)));
    }

    fn figure(&mut self, reference: &str, title: &str, alt: &str, line: usize) -> Result<(), PdfError> {
        let path = self.images.path(reference, line)?;
        write_to(&mut self.out, format_args!("#figure(picture(\"{path}\", {})", alternative(alt)));
        let caption = if title.is_empty() { alt } else { title };
        if !caption.is_empty() {
            self.code(", caption: [");
            self.text(caption);
            self.code("]");
        }
        self.code(");");
        Ok(())
    }

    /// Writes a footnote where it is first referred to, and its number where it is again.
    fn footnote(&mut self, label: &'a str) -> Result<(), PdfError> {
        let Some(footnote) = self.footnotes.get(label) else {
            self.text(&format!("[^{label}]"));
            return Ok(());
        };
        if let Some(number) = self.noted.get(label) {
            write_to(&mut self.out, format_args!("#footnote(<footnote-{number}>);"));
            return Ok(());
        }
        if self.open_footnotes == limits::NESTING {
            return Err(PdfError::TooDeep { line: footnote.line, limit: limits::NESTING });
        }
        self.open_footnotes += 1;
        let number = self.noted.len();
        self.noted.insert(label, number);
        self.code("#footnote[");
        let outside = (std::mem::replace(&mut self.in_footnote, true), std::mem::replace(&mut self.in_table, false));
        self.blocks(&footnote.blocks)?;
        (self.in_footnote, self.in_table) = outside;
        self.open_footnotes -= 1;
        write_to(&mut self.out, format_args!("]<footnote-{number}>"));
        Ok(())
    }

    /// The layout's argument for a link target, if a PDF can have it.
    fn target(&mut self, target: &str, line: usize) -> Option<String> {
        let shown: String = target.chars().take(80).collect();
        if let Some(anchor) = target.strip_prefix('#') {
            let Some(number) = self.outline.heading(anchor) else {
                self.warnings.push(format!("line {line}: no heading is named {shown}, the link leads nowhere"));
                return None;
            };
            return Some(format!("<heading-{number}>"));
        }
        let scheme = target.split_once(':').map(|(scheme, _)| scheme);
        let is_known = scheme.is_some_and(|scheme| {
            ["http", "https", "mailto", "tel", "ftp"].iter().any(|known| scheme.eq_ignore_ascii_case(known))
        });
        if is_known && target.len() <= MAX_TARGET {
            return Some(literal(target));
        }
        self.warnings.push(format!("line {line}: a PDF cannot link to {shown:?}, only its text is kept"));
        None
    }
}

fn is_remote(reference: &str) -> bool {
    ["http://", "https://"].iter().any(|scheme| reference.starts_with(scheme))
}

fn alternative(alt: &str) -> String {
    if alt.is_empty() { "none".to_owned() } else { literal(alt) }
}

fn write_to(out: &mut String, what: std::fmt::Arguments<'_>) {
    #[expect(clippy::expect_used, reason = "writing to a string does not fail")]
    out.write_fmt(what).expect("a string takes any text");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_literal_can_not_be_left() {
        assert_eq!(literal("a\"#b\\\n\u{7}\tc"), "\"a\\\"#b\\\\\\n\\tc\"");
        assert_eq!(literal("\\\""), r#""\\\"""#);
    }
}
