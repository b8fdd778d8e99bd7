//! Secrets in JSON: in texts, in names of fields, in numbers, and in lists of numbers.
//!
//! A number is a text to whoever reads it. `4711081533`, `-4711081533.0` and `4.711081533e9` have the digits of a secret, and a list of numbers
//! is the bytes of one as it is when a text has it. Whoever takes secrets out of a value, keeps one without them or looks whether there is one
//! does it by what is here.

use std::ops::Range;

use serde_json::{Number, Value};

use super::{MIN_BYTES, Redactor, layers};

/// The largest number without a fraction that has all its digits.
const LARGEST: f64 = 1e17;

impl Redactor {
    /// Takes secrets out of every text of a JSON value, names of fields, numbers and lists of numbers included.
    pub fn json(&self, value: &mut Value) {
        match value {
            Value::String(text) => self.own(text),
            Value::Number(number) => {
                if let Some(shown) = self.in_number(number) {
                    *value = Value::String(shown);
                }
            }
            Value::Array(items) => {
                for (range, shown) in self.in_list(items).into_iter().rev() {
                    items.splice(range, [Value::String(shown)]);
                }
                for item in items {
                    self.json(item);
                }
            }
            Value::Object(fields) => {
                let is_named = fields.keys().any(|name| self.found_in(name).is_some());
                if is_named {
                    *fields = std::mem::take(fields)
                        .into_iter()
                        .map(|(name, value)| (self.text(&name).into_owned(), value))
                        .collect();
                }
                fields.values_mut().for_each(|value| self.json(value));
            }
            Value::Null | Value::Bool(_) => {}
        }
    }

    /// The name of a secret that stands somewhere in a JSON value, or in what it is written as, as `[secret NAME]`.
    pub fn found_in_json(&self, value: &Value) -> Option<String> {
        if self.is_empty() {
            return None;
        }
        self.within(value).or_else(|| self.found_in(&value.to_string()))
    }

    fn within(&self, value: &Value) -> Option<String> {
        self.in_part(value).or_else(|| match value {
            Value::Array(items) => items.iter().find_map(|item| self.within(item)),
            Value::Object(fields) => {
                fields.iter().find_map(|(name, value)| self.found_in(name).or_else(|| self.within(value)))
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
        })
    }

    /// The name of a secret that a value has itself: a text, a number or a list of numbers.
    pub(crate) fn in_part(&self, value: &Value) -> Option<String> {
        match value {
            Value::String(text) => self.found_in(text),
            Value::Number(number) => self.in_number(number),
            Value::Array(items) => self.in_list(items).into_iter().next().map(|(_, shown)| shown),
            Value::Null | Value::Bool(_) | Value::Object(_) => None,
        }
    }

    fn in_number(&self, number: &Number) -> Option<String> {
        let text = digits(number);
        self.found_in(&text).or_else(|| {
            // What stands in front of its digits are noughts, or it is too long for all of its digits.
            let known = self.known();
            if !known.has_numbers {
                return None;
            }
            layers::form_of_number(&known, number.as_f64()?).map(|form| known.forms[form].shown.clone())
        })
    }

    /// Where in a list numbers stand that are a secret's: which items, in order.
    fn in_list(&self, items: &[Value]) -> Vec<(Range<usize>, String)> {
        if items.len() < MIN_BYTES || self.is_empty() || !items.iter().all(Value::is_number) {
            return Vec::new();
        }
        let (mut text, mut ends) = (String::new(), Vec::with_capacity(items.len()));
        for number in items.iter().filter_map(Value::as_number) {
            text.push_str(&digits(number));
            ends.push(text.len());
            text.push(',');
        }
        let item = |place: usize| ends.partition_point(|end| *end <= place).min(items.len() - 1);
        let mut found: Vec<(Range<usize>, String)> = Vec::new();
        for (place, shown) in self.places(&text) {
            let range = item(place.start)..item(place.end - 1) + 1;
            match found.last_mut().filter(|(last, _)| range.start < last.end) {
                Some((last, _)) => last.end = last.end.max(range.end),
                None => found.push((range, shown)),
            }
        }
        found
    }
}

/// A number as whoever looks for its digits reads it: without a point where nothing stands behind that.
fn digits(number: &Number) -> String {
    match number.as_f64().filter(|value| number.is_f64() && value.fract() == 0.0 && value.abs() < LARGEST) {
        Some(whole) => format!("{whole:.0}"),
        None => number.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn redactor(value: &str) -> Redactor {
        Redactor::new([("PIN".to_owned(), value.to_owned())])
    }

    fn parsed(text: &str) -> Value {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn a_secret_of_digits_is_no_number_in_json() {
        let redactor = redactor("4711081533");
        for text in [
            "4711081533",
            "-4711081533",
            "4711081533.0",
            "4.711081533e9",
            "47110815330E-1",
            "4711081533.25",
            "[4711081533]",
            "{\"a\": [1, {\"b\": 4711081533.0}]}",
            "{\"4711081533\": true}",
            "[1, 2, 3, 4, 5, 6, 7, 8, 4711081533]",
            "\"4.711081533e9\"",
            "\"{\\\"v\\\":4.711081533E+09}\"",
        ] {
            let mut value = parsed(text);
            assert_eq!(redactor.found_in_json(&value).as_deref(), Some("[secret PIN]"), "{text}");
            redactor.json(&mut value);
            let clean = value.to_string();
            assert!(clean.contains("[secret PIN]") && !clean.contains("711081533"), "{text}: {clean}");
        }
        let other = json!({"n": [1, 2.5, -4711, 471_108_153, 4_711_081_534_u64, 1e300], "b": true, "x": null});
        let mut same = other.clone();
        redactor.json(&mut same);
        assert_eq!((same, redactor.found_in_json(&other)), (other, None));
    }

    #[test]
    fn a_number_has_lost_its_noughts_and_some_of_its_digits() {
        for (secret, number) in [
            ("0047110815", "47110815"),
            ("4711081533471108153347110815", "4711081533471108153347110815"),
            ("4711081533471108153347110815", "4.711081533471108153347110815e27"),
            ("47110815.50", "47110815.5"),
        ] {
            let mut value = parsed(number);
            redactor(secret).json(&mut value);
            assert_eq!(value, json!("[secret PIN]"), "{secret} {number}");
        }
        // A number of few digits is one of many.
        let mut value = json!([1, 0, 10_000_000]);
        redactor("0000000001").json(&mut value);
        assert_eq!(value, json!([1, 0, 10_000_000]));
    }

    #[test]
    fn a_list_of_numbers_is_the_bytes_of_a_secret() {
        let secret = "Zq7-h\u{fc}nter";
        let redactor = redactor(secret);
        let all = |numbers: Vec<Value>| Value::Array([vec![json!(1)], numbers, vec![json!(2), json!(3)]].concat());
        let bytes: Vec<Value> = secret.bytes().map(|byte| json!(byte)).collect();
        let signed: Vec<Value> = secret.bytes().map(|byte| json!(byte.cast_signed())).collect();
        let floats: Vec<Value> = secret.bytes().map(|byte| json!(f64::from(byte))).collect();
        let characters: Vec<Value> = secret.chars().map(|c| json!(u32::from(c))).collect();
        for numbers in [bytes, signed, floats, characters] {
            let mut value = json!({"data": all(numbers)});
            assert_eq!(redactor.found_in_json(&value).as_deref(), Some("[secret PIN]"), "{value}");
            redactor.json(&mut value);
            assert_eq!(value, json!({"data": [1, "[secret PIN]", 2, 3]}));
        }
    }
}
