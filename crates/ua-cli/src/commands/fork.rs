//! `ua fork`: go on from a turn of a run as another run.

use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use ua_core::RunId;
use ua_host::budgets::BudgetChange;
use ua_host::fork::{Fork, ForkRequest};
use ua_host::{Host, People};
use ua_runner::{FileFate, ForkPlan};
use ua_store::RunRecord;

use crate::args::{BudgetArgs, LaunchArgs, not_empty};
use crate::error::{HostError, OK, code_of_end};
use crate::find;
use crate::output::{plain, print, print_json, tell};
use crate::people::AtTerminal;
use crate::view::ForkShown;

/// `ua fork`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ua fork last
      branch off after the last turn
  ua fork run_01… --at-turn 12
      … after turn 12
  ua fork last --job-overrides changes.json
      … with another prompt, inputs or model
  ua fork last --model claude-opus-4-5 --max-turns 40 --dry-run
  ua runs diff run_01… last
      compare both

A fork shares the turns of its parent and copies none of them. It has budgets of its own and a workspace of its own with the files \
that were recorded up to that turn. What the parent, or any other run of the lineage, did outside is not done again: the fork is told \
of it, and a call that might repeat it asks a person. The parent is not changed; it may even be running.")]
pub struct ForkArgs {
    /// The run to fork: a run id, a unique prefix or suffix of one, or `last`
    pub run: String,
    /// Name of the fork
    #[arg(long, value_parser = not_empty(), value_name = "ID")]
    pub run_id: Option<String>,
    /// What is different
    #[command(flatten)]
    pub changes: ForkChanges,
    /// Only show what would be shared, changed and copied
    #[arg(long)]
    pub dry_run: bool,
    /// How to start it
    #[command(flatten)]
    pub launch: LaunchArgs,
    /// Another budget
    #[command(flatten)]
    pub budgets: BudgetArgs,
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

/// A fork, as a person asks for it.
#[derive(Debug)]
pub(crate) struct ForkArguments<'a> {
    /// The run to fork.
    pub(crate) run: &'a str,
    /// The fork's name.
    pub(crate) run_id: Option<&'a str>,
    pub(crate) changes: &'a ForkChanges,
    pub(crate) launch: &'a LaunchArgs,
    pub(crate) budgets: Vec<BudgetChange>,
    pub(crate) dry_run: bool,
}

pub(crate) async fn run(host: &Host, args: ForkArgs) -> Result<u8, HostError> {
    let wanted = ForkArguments {
        run: &args.run,
        run_id: args.run_id.as_deref(),
        changes: &args.changes,
        launch: &args.launch,
        budgets: args.budgets.changes()?,
        dry_run: args.dry_run,
    };
    fork(host, wanted).await
}

/// Makes the fork and drives it.
pub(crate) async fn fork(host: &Host, wanted: ForkArguments<'_>) -> Result<u8, HostError> {
    let run_id = wanted.run_id.map(RunId::parse).transpose().map_err(|e| {
        HostError::usage(format!("cannot use --run-id: {e}")).hint("leave --run-id out to have an id generated")
    })?;
    let mut people = AtTerminal::new(wanted.launch.quiet, wanted.launch.no_input);
    // Its files are read, compared and copied.
    people.preparing(host.env(), "preparing the fork");
    let inspector = host.home().open_read_only()?;
    let parent = find::run(&inspector, wanted.run).await?;
    let options = wanted.launch.options();
    let request = ForkRequest {
        parent: &parent,
        run_id: run_id.as_ref(),
        at_turn: wanted.changes.at_turn,
        job_overrides: wanted.changes.job_overrides.as_deref(),
        budgets: &wanted.budgets,
        launch: &options,
    };
    let mut fork = Fork::plan(host, &inspector, request).await?;
    if wanted.dry_run {
        if crate::terminal::is_json() {
            print_json(&shown(&fork.plan, None))?;
        } else {
            print(text(&fork.plan, true))?;
        }
        return Ok(OK);
    }
    drop(inspector);

    let (store, run) = fork.make(host).await?;
    if !crate::terminal::is_json() && !wanted.launch.quiet {
        tell(text(&fork.plan, false).trim_end());
    }
    people.fork = Some(shown(&fork.plan, Some(&run)));
    let people: Arc<dyn People> = Arc::new(people);
    Ok(code_of_end(fork.drive(host, &people, store, run).await?))
}

/// The fork in words.
fn text(plan: &ForkPlan, is_dry_run: bool) -> String {
    let (verb, copied_words, changed_words) = if is_dry_run {
        ("would be", "files that would be copied from its workspace", "would change in the job")
    } else {
        ("is", "files copied from its workspace", "changed in the job")
    };
    let parent = &plan.parent.run;
    let id = crate::ids::short(parent.run_id.as_str());
    let mut out = format!("a fork of run {id} {verb} made after turn {} of {}\n", plan.at_turn, parent.turn_index);
    if !plan.changes.is_empty() {
        out.push_str(&format!("{changed_words}\n"));
    }
    for change in &plan.changes {
        out.push_str(&format!("  {}\n", plain(&change.to_string())));
    }
    let copied = plan.files.iter().filter(|file| file.fate == FileFate::Copied).count();
    out.push_str(&format!("{copied_words}: {copied}\n"));
    for (file, why) in plan.files.iter().filter_map(|file| Some((file, file.fate.why_not()?))) {
        out.push_str(&format!("  not copied: {} ({why})\n", plain(&file.path)));
    }
    out
}

/// The fork for a machine.
fn shown(plan: &ForkPlan, fork: Option<&RunRecord>) -> ForkShown {
    let parent = &plan.parent.run;
    ForkShown {
        run_id: fork.map(|fork| fork.run_id.clone()),
        parent_run_id: parent.run_id.clone(),
        root_run_id: parent.root_run_id.clone(),
        forked_at_turn: plan.at_turn,
        workspace_dir: fork.map(|fork| PathBuf::from(&fork.workspace_dir)),
        job_changes: plan.changes.clone(),
        files: plan.files.clone(),
    }
}
