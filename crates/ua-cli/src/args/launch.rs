//! How a run is started: flags of `ua job`, `ua fork` and `ua submit`.

use std::path::PathBuf;

use clap::Args;
use clap_complete::engine::ArgValueCompleter;
use ua_host::launch::LaunchOptions;

use crate::args::not_empty;
use crate::complete;

/// How a run is started.
#[derive(Debug, Args, Default)]
pub struct LaunchArgs {
    /// Model provider: anthropic, openai, openai-chat, claude-code, scripted or replay [default: the job's, else anthropic]
    #[arg(long, value_parser = not_empty(), value_name = "NAME", add = ArgValueCompleter::new(complete::providers))]
    pub provider: Option<String>,
    /// The provider's name of the model [default: the job's, else ANTHROPIC_MODEL or OPENAI_MODEL]
    #[arg(long, value_parser = not_empty(), value_name = "NAME", add = ArgValueCompleter::new(complete::models))]
    pub model: Option<String>,
    /// File with an `mcpServers` object [default: .mcp.json if there is one]
    #[arg(long, value_name = "FILE")]
    pub mcp_config: Option<PathBuf>,
    /// Policy file (TOML) that takes precedence over all others; may be repeated
    #[arg(long, value_name = "FILE")]
    pub policy: Vec<PathBuf>,
    /// Price table, TOML or JSON [default: UA_PRICING, else pricing.toml in the user's configuration]
    #[arg(long, value_name = "FILE")]
    pub pricing: Option<PathBuf>,
    /// Cassette that `--provider replay` answers from: a file, or a folder of them [default: UA_CASSETTE]
    #[arg(long, value_name = "PATH")]
    pub cassette: Option<PathBuf>,
    /// Keep every exchange with the model in this cassette; if it is an existing folder, in a file with the run's name
    #[arg(long, value_name = "PATH")]
    pub record: Option<PathBuf>,
    /// Let crawls reach loopback and private addresses
    #[arg(long)]
    pub allow_private_addresses: bool,
    /// Print nothing but questions, errors, warnings and the final summary
    #[arg(long, short)]
    pub quiet: bool,
    /// Never ask on the terminal; a run that needs a person ends with exit code 75
    #[arg(long)]
    pub no_input: bool,
}

impl LaunchArgs {
    /// The same without what concerns this terminal.
    pub(crate) fn options(&self) -> LaunchOptions {
        LaunchOptions {
            provider: self.provider.clone(),
            model: self.model.clone(),
            mcp_config: self.mcp_config.clone(),
            policy: self.policy.clone(),
            pricing: self.pricing.clone(),
            cassette: self.cassette.clone(),
            record: self.record.clone(),
            allow_private_addresses: self.allow_private_addresses,
        }
    }
}
