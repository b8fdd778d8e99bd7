//! Text on its way to a terminal. There is no other: what writes takes a [`Shown`], and whatever is put into one is made harmless on the way in, so
//! that no file name, no argument and no word of a tool can drive the terminal, whoever forgets that it is foreign. The commands in it get the folder of
//! their runs there, too, and what the operating system says is told in plain words.

use clap::builder::styling::{AnsiColor, Style};
use ua_evidence::os_words::in_plain_words;
use ua_host::escape::plain;

/// Text that may be written to a terminal. Only colour drives it, and only this type adds that.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Shown(String);

impl Shown {
    /// `text` in a colour, where there is colour.
    pub(crate) fn painted(text: &str, color: AnsiColor, is_on: bool) -> Self {
        let text = plain(text);
        if !is_on {
            return Self(text);
        }
        let style = Style::new().fg_color(Some(color.into()));
        Self(format!("{}{text}{}", style.render(), style.render_reset()))
    }

    /// The same with more behind it.
    #[must_use]
    pub(crate) fn then(mut self, more: impl Into<Self>) -> Self {
        self.0.push_str(&more.into().0);
        self
    }

    /// The same in lines that a terminal of so many columns has room for.
    #[must_use]
    pub(crate) fn broken(self, room: Option<usize>) -> Self {
        Self(crate::output::page_to(&self.0, room))
    }

    /// What is written.
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

impl Shown {
    /// Text whose every byte is another program's to read: its commands are complete already.
    pub(crate) fn exact(text: &str) -> Self {
        Self(plain(text))
    }
}

impl From<&str> for Shown {
    fn from(text: &str) -> Self {
        let text = plain(text);
        let text = in_plain_words(&text);
        Self(crate::ids::said_once(&crate::output::complete(&text)).into_owned())
    }
}

impl From<String> for Shown {
    fn from(text: String) -> Self {
        Self::from(text.as_str())
    }
}

impl From<&String> for Shown {
    fn from(text: &String) -> Self {
        Self::from(text.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_but_our_colour_drives_the_terminal() {
        let hostile = "a\u{1b}]52;c;ZXZpbA==\u{7}\u{1b}[2J\u{202e}b";
        let harmless = "a\\u{1b}]52;c;ZXZpbA==\\u{7}\\u{1b}[2J\\u{202e}b";
        assert_eq!(Shown::from(hostile).as_str(), harmless);
        let painted = Shown::painted(hostile, AnsiColor::Red, true).then(hostile);
        assert_eq!(painted.as_str(), format!("\u{1b}[31m{harmless}\u{1b}[0m{harmless}"));
        assert_eq!(Shown::painted("ok", AnsiColor::Green, false), Shown::from("ok"));
    }
}
