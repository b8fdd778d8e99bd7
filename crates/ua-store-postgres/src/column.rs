//! Columns to values and back. What this program could not have written is `Corrupt`, with the row's name.

use serde::Serialize;
use serde::de::DeserializeOwned;
use std::cell::RefCell;
use std::collections::HashMap;
use std::fmt::Display;
use std::str::FromStr;
use std::sync::Arc;
use tokio_postgres::Row;
use tokio_postgres::types::{FromSqlOwned, Type};
use ua_core::{RunSpec, Sha256, Timestamp};
use ua_store::{RowRef, StoreError};

use crate::error::DbError;

/// A value as JSON text.
pub(crate) fn json<T: Serialize>(value: &T) -> Result<String, DbError> {
    serde_json::to_string(value).map_err(|error| unwritable(error).into())
}

/// A value as JSON text, if there is one.
pub(crate) fn opt_json<T: Serialize>(value: Option<&T>) -> Result<Option<String>, DbError> {
    value.map(json).transpose()
}

fn unwritable(why: impl Display) -> StoreError {
    StoreError::Corrupt { row: RowRef::new("database", "a value"), why: format!("it cannot be written: {why}") }
}

/// The word of a value that serializes to a string.
pub(crate) fn stored_name<T: Serialize>(value: &T) -> Result<String, DbError> {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(word)) => Ok(word),
        Ok(other) => Err(unwritable(format!("{other} is not a word")).into()),
        Err(error) => Err(unwritable(error).into()),
    }
}

/// An unsigned number as a column holds it; beyond 2^63 the largest it can hold.
pub(crate) fn int(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Any displayable value as text.
pub(crate) fn text(value: &impl Display) -> String {
    value.to_string()
}

/// Any displayable value as text, if there is one.
pub(crate) fn opt_text<T: Display>(value: Option<&T>) -> Option<String> {
    value.map(text)
}

/// Contracts that a thread keeps read.
const MOST_CONTRACTS: usize = 64;

thread_local! {
    /// Contracts of runs, with the text they were read from. Every write of an owner reads its run.
    static CONTRACTS: RefCell<HashMap<String, (String, Arc<RunSpec>)>> = RefCell::default();
}

/// A row, with the name that errors about it carry.
pub(crate) struct Columns<'r> {
    row: &'r Row,
    table: &'static str,
    key: &'static str,
}

impl<'r> Columns<'r> {
    /// `key` is the column that names the row.
    pub(crate) fn new(row: &'r Row, table: &'static str, key: &'static str) -> Self {
        Self { row, table, key }
    }

    fn corrupt(&self, column: &str, why: impl Display) -> DbError {
        let is_number = self.row.columns().iter().any(|own| own.name() == self.key && *own.type_() == Type::INT8);
        let key = if is_number {
            self.row.try_get::<_, i64>(self.key).map(|key| key.to_string())
        } else {
            self.row.try_get::<_, String>(self.key)
        };
        let key = key.unwrap_or_else(|_| "?".to_owned());
        StoreError::Corrupt { row: RowRef::new(self.table, key), why: format!("column {column}: {why}") }.into()
    }

    /// A column as PostgreSQL has it.
    pub(crate) fn get<T: FromSqlOwned>(&self, column: &str) -> Result<T, DbError> {
        self.row.try_get(column).map_err(|error| self.corrupt(column, error))
    }

    /// A whole number.
    pub(crate) fn int<T>(&self, column: &str) -> Result<T, DbError>
    where
        T: TryFrom<i64>,
    {
        let number: i64 = self.get(column)?;
        T::try_from(number).map_err(|_| self.corrupt(column, format!("{number} is out of range")))
    }

    /// A whole number, if there is one.
    pub(crate) fn opt_int<T>(&self, column: &str) -> Result<Option<T>, DbError>
    where
        T: TryFrom<i64>,
    {
        let Some(number) = self.get::<Option<i64>>(column)? else { return Ok(None) };
        T::try_from(number).map(Some).map_err(|_| self.corrupt(column, format!("{number} is out of range")))
    }

    /// A value that is parsed from its text: an id, a status.
    pub(crate) fn parsed<T>(&self, column: &str) -> Result<T, DbError>
    where
        T: FromStr,
        T::Err: Display,
    {
        let text: String = self.get(column)?;
        text.parse().map_err(|error| self.corrupt(column, error))
    }

    /// A value that is parsed from its text, if there is one.
    pub(crate) fn opt_parsed<T>(&self, column: &str) -> Result<Option<T>, DbError>
    where
        T: FromStr,
        T::Err: Display,
    {
        if self.get::<Option<String>>(column)?.is_some() { self.parsed(column).map(Some) } else { Ok(None) }
    }

    /// A value that serializes to a string.
    pub(crate) fn stored_name<T: DeserializeOwned>(&self, column: &str) -> Result<T, DbError> {
        let text: String = self.get(column)?;
        serde_json::from_value(serde_json::Value::String(text)).map_err(|error| self.corrupt(column, error))
    }

    /// A value that serializes to a string, if there is one.
    pub(crate) fn opt_word<T: DeserializeOwned>(&self, column: &str) -> Result<Option<T>, DbError> {
        if self.get::<Option<String>>(column)?.is_some() { self.stored_name(column).map(Some) } else { Ok(None) }
    }

    /// A value that is kept as JSON.
    pub(crate) fn json<T: DeserializeOwned>(&self, column: &str) -> Result<T, DbError> {
        let text: String = self.get(column)?;
        let mut reader = serde_json::Deserializer::from_str(&text);
        // What was stored had passed a depth limit on its own; inside a message it lies a few levels deeper.
        reader.disable_recursion_limit();
        T::deserialize(&mut reader).map_err(|error| self.corrupt(column, error))
    }

    /// The contract of a run, which never changes: who reads the run again gets the same value.
    pub(crate) fn shared(&self, column: &'static str) -> Result<Arc<RunSpec>, DbError> {
        let (key, text): (String, String) = (self.get(self.key)?, self.get(column)?);
        CONTRACTS.with_borrow_mut(|contracts| {
            if let Some((known, spec)) = contracts.get(&key)
                && *known == text
            {
                return Ok(Arc::clone(spec));
            }
            let spec: Arc<RunSpec> = Arc::new(self.json(column)?);
            if contracts.len() >= MOST_CONTRACTS {
                contracts.clear();
            }
            contracts.insert(key, (text, Arc::clone(&spec)));
            Ok(spec)
        })
    }

    /// A value that is kept as JSON, if there is one.
    pub(crate) fn opt_json<T: DeserializeOwned>(&self, column: &str) -> Result<Option<T>, DbError> {
        if self.get::<Option<String>>(column)?.is_some() { self.json(column).map(Some) } else { Ok(None) }
    }

    /// An instant.
    pub(crate) fn at(&self, column: &str) -> Result<Timestamp, DbError> {
        let text: String = self.get(column)?;
        Timestamp::parse(&text).ok_or_else(|| self.corrupt(column, format!("{text:?} is not an instant")))
    }

    /// An instant, if there is one.
    pub(crate) fn opt_at(&self, column: &str) -> Result<Option<Timestamp>, DbError> {
        if self.get::<Option<String>>(column)?.is_some() { self.at(column).map(Some) } else { Ok(None) }
    }

    /// A digest.
    pub(crate) fn sha256(&self, column: &str) -> Result<Sha256, DbError> {
        let text: String = self.get(column)?;
        Sha256::from_hex(&text).ok_or_else(|| self.corrupt(column, format!("{text:?} is not a digest")))
    }

    /// A digest, if there is one.
    pub(crate) fn opt_sha256(&self, column: &str) -> Result<Option<Sha256>, DbError> {
        if self.get::<Option<String>>(column)?.is_some() { self.sha256(column).map(Some) } else { Ok(None) }
    }
}
