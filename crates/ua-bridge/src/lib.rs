//! What a client of tools starts in the place of a tool server: it carries lines between the client and the gateway's broker.
//!
//! A client ends its tool servers when it ends, and often before; the broker outlives both. So nothing is decided here. The bridge gives every
//! request line a name of its own, keeps it until its answer has been written to the client, and when the broker goes away it connects again,
//! starting the broker when it has to, and sends what is not answered once more under the same name, with what its client said of it since: that it
//! is cancelled. A client sees a pause.
//!
//! Invariants: a line reaches the broker as it came; an answer is written once; what was answered is said to the broker when it has been written,
//! not before; what its client took back is answered by nobody and never said to be; nothing is said to a broker of another user; of many that find no broker one starts it. No store, no runtime, and no reading of a
//! message beyond its id, its method and which request it cancels, by which nothing is decided but which lines are kept: what a line is, the broker judges.
//!
//! ```text
//! hello                         one line of JSON, first of all
//! R <name> <line>   a request   | A <name> <line>   its answer
//! S <name> <line>   one that an earlier broker may have had
//! N <line>   any other message  | L <line>          any other message
//! D <name>   its answer has been written         | W <words>   for a person, on standard error
//! Q          is it there?       | Q <millis>        it is, and its client waits so long for answers; `-`: as long as it takes
//! E <millis> <how>   the client has gone, so long after the last answer
//! ```
//!
//! A broker that says `Q` at first is asked before each request, which is said once it has answered: one that is stopped is told nothing that it
//! would do later, when nobody wants it any more. The hello has how long ago the client asked for what stands behind it.
//!
//! `how` is `signal` when it had the bridge ended, `closed` when it closed its input and is still there to read, and `eof` when that is not
//! known: it may have been killed with the last answer unread.

mod args;
mod carry;
mod claim;
mod line;
mod name;
mod options;
mod scan;
mod socket;

use std::ffi::{OsStr, OsString};
use std::io::{self, Write as _};
use std::process::ExitCode;

pub use args::{Args, WIRE};
pub use claim::{Claim, Claims, last_failure};
pub use options::Options;
pub use scan::{Parts, parts};
pub use socket::{Address, listen};

/// The arguments are not understood; the code that `ua` has for it.
const USAGE: u8 = 2;
/// There is no broker, and none could be started.
const UNAVAILABLE: u8 = 69;
/// The tool server's program is not there; the code that shells have for it.
const NO_PROGRAM: u8 = 127;

/// Runs the bridge with its raw arguments; what it returns is the exit code for `main`.
pub fn run(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    hide_from_others();
    let args: Vec<OsString> = args.into_iter().collect();
    if args == ["--version"] {
        // For whoever looks whether it is of the version of the `ua` beside it.
        let told = writeln!(io::stdout(), concat!("ua-bridge ", env!("CARGO_PKG_VERSION")));
        return if told.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    }
    let args = match Args::parse(args) {
        Ok(args) => args,
        Err(why) => return fail(USAGE, &why),
    };
    let environment = args::Environment::here();
    // The client is answered with it as well, by the broker; a person who tries the entry has nothing but this.
    if let Some(why) = args.missing_program(&environment) {
        say(&why);
    }
    match carry::carry(args.clone(), environment.clone()) {
        Ok(()) if args.missing_program(&environment).is_some() => ExitCode::from(NO_PROGRAM),
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(UNAVAILABLE, &error.to_string()),
    }
}

/// Keeps the client's keys and what `--env` gives, which this process has in its environment, from other programs of this user, tool servers of
/// the gateway among them: it is not theirs to read, and is written to no file when this process crashes. Where a system has no such wall, it has
/// none for `ua` either.
fn hide_from_others() {
    #[cfg(target_os = "linux")]
    let _hidden = nix::sys::prctl::set_dumpable(false);
    let _no_core = nix::sys::resource::setrlimit(nix::sys::resource::Resource::RLIMIT_CORE, 0, 0);
}

fn fail(code: u8, why: &str) -> ExitCode {
    say(why);
    ExitCode::from(code)
}

/// A name of the file system as it may stand in a sentence: whoever makes a folder chooses its name, and no name begins a line there.
fn shown(name: &OsStr) -> String {
    let name = name.to_string_lossy();
    let mut out = String::with_capacity(name.len());
    for c in name.chars() {
        if c.is_control() { out.extend(c.escape_default()) } else { out.push(c) }
    }
    out
}

fn say(why: &str) {
    // Nobody may be left to read it.
    let _unread = writeln!(io::stderr(), "ua gateway: {why}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_name_begins_a_line() {
        let shown = |name: &str| shown(OsStr::new(name));
        assert_eq!(shown("a\n\r\u{1b}[2J\u{85}b"), "a\\n\\r\\u{1b}[2J\\u{85}b");
        assert_eq!(shown("/opt/a b/水車"), "/opt/a b/水車");
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn what_the_bridge_was_given_is_for_no_other_program_of_the_user() {
        hide_from_others();
        assert_eq!(nix::sys::prctl::get_dumpable(), Ok(false));
        assert_eq!(nix::sys::resource::getrlimit(nix::sys::resource::Resource::RLIMIT_CORE), Ok((0, 0)));
    }
}
