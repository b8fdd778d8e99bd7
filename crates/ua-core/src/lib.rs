//! The vocabulary of durable agent jobs and the pure rules over it. No I/O happens here.
//!
//! A *run* executes one job. It is made of *steps* (phases), a step of *turns* (one model reply plus the results of
//! its tool calls), a turn of *tool calls*, and a tool call of *attempts*. What an attempt brought back is a *receipt*.
//! `docs/glossary.md` has the whole list; every other crate uses these types and no synonyms of them.
//!
//! ```
//! use ua_core::{CallEvent, CallStatus};
//!
//! // A call whose outcome was lost may be settled by evidence, but it never silently starts over from `succeeded`.
//! assert_eq!(CallStatus::Running.on(CallEvent::OutcomeLost), Ok(CallStatus::Unknown));
//! assert!(CallStatus::Succeeded.on(CallEvent::Started).is_err());
//! ```

mod asked;
mod audience;
mod blob;
mod budget_stop;
mod busy;
mod call;
mod canonical;
mod charge;
mod composite;
mod count;
mod destination;
mod env;
mod failure;
mod faults;
mod fingerprint;
mod form;
mod found_by;
mod half_character;
mod handle;
mod harness;
mod id;
mod input_file;
mod key;
mod length;
mod look_alike;
mod looks;
mod mail;
mod message;
mod money;
mod named_file;
mod other_model;
mod phase;
mod policy;
mod price;
mod printed_command;
mod probe;
mod redact;
mod reply;
mod schema;
mod secret;
mod shared;
mod shown_path;
mod spec;
mod status;
mod steps;
mod subagents;
#[cfg(feature = "system")]
pub mod system;
mod telling;
mod tool;
mod trace_context;
mod unseen;
mod wait_budgets;
mod withheld;
mod words;

pub use asked::{QuestionText, on_one_line};
pub use audience::Audience;
pub use blob::{BlobId, BlobRef, ToolText};
pub use budget_stop::{BudgetStop, LEAST_REPLY, RequestTokens};
pub use busy::{Busy, busy_with};
pub use call::{PlannedCall, Position, Refusal};
pub use canonical::{ArgsHash, CanonicalError, CanonicalJson, Digesting, Sha256, inexact, parse_strict, sha256};
pub use charge::ToolCharge;
pub use composite::{Action, Composite, ExpandedCall, Via};
pub use count::{MOST_COUNTED, count_in};
pub use destination::{Destination, DestinationKey};
pub use env::{Clock, Entropy, Env, SeededEntropy, SimClock, Sleep, Timestamp};
pub use failure::FailureClass;
pub use faults::{json_fault, json_fault_without_values, toml_fault, toml_fault_without_values, value_fault};
pub use fingerprint::{
    Component, Difference, Fingerprint, FingerprintDiff, FingerprintError, FingerprintInput, Pin, PolicyPin,
    PolicyWords, ToolPin,
};
pub use form::{FieldKind, default_of, holds_mark};
pub use half_character::{HalfCharacter, half_characters};
pub use handle::{AwaitedRun, ElicitAnswer, FIELD_ORDER, Handle, Input, fields, is_by_address, missing, with_defaults};
pub use harness::{HarnessSpec, iteration_begins_after, iteration_heading};
pub use id::{CallId, CheckpointId, InvalidId, QuestionId, RunId, StepId, Trace};
pub use input_file::{INPUT_FOLDER, InputFile, TakenFile};
pub use key::{IdempotencyKey, KeyBuilder, Scope};
pub use length::json_length;
pub use look_alike::{is_mark, latin_look_alike, look_alikes_in, narrow, spelt_out, unmarked};
pub use looks::Looks;
pub use mail::{MailAddress, MailAddressError};
pub use message::{Block, Blocks, Message, ModelTurn, Origin, Role, StopReason, Usage, is_omission, omission};
pub use money::{Costs, Currency, Money};
pub use named_file::NamedFile;
pub use other_model::{ForkWith, OtherModel};
pub use phase::{MAIN_PHASE, PhaseBudgets, PhaseSpec};
pub use policy::{
    CallPolicy, ClassSource, EffectKind, KeyChannel, Makes, OnScopeConflict, OnUnknown, Reads, ScopeField, ScopeRule,
    SideEffectClass,
};
pub use price::{PriceError, PriceTable, TokenPrice};
pub use printed_command::{PrintedCommand, shell_word};
pub use probe::{
    AbsentRule, FieldIs, FoundBy, FoundRule, MadeAt, Marker, MarkerForm, OTHERS_AFTER, ProbePolicy, SameValues, Seen,
    TemplateError, TimeForm, Values, Wanted, Window, items_at, key_id, lies_in, plain_text, template_uses, value_at,
};
pub use redact::{
    Redactor, secrets_entrusted, secrets_given, secrets_in_arguments, secrets_of_environment, secrets_within,
    without_secrets,
};
pub use reply::{
    EvidenceLevel, Outcome, PossibleEffect, RawReply, Settlement, ToolContent, retry_after, retry_after_millis,
    unreadable_result,
};
pub use schema::demands_of;
pub use secret::{SecretFiller, SecretGrants, fill_secrets, secrets_in};
pub use shared::Shared;
pub use shown_path::{ShowPath, ShownPath};
pub use spec::{
    Artifacts, Budgets, Constraints, Escalation, ModelChoice, RunSpec, Settings, SpecError, StopCondition, ToolsSpec,
    budget_flaws, guard_meant, job_key_apart,
};
pub use status::{
    CallEvent, CallStatus, CorrectedTo, FailureKind, IllegalTransition, Resolution, RunStatus, RunStop, StepStatus,
};
pub use steps::{Steps, Time};
pub use subagents::{Subagents, TASK_FOLDER, TASK_MODE, TaskOrder};
pub use telling::{MAIL_WORDS, NOT_TELLING, SAID_TO_NOBODY, TELLING_VERBS, arguments_tell, name_tells};
pub use tool::{ShortNames, ToolAnnotations, ToolName, ToolNamespace, ToolSpec, ToolUse};
pub use trace_context::{
    BAGGAGE, BAGGAGE_NAMES, CurrentSpan, TRACEPARENT, TRACESTATE, TraceContext, call_baggage, signed,
};
pub use unseen::{as_seen, in_a_sentence, is_hidden, is_unseen};
pub use wait_budgets::{AskedWait, WaitBudgets, longer_wait};
pub use withheld::{is_withheld, keyed_digest, put_back, withhold};
pub use words::{chain, counted, is_plain_name, likeness, nearest, not_one_of, size_in_words, slips, span_in_words};
