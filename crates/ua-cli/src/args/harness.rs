//! How a job goes on in further contexts: flags of `ua job`.

use clap::Args;

const HEADING: &str = "Iterations (a long job in several contexts)";

/// Iterations. Any of these turns them on; what is not given is as the job file says.
#[derive(Debug, Args, Default)]
pub struct HarnessArgs {
    /// Continue with an empty context and a hand-off when one context is full
    #[arg(long, help_heading = HEADING, conflicts_with_all = ["resume", "fork"])]
    pub harness: bool,
    /// The most iterations that may begin [default: the job's, else 10]; turns --harness on
    #[arg(long, help_heading = HEADING, value_name = "N", conflicts_with_all = ["resume", "fork"], value_parser = clap::value_parser!(u32).range(1..))]
    pub max_iterations: Option<u32>,
    /// What the model has to say between `<promise>` tags when the job is done; counts only with evidence. Turns --harness on
    #[arg(long, help_heading = HEADING, value_name = "TEXT", conflicts_with_all = ["resume", "fork"])]
    pub completion_promise: Option<String>,
}

impl HarnessArgs {
    /// Whether iterations are asked for on the command line.
    pub fn is_given(&self) -> bool {
        self.harness || self.max_iterations.is_some() || self.completion_promise.is_some()
    }
}
