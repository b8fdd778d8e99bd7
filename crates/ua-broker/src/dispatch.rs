//! A call on its way to its receipt: dispatched in its turn, held while a person decides, and let go of where nobody waits for it.

use std::sync::Arc;
use std::time::Duration;

use ua_core::{CallId, CallStatus, Resolution, RunId, Timestamp, chain};
use ua_dispatch::{DispatchError, Dispatched, Handed};
use ua_ledger::LedgerError;
use ua_store::rules::is_learnt_of_another;
use ua_store::{AttemptRecord, CallRecord, LedgerStore as _, QuestionRecord, QuestionStatus, RunStore as _};

use crate::broker::{Broken, Broker};
use crate::late::NotOver;
use crate::live::{Ended, LiveCall, Sent, State};
use crate::road::Road;
use crate::session::InUse;
use crate::turns::{Standing, Turn};

/// How often a question is looked at while somebody waits for its answer.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// How often a call is looked at again because the tools of its server changed while it was about to be sent.
const MOST_LOOKS: u32 = 3;

impl Broker {
    /// When a call was handed to its tool server last, as its attempts have it: one that never left, or only says what came of another one, does not
    /// count. `None` when it never was, or
    /// that cannot be read.
    pub(crate) async fn sent_at(&self, call: &CallId) -> Option<Timestamp> {
        self.sends(call).await.iter().map(|attempt| attempt.started_at).max()
    }

    /// How often that was.
    pub(crate) async fn times_sent(&self, call: &CallId) -> usize {
        self.sends(call).await.len()
    }

    async fn sends(&self, call: &CallId) -> Vec<AttemptRecord> {
        let mut attempts = self.store.attempts(call).await.unwrap_or_default();
        attempts.retain(|attempt| !attempt.never_left() && !is_learnt_of_another(attempt));
        attempts
    }

    /// When a call in doubt was sent before, as it has to be said of one that is taken up again.
    pub(crate) async fn sent_before(&self, call: &CallRecord) -> Option<Sent> {
        let is_in_doubt = matches!(call.status, CallStatus::Running | CallStatus::Unknown) || call.doubt.is_some();
        if !is_in_doubt {
            return None;
        }
        let at = self.sent_at(&call.call_id).await.unwrap_or(call.created_at);
        Some(Sent { at, attempt: call.attempt })
    }

    /// Whether a tool server goes on with a call as a task, which the next broker asks.
    pub(crate) async fn is_followed(&self, call: &CallId) -> bool {
        let attempts = self.store.attempts(call).await;
        attempts.is_ok_and(|attempts| attempts.last().is_some_and(|attempt| attempt.live_handle().is_some()))
    }

    /// Takes a call to its receipt. Nobody who waits for it can end this, and nobody has to wait for it.
    pub(crate) async fn take_to_receipt(
        self: Arc<Self>,
        session: InUse,
        road: Arc<Road>,
        call: CallRecord,
        is_new: bool,
        (live, turn): (Arc<LiveCall>, Turn),
    ) {
        // Of one that was let go, whoever takes it up may have begun it anew by now: nothing of it is touched here.
        let Some(carried) = self.carried(&session, road.clone(), &call, is_new, &live, turn).await else { return };
        road.upstream.drop_given(&call.call_id);
        let reply = road.upstream.take_reply(&call.call_id);
        let ended = match carried {
            Ok(record) => {
                // The tool's own words are what it ended with, if nobody else said what became of it; who had it sent once more did not.
                let is_own = matches!(record.resolution, None | Some(Resolution::Executed));
                let is_own = is_own && record.deduplicated_from.is_none();
                Ended { reply: Some(record).filter(|_| is_own).zip(reply), ..Ended::default() }
            }
            Err(why) => self.ended_without(why, &session, &call, &live, reply.as_ref()),
        };
        if live.was_unanswered() {
            self.unanswered.note(&call.call_id);
        }
        self.live().remove(&call.call_id);
        live.state.send_replace(State::Over(Arc::new(ended)));
    }

    /// How it ended. `None` when it waits, for a person or its turn, and nobody waits for it.
    async fn carried(
        &self,
        session: &InUse,
        mut road: Arc<Road>,
        call: &CallRecord,
        is_new: bool,
        live: &LiveCall,
        turn: Turn,
    ) -> Option<Result<Box<CallRecord>, NotOver>> {
        let mut turn = Some(turn);
        let mut planned = if is_new { std::slice::from_ref(call) } else { &[] };
        let mut looks = 0;
        let mut is_first = true;
        let has_effect = call.policy.class.has_effect();
        loop {
            // One that a person decided about comes behind those that were asked for meanwhile.
            let own = turn.take().unwrap_or_else(|| session.turns.place(Standing::of(call)));
            tokio::select! {
                biased;
                () = own.comes(has_effect) => {}
                () = self.end_of(&call.run_id) => return Some(self.ended(session, call).await),
            }
            // Said before it is looked whether anybody waits: who lets go of it and then finds it not begun, knows that it will not be.
            live.begins();
            // Whoever asked may have gone while it waited for its turn: then it is not begun, and is there for whoever asks for it again.
            if std::mem::take(&mut is_first) && self.is_let_go(session, &road, call, live).await {
                return None;
            }
            // What a read brought is written with what comes next: it is made again for whoever asks again.
            let waits = !has_effect;
            let handed =
                Handed { planned: std::mem::take(&mut planned), answer_waits: waits, reads_wait: waits, time: None };
            let ids = std::slice::from_ref(&call.call_id);
            let dispatch = Box::pin(road.dispatcher.dispatch_group(ids, handed, &self.stop));
            let (dispatched, own) = live.in_turn(dispatch, own, has_effect).await;
            if waits {
                session.soon();
            }
            let why = match dispatched.map(|mut all| all.pop()) {
                Ok(Some(Dispatched::Settled(record))) => return Some(Ok(record)),
                Ok(Some(Dispatched::Held(question))) => {
                    // Others go on while a person decides.
                    drop(own);
                    drop(road.upstream.take_reply(&call.call_id));
                    live.holds(question.clone());
                    match self.answered(session, &road, call, &question, live).await {
                        Heard::Answer => {}
                        Heard::End => return Some(self.ended(session, call).await),
                        Heard::Nothing => return None,
                    }
                    live.state.send_replace(State::UnderWay);
                    // Its tool server may have other tools by now.
                    match self.newest_road(session, &road).await {
                        Ok(newest) => road = newest,
                        Err(error) => return Some(Err(NotOver::Failed(error.to_string()))),
                    }
                    continue;
                }
                Ok(Some(Dispatched::Parked { detail, .. })) => NotOver::Failed(detail),
                Ok(Some(Dispatched::Stopped)) if self.has_ended(&call.run_id).await => {
                    return Some(self.ended(session, call).await);
                }
                Ok(Some(Dispatched::Stopped)) if self.is_followed(&call.call_id).await => NotOver::Followed,
                Ok(Some(Dispatched::Stopped)) => NotOver::Stopped,
                Ok(None) => NotOver::Failed("nothing was said of it; ask again in a moment".to_owned()),
                Err(DispatchError::Ledger(LedgerError::Aborted { .. })) => {
                    return Some(self.ended(session, call).await);
                }
                // Nothing goes by a list of tools that is not the newest one. By that one it is looked at again what this call is: whether its own
                // tool is another one now, or only others are.
                Err(error) if looks < MOST_LOOKS && !road.listed.may_be_planned_by() => {
                    looks += 1;
                    // Nothing that was asked for behind it goes first.
                    turn = own;
                    session.flush().await;
                    match self.newest_road(session, &road).await {
                        Ok(newest) => road = newest,
                        Err(_) => return Some(Err(NotOver::Failed(chain(&error)))),
                    }
                    continue;
                }
                Err(error) => NotOver::Failed(chain(&error)),
            };
            return Some(Err(why));
        }
    }

    /// How a call ends whose session a person ended: with what they said of it, or without anything.
    async fn ended(&self, session: &InUse, call: &CallRecord) -> Result<Box<CallRecord>, NotOver> {
        // What was asked for is written before nobody has it under way.
        session.flush().await;
        self.said_of(call).await.ok_or(NotOver::Ended)
    }

    /// Waits until a person ends a session. Whoever waits for anything in it, for a turn or for an answer, waits for this too.
    async fn end_of(&self, run: &RunId) {
        loop {
            self.env.clock.sleep(LOOK_EVERY).await;
            if self.has_ended(run).await {
                return;
            }
        }
    }

    /// The road to the same tool server by the tools that it offers now. A server that cannot be looked at is not in the way of what needs none.
    async fn newest_road(&self, session: &InUse, road: &Arc<Road>) -> Result<Arc<Road>, Broken> {
        if let Err(why) = road.upstream.edition().await {
            tracing::debug!(why, "the tools of a server could not be looked at");
        }
        if road.listed.may_be_planned_by() {
            return Ok(road.clone());
        }
        self.road(session, &road.upstream).await.map(Arc::new)
    }

    /// Lets a call go for which nobody waits. Nobody joins between this look and its end; whose line was cut may have one again at any moment,
    /// and is told that it was let go of.
    async fn is_let_go(&self, session: &InUse, road: &Road, call: &CallRecord, live: &LiveCall) -> bool {
        if live.is_awaited() {
            return false;
        }
        let project = self.project(&session.record.project);
        let _quiet = project.lock().await;
        let is_left = !live.is_awaited();
        if is_left {
            // Whoever asks for it next finds it among those under way, or written.
            session.flush().await;
            self.live().remove(&call.call_id);
            road.upstream.drop_given(&call.call_id);
            drop(road.upstream.take_reply(&call.call_id));
            live.state.send_replace(State::LetGo);
        }
        is_left
    }

    /// Waits until a question is answered, its session is ended, or nobody waits for it any more: then the call is let go, and whoever asks next takes
    /// it up.
    async fn answered(
        &self,
        session: &InUse,
        road: &Road,
        call: &CallRecord,
        question: &QuestionRecord,
        live: &LiveCall,
    ) -> Heard {
        let mut end = std::pin::pin!(self.end_of(&call.run_id));
        loop {
            let left = live.somebody_leaves();
            let stored = session.outbox.question(&question.question_id).await;
            if stored.is_ok_and(|stored| stored.status != QuestionStatus::Open) {
                return Heard::Answer;
            }
            if self.is_let_go(session, road, call, live).await {
                return Heard::Nothing;
            }
            tokio::select! {
                () = self.env.clock.sleep(LOOK_EVERY) => {}
                () = left => {}
                () = end.as_mut() => return Heard::End,
            }
        }
    }
}

/// What a call that waits for a person's answer heard.
enum Heard {
    /// Its question is answered, or nobody has to answer it any more.
    Answer,
    /// Its session is ended.
    End,
    /// Nothing, and nobody waits for it.
    Nothing,
}
