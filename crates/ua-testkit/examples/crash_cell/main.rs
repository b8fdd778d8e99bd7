//! One process of one cell of `cargo xtask crash-matrix`.
//!
//! Small on purpose: the real machine, dispatcher, ledger and SQLite store with a scripted model in this process, and tools in a
//! process of their own that reach the outside world through a third one. A harness starts thousands of these and kills them.
//!
//! | role | what it is |
//! |---|---|
//! | `life` | one life of the runner: starts or resumes the run of a folder and drives it until it ends, waits or is killed |
//! | `server` | the tool server that a life starts: takes calls line by line, asks the observer to do them |
//! | `observer` | the outside world: does effects, remembers keys, keeps a log of its own, outlives everybody |
//! | `restore` | puts the copy of the database back that a life made with `--copy` |
//! | `outcomes` | prints what of everything that can come of a crossing no cell plays, with the reason |

mod attendant;
mod clock;
mod life;
mod observer;
mod options;
mod outcomes;
mod replaced;
mod server;
mod state;
mod transport;
mod tree_driver;

use std::io::Write as _;
use std::process::ExitCode;

use options::Options;

fn main() -> ExitCode {
    let mut words = std::env::args().skip(1);
    let role = words.next().unwrap_or_default();
    let options = Options::read(words);
    let done = match role.as_str() {
        "life" => life::run(&options),
        "server" => server::serve(&options).map(|()| ExitCode::SUCCESS),
        "observer" => observer::serve(&options).map(|()| ExitCode::SUCCESS),
        "restore" => life::restore(&options).map(|()| ExitCode::SUCCESS),
        "outcomes" => {
            let lines = outcomes::not_played().join("\n") + "\n";
            std::io::stdout().write_all(lines.as_bytes()).map(|()| ExitCode::SUCCESS).map_err(Into::into)
        }
        other => Err(format!("{other:?} is no role; expected life, server, observer, restore or outcomes").into()),
    };
    done.unwrap_or_else(|error| {
        eprintln!("{role}: {error}");
        ExitCode::FAILURE
    })
}
