//! `ua tools packs`: what is known of the tools of servers that many people use.

use ua_classify::{Pack, PolicyError};

use crate::error::{HostError, OK};
use crate::output::{line, print_exactly, print_json, print_table, wrapped_to};
use crate::view::PackRow;

pub(crate) fn run(name: Option<&str>) -> Result<u8, HostError> {
    let packs: Vec<&Pack> = match name {
        None => Pack::all().map_err(damaged)?.iter().collect(),
        Some(name) => vec![find(name)?],
    };
    if crate::terminal::is_json() {
        let rows: Result<Vec<PackRow>, HostError> = packs.into_iter().map(|pack| row(pack, name.is_some())).collect();
        print_json(&rows?)?;
        return Ok(OK);
    }
    if let (Some(_), [pack]) = (name, packs.as_slice()) {
        print_exactly(in_lines(pack.text(), crate::terminal::width()))?;
        return Ok(OK);
    }
    let mut cells = Vec::new();
    for pack in packs {
        let rules = pack.rule_count().map_err(damaged)?;
        cells.push(vec![
            pack.id().to_owned(),
            pack.version().to_owned(),
            rules.to_string(),
            pack.packages().first().cloned().unwrap_or_default(),
            line(pack.about(), 200),
        ]);
    }
    print_table(&crate::listings::PACKS, cells).map(|()| OK)
}

/// The text in lines of so many columns. Only comments are broken, and each piece is one: what is copied is the same policy.
fn in_lines(text: &str, room: Option<usize>) -> String {
    let lines = text.lines().map(|line| match line.strip_prefix("# ") {
        Some(comment) => format!("# {}\n", wrapped_to(comment, 2, room).replace("\n  ", "\n# ")),
        None => format!("{line}\n"),
    });
    lines.collect()
}

fn find(name: &str) -> Result<&'static Pack, HostError> {
    let unknown = || {
        let names = Pack::all().unwrap_or_default().iter().map(Pack::id);
        HostError::no_such("policy pack", name, names, "`ua tools packs` lists them")
    };
    Pack::named(name).map_err(damaged)?.ok_or_else(unknown)
}

fn row(pack: &Pack, with_text: bool) -> Result<PackRow, HostError> {
    Ok(PackRow {
        name: pack.id(),
        version: pack.version().to_owned(),
        about: pack.about().to_owned(),
        source: pack.source().to_owned(),
        packages: pack.packages().to_vec(),
        servers: pack.servers().to_vec(),
        rules: pack.rule_count().map_err(damaged)?,
        text: with_text.then(|| pack.text()),
    })
}

#[expect(clippy::needless_pass_by_value, reason = "it is handed to map_err")]
fn damaged(error: PolicyError) -> HostError {
    HostError::failed(error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pack_fits_the_terminal_and_stays_the_same_policy() {
        for pack in Pack::all().unwrap() {
            let text = pack.text();
            assert_eq!(in_lines(text, None).trim_end(), text.trim_end());
            let narrow = in_lines(text, Some(60));
            let comments = narrow.lines().filter(|line| line.starts_with('#'));
            assert!(comments.clone().all(|line| line.len() <= 60 || !line[2..].contains(' ')), "{narrow}");
            let rules = |text: &str| text.lines().filter(|line| !line.starts_with('#')).collect::<Vec<_>>().join("\n");
            assert_eq!(rules(&narrow), rules(text));
        }
    }
}
