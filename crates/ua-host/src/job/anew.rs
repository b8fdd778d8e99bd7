//! The command that starts another run of a job: what was typed, with the word that says so. Whoever types what is printed has the tool servers,
//! the policies and the model of the command that was refused.

use std::ffi::OsStr;
use std::path::Path;

use ua_core::PrintedCommand;

use super::{Iterations, JobRequest};
use crate::launch::LaunchOptions;
use crate::paths::NO_FILE;

impl JobRequest {
    /// The same as words of a sentence: a job that came on standard input has to be given there again, or the command waits for it in silence.
    pub(super) fn anew_in_words(&self) -> String {
        let again = if self.is_on_standard_input() { " with the job on standard input again" } else { "" };
        format!("`{}`{again}", self.anew())
    }

    fn is_on_standard_input(&self) -> bool {
        self.file == Path::new(NO_FILE)
    }

    /// The command that asks for another run of this job, whatever runs of it there are, with all that this one was asked with.
    fn anew(&self) -> String {
        let command = PrintedCommand::of(if self.for_queue { "ua submit" } else { "ua job" });
        // A word of ours: it would be read as an option otherwise.
        let command = if self.is_on_standard_input() { command.with(NO_FILE) } else { command.word(&self.file) };
        let command = self.launch.asked_with(command.with("--new"));
        let patience = self.max_provider_wait_minutes.iter();
        let command =
            patience.fold(command, |command, wait| command.option("--max-provider-wait-minutes", wait.to_string()));
        let Some(Iterations { max, completion_promise }) = &self.iterations else { return command.to_string() };
        if max.is_none() && completion_promise.is_none() {
            return command.with("--harness").to_string();
        }
        let command = max.iter().fold(command, |command, max| command.option("--max-iterations", max.to_string()));
        let promises = completion_promise.iter();
        promises.fold(command, |command, promise| command.option("--completion-promise", promise)).to_string()
    }
}

impl LaunchOptions {
    /// A command with the same as options.
    fn asked_with(&self, command: PrintedCommand) -> PrintedCommand {
        let Self { provider, model, mcp_config, policy, pricing, cassette, record, allow_private_addresses } = self;
        let words = provider.iter().map(|name| ("--provider", OsStr::new(name)));
        let words = words.chain(model.iter().map(|name| ("--model", OsStr::new(name))));
        let words = words.chain(mcp_config.iter().map(|file| ("--mcp-config", file.as_os_str())));
        let words = words.chain(policy.iter().map(|file| ("--policy", file.as_os_str())));
        let words = words.chain(pricing.iter().map(|file| ("--pricing", file.as_os_str())));
        let words = words.chain(cassette.iter().map(|file| ("--cassette", file.as_os_str())));
        let words = words.chain(record.iter().map(|file| ("--record", file.as_os_str())));
        let command = words.fold(command, |command, (option, word): (_, &OsStr)| command.option(option, word));
        if *allow_private_addresses { command.with("--allow-private-addresses") } else { command }
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    /// Each option by itself and all together: none is lost, and a shell reads each as it was.
    #[test]
    fn the_command_for_another_run_has_all_that_was_typed() {
        let plain = || JobRequest { file: "my job.json".into(), ..JobRequest::default() };
        assert_eq!(plain().anew(), "ua job 'my job.json' --new");
        assert_eq!(plain().anew_in_words(), "`ua job 'my job.json' --new`");
        let piped = || JobRequest { file: NO_FILE.into(), ..JobRequest::default() };
        assert_eq!(piped().anew_in_words(), "`ua job - --new` with the job on standard input again");
        let queued = JobRequest { for_queue: true, ..piped() };
        assert_eq!(queued.anew_in_words(), "`ua submit - --new` with the job on standard input again");
        let file = || Some(PathBuf::from("a b.json"));
        let launches = [
            (LaunchOptions { provider: Some("openai".to_owned()), ..LaunchOptions::default() }, " --provider openai"),
            (LaunchOptions { model: Some("m".to_owned()), ..LaunchOptions::default() }, " --model m"),
            (LaunchOptions { mcp_config: file(), ..LaunchOptions::default() }, " --mcp-config 'a b.json'"),
            (
                LaunchOptions { policy: vec!["p".into(), "q".into()], ..LaunchOptions::default() },
                " --policy p --policy q",
            ),
            (LaunchOptions { pricing: file(), ..LaunchOptions::default() }, " --pricing 'a b.json'"),
            (LaunchOptions { cassette: file(), ..LaunchOptions::default() }, " --cassette 'a b.json'"),
            (LaunchOptions { record: file(), ..LaunchOptions::default() }, " --record 'a b.json'"),
            (LaunchOptions { allow_private_addresses: true, ..LaunchOptions::default() }, " --allow-private-addresses"),
        ];
        for (launch, flags) in launches {
            let request = JobRequest { launch, for_queue: true, ..plain() };
            assert_eq!(request.anew(), format!("ua submit 'my job.json' --new{flags}"));
        }
        let iterated = |max, promise: Option<&str>| {
            let iterations = Iterations { max, completion_promise: promise.map(str::to_owned) };
            JobRequest { iterations: Some(iterations), ..plain() }.anew()
        };
        let patient = JobRequest { max_provider_wait_minutes: Some(120), ..plain() };
        assert_eq!(patient.anew(), "ua job 'my job.json' --new --max-provider-wait-minutes 120");
        assert!(iterated(None, None).ends_with(" --new --harness"));
        assert!(
            iterated(Some(3), Some("ALL DONE")).ends_with(" --new --max-iterations 3 --completion-promise 'ALL DONE'")
        );
    }
}
