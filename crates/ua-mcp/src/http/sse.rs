//! Server-sent events, as far as Streamable HTTP uses them.
//!
//! Written here because a stream of a tool server is foreign input: an event has a greatest size, and fields that nobody
//! knows are passed over, as the format wants it, instead of losing the call that waits.

use std::collections::VecDeque;

/// What stood between two empty lines.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Event {
    /// The lines of data, joined; `None` when there was none, and for an event that is not a message.
    pub(super) data: Option<String>,
    /// The id to resume after.
    pub(super) id: Option<String>,
    /// How many milliseconds to wait before reconnecting.
    pub(super) retry: Option<u64>,
}

/// Cuts a stream of bytes into events.
#[derive(Debug)]
pub(super) struct Parser {
    limit: usize,
    line: Vec<u8>,
    /// The last line ended with a carriage return, so a line feed that follows belongs to it.
    after_return: bool,
    at_start: bool,
    event: Event,
    is_other_kind: bool,
    seen_field: bool,
    ready: VecDeque<Event>,
}

impl Parser {
    /// A parser of events of at most `limit` bytes.
    pub(super) fn new(limit: usize) -> Self {
        Self {
            limit,
            line: Vec::new(),
            after_return: false,
            at_start: true,
            event: Event::default(),
            is_other_kind: false,
            seen_field: false,
            ready: VecDeque::new(),
        }
    }

    /// The next complete event.
    pub(super) fn next(&mut self) -> Option<Event> {
        self.ready.pop_front()
    }

    /// Takes what came. The error says why nothing more can be read.
    pub(super) fn push(&mut self, mut bytes: &[u8]) -> Result<(), String> {
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

    fn end_line(&mut self, line: &[u8]) -> Result<(), String> {
        let line = std::str::from_utf8(line).map_err(|_| "it sent text that is not UTF-8".to_owned())?;
        let line =
            if std::mem::take(&mut self.at_start) { line.strip_prefix('\u{feff}').unwrap_or(line) } else { line };
        if line.is_empty() {
            let mut event = std::mem::take(&mut self.event);
            if std::mem::take(&mut self.is_other_kind) {
                event.data = None;
            }
            if std::mem::take(&mut self.seen_field) {
                self.ready.push_back(event);
            }
            return Ok(());
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "data" => match &mut self.event.data {
                Some(data) => {
                    data.push('\n');
                    data.push_str(value);
                }
                None => self.event.data = Some(value.to_owned()),
            },
            "id" if !value.contains('\0') => self.event.id = Some(value.to_owned()),
            "retry" => self.event.retry = value.parse().ok(),
            "event" => self.is_other_kind = value != "message",
            _ => return Ok(()), // a comment, or a field that nobody knows
        }
        self.seen_field = true;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn events(parts: &[&str]) -> Vec<Event> {
        let mut parser = Parser::new(64);
        for part in parts {
            parser.push(part.as_bytes()).unwrap();
        }
        std::iter::from_fn(|| parser.next()).collect()
    }

    fn message(data: &str) -> Event {
        Event { data: Some(data.to_owned()), ..Event::default() }
    }

    #[test]
    fn events_are_the_same_wherever_the_stream_is_cut_and_however_lines_end() {
        let stream =
            "\u{feff}id: 7\nretry: 20\ndata: a\ndata:b\n\n: comment\n\nnew: x\nevent: message\ndata: c\n\ndata: cut";
        let expected = [Event { data: Some("a\nb".into()), id: Some("7".into()), retry: Some(20) }, message("c")];
        for ending in ["\n", "\r\n", "\r"] {
            let stream = stream.replace('\n', ending);
            let bytes: Vec<char> = stream.chars().collect();
            for cut in 0..bytes.len() {
                let (left, right): (String, String) = (bytes[..cut].iter().collect(), bytes[cut..].iter().collect());
                assert_eq!(events(&[&left, &right]), expected, "cut at {cut}, lines end with {ending:?}");
            }
        }
    }

    #[test]
    fn an_id_alone_counts_and_the_data_of_other_events_does_not() {
        let id = Event { id: Some("1".into()), ..Event::default() };
        assert_eq!(events(&["id: 1\n\nevent: ping\ndata: x\n\n"]), [id, Event::default()]);
    }

    #[test]
    fn an_event_that_is_too_big_is_refused() {
        let mut parser = Parser::new(10);
        assert!(parser.push(b"data: 123\ndata: 4\n\n").is_ok());
        assert!(parser.push(b"data: 12345\n").unwrap_err().contains("more than 10 bytes"));
    }
}
