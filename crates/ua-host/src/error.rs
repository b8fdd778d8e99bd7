//! What went wrong, for whoever stands at a front door: its kind, a message, a hint, and fields for a machine.
//!
//! How it is shown, and with which exit code a program ends, is the front door's.

use ua_core::RunId;
pub use ua_core::chain;
use ua_dispatch::DispatchError;
use ua_evidence::os_words::{in_plain_words, number_in};
use ua_runner::{LockError, ResumeError, RunError, WorkError};
use ua_store::{Retry, StoreError};

use crate::hint::{self, Hint, OfRun, Word, text};
use crate::shortage::{is_of_open_files, is_shortage};

/// What sort of failure it is: what somebody does about it, before any word is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// What was asked for cannot be done as it was said: arguments, job file, configuration. Nothing was started.
    Usage,
    /// The model provider is not available.
    Provider,
    /// The database, the workspace or another file cannot be used.
    Storage,
    /// It has to be resumed later: a person, another process or a tool server stands in the way.
    Waiting,
    /// It was tried and did not work.
    Failed,
    /// Somebody who was asked something left it for later. Nothing failed.
    Left,
    /// A signal asked this process to end while somebody was asked something.
    Interrupted,
}

/// A failure, ready to be shown.
#[derive(Debug, Clone)]
pub struct HostError {
    kind: Kind,
    message: String,
    told: Box<Told>,
    detail: Option<serde_json::Map<String, serde_json::Value>>,
    is_of_the_database: bool,
    is_of_the_machine: bool,
    is_of_lost_writes: bool,
}

/// What is told beside the message.
#[derive(Debug, Clone, Default)]
struct Told {
    hint: Option<Hint>,
    of: Option<OfRun>,
    /// Both as a text.
    text: Option<String>,
    /// What else stands in the way, as far as it was known at the same time.
    others: Vec<HostError>,
}

/// The sort of a failure in which the system's number stands. Where something is short, nothing was asked for wrongly and nothing of what was tried
/// is to blame; of what was tried that holds for files of this process alone, since the words of a tool may have any other number in them.
fn kind_of_shortage(kind: Kind, number: i32) -> Kind {
    match kind {
        Kind::Usage if is_shortage(number) => Kind::Storage,
        Kind::Failed if is_of_open_files(number) => Kind::Storage,
        Kind::Usage
        | Kind::Failed
        | Kind::Provider
        | Kind::Storage
        | Kind::Waiting
        | Kind::Left
        | Kind::Interrupted => kind,
    }
}

impl std::fmt::Display for HostError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for HostError {}

impl HostError {
    /// A failure of this kind; the message is one sentence without a full stop.
    pub fn new(kind: Kind, message: impl Into<String>) -> Self {
        let message = message.into();
        let number = number_in(&message);
        let error = Self {
            kind: number.map_or(kind, |number| kind_of_shortage(kind, number)),
            message: in_plain_words(&message).into_owned(),
            told: Box::default(),
            detail: None,
            is_of_the_database: false,
            is_of_the_machine: false,
            is_of_lost_writes: false,
        };
        // Whoever looks it up has the number.
        match number {
            Some(number) => error.field("os_error", number),
            None => error,
        }
    }

    /// A [`Kind::Usage`].
    pub fn usage(message: impl Into<String>) -> Self {
        Self::new(Kind::Usage, message)
    }

    /// A [`Kind::Provider`].
    pub fn provider(message: impl Into<String>) -> Self {
        Self::new(Kind::Provider, message)
    }

    /// A [`Kind::Storage`].
    pub fn storage(message: impl Into<String>) -> Self {
        Self::new(Kind::Storage, message)
    }

    /// A [`Kind::Waiting`].
    pub fn waiting(message: impl Into<String>) -> Self {
        Self::new(Kind::Waiting, message)
    }

    /// A [`Kind::Failed`].
    pub fn failed(message: impl Into<String>) -> Self {
        Self::new(Kind::Failed, message)
    }

    /// That there is no such thing of the name that was typed: a [`Kind::Usage`] that names the one that may have been meant, and says where
    /// all of them are. Whatever is looked up by a name that a person types is refused by this.
    pub fn no_such<'a>(what: &str, name: &str, names: impl IntoIterator<Item = &'a str>, hint: &str) -> Self {
        Self::not_found(format!("there is no {what} `{}`", crate::text::line(name, 100)), name, names, hint)
    }

    /// The same in words of its own.
    pub fn not_found<'a>(
        message: impl Into<String>,
        name: &str,
        names: impl IntoIterator<Item = &'a str>,
        hint: &str,
    ) -> Self {
        let meant = crate::text::nearest(name, names);
        let meant =
            meant.map_or_else(String::new, |meant| format!("did you mean `{}`? ", crate::text::line(meant, 100)));
        Self::usage(message).hint(format!("{meant}{hint}"))
    }

    /// Says what to do about it, in place of what was said before.
    #[must_use]
    pub fn hint(self, hint: impl Into<Hint>) -> Self {
        self.with_hint(Some(hint.into()))
    }

    /// Says behind that, which has no word of it, that no run was begun; of one that is stored, that nothing was sent.
    #[must_use]
    pub fn not_begun(mut self) -> Self {
        let hint = self.told.hint.take();
        self.with_hint(Some(hint.map_or_else(|| Word::NothingBegun.into(), |hint| hint.and(Word::NothingBegun))))
    }

    /// The same of a command that only looked, whatever it was reading: nothing waits to be resumed because of it.
    #[must_use]
    pub fn of_a_look(mut self) -> Self {
        self.told.others = std::mem::take(&mut self.told.others).into_iter().map(Self::of_a_look).collect();
        let hint = self.told.hint.take().map(Hint::of_a_look);
        self.with_hint(hint)
    }

    fn with_hint(mut self, hint: Option<Hint>) -> Self {
        self.told.hint = hint;
        self.tell()
    }

    fn tell(mut self) -> Self {
        self.told.text = hint::told(self.told.hint.as_ref(), self.told.of.as_ref());
        self
    }

    /// Adds to what is wrong, in a sentence of its own.
    #[must_use]
    pub(crate) fn and(mut self, sentence: &str) -> Self {
        self.message = format!("{}; {sentence}", self.message);
        self
    }

    /// The same of a failure to work on this run, which is stored: whoever goes on resumes it by its name, and starts the job no second time.
    /// `is_new`: it was stored by what failed, and whoever gave the command may not know of it.
    #[must_use]
    pub fn of_run(self, run: &RunId, is_new: bool) -> Self {
        self.continued_by(run, format!("ua resume {run}"), is_new)
    }

    /// The same of one that this command continues, or has another process continue. Who said it first stood nearest.
    #[must_use]
    pub fn continued_by(mut self, run: &RunId, command: String, is_new: bool) -> Self {
        let others = std::mem::take(&mut self.told.others);
        self.told.others = others.into_iter().map(|other| other.continued_by(run, command.clone(), false)).collect();
        self.told.of.get_or_insert(OfRun { run: run.clone(), command, is_new });
        let is_told = self.detail.as_ref().is_some_and(|detail| detail.contains_key("run_id"));
        let error = self.tell();
        if is_told { error } else { error.field("run_id", run) }
    }

    /// The first of what stands in the way, which has the others with it; `None` where nothing does.
    pub fn all_of(found: impl IntoIterator<Item = Self>) -> Option<Self> {
        let mut found = found.into_iter();
        let mut first = found.next()?;
        for mut other in found {
            let more = std::mem::take(&mut other.told.others);
            for other in std::iter::once(other).chain(more) {
                // What several steps fail for is said once.
                let is_said = |said: &Self| said.message == other.message;
                if !is_said(&first) && !first.told.others.iter().any(is_said) {
                    first.told.others.push(other);
                }
            }
        }
        Some(first)
    }

    /// What else stands in the way: whoever corrects the first is not sent to find the next one.
    pub fn others(&self) -> &[Self] {
        &self.told.others
    }

    /// Adds a field that only a machine is told.
    #[must_use]
    pub fn field(mut self, name: &str, value: impl serde::Serialize) -> Self {
        let value = serde_json::to_value(value).unwrap_or_default();
        self.detail.get_or_insert_default().insert(name.to_owned(), value);
        self
    }

    /// What sort of failure it is.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Whether the database answered, and did not take what it was given: one that was away or busy may take it now.
    pub(crate) fn is_of_the_database(&self) -> bool {
        self.is_of_the_database
    }

    /// The same, of writes that the database had taken and does not have any more.
    pub(crate) fn of_lost_writes(self) -> Self {
        Self { is_of_lost_writes: true, ..self }
    }

    /// Whether the database lacks writes that it had taken.
    pub(crate) fn is_of_lost_writes(&self) -> bool {
        self.is_of_lost_writes
    }

    /// The same, of a folder or a file of this machine that could not be made or written: another machine may do what was to be done.
    pub(crate) fn of_the_machine(self) -> Self {
        Self { is_of_the_machine: true, ..self }
    }

    /// Whether a folder or a file of this machine could not be made or written.
    pub(crate) fn is_of_the_machine(&self) -> bool {
        self.is_of_the_machine
    }

    /// What is wrong, in one sentence.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// What to do about it.
    pub fn hint_text(&self) -> Option<&str> {
        self.told.text.as_deref()
    }

    /// What only a machine is told.
    pub fn detail(&self) -> serde_json::Map<String, serde_json::Value> {
        self.detail.clone().unwrap_or_default()
    }

    /// A large result that the run needs and that is gone or damaged.
    fn lost_result(error: &RunError) -> Self {
        let failure = Self::storage(format!("the run stopped: {}", chain(error)));
        let call = if let RunError::BlobMissing { call: Some(call), .. } = error {
            format!("it is the result of call {call}; ")
        } else {
            String::new()
        };
        failure.hint([
            text(format!("{call}nothing more was sent; put back a copy of the database that has it, then ")),
            Word::Resume(""),
            text(
                ", or start the job again with `--new` (with `settings.degraded_replay`, which a fork can be given, a run continues without the \
                 results of reads, of calls that may be repeated, and of calls that were done before)",
            ),
        ])
    }

    /// An error of the store, with its kind and what to do.
    pub fn store(doing: &str, error: &StoreError) -> Self {
        let refuses = matches!(error, StoreError::Unavailable { retry: Retry::WithRoom | Retry::Never, .. });
        #[cfg(feature = "postgres")]
        let refuses = refuses || ua_store_postgres::is_read_only(error);
        Self { is_of_the_database: refuses, ..Self::store_failed(doing, error) }
    }

    fn store_failed(doing: &str, error: &StoreError) -> Self {
        let message = format!("cannot {doing}: {}", chain(error));
        match error {
            StoreError::NotFound { .. } => Self::usage(message).hint("`ua runs list` shows the runs"),
            StoreError::Conflict { .. } | StoreError::Exists { .. } => Self::usage(message),
            StoreError::HoldsSecret { .. } => Self::usage(message).hint(crate::words::LEAVE_IT_OUT),
            // Epochs only rise: the database lacks that this process took the run.
            StoreError::Fenced { ours, theirs, .. } if theirs < ours => Self::failed(message).of_lost_writes().hint([
                text("the database lacks that this process took the run: it was restored from a copy, or a standby that lacked some writes took over; "),
                text("compare `ua calls list` with what was received, then "),
                Word::Accept,
                text(" and "),
                Word::Resume(""),
                text(" ("),
                Word::Move,
                text(" when workers have it)"),
            ]),
            StoreError::Fenced { .. } => {
                Self::waiting(message).hint("another process took this run over; this one changed nothing more")
            }
            StoreError::KeyTaken { .. }
            | StoreError::ScopeTouched { .. }
            | StoreError::Corrected { .. }
            | StoreError::EffectLimit { .. }
            | StoreError::NotBegun
            | StoreError::Repeated { .. } => Self::failed(message),
            StoreError::WentBack { .. } => Self::failed(message).of_lost_writes().hint([
                text(
                    "it was restored from a copy, or a standby that lacked some writes took over; receipts may be missing: compare \
                     `ua calls list` with what was received, then ",
                ),
                Word::Accept,
                text(" and "),
                Word::Resume(""),
                text(" ("),
                Word::Move,
                text(" when workers have it)"),
            ]),
            StoreError::TailLost { .. } => Self::storage(message)
                .hint([Word::Resume(""), text(" continues from there; a worker does so by itself")]),
            StoreError::Corrupt { .. } => Self::storage(message)
                .hint("nothing was changed; keep a copy of the database file before anything else"),
            StoreError::Unavailable { .. } if is_full(&message) => Self::storage(message).hint([
                Word::NothingNew,
                text(
                    "free space on that disk (`ua runs delete` and `ua db prune` need a little themselves), \
                     then ",
                ),
                Word::AgainOrResume,
                Word::FindsOut,
            ]),
            StoreError::Unavailable { .. } if message.contains("password missing") => Self::storage(message).hint(
                "write the password into the database URL, postgres://USER:PASSWORD@HOST/DATABASE, in UA_DATABASE_URL or `database_url` of \
                 config.toml, percent-encoded (`@` is %40); PGPASSWORD and ~/.pgpass are not read; nothing was sent",
            ),
            StoreError::Unavailable { .. } if message.contains("invalid peer certificate") => Self::storage(message).hint(
                "name the server in the database URL as its certificate does, and add `?sslrootcert=FILE` with the certificate of its \
                 authority, or with its own if it is self-signed and no authority's, as Debian makes it; on loopback or a network that you \
                 trust `?sslmode=disable` does without; nothing new was sent after this",
            ),
            StoreError::Unavailable { .. } if message.contains(": GRANT ") => Self::storage(message)
                .hint([
                    text("let whoever owns it grant these rights, then "),
                    Word::Again,
                    text("; nothing new was sent after this"),
                ]),
            StoreError::Unavailable { .. } if message.contains("this user may not do that in the database") => {
                Self::storage(message).hint(
                    "`ua db check` says which right is missing and the command that grants it; nothing new was sent after this",
                )
            }
            StoreError::Unavailable { .. } if is_look(doing) => {
                Self::storage(message).hint([
                    text("make the database usable, then "),
                    Word::Again,
                    text("; nothing was changed"),
                ])
            }
            StoreError::Unavailable { .. } => Self::storage(message).hint([
                Word::NothingNew,
                text("make the database usable, then "),
                Word::AgainOrResume,
                Word::FindsOut,
            ]),
        }
    }
}

/// Whether a message says that a disk has no room, in the system's words or in ours.
fn is_full(message: &str) -> bool {
    in_plain_words(message).contains("is full")
}

/// Whether whoever was `doing` this only looked: then there may be no run that could be resumed.
fn is_look(doing: &str) -> bool {
    ["list ", "look ", "look for "].iter().any(|begin| doing.starts_with(begin))
}

/// The store's error somewhere among the causes.
fn store_cause<'a>(error: &'a (dyn std::error::Error + 'static)) -> Option<&'a StoreError> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(store) = error.downcast_ref::<StoreError>() {
            return Some(store);
        }
        next = error.source();
    }
    None
}

/// The error that ended the drive of a sub-agent's run, on its way through the road of its task.
#[derive(Debug)]
pub(crate) struct ChildFailed(pub HostError);

impl std::fmt::Display for ChildFailed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for ChildFailed {}

impl From<RunError> for HostError {
    fn from(error: RunError) -> Self {
        let error = if let RunError::Dispatch { turn, source: DispatchError::SubAgent { call, source } } = error {
            match source.downcast::<ChildFailed>() {
                Ok(child) => return child.0,
                Err(source) => RunError::Dispatch { turn, source: DispatchError::SubAgent { call, source } },
            }
        } else {
            error
        };
        if let RunError::BlobMissing { .. } | RunError::BlobCorrupt { .. } = &error {
            return Self::lost_result(&error);
        }
        if let Some(store) = store_cause(&error) {
            return Self {
                message: format!("the run stopped: {}", chain(&error)),
                ..Self::store("drive the run", store)
            };
        }
        let message = format!("the run stopped: {}", chain(&error));
        match &error {
            RunError::Resume(error) => match error {
                ResumeError::FingerprintMismatch { .. } => {
                    Self::waiting(message).hint([text("restore the original setup, then "), Word::Resume("")])
                }
                ResumeError::NotAcceptable { .. } => Self::usage(message),
                ResumeError::Behind { .. }
                | ResumeError::Gap { .. }
                | ResumeError::CasConflict { .. }
                | ResumeError::LeaseLost { .. }
                | ResumeError::StoreBusy { .. } => Self::waiting(message).hint([
                    text("nothing was sent after this point; "),
                    Word::Resume(""),
                    text(" checks again"),
                ]),
                ResumeError::CorruptState { .. } => Self::storage(message)
                    .hint("nothing was changed; keep a copy of the database file before anything else"),
                ResumeError::SchemaTooNew { .. } => Self::storage(message).hint("use the version of ua that wrote it"),
            },
            RunError::Workspace(_) => Self::storage(message)
                .hint([text("make the workspace writable, then "), Word::Resume("")])
                .of_the_machine(),
            RunError::Dispatch { .. } => Self::usage(message),
            RunError::BlobMissing { .. } | RunError::BlobCorrupt { .. } => Self::lost_result(&error),
            RunError::Store { .. } | RunError::History { .. } | RunError::Machine(_) => Self::failed(message).hint([
                text("this looks like a bug in ua; the run is unharmed and can be looked at with "),
                Word::Show,
            ]),
        }
    }
}

impl From<WorkError> for HostError {
    fn from(error: WorkError) -> Self {
        match error {
            WorkError::Run(error) => error.into(),
            WorkError::Tools(error) => {
                Self::usage(chain(&error)).hint([text("nothing was sent; correct it, then "), Word::Resume("")])
            }
        }
    }
}

impl From<LockError> for HostError {
    fn from(error: LockError) -> Self {
        let message = chain(&error);
        match error {
            LockError::Held { owner: None, .. } => {
                Self::waiting(message).hint([Word::Again, text(" in a moment; nothing was changed")])
            }
            LockError::Held { run, .. } => {
                let hint = [
                    text("wait for it, or let "),
                    Word::Resume(" --take-over"),
                    text(" end that process and take its place; nothing was changed"),
                ];
                Self::waiting(message).hint(hint).of_run(&run, false)
            }
            LockError::Io { source, .. } => Self::storage(message)
                .hint([
                    text(format!("{}, then ", crate::paths::mend_folder(&source))),
                    Word::Again,
                    text("; nothing was changed"),
                ])
                .of_the_machine(),
        }
    }
}

impl From<ua_runner::WorkspaceError> for HostError {
    fn from(error: ua_runner::WorkspaceError) -> Self {
        let is_planted = error.io().kind() == std::io::ErrorKind::InvalidInput;
        Self::storage(chain(&error))
            .hint(if is_planted {
                "a program of a run may have put it there: remove it"
            } else {
                "check that the folder exists, is writable and the disk is not full"
            })
            .of_the_machine()
    }
}

#[cfg(test)]
mod tests {
    use ua_store::Retry;

    use super::*;

    /// What is said to do about a server that cannot be reached for the reason `why`.
    fn hint(why: &str) -> String {
        let error = StoreError::Unavailable {
            why: "the connection to PostgreSQL failed".to_owned(),
            source: Some(Box::new(std::io::Error::other(why.to_owned()))),
            retry: Retry::Later,
        };
        format!("{:?}", HostError::store("open the runtime database", &error))
    }

    /// Whatever was to be done: that no more files can be opened is no mistake of whoever asked, and no failure of what was tried.
    #[test]
    fn what_is_short_is_a_matter_of_storage_wherever_it_is_met() {
        use rustix::io::Errno;
        let of = |kind: Kind, errno: Errno| {
            HostError::new(kind, format!("cannot read job.json: {}", std::io::Error::from(errno))).kind()
        };
        for kind in [Kind::Usage, Kind::Failed, Kind::Storage] {
            assert_eq!((of(kind, Errno::MFILE), of(kind, Errno::NFILE)), (Kind::Storage, Kind::Storage), "{kind:?}");
            assert_eq!((of(kind, Errno::NOENT), of(kind, Errno::ACCESS)), (kind, kind), "{kind:?}");
        }
        assert_eq!((of(Kind::Usage, Errno::NOSPC), of(Kind::Failed, Errno::NOSPC)), (Kind::Storage, Kind::Failed));
        assert_eq!(of(Kind::Waiting, Errno::MFILE), Kind::Waiting);
        assert_eq!(HostError::usage("a file says (os error x)").kind(), Kind::Usage);
    }

    /// A run whose writes are gone is held: who is told to look and go on is told of the command without which nothing goes on.
    #[test]
    fn whoever_is_told_that_the_database_went_back_is_told_how_that_is_accepted() {
        let run = RunId::parse("run_1").unwrap();
        let gone = [
            StoreError::WentBack { run: run.clone(), written: 1, confirmed: 2 },
            StoreError::Fenced { run: run.clone(), ours: 3, theirs: 2 },
        ];
        for error in gone {
            let told = HostError::store("write what it did", &error).of_run(&run, false);
            let hint = told.hint_text().unwrap();
            let way = "then `ua db accept run_1` and `ua resume run_1` (`ua queue move run_1` when workers have it)";
            assert!(hint.contains(way), "{hint}");
        }
    }

    /// Whatever fails once a run is stored: nobody is told to start the job again.
    #[test]
    fn what_fails_when_a_run_is_stored_is_gone_on_with_by_its_name() {
        let run = RunId::parse("run_1").unwrap();
        let unavailable =
            |why: &str| StoreError::Unavailable { why: why.to_owned(), source: None, retry: Retry::Later };
        let errors = [
            HostError::store("take the run", &unavailable("no")),
            HostError::store("take the run", &unavailable("the disk is full")),
            HostError::store("look for it", &unavailable("no")),
            HostError::store("take it", &unavailable("this user may not do that in the database")),
            HostError::store("take it", &unavailable("as the owner: GRANT USAGE")),
            HostError::usage("a wrong setting").hint("correct it").not_begun(),
            HostError::storage("a folder"),
        ];
        for error in errors {
            let told = error.clone().of_run(&run, true);
            let hint = told.hint_text().unwrap();
            assert!(hint.contains("ua resume run_1"), "{hint}");
            for wrong in ["again", "RUN", "nothing was started"] {
                assert!(!hint.contains(wrong), "{wrong}: {hint}");
            }
            assert_eq!(told.detail()["run_id"], "run_1");
            // Of a run that was resumed nothing is added that its hint does not say.
            assert_eq!(error.clone().of_run(&run, false).hint_text().is_some(), error.hint_text().is_some());
        }
    }

    #[test]
    fn a_server_that_is_not_reached_for_a_password_a_certificate_or_a_right_has_the_way_out() {
        let said = hint("invalid configuration: password missing");
        for word in ["USER:PASSWORD@HOST", "percent-encoded", "PGPASSWORD", "~/.pgpass"] {
            assert!(said.contains(word), "{word}: {said}");
        }
        for why in ["UnknownIssuer", "BadSignature", "Other(OtherError(CaUsedAsEndEntity))"] {
            let said = hint(&format!("error performing TLS handshake: invalid peer certificate: {why}"));
            for word in ["sslrootcert=FILE", "sslmode=disable", "as its certificate does"] {
                assert!(said.contains(word), "{word}: {said}");
            }
        }
        let said =
            hint("the role r may not use the schema ua; as the owner of the schema: GRANT USAGE ON SCHEMA ua TO r;");
        assert!(said.contains("let whoever owns it grant these rights, then give the command again;"), "{said}");
        let said = hint("this user may not do that in the database: permission denied for table runs");
        assert!(said.contains("`ua db check` says which right is missing"), "{said}");
        let said = hint("error connecting to server: Connection refused");
        assert!(said.contains("make the database usable") && !said.contains("sslmode"), "{said}");
    }
}
