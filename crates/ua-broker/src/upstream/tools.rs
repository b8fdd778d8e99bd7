//! Which tools a server offers, and whether they are still those that were listed.
//!
//! A server that was started again may be another program by now, and a running one may say that its tools are others. Both are looked at
//! before the next call is planned or sent: what was decided about a tool by its definition holds for that definition alone. Each list that
//! differs from the one before is an *edition* of its own. The client is told, since it shows its model what was listed before.
//! Proved by: `tests/it/changes.rs`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard};

use serde_json::{Value, json};
use ua_core::{CanonicalJson, Sha256, sha256};
use ua_mcp::Pages;

use super::process::Process;
use super::{Upstream, lock};

/// The most names that stand in a sentence.
const MAX_NAMED: usize = 5;

/// What is known of a server's tools.
#[derive(Debug, Default)]
pub(super) struct Tools {
    known: Mutex<Known>,
    /// The server said that they are others, and nobody has looked yet.
    may_have_changed: AtomicBool,
}

#[derive(Debug, Default)]
struct Known {
    /// Counts the lists that differ; 0 before the first.
    edition: u64,
    /// A digest of each definition, by name.
    definitions: BTreeMap<String, Sha256>,
    /// What the newest edition changed, in words.
    change: String,
}

impl Tools {
    fn known(&self) -> MutexGuard<'_, Known> {
        lock(&self.known)
    }

    /// Whether no newer edition is known.
    pub(super) fn is_newest(&self, edition: u64) -> bool {
        self.known().edition == edition
    }

    /// Whether this is the newest edition, and the server has not said that there is another.
    pub(super) fn is_edition(&self, edition: u64) -> bool {
        self.is_newest(edition) && !self.may_have_changed.load(Ordering::Acquire)
    }

    /// What the newest edition changed, as the end of a clause; empty for the first.
    pub(super) fn last_change(&self) -> String {
        self.known().change.clone()
    }

    /// Notes a list. Returns its edition, and whether another one was known before.
    fn note(&self, tools: &[Value]) -> (u64, bool) {
        let named = |tool: &Value| Some((tool["name"].as_str()?.to_owned(), definition(tool)));
        let definitions: BTreeMap<String, Sha256> = tools.iter().filter_map(named).collect();
        let mut known = self.known();
        let is_first = known.edition == 0;
        if !is_first && known.definitions == definitions {
            return (known.edition, false);
        }
        if !is_first {
            known.change = differences(&known.definitions, &definitions);
        }
        known.edition += 1;
        known.definitions = definitions;
        (known.edition, !is_first)
    }
}

/// A digest of all that a server says of a tool.
fn definition(tool: &Value) -> Sha256 {
    match CanonicalJson::of(tool, &[]) {
        Ok(canonical) => sha256(canonical.as_str()),
        Err(_) => sha256(tool.to_string()),
    }
}

/// What differs, in words: `: `pay` is another one`.
fn differences(before: &BTreeMap<String, Sha256>, now: &BTreeMap<String, Sha256>) -> String {
    let words = |name: &String| match (before.get(name), now.get(name)) {
        (Some(before), Some(now)) => (before != now).then(|| format!("`{name}` is another one")),
        (Some(_), None) => Some(format!("`{name}` has gone")),
        (None, Some(_)) => Some(format!("`{name}` is new")),
        (None, None) => None,
    };
    let mut names: Vec<&String> = before.keys().chain(now.keys()).collect();
    names.sort();
    names.dedup();
    let mut all: Vec<String> = names.into_iter().filter_map(words).collect();
    let more = all.len().saturating_sub(MAX_NAMED);
    all.truncate(MAX_NAMED);
    if more > 0 {
        all.push(format!("{more} more"));
    }
    format!(": {}", all.join(", "))
}

impl Upstream {
    pub(super) fn tools(&self) -> &Tools {
        &self.tools
    }

    /// The server says that its tools are others. They are looked at before the next call.
    pub(crate) fn tools_may_have_changed(&self) {
        self.tools.may_have_changed.store(true, Ordering::Release);
    }

    /// The running process, started when there is none, and the edition of its tools, which were looked at since it started and since it said
    /// last that they changed.
    pub(super) async fn looked_at(&self) -> Result<(Arc<Process>, u64), String> {
        let process = self.running_process().await?;
        let edition = self.tools.known().edition;
        let is_known = edition > 0 && process.is_looked_at();
        if is_known && !self.tools.may_have_changed.load(Ordering::Acquire) {
            return Ok((process, edition));
        }
        let (edition, _) = self.list_of(&process).await?;
        Ok((process, edition))
    }

    /// The edition of the tools by which a call is planned now.
    pub(crate) async fn edition(&self) -> Result<u64, String> {
        self.looked_at().await.map(|(_, edition)| edition)
    }

    /// Its tools as it lists them, and which edition they are.
    pub(super) async fn list(&self) -> Result<(u64, Vec<Value>), String> {
        let process = self.running_process().await?;
        self.list_of(&process).await
    }

    async fn list_of(&self, process: &Arc<Process>) -> Result<(u64, Vec<Value>), String> {
        // Before it is asked: what it says meanwhile is looked at anew.
        let may_have_changed = self.tools.may_have_changed.swap(false, Ordering::AcqRel);
        let listed = self.pages(process).await.inspect_err(|_| {
            self.tools.may_have_changed.fetch_or(may_have_changed, Ordering::AcqRel);
        })?;
        let (edition, is_another) = self.tools.note(&listed);
        process.was_looked_at();
        if is_another {
            let said = json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"});
            self.to_client.put(said);
        }
        Ok((edition, listed))
    }

    async fn pages(&self, process: &Process) -> Result<Vec<Value>, String> {
        let mut tools = Pages::of("tools");
        let mut cursor = None::<Value>;
        loop {
            let params = cursor.take().map_or_else(|| json!({}), |cursor| json!({"cursor": cursor}));
            let mut page = self.look(process, "tools/list", &params).await?;
            self.note_schemas(&page);
            let listed = page.get_mut("tools").and_then(Value::as_array_mut).map(std::mem::take).unwrap_or_default();
            let next = page.get_mut("nextCursor").map(Value::take).unwrap_or_default();
            match tools.add(listed, next)? {
                Some(next) => cursor = Some(next),
                None => return Ok(tools.into_items()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_that_differs_is_another_edition_and_says_in_what() {
        let tools = Tools::default();
        let tool = |name: &str, description: &str| json!({"name": name, "description": description});
        assert_eq!((tools.is_edition(0), tools.note(&[tool("a", "x"), tool("b", "x")])), (true, (1, false)));
        // The order, also of fields, says nothing.
        assert_eq!(tools.note(&[json!({"description": "x", "name": "b"}), tool("a", "x")]), (1, false));
        assert_eq!(tools.last_change(), "");
        assert_eq!(tools.note(&[tool("a", "y"), tool("c", "x")]), (2, true));
        assert_eq!(tools.last_change(), ": `a` is another one, `b` has gone, `c` is new");
        assert!(!tools.is_edition(1) && tools.is_edition(2));
        let many: Vec<Value> = (0..9).map(|number| tool(&format!("n{number}"), "x")).collect();
        assert_eq!(tools.note(&many), (3, true));
        assert!(tools.last_change().ends_with(", 6 more"), "{}", tools.last_change());
    }
}
