//! `ua resume`: go on with a run.

use std::sync::Arc;

use ua_host::launch::LaunchOptions;
use ua_host::resume::{self, Changes};
use ua_host::{Host, People};

use crate::args::ResumeArgs;
use crate::error::{HostError, code_of_end};
use crate::find;
use crate::people::AtTerminal;

use super::accept;

pub(crate) async fn run(host: &Host, args: ResumeArgs) -> Result<u8, HostError> {
    let accept = accept::components(&args.accept)?;
    let people = AtTerminal::new(args.quiet, args.no_input);
    let launch = LaunchOptions { mcp_config: args.mcp_config, pricing: args.pricing, ..LaunchOptions::default() };
    let changes = Changes { accept, budgets: args.budgets.changes()? };
    by_name(host, people, &args.run, &launch, changes, args.take_over).await
}

/// Resumes the run that a person named.
pub(crate) async fn by_name(
    host: &Host,
    people: AtTerminal,
    name: &str,
    launch: &LaunchOptions,
    changes: Changes,
    take_over: bool,
) -> Result<u8, HostError> {
    // Looked up without touching anything first, so that a typing error changes nothing.
    let found = find::run(&host.home().open_read_only()?, name).await?;
    let people: Arc<dyn People> = Arc::new(people);
    Ok(code_of_end(resume::found(host, &people, &found, launch, changes, take_over).await?))
}
