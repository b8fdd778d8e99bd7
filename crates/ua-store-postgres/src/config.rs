//! What a store is opened with.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::str::FromStr as _;
use std::time::Duration;

use tokio_postgres::config::{Host, SslMode};
use ua_files::Folder;
use ua_store::{Retry, StoreError};

use crate::error::{refused, unavailable};
use crate::history::Position;
use crate::notes::forget_mark;
use ua_core::ShowPath as _;

/// How long a connection may be silent where an answer is due.
const PATIENCE: Duration = Duration::from_secs(30);

/// Where the database is.
#[derive(Debug, Clone)]
pub struct PostgresConfig {
    /// Host, user, database and whatever else PostgreSQL's clients know.
    pub(crate) server: tokio_postgres::Config,
    /// Certificates to trust in the place of the system's.
    pub(crate) root_certificates: Option<PathBuf>,
    /// Whose process may be told the password on this machine without TLS, besides root, this user and the usual user of servers.
    pub(crate) server_user: Option<String>,
    /// How many connections are kept for reads and writes.
    pub connections: usize,
    /// How long a write waits for others before it is given up, to be tried again.
    pub lock_wait: Duration,
    /// Where runs are taken: those of a lineage that another place holds are refused. Without it none is looked at.
    pub place: Option<Place>,
    /// The folder of locks beside which this database alone is used: the first one that is, is noted there, and another one is refused. It knows
    /// nothing of what was done from here. Without it none is looked at.
    pub alone_beside: Option<PathBuf>,
    /// Whether each row that the store keeps is read as well after every write, and compared. For tests: it takes a flight more.
    #[doc(hidden)]
    pub compares: bool,
    /// What makes the schema, for whoever meets a database without it.
    #[doc(hidden)]
    pub migrated_by: &'static str,
}

/// A folder of workspaces and locks, on one machine. A lineage is driven where these are: the place that takes a run of it first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// A name that no other has.
    pub id: String,
    /// Where it is, for people.
    pub shown: String,
}

/// The file among the locks that names a place.
const ROOT_ID: &str = "root_id";
/// The longest name of a place that is read, in bytes.
const MAX_ID_BYTES: u64 = 4096;

impl Place {
    /// The place of the workspaces in `root`, if it has a name.
    pub fn known(root: &Path, locks: &Path) -> Option<Self> {
        let id = Folder::open_itself(locks).and_then(|locks| locks.read(ROOT_ID, MAX_ID_BYTES)).ok()?;
        let id = String::from_utf8(id).ok()?;
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        Some(Self { id, shown: format!("{} on {host}", root.shown()) })
    }

    /// The same, named `fresh` if it has no name yet.
    ///
    /// # Errors
    ///
    /// The folder of locks cannot be written.
    pub fn of(root: &Path, locks: &Path, fresh: &str) -> std::io::Result<Self> {
        fs::create_dir_all(locks)?;
        if Folder::open_itself(locks)?.kind(ROOT_ID)?.is_none() {
            note_first(locks, ROOT_ID, fresh)?;
        }
        Self::known(root, locks).ok_or_else(|| std::io::Error::other("its name cannot be read"))
    }
}

/// Notes this unless something is noted already. It is linked when it is whole, so that of two processes at once one notes it.
fn note_first(locks: &Path, name: &str, content: &str) -> std::io::Result<()> {
    let mut made = tempfile::NamedTempFile::new_in(locks)?;
    made.write_all(content.as_bytes())?;
    match made.persist_noclobber(locks.join(name)) {
        Err(error) if error.error.kind() != std::io::ErrorKind::AlreadyExists => Err(error.error),
        Ok(_) | Err(_) => Ok(()),
    }
}

/// The file among the locks that names the database on a server that is used with them.
const DATABASE_ID: &str = "database_id";

/// Which database on a server is used with a folder of locks, as it was noted there.
///
/// # Errors
///
/// There is a note, and it cannot be read.
pub fn database_beside(locks: &Path) -> std::io::Result<Option<String>> {
    match Folder::open_itself(locks).and_then(|locks| locks.read(DATABASE_ID, MAX_ID_BYTES)) {
        Ok(noted) => String::from_utf8(noted).map(Some).map_err(std::io::Error::other),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Forgets which one is, because a person moved it or took it back, and how far it was: moved once more, it begins anew.
///
/// # Errors
///
/// A note cannot be removed.
pub fn forget_database_beside(locks: &Path) -> std::io::Result<()> {
    forget_mark(locks)?;
    match fs::remove_file(locks.join(DATABASE_ID)) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// The file among the locks that says how far the log of the server was.
const DATABASE_POSITION: &str = "database_position";

/// How far the log of the server was, as it was noted with a folder of locks. What cannot be read says nothing.
pub(crate) fn position_beside(locks: &Path) -> Option<Position> {
    Folder::open_itself(locks).and_then(|locks| position_in(&locks)).ok().flatten()
}

fn position_in(locks: &Folder) -> std::io::Result<Option<Position>> {
    let noted = match locks.read(DATABASE_POSITION, MAX_ID_BYTES) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        noted => noted?,
    };
    let position = std::str::from_utf8(&noted).ok().and_then(Position::parse);
    position.map(Some).ok_or_else(|| std::io::Error::other("it does not say how far"))
}

/// The file that says how far the log was, and why it cannot be read, if it is there and cannot.
pub(crate) fn why_position_is_unread(locks: &Folder) -> Option<(&'static str, std::io::Error)> {
    position_in(locks).err().map(|why| (DATABASE_POSITION, why))
}

/// Notes how far it is.
pub(crate) fn note_position(locks: &Path, position: &Position) -> std::io::Result<()> {
    let mut made = tempfile::NamedTempFile::new_in(locks)?;
    made.write_all(position.noted().as_bytes())?;
    made.persist(locks.join(DATABASE_POSITION)).map(drop).map_err(|error| error.error)
}

/// Refuses a database with this identity where another one is used, and notes the first one.
pub(crate) fn stay_with(locks: &Path, identity: &str, shown: &str) -> Result<(), StoreError> {
    let failed = |does: &str, error: std::io::Error| {
        let note = locks.join(DATABASE_ID);
        refused(format!(
            "which database is used here is noted in {}, which {does}: {error}; nothing was begun",
            note.shown()
        ))
    };
    let noted = || database_beside(locks).map_err(|error| failed("cannot be read", error));
    if noted()?.is_none() {
        note_first(locks, DATABASE_ID, identity).map_err(|error| failed("cannot be written", error))?;
    }
    match noted()? {
        Some(noted) if noted == identity => Ok(()),
        Some(_) => Err(refused(format!(
            "{} is used with another database on a server, whose runs have their files there, and the {shown} knows nothing of them: what they did \
             would be done again. Begin, queue and drive runs of this one with another folder (answers, cancellations and the like are taken from \
             here, too), or name the other one; if that one is given up for good, remove {}",
            locks.parent().unwrap_or(locks).shown(),
            locks.join(DATABASE_ID).shown()
        ))),
        None => Err(failed("cannot be written", std::io::Error::other("it was removed meanwhile"))),
    }
}

impl PostgresConfig {
    /// From `postgres://user:password@host/database?options`, as PostgreSQL's own programs have it.
    ///
    /// `sslmode` is `disable`, `prefer`, `require`, `verify-ca` or `verify-full`; whatever connects with TLS checks the server's certificate
    /// and name. Without it a server on another machine is reached with TLS alone. `sslrootcert` names a file of certificates, and `requirepeer` the
    /// user of a server on this machine (`*`: anybody) that may be told a password without TLS.
    ///
    /// # Errors
    ///
    /// `Unavailable` when the URL is none.
    pub fn from_url(url: &str) -> Result<Self, StoreError> {
        let (address, options) = url.split_once('?').unwrap_or((url, ""));
        let (mut root_certificates, mut server_user, mut kept, mut mode) = (None, None, Vec::new(), None);
        for option in options.split('&').filter(|option| !option.is_empty()) {
            match option.split_once('=') {
                Some(("sslrootcert", path)) => root_certificates = Some(PathBuf::from(path.replace("%2F", "/"))),
                Some(("requirepeer", user)) => server_user = Some(user.to_owned()),
                Some(("sslmode", word)) => mode = Some(ssl_mode(word)?),
                Some(_) | None => kept.push(option),
            }
        }
        let plain = if kept.is_empty() { address.to_owned() } else { format!("{address}?{}", kept.join("&")) };
        // The URL itself is not shown: there may be a password in it.
        let mut server = tokio_postgres::Config::from_str(&plain)
            .map_err(|error| unavailable("the database URL cannot be read", error, Retry::Never))?;
        let is_local = server.get_hosts().iter().all(|host| match host {
            Host::Unix(_) => true,
            Host::Tcp(name) => {
                name == "localhost" || name.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
            }
        });
        server.ssl_mode(mode.unwrap_or(if is_local { SslMode::Prefer } else { SslMode::Require }));
        if server.get_application_name().is_none() {
            server.application_name("ua");
        }
        if server.get_connect_timeout().is_none() {
            server.connect_timeout(Duration::from_secs(10));
        }
        // A server that is gone without a word is noticed, also while it is waited for.
        if server.get_tcp_user_timeout().is_none() {
            server
                .tcp_user_timeout(PATIENCE)
                .keepalives_idle(PATIENCE)
                .keepalives_interval(PATIENCE / 3)
                .keepalives_retries(3);
        }
        Ok(Self {
            server,
            root_certificates,
            server_user,
            connections: 8,
            lock_wait: Duration::from_secs(10),
            place: None,
            alone_beside: None,
            compares: false,
            migrated_by: "`ua db migrate`",
        })
    }

    /// Where the database is, in a few words without a password.
    pub fn shown(&self) -> String {
        let hosts = self.server.get_hosts().iter().map(|host| match host {
            Host::Tcp(name) => name.clone(),
            Host::Unix(path) => path.to_string_lossy().into_owned(),
        });
        let database = self.server.get_dbname().or(self.server.get_user()).unwrap_or("its user's");
        format!("database {database} on {}", hosts.collect::<Vec<_>>().join(", "))
    }

    /// Whether another one leads to the same database, as far as their words say.
    pub fn is_where(&self, other: &Self) -> bool {
        let place = |config: &Self| {
            let server = &config.server;
            let database = server.get_dbname().or(server.get_user()).map(str::to_owned);
            (server.get_hosts().to_vec(), server.get_ports().to_vec(), database)
        };
        place(self) == place(other)
    }

    /// The password, so that it can be kept out of texts.
    pub fn password(&self) -> Option<String> {
        self.server.get_password().map(|password| String::from_utf8_lossy(password).into_owned())
    }
}

fn ssl_mode(word: &str) -> Result<SslMode, StoreError> {
    Ok(match word {
        "disable" => SslMode::Disable,
        "allow" | "prefer" => SslMode::Prefer,
        "require" | "verify-ca" | "verify-full" => SslMode::Require,
        other => {
            return Err(refused(format!("sslmode is disable, prefer, require, verify-ca or verify-full, not {other}")));
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of processes that use a folder for the first time at once, with several databases, those of one go on, and the others are refused.
    #[test]
    fn of_several_first_databases_one_is_used() {
        for _ in 0..50 {
            let locks = tempfile::tempdir().unwrap();
            let used: Vec<bool> = std::thread::scope(|scope| {
                let users: Vec<_> = (0..6)
                    .map(|user| {
                        let locks = locks.path();
                        scope.spawn(move || stay_with(locks, &format!("d{}", user % 3), "database").is_ok())
                    })
                    .collect();
                users.into_iter().map(|user| user.join().unwrap()).collect()
            });
            let noted = database_beside(locks.path()).unwrap().unwrap();
            let expected: Vec<bool> = (0..6).map(|user| noted == format!("d{}", user % 3)).collect();
            assert_eq!(used, expected, "{noted}");
        }
    }

    #[test]
    fn another_machine_is_reached_with_tls_alone() {
        let mode = |url: &str| PostgresConfig::from_url(url).unwrap().server.get_ssl_mode();
        assert_eq!(mode("postgres://ua@db.example/ua"), SslMode::Require);
        assert_eq!(mode("postgres://ua@db.example/ua?sslmode=verify-full"), SslMode::Require);
        assert_eq!(mode("postgres://ua@db.example/ua?sslmode=disable"), SslMode::Disable);
        assert_eq!(mode("postgres://ua@127.0.0.1:5433/ua"), SslMode::Prefer);
        assert_eq!(mode("postgres://ua@localhost/ua?connect_timeout=3"), SslMode::Prefer);
        assert_eq!(mode("postgres:///ua?host=/run/postgresql"), SslMode::Prefer);
    }

    #[test]
    fn a_url_that_is_none_is_refused_without_its_password() {
        for url in ["postgres://ua:geheim@host:port/ua", "postgres://ua:geheim@host/ua?sslmode=maybe"] {
            let StoreError::Unavailable { why, .. } = PostgresConfig::from_url(url).unwrap_err() else {
                panic!("{url}")
            };
            assert!(!why.contains("geheim"), "{why}");
        }
    }

    #[test]
    fn certificates_of_ones_own_are_named() {
        let config =
            PostgresConfig::from_url("postgres://ua@db/ua?sslrootcert=%2Fetc%2Fca.pem&sslmode=verify-full").unwrap();
        assert_eq!(config.root_certificates, Some(PathBuf::from("/etc/ca.pem")));
    }
}
