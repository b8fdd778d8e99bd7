//! Tests that go through very many cases take every seventh of them before a change lands, and all of them with `UA_WHOLE=1`, as every night.

use std::sync::LazyLock;

use crate::env::Process;

static OF: LazyLock<usize> = LazyLock::new(|| if Process::own().variables.contains_key("UA_WHOLE") { 1 } else { 7 });

/// Of so many cases one is taken.
pub(crate) fn of() -> usize {
    *OF
}

/// Whether the case of this number is.
pub(crate) fn has(number: usize) -> bool {
    number.is_multiple_of(of())
}
