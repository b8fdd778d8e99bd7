//! The page: one template, its data, and the policy that keeps everything else out.

use serde_json::Value;
use ua_core::Sha256;

use super::data::data;
use crate::export::RunExport;
use ua_evidence::os_words::in_plain_words;
use ua_evidence::quote::clean;

/// The page without its data. It has one `<style>`, one `<script>` and these places to fill.
const TEMPLATE: &str = include_str!("template.html");
const STYLE: &str = include_str!("style.css");
const SCRIPT: &str = include_str!("script.js");

/// Writes the timeline of a run as one HTML page without references to anything outside it.
pub fn timeline_html(export: &RunExport<'_>) -> String {
    let policy = format!(
        "default-src 'none'; script-src 'sha256-{}'; style-src 'sha256-{}'; base-uri 'none'; form-action 'none'",
        base64(ua_core::sha256(SCRIPT)),
        base64(ua_core::sha256(STYLE)),
    );
    let title = format!("{} · {}", export.records.run.run_id, clean(&export.records.run.spec.objective));
    let title: String = title.chars().take(120).collect();
    // Each part is put in once, so that a text which looks like the name of a place stays text.
    let parts = [
        ("{{policy}}", policy.as_str()),
        ("{{title}}", &escaped(&title)),
        ("{{style}}", STYLE),
        ("{{data}}", &script_safe(&cleaned(data(export), false).to_string())),
        ("{{script}}", SCRIPT),
    ];
    let mut html = String::with_capacity(parts.iter().map(|(_, text)| text.len()).sum::<usize>() + TEMPLATE.len());
    let mut rest = TEMPLATE;
    for (place, text) in parts {
        let Some((before, after)) = rest.split_once(place) else { continue };
        html.push_str(before);
        html.push_str(text);
        rest = after;
    }
    html.push_str(rest);
    html
}

/// The fields in which the operating system may have a say; what it says is told in plain words there, as on a terminal. All others, as
/// arguments and answers, stand as they were sent.
const TOLD: [&str; 3] = ["detail", "error", "missing"];

/// The same with every text in it [`clean`], whatever field it is in: names, arguments and answers are a stranger's. `is_told`: it is the
/// value of one of [`TOLD`].
fn cleaned(value: Value, is_told: bool) -> Value {
    match value {
        Value::String(text) if is_told => Value::String(in_plain_words(&clean(&text)).into_owned()),
        Value::String(text) => Value::String(clean(&text)),
        Value::Array(values) => values.into_iter().map(|value| cleaned(value, false)).collect(),
        Value::Object(fields) => {
            let field = |(name, value): (String, Value)| {
                let is_told = TOLD.contains(&name.as_str());
                (clean(&name), cleaned(value, is_told))
            };
            fields.into_iter().map(field).collect()
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => value,
    }
}

/// JSON that may stand in a `<script>`: nothing in it ends the element or a line. All of this is still the same JSON.
fn script_safe(json: &str) -> String {
    let mut safe = String::with_capacity(json.len());
    for character in json.chars() {
        match character {
            '<' => safe.push_str("\\u003c"),
            '>' => safe.push_str("\\u003e"),
            '&' => safe.push_str("\\u0026"),
            '\u{2028}' => safe.push_str("\\u2028"),
            '\u{2029}' => safe.push_str("\\u2029"),
            other => safe.push(other),
        }
    }
    safe
}

/// Text between tags.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// A digest as the policy wants it.
fn base64(digest: Sha256) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let hex = digest.to_hex();
    let bytes: Vec<u32> = (0..hex.len() / 2)
        .map(|index| u32::from_str_radix(&hex[2 * index..2 * index + 2], 16).unwrap_or_default())
        .collect();
    let mut text = String::new();
    for group in bytes.chunks(3) {
        let bits = group.iter().enumerate().fold(0, |bits, (index, byte)| bits | (byte << (16 - 8 * index)));
        for digit in 0..4 {
            if digit > group.len() {
                text.push('=');
            } else {
                let index = (bits >> (18 - 6 * digit)) & 63;
                text.push(char::from(DIGITS[index as usize]));
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_is_written_as_the_policy_wants_it() {
        assert_eq!(base64(ua_core::sha256("")), "47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=");
        assert_eq!(base64(ua_core::sha256("abc")), "ungWv48Bz+pBQUDeXa4iI7ADYaOWF3qctBD/YfIAFa0=");
    }

    #[test]
    fn nothing_in_the_data_ends_its_element() {
        let json = serde_json::json!({"a": "</script><!--\u{2028}\u{2029}&"}).to_string();
        let safe = script_safe(&json);
        assert!(!safe.contains(['<', '>', '&', '\u{2028}', '\u{2029}']), "{safe}");
        let back: serde_json::Value = serde_json::from_str(&safe).unwrap();
        assert_eq!(back["a"], "</script><!--\u{2028}\u{2029}&");
    }

    #[test]
    fn every_place_of_the_template_is_filled_once_and_in_order() {
        let places = ["{{policy}}", "{{title}}", "{{style}}", "{{data}}", "{{script}}"];
        let found: Vec<usize> = places.iter().map(|place| TEMPLATE.find(place).unwrap()).collect();
        assert!(found.is_sorted());
        assert_eq!(TEMPLATE.matches("{{").count(), places.len());
        for part in [STYLE, SCRIPT] {
            assert!(!part.contains("</"), "an end tag inside a part ends its element");
        }
    }
}
