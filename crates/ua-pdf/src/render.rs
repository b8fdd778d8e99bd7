//! The way from Markdown to the file.

use typst::foundations::Datetime;

use crate::error::PdfError;
use crate::images::Images;
use crate::limits;
use crate::options::{Paper, PdfOptions, Rendered};
use crate::outline::Outline;
use crate::reader::read;
use crate::source::{Writer, literal};
use crate::world::PrivateWorld;

const TEMPLATE: &str = include_str!("template.typ");
/// The layout is recursive; what is nested as deep as it may be needs more stack than threads usually have.
const STACK_BYTES: usize = 64 << 20;

/// Renders `markdown` as a PDF.
///
/// It is pure computation on this thread and others, of about a tenth of a second for a report of a few pages; call it
/// where waiting does no harm. The same input gives the same bytes.
///
/// # Errors
///
/// When there is nothing to show, something exceeds its [limit](crate::limits), or an image is missing or broken.
pub fn render(markdown: &str, options: &PdfOptions<'_>) -> Result<Rendered, PdfError> {
    if markdown.len() > limits::MARKDOWN_BYTES {
        return Err(PdfError::TooLarge { bytes: markdown.len(), limit: limits::MARKDOWN_BYTES });
    }
    let mut document = read(markdown)?;
    if document.blocks.is_empty() {
        return Err(PdfError::Empty);
    }
    let outline = Outline::take(&mut document, options.title.clone());
    let author = options.author.clone().or_else(|| document.front.author.take());
    let date = options.date.clone().or_else(|| document.front.date.take());

    let images = Images::new(options.images);
    let mut writer = Writer::new(TEMPLATE.to_owned(), images, &outline, &document.footnotes);
    writer.code("#show: report.with(");
    if !outline.shown_title.is_empty() {
        writer.code("shown-title: [");
        writer.inline(&outline.shown_title)?;
        writer.code("], ");
    }
    for (name, value) in [("title", &outline.title), ("author", &author), ("shown-date", &date)] {
        if let Some(value) = value {
            writer.code(&format!("{name}: {}, ", literal(value)));
        }
    }
    if let Some(date) = date.as_deref().and_then(calendar_date) {
        writer.code(&format!("date: {date}, "));
    }
    writer.code(match options.paper {
        Paper::A4 => "paper: \"a4\")\n",
        Paper::Letter => "paper: \"us-letter\")\n",
    });
    if outline.has_lead {
        writer.code("#metadata(none)<heading-0>\n");
    }
    writer.blocks(&document.blocks)?;

    let mut program = writer.finish();
    let pages = program.lines / limits::LINES_PER_PAGE;
    if pages > limits::PAGES {
        return Err(PdfError::TooLong { pages, limit: limits::PAGES });
    }
    let mut warnings = std::mem::take(&mut document.warnings);
    warnings.append(&mut program.warnings);
    let images = program.images.len();
    let world = PrivateWorld::new(program)?;
    let laid_out = on_a_deep_stack(|| world.lay_out())?;
    // What the layout remembers is of no use for the next document.
    typst::comemo::evict(0);
    warnings.extend(laid_out.warnings);
    Ok(Rendered {
        pdf: laid_out.pdf,
        pages: laid_out.pages,
        title: outline.title.clone(),
        images,
        missing_glyphs: laid_out.missing_glyphs,
        warnings,
    })
}

/// Runs `work` on a thread of its own, whose panic is an error here.
fn on_a_deep_stack<T: Send>(work: impl FnOnce() -> Result<T, PdfError> + Send) -> Result<T, PdfError> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("pdf".to_owned()).stack_size(STACK_BYTES);
        let running = thread
            .spawn_scoped(scope, work)
            .map_err(|error| PdfError::Renderer { problem: format!("no thread could be started: {error}") })?;
        running.join().unwrap_or_else(|_| Err(PdfError::Renderer { problem: "the layout stopped by a bug".to_owned() }))
    })
}

/// The layout's expression for a date of the form `2026-11-21`.
fn calendar_date(date: &str) -> Option<String> {
    let mut parts = date.trim().split('-');
    let (year, month, day) = (parts.next()?, parts.next()?, parts.next()?);
    let is_plain = parts.next().is_none() && (year.len(), month.len(), day.len()) == (4, 2, 2);
    let (year, month, day): (i32, u8, u8) = (year.parse().ok()?, month.parse().ok()?, day.parse().ok()?);
    (is_plain && Datetime::from_ymd(year, month, day).is_some())
        .then(|| format!("datetime(year: {year}, month: {month}, day: {day})"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_real_dates_are_metadata() {
        assert_eq!(calendar_date("2026-11-21").unwrap(), "datetime(year: 2026, month: 11, day: 21)");
        for other in ["2026-02-30", "21 November 2026", "2026-11", "2026-11-21-1", "-026-11-21", "20260-1-21"] {
            assert_eq!(calendar_date(other), None, "{other}");
        }
    }

    #[test]
    fn a_panic_of_the_layout_is_an_error() {
        let result: Result<(), _> = on_a_deep_stack(|| panic!("on purpose"));
        assert!(matches!(result, Err(PdfError::Renderer { .. })));
    }
}
