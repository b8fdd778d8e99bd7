//! A page that is read in a process of its own, which can be ended.
//!
//! What reads HTML cannot be stopped in the middle, and no thread can be ended from outside. What a page costs grows with its length (`bounded`), so a
//! short one is read where it came to; a long one is given to a process that takes from itself the time and the memory that it may not use, and that
//! ends with whoever waits for it.
//!
//! What is said between the two is one value of JSON each.

use std::borrow::Cow;
use std::io::{self, Read as _, Write as _};
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Resource, Rlimit, Signal};
use serde::{Deserialize, Serialize};
use ua_core::ShowPath as _;
use url::Url;

use super::page::{self, Parts};
use crate::answer::Failure;
use crate::page_reader::{PageReader, READ_FOR};

/// How many bytes of HTML are read where they came to; longer pages are read apart.
pub(super) const SHORT: usize = 64 * 1024;
/// The most memory for one page.
const MEMORY_BYTES: u64 = 2 << 30;
/// The most that a reader says, in bytes. Markdown is hardly longer than its page.
const MOST_SAID: u64 = 128 << 20;

impl PageReader {
    /// What the page says, or why it is not read; `None` where no process can be started, as while the program is replaced.
    pub(super) fn read(&self, source: &Url, html: &str) -> Option<Result<Parts, Failure>> {
        let started = Command::new(&self.program)
            .args(&self.args)
            .env_clear()
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn();
        match started {
            Ok(child) => Some(answered(child, source, html)),
            Err(error) => {
                tracing::warn!(%error, program = %self.program.shown(), "no process can be started to read a page");
                None
            }
        }
    }
}

fn answered(mut child: Child, source: &Url, html: &str) -> Result<Parts, Failure> {
    let order = Order { source: source.as_str().into(), html: html.into(), seconds: READ_FOR.as_secs().max(1) };
    match converse(&mut child, &order) {
        Ok(said) => {
            // It has said everything; how it ends makes no difference any more.
            drop(child.wait());
            match said {
                Said::Read(parts) => Ok(parts),
                Said::Refused { problem, hint } => Err(Failure::refused(problem, hint)),
            }
        }
        Err(broken) => {
            drop(child.kill());
            let why = match child.wait() {
                Ok(status) => why_it_ended(status, &broken),
                Err(error) => error.to_string(),
            };
            Err(page::unreadable(&why))
        }
    }
}

fn why_it_ended(status: ExitStatus, broken: &io::Error) -> String {
    let signal = status.signal().and_then(Signal::from_named_raw);
    if signal == Some(Signal::XCPU) {
        return format!("it took longer than {}", ua_core::span_in_words(READ_FOR));
    }
    // An allocation that is refused ends a program of Rust by this signal.
    if signal == Some(Signal::ABORT) {
        return format!("it took more than {} MiB of memory", MEMORY_BYTES >> 20);
    }
    format!("its reader gave no answer ({broken}; {status})")
}

/// What is to be read, and for how long.
#[derive(Debug, Serialize, Deserialize)]
struct Order<'a> {
    source: Cow<'a, str>,
    html: Cow<'a, str>,
    seconds: u64,
}

/// What became of it.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Said {
    Read(Parts),
    Refused { problem: String, hint: String },
}

fn converse(child: &mut Child, order: &Order<'_>) -> io::Result<Said> {
    let (Some(mut to), Some(from)) = (child.stdin.take(), child.stdout.take()) else {
        return Err(io::Error::other("it has no pipes"));
    };
    // It says nothing before it has read all.
    to.write_all(&serde_json::to_vec(order)?)?;
    drop(to);
    let mut said = Vec::new();
    from.take(MOST_SAID).read_to_end(&mut said)?;
    if said.is_empty() {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(serde_json::from_slice(&said)?)
}

/// Reads one page for the process that started this one, over standard input and output, and returns the exit code.
///
/// To be called in front of everything else in `main`: this process takes from itself what it may not use.
pub fn serve_page() -> i32 {
    let mut given = Vec::new();
    let read = io::stdin().lock().read_to_end(&mut given).and_then(|_| {
        let order: Order<'_> = serde_json::from_slice(&given)?;
        limit_this_process(order.seconds)?;
        let source = Url::parse(&order.source).map_err(io::Error::other)?;
        Ok((source, order.html.into_owned()))
    });
    let said = match read {
        Ok((source, html)) => {
            // Its end is the limit of this process.
            match page::on_a_deep_stack(Duration::MAX, move || page::readable(&source, &html)) {
                Ok(parts) => Said::Read(parts),
                Err(Failure::Refused { problem, hint, .. }) => Said::Refused { problem, hint },
                Err(Failure::Unclear(problem)) => Said::Refused { problem, hint: page::ANOTHER.to_owned() },
            }
        }
        Err(error) => Said::Refused {
            problem: format!("the page could not be read as HTML: its process could not begin: {error}"),
            hint: page::ANOTHER.to_owned(),
        },
    };
    // Whoever started this process may be gone.
    let told = serde_json::to_vec(&said).map_err(io::Error::from).and_then(|said| io::stdout().lock().write_all(&said));
    i32::from(told.is_err())
}

/// Takes from this process what it may not use, and has it end with the thread that waits for it.
fn limit_this_process(seconds: u64) -> io::Result<()> {
    #[cfg(target_os = "linux")]
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    // What the machine allows is not raised.
    let at_most = |resource, amount: u64, last: u64| {
        let maximum = rustix::process::getrlimit(resource).maximum.map_or(last, |most| most.min(last));
        rustix::process::setrlimit(resource, Rlimit { current: Some(amount.min(maximum)), maximum: Some(maximum) })
    };
    // The second limit ends what the first does not.
    at_most(Resource::Cpu, seconds, seconds.saturating_add(5))?;
    at_most(Resource::As, MEMORY_BYTES, MEMORY_BYTES)?;
    at_most(Resource::Core, 0, 0)?;
    // Nothing is written but to the pipe that is open.
    at_most(Resource::Fsize, 0, 0)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    fn reader(script: &str) -> PageReader {
        PageReader::new(PathBuf::from("/bin/sh"), ["-c".into(), script.into()])
    }

    fn read(script: &str) -> Result<Parts, String> {
        // More than a pipe holds, so that whoever does not read it is noticed.
        let html = "<p>word</p>".repeat(20_000);
        let told = reader(script).read(&Url::parse("https://example.org/").unwrap(), &html);
        told.unwrap().map_err(|failure| failure.text())
    }

    #[test]
    fn what_the_process_says_is_what_becomes_of_the_page() {
        let says = |said: &str| read(&format!("cat >/dev/null; printf '%s' '{said}'"));
        assert_eq!(says(r#"{"read":["t",null,"2026","m"]}"#), Ok(("t".into(), None, Some("2026".into()), "m".into())));
        let refused = says(r#"{"refused":{"problem":"it is nested too deep","hint":"try another page"}}"#);
        assert_eq!(refused.unwrap_err(), "it is nested too deep; try another page");
    }

    #[test]
    fn a_page_whose_reader_is_ended_or_is_none_is_refused_alone() {
        for (script, why) in [
            ("kill -XCPU $$", "it took longer than 60 s"),
            ("kill -ABRT $$", "it took more than 2048 MiB of memory"),
            ("kill -SEGV $$", "its reader gave no answer"),
            ("exit 0", "its reader gave no answer"),
            ("cat >/dev/null; echo nonsense", "its reader gave no answer"),
        ] {
            let told = read(script).unwrap_err();
            assert!(told.contains(why) && told.ends_with(page::ANOTHER), "{script}: {told}");
        }
        let absent = PageReader::new(PathBuf::from("/nowhere/at/all"), []);
        let url = Url::parse("https://example.org/").unwrap();
        assert!(absent.read(&url, "x").is_none(), "it is read here");
    }
}
