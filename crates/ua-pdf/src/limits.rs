//! What is refused because it is too much.

/// The most Markdown, in bytes.
pub const MARKDOWN_BYTES: usize = 4 << 20;
/// The most bytes of one image.
pub const IMAGE_BYTES: usize = 20 << 20;
/// The most bytes of all images of a document.
pub const ALL_IMAGE_BYTES: usize = 200 << 20;
/// The most pixels of one image.
pub const IMAGE_PIXELS: usize = 50_000_000;
/// The most pixels of all images of a document.
pub const ALL_IMAGE_PIXELS: usize = 200_000_000;
/// The most images of a document.
pub const IMAGES: usize = 1000;
/// How deep lists, quotes, emphasis and links may be nested in each other, and how many footnotes may each stand in the
/// one before.
pub const NESTING: usize = 16;
/// The most pages.
pub const PAGES: usize = 2000;
/// More lines of text than a page of any paper has; tells before the layout that a document is too long.
#[cfg(feature = "layout")]
pub(crate) const LINES_PER_PAGE: usize = 100;
/// The most cells of all tables. What a layout of one costs grows with the number of its columns, too: a table of these takes seconds.
pub const CELLS: usize = 20_000;
/// The most processor time of a layout in a process of its own, in seconds. The largest document that all other limits let through takes a
/// third of that on a machine of today.
pub const SECONDS: u64 = 120;
/// The most address space of a layout in a process of its own, in bytes.
pub const MEMORY_BYTES: u64 = 2 << 30;
/// The most columns of a table: more have no room on any paper.
pub const COLUMNS: usize = 100;
