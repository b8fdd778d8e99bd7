//! A model provider that is an agent: the Claude Code command line, which owns its loop and keeps its own conversation.
//!
//! Durable runner, current state §6 (forced replay) and §9 (provider session). The program `claude` runs without tools of its own; the
//! job's tools are offered to it by MCP servers that are nothing but bridges to this process. What it does shows in the stream of
//! events that it writes:
//!
//! - a reply that asks for tools is a turn like any other. It is returned as soon as it is whole, so it is recorded with its calls
//!   PREPARED before any of them is answered; `claude` has asked for some of them by then, and waits;
//! - the results of the turn's calls answer what it asked for, and the next reply follows;
//! - the id of its session is stored when the first event tells it, so that whatever is killed, the conversation is gone on with;
//! - a fork begins a session of its own from the one of the run it was forked from, and an iteration begins an empty one.
//!
//! So a call goes the one road that all calls go: plan, PREPARED, admission, RUNNING, receipt. Nothing in here runs a tool.
//! [ADR 16](https://github.com/universal-agent/ua/blob/main/docs/adr/0016-an-agent-that-owns-the-loop-is-a-provider.md) says why.
//!
//! Deliberately absent: any decision about a call, any retry, any reading of the environment.

mod bridge;
mod config;
mod desk;
mod fork;
mod home;
mod process;
mod prompt;
mod provider;
mod session;
mod stream;

pub use bridge::run_bridge;
pub use config::{ClaudeCodeConfig, ForkedFrom, NAME};
pub use provider::ClaudeCode;
