use ua_core::Origin;

use super::*;

fn script(value: &Value) -> Script {
    Script::parse(&value.to_string()).unwrap()
}

fn prompt() -> Message {
    Message::user(Origin::Prompt, "write the report")
}

fn result(id: &str, content: &str, is_error: bool) -> Message {
    let block = Block::ToolResult { tool_use_id: id.into(), content: content.into(), is_error };
    Message { role: Role::User, origin: Origin::Tools, blocks: vec![block].into() }
}

fn played(script: &Script, messages: &[Message]) -> Result<ModelTurn, ScriptError> {
    script.reply("demo", "be brief", messages, 7)
}

#[test]
fn the_turn_follows_from_the_replies_in_the_request_and_from_nothing_else() {
    let script = script(&json!({"turns": [
        {"text": "Looking.", "tools": [{"name": "mcp__ua__read_file", "input": {"path": "a"}}, {"name": "b"}]},
        {"text": "I read {{result:toolu_1_1}} in turn {{turn}}, request {{request}}."},
    ]}));
    let first = played(&script, &[prompt()]).unwrap();
    let expected = ModelTurn {
        blocks: vec![
            Block::text("Looking."),
            Block::ToolUse(ToolUse {
                id: "toolu_1_1".into(),
                name: "mcp__ua__read_file".into(),
                input: json!({"path": "a"}),
            }),
            Block::ToolUse(ToolUse { id: "toolu_1_2".into(), name: "b".into(), input: json!({}) }),
        ],
        stop_reason: StopReason::ToolUse,
        usage: Some(Usage { input_tokens: 6, output_tokens: 10, ..Usage::default() }),
        model: "demo".into(),
        response_id: Some("msg_scripted_1_7".into()),
    };
    assert_eq!(first, expected);

    let resumed = Message::user(Origin::Resume, "you were interrupted");
    let history = [
        prompt(),
        first.into_message(),
        resumed,
        result("toolu_1_1", "one page", false),
        result("toolu_1_2", "", false),
    ];
    let second = played(&script, &history).unwrap();
    assert_eq!(second.text(), "I read one page in turn 2, request 7.");
    assert_eq!(second.stop_reason, StopReason::EndTurn);
}

#[test]
fn after_the_last_turn_the_ending_is_played_for_ever() {
    let mut history = vec![prompt()];
    let bare = script(&json!({"turns": []}));
    assert_eq!(played(&bare, &history).unwrap().text(), "Done.");
    let own = script(&json!({"turns": [], "after_end": {"text": "Bye {{turn}}."}}));
    for turn in 1..4 {
        let reply = played(&own, &history).unwrap();
        assert_eq!(reply.text(), format!("Bye {turn}."));
        history.extend([reply.into_message(), Message::user(Origin::Guidance, "go on")]);
    }
}

#[test]
fn a_value_of_a_result_keeps_its_type_when_it_stands_alone() {
    let script = script(&json!({"turns": [
        {"tools": [{"name": "count", "id": "c"}]},
        {"tools": [{"name": "use", "input": {
            "page": "{{result_json:c:/pages/0}}", "all": ["{{result_json:c:}}"], "text": "p. {{result_json:c:/pages/0}} of {{result_json:c:/file}}",
        }}]},
    ]}));
    let first = played(&script, &[prompt()]).unwrap();
    let history = [prompt(), first.into_message(), result("c", r#"{"pages":[3],"file":"a.txt"}"#, false)];
    let second = played(&script, &history).unwrap();
    assert_eq!(
        second.tool_uses().next().unwrap().input,
        json!({"page": 3, "all": [{"pages": [3], "file": "a.txt"}], "text": "p. 3 of a.txt"})
    );
}

#[test]
fn a_result_is_shown_up_to_2000_characters() {
    let script = script(&json!({"turns": [{"tools": [{"name": "t", "id": "c"}]}, {"text": "{{result:c}}"}]}));
    let first = played(&script, &[prompt()]).unwrap();
    let history = [prompt(), first.into_message(), result("c", &"é".repeat(5000), false)];
    assert_eq!(played(&script, &history).unwrap().text(), "é".repeat(2000));
}

#[test]
fn a_request_that_the_script_does_not_expect_is_refused_with_the_reason() {
    let script = script(&json!({"system_must_contain": "brief", "turns": [
        {"tools": [{"name": "t", "id": "c"}], "expect": {"contains": ["report"]}},
        {"text": "{{result:d}}", "expect": {"contains": ["sent"], "tool_result_ok": true}},
        {"text": "ok", "expect": {"tool_result_ok": false}},
    ]}));
    let why = |system: &str, messages: &[Message]| match script.reply("m", system, messages, 1) {
        Err(error) => error.to_string(),
        Ok(turn) => panic!("it was accepted: {turn:?}"),
    };
    assert_eq!(
        why("", &[prompt()]),
        r#"turn 1 of the script cannot be played: the system prompt does not contain "brief""#
    );
    let other = Message::user(Origin::Prompt, "write a poem");
    assert_eq!(
        why("brief", &[other]),
        r#"turn 1 of the script cannot be played: the newest messages do not contain "report""#
    );

    let first = script.reply("m", "brief", &[prompt()], 1).unwrap().into_message();
    let with = |content: &str, is_error| [prompt(), first.clone(), result("c", content, is_error)];
    assert_eq!(
        why("brief", &with("lost", false)),
        r#"turn 2 of the script cannot be played: the newest messages do not contain "sent""#
    );
    assert_eq!(
        why("brief", &with("not sent", true)),
        "turn 2 of the script cannot be played: a tool result is an error: not sent"
    );
    assert_eq!(
        why("brief", &with("sent", false)),
        "turn 2 of the script cannot be played: the history has no result of d"
    );

    let mut third = with("sent", false).to_vec();
    let said = Message { role: Role::Assistant, origin: Origin::Model, blocks: vec![Block::text("ok")].into() };
    third.extend([said, Message::user(Origin::Guidance, "sent?")]);
    assert_eq!(why("brief", &third), "turn 3 of the script cannot be played: no tool result is an error");
}

#[test]
fn an_invalid_history_is_refused_as_the_api_refuses_it() {
    let script = script(&json!({"turns": [{"tools": [{"name": "t", "id": "c"}]}]}));
    let first = played(&script, &[prompt()]).unwrap().into_message();
    let error = played(&script, &[prompt(), first, prompt()]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the history is not what the script expects: the tool use c has no result in the next user message"
    );
}

#[test]
fn thinking_is_signed_and_has_to_come_back_unchanged() {
    let script = script(&json!({"turns": [{"thinking": "hm {{turn}}", "text": "yes"}]}));
    let mut said = played(&script, &[prompt()]).unwrap().into_message();
    let next = Message::user(Origin::Guidance, "and?");
    assert!(played(&script, &[prompt(), said.clone(), next.clone()]).is_ok());
    let Some(Block::Opaque { value, .. }) = said.blocks.first_mut() else { panic!("no thinking block") };
    assert_eq!(value["thinking"], "hm 1");
    value["thinking"] = json!("hm 2");
    let error = played(&script, &[prompt(), said, next]).unwrap_err();
    assert_eq!(error, ScriptError::History("a thinking block came back changed".into()));
}

#[test]
fn a_script_with_a_mistake_is_refused_before_it_is_played() {
    let cases = [
        ("{", "invalid script: not JSON: it ends in line 1 before it is complete: a closing }"),
        (r#"{"turn": []}"#, "invalid script: there is no field `turn`; did you mean `turns`?"),
        (r#"{"turns": [], "turns": []}"#, "invalid script: not JSON: "),
        (r#"{"turns": [{"say": "hi"}]}"#, "invalid script: there is no field `say`; known fields are text"),
        (r#"{"turns": [{"text": "hi"}, {}]}"#, "invalid script: turn 2 has no text, no thinking and no tools"),
        (r#"{"turns": [], "after_end": {}}"#, "invalid script: turn 1 has no text"),
        (r#"{"turns": [{"text": "{{turns}}"}]}"#, "invalid script: turn 1 has the placeholder {{turns}}; there are"),
        (
            r#"{"turns": [{"tools": [{"name": "t", "input": {"a": ["{{result_json:x}}"]}}]}]}"#,
            "invalid script: turn 1 has",
        ),
    ];
    for (text, message) in cases {
        let error = Script::parse(text).unwrap_err().to_string();
        assert!(error.starts_with(message), "{text} gave {error}");
    }
    assert!(Script::parse(r#"{"turns": [{"text": "fn main() { {} } {{ open"}]}"#).is_ok());
}

#[test]
fn a_conversation_is_known_by_how_it_begins() {
    let script = script(&json!({
        "turns": [{"text": "Main one."}, {"text": "Main two."}],
        "after_end": {"text": "End."},
        "conversations": [
            {"when": "the report", "turns": [{"text": "About the report."}], "after_end": {"text": "Report done."}},
            {"when": "report", "turns": [{"text": "Any report."}]},
        ],
    }));
    let said = |first: &str, replies: usize| {
        let mut messages = vec![Message::user(Origin::Prompt, first)];
        for _ in 0..replies {
            messages.push(Message {
                role: Role::Assistant,
                origin: Origin::Model,
                blocks: vec![Block::text("x")].into(),
            });
            messages.push(Message::user(Origin::Guidance, "go on"));
        }
        played(&script, &messages).unwrap().text()
    };
    assert_eq!(said("write the report", 0), "About the report.");
    assert_eq!(said("write the report", 1), "Report done.");
    assert_eq!(said("a report", 0), "Any report.");
    assert_eq!(said("a report", 1), "End.");
    assert_eq!(said("something else", 1), "Main two.");
    let empty = json!({"turns": [], "conversations": [{"when": " ", "turns": []}]});
    assert!(Script::parse(&empty.to_string()).is_err());
}
