//! Calls of tools that stand in the text of a reply.
//!
//! A server that has no parser for its model's calls, or whose parser fails on one, hands the call over as words: `<tool_call>{"name": …}</tool_call>`.
//! Such a reply asks for a tool and was not read as one, so it is no last word. It is never carried out either: who knows what a model quotes there.
//! It comes over every wire: the same servers speak all of them, and routers put the same models behind each.
//! A call is known by a mark of some model's format with the name of an offered tool right behind it, or by JSON that is one call and nothing else.
//! What is shown as code is not looked at, nor is a mark for a tool that nobody offers.

use serde_json::{Deserializer, Value};
use ua_core::{Block, Message, StopReason};

use super::names::wire_name;
use crate::request::ModelRequest;

/// What a reply is said to have ended with that has a call in its text.
pub const WRITTEN: &str = "a tool call written into its text";

/// What calls begin with, as models write them.
const MARKS: [&str; 21] = [
    "✿function✿",
    "<tool_call>",
    "<|tool_call|>",
    "<tool_calls>",
    "<|tool_calls|>",
    "<tool_use>",
    "<function_call>",
    "<start_function_call>",
    "<|functioncallbegin|>",
    "<|action_start|>",
    "<|python_tag|>",
    "[tool_calls]",
    "<｜tool▁calls▁begin｜>",
    "<｜tool▁call▁begin｜>",
    "<|tool_call_begin|>",
    "to=functions.",
    "<invoke name=",
    ":invoke name=",
    "｜invoke name=",
    "<function=",
    "<function name=",
];
/// Words between such a mark and the name of the tool.
const BETWEEN: [&str; 12] = [
    "begin",
    "call",
    "function",
    "functions",
    "invoke",
    "name",
    "plugin",
    "sep",
    "tool",
    "tool_call",
    "tool_name",
    "type",
];
/// The language of a piece of code that is a call.
const CODE: [&str; 3] = ["tool_call", "tool_calls", "tool_code"];
/// What a call may have, where it stands as JSON.
const FIELDS: [&str; 13] = [
    "name",
    "arguments",
    "parameters",
    "input",
    "id",
    "type",
    "function",
    "tool",
    "tool_name",
    "args",
    "action",
    "action_input",
    "tool_calls",
];
/// Those of them that name the tool.
const NAMING: [&str; 5] = ["name", "tool", "tool_name", "action", "function"];
/// Those that have its arguments.
const ARGUMENTS: [&str; 5] = ["arguments", "parameters", "input", "args", "action_input"];

/// What a text may ask for.
#[derive(Debug, Default)]
pub(crate) struct Offered {
    /// The names of the tools on the wire.
    names: Vec<String>,
    /// How long those may be there, in bytes.
    longest: usize,
    /// The history, with the calls that were made.
    history: Vec<Message>,
}

impl Offered {
    /// Whether a text that names this tool, or that part of its name which its server gave, means an offered one.
    fn has(&self, name: &str) -> bool {
        !name.is_empty() && self.names.iter().any(|tool| is_meant(tool, name))
    }

    /// Whether JSON that is a call, or calls, says what was called already: it is reported then, and not asked for.
    fn was_made(&self, call: &Value) -> bool {
        match call {
            Value::Array(calls) => calls.iter().all(|call| self.was_made(call)),
            Value::Object(fields) => {
                let name = NAMING.iter().find_map(|field| fields.get(*field)?.as_str());
                match (name, fields.get("function"), fields.get("tool_calls")) {
                    (Some(name), _, _) => {
                        let input = ARGUMENTS.iter().find_map(|field| fields.get(*field));
                        input.is_some_and(|input| self.has_called(name, input))
                    }
                    (None, Some(function @ Value::Object(_)), _) => self.was_made(function),
                    (None, _, Some(calls @ Value::Array(_))) => self.was_made(calls),
                    (None, _, _) => false,
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
        }
    }

    fn has_called(&self, name: &str, input: &Value) -> bool {
        // Some write the arguments as a text.
        let read = input.as_str().and_then(|text| serde_json::from_str::<Value>(text).ok());
        let input = read.as_ref().unwrap_or(input);
        let mut made = self.history.iter().flat_map(Message::tool_uses);
        made.any(|made| made.input == *input && is_meant(&wire_name(&made.name, self.longest), name))
    }
}

/// Whether a name is that of a tool, or that part of it which its server gave.
fn is_meant(tool: &str, name: &str) -> bool {
    tool == name || tool.strip_suffix(name).is_some_and(|server| server.ends_with("__"))
}

/// What a request offers on a wire with names of at most `longest` bytes; nothing where a result in a form of the job's may well name a tool and
/// its arguments.
pub(crate) fn offered_in(request: &ModelRequest, longest: usize) -> Offered {
    if request.wants_form || request.output_schema.is_some() {
        return Offered::default();
    }
    let names = request.tools.iter().map(|tool| wire_name(&tool.name, longest)).collect();
    Offered { names, longest, history: request.messages.clone() }
}

/// Whether a reply that ended like this has a call of one of the tools that are `offered` in its text, and none beside it.
pub(crate) fn is_call_in_text(stop_reason: StopReason, blocks: &[Block], offered: &Offered) -> bool {
    let is_last_word = matches!(stop_reason, StopReason::EndTurn | StopReason::StopSequence);
    let texts: Vec<&str> = blocks
        .iter()
        .filter_map(|block| match block {
            Block::Text { text } => Some(text.as_str()),
            Block::ToolUse(_) | Block::ToolResult { .. } | Block::Opaque { .. } => None,
        })
        .collect();
    let asks = blocks.iter().any(|block| matches!(block, Block::ToolUse(_)));
    is_last_word && !asks && asks_for_tool(&texts.concat(), offered)
}

/// Whether a text asks for one of the tools that are `offered`, by its name or by that part of it which its server gave.
pub(super) fn asks_for_tool(text: &str, offered: &Offered) -> bool {
    let is_offered = |name: &str| offered.has(name);
    let text = text.trim();
    let (language, whole) = unfenced(text).unwrap_or(("", text));
    let is_nothing_else = is_call_as_json(whole, &is_offered)
        || is_call_as_code(whole, language, &is_offered)
        || is_call_as_element(whole, &is_offered);
    if is_nothing_else {
        return true;
    }
    let spoken = without_code(whole);
    let asks_at_its_end = |call: &Value| is_call(call, &is_offered) && !offered.was_made(call);
    if last_json(text).is_some_and(|call| asks_at_its_end(&call)) || is_step(&spoken, &is_offered) {
        return true;
    }
    let lower = spoken.to_ascii_lowercase();
    let marks = || MARKS.iter().flat_map(|mark| lower.match_indices(mark).map(|(at, mark)| at + mark.len()));
    // A mark within the JSON behind another one stands in a text of it, and the JSON behind that mark ends at the next one at the latest: each
    // byte is read for a few marks at most.
    let has_json = |behind: usize| first_json(&spoken[behind..]).is_some_and(|call| is_call(&call, &is_offered));
    let mut names = Names::of(&spoken);
    let mut ends: Vec<usize> = marks().collect();
    ends.sort_unstable();
    ends.into_iter().any(|behind| names.next_from(behind).is_some_and(is_offered) || has_json(behind))
}

/// The JSON that a text ends with, on lines of its own, behind a sentence; also where it is shown as code.
fn last_json(text: &str) -> Option<Value> {
    let shown = text.strip_suffix("```").and_then(|text| text.rsplit_once("```"));
    let (sentence, json) = if let Some((sentence, code)) = shown {
        (sentence, code.split_once('\n')?.1)
    } else {
        let mut next = 0;
        let lines = text.split_inclusive('\n').map(|line| {
            next += line.len();
            (next - line.len(), line)
        });
        let (start, _) = lines.skip(1).find(|(_, line)| line.trim_start().starts_with(['{', '[']))?;
        text.split_at(start)
    };
    // What shows more than one piece of code speaks of them.
    let is_sentence = !sentence.contains("```") && sentence.lines().filter(|line| !line.trim().is_empty()).count() <= 3;
    serde_json::from_str(json.trim()).ok().filter(|_| is_sentence)
}

/// `Action: NAME`, `Action Input: …`, each at the beginning of a line, with nothing that was observed behind it.
fn is_step(text: &str, is_offered: &impl Fn(&str) -> bool) -> bool {
    let mut lines = text.lines().map(str::trim).skip_while(|line| !line.starts_with("Action:"));
    let name = lines.next().and_then(|line| line.strip_prefix("Action:")).map(str::trim).unwrap_or_default();
    let mut rest = lines.skip_while(|line| line.is_empty());
    let has_input = rest.next().is_some_and(|line| line.starts_with("Action Input:"));
    has_input && is_offered(name.trim_matches('`')) && !rest.any(|line| line.starts_with("Observation:"))
}

/// The language and the content of a text that is one piece of code.
fn unfenced(text: &str) -> Option<(&str, &str)> {
    let inner = text.strip_prefix("```")?.strip_suffix("```")?;
    let (language, inner) = inner.split_once('\n')?;
    (!inner.contains("```")).then(|| (language.trim(), inner.trim()))
}

/// The text without what it shows as code.
fn without_code(text: &str) -> String {
    let drop_between = |text: &str, fence: &str| {
        let mut pieces: Vec<&str> = text.split(fence).collect();
        // One that is never closed shows nothing.
        let open = if pieces.len().is_multiple_of(2) { pieces.pop() } else { None };
        let spoken: Vec<&str> = pieces.into_iter().step_by(2).chain(open).collect();
        spoken.join(" ")
    };
    drop_between(&drop_between(text, "```"), "`")
}

fn is_of_names(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '-')
}

/// The words of a text that may be names, from its beginning on. A reply may be nothing but marks, so no word is looked at for each mark anew.
struct Names<'a> {
    text: &'a str,
    /// Where to look on.
    from: usize,
    /// The newest one, and where it begins.
    newest: Option<(usize, &'a str)>,
    /// How many words were looked at.
    #[cfg(test)]
    steps: usize,
}

impl<'a> Names<'a> {
    fn of(text: &'a str) -> Self {
        Self {
            text,
            from: 0,
            newest: None,
            #[cfg(test)]
            steps: 0,
        }
    }

    /// The first one that begins at `place` or behind it, which is behind no place that is asked about later; `None` for one that was found
    /// for an earlier place as well.
    fn next_from(&mut self, place: usize) -> Option<&'a str> {
        if self.newest.is_some_and(|(begins, _)| begins >= place) {
            return None;
        }
        self.from = self.from.max(place);
        self.newest = None;
        while self.newest.is_none() {
            let rest = &self.text[self.from..];
            let Some(begins) = rest.find(is_of_names).map(|at| self.from + at) else {
                self.from = self.text.len();
                return None;
            };
            let rest = &self.text[begins..];
            let word = &rest[..rest.find(|c| !is_of_names(c)).unwrap_or(rest.len())];
            self.from = begins + word.len();
            self.newest = Some((begins, word)).filter(|_| !BETWEEN.contains(&word));
            #[cfg(test)]
            {
                self.steps += 1;
            }
        }
        self.newest.map(|(_, word)| word)
    }
}

/// The JSON that a text begins with.
fn first_json(text: &str) -> Option<Value> {
    let text = text.trim_start();
    text.starts_with(['{', '[']).then(|| Deserializer::from_str(text).into_iter().next()?.ok())?
}

fn is_call_as_json(text: &str, is_offered: &impl Fn(&str) -> bool) -> bool {
    let is_json = text.starts_with(['{', '[']);
    is_json && serde_json::from_str(text).is_ok_and(|call| is_call(&call, is_offered))
}

/// `[get_weather(city="x")]`, `get_weather(city="x")` and nothing else, or a piece of code in the language of calls, which may print what it calls.
fn is_call_as_code(text: &str, language: &str, is_offered: &impl Fn(&str) -> bool) -> bool {
    let listed = text.strip_prefix('[').filter(|text| text.ends_with(")]"));
    let alone = || (CODE.contains(&language) || is_one_pair(text)).then_some(text);
    let call = listed.or_else(alone).map(|call| call.strip_prefix("print(").unwrap_or(call));
    let name = call.and_then(|call| call.split_once('(')).map(|(name, _)| name.trim());
    name.is_some_and(is_offered)
}

/// Whether the first bracket of a text is closed at its end and not before: `f(a(b))`, and not `f(a) is b (c)`.
fn is_one_pair(text: &str) -> bool {
    let mut depth = 0_usize;
    for (at, c) in text.char_indices() {
        match c {
            '(' => depth += 1,
            ')' if depth == 1 => return at + 1 == text.len(),
            ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    false
}

/// `<get_weather><city>x</city></get_weather>`, and nothing else.
fn is_call_as_element(text: &str, is_offered: &impl Fn(&str) -> bool) -> bool {
    let Some((name, rest)) = text.strip_prefix('<').and_then(|text| text.split_once('>')) else { return false };
    is_offered(name)
        && rest.strip_suffix('>').and_then(|rest| rest.strip_suffix(name)).is_some_and(|rest| rest.ends_with("</"))
}

/// Whether JSON is a call, or calls and nothing else.
fn is_call(call: &Value, is_offered: &impl Fn(&str) -> bool) -> bool {
    match call {
        Value::Array(calls) => !calls.is_empty() && calls.iter().all(|call| is_call(call, is_offered)),
        Value::Object(fields) => {
            if !fields.keys().all(|field| FIELDS.contains(&field.as_str())) {
                return false;
            }
            let has_arguments = ARGUMENTS.iter().any(|field| fields.contains_key(*field));
            let name = NAMING.iter().find_map(|field| fields.get(*field)?.as_str());
            match (name, fields.get("function"), fields.get("tool_calls")) {
                (Some(name), _, _) => has_arguments && is_offered(name),
                (None, Some(function @ Value::Object(_)), _) => is_call(function, is_offered),
                (None, _, Some(calls @ Value::Array(_))) => is_call(calls, is_offered),
                (None, _, _) => false,
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use ua_core::{Origin, Role, ToolUse};

    use super::*;

    /// How models write a call of `NAME`.
    const FORMS: [&str; 35] = [
        "NAME(title=\"b\")",
        "NAME({\"title\": \"b (c)\"})",
        "```tool_code\nprint(NAME(title=\"b\"))\n```",
        "<NAME><title>b</title></NAME>",
        "✿FUNCTION✿: NAME\n✿ARGS✿: {\"title\": \"b\"}",
        "<tool_call>\n{\"name\": \"NAME\", \"arguments\": {\"title\": \"b\"}}\n</tool_call>",
        "<tool_call>{\"arguments\": {\"title\": \"b\"}, \"name\": \"NAME\"}</tool_call>",
        "<tool_call>NAME\n<arg_key>title</arg_key>\n<arg_value>b</arg_value>\n</tool_call>",
        "<tool_call><function=NAME><parameter=title>b</parameter></function></tool_call>",
        "<function=NAME>{\"title\": \"b\"}</function>",
        "<|python_tag|>{\"name\": \"NAME\", \"parameters\": {\"title\": \"b\"}}",
        "<|python_tag|>NAME.call(title=\"b\")",
        "[TOOL_CALLS][{\"name\": \"NAME\", \"arguments\": {\"title\": \"b\"}}]",
        "[TOOL_CALLS]NAME[ARGS]{\"title\": \"b\"}",
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>NAME\n```json\n{\"title\": \"b\"}\n```<｜tool▁call▁end｜>",
        "<｜tool▁call▁begin｜>NAME<｜tool▁sep｜>{\"title\": \"b\"}<｜tool▁call▁end｜>",
        "<｜DSML｜function_calls><｜DSML｜invoke name=\"NAME\"></｜DSML｜invoke>",
        "<|tool_calls_section_begin|><|tool_call_begin|>functions.NAME:0<|tool_call_argument_begin|>{}<|tool_call_end|>",
        "<|channel|>commentary to=functions.NAME <|constrain|>json<|message|>{\"title\": \"b\"}<|call|>",
        "<function_calls>\n<invoke name=\"NAME\">\n<parameter name=\"title\">b</parameter>\n</invoke>\n</function_calls>",
        "<|tool_call|>[{\"name\": \"NAME\", \"arguments\": {}}]",
        "<start_function_call>call:NAME{title:<escape>b<escape>}<end_function_call>",
        "<|action_start|><|plugin|>{\"name\": \"NAME\", \"parameters\": {}}",
        "{\"name\": \"NAME\", \"arguments\": {\"title\": \"b\"}}",
        "```json\n{\"name\": \"NAME\", \"parameters\": {\"title\": \"b\"}}\n```",
        "[{\"type\": \"function\", \"function\": {\"name\": \"NAME\", \"arguments\": \"{}\"}}]",
        "[NAME(title=\"b\")]",
        "```tool_code\nNAME(title=\"b\")\n```",
        "```xml\n<tool_call>{\"name\": \"NAME\", \"arguments\": {}}</tool_call>\n```",
        "<ns:function_calls>\n<ns:invoke name=\"NAME\">\n</ns:invoke>\n</ns:function_calls>",
        "{\"tool\": \"NAME\", \"arguments\": {\"title\": \"b\"}}",
        "{\"tool_name\": \"NAME\", \"args\": {\"title\": \"b\"}}",
        "{\"action\": \"NAME\", \"action_input\": {\"title\": \"b\"}}",
        "{\"tool_calls\": [{\"name\": \"NAME\", \"arguments\": {}}]}",
        "Action: NAME\nAction Input: {\"title\": \"b\"}",
    ];

    fn offered() -> Offered {
        let names = ["mcp__t__get_ticket", "mcp__t__create_ticket"].map(str::to_owned).into();
        Offered { names, longest: 64, history: Vec::new() }
    }

    #[test]
    fn a_call_at_the_end_that_was_made_already_is_reported_and_not_asked_for() {
        let call = ToolUse { id: "a".into(), name: "mcp__t__create_ticket".into(), input: json!({"title": "b"}) };
        let reply = Message { role: Role::Assistant, origin: Origin::Model, blocks: vec![Block::ToolUse(call)].into() };
        let offered = Offered { history: vec![reply], ..offered() };
        for (call, was_made) in [
            ("{\"name\": \"mcp__t__create_ticket\", \"arguments\": {\"title\": \"b\"}}", true),
            ("[{\"name\": \"create_ticket\", \"arguments\": \"{\\\"title\\\": \\\"b\\\"}\"}]", true),
            ("{\"function\": {\"name\": \"create_ticket\", \"arguments\": {\"title\": \"b\"}}}", true),
            ("{\"name\": \"mcp__t__create_ticket\", \"arguments\": {\"title\": \"c\"}}", false),
            ("{\"name\": \"mcp__t__get_ticket\", \"arguments\": {\"title\": \"b\"}}", false),
        ] {
            for text in [format!("Done, I called:\n{call}"), format!("Done, I called:\n\n```json\n{call}\n```")] {
                assert_eq!(!asks_for_tool(&text, &offered), was_made, "{text}");
            }
        }
    }

    #[test]
    fn a_call_of_an_offered_tool_is_seen_in_every_form_and_one_of_another_tool_in_none() {
        for form in FORMS {
            for (before, behind) in [("", ""), ("I will create it now.\n\n", ""), ("", "\n")] {
                let is_whole = ["[NAME", "NAME(", "<NAME>"].iter().any(|start| form.starts_with(start))
                    || (form.starts_with('`') && !form.starts_with("```json"));
                if is_whole && !before.is_empty() {
                    continue;
                }
                let text = |name: &str| format!("{before}{}{behind}", form.replace("NAME", name));
                assert!(asks_for_tool(&text("mcp__t__create_ticket"), &offered()), "{form}");
                // A model that leaves the server's part of the name out means the same tool.
                assert!(asks_for_tool(&text("create_ticket"), &offered()), "{form}");
                for other in ["mcp__t__create", "get_weather", "ticket", "x__create_ticket", "mcp__t__create_ticket2"] {
                    assert!(!asks_for_tool(&text(other), &offered()), "{other} in {form}");
                }
                assert!(!asks_for_tool(&text("mcp__t__create_ticket"), &Offered::default()), "{form}");
            }
        }
    }

    /// A reply may be nothing but marks: each word is looked at once, however many of them there are.
    #[test]
    fn s23_a_reply_of_nothing_but_marks_is_read_once() {
        for (count, tail) in [(1_000, ""), (1_000, "</tool_call>"), (20_000, "")] {
            for mark in MARKS {
                let text = format!("{} {}", mark.repeat(count), tail.repeat(count));
                let mut names = Names::of(&text);
                let places: Vec<usize> = text.match_indices(mark).map(|(at, mark)| at + mark.len()).collect();
                assert!(places.into_iter().filter_map(|place| names.next_from(place)).all(|name| !name.is_empty()));
                let words = text.split(|c| !is_of_names(c)).filter(|word| !word.is_empty()).count();
                assert!(names.steps <= words, "{mark}: {} steps for {words} words", names.steps);
            }
        }
        // It took minutes, and a test that waits for it would never end: a run of marks as long as this is read like any other text.
        let marks = format!("{}{}", "<tool_call>".repeat(200_000), "</tool_call>".repeat(200_000));
        assert!(!asks_for_tool(&marks, &offered()));
        assert!(asks_for_tool(&format!("{marks}<tool_call>create_ticket"), &offered()));
        let nested = "<tool_call>[\"".repeat(100_000);
        assert!(!asks_for_tool(&nested, &offered()));
    }

    #[test]
    fn the_name_behind_a_mark_is_the_first_word_that_may_be_one() {
        for (text, name) in [
            ("<tool_call>\n<function=a>", Some("a")),
            ("<tool_call>tool_call name: b c", Some("b")),
            ("<tool_call> </tool_call>", None),
            ("<tool_call>", None),
        ] {
            assert_eq!(Names::of(text).next_from("<tool_call>".len()), name, "{text}");
        }
        let mut names = Names::of("<a>x<b>y z");
        assert_eq!([3, 3, 7, 7].map(|place| names.next_from(place)), [Some("x"), None, Some("y"), None]);
    }

    /// Every form, wherever it is only shown.
    #[test]
    fn what_is_said_about_calls_or_shown_as_code_is_none() {
        for form in FORMS.iter().filter(|form| !form.contains('`')) {
            let call = form.replace("NAME", "mcp__t__create_ticket");
            for shown in [
                format!("The model wrote this:\n\n```\n{call}\n```\n\nThe server has no parser."),
                format!("It wrote `{call}` in its text."),
            ] {
                assert!(!asks_for_tool(&shown, &offered()), "{shown}");
            }
        }
        for prose in [
            "",
            "Done: mcp__t__create_ticket made ticket 7.",
            "Its replies have <tool_call> marks. I used mcp__t__create_ticket instead.",
            "{\"name\": \"mcp__t__create_ticket\"}",
            "{\"name\": \"mcp__t__create_ticket\", \"status\": \"done\", \"arguments\": {}}",
            "{\"name\": \"Ada\", \"arguments\": [\"mcp__t__create_ticket\"]}",
            "[mcp__t__create_ticket](https://example.org)",
            "mcp__t__create_ticket(title) made ticket 7 (see above)",
            "<mcp__t__create_ticket> is the tool that made it",
            "[]",
            "{",
            "<tool_call>",
            "```",
            "see `mcp__t__create_ticket(title)`",
            "Action: mcp__t__create_ticket\nAction Input: {}\nObservation: ticket 7\nIt is made.",
            "The last call was:\n\n{\"name\": \"mcp__t__create_ticket\", \"arguments\": {}}\n\nIt made ticket 7.",
            "It has these fields:\n{\"name\": \"mcp__t__create_ticket\", \"status\": \"done\", \"arguments\": {}}",
        ] {
            assert!(!asks_for_tool(prose, &offered()), "{prose}");
        }
    }
}
