//! Counts of tokens, as APIs write them: whole numbers, numbers with a point, texts.

use serde_json::Value;

/// The most tokens that anybody is believed to have counted for one answer. Nobody writes a reply of a million million tokens; sums over thousands
/// of requests, and their price, stay numbers that every store can hold.
pub const MOST_COUNTED: u64 = 1_000_000_000_000;

/// A count, in whatever way it is written; a part of a token is a token. `None` where it is none, or one that no answer can have.
pub fn count_in(value: &Value) -> Option<u64> {
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
            (json!(" 12.5 "), Some(13)),
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
