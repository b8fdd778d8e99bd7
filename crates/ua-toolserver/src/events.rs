//! What was said to clients over HTTP, kept until they surely have it.
//!
//! A client that was cut off asks for the rest of an answer by the id of the last event that reached it (MCP revision
//! 2025-11-25, "Resumability and Redelivery"). By itself `rmcp` forgets a call's events once the answer is handed to the
//! connection, whether that still stands or not: who was cut off at that moment would never learn how the call ended, and
//! a durable runner would have to ask a person. So the events are kept here: those of a call for [`KEPT_FOR`] after its
//! answer, within [`MAX_BYTES`] in all. An id holds the random name of its stream, so nobody finds another client's.
//!
//! Proved by: the tests below; `ua-mcp`'s tests of resumption, against this server through a proxy that cuts.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::stream;
use rmcp::model::JsonRpcMessage;
use rmcp::transport::streamable_http_server::session::{
    EventId, EventStore, EventStoreError, EventStream, ServerSseMessage,
};
use tokio::sync::watch;
use ua_core::{Env, Timestamp, json_length};

/// How long the events of an answered call are kept.
const KEPT_FOR: Duration = Duration::from_mins(15);
/// The most bytes that answered calls may take; the oldest answers go first.
const MAX_BYTES: usize = 128 << 20;

/// The events of all streams of one server. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Events {
    streams: Arc<Mutex<HashMap<String, StoredStream>>>,
    env: Env,
    /// How long a stream without an answer is kept after its last event.
    life: Duration,
    max_bytes: usize,
}

struct StoredStream {
    events: Vec<ServerSseMessage>,
    bytes: usize,
    /// Whether the answer came, which is the last event.
    is_answered: bool,
    last_at: Timestamp,
    /// Told of each event, so that those who wait look again; gone with the stream.
    news: watch::Sender<()>,
}

impl fmt::Debug for Events {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Events").field("streams", &self.streams().len()).finish_non_exhaustive()
    }
}

impl Events {
    /// Nothing yet. A stream that gets no answer is forgotten `life` after its last event.
    pub(crate) fn new(life: Duration, env: Env) -> Self {
        Self { streams: Arc::default(), env, life, max_bytes: MAX_BYTES }
    }

    fn streams(&self) -> MutexGuard<'_, HashMap<String, StoredStream>> {
        self.streams.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Forgets what is too old, and the oldest answers while all of them take too much.
    fn trim(&self, streams: &mut HashMap<String, StoredStream>) {
        let now = self.env.now();
        streams.retain(|_, kept| {
            let life = if kept.is_answered { KEPT_FOR } else { self.life };
            now.since(kept.last_at) < life
        });
        let answered = || streams.iter().filter(|(_, kept)| kept.is_answered);
        let mut bytes: usize = answered().map(|(_, kept)| kept.bytes).sum();
        if bytes <= self.max_bytes {
            return;
        }
        let mut oldest: Vec<(Timestamp, String)> = answered().map(|(id, kept)| (kept.last_at, id.clone())).collect();
        oldest.sort();
        for (_, id) in oldest {
            if bytes <= self.max_bytes {
                break;
            }
            bytes -= streams.remove(&id).map_or(0, |kept| kept.bytes);
        }
    }
}

#[async_trait]
impl EventStore for Events {
    async fn store_event(&self, stream_id: &str, event: &ServerSseMessage) -> Result<EventId, EventStoreError> {
        let bytes = event.message.as_deref().map_or(Ok(0), json_length)?;
        let mut streams = self.streams();
        let kept = streams.entry(stream_id.to_owned()).or_insert_with(|| StoredStream {
            events: Vec::new(),
            bytes: 0,
            is_answered: false,
            last_at: self.env.now(),
            news: watch::Sender::new(()),
        });
        let id = format!("{stream_id}/{}", kept.events.len());
        let mut event = event.clone();
        event.event_id = Some(id.clone());
        kept.is_answered |=
            matches!(event.message.as_deref(), Some(JsonRpcMessage::Response(_) | JsonRpcMessage::Error(_)));
        kept.events.push(event);
        kept.bytes += bytes;
        kept.last_at = self.env.now();
        kept.news.send_replace(());
        self.trim(&mut streams);
        Ok(id)
    }

    /// The later events of the stream, and those still to come, up to the answer.
    async fn replay_events_after(&self, last_event_id: &str) -> Result<EventStream, EventStoreError> {
        let place = last_event_id.rsplit_once('/').and_then(|(id, index)| Some((id, index.parse::<usize>().ok()?)));
        let (id, index) = place.ok_or_else(|| format!("{last_event_id:?} is not the id of an event"))?;
        let news = self.streams().get(id).filter(|kept| index < kept.events.len()).map(|kept| kept.news.subscribe());
        let news = news.ok_or_else(|| format!("the event {last_event_id:?} is not known any more"))?;
        let following = (self.clone(), id.to_owned(), index + 1, news);
        Ok(Box::pin(stream::unfold(following, async |(events, id, index, mut news)| {
            loop {
                news.mark_unchanged();
                let (event, is_answered) = {
                    let streams = events.streams();
                    let kept = streams.get(&id)?;
                    (kept.events.get(index).cloned(), kept.is_answered)
                };
                match event {
                    Some(event) => return Some((event, (events, id, index + 1, news))),
                    None if is_answered => return None,
                    None => news.changed().await.ok()?,
                }
            }
        })))
    }
}

#[cfg(test)]
mod tests {
    use futures_util::StreamExt as _;
    use rmcp::model::ServerJsonRpcMessage;
    use serde_json::{Value, json};

    use super::*;

    fn event(message: Value) -> ServerSseMessage {
        ServerSseMessage::from_message(serde_json::from_value::<ServerJsonRpcMessage>(message).unwrap())
    }

    fn answer(text: &str) -> ServerSseMessage {
        event(json!({"jsonrpc": "2.0", "id": 1, "result": {"content": [{"type": "text", "text": text}]}}))
    }

    fn note() -> ServerSseMessage {
        event(json!({"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": 1}}))
    }

    fn world() -> (Events, Env) {
        let env = Env::simulated(3);
        (Events::new(Duration::from_hours(24), env.clone()), env)
    }

    async fn ids_after(events: &Events, id: &str) -> Vec<String> {
        let stream = events.replay_events_after(id).await.unwrap();
        stream.filter_map(async |event| event.event_id).collect().await
    }

    #[tokio::test]
    async fn what_came_later_is_told_again_up_to_the_answer() {
        let (events, _) = world();
        let mut ids = Vec::new();
        for event in [note(), note(), answer("done")] {
            ids.push(events.store_event("a", &event).await.unwrap());
        }
        events.store_event("b", &answer("of another")).await.unwrap();
        assert_eq!(ids_after(&events, &ids[0]).await, ids[1..]);
        assert_eq!(ids_after(&events, &ids[2]).await, [] as [String; 0]);
    }

    #[tokio::test]
    async fn who_comes_back_too_early_waits_for_the_answer() {
        let (events, _) = world();
        let first = events.store_event("a", &note()).await.unwrap();
        let mut waiting = events.replay_events_after(&first).await.unwrap();
        assert!(futures_util::poll!(waiting.next()).is_pending());
        let id = events.store_event("a", &answer("done")).await.unwrap();
        assert_eq!(waiting.next().await.unwrap().event_id, Some(id));
        assert!(waiting.next().await.is_none(), "nothing follows an answer");
    }

    #[tokio::test]
    async fn unknown_events_are_refused_and_old_ones_become_unknown() {
        let (events, env) = world();
        let open = events.store_event("open", &note()).await.unwrap();
        let done = events.store_event("done", &answer("x")).await.unwrap();
        for id in ["", "0", "open/7", "open/x", "gone/0"] {
            assert!(events.replay_events_after(id).await.is_err(), "{id:?}");
        }
        env.clock.sleep(KEPT_FOR).await;
        events.store_event("other", &answer("y")).await.unwrap();
        assert!(events.replay_events_after(&done).await.is_err());
        assert!(events.replay_events_after(&open).await.is_ok(), "a call may take long");
    }

    #[tokio::test]
    async fn the_oldest_answers_make_room_and_calls_under_way_do_not() {
        let (mut events, env) = world();
        events.max_bytes = 1000;
        let open = events.store_event("open", &note()).await.unwrap();
        let mut ids = Vec::new();
        for stream in ["a", "b", "c"] {
            ids.push(events.store_event(stream, &answer(&"x".repeat(400))).await.unwrap());
            env.clock.sleep(Duration::from_secs(1)).await;
        }
        assert!(events.replay_events_after(&ids[0]).await.is_err());
        for id in [&open, &ids[1], &ids[2]] {
            assert!(events.replay_events_after(id).await.is_ok(), "{id}");
        }
    }
}
