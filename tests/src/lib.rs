//! What the end-to-end tests stand on: the real `ua` in a world of its own.
//!
//! A [`TestEnv`] is a temporary folder with its own working directory, home, workspace root and tool server, and a process
//! environment from which nothing leaks in. What a test says about effects it counts outside the program: messages in the
//! outbox, objects, notifications, and the lines that the tool server `forum` wrote.
//!
//! ```no_run
//! use serde_json::json;
//! use ua_e2e::TestEnv;
//!
//! let env = TestEnv::new("ua-e2e-forum".as_ref());
//! let job = env.job(&json!({}), &json!([{"text": "Nothing to do."}]));
//! env.run(&["job", &job]).code(0);
//! assert_eq!(env.effects(), [0, 0, 0, 0]);
//! ```

mod browser;
mod collector;
mod database;
mod kill_points;
mod model;
mod poll;
mod process;
mod program;
mod world;

pub use browser::{Browser, Page, Screen};
pub use collector::Collector;
pub use database::Database;
pub use kill_points::{ENDS_WITH, parts};
pub use model::Model;
pub use poll::{eventually, until, until_or_tell};
pub use process::{Live, Output, send};
pub use program::{ua_pdf_program, ua_program};
pub use world::TestEnv;
