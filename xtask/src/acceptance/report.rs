//! What is printed, and the page that is written.

use super::cell::Cell;
use super::route::Route;

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
            text.push_str(&format!("\n## {name}\n\n{}\n\n{}", route.describe(), table(route, &own)));
        }
    }
    text
}

/// The whole page.
pub(super) fn page(cells: &[Cell]) -> String {
    format!(
        "# Acceptance\n\nWritten by `cargo xtask acceptance --write docs/acceptance.md`, the acceptance run of \
         [testing.md](testing.md#acceptance): {} runs of the research job (Durable Jobs v1 spec §11), each killed with SIGKILL at its \
         kill point and resumed with `--resume --run-id`. Site, model, mail server, object store and webhook are processes of their own \
         that outlive every kill, and the numbers are theirs: how often each effect happened, and how many pages were asked for (the job \
         reads 4). *asked* is what a person had to answer, and what was true.\n{}",
        cells.len(),
        tables(cells)
    )
}
