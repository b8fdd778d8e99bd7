//! What a job wants its result to be, and whether what a model said last is that.

use serde_json::Value;
use ua_core::{CanonicalError, parse_strict};

use crate::plan::violation;
use crate::schema::{Checker, Unusable};

/// The schema of a job's result (`output_schema`).
#[derive(Debug)]
pub struct OutputSchema {
    checker: Checker,
}

impl OutputSchema {
    /// Reads a schema.
    ///
    /// # Errors
    /// What keeps it from being one, in words.
    pub fn new(schema: &Value) -> Result<Self, String> {
        let checker = Checker::new(schema).map_err(|why| match why {
            Unusable::Invalid(why) => format!("is not a valid JSON Schema: {}", wrong_in(&why)),
            Unusable::Costly(why) => format!("cannot be used to check a result: it {why}"),
        })?;
        Ok(Self { checker })
    }

    /// The value that a model's last message gives. The message is the value, or has it in its only fenced block.
    ///
    /// # Errors
    /// What the model is told: the message has no JSON value, or one that does not fit.
    pub fn read(&self, message: &str) -> Result<Value, String> {
        let message = message.trim();
        let (text, read) = match (serde_json::from_str(message), only_block(message)) {
            (Err(_), Some(inner)) => (inner, serde_json::from_str(inner)),
            (read, _) => (message, read),
        };
        let value: Value = read.map_err(|why| {
            format!("The result is missing: your last message is not a JSON value ({}). Give the result as asked: one JSON value that fits the schema, and nothing beside it.", ua_core::json_fault(text, &why))
        })?;
        // What can be read only as long as nobody looks twice: which of two values of one name was meant, nobody can know.
        if let Err(CanonicalError::Syntax(why)) = parse_strict(text) {
            return Err(format!(
                "The result cannot be used: {why}. Give the whole result again, with each name once: one JSON value, and nothing beside it."
            ));
        }
        match self.checker.violations(&value) {
            Ok(None) => Ok(value),
            Err(why) => Err(format!(
                "The result cannot be checked against its schema: {why}. Give a result that is smaller or less deeply nested: one JSON value, and nothing beside it."
            )),
            Ok(Some(wrong)) => Err(format!(
                "The result does not fit its schema. {wrong}. Give the whole result again, corrected: one JSON value, and nothing beside it."
            )),
        }
    }
}

/// Why arguments would not be held to a schema of a tool as it is written: a pattern in it needs backtracking and is left to the server, which a
/// function of a program has not. `None` where all of it counts, and where it cannot be used at all, which is told when tools are listed.
pub fn left_out_of(schema: &Value) -> Option<String> {
    Checker::of_tool(schema).ok()?;
    match Checker::new(schema) {
        Ok(_) => None,
        Err(Unusable::Invalid(why)) => Some(wrong_in(&why)),
        Err(Unusable::Costly(why)) => Some(format!("it {why}")),
    }
}

/// The types that a schema can name.
const TYPES: [&str; 7] = ["array", "boolean", "integer", "null", "number", "object", "string"];

/// What keeps a value from being a schema. What is mistyped most is a type.
fn wrong_in(error: &jsonschema::ValidationError<'_>) -> String {
    let path = error.instance_path().to_string();
    match error.instance().as_str().filter(|_| path.ends_with("/type")) {
        Some(named) => format!("{path}: {}", ua_core::not_one_of(named, &TYPES)),
        None => violation(error),
    }
}

/// What stands in the one fenced block of a text; `None` when it has none or several.
fn only_block(text: &str) -> Option<&str> {
    let (_, rest) = text.split_once("```")?;
    let (_language, rest) = rest.split_once('\n')?;
    let (inner, after) = rest.split_once("```")?;
    (!after.contains("```")).then_some(inner.trim())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn schema() -> OutputSchema {
        OutputSchema::new(&json!({"type": "object", "properties": {"cents": {"type": "integer", "minimum": 0}}, "required": ["cents"]}))
            .unwrap()
    }

    #[test]
    fn the_message_is_the_value_or_has_it_in_its_only_block() {
        for message in [
            "{\"cents\": 9}",
            " \n{\"cents\": 9}\n",
            "```json\n{\"cents\": 9}\n```",
            "Here it is:\n\n```\n{\"cents\": 9}\n```\nThat is all.",
        ] {
            assert_eq!(schema().read(message), Ok(json!({"cents": 9})), "{message:?}");
        }
    }

    #[test]
    fn what_is_wrong_is_said_so_that_it_can_be_corrected() {
        for (message, words) in [
            ("It is 9 cents.", "not a JSON value"),
            ("```json\n{\"cents\": 9}\n```\n```json\n{\"cents\": 8}\n```", "not a JSON value"),
            ("{\"cents\": \"nine\"}", "/cents"),
            ("{\"cents\": -1}", "/cents"),
            ("{}", "cents"),
            ("{\"cents\": 1, \"cents\": 2}", "\"cents\" appears twice"),
        ] {
            let told = schema().read(message).unwrap_err();
            assert!(told.contains(words) && told.ends_with("nothing beside it."), "{message:?}: {told}");
        }
    }

    #[test]
    fn a_schema_that_is_none_is_refused() {
        assert!(OutputSchema::new(&json!({"type": "objekt"})).is_err());
        assert_eq!(
            OutputSchema::new(&json!({"properties": {"a": {"type": "objct"}}})).unwrap_err(),
            "is not a valid JSON Schema: /properties/a/type: `objct` is not one of array, boolean, integer, null, number, object, string; did you mean `object`?"
        );
    }
}
