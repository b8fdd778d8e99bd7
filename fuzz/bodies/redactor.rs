//! No text keeps a secret, whatever stands around it, and a text that was cleaned is not changed again; references are filled once.

use serde_json::{Value, json};
use ua_core::{Redactor, fill_secrets};

const SECRET: &str = "s\"cr/t+canary-0123";

pub(crate) fn check(data: &[u8]) {
    let redactor = Redactor::new([("K".to_owned(), SECRET.to_owned())]);
    let text = String::from_utf8_lossy(data);
    let middle = text.char_indices().nth(text.chars().count() / 2).map_or(0, |(at, _)| at);
    let (before, after) = text.split_at(middle);
    let in_json = Value::String(SECRET.to_owned()).to_string();
    let [red, cleared] = ["\u{1b}[1;31m", "\u{1b}[K"].map(|color| {
        let letters: Vec<String> = SECRET.chars().map(String::from).collect();
        letters.join(color)
    });
    let digits: Vec<String> = SECRET.bytes().map(|byte| format!("{byte:02x}")).collect();
    let of_a_database = format!("\\x{}", digits.concat());
    for dressed in [SECRET, in_json.trim_matches('"'), &red, &cleared, &of_a_database] {
        let clean = redactor.text(&format!("{before}{dressed}{after}")).into_owned();
        assert!(!clean.contains(dressed), "{clean}");
        assert_eq!(redactor.text(&clean), clean);
    }
    let mut value = json!({ "a": text, "n": [text] });
    let filled =
        fill_secrets(&mut value, &mut |name: &str| if name == "A" { Ok("${secret:B}".to_owned()) } else { Err(()) });
    let refers_to_another = text.split("${secret:").skip(1).any(|rest| {
        let name = rest.split('}').next().unwrap_or_default();
        rest.contains('}')
            && name != "A"
            && !name.is_empty()
            && name.bytes().all(|c| c.is_ascii_alphanumeric() || c == b'_')
            && !name.as_bytes()[0].is_ascii_digit()
    });
    assert_eq!(filled.is_err(), refers_to_another, "{text}");
}
