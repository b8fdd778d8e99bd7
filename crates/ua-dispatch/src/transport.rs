//! The seam to the world: how a permitted call reaches a tool.

use std::path::PathBuf;
use std::time::Duration;

use async_trait::async_trait;
use serde_json::Value;
use ua_core::{Destination, Handle, Outcome, Timestamp, ToolName, ToolSpec};
use ua_ledger::{Enquiry, MayAct, Permit};

/// Why a tool server cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TransportError {
    /// No server of that name is configured.
    #[error("no tool server `{server}` is configured")]
    UnknownServer {
        /// The name.
        server: String,
    },
    /// It did not start, or did not answer the handshake.
    #[error("tool server `{server}` did not start: {why}")]
    NotStarted {
        /// The name.
        server: String,
        /// What happened, with the last lines it wrote to its standard error.
        why: String,
        /// Whether it may start in a while with nobody doing anything about it: it is away, or ended at once. A program that is not there, or a
        /// login that is refused, is somebody's to correct.
        may_pass: bool,
        /// What to look at first.
        look_at: LookAt,
    },
    /// It is there, and says that it cannot serve now (HTTP 408, 425, 429, 5xx), or its login cannot be renewed just now.
    #[error("tool server `{server}` cannot serve now: {why}")]
    Away {
        /// The name.
        server: String,
        /// What it says.
        why: String,
    },
    /// Its tools are not what they were when a person looked at them, or when the step began.
    #[error("the tools of `{server}` cannot be used: {why}")]
    Changed {
        /// The name.
        server: String,
        /// What differs, and what to do.
        why: String,
    },
    /// A call that it has under way cannot be gone on with now.
    #[error("cannot continue a call of tool server `{server}`: {why}")]
    NotReached {
        /// The name.
        server: String,
        /// What happened.
        why: String,
    },
    /// A call that it has under way cannot be gone on with as it is, since that would go somewhere else, or as somebody else, by now.
    #[error("cannot continue a call of tool server `{server}` where it is: {why}")]
    Elsewhere {
        /// The name.
        server: String,
        /// What is another one now.
        why: String,
    },
    /// Nobody can say where its calls would go.
    #[error("cannot tell where calls of tool server `{server}` go: {why}")]
    NotIdentified {
        /// The name.
        server: String,
        /// What happened.
        why: String,
    },
    /// It does not offer what it offered when the step began.
    #[error("cannot list the tools of `{server}`: {why}")]
    NotListed {
        /// The name.
        server: String,
        /// What happened.
        why: String,
    },
}

/// What a person looks at first who wants a tool server to start that did not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LookAt {
    /// Its command, arguments and environment.
    Command,
    /// How long it takes to start: it was given up before it answered.
    Start,
    /// Its address, and whether anybody is there.
    Address,
    /// The login there, or the headers that are one.
    Login,
}

impl TransportError {
    /// Whether the same may succeed in a while with nobody doing anything about it. Nothing was sent in any case.
    pub fn may_pass(&self) -> bool {
        match self {
            Self::NotStarted { may_pass, .. } => *may_pass,
            Self::Away { .. } | Self::NotReached { .. } | Self::NotListed { .. } => true,
            Self::UnknownServer { .. } | Self::Changed { .. } | Self::Elsewhere { .. } | Self::NotIdentified { .. } => {
                false
            }
        }
    }
}

/// Whether an earlier process of a tool server can still act.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fence {
    /// It is gone: its group was killed and its lock is free. What it did not do, it will never do.
    Gone,
    /// Something of it is still alive.
    Alive {
        /// What is known about it.
        detail: String,
    },
}

/// Tool servers, reached over some protocol.
#[async_trait]
pub trait ToolTransport: Send + Sync {
    /// Starts what is not running and lists every tool of every server, by qualified name.
    async fn list(&self) -> Result<Vec<ToolSpec>, TransportError>;

    /// The folder that a process of `server` on this machine works in, which is what a relative path in its arguments may begin at; `None` where
    /// it has none here. Asked of every transport, since a wrapper that forgot it would leave files unseen that a call sends.
    fn working_folder(&self, server: &str) -> Option<PathBuf>;

    /// Makes sure that a process of `server` is running and returns its generation, which is recorded with RUNNING.
    async fn ready(&self, server: &str) -> Result<String, TransportError>;

    /// The generation of `server` that is running, if it is known without asking anybody; what a call may be sent to at once.
    fn running(&self, _server: &str) -> Option<String> {
        None
    }

    /// Whether `server` has said nothing for so long that [`ready`](Self::ready) looks first whether it is still the one that is running, which costs
    /// a round trip: asked before a call is sent that may not simply be made again. A session that a restarted server does not know is replaced by
    /// then, and the call is not the one that finds out. Whoever wraps a transport hands this on.
    fn is_silent(&self, _server: &str) -> bool {
        false
    }

    /// Where a call of a tool with these arguments goes now and as whom; it is stored with an attempt, and what was sent is repeated or looked up by
    /// itself only where it is the same. What a secret holds that the arguments name counts, and that value and no other is what is sent. `None` of
    /// tools that are a part of the program itself. Asks no tool server, and changes only with the configuration, and when a person logs in there
    /// while the process runs.
    ///
    /// Whoever wraps a transport hands this on: without it a call in doubt is repeated wherever its server goes.
    ///
    /// # Errors
    /// It cannot be told; nothing is sent then.
    fn destination(&self, tool: &ToolName, arguments: &Value) -> Result<Option<Destination>, TransportError>;

    /// Sends the permitted attempt to the generation it was committed for and waits for the answer. When that generation
    /// is gone before the request left, or when it would go somewhere else by now than the permit says, the answer is [`Outcome::NotSent`]. Never
    /// retries, never re-posts.
    async fn invoke(&self, permit: &Permit) -> Outcome;

    /// Goes on with an attempt that the tool answered with `handle`: hands over the answers in it, or asks the task how it is
    /// getting on, as late as the other side wants to be asked. The call is not sent again, and the outcome is never
    /// [`Outcome::NotSent`]; another handle says that it is still not done.
    ///
    /// # Errors
    /// The server cannot be reached, or it would be asked as somebody else ([`TransportError::Elsewhere`]): nothing left us, and the handle is as
    /// good as before.
    async fn go_on(&self, permit: &Permit, handle: &Handle) -> Result<Outcome, TransportError> {
        let task = handle.task.as_deref().unwrap_or("no task");
        Ok(Outcome::Lost { why: format!("this transport cannot continue `{}` ({task})", permit.name()) })
    }

    /// Tells the other side that nobody wants `handle`'s result any more. Whether it stops is its affair.
    async fn give_up(&self, _permit: &Permit, _handle: &Handle) {}

    /// Asks a read-only tool whether a call happened. An [`Enquiry`] is proof that it only looks, so it needs no permit and no
    /// record. A transport that cannot ask says so, and the call is held.
    async fn ask(&self, enquiry: &Enquiry) -> Outcome {
        Outcome::NotSent { why: format!("this transport cannot ask `{}`", enquiry.tool()) }
    }

    /// Retires every process that earlier owners of the run left behind; the first act of a resume, before anything is
    /// decided. A transport that starts no processes has none.
    async fn fence_earlier(&self) -> Fence {
        Fence::Gone
    }

    /// How long [`fence`](Self::fence) will wait for nothing but time: a server that cannot be ended is taken to begin nothing any more when
    /// its horizon has passed, counted from `lost_at`, the moment from which nobody waited for the attempt any more, where that is recorded.
    fn horizon(&self, server: &str, generation: &str, lost_at: Option<Timestamp>) -> Duration {
        // What can be ended is ended at once, whichever it is.
        std::hint::black_box((server, generation, lost_at));
        Duration::ZERO
    }

    /// What is left of a generation of `server` that a call of another run, or of another process, was sent to: nothing of it is ended for that.
    /// `ended_at` is from when on nobody waited for the attempt any more, where that is recorded. A transport that starts and reaches nothing that
    /// outlives its process says that nothing is.
    fn may_act(&self, server: &str, generation: &str, ended_at: Option<Timestamp>) -> MayAct {
        std::hint::black_box((server, generation, ended_at));
        MayAct::No
    }

    /// What stands for the generation of an attempt of which nobody knows which it was sent to: of a server that can only be waited for, its name, by
    /// which [`horizon`](Self::horizon) and [`fence`](Self::fence) know it; of one that can be ended none, since what is left of it is ended by what it
    /// left.
    fn generation_unknown(&self, server: &str) -> Option<String> {
        std::hint::black_box(server);
        None
    }

    /// Done before a read that got no answer is made again, where it may simply be: as [`fence`](Self::fence), but a process in which a call with an
    /// effect is under way is left alone, since that call would be in doubt, and only the read is in need of another process.
    ///
    /// Whoever wraps a transport hands this on: without it a read ends the process.
    async fn renew(&self, server: &str, generation: &str, lost_at: Option<Timestamp>) -> Fence {
        self.fence(server, generation, lost_at).await
    }

    /// Retires a generation of `server`, of this process or of an earlier one: kills its group and waits until its lock
    /// is free, or until its [`horizon`](Self::horizon) has passed.
    async fn fence(&self, server: &str, generation: &str, lost_at: Option<Timestamp>) -> Fence;
}
