//! A run of a lineage with its ledger, and what its model asks for.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::json;
use ua_core::{
    CallId, CallStatus, EffectKind, Env, OnScopeConflict, Outcome, PlannedCall, RawReply, Resolution, RunId, Scope,
    Timestamp, ToolName, ToolNamespace, Trace, sha256,
};
use ua_ledger::{
    Admission, Facts, FileContent, Ledger, LedgerConfig, Lineage, Outbox, Prepared, Recovery, SentFile, SentFiles,
    UnknownCall,
};
use ua_store::conformance::samples;
use ua_store::{
    CallRecord, Choice, MemStore, NewRun, QuestionKind, QuestionRecord, RunLease, RunRecord, RunStore as _, Store,
};

/// What becomes of an attempt.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Fate {
    Done,
    FailedMaybe,
    FailedNone,
    NotSent,
    /// Its tool server refuses the credentials.
    Unauthorized,
    Lost,
    /// Its process is still at work.
    UnderWay,
}

/// An e-mail that the model asks for.
#[derive(Debug, Clone)]
pub(crate) struct Ask {
    pub(crate) words: &'static str,
    pub(crate) scope: &'static str,
    pub(crate) server: &'static str,
    pub(crate) on_conflict: OnScopeConflict,
    pub(crate) needs_approval: bool,
}

pub(crate) const FIRST: Ask =
    Ask { words: "Dear boss", scope: "boss", server: "mail", on_conflict: OnScopeConflict::Ask, needs_approval: false };
pub(crate) const OTHER_WORDS: Ask = Ask { words: "Hello boss", ..FIRST };
pub(crate) const OTHER_ROUTE: Ask = Ask { server: "other_mail", ..FIRST };
pub(crate) const ELSEWHERE: Ask = Ask { words: "Hello board", scope: "the board", ..FIRST };

/// By what an effect is known.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum KnownBy {
    /// A rule says what names it, files among it.
    Scope,
    /// All its arguments.
    WholeCall,
}

impl KnownBy {
    pub(crate) const ALL: [Self; 2] = [Self::Scope, Self::WholeCall];
}

impl Ask {
    /// The same as the dispatcher finds it: with an attachment that holds this, or that nobody can look at.
    pub(crate) fn sends(&self, by: KnownBy, content: Option<&str>) -> Facts {
        let digest = content.map(sha256);
        let scope = match by {
            KnownBy::Scope => {
                let file = digest.map_or_else(|| "path:report.pdf".to_owned(), |digest| format!("sha256:{digest}"));
                Scope::new("email.send", &format!(r#"{{"addresses":["{}"],"files":["{file}"]}}"#, self.scope))
            }
            KnownBy::WholeCall => Scope::of_whole_call("email.send", &sha256(self.words), digest),
        };
        let content = match digest {
            Some(digest) => FileContent::Known { digest, bytes: 6 },
            None => FileContent::Unknown { why: "nothing of that name is there".to_owned() },
        };
        let file = SentFile { at: "report.pdf".to_owned(), content };
        let files = SentFiles::new([("attachments[0]".to_owned(), file)]);
        Facts { scope: Some(scope), files, ..Facts::default() }
    }

    pub(crate) fn facts(&self) -> Facts {
        let scope = Some(Scope::new("email.send", self.scope));
        Facts {
            scope,
            files: SentFiles::of_digests([("attachments[0]".to_owned(), sha256("report"))]),
            ..Facts::default()
        }
    }

    /// The same where nobody can look at the attachment.
    pub(crate) fn unseen(&self) -> Facts {
        let content = FileContent::Unknown { why: "it is on another machine".to_owned() };
        let file = SentFile { at: "file://elsewhere/report.pdf".to_owned(), content };
        Facts { files: SentFiles::new([("attachments[0]".to_owned(), file)]), ..self.facts() }
    }

    pub(crate) fn planned(&self, id: &str, turn: u32) -> PlannedCall {
        let mut call = samples::planned_email(id, turn, 1);
        call.name = ToolName::qualified(ToolNamespace::Mcp, self.server, "send");
        call.arguments = json!({"to": "boss@example.test", "body": self.words}).into();
        call.args_hash = sha256(self.words);
        call.policy.effect_kind = EffectKind::parse("email.send");
        call.policy.on_scope_conflict = self.on_conflict;
        call.policy.needs_approval = self.needs_approval;
        call.policy.errors_without_effect = vec!["nothing was sent".to_owned()];
        call
    }
}

/// A run and its ledger.
pub(crate) struct Member {
    pub(crate) ledger: Ledger,
    pub(crate) store: Arc<MemStore>,
    pub(crate) lease: RunLease,
    pub(crate) turn: AtomicU32,
}

/// A run and its child.
pub(crate) async fn lineage() -> (Member, Member) {
    let store = Arc::new(MemStore::default());
    let parent = Member::of(&store, samples::new_run("run_1"), true).await;
    let child = Member::of(&store, samples::child_run("run_2", "run_1"), true).await;
    (parent, child)
}

/// The lineage of a run in a database.
pub(crate) fn in_database(database: &str, root: RunId) -> Lineage {
    Lineage { database: database.to_owned(), root, mark: None }
}

pub(crate) fn ledger_of(
    store: Arc<dyn Store>,
    lease: &RunLease,
    run: RunRecord,
    no_duplicate_external_actions: bool,
    seed: u64,
) -> Ledger {
    let env = Env::simulated(seed);
    let config = LedgerConfig { no_duplicate_external_actions, max_retries: 1, ..LedgerConfig::default() };
    let port = Arc::new(Outbox::new(store, lease.clone()));
    let trace = Trace::new(&env);
    let lineage = Lineage { mark: run.lineage_mark, ..in_database("d", run.root_run_id) };
    Ledger::new(port, lease.clone(), lineage, config, env, trace)
}

impl Member {
    pub(crate) async fn of(store: &Arc<MemStore>, run: NewRun, no_duplicate_external_actions: bool) -> Self {
        let id = store.submit_run(run).await.unwrap().run_id;
        let (lease, run) = store.acquire_run(&id, &samples::owner(100), samples::at(1)).await.unwrap();
        store.open_step(&lease, samples::new_step(&format!("step_{id}"))).await.unwrap();
        let seed = if run.parent_run_id.is_some() { 4 } else { 3 };
        let ledger = ledger_of(store.clone(), &lease, run, no_duplicate_external_actions, seed);
        Self { ledger, store: store.clone(), lease, turn: AtomicU32::new(0) }
    }

    /// The same run, taken anew, whose ledger reads and writes through `seam`.
    pub(crate) async fn behind(self, seam: Arc<dyn Store>) -> Self {
        let owner = samples::owner(100);
        let (lease, run) = self.store.acquire_run(&self.lease.run_id, &owner, samples::at(2)).await.unwrap();
        Self { ledger: ledger_of(seam, &lease, run, true, 5), lease, ..self }
    }

    /// Plans a call in a turn of its own.
    pub(crate) async fn plan(&self, ask: &Ask) -> CallId {
        self.plan_as(|id, turn| ask.planned(id, turn)).await
    }

    /// The same for any call.
    pub(crate) async fn plan_as(&self, planned: impl FnOnce(&str, u32) -> PlannedCall) -> CallId {
        self.plan_at(samples::at(4), planned).await
    }

    /// The same, by the clock of this run.
    pub(crate) async fn plan_now(&self, planned: impl FnOnce(&str, u32) -> PlannedCall) -> CallId {
        self.plan_at(self.ledger.env().now(), planned).await
    }

    async fn plan_at(&self, at: Timestamp, planned: impl FnOnce(&str, u32) -> PlannedCall) -> CallId {
        let run = &self.lease.run_id;
        let (turn, step) = (self.turn.fetch_add(1, Ordering::SeqCst) + 1, format!("step_{run}"));
        if turn > 1 {
            let commit = samples::commit(&step, turn - 1, &format!("ckpt_{run}_{turn}"));
            self.store.commit_turn(&self.lease, commit).await.unwrap();
        }
        let id = format!("call_{run}_{turn}");
        let request = self.store.reserve_request(&self.lease, samples::reservation(turn)).await.unwrap();
        let mut draft = samples::draft(&step, turn, request, vec![planned(&id, turn)]);
        draft.at = at;
        self.store.record_turn(&self.lease, draft).await.unwrap();
        samples::call_id(&id)
    }

    pub(crate) async fn admit(&self, id: &CallId, ask: &Ask) -> Admission {
        self.ledger.admit(id, ask.facts()).await.unwrap()
    }

    /// Plans a call and takes it as far as `fate`.
    pub(crate) async fn sent(&self, ask: &Ask, fate: Fate) -> CallRecord {
        let id = self.plan(ask).await;
        self.run(&id, ask, fate).await
    }

    /// Takes a planned call as far as `fate`; it must be let through.
    pub(crate) async fn run(&self, id: &CallId, ask: &Ask, fate: Fate) -> CallRecord {
        self.take(id, &ask.facts(), fate).await
    }

    /// The same for any call.
    pub(crate) async fn take(&self, id: &CallId, facts: &Facts, fate: Fate) -> CallRecord {
        let admission = self.ledger.admit(id, facts.clone()).await.unwrap();
        let Admission::Ready(prepared) = admission else { panic!("not let through: {admission:?}") };
        self.send(prepared, fate).await
    }

    /// Sends what was let through.
    pub(crate) async fn send(&self, prepared: Prepared, fate: Fate) -> CallRecord {
        let permit = self.ledger.start(prepared, "1").await.unwrap().unwrap();
        let result = |text: &str, is_error: bool| {
            let content = json!([{"type": "text", "text": text}]);
            Outcome::Raw(RawReply::ToolResult { result: json!({"content": content, "isError": is_error}) })
        };
        let outcome = match fate {
            Fate::Done => result("done", false),
            Fate::FailedMaybe => result("something went wrong", true),
            Fate::FailedNone => result("refused: nothing was sent", true),
            Fate::NotSent => Outcome::NotSent { why: "connection refused".to_owned() },
            Fate::Unauthorized => Outcome::Raw(RawReply::http(401, "who are you?")),
            Fate::Lost => Outcome::Lost { why: "the connection was cut".to_owned() },
            Fate::UnderWay => return permit.call().clone(),
        };
        self.ledger.settle(permit, outcome).await.unwrap()
    }

    /// The question about a call that has to be held.
    pub(crate) async fn held(&self, id: &CallId, ask: &Ask, kind: QuestionKind) -> QuestionRecord {
        let admission = self.admit(id, ask).await;
        let Admission::Held(question) = admission else { panic!("not held: {admission:?}") };
        assert_eq!(question.kind, kind, "{}", question.text);
        question
    }

    /// Plans a call that has to be held as a near-duplicate.
    pub(crate) async fn near_duplicate(&self, ask: &Ask) -> (CallId, QuestionRecord) {
        let id = self.plan(ask).await;
        let question = self.held(&id, ask, QuestionKind::NearDuplicate).await;
        (id, question)
    }

    pub(crate) async fn answer(&self, question: &QuestionRecord, choice: Choice) {
        self.store.insert_answer(samples::answer(question.question_id.as_str(), choice)).await.unwrap();
    }

    /// A call that needs nothing more.
    pub(crate) async fn settled(&self, id: &CallId, ask: &Ask) -> CallRecord {
        let admission = self.admit(id, ask).await;
        let Admission::Settled(call) = admission else { panic!("not settled: {admission:?}") };
        call
    }

    /// The question about a call in doubt.
    pub(crate) async fn in_doubt(&self, call: &CallRecord, ask: &Ask) -> QuestionRecord {
        let Admission::Unknown(unknown) = self.admit(&call.call_id, ask).await else { panic!("not unknown") };
        self.asked_about(&unknown, &ask.facts()).await
    }

    async fn asked_about(&self, unknown: &UnknownCall, facts: &Facts) -> QuestionRecord {
        let Recovery::Decided(held) = self.ledger.recover(unknown, facts).await.unwrap() else { panic!("not decided") };
        let Admission::Held(question) = *held else { panic!("not held") };
        question
    }

    /// Gives an unknown call up, as a person does.
    pub(crate) async fn skip(&self, call: &CallRecord, ask: &Ask) {
        self.skip_as(call, &ask.facts()).await;
    }

    /// The same of any call.
    pub(crate) async fn skip_as(&self, call: &CallRecord, facts: &Facts) {
        let admission = self.ledger.admit(&call.call_id, facts.clone()).await.unwrap();
        let Admission::Unknown(unknown) = admission else { panic!("not unknown: {admission:?}") };
        let question = self.asked_about(&unknown, facts).await;
        self.answer(&question, Choice::Skip).await;
        self.ledger.recover(&unknown, facts).await.unwrap();
        let admission = self.ledger.admit(&call.call_id, facts.clone()).await.unwrap();
        let Admission::Settled(call) = admission else { panic!("not settled: {admission:?}") };
        assert_eq!((call.status, call.resolution), (CallStatus::Unknown, Some(Resolution::Skipped)));
    }
}
