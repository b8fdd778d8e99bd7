//! May this call run, has it run, what did it answer: the ledger of one run's tool calls.
//!
//! Durable Jobs v1 spec §8; Context Storage & Durability §4. Invariants: nothing is sent before RUNNING is committed
//! ([`Permit`] is the proof, and only [`Ledger::start`] makes one); a settled key is never executed again; RUNNING found at
//! admission is unknown, never ready; what a tool answered is stored before it is believed.
//!
//! A permit cannot be forged, copied or settled twice:
//!
//! ```compile_fail
//! fn forge() -> ua_ledger::Permit {
//!     ua_ledger::Permit { } // private fields
//! }
//! ```
//!
//! ```compile_fail
//! fn copy(permit: &ua_ledger::Permit) -> ua_ledger::Permit {
//!     permit.clone() // not `Clone`
//! }
//! ```
//!
//! ```compile_fail
//! async fn settle_twice(ledger: &ua_ledger::Ledger, permit: ua_ledger::Permit, outcome: ua_core::Outcome) {
//!     let _first = ledger.settle(permit, outcome.clone()).await;
//!     let _second = ledger.settle(permit, outcome).await; // moved
//! }
//! ```
//!
//! What a reply means is a pure function:
//!
//! ```
//! use ua_core::{CallPolicy, CallStatus, RawReply};
//!
//! let lost = RawReply::RpcError { code: -32603, message: "internal error".into() };
//! assert_eq!(ua_ledger::interpret(&lost, &CallPolicy::unclassified()).status, CallStatus::Unknown);
//! ```

mod address;
mod admission;
mod alike;
mod answer;
mod behind;
mod carry_out;
mod charge;
mod composite;
mod correction;
mod doubt;
mod effect_limit;
mod elsewhere;
mod enquiry;
mod error;
mod events;
mod exits;
mod forgotten;
mod give_answer;
mod handle;
mod in_text;
mod in_vain;
mod interpret;
mod late;
mod leads_to;
mod ledger;
mod lost;
mod outbox;
mod outside;
mod past;
mod patience;
mod people;
mod permit;
mod question;
mod reached;
mod recipient;
mod recomputed;
mod recovery;
mod related;
mod renamed;
mod rules;
mod sends;
mod sent_files;
mod settled;
#[cfg(test)]
mod stored_once_tests;
mod taint;
mod task;
mod unmarked;
mod unseen;
mod verdict;
mod view;

pub use admission::{Admission, Facts, Prepared, SincePlanned, UnknownCall};
pub use alike::alike;
pub use answer::answer_for;
pub use composite::answer_together;
pub use correction::{absent_from, correct_call, correction_note, told_of_others, was_asked_behind_the_wait};
pub use doubt::settle_late_answers;
pub use elsewhere::is_another_place;
pub use enquiry::{Asked, Enquiry, Finding, Unaskable};
pub use error::LedgerError;
pub use give_answer::{MAX_ANSWER, NotTaken, give_answer};
pub use handle::{CANCEL, Continued, Elicited, HandedOver, check_elicited};
pub use interpret::interpret;
pub use late::{
    LateReplies, NoLateReplies, is_of_attempt, kept_answer, said, settle_by_late_replies,
    settle_what_ends_by_late_replies,
};
pub use leads_to::leads_elsewhere;
pub use ledger::{Ledger, LedgerConfig, Lineage, SoonKnown, WaitingAnswer};
pub use lost::key_in_own_place;
pub use outbox::{Outbox, Stored};
pub use outside::{MayAct, Outside, Still, still};
pub use patience::{NoPatience, Patience, Tries, again};
pub use people::{CallsOf, PeopleRules, RecipientRule, decide_yourself};
pub use permit::Permit;
pub use question::{ARGUMENTS_CUT, look_after};
pub use recomputed::check_recomputed;
pub use recovery::Recovery;
pub use sent_files::{FileContent, SentFile, SentFiles};
pub use taint::{TaintRule, asked_once_tainted};
pub use ua_store::is_left_open;
