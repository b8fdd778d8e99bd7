//! Where values stand in a JSON file that a person keeps: so that one is changed and everything else stays as it was typed.
//!
//! Comments (`//` and `/* */`) and commas at the end of lists are passed over, as clients pass over them.

use std::ops::Range;

/// A member of an object: its name, and where that and its value stand.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Member {
    pub(super) name: String,
    pub(super) token: Range<usize>,
    pub(super) value: Range<usize>,
}

/// The members of the object that stands at `place`; `None` when it is none, or is broken.
pub(super) fn members(text: &str, place: &Range<usize>) -> Option<Vec<Member>> {
    let bytes = &text.as_bytes()[..place.end];
    let mut at = blank(bytes, place.start)?;
    if *bytes.get(at)? != b'{' {
        return None;
    }
    at = blank(bytes, at + 1)?;
    let mut found = Vec::new();
    while *bytes.get(at)? == b'"' {
        let name = at..string(bytes, at)?;
        at = blank(bytes, name.end)?;
        if *bytes.get(at)? != b':' {
            return None;
        }
        let start = blank(bytes, at + 1)?;
        let end = value(bytes, start)?;
        let said = serde_json::from_str(text.get(name.clone())?).ok()?;
        found.push(Member { name: said, token: name, value: start..end });
        at = blank(bytes, end)?;
        match *bytes.get(at)? {
            b',' => at = blank(bytes, at + 1)?,
            b'}' => break,
            _ => return None,
        }
    }
    (*bytes.get(at)? == b'}').then_some(found)
}

/// Where the members of the list that stands at `place` do; `None` when it is none, or is broken.
pub(super) fn elements(text: &str, place: &Range<usize>) -> Option<Vec<Range<usize>>> {
    let bytes = &text.as_bytes()[..place.end];
    let mut at = blank(bytes, place.start)?;
    if *bytes.get(at)? != b'[' {
        return None;
    }
    at = blank(bytes, at + 1)?;
    let mut found = Vec::new();
    while *bytes.get(at)? != b']' {
        let end = value(bytes, at)?;
        found.push(at..end);
        at = blank(bytes, end)?;
        match *bytes.get(at)? {
            b',' => at = blank(bytes, at + 1)?,
            b']' => break,
            _ => return None,
        }
    }
    Some(found)
}

/// The value that stands at `place` as JSON that every reader takes: without comments, and without commas at the end of lists.
pub(super) fn plain(text: &str, place: &Range<usize>) -> Option<String> {
    let bytes = &text.as_bytes()[..place.end];
    let (mut made, mut at) = (String::new(), blank(bytes, place.start)?);
    while at < bytes.len() {
        let end = if bytes[at] == b'"' {
            string(bytes, at)?
        } else {
            at + text.get(at..)?.chars().next().map_or(1, char::len_utf8)
        };
        if matches!(bytes[at], b']' | b'}') && made.ends_with(',') {
            made.pop();
        }
        made.push_str(text.get(at..end)?);
        at = blank(bytes, end)?;
        // Two words stay two.
        if at > end
            && at < bytes.len()
            && !matches!(bytes[at], b']' | b'}' | b',' | b':')
            && !made.ends_with([',', ':', '[', '{'])
        {
            made.push(' ');
        }
    }
    Some(made)
}

/// Whether anything between the texts that stand at `place` is a comment.
pub(super) fn has_comment(text: &str, place: &Range<usize>) -> bool {
    let bytes = &text.as_bytes()[..place.end];
    let mut at = place.start;
    while at < bytes.len() {
        match bytes[at] {
            b'"' => at = string(bytes, at).unwrap_or(bytes.len()),
            b'/' => return true,
            _ => at += 1,
        }
    }
    false
}

/// Where a file is broken: what is wrong, as it is said of every file of JSON, with its line; `None` when it is whole. Comments and commas at the
/// end of lists are none of its business.
pub(super) fn broken(text: &str) -> Option<String> {
    let mut strict = text.as_bytes().to_vec();
    let (mut at, mut comma) = (0, None);
    while let Some(byte) = text.as_bytes().get(at) {
        let begun = at;
        match byte {
            b'"' => at = string(text.as_bytes(), at).unwrap_or(text.len()),
            b'/' if matches!(text.as_bytes().get(at + 1), Some(b'/' | b'*')) => {
                let is_line = text.as_bytes()[at + 1] == b'/';
                let end =
                    if is_line { text[at..].find('\n') } else { text[at + 2..].find("*/").map(|found| found + 4) };
                at += end.unwrap_or(text.len() - at);
                strict[begun..at].iter_mut().filter(|byte| **byte != b'\n').for_each(|byte| *byte = b' ');
                continue;
            }
            b']' | b'}' => {
                if let Some(comma) = comma {
                    strict[comma] = b' ';
                }
                at += 1;
            }
            _ => at += 1,
        }
        if !byte.is_ascii_whitespace() {
            comma = (*byte == b',').then_some(begun);
        }
    }
    let error = serde_json::from_slice::<serde::de::IgnoredAny>(&strict).err()?;
    Some(ua_core::json_fault_without_values(&String::from_utf8_lossy(&strict), &error))
}

/// Behind blanks and comments.
fn blank(bytes: &[u8], mut at: usize) -> Option<usize> {
    loop {
        while bytes.get(at).is_some_and(u8::is_ascii_whitespace) {
            at += 1;
        }
        match bytes.get(at..at + 2) {
            Some(b"//") => at += bytes[at..].iter().position(|byte| *byte == b'\n').unwrap_or(bytes.len() - at),
            Some(b"/*") => at += 4 + bytes.get(at + 2..)?.windows(2).position(|end| end == b"*/")?,
            _ => return Some(at),
        }
    }
}

fn string(bytes: &[u8], start: usize) -> Option<usize> {
    let mut at = start + 1;
    loop {
        match *bytes.get(at)? {
            b'"' => return Some(at + 1),
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
}

fn value(bytes: &[u8], start: usize) -> Option<usize> {
    match *bytes.get(start)? {
        b'"' => string(bytes, start),
        b'{' | b'[' => {
            let (mut at, mut depth) = (start, 0_u32);
            loop {
                at = blank(bytes, at)?;
                match *bytes.get(at)? {
                    b'"' => at = string(bytes, at)?,
                    b'{' | b'[' => (at, depth) = (at + 1, depth + 1),
                    b'}' | b']' => (at, depth) = (at + 1, depth - 1),
                    _ => at += 1,
                }
                if depth == 0 {
                    return Some(at);
                }
            }
        }
        _ => {
            let is_end = |byte: &u8| byte.is_ascii_whitespace() || matches!(byte, b',' | b'}' | b']' | b'/');
            let length = bytes[start..].iter().position(is_end).unwrap_or(bytes.len() - start);
            (length > 0).then_some(start + length)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stands_there_is_read_without_comments() {
        for (text, read) in [
            ("[\"-y\", // \"no\"\n \"a,]\" /* x */ , ]", "[\"-y\",\"a,]\"]"),
            (" { \"ä\" : [ 1 , 2, ], } ", "{\"ä\":[1,2]}"),
            ("[\"//\", \"/*\"]", "[\"//\",\"/*\"]"),
            ("\"x\"", "\"x\""),
            ("[1 2]", "[1 2]"),
        ] {
            assert_eq!(plain(text, &(0..text.len())).as_deref(), Some(read), "{text}");
        }
        assert_eq!(plain("[\"a", &(0..3)), None);
    }

    #[test]
    fn what_is_broken_is_told_by_its_line() {
        for (text, line) in [
            ("{\"a\": 1 // x\n, \"b\": [1,/* \n */], }", None),
            ("{\n  \"a\": {\"command\": \"x\"\n  \"b\": 1\n}", Some("line 3: a comma between two fields is missing")),
            ("{\n // \"\n \"a\": \"x\n}", Some("line 3: ")),
            ("{\n/* no end", Some("it ends in line 2 before it is complete: a closing } is missing")),
            ("// ü\n{\"a\": ü}", Some("line 2: ")),
            ("", Some("it is empty")),
        ] {
            let found = broken(text);
            assert_eq!(found.is_some(), line.is_some(), "{text}: {found:?}");
            assert!(line.is_none_or(|line| found.as_ref().unwrap().starts_with(line)), "{text}: {found:?}");
        }
    }

    #[test]
    fn values_are_found_between_comments() {
        let text = "// mine\n{ \"a\": 1, /* { */ \"b\\\"\": {\"c\": [1, \"}\", {}], // x }\n},\n \"d\": -1.5e3, \"e\": \"}\\\"\",\n}";
        let found = members(text, &(0..text.len())).unwrap();
        let shown: Vec<(&str, &str)> = found.iter().map(|m| (m.name.as_str(), &text[m.value.clone()])).collect();
        assert_eq!(
            shown,
            [("a", "1"), ("b\"", "{\"c\": [1, \"}\", {}], // x }\n}"), ("d", "-1.5e3"), ("e", "\"}\\\"\"")]
        );
        let inner = members(text, &found[1].value).unwrap();
        assert_eq!((inner.len(), &text[inner[0].value.clone()]), (1, "[1, \"}\", {}]"));
        assert_eq!(members("{}", &(0..2)), Some(Vec::new()));
        for broken in
            ["", "[1]", "{\"a\"}", "{\"a\": }", "{\"a\": [1}", "{\"a\": 1", "{\"a\": 1 \"b\": 2}", "{\"a\": \"", "/*"]
        {
            assert_eq!(members(broken, &(0..broken.len())), None, "{broken}");
        }
    }
}
