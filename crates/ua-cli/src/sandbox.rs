//! This program under the hidden name by which it confines a program that a job starts with `run_command`.
//!
//! The walls themselves are `ua_toolserver`'s. They are set up by this very program under a hidden name ([`CONFINED`]), which runs in front
//! of everything else in `main`: it reads no configuration, because the folder it is started in is the model's.

/// The hidden name under which this program confines itself and becomes, or starts, a program of `run_command`.
pub(crate) const CONFINED: &str = "__confined";

/// Runs as the hidden program, when this process was started as that; its exit code then.
pub(crate) fn run() -> Option<std::process::ExitCode> {
    let mut args = std::env::args_os().skip(1).peekable();
    args.next_if(|word| word == CONFINED)?;
    Some(std::process::ExitCode::from(u8::try_from(ua_toolserver::run_confined(args)).unwrap_or(1)))
}

/// This program under its hidden name.
pub(crate) fn confiner(settings: &ua_host::Settings) -> Option<ua_toolserver::Confiner> {
    let program = settings.program().ok()?;
    Some(ua_toolserver::Confiner { program, args: vec![CONFINED.into()] })
}
