//! What was typed in a configuration before the gateway, where somebody changed the rest of it since.
//!
//! Wrapping one entry of what the file was before changes one stretch of its text. Where the file of now has that stretch as it was written, the
//! entry is as it was left, and what stood there before stands there again, with its blanks, comments and quotes. A client that keeps JSON writes
//! all of it once more with every change, in a style of its own: then the values are those that were written, and those of before are put back in
//! that style and their old order, with what somebody changed beside them. Invariant: an entry is put back only where it then says what it said
//! before, and all others say what they say now; what is not put back stays as it is.
//! Proved by: this file's tests, and `tests_back`.

use std::cell::{Cell, RefCell};
use std::path::Path;

use super::entry::{Becomes, Entry, Front, Program, What};
use super::ordered::{Style, Told, merged};
use super::spans::has_comment;
use super::{Format, json, names_in, unmarked};

/// An entry, and whose it is: its project, if it is one project's, and its name.
pub(super) type Named = (Option<String>, String, Entry);

/// What the entries of a file said before the gateway, as far as that is known.
#[derive(Debug, Default)]
pub(super) struct Typed(Vec<Named>);

impl Typed {
    /// What those of this text say.
    pub(super) fn read(format: Format, path: &Path, text: &str) -> Self {
        Self(entries(format, path, text).unwrap_or_default())
    }

    /// What the one of this name said; nothing is known where it went through a gateway then.
    pub(super) fn of(&self, project: Option<&str>, name: &str) -> Option<&Entry> {
        let at = self.place(project, name)?;
        self.0.get(at).map(|(.., entry)| entry).filter(|entry| !entry.is_wrapped())
    }

    fn place(&self, project: Option<&str>, name: &str) -> Option<usize> {
        self.0.iter().position(|(of, own, _)| of.as_deref() == project && own == name)
    }
}

/// The file of now with each of these entries, or of all, as it was before it was wrapped, as far as nobody changed it since.
pub(super) fn restored(format: Format, path: &Path, before: &str, now: &str, servers: &[String]) -> String {
    // Whoever writes it once more may leave out the mark in front, or put one there.
    let ((mark, now), (_, before)) = (unmarked(now), unmarked(before));
    let mut text = now.to_owned();
    let typed = Typed::read(format, path, before);
    let Some(all) = entries(format, path, now) else { return format!("{mark}{text}") };
    for (place, (project, name, entry)) in all.iter().enumerate() {
        let is_meant = servers.is_empty() || servers.contains(name);
        let (true, Some(front)) = (is_meant, entry.front()) else { continue };
        let (Some(was), Some(at)) = (typed.of(project.as_deref(), name), typed.place(project.as_deref(), name)) else {
            continue;
        };
        let Some(wrapped) = with_one_wrapped(format, path, before, &front, at) else { continue };
        let next = put_back(format, path, &text, (place, was), before, &wrapped);
        let next = next.or_else(|| {
            // Only JSON is written by clients that know nothing of how it was typed.
            (format == Format::Json)
                .then(|| merged_back(path, &text, &typed, (project.as_deref(), name), before, &wrapped))
                .flatten()
        });
        text = next.unwrap_or(text);
    }
    format!("{mark}{text}")
}

/// What the entries of a configuration say, in their order.
pub(super) fn entries(format: Format, path: &Path, text: &str) -> Option<Vec<Named>> {
    let said = RefCell::new(Vec::new());
    let note = |project: Option<&str>, name: &str, entry: &Entry| {
        said.borrow_mut().push((project.map(str::to_owned), name.to_owned(), entry.clone()));
        (What::NotWrapped, None::<Becomes>)
    };
    format.edited(path, text, &[], note).ok()?;
    Some(said.into_inner())
}

/// The text with the gateway in front of the one entry at this place.
fn with_one_wrapped(format: Format, path: &Path, text: &str, front: &Front, place: usize) -> Option<String> {
    let at = Cell::new(0);
    let names = |file: &str| names_in(path, file);
    let wrap = |_: Option<&str>, server: &str, entry: &Entry| {
        if at.replace(at.get() + 1) == place {
            entry.wrapped(server, front, true, Program::Here, &names)
        } else {
            (What::NotWrapped, None)
        }
    };
    let made = format.edited(path, text, &[], wrap).ok()?;
    (made.text != text).then_some(made.text)
}

/// The one stretch of each of two texts outside of which they are equal.
pub(super) fn stretch(one: &str, other: &str) -> (std::ops::Range<usize>, std::ops::Range<usize>) {
    let shorter = one.len().min(other.len());
    let mut front = one.bytes().zip(other.bytes()).take_while(|(a, b)| a == b).count();
    while !one.is_char_boundary(front) || !other.is_char_boundary(front) {
        front -= 1;
    }
    let behind = one.bytes().rev().zip(other.bytes().rev()).take_while(|(a, b)| a == b).count();
    let mut behind = behind.min(shorter - front);
    while !one.is_char_boundary(one.len() - behind) || !other.is_char_boundary(other.len() - behind) {
        behind -= 1;
    }
    (front..one.len() - behind, front..other.len() - behind)
}

/// The text with what stood in `before` where `wrapped` is another text, if that puts back the entry at this place and touches no other.
fn put_back(
    format: Format,
    path: &Path,
    text: &str,
    (place, was): (usize, &Entry),
    before: &str,
    wrapped: &str,
) -> Option<String> {
    let (typed, written) = stretch(before, wrapped);
    let (typed, written) = (before.get(typed)?, wrapped.get(written)?);
    let now = entries(format, path, text)?;
    let is_put_back = |made: &str| {
        let Some(then) = entries(format, path, made).filter(|then| then.len() == now.len()) else { return false };
        let changed: Vec<usize> = (0..now.len()).filter(|at| now[*at] != then[*at]).collect();
        changed == [place] && then[place].2 == *was
    };
    let places = text.match_indices(written).filter(|_| !written.is_empty()).map(|(at, _)| at);
    let made = places.map(|at| format!("{}{typed}{}", &text[..at], &text[at + written.len()..]));
    made.into_iter().find(|made| is_put_back(made))
}

/// The text with the entry of this name as it was before, with what somebody changed of it since, in the style in which it is written now; `None`
/// where they changed what the gateway had changed, where a comment would go, and where taking it apart gives the same.
fn merged_back(
    path: &Path,
    text: &str,
    typed: &Typed,
    of: (Option<&str>, &str),
    before: &str,
    wrapped: &str,
) -> Option<String> {
    let place = |text: &str| {
        let mut all = json::places(text).into_iter();
        all.find(|(project, name, _)| (project.as_deref(), name.as_str()) == of).map(|(.., place)| place)
    };
    let told = |text: &str| Told::read(text, &place(text)?);
    let (once, written, now) = (told(before)?, told(wrapped)?, told(text)?);
    let back = merged(Some(&once), Some(&written), Some(&now)).ok()??;
    let at = place(text)?;
    let apart = Format::Json.unwrapped(path, text, typed, &[of.1.to_owned()]).ok()?.text;
    if told(&apart).is_some_and(|apart| apart.is_in_order(&back)) {
        return None;
    }
    if has_comment(text, &at) {
        return None;
    }
    let new = Style::of(text, &at)?.write(&back);
    let is_meant = Told::read(&new, &(0..new.len())).is_some_and(|read| read.is_in_order(&back));
    is_meant.then(|| format!("{}{new}{}", &text[..at.start], &text[at.end..]))
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "tests make the files that they look at")]
mod tests {
    use std::fs;

    use super::super::{install, uninstall};
    use super::*;

    const CLAUDE: &str = "{\n  \"starts\": 5,\n  \"mcpServers\" : { \"mail\":{\"command\":\"npx\",  \"args\":[ \"-y\", /* m */ \"mail\" ],\"env\":{\"K\":\"v\"}} ,\n    \"bare\": { \"command\" : \"notes\" } ,\n    \"crm\": {\"type\":\"http\",  \"url\":\"https://crm.example.com/mcp\",\"headers\":{\"B\":\"1\",\"A\":\"Bearer x\"}} },\n  \"projects\":{\"/p/a\":{\"mcpServers\":{\"mail\":{\"command\":\"npx\",  \"args\":[ \"-y\", /* m */ \"mail\" ]}, \"none\": {\"command\":\"x\",\"args\":[]}},\"seen\":1}}, \"last\": \"ü\"\n}\n";
    const CODEX: &str = "# top\nmodel = \"x\"  # c\n\n[mcp_servers.mail] # m\ncommand = \"python3\" # p\nargs = [\n  \"a\", # one\n  'b',\n]\n\n[mcp_servers.mail.env]\nK = \"v\"\n\n[mcp_servers.bare]\ncommand = 'x'\n\n[mcp_servers.http]\nurl = \"https://x.example.com/mcp\"\nbearer_token_env_var = \"TOK\" # t\n\n[last]\nstarts = 5\n";
    const GOOSE: &str = "# c\nstarts: 5\nextensions:\n  mail:\n    type: stdio\n    cmd: 'python3'   # cmd\n    args:\n    - a # one\n    - \"b\"\n    envs: {K: v}\n    enabled: true\n  bare: {cmd: x, type: stdio}\n  other:\n    cmd: y\n    args: []\nlast: \"x\"\n";

    fn ua() -> Front {
        Front { program: "/opt/ua".to_owned(), root: None, own_root: None }
    }

    /// Installs, has somebody change the file, uninstalls; what is there then.
    fn after(name: &str, before: &str, change: impl Fn(&str) -> String, steps: &[&[&str]]) -> String {
        let folder = tempfile::tempdir().unwrap();
        let (root, path) = (folder.path().join("gateway"), folder.path().join(name));
        fs::create_dir(&root).unwrap();
        fs::write(&path, before).unwrap();
        for servers in steps {
            let servers: Vec<String> = servers.iter().map(|&server| server.to_owned()).collect();
            install(&root, &path, &ua(), &servers, false).unwrap();
            assert_ne!(fs::read_to_string(&path).unwrap(), before);
            let changed = change(&fs::read_to_string(&path).unwrap());
            fs::write(&path, changed).unwrap();
        }
        uninstall(&root, &path, &[], false).unwrap();
        fs::read_to_string(&path).unwrap()
    }

    /// Over all formats, and what a client or a person changes beside the entries, once or after each of several installs: they are as they were
    /// typed, and the change is there.
    #[test]
    fn what_nobody_changed_is_put_back_to_the_byte() {
        let beside: [fn(&str) -> String; 5] = [
            |text| text.replacen('5', "6", 1),
            |text| text.replacen("last", "later", 1),
            |text| format!("{text}\n"),
            |text| text.replacen('5', "6", 1).replacen("last", "later", 1),
            |text| text.replacen("starts", "the_number_of_all_starts", 1),
        ];
        for (name, before) in [("a.json", CLAUDE), ("b.toml", CODEX), ("c.yaml", GOOSE)] {
            for (number, change) in beside.iter().enumerate() {
                for steps in [&[&[][..]][..], &[&["mail"][..], &[][..]], &[&["bare"][..], &["mail"][..], &[][..]]] {
                    let mut theirs = before.to_owned();
                    for _ in steps {
                        theirs = change(&theirs);
                    }
                    assert_eq!(after(name, before, change, steps), theirs, "{name} {number} {steps:?}");
                }
            }
        }
    }

    /// An entry that somebody changed is taken apart, with the change, and the others are put back to the byte.
    #[test]
    fn an_entry_that_was_changed_is_taken_apart_alone() {
        for (name, before, old, new) in [
            ("a.json", CLAUDE, "\"-y\"", "\"-z\""),
            ("b.toml", CODEX, "\"a\", # one", "\"z\", # one"),
            ("c.yaml", GOOSE, "- a # one", "- z # one"),
        ] {
            let change = |text: &str| {
                assert!(text.contains(old), "{text}");
                text.replacen(old, new, 1)
            };
            let made = after(name, before, change, &[&[]]);
            let format = Format::of(Path::new(name));
            let (was, is) = (entries(format, Path::new(name), before), entries(format, Path::new(name), &made));
            let (was, is) = (was.unwrap(), is.unwrap());
            let changed: Vec<_> = was.iter().zip(&is).filter(|(was, is)| was != is).map(|(_, is)| is).collect();
            assert_eq!((was.len(), changed.len()), (is.len(), 1), "{made}");
            assert!(changed[0].1 == "mail" && changed[0].2.args.iter().any(|arg| arg.contains('z')), "{made}");
            assert_eq!(made, before.replacen(old, new, 1));
        }
    }

    /// What has no arguments gets none.
    #[test]
    fn what_is_taken_apart_without_a_record_gets_no_empty_list() {
        for (name, text) in [
            ("a.json", "{\"mcpServers\": {\"a\": {\"command\": \"x\", \"env\": {}}}}"),
            ("b.toml", "[mcp_servers.a]\ncommand = \"x\"\n"),
        ] {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join(name);
            fs::write(&path, text).unwrap();
            install(&folder.path().join("one"), &path, &ua(), &[], false).unwrap();
            uninstall(&folder.path().join("other"), &path, &[], false).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
        }
    }

    /// A file is one by whichever of its names it is called, also where an earlier version kept what it was under another.
    #[test]
    fn a_link_and_what_it_leads_to_are_one_file() {
        for (first, then) in
            [("link.json", "real/mcp.json"), ("real/mcp.json", "link.json"), ("link.json", "link.json")]
        {
            let folder = tempfile::tempdir().unwrap();
            let root = folder.path().join("gateway");
            fs::create_dir_all(folder.path().join("real")).unwrap();
            fs::create_dir(&root).unwrap();
            fs::write(folder.path().join("real/mcp.json"), CLAUDE).unwrap();
            std::os::unix::fs::symlink("real/mcp.json", folder.path().join("link.json")).unwrap();
            install(&root, &folder.path().join(first), &ua(), &[], false).unwrap();
            uninstall(&root, &folder.path().join(then), &[], false).unwrap();
            assert_eq!(fs::read_to_string(folder.path().join("link.json")).unwrap(), CLAUDE, "{first} {then}");
            assert!(folder.path().join("link.json").is_symlink());
            assert_eq!(fs::read_dir(root.join("installed")).unwrap().count(), 0);
        }
    }

    /// Of one that comes and one that is taken away at once, whichever is last: what is taken away in the end is what was there, to the byte.
    #[test]
    fn what_comes_while_it_is_taken_away_keeps_its_record() {
        let folder = tempfile::tempdir().unwrap();
        let (root, path) = (folder.path().join("gateway"), folder.path().join("mcp.json"));
        fs::create_dir(&root).unwrap();
        fs::write(&path, CLAUDE).unwrap();
        for round in 0..200 {
            install(&root, &path, &ua(), &[], false).unwrap();
            std::thread::scope(|scope| {
                scope.spawn(|| uninstall(&root, &path, &[], false).unwrap());
                scope.spawn(|| install(&root, &path, &ua(), &[], false).unwrap());
            });
            let is_installed = fs::read_to_string(&path).unwrap() != CLAUDE;
            assert_eq!(fs::read_dir(root.join("installed")).unwrap().count(), usize::from(is_installed), "{round}");
            uninstall(&root, &path, &[], false).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), CLAUDE, "{round}");
        }
    }
}
