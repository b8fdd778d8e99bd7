//! The stream of a session that belongs to no request: what the server asks and tells by itself.
//!
//! It is opened once the session stands. Most servers have none and say so; then it is not asked for again. One that breaks is taken up
//! again after its last event, a few times in a row and ever more seldom than the server likes, so that a server that is gone is left
//! alone: the next call finds that out. What may have been told in between is made up for by looking at the tools again.

use std::sync::{Arc, Weak};
use std::time::Duration;

use reqwest::header::{HeaderMap, HeaderValue};
use reqwest::{Response, StatusCode};
use serde_json::Value;
use tokio::sync::watch;

use super::endpoint::LAST_EVENT_ID;
use super::reading::{Events, HELD_OPEN, MAX_RESUME_WAIT, MAX_RESUMES, RESUME_WAIT};
use super::{ASIDE, Inner};
use crate::amount::read_with_forms;

/// Reads the stream until the session ends, or there is nothing more to be had. `opened` is told when the server has let it in.
pub(super) async fn listen(session: Weak<Inner>, opened: watch::Sender<bool>) {
    let mut place = Place::default();
    let mut vain = 0;
    while vain <= MAX_RESUMES {
        let Some((endpoint, env, headers)) = session.upgrade().and_then(|inner| {
            let is_over = inner.ended().is_some();
            (!is_over).then(|| (Arc::clone(&inner.endpoint), inner.env.clone(), place.headers(&inner)))
        }) else {
            return;
        };
        vain += 1;
        // Nobody's session is kept alive by waiting here. Some say nothing before they have something to tell; no call waits for that.
        let mut asked = std::pin::pin!(endpoint.get(headers));
        let answered = tokio::select! {
            answered = &mut asked => answered,
            () = env.clock.sleep(ASIDE) => {
                opened.send_replace(true);
                asked.await
            }
        };
        match answered {
            Ok(response) if response.status() == StatusCode::OK => {
                opened.send_replace(true);
                let opened_at = env.now();
                let has_told = place.follow(&session, response).await;
                if has_told || env.now().since(opened_at) >= HELD_OPEN {
                    vain = 0;
                }
                match session.upgrade() {
                    Some(inner) => place.make_up(&inner),
                    None => return,
                }
            }
            Ok(response) if may_pass(response.status()) => {}
            // It has no such stream, or not for us.
            Ok(_) => return,
            Err(failure) => tracing::debug!(why = failure.into_why(), "the stream of a session was not opened"),
        }
        env.clock.sleep(place.wait.unwrap_or(RESUME_WAIT).min(MAX_RESUME_WAIT)).await;
    }
    tracing::debug!("the stream of a session is given up");
}

fn may_pass(status: StatusCode) -> bool {
    status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS
}

/// Where a stream stands.
#[derive(Debug, Default)]
struct Place {
    last_event: Option<String>,
    wait: Option<Duration>,
}

impl Place {
    fn headers(&self, inner: &Inner) -> HeaderMap {
        let mut headers = inner.headers();
        if let Some(after) = self.last_event.as_deref().and_then(|id| HeaderValue::from_str(id).ok()) {
            headers.insert(LAST_EVENT_ID, after);
        }
        headers
    }

    /// Reads a stream to its end. Returns whether anything came.
    async fn follow(&mut self, session: &Weak<Inner>, response: Response) -> bool {
        let mut events = Events::of(response);
        let mut has_told = false;
        while let Ok(Some(event)) = events.next().await {
            if let Some(id) = event.id.clone() {
                self.last_event = Some(id).filter(|id| !id.is_empty());
            }
            self.wait = event.retry.map(Duration::from_millis).or(self.wait);
            let message = event.message().and_then(|data| read_with_forms(data.as_bytes()).ok());
            let Some(Value::Object(message)) = message.filter(|message| message.get("method").is_some()) else {
                continue;
            };
            has_told = true;
            let Some(inner) = session.upgrade() else { break };
            inner.answer_request(message, None);
        }
        has_told
    }

    /// What was told while nobody listened is lost where events have no ids: the tools may be other ones.
    fn make_up(&self, inner: &Inner) {
        if self.last_event.is_none() && inner.agreed().dialect.says_when_tools_change() {
            inner.host.note_change();
        }
    }
}
