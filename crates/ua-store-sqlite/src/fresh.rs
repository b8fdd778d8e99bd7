//! A database in which nothing is yet, put in place as one file.
//!
//! To carry out every statement of `schema.sql` took a third of a first start, most of it syncs: of a journal, of a log, of the file that the log
//! is carried over to. What they come to is always the same but for the name of the database and the moment, so it is part of this program
//! (`schema.image`), written beside where it belongs, synced, and renamed. A process that is killed, or a machine that stops, leaves no database
//! or a whole one. Whoever changes the schema has the image written anew, after the script:
//!
//! ```sh
//! cargo test -p ua-store-sqlite --lib -- --ignored the_image_is_written_anew
//! ```
//!
//! Invariant: it is what the script makes, byte for byte, but for what SQLite writes about itself. Proved by: this file's tests.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use rusqlite::Connection;
use ua_store::StoreError;

use crate::error::{refused_because, sql_error};
use crate::open::folder_of;

/// The file, without the zeros between what is in it: again and again a place in the file, a length, and as many bytes, the numbers in four
/// bytes each, smallest first; first of all the length of the file.
const IMAGE: &[u8] = include_bytes!("schema.image");

/// What stands in the image in the place of the database's name.
const NAME: &str = "00000000000000000000000000000000";
/// What stands in the image in the place of the moment at which it is made.
const MOMENT: &str = "2000-01-01T00:00:00.000Z";

/// Puts a new database at `path`, where none is. For whoever holds the lock of migrations.
pub(crate) fn put(path: &Path) -> Result<(), StoreError> {
    let sql = "SELECT lower(hex(randomblob(16))), strftime('%Y-%m-%dT%H:%M:%fZ', 'now')";
    let own =
        Connection::open_in_memory().and_then(|memory| memory.query_row(sql, [], |row| Ok((row.get(0)?, row.get(1)?))));
    let (name, moment): (String, String) = own.map_err(sql_error)?;
    let put = database(&name, &moment).and_then(|bytes| write(path, &bytes));
    put.map_err(|error| refused_because(format!("{} cannot be made", path.display()), error))
}

fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let beside = |suffix: &str| {
        let mut name = OsString::from(path);
        name.push(suffix);
        PathBuf::from(name)
    };
    // A log without its database is one that somebody took away. SQLite would take it for this one's.
    for suffix in ["-wal", "-shm", "-journal", ".making"] {
        fs::remove_file(beside(suffix)).or_else(missing_is_fine)?;
    }
    let making = beside(".making");
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&making)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&making, path)?;
    File::open(folder_of(path))?.sync_all()
}

fn missing_is_fine(error: io::Error) -> io::Result<()> {
    if error.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(error) }
}

/// A new database with this name.
fn database(name: &str, moment: &str) -> io::Result<Vec<u8>> {
    let broken = || io::Error::other("the image of a new database in this program is broken");
    let mut bytes = spread(IMAGE).ok_or_else(broken)?;
    for (mark, own) in [(NAME, name), (MOMENT, moment)] {
        // Text of the same length, or the rows around it would lie elsewhere.
        if own.len() != mark.len() || replace(&mut bytes, mark.as_bytes(), own.as_bytes()) == 0 {
            return Err(broken());
        }
    }
    Ok(bytes)
}

/// Replaces each `mark` and says how many there were.
fn replace(bytes: &mut [u8], mark: &[u8], own: &[u8]) -> usize {
    let (mut from, mut count) = (0, 0);
    while let Some(at) = place_of(&bytes[from..], mark) {
        bytes[from + at..from + at + mark.len()].copy_from_slice(own);
        from += at + mark.len();
        count += 1;
    }
    count
}

fn place_of(bytes: &[u8], mark: &[u8]) -> Option<usize> {
    bytes.windows(mark.len()).position(|window| window == mark)
}

/// The file that an image is of; `None` when it is of none.
fn spread(mut image: &[u8]) -> Option<Vec<u8>> {
    let mut bytes = vec![0; number(&mut image)?];
    while !image.is_empty() {
        let (at, length) = (number(&mut image)?, number(&mut image)?);
        let (part, rest) = image.split_at_checked(length)?;
        bytes.get_mut(at..at.checked_add(length)?)?.copy_from_slice(part);
        image = rest;
    }
    Some(bytes)
}

fn number(image: &mut &[u8]) -> Option<usize> {
    let (number, rest) = image.split_first_chunk()?;
    *image = rest;
    usize::try_from(u32::from_le_bytes(*number)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{pragma, schema};

    /// What the script makes of an empty file, with the marks of an image.
    fn made() -> Vec<u8> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.db");
        let mut connection = Connection::open(&path).unwrap();
        pragma::choose_page_size(&connection).unwrap();
        pragma::make_writer(&connection).unwrap();
        schema::make(&mut connection).unwrap();
        connection.execute("UPDATE meta SET value = ?1 WHERE key = 'db_uuid'", [NAME]).unwrap();
        connection.execute("UPDATE refinery_schema_history SET applied_on = ?1", [MOMENT]).unwrap();
        connection.close().unwrap();
        fs::read(path).unwrap()
    }

    /// The image of a file: what lies between at least as many zeros as it takes to say where it lies.
    fn gathered(bytes: &[u8]) -> Vec<u8> {
        let little = |number: usize| u32::try_from(number).unwrap().to_le_bytes();
        let mut image = little(bytes.len()).to_vec();
        let mut from = 0;
        while let Some(first) = bytes[from..].iter().position(|byte| *byte != 0) {
            let begins = from + first;
            let ends =
                bytes[begins..].windows(9).position(|window| window == [0; 9]).map_or(bytes.len(), |at| begins + at);
            image.extend([little(begins), little(ends - begins)].concat());
            image.extend(&bytes[begins..ends]);
            from = ends;
        }
        image
    }

    /// A database without what SQLite counts and says about itself in its header.
    fn without_counters(mut bytes: Vec<u8>) -> Vec<u8> {
        for place in [24..28, 92..100] {
            bytes[place].fill(0);
        }
        bytes
    }

    #[test]
    fn the_image_is_what_the_script_makes() {
        let (image, made) = (spread(IMAGE).unwrap(), made());
        assert!(
            without_counters(image) == without_counters(made),
            "the schema was changed: see the first lines of this file"
        );
    }

    #[test]
    fn each_new_database_has_its_own_name_and_moment_and_nothing_of_the_marks() {
        let name = "0123456789abcdef0123456789abcdef";
        let mut bytes = database(name, "2026-01-02T03:04:05.678Z").unwrap();
        assert_eq!(replace(&mut bytes, name.as_bytes(), name.as_bytes()), 1);
        for mark in [NAME, MOMENT] {
            assert_eq!(replace(&mut bytes, mark.as_bytes(), mark.as_bytes()), 0, "{mark}");
        }
        assert!(database("short", MOMENT).is_err());
    }

    #[test]
    fn an_image_that_was_cut_is_of_no_file() {
        assert_eq!(spread(&gathered(&[0, 1, 0, 2, 0, 0])), Some(vec![0, 1, 0, 2, 0, 0]));
        for length in 0..IMAGE.len().min(4_000) {
            // A cut between two parts leaves a smaller database, which its pages do not fit.
            if let Some(bytes) = spread(&IMAGE[..length]) {
                assert_ne!(Some(bytes), spread(IMAGE), "{length}");
            }
        }
    }

    #[test]
    fn what_was_left_beside_a_database_that_is_gone_is_not_taken_for_this_ones() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.db");
        let beside = |suffix: &str| folder.path().join(format!("a.db{suffix}"));
        for suffix in ["-wal", "-shm", "-journal", ".making"] {
            fs::write(beside(suffix), "of another database").unwrap();
        }
        put(&path).unwrap();
        let mut names: Vec<_> = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names, ["a.db"]);
        let connection = Connection::open(&path).unwrap();
        assert!(schema::findings(&connection).unwrap().is_empty());
        let says = |pragma: &str| connection.query_row(&format!("PRAGMA {pragma}"), [], |row| row.get::<_, String>(0));
        assert_eq!((says("journal_mode").unwrap().as_str(), says("integrity_check").unwrap().as_str()), ("wal", "ok"));
    }

    #[test]
    #[ignore = "writes src/schema.image"]
    fn the_image_is_written_anew() {
        fs::write(concat!(env!("CARGO_MANIFEST_DIR"), "/src/schema.image"), gathered(&made())).unwrap();
    }
}
