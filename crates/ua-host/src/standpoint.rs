//! From where runs are driven and decided about: which process namespace, and which user namespace.
//!
//! A program that wants to hide who started it makes a process namespace of its own, in which its parents are not seen. A container is one,
//! too, and a person works in it. They are told apart by what was there before: each root, and the user's state folder, keep a note of where the
//! last command for people was given from. Whoever comes from another process namespace is another container, and welcome, unless the note is of
//! the machine itself, which nobody leaves by a command, or of another user namespace: without the rights of an administrator a process
//! namespace is only made together with one.
//!
//! Invariants: nothing is read or written where a folder of ours is a link (it came with a checkout, and leads where its maker says); a note of
//! this start of the machine is replaced only by whoever was judged by it; it lies where the database lies, so who can write it can write that.
//! Not closed: an administrator of a container who makes a process namespace in it.

use std::path::Path;

use ua_core::ShowPath as _;
use ua_files::Folder;

/// The note's file.
const NOTE: &str = "given_from";
/// The longest note that is read.
const MAX_BYTES: u64 = 1024;
/// The machine's own process namespace has this number.
const OF_THE_MACHINE: &str = "pid:[4026531836]";

/// Where a process is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Standpoint {
    /// The start of the machine.
    boot: String,
    /// The process namespace, as `/proc` names it.
    processes: String,
    /// The user namespace, as `/proc` names it.
    users: String,
}

impl Standpoint {
    /// Of these namespaces, since the machine was last started.
    pub fn new(processes: &str, users: &str) -> Self {
        Self { boot: ua_runner::boot_id(), processes: processes.to_owned(), users: users.to_owned() }
    }

    /// Of this process; nothing where the system has no such things.
    fn of_process() -> Option<Self> {
        let name = |kind: &str| {
            Some(std::fs::read_link(Path::new("/proc/self/ns").join(kind)).ok()?.to_string_lossy().into_owned())
        };
        let (processes, users) = (name("pid"), name("user"));
        (processes.is_some() || users.is_some())
            .then(|| Self::new(&processes.unwrap_or_default(), &users.unwrap_or_default()))
    }

    /// Whether every process of the machine is seen from here.
    pub fn is_of_the_machine(&self) -> bool {
        self.processes == OF_THE_MACHINE
    }

    /// Why it cannot be told who gives a command here, by the notes of these folders.
    pub fn unclear<'f>(&self, folders: impl IntoIterator<Item = &'f Path>) -> Option<String> {
        folders
            .into_iter()
            .find_map(|folder| self.unclear_by(&read(folder)?).map(|why| format!("{why} ({})", folder.shown())))
    }

    fn unclear_by(&self, note: &Self) -> Option<&'static str> {
        if note.boot != self.boot || note.processes == self.processes || self.is_of_the_machine() {
            return None;
        }
        if note.is_of_the_machine() {
            return Some("it is in a process namespace of its own, and commands were given outside of any before");
        }
        (note.users != self.users).then_some(
            "it is in process and user namespaces of its own, and commands were given outside of them before",
        )
    }

    /// Notes it in these folders, as far as they are there.
    pub fn note<'f>(&self, folders: impl IntoIterator<Item = &'f Path>) {
        for folder in folders {
            if read(folder).as_ref() == Some(self) {
                continue;
            }
            let text = format!("{}\n{}\n{}\n", self.boot, self.processes, self.users);
            let noted = Folder::open_itself(folder).and_then(|folder| folder.replace(NOTE, text.as_bytes()));
            if let Err(error) = noted {
                tracing::debug!(%error, folder = %folder.shown(), "where commands are given from was not noted");
            }
        }
    }

    /// Notes where this process is in a folder that has no note of this start of the machine yet.
    pub(crate) fn note_first(folder: &Path) {
        let Some(here) = Self::of_process() else { return };
        if read(folder).is_none_or(|note| note.boot != here.boot) {
            here.note([folder]);
        }
    }
}

fn read(folder: &Path) -> Option<Standpoint> {
    let text = String::from_utf8(Folder::open_itself(folder).ok()?.read(NOTE, MAX_BYTES).ok()?).ok()?;
    let mut lines = text.lines().map(str::to_owned);
    Some(Standpoint { boot: lines.next()?, processes: lines.next()?, users: lines.next()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s20_a_process_namespace_of_ones_own_hides_nobody_and_a_container_is_one() {
        let (root, state) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let folders = || [root.path(), state.path()];
        let (machine, users) = (OF_THE_MACHINE, "user:[4026531837]");
        let container = |number: u32| Standpoint::new(&format!("pid:[{number}]"), users);
        let own = Standpoint::new("pid:[77]", "user:[78]");
        // Nobody was here before.
        assert_eq!(own.unclear(folders()), None);
        // On the machine: whatever leaves it is not told from a program that hides.
        let machine = Standpoint::new(machine, users);
        machine.note(folders());
        for other in [&own, &container(5)] {
            assert!(other.unclear(folders()).unwrap().contains("commands were given outside of any before"));
            assert!(other.unclear([root.path()]).is_some() && other.unclear([state.path()]).is_some());
        }
        assert_eq!(machine.unclear(folders()), None);
        // In a container: the next container is as good, one that was made without rights is not.
        container(5).note(folders());
        assert_eq!((container(5).unclear(folders()), container(6).unclear(folders())), (None, None));
        assert!(own.unclear(folders()).unwrap().contains("process and user namespaces of its own"));
        assert_eq!(machine.unclear(folders()), None, "from there everything is seen");
        // Another start of the machine.
        Standpoint { boot: "earlier".to_owned(), ..machine.clone() }.note(folders());
        assert_eq!(own.unclear(folders()), None);
        // A note of this start stays until somebody was judged by it.
        machine.note(folders());
        Standpoint::note_first(root.path());
        assert_eq!(read(root.path()), Some(machine));
        Standpoint { boot: "earlier".to_owned(), ..own }.note(folders());
        Standpoint::note_first(root.path());
        assert_eq!(read(root.path()), Standpoint::of_process());
    }

    #[test]
    fn s5_no_note_is_written_or_read_where_a_link_leads() {
        let (elsewhere, root) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let locks = root.path().join("locks");
        std::os::unix::fs::symlink(elsewhere.path(), &locks).unwrap();
        Standpoint::note_first(&locks);
        Standpoint::new(OF_THE_MACHINE, "user:[1]").note([locks.as_path()]);
        assert_eq!(std::fs::read_dir(elsewhere.path()).unwrap().count(), 0);
        Standpoint::new(OF_THE_MACHINE, "user:[1]").note([elsewhere.path()]);
        assert_eq!(read(&locks), None);
    }
}
