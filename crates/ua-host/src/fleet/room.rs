//! Whether the disk of a worker's root has room for what a run begins with.
//!
//! A run that is taken on a full disk fails somewhere between its lock and its tool servers, each time with another reason and none of which
//! names the disk. So a worker looks before it takes one, and others take it meanwhile.

use std::path::Path;
use ua_core::ShowPath as _;

/// With less free space the folder, the locks and the logs of a run can hardly be made.
const TOO_LITTLE: u64 = 1 << 20;

/// What is wrong with the disk of `root`, as a sentence; nothing where it cannot be looked at, which whoever takes a run finds out.
pub fn wanting(root: &Path) -> Option<String> {
    let disk = rustix::fs::statvfs(root).ok()?;
    let free = disk.f_bavail.saturating_mul(disk.f_frsize);
    let (files, free_files) = (disk.f_files, disk.f_favail);
    said(root, free, (files > 0).then_some(free_files))
}

fn said(root: &Path, free: u64, free_files: Option<u64>) -> Option<String> {
    let what = match free_files {
        _ if free < TOO_LITTLE => format!("{} free", ua_core::size_in_words(free)),
        Some(0) => "it takes no more files".to_owned(),
        Some(_) | None => return None,
    };
    Some(format!("the disk of {} is full: {what}", root.shown()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_is_full_that_has_no_room_or_takes_no_files() {
        let said = |free, files| said(Path::new("/r"), free, files);
        for free in [0, 24 << 10, TOO_LITTLE - 1] {
            assert!(said(free, Some(9)).is_some_and(|why| why.starts_with("the disk of /r is full: ")), "{free}");
        }
        assert_eq!(said(TOO_LITTLE, Some(0)).as_deref(), Some("the disk of /r is full: it takes no more files"));
        // Some file systems count no files.
        assert_eq!((said(TOO_LITTLE, Some(1)), said(TOO_LITTLE, None)), (None, None));
    }
}
