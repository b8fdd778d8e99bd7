//! A server of our own, in a temporary folder, for as long as the tests run; and a database of its own for each test.
//!
//! No service of the machine is used. `initdb` refuses root, so for root the server runs as another user. Where PostgreSQL is not installed
//! each test says so and passes; with `UA_NEED_POSTGRES` set, as in `.ci/run`, it fails.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use std::fs;
use std::future::Future;
use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use rustix::process::geteuid;
use tempfile::TempDir;
use tokio::runtime::Runtime;
use tokio_postgres::{Client, NoTls};

/// The runtime of all stores of this program: a test's own ends with the test.
fn runtime() -> &'static Runtime {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    RUNTIME.get_or_init(|| tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap())
}

/// Runs `work` to its end from wherever this is called.
pub(crate) fn blocking<T: Send>(work: impl Future<Output = T> + Send) -> T {
    std::thread::scope(|scope| scope.spawn(|| runtime().block_on(work)).join().unwrap())
}

/// Says why a test did not run, past whatever captures its output.
pub(crate) fn skipped(why: &str) {
    assert!(std::env::var_os("UA_NEED_POSTGRES").is_none(), "{why}");
    let test = std::thread::current().name().unwrap_or("a test").to_owned();
    std::io::stderr().write_all(format!("SKIPPED {test}: {why}\n").as_bytes()).unwrap();
}

/// Where the server's programs are.
fn programs() -> Option<PathBuf> {
    let told = Command::new("pg_config").arg("--bindir").output().ok();
    let told = told.map(|told| PathBuf::from(String::from_utf8_lossy(&told.stdout).trim()));
    let debian =
        fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten().map(|version| version.path().join("bin"));
    let mut debian: Vec<PathBuf> = debian.collect();
    debian.sort_by_key(|path| {
        path.ancestors().nth(1).and_then(Path::file_name).and_then(|name| name.to_str()?.parse::<u32>().ok())
    });
    told.into_iter().chain(debian.into_iter().rev()).find(|folder| folder.join("initdb").is_file())
}

/// Who the server runs as: nobody else may, but root cannot.
fn other_user() -> Option<(u32, u32)> {
    if !geteuid().is_root() {
        return None;
    }
    let users = fs::read_to_string("/etc/passwd").unwrap();
    let ids = |name: &str| {
        let line = users.lines().find(|line| line.starts_with(&format!("{name}:")))?;
        let mut fields = line.split(':').skip(2).map(|field| field.parse().unwrap());
        Some((fields.next()?, fields.next()?))
    };
    ids("postgres").or_else(|| ids("nobody"))
}

/// A program that runs as the server's user.
fn command(program: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut command = Command::new(program);
    if let Some((user, group)) = other_user() {
        command.uid(user).gid(group);
    }
    command.current_dir("/").stdout(Stdio::null()).stderr(Stdio::null());
    command
}

/// A server, and a pooler in front of it. Both end when this program does, however it ends: what starts them waits for the end of its input.
pub(crate) struct Cluster {
    folder: PathBuf,
    _server: Child,
    /// What stands in front of it, if that is installed.
    pub(crate) pooler: Option<Child>,
    _kept: TempDir,
}

/// Runs a server in the background; when this program is gone, it is stopped and its folder removed.
fn guarded(line: &str, folder: &Path) -> Child {
    let script =
        format!("{line} & server=$!; cat >/dev/null; kill -INT $server; wait $server; rm -rf '{}'", folder.display());
    command("sh").arg("-c").arg(script).stdin(Stdio::piped()).spawn().unwrap()
}

impl Cluster {
    /// A server with these settings besides.
    pub(crate) fn start(settings: &str) -> Option<Self> {
        let Some(programs) = programs() else {
            skipped("PostgreSQL is not installed (Debian: apt-get install postgresql pgbouncer)");
            return None;
        };
        let kept = tempfile::Builder::new().prefix("ua-pg-").tempdir_in("/tmp").unwrap();
        let folder = kept.path().to_owned();
        if let Some((user, group)) = other_user() {
            std::os::unix::fs::chown(&folder, Some(user), Some(group)).unwrap();
        }
        let data = folder.join("data");
        let made = command(programs.join("initdb"))
            .args(["-U", "ua", "--auth", "trust", "-E", "UTF8", "--locale", "C.UTF-8", "--no-sync", "-D"])
            .arg(&data)
            .status()
            .unwrap();
        assert!(made.success(), "initdb: {made}");
        let server = format!(
            "'{}' -D '{}' -k '{}' -c listen_addresses='' -c max_connections=300 -c fsync=off {settings}",
            programs.join("postgres").display(),
            data.display(),
            folder.display()
        );
        let server = guarded(&server, &folder);
        let pooler = Self::pooler(&folder);
        let cluster = Self { folder, _server: server, pooler, _kept: kept };
        blocking(cluster.until_it_answers());
        Some(cluster)
    }

    fn pooler(folder: &Path) -> Option<Child> {
        let program =
            ["/usr/sbin/pgbouncer", "/usr/bin/pgbouncer", "/usr/local/bin/pgbouncer", "/opt/homebrew/bin/pgbouncer"];
        let program = program.iter().find(|program| Path::new(program).is_file())?;
        let settings = folder.join("pgbouncer.ini");
        let place = folder.display();
        let text = format!(
            "[databases]\n* = host={place} port=5432 user=ua\n[pgbouncer]\nlisten_port = 6432\nunix_socket_dir = {place}\n\
             auth_type = any\npool_mode = transaction\nmax_client_conn = 2000\ndefault_pool_size = 4\n\
             server_reset_query =\nlogfile = {place}/pgbouncer.log\npidfile = {place}/pgbouncer.pid\n"
        );
        fs::write(&settings, text).unwrap();
        if let Some((user, group)) = other_user() {
            std::os::unix::fs::chown(&settings, Some(user), Some(group)).unwrap();
        }
        Some(guarded(&format!("'{program}' '{}'", settings.display()), folder))
    }

    /// Starting up ends when it ends; each refused connection is an answer of its own, and there is nothing else to wait for.
    async fn until_it_answers(&self) {
        let sockets = [".s.PGSQL.5432", ".s.PGSQL.6432"];
        for (name, port) in sockets.into_iter().zip([5432, 6432]) {
            if port == 6432 && self.pooler.is_none() {
                continue;
            }
            let mut pause = tokio::time::interval(Duration::from_millis(20));
            for tries in 0.. {
                pause.tick().await;
                if self.folder.join(name).exists() && self.connect_at("postgres", port).await.is_ok() {
                    break;
                }
                assert!(tries < 3_000, "{name} does not answer");
            }
        }
    }

    /// Makes a database.
    pub(crate) fn create(&self, database: &str, how: &str) {
        blocking(async {
            let client = self.connect_at("postgres", 5432).await.unwrap();
            client.batch_execute(&format!("CREATE DATABASE {database} {how}")).await.unwrap();
        });
    }

    pub(crate) async fn connect_at(&self, database: &str, port: u16) -> Result<Client, tokio_postgres::Error> {
        let mut config = tokio_postgres::Config::new();
        config.host_path(&self.folder).user("ua").dbname(database).port(port);
        let (client, connection) = config.connect(NoTls).await?;
        drop(runtime().spawn(connection));
        Ok(client)
    }

    /// Where its sockets are.
    #[allow(dead_code, reason = "tests of other crates take this file in, too")]
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// How it is named.
    pub(crate) fn url(&self, database: &str, port: u16) -> String {
        let host = self.folder.to_str().unwrap();
        format!("postgres:///{database}?user=ua&host={host}&port={port}")
    }
}
