//! What is wrong with a database that cannot be worked with, by what a person does about it.

use std::error::Error;
use std::io;

use rusqlite::ffi;
use ua_store::{Retry, StoreError};

/// Why a database cannot be read or written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Trouble {
    /// Another process has it at the moment.
    Busy,
    /// No byte is left on the disk. Even looking needs some: the memory that processes share stands in a file.
    Full,
    /// The disk, or what it is reached by, failed.
    Disk,
    /// It may not be written.
    ReadOnly,
    /// Its file, or one beside it, cannot be opened or made.
    CannotOpen,
    /// This user may not.
    NotAllowed,
    /// What stands in the file contradicts itself.
    Damaged,
    /// The file is something else.
    NotADatabase,
    /// The process has no memory left.
    Memory,
    /// Anything else.
    Other,
}

impl Trouble {
    /// Reads what an error of the port comes from; `None` where that is neither SQLite nor the system, and the error says itself what to do.
    pub fn of(error: &StoreError) -> Option<Self> {
        let mut next = error.source();
        while let Some(cause) = next {
            if let Some(error) = cause.downcast_ref::<rusqlite::Error>() {
                return Some(Self::of_sqlite(error));
            }
            if let Some(error) = cause.downcast_ref::<io::Error>() {
                return Some(Self::of_system(error.kind()));
            }
            next = cause.source();
        }
        None
    }

    pub(crate) fn of_sqlite(error: &rusqlite::Error) -> Self {
        let Some(extended) = error.sqlite_error().map(|error| error.extended_code) else { return Self::Other };
        match (extended, extended & 0xFF) {
            // The memory that processes share did not get its bytes.
            (ffi::SQLITE_IOERR_SHMSIZE, _) | (_, ffi::SQLITE_FULL) => Self::Full,
            (_, ffi::SQLITE_BUSY | ffi::SQLITE_LOCKED) => Self::Busy,
            (_, ffi::SQLITE_IOERR) => Self::Disk,
            (_, ffi::SQLITE_READONLY) => Self::ReadOnly,
            (_, ffi::SQLITE_CANTOPEN) => Self::CannotOpen,
            (_, ffi::SQLITE_PERM) => Self::NotAllowed,
            (_, ffi::SQLITE_CORRUPT) => Self::Damaged,
            (_, ffi::SQLITE_NOTADB) => Self::NotADatabase,
            (_, ffi::SQLITE_NOMEM) => Self::Memory,
            _ => Self::Other,
        }
    }

    fn of_system(kind: io::ErrorKind) -> Self {
        let known = [
            (io::ErrorKind::StorageFull, Self::Full),
            (io::ErrorKind::QuotaExceeded, Self::Full),
            (io::ErrorKind::ReadOnlyFilesystem, Self::ReadOnly),
            (io::ErrorKind::PermissionDenied, Self::NotAllowed),
            (io::ErrorKind::OutOfMemory, Self::Memory),
        ];
        known.into_iter().find(|(known, _)| *known == kind).map_or(Self::Other, |(_, trouble)| trouble)
    }

    /// What a person reads about it; `None` where the error has its own words.
    pub fn words(self) -> Option<&'static str> {
        Some(match self {
            Self::Busy => "another process is using it; try again",
            Self::Full => "the disk is full",
            Self::Disk => "the disk failed to read or write",
            Self::ReadOnly => "the database is read-only",
            Self::CannotOpen => "the database file cannot be opened",
            Self::NotAllowed => "this user may not open the database",
            Self::Damaged => "the database is damaged; restore a backup",
            Self::NotADatabase => "the file is not a database",
            Self::Memory => "memory ran out",
            Self::Other => return None,
        })
    }

    /// Whether another try may help.
    pub(crate) fn retry(self) -> Retry {
        match self {
            Self::Busy => Retry::Later,
            Self::Full => Retry::WithRoom,
            Self::Disk
            | Self::ReadOnly
            | Self::CannotOpen
            | Self::NotAllowed
            | Self::Damaged
            | Self::NotADatabase
            | Self::Memory
            | Self::Other => Retry::Never,
        }
    }
}
