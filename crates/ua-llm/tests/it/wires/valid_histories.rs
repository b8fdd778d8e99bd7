//! Whatever happened to a run, each wire makes a request of its history that the provider takes.
//!
//! Histories as a runner leaves them: turns with several tool uses, each of which has one result (a receipt, a refusal, an unknown
//! outcome, a reply that was cut), notes of resumes and forks, guidance, empty replies, garbled arguments, thoughts of this and of
//! other providers, and middles that were left out. The servers refuse what the real ones refuse.

use super::support::{KEY, known_of, provider, script, server};
use proptest::prelude::*;
use secrecy::SecretString;
use serde_json::{Value, json};
use tokio::runtime::Runtime;
use ua_checkpoint::{MeasuredHistory, Window, estimate_tokens, shorten_newest};
use ua_core::{Block, Env, Message, Origin, Role, ToolUse};
use ua_llm::{
    ChatConfig, ChatProvider, KeptReply, LlmProvider, ModelRequest, OpenAiConfig, OpenAiProvider, Silent, ToolOffer,
    check_history,
};
use ua_testkit::ModelServer;

/// One turn of a run, and what came after it.
#[derive(Debug, Clone)]
struct Turn {
    text: Option<String>,
    thought: u8,
    calls: Vec<Call>,
    /// In which order the results stand, as an offset.
    rotation: usize,
    notes: Vec<(Origin, String)>,
}

#[derive(Debug, Clone)]
struct Call {
    input: Value,
    result: String,
    is_error: bool,
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof![Just(String::new()), Just(" \n".to_owned()), "[a-zé<{ ]{1,40}", Just("x".repeat(900))]
}

fn call() -> impl Strategy<Value = Call> {
    let input = prop_oneof![
        Just(json!({})),
        "[a-z ]{0,12}".prop_map(|text| json!({"path": text, "n": 9_007_199_254_740_993_u64})),
        Just(json!("{\"path\": \"cut")),
        Just(json!([1, 2])),
        (1..900_usize).prop_map(|n| json!({"body": "two\n\"lines\"".repeat(n), "numbers": vec![n; n % 400]})),
        Just(Value::Null),
    ];
    let result = prop_oneof![
        text(),
        Just("Not run: the reply was cut.".to_owned()),
        Just("The outcome is unknown: it may have happened. Do not repeat it.".to_owned()),
        Just("Error: it failed.".to_owned()),
    ];
    (input, result, any::<bool>()).prop_map(|(input, result, is_error)| Call { input, result, is_error })
}

fn turn() -> impl Strategy<Value = Turn> {
    let origin = prop_oneof![Just(Origin::Resume), Just(Origin::Guidance), Just(Origin::Phase)];
    let notes = prop::collection::vec((origin, text()), 0..3);
    let calls = prop::collection::vec(call(), 0..4);
    (prop::option::of(text()), 0..6_u8, calls, 0..4_usize, notes)
        .prop_map(|(text, thought, calls, rotation, notes)| Turn { text, thought, calls, rotation, notes })
}

fn thought(kind: u8, turn: usize) -> Option<Block> {
    let value = match kind {
        0 => json!({"type": "thinking", "thinking": format!("of {turn}"), "signature": "s=="}),
        1 => {
            json!({"type": "reasoning", "id": format!("rs_{turn}"), "summary": [], "encrypted_content": "{\"type\":\"thinking\",\"thinking\":\"t\",\"signature\":\"s\"}"})
        }
        2 => json!({"type": "reasoning", "id": format!("rs_{turn}"), "summary": []}),
        3 => json!({"type": "something", "of": "another"}),
        // It asks for what no job offers.
        4 => json!({"type": "custom_tool_call", "id": format!("ctc_{turn}"), "call_id": "c", "name": "n", "input": ""}),
        _ => return None,
    };
    let provider = ["anthropic", "openai", "openai", "elsewhere", "openai"][usize::from(kind)];
    Some(Block::Opaque { provider: provider.to_owned(), value })
}

/// The history that these turns make.
fn history(turns: &[Turn]) -> Vec<Message> {
    let mut messages = vec![Message::user(Origin::Prompt, "Do it.")];
    for (index, turn) in turns.iter().enumerate() {
        let id = |n: usize| format!("call_{index}_{n}");
        let mut blocks: Vec<Block> = thought(turn.thought, index).into_iter().collect();
        blocks.extend(turn.text.clone().map(Block::text));
        let uses = turn.calls.iter().enumerate();
        blocks.extend(uses.map(|(n, call)| {
            Block::ToolUse(ToolUse { id: id(n), name: "mcp__ua__read_file".into(), input: call.input.clone() })
        }));
        messages.push(Message { role: Role::Assistant, origin: Origin::Model, blocks: blocks.into() });
        let mut results: Vec<Block> = turn
            .calls
            .iter()
            .enumerate()
            .map(|(n, call)| Block::ToolResult {
                tool_use_id: id(n),
                content: call.result.clone().into(),
                is_error: call.is_error,
            })
            .collect();
        if !results.is_empty() {
            let count = results.len();
            results.rotate_left(turn.rotation % count);
            messages.push(Message { role: Role::User, origin: Origin::Tools, blocks: results.into() });
        }
        messages.extend(turn.notes.iter().map(|(origin, text)| Message::user(*origin, text.clone())));
    }
    // A request is made when something was said to the model.
    messages.push(Message::user(Origin::Guidance, "Go on."));
    messages
}

fn cut(messages: &[Message], max_tokens: u64) -> Vec<Message> {
    let mut history = MeasuredHistory::new(estimate_tokens);
    history.extend(messages.iter().cloned());
    history.view(Window { max_tokens, system_tokens: 4 }).messages().cloned().collect()
}

/// The same of which everything that a model wrote or a tool answered is in part, as the newest turn is where it alone is too long.
fn shortened(messages: &[Message], max_tokens: u64) -> Vec<Message> {
    let mut messages = messages.to_vec();
    shorten_newest(&mut messages, Window { max_tokens, system_tokens: 4 });
    messages
}

fn request(model: &str, messages: Vec<Message>) -> ModelRequest {
    ModelRequest {
        model: model.to_owned(),
        system: "You are careful.".into(),
        messages,
        tools: vec![ToolOffer {
            name: "mcp__ua__read_file".into(),
            description: "Reads.".into(),
            input_schema: json!({"type": "object"}),
        }]
        .into(),
        max_output_tokens: 64,
        temperature_milli: None,
        seed: None,
        output_schema: None,
        wants_form: false,
    }
}

/// A server that always has one more word, and every client that there is.
struct Wires {
    runtime: Runtime,
    server: ModelServer,
    clients: Vec<Box<dyn LlmProvider>>,
}

impl Wires {
    fn new() -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let server = runtime
            .block_on(server(script(&json!({"turns": [{"text": "Yes."}], "after_end": {"text": "Yes."}})), vec![]));
        let openai = |keep_replies| {
            let key = SecretString::from(KEY.to_owned());
            let config = OpenAiConfig { base_url: server.base_url.clone(), keep_replies, ..OpenAiConfig::new(key) };
            Box::new(OpenAiProvider::new(config, Env::simulated(1)).unwrap())
        };
        let chat = ChatConfig { base_url: server.base_url.clone(), ..ChatConfig::new(Some(KEY.to_owned().into())) };
        let clients: Vec<Box<dyn LlmProvider>> = vec![
            Box::new(provider(&server.base_url, &Env::simulated(1))),
            Box::new(ChatProvider::new(chat, Env::simulated(1)).unwrap()),
            openai(false),
            openai(true),
        ];
        Self { runtime, server, clients }
    }

    /// Every wire's request is taken, for models that think and those that do not.
    fn take(&self, messages: &[Message]) -> Result<(), TestCaseError> {
        prop_assert_eq!(check_history(messages), Ok(()));
        for client in &self.clients {
            for model in ["gpt-5", "plain"] {
                let answer = self.runtime.block_on(client.complete(&request(model, messages.to_vec()), &Silent));
                prop_assert!(answer.is_ok(), "{}: {:?} of {:#?}", client.name(), answer, self.server.last_request());
            }
        }
        Ok(())
    }
}

#[test]
fn every_history_is_taken_by_every_wire() {
    let wires = Wires::new();
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig {
        cases: 150,
        failure_persistence: None,
        ..ProptestConfig::default()
    });
    let histories = (prop::collection::vec(turn(), 0..7), 60..1_500_u64, 0..7_usize);
    runner
        .run(&histories, |(turns, max_tokens, at)| {
            let whole = history(&turns);
            wires.take(&whole)?;
            wires.take(&cut(&whole, max_tokens))?;
            wires.take(&shortened(&whole, max_tokens))?;
            // A fork shares what came up to a turn, says another thing first, and is told that it is one.
            let mut fork = history(&turns[..at.min(turns.len())]);
            fork[0] = Message::user(Origin::Prompt, "Do something else.");
            fork.push(Message::user(Origin::Resume, "This is a fork."));
            wires.take(&cut(&fork, max_tokens))
        })
        .unwrap();
}

#[test]
fn a_conversation_goes_on_whatever_comes_next_and_the_model_knows_all_of_it() {
    let wires = Wires::new();
    let keeps = wires.clients.iter().find(|client| client.keeps_replies()).unwrap();
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig {
        cases: 60,
        failure_persistence: None,
        ..ProptestConfig::default()
    });
    runner
        .run(&(prop::collection::vec(turn(), 0..4), prop::collection::vec(text(), 1..4)), |(turns, notes)| {
            let mut messages = history(&turns);
            for note in notes {
                let asked = request("gpt-5", messages.clone());
                let reply = wires.runtime.block_on(keeps.complete(&asked, &Silent)).unwrap();
                let kept = KeptReply::of(reply.response_id.as_deref(), reply.stop_reason, asked.digest()).unwrap();
                messages.push(reply.into_message());
                messages.push(Message::user(Origin::Resume, note));
                messages.push(Message::user(Origin::Guidance, "Go on."));
                let next = request("gpt-5", messages.clone());
                let known = known_of(&kept, &next).unwrap();
                let continued = wires.runtime.block_on(keeps.complete_from(&known, &next, &Silent)).unwrap();
                let whole = wires.runtime.block_on(keeps.complete(&next, &Silent)).unwrap();
                // The script counts what it is shown.
                prop_assert_eq!(continued.usage, whole.usage);
                prop_assert_eq!(continued.blocks, whole.blocks);
            }
            Ok(())
        })
        .unwrap();
    let log = wires.server.log();
    assert!(log.iter().all(|record| record.status == 200), "nothing was refused");
}
