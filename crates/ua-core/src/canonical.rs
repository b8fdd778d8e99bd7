//! Canonical JSON and digests: two argument objects that mean the same give the same bytes, for ever.
//!
//! RFC 8785 (JCS) with three additions: integers that a double cannot hold are kept exact (the RFC would map
//! 9007199254740993 and …992 to one text, and so two message ids to one key), duplicate object keys, rounded numbers and half characters
//! are refused instead of one value silently becoming another, and top-level fields that a policy calls volatile are left out.
//! Durable Jobs v1 spec §8.2; golden vectors below must never change.

use std::cell::Cell;
use std::fmt;

use serde::de::{self, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Number, Value};
use sha2::Digest as _;

use crate::half_character::escape;

/// A SHA-256 digest, shown and stored as 64 lower-case hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Sha256([u8; 32]);

/// Digests `bytes`.
pub fn sha256(bytes: impl AsRef<[u8]>) -> Sha256 {
    Sha256(sha2::Sha256::digest(bytes).into())
}

/// A digest in the making. Copies of it go on from the same beginning, which is digested once.
#[derive(Clone, Default)]
pub struct Digesting(sha2::Sha256);

impl Digesting {
    /// The same with more bytes behind it.
    #[must_use]
    pub fn and(mut self, bytes: impl AsRef<[u8]>) -> Self {
        self.0.update(bytes);
        self
    }

    /// The digest of what was put in so far.
    pub fn digest(&self) -> Sha256 {
        Sha256(self.0.clone().finalize().into())
    }
}

impl fmt::Debug for Digesting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}…", self.digest())
    }
}

impl Sha256 {
    /// Wraps a digest that was computed elsewhere, over a stream for example.
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The 64 digits.
    pub fn to_hex(self) -> String {
        str::from_utf8(&self.digits()).unwrap_or_default().to_owned()
    }

    /// Reads 64 hexadecimal digits.
    pub fn from_hex(text: &str) -> Option<Self> {
        let (pairs, rest) = text.as_bytes().as_chunks::<2>();
        let mut bytes = [0_u8; 32];
        if pairs.len() != bytes.len() || !rest.is_empty() {
            return None;
        }
        for (byte, [high, low]) in bytes.iter_mut().zip(pairs) {
            let digit = |digit: u8| char::from(digit).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
            *byte = (digit(*high)? << 4) | digit(*low)?;
        }
        Some(Self(bytes))
    }

    /// The digits as ASCII.
    pub fn digits(self) -> [u8; 64] {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let mut digits = [0; 64];
        for (pair, byte) in digits.as_chunks_mut::<2>().0.iter_mut().zip(self.0) {
            *pair = [DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]];
        }
        digits
    }
}

impl fmt::Display for Sha256 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(str::from_utf8(&self.digits()).unwrap_or_default())
    }
}

impl fmt::Debug for Sha256 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl Serialize for Sha256 {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(str::from_utf8(&self.digits()).unwrap_or_default())
    }
}

impl<'de> Deserialize<'de> for Sha256 {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::from_hex(&text).ok_or_else(|| de::Error::custom("not a sha256 in hexadecimal"))
    }
}

/// The digest of a call's canonical arguments (`normalized_args_hash` of the ledger).
pub type ArgsHash = Sha256;

/// JSON that cannot be given one meaning.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CanonicalError {
    /// Not JSON, or JSON with a duplicate key, or too deep.
    #[error("not JSON: {0}")]
    Syntax(String),
    /// An integer that no 64-bit type holds; a parser would round it.
    #[error(
        "the number {0} has too many digits: a count is at most 18446744073709551615, and an identifier must be a string in quotes"
    )]
    IntegerTooLarge(String),
    /// A decimal of more digits than a double has; a parser would round it.
    #[error(
        "the number {written} cannot be carried exactly: it would become {kept}; it must have fewer digits, or be a string in quotes"
    )]
    InexactDecimal {
        /// As it is written.
        written: String,
        /// What a double makes of it.
        kept: String,
    },
    /// The escape of half a character (a surrogate without the other one); a parser would put another character there, or fail.
    #[error("the escape {0} is half a character, which no text can hold")]
    HalfCharacter(String),
}

/// JSON text in canonical form.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct CanonicalJson(String);

/// The largest integer up to which a double holds each.
const SAFE: u64 = (1 << 53) - 1;
/// Marks an integer beyond ±(2^53−1) in canonical text; a private-use character, so that no ordinary string equals it.
const EXACT_INTEGER: &str = "\u{E000}int:";

impl CanonicalJson {
    /// Puts `value` in canonical form, leaving out the top-level fields named in `volatile`.
    pub fn of(value: &Value, volatile: &[String]) -> Result<Self, CanonicalError> {
        let mut text = Vec::new();
        let written = match value {
            Value::Object(map) => write_object(map, volatile, &mut text),
            other @ (Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_)) => {
                write(other, &mut text)
            }
        };
        let text = written.and_then(|()| String::from_utf8(text).map_err(serde::ser::Error::custom));
        text.map(Self).map_err(|e| CanonicalError::Syntax(e.to_string()))
    }

    /// The canonical text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The digest of the canonical text.
    pub fn hash(&self) -> ArgsHash {
        sha256(&self.0)
    }
}

/// Writes a value where it is: a copy of it with its large integers as texts, put in order by a library, took four times as long. Only numbers
/// that are no integers are left to that library.
fn write(value: &Value, out: &mut Vec<u8>) -> serde_json::Result<()> {
    match value {
        Value::Number(number) => write_number(number, out),
        Value::Array(items) => {
            out.push(b'[');
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    out.push(b',');
                }
                write(item, out)?;
            }
            out.push(b']');
            Ok(())
        }
        Value::Object(map) => write_object(map, &[], out),
        Value::Null | Value::Bool(_) | Value::String(_) => serde_json::to_writer(out, value),
    }
}

/// Writes a number by its value. Its own text says nothing: `serde_json` keeps a number as it was written where any crate of a program
/// turns on its feature `arbitrary_precision`.
fn write_number(number: &Number, out: &mut Vec<u8>) -> serde_json::Result<()> {
    if let Some(whole) = number.as_u64() {
        return write_whole(&whole, whole > SAFE, out);
    }
    if let Some(whole) = number.as_i64() {
        return write_whole(&whole, whole.unsigned_abs() > SAFE, out);
    }
    let Some(decimal) = number.as_f64() else {
        return Err(serde::ser::Error::custom(format!("the number {number} is beyond any that can be held")));
    };
    let text = serde_json_canonicalizer::to_string(&decimal)?;
    if is_kept_exact(&text) {
        return serde_json::to_writer(out, &format!("{EXACT_INTEGER}{text}"));
    }
    out.extend_from_slice(text.as_bytes());
    Ok(())
}

fn write_whole(whole: &(impl fmt::Display + Serialize), is_exact: bool, out: &mut Vec<u8>) -> serde_json::Result<()> {
    if is_exact {
        serde_json::to_writer(out, &format!("{EXACT_INTEGER}{whole}"))
    } else {
        serde_json::to_writer(out, whole)
    }
}

/// Whether a number that was written with an exponent or a point is one that has another form when it is written without: `1e16` is
/// `10000000000000000`.
fn is_kept_exact(text: &str) -> bool {
    !text.contains(['.', 'e']) && text.parse::<i64>().map_or(true, |n| n.unsigned_abs() > SAFE)
}

fn write_object(map: &Map<String, Value>, volatile: &[String], out: &mut Vec<u8>) -> serde_json::Result<()> {
    /// The first byte of a character that UTF-16 puts elsewhere than UTF-8 does.
    const ELSEWHERE: u8 = 0xee;
    let mut fields: Vec<(&String, &Value)> = map.iter().filter(|(name, _)| !volatile.contains(name)).collect();
    if fields.iter().any(|(name, _)| name.bytes().any(|byte| byte >= ELSEWHERE)) {
        fields.sort_by(|(a, _), (b, _)| a.encode_utf16().cmp(b.encode_utf16()));
    } else {
        fields.sort_by_key(|(name, _)| *name);
    }
    out.push(b'{');
    for (index, (name, value)) in fields.into_iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        serde_json::to_writer(&mut *out, name)?;
        out.push(b':');
        write(value, out)?;
    }
    out.push(b'}');
    Ok(())
}

/// Parses JSON, refusing duplicate keys and all that a [`Value`] does not hold as it is written: integers that no 64-bit type holds, decimals of
/// more digits than a double has, and halves of characters.
pub fn parse_strict(text: &str) -> Result<Value, CanonicalError> {
    let wrong = |error: serde_json::Error| {
        let said = error.to_string();
        // The parser's own words for these do not say which value it is.
        let is_value =
            said.starts_with("number out of range") || said.contains("surrogate") || said.contains("hex escape");
        let found = if is_value { inexact(text, 1).pop() } else { None };
        found.unwrap_or_else(|| CanonicalError::Syntax(crate::faults::json_fault(text, &error)))
    };
    let mut deserializer = serde_json::Deserializer::from_str(text);
    let was_owned = Cell::new(false);
    let value = Strict { was_owned: &was_owned }.deserialize(&mut deserializer).map_err(wrong)?;
    deserializer.end().map_err(wrong)?;
    match inexact(text, 1).pop() {
        Some(found) => Err(found),
        None => Ok(value),
    }
}

/// What stands in a JSON text that a [`Value`] does not hold as it is written, the first `most` of it: a parser that reads it all the same
/// would round it, or put another character in its place. `text` may be broken; then what is found is what looks like a value.
pub fn inexact(text: &str, most: usize) -> Vec<CanonicalError> {
    let (bytes, mut found, mut at) = (text.as_bytes(), Vec::new(), 0);
    while found.len() < most
        && let Some(byte) = bytes.get(at)
    {
        match byte {
            b'"' => at = string_end(text, at + 1, most, &mut found),
            b'-' | b'0'..=b'9' => {
                let is_part = |byte: &u8| byte.is_ascii_digit() || matches!(byte, b'-' | b'+' | b'.' | b'e' | b'E');
                let length = bytes[at..].iter().take_while(|byte| is_part(byte)).count();
                found.extend(text.get(at..at + length).and_then(inexact_number));
                at += length;
            }
            _ => at += 1,
        }
    }
    found.truncate(most);
    found
}

/// Behind the string that begins before `at`; halves of characters in it are found.
fn string_end(text: &str, mut at: usize, most: usize, found: &mut Vec<CanonicalError>) -> usize {
    let bytes = text.as_bytes();
    loop {
        match bytes.get(at) {
            None => return at,
            Some(b'"') => return at + 1,
            Some(b'\\') => {
                let (length, half) = escape(bytes, at);
                if let Some(half) = half.and_then(|half| text.get(half.range())).filter(|_| found.len() < most) {
                    found.push(CanonicalError::HalfCharacter(half.to_owned()));
                }
                at += length;
            }
            Some(_) => at += 1,
        }
    }
}

/// Why a number is not held as it is written; `None` for one that is.
fn inexact_number(literal: &str) -> Option<CanonicalError> {
    if !literal.contains(['.', 'e', 'E']) {
        let is_held = literal.parse::<i64>().is_ok() || literal.parse::<u64>().is_ok();
        return (!is_held).then(|| CanonicalError::IntegerTooLarge(literal.to_owned()));
    }
    let kept = literal.parse().ok().and_then(Number::from_f64).map(|kept| kept.to_string());
    let is_same =
        kept.as_ref().is_some_and(|kept| digits_of(kept).is_some_and(|kept| digits_of(literal) == Some(kept)));
    (!is_same).then(|| CanonicalError::InexactDecimal {
        written: literal.to_owned(),
        kept: kept.unwrap_or_else(|| "no number at all".to_owned()),
    })
}

/// A decimal literal as its digits, without zeros around them, and the power of ten behind them: equal for equal numbers.
fn digits_of(literal: &str) -> Option<(bool, String, i64)> {
    let unsigned = literal.strip_prefix('-');
    let (mantissa, power) =
        unsigned.unwrap_or(literal).split_once(['e', 'E']).unwrap_or((unsigned.unwrap_or(literal), "0"));
    let (whole, behind) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = format!("{whole}{behind}");
    let digits = digits.trim_start_matches('0');
    let kept = digits.trim_end_matches('0');
    if kept.is_empty() {
        return Some((false, String::new(), 0));
    }
    let power = power.parse::<i64>().ok()?.checked_sub(i64::try_from(behind.len()).ok()?)?;
    Some((unsigned.is_some(), kept.to_owned(), power.checked_add(i64::try_from(digits.len() - kept.len()).ok()?)?))
}

/// The name of the one field of the object as which `serde_json` hands on a decimal, where it keeps numbers as they were written.
const NUMBER_AS_WRITTEN: &str = "$serde_json::private::Number";

/// Whether `serde_json` keeps numbers as they were written: some crate of the program turned that on (its feature `arbitrary_precision`).
fn are_kept_as_written() -> bool {
    serde_json::from_str::<Number>("1e2").is_ok_and(|number| number.to_string() != "100.0")
}

/// A number as it is read where it is not kept as it was written; `None` for one that is beyond any double.
fn number_of(literal: &str) -> Option<Number> {
    if literal != "-0" && !literal.contains(['.', 'e', 'E']) {
        let whole = literal.parse::<u64>().map(Number::from);
        if let Ok(whole) = whole.or_else(|_| literal.parse::<i64>().map(Number::from)) {
            return Some(whole);
        }
    }
    literal.parse().ok().and_then(Number::from_f64)
}

/// Deserializes a [`Value`] and refuses duplicate keys.
#[derive(Clone, Copy)]
struct Strict<'c> {
    /// Whether the last text was handed over as a `String`: no text of the input is, only a number that is kept as it was written.
    was_owned: &'c Cell<bool>,
}

impl<'de> DeserializeSeed<'de> for Strict<'_> {
    type Value = Value;
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Strict<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }
    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }
    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }
    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::from(value))
    }
    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::from(value))
    }
    fn visit_f64<E: de::Error>(self, value: f64) -> Result<Value, E> {
        Number::from_f64(value).map(Value::Number).ok_or_else(|| E::custom("a number that is not finite"))
    }
    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.to_owned()))
    }
    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        self.was_owned.set(true);
        Ok(Value::String(value))
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = seq.next_element_seed(self)? {
            items.push(item);
        }
        Ok(Value::Array(items))
    }
    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(name) = access.next_key::<String>()? {
            let value = access.next_value_seed(self)?;
            if name == NUMBER_AS_WRITTEN && map.is_empty() {
                let literal = value.as_str().filter(|_| self.was_owned.take());
                if let Some(literal) = literal {
                    let number = number_of(literal).map(Value::Number);
                    // In the parser's own words, as where it reads the number itself.
                    return number.ok_or_else(|| de::Error::custom("number out of range"));
                }
                if are_kept_as_written() {
                    return Err(de::Error::custom(format!("the key {name:?} would be read as a number")));
                }
            }
            if map.contains_key(&name) {
                return Err(de::Error::custom(format!("the key {name:?} appears twice")));
            }
            map.insert(name, value);
        }
        Ok(Value::Object(map))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn canonical(text: &str) -> String {
        CanonicalJson::of(&parse_strict(text).unwrap(), &[]).unwrap().0
    }

    #[test]
    fn golden_vectors_never_change() {
        let vectors = [
            (r#"{"b":1,"a":[true,null]}"#, r#"{"a":[true,null],"b":1}"#),
            (r#"{"n":1.0}"#, r#"{"n":1}"#),
            (r#"{"n":0.011000000000000001}"#, r#"{"n":0.011000000000000001}"#),
            (r#"{"n":9007199254740993}"#, "{\"n\":\"\u{E000}int:9007199254740993\"}"),
            (r#"{"n":9007199254740991}"#, r#"{"n":9007199254740991}"#),
            (
                "{\"\u{20ac}\":1,\"\\r\":2,\"\u{1F600}\":3,\"\u{fb33}\":4}",
                "{\"\\r\":2,\"\u{20ac}\":1,\"\u{1F600}\":3,\"\u{fb33}\":4}",
            ),
        ];
        for (text, expected) in vectors {
            assert_eq!(canonical(text), expected);
        }
        assert_eq!(
            CanonicalJson::of(&json!({"to": "a@example.test", "n": 1}), &[]).unwrap().hash().to_hex(),
            sha256(r#"{"n":1,"to":"a@example.test"}"#).to_hex()
        );
        assert_eq!(sha256("abc").to_hex(), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    }

    /// Whether or not `serde_json` keeps numbers as they were written (`.ci/nightly`, lane `sdk`).
    #[test]
    fn a_number_is_its_value_however_it_is_kept() {
        for (written, canonical) in [
            ("1.0", "1"),
            ("1.50", "1.5"),
            ("1e2", "100"),
            ("-0", "0"),
            ("-0.0", "0"),
            ("0.30", "0.3"),
            ("1.5E-7", "1.5e-7"),
            ("-17", "-17"),
            ("100e-2", "1"),
        ] {
            let text = format!(r#"{{"a":[{written}],"b":{{"c":{written}}}}}"#);
            let expected = format!(r#"{{"a":[{canonical}],"b":{{"c":{canonical}}}}}"#);
            let read = parse_strict(&text).unwrap();
            assert!(read["a"][0].is_number() && read["b"]["c"].is_number(), "{text}: {read}");
            // Also one that came another way.
            for value in [read, serde_json::from_str(&text).unwrap()] {
                assert_eq!(CanonicalJson::of(&value, &[]).unwrap().0, expected, "{text}");
            }
        }
        assert_eq!(parse_strict("1.50").unwrap(), json!(1.5));
        assert_eq!(canonical("1e16"), format!("\"{EXACT_INTEGER}10000000000000000\""));
    }

    /// An object of that name is one. Where it would be read as a number by others, it is refused.
    #[test]
    fn an_object_that_looks_like_a_number_never_becomes_one() {
        for value in [r#""1.5""#, "1.5", "{}", "null"] {
            let text = format!("[1.5,{{{NUMBER_AS_WRITTEN:?}:{value}}}]");
            match parse_strict(&text) {
                Ok(read) => assert!(read[1].is_object() && !are_kept_as_written(), "{read}"),
                Err(why) => assert!(are_kept_as_written() && why.to_string().contains("as a number"), "{why}"),
            }
        }
    }

    #[test]
    fn neighbouring_large_integers_stay_apart() {
        assert_ne!(canonical("9007199254740993"), canonical("9007199254740992"));
        assert_ne!(canonical("9007199254740993"), canonical(r#""9007199254740993""#));
    }

    #[test]
    fn ambiguous_json_is_refused() {
        assert!(matches!(parse_strict(r#"{"a":1,"a":2}"#), Err(CanonicalError::Syntax(m)) if m.contains("twice")));
        assert!(matches!(parse_strict(r#"{"a":18446744073709551616}"#), Err(CanonicalError::IntegerTooLarge(_))));
        assert!(parse_strict(r#"{"a":"18446744073709551616 \" 18446744073709551616"}"#).is_ok());
        assert!(parse_strict(r#"{"a":1} trailing"#).is_err());
    }

    /// What is read is what is written, or it is refused by the value's own name.
    #[test]
    fn what_cannot_be_held_exactly_is_refused() {
        for number in [
            "0",
            "-0",
            "1.0",
            "1e2",
            "-0.0",
            "0.1",
            "0.30",
            "1e22",
            "1E+22",
            "1.5e-7",
            "3e-7",
            "9007199254740993",
            "5e-324",
            "0e9",
            "18446744073709551615",
            "-9223372036854775808",
            "1.7976931348623157e308",
            "0.30000000000000004",
            "12345678.90",
            "100e-2",
        ] {
            assert!(parse_strict(&format!("{{\"a\":[{number}]}}")).is_ok(), "{number}");
        }
        for number in [
            "20000000000000000001",
            "-9223372036854775809",
            "0.1000000000000000055",
            "12345678901234567.89",
            "1e400",
            "-1e400",
            "1e-400",
            "9007199254740993.0",
            "123456789012345678901234567890e0",
            "1e99999999999999999999",
        ] {
            let refused = parse_strict(&format!("{{\"a\":[{number}]}}")).unwrap_err().to_string();
            assert!(refused.contains(number), "{number}: {refused}");
        }
        for half in [r"\ud83d", r"\ude00", r"\ud83d\ud83d\ude00", r"x\uDBFF\n", r"\ud83d\\ude00"] {
            assert!(
                matches!(parse_strict(&format!("[\"{half}\"]")), Err(CanonicalError::HalfCharacter(_))),
                "{half}: {:?}",
                parse_strict(&format!("[\"{half}\"]"))
            );
        }
        assert_eq!(
            parse_strict(r#"["\ud83d\ude00 \\ud83d 0.1000000000000000055 \""]"#).unwrap()[0],
            "\u{1f600} \\ud83d 0.1000000000000000055 \""
        );
        let all = inexact(r#"{"a": 0.1000000000000000055, "b": "\ud83d", "c": 99999999999999999999, "d": 1}"#, 9);
        assert_eq!(all.len(), 3);
    }

    #[test]
    fn volatile_fields_do_not_count() {
        let volatile = ["client_request_id".to_owned()];
        let one = CanonicalJson::of(&json!({"client_request_id": "1", "x": 1}), &volatile).unwrap();
        let two = CanonicalJson::of(&json!({"client_request_id": "2", "x": 1}), &volatile).unwrap();
        assert_eq!(one, two);
        // Only at the top: a nested field of that name is somebody's data.
        assert!(
            CanonicalJson::of(&json!({"x": {"client_request_id": "2"}}), &volatile).unwrap().as_str().contains('2')
        );
    }

    fn any_json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<u64>().prop_map(Value::from),
            prop::num::f64::NORMAL.prop_map(Value::from),
            ".*".prop_map(Value::from),
        ];
        leaf.prop_recursive(3, 24, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::btree_map(".{0,4}", inner, 0..4)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    /// What the library makes of a value whose large integers are texts.
    fn by_the_library(value: &Value) -> String {
        /// By its value, also where it is kept as it was written.
        enum Plain<'v> {
            Number(&'v Number),
            Text(String),
            Items(Vec<Plain<'v>>),
            Fields(Vec<(&'v String, Plain<'v>)>),
            Other(&'v Value),
        }
        impl Serialize for Plain<'_> {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                match self {
                    Self::Number(n) => match (n.as_u64(), n.as_i64()) {
                        (Some(whole), _) => serializer.serialize_u64(whole),
                        (None, Some(whole)) => serializer.serialize_i64(whole),
                        (None, None) => serializer.serialize_f64(n.as_f64().unwrap()),
                    },
                    Self::Text(text) => serializer.serialize_str(text),
                    Self::Items(items) => serializer.collect_seq(items),
                    Self::Fields(fields) => serializer.collect_map(fields.iter().map(|(name, value)| (name, value))),
                    Self::Other(value) => value.serialize(serializer),
                }
            }
        }
        fn exact(value: &Value) -> Plain<'_> {
            match value {
                Value::Number(n)
                    if n.as_i64().is_some_and(|i| i.unsigned_abs() > SAFE) || n.as_u64().is_some_and(|u| u > SAFE) =>
                {
                    Plain::Text(format!("{EXACT_INTEGER}{n}"))
                }
                Value::Number(n) => {
                    let text = serde_json_canonicalizer::to_string(&Plain::Number(n)).unwrap();
                    if is_kept_exact(&text) { Plain::Text(format!("{EXACT_INTEGER}{text}")) } else { Plain::Number(n) }
                }
                Value::Array(items) => Plain::Items(items.iter().map(exact).collect()),
                Value::Object(map) => Plain::Fields(map.iter().map(|(n, v)| (n, exact(v))).collect()),
                other @ (Value::Null | Value::Bool(_) | Value::String(_)) => Plain::Other(other),
            }
        }
        serde_json_canonicalizer::to_string(&exact(value)).unwrap()
    }

    #[test]
    fn names_stand_in_the_order_of_utf_16() {
        let value = json!({"\u{ff5e}": 1, "\u{1f600}": 2, "\u{e000}": 3, "z": 4, "\u{e9}": 5, "": 6});
        let text = CanonicalJson::of(&value, &[]).unwrap().0;
        assert_eq!(text, by_the_library(&value));
        assert!(text.find('\u{1f600}') < text.find('\u{e000}'), "{text}");
    }

    proptest! {
        #[test]
        fn what_this_program_writes_can_be_read_exactly(value in any_json()) {
            let written = serde_json::to_string(&value).unwrap();
            prop_assert_eq!(parse_strict(&written).unwrap(), value);
        }

        /// A decimal is held if and only if the double that it is read as is that very number.
        #[test]
        fn a_decimal_is_held_if_it_is_what_it_is_read_as(whole in 0_u64..1_000_000, behind in "[0-9]{1,24}", power in -30_i32..30) {
            let literal = format!("{whole}.{behind}e{power}");
            let read: f64 = literal.parse().unwrap();
            // With all digits that the literal can have.
            let is_held = inexact(&literal, 1).is_empty();
            let shortest = Number::from_f64(read).unwrap().to_string();
            prop_assert_eq!(is_held, digits_of(&shortest) == digits_of(&literal));
            prop_assert!(parse_strict(&shortest).is_ok());
        }

        #[test]
        fn a_value_reads_as_the_library_writes_it(value in any_json()) {
            prop_assert_eq!(CanonicalJson::of(&value, &[]).unwrap().0, by_the_library(&value));
        }

        /// However a number is written: with an exponent, with noughts behind the point, or with all its digits.
        #[test]
        fn a_number_has_one_form_however_it_is_written(digits in 1_u64..=u64::MAX, power in 0_u32..30, is_negative: bool) {
            let digits = digits.to_string();
            let digits = &digits[..digits.len().min(15)];
            let sign = if is_negative { "-" } else { "" };
            let noughts = "0".repeat(usize::try_from(power).unwrap());
            let (exponent, whole) = (format!("{sign}{digits}e{power}"), format!("{sign}{digits}{noughts}"));
            let forms: Vec<Option<String>> = [exponent, format!("{whole}.0"), whole]
                .iter()
                .map(|form| Some(CanonicalJson::of(&parse_strict(form).ok()?, &[]).unwrap().0))
                .collect();
            // A whole number of more than 64 bits is refused without an exponent or a point.
            prop_assert!(forms[0] == forms[1] && (forms[2].is_none() || forms[2] == forms[0]), "{:?}", forms);
            if let Some(form) = &forms[0] {
                let again = parse_strict(form).map(|value| CanonicalJson::of(&value, &[]).unwrap().0);
                prop_assert_eq!(again.as_ref(), Ok(form));
            }
        }

        #[test]
        fn what_was_stored_and_read_again_has_the_same_hash(value in any_json()) {
            let stored = serde_json::to_string(&value).unwrap();
            let again = parse_strict(&stored).unwrap();
            prop_assert_eq!(CanonicalJson::of(&value, &[]), CanonicalJson::of(&again, &[]));
        }
    }
}
