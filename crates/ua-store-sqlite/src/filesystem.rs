//! Which file systems a database may live on.
//!
//! Network file systems answer locks and syncs as they please; a database there is lost sooner or later. A file system in
//! memory is safe for SQLite, but not against a power cut.

use std::path::Path;

use ua_store::StoreError;

use crate::error::{refused, refused_because};
use ua_core::ShowPath as _;

/// File systems whose locks or syncs cannot be relied on, by their `statfs` magic.
const UNSAFE: [(i128, &str); 11] = [
    (0x6969, "NFS"),
    (0xFE53_4D42, "SMB"),
    (0xFF53_4D42, "CIFS"),
    (0x517B, "SMB"),
    (0x0102_1997, "9p"),
    (0x6573_5546, "FUSE"),
    (0x5346_414F, "AFS"),
    (0x00C3_6400, "Ceph"),
    (0x0BD0_0BD0, "Lustre"),
    (0x4750_4653, "GPFS"),
    (0x786F_4256, "a VirtualBox shared folder"),
];

/// File systems that forget everything when the machine stops.
const VOLATILE: [(i128, &str); 2] = [(0x0102_1994, "tmpfs"), (0x8584_58F6, "ramfs")];

#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    Fine,
    Volatile(&'static str),
    Unsafe(&'static str),
}

fn judge(magic: i128) -> Verdict {
    let name = |list: &[(i128, &'static str)]| list.iter().find(|(known, _)| *known == magic).map(|(_, name)| *name);
    if let Some(name) = name(&UNSAFE) {
        return Verdict::Unsafe(name);
    }
    name(&VOLATILE).map_or(Verdict::Fine, Verdict::Volatile)
}

/// Whether a database may live on a file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Suitability {
    /// Nothing speaks against it.
    Fine,
    /// It forgets everything when the machine stops.
    Volatile,
    /// Its locks or syncs cannot be relied on; a database there is refused.
    Unsafe,
}

/// Those that are fine and have a name here.
const KNOWN: [(i128, &str); 5] =
    [(0xEF53, "ext4"), (0x5846_5342, "XFS"), (0x9123_683E, "Btrfs"), (0x2FC1_2FC1, "ZFS"), (0x794C_7630, "overlayfs")];

/// The file system under a folder that is there: its name, or the number by which the system knows it, and what it is good for.
///
/// # Errors
///
/// `Unavailable` when the folder cannot be examined.
pub fn filesystem_of(folder: &Path) -> Result<(String, Suitability), StoreError> {
    let magic = magic(folder)?;
    Ok(match judge(magic) {
        Verdict::Unsafe(name) => (name.to_owned(), Suitability::Unsafe),
        Verdict::Volatile(name) => (name.to_owned(), Suitability::Volatile),
        Verdict::Fine => {
            let name = KNOWN.iter().find(|(known, _)| *known == magic).map(|(_, name)| (*name).to_owned());
            (name.unwrap_or_else(|| format!("a file system of type {magic:#x}")), Suitability::Fine)
        }
    })
}

/// Refuses an unsafe file system under `folder`, and warns about a volatile one.
pub(crate) fn check(folder: &Path, allow_unsafe: bool) -> Result<(), StoreError> {
    match judge(magic(folder)?) {
        Verdict::Fine => {}
        Verdict::Volatile(name) => {
            tracing::warn!(folder = %folder.shown(), "the runtime database is on {name}, and would not survive a power cut");
        }
        Verdict::Unsafe(name) if allow_unsafe => {
            tracing::warn!(folder = %folder.shown(), "the runtime database is on {name}, whose locks cannot be relied on");
        }
        Verdict::Unsafe(name) => {
            return Err(refused(format!(
                "{} is on {name}, where SQLite's locks and syncs cannot be relied on; put the database on a local disk, \
                 or allow unsafe file systems if you know better",
                folder.shown()
            )));
        }
    }
    Ok(())
}

/// Whether an attribute of a file stays there as long as what was written into the file after it, also where the machine stops. Of others nobody
/// looked: ZFS may forget attributes that it keeps with a file, unless it is a new one.
pub(crate) fn keeps_attributes(folder: &Path) -> bool {
    const KEEP: [i128; 5] = [0xEF53, 0x5846_5342, 0x9123_683E, 0x794C_7630, 0x0102_1994];
    magic(folder).is_ok_and(|magic| KEEP.contains(&magic))
}

#[cfg(target_os = "linux")]
fn magic(folder: &Path) -> Result<i128, StoreError> {
    let stat = rustix::fs::statfs(folder)
        .map_err(|error| refused_because(format!("{} cannot be examined", folder.shown()), error))?;
    // Some machines sign-extend the 32-bit magic.
    Ok(i128::from(stat.f_type) & 0xFFFF_FFFF)
}

#[cfg(not(target_os = "linux"))]
fn magic(_folder: &Path) -> Result<i128, StoreError> {
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn network_file_systems_are_unsafe_and_memory_is_volatile() {
        assert_eq!(judge(0x6969), Verdict::Unsafe("NFS"));
        assert_eq!(judge(0x6573_5546), Verdict::Unsafe("FUSE"));
        assert_eq!(judge(0x0102_1994), Verdict::Volatile("tmpfs"));
        assert_eq!(judge(0xEF53), Verdict::Fine);
    }
}
