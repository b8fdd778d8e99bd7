//! A run as one page for a browser: what happened when, in a file that needs nothing else.
//!
//! Spec: Durability Architecture, "Evidence Summary"; Context Storage & Durability §6 (external ids are shown).
//! Invariants: the page loads nothing and runs no script but its own (its policy allows one script and one style sheet, by their
//! digests); whatever a tool, a model or a file said is data in it and shown as text, with what hides made visible; its size is
//! bounded, and it says what it leaves out; a call reads as done only by its verdict.

mod data;
mod page;
#[cfg(test)]
mod tests;

pub use page::timeline_html;
