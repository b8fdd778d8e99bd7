//! How long a value is as text, without making the text.

use std::io;

use serde::Serialize;

/// How many bytes `value` has as JSON without spaces, as `serde_json::to_string` writes it.
///
/// # Errors
/// It cannot be written as JSON; a `serde_json::Value` always can.
pub fn json_length(value: &impl Serialize) -> serde_json::Result<usize> {
    let mut count = Count(0);
    serde_json::to_writer(&mut count, value)?;
    Ok(count.0)
}

/// Counts what is written to it, and keeps none of it.
struct Count(usize);

impl io::Write for Count {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_length_is_that_of_the_text() {
        for value in [json!(null), json!([]), json!({"a": [1, -2.5, "ü\n\"", true], "b": {"c": "\u{1}"}})] {
            assert_eq!(json_length(&value).unwrap(), value.to_string().len(), "{value}");
        }
        assert!(json_length(&std::collections::BTreeMap::from([((1, 2), 3)])).is_err());
    }
}
