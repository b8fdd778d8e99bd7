//! How a run that is not finished gets further: the one command for where it stands and what stopped it.
//!
//! Wherever a run is shown (at its end, in lists, on pages in a folder, in the refusal of a second run), its next step is this one, so that no
//! two places send a person different ways, and none to a resume that comes to the same again.

use ua_core::{Audience, ForkWith, OtherModel, RunId, RunStatus, RunStop};
use ua_store::{GATEWAY_MODE, RunRecord, is_gateway, works_for};

use crate::budget::raise_flags;

/// What a run needs besides its command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Needs {
    /// Nothing: it resumes.
    Nothing,
    /// Something outside is corrected first; a resume alone comes to the same.
    Correction,
    /// Another model. A run keeps its model, so another run continues from its last turn.
    AnotherModel {
        /// Whether the command names one.
        is_named: bool,
    },
    /// Something else than it keeps: another run continues from its last turn with that.
    Fork(ForkWith),
    /// Nothing: a person said that it is to end, and whoever resumes it ends it.
    End,
    /// That a person accepts what is known beside the database and not in it: nobody resumes the run before.
    Acceptance,
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
    /// What the command has behind the run, which lifts what stopped it.
    flags: Option<String>,
    /// Whether the command lifts what stopped the run, so that without its flags the run comes to the same.
    lifts: bool,
    /// Whether the command only says what is wanted, and a worker drives the run.
    is_left_to_a_worker: bool,
}

impl NextStep {
    /// The next step of a run that stands like this; of one that has ended it means nothing.
    pub fn of(run: &RunRecord) -> Self {
        let other_model = run.status_detail.as_deref().and_then(OtherModel::read);
        let needs = match run.stop_reason.filter(|_| run.status == RunStatus::Stopped) {
            Some(RunStop::UnknownModel) => Needs::AnotherModel { is_named: other_model.is_some() },
            Some(RunStop::ProviderRefused) => {
                let with = run.status_detail.as_deref().and_then(ForkWith::read);
                with.map_or(Needs::Correction, Needs::Fork)
            }
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
        // A sub-agent goes with the run whose task it works on, and stops it with the same words.
        let (id, audience) = (works_for(run).unwrap_or(&run.run_id), Audience::of(&run.entrypoint));
        let raised = raise_flags(run);
        // A setup that nobody can accept is put back first.
        let is_refused_again = run.status == RunStatus::Stopped && run.stop_reason == Some(RunStop::Fingerprint);
        let is_put_back = needs == Needs::Nothing && is_refused_again && raised.is_none();
        let needs = if is_put_back { Needs::Correction } else { needs };
        let flags = raised.filter(|_| !matches!(needs, Needs::AnotherModel { .. } | Needs::Fork(_) | Needs::End));
        // A wait is over some day, and then the run resumes without any.
        let may_pass = matches!(run.stop_reason, Some(RunStop::Provider | RunStop::ToolServer));
        let lifts = flags.is_some() && !may_pass;
        let command = match needs {
            Needs::AnotherModel { .. } => {
                let flag = other_model.map_or_else(|| "--model MODEL".to_owned(), |model| model.flag());
                format!("ua fork {id} {flag}")
            }
            Needs::Fork(with) => format!("ua fork {id} {}", with.flag()),
            Needs::Nothing | Needs::Correction | Needs::End | Needs::Acceptance => {
                format!("ua resume {id}{}", flags.as_deref().map_or_else(String::new, |flags| format!(" {flags}")))
            }
        };
        let is_session = is_gateway(run);
        let who = if is_session { THE_CLIENT } else { THE_PROGRAM };
        let command = audience.pick(Some(command), None).filter(|_| !is_session);
        let flags = flags.filter(|_| command.is_some());
        Self { command, who, needs, flags, lifts, is_left_to_a_worker: false }
    }

    /// The same of a run in the queue. What a worker can go by is said to it, and the run stays its own: a person who is called to a service has
    /// neither its environment nor the time to drive the run in a terminal.
    pub fn of_queued(run: &RunRecord) -> Self {
        let next = Self::of(run);
        let flags = raise_flags(run).filter(|flags| is_taken_by_a_worker(flags));
        match flags.filter(|_| next.command.is_some() && next.needs == Needs::Nothing) {
            Some(flags) => {
                let id = works_for(run).unwrap_or(&run.run_id);
                let command = Some(format!("ua queue move {id} {flags}"));
                Self { command, is_left_to_a_worker: true, ..next }
            }
            None => next,
        }
    }

    /// The same of a run of a database that went back in time: `effects.log` knows more of it, or of its family, than the database. Every resume
    /// is refused, a program's and a worker's too, before somebody looked and accepted it.
    #[must_use]
    pub fn held(run: &RunRecord) -> Self {
        let id = works_for(run).unwrap_or(&run.run_id);
        let command = Some(format!("ua db accept {id}"));
        Self { command, needs: Needs::Acceptance, flags: None, lifts: true, ..Self::of(run) }
    }

    /// Whether it is the step of a run that is [held](NextStep::held).
    pub fn is_held(&self) -> bool {
        self.needs == Needs::Acceptance
    }

    /// Whether the command may be given wherever the queue is seen, since it only says what a worker goes by.
    pub fn is_left_to_a_worker(&self) -> bool {
        self.is_left_to_a_worker
    }

    /// The command, with the whole id of the run; `None` where only the program that started it resumes it, or the client whose session it is. What stands in it in capital letters
    /// is the person's to fill in.
    pub fn command(&self) -> Option<&str> {
        self.command.as_deref()
    }

    /// The flags with which the [command](NextStep::command) lifts what stopped the run, as they are typed; `None` where it has none.
    pub fn flags(&self) -> Option<&str> {
        self.flags.as_deref()
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

    /// Whether something outside has to be corrected before a resume gets the run further.
    pub fn needs_correction(&self) -> bool {
        self.needs == Needs::Correction
    }

    /// Whether resuming it gets the run further, at once or when something outside is corrected.
    pub fn is_resume(&self) -> bool {
        !matches!(self.needs, Needs::AnotherModel { .. } | Needs::Fork(_) | Needs::Acceptance)
    }

    /// What stands in front of the command where a run is shown with labels.
    pub fn label(&self) -> &'static str {
        match self.needs {
            Needs::Nothing => "Resume with",
            Needs::Correction => "Once corrected",
            Needs::AnotherModel { .. } | Needs::Fork(_) => "Continue with",
            Needs::End => "End it with",
            Needs::Acceptance => "Accept it with",
        }
    }

    /// The sentence that introduces the command.
    pub fn introduction(&self) -> &'static str {
        match self.needs {
            Needs::Nothing => "Resume it with:",
            Needs::End => "A person asked for its end. End it with:",
            Needs::Acceptance => {
                "effects.log knows more of it than the database, which is an older copy, so nobody resumes it. Find out what became of that \
                 (`ua db check` lists it), then accept it with:"
            }
            Needs::Correction => "A resume alone comes to the same. Once what stopped it is corrected, resume it with:",
            // A program has no command to fill in.
            Needs::Fork(ForkWith::Model) if self.command.is_none() => {
                "Its provider refuses the request, and a run keeps its model. It is continued with another model, in a fork, by:"
            }
            Needs::Fork(ForkWith::Job) if self.command.is_none() => {
                "Its provider refuses the request, and a run keeps its step. It is continued with what is refused corrected, in a fork, by:"
            }
            Needs::AnotherModel { .. } if self.command.is_none() => {
                "Its provider knows no model of its name, and a run keeps its model. It is continued with another model, in a fork, by:"
            }
            Needs::Fork(ForkWith::Model) => {
                "Its provider refuses the request, and a run keeps its model. Continue with another model, in another run, with its name instead of \
                 MODEL:"
            }
            Needs::Fork(ForkWith::Job) => {
                "Its provider refuses the request, and a run keeps its job. Continue with what it refuses corrected, in another run, with a JSON file \
                 of what is different instead of FILE:"
            }
            Needs::AnotherModel { is_named: true } => {
                "Its provider knows no model of its name, and a run keeps its model. Continue with another model, in another run:"
            }
            Needs::AnotherModel { is_named: false } => {
                "Its provider knows no model of its name, and a run keeps its model. Continue with another model, in another run, with its name \
                 instead of MODEL:"
            }
        }
    }

    /// What the command does, as it follows it: `` `ua resume r` finishes it ``.
    pub fn does(&self) -> &'static str {
        match self.needs {
            Needs::Nothing if self.is_left_to_a_worker => "has a worker continue it",
            Needs::Nothing => "finishes it",
            Needs::End => "ends it",
            Needs::Acceptance => {
                "lets it be resumed, once you have found out what became of what effects.log knows and the database does not (`ua db check`)"
            }
            Needs::Correction => "finishes it once what stopped it is corrected",
            Needs::Fork(ForkWith::Job) if self.command.is_none() => {
                "continues it, in a fork, with what its provider refuses corrected, since a run keeps its step"
            }
            Needs::Fork(ForkWith::Model) | Needs::AnotherModel { .. } if self.command.is_none() => {
                "continues it, in a fork, with another model, since a run keeps its own"
            }
            Needs::AnotherModel { is_named: true } => "continues it with another model, since a run keeps its own",
            Needs::Fork(ForkWith::Job) => {
                "continues it with what its provider refuses corrected (a JSON file of what is different instead of FILE), since a run keeps its job"
            }
            Needs::Fork(ForkWith::Model) | Needs::AnotherModel { is_named: false } => {
                "continues it with another model (its name instead of MODEL), since a run keeps its own"
            }
        }
    }
}

/// Whether a worker goes by what these flags of a resume say: other budgets, and the two components that are accepted as they are here now. What else
/// may be accepted is compared with what the run began with, by whoever drives it.
fn is_taken_by_a_worker(flags: &str) -> bool {
    flags
        .strip_prefix("--accept ")
        .is_none_or(|components| components.split(',').all(|one| matches!(one, "policy" | "servers")))
}

fn who(command: Option<&str>, otherwise: &str) -> String {
    command.map_or_else(|| otherwise.to_owned(), |command| format!("`{command}`"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ua_core::TASK_MODE;
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

    /// Nobody is sent to a resume that is refused for what `effects.log` knows, whoever resumes the run otherwise.
    #[test]
    fn a_run_of_an_older_copy_of_its_database_is_accepted_first() {
        let mut story = Story::new(r#"{"objective": "x"}"#);
        for status in [RunStatus::Running, RunStatus::Stopped, RunStatus::WaitingForHuman] {
            story.records.run.status = status;
            for entrypoint in [Audience::LIBRARY.to_owned(), story.records.run.entrypoint.clone()] {
                let run = RunRecord { entrypoint, ..story.records.run.clone() };
                let step = NextStep::held(&run);
                assert_eq!(step.command(), Some(format!("ua db accept {}", run.run_id).as_str()));
                assert!(step.is_held() && !step.is_resume() && !step.is_to_be_tried_again());
                assert_eq!(step.flags(), None);
                assert!(step.introduction().contains("`ua db check`") && step.does().contains("`ua db check`"));
                assert!(!NextStep::of(&run).is_held());
            }
        }
    }

    /// What a worker can go by leaves the run to it; what only a driving process can decide does not.
    #[test]
    fn a_run_in_the_queue_is_left_to_a_worker_where_one_can_go_by_what_is_said() {
        let mut story = Story::new(r#"{"objective": "x"}"#);
        let id = story.records.run.run_id.clone();
        for (reason, detail, flags) in [
            (RunStop::Budget, "tool calls: 5 of 5 used", None),
            (RunStop::Fingerprint, "policy changed: `ua resume r --accept policy`.", Some("--accept policy")),
            (RunStop::Fingerprint, "both: `ua resume r --accept policy,servers`.", Some("--accept policy,servers")),
            (RunStop::Fingerprint, "tools changed: `ua resume r --accept policy,tools`.", None),
            (RunStop::Fingerprint, "nothing that may be accepted", None),
            (
                RunStop::Provider,
                "busy. It asks for a wait of 2 h. Have it wait: `--max-provider-wait-minutes 121`.",
                Some("--max-provider-wait-minutes 121"),
            ),
            (RunStop::Interrupt, "", None),
            (RunStop::UnknownModel, "", None),
        ] {
            story.ends(RunStatus::Stopped, Some(reason), detail);
            let run = &story.records.run;
            let (alone, queued) = (NextStep::of(run), NextStep::of_queued(run));
            match flags {
                Some(flags) => {
                    assert_eq!(queued.command(), Some(format!("ua queue move {id} {flags}").as_str()), "{detail}");
                    assert_eq!((queued.does(), queued.is_left_to_a_worker()), ("has a worker continue it", true));
                    assert_eq!(queued.is_to_be_tried_again(), alone.is_to_be_tried_again(), "{detail}");
                }
                None => assert_eq!(queued, alone, "{reason} {detail}"),
            }
        }
        let stop = ua_core::BudgetStop::calls(3, 12);
        story.ends(RunStatus::Stopped, Some(RunStop::Budget), &stop.to_string());
        let step = NextStep::of_queued(&story.records.run);
        assert_eq!(step.command(), Some(format!("ua queue move {id} --max-tool-calls +9").as_str()));
        assert!(!step.is_to_be_tried_again(), "as it is, it comes to the same");
        // One that is to end is ended, and whatever it stopped at is no matter any more.
        story.records.run.cancel_requested_at = Some(story.records.run.created_at);
        assert_eq!(NextStep::of_queued(&story.records.run), NextStep::of(&story.records.run));
    }

    /// A sub-agent's run is resumed by no command of its own.
    #[test]
    fn a_sub_agent_is_resumed_with_the_run_whose_task_it_works_on() {
        let mut story = Story::new(r#"{"objective": "x"}"#);
        let detail = "busy. It asks for a wait of 2 h. Have it wait: `--max-provider-wait-minutes 121`.";
        story.ends(RunStatus::Stopped, Some(RunStop::Provider), detail);
        let mut run = story.records.run.clone();
        TASK_MODE.clone_into(&mut run.run_mode);
        run.parent_run_id = RunId::parse("job").ok();
        assert_eq!(NextStep::of(&run).command(), Some("ua resume job --max-provider-wait-minutes 121"));
        run.stop_reason = Some(RunStop::UnknownModel);
        assert_eq!(NextStep::of(&run).command(), Some("ua fork job --model MODEL"));
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

    /// The one command that has to be edited says what is to be put in; where a model is named it is typed as it stands.
    #[test]
    fn a_fork_with_another_model_names_one_or_says_that_it_is_to_be_named() {
        let next = |detail: &str| {
            let mut story = Story::new(r#"{"objective": "x"}"#);
            story.ends(RunStatus::Stopped, Some(RunStop::UnknownModel), detail);
            let id = story.records.run.run_id.clone();
            (NextStep::of(&story.records.run), id)
        };
        let (step, id) = next(
            "unknown; a fork of the run can take another model (`--model gpt-5`). A resume alone brings the same refusal.",
        );
        assert_eq!(step.command(), Some(format!("ua fork {id} --model gpt-5").as_str()));
        assert!(![step.introduction(), step.does()].concat().contains("MODEL"));
        for detail in ["unknown", "unknown (`--model a;b`)"] {
            let (step, id) = next(detail);
            assert_eq!(step.command(), Some(format!("ua fork {id} --model MODEL").as_str()), "{detail}");
            for words in [step.introduction(), step.does()] {
                assert!(words.contains("instead of MODEL"), "{words}");
            }
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
                // Of the setup: nothing that was named may be accepted.
                RunStop::ProviderRefused | RunStop::Fingerprint => (format!("ua resume {id}"), "Once corrected"),
                RunStop::Budget | RunStop::Interrupt | RunStop::Provider | RunStop::ToolServer | RunStop::Idle => {
                    (format!("ua resume {id}"), "Resume with")
                }
            };
            assert_eq!((step.command(), step.label()), (Some(command.as_str()), label), "{reason}");
            assert_eq!(step.needs_correction(), label == "Once corrected", "{reason}");
            assert_eq!((step.by(), step.who()), (command.as_str(), format!("`{command}`")), "{reason}");
            // What a program started is resumed by that program, whatever stopped it.
            let by_program = RunRecord { entrypoint: Audience::LIBRARY.to_owned(), ..run.clone() };
            let step = NextStep::of(&by_program);
            assert_eq!(
                (step.command(), step.by(), step.who()),
                (None, THE_PROGRAM, THE_PROGRAM.to_owned()),
                "{reason}"
            );
            let is_corrected = matches!(reason, RunStop::ProviderRefused | RunStop::Fingerprint);
            assert_eq!(step.introduction().contains("resume it"), is_corrected, "{reason}");
            // It has no command to fill in, and no job.
            let told = [step.introduction(), step.does()].concat();
            assert!(["MODEL", "FILE", "job"].iter().all(|word| !told.contains(word)), "{reason}: {told}");
            assert_eq!(step.is_resume(), reason != RunStop::UnknownModel);
            let as_it_is = !is_corrected && reason != RunStop::UnknownModel;
            assert_eq!(step.is_to_be_tried_again(), as_it_is, "{reason}");
        }
        // Where the text says what a fork is to have otherwise, that is the step.
        for with in [ForkWith::Model, ForkWith::Job] {
            let mut story = Story::new(r#"{"objective": "x"}"#);
            let detail = format!("refused; fork the run ({with}). A resume alone brings the same refusal.");
            story.ends(RunStatus::Stopped, Some(RunStop::ProviderRefused), &detail);
            let step = NextStep::of(&story.records.run);
            let command = format!("ua fork {} {}", story.records.run.run_id, with.flag());
            assert_eq!((step.command(), step.label()), (Some(command.as_str()), "Continue with"));
            assert!(!step.is_resume() && !step.needs_correction() && !step.is_to_be_tried_again());
            let to_fill_in = with.flag().rsplit_once(' ').unwrap().1;
            for words in [step.introduction(), step.does()] {
                assert!(words.contains(&format!("instead of {to_fill_in}")), "{words}");
            }
            story.records.run.cancel_requested_at = Some(story.records.run.created_at);
            assert!(NextStep::of(&story.records.run).is_resume());
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
