import ctypes, os, resource, sys

victim = int(sys.argv[1])
libc = ctypes.CDLL(None, use_errno=True)
libc.shmat.restype = ctypes.c_void_p
libc.syscall.restype = ctypes.c_long
got = []


def tries(name, call):
    try:
        if call() not in (None, -1):
            got.append(name)
    except OSError:
        pass


def raises_nothing(name, call):
    try:
        call()
        got.append(name)
    except (OSError, ValueError):
        pass


raises_nothing("limit", lambda: resource.prlimit(victim, resource.RLIMIT_CPU, (1, 1)))
raises_nothing("size", lambda: resource.prlimit(victim, resource.RLIMIT_FSIZE, (0, 0)))
raises_nothing("affinity", lambda: os.sched_setaffinity(victim, {0}))
raises_nothing("scheduler", lambda: os.sched_setscheduler(victim, os.SCHED_BATCH, os.sched_param(0)))
raises_nothing("priority", lambda: os.setpriority(os.PRIO_PROCESS, victim, 19))
# Of nobody who is there: the kernel says that there is none, and a filter that it may not be.
NOBODY = 4194303


def is_refused(name, call):
    try:
        call()
        got.append(name)
    except PermissionError:
        pass
    except OSError as error:
        got.append("%s: %s" % (name, error))


is_refused("priority of a group", lambda: os.setpriority(os.PRIO_PGRP, NOBODY, 19))
is_refused("priority of a user", lambda: os.setpriority(os.PRIO_USER, NOBODY, 19))
raises_nothing("signal", lambda: os.kill(victim, 15))
ioprio_set = {"x86_64": 251, "aarch64": 30}.get(os.uname().machine)
if ioprio_set:
    for kind in (1, 2, 3):
        answer = libc.syscall(ioprio_set, kind, victim if kind == 1 else NOBODY, 3 << 13)
        if answer != -1 or ctypes.get_errno() != 1:
            got.append("priority of disks %d" % kind)
# A name that nothing has yet, and none at all.
for key in (0x5EC5EC, 0):
    tries("shared memory", lambda: libc.shmget(key, 4096, 0o1600))
    tries("semaphores", lambda: libc.semget(key, 1, 0o1600))
    tries("messages", lambda: libc.msgget(key, 0o1600))
tries("queue", lambda: libc.mq_open(b"/attack", 0o102, 0o600, None))
for number in range(8):
    tries("shared memory by number", lambda: -1 if libc.shmat(number, None, 0) in (None, ctypes.c_void_p(-1).value) else 1)

# What is its own stays.
own = []
for name, call in {
    "limit": lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64)),
    "affinity": lambda: os.sched_setaffinity(0, os.sched_getaffinity(0)),
    "priority": lambda: os.nice(1),
    "priority by number": lambda: os.setpriority(os.PRIO_PROCESS, 0, 5),
}.items():
    try:
        call()
    except OSError as error:
        own.append("%s: %s" % (name, error))
print("own: " + ("ok" if not own else ", ".join(own)) + "".join("\nGOT " + name for name in got))
