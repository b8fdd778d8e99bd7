//! The order in which a tool names the fields of a form: a person is asked for them as their author wrote them down, not by the alphabet.
//!
//! What is read of JSON has no order of its own, so it stands beside the fields. Only where it would not be theirs anyway: most forms are as they
//! were written. And only in what asks for values: the same word in a result or in a tool's definition is its author's own.
//! Proved by: the tests below; `ua-e2e`'s `attended`.

use std::fmt;

use serde::de::{DeserializeSeed, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize as _, Deserializer};
use serde_json::{Value, json};
use ua_core::FIELD_ORDER;

/// What asks a person for values.
const SCHEMA: &str = "requestedSchema";
/// The method of a request that does.
const ASKS: &str = "elicitation/create";
/// A form of more fields is shown in whatever order.
const MOST_FIELDS: usize = 200;

/// Notes in each form that `message` asks for, which was read from `bytes`, in which order its fields were written.
pub(crate) fn keep(bytes: &[u8], message: &mut Value) {
    let has_form = bytes.windows(SCHEMA.len()).any(|part| part == SCHEMA.as_bytes());
    if has_form {
        // What is read here was read before; where it cannot be, there is no order.
        Forms { read: message, place: Place::Message }
            .deserialize(&mut serde_json::Deserializer::from_slice(bytes))
            .ok();
    }
}

/// Where a form may be: what a message asks for, and what a result says that its call asks for.
#[derive(Debug, Clone, Copy)]
enum Place {
    /// The message itself, or a request in a result.
    Message,
    Result,
    Requests,
    Params,
}

impl Place {
    /// Where the member `name` of `read`, which is here, leads to.
    fn member(self, name: &str, read: &Value) -> Option<Self> {
        match (self, name) {
            (Self::Message, "params") if read["method"] == ASKS => Some(Self::Params),
            (Self::Message, "result") => Some(Self::Result),
            (Self::Result, "inputRequests") => Some(Self::Requests),
            (Self::Requests, _) => Some(Self::Message),
            (Self::Message | Self::Result | Self::Params, _) => None,
        }
    }
}

/// Walks a text beside what was read of it.
struct Forms<'v> {
    read: &'v mut Value,
    place: Place,
}

impl<'de> DeserializeSeed<'de> for Forms<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        if self.read.is_object() {
            return deserializer.deserialize_any(self);
        }
        IgnoredAny::deserialize(deserializer).map(drop)
    }
}

impl<'de> Visitor<'de> for Forms<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<(), A::Error> {
        let Self { read, place } = self;
        while let Some(name) = members.next_key::<String>()? {
            let next = place.member(&name, read);
            let is_form = matches!(place, Place::Params) && name == SCHEMA;
            match (read.get_mut(&name), next) {
                (Some(schema), _) if is_form => members.next_value_seed(Schema(schema))?,
                (Some(read), Some(place)) => members.next_value_seed(Forms { read, place })?,
                _ => drop(members.next_value::<IgnoredAny>()?),
            }
        }
        Ok(())
    }
}

/// The same in the schema of a form.
struct Schema<'v>(&'v mut Value);

impl<'de> DeserializeSeed<'de> for Schema<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Schema<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a schema")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<(), A::Error> {
        let mut order: Vec<String> = Vec::new();
        while let Some(name) = members.next_key::<String>()? {
            if name == "properties" {
                order = members.next_value_seed(FieldNames)?;
            } else {
                members.next_value::<IgnoredAny>()?;
            }
        }
        let is_known = |name: &String| self.0.get("properties").is_some_and(|fields| fields.get(name).is_some());
        if order.len() > MOST_FIELDS || !order.iter().all(is_known) {
            return Ok(());
        }
        let params = json!({ SCHEMA: self.0 });
        if ua_core::fields(&params).map(|(name, _)| name).eq(&order) {
            return Ok(());
        }
        if let Some(schema) = self.0.as_object_mut() {
            schema.insert(FIELD_ORDER.to_owned(), order.into());
        }
        Ok(())
    }
}

/// The names of a form's fields, each where it stands last.
struct FieldNames;

impl<'de> DeserializeSeed<'de> for FieldNames {
    type Value = Vec<String>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Vec<String>, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for FieldNames {
    type Value = Vec<String>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the fields of a form")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Vec<String>, A::Error> {
        let mut names: Vec<String> = Vec::new();
        while let Some(name) = members.next_key::<String>()? {
            members.next_value::<IgnoredAny>()?;
            if names.len() <= MOST_FIELDS {
                names.retain(|known| *known != name);
                names.push(name);
            }
        }
        Ok(names)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::amount::read_with_forms;

    fn names(params: &Value) -> Vec<&str> {
        ua_core::fields(params).map(|(name, _)| name.as_str()).collect()
    }

    #[test]
    fn the_fields_of_a_form_stand_as_they_were_written_wherever_the_form_does() {
        let form = r#"{"message":"?","requestedSchema":{"type":"object","properties":{"size":{"type":"string"},"amount":{},"gift":{},"note":{}},"required":["gift"]}}"#;
        let asked = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"elicitation/create","params":{form}}}"#);
        let wanted = ["size", "amount", "gift", "note"];
        let read = read_with_forms(asked.as_bytes()).unwrap();
        assert_eq!(names(&read["params"]), wanted);
        let several = format!(
            r#"{{"id":1,"result":{{"inputRequests":{{"a":{{"method":"elicitation/create","params":{form}}}}},"x":[1,[{form}]]}}}}"#
        );
        let read = read_with_forms(several.as_bytes()).unwrap();
        assert_eq!(names(&read["result"]["inputRequests"]["a"]["params"]), wanted);
        // Anywhere else the words are those of a result, or of a tool.
        let mut several = serde_json::from_str::<Value>(&several).unwrap();
        several["result"]["inputRequests"] = read["result"]["inputRequests"].clone();
        assert_eq!(read, several);
        for other in [
            format!(
                r#"{{"id":1,"result":{{"structuredContent":{form},"tools":[{{"inputSchema":{{"properties":{form}}}}}]}}}}"#
            ),
            format!(
                r#"{{"id":1,"method":"tools/call","params":{{"name":"ask","arguments":{form},"requestedSchema":{form}}}}}"#
            ),
            format!(r#"{{"id":1,"result":{{"inputRequests":{{"a":{{"method":"m","params":{form}}}}}}}}}"#),
        ] {
            let read = read_with_forms(other.as_bytes()).unwrap();
            assert_eq!(read, serde_json::from_str::<Value>(&other).unwrap());
        }
        // And whoever passes a message on adds nothing to it.
        let passed = crate::amount::read_message(asked.as_bytes()).unwrap();
        assert_eq!(passed, serde_json::from_str::<Value>(&asked).unwrap());
        // What can be left out may come first.
        let first = r#"{"id":1,"method":"elicitation/create","params":{"requestedSchema":{"required":["b"],"properties":{"a":{},"b":{}}}}}"#;
        assert_eq!(names(&read_with_forms(first.as_bytes()).unwrap()["params"]), ["a", "b"]);
        // Nothing stands beside fields that are in their order anyway, nor where there are too many or none.
        for fields in [r#"{"a":{},"b":{}}"#.to_owned(), "{}".to_owned(), "[]".to_owned(), "3".to_owned(), {
            let many: Vec<String> = (0..=MOST_FIELDS).rev().map(|number| format!(r#""f{number}":{{}}"#)).collect();
            format!("{{{}}}", many.join(","))
        }] {
            let asked = format!(
                r#"{{"id":1,"method":"elicitation/create","params":{{"requestedSchema":{{"properties":{fields}}}}}}}"#
            );
            let read = read_with_forms(asked.as_bytes()).unwrap();
            assert_eq!(read, serde_json::from_str::<Value>(&asked).unwrap(), "{fields}");
        }
        // What only holds the word is no form.
        let told = r#"{"id":1,"result":{"content":["requestedSchema"],"requestedSchema":"b"}}"#;
        assert_eq!(read_with_forms(told.as_bytes()).unwrap(), serde_json::from_str::<Value>(told).unwrap());
    }
}
