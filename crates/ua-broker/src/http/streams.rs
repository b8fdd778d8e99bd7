//! What is said to a client over HTTP: a log for each request, and one for what belongs to none, each read by whoever has its stream open.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::{Bytes, Frame};
use hyper::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use hyper::{Response, StatusCode};
use serde_json::Value;
use tokio::sync::Notify;
use ua_mcp::size_of;

use super::session::HttpSession;
use super::{Body, as_json};
use crate::carrier::Carrier;
use crate::posted::Posted;
use crate::sync::lock;

/// How many messages are kept that belong to no request.
const MOST_KEPT: usize = 1_000;
/// How many bytes of a stream are kept beside its last message, about: for whoever takes it up again, or reads late.
const MOST_BYTES: usize = 2 * 1024 * 1024;

/// What is said on one stream.
#[derive(Debug)]
pub(super) struct Log {
    pub(super) number: u64,
    /// The request that it belongs to.
    pub(super) request: Option<String>,
    /// What its client calls that request, where it is one alone.
    id: Option<Value>,
    /// What that request is known by when it is posted again.
    pub(super) posted: Option<Posted>,
    said: Mutex<Said>,
    readers: Mutex<Readers>,
    changed: Notify,
}

/// Who reads it.
#[derive(Debug, Default)]
struct Readers {
    count: usize,
    /// Its client waits for nothing there any more.
    is_given_up: bool,
}

#[derive(Debug, Default)]
struct Said {
    /// The place of the first that is kept.
    from: usize,
    kept: VecDeque<Value>,
    /// How many bytes these are, about.
    bytes: usize,
    is_over: bool,
}

impl Said {
    /// Keeps one more message; for it the oldest go, but not itself.
    fn keep(&mut self, message: Value, most: usize) {
        self.bytes += size_of(&message);
        self.kept.push_back(message);
        while self.kept.len() > 1 && (self.kept.len() > most || self.bytes > MOST_BYTES) {
            let Some(oldest) = self.kept.pop_front() else { return };
            self.bytes -= size_of(&oldest);
            self.from += 1;
        }
    }
}

/// The name of a place in a stream, under which its client takes it up again: also with the next broker, which knows the request by it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct EventName {
    pub(super) stream: u64,
    pub(super) place: usize,
    /// The request whose answer ends the stream, and what its client calls it.
    pub(super) request: Option<(String, Value)>,
}

impl EventName {
    /// Reads what a client says it had last; `None` when nothing is called so.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let mut parts = text.splitn(4, '-');
        let (stream, place) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
        let request = match (parts.next(), parts.next()) {
            (Some(id), Some(name)) => Some((name.to_owned(), serde_json::from_slice(&bytes_of(id)?).ok()?)),
            (Some(_), None) => return None,
            (None, _) => None,
        };
        Some(Self { stream, place, request })
    }
}

impl std::fmt::Display for EventName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}-{}", self.stream, self.place)?;
        let Some((name, id)) = &self.request else { return Ok(()) };
        f.write_str("-")?;
        // An id may be any text, and stands in a header.
        id.to_string().bytes().try_for_each(|byte| write!(f, "{byte:02x}"))?;
        write!(f, "-{name}")
    }
}

fn bytes_of(hex: &str) -> Option<Vec<u8>> {
    let pairs = hex.as_bytes().chunks(2).map(|pair| u8::from_str_radix(str::from_utf8(pair).ok()?, 16).ok());
    pairs.collect()
}

impl Log {
    /// The name of a place in it.
    fn event(&self, place: usize) -> EventName {
        let request = self.request.clone().zip(self.id.clone());
        EventName { stream: self.number, place, request }
    }

    pub(super) fn new(number: u64, request: Option<String>, id: Option<Value>, posted: Option<Posted>) -> Arc<Self> {
        let (said, readers, changed) = (Mutex::default(), Mutex::default(), Notify::new());
        Arc::new(Self { number, request, id, posted, said, readers, changed })
    }

    /// One more reads it.
    pub(super) fn opens(&self) {
        lock(&self.readers).count += 1;
    }

    /// One less does; whether anybody still reads it.
    pub(super) fn closes(&self) -> bool {
        let mut readers = lock(&self.readers);
        readers.count = readers.count.saturating_sub(1);
        readers.count > 0
    }

    /// Its client waits for nothing there any more: who asks for the same is answered elsewhere.
    pub(super) fn gives_up(&self) {
        lock(&self.readers).is_given_up = true;
    }

    pub(super) fn is_given_up(&self) -> bool {
        lock(&self.readers).is_given_up
    }

    /// Says something; the last thing is an answer.
    pub(super) fn say(&self, message: Option<Value>, is_last: bool) {
        let mut said = lock(&self.said);
        let most = if self.request.is_none() { MOST_KEPT } else { usize::MAX };
        if let Some(message) = message {
            said.keep(message, most);
        }
        said.is_over |= is_last;
        drop(said);
        self.changed.notify_waiters();
    }

    pub(super) fn is_over(&self) -> bool {
        lock(&self.said).is_over
    }

    /// What stands at this place or behind it; `None` when nothing will.
    async fn at(&self, place: usize) -> Option<(usize, Value)> {
        loop {
            let changed = self.changed.notified();
            {
                let said = lock(&self.said);
                let place = place.max(said.from);
                if let Some(message) = said.kept.get(place - said.from) {
                    return Some((place, message.clone()));
                }
                if said.is_over {
                    return None;
                }
            }
            changed.await;
        }
    }
}

/// Somebody who has the stream open.
pub(super) struct Reader {
    session: Arc<HttpSession>,
    log: Arc<Log>,
    place: usize,
    /// It was written to its end.
    is_done: bool,
    is_named: bool,
}

impl Reader {
    /// One of those who are counted at the log.
    pub(super) fn new(session: Arc<HttpSession>, log: Arc<Log>, place: usize) -> Self {
        Self { session, log, place, is_done: false, is_named: false }
    }

    /// Whether all is said.
    pub(super) fn is_over(&self) -> bool {
        self.log.is_over()
    }

    /// What is said first; it is said again on the stream.
    pub(super) async fn first(&mut self) -> Option<Value> {
        self.log.at(self.place).await.map(|(_, message)| message)
    }

    /// The answer, whatever is said before.
    pub(super) async fn answer(&mut self) -> Option<Value> {
        let mut place = self.place;
        loop {
            let (found, message) = self.log.at(place).await?;
            if message.get("method").is_none() {
                return Some(message);
            }
            place = found + 1;
        }
    }

    /// The answer alone, as the whole response.
    pub(super) fn into_answer(mut self, status: StatusCode, answer: &Value, carrier: &Arc<Carrier>) -> Response<Body> {
        let response = as_json(status, answer);
        // It is written in one piece with its head.
        self.is_done = true;
        let carrier = carrier.clone();
        // It is open until that is noted.
        tokio::spawn(async move { self.session.written(&self.log, &carrier).await });
        response
    }

    /// A stream of events. `is_named`: it begins with a name under which it can be taken up again.
    pub(super) fn into_stream(mut self, is_named: bool, carrier: &Arc<Carrier>) -> Response<Body> {
        self.is_named = is_named;
        let carrier = carrier.clone();
        let begin = is_named.then(|| format!("id: {}\nretry: 1000\ndata:\n\n", self.log.event(self.place)));
        let events =
            futures_util::stream::unfold((self, begin, carrier), |(mut reader, mut begin, carrier)| async move {
                let text = match begin.take() {
                    Some(begin) => begin,
                    None => reader.next(&carrier).await?,
                };
                Some((Ok(Frame::data(Bytes::from(text))), (reader, begin, carrier)))
            });
        let mut response = Response::new(StreamBody::new(events).boxed_unsync());
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
        response
    }

    async fn next(&mut self, carrier: &Arc<Carrier>) -> Option<String> {
        let Some((place, message)) = self.log.at(self.place).await else {
            if !std::mem::replace(&mut self.is_done, true) {
                self.session.written(&self.log, carrier).await;
            }
            return None;
        };
        self.place = place + 1;
        // The name is the place of what comes next, from which it is taken up again.
        Some(format!("id: {}\nevent: message\ndata: {message}\n\n", self.log.event(self.place)))
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.session.stream_closed(&self.log, self.is_done);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[tokio::test]
    async fn of_a_stream_that_nobody_reads_the_newest_is_kept_and_the_answer_whole() {
        for request in [None, Some("r".to_owned())] {
            let log = Log::new(1, request.clone(), None, None);
            let said = json!({"method": "notifications/message", "params": "x".repeat(1_000_000)});
            (0..50).for_each(|_| log.say(Some(said.clone()), false));
            assert_eq!(lock(&log.said).kept.len(), 2, "{request:?}");
            let answer = json!({"id": 1, "result": "y".repeat(2 * MOST_BYTES)});
            log.say(Some(answer.clone()), true);
            assert_eq!(log.at(0).await, Some((50, answer)), "{request:?}");
            assert_eq!(log.at(51).await, None);
        }
        let log = Log::new(1, None, None, None);
        (0..MOST_KEPT + 5).for_each(|number| log.say(Some(json!(number)), false));
        assert_eq!(log.at(0).await, Some((5, json!(5))));
    }

    #[test]
    fn the_name_of_an_event_says_which_request_it_belongs_to() {
        for request in [None, Some(("019a-b.0", json!(7))), Some(("n", json!("a-b ü")))] {
            let request = request.map(|(name, id)| (name.to_owned(), id));
            let name = EventName { stream: 1 << 60, place: 3, request };
            assert!(name.to_string().is_ascii(), "{name}");
            assert_eq!(EventName::parse(&name.to_string()), Some(name));
        }
        for none in ["", "1", "a-0", "1-2-37", "1-2-3-n", "1-2-é1-n", "1-2-zz-n"] {
            assert_eq!(EventName::parse(none), None, "{none}");
        }
    }
}
