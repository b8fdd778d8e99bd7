//! `render_html`: a Markdown file as one HTML file that needs nothing else.
//!
//! The same source and images give the same bytes. Raw HTML in the Markdown is shown as text, links to scripts lose
//! their target, images of the workspace are embedded and those of the network become links.

use std::io::Read;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use pulldown_cmark::{CowStr, Event, HeadingLevel, LinkType, Options, Parser, Tag, TagEnd, html};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::answer::{Answer, Failure, success};
use crate::context::{Context, Order, Setup, blocking};
use crate::digest::sha256_hex;
use crate::tool::{Description, Effect, Opened, Tool};
use crate::workspace::Workspace;
use crate::{media, regular};

const MAX_IMAGE_BYTES: u64 = 10 * 1024 * 1024;
/// The most that all images of a page come to: each place that shows one holds it once more.
const MAX_EMBEDDED_BYTES: u64 = 64 * 1024 * 1024;
/// The most Markdown; a page of this size is already more than a browser likes.
const MAX_MARKDOWN_BYTES: u64 = 16 * 1024 * 1024;
const STYLE: &str = include_str!("render.css");

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Arguments {
    /// The Markdown file, relative to the workspace.
    source: String,
    /// The HTML file to write, relative to the workspace.
    output: String,
    /// The page's title; the first heading when left out.
    title: Option<String>,
}

#[derive(Debug, Serialize)]
struct Rendered {
    path: String,
    title: String,
    bytes: usize,
    sha256: String,
    images: usize,
}

#[derive(Debug)]
pub(super) struct RenderHtml;

impl Tool for RenderHtml {
    const NAME: &'static str = "render_html";
    type Arguments = Arguments;

    fn open(_: &Setup<'_>) -> Opened<Self> {
        Ok(Some(Self))
    }

    fn describe(&self) -> Description {
        Description::new(
            "Render Markdown as HTML",
            "Renders a Markdown file of the workspace (tables, footnotes, task lists, strikethrough) as one self-contained HTML file with its images embedded.",
            Effect::Replaces,
        )
    }

    async fn call(&self, context: &Context, given: Arguments, _: Order<'_>) -> Answer {
        let workspace = Arc::clone(&context.workspace);
        let rendered = blocking(move || render(&workspace, &given)).await?;
        success(format!("rendered {:?} as {}", rendered.title, rendered.path), &rendered)
    }
}

fn render(workspace: &Workspace, given: &Arguments) -> Result<Rendered, Failure> {
    let source = workspace.readable(&given.source)?;
    let output = workspace.writable(&given.output)?;
    if source == output {
        return Err(Failure::refused(
            "source and output are the same file",
            "give another output, such as report.html",
        ));
    }
    let markdown = read_markdown(workspace, &source, &given.source, MAX_MARKDOWN_BYTES)?;

    let mut page = Page { workspace, source: &source, images: 0, embedded: 0 };
    let events = page.rewrite(&markdown)?;
    let title = match &given.title {
        Some(title) => title.clone(),
        None => first_heading(&events)
            .unwrap_or_else(|| source.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default()),
    };
    let images = page.images;
    let mut body = String::with_capacity(markdown.len() * 2);
    html::push_html(&mut body, events.into_iter());
    let document = format!(
        "<!doctype html>\n<html>\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>{}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<main>\n{body}</main>\n</body>\n</html>\n",
        escape(&title)
    );

    let _lock = workspace.exclusive()?;
    workspace
        .area()
        .replace(&output, document.as_bytes())
        .map_err(|error| error.into_failure(format!("write {:?}", given.output)))?;
    Ok(Rendered {
        path: output.to_string_lossy().into_owned(),
        title,
        bytes: document.len(),
        sha256: sha256_hex(&document),
        images,
    })
}

/// The Markdown file at `path`, which the caller calls `given`. Its size is looked at before its text: a file that is cut
/// at the limit may end in half a character.
pub(super) fn read_markdown(workspace: &Workspace, path: &Path, given: &str, limit: u64) -> Result<String, Failure> {
    let bytes = regular::read_up_to(workspace.area().dir(), path, given, limit)?;
    String::from_utf8(bytes).map_err(|error| {
        let problem = format!("{given:?} is not UTF-8 text at byte {}", error.utf8_error().valid_up_to());
        Failure::refused(problem, "give a Markdown file")
    })
}

struct Page<'a> {
    workspace: &'a Workspace,
    source: &'a Path,
    images: usize,
    /// Bytes of the images so far.
    embedded: u64,
}

impl Page<'_> {
    /// The events of the page, safe and self-contained.
    fn rewrite<'m>(&mut self, markdown: &'m str) -> Result<Vec<Event<'m>>, Failure> {
        let options = Options::ENABLE_TABLES
            | Options::ENABLE_FOOTNOTES
            | Options::ENABLE_STRIKETHROUGH
            | Options::ENABLE_TASKLISTS
            | Options::ENABLE_GFM;
        let mut events = Vec::new();
        // Whether each image that is still open became a link.
        let mut linked = Vec::new();
        for event in Parser::new_ext(markdown, options) {
            events.push(match event {
                Event::Html(text) | Event::InlineHtml(text) => Event::Text(text),
                Event::Start(Tag::HtmlBlock) => Event::Start(Tag::Paragraph),
                Event::End(TagEnd::HtmlBlock) => Event::End(TagEnd::Paragraph),
                Event::Start(Tag::Link { link_type, dest_url, title, id }) => {
                    let dest_url = if is_safe_link(link_type, &dest_url) { dest_url } else { CowStr::Borrowed("#") };
                    Event::Start(Tag::Link { link_type, dest_url, title, id })
                }
                Event::Start(Tag::Image { link_type, dest_url, title, id }) => {
                    let remote = ["http://", "https://"].iter().any(|scheme| dest_url.starts_with(scheme));
                    linked.push(remote);
                    if remote {
                        Event::Start(Tag::Link { link_type: LinkType::Inline, dest_url, title, id })
                    } else {
                        let dest_url = self.embed(&dest_url)?.into();
                        Event::Start(Tag::Image { link_type, dest_url, title, id })
                    }
                }
                Event::End(TagEnd::Image) if linked.pop() == Some(true) => Event::End(TagEnd::Link),
                other @ (Event::Start(_)
                | Event::End(_)
                | Event::Text(_)
                | Event::Code(_)
                | Event::InlineMath(_)
                | Event::DisplayMath(_)
                | Event::FootnoteReference(_)
                | Event::SoftBreak
                | Event::HardBreak
                | Event::Rule
                | Event::TaskListMarker(_)) => other,
            });
        }
        Ok(events)
    }

    /// The data: URL of an image of the workspace.
    fn embed(&mut self, reference: &str) -> Result<String, Failure> {
        let failed = |problem: String| {
            let hint = "name an image file of the workspace, relative to the Markdown file";
            Failure::refused(format!("the image {reference:?} cannot be embedded: {problem}"), hint)
        };
        let path = image_path(self.source, reference).ok_or_else(|| failed("it is not in the workspace".to_owned()))?;
        let media = media::type_of(&path);
        if !media.starts_with("image/") {
            return Err(failed(format!("{media} is not a type of image")));
        }
        let path = self.workspace.readable(&path.to_string_lossy())?;
        let (file, _) = regular::open(self.workspace.area().dir(), &path).map_err(|error| failed(error.to_string()))?;
        let mut bytes = Vec::new();
        file.take(MAX_IMAGE_BYTES + 1).read_to_end(&mut bytes).map_err(|error| failed(error.to_string()))?;
        if bytes.len() as u64 > MAX_IMAGE_BYTES {
            return Err(failed(format!("it is larger than {} MiB", MAX_IMAGE_BYTES >> 20)));
        }
        self.embedded += bytes.len() as u64;
        if self.embedded > MAX_EMBEDDED_BYTES {
            return Err(Failure::refused(
                format!("the images of the page come to more than {} MiB with {reference:?}", MAX_EMBEDDED_BYTES >> 20),
                "show fewer or smaller images, or link to them",
            ));
        }
        self.images += 1;
        Ok(format!("data:{media};base64,{}", STANDARD.encode(bytes)))
    }
}

/// The path that `reference` means in the file `source`; `None` when it leads out of the workspace.
pub(super) fn image_path(source: &Path, reference: &str) -> Option<PathBuf> {
    if reference.is_empty() || reference.contains("://") || reference.starts_with("data:") {
        return None;
    }
    let reference = decode_percent(reference);
    let mut path = source.parent().unwrap_or(Path::new("")).to_path_buf();
    for component in Path::new(&reference).components() {
        match component {
            Component::Normal(name) => path.push(name),
            Component::CurDir => {}
            Component::ParentDir => {
                if !path.pop() {
                    return None;
                }
            }
            Component::RootDir | Component::Prefix(_) => return None,
        }
    }
    Some(path)
}

/// `%20` and its like, which Markdown needs for names with blanks; text that is not UTF-8 then is left as it is.
fn decode_percent(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        let pair = after.get(..2).and_then(|pair| std::str::from_utf8(pair).ok());
        let decoded = pair.filter(|pair| pair.bytes().all(|digit| digit.is_ascii_hexdigit()));
        match decoded.and_then(|pair| u8::from_str_radix(pair, 16).ok()) {
            Some(byte) if first == b'%' => {
                bytes.push(byte);
                rest = after.get(2..).unwrap_or_default();
            }
            Some(_) | None => {
                bytes.push(first);
                rest = after;
            }
        }
    }
    String::from_utf8(bytes).unwrap_or_else(|_| text.to_owned())
}

/// Whether a link may keep its target: relative ones, and schemes that run nothing.
fn is_safe_link(kind: LinkType, target: &str) -> bool {
    if kind == LinkType::Email {
        return true;
    }
    let scheme: String = target
        .chars()
        .filter(|c| !c.is_ascii_control() && !c.is_whitespace())
        .take_while(|c| !matches!(c, '/' | '?' | '#'))
        .collect();
    match scheme.split_once(':') {
        None => true,
        Some((scheme, _)) => {
            ["http", "https", "mailto", "tel", "ftp"].iter().any(|safe| scheme.eq_ignore_ascii_case(safe))
        }
    }
}

fn first_heading(events: &[Event<'_>]) -> Option<String> {
    let start =
        events.iter().position(|event| matches!(event, Event::Start(Tag::Heading { level: HeadingLevel::H1, .. })))?;
    let text: String = events
        .iter()
        .skip(start + 1)
        .take_while(|event| !matches!(event, Event::End(TagEnd::Heading(_))))
        .filter_map(|event| if let Event::Text(text) | Event::Code(text) = event { Some(text.as_ref()) } else { None })
        .collect();
    (!text.trim().is_empty()).then_some(text)
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_links_that_run_nothing_keep_their_target() {
        for safe in ["https://a.example", "a/b.html", "#x", "mailto:a@b.example", "/a:b", "?q=a:b", "HTTP://x"] {
            assert!(is_safe_link(LinkType::Inline, safe), "{safe}");
        }
        for unsafe_link in ["javascript:alert(1)", " JavaScript:x", "java\nscript:x", "data:text/html,x", "vbscript:x"]
        {
            assert!(!is_safe_link(LinkType::Inline, unsafe_link), "{unsafe_link:?}");
        }
    }

    #[test]
    fn image_paths_stay_in_the_workspace() {
        let image_path = |reference| super::image_path(Path::new("texts/a.md"), reference);
        assert_eq!(image_path("x.png"), Some(PathBuf::from("texts/x.png")));
        assert_eq!(image_path("../img/my%20x.png"), Some(PathBuf::from("img/my x.png")));
        assert_eq!(image_path("../../x.png"), None);
        assert_eq!(image_path("/etc/x.png"), None);
        assert_eq!(image_path("file:///etc/x.png"), None);
    }
}
