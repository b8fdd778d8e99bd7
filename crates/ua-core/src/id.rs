//! Identifiers. Each is its own type, so that a call id is never passed where a run id is meant.
//!
//! A record has four of them, and each record of a turn is copied some times on its way: an id and its copies share their text.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize, Serializer};

use crate::Env;

/// An identifier that is empty, too long, or holds a character that a file name or a shell would mind.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invalid id {text:?}: use 1 to 100 of the characters a-z A-Z 0-9 _ . - and start with a letter or digit")]
pub struct InvalidId {
    text: String,
}

fn check(text: &str) -> Result<(), InvalidId> {
    let starts_well = text.as_bytes().first().is_some_and(u8::is_ascii_alphanumeric);
    let all_plain = text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'-'));
    if starts_well && all_plain && text.len() <= 100 { Ok(()) } else { Err(InvalidId { text: text.to_owned() }) }
}

macro_rules! id {
    ($(#[$doc:meta])* $name:ident, $prefix:literal) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
        #[serde(try_from = "String")]
        pub struct $name(Arc<str>);

        impl $name {
            /// Makes a fresh id from the environment's clock and entropy; ids made later sort later.
            pub fn new(env: &Env) -> Self {
                Self(format!("{}{}", $prefix, env.uuid_v7()).into())
            }

            /// Reads an id that a person or a database gave.
            pub fn parse(text: &str) -> Result<Self, InvalidId> {
                check(text)?;
                Ok(Self(text.into()))
            }

            /// The text of the id, as stored and shown.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl FromStr for $name {
            type Err = InvalidId;
            fn from_str(text: &str) -> Result<Self, InvalidId> {
                Self::parse(text)
            }
        }

        impl TryFrom<String> for $name {
            type Error = InvalidId;
            fn try_from(text: String) -> Result<Self, InvalidId> {
                check(&text)?;
                Ok(Self(text.into()))
            }
        }

        impl From<$name> for String {
            fn from(id: $name) -> Self {
                id.as_str().to_owned()
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(&self.0)
            }
        }
    };
}

id! {
    /// One durable execution of a job ("Durable Jobs v1 spec §2"). A person may choose it (`--run-id`).
    RunId, "run_"
}

impl RunId {
    /// An id made of another one, which is known to be plain.
    pub(crate) fn of_text(text: String) -> Self {
        Self(text.into())
    }
}

id! {
    /// A bounded unit of execution within a run ("Durable Jobs v1 spec §2").
    StepId, "step_"
}
id! {
    /// One tool use of the model, with its own row in the ledger.
    CallId, "call_"
}
id! {
    /// A marker at which the run can be seen to stand.
    CheckpointId, "ckpt_"
}
id! {
    /// Something only a person can decide.
    QuestionId, "q_"
}

/// The W3C trace id of one process that drove a run: 32 lower-case hexadecimal digits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trace(String);

impl Trace {
    /// Makes a fresh trace id. All of it is chance, unlike other ids: who records only some traces decides by its digits.
    pub fn new(env: &Env) -> Self {
        Self(format!("{:016x}{:016x}", env.entropy.next_u64(), env.entropy.next_u64() | 1))
    }

    /// Reads a stored trace id.
    pub fn from_stored(text: String) -> Self {
        Self(text)
    }

    /// The trace id's digits.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns a `traceparent` header value for one span of this trace, with a span id drawn from `env`.
    pub fn traceparent(&self, env: &Env) -> String {
        format!("00-{}-{:016x}-01", self.0, env.entropy.next_u64() | 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_of_people_are_checked() {
        assert!(RunId::parse("run_x").is_ok());
        for bad in ["", "../x", "a b", "-x", "_x", &"x".repeat(101)] {
            assert!(RunId::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn ids_made_later_sort_later() {
        let env = Env::simulated(7);
        let first = CallId::new(&env);
        env.clock.sleep_blocking_for_tests(std::time::Duration::from_millis(5));
        assert!(CallId::new(&env) > first);
    }
}
