//! `ua questions` and `ua answer`.

use ua_store::{Choice, NewAnswer, QuestionRecord, QuestionStatus, RunStore};
use ua_store_sqlite::SqliteStore;

use crate::args::{AnswerArgs, AnswerChoice, QuestionsArgs};
use crate::error::{CliError, OK};
use crate::find;
use crate::home::Home;
use crate::output::{print, print_json};
use crate::view::Answered;

use super::summary::{question_text, word};

pub(crate) async fn list(home: &Home, args: QuestionsArgs) -> Result<u8, CliError> {
    let store = home.open_read_only()?;
    let run = match &args.run {
        Some(name) => Some(find::run(&store, name).await?.run_id),
        None => None,
    };
    let open = store.open_questions(run.as_ref()).await.map_err(|e| CliError::store("read the questions", &e))?;
    if args.json {
        print_json(&open)?;
        return Ok(OK);
    }
    if open.is_empty() {
        crate::output::tell("nothing waits for an answer");
    }
    for question in &open {
        let state = match question.status {
            QuestionStatus::Open => String::new(),
            QuestionStatus::Answered | QuestionStatus::Closed => {
                let choice = question.answer.as_ref().map_or("?", |answer| word(answer.choice));
                format!("Answered       {choice}; go on with `ua resume {}`\n", question.run_id)
            }
        };
        print(&format!("{}Run            {}\n{state}", question_text(question).trim_start(), question.run_id))?;
    }
    Ok(OK)
}

pub(crate) async fn run(home: &Home, args: AnswerArgs) -> Result<u8, CliError> {
    let choice = match args.choice {
        AnswerChoice::Happened => Choice::Happened,
        AnswerChoice::Execute => Choice::Execute,
        AnswerChoice::Skip => Choice::Skip,
        AnswerChoice::Abort => Choice::Abort,
        AnswerChoice::Continue => Choice::Continue,
    };
    let store = home.open()?;
    let question = find::question(&store, &args.question).await?;
    insert(&store, &question, choice, args.proof, args.text).await?;
    crate::home::close(store);
    report(&question, choice)?;
    crate::output::tell(&format!("answered; go on with `ua resume {}`", question.run_id));
    Ok(OK)
}

/// Says for a machine what was answered.
pub(crate) fn report(question: &QuestionRecord, choice: Choice) -> Result<(), CliError> {
    if !crate::terminal::is_json() {
        return Ok(());
    }
    let (question_id, run_id) = (question.question_id.to_string(), question.run_id.to_string());
    print_json(&Answered { question_id, run_id, choice })
}

/// Stores an answer.
pub(crate) async fn insert(
    store: &SqliteStore,
    question: &QuestionRecord,
    choice: Choice,
    proof: Option<String>,
    text: Option<String>,
) -> Result<(), CliError> {
    if question.status != QuestionStatus::Open {
        return Err(CliError::usage(format!("question {} is answered already", question.question_id))
            .hint(format!("`ua resume {}` acts on the answer", question.run_id)));
    }
    if !question.choices.contains(&choice) {
        let words: Vec<&str> = question.choices.iter().map(|choice| word(*choice)).collect();
        return Err(CliError::usage(format!("question {} does not take `{}`", question.question_id, word(choice)))
            .hint(format!("it takes {}", words.join(", "))));
    }
    if proof.is_some() && choice != Choice::Happened {
        return Err(CliError::usage("--proof names what happened, so it goes with `happened` only"));
    }
    let by = crate::env::var("USER").unwrap_or_else(|| "a person".to_owned());
    let answer = NewAnswer {
        question_id: question.question_id.clone(),
        choice,
        proof,
        text,
        by,
        at: ua_core::system::env().now(),
    };
    store.insert_answer(answer).await.map_err(|e| CliError::store("store the answer", &e))?;
    Ok(())
}
