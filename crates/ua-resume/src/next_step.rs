//! How a run that is not finished gets further: the one command for where it stands and what stopped it.
//!
//! Wherever a run is shown (at its end, in lists, on pages in a folder, in the refusal of a second run), its next step is this one, so that no
//! two places send a person different ways, and none to a resume that comes to the same again.

use ua_core::{Audience, RunId, RunStatus, RunStop};
use ua_store::{GATEWAY_MODE, RunRecord, is_gateway};

use crate::budget::raise_flags;

/// What a run needs besides its command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Needs {
    /// Nothing: it resumes.
    Nothing,
    /// Something outside is corrected first; a resume alone comes to the same.
    Correction,
    /// Another model. A run keeps its model, so another run continues from its last turn.
    AnotherModel,
    /// Nothing: a person said that it is to end, and whoever resumes it ends it.
    End,
}

/// Who resumes a run that a program started with the library: nobody else has its model and its tools.
const THE_PROGRAM: &str = "the program that started it";

/// Who continues a session of a client at the gateway.
const THE_CLIENT: &str = "its client, which makes the same call again,";

/// The next step of a run that is not finished.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NextStep {
    command: Option<String>,
    /// Who it is where there is no command.
    who: &'static str,
    needs: Needs,
    /// Whether the command lifts what stopped the run, so that without its flags the run comes to the same.
    lifts: bool,
}

impl NextStep {
    /// The next step of a run that stands like this; of one that has ended it means nothing.
    pub fn of(run: &RunRecord) -> Self {
        let needs = match run.stop_reason.filter(|_| run.status == RunStatus::Stopped) {
            Some(RunStop::UnknownModel) => Needs::AnotherModel,
            Some(RunStop::ProviderRefused) => Needs::Correction,
            Some(
                RunStop::Budget
                | RunStop::Interrupt
                | RunStop::Provider
                | RunStop::Fingerprint
                | RunStop::ToolServer
                | RunStop::Idle,
            )
            | None => Needs::Nothing,
        };
        let needs = if run.end_mark().is_some() { Needs::End } else { needs };
        let (id, audience) = (&run.run_id, Audience::of(&run.entrypoint));
        let flags = raise_flags(run).filter(|_| !matches!(needs, Needs::AnotherModel | Needs::End));
        // A wait is over some day, and then the run resumes without any.
        let may_pass = matches!(run.stop_reason, Some(RunStop::Provider | RunStop::ToolServer));
        let lifts = flags.is_some() && !may_pass;
        let command = match needs {
            Needs::AnotherModel => format!("ua fork {id} --model MODEL"),
            Needs::Nothing | Needs::Correction | Needs::End => {
                format!("ua resume {id}{}", flags.map_or_else(String::new, |flags| format!(" {flags}")))
            }
        };
        let is_session = is_gateway(run);
        let who = if is_session { THE_CLIENT } else { THE_PROGRAM };
        Self { command: audience.pick(Some(command), None).filter(|_| !is_session), who, needs, lifts }
    }

    /// The command, with the whole id of the run; `None` where only the program that started it resumes it, or the client whose session it is. What stands in it in capital letters
    /// is the person's to fill in.
    pub fn command(&self) -> Option<&str> {
        self.command.as_deref()
    }

    /// What stands behind the [label](NextStep::label): the command, or who it is that resumes the run.
    pub fn by(&self) -> &str {
        self.command().unwrap_or(self.who)
    }

    /// The same as the subject of a sentence: `` `ua resume r` finishes it ``.
    pub fn who(&self) -> String {
        who(self.command(), self.who)
    }

    /// Who resumes a run of which no more is known than its id and its mode, as the subject of a sentence.
    pub fn who_resumes(run: &RunId, run_mode: &str) -> String {
        if run_mode == GATEWAY_MODE {
            return THE_CLIENT.to_owned();
        }
        who(Audience::of(run_mode).pick(Some(format!("ua resume {run}")), None).as_deref(), THE_PROGRAM)
    }

    /// Whether whoever drives the run again as it is gets it further, a worker for one.
    pub fn is_to_be_tried_again(&self) -> bool {
        matches!(self.needs, Needs::Nothing | Needs::End) && !self.lifts
    }

    /// Whether resuming it gets the run further, at once or when something outside is corrected.
    pub fn is_resume(&self) -> bool {
        self.needs != Needs::AnotherModel
    }

    /// What stands in front of the command where a run is shown with labels.
    pub fn label(&self) -> &'static str {
        match self.needs {
            Needs::Nothing => "Resume with",
            Needs::Correction => "Once corrected",
            Needs::AnotherModel => "Continue with",
            Needs::End => "End it with",
        }
    }

    /// The sentence that introduces the command.
    pub fn introduction(&self) -> &'static str {
        match self.needs {
            Needs::Nothing => "Resume it with:",
            Needs::End => "A person said that it is to end. End it with:",
            Needs::Correction => "A resume alone comes to the same. Once what stopped it is corrected, resume it with:",
            Needs::AnotherModel => {
                "Its provider knows no model of its name, and a run keeps its model. Continue with another model, in another run:"
            }
        }
    }

    /// What the command does, as it follows it: `` `ua resume r` finishes it ``.
    pub fn does(&self) -> &'static str {
        match self.needs {
            Needs::Nothing => "finishes it",
            Needs::End => "ends it",
            Needs::Correction => "finishes it once what stopped it is corrected",
            Needs::AnotherModel => "continues it with another model, since a run keeps its own",
        }
    }
}

fn who(command: Option<&str>, otherwise: &str) -> String {
    command.map_or_else(|| otherwise.to_owned(), |command| format!("`{command}`"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ua_evidence::testing::Story;

    /// Nobody is sent to a resume that is refused.
    #[test]
    fn a_session_of_a_client_is_resumed_by_no_command() {
        let mut story = Story::new(r#"{"objective": "x"}"#);
        story.ends(RunStatus::Stopped, Some(RunStop::Interrupt), "");
        let mut run = story.records.run.clone();
        assert!(NextStep::of(&run).who().contains("ua resume"));
        run.run_mode = GATEWAY_MODE.to_owned();
        let step = NextStep::of(&run);
        assert_eq!((step.command(), step.by(), step.who().as_str()), (None, THE_CLIENT, THE_CLIENT));
        assert_eq!(NextStep::who_resumes(&run.run_id, &run.run_mode), THE_CLIENT);
    }

    /// Whoever waited in vain for a provider or a server is shown the flags that have it waited for, and may also come back later without them.
    #[test]
    fn a_wait_that_was_too_long_is_resumed_with_what_allows_it_or_later() {
        for reason in [RunStop::Provider, RunStop::ToolServer] {
            let mut story = Story::new(r#"{"objective": "x"}"#);
            let detail = "busy. It asks for a wait of 2 h. Have it wait: `--max-wallclock-minutes +121`.";
            story.ends(RunStatus::Stopped, Some(reason), detail);
            let run = &story.records.run;
            let step = NextStep::of(run);
            let command = format!("ua resume {} --max-wallclock-minutes +121", run.run_id);
            assert_eq!((step.command(), step.is_to_be_tried_again()), (Some(command.as_str()), true), "{reason}");
        }
    }

    #[test]
    fn every_reason_of_a_stop_has_the_step_that_gets_further() {
        for reason in RunStop::ALL.iter().copied() {
            let mut story = Story::new(r#"{"objective": "x"}"#);
            story.ends(RunStatus::Stopped, Some(reason), "tool calls: 5 of 5 used");
            let run = &story.records.run;
            let step = NextStep::of(run);
            let id = &run.run_id;
            let (command, label) = match reason {
                RunStop::UnknownModel => (format!("ua fork {id} --model MODEL"), "Continue with"),
                RunStop::ProviderRefused => (format!("ua resume {id}"), "Once corrected"),
                RunStop::Budget
                | RunStop::Interrupt
                | RunStop::Provider
                | RunStop::Fingerprint
                | RunStop::ToolServer
                | RunStop::Idle => (format!("ua resume {id}"), "Resume with"),
            };
            assert_eq!((step.command(), step.label()), (Some(command.as_str()), label), "{reason}");
            assert_eq!((step.by(), step.who()), (command.as_str(), format!("`{command}`")), "{reason}");
            // What a program started is resumed by that program, whatever stopped it.
            let by_program = RunRecord { entrypoint: Audience::LIBRARY.to_owned(), ..run.clone() };
            let step = NextStep::of(&by_program);
            assert_eq!(
                (step.command(), step.by(), step.who()),
                (None, THE_PROGRAM, THE_PROGRAM.to_owned()),
                "{reason}"
            );
            assert_eq!(step.introduction().contains("resume it"), reason == RunStop::ProviderRefused, "{reason}");
            assert_eq!(step.is_resume(), reason != RunStop::UnknownModel);
            let as_it_is = !matches!(reason, RunStop::UnknownModel | RunStop::ProviderRefused);
            assert_eq!(step.is_to_be_tried_again(), as_it_is, "{reason}");
        }
        // What stopped it once says nothing about a run that is at work again.
        let mut story = Story::new(r#"{"objective": "x"}"#);
        story.ends(RunStatus::Stopped, Some(RunStop::UnknownModel), "");
        story.records.run.status = RunStatus::Running;
        assert!(NextStep::of(&story.records.run).is_resume());
        // Of one that is to end, a resume does that alone, whatever stopped it.
        story.records.run.status = RunStatus::Stopped;
        story.records.run.cancel_requested_at = Some(story.records.run.created_at);
        let step = NextStep::of(&story.records.run);
        let id = &story.records.run.run_id;
        assert_eq!((step.command(), step.label()), (Some(format!("ua resume {id}").as_str()), "End it with"));
        assert!(step.is_resume() && step.is_to_be_tried_again());
    }
}
