//! `finalize_research`: what the inbox is worth, as one file with its sources.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use url::Url;

use super::{default_task, folder_of, inbox};
use crate::answer::{Answer, Failure, success};
use crate::context::{Context, Order, Setup, blocking};
use crate::digest::sha256_hex;
use crate::tool::{Description, Effect, Opened, Tool};
use crate::tools::crawl::{Crawler, DEADLINE, StoredPage, copy_of};
use crate::workspace::Workspace;
use ua_core::ShowPath as _;

pub(super) const SOURCES: &str = "sources.json";
const CORPUS: &str = "refined_corpus.md";
const DEFAULT_MIN_WORDS: u32 = 60;
const DEFAULT_MAX_PAGES: u32 = 30;
const MAX_PAGES: u32 = 200;
/// What a model can still be asked to read in pieces.
const MAX_CORPUS_BYTES: usize = 4 * 1024 * 1024;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::tools) struct Arguments {
    /// Names the folder `tasks/NAME/` that the corpus goes into: letters, digits, `-` and `_`.
    #[serde(default = "default_task")]
    #[schemars(length(min = 1, max = 64))]
    task_name: String,
    /// What the research is about; the heading of the corpus.
    #[serde(default)]
    topic: String,
    /// Pages with fewer words are left out; 60 when left out.
    min_words: Option<u32>,
    /// The most pages to fetch of those that searches found and nobody has fetched; 30 when left out, 0 for none.
    #[schemars(range(min = 0, max = 200))]
    max_pages: Option<u32>,
}

/// A page of the corpus.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Source {
    /// `S1`, `S2`, …: how the corpus and the evidence refer to it.
    pub(super) id: String,
    pub(super) title: String,
    pub(super) url: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) author: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) published: Option<String>,
    pub(super) words: usize,
    /// The copy in the inbox.
    pub(super) path: String,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct LeftOut {
    url: String,
    reason: String,
}

/// `sources.json` of a task.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Finalized {
    pub(super) task_name: String,
    pub(super) topic: String,
    /// The corpus file, and the digest of what was written into it.
    pub(super) corpus: String,
    pub(super) corpus_sha256: String,
    pub(super) words: usize,
    pub(super) sources: Vec<Source>,
    pub(super) left_out: Vec<LeftOut>,
}

/// The tool, with what fetches the pages that are missing.
#[derive(Debug)]
pub(in crate::tools) struct FinalizeResearch(Arc<Crawler>);

impl Tool for FinalizeResearch {
    const NAME: &'static str = "finalize_research";
    const MAY_DROP: bool = true;
    const DEADLINE: Duration = DEADLINE;
    type Arguments = Arguments;

    fn open(setup: &Setup<'_>) -> Opened<Self> {
        Ok(Some(Self(Crawler::of(setup)?)))
    }

    fn describe(&self) -> Description {
        Description::new(
            "Make a corpus of the research",
            "Fetches what searches found and nobody fetched yet, leaves out duplicates and pages that are too short, and writes the rest with its sources to tasks/<task_name>/refined_corpus.md. May be called again after more research.",
            Effect::Fetches,
        )
    }

    async fn call(&self, context: &Context, given: Arguments, order: Order<'_>) -> Answer {
        let folder = folder_of(&given.task_name)?;
        let most = given.max_pages.unwrap_or(DEFAULT_MAX_PAGES).min(MAX_PAGES) as usize;
        let (shared, seals) = (Arc::clone(&context.workspace), Arc::clone(&context.seals));
        let (missing, beyond, of_others) = blocking(move || {
            let inbox::Found { by_searches, by_others } = inbox::found_addresses(&shared, &seals)?;
            let without_copy = |urls: Vec<Url>| -> Vec<String> {
                let missing = urls.into_iter().filter(|url| !inbox::has_copy(&shared, &copy_of(url)));
                missing.map(String::from).collect()
            };
            let mut missing = without_copy(by_searches);
            let beyond = missing.split_off(most.min(missing.len()));
            Ok((missing, beyond, without_copy(by_others)))
        })
        .await?;
        let mut left_out: Vec<LeftOut> = self
            .0
            .store(missing, order.run)
            .await
            .into_iter()
            .map(|(url, error)| LeftOut { url, reason: format!("could not be fetched: {error}") })
            .collect();
        left_out.extend(beyond.into_iter().map(|url| LeftOut { url, reason: format!("max_pages is {most}") }));
        let reason = "no search of this server found it; fetch it with crawl_parallel and call again";
        left_out.extend(of_others.into_iter().map(|url| LeftOut { url, reason: reason.to_owned() }));

        let workspace = Arc::clone(&context.workspace);
        let sources = blocking(move || write(&workspace, &folder, given, left_out)).await?;
        success(
            format!(
                "{} sources, {} words in {}; {} left out",
                sources.sources.len(),
                sources.words,
                sources.corpus,
                sources.left_out.len()
            ),
            &sources,
        )
    }
}

fn write(
    workspace: &Workspace,
    folder: &Path,
    given: Arguments,
    mut left_out: Vec<LeftOut>,
) -> Result<Finalized, Failure> {
    let least = given.min_words.unwrap_or(DEFAULT_MIN_WORDS) as usize;
    let pages = inbox::pages(workspace)?;
    if pages.is_empty() {
        return Err(Failure::refused(
            "there are no pages in search_results/",
            "fetch some with crawl_parallel, or search first",
        ));
    }
    let mut kept: Vec<(Source, StoredPage)> = Vec::new();
    let mut by_address = BTreeMap::new();
    let mut by_text = BTreeMap::new();
    let mut bytes = 0;
    for (path, page) in pages {
        let url = page.source.to_string();
        let id = format!("S{}", kept.len() + 1);
        let normal = page.markdown.split_whitespace().collect::<Vec<_>>().join(" ").to_lowercase();
        let (address, text) = (inbox::canonical(&page.source), sha256_hex(&normal));
        let reason = if page.words < least {
            Some(format!("{} words, fewer than {least}", page.words))
        } else if let Some(twin) = by_address.get(&address).or_else(|| by_text.get(&text)) {
            Some(format!("the same as {twin}"))
        } else if bytes + page.markdown.len() > MAX_CORPUS_BYTES {
            Some(format!("the corpus would be larger than {MAX_CORPUS_BYTES} bytes"))
        } else {
            None
        };
        if let Some(reason) = reason {
            left_out.push(LeftOut { url, reason });
            continue;
        }
        bytes += page.markdown.len();
        by_address.insert(address, id.clone());
        by_text.insert(text, id.clone());
        let source = Source {
            id,
            title: page.title.clone(),
            url,
            author: page.author.clone(),
            published: page.published.clone(),
            words: page.words,
            path: path.to_string_lossy().into_owned(),
        };
        kept.push((source, page));
    }
    let text = corpus(&given.topic, &kept);
    let corpus_path = workspace.writable(&folder.join(CORPUS).to_string_lossy())?;
    let written = Finalized {
        task_name: given.task_name,
        topic: given.topic,
        corpus: corpus_path.to_string_lossy().into_owned(),
        corpus_sha256: sha256_hex(&text),
        words: kept.iter().map(|(source, _)| source.words).sum(),
        sources: kept.into_iter().map(|(source, _)| source).collect(),
        left_out,
    };
    let listing = serde_json::to_vec_pretty(&written)
        .map_err(|error| Failure::refused(format!("the sources cannot be written down: {error}"), "call again"))?;
    let listing_path = workspace.writable(&folder.join(SOURCES).to_string_lossy())?;
    let _lock = workspace.exclusive()?;
    for (path, content) in [(&corpus_path, text.as_bytes()), (&listing_path, listing.as_slice())] {
        workspace
            .area()
            .replace(path, content)
            .map_err(|error| error.into_failure(format!("write {}", path.shown())))?;
    }
    Ok(written)
}

fn corpus(topic: &str, kept: &[(Source, StoredPage)]) -> String {
    let mut text = format!("# {}\n\n## Sources\n\n", if topic.trim().is_empty() { "Research" } else { topic.trim() });
    for (source, _) in kept {
        let mut facts = vec![format!("{} words", source.words)];
        facts.extend(source.author.clone());
        facts.extend(source.published.clone());
        // Writing into a `String` cannot fail.
        writeln!(text, "- [{}] {} — <{}> ({})", source.id, source.title, source.url, facts.join(", ")).ok();
    }
    for (source, page) in kept {
        write!(text, "\n---\n\n## [{}] {}\n\n<{}>\n\n{}\n", source.id, source.title, source.url, page.markdown).ok();
    }
    text
}
