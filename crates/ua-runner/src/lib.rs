//! What a run does next, and the short loop that does it.
//!
//! Durable Jobs v1 spec §8–§11; Durable runner, current state. [`RunMachine`] is pure: no `async`, no clock, no I/O; it is fed
//! events and answers with commands. A [`Worker`] carries them out through the ports of its [`Desk`]. A turn goes one way only:
//! reserve → think → record (reply and planned calls in one write) → dispatch → commit. Whatever a crash leaves behind is
//! the machine's first phase, fed with the open turn's calls: the same dispatch, the same commit, no second thought.
//!
//! A program that wants no command line defines a [`GranularStep`] and runs it; `docs/guide/library.md` shows how.
//!
//! ```
//! use ua_runner::{Command, Limits, RunMachine, Start};
//!
//! let machine = RunMachine::new(Limits::default(), Start::fresh());
//! assert!(matches!(machine.command(), Command::Reserve { turn: 1 }));
//! ```

mod alive;
mod budget;
mod cancel;
mod cas;
mod citations;
mod compose;
mod content;
mod correctable;
mod desk;
mod drive;
mod error;
mod files;
mod first_tools;
mod fit;
mod forced_replay;
mod foresee;
mod fork;
mod granular;
mod host;
mod images;
mod input_files;
mod interrupt;
mod iteration;
mod kept_clock;
mod late_file;
mod left_open;
mod lock;
mod machine;
#[cfg(test)]
mod machine_tests;
mod past;
mod patience;
mod phase;
mod picture;
mod pin;
mod ports;
mod read_ahead;
mod reading;
mod receipt;
mod recover;
mod retry;
mod road;
mod seams;
mod spans;
mod stamps;
mod standing;
mod take_over;
mod tasks;
mod waiting;
mod watch;
mod worker;
mod workspace;

pub use budget::{Charge, Estimate, Limits, Spent, Use, Used};
pub use cancel::end_as_said;
pub use cas::{StoredTurns, TurnAdmission, admit_turn};
pub use correctable::{Correctable, MAX_REASON, Uncorrectable, correctable};
pub use desk::{Desk, DeskPorts, Judge};
pub use drive::evidence_ledgers;
pub use error::{ANOTHER_RUN_HINT, ResumeError, RunError};
pub use files::{evidence_of, packet_as_it_stands, withdraw_conclusion, write_conclusion, write_corrected, write_logs};
pub use foresee::{context_below_first_request, too_small};
pub use fork::{FileFate, ForkError, ForkFile, ForkPlace, ForkPlan, settle_workspace, sweep_forks};
pub use granular::{
    Agent, Differs, GranularStep, StepError, StepHost, StepOutcome, input_of, question_of_a_program, words_of_a_step,
};
pub use host::{boot_id, has_ended_here, may_be_driven, owner_stamp, process_is_alive, process_is_paused};
pub use input_files::{InputFileError, input_file_now, place_input_files, take_input_files};
pub use interrupt::{Drain, DrainTimes, HangUp, Interrupts};
pub use iteration::{IterationEnd, IterationState};
pub use kept_clock::with_kept_clock;
pub use late_file::LateFile;
pub use left_open::LeftOpen;
pub use lock::{LockError, RunLock};
pub use machine::{
    Command, Conclusion, Event, Guidance, Missing, OpenCall, OpenTurn, ReplyEnd, RunMachine, Start, Talk,
    UnexpectedEvent, Word,
};
pub use past::{PastError, PastKnown, accept as accept_forgotten, made_by_another, recall_one, recalled};
pub use patience::NoWaiting;
pub use phase::PhaseState;
pub use pin::{PinSettings, changes_in_words, effective_pins};
pub use ports::{ResultCheck, RunSettings, park_for_tool_server};
pub use receipt::{answer_of, with_whole_reply};
pub use retry::{Refusal, RetryPolicy, ThinkFailure, Tries};
pub use road::RoadError;
pub use seams::{Open, Seams};
pub use spans::run_span;
pub use standing::standing_of;
pub use take_over::TakingOver;
pub use tasks::{ChildDriver, ChildRuns, task_output, top_of_tree, write_task_output};
pub use ua_evidence::Artifact;
pub use ua_report::{CallSide, FileDiff, RunDiff, RunSide, StepSummary, TurnDiff, TurnSide};
pub use ua_resume::{IterationLine, JobChange, ModelUsage, UsageSummary, iterations, job_changes, raise_flags};
pub use watch::{RunEvent, Watcher};
pub use worker::{WorkError, Worked, Worker};
pub use workspace::{Workspace, WorkspaceError};
