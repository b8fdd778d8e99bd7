//! What a text names that stands where an argument of a tool names a file.
//!
//! Which file a server makes of it is the server's affair: one reads `file://` addresses and another takes them for paths, one decodes `%20` and
//! another does not. So a text stands for every path that it can mean, and whoever looks at the file looks at all of them.

/// What a text can mean.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NamedFile {
    /// One of these paths, absolute or relative; at least one, none twice.
    Paths(Vec<String>),
    /// It is the content itself (`data:`).
    Inline,
    /// Something that is on no disk of this machine; why, as the end of a sentence.
    Elsewhere(&'static str),
}

impl NamedFile {
    /// Reads `text`. Letter case of a scheme, and white space that parsers of addresses drop, do not count.
    pub fn of(text: &str) -> Self {
        let trimmed = text.trim_matches(|c: char| c.is_whitespace() || c.is_control());
        let Some((scheme, rest)) = trimmed.split_once(':').filter(|(scheme, _)| is_scheme(scheme)) else {
            return Self::Paths(vec![text.to_owned()]);
        };
        match bare(scheme).to_ascii_lowercase().as_str() {
            "file" => Self::at_address(&bare(rest)),
            "data" => Self::Inline,
            _ if rest.starts_with("//") => Self::Elsewhere("it is an address that names no file of this machine"),
            // A colon can stand in a name.
            _ => Self::Paths(vec![text.to_owned()]),
        }
    }

    /// What follows `file:`.
    fn at_address(rest: &str) -> Self {
        let path = match rest.strip_prefix("//") {
            None => rest,
            Some(rest) => {
                let start = rest.find('/').unwrap_or(rest.len());
                let host = &rest[..start];
                let is_here = host.is_empty() || host.eq_ignore_ascii_case("localhost") || host == "127.0.0.1";
                if !is_here {
                    return Self::Elsewhere("it is on another machine");
                }
                &rest[start..]
            }
        };
        let without_query = path.split(['?', '#']).next().unwrap_or_default();
        let mut paths: Vec<String> = Vec::new();
        for form in [decoded(without_query), decoded(path), Some(without_query.to_owned()), Some(path.to_owned())] {
            paths.extend(form.filter(|form| !form.is_empty() && !paths.contains(form)));
        }
        if paths.is_empty() { Self::Elsewhere("it is an address without a path") } else { Self::Paths(paths) }
    }
}

/// Whether what stands in front of a colon may be read as the scheme of an address.
fn is_scheme(text: &str) -> bool {
    let text = bare(text);
    text.len() > 1
        && text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.'))
}

/// Without line breaks and tabs, which parsers of addresses drop anywhere.
fn bare(text: &str) -> String {
    text.chars().filter(|c| !matches!(c, '\n' | '\r' | '\t')).collect()
}

/// `%20` read as a blank; `None` where that is no text. A `%` that begins no such code stays.
fn decoded(text: &str) -> Option<String> {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        let code = bytes.get(at + 1..at + 3).filter(|_| byte == b'%');
        let value = code.and_then(|code| u8::from_str_radix(std::str::from_utf8(code).ok()?, 16).ok());
        let is_code = code.is_some_and(|code| code.iter().all(u8::is_ascii_hexdigit));
        if let Some(value) = value.filter(|_| is_code) {
            out.push(value);
            at += 3;
        } else {
            out.push(byte);
            at += 1;
        }
    }
    String::from_utf8(out).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_that_names_a_file_stands_for_the_paths_that_it_can_mean() {
        for (text, paths) in [
            ("report.pdf", &["report.pdf"] as &[&str]),
            ("/a/b.txt", &["/a/b.txt"]),
            ("note: draft.txt", &["note: draft.txt"]),
            ("a:b.txt", &["a:b.txt"]),
            ("50%25.txt", &["50%25.txt"]),
            ("file:///a/b.txt", &["/a/b.txt"]),
            ("FILE://localhost/a/b.txt", &["/a/b.txt"]),
            (" \nfi\nle:/a/b.txt", &["/a/b.txt"]),
            ("file:b.txt", &["b.txt"]),
            ("file:///a/b%20c.txt", &["/a/b c.txt", "/a/b%20c.txt"]),
            ("file:///a/100%.txt", &["/a/100%.txt"]),
            ("file:///a/b.txt?v=1", &["/a/b.txt", "/a/b.txt?v=1"]),
            ("file:///a/%ff", &["/a/%ff"]),
        ] {
            let paths = paths.iter().map(|path| (*path).to_owned()).collect();
            assert_eq!(NamedFile::of(text), NamedFile::Paths(paths), "{text}");
        }
        assert_eq!(NamedFile::of("data:text/plain,hello"), NamedFile::Inline);
        for text in ["https://example.test/a.pdf", "s3://bucket/key", "file://elsewhere/a.txt", "file://"] {
            assert!(matches!(NamedFile::of(text), NamedFile::Elsewhere(_)), "{text}");
        }
    }
}
