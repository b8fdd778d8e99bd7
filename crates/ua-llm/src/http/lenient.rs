//! Fields of a reply that are read as far as they can be: a null, a number with a point or a text where a number is promised loses no
//! reply that somebody paid for. What cannot be read is as if it were not there; whoever needs the field says so. What a reply says and asks for
//! (text, arguments) is never read this way: a piece that was dropped would make other arguments.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use ua_core::count_in;

/// A count: a whole number, in whatever way it is written. One that no reply can have is not told.
pub(crate) fn count<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    Ok(count_in(&Value::deserialize(deserializer)?))
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
