//! The order in which a tool names the fields of a form: a person is asked for them as their author wrote them down, not by the alphabet.
//!
//! What is read of JSON has no order of its own, so it stands beside the fields. Only where it would not be theirs anyway: most forms are as they
//! were written.
//! Proved by: the tests below; `ua-e2e`'s `attended`.

use std::fmt;

use serde::de::{DeserializeSeed, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize as _, Deserializer};
use serde_json::{Value, json};
use ua_core::FIELD_ORDER;

/// What asks a person for values.
const SCHEMA: &str = "requestedSchema";
/// A form of more fields is shown in whatever order.
const MOST_FIELDS: usize = 200;

/// Notes in each form of `message`, which was read from `bytes`, in which order its fields were written.
pub(crate) fn keep(bytes: &[u8], message: &mut Value) {
    let has_form = bytes.windows(SCHEMA.len()).any(|part| part == SCHEMA.as_bytes());
    if has_form {
        // What is read here was read before; where it cannot be, there is no order.
        Forms(message).deserialize(&mut serde_json::Deserializer::from_slice(bytes)).ok();
    }
}

/// Walks a text beside what was read of it.
struct Forms<'v>(&'v mut Value);

impl<'de> DeserializeSeed<'de> for Forms<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        match self.0 {
            Value::Object(_) | Value::Array(_) => deserializer.deserialize_any(self),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
                IgnoredAny::deserialize(deserializer).map(drop)
            }
        }
    }
}

impl<'de> Visitor<'de> for Forms<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list or an object")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        let read = self.0.as_array_mut().ok_or_else(|| A::Error::custom("a list was read as something else"))?;
        for value in read {
            list.next_element_seed(Forms(value))?;
        }
        while list.next_element::<IgnoredAny>()?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<(), A::Error> {
        while let Some(name) = members.next_key::<String>()? {
            match self.0.get_mut(&name) {
                Some(schema) if name == SCHEMA => members.next_value_seed(Schema(schema))?,
                Some(value) => members.next_value_seed(Forms(value))?,
                None => drop(members.next_value::<IgnoredAny>()?),
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
    use crate::amount::read_message;

    fn names(params: &Value) -> Vec<&str> {
        ua_core::fields(params).map(|(name, _)| name.as_str()).collect()
    }

    #[test]
    fn the_fields_of_a_form_stand_as_they_were_written_wherever_the_form_does() {
        let form = r#"{"message":"?","requestedSchema":{"type":"object","properties":{"size":{"type":"string"},"amount":{},"gift":{},"note":{}},"required":["gift"]}}"#;
        let asked = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"elicitation/create","params":{form}}}"#);
        let wanted = ["size", "amount", "gift", "note"];
        let read = read_message(asked.as_bytes()).unwrap();
        assert_eq!(names(&read["params"]), wanted);
        let several = format!(
            r#"{{"id":1,"result":{{"inputRequests":{{"a":{{"method":"elicitation/create","params":{form}}}}},"x":[1,[{form}]]}}}}"#
        );
        let read = read_message(several.as_bytes()).unwrap();
        assert_eq!(names(&read["result"]["inputRequests"]["a"]["params"]), wanted);
        assert_eq!(names(&read["result"]["x"][1][0]), wanted);
        // What can be left out may come first.
        let first =
            r#"{"id":1,"method":"m","params":{"requestedSchema":{"required":["b"],"properties":{"a":{},"b":{}}}}}"#;
        assert_eq!(names(&read_message(first.as_bytes()).unwrap()["params"]), ["a", "b"]);
        // Nothing stands beside fields that are in their order anyway, nor where there are too many or none.
        for fields in [r#"{"a":{},"b":{}}"#.to_owned(), "{}".to_owned(), "[]".to_owned(), "3".to_owned(), {
            let many: Vec<String> = (0..=MOST_FIELDS).rev().map(|number| format!(r#""f{number}":{{}}"#)).collect();
            format!("{{{}}}", many.join(","))
        }] {
            let asked = format!(r#"{{"id":1,"method":"m","params":{{"requestedSchema":{{"properties":{fields}}}}}}}"#);
            let read = read_message(asked.as_bytes()).unwrap();
            assert_eq!(read, serde_json::from_str::<Value>(&asked).unwrap(), "{fields}");
        }
        // What only holds the word is no form.
        let told = r#"{"id":1,"result":{"content":["requestedSchema"],"requestedSchema":"b"}}"#;
        assert_eq!(read_message(told.as_bytes()).unwrap(), serde_json::from_str::<Value>(told).unwrap());
    }
}
