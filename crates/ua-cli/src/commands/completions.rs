//! `ua completions`: a script that completes `ua` in a shell.

use clap::CommandFactory as _;
use clap_complete::env::Shells;

use crate::args::{Cli, CompletionsArgs};
use crate::complete::VARIABLE;
use crate::error::{HostError, OK};

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
