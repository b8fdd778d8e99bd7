//! `ua questions --answered`: who answered what, and when.

use ua_core::Timestamp;
use ua_host::Host;
use ua_host::home::Home;
use ua_store::{AnswerRecord, LedgerStore as _, QuestionRecord, RunQuery, Store as _, StoreError};

use super::answer::{QuestionsArgs, word_of_answer};
use crate::error::{HostError, OK};
use crate::find;
use crate::ids::{ShortIds, short};
use crate::output::{line, print_json, print_table, tell};
use crate::view::AnsweredQuestion;

pub(super) async fn list(host: &Host, args: &QuestionsArgs) -> Result<u8, HostError> {
    let now = ua_core::system::env().now();
    let since = args.since.map(|span| now.minus(span));
    let answered = answered(host.home(), args.run.as_deref(), since).await?;
    if args.json {
        print_json(&answered)?;
        return Ok(OK);
    }
    if answered.is_empty() {
        tell("no such answers");
    }
    let ids = ShortIds::of(&answered.iter().map(|question| question.question_id.as_str()));
    let row = |question: &AnsweredQuestion| {
        let about = question.in_short.iter().filter(|text| !text.is_empty()).map(|text| format!(" ({text})"));
        vec![
            ids.get(&question.question_id).to_owned(),
            crate::moment::ago(question.answered_at, now),
            question.choice.to_owned(),
            question.by.clone(),
            short(&question.run_id).to_owned(),
            format!("{}{}", line(&question.text, 200), about.collect::<String>()),
            line(question.said.as_deref().unwrap_or_default(), 200),
        ]
    };
    print_table(&crate::listings::ANSWERED, answered.iter().map(row).collect())?;
    if args.run.is_none()
        && let Some(commands) = ua_host::gateway::commands_beside(host)
    {
        let said = "answers about calls at the gateway are in a folder of their own: `ua questions --answered`";
        tell(commands.complete(said).into_owned());
    }
    Ok(OK)
}

/// The answers about a run and its sub-agents, or about all runs, newest first.
async fn answered(
    home: &Home,
    run: Option<&str>,
    since: Option<Timestamp>,
) -> Result<Vec<AnsweredQuestion>, HostError> {
    if run.is_none() && home.is_unused() {
        return Ok(Vec::new());
    }
    let fail = |error: &StoreError| HostError::store("read the answers", error);
    let store = home.open_read_only()?;
    let runs = if let Some(name) = run {
        ua_host::tree::with_those_below(&store, &find::run(&store, name).await?.run_id).await?
    } else {
        let all = RunQuery { limit: u32::MAX, ..RunQuery::default() };
        let heads = store.find_runs(&all).await.map_err(|e| fail(&e))?;
        heads.into_iter().map(|head| head.run_id).collect()
    };
    let mut answered = Vec::new();
    for run in runs {
        let of_run = store.questions_of(ua_store::QuestionsOf::Run(run)).await.map_err(|e| fail(&e))?;
        for question in of_run {
            let Some(answer) = question.answer.clone() else { continue };
            if since.is_some_and(|since| answer.answered_at < since) {
                continue;
            }
            let about = match &question.call_id {
                Some(call) => {
                    let call = store.call(call).await.map_err(|e| fail(&e))?;
                    Some(ua_evidence::call_in_short(&call))
                }
                None => None,
            };
            answered.push(shown(question, answer, about));
        }
    }
    answered.sort_by_key(|question| std::cmp::Reverse(question.answered_at));
    Ok(answered)
}

fn shown(question: QuestionRecord, answer: AnswerRecord, in_short: Option<String>) -> AnsweredQuestion {
    AnsweredQuestion {
        choice: word_of_answer(question.kind, &answer),
        question_id: question.question_id.to_string(),
        run_id: question.run_id.to_string(),
        call_id: question.call_id.map(|call| call.to_string()),
        kind: question.kind,
        text: question.text,
        in_short,
        said: answer.text,
        proof: answer.proof,
        by: answer.by,
        answered_at: answer.answered_at,
        applied_at: answer.applied_at,
    }
}
