//! Why the server could not start or had to stop. What a *tool* answers is in [`crate::answer`].

use std::path::PathBuf;

use ua_core::{FailureClass, ShowPath as _};

/// Reads after "failed to".
#[derive(Debug, thiserror::Error)]
pub enum ToolServerError {
    /// A directory named in the settings cannot be used.
    #[error("cannot open the {role} directory {}", path.shown())]
    Directory {
        /// What the directory is for.
        role: &'static str,
        path: PathBuf,
        /// What the operating system said.
        #[source]
        source: std::io::Error,
    },
    /// A setting has a value that no server can work with.
    #[error("cannot use --{flag} {value:?}: {why}")]
    Setting {
        /// The flag without its dashes.
        flag: &'static str,
        value: String,
        /// What is wrong with it and what to give instead.
        why: String,
    },
    /// The HTTP client could not be set up (usually: no TLS roots on this machine).
    #[error("cannot set up the HTTP client")]
    Http {
        #[source]
        source: reqwest::Error,
    },
    /// The address is taken, or not one of this machine.
    #[error("cannot listen on {address}")]
    Listen {
        address: std::net::SocketAddr,
        /// What the operating system said.
        #[source]
        source: std::io::Error,
    },
    /// The client left before the protocol's first exchange was over, or spoke another protocol.
    #[error("no agreement with the client on the protocol")]
    Handshake {
        #[source]
        source: Box<rmcp::service::ServerInitializeError>,
    },
    /// The task that serves the client ended abnormally.
    #[error("cannot keep serving the client")]
    Serving {
        #[source]
        source: tokio::task::JoinError,
    },
}

impl ToolServerError {
    /// Whether the input ended before any client said anything.
    pub fn is_without_client(&self) -> bool {
        let Self::Handshake { source } = self else { return false };
        matches!(**source, rmcp::service::ServerInitializeError::ConnectionClosed(_))
    }

    /// The variable of the environment that says what is wrong, its value as it may be shown, and why it cannot be used.
    pub fn variable(&self) -> Option<(String, &str, &str)> {
        match self {
            Self::Setting { flag, value, why } => {
                Some((format!("UA_{}", flag.replace('-', "_").to_uppercase()), value, why))
            }
            Self::Directory { .. }
            | Self::Http { .. }
            | Self::Listen { .. }
            | Self::Handshake { .. }
            | Self::Serving { .. } => None,
        }
    }

    /// What the one who reads the error may do next.
    pub fn class(&self) -> FailureClass {
        match self {
            Self::Directory { .. } | Self::Setting { .. } | Self::Http { .. } | Self::Listen { .. } => {
                FailureClass::Operator
            }
            Self::Handshake { .. } => FailureClass::Permanent,
            Self::Serving { .. } => FailureClass::Unknown,
        }
    }
}
