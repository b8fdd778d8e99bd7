//! The inbox: what searches and crawls have left in `search_results/`.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

use serde_json::Value;
use url::Url;

use super::search::found_by_us;
use crate::answer::Failure;
use crate::regular;
use crate::seal::Seals;
use crate::tools::crawl::{DIRECTORY, StoredPage, stored_page};
use crate::workspace::Workspace;

/// More files than that are no inbox of one task.
const MAX_FILES: usize = 2_000;
const MAX_SEARCH_BYTES: u64 = 8 * 1024 * 1024;
/// How deep links are looked for in the JSON of a search.
const MAX_DEPTH: usize = 12;

/// The pages in the inbox, by file name.
pub(super) fn pages(workspace: &Workspace) -> Result<Vec<(PathBuf, StoredPage)>, Failure> {
    let names = names(workspace, "md")?;
    Ok(names.into_iter().filter_map(|path| stored_page(workspace, &path).map(|page| (path, page))).collect())
}

/// Addresses in the JSON files of the inbox, in the order of their files and ranks, each once.
#[derive(Debug, Default)]
pub(super) struct Found {
    /// What searches of this server found.
    pub(super) by_searches: Vec<Url>,
    /// What stands in files of others. The run itself may have written them, and what is fetched here stands in no argument of a call, where
    /// a runner would see it: so these are shown and not followed.
    pub(super) by_others: Vec<Url>,
}

/// The addresses that the inbox names.
pub(super) fn found_addresses(workspace: &Workspace, seals: &Seals) -> Result<Found, Failure> {
    let mut found = Found::default();
    let mut others = Vec::new();
    let mut known = BTreeSet::new();
    for path in names(workspace, "json")? {
        let given = path.to_string_lossy().into_owned();
        let bytes = regular::read_up_to(workspace.area().dir(), &path, &given, MAX_SEARCH_BYTES)?;
        let Ok(value) = serde_json::from_slice::<Value>(&bytes) else {
            tracing::warn!(path = given, "a file of the inbox is no JSON and is left out");
            continue;
        };
        let ours = found_by_us(seals, &bytes).unwrap_or_default();
        let ours = ours.iter().filter_map(|link| web_address(link)).filter(|url| known.insert(canonical(url)));
        found.by_searches.extend(ours);
        links(&value, MAX_DEPTH, &mut |link| others.extend(web_address(link)));
    }
    found.by_others.extend(others.into_iter().filter(|url| known.insert(canonical(url))));
    Ok(found)
}

fn web_address(text: &str) -> Option<Url> {
    Url::parse(text).ok().filter(|url| matches!(url.scheme(), "http" | "https"))
}

/// Calls `take` with each text under a key that names an address.
fn links(value: &Value, depth: usize, take: &mut impl FnMut(&str)) {
    if depth == 0 {
        return;
    }
    match value {
        Value::Array(items) => items.iter().for_each(|item| links(item, depth - 1, take)),
        Value::Object(fields) => {
            for (name, value) in fields {
                if let (Value::String(text), "url" | "link" | "href") = (value, name.as_str()) {
                    take(text);
                } else {
                    links(value, depth - 1, take);
                }
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Two addresses with the same text here are taken for the same page: without fragment and without what only tracks.
pub(super) fn canonical(url: &Url) -> String {
    let mut url = url.clone();
    url.set_fragment(None);
    let kept: Vec<(String, String)> = url
        .query_pairs()
        .filter(|(name, _)| !name.starts_with("utm_") && !matches!(name.as_ref(), "gclid" | "fbclid" | "msclkid"))
        .map(|(name, value)| (name.into_owned(), value.into_owned()))
        .collect();
    if kept.is_empty() {
        url.set_query(None);
    } else {
        url.query_pairs_mut().clear().extend_pairs(kept);
    }
    let text = url.as_str().trim_end_matches('/');
    text.strip_prefix("http://").or_else(|| text.strip_prefix("https://")).unwrap_or(text).to_owned()
}

fn names(workspace: &Workspace, extension: &str) -> Result<Vec<PathBuf>, Failure> {
    let directory = workspace.readable(DIRECTORY)?;
    let failed = |error: &io::Error| Failure::io(format_args!("list {DIRECTORY}/"), error);
    let entries = match workspace.area().dir().read_dir(&directory) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(failed(&error)),
    };
    let mut names = Vec::new();
    for entry in entries {
        let entry = entry.map_err(|error| failed(&error))?;
        let path = directory.join(entry.file_name());
        if path.extension().is_some_and(|found| found == extension)
            && entry.file_type().is_ok_and(|kind| kind.is_file())
        {
            names.push(path);
        }
    }
    if names.len() > MAX_FILES {
        return Err(Failure::refused(
            format!("{DIRECTORY}/ holds {} .{extension} files; {MAX_FILES} are read", names.len()),
            "crawl fewer pages per run",
        ));
    }
    names.sort();
    Ok(names)
}

/// Whether the inbox has a copy of the page `url`.
pub(super) fn has_copy(workspace: &Workspace, file: &Path) -> bool {
    stored_page(workspace, file).is_some()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_same_page_has_one_canonical_address() {
        let same = |a: &str, b: &str| canonical(&Url::parse(a).unwrap()) == canonical(&Url::parse(b).unwrap());
        assert!(same("http://a.example/x/", "https://a.example/x#part"));
        assert!(same("https://a.example/x?utm_source=n&id=1&gclid=z", "https://a.example/x?id=1"));
        assert!(!same("https://a.example/x?id=1", "https://a.example/x?id=2"));
        assert!(!same("https://a.example/x", "https://b.example/x"));
    }

    #[test]
    fn links_are_found_wherever_a_search_puts_them() {
        let search = json!({"data": {"web": {"results": [{"url": "https://a.example/", "title": "url"}]}},
            "news_results": [{"link": "https://b.example/", "more": [{"href": "mailto:x"}]}]});
        let mut found = Vec::new();
        links(&search, MAX_DEPTH, &mut |link| found.push(link.to_owned()));
        assert_eq!(found, ["https://a.example/", "https://b.example/", "mailto:x"]);
        assert_eq!(web_address("mailto:x"), None);
    }
}
