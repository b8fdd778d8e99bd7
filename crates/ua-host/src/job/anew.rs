//! The command that starts another run of a job: what was typed, with the word that says so. Whoever types what is printed has the tool servers,
//! the policies and the model of the command that was refused.

use std::path::PathBuf;

use ua_resume::shell_word;

use super::{Iterations, JobRequest};
use crate::launch::LaunchOptions;

impl JobRequest {
    /// The command that asks for another run of this job, whatever runs of it there are, with all that this one was asked with.
    pub(super) fn anew(&self) -> String {
        let mut command = format!(
            "ua {} {} --new{}",
            if self.for_queue { "submit" } else { "job" },
            shell_word(&self.file.display().to_string()),
            self.launch.flags()
        );
        match &self.iterations {
            None => {}
            Some(Iterations { max: None, completion_promise: None }) => command.push_str(" --harness"),
            Some(Iterations { max, completion_promise }) => {
                command.extend(max.map(|max| format!(" --max-iterations {max}")));
                let promise = completion_promise.as_deref().map(shell_word);
                command.extend(promise.map(|promise| format!(" --completion-promise {promise}")));
            }
        }
        command
    }
}

impl LaunchOptions {
    /// The same as flags of a command, each with a blank in front of it.
    fn flags(&self) -> String {
        let Self { provider, model, mcp_config, policy, pricing, cassette, record, allow_private_addresses } = self;
        let path = |flag, path: &PathBuf| (flag, path.display().to_string());
        let words = provider.iter().map(|name| ("--provider", name.clone()));
        let words = words.chain(model.iter().map(|name| ("--model", name.clone())));
        let words = words.chain(mcp_config.iter().map(|file| path("--mcp-config", file)));
        let words = words.chain(policy.iter().map(|file| path("--policy", file)));
        let words = words.chain(pricing.iter().map(|file| path("--pricing", file)));
        let words = words.chain(cassette.iter().map(|file| path("--cassette", file)));
        let words = words.chain(record.iter().map(|file| path("--record", file)));
        let mut flags = String::new();
        for (flag, word) in words {
            flags.extend([" ", flag, " ", &ua_resume::shell_word(&word)]);
        }
        if *allow_private_addresses {
            flags.push_str(" --allow-private-addresses");
        }
        flags
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each option by itself and all together: none is lost, and a shell reads each as it was.
    #[test]
    fn the_command_for_another_run_has_all_that_was_typed() {
        let plain = || JobRequest { file: "my job.json".into(), ..JobRequest::default() };
        assert_eq!(plain().anew(), "ua job 'my job.json' --new");
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
        assert!(iterated(None, None).ends_with(" --new --harness"));
        assert!(
            iterated(Some(3), Some("ALL DONE")).ends_with(" --new --max-iterations 3 --completion-promise 'ALL DONE'")
        );
    }
}
