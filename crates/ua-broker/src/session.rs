//! Sessions of clients: a run each, which this process owns while somebody is connected or a call is under way.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::Value;
use ua_core::{
    CallId, CallStatus, Message, Origin, PrintedCommand, Redactor, RunId, RunSpec, RunStatus, RunStop, StepId,
    Timestamp, Trace,
};
use ua_ledger::{LateReplies as _, Outbox, settle_by_late_replies};
use ua_mcp::LockDir;
use ua_runner::{NoWaiting, PastError, PastKnown, RunLock, owner_stamp};
use ua_store::{
    Author, Batch, CallRecord, Change, EndedBy, GATEWAY_MODE, GatewayStore as _, LedgerStore as _, NewRun, NewSession,
    NewStep, OwnerStamp, QuestionStatus, RunEnd, RunLease, RunRecord, RunStore as _, SessionRecord, SessionsOf, Store,
    is_over,
};

use crate::broker::{Broken, Broker};
use crate::rules::Earlier;
use crate::turns::Turns;
use crate::wire::Hello;

/// Where clients say which session a call is of, best first. What a client's environment says is inherited by whatever it starts.
const IN_META: [&str; 7] = [
    "dev.universal-agent/session",
    "threadId",
    "agent-session-id",
    "vscode.conversationId",
    "ai.opencode/sessionID",
    "antigravity.google/conversation_id",
    "sessionId",
];

/// What a client is called that has not said what it is.
pub(crate) const UNKNOWN: &str = "?";

/// Where clients name the tool use that a call is.
const CALL_IN_META: [&str; 5] =
    ["dev.universal-agent/call", "claudecode/toolUseId", "callId", "agent-tool-call-request-id", "vscode.requestId"];

/// Which session a call is of, and how well that is known.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Identity {
    pub(crate) key: String,
    pub(crate) level: &'static str,
}

impl Identity {
    /// By what the call says itself, else by what the client's own hook said of its process, else by what the client's environment says where the
    /// client is one that sets it, else by the connection.
    ///
    /// It is stored and shown, so it is kept without what entries of clients keep secret.
    pub(crate) fn of(redactor: &Redactor, meta: &Value, client: &str, hello: &Hello, hooked: Option<&str>) -> Self {
        let Self { key, level } = Self::as_said(meta, client, hello, hooked);
        Self { key: redactor.text(&key).into_owned(), level }
    }

    fn as_said(meta: &Value, client: &str, hello: &Hello, hooked: Option<&str>) -> Self {
        let said = |name: &&str| meta[*name].as_str().map(|value| format!("{name}:{value}"));
        if let Some(key) = IN_META.iter().find_map(said) {
            return Self { key, level: EXACT };
        }
        if let Some(session) = hooked {
            return Self { key: format!("env:{session}"), level: EXACT };
        }
        let hint = |of: &str, name: &str| hello.hints.get(name).filter(|_| client == of).cloned();
        let hinted = hint("claude-code", "CLAUDE_CODE_SESSION_ID").or_else(|| hint("grok", "GROK_SESSION_ID"));
        match hinted {
            Some(key) => Self { key: format!("env:{key}"), level: "provisional" },
            None => Self { key: format!("{CONNECTION}:{}", hello.bridge), level: CONNECTION },
        }
    }
}

/// How well a session is known that its client names.
const EXACT: &str = "exact";

/// How well a session is known of which nothing is known but its connection, so that it is no other client's.
pub(crate) const CONNECTION: &str = "connection";

/// Whether a request of another session may be of the client whose session this is, where nothing names the other one: a client that was killed goes
/// on as another connection. `is_here`: the other one is connected.
pub(crate) fn earlier(own: &SessionRecord, other: &SessionRecord, arrived_at: Timestamp, is_here: bool) -> Earlier {
    let is_alike = other.run_id != own.run_id && other.client == own.client && other.identity != EXACT;
    if !is_alike {
        return Earlier::No;
    }
    // A session is opened when its client first asks for a tool. Who had one when that was asked for was there beside it.
    if is_here || own.opened_at <= arrived_at {
        return Earlier::Beside;
    }
    Earlier::Gone { is_told: !matches!(own.client.as_str(), "" | UNKNOWN) }
}

/// What the client calls a session, of the key that it is kept under.
pub(crate) fn clients_key(session_key: &str) -> &str {
    let behind = session_key.rsplit_once('#').filter(|(_, number)| number.parse::<u32>().is_ok());
    behind.map_or(session_key, |(key, _)| key)
}

/// What is wrong with what a client says in this program's own fields of `_meta`: taken for nothing, they would make one call of two, or two
/// sessions of one.
pub(crate) fn wrong_names(meta: &Value) -> Option<String> {
    let is_wrong = |name: &&str| meta.get(*name).is_some_and(|said| said.as_str().is_none_or(str::is_empty));
    let name = [CALL_IN_META[0], IN_META[0]].into_iter().find(is_wrong)?;
    Some(format!("`_meta[\"{name}\"]` must be a text that is not empty; nothing was sent"))
}

/// The name by which a client says that a call is one of its own, whatever it is like: nothing but this program's own field means that, since
/// models that ask again have a new name everywhere else.
pub(crate) fn own_call(redactor: &Redactor, meta: &Value) -> Option<String> {
    meta[CALL_IN_META[0]].as_str().map(|name| redactor.text(name).into_owned())
}

/// The client's own name for a tool use, as it is stored.
pub(crate) fn client_call(redactor: &Redactor, meta: &Value) -> Option<String> {
    CALL_IN_META.iter().find_map(|name| meta[*name].as_str()).map(|name| redactor.text(name).into_owned())
}

/// A session that this process owns.
pub(crate) struct Session {
    pub(crate) record: SessionRecord,
    pub(crate) run: RunRecord,
    pub(crate) lease: RunLease,
    pub(crate) past: PastKnown,
    pub(crate) outbox: Arc<Outbox>,
    pub(crate) step: StepId,
    pub(crate) trace: Trace,
    /// In which order its calls reach their tool server.
    pub(crate) turns: Arc<Turns>,
    next: AtomicU32,
    /// Whether what waits is sent in a moment.
    is_soon: AtomicBool,
    /// Connections and calls that need it.
    users: AtomicUsize,
    lock: RunLock,
}

impl Session {
    /// The place of the next call in the run: the number of its arrival.
    pub(crate) fn next_place(&self) -> u32 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// Writes what only its owner writes.
    pub(crate) async fn write(&self, change: Change) -> Result<(), Broken> {
        let by = Author::Owner(self.lease.clone());
        self.outbox.commit(&by, Batch::of([change])).await.map(drop).map_err(Broken::at("write to the session"))
    }
}

/// A session's run that this process took.
struct Taken {
    lease: RunLease,
    run: RunRecord,
    outbox: Arc<Outbox>,
    step: StepId,
    /// The place of its last call.
    last: u32,
}

/// Holds a session that is needed. The last one to let go of it parks it.
pub(crate) struct InUse {
    pub(crate) session: Arc<Session>,
    broker: Arc<Broker>,
}

impl InUse {
    pub(crate) fn again(&self) -> Self {
        self.session.users.fetch_add(1, Ordering::Relaxed);
        Self { session: self.session.clone(), broker: self.broker.clone() }
    }
}

impl InUse {
    /// Notes something that nobody may need before the session's next write: with that, or in a moment. Who decides about a call of the
    /// project sends it first.
    pub(crate) async fn later(&self, change: Change) {
        self.outbox.hold("note what a client has heard", change).await;
        self.soon();
    }

    /// Sends in a moment what waits, unless it leaves with another write before; at once when much waits.
    pub(crate) fn soon(&self) {
        let waiting = self.outbox.waiting();
        let is_much = waiting >= MUCH;
        if waiting == 0 || (self.is_soon.swap(true, Ordering::AcqRel) && !is_much) {
            return;
        }
        let session = self.again();
        tokio::spawn(async move {
            if !is_much {
                session.broker.env.clock.sleep(SOON).await;
            }
            session.is_soon.store(false, Ordering::Release);
            session.flush().await;
        });
    }

    /// Sends what waits. What is lost of it is a receipt that is handed out once more.
    pub(crate) async fn flush(&self) {
        if let Err(error) = self.outbox.flush().await {
            tracing::warn!(%error, "what a client has heard could not be noted");
        }
    }
}

impl std::ops::Deref for InUse {
    type Target = Session;
    fn deref(&self) -> &Session {
        &self.session
    }
}

impl Drop for InUse {
    fn drop(&mut self) {
        if self.session.users.fetch_sub(1, Ordering::AcqRel) == 1 {
            let (broker, run) = (self.broker.clone(), self.session.run.run_id.clone());
            tokio::spawn(async move {
                if let Err(error) = broker.park(&run).await {
                    tracing::warn!(%error, %run, "a session could not be parked");
                }
            });
        }
    }
}

/// How many changes wait at most until [`SOON`] is over: nobody who comes next is to stand behind a long write.
const MUCH: usize = 48;

/// How long a note waits for a write that it can go with.
const SOON: Duration = Duration::from_millis(200);

impl Broker {
    /// The session of a client that says who it is, opened when there is none.
    pub(crate) async fn session(
        self: &Arc<Self>,
        project: &str,
        hello: &Hello,
        client: &str,
        identity: &Identity,
        reach: &str,
    ) -> Result<InUse, Broken> {
        let _at = self.sessions.at_key(project, &hello.name, &identity.key).await;
        let mut generation = 0_u32;
        loop {
            // One that a person ended goes on as another one, and so does one with another tool server of that name.
            let suffix = if generation == 0 { String::new() } else { format!("#{generation}") };
            let session_key = format!("{}{suffix}", identity.key);
            let of = SessionsOf::Key { project: project.to_owned(), server: hello.name.clone(), session_key };
            let SessionsOf::Key { session_key, .. } = &of else { unreachable!("it was made as one") };
            let session_key = session_key.clone();
            let found = self.store.sessions_of(of).await.map_err(Broken::at("look for the session"))?.pop();
            if let Some(record) = found {
                let run = self.store.run(&record.run_id).await.map_err(Broken::at("read the session"))?;
                // What was asked of another tool server, or as another account, is no call of this session.
                if record.reach != reach {
                    generation += 1;
                    continue;
                }
                if is_over(&run) {
                    generation += 1;
                    continue;
                }
                return self.take(record).await;
            }
            let record = SessionRecord {
                run_id: RunId::new(&self.env),
                project: project.to_owned(),
                server: hello.name.clone(),
                session_key,
                client: client.to_owned(),
                identity: identity.level.to_owned(),
                reach: reach.to_owned(),
                opened_at: self.env.now(),
            };
            self.open(&record, hello).await?;
            self.note_name(&record);
            return self.take(record).await;
        }
    }

    /// Whether a person ended a session: its client goes on in another one. While that cannot be read it has not.
    pub(crate) async fn has_ended(&self, run: &RunId) -> bool {
        let run = self.store.run(run).await;
        run.is_ok_and(|run| is_over(&run))
    }

    /// Sends what waits in sessions of a project, so that what is read of it is all there is.
    pub(crate) async fn flush(&self, project: &str) -> Result<(), Broken> {
        let waiting: Vec<Arc<Session>> = {
            let waits = |session: &&Arc<Session>| session.record.project == project && session.outbox.holds();
            self.sessions.owned().values().filter(waits).cloned().collect()
        };
        for session in waiting {
            session.outbox.flush().await.map_err(Broken::at("write to the session"))?;
        }
        Ok(())
    }

    /// The session of a run, which may be another client's.
    pub(crate) async fn session_of(self: &Arc<Self>, run: &RunId) -> Result<InUse, Broken> {
        let found = self.store.sessions_of(SessionsOf::Run(run.clone())).await;
        let found = found.map_err(Broken::at("look for the session"))?.pop();
        let record = found.ok_or_else(|| Broken::new(format!("run {run} is not a session of the gateway")))?;
        self.take(record).await
    }

    async fn open(&self, record: &SessionRecord, hello: &Hello) -> Result<(), Broken> {
        let words = format!("Tool calls of {} to `{}`, in {}.", record.client, record.server, record.project);
        let job = serde_json::json!({"objective": words}).to_string();
        let spec = RunSpec::parse(&job).map_err(|error| Broken::new(error.to_string()))?;
        // A client may have put what a variable holds into the arguments of its tool server.
        let mut reach = hello.shown_reach();
        self.redactor.json(&mut reach);
        let run = NewRun {
            run_id: record.run_id.clone(),
            created_at: record.opened_at,
            entrypoint: GATEWAY_MODE.to_owned(),
            run_mode: GATEWAY_MODE.to_owned(),
            spec,
            files: Vec::new(),
            job_path: None,
            opening: Message::user(Origin::Prompt, words),
            workspace_dir: hello.cwd.clone(),
            launch: serde_json::json!({"gateway": reach}),
            parent_run_id: None,
        };
        let new = NewSession { run, session: record.clone() };
        let batch = Batch::of([Change::OpenSession(Box::new(new))]);
        self.store.commit(&Author::Command, batch).await.map(drop).map_err(Broken::at("open a session"))
    }

    /// Takes the session's run, if this process has it not. What an earlier owner had sent and not heard of is unknown from here on.
    async fn take(self: &Arc<Self>, record: SessionRecord) -> Result<InUse, Broken> {
        let run_id = record.run_id.clone();
        let _at = self.sessions.at(&run_id).await;
        if let Some(session) = self.sessions.owned().get(&run_id) {
            session.users.fetch_add(1, Ordering::Relaxed);
            return Ok(InUse { session: session.clone(), broker: self.clone() });
        }
        let trace = Trace::new(&self.env);
        let owner = owner_stamp(trace.clone());
        let lock =
            RunLock::take(&self.config.locks, &run_id, &owner).map_err(|error| Broken::new(error.to_string()))?;
        let owner = lock.after_those_before(owner);
        let record_of_run = self.store.run(&run_id).await.map_err(Broken::at("read the session"))?;
        let past = PastKnown::of(self.store.as_ref(), &record_of_run).await.map_err(|error| went_back(&error))?;
        let taken = self.take_run(&run_id, &owner).await;
        if taken.is_err() {
            lock.note_error();
        }
        let Taken { lease, run, outbox, step, last } = taken?;
        let session = Arc::new(Session {
            record,
            run,
            past,
            lease,
            outbox,
            step,
            trace,
            turns: Arc::default(),
            next: AtomicU32::new(last + 1),
            is_soon: AtomicBool::new(false),
            users: AtomicUsize::new(1),
            lock,
        });
        self.sessions.owned().insert(run_id, session.clone());
        Ok(InUse { session, broker: self.clone() })
    }

    /// Takes the run of a session, and puts into order what an earlier owner left.
    async fn take_run(&self, run_id: &RunId, owner: &OwnerStamp) -> Result<Taken, Broken> {
        let now = self.env.now();
        let taken = self.store.acquire_run(run_id, owner, now).await;
        let (lease, run) = taken.map_err(Broken::at("take the session"))?;
        let outbox = Outbox::new(self.store.clone(), lease.clone()).of_one_that_reads_anew();
        let outbox =
            outbox.with_patience(Arc::new(NoWaiting::new(self.env.clone()))).with_late_replies(self.late.clone());
        let outbox = Arc::new(outbox);
        let why = "the gateway's broker ended before an answer was stored";
        outbox.mark_lost(&lease, why, now).await.map_err(Broken::at("mark what was lost"))?;
        let step = if let Some(step) = run.current_step_id.clone() {
            step
        } else {
            let step = NewStep {
                step_id: StepId::new(&self.env),
                phase: "main".to_owned(),
                created_at: now,
                fingerprint: None,
            };
            outbox.open_step(&lease, step).await.map_err(Broken::at("begin the session"))?.step_id
        };
        let calls = self.store.calls(run_id, None).await.map_err(Broken::at("read the session's calls"))?;
        let last = calls.iter().map(|call| call.position.turn).max().unwrap_or(0);
        let settled = settle_by_late_replies(outbox.as_ref(), self.late.as_ref(), &lease, &calls, now).await;
        settled.map_err(Broken::at("store what was answered before"))?;
        Ok(Taken { lease, run, outbox, step, last })
    }

    /// Lets go of a session that nobody needs any more.
    async fn park(&self, run: &RunId) -> Result<(), Broken> {
        let _at = self.sessions.at(run).await;
        let is_free = |session: &&Arc<Session>| session.users.load(Ordering::Acquire) == 0;
        let Some(session) = self.sessions.owned().get(run).filter(is_free).cloned() else { return Ok(()) };
        let ended = self.end_work(&session).await;
        if ended.is_err() {
            // Nobody killed this process, should it not come to it again.
            session.lock.note_error();
        }
        ended?;
        self.sessions.owned().remove(run);
        Ok(())
    }

    async fn end_work(&self, session: &Session) -> Result<(), Broken> {
        let questions =
            session.outbox.open_questions(Some(&session.run.run_id)).await.map_err(Broken::at("read the questions"))?;
        let waits = questions.iter().any(|question| question.status == QuestionStatus::Open);
        let (status, stop_reason) =
            if waits { (RunStatus::WaitingForHuman, None) } else { (RunStatus::Stopped, Some(RunStop::Idle)) };
        let end = RunEnd {
            status,
            stop_reason,
            detail: Some("no client is connected".to_owned()),
            final_output: None,
            final_artifact_ref: None,
            step_end: None,
            cancels: Vec::new(),
            closes: Vec::new(),
            held_millis: 0,
            at: self.env.now(),
        };
        session.outbox.end_run(&session.lease, end).await.map(drop).map_err(Broken::at("park the session"))
    }

    /// At the end of this process: lets go of what nobody needs, and has the locks of the other sessions say that an error kept them, or by what
    /// they were ended in the middle of their work. Nobody killed it.
    pub(crate) async fn let_go(&self, by: Option<EndedBy>) {
        self.sessions.settled().await;
        let runs: Vec<RunId> = self.sessions.owned().keys().cloned().collect();
        for run in runs {
            if let Err(error) = self.park(&run).await {
                tracing::warn!(%error, %run, "a session could not be parked");
                break;
            }
        }
        for session in self.sessions.owned().values() {
            if let Some(by) = by {
                session.lock.note_end(by);
            }
            session.lock.say_end();
        }
    }

    /// Before anybody is let in: tool servers of an earlier broker are ended, and calls that it had sent are unknown.
    pub(crate) async fn clear_up(self: &Arc<Self>) -> Result<(), Broken> {
        let mut holders: Vec<RunId> = std::fs::read_dir(&self.config.locks)
            .into_iter()
            .flatten()
            .flatten()
            .filter_map(|entry| {
                let name = entry.file_name().into_string().ok()?;
                RunId::parse(name.split('.').next().filter(|holder| holder.starts_with(HOLDER))?).ok()
            })
            .collect();
        holders.sort();
        holders.dedup();
        for holder in holders {
            let locks = LockDir::new(&self.config.locks, holder, self.env.clone());
            let locks = locks.map_err(|error| Broken::new(error.to_string()))?;
            let _fenced = locks.retire_all_orphans().await;
        }
        // Whose call was answered, and nobody could store it then.
        let answered: HashSet<CallId> = self.late.all().into_iter().map(|late| late.tool_call_id).collect();
        for session in
            self.store.sessions_of(SessionsOf::Newest(u32::MAX)).await.map_err(Broken::at("read sessions"))?
        {
            self.note_name(&session);
            let run = self.store.run(&session.run_id).await.map_err(Broken::at("read a session"))?;
            let calls = if run.status == RunStatus::Running || !answered.is_empty() {
                self.store.calls(&run.run_id, None).await.map_err(Broken::at("read a session's calls"))?
            } else {
                Vec::new()
            };
            let is_open = |call: &CallRecord| match call.status {
                CallStatus::Running => true,
                CallStatus::Unknown => answered.contains(&call.call_id),
                CallStatus::Prepared
                | CallStatus::Succeeded
                | CallStatus::FailedDefinite
                | CallStatus::FailedReported
                | CallStatus::Cancelled => false,
            };
            if run.status == RunStatus::Running || (!run.status.is_terminal() && calls.iter().any(is_open)) {
                // Whoever asks for a tool in it is told; other sessions have nothing to do with it.
                if let Err(error) = PastKnown::of(self.store.as_ref(), &run).await {
                    tracing::warn!(%error, session = %run.run_id, "a session is left as it is");
                    continue;
                }
                drop(self.session_of(&run.run_id).await?);
            }
        }
        Ok(())
    }
}

/// What the names of connections begin with, under which tool servers have their locks.
pub(crate) const HOLDER: &str = "gw_";

/// A session is not worked on while the database lacks what it sent.
fn went_back(error: &PastError) -> Broken {
    match error {
        PastError::Forgotten { run, forgotten } => {
            // What one other session of the project sent is accepted for all of them at once.
            let sender = forgotten.first().map_or(run.as_str(), |first| first.run_id.as_str());
            let is_one = forgotten.iter().all(|known| known.run_id == sender);
            let accept = if is_one { sender } else { run.as_str() };
            let accept = PrintedCommand::of("ua db accept").word(accept).in_code();
            Broken::new(format!("{error}; nothing was sent: look what became of it (`ua db check`), then {accept}"))
        }
        PastError::Store(source) => Broken::of_store(format!("{error}: {source}")),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use serde_json::json;

    use super::*;

    fn hello(hints: &[(&str, &str)]) -> Hello {
        let hints: HashMap<&str, &str> = hints.iter().copied().collect();
        let hello = json!({"wire": 1, "bridge": "b1", "name": "mail", "command": ["x"], "cwd": "/", "hints": hints});
        serde_json::from_value(hello).unwrap()
    }

    #[test]
    fn what_a_call_says_comes_before_what_an_environment_says() {
        let claude = hello(&[("CLAUDE_CODE_SESSION_ID", "s1")]);
        for (meta, client, hello, key, level) in [
            (json!({"threadId": "t1"}), "codex-mcp-client", &claude, "threadId:t1", "exact"),
            (json!({}), "claude-code", &claude, "env:s1", "provisional"),
            (json!({}), "mcp", &claude, "connection:b1", "connection"),
            (json!({}), "claude-code", &hello(&[]), "connection:b1", "connection"),
        ] {
            let identity = Identity::of(&Redactor::default(), &meta, client, hello, None);
            assert_eq!((identity.key.as_str(), identity.level), (key, level));
        }
        let hooked = Identity::of(&Redactor::default(), &json!({}), "claude-code", &claude, Some("s2"));
        assert_eq!((hooked.key.as_str(), hooked.level), ("env:s2", "exact"));
        let call = client_call(&Redactor::default(), &json!({"claudecode/toolUseId": "toolu_1"}));
        assert_eq!(call.as_deref(), Some("toolu_1"));
    }

    /// Whose session is its connection may be whoever of its kind had gone before; what its client names is nobody else's.
    #[test]
    fn a_client_that_nothing_names_may_be_one_of_its_kind_that_has_gone() {
        let at = |seconds: i64| Timestamp::from_millis(1_767_323_045_000 + seconds * 1_000);
        let session = |run: &str, client: &str, identity: &str, opened: i64| SessionRecord {
            run_id: RunId::parse(run).unwrap(),
            project: "p".to_owned(),
            server: "mail".to_owned(),
            session_key: format!("{identity}:{run}"),
            client: client.to_owned(),
            identity: identity.to_owned(),
            reach: "r".to_owned(),
            opened_at: at(opened),
        };
        let own = session("run_2", "mcp", CONNECTION, 10);
        let gone = |is_told| Earlier::Gone { is_told };
        for (own, other, arrived, is_here, wanted) in [
            (&own, session("run_1", "mcp", CONNECTION, 0), 5, false, gone(true)),
            (&own, session("run_1", "mcp", CONNECTION, 0), 5, true, Earlier::Beside),
            (&own, session("run_1", "mcp", CONNECTION, 0), 10, false, Earlier::Beside),
            (&own, session("run_1", "mcp", "provisional", 0), 5, false, gone(true)),
            (&own, session("run_1", "mcp", EXACT, 0), 5, false, Earlier::No),
            (&own, session("run_1", "other", CONNECTION, 0), 5, false, Earlier::No),
            (&own, own.clone(), 5, false, Earlier::No),
            (&session("run_2", "", CONNECTION, 10), session("run_1", "", CONNECTION, 0), 5, false, gone(false)),
            (&session("run_2", "?", CONNECTION, 10), session("run_1", "?", CONNECTION, 0), 5, false, gone(false)),
        ] {
            assert_eq!(earlier(own, &other, at(arrived), is_here), wanted, "{} {arrived} {is_here}", other.session_key);
        }
    }

    /// Whatever a client calls itself, its sessions and its calls is stored, and shown in lists.
    #[test]
    fn no_name_that_a_client_gives_is_kept_with_a_secret_in_it() {
        let secret = "canary-5f1d7e20c4";
        let redactor = Redactor::new([("TOKEN".to_owned(), secret.to_owned())]);
        let hello = hello(&[("CLAUDE_CODE_SESSION_ID", secret)]);
        for name in IN_META {
            let identity = Identity::of(&redactor, &json!({name: format!("s {secret}")}), "c", &hello, None);
            assert_eq!(identity.key, format!("{name}:s [secret TOKEN]"));
        }
        assert_eq!(Identity::of(&redactor, &json!({}), "claude-code", &hello, None).key, "env:[secret TOKEN]");
        assert_eq!(Identity::of(&redactor, &json!({}), "c", &hello, Some(secret)).key, "env:[secret TOKEN]");
        for name in CALL_IN_META {
            let call = client_call(&redactor, &json!({name: secret}));
            assert_eq!(call.as_deref(), Some("[secret TOKEN]"));
        }
        assert_eq!(own_call(&redactor, &json!({CALL_IN_META[0]: secret})).as_deref(), Some("[secret TOKEN]"));
        let told = json!({"clientInfo": {"name": format!("c {secret}"), "version": secret}});
        let client = crate::era::Client::of_handshake(&told).kept(&redactor);
        assert_eq!((client.name.as_str(), client.version.as_str()), ("c [secret TOKEN]", "[secret TOKEN]"));
    }
}
