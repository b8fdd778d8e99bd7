//! Names of files as people are shown them: whoever makes a folder chooses its name, and no name begins a line, drives a terminal or moves a column.

use std::ffi::OsStr;
use std::fmt;
use std::path::Path;

use crate::unseen::is_hidden;

/// What has a name in the file system, for a sentence. Everything that is written for people asks here and not for `display`, which a test over
/// the sources sees to; what programs read (rows, flags, JSON) has the name as it is.
pub trait ShowPath {
    /// The whole name on one line: its control characters, what nobody sees of it and blanks that would pass for the room between two columns are
    /// shown as escapes.
    fn shown(&self) -> ShownPath<'_>;
}

impl ShowPath for Path {
    fn shown(&self) -> ShownPath<'_> {
        self.as_os_str().shown()
    }
}

impl ShowPath for OsStr {
    fn shown(&self) -> ShownPath<'_> {
        ShownPath(self)
    }
}

/// A name that [`ShowPath::shown`] gave.
///
/// ```
/// use std::path::Path;
///
/// use ua_core::ShowPath as _;
///
/// assert_eq!(Path::new("/srv/tide mills").shown().to_string(), "/srv/tide mills");
/// assert_eq!(Path::new("x\n  ua answer").shown().to_string(), "x\\n \\u{20}ua answer");
/// ```
#[derive(Clone, Copy)]
pub struct ShownPath<'a>(&'a OsStr);

impl fmt::Display for ShownPath<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&escaped(&self.0.to_string_lossy()))
    }
}

/// As it is quoted: the quotes escape by themselves.
impl fmt::Debug for ShownPath<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.0, f)
    }
}

/// A name that somebody else made up, whole and on one line.
fn escaped(name: &str) -> String {
    let mut out = String::with_capacity(name.len());
    let mut is_behind_a_blank = false;
    for c in name.chars() {
        let is_hidden = c.is_control() || is_hidden(c);
        match c {
            ' ' if is_behind_a_blank => out.extend(c.escape_unicode()),
            _ if is_hidden || (is_behind_a_blank && c.is_whitespace()) => out.extend(c.escape_default()),
            _ => out.push(c),
        }
        is_behind_a_blank = !is_hidden && c.is_whitespace();
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_character_of_a_name_begins_a_line_drives_a_terminal_or_is_unseen() {
        for c in char::MIN..=char::MAX {
            let shown = Path::new(&format!("a{c}b{c}{c}")).shown().to_string();
            assert!(!shown.chars().any(|c| c.is_control() || is_hidden(c)), "{c:?}: {shown:?}");
            let blanks =
                shown.chars().zip(shown.chars().skip(1)).filter(|(a, b)| a.is_whitespace() && b.is_whitespace());
            assert_eq!(blanks.count(), 0, "{c:?}: {shown:?}");
            assert_eq!(shown.lines().count(), 1, "{c:?}");
        }
    }

    #[test]
    fn usual_names_stay_as_they_are() {
        for name in [
            "/srv/tide mills/report 2.pdf",
            "./\u{e9}",
            "/home/水車/報告　二",
            "e\u{301}",
            "C:\\x",
            "❤",
            "it's \"so\"",
            "",
        ] {
            assert_eq!(Path::new(name).shown().to_string(), name);
        }
        assert_eq!(format!("{:>4}|", Path::new("ab").shown()), "  ab|");
        assert_eq!(format!("{:?}", Path::new("a\nb").shown()), "\"a\\nb\"");
    }
}
