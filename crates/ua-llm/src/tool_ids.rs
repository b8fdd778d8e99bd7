//! The ids of tool uses: each is used once in a history, and goes to a server in a form that it takes.
//!
//! A result names the tool use that it answers, so an id that stands twice makes a history that no provider accepts. Some servers count
//! from nought in every reply, or give no ids at all. And what one server gave as an id, another one may refuse, with the whole history: of
//! other characters (`functions.look:0`), or too long. Servers that gave such an id want to read it again as it was, since it says something to them
//! (a signature of thoughts, the place of a call); so an id is another one only where a server is known to refuse it, or has shown that.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};

use ua_core::{Block, Message, ModelTurn, sha256};

use crate::error::LlmError;
use crate::image::of_other_tool_use;
use crate::refusal::Refusal;
use crate::request::ModelRequest;

/// How refusals speak of the form of an id, and not of one that has no result, or two.
const FORMS: [&str; 7] = ["pattern", "too long", "at most", "length", "character", "a-z", "regex"];
/// Hexadecimal digits of an id of our own, behind its first word.
const DIGITS: usize = 24;

/// What a server takes as the id of a tool use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum IdForm {
    /// Letters, digits, `_` and `-`, at most so many.
    Plain(usize),
    /// Nine letters and digits, as Mistral's models have it; every other server takes that as well.
    Nine,
}

impl IdForm {
    fn takes(self, id: &str) -> bool {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
        match self {
            Self::Plain(longest) => !id.is_empty() && id.len() <= longest && id.chars().all(is_plain),
            Self::Nine => id.len() == 9 && id.chars().all(|c| c.is_ascii_alphanumeric()),
        }
    }

    /// The id in this form: itself, or one that is made of it and of nothing else, so that a tool use and its result have the same.
    fn of(self, id: &str) -> String {
        if self.takes(id) {
            return id.to_owned();
        }
        let digest = sha256(id).to_hex();
        match self {
            Self::Plain(_) => format!("call_{}", &digest[..DIGITS]),
            Self::Nine => digest[..9].to_owned(),
        }
    }

    /// A request with its ids in this form.
    fn applied(self, request: &ModelRequest) -> Cow<'_, ModelRequest> {
        let is_other = |message: &Message| message.blocks.iter().filter_map(id_of).any(|id| !self.takes(id));
        if !request.messages.iter().any(is_other) {
            return Cow::Borrowed(request);
        }
        let mut request = request.clone();
        for message in request.messages.iter_mut().filter(|message| is_other(message)) {
            for block in &mut message.blocks {
                self.rename(block);
            }
        }
        Cow::Owned(request)
    }

    fn rename(self, block: &mut Block) {
        match block {
            Block::ToolUse(tool_use) => tool_use.id = self.of(&tool_use.id),
            Block::ToolResult { tool_use_id, .. } => *tool_use_id = self.of(tool_use_id),
            Block::Opaque { .. } => {
                if let Some(image) = of_other_tool_use(block, |id| self.of(id)) {
                    *block = image;
                }
            }
            Block::Text { .. } => {}
        }
    }
}

fn id_of(block: &Block) -> Option<&str> {
    match block {
        Block::ToolUse(tool_use) => Some(&tool_use.id),
        Block::ToolResult { tool_use_id, .. } => Some(tool_use_id),
        // An image stands beside its result.
        Block::Text { .. } | Block::Opaque { .. } => None,
    }
}

/// In which form the ids of histories go to one server.
#[derive(Debug)]
pub(crate) struct IdsThere {
    form: IdForm,
    /// Whether it takes that form alone; otherwise ids go there as they came.
    is_strict: AtomicBool,
}

impl IdsThere {
    /// Of a server that is known to take this form alone, or may turn out to.
    pub(crate) fn new(form: IdForm, is_strict: bool) -> Self {
        Self { form, is_strict: AtomicBool::new(is_strict) }
    }

    /// The request as it goes to the server.
    pub(crate) fn in_form<'r>(&self, request: &'r ModelRequest) -> Cow<'r, ModelRequest> {
        if self.is_strict.load(Ordering::Relaxed) { self.form.applied(request) } else { Cow::Borrowed(request) }
    }

    /// Whether a request that went there as `sent`, and was refused for its ids, can be asked once more with others; what was refused was free.
    /// From then on they are the others.
    pub(crate) fn learns_from(&self, refused: Refusal<'_>, sent: &ModelRequest) -> bool {
        let error = refused.error();
        let is_refusal =
            matches!(error, LlmError::InvalidRequest { .. } | LlmError::TooLong { .. } | LlmError::Server { .. });
        // `messages.1.content.0.tool_use.id: String should match pattern`, `Invalid 'input[2].call_id': string too long`.
        let said = error.to_string().to_ascii_lowercase();
        let names_an_id = names_an_id(&said);
        let names_a_form = FORMS.iter().any(|form| said.contains(form));
        let learns = is_refusal && names_an_id && names_a_form && matches!(self.form.applied(sent), Cow::Owned(_));
        if learns {
            self.is_strict.store(true, Ordering::Relaxed);
        }
        learns
    }
}

/// Whether a refusal in small letters speaks of the id of a tool use, and not of that of a request.
fn names_an_id(said: &str) -> bool {
    let words = said.split(|c: char| !c.is_ascii_alphanumeric());
    // `tool_calls[0].id` has a number between.
    let words = words.filter(|word| !word.is_empty() && !word.bytes().all(|byte| byte.is_ascii_digit()));
    let words: Vec<&str> = words.collect();
    words
        .windows(2)
        .any(|pair| matches!(pair[1], "id" | "ids") && matches!(pair[0], "call" | "calls" | "use" | "uses" | "tool"))
}

/// Renames tool uses of `reply` whose id is empty, used twice in it, used in the history already, or one that no store holds as it is (U+0000): the
/// call would have another one than its tool use. A reply that was changed has no name any more: its provider knows it as it was, so nothing
/// can continue from it there.
///
/// Of tool uses with the same id, tool and arguments the first one is kept: a stream that says one twice means one, and two would be two effects.
pub fn tell_tool_uses_apart(reply: &mut ModelTurn, is_in_history: impl Fn(&str) -> bool) {
    let is_told_twice = keep_one_of_each(reply);
    let mut of_reply: BTreeSet<String> = BTreeSet::new();
    // Where the numbers behind each id were left: a reply may be nothing but tool uses of one id.
    let mut numbers: BTreeMap<String, u64> = BTreeMap::new();
    let mut is_changed = is_told_twice;
    for block in &mut reply.blocks {
        let Block::ToolUse(tool_use) = block else { continue };
        let is_used = |id: &str| of_reply.contains(id) || is_in_history(id);
        let plain = tool_use.id.trim_matches(|c: char| c.is_whitespace() || c == '\0');
        if plain.is_empty() || tool_use.id.contains('\0') || is_used(&tool_use.id) {
            let stem = if plain.is_empty() { "call".to_owned() } else { plain.replace('\0', "_") };
            let number = numbers.entry(stem.clone()).or_insert(1);
            let free = std::iter::repeat_with(|| {
                *number += 1;
                format!("{stem}_{number}")
            })
            .find(|id| !is_used(id));
            tracing::debug!(id = tool_use.id, renamed = free, "a tool use has an id that cannot be kept");
            tool_use.id = free.unwrap_or(stem);
            is_changed = true;
        }
        of_reply.insert(tool_use.id.clone());
    }
    if is_changed {
        reply.response_id = None;
    }
}

/// Takes away what is said again word for word under its id; whether there was such a thing. No id says nothing about which call it is.
fn keep_one_of_each(reply: &mut ModelTurn) -> bool {
    let mut times: BTreeMap<&str, u32> = BTreeMap::new();
    for tool_use in reply.tool_uses() {
        *times.entry(tool_use.id.as_str()).or_default() += 1;
    }
    // Most replies have no id twice: arguments are compared only where one has.
    let twice = |(id, times): (&str, u32)| (times > 1 && !id.trim().is_empty()).then(|| id.to_owned());
    let twice: BTreeSet<String> = times.into_iter().filter_map(twice).collect();
    if twice.is_empty() {
        return false;
    }
    let count = reply.blocks.len();
    let mut said = BTreeSet::new();
    reply.blocks.retain(|block| match block {
        Block::ToolUse(tool_use) if twice.contains(&tool_use.id) => {
            let is_news = said.insert((tool_use.id.clone(), tool_use.name.clone(), tool_use.input.to_string()));
            if !is_news {
                tracing::debug!(
                    id = tool_use.id,
                    tool = tool_use.name,
                    "a tool use is said twice in a reply; it is one"
                );
            }
            is_news
        }
        Block::Text { .. } | Block::ToolUse(_) | Block::ToolResult { .. } | Block::Opaque { .. } => true,
    });
    reply.blocks.len() < count
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use ua_core::{StopReason, ToolUse};

    use super::*;

    fn reply(ids: &[&str]) -> ModelTurn {
        let tool_use = |id: &&str| Block::ToolUse(ToolUse { id: (*id).into(), name: "t".into(), input: json!({}) });
        ModelTurn {
            blocks: ids.iter().map(tool_use).collect(),
            stop_reason: StopReason::ToolUse,
            usage: None,
            model: "m".into(),
            response_id: Some("resp_1".into()),
        }
    }

    /// A reply of tool uses of one tool, each with its id and what it is used on.
    fn reply_on(uses: &[(&str, u64)]) -> ModelTurn {
        let ids: Vec<&str> = uses.iter().map(|(id, _)| *id).collect();
        let mut reply = reply(&ids);
        for (block, (_, on)) in reply.blocks.iter_mut().zip(uses) {
            let Block::ToolUse(tool_use) = block else { continue };
            tool_use.input = json!({"on": on});
        }
        reply
    }

    fn ids(reply: &ModelTurn) -> Vec<&str> {
        reply.tool_uses().map(|tool_use| tool_use.id.as_str()).collect()
    }

    #[test]
    fn ids_that_are_used_already_are_renamed_and_others_stay() {
        let history = |id: &str| ["call_0", "call_0_2"].contains(&id);
        let mut again = reply_on(&[("call_0", 1), ("a", 1), ("a", 2), ("", 1), (" ", 1)]);
        tell_tool_uses_apart(&mut again, history);
        assert_eq!((ids(&again), &again.response_id), (vec!["call_0_3", "a", "a_2", "call_2", "call_3"], &None));
        let mut odd = reply(&["b\0", "\0", "c\0d", "c_d_2"]);
        tell_tool_uses_apart(&mut odd, history);
        assert_eq!((ids(&odd), &odd.response_id), (vec!["b_2", "call_2", "c_d_2", "c_d_2_2"], &None));
        let mut fine = reply(&["x", "y"]);
        tell_tool_uses_apart(&mut fine, history);
        assert_eq!(fine, reply(&["x", "y"]));
    }

    /// A stream that says a tool use twice, as some servers do at its end, asks for one effect.
    #[test]
    fn a_tool_use_that_is_said_twice_in_a_reply_is_one() {
        let none = |_: &str| false;
        let mut twice = reply_on(&[("a", 1), ("b", 1), ("a", 1), ("a", 2), ("b", 1), ("a", 1)]);
        twice.blocks.insert(2, Block::Text { text: "and".into() });
        tell_tool_uses_apart(&mut twice, none);
        assert_eq!((ids(&twice), &twice.response_id), (vec!["a", "b", "a_2"], &None));
        assert_eq!(twice.blocks.len(), 4, "what is no tool use stays");
        // What has no id may be two, and so may what has another one.
        let mut two = reply_on(&[("", 1), ("", 1), ("c", 1), ("d", 1)]);
        tell_tool_uses_apart(&mut two, none);
        assert_eq!(ids(&two), ["call_2", "call_3", "c", "d"]);
        // A reply that only the id of an earlier one is in is another one.
        let mut later = reply_on(&[("a", 1)]);
        tell_tool_uses_apart(&mut later, |id| id == "a");
        assert_eq!(ids(&later), ["a_2"]);
    }

    /// A reply of nothing but tool uses of one id: each number is tried once.
    #[test]
    fn s23_tool_uses_of_one_id_are_told_apart_in_one_pass() {
        let uses: Vec<(&str, u64)> = (0..2_000).map(|on| ("a", on)).collect();
        let mut reply = reply_on(&uses);
        let tries = std::cell::Cell::new(0_u32);
        tell_tool_uses_apart(&mut reply, |_| {
            tries.set(tries.get() + 1);
            false
        });
        let told: BTreeSet<&str> = ids(&reply).into_iter().collect();
        assert_eq!((told.len(), told.contains("a_2000")), (2_000, true));
        assert!(tries.get() <= 3 * 2_000, "{}", tries.get());
    }

    #[test]
    fn a_refusal_names_an_id_of_a_call_and_none_of_a_request() {
        for said in [
            "messages.1.content.0.tool_use.id: string should match pattern",
            "invalid 'messages[2].tool_calls[0].id': string too long",
            "invalid 'input[2].call_id': string too long",
            "tool_call_id has more than 40 characters",
            "tool call id was functions.t:0 but must be a-z",
        ] {
            assert!(names_an_id(said), "{said}");
        }
        for said in [
            "maximum context length is 8192 tokens (request id: 2024)",
            "id",
            "the id of the model is too long",
            "tool_use.name: at most 64 characters",
        ] {
            assert!(!names_an_id(said), "{said}");
        }
    }

    #[test]
    fn an_id_in_a_form_is_taken_there_and_stays_what_it_is() {
        let long = "x".repeat(65);
        let ids = ["", " ", "call_1", "functions.t:0", "functions.t:1", "\u{fc} 1", "a/b", "123456789", &long, "x_"];
        for form in [IdForm::Plain(64), IdForm::Plain(40), IdForm::Plain(29), IdForm::Nine] {
            let taken: BTreeSet<String> = ids.iter().map(|id| form.of(id)).collect();
            assert_eq!(taken.len(), ids.len(), "no two are one");
            for id in &taken {
                assert!(form.takes(id) && form.of(id) == *id, "{form:?} {id}");
            }
        }
        assert_eq!(IdForm::Plain(64).of("call_1-A"), "call_1-A");
    }
}
