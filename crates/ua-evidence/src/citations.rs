//! Whether a report names its sources, and only such as the run has seen.
//!
//! Durable Jobs v1 spec §6 (`must_cite_sources`). Judged by receipts: a source counts when a call that only looks fetched it and
//! succeeded. What the report says about a source is not judged. Invariants: a page that was listed, linked or remembered is no
//! source; a report without any source does not pass.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::Value;
use ua_core::{CallStatus, RawReply, RunSpec, SideEffectClass, StopCondition};
use ua_store::{CallRecord, RunRecords};

use crate::artifact::Artifact;
use crate::evidence::{ConditionResult, EvidenceKind, EvidenceRef};
use crate::quote::code;

/// Files that a person reads as text, by their extension.
const READABLE: [&str; 5] = ["md", "markdown", "html", "htm", "txt"];

/// How many addresses are named when some are wrong.
const MAX_NAMED: usize = 5;

/// The text files of the workspace that make up a job's report: those that the job expects, else every one in `work_products/`.
pub fn report_files<'a>(spec: &RunSpec, artifacts: &'a [Artifact]) -> Vec<&'a Artifact> {
    let is_readable = |file: &&Artifact| extension(&file.path).is_some_and(|end| READABLE.contains(&end.as_str()));
    let wanted: Vec<String> = spec
        .stop_conditions
        .iter()
        .filter_map(|condition| match condition.expanded() {
            StopCondition::Artifact { artifact, .. } => Some(artifact),
            StopCondition::Effect { .. } | StopCondition::Named(_) => None,
        })
        .chain(spec.artifacts.expected_outputs.iter().cloned())
        .collect();
    let is_wanted = |file: &&Artifact| {
        wanted.iter().any(|name| file.path == *name || file.path.ends_with(&format!("/{name}")))
            && file.path != "transcript.md"
    };
    let expected: Vec<&Artifact> = artifacts.iter().filter(is_readable).filter(is_wanted).collect();
    if expected.is_empty() {
        return artifacts.iter().filter(is_readable).filter(|file| file.path.starts_with("work_products/")).collect();
    }
    expected
}

/// The addresses that calls of a run, or of the turns it shares, fetched: of our own crawl the pages that it lists as read, where they
/// ended up included, and of our own corpus its sources; of every other reading tool the addresses it was asked for. `whole` gives a call's answer as it came, where somebody has it.
pub fn fetched_sources<'a>(
    records: &'a RunRecords,
    whole: &dyn Fn(&CallRecord) -> Option<&'a RawReply>,
) -> BTreeSet<String> {
    let mut sources = BTreeSet::new();
    for call in records.lineage.calls.iter().chain(&records.calls) {
        let is_corpus = call.name.is_of_own_server() && call.name.tool == CORPUS_TOOL;
        if call.status != CallStatus::Succeeded || (call.policy.class != SideEffectClass::ReadOnly && !is_corpus) {
            continue;
        }
        let stored = || records.receipts.iter().chain(&records.lineage.receipts).rfind(|r| r.call_id == call.call_id);
        let raw = whole(call).or_else(|| stored().map(|receipt| &receipt.raw));
        let pages = raw.filter(|_| call.name.is_of_own_server()).and_then(|raw| pages_of(raw, is_corpus));
        match pages {
            Some(pages) => {
                let was_read = |page: &&Value| is_corpus || page.get("status").and_then(Value::as_str) == Some("ok");
                let read = pages.iter().filter(was_read);
                let addresses = read.flat_map(|page| ["url", "source"].map(|field| page.get(field)));
                sources.extend(addresses.flatten().filter_map(Value::as_str).filter_map(normal));
            }
            None => asked_for(&call.arguments, &mut sources),
        }
    }
    sources
}

/// Our own tool that fetches what searches found and lists the pages it kept.
const CORPUS_TOOL: &str = "finalize_research";

/// The list of pages in an answer of our own crawl, or of our own corpus.
fn pages_of(raw: &RawReply, is_corpus: bool) -> Option<&Vec<Value>> {
    let RawReply::ToolResult { result } = raw else { return None };
    result
        .pointer(if is_corpus { "/structuredContent/sources" } else { "/structuredContent/pages" })
        .and_then(Value::as_array)
}

fn asked_for(arguments: &Value, sources: &mut BTreeSet<String>) {
    match arguments {
        Value::String(text) => sources.extend(normal(text)),
        Value::Array(items) => items.iter().for_each(|item| asked_for(item, sources)),
        Value::Object(fields) => fields.values().for_each(|value| asked_for(value, sources)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Judges a report: `texts` are its files with their contents, `last_words` the model's last reply. Without files the last reply
/// is the report.
pub fn judge_citations(texts: &[(&Artifact, String)], last_words: &str, sources: &BTreeSet<String>) -> ConditionResult {
    let mut cited = BTreeSet::new();
    for (file, text) in texts {
        cited.extend(cited_in(&file.path, text));
    }
    if texts.is_empty() {
        cited.extend(cited_in("", last_words));
    }
    let unseen: Vec<String> = cited.iter().filter(|address| !sources.contains(*address)).cloned().collect();
    let missing = if cited.is_empty() {
        Some((
            "the report cites no source".to_owned(),
            "name each source with its full address, as it was fetched with the tools",
        ))
    } else if unseen.is_empty() {
        None
    } else {
        let named: Vec<String> = unseen.iter().take(MAX_NAMED).map(|address| code(address, 200)).collect();
        let more = unseen.len().saturating_sub(MAX_NAMED);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        let what = format!("the report cites {}{more}, which no call of this run fetched", named.join(", "));
        Some((what, "fetch what is cited, or take it out"))
    };
    let (missing, to_do) = missing.unzip();
    ConditionResult {
        condition: "must_cite_sources".to_owned(),
        phase: None,
        met: missing.is_none(),
        needed: "the report cites its sources, each of them fetched in this run".to_owned(),
        found: u32::try_from(cited.len() - unseen.len()).unwrap_or(u32::MAX),
        used_up: None,
        evidence: texts
            .iter()
            .map(|(file, _)| EvidenceRef {
                kind: EvidenceKind::Artifact,
                id: file.path.clone(),
                level: None,
                sha256: Some(file.sha256),
                external_id: None,
            })
            .collect(),
        missing,
        to_do: to_do.map(str::to_owned),
        for_a_person: false,
        undeclared: Vec::new(),
        perhaps: 0,
        in_doubt: Vec::new(),
        lacks: 0,
    }
}

fn extension(path: &str) -> Option<String> {
    Some(Path::new(path).extension()?.to_str()?.to_lowercase())
}

/// The addresses that a text cites.
fn cited_in(path: &str, text: &str) -> BTreeSet<String> {
    let is_page = extension(path).is_some_and(|end| matches!(end.as_str(), "html" | "htm"));
    let readable = if is_page { readable_html(text) } else { text.to_owned() };
    addresses_in(&readable).filter_map(|address| normal(&address)).collect()
}

/// What of a page a reader sees, with the targets of its links: no scripts, styles, and names of schemas.
fn readable_html(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find('<') {
        out.push_str(&rest[..start]);
        let Some(length) = rest[start..].find('>') else { return unescaped(&out) };
        let tag = &rest[start + 1..start + length];
        let name: String = tag.chars().take_while(char::is_ascii_alphanumeric).collect::<String>().to_lowercase();
        rest = &rest[start + length + 1..];
        match name.as_str() {
            "script" | "style" => {
                let close = format!("</{name}");
                rest = rest.to_lowercase().find(&close).map_or("", |end| &rest[end..]);
            }
            "a" => out.extend(attribute(tag, "href").into_iter().flat_map(|target| [" ", target, " "])),
            _ => out.push(' '),
        }
    }
    out.push_str(rest);
    unescaped(&out)
}

fn attribute<'t>(tag: &'t str, name: &str) -> Option<&'t str> {
    let (_, value) = tag.split_once(&format!("{name}="))?;
    match value.chars().next()? {
        quote @ ('"' | '\'') => value[1..].split(quote).next(),
        _ => value.split_whitespace().next(),
    }
}

fn unescaped(text: &str) -> String {
    text.replace("&amp;", "&").replace("&quot;", "\"").replace("&lt;", "<").replace("&gt;", ">")
}

const SCHEMES: [&str; 3] = ["https://", "http://", "file://"];

/// Addresses as they stand in running text or Markdown: up to white space or a mark that closes them.
fn addresses_in(text: &str) -> impl Iterator<Item = String> {
    let mut found = Vec::new();
    let mut rest = text;
    while let Some(start) = SCHEMES.iter().filter_map(|scheme| rest.find(scheme)).min() {
        let from = &rest[start..];
        let ends = |c: char| c.is_whitespace() || "<>\"'`|\\^{}[]".contains(c);
        let mut address = from.split(ends).next().unwrap_or_default();
        // `(see https://example.org/a_(b))`: a bracket belongs to it only with its opening one.
        while let Some(shorter) = address.strip_suffix(|c: char| ".,;:!?*_)".contains(c)) {
            if address.ends_with(')') && address.matches('(').count() >= address.matches(')').count() {
                break;
            }
            address = shorter;
        }
        found.push(address.to_owned());
        rest = &from[address.len().max(1)..];
    }
    found.into_iter()
}

/// One form for one page: scheme and host in lower case, no fragment, no slash at the end. `None` for what is no address of a page.
fn normal(address: &str) -> Option<String> {
    let address = address.trim();
    let (scheme, rest) = address.split_once("://")?;
    let scheme = scheme.to_lowercase();
    if !matches!(scheme.as_str(), "http" | "https" | "file") || rest.is_empty() {
        return None;
    }
    let rest = rest.split('#').next().unwrap_or_default();
    let (host, path) = rest.find('/').map_or((rest, ""), |at| rest.split_at(at));
    Some(format!("{scheme}://{}{}", host.to_lowercase(), path.trim_end_matches('/')))
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use ua_core::{ToolName, ToolNamespace};

    use super::*;
    use crate::testing::{Story, read_policy};

    fn file(path: &str) -> Artifact {
        Artifact { path: path.to_owned(), bytes: 1, sha256: ua_core::sha256(path) }
    }

    fn sources(list: &[&str]) -> BTreeSet<String> {
        list.iter().filter_map(|address| normal(address)).collect()
    }

    fn missing(path: &str, text: &str, seen: &[&str]) -> Option<String> {
        let file = file(path);
        judge_citations(&[(&file, text.to_owned())], "", &sources(seen)).missing
    }

    #[test]
    fn every_cited_address_has_to_be_a_page_that_was_fetched() {
        let seen = ["https://Example.org/a/", "http://example.org/b_(c)?q=1&r=2"];
        for fine in [
            "See <https://example.org/a>.",
            "As [told](https://example.org/a#part \"title\"), it is so.",
            "(see http://example.org/b_(c)?q=1&r=2).",
            "[^1]: https://EXAMPLE.org/a, *http://example.org/b_(c)?q=1&r=2*",
        ] {
            assert_eq!(missing("report.md", fine, &seen), None, "{fine}");
        }
        for (wrong, what) in [
            ("Trust me.", "cites no source"),
            ("See https://example.org/other.", "https://example.org/other"),
            ("See https://example.org/a and https://example.org/ab", "https://example.org/ab"),
            ("See ftp://example.org/a", "cites no source"),
        ] {
            let why = missing("report.md", wrong, &seen).unwrap_or_default();
            assert!(why.contains(what), "{wrong}: {why}");
        }
    }

    #[test]
    fn of_a_page_only_what_a_reader_sees_is_a_citation() {
        let page = "<html xmlns=\"http://www.w3.org/1999/xhtml\"><link href=\"https://fonts.test/x\"><style>@import \
                    'https://css.test/'</style><script>get('https://cdn.test/')</script><p>As <a class=x \
                    href='https://example.org/a?x=1&amp;y=2'>told</a>.</p></html>";
        assert_eq!(missing("report.html", page, &["https://example.org/a?x=1&y=2"]), None);
        let why = missing("report.html", page, &["https://example.org/b"]).unwrap();
        assert!(why.contains("example.org/a?x=1&y=2") && !why.contains("test"), "{why}");
    }

    #[test]
    fn without_a_file_the_last_reply_is_the_report() {
        let seen = sources(&["https://example.org/a"]);
        assert_eq!(judge_citations(&[], "It is so: https://example.org/a", &seen).missing, None);
        assert!(!judge_citations(&[], "It is so.", &seen).met);
    }

    #[test]
    fn a_page_that_failed_or_was_only_listed_is_no_source() {
        let mut story = Story::new(r#"{"objective": "x"}"#);
        let urls = json!({"urls": ["https://a.test/", "https://b.test/"]});
        let id = story.asks("", &[("crawl_parallel", urls, read_policy())])[0].clone();
        story.starts(&id);
        story.succeeds(&id, "two pages", None);
        story.call(&id).name = ToolName::qualified(ToolNamespace::Local, "ua", "crawl_parallel");
        story.records.receipts[0].raw = RawReply::ToolResult {
            result: json!({"content": [], "structuredContent": {"pages": [
                {"status": "ok", "url": "https://a.test/", "source": "https://www.a.test/start"},
                {"status": "error", "url": "https://b.test/", "error": "gone"},
            ]}}),
        };
        let found = fetched_sources(&story.records, &|_| None);
        assert_eq!(found, sources(&["https://a.test/", "https://www.a.test/start"]));
    }

    #[test]
    fn the_report_is_what_the_job_expects_else_what_was_produced() {
        let files = [
            file("search_results/a.md"),
            file("transcript.md"),
            file("work_products/draft.md"),
            file("work_products/report.html"),
        ];
        let paths = |job: Value| -> Vec<String> {
            let spec = RunSpec::parse(&job.to_string()).unwrap();
            report_files(&spec, &files).iter().map(|file| file.path.clone()).collect()
        };
        let expects = json!({"objective": "x", "artifacts": {"expected_outputs": ["report.html", "report.pdf", "transcript.md"]}});
        assert_eq!(paths(expects), ["work_products/report.html"]);
        assert_eq!(paths(json!({"objective": "x"})), ["work_products/draft.md", "work_products/report.html"]);
    }
}
