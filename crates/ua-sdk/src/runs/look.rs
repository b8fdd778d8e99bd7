//! What is known of a run beside how it stands: its input, its calls and what they brought back, what it used, what is asked about it.

use std::collections::BTreeMap;

use serde_json::Value;
use ua_core::{Audience, CallId, QuestionId, RunId};
use ua_runner::{StepError, UsageSummary};
use ua_store::{
    AttemptRecord, CallRecord, LedgerStore as _, QuestionRecord, QuestionStatus, ReceiptRecord, RunRecords,
    RunStore as _, StoreError,
};

use super::{Runs, run_id};
use crate::error::Error;

impl Runs {
    /// What a run was asked for: the input of the step that it was begun with, which is part of its definition. [`Runs::resume`] runs a step with it.
    /// What comes to the same definition in two ways comes back in one of them: `{"input": 5}` as `5`.
    ///
    /// # Errors
    /// [`Error::Id`], [`Error::NoSuchRun`], [`Error::Store`]; [`Error::Refused`] for a run that no program began.
    ///
    /// ```
    /// # use ua_sdk::prelude::*;
    /// #[derive(Deserialize, JsonSchema)]
    /// struct Sum { cents: u64 }
    ///
    /// # async fn sum(runs: &Runs, step: &Step) -> Result<u64, Error> {
    /// let step = step.clone().input(runs.input("november").await?);
    /// let sum: Sum = runs.run_for(&step, "november").await?;
    /// # Ok(sum.cents)
    /// # }
    /// ```
    pub async fn input(&self, id: &str) -> Result<Value, Error> {
        let run = self.get(id).await?;
        if run.entrypoint != Audience::LIBRARY {
            return Err(StepError::AnotherEntrypoint { run: run.run_id, entrypoint: run.entrypoint }.into());
        }
        Ok(ua_runner::input_of(&run.spec))
    }

    /// The tool calls of a run, in the order in which its model asked for them: with their arguments, where each stands
    /// ([`CallStatus`](crate::types::CallStatus)), and under which key it was sent. Those that a fork shares with its parent are the parent's.
    ///
    /// # Errors
    /// [`Error::Id`], [`Error::NoSuchRun`], [`Error::Store`].
    pub async fn calls(&self, id: &str) -> Result<Vec<CallRecord>, Error> {
        let run = self.get(id).await?.run_id;
        self.store.calls(&run, None).await.map_err(Error::store("read the calls"))
    }

    /// One call, by its id, as in [`QuestionRecord::call_id`].
    ///
    /// # Errors
    /// [`Error::Refused`] without such a call, [`Error::Store`].
    pub async fn call(&self, id: &str) -> Result<CallRecord, Error> {
        let none = || Error::Refused(format!("there is no call `{id}`; `Runs::calls` has those of a run"));
        let call = CallId::parse(id).map_err(|_| none())?;
        let found = self.store.call(&call).await;
        found.map_err(|source| if is_not_there(&source) { none() } else { Error::store("read the call")(source) })
    }

    /// The attempts of a call, oldest first: each with when it was sent, and how it ended as far as that is known.
    ///
    /// # Errors
    /// As [`Runs::call`].
    pub async fn attempts(&self, call: &str) -> Result<Vec<AttemptRecord>, Error> {
        let call = self.call(call).await?.call_id;
        self.store.attempts(&call).await.map_err(Error::store("read the attempts"))
    }

    /// What a call brought back, whole: its own receipt, or that of the call that had its effect; `None` while it has no answer.
    ///
    /// # Errors
    /// As [`Runs::call`]; [`Error::Store`] also where a large part of the answer is gone.
    pub async fn receipt(&self, call: &str) -> Result<Option<ReceiptRecord>, Error> {
        let call = self.call(call).await?;
        let fail = Error::store("read the answer");
        let Some(receipt) = ua_runner::answer_of(&*self.store, &call).await.map_err(fail)? else { return Ok(None) };
        let whole = ua_runner::with_whole_reply(&*self.store, receipt).await;
        whole.map(Some).map_err(Error::store("read the answer"))
    }

    /// Everything that is stored of a run, for what there is no word for here, as an export or a comparison: its record, steps, messages, calls, attempts,
    /// receipts, requests, questions and changes. Of large results it has where they are; [`Runs::receipt`] has one whole.
    ///
    /// # Errors
    /// [`Error::Id`], [`Error::NoSuchRun`], [`Error::Store`].
    pub async fn records(&self, id: &str) -> Result<RunRecords, Error> {
        self.store.load(&run_id(id)?).await.map_err(Error::store("load the run"))
    }

    /// What the requests of a run took until now, wherever it stands: also of one that stopped, waits, failed or was cancelled.
    ///
    /// # Errors
    /// [`Error::Id`], [`Error::NoSuchRun`], [`Error::Store`].
    pub async fn usage(&self, id: &str) -> Result<UsageSummary, Error> {
        Ok(UsageSummary::of(&self.records(id).await?))
    }

    /// A question by its id, whether it was answered or not.
    ///
    /// # Errors
    /// [`Error::Refused`] without such a question, [`Error::Store`].
    pub async fn question(&self, id: &str) -> Result<QuestionRecord, Error> {
        let none = || Error::Refused(format!("there is no question `{id}`; `Runs::all_questions` has those that wait"));
        let question = QuestionId::parse(id).map_err(|_| none())?;
        let found = self.store.question(&question).await;
        let fail = |source| if is_not_there(&source) { none() } else { Error::store("read the question")(source) };
        self.told(found.map_err(fail)?).await
    }

    /// The questions of all runs that programs began which wait for an answer, oldest first; each says whose it is
    /// ([`run_id`](QuestionRecord::run_id)). Those of one run are its [`questions`](Runs::questions).
    ///
    /// # Errors
    /// [`Error::Store`].
    pub async fn all_questions(&self) -> Result<Vec<QuestionRecord>, Error> {
        let open = self.store.open_questions(None).await.map_err(Error::store("read the questions"))?;
        let (mut are_of_programs, mut questions) = (BTreeMap::<RunId, bool>::new(), Vec::new());
        for question in open.into_iter().filter(|question| question.status == QuestionStatus::Open) {
            let known = are_of_programs.get(&question.run_id).copied();
            let is_of_a_program = match known {
                Some(known) => known,
                None => match self.store.run(&question.run_id).await {
                    Ok(run) => run.run_mode == Audience::LIBRARY,
                    // It was deleted in between.
                    Err(StoreError::NotFound { .. }) => false,
                    Err(source) => return Err(Error::store("read the run")(source)),
                },
            };
            are_of_programs.insert(question.run_id.clone(), is_of_a_program);
            if is_of_a_program {
                questions.push(self.told(question).await?);
            }
        }
        Ok(questions)
    }

    /// A question as a program is told it.
    pub(super) async fn told(&self, question: QuestionRecord) -> Result<QuestionRecord, Error> {
        let told = ua_runner::question_of_a_program(&*self.store, question).await;
        told.map_err(Error::store("read the call"))
    }
}

fn is_not_there(source: &StoreError) -> bool {
    matches!(source, StoreError::NotFound { .. })
}
