//! What a request has otherwise than the recorded one that is nearest to it.

use serde_json::Value;

/// Characters of a text that are shown.
const SHOWN: usize = 60;

/// Says where `asked` first differs from the recorded request that has most in common with it.
pub(super) fn explain(asked: &Value, recorded: &[&Value]) -> String {
    let nearest = recorded.iter().max_by_key(|other| in_common(asked, other));
    match nearest.and_then(|other| first_difference("", asked, other)) {
        Some(difference) => format!("no recorded request matches; the nearest one differs at {difference}"),
        None => "no request was recorded".to_owned(),
    }
}

/// How much two requests have in common: as many messages, and then the same ones from the first on.
fn in_common(asked: &Value, other: &Value) -> (bool, usize, bool) {
    let (asked_messages, other_messages) = (messages(asked), messages(other));
    let same = asked_messages.iter().zip(other_messages).take_while(|(a, b)| a == b).count();
    let rest = ["model", "system", "tools"].iter().all(|field| asked[field] == other[field]);
    (asked_messages.len() == other_messages.len(), same, rest)
}

fn messages(request: &Value) -> &[Value] {
    request["messages"].as_array().map_or(&[], Vec::as_slice)
}

/// The place of the first difference, and both sides of it.
fn first_difference(place: &str, asked: &Value, recorded: &Value) -> Option<String> {
    match (asked, recorded) {
        (Value::Object(a), Value::Object(b)) => {
            let names: std::collections::BTreeSet<&String> = a.keys().chain(b.keys()).collect();
            names.into_iter().find_map(|name| {
                let (a, b) = (a.get(name).unwrap_or(&Value::Null), b.get(name).unwrap_or(&Value::Null));
                first_difference(&format!("{place}/{name}"), a, b)
            })
        }
        (Value::Array(a), Value::Array(b)) => {
            let inner = a.iter().zip(b).enumerate();
            let found = inner.into_iter().find_map(|(i, (a, b))| first_difference(&format!("{place}/{i}"), a, b));
            found.or_else(|| {
                (a.len() != b.len()).then(|| format!("{place}: {} were requested, {} were recorded", a.len(), b.len()))
            })
        }
        (Value::String(a), Value::String(b)) if a != b => {
            let same = a.chars().zip(b.chars()).take_while(|(a, b)| a == b).count();
            Some(format!("{place}, character {same}: requested {:?}, recorded {:?}", from(a, same), from(b, same)))
        }
        (a, b) if a != b => Some(format!("{place}: requested {}, recorded {}", short(a), short(b))),
        _ => None,
    }
}

fn from(text: &str, same: usize) -> String {
    text.chars().skip(same.saturating_sub(12)).take(SHOWN).collect()
}

fn short(value: &Value) -> String {
    value.to_string().chars().take(SHOWN).collect()
}
