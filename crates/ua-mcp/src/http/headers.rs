//! The headers that requests of the newest revision carry, so that what lies on the way can route them without reading them
//! (MCP SEP-2243): the method, the name of what is asked for, and arguments that a tool's schema marks with `x-mcp-header`.

use serde_json::{Map, Value};

/// What an argument's header begins with.
const PARAM: &str = "Mcp-Param-";

/// The name that goes with a request, if its method has one.
pub(crate) fn name_of<'p>(method: &str, params: &'p Map<String, Value>) -> Option<&'p str> {
    let field = match method {
        "tools/call" | "prompts/get" => "name",
        "resources/read" => "uri",
        "tasks/get" | "tasks/update" | "tasks/cancel" => "taskId",
        _ => return None,
    };
    params.get(field)?.as_str()
}

/// A header's value for any text: as it is where headers can carry it, else in Base64 with a mark.
pub(crate) fn encoded(text: &str) -> String {
    let is_plain = text.chars().all(|c| matches!(c, ' '..='~'));
    let is_edged = text.starts_with([' ', '\t']) || text.ends_with([' ', '\t']);
    let looks_encoded = text.starts_with("=?base64?") && text.ends_with("?=");
    if is_plain && !is_edged && !looks_encoded {
        text.to_owned()
    } else {
        format!("=?base64?{}?=", base64(text.as_bytes()))
    }
}

const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

fn base64(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let byte = |at: usize| u32::from(chunk.get(at).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for at in 0..4 {
            let digit = usize::try_from(bits >> (18 - 6 * at) & 63).unwrap_or(0);
            text.push(if at <= chunk.len() { char::from(DIGITS[digit]) } else { '=' });
        }
    }
    text
}

/// The value of a digit.
pub(super) fn digit(c: u8) -> Option<u32> {
    DIGITS.iter().position(|digit| *digit == c).and_then(|place| u32::try_from(place).ok())
}

/// The arguments of a tool that go into headers: the way to each, and its header.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ParamHeaders(Vec<(Vec<String>, String)>);

impl ParamHeaders {
    /// Reads the marks of a tool's schema. The error says what is wrong with one; such a tool cannot be called.
    pub(crate) fn of(schema: &Map<String, Value>) -> Result<Self, String> {
        let mut found = Self::default();
        if schema.contains_key("x-mcp-header") {
            return Err("`x-mcp-header` marks its whole schema, not an argument".to_owned());
        }
        found.collect(schema, &mut Vec::new())?;
        let marks = count(&Value::Object(schema.clone()));
        if marks != found.0.len() {
            return Err("`x-mcp-header` is set where there is no argument".to_owned());
        }
        Ok(found)
    }

    fn collect(&mut self, schema: &Map<String, Value>, path: &mut Vec<String>) -> Result<(), String> {
        let Some(properties) = schema.get("properties").and_then(Value::as_object) else { return Ok(()) };
        for (name, schema) in properties {
            let Some(schema) = schema.as_object() else { continue };
            path.push(name.clone());
            if let Some(header) = schema.get("x-mcp-header") {
                let why = |why: &str| format!("`x-mcp-header` of its argument `{}` {why}", path.join("."));
                let header = header.as_str().ok_or_else(|| why("is not text"))?;
                let is_token = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c);
                if header.is_empty() || !header.chars().all(is_token) {
                    return Err(why("is not the name of a header"));
                }
                if !matches!(schema.get("type").and_then(Value::as_str), Some("string" | "integer" | "boolean")) {
                    return Err(why("marks something that is not text, an integer or boolean"));
                }
                if self.0.iter().any(|(_, other)| other.eq_ignore_ascii_case(header)) {
                    return Err(why("is there twice"));
                }
                self.0.push((path.clone(), header.to_owned()));
            }
            self.collect(schema, path)?;
            path.pop();
        }
        Ok(())
    }

    /// The headers of a call with these arguments.
    pub(crate) fn values(&self, arguments: &Map<String, Value>) -> Vec<(String, String)> {
        let value = |path: &[String]| {
            let mut value = arguments.get(path.first()?)?;
            for step in &path[1..] {
                value = value.get(step)?;
            }
            match value {
                Value::String(text) => Some(encoded(text)),
                Value::Bool(_) | Value::Number(_) => Some(value.to_string()),
                Value::Null | Value::Array(_) | Value::Object(_) => None,
            }
        };
        self.0.iter().filter_map(|(path, header)| Some((format!("{PARAM}{header}"), value(path)?))).collect()
    }
}

/// How many marks there are, wherever they stand. An argument that is itself called like the mark is none.
fn count(schema: &Value) -> usize {
    match schema {
        Value::Object(fields) => fields
            .iter()
            .map(|(name, value)| match name.as_str() {
                "x-mcp-header" => 1,
                "properties" => value.as_object().map_or(0, |properties| properties.values().map(count).sum()),
                "default" | "const" | "enum" | "examples" => 0,
                _ => count(value),
            })
            .sum(),
        Value::Array(items) => items.iter().map(count).sum(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 0,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn of(properties: &Value) -> Result<ParamHeaders, String> {
        ParamHeaders::of(json!({"type": "object", "properties": properties}).as_object().unwrap())
    }

    #[test]
    fn what_headers_cannot_carry_is_encoded() {
        for (text, expected) in [
            ("eu-west", "eu-west"),
            ("Grüße", "=?base64?R3LDvMOfZQ==?="),
            (" x", "=?base64?IHg=?="),
            ("abc\n", "=?base64?YWJjCg==?="),
            ("=?base64?eA==?=", "=?base64?PT9iYXNlNjQ/ZUE9PT89?="),
            ("", ""),
        ] {
            assert_eq!(encoded(text), expected, "{text:?}");
        }
    }

    #[test]
    fn marked_arguments_go_into_headers() {
        let headers = of(&json!({
            "region": {"type": "string", "x-mcp-header": "Region"}, "plain": {"type": "string"},
            "deep": {"type": "object", "properties": {"n": {"type": "integer", "x-mcp-header": "N"}}}}))
        .unwrap();
        let arguments = json!({"region": "eu", "plain": "p", "deep": {"n": 7}});
        let expected = [("Mcp-Param-N", "7"), ("Mcp-Param-Region", "eu")].map(|(a, b)| (a.to_owned(), b.to_owned()));
        let mut values = headers.values(arguments.as_object().unwrap());
        values.sort();
        assert_eq!(values, expected);
        assert_eq!(headers.values(&Map::new()), []);
    }

    #[test]
    fn a_mark_that_cannot_be_a_header_is_refused() {
        for properties in [
            json!({"a": {"type": "string", "x-mcp-header": ""}}),
            json!({"a": {"type": "string", "x-mcp-header": "a b"}}),
            json!({"a": {"type": "number", "x-mcp-header": "A"}}),
            json!({"a": {"type": "string", "x-mcp-header": "A"}, "b": {"type": "string", "x-mcp-header": "a"}}),
            json!({"a": {"type": "array", "items": {"type": "string", "x-mcp-header": "A"}}}),
        ] {
            assert!(of(&properties).is_err(), "{properties}");
        }
        assert!(of(&json!({"x-mcp-header": {"type": "string"}})).is_ok(), "an argument of that name is no mark");
    }
}
