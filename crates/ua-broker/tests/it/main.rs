//! The gateway end to end: a client that names nothing, bridges, a broker and tool servers as processes, effects counted in a file.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]
#![expect(clippy::disallowed_methods, reason = "tests make the files that they look at")]

mod accounts;
mod changes;
mod crashes;
mod deciding;
mod doubts;
mod ends;
mod eras;
mod http;
mod late;
mod matrix;
#[path = "../../../ua-testkit/tests/it/one_binary.rs"]
mod one_binary;
mod order;
mod passing;
mod posted;
mod remote;
mod renewed;
mod repeats;
mod secrets;
mod shapes;
mod silent;
#[allow(unreachable_pub, reason = "it is a part of another crate, which shows it")]
#[path = "../../../ua-testkit/src/skips.rs"]
mod skips;
mod starting;
mod tasks;
mod telling;
mod torn;
mod world;
