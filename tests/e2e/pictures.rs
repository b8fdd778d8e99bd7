//! The pages that people look at, in a real browser: on a desktop, on a phone, and in the dark. What must hold everywhere is measured;
//! what they look like is compared with the pictures in `tests/pictures` where `UA_PICTURES=compare` says so, since fonts differ from
//! machine to machine. `UA_PICTURES=write` takes the pictures anew; look at them before they are committed. docs/testing.md has what
//! the comparison sees and what it does not.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use image::codecs::png::{CompressionType, FilterType, PngEncoder};
use image::{GrayImage, RgbImage};
use serde_json::Value;
use ua_core::Timestamp;
use ua_e2e::{Browser, Screen, TestEnv};
use ua_evidence::Artifact;
use ua_report::RunExport;
use ua_store::{RunRecord, RunRecords};
use ua_testkit::{skipped, workspace_root};

use super::env;

const DESKTOP: Screen = Screen { width: 1200, height: 1500, is_dark: false };
const PHONE: Screen = Screen { width: 390, height: 2600, is_dark: false };
const DARK: Screen = Screen { is_dark: true, ..DESKTOP };

/// A square of so many pixels a side is one sample of a picture: what is smaller is a matter of fonts.
const SAMPLE: u32 = 12;
/// Two samples are told apart from this difference of their mean brightness on.
const SEEN: u32 = 28;
/// Of the samples of a picture, one in so many may differ.
const MAY_DIFFER: u32 = 40;
/// A sample is looked for this many samples around its place: another browser draws a line of text a little higher or wider.
const NEAR: u32 = 1;

/// The browser of this machine. Where there is none the test says so and shows nothing.
fn browser(env: &TestEnv) -> Option<Browser> {
    let found = Browser::find(&env.path("home"));
    if found.is_none() {
        skipped("no Chromium on this machine, so no page was looked at (`apt-get install chromium`)");
    }
    found
}

/// The timeline of a run that was killed, asked a person and succeeded; its rows are committed, so that each page is the same.
fn timeline(env: &TestEnv) -> PathBuf {
    let file = workspace_root().join("fixtures/pictures/run.json");
    let document: Value = serde_json::from_str(&fs::read_to_string(file).unwrap()).unwrap();
    let records: RunRecords = serde_json::from_value(document["records"].clone()).unwrap();
    let files = document["artifacts"].as_array().unwrap().iter();
    let artifacts: Vec<Artifact> = files
        .map(|file| Artifact {
            path: file["path"].as_str().unwrap().to_owned(),
            bytes: file["bytes"].as_u64().unwrap(),
            sha256: serde_json::from_value(file["sha256"].clone()).unwrap(),
        })
        .collect();
    let media = |_: &str| None;
    let evidence = ua_evidence::evaluate(&records.run.spec, &records.calls, &records.receipts, &artifacts, &media);
    let none: [RunRecord; 0] = [];
    let html = ua_report::timeline_html(&RunExport {
        records: &records,
        events: &[],
        lineage: &none,
        artifacts: Some(&artifacts),
        evidence: Some(&evidence),
        blobs: &BTreeMap::new(),
        arrivals: &[],
        standing: ua_resume::Standing::Stored(records.run.status, records.run.stop_reason),
        next: ua_resume::NextStep::of(&records.run),
        commands: &ua_resume::Commands::default(),
        written_at: Timestamp::from_millis(1_800_000_000_000),
        program: "ua",
    });
    let page = env.path("home/timeline.html");
    fs::write(&page, html).unwrap();
    page
}

/// The report of the research job as HTML.
fn report(env: &TestEnv) -> PathBuf {
    let job = workspace_root().join("fixtures/jobs/research_report.json").display().to_string();
    env.run(&["job", &job, "--run-id", "research"]).code(0);
    // The addresses of its sources are paths of this machine.
    let html = fs::read_to_string(env.workspace().join("work_products/report.html")).unwrap();
    let place = workspace_root().display().to_string();
    let page = env.path("home/report.html");
    fs::write(&page, html.replace(&place, "/srv/ua")).unwrap();
    page
}

/// Says of each element that reaches out of the page, or that is to be read and has no room, which it is.
const WHAT_IS_CUT: &str = "
    const wrong = [], wide = page.documentElement.clientWidth;
    if (page.documentElement.scrollWidth > wide) wrong.push('the page is ' + page.documentElement.scrollWidth + ' wide, its screen ' + wide);
    for (const node of page.querySelectorAll('h1, h2, h3, p, li, td, th, .tool, .took, .tag, .pill')) {
      const box = node.getBoundingClientRect();
      if (!box.width && !box.height) continue;
      if (box.right > wide + 1 && !node.closest('table, pre')) wrong.push((node.className || node.tagName) + ' ends at ' + Math.round(box.right) + ': ' + node.textContent.slice(0, 40));
    }
    for (const node of page.querySelectorAll('.call > .row')) {
      const tool = node.querySelector('.tool'), took = node.querySelector('.took');
      if (tool.getBoundingClientRect().width < 60) wrong.push('the name ' + tool.textContent + ' has no room');
      if (took.scrollWidth > took.clientWidth + 1) wrong.push('the duration ' + took.textContent + ' is cut');
    }
    for (const node of page.querySelectorAll('td.whole')) {
      const text = page.createRange();
      text.selectNodeContents(node);
      if (new Set([...text.getClientRects()].map((line) => Math.round(line.top))).size > 1) wrong.push('broken: ' + node.textContent);
    }
    const labels = [...page.querySelectorAll('.gap span')].map((node) => node.getBoundingClientRect());
    if (labels.some((a, i) => labels.some((b, k) => k > i && a.right > b.left && b.right > a.left))) wrong.push('lengths of waits lie on each other');
    const [search, chips] = [page.querySelector('.bar input'), page.querySelector('.chips')];
    if (search && chips && chips.getBoundingClientRect().top < search.getBoundingClientRect().bottom + 4) wrong.push('the filters touch the search');
    return wrong.join('; ') || 'nothing';";

fn look_at(env: &TestEnv, browser: &Browser, name: &str, page: &Path) {
    for (kind, screen) in [("desktop", DESKTOP), ("phone", PHONE), ("dark", DARK)] {
        if !screen.is_dark {
            assert_eq!(browser.measure(page, screen, WHAT_IS_CUT), "nothing", "{name} on a {kind}");
        }
        let drawn = env.path(&format!("home/{name}-{kind}.png"));
        draw(browser, page, screen, &drawn);
        let wanted = workspace_root().join(format!("tests/pictures/{name}-{kind}.png"));
        match wanted_of_pictures().as_deref() {
            Some("write") => keep(&drawn, &wanted),
            Some("compare") => {
                let differing = difference(&samples(&drawn), &samples(&wanted));
                assert!(
                    differing <= 1.0 / f64::from(MAY_DIFFER),
                    "{name} on a {kind} looks different in {:.1} % of it: {}",
                    100.0 * differing,
                    drawn.display()
                );
            }
            Some(_) | None => {
                assert!(samples(&drawn).pixels().any(|sample| sample.0[0] > 100), "{name} on a {kind} is a picture");
            }
        }
    }
}

/// Draws a page and nothing of the window around it.
fn draw(browser: &Browser, page: &Path, screen: Screen, to: &Path) {
    browser.picture(page, screen, to);
    let picture = image::open(to).unwrap_or_else(|e| panic!("{}: {e}", to.display()));
    picture.crop_imm(0, 0, screen.width, screen.height).into_rgb8().save(to).unwrap();
}

/// Keeps a picture in as few shades as it takes to see what is on it, so that it is small.
fn keep(drawn: &Path, wanted: &Path) {
    let mut picture: RgbImage = image::open(drawn).unwrap().into_rgb8();
    for pixel in picture.pixels_mut() {
        // The nearest of sixteen shades of a colour, black and white among them.
        pixel.0 = pixel.0.map(|shade| shade.saturating_add(8) / 17 * 17);
    }
    fs::create_dir_all(wanted.parent().unwrap()).unwrap();
    let file = fs::File::create(wanted).unwrap();
    picture
        .write_with_encoder(PngEncoder::new_with_quality(file, CompressionType::Best, FilterType::NoFilter))
        .unwrap();
}

#[expect(clippy::disallowed_methods, reason = "whoever starts the tests says what is done with pictures")]
fn wanted_of_pictures() -> Option<String> {
    std::env::var("UA_PICTURES").ok()
}

/// A picture's brightness, square by square.
fn samples(file: &Path) -> GrayImage {
    let picture = image::open(file).unwrap_or_else(|e| panic!("{}: {e}", file.display())).into_luma8();
    let (columns, lines) = (picture.width() / SAMPLE, picture.height() / SAMPLE);
    GrayImage::from_fn(columns, lines, |column, line| {
        let pixels = (0..SAMPLE * SAMPLE)
            .map(|n| u32::from(picture.get_pixel(column * SAMPLE + n % SAMPLE, line * SAMPLE + n / SAMPLE).0[0]));
        image::Luma([u8::try_from(pixels.sum::<u32>() / (SAMPLE * SAMPLE)).unwrap()])
    })
}

/// The part of the samples that differ, from 0 to 1; all of them when the pictures have different sizes.
fn difference(one: &GrayImage, other: &GrayImage) -> f64 {
    if one.dimensions() != other.dimensions() {
        return 1.0;
    }
    missing_in(one, other).max(missing_in(other, one))
}

/// The part of the samples of `one` that are nowhere near their place in `other`.
fn missing_in(one: &GrayImage, other: &GrayImage) -> f64 {
    let (columns, lines) = one.dimensions();
    let missing = one.enumerate_pixels().filter(|(column, line, sample)| {
        let around = (line.saturating_sub(NEAR)..=(line + NEAR).min(lines - 1))
            .flat_map(|y| (column.saturating_sub(NEAR)..=(column + NEAR).min(columns - 1)).map(move |x| (x, y)))
            .map(|(x, y)| other.get_pixel(x, y).0[0]);
        let (least, most) = around.fold((u8::MAX, 0), |(least, most), shade| (least.min(shade), most.max(shade)));
        u32::from(sample.0[0]) + SEEN <= u32::from(least) || u32::from(sample.0[0]) >= u32::from(most) + SEEN
    });
    f64::from(u32::try_from(missing.count()).unwrap()) / f64::from(columns * lines)
}

#[test]
fn the_timeline_is_whole_on_a_desktop_and_on_a_phone_and_looks_as_it_did() {
    let env = env();
    let Some(browser) = browser(&env) else { return };
    look_at(&env, &browser, "timeline", &timeline(&env));
}

#[test]
fn a_report_is_whole_on_a_desktop_and_on_a_phone_and_looks_as_it_did() {
    let env = env().with_pdf();
    let Some(browser) = browser(&env) else { return };
    look_at(&env, &browser, "report", &report(&env));
}

#[test]
fn a_broken_page_is_another_picture_and_one_in_another_font_is_not() {
    let env = env();
    let Some(browser) = browser(&env) else { return };
    let page = timeline(&env);
    let whole = fs::read_to_string(&page).unwrap();
    let picture_of = |more: &str, screen: Screen| {
        let (file, to) = (env.path("home/changed.html"), env.path("home/changed.png"));
        // The page allows no style but its own, so its own is changed and the rule about it is left out.
        let page =
            whole.replacen("</style>", &format!("{more}</style>"), 1).replacen("Content-Security-Policy", "x-none", 1);
        fs::write(&file, page).unwrap();
        draw(&browser, &file, screen, &to);
        samples(&to)
    };
    for screen in [DESKTOP, PHONE, DARK] {
        let good = picture_of("", screen);
        let seen = |style: &str| difference(&good, &picture_of(style, screen)) * f64::from(MAY_DIFFER);
        for broken in [
            ".tiles { display: none !important; }",
            ".chart { display: none !important; }",
            ".card { background: #888 !important; }",
            "body, h1, h2, p, dd, td { font-size: 2rem !important; }",
            ":root { --ink: var(--card) !important; --soft: var(--card) !important; --faint: var(--card) !important; }",
        ] {
            assert!(seen(broken) > 1.0, "{broken} on {screen:?} is not seen: {}", seen(broken));
        }
        let font = "* { letter-spacing: .002em !important; -webkit-font-smoothing: none; text-rendering: geometricPrecision; }";
        assert!(seen(font) < 1.0, "another way to draw letters on {screen:?} is told apart: {}", seen(font));
    }
}

#[test]
fn a_picture_of_another_page_is_seen_and_a_shade_is_not() {
    let at = |left: u32, bar: u8| {
        GrayImage::from_fn(40, 40, move |x, _| image::Luma([if (left..left + 4).contains(&x) { bar } else { 240 }]))
    };
    let page = |bar: u8| at(0, bar);
    assert!(difference(&at(8, 60), &at(9, 60)) < 1.0 / f64::from(MAY_DIFFER), "a sample beside its place");
    assert!(difference(&at(8, 60), &at(12, 60)) > 1.0 / f64::from(MAY_DIFFER), "elsewhere");
    assert!(difference(&page(240), &page(60)) > 1.0 / f64::from(MAY_DIFFER));
    assert!(difference(&page(240), &page(230)) < 1.0 / f64::from(MAY_DIFFER));
    assert!((difference(&page(0), &GrayImage::new(2, 2)) - 1.0).abs() < f64::EPSILON);
}
