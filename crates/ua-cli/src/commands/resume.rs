//! `ua resume`: go on with a run.

use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use clap_complete::engine::ArgValueCompleter;
use ua_core::RunStatus;
use ua_host::job::LAST;
use ua_host::launch::LaunchOptions;
use ua_host::restart;
use ua_host::resume::{self, Changes};
use ua_host::standing::standings;
use ua_host::{Host, People};
use ua_resume::Standing;
use ua_store::{RunQuery, Store as _};

use super::accept;
use crate::args::{BudgetArgs, not_empty};
use crate::error::{HostError, code_of_end};
use crate::output::line;
use crate::people::AtTerminal;
use crate::{complete, find};

/// `ua resume`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ua resume last
  ua resume run_019 --max-tool-calls +100  raise a budget that was reached
  ua resume last --phase crawl --max-cost +1.50
  ua resume last --accept tools,policy     resume although these changed
  ua resume last --take-over               end a hung process and take its place

A run that is finished is shown, not run: exit code 0 if it succeeded.")]
pub struct ResumeArgs {
    /// A run id, a unique prefix or suffix of one, or `last`
    #[arg(add = ArgValueCompleter::new(complete::runs))]
    pub run: String,
    /// File with an `mcpServers` object [default: the one the run was started with]
    #[arg(long, value_name = "FILE")]
    pub mcp_config: Option<PathBuf>,
    /// End the process that drives the run now, if there is one, and take its place
    #[arg(long)]
    pub take_over: bool,
    /// Price table [default: the one the run was started with]
    #[arg(long, value_name = "FILE")]
    pub pricing: Option<PathBuf>,
    /// Resume with what changed: policy, tools, servers, pricing, blob-threshold; several with commas
    #[arg(long, value_parser = not_empty(), value_name = "COMPONENT", value_delimiter = ',', add = ArgValueCompleter::new(complete::components))]
    pub accept: Vec<String>,
    /// Print nothing but questions, errors, warnings and the final summary
    #[arg(long, short)]
    pub quiet: bool,
    /// Never ask on the terminal; a run that needs a person ends with exit code 75
    #[arg(long)]
    pub no_input: bool,
    /// Another budget
    #[command(flatten)]
    pub budgets: BudgetArgs,
}

pub(crate) async fn run(host: &Host, args: ResumeArgs) -> Result<u8, HostError> {
    let accept = accept::components(&args.accept)?;
    let people = AtTerminal::new(args.quiet, args.no_input);
    people.preparing(host.env(), "looking at the run");
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
    let looked = host.home().open_read_only()?;
    let found = find::run(&looked, name).await?;
    let people: Arc<dyn People> = Arc::new(people);
    let code = code_of_end(resume::found(host, &people, looked, &found, launch, changes, take_over).await?);
    if name == LAST && found.status.is_terminal() {
        tell_of_others(host, people.as_ref()).await?;
    }
    Ok(code)
}

/// How many runs are named that somebody may have meant.
const NAMED: usize = 3;

/// Whoever names the newest run and finds it finished may have meant one that is not: says which there are, the newest first, and how each is
/// resumed.
async fn tell_of_others(host: &Host, people: &dyn People) -> Result<(), HostError> {
    let home = host.home();
    let store = home.open_read_only()?;
    let fail = |error: &ua_store::StoreError| HostError::store("look for runs that are not finished", error);
    let statuses = vec![RunStatus::Running, RunStatus::WaitingForHuman, RunStatus::Stopped];
    let query = RunQuery { statuses, limit: u32::MAX, without_tasks: true, ..RunQuery::default() };
    let runs = store.find_runs(&query).await.map_err(|e| fail(&e))?;
    let standings = standings(home, &store, &runs).await?;
    let is_left = |standing: &Standing| {
        standing.waits_for_a_resume() || matches!(standing, Standing::Stored(RunStatus::WaitingForHuman, _))
    };
    // A session of the gateway is its client's to continue.
    let left: Vec<_> = runs
        .iter()
        .zip(&standings)
        .filter(|(run, standing)| is_left(standing) && run.run_mode != ua_store::GATEWAY_MODE)
        .collect();
    for (head, standing) in left.iter().take(NAMED) {
        let run = store.run(&head.run_id).await.map_err(|e| fail(&e))?;
        people.tell(&format!(
            "not finished: run {} ({}, {standing}): {}",
            run.run_id,
            line(&head.objective, 60),
            restart::how_to_resume(&store, &run.run_id).await?
        ));
    }
    if left.len() > NAMED {
        people.tell(&format!("{} more are not finished: `ua status`", left.len() - NAMED));
    }
    ua_host::home::close(store);
    Ok(())
}
