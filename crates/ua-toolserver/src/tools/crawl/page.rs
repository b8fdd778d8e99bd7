//! From a document to what is worth reading in it.

use dom_smoothie::Readability;
use htmd::HtmlToMarkdown;
use url::Url;

use super::{Document, Kind};
use crate::answer::Failure;

/// A page as Markdown, with what it says about itself.
#[derive(Debug)]
pub(super) struct Page {
    pub(super) source: Url,
    pub(super) title: String,
    pub(super) author: Option<String>,
    pub(super) published: Option<String>,
    pub(super) markdown: String,
    pub(super) words: usize,
}

impl Page {
    pub(super) fn read(document: Document) -> Result<Self, Failure> {
        let Document { source, kind, text, .. } = document;
        let (title, author, published, markdown) = match kind {
            Kind::Html => readable(&source, &text)?,
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

/// The article of an HTML page; the whole body when no part of it looks like an article.
fn readable(source: &Url, html: &str) -> Result<Parts, Failure> {
    let unreadable = |error: &dyn std::fmt::Display| {
        Failure::refused(format!("the page could not be read as HTML: {error}"), "try another page")
    };
    let mut reader = Readability::new(html, Some(source.as_str()), None).map_err(|error| unreadable(&error))?;
    let fallback_title = reader.get_article_title().to_string();
    let convert = |html: &str| {
        HtmlToMarkdown::builder()
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
