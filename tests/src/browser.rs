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

/// The variables by which somebody asks for pages to be looked at: the nightly lane, and whoever compares or takes pictures. A machine without a
/// browser is a failure then.
const ASKED_FOR_BY: [&str; 2] = ["UA_NEED_CHROMIUM", "UA_PICTURES"];

/// What a window has besides the page.
const WINDOW: u32 = 140;

/// What a page is looked at on.
#[derive(Debug, Clone, Copy)]
pub struct Screen {
    /// Columns of pixels.
    pub width: u32,
    /// Lines of pixels.
    pub height: u32,
    /// Whether the person prefers dark pages.
    pub is_dark: bool,
}

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
    ///
    /// # Panics
    ///
    /// When it has none, and somebody asked for pages to be looked at.
    pub fn find(folder: &Path) -> Option<Self> {
        let program = PLACES.iter().map(PathBuf::from).find(|place| place.exists());
        let asked_for_by = ASKED_FOR_BY.into_iter().find(|name| std::env::var_os(name).is_some());
        if let Some(missed) = missed(program.is_some(), asked_for_by) {
            panic!("{missed}");
        }
        Some(Self { program: program?, profile: folder.join("browser") })
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

    /// Draws the top of a page as it is on a screen of this width and height, light or dark, and writes the picture to `to`.
    ///
    /// # Panics
    ///
    /// When the browser does not start, or is not done within four minutes.
    pub fn picture(&self, file: &Path, screen: Screen, to: &Path) {
        let frame = self.frame(file, screen, "");
        let mut options = vec![
            format!("--screenshot={}", to.display()),
            // A window has at least 500 columns; what is narrower stands in a frame, at the left of it.
            format!("--window-size={},{}", screen.width.max(500), screen.height + WINDOW),
            "--hide-scrollbars".to_owned(),
            "--virtual-time-budget=4000".to_owned(),
        ];
        if screen.is_dark {
            options.extend(["--force-dark-mode", "--blink-settings=preferredColorScheme=0"].map(str::to_owned));
        }
        self.run(&options, &frame, "");
    }

    /// What `script` says about the document `page` of a file on a screen, as text.
    ///
    /// # Panics
    ///
    /// When the browser does not start, or the script says nothing.
    pub fn measure(&self, file: &Path, screen: Screen, script: &str) -> String {
        let run = format!(
            "<script>const frame = document.querySelector('iframe');\nframe.addEventListener('load', () => setTimeout(() => {{ \
             const page = frame.contentDocument; document.querySelector('output').textContent = (() => {{ {script} }})(); }}, 500));</script>"
        );
        let frame = self.frame(file, screen, &run);
        let options = ["--dump-dom", "--virtual-time-budget=6000", "--window-size=1400,1000"].map(str::to_owned);
        let output = self.run(&options, &frame, "");
        let dom = String::from_utf8_lossy(&output.stdout).into_owned();
        let said = dom.split("<output>").nth(1).and_then(|rest| rest.split("</output>").next());
        said.filter(|said| !said.is_empty()).unwrap_or_else(|| panic!("nothing was measured: {dom}")).to_owned()
    }

    /// A page with another one in a frame of a screen's size.
    fn frame(&self, file: &Path, screen: Screen, more: &str) -> PathBuf {
        let frame = self.profile.with_extension("html");
        let (width, height, place) = (screen.width, screen.height, file.display());
        let page = format!(
            "<!doctype html><meta charset=\"utf-8\"><body style=\"margin:0\"><output></output><iframe src=\"file://{place}\" \
             style=\"position:absolute;left:0;top:0;border:0;width:{width}px;height:{height}px\"></iframe>{more}"
        );
        std::fs::write(&frame, page).unwrap_or_else(|e| panic!("write {}: {e}", frame.display()));
        frame
    }

    fn run(&self, options: &[String], file: &Path, fragment: &str) -> std::process::Output {
        let target = if fragment.is_empty() { String::new() } else { format!("#{fragment}") };
        // `timeout` ends a browser that hangs; its own sandbox cannot be had in a container as root.
        let mut command = Command::new("timeout");
        command.args(["--signal=KILL", "240"]).arg(&self.program);
        // Instants are drawn in the browser's time zone, and a page may look into its own frame.
        command.env("TZ", "UTC").args(["--allow-file-access-from-files", "--force-device-scale-factor=1"]);
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

/// What was asked for and cannot be had: pages are to be looked at, as `asked_for_by` says, and there is no browser.
fn missed(is_there: bool, asked_for_by: Option<&str>) -> Option<String> {
    let name = asked_for_by.filter(|_| !is_there)?;
    Some(format!(
        "{name} asks for pages to be looked at, and there is no Chromium on this machine (`apt-get install chromium`)"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_without_a_browser_fails_only_those_who_asked_for_pages() {
        assert_eq!(missed(false, None), None);
        for name in ASKED_FOR_BY {
            assert_eq!(missed(true, Some(name)), None);
            let said = missed(false, Some(name)).unwrap();
            assert!(said.starts_with(name) && said.contains("no Chromium on this machine"), "{said}");
        }
    }
}
