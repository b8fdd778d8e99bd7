//! What must hold at the end: of the effects, of the records, of what was told, said and charged, and of all of them together.
//!
//! The world's own account decides (`Servers::sends`, `Servers::effects`); nothing here asks `may_have_happened`.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde_json::Value;
use ua_core::{Block, CallId, CallStatus, RunId, RunStatus, key_id};
use ua_runner::Workspace;
use ua_store::rules::made_by;
use ua_store::{
    AttemptRecord, CallRecord, Choice, LedgerStore, QuestionKind, QuestionRecord, QuestionStatus, RunRecords, RunStore,
    invariants, is_left_open, is_task,
};

use super::job::{Kind, Tool, tag_of};
use super::life::BoxError;
use super::limit::was_refused;
use super::model::{CUT_OUTPUT, MAX_ASKS, says_nothing_happened};
use super::person::Word;
use super::servers::{Effect, Fate, Send};
use super::stage::{Ending, Stage};
use super::task::block_on;
use super::wrong::{Violation, Wrong};
use crate::outcomes::PersonOutcome;

/// Adds every violation to those that the stage saw itself.
pub(super) fn judge(stage: &mut Stage) -> Result<(), BoxError> {
    let runtime = stage.store.enter();
    let port = stage.store.port.clone();
    let (mut family, mut found) = (Vec::new(), Vec::new());
    for run in block_on(port.runs(u32::MAX))? {
        family.push(block_on(port.load(&run.run_id))?);
    }
    family.sort_by(|one, other| one.run.run_id.cmp(&other.run.run_id));
    let fenced = stage.servers.stale_sends().into_iter().map(|words| Violation::new(Wrong::NotFenced, words));
    found.extend(fenced);
    let refused = stage.model.refused().into_iter();
    let refused = refused.map(|words| format!("no provider would take this history: {words}"));
    found.extend(refused.map(|words| Violation::new(Wrong::Records, words)));
    let asked_again = stage.model.asked_again().into_iter();
    found.extend(asked_again.map(|words| Violation::new(Wrong::RefusedAgain, words)));
    for records in &family {
        let mut events = Vec::new();
        for call in &records.calls {
            events.extend(block_on(port.events(&call.call_id))?);
        }
        found.extend(invariants::check(records, &events).iter().map(of_records));
        found.extend(invariants::check_agreement(records, &events).iter().map(of_records));
    }
    found.extend(invariants::check_family(&family).iter().map(of_records));
    found.extend(invariants::check_agreement_of_family(&family).iter().map(of_records));
    let of_rows = stage.store.findings()?.into_iter();
    found.extend(of_rows.map(|words| Violation::new(Wrong::Records, format!("`ua db check`: {words}"))));
    drop(runtime);
    let questions = family.iter().flat_map(|records| &records.questions);
    for question in questions.filter(|question| question.call_id.is_some()) {
        stage.counts.questions += 1;
        stage.counts.in_doubt += u64::from(question.kind == QuestionKind::UnknownOutcome);
        stage.counts.beside += u64::from(question.kind == QuestionKind::NearDuplicate);
    }
    let calls = family.iter().flat_map(|records| &records.calls);
    stage.counts.beyond_limits = calls.filter(|call| was_refused(call)).count() as u64;
    stage.counts.sub_agents = family.iter().filter(|records| is_task(&records.run)).count() as u64;

    let judge = Judge {
        effects: stage.servers.effects(),
        sends: stage.servers.sends(),
        trees: trees(stage, &family),
        stage,
        family: &family,
    };
    judge.twice(&mut found);
    judge.limited(&mut found);
    judge.told(&mut found);
    judge.asked(&mut found);
    judge.words(&mut found);
    if stage.violations.is_empty() {
        judge.charged(&mut found);
        judge.end(&mut found);
    }
    stage.violations.extend(found);
    Ok(())
}

/// A statement about the stored records that does not hold.
fn of_records(broken: &invariants::Violation) -> Violation {
    Violation::new(Wrong::Records, broken.to_string())
}

/// Whether a person skipped another call of the turn of the call that this word is about.
fn is_beside_a_skip(stage: &Stage, word: &Word) -> bool {
    let position = |word: &Word| word.call.as_ref().map(|call| (call.run_id.clone(), call.position.turn));
    let is_beside =
        |other: &Word| other.choice == Choice::Skip && position(other).is_some() && position(other) == position(word);
    stage.words.iter().any(is_beside)
}

/// The tree of each run, by its place among the tops. What a restored copy does not know is of the tree that drove it.
fn trees(stage: &Stage, family: &[RunRecords]) -> BTreeMap<RunId, usize> {
    let mut trees = BTreeMap::new();
    for send in stage.servers.sends() {
        if let Some(actor) = stage.actors.get(send.life) {
            trees.insert(send.run.clone(), actor.top);
        }
    }
    for records in family {
        if let Some(top) = stage.top_of(&records.run.run_id) {
            trees.insert(records.run.run_id.clone(), top);
        }
    }
    trees
}

pub(super) struct Judge<'a> {
    pub(super) stage: &'a Stage,
    pub(super) family: &'a [RunRecords],
    pub(super) effects: Vec<Effect>,
    pub(super) sends: Vec<Send>,
    trees: BTreeMap<RunId, usize>,
}

impl Judge<'_> {
    fn sends_of(&self, call: &CallId) -> impl Iterator<Item = &Send> {
        self.sends.iter().filter(move |send| send.call == *call)
    }

    fn happened(&self, call: &CallId) -> bool {
        self.effects.iter().any(|effect| effect.call == *call)
    }

    /// What persons ever said, whether or not a restored copy knows of it.
    fn ever_said(&self) -> impl Iterator<Item = &Word> {
        self.stage.words.iter().chain(&self.stage.forgotten_words)
    }

    /// A person let this call go on although it, or another one, may have had the effect.
    fn has_a_persons_word(&self, call: &CallId) -> bool {
        self.ever_said().any(|word| {
            let lets = matches!(word.choice, Choice::Execute | Choice::Continue);
            let is_about_a_duplicate = match word.question.kind {
                QuestionKind::NearDuplicate => true,
                QuestionKind::UnknownOutcome => word.mind == PersonOutcome::Executes,
                QuestionKind::Approval
                | QuestionKind::RepeatedFailures
                | QuestionKind::MissingEvidence
                | QuestionKind::OrphanAlive
                | QuestionKind::CrashLoop
                | QuestionKind::AskUser
                | QuestionKind::AuthFailure
                | QuestionKind::AmbiguousRecipient
                | QuestionKind::Elicitation => false,
            };
            lets && is_about_a_duplicate && word.call.as_ref().is_some_and(|about| about.call_id == *call)
        })
    }

    /// Who did not look let this very call be sent again.
    fn was_sent_again_carelessly(&self, call: &CallId) -> bool {
        self.ever_said().any(|word| {
            word.mind == PersonOutcome::Executes && word.call.as_ref().is_some_and(|about| about.call_id == *call)
        })
    }

    /// Who did not look said that this call had no effect.
    pub(super) fn was_denied_carelessly(&self, call: &CallId) -> bool {
        self.stage.words.iter().any(|word| {
            let is_about = word.call.as_ref().is_some_and(|about| about.call_id == *call);
            is_about && word.mind == PersonOutcome::Executes && word.question.kind == QuestionKind::UnknownOutcome
        })
    }

    /// A person who saw an effect said of this call that it happened, and somebody undid that effect since, whichever call had had it.
    fn was_undone_behind_a_word(&self, call: &CallRecord) -> bool {
        let is_said = |word: &Word| {
            word.choice == Choice::Happened && word.call.as_ref().is_some_and(|about| about.call_id == call.call_id)
        };
        self.stage.undone.contains(tag_of(&call.tool_use_id)) && self.stage.words.iter().any(is_said)
    }

    /// A person accepted that the database has nothing of this call. Whoever asks for the same is asked about all the same; who asks for it in other
    /// words may be the second one that does.
    fn was_accepted(&self, send: &Send) -> bool {
        self.stage.gone.contains(&send.call) && self.stage.accepted.contains(&send.run)
    }

    /// No call, and no intent, has its effect twice.
    fn twice(&self, found: &mut Vec<Violation>) {
        let mut by_call: BTreeMap<&CallId, Vec<&Effect>> = BTreeMap::new();
        for effect in self.effects.iter().filter(|effect| effect.tool.has_effect()) {
            by_call.entry(&effect.call).or_default().push(effect);
        }
        for (call, effects) in by_call.iter().filter(|(_, effects)| effects.len() > 1) {
            let effect = effects[0];
            // Its policy has it sent again whatever became of it.
            if effect.tool.kind == Kind::Redone || self.was_sent_again_carelessly(call) {
                continue;
            }
            // Its key was good when it was looked at last, and the machine stood still between that and the send, or it was long on its way.
            let came_late = |effect: &Effect| {
                let send = &self.sends[effect.send];
                send.was_held || effect.at.since(send.at) > Duration::from_mins(1)
            };
            if effect.tool.key_ttl().is_some() && effects.iter().skip(1).all(|effect| came_late(effect)) {
                continue;
            }
            let words = format!("{} {} happened {} times for call {call}", effect.tool.name, effect.tag, effects.len());
            found.push(Violation::new(Wrong::Twice, words));
        }
        let mut told = BTreeSet::new();
        // What a policy has sent again whatever became of it may be there again, also where the model asks for it anew.
        let counts = |effect: &Effect| effect.tool.has_effect() && effect.tool.kind != Kind::Redone;
        for (at, second) in self.effects.iter().enumerate().filter(|(_, effect)| counts(effect)) {
            for first in &self.effects[..at] {
                let is_same = first.tool == second.tool && first.tag == second.tag && first.call != second.call;
                if !is_same || !self.promises_once(first, second) {
                    continue;
                }
                if told.insert((&first.call, &second.call)) {
                    let (one, other) = (&self.sends[first.send].run, &self.sends[second.send].run);
                    let words = format!(
                        "{} {} happened by call {} of {one} and by call {} of {other}",
                        first.tool.name, first.tag, first.call, second.call
                    );
                    found.push(Violation::new(Wrong::Twice, words));
                }
            }
        }
    }

    /// Whether several agents of a tree are to do the same.
    fn is_asked_for_by_several(&self, tag: &str) -> bool {
        self.stage.intents.all().filter(|intent| intent.tag == tag).count() > 1
    }

    /// Whether a person had said that an effect happened before a call for the same was sent, which was asked for before they said it.
    fn was_said_to_have_happened(&self, effect: &Effect, send: &Send) -> bool {
        let planned = self.family.iter().find_map(|records| records.call(&send.call)).map(|call| call.created_at);
        self.stage.words.iter().any(|word| {
            let is_about_it = word.call.as_ref().is_some_and(|call| call.call_id == effect.call);
            let said_at = word.question.answer.as_ref().map(|answer| answer.answered_at);
            word.choice == Choice::Happened && is_about_it && word.step < send.step && planned < said_at
        })
    }

    /// Whether the second effect should not have happened after the first one, which another call had.
    fn promises_once(&self, first: &Effect, second: &Effect) -> bool {
        let (one, other) = (&self.sends[first.send], &self.sends[second.send]);
        let was_accepted = self.was_accepted(one) && one.words != other.words;
        // What a person answered to a tool is no word about a call that did the same since.
        let is_behind = other.was_asked && first.step < other.step;
        let has_a_word = self.has_a_persons_word(&second.call) || (self.has_a_persons_word(&first.call) && !is_behind);
        if was_accepted || has_a_word {
            return false;
        }
        let tree = |send: &Send| self.trees.get(&send.run).copied().unwrap_or(0);
        if tree(one) == tree(other) {
            let is_asked_for_twice = one.run != other.run && self.is_asked_for_by_several(&first.tag);
            return !self.stage.harm.is_careless
                && (!is_asked_for_twice || self.was_said_to_have_happened(first, other));
        }
        let is_declared =
            first.tool.is_by_content() && (one.words == other.words || first.tool.names_effect_by().is_some());
        if is_declared {
            return true;
        }
        // In other words it is another effect, as far as anybody said; and two runs that are driven at the same time may both decide
        // to make a call that nothing declares.
        let span = |send: &Send| (self.stage.actors.get(send.life).map_or(0, |actor| actor.began_at), send.step);
        let (one_began, one_sent) = span(one);
        let (other_began, other_sent) = span(other);
        let at_the_same_time = one_began <= other_sent && other_began <= one_sent;
        one.words == other.words && !at_the_same_time
    }

    /// What the model, people, records and files are told is what happened.
    fn told(&self, found: &mut Vec<Violation>) {
        let mut tell = |words: String| found.push(Violation::new(Wrong::ToldWrongly, words));
        for records in self.family {
            let calls = records.calls.iter().filter_map(|call| {
                let tool = Tool::named(&call.name.tool).filter(|tool| tool.has_effect())?;
                (!self.stage.forgotten.contains(&call.call_id)).then_some((call, tool))
            });
            for (call, tool) in calls {
                let (id, name, happened) = (&call.call_id, tool.name, self.happened(&call.call_id));
                let tag = tag_of(&call.tool_use_id);
                let is_there = self.effects.iter().any(|effect| effect.tag == tag && effect.tool == tool);
                match call.status {
                    // A person who sees it there says so, whoever did it; one who does not care says anything.
                    CallStatus::Succeeded
                        if !is_there
                            && call.answered_by().is_none()
                            && !self.stage.harm.is_careless
                            && !self.was_undone_behind_a_word(call) =>
                    {
                        tell(format!("{name} did not happen, and call {id} says that it succeeded"));
                    }
                    CallStatus::FailedDefinite if tool.kind == Kind::Redone => {}
                    CallStatus::FailedDefinite if self.was_denied_carelessly(id) => {}
                    CallStatus::Prepared | CallStatus::Cancelled | CallStatus::FailedDefinite if happened => {
                        tell(format!("{name} happened, and call {id} is {}", call.status));
                    }
                    CallStatus::Prepared
                    | CallStatus::Running
                    | CallStatus::Succeeded
                    | CallStatus::FailedDefinite
                    | CallStatus::FailedReported
                    | CallStatus::Unknown
                    | CallStatus::Cancelled => {}
                }
                let is_denied = tool.kind == Kind::Redone || self.was_denied_carelessly(id);
                if happened && !is_denied && Self::model_was_told_nothing_happened(records, call) {
                    tell(format!("{name} happened, and the model is told of call {id} that nothing did"));
                }
                let says = |question: &&QuestionRecord| {
                    let was_before = |effect: &Effect| effect.call == *id && effect.at <= question.created_at;
                    question.call_id.as_ref() == Some(id)
                        && question.text.contains("Nothing happened")
                        && self.effects.iter().any(was_before)
                };
                if happened && records.questions.iter().any(|question| says(&question)) {
                    tell(format!("{name} happened, and a person is told of call {id} that nothing did"));
                }
            }
            if !records.run.status.is_terminal() {
                continue; // it is written when a process ends its work
            }
            for (id, verdict) in completion_file(records) {
                let denies = matches!(verdict.as_str(), "did_not_happen" | "not_sent");
                // Under `redo` the newest attempt's word counts.
                let may_repeat = |send: &Send| !send.tool.has_effect() || send.tool.kind == Kind::Redone;
                let is_said = denies && self.happened(&id) && !self.sends_of(&id).any(may_repeat);
                let is_excused = self.stage.forgotten.contains(&id) || self.was_denied_carelessly(&id);
                if is_said && !is_excused {
                    tell(format!("call {id} happened, and the completion file says {verdict}"));
                }
            }
        }
    }

    fn model_was_told_nothing_happened(records: &RunRecords, call: &CallRecord) -> bool {
        let blocks = records.messages.iter().flat_map(|message| &message.message.blocks);
        blocks.into_iter().any(|block| match block {
            Block::ToolResult { tool_use_id, content, .. } => {
                *tool_use_id == call.tool_use_id && says_nothing_happened(&content.to_string())
            }
            Block::Text { .. } | Block::Opaque { .. } | Block::ToolUse(_) => false,
        })
    }

    /// Nobody is asked what was known, nor for ever.
    fn asked(&self, found: &mut Vec<Violation>) {
        for records in self.family {
            for question in &records.questions {
                self.asked_about_an_answer(question, found);
                let asks = records.run.spec.escalation.ask_human_on_auth_failure;
                if question.kind == QuestionKind::AuthFailure && !asks {
                    let words = format!("the job of {} has nobody asked about refused credentials", records.run.run_id);
                    found.push(Violation::new(Wrong::AskedNeedlessly, words));
                }
                self.named(question, records, found);
                let top = self.trees.get(&records.run.run_id).map(|top| &self.stage.tops[*top].run);
                let above = self.family.iter().find(|other| Some(&other.run.run_id) == top);
                let is_over = above.is_some_and(|above| above.run.status.is_terminal());
                // What a run went on without may be answered whenever somebody knows, also once that run is deleted: its forks go by it. Of a run that
                // was deleted before its end no other answer is taken.
                let is_deleted =
                    self.trees.get(&records.run.run_id).is_some_and(|top| self.stage.tops[*top].is_deleted);
                let call = question.call_id.as_ref().and_then(|call| records.call(call));
                let may_wait =
                    question.kind == QuestionKind::UnknownOutcome && (!is_deleted || call.is_some_and(is_left_open));
                if question.status == QuestionStatus::Open && is_over && !may_wait {
                    let words = format!(
                        "{:?} of {} is open, and nothing acts on it any more",
                        question.kind, records.run.run_id
                    );
                    found.push(Violation::new(Wrong::AskedNeedlessly, words));
                }
            }
        }
    }

    /// What a question names of another call is that one's, and what nobody was given is no name of what it asks about.
    fn named(&self, question: &QuestionRecord, records: &RunRecords, found: &mut Vec<Violation>) {
        let keys_of = |call: &str| -> Vec<String> {
            self.sends.iter().filter(|send| send.call.as_str() == call).map(|send| send.key.clone()).collect()
        };
        let call = question.call_id.as_ref().and_then(|id| records.call(id));
        let wrong = named_wrongly(question, call, &records.attempts, keys_of);
        found.extend(wrong.map(|words| Violation::new(Wrong::ToldWrongly, words)));
    }

    /// The outcome of a call is asked about although each of its sends was answered to a process that lived on.
    fn asked_about_an_answer(&self, question: &QuestionRecord, found: &mut Vec<Violation>) {
        let Some(call) = question.call_id.as_ref().filter(|_| question.kind == QuestionKind::UnknownOutcome) else {
            return;
        };
        if self.stage.forgotten.contains(call) || self.stage.was_restored {
            return;
        }
        let mut sends = self.sends_of(call).peekable();
        let was_there = sends.peek().is_some();
        let all_answered = sends.all(|send| {
            let Some(actor) = self.stage.actors.get(send.life) else { return false };
            matches!(send.fate, Fate::Answered | Fate::Reported | Fate::ReportedAsNothing)
                && actor.ending == Some(Ending::Failed)
                && actor.could_not_settle
        });
        if was_there && all_answered {
            let words = format!("the answer of call {call} was there, and a person is asked whether it happened");
            found.push(Violation::new(Wrong::AskedNeedlessly, words));
        }
    }

    /// What a person said had its consequence.
    fn words(&self, found: &mut Vec<Violation>) {
        for word in &self.stage.words {
            let Some(records) = self.family.iter().find(|records| records.run.run_id == word.question.run_id) else {
                continue;
            };
            let Some(why) = self.went_unheard(word, records) else { continue };
            let words = format!("a person answered {:?} to {:?}, and {why}", word.choice, word.question.kind);
            found.push(Violation::new(Wrong::WordWithoutConsequence, words));
        }
    }

    fn went_unheard(&self, word: &Word, records: &RunRecords) -> Option<String> {
        let status = records.run.status;
        let call = word.call.as_ref().and_then(|call| records.call(&call.call_id));
        let was_asked_again = |call: &CallRecord| {
            let about = |other: &&QuestionRecord| other.call_id.as_ref() == Some(&call.call_id);
            records.questions.iter().filter(about).count() > 1
        };
        match word.choice {
            Choice::Abort => (status == RunStatus::Succeeded).then(|| "the run succeeded".to_owned()),
            Choice::Execute | Choice::Continue => {
                // What its job does not allow once more is not sent on anybody's word.
                let is_unsent = |call: &&CallRecord| call.status == CallStatus::Cancelled && call.attempt == 0;
                let call = call.filter(is_unsent).filter(|call| !was_refused(call))?;
                let skipped = is_beside_a_skip(self.stage, word);
                let went_on = status == RunStatus::Succeeded && skipped && !was_asked_again(call);
                went_on.then(|| format!("call {} was never sent", call.call_id))
            }
            Choice::Happened => {
                let is_undone = |call: &CallRecord| self.stage.undone.contains(tag_of(&call.tool_use_id));
                let stands = |call: &&CallRecord| call.status != CallStatus::Succeeded && !was_asked_again(call);
                let call = call.filter(stands).filter(|call| !is_undone(call))?;
                (status == RunStatus::Succeeded).then(|| format!("call {} is {}", call.call_id, call.status))
            }
            Choice::Skip => {
                let call = call?;
                // A process that was replaced in its sleep tries in vain: its server was ended.
                let was_sent =
                    self.sends_of(&call.call_id).any(|send| send.step > word.step + 1 && send.fate != Fate::NeverLeft);
                if was_sent && word.question.kind != QuestionKind::AuthFailure {
                    return Some(format!("call {} was sent after it", call.call_id));
                }
                let remark = word.remark.as_ref()?;
                let is_told =
                    records.messages.iter().flat_map(|message| &message.message.blocks).any(|block| match block {
                        Block::ToolResult { content, .. } => content.to_string().contains(remark),
                        Block::Text { text } => text.contains(remark),
                        Block::Opaque { .. } | Block::ToolUse(_) => false,
                    });
                // The guide promises it for calls that were not sent.
                let is_promised = call.status == CallStatus::Cancelled && call.attempt == 0;
                (status == RunStatus::Succeeded && is_promised && !is_told)
                    .then(|| format!("the model never read the remark about call {}", call.call_id))
            }
        }
    }

    /// What the provider billed is booked, but for what nobody could know.
    fn charged(&self, found: &mut Vec<Violation>) {
        if self.stage.was_restored || self.stage.is_forgotten_whole {
            return; // what the database forgot it cannot book, nor keeps it the books of a family that is deleted
        }
        let billed = self.stage.model.billed();
        let requests = self.family.iter().flat_map(|records| &records.requests);
        let booked: u64 = requests.map(|request| request.usage.total()).sum();
        let unbooked = (billed.whole + billed.cut).saturating_sub(booked);
        // A process that was replaced while it waited for a reply may not write what it heard of it, and one that dies cannot.
        let unwritten = self.stage.counts.replaced + self.stage.died_noting;
        let unknowable = billed.cut_output.min(unwritten.saturating_mul(CUT_OUTPUT));
        if unbooked > TOLERATED + unknowable {
            let words = format!("{} tokens were billed, {booked} are booked", billed.whole + billed.cut);
            found.push(Violation::new(Wrong::ChargedWrongly, words));
        }
    }

    /// The runs ended as they may, and nothing that was asked for is missing.
    fn end(&self, found: &mut Vec<Violation>) {
        for (number, top) in self.stage.tops.iter().enumerate() {
            let Some(records) = self.family.iter().find(|records| records.run.run_id == top.run) else { continue };
            let status = records.run.status;
            let was_aborted =
                |word: &Word| word.choice == Choice::Abort && self.trees.get(&word.question.run_id) == Some(&number);
            match status {
                RunStatus::Succeeded => self.missing(found),
                RunStatus::Cancelled if top.was_cancelled || top.is_deleted => {}
                RunStatus::Failed if self.stage.words.iter().any(was_aborted) => {}
                RunStatus::Queued
                | RunStatus::Running
                | RunStatus::WaitingForHuman
                | RunStatus::Stopped
                | RunStatus::Failed
                | RunStatus::Cancelled => {
                    let detail = records.run.status_detail.as_deref().unwrap_or("no reason is given");
                    let words = format!("{} ended as {}: {detail}", top.run, status.as_str());
                    found.push(Violation::new(Wrong::Stuck, words));
                }
            }
        }
    }

    /// What was asked for, is not there, and nobody gave up.
    fn missing(&self, found: &mut Vec<Violation>) {
        if self.stage.harm.is_careless {
            return; // what is skipped is missing
        }
        let wanted = self.stage.intents.all();
        let wanted = wanted.filter(|intent| intent.tool.has_effect() && intent.tool.kind != Kind::GoneOnWithout);
        for intent in wanted {
            let of_tag = |tag: &str| -> Vec<&CallRecord> {
                let calls = self.family.iter().flat_map(|records| &records.calls);
                calls.filter(|call| tag_of(&call.tool_use_id) == tag).collect()
            };
            let calls = of_tag(&intent.tag);
            let is_there = self.effects.iter().any(|effect| effect.tag == intent.tag);
            let gave_up = |word: &Word| {
                let is_no = matches!(word.choice, Choice::Skip | Choice::Abort);
                is_no && word.call.as_ref().is_some_and(|call| tag_of(&call.tool_use_id) == intent.tag)
            };
            // A tool that says it failed is believed, and what was asked for often enough is given up. What a person undid is there again only if
            // somebody was to do it behind that: whose record says that it did is held to it in `told`.
            let was_given_up = self.stage.undone.contains(&intent.tag)
                || calls.iter().any(|call| call.status == CallStatus::FailedReported)
                || calls.len() >= MAX_ASKS
                || calls.iter().any(|call| was_refused(call))
                || self.stage.model.was_told_of(intent.tool)
                || self.stage.words.iter().any(gave_up);
            // A sub-agent that did not come to its end did not do everything.
            let its_agent_failed = self.stage.intents.task_of(&intent.tag).is_some_and(|task| {
                let tasks = of_tag(&task.tag);
                let ended_well = |call: &&CallRecord| {
                    let child = RunId::of_task(&call.call_id);
                    let child = self.family.iter().find(|records| records.run.run_id == child);
                    child.is_some_and(|child| child.run.status == RunStatus::Succeeded)
                };
                !tasks.iter().any(ended_well)
            });
            let is_told = found.iter().any(|one| one.wrong == Wrong::Lost && one.words.contains(&intent.tag));
            if !is_there && !was_given_up && !its_agent_failed && !is_told {
                let words = format!("{} of intent {} never happened", intent.tool.name, intent.tag);
                found.push(Violation::new(Wrong::Lost, words));
            }
        }
    }
}

/// Tokens that nobody could know of: what was being written when a process died, and what an estimate is off by.
const TOLERATED: u64 = 1_000;

/// What the run's completion file says of each call.
fn completion_file(records: &RunRecords) -> Vec<(CallId, String)> {
    let name = format!("{}.json", Workspace::completion_name(&records.run.run_id));
    let path = std::path::Path::new(&records.run.workspace_dir).join(name);
    let file = std::fs::read(path).ok().and_then(|bytes| serde_json::from_slice::<Value>(&bytes).ok());
    let listed = file.as_ref().and_then(|file| file["side_effects"].as_array()).into_iter().flatten();
    let listed = listed.filter_map(|line| {
        let id = CallId::parse(line["call_id"].as_str()?).ok()?;
        Some((id, line["verdict"].as_str()?.to_owned()))
    });
    listed.collect()
}

/// What a question names that is not the name of what it says it of: whoever looks for it finds nothing, and has it sent once more. `keys_of` are the
/// keys under which a call was sent.
fn named_wrongly(
    question: &QuestionRecord,
    call: Option<&CallRecord>,
    attempts: &[AttemptRecord],
    keys_of: impl Fn(&str) -> Vec<String>,
) -> Option<String> {
    for lost in question.detail.get("lost").and_then(Value::as_array).into_iter().flatten() {
        let id = lost.get("call").and_then(Value::as_str).unwrap_or_default();
        let keys = keys_of(id);
        let names = lost.get("found_by").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str);
        // What its tool called it stands in its own line of the log, and is no key.
        let is_key = |name: &&str| !name.ends_with(", as its tool called it");
        let is_anothers = |name: &&str| !keys.is_empty() && !keys.iter().any(|key| is_made_of(name, key));
        if let Some(name) = names.filter(is_key).find(is_anothers) {
            return Some(format!(
                "a question says that call {id} is found by {name:?}, and it was sent under {keys:?}"
            ));
        }
    }
    let call = call?;
    let asked_at = question.detail.get("attempt").and_then(Value::as_u64).unwrap_or(0);
    let was_sent = attempts.iter().any(|attempt| {
        attempt.call_id == call.call_id && u64::from(attempt.attempt) <= asked_at && made_by(attempt).is_none()
    });
    let key = call.idempotency_key.as_ref().filter(|_| !was_sent)?;
    let words = format!("a question about call {}, which was not sent, says that it is found by {key}", call.call_id);
    is_made_of(&question.text, key.as_str()).then_some(words)
}

/// Whether a key stands in a text, itself or as the id that is made of it.
fn is_made_of(text: &str, key: &str) -> bool {
    text.contains(key) || text.contains(&key_id(key))
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use ua_store::conformance::{Scene, samples};
    use ua_store::{MemStore, rules};

    use super::*;

    /// The judge sees the names of the new call where those of the lost one belong, in the text and in what a program reads.
    #[tokio::test]
    async fn a_name_that_nobody_was_given_is_seen() {
        let store = MemStore::new();
        let scene = Scene::begin(&store, "run_1").await;
        let call = scene.call_that_is("call_1", CallStatus::Unknown).await;
        let key = call.idempotency_key.clone().unwrap();
        let own = store.attempts(&call.call_id).await.unwrap().remove(0);
        let stands_in = AttemptRecord {
            detail: Some(format!("{}: succeeded, as call call_9 of run run_9", rules::RECALLED)),
            ..own.clone()
        };
        let new = samples::question("q_1", Some("call_1"));
        let open = store.raise_question(&scene.lease, new).await.unwrap();
        let asked = |text: &str, found_by: &str| QuestionRecord {
            text: text.to_owned(),
            detail: json!({ "attempt": 1, "lost": [{ "call": "call_9", "found_by": [found_by] }] }),
            ..open.clone()
        };
        let keys_of = |call: &str| if call == "call_9" { vec!["lost-key".to_owned()] } else { Vec::new() };
        let (named, of_new) = (format!("Look for it by: {key}"), format!("idempotency key {key}"));
        let of_lost = "idempotency key lost-key";
        let [mail_of_lost, mail_of_new] =
            ["lost-key", key.as_str()].map(|key| format!("Message-ID <{}@ua.invalid>", key_id(key)));
        for (text, found_by, attempt, is_wrong) in [
            ("", of_lost, &stands_in, false),
            ("", mail_of_lost.as_str(), &stands_in, false),
            ("", mail_of_new.as_str(), &stands_in, true),
            (mail_of_new.as_str(), of_lost, &stands_in, true),
            ("", of_new.as_str(), &stands_in, true),
            (named.as_str(), of_lost, &stands_in, true),
            (named.as_str(), of_lost, &own, false),
        ] {
            let wrong = named_wrongly(&asked(text, found_by), Some(&call), std::slice::from_ref(attempt), keys_of);
            assert_eq!(wrong.is_some(), is_wrong, "{text} {found_by}: {wrong:?}");
        }
    }
}
