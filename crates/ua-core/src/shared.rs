//! A value that its copies share until one of them is changed.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A value whose copies are one value until one of them is changed: a history goes into request after request with the same tools, and most of
/// it is what the request before had. It reads, compares and is stored as the value itself.
#[derive(Default)]
pub struct Shared<T>(Arc<T>);

impl<T> Shared<T> {
    /// Whether both are copies of one value, so that they need not be compared; false says nothing.
    pub fn is_one_with(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl<T: Clone> Shared<T> {
    /// The value alone, copied when there are other copies.
    pub fn unshared(self) -> T {
        Arc::unwrap_or_clone(self.0)
    }
}

impl<T> Clone for Shared<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T: fmt::Debug> fmt::Debug for Shared<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl<T: PartialEq> PartialEq for Shared<T> {
    fn eq(&self, other: &Self) -> bool {
        self.is_one_with(other) || self.0 == other.0
    }
}

impl<T: PartialEq> PartialEq<T> for Shared<T> {
    fn eq(&self, other: &T) -> bool {
        *self.0 == *other
    }
}

impl<T: PartialEq, const N: usize> PartialEq<[T; N]> for Shared<Vec<T>> {
    fn eq(&self, other: &[T; N]) -> bool {
        *self.0 == *other
    }
}

impl<T> Deref for Shared<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: Clone> DerefMut for Shared<T> {
    /// Other copies stay as they are: what is shared is copied first.
    fn deref_mut(&mut self) -> &mut T {
        Arc::make_mut(&mut self.0)
    }
}

impl<T> From<T> for Shared<T> {
    fn from(value: T) -> Self {
        Self(Arc::new(value))
    }
}

impl<T> FromIterator<T> for Shared<Vec<T>> {
    fn from_iter<I: IntoIterator<Item = T>>(items: I) -> Self {
        Vec::from_iter(items).into()
    }
}

impl<T: Clone> IntoIterator for Shared<Vec<T>> {
    type Item = T;
    type IntoIter = std::vec::IntoIter<T>;

    fn into_iter(self) -> Self::IntoIter {
        Arc::unwrap_or_clone(self.0).into_iter()
    }
}

impl<'s, T> IntoIterator for &'s Shared<Vec<T>> {
    type Item = &'s T;
    type IntoIter = std::slice::Iter<'s, T>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.iter()
    }
}

impl<'s, T: Clone> IntoIterator for &'s mut Shared<Vec<T>> {
    type Item = &'s mut T;
    type IntoIter = std::slice::IterMut<'s, T>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter_mut()
    }
}

impl<T: Serialize> Serialize for Shared<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Shared<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        T::deserialize(deserializer).map(Self::from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_that_is_changed_leaves_the_others_as_they_are() {
        let one: Shared<Vec<u8>> = vec![1, 2].into();
        let mut other = one.clone();
        assert!(one.is_one_with(&other) && one == other);
        other.push(3);
        assert!(!one.is_one_with(&other) && one != other);
        assert_eq!((one, other), (vec![1, 2].into(), vec![1, 2, 3].into()));
    }

    #[test]
    fn it_is_stored_as_the_value_itself() {
        let one: Shared<Vec<u8>> = vec![1, 2].into();
        let text = serde_json::to_string(&one).unwrap();
        assert_eq!(text, "[1,2]");
        assert_eq!(serde_json::from_str::<Shared<Vec<u8>>>(&text).unwrap(), one);
    }
}
