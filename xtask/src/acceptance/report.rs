//! What is printed, and the page that is written.

use super::cell::Cell;
use super::route::Route;

/// The width of a line of prose.
const WIDTH: usize = 160;

/// Breaks a paragraph into lines.
fn wrap(paragraph: &str) -> String {
    let mut lines = vec![String::new()];
    for word in paragraph.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.is_empty() => line.push_str(word),
            Some(line) if line.chars().count() + word.chars().count() < WIDTH => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines.join("\n")
}

/// A line per cell of one route, under a head.
fn table(route: Route, cells: &[&Cell]) -> String {
    let effects: Vec<&str> = route.effects().iter().map(|effect| effect.name().trim_start_matches("the ")).collect();
    let mut table = format!(
        "| kill point | {} | page requests | kills | asked | outcome |\n|---|{}---|---|---|---|\n",
        effects.join(" | "),
        "---|".repeat(effects.len())
    );
    for cell in cells {
        let counts: Vec<String> = cell.counts.iter().map(|(_, count)| count.to_string()).collect();
        let name = &cell.point.name;
        let name = if name.contains(":store.") || name.contains(":tool.") || name.contains(":model.") {
            format!("`{name}`")
        } else {
            name.clone()
        };
        table.push_str(&format!(
            "| {name} | {} | {} | {} | {} | {} |\n",
            counts.join(" | "),
            cell.page_requests,
            cell.kills,
            cell.questions(),
            cell.outcome
        ));
    }
    table
}

/// The tables of all routes that have cells.
pub(super) fn tables(cells: &[Cell]) -> String {
    let mut text = String::new();
    for route in Route::ALL {
        let own: Vec<&Cell> = cells.iter().filter(|cell| cell.route == route).collect();
        if !own.is_empty() {
            let name = route.name();
            text.push_str(&format!("\n## {name}\n\n{}\n\n{}", wrap(route.describe()), table(route, &own)));
        }
    }
    text
}

/// The whole page.
pub(super) fn page(cells: &[Cell]) -> String {
    let about = format!(
        "Written by `cargo xtask acceptance --write docs/acceptance.md`, the acceptance run of [testing.md](testing.md#acceptance): \
         {} runs of the research job (Durable Jobs v1 spec §11), killed with SIGKILL at their kill points and resumed with \
         `--resume --run-id`. Site, model, mail server, object store and webhook are processes of their own that outlive every kill, \
         and the numbers are theirs: how often each effect happened, and how many pages were asked for (the job reads 4). *asked* is \
         what a person had to answer, and what was true.",
        cells.len()
    );
    let kills: usize = cells.iter().map(|cell| cell.kills).sum();
    let asked: usize = cells.iter().map(|cell| cell.asked.len()).sum();
    let duplicates = cells.iter().filter(|cell| cell.has_duplicate()).count();
    let sum = format!("In sum: {kills} kills, {asked} questions, {duplicates} duplicates.");
    format!("# Acceptance\n\n{}\n\n{sum}\n{}", wrap(&about), tables(cells))
}
