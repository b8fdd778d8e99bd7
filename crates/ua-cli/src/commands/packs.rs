//! `ua tools packs`: what is known of the tools of servers that many people use.

use ua_classify::{Pack, PolicyError};

use crate::error::{HostError, OK};
use crate::output::{line, print_exactly, print_json, print_table};
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
        print_exactly(pack.text())?;
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
