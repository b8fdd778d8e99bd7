//! What the operating system says of a failure, in plain words.
//!
//! The standard library writes what the system says with its number behind it: `Connection refused (os error 111)`. That number is how such words are
//! known for what they are; a text without one, as a tool, a model or a file may have it, is left as it is. People read the words, machines the
//! number beside them ([`HostError::detail`](crate::HostError::detail)), and diagnostics that somebody asked for (`UA_LOG`) have both.

use std::borrow::Cow;
use std::io;

use rustix::io::Errno;

/// What stands between the words and the number.
const BEGIN: &str = " (os error ";

/// What a system says, and what a person reads. By the words: the numbers of systems differ.
const WORDS: [(&str, &str); 28] = [
    ("Address already in use", "another program uses that address"),
    ("Argument list too long", "the arguments are too long for a program"),
    ("Broken pipe", "the other side has ended"),
    ("Cannot allocate memory", "there is not enough memory"),
    ("Cannot assign requested address", "that address is not one of this machine"),
    ("Connection refused", "nothing accepts connections there"),
    ("Connection reset by peer", "the other side closed the connection"),
    ("Connection timed out", "there was no answer in time"),
    ("Directory not empty", "the folder is not empty"),
    ("Disk quota exceeded", "your quota of that disk is used up"),
    ("Exec format error", "it is not a program for this machine"),
    ("File exists", "it exists already"),
    ("File name too long", "the name is too long"),
    ("Input/output error", "the disk or the device failed"),
    ("Invalid cross-device link", "it is on another disk"),
    ("Is a directory", "it is a folder"),
    ("Network is unreachable", "no network leads there"),
    ("No route to host", "no network leads there"),
    ("No such file or directory", "there is no such file or folder"),
    ("No space left on device", "the disk is full"),
    ("Not a directory", "something that is no folder is on the way to it"),
    ("Operation not permitted", "the system does not allow it"),
    ("Operation timed out", "there was no answer in time"),
    ("Permission denied", "permission denied"),
    ("Read-only file system", "its file system is mounted read-only"),
    ("Too many levels of symbolic links", "it is a link, or links lead in a circle"),
    ("Too many open files in system", "too many files are open on this machine"),
    ("Too many open files", "too many files are open (`ulimit -n`)"),
];

/// What looking up a host says, which has no number.
const LOOKED_UP: [(&str, &str); 3] = [
    ("failed to lookup address information: Name or service not known", "there is no host of that name"),
    ("failed to lookup address information: No address associated with hostname", "there is no address of that name"),
    (
        "failed to lookup address information: Temporary failure in name resolution",
        "host names cannot be looked up at the moment, as without a network",
    ),
];

/// A text with what a system says in it in plain words, and without its numbers.
pub fn in_plain_words(text: &str) -> Cow<'_, str> {
    let mut out = without_numbers(text);
    for (said, plain) in LOOKED_UP {
        if out.contains(said) {
            out = Cow::Owned(out.replace(said, plain));
        }
    }
    out
}

fn without_numbers(text: &str) -> Cow<'_, str> {
    if first_number(text).is_none() {
        return Cow::Borrowed(text);
    }
    let (mut out, mut rest) = (String::with_capacity(text.len()), text);
    while let Some((before, _, behind)) = first_number(rest) {
        let known = WORDS.iter().find_map(|(said, plain)| Some((before.strip_suffix(said)?, *plain)));
        match known {
            Some((before, plain)) => out.extend([before, plain]),
            None => out.push_str(before),
        }
        rest = behind;
    }
    Cow::Owned(out + rest)
}

/// What the machine or this process has too little of at the moment, whatever was to be done: nobody used anything wrongly, and later it may work.
const SHORTAGES: [Errno; 6] = [Errno::MFILE, Errno::NFILE, Errno::NOMEM, Errno::NOSPC, Errno::DQUOT, Errno::IO];

/// Whether a system's number says that something is short, and not that a name, a right or a place is wrong.
pub(crate) fn is_shortage(number: i32) -> bool {
    SHORTAGES.iter().any(|short| short.raw_os_error() == number)
}

/// Whether it says that no more files can be opened, by this process or on this machine.
pub(crate) fn is_of_open_files(number: i32) -> bool {
    [Errno::MFILE, Errno::NFILE].iter().any(|short| short.raw_os_error() == number)
}

/// The same as [`is_shortage`] of an error that may have been given other words.
pub(crate) fn is_of_shortage(error: &io::Error) -> bool {
    number_of(error).is_some_and(is_shortage)
}

/// The system's number of an error that may have been given other words.
pub(crate) fn number_of(error: &io::Error) -> Option<i32> {
    error.raw_os_error().or_else(|| number_in(&error.to_string()))
}

/// The first number of a system's error in a text.
pub(crate) fn number_in(text: &str) -> Option<i32> {
    first_number(text).map(|(_, number, _)| number)
}

/// The same with what is in front of it and what is behind it.
fn first_number(text: &str) -> Option<(&str, i32, &str)> {
    text.match_indices(BEGIN).find_map(|(at, _)| {
        let (digits, behind) = text[at + BEGIN.len()..].split_once(')')?;
        let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
        Some((&text[..at], digits.parse().ok().filter(|_| is_number)?, behind))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_system_says_is_told_in_plain_words() {
        let refused = io::Error::from(rustix::io::Errno::CONNREFUSED);
        let told = |error: &io::Error| in_plain_words(&format!("http://h:1 cannot be reached: {error}")).into_owned();
        assert_eq!(told(&refused), "http://h:1 cannot be reached: nothing accepts connections there");
        // Twice, in the middle, and one that has no plain words.
        let (full, other) = (io::Error::from(rustix::io::Errno::NOSPC), io::Error::from(rustix::io::Errno::NOTTY));
        let text = format!("a: {full}; b: {full} (run r); c: {other}");
        let words = other.to_string();
        let words = words.split(" (os").next().unwrap();
        assert_eq!(in_plain_words(&text), format!("a: the disk is full; b: the disk is full (run r); c: {words}"));
        assert_eq!((number_in(&text), number_in("none")), (Some(rustix::io::Errno::NOSPC.raw_os_error()), None));
    }

    /// What somebody else wrote has no number of the system behind it.
    #[test]
    fn words_without_a_number_are_left_as_they_are() {
        for text in
            ["Connection refused", "see (os error x)", " (os error )", "(os error 2)", "Permission denied, he said"]
        {
            assert_eq!(in_plain_words(text), text);
        }
    }

    /// As this machine says them: what it says otherwise would reach people as it is.
    #[test]
    fn the_words_are_those_of_the_system() {
        let all = [
            Errno::ACCESS,
            Errno::NOENT,
            Errno::NOSPC,
            Errno::CONNREFUSED,
            Errno::ROFS,
            Errno::NOTDIR,
            Errno::MFILE,
            Errno::NFILE,
            Errno::LOOP,
        ];
        for errno in all {
            let said = io::Error::from(errno).to_string();
            let words = said.split(" (os").next().unwrap();
            assert!(WORDS.iter().any(|(known, _)| *known == words), "{said}");
        }
    }

    #[test]
    fn what_is_short_is_told_from_what_is_wrong() {
        let of = |errno: Errno| io::Error::from(errno);
        let named = |errno: Errno| io::Error::other(format!("/runs: {}", of(errno)));
        for short in SHORTAGES {
            assert!(is_of_shortage(&of(short)) && is_of_shortage(&named(short)), "{short:?}");
        }
        for wrong in [Errno::ACCESS, Errno::NOENT, Errno::NOTDIR, Errno::ROFS, Errno::LOOP, Errno::EXIST] {
            assert!(!is_of_shortage(&of(wrong)) && !is_of_shortage(&named(wrong)), "{wrong:?}");
        }
        assert!(!is_of_shortage(&io::ErrorKind::NotFound.into()));
    }
}
