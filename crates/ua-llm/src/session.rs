//! What a provider already knows of a request, because it kept the conversation.
//!
//! Durable runner, current state §9 (provider session continuity). A provider that keeps its replies can be told the name of one,
//! and is then sent only what came after. Kept replies are immutable: what is continued from never changes, and two requests that
//! continue from one reply are two conversations.
//!
//! Invariant: a request continues from a reply only if its first messages are, byte for byte, those that the reply answered. So a
//! history that was cut, edited, forked with another job or put together from other parts is sent whole. Proved by: the tests
//! below, `crash_anywhere::sessions`, the e2e tests `sessions`.

use ua_core::{Role, Sha256, StopReason};

use crate::request::{Measurer, ModelRequest};

/// A reply that may be continued from: the last one of a run's history, whose turn is committed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptReply {
    /// The provider's name of the reply.
    pub response_id: String,
    /// The digest of the request that it answered.
    pub request_sha256: Sha256,
}

impl KeptReply {
    /// The reply of a turn, if it can be continued from: it has a name, and it is whole. What a provider keeps of a reply that was
    /// cut or refused is its own business.
    pub fn of(response_id: Option<&str>, stop_reason: StopReason, request_sha256: Sha256) -> Option<Self> {
        let is_whole = matches!(stop_reason, StopReason::EndTurn | StopReason::ToolUse);
        let response_id = response_id.filter(|id| is_whole && !id.is_empty())?.to_owned();
        Some(Self { response_id, request_sha256 })
    }

    /// How much of `request` the provider knows, if it begins with what this reply answered, and the reply, and goes on from there. `measurer`
    /// has measured it just now.
    pub fn known_of(&self, request: &ModelRequest, measurer: &Measurer) -> Option<KnownPrefix> {
        let reply = request.messages.iter().rposition(|message| message.role == Role::Assistant)?;
        let messages = reply + 1;
        if messages == request.messages.len() {
            return None; // nothing new to say
        }
        let known = KnownPrefix { response_id: self.response_id.clone(), messages };
        (measurer.digest_of_first(reply) == self.request_sha256).then_some(known)
    }
}

/// The part of a request that a provider knows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownPrefix {
    /// The reply with which it ends.
    pub response_id: String,
    /// How many of the request's messages it is; there is at least one more.
    pub messages: usize,
}

#[cfg(test)]
mod tests {
    use ua_core::{Block, Message, Origin, Shared};

    use super::*;

    fn request(messages: Vec<Message>) -> ModelRequest {
        ModelRequest {
            model: "m".into(),
            system: "s".into(),
            messages,
            tools: Shared::default(),
            max_output_tokens: 10,
            temperature_milli: None,
            seed: None,
            output_schema: None,
            wants_form: false,
        }
    }

    fn prompt() -> Message {
        Message::user(Origin::Prompt, "go")
    }

    fn reply(text: &str) -> Message {
        Message { role: Role::Assistant, origin: Origin::Model, blocks: vec![Block::text(text)].into() }
    }

    fn kept() -> KeptReply {
        KeptReply::of(Some("resp_1"), StopReason::EndTurn, request(vec![prompt()]).digest()).unwrap()
    }

    fn known_of(request: &ModelRequest) -> Option<KnownPrefix> {
        let mut measurer = Measurer::default();
        measurer.measure(request);
        kept().known_of(request, &measurer)
    }

    #[test]
    fn what_goes_on_from_the_reply_is_continued() {
        let longer = request(vec![prompt(), reply("yes"), Message::user(Origin::Guidance, "go on")]);
        assert_eq!(known_of(&longer), Some(KnownPrefix { response_id: "resp_1".into(), messages: 2 }));
    }

    #[test]
    fn anything_that_changed_before_the_reply_makes_it_a_stranger() {
        let on = || Message::user(Origin::Guidance, "go on");
        let other_prompt = request(vec![Message::user(Origin::Prompt, "stop"), reply("yes"), on()]);
        let other_system = ModelRequest { system: "t".into(), ..request(vec![prompt(), reply("yes"), on()]) };
        let other_model = ModelRequest { model: "n".into(), ..request(vec![prompt(), reply("yes"), on()]) };
        let a_turn_later = request(vec![prompt(), reply("yes"), on(), reply("and"), on()]);
        let nothing_new = request(vec![prompt(), reply("yes")]);
        for request in [other_prompt, other_system, other_model, a_turn_later, nothing_new, request(vec![prompt()])] {
            assert_eq!(known_of(&request), None, "{request:?}");
        }
    }

    #[test]
    fn only_a_whole_reply_with_a_name_can_be_continued() {
        let digest = request(vec![prompt()]).digest();
        let of = |id, reason| KeptReply::of(id, reason, digest).is_some();
        assert!(of(Some("resp_1"), StopReason::ToolUse));
        assert!(!of(None, StopReason::ToolUse) && !of(Some(""), StopReason::EndTurn));
        for cut in [StopReason::MaxTokens, StopReason::Refusal, StopReason::PauseTurn, StopReason::Other] {
            assert!(!of(Some("resp_1"), cut));
        }
    }
}
