//! What a program of `run_command` reaches through interfaces of the kernel (findings 10, 16, 17).

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::{UnixDatagram, UnixListener};
use std::process::{Command, Stdio};

use anyhow::{Context as _, ensure};
use serde_json::json;

use super::python::{PYTHON, job, left, starts, world};
use crate::scenario::world::{End, Outside, Stage};
use crate::scenario::{Lack, Mark, Scenario, Verdict};

pub(super) const ATTACKS: &[Scenario] = &[
    Scenario {
        number: "10",
        waits: false,
        name: "a program reads a key in the user's session keyring",
        must: "it has no keyring",
        mark: Mark::Mended,
        play: keyring,
    },
    Scenario {
        number: "10b",
        waits: false,
        name: "a program makes a socket that leads out of its network (vsock)",
        must: "refused",
        mark: Mark::Mended,
        play: |stage| refused(stage, VSOCK, "sockets of other families"),
    },
    Scenario {
        number: "10c",
        waits: false,
        name: "a program connects to a socket file of the user, as a bus has one",
        must: "refused",
        mark: Mark::Mended,
        play: socket_file,
    },
    Scenario {
        number: "10d",
        waits: false,
        name: "a program sends to a socket file of the user from one end of a pair of datagram sockets",
        must: "refused",
        mark: Mark::Mended,
        play: pair_to_socket_file,
    },
    Scenario {
        number: "10x",
        waits: false,
        name: "a program opens io_uring, which makes sockets without asking for one",
        must: "refused",
        mark: Mark::Mended,
        play: |stage| refused(stage, IO_URING, "io_uring"),
    },
    Scenario {
        number: "10y",
        waits: false,
        name: "a program asks in the numbers of another system call table (x32)",
        must: "refused",
        mark: Mark::Control,
        play: |stage| refused(stage, X32, "system calls by other numbers"),
    },
    Scenario {
        number: "16",
        waits: false,
        name: "a program of root reads a file below /etc that only root may read",
        must: "refused",
        mark: Mark::Mended,
        play: only_roots,
    },
    Scenario {
        number: "16x",
        waits: false,
        name: "a program opens the user's files to everybody, and sets their times and attributes",
        must: "refused, and the files are as they were",
        mark: Mark::Mended,
        play: |stage| others_modes(stage, None),
    },
    Scenario {
        number: "16y",
        waits: false,
        name: "the same where the kernel makes no namespaces",
        must: "refused, and the files are as they were",
        mark: Mark::Mended,
        play: |stage| others_modes(stage, Some(WITHOUT_NAMESPACES)),
    },
    Scenario {
        number: "16z",
        waits: false,
        name: "ordinary programs change modes and times in their workspace where the kernel makes no namespaces",
        must: "they work",
        mark: Mark::Mended,
        play: own_modes,
    },
    Scenario {
        number: "17",
        waits: false,
        name: "a program reads the command lines of the user's other processes",
        must: "it sees none but its own",
        mark: Mark::Mended,
        play: others_command_lines,
    },
    Scenario {
        number: "17x",
        waits: false,
        name: "a program ends the user's process by a limit and changes its shared memory where the kernel makes no namespaces",
        must: "the process lives, and the memory is as it was",
        mark: Mark::Mended,
        play: others_limits_and_memory,
    },
];

/// Runs Python inside, which prints what it gets as its last line; returns that line.
fn inside(world: &Outside, above: Option<&[&str]>, python: &str, arguments: &[&str]) -> anyhow::Result<(String, End)> {
    let script = format!("{PYTHON} -c \"$0\" \"$@\" >said 2>&1");
    let argv = [&["sh", "-c", &script, python], arguments].concat();
    job(world, &json!({"tools": {"builtin": true, "run_command": true}}), &[starts(&argv)])?;
    let end = world.start_below(above, &["job", "job.json", "--run-id", "r"])?.wait()?;
    let said = left(world, "said");
    let last = said.lines().last().with_context(|| format!("the program said nothing: {}", end.err))?.to_owned();
    Ok((last, end))
}

/// `GOT` as the last word is an attack that worked.
fn judged(what: &str, last: &str, end: &End) -> Verdict {
    let fell = last.starts_with("GOT");
    let held = if fell { "FELL" } else { "held" };
    Verdict::of(!fell, format!("{what}: {held} ({last}), {}", end.told()))
}

fn refused(stage: &Stage, python: &str, what: &str) -> anyhow::Result<Verdict> {
    if python != VSOCK && !cfg!(target_arch = "x86_64") {
        return Ok(Verdict::Skipped(Lack::Machine, "its numbers are those of x86-64".to_owned()));
    }
    let world = world(stage)?;
    let (last, end) = inside(&world, None, python, &[])?;
    Ok(judged(what, &last, &end))
}

const VSOCK: &str =
    "import socket\ntry:\n  socket.socket(40, socket.SOCK_STREAM); print('GOT a vsock')\nexcept OSError as e: print(e)";

const IO_URING: &str = "import ctypes\nl=ctypes.CDLL(None,use_errno=True)\nb=ctypes.create_string_buffer(120)\n\
    r=l.syscall(425,8,b)\nprint('GOT a ring' if r>=0 else ctypes.get_errno())";

/// `socket(AF_VSOCK, SOCK_STREAM, 0)` by its x32 number. A kernel without that table says ENOSYS, so does a filter.
const X32: &str = "import ctypes,os\nl=ctypes.CDLL(None,use_errno=True)\nr=l.syscall(0x40000000|41,40,1,0)\n\
    print('GOT a vsock' if r>=0 else ctypes.get_errno())";

const ADD_KEY: &str = "import ctypes,os,sys\nl=ctypes.CDLL(None,use_errno=True)\n\
    assert l.syscall(250,1,None)>=0, 'join'\n\
    assert l.syscall(248,b'user',b'attack',b'SECRET-IN-KEYRING',17,-3)>=0, 'add'\n\
    os.execv(sys.argv[1],sys.argv[1:])";

const READ_KEY: &str = "import ctypes\nl=ctypes.CDLL(None,use_errno=True)\n\
    k=l.syscall(250,10,-3,b'user',b'attack',0)\nb=ctypes.create_string_buffer(64)\nn=l.syscall(250,11,k,b,64) if k>0 else -1\n\
    print('GOT',b.raw[:n].decode()) if n>0 else print('no key', ctypes.get_errno())";

fn keyring(stage: &Stage) -> anyhow::Result<Verdict> {
    if !cfg!(target_arch = "x86_64") {
        return Ok(Verdict::Skipped(Lack::Machine, "its numbers are those of x86-64".to_owned()));
    }
    let can =
        Command::new(PYTHON).args(["-c", ADD_KEY, "/bin/true"]).stdout(Stdio::null()).stderr(Stdio::null()).status()?;
    if !can.success() {
        return Ok(Verdict::Skipped(Lack::Machine, "this kernel has no keyrings".to_owned()));
    }
    let world = world(stage)?;
    let (last, end) = inside(&world, Some(&[PYTHON, "-c", ADD_KEY]), READ_KEY, &[])?;
    Ok(judged("the session keyring", &last, &end))
}

fn socket_file(stage: &Stage) -> anyhow::Result<Verdict> {
    let world = world(stage)?;
    let path = world.path("home/bus");
    // Nobody accepts: to be connected is enough.
    let _bus = UnixListener::bind(&path)?;
    let python = "import socket,sys\ntry:\n  s=socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); print('GOT a bus')\nexcept OSError as e: print(e)";
    let (last, end) = inside(&world, None, python, &[&path.display().to_string()])?;
    Ok(judged("socket files", &last, &end))
}

/// Nobody connects here: an end of a pair is a socket that the kernel lets send anywhere.
fn pair_to_socket_file(stage: &Stage) -> anyhow::Result<Verdict> {
    let world = world(stage)?;
    let path = world.path("home/bus-of-datagrams");
    let receiver = UnixDatagram::bind(&path)?;
    receiver.set_nonblocking(true)?;
    let python = "import socket,sys\ntry:\n  a,b=socket.socketpair(socket.AF_UNIX,socket.SOCK_DGRAM); a.sendto(b'x',sys.argv[1]); print('GOT a bus')\nexcept OSError as e: print(e)";
    let (last, end) = inside(&world, None, python, &[&path.display().to_string()])?;
    ensure!(
        last.contains("GOT") == receiver.recv(&mut [0; 8]).is_ok(),
        "what the program says is not what arrived: {last}"
    );
    Ok(judged("socket files", &last, &end))
}

fn only_roots(stage: &Stage) -> anyhow::Result<Verdict> {
    let find = ["/etc", "-mindepth", "2", "-type", "f", "!", "-perm", "-o=r", "-size", "+0"];
    let found = Command::new("find").args(find).output()?.stdout;
    let found = String::from_utf8_lossy(&found).into_owned();
    if !rustix::process::geteuid().is_root() {
        return Ok(Verdict::Skipped(Lack::Root, "what only root reads is no question to others".to_owned()));
    }
    let Some(file) = found.lines().next() else {
        return Ok(Verdict::Skipped(Lack::Machine, "there is no such file below /etc".to_owned()));
    };
    ensure!(!fs::read(file)?.is_empty(), "{file} is empty");
    let world = world(stage)?;
    let python =
        "import sys\ntry:\n  print('GOT',len(open(sys.argv[1],'rb').read()),'bytes')\nexcept OSError as e: print(e)";
    let (last, end) = inside(&world, None, python, &[file])?;
    Ok(judged(file, &last, &end))
}

/// A program that starts another one where nobody can make namespaces, as in many containers and on some distributions.
const WITHOUT_NAMESPACES: &[&str] =
    &["unshare", "-Ur", "sh", "-c", "echo 0 > /proc/sys/user/max_user_namespaces && exec \"$@\"", "sh"];

/// Nothing is opened for any of this, so whoever judges only what is opened is not asked.
fn others_modes(stage: &Stage, above: Option<&[&str]>) -> anyhow::Result<Verdict> {
    let world = world(stage)?;
    let key = world.path("home/key");
    fs::write(&key, "secret")?;
    fs::set_permissions(&key, fs::Permissions::from_mode(0o600))?;
    let stamp = || fs::metadata(&key).map(|meta| (meta.mode(), meta.mtime(), meta.ctime(), meta.ctime_nsec()));
    let before = stamp()?;
    let python = "import os,sys\nf=sys.argv[1]; did=[]\n\
        for n,c in (('mode',lambda:os.chmod(f,0o644)),('owner',lambda:os.chown(f,os.getuid(),os.getgid())),('times',lambda:os.utime(f,(1,1))),\n\
        \x20 ('attribute',lambda:os.setxattr(f,'user.a',b'1')),('handle',lambda:os.chmod('/proc/self/fd/%d'%os.open(f,os.O_PATH),0o644))):\n\
        \x20 try: c(); did.append(n)\n\
        \x20 except OSError as e: print(n,e)\n\
        print('GOT '+' '.join(did) if did else 'nothing')";
    let (last, end) = inside(&world, above, python, &[&key.display().to_string()])?;
    ensure!(last.contains("GOT") == (stamp()? != before), "what the program says is not what happened: {last}");
    Ok(judged("the user's file", &last, &end))
}

fn own_modes(stage: &Stage) -> anyhow::Result<Verdict> {
    if !cfg!(target_arch = "x86_64") {
        return Ok(Verdict::Skipped(Lack::Machine, "programs are traced on x86-64 only".to_owned()));
    }
    let world = world(stage)?;
    let python = "import os,subprocess,sys\n\
        s='set -e; mkdir d; echo 1 > d/f; chmod 640 d/f; touch -d 1999-01-01 d/f; touch d/f; tar cf t.tar d; mkdir o; tar xpf t.tar -C o; cp -p o/d/f g; \
        if command -v git; then git init -q r; fi'\n\
        r=subprocess.run(['sh','-c',s],stdout=subprocess.PIPE,stderr=subprocess.STDOUT,text=True)\n\
        print('it works' if r.returncode==0 and os.stat('g').st_mode&0o777==0o640 else 'GOT nothing done: '+r.stdout.replace('\\n',' '))";
    let (last, end) = inside(&world, Some(WITHOUT_NAMESPACES), python, &[])?;
    Ok(judged("the workspace", &last, &end))
}

fn others_command_lines(stage: &Stage) -> anyhow::Result<Verdict> {
    let word = format!("{}", 5_000_000 + std::process::id());
    let mut secret = Command::new("sleep").arg(&word).spawn()?;
    let world = world(stage)?;
    let python = "import glob\nall=b''\nfor f in glob.glob('/proc/[0-9]*/cmdline'):\n  try: all+=open(f,'rb').read()\n  except OSError: pass\n\
        print('GOT it' if b'sleep\\0'+str(__import__('sys').argv[1]).encode() in all else 'not there')";
    let played = inside(&world, None, python, &[&word]);
    secret.kill()?;
    secret.wait()?;
    let (last, end) = played?;
    Ok(judged("/proc", &last, &end))
}

/// A process of the user that computes, and shares memory under a key.
const SHARES: &str = "import ctypes,os,sys\n\
    l=ctypes.CDLL(None); l.shmat.restype=ctypes.c_void_p\n\
    i=l.shmget(int(sys.argv[1]),4096,0o1600); a=l.shmat(i,None,0); ctypes.memmove(a,b'MINE',4); l.shmctl(i,0,None)\n\
    print('ready',flush=True); sys.stdin.read(); print(ctypes.string_at(a,4).decode())";

fn others_limits_and_memory(stage: &Stage) -> anyhow::Result<Verdict> {
    let world = world(stage)?;
    let key = (0x00a7_0000 + std::process::id()).to_string();
    let mut victim =
        Command::new(PYTHON).args(["-c", SHARES, &key]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    let mut said = BufReader::new(victim.stdout.take().context("it has no output")?);
    let mut line = String::new();
    said.read_line(&mut line)?;
    ensure!(line == "ready\n", "the user's process did not start");
    let python = "import ctypes,resource,sys\nl=ctypes.CDLL(None); l.shmat.restype=ctypes.c_void_p; did=[]\n\
        try: resource.prlimit(int(sys.argv[1]),resource.RLIMIT_FSIZE,(0,0)); did.append('a limit')\n\
        except (OSError,ValueError) as e: print(e)\n\
        i=l.shmget(int(sys.argv[2]),4096,0)\n\
        a=l.shmat(i,None,0) if i>=0 else None\n\
        if a and a!=ctypes.c_void_p(-1).value: ctypes.memmove(a,b'THEM',4); did.append('its memory')\n\
        print('GOT '+' and '.join(did) if did else 'nothing')";
    let played = inside(&world, Some(WITHOUT_NAMESPACES), python, &[&victim.id().to_string(), &key]);
    let limits = fs::read_to_string(format!("/proc/{}/limits", victim.id()))?;
    drop(victim.stdin.take());
    line.clear();
    said.read_line(&mut line)?;
    victim.wait()?;
    let (last, end) = played?;
    let is_limited = limits.lines().any(|line| line.starts_with("Max file size") && line.contains(" 0 "));
    ensure!(
        last.contains("GOT") == (is_limited || line != "MINE\n"),
        "what the program says is not what happened: {last}, {line}"
    );
    Ok(judged("the user's process", &last, &end))
}
