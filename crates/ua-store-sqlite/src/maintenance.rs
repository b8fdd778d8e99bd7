//! Looking after the file: examine it, copy it while it is in use, put a copy back.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use rusqlite::{Connection, OpenFlags};
use serde::Serialize;
use ua_core::{CallId, CallStatus, CorrectedTo, RunId, ShowPath as _, Timestamp};
use ua_store::{Forgotten, Lost, StoreError, rules};

use crate::beside::{foreign_beside, mark_database};
use crate::cut_off::{CutOff, FILES, beside, cut_off_restore, fresh, unfinished};
use crate::db::Db;
use crate::departure::Standing;
use crate::effects::Writes;
use crate::error::{DbError, refused, refused_because, sql_error};
use crate::mirror;
use crate::row_findings::Part;
use crate::scope::Scope;
use crate::source::Source;
use crate::store::read_uuid;
use crate::unaccounted::{self, Copied, Restored};
use crate::{SqliteStore, event_chain, filesystem, open, pointers, row_findings, schema};

/// How the file is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Health {
    /// Where it is.
    pub path: PathBuf,
    /// Distinguishes it from every other database.
    pub db_uuid: String,
    /// Its schema.
    pub schema: i64,
    /// The SQLite library that reads it.
    pub sqlite_version: String,
    /// How it is journaled; anything but `wal` is a finding.
    pub journal_mode: String,
    /// Its size in bytes, without its log.
    pub bytes: u64,
    /// What is wrong with it; empty when it is whole.
    pub findings: Vec<String>,
    /// Lines of `effects.log`.
    pub mirror_lines: usize,
    /// Cut ones, and those of another database in the same folder.
    pub mirror_foreign_lines: usize,
    /// What `effects.log` knows and the database does not: it went back in time.
    pub forgotten: Vec<Forgotten>,
}

impl SqliteStore {
    /// Examines every page, every reference, every row and `effects.log`. Reads the whole file, in parts beside each other.
    ///
    /// # Errors
    ///
    /// `Unavailable` when it cannot be read at all; what is wrong with it otherwise is in the findings.
    pub async fn examine(&self) -> Result<Health, StoreError> {
        self.examine_rows(Scope::All).await
    }

    /// Examines what a job may need: as [`Self::examine`], but the rows of a run one by one only where a run of its tree is not finished, or a call of
    /// the tree may have happened and nobody knows.
    ///
    /// # Errors
    ///
    /// As those of [`Self::examine`].
    pub async fn examine_unfinished(&self) -> Result<Health, StoreError> {
        self.examine_rows(self.look(|db| Ok(Scope::unfinished(db.connection).unwrap_or(Scope::All))).await?).await
    }

    async fn examine_rows(&self, scope: Scope) -> Result<Health, StoreError> {
        let of_pages = scope.clone();
        let pages = self.read(move |db| {
            let mut findings = lines(db.connection, "PRAGMA integrity_check(20)")?;
            findings.retain(|finding| finding != "ok");
            findings.extend(schema::findings(db.connection)?);
            findings.extend(schema::history_findings(db.connection)?);
            findings.extend(row_findings::refused(db.connection, &of_pages)?);
            Ok(findings)
        });
        let of_first = scope.clone();
        let first = self.read(move |db| row_findings::unread(db.connection, &of_first, Part::First));
        let second = self.read(move |db| {
            let mut findings = row_findings::unread(db.connection, &scope, Part::Second)?;
            findings.extend(pointers::findings(db.connection, &scope)?);
            Ok(findings)
        });
        let source = self.source().clone();
        let rows = self.read(move |db| {
            let connection = db.connection;
            let mut findings = Vec::new();
            for reference in lines(connection, "SELECT \"table\" || coalesce(' row ' || rowid, '') || ' refers to a missing row of ' || parent FROM pragma_foreign_key_check")? {
                findings.push(reference);
            }
            findings.extend(event_chain::findings(connection)?);
            findings.extend(answer_findings(connection)?);
            let journal_mode = source.journal_mode(connection)?;
            if !journal_mode.eq_ignore_ascii_case("wal") {
                findings.push(format!("its journal mode is {journal_mode}, not wal"));
            }
            let schema = connection.query_row("SELECT max(version) FROM refinery_schema_history", [], |row| row.get(0))?;
            Ok((findings, journal_mode, schema))
        });
        let effects = async {
            let log = self.mirror().await?;
            let counts = (log.lines, log.foreign);
            // What stands in the log was committed before: whoever compares them reads the database behind it.
            let forgotten = self.read(move |db| log.unknown_to(db)).await?;
            Ok((counts, forgotten))
        };
        let (
            mut findings,
            first,
            second,
            (more, journal_mode, schema),
            ((mirror_lines, mirror_foreign_lines), forgotten),
        ) = tokio::try_join!(pages, first, second, rows, effects)?;
        findings.extend(more.into_iter().chain(first).chain(second));
        Ok(Health {
            path: self.path().to_path_buf(),
            db_uuid: self.db_uuid().to_owned(),
            schema,
            sqlite_version: rusqlite::version().to_owned(),
            journal_mode,
            bytes: fs::metadata(self.path()).map_or(0, |file| file.len()),
            findings,
            mirror_lines,
            mirror_foreign_lines,
            forgotten,
        })
    }

    /// What was accepted as forgotten, of all families, and is in no row: whoever is about to do the like is asked as long as `effects.log` lies beside
    /// the database. Oldest first.
    ///
    /// # Errors
    ///
    /// `Unavailable` when the database or the log cannot be read.
    pub async fn lost_to_families(&self, now: Timestamp) -> Result<Vec<Forgotten>, StoreError> {
        let log = self.mirror().await?;
        if log.has_lost_nothing() {
            return Ok(Vec::new());
        }
        self.read(move |db| {
            // The log is compared with the database once, however many families there are.
            let all = log.lost(db)?;
            let mut found = BTreeMap::new();
            for lost in all.to_whoever_begins().into_iter().filter(puts_in_doubt) {
                found.insert(lost.known.about(), lost.known);
            }
            for root in lines(db.connection, "SELECT DISTINCT root_run_id FROM runs")? {
                let Ok(root) = RunId::parse(&root) else { continue };
                for lost in all.to(db, &root, now)?.into_iter().filter(puts_in_doubt) {
                    if !is_known(db, &lost.known)? {
                        found.insert(lost.known.about(), lost.known);
                    }
                }
            }
            let mut found: Vec<Forgotten> = found.into_values().collect();
            found.sort_by(|one, other| one.at.cmp(&other.at));
            Ok(found)
        })
        .await
    }

    /// The log beside the database.
    pub(crate) fn effects_log(&self) -> PathBuf {
        open::folder_of(self.path()).join("effects.log")
    }
}

/// Whether a call that is like what was lost is asked about.
fn puts_in_doubt(lost: &Lost) -> bool {
    let word = lost.known.correction.as_ref();
    let is_refuted = word.is_some_and(|word| word.outcome == CorrectedTo::NotHappened);
    let is_none = lost.known.did_nothing() || lost.known.status == CallStatus::Cancelled.as_str();
    !lost.was_recalled && !is_refuted && !is_none
}

/// Whether the row of the very call speaks against doing it again.
fn is_known(db: &Db<'_>, known: &Forgotten) -> Result<bool, DbError> {
    let Some(id) = known.tool_call_id.as_deref().and_then(|id| CallId::parse(id).ok()) else { return Ok(true) };
    let mut rows = db.connection.prepare_cached("SELECT 1 FROM tool_calls WHERE tool_call_id = ?1")?;
    if !rows.exists([id.as_str()])? {
        return Ok(false);
    }
    let call = db.call(&id)?;
    Ok(rules::may_have_happened(&call) || call.deduplicated_from.is_some())
}

/// Answers that this program did not write as they are.
fn answer_findings(connection: &Connection) -> Result<Vec<String>, DbError> {
    let sql = "SELECT a.question_id, a.choice, a.proof, a.note, a.answered_by, a.answered_at, a.link, q.run_id \
               FROM answers a JOIN questions q ON q.question_id = a.question_id ORDER BY a.rowid";
    let mut statement = connection.prepare(sql)?;
    let mut rows = statement.query([])?;
    let mut findings = Vec::new();
    while let Some(row) = rows.next()? {
        let text = |column: usize| row.get::<_, String>(column);
        let optional = |column: usize| row.get::<_, Option<String>>(column);
        let (question, choice, by, at, run) = (text(0)?, text(1)?, text(4)?, text(5)?, text(7)?);
        let (proof, note, link) = (optional(2)?, optional(3)?, optional(6)?);
        let columns = (&*question, &*choice, proof.as_deref(), note.as_deref(), &*by, &*at);
        findings.extend(ua_store::answer_finding(columns, &run, link.as_deref()));
    }
    Ok(findings)
}

fn lines(connection: &Connection, sql: &str) -> Result<Vec<String>, DbError> {
    let mut statement = connection.prepare(sql)?;
    let rows = statement.query_map([], |row| row.get(0))?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// Copies the database at `path` to `to` as of one moment, while other processes may go on writing. The copy is whole: it
/// needs no log beside it. Returns its size in bytes.
///
/// # Errors
///
/// `Unavailable` when `to` exists, when the source is none of ours or damaged, or when the copy cannot be written; nothing is
/// left at `to` then.
pub fn backup(path: &Path, to: &Path) -> Result<u64, StoreError> {
    drop(open::inspector(path)?);
    let failed = |error| refused_because(format!("{} cannot be written", to.shown()), error);
    // Made first, and empty: SQLite fills an empty file, and its permissions are ours.
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(to).map_err(failed)?;
    let copied = copy(path, to).and_then(|()| {
        let file = File::open(to).map_err(failed)?;
        file.sync_all().and_then(|()| sync_folder(to)).map_err(failed)?;
        whole(to)?;
        file.metadata().map(|file| file.len()).map_err(failed)
    });
    if copied.is_err() {
        fs::remove_file(to).ok();
    }
    copied
}

fn copy(path: &Path, to: &Path) -> Result<(), StoreError> {
    let Some(target) = to.to_str() else { return Err(refused(format!("{} is not UTF-8 text", to.shown()))) };
    let source = Source::of(path);
    let connection = source.connect()?;
    connection.busy_timeout(std::time::Duration::from_secs(5)).map_err(sql_error)?;
    connection.execute("VACUUM INTO ?1", [target]).map_err(sql_error)?;
    source.check()
}

/// Refuses a copy that is not one of ours, or not whole. It has no log yet and is opened as it is.
fn whole(copy: &Path) -> Result<(), StoreError> {
    let connection = Source::of(copy).connect()?;
    open::recognise_ours(&connection, copy)?;
    let findings = lines(&connection, "PRAGMA integrity_check(1)").map_err(DbError::into_store)?;
    if findings == ["ok"] {
        return Ok(());
    }
    Err(refused(format!("{} is damaged ({})", copy.shown(), findings.join("; "))))
}

/// Puts the copy `from`, with what stands in a log beside it, in the place of the database at `path`. What was there is kept beside it, log and all, and its new
/// name is returned; `None` when nothing was there. For whoever knows that nobody drives a run; see [`Restore`].
///
/// # Errors
///
/// `Unavailable` when `from` is none of ours, damaged or of a newer schema, or another process keeps writing; the database is left as it
/// was then.
pub fn restore(from: &Path, path: &Path, at: Timestamp) -> Result<Option<PathBuf>, StoreError> {
    Ok(Restore::begin(from, path)?.finish(at)?.kept)
}

/// A copy that is about to take the place of the database.
///
/// While this value lives no process opens the database for writing, and none takes a run: the lock of migrations and the database's write
/// lock are held. So whoever holds it looks whether somebody drives a run, and nobody begins to between that look and
/// [`finish`](Self::finish). A process that waits meanwhile with the old database open finds another one in its place when it takes a run.
#[derive(Debug)]
pub struct Restore {
    from: PathBuf,
    path: PathBuf,
    /// What an earlier one left that was killed between its renames.
    cut_off: Option<CutOff>,
    copied: Copied,
    _migrations: File,
    /// `None` when there is no database, or none that can be read: nobody can use it then.
    writing: Option<Connection>,
}

impl Restore {
    /// Looks whether `from` is a whole copy, and keeps others from the database at `path`.
    ///
    /// # Errors
    ///
    /// `Unavailable` when `from` is none of ours, damaged or of a newer schema, or another process keeps writing.
    pub fn begin(from: &Path, path: &Path) -> Result<Self, StoreError> {
        if is_same_file(from, &fresh(path)) || is_same_file(from, &unfinished(path)) {
            return Err(refused(format!(
                "{} is what a restore that was killed left, and the next one writes there; name the copy that it was made of",
                from.shown()
            )));
        }
        // What is left at its place first goes to the database it belongs to, which may be the very copy that is named.
        let mut locked = None;
        let mut cut_off = None;
        if cut_off_restore(path).is_some() {
            locked = Some(open::migrate_lock(path)?);
            cut_off = cut_off_restore(path);
            if let Some(left) = &cut_off {
                let failed = |error| {
                    refused_because(format!("what belongs to {} cannot be put beside it", left.kept.shown()), error)
                };
                left.tidy(path).map_err(failed)?;
            }
        }
        refuse_foreign_log(from)?;
        whole(from)?;
        let copied = Copied::open(from)?;
        let migrations = locked.map_or_else(|| open::migrate_lock(path), Ok)?;
        if let (Some(theirs), Some(ours)) = (uuid_of(from), uuid_of(path))
            && theirs != ours
        {
            return Err(refused(format!(
                "{} is a copy of another database ({theirs}) than the one at {} ({ours}), and effects.log beside it knows nothing of what \
                 that one sent; move what is there away first if this is what you want",
                from.shown(),
                path.shown()
            )));
        }
        if let Ok(there) = open::looked_at(&crate::source::Source::of(path)) {
            Standing::refuse_away(&there, path)?;
        }
        let moved = moved_copies(path)?;
        if let Some((there, theirs)) =
            moved.into_iter().find(|(_, theirs)| uuid_of(from).is_some_and(|ours| ours == *theirs))
        {
            return Err(refused(format!(
                "{} is a copy of database {theirs}, which was moved to a server ({} is what is left of it here); what was done there since is not \
                 in the copy, and its runs would be driven twice; move that file away first if the server is not used any more",
                from.shown(),
                there.shown()
            )));
        }
        fold_in_log(path);
        let writing = if path.exists() { keep_from_writing(path)? } else { None };
        Ok(Self {
            from: from.to_path_buf(),
            path: path.to_path_buf(),
            cut_off,
            copied,
            _migrations: migrations,
            writing,
        })
    }

    /// Puts the copy in place. What was there is kept beside it. Runs of the copy of which nothing tells what they did behind it are held, and
    /// schedules of which nothing tells whether they are meant still are paused.
    ///
    /// # Errors
    ///
    /// `Unavailable` when a file cannot be written or renamed.
    pub fn finish(self, at: Timestamp) -> Result<Restored, StoreError> {
        let log = open::folder_of(&self.path).join("effects.log");
        // What the log lacks it could not tell of any more once this database is gone. One that cannot be read has nothing to add.
        let there = open::inspector(&self.path).ok();
        if let (Some(connection), Some(db_uuid)) = (&there, uuid_of(&self.path)) {
            mirror::catch_up(&log, &Writes::of(db_uuid, &self.path), &Db::new(connection))
                .map_err(DbError::into_store)?;
        }
        // A restore that was killed had the log caught up before it took the database out of its place.
        let taken_away = self.cut_off.as_ref().and_then(|left| open::inspector(&left.kept).ok());
        let before = there.as_ref().or(taken_away.as_ref());
        let own = Writes::of(self.copied.uuid.clone(), &self.path);
        let is_unaccounted = self.copied.note(&log, &own, before, at)?;
        let (paused, lost_schedules) = self.copied.schedules(before)?;
        let lost_runs = self.copied.runs_it_lacks(before)?;
        let knows_until = self.copied.knows_until();
        // None of them is open when files are renamed.
        drop((there, taken_away, self.copied));
        let kept = put_in_place(&self.from, &self.path, self.cut_off.as_ref(), &paused, at);
        if let Some(connection) = self.writing {
            // SQLite leaves alone what stands under the old name by now.
            connection.execute_batch("ROLLBACK").ok();
        }
        let kept = kept?.or(self.cut_off.map(|left| left.kept));
        Ok(Restored { kept, knows_until, is_unaccounted, paused, lost_schedules, lost_runs })
    }
}

/// The identity of the database at `path`; `None` when it cannot be read.
pub fn uuid_of(path: &Path) -> Option<String> {
    read_uuid(&Source::of(path).connect().ok()?).ok()
}

/// Refuses a copy with a log beside it that cannot be its own: SQLite would read it all the same. What `ua db backup` wrote never has one.
fn refuse_foreign_log(from: &Path) -> Result<(), StoreError> {
    /// Where the header of a database says by which journal it is written, and what that is for a log.
    const WRITTEN_BY_LOG: (usize, [u8; 2]) = (18, [2, 2]);
    let log = open::sibling_file(from, "-wal");
    let mut head = [0; 20];
    let is_read = open::regular(OpenOptions::new().read(true), from)
        .and_then(|mut file| io::Read::read_exact(&mut file, &mut head));
    let has_own = is_read.is_ok() && head.get(WRITTEN_BY_LOG.0..) == Some(&WRITTEN_BY_LOG.1[..]);
    let has_log = fs::metadata(&log).is_ok_and(|file| file.len() > 0);
    if foreign_beside(from).is_some() || (has_log && !has_own) {
        return Err(refused(format!("{} does not belong to {}; move it away", log.shown(), from.shown())));
    }
    Ok(())
}

/// Brings what stands in the log of a whole database into its file, so that the file that is kept has all of it for whoever takes it alone. As well as
/// that can be done: the log is kept beside it.
fn fold_in_log(path: &Path) {
    // What is not its own stays apart.
    if !path.exists() || foreign_beside(path).is_some() || whole(path).is_err() {
        return;
    }
    let Ok(connection) = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_WRITE) else { return };
    connection.busy_timeout(std::time::Duration::from_secs(5)).ok();
    connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).ok();
}

/// Takes the database's write lock; `None` when the file is not one that anybody could write to.
pub(crate) fn keep_from_writing(path: &Path) -> Result<Option<Connection>, StoreError> {
    open::refuse_special(path)?;
    let Ok(connection) = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_WRITE) else { return Ok(None) };
    if connection.busy_timeout(std::time::Duration::from_secs(5)).is_err() {
        return Ok(None);
    }
    match connection.execute_batch("BEGIN IMMEDIATE") {
        Ok(()) => Ok(Some(connection)),
        Err(error) if error.sqlite_error_code() == Some(rusqlite::ErrorCode::DatabaseBusy) => {
            Err(refused(format!("another process keeps writing to {}; nothing was changed", path.shown())))
        }
        // Damaged, or no database at all: that is what a copy is put back for.
        Err(_) => Ok(None),
    }
}

/// What could not be put in place, in the words of an error.
fn not_put(what: &Path) -> impl FnOnce(io::Error) -> StoreError + use<> {
    let why = format!("{} cannot be put in place", what.shown());
    move |error| refused_because(why, error)
}

/// Makes a whole copy of the database `from` at `next`, which is to be the one at `path`, with these schedules paused. `begun`: the time that its file is given, if not that of now.
fn make_copy(
    from: &Path,
    next: &Path,
    path: &Path,
    paused: &[String],
    begun: Option<SystemTime>,
) -> Result<(), StoreError> {
    let target = OpenOptions::new().write(true).create_new(true).mode(0o600).open(next).map_err(not_put(next))?;
    // By SQLite, as it was looked at: what stands in the log beside `from` is part of it.
    copy(from, next)?;
    target.sync_all().map_err(not_put(next))?;
    whole(next)?;
    // What SQLite copied has no log of its own; every other command expects one.
    let connection = Connection::open_with_flags(next, OpenFlags::SQLITE_OPEN_READ_WRITE).map_err(sql_error)?;
    unaccounted::pause(&connection, paused).map_err(sql_error)?;
    connection.pragma_update(None, "journal_mode", "WAL").map_err(sql_error)?;
    let identity = read_uuid(&connection)?;
    connection.close().map_err(|(_, error)| sql_error(error))?;
    if filesystem::keeps_attributes(open::folder_of(path)) {
        mark_database(next, &identity);
    }
    if let Some(begun) = begun {
        target.set_modified(begun).map_err(not_put(next))?;
    }
    target.sync_all().map_err(not_put(next))
}

/// Removes a copy that is not complete, and what SQLite had beside it.
fn remove_copy(next: &Path) -> Result<(), StoreError> {
    FILES.iter().try_for_each(|suffix| {
        let left = beside(next, suffix);
        fs::remove_file(&left).or_else(missing_is_fine).map_err(not_put(&left))
    })
}

fn put_in_place(
    from: &Path,
    path: &Path,
    cut_off: Option<&CutOff>,
    paused: &[String],
    at: Timestamp,
) -> Result<Option<PathBuf>, StoreError> {
    // The copy is complete beside the old file before anything old is touched. So is it before the copy of an earlier restore goes that was killed:
    // by that one's time it is told what was kept, which is not older; so the copy that takes its place takes its time as well.
    let (fresh, next) = (fresh(path), unfinished(path));
    let begun = cut_off.map(|left| fs::symlink_metadata(&left.copy).and_then(|copy| copy.modified())).transpose();
    let begun = begun.map_err(not_put(&fresh))?;
    remove_copy(&next)?;
    if let Err(error) = make_copy(from, &next, path, paused, begun) {
        // It takes up room, and says nothing. The next restore removes it as well.
        remove_copy(&next).ok();
        return Err(error);
    }
    // What stands beside the earlier copy is no part of this one.
    for suffix in &FILES[1..] {
        let left = beside(&fresh, suffix);
        fs::remove_file(&left).or_else(missing_is_fine).map_err(not_put(&left))?;
    }
    fs::rename(&next, &fresh).map_err(not_put(&fresh))?;
    let beside = |suffix: &str| beside(path, suffix);

    // The database first: killed between the renames, it is missing, which every command refuses; a database that lost
    // its log would only look older. Neither the log nor a journal may stay: they would be played into the copy.
    let stamp = format!(".before-{}", at.compact());
    // What an earlier restore kept stays, also one of the same second.
    let names = std::iter::once(stamp.clone()).chain((2..).map(|number| format!("{stamp}-{number}")));
    let aside = names.map(|name| beside(&name)).find(|name| !name.exists()).unwrap_or_else(|| beside(&stamp));
    let mut kept = None;
    for suffix in FILES {
        let name = crate::cut_off::beside(&aside, suffix);
        match fs::rename(beside(suffix), &name) {
            Ok(()) => kept = kept.or(Some(name)),
            Err(error) => missing_is_fine(error).map_err(not_put(path))?,
        }
    }
    fs::rename(&fresh, path).and_then(|()| sync_folder(path)).map_err(not_put(path))?;
    Ok(kept)
}

/// Whether two names are those of one file.
fn is_same_file(one: &Path, other: &Path) -> bool {
    matches!((fs::canonicalize(one), fs::canonicalize(other)), (Ok(one), Ok(other)) if one == other)
}

/// What is left of databases that were moved to a server from `path`, and whose each was.
fn moved_copies(path: &Path) -> Result<Vec<(PathBuf, String)>, StoreError> {
    let folder = open::folder_of(path);
    let failed = |error| refused_because(format!("{} cannot be read", folder.shown()), error);
    let mut beginning = path.file_name().unwrap_or_default().to_os_string();
    beginning.push(".moved-");
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let is_one = entry.file_name().as_encoded_bytes().starts_with(beginning.as_encoded_bytes());
        if let Some(id) = Some(entry.path()).filter(|_| is_one).as_deref().and_then(uuid_of) {
            found.push((entry.path(), id));
        }
    }
    Ok(found)
}

fn missing_is_fine(error: io::Error) -> io::Result<()> {
    if error.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(error) }
}

fn sync_folder(file: &Path) -> io::Result<()> {
    File::open(open::folder_of(file))?.sync_all()
}
