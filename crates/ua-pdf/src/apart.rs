//! A layout in a process of its own, so that time and memory have limits.
//!
//! What a layout costs cannot be told from its Markdown: a few kilobytes can take minutes and gigabytes. So a tool server has it done by another
//! process, which takes from itself what it may not use ([`limits::SECONDS`], [`limits::MEMORY_BYTES`]) and is thrown away afterwards; when it
//! asks for more the kernel ends it, and whoever waits has an error.
//!
//! What is said between the two is lines of JSON, each followed by the bytes that it announces: the Markdown and its options, then images as
//! they are asked for, then the document or why there is none.

use std::ffi::OsString;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::process::ExitStatusExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};

use rustix::process::{Resource, Rlimit, Signal};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::{Paper, PdfError, PdfOptions, Rendered, Renderer, limits};

/// What lays documents out for a tool server.
#[derive(Debug, Clone)]
pub enum Layout {
    /// In this process, which has no limits on time and memory: for programs that know what they render.
    Here(Renderer),
    /// In a process of its own, which calls [`serve`].
    Apart(LayoutProcess),
}

/// The program that lays out, and the arguments that tell it so.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LayoutProcess {
    program: PathBuf,
    args: Vec<OsString>,
    seconds: u64,
    memory_bytes: u64,
}

impl LayoutProcess {
    /// `program` with `args`, which calls [`serve`], within [`limits::SECONDS`] and [`limits::MEMORY_BYTES`].
    pub fn new(program: PathBuf, args: impl IntoIterator<Item = OsString>) -> Self {
        let (seconds, memory_bytes) = (limits::SECONDS, limits::MEMORY_BYTES);
        Self { program, args: args.into_iter().collect(), seconds, memory_bytes }
    }

    /// The same within other limits for one document: seconds of processor time, and bytes of address space.
    #[must_use]
    pub fn within(self, seconds: u64, memory_bytes: u64) -> Self {
        Self { seconds, memory_bytes, ..self }
    }
}

impl Layout {
    /// Renders `markdown`, blocking until it is done.
    ///
    /// # Errors
    ///
    /// Those of the renderer; [`PdfError::TooCostly`] when it needs more time or memory than there is for one document.
    pub fn render(&self, markdown: &str, options: &PdfOptions<'_>) -> Result<Rendered, PdfError> {
        match self {
            Self::Here(renderer) => renderer(markdown, options),
            Self::Apart(process) => process.render(markdown, options),
        }
    }
}

impl LayoutProcess {
    fn render(&self, markdown: &str, options: &PdfOptions<'_>) -> Result<Rendered, PdfError> {
        // Refused here, so that nothing is started for it.
        if markdown.len() > limits::MARKDOWN_BYTES {
            return Err(PdfError::TooLarge { bytes: markdown.len(), limit: limits::MARKDOWN_BYTES });
        }
        let mut child = Command::new(&self.program)
            .args(&self.args)
            .env_clear()
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|error| failed(format!("its process could not be started: {error}")))?;
        match self.converse(&mut child, markdown, options) {
            Ok(answer) => {
                // It has said everything; how it ends makes no difference any more.
                drop(child.wait());
                answer
            }
            Err(broken) => {
                // A process that says something else than it should is not waited for.
                drop(child.kill());
                let status = child.wait().map_err(|error| failed(error.to_string()))?;
                Err(self.why_it_ended(status, &broken))
            }
        }
    }

    /// Tells the process what to render, brings the images it asks for, and takes its answer.
    fn converse(
        &self,
        child: &mut Child,
        markdown: &str,
        options: &PdfOptions<'_>,
    ) -> io::Result<Result<Rendered, PdfError>> {
        let (Some(mut to), Some(from)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(io::Error::other("it has no pipes"));
        };
        let mut from = BufReader::new(from);
        let order = Order {
            title: options.title.clone(),
            author: options.author.clone(),
            date: options.date.clone(),
            paper: options.paper,
            bytes: markdown.len(),
            seconds: self.seconds,
            memory_bytes: self.memory_bytes,
        };
        say(&mut to, &order, markdown.as_bytes())?;
        loop {
            match heard(&mut from)? {
                FromLayout::Image { reference } => match (options.images)(&reference) {
                    Ok(bytes) => say(&mut to, &ImageFound::Bytes(bytes.len()), &bytes)?,
                    Err(problem) => say(&mut to, &ImageFound::Problem(problem), &[])?,
                },
                FromLayout::Done { bytes, pages, title, images, missing_glyphs, warnings } => {
                    // It has written no more than it had room for.
                    if bytes as u64 > self.memory_bytes {
                        return Err(io::Error::other(format!("it announces a document of {bytes} bytes")));
                    }
                    let pdf = taken(&mut from, bytes)?;
                    return Ok(Ok(Rendered { pdf, pages, title, images, missing_glyphs, warnings }));
                }
                FromLayout::Refused(why) => return Ok(Err(why)),
            }
        }
    }

    /// What the end of a process that gave no answer says about the document.
    fn why_it_ended(&self, status: ExitStatus, broken: &io::Error) -> PdfError {
        let signal = status.signal().and_then(Signal::from_named_raw);
        if signal == Some(Signal::XCPU) {
            return PdfError::TooCostly { limit: format!("{} s of computing", self.seconds) };
        }
        // An allocation that is refused ends a program of Rust by this signal; so does nothing else here, since a panic is an answer.
        if signal == Some(Signal::ABORT) {
            return PdfError::TooCostly { limit: format!("{} MiB of memory", self.memory_bytes >> 20) };
        }
        failed(format!("its process gave no answer ({broken}; {status})"))
    }
}

/// What is to be rendered, and with how much; the Markdown follows.
#[derive(Debug, Serialize, Deserialize)]
struct Order {
    seconds: u64,
    memory_bytes: u64,
    title: Option<String>,
    author: Option<String>,
    date: Option<String>,
    paper: Paper,
    bytes: usize,
}

/// What the process says.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum FromLayout {
    /// It needs the image that the Markdown names so.
    Image { reference: String },
    /// It is done; the document follows.
    Done {
        bytes: usize,
        pages: usize,
        title: Option<String>,
        images: usize,
        missing_glyphs: Vec<char>,
        warnings: Vec<String>,
    },
    /// There is no document.
    Refused(PdfError),
}

/// What comes of an image that was asked for.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum ImageFound {
    /// So many bytes, which follow.
    Bytes(usize),
    Problem(String),
}

fn say<T: Serialize>(to: &mut impl Write, what: &T, bytes: &[u8]) -> io::Result<()> {
    let mut line = serde_json::to_vec(what)?;
    line.push(b'\n');
    to.write_all(&line)?;
    to.write_all(bytes)?;
    to.flush()
}

/// The longest line that is said: as long as a title in which each byte of a document is written as an escape of six.
const LONGEST_LINE: usize = 8 * limits::MARKDOWN_BYTES;

fn heard<T: DeserializeOwned>(from: &mut impl BufRead) -> io::Result<T> {
    let mut line = Vec::new();
    if from.by_ref().take(LONGEST_LINE as u64).read_until(b'\n', &mut line)? == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    if line.len() == LONGEST_LINE {
        return Err(io::Error::other(format!("it says a line of more than {} MiB", LONGEST_LINE >> 20)));
    }
    Ok(serde_json::from_slice(&line)?)
}

fn taken(from: &mut impl Read, bytes: usize) -> io::Result<Vec<u8>> {
    let mut taken = Vec::new();
    from.take(bytes as u64).read_to_end(&mut taken)?;
    if taken.len() == bytes { Ok(taken) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
}

fn failed(problem: String) -> PdfError {
    PdfError::Renderer { problem }
}

/// Renders one document for the process that started this one, over standard input and output, and returns the exit code.
///
/// To be called in front of everything else in `main`: this process takes from itself what it may not use, before it reads the document.
pub fn serve(renderer: Renderer) -> i32 {
    match answer(renderer) {
        Ok(()) => 0,
        Err(error) => refuse(&error.to_string()),
    }
}

/// Says why there is nothing; whoever started this process may be gone.
fn refuse(problem: &str) -> i32 {
    let why = FromLayout::Refused(failed(problem.to_owned()));
    i32::from(say(&mut io::stdout().lock(), &why, &[]).is_err())
}

/// Takes from this process what it may not use, and has it end with the thread that waits for it.
fn limit_this_process(order: &Order) -> rustix::io::Result<()> {
    #[cfg(target_os = "linux")]
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    let at_most = |amount| Rlimit { current: Some(amount), maximum: Some(amount) };
    // The second limit ends what the first does not.
    let seconds = Rlimit { current: Some(order.seconds), maximum: Some(order.seconds.saturating_add(5)) };
    rustix::process::setrlimit(Resource::Cpu, seconds)?;
    rustix::process::setrlimit(Resource::As, at_most(order.memory_bytes))?;
    rustix::process::setrlimit(Resource::Core, at_most(0))?;
    // Nothing is written but to the pipes that are open.
    rustix::process::setrlimit(Resource::Fsize, at_most(0))
}

fn answer(renderer: Renderer) -> io::Result<()> {
    let mut from = io::stdin().lock();
    let order: Order = heard(&mut from)?;
    limit_this_process(&order)
        .map_err(|error| io::Error::other(format!("its process could not be limited: {error}")))?;
    let markdown = String::from_utf8(taken(&mut from, order.bytes)?).map_err(io::Error::other)?;
    let pipes = std::cell::RefCell::new((from, io::stdout().lock()));
    let fetch = |reference: &str| -> io::Result<Result<Vec<u8>, String>> {
        let (from, to) = &mut *pipes.borrow_mut();
        say(to, &FromLayout::Image { reference: reference.to_owned() }, &[])?;
        Ok(match heard(from)? {
            ImageFound::Bytes(bytes) => Ok(taken(from, bytes)?),
            ImageFound::Problem(problem) => Err(problem),
        })
    };
    let images = |reference: &str| fetch(reference).unwrap_or_else(|error| Err(error.to_string()));
    let options =
        PdfOptions { title: order.title, author: order.author, date: order.date, paper: order.paper, images: &images };
    let rendered = renderer(&markdown, &options);
    let (_, to) = &mut *pipes.borrow_mut();
    match rendered {
        Ok(done) => {
            let Rendered { pdf, pages, title, images, missing_glyphs, warnings } = done;
            say(to, &FromLayout::Done { bytes: pdf.len(), pages, title, images, missing_glyphs, warnings }, &pdf)
        }
        Err(why) => say(to, &FromLayout::Refused(why), &[]),
    }
}
