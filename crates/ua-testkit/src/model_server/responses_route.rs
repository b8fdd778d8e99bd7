//! `POST /v1/responses`: a request is checked, answered by the script, and what was said is kept if it is to be.

use std::sync::Arc;

use axum::Json;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use serde_json::{Value, json};
use ua_core::ModelTurn;
use ua_llm::Script;

use super::fault::{FaultKind, Pace, Plan};
use super::responses::{Reply, decode, error_frame};
use super::{Refusal, Shared, endless, stream_frames};

/// A reply that was made, and what is kept of the conversation if it arrives whole.
struct Made {
    turn: ModelTurn,
    reply: Reply,
    to_keep: Option<Vec<Value>>,
    is_streamed: bool,
}

pub(super) async fn answer(State(shared): State<Arc<Shared>>, headers: HeaderMap, body: Bytes) -> Response {
    let (number, fault) = shared.arrive(&body);
    if matches!(fault, Some(FaultKind::Hang)) {
        std::future::pending::<()>().await;
    }
    let is_whole = fault.as_ref().is_none_or(FaultKind::leaves_the_reply_whole);
    let response = match make(&shared, number, &headers, &body) {
        Err(refusal) => refused(refusal, number),
        Ok(Made { turn, reply, to_keep, is_streamed }) => {
            shared.note(number, |record| record.usage = is_whole.then(|| turn.usage.unwrap_or_default()));
            if let Some(conversation) = to_keep.filter(|_| is_whole) {
                shared.seen().kept.insert(reply.id.clone(), Reply::kept(conversation, &turn));
            }
            match fault.map(FaultKind::plan) {
                Some(Plan::Refuse(refusal)) => refused(refusal, number),
                Some(Plan::Stream(pace)) => stream(&reply, &pace),
                Some(Plan::Page) => ([(header::CONTENT_TYPE, "text/html")], "<html>sign in</html>").into_response(),
                Some(Plan::Endless) => endless(),
                None if is_streamed => stream(&reply, &Pace::default()),
                None => Json(reply.whole()).into_response(),
            }
        }
    };
    shared.note(number, |record| record.status = response.status().as_u16());
    response
}

/// Reads a request and asks the script.
fn make(shared: &Shared, number: u64, headers: &HeaderMap, body: &[u8]) -> Result<Made, Refusal> {
    let key = headers.get(header::AUTHORIZATION).and_then(|key| key.to_str().ok()?.strip_prefix("Bearer "));
    match (key.filter(|key| !key.is_empty()), &shared.config.api_key) {
        (None, _) => return Err(Refusal::new(401, "You didn't provide an API key.")),
        (Some(key), Some(expected)) if key != expected => return Err(Refusal::new(401, "Incorrect API key provided.")),
        (Some(_), _) => {}
    }
    let body: Value = serde_json::from_slice(body).map_err(|error| Refusal::new(400, &error.to_string()))?;
    let request = {
        let mut seen = shared.seen();
        seen.last_request = Some(body.clone());
        decode(&body, &seen.kept)?
    };
    shared.note(number, |record| {
        record.messages = request.messages.len();
        record.turn = Script::turn_of(&request.messages);
        record.continued_from.clone_from(&request.continued_from);
    });
    let turn = shared
        .config
        .script
        .reply(&request.model, &request.system, &request.messages, number)
        .map_err(|error| Refusal::new(400, &error.to_string()))?;
    let reply = Reply::of(&turn, request.with_thoughts);
    Ok(Made { turn, reply, to_keep: request.to_keep, is_streamed: request.stream })
}

fn stream(reply: &Reply, pace: &Pace) -> Response {
    let (frames, ending) = pace.cut(error_frame, reply.events());
    stream_frames(frames, ending, pace)
}

fn refused(refusal: Refusal, number: u64) -> Response {
    let status = StatusCode::from_u16(refusal.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let kind = if refusal.status < 500 { "invalid_request_error" } else { "server_error" };
    let message = format!("{} (request req_scripted_{number})", refusal.message);
    let error = json!({"message": message, "type": kind, "param": refusal.param, "code": refusal.code});
    let mut response = (status, Json(json!({"error": error}))).into_response();
    if let Some(value) = refusal.retry_after.and_then(|text| text.parse().ok()) {
        response.headers_mut().insert(header::RETRY_AFTER, value);
    }
    response
}
