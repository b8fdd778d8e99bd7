//! From a document to what is worth reading in it.

use dom_smoothie::Readability;
use htmd::HtmlToMarkdown;
use url::Url;

use super::{Document, Kind, depth};
use crate::answer::Failure;

/// The most HTML that is read, in bytes; what the crawler takes is smaller.
const MAX_HTML_BYTES: usize = 32 * 1024 * 1024;
/// How deep elements may be nested. Pages that people write stay below 60.
const MAX_NESTING: usize = 200;
/// The stack of the thread that reads HTML: what reads it recurses, with some kilobytes a level.
const STACK_BYTES: usize = 64 * 1024 * 1024;

/// A page as Markdown, with what it says about itself.
#[derive(Debug)]
pub(in crate::tools) struct Page {
    pub(in crate::tools) source: Url,
    pub(in crate::tools) title: String,
    pub(in crate::tools) author: Option<String>,
    pub(in crate::tools) published: Option<String>,
    pub(in crate::tools) markdown: String,
    pub(in crate::tools) words: usize,
}

impl Page {
    pub(super) fn read(document: Document) -> Result<Self, Failure> {
        let Document { source, kind, text, .. } = document;
        let (title, author, published, markdown) = match kind {
            Kind::Html => on_a_deep_stack(|| readable(&source, &text))?,
            Kind::Text => (heading(&text), None, None, text.trim().to_owned()),
        };
        if markdown.is_empty() {
            return Err(Failure::refused("the page has no readable text", "try another page"));
        }
        let title = title.split_whitespace().collect::<Vec<_>>().join(" ");
        let title = if title.is_empty() { source.to_string() } else { title };
        Ok(Self { source, title, author, published, words: markdown.split_whitespace().count(), markdown })
    }
}

type Parts = (String, Option<String>, Option<String>, String);

/// Runs `work` on a thread of its own with much stack; its panic is the page's fault.
fn on_a_deep_stack<T: Send>(work: impl FnOnce() -> Result<T, Failure> + Send) -> Result<T, Failure> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("page".to_owned()).stack_size(STACK_BYTES);
        let running =
            thread.spawn_scoped(scope, work).map_err(|error| Failure::io("start a thread to read the page", &error))?;
        running.join().unwrap_or_else(|_| {
            let problem = "the page could not be read as HTML: the reader stopped by a bug";
            Err(Failure::refused(problem, "try another page"))
        })
    })
}

/// The article of an HTML page; the whole body when no part of it looks like an article.
fn readable(source: &Url, html: &str) -> Result<Parts, Failure> {
    if html.len() > MAX_HTML_BYTES {
        let problem = format!("the page has {} bytes, more than the limit of {MAX_HTML_BYTES}", html.len());
        return Err(Failure::refused(problem, "try a page about a smaller part of the subject"));
    }
    if depth::is_deeper_than(MAX_NESTING, html) {
        let problem = format!("the page could not be read as HTML: it is nested deeper than {MAX_NESTING} levels");
        return Err(Failure::refused(problem, "try another page"));
    }
    let unreadable = |error: &dyn std::fmt::Display| {
        Failure::refused(format!("the page could not be read as HTML: {error}"), "try another page")
    };
    let mut reader = Readability::new(html, Some(source.as_str()), None).map_err(|error| unreadable(&error))?;
    let fallback_title = reader.get_article_title().to_string();
    let convert = |html: &str| {
        HtmlToMarkdown::builder()
            // As the depth was measured; otherwise the two would not agree on where a <noscript> ends.
            .scripting_enabled(false)
            .skip_tags(vec!["script", "style", "noscript", "template", "iframe", "svg", "nav", "head"])
            .build()
            .convert(html)
            .map(|markdown| markdown.trim().to_owned())
            .map_err(|error| unreadable(&error))
    };
    match reader.parse() {
        Ok(article) => {
            let markdown = convert(&article.content)?;
            if !markdown.is_empty() {
                return Ok((article.title, article.byline, article.published_time, markdown));
            }
        }
        Err(error) => tracing::debug!(%source, %error, "no article found, keeping the whole page"),
    }
    Ok((fallback_title, None, None, convert(html)?))
}

/// The first heading of a Markdown text, else its first line.
fn heading(text: &str) -> String {
    let lines = || text.lines().map(str::trim).filter(|line| !line.is_empty());
    let title = lines().find_map(|line| line.strip_prefix("# ")).or_else(|| lines().next()).unwrap_or_default();
    title.chars().take(200).collect()
}
