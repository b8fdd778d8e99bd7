//! From the typed events of a stream to one whole reply. Pure: it is fed the JSON of one event after the other.
//!
//! A reply exists only after an event that ends the response. How it ended is what the response says of itself, whatever the event is called:
//! servers in between have one event for every end. Events and item types that this build does not know are tolerated, since the API adds new
//! ones; an order of events that cannot be read is not. What was streamed counts, whole items before it: servers in between leave out of an item, or
//! of the end, what they have said in pieces.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use serde::Deserialize;
use serde_json::{Map, Value, json};
use ua_core::{Block, ModelTurn, StopReason, ToolUse, Usage, parse_strict};

use super::reject;
use crate::OPENAI;
use crate::chat::as_text::{Offered, WRITTEN, is_call_in_text, offered_in};
use crate::chat::names::OPENAI_LONGEST;
use crate::error::LlmError;
use crate::estimate::heard_so_far;
use crate::http::events::{Assemble, Fault, Progress, ended_with, is_end_mark, known_event, object_of};
use crate::http::lenient;
use crate::http::reject::kind_of;
use crate::http::stop_words::{self, CONTEXT_IS_FULL};
use crate::provider::Ending;
use crate::request::ModelRequest;
use crate::session::KnownPrefix;

/// The word for a response that is whole.
const COMPLETED: &str = "completed";
/// The word for one that came to nothing.
const FAILED: &str = "failed";
/// What a response says of itself before its end. One that says so in its last event was cut there by whoever made that event of it.
const NO_END: [&str; 2] = ["in_progress", "queued"];

/// Items by which a model asks its client for something that no job offers. Their server does what the others ask for, and says what came of it.
const ASKING: [&str; 6] =
    ["apply_patch_call", "computer_call", "custom_tool_call", "local_shell_call", "mcp_approval_request", "shell_call"];

/// The part of a reply that has arrived.
#[derive(Debug, Default)]
pub(crate) struct Assembler {
    is_started: bool,
    /// The tools as they are offered on this wire.
    offered: Offered,
    items: Items,
    /// The texts that were streamed, by the places of their items.
    said: BTreeMap<u64, Said>,
    /// What was streamed of a text of no item.
    unplaced: Said,
    text_bytes: usize,
    /// Bytes of arguments that have arrived.
    argument_bytes: usize,
    /// What the server has counted. It may do so before the end.
    counted: Option<Usage>,
    /// What the request continued from.
    known: Option<KnownPrefix>,
    /// Its status, and why it is not complete.
    ended: String,
    /// Whether that is the end of the context.
    context_is_full: bool,
}

/// What was streamed of one text.
#[derive(Debug, Default)]
struct Said {
    text: String,
    /// Bytes of it that belong to parts that are done.
    done: usize,
    /// The parts of which something came.
    parts: BTreeSet<u64>,
    refusal: String,
}

impl Said {
    fn is_empty(&self) -> bool {
        self.text.is_empty() && self.refusal.is_empty()
    }

    /// Appends it; true when it says that the model refuses.
    fn push_blocks(self, blocks: &mut Vec<Block>) -> bool {
        let is_refused = !self.refusal.is_empty();
        blocks.extend([self.text, self.refusal].into_iter().filter(|text| !text.is_empty()).map(Block::text));
        is_refused
    }
}

/// How many items back the announcement of one is looked for that says nothing else about itself.
const BACK: usize = 64;

/// The items that were announced or are whole, by their places. A reply may be nothing but items, so none of them is looked for from one end to
/// the other for each event.
#[derive(Debug, Default)]
struct Items {
    by_place: BTreeMap<u64, Partial>,
    /// Where each id stands first.
    places: HashMap<String, u64>,
    /// Those that are not whole.
    open: BTreeSet<u64>,
}

impl Items {
    /// Puts one to its place; what stood there.
    fn put(&mut self, place: u64, partial: Partial) -> Option<Partial> {
        if let Some(id) = partial.value["id"].as_str().filter(|id| !id.is_empty()) {
            let first = self.place_of(id).map_or(place, |known| known.min(place));
            self.places.insert(id.to_owned(), first);
        }
        if partial.is_done {
            self.open.remove(&place);
        } else {
            self.open.insert(place);
        }
        self.by_place.insert(place, partial)
    }

    /// Puts a whole one to its place. What it lacks of a call counts as it was said before.
    fn close(&mut self, place: u64, mut item: Value) {
        let before = self.by_place.remove(&place);
        let (announced, arguments) = before.map_or_else(Default::default, |before| (before.value, before.arguments));
        if is_call(&announced) && is_call(&item) {
            for field in ["id", "call_id", "name", "arguments"] {
                let told = &announced[field];
                if is_unsaid(&item[field]) && !is_unsaid(told) {
                    item[field] = told.clone();
                }
            }
        }
        self.put(place, Partial { value: item, arguments, is_done: true });
    }

    /// Whether another item is whole at a place already: some servers give all of them one.
    fn is_taken(&self, place: u64, item: &Value) -> bool {
        self.by_place.get(&place).is_some_and(|there| {
            let are_one = |field: &str| {
                let (id, its) = (item[field].as_str()?, there.value[field].as_str()?);
                (!id.is_empty() && !its.is_empty()).then(|| id == its)
            };
            let is_same = || are_one("call_id").or_else(|| are_one("id")).unwrap_or_else(|| there.value == *item);
            there.is_done && !is_same()
        })
    }

    /// The place of the item that has this id now.
    fn place_of(&self, id: &str) -> Option<u64> {
        let place = *self.places.get(id)?;
        (self.by_place.get(&place)?.value["id"] == id).then_some(place)
    }

    /// The newest that is not whole.
    fn newest_open(&self) -> Option<u64> {
        self.open.last().copied()
    }

    /// The place behind all.
    fn next_place(&self) -> u64 {
        self.by_place.keys().next_back().map_or(0, |last| last + 1)
    }

    /// Where an item stands that was announced: the newest that is not whole and has its id, or, where one of them has none, its kind.
    fn announced(&self, item: &Value) -> Option<u64> {
        let id = item["id"].as_str().filter(|id| !id.is_empty());
        let mut open = self.open.iter().rev().take(BACK).filter_map(|place| Some((place, self.by_place.get(place)?)));
        let near = open.find(|(_, partial)| match (id, partial.value["id"].as_str()) {
            (Some(id), Some(announced)) => id == announced,
            (Some(_) | None, _) => partial.value["type"] == item["type"],
        });
        let far = || id.and_then(|id| self.place_of(id)).filter(|place| self.open.contains(place));
        near.map(|(place, _)| *place).or_else(far)
    }
}

#[derive(Debug)]
struct Partial {
    /// The item as it stands; whole once it is done.
    value: Value,
    /// The arguments of a call, as far as they have arrived.
    arguments: String,
    is_done: bool,
}

#[derive(Deserialize)]
#[serde(tag = "type")]
enum Event {
    #[serde(rename = "response.created")]
    Created {
        #[serde(default, deserialize_with = "lenient::maybe")]
        response: Option<Head>,
    },
    #[serde(rename = "response.output_item.added")]
    ItemAdded {
        #[serde(default, deserialize_with = "lenient::count")]
        output_index: Option<u64>,
        item: Value,
    },
    #[serde(rename = "response.output_item.done")]
    ItemDone {
        #[serde(default, deserialize_with = "lenient::count")]
        output_index: Option<u64>,
        item: Value,
    },
    #[serde(rename = "response.output_text.delta")]
    TextDelta {
        #[serde(default, deserialize_with = "lenient::count")]
        output_index: Option<u64>,
        #[serde(default, deserialize_with = "lenient::text")]
        item_id: Option<String>,
        #[serde(default, deserialize_with = "lenient::count")]
        content_index: Option<u64>,
        #[serde(default)]
        delta: Option<String>,
    },
    #[serde(rename = "response.output_text.done")]
    TextDone {
        #[serde(default, deserialize_with = "lenient::count")]
        output_index: Option<u64>,
        #[serde(default, deserialize_with = "lenient::text")]
        item_id: Option<String>,
        #[serde(default, deserialize_with = "lenient::count")]
        content_index: Option<u64>,
        #[serde(default, deserialize_with = "lenient::text")]
        text: Option<String>,
    },
    #[serde(rename = "response.refusal.delta")]
    RefusalDelta {
        #[serde(default, deserialize_with = "lenient::count")]
        output_index: Option<u64>,
        #[serde(default, deserialize_with = "lenient::text")]
        item_id: Option<String>,
        #[serde(default)]
        delta: Option<String>,
    },
    #[serde(rename = "response.function_call_arguments.delta")]
    ArgumentsDelta {
        #[serde(default, deserialize_with = "lenient::count")]
        output_index: Option<u64>,
        #[serde(default, deserialize_with = "lenient::text")]
        item_id: Option<String>,
        #[serde(default)]
        delta: Option<String>,
    },
    #[serde(rename = "response.function_call_arguments.done")]
    ArgumentsDone {
        #[serde(default, deserialize_with = "lenient::count")]
        output_index: Option<u64>,
        #[serde(default, deserialize_with = "lenient::text")]
        item_id: Option<String>,
        #[serde(default)]
        arguments: Option<String>,
    },
    #[serde(rename = "response.completed")]
    Completed(Tail),
    #[serde(rename = "response.incomplete")]
    Incomplete(Tail),
    #[serde(rename = "response.cancelled")]
    Cancelled(Tail),
    #[serde(rename = "response.failed")]
    Failed(Tail),
    #[serde(rename = "error")]
    Error(Reported),
    #[serde(other)]
    Unknown,
}

/// What ends a response.
#[derive(Deserialize)]
struct Tail {
    #[serde(default, deserialize_with = "lenient::maybe")]
    response: Option<Head>,
}

/// A response, as it stands in an event.
#[derive(Default, Deserialize)]
struct Head {
    #[serde(default, deserialize_with = "lenient::text")]
    status: Option<String>,
    #[serde(default, deserialize_with = "lenient::text")]
    id: Option<String>,
    #[serde(default, deserialize_with = "lenient::text")]
    model: Option<String>,
    #[serde(default, deserialize_with = "lenient::values")]
    output: Option<Vec<Value>>,
    #[serde(default, deserialize_with = "lenient::maybe")]
    usage: Option<WireUsage>,
    #[serde(default, deserialize_with = "lenient::maybe")]
    error: Option<Reported>,
    #[serde(default, deserialize_with = "lenient::maybe")]
    incomplete_details: Option<Details>,
}

#[derive(Deserialize)]
struct Details {
    #[serde(default, deserialize_with = "lenient::text")]
    reason: Option<String>,
}

/// An error; at the top of an event, or one level deeper as older servers have it.
#[derive(Deserialize, Default)]
struct Reported {
    #[serde(default, deserialize_with = "lenient::text")]
    code: Option<String>,
    /// What it is called; of an event as a whole, that it is an error.
    #[serde(default, rename = "type", deserialize_with = "lenient::text")]
    kind: Option<String>,
    #[serde(default, deserialize_with = "lenient::text")]
    message: Option<String>,
    #[serde(default, deserialize_with = "lenient::maybe")]
    error: Option<Box<Reported>>,
}

#[derive(Deserialize)]
struct WireUsage {
    #[serde(default, deserialize_with = "lenient::count")]
    input_tokens: Option<u64>,
    #[serde(default, deserialize_with = "lenient::count")]
    output_tokens: Option<u64>,
    #[serde(default, deserialize_with = "lenient::maybe")]
    input_tokens_details: Option<InputDetails>,
}

#[derive(Deserialize)]
struct InputDetails {
    #[serde(default, deserialize_with = "lenient::count")]
    cached_tokens: Option<u64>,
}

impl Assemble for Assembler {
    fn feed(&mut self, data: &str) -> Result<Progress, Fault> {
        if is_end_mark(data) {
            return Ok(Progress::Nothing);
        }
        let event = object_of(data)?;
        if event.get("type").and_then(Value::as_str).is_none() {
            // A proxy's way to say that it failed; anything else without a type is nothing that is known.
            return match event.get("error").filter(|error| !error.is_null()) {
                Some(Value::String(words)) => Err(Fault::Reported { kind: String::new(), message: words.clone() }),
                Some(_) => Err(known_event::<Reported>(event)?.into_fault()),
                None => Ok(Progress::Nothing),
            };
        }
        match known_event(event)? {
            Event::Created { response } => self.start(response.unwrap_or_default()),
            Event::ItemAdded { output_index, item } => {
                self.open(output_index.unwrap_or_else(|| self.items.next_place()), item)
            }
            Event::ItemDone { output_index, item } => {
                // Some servers announce an item only when it is whole.
                let place = output_index.or_else(|| self.items.announced(&item));
                let place = place.filter(|place| !self.items.is_taken(*place, &item));
                self.items.close(place.unwrap_or_else(|| self.items.next_place()), item);
                Ok(Progress::Nothing)
            }
            Event::TextDelta { output_index, item_id, content_index, delta } => {
                let delta = delta.unwrap_or_default();
                self.text_bytes += delta.len();
                let said = self.said_at(output_index, item_id.as_deref());
                said.text.push_str(&delta);
                said.parts.insert(content_index.unwrap_or(0));
                Ok(Progress::Text(delta))
            }
            Event::TextDone { output_index, item_id, content_index, text } => {
                let text = text.unwrap_or_default();
                let said = self.said_at(output_index, item_id.as_deref());
                let is_new = said.parts.insert(content_index.unwrap_or(0));
                // Not every server says which part its pieces are of.
                let has_pieces = said.text.len() > said.done;
                if is_new && !has_pieces {
                    said.text.push_str(&text);
                }
                said.done = said.text.len();
                if !is_new || has_pieces || text.is_empty() {
                    return Ok(Progress::Nothing);
                }
                self.text_bytes += text.len();
                Ok(Progress::Text(text))
            }
            Event::RefusalDelta { output_index, item_id, delta } => {
                let delta = delta.unwrap_or_default();
                self.text_bytes += delta.len();
                self.said_at(output_index, item_id.as_deref()).refusal.push_str(&delta);
                Ok(Progress::Text(delta))
            }
            Event::ArgumentsDelta { output_index, item_id, delta } => {
                let delta = delta.unwrap_or_default();
                self.argument_bytes += delta.len();
                self.partial(output_index, item_id.as_deref())?.arguments.push_str(&delta);
                Ok(Progress::Nothing)
            }
            Event::ArgumentsDone { output_index, item_id, arguments } => {
                let partial = self.partial(output_index, item_id.as_deref())?;
                if let Some(arguments) = arguments {
                    partial.arguments = arguments;
                }
                Ok(Progress::Nothing)
            }
            Event::Completed(Tail { response }) => self.end_as(COMPLETED, response.unwrap_or_default()),
            Event::Incomplete(Tail { response }) => self.end_as("incomplete", response.unwrap_or_default()),
            Event::Cancelled(Tail { response }) => self.end_as("cancelled", response.unwrap_or_default()),
            Event::Failed(Tail { response }) => self.end_as(FAILED, response.unwrap_or_default()),
            Event::Error(error) => Err(error.into_fault()),
            Event::Unknown => Ok(Progress::Nothing),
        }
    }

    fn as_events(&self, reply: Map<String, Value>) -> Option<Vec<String>> {
        let is_error = reply.get("error").is_some_and(|error| !error.is_null());
        let is_reply = reply.get("output").is_some_and(Value::is_array);
        match reply.get("status").and_then(Value::as_str).filter(|_| is_reply) {
            Some(COMPLETED | "incomplete" | "cancelled") if !is_error => {}
            Some(FAILED) => {}
            Some(_) | None => return None,
        }
        // What it says of its end counts.
        Some(vec![json!({"type": "response.completed", "response": reply}).to_string()])
    }

    fn has_begun(&self) -> bool {
        self.is_started
    }

    fn counted(&self) -> Option<Usage> {
        heard_so_far(self.counted, (self.text_bytes + self.argument_bytes) as u64)
    }

    fn text_bytes(&self) -> usize {
        self.text_bytes
    }

    fn ending(&self) -> Ending {
        Ending { said: self.ended.clone(), context_is_full: self.context_is_full }
    }

    fn reported(&self, kind: &str, message: String, model: &str) -> LlmError {
        reject::by_code(kind, message, model, self.known.as_ref())
    }

    fn refused(&self, status: u16, body: &str, error: LlmError) -> LlmError {
        reject::refine(error, status, body, self.known.as_ref())
    }
}

impl Assembler {
    /// Reads the reply to `request`, which continued from `known`.
    pub(crate) fn new(request: &ModelRequest, known: Option<KnownPrefix>) -> Self {
        Self { known, offered: offered_in(request, OPENAI_LONGEST), ..Self::default() }
    }

    fn start(&mut self, response: Head) -> Result<Progress, Fault> {
        if std::mem::replace(&mut self.is_started, true) {
            return Err(Fault::Nonsense("a second response starts inside the first".to_owned()));
        }
        self.counted = response.usage.and_then(WireUsage::total);
        Ok(response.id.filter(|id| !id.is_empty()).map_or(Progress::Nothing, Progress::Session))
    }

    fn open(&mut self, index: u64, value: Value) -> Result<Progress, Fault> {
        if !self.is_started {
            return Err(Fault::Nonsense("an item starts before the response does".to_owned()));
        }
        let partial = Partial { value, arguments: String::new(), is_done: false };
        if self.items.put(index, partial).is_some() {
            return Err(Fault::Nonsense(format!("item {index} starts twice")));
        }
        Ok(Progress::Nothing)
    }

    /// What a piece of a text goes on with: one that does not say goes on with the newest item that is not whole.
    fn said_at(&mut self, index: Option<u64>, item_id: Option<&str>) -> &mut Said {
        let by_id = || item_id.and_then(|id| self.items.place_of(id));
        match index.or_else(by_id).or_else(|| self.items.newest_open()) {
            Some(place) => self.said.entry(place).or_default(),
            None => &mut self.unplaced,
        }
    }

    /// The call that a piece of arguments belongs to: one that does not say goes on with the newest.
    fn partial(&mut self, index: Option<u64>, item_id: Option<&str>) -> Result<&mut Partial, Fault> {
        let by_id = || item_id.and_then(|id| self.items.place_of(id));
        let index = index.or_else(by_id).or_else(|| self.items.newest_open()).unwrap_or(0);
        let partial = self
            .items
            .by_place
            .get_mut(&index)
            .ok_or_else(|| Fault::Nonsense(format!("item {index} never started")))?;
        if partial.is_done {
            return Err(Fault::Nonsense(format!("item {index} continues after its end")));
        }
        Ok(partial)
    }

    /// The end of the response: as the event is called, unless the response says of itself that it is another one, or none.
    fn end_as(&mut self, event: &str, mut response: Head) -> Result<Progress, Fault> {
        let status = response.status.take().unwrap_or_default();
        let has_error = response.error.as_ref().is_some_and(Reported::says_something);
        if event == FAILED || status == FAILED || has_error {
            self.counted = response.usage.and_then(WireUsage::total).or(self.counted);
            return Err(response.error.unwrap_or_default().into_fault());
        }
        let why =
            response.incomplete_details.as_ref().and_then(|details| details.reason.as_deref()).unwrap_or_default();
        if event == COMPLETED && NO_END.contains(&status.as_str()) && why.is_empty() {
            self.counted = response.usage.and_then(WireUsage::total).or(self.counted);
            return Err(Fault::Nonsense(format!("the response ends while it says that it is {status}")));
        }
        let says_more = match status.as_str() {
            "incomplete" | "cancelled" => true,
            // Whatever it is: that is not what a response says which is complete.
            "" | COMPLETED => false,
            _ => event == COMPLETED,
        };
        let word = if says_more { status.as_str() } else { event };
        self.finish(response, word).map(Progress::Whole)
    }

    /// The reply, which ended as `word` says.
    fn finish(&mut self, response: Head, word: &str) -> Result<ModelTurn, Fault> {
        let reason = response.incomplete_details.and_then(|details| details.reason);
        let reason = reason.filter(|reason| !reason.is_empty());
        // Whoever says why something is not complete says that it is not.
        let is_said_complete = word == COMPLETED && reason.is_none();
        let has_said = !self.unplaced.is_empty() || self.said.values().any(|said| !said.is_empty());
        // A server that makes its events of a whole reply has one of it alone, with everything in it: a list, be it an empty one.
        if !self.is_started && response.output.is_none() && !has_said {
            return Err(Fault::Nonsense("the response ends before it started".to_owned()));
        }
        let items = std::mem::take(&mut self.items).by_place;
        if is_said_complete && items.values().any(|item| !item.is_done) {
            return Err(Fault::Nonsense("the response is completed inside an item".to_owned()));
        }
        let mut blocks = Vec::new();
        let (mut is_refused, mut is_cut) = (false, false);
        let told = response.output.unwrap_or_default();
        let is_streamed = !items.is_empty();
        let items: Vec<(u64, Value, String)> = if is_streamed {
            items.into_iter().map(|(place, item)| (place, item.value, item.arguments)).collect()
        } else {
            // A server that sends no events of items has them all at the end.
            (0..).zip(&told).map(|(place, item)| (place, item.clone(), String::new())).collect()
        };
        let answers = Answers::among(items.iter().map(|(_, item, _)| item));
        let unanswered = items.iter().map(|(_, item, _)| item).find(|item| answers.lack(item)).map(kind_in);
        let unanswered = unanswered.map(str::to_owned);
        let mut said = std::mem::take(&mut self.said);
        for (place, item, arguments) in items {
            is_cut |= is_incomplete(&item);
            let (is_message, before) = (kind_in(&item) == MESSAGE, blocks.len());
            is_refused |= push_blocks(item, &arguments, &mut blocks);
            if is_message
                && blocks.len() == before
                && let Some(said) = said.remove(&place)
            {
                is_refused |= said.push_blocks(&mut blocks);
            }
        }
        if !blocks.iter().any(|block| matches!(block, Block::Text { .. })) {
            // No item has a text: it was streamed beside them, or under the place of another one.
            let mut streamed = Vec::new();
            for said in said.into_values().chain([std::mem::take(&mut self.unplaced)]) {
                is_refused |= said.push_blocks(&mut streamed);
            }
            let first_call = blocks.iter().position(|block| matches!(block, Block::ToolUse(_))).unwrap_or(blocks.len());
            blocks.splice(first_call..first_call, streamed);
        }
        let is_completed = is_said_complete && !is_cut;
        if is_completed && is_streamed && !are_the_same_calls(&blocks, &told) {
            return Err(Fault::Nonsense("its end names other calls than its events did".to_owned()));
        }
        let asks = blocks.iter().any(|block| matches!(block, Block::ToolUse(_)));
        let word = if is_completed || word != COMPLETED { word } else { "incomplete" };
        self.ended = ended_with(word, &reason.as_deref().unwrap_or_default().into());
        if let Some(kind) = unanswered.as_deref().filter(|_| is_completed) {
            self.ended = format!("{}; it asks for `{kind}`, which is not offered", self.ended);
        }
        let stop_reason = match reason.as_deref() {
            _ if is_completed && is_refused => StopReason::Refusal,
            _ if is_completed && asks => StopReason::ToolUse,
            // It waits for an answer that nobody gives.
            _ if is_completed && unanswered.is_some() => StopReason::Other,
            _ if is_completed => StopReason::EndTurn,
            Some(reason) => match stop_words::stop_reason(reason) {
                known @ (StopReason::Refusal | StopReason::MaxTokens) => known,
                // Why something is not complete is no good end of it.
                StopReason::EndTurn
                | StopReason::ToolUse
                | StopReason::StopSequence
                | StopReason::PauseTurn
                | StopReason::Other => StopReason::Other,
            },
            // That it was the limit of its length nobody has said, or that it has ended at all.
            None => StopReason::Other,
        };
        self.context_is_full = reason.as_deref() == Some(CONTEXT_IS_FULL);
        let usage = response.usage.and_then(WireUsage::total);
        let stop_reason = if is_call_in_text(stop_reason, &blocks, &self.offered) {
            self.ended = format!("{}; {WRITTEN}", self.ended);
            StopReason::ToolUse
        } else {
            stop_reason
        };
        Ok(ModelTurn {
            blocks,
            stop_reason,
            usage,
            model: response.model.unwrap_or_default(),
            response_id: response.id,
        })
    }
}

impl WireUsage {
    /// `None` when the provider counted nothing.
    fn total(self) -> Option<Usage> {
        if self.input_tokens.is_none() && self.output_tokens.is_none() {
            return None;
        }
        let input = self.input_tokens.unwrap_or(0);
        let cached = self.input_tokens_details.and_then(|details| details.cached_tokens).unwrap_or(0).min(input);
        Some(Usage {
            input_tokens: input - cached,
            // Tokens of thoughts are among them.
            output_tokens: self.output_tokens.unwrap_or(0),
            cache_read_tokens: cached,
            cache_write_tokens: 0,
        })
    }
}

impl Reported {
    /// Some servers have an empty error where there is none.
    fn says_something(&self) -> bool {
        self.code.as_deref().is_some_and(|code| !matches!(code, "" | "0"))
            || self.message.as_deref().is_some_and(|message| !message.is_empty())
            || self.error.as_ref().is_some_and(|inner| inner.says_something())
    }

    fn into_fault(self) -> Fault {
        let inner = self.error.map(|inner| *inner).unwrap_or_default();
        let message = self.message.or(inner.message).unwrap_or_else(|| "no explanation was given".to_owned());
        let (code, kind) = (self.code.or(inner.code), inner.kind.or(self.kind));
        Fault::Reported { kind: kind_of(&json!({"code": code, "type": kind})), message }
    }
}

/// The type of an item that says something.
const MESSAGE: &str = "message";

/// The type of an item. What has a content and no type says something, as servers have it that know the API's easy messages.
fn kind_in(item: &Value) -> &str {
    let untyped = if item["content"].is_null() { "" } else { MESSAGE };
    item["type"].as_str().unwrap_or(untyped)
}

fn is_call(item: &Value) -> bool {
    item["type"] == "function_call"
}

/// Whether a field says nothing.
fn is_unsaid(value: &Value) -> bool {
    value.as_str().map_or(value.is_null(), |text| text.trim().is_empty())
}

/// The answers among the items of a reply to what others of them ask for.
pub(super) struct Answers(HashSet<(String, String)>);

impl Answers {
    /// Those among these items.
    pub(super) fn among<'a>(items: impl Iterator<Item = &'a Value>) -> Self {
        let answer_to =
            |item: &Value| Some((kind_in(item).strip_suffix("_output")?.to_owned(), item["call_id"].to_string()));
        Self(items.filter_map(answer_to).collect())
    }

    /// Whether an item asks for something, and no answer to it is here.
    pub(super) fn lack(&self, item: &Value) -> bool {
        let kind = kind_in(item);
        ASKING.contains(&kind) && !self.0.contains(&(kind.to_owned(), item["call_id"].to_string()))
    }
}

/// Whether the calls of a reply are those that its end names, in whatever order. An end that names none, or none's arguments, says nothing of them.
fn are_the_same_calls(blocks: &[Block], told: &[Value]) -> bool {
    let mut of_end = Vec::new();
    for item in told.iter().filter(|item| item["type"] == "function_call") {
        push_blocks(item.clone(), "", &mut of_end);
    }
    // By name, and under it by what they ask for, with how often.
    let mut streamed: HashMap<&str, HashMap<String, usize>> = HashMap::new();
    for call in calls_in(blocks) {
        *streamed.entry(&call.name).or_default().entry(call.input.to_string()).or_default() += 1;
    }
    if calls_in(&of_end).next().is_none() {
        return true;
    }
    let is_bare = |call: &&ToolUse| call.input.as_object().is_some_and(Map::is_empty);
    let (bare, whole): (Vec<_>, Vec<_>) = calls_in(&of_end).partition(is_bare);
    let is_streamed = |call: &ToolUse, of_name: Option<&mut HashMap<String, usize>>, is_bare: bool| {
        let Some(of_name) = of_name else { return false };
        let asked = if is_bare { of_name.keys().next().cloned() } else { Some(call.input.to_string()) };
        let Some(asked) = asked else { return false };
        match of_name.get_mut(&asked) {
            Some(1) => of_name.remove(&asked).is_some(),
            Some(count) => {
                *count -= 1;
                true
            }
            None => false,
        }
    };
    let whole_are = whole.into_iter().all(|call| is_streamed(call, streamed.get_mut(call.name.as_str()), false));
    let all_are =
        whole_are && bare.into_iter().all(|call| is_streamed(call, streamed.get_mut(call.name.as_str()), true));
    all_are && streamed.values().all(HashMap::is_empty)
}

fn calls_in(blocks: &[Block]) -> impl Iterator<Item = &ToolUse> {
    blocks.iter().filter_map(|block| match block {
        Block::ToolUse(call) => Some(call),
        Block::Text { .. } | Block::ToolResult { .. } | Block::Opaque { .. } => None,
    })
}

/// Whether a piece of text or a call says of itself that something of it is missing.
fn is_incomplete(item: &Value) -> bool {
    matches!(item["type"].as_str(), Some("message" | "function_call")) && item["status"] == "incomplete"
}

/// Appends what an item says; true when it says that the model refuses.
fn push_blocks(mut item: Value, streamed_arguments: &str, blocks: &mut Vec<Block>) -> bool {
    match kind_in(&item) {
        MESSAGE => {
            let parts = match item["content"].take() {
                Value::Array(parts) => parts,
                // Some servers have no parts.
                text @ Value::String(_) => vec![json!({ "text": text })],
                Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => Vec::new(),
            };
            let mut is_refused = false;
            for part in &parts {
                let refusal = part["refusal"].as_str();
                is_refused |= refusal.is_some();
                if let Some(text) = part["text"].as_str().or(refusal).filter(|text| !text.is_empty()) {
                    blocks.push(Block::text(text));
                }
            }
            is_refused
        }
        "function_call" => {
            let text = |field: &str| item[field].as_str().unwrap_or_default().to_owned();
            let arguments = match &item["arguments"] {
                // Some servers give the object itself, where the API has its text.
                whole @ (Value::Object(_) | Value::Array(_)) => whole.to_string(),
                Value::String(whole) if !whole.trim().is_empty() => whole.clone(),
                Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => streamed_arguments.to_owned(),
            };
            let id = Some(text("call_id")).filter(|id| !id.is_empty()).unwrap_or_else(|| text("id"));
            blocks.push(Block::ToolUse(ToolUse { id, name: text("name"), input: read_arguments(arguments) }));
            false
        }
        // What nobody can name is nothing that goes back: the API takes no item without a type.
        "" => false,
        _ => {
            blocks.push(Block::Opaque { provider: OPENAI.to_owned(), value: item.take() });
            false
        }
    }
}

/// The arguments, parsed; their text when they are not JSON of one meaning, so that the dispatcher can refuse them.
fn read_arguments(text: String) -> Value {
    if text.trim().is_empty() {
        return Value::Object(serde_json::Map::new());
    }
    parse_strict(&text).unwrap_or(Value::String(text))
}

#[cfg(test)]
#[expect(clippy::needless_pass_by_value, reason = "items are written where they are used")]
mod tests {
    use super::*;

    fn created() -> Value {
        json!({"type": "response.created", "response": {"id": "resp_1", "status": "in_progress", "model": "gpt-x"}})
    }

    fn done(index: u64, item: Value) -> Value {
        json!({"type": "response.output_item.done", "output_index": index, "item": item})
    }

    fn added(index: u64, item: Value) -> Value {
        json!({"type": "response.output_item.added", "output_index": index, "item": item})
    }

    fn completed(usage: Value) -> Value {
        json!({"type": "response.completed", "response": {"id": "resp_1", "model": "gpt-x", "usage": usage}})
    }

    fn feed_all(events: &[Value]) -> Result<Progress, Fault> {
        let mut assembler = Assembler::default();
        let mut last = Progress::Nothing;
        for event in events {
            last = assembler.feed(&event.to_string())?;
        }
        Ok(last)
    }

    fn whole(events: &[Value]) -> ModelTurn {
        match feed_all(events) {
            Ok(Progress::Whole(turn)) => turn,
            other => panic!("no whole reply: {other:?}"),
        }
    }

    /// A reply may be nothing but items: none is looked for from one end to the other for each event, and their end is compared with them once.
    #[test]
    fn s23_a_reply_of_nothing_but_items_is_read_in_one_pass() {
        const MANY: u64 = 30_000;
        let call = |number: u64, arguments: &str| {
            let (id, call) = (format!("fc_{number}"), format!("c_{number}"));
            json!({"type": "function_call", "id": id, "call_id": call, "name": "t", "arguments": arguments})
        };
        let place = |event: &str, item: Value| json!({"type": event, "item": item});
        let mut events = vec![created()];
        events.extend((0..MANY).map(|number| place("response.output_item.added", call(number, ""))));
        events.extend((0..MANY).map(|number| {
            json!({"type": "response.function_call_arguments.delta", "item_id": format!("fc_{number}"), "delta": "{"})
        }));
        let whole_of = |number: u64| call(number, &format!("{{\"n\":{number}}}"));
        events.extend((0..MANY).map(|number| place("response.output_item.done", whole_of(number))));
        let told: Vec<Value> = (0..MANY).rev().map(whole_of).collect();
        events.push(
            json!({"type": "response.completed", "response": {"id": "resp_1", "model": "gpt-x", "output": told}}),
        );
        let turn = whole(&events);
        assert_eq!((turn.blocks.len() as u64, turn.stop_reason), (MANY, StopReason::ToolUse));
    }

    #[test]
    fn thoughts_text_and_parallel_calls_are_read_whole() {
        let thought = json!({"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAA=="});
        let message =
            json!({"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Two."}]});
        let call = |id: &str, arguments: &str| json!({"type": "function_call", "id": "fc", "call_id": id, "name": "t", "arguments": arguments});
        let turn = whole(&[
            created(),
            json!({"type": "response.in_progress", "response": {}}),
            added(0, json!({"type": "reasoning", "id": "rs_1", "summary": []})),
            done(0, thought.clone()),
            added(1, json!({"type": "message", "content": []})),
            json!({"type": "response.output_text.delta", "output_index": 1, "delta": "Two."}),
            done(1, message),
            added(2, call("a", "")),
            json!({"type": "response.function_call_arguments.delta", "output_index": 2, "delta": "{\"x\":"}),
            json!({"type": "response.function_call_arguments.delta", "output_index": 2, "delta": "1}"}),
            json!({"type": "response.function_call_arguments.done", "output_index": 2, "arguments": "{\"x\":1}"}),
            done(2, call("a", "{\"x\":1}")),
            done(3, call("b", "")),
            completed(json!({"input_tokens": 10, "input_tokens_details": {"cached_tokens": 4}, "output_tokens": 7,
                             "output_tokens_details": {"reasoning_tokens": 5}, "total_tokens": 17})),
        ]);
        let tool_use = |id: &str, input| Block::ToolUse(ToolUse { id: id.into(), name: "t".into(), input });
        let expected = ModelTurn {
            blocks: vec![
                Block::Opaque { provider: "openai".into(), value: thought },
                Block::text("Two."),
                tool_use("a", json!({"x": 1})),
                tool_use("b", json!({})),
            ],
            stop_reason: StopReason::ToolUse,
            usage: Some(Usage { input_tokens: 6, output_tokens: 7, cache_read_tokens: 4, cache_write_tokens: 0 }),
            model: "gpt-x".into(),
            response_id: Some("resp_1".into()),
        };
        assert_eq!(turn, expected);
    }

    #[test]
    fn an_end_with_everything_in_it_needs_no_beginning() {
        let call = json!({"type": "function_call", "call_id": "a", "name": "t", "arguments": "{\"x\":1}"});
        let response = json!({"id": "resp_1", "model": "gpt-x", "output": [call], "usage": {"input_tokens": 3, "output_tokens": 2}});
        let turn = whole(&[json!({"type": "response.completed", "response": response})]);
        assert_eq!((turn.stop_reason, turn.response_id.as_deref()), (StopReason::ToolUse, Some("resp_1")));
        assert_eq!(turn.tool_uses().next().unwrap().input, json!({"x": 1}));
        let cut = json!({"type": "response.incomplete", "response": response});
        assert_eq!(whole(&[cut]).stop_reason, StopReason::Other, "what is not complete asks for nothing");
    }

    #[test]
    fn the_end_says_why_it_ended() {
        let refusal = json!({"type": "message", "content": [{"type": "refusal", "refusal": "No."}]});
        let turn = whole(&[created(), done(0, refusal), completed(Value::Null)]);
        assert_eq!((turn.stop_reason, turn.text().as_str(), turn.usage), (StopReason::Refusal, "No.", None));
        let cut = |reason: &str| {
            let response = json!({"id": "resp_1", "incomplete_details": {"reason": reason}});
            whole(&[created(), json!({"type": "response.incomplete", "response": response})]).stop_reason
        };
        assert_eq!(cut("max_output_tokens"), StopReason::MaxTokens);
        assert_eq!(cut("content_filter"), StopReason::Refusal);
        assert_eq!(cut("safety"), StopReason::Refusal);
        assert_eq!(cut("guardrail_intervened"), StopReason::Refusal);
        assert_eq!(cut("model_context_window_exceeded"), StopReason::MaxTokens);
        assert_eq!(cut("stop"), StopReason::Other, "what is not complete has no good end");
        assert_eq!(cut("moon"), StopReason::Other);
        let unsaid = json!({"type": "response.incomplete", "response": {"id": "resp_1"}});
        assert_eq!(whole(&[created(), unsaid]).stop_reason, StopReason::Other);
    }

    #[test]
    fn an_end_that_names_other_calls_than_its_events_is_garbled() {
        let call = |id: &str, name: &str, arguments: &str| json!({"type": "function_call", "id": "fc", "call_id": id, "name": name, "arguments": arguments});
        let text = json!({"type": "message", "content": [{"type": "output_text", "text": "Two."}]});
        let (one, two) = (call("a", "t", "{\"x\":1,\"y\":2}"), call("b", "t", "{\"x\":2}"));
        let ended = |streamed: &[&Value], told: &[&Value]| {
            let pieces = streamed.iter().enumerate().map(|(index, item)| done(index as u64, (*item).clone()));
            let end = json!({"type": "response.completed", "response": {"id": "resp_1", "output": told}});
            feed_all(&std::iter::once(created()).chain(pieces).chain([end]).collect::<Vec<_>>())
        };
        for told in [
            vec![&one, &two],
            vec![&two, &one],
            vec![],
            vec![&text],
            // The same in other words, under other ids, or without its arguments.
            vec![&call("c", "t", "{ \"y\": 2, \"x\": 1 }"), &call("d", "t", "")],
        ] {
            let Ok(Progress::Whole(turn)) = ended(&[&one, &two], &told) else { panic!("{told:?}") };
            assert_eq!(turn.tool_uses().count(), 2);
        }
        for (streamed, told) in [
            (vec![&one], call("a", "t", "{\"x\":9,\"y\":2}")),
            (vec![&one], call("a", "u", "{\"x\":1,\"y\":2}")),
            (vec![&one, &two], one.clone()),
            (vec![&text], one.clone()),
        ] {
            assert!(matches!(ended(&streamed, &[&told]), Err(Fault::Nonsense(_))), "{told}");
        }
        let both = ended(&[&one, &one], &[&one, &two]);
        assert!(matches!(both, Err(Fault::Nonsense(_))), "one of them was asked for twice in the events alone");
    }

    #[test]
    fn what_asks_for_something_that_nobody_offers_is_no_last_word() {
        let text = json!({"type": "message", "content": [{"type": "output_text", "text": "Done."}]});
        let call = json!({"type": "function_call", "call_id": "a", "name": "t", "arguments": "{}"});
        for kind in ASKING {
            let asks = json!({"type": kind, "id": "i", "call_id": "c", "status": "completed"});
            for items in [vec![&asks, &text], vec![&text, &asks]] {
                let pieces = items.iter().enumerate().map(|(index, item)| done(index as u64, (*item).clone()));
                let mut assembler = Assembler::default();
                let mut last = Progress::Nothing;
                for event in std::iter::once(created()).chain(pieces).chain([completed(Value::Null)]) {
                    last = assembler.feed(&event.to_string()).unwrap();
                }
                let Progress::Whole(turn) = last else { panic!("{last:?}") };
                assert_eq!(turn.stop_reason, StopReason::Other, "{kind}");
                assert!(assembler.ending().said.contains(kind), "{}", assembler.ending().said);
            }
            let answer = json!({"type": format!("{kind}_output"), "call_id": "c", "output": "x"});
            let answered =
                [created(), done(0, asks.clone()), done(1, answer), done(2, text.clone()), completed(Value::Null)];
            assert_eq!(whole(&answered).stop_reason, StopReason::EndTurn, "{kind}: its server has done it");
            let beside = [created(), done(0, asks), done(1, call.clone()), completed(Value::Null)];
            assert_eq!(whole(&beside).stop_reason, StopReason::ToolUse, "{kind}: a call is one all the same");
        }
        let hosted = json!({"type": "web_search_call", "id": "w", "status": "completed"});
        let searched = [created(), done(0, hosted), done(1, text), completed(Value::Null)];
        assert_eq!(whole(&searched).stop_reason, StopReason::EndTurn);
    }

    #[test]
    fn a_cut_call_keeps_what_arrived_of_its_arguments() {
        let call = json!({"type": "function_call", "call_id": "a", "name": "t", "arguments": ""});
        let turn = whole(&[
            created(),
            added(0, call),
            json!({"type": "response.function_call_arguments.delta", "output_index": 0, "delta": "{\"x\":"}),
            json!({"type": "response.incomplete", "response": {"incomplete_details": {"reason": "max_output_tokens"}}}),
        ]);
        assert_eq!(turn.stop_reason, StopReason::MaxTokens);
        assert_eq!(turn.tool_uses().next().unwrap().input, json!("{\"x\":"));
    }

    fn text_delta(place: &Value, delta: &str) -> Value {
        json!({"type": "response.output_text.delta", "output_index": place, "delta": delta})
    }

    /// What its server streamed of a text was said, whatever it then leaves out: the item, the text in it, or the list of all.
    #[test]
    fn a_text_that_was_streamed_counts_where_the_end_lacks_it() {
        let empty = json!({"type": "message", "id": "m1", "role": "assistant", "status": "completed", "content": []});
        let blank = json!({"type": "message", "id": "m1", "content": [{"type": "output_text", "text": ""}]});
        let null = json!({"type": "message", "id": "m1", "content": null});
        let thought = json!({"type": "reasoning", "id": "rs_1", "summary": []});
        let call = json!({"type": "function_call", "id": "fc", "call_id": "a", "name": "t", "arguments": "{}"});
        let ends = [json!([]), Value::Null, json!([empty]), json!([null])];
        let ends = ends.iter().map(|output| {
            json!({"type": "response.completed", "response": {"id": "resp_1", "status": "completed", "output": output}})
        });
        let ends: Vec<Value> = ends.chain([completed(Value::Null)]).collect();
        for (place, item) in [(json!(0), &empty), (json!(0), &blank), (Value::Null, &null), (json!(7), &empty)] {
            let said = [text_delta(&place, "Two"), text_delta(&place, ".")];
            let opened = [created(), added(0, json!({"type": "message", "id": "m1", "content": []}))];
            for end in &ends {
                // With the item, without one, without a beginning.
                let end = std::slice::from_ref(end);
                let with_item = [&opened[..], &said, &[done(0, item.clone())], end].concat();
                let without_item = [&opened[..1], &said, end].concat();
                let without_beginning = [&said[..], end].concat();
                for events in [with_item, without_item, without_beginning] {
                    let turn = whole(&events);
                    assert_eq!(
                        (turn.blocks, turn.stop_reason),
                        (vec![Block::text("Two.")], StopReason::EndTurn),
                        "{events:?}"
                    );
                }
            }
            // Behind a thought, and in front of a call.
            let among = [
                created(),
                done(0, thought.clone()),
                text_delta(&json!(1), "Two."),
                done(1, item.clone()),
                done(2, call.clone()),
                completed(Value::Null),
            ];
            let turn = whole(&among);
            assert!(
                matches!(turn.blocks.as_slice(), [Block::Opaque { .. }, Block::Text { text }, Block::ToolUse(_)] if text == "Two.")
            );
            assert_eq!(turn.stop_reason, StopReason::ToolUse);
        }
        let refused = json!({"type": "response.refusal.delta", "output_index": 0, "delta": "No."});
        let turn = whole(&[created(), refused, done(0, empty.clone()), completed(Value::Null)]);
        assert_eq!((turn.text().as_str(), turn.stop_reason), ("No.", StopReason::Refusal));
        // In no pieces; and what was cut keeps what had come.
        let at_once = json!({"type": "response.output_text.done", "output_index": 0, "text": "Two."});
        assert_eq!(whole(&[created(), at_once.clone(), done(0, empty), completed(Value::Null)]).text(), "Two.");
        let cut =
            json!({"type": "response.incomplete", "response": {"incomplete_details": {"reason": "max_output_tokens"}}});
        let open = added(0, json!({"type": "message", "id": "m1", "content": []}));
        let turn = whole(&[created(), open, text_delta(&json!(0), "Tw"), cut]);
        assert_eq!((turn.text().as_str(), turn.stop_reason), ("Tw", StopReason::MaxTokens));
        // What the item says is said once.
        let item = json!({"type": "message", "content": [{"type": "output_text", "text": "Two."}]});
        let twice = [created(), text_delta(&json!(0), "Two."), at_once, done(0, item), completed(Value::Null)];
        assert_eq!(whole(&twice).blocks, [Block::text("Two.")]);
        // Parts of one item, each in pieces or in none; what is told twice is said once.
        let part = |index: u64, text: &str| json!({"type": "response.output_text.done", "output_index": 0, "content_index": index, "text": text});
        let pieces = [text_delta(&json!(0), "O"), text_delta(&json!(0), "ne. ")];
        let whole_parts = [part(0, "One. "), part(1, "Two."), part(1, "Two.")];
        let end = [done(0, json!({"type": "message", "content": []})), completed(Value::Null)];
        for pieces in [&pieces[..], &[]] {
            assert_eq!(whole(&[&[created()][..], pieces, &whole_parts, &end].concat()).text(), "One. Two.");
        }
    }

    #[test]
    fn a_message_without_parts_is_its_text_and_what_has_no_type_is_nothing() {
        let plain = json!({"type": "message", "content": "Two."});
        let untyped = json!({"role": "assistant", "content": [{"type": "output_text", "text": "Two."}]});
        for item in [plain, untyped] {
            let turn = whole(&[created(), done(0, item), done(1, json!({"id": "x"})), completed(Value::Null)]);
            assert_eq!((turn.blocks, turn.stop_reason), (vec![Block::text("Two.")], StopReason::EndTurn));
        }
    }

    /// What a whole item leaves out of its call was said before; arguments may be the object itself.
    #[test]
    fn a_call_is_what_was_said_of_it_in_whole() {
        let call = |id: &str, name: &str, arguments: Value| json!({"type": "function_call", "id": "fc", "call_id": id, "name": name, "arguments": arguments});
        let delta = json!({"type": "response.function_call_arguments.delta", "output_index": 0, "delta": "{\"x\":1}"});
        let asked = |events: &[Value]| {
            let turn = whole(events);
            assert_eq!(turn.stop_reason, StopReason::ToolUse);
            let uses = turn.tool_uses().map(|call| (call.id.clone(), call.name.clone(), call.input.clone()));
            uses.collect::<Vec<_>>()
        };
        let wanted = [("a".to_owned(), "t".to_owned(), json!({"x": 1}))];
        let nothing = [json!(""), json!(" "), Value::Null];
        for arguments in &nothing {
            for last in [call("", "", arguments.clone()), call("a", "t", arguments.clone())] {
                let opened = added(0, call("a", "t", json!("")));
                let events = [created(), opened, delta.clone(), done(0, last), completed(Value::Null)];
                assert_eq!(asked(&events), wanted, "{events:?}");
            }
            // Nothing was said of them at all: there are none.
            let bare = asked(&[created(), done(0, call("a", "t", arguments.clone())), completed(Value::Null)]);
            assert_eq!(bare[0].2, json!({}));
        }
        let object = call("a", "t", json!({"x": 1}));
        assert_eq!(asked(&[created(), done(0, object), completed(Value::Null)]), wanted);
        // Every item has the place 0.
        let (one, two) = (call("a", "t", json!("{\"x\":1}")), call("b", "t", json!("{\"x\":2}")));
        let both = [created(), done(0, one.clone()), done(0, two), done(0, one), completed(Value::Null)];
        let ids: Vec<String> = asked(&both).into_iter().map(|(id, _, _)| id).collect();
        assert_eq!(ids, ["a", "b"]);
    }

    #[test]
    fn failures_are_reported_with_their_code_wherever_they_stand() {
        let failed =
            json!({"type": "response.failed", "response": {"error": {"code": "server_error", "message": "oops"}}});
        let flat = json!({"type": "error", "code": "server_error", "message": "oops", "param": null});
        let nested = json!({"type": "error", "error": {"type": "x", "code": "server_error", "message": "oops"}});
        for event in [failed, flat, nested] {
            let expected = Fault::Reported { kind: "server_error".into(), message: "oops".into() };
            assert_eq!(feed_all(&[created(), event]), Err(expected));
        }
    }

    #[test]
    fn an_order_that_cannot_be_read_is_refused_and_news_are_not() {
        let item = json!({"type": "message", "content": []});
        for events in [
            vec![added(0, item.clone())],
            vec![created(), created()],
            vec![created(), added(0, item.clone()), added(0, item.clone())],
            vec![created(), added(0, item.clone()), completed(Value::Null)],
            vec![completed(Value::Null)],
            vec![created(), json!({"type": "response.function_call_arguments.delta", "output_index": 4, "delta": ""})],
            vec![json!("no event")],
        ] {
            assert!(matches!(feed_all(&events), Err(Fault::Nonsense(_))), "{events:?}");
        }
        assert_eq!(feed_all(&[created(), json!({"type": "response.something.new"})]), Ok(Progress::Nothing));
    }
}
