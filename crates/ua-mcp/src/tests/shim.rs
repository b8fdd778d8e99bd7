//! The shim against real processes.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::Signal;
use tempfile::TempDir;
use ua_core::RunId;
use ua_dispatch::Fence;

use super::{DEAF, example, is_alive, is_locked, pid_in, wait_for};
use crate::life;
use crate::process::Process;
use crate::{LockDir, LockRecord, ShimArgs};

const GENERATION: &str = "00000000001deadbeef";

struct ServerBed {
    dir: TempDir,
    lock: PathBuf,
}

impl ServerBed {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let lock = dir.path().join(format!("run.srv.{GENERATION}"));
        Self { dir, lock }
    }

    fn path(&self, name: &str) -> String {
        self.dir.path().join(name).to_str().unwrap().to_owned()
    }

    /// A shim that runs `command`, with its pipes still to be set.
    fn shim(&self, grace_ms: u64, command: &str, args: &[&str]) -> Command {
        let args = ShimArgs {
            lock: self.lock.clone(),
            grace: Duration::from_millis(grace_ms),
            secrets: vec!["SHIM_SECRET".to_owned()],
            command: command.into(),
            args: args.iter().map(Into::into).collect(),
        };
        let mut shim = Command::new(example("shim"));
        shim.args(args.to_args());
        shim
    }

    fn record(&self) -> LockRecord {
        wait_for("the lock's record", || serde_json::from_reader(File::open(&self.lock).ok()?).ok())
    }

    /// The locks as a later process of the same run sees them.
    fn later(&self) -> LockDir {
        LockDir::new(self.dir.path(), RunId::parse("run").unwrap(), ua_core::system::env()).unwrap()
    }
}

/// What a server starts is known by a limit where its ancestors are hidden.
#[test]
fn what_a_shim_starts_is_marked() {
    let world = ServerBed::new();
    let limits = world.shim(200, "cat", &["/proc/self/limits"]).stdin(Stdio::null()).output().unwrap();
    let limits = String::from_utf8(limits.stdout).unwrap();
    let line = limits.lines().find(|line| line.starts_with("Max msgqueue size")).unwrap();
    let hard: u64 = line.split_whitespace().nth(4).unwrap().parse().unwrap();
    assert!(hard < 819_200, "{line}");
}

/// A stand-in for the runner: the only process that holds the writing end of the shim's input.
fn runner() -> (Child, Stdio) {
    let mut runner = Command::new("sleep").arg("1000").stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
    let pipe = runner.stdout.take().unwrap();
    (runner, pipe.into())
}

fn kill(process: &mut Child) {
    process.kill().unwrap();
    process.wait().unwrap();
}

#[test]
fn a_killed_runner_takes_a_stubborn_server_and_its_descendants_with_it() {
    let world = ServerBed::new();
    let (near, far) = (world.path("near.pid"), world.path("far.pid"));
    let fake = example("fake_server");
    let (mut runner, pipe) = runner();
    let server = ["-c", DEAF, fake.to_str().unwrap(), "--outlive-input", "--spawn", &near, "--spawn-detached", &far];
    let mut shim = world.shim(200, "sh", &server).stdin(pipe).stdout(Stdio::null()).spawn().unwrap();
    let descendants = [pid_in(Path::new(&near)), pid_in(Path::new(&far))];
    assert!(descendants.iter().all(|pid| is_alive(*pid)));
    assert!(is_locked(&world.lock));

    kill(&mut runner);
    let status = shim.wait().unwrap();

    assert_eq!(status.code(), Some(128 + 9), "the server was deaf to anything but SIGKILL");
    assert!(!is_locked(&world.lock));
    assert!(descendants.iter().all(|pid| !is_alive(*pid)));
}

/// Whoever starts the shim may block and ignore what it likes.
#[cfg(target_os = "linux")]
#[test]
fn a_server_blocks_and_ignores_no_signal() {
    use nix::sys::signal::SigSet;

    /// Those that have names: of the others the C library keeps some for itself.
    const NAMED: u64 = (1 << 31) - 1;

    let world = ServerBed::new();
    let show = "grep -E '^Sig(Blk|Ign)' /proc/$$/status";
    let mut shim = world.shim(20_000, "bash", &["-c", show]);
    // The mask belongs to a thread, and so does what this test does to its own.
    let output = std::thread::spawn(move || {
        SigSet::all().thread_block().unwrap();
        let words: Vec<_> = std::iter::once(shim.get_program()).chain(shim.get_args()).map(OsStr::to_owned).collect();
        shim = Command::new("bash");
        shim.args(["-c", "trap '' HUP INT QUIT TERM USR1 CHLD; exec \"$@\"", "bash"]).args(words);
        shim.stdin(Stdio::piped()).output().unwrap()
    });
    let output = output.join().unwrap();
    let shown = String::from_utf8(output.stdout).unwrap();
    let masks: Vec<u64> = shown
        .lines()
        .map(|line| u64::from_str_radix(line.split_once(':').unwrap().1.trim(), 16).unwrap() & NAMED)
        .collect();
    assert_eq!(masks, [0, 0], "{shown}{}", String::from_utf8_lossy(&output.stderr));
}

/// What a server writes to its standard error is in its log without what its variables hold that is secret, however the words are cut.
#[test]
fn a_log_has_no_secret() {
    let world = ServerBed::new();
    let write = "printf 'a hush-4711-' >&2; sleep 0.05; printf '0815 b\\nsecond line\\n' >&2; \
        head -c 400000 /dev/zero | tr '\\0' x >&2; printf ' hush-4711-0815\\nlast hush-4711-0815' >&2";
    let mut shim = world.shim(20_000, "sh", &["-c", write]);
    let output = shim.env("SHIM_SECRET", "hush-4711-0815\nsecond line").stdin(Stdio::piped()).output().unwrap();
    let log = String::from_utf8(output.stderr).unwrap();
    let (first, rest) = log.split_once('\n').unwrap();
    assert_eq!(first, "a [secret SHIM_SECRET] b");
    assert!(!log.contains("4711") && !log.contains("second line") && log.len() < 300_000, "{}", log.len());
    assert!(rest.contains("x [the rest of this line is left out]\n"), "{}", &rest[rest.len() - 100..]);
    assert!(log.ends_with("last [secret SHIM_SECRET]"), "{}", &log[log.len() - 100..]);
}

/// What a program that this thread starts finds among its keys.
#[cfg(target_os = "linux")]
fn keys(program: &mut Command) -> String {
    let output = program.stdin(Stdio::null()).output().unwrap();
    String::from_utf8(output.stdout).unwrap()
}

#[cfg(target_os = "linux")]
#[test]
fn a_server_has_none_of_the_keys_of_this_session() {
    use keyutils::keytypes::User;
    use keyutils::{Keyring, Permission};

    // A keyring belongs to a thread, and so does what this test does to its own.
    let found = std::thread::spawn(|| {
        let name = format!("ua-test-{}", std::process::id());
        let mut session = Keyring::join_anonymous_session()?;
        let mut key = session.add_key::<User, _, _>(name.as_str(), &b"ticket"[..])?;
        // Whoever does not have it does not see it.
        key.set_permissions(Permission::POSSESSOR_ALL)?;
        let mut cat = Command::new("cat");
        let here = keys(cat.arg("/proc/keys")).contains(&name);
        let below = keys(&mut ServerBed::new().shim(200, "cat", &["/proc/keys"])).contains(&name);
        Ok::<_, keyutils::Error>((here, below))
    });
    match found.join().unwrap() {
        Ok(found) => assert_eq!(found, (true, false)),
        // A container without keyrings; a test that cannot see its wall fails where walls are expected.
        Err(error) => assert_eq!(std::env::var_os("CI_NO_WALLS").as_deref(), Some("1".as_ref()), "{error}"),
    }
}

#[test]
fn a_server_that_ends_when_its_input_closes_is_not_hurried() {
    let world = ServerBed::new();
    let mut shim = world.shim(60_000, "cat", &[]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut input = shim.stdin.take().unwrap();
    input.write_all(b"through the shim\n").unwrap();
    let mut output = shim.stdout.take().unwrap();
    let mut line = [0; 17];
    output.read_exact(&mut line).unwrap();
    assert_eq!(&line, b"through the shim\n");
    drop(input);
    assert_eq!(shim.wait().unwrap().code(), Some(0));
}

#[test]
fn a_server_that_ends_first_gives_its_code_and_leaves_nobody_behind() {
    let world = ServerBed::new();
    let left = world.path("left.pid");
    let script = format!("sleep 1000 & echo $! > {left}; exit 7");
    let mut shim =
        world.shim(60_000, "sh", &["-c", &script]).stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    let input = shim.stdin.take().unwrap();
    assert_eq!(shim.wait().unwrap().code(), Some(7));
    assert!(!is_alive(pid_in(Path::new(&left))));
    assert!(!is_locked(&world.lock));
    drop(input);
}

#[test]
fn a_server_runs_in_the_shims_own_session() {
    let world = ServerBed::new();
    let near = world.path("near.pid");
    let fake = example("fake_server");
    let mut shim = world.shim(200, fake.to_str().unwrap(), &["--spawn", &near]).stdin(Stdio::piped()).spawn().unwrap();
    let session = |pid: i32| Process::find(pid).unwrap().session;
    let below = session(pid_in(Path::new(&near)));
    assert_eq!(below, i32::try_from(shim.id()).unwrap());
    assert_ne!(below, session(i32::try_from(std::process::id()).unwrap()));
    let record = world.record();
    assert_eq!((record.pid, record.server.as_deref(), record.command.as_str()), (below, Some("srv"), "fake_server"));
    drop(shim.stdin.take());
    shim.wait().unwrap();
}

#[test]
fn an_unknown_command_is_named() {
    let world = ServerBed::new();
    let shim = world.shim(200, "no-such-tool-server", &[]).stdin(Stdio::null()).output().unwrap();
    assert_eq!(shim.status.code(), Some(127));
    let said = String::from_utf8(shim.stderr).unwrap();
    assert!(said.starts_with("tool server shim: start `no-such-tool-server`: "), "{said}");
    assert!(!is_locked(&world.lock));
}

/// Its log is a file, and what keeps the server from being run may be that the disk is full.
#[cfg(target_os = "linux")]
#[test]
fn what_the_log_does_not_take_is_said_on_the_output() {
    let world = ServerBed::new();
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    let mut shim = world.shim(200, "no-such-tool-server", &[]);
    let shim = shim.stdin(Stdio::null()).stderr(full).output().unwrap();
    assert_eq!(shim.status.code(), Some(127));
    let said = String::from_utf8(shim.stdout).unwrap();
    assert!(said.starts_with("tool server shim: start `no-such-tool-server`: ") && said.ends_with('\n'), "{said}");
}

#[test]
fn a_generation_is_started_once() {
    let world = ServerBed::new();
    std::fs::write(&world.lock, "").unwrap();
    let shim = world.shim(200, "touch", &[&world.path("started")]).stdin(Stdio::null()).output().unwrap();
    assert_eq!(shim.status.code(), Some(70));
    assert!(!Path::new(&world.path("started")).exists());
}

#[tokio::test]
async fn a_server_whose_shim_was_killed_is_seen_until_it_is_fenced() {
    let world = ServerBed::new();
    let near = world.path("near.pid");
    let fake = example("fake_server");
    let server = ["-c", DEAF, fake.to_str().unwrap(), "--outlive-input", "--spawn", &near];
    let (mut runner, pipe) = runner();
    let mut shim = world.shim(200, "sh", &server).stdin(pipe).stdout(Stdio::null()).spawn().unwrap();
    let grandchild = pid_in(Path::new(&near));
    kill(&mut shim);
    kill(&mut runner);
    assert!(life::is_held(&world.lock).unwrap(), "nobody was there to end the server");

    let fenced = world.later().retire_all_orphans().await;

    assert_eq!(fenced, [("srv".to_owned(), GENERATION.to_owned(), Fence::Gone)]);
    assert!(!is_alive(grandchild));
    assert!(!world.lock.exists() && !life::path(&world.lock).exists());
}

/// Whatever a server does with what it finds open in it, its shim has the lock; and where the shim is killed as well, what has left its session and
/// cleared its variables is seen all the same.
#[tokio::test]
async fn a_server_gives_up_no_lock_and_writes_no_record() {
    let world = ServerBed::new();
    let (left, done) = (world.path("left.pid"), world.path("done"));
    let attack = "trap '' TERM INT HUP; for f in 3 4 5 6 7 8 9; do if [ -e /proc/self/fd/$f ]; then \
        flock -u $f; flock -x -n $f; echo mine >&$f; timeout 1 sh -c 'echo mine >/proc/self/fd/$0' $f; fi; done 2>/dev/null; \
        env -i setsid \"$0\" --linger \"$1\" </dev/null >/dev/null 2>&1 & echo done >\"$2\"; exec \"$0\" --outlive-input";
    let fake = example("fake_server");
    let (mut runner, pipe) = runner();
    let server = ["-c", attack, fake.to_str().unwrap(), &left, &done];
    let mut shim = world.shim(200, "sh", &server).stdin(pipe).stdout(Stdio::null()).spawn().unwrap();
    let left = pid_in(Path::new(&left));
    wait_for("the attack", || std::fs::read(&done).ok());
    assert!(is_locked(&world.lock), "the server gave up the lock of its shim");
    assert_eq!(world.record().pid, i32::try_from(shim.id()).unwrap(), "the server wrote the record");

    kill(&mut shim);
    kill(&mut runner);
    let later = world.later().with_patience(Duration::from_millis(300));
    let Fence::Alive { detail } = later.fence("srv", GENERATION).await else { panic!("one lives on") };
    assert!(detail.contains(&format!("process {left} ")), "{detail}");
    Process::find(left).unwrap().signal(Signal::KILL);
    assert_eq!(world.later().fence("srv", GENERATION).await, Fence::Gone);
    assert!(!life::path(&world.lock).exists());
}

#[tokio::test]
async fn fencing_ends_a_shim_that_still_lives_with_all_below_it() {
    let world = ServerBed::new();
    let (near, far) = (world.path("near.pid"), world.path("far.pid"));
    let fake = example("fake_server");
    let server = ["-c", DEAF, fake.to_str().unwrap(), "--outlive-input", "--spawn", &near, "--spawn-detached", &far];
    let (mut runner, pipe) = runner();
    let mut shim = world.shim(600_000, "sh", &server).stdin(pipe).stdout(Stdio::null()).spawn().unwrap();
    let descendants = [pid_in(Path::new(&near)), pid_in(Path::new(&far))];
    assert_eq!(world.later().fence("srv", GENERATION).await, Fence::Gone);
    assert!(descendants.iter().all(|pid| !is_alive(*pid)));
    assert_eq!(shim.wait().unwrap().code(), None, "killed");
    kill(&mut runner);
}
