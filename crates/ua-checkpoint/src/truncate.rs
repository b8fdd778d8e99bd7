//! A history, measured, and the view of it that fits into a request.
//!
//! Granular Execution PRD §8.2 (middle-out truncation). The first message stays, the newest that fit stay, and one message of the
//! user's stands for what lies between: `... [Context Truncated: N messages omitted] ...`. N is the number of messages left out, of
//! this view; nothing is ever written back. The message with which the current phase or iteration began stays too: it says what is to be done. A cut never separates a tool use from its result, and what is left out grows by
//! quarters of the window only, so that for many turns requests begin alike and a provider's prompt cache stays of use.
//! Deterministic: equal histories have equal views, in whatever process and however they were put together.
//!
//! Each message is measured once, when it is pushed; a view costs what it keeps.

use std::collections::HashMap;

use ua_core::{Block, Message, Origin, Role, omission, signed};

/// Says how many tokens a message costs in a request, with its blobs in place.
pub type Estimate = fn(&Message) -> u64;

/// Four bytes of a message's JSON, with its blobs in place, are a token.
pub fn estimate_tokens(message: &Message) -> u64 {
    let written = serde_json::to_string(message).map_or(0, |json| json.len() as u64);
    let blobs: u64 = message.blobs().map(|blob| blob.size).sum();
    (written + blobs).div_ceil(4)
}

/// How much of a history a request carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    /// The most tokens, those of the system prompt included.
    pub max_tokens: u64,
    /// Tokens of the system prompt, which always stays.
    pub system_tokens: u64,
}

/// A history whose messages are measured.
#[derive(Debug, Clone)]
pub struct MeasuredHistory {
    estimate: Estimate,
    messages: Vec<Message>,
    /// `tokens[n]`: what the first n messages cost.
    tokens: Vec<u64>,
    /// Replies before which nothing is open: a history may be cut in front of them, so that the newest turn always stays whole,
    /// with whatever was said after it.
    boundaries: Vec<usize>,
    /// Tool uses by their ids, and whether they have a result.
    tool_uses: HashMap<String, bool>,
    /// How many of them have none so far.
    open: usize,
    /// Where the current phase began, or the iteration, which is told its phase too.
    phase: Option<usize>,
}

/// The part of a history that a request carries.
#[derive(Debug, Clone, PartialEq)]
pub struct View<'h> {
    /// What stays at the beginning; all of it when nothing is left out.
    pub head: &'h [Message],
    /// Stands for what is left out.
    pub omission: Option<Message>,
    /// How many messages that are.
    pub omitted: usize,
    /// The message with which the current phase began, if what lies around it is left out.
    pub phase: Option<&'h Message>,
    /// What stays at the end.
    pub tail: &'h [Message],
    /// Whether it costs no more than the window holds. The job and the newest messages stay even if they alone do not fit.
    pub fits: bool,
}

impl View<'_> {
    /// The messages of the view, in order.
    pub fn messages(&self) -> impl Iterator<Item = &Message> {
        self.head.iter().chain(&self.omission).chain(self.phase).chain(self.tail)
    }
}

impl MeasuredHistory {
    /// An empty history.
    pub fn new(estimate: Estimate) -> Self {
        Self {
            estimate,
            messages: Vec::new(),
            tokens: vec![0],
            boundaries: Vec::new(),
            tool_uses: HashMap::new(),
            open: 0,
            phase: None,
        }
    }

    /// Appends a message.
    pub fn push(&mut self, message: Message) {
        if self.open == 0 && message.role == Role::Assistant {
            self.boundaries.push(self.messages.len());
        }
        if matches!(message.origin, Origin::Phase | Origin::Iteration) {
            self.phase = Some(self.messages.len());
        }
        for block in &message.blocks {
            match (message.role, block) {
                (Role::Assistant, Block::ToolUse(tool_use)) => {
                    if self.tool_uses.insert(tool_use.id.clone(), false) != Some(false) {
                        self.open += 1;
                    }
                }
                (Role::User, Block::ToolResult { tool_use_id, .. }) => {
                    if let Some(is_answered @ false) = self.tool_uses.get_mut(tool_use_id) {
                        *is_answered = true;
                        self.open -= 1;
                    }
                }
                (
                    Role::Assistant | Role::User,
                    Block::Text { .. } | Block::ToolUse(_) | Block::ToolResult { .. } | Block::Opaque { .. },
                ) => {}
            }
        }
        let before = self.tokens.last().copied().unwrap_or(0);
        self.tokens.push(before.saturating_add((self.estimate)(&message)));
        self.messages.push(message);
    }

    /// Whether a tool use of the history has this id.
    pub fn has_tool_use(&self, id: &str) -> bool {
        self.tool_uses.contains_key(id)
    }

    /// All messages, oldest first.
    pub fn messages(&self) -> &[Message] {
        &self.messages
    }

    /// The view that fits into `window`.
    pub fn view(&self, window: Window) -> View<'_> {
        let (max, all) = (window.max_tokens, self.messages.as_slice());
        let whole = |fits| View { head: all, omission: None, omitted: 0, phase: None, tail: &[], fits };
        let total = window.system_tokens.saturating_add(self.tokens[all.len()]);
        if total <= max {
            return whole(true);
        }
        // A message that stands for others is never counted among them: a view of a view leaves out nothing more.
        let head = 1 + usize::from(all.get(1).is_some_and(|message| message.origin == Origin::Omission));
        // With the widest number that it can hold, so that its own size never moves the cut.
        let notice = (self.estimate)(&omission(usize::MAX));
        let needed = total.saturating_add(notice) - max;
        let step = (max / 4).max(1);
        let stepped = needed.div_ceil(step).saturating_mul(step);
        let first = self.boundaries.partition_point(|&at| at <= head);
        let places = &self.boundaries[first..];
        let stays = |at: usize| self.phase.filter(|phase| (head..at).contains(phase));
        let leaves_out = |at: usize| {
            let kept = stays(at).map_or(0, |phase| self.tokens[phase + 1] - self.tokens[phase]);
            self.tokens[at] - self.tokens[head] - kept
        };
        let reaching = |wanted: u64| places.get(places.partition_point(|&at| leaves_out(at) < wanted)).copied();
        let Some(cut) = reaching(stepped).or_else(|| reaching(needed)).or_else(|| places.last().copied()) else {
            return whole(false);
        };
        let phase = stays(cut);
        let omitted = cut - head - usize::from(phase.is_some());
        if omitted == 0 {
            return whole(false);
        }
        tracing::debug!(
            omitted = signed(omitted),
            total_tokens = signed(total),
            max_tokens = signed(max),
            "ua.history.cut"
        );
        View {
            head: &all[..head],
            omission: Some(omission(omitted)),
            omitted,
            phase: phase.map(|phase| &all[phase]),
            tail: &all[cut..],
            fits: leaves_out(cut) >= needed,
        }
    }
}

impl Extend<Message> for MeasuredHistory {
    fn extend<I: IntoIterator<Item = Message>>(&mut self, messages: I) {
        for message in messages {
            self.push(message);
        }
    }
}

#[cfg(test)]
#[path = "truncate_tests.rs"]
mod tests;
