//! A Markdown page that is put together block by block, with the blank lines that Markdown wants between them.

/// A page under construction. Callers hand in text of their own; foreign text goes through `quote` first.
#[derive(Debug, Default)]
pub struct Page {
    text: String,
    in_list: bool,
    /// Whether another piece stands in front of it.
    is_continued: bool,
}

impl Page {
    /// Starts a page with its title.
    pub fn titled(title: &str) -> Self {
        let mut page = Self::default();
        page.heading(1, title);
        page
    }

    /// A piece that is put behind another one.
    pub fn continued() -> Self {
        Self { is_continued: true, ..Self::default() }
    }

    /// Adds a heading.
    pub fn heading(&mut self, level: usize, title: &str) {
        self.block(&format!("{} {title}", "#".repeat(level)));
    }

    /// Adds a block of its own: a paragraph or a fence.
    pub fn block(&mut self, text: &str) {
        if self.is_continued || !self.text.is_empty() {
            self.text.push('\n');
        }
        self.text.push_str(text.trim_end_matches('\n'));
        self.text.push('\n');
        self.in_list = false;
    }

    /// Adds a list item of one line.
    pub fn item(&mut self, text: &str) {
        if self.in_list {
            self.text.push_str("- ");
            self.text.push_str(text);
            self.text.push('\n');
        } else {
            self.block(&format!("- {text}"));
            self.in_list = true;
        }
    }

    /// Adds a section: its heading, and a list of these lines, or one sentence where there are none.
    pub fn section(&mut self, title: &str, lines: impl IntoIterator<Item = String>, if_none: &str) {
        self.heading(2, title);
        let mut lines = lines.into_iter().peekable();
        if lines.peek().is_none() {
            self.block(if_none);
        }
        for line in lines {
            self.item(&line);
        }
    }

    /// The page's text.
    pub fn finish(self) -> String {
        self.text
    }
}
