//! The chain over the events of each run: what a person or a program changes in the history afterwards is named.
//!
//! Events are rows that triggers insert (`migrations/sqlite`), so no write can forget one. Before a transaction is committed the writer
//! links the new ones: `chain = sha256(chain before it in its run, run, seq, call, statuses, epoch, time)`, and behind that a person's word
//! that corrected the call, if it was one. Each piece stands behind its length, so that no two rows give the same bytes.
//!
//! There is no key in it: it finds edits, losses and mistakes, not somebody who computes the chain anew.
//!
//! Threat S19 of `docs/security.md`. Proved by: `tests/it/event_chain.rs`.

use std::collections::{BTreeMap, HashMap};

use rusqlite::{Connection, OptionalExtension as _, Row, params};
use ua_core::sha256;

/// One event, and whose it is.
struct Event {
    seq: i64,
    call: String,
    from: Option<String>,
    to: String,
    epoch: i64,
    at: String,
    /// The run that the call is of.
    run: String,
    chain: Option<String>,
    /// A person's word, as it is stored.
    correction: Option<String>,
}

/// All events. The run of each is that of its call: of events that were written since schema 17 it stands in them, of one that somebody put there by
/// hand it may not.
const ALL: &str = "SELECT event_seq, tool_call_id, from_status, to_status, lease_epoch, at, '', chain, correction_json \
                   FROM tool_call_events ORDER BY event_seq";
const CALLS: &str = "SELECT tool_call_id, run_id, status || coalesce('_' || failure_kind, '') FROM tool_calls";
const NEW: &str = "SELECT event_seq, tool_call_id, from_status, to_status, lease_epoch, at, run_id, chain, correction_json \
                   FROM tool_call_events WHERE event_seq > ?1 AND chain IS NULL ORDER BY event_seq";
/// The last link of a run before an event.
const BEFORE: &str = "SELECT chain FROM tool_call_events WHERE run_id = ?1 AND chain IS NOT NULL AND event_seq < ?2 \
                      ORDER BY event_seq DESC LIMIT 1";

impl Event {
    fn read(row: &Row<'_>) -> rusqlite::Result<Self> {
        Ok(Self {
            seq: row.get(0)?,
            call: row.get(1)?,
            from: row.get(2)?,
            to: row.get(3)?,
            epoch: row.get(4)?,
            at: row.get(5)?,
            run: row.get(6)?,
            chain: row.get(7)?,
            correction: row.get(8)?,
        })
    }

    /// What its chain has to be behind `before`.
    fn link(&self, before: &str) -> String {
        let (seq, epoch) = (self.seq.to_string(), self.epoch.to_string());
        let from = self.from.as_deref().unwrap_or_default();
        // As long as nearly all are.
        let mut bytes = Vec::with_capacity(384);
        let pieces = [before, &self.run, &seq, &self.call, from, &self.to, &epoch, &self.at];
        // What nobody corrected is linked as it always was.
        for piece in pieces.into_iter().chain(self.correction.as_deref()) {
            bytes.extend_from_slice(&(piece.len() as u64).to_be_bytes());
            bytes.extend_from_slice(piece.as_bytes());
        }
        sha256(bytes).to_string()
    }
}

/// Links what a writer inserts.
#[derive(Debug)]
pub(crate) struct EventChain {
    /// The newest event that was there before; none when the table has no chain, as in a database that is not ours.
    newest: Option<i64>,
    /// The newest event of the transaction that is open.
    linked: Option<i64>,
    /// The last link of the runs that were written lately.
    heads: HashMap<String, String>,
}

/// The last links of as many runs are known.
const MOST_HEADS: usize = 128;

impl EventChain {
    /// For a connection that is opened and migrated.
    pub(crate) fn new(connection: &Connection) -> rusqlite::Result<Self> {
        let chained = "SELECT count(*) FROM pragma_table_info('tool_call_events') WHERE name = 'chain'";
        let is_chained = connection.query_row(chained, [], |row| row.get::<_, i64>(0))? != 0;
        Ok(Self::behind(if is_chained { Some(newest(connection)?) } else { None }))
    }

    /// Behind an event that was there before.
    pub(crate) fn behind(newest: Option<i64>) -> Self {
        Self { newest, linked: None, heads: HashMap::new() }
    }

    /// Somebody else has written: what he put there is not linked here.
    pub(crate) fn look_again(&mut self, connection: &Connection) -> rusqlite::Result<()> {
        self.heads.clear();
        if self.newest.is_some() {
            self.newest = Some(newest(connection)?);
        }
        Ok(())
    }

    /// Links the events of the transaction that is open. They are counted as linked only by [`EventChain::committed`].
    pub(crate) fn link(&mut self, connection: &Connection) -> rusqlite::Result<()> {
        let Some(newest) = self.newest else { return Ok(()) };
        let mut new = connection.prepare_cached(NEW)?;
        let events = new.query_map([newest], Event::read)?.collect::<Result<Vec<_>, _>>()?;
        if events.is_empty() {
            return Ok(());
        }
        let mut set = connection.prepare_cached("UPDATE tool_call_events SET chain = ?2 WHERE event_seq = ?1")?;
        for event in events {
            let head = if let Some(known) = self.heads.remove(&event.run) {
                known
            } else {
                let mut before = connection.prepare_cached(BEFORE)?;
                before.query_row(params![event.run, event.seq], |row| row.get(0)).optional()?.unwrap_or_default()
            };
            let link = event.link(&head);
            set.execute(params![event.seq, link])?;
            if self.heads.len() >= MOST_HEADS {
                self.heads.clear();
            }
            self.linked = Some(event.seq);
            self.heads.insert(event.run, link);
        }
        Ok(())
    }

    /// The transaction is committed.
    pub(crate) fn committed(&mut self) {
        self.newest = self.linked.take().or(self.newest);
    }

    /// The transaction is rolled back.
    pub(crate) fn rolled_back(&mut self) {
        self.linked = None;
        self.heads.clear();
    }
}

/// The number of the newest event.
pub(crate) fn newest(connection: &Connection) -> rusqlite::Result<i64> {
    let mut newest = connection.prepare_cached("SELECT coalesce(max(event_seq), 0) FROM tool_call_events")?;
    newest.query_row([], |row| row.get(0))
}

/// Links what a migration changed, in one transaction: it leaves a note of where its events begin.
pub(crate) fn link_migrated(connection: &mut Connection) -> rusqlite::Result<()> {
    let noted = "SELECT value FROM meta WHERE key = 'events_linked_up_to'";
    let noted: Option<String> = connection.query_row(noted, [], |row| row.get(0)).optional()?;
    let Some(newest) = noted.and_then(|value| value.parse().ok()) else { return Ok(()) };
    let transaction = connection.transaction()?;
    EventChain::behind(Some(newest)).link(&transaction)?;
    transaction.execute("DELETE FROM meta WHERE key = 'events_linked_up_to'", [])?;
    transaction.commit()
}

/// What the row of a call says, and what its events were found to say.
struct Told {
    run: String,
    status: String,
    /// What the newest of its events says it came to.
    last: Option<String>,
}

/// What does not fit together in the histories of all calls, each as a sentence; empty when nothing was changed afterwards.
///
/// Events are read in the order in which they lie, which is that of each run as well: to sort them by run, each with its call, took three times as
/// long.
pub(crate) fn findings(connection: &Connection) -> rusqlite::Result<Vec<String>> {
    let mut findings = Vec::new();
    let mut calls = connection.prepare(CALLS)?;
    let told = |row: &Row<'_>| Ok((row.get(0)?, Told { run: row.get(1)?, status: row.get(2)?, last: None }));
    let mut calls: BTreeMap<String, Told> = calls.query_map([], told)?.collect::<rusqlite::Result<_>>()?;
    // Older events have no chain; behind the first that has one, all do.
    let since: Option<i64> =
        connection
            .query_row("SELECT min(event_seq) FROM tool_call_events WHERE chain IS NOT NULL", [], |row| row.get(0))?;
    let mut all = connection.prepare(ALL)?;
    // The last link of each run so far.
    let mut heads: HashMap<String, String> = HashMap::new();
    let mut rows = all.query([])?;
    while let Some(row) = rows.next()? {
        let mut event = Event::read(row)?;
        // That its call is missing, a reference says.
        let Some(told) = calls.get_mut(&event.call) else { continue };
        event.run.clone_from(&told.run);
        let Event { seq, call, run, .. } = &event;
        match &event.chain {
            Some(chain) => {
                let before = heads.get(run).map_or("", String::as_str);
                if *chain != event.link(before) {
                    findings.push(format!(
                        "event {seq} of call {call}, run {run}, is not what was written: it was edited or moved, or an event before it was \
                         removed"
                    ));
                }
                heads.insert(run.clone(), chain.clone());
            }
            None if since.is_some_and(|since| *seq > since) => {
                findings.push(format!("event {seq} of call {call}, run {run}, was not written by this program"));
            }
            None => {}
        }
        told.last = Some(event.to);
    }
    // The newest event of a run has none behind it that would miss it; its call does.
    for (call, Told { run, status, last }) in calls {
        if last.as_ref() != Some(&status) {
            let last = last.map_or_else(|| "it has no event".to_owned(), |last| format!("its last event says {last}"));
            findings.push(format!("call {call}, run {run}, is {status}, but {last}"));
        }
    }
    Ok(findings)
}
