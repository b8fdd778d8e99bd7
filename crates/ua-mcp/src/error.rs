//! What can be wrong with the configuration of tool servers.

use ua_core::FailureClass;

/// Why a configuration of tool servers was not accepted.
///
/// A server that does not start is a `TransportError` of the dispatcher; what a call brought back is an `Outcome`.
#[derive(Debug, thiserror::Error)]
pub enum McpError {
    /// The text is not JSON, or not an object with `mcpServers`.
    #[error("invalid tool servers in {source_name}: {why}")]
    Unreadable {
        /// Where the text came from.
        source_name: String,
        /// What is wrong with it.
        why: String,
    },
    /// A server's name cannot be part of a tool's name.
    #[error("invalid tool server name {server:?} in {source_name}: {why}")]
    Name {
        /// Where the text came from.
        source_name: String,
        /// The name.
        server: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// A field of a server's entry is unknown, missing or of the wrong kind.
    #[error("invalid `{field}` of the tool server `{server}` in {source_name}: {why}")]
    Field {
        /// Where the text came from.
        source_name: String,
        /// The server.
        server: String,
        /// The field, with the name inside it where it has names.
        field: String,
        /// What is wrong with it.
        why: String,
    },
    /// A `${NAME}` stands for nothing.
    #[error(
        "cannot expand `${{{variable}}}` in `{field}` of the tool server `{server}`: set the variable {variable}, or remove the reference"
    )]
    MissingVariable {
        /// The server.
        server: String,
        /// The field.
        field: String,
        /// The variable.
        variable: String,
    },
}

impl McpError {
    /// What the caller may do next: each of these is for a person to correct.
    pub fn class(&self) -> FailureClass {
        match self {
            Self::Unreadable { .. } | Self::Name { .. } | Self::Field { .. } | Self::MissingVariable { .. } => {
                FailureClass::Operator
            }
        }
    }
}
