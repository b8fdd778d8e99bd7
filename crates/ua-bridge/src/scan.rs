//! The little of a message that the bridge looks at: its `id` and its `method`, as they stand in the line, and which request a cancellation names.
//! It decides nothing: what a line is, the broker judges, which reads it whole. Here it is only found out which lines are kept until they are
//! answered.

/// The two, as JSON. A request has both, a notification only a method, an answer only an id.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Parts<'l> {
    /// The value of `id`.
    pub id: Option<&'l str>,
    /// The value of `method`.
    pub method: Option<&'l str>,
}

/// With what a client takes a request back.
const CANCELLED: &str = "notifications/cancelled";

impl<'l> Parts<'l> {
    fn note(&mut self, name: &str, value: Option<&'l str>) {
        if is_text(name, "id") {
            self.id = value;
        } else if is_text(name, "method") {
            self.method = value;
        }
    }

    /// Whether somebody waits for an answer.
    pub fn is_request(&self) -> bool {
        self.method.is_some() && self.id.is_some_and(|id| id != "null")
    }

    /// Whether it is a request for a tool.
    pub(crate) fn is_call(&self) -> bool {
        self.is_request() && self.method.is_some_and(|method| is_text(method, "tools/call"))
    }

    /// Whether it is the request with which a client begins.
    pub(crate) fn is_handshake(&self) -> bool {
        self.is_request() && self.method.is_some_and(|method| is_text(method, "initialize"))
    }
}

/// What a line says of itself. One that is no JSON object has no parts; what stands deeper is not looked at. The last of several counts, as for
/// most readers of JSON.
pub fn parts(line: &str) -> Parts<'_> {
    let mut parts = Parts::default();
    scan(line, |name, value| parts.note(name, value)).map(|()| parts).unwrap_or_default()
}

/// The id of the request that a line takes back, if it is a cancellation.
pub(crate) fn cancelled(line: &str) -> Option<&str> {
    let (mut parts, mut params) = (Parts::default(), None);
    scan(line, |name, value| {
        parts.note(name, value);
        if is_text(name, "params") {
            params = value;
        }
    })?;
    let is_one = parts.id.is_none() && parts.method.is_some_and(|method| is_text(method, CANCELLED));
    let mut id = None;
    scan(params.filter(|_| is_one)?, |name, value| {
        if is_text(name, "requestId") {
            id = value;
        }
    })?;
    id
}

/// Whether a line is several messages at once, whose answers come as one.
pub(crate) fn is_batch(line: &str) -> bool {
    line.trim_ascii_start().starts_with('[')
}

/// Whether a string of JSON is this text, however it is written.
fn is_text(json: &str, text: &str) -> bool {
    let Some(mut rest) = json.strip_prefix('"').and_then(|json| json.strip_suffix('"')) else { return false };
    for c in text.chars() {
        let plain = rest.strip_prefix(c);
        let escaped = || {
            let digits = rest.strip_prefix("\\u")?.get(..4)?;
            (u32::from_str_radix(digits, 16).ok()? == u32::from(c)).then(|| rest.get(6..))?
        };
        match plain.or_else(|| rest.strip_prefix('\\').filter(|_| c == '/')?.strip_prefix(c)).or_else(escaped) {
            Some(behind) => rest = behind,
            None => return false,
        }
    }
    rest.is_empty()
}

/// What a line says of itself that ends too early, or is broken further on.
pub(crate) fn begun(line: &str) -> Parts<'_> {
    let mut parts = Parts::default();
    // As far as it got.
    let _whole = scan(line, |name, value| parts.note(name, value));
    parts
}

/// Notes the members of an object one after the other: the name and the value of each.
fn scan<'l>(line: &'l str, mut note: impl FnMut(&'l str, Option<&'l str>)) -> Option<()> {
    let bytes = line.as_bytes();
    let mut at = blank(bytes, 0);
    if *bytes.get(at)? != b'{' {
        return None;
    }
    at = blank(bytes, at + 1);
    while *bytes.get(at)? == b'"' {
        let name_end = string(bytes, at)?;
        let name = line.get(at..name_end)?;
        at = blank(bytes, name_end);
        if *bytes.get(at)? != b':' {
            return None;
        }
        let start = blank(bytes, at + 1);
        let end = value(bytes, start)?;
        note(name, line.get(start..end));
        at = blank(bytes, end);
        if *bytes.get(at)? == b',' {
            at = blank(bytes, at + 1);
        }
    }
    (bytes[at] == b'}').then_some(())
}

fn blank(bytes: &[u8], mut at: usize) -> usize {
    while bytes.get(at).is_some_and(u8::is_ascii_whitespace) {
        at += 1;
    }
    at
}

/// Behind the string that begins here.
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

/// Behind the value that begins here.
fn value(bytes: &[u8], start: usize) -> Option<usize> {
    let (mut at, mut depth) = (start, 0_u32);
    loop {
        match *bytes.get(at)? {
            b'"' => at = string(bytes, at)?,
            b'{' | b'[' => (at, depth) = (at + 1, depth + 1),
            b'}' | b']' if depth > 0 => (at, depth) = (at + 1, depth - 1),
            b',' | b'}' | b']' if depth == 0 => break,
            _ => at += 1,
        }
        if depth == 0 && matches!(bytes.get(at - 1), Some(b'"' | b'}' | b']')) {
            break;
        }
    }
    // A number or a word ends before the blanks behind it.
    while at > start && bytes[at - 1].is_ascii_whitespace() {
        at -= 1;
    }
    (at > start).then_some(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn id_and_method_are_found_where_they_count() {
        for (line, id, method) in [
            (r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#, Some("1"), Some("\"ping\"")),
            (r#" { "method" : "a" , "id" : "x\"y" } "#, Some(r#""x\"y""#), Some("\"a\"")),
            (r#"{"params":{"id":7,"method":"no","a":[{"id":8}]},"id":-1.5e3}"#, Some("-1.5e3"), None),
            (r#"{"result":"} , \"id\": 9","id":null}"#, Some("null"), None),
            (r#"{"method":"n","params":[]}"#, None, Some("\"n\"")),
            ("{}", None, None),
            ("[1]", None, None),
            (r#"{"id":1"#, None, None),
            ("nonsense", None, None),
            ("", None, None),
            (r#"{"a" 1}"#, None, None),
            (r#"{"\u0069d":1,"m\u0065thod":"a","x\u0069d":2}"#, Some("1"), Some("\"a\"")),
        ] {
            assert_eq!(parts(line), Parts { id, method }, "{line}");
        }
        assert!(parts(r#"{"id":0,"method":"a"}"#).is_request());
        assert!(!parts(r#"{"id":null,"method":"a"}"#).is_request());
        for method in ["initialize", "\\u0069nitialize", "initiali\\u007Ae"] {
            assert!(parts(&format!(r#"{{"id":0,"method":"{method}"}}"#)).is_handshake(), "{method}");
        }
        assert!(!parts(r#"{"id":0,"method":"initialized"}"#).is_handshake());
        assert!(parts(r#"{"id":1,"method":"tools\/call"}"#).is_call());
        assert!(!parts(r#"{"id":1,"method":"subscriptions/listen"}"#).is_call());
        assert!(is_batch(" [{}]") && !is_batch("{}") && is_text(r#""a\/b""#, "a/b"));
    }

    #[test]
    fn a_cancellation_names_its_request() {
        for (line, id) in [
            (
                r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":10,"reason":"x"}}"#,
                Some("10"),
            ),
            (
                r#"{"params":{"reason":{"requestId":1},"requestId":"a b"},"method":"notifications\/cancelled"}"#,
                Some(r#""a b""#),
            ),
            (r#"{"method":"notifications/cancelled","params":{}}"#, None),
            (r#"{"method":"notifications/cancelled"}"#, None),
            (r#"{"method":"notifications/progress","params":{"requestId":1}}"#, None),
            (r#"{"id":1,"method":"notifications/cancelled","params":{"requestId":1}}"#, None),
            (r#"[{"method":"notifications/cancelled","params":{"requestId":1}}]"#, None),
        ] {
            assert_eq!(cancelled(line), id, "{line}");
        }
    }

    #[test]
    fn of_a_line_that_ends_too_early_its_beginning_is_known() {
        assert_eq!(begun(r#"{"id":7,"method":"a","params":{"x":"yyy"#).id, Some("7"));
        assert_eq!(begun(r#"{"params":{"x":"yyy"#), Parts::default());
    }

    #[test]
    fn no_line_of_any_kind_is_too_much() {
        let bits = ["{", "}", "[", "]", "\"", "\\", ":", ",", "id", "1", " ", "\"id\"", "ä"];
        let mut seed = 7_usize;
        for _ in 0..20_000 {
            let mut line = String::new();
            for _ in 0..seed % 17 {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                line.push_str(bits[(seed >> 33) % bits.len()]);
            }
            seed = seed.wrapping_add(1);
            let _parts = parts(&line);
        }
    }
}
