//! What a model is told when a run goes on: the resume packet, the note of a fork, and the hand-off from one iteration to the next. And where a
//! run stands, as people are told it ([`Standing`]).
//!
//! Everything here is a pure function of stored records. Text that came from a tool, a model or a file is foreign: it is shown as quoted
//! data, with control characters made visible, and cannot open a heading or close a fence of ours.

pub mod answers;
mod at_boundary;
pub mod budget;
pub mod commands;
#[cfg(test)]
mod corpus_tests;
mod fork;
mod handoff;
mod handoff_note;
mod in_queue;
mod iterations;
pub mod job_diff;
mod lives;
mod next_step;
mod packet;
pub mod page;
pub mod question;
pub mod render;
mod standing;
pub mod usage;
mod words;

pub use at_boundary::before_last_iteration;
pub use budget::{BudgetLine, raise_flags};
pub use commands::Commands;
pub use fork::ForkNote;
pub use handoff::{Handoff, HandoffEvidence, HandoffNext, HandoffOpen, PersonsWords};
pub use in_queue::InQueue;
pub use iterations::{IterationLine, iterations};
pub use job_diff::{JobChange, job_changes};
pub use lives::{Life, LifeEnd, drivers, end_of, kills, lives, lives_beside, process_number, time_at_work};
pub use next_step::NextStep;
pub use packet::{CheckpointLine, Decision, HowLeft, InFlight, PastEffect, ResumePacket, StepLine};
pub use question::{AnswerLine, QuestionLine, correct_by_hand, resolve_by_hand};
pub use standing::{AroundRun, OtherPlace, Standing};
pub use usage::{ModelUsage, UsageSummary};
pub use words::{
    after_turn, call_standing, calls_in_words, failure_in_words, inherited_turns_in_words, place_in_words,
    processes_words, status_detail, status_words,
};
