//! The programs under test, which cargo builds with the tests of this package.

use std::path::PathBuf;
use std::sync::LazyLock;

/// The `ua` that tests run: kill points at its seams, and no layout engine.
pub fn ua_program() -> &'static PathBuf {
    static PROGRAM: LazyLock<PathBuf> = LazyLock::new(|| built("ua-e2e-ua"));
    &PROGRAM
}

/// The `ua` of tests that render PDF.
pub fn ua_pdf_program() -> &'static PathBuf {
    static PROGRAM: LazyLock<PathBuf> = LazyLock::new(|| built("ua-e2e-ua-pdf"));
    &PROGRAM
}

/// A test is in `deps`, the programs are one folder above it.
fn built(name: &str) -> PathBuf {
    let test = std::env::current_exe().unwrap_or_else(|e| panic!("this test does not know where it is: {e}"));
    let program = test.ancestors().nth(2).map(|folder| folder.join(name)).unwrap_or_default();
    assert!(program.is_file(), "{} is not there; `cargo test -p ua-e2e` builds it", program.display());
    program
}
