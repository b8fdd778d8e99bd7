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

/// A list without its nulls, which stand for nothing: no element of a reply is one. Every other element is read as strictly as its type says.
pub(crate) fn list<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Vec<T>>, D::Error> {
    let read = Option::<Vec<Option<T>>>::deserialize(deserializer)?;
    Ok(read.map(|elements| elements.into_iter().flatten().collect()))
}

/// The same of what is read elsewhere; anything but a list is not there.
pub(crate) fn values<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Vec<Value>>, D::Error> {
    Ok(match Value::deserialize(deserializer)? {
        Value::Array(values) => Some(without_nulls(values)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Object(_) => None,
    })
}

/// The elements of a list that are something.
pub(crate) fn without_nulls(mut values: Vec<Value>) -> Vec<Value> {
    values.retain(|value| !value.is_null());
    values
}

/// Anything else: what cannot be read is not there.
pub(crate) fn maybe<'de, T: DeserializeOwned, D: Deserializer<'de>>(deserializer: D) -> Result<Option<T>, D::Error> {
    Ok(serde_json::from_value(Value::deserialize(deserializer)?).ok())
}
