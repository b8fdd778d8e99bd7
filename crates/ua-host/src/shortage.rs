//! What the operating system's numbers mean for what is to be done: whether something is short for now, or wrong.
//!
//! The words themselves, as people read them, are [`ua_evidence::os_words`]. People read the words, machines the number beside them
//! ([`HostError::detail`](crate::HostError::detail)).

use std::io;

use rustix::io::Errno;
use ua_evidence::os_words::number_in;

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

#[cfg(test)]
mod tests {
    use ua_evidence::os_words::in_plain_words;

    use super::*;

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
            assert_ne!(in_plain_words(&said), words, "{said}");
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
