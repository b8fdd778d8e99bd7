//! Where and how the program is killed.

use std::time::Duration;

use super::route::{Effect, Route};
use crate::random::Random;
use crate::serve::Kind;

/// How one cell kills its program.
#[derive(Debug, Clone)]
pub(super) enum Kill {
    Never,
    /// The program kills itself at a crossing of a seam (`UA_KILL_AT`).
    Seam(String),
    /// From outside, while a server keeps these requests waiting.
    Held {
        server: Kind,
        requests: Vec<u64>,
        has_effect: bool,
    },
    /// From outside, at these moments of its first lives.
    Moments(Vec<Duration>),
}

/// What is known at the kill about an effect that was on its way: who has no key and no probe has to ask.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Doubt {
    pub(super) effect: Effect,
    /// Whether it had happened.
    pub(super) happened: bool,
}

/// One kill point.
#[derive(Debug, Clone)]
pub(super) struct Point {
    pub(super) name: String,
    pub(super) kill: Kill,
    pub(super) doubt: Option<Doubt>,
    /// Whether `--quick` has it.
    pub(super) is_quick: bool,
}

impl Point {
    fn new(name: impl Into<String>, kill: Kill) -> Self {
        Self { name: name.into(), kill, doubt: None, is_quick: false }
    }

    fn seam(name: impl Into<String>, seam: &str) -> Self {
        Self::new(name, Kill::Seam(seam.to_owned()))
    }

    fn leaving(mut self, effect: Effect, happened: bool) -> Self {
        self.doubt = Some(Doubt { effect, happened });
        self
    }

    fn quick(mut self) -> Self {
        self.is_quick = true;
        self
    }
}

/// The run that nothing happens to.
pub(super) fn undisturbed() -> Point {
    Point::new("no kill", Kill::Never).quick()
}

/// Every named point of a route, in the order of the job.
pub(super) fn points(route: Route) -> Vec<Point> {
    match route {
        Route::Folders => [vec![crawl()], between_turns(), seams()].concat(),
        Route::ProbedSmtp | Route::MailApi | Route::BareSmtp => {
            let around = route.effects().iter().flat_map(|effect| around(route, *effect));
            let pdf = Point::seam("after the PDF", "after:store.settle_attempt:render_pdf").quick();
            [vec![crawl(), pdf], around.collect(), between_turns()].concat()
        }
    }
}

/// How the name of a kill at moments that a seed decides begins.
pub(super) const RANDOM: &str = "random moments";

/// Moments that a seed decides, within the time that an undisturbed run takes.
pub(super) fn random(random: &mut Random, count: u32, span: Duration) -> Vec<Point> {
    (1..=count).map(|n| Point::new(format!("{RANDOM} {n}"), Kill::Moments(random.moments(span))).quick()).collect()
}

/// Two pages are stored, two are on their way.
fn crawl() -> Point {
    let kill = Kill::Held { server: Kind::Site, requests: vec![3, 4], has_effect: false };
    Point::new("during the crawl: two pages on their way", kill).quick()
}

fn between_turns() -> Vec<Point> {
    let held = |turn: u64, between: &str| {
        let kill = Kill::Held { server: Kind::Model, requests: vec![turn], has_effect: false };
        Point::new(format!("between turns: {between}"), kill)
    };
    vec![
        Point::seam("between turns: the PDF's turn was committed", "after:store.commit_turn#3"),
        held(5, "the model is asked after the upload").quick(),
        held(6, "the model is asked after the e-mail"),
    ]
}

/// Before, during and after one effect that a server receives.
fn around(route: Route, effect: Effect) -> Vec<Point> {
    let Some(server) = route.server(effect) else { return Vec::new() };
    let (name, tool) = (effect.name(), effect.tool());
    let held = |has_effect| Kill::Held { server, requests: vec![1], has_effect };
    vec![
        Point::seam(format!("before {name}: planned"), &format!("before:store.start_attempt:{tool}")),
        Point::seam(
            format!("before {name}: intent stored, nothing sent"),
            &format!("after:store.start_attempt:{tool}"),
        )
        .leaving(effect, false),
        Point::new(format!("during {name}: received, not acted on"), held(false)).leaving(effect, false).quick(),
        Point::new(format!("during {name}: accepted, answer withheld"), held(true)).leaving(effect, true).quick(),
        Point::seam(format!("after {name}: answer not stored"), &format!("after:tool.invoke:{tool}"))
            .leaving(effect, true),
        Point::seam(format!("after {name}: answer stored"), &format!("after:store.settle_attempt:{tool}")),
    ]
}

/// Every named stage inside the program: around the model's answer, around each turn's writes, and around the dispatch
/// of each tool.
fn seams() -> Vec<Point> {
    /// Tools of the job in the order of its turns.
    const TOOLS: [&str; 8] = [
        "crawl_parallel",
        "write_local_file",
        "render_html",
        "render_pdf",
        "upload",
        "send_email",
        ua_testkit::OPAQUE_TOOL,
        "notify",
    ];
    let mut points: Vec<Point> = Vec::new();
    let mut point = |text: String| points.push(Point::seam(text.clone(), &text));
    for write in ["store.acquire_run", "store.open_step", "store.end_run"] {
        for side in ["before", "after"] {
            point(format!("{side}:{write}"));
        }
    }
    for turn in [1, 4, 6] {
        for write in ["store.reserve_request", "model.complete", "store.record_turn", "store.commit_turn"] {
            for side in ["before", "after"] {
                point(format!("{side}:{write}#{turn}"));
            }
        }
    }
    // The answer of a turn's last call and the end of the turn are one write: who dies before it has seen an answer that is not stored.
    let last = points.iter_mut().find(|point| point.name == "before:store.commit_turn#6");
    if let Some(point) = last {
        *point = point.clone().leaving(Effect::Comment, true);
    }
    for tool in TOOLS {
        for at in [
            "before:store.start_attempt",
            "after:store.start_attempt",
            "after:tool.invoke",
            "after:store.settle_attempt",
        ] {
            let mut point = Point::seam(format!("{at}:{tool}"), &format!("{at}:{tool}"));
            if let Some(effect) = Effect::of_tool(tool) {
                match at {
                    "after:store.start_attempt" => point = point.leaving(effect, false),
                    "after:tool.invoke" => point = point.leaving(effect, true).quick(),
                    _ => {}
                }
            }
            points.push(point);
        }
    }
    points
}
