//! What is said to a client over HTTP: a log for each request, and one for what belongs to none, each read by whoever has its stream open.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::{Bytes, Frame};
use hyper::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use hyper::{Response, StatusCode};
use serde_json::Value;
use tokio::sync::Notify;

use super::session::HttpSession;
use super::{Body, as_json};
use crate::upstream::lock;

/// How much is kept of what nobody reads.
const MOST_KEPT: usize = 1_000;

/// What is said on one stream.
#[derive(Debug)]
pub(super) struct Log {
    pub(super) number: u64,
    /// The request that it belongs to.
    pub(super) request: Option<String>,
    said: Mutex<Said>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct Said {
    /// The place of the first that is kept.
    from: usize,
    kept: VecDeque<Value>,
    is_over: bool,
}

impl Log {
    pub(super) fn new(number: u64, request: Option<String>) -> Arc<Self> {
        Arc::new(Self { number, request, said: Mutex::default(), changed: Notify::new() })
    }

    /// Says something; the last thing is an answer.
    pub(super) fn say(&self, message: Option<Value>, is_last: bool) {
        let mut said = lock(&self.said);
        said.kept.extend(message);
        if self.request.is_none() && said.kept.len() > MOST_KEPT {
            said.kept.pop_front();
            said.from += 1;
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
    pub(super) fn new(session: Arc<HttpSession>, log: Arc<Log>, place: usize) -> Self {
        session.stream_opened(&log);
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
    pub(super) fn into_answer(mut self, status: StatusCode, answer: &Value) -> Response<Body> {
        let response = as_json(status, answer);
        // It is written in one piece with its head.
        self.is_done = true;
        let (session, log) = (self.session.clone(), self.log.clone());
        tokio::spawn(async move { session.written(&log).await });
        response
    }

    /// A stream of events. `is_named`: it begins with a name under which it can be taken up again.
    pub(super) fn into_stream(mut self, is_named: bool) -> Response<Body> {
        self.is_named = is_named;
        let begin = is_named.then(|| format!("id: {}-{}\nretry: 1000\ndata:\n\n", self.log.number, self.place));
        let events = futures_util::stream::unfold((self, begin), |(mut reader, mut begin)| async move {
            let text = match begin.take() {
                Some(begin) => begin,
                None => reader.next().await?,
            };
            Some((Ok(Frame::data(Bytes::from(text))), (reader, begin)))
        });
        let mut response = Response::new(StreamBody::new(events).boxed_unsync());
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
        response
    }

    async fn next(&mut self) -> Option<String> {
        let Some((place, message)) = self.log.at(self.place).await else {
            if !std::mem::replace(&mut self.is_done, true) {
                self.session.written(&self.log).await;
            }
            return None;
        };
        self.place = place + 1;
        // The name is the place of what comes next, from which it is taken up again.
        Some(format!("id: {}-{}\nevent: message\ndata: {message}\n\n", self.log.number, self.place))
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.session.stream_closed(&self.log, self.is_done);
    }
}
