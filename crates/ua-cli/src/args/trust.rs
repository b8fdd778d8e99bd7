//! `ua trust`.

use std::path::PathBuf;

use clap::Args;

/// `ua trust`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ua trust                   show the servers of .mcp.json, and ask whether to let them in
  ua trust --yes             let them in without asking
  ua trust --list            which servers are trusted, and whether they are still what they were
  ua trust --revoke          take the word back
  ua trust DIR               take the runs in a folder for yours, whoever made it
  ua trust policy.toml       let the policy file of a job lower caution, too

A .mcp.json that lies in the current folder is not used before that: no program of it is started and no address of it is reached.
Any change to a command, its arguments, environment, program file, script, address or headers asks again. A file that you name with
--mcp-config is yours and needs no word. Nor are the runs of an AGENT_RUN_WORKSPACES used that somebody else made, until you name the
folder: `ua trust AGENT_RUN_WORKSPACES` takes it for yours. A policy file that a job names can only raise caution, until you have seen
and trusted it as it is; one that you name with --policy is yours. docs/security.md says why.")]
pub struct TrustArgs {
    /// The configuration [default: .mcp.json of the current folder], a job's policy file (.toml), or a folder of workspaces that is yours
    #[arg(value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// List what is trusted, of FILE or of all files
    #[arg(long, conflicts_with_all = ["revoke", "yes"])]
    pub list: bool,
    /// Let nothing of the file in any more
    #[arg(long, conflicts_with = "yes")]
    pub revoke: bool,
    /// Do not ask
    #[arg(long)]
    pub yes: bool,
    /// With --yes: also servers that fetch whatever version of a package there is that day (npx -y pkg@latest)
    #[arg(long, requires = "yes")]
    pub allow_unpinned: bool,
    /// Let what the servers say of their tools (readOnlyHint) confirm what the tools' names suggest
    #[arg(long, conflicts_with_all = ["list", "revoke"])]
    pub trust_annotations: bool,
}
