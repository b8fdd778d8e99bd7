//! What the operating system says of a failure, in plain words.
//!
//! The standard library writes what the system says with its number behind it: `Connection refused (os error 111)`. That number is how such words are
//! known for what they are; a text without one, as a tool, a model or a file may have it, is left as it is. People read the words, on a terminal and
//! on the pages about a run alike; programs have the number beside them, and diagnostics that somebody asked for (`UA_LOG`) have both.

use std::borrow::Cow;

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

/// The first number of a system's error in a text.
pub fn number_in(text: &str) -> Option<i32> {
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
        let refused = "http://h:1 cannot be reached: Connection refused (os error 111)";
        assert_eq!(in_plain_words(refused), "http://h:1 cannot be reached: nothing accepts connections there");
        // Twice, in the middle, and one that has no plain words.
        let full = "No space left on device (os error 28)";
        let text = format!("a: {full}; b: {full} (run r); c: Not a typewriter (os error 25)");
        assert_eq!(in_plain_words(&text), "a: the disk is full; b: the disk is full (run r); c: Not a typewriter");
        assert_eq!((number_in(&text), number_in("none")), (Some(28), None));
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
}
