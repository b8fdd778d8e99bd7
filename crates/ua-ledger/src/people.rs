//! When a person has to say a word before a call is sent, and what that word is good for.
//!
//! Durable Jobs v1 spec §6 (`escalation`, `constraints`). Invariants: a word is bound to what was shown (arguments, definition of
//! the tool, scope, contents of the files it sends) and is good for one call through its definite failures; when one of these is
//! another one, it is asked again; a question that is there survives any crash, and is raised once.
//! Proved by: `ua-ledger`'s tests `people`, `ua-runner`'s `crash_anywhere::approvals`.

use std::collections::{BTreeMap, BTreeSet};

use ua_core::{Audience, CallId, CallStatus, MailAddress, RunSpec, Sha256};
use ua_store::{CallRecord, Choice, LedgerStore as _, QuestionKind, QuestionRecord, QuestionsOf, RunStore as _, Store};

use crate::address::Destinations;
use crate::admission::Facts;
use crate::error::LedgerError;
use crate::exits::Addresses;
use crate::ledger::Ledger;
use crate::question::{Reason, Why};
use crate::reached::{Reached, everybody};
use crate::recipient::Problem;
use crate::rules::Rules;
use crate::taint::TaintRule;
use crate::verdict::{Known, Verdict, verdict};

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

/// Who makes the calls of a ledger. A client at the gateway has no job and no turns, so what is said about its calls has words of its own.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum CallsOf {
    /// A job of ours.
    #[default]
    Job,
    /// A step of a program that uses the library, which has no job.
    Step,
    /// A session of a client at the gateway.
    Session,
}

impl CallsOf {
    /// The same, as whoever is spoken to calls it.
    #[must_use]
    pub fn for_audience(self, audience: Audience) -> Self {
        match self {
            Self::Job | Self::Step => audience.pick(Self::Job, Self::Step),
            Self::Session => Self::Session,
        }
    }

    /// Whom messages about the calls speak to.
    pub(crate) fn audience(self) -> Audience {
        match self {
            Self::Job | Self::Session => Audience::Terminal,
            Self::Step => Audience::Program,
        }
    }

    /// What names recipients and has constraints, as a noun.
    pub(crate) fn noun(self) -> &'static str {
        self.audience().work()
    }
}

/// What a person wrote in answers of a run, or approved in it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Named {
    /// Addresses of mail.
    pub(crate) mail: BTreeSet<MailAddress>,
    /// Addresses of pages, and every other word.
    pub(crate) addresses: Addresses,
    /// What they wrote, as it stands.
    pub(crate) texts: String,
    /// Whom else a call went to that they let go.
    pub(crate) reached: BTreeSet<Reached>,
}

/// What happens to an e-mail, a message or an invitation whose recipient is not clear (`ask_human_on_ambiguous_recipient`).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum RecipientRule {
    /// Recipients are not looked at.
    #[default]
    Unchecked,
    /// No recipient, or one that is no address, is refused and the model is told. Which address it is, is the model's to choose.
    TellModel,
    /// A person is asked; also about an address, a number or a name that neither the job nor a person named.
    Ask {
        /// Addresses that the job's text and inputs name.
        named: BTreeSet<MailAddress>,
        /// The job's text and inputs, in which numbers and names stand.
        text: String,
        /// `constraints.allowed_recipients`: addresses and `@domain`, numbers, `#channel` and `@name`.
        allowed: Vec<String>,
    },
}

impl PeopleRules {
    /// What a job says.
    pub fn of(spec: &RunSpec) -> Self {
        let recipients = if spec.escalation.ask_human_on_ambiguous_recipient {
            let text = spec.opening_prompt();
            let named = MailAddress::all_in(&text).into_iter().collect();
            RecipientRule::Ask { named, text, allowed: spec.constraints.allowed_recipients.clone() }
        } else {
            RecipientRule::TellModel
        };
        let taint = TaintRule::of(spec);
        Self { ask_on_auth_failure: spec.escalation.ask_human_on_auth_failure, recipients, taint }
    }
}

impl Rules<'_> {
    /// What is not clear about who a call reaches; `known` is what a person wrote or approved.
    pub(crate) fn recipient_problem(&self, call: &CallRecord, known: &Named) -> Option<Problem> {
        let reached = everybody(&call.name, &call.policy, &call.arguments)?;
        let (named, text, allowed) = match &self.people.recipients {
            RecipientRule::Unchecked => return None,
            RecipientRule::TellModel => return reached.err(),
            RecipientRule::Ask { named, text, allowed } => (named, text, allowed),
        };
        let reached = match reached {
            Ok(reached) => reached,
            Err(problem) => return Some(problem),
        };
        let is_known = |one: &Reached| {
            let is_named = if let Reached::Mail(address) = one {
                named.contains(address) || known.mail.contains(address)
            } else {
                known.reached.contains(one) || one.is_said_in(text) || one.is_said_in(&known.texts)
            };
            is_named || allowed.iter().any(|entry| one.is_covered_by(entry))
        };
        let unknown = reached.iter().filter(|one| !is_known(one)).map(|one| one.as_str().to_owned());
        let unknown: Vec<String> = unknown.collect();
        (!unknown.is_empty()).then_some(Problem::NobodyNamed(unknown))
    }

    /// Whether it matters for a call which addresses a person wrote or approved.
    pub(crate) fn looks_at_addresses(&self, call: &CallRecord) -> bool {
        let asks = matches!(self.people.recipients, RecipientRule::Ask { .. }) || self.looks_at_taint(call);
        let nobody = Named::default();
        asks && (matches!(self.recipient_problem(call, &nobody), Some(Problem::NobodyNamed(_)))
            || self.tainted_effect(call, true, &nobody).is_some())
    }
}

/// How often a run may ask by `ask_user`.
pub(crate) const MAX_ASKED: usize = 20;

/// What the model is told when nobody answers what it asks.
pub fn decide_yourself(audience: Audience) -> String {
    let work = audience.work();
    format!("Nobody answers this. Decide yourself by what the {work} says, and say in your report what you assumed.")
}

impl Ledger {
    /// The same ledger, asking people as the job says.
    #[must_use]
    pub fn with_people(mut self, people: PeopleRules) -> Self {
        self.people = people;
        self
    }

    /// The same ledger, knowing what the tools are now, by qualified name: an approval is good for the definition that was shown, and nothing is
    /// sent to a tool that is not among them.
    #[must_use]
    pub fn with_definitions(mut self, definitions: BTreeMap<String, Sha256>) -> Self {
        self.definitions = Some(definitions);
        self
    }

    /// The same ledger, where a call goes to the tool that it was planned for, by its definition, and to no other. A run that is resumed needs
    /// this not: it stops until a person accepts the other tools.
    #[must_use]
    pub fn held_to_definitions(mut self, is_held: bool) -> Self {
        self.is_held_to_definitions = is_held;
        self
    }

    /// The same ledger, whose calls are said to be those of `whose`.
    #[must_use]
    pub fn with_calls_of(mut self, whose: CallsOf) -> Self {
        self.calls_of = whose;
        self
    }

    /// Whether a person is asked to mend the credentials that this call was refused with.
    pub fn asks_for_credentials(&self, call: &CallRecord) -> bool {
        self.rules().asks_for_credentials(call)
    }

    /// Raises the question that a `prepared` call of the open turn will need, while the run waits for another one anyway, so that a
    /// person answers all of them at once. Nothing when it needs none, or another call of the lineage has a say first.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn ask_ahead(&self, id: &CallId, facts: &Facts) -> Result<Option<QuestionRecord>, LedgerError> {
        let view = self.view(id, facts).await?;
        let call = &view.call;
        if call.status != CallStatus::Prepared || call.name.is_ask_user() || view.pending().is_some() {
            return Ok(None);
        }
        let rules = self.rules();
        let Verdict::Ask(why) = verdict(&view, facts, Known::Nothing, &rules).verdict else { return Ok(None) };
        let is_about_itself = matches!(&why, Why::Send { first, .. } if !matches!(first, Reason::NearDuplicate(_)));
        if is_about_itself { self.ask(call, &why).await.map(Some) } else { Ok(None) }
    }

    /// The earlier call whose answer a `prepared` call of the open turn would be given, as things stand. Nothing is sent or asked for it.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn answered_by(&self, id: &CallId, facts: &Facts) -> Result<Option<CallRecord>, LedgerError> {
        let view = self.view(id, facts).await?;
        if view.call.status != CallStatus::Prepared || view.call.name.is_ask_user() {
            return Ok(None);
        }
        let rules = self.rules();
        let decided = verdict(&view, facts, Known::Nothing, &rules).verdict;
        Ok(if let Verdict::DeduplicateFrom { twin, .. } = decided { Some(twin.clone()) } else { None })
    }

    /// Addresses that a person wrote or approved in this run. What a tool returned does not count: it may be anybody's words.
    pub(crate) async fn addresses_of_people(&self, call: &CallRecord) -> Result<Named, LedgerError> {
        let failed = || LedgerError::at("look who is known to", &call.call_id);
        let questions = self.store.questions_of(QuestionsOf::Run(call.run_id.clone())).await.map_err(failed())?;
        let mut known = Named::default();
        for question in &questions {
            let Some(answer) = &question.answer else { continue };
            let text = answer.text.as_deref().unwrap_or_default();
            known.mail.extend(MailAddress::all_in(text));
            known.addresses.learn_words(text);
            known.texts.push_str(text);
            known.texts.push('\n');
            let Some(approved) = question.call_id.as_ref().filter(|_| lets_go_as_it_is(question)) else { continue };
            let approved = self.store.call(approved).await.map_err(failed())?;
            for one in everybody(&approved.name, &approved.policy, &approved.arguments)
                .and_then(Result::ok)
                .into_iter()
                .flatten()
            {
                match one {
                    Reached::Mail(address) => known.mail.extend([address]),
                    Reached::Number(_) | Reached::Name(_) => known.reached.extend([one]),
                }
            }
            // What was shown besides was approved as it stands there.
            let shown = Destinations::of(&approved.arguments);
            known.mail.extend(shown.mail);
            shown
                .pages
                .iter()
                .chain(&shown.others)
                .chain(&shown.places)
                .for_each(|text| known.addresses.learn_whole(text));
        }
        Ok(known)
    }

    /// Every question about a call, oldest first, closed ones included.
    pub(crate) async fn questions_about(&self, call: &CallRecord) -> Result<Vec<QuestionRecord>, LedgerError> {
        let questions = self.store.questions_of(QuestionsOf::Run(call.run_id.clone())).await;
        let questions = questions.map_err(LedgerError::at("read the questions about", &call.call_id))?;
        Ok(questions.into_iter().filter(|q| q.call_id.as_ref() == Some(&call.call_id)).collect())
    }

    /// Closes these questions of a call. False when somebody has answered one meanwhile that nobody had: then the call has to be looked at
    /// again.
    pub(crate) async fn close_all(
        &self,
        call: &CallRecord,
        questions: Vec<&QuestionRecord>,
    ) -> Result<bool, LedgerError> {
        for question in questions {
            if question.answer.is_some() {
                self.close(call, question).await?;
                continue;
            }
            if !self.take_back(call, question).await? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Takes a question about a call back that nobody had answered. False when somebody has by now: their word has to be heard.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn take_back(&self, call: &CallRecord, question: &QuestionRecord) -> Result<bool, LedgerError> {
        let withdrawn = self.store.withdraw_question(&self.lease, &question.question_id, self.env.now()).await;
        withdrawn.map_err(LedgerError::at("take the question back about", &call.call_id))
    }

    /// Closes a question whose answer is of no use any more.
    pub(crate) async fn close(&self, call: &CallRecord, question: &QuestionRecord) -> Result<(), LedgerError> {
        let closed = self.store.close_question(&self.lease, &question.question_id, self.env.now()).await;
        closed.map_err(LedgerError::at("close the question about", &call.call_id))
    }
}

/// Whether a person let the call of this question run.
pub(crate) fn allows(question: &QuestionRecord) -> bool {
    let kinds = [
        QuestionKind::Approval,
        QuestionKind::AmbiguousRecipient,
        QuestionKind::NearDuplicate,
        QuestionKind::AuthFailure,
    ];
    kinds.contains(&question.kind)
        && question.answer.as_ref().is_some_and(|answer| matches!(answer.choice, Choice::Execute | Choice::Continue))
}

/// Whether a person let the call run and was asked about what it says, not only whether another one had its effect.
pub(crate) fn lets_go_as_it_is(question: &QuestionRecord) -> bool {
    let is_about_it = |reason: Reason<'_>| reason.is_shown_by(question);
    allows(question)
        && (is_about_it(Reason::Approval)
            || is_about_it(Reason::Tainted(Vec::new()))
            || is_about_it(Reason::MadeAddress(Vec::new()))
            || is_about_it(Reason::AmbiguousRecipient(Problem::Nobody)))
}

/// The words beside the answer to a question about a call, where the result of the call does not say them.
pub(crate) fn words_beside<'q>(call: &CallRecord, question: &'q QuestionRecord) -> Option<&'q str> {
    let answer = question.answer.as_ref()?;
    // What a tool or the model asked for is its answer, what was declined has the words in its place, and behind an abort nobody reads any more.
    let is_said = match (question.kind, answer.choice) {
        (QuestionKind::AskUser | QuestionKind::Elicitation, _)
        | (QuestionKind::Approval | QuestionKind::AmbiguousRecipient, Choice::Skip)
        | (_, Choice::Abort) => true,
        // A call that was sent has what its tool says for its result: its tool was told no.
        (QuestionKind::NearDuplicate, Choice::Skip) => call.attempt == 0,
        (
            QuestionKind::Approval
            | QuestionKind::AmbiguousRecipient
            | QuestionKind::NearDuplicate
            | QuestionKind::UnknownOutcome
            | QuestionKind::AuthFailure
            | QuestionKind::RepeatedFailures
            | QuestionKind::MissingEvidence
            | QuestionKind::OrphanAlive
            | QuestionKind::CrashLoop,
            Choice::Happened | Choice::Execute | Choice::Continue | Choice::Skip,
        ) => false,
    };
    answer.text.as_deref().map(str::trim).filter(|words| !is_said && !words.is_empty())
}

/// What the model is told about a call that a person declined, with what that person added.
pub(crate) fn declined(question: &QuestionRecord) -> String {
    let text = question.answer.as_ref().and_then(|answer| answer.text.as_deref()).map(str::trim);
    match text.filter(|text| !text.is_empty()) {
        Some(text) => format!("A person decided that this call is not to be made, and says: {text}"),
        None => "A person decided that this call is not to be made. Continue without it.".to_owned(),
    }
}
