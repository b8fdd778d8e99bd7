//! What a message may hold, and how it is read.
//!
//! How many values: a few bytes make a value, and a value takes a hundred times as many, then as many again where it is
//! redacted, checked and stored. So the bytes are counted before anything is made of them, and of a message that holds too many only its
//! frame is read.
//!
//! How deep: what is read here is written and read again further in, in the store and in exports, so it stays well below the depth at which
//! a reader of JSON gives up (128).
//!
//! Threat S15 of `docs/security.md`. Proved by: the tests below and `tests::hostile`.

use std::collections::HashSet;

use serde::de::{DeserializeSeed, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value, json};

/// The most values of one message: elements of lists, members of objects, and these themselves.
pub(crate) const MAX_VALUES: usize = 200_000;

/// Whether a message holds more values than are read.
pub fn is_too_much(bytes: &[u8]) -> bool {
    values(bytes) > MAX_VALUES
}

/// The longest question of a tool server to a person, in bytes of memory, about: longer than anybody reads.
const LONGEST_QUESTION: usize = 256 * 1024;

/// Whether a tool server asks a person more than one reads: it is declined, and not kept.
pub(crate) fn is_too_long_to_ask(question: &Value) -> bool {
    crate::size_of(question) > LONGEST_QUESTION
}

/// How deep the lists and objects of a message may lie in one another.
pub(crate) const MAX_DEPTH: usize = 100;

/// What stands in the place of a value that lies deeper.
pub(crate) const TOO_DEEP: &str = "[nested too deeply]";

/// Under which name a message says which of its values it does not hold as they were written.
const CHANGED: &str = "dev.universal-agent/changed";

/// How many of them are named.
const MOST_NAMED: usize = 20;

/// Reads what is not carried exactly: numbers that no value holds or that are none, halves of characters (as JavaScript writes them where a text was cut), names
/// that are given twice in what a tool says, values that lie too deep. It is no reason to lose an answer, and it is said in the answer. In the frame, by which it is told
/// whose answer it is and whether it is one, a name that is given twice says two things, of which neither is believed.
fn read_loosely(bytes: &[u8]) -> Result<Value, serde_json::Error> {
    let shallow = shallow(bytes);
    let bytes = shallow.as_deref().unwrap_or(bytes);
    let with_null = without_odd_numbers(bytes);
    let bytes = with_null.as_deref().unwrap_or(bytes);
    let read: Result<Value, _> = serde_json::from_slice(bytes);
    let (mut message, twice) = match read {
        Ok(message) => (message, said_twice(bytes)?),
        Err(error) => match whole_characters(bytes) {
            Some(whole) => (serde_json::from_slice(&whole)?, said_twice(&whole)?),
            None => return Err(error),
        },
    };
    let inexact = str::from_utf8(bytes).map_or_else(|_| Vec::new(), |text| ua_core::inexact(text, MOST_NAMED));
    let changed = twice.iter().cloned().chain(inexact.iter().map(ToString::to_string));
    let too_deep = shallow.is_some().then(|| format!("what is nested more than {MAX_DEPTH} deep is left out"));
    let no_number =
        with_null.is_some().then(|| "`NaN` and `Infinity`, which are not JSON, are carried as null".to_owned());
    // What is asked for is done as it was asked for, or not at all.
    if message.get("method").is_some() && message.get("id").is_some() {
        if too_deep.is_some() {
            return Err(serde_json::Error::custom(format!("it is nested more than {MAX_DEPTH} deep")));
        }
        if no_number.is_some() {
            return Err(serde_json::Error::custom("it holds `NaN` or `Infinity`, which are not JSON"));
        }
    }
    let says_less = !twice.is_empty() || too_deep.is_some() || no_number.is_some();
    let changed: Vec<String> = changed.chain(too_deep).chain(no_number).collect();
    if !changed.is_empty() {
        mark(&mut message, &changed, says_less);
    }
    Ok(message)
}

/// The names that stand twice in one object of a message, in words, each once. Refuses a message in whose frame one does: among its own
/// members, or those of its result and of its error.
fn said_twice(bytes: &[u8]) -> Result<Vec<String>, serde_json::Error> {
    let mut twice = Vec::new();
    let mut reading = serde_json::Deserializer::from_slice(bytes);
    Names { place: Place::Frame, twice: &mut twice }.deserialize(&mut reading)?;
    Ok(twice)
}

/// Where in a message a value stands.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    /// It is the message.
    Frame,
    /// It is the result or the error of it.
    Answer,
    /// Further in.
    Inside,
}

/// Reads past a value, and over the names of its members.
struct Names<'a> {
    place: Place,
    /// What was found to stand twice.
    twice: &'a mut Vec<String>,
}

impl<'de> DeserializeSeed<'de> for Names<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Names<'_> {
    type Value = ();

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a value")
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E: Error>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E: Error>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E: Error>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E: Error>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        while list.next_element_seed(Names { place: Place::Inside, twice: self.twice })?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<(), A::Error> {
        let mut names = HashSet::new();
        while let Some(name) = members.next_key::<String>()? {
            let is_answer = self.place == Place::Frame && matches!(name.as_str(), "result" | "error");
            let place = if is_answer { Place::Answer } else { Place::Inside };
            members.next_value_seed(Names { place, twice: self.twice })?;
            let Some(twice) = names.replace(name) else { continue };
            if self.place != Place::Inside {
                return Err(A::Error::custom(format!("its frame has `{twice}` twice")));
            }
            let words = format!("the name {twice:?} is given twice, of which the last one counts");
            if self.twice.len() < MOST_NAMED && !self.twice.contains(&words) {
                self.twice.push(words);
            }
        }
        Ok(())
    }
}

/// Says in a message what of it is not as it was written. `says_two_things`: something of it may be read in two ways, which its reader is told in
/// a text wherever there are texts, since what counts here may not be what its tool meant.
fn mark(message: &mut Value, changed: &[String], says_two_things: bool) {
    let changed_in_words = changed.join("; ");
    let place = if message.get("method").is_some() { "params" } else { "result" };
    if let Some(error) = message.get_mut("error").and_then(Value::as_object_mut) {
        let said = error.get("message").and_then(Value::as_str).unwrap_or("no message");
        let said = format!("{said} (not carried as it was written: {changed_in_words})");
        error.insert("message".to_owned(), said.into());
    }
    // An error says what there is to say, and stands alone; and null is no result, whatever it was written as.
    let has_error = message.get("error").is_some_and(|error| !error.is_null());
    let is_bare = place == "result"
        && !has_error
        && message.get(place).is_some_and(|result| !result.is_object() && !result.is_null());
    if is_bare {
        // Nothing can be said in it, so it is said beside it.
        let bare = message[place].take();
        let text = bare.as_str().map_or_else(|| bare.to_string(), str::to_owned);
        message[place] = json!({"content": [{"type": "text", "text": text}]});
    }
    let Some(body) = message.get_mut(place).and_then(Value::as_object_mut) else { return };
    // A model reads the texts of a result, which hold what they hold; beside them stands what its structured content was before it was rounded.
    let structured = body.get("structuredContent").map(Value::to_string);
    if structured.is_some() {
        body.entry("content").or_insert_with(|| json!([]));
    }
    if let Some(content) = body.get_mut("content").and_then(Value::as_array_mut)
        && (structured.is_some() || says_two_things || is_bare)
    {
        if let Some(structured) = structured.filter(|_| content.is_empty()) {
            content.push(json!({"type": "text", "text": structured}));
        }
        let text = format!("(This result is not carried as its tool wrote it: {changed_in_words}.)");
        content.push(json!({"type": "text", "text": text}));
    }
    let mut meta = body.get_mut("_meta").and_then(Value::as_object_mut).map(std::mem::take).unwrap_or_default();
    meta.insert(CHANGED.to_owned(), changed.into());
    body.insert("_meta".to_owned(), meta.into());
}

/// The line with U+FFFD for each escape that is half a character (a surrogate without the other one); `None` when there is none.
pub(crate) fn whole_characters(line: &[u8]) -> Option<Vec<u8>> {
    let halves = ua_core::half_characters(line);
    let mut whole = line.to_vec();
    for half in &halves {
        whole[half.range()].copy_from_slice(b"\\ufffd");
    }
    (!halves.is_empty()).then_some(whole)
}

/// The line with null for each `NaN`, `Infinity` and `-Infinity` that stands where a value may; `None` when none does.
pub(crate) fn without_odd_numbers(line: &[u8]) -> Option<Vec<u8>> {
    const ODD: [&[u8]; 3] = [b"NaN", b"-Infinity", b"Infinity"];
    let (mut read, mut at, mut is_changed) = (Vec::new(), 0, false);
    let (mut is_text, mut is_escaped) = (false, false);
    while let Some(byte) = line.get(at) {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' if is_text => is_escaped = true,
            b'"' => is_text = !is_text,
            b'N' | b'I' | b'-' if !is_text => {
                if let Some(odd) = ODD.into_iter().find(|odd| line[at..].starts_with(odd)) {
                    read.extend_from_slice(b"null");
                    (at, is_changed) = (at + odd.len(), true);
                    continue;
                }
            }
            _ => {}
        }
        read.push(*byte);
        at += 1;
    }
    is_changed.then_some(read)
}

/// As some servers write one.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// Reads a message. One that holds what is not carried exactly is read all the same, and says so. One with more than `MAX_VALUES` values is an answer that says so in the place of its result, a success or a failure as
/// it was; a question or notice of that kind is an error.
///
/// # Errors
/// It is not JSON, or no message of the protocol and too much.
pub fn read_message(bytes: &[u8]) -> Result<Value, serde_json::Error> {
    let bytes = bytes.strip_prefix(BYTE_ORDER_MARK).unwrap_or(bytes);
    if !is_too_much(bytes) {
        let text = str::from_utf8(bytes).ok().filter(|_| !is_too_deep(bytes));
        let exactly = text.and_then(|text| ua_core::parse_strict(text).ok());
        return exactly.map_or_else(|| read_loosely(bytes), Ok);
    }
    let frame: Frame = serde_json::from_slice(bytes)?;
    if frame.method.is_some() {
        return Err(serde_json::Error::custom(format!("it holds more than {MAX_VALUES} values")));
    }
    let mut message = Map::new();
    if frame.jsonrpc.is_some() {
        message.insert("jsonrpc".to_owned(), "2.0".into());
    }
    message.extend(frame.id.map(|Id(id)| ("id".to_owned(), id)));
    message.extend(frame.result.map(|result| ("result".to_owned(), instead(&result))));
    message.extend(frame.error.map(|error| {
        ("error".to_owned(), json!({ "code": error.code, "message": error.message.unwrap_or_default() }))
    }));
    Ok(Value::Object(message))
}

/// The same where this program itself is asked: with the order in which the fields of a form were written beside them.
///
/// # Errors
/// As those of [`read_message`].
pub(crate) fn read_with_forms(bytes: &[u8]) -> Result<Value, serde_json::Error> {
    let mut message = read_message(bytes)?;
    let bytes = bytes.strip_prefix(BYTE_ORDER_MARK).unwrap_or(bytes);
    crate::form_order::keep(bytes, &mut message);
    Ok(message)
}

fn instead(result: &Head) -> Value {
    let text = format!("[the result of more than {MAX_VALUES} values {}; the call itself ended]", crate::wire::DROPPED);
    let mut short = json!({ "content": [{ "type": "text", "text": text }] });
    if let Some(is_error) = result.is_error {
        short["isError"] = is_error.into();
    }
    short
}

/// At least as many as there are: each but the first of a list or an object has a comma in front of it.
fn values(bytes: &[u8]) -> usize {
    let (mut count, mut is_text, mut is_escaped) = (1_usize, false, false);
    for byte in bytes {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' if is_text => is_escaped = true,
            b'"' => is_text = !is_text,
            b',' | b'[' | b'{' if !is_text => count += 1,
            _ => {}
        }
    }
    count
}

fn is_too_deep(bytes: &[u8]) -> bool {
    let mut depth = Depth::default();
    bytes.iter().any(|byte| {
        depth.take(*byte);
        depth.open > MAX_DEPTH
    })
}

/// How deep a reader of JSON is in it, byte by byte.
#[derive(Default)]
struct Depth {
    open: usize,
    is_text: bool,
    is_escaped: bool,
}

impl Depth {
    fn take(&mut self, byte: u8) {
        match byte {
            _ if self.is_escaped => self.is_escaped = false,
            b'\\' if self.is_text => self.is_escaped = true,
            b'"' => self.is_text = !self.is_text,
            b'[' | b'{' if !self.is_text => self.open += 1,
            b']' | b'}' if !self.is_text => self.open = self.open.saturating_sub(1),
            _ => {}
        }
    }
}

/// The line with a text for each list and object that lies too deep; `None` when none does.
pub(crate) fn shallow(line: &[u8]) -> Option<Vec<u8>> {
    if !is_too_deep(line) {
        return None;
    }
    let (mut shallow, mut depth) = (Vec::with_capacity(line.len()), Depth::default());
    for byte in line {
        let before = depth.open;
        depth.take(*byte);
        if before <= MAX_DEPTH && depth.open > MAX_DEPTH {
            shallow.extend_from_slice(format!("\"{TOO_DEEP}\"").as_bytes());
        } else if before.max(depth.open) <= MAX_DEPTH {
            shallow.push(*byte);
        }
    }
    Some(shallow)
}

/// What an answer is told by, without what it holds.
#[derive(Deserialize)]
struct Frame {
    jsonrpc: Option<IgnoredAny>,
    id: Option<Id>,
    method: Option<IgnoredAny>,
    result: Option<Head>,
    error: Option<Refusal>,
}

/// The beginning of a result.
#[derive(Deserialize)]
struct Head {
    #[serde(rename = "isError")]
    is_error: Option<bool>,
}

#[derive(Deserialize)]
struct Refusal {
    code: i64,
    message: Option<String>,
}

/// A number or a text; anything else could hold as much as the message.
struct Id(Value);

impl<'de> Deserialize<'de> for Id {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Simple;
        impl Visitor<'_> for Simple {
            type Value = Id;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a number or a text")
            }

            fn visit_u64<E: Error>(self, id: u64) -> Result<Id, E> {
                Ok(Id(id.into()))
            }

            fn visit_i64<E: Error>(self, id: i64) -> Result<Id, E> {
                Ok(Id(id.into()))
            }

            fn visit_str<E: Error>(self, id: &str) -> Result<Id, E> {
                Ok(Id(id.into()))
            }
        }
        deserializer.deserialize_any(Simple)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn many(value: &str, number: usize) -> String {
        vec![value; number].join(",")
    }

    /// An answer of any depth is read; what lies too deep in it is said to be missing, and the rest can be kept further in.
    #[test]
    fn s15_what_lies_too_deep_is_left_out_and_said() {
        for deep in [1, 90, 97, 98, 120, 125, 126, 127, 128, 129, 1_000, 90_000] {
            for (open, close) in [("[", "]"), ("{\"a\":", "}")] {
                let value = format!("{}\"[{{\\\"[\"{}", open.repeat(deep), close.repeat(deep));
                let answer = format!(
                    r#"{{"jsonrpc":"2.0","id":3,"result":{{"content":[],"structuredContent":{{"x":{value},"y":1}}}}}}"#
                );
                let read = read_message(answer.as_bytes()).unwrap();
                assert_eq!((&read["id"], &read["result"]["structuredContent"]["y"]), (&json!(3), &json!(1)));
                let is_cut = read["result"].to_string().contains(TOO_DEEP);
                assert_eq!(is_cut, deep + 3 > MAX_DEPTH, "{deep}");
                let told = read["result"]["content"].to_string();
                assert_eq!(told.contains("what is nested more than 100 deep is left out"), is_cut, "{told}");
                let further_in = format!("{}{read}{}", "[".repeat(20), "]".repeat(20));
                assert!(serde_json::from_str::<Value>(&further_in).is_ok());
                let request = format!(r#"{{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{{"x":{value}}}}}"#);
                assert_eq!(read_message(request.as_bytes()).is_err(), deep + 2 > MAX_DEPTH, "{deep}");
            }
        }
    }

    #[test]
    fn s15_an_answer_of_very_many_values_is_dropped_before_it_is_one() {
        for value in ["{}", "0", "[]", "{\"a\":1}", "\"\""] {
            let list = many(value, MAX_VALUES);
            for (is_error, end) in [(None, ""), (Some(true), ",\"isError\":true")] {
                let answer = format!(
                    "{{\"result\":{{\"structuredContent\":{{\"x\":[{list}]}}{end}}},\"jsonrpc\":\"2.0\",\"id\":3}}"
                );
                let read = read_message(answer.as_bytes()).unwrap();
                assert_eq!((&read["jsonrpc"], &read["id"]), (&json!("2.0"), &json!(3)));
                assert_eq!(read["result"].get("isError").and_then(Value::as_bool), is_error);
                let told = read["result"]["content"][0]["text"].as_str().unwrap();
                assert!(told.contains("more than 200000 values was too large and was dropped"), "{told}");
                assert_eq!(read["result"].get("structuredContent"), None);
            }
        }
        let list = many("{}", MAX_VALUES);
        let error = format!(
            "{{\"jsonrpc\":\"2.0\",\"id\":\"3\",\"error\":{{\"code\":-3,\"message\":\"m\",\"data\":[{list}]}}}}"
        );
        assert_eq!(
            read_message(error.as_bytes()).unwrap(),
            json!({"jsonrpc": "2.0", "id": "3", "error": {"code": -3, "message": "m"}})
        );
        for wrong in [
            format!("{{\"jsonrpc\":\"2.0\",\"method\":\"x\",\"params\":[{list}]}}"),
            format!("{{\"jsonrpc\":\"2.0\",\"id\":[{list}],\"result\":{{}}}}"),
            format!("[{list}]"),
        ] {
            assert!(read_message(wrong.as_bytes()).is_err());
        }
    }

    /// What is not carried as it was written is said, and nothing is said of what is.
    #[test]
    fn what_is_changed_is_marked() {
        for (value, word) in [
            ("20000000000000000001", "20000000000000000001"),
            ("12345678901234567.89", "12345678901234567.89"),
            ("0.1000000000000000055", "0.1000000000000000055"),
            ("\"\\ud83d\"", "\\ud83d"),
            ("{\"a\":1,\"a\":2}", "twice"),
        ] {
            let read = |body: &str| read_message(format!("{{\"id\":1,{body}}}").as_bytes()).unwrap();
            let result = read(&format!("\"result\":{{\"structuredContent\":{{\"n\":{value}}}}}"));
            assert!(result["result"]["_meta"][CHANGED][0].as_str().unwrap().contains(word), "{result}");
            let content = result["result"]["content"].as_array().unwrap();
            assert_eq!(content[0]["text"], result["result"]["structuredContent"].to_string());
            assert!(content[1]["text"].as_str().unwrap().contains(word), "{result}");
            let error = read(&format!("\"error\":{{\"code\":1,\"message\":\"m\",\"data\":{value}}}"));
            assert!(error["error"]["message"].as_str().unwrap().contains(word), "{error}");
            let told = read(&format!("\"method\":\"m\",\"params\":{{\"n\":{value}}}"));
            assert!(told["params"]["_meta"][CHANGED][0].is_string(), "{told}");
        }
        let exact = r#"{"id":1,"result":{"structuredContent":{"n":[0.1,1e3,18446744073709551615,"\\ud83d"]}}}"#;
        assert_eq!(read_message(exact.as_bytes()).unwrap(), serde_json::from_str::<Value>(exact).unwrap());
    }

    /// A name that is given twice is said to whoever reads the result, wherever it stands, in whichever letters, and whatever else is changed.
    #[test]
    fn a_name_that_is_given_twice_is_told_in_a_text() {
        for (result, names) in [
            (r#"{"content":[{"type":"text","text":"paid","text":"not paid"}]}"#, vec!["text"]),
            (r#"{"content":[{"type":"text","text":"paid","\u0074ext":"not paid"}]}"#, vec!["text"]),
            (r#"{"content":[],"structuredContent":{"a":[{"b":{"id":1,"id":2}}]}}"#, vec!["id"]),
            (r#"{"structuredContent":{"id":1,"\u0069d":2},"_meta":7}"#, vec!["id"]),
            (
                r#"{"content":[],"_meta":{"c":{"x":1,"x":2,"x":3},"d":{"y":1,"y":0.1000000000000000055}}}"#,
                vec!["x", "y", "0.1000000000000000055"],
            ),
            (
                r#"{"content":[{"type":"text","text":"\ud83d","\ud83d":1,"\ud83e":2}]}"#,
                vec!["\u{fffd}", "\\ud83d", "\\ud83e"],
            ),
        ] {
            let read = read_message(format!(r#"{{"jsonrpc":"2.0","id":1,"result":{result}}}"#).as_bytes()).unwrap();
            let marks = read["result"]["_meta"][CHANGED].as_array().unwrap().clone();
            let told =
                read["result"]["content"].as_array().unwrap().last().unwrap()["text"].as_str().unwrap().to_owned();
            for name in &names {
                let is_named = |mark: &Value| mark.as_str().unwrap().contains(name);
                assert!(marks.iter().any(is_named) && told.contains(name), "{result}: {read}");
            }
            let twice = marks.iter().filter(|mark| mark.as_str().unwrap().contains("twice, of which the last"));
            assert!(twice.count() == if names.contains(&"x") { 2 } else { 1 }, "{result}: {read}");
        }
        let read = |body: &str| read_message(format!(r#"{{"id":1,{body}}}"#).as_bytes()).unwrap();
        let error = read(r#""error":{"code":1,"data":{"a":1,"a":2}}"#);
        assert!(error["error"]["message"].as_str().unwrap().contains("twice"), "{error}");
        let list = read(r#""result":{"tools":[{"name":"a","name":"b"}]}"#);
        assert!(list["result"].get("content").is_none() && list["result"]["_meta"][CHANGED][0].is_string(), "{list}");
    }

    /// A result that is no object has no room for a mark, and is marked all the same.
    #[test]
    fn a_result_that_is_no_object_is_marked_as_any_other() {
        for (result, said, word) in [
            ("[{\"id\":1,\"id\":2}]", "[{\"id\":2}]", "twice"),
            ("20000000000000000001", "2e+19", "20000000000000000001"),
            ("\"cut \\ud83d\"", "cut \u{fffd}", "\\ud83d"),
            ("[0.1000000000000000055]", "[0.1]", "0.1000000000000000055"),
        ] {
            let read = read_message(format!(r#"{{"id":1,"result":{result}}}"#).as_bytes()).unwrap();
            let result = &read["result"];
            assert_eq!(result["content"][0]["text"], said, "{read}");
            assert!(result["content"][1]["text"].as_str().unwrap().contains(word), "{read}");
            assert!(result["_meta"][CHANGED][0].as_str().unwrap().contains(word), "{read}");
        }
        for exact in ["[1]", "\"sent\"", "null", "7"] {
            let read = read_message(format!(r#"{{"id":1,"result":{exact}}}"#).as_bytes()).unwrap();
            assert_eq!(read["result"], serde_json::from_str::<Value>(exact).unwrap());
        }
    }

    /// A null beside an error stays one, as an answer of JSON-RPC 1.0 has it; and what is no number is no result.
    #[test]
    fn a_null_in_the_place_of_a_result_is_not_made_a_text() {
        for error in [r#"{"code":-3,"message":"m","data":NaN}"#, r#"{"code":-3,"message":"m","data":{"a":1,"a":2}}"#] {
            let read = read_message(format!(r#"{{"jsonrpc":"2.0","id":1,"result":null,"error":{error}}}"#).as_bytes())
                .unwrap();
            assert_eq!(read["result"], Value::Null, "{read}");
            assert!(read["error"]["message"].as_str().unwrap().contains("not carried as it was written"), "{read}");
            let answer = crate::wire::answer(&mut read.as_object().unwrap().clone()).unwrap();
            assert!(matches!(answer, crate::wire::Answer::Error { code: -3, .. }), "{answer:?}");
        }
        for result in [r#""result":NaN"#, r#""result":-Infinity,"error":null"#, r#""result":null,"error":NaN"#] {
            let read = read_message(format!(r#"{{"id":1,{result}}}"#).as_bytes()).unwrap();
            assert_eq!(read["result"], Value::Null, "{read}");
        }
    }

    /// Two ids, or two words about how it ended, are two answers.
    #[test]
    fn what_says_two_things_in_its_frame_is_no_answer() {
        for twice in [
            r#"{"jsonrpc":"2.0","id":999,"id":1,"error":{"code":-32601,"message":"m"}}"#,
            r#"{"jsonrpc":"2.0","id":1,"error":{"code":-1,"code":-32601,"message":"m"}}"#,
            r#"{"jsonrpc":"2.0","id":1,"error":null,"error":{"code":-32601,"message":"m"}}"#,
            r#"{"jsonrpc":"2.0","id":1,"result":{},"result":{"content":[]}}"#,
            r#"{"jsonrpc":"2.0","id":1,"result":{"isError":true,"isError":false,"content":[]}}"#,
            r#"{"jsonrpc":"2.0","id":1,"id":1,"result":{"content":[{"type":"text","text":"\ud83d"}]}}"#,
        ] {
            let error = read_message(twice.as_bytes()).unwrap_err().to_string();
            assert!(error.contains("twice"), "{twice}: {error}");
        }
    }

    #[test]
    fn text_is_no_values() {
        let text = json!({"jsonrpc": "2.0", "id": 1, "result": {"text": ",[{\"\\,".repeat(MAX_VALUES)}});
        assert_eq!(read_message(text.to_string().as_bytes()).unwrap(), text);
        assert_eq!(values(br#"{"a":[1,2,{"b":"x,[{\",{"}]}"#), 6);
        let rows = json!({"result": vec![json!({"id": 1, "name": "n", "tags": ["a", "b"]}); 20_000]});
        assert_eq!(read_message(rows.to_string().as_bytes()).unwrap(), rows);
    }
}
