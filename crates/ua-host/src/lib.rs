//! What any front door of the durable job runner needs: settings as a value, trust, secrets, providers, policies, tool servers, how a run
//! is launched, and one process's work on it.
//!
//! A front door (a command line, a service, a test) makes a [`Host`] over [`Settings`], implements [`People`] for those before it, and
//! calls [`job::run`], [`resume::found`] or [`Fork`](fork::Fork). There is no argument parser here, no terminal and no exit code: failures
//! are a [`HostError`] with a [`Kind`], ends an [`Ending`].
//!
//! Invariants: [`mod@env`] alone asks for the process's environment, once; two hosts of one process share no setting, secret or folder; nothing that a
//! front door does with what it is told changes a run.
//! Proved by: this crate's tests, and the end-to-end tests `front_door` with a second front door beside `ua`.
//!
//! ```
//! use ua_host::{Process, Settings};
//!
//! let variables = [("UA_PROVIDER".to_owned(), "scripted".to_owned())].into();
//! let settings = Settings::read(Process { variables, ..Process::default() });
//! assert_eq!(settings.var("UA_PROVIDER").as_deref(), Some("scripted"));
//! ```

mod alert;
pub mod base_url;
pub mod budgets;
pub mod check;
pub mod claude_code;
mod consent;
pub mod corrections;
pub mod credentials;
mod database;
mod elsewhere;
pub mod env;
mod error;
pub mod escape;
pub mod fleet;
mod forgotten;
pub mod fork;
pub mod gateway;
mod hint;
pub mod home;
mod host;
pub mod input_files;
pub mod job;
pub mod job_file;
pub mod launch;
pub mod login;
pub mod logins;
pub mod mcp_files;
pub mod models;
mod obstacles;
mod owner;
mod packs;
pub mod pages;
pub mod paths;
pub mod people;
pub mod placed;
pub mod policies;
pub mod pricing;
pub mod progress;
pub mod providers;
pub mod questions;
pub mod redaction;
pub mod restart;
pub mod resume;
pub mod review;
mod roots;
pub mod sandbox;
pub mod secrets;
pub mod selectors;
pub mod servers;
pub mod session;
pub mod settings;
#[cfg(test)]
mod share;
mod shortage;
#[cfg(test)]
#[allow(unreachable_pub, reason = "it is a part of another crate, which shows it")]
#[path = "../../ua-testkit/src/skips.rs"]
mod skips;
mod spans;
pub mod standing;
mod standpoint;
pub mod text;
pub mod tool_lock;
pub mod tree;
pub mod trust;
pub mod unknown_tools;
pub mod waits;
pub mod words;

pub use alert::check_alerts;
pub use database::{Database, OtherPlace, Whereabouts};
pub use elsewhere::Elsewhere;
pub use env::Process;
pub use error::{HostError, Kind, chain};
pub use forgotten::{ANSWERS_AGAIN, why_held};
pub use hint::{Hint, Word};
pub use host::Host;
pub use people::People;
pub use session::Ending;
pub use settings::Settings;
pub use spans::Spans;
pub use standpoint::Standpoint;
pub use ua_runner::Seams;

#[cfg(test)]
mod escape_corpus;
