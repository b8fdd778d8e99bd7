//! The shim against real processes.

use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tempfile::TempDir;
use ua_core::RunId;
use ua_dispatch::Fence;

use super::{DEAF, example, is_alive, is_locked, pid_in, wait_for};
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

#[test]
fn a_generation_is_started_once() {
    let world = ServerBed::new();
    std::fs::write(&world.lock, "").unwrap();
    let shim = world.shim(200, "touch", &[&world.path("started")]).stdin(Stdio::null()).output().unwrap();
    assert_eq!(shim.status.code(), Some(70));
    assert!(!Path::new(&world.path("started")).exists());
}

#[tokio::test]
async fn a_server_whose_shim_was_killed_keeps_the_lock_until_it_is_fenced() {
    let world = ServerBed::new();
    let near = world.path("near.pid");
    let fake = example("fake_server");
    let server = ["-c", DEAF, fake.to_str().unwrap(), "--outlive-input", "--spawn", &near];
    let (mut runner, pipe) = runner();
    let mut shim = world.shim(200, "sh", &server).stdin(pipe).stdout(Stdio::null()).spawn().unwrap();
    let grandchild = pid_in(Path::new(&near));
    kill(&mut shim);
    kill(&mut runner);
    assert!(is_locked(&world.lock), "nobody was there to end the server");

    let fenced = world.later().retire_all_orphans().await;

    assert_eq!(fenced, [("srv".to_owned(), GENERATION.to_owned(), Fence::Gone)]);
    assert!(!is_alive(grandchild));
    assert!(!world.lock.exists());
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
