//! Columns to values and back. What this program could not have written is `Corrupt`, with the row's name.

use rusqlite::types::{FromSql, Value as SqlValue, ValueRef};
use rusqlite::{Row, Statement};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value as JsonValue;
use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::fmt::Display;
use std::rc::Rc;
use std::str::FromStr;
use std::sync::Arc;
use std::thread::LocalKey;
use ua_core::{CallPolicy, RunSpec, Sha256, Shared, Timestamp};
use ua_store::{RowRef, StoreError};

use crate::error::DbError;

/// A value as JSON text.
pub(crate) fn json<T: Serialize>(value: &T) -> Result<String, DbError> {
    serde_json::to_string(value).map_err(|error| rusqlite::Error::ToSqlConversionFailure(error.into()).into())
}

/// A value as JSON text, if there is one.
pub(crate) fn opt_json<T: Serialize>(value: Option<&T>) -> Result<Option<String>, DbError> {
    value.map(json).transpose()
}

/// The word of a value that serializes to a string.
pub(crate) fn stored_name<T: Serialize>(value: &T) -> Result<String, DbError> {
    let mut text = json(value)?;
    // No word has anything in it that JSON writes otherwise.
    if text.len() < 2 || !text.starts_with('"') || text.contains('\\') {
        return Err(rusqlite::Error::ToSqlConversionFailure(format!("{text} is not a word").into()).into());
    }
    text.pop();
    text.remove(0);
    Ok(text)
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

/// Where the columns of a query's result are.
struct Layout {
    first: String,
    last: String,
    places: HashMap<String, usize>,
    /// What was asked for, in order, and where it is: whoever reads a row asks for its columns as for those of the row before.
    asked: RefCell<Vec<(&'static str, usize)>>,
}

impl Layout {
    fn of(statement: &Statement<'_>) -> Self {
        let names: Vec<&str> = statement.column_names().collect();
        Self {
            first: names.first().copied().unwrap_or_default().to_owned(),
            last: names.last().copied().unwrap_or_default().to_owned(),
            // Of two columns of one name the first counts, as it does for SQLite.
            places: names.iter().enumerate().rev().map(|(place, name)| ((*name).to_owned(), place)).collect(),
            asked: RefCell::default(),
        }
    }

    /// Where `column` is, which is asked for as the one behind `before` others.
    fn place(&self, column: &'static str, before: usize) -> Option<usize> {
        let mut asked = self.asked.borrow_mut();
        if let Some((known, place)) = asked.get(before)
            && std::ptr::eq(*known, column)
        {
            return Some(*place);
        }
        let place = self.places.get(column).copied()?;
        asked.truncate(before);
        asked.push((column, place));
        Some(place)
    }

    fn is_of(&self, statement: &Statement<'_>, count: usize) -> bool {
        let is_at = |place: usize, name: &str| statement.column_name(place).is_ok_and(|own| own == name);
        is_at(0, &self.first) && is_at(count.saturating_sub(1), &self.last)
    }
}

thread_local! {
    /// Layouts of results by table and number of columns, the one that was used last in front. SQLite finds a column by comparing names one
    /// after the other, which took most of the time of reading a row.
    static LAYOUTS: RefCell<Vec<(&'static str, usize, Rc<Layout>)>> = RefCell::default();
}

thread_local! {
    /// Policies of calls, by their texts: most calls have one of a few.
    static POLICIES: RefCell<HashMap<String, Shared<CallPolicy>>> = RefCell::default();
    /// The texts of policies that were written lately.
    static POLICY_TEXTS: RefCell<VecDeque<(Shared<CallPolicy>, Rc<str>)>> = RefCell::default();
}

/// As many policies that were written lately are known.
const MOST_TEXTS: usize = 8;

/// A policy as JSON text, which is made once for all calls that share it.
pub(crate) fn policy_text(policy: &Shared<CallPolicy>) -> Result<Rc<str>, DbError> {
    POLICY_TEXTS.with_borrow_mut(|texts| {
        if let Some((_, text)) = texts.iter().find(|(known, _)| known.is_one_with(policy)) {
            return Ok(Rc::clone(text));
        }
        let text: Rc<str> = json(policy)?.into();
        texts.truncate(MOST_TEXTS - 1);
        texts.push_front((policy.clone(), Rc::clone(&text)));
        Ok(text)
    })
}

/// As many values of a kind a thread keeps read.
const MOST_KEPT: usize = 64;

/// A value with the text that it was read from.
struct Parsed<T> {
    text: Rc<str>,
    value: Arc<T>,
}

impl<T> Clone for Parsed<T> {
    fn clone(&self) -> Self {
        Self { text: Rc::clone(&self.text), value: Arc::clone(&self.value) }
    }
}

/// Values that never change in their rows.
struct Kept<T> {
    by_key: HashMap<String, Parsed<T>>,
    /// The one that was read last: whoever goes through many rows finds the same text in most of them, since runs of one job have one contract
    /// and their steps one fingerprint.
    last: Option<Parsed<T>>,
}

impl<T> Kept<T> {
    fn new() -> RefCell<Self> {
        RefCell::new(Self { by_key: HashMap::new(), last: None })
    }
}

thread_local! {
    /// Contracts of runs. Every write of an owner reads its run.
    static CONTRACTS: RefCell<Kept<RunSpec>> = Kept::new();
    /// Fingerprints of steps. Every write about a turn reads its step.
    static FINGERPRINTS: RefCell<Kept<JsonValue>> = Kept::new();
}

fn layout(row: &Row<'_>, table: &'static str) -> Rc<Layout> {
    let statement = row.as_ref();
    let count = statement.column_count();
    LAYOUTS.with_borrow_mut(|layouts| {
        let known = layouts.iter().position(|(of, columns, _)| *columns == count && *of == table);
        if let Some(place) = known {
            layouts.swap(0, place);
            if layouts[0].2.is_of(statement, count) {
                return Rc::clone(&layouts[0].2);
            }
            layouts.swap_remove(0);
        }
        let layout = Rc::new(Layout::of(statement));
        layouts.insert(0, (table, count, Rc::clone(&layout)));
        layout
    })
}

/// A row, with the name that errors about it carry.
pub(crate) struct Columns<'r, 's> {
    row: &'r Row<'s>,
    table: &'static str,
    key: &'static str,
    layout: Rc<Layout>,
    /// How many columns were asked for.
    asked: Cell<usize>,
}

impl<'r, 's> Columns<'r, 's> {
    /// `key` is the column that names the row.
    pub(crate) fn new(row: &'r Row<'s>, table: &'static str, key: &'static str) -> Self {
        Self { row, table, key, layout: layout(row, table), asked: Cell::new(0) }
    }

    fn corrupt(&self, column: &str, why: impl Display) -> DbError {
        let key = match self.row.get::<_, SqlValue>(self.key) {
            Ok(SqlValue::Text(key)) => key,
            Ok(SqlValue::Integer(key)) => key.to_string(),
            Ok(SqlValue::Null | SqlValue::Real(_) | SqlValue::Blob(_)) | Err(_) => "?".to_owned(),
        };
        StoreError::Corrupt { row: RowRef::new(self.table, key), why: format!("column {column}: {why}") }.into()
    }

    /// A column as SQLite has it.
    pub(crate) fn get<T: FromSql>(&self, column: &'static str) -> Result<T, DbError> {
        self.row.get(self.place(column)?).map_err(|error| self.corrupt(column, error))
    }

    /// A whole number.
    pub(crate) fn int<T>(&self, column: &'static str) -> Result<T, DbError>
    where
        T: TryFrom<i64>,
    {
        let number: i64 = self.get(column)?;
        T::try_from(number).map_err(|_| self.corrupt(column, format!("{number} is out of range")))
    }

    /// A whole number, if there is one.
    pub(crate) fn opt_int<T>(&self, column: &'static str) -> Result<Option<T>, DbError>
    where
        T: TryFrom<i64>,
    {
        let Some(number) = self.get::<Option<i64>>(column)? else { return Ok(None) };
        T::try_from(number).map(Some).map_err(|_| self.corrupt(column, format!("{number} is out of range")))
    }

    /// A value that is parsed from its text: an id, a status.
    pub(crate) fn parsed<T>(&self, column: &'static str) -> Result<T, DbError>
    where
        T: FromStr,
        T::Err: Display,
    {
        self.text(column)?.parse().map_err(|error| self.corrupt(column, error))
    }

    /// A value that is parsed from its text, if there is one.
    pub(crate) fn opt_parsed<T>(&self, column: &'static str) -> Result<Option<T>, DbError>
    where
        T: FromStr,
        T::Err: Display,
    {
        if self.is_null(column)? { Ok(None) } else { self.parsed(column).map(Some) }
    }

    /// A value that serializes to a string.
    pub(crate) fn stored_name<T: DeserializeOwned>(&self, column: &'static str) -> Result<T, DbError> {
        let text: String = self.get(column)?;
        serde_json::from_value(serde_json::Value::String(text)).map_err(|error| self.corrupt(column, error))
    }

    /// A value that serializes to a string, if there is one.
    pub(crate) fn opt_word<T: DeserializeOwned>(&self, column: &'static str) -> Result<Option<T>, DbError> {
        if self.is_null(column)? { Ok(None) } else { self.stored_name(column).map(Some) }
    }

    /// A value that is kept as JSON.
    pub(crate) fn json<T: DeserializeOwned>(&self, column: &'static str) -> Result<T, DbError> {
        let mut reader = serde_json::Deserializer::from_str(self.text(column)?);
        // What was stored had passed a depth limit on its own; inside a message it lies a few levels deeper.
        reader.disable_recursion_limit();
        T::deserialize(&mut reader).map_err(|error| self.corrupt(column, error))
    }

    /// The contract of a run: who reads the run again gets the same value.
    pub(crate) fn contract(&self, column: &'static str) -> Result<Arc<RunSpec>, DbError> {
        self.kept(column, &CONTRACTS)
    }

    /// The fingerprint of a step, if it has one.
    pub(crate) fn fingerprint(&self, column: &'static str) -> Result<Option<Arc<JsonValue>>, DbError> {
        if self.is_null(column)? { Ok(None) } else { self.kept(column, &FINGERPRINTS).map(Some) }
    }

    /// The policy of a call: calls that have the same share it.
    pub(crate) fn policy(&self, column: &'static str) -> Result<Shared<CallPolicy>, DbError> {
        let text = self.text(column)?;
        POLICIES.with_borrow_mut(|known| {
            if let Some(policy) = known.get(text) {
                return Ok(policy.clone());
            }
            let policy: Shared<CallPolicy> = self.json(column)?;
            if known.len() >= MOST_KEPT {
                known.clear();
            }
            known.insert(text.to_owned(), policy.clone());
            Ok(policy)
        })
    }

    /// A value that never changes.
    fn kept<T: DeserializeOwned>(
        &self,
        column: &'static str,
        kept: &'static LocalKey<RefCell<Kept<T>>>,
    ) -> Result<Arc<T>, DbError> {
        let (key, text) = (self.text(self.key)?, self.text(column)?);
        kept.with_borrow_mut(|kept| {
            if let Some(known) = kept.by_key.get(key)
                && *known.text == *text
            {
                return Ok(Arc::clone(&known.value));
            }
            let parsed = match &kept.last {
                Some(last) if *last.text == *text => last.clone(),
                _ => Parsed { text: text.into(), value: Arc::new(self.json(column)?) },
            };
            if kept.by_key.len() >= MOST_KEPT {
                kept.by_key.clear();
            }
            kept.by_key.insert(key.to_owned(), parsed.clone());
            let value = Arc::clone(&parsed.value);
            kept.last = Some(parsed);
            Ok(value)
        })
    }

    /// A column's text where it lies.
    fn text(&self, column: &'static str) -> Result<&'r str, DbError> {
        let place = self.place(column)?;
        let text = self.row.get_ref(place).map_err(|error| self.corrupt(column, error))?;
        text.as_str().map_err(|error| self.corrupt(column, error))
    }

    fn is_null(&self, column: &'static str) -> Result<bool, DbError> {
        let place = self.place(column)?;
        let value = self.row.get_ref(place).map_err(|error| self.corrupt(column, error))?;
        Ok(matches!(value, ValueRef::Null))
    }

    fn place(&self, column: &'static str) -> Result<usize, DbError> {
        let before = self.asked.replace(self.asked.get() + 1);
        self.layout.place(column, before).ok_or_else(|| self.corrupt(column, "it is missing"))
    }

    /// A value that is kept as JSON, if there is one.
    pub(crate) fn opt_json<T: DeserializeOwned>(&self, column: &'static str) -> Result<Option<T>, DbError> {
        if self.is_null(column)? { Ok(None) } else { self.json(column).map(Some) }
    }

    /// An instant.
    pub(crate) fn at(&self, column: &'static str) -> Result<Timestamp, DbError> {
        let text = self.text(column)?;
        Timestamp::parse(text).ok_or_else(|| self.corrupt(column, format!("{text:?} is not an instant")))
    }

    /// An instant, if there is one.
    pub(crate) fn opt_at(&self, column: &'static str) -> Result<Option<Timestamp>, DbError> {
        if self.is_null(column)? { Ok(None) } else { self.at(column).map(Some) }
    }

    /// A digest.
    pub(crate) fn sha256(&self, column: &'static str) -> Result<Sha256, DbError> {
        let text = self.text(column)?;
        Sha256::from_hex(text).ok_or_else(|| self.corrupt(column, format!("{text:?} is not a digest")))
    }

    /// A digest, if there is one.
    pub(crate) fn opt_sha256(&self, column: &'static str) -> Result<Option<Sha256>, DbError> {
        if self.is_null(column)? { Ok(None) } else { self.sha256(column).map(Some) }
    }
}
