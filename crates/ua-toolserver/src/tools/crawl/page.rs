//! From a document to what is worth reading in it.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use dom_query::Document as Tree;
use dom_smoothie::Readability;
use url::Url;

use super::apart;
use super::bounded::bounded;
use super::depth::{self, Excess, Limits};
use super::{Document, Kind};
use crate::answer::Failure;
use crate::page_reader::{PageReader, READ_FOR};

/// The most HTML that is read, in bytes; what the crawler takes is smaller.
const MAX_HTML_BYTES: usize = 32 * 1024 * 1024;
/// What a page may ask of its reader. Pages that people write are nested less than 60 deep and have some thousand elements; the longest
/// documents have some hundred thousand.
pub(super) const LIMITS: Limits = Limits { levels: 200, elements: 400_000, comparisons: 1_000_000_000 };
/// What helps whoever wanted a page that cannot be read.
pub(super) const ANOTHER: &str = "try another page";
/// Pages that were given up and are still being read, by threads that nobody can stop: where there is no [`PageReader`].
static GIVEN_UP: AtomicUsize = AtomicUsize::new(0);
/// How many of them there may be.
const MOST_GIVEN_UP: usize = 4;
/// Elements of a page that are not its text.
const NOT_TEXT: [&str; 8] = ["script", "style", "noscript", "template", "iframe", "svg", "nav", "head"];
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
    /// Reads a document: a long page by `reader`, if there is one.
    pub(super) fn read(document: Document, reader: Option<&PageReader>) -> Result<Self, Failure> {
        let Document { source, kind, text, .. } = document;
        let (title, author, published, markdown) = match kind {
            Kind::Html => {
                let apart = reader.filter(|_| text.len() > apart::SHORT);
                if let Some(read) = apart.and_then(|reader| reader.read(&source, &text)) {
                    read?
                } else {
                    let source = source.clone();
                    on_a_deep_stack(READ_FOR, move || readable(&source, &text))?
                }
            }
            Kind::Text => (heading(&text), None, None, text.trim().to_owned()),
        };
        if markdown.is_empty() {
            return Err(Failure::refused("the page has no readable text", ANOTHER));
        }
        let title = title.split_whitespace().collect::<Vec<_>>().join(" ");
        let title = if title.is_empty() { source.to_string() } else { title };
        Ok(Self { source, title, author, published, words: markdown.split_whitespace().count(), markdown })
    }
}

/// Title, author, date of publication, Markdown.
pub(super) type Parts = (String, Option<String>, Option<String>, String);

/// Runs `work` on a thread of its own with much stack, and waits for it as long as a page is worth. Its panic is the page's fault, and so is
/// its taking too long: then its thread is left to itself, since nothing can stop it, and its result is dropped.
pub(super) fn on_a_deep_stack<T: Send + 'static>(
    limit: Duration,
    work: impl FnOnce() -> Result<T, Failure> + Send + 'static,
) -> Result<T, Failure> {
    if GIVEN_UP.load(Ordering::SeqCst) >= MOST_GIVEN_UP {
        let problem = format!("{MOST_GIVEN_UP} pages that were given up are still being read");
        return Err(Failure::refused(problem, "try again later, and without the pages that take too long"));
    }
    let (done, result) = mpsc::sync_channel(1);
    // Whoever comes second, the reader or the deadline, finds the other's mark.
    let is_over = Arc::new(AtomicBool::new(false));
    let mark = GivenUp(Arc::clone(&is_over));
    let reading = move || {
        let _mark = mark;
        // Nobody may wait any more.
        let _is_late = done.send(work());
    };
    let thread = std::thread::Builder::new().name("page".to_owned()).stack_size(STACK_BYTES);
    thread.spawn(reading).map_err(|error| Failure::io("start a thread to read the page", &error))?;
    result.recv_timeout(limit).unwrap_or_else(|why| {
        let why = match why {
            mpsc::RecvTimeoutError::Disconnected => "the reader stopped by a bug".to_owned(),
            mpsc::RecvTimeoutError::Timeout => {
                GIVEN_UP.fetch_add(1, Ordering::SeqCst);
                if is_over.swap(true, Ordering::SeqCst) {
                    GIVEN_UP.fetch_sub(1, Ordering::SeqCst);
                }
                format!("it took longer than {}", ua_core::span_in_words(limit))
            }
        };
        Err(unreadable(&why))
    })
}

/// That a page cannot be read, and why.
pub(super) fn unreadable(why: &str) -> Failure {
    Failure::refused(format!("the page could not be read as HTML: {why}"), ANOTHER)
}

/// Says when the thread of a page ends, that the page is not among those given up any more.
struct GivenUp(Arc<AtomicBool>);

impl Drop for GivenUp {
    fn drop(&mut self) {
        if self.0.swap(true, Ordering::SeqCst) {
            GIVEN_UP.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

/// The article of an HTML page; the whole body when no part of it looks like an article.
pub(super) fn readable(source: &Url, html: &str) -> Result<Parts, Failure> {
    if html.len() > MAX_HTML_BYTES {
        let problem = format!("the page has {} bytes, more than the limit of {MAX_HTML_BYTES}", html.len());
        return Err(Failure::refused(problem, "try a page about a smaller part of the subject"));
    }
    if let Some(excess) = depth::excess_of(html, LIMITS) {
        let what = match excess {
            Excess::Levels => format!("it is nested deeper than {} levels", LIMITS.levels),
            Excess::Elements => format!("it has more than {} elements", LIMITS.elements),
            Excess::Attributes => "its elements have too many attributes".to_owned(),
        };
        return Err(unreadable(&what));
    }
    let mut reader = Readability::with_document(bounded(html), Some(source.as_str()), None)
        .map_err(|error| unreadable(&error.to_string()))?;
    let fallback_title = reader.get_article_title().to_string();
    let markdown_of = |html: &str| Tree::from(html).md(Some(&NOT_TEXT)).trim().to_owned();
    match reader.parse() {
        Ok(article) => {
            let markdown = markdown_of(&article.content);
            if !markdown.is_empty() {
                return Ok((article.title, article.byline, article.published_time, markdown));
            }
        }
        Err(error) => tracing::debug!(%source, %error, "no article found, keeping the whole page"),
    }
    Ok((fallback_title, None, None, markdown_of(html)))
}

/// The first heading of a Markdown text, else its first line.
fn heading(text: &str) -> String {
    let lines = || text.lines().map(str::trim).filter(|line| !line.is_empty());
    let title = lines().find_map(|line| line.strip_prefix("# ")).or_else(|| lines().next()).unwrap_or_default();
    title.chars().take(200).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_tables_without_a_heading_and_code_stay_what_they_are_and_navigation_is_left_out() {
        let html = "<html><body><nav>menu</nav><article><h1>Prices</h1><p>Set order_id, then call <code>pay()</code>.</p>\
            <ul><li>one</li><li>two</li></ul><table><tr><td>a</td><td>b</td></tr></table><script>no()</script></article></body></html>";
        let (_, _, _, markdown) = readable(&Url::parse("https://example.org/").unwrap(), html).unwrap();
        for part in ["Set order\\_id, then call `pay()`.", "- one\n- two", "| a | b |"] {
            assert!(markdown.contains(part), "{part}: {markdown}");
        }
        assert!(!markdown.contains("menu") && !markdown.contains("no()"), "{markdown}");
    }

    /// What a page costs by its size: four times as much, and not sixteen times. Counted is the processor's time of this thread, which others on the
    /// machine do not change much.
    #[cfg(target_os = "linux")]
    #[test]
    #[expect(clippy::disallowed_methods, reason = "what the kernel says of this thread is no file of anybody's")]
    fn four_times_as_long_a_page_costs_about_four_times_as_much() {
        fn spent() -> u64 {
            let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
            stat.split_whitespace().next().unwrap().parse().unwrap()
        }
        let source = Url::parse("https://example.org/").unwrap();
        let title = |of: usize| format!("<title>{}</title>", "some words ".repeat(of / 22));
        let shapes: [(&str, &dyn Fn(usize) -> String); 6] = [
            ("signs", &|of| "&amp;lt;".repeat(of / 8)),
            ("preformatted", &|of| format!("<pre>{}</pre>", "&amp;lt; \n".repeat(of / 10))),
            ("spaces", &|of| format!("<p>{}</p>", "a\u{a0}".repeat(of / 3))),
            ("paragraphs", &|of| "<p>&amp;lt;b&amp;gt; word</p>\n".repeat(of / 30)),
            ("an attribute", &|of| {
                format!("<p>text of it, long enough to be read.<a href=\"{}\">x</a></p>", "&amp;".repeat(of / 5))
            }),
            ("headings", &|of| title(of) + &"<h2>other of it</h2>".repeat(of / 40)),
        ];
        for (name, shape) in shapes {
            let cost = |of: usize| {
                let html = shape(of);
                let once = || {
                    let before = spent();
                    assert!(readable(&source, &html).is_ok(), "{name}");
                    spent() - before
                };
                (0..3).map(|_| once()).min().unwrap()
            };
            let (small, large) = (cost(25_000), cost(100_000));
            assert!(large < 9 * small, "{name}: {small} ns and {large} ns");
        }
    }

    /// One test, since what was given up is counted for the whole process.
    #[test]
    fn a_page_that_takes_too_long_is_given_up_alone_and_so_many_are_not_read_at_once() {
        let (soon, long) = (Duration::from_millis(20), Duration::from_mins(1));
        let mut held = Vec::new();
        for _ in 0..MOST_GIVEN_UP {
            let (go, wait) = mpsc::channel::<()>();
            let (gone, is_gone) = mpsc::channel::<()>();
            let told = on_a_deep_stack(soon, move || {
                let _gone = gone;
                wait.recv().ok();
                Ok(())
            });
            let told = told.unwrap_err().text();
            assert!(told.contains("it took longer than 1 s") && told.contains("another page"), "{told}");
            held.push((go, is_gone));
            if held.len() < MOST_GIVEN_UP {
                assert_eq!(on_a_deep_stack(long, || Ok(7)).unwrap(), 7, "others are read");
            }
        }
        assert!(on_a_deep_stack(long, || Ok(7)).unwrap_err().text().contains("still being read"));
        for (go, is_gone) in held {
            drop(go);
            assert!(is_gone.recv().is_err(), "its thread ends");
        }
        while GIVEN_UP.load(Ordering::SeqCst) > 0 {
            std::thread::yield_now();
        }
        assert_eq!(on_a_deep_stack(long, || Ok(7)).unwrap(), 7);
        assert!(
            on_a_deep_stack(long, || -> Result<(), Failure> { panic!("a bug") })
                .unwrap_err()
                .text()
                .contains("by a bug")
        );
    }
}
