use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};

use super::*;

struct Bed {
    _dir: tempfile::TempDir,
    folder: Folder,
    /// A file of the user, beside the folder.
    victim: PathBuf,
}

fn bed() -> Bed {
    let dir = tempfile::tempdir().unwrap();
    let (inside, victim) = (dir.path().join("inside"), dir.path().join("victim"));
    fs::create_dir(&inside).unwrap();
    fs::write(&victim, "mine").unwrap();
    Bed { folder: Folder::open(&inside).unwrap(), victim, _dir: dir }
}

fn pipe(path: &Path) {
    rustix::fs::mkfifoat(rustix::fs::CWD, path, Mode::RWXU).unwrap();
}

#[test]
fn no_name_begins_a_line_of_an_error() {
    let bed = bed();
    let name = "a\n  ua answer x\r\u{1b}[2J\u{85}b";
    symlink(&bed.victim, bed.folder.path().join(name)).unwrap();
    for error in [
        bed.folder.append(name).unwrap_err(),
        bed.folder.open_file(format!("../{name}")).unwrap_err(),
        link(Path::new(name)),
        special(Path::new(name)),
        too_large(Path::new(name), 1),
    ] {
        let told = error.to_string();
        assert!(told.contains("a\\n  ua answer x\\r") && !told.contains(char::is_control), "{told:?}");
    }
}

#[test]
fn no_name_that_is_a_link_is_followed() {
    let bed = bed();
    let (folder, inside) = (&bed.folder, bed.folder.path());
    symlink(&bed.victim, inside.join("a.log")).unwrap();
    symlink(bed.victim.parent().unwrap(), inside.join("up")).unwrap();
    for refused in [
        folder.open_file("a.log").map(drop),
        folder.read("a.log", 9).map(drop),
        folder.append("a.log").map(drop),
        folder.open_or_make("a.log").map(drop),
        folder.open_file("up/victim").map(drop),
        folder.append("up/new").map(drop),
        folder.replace("up/victim", b"theirs"),
        folder.make_folder("up/new").map(drop),
        folder.folder("up").map(drop),
        Folder::open_itself(&inside.join("up")).map(drop),
        folder.remove("up/victim"),
    ] {
        let why = refused.unwrap_err().to_string();
        assert!(why.contains("is a link"), "{why}");
    }
    assert_eq!(fs::read(&bed.victim).unwrap(), b"mine");
    assert!(!bed.victim.with_file_name("new").exists());
    // The link itself is replaced or removed, never what it leads to.
    folder.replace("a.log", b"ours").unwrap();
    folder.remove("up").unwrap();
    assert_eq!(
        (fs::read(&bed.victim).unwrap(), folder.read("a.log", 9).unwrap()),
        (b"mine".to_vec(), b"ours".to_vec())
    );
}

#[test]
fn what_is_no_file_is_neither_waited_for_nor_read() {
    let bed = bed();
    pipe(&bed.folder.path().join("pipe"));
    fs::create_dir(bed.folder.path().join("sub")).unwrap();
    assert!(bed.folder.read("pipe", 9).unwrap_err().to_string().contains("not a file"));
    assert!(bed.folder.append("pipe").unwrap_err().to_string().contains("not a file"));
    assert_eq!(bed.folder.open_file("sub").unwrap_err().kind(), io::ErrorKind::IsADirectory);
    let devices = Folder::open(Path::new("/dev")).unwrap();
    assert!(devices.read("zero", 9).unwrap_err().to_string().contains("not a file"));
}

#[test]
fn names_that_lead_out_are_refused() {
    let bed = bed();
    for name in ["../victim", "sub/../../victim", "/etc/passwd", "", "."] {
        assert!(bed.folder.read(name, 9).is_err(), "{name}");
        assert!(bed.folder.replace(name, b"x").is_err(), "{name}");
    }
    assert_eq!(fs::read(&bed.victim).unwrap(), b"mine");
}

#[test]
fn reading_ends_at_the_limit() {
    let bed = bed();
    bed.folder.replace("ten", b"0123456789").unwrap();
    assert_eq!(bed.folder.read("ten", 10).unwrap().len(), 10);
    assert_eq!(bed.folder.read("ten", 9).unwrap_err().kind(), io::ErrorKind::FileTooLarge);
}

#[test]
fn a_replaced_file_is_new_private_and_leaves_nothing_beside_it() {
    let bed = bed();
    bed.folder.make_folder("a/b").unwrap();
    bed.folder.replace("a/b/c.md", b"one").unwrap();
    let first = fs::metadata(bed.folder.path().join("a/b/c.md")).unwrap();
    let held = bed.folder.open_file("a/b/c.md").unwrap();
    bed.folder.replace("a/b/c.md", b"two").unwrap();
    let second = fs::metadata(bed.folder.path().join("a/b/c.md")).unwrap();
    assert_ne!(first.ino(), second.ino(), "whoever has the old one open keeps the old one");
    drop(held);
    assert_eq!(second.permissions().mode() & 0o777, 0o600);
    assert_eq!(fs::metadata(bed.folder.path().join("a")).unwrap().permissions().mode() & 0o777, 0o700);
    let names: Vec<_> = bed.folder.folder("a/b").unwrap().entries().unwrap();
    assert_eq!(names, [(OsString::from("c.md"), Kind::File)]);
    assert!(bed.folder.replace("a/b", b"x").is_err(), "a folder is not replaced");
    assert_eq!(bed.folder.folder("a").unwrap().entries().unwrap(), [(OsString::from("b"), Kind::Folder)]);
}

#[test]
fn a_folder_in_the_place_of_a_file_makes_way_with_what_is_in_it() {
    let bed = bed();
    for content in [None, Some("x")] {
        bed.folder.make_folder("c.md/d").unwrap();
        if let Some(text) = content {
            bed.folder.replace("c.md/d/e", text.as_bytes()).unwrap();
        }
        let mut replacement = bed.folder.replacement("c.md").unwrap();
        replacement.write_all(b"one").unwrap();
        replacement.place_whatever_is_there().unwrap();
        assert_eq!(fs::read_to_string(bed.folder.path().join("c.md")).unwrap(), "one");
        let entries = bed.folder.entries().unwrap();
        let (aside, _) = entries.iter().find(|(_, kind)| *kind == Kind::Folder).unwrap();
        assert_eq!((entries.len(), bed.folder.path().join(aside).join("d/e").exists()), (2, content.is_some()));
        fs::remove_dir_all(bed.folder.path().join(aside)).unwrap();
        bed.folder.remove("c.md").unwrap();
    }
}

#[test]
fn nobody_inherits_what_is_open() {
    let bed = bed();
    let file = bed.folder.append("log").unwrap();
    for open in [file.as_fd(), bed.folder.open.as_fd()] {
        let flags = rustix::io::fcntl_getfd(open).unwrap();
        assert!(flags.contains(rustix::io::FdFlags::CLOEXEC));
    }
}

#[test]
fn a_named_file_may_be_a_link_and_is_neither_waited_for_nor_endless() {
    let bed = bed();
    let inside = bed.folder.path();
    symlink(&bed.victim, inside.join("link")).unwrap();
    assert_eq!(read_text(&inside.join("link"), 9).unwrap(), "mine");
    assert_eq!(read_text(&inside.join("link"), 3).unwrap_err().kind(), io::ErrorKind::FileTooLarge);
    pipe(&inside.join("pipe"));
    symlink("/dev/zero", inside.join("zero")).unwrap();
    for name in ["pipe", "zero"] {
        assert!(read_text(&inside.join(name), 9).unwrap_err().to_string().contains("not a file"), "{name}");
    }
    assert_eq!(read_text(&inside.join("gone"), 9).unwrap_err().kind(), io::ErrorKind::NotFound);
    assert!(read_text(inside, 9).is_err());
    // What a shell hands over is a pipe of this process's own.
    let (reading, mut writing) = io::pipe().unwrap();
    writing.write_all(b"given").unwrap();
    drop(writing);
    let own = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&reading));
    assert_eq!(read_text(Path::new(&own), 9).unwrap(), "given");
}

#[test]
fn a_secret_is_read_of_a_file_that_nobody_else_reaches() {
    let bed = bed();
    let link = bed.folder.path().join("link");
    symlink(&bed.victim, &link).unwrap();
    for (mode, is_read) in [(0o600, true), (0o400, true), (0o640, false), (0o602, false), (0o604, false)] {
        fs::set_permissions(&bed.victim, fs::Permissions::from_mode(mode)).unwrap();
        for path in [&bed.victim, &link] {
            match read_private_text(path, 9) {
                Ok(text) => assert!(is_read && text == "mine", "{mode:o} {text}"),
                Err(Exposed::OpenToOthers) => assert!(!is_read, "{mode:o}"),
                Err(error) => panic!("{mode:o} {error:?}"),
            }
        }
    }
    pipe(&bed.folder.path().join("pipe"));
    for name in ["pipe", "gone", ""] {
        let refused = read_private_text(&bed.folder.path().join(name), 9);
        assert!(matches!(refused, Err(Exposed::Unread(_))), "{name}: {refused:?}");
    }
}

#[test]
fn a_folder_is_made_for_this_user_alone_and_behind_no_link_of_its_own_name() {
    let bed = bed();
    let inside = bed.folder.path();
    let made = Folder::make_itself(&inside.join("a/b")).unwrap();
    for folder in ["a", "a/b"] {
        assert_eq!(fs::metadata(inside.join(folder)).unwrap().mode() & 0o777, 0o700, "{folder}");
    }
    assert!(Folder::make_itself(made.path()).is_ok(), "one that is there is as good");
    symlink(bed.victim.parent().unwrap(), inside.join("up")).unwrap();
    let refused = Folder::make_itself(&inside.join("up")).unwrap_err().to_string();
    assert!(refused.contains("is a link"), "{refused}");
    assert!(Folder::make(&inside.join("up")).is_ok(), "whoever names the folder says where it is");
    // Whole in the place of whatever has the name, a link too.
    symlink(&bed.victim, made.path().join("kept")).unwrap();
    made.replace_durably("kept", b"ours").unwrap();
    assert_eq!((made.read("kept", 9).unwrap(), fs::read(&bed.victim).unwrap()), (b"ours".to_vec(), b"mine".to_vec()));
    assert_eq!(made.entries().unwrap().len(), 1, "nothing is left beside it");
}
