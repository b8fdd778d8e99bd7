//! What a program of `run_command` can reach, and how much it may use (threat S8).
//!
//! The kernel keeps the walls, so these tests need one that has them. A test that cannot see its wall fails, unless `CI_NO_WALLS=1` says that
//! nobody expects one here; `.ci/run` repeats that as its last line.

#![expect(clippy::disallowed_methods, reason = "tests make the files that they look at")]

use std::collections::BTreeMap;
use std::net::{TcpListener, UdpSocket};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;
use ua_toolserver::{Confiner, Limits, Offers, Sandbox, Settings};

use super::{Came, TestServer};

fn confiner() -> Confiner {
    let program = std::env::current_exe().unwrap().with_file_name("../examples/stdio");
    Confiner {
        program: program.canonicalize().unwrap_or_else(|e| panic!("build the examples of ua-toolserver: {e}")),
        args: vec!["__confined".into()],
    }
}

/// What this kernel offers; `None`, and a word about it, where it is not all that a test needs.
fn offered(needs: impl Fn(&Offers) -> bool) -> Option<Offers> {
    let offers = confiner().offers().unwrap();
    if needs(&offers) {
        return Some(offers);
    }
    let is_expected = std::env::var_os("CI_NO_WALLS").is_some_and(|value| value == "1");
    assert!(is_expected, "this kernel does not offer what the test needs (CI_NO_WALLS=1 passes over it): {offers:?}");
    ua_testkit::skipped("this kernel does not offer the walls of programs");
    None
}

/// A server that confines programs; its workspace is `w` in `home`, which is the user's home.
async fn confined(home: TempDir, change: impl FnOnce(&mut Settings)) -> TestServer {
    let private = home.path().to_path_buf();
    TestServer::in_directory(home, |settings| {
        settings.enable_command = true;
        settings.confiner = Some(confiner());
        settings.command_private = vec![private];
        change(settings);
    })
    .await
}

async fn shell(world: &TestServer, script: &str) -> Value {
    world.call("run_command", json!({ "argv": ["bash", "-c", script], "timeout_seconds": 60 })).await.back()
}

fn text<'a>(ended: &'a Value, stream: &str) -> &'a str {
    ended[stream].as_str().unwrap().trim_end()
}

#[tokio::test]
async fn s8_a_program_reaches_nobody_over_the_network_unless_the_user_lets_it() {
    let Some(offers) = offered(|offers| offers.namespaces && offers.landlock > 0) else { return };
    let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
    let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
    tcp.set_nonblocking(true).unwrap();
    udp.set_nonblocking(true).unwrap();
    let (tcp_port, udp_port) = (tcp.local_addr().unwrap().port(), udp.local_addr().unwrap().port());
    let knocks = || {
        let mut buffer = [0; 8];
        (std::iter::from_fn(|| tcp.accept().ok()).count(), std::iter::from_fn(|| udp.recv(&mut buffer).ok()).count())
    };
    let script = format!(
        "echo x > /dev/tcp/127.0.0.1/{tcp_port} && echo tcp; echo x > /dev/udp/127.0.0.1/{udp_port} && echo udp; true"
    );
    let world = confined(TempDir::new().unwrap(), |_| {}).await;
    let ended = shell(&world, &script).await;
    assert_eq!((text(&ended, "stdout"), knocks()), ("", (0, 0)), "{offers:?}: {ended}");
    assert_eq!(ended.get("not_confined"), None);

    let world = confined(TempDir::new().unwrap(), |settings| settings.command_network = true).await;
    let ended = shell(&world, &script).await;
    assert_eq!((text(&ended, "stdout"), knocks()), ("tcp\nudp", (1, 1)), "{ended}");
}

#[tokio::test]
async fn s8_a_program_reads_the_system_and_writes_the_workspace_and_nothing_of_the_users() {
    if offered(|offers| offers.landlock > 0).is_none() {
        return;
    }
    let home = TempDir::new().unwrap();
    let at = |path: &str| home.path().join(path);
    for folder in [".ssh", "job/runs", "tools"] {
        std::fs::create_dir_all(at(folder)).unwrap();
    }
    let canary = "canary-4f1c";
    for file in [".ssh/id", "job/runs/runtime_state.db", "job/data.csv", "tools/lib.txt", "note"] {
        std::fs::write(at(file), format!("{canary} {file}")).unwrap();
    }
    let (root, job, tools) = (home.path().to_path_buf(), at("job"), at("tools"));
    let world = confined(home, |settings| {
        settings.command_private.push(job.join("runs"));
        settings.allow_roots = vec![job.clone()];
        settings.command_read = vec![tools.clone()];
    })
    .await;
    let root = root.display();
    // What the job and the user named is open, and nothing around it.
    let ended = shell(
        &world,
        &format!("cd {root}; cat .ssh/id note job/runs/*; ls; ls job/runs; cat job/data.csv tools/lib.txt"),
    )
    .await;
    assert_eq!(text(&ended, "stdout"), format!("{canary} job/data.csv{canary} tools/lib.txt"), "{ended}");
    // Nor by a way around.
    let ended = shell(
        &world,
        &format!("ln -s {root}/.ssh link; cat link/id /proc/self/root{root}/note; ln {root}/note hard; cat hard"),
    )
    .await;
    assert_eq!(text(&ended, "stdout"), "", "{ended}");
    let ended = shell(&world, "head -c 5 /etc/passwd; ls /usr >/dev/null && echo; cat /etc/shadow").await;
    assert_eq!(text(&ended, "stdout"), "root:", "{ended}");

    let outside = TempDir::new().unwrap();
    let victim = outside.path().join("victim");
    std::fs::write(&victim, "whole").unwrap();
    let script = format!(
        "echo in > kept; mkdir -p a/b; mv kept a/b/; echo t > $TMPDIR/t; cat $TMPDIR/t; \
         echo x > {victim}; rm -f {victim}; truncate -s 0 {victim}; mv {victim} here; touch {outside}/new /tmp/ua-s8-new {root}/job/new; true",
        victim = victim.display(),
        outside = outside.path().display(),
    );
    let ended = shell(&world, &script).await;
    assert_eq!((text(&ended, "stdout"), world.text("a/b/kept").as_str()), ("t", "in\n"), "{ended}");
    let left: Vec<PathBuf> = std::fs::read_dir(outside.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!((left, std::fs::read_to_string(&victim).unwrap().as_str()), (vec![victim], "whole"));
    assert!(!Path::new("/tmp/ua-s8-new").exists() && !job.join("new").exists());
    // Its temporary folder is gone with it.
    let ended = shell(&world, "echo $TMPDIR").await;
    assert!(text(&ended, "stdout").contains("ua-command-") && !Path::new(text(&ended, "stdout")).exists(), "{ended}");
}

#[tokio::test]
async fn s8_a_fork_bomb_is_capped_and_ends_with_its_program() {
    if offered(|offers| offers.namespaces && offers.processes).is_none() {
        return;
    }
    let world = confined(TempDir::new().unwrap(), |settings| settings.command_limits.processes = 310).await;
    // Each line is one process that was there at the same time as all before it; none ends by itself, and each is a session of its own.
    let script = "i=0; while [ $i -lt 600 ]; do setsid sleep 3017 & i=$((i+1)); echo $i; done; echo all";
    let ended = world.call("run_command", json!({ "argv": ["sh", "-c", script], "timeout_seconds": 120 })).await.back();
    let started = text(&ended, "stdout").lines().last().unwrap().parse::<usize>().unwrap();
    assert!((20..310).contains(&started), "{ended}");
    assert!(text(&ended, "stderr").to_lowercase().contains("fork"), "{ended}");
    assert_eq!(sleepers("3017"), 0);
}

/// How many processes of this machine sleep that long.
fn sleepers(span: &str) -> usize {
    let wanted = format!("sleep\0{span}\0").into_bytes();
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    processes.filter(|entry| std::fs::read(entry.path().join("cmdline")).is_ok_and(|line| line == wanted)).count()
}

#[tokio::test]
async fn s8_what_a_killed_program_started_is_killed_with_it() {
    if offered(|offers| offers.namespaces).is_none() {
        return;
    }
    let world = confined(TempDir::new().unwrap(), |_| {}).await;
    let arguments =
        json!({ "argv": ["bash", "-c", "setsid sleep 3018 & echo started; sleep 3018"], "timeout_seconds": 1 });
    let ended = world.call("run_command", arguments).await.back();
    assert_eq!((&ended["timed_out"], &ended["signal"], text(&ended, "stdout")), (&json!(true), &json!(9), "started"));
    let gone = async {
        while sleepers("3018") > 0 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), gone).await.unwrap();
}

#[tokio::test]
async fn s8_open_files_memory_and_sizes_are_capped() {
    let world = confined(TempDir::new().unwrap(), |settings| {
        settings.command_limits =
            Limits { open_files: 40, memory_mib: 300, file_mib: 1, cpu_seconds: 1, ..Limits::default() };
    })
    .await;
    let script =
        "for i in $(seq 3 60); do eval \"exec $i</dev/null\" || { echo stopped at $i; exit 1; }; done; echo all";
    let ended = shell(&world, script).await;
    assert!(!text(&ended, "stdout").contains("all"), "{ended}");
    let ended = shell(&world, "ulimit -n -v -f").await;
    assert_eq!(
        text(&ended, "stdout").split_whitespace().filter_map(|word| word.parse().ok()).collect::<Vec<u64>>(),
        [40, 300 * 1024, 1024]
    );
    let ended = shell(&world, "head -c 2000000 /dev/zero > big; stat -c %s big").await;
    assert_eq!(text(&ended, "stdout"), "1048576", "{ended}");
    let ended = shell(&world, "while :; do :; done").await;
    assert_eq!((&ended["timed_out"], &ended["signal"]), (&json!(false), &json!(9)), "{ended}");
}

#[tokio::test]
async fn s8_a_program_sees_no_environment_but_its_own_and_of_nobody_else() {
    let Some(offers) = offered(|offers| offers.landlock > 0) else { return };
    let world = confined(TempDir::new().unwrap(), |_| {}).await;
    let ended = world.call("run_command", json!({ "argv": ["env"] })).await.back();
    let mut names: Vec<&str> = text(&ended, "stdout").lines().map(|line| line.split('=').next().unwrap()).collect();
    names.sort_unstable();
    assert_eq!(names, ["HOME", "LANG", "PATH", "TMPDIR"], "{offers:?}");
    // The server's own environment is there for its user in /proc, and not for a program.
    let script = format!("tr '\\0' '\\n' < /proc/{}/environ", std::process::id());
    let ended = shell(&world, &script).await;
    assert_eq!(text(&ended, "stdout"), "", "{ended}");
    let why = if offers.own_proc { "No such file" } else { "denied" };
    assert!(text(&ended, "stderr").contains(why), "{ended}");
}

#[tokio::test]
async fn s8_a_program_sees_no_process_but_its_own_and_no_file_of_its_parents() {
    if offered(|offers| offers.own_proc).is_none() {
        return;
    }
    let world = confined(TempDir::new().unwrap(), |_| {}).await;
    // The first process inside, the shell, and what counts.
    let ended =
        shell(&world, "ls -d /proc/[0-9]* | wc -l; ls /proc/$$/fd; echo $$ $(basename $(readlink /proc/self))").await;
    let said: Vec<&str> = text(&ended, "stdout").lines().collect();
    assert!(said[0].parse::<u32>().unwrap() <= 6, "{ended}");
    assert_eq!(&said[1..4], ["0", "1", "2"], "{ended}");
    assert_eq!(said.len(), 5, "nothing else is open: {ended}");
}

/// Ways to end another process of the user, to slow it down, and to its shared memory, each with what came of it.
const REACHES: &str = include_str!("sandbox/reaches.py");

#[tokio::test]
async fn s8_a_program_without_namespaces_reaches_no_other_process() {
    // Signals are Landlock's from this version on.
    let Some(offers) = offered(|offers| offers.calls && offers.landlock >= 6) else { return };
    let only_files = Offers {
        landlock: offers.landlock,
        calls: true,
        why_no_namespaces: Some("no".to_owned()),
        ..Offers::default()
    };
    for offers in [Offers { traced: offers.traced, ..only_files.clone() }, only_files] {
        let mut victim = Command::new("sleep").arg("3022").spawn().unwrap();
        let world = confined(TempDir::new().unwrap(), |settings| settings.confiner = Some(poor(&offers))).await;
        let script = json!({ "argv": [PYTHON, "-c", REACHES, victim.id().to_string()] });
        let ended = world.call("run_command", script).await.back();
        let left = victim.try_wait().unwrap();
        victim.kill().unwrap();
        victim.wait().unwrap();
        assert_eq!(left, None, "the process of the user ended: {ended}");
        assert_eq!((text(&ended, "stdout"), &ended["exit_code"]), ("own: ok", &json!(0)), "{ended}");
        assert!(ended["not_confined"].to_string().contains("no namespaces: programs have no System V IPC"), "{ended}");
    }
    also_as_another_user("s8_a_program_without_namespaces_reaches_no_other_process");
}

#[tokio::test]
async fn s8_results_are_the_programs_own() {
    let world = confined(TempDir::new().unwrap(), |_| {}).await;
    let ended = shell(&world, "echo out; echo err >&2; exit 70").await;
    assert_eq!((text(&ended, "stdout"), text(&ended, "stderr"), &ended["exit_code"]), ("out", "err", &json!(70)));
    let ended = shell(&world, "kill -9 $$").await;
    assert_eq!((&ended["exit_code"], &ended["signal"]), (&json!(null), &json!(9)));
    // It cannot say that it was never started.
    let lie = r#"lie='{"refused":{"why":"x"}}'; echo $lie; echo $lie >&0; read -r _ _ _ parent _ < /proc/self/stat; echo $lie > /proc/$parent/fd/0
        read -r _ _ _ keeper _ < /proc/$parent/stat; echo $lie > /proc/$keeper/fd/0; exit 3"#;
    if confiner().offers().unwrap().landlock > 0 {
        let ended = shell(&world, lie).await;
        assert_eq!(ended["exit_code"], 3, "{ended}");
    }
    world.call("run_command", json!({ "argv": ["no-such-program"] })).await.refused("could not be started");
}

#[tokio::test]
async fn s8_a_user_who_requires_the_walls_gets_no_program_without_them() {
    let required = |settings: &mut Settings| settings.command_sandbox = Sandbox::Required;
    // A program that confines nothing offers nothing.
    let nothing = Confiner {
        program: "/bin/echo".into(),
        args: vec![
            r#"{"landlock":0,"namespaces":false,"why_no_namespaces":"no","processes":false}"#.into(),
            "#".into(),
        ],
    };
    let refused = confined(TempDir::new().unwrap(), |settings| {
        required(settings);
        settings.confiner = None;
    })
    .await;
    refused.call("run_command", json!({ "argv": ["true"] })).await.refused("cannot be confined");
    let refused = confined(TempDir::new().unwrap(), |settings| {
        required(settings);
        settings.confiner = Some(nothing.clone());
    })
    .await;
    let came = refused.call("run_command", json!({ "argv": ["true"] })).await;
    assert!(matches!(&came, Came::Refused(why) if why.contains("was not started")), "{came:?}");
    if offered(|offers| offers.namespaces && offers.landlock > 0).is_some() {
        let world = confined(TempDir::new().unwrap(), required).await;
        assert_eq!(shell(&world, "exit 4").await["exit_code"], 4);
    }
}

#[tokio::test]
async fn s8_what_is_missing_is_said_once() {
    let world = TestServer::with(|settings| settings.enable_command = true).await;
    let ended = world.call("run_command", json!({ "argv": ["true"] })).await.back();
    assert!(ended["not_confined"][0].as_str().unwrap().contains("nothing confines it"), "{ended}");
    let ended = world.call("run_command", json!({ "argv": ["true"] })).await.back();
    assert_eq!(ended.get("not_confined"), None);
    let world = TestServer::with(|settings| {
        settings.enable_command = true;
        settings.command_sandbox = Sandbox::Off;
    })
    .await;
    assert_eq!(world.call("run_command", json!({ "argv": ["true"] })).await.back().get("not_confined"), None);
}

/// Every way to change modes, owners, times and attributes of a file.
const CHANGES: &str = include_str!("sandbox/changes.py");
const PYTHON: &str = "/usr/bin/python3";
const EPERM: i32 = 1;
const ENODATA: i32 = 61;
const ENOSYS: i32 = 38;
/// What a file system says that has no such thing: ENOTTY, EOPNOTSUPP.
const NOT_HERE: [i32; 2] = [25, 95];

/// What each way said about a file.
async fn changes(world: &TestServer, file: &Path, opened: bool) -> BTreeMap<String, i32> {
    let mut argv = vec![PYTHON.to_owned(), "-c".to_owned(), CHANGES.to_owned(), file.display().to_string()];
    argv.extend(opened.then(|| "opened".to_owned()));
    let ended = world.call("run_command", json!({ "argv": argv, "timeout_seconds": 60 })).await.back();
    serde_json::from_str(text(&ended, "stdout")).unwrap_or_else(|_| panic!("{ended}"))
}

/// The user's home with a file that a program may not open and one that it may read. Each change of any kind changes the time of the last
/// change, which nobody can set.
struct Files {
    closed: PathBuf,
    open: PathBuf,
    before: [(i64, i64, u32); 2],
}

impl Files {
    fn made_in(home: &Path) -> Self {
        let (closed, open) = (home.join(".ssh/id"), home.join("tools/readable"));
        for file in [&closed, &open] {
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(file, "x").unwrap();
            std::fs::set_permissions(file, std::fs::Permissions::from_mode(0o600)).unwrap();
        }
        let before = [&closed, &open].map(|file| Self::stamp(file));
        Self { closed, open, before }
    }

    fn stamp(file: &Path) -> (i64, i64, u32) {
        let meta = std::fs::symlink_metadata(file).unwrap();
        (meta.ctime(), meta.ctime_nsec(), meta.mode())
    }

    /// Nothing changes them.
    async fn hold(&self, world: &TestServer) {
        for (file, opened) in [(&self.closed, false), (&self.open, true)] {
            let said = changes(world, file, opened).await;
            assert!(said.len() > 30, "{said:?}");
            assert!(said.values().all(|errno| *errno != 0), "{}: {said:?}", file.display());
        }
        assert_eq!([&self.closed, &self.open].map(|file| Self::stamp(file)), self.before);
    }
}

/// A server whose user's home has these files.
async fn with_files(change: impl FnOnce(&mut Settings)) -> (TestServer, Files) {
    let home = TempDir::new().unwrap();
    let files = Files::made_in(home.path());
    let tools = home.path().join("tools");
    let world = confined(home, |settings| {
        settings.command_read = vec![tools];
        change(settings);
    })
    .await;
    (world, files)
}

/// The same as another user, when root runs these tests: `name` is the test to repeat, whose server and program this user may run.
fn also_as_another_user(name: &str) {
    if !rustix::process::geteuid().is_root() {
        return ua_testkit::skipped("only root can be another user as well");
    }
    let folder = TempDir::new().unwrap();
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let test = std::env::current_exe().unwrap();
    for (from, to) in [(test, "deps/it"), (confiner().program, "examples/stdio")] {
        let to = folder.path().join(to);
        std::fs::create_dir_all(to.parent().unwrap()).unwrap();
        std::fs::copy(&from, &to).unwrap();
    }
    let output = Command::new("setpriv")
        .args(["--reuid=65534", "--regid=65534", "--clear-groups", "--inh-caps=-all", "--"])
        .arg(folder.path().join("deps/it"))
        .args([&format!("wire::sandbox::{name}"), "--exact", "--nocapture"])
        .current_dir("/")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && said.contains("1 passed"),
        "{said}\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

#[tokio::test]
async fn s8_a_program_changes_no_modes_owners_times_or_attributes_but_of_what_it_may_write() {
    if offered(|offers| offers.mounts && offers.landlock > 0).is_none() {
        return;
    }
    let (world, files) = with_files(|_| {}).await;
    files.hold(&world).await;
    // The same works inside.
    let own = world.workspace().join("own");
    std::fs::write(&own, "x").unwrap();
    let said = changes(&world, &own, true).await;
    let refused: BTreeMap<_, _> = said
        .iter()
        // This kernel or file system may lack some; what was never set cannot be removed then.
        .filter(|(way, errno)| {
            let is_of_attributes = way.contains("attr") || way.contains("SET");
            !(**errno == 0
                || **errno == ENOSYS
                || is_of_attributes && [&NOT_HERE[..], &[ENODATA]].concat().contains(errno))
        })
        .collect();
    assert!(refused.is_empty() && said["fchmod"] == 0 && said["utimensat"] == 0, "{refused:?}");
    assert_eq!(std::fs::symlink_metadata(&own).unwrap().mode() & 0o777, 0o755);
    // Nor with what a program can take or make: mounts, namespaces, other names.
    let script = format!(
        "import ctypes\nl=ctypes.CDLL(None,use_errno=True)\n\
         attr=(ctypes.c_uint64*4)(0,1,0,0)\n\
         def c(n,*a): r=l.syscall(n,*a); print(n, ctypes.get_errno() if r<0 else 0)\n\
         c(442,-100,b'/',0x8000,attr,32); c(428,-100,b'/',1); l.unshare(0x10020000); c(442,-100,b'/',0x8000,attr,32)\n\
         print('chmod', l.chmod({closed:?}.encode(),0o777), l.chmod(b'/proc/1/root'+{closed:?}.encode(),0o777))",
        closed = files.closed.display().to_string(),
    );
    let ended = world.call("run_command", json!({ "argv": [PYTHON, "-c", script] })).await.back();
    assert_eq!(text(&ended, "stdout"), "442 1\n428 1\n442 1\nchmod -1 -1", "{ended}");
    files.hold(&world).await;
    also_as_another_user("s8_a_program_changes_no_modes_owners_times_or_attributes_but_of_what_it_may_write");
}

/// A confiner that says that the kernel offers this much, and confines by it.
fn poor(offers: &Offers) -> Confiner {
    let script = format!(
        "if [ \"$1\" = probe ]; then echo '{}'; else exec '{}' __confined \"$@\"; fi",
        serde_json::to_string(offers).unwrap(),
        confiner().program.display()
    );
    Confiner { program: "/bin/sh".into(), args: vec!["-c".into(), script.into(), "sh".into()] }
}

#[tokio::test]
async fn s8_where_mounts_cannot_be_closed_a_program_changes_no_modes_owners_times_or_attributes_at_all() {
    let Some(offers) = offered(|offers| offers.calls && offers.landlock > 0) else { return };
    let only_files = Offers {
        landlock: offers.landlock,
        calls: true,
        why_no_namespaces: Some("no".to_owned()),
        ..Offers::default()
    };
    for offers in [Offers { mounts: false, ..offers }, only_files] {
        let poor = poor(&offers);
        let (world, files) = with_files(|settings| settings.confiner = Some(poor)).await;
        let ended = shell(&world, "echo x > own; cat own; echo > /dev/null").await;
        assert_eq!((text(&ended, "stdout"), &ended["exit_code"]), ("x", &json!(0)), "{ended}");
        assert!(ended["not_confined"].to_string().contains("no private mounts"), "{ended}");
        files.hold(&world).await;
        let said = changes(&world, &world.workspace().join("own"), true).await;
        let is_refused = |errno: &i32| *errno == EPERM || NOT_HERE.contains(errno);
        assert!(said.values().all(is_refused), "{offers:?}: {said:?}");
    }
    also_as_another_user(
        "s8_where_mounts_cannot_be_closed_a_program_changes_no_modes_owners_times_or_attributes_at_all",
    );
}

/// The weak form with a keeper that traces; `None` where programs cannot be traced.
fn traced() -> Option<Confiner> {
    let offers = offered(|offers| offers.calls && offers.landlock > 0)?;
    assert!(offers.traced || cfg!(not(target_arch = "x86_64")), "{offers:?}");
    let only_files = Offers {
        landlock: offers.landlock,
        calls: true,
        traced: true,
        why_no_namespaces: Some("no".to_owned()),
        ..Offers::default()
    };
    offers.traced.then(|| poor(&only_files))
}

#[tokio::test]
async fn s8_where_mounts_cannot_be_closed_the_keeper_changes_what_a_program_may_write_and_nothing_else() {
    let Some(traced) = traced() else { return };
    let (world, files) = with_files(|settings| settings.confiner = Some(traced)).await;
    let ended = world.call("run_command", json!({ "argv": ["true"] })).await.back();
    let told = ended["not_confined"].to_string();
    assert!(told.contains("no private mounts: programs cannot change extended attributes"), "{ended}");
    files.hold(&world).await;
    let own = world.workspace().join("own");
    std::fs::write(&own, "x").unwrap();
    let said = changes(&world, &own, true).await;
    let is_of_attributes = |way: &str| way.contains("attr") || way.contains("SET");
    let wrong: BTreeMap<_, _> = said
        .iter()
        .filter(|(way, errno)| {
            let is_right = if is_of_attributes(way) { NOT_HERE.contains(errno) } else { **errno == 0 };
            !is_right && **errno != ENOSYS
        })
        .collect();
    assert!(wrong.is_empty() && said["fchmod"] == 0 && said["utimensat"] == 0, "{wrong:?}");
    assert_eq!(std::fs::symlink_metadata(&own).unwrap().mode() & 0o7777, 0o755);
    // Ordinary programs work, and end with theirs.
    let ended = shell(&world, ORDINARY).await;
    let expected = format!("{}\n640 915148800\nt", rustix::process::geteuid().as_raw());
    assert_eq!((text(&ended, "stdout"), &ended["exit_code"]), (expected.as_str(), &json!(0)), "{ended}");
    let ended = shell(&world, "kill -TERM $$").await;
    assert_eq!((&ended["exit_code"], &ended["signal"]), (&json!(null), &json!(15)), "{ended}");
    let ended = shell(&world, "trap 'echo caught; exit 3' USR1; kill -USR1 $$; sleep 100").await;
    assert_eq!((text(&ended, "stdout"), &ended["exit_code"]), ("caught", &json!(3)), "{ended}");
    // One that stops itself goes on, and does not outlive the program.
    let script = "setsid sh -c 'kill -STOP $$; echo on > on; exec sleep 3021' & until [ -s on ]; do :; done; exit 5";
    let ended = shell(&world, script).await;
    assert_eq!(ended["exit_code"], 5, "{ended}");
    let gone = async {
        while sleepers("3021") > 0 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), gone).await.unwrap();
    also_as_another_user(
        "s8_where_mounts_cannot_be_closed_the_keeper_changes_what_a_program_may_write_and_nothing_else",
    );
}

/// Ways to have the keeper change something else than it judged.
const RACES: &str = include_str!("sandbox/races.py");

#[tokio::test]
async fn s8_what_the_keeper_judged_is_what_it_changes() {
    let Some(traced) = traced() else { return };
    let (world, files) = with_files(|settings| settings.confiner = Some(traced)).await;
    let (closed, open) = (files.closed.display().to_string(), files.open.display().to_string());
    let ended =
        world.call("run_command", json!({ "argv": [PYTHON, "-c", RACES, closed, open], "timeout_seconds": 60 }));
    let ended = ended.await.back();
    let said: Value = serde_json::from_str(text(&ended, "stdout")).unwrap_or_else(|_| panic!("{ended}"));
    // Each has to have had both answers, or nothing was raced for.
    for race in ["memory", "link", "folder"] {
        assert!(said[race]["done"].as_u64() > Some(0) && said[race]["refused"].as_u64() > Some(0), "{said}");
    }
    for (way, errno) in said["refused"].as_object().unwrap() {
        assert!([1, 9, 14, 22, 36, 38].contains(&errno.as_i64().unwrap()), "{way}: {said}");
    }
    assert_eq!(said["page_end"], 0, "{said}");
    files.hold(&world).await;
    also_as_another_user("s8_what_the_keeper_judged_is_what_it_changes");
}

#[tokio::test]
async fn s8_attributes_of_a_file_are_read_by_who_may_open_it() {
    if offered(|offers| offers.calls && offers.landlock > 0).is_none() {
        return;
    }
    let (world, files) = with_files(|_| {}).await;
    let python = "import os,sys\nfor f in (sys.argv[1], '/proc/self/fd/%d' % os.open(sys.argv[1], os.O_PATH)):\n\
        \x20 for g in (lambda: os.getxattr(f,'user.a'), lambda: os.listxattr(f)):\n\
        \x20   try: print('GOT', g())\n\
        \x20   except OSError as e: print(e.errno)";
    let closed = files.closed.display().to_string();
    let ended = world.call("run_command", json!({ "argv": [PYTHON, "-c", python, closed] })).await.back();
    assert_eq!(text(&ended, "stdout"), "95\n95\n95\n95", "{ended}");
    let opened = "import os\nf=os.open('a',os.O_CREAT|os.O_RDWR)\ntry:\n  os.setxattr(f,'user.a',b'1'); print(os.getxattr(f,'user.a'))\n\
        except OSError as e: print(e.errno)";
    let ended = world.call("run_command", json!({ "argv": [PYTHON, "-c", opened] })).await.back();
    assert!(["b'1'", "95"].contains(&text(&ended, "stdout")), "{ended}");
}

/// What ordinary programs do in a workspace.
const ORDINARY: &str = "set -e; id -u; mkdir d; echo 1 > d/f; chmod 640 d/f; touch -d 1999-01-01 d/f; tar cf t.tar d; mkdir o; \
    tar xpf t.tar -C o; cp -p o/d/f g; stat -c '%a %Y' g; echo t > $TMPDIR/t; chmod 600 $TMPDIR/t; mv $TMPDIR/t .; cat t | cat; \
    echo > /dev/null; touch g; chmod +x g; test -x g; \
    if command -v git > /dev/null; then git init -q r; cd r; git config user.email a@b; git config user.name a; \
    echo 1 > f; git add f; git commit -qm x; git status --short; fi";

#[tokio::test]
async fn s8_a_confined_program_still_works_as_its_user() {
    if offered(|offers| offers.mounts && offers.landlock > 0).is_none() {
        return;
    }
    let (world, _files) = with_files(|_| {}).await;
    let ended = shell(&world, ORDINARY).await;
    let expected = format!("{}\n640 915148800\nt", rustix::process::geteuid().as_raw());
    assert_eq!((text(&ended, "stdout"), &ended["exit_code"]), (expected.as_str(), &json!(0)), "{ended}");
    let ended = shell(&world, "mount -t tmpfs x . && echo mounted; unshare -m true && echo unshared; true").await;
    assert_eq!(text(&ended, "stdout"), "", "{ended}");
    also_as_another_user("s8_a_confined_program_still_works_as_its_user");
}

/// Every set of capabilities, and every one by which something outside could be reached, tried.
const RIGHTS: &str = include_str!("sandbox/rights.py");

/// Of what root may do besides, a program of root keeps that its own files open whatever their modes say (`CAP_DAC_OVERRIDE`), in each of the ways
/// in which programs are started; a program of anybody else keeps nothing, however its user came by it.
#[tokio::test]
async fn s8_a_program_keeps_no_capability_that_reaches_out_of_its_walls() {
    let Some(offers) = offered(|offers| offers.calls && offers.landlock > 0) else { return };
    let alone = Offers {
        landlock: offers.landlock,
        calls: true,
        why_no_namespaces: Some("no".to_owned()),
        ..Offers::default()
    };
    let kept = if rustix::process::geteuid().is_root() { 1 << 1 } else { 0 };
    for offers in [offers.clone(), Offers { traced: offers.traced, ..alone.clone() }, alone] {
        let (world, _files) = with_files(|settings| settings.confiner = Some(poor(&offers))).await;
        let ended = world.call("run_command", json!({ "argv": [PYTHON, "-c", RIGHTS] })).await.back();
        let said: BTreeMap<String, Value> =
            serde_json::from_str(text(&ended, "stdout")).unwrap_or_else(|_| panic!("{ended}"));
        for (name, value) in &said {
            match name.as_str() {
                // Who is not root gets nothing by `exec`, whatever this says.
                "CapBnd" if kept == 0 => {}
                "CapBnd" | "CapPrm" | "CapEff" => assert_eq!(*value, json!(kept), "{name}: {ended}"),
                "CapInh" | "CapAmb" => assert_eq!(*value, json!(0), "{name}: {ended}"),
                _ => assert_ne!(*value, json!(0), "{name} was possible: {ended}"),
            }
        }
        assert!(said.len() > 12, "{ended}");
    }
    also_as_another_user("s8_a_program_keeps_no_capability_that_reaches_out_of_its_walls");
}
