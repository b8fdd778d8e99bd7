//! Where calls of a configured server go and as whom: what of its entry decides that, as digests.
//!
//! Two entries of one name may send as two accounts: they differ in a variable or in a header alone. So all that decides where a call goes
//! counts: program, arguments and folder, or the address; and what its variables and its headers hold. What a server inherits counts like what its
//! entry names: `PATH` says which program it is, and folders of the user say whom it is logged in as. Only what says how words look is left out
//! ([`SAY_NO_PLACE`]). Our own tool server says for each tool which of its settings choose the receiver.
//!
//! Of a login at an address (`ua login`) it counts which one it is: a person may log in as anybody. A client that is let in without a person is such a
//! login as well. What cannot be seen from here is what a program
//! reads from its own files.
//!
//! Proved by: this file's tests, the end-to-end tests `destination`; for the gateway `ua-broker`'s `accounts`.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::io;
use std::path::Path;

use serde_json::{Value, json};
use ua_core::{Destination, DestinationKey, ShowPath as _};
use ua_files::{Believe, Folder, secret};

use crate::config::{Reach, ServerSpec};
use crate::logins::check_address;

/// The file in the folder of locks that keeps the secret of a root's destinations.
pub(crate) const KEY_FILE: &str = "destinations.key";
/// Inherited variables that say how words look to a person, and so nothing about where a call goes. Whatever else is inherited counts: a list of
/// what does count would have to know every program.
pub(crate) const SAY_NO_PLACE: [&str; 5] = ["LANG", "LC_ALL", "LC_CTYPE", "TERM", "TZ"];

/// The part that says with which login calls go.
const LOGIN: &str = "login";

/// What of a server's reach decides where its calls go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decides {
    /// How it is started or where it is, its headers, and these variables: for every tool alike.
    Entry(BTreeSet<String>),
    /// By tool, these variables, and nothing else. A tool that is not named sends nothing anywhere.
    Tools(BTreeMap<String, BTreeSet<String>>),
}

impl ServerSpec {
    /// Where calls of a tool go; `None` of one that sends nothing anywhere. `login` is the identity of the login that they go with, where they go
    /// with one.
    pub(crate) fn destination(&self, tool: &str, key: &DestinationKey, login: Option<&str>) -> Option<Destination> {
        let mut parts = BTreeMap::new();
        let variables = match &self.decides {
            Decides::Entry(variables) => {
                self.reach.parts(&mut parts);
                parts.extend(login.map(|login| (LOGIN.to_owned(), json!(login))));
                variables
            }
            Decides::Tools(tools) => tools.get(tool).filter(|variables| !variables.is_empty())?,
        };
        if let Reach::Stdio { env, .. } = &self.reach {
            let held = variables.iter().filter_map(|name| Some((format!("variable {name}"), json!(env.get(name)?))));
            parts.extend(held);
        }
        Some(key.destination(&parts))
    }
}

/// Whether requests to an address go with the login that a person has there: its headers do not say as whom, and no token would cross a network in
/// the open.
pub fn goes_with_login(url: &str, headers: &BTreeMap<String, String>) -> bool {
    let says_whom = headers.keys().any(|name| name.eq_ignore_ascii_case("authorization"));
    !says_whom && check_address(url).is_ok()
}

/// The destination of calls that differ in nothing but the login that they go with, made with this secret; `None` where they go with none.
pub fn destination_of_login(secret: &str, login: Option<&str>) -> Option<Destination> {
    let login = login?;
    Some(DestinationKey::new(secret).destination(&BTreeMap::from([(LOGIN.to_owned(), json!(login))])))
}

impl Reach {
    /// The address whose login its requests go with, if anybody is logged in there; `None` where its entry says as whom.
    pub(crate) fn login_address(&self) -> Option<&str> {
        match self {
            Self::Stdio { .. } => None,
            Self::Http { url, headers, .. } => goes_with_login(url, headers).then_some(url),
        }
    }

    /// All but its variables, by the names that people are told.
    fn parts(&self, parts: &mut BTreeMap<String, Value>) {
        match self {
            Self::Stdio { command, args, env: _, cwd } => {
                parts.insert("program".to_owned(), json!([command, args]));
                parts.extend(cwd.as_ref().map(|cwd| ("folder".to_owned(), json!(cwd))));
            }
            Self::Http { url, headers, client: _ } => {
                parts.insert("address".to_owned(), json!(url));
                // Headers are known by their names whatever the case.
                let header =
                    |(name, value): (&String, &String)| (format!("header {}", name.to_ascii_lowercase()), json!(value));
                parts.extend(headers.iter().map(header));
            }
        }
    }
}

/// What destinations of a root are made with: the secret of that file.
pub(crate) fn destination_key(path: &Path) -> io::Result<DestinationKey> {
    own_secret(path).map(DestinationKey::new)
}

/// The secret that a file keeps for digests of what is stored nowhere. It is the owner's alone, and made when there is none. With another one
/// every destination is another one, and a person is asked about calls of before.
///
/// # Errors
/// It can be neither read nor made.
pub fn own_secret(path: &Path) -> io::Result<String> {
    let (Some(folder), Some(name)) = (path.parent(), path.file_name().and_then(OsStr::to_str)) else {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("{} names no file", path.shown())));
    };
    secret(&Folder::make(folder)?, name, Believe::Whatever)
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "tests make the files that they look at")]
mod tests {
    use std::fs;
    use std::os::unix::fs::MetadataExt as _;
    use std::path::PathBuf;

    use ua_core::ToolNamespace;

    use super::*;

    fn strings(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    fn program(command: &str, args: &[&str], env: &[(&str, &str)], cwd: Option<&str>) -> ServerSpec {
        let args = args.iter().map(|arg| (*arg).to_owned()).collect();
        let reach = Reach::Stdio { command: command.to_owned(), args, env: strings(env), cwd: cwd.map(PathBuf::from) };
        ServerSpec::new("mail", ToolNamespace::Mcp, reach)
    }

    fn address(url: &str, headers: &[(&str, &str)]) -> ServerSpec {
        let reach = Reach::Http { url: url.to_owned(), headers: strings(headers), client: None };
        ServerSpec::new("mail", ToolNamespace::Mcp, reach)
    }

    fn goes(spec: &ServerSpec) -> Destination {
        spec.destination("send", &DestinationKey::new("k"), None).unwrap()
    }

    fn goes_as(spec: &ServerSpec, login: &str) -> Destination {
        spec.destination("send", &DestinationKey::new("k"), Some(login)).unwrap()
    }

    /// Every two of these are two destinations.
    #[test]
    fn all_that_decides_where_a_call_goes_tells_servers_apart() {
        let all = [
            program("mail", &[], &[], None),
            program("mail", &["a"], &[], None),
            program("other", &[], &[], None),
            program("mail", &[], &[], Some("/w")),
            program("mail", &[], &[("A", "1")], None),
            program("mail", &[], &[("A", "2")], None),
            program("mail", &[], &[("B", "1")], None),
            program("mail", &[], &[], None).with_inherited(&strings(&[("HOME", "/home/ada")])),
            program("mail", &[], &[], None).with_inherited(&strings(&[("HOME", "/home/bob")])),
            program("mail", &[], &[], None).with_inherited(&strings(&[("PATH", "/home/ada")])),
            program("mail", &[], &[], None).with_inherited(&strings(&[("TMPDIR", "/home/ada")])),
            program("mail", &[], &[], None).with_inherited(&strings(&[("XDG_DATA_HOME", "/home/ada")])),
            address("http://x/mcp", &[("Authorization", "1")]),
            address("http://x/mcp", &[("Authorization", "2")]),
            address("http://x/mcp", &[("X-Account", "1")]),
            address("http://y/mcp", &[("Authorization", "1")]),
            address("http://x/mcp", &[]),
        ];
        let different: BTreeSet<Destination> = all.iter().map(goes).collect();
        assert_eq!(different.len(), all.len());
    }

    /// How words look makes no other destination, and what a person named outweighs what is inherited.
    #[test]
    fn what_is_inherited_decides_unless_it_only_says_how_words_look() {
        let plain = program("mail", &[], &[("A", "1")], None);
        let inherited = strings(&[("LANG", "de"), ("TERM", "t"), ("A", "2")]);
        assert_eq!(goes(&plain), goes(&plain.clone().with_inherited(&inherited)));
        let Reach::Stdio { env, .. } = plain.with_inherited(&inherited).reach else { panic!() };
        assert_eq!(env, strings(&[("A", "1"), ("LANG", "de"), ("TERM", "t")]));
        let header = |name: &str| goes(&address("http://x", &[(name, "1")]));
        assert_eq!(header("Authorization"), header("authorization"));
    }

    #[test]
    fn a_login_decides_where_the_entry_does_not_say_as_whom() {
        let web = address("https://x/mcp", &[("X-Team", "1")]);
        assert_ne!(goes_as(&web, "l1"), goes_as(&web, "l2"));
        assert_eq!(goes(&web).changes(Some(&goes_as(&web, "l1"))), ["login"]);
        assert_eq!(web.reach.login_address(), Some("https://x/mcp"));
        for without in [
            address("https://x/mcp", &[("authorization", "Bearer t")]),
            address("http://x.example/mcp", &[]), // no token goes over a network in the open
            program("mail", &[], &[], None),
        ] {
            assert_eq!(without.reach.login_address(), None, "{without:?}");
        }
    }

    #[test]
    fn a_tool_of_our_own_server_goes_by_its_own_settings_alone() {
        let spec = |mail: &str, hook: &str, program_file: &str| {
            let mut spec = program(program_file, &[], &[("MAIL", mail), ("HOOK", hook)], None);
            let of = |tool: &str, variable: &str| (tool.to_owned(), BTreeSet::from([variable.to_owned()]));
            spec.decides = Decides::Tools([of("send", "MAIL"), of("tell", "HOOK")].into());
            spec
        };
        let key = DestinationKey::new("k");
        let goes = |spec: ServerSpec, tool: &str| spec.destination(tool, &key, None);
        assert_eq!(goes(spec("a", "b", "ua"), "send"), goes(spec("a", "c", "newer/ua"), "send"));
        assert_ne!(goes(spec("a", "b", "ua"), "tell"), goes(spec("a", "c", "ua"), "tell"));
        assert_eq!(goes(spec("a", "b", "ua"), "write"), None);
    }

    #[test]
    fn the_key_is_made_once_and_is_the_owners_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("locks").join(KEY_FILE);
        let digest = |path: &Path| destination_key(path).unwrap().digest(&Value::Null);
        let made = digest(&path);
        assert_eq!(made, digest(&path));
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o077, 0);
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
        fs::write(&path, "cut").unwrap();
        let anew = digest(&path);
        assert!(anew != made && anew == digest(&path));
    }

    #[test]
    fn many_that_make_the_key_at_once_have_the_same() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(KEY_FILE);
        let made: BTreeSet<String> = std::thread::scope(|scope| {
            let each = || destination_key(&path).unwrap().digest(&Value::Null).to_hex();
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(each)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert_eq!(made.len(), 1);
    }
}
