//! One page of Markdown, taken apart.

use std::collections::BTreeSet;
use std::fmt;

use pulldown_cmark::{CodeBlockKind, Event, Options, Parser, Tag, TagEnd};

/// Where something stands.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// The page, from the root of the repository.
    pub page: String,
    /// The line, from 1.
    pub line: usize,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.page, self.line)
    }
}

/// A piece of a page: code between backticks, or the target of a link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Piece {
    /// Where it stands.
    pub place: Place,
    /// The code, or the target.
    pub text: String,
}

/// A block of code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Block {
    /// The place of its first line of code.
    pub place: Place,
    /// Everything behind the backticks that open it: its language, and words for tests that a reader does not see.
    pub info: String,
    /// The code.
    pub text: String,
}

impl Block {
    /// The language of the code; empty when the page does not say it.
    pub fn language(&self) -> &str {
        self.info.split([' ', ',']).next().unwrap_or_default()
    }

    /// The words behind the language, for example `run` and `exit:75`.
    pub fn marks(&self) -> impl Iterator<Item = &str> {
        self.info.split_whitespace().skip(1)
    }
}

/// A cell of a table.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Cell {
    /// Its text without formatting.
    pub text: String,
    /// The code in it.
    pub code: Vec<String>,
}

/// A row of a table, its head apart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// Where it stands.
    pub place: Place,
    /// Its cells.
    pub cells: Vec<Cell>,
}

/// A page of the documentation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    /// Its path from the root of the repository.
    pub path: String,
    /// The Markdown.
    pub text: String,
    /// Its blocks of code, in order.
    pub blocks: Vec<Block>,
    /// The code in its sentences and tables, in order.
    pub spans: Vec<Piece>,
    /// The targets of its links and images, in order.
    pub links: Vec<Piece>,
    /// What a link can name behind `#`, as GitHub makes it of headings.
    pub anchors: BTreeSet<String>,
    /// The rows of its tables.
    pub rows: Vec<Row>,
}

impl Page {
    /// Takes a page apart.
    #[expect(clippy::wildcard_enum_match_arm, reason = "what else Markdown has says nothing that could be looked up")]
    pub fn parse(path: &str, text: &str) -> Self {
        let mut page = Self {
            path: path.to_owned(),
            text: text.to_owned(),
            blocks: Vec::new(),
            spans: Vec::new(),
            links: Vec::new(),
            anchors: BTreeSet::new(),
            rows: Vec::new(),
        };
        let (mut heading, mut block, mut in_row) = (None::<String>, None::<Block>, false);
        let ends: Vec<usize> = text.match_indices('\n').map(|(at, _)| at).collect();
        for (event, range) in Parser::new_ext(text, Options::ENABLE_TABLES).into_offset_iter() {
            let line = ends.partition_point(|end| *end < range.start) + 1;
            let place = Place { page: path.to_owned(), line };
            match event {
                Event::Start(Tag::Heading { .. }) => heading = Some(String::new()),
                Event::End(TagEnd::Heading(_)) => {
                    if let Some(words) = heading.take() {
                        page.add_anchor(&words);
                    }
                }
                Event::Start(Tag::CodeBlock(kind)) => {
                    let info = match kind {
                        CodeBlockKind::Fenced(info) => info.to_string(),
                        CodeBlockKind::Indented => String::new(),
                    };
                    let place = Place { line: place.line + 1, ..place };
                    block = Some(Block { place, info, text: String::new() });
                }
                Event::End(TagEnd::CodeBlock) => page.blocks.extend(block.take()),
                Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => {
                    page.links.push(Piece { place, text: dest_url.to_string() });
                }
                Event::Start(Tag::TableRow) => {
                    in_row = true;
                    page.rows.push(Row { place, cells: Vec::new() });
                }
                Event::End(TagEnd::TableRow) => in_row = false,
                Event::Start(Tag::TableCell) if in_row => {
                    if let Some(row) = page.rows.last_mut() {
                        row.cells.push(Cell::default());
                    }
                }
                Event::Code(code) => {
                    if let Some(heading) = &mut heading {
                        heading.push_str(&code);
                    }
                    if let Some(cell) = page.open_cell(in_row) {
                        cell.text.push_str(&code);
                        cell.code.push(code.to_string());
                    }
                    page.spans.push(Piece { place, text: code.to_string() });
                }
                Event::Text(words) => {
                    if let Some(heading) = &mut heading {
                        heading.push_str(&words);
                    }
                    if let Some(block) = &mut block {
                        block.text.push_str(&words);
                    }
                    if let Some(cell) = page.open_cell(in_row) {
                        cell.text.push_str(&words);
                    }
                }
                _ => {}
            }
        }
        page
    }

    fn open_cell(&mut self, in_row: bool) -> Option<&mut Cell> {
        self.rows.last_mut().filter(|_| in_row)?.cells.last_mut()
    }

    /// Adds the anchor of a heading: lower case, blanks as `-`, no punctuation but `-` and `_`; the second of a name ends with `-1`.
    fn add_anchor(&mut self, heading: &str) {
        let plain: String = heading
            .trim()
            .to_lowercase()
            .chars()
            .filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'))
            .map(|c| if c == ' ' { '-' } else { c })
            .collect();
        let mut name = plain.clone();
        let mut count = 0;
        while !self.anchors.insert(name) {
            count += 1;
            name = format!("{plain}-{count}");
        }
    }

    /// Its commands: the lines of its `sh` blocks, each with its place.
    ///
    /// # Errors
    ///
    /// When a block is not written in the part of the shell's language that [`Script`](super::Script) knows.
    pub fn commands(&self) -> Result<Vec<(Place, super::SimpleCommand)>, String> {
        let mut found = Vec::new();
        for block in self.blocks.iter().filter(|block| block.language() == "sh") {
            let script = super::Script::parse(&block.text).map_err(|why| format!("{}: {why}", block.place))?;
            for command in script.commands {
                let place = Place { page: self.path.clone(), line: block.place.line + command.line };
                found.push((place, command));
            }
        }
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_taken_apart_with_its_lines() {
        let text = "# The `ua` page\n\nSee [here](b.md#x) and `ua job`.\n\n| a | b |\n|---|---|\n| `x\\|y` and | z |\n\n\
                    ```sh run exit:75\nua job\n```\n\n## Twice\n\n## Twice\n\n```json\n{}\n```\n";
        let page = Page::parse("docs/a.md", text);
        assert_eq!(page.anchors.iter().collect::<Vec<_>>(), ["the-ua-page", "twice", "twice-1"]);
        assert_eq!((page.links[0].text.as_str(), page.links[0].place.line), ("b.md#x", 3));
        let spans: Vec<_> = page.spans.iter().map(|span| (span.text.as_str(), span.place.line)).collect();
        assert_eq!(spans, [("ua", 1), ("ua job", 3), ("x|y", 7)]);
        let row = &page.rows[0];
        assert_eq!((row.place.line, row.cells[0].text.as_str(), row.cells[1].text.as_str()), (7, "x|y and", "z"));
        assert_eq!(row.cells[0].code, ["x|y"]);
        let block = &page.blocks[0];
        assert_eq!((block.language(), block.place.line, block.text.as_str()), ("sh", 10, "ua job\n"));
        assert_eq!(block.marks().collect::<Vec<_>>(), ["run", "exit:75"]);
        assert_eq!(page.blocks[1].language(), "json");
    }
}
