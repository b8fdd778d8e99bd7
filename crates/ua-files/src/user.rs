//! What a user of this machine is called, for sentences about whose a file or a program is: people know names, not numbers.

use std::path::Path;

/// The users of this machine.
const PASSWD: &str = "/etc/passwd";
/// The most that is read of them.
const MAX_PASSWD_BYTES: u64 = 4 * 1024 * 1024;

/// What a user is called: by the machine's own list, else by the number (`uid 1000`).
pub fn user_name(uid: u32) -> String {
    let listed = crate::read_text(Path::new(PASSWD), MAX_PASSWD_BYTES).ok();
    listed.and_then(|list| named_in(&list, uid)).unwrap_or_else(|| number(uid))
}

/// A user by name and number (`ada, uid 1000`), or by the number alone where there is no name.
pub fn user_in_words(uid: u32) -> String {
    let (name, number) = (user_name(uid), number(uid));
    if name == number { number } else { format!("{name}, {number}") }
}

fn number(uid: u32) -> String {
    format!("uid {uid}")
}

/// The name of a user in the lines of such a list.
fn named_in(list: &str, uid: u32) -> Option<String> {
    list.lines().find_map(|line| {
        let mut fields = line.split(':');
        let (name, _, number) = (fields.next()?, fields.next()?, fields.next()?);
        let is_name = !name.is_empty() && !name.chars().any(|c| c.is_control() || c.is_whitespace());
        (is_name && number.parse() == Ok(uid)).then(|| name.to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_is_called_as_the_machine_calls_them() {
        let list = "# users\nroot:x:0:0:root:/root:/bin/sh\n:x:7:7::/:\nada:x:1000:1000::/home/ada:/bin/sh\nbroken\n";
        assert_eq!(named_in(list, 0).as_deref(), Some("root"));
        assert_eq!(named_in(list, 1000).as_deref(), Some("ada"));
        assert_eq!((named_in(list, 7), named_in(list, 8)), (None, None));
    }

    #[test]
    fn a_user_is_named_by_name_and_number() {
        assert_eq!(user_in_words(54_321), "uid 54321", "nobody has that number");
        let own = rustix::process::geteuid().as_raw();
        assert!(user_in_words(own).ends_with(&format!("uid {own}")), "{}", user_in_words(own));
        assert_eq!(user_in_words(own).starts_with("uid"), user_name(own).starts_with("uid"));
    }
}
