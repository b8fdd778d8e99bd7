//! Values on their way to the server, each with its type, so that a statement needs no preparing and passes any pooler.

use tokio_postgres::types::{ToSql, Type};
use ua_store::plain_text;

/// A value of a parameter.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Value {
    /// `text`.
    Text(Option<String>),
    /// `text[]`.
    Texts(Vec<String>),
    /// `bigint`.
    Int(Option<i64>),
    /// `boolean`.
    Bool(bool),
    /// `bytea`.
    Bytes(Vec<u8>),
}

impl Value {
    /// What the driver takes.
    pub(crate) fn typed(&self) -> (&(dyn ToSql + Sync), Type) {
        match self {
            Self::Text(value) => (value, Type::TEXT),
            Self::Texts(value) => (value, Type::TEXT_ARRAY),
            Self::Int(value) => (value, Type::INT8),
            Self::Bool(value) => (value, Type::BOOL),
            Self::Bytes(value) => (value, Type::BYTEA),
        }
    }
}

impl Value {
    /// Writes it as PostgreSQL reads it inside a statement, whatever the server is set to.
    fn write_literal(&self, out: &mut String) {
        match self {
            Self::Text(Some(text)) => quote(text, out),
            Self::Text(None) => out.push_str("NULL::text"),
            Self::Int(None) => out.push_str("NULL::bigint"),
            Self::Int(Some(number)) if *number < 0 => out.push_str(&format!("'{number}'::bigint")),
            Self::Int(Some(number)) => out.push_str(&number.to_string()),
            Self::Bool(true) => out.push_str("TRUE"),
            Self::Bool(false) => out.push_str("FALSE"),
            Self::Texts(texts) => {
                out.push_str("ARRAY[");
                for (place, text) in texts.iter().enumerate() {
                    if place > 0 {
                        out.push(',');
                    }
                    quote(text, out);
                }
                out.push_str("]::text[]");
            }
            Self::Bytes(bytes) => {
                out.push_str(r"E'\\x");
                for byte in bytes {
                    for half in [byte >> 4, byte & 15] {
                        out.push(char::from_digit(u32::from(half), 16).unwrap_or('0'));
                    }
                }
                out.push_str("'::bytea");
            }
        }
    }
}

/// A text in quotes. In this form a backslash stands for itself when it is doubled, whatever `standard_conforming_strings` is.
fn quote(text: &str, out: &mut String) {
    out.push_str("E'");
    let mut rest = text;
    while let Some(at) = rest.find(['\'', '\\']) {
        let (before, behind) = rest.split_at(at);
        let (special, left) = behind.split_at(1);
        out.push_str(before);
        out.push_str(special);
        out.push_str(special);
        rest = left;
    }
    out.push_str(rest);
    out.push('\'');
}

/// Writes a statement with its values in the places of `$1`, `$2` and so on.
pub(crate) fn write_out(sql: &str, values: &[Value], out: &mut String) {
    let mut rest = sql;
    while let Some(at) = rest.find('$') {
        let (before, behind) = rest.split_at(at);
        out.push_str(before);
        let digits = behind[1..].bytes().take_while(u8::is_ascii_digit).count();
        let (name, left) = behind.split_at(digits + 1);
        match name[1..].parse::<usize>().ok().and_then(|place| values.get(place.checked_sub(1)?)) {
            Some(value) => value.write_literal(out),
            None => out.push_str(name),
        }
        rest = left;
    }
    out.push_str(rest);
}

/// What can be a parameter.
pub(crate) trait ToValue {
    /// No value, of the type that it would have.
    fn none() -> Value;
    /// The value.
    fn value(&self) -> Value;
}

impl ToValue for str {
    fn none() -> Value {
        Value::Text(None)
    }
    fn value(&self) -> Value {
        // What a change writes was cleaned before anything was made of it; this is for what is looked for, and for what only this store writes.
        Value::Text(Some(plain_text(self).into_owned()))
    }
}

impl ToValue for String {
    fn none() -> Value {
        str::none()
    }
    fn value(&self) -> Value {
        self.as_str().value()
    }
}

impl ToValue for i64 {
    fn none() -> Value {
        Value::Int(None)
    }
    fn value(&self) -> Value {
        Value::Int(Some(*self))
    }
}

impl ToValue for u32 {
    fn none() -> Value {
        i64::none()
    }
    fn value(&self) -> Value {
        i64::from(*self).value()
    }
}

impl ToValue for u8 {
    fn none() -> Value {
        i64::none()
    }
    fn value(&self) -> Value {
        i64::from(*self).value()
    }
}

impl ToValue for bool {
    fn none() -> Value {
        Value::Bool(false)
    }
    fn value(&self) -> Value {
        Value::Bool(*self)
    }
}

impl ToValue for [u8] {
    fn none() -> Value {
        Value::Bytes(Vec::new())
    }
    fn value(&self) -> Value {
        Value::Bytes(self.to_vec())
    }
}

impl<T: ToValue + ?Sized> ToValue for &T {
    fn none() -> Value {
        T::none()
    }
    fn value(&self) -> Value {
        T::value(self)
    }
}

impl<T: ToValue> ToValue for Option<T> {
    fn none() -> Value {
        T::none()
    }
    fn value(&self) -> Value {
        self.as_ref().map_or_else(T::none, T::value)
    }
}

/// Parameters of a statement.
pub(crate) trait Values {
    /// The statement with numbered parameters, and their values in that order.
    fn placed(self, sql: &str) -> (String, Vec<Value>);
}

impl<const N: usize> Values for [Value; N] {
    fn placed(self, sql: &str) -> (String, Vec<Value>) {
        (sql.to_owned(), self.into())
    }
}

impl Values for Vec<Value> {
    fn placed(self, sql: &str) -> (String, Vec<Value>) {
        (sql.to_owned(), self)
    }
}

/// Parameters that a statement names, as `:name`.
pub(crate) struct Named<const N: usize>(pub(crate) [(&'static str, Value); N]);

impl<const N: usize> Values for Named<N> {
    fn placed(self, sql: &str) -> (String, Vec<Value>) {
        let mut numbered = String::with_capacity(sql.len());
        let mut rest = sql;
        while let Some(at) = rest.find(':') {
            let (before, behind) = rest.split_at(at);
            numbered.push_str(before);
            let end =
                behind[1..].find(|c: char| !c.is_ascii_alphanumeric() && c != '_').map_or(behind.len(), |end| end + 1);
            let name = &behind[..end];
            match self.0.iter().position(|(known, _)| *known == name) {
                Some(place) => numbered.push_str(&format!("${}", place + 1)),
                None => numbered.push_str(name),
            }
            rest = &behind[end..];
        }
        numbered.push_str(rest);
        (numbered, self.0.into_iter().map(|(_, value)| value).collect())
    }
}

/// The values of parameters `$1`, `$2` and so on.
macro_rules! params {
    ($($value:expr),* $(,)?) => { [$($crate::value::ToValue::value(&$value)),*] as [$crate::value::Value; _] };
}

/// The values of parameters by their names.
macro_rules! named {
    ($($name:literal: $value:expr),* $(,)?) => { $crate::value::Named([$(($name, $crate::value::ToValue::value(&$value))),*]) };
}

pub(crate) use {named, params};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_stand_in_their_places_and_cannot_leave_their_quotes() {
        let written = |sql: &str, values: &[Value]| {
            let mut text = String::new();
            write_out(sql, values, &mut text);
            text
        };
        let values = params![r"it's \ $2 'x'", 7_u32, -3_i64, None::<i64>, true, [0_u8, 255].as_slice()];
        assert_eq!(
            written("SELECT $1, $2, $10, $3, $4, $5, $6, $", &values),
            r"SELECT E'it''s \\ $2 ''x''', 7, $10, '-3'::bigint, NULL::bigint, TRUE, E'\\x00ff'::bytea, $"
        );
        let list = [Value::Texts(vec!["a".to_owned(), "b'".to_owned()]), None::<&str>.value()];
        assert_eq!(written("$1 $2", &list), "ARRAY[E'a',E'b''']::text[] NULL::text");
    }

    #[test]
    fn names_become_numbers_and_casts_stay() {
        let (sql, values) =
            named! { ":a": 1_u32, ":ab": "x" }.placed("SELECT :ab::json, :a, t.c::text, ':' WHERE :a = 1");
        assert_eq!(sql, "SELECT $2::json, $1, t.c::text, ':' WHERE $1 = 1");
        assert_eq!(values.len(), 2);
    }
}
