//! `ua models`.

use clap::Subcommand;

/// `ua models …`.
#[derive(Debug, Subcommand)]
pub enum ModelsCommand {
    /// List the models that are known by name
    #[command(after_help = "\
Examples:
  ua models list
  ua models list --provider anthropic
  ua models list --json | jq '.[] | select(.context_tokens > 500000)'

Entries of the user's models.toml (or UA_MODELS) lie over those of this version. Prices are those of the day that is shown; what a
run is charged is what your own price table says.")]
    List {
        /// Only those of this provider
        #[arg(long, value_name = "NAME")]
        provider: Option<String>,
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// Show what a run with a model would work with, known or not
    #[command(
        arg_required_else_help = true,
        after_help = "\
Examples:
  ua models show claude-sonnet-4-5
  ua models show qwen3:8b --provider openai-chat"
    )]
    Show {
        /// The provider's name of the model
        model: String,
        /// The provider [default: UA_PROVIDER, else anthropic]
        #[arg(long, value_name = "NAME")]
        provider: Option<String>,
        /// As JSON
        #[arg(long)]
        json: bool,
    },
}
