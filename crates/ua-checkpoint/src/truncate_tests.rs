//! What must hold of every view.

use proptest::prelude::*;
use serde_json::json;
use ua_core::{BlobRef, ToolText, ToolUse};
use ua_llm::check_history;

use super::*;

/// Costs what its text says: a message of n characters costs n tokens.
fn characters(message: &Message) -> u64 {
    let cost = |block: &Block| match block {
        Block::Text { text } => text.len() as u64,
        Block::ToolUse(_) | Block::Opaque { .. } => 1,
        Block::ToolResult { content, .. } => content.whole_size(),
    };
    message.blocks.iter().map(cost).sum()
}

fn reply(text: &str, uses: &[String]) -> Message {
    let asked = |id: &String| Block::ToolUse(ToolUse { id: id.clone(), name: "t".into(), input: json!({}) });
    let blocks = std::iter::once(Block::text(text)).chain(uses.iter().map(asked)).collect();
    Message { role: Role::Assistant, origin: Origin::Model, blocks }
}

fn results(ids: &[String], content: &ToolText) -> Message {
    let answered =
        |id: &String| Block::ToolResult { tool_use_id: id.clone(), content: content.clone(), is_error: false };
    Message { role: Role::User, origin: Origin::Tools, blocks: ids.iter().map(answered).collect() }
}

fn measured(messages: &[Message]) -> MeasuredHistory {
    let mut history = MeasuredHistory::new(characters);
    history.extend(messages.iter().cloned());
    history
}

fn window(max_tokens: u64) -> Window {
    Window { max_tokens, system_tokens: 10 }
}

/// A history of turns, each of which costs 100 and has two messages.
fn turns(count: usize) -> Vec<Message> {
    let mut messages = vec![Message::user(Origin::Prompt, "p".repeat(50))];
    for turn in 1..=count {
        let ids = vec![format!("toolu_{turn}_1")];
        messages.extend([reply(&"r".repeat(39), &ids), results(&ids, &"x".repeat(60).as_str().into())]);
    }
    messages
}

/// Granular Execution PRD §11.
#[test]
fn test_history_truncation_middle_out() {
    let messages = turns(10);
    let history = measured(&messages);
    // 10 + 50 + 10 × 100 = 1060 tokens.
    assert_eq!(history.view(window(1_060)).messages().collect::<Vec<_>>(), messages.iter().collect::<Vec<_>>());
    let view = history.view(window(1_059));
    // A quarter of the window, 264 tokens, is left out at least: three turns of two messages.
    let notice = Message::user(Origin::Omission, "... [Context Truncated: 6 messages omitted] ...");
    let expected: Vec<&Message> = messages[..1].iter().chain([&notice]).chain(&messages[7..]).collect();
    assert_eq!(view.messages().collect::<Vec<_>>(), expected);
    assert_eq!((view.omitted, view.fits), (6, true));
}

#[test]
fn what_the_current_phase_is_about_is_never_left_out() {
    let mut messages = turns(12);
    messages.insert(1, Message::user(Origin::Phase, "phase one"));
    messages.insert(6, Message::user(Origin::Phase, "phase two"));
    let history = measured(&messages);
    let view = history.view(window(600));
    let shown: Vec<&Message> = view.messages().collect();
    let notice = format!("... [Context Truncated: {} messages omitted] ...", view.omitted);
    assert_eq!((shown[1].text(), shown[2]), (notice, &messages[6]));
    assert!(view.fits && !shown.contains(&&messages[1]));
    assert_eq!(shown.len() - 1 + view.omitted, messages.len());
}

#[test]
fn the_cut_moves_in_steps_so_that_requests_begin_alike() {
    let mut cuts = Vec::new();
    for count in 1..=60 {
        let messages = turns(count);
        let history = measured(&messages);
        let view = history.view(window(2_000));
        assert!(view.fits);
        if cuts.last() != Some(&view.omitted) {
            cuts.push(view.omitted);
        }
    }
    // 41 turns beyond the first 19, and only nine different beginnings.
    assert_eq!(cuts, [0, 10, 20, 30, 40, 50, 60, 70, 80, 90]);
}

#[test]
fn the_newest_messages_stay_even_if_they_alone_do_not_fit() {
    let mut messages = turns(3);
    let ids = vec!["toolu_4_1".to_owned()];
    messages.extend([reply("look", &ids), results(&ids, &"x".repeat(9_000).as_str().into())]);
    let history = measured(&messages);
    let view = history.view(window(1_000));
    assert_eq!((view.head.len(), view.omitted, view.tail, view.fits), (1, 6, &messages[7..], false));
    // A note that comes after them does not push them out.
    messages.push(Message::user(Origin::Resume, "you were interrupted"));
    let history = measured(&messages);
    assert_eq!(history.view(window(1_000)).tail, &messages[7..]);
    // A single turn leaves nothing to leave out.
    let first = [messages[0].clone(), messages[7].clone(), messages[8].clone()];
    let history = measured(&first);
    let view = history.view(window(1_000));
    assert_eq!((view.messages().count(), view.omitted, view.fits), (3, 0, false));
}

#[test]
fn a_blob_costs_what_its_content_costs() {
    let content = "x".repeat(40_000);
    let by_reference = ToolText::by_reference(BlobRef::of(&content));
    let ids = vec!["a".to_owned()];
    let (inline, reference) = (results(&ids, &content.as_str().into()), results(&ids, &by_reference));
    let (inline, reference) = (estimate_tokens(&inline), estimate_tokens(&reference));
    assert!(reference >= inline && reference < inline + 60, "{inline} {reference}");
    assert!(inline > 10_000);
}

/// Any history that a provider accepts, with notes between and inside of turns, and results in any grouping.
fn histories() -> impl Strategy<Value = Vec<Message>> {
    let turn = (0usize..4, 0usize..400, 0usize..900, any::<[bool; 4]>());
    proptest::collection::vec(turn, 0..40).prop_map(|turns| {
        let mut messages = vec![Message::user(Origin::Prompt, "the job")];
        for (number, (uses, said, answered, flags)) in turns.into_iter().enumerate() {
            let ids: Vec<String> = (0..uses).map(|n| format!("toolu_{number}_{n}")).collect();
            messages.push(reply(&"r".repeat(said), &ids));
            if flags[0] {
                messages.push(Message::user(Origin::Resume, "you were interrupted"));
            }
            let content: ToolText = if flags[1] {
                ToolText::by_reference(BlobRef::of(&"x".repeat(answered)))
            } else {
                "y".repeat(answered).as_str().into()
            };
            if flags[2] {
                messages.extend(ids.iter().map(|id| results(std::slice::from_ref(id), &content)));
            } else if !ids.is_empty() {
                messages.push(results(&ids, &content));
            }
            if ids.is_empty() || flags[3] {
                messages.push(Message::user(if flags[0] { Origin::Phase } else { Origin::Guidance }, "go on"));
            }
        }
        messages
    })
}

proptest! {
    #[test]
    fn any_view_is_valid_counted_and_within_its_window(messages in histories(), max in 50u64..6_000) {
        prop_assert_eq!(check_history(&messages), Ok(()));
        let history = measured(&messages);
        let view = history.view(window(max));
        let shown: Vec<Message> = view.messages().cloned().collect();
        prop_assert_eq!(check_history(&shown), Ok(()));
        let kept = usize::from(view.phase.is_some());
        prop_assert_eq!(view.head.len() + view.omitted + kept + view.tail.len(), messages.len());
        let began = messages.iter().rfind(|message| message.origin == Origin::Phase);
        prop_assert!(began.is_none_or(|began| shown.contains(began)), "the current phase is forgotten");
        prop_assert_eq!(&shown[0], &messages[0]);
        prop_assert_eq!(shown.last(), messages.last());
        prop_assert!(messages.ends_with(view.tail));
        let told = format!("... [Context Truncated: {} messages omitted] ...", view.omitted);
        prop_assert_eq!(view.omission.as_ref().map(Message::text), (view.omitted > 0).then_some(told));
        let cost = 10 + shown.iter().map(characters).sum::<u64>();
        prop_assert!(!view.fits || cost <= max, "{cost} of {max}");
        if !view.fits {
            // Whatever could be left out is left out: the tail is cut nowhere else.
            let smaller = measured(&shown);
            prop_assert_eq!(smaller.view(window(max)).omitted, 0);
        }
    }

    #[test]
    fn a_view_of_a_view_is_itself(messages in histories(), max in 50u64..6_000) {
        let history = measured(&messages);
        let once: Vec<Message> = history.view(window(max)).messages().cloned().collect();
        let again = measured(&once);
        prop_assert_eq!(again.view(window(max)).messages().cloned().collect::<Vec<_>>(), once);
    }

    #[test]
    fn another_process_sees_the_same_view(messages in histories(), max in 50u64..6_000, split in 0usize..60) {
        // One process pushed message by message; another loads what is stored and goes on from there.
        let split = split.min(messages.len());
        let stored = serde_json::to_string(&messages[..split]).unwrap();
        let mut resumed = MeasuredHistory::new(characters);
        resumed.extend(serde_json::from_str::<Vec<Message>>(&stored).unwrap());
        resumed.extend(messages[split..].iter().cloned());
        let whole = measured(&messages);
        prop_assert_eq!(whole.view(window(max)), resumed.view(window(max)));
    }

    #[test]
    fn what_was_let_go_of_is_missed_by_no_view(
        messages in histories(),
        most in 300u64..4_000,
        windows in proptest::collection::vec(50u64..4_000, 1..9),
    ) {
        let (mut whole, mut light) = (MeasuredHistory::new(characters), MeasuredHistory::new(characters));
        for (number, message) in messages.iter().enumerate() {
            whole.push(message.clone());
            light.push(message.clone());
            light.let_go(most);
            let max = windows[number % windows.len()].min(most);
            let (seen, expected) = (light.view(window(max)), whole.view(window(max)));
            prop_assert_eq!(seen.messages().collect::<Vec<_>>(), expected.messages().collect::<Vec<_>>());
            prop_assert_eq!((seen.omitted, seen.fits), (expected.omitted, expected.fits));
        }
        for tool_use in messages.iter().flat_map(Message::tool_uses) {
            prop_assert!(light.has_tool_use(&tool_use.id));
        }
        prop_assert!(!light.has_tool_use("toolu_none"));
    }
}

#[test]
fn a_long_history_is_as_large_as_its_window_needs() {
    let mut history = MeasuredHistory::new(characters);
    let mut longest = 0;
    for message in turns(5_000) {
        history.push(message);
        history.let_go(2_000);
        longest = longest.max(history.messages().len());
    }
    assert!(longest < 100, "{longest} messages of 10,000 for twenty turns");
    assert_eq!(history.view(window(2_000)).omitted, measured(&turns(5_000)).view(window(2_000)).omitted);
}
