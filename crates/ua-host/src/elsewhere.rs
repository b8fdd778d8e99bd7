//! A run that another place drives, and what can be done about it from here.

use ua_core::{QuestionId, RunId};
use ua_store::{QuestionStatus, RunStore as _};

use crate::database::{Database, OtherPlace};
use crate::error::HostError;
use crate::text::place;
use crate::tree;

/// So many questions are named each with the command that answers it.
const NAMED: usize = 2;

/// The place that drives a run, and what that run asks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Elsewhere {
    /// Which place.
    pub place: OtherPlace,
    /// The questions of the run and its sub-agents that are open.
    pub questions: Vec<QuestionId>,
}

impl Elsewhere {
    /// Where a run is driven, if that is not here.
    ///
    /// # Errors
    /// The database cannot be read.
    pub(crate) async fn of(store: &Database, run: &RunId) -> Result<Option<Self>, HostError> {
        let Some(place) = store.elsewhere(run).await? else { return Ok(None) };
        let mut questions = Vec::new();
        for id in tree::with_those_below(store, run).await? {
            let open = store.open_questions(Some(&id)).await.map_err(|e| HostError::store("read the questions", &e))?;
            let open = open.into_iter().filter(|question| question.status == QuestionStatus::Open);
            questions.extend(open.map(|question| question.question_id));
        }
        Ok(Some(Self { place, questions }))
    }

    /// Where it is, whole and in a line.
    pub(crate) fn shown(&self) -> String {
        place(&self.place.shown)
    }

    /// The commands that answer the run's questions, as the first part of a sentence; nothing, if none is open.
    pub(crate) fn answers(&self, run: &RunId) -> String {
        match self.questions.as_slice() {
            [] => String::new(),
            [only] => format!("`ua answer {only}` works from here, too; "),
            few if few.len() <= NAMED => {
                let few: Vec<String> = few.iter().map(|question| format!("`ua answer {question}`")).collect();
                format!("{} work from here, too; ", few.join(" and "))
            }
            _ => {
                format!("its questions can be answered from here, too: `ua questions --run {run}` lists them; ")
            }
        }
    }

    /// What is left to do when the machine will not come back, as a sentence.
    pub(crate) fn if_gone(&self, comes_of_it: &str) -> String {
        format!("if that machine is gone for good, {} {comes_of_it}", self.place.forget())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_can_be_done_is_said_as_commands_that_can_be_given_as_they_are() {
        let run = RunId::parse("r").unwrap();
        let asks = |questions: &[&str]| Elsewhere {
            place: OtherPlace { id: "0197-a".to_owned(), shown: "/runs on one".to_owned() },
            questions: questions.iter().map(|id| QuestionId::parse(id).unwrap()).collect(),
        };
        assert_eq!(asks(&[]).answers(&run), "");
        assert_eq!(asks(&["q_1"]).answers(&run), "`ua answer q_1` works from here, too; ");
        assert!(asks(&["q_1", "q_2"]).answers(&run).starts_with("`ua answer q_1` and `ua answer q_2` work"));
        assert!(asks(&["q_1", "q_2", "q_3"]).answers(&run).contains("`ua questions --run r` lists them"));
        assert!(asks(&[]).if_gone("lets it continue here").contains("`ua workers forget 0197-a` lets it"));
    }
}
