# Tries to have changes made to two files (arguments) that are not this program's to change, through the keeper that makes changes for it.
import ctypes, json, mmap, os, sys, threading

closed, open_file = sys.argv[1:]
libc = ctypes.CDLL(None, use_errno=True)
CHMOD, FCHMOD, FCHMODAT, FCHMODAT2, FCHOWNAT, UTIMENSAT, CLONE = 90, 91, 268, 452, 260, 280, 56
said = {"refused": {}}


def call(number, *arguments):
    # Numbers are given as whole registers.
    arguments = [ctypes.c_long(a) if isinstance(a, int) else a for a in arguments]
    return ctypes.get_errno() if libc.syscall(ctypes.c_long(number), *arguments) < 0 else 0


def race(name, once, spoil, rounds=1500):
    """Makes a call again and again while another thread exchanges what it is about."""
    done = {"done": 0, "refused": 0}
    over = threading.Event()

    def exchange():
        while not over.is_set():
            spoil()

    other = threading.Thread(target=exchange)
    other.start()
    for at in range(200 * rounds):
        done["refused" if once() else "done"] += 1
        if at >= rounds and min(done.values()) > 0:
            break
    over.set()
    other.join()
    said[name] = done


os.mkdir("in")
os.mkdir("in/.ssh")
os.mkdir("in/tools")
for name in ("in/.ssh/id", "in/tools/readable", "own"):
    with open(name, "w") as f:
        f.write("x")
here = os.getcwd()

# The path in memory.
inside = (here + "/own").encode()
longest = max(len(inside), len(closed)) + 1
buffer = ctypes.create_string_buffer(longest)
texts = [inside.ljust(longest, b"\0"), closed.encode().ljust(longest, b"\0")]
turn = [0]


def exchange_memory():
    turn[0] ^= 1
    ctypes.memmove(buffer, texts[turn[0]], longest)


exchange_memory()
race("memory", lambda: call(CHMOD, buffer, 0o777), exchange_memory)


# A link, exchanged in one step.
def links(name, targets):
    turn = [0]

    def exchange():
        turn[0] ^= 1
        os.symlink(targets[turn[0]], name + ".new")
        os.rename(name + ".new", name)

    exchange()
    return exchange


race("link", lambda: call(CHMOD, b"link", 0o777), links("link", [here + "/own", closed]))
# A folder on the way.
home = os.path.dirname(os.path.dirname(closed))
race("folder", lambda: call(CHMOD, b"way/.ssh/id", 0o777), links("way", [here + "/in", home]))


def refused(name, *arguments):
    said["refused"][name] = call(*arguments)


reading = os.open(open_file, os.O_RDONLY)
outside = os.open(os.path.dirname(closed), os.O_PATH)
refused("descriptor that reads", FCHMOD, reading, 0o777)
refused("descriptor without a path", FCHMODAT2, reading, b"", 0o777, 0x1000)
refused("times of a descriptor", UTIMENSAT, reading, None, None, 0)
refused("below a folder outside", FCHMODAT, outside, b"id", 0o777)
refused("up from inside", FCHMODAT, -100, os.path.relpath(closed, here).encode(), 0o777)
refused("by a descriptor's path", CHMOD, ("/proc/self/fd/%d" % reading).encode(), 0o777)
refused("by a link to it", CHMOD, ("/proc/thread-self/fd/%d" % reading).encode(), 0o777)
refused("by its root", CHMOD, b"/proc/self/root" + closed.encode(), 0o777)
refused("by the keeper's folder", CHMOD, ("/proc/%d/cwd/../.ssh/id" % os.getppid()).encode(), 0o777)
refused("set-user-id", CHMOD, b"own", 0o4755)
refused("set-group-id", FCHMODAT, -100, b"own", 0o2755)
refused("another owner", FCHOWNAT, -100, b"own", 4242, -1, 0)
refused("flags that nobody knows", FCHMODAT2, -100, b"own", 0o755, 0x8)
refused("no descriptor", FCHMOD, 4711, 0o755)
refused("no memory", CHMOD, 1, 0o755)
refused("a path without end", CHMOD, b"a/" * 5000, 0o755)
refused("a hard link", CHMOD, b"hard", 0o777) if os.system("ln %s hard 2>/dev/null" % open_file) == 0 else None

# A path whose end is the end of what is mapped.
page = mmap.mmap(-1, 2 * mmap.PAGESIZE)
base = ctypes.addressof(ctypes.c_char.from_buffer(page))
libc.munmap(ctypes.c_void_p(base + mmap.PAGESIZE), ctypes.c_size_t(mmap.PAGESIZE))
ctypes.memmove(base + mmap.PAGESIZE - 4, b"own\0", 4)
said["page_end"] = call(CHMOD, base + mmap.PAGESIZE - 4, 0o755)

# A process that the keeper would not trace is not started; if it were, it would find that there is no such call.
CLONE_UNTRACED, SIGCHLD = 0x00800000, 17
sys.stdout.flush()
ctypes.set_errno(0)
child = libc.syscall(ctypes.c_long(CLONE), ctypes.c_long(CLONE_UNTRACED | SIGCHLD), None, None, None, None)
if child == 0:
    os._exit(call(CHMOD, closed.encode(), 0o777))
said["refused"]["untraced"] = ctypes.get_errno() if child < 0 else os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
os.chmod("own", 0o755)
print(json.dumps(said))
sys.stdout.flush()
# Not by way of the memory that was taken from under it.
os._exit(0)
