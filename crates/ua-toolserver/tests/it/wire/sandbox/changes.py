"""Every way to change modes, owners, times and attributes of a file, tried on one file; prints {way: errno} as JSON.

    changes.py FILE [opened]    `opened` also tries what needs a descriptor that reads the file
"""
import ctypes, fcntl, json, os, struct, sys

file = sys.argv[1].encode()
libc = ctypes.CDLL(None, use_errno=True)
here = ctypes.c_long(-100)
EMPTY_PATH = 0x1000
uid, gid = os.getuid(), os.getgid()
times = struct.pack("4q", 915148800, 0, 915148800, 0)
value = ctypes.create_string_buffer(b"1")
arguments_of_attribute = struct.pack("QII", ctypes.addressof(value), 1, 0)
file_attributes = struct.pack("QIIII", 0x40, 0, 0, 0, 0)
legacy = os.uname().machine == "x86_64"
numbers = (
    dict(chmod=90, fchmod=91, fchmodat=268, chown=92, fchown=93, lchown=94, fchownat=260, utime=132, utimes=235, futimesat=261,
         utimensat=280, setxattr=188, lsetxattr=189, fsetxattr=190, removexattr=197, lremovexattr=198, fremovexattr=199)
    if legacy
    else dict(fchmod=52, fchmodat=53, fchownat=54, fchown=55, utimensat=88, setxattr=5, lsetxattr=6, fsetxattr=7, removexattr=14,
              lremovexattr=15, fremovexattr=16)
)
numbers.update(fchmodat2=452, setxattrat=463, removexattrat=466, file_setattr=469)
said = {}


def call(way, *arguments):
    name = way.split()[0]
    if name not in numbers:
        return
    ctypes.set_errno(0)
    # These would be about the link itself.
    if name[0] == "l" and way.endswith("/fd"):
        return
    plain = [ctypes.c_long(a) if isinstance(a, int) else a for a in arguments]
    said[way] = ctypes.get_errno() if libc.syscall(ctypes.c_long(numbers[name]), *plain) < 0 else 0


def by_path(word, path):
    call("chmod" + word, path, 0o755)
    call("fchmodat" + word, here, path, 0o755)
    call("fchmodat2" + word, here, path, 0o755, 0)
    call("chown" + word, path, uid, gid)
    call("lchown" + word, path, uid, gid)
    call("fchownat" + word, here, path, uid, gid, 0)
    call("utime" + word, path, struct.pack("2q", 915148800, 915148800))
    call("utimes" + word, path, times)
    call("futimesat" + word, here, path, times)
    call("utimensat" + word, here, path, times, 0)
    call("setxattr" + word, path, b"user.a", value, 1, 0)
    call("lsetxattr" + word, path, b"user.b", value, 1, 0)
    call("setxattrat" + word, here, path, 0, b"user.c", arguments_of_attribute, 16)
    call("removexattr" + word, path, b"user.a")
    call("lremovexattr" + word, path, b"user.b")
    call("removexattrat" + word, here, path, 0, b"user.c")
    call("file_setattr" + word, here, path, file_attributes, 24, 0)


by_path("", file)
by_path(" by /proc/self/root", b"/proc/self/root" + file)
handle = os.open(file, os.O_PATH)
by_path(" by /proc/self/fd", b"/proc/self/fd/%d" % handle)
call("fchmodat2 of a handle", handle, b"", 0o755, EMPTY_PATH)
call("fchownat of a handle", handle, b"", uid, gid, EMPTY_PATH)
call("utimensat of a handle", handle, b"", times, EMPTY_PATH)
folder = os.open(os.path.dirname(file), os.O_PATH)
call("fchmodat of a folder's handle", folder, os.path.basename(file), 0o755)
call("utimensat of a folder's handle", folder, os.path.basename(file), times, 0)

if "opened" in sys.argv:
    fd = os.open(file, os.O_RDONLY)
    call("fchmod", fd, 0o755)
    call("fchown", fd, uid, gid)
    call("utimensat of a descriptor", fd, None, times, 0)
    call("fsetxattr", fd, b"user.e", value, 1, 0)
    call("fremovexattr", fd, b"user.e")
    for way, request, data in [
        ("FS_IOC_SETFLAGS", 0x40086602, struct.pack("q", 0x40)),
        ("FS_IOC_FSSETXATTR", 0x401C5820, struct.pack("IIIII8x", 0x40, 0, 0, 0, 0)),
    ]:
        try:
            fcntl.ioctl(fd, request, data)
            said[way] = 0
        except OSError as error:
            said[way] = error.errno
print(json.dumps(said))
