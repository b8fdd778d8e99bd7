//! Rows of one kind, cheap to copy: a copy shares each row until one side changes it.

use std::sync::Arc;

/// Rows in the order in which they were made.
#[derive(Debug, Clone)]
pub(super) struct Table<T>(Vec<Arc<T>>);

impl<T> Default for Table<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T: Clone> Table<T> {
    pub(super) fn iter(&self) -> impl DoubleEndedIterator<Item = &T> {
        self.0.iter().map(AsRef::as_ref)
    }

    pub(super) fn iter_mut(&mut self) -> impl DoubleEndedIterator<Item = &mut T> {
        self.0.iter_mut().map(Arc::make_mut)
    }

    pub(super) fn push(&mut self, row: T) {
        self.0.push(Arc::new(row));
    }

    pub(super) fn retain(&mut self, stays: impl Fn(&T) -> bool) {
        self.0.retain(|row| stays(row));
    }

    /// Replaces the row that `is_it` finds, or appends `row`.
    pub(super) fn put(&mut self, row: T, is_it: impl Fn(&T) -> bool) {
        match self.0.iter_mut().find(|stored| is_it(stored)) {
            Some(stored) => *stored = Arc::new(row),
            None => self.push(row),
        }
    }
}
