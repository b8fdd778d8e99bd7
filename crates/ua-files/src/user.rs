//! What a user of this machine is called, for sentences about whose a file or a program is: people know names, not numbers.

use std::path::Path;
use std::sync::LazyLock;

/// The users of this machine.
const PASSWD: &str = "/etc/passwd";
/// Its groups, with whoever is in them beside those who have them as their first.
const GROUPS: &str = "/etc/group";
/// The most that is read of either.
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

/// Whether a group is this user's alone: where every user has one of their own, what it may change is not others' to change. The machine's
/// lists are read once, since this is asked of each folder above a file.
pub fn is_own_group(group: u32) -> bool {
    static LISTS: LazyLock<[String; 2]> = LazyLock::new(|| {
        [GROUPS, PASSWD].map(|file| crate::read_text(Path::new(file), MAX_PASSWD_BYTES).unwrap_or_default())
    });
    let [groups, users] = &*LISTS;
    is_alone_in(group, rustix::process::geteuid().as_raw(), groups, users)
}

/// Whether a group has the number or the name of a user, and nobody else is in it by these lists of the machine. A group of any other name (`users`)
/// may have more in it than the lists say, from a directory of people.
fn is_alone_in(group: u32, user: u32, groups: &str, users: &str) -> bool {
    if (group, user) == (0, 0) {
        return true;
    }
    let name = named_in(users, user);
    let listed: Vec<(&str, &str)> = groups
        .lines()
        .filter_map(|line| {
            let mut fields = line.split(':');
            let (name, _, number) = (fields.next()?, fields.next()?, fields.next()?);
            (number.parse() == Ok(group)).then(|| (name, fields.next().unwrap_or_default()))
        })
        .collect();
    let is_of_name = listed.iter().any(|(listed, _)| Some(*listed) == name.as_deref());
    let mut members = listed.iter().flat_map(|(_, members)| members.split(',')).map(str::trim);
    let has_others = members.any(|member| !member.is_empty() && Some(member) != name.as_deref());
    let is_group_of_another = |line: &str| {
        let mut fields = line.split(':').skip(2);
        let (number, first_group) = (fields.next(), fields.next());
        first_group.is_some_and(|first| first.parse() == Ok(group))
            && number.is_some_and(|number| number.parse() != Ok(user))
    };
    (group == user || is_of_name) && !has_others && !users.lines().any(is_group_of_another)
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

    /// Groups by which nobody else can change a file, and others.
    #[test]
    fn a_group_is_a_users_alone_where_nobody_else_is_in_it() {
        let users = "root:x:0:0::/root:/bin/sh\nada:x:1000:1000::/home/ada:/bin/sh\nbob:x:1001:1002::/home/bob:/bin/sh\n\
                     eve:x:1003:1002::/home/eve:/bin/sh\nsync:x:5:0::/:/bin/sync\nkim:x:1005:1006::/home/kim:/bin/sh\n";
        let groups = "root:x:0:\nusers:x:100:\nada:x:1000:ada\nbob:x:1002:\nteam:x:1004:ada,eve\nkim:x:1006:\nmax:x:1007:max,ada\n\
                      broken\n";
        for (group, user, is_alone) in [
            (1000, 1000, true),  // of its own number
            (1006, 1005, true),  // of its own name
            (1002, 1001, false), // of its own name, and the first group of another
            (1004, 1000, false), // of a team
            (1004, 1004, false), // of its own number alone
            (1007, 1007, false), // another is in it
            (100, 1000, false),  // whom the lists do not name
            (0, 1000, false),
            (0, 0, true),
            (4000, 4000, true), // of a user whom another list has
            (4001, 4000, false),
        ] {
            assert_eq!(is_alone_in(group, user, groups, users), is_alone, "{group} {user}");
        }
        assert!(is_alone_in(1000, 1000, "", ""));
    }
}
