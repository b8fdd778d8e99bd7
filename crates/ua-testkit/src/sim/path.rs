//! A path of the exploration: instead of a seed, a list of choices says what happens next, and the report says how many there were.
//!
//! The first choice of every step is what happens when nothing goes wrong and nobody hurries. Every other one is a deviation, and a path
//! may have only so many ([`Path::deviations`]), so that the paths of a scene can be counted and walked, all of them. Where no process
//! lives the whole state (everything stored, what happened outside, what may still go wrong) has a digest: two paths that come to the
//! same state go on alike. Ids and digests are told apart by the order in which they appear, times by their order; the tools of the
//! scenes have no horizons.

use std::collections::{BTreeMap, BTreeSet};

use ua_core::{Sha256, sha256};

use super::drawing::Happening;
use super::gates::Side;
use super::harm::Harm;
use super::job::{Intents, Shape};
use super::life::BoxError;
use super::stage::Stage;
use super::task::block_on;
use crate::outcomes::{PersonOutcome, ProcessOutcome, Refusal, ToolOutcome};
use ua_ledger::LateReplies as _;
use ua_store::{QuestionKind, RunStore};

/// What is explored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scene {
    /// A run that sends one letter that nobody can take back or look up, and orders once under a key.
    Plain,
    /// The same, by tools whose effects are known by their content.
    ByContent,
    /// The same as the plain one, and a person forks it while it works or after.
    Fork,
    /// A run whose two sub-agents do the same work, beside each other.
    Tasks,
    /// A run with a sub-agent, and a person forks it while it works or after.
    ForkOfTasks,
    /// A run that goes on in doubt, and does the like again.
    Doubt,
    /// Two calls that a person approves, skips, or ends the run about.
    Approved,
    /// The store goes back to a copy.
    Restore,
    /// The store goes back to a copy that knows nothing of what a sub-agent sent before its process died.
    RestoreOfTasks,
    /// The store goes back to a copy that has a call which was sent since, and does not know that it was.
    RestoreOfPlanned,
    /// The store goes back to a copy that has a call which was never sent, and nothing of the fork that did the same since.
    RestoreOfForked,
    /// The store goes back to a copy that has a call in doubt, and nothing of the fork that did the same since on a person's word.
    RestoreOfDoubted,
    /// The store goes back to a copy that has a call which was turned away, and nothing of the fork that did the same since.
    RestoreOfRefused,
    /// A person forks a run while its sub-agent sends, and the fork's sub-agent does the same.
    ForkBesideTasks,
    /// A call is turned away, its process dies, and a person forks the run.
    ForkBehindFailure,
    /// Each process behind the first one finds the tool servers set to another account, which knows nothing of what that one got.
    Moved,
    /// A person undoes what a call did under a key, puts its record right, and forks the run so that it is done again.
    ForkBehindCorrection,
    /// A call waits for what its tool asked, and a person forks the run and lets the fork make the same call.
    ForkBesideForm,
    /// The same of a call whose effect is known by its content.
    ForkBesideFormByContent,
    /// A run goes on in doubt and asks for the same again; a person says that it happened while the repeat waits for a word of its own.
    RepeatInDoubt,
    /// The same, and a person puts the record right while the model thinks.
    RepeatBehindCorrection,
    /// Of two sub-agents that are to do the same, one is turned away and the other one lost; a person says that the lost one happened before the
    /// first one tries again.
    RetryBehindDoubt,
    /// A person has a call in doubt sent again, and before it is, a fork makes the same call and loses what came back.
    RetryBesideDoubt,
    /// What a run in iterations handed to a sub-agent in its first context it hands on once more in the next, which knows nothing of it.
    IterationsOfTasks,
}

/// What happens of itself in a scene, once it can: what its paths have in common, and no deviation.
#[derive(Debug, Clone, Copy)]
struct Given {
    what: What,
    /// At which crossing a process stands then, and on which side of it; any when there is none.
    at: Option<(&'static str, Side)>,
}

/// What is given.
#[derive(Debug, Clone, Copy)]
enum What {
    Copied,
    GoneBack,
    Dies,
    Forked,
    /// The fork begins to work.
    ForkStarts,
    TurnedAway,
    PutRight,
    AsksFirst,
    /// What was sent is done, and nobody hears of it.
    Lost,
    /// Somebody looks, and says what came of a call in doubt.
    Answered,
    /// The run is driven although questions of it are open.
    StartsInVain,
}

impl Scene {
    /// All of them.
    pub const ALL: [Self; 24] = [
        Self::Plain,
        Self::ByContent,
        Self::Fork,
        Self::Tasks,
        Self::ForkOfTasks,
        Self::Doubt,
        Self::Approved,
        Self::Restore,
        Self::RestoreOfTasks,
        Self::RestoreOfPlanned,
        Self::RestoreOfForked,
        Self::RestoreOfDoubted,
        Self::RestoreOfRefused,
        Self::ForkBesideTasks,
        Self::ForkBehindFailure,
        Self::Moved,
        Self::ForkBehindCorrection,
        Self::ForkBesideForm,
        Self::ForkBesideFormByContent,
        Self::RepeatInDoubt,
        Self::RepeatBehindCorrection,
        Self::RetryBehindDoubt,
        Self::RetryBesideDoubt,
        Self::IterationsOfTasks,
    ];

    /// Its name on a command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::ByContent => "by-content",
            Self::Fork => "fork",
            Self::Tasks => "tasks",
            Self::ForkOfTasks => "fork-of-tasks",
            Self::Doubt => "doubt",
            Self::Approved => "approved",
            Self::Restore => "restore",
            Self::RestoreOfTasks => "restore-of-tasks",
            Self::RestoreOfPlanned => "restore-of-planned",
            Self::RestoreOfForked => "restore-of-forked",
            Self::RestoreOfDoubted => "restore-of-doubted",
            Self::RestoreOfRefused => "restore-of-refused",
            Self::ForkBesideTasks => "fork-beside-tasks",
            Self::ForkBehindFailure => "fork-behind-failure",
            Self::Moved => "moved",
            Self::ForkBehindCorrection => "fork-behind-correction",
            Self::ForkBesideForm => "fork-beside-form",
            Self::ForkBesideFormByContent => "fork-beside-form-by-content",
            Self::RepeatInDoubt => "repeat-in-doubt",
            Self::RepeatBehindCorrection => "repeat-behind-correction",
            Self::RetryBehindDoubt => "retry-behind-doubt",
            Self::RetryBesideDoubt => "retry-beside-doubt",
            Self::IterationsOfTasks => "iterations-of-tasks",
        }
    }

    /// The scene of this name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|scene| scene.name() == name)
    }

    pub(super) fn intents(self) -> Intents {
        match self {
            Self::Plain | Self::Fork | Self::Restore => Intents::listed(&[&["post_comment"], &["order"]], &[]),
            Self::ByContent => Intents::listed(&[&["send_letter"], &["pay"]], &[]),
            Self::Tasks => Intents::listed(&[], &[&["post_comment"], &["order"]]),
            Self::ForkOfTasks => Intents::listed(&[&["order"]], &[&["post_comment"]]),
            Self::Doubt => Intents::listed(&[&["say"], &["say"]], &[]),
            Self::Approved => Intents::listed(&[&["sign", "grant"]], &[]),
            Self::RestoreOfPlanned => Intents::listed(&[&["order", "post_comment"]], &[]),
            Self::RestoreOfForked | Self::RestoreOfRefused | Self::ForkBesideForm | Self::RetryBesideDoubt => {
                Intents::listed(&[&["post_comment"]], &[])
            }
            Self::ForkBesideFormByContent => Intents::listed(&[&["send_letter"]], &[]),
            Self::RestoreOfTasks => Intents::listed(&[], &[&["post_comment"]]),
            // Not by a tool whose name alone says that equal calls are one effect: what is forgotten of that is known by its key.
            Self::IterationsOfTasks => Intents::listed(&[], &[&["say"]]),
            Self::ForkBesideTasks => Intents::listed(&[], &[&["order"]]),
            Self::ForkBehindCorrection => Intents::listed(&[&["pay"]], &[]),
            Self::RepeatInDoubt | Self::RepeatBehindCorrection => Intents::listed(&[&["say"]], &[]),
            Self::RetryBehindDoubt => Intents::of_all(2, "post_comment"),
            Self::RestoreOfDoubted | Self::ForkBehindFailure | Self::Moved => Intents::listed(&[&["order"]], &[]),
        }
    }

    /// What kind of job it is, but for whether it has tasks.
    pub(super) fn shape(self) -> Shape {
        if self == Self::IterationsOfTasks { Shape::TreeInIterations } else { Shape::Plain }
    }

    /// What its paths begin with.
    fn given(self) -> Vec<Given> {
        let anywhere = |what| Given { what, at: None };
        match self {
            Self::Plain
            | Self::ByContent
            | Self::Fork
            | Self::Tasks
            | Self::ForkOfTasks
            | Self::Doubt
            | Self::Approved
            | Self::Restore
            | Self::Moved
            | Self::IterationsOfTasks => Vec::new(),
            Self::RestoreOfTasks => vec![
                anywhere(What::Copied),
                Given { what: What::Dies, at: Some(("tool.invoke", Side::After)) },
                anywhere(What::GoneBack),
            ],
            Self::RestoreOfPlanned => vec![
                Given { what: What::Copied, at: Some(("tool.invoke", Side::Before)) },
                Given { what: What::Dies, at: Some(("store.commit_turn", Side::Before)) },
                anywhere(What::GoneBack),
            ],
            Self::RestoreOfForked => vec![
                Given { what: What::Copied, at: Some(("store.start_attempt", Side::Before)) },
                Given { what: What::Dies, at: Some(("store.start_attempt", Side::Before)) },
                anywhere(What::Forked),
                anywhere(What::ForkStarts),
                Given { what: What::Dies, at: Some(("store.commit_turn", Side::Before)) },
                anywhere(What::GoneBack),
            ],
            Self::RestoreOfDoubted => vec![
                Given { what: What::Copied, at: Some(("tool.invoke", Side::Before)) },
                Given { what: What::Dies, at: Some(("tool.invoke", Side::Before)) },
                anywhere(What::Forked),
                anywhere(What::ForkStarts),
                // It asks, and is told to.
                anywhere(What::ForkStarts),
                Given { what: What::Dies, at: Some(("store.commit_turn", Side::Before)) },
                anywhere(What::GoneBack),
            ],
            Self::RestoreOfRefused => vec![
                anywhere(What::TurnedAway),
                Given { what: What::Copied, at: Some(("store.settle_attempt", Side::After)) },
                Given { what: What::Dies, at: Some(("store.settle_attempt", Side::After)) },
                anywhere(What::Forked),
                anywhere(What::ForkStarts),
                Given { what: What::Dies, at: Some(("store.commit_turn", Side::Before)) },
                anywhere(What::GoneBack),
            ],
            Self::ForkBesideTasks => {
                vec![Given { what: What::Forked, at: Some(("tool.invoke", Side::Before)) }, anywhere(What::ForkStarts)]
            }
            Self::ForkBehindFailure => vec![
                anywhere(What::TurnedAway),
                Given { what: What::Dies, at: Some(("store.settle_attempt", Side::After)) },
                anywhere(What::Forked),
            ],
            Self::ForkBehindCorrection => vec![anywhere(What::PutRight), anywhere(What::Forked)],
            Self::RepeatInDoubt => {
                vec![anywhere(What::Lost), anywhere(What::Answered), anywhere(What::StartsInVain)]
            }
            Self::RepeatBehindCorrection => {
                vec![anywhere(What::Lost), Given { what: What::PutRight, at: Some(("model.complete", Side::After)) }]
            }
            Self::RetryBehindDoubt => vec![
                anywhere(What::TurnedAway),
                anywhere(What::Lost),
                Given { what: What::Dies, at: Some(("store.raise_question", Side::After)) },
                anywhere(What::Answered),
            ],
            Self::RetryBesideDoubt => vec![
                Given { what: What::Dies, at: Some(("tool.invoke", Side::Before)) },
                // Nothing is there, so it is to be sent again.
                anywhere(What::Answered),
                anywhere(What::Forked),
                anywhere(What::ForkStarts),
                // It asks, and is told to.
                anywhere(What::ForkStarts),
                anywhere(What::Lost),
            ],
            Self::ForkBesideForm | Self::ForkBesideFormByContent => vec![
                anywhere(What::AsksFirst),
                Given { what: What::Forked, at: Some(("store.raise_question", Side::After)) },
                anywhere(What::ForkStarts),
                // It asks, and is told to.
                anywhere(What::ForkStarts),
            ],
        }
    }

    /// The turn at which a person forks; the newest when there is none.
    pub(super) fn forks_at(self) -> Option<u32> {
        let at_the_start = [
            Self::ForkBehindCorrection,
            Self::RestoreOfForked,
            Self::RestoreOfDoubted,
            Self::RestoreOfRefused,
            Self::ForkBesideForm,
            Self::ForkBesideFormByContent,
            Self::RetryBesideDoubt,
        ];
        at_the_start.contains(&self).then_some(0)
    }

    /// Whether its model asks again for what is in doubt.
    pub(super) fn repeats_in_doubt(self) -> bool {
        matches!(self, Self::RepeatInDoubt | Self::RepeatBehindCorrection)
    }

    /// What may go wrong, before deviations are counted.
    pub(super) fn harm(self, deviations: usize) -> Harm {
        let with_people = usize::from(matches!(self, Self::Approved | Self::Doubt));
        let given = self.given();
        let of = |is_it: fn(&What) -> bool| given.iter().filter(|given| is_it(&given.what)).count();
        let forks = of(|what| matches!(what, What::Forked));
        let restores = of(|what| matches!(what, What::GoneBack));
        Harm {
            deaths: deviations + of(|what| matches!(what, What::Dies)),
            tool_faults: deviations + of(|what| matches!(what, What::TurnedAway | What::AsksFirst | What::Lost)),
            store_faults: deviations,
            signals: 1,
            forks: forks + usize::from(matches!(self, Self::Fork | Self::ForkOfTasks)),
            restores: restores + usize::from(self == Self::Restore),
            aborts: with_people,
            skips: with_people,
            corrections: of(|what| matches!(what, What::PutRight)),
            vain_starts: of(|what| matches!(what, What::StartsInVain)),
            ..Harm::default()
        }
    }
}

/// A path through a scene.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Path {
    /// Where.
    pub scene: Scene,
    /// How many choices may be another than the first.
    pub deviations: usize,
    /// What is chosen at each step; the first, behind the end.
    pub choices: Vec<usize>,
}

/// What there was to choose from on a path.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Walked {
    /// How many choices each step had.
    pub choices: Vec<usize>,
    /// The steps before which no process lived, and what the state was.
    pub states: BTreeMap<usize, Sha256>,
    /// How many deviations the path has.
    pub deviations: usize,
    /// How much of what is given has happened.
    given: usize,
}

impl Stage {
    /// What happens next on a path.
    pub(super) fn choose(&mut self, path: &Path) -> Result<Option<Happening>, BoxError> {
        let step = self.walked.choices.len();
        if self.actors.iter().all(|actor| actor.task.is_none()) {
            let state = self.state()?;
            self.walked.states.insert(step, state);
        }
        let left = path.deviations - self.walked.deviations;
        let mut may: Vec<Happening> = self.everything()?;
        let due = path.scene.given().get(self.walked.given).copied();
        let is_due = |happening: &Happening| due.is_some_and(|due| self.is_given(due, happening));
        may.retain(|happening| is_explored(happening) || is_due(happening));
        may.sort_by_key(|happening| self.rank(happening));
        let given = due.and_then(|due| may.iter().position(|happening| self.is_given(due, happening)));
        if let Some(place) = given {
            may[..=place].rotate_right(1);
        }
        if left == 0 {
            may.truncate(1);
        }
        if given.is_none() && may.first().is_some_and(Happening::is_harmful) {
            may.clear(); // nothing is left but harm
        }
        self.walked.choices.push(may.len());
        let chosen = path.choices.get(step).copied().unwrap_or(0);
        self.walked.deviations += usize::from(chosen > 0);
        self.walked.given += usize::from(chosen == 0 && given.is_some());
        Ok(may.into_iter().nth(chosen))
    }

    /// Whether this is what is due, and can be.
    fn is_given(&self, due: Given, happening: &Happening) -> bool {
        let stands = |life: Option<usize>| {
            let Some((name, side)) = due.at else { return true };
            let mut standing = self.gates.closed().into_iter();
            standing
                .any(|gate| gate.side == side && gate.crossing.is(name) && life.is_none_or(|life| gate.life == life))
        };
        match (due.what, happening) {
            (What::Copied, Happening::MakeCopy)
            | (What::GoneBack, Happening::GoBack)
            | (What::Forked, Happening::Person(PersonOutcome::Forks, _))
            | (What::TurnedAway, Happening::Tool(_, ToolOutcome::NeverLeft))
            | (What::Lost, Happening::Tool(_, ToolOutcome::LostAfter))
            | (What::PutRight, Happening::Person(PersonOutcome::PutsRight, _))
            | (What::AsksFirst, Happening::Tool(_, ToolOutcome::AsksFirst)) => stands(None),
            (What::Dies, Happening::Process(life, ProcessOutcome::Dies)) => stands(Some(*life)),
            (What::ForkStarts, Happening::Start(top)) => *top > 0,
            (What::StartsInVain, Happening::Start(top)) => *top == 0,
            (What::Answered, Happening::Answers(asked, PersonOutcome::Looks)) => {
                asked.kind == QuestionKind::UnknownOutcome
            }
            (
                What::Copied
                | What::GoneBack
                | What::Forked
                | What::TurnedAway
                | What::Dies
                | What::ForkStarts
                | What::PutRight
                | What::AsksFirst
                | What::Lost
                | What::Answered
                | What::StartsInVain,
                _,
            ) => false,
        }
    }

    /// The smaller, the sooner, when nobody hurries: whoever moved last goes on, what was asked for is done and answered, and what was
    /// given up never arrives.
    fn rank(&self, happening: &Happening) -> usize {
        match happening {
            Happening::GoOn(gate) if gate.life == self.last_life => 0,
            Happening::Act(request) if !request.is_late() => 1,
            Happening::Answer(_) => 1,
            Happening::GoOn(_) => 2,
            Happening::Answers(_, PersonOutcome::Looks) => 3,
            Happening::Person(PersonOutcome::RaisesBudgets | PersonOutcome::Accepts, _) => 4,
            Happening::NextWait(_) => 5,
            Happening::Start(_) => 6,
            Happening::Lose(_) => 7,
            Happening::WakeUp(_) => 8,
            Happening::Act(_) => 9,
            Happening::Write(..)
            | Happening::Process(..)
            | Happening::Tool(..)
            | Happening::Clock(_)
            | Happening::Answers(..)
            | Happening::Person(..)
            | Happening::MakeCopy
            | Happening::GoBack => 10,
        }
    }

    /// The state, as far as it matters for what can come.
    pub(super) fn state(&self) -> Result<Sha256, BoxError> {
        let runtime = self.store.enter();
        let port = self.store.port.as_ref();
        let mut runs = block_on(port.runs(u32::MAX))?;
        runs.sort_by(|one, other| (one.created_at, &one.run_id).cmp(&(other.created_at, &other.run_id)));
        let mut words = String::new();
        for run in runs {
            let mut records = block_on(port.load(&run.run_id))?;
            // What these say of the run's state, its other rows say too.
            records.checkpoints.clear();
            words.push_str(&serde_json::to_string(&records)?);
            words.push('\n');
        }
        drop(runtime);
        words.push_str(&format!("{:?}\n{:?}\n", self.harm, self.tops));
        words.push_str(&format!("{} {}\n{}\n", self.walked.deviations, self.walked.given, self.servers.account()));
        let said = self.words.iter().map(|word| format!("{:?} {:?}\n", word.question.question_id, word.choice));
        words.extend(said);
        words.extend(self.refused.iter().map(|(question, refused)| format!("{question:?} {:?}\n", refused.choice)));
        words.push_str(&format!("{:?} {:?} {:?} {:?}", self.forgotten, self.gone, self.accepted, self.undone));
        words.push_str(&format!("{}\n", serde_json::to_string(&self.late.all())?));
        let copied = self.copied.filter(|_| self.copied_at.is_some());
        Ok(sha256(format!("{} {copied:?}", canonical(&words))))
    }
}

/// Whether something is among what is explored. Of outcomes that are treated alike one is enough here; the simulation plays the others.
fn is_explored(happening: &Happening) -> bool {
    match happening {
        Happening::Tool(_, outcome) => match outcome {
            ToolOutcome::NeverLeft
            | ToolOutcome::LostBefore
            | ToolOutcome::LostAfter
            | ToolOutcome::Late
            | ToolOutcome::ServerDied
            | ToolOutcome::ReportedWithoutEffect
            | ToolOutcome::ReportedWithEffect
            | ToolOutcome::Refused(Refusal::BadRequest | Refusal::NoSuchMethod) => true,
            ToolOutcome::Answered
            | ToolOutcome::AnsweredTwice
            | ToolOutcome::BusyForLong
            | ToolOutcome::GoesOnInATask
            | ToolOutcome::AsksFirst
            | ToolOutcome::Refused(_) => false,
        },
        Happening::Answers(_, mind) => {
            matches!(mind, PersonOutcome::Looks | PersonOutcome::Skips | PersonOutcome::Aborts)
        }
        Happening::Clock(_) => false,
        Happening::GoOn(_)
        | Happening::Write(..)
        | Happening::Process(..)
        | Happening::WakeUp(_)
        | Happening::Act(_)
        | Happening::Answer(_)
        | Happening::Lose(_)
        | Happening::NextWait(_)
        | Happening::Start(_)
        | Happening::Person(..)
        | Happening::MakeCopy
        | Happening::GoBack => true,
    }
}

/// `words` with ids and digests numbered as they appear, and times by their order.
///
/// By hand: this is done at every step of every path, and took a regular expression longer than all the rest of a path.
fn canonical(words: &str) -> String {
    let times: BTreeSet<&str> =
        pieces(words).filter(|piece| matches!(piece.1, Piece::Time)).map(|piece| piece.0).collect();
    let ranks: BTreeMap<&str, usize> = times.into_iter().zip(0..).collect();
    let mut numbers = BTreeMap::new();
    let mut replaced = String::with_capacity(words.len());
    for (text, piece) in pieces(words) {
        match piece {
            Piece::Time => replaced.push_str(&format!("T{}", ranks.get(text).copied().unwrap_or_default())),
            Piece::Name => {
                let next = numbers.len();
                replaced.push_str(&format!("N{}", numbers.entry(text).or_insert(next)));
            }
            Piece::Other => replaced.push_str(text),
        }
    }
    replaced
}

/// What a piece of the state's text is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Piece {
    /// A time in RFC 3339, in UTC.
    Time,
    /// An id or a digest.
    Name,
    Other,
}

/// `text` in pieces: times, and what is whole words otherwise or between words.
fn pieces(text: &str) -> impl Iterator<Item = (&str, Piece)> {
    let is_word = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_' || !byte.is_ascii();
    let mut rest = text;
    std::iter::from_fn(move || {
        let first = rest.as_bytes().first()?;
        let time = time_at(rest);
        let length = if time > 0 {
            time
        } else {
            let starts_word = is_word(first);
            rest.bytes().position(|byte| is_word(&byte) != starts_word).unwrap_or(rest.len())
        };
        let (piece, behind) = rest.split_at(length);
        rest = behind;
        let kind = if time > 0 {
            Piece::Time
        } else if is_name(piece) {
            Piece::Name
        } else {
            Piece::Other
        };
        Some((piece, kind))
    })
}

/// The length of the time that `text` begins with; 0 when it begins with none.
fn time_at(text: &str) -> usize {
    const SHAPE: &[u8] = b"0000-00-00T00:00:00";
    let bytes = text.as_bytes();
    let fits = bytes.len() > SHAPE.len()
        && SHAPE
            .iter()
            .zip(bytes)
            .all(|(shape, byte)| if *shape == b'0' { byte.is_ascii_digit() } else { shape == byte });
    if !fits {
        return 0;
    }
    let digits = |from: usize| bytes.iter().skip(from).take_while(|byte| byte.is_ascii_digit()).count();
    let fraction = match bytes.get(SHAPE.len()) {
        Some(b'.') => match digits(SHAPE.len() + 1) {
            0 => return 0,
            some => 1 + some,
        },
        Some(_) | None => 0,
    };
    let end = SHAPE.len() + fraction;
    if bytes.get(end) == Some(&b'Z') { end + 1 } else { 0 }
}

/// Whether a word is a digest, a part of one that keys are made of, or an id: a kind, `_`, and 20 or more letters and digits.
fn is_name(word: &str) -> bool {
    let is_hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    if matches!(word.len(), 16 | 32 | 64) && word.bytes().all(is_hex) {
        return true;
    }
    word.split_once('_').is_some_and(|(kind, rest)| {
        let is_kind = !kind.is_empty() && kind.bytes().all(|byte| byte.is_ascii_lowercase());
        is_kind && rest.len() >= 20 && rest.bytes().all(|byte| byte.is_ascii_alphanumeric())
    })
}

#[cfg(test)]
mod tests {
    use super::canonical;

    #[test]
    fn ids_are_numbered_as_they_appear_and_times_by_their_order() {
        let state = r#"{"a":"run_0123456789abcdefghij","at":"2026-11-20T10:00:00.25Z","b":"0123456789abcdef","c":"run_0123456789abcdefghij","at":"2026-11-20T09:00:00Z"}"#;
        let expected = r#"{"a":"N0","at":"T1","b":"N1","c":"N0","at":"T0"}"#;
        assert_eq!(canonical(state), expected);
    }

    #[test]
    fn what_only_looks_like_an_id_or_a_time_stays() {
        let state = "tool_result 0123456789abcdeg 0123456789abcdef0 post_0123456789 é0123456789abcdef 2026-11-20T10:00:00 2026-11-20T10:00:00.Z Run_0123456789abcdefghij";
        assert_eq!(canonical(state), state);
    }
}
