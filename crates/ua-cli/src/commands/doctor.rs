//! `ua doctor`: is everything there that a job needs, and what to do about what is not. It starts tool servers and stops them again;
//! nothing is sent to a model provider, and no key is printed.

mod machine;
mod setup;

use std::path::{Path, PathBuf};

use clap::Args;
use ua_host::Host;

use crate::error::{FAILED, HostError, OK};
use crate::output::{print, print_json, print_table, wrapped};
use crate::parts::Parts;
use crate::shown::Shown;
use crate::terminal::{out_has_color, status_color};
use crate::view::{DoctorFinding, DoctorReport, Level, ToolRow};

/// `ua doctor`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ua doctor
  ua doctor --verbose
      also show what is fine, every setting and every tool
  ua doctor --mcp-config servers.json
      start these tool servers, list their tools, stop them
  ua doctor --job report.json
      check what this job needs
  ua doctor --json | jq '.findings[] | select(.level != \"ok\")'

Exit code 0 when nothing fails, 1 otherwise; warnings do not count. Nothing is sent to the model provider.")]
pub struct DoctorArgs {
    /// File with an `mcpServers` object [default: .mcp.json if there is one]
    #[arg(long, value_name = "FILE")]
    pub mcp_config: Option<PathBuf>,
    /// Policy file (TOML) that takes precedence over all others; may be repeated
    #[arg(long, value_name = "FILE")]
    pub policy: Vec<PathBuf>,
    /// A job file: its model, prices, policies and tool servers are checked as well
    #[arg(long, value_name = "FILE")]
    pub job: Option<PathBuf>,
    /// Also show what is fine, every setting and every tool
    #[arg(long, short)]
    pub verbose: bool,
}

/// What was found so far.
#[derive(Debug, Default)]
struct Findings {
    all: Vec<DoctorFinding>,
}

impl Findings {
    fn ok(&mut self, check: &str, detail: impl Into<String>) {
        self.add(check, Level::Ok, detail.into(), None);
    }

    fn warn(&mut self, check: &str, detail: impl Into<String>, fix: impl Into<String>) {
        self.add(check, Level::Warn, detail.into(), Some(fix.into()));
    }

    fn fail(&mut self, check: &str, detail: impl Into<String>, fix: impl Into<String>) {
        self.add(check, Level::Fail, detail.into(), Some(fix.into()));
    }

    /// A refusal of something that a job would be refused for as well, and of whatever else stands in its way. One fault is one finding, however
    /// many checks come upon it.
    fn refused(&mut self, check: &str, error: &HostError) {
        for error in std::iter::once(error).chain(error.others()) {
            let detail = error.to_string();
            if self.all.iter().any(|finding| finding.level == Level::Fail && finding.detail == detail) {
                continue;
            }
            self.add(check, Level::Fail, detail, Some(fix_of(error)));
        }
    }

    fn add(&mut self, check: &str, level: Level, detail: String, fix: Option<String>) {
        let fix = fix.map(crate::output::command);
        self.all.push(DoctorFinding { check: check.to_owned(), level, detail, fix });
    }
}

/// What helps against an error. What a command that was refused had done by then is nothing to a check, which does nothing.
fn fix_of(error: &HostError) -> String {
    let hint = error.hint_text().unwrap_or_default();
    let done = ["nothing was started", "nothing was done", "nothing was changed"];
    let fix = done.iter().find_map(|done| hint.strip_suffix(done)).unwrap_or(hint).trim_end_matches("; ");
    if fix.is_empty() { "see the message".to_owned() } else { fix.to_owned() }
}

pub(crate) async fn run(host: &Host, parts: &Parts, root: Option<&Path>, args: &DoctorArgs) -> Result<u8, HostError> {
    let (home, settings) = (host.home(), host.settings());
    let mut findings = Findings::default();
    setup::configuration(settings, &mut findings);
    let job = setup::job(host, args, &mut findings).await;
    setup::environment(settings, job.as_ref(), args, &mut findings);
    setup::model(host, job.as_ref(), &mut findings);
    setup::claude_code(settings, job.as_ref(), &mut findings);
    setup::tools_of_ours(settings, home, parts, &mut findings);
    setup::alerts(settings, home, &mut findings);
    setup::telemetry(settings, &mut findings);
    #[cfg(feature = "toolserver")]
    machine::sandbox(settings, &mut findings);
    // The database is read while the tool servers start: neither needs the other, and each takes most of the time.
    let mut of_machine = Findings::default();
    let look_at_machine = async {
        let mut of_runs = Findings::default();
        let look_at_runs = async {
            let findings = &mut of_runs;
            let store = machine::store(home);
            machine::reopened(store.as_ref(), findings).await;
            machine::disk(home, findings);
            let runs = machine::heads(store.as_ref(), findings).await;
            machine::clock(&runs, findings);
            machine::left_behind(home, store.as_ref(), &runs, findings).await;
            machine::gateway(host, root, findings).await;
        };
        tokio::join!(machine::database(home, &mut of_machine), look_at_runs);
        of_machine.all.extend(of_runs.all);
    };
    let (tools, ()) = tokio::join!(setup::servers(host, job.as_ref(), args, &mut findings), look_at_machine);
    findings.all.extend(of_machine.all);
    let ok = findings.all.iter().all(|finding| finding.level != Level::Fail);
    let report = DoctorReport { ok, findings: findings.all, tools, settings: super::config::rows(host, root, None) };
    if crate::terminal::is_json() {
        print_json(&report)?;
    } else {
        show(&report, args.verbose)?;
    }
    Ok(if ok { OK } else { FAILED })
}

/// What was found, what is wrong first; with `verbose` also show what is fine, every setting and every tool.
fn show(report: &DoctorReport, verbose: bool) -> Result<(), HostError> {
    let mut out = Shown::default();
    for level in [Level::Fail, Level::Warn, Level::Ok] {
        let word = match level {
            Level::Ok => "ok",
            Level::Warn => "warn",
            Level::Fail => "fail",
        };
        let color = status_color(word).filter(|_| out_has_color());
        let wanted = report.findings.iter().filter(|finding| finding.level == level);
        for finding in wanted.filter(|finding| verbose || finding.level != Level::Ok) {
            let shown = color.map_or_else(|| Shown::from(word), |color| Shown::painted(word, color, true));
            let gap = " ".repeat(5 - word.len());
            let found = format!("{}: {}", finding.check, finding.detail);
            let detail = crate::error::hanging(&crate::ids::in_sentence(&found), 5);
            out = out.then(shown).then(format!("{gap}{}\n", wrapped(&detail, 5)));
            if let Some(fix) = &finding.fix {
                out = out.then(format!("     {}\n", wrapped(&crate::ids::in_sentence(&format!("fix: {fix}")), 5)));
            }
        }
    }
    let count = |level: Level| report.findings.iter().filter(|finding| finding.level == level).count();
    let more = if verbose { "" } else { "; --verbose shows everything that was checked" };
    let counts = format!(
        "{} ok, {}, {}",
        count(Level::Ok),
        ua_core::counted(count(Level::Warn), "warning"),
        ua_core::counted(count(Level::Fail), "failure")
    );
    print(out.then(format!("{counts}{more}\n")))?;
    if !verbose {
        return Ok(());
    }
    print("\n")?;
    super::config::print_settings(&report.settings)?;
    if report.tools.is_empty() {
        return Ok(());
    }
    print("\n")?;
    let cells = |tool: &ToolRow| {
        let text = |field: &str| tool.policy[field].as_str().unwrap_or_default().to_owned();
        vec![tool.name.clone(), text("class"), super::tools::why(&text("reason"), &text("class"))]
    };
    print_table(&crate::listings::DOCTOR_TOOLS, report.tools.iter().map(cells).collect())
}
