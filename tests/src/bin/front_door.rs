//! A second front door beside `ua`, as small as one can be: it drives a job file over `ua-host`, gives every question the same answer, and
//! says in one line how it ended.
//!
//! `ua-e2e-front-door UA JOB RUN_ID [ANSWER]`: `UA` is the program that answers to the hidden words by which helpers are started, `ANSWER`
//! the word that every question gets. Everything else comes from the environment, as for `ua`.
#![expect(clippy::print_stdout, reason = "how it ended is said on standard output")]

use std::error::Error;
use std::process::ExitCode;
use std::sync::Arc;

use async_trait::async_trait;
use ua_core::{Redactor, RunId};
use ua_host::job::{self, JobRequest};
use ua_host::people::{End, ObservedEvent, Presence};
use ua_host::questions::{Beside, chosen};
use ua_host::{Ending, Host, HostError, People, Process, Settings};
use ua_store::{Answer, QuestionRecord};

/// Whoever is before this door: one who always says the same, or nobody.
struct OneWord(Option<String>);

#[async_trait]
impl People for OneWord {
    fn presence(&self) -> Presence {
        if self.0.is_some() { Presence::Here } else { Presence::Nobody }
    }

    fn watch(&self, seen: &ObservedEvent<'_>) {
        if let Some(line) = seen.line {
            eprintln!("{line}");
        }
    }

    async fn ask(&self, question: &QuestionRecord, _beside: &Beside) -> Result<Option<Answer>, HostError> {
        Ok(self.0.as_deref().and_then(|word| chosen(question, word)).map(Answer::new))
    }

    fn show_end(&self, end: &End<'_>) -> Result<(), HostError> {
        let run = &end.records.run;
        println!("{} {} after {} call(s)", run.run_id, run.status, end.records.calls.len());
        Ok(())
    }
}

async fn drive(ua: String, file: String, run_id: &str, answer: Option<String>) -> Result<Ending, Box<dyn Error>> {
    let settings = Settings::read(Process { program: Some(ua.into()), ..Process::own() });
    settings.check()?;
    let mut host = Host::new(Arc::new(settings), None, Redactor::default())?.with_entrypoint("front-door");
    // Where the harness kills this process.
    if let Some(seams) = ua_e2e::parts(None).seams {
        host = host.with_seams(seams);
    }
    let people: Arc<dyn People> = Arc::new(OneWord(answer));
    let request = JobRequest { file: file.into(), run_id: Some(RunId::parse(run_id)?), ..JobRequest::default() };
    Ok(Box::pin(job::run(&host, &people, &request)).await?)
}

#[tokio::main]
async fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    let (Some(ua), Some(file), Some(run_id)) = (args.next(), args.next(), args.next()) else {
        eprintln!("usage: ua-e2e-front-door UA JOB RUN_ID [ANSWER]");
        return ExitCode::FAILURE;
    };
    let answer = args.next();
    match drive(ua, file, &run_id, answer).await {
        Ok(Ending::Succeeded) => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
