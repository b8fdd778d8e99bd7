//! The summary: windows × classes.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, ensure};

use super::boundaries::{Boundary, Death};
use super::classes::CLASSES;
use super::verdict::{Verdict, in_words};
use super::{Judged, Options};
use crate::made::Made;

/// Prints the summary, writes it where it is asked for, and fails when a promise does not hold (or a broken rule was not seen).
pub(crate) fn report(
    judged: &[Judged],
    options: &Options,
    note: &str,
    took: Duration,
    made: Option<&Made>,
) -> anyhow::Result<()> {
    let sum = |of: fn(&Verdict) -> usize| judged.iter().map(|one| of(&one.verdict)).sum::<usize>();
    let (duplicates, lost) = (sum(|v| v.duplicates), sum(|v| v.lost));
    let diverged = sum(|v| usize::from(!v.diverged.is_empty()));
    let (asked, needless) = (sum(|v| usize::from(v.asked > 0)), sum(|v| v.needless));
    let charged = sum(|v| usize::from(v.charged.is_some()));
    let missed = sum(|v| usize::from(v.missed));
    let kills: u32 = judged.iter().map(|one| one.kills).sum();
    let counted = format!(
        "{} cells, {kills} runners killed: {duplicates} duplicates, {lost} lost, {diverged} diverged, {needless} needless questions, \
         {charged} charged wrongly; {asked} cells asked a person where the tool leaves no other way",
        judged.len(),
    );
    let tables = tables(judged);
    println!("{tables}\n{counted}\nseed {}, {:.0} s", options.seed, took.as_secs_f64());
    if !note.is_empty() {
        println!("{note}");
    }
    if let Some(rule) = &options.broken_rule {
        let seen: Vec<&Judged> = judged.iter().filter(|one| one.verdict.has_fault()).collect();
        let first = seen.first().with_context(|| format!("the broken rule `{rule}` went unnoticed"))?;
        println!(
            "the broken rule `{rule}` was seen in {} cells, as it must be; for example {}: {}",
            seen.len(),
            first.cell.name(&CLASSES[first.cell.class]),
            first.verdict.explain()
        );
        return Ok(());
    }
    let wrong = judged.iter().filter(|one| !one.verdict.is_right()).count();
    ensure!(wrong == 0, "{wrong} cell(s) are wrong, {missed} of them because their point was never reached");
    if let Some(made) = made {
        let note = if note.is_empty() { String::new() } else { format!("{note}\n\n") };
        made.write(&format!(
            "# Crash matrix\n\nWritten by `{}`. Rows are the steps of a turn that a process was killed in (SIGKILL), \
             columns the classes of tools. What each word promises is in [testing.md](testing.md#crash-matrix).\n\n{}\n\n{counted}.\n\n\
             {note}{tables}",
            made.command(),
            made.line()
        ))?;
    }
    Ok(())
}

/// How a row begins that names the classes of a table.
const HEAD: &str = "| killed in | cells | ";

/// Fails when a table of the page has other classes than there are.
pub(crate) fn check(page: &str) -> anyhow::Result<()> {
    let known: Vec<&str> = CLASSES.iter().map(|class| class.name).collect();
    let heads: Vec<&str> = page.lines().filter_map(|line| line.strip_prefix(HEAD)).collect();
    ensure!(!heads.is_empty(), "docs/crash-matrix.md has no table");
    for head in heads {
        let told: Vec<&str> = head.trim_end_matches(" |").split(" | ").collect();
        let without = |list: &[&str], other: &[&str]| {
            let left: Vec<&str> = list.iter().filter(|name| !other.contains(name)).copied().collect();
            if left.is_empty() { "none".to_owned() } else { left.join("; ") }
        };
        ensure!(
            told == known,
            "docs/crash-matrix.md has {} classes of tools and there are {} (not on the page: {}; only there: {}); run \
             `cargo xtask crash-matrix --write docs/crash-matrix.md`",
            told.len(),
            known.len(),
            without(&known, &told),
            without(&told, &known)
        );
    }
    Ok(())
}

fn tables(judged: &[Judged]) -> String {
    let mut steps: Vec<&str> = Vec::new();
    let mut protections: BTreeMap<&str, Vec<&Judged>> = BTreeMap::new();
    for one in judged {
        let Some(boundary) = &one.cell.boundary else { continue };
        if !steps.contains(&boundary.step) {
            steps.push(boundary.step);
        }
        protections.entry(one.cell.protection.name()).or_default().push(one);
    }
    let mut text = String::new();
    for (protection, cells) in protections {
        let header: Vec<&str> = CLASSES.iter().map(|class| class.name).collect();
        text.push_str(&format!("## {}\n\n", capital(protection)));
        text.push_str(&format!("{HEAD}{} |\n", header.join(" | ")));
        text.push_str(&format!("|---|---|{}\n", "---|".repeat(header.len())));
        for step in &steps {
            let row: Vec<(&Judged, &Boundary)> = cells
                .iter()
                .filter_map(|one| one.cell.boundary.as_ref().filter(|b| b.step == *step).map(|b| (*one, b)))
                .collect();
            if row.is_empty() {
                continue;
            }
            text.push_str(&format!("| {step} | {} ", row.len()));
            for (index, class) in CLASSES.iter().enumerate() {
                let own: Vec<(&Boundary, &Verdict)> =
                    row.iter().filter(|(one, _)| one.cell.class == index).map(|(one, b)| (*b, &one.verdict)).collect();
                text.push_str(&format!("| {} ", in_words(class, &own)));
            }
            text.push_str("|\n");
        }
        text.push('\n');
    }
    text.push_str(&inside(judged));
    text
}

/// On which side of the commit the processes were that were killed inside a write.
fn inside(judged: &[Judged]) -> String {
    let mut writes: BTreeMap<&str, (u32, u32)> = BTreeMap::new();
    for one in judged {
        let Some(Boundary { death: Death::Inside { write, .. }, .. }) = &one.cell.boundary else { continue };
        let sides = writes.entry(write).or_default();
        match one.was_written {
            Some(true) => sides.0 += 1,
            Some(false) => sides.1 += 1,
            None => {}
        }
    }
    if writes.is_empty() {
        return String::new();
    }
    let mut text = String::from(
        "## Inside a write\n\n| killed inside | found written by the next life | found not written |\n|---|---|---|\n",
    );
    for (write, (written, absent)) in writes {
        text.push_str(&format!("| `{write}` | {written} | {absent} |\n"));
    }
    text
}

fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or(String::new(), |first| first.to_uppercase().chain(letters).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_with_other_classes_is_seen() {
        let known: Vec<&str> = CLASSES.iter().map(|class| class.name).collect();
        let page = |names: &[&str]| format!("# Crash matrix\n\n## Resume\n\n{HEAD}{} |\n|---|\n", names.join(" | "));
        check(&page(&known)).unwrap();
        let said = |page: &str| check(page).unwrap_err().to_string();
        let last = known[known.len() - 1];
        assert!(
            said(&page(&known[..known.len() - 1])).contains(&format!("(not on the page: {last}; only there: none)"))
        );
        assert!(
            said(&page(&[&known[..], &["of old"]].concat())).contains("(not on the page: none; only there: of old)")
        );
        // One of two tables is of before.
        assert!(check(&format!("{}{}", page(&known), page(&known[1..]))).is_err());
        assert_eq!(said("# Crash matrix\n"), "docs/crash-matrix.md has no table");
    }
}
