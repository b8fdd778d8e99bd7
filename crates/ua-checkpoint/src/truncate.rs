//! A history, measured, and the view of it that fits into a request.
//!
//! Granular Execution PRD §8.2 (middle-out truncation). The first message stays, the newest that fit stay, and one message of the
//! user's stands for what lies between: `... [Context Truncated: N messages omitted] ...`. N is the number of messages left out, of
//! this view; nothing is ever written back. The message with which the current phase or iteration began stays too: it says what is to be done. A cut never separates a tool use from its result, and what is left out grows by
//! quarters of the window only, so that for many turns requests begin alike and a provider's prompt cache stays of use.
//! Deterministic: equal histories have equal views, in whatever process and however they were put together.
//!
//! Each message is measured once, when it is pushed; a view costs what it keeps.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use ua_core::{Block, Message, Origin, Role, omission, signed};

/// Says how many tokens a message costs in a request, with its blobs in place.
pub type Estimate = fn(&Message) -> u64;

/// What a message of so many bytes costs.
pub const fn tokens_of_bytes(bytes: u64) -> u64 {
    bytes.div_ceil(4)
}

/// Four bytes of a message's JSON, with its blobs in place, are a token.
pub fn estimate_tokens(message: &Message) -> u64 {
    tokens_of_bytes(ua_store::message_bytes(message))
}

/// What stands for an id of a tool use: thousands of them are remembered for ever.
fn digest(id: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    id.hash(&mut hasher);
    hasher.finish()
}

/// How much of a history a request carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    /// The most tokens, those of the system prompt included.
    pub max_tokens: u64,
    /// Tokens of the system prompt, which always stays.
    pub system_tokens: u64,
}

/// A history whose messages are measured. What no view can carry any more need not be kept: it is counted.
#[derive(Debug, Clone)]
pub struct MeasuredHistory {
    estimate: Estimate,
    messages: Vec<Message>,
    /// `tokens[n]`: what the first n messages that are kept cost.
    tokens: Vec<u64>,
    /// Replies before which nothing is open: a history may be cut in front of them, so that the newest turn always stays whole,
    /// with whatever was said after it.
    boundaries: Vec<usize>,
    /// How many messages were let go of: they lay behind the head, with the one with which the phase began then among them, which is kept.
    let_go: usize,
    /// What they cost.
    let_go_tokens: u64,
    /// Tool uses without a result so far, by their ids.
    open: HashSet<String>,
    /// Digests of the ids of all tool uses.
    tool_uses: HashSet<u64>,
    /// Where the current phase began, or the iteration, which is told its phase too.
    phase: Option<usize>,
}

/// What a history has of messages that were let go of before it was put together.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Past {
    /// How many they are.
    pub messages: usize,
    /// What they cost.
    pub tokens: u64,
    /// The ids of the tool uses in them.
    pub tool_uses: Vec<String>,
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
            let_go: 0,
            let_go_tokens: 0,
            open: HashSet::new(),
            tool_uses: HashSet::new(),
            phase: None,
        }
    }

    /// A history of which only its `head` is there so far, the job and, where it lies in the past, the message with which the current phase
    /// began; what lay behind is `past`. As it would be if all of it had been pushed, and [let go of](Self::let_go).
    pub fn behind(estimate: Estimate, head: impl IntoIterator<Item = Message>, past: &Past) -> Self {
        let mut history = Self::new(estimate);
        history.extend(head);
        (history.let_go, history.let_go_tokens) = (past.messages, past.tokens);
        history.tool_uses.extend(past.tool_uses.iter().map(|id| digest(id)));
        history
    }

    /// Appends a message.
    pub fn push(&mut self, message: Message) {
        if self.open.is_empty() && message.role == Role::Assistant {
            self.boundaries.push(self.messages.len());
        }
        if matches!(message.origin, Origin::Phase | Origin::Iteration) {
            self.phase = Some(self.messages.len());
        }
        for block in &message.blocks {
            match (message.role, block) {
                (Role::Assistant, Block::ToolUse(tool_use)) => {
                    self.tool_uses.insert(digest(&tool_use.id));
                    self.open.insert(tool_use.id.clone());
                }
                (Role::User, Block::ToolResult { tool_use_id, .. }) => {
                    self.open.remove(tool_use_id);
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
        self.tool_uses.contains(&digest(id))
    }

    /// The messages that are kept, oldest first.
    pub fn messages(&self) -> &[Message] {
        &self.messages
    }

    /// Lets go of messages that no view of at most `max_tokens` can carry, whatever is appended: the views stay as they are. What is kept is
    /// at most twice what is needed, so that little is moved.
    pub fn let_go(&mut self, max_tokens: u64) {
        let all = self.tokens[self.messages.len()];
        let needed = self.boundaries.partition_point(|&at| all - self.tokens[at] >= max_tokens);
        let Some(cut) = needed.checked_sub(1).map(|last| self.boundaries[last]) else { return };
        let head = self.head();
        if cut < head.max(1) || cut < self.messages.len() / 2 {
            return;
        }
        // The message with which the phase began stays, in front of the cut.
        let phase = self.phase.filter(|phase| (head..cut).contains(phase));
        let phase_tokens = phase.map_or(0, |phase| self.tokens[phase + 1] - self.tokens[phase]);
        let kept = head + usize::from(phase.is_some());
        let gone = cut - kept;
        if gone == 0 {
            return;
        }
        self.let_go += gone;
        self.let_go_tokens = self.let_go_tokens.saturating_add(self.tokens[cut] - self.tokens[head] - phase_tokens);
        if let Some(phase) = phase {
            self.messages.swap(head, phase);
        }
        self.messages.drain(kept..cut);
        let (base, behind) = (self.tokens[head] + phase_tokens, self.tokens.split_off(cut));
        let moved = behind[0] - base;
        self.tokens.truncate(kept);
        self.tokens.extend(behind.into_iter().map(|tokens| tokens - moved));
        self.boundaries.retain(|at| *at >= cut);
        self.boundaries.iter_mut().for_each(|at| *at -= gone);
        self.phase = match (phase, self.phase) {
            (Some(_), _) => Some(head),
            (None, Some(later)) if later >= cut => Some(later - gone),
            (None, other) => other,
        };
    }

    /// How many messages at the beginning always stay. A message that stands for others is never counted among them: a view of a view leaves out
    /// nothing more.
    fn head(&self) -> usize {
        1 + usize::from(self.messages.get(1).is_some_and(|message| message.origin == Origin::Omission))
    }

    /// The view that fits into `window`.
    pub fn view(&self, window: Window) -> View<'_> {
        let (max, all) = (window.max_tokens, self.messages.as_slice());
        let whole = |fits| View { head: all, omission: None, omitted: 0, phase: None, tail: &[], fits };
        let total = window.system_tokens.saturating_add(self.tokens[all.len()]).saturating_add(self.let_go_tokens);
        if total <= max && self.let_go == 0 {
            return whole(true);
        }
        let head = self.head();
        // With the widest number that it can hold, so that its own size never moves the cut.
        let notice = (self.estimate)(&omission(usize::MAX));
        let needed = total.saturating_add(notice).saturating_sub(max);
        let step = (max / 4).max(1);
        let stepped = needed.div_ceil(step).saturating_mul(step);
        // A cut right behind the head leaves out what was let go of, if anything was.
        let first = self.boundaries.partition_point(|&at| at < head + usize::from(self.let_go == 0));
        let places = &self.boundaries[first..];
        let stays = |at: usize| self.phase.filter(|phase| (head..at).contains(phase));
        let leaves_out = |at: usize| {
            let kept = stays(at).map_or(0, |phase| self.tokens[phase + 1] - self.tokens[phase]);
            self.tokens[at] - self.tokens[head] - kept + self.let_go_tokens
        };
        let reaching = |wanted: u64| places.get(places.partition_point(|&at| leaves_out(at) < wanted)).copied();
        let last = || places.last().copied().or_else(|| (self.let_go > 0).then_some(all.len()));
        let Some(cut) = reaching(stepped).or_else(|| reaching(needed)).or_else(last) else {
            return whole(false);
        };
        let phase = stays(cut);
        let omitted = cut - head - usize::from(phase.is_some()) + self.let_go;
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
