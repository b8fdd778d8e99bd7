//! `ua runs export`: a run's files anew from the database, or the run as one page or document.
//!
//! Durable runner, current state §10. What is written is a function of the rows, and of the workspace's files where they are here: a
//! database that was copied from another machine does without them, and says so.

mod replaced;

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use clap::Args;
use clap_complete::engine::ArgValueCompleter;
use ua_core::{BlobId, BlobRef, Block, RunStatus, ShowPath as _, Timestamp};
use ua_evidence::{Artifact, EvidenceReport};
use ua_files::Folder;
use ua_host::Database;
use ua_host::home::Home;
use ua_host::placed::refuse_leading_out;
use ua_host::standing::standing;
use ua_report::{CompletionSummary, LogFiles, RunExport};
use ua_resume::{Commands, Handoff, NextStep, ResumePacket, Standing};
use ua_runner::Workspace;
use ua_store::{
    ArrivalRecord, ArrivalsOf, Blob, EventRecord, FleetStore as _, GatewayStore as _, LedgerStore, QueueState,
    RunRecord, RunRecords, RunStore, Store, blobs_of, is_gateway,
};

use self::replaced::{PAGE_NAME, Planned};
use crate::error::{HostError, OK};
use crate::output::{plain, print_document, print_exactly, print_json, tell};
use crate::{complete, find};

/// `ua runs export`.
#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("what").multiple(true), after_help = "\
Examples:
  ua runs export last
      write its files again, into its workspace
  ua runs export last --html
      the timeline, for a browser
  ua runs export last --html timeline.html
  ua runs export last --json | jq .records.calls
  ua runs export last --out ./copy --all-files --include-blobs
  UA_RUNTIME_DB_PATH=$PWD/copied.db ua runs export last --out ./copy
      another machine's database

Everything is made from the database alone, whether the run is running, finished or from another machine; the run itself does not \
change. See docs/guide/workspace.md.")]
pub struct ExportArgs {
    /// A run id, a unique prefix or suffix of one, or `last`
    #[arg(add = ArgValueCompleter::new(complete::runs))]
    pub run: String,
    /// Where to write: a folder, or with one of --html, --json, --transcript a file; `-` is standard output [default: the workspace,
    /// and for --json and --transcript standard output]
    #[arg(long, value_name = "DIR|FILE")]
    pub out: Option<PathBuf>,
    /// Only the timeline, as one HTML page that needs nothing else [default file: timeline.html]
    #[arg(long, value_name = "FILE", num_args = 0..=1, group = "what")]
    #[expect(clippy::option_option, reason = "not asked for; asked for; asked for in this file")]
    pub html: Option<Option<PathBuf>>,
    /// Only the rows, as one JSON document
    #[arg(long, group = "what")]
    pub json: bool,
    /// Only the conversation, as Markdown
    #[arg(long, group = "what")]
    pub transcript: bool,
    /// With --out DIR: also a copy of every file that the tools made
    #[arg(long, requires = "out", conflicts_with = "what")]
    pub all_files: bool,
    /// Large results whole: as files beside the transcript, in the JSON document, in the timeline up to its limit
    #[arg(long)]
    pub include_blobs: bool,
}

impl ExportArgs {
    /// Refuses two kinds of export at once: each goes to a place of its own, and one of them would be left out. What every command takes (`ua --json
    /// runs export`) counts here, too.
    fn refuse_two_kinds(&self) -> Result<(), HostError> {
        let is_json = self.json || crate::terminal::is_json();
        let kinds = [("--html", self.html.is_some()), ("--json", is_json), ("--transcript", self.transcript)];
        let named: Vec<&str> = kinds.into_iter().filter(|(_, is_named)| *is_named).map(|(kind, _)| kind).collect();
        if named.len() < 2 {
            return Ok(());
        }
        Err(HostError::usage(format!("{} are different kinds of export, and one command writes one of them", named.join(" and ")))
            .hint("give the command once with each; without any of them all files of the run are written; nothing was written"))
    }
}

/// How many runs are looked through for the other members of a lineage.
const RUNS: u32 = 10_000;
/// The program's name and version, as it stands in what it writes.
const PROGRAM: &str = concat!("ua ", env!("CARGO_PKG_VERSION"));
/// What an iteration is handed.
const HANDOFF: &str = "handoff.json";

pub(crate) async fn run(home: &Home, args: ExportArgs) -> Result<u8, HostError> {
    args.refuse_two_kinds()?;
    let store = home.open_read_only()?;
    let found = find::run(&store, &args.run).await?;
    let mut gathered = ExportData::of(home, &store, &found, args.include_blobs).await?;
    if let Some(file) = &args.html {
        html(home, &gathered, file.as_deref(), args.out.as_deref())?;
    } else if args.json {
        json(home, &gathered, args.out.as_deref())?;
    } else if args.transcript {
        let text = ua_report::transcript(&gathered.records, &gathered.standing, &gathered.commands);
        match args.out.as_deref().filter(|out| !is_standard_output(out)) {
            None => print_document(&text)?,
            Some(out) => written(&write_file(home, &file_in(out, "transcript.md"), &text)?)?,
        }
    } else {
        all(home, &mut gathered, &args)?;
        if args.out.is_none() {
            ua_host::restart::write(home, &store).await;
        }
    }
    for note in &gathered.notes {
        tell(note);
    }
    Ok(OK)
}

/// How a person says where a page goes that has no workspace to go to: with `--html`, --out names a file as well.
const NAMED_PAGE: &str = "name the file of the page: `--html FILE`";

/// Everything an export is made of.
struct ExportData {
    records: RunRecords,
    events: Vec<EventRecord>,
    /// What clients asked for, of a session of the gateway.
    arrivals: Vec<ArrivalRecord>,
    lineage: Vec<RunRecord>,
    /// The workspace, when it is here.
    workspace: Option<Workspace>,
    /// Why it cannot be read, as the end of a sentence, and what helps.
    unread: Unread,
    /// What makes the commands in its pages complete.
    commands: Commands,
    artifacts: Option<Vec<Artifact>>,
    evidence: Option<EvidenceReport>,
    blobs: BTreeMap<BlobId, String>,
    standing: Standing,
    next: NextStep,
    /// Where it stands in the queue, if it is there.
    queue: Option<QueueState>,
    written_at: Timestamp,
    /// What its sub-agents came to, by file.
    outputs: Vec<(String, String)>,
    /// What a person should know about what is not in it.
    notes: Vec<String>,
}

/// Why a workspace is not read.
struct Unread {
    /// As the end of a sentence about it.
    why: String,
    /// What makes it readable; nothing where it is gone.
    helps: Option<String>,
}

impl Unread {
    /// Of a run that no process has begun, which has no workspace yet.
    fn not_begun(run: &RunRecord) -> Self {
        let why = if run.status.is_terminal() {
            "was never made: the run ended before it was begun"
        } else {
            "is not made yet: the run has not begun"
        };
        Self { why: why.to_owned(), helps: None }
    }

    fn of(error: Option<&std::io::Error>) -> Self {
        match error {
            Some(error) if error.kind() != std::io::ErrorKind::NotFound => Self {
                why: format!("cannot be read: {error}"),
                helps: Some(ua_host::paths::mend_folder(error).to_owned()),
            },
            _ => Self { why: "is not here".to_owned(), helps: None },
        }
    }

    /// What to do, where the way without the workspace is this.
    fn hint(&self, without: &str) -> String {
        self.helps.as_ref().map_or_else(|| without.to_owned(), |helps| format!("{helps}, or {without}"))
    }
}

impl ExportData {
    async fn of(home: &Home, store: &Database, run: &RunRecord, with_blobs: bool) -> Result<Self, HostError> {
        let fail = |error: &ua_store::StoreError| HostError::store("read the run", error);
        let records = store.load(&run.run_id).await.map_err(|e| fail(&e))?;
        let mut events = Vec::new();
        for call in &records.calls {
            events.extend(store.events(&call.call_id).await.map_err(|e| fail(&e))?);
        }
        let mut lineage = store.runs(RUNS).await.map_err(|e| fail(&e))?;
        lineage.retain(|other| other.root_run_id == run.root_run_id && other.run_id != run.run_id);
        lineage.reverse();
        let mut arrivals = Vec::new();
        // The folder that a client works in is none of ours to look through.
        let mut workspace = None;
        let mut unread = Unread::of(None);
        if is_gateway(run) {
            let of = ArrivalsOf::Session(run.run_id.clone());
            arrivals = store.arrivals_of(of).await.map_err(|e| fail(&e))?;
        } else {
            workspace = match home.open_workspace(run) {
                Ok(workspace) => Some(workspace),
                Err(error) => {
                    let is_gone = error.io().kind() == ErrorKind::NotFound;
                    let is_not_begun = is_gone && run.current_step_id.is_none();
                    unread = if is_not_begun { Unread::not_begun(run) } else { Unread::of(Some(error.io())) };
                    None
                }
            };
        }
        let queued = store.queued(&run.run_id).await.map_err(|e| HostError::store("read the queue", &e))?;
        let mut gathered = Self {
            records,
            events,
            arrivals,
            lineage,
            workspace,
            unread,
            commands: home.commands_from_anywhere(),
            artifacts: None,
            evidence: None,
            blobs: BTreeMap::new(),
            standing: standing(home, store, run).await?,
            next: ua_host::restart::next_step(store, run).await?,
            queue: queued.map(|entry| entry.state),
            written_at: ua_core::system::env().now(),
            outputs: Vec::new(),
            notes: Vec::new(),
        };
        let standing = gathered.standing.clone();
        gathered.workspace = gathered.workspace.map(|found| found.standing_like(standing));
        gathered.look_at_files()?;
        gathered.look_at_tasks(store).await?;
        if gathered.workspace.is_none() && !is_gateway(run) {
            let folder = Path::new(&run.workspace_dir).shown();
            let why = &gathered.unread.why;
            gathered.notes.push(format!("the workspace {folder} {why}: files and stop conditions are left out"));
        }
        if with_blobs {
            gathered.read_blobs(store).await?;
        }
        Ok(gathered)
    }

    /// Takes the digests of the workspace's files, and what the stop conditions come to over them.
    fn look_at_files(&mut self) -> Result<(), HostError> {
        let Some(workspace) = &self.workspace else { return Ok(()) };
        let artifacts = workspace.artifacts_of(&self.records.run.spec)?;
        let evidence = ua_runner::evidence_of(workspace, &self.records, &artifacts)?;
        (self.artifacts, self.evidence) = (Some(artifacts), Some(evidence));
        Ok(())
    }

    /// Tells again what the run's own sub-agents came to that have ended.
    async fn look_at_tasks(&mut self, store: &dyn Store) -> Result<(), HostError> {
        let Some(workspace) = &self.workspace else { return Ok(()) };
        let own = self.records.lineage.sub_agents.iter().filter(|child| child.parent_run_id == self.records.run.run_id);
        for child in own.filter(|child| child.status.is_terminal()) {
            let records =
                store.load(&child.run_id).await.map_err(|e| HostError::store("read a sub-agent's run", &e))?;
            let (file, output) = ua_runner::task_output(workspace, &child.call_id, &records)?;
            self.outputs.push((file, pretty(&output)?));
        }
        Ok(())
    }

    async fn read_blobs(&mut self, store: &dyn Store) -> Result<(), HostError> {
        let mut gone = 0;
        for blob in blobs(&self.records) {
            match store.blob(&blob).await.map_err(|e| HostError::store("read a large result", &e))? {
                Blob::Here(text) => {
                    self.blobs.insert(blob.blob_id, text);
                }
                Blob::Missing { .. } => gone += 1,
                Blob::Corrupt { why } => {
                    self.notes.push(format!("the large result {} is damaged: {why}", blob.blob_id));
                }
            }
        }
        if gone > 0 {
            self.notes.push(format!(
                "deleted, most likely by `ua db prune`: {gone}; their names are kept",
                gone = ua_core::counted(gone, "large result")
            ));
        }
        Ok(())
    }

    fn export(&self) -> RunExport<'_> {
        RunExport {
            records: &self.records,
            events: &self.events,
            lineage: &self.lineage,
            artifacts: self.artifacts.as_deref(),
            evidence: self.evidence.as_ref(),
            blobs: &self.blobs,
            arrivals: &self.arrivals,
            standing: self.standing.clone(),
            next: self.next.clone(),
            commands: &self.commands,
            written_at: self.written_at,
            program: PROGRAM,
        }
    }

    /// The run's folder. Everything goes there unless a person says otherwise.
    fn folder(&self) -> Result<PathBuf, HostError> {
        self.folder_or("name a folder for the files with --out DIR")
    }

    /// The same, of an export for which a person says it like this.
    fn folder_or(&self, otherwise: &str) -> Result<PathBuf, HostError> {
        self.workspace.as_ref().map(|workspace| workspace.root().to_path_buf()).ok_or_else(|| {
            if is_gateway(&self.records.run) {
                return HostError::usage("a gateway session has no folder of its own").hint(otherwise);
            }
            let message =
                format!("the workspace {} {}", Path::new(&self.records.run.workspace_dir).shown(), self.unread.why);
            let is_gone = self.unread.helps.is_none();
            let error = if is_gone { HostError::usage(message) } else { HostError::storage(message) };
            error.hint(self.unread.hint(otherwise))
        })
    }
}

/// The large results that the rows refer to, each once.
fn blobs(records: &RunRecords) -> Vec<BlobRef> {
    let in_history =
        records.messages.iter().flat_map(|record| &record.message.blocks).filter_map(|block| match block {
            Block::ToolResult { content, .. } => content.blob().cloned(),
            Block::Text { .. } | Block::ToolUse(_) | Block::Opaque { .. } => None,
        });
    let mut found: Vec<BlobRef> = records.receipts.iter().flat_map(blobs_of).cloned().chain(in_history).collect();
    found.sort();
    found.dedup();
    found
}

fn html(home: &Home, gathered: &ExportData, file: Option<&Path>, out: Option<&Path>) -> Result<(), HostError> {
    let page = ua_report::timeline_html(&gathered.export());
    let path = match (file, out) {
        (Some(_), Some(_)) => {
            return Err(HostError::usage("--html names a file, and so does --out").hint("leave one of them out"));
        }
        (Some(place), None) | (None, Some(place)) if is_standard_output(place) => return print_document(&page),
        (Some(file), None) => {
            // A file goes where there is a folder; only --out makes one.
            let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty());
            if let Some(missing) = folder.filter(|folder| !folder.is_dir()) {
                return Err(HostError::usage(format!("there is no folder {}", missing.shown()))
                    .hint("make it, or name another file; nothing was written"));
            }
            file.to_path_buf()
        }
        (None, Some(out)) => file_in(out, PAGE_NAME),
        // Its own folder has it from the program, whatever was put in its place.
        (None, None) => return written(&write_in(&gathered.folder_or(NAMED_PAGE)?, PAGE_NAME, &page)?),
    };
    written(&write_file(home, &path, &page)?)
}

fn json(home: &Home, gathered: &ExportData, out: Option<&Path>) -> Result<(), HostError> {
    let document = gathered.export().to_json();
    match out.filter(|out| !is_standard_output(out)) {
        None => print_json(&document),
        Some(out) => {
            let path = file_in(out, &format!("run_{}.json", gathered.records.run.run_id));
            written(&write_file(home, &path, &format!("{}\n", pretty(&document)?))?)
        }
    }
}

/// Writes every file that a run's records make.
#[expect(clippy::disallowed_methods, reason = "a person named the folder")]
fn all(home: &Home, gathered: &mut ExportData, args: &ExportArgs) -> Result<(), HostError> {
    let folder = match args.out.as_deref() {
        None => gathered.folder()?,
        Some(out) if is_standard_output(out) => {
            return Err(HostError::usage("several files cannot be written to standard output")
                .hint("name a folder, or one of --html, --json, --transcript"));
        }
        Some(out) => {
            refuse_leading_out(out)?;
            fs::create_dir_all(out).map_err(|e| {
                HostError::usage(format!("cannot make the folder {}: {e}", out.shown()))
                    .hint("choose another folder with --out")
            })?;
            out.to_path_buf()
        }
    };
    if args.all_files {
        can_be_copied(gathered, &folder)?;
    }
    let transcript = if gathered.blobs.is_empty() {
        ua_report::transcript(&gathered.records, &gathered.standing, &gathered.commands)
    } else {
        ua_report::transcript_beside_blobs(&gathered.records, &gathered.standing, &gathered.commands, Workspace::BLOBS)
    };
    let mut files = vec![("transcript.md".to_owned(), transcript)];
    if args.out.is_none() {
        // The transcript is one of the files that count.
        write_all(&folder, &std::mem::take(&mut files))?;
        gathered.look_at_files()?;
    }
    let records = &gathered.records;
    let logs = logs(gathered.workspace.as_ref().filter(|_| args.out.is_none()), records);
    files.extend([
        ("trace.jsonl".to_owned(), logs.trace_lines),
        ("trace.json".to_owned(), pretty(&ua_report::trace_of(records))?),
        ("run.log".to_owned(), logs.run_log),
        (
            "session_summary.txt".to_owned(),
            gathered
                .commands
                .complete(&ua_report::session_summary(records, &gathered.standing, gathered.evidence.as_ref()))
                .into_owned(),
        ),
        (PAGE_NAME.to_owned(), ua_report::timeline_html(&gathered.export())),
    ]);
    for (blob, text) in &gathered.blobs {
        files.push((format!("{}/{blob}.txt", Workspace::BLOBS), text.clone()));
    }
    // Without the workspace nobody can say which stop conditions hold; a run at work has come to no completion.
    let is_at_work = matches!(records.run.status, RunStatus::Queued | RunStatus::Running);
    if let (Some(evidence), Some(artifacts)) = (&gathered.evidence, &gathered.artifacts) {
        if !is_at_work {
            let summary = CompletionSummary::new(records, evidence, artifacts)
                .standing(records, &gathered.standing, gathered.queue)
                .naming(&gathered.commands);
            let name = Workspace::completion_name(&records.run.run_id);
            files.push((format!("{name}.md"), summary.to_markdown()));
            files.push((format!("{name}.json"), pretty(&summary)?));
        }
        // Whoever drives a run writes its packet, and knows what is being decided.
        let name = Workspace::packet_name(&records.run.run_id);
        let is_theirs = gathered.standing.is_driven() && folder.join(format!("{name}.md")).exists();
        if let Some(workspace) = gathered.workspace.as_ref().filter(|_| !records.run.status.is_terminal() && !is_theirs)
        {
            let packet = ua_runner::packet_as_it_stands(workspace, records, artifacts).naming(&gathered.commands);
            files.push((format!("{name}.md"), packet.to_markdown()));
            files.push((format!("{name}.json"), pretty(&packet)?));
        }
        // The tools of a run at work write to it, too.
        if !is_at_work {
            files.extend(handoff(gathered, artifacts)?.map(|text| (HANDOFF.to_owned(), text)));
        }
    }
    files.extend(std::mem::take(&mut gathered.outputs));
    if args.out.is_some() {
        let mut paths: Vec<(PathBuf, Option<&str>)> =
            files.iter().map(|(name, text)| (folder.join(name), Some(text.as_str()))).collect();
        if args.all_files {
            paths.extend(copied_files(gathered).map(|artifact| (folder.join(&artifact.path), None)));
        }
        replaced::check(home, Some(&folder), paths.iter().map(|(path, text)| Planned { path, text: *text }))?;
    }
    write_all(&folder, &files)?;
    if args.all_files { copy_files(gathered, &folder) } else { Ok(()) }
}

/// The most that is read of a log.
const MAX_LOG_BYTES: u64 = 1024 * 1024 * 1024;

/// The logs of a run. Those that its processes kept have more than the database knows (why a request was tried again, what was counted), so they stay
/// as they are, with what only the database knows put in at its time.
fn logs(kept_in: Option<&Workspace>, records: &RunRecords) -> LogFiles {
    let kept = |name: &str| {
        let text = kept_in?.folder().read(name, MAX_LOG_BYTES).ok()?;
        Some(String::from_utf8_lossy(&text).into_owned())
    };
    match (kept("trace.jsonl"), kept("run.log")) {
        (Some(trace_lines), Some(run_log)) => ua_report::completed_logs(records, &trace_lines, &run_log),
        (Some(trace_lines), None) => {
            let LogFiles { trace_lines, .. } = ua_report::completed_logs(records, &trace_lines, "");
            LogFiles { trace_lines, ..ua_report::log_files(records) }
        }
        // Which of its lines are missing is told by the events beside it alone.
        (None, Some(run_log)) => LogFiles { run_log, ..ua_report::log_files(records) },
        (None, None) => ua_report::log_files(records),
    }
}

/// The most that is read of what an iteration was handed.
const MAX_HANDOFF_BYTES: u64 = 16 * 1024 * 1024;

/// What the last iteration was handed, as it was written when it began; `None` when none followed another one, and when the agent has
/// built an evidence ledger in its place since. Its ledgers are in no row, so they are taken over from the file that is there.
fn handoff(gathered: &ExportData, artifacts: &[Artifact]) -> Result<Option<String>, HostError> {
    let Some(workspace) = &gathered.workspace else { return Ok(None) };
    let Some((before, number)) = ua_resume::before_last_iteration(&gathered.records) else { return Ok(None) };
    let is_the_agents = workspace
        .folder()
        .read(HANDOFF, MAX_HANDOFF_BYTES)
        .ok()
        .and_then(|text| serde_json::from_slice::<serde_json::Value>(&text).ok())
        .is_some_and(|file| file.get("ledger").is_some_and(serde_json::Value::is_object));
    if is_the_agents {
        return Ok(None);
    }
    let evidence = ua_runner::evidence_of(workspace, &before, artifacts)?;
    let packet = ResumePacket::new(&before, &[], artifacts);
    let ledgers = ua_runner::evidence_ledgers(workspace);
    Ok(Some(pretty(&Handoff::new(&before, number, &packet, &evidence, ledgers))?))
}

/// Refuses, before anything is written, what cannot be copied.
fn can_be_copied(gathered: &ExportData, folder: &Path) -> Result<(), HostError> {
    let Some(workspace) = &gathered.workspace else {
        let unread = &gathered.unread;
        return Err(HostError::usage(format!("the files of the workspace cannot be copied: it {}", unread.why))
            .hint(unread.hint("leave --all-files out; everything that the database has is written")));
    };
    let target = folder.canonicalize().unwrap_or_else(|_| folder.to_path_buf());
    if target.starts_with(workspace.root()) {
        return Err(HostError::usage(format!("{} is in the workspace itself", folder.shown()))
            .hint("name a folder outside it with --out"));
    }
    Ok(())
}

/// The files that a copy of everything has: what the tools made.
fn copied_files(gathered: &ExportData) -> impl Iterator<Item = &Artifact> {
    gathered.artifacts.iter().flatten().filter(|artifact| artifact.path != "transcript.md")
}

/// Copies what the tools made.
fn copy_files(gathered: &mut ExportData, folder: &Path) -> Result<(), HostError> {
    let Some(workspace) = &gathered.workspace else { return Ok(()) };
    let mut left = Vec::new();
    let to = Folder::open(folder);
    let to = to.map_err(|e| HostError::storage(format!("cannot open the folder {}: {e}", folder.shown())))?;
    for artifact in copied_files(gathered) {
        let path = folder.join(&artifact.path);
        // Under its name as text, which is not its name where that is none. Others may have gone since the folder was looked at.
        let found = match workspace.folder().open_file(&artifact.path) {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                left.push(plain(&artifact.path));
                continue;
            }
            found => found,
        };
        let copied = found.and_then(|mut from| {
            to.make_folder(Path::new(&artifact.path).parent().unwrap_or(Path::new("")))?;
            let mut into = to.replacement(&artifact.path)?;
            std::io::copy(&mut from, &mut into)?;
            into.place()
        });
        copied.map_err(|e| {
            HostError::storage(format!("cannot copy {} to {}: {e}", artifact.path, path.shown()))
                .hint("check that the disk is writable and not full")
        })?;
        written(&path)?;
    }
    if let Some(first) = left.first() {
        let more = if left.len() > 1 {
            format!(" and {}", ua_core::counted(left.len() - 1, "other file"))
        } else {
            String::new()
        };
        gathered.notes.push(format!("not copied: {first}{more}, which is gone, or whose name is not UTF-8 text"));
    }
    Ok(())
}

fn is_standard_output(path: &Path) -> bool {
    path == Path::new("-")
}

/// The file that `out` means: itself, or one with this name when it is a folder.
fn file_in(out: &Path, name: &str) -> PathBuf {
    let is_folder = out.is_dir() || out.to_string_lossy().ends_with('/');
    if is_folder { out.join(name) } else { out.to_path_buf() }
}

/// Writes each file below a folder, and says so.
fn write_all(folder: &Path, files: &[(String, String)]) -> Result<(), HostError> {
    files.iter().try_for_each(|(name, text)| written(&write_in(folder, name, text)?))
}

/// Writes a file that a person named, or that an export wrote before, and makes the folders above it.
#[expect(clippy::disallowed_methods, reason = "a person named the folder")]
fn write_file(home: &Home, path: &Path, text: &str) -> Result<PathBuf, HostError> {
    let path = std::path::absolute(path)
        .map_err(|e| HostError::usage(format!("cannot use {}: {e}", path.shown())).hint("name another file"))?;
    let (Some(folder), Some(name)) = (path.parent(), path.file_name().and_then(|name| name.to_str())) else {
        return Err(HostError::usage(format!("{} is not a file", path.shown())).hint("name a file"));
    };
    if path.is_dir() {
        return Err(HostError::usage(format!("{} is a folder", path.shown()))
            .hint(format!("name a file in it, for example {}", path.join(PAGE_NAME).shown())));
    }
    refuse_leading_out(folder)?;
    replaced::check(home, None, [Planned { path: &path, text: Some(text) }])?;
    fs::create_dir_all(folder).map_err(|e| {
        HostError::storage(format!("cannot make the folder {}: {e}", folder.shown())).hint("choose another with --out")
    })?;
    write_in(folder, name, text)
}

/// Replaces a file below a folder, which may be the workspace: what a program of the model planted there is not followed.
fn write_in(folder: &Path, name: &str, text: &str) -> Result<PathBuf, HostError> {
    let path = std::path::absolute(folder.join(name)).unwrap_or_else(|_| folder.join(name));
    let written = Folder::open(folder).and_then(|folder| {
        if let Some(above) = Path::new(name).parent() {
            folder.make_folder(above)?;
        }
        folder.replace(name, text.as_bytes())
    });
    written.map_err(|e| {
        HostError::storage(format!("cannot write {}: {e}", path.shown())).hint(ua_host::paths::mend_folder(&e))
    })?;
    Ok(path)
}

fn written(path: &Path) -> Result<(), HostError> {
    print_exactly(format!("{}\n", path.shown()))
}

fn pretty(value: &impl serde::Serialize) -> Result<String, HostError> {
    serde_json::to_string_pretty(value).map_err(|e| HostError::failed(format!("cannot write JSON: {e}")))
}
