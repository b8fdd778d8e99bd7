//! Whose a file or a folder of another user's is, in words, and what whoever meets it does about that.
//!
//! `sudo` can keep HOME, and then root meets the files of the person who called it. Root may read and change all of them, so nothing but an advice
//! keeps the person from giving their own folder to root; and what root made there, they meet later and may not even read.

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use ua_core::{PrintedCommand, ShowPath as _};

pub(crate) use ua_files::user_in_words as named;

/// The number of the administrator.
const ROOT: u32 = 0;

fn us() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// The user that has what is at a path, or the nearest folder above it that can be looked at, if that is another one.
pub(crate) fn other(path: &Path) -> Option<u32> {
    let found = path.ancestors().find_map(|path| std::fs::metadata(path).ok())?;
    Some(found.uid()).filter(|owner| *owner != us())
}

/// The way out that is always right: to be that user.
pub(crate) fn as_that_user(owner: u32) -> String {
    as_user(us(), owner)
}

fn as_user(us: u32, owner: u32) -> String {
    match (us, owner) {
        (_, ROOT) => "run the command as root (`sudo ua …`)".to_owned(),
        (ROOT, _) => {
            format!("run the command as that user (`sudo -u '#{owner}' ua …`; if that is you, without `sudo`)")
        }
        (_, _) => format!("run the command as that user (`sudo -u '#{owner}' ua …`)"),
    }
}

/// What helps with a folder of another user's that is used as this user's own.
pub(crate) fn make_own(owner: u32, folder: &Path) -> String {
    let as_user = as_that_user(owner);
    let chown = PrintedCommand::of("chown -R").word(us().to_string()).word(folder);
    if us() == ROOT {
        format!("{as_user}, or, if nobody else uses it, give all of the folder to root ({})", chown.in_code())
    } else {
        format!("{as_user}, or make all of the folder yours (`sudo {chown}`)")
    }
}

/// What helps with a file or a folder of the user's settings or notes that is another user's.
pub(crate) fn believe_own(owner: u32, path: &Path) -> String {
    if us() == ROOT {
        // To take it over would lock out whose it is.
        return format!(
            "{}; `sudo -H ua …` uses root's own settings, where `sudo` left HOME as that user has it",
            as_that_user(owner)
        );
    }
    let chown = PrintedCommand::of("chown").word(us().to_string()).word(path);
    format!("look at what is in it, then `sudo {chown}`")
}

/// That a folder which is about to be made in one of the user's who called `sudo` will be root's, as a sentence: that user meets it later.
pub(crate) fn given_to_root(folder: &Path, called_by: Option<u32>) -> Option<String> {
    let caller = called_by.filter(|caller| us() == ROOT && other(folder) == Some(*caller))?;
    let chown = PrintedCommand::of("sudo chown -R").word(caller.to_string()).word(folder).in_code();
    Some(format!(
        "`sudo` makes {} root's, with what runs write there, and `ua` without `sudo` cannot use it; {chown} gives it back",
        folder.shown()
    ))
}

/// What helps where something cannot be read or written for lack of a right; `mode` is what `chmod` gives whoever owns it.
pub(crate) fn allow(path: &Path, mode: &'static str) -> String {
    if let Some(owner) = other(path) {
        return make_own(owner, nearest(path));
    }
    let chmod = PrintedCommand::of("chmod").word(mode).word(nearest(path));
    format!("let your user do that ({})", chmod.in_code())
}

/// What of a path can be looked at.
fn nearest(path: &Path) -> &Path {
    path.ancestors().find(|path| std::fs::metadata(path).is_ok()).unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whoever called `sudo` is not told to give root what is theirs without another way.
    #[test]
    fn whoever_meets_what_is_anothers_is_told_how_to_be_them() {
        assert_eq!(
            as_user(0, 1000),
            "run the command as that user (`sudo -u '#1000' ua …`; if that is you, without `sudo`)"
        );
        assert_eq!(as_user(1000, 1001), "run the command as that user (`sudo -u '#1001' ua …`)");
        assert_eq!(as_user(1000, 0), "run the command as root (`sudo ua …`)");
    }

    /// What is not there, or cannot be looked at, is of whoever has the folder that it is in.
    #[test]
    fn what_cannot_be_looked_at_is_of_the_owner_of_what_it_is_in() {
        let folder = tempfile::tempdir().unwrap();
        let missing = folder.path().join("a/b");
        assert_eq!((other(folder.path()), other(&missing)), (None, None));
        assert_eq!(given_to_root(&missing, Some(us())), None, "it is this user's own");
        let folder = folder.path().display();
        assert_eq!(allow(&missing, "u+rwx"), format!("let your user do that (`chmod u+rwx {folder}`)"));
    }
}
