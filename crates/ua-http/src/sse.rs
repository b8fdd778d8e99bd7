//! Server-sent events, as the WHATWG describes them: one parser for the replies of models and for tool servers.
//!
//! A stream is foreign input. An event has a greatest size; lines end with LF, CRLF or CR, also where a piece ends between the two; a byte
//! order mark at the beginning is none of the text; fields that nobody knows, lines without a colon and waits that are no number are
//! passed over; of a field that stands twice the last one counts, but lines of data are joined. In one point it is stricter: data that is
//! not UTF-8 is refused instead of mended, since arguments of a call must not change in silence; or it is marked ([`Parser::marking`]), for
//! whoever looks for the mark.

use std::borrow::Cow;
use std::collections::VecDeque;

/// What stood between two empty lines.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Event {
    /// What kind of event it is, if it says so.
    pub name: Option<String>,
    /// The lines of data, joined; `None` when there was none.
    pub data: Option<String>,
    /// The id to resume after.
    pub id: Option<String>,
    /// How many milliseconds to wait before reconnecting.
    pub retry: Option<u64>,
}

impl Event {
    /// The data of a message; `None` for other kinds of events.
    pub fn message(self) -> Option<String> {
        self.data.filter(|_| self.name.as_deref().is_none_or(|name| name == "message"))
    }
}

/// Cuts a stream of bytes into events.
#[derive(Debug)]
pub struct Parser {
    limit: usize,
    /// What stands in the place of bytes that are no text.
    mark: Option<char>,
    line: Vec<u8>,
    /// The last line ended with a carriage return, so a line feed that follows belongs to it.
    after_return: bool,
    at_start: bool,
    event: Event,
    seen_field: bool,
    ready: VecDeque<Event>,
}

impl Parser {
    /// A parser of events of at most `limit` bytes.
    pub fn new(limit: usize) -> Self {
        Self {
            limit,
            mark: None,
            line: Vec::new(),
            after_return: false,
            at_start: true,
            event: Event::default(),
            seen_field: false,
            ready: VecDeque::new(),
        }
    }

    /// The same, with `mark` in the place of bytes that are no text.
    pub fn marking(limit: usize, mark: char) -> Self {
        Self { mark: Some(mark), ..Self::new(limit) }
    }

    /// The next complete event.
    pub fn next_event(&mut self) -> Option<Event> {
        self.ready.pop_front()
    }

    /// Takes what came.
    ///
    /// # Errors
    /// Says why nothing more can be read.
    pub fn push(&mut self, mut bytes: &[u8]) -> Result<(), String> {
        while let Some(first) = bytes.first() {
            if std::mem::take(&mut self.after_return) && *first == b'\n' {
                bytes = &bytes[1..];
                continue;
            }
            let end = bytes.iter().position(|byte| matches!(byte, b'\n' | b'\r'));
            let part = &bytes[..end.unwrap_or(bytes.len())];
            let size = self.line.len() + self.event.data.as_ref().map_or(0, String::len) + part.len();
            if size > self.limit {
                return Err(format!("it sent a message of more than {} bytes", self.limit));
            }
            self.line.extend_from_slice(part);
            let Some(end) = end else { return Ok(()) };
            self.after_return = bytes[end] == b'\r';
            bytes = &bytes[end + 1..];
            let mut line = std::mem::take(&mut self.line);
            self.end_line(&line)?;
            line.clear();
            self.line = line;
        }
        Ok(())
    }

    /// The stream ended in good order. The event that no empty line ended, which the format drops: servers leave the last one out. Whether
    /// it is whole only its reader knows.
    pub fn last_event(&mut self) -> Option<Event> {
        let line = std::mem::take(&mut self.line);
        if !line.is_empty() && self.end_line(&line).is_err() {
            return None;
        }
        let event = std::mem::take(&mut self.event);
        std::mem::take(&mut self.seen_field).then_some(event)
    }

    fn end_line(&mut self, line: &[u8]) -> Result<(), String> {
        let line =
            if std::mem::take(&mut self.at_start) { line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line) } else { line };
        if line.is_empty() {
            let event = std::mem::take(&mut self.event);
            if std::mem::take(&mut self.seen_field) {
                self.ready.push_back(event);
            }
            return Ok(());
        }
        let colon = line.iter().position(|byte| *byte == b':');
        let (field, value) = colon.map_or((line, &line[line.len()..]), |at| (&line[..at], &line[at + 1..]));
        let value = value.strip_prefix(b" ").unwrap_or(value);
        match field {
            b"data" => {
                let value = match self.mark {
                    Some(mark) => marked(value, mark),
                    None => std::str::from_utf8(value).map_err(|_| "it sent text that is not UTF-8".to_owned())?.into(),
                };
                match &mut self.event.data {
                    Some(data) => {
                        data.push('\n');
                        data.push_str(&value);
                    }
                    None => self.event.data = Some(value.into_owned()),
                }
            }
            b"id" if !value.contains(&0) => self.event.id = Some(String::from_utf8_lossy(value).into_owned()),
            b"retry" if !value.is_empty() && value.iter().all(u8::is_ascii_digit) => {
                let told = std::str::from_utf8(value).ok().and_then(|digits| digits.parse().ok());
                self.event.retry = told.or(self.event.retry);
            }
            b"event" => {
                let name = String::from_utf8_lossy(value).into_owned();
                self.event.name = Some(name).filter(|name| !name.is_empty());
            }
            _ => return Ok(()), // a comment, or a field that nobody knows
        }
        self.seen_field = true;
        Ok(())
    }
}

/// The text that bytes are, with `mark` in the place of those that are none.
pub fn marked(bytes: &[u8], mark: char) -> Cow<'_, str> {
    if let Ok(text) = std::str::from_utf8(bytes) {
        return text.into();
    }
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        if !chunk.invalid().is_empty() {
            text.push(mark);
        }
    }
    text.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parser_of(parts: &[&[u8]]) -> Parser {
        let mut parser = Parser::new(64);
        for part in parts {
            parser.push(part).unwrap();
        }
        parser
    }

    fn events(parts: &[&[u8]]) -> Vec<Event> {
        let mut parser = parser_of(parts);
        std::iter::from_fn(|| parser.next_event()).collect()
    }

    fn message(data: &str) -> Event {
        Event { data: Some(data.to_owned()), ..Event::default() }
    }

    #[test]
    fn events_are_the_same_wherever_the_stream_is_cut_and_however_lines_end() {
        let stream = "\u{feff}id: 7\nretry: 20\ndata: a\ndata:ü\n\n: comment\n\nnew: x\nevent: ping\nevent: message\ndata: c\n\ndata: cut";
        let named = Event { name: Some("message".into()), ..message("c") };
        let expected = [Event { id: Some("7".into()), retry: Some(20), ..message("a\nü") }, named];
        for ending in ["\n", "\r\n", "\r"] {
            let stream = stream.replace('\n', ending);
            let bytes = stream.as_bytes();
            for cut in 0..bytes.len() {
                assert_eq!(
                    events(&[&bytes[..cut], &bytes[cut..]]),
                    expected,
                    "cut at {cut}, lines end with {ending:?}"
                );
            }
        }
    }

    #[test]
    fn what_nobody_knows_is_passed_over_and_of_two_fields_the_last_one_counts() {
        let stream =
            b"dat\nevent: a\nevent\nretry: 5\nretry: soon\nid: 1\nid: 2\nfoo: \xff\n: \xff\ndata: x\n\ndata\n\n";
        let x = Event { id: Some("2".into()), retry: Some(5), ..message("x") };
        assert_eq!(events(&[stream]), [x, message("")]);
    }

    #[test]
    fn an_id_alone_counts_and_the_data_of_other_events_is_no_message() {
        let mut read = events(&[b"id: 1\n\nevent: ping\ndata: x\n\n"]).into_iter();
        assert_eq!(read.next(), Some(Event { id: Some("1".into()), ..Event::default() }));
        assert_eq!(read.next().map(Event::message), Some(None));
    }

    #[test]
    fn the_last_event_may_lack_its_empty_line() {
        assert_eq!(parser_of(&[b"data: a\n\ndata: b"]).last_event(), Some(message("b")));
        assert_eq!(parser_of(&[b"data: a\r\ndata: b\r\n"]).last_event(), Some(message("a\nb")));
        assert_eq!(parser_of(&[b"data: a\n\n: comment"]).last_event(), None);
        assert_eq!(parser_of(&[b"data: a\n\ndata: \xff"]).last_event(), None);
    }

    #[test]
    fn an_event_that_is_too_big_or_no_text_is_refused() {
        let mut parser = Parser::new(10);
        assert!(parser.push(b"data: 123\ndata: 4\n\n").is_ok());
        assert!(parser.push(b"data: 12345\n").unwrap_err().contains("more than 10 bytes"));
        assert!(Parser::new(10).push(b"data: \xff\n").unwrap_err().contains("UTF-8"));
        let mut parser = Parser::marking(20, '?');
        parser.push("data: a\u{e4}".as_bytes()).unwrap();
        parser.push(b"\xc3\xffb\n\n").unwrap();
        assert_eq!(parser.next_event(), Some(message("aä??b")));
    }
}
