//! Everything between a tool call of one run and its receipt, put together in one way: storage, redaction, ledger, the road to the tools,
//! people, sub-agents, and the sign of life beside it. No model: a client that owns its loop needs no more than this.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use tokio::task::JoinHandle;
use ua_classify::Classifier;
use ua_core::{
    Audience, Budgets, Env, PriceTable, Redactor, SecretGrants, ShortNames, StopCondition, Timestamp, ToolSpec, Trace,
};
use ua_dispatch::{
    Catalog, DispatchError, Dispatcher, Elicitations, Fence, FileLookup, PersonWaits, Redacting, Rules, StopSignal,
    ToolTransport, TransportError, WithAskUser, task_tool,
};
use ua_ledger::{CallsOf, LateReplies, Ledger, LedgerConfig, Lineage, NoLateReplies, Outbox, Patience, PeopleRules};
use ua_store::{RunLease, RunRecord, Store};

use crate::alive::{Stillness, TimeLimit, heartbeat};
use crate::error::RunError;
use crate::late_file::TellingLate;
use crate::past::PastKnown;
use crate::patience::UntilStopped;
use crate::ports::effect_limits;
use crate::seams::{Open, Seams};
use crate::tasks::{ChildDriver, ChildRuns, top_of_tree};
use crate::watch::{RunEvent, Watcher};
use crate::workspace::Workspace;

/// What every desk needs: a run that was taken, and the ports it is worked on through.
#[derive(Clone)]
pub struct DeskPorts {
    /// The runtime database, as the run sees it.
    pub store: Arc<dyn Store>,
    /// Proof of ownership.
    pub lease: RunLease,
    /// The run, as it was when it was taken.
    pub run: RunRecord,
    /// That the database knows what the run has sent.
    pub past: PastKnown,
    /// The run's folder.
    pub workspace: Workspace,
    /// The run's tool servers.
    pub tools: Arc<dyn ToolTransport>,
    /// What kind of thing each tool call is.
    pub classifier: Arc<Classifier>,
    /// Clock and entropy.
    pub env: Env,
    /// What this process's work on the run is called in traces.
    pub trace: Trace,
    /// How to ask for the end.
    pub stop: StopSignal,
}

/// The work of one process on the tool calls of one run.
#[derive(Clone)]
pub struct Desk {
    pub(crate) ports: DeskPorts,
    pub(crate) watcher: Watcher,
    pub(crate) redactor: Redactor,
    pub(crate) seams: Arc<dyn Seams>,
    prices: PriceTable,
    people: Option<PeopleRules>,
    budgets: Option<Budgets>,
    max_read_retries: Option<u32>,
    grants: SecretGrants,
    elicitations: Elicitations,
    children: Option<Arc<dyn ChildDriver>>,
    heartbeat: Option<Arc<dyn Store>>,
    late: Arc<dyn LateReplies>,
    is_held_to_definitions: bool,
    calls_of: CallsOf,
    judge: Option<Judge>,
    patience: Option<Arc<dyn Patience>>,
    has_waited_enough: Arc<AtomicBool>,
    pub(crate) still: Arc<Stillness>,
}

/// Says why a run may not begin with these tools, if it may not.
pub type Judge = Arc<dyn Fn(&[ToolSpec]) -> Option<String> + Send + Sync>;

/// What came of opening a desk.
pub(crate) enum Opened {
    /// Calls may go out.
    Ready(Box<Dispatcher>),
    /// A tool server of an earlier process is alive and could not be ended.
    Orphan(String),
    /// A signal asked for the end before the tool servers had started.
    Interrupted,
    /// The tools could not be listed.
    Unreachable(TransportError),
}

impl Desk {
    /// A desk of which nobody is told anything, that knows no secret, and whose run has no sub-agents.
    ///
    /// # Panics
    /// When the past that is known is another run's.
    pub fn new(ports: DeskPorts) -> Self {
        assert_eq!(ports.past.run(), &ports.lease.run_id, "the past of another run says nothing about this one");
        Self {
            still: Arc::new(Stillness::new(ports.env.clone(), PersonWaits::new(ports.env.clone()))),
            ports,
            watcher: Arc::new(|_: RunEvent| {}),
            redactor: Redactor::default(),
            seams: Arc::new(Open),
            prices: PriceTable::default(),
            people: None,
            budgets: None,
            max_read_retries: None,
            grants: SecretGrants::default(),
            elicitations: Elicitations::default(),
            children: None,
            heartbeat: None,
            late: Arc::new(NoLateReplies),
            is_held_to_definitions: false,
            calls_of: CallsOf::Job,
            judge: None,
            patience: None,
            has_waited_enough: Arc::default(),
        }
    }

    /// How long what came back waits for a busy database, where somebody waits for it who has no use for half an hour.
    #[must_use]
    pub fn with_patience(mut self, patience: Arc<dyn Patience>) -> Self {
        self.patience = Some(patience);
        self
    }

    /// Who looks at the tools before the run begins with them: whoever started it may not have been able to list them.
    #[must_use]
    pub fn with_judge(mut self, judge: Judge) -> Self {
        self.judge = Some(judge);
        self
    }

    /// Who is told what happens.
    #[must_use]
    pub fn with_watcher(mut self, watcher: Watcher) -> Self {
        self.watcher = watcher;
        self
    }

    /// What must not be kept of what tools and models answer.
    #[must_use]
    pub fn with_redactor(mut self, redactor: Redactor) -> Self {
        self.redactor = redactor;
        self
    }

    /// What stands around the ports.
    #[must_use]
    pub fn with_seams(mut self, seams: Arc<dyn Seams>) -> Self {
        self.seams = seams;
        self
    }

    /// What tokens cost, for what sub-agents are given and used.
    #[must_use]
    pub fn with_prices(mut self, prices: PriceTable) -> Self {
        self.prices = prices;
        self
    }

    /// When a person is asked, instead of what the job at the top of the run's tree says.
    #[must_use]
    pub fn with_people(mut self, people: PeopleRules) -> Self {
        self.people = Some(people);
        self
    }

    /// The budgets that count now, instead of those of the run's contract.
    #[must_use]
    pub fn with_budgets(mut self, budgets: Budgets) -> Self {
        self.budgets = Some(budgets);
        self
    }

    /// How often a read whose answer is lost is made again, where somebody waits for it who may ask again.
    #[must_use]
    pub fn with_read_retries(mut self, most: u32) -> Self {
        self.max_read_retries = Some(most);
        self
    }

    /// Which tools may be given which secrets.
    #[must_use]
    pub fn with_secrets(mut self, grants: SecretGrants) -> Self {
        self.grants = grants;
        self
    }

    /// Who answers what a tool asks in the middle of a call, and how long it waits.
    #[must_use]
    pub fn with_elicitations(mut self, elicitations: Elicitations) -> Self {
        self.elicitations = elicitations;
        self
    }

    /// Where the time is counted in which a tool waits for a person: that of a sub-agent counts for the run above as well.
    #[must_use]
    pub fn with_person_waits(mut self, waits: Arc<PersonWaits>) -> Self {
        self.still = Arc::new(Stillness::new(self.ports.env.clone(), waits));
        self
    }

    /// Who drives the runs of sub-agents; without it `task` is not offered.
    #[must_use]
    pub fn with_sub_agents(mut self, driver: Arc<dyn ChildDriver>) -> Self {
        self.children = Some(driver);
        self
    }

    /// Where signs of life go, instead of the run's store: beside the seams, since they are no step of the run.
    #[must_use]
    pub fn with_heartbeat(mut self, store: Arc<dyn Store>) -> Self {
        self.heartbeat = Some(store);
        self
    }

    /// Where answers are kept while the database does not take them.
    #[must_use]
    pub fn with_late_replies(mut self, late: Arc<dyn LateReplies>) -> Self {
        self.late = late;
        self
    }

    /// Holds each call to the tool that it was planned for: where nobody is asked to accept other tools, none goes to one that has changed.
    #[must_use]
    pub fn held_to_definitions(mut self) -> Self {
        self.is_held_to_definitions = true;
        self
    }

    /// Says whose the calls are, where they are not those of a job.
    #[must_use]
    pub fn with_calls_of(mut self, whose: CallsOf) -> Self {
        self.calls_of = whose;
        self
    }

    /// Begins to say that this process is alive, if its clock passes by itself; it took the run at this time.
    pub(crate) fn alive(&self, acquired_at: Timestamp) -> Option<JoinHandle<()>> {
        let DeskPorts { store, lease, env, run, .. } = &self.ports;
        let store = self.heartbeat.as_ref().unwrap_or(store).clone();
        let limit = TimeLimit {
            max_minutes: self.budgets.as_ref().unwrap_or(&run.spec.budgets).max_wallclock_minutes,
            held_before: Duration::from_millis(run.held_millis),
            from: acquired_at,
            watcher: self.watcher.clone(),
            is_told: false,
        };
        let beats = || tokio::spawn(heartbeat(store, lease.clone(), env.clone(), self.still.clone(), limit));
        env.clock.passes_by_itself().then(beats)
    }

    fn transport(&self, outbox: &Arc<Outbox>) -> Arc<dyn ToolTransport> {
        let audience = Audience::of(&self.ports.run.entrypoint);
        let transport = Arc::new(Redacting::new(self.ports.tools.clone(), self.redactor.clone()));
        self.seams.transport(Arc::new(WithAskUser::new(transport, outbox.clone(), audience)))
    }

    /// Ends what an earlier process left behind, and starts nothing.
    pub(crate) async fn end_earlier(&self, outbox: &Arc<Outbox>) -> Fence {
        self.transport(outbox).fence_earlier().await
    }

    /// Ends what an earlier process left behind, starts the tool servers, and opens the road to them.
    pub(crate) async fn open(&self, outbox: &Arc<Outbox>) -> Result<Opened, DeskError> {
        let DeskPorts { run, workspace, stop, .. } = &self.ports;
        let transport = self.transport(outbox);
        if let Fence::Alive { detail } = transport.fence_earlier().await {
            return Ok(Opened::Orphan(detail));
        }
        let listed = tokio::select! {
            // In this order, so that a simulated run takes the same way each time.
            biased;
            listed = transport.list() => listed,
            () = stop.stopping() => return Ok(Opened::Interrupted),
        };
        let mut specs = match listed {
            Ok(specs) => specs,
            Err(error) => return Ok(Opened::Unreachable(error)),
        };
        (self.watcher)(RunEvent::ToolsListed { tools: specs.clone() });
        // A step is opened behind the first list that there was.
        if let Some(why) = self.judge.as_ref().filter(|_| begins(run)).and_then(|judge| judge(&specs)) {
            return Err(DispatchError::Unfit { why }.into());
        }
        if self.children.is_some() {
            specs.push(task_tool());
        }
        let unusable = |why| DispatchError::Configuration { tool: "*".to_owned(), why };
        let rules = Rules::of(&run.spec).map_err(unusable)?.with_secrets(self.grants.clone());
        let rules = rules.speaking_to(Audience::of(&run.entrypoint));
        let catalog = Catalog::new(specs, &self.ports.classifier, &rules)?;
        let offered = catalog.tool_pins();
        let names = ShortNames::among(offered.keys().map(String::as_str));
        (self.watcher)(RunEvent::ToolsOffered { names });
        self.say_what_counts(&catalog);
        let files =
            FileLookup::open(workspace.root()).map_err(|error| unusable(format!("open the workspace: {error}")))?;
        let ledger = self.ledger(outbox).await?;
        let watcher = self.watcher.clone();
        let notices = Arc::new(move |notice| watcher(RunEvent::Call(notice)));
        let classifier = self.ports.classifier.clone();
        let dispatcher = Dispatcher::new(catalog, classifier, rules, ledger, transport, files, notices)
            .with_elicitations(self.elicitations)
            .with_person_waits(self.still.waits().clone());
        Ok(Opened::Ready(Box::new(match &self.children {
            Some(driver) => dispatcher.with_sub_agents(self.sub_agents(driver)),
            None => dispatcher,
        })))
    }

    /// Says of each effect that the job counts which tools are counted for it. One that is made by a tool that nobody declared is not, and a
    /// person had better know that before than after.
    fn say_what_counts(&self, catalog: &Catalog) {
        let mut said = BTreeSet::new();
        for condition in self.ports.run.spec.all_stop_conditions() {
            if let StopCondition::Effect { effect, .. } = condition.expanded()
                && said.insert(effect.clone())
            {
                let (counted, perhaps) = catalog.makers_of(&effect);
                (self.watcher)(RunEvent::EffectCounted { effect, counted, perhaps });
            }
        }
    }

    /// What only a person may loosen (who may be written to, how often an effect may happen) is read from the job at the top of the tree,
    /// never from what a model wrote into a task.
    async fn ledger(&self, outbox: &Arc<Outbox>) -> Result<Ledger, RunError> {
        let DeskPorts { store, lease, run, env, trace, .. } = &self.ports;
        let job = top_of_tree(store.as_ref(), run).await?.spec;
        let budgets = self.budgets.as_ref().unwrap_or(&run.spec.budgets);
        let config = LedgerConfig {
            no_duplicate_external_actions: run.spec.constraints.no_duplicate_external_actions,
            max_retries: budgets.max_retries_per_tool_call,
            max_read_retries: self.max_read_retries,
            max_effects: effect_limits(&job),
            blob_threshold: run.spec.settings.blob_threshold_bytes,
        };
        let database = store.database_id().await.map_err(RunError::at("look which database it is"))?;
        let lineage = Lineage { database, root: run.root_run_id.clone(), mark: run.lineage_mark.clone() };
        Ok(Ledger::new(outbox.clone(), lease.clone(), lineage, config, env.clone(), trace.clone())
            .with_task(run.task_call_id.clone())
            .with_lost(self.ports.past.lost().to_vec())
            .with_people(self.people.clone().unwrap_or_else(|| PeopleRules::of(&job)))
            .with_prices(self.prices.clone())
            .held_to_definitions(self.is_held_to_definitions)
            .with_calls_of(self.calls_of.for_audience(Audience::of(&run.entrypoint)))
            .with_patience(self.patience()))
    }

    /// Where answers are kept that the database does not take.
    pub(crate) fn late(&self) -> &dyn LateReplies {
        self.late.as_ref()
    }

    /// The run's store as its owner sees it. One for each time the run is taken.
    pub fn outbox(&self) -> Arc<Outbox> {
        let outbox = Outbox::new(self.ports.store.clone(), self.ports.lease.clone());
        let late = TellingLate::new(self.late.clone(), self.watcher.clone());
        Arc::new(outbox.with_patience(self.patience()).with_late_replies(Arc::new(late)))
    }

    /// How long what came back waits for a busy database.
    pub(crate) fn patience(&self) -> Arc<dyn Patience> {
        if let Some(patience) = &self.patience {
            return patience.clone();
        }
        let DeskPorts { env, stop, .. } = &self.ports;
        let (env, stop, watcher) = (env.clone(), stop.clone(), self.watcher.clone());
        Arc::new(UntilStopped { env, stop, watcher, has_ended: self.has_waited_enough.clone() })
    }

    fn sub_agents(&self, driver: &Arc<dyn ChildDriver>) -> Arc<dyn ua_dispatch::SubAgents> {
        let DeskPorts { store, lease, workspace, env, .. } = &self.ports;
        let agents = ChildRuns::new(store.clone(), lease.clone(), workspace.clone(), env.clone(), driver.clone());
        self.seams.sub_agents(Arc::new(agents), store, lease, driver)
    }
}

/// Whether a run begins with a contract that somebody wrote for it: a new run, or a fork. A task's is what a model wrote, within the one above
/// it, and an iteration begins with that of the run.
fn begins(run: &RunRecord) -> bool {
    run.current_step_id.is_none() && (run.parent_run_id.is_none() || run.forked_at.is_some())
}

/// Why a desk could not be opened.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DeskError {
    #[error(transparent)]
    Run(#[from] RunError),
    #[error(transparent)]
    Tools(#[from] DispatchError),
}
