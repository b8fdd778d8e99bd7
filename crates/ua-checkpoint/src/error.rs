//! What can be wrong with a stored marker.

use ua_core::{CheckpointId, FailureClass};

use crate::stored::KNOWN;

/// A marker that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CheckpointError {
    /// Written by a build with another stored form.
    #[error(
        "cannot read the {part} of {checkpoint}: it has version {version:?} and this build knows {}; use the build that wrote it, or a newer one",
        KNOWN.map(|known| format!("{known:?}")).join(", ")
    )]
    UnknownVersion {
        /// Which marker.
        checkpoint: CheckpointId,
        /// `cursor` or `snapshot`.
        part: &'static str,
        /// The version found; `null` when there is none.
        version: String,
    },
    /// A known version with another shape: the row is damaged.
    #[error("cannot read the {part} of {checkpoint}: {why}")]
    Malformed {
        /// Which marker.
        checkpoint: CheckpointId,
        /// `cursor` or `snapshot`.
        part: &'static str,
        /// What does not fit.
        why: String,
    },
}

impl CheckpointError {
    /// What a caller can do about it.
    pub const fn class(&self) -> FailureClass {
        match self {
            Self::UnknownVersion { .. } => FailureClass::Operator,
            Self::Malformed { .. } => FailureClass::Permanent,
        }
    }
}
