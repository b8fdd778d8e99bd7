//! The decision about an unknown call, by its policy: run again, ask the other side, ask a person, or go on without it.
//!
//! Durable Jobs v1 spec §8.3; Durable runner, current state §6. The same for a resume and for a live run after a timeout or a
//! dead server, and always after the fence: what the old attempt has not done through its tool server it will never do.
//! Invariants: a person's answer wins; nothing is sent again that may have its effect twice before the horizon has passed;
//! every attempt counts, also one that a probe allowed.

use ua_core::{EvidenceLevel, OnUnknown, RawReply, Timestamp};
use ua_store::{AttemptRecord, CallRecord, Choice, QuestionRecord, Relations, ReplayStatus, UnknownResolution};

use crate::admission::{Admission, Facts, Prepared, UnknownCall};
use crate::enquiry::{Asked, Finding, are_rivals, given_up_at, horizon};
use crate::error::LedgerError;
use crate::events;
use crate::interpret::interpret;
use crate::ledger::{Ledger, seen};
use crate::question::Why;
use crate::standing::Standing;

/// What is to be done about an unknown call.
#[derive(Debug)]
pub enum Recovery {
    /// It is decided.
    Decided(Box<Admission>),
    /// Ask the declared probe, and hand what it says to [`Ledger::conclude`].
    Ask,
    /// The tool server could not be reached again and again; the key still counts, so a later resume tries it under the same one.
    Unreachable {
        /// What stood in the way.
        why: String,
    },
    /// Too early: decide again at this time. A process that does not want to wait so long holds the call.
    NotBefore {
        /// When.
        until: Timestamp,
        /// The question that is there already, if there is one.
        question: Option<Box<QuestionRecord>>,
    },
}

/// Who says that no earlier attempt had the effect.
#[derive(Clone, Copy)]
enum Word<'q> {
    /// Nobody: the attempt is a repeat under its key.
    None,
    /// A person.
    Person(&'q QuestionRecord),
    /// A probe.
    Absent,
}

fn decided(admission: Admission) -> Recovery {
    Recovery::Decided(Box::new(admission))
}

impl Ledger {
    /// Settles an unknown call that a person said happened, or left; nothing when nobody has said so. Such a word counts whatever the
    /// process does that it was sent to.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn settled_by_a_word(&self, unknown: &UnknownCall) -> Result<Option<CallRecord>, LedgerError> {
        let call = &unknown.call;
        let Some(asked) = self.pending_question(call).await? else { return Ok(None) };
        let resolution = match Self::decision(call, &asked)? {
            Some(Choice::Happened) => Self::happened(call, &asked),
            Some(Choice::Skip | Choice::Abort) => UnknownResolution::Skipped,
            Some(Choice::Execute | Choice::Continue) | None => return Ok(None),
        };
        let (id, question) = (&call.call_id, Some(&asked.question_id));
        let settled = self.store.resolve_unknown(&self.lease, id, resolution, question, self.env.now()).await;
        settled.map(Some).map_err(LedgerError::at("resolve", id))
    }

    /// Decides about an unknown call, after the process it was sent to is provably gone.
    pub async fn recover(&self, unknown: &UnknownCall, facts: &Facts) -> Result<Recovery, LedgerError> {
        let call = &unknown.call;
        let asked = self.pending_question(call).await?;
        if let Some(asked) = &asked
            && let Some(choice) = Self::decision(call, asked)?
        {
            return self.answered(call, facts, asked, choice).await;
        }
        let attempts = self.attempts(&call.call_id).await?;
        let exhausted = self.is_exhausted(&attempts);
        let because = match call.policy.on_unknown {
            OnUnknown::Probe => match self.rival(call).await? {
                None => return Ok(Recovery::Ask),
                Some(why) => why,
            },
            OnUnknown::Continue => return Ok(decided(self.go_on_without(call).await?)),
            OnUnknown::Redo | OnUnknown::RedoKeyed | OnUnknown::Hold if asked.is_some() => String::new(),
            OnUnknown::Redo if !exhausted => {
                let relations = self.relations(call, facts).await?;
                match self.overtaken(call, facts, &relations) {
                    None => return Ok(self.again_if_reached(call, facts, &attempts, &relations)),
                    Some(why) => why,
                }
            }
            OnUnknown::RedoKeyed if !exhausted => {
                let relations = self.relations(call, facts).await?;
                match self.keyed_redo_obstacle(call, facts, &attempts, &relations) {
                    None => return Ok(self.again_if_reached(call, facts, &attempts, &relations)),
                    Some(why) => why,
                }
            }
            OnUnknown::Redo | OnUnknown::RedoKeyed => "it was tried as often as the job allows".to_owned(),
            OnUnknown::Hold => "the tool neither takes a key nor can be asked afterwards".to_owned(),
        };
        self.hold(unknown, &because).await.map(decided)
    }

    /// Draws the conclusion from what a probe said: found settles the call, absent lets it run again if it was asked late enough,
    /// and anything else is a question for a person. The next resume asks the probe again.
    pub async fn conclude(&self, unknown: &UnknownCall, facts: &Facts, asked: Asked) -> Result<Recovery, LedgerError> {
        let call = &unknown.call;
        let id = &call.call_id;
        let pending = self.pending_question(call).await?;
        if let Some(question) = &pending
            && let Some(choice) = Self::decision(call, question)?
        {
            return self.answered(call, facts, question, choice).await; // a person was faster
        }
        let proves_absence = asked.proves_absence();
        let because = match asked.finding {
            Finding::Found { id: external_id, item } => {
                let raw = RawReply::Found { tool: asked.tool, id: external_id, item };
                let settlement = interpret(&raw, &call.policy);
                let resolution = UnknownResolution::Happened { raw, settlement, evidence: EvidenceLevel::Reconciled };
                self.note(id, ReplayStatus::Reconciled).await?;
                let question = pending.as_ref().map(|question| &question.question_id);
                let settled = self.store.resolve_unknown(&self.lease, id, resolution, question, self.env.now()).await;
                let settled = settled.map_err(LedgerError::at("reconcile", id))?;
                return Ok(decided(Admission::Settled(settled)));
            }
            Finding::Absent if !proves_absence => match asked.conclusive_from {
                Some(until) => {
                    return Ok(Recovery::NotBefore { until, question: pending.map(Box::new) });
                }
                None => "the attempt is not known to have ended".to_owned(),
            },
            Finding::Absent if self.is_exhausted(&self.attempts(id).await?) => {
                format!("`{}` does not show it, but it was tried as often as the job allows", asked.tool)
            }
            Finding::Absent if call.file_digests != facts.file_digests => {
                format!("`{}` does not show it, but a file it sends has changed since", asked.tool)
            }
            Finding::Absent => {
                let relations = self.relations(call, facts).await?;
                if let Some(why) = self.overtaken(call, facts, &relations) {
                    return self.hold(unknown, &why).await.map(decided);
                }
                if let Some(question) = &pending {
                    self.store
                        .close_question(&self.lease, &question.question_id, self.env.now())
                        .await
                        .map_err(LedgerError::at("close the question about", id))?;
                }
                return Ok(decided(self.again(call, facts, &relations, Word::Absent)));
            }
            Finding::Unclear { why } => why,
        };
        self.hold(unknown, &because).await.map(decided)
    }

    /// Asks a person what came of the call; a question that is there already stays.
    pub async fn hold(&self, unknown: &UnknownCall, because: &str) -> Result<Admission, LedgerError> {
        let call = &unknown.call;
        let question = if let Some(pending) = self.pending_question(call).await? {
            pending
        } else {
            let attempts = self.attempts(&call.call_id).await?;
            let attempt = call.doubt.and_then(|doubt| attempts.iter().find(|a| a.attempt == doubt)).or(attempts.last());
            // What a later attempt came to is part of what is known.
            let refused = call.error_detail.as_deref().filter(|_| call.doubt.is_some_and(|doubt| doubt < call.attempt));
            self.ask(call, &Why::Unknown { attempt, because: refused.unwrap_or(because) }).await?
        };
        if call.replay_status != Some(ReplayStatus::Held) {
            self.note(&call.call_id, ReplayStatus::Held).await?;
        }
        Ok(Admission::Held(question))
    }

    /// Whether a call was sent as often as the job allows. An attempt that never left us does not count.
    fn is_exhausted(&self, attempts: &[AttemptRecord]) -> bool {
        let sent = attempts.iter().filter(|attempt| attempt.outcome.as_deref() != Some("not_sent")).count();
        sent > self.config.max_retries as usize
    }

    /// The call, ready for another attempt under its old key, unless this process has found often enough that its server cannot be reached.
    fn again_if_reached(
        &self,
        call: &CallRecord,
        facts: &Facts,
        attempts: &[AttemptRecord],
        relations: &Relations,
    ) -> Recovery {
        let never_left = |attempt: &&AttemptRecord| {
            attempt.outcome.as_deref() == Some("not_sent") && attempt.epoch == self.lease.epoch
        };
        let in_vain = attempts.iter().rev().take_while(never_left).count();
        if in_vain > self.config.max_retries as usize {
            let why = attempts.last().and_then(|attempt| attempt.detail.clone()).unwrap_or_default();
            return Recovery::Unreachable { why };
        }
        decided(self.again(call, facts, relations, Word::None))
    }

    /// The call, ready for another attempt under its old key.
    fn again(&self, call: &CallRecord, facts: &Facts, relations: &Relations, word: Word<'_>) -> Admission {
        Admission::Ready(Prepared {
            key: self.key(call, facts, None),
            facts: facts.clone(),
            seen: seen(call, relations),
            ends_doubt: !matches!(word, Word::None),
            approved_by: match word {
                Word::Person(question) => Some(question.question_id.clone()),
                Word::None | Word::Absent => None,
            },
            replay_status: Some(ReplayStatus::Redone),
            call: call.clone(),
        })
    }

    /// Why a find would not be this call's, if another call carries the same values in the arguments that should be unique.
    async fn rival(&self, call: &CallRecord) -> Result<Option<String>, LedgerError> {
        let Some(probe) = call.policy.probe.as_ref().filter(|probe| !probe.unique_arguments.is_empty()) else {
            return Ok(None);
        };
        let calls = self.store.calls(&call.run_id, None).await;
        let calls = calls.map_err(LedgerError::at("look for calls that resemble", &call.call_id))?;
        let rival = calls.iter().find(|other| are_rivals(call, other, &probe.unique_arguments));
        Ok(rival.map(|other| {
            format!(
                "call {} has the same {}, so a find proves nothing",
                other.call_id,
                probe.unique_arguments.join(", ")
            )
        }))
    }

    /// Why a redo under the same key would not be the same request any more, if it would not.
    fn keyed_redo_obstacle(
        &self,
        call: &CallRecord,
        facts: &Facts,
        attempts: &[AttemptRecord],
        relations: &Relations,
    ) -> Option<String> {
        if call.file_digests != facts.file_digests {
            return Some("a file it sends has changed since".to_owned());
        }
        if let Some(why) = self.overtaken(call, facts, relations) {
            return Some(why);
        }
        let (ttl, now) = (call.policy.key_ttl?, self.env.now());
        let first = attempts.first()?.started_at;
        let expired = now >= first.plus(ttl) || now < first;
        expired.then(|| "the other side may have forgotten its key".to_owned())
    }

    /// Why the call is not sent again by itself, if a run beside this one may have had its effect meanwhile.
    fn overtaken(&self, call: &CallRecord, facts: &Facts, relations: &Relations) -> Option<String> {
        let other = Standing { call, facts, relations, config: &self.config }.overtaken_by()?;
        Some(format!("call {} of run {} may have had the effect since", other.call_id, other.run_id))
    }

    /// Acts on a person's word. *It did not happen* is executed only when the other side cannot begin it any more.
    async fn answered(
        &self,
        call: &CallRecord,
        facts: &Facts,
        asked: &QuestionRecord,
        choice: Choice,
    ) -> Result<Recovery, LedgerError> {
        let id = &call.call_id;
        let resolution = match choice {
            Choice::Execute | Choice::Continue => {
                let attempts = self.store.attempts(id).await.map_err(LedgerError::at("read the attempts of", id))?;
                let given_up = given_up_at(call, &attempts);
                if let (Some(given_up), Some(horizon)) = (given_up, horizon(&call.policy))
                    && self.env.now() < given_up.plus(horizon)
                {
                    let until = given_up.plus(horizon);
                    return Ok(Recovery::NotBefore { until, question: Some(Box::new(asked.clone())) });
                }
                let relations = self.relations(call, facts).await?;
                return Ok(decided(self.again(call, facts, &relations, Word::Person(asked))));
            }
            Choice::Happened => Self::happened(call, asked),
            Choice::Skip | Choice::Abort => UnknownResolution::Skipped,
        };
        let question = Some(&asked.question_id);
        let settled = self.store.resolve_unknown(&self.lease, id, resolution, question, self.env.now()).await;
        Ok(decided(Admission::Settled(settled.map_err(LedgerError::at("resolve", id))?)))
    }

    /// A person's word that a call happened, as evidence.
    pub(crate) fn happened(call: &CallRecord, asked: &QuestionRecord) -> UnknownResolution {
        let answer = asked.answer.as_ref();
        let (by, proof) = answer.map_or_else(|| ("a person".to_owned(), None), |a| (a.by.clone(), a.proof.clone()));
        let raw = RawReply::Statement { by, proof };
        let settlement = interpret(&raw, &call.policy);
        UnknownResolution::Happened { raw, settlement, evidence: EvidenceLevel::Reconciled }
    }

    async fn note(&self, id: &ua_core::CallId, status: ReplayStatus) -> Result<(), LedgerError> {
        let noted = self.store.note_replay(&self.lease, id, status, self.env.now()).await;
        noted.map_err(LedgerError::at("note the replay of", id))?;
        events::replayed(id.as_str(), status);
        Ok(())
    }
}
