//! Bodies of requests, as they were written: what a body has in common with the one before it, what stands around the messages and all messages
//! but the newest, is not written again.
//!
//! Invariant: a body is what it would be if nothing had been written before. Proved by: the tests of each wire.

use std::fmt;
use std::sync::{Mutex, PoisonError};

use serde_json::Value;
use ua_core::Message;

use crate::parts::Parts;
use crate::request::ModelRequest;

/// Of as many conversations it is kept what was written: those of a run and its sub-agents.
const MOST: usize = 8;

/// What was written for one conversation.
pub(crate) struct Written<T> {
    /// The message that it begins with.
    begin: Option<Message>,
    /// What stands around the messages, without the brace at its end, with the request that it was written for and its form.
    frame: Option<(ModelRequest, u8, String)>,
    /// What was written for each piece of the history.
    pub(crate) parts: Parts<T>,
}

impl<T> Default for Written<T> {
    fn default() -> Self {
        Self { begin: None, frame: None, parts: Parts::default() }
    }
}

impl<T> Written<T> {
    /// What stands around the messages of a request, up to the brace at its end: as it was written, or as `make` makes it. It may depend on the
    /// request and on nothing else that changes.
    pub(crate) fn frame(&mut self, request: &ModelRequest, make: impl FnOnce() -> Value) -> String {
        self.frame_in(0, request, make)
    }

    /// The same of a frame that has several forms.
    pub(crate) fn frame_in(&mut self, form: u8, request: &ModelRequest, make: impl FnOnce() -> Value) -> String {
        let is_other = |(known, its, _): &(ModelRequest, u8, String)| *its != form || !request.has_frame(known);
        if self.frame.as_ref().is_none_or(is_other) {
            let mut text = make().to_string();
            text.pop();
            self.frame = Some((request.frame(), form, text));
        }
        self.frame.as_ref().map(|(_, _, text)| text.clone()).unwrap_or_default()
    }
}

/// What was written for the conversations that were asked about lately, the newest last.
pub(crate) struct Conversations<T>(Mutex<Vec<Written<T>>>);

impl<T> Default for Conversations<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T> fmt::Debug for Conversations<T> {
    /// Nothing of what is said.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Conversations").finish_non_exhaustive()
    }
}

impl<T> Conversations<T> {
    /// Writes the body of a request with what was written for its conversation. Others are written meanwhile.
    pub(crate) fn write(&self, request: &ModelRequest, write: impl FnOnce(&mut Written<T>) -> String) -> String {
        let all = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let begin = request.messages.first();
        let known = {
            let mut all = all();
            all.iter().position(|written| written.begin.as_ref() == begin).map(|place| all.remove(place))
        };
        let mut written = known.unwrap_or_else(|| Written { begin: begin.cloned(), ..Written::default() });
        let body = write(&mut written);
        let mut all = all();
        all.push(written);
        let surplus = all.len().saturating_sub(MOST);
        all.drain(..surplus);
        body
    }
}

/// Appends texts to a list in JSON, of which those that are empty are none.
pub(crate) fn push_list<'t>(body: &mut String, items: impl Iterator<Item = &'t str>) {
    for (index, item) in items.filter(|item| !item.is_empty()).enumerate() {
        body.push_str(if index > 0 { "," } else { "" });
        body.push_str(item);
    }
}

/// Values as they stand in a list in JSON.
pub(crate) fn listed(values: &[Value]) -> String {
    values.iter().map(Value::to_string).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use ua_core::Origin;

    use super::*;

    fn request(first: &str, system: &str) -> ModelRequest {
        ModelRequest {
            model: "m".into(),
            system: system.into(),
            messages: vec![Message::user(Origin::Prompt, first)],
            tools: vec![].into(),
            max_output_tokens: 1,
            temperature_milli: None,
            seed: None,
            output_schema: None,
            wants_form: false,
        }
    }

    #[test]
    fn conversations_are_told_apart_and_the_oldest_goes() {
        let all: Conversations<()> = Conversations::default();
        let frame_of = |first: &str, system: &str, written: &str| {
            all.write(&request(first, system), |known| known.frame(&request(first, system), || json!({ "w": written })))
        };
        assert_eq!(frame_of("a", "s", "1"), r#"{"w":"1""#);
        assert_eq!(frame_of("b", "s", "2"), r#"{"w":"2""#);
        assert_eq!(frame_of("a", "s", "3"), r#"{"w":"1""#, "it was written before");
        assert_eq!(frame_of("a", "t", "4"), r#"{"w":"4""#, "for another system prompt it is another");
        for other in 0..MOST {
            frame_of(&other.to_string(), "s", "5");
        }
        assert_eq!(frame_of("b", "s", "6"), r#"{"w":"6""#);
        assert!(!format!("{all:?}").contains('w'), "{all:?}");
    }
}
