//! Why the gateway does not serve, or not as its file says: what would keep a broker from starting now, what the last one said before it ended,
//! and what `gateway.toml` says of nobody.
//!
//! A bridge has only the start of a broker to wait for, so whoever looks must find here what that start would say.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::UNIX_EPOCH;

use serde::{Deserialize, Serialize};
use ua_bridge::{Claims, last_failure};
use ua_broker::{BrokerLock, KNOWN_CLIENTS};
use ua_core::{ShowPath as _, Timestamp};
use ua_files::Folder;
use ua_store::{CallQuery, GatewayStore as _, SessionsOf, Store as _};

use super::{Client, Front, SOCKET, Said, configuration, install, tokens};
use crate::error::HostError;
use crate::home::Home;
use crate::host::Host;

/// Where a broker that ends by an error says so, in the gateway's folder.
pub(super) const FILE: &str = "last_error.json";
/// So many of the newest sessions and calls are looked at for names that somebody has: a broker is started many times a day, and a client waits
/// for it.
const MOST_LOOKED_AT: u32 = 2_000;
/// The largest such file that is read.
const MOST: u64 = 64 * 1024;
/// With less free space a broker cannot open its database.
const TOO_LITTLE: u64 = 1 << 20;

/// Why there is no broker.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fault {
    /// Whether none came up, as whoever started one tells it; else one ended by an error, and said so itself.
    #[serde(skip)]
    pub is_of_start: bool,
    /// When.
    pub at: Timestamp,
    /// What was wrong.
    pub message: String,
    /// What helps.
    pub hint: Option<String>,
}

impl Fault {
    /// The same in words; `when` is how the instant is told there.
    pub fn in_words(&self, when: &str) -> String {
        let lead = if self.is_of_start { "no broker could be started" } else { "the last broker ended" };
        let with = if self.is_of_start { ":" } else { " with:" };
        format!("{lead} {when}{with} {}", self.message)
    }
}

/// Notes why a broker ends, unless the next one has come up meanwhile: it forgot what was noted before it, and what is noted behind that would
/// stand there for as long as it works, and be told of it when it is gone. Where it cannot be written, on a full disk, the disk says it.
pub(super) fn note(root: &Path, locks: &Path, at: Timestamp, error: &HostError) {
    // Whoever has it when it begins to serve forgets, so none does while it is held here.
    let Ok(Some(_lock)) = BrokerLock::take(locks) else {
        tracing::debug!("another broker came up, so why this one ended is not noted");
        return;
    };
    let (message, hint) = (error.message().to_owned(), error.hint_text().map(str::to_owned));
    let fault = Fault { is_of_start: false, at, message, hint };
    let written = serde_json::to_vec(&fault).map_err(std::io::Error::other);
    let written = written.and_then(|text| Folder::open_itself(root)?.replace(FILE, &text));
    if let Err(error) = written {
        tracing::debug!(%error, "why the broker ended is not noted");
    }
}

/// A broker serves: what an earlier one said is over, and so is that none could be started. Whoever holds the claim has written over that already.
pub(super) fn forget(root: &Path) {
    let _not_there = std::fs::remove_file(root.join(FILE));
    if let Some(claim) = Claims::beside(&root.join(SOCKET)).take() {
        claim.begins();
    }
}

/// What the last broker said before it ended, if it ended by an error and none served since.
pub(super) fn last_words(root: &Path) -> Option<Fault> {
    serde_json::from_str(&ua_files::read_text(&root.join(FILE), MOST).ok()?).ok()
}

/// Why there is no broker: what the last one said before it ended by an error, or, where none got as far as that, what whoever started one found
/// of it; nothing where one served since.
pub fn last_fault(root: &Path) -> Option<Fault> {
    let said = last_words(root);
    let started = last_failure(&root.join(SOCKET)).and_then(|(at, message)| {
        let at = at.duration_since(UNIX_EPOCH).ok()?;
        let at = Timestamp::from_millis(i64::try_from(at.as_millis()).ok()?);
        Some(Fault { is_of_start: true, at, message, hint: None })
    });
    match (said, started) {
        // Whoever started it may only repeat what it said, and that has its hint.
        (Some(said), Some(started)) if started.at <= said.at || started.message.contains(&said.message) => Some(said),
        (said, started) => started.or(said),
    }
}

/// What would keep a broker from starting now, as far as it can be told without starting one: its settings, its database, its disk. `None` where
/// nobody uses a gateway.
pub async fn trouble(host: &Host, root: &Path) -> Option<HostError> {
    if !root.is_dir() {
        return None;
    }
    if let Err(wrong) = Said::read(host, root) {
        return Some(wrong);
    }
    let home = match Home::new(host.settings(), Some(root), host.known_secrets()) {
        Ok(home) => home,
        Err(wrong) => return Some(wrong),
    };
    if let Some(full) = full_disk(root) {
        return Some(full);
    }
    if home.is_unused() {
        return None;
    }
    match home.open_read_only() {
        Ok(store) => {
            // Its head may be sound where its pages are not.
            let read = store.sessions_of(SessionsOf::Newest(1)).await;
            let is_free = super::is_free_of_others(&store).await;
            crate::home::close(store);
            let unread = read.err().map(|error| HostError::store("look at the gateway's database", &error));
            unread.or(is_free.err())
        }
        Err(wrong) => Some(wrong),
    }
}

fn full_disk(root: &Path) -> Option<HostError> {
    let stat = rustix::fs::statvfs(root).ok()?;
    let free = stat.f_bavail.saturating_mul(stat.f_frsize);
    (free < TOO_LITTLE).then(|| {
        let free = ua_core::size_in_words(free);
        let message = format!("the disk of the gateway's folder {} is full: {free} free", root.shown());
        HostError::storage(message).hint("make room; what cannot be recorded is not sent")
    })
}

/// Names of `gateway.toml` that stand for nobody so far, each in a sentence: a budget of a client, a tool server or an effect that never comes
/// limits nothing.
///
/// # Errors
/// What is wrong with the file.
pub async fn unmatched(host: &Host, root: &Path) -> Result<Vec<String>, HostError> {
    let said = Said::read(host, root)?;
    let rules = &said.config.rules;
    if rules.budgets.is_empty() && rules.clients.is_empty() {
        return Ok(Vec::new());
    }
    let mut seen = Seen::of_files(host, root, &said);
    seen.read(host, root).await;
    let file = root.join(super::CONFIG_FILE);
    let no_client = "no client that calls itself so has come yet";
    let mut words = Vec::new();
    let mut say = |place: String, name: &str, of: &BTreeSet<String>, why: &str| {
        if of.contains(name) {
            return;
        }
        let meant = ua_core::nearest(name, of.iter().map(String::as_str));
        let meant = meant.map_or_else(String::new, |meant| format!("; did you mean `{meant}`?"));
        words.push(format!("{}: {place} is \"{name}\", and {why}{meant}", file.shown()));
    };
    for name in rules.clients.keys() {
        say("the name of a table under `client`".to_owned(), name, &seen.clients, no_client);
    }
    for (place, budget) in rules.budgets.iter().enumerate() {
        let named = |field: &str| format!("`budget[{}].{field}`", place + 1);
        if let Some(client) = &budget.client {
            say(named("client"), client, &seen.clients, no_client);
        }
        if let Some(server) = &budget.server {
            say(named("server"), server, &seen.servers, "no tool server of this name is known");
        }
        if let Some(effect) = &budget.effect {
            say(named("effect"), effect, &seen.effects, "no rule declares it and no call had it yet");
        }
    }
    Ok(words)
}

/// Who has been here, or is known.
struct Seen {
    clients: BTreeSet<String>,
    servers: BTreeSet<String>,
    effects: BTreeSet<String>,
}

impl Seen {
    /// Those that are known, or that files name.
    fn of_files(host: &Host, root: &Path, said: &Said) -> Self {
        let known = KNOWN_CLIENTS.map(str::to_owned);
        let over_http = tokens(root).clients().unwrap_or_default();
        let mut servers: BTreeSet<String> = said.entries.keys().cloned().collect();
        let front = Front { program: String::new(), root: None, own_root: None };
        for client in Client::ALL {
            let Ok(file) = configuration(host.settings(), client) else { continue };
            let Ok(edited) = install(root, &file, &front, &[], true) else { continue };
            servers.extend(edited.changes.into_iter().map(|change| super::install::plain_name(&change.server)));
        }
        let effects = said.classifier.declared_effects().map(str::to_owned).collect();
        Self { clients: known.into_iter().chain(over_http).collect(), servers, effects }
    }

    /// Those that are in the database. What cannot be read is told by whoever needs it.
    async fn read(&mut self, host: &Host, root: &Path) {
        let Ok(home) = Home::new(host.settings(), Some(root), host.known_secrets()) else { return };
        if home.is_unused() {
            return;
        }
        let Ok(store) = home.open_read_only() else { return };
        for session in store.sessions_of(SessionsOf::Newest(MOST_LOOKED_AT)).await.unwrap_or_default() {
            self.clients.insert(session.client);
            self.servers.insert(session.server);
        }
        let newest = CallQuery { limit: MOST_LOOKED_AT, ..CallQuery::default() };
        let calls = store.find_calls(&newest).await.unwrap_or_default();
        let kinds = calls.iter().filter_map(|call| call.policy.effect_kind.as_ref());
        self.effects.extend(kinds.map(|kind| kind.as_str().to_owned()));
        crate::home::close(store);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of two brokers that start at once the one that fails may be the slower one.
    #[test]
    fn what_a_broker_said_is_not_noted_beside_one_that_works() {
        let folder = tempfile::tempdir().unwrap();
        let (root, locks) = (folder.path(), folder.path().join("locks"));
        let at = Timestamp::from_millis(1_767_323_045_000);
        let error = HostError::storage("the database is locked").hint("wait");
        let works = BrokerLock::take(&locks).unwrap().unwrap();
        forget(root);
        note(root, &locks, at, &error);
        assert_eq!(last_fault(root), None, "it works, and would be said to have ended so");
        drop(works);
        // A program that another test starts has all open files of this process for a moment, this lock as well.
        while last_fault(root).is_none() {
            note(root, &locks, at, &error);
        }
        let noted = last_fault(root).unwrap();
        assert_eq!((noted.at, noted.message.as_str()), (at, "the database is locked"));
        forget(root);
        assert_eq!(last_fault(root), None);
    }

    /// What a broker said of itself has its hint; of one that said nothing whoever started it knows how it ended.
    #[test]
    fn why_none_could_be_started_is_known_where_none_said_so() {
        let folder = tempfile::tempdir().unwrap();
        let (root, locks) = (folder.path(), folder.path().join("locks"));
        let fails = |why: &str| {
            // As above: it may be another test's child that has it.
            let mut claims = Claims::beside(&root.join(SOCKET));
            std::iter::repeat_with(|| claims.take()).flatten().next().unwrap().failed(why);
        };
        fails("/opt/ua ended without a word (exit status: 3)");
        let fault = last_fault(root).unwrap();
        assert_eq!(
            fault.in_words("just now"),
            "no broker could be started just now: /opt/ua ended without a word (exit status: 3)"
        );
        let at = Timestamp::from_millis(1_767_323_045_000);
        note(root, &locks, at, &HostError::storage("the disk is full").hint("make room"));
        assert_eq!(last_fault(root).unwrap(), fault, "it is the newer one");
        fails("the gateway's broker cannot start: the disk is full; hint: make room");
        let said = last_fault(root).unwrap();
        assert_eq!(
            (said.in_words("just now"), said.hint),
            ("the last broker ended just now with: the disk is full".to_owned(), Some("make room".to_owned()),)
        );
        fails("killed");
        forget(root);
        assert_eq!(last_fault(root), None, "one serves");
    }
}
