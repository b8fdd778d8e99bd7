//! Mounts: what a program may not write is read-only to it, whichever call asks.
//!
//! Landlock judges what is opened, made, moved and removed, and nothing else: modes, owners, times and extended attributes of every file of the
//! user would be the program's to change. So the first process inside makes each mount of its namespace read-only, and puts copies of the
//! folders that may be written, which are as they were, in their places. What a program gets hold of is on one or the other, also by a
//! descriptor that opens nothing (`O_PATH`) and through `/proc`.
//!
//! The call that does all mounts at once (`mount_setattr`) has no safe wrapper yet, so they are taken one by one, each by a descriptor whose
//! mount is the one that was listed: no automount is set off, and no path is believed. A mount that has no path any more, because another one
//! lies over it or its folder is closed to this user, is out of the program's reach as well, which has fewer rights and can unmount nothing.
//!
//! A program that makes a user namespace finds all of this locked there (`MNT_LOCK_READONLY`).

use std::ffi::OsString;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStringExt as _;
use std::path::PathBuf;

use rustix::fs::{AtFlags, CWD, StatxFlags};
use rustix::io::Errno;
use rustix::mount::{MountFlags, MountPropagationFlags, MoveMountFlags, OpenTreeFlags};
use ua_core::ShowPath as _;

/// Keeps what is mounted here from then on from going anywhere else, and the other way round.
pub(super) fn part() -> rustix::io::Result<()> {
    rustix::mount::mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)
}

/// Makes everything read-only but `writable`. The mounts were parted before.
pub(super) fn close(writable: &[PathBuf]) -> Result<(), String> {
    // What this process stands in is a folder of a mount that is about to be closed, and covered.
    let here = std::env::current_dir().map_err(|error| format!("its folder: {error}"))?;
    let mut kept = Vec::with_capacity(writable.len());
    for folder in writable {
        let said = |error: &dyn std::fmt::Display| format!("{}: {error}", folder.shown());
        let folder = folder.canonicalize().map_err(|error| said(&error))?;
        let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_RECURSIVE;
        let tree = rustix::mount::open_tree(CWD, &folder, flags).map_err(|error| said(&error))?;
        kept.push((folder, tree));
    }
    close_all()?;
    for (folder, tree) in kept {
        rustix::mount::move_mount(&tree, "", CWD, &folder, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)
            .map_err(|error| format!("{}: {error}", folder.shown()))?;
    }
    std::env::set_current_dir(&here).map_err(|error| format!("{}: {error}", here.shown()))
}

fn close_all() -> Result<(), String> {
    #[expect(clippy::disallowed_methods, reason = "the kernel's own files")]
    let listed = std::fs::read("/proc/self/mountinfo").map_err(|error| format!("/proc/self/mountinfo: {error}"))?;
    let root = rustix::mount::open_tree(CWD, "/", OpenTreeFlags::OPEN_TREE_CLOEXEC)
        .and_then(|root| mount_of(&root))
        .map_err(|error| format!("/: {error}"))?;
    let mut root_is_closed = false;
    for line in listed.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
        let mount = Mount::read(line).ok_or_else(|| format!("a mount: {}", String::from_utf8_lossy(line)))?;
        let is_closed = mount.flags.contains(MountFlags::RDONLY)
            || mount.close().map_err(|error| format!("{}: {error}", mount.path.shown()))?;
        root_is_closed |= is_closed && mount.id == root;
    }
    // The root of a process need not be that of a mount.
    if root_is_closed { Ok(()) } else { Err("the mount of / is not listed".to_owned()) }
}

/// One line of `mountinfo`.
#[derive(Debug, PartialEq, Eq)]
struct Mount {
    id: u64,
    path: PathBuf,
    flags: MountFlags,
}

impl Mount {
    fn read(line: &[u8]) -> Option<Self> {
        let mut words = line.split(|byte| *byte == b' ');
        let id = std::str::from_utf8(words.next()?).ok()?.parse().ok()?;
        let path = OsString::from_vec(unescaped(words.nth(3)?)).into();
        let mut flags = MountFlags::empty();
        for option in words.next()?.split(|byte| *byte == b',') {
            // How access times are kept stays as it is without being said; whatever else is left out is taken away, or refused.
            flags |= match option {
                b"ro" => MountFlags::RDONLY,
                b"nosuid" => MountFlags::NOSUID,
                b"nodev" => MountFlags::NODEV,
                b"noexec" => MountFlags::NOEXEC,
                b"nosymfollow" => MountFlags::NOSYMFOLLOW,
                _ => MountFlags::empty(),
            };
        }
        Some(Self { id, path, flags })
    }

    /// Makes it read-only, and says whether it is there to be made so.
    fn close(&self) -> rustix::io::Result<bool> {
        let flags =
            OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_NO_AUTOMOUNT | OpenTreeFlags::AT_SYMLINK_NOFOLLOW;
        let root = match rustix::mount::open_tree(CWD, &self.path, flags) {
            Ok(root) => root,
            // Covered, in a folder that is closed to this user, or below what a server or a program serves no more.
            Err(
                Errno::ACCESS
                | Errno::NOENT
                | Errno::NOTDIR
                | Errno::LOOP
                | Errno::NOTCONN
                | Errno::STALE
                | Errno::HOSTDOWN
                | Errno::IO,
            ) => return Ok(false),
            Err(error) => return Err(error),
        };
        if mount_of(&root)? != self.id {
            return Ok(false);
        }
        let path = format!("/proc/self/fd/{}", root.as_raw_fd());
        rustix::mount::mount_remount(path, self.flags | MountFlags::BIND | MountFlags::RDONLY, "")?;
        Ok(true)
    }
}

fn mount_of(root: &OwnedFd) -> rustix::io::Result<u64> {
    // Nobody is asked but the kernel itself: the file system may be far away.
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC | AtFlags::NO_AUTOMOUNT;
    let found = rustix::fs::statx(root, "", flags, StatxFlags::MNT_ID)?;
    let has_it = StatxFlags::from_bits_retain(found.stx_mask).contains(StatxFlags::MNT_ID);
    if has_it { Ok(found.stx_mnt_id) } else { Err(Errno::NOSYS) }
}

/// A path as it is: `mountinfo` writes spaces, tabs, newlines and backslashes as three octal digits.
fn unescaped(text: &[u8]) -> Vec<u8> {
    let mut path = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((first, behind)) = rest.split_first() {
        let digits = behind.get(..3).and_then(|digits| std::str::from_utf8(digits).ok());
        let byte = digits.filter(|_| *first == b'\\').and_then(|digits| u8::from_str_radix(digits, 8).ok());
        path.push(byte.unwrap_or(*first));
        rest = if byte.is_some() { &behind[3..] } else { behind };
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_is_read_with_its_flags_and_an_odd_path() {
        let line =
            b"36 35 98:0 /a /mnt/my\\040disk\\134 rw,nosuid,nodev,noatime master:1 - ext3 /dev/root rw,errors=continue";
        let flags = MountFlags::NOSUID | MountFlags::NODEV;
        assert_eq!(Mount::read(line), Some(Mount { id: 36, path: "/mnt/my disk\\".into(), flags }));
        let line = b"37 35 0:3 / /x ro,noexec,nosymfollow - proc proc rw";
        let flags = MountFlags::RDONLY | MountFlags::NOEXEC | MountFlags::NOSYMFOLLOW;
        assert_eq!(Mount::read(line), Some(Mount { id: 37, path: "/x".into(), flags }));
        assert_eq!((Mount::read(b"38 35 0:3 /"), Mount::read(b"x y")), (None, None));
        assert_eq!(unescaped(b"\\04"), b"\\04");
    }
}
