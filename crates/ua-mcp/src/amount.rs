//! How many values a message may hold: a few bytes make a value, and a value takes a hundred times as many, then as many again where it is
//! redacted, checked and stored. So the bytes are counted before anything is made of them, and of a message that holds too many only its
//! frame is read.
//!
//! Threat S15 of `docs/security.md`. Proved by: the tests below and `tests::hostile`.

use serde::de::{Error, IgnoredAny, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value, json};

/// The most values of one message: elements of lists, members of objects, and these themselves.
pub(crate) const MAX_VALUES: usize = 200_000;

/// Reads a message. One with more than `MAX_VALUES` values is an answer that says so in the place of its result, a success or a failure as
/// it was; a question or notice of that kind is an error.
///
/// # Errors
/// It is not JSON, or no message of the protocol and too much.
pub fn read_message(bytes: &[u8]) -> Result<Value, serde_json::Error> {
    if values(bytes) <= MAX_VALUES {
        return serde_json::from_slice(bytes);
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

    #[test]
    fn text_is_no_values() {
        let text = json!({"jsonrpc": "2.0", "id": 1, "result": {"text": ",[{\"\\,".repeat(MAX_VALUES)}});
        assert_eq!(read_message(text.to_string().as_bytes()).unwrap(), text);
        assert_eq!(values(br#"{"a":[1,2,{"b":"x,[{\",{"}]}"#), 6);
        let rows = json!({"result": vec![json!({"id": 1, "name": "n", "tags": ["a", "b"]}); 20_000]});
        assert_eq!(read_message(rows.to_string().as_bytes()).unwrap(), rows);
    }
}
