//! `ua fork`, and what `ua job --fork` takes besides.

use std::path::PathBuf;

use clap::Args;

use super::{BudgetArgs, LaunchArgs};

/// `ua fork`.
#[derive(Debug, Args)]
#[command(
    arg_required_else_help = true,
    after_help = "\
Examples:
  ua fork last                                    branch off from the last turn as another run
  ua fork run_01… --at-turn 12                    … from turn 12
  ua fork last --job-overrides changes.json       … with another prompt, other inputs or another model
  ua fork last --model claude-opus-4-5 --max-turns 40 --dry-run
  ua runs diff run_01… last                       what came of both

A fork shares the turns of its parent and copies none of them. It has budgets of its own and a workspace of its own with the files
that were recorded up to that turn. What the parent, or any other run of the lineage, did outside is not done again: the fork is told
of it, and a call that might repeat it asks a person. The parent is left alone; it may even be running."
)]
pub struct ForkArgs {
    /// The run to fork: its id, the beginning of one, or `last`
    pub run: String,
    /// Name of the fork
    #[arg(long, value_name = "ID")]
    pub run_id: Option<String>,
    /// What is different
    #[command(flatten)]
    pub changes: ForkChanges,
    /// How to start it
    #[command(flatten)]
    pub launch: LaunchArgs,
    /// Another budget
    #[command(flatten)]
    pub budgets: BudgetArgs,
    /// Only show what would be shared, changed and copied
    #[arg(long)]
    pub dry_run: bool,
}

/// What is different in a fork.
#[derive(Debug, Args, Default)]
pub struct ForkChanges {
    /// The last turn to share [default: the last committed one]
    #[arg(long, value_name = "N")]
    pub at_turn: Option<u32>,
    /// JSON file that is merged into the job: other values replace, null removes a field
    #[arg(long, value_name = "FILE")]
    pub job_overrides: Option<PathBuf>,
}
