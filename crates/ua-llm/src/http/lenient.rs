//! Fields of a reply that are read as far as they can be: a null, a number with a point or a text where a number is promised loses no
//! reply that somebody paid for. What cannot be read is as if it were not there; whoever needs the field says so. What a reply says and asks for (text, arguments) is never read this way: a piece
//! that was dropped would make other arguments.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use crate::estimate::MOST_COUNTED;

/// A count: a whole number, in whatever way it is written. One that no reply can have is not told.
pub(crate) fn count<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    Ok(count_in(&Value::deserialize(deserializer)?))
}

fn count_in(value: &Value) -> Option<u64> {
    let rounded = |number: f64| {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            clippy::cast_precision_loss,
            reason = "the most is exact with a point, and the number was looked at before"
        )]
        (0.0..=MOST_COUNTED as f64).contains(&number).then(|| number.ceil() as u64)
    };
    let count = match value {
        Value::Number(number) => number.as_u64().or_else(|| number.as_f64().and_then(rounded)),
        Value::String(text) => text.trim().parse().ok().or_else(|| text.trim().parse().ok().and_then(rounded)),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
    };
    count.filter(|count| *count <= MOST_COUNTED)
}

/// A text; a number becomes one.
pub(crate) fn text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    Ok(match Value::deserialize(deserializer)? {
        Value::String(text) => Some(text),
        Value::Number(number) => Some(number.to_string()),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
    })
}

/// Anything else: what cannot be read is not there.
pub(crate) fn maybe<'de, T: DeserializeOwned, D: Deserializer<'de>>(deserializer: D) -> Result<Option<T>, D::Error> {
    Ok(serde_json::from_value(Value::deserialize(deserializer)?).ok())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_count_is_read_in_whatever_way_it_is_written() {
        for (value, expected) in [
            (json!(10), Some(10)),
            (json!(10.0), Some(10)),
            (json!(9.2), Some(10)),
            (json!("12"), Some(12)),
            (json!(null), None),
            (json!(-1), None),
            (json!(1e300), None),
            (json!(1_000_000_000_000_u64), Some(1_000_000_000_000)),
            (json!(1_000_000_000_001_u64), None),
            (json!(1e12), Some(1_000_000_000_000)),
            (json!(1.1e12), None),
            (json!(i64::MAX), None),
            (json!(u64::MAX), None),
            (json!("18446744073709551615"), None),
            (json!("many"), None),
            (json!({}), None),
        ] {
            assert_eq!(count_in(&value), expected, "{value}");
        }
    }
}
