//! The layout's view of the world: one program, the images, and the fonts that are part of this one. No clock, no files.

use std::collections::{BTreeSet, HashMap};
use std::sync::LazyLock;

use typst::diag::{FileError, FileResult, SourceDiagnostic};
use typst::foundations::{Bytes, Datetime, Duration, Smart};
use typst::layout::{Frame, FrameItem};
use typst::syntax::{FileId, RootedPath, Source, VirtualPath, VirtualRoot};
use typst::text::{Font, FontBook};
use typst::utils::LazyHash;
use typst::{Library, LibraryExt, World, WorldExt};
use typst_kit::fonts::FontStore;
use typst_layout::PagedDocument;

use crate::error::PdfError;
use crate::limits;
use crate::source::Program;

static LIBRARY: LazyLock<LazyHash<Library>> = LazyLock::new(|| LazyHash::new(Library::default()));
static FONTS: LazyLock<FontStore> = LazyLock::new(|| {
    let mut fonts = FontStore::new();
    for file in FONT_FILES {
        fonts.extend(Font::iter(Bytes::new(*file)).map(|font| (font.clone(), font.info().clone())));
    }
    fonts
});

/// The faces that documents are set in. The set that comes with Typst has a family for formulas besides, which is two thirds of its size and
/// which no document of ours asks for.
const FONT_FILES: &[&[u8]] = &[
    include_bytes!("../fonts/LibertinusSerif-Regular.otf"),
    include_bytes!("../fonts/LibertinusSerif-Bold.otf"),
    include_bytes!("../fonts/LibertinusSerif-Italic.otf"),
    include_bytes!("../fonts/LibertinusSerif-BoldItalic.otf"),
    include_bytes!("../fonts/DejaVuSansMono.ttf"),
    include_bytes!("../fonts/DejaVuSansMono-Bold.ttf"),
];

/// Everything a layout may see.
pub(crate) struct PrivateWorld {
    program: Source,
    marks: Vec<(usize, usize)>,
    files: HashMap<FileId, Bytes>,
}

/// A laid-out document.
pub(crate) struct LaidOut {
    pub(crate) pdf: Vec<u8>,
    pub(crate) pages: usize,
    pub(crate) missing_glyphs: Vec<char>,
    pub(crate) warnings: Vec<String>,
}

impl PrivateWorld {
    pub(crate) fn new(program: Program<'_>) -> Result<Self, PdfError> {
        let files = program.images.into_files().into_iter().map(|(path, bytes)| Ok((id(&path)?, bytes)));
        Ok(Self {
            files: files.collect::<Result<_, PdfError>>()?,
            program: Source::new(id("/main.typ")?, program.text),
            marks: program.marks,
        })
    }

    /// Lays the program out and writes the file.
    pub(crate) fn lay_out(&self) -> Result<LaidOut, PdfError> {
        let compiled = typst::compile::<PagedDocument>(self);
        let document = compiled.output.map_err(|errors| self.failure(&errors))?;
        let pages = document.pages().len();
        if pages > limits::PAGES {
            return Err(PdfError::TooLong { pages, limit: limits::PAGES });
        }
        let mut missing = BTreeSet::new();
        for page in document.pages() {
            collect_missing(&page.frame, &mut missing);
        }
        let options = typst_pdf::PdfOptions { creator: Smart::Custom(Some("ua".to_owned())), ..Default::default() };
        Ok(LaidOut {
            pdf: typst_pdf::pdf(&document, &options).map_err(|errors| self.failure(&errors))?,
            pages,
            missing_glyphs: missing.into_iter().collect(),
            warnings: compiled
                .warnings
                .iter()
                .map(|warning| format!("line {}: {}", self.line(warning), warning.message))
                .collect(),
        })
    }

    fn failure(&self, errors: &[SourceDiagnostic]) -> PdfError {
        match errors.first() {
            Some(error) => PdfError::Layout { line: self.line(error), problem: error.message.to_string() },
            None => PdfError::Renderer { problem: "the layout gave no reason".to_owned() },
        }
    }

    /// The line of the Markdown that a diagnostic is about: where it points to, else where that was called from.
    fn line(&self, diagnostic: &SourceDiagnostic) -> usize {
        let own = WorldExt::range(self, diagnostic.span);
        let calls = diagnostic.trace.iter().filter_map(|call| WorldExt::range(self, call.span));
        let start = self.marks.first().map_or(0, |(offset, _)| *offset);
        let offset = own.into_iter().chain(calls).map(|range| range.start).find(|offset| *offset >= start);
        let mark = offset.and_then(|offset| self.marks.iter().rev().find(|(begin, _)| *begin <= offset));
        mark.map_or(1, |(_, line)| *line)
    }
}

impl World for PrivateWorld {
    fn library(&self) -> &LazyHash<Library> {
        &LIBRARY
    }

    fn book(&self) -> &LazyHash<FontBook> {
        FONTS.book()
    }

    fn main(&self) -> FileId {
        self.program.id()
    }

    fn source(&self, id: FileId) -> FileResult<Source> {
        if id == self.program.id() { Ok(self.program.clone()) } else { Err(FileError::AccessDenied) }
    }

    fn file(&self, id: FileId) -> FileResult<Bytes> {
        self.files.get(&id).cloned().ok_or(FileError::AccessDenied)
    }

    fn font(&self, index: usize) -> Option<Font> {
        FONTS.font(index)
    }

    fn today(&self, _offset: Option<Duration>) -> Option<Datetime> {
        None
    }
}

fn id(path: &str) -> Result<FileId, PdfError> {
    let path =
        VirtualPath::new(path).map_err(|error| PdfError::Renderer { problem: format!("name {path}: {error:?}") })?;
    Ok(RootedPath::new(VirtualRoot::Project, path).intern())
}

/// Adds the characters that are shown as boxes, because glyph 0 is what a font shows for those it does not have.
fn collect_missing(frame: &Frame, missing: &mut BTreeSet<char>) {
    for (_, item) in frame.items() {
        match item {
            FrameItem::Group(group) => collect_missing(&group.frame, missing),
            FrameItem::Text(text) => {
                let unknown = text.glyphs.iter().filter(|glyph| glyph.id == 0);
                missing.extend(unknown.filter_map(|glyph| text.text.get(glyph.range())).flat_map(str::chars));
            }
            FrameItem::Shape(..) | FrameItem::Image(..) | FrameItem::Link(..) | FrameItem::Tag(_) => {}
        }
    }
}
