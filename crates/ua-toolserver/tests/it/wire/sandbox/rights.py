# What this process may do besides, by set, and what comes of each way to use that: the error, or 0 where it was possible.
import ctypes, json, os, platform, socket, subprocess, sys

libc = ctypes.CDLL(None, use_errno=True)
said = {}


def attempt(name, what):
    try:
        what()
        said[name] = 0
    except OSError as error:
        said[name] = error.errno


for line in open("/proc/self/status"):
    name, _, value = line.partition(":")
    if name.startswith("Cap"):
        said[name] = int(value, 16)

file = os.open("mine", os.O_CREAT | os.O_RDWR, 0o755)
# CAP_SETUID, permitted and effective, in each form that the kernel takes.
SETUID = ("0100000280000000000000000000000000000000", "010000038000000000000000000000000000000000000000")
for form in SETUID:
    attempt("capabilities of a file " + form[:8], lambda: os.setxattr(file, "security.capability", bytes.fromhex(form)))
attempt("trusted attribute", lambda: os.setxattr(file, "trusted.x", b"1"))
attempt("device", lambda: os.mknod("device", 0o20666, os.makedev(1, 3)))
attempt("disk", lambda: os.mknod("disk", 0o60666, os.makedev(254, 0)))
attempt("another owner", lambda: os.chown("mine", 1, 1))
attempt("name of the machine", lambda: socket.sethostname("x"))
attempt("packets of any kind", lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, 1))
attempt("another user", lambda: os.setresuid(1, 1, 1))
attempt("another group", lambda: os.setresgid(1, 1, 1))
attempt("schedule", lambda: os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1)))
attempt("priority", lambda: os.setpriority(os.PRIO_PROCESS, 0, -5))
attempt("another root", lambda: os.chroot("/usr"))
# Arguments of which nothing comes; who may not do it at all hears that first.
X86 = platform.machine() == "x86_64"
for name, x86, arm, *arguments in (
    ("module", 313, 273, file, b"", 0xFFFF),
    ("module away", 176, 106, b"no_such_module", 0),
    ("kernel", 246, 104, 0, 0, None, 0xFFFF),
    ("swap", 167, 224, b"mine", 0x7FFF_FFFF),
):
    done = libc.syscall(x86 if X86 else arm, *arguments)
    said[name] = ctypes.get_errno() if done < 0 else 0

# In a user namespace of its own it has all of them again, and a file gets none that count outside: they are those of another number than root's.
INSIDE = "import os, sys; os.setxattr(os.open('inside', os.O_RDWR), 'security.capability', bytes.fromhex(sys.argv[1]))"
inside = os.open("inside", os.O_CREAT | os.O_RDWR, 0o755)
for way in ((), ("-r",), ("-r", "-p", "-f")):
    for form in SETUID:
        command = ["unshare", "-U", *way, sys.executable, "-c", INSIDE, form]
        subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
        try:
            value = os.getxattr(inside, "security.capability")
            root = value[20:24] if len(value) == 24 else bytes(4)
            said["capabilities that count"] = 0 if root == bytes(4) else 1
        except OSError as error:
            said["capabilities that count"] = error.errno
print(json.dumps(said))
