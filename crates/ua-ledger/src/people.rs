//! When a person has to say a word before a call is sent, and what that word is good for.
//!
//! Durable Jobs v1 spec §6 (`escalation`, `constraints`). Invariants: a word is bound to what was shown (arguments, definition of
//! the tool, scope, contents of the files it sends) and is good for one call through its definite failures; when one of these is
//! another one, it is asked again; a question that is there survives any crash, and is raised once.
//! Proved by: `ua-ledger`'s tests `people`, `ua-runner`'s `crash_anywhere::approvals`.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};
use ua_core::{CallId, CallStatus, MailAddress, Resolution, RunSpec, Sha256};
use ua_store::{CallRecord, Choice, QuestionKind, QuestionRecord, QuestionStatus};

use crate::admission::{Admission, Facts, Prepared};
use crate::error::LedgerError;
use crate::ledger::Ledger;
use crate::question::Why;
use crate::recipient::{Problem, recipients};
use crate::standing::Standing;
use crate::taint::TaintRule;

/// What the job says about asking people, beside what policies say about single tools. The default asks about nothing of this.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PeopleRules {
    /// A tool that refuses the credentials is a question, not a failure for the model (`ask_human_on_auth_failure`).
    pub ask_on_auth_failure: bool,
    /// Whether recipients of e-mail are looked at, and what happens to one that is not clear.
    pub recipients: RecipientRule,
    /// What happens to effects of a run in which untrusted content and private data met; `None` lets them go.
    pub taint: Option<TaintRule>,
}

/// What happens to an e-mail whose recipient is not clear (`ask_human_on_ambiguous_recipient`).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum RecipientRule {
    /// Recipients are not looked at.
    #[default]
    Unchecked,
    /// No recipient, or one that is no address, is refused and the model is told. Which address it is, is the model's to choose.
    TellModel,
    /// A person is asked; also about an address that neither the job nor a person named.
    Ask {
        /// Addresses that the job's text and inputs name.
        named: BTreeSet<MailAddress>,
        /// `constraints.allowed_recipients`: addresses and `@domain`.
        allowed: Vec<String>,
    },
}

impl PeopleRules {
    /// What a job says.
    pub fn of(spec: &RunSpec) -> Self {
        let recipients = if spec.escalation.ask_human_on_ambiguous_recipient {
            let named = MailAddress::all_in(&spec.opening_prompt()).into_iter().collect();
            RecipientRule::Ask { named, allowed: spec.constraints.allowed_recipients.clone() }
        } else {
            RecipientRule::TellModel
        };
        let taint = TaintRule::of(spec);
        Self { ask_on_auth_failure: spec.escalation.ask_human_on_auth_failure, recipients, taint }
    }
}

/// How often a run may ask by `ask_user`.
const MAX_ASKED: usize = 20;

/// What the model is told when nobody answers what it asks.
pub const DECIDE_YOURSELF: &str =
    "Nobody answers this. Decide yourself by what the job says, and say in your report what you assumed.";

impl Ledger {
    /// The same ledger, asking people as the job says.
    #[must_use]
    pub fn with_people(mut self, people: PeopleRules) -> Self {
        self.people = people;
        self
    }

    /// The same ledger, knowing what the tools are now, by qualified name: an approval is good for the definition that was shown.
    #[must_use]
    pub fn with_definitions(mut self, definitions: BTreeMap<String, Sha256>) -> Self {
        self.definitions = definitions;
        self
    }

    /// What a person's word about this call is bound to.
    pub(crate) fn binding(&self, call: &CallRecord, facts: &Facts) -> Value {
        json!({
            "args_hash": call.args_hash,
            "tool_digest": self.definitions.get(&call.name.raw).or(call.tool_digest.as_ref()),
            "scope": facts.scope,
            "file_digests": facts.file_digests,
        })
    }

    /// Whether the call still is what the question showed. A question of an earlier version, which shows less, is taken at its word.
    pub(crate) fn is_as_asked(&self, call: &CallRecord, facts: &Facts, asked: &QuestionRecord) -> bool {
        let shown = asked.detail.get("binding").filter(|shown| !shown.is_null());
        shown.is_none_or(|shown| *shown == self.binding(call, facts))
    }

    /// Whether a call failed because its tool refused the credentials (HTTP 401 or 403): trying it again as it is changes nothing.
    pub fn was_refused_credentials(call: &CallRecord) -> bool {
        call.status == CallStatus::FailedDefinite
            && call.error_code.as_deref().is_some_and(|code| matches!(code, "http_401" | "http_403"))
    }

    /// Whether a person is asked to mend the credentials that this call was refused with.
    pub fn asks_for_credentials(&self, call: &CallRecord) -> bool {
        self.people.ask_on_auth_failure && Self::was_refused_credentials(call)
    }

    /// A call that definitely failed and may need a person's word before it is tried again: its credentials were refused, or what
    /// was approved is not what would be sent now. `Ok(Ok(approval))` lets it go on.
    pub(crate) async fn approval_before_retry(
        &self,
        call: &CallRecord,
        facts: &Facts,
    ) -> Result<Result<Option<QuestionRecord>, Admission>, LedgerError> {
        let asks_for_credentials = self.asks_for_credentials(call);
        if !asks_for_credentials && !call.policy.needs_approval {
            return Ok(Ok(None));
        }
        let questions = self.questions_about(call).await?;
        if let Some(pending) = questions.iter().find(|question| question.status != QuestionStatus::Closed) {
            match Self::decision(call, pending)? {
                None => return Ok(Err(Admission::Held(pending.clone()))),
                Some(Choice::Skip | Choice::Abort) => {
                    self.close(call, pending).await?;
                    return Ok(Err(Admission::Settled(call.clone())));
                }
                Some(Choice::Execute | Choice::Continue | Choice::Happened) => {
                    if !call.policy.needs_approval || self.is_as_asked(call, facts, pending) {
                        return Ok(Ok(Some(pending.clone())));
                    }
                    self.close(call, pending).await?;
                    return Ok(Err(Admission::Held(self.ask(call, &Why::Approval { facts }).await?)));
                }
            }
        }
        let answered_skip = |question: &&QuestionRecord| {
            question.answer.as_ref().is_some_and(|answer| answer.choice == Choice::Skip)
                && question.detail.get("attempt").and_then(Value::as_u64) == Some(call.attempt.into())
        };
        if questions.iter().any(|question| answered_skip(&question)) {
            return Ok(Err(Admission::Settled(call.clone()))); // a person left this very failure as it is
        }
        if asks_for_credentials {
            return Ok(Err(Admission::Held(self.ask(call, &Why::AuthFailure { facts }).await?)));
        }
        let holds = questions.iter().rev().find(|question| allows(question));
        if holds.is_some_and(|question| self.is_as_asked(call, facts, question)) {
            return Ok(Ok(None));
        }
        Ok(Err(Admission::Held(self.ask(call, &Why::Approval { facts }).await?)))
    }

    /// What a person has to be asked before a call is sent for the first time, or why it is refused without asking.
    pub(crate) async fn word_before_start(
        &self,
        call: &CallRecord,
        facts: &Facts,
    ) -> Result<Option<Admission>, LedgerError> {
        if let Some(problem) = self.recipient_problem(call).await? {
            return Ok(Some(match &self.people.recipients {
                RecipientRule::Ask { .. } => {
                    Admission::Held(self.ask(call, &Why::AmbiguousRecipient { facts, problem: &problem }).await?)
                }
                RecipientRule::TellModel | RecipientRule::Unchecked => {
                    let message = format!("Not sent: {problem} Correct the recipient and ask again.");
                    Admission::Settled(self.cancel(call, Resolution::Refused, "ambiguous_recipient", &message).await?)
                }
            }));
        }
        if call.policy.needs_approval {
            return Ok(Some(Admission::Held(self.ask(call, &Why::Approval { facts }).await?)));
        }
        if self.is_tainted_effect(call).await? {
            return Ok(Some(Admission::Held(self.ask(call, &Why::Tainted { facts }).await?)));
        }
        Ok(None)
    }

    /// Raises the question that a `prepared` call of the open turn will need, while the run waits for another one anyway, so that a
    /// person answers all of them at once. Nothing when it needs none, or another call of the lineage has a say first.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn ask_ahead(&self, id: &CallId, facts: &Facts) -> Result<Option<QuestionRecord>, LedgerError> {
        let call = self.store.call(id).await.map_err(LedgerError::at("read", id))?;
        if call.status != CallStatus::Prepared
            || call.name.is_ask_user()
            || self.pending_question(&call).await?.is_some()
        {
            return Ok(None);
        }
        let key = self.key(&call, facts, None);
        let relations = self.relations(&call, facts).await?;
        let standing = Standing { call: &call, facts, relations: &relations, config: &self.config };
        if self.holder(&call, &key).await?.is_some() || standing.in_the_way().is_some() || !relations.rivals.is_empty()
        {
            return Ok(None);
        }
        let problem = self.recipient_problem(&call).await?;
        let why = match (&problem, &self.people.recipients) {
            (Some(problem), RecipientRule::Ask { .. }) => Why::AmbiguousRecipient { facts, problem },
            (None, _) if call.policy.needs_approval => Why::Approval { facts },
            (None, _) if self.is_tainted_effect(&call).await? => Why::Tainted { facts },
            (Some(_) | None, _) => return Ok(None),
        };
        self.ask(&call, &why).await.map(Some)
    }

    /// What is not clear about who an e-mail goes to.
    async fn recipient_problem(&self, call: &CallRecord) -> Result<Option<Problem>, LedgerError> {
        let Some(recipients) = recipients(&call.policy, &call.arguments) else { return Ok(None) };
        let (named, allowed) = match &self.people.recipients {
            RecipientRule::Unchecked => return Ok(None),
            RecipientRule::TellModel => return Ok(recipients.err()),
            RecipientRule::Ask { named, allowed } => (named, allowed),
        };
        let recipients = match recipients {
            Ok(recipients) => recipients,
            Err(problem) => return Ok(Some(problem)),
        };
        let is_known = |one: &MailAddress| named.contains(one) || allowed.iter().any(|entry| one.is_covered_by(entry));
        let unknown: Vec<MailAddress> = recipients.into_iter().filter(|one| !is_known(one)).collect();
        if unknown.is_empty() {
            return Ok(None);
        }
        let known = self.addresses_of_people(call).await?;
        let unknown: Vec<MailAddress> = unknown.into_iter().filter(|one| !known.contains(one)).collect();
        Ok((!unknown.is_empty()).then_some(Problem::NobodyNamed(unknown)))
    }

    /// Addresses that a person wrote or approved in this run. What a tool returned does not count: it may be anybody's words.
    pub(crate) async fn addresses_of_people(&self, call: &CallRecord) -> Result<BTreeSet<MailAddress>, LedgerError> {
        let records = self.store.load(&call.run_id).await;
        let records = records.map_err(LedgerError::at("look who is known to", &call.call_id))?;
        let mut known = BTreeSet::new();
        for question in &records.questions {
            let Some(answer) = &question.answer else { continue };
            known.extend(answer.text.iter().flat_map(|text| MailAddress::all_in(text)));
            let approved = question.call_id.as_ref().filter(|_| allows(question)).and_then(|id| records.call(id));
            let recipients = approved.and_then(|call| recipients(&call.policy, &call.arguments));
            known.extend(recipients.and_then(Result::ok).into_iter().flatten());
        }
        Ok(known)
    }

    /// `ask_user`: the call waits for a person's words, which then are its answer.
    pub(crate) async fn admit_ask_user(&self, call: CallRecord, facts: Facts) -> Result<Admission, LedgerError> {
        let id = &call.call_id;
        let Some(asked) = self.pending_question(&call).await? else {
            let calls = self.store.calls(&call.run_id, None).await;
            let calls = calls.map_err(LedgerError::at("count what was asked before", id))?;
            let before =
                calls.iter().filter(|other| other.name.is_ask_user() && other.position < call.position).count();
            if before >= MAX_ASKED {
                let message =
                    format!("This run has asked {before} questions, which is as many as it may. {DECIDE_YOURSELF}");
                return Ok(Admission::Settled(
                    self.cancel(&call, Resolution::Refused, "asked_enough", &message).await?,
                ));
            }
            return Ok(Admission::Held(self.ask(&call, &Why::AskUser).await?));
        };
        match Self::decision(&call, &asked)? {
            None => Ok(Admission::Held(asked)),
            Some(Choice::Execute | Choice::Continue | Choice::Happened) => Ok(Admission::Ready(Prepared {
                key: self.key(&call, &facts, None),
                facts,
                seen: None,
                ends_doubt: false,
                approved_by: Some(asked.question_id),
                replay_status: None,
                call,
            })),
            Some(Choice::Skip | Choice::Abort) => {
                let declined = self.cancel(&call, Resolution::Skipped, "declined", DECIDE_YOURSELF).await?;
                Ok(Admission::Settled(declined))
            }
        }
    }

    /// Every question about a call, oldest first, closed ones included.
    pub(crate) async fn questions_about(&self, call: &CallRecord) -> Result<Vec<QuestionRecord>, LedgerError> {
        let records = self.store.load(&call.run_id).await;
        let records = records.map_err(LedgerError::at("read the questions about", &call.call_id))?;
        Ok(records.questions.into_iter().filter(|q| q.call_id.as_ref() == Some(&call.call_id)).collect())
    }

    /// Closes a question whose answer is of no use any more.
    pub(crate) async fn close(&self, call: &CallRecord, question: &QuestionRecord) -> Result<(), LedgerError> {
        let closed = self.store.close_question(&self.lease, &question.question_id, self.env.now()).await;
        closed.map_err(LedgerError::at("close the question about", &call.call_id))
    }
}

/// Whether a person let the call of this question run.
fn allows(question: &QuestionRecord) -> bool {
    let kinds = [
        QuestionKind::Approval,
        QuestionKind::AmbiguousRecipient,
        QuestionKind::NearDuplicate,
        QuestionKind::AuthFailure,
    ];
    kinds.contains(&question.kind)
        && question.answer.as_ref().is_some_and(|answer| matches!(answer.choice, Choice::Execute | Choice::Continue))
}

/// What the model is told about a call that a person declined, with what that person added.
pub(crate) fn declined(question: &QuestionRecord) -> String {
    let text = question.answer.as_ref().and_then(|answer| answer.text.as_deref()).map(str::trim);
    match text.filter(|text| !text.is_empty()) {
        Some(text) => format!("A person decided that this call is not to be made, and says: {text}"),
        None => "A person decided that this call is not to be made. Go on without it.".to_owned(),
    }
}
