//! What one process drives a run with, and the runs of its sub-agents: tool servers, and the ports of a [`Worker`].
//!
//! A sub-agent's run is driven as its parent's is, by the same process, with tool servers of its own in a folder of its own. It has the
//! parent's model, tool configuration and policies; what only a person may loosen (who may be written to, how often an effect may
//! happen) is read from the job at the top of the tree, never from what a model wrote into a task.

use std::collections::BTreeSet;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Once, PoisonError};
use std::time::Duration;

use crate::Database;
use async_trait::async_trait;
use tokio::task::{AbortHandle, JoinHandle};
use tracing::Instrument as _;
use ua_core::{Env, Redactor, RunSpec, Timestamp, ToolSpec, Trace};
use ua_dispatch::{CallProgress, PersonWaits, StopSignal, SubAgentError, ToolTransport};
use ua_mcp::{McpTransport, WROTE_NO_MESSAGE};
use ua_runner::{
    ChildDriver, Conclusion, Desk, DeskPorts, Judge, LateFile, PastKnown, PinSettings, RunEvent, RunLock, Watcher,
    Worked, Worker, Workspace, owner_stamp, park_for_tool_server, run_span,
};
use ua_store::{EndMark, QuestionRecord, QuestionsOf, RunLease, RunRecord, RunStore, Store, budgets_with, is_task};

use crate::alert::Alerts;
use crate::error::{ChildFailed, HostError};
use crate::host::Host;
use crate::launch::{Begun, Launch};
use crate::people::{People, Presence};
use crate::redaction::scrub_logs;
use crate::servers::Handover;
use crate::{claude_code, pricing, progress, questions, selectors, servers, unknown_tools};

/// What the process has for all runs of a tree.
#[derive(Clone)]
pub(super) struct Driver {
    pub(super) host: Host,
    pub(super) people: Arc<dyn People>,
    pub(super) store: Arc<Database>,
    /// The same behind the seams.
    pub(super) port: Arc<dyn Store>,
    pub(super) launch: Launch,
    pub(super) trace: Trace,
    /// How long calls of the run above waited for a person; `None` of the run at the top.
    pub(super) above: Option<Arc<PersonWaits>>,
    /// What runs already for the run at the top, until that takes it over.
    pub(super) servers: Handover,
}

/// The epoch of whoever takes a run first.
const FIRST_EPOCH: u64 = 1;

/// How often it is looked whether somebody said that the run is to end.
const LOOKS_FOR_AN_END: Duration = Duration::from_secs(1);

/// That somebody elsewhere said that the run is to end, as a sentence.
fn to_be_ended(mark: EndMark) -> &'static str {
    match mark {
        EndMark::Cancel => "somebody cancelled the run: it ends after the current call",
        EndMark::Abort => "somebody answered a question of the run with `abort`: it ends after the current call",
    }
}

/// Leaves a run that was taken and that this process can do nothing with as stopped, with the reason: nothing was sent, and a resume, or another
/// machine where nothing was begun of it, may find mended what is wrong.
pub(super) async fn put_down(store: &dyn Store, lease: &RunLease, env: &Env, error: HostError) -> HostError {
    let parked = park_for_tool_server(store, lease, env, &error.to_string()).await;
    parked.err().map_or(error, HostError::from)
}

/// The same watcher, which says once of each tool server that it writes to its standard output what is no message: with that, an answer can be cut in
/// two, and nobody who looks for it later finds another sign of it. The run's log has it, and so do the `people`, if there are any to be told.
fn noting_strays(
    servers: &Arc<McpTransport>,
    logs: Workspace,
    redactor: Redactor,
    env: Env,
    people: Option<Arc<dyn People>>,
    inner: Watcher,
) -> Watcher {
    let (servers, told) = (Arc::downgrade(servers), Mutex::new(BTreeSet::new()));
    let is_told_at_its_call = AtomicBool::new(false);
    Arc::new(move |signal| {
        // Whoever follows the run has read it with the call that it came in the middle of.
        if let RunEvent::Call(CallProgress::Progress { text, .. }) = &signal
            && text.contains(WROTE_NO_MESSAGE)
        {
            is_told_at_its_call.store(true, Ordering::Relaxed);
        }
        // After their first words, and after each call.
        let is_due = matches!(&signal, RunEvent::ToolsListed { .. } | RunEvent::Call(CallProgress::Settled { .. }));
        for (server, sentence) in servers.upgrade().filter(|_| is_due).iter().flat_map(|servers| servers.strays()) {
            if told.lock().unwrap_or_else(PoisonError::into_inner).insert(server) {
                progress::keep_note(&logs, &redactor, env.now(), &sentence);
                if let Some(people) = people.as_ref().filter(|_| !is_told_at_its_call.load(Ordering::Relaxed)) {
                    people.remark_once(&format!("{sentence}; a log belongs on standard error"));
                }
            }
        }
        inner(signal);
    })
}

/// A run that was taken.
pub(super) struct Taken {
    pub(super) run: RunRecord,
    pub(super) lease: RunLease,
    pub(super) past: PastKnown,
    pub(super) workspace: Workspace,
    pub(super) acquired_at: Timestamp,
    /// The page that says how the run is resumed, on its way; nothing is asked or sent before it is written.
    pub(super) page: Option<JoinHandle<()>>,
}

/// What tells people of a run that was taken, before they hear anything else of it: on a resume its past is read for that.
pub(super) type Told = Pin<Box<dyn Future<Output = Result<(), HostError>> + Send>>;

impl Driver {
    /// Starts the tool servers of a run that was taken, drives it to a conclusion of this process, and ends them. People are told of it while the
    /// servers start.
    pub(super) async fn work(&self, mut taken: Taken, told: Told, stop: &StopSignal) -> Result<Worked, HostError> {
        let page = taken.page.take();
        let (host, env, run) = (&self.host, self.host.env(), &taken.run);
        let logs = taken.workspace.clone();
        let label = is_task(run).then(|| run.spec.objective.clone());
        let is_top = label.is_none();
        // It learns the run's secrets below, before a server says a word.
        let redactor = host.redactor().clone();
        let mut watcher =
            progress::watcher(taken.workspace.clone(), &run.run_id, env.clone(), redactor, self.people.clone(), label);
        if self.people.presence() != Presence::Nobody {
            watcher = questions::asking_watcher(host.clone(), self.people.clone(), self.store.clone(), watcher);
        }
        let is_taken_again = taken.lease.epoch > FIRST_EPOCH;
        // One look at the servers for all that needs them. An aborted run needs none, whatever became of those that it had.
        let is_to_end = run.end_mark().is_some();
        let is_aborted = run.end_mark() == Some(EndMark::Abort);
        let place = logs.root();
        let needed = if is_aborted { Ok(Vec::new()) } else { servers::servers_of(host, run, place, &self.launch) };
        let made = needed.and_then(|needed| {
            let names = servers::names(&needed);
            Ok((servers::tool_servers(host, run, place, needed, watcher.clone(), is_taken_again)?, names))
        });
        let (servers, names) = match made {
            Ok(made) => made,
            Err(error) => {
                told.await?;
                return Err(put_down(self.port.as_ref(), &taken.lease, env, error).await);
            }
        };
        let redactor = host.seams().redactor(host.redactor().clone());
        if is_top {
            self.servers.to(&servers, &watcher).await;
        }
        // What follows is done while the servers start.
        if !is_to_end {
            servers.begin_listing();
        }
        let begun = match told.await {
            Ok(()) => self.log_start(&taken).await,
            unread => unread,
        };
        if let Err(error) = begun {
            servers.shutdown().await;
            return Err(error);
        }
        let slow = self.tell_if_slow(&names);
        let to_end = (is_top && !is_to_end).then(|| self.tell_if_to_end(run));
        let told_strays = is_top.then(|| self.people.clone());
        let watcher = noting_strays(&servers, logs.clone(), redactor.clone(), env.clone(), told_strays, watcher);
        let watcher = self.noting(run, logs.clone(), redactor.clone(), slow.abort_handle(), watcher);
        let (lease, transport, id) = (taken.lease.clone(), servers.clone(), run.run_id.clone());
        let worker = self.worker(taken, transport, redactor.clone(), watcher, stop).await;
        if let Some(page) = page
            && let Err(error) = page.await
        {
            tracing::warn!(%error, "RESTART.md was not written");
        }
        let worked = match worker {
            Ok(worker) => worker.work().await.map_err(HostError::from),
            // The settings, the policies and the job do not fit together.
            Err(error) => Err(put_down(self.port.as_ref(), &lease, env, error).await),
        };
        slow.abort();
        if let Some(to_end) = to_end {
            to_end.abort();
        }
        servers.shutdown().await;
        progress::keep_leaving(self.port.as_ref(), &logs, host.redactor(), &id).await;
        scrub_logs(&logs, &redactor);
        worked
    }

    /// Notes in the run's log what people did since the last process left it, and that this one takes it.
    async fn log_start(&self, taken: &Taken) -> Result<(), HostError> {
        let reading = |e| HostError::store("read what happened since", &e);
        let run = &taken.run.run_id;
        let questions = self.port.questions_of(QuestionsOf::Run(run.clone())).await.map_err(reading)?;
        let overrides = self.port.overrides(run).await.map_err(reading)?;
        let lines = ua_report::start_lines(&taken.run, &questions, &overrides);
        progress::keep_new_lines(&taken.workspace, self.host.redactor(), lines);
        Ok(())
    }

    /// Says what is waited for when tool servers take long to start: nothing else happens meanwhile.
    fn tell_if_slow(&self, names: &[String]) -> JoinHandle<()> {
        let (people, env) = (self.people.clone(), self.host.env().clone());
        let told = servers::still_starting(self.host.settings(), names);
        tokio::spawn(async move {
            env.clock.sleep(servers::SLOW_START).await;
            people.remark(&told);
        })
    }

    /// Says that somebody elsewhere said that the run is to end, when they do: the work on it ends only after the call that it is in, which may take
    /// long.
    fn tell_if_to_end(&self, run: &RunRecord) -> JoinHandle<()> {
        let (people, store, env, run) =
            (self.people.clone(), self.store.clone(), self.host.env().clone(), run.run_id.clone());
        tokio::spawn(async move {
            loop {
                env.clock.sleep(LOOKS_FOR_AN_END).await;
                match store.run(&run).await.map(|run| run.end_mark()) {
                    Ok(None) => {}
                    Ok(Some(mark)) => return people.remark(to_be_ended(mark)),
                    // Whatever is wrong with the database, the work on the run finds it too.
                    Err(_) => return,
                }
            }
        })
    }

    /// The same watcher, which notes tools that no rule knows, and takes secrets out of the logs of a life that was killed. Once tools are
    /// listed, nobody writes those any more.
    fn noting(
        &self,
        run: &RunRecord,
        logs: Workspace,
        redactor: Redactor,
        slow: AbortHandle,
        inner: Watcher,
    ) -> Watcher {
        // Of one that begins the judge says it, and refuses.
        let (is_begun, told, mail_told) = (run.current_step_id.is_some(), Once::new(), Once::new());
        let (driver, run, spec) = (self.clone(), run.run_id.clone(), run.spec.clone());
        Arc::new(move |signal| {
            if let RunEvent::Call(CallProgress::Asking { question, .. }) = &signal {
                driver.tell_elsewhere(question);
            }
            // What is waited for is told by that, too.
            if let RunEvent::ToolServerAway { .. } = &signal {
                slow.abort();
            }
            if let RunEvent::ToolsListed { tools } = &signal {
                slow.abort();
                scrub_logs(&logs, &redactor);
                let host = &driver.host;
                if let Ok(classifier) = driver.launch.classifier(host.settings()) {
                    unknown_tools::note(host.home().root(), &run, tools, &classifier, host.env().now());
                    let root = host.home().root();
                    let found = servers::mail_in_a_folder(host.settings(), root, &spec, tools.clone(), &classifier);
                    if let Some(folder) = found.filter(|found| found.has_others) {
                        mail_told.call_once(|| driver.people.tell(&format!("note: {}", folder.sentence)));
                    }
                    let tools: Vec<&ToolSpec> = tools.iter().collect();
                    if let Some(misnamed) = selectors::misnamed(&classifier, &tools).filter(|_| is_begun) {
                        told.call_once(|| {
                            driver.people.tell(&format!("note: {misnamed}; such a key or mark counts for none"));
                        });
                    }
                }
            }
            inner(signal);
        })
    }

    /// Tells a person who is not here that a tool waits for an answer in the middle of a call: whoever learns of it when the run is left learns of it
    /// when the tool has been told *no*.
    fn tell_elsewhere(&self, question: &QuestionRecord) {
        if self.people.presence() == Presence::Here {
            return;
        }
        let (driver, question) = (self.clone(), question.clone());
        tokio::spawn(async move {
            let host = &driver.host;
            // What is wrong with the settings was said at the start.
            let Ok(Some(alerts)) = Alerts::from_settings(host.settings(), host.home()) else { return };
            let Ok(run) = driver.store.run(&question.run_id).await else { return };
            let beside = questions::beside(host.home(), &driver.store, &question).await;
            let known = beside.map(|beside| beside.known).unwrap_or_default();
            let warn = |why: &str| driver.people.tell(&format!("warning: {why}"));
            alerts.tell_of_question(&warn, &run, &question, &known).await;
        });
    }

    /// What the run is driven with.
    async fn worker(
        &self,
        taken: Taken,
        tools: Arc<dyn ToolTransport>,
        redactor: Redactor,
        watcher: Watcher,
        stop: &StopSignal,
    ) -> Result<Worker, HostError> {
        let Taken { run, lease, past, workspace, acquired_at, page: _ } = taken;
        let (host, launch) = (&self.host, &self.launch);
        // One that has begun has the rules themselves in its fingerprint. What a person accepted for the run above is not known to a sub-agent's.
        if run.current_step_id.is_none() && run.task_call_id.is_none() {
            launch.check_policies(host.settings(), Begun::Run(&run.run_id))?;
        }
        let overrides =
            self.port.overrides(&run.run_id).await.map_err(|e| HostError::store("read the run's budgets", &e))?;
        let shared = claude_code::shared_runs(self.port.as_ref(), &run).await;
        let llm = launch.provider_of(host, &run, &shared, &redactor)?;
        let prices = pricing::table(host.settings(), launch.pricing.as_deref(), launch.pricing_is_the_projects)?;
        let pins = PinSettings {
            accept: if run.current_step_id.is_some() { launch.accepts(host.settings()) } else { launch.accept.clone() },
            also: launch.accepted_servers(),
            accepted_by: host.settings().user(),
            made_of: servers::made_of(&host.settings().clone().begun_in(launch.folder())),
            ..PinSettings::of(&run.spec, &prices)
        };
        let settings = launch.run_settings(&run.spec, prices, pins);
        let budgets = budgets_with(&run.spec.budgets, &overrides);
        let judged = run.spec.clone();
        let ports = DeskPorts {
            store: self.port.clone(),
            lease,
            run,
            past,
            workspace,
            tools,
            classifier: Arc::new(launch.classifier(host.settings())?),
            env: host.env().clone(),
            trace: self.trace.clone(),
            stop: stop.clone(),
        };
        let waits = match &self.above {
            Some(above) => PersonWaits::below(host.env().clone(), above.clone()),
            None => PersonWaits::new(host.env().clone()),
        };
        let below = Self { above: Some(waits.clone()), ..self.clone() };
        let desk = Desk::new(ports)
            .with_person_waits(waits)
            .with_watcher(watcher)
            .with_redactor(redactor)
            .with_seams(host.seams().clone())
            .with_budgets(budgets)
            .with_secrets(host.secrets()?.grants())
            .with_elicitations(questions::patience(host.settings(), self.people.presence())?)
            .with_sub_agents(Arc::new(below))
            .with_heartbeat(self.store.clone())
            .with_late_replies(Arc::new(LateFile::at(host.home().late_replies()).with_room()))
            .with_judge(self.judge(judged));
        Ok(Worker::new(desk, llm, settings, acquired_at))
    }

    /// Refuses to begin with tools that the job does not fit, as its start does where they can be listed then.
    fn judge(&self, spec: Arc<RunSpec>) -> Judge {
        let driver = self.clone();
        Arc::new(move |tools| {
            let settings = driver.host.settings();
            let found = selectors::refused(settings, &driver.launch, &spec, tools);
            found.map_or_else(|error| Some(error.to_string()), |refusal| refusal.map(|error| error.to_string()))
        })
    }

    async fn drive_child(
        &self,
        above: &RunLease,
        child: RunRecord,
        workspace: Workspace,
        stop: &StopSignal,
    ) -> Result<(Conclusion, RunRecord), HostError> {
        let owner = owner_stamp(self.trace.clone());
        // Its parent's lock is what counts; this one says to others that it is driven.
        let lock = RunLock::take(&self.host.home().locks(), &child.run_id, &owner)?;
        let owner = lock.after_those_before(owner);
        let past = PastKnown::of(self.store.as_ref(), &child).await?;
        let acquired_at = self.host.env().now();
        let (lease, run) = self
            .port
            .acquire_task_run(above, &child.run_id, &owner, acquired_at)
            .await
            .map_err(|e| HostError::store("take the sub-agent's run", &e))?;
        let taken = Taken { run, lease, past, workspace, acquired_at, page: None };
        // Of a sub-agent's run people are told by what it does.
        let worked = self.work(taken, Box::pin(async { Ok(()) }), stop).await;
        if worked.is_err() {
            lock.note_error();
        }
        let worked = worked?;
        Ok((worked.conclusion, worked.run))
    }
}

#[async_trait]
impl ChildDriver for Driver {
    async fn drive(
        &self,
        above: &RunLease,
        child: RunRecord,
        workspace: Workspace,
        stop: &StopSignal,
    ) -> Result<(Conclusion, RunRecord), SubAgentError> {
        let span = run_span(&child);
        let driven = Box::pin(self.drive_child(above, child, workspace, stop)).instrument(span).await;
        driven.map_err(|error| Box::new(ChildFailed(error)) as SubAgentError)
    }
}
