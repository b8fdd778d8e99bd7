//! Tests that go through very many cases take every seventh of them before a change lands, and all of them with `UA_WHOLE=1`, as every night.

/// Of so many cases one is taken.
pub(crate) fn of() -> usize {
    if std::env::var_os("UA_WHOLE").is_some() { 1 } else { 7 }
}

/// Whether the case of this number is.
pub(crate) fn has(number: usize) -> bool {
    number.is_multiple_of(of())
}
