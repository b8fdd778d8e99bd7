//! The summary: windows × classes.

use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

use anyhow::{Context as _, ensure};

use super::boundaries::{Boundary, Death};
use super::classes::CLASSES;
use super::verdict::{Verdict, in_words};
use super::{Judged, Options};

/// Prints the summary, writes it where it is asked for, and fails when a promise does not hold (or a broken rule was not seen).
pub(crate) fn report(judged: &[Judged], options: &Options, note: &str, took: Duration) -> anyhow::Result<()> {
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
    if let Some(path) = &options.write {
        let page = format!(
            "# Crash matrix\n\nWritten by `cargo xtask crash-matrix --write docs/crash-matrix.md`. Rows are the steps of a turn that a process was killed in (SIGKILL), \
             columns the classes of tools. What each word promises is in [testing.md](testing.md#crash-matrix).\n\n{counted}.\n\n{tables}"
        );
        fs::write(path, page).with_context(|| format!("write {}", path.display()))?;
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
        text.push_str(&format!("| killed in | cells | {} |\n", header.join(" | ")));
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
