//! `ua completions`: a script that completes `ua` in a shell.

use clap::{Args, CommandFactory as _};
use clap_complete::Shell;
use clap_complete::env::Shells;

use crate::args::Cli;
use crate::complete::VARIABLE;
use crate::error::{HostError, OK};

/// `ua completions`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  bash    echo 'source <(ua completions bash)' >> ~/.bashrc
  zsh     echo 'source <(ua completions zsh)' >> ~/.zshrc
  fish    ua completions fish > ~/.config/fish/completions/ua.fish

The script asks `ua` itself while you type, and so knows the runs, calls and questions of the database. --static makes one that \
knows commands and flags only and never starts `ua`.")]
pub struct CompletionsArgs {
    /// bash, zsh, fish, elvish or powershell
    pub shell: Shell,
    /// Only commands and flags
    #[arg(long = "static")]
    pub is_static: bool,
}

pub(crate) fn run(args: &CompletionsArgs) -> Result<u8, HostError> {
    let mut script = Vec::new();
    if args.is_static {
        clap_complete::generate(args.shell, &mut Cli::command(), "ua", &mut script);
    } else {
        let name = args.shell.to_string();
        let shells = Shells::builtins();
        let shell =
            shells.completer(&name).ok_or_else(|| HostError::failed(format!("there is no completion for {name}")))?;
        shell
            .write_registration(VARIABLE, "ua", "ua", "ua", &mut script)
            .map_err(|e| HostError::failed(format!("cannot write the script: {e}")))?;
    }
    // As it is: a shell reads it, and escapes in it are its own.
    crate::output::print_document(&String::from_utf8_lossy(&script))?;
    Ok(OK)
}
