//! What a caller can do about a failure.

use serde::{Deserialize, Serialize};

/// What the one who reads an error may do next. Each error enum sorts its variants into these, once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureClass {
    /// The same request may succeed later.
    Transient,
    /// The same request will fail again.
    Permanent,
    /// It may have happened; nobody here knows.
    Unknown,
    /// A person has to change something first.
    Operator,
}
