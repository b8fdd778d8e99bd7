//! `build_evidence_ledger`: what the corpus lets one cite, with its sources, for a report and for a later context.

use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::corpus::{Finalized, SOURCES, Source};
use super::extract::{Kind, citable};
use super::{default_task, folder_of};
use crate::answer::{Answer, Failure, success};
use crate::context::{Context, Order, Setup, blocking};
use crate::digest::sha256_hex;
use crate::regular;
use crate::tool::{Description, Effect, Opened, Tool};
use crate::tools::crawl::stored_page;
use crate::workspace::Workspace;
use ua_core::ShowPath as _;

const LEDGER: &str = "evidence_ledger.md";
const HANDOFF: &str = "handoff.json";
const DEFAULT_ITEMS: u32 = 200;
const MAX_ITEMS: u32 = 2_000;
const MAX_SOURCES_BYTES: u64 = 8 * 1024 * 1024;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::tools) struct Arguments {
    /// The task whose corpus is read, as it was given to finalize_research.
    #[serde(default = "default_task")]
    #[schemars(length(min = 1, max = 64))]
    task_name: String,
    /// What the report will be about; the topic of the corpus when left out.
    #[serde(default)]
    topic: String,
    /// The most items, spread over the sources; 200 when left out.
    #[schemars(range(min = 1, max = 2000))]
    max_items: Option<u32>,
}

/// A sentence that can be cited.
#[derive(Debug, Serialize)]
struct Item {
    /// `EVID-001`, …
    id: String,
    kind: Kind,
    text: String,
    source: String,
    url: String,
}

#[derive(Debug, Serialize)]
struct FileRef {
    path: String,
    sha256: String,
}

/// `handoff.json`: enough to go on in an empty context. It holds no instant, so that the same corpus gives the same file.
#[derive(Debug, Serialize)]
struct Handoff {
    version: u32,
    task_name: String,
    topic: String,
    phase: &'static str,
    corpus: FileRef,
    corpus_words: usize,
    ledger: FileRef,
    sources: Vec<Source>,
    evidence: Vec<Item>,
    next_action: String,
}

#[derive(Debug, Serialize)]
struct Built {
    ledger: FileRef,
    handoff: FileRef,
    items: usize,
    quotes: usize,
    numbers: usize,
    dates: usize,
    /// Sources whose copy is gone or was changed since the corpus was made.
    missing: Vec<String>,
}

#[derive(Debug)]
pub(in crate::tools) struct BuildEvidenceLedger;

impl Tool for BuildEvidenceLedger {
    const NAME: &'static str = "build_evidence_ledger";
    type Arguments = Arguments;

    fn open(_: &Setup<'_>) -> Opened<Self> {
        Ok(Some(Self))
    }

    fn describe(&self) -> Description {
        Description::new(
            "Collect evidence",
            "Collects the quotes, numbers and dates of a task's corpus, each with its source, in tasks/<task_name>/evidence_ledger.md and in handoff.json. Call finalize_research first.",
            Effect::Replaces,
        )
    }

    async fn call(&self, context: &Context, given: Arguments, _: Order<'_>) -> Answer {
        let folder = folder_of(&given.task_name)?;
        let workspace = Arc::clone(&context.workspace);
        let built = blocking(move || build(&workspace, &folder, &given)).await?;
        success(format!("{} items in {} and {}", built.items, built.ledger.path, built.handoff.path), &built)
    }
}

fn build(workspace: &Workspace, folder: &Path, given: &Arguments) -> Result<Built, Failure> {
    let name = folder.join(SOURCES).to_string_lossy().into_owned();
    let bytes = regular::read_up_to(workspace.area().dir(), &workspace.readable(&name)?, &name, MAX_SOURCES_BYTES)
        .map_err(|failure| Failure::refused(failure.text(), "call finalize_research first, with the same task_name"))?;
    let corpus: Finalized = serde_json::from_slice(&bytes)
        .map_err(|error| Failure::refused(format!("{name} cannot be read: {error}"), "call finalize_research again"))?;
    let most = given.max_items.unwrap_or(DEFAULT_ITEMS).clamp(1, MAX_ITEMS) as usize;
    // A long page does not crowd out the others.
    let per_source = most.div_ceil(corpus.sources.len().max(1));
    let mut evidence: Vec<Item> = Vec::new();
    let mut missing = Vec::new();
    for source in &corpus.sources {
        let Some(page) = stored_page(workspace, Path::new(&source.path)) else {
            missing.push(format!("{} {}", source.id, source.url));
            continue;
        };
        for (kind, text) in citable(&page.markdown).into_iter().take(per_source) {
            if evidence.len() == most {
                break;
            }
            let id = format!("EVID-{:03}", evidence.len() + 1);
            evidence.push(Item { id, kind, text, source: source.id.clone(), url: source.url.clone() });
        }
    }
    let topic = if given.topic.trim().is_empty() { corpus.topic.clone() } else { given.topic.trim().to_owned() };
    let text = ledger(&topic, &corpus.sources, &evidence);
    let count = |kind: Kind| evidence.iter().filter(|item| item.kind == kind).count();
    let (quotes, numbers, dates, items) = (count(Kind::Quote), count(Kind::Number), count(Kind::Date), evidence.len());
    let ledger_path = workspace.writable(&folder.join(LEDGER).to_string_lossy())?;
    let handoff_path = workspace.writable(HANDOFF)?;
    let ledger = || FileRef { path: ledger_path.to_string_lossy().into_owned(), sha256: sha256_hex(&text) };
    let handoff = Handoff {
        version: 1,
        task_name: corpus.task_name,
        next_action: format!("Write the report from {} and {}; cite sources as [S1].", ledger().path, corpus.corpus),
        topic,
        phase: "ledger_complete",
        corpus: FileRef { path: corpus.corpus, sha256: corpus.corpus_sha256 },
        corpus_words: corpus.words,
        ledger: ledger(),
        sources: corpus.sources,
        evidence,
    };
    let handoff = serde_json::to_vec_pretty(&handoff)
        .map_err(|error| Failure::refused(format!("the hand-off cannot be written down: {error}"), "call again"))?;
    let _lock = workspace.exclusive()?;
    for (path, content) in [(&ledger_path, text.as_bytes()), (&handoff_path, handoff.as_slice())] {
        workspace
            .area()
            .replace(path, content)
            .map_err(|error| error.into_failure(format!("write {}", path.shown())))?;
    }
    let handoff = FileRef { path: handoff_path.to_string_lossy().into_owned(), sha256: sha256_hex(&handoff) };
    Ok(Built { ledger: ledger(), handoff, items, quotes, numbers, dates, missing })
}

fn ledger(topic: &str, sources: &[Source], evidence: &[Item]) -> String {
    let mut text = format!("# Evidence: {}\n", if topic.is_empty() { "research" } else { topic });
    for source in sources {
        let mut items = evidence.iter().filter(|item| item.source == source.id).peekable();
        if items.peek().is_none() {
            continue;
        }
        // Writing into a `String` cannot fail.
        write!(text, "\n## [{}] {}\n\n<{}>\n\n", source.id, source.title, source.url).ok();
        for item in items {
            let kind = match item.kind {
                Kind::Quote => "quote",
                Kind::Number => "number",
                Kind::Date => "date",
            };
            writeln!(text, "- **{}** ({kind}) {}", item.id, item.text).ok();
        }
    }
    text
}
