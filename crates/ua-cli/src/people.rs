//! The person at this terminal, as runs see them: lines and a live display while a run works, prompts, the summary at the end.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, IsTerminal as _};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use ua_core::{Env, QuestionId, RunId, ShowPath as _, span_in_words};
use ua_dispatch::{CallProgress, StopSignal};
use ua_host::People;
use ua_host::people::{Begun, End, ObservedEvent, Presence, Unfinished, WhichRun};
use ua_host::progress::clock;
use ua_host::review::ServerReview;
use ua_resume::answers::Beside;
use ua_runner::{DrainTimes, Interrupts, RunEvent, RunLock};
use ua_store::{Answer, EndedBy, QuestionRecord};

use crate::commands::{ask, summary, trust, which_run};
use crate::error::{HostError, INTERRUPTED};
use crate::ids::{in_sentence, short, shortened};
use crate::live::{Live, State};
use crate::output::{did, line, tell};
use crate::still::Still;
use crate::under_way::UnderWay;
use crate::view::ForkShown;

/// Whoever sits at this terminal, or reads what it shows.
#[derive(Debug, Default)]
pub(crate) struct AtTerminal {
    /// Print nothing but questions, errors, warnings and the final summary.
    pub(crate) quiet: bool,
    /// Never ask here.
    pub(crate) no_input: bool,
    /// How the run was forked, for a machine that reads the summary.
    pub(crate) fork: Option<ForkShown>,
    live: Mutex<Option<Live>>,
    under_way: Arc<Mutex<UnderWay>>,
    /// What breaks the silence where nothing is drawn, and what it says.
    still: Mutex<Option<Still>>,
    standing: Mutex<State>,
    /// The same while nothing is worked on yet.
    before: Mutex<Option<Still>>,
    /// What was told or asked already, of which once is enough.
    told: Mutex<Told>,
}

/// What somebody has read already who watches a run: it is taken anew after each answer, and says it all again.
#[derive(Debug, Default)]
struct Told {
    /// The run whose name and resume command stand above.
    run: Option<RunId>,
    /// Lines about how the run is held to its job.
    lines: BTreeSet<String>,
    /// Questions that were asked at this terminal.
    asked: BTreeSet<QuestionId>,
    /// Whom the run, or a sub-agent, waits for that is away, and why.
    away: Away,
}

/// Who is away that is tried again and again, and why: by whose work it is, with nothing for the run that was started.
#[derive(Debug, Default)]
struct Away(BTreeMap<String, String>);

/// What is away is a model, and no tool server.
const MODEL: &str = "model ";

/// What is new about something that happened to whoever watches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum News {
    /// It is told.
    Told,
    /// It is told, and what can be done about it: a model, or a tool server, is away.
    IsAway,
    /// It was told before: it is away still, for the same reason.
    Known,
}

impl Away {
    /// Takes notice of what happened. Each try of something that is away is a request that leaves, one that is charged nothing, and a failure: it was
    /// said once until when that goes on.
    fn notice(&mut self, sub_agent: Option<&str>, signal: &RunEvent) -> News {
        let whose = sub_agent.unwrap_or_default().to_owned();
        let failed = if let RunEvent::Retrying { why, may_be_billed, .. } = signal {
            Some((format!("{MODEL}{why}"), *may_be_billed))
        } else if let RunEvent::ToolServerAway { why, was_sent, .. } = signal {
            Some((format!("tools {why} {was_sent}"), false))
        } else {
            None
        };
        if let Some((why, is_billed)) = failed {
            let before = self.0.insert(whose, why.clone());
            // What costs something is told each time.
            return if before.as_ref() == Some(&why) && !is_billed { News::Known } else { News::IsAway };
        }
        let is_away = self.0.get(&whose).is_some_and(|why| why.starts_with(MODEL));
        if let RunEvent::Charged { was_sent, charge, .. } = signal {
            let is_nothing = !was_sent || (is_away && charge.usage.total() == 0);
            if !is_nothing {
                self.0.remove(&whose);
            }
            return if is_nothing { News::Known } else { News::Told };
        }
        if is_away && matches!(signal, RunEvent::Thinking { .. }) {
            return News::Known;
        }
        if matches!(signal, RunEvent::Thinking { .. } | RunEvent::Recorded { .. } | RunEvent::Call(_)) {
            self.0.remove(&whose);
        }
        News::Told
    }
}

/// A silence of a run that is left alone: most calls are done by then.
const SHORT_SILENCE: Duration = Duration::from_secs(2);

/// A line of progress is cut to no less than this.
const NARROWEST: usize = 30;

fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether somebody can be asked here: standard input and standard error are a terminal, and it is ours. Who asks from the background is
/// stopped before the question stands there.
pub(crate) fn is_attended() -> bool {
    io::stdin().is_terminal() && io::stderr().is_terminal() && !crate::terminal::is_in_background()
}

impl AtTerminal {
    /// Whoever started a command that works on a run. A machine that reads JSON is told and asked nothing.
    pub(crate) fn new(quiet: bool, no_input: bool) -> Self {
        let is_json = crate::terminal::is_json();
        Self { quiet: quiet || is_json, no_input: no_input || is_json, ..Self::default() }
    }

    /// The line about something that happened, as somebody here wants it: what is asked here follows in full, and what was told once stays so.
    fn wanted_line<'a>(&self, seen: &ObservedEvent<'a>) -> Option<Cow<'a, str>> {
        // An answer that is in nobody's hands but this process's is told to whoever wants to hear of errors alone; and what somebody has to answer.
        let is_error = matches!(seen.signal, RunEvent::AnswerNotKept { .. } | RunEvent::DatabaseFull { .. });
        let asks = matches!(seen.signal, RunEvent::Call(CallProgress::Asking { .. })) && !crate::terminal::is_json();
        let news = lock(&self.told).away.notice(seen.sub_agent, seen.signal);
        let line = seen.line.filter(|_| (!self.quiet || is_error || asks) && news != News::Known)?;
        if news == News::IsAway {
            let command = lock(&self.under_way).next_command().to_owned();
            return Some(Cow::Owned(format!("{line}. Ctrl-C stops the run, and `{command}` continues it")));
        }
        let is_here = self.presence() == Presence::Here;
        if is_here && matches!(seen.signal, RunEvent::Call(CallProgress::Held { .. })) {
            return None;
        }
        if let RunEvent::Call(CallProgress::Asking { patience, .. }) = seen.signal
            && is_here
        {
            return Some(Cow::Owned(format!(
                "a tool asked a question, and waits up to {} for your answer",
                span_in_words(*patience)
            )));
        }
        // Its arguments are said in full elsewhere; here they are one line, however narrow the terminal is.
        if matches!(seen.signal, RunEvent::Call(CallProgress::Sending { .. }))
            && let Some(room) = crate::terminal::err_width()
        {
            let before = format!("[{}] ", clock(seen.elapsed)).chars().count();
            return Some(Cow::Owned(crate::output::line(line, room.saturating_sub(before).max(NARROWEST))));
        }
        if matches!(seen.signal, RunEvent::EffectCounted { .. }) {
            return lock(&self.told).lines.insert(line.to_owned()).then_some(Cow::Borrowed(line));
        }
        Some(Cow::Borrowed(line))
    }

    /// Says what is done before a run is worked on, should it take long: what its configuration names is read whole.
    pub(crate) fn preparing(&self, env: &Env, doing: &str) {
        if !self.quiet {
            *lock(&self.before) = Some(Still::start(env, doing, SHORT_SILENCE));
        }
    }

    /// Breaks long silences from here on, unless a live display does or nobody wants it.
    fn break_silence(&self) {
        drop(lock(&self.before).take());
        let env = lock(&self.under_way).env.clone();
        if let Some(env) = env.filter(|_| !self.quiet && !crate::terminal::can_draw()) {
            let doing = lock(&self.standing).doing_text();
            lock(&self.still).get_or_insert_with(|| Still::start(&env, &doing, SHORT_SILENCE));
        }
    }
}

#[async_trait]
impl People for AtTerminal {
    fn presence(&self) -> Presence {
        // Whoever wants no progress may be asked all the same: a question is none.
        if !self.no_input && is_attended() {
            Presence::Here
        } else if self.no_input {
            Presence::Nobody
        } else {
            Presence::Elsewhere
        }
    }

    fn stop_signal(&self, env: &Env) -> Result<StopSignal, HostError> {
        let stop = StopSignal::default();
        lock(&self.under_way).env = Some(env.clone());
        self.break_silence();
        let (first, again) = (self.under_way.clone(), self.under_way.clone());
        // Whoever pressed Ctrl-C is told what is waited for, also who wants to hear of errors alone.
        let is_told = !crate::terminal::is_json();
        let first = move |drain| {
            if is_told && !crate::prompt::is_open() {
                let words = lock(&first).stopping(drain);
                crate::terminal::leave_the_echo();
                tell(words);
            }
        };
        let again = move |by| end_at_once(again, by);
        Interrupts::watch(stop.clone(), DrainTimes::default(), env.clone(), crate::terminal::hang_up(), first, again)
            .map_err(|e| HostError::failed(format!("cannot listen for signals: {e}")))?;
        crate::prompt::leave_signals_to_others();
        Ok(stop)
    }

    fn begun(&self, begun: &Begun<'_>) {
        lock(&self.under_way).begin(shortened(&begun.next_command, &[begun.run.run_id.as_str()]).into_owned());
        if self.quiet {
            return;
        }
        let id = begun.run.run_id.as_str();
        let before = lock(&self.told).run.replace(begun.run.run_id.clone());
        if before.as_ref() != Some(&begun.run.run_id) {
            let workspace = Path::new(&begun.run.workspace_dir).shown();
            tell(format!("run {} · workspace {workspace}", short(id)));
            tell(format!("resume with: {}", shortened(&begun.next_command, &[id])));
        }
        self.break_silence();
        if crate::terminal::can_draw() {
            let live = Live::start();
            live.limits(&begun.budgets, begun.held, begun.used.as_ref());
            *lock(&self.live) = Some(live);
        }
    }

    fn watch(&self, seen: &ObservedEvent<'_>) {
        lock(&self.under_way).take(seen);
        let wanted = self.wanted_line(seen);
        let is_told = wanted.is_some();
        if let Some(text) = wanted {
            let who = seen.sub_agent.map_or_else(String::new, |label| format!("{} ▸ ", line(label, 40)));
            let text = crate::moment::in_sentence(&text, ua_core::system::env().now()).into_owned();
            tell(format!("[{}] {who}{text}", clock(seen.elapsed)));
        }
        if let Some(still) = &*lock(&self.still) {
            // Whoever was told until when it waits is not told that it still does.
            let wait = if let RunEvent::Retrying { wait_millis, .. } | RunEvent::ToolServerAway { wait_millis, .. } =
                seen.signal
            {
                Some(Duration::from_millis(*wait_millis))
            } else {
                None
            };
            // What was told before is no news, and ends no silence.
            let wait = wait.filter(|_| is_told);
            still.quiet_for(wait);
            let mut standing = lock(&self.standing);
            if seen.sub_agent.is_none() {
                standing.take(seen.signal);
            } else {
                standing.take_below(seen.signal);
            }
            still.doing(standing.doing_text(), standing.verb(), standing.note());
            if is_told {
                still.told();
            }
            if wait.is_some() {
                still.seldom();
            }
        }
        if let Some(live) = &*lock(&self.live) {
            if seen.sub_agent.is_none() {
                live.take(seen.signal);
            } else {
                live.take_below(seen.signal);
            }
        }
    }

    fn settled(&self, question: &QuestionId) {
        if let Some(still) = &*lock(&self.still) {
            let mut standing = lock(&self.standing);
            standing.settled(question);
            still.doing(standing.doing_text(), standing.verb(), standing.note());
        }
        if let Some(live) = &*lock(&self.live) {
            live.settled(question);
        }
    }

    fn paused(&self) {
        // What a tool asked on its connection went with the connection.
        crate::prompt::call_off();
        drop(lock(&self.still).take());
        if let Some(live) = lock(&self.live).take() {
            live.finish();
        }
        // Whoever was waited for in vain: what ends with this process is said last, and to whoever wants errors alone.
        let lost = lock(&self.under_way).take_lost();
        if !crate::terminal::is_json() {
            for lost in lost {
                tell(lost);
            }
        }
    }

    fn tell(&self, sentence: &str) {
        tell(in_sentence(sentence).as_ref());
    }

    fn remark(&self, sentence: &str) {
        if !self.quiet {
            tell(in_sentence(sentence).as_ref());
        }
    }

    fn remark_once(&self, sentence: &str) {
        if lock(&self.told).lines.insert(sentence.to_owned()) {
            self.remark(sentence);
        }
    }

    fn report(&self, error: &HostError) {
        crate::error::print(error);
    }

    fn left(&self, what: &HostError) {
        // What is shown at the end names the question, and how to come back to it.
        if !crate::terminal::is_read_by_person() {
            self.report(what);
        }
    }

    async fn ask(&self, question: &QuestionRecord, beside: &Beside) -> Result<Option<Answer>, HostError> {
        lock(&self.told).asked.insert(question.question_id.clone());
        ask::put(question, beside).await
    }

    async fn ask_which_run(&self, unfinished: &Unfinished<'_>) -> Result<WhichRun, HostError> {
        which_run::ask(unfinished).await
    }

    async fn ask_to_trust(&self, file: &Path, servers: &[ServerReview]) -> Result<bool, HostError> {
        tell(trust::shown(file, servers).trim_end());
        trust::ask().await
    }

    fn show_end(&self, end: &End<'_>) -> Result<(), HostError> {
        drop(lock(&self.still).take());
        // What goes to a file or another program is whole.
        let asked = std::mem::take(&mut lock(&self.told).asked);
        let asked = if crate::terminal::is_read_by_person() { asked } else { BTreeSet::new() };
        did(summary::what_it_came_to(&end.records.run));
        summary::print((&end.next_command, end.taken_by), end.records, self.fork.clone(), &asked)
    }
}

/// A second signal: whatever is in flight stays in flight, which a resume knows how to read.
#[expect(clippy::disallowed_methods, reason = "a second signal asks to end without cleaning up")]
fn end_at_once(left: Arc<Mutex<UnderWay>>, by: EndedBy) {
    RunLock::mark_ended_at_once(by);
    crate::terminal::last_words_at_a_signal(move || {
        if !crate::terminal::is_json() {
            let words = lock(&left).ended();
            tell(words);
        }
    });
    std::process::exit(i32::from(INTERRUPTED));
}

#[cfg(test)]
mod tests {
    use ua_core::{Costs, Usage};
    use ua_runner::{Charge, Spent};
    use ua_store::RequestStatus;

    use super::*;

    fn failed(why: &str, may_be_billed: bool) -> RunEvent {
        let (wait_millis, left_millis) = (1_000, 60_000);
        RunEvent::Retrying {
            attempt: 1,
            why: why.to_owned(),
            wait_millis,
            left_millis,
            may_be_billed,
            ends_in_millis: None,
        }
    }

    fn charged(tokens: u64, was_sent: bool) -> RunEvent {
        RunEvent::Charged {
            turn: 1,
            status: if tokens == 0 { RequestStatus::Zero } else { RequestStatus::Actual },
            was_sent,
            is_whole: tokens > 0,
            charge: Charge { usage: Usage { input_tokens: tokens, ..Usage::default() }, cost: None },
            spent: Spent { tokens, costs: Costs::default() },
            max_tokens: None,
            max_cost: None,
        }
    }

    /// Three lines a try that say the same are one line for all of them.
    #[test]
    fn whoever_is_away_is_told_of_once() {
        let mut away = Away::default();
        let mut notice = |signal: &RunEvent| away.notice(None, signal);
        let thinking = RunEvent::Thinking { turn: 1 };
        assert_eq!(notice(&thinking), News::Told);
        assert_eq!(notice(&charged(0, false)), News::Known, "what comes of it is told next");
        assert_eq!(notice(&failed("refused", false)), News::IsAway);
        for _ in 0..3 {
            for signal in [&thinking, &charged(0, false), &failed("refused", false)] {
                assert_eq!(notice(signal), News::Known, "{signal:?}");
            }
        }
        // Another reason is news, and so is what may cost something.
        assert_eq!(notice(&failed("overloaded", false)), News::IsAway);
        assert_eq!(notice(&charged(0, true)), News::Known);
        assert_eq!(notice(&failed("overloaded", true)), News::IsAway);
        // It is there again, and away once more.
        assert_eq!(notice(&thinking), News::Known);
        assert_eq!(notice(&charged(7, true)), News::Told);
        assert_eq!(notice(&thinking), News::Told);
        assert_eq!(notice(&failed("overloaded", false)), News::IsAway);
        // A sub-agent has a model of its own.
        assert_eq!(away.notice(Some("below"), &failed("overloaded", false)), News::IsAway);
        assert_eq!(away.notice(Some("below"), &failed("overloaded", false)), News::Known);
    }
}
