//! `docs/reliability.md`: its tables are made from what the lanes judge by, its numbers are those that the lanes last wrote.
//!
//! A generated part stands between `<!-- generated: NAME -->` and `<!-- end -->`; the rest of the page is written by hand.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, bail, ensure};
use ua_testkit::workspace_root;

use crate::crash_matrix::promise;
use crate::{acceptance, crash_matrix, explore, made, mutants};

/// What to do with the page.
#[derive(Debug, clap::Args)]
#[group(required = true, multiple = false)]
pub(crate) struct Options {
    /// Write the generated parts anew
    #[arg(long)]
    write: bool,
    /// Fail when a generated part says something else than the sources it is made of
    #[arg(long)]
    check: bool,
}

pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    let docs = workspace_root().join("docs");
    let path = docs.join("reliability.md");
    let page = fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
    let made =
        [("classes", promise::classes()), ("windows", promise::windows_and_promises()), ("numbers", numbers(&docs)?)];
    let mut fresh = page.clone();
    for (name, text) in &made {
        fresh = with_part(&fresh, name, text)?;
    }
    if options.write {
        return fs::write(&path, fresh).with_context(|| format!("write {}", path.display()));
    }
    ensure!(fresh == page, "docs/reliability.md is not what its sources say; run `cargo xtask reliability --write`");
    mutants::check(&docs.join("mutants.md"))?;
    let text = |file: &str| fs::read_to_string(docs.join(file)).with_context(|| format!("read docs/{file}"));
    explore::check(&text("explore.md")?)?;
    acceptance::report::check(&text("acceptance.md")?)?;
    // It takes an hour to write anew: what it lacks is said, and keeps no change back.
    if let Err(lacks) = crash_matrix::report::check(&text("crash-matrix.md")?) {
        eprintln!("NOTE: {lacks:#}");
    }
    println!("the pages of docs that lanes write say what their sources say");
    Ok(())
}

/// What the lanes last wrote on their own pages, and of which commit.
fn numbers(docs: &Path) -> anyhow::Result<String> {
    let text = |file: &str| fs::read_to_string(docs.join(file)).with_context(|| format!("read docs/{file}"));
    let row = |name: &str, file: &str, is_it: fn(&str) -> bool| -> anyhow::Result<String> {
        let text = text(file)?;
        let found = text.lines().find(|line| is_it(line)).with_context(|| format!("docs/{file} has no numbers"))?;
        let found = found.trim_start_matches("In sum: ").trim_end_matches('.');
        let made =
            made::said_by(&text).with_context(|| format!("docs/{file} does not say at which commit it was made"))?;
        Ok(format!("| [{name}]({file}) | {found} | {made} |\n"))
    };
    let is_matrix = |line: &str| line.contains(" cells, ") && line.contains(" duplicates");
    let is_simulation = |line: &str| line.contains(" simulations") && line.contains(" ended, ");
    let (walked, at) = explore::told(&text("explore.md")?);
    ensure!(!walked.is_empty(), "docs/explore.md has no numbers");
    Ok([
        "| lane | what came of it | commit, day, time |\n|---|---|---|\n".to_owned(),
        row("crash matrix", "crash-matrix.md", is_matrix)?,
        row("simulation", "simulation.md", is_simulation)?,
        format!("| [every path](explore.md) | {walked} | {at} |\n"),
        row("acceptance", "acceptance.md", |line| line.starts_with("In sum: "))?,
        format!("| [seeded bugs](mutants.md) | {} | each in its row |\n", mutants::counts()),
    ]
    .concat())
}

/// The page with what stands between the marks of a part replaced.
fn with_part(page: &str, name: &str, text: &str) -> anyhow::Result<String> {
    let (begin, end) = (format!("<!-- generated: {name} -->\n"), "<!-- end -->");
    let Some((head, rest)) = page.split_once(&begin) else { bail!("docs/reliability.md has no part `{name}`") };
    let Some((_, tail)) = rest.split_once(end) else { bail!("the part `{name}` of docs/reliability.md has no end") };
    Ok(format!("{head}{begin}\n{}\n\n{end}{tail}", text.trim_end()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_replaced_and_the_rest_stays() {
        let page = "a\n<!-- generated: x -->\nold\n<!-- end -->\nb\n<!-- generated: y -->\n<!-- end -->\n";
        let once = with_part(page, "x", "new").unwrap();
        assert_eq!(once, "a\n<!-- generated: x -->\n\nnew\n\n<!-- end -->\nb\n<!-- generated: y -->\n<!-- end -->\n");
        assert_eq!(with_part(&once, "x", "new").unwrap(), once);
        assert!(with_part(page, "z", "new").is_err());
        assert!(with_part("<!-- generated: x -->\n", "x", "new").is_err());
    }
}
