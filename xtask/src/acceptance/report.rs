//! What is printed, and the page that is written.

use anyhow::ensure;

use super::cell::Cell;
use super::kill;
use super::route::Route;
use crate::made::Made;

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
        let name = shown(&cell.point.name);
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

/// The name of a kill point in a table: a seam in backticks.
fn shown(name: &str) -> String {
    let is_seam = [":store.", ":tool.", ":model."].iter().any(|port| name.contains(port));
    if is_seam { format!("`{name}`") } else { name.to_owned() }
}

/// Fails when the page lacks a route or a named kill point of one, or has one that there is no more.
pub(crate) fn check(page: &str) -> anyhow::Result<()> {
    for route in Route::ALL {
        let heading = format!("\n## {}\n", route.name());
        let section = page.split_once(&heading).map(|(_, behind)| behind.split("\n## ").next().unwrap_or_default());
        let told: Vec<&str> = section
            .unwrap_or_default()
            .lines()
            .filter_map(|line| line.strip_prefix("| ")?.split(" | ").next())
            .filter(|name| !["kill point", "no kill"].contains(name) && !name.starts_with(kill::RANDOM))
            .collect();
        let known: Vec<String> = kill::points(route).iter().map(|point| shown(&point.name)).collect();
        ensure!(
            told == known,
            "docs/acceptance.md has other kill points of the route {} than there are; run \
             `cargo xtask acceptance --write docs/acceptance.md`",
            route.name()
        );
    }
    Ok(())
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
pub(super) fn page(cells: &[Cell], made: &Made) -> String {
    let about = format!(
        "Written by `{}`, the acceptance run of [testing.md](testing.md#acceptance): \
         {} runs of the research job (Durable Jobs v1 spec §11), killed with SIGKILL at their kill points and resumed with \
         `--resume --run-id`. Site, model, mail server, object store and webhook are processes of their own that outlive every kill, \
         and the numbers are theirs: how often each effect happened, and how many pages were asked for (the job reads 4). *asked* is \
         what a person had to answer, and what was true.",
        made.command(),
        cells.len()
    );
    let kills: usize = cells.iter().map(|cell| cell.kills).sum();
    let asked: usize = cells.iter().map(|cell| cell.asked.len()).sum();
    let duplicates = cells.iter().filter(|cell| cell.has_duplicate()).count();
    let sum = format!("In sum: {kills} kills, {asked} questions, {duplicates} duplicates.");
    format!("# Acceptance\n\n{}\n\n{}\n\n{sum}\n{}", wrap(&about), made.line(), tables(cells))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_with_other_kill_points_is_seen() {
        let section = |route: &Route| {
            let points = kill::points(*route);
            let rows: Vec<String> =
                points.iter().map(|point| format!("| {} | 1 | succeeded |\n", shown(&point.name))).collect();
            let random = format!("| {} 1 | 1 | succeeded |\n", kill::RANDOM);
            format!(
                "\n## {}\n\nHow it is.\n\n| kill point | outcome |\n|---|---|\n| no kill | 1 |\n{}{random}",
                route.name(),
                rows.concat()
            )
        };
        let page: String = Route::ALL.iter().map(section).collect();
        check(&page).unwrap();
        let crawl = "| during the crawl: two pages on their way | 1 | succeeded |\n";
        assert!(page.contains(crawl));
        let said = check(&page.replacen(crawl, "", 1)).unwrap_err().to_string();
        assert!(said.contains(&format!("of the route {} ", Route::ALL[0].name())), "{said}");
        assert!(check(&page.replacen(crawl, &format!("{crawl}| of old | 1 | succeeded |\n"), 1)).is_err());
        assert!(check("# Acceptance\n").is_err());
    }
}
