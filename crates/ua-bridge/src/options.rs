//! Which words of an entry's arguments are options, and which are what an option is given.
//!
//! Three read them: `ua`, which finds the gateway's folder there, the bridge, and whoever writes or restores a client's configuration. Names in
//! that file are a project's to choose, and one of a variable may be written as an option is (`--root`). So all three read by this alone, and the
//! word behind an option that takes one is its value, whatever it looks like.

use std::ffi::OsStr;

/// The options that the next word belongs to.
const WITH_VALUE: [&str; 10] = [
    "--root",
    "--socket",
    "--start",
    "--name",
    "--env",
    "--project",
    "--patience",
    "--url",
    "--header",
    "--header-from",
];

/// The arguments of an entry, told apart.
#[derive(Debug, PartialEq, Eq)]
pub struct Options<'a, T> {
    /// Each option with its value, in order: `None` for one that takes none, for one whose value is missing, and for any other word.
    pub options: Vec<(&'a T, Option<&'a T>)>,
    /// What stands behind `--`: the tool server's command. `None` without one.
    pub command: Option<&'a [T]>,
}

impl<'a, T: AsRef<OsStr>> Options<'a, T> {
    /// Tells the arguments apart.
    pub fn of(args: &'a [T]) -> Self {
        let mut read = Self { options: Vec::new(), command: None };
        let mut rest = args;
        while let [word, behind @ ..] = rest {
            rest = behind;
            if word.as_ref() == "--" {
                read.command = Some(behind);
                break;
            }
            let value = rest.first().filter(|_| WITH_VALUE.iter().any(|option| word.as_ref() == *option));
            rest = &rest[usize::from(value.is_some())..];
            read.options.push((word, value));
        }
        read
    }

    /// Whether it is there as an option, and not as the value of one.
    pub fn has(&self, option: &str) -> bool {
        self.options.iter().any(|(word, _)| word.as_ref() == option)
    }

    /// Whether they say which tool server there is: a command, an address, or all of them.
    pub fn name_a_server(&self) -> bool {
        self.command.is_some() || self.has("--url") || self.has("--all")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each option that takes a value, with each word for its value that is an option elsewhere.
    #[test]
    fn a_value_is_never_an_option() {
        for option in WITH_VALUE {
            for value in WITH_VALUE.into_iter().chain(["--", "--all", "--root=/x", "-h", "A=B", ""]) {
                let args = [option, value, "--all", "--", "npx", "--root", "/kept"];
                let read = Options::of(&args);
                assert_eq!(read.options, [(&option, Some(&value)), (&"--all", None)], "{option} {value}");
                assert_eq!(read.command, Some(&["npx", "--root", "/kept"][..]), "{option} {value}");
                assert_eq!(read.has("--root"), option == "--root", "{option} {value}");
            }
            assert_eq!(Options::of(&[option]).options, [(&option, None)]);
        }
        let bare: Options<'_, &str> = Options::of(&[]);
        assert!(!bare.name_a_server() && !Options::of(&["--env", "--"]).name_a_server());
        assert!(Options::of(&["--"]).name_a_server() && Options::of(&["--name", "a", "--all"]).name_a_server());
    }
}
