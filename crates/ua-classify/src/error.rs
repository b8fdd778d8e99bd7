//! What can be wrong with a policy. Every one of these stops the start: a rule that is not understood might be the one
//! that was meant to keep a tool from running twice.

use ua_core::FailureClass;

/// Reads after "failed to".
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PolicyError {
    /// The file is not TOML.
    #[error("invalid policy file {file}, line {line}: {why}")]
    Syntax {
        /// The file, as it was named to the parser.
        file: String,
        /// The line, from 1.
        line: usize,
        /// What the parser said.
        why: String,
    },
    /// A field that does not exist, or a value that it cannot have.
    #[error("invalid policy file {file}, line {line}: {rule}, field `{field}`: {why}")]
    Field {
        /// The file, as it was named to the parser.
        file: String,
        /// The line, from 1.
        line: usize,
        /// Which rule: its id, or its place in the file when it has none.
        rule: String,
        /// The field.
        field: String,
        /// What is wrong, and what to write instead.
        why: String,
    },
    /// An entry of one of the two lists cannot be read.
    #[error("cannot read {entry:?} in {list}: {why}")]
    List {
        /// `side_effect_denylist` or `read_only_allowlist`.
        list: &'static str,
        /// The entry.
        entry: String,
        /// What is wrong with it.
        why: String,
    },
    /// Two rules share an id, so the ledger could not say which one decided.
    #[error("two rules have the same id: {first} and {second} both have a rule {id:?}; rename one")]
    DuplicateId {
        /// The id.
        id: String,
        /// The file that has it first.
        first: String,
        /// The file that has it again.
        second: String,
    },
    /// A server is to be judged by a policy pack that is not there.
    #[error("there is no policy pack {pack:?} to classify the tools of {server:?}")]
    UnknownPack {
        /// The server's name in the configuration.
        server: String,
        /// What was named.
        pack: String,
    },
}

impl PolicyError {
    /// What a caller can do: in each case a person edits a file.
    pub fn class(&self) -> FailureClass {
        match self {
            Self::Syntax { .. }
            | Self::Field { .. }
            | Self::List { .. }
            | Self::DuplicateId { .. }
            | Self::UnknownPack { .. } => FailureClass::Operator,
        }
    }
}
