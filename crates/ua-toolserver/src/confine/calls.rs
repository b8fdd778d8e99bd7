//! System calls: what Landlock and namespaces do not know. A program asks for sockets of a few families only, and for no keyring.
//!
//! - **Sockets.** A network namespace has no way out by IP, but `AF_VSOCK` and its like are not divided by namespaces, and a socket that is a
//!   file (a bus, a container engine) is connected to by its path. So only the families of an ordinary network are there, and `AF_UNIX`
//!   where Landlock judges the path (version 9). A connected pair of streams or of sequences of packets is always allowed; one of datagrams
//!   is not where paths are not judged, because either end may send to, or be connected to, another socket's path.
//! - **Keyrings** hold what the user's session has: tickets, tokens, keys of disks.
//! - **io_uring** makes sockets, too, without asking for one.
//! - **Mounts** are Landlock's to refuse, but it does not know of `mount_setattr`, which could make writable again what [`super::mounts`] closed.
//! - **Extended attributes** are read by path without opening anything, so not even Landlock is asked. Programs hear that there are none, and
//!   read those of what they opened.
//! - **Changes of modes, owners, times and attributes** are not the program's to make where the mounts could not be closed: no filter sees whose
//!   file a path means, and a descriptor that reads is enough for them. They are handed to the keeper where it can trace the program
//!   ([`super::traced`]), but for attributes, and else refused altogether.
//! - **The rights of its user** are not the program's to give away: a file that is made with the bits by which others run it as its owner, or
//!   that gets them, would be the user's hand in anybody's. `openat2` is not there, whose mode no filter sees.
//! - **Children that nobody traces.** What holds a program without namespaces is its keeper, by tracing it and what it starts. A flag of `clone`
//!   would start something untraced, which outlives the call and the keeper; so it is refused, and `clone3`, whose flags no filter sees, is not
//!   there (whoever tries it goes back to `clone`).
//! - **Other processes** that no namespace keeps away are not the program's to limit, to schedule or to share memory with ([`super::others`]).
//!
//! The filter is written by hand, a few instructions of classic BPF, because the tables of a 32-bit or x32 program have other numbers for the
//! same calls: the first is ended, the second refused.

use seccompiler::sock_filter;

/// Who changes modes, owners, times and attributes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Changes {
    /// The program: its mounts are closed where it may not write.
    Open,
    /// The keeper, for the program, but for attributes.
    Handed,
    /// Nobody.
    Refused,
}

impl Changes {
    /// What a program hears that wants to change something.
    fn says_to(self, number: u32) -> u32 {
        match self {
            Self::Open => ALLOW,
            Self::Handed if HANDED.contains(&number) => TRACE,
            // Programs that copy a file with its modes try this first, and go on when there is no such thing.
            Self::Handed => ERRNO | EOPNOTSUPP,
            Self::Refused => ERRNO | EPERM,
        }
    }
}

/// Where the other processes of the user are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Others {
    /// Outside of the program's namespaces, where no number of its own means one of them.
    Apart,
    /// Where the program is.
    InReach,
}

/// Closes these calls to this process and to what it starts.
pub(super) fn restrict(landlock: i32, changes: Changes, others: Others) -> Result<(), String> {
    match filter(landlock, changes, others) {
        None => Err("its system calls cannot be filtered on this processor".to_owned()),
        Some(program) => seccompiler::apply_filter(&program).map_err(|error| error.to_string()),
    }
}

/// Whether the kernel takes such a filter, found by a process that is about to end.
pub(super) fn are_filtered() -> bool {
    restrict(0, Changes::Refused, Others::InReach).is_ok()
}

/// The version of Landlock that judges connections to sockets that are files.
pub(super) const LANDLOCK_SOCKET_FILES: i32 = 9;

struct Numbers {
    arch: u32,
    socket: u32,
    socketpair: u32,
    ioctl: u32,
    clone: u32,
    keys: [u32; 3],
    /// `mount`, `umount2`, `pivot_root`.
    mounts: [u32; 3],
    /// `getxattr`, `lgetxattr`, `listxattr`, `llistxattr`.
    attributes_by_path: [u32; 4],
    /// `chmod`, `chown`, `utime`, `setxattr`, `removexattr` and their like.
    changes: &'static [u32],
    /// What gives a file its mode, and where that is said.
    modes: &'static [(u32, Said)],
}

/// Where a call says which mode a file gets, as offsets in what a filter sees.
struct Said {
    mode: u32,
    /// The flags that say whether it makes a file at all.
    flags: Option<u32>,
}

const fn always(mode: u32) -> Said {
    Said { mode, flags: None }
}

const fn if_made(mode: u32, flags: u32) -> Said {
    Said { mode, flags: Some(flags) }
}

const NUMBERS: Option<Numbers> = if cfg!(target_arch = "x86_64") {
    Some(Numbers {
        arch: 0xC000_003E,
        socket: 41,
        socketpair: 53,
        ioctl: 16,
        clone: 56,
        keys: [248, 249, 250],
        mounts: [165, 166, 155],
        attributes_by_path: [191, 192, 194, 195],
        changes: &[
            90, 91, 268, // modes
            92, 93, 94, 260, // owners
            132, 235, 261, 280, // times
            188, 189, 190, 197, 198, 199, // attributes
        ],
        modes: &[
            (2, if_made(THIRD_ARGUMENT, SECOND_ARGUMENT)),   // open
            (257, if_made(FOURTH_ARGUMENT, THIRD_ARGUMENT)), // openat
            (85, always(SECOND_ARGUMENT)),                   // creat
            (133, always(SECOND_ARGUMENT)),                  // mknod
            (259, always(THIRD_ARGUMENT)),                   // mknodat
            (90, always(SECOND_ARGUMENT)),                   // chmod
            (91, always(SECOND_ARGUMENT)),                   // fchmod
            (268, always(THIRD_ARGUMENT)),                   // fchmodat
            (FCHMODAT2, always(THIRD_ARGUMENT)),
        ],
    })
} else if cfg!(target_arch = "aarch64") {
    Some(Numbers {
        arch: 0xC000_00B7,
        socket: 198,
        socketpair: 199,
        ioctl: 29,
        clone: 220,
        keys: [217, 218, 219],
        mounts: [40, 39, 41],
        attributes_by_path: [8, 9, 11, 12],
        changes: &[
            52, 53, // modes
            54, 55, // owners
            88, // times
            5, 6, 7, 14, 15, 16, // attributes
        ],
        modes: &[
            (56, if_made(FOURTH_ARGUMENT, THIRD_ARGUMENT)), // openat
            (33, always(THIRD_ARGUMENT)),                   // mknodat
            (52, always(SECOND_ARGUMENT)),                  // fchmod
            (53, always(THIRD_ARGUMENT)),                   // fchmodat
            (FCHMODAT2, always(THIRD_ARGUMENT)),
        ],
    })
} else {
    None
};

// The same numbers on every processor.
const IO_URING: [u32; 3] = [425, 426, 427];
const CLONE3: u32 = 435;
const OPENAT2: u32 = 437;
const FCHMODAT2: u32 = 452;
/// `open_tree`, `move_mount`, `fsopen`, `fsconfig`, `fsmount`, `fspick`, `mount_setattr`, `open_tree_attr`.
const MOUNTS: [u32; 8] = [428, 429, 430, 431, 432, 433, 442, 467];
/// `getxattrat`, `listxattrat`.
const ATTRIBUTES_BY_PATH: [u32; 2] = [464, 465];
/// `fchmodat2`, `setxattrat`, `removexattrat`, `file_setattr`.
const CHANGES: [u32; 4] = [FCHMODAT2, 463, 466, 469];

/// The kinds of requests (`_IOC_TYPE`) by which file systems change flags, projects, versions, encryption and subvolumes: ext4 and others, XFS, FAT
/// and others, Btrfs, F2FS.
const REQUESTS_OF_FILE_SYSTEMS: [u32; 5] = [0x66, 0x58, 0x76, 0x94, 0xF5];
const KIND_OF_REQUEST: u32 = 0xFF00;
/// `FICLONE` and `FICLONERANGE`, which write to what was opened for writing.
const CLONES: [u32; 2] = [0x4004_9409, 0x4020_940D];
/// From here on numbers are those of x32.
const X32: u32 = 0x4000_0000;

/// The kinds of sockets that stay with the one they are connected to.
const STREAM: u32 = 1;
const SEQPACKET: u32 = 5;
/// The flag of `clone` by which a child is traced by nobody.
const CLONE_UNTRACED: u32 = 0x0080_0000;
/// The bits of a mode by which others run a file with the rights of its owner or group.
const SET_IDS: u32 = 0o6000;
/// The flags of an opening that makes a file: `O_CREAT`, and what `O_TMPFILE` has of its own.
const MAKES_A_FILE: u32 = 0x40 | 0x40_0000;
/// What of a kind is no flag (`SOCK_TYPE_MASK`).
const KIND: u32 = 0xF;

const AF_UNIX: u32 = 1;
const AF_INET: u32 = 2;
const AF_INET6: u32 = 10;
const AF_NETLINK: u32 = 16;

pub(super) const EPERM: u32 = 1;
const ENOTTY: u32 = 25;
pub(super) const ENOSYS: u32 = 38;
const ESOCKTNOSUPPORT: u32 = 94;
const EOPNOTSUPP: u32 = 95;
const EAFNOSUPPORT: u32 = 97;

/// Offsets in what a filter sees.
const NUMBER: u32 = 0;
const ARCH: u32 = 4;
pub(super) const FIRST_ARGUMENT: u32 = 16;
pub(super) const SECOND_ARGUMENT: u32 = 24;
const THIRD_ARGUMENT: u32 = 32;
const FOURTH_ARGUMENT: u32 = 40;

const KILL: u32 = 0x8000_0000;
pub(super) const ALLOW: u32 = 0x7FFF_0000;
pub(super) const ERRNO: u32 = 0x0005_0000;
/// Stops the caller for its tracer; where there is none, the call is not there.
const TRACE: u32 = 0x7FF0_0000;

const LOAD: u16 = 0x20;
const AND: u16 = 0x54;
pub(super) const IF_EQUAL: u16 = 0x15;
const IF_AT_LEAST: u16 = 0x35;
const RETURN: u16 = 0x06;

pub(super) const fn load(offset: u32) -> sock_filter {
    sock_filter { code: LOAD, jt: 0, jf: 0, k: offset }
}

pub(super) const fn end(with: u32) -> sock_filter {
    sock_filter { code: RETURN, jt: 0, jf: 0, k: with }
}

/// Passes over the next instruction unless what is loaded is `value`.
pub(super) const fn if_equal(value: u32) -> sock_filter {
    sock_filter { code: IF_EQUAL, jt: 0, jf: 1, k: value }
}

/// The calls that are handed to a tracer.
#[cfg(target_arch = "x86_64")]
const HANDED: &[u32] = super::traced::CALLS;
#[cfg(not(target_arch = "x86_64"))]
const HANDED: &[u32] = &[];

/// Whether what a program starts may be held by nothing but its tracer.
fn is_held_by_a_tracer(who: Changes, others: Others) -> bool {
    who == Changes::Handed || others == Others::InReach
}

/// Refuses a mode by which others would get the rights of the user.
fn keeps_its_rights(said: &Said) -> Vec<sock_filter> {
    let bits =
        |of: u32, bits: u32| [load(of), sock_filter { code: AND, jt: 0, jf: 0, k: bits }, if_equal(0), end(ALLOW)];
    let mut program: Vec<sock_filter> = said.flags.into_iter().flat_map(|flags| bits(flags, MAKES_A_FILE)).collect();
    program.extend(bits(said.mode, SET_IDS));
    program.push(end(ERRNO | EPERM));
    program
}

pub(super) fn filter(landlock: i32, who: Changes, others: Others) -> Option<Vec<sock_filter>> {
    let Numbers { arch, socket, socketpair, ioctl, clone, keys, mounts, attributes_by_path, changes, modes } = NUMBERS?;
    let mut program = vec![load(ARCH), sock_filter { code: IF_EQUAL, jt: 1, jf: 0, k: arch }, end(KILL), load(NUMBER)];
    if cfg!(target_arch = "x86_64") {
        program.extend([sock_filter { code: IF_AT_LEAST, jt: 0, jf: 1, k: X32 }, end(ERRNO | ENOSYS)]);
    }
    for number in keys.into_iter().chain(IO_URING).chain([OPENAT2]) {
        program.extend([if_equal(number), end(ERRNO | ENOSYS)]);
    }
    for number in mounts.into_iter().chain(MOUNTS) {
        program.extend([if_equal(number), end(ERRNO | EPERM)]);
    }
    for number in attributes_by_path.into_iter().chain(ATTRIBUTES_BY_PATH) {
        program.extend([if_equal(number), end(ERRNO | EOPNOTSUPP)]);
    }
    let mut judged: Vec<(u32, Vec<sock_filter>)> =
        modes.iter().map(|(number, said)| (*number, keeps_its_rights(said))).collect();
    if is_held_by_a_tracer(who, others) {
        program.extend([if_equal(CLONE3), end(ERRNO | ENOSYS)]);
        let untraced = sock_filter { code: AND, jt: 0, jf: 0, k: CLONE_UNTRACED };
        judged.push((clone, vec![load(FIRST_ARGUMENT), untraced, if_equal(0), end(ALLOW), end(ERRNO | EPERM)]));
    }
    if who != Changes::Open {
        for number in changes.iter().copied().chain(CHANGES) {
            program.extend([if_equal(number), end(who.says_to(number))]);
        }
        let mut requests = vec![load(SECOND_ARGUMENT)];
        for request in CLONES {
            requests.extend([if_equal(request), end(ALLOW)]);
        }
        requests.push(sock_filter { code: AND, jt: 0, jf: 0, k: KIND_OF_REQUEST });
        for kind in REQUESTS_OF_FILE_SYSTEMS {
            requests.extend([if_equal(kind << 8), end(ERRNO | ENOTTY)]);
        }
        requests.push(end(ALLOW));
        judged.push((ioctl, requests));
    }
    let mut families = vec![AF_INET, AF_INET6, AF_NETLINK];
    if landlock >= LANDLOCK_SOCKET_FILES {
        families.push(AF_UNIX);
    }
    let mut single = vec![load(FIRST_ARGUMENT)];
    for family in families {
        single.extend([if_equal(family), end(ALLOW)]);
    }
    single.push(end(ERRNO | EAFNOSUPPORT));
    let mut pair =
        vec![load(FIRST_ARGUMENT), sock_filter { code: IF_EQUAL, jt: 1, jf: 0, k: AF_UNIX }, end(ERRNO | EAFNOSUPPORT)];
    if landlock < LANDLOCK_SOCKET_FILES {
        pair.extend([load(SECOND_ARGUMENT), sock_filter { code: AND, jt: 0, jf: 0, k: KIND }]);
        for kind in [STREAM, SEQPACKET] {
            pair.extend([if_equal(kind), end(ALLOW)]);
        }
        pair.push(end(ERRNO | ESOCKTNOSUPPORT));
    } else {
        pair.push(end(ALLOW));
    }
    judged.extend([(socket, single), (socketpair, pair)]);
    match others {
        Others::Apart => {}
        Others::InReach => judged.extend(super::others::rules()),
    }
    for (number, judge) in judged {
        let behind = u8::try_from(judge.len()).ok()?;
        program.push(sock_filter { code: IF_EQUAL, jt: 0, jf: behind, k: number });
        program.extend(judge);
    }
    program.push(end(ALLOW));
    Some(program)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// The same for a call of this processor.
    pub(in super::super) fn verdict_of(program: &[sock_filter], number: u32, arguments: [u32; 2]) -> u32 {
        NUMBERS.map_or(ALLOW, |numbers| verdict(program, numbers.arch, number, arguments))
    }

    /// What the filter says about a call: the kernel's way through it.
    fn verdict(program: &[sock_filter], arch: u32, number: u32, [first, second]: [u32; 2]) -> u32 {
        verdict_of_four(program, arch, number, [first, second, 0, 0])
    }

    fn verdict_of_four(program: &[sock_filter], arch: u32, number: u32, arguments: [u32; 4]) -> u32 {
        let (mut at, mut loaded) = (0, 0);
        loop {
            let step = &program[at];
            at += 1;
            let holds = match step.code {
                LOAD => {
                    loaded = match step.k {
                        NUMBER => number,
                        ARCH => arch,
                        FIRST_ARGUMENT => arguments[0],
                        SECOND_ARGUMENT => arguments[1],
                        THIRD_ARGUMENT => arguments[2],
                        _ => arguments[3],
                    };
                    continue;
                }
                AND => {
                    loaded &= step.k;
                    continue;
                }
                RETURN => return step.k,
                IF_EQUAL => loaded == step.k,
                _ => loaded >= step.k,
            };
            at += usize::from(if holds { step.jt } else { step.jf });
        }
    }

    #[test]
    fn only_ordinary_sockets_and_no_keys_pass() {
        let Some(Numbers { arch, socket, socketpair, keys, .. }) = NUMBERS else { return };
        for (landlock, sockets_of_files) in [(0, ERRNO | EAFNOSUPPORT), (8, ERRNO | EAFNOSUPPORT), (9, ALLOW)] {
            let program =
                filter(landlock, if landlock > 0 { Changes::Open } else { Changes::Refused }, Others::Apart).unwrap();
            let says = |number, first| verdict(&program, arch, number, [first, STREAM]);
            assert_eq!(says(socket, AF_UNIX), sockets_of_files);
            for family in [AF_INET, AF_INET6, AF_NETLINK] {
                assert_eq!(says(socket, family), ALLOW);
            }
            // Vsock, packets, the kernel's cryptography, Bluetooth.
            for family in [40, 17, 38, 31, 0] {
                assert_eq!(says(socket, family), ERRNO | EAFNOSUPPORT, "{family}");
            }
            assert_eq!((says(socketpair, AF_UNIX), says(socketpair, 40)), (ALLOW, ERRNO | EAFNOSUPPORT));
            // Either end of a pair of datagrams may send to a path; the kernel makes such a pair of raw ones, too. The flags say nothing.
            let datagrams = if landlock < LANDLOCK_SOCKET_FILES { ERRNO | ESOCKTNOSUPPORT } else { ALLOW };
            for (kind, verdict_of_kind) in [(STREAM, ALLOW), (SEQPACKET, ALLOW), (2, datagrams), (3, datagrams)] {
                for flags in [0, 0o4000, 0o2_000_000] {
                    let said = verdict(&program, arch, socketpair, [AF_UNIX, kind | flags]);
                    assert_eq!(said, verdict_of_kind, "{kind} {flags} {landlock}");
                }
            }
            for number in keys.into_iter().chain(IO_URING) {
                assert_eq!(says(number, 0), ERRNO | ENOSYS);
            }
            assert_eq!((says(0, 0), says(59, 0)), (ALLOW, ALLOW));
            assert_eq!(verdict(&program, 0x4000_0003, socket, [AF_INET, STREAM]), KILL);
            if cfg!(target_arch = "x86_64") {
                assert_eq!(says(X32 | socket, AF_INET), ERRNO | ENOSYS);
            }
        }
    }

    #[test]
    fn no_file_gets_the_rights_of_the_user() {
        let Some(Numbers { arch, modes, changes, .. }) = NUMBERS else { return };
        for who in [Changes::Open, Changes::Handed, Changes::Refused] {
            let program = filter(7, who, Others::Apart).unwrap();
            assert_eq!(verdict(&program, arch, OPENAT2, [0, 0]), ERRNO | ENOSYS);
            for (number, said) in modes {
                // What changes a mode is handed over or refused as a whole elsewhere.
                let is_elsewhere = who != Changes::Open && changes.iter().chain(&CHANGES).any(|one| one == number);
                for mode in (0..0o10000).step_by(0o111).chain([0o4755, 0o2755, 0o6711, 0o4000, 0o2000, 0o1777]) {
                    for flags in [0, 1, 2, 0x40, 0x41, 0x40_0000, 0x41_0002, 0x8_0000, 0x8_0241] {
                        let mut arguments = [0; 4];
                        let mut say = |at: u32, value| arguments[(at as usize - FIRST_ARGUMENT as usize) / 8] = value;
                        say(said.mode, mode | 0o100_000);
                        said.flags.into_iter().for_each(|at| say(at, flags));
                        let is_made = said.flags.is_none() || flags & (0x40 | 0x40_0000) != 0;
                        let gives = is_made && mode & 0o6000 != 0;
                        let wanted = if gives { ERRNO | EPERM } else { ALLOW };
                        let says = verdict_of_four(&program, arch, *number, arguments);
                        assert!(
                            is_elsewhere && says != ALLOW || says == wanted,
                            "{number} {mode:o} {flags:x}: {says:x}"
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn nothing_is_started_untraced_where_a_tracer_holds_what_is_started() {
        let Some(Numbers { arch, clone, .. }) = NUMBERS else { return };
        for who in [Changes::Open, Changes::Handed, Changes::Refused] {
            for others in [Others::Apart, Others::InReach] {
                let program = filter(7, who, others).unwrap();
                let is_held = is_held_by_a_tracer(who, others);
                assert_eq!(is_held, others == Others::InReach || who == Changes::Handed);
                let says = |number, flags| verdict(&program, arch, number, [flags, 0]);
                assert_eq!(says(CLONE3, 0), if is_held { ERRNO | ENOSYS } else { ALLOW });
                // Each flag alone, with a signal at the end, and beside the others.
                for bit in 0..32 {
                    for rest in [0, 17, 0x0000_8011, 0x003d_0f00] {
                        let flags = 1 << bit | rest;
                        let refused = is_held && flags & CLONE_UNTRACED != 0;
                        assert_eq!(
                            says(clone, flags),
                            if refused { ERRNO | EPERM } else { ALLOW },
                            "{who:?} {others:?} {flags:x}"
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn no_mount_is_made_and_nothing_is_changed_where_mounts_are_open() {
        let Some(Numbers { arch, ioctl, mounts, attributes_by_path, changes, .. }) = NUMBERS else { return };
        for who in [Changes::Open, Changes::Handed, Changes::Refused] {
            let (program, mounts_are_closed) = (filter(7, who, Others::Apart).unwrap(), who == Changes::Open);
            let says = |number, second| verdict(&program, arch, number, [0, second]);
            for number in mounts.into_iter().chain(MOUNTS) {
                assert_eq!(says(number, 0), ERRNO | EPERM);
            }
            for number in attributes_by_path.into_iter().chain(ATTRIBUTES_BY_PATH) {
                assert_eq!(says(number, 0), ERRNO | EOPNOTSUPP);
            }
            for number in changes.iter().copied().chain(CHANGES) {
                let wanted = match who {
                    Changes::Open => ALLOW,
                    Changes::Handed if HANDED.contains(&number) => TRACE,
                    Changes::Handed => ERRNO | EOPNOTSUPP,
                    Changes::Refused => ERRNO | EPERM,
                };
                assert_eq!(says(number, 0), wanted, "{number}");
            }
            // What is handed over is nothing that would else be let through.
            let all: Vec<u32> = changes.iter().copied().chain(CHANGES).collect();
            assert!(HANDED.iter().all(|number| all.contains(number)), "{HANDED:?}");
            // FS_IOC_SETFLAGS, FS_IOC_FSSETXATTR, BTRFS_IOC_SUBVOL_CREATE; then those of terminals and pipes, and a clone.
            for request in [0x4008_6602, 0x401C_5820, 0x5000_940E] {
                assert_eq!(says(ioctl, request), if mounts_are_closed { ALLOW } else { ERRNO | ENOTTY }, "{request:x}");
            }
            for request in [0x5401, 0x541B, 0x4004_9409, 0x4020_940D] {
                assert_eq!(says(ioctl, request), ALLOW, "{request:x}");
            }
        }
    }
}
