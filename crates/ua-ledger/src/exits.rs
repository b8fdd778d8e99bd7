//! Reads as a way out: an address that the model made carries whatever it put there to whoever answers.
//!
//! `https://example.org/log?d=…` is a read, and what stands behind the `=` has left. So a run in which words of others and private data met
//! ([`crate::taint`]) asks before it reads an address that stands neither in the job, nor in what a person wrote or approved, nor in what
//! others wrote in an earlier result. A result vouches for an address only if it could not have it from the model: answers of tools that
//! show what the run itself holds (files of the workspace, memory, programs, sub-agents) vouch for none, and no answer for what was asked, or
//! for what the run had written anywhere before. What a tool of another server shows nobody here knows: it may be a file, a note or a table that
//! the run filled, and what a program computed and wrote stands in no argument. So once the run has written anything, wherever, their answers
//! vouch for nothing; nor do those of tools that bring in private things.
//! Which tools reach out follows from what they declare (`fetches` in `tools/list`, by way of their policy's `reads`). One that finds addresses in
//! files follows only those whose origin its own server sealed, so nothing that a gate here would have to see stands outside of the arguments.
//! What is compared is the whole address, byte by byte: scheme, user, host, port, path, query and fragment. Alike are only scheme and host as
//! they were written and in small letters, the usual port and none, and an empty path and `/`: any other sign that could be added, repeated
//! or capitalised would be digits to count with. Only addresses of pages (`http`, `https`, or without a scheme) can be known at all: what
//! another scheme does with the rest nobody here knows. Invariant: nothing that the model writes, asks for or has
//! repeated makes an address known. Proved by: this file's tests, `ua-runner`'s `crash_anywhere::taint`, attack 8.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::PoisonError;

use serde_json::Value;
use ua_core::{CallId, CallStatus, RawReply, Reads, RunId, RunSpec, SideEffectClass, Timestamp};
use ua_store::{CallRecord, LedgerStore as _, QuestionsOf, RunsOf, Store, Walk, is_task, whole_reply};

use crate::address::{
    each_leaf, ends_an_address, follows_in_prose, host_of, is_plain, letters_in, looks_like_host, percent_decoded,
    scheme_before,
};
use crate::error::LedgerError;
use crate::in_text::addresses_in;
use crate::ledger::Ledger;
use crate::people::lets_go_as_it_is;
use crate::recipient::recipients;
use crate::rules::Rules;

/// How many forms of one word of a text are kept, each for what may stand behind an address and for where one may begin.
const MOST_FORMS: usize = 8;
/// The longest word of a text in which addresses are looked for, in bytes; longer ones are asked about.
const LONGEST: usize = 8 * 1024;

/// Addresses that stand in texts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Addresses(BTreeSet<String>);

impl Addresses {
    /// What a job's author wrote.
    pub(crate) fn of_job(spec: &RunSpec) -> Self {
        let mut named = Self::default();
        named.learn_words(&spec.opening_prompt());
        spec.phases.iter().for_each(|phase| named.learn_words(&phase.instructions));
        named.learn_words(spec.model.system_prompt.as_deref().unwrap_or_default());
        // The prompt shows inputs as JSON, where some characters are written otherwise.
        spec.inputs.values().for_each(|input| named.learn_all(input));
        named
    }

    /// Learns one address, and with it the same one without its fragment.
    fn insert(&mut self, address: &str) {
        for address in [normal(address, Letters::AsWritten), normal(address, Letters::Small)].into_iter().flatten() {
            if let Some((page, _)) = address.split_once('#') {
                self.0.insert(page.to_owned());
            }
            self.0.insert(address);
        }
        self.0.remove("");
    }

    pub(crate) fn learn(&mut self, text: &str) {
        let text = text.replace("\\/", "/").replace("&amp;", "&");
        let words = text.split(ends_an_address).map(|word| word.trim_start_matches(['(', '[', '*', '_']));
        let words = words.filter(|word| word.len() <= LONGEST);
        let names_one = |word: &&str| {
            word.contains(['/', ':'])
                || looks_like_host(word.trim_end_matches(follows_in_prose))
                || looks_like_host(word)
        };
        for word in words.filter(names_one) {
            self.insert(word);
            // In prose and markup something else may follow. Each form is kept, so a text of nothing else would be kept as often as it is long.
            let mut cut = word;
            for shorter in (0..MOST_FORMS).map_while(|_| {
                cut = cut.strip_suffix(follows_in_prose)?;
                Some(cut)
            }) {
                self.insert(shorter);
            }
            let starts = cut.match_indices("://").map(|(at, _)| scheme_before(cut, at));
            for start in starts.take(MOST_FORMS).chain([0]) {
                let rest = cut.get(start..).unwrap_or_default();
                self.insert(rest);
                self.insert(rest.split([')', ']', ',', ';']).next().unwrap_or_default());
            }
        }
        self.0.remove("");
    }

    /// Learns every word of what a person wrote, whether it looks like an address or not: `main` may be where something is.
    pub(crate) fn learn_words(&mut self, text: &str) {
        self.learn(text);
        for word in text.split(ends_an_address) {
            self.insert(word);
            self.insert(word.trim_matches(|c| follows_in_prose(c) || matches!(c, '(' | '[')));
        }
        self.0.remove("");
    }

    /// Learns a text as it stands, and nothing else.
    pub(crate) fn learn_whole(&mut self, text: &str) {
        self.insert(text);
        self.0.remove("");
    }

    pub(crate) fn learn_all(&mut self, value: &Value) {
        each_text(value, &mut |text| self.learn(text));
    }

    /// Takes out what whoever was asked may only have repeated: all that stands in the arguments, also in percent signs. What a call asked
    /// for went there already, and so did the beginning of it.
    fn forget_repeated(&mut self, arguments: &Value) {
        let mut asked = String::new();
        each_text(arguments, &mut |text| {
            for part in [text, &percent_decoded(text)].map(str::to_lowercase) {
                // As it stands, and with the port and the path left out that are alike with none.
                asked.push_str(&without_what_is_usual(&part));
                asked.push('\n');
                asked.push_str(&part);
                asked.push('\n');
            }
        });
        let read = asked_for(arguments);
        let written = read.iter().filter_map(|read| normal(read, Letters::AsWritten));
        let read: Vec<String> = written.chain(read.iter().filter_map(|read| normal(read, Letters::Small))).collect();
        let was_read = |address: &str| {
            read.iter().any(|read| {
                let rest = without_scheme(read).strip_prefix(address);
                rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['/', '?', '#']))
            })
        };
        self.0.retain(|address| {
            let address = without_scheme(address);
            was_read(address) || !asked.contains(&address.to_lowercase())
        });
    }

    pub(crate) fn has(&self, address: &str) -> bool {
        let Some(address) = normal(address, Letters::AsWritten) else { return false };
        let bare = without_scheme(&address);
        // Who writes an address without a scheme leaves it to whoever reads it.
        let is_bare = bare.len() == address.len();
        self.0.contains(&address)
            || (!is_bare && self.0.contains(bare))
            || (is_bare && PAGES.iter().any(|(_, scheme, _)| self.0.contains(&format!("{scheme}{address}"))))
    }

    /// Whether a text is a part of one between slashes: who says `acme/widgets` says whose it is, and which.
    pub(crate) fn has_part(&self, text: &str) -> bool {
        self.0.iter().any(|address| address.split('/').any(|part| part == text))
    }

    pub(crate) fn extend(&mut self, others: &Self) {
        self.0.extend(others.0.iter().cloned());
    }
}

/// What earlier results say, as far as this process has looked.
#[derive(Debug, Default)]
pub(crate) struct Heard {
    calls: BTreeSet<CallId>,
    addresses: Addresses,
    written: Written,
}

/// When a run did something first: of two turns of one run their order is known, of two runs only the time.
#[derive(Debug)]
struct When {
    turn: u32,
    at: Timestamp,
    /// The call of that turn that did it; `None` where there are several.
    by: Option<CallId>,
}

/// The first time that each run of a family did something.
#[derive(Debug, Default)]
struct First(BTreeMap<RunId, When>);

impl First {
    fn note(&mut self, call: &CallRecord) {
        let (turn, at) = (call.position.turn, call.created_at);
        let by = || Some(call.call_id.clone());
        let first = self.0.entry(call.run_id.clone()).or_insert_with(|| When { turn, at, by: by() });
        first.at = first.at.min(at);
        if turn < first.turn {
            (first.turn, first.by) = (turn, by());
        } else if turn == first.turn && first.by.as_ref() != Some(&call.call_id) {
            first.by = None;
        }
    }

    /// Whether that may have been before `call` was answered, and not by itself. What the same reply asked for may be done at the same moment.
    fn is_before(&self, call: &CallRecord, answered_at: Timestamp) -> bool {
        self.0.iter().any(|(run, first)| {
            if *run == call.run_id {
                let is_itself = first.by.as_ref() == Some(&call.call_id);
                first.turn < call.position.turn || (first.turn == call.position.turn && !is_itself)
            } else {
                first.at <= answered_at
            }
        })
    }
}

/// What the runs of a family wrote: in the arguments of calls, and where nobody here sees it.
#[derive(Debug, Default)]
struct Written {
    calls: BTreeSet<CallId>,
    /// By address, without its scheme and in small letters.
    addresses: BTreeMap<String, First>,
    /// Calls that may have left something where a tool finds it: files, notes, messages, rows, and all that a program wrote.
    anywhere: First,
}

impl Written {
    fn note(&mut self, call: &CallRecord) {
        // A call that was not sent has written nothing; one that is sent later is looked at then.
        if call.attempt == 0 || !self.calls.insert(call.call_id.clone()) {
            return;
        }
        // A sub-agent's own calls are looked at themselves.
        if call.policy.class != SideEffectClass::ReadOnly && !call.name.is_task() {
            self.anywhere.note(call);
        }
        let mut stands = Addresses::default();
        each_text(&call.arguments, &mut |text| {
            stands.learn(text);
            stands.learn(&percent_decoded(text));
        });
        for address in &asked_for(&call.arguments) {
            stands.insert(address);
        }
        for address in &stands.0 {
            self.addresses.entry(without_scheme(address).to_lowercase()).or_default().note(call);
        }
    }

    /// Takes out of what `call` was told what the run may have written itself before. What it asked for itself is judged apart.
    fn forget(&self, said: &mut Addresses, call: &CallRecord, answered_at: Timestamp) {
        let was_written = |address: &str| {
            let first = self.addresses.get(&without_scheme(address).to_lowercase());
            first.is_some_and(|first| first.is_before(call, answered_at))
        };
        said.0.retain(|address| !was_written(address));
    }
}

impl Rules<'_> {
    /// The addresses that a call would read of which neither the job nor `known` knows; none for a call that reads none, or whose run need
    /// not ask.
    pub(crate) fn made_addresses(&self, call: &CallRecord, known: &Addresses) -> Vec<String> {
        let Some(rule) = self.people.taint.as_ref().filter(|rule| reaches_out(call) && !rule.covers_tool(call)) else {
            return Vec::new();
        };
        // A mail goes to its recipients, about whom is asked by themselves, and its words may mention what they want.
        let is_effect = call.policy.class == SideEffectClass::External && call.policy.raised_from.is_none();
        if is_effect && recipients(&call.policy, &call.arguments).is_some() {
            return Vec::new();
        }
        let mut asked = asked_for(&call.arguments);
        asked.retain(|address| !known.has(address) && !rule.names_address(address));
        asked
    }
}

/// Whether a call may carry its arguments away by an address among them, whatever its class: it reads what others wrote, or nobody here
/// knows what it does.
pub(crate) fn reaches_out(call: &CallRecord) -> bool {
    let is_foreign = !call.name.is_built_in();
    is_foreign || call.policy.reads.contains(&Reads::Untrusted)
}

/// Our own tools whose answers are what the web said, and not what the run's own files, memory, programs and sub-agents have. A new tool
/// vouches for nothing until it is named here.
const SHOW_THE_WEB: [&str; 2] = ["crawl_parallel", "web_search"];

/// Whether the answer of a call may be the words of others. Of a tool of another server it is only where the run had written nothing before
/// ([`Written::anywhere`]).
fn vouches(call: &CallRecord) -> bool {
    let is_foreign = !call.name.is_built_in();
    let shows_the_web = SHOW_THE_WEB.contains(&call.name.tool.as_str()) && is_of_the_web(&call.arguments);
    let has_answered = matches!(call.status, CallStatus::Succeeded | CallStatus::FailedReported);
    // Who reads files, mail, memory or tables shows what the run, or an earlier one, may have put there.
    let is_private = call.policy.reads.contains(&Reads::Private);
    has_answered && if is_foreign { !is_private } else { shows_the_web }
}

/// Whether all pages that a call names are on the web. One of this machine may be a file that the run wrote, and the answer does not tell its
/// words from those of the others.
fn is_of_the_web(arguments: &Value) -> bool {
    let mut all = true;
    each_text(&arguments["urls"], &mut |text| {
        let start: String = text.trim().chars().take(8).collect::<String>().to_ascii_lowercase();
        all &= start.starts_with("http://") || start.starts_with("https://");
    });
    all
}

impl Ledger {
    /// Addresses that a person wrote or approved in this run, and those that earlier results of its family have from others.
    pub(crate) async fn addresses_heard(&self, call: &CallRecord) -> Result<Addresses, LedgerError> {
        let failed = || LedgerError::at("look where addresses are from", &call.call_id);
        let mut known = Addresses::default();
        let questions = self.store.questions_of(QuestionsOf::Run(call.run_id.clone())).await.map_err(failed())?;
        for question in &questions {
            let Some(answer) = &question.answer else { continue };
            known.learn(answer.text.as_deref().unwrap_or_default());
            let Some(approved) = question.call_id.as_ref().filter(|_| lets_go_as_it_is(question)) else { continue };
            known.learn_all(&self.store.call(approved).await.map_err(failed())?.arguments);
        }
        let answered = self.family_calls(&call.run_id).await.map_err(failed())?;
        let is_new = {
            let heard = self.heard.lock().unwrap_or_else(PoisonError::into_inner);
            answered.iter().any(|other| vouches(other) && !heard.calls.contains(&other.call_id))
        };
        if is_new {
            // Looked at after the answers, so that nothing that was written before one of them is missed.
            let written = self.family_calls(&call.run_id).await.map_err(failed())?;
            {
                let mut heard = self.heard.lock().unwrap_or_else(PoisonError::into_inner);
                for other in &written {
                    heard.written.note(other);
                }
            }
            for other in &answered {
                self.hear(other).await.map_err(failed())?;
            }
        }
        known.extend(&self.heard.lock().unwrap_or_else(PoisonError::into_inner).addresses);
        Ok(known)
    }

    /// The calls of the runs that a run works for or was forked from, and of whoever worked for these.
    async fn family_calls(&self, of: &RunId) -> Result<Vec<CallRecord>, ua_store::StoreError> {
        let mut calls = Vec::new();
        let (mut walk, mut next) = (Walk::default(), vec![of.clone()]);
        while let Some(run) = next.pop() {
            if !walk.meets(&run) {
                continue;
            }
            next.extend(self.store.run(&run).await?.parent_run_id);
            let children = self.store.runs_of(RunsOf::Children(run.clone())).await?;
            next.extend(children.into_iter().filter(is_task).map(|child| child.run_id));
            calls.extend(self.store.calls(&run, None).await?);
        }
        Ok(calls)
    }

    /// Learns what the answer of a call says, once. What cannot be read any more vouches for nothing.
    async fn hear(&self, call: &CallRecord) -> Result<(), ua_store::StoreError> {
        let is_heard = self.heard.lock().unwrap_or_else(PoisonError::into_inner).calls.contains(&call.call_id);
        if is_heard || !vouches(call) {
            return Ok(());
        }
        let receipt = self.store.receipt(&call.call_id).await?;
        let answered_at = receipt.as_ref().map_or(call.updated_at, |receipt| receipt.received_at);
        let is_foreign = !call.name.is_built_in();
        let is_of_others = {
            let heard = self.heard.lock().unwrap_or_else(PoisonError::into_inner);
            !(is_foreign && heard.written.anywhere.is_before(call, answered_at))
        };
        let mut said = Addresses::default();
        if let Some(receipt) = receipt.filter(|_| is_of_others)
            && let Ok(raw) = whole_reply(self.store.as_ref(), &receipt).await
        {
            match raw {
                RawReply::ToolResult { result } => said.learn_all(&result),
                RawReply::RpcError { message: text, .. }
                | RawReply::HttpStatus { body: text, .. }
                | RawReply::Refused { why: text } => said.learn(&text),
                RawReply::Statement { .. } | RawReply::Found { .. } => {}
            }
        }
        said.forget_repeated(&call.arguments);
        let mut heard = self.heard.lock().unwrap_or_else(PoisonError::into_inner);
        heard.written.forget(&mut said, call, answered_at);
        heard.addresses.extend(&said);
        heard.calls.insert(call.call_id.clone());
        Ok(())
    }
}

/// The addresses in the arguments of a call.
fn asked_for(arguments: &Value) -> Vec<String> {
    let mut found = Vec::new();
    each_leaf(arguments, &mut |leaf| {
        let pages = addresses_in(leaf.text, leaf.sound);
        let letters = letters_in(leaf.text);
        found.extend(letters.into_iter().filter(|letter| !pages.contains(letter)));
        found.extend(pages);
    });
    found
}

/// The host of an address by which a whole host may be allowed; `None` of one that programs read in different ways.
pub(crate) fn allowed_by_host(address: &str) -> Option<String> {
    // `javascript://example.org/…` and `file://example.org/…` are no pages of that host.
    let normal = normal(address, Letters::Small).filter(|_| is_plain(address))?;
    let host = host_of(without_scheme(&normal));
    // `evil.test;.example.org` ends in a host, and is none.
    let is_host = !host.is_empty() && host.chars().all(|c| c.is_alphanumeric() || matches!(c, '.' | '-' | '_'));
    is_host.then(|| host.to_owned())
}

fn each_text(value: &Value, with: &mut impl FnMut(&str)) {
    match value {
        Value::String(text) => with(text),
        Value::Array(items) => items.iter().for_each(|item| each_text(item, with)),
        Value::Object(fields) => fields.values().for_each(|field| each_text(field, with)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Schemes of pages, as they are written and as they stand in an address that is compared; with the port that is as good as none.
const PAGES: [(&str, &str, &str); 2] = [("http", "http://", ":80"), ("https", "https://", ":443")];
/// Schemes without slashes whose addresses are programs, or whole pages.
const PROGRAMS: [&str; 7] = ["about", "blob", "data", "file", "javascript", "vbscript", "view-source"];

fn is_scheme(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic()) && scheme_before(text, text.len()) == 0
}

/// What becomes of capitals in the scheme and the host of an address.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Letters {
    AsWritten,
    Small,
}

/// An address as it is compared; `None` of one that cannot be known: of another scheme than those of pages, or not written as they are.
fn normal(address: &str, letters: Letters) -> Option<String> {
    let small = |text: &str| if letters == Letters::Small { text.to_lowercase() } else { text.to_owned() };
    let (scheme, port, rest) = match address.split_once(':').filter(|(scheme, _)| is_scheme(scheme)) {
        Some((scheme, rest)) if rest.starts_with("//") => {
            let (_, _, port) = PAGES.iter().find(|(name, ..)| scheme.eq_ignore_ascii_case(name))?;
            // More slashes than two would be a number.
            (
                format!("{}://", small(scheme)),
                *port,
                rest.strip_prefix("//").filter(|rest| !rest.starts_with(['/', '\\']))?,
            )
        }
        Some((scheme, _)) => {
            let is_odd = |name: &str| scheme.eq_ignore_ascii_case(name);
            if PAGES.iter().any(|(name, ..)| is_odd(name)) || PROGRAMS.iter().any(|name| is_odd(name)) {
                return None;
            }
            (String::new(), "", address)
        }
        None => (String::new(), "", address),
    };
    let end = rest.find(['/', '?', '#', '\\']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    let (user, host) = authority.split_at(authority.rfind('@').map_or(0, |at| at + 1));
    let host = small(host.strip_suffix(port).unwrap_or(host));
    let path = path.strip_prefix('/').filter(|rest| rest.is_empty() || rest.starts_with(['?', '#'])).unwrap_or(path);
    Some(format!("{scheme}{user}{host}{path}"))
}

/// What is compared of an address behind its scheme.
fn without_scheme(normal: &str) -> &str {
    let is_page = |scheme: &str| PAGES.iter().any(|(name, ..)| scheme.eq_ignore_ascii_case(name));
    normal.split_once("://").filter(|(scheme, _)| is_page(scheme)).map_or(normal, |(_, rest)| rest)
}

/// A text with every port and every path left out that is as good as none, whether it stands in an address or not.
fn without_what_is_usual(text: &str) -> String {
    let mut kept = text.to_owned();
    for (_, _, port) in PAGES {
        let mut parts = kept.split(port);
        let mut shorter = parts.next().unwrap_or_default().to_owned();
        for part in parts {
            // `:8080` is another port than `:80`.
            if part.starts_with(|c: char| c.is_ascii_digit()) {
                shorter.push_str(port);
            }
            shorter.push_str(part);
        }
        kept = shorter;
    }
    kept.replace("/?", "?").replace("/#", "#")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn known(text: &str) -> Addresses {
        let mut known = Addresses::default();
        known.learn(text);
        known
    }

    fn asked(arguments: &Value) -> Vec<String> {
        asked_for(arguments)
    }

    #[test]
    fn an_address_is_known_as_it_stands_and_in_no_other_words() {
        let text = "See [the report](https://Example.org/a/b?x=1&amp;y=2#top), https://example.org/c. Or www.example.net/d; \
                    {\"next\":\"https:\\/\\/example.org\\/e\"} and (http://127.0.0.1:8080/page). Not (example.com).";
        let known = known(text);
        for address in [
            "https://example.org/a/b?x=1&y=2#top",
            "https://example.org/a/b?x=1&y=2",
            "https://Example.org/a/b?x=1&y=2",
            "https://example.org:443/c",
            "example.org/c",
            "https://www.example.net/d",
            "http://www.example.net/d",
            "https://example.com/",
            "https://example.org/e",
            "http://127.0.0.1:8080/page",
            "https://example.com",
        ] {
            assert!(known.has(address), "{address}: {known:?}");
        }
        for address in [
            "HTTPS://example.org/c",
            "https://eXaMpLe.org/a/b?x=1&y=2",
            "PRIVATE://example.org/c",
            "private-data+x://example.org/c",
            "javascript://example.org/c",
            "javascript:fetch('//example.org/c')",
            "http://example.org/c",
            "https:example.org/c",
            "https:///example.org/c",
            "https:////example.org/c",
            "https:\\\\example.org/c",
            "https://example.org/c#PRIVATE",
            "https://example.org/c#:~:text=PRIVATE",
            "https://example.org/c#",
            "https://example.org/c?",
            "https://example.org/c/",
            "https://example.org/a/b?x=1&y=2/",
            "https://example.org/a/b?x=1&y=2#other",
            "https://example.org/a/b?x=1&y=2#TOP",
            "https://example.org./c",
            "https://example.org:80/c",
            "https://example.org:0443/c",
            "https://example.org/a/b?x=1&y=PRIVATE",
            "https://example.org/a/b?x=1&y=2&z=PRIVATE",
            "https://example.org/",
            "https://example.org/C",
            "https://PRIVATE.example.org/c",
            "https://PRIVATE@example.org/c",
            "https://example.org:1/c",
            "https://example.org/c PRIVATE",
            "https://example.org/c)PRIVATE",
            "https://example.org/c.PRIVATE",
            // Signs that can be repeated would be digits.
            "https://example.org/c//",
            "https://example.org/c////////",
            "https://example.org/c/.",
            "https://example.org/c;",
            "https://example.org/c.,.!;:",
            "https://example.com//",
        ] {
            assert!(!known.has(address), "{address}: {known:?}");
        }
    }

    #[test]
    fn a_host_is_allowed_for_addresses_that_go_there() {
        for address in ["https://a.test/x?d=1", "a.test/x", "HTTP://u@A.test:9/x"] {
            assert_eq!(allowed_by_host(address).as_deref(), Some("a.test"), "{address}");
        }
        for address in [
            "javascript://a.test/%0afetch('//evil.test')",
            "data://a.test/,<script>",
            "file://a.test/etc/passwd",
            "smb://a.test/x",
            "ftp://a.test/",
            "https://evil.test;.a.test/",
            "https:///a.test/",
            "https://a.test\\@evil.test",
        ] {
            assert_eq!(allowed_by_host(address), None, "{address}");
        }
    }

    #[test]
    fn every_address_among_the_arguments_is_asked_for_and_a_text_that_is_one_counts_whole() {
        let arguments = json!({
            "urls": ["https://a.test/x", " https://b.test/y z "],
            "url": "c.test/log?d=1", "site": "d.test", "note": "not.anaddress by its name",
            "prompt": "fetch https://e.test/1, then (http://f.test/2)", "odd": "https:g.test/3", "file": "file:///w/a.txt",
            "page": 2, "deep": {"target_url": "localhost:9/x", "path": "notes.md"},
        });
        let mut found = asked(&arguments);
        found.sort();
        let wanted = [
            " https://b.test/y z ",
            "c.test/log?d=1",
            "d.test",
            "http://f.test/2",
            "https://a.test/x",
            "https://e.test/1",
            "https:g.test/3",
            "localhost:9/x",
        ];
        assert_eq!(found, wanted);
        let all = known("https://e.test/1 http://f.test/2 https://g.test/3");
        assert!([3, 5].iter().all(|at| all.has(&found[*at])), "{found:?}");
        assert!(!all.has(&found[6]), "an address of a page is written with two slashes");
        let counted = json!({"prompt": "fetch https://e.test/1.,!;:.,"});
        assert!(asked(&counted).iter().all(|address| !all.has(address)), "punctuation is a number, too");
    }

    /// A reader leaves some white space out at the ends of an address, or none, and sends the rest: how much stands there, and which, could be
    /// digits.
    #[test]
    fn s1_no_white_space_around_a_known_address_is_known() {
        let known = known("https://a.test/x");
        let spaces = (0..=0x3000).filter_map(char::from_u32).filter(|c| c.is_whitespace() || c.is_control());
        let spaces = spaces.chain(['\u{ad}', '\u{200b}', '\u{2060}', '\u{feff}']);
        let mut tried = 0;
        for c in spaces {
            for text in [format!("https://a.test/x{c}"), format!("{c}https://a.test/x")] {
                for arguments in [
                    json!({"urls": [text]}),
                    json!({ "link": text }),
                    json!({ "anything": text }),
                    json!({"body": format!("{{\"url\": \"{text}\"}}")}),
                ] {
                    let asked = asked(&arguments);
                    assert!(asked.iter().any(|address| !known.has(address)), "{arguments}: {asked:?}");
                    tried += 1;
                }
            }
        }
        assert!(tried > 600, "{tried}");
    }

    #[test]
    fn a_page_of_this_machine_vouches_for_nothing_and_neither_do_those_beside_it() {
        for urls in [json!(["https://a.test/x"]), json!([" HTTP://a.test/x", "https://b.test"])] {
            assert!(is_of_the_web(&json!({ "urls": urls })), "{urls}");
        }
        for urls in [
            json!(["file:///w/a.md"]),
            json!(["https://a.test/x", "FILE:///w/a.md"]),
            json!(["fi\tle:///w/a.md"]),
            json!(["\u{1}file:///w/a.md"]),
        ] {
            assert!(!is_of_the_web(&json!({ "urls": urls })), "{urls}");
        }
        assert!(is_of_the_web(&json!({"query": "cats"})));
    }

    #[test]
    fn whoever_is_asked_for_an_address_does_not_make_it_known_by_repeating_it() {
        let said = "No results for evil.test/log?d=1. https://evil.test/log?d=1 https://evil.test/other https://site.test/ https://site.test/b";
        let heard = |arguments: Value| {
            let mut heard = known(said);
            heard.forget_repeated(&arguments);
            ["evil.test/log?d=1", "evil.test/other", "site.test"].map(|address| heard.has(address))
        };
        assert_eq!(heard(json!({"query": "cats"})), [true, true, true]);
        assert_eq!(heard(json!({"query": "see Evil.test/log?d=1"})), [false, true, true]);
        assert_eq!(heard(json!({"url": "https://search.test/?q=evil.test%2Flog%3Fd%3D1"})), [false, true, true]);
        // The home page of what was read is no news to its host.
        assert_eq!(heard(json!({"urls": ["https://site.test/a"]})), [true, true, true]);
        assert_eq!(heard(json!({"query": "what is on site.test today"})), [true, true, false]);
        // Nor by repeating it in another form that counts as the same.
        for (asked, said) in [
            ("evil.test:443/log?d=1", "https://evil.test:443/log?d=1"),
            ("evil.test:80/log?d=1", "http://evil.test/log?d=1"),
            ("evil.test/?d=1", "https://evil.test?d=1"),
            ("evil.test?d=1", "https://evil.test/?d=1"),
            ("EVIL.test/#d1", "https://evil.test#d1"),
        ] {
            let mut heard = known(said);
            heard.forget_repeated(&json!({"query": format!("look for {asked} now")}));
            assert!(!heard.has(said), "{asked}: {heard:?}");
        }
    }
}
