//! What `effects.log` knows and the database does not: the sign that the database went back in time.
//!
//! A backup that was put back, a copy without its write-ahead log or a disk that lied about a sync loses receipts, and lost
//! receipts are effects that would happen again. The log is written after the commit, so each attempt in it was in the
//! database once.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::OpenOptions;
use std::io::{BufRead, BufReader, ErrorKind, Read as _};
use std::path::Path;

use rusqlite::OptionalExtension as _;
use serde::Deserialize;
use serde_json::json;
use ua_core::{CallId, CallStatus, RunId, ShowPath as _, Timestamp, size_in_words};
use ua_store::{
    AttemptRecord, Correction, DELETED, Forgotten, KnownBy, Lost, StoreError, TASK_BEGUN, Trace, UNACCOUNTED, rules,
};

use crate::column::Columns;
use crate::db::Db;
use crate::effects::Writes;
use crate::error::{DbError, refused, refused_because};
use crate::{effects, open};

/// Whether the database, which has the run, knows less about it.
fn is_news(known: &Forgotten, db: &Db<'_>) -> Result<bool, DbError> {
    if known.word.is_some() {
        return word_is_news(known, db);
    }
    let Some(call) = known.tool_call_id.as_ref().and_then(|call| CallId::parse(call).ok()) else { return Ok(false) };
    let attempts = started(db, &call)?;
    match known.known_by(&attempts) {
        KnownBy::Nothing => return Ok(true),
        KnownBy::Another => return Ok(!known.did_nothing()),
        KnownBy::Attempt(own) if attempts.iter().any(|other| other.attempt > own.attempt) => return Ok(false),
        KnownBy::Attempt(_) => {}
    }
    // Of the call only what is compared: each line of the log asks.
    let sql = "SELECT tool_call_id, status, correction_json FROM tool_calls WHERE tool_call_id = ?1";
    let stored = db.row(sql, [call.as_str()], |row| {
        let column = Columns::new(row, "calls of effects.log", "tool_call_id");
        Ok((column.get::<String>("status")?, column.opt_json::<Correction>("correction_json")?))
    })?;
    let Some((status, correction)) = stored else { return Ok(true) };
    let knows_no_end = matches!(status.as_str(), "running" | "unknown") && known.has_ended();
    let word = known.correction.as_ref();
    let lacks_a_word = word.is_some_and(|word| correction.is_none_or(|stored| stored.at < word.at));
    Ok(knows_no_end || lacks_a_word)
}

/// The attempts of a call, as far as it matters which they are: each line of the log asks.
fn started(db: &Db<'_>, call: &CallId) -> Result<Vec<AttemptRecord>, DbError> {
    let sql = "SELECT tool_call_id, attempt, started_at, detail FROM tool_attempts WHERE tool_call_id = ?1";
    db.rows(sql, [call.as_str()], |row| {
        let column = Columns::new(row, "attempts of effects.log", "tool_call_id");
        Ok(AttemptRecord {
            call_id: call.clone(),
            attempt: column.int("attempt")?,
            epoch: 0,
            server_generation: None,
            destination: None,
            started_at: column.at("started_at")?,
            ended_at: None,
            outcome: None,
            detail: column.get("detail")?,
            handle: None,
        })
    })
}

fn word_is_news(known: &Forgotten, db: &Db<'_>) -> Result<bool, DbError> {
    if known.word.as_deref() == Some(DELETED) {
        // A run that is not there is as good as deleted, and one that began behind it has its name alone.
        let sql = "SELECT 1 FROM runs WHERE run_id = ?1 AND created_at <= ?2 \
                   AND NOT EXISTS (SELECT 1 FROM deleted_runs d WHERE d.run_id = runs.run_id)";
        return Ok(db.connection.prepare_cached(sql)?.exists([&known.run_id, &known.at])?);
    }
    if known.word.as_deref() == Some(UNACCOUNTED) {
        // One that ended, as it was cancelled meanwhile, sends nothing more.
        let sql = "SELECT 1 FROM runs WHERE run_id = ?1 AND status NOT IN ('succeeded', 'failed', 'cancelled')";
        return Ok(db.connection.prepare_cached(sql)?.exists([&known.run_id])?);
    }
    let sql = match known.question_id {
        Some(_) => "SELECT 1 FROM answers WHERE question_id = ?1",
        None => {
            "SELECT 1 FROM runs WHERE run_id = ?1 AND (cancel_requested_at IS NOT NULL \
                     OR status IN ('succeeded', 'failed', 'cancelled'))"
        }
    };
    let id = known.question_id.as_ref().unwrap_or(&known.run_id);
    Ok(!db.connection.prepare_cached(sql)?.exists([id])?)
}

/// What every line has; the rest is a [`Forgotten`], but for one that says what a person accepted.
#[derive(Deserialize)]
struct Line {
    event: String,
    /// The file of the database that wrote it, in the folder of the log; a line of an older version does not say it.
    db_file: Option<String>,
    db_uuid: String,
    run_id: String,
    at: Option<String>,
    /// What was accepted; a line of an older version accepts all that was known of its run.
    accepted: Option<Vec<String>>,
    /// The family that it was accepted for, if for one alone.
    family: Option<String>,
}

/// What a log says about one database.
#[derive(Debug, Clone, Default)]
pub(crate) struct Mirror {
    /// The newest line about each attempt and each word.
    newest: BTreeMap<String, Forgotten>,
    /// Those of them that a person accepted: they stop nobody any more, and are known all the same.
    done: BTreeMap<String, Forgotten>,
    /// What of it was accepted for one family, by its first run, and still counts for the others.
    accepted: BTreeSet<(String, String)>,
    /// Since when it tells everything again: a copy was put in place then of whose time there was no log.
    untold_until: Option<Timestamp>,
    /// How many lines there are.
    pub(crate) lines: usize,
    /// Those among them that are cut, or another database's that lies beside it.
    pub(crate) foreign: usize,
}

const ACCEPTED: &str = "accepted";
/// The event of a copy that was put in place and of whose time there was no log.
pub(crate) const RESTORED: &str = "restored";

/// A log has at most so many bytes: a few million effects. What is read of it is held in memory.
const MOST_BYTES: u64 = 4 << 30;
/// A line has at most so many bytes; the longest one lists all that a person accepted at once.
const LONGEST_LINE: u64 = 64 << 20;

/// A file in the place of the log that this program did not write, or that grew beyond what it can compare.
fn too_much(path: &Path, why: &str) -> StoreError {
    refused(format!(
        "{} {why}, so it was not compared with the database; put it elsewhere if it is not the log that was written here, and begin what is \
         new in another root if it is",
        path.shown()
    ))
}

/// Whether a line is another database's that lies where it lay when it wrote the line, and answers for it. A file of another name answers for nothing,
/// whatever it is: a backup knows what was sent, and nobody asks it. Nor does what is named as this database is, which was put in the other's place.
fn is_anothers(line: &Line, log: &Path, own: &Writes, beside: &mut BTreeMap<Writes, bool>) -> bool {
    let Some(file) = line.db_file.as_ref().filter(|file| line.db_uuid != own.uuid && **file != own.file) else {
        return false;
    };
    let is_name = Path::new(file).file_name().is_some_and(|name| name == file.as_str());
    let by = Writes { uuid: line.db_uuid.clone(), file: file.clone() };
    is_name
        && *beside.entry(by).or_insert_with_key(|by| {
            let path = open::folder_of(log).join(&by.file);
            path.is_file() && crate::maintenance::uuid_of(&path).as_deref() == Some(by.uuid.as_str())
        })
}

/// Reads the log beside the database; a missing one is empty.
///
/// A line of another database counts as well, unless that database lies where it wrote it: whoever lost the one that sent, and began a new one or
/// put the file of somewhere else in its place, has receipts nowhere.
pub(crate) fn read(path: &Path, own: &Writes) -> Result<Mirror, StoreError> {
    let failed = |error| refused_because(format!("{} cannot be read", path.shown()), error);
    let file = match crate::open::regular(OpenOptions::new().read(true), path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Mirror::default()),
        Err(error) => return Err(failed(error)),
    };
    if file.metadata().map_err(failed)?.len() > MOST_BYTES {
        return Err(too_much(path, &format!("has more than {}", size_in_words(MOST_BYTES))));
    }
    let mut mirror = Mirror::default();
    let mut beside = BTreeMap::new();
    let mut reader = BufReader::new(file);
    let mut bytes = Vec::new();
    loop {
        bytes.clear();
        // One byte more than a line may have, so that a longer one is told from one that ends there.
        let read = reader.by_ref().take(LONGEST_LINE + 1).read_until(b'\n', &mut bytes).map_err(failed)?;
        if read == 0 {
            break;
        }
        if bytes.len() as u64 > LONGEST_LINE {
            return Err(too_much(path, &format!("has a line of more than {}", size_in_words(LONGEST_LINE))));
        }
        mirror.lines += 1;
        // A line that a full disk or a kill cut in half is no line.
        let Ok(line) = serde_json::from_slice::<Line>(&bytes) else {
            mirror.foreign += 1;
            continue;
        };
        if is_anothers(&line, path, own, &mut beside) {
            mirror.foreign += 1;
            continue;
        }
        if line.event == ACCEPTED {
            match (line.accepted, line.family) {
                (Some(accepted), Some(family)) => {
                    mirror.accepted.extend(accepted.into_iter().map(|about| (about, family.clone())));
                }
                (Some(accepted), None) => mirror.accept(|about, _| accepted.iter().any(|one| one == about)),
                (None, _) => mirror.accept(|_, known| known.run_id == line.run_id),
            }
        } else if line.event == RESTORED {
            mirror.untold_until = mirror.untold_until.max(line.at.as_deref().and_then(Timestamp::parse));
        } else if let Ok(mut known) = serde_json::from_slice::<Forgotten>(&bytes)
            && (known.attempt > 0 || known.word.is_some())
        {
            known.is_task = line.event == TASK_BEGUN;
            mirror.learn(known, line.event == effects::START);
        }
    }
    Ok(mirror)
}

impl Mirror {
    /// A line that is newer than what is known; a person's word about an attempt stays until there is a newer one, and so does when it was sent.
    fn learn(&mut self, mut line: Forgotten, begins: bool) {
        let about = line.about();
        self.accepted.retain(|(of, _)| *of != about);
        let (done, before) = (self.done.remove(&about), self.newest.remove(&about));
        let sent_at = before.as_ref().or(done.as_ref()).and_then(|before| before.first_at.clone());
        // Another copy of the database began one of the same number: what is known of the earlier one is nothing of this one.
        let is_another = begins && sent_at.as_ref().is_some_and(|sent_at| *sent_at != line.at);
        let (done, before) = if is_another { (None, None) } else { (done, before) };
        let is_first = || (line.attempt > 0).then(|| line.at.clone());
        line.answered = line.was_answered() || before.as_ref().or(done.as_ref()).is_some_and(Forgotten::was_answered);
        line.is_task |= before.as_ref().or(done.as_ref()).is_some_and(|before| before.is_task);
        let has_start = before.as_ref().or(done.as_ref()).is_some_and(|before| before.is_from_its_start);
        line.is_from_its_start = begins || has_start;
        // A line has what it adds: that it began with what it is found by, its end what the other side calls it.
        let known = before.as_ref().or(done.as_ref());
        line.found_by = line.found_by.or_else(|| known.and_then(|known| known.found_by.clone()));
        let id = || known.and_then(|known| known.external_correlation_id.clone());
        line.external_correlation_id = line.external_correlation_id.or_else(id);
        line.first_at = sent_at.filter(|_| !begins).or_else(is_first);
        line.correction = line.correction.or(before.and_then(|before| before.correction));
        self.newest.insert(about, line);
    }

    /// A person accepts this of what is known until here.
    fn accept(&mut self, is_meant: impl Fn(&str, &Forgotten) -> bool) {
        self.done.extend(self.newest.extract_if(.., |about, known| is_meant(about, known)));
    }

    /// Whether nobody accepted anything that could have been lost.
    pub(crate) fn has_lost_nothing(&self) -> bool {
        self.done.is_empty() && self.accepted.is_empty()
    }

    /// What was accepted and the database still lacks, whosever it is. Looked up once, and then asked of by family.
    pub(crate) fn lost(self, db: &Db<'_>) -> Result<AllLost, DbError> {
        let Self { newest, done, accepted, .. } = self;
        let mut families: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for (about, family) in accepted {
            families.entry(about).or_default().insert(family);
        }
        let for_families = newest.into_iter().filter_map(|(about, known)| Some((known, families.remove(&about)?)));
        let for_all = done.into_values().map(|known| (known, BTreeSet::new()));
        let mut deleted = db.connection.prepare_cached("SELECT 1 FROM deleted_runs WHERE run_id = ?1")?;
        let mut all = Vec::new();
        for (known, families) in for_families.collect::<Vec<_>>().into_iter().chain(for_all) {
            if known.attempt > 0 && is_news(&known, db)? && !deleted.exists([&known.run_id])? {
                let sender = family_of_sender(db, &known)?;
                all.push(AcceptedLine { known, families, sender });
            }
        }
        all.sort_by(|one, other| one.known.at.cmp(&other.known.at));
        let stand_ins = if all.is_empty() { Vec::new() } else { stand_ins(db)? };
        Ok(AllLost { all, stand_ins })
    }

    /// Since when it tells everything; `None` where it always did.
    pub(crate) fn untold_until(&self) -> Option<Timestamp> {
        self.untold_until
    }

    /// Whether it has this attempt or word.
    pub(crate) fn has(&self, about: &str) -> bool {
        self.newest.contains_key(about) || self.done.contains_key(about)
    }

    /// Whether it speaks of nothing that a database could lack.
    pub(crate) fn knows_nothing(&self) -> bool {
        self.newest.is_empty()
    }

    /// What the database does not know.
    pub(crate) fn unknown_to(self, db: &Db<'_>) -> Result<Vec<Forgotten>, DbError> {
        // What a person deleted is not forgotten.
        let mut deleted = db.connection.prepare_cached("SELECT 1 FROM deleted_runs WHERE run_id = ?1")?;
        let mut forgotten = Vec::new();
        for known in self.newest.into_values() {
            if is_news(&known, db)? && !deleted.exists([&known.run_id])? {
                forgotten.push(known);
            }
        }
        forgotten.sort_by(|a, b| a.at.cmp(&b.at));
        Ok(forgotten)
    }

    /// Those of them that speak against driving `run` on: what its family sent; what a run sent of which nobody knows any more whose
    /// family it is of; where the family began later than that, what was sent by a run that is not there any more: it may have been made
    /// for the same purpose, under a name of its own; and of a session at the gateway what others of its project sent, since a doubt about
    /// that would reach it.
    pub(crate) fn unknown_to_family(
        mut self,
        db: &Db<'_>,
        run: &RunId,
        now: Timestamp,
    ) -> Result<Vec<Forgotten>, DbError> {
        let accepted = std::mem::take(&mut self.accepted);
        let mut forgotten = self.unknown_to(db)?;
        let root = family_of(db, run.as_str())?.map(|(root, _)| root);
        let began = root.as_deref().map(|root| family_of(db, root)).transpose()?.flatten().and_then(|(_, began)| began);
        let mut of_family = Vec::new();
        for attempt in forgotten.drain(..) {
            if root.as_ref().is_some_and(|root| accepted.contains(&(attempt.about(), root.clone()))) {
                continue;
            }
            let known = family_of_sender(db, &attempt)?;
            let may_be_repeated = known.is_none() && attempt.attempt > 0 && is_later(now, began, &attempt);
            let of = known.or_else(|| attempt.root.clone());
            let is_its = of.is_none() || of == root || attempt.run_id == run.as_str() || may_be_repeated;
            let is_no_word = attempt.attempt > 0 || attempt.is_unaccounted();
            if is_its || (is_no_word && are_of_one_project(db, root.as_deref(), of.as_deref())?) {
                of_family.push(attempt);
            }
        }
        Ok(of_family)
    }
}

/// What was accepted and the database lacks.
pub(crate) struct AllLost {
    /// Oldest first.
    all: Vec<AcceptedLine>,
    stand_ins: Vec<(String, bool)>,
}

struct AcceptedLine {
    known: Forgotten,
    /// The families that it was accepted for; none where it was accepted for whoever it may concern.
    families: BTreeSet<String>,
    /// The family of the run that sent it, if the database still has that one.
    sender: Option<String>,
}

impl AllLost {
    /// What of it is lost to the family of `run`, oldest first.
    pub(crate) fn to(&self, db: &Db<'_>, run: &RunId, now: Timestamp) -> Result<Vec<Lost>, DbError> {
        let Some((root, _)) = family_of(db, run.as_str())? else { return Ok(Vec::new()) };
        let began = family_of(db, &root)?.and_then(|(_, began)| began);
        let mut lost = Vec::new();
        for accepted in &self.all {
            let AcceptedLine { known, families, sender } = accepted;
            let of = sender.as_ref().or(known.root.as_ref());
            let is_its = if families.is_empty() {
                // What a run sent that is not there any more may have been sent for what a later one is to do, whoever it was accepted for.
                let is_of_nobody = sender.is_none() && is_later(now, began, known);
                is_of_nobody
                    || of == Some(&root)
                    || are_of_one_project(db, Some(root.as_str()), of.map(String::as_str))?
            } else {
                families.contains(&root)
            };
            if is_its {
                lost.push(self.lost(accepted));
            }
        }
        Ok(lost)
    }

    /// What of it is of runs that are not there any more, and no call stands in its place yet: a run that begins later may do it again.
    pub(crate) fn to_whoever_begins(&self) -> Vec<Lost> {
        let is_of_nobody = |accepted: &&AcceptedLine| accepted.families.is_empty() && accepted.sender.is_none();
        let all = self.all.iter().filter(is_of_nobody).map(|accepted| self.lost(accepted));
        all.filter(|lost| !lost.was_recalled).collect()
    }

    fn lost(&self, accepted: &AcceptedLine) -> Lost {
        let call = accepted.known.tool_call_id.as_deref();
        let is_made = |in_same_words: bool| {
            self.stand_ins.iter().any(|(of, same)| Some(of.as_str()) == call && *same == in_same_words)
        };
        Lost { known: accepted.known.clone(), was_suspected: is_made(false), was_recalled: is_made(true) }
    }
}

/// Whether a family began behind what the log knows. What the clock has not come to yet was sent before it was set back.
fn is_later(now: Timestamp, began: Option<Timestamp>, known: &Forgotten) -> bool {
    let at = Timestamp::parse(&known.at);
    began.is_some_and(|began| at.is_none_or(|at| at <= began || at > now))
}

/// Writes what the database sent and the log does not know: lines that were cut, or went with a file that somebody deleted.
pub(crate) fn catch_up(path: &Path, own: &Writes, db: &Db<'_>) -> Result<(), DbError> {
    let log = read(path, own).map_err(DbError::Store)?;
    let sql = "SELECT c.tool_call_id FROM tool_calls c WHERE c.side_effect_class != 'read_only' AND c.attempt > 0 ORDER BY c.rowid";
    let mut statement = db.connection.prepare(sql)?;
    let calls = statement.query_map([], |row| row.get(0))?.collect::<Result<Vec<String>, _>>()?;
    let mut text = String::new();
    for id in calls {
        let Ok(id) = CallId::parse(&id) else { continue };
        let call = db.call(&id)?;
        let logged = log.newest.get(&format!("{id}/{}", call.attempt));
        let word = call.correction.as_ref().map(|correction| correction.at);
        let has_ended = !matches!(call.status, CallStatus::Running | CallStatus::Unknown);
        // How an attempt ended says nothing about one of its number that another copy of the database began.
        let lacks_end = match logged.filter(|logged| has_ended && !logged.has_ended()) {
            Some(logged) => matches!(logged.known_by(&started(db, &id)?), KnownBy::Attempt(_)),
            None => false,
        };
        let lacks_word = logged.is_none_or(|logged| logged.correction.as_ref().map(|word| word.at) < word);
        // What a person said of another attempt, as the log itself told it, is no send that it lacks.
        let is_word = || -> Result<bool, DbError> {
            let newest = started(db, &id)?.into_iter().max_by_key(|attempt| attempt.attempt);
            Ok(newest.as_ref().is_some_and(rules::is_word_of_another))
        };
        if logged.is_none() && !has_ended && word.is_none() && is_word()? {
            continue;
        }
        if call.policy.is_kept_outside() && (lacks_end || lacks_word) {
            let names = Trace::of(&call, &db.attempts_of(&call.call_id)?).into_iter().flat_map(|trace| trace.names);
            let (tree, names) = (db.top_of_tree(&call.run_id)?, Some(names.collect()));
            let line = effects::line(&call, &tree, "caught_up", names, 0, call.updated_at)?;
            text.push_str(&line.text(own));
        }
    }
    for word in words(db)? {
        if !log.newest.contains_key(&word.about()) {
            let mut line = json!(word);
            line["event"] = json!("word");
            line["db_file"] = json!(own.file);
            line["db_uuid"] = json!(own.uuid);
            text.push_str(&format!("{line}\n"));
        }
    }
    let failed = |error| DbError::Store(refused_because(format!("{} cannot be written", path.shown()), error));
    let mut file = effects::open(path).map_err(failed)?;
    effects::append(&mut file, &text).and_then(|()| file.sync_all()).map_err(failed)
}

/// The calls that the database does not have and in whose place others stand; and whether those are in the same words.
fn stand_ins(db: &Db<'_>) -> Result<Vec<(String, bool)>, DbError> {
    let sql = "SELECT DISTINCT tool_call_id FROM tool_attempts WHERE detail LIKE ?1 || '%'";
    let mut statement = db.connection.prepare_cached(sql)?;
    let calls =
        statement.query_map([rules::RECALLED], |row| row.get::<_, String>(0))?.collect::<Result<Vec<_>, _>>()?;
    let mut found = Vec::new();
    for call in calls.iter().filter_map(|id| CallId::parse(id).ok()) {
        let attempts: Vec<AttemptRecord> = db.attempts_of(&call)?;
        found.extend(
            attempts.iter().filter_map(rules::made_by).map(|(made_by, _)| (made_by.call, made_by.in_same_words)),
        );
    }
    Ok(found)
}

/// What people said, as the database has it.
fn words(db: &Db<'_>) -> Result<Vec<Forgotten>, DbError> {
    let sql = "SELECT a.answered_at, r.root_run_id, r.run_id, q.tool_call_id, a.choice, q.question_id \
               FROM answers a JOIN questions q ON q.question_id = a.question_id JOIN runs r ON r.run_id = q.run_id \
               UNION ALL \
               SELECT cancel_requested_at, root_run_id, run_id, NULL, 'cancel', NULL FROM runs WHERE cancel_requested_at IS NOT NULL \
               UNION ALL SELECT deleted_at, root_run_id, run_id, NULL, ?1, NULL FROM deleted_runs ORDER BY 1";
    let mut statement = db.connection.prepare(sql)?;
    let said = statement.query_map([DELETED], |row| {
        Ok(Forgotten {
            at: row.get(0)?,
            root: row.get(1)?,
            run_id: row.get(2)?,
            tool_call_id: row.get(3)?,
            word: row.get(4)?,
            question_id: row.get(5)?,
            ..Forgotten::default()
        })
    })?;
    Ok(said.collect::<Result<_, _>>()?)
}

/// The first run of a run's lineage, and when the run began; `None` if the database does not have it.
fn family_of(db: &Db<'_>, run: &str) -> Result<Option<(String, Option<Timestamp>)>, DbError> {
    let mut known = db.connection.prepare_cached("SELECT root_run_id, created_at FROM runs WHERE run_id = ?1")?;
    let row = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, Timestamp::parse(&row.get::<_, String>(1)?)));
    Ok(known.query_row([run], row).optional()?)
}

/// The same of the run that sent, if the database still has that one.
fn family_of_sender(db: &Db<'_>, attempt: &Forgotten) -> Result<Option<String>, DbError> {
    let at = Timestamp::parse(&attempt.at);
    // A run that was begun behind it has the name of the one that sent, and is another one.
    let is_itself = |begun: Option<Timestamp>| at.is_none() || begun.is_none() || begun <= at;
    Ok(family_of(db, &attempt.run_id)?.filter(|(_, begun)| is_itself(*begun)).map(|(root, _)| root))
}

/// Whether these are two sessions of one project at the gateway: what is in doubt in one of them is in doubt in the other.
fn are_of_one_project(db: &Db<'_>, one: Option<&str>, other: Option<&str>) -> Result<bool, DbError> {
    let (Some(one), Some(other)) = (one, other) else { return Ok(false) };
    let sql = "SELECT 1 FROM gateway_sessions a JOIN gateway_sessions b ON b.project = a.project \
               WHERE a.run_id = ?1 AND b.run_id = ?2 AND a.run_id <> b.run_id";
    Ok(db.connection.prepare_cached(sql)?.exists([one, other])?)
}

/// What is accepted, by the run that sent it and by the family that it is accepted for, if for that one alone.
pub(crate) type Accepted = BTreeMap<(String, Option<String>), Vec<String>>;

/// What a person accepts who looked at what speaks against `run`. What its own family sent is done with. What others sent, of whom nobody knows any
/// more, still speaks against every run but this one: one that reads only cannot repeat it, and the same job can.
pub(crate) fn accepted_for(db: &Db<'_>, run: &RunId, known: Vec<Forgotten>) -> Result<Accepted, DbError> {
    let root = family_of(db, run.as_str())?.map(|(root, _)| root);
    let mut accepted = Accepted::new();
    for attempt in known {
        let of = family_of_sender(db, &attempt)?.or_else(|| attempt.root.clone());
        let is_its_own = root.is_none() || of == root;
        let family = root.clone().filter(|_| !is_its_own);
        accepted.entry((attempt.run_id.clone(), family)).or_default().push(attempt.about());
    }
    Ok(accepted)
}

/// Notes that a person accepted this.
pub(crate) fn accept(
    path: &Path,
    own: &Writes,
    accepted: &Accepted,
    by: Option<&str>,
    at: Timestamp,
) -> Result<(), StoreError> {
    let failed = |error| refused_because(format!("{} cannot be written", path.shown()), error);
    let mut text = String::new();
    for ((run, family), about) in accepted {
        let mut line = json!({
            "event": ACCEPTED, "db_file": own.file, "db_uuid": own.uuid, "run_id": run, "accepted": about, "at": at,
        });
        if let Some(family) = family {
            line["family"] = json!(family);
        }
        if let Some(by) = by {
            line["by"] = json!(by);
        }
        text.push_str(&format!("{line}\n"));
    }
    let mut file = effects::open(path).map_err(failed)?;
    effects::append(&mut file, &text).and_then(|()| file.sync_all()).map_err(failed)
}

#[cfg(test)]
mod tests {
    use ua_store::conformance::samples::at;

    use super::*;

    /// Over all orders of when it was sent, when a family began and what the clock says: it may have been sent for what a later family is to do where
    /// that began behind it, or where the clock was set back since.
    #[test]
    fn whoever_begins_behind_it_or_behind_a_clock_that_was_set_back_is_later() {
        for sent in [10, 20, 30] {
            for began in [None, Some(10), Some(20), Some(30)] {
                for now in [10, 20, 30] {
                    let known = Forgotten { at: at(sent).to_string(), ..Forgotten::default() };
                    let expected = began.is_some_and(|began| began >= sent || now < sent);
                    assert_eq!(is_later(at(now), began.map(at), &known), expected, "{sent} {began:?} {now}");
                }
            }
        }
        let unread = Forgotten::default();
        assert!(is_later(at(1), Some(at(1)), &unread) && !is_later(at(1), None, &unread));
    }

    /// Whatever somebody put in the place of the log, a sparse file of any length among it, costs no more than the log itself may.
    #[test]
    fn a_log_without_end_is_refused_before_it_fills_the_memory() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("effects.log");
        let read_with = |bytes: u64| {
            std::fs::File::create(&path).unwrap().set_len(bytes).unwrap();
            read(&path, &Writes::of("own".to_owned(), Path::new("own.db")))
        };
        for (bytes, why) in [(MOST_BYTES + 1, "has more than 4 GiB"), (LONGEST_LINE + 1, "a line of more than 64 MiB")]
        {
            let refused = ua_core::chain(&read_with(bytes).unwrap_err());
            assert!(refused.contains(why) && refused.contains("put it elsewhere"), "{bytes}: {refused}");
        }
        // A line that is as long as one may be is read; that it says nothing is another thing.
        let mirror = read_with(LONGEST_LINE).unwrap();
        assert_eq!((mirror.lines, mirror.foreign), (1, 1));
    }

    /// What is known of an attempt is nothing of another one of the same number, which another copy of the database began.
    #[test]
    fn an_attempt_inherits_nothing_from_one_of_its_number() {
        for is_same in [true, false] {
            let line = |seconds: i64, status: &str| Forgotten {
                at: at(seconds).to_string(),
                tool_call_id: Some("call_1".to_owned()),
                attempt: 1,
                status: status.to_owned(),
                ..Forgotten::default()
            };
            let mut mirror = Mirror::default();
            mirror.learn(line(10, "running"), true);
            mirror.learn(line(11, "succeeded"), false);
            mirror.learn(line(if is_same { 10 } else { 20 }, "running"), true);
            let known = &mirror.newest["call_1/1"];
            assert_eq!((known.answered, known.is_from_its_start), (is_same, true));
            assert_eq!(known.first_at, Some(at(if is_same { 10 } else { 20 }).to_string()));
        }
    }

    /// By what an attempt is found says the line of its start, and what the other side calls it the line of its end: neither is lost by what is noted
    /// of it later, and neither is of another attempt of the same number.
    #[test]
    fn an_attempt_keeps_its_names() {
        for is_same in [true, false] {
            let line = |seconds: i64, found_by: Option<&str>, id: Option<&str>| Forgotten {
                at: at(seconds).to_string(),
                tool_call_id: Some("call_1".to_owned()),
                attempt: 1,
                status: "succeeded".to_owned(),
                found_by: found_by.map(|name| vec![name.to_owned()]),
                external_correlation_id: id.map(str::to_owned),
                ..Forgotten::default()
            };
            let mut mirror = Mirror::default();
            mirror.learn(line(10, Some("first"), None), true);
            mirror.learn(line(11, None, Some("id")), false);
            mirror.learn(line(12, None, None), false);
            if !is_same {
                mirror.learn(line(20, Some("second"), None), true);
            }
            let known = &mirror.newest["call_1/1"];
            let expected = if is_same { ("first", Some("id")) } else { ("second", None) };
            assert_eq!(known.found_by.as_deref(), Some(&[expected.0.to_owned()][..]));
            assert_eq!(known.external_correlation_id.as_deref(), expected.1);
        }
    }
}
