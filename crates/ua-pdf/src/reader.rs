//! Reads Markdown into the tree, with bounded nesting.
//!
//! Proved by: the tests below; `tests/it/rendering.rs` for the whole way to the page.

use std::iter::Peekable;
use std::ops::Range;

use pulldown_cmark::{CodeBlockKind, Event, LinkType, OffsetIter, Options, Parser, Tag, TagEnd};

use crate::document::{Block, BlockKind, Document, Footnote, FrontMatter, Inline, Item, List, Table, plain};
use crate::error::PdfError;
use crate::limits;

/// Reads `markdown`.
pub(crate) fn read(markdown: &str) -> Result<Document, PdfError> {
    let options = Options::ENABLE_TABLES
        | Options::ENABLE_FOOTNOTES
        | Options::ENABLE_STRIKETHROUGH
        | Options::ENABLE_TASKLISTS
        | Options::ENABLE_GFM
        | Options::ENABLE_YAML_STYLE_METADATA_BLOCKS;
    let mut reader = Reader {
        events: Parser::new_ext(markdown, options).into_offset_iter().peekable(),
        lines: Lines::new(markdown),
        depth: 0,
        cells: 0,
        document: Document::default(),
    };
    reader.document.blocks = reader.blocks()?;
    Ok(reader.document)
}

/// Finds the line of a byte.
struct Lines {
    ends: Vec<usize>,
}

impl Lines {
    fn new(text: &str) -> Self {
        Self { ends: text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n').map(|(at, _)| at).collect() }
    }

    fn at(&self, offset: usize) -> usize {
        self.ends.partition_point(|end| *end < offset) + 1
    }
}

struct Reader<'a> {
    events: Peekable<OffsetIter<'a>>,
    lines: Lines,
    depth: usize,
    /// How many cells of tables were read.
    cells: usize,
    document: Document,
}

/// Blocks that are being read, and inline content between them that has no paragraph of its own (in tight lists).
#[derive(Default)]
struct Pending {
    blocks: Vec<Block>,
    inline: Vec<Inline>,
    line: usize,
}

impl Pending {
    fn flush(&mut self) {
        let inline = std::mem::take(&mut self.inline);
        if !inline.is_empty() {
            self.blocks.push(Block { line: self.line, kind: BlockKind::Paragraph(inline) });
        }
    }

    fn push(&mut self, line: usize, kind: BlockKind) {
        self.flush();
        self.blocks.push(Block { line, kind });
    }
}

impl<'a> Reader<'a> {
    /// Reads blocks up to the end of what they are in.
    fn blocks(&mut self) -> Result<Vec<Block>, PdfError> {
        let mut pending = Pending::default();
        while let Some((event, range)) = self.events.next() {
            let line = self.lines.at(range.start);
            match event {
                Event::Start(tag) => {
                    self.enter(line)?;
                    if let Some(tag) = self.block(tag, line, &mut pending)? {
                        if pending.inline.is_empty() {
                            pending.line = line;
                        }
                        self.span(tag, &range, line, &mut pending.inline)?;
                    }
                    self.depth -= 1;
                }
                Event::End(_) => break,
                Event::Rule => pending.push(line, BlockKind::Rule),
                other @ (Event::Text(_)
                | Event::Code(_)
                | Event::InlineMath(_)
                | Event::DisplayMath(_)
                | Event::Html(_)
                | Event::InlineHtml(_)
                | Event::FootnoteReference(_)
                | Event::SoftBreak
                | Event::HardBreak
                | Event::TaskListMarker(_)) => {
                    if pending.inline.is_empty() {
                        pending.line = line;
                    }
                    push_leaf(other, &mut pending.inline);
                }
            }
        }
        pending.flush();
        Ok(pending.blocks)
    }

    fn enter(&mut self, line: usize) -> Result<(), PdfError> {
        self.depth += 1;
        if self.depth > limits::NESTING {
            return Err(PdfError::TooDeep { line, limit: limits::NESTING });
        }
        Ok(())
    }

    /// Reads the block that `tag` begins; gives the tag back when it begins no block.
    fn block(&mut self, tag: Tag<'a>, line: usize, pending: &mut Pending) -> Result<Option<Tag<'a>>, PdfError> {
        match tag {
            Tag::Paragraph => {
                let content = self.inline()?;
                pending.push(line, BlockKind::Paragraph(content));
            }
            Tag::Heading { level, .. } => {
                let content = self.inline()?;
                pending.push(line, BlockKind::Heading(level as usize, content));
            }
            Tag::BlockQuote(kind) => {
                let blocks = self.blocks()?;
                pending.push(line, BlockKind::Quote(kind, blocks));
            }
            Tag::CodeBlock(kind) => {
                let language = match kind {
                    CodeBlockKind::Indented => None,
                    CodeBlockKind::Fenced(info) => info.split([' ', ',', '\t']).next().map(str::to_owned),
                };
                let text = self.verbatim();
                pending.push(line, BlockKind::Code(language.filter(|name| !name.is_empty()), text));
            }
            Tag::HtmlBlock => {
                let html = self.verbatim();
                let html = html.trim();
                if !is_html(html) {
                    pending.push(line, BlockKind::Paragraph(vec![Inline::Text(html.to_owned())]));
                } else if !(html.starts_with("<!--") && html.ends_with("-->")) {
                    self.document.warnings.push(format!("line {line}: HTML is left out"));
                }
            }
            Tag::List(start) => {
                let list = self.list(start)?;
                pending.push(line, BlockKind::List(list));
            }
            Tag::Table(columns) => {
                let table = self.table(columns, line)?;
                pending.push(line, BlockKind::Table(table));
            }
            Tag::FootnoteDefinition(label) => {
                let blocks = self.blocks()?;
                // As on GitHub, the first definition of a label counts.
                self.document.footnotes.entry(label.into_string()).or_insert(Footnote { line, blocks });
            }
            Tag::MetadataBlock(_) => {
                let text = self.verbatim();
                self.document.front = front_matter(&text);
            }
            Tag::Item
            | Tag::DefinitionList
            | Tag::DefinitionListTitle
            | Tag::DefinitionListDefinition
            | Tag::TableHead
            | Tag::TableRow
            | Tag::TableCell => unreachable!("read by its list or table, or not asked for"),
            span @ (Tag::Emphasis
            | Tag::Strong
            | Tag::Strikethrough
            | Tag::Superscript
            | Tag::Subscript
            | Tag::Link { .. }
            | Tag::Image { .. }) => return Ok(Some(span)),
        }
        Ok(None)
    }

    /// Reads inline content up to the end of what it is in.
    fn inline(&mut self) -> Result<Vec<Inline>, PdfError> {
        let mut content = Vec::new();
        while let Some((event, range)) = self.events.next() {
            match event {
                Event::Start(tag) => {
                    let line = self.lines.at(range.start);
                    self.enter(line)?;
                    self.span(tag, &range, line, &mut content)?;
                    self.depth -= 1;
                }
                Event::End(_) => break,
                leaf @ (Event::Text(_)
                | Event::Code(_)
                | Event::InlineMath(_)
                | Event::DisplayMath(_)
                | Event::Html(_)
                | Event::InlineHtml(_)
                | Event::FootnoteReference(_)
                | Event::SoftBreak
                | Event::HardBreak
                | Event::Rule
                | Event::TaskListMarker(_)) => push_leaf(leaf, &mut content),
            }
        }
        Ok(content)
    }

    fn span(
        &mut self,
        tag: Tag<'a>,
        range: &Range<usize>,
        line: usize,
        content: &mut Vec<Inline>,
    ) -> Result<(), PdfError> {
        let inner = self.inline()?;
        content.push(match tag {
            Tag::Emphasis => Inline::Emphasis(inner),
            Tag::Strong => Inline::Strong(inner),
            Tag::Strikethrough => Inline::Strike(inner),
            Tag::Link { link_type, dest_url, .. } => {
                let target = match link_type {
                    LinkType::Email => format!("mailto:{dest_url}"),
                    LinkType::Inline
                    | LinkType::Reference
                    | LinkType::ReferenceUnknown
                    | LinkType::Collapsed
                    | LinkType::CollapsedUnknown
                    | LinkType::Shortcut
                    | LinkType::ShortcutUnknown
                    | LinkType::Autolink
                    | LinkType::WikiLink { .. } => dest_url.into_string(),
                };
                Inline::Link { target, line, content: inner }
            }
            Tag::Image { dest_url, title, .. } => Inline::Image {
                reference: dest_url.into_string(),
                title: title.into_string(),
                alt: plain(&inner),
                line,
            },
            Tag::Paragraph
            | Tag::Heading { .. }
            | Tag::BlockQuote(_)
            | Tag::CodeBlock(_)
            | Tag::HtmlBlock
            | Tag::List(_)
            | Tag::Item
            | Tag::FootnoteDefinition(_)
            | Tag::DefinitionList
            | Tag::DefinitionListTitle
            | Tag::DefinitionListDefinition
            | Tag::Table(_)
            | Tag::TableHead
            | Tag::TableRow
            | Tag::TableCell
            | Tag::Superscript
            | Tag::Subscript
            | Tag::MetadataBlock(_) => unreachable!("{tag:?} at {range:?} is no inline content"),
        });
        Ok(())
    }

    /// Reads text as it is, up to the end of what it is in.
    fn verbatim(&mut self) -> String {
        let mut text = String::new();
        for (event, _) in self.events.by_ref() {
            match event {
                Event::End(_) => break,
                Event::Text(part) | Event::Html(part) | Event::InlineHtml(part) | Event::Code(part) => {
                    text.push_str(&part);
                }
                Event::SoftBreak | Event::HardBreak => text.push('\n'),
                Event::Start(_)
                | Event::InlineMath(_)
                | Event::DisplayMath(_)
                | Event::FootnoteReference(_)
                | Event::Rule
                | Event::TaskListMarker(_) => {}
            }
        }
        text
    }

    fn list(&mut self, start: Option<u64>) -> Result<List, PdfError> {
        let mut list = List { start, is_tight: true, items: Vec::new() };
        // What is in a list is items.
        while let Some((Event::Start(_), _)) = self.events.next() {
            // A loose list's items hold paragraphs of their own; a tight one's text stands in the item itself.
            list.is_tight &= !matches!(self.events.peek(), Some((Event::Start(Tag::Paragraph), _)));
            let mut blocks = self.blocks()?;
            list.items.push(Item { task: take_task(&mut blocks), blocks });
        }
        Ok(list)
    }

    fn table(&mut self, columns: Vec<pulldown_cmark::Alignment>, line: usize) -> Result<Table, PdfError> {
        if columns.len() > limits::COLUMNS {
            return Err(PdfError::TooManyCells { what: "columns".to_owned(), line, limit: limits::COLUMNS });
        }
        let mut table = Table { columns, head: Vec::new(), rows: Vec::new() };
        let mut row = Vec::new();
        while let Some((event, _)) = self.events.next() {
            match event {
                Event::Start(Tag::TableCell) => {
                    self.cells += 1;
                    if self.cells > limits::CELLS {
                        return Err(PdfError::TooManyCells { what: "cells".to_owned(), line, limit: limits::CELLS });
                    }
                    row.push(self.inline()?);
                }
                Event::End(TagEnd::TableHead) => table.head = std::mem::take(&mut row),
                Event::End(TagEnd::TableRow) => table.rows.push(std::mem::take(&mut row)),
                Event::End(TagEnd::Table) => break,
                Event::Start(_)
                | Event::End(_)
                | Event::Text(_)
                | Event::Code(_)
                | Event::InlineMath(_)
                | Event::DisplayMath(_)
                | Event::Html(_)
                | Event::InlineHtml(_)
                | Event::FootnoteReference(_)
                | Event::SoftBreak
                | Event::HardBreak
                | Event::Rule
                | Event::TaskListMarker(_) => {}
            }
        }
        Ok(table)
    }
}

/// Takes the check mark off the start of an item.
fn take_task(blocks: &mut [Block]) -> Option<bool> {
    let BlockKind::Paragraph(content) = &mut blocks.first_mut()?.kind else {
        return None;
    };
    let Inline::Task(is_done) = content.first()? else {
        return None;
    };
    let is_done = *is_done;
    content.remove(0);
    Some(is_done)
}

fn push_leaf(event: Event<'_>, content: &mut Vec<Inline>) {
    let mut push_text = |text: &str| match content.last_mut() {
        Some(Inline::Text(last)) => last.push_str(text),
        _ => content.push(Inline::Text(text.to_owned())),
    };
    match event {
        Event::Text(text) | Event::InlineMath(text) | Event::DisplayMath(text) => push_text(&text),
        Event::SoftBreak => push_text(" "),
        Event::Code(code) => content.push(Inline::Code(code.into_string())),
        Event::FootnoteReference(label) => content.push(Inline::Footnote(label.into_string())),
        Event::TaskListMarker(is_done) => content.push(Inline::Task(is_done)),
        Event::HardBreak => content.push(Inline::Break),
        // HTML's tags are left out and what is between them stays; a line break is the one tag that is missed.
        Event::InlineHtml(tag) if tag_name(&tag).eq_ignore_ascii_case("br") => content.push(Inline::Break),
        Event::InlineHtml(tag) if !is_html(&tag) => push_text(&tag),
        Event::InlineHtml(_) | Event::Html(_) | Event::Rule | Event::Start(_) | Event::End(_) => {}
    }
}

/// The name of the tag that `html` begins with.
fn tag_name(html: &str) -> &str {
    let name = html.trim_start_matches(['<', '/']);
    name.split(|c: char| !c.is_ascii_alphanumeric() && c != '-' && c != ':').next().unwrap_or_default()
}

/// Whether `html` begins with something that HTML knows. `<your name>` and `Vec<u8>` only look like tags: they are text.
fn is_html(html: &str) -> bool {
    const NAMES: &str = "a abbr address article aside audio b base bdi bdo big blockquote body br button canvas caption center \
        cite code col colgroup data datalist dd del details dfn dialog div dl dt em embed fieldset figcaption figure font \
        footer form frame frameset h1 h2 h3 h4 h5 h6 head header hgroup hr html i iframe img input ins kbd label legend li \
        link main map mark math menu meta meter nav nobr noframes noscript object ol optgroup option output p param picture \
        pre progress q rp rt ruby s samp script search section select slot small source span strike strong style sub \
        summary sup svg table tbody td template textarea tfoot th thead time title tr track tt u ul var video wbr";
    let name = tag_name(html);
    name.is_empty() || NAMES.split_whitespace().any(|known| known.eq_ignore_ascii_case(name))
}

/// Reads `key: value` lines; those with other keys or without a value are passed over.
fn front_matter(text: &str) -> FrontMatter {
    let mut front = FrontMatter::default();
    for (key, value) in text.lines().filter_map(|line| line.split_once(':')) {
        let value = unquote(value.trim());
        let field = match key {
            "title" => &mut front.title,
            "author" | "authors" => &mut front.author,
            "date" => &mut front.date,
            _ => continue,
        };
        *field = (!value.is_empty()).then(|| value.to_owned());
    }
    front
}

fn unquote(value: &str) -> &str {
    [('"', '"'), ('\'', '\''), ('[', ']')]
        .iter()
        .find_map(|(open, close)| value.strip_prefix(*open)?.strip_suffix(*close))
        .unwrap_or(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn front_matter_is_read_and_not_shown() {
        let document = read("---\ntitle: \"A: b\"\nauthor: [Ann, Bo]\nother: x\ndate:\n---\n\nText\n").unwrap();
        let expected = FrontMatter { title: Some("A: b".into()), author: Some("Ann, Bo".into()), date: None };
        assert_eq!(document.front, expected);
        assert_eq!(document.blocks.len(), 1);
        assert_eq!(document.blocks[0].line, 8);
    }

    #[test]
    fn lists_know_whether_they_are_tight_and_their_tasks() {
        let document = read("- [x] a\n- b\n\ntext\n\n3. a\n\n4. b\n").unwrap();
        let lists: Vec<_> = document
            .blocks
            .iter()
            .filter_map(|block| if let BlockKind::List(list) = &block.kind { Some(list) } else { None })
            .map(|list| (list.start, list.is_tight, list.items.iter().map(|item| item.task).collect::<Vec<_>>()))
            .collect();
        assert_eq!(lists, [(None, true, vec![Some(true), None]), (Some(3), false, vec![None, None])]);
    }

    #[test]
    fn raw_html_is_left_out_and_said_so() {
        let markdown =
            "a <b onclick=x>bold</b><br/>c, dear <your name>\n\n<script>alert(1)</script>\n\n<!-- note -->\n";
        let document = read(markdown).unwrap();
        assert_eq!(document.warnings, ["line 3: HTML is left out"]);
        let [Block { kind: BlockKind::Paragraph(content), .. }] = document.blocks.as_slice() else {
            panic!("{:?}", document.blocks);
        };
        assert_eq!(plain(content), "a bold c, dear <your name>");
    }

    #[test]
    fn nesting_is_bounded_and_the_line_named() {
        let quotes = format!("first\n\n{}x\n", "> ".repeat(200));
        assert_eq!(read(&quotes).unwrap_err(), PdfError::TooDeep { line: 3, limit: limits::NESTING });
        let emphasis = format!("{}x{}", "*a _b ".repeat(100), "x_ x* ".repeat(100));
        assert!(matches!(read(&emphasis), Err(PdfError::TooDeep { line: 1, .. })));
    }

    #[test]
    fn tables_are_bounded_and_the_line_named() {
        let table = |columns: usize, rows: usize| {
            let row = |cell: &str| format!("|{}\n", format!("{cell}|").repeat(columns));
            format!("first\n\n{}{}{}", row("x"), row("-"), row("x").repeat(rows))
        };
        assert!(read(&table(20, limits::CELLS / 20 - 1)).is_ok());
        let cells = PdfError::TooManyCells { what: "cells".to_owned(), line: 3, limit: limits::CELLS };
        assert_eq!(read(&table(20, limits::CELLS / 20)).unwrap_err(), cells);
        let columns = PdfError::TooManyCells { what: "columns".to_owned(), line: 3, limit: limits::COLUMNS };
        assert_eq!(read(&table(limits::COLUMNS + 1, 1)).unwrap_err(), columns);
        // Many small ones count together.
        assert!(read(&format!("{}\n", table(20, 100)).repeat(limits::CELLS / 2000)).is_err());
    }
}
