//! A PostgreSQL server of one's own, in a temporary folder, with a pooler in front of it where that is installed.
//!
//! No service of the machine is used. `initdb` refuses root, so for root the server runs as another user. Server and pooler end with the
//! process that started them, however it ends: a shell in a process group of its own holds them, and waits for the end of its input.
//!
//! Other crates' tests take this file in as it is, so it needs nothing but `rustix` and `tempfile`.

use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rustix::process::geteuid;
use tempfile::TempDir;

/// Where the server listens: the number in the name of its socket.
pub const SERVER: u16 = 5432;
/// The same of the pooler in transaction mode.
pub const POOLER: u16 = 6432;

/// Why there is no server.
const MISSING: &str = "PostgreSQL is not installed (Debian: apt-get install postgresql pgbouncer)";

#[track_caller]
fn must<T, E: std::fmt::Display>(result: Result<T, E>, what: &str) -> T {
    result.unwrap_or_else(|error| panic!("{what}: {error}"))
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

/// Who the server runs as: root may not.
fn other_user() -> Option<(u32, u32)> {
    if !geteuid().is_root() {
        return None;
    }
    let users = must(fs::read_to_string("/etc/passwd"), "read /etc/passwd");
    let ids = |name: &str| {
        let line = users.lines().find(|line| line.starts_with(&format!("{name}:")))?;
        let mut fields = line.split(':').skip(2).map_while(|field| field.parse().ok());
        Some((fields.next()?, fields.next()?))
    };
    ids("postgres").or_else(|| ids("nobody"))
}

/// A program that runs as the server's user.
fn command(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    if let Some((user, group)) = other_user() {
        command.uid(user).gid(group);
    }
    command.current_dir("/").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command
}

/// A program in the background that ends with this process.
#[derive(Debug)]
struct Guarded {
    _shell: Child,
    /// Takes a word a line: `begin`, or the name of a signal.
    words: ChildStdin,
    /// Says `ended` when the program has ended after a signal.
    answers: BufReader<ChildStdout>,
}

impl Guarded {
    /// Begins `line`. When this process is gone, `last` ends it, and its folder is removed.
    fn begin(line: &str, last: &str, folder: &Path) -> Self {
        let script = format!(
            "begin() {{ {line} >>'{log}' 2>&1 & server=$!; }}\nbegin\n\
             while read -r word; do\n\
             if [ \"$word\" = begin ]; then begin; else kill -\"$word\" $server; wait $server; echo ended; fi\n\
             done\n\
             kill -{last} $server; wait $server; rm -rf '{folder}'",
            log = folder.join("log").display(),
            folder = folder.display()
        );
        let mut shell = command("sh");
        // A group of its own: who ends the tests by their group ends the shell by its input, and not before what it holds.
        shell.arg("-c").arg(script).stdin(Stdio::piped()).stdout(Stdio::piped()).process_group(0);
        let mut shell = must(shell.spawn(), "start a shell");
        let (Some(words), Some(answers)) = (shell.stdin.take(), shell.stdout.take()) else {
            unreachable!("both are pipes")
        };
        Self { _shell: shell, words, answers: BufReader::new(answers) }
    }

    fn say(&mut self, word: &str) {
        must(writeln!(self.words, "{word}"), "ask the shell of the server");
    }
}

/// A server, and a pooler in front of it.
#[derive(Debug)]
pub struct PostgresServer {
    folder: PathBuf,
    programs: PathBuf,
    server: Mutex<Guarded>,
    pooler: Option<Guarded>,
    _kept: TempDir,
}

impl PostgresServer {
    /// Starts one with these settings besides. It syncs nothing unless they say so.
    ///
    /// # Errors
    ///
    /// PostgreSQL is not installed, in a sentence.
    ///
    /// # Panics
    ///
    /// When it is there and does not start.
    pub fn start(settings: &str) -> Result<Self, String> {
        let programs = programs().ok_or_else(|| MISSING.to_owned())?;
        let kept = Self::folder_of_its_own();
        let mut made = command(programs.join("initdb"));
        made.args(["-U", "ua", "--auth", "trust", "-E", "UTF8", "--locale", "C.UTF-8", "--no-sync", "-D"]);
        let made = must(made.arg(kept.path().join("data")).status(), "run initdb");
        assert!(made.success(), "initdb: {made}");
        Ok(Self::begin(programs, kept, settings))
    }

    /// A standby of this server, which follows its log under a name and takes over once it is [promoted](Self::promote). The settings of this one are
    /// not its own, but for those that a file of its data has.
    ///
    /// # Panics
    ///
    /// When it does not start.
    #[must_use]
    pub fn standby(&self, name: &str) -> Self {
        let kept = Self::folder_of_its_own();
        let place = format!("host={} port={SERVER} user=ua application_name={name}", self.folder.display());
        let mut made = command(self.programs.join("pg_basebackup"));
        made.args(["-d", &place, "-R", "--checkpoint=fast", "--no-sync", "-D"]).arg(kept.path().join("data"));
        let made = must(made.status(), "run pg_basebackup");
        assert!(made.success(), "pg_basebackup: {made}");
        Self::begin(self.programs.clone(), kept, "")
    }

    fn folder_of_its_own() -> TempDir {
        let kept = must(tempfile::Builder::new().prefix("ua-pg-").tempdir_in("/tmp"), "make a folder");
        if let Some((user, group)) = other_user() {
            must(std::os::unix::fs::chown(kept.path(), Some(user), Some(group)), "give the folder away");
        }
        kept
    }

    fn begin(programs: PathBuf, kept: TempDir, settings: &str) -> Self {
        let folder = kept.path().to_owned();
        let line = format!(
            "'{}' -D '{}' -k '{}' -c listen_addresses='' -c max_connections=300 -c fsync=off {settings}",
            programs.join("postgres").display(),
            folder.join("data").display(),
            folder.display()
        );
        let server = Mutex::new(Guarded::begin(&line, "QUIT", &folder));
        let pooler = Self::pooler(&folder);
        let server = Self { folder, programs, server, pooler, _kept: kept };
        server.until_it_answers();
        server
    }

    fn pooler(folder: &Path) -> Option<Guarded> {
        let program =
            ["/usr/sbin/pgbouncer", "/usr/bin/pgbouncer", "/usr/local/bin/pgbouncer", "/opt/homebrew/bin/pgbouncer"];
        let program = program.iter().find(|program| Path::new(program).is_file())?;
        let settings = folder.join("pgbouncer.ini");
        let place = folder.display();
        let text = format!(
            "[databases]\n* = host={place} port={SERVER} user=ua\n[pgbouncer]\nlisten_port = {POOLER}\n\
             unix_socket_dir = {place}\nauth_type = any\npool_mode = transaction\nmax_client_conn = 2000\n\
             default_pool_size = 4\nserver_reset_query =\nlogfile = {place}/pgbouncer.log\npidfile = {place}/pgbouncer.pid\n"
        );
        must(fs::write(&settings, text), "write the pooler's settings");
        if let Some((user, group)) = other_user() {
            must(std::os::unix::fs::chown(&settings, Some(user), Some(group)), "give the settings away");
        }
        Some(Guarded::begin(&format!("'{program}' '{}'", settings.display()), "KILL", folder))
    }

    /// Starting up ends when it ends; each refusal is an answer of its own, and there is nothing else to wait for.
    fn until_it_answers(&self) {
        let is_ready = || {
            let mut ready = command(self.programs.join("pg_isready"));
            let ready = ready.arg("-h").arg(&self.folder).arg("-p").arg(SERVER.to_string()).status();
            must(ready, "run pg_isready").success()
        };
        self.until("the server answers", is_ready);
        if self.pooler.is_some() {
            self.until("the pooler answers", || UnixStream::connect(self.socket(POOLER)).is_ok());
        }
    }

    fn until(&self, what: &str, is_so: impl Fn() -> bool) {
        for _ in 0..3_000 {
            if is_so() {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        panic!("in vain: {what}; {}", fs::read_to_string(self.folder.join("log")).unwrap_or_default());
    }

    /// A program of PostgreSQL, or of the system, as the server's user.
    pub fn program(&self, name: &str) -> Command {
        let own = self.programs.join(name);
        command(if own.is_file() { own } else { PathBuf::from(name) })
    }

    /// Whether there is a pooler in front of it.
    pub fn has_pooler(&self) -> bool {
        self.pooler.is_some()
    }

    /// Where its sockets are.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The socket of [`SERVER`] or [`POOLER`].
    pub fn socket(&self, port: u16) -> PathBuf {
        self.folder.join(format!(".s.PGSQL.{port}"))
    }

    /// How a database is named.
    pub fn url(&self, database: &str, port: u16) -> String {
        format!("postgres:///{database}?user=ua&host={}&port={port}", self.folder.display())
    }

    /// Runs SQL in a database, past the pooler; the rows, their columns joined by `|`.
    ///
    /// # Errors
    ///
    /// What `psql` says that went wrong.
    pub fn sql(&self, database: &str, sql: &str) -> Result<Vec<String>, String> {
        let mut psql = command(self.programs.join("psql"));
        psql.args(["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-U", "ua", "-d", database, "-c", sql]);
        psql.arg("-h")
            .arg(&self.folder)
            .arg("-p")
            .arg(SERVER.to_string())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let done = must(psql.output(), "run psql");
        if !done.status.success() {
            return Err(String::from_utf8_lossy(&done.stderr).trim().to_owned());
        }
        Ok(String::from_utf8_lossy(&done.stdout).lines().map(str::to_owned).collect())
    }

    /// Makes a database.
    ///
    /// # Panics
    ///
    /// When it cannot be made.
    pub fn create(&self, database: &str, how: &str) {
        must(self.sql("postgres", &format!("CREATE DATABASE {database} {how}")), "make a database");
    }

    /// Ends the server by a signal (`QUIT` is what a crash is to its files), and waits until it is gone.
    ///
    /// # Panics
    ///
    /// When the shell that holds it is gone.
    pub fn stop(&self, signal: &str) {
        let mut server = self.server.lock().unwrap_or_else(PoisonError::into_inner);
        server.say(signal);
        let mut line = String::new();
        must(server.answers.read_line(&mut line), "wait for the server's end");
        assert_eq!(line.trim(), "ended");
    }

    /// Kills the server and all of its processes at once, and waits until it is gone.
    ///
    /// # Panics
    ///
    /// When it does not run.
    pub fn kill(&self) {
        let pid = must(fs::read_to_string(self.folder.join("data/postmaster.pid")), "read the server's number");
        let pid = pid.lines().next().unwrap_or_default().trim().to_owned();
        let parent = format!("PPid:\t{pid}");
        let is_its = |process: &PathBuf| {
            fs::read_to_string(process.join("status")).is_ok_and(|status| status.lines().any(|line| line == parent))
        };
        let all = must(fs::read_dir("/proc"), "read /proc").flatten().map(|process| process.path());
        let its: Vec<PathBuf> = all.filter(is_its).collect();
        let number = |process: &PathBuf| -> Option<i32> { process.file_name()?.to_str()?.parse().ok() };
        // It first, so that it starts none in their place.
        for pid in std::iter::once(pid.parse::<i32>().ok()).chain(its.iter().map(number)).flatten() {
            // One may have ended by itself.
            if let Some(pid) = rustix::process::Pid::from_raw(pid) {
                rustix::process::kill_process(pid, rustix::process::Signal::KILL).ok();
            }
        }
        self.stop("KILL");
    }

    /// A standby takes over.
    ///
    /// # Panics
    ///
    /// When it does not.
    pub fn promote(&self) {
        let mut promoted = command(self.programs.join("pg_ctl"));
        let promoted = promoted.args(["promote", "-w", "-D"]).arg(self.folder.join("data")).status();
        let promoted = must(promoted, "run pg_ctl");
        assert!(promoted.success(), "pg_ctl promote: {promoted}");
    }

    /// Waits until a standby has all that this server has written.
    ///
    /// # Panics
    ///
    /// When it does not come.
    pub fn until_followed_by(&self, standby: &Self) {
        let mark = "SELECT pg_logical_emit_message(true, 'until here', '')";
        let written = must(self.sql("postgres", mark), "mark how far the log is");
        let sql = format!("SELECT 1 WHERE pg_last_wal_replay_lsn() >= '{}'", written.join(""));
        self.until("the standby follows", || standby.sql("postgres", &sql).is_ok_and(|rows| !rows.is_empty()));
    }

    /// Starts it again, and waits until it answers.
    ///
    /// # Panics
    ///
    /// When it does not start.
    pub fn start_again(&self) {
        self.server.lock().unwrap_or_else(PoisonError::into_inner).say("begin");
        self.until_it_answers();
    }

    /// Kills one of its processes, and waits until the server has recovered: it takes that for a crash, and ends all connections.
    ///
    /// # Panics
    ///
    /// When it does not recover.
    pub fn kill_backend(&self, pid: i32) {
        let is_killed = rustix::process::Pid::from_raw(pid)
            .is_some_and(|pid| rustix::process::kill_process(pid, rustix::process::Signal::KILL).is_ok());
        // It notices before it takes another connection, but not at once.
        let process = Path::new("/proc").join(pid.to_string());
        self.until("the server notices", || !is_killed || !process.exists());
        self.until("SQL is taken", || self.sql("postgres", "SELECT 1").is_ok());
    }
}
