//! A real browser without a window, to look at a page as a person's browser would make it.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Where browsers of the Chromium family are installed.
const PLACES: [&str; 6] = [
    "/usr/bin/chromium",
    "/usr/bin/chromium-browser",
    "/usr/bin/google-chrome",
    "/usr/bin/google-chrome-stable",
    "/usr/local/bin/chromium",
    "/snap/bin/chromium",
];

/// A page after its script has run.
#[derive(Debug)]
pub struct Page {
    /// What the browser made of it, as HTML.
    pub dom: String,
    /// What was written to its console.
    pub console: Vec<String>,
}

/// A browser with a profile of its own.
#[derive(Debug)]
pub struct Browser {
    program: PathBuf,
    profile: PathBuf,
}

impl Browser {
    /// The browser of this machine; `None` when it has none. `folder` is for its profile.
    pub fn find(folder: &Path) -> Option<Self> {
        let program = PLACES.iter().map(PathBuf::from).find(|place| place.exists())?;
        Some(Self { program, profile: folder.join("browser") })
    }

    /// Opens a file, scrolled to `fragment` when it is not empty.
    ///
    /// # Panics
    ///
    /// When the browser does not start, or is not done within four minutes.
    pub fn open(&self, file: &Path, fragment: &str) -> Page {
        let output = self.run(&["--dump-dom".to_owned()], file, fragment);
        let errors = String::from_utf8_lossy(&output.stderr);
        let console = errors.lines().filter(|line| line.contains(":CONSOLE")).map(str::to_owned).collect();
        Page { dom: String::from_utf8_lossy(&output.stdout).into_owned(), console }
    }

    fn run(&self, options: &[String], file: &Path, fragment: &str) -> std::process::Output {
        let target = if fragment.is_empty() { String::new() } else { format!("#{fragment}") };
        // `timeout` ends a browser that hangs; its own sandbox cannot be had in a container as root.
        let mut command = Command::new("timeout");
        command.args(["--signal=KILL", "240"]).arg(&self.program);
        command.args(["--headless=new", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", "--no-first-run"]);
        command.arg(format!("--user-data-dir={}", self.profile.display())).args(options);
        command.arg(format!("file://{}{target}", file.display()));
        let output = command.output().unwrap_or_else(|e| panic!("start the browser: {e}"));
        assert!(output.status.success(), "{}: {}", output.status, String::from_utf8_lossy(&output.stderr));
        output
    }
}

impl Page {
    /// How many elements have this attribute.
    pub fn count(&self, attribute: &str) -> usize {
        self.drawn().matches(&format!(" {attribute}=\"")).count()
    }

    /// The page without its own data and script, which come after everything that was drawn.
    pub fn drawn(&self) -> &str {
        self.dom.split("<script").next().unwrap_or_default()
    }

    /// Fails unless the page drew itself, without an error and without a word on the console.
    ///
    /// # Panics
    ///
    /// When it did not; what it said is shown.
    #[track_caller]
    pub fn is_well(&self) {
        let head: String = self.drawn().chars().take(400).collect();
        assert!(self.dom.contains("data-ready=\"true\"") && self.dom.contains("data-errors=\"0\""), "{head}");
        assert_eq!(self.console, [""; 0]);
    }
}
