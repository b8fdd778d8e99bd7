//! `ua man`: manual pages, one for each command.

use std::collections::BTreeSet;
use std::io::{IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use clap::{Args, Command, CommandFactory as _};
use clap_complete::engine::{ArgValueCompleter, CompletionCandidate};
use clap_mangen::Man;

use crate::args::Cli;
use crate::error::{HostError, OK};
use crate::output::{plain, print_document, tell};
use ua_core::ShowPath as _;

/// `ua man`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ua man | man -l -
  ua man runs list | man -l -
  ua man --out ~/.local/share/man/man1     then `man ua-runs-list`")]
pub struct ManArgs {
    /// A command, without `ua`
    #[arg(conflicts_with = "out", add = ArgValueCompleter::new(names))]
    pub command: Vec<String>,
    /// Write a page for every command to this folder
    #[arg(long, value_name = "DIR", value_hint = clap::ValueHint::DirPath)]
    pub out: Option<PathBuf>,
}

/// Every command that has a page.
fn names(current: &std::ffi::OsStr) -> Vec<CompletionCandidate> {
    fn collect(command: &clap::Command, above: &str, all: &mut BTreeSet<String>) {
        for below in command.get_subcommands().filter(|below| !below.is_hide_set()) {
            let name = format!("{above}{}", below.get_name());
            collect(below, &format!("{name} "), all);
            all.insert(name);
        }
    }
    let mut all = BTreeSet::new();
    collect(&Cli::command(), "", &mut all);
    crate::complete::next_word(current, "man", &all)
}

pub(crate) fn run(args: &ManArgs) -> Result<u8, HostError> {
    let pages = pages()?;
    let Some(folder) = &args.out else {
        let wanted = std::iter::once("ua").chain(args.command.iter().map(String::as_str)).collect::<Vec<_>>().join("-");
        let Some((_, page)) = pages.iter().find(|(name, _)| *name == wanted) else {
            let named: Vec<String> =
                pages.iter().filter_map(|(name, _)| Some(name.strip_prefix("ua-")?.replace('-', " "))).collect();
            let names = named.iter().map(String::as_str);
            let hint = "`ua --help` lists the commands";
            return Err(HostError::no_such("command", &args.command.join(" "), names, hint));
        };
        if std::io::stdout().is_terminal() {
            if is_shown_by_man(page) {
                return Ok(OK);
            }
            let command = ["ua man", &args.command.join(" ")].join(" ");
            tell(format!("this is the source of the page; `{} | man -l -` shows it", plain(command.trim_end())));
        }
        print_document(page)?;
        return Ok(OK);
    };
    write(folder, &pages)?;
    tell(format!("{}: {} manual pages", folder.shown(), pages.len()));
    Ok(OK)
}

/// Shows a page through `man`, where there is one that takes a page from its standard input.
fn is_shown_by_man(page: &str) -> bool {
    let started =
        std::process::Command::new("man").args(["-l", "-"]).stdin(Stdio::piped()).stderr(Stdio::null()).spawn();
    let Ok(mut man) = started else { return false };
    // A reader who leaves early closes the pipe; what `man` makes of the page is its exit status.
    let is_taken = man.stdin.take().is_some_and(|mut input| input.write_all(page.as_bytes()).is_ok());
    man.wait().is_ok_and(|status| status.success()) && is_taken
}

#[expect(clippy::disallowed_methods, reason = "a person named the folder")]
fn write(folder: &Path, pages: &[(String, String)]) -> Result<(), HostError> {
    let fail = |error: std::io::Error| {
        HostError::storage(format!("cannot write to {}: {error}", folder.shown())).hint("choose another --out")
    };
    ua_host::placed::refuse_leading_out(folder)?;
    std::fs::create_dir_all(folder).map_err(fail)?;
    let into = ua_files::Folder::open(folder).map_err(fail)?;
    pages.iter().try_for_each(|(name, page)| into.replace(format!("{name}.1"), page.as_bytes()).map_err(fail))
}

/// Every page with its name, `ua` first.
pub(crate) fn pages() -> Result<Vec<(String, String)>, HostError> {
    let mut top = Cli::command();
    top.build();
    let mut pages = Vec::new();
    add(&top, "ua", &mut pages)?;
    Ok(pages)
}

fn add(command: &Command, name: &str, pages: &mut Vec<(String, String)>) -> Result<(), HostError> {
    let mut page = Vec::new();
    let fail = |error: std::io::Error| HostError::failed(format!("cannot make the manual page: {error}"));
    let page_of = Man::new(command.clone().display_name(name.to_owned()));
    page_of.source(concat!("ua ", env!("CARGO_PKG_VERSION"))).manual("Manual of ua").render(&mut page).map_err(fail)?;
    pages.push((name.to_owned(), String::from_utf8_lossy(&page).into_owned()));
    let shown = command.get_subcommands().filter(|inner| !inner.is_hide_set() && inner.get_name() != "help");
    shown.into_iter().try_for_each(|inner| add(inner, &format!("{name}-{}", inner.get_name()), pages))
}
