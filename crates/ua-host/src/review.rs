//! What a person has to see of a tool server before saying yes to it, and the digest of all of it.

mod covered;
mod deciding;
mod env_words;
mod fetchers;
mod kept;
mod kinds;
mod launchers;
mod named;
mod of_ua;
mod shadow;
mod variables;

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use sha2::Digest as _;
use ua_core::{Busy, KeyBuilder, Sha256, ShowPath as _};
use ua_mcp::{ClientCredentials, ClientKey, ClientSecret, KeySource, Reach, references};

use crate::roots::{Roots, state_folder};
use crate::settings::{Settings, is_systems, open_to_strangers, program_open_to_strangers};
use crate::text::plain;

use covered::{Covered, covered};
use kinds::{has_ending, is_cache, is_map, is_program_file, open};
pub(crate) use launchers::name_of;
use launchers::{assignments, unpinned};
pub(crate) use shadow::{Start, of_uv_run, shadow};
use variables::is_loader;

/// How much of a program or script is read; of a larger one counts besides which file it is, and when it was changed last.
const MAX_BYTES: u64 = 512 * 1024 * 1024;

/// How many lines a person is shown before files are only counted.
const SHOWN_FILES: usize = 24;

/// How many changes a sentence names.
const SHOWN_CHANGES: usize = 5;

/// What counts about a server, in one digest and piece by piece: nothing counts without a name by which a person is told that it changed.
struct Counts {
    whole: KeyBuilder,
    parts: BTreeMap<String, KeyBuilder>,
}

impl Counts {
    fn new(kind: &str, server: &str) -> Self {
        let whole = KeyBuilder::new("ua.trust.v2").field("kind", kind).field("server", server);
        Self { whole, parts: BTreeMap::new() }
    }

    /// Adds a field to what a person calls `part`.
    fn field(&mut self, part: &str, label: &str, value: &str) {
        let whole = std::mem::replace(&mut self.whole, KeyBuilder::new(""));
        self.whole = whole.field(label, value);
        let so_far = self.parts.remove(part).unwrap_or_else(|| KeyBuilder::new("ua.trust.part.v1"));
        self.parts.insert(part.to_owned(), so_far.field(label, value));
    }

    fn finish(self) -> (String, BTreeMap<String, String>) {
        // Few enough that a key among the values cannot be found by trying, and enough to notice a change.
        let digits = |key: KeyBuilder| key.finish().as_str().chars().take(8).collect();
        let parts = self.parts.into_iter().map(|(part, key)| (part, digits(key))).collect();
        (self.whole.finish().as_str().to_owned(), parts)
    }
}

/// One server, as it is now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerReview {
    /// Its name.
    pub server: String,
    /// Everything that counts, in one number.
    pub digest: String,
    /// The same piece by piece: what a person calls it, and a few digits by which a change of it is known. No value can be read off them.
    pub parts: BTreeMap<String, String>,
    /// What is shown: label and text, foreign text.
    pub lines: Vec<(&'static str, String)>,
    /// What a person is warned of.
    pub warnings: Vec<String>,
    /// It runs whatever a registry has that day.
    pub is_unpinned: bool,
    /// A file that it runs, or a folder on the way there, that others than this user and root may change, and why. Between the look at a file and its
    /// start they could put another one in its place.
    pub of_others: Option<(PathBuf, &'static str)>,
}

impl ServerReview {
    /// Looks at a server as its configuration has it, which lies in the folder `base`: references are not resolved, nothing is started or
    /// reached.
    pub fn of(settings: &Settings, base: &Path, server: &str, reach: &Reach) -> Self {
        Self::with(&Look { settings, base, counts: &|_, _| true, is_strict: false }, server, reach)
    }

    /// The same of a server that a person named, which is started in `base`: of files only those count that are programs, and lie in one of
    /// `folders`, in the checkout of one, or in the folder that the server works in; those that its words name count wherever they are, but in the
    /// system's folders, and but for data elsewhere. What a machine has besides changes with its updates, and what a server keeps beside its script
    /// with each call.
    pub(crate) fn of_named(settings: &Settings, base: &Path, folders: &[&Path], server: &str, reach: &Reach) -> Self {
        let (works_in, looked_up) = match reach {
            Reach::Stdio { command, cwd, env, .. } => {
                let works_in = cwd.as_ref().and_then(|cwd| base.join(cwd).canonicalize().ok());
                let works_in = works_in.filter(|folder| !is_systems(folder) && folder.parent().is_some());
                // A name without a path means the machine's program of that name, wherever that is.
                let is_machines = !command.contains('/') && !env.contains_key("PATH");
                let looked_up = if is_machines { resolve(command, settings.var("PATH"), base) } else { None };
                (works_in, looked_up)
            }
            Reach::Http { .. } => (None, None),
        };
        let all = folders.iter().copied().chain(works_in.as_deref());
        let folders: BTreeSet<PathBuf> = all.filter_map(|folder| folder.canonicalize().ok()).map(checkout_of).collect();
        // What a launcher builds at the first start is new at the second; what it is made of counts.
        let is_built =
            |file: &Path, folder: &Path| file.ancestors().skip(1).take_while(|above| *above != folder).any(is_cache);
        let is_there = |file: &Path, is_named: bool| {
            let is_of = |file: &Path, folder: &Path| file.starts_with(folder) && (is_named || !is_built(file, folder));
            let is_theirs = |file: &Path| folders.iter().any(|folder| is_of(file, folder));
            file.canonicalize().is_ok_and(|file| {
                let is_code = || !is_systems(&file) && !has_ending(&file, &kept::KEPT);
                is_theirs(&file) || (is_named && is_code() && Some(&file) != looked_up.as_ref())
            })
        };
        let is_program = |file: &Path| is_program_file(file) || is_map(file);
        let counts = |file: &Path, is_named: bool| is_there(file, is_named) && (is_named || is_program(file));
        Self::with(&Look { settings, base, counts: &counts, is_strict: true }, server, reach)
    }

    fn with(look: &Look<'_>, server: &str, reach: &Reach) -> Self {
        tracing::debug!(server, "looking through what a tool server may run");
        match reach {
            Reach::Stdio { command, args, env, cwd } => {
                Self::of_program(look, server, command, args, env, cwd.as_deref())
            }
            Reach::Http { url, headers, client } => Self::of_address(server, url, headers, client.as_deref()),
        }
    }

    fn of_program(
        look: &Look<'_>,
        server: &str,
        command: &str,
        args: &[String],
        env: &BTreeMap<String, String>,
        cwd: Option<&Path>,
    ) -> Self {
        let Look { settings, base, counts: does_count, is_strict } = look;
        let folder = cwd.map_or_else(|| base.to_path_buf(), |cwd| base.join(cwd));
        // What lies beside a script may be much, and a person who waits can give the server a folder of its own.
        let looking = format!("looking through what tool server `{server}` may run in {}", folder.shown());
        let busy = Busy::with(looking);
        let program = resolve(command, env.get("PATH").cloned().or_else(|| settings.var("PATH")), &folder);
        let that_counts = program.as_ref().filter(|path| does_count(path, true));
        let content = that_counts.and_then(|path| digest_of(path));
        let mut counts = Counts::new("stdio", server);
        counts.field("the command", "command", command);
        let found = that_counts.map_or_else(String::new, |path| path.to_string_lossy().into_owned());
        counts.field("the program", "program", &found);
        counts.field("the program", "content", &content.map_or_else(String::new, Sha256::to_hex));
        counts.field("the folder", "cwd", &cwd.map_or_else(String::new, |cwd| cwd.to_string_lossy().into_owned()));
        let mut shown = vec![(
            "program",
            match (&program, &content) {
                (Some(path), Some(digest)) => format!("{} (sha256 {})", path.shown(), &digest.to_hex()[..16]),
                _ => format!("{command} (not found now; finding it later asks again)"),
            },
        )];
        for arg in args {
            counts.field("the arguments", "arg", arg);
        }
        if !args.is_empty() {
            let quoted: Vec<String> = args.iter().map(|arg| format!("{arg:?}")).collect();
            shown.push(("arguments", quoted.join(" ")));
        }
        let home = settings.of_environment("HOME").map(PathBuf::from);
        let given: Vec<(&str, &str)> = env.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        let Covered { files, named, perhaps, warnings: mut not_covered, .. } = covered(
            command,
            program.as_deref(),
            args,
            &given,
            &folder,
            &Roots::new(state_folder(settings)),
            home.as_deref(),
        );
        for (before, file) in files
            .iter()
            .filter(|file| !(*is_strict && perhaps.contains(*file)) && does_count(file, named.contains(*file)))
            .enumerate()
        {
            busy.files(before);
            // One that cannot be read counts by its name: it may be readable later.
            let digest = digest_of(file).map_or_else(String::new, Sha256::to_hex);
            let name = file.to_string_lossy().into_owned();
            counts.field(&format!("the file {name}"), "file", &name);
            counts.field(&format!("the file {name}"), "content", &digest);
            if shown.len() < SHOWN_FILES {
                let content = match digest.get(..16) {
                    Some(digest) => format!("sha256 {digest}"),
                    None => "cannot be read now; reading it later asks again".to_owned(),
                };
                shown.push(("file", format!("{} ({content})", file.shown())));
            }
        }
        if files.len() > SHOWN_FILES {
            shown.push(("files", format!("{} in all, each by its content", files.len())));
        }
        if let Some(cwd) = cwd {
            shown.push(("folder", cwd.shown().to_string()));
        }
        // Values count: they may load other code. They are not shown, because they may be keys.
        for (name, value) in env {
            let part = format!("the variable {name}");
            counts.field(&part, "env", name);
            counts.field(&part, "value", value);
        }
        if !env.is_empty() {
            shown.push(("environment", env.keys().cloned().collect::<Vec<_>>().join(", ")));
        }
        let mut warnings = Vec::new();
        // A variable that a word of the command line sets is one of the environment.
        let of_words = assignments(args);
        let all = env.iter().chain(of_words.iter().map(|(name, value)| (name, value)));
        for (name, value) in all.filter(|(name, _)| is_loader(name)) {
            warnings.push(format!("{name}={value} decides what code it loads"));
        }
        warnings.append(&mut not_covered);
        shown.push(("not covered", "what it loads from elsewhere than these files, and what it fetches".to_owned()));
        let unpinned = unpinned(command, args);
        warnings.extend(unpinned.iter().map(|package| {
            format!("it runs whatever version of {package} the registry has that day; name an exact version")
        }));
        let texts = args.iter().chain(env.values());
        // What this user's own `PATH` has under that name is the machine's program; what the configuration's `PATH` has, or the project, is not.
        let by_name = resolve(name_of(command), settings.var("PATH"), &folder);
        let machines =
            program.as_deref().filter(|program| by_name.as_deref() == Some(*program) && !program.starts_with(base));
        let all = program.iter().chain(&files).map(PathBuf::as_path).chain([*base]);
        let of_others = of_others(all.filter(|file| machines != Some(*file)), open_to_strangers)
            .or_else(|| of_others(machines.into_iter(), program_open_to_strangers));
        Self { of_others, ..Self::finish(server, counts, shown, warnings, unpinned.is_some(), texts) }
    }

    fn of_address(
        server: &str,
        url: &str,
        headers: &BTreeMap<String, String>,
        client: Option<&ClientCredentials>,
    ) -> Self {
        let mut counts = Counts::new("http", server);
        counts.field("the address", "url", url);
        for (name, value) in headers {
            let part = format!("the header {name}");
            counts.field(&part, "header", name);
            counts.field(&part, "value", value);
        }
        let mut shown = vec![("address", url.to_owned())];
        if !headers.is_empty() {
            shown.push(("headers", headers.keys().cloned().collect::<Vec<_>>().join(", ")));
        }
        if let Some(client) = client {
            let ClientCredentials { id, secret, token_url, scopes, resource, proof, private_network } = client;
            let part = "the client";
            counts.field(part, "client", id);
            let proves = match secret {
                ClientSecret::Shared(text) => {
                    counts.field(part, "secret", text);
                    "whose secret is sent to".to_owned()
                }
                ClientSecret::Key(ClientKey { from, id, audience }) => {
                    // What is in the file is no part of it: a key is replaced by the next one, and the client is the same.
                    let (field, signs) = match from {
                        KeySource::Text(_) => ("private_key", "who signs with its key for".to_owned()),
                        KeySource::File(path) => ("private_key_file", format!("who signs with the key in {path} for")),
                    };
                    counts.field(part, field, secret.written());
                    counts.field(part, "key_id", id.as_deref().unwrap_or_default());
                    counts.field(part, "audience", audience.as_deref().unwrap_or_default());
                    signs
                }
            };
            // Where the secret, or what was signed, is sent.
            counts.field(part, "token_url", token_url.as_deref().unwrap_or_default());
            counts.field(part, "scopes", &scopes.join(" "));
            counts.field(part, "resource", resource.as_deref().unwrap_or_default());
            counts.field(part, "proof", &format!("{proof:?}"));
            counts.field(part, "private_network", &private_network.to_string());
            let place = token_url.as_deref().unwrap_or("the token endpoint that the server names first");
            shown.push(("client", format!("{id}, {proves} {place}")));
        }
        let is_here = url::Url::parse(url).is_ok_and(|url| crate::base_url::is_this_machine(&url));
        let is_plain = url.starts_with("http://") && !is_here;
        let warnings = is_plain.then(|| "everything goes there unencrypted".to_owned());
        let texts = headers.values().chain(client.into_iter().flat_map(|client| [&client.id, client.secret.written()]));
        Self::finish(server, counts, shown, warnings.into_iter().collect(), false, texts)
    }

    fn finish<'a>(
        server: &str,
        counts: Counts,
        mut lines: Vec<(&'static str, String)>,
        mut warnings: Vec<String>,
        is_unpinned: bool,
        texts: impl Iterator<Item = &'a String>,
    ) -> Self {
        let taken: BTreeSet<String> = texts.flat_map(|text| references(text)).collect();
        if !taken.is_empty() {
            lines.push(("is given", taken.iter().map(|name| format!("${{{name}}}")).collect::<Vec<_>>().join(", ")));
        }
        if taken.iter().any(|name| name == "ANTHROPIC_API_KEY" || name == "OPENAI_API_KEY") {
            warnings.push("it is given the key that you pay a model provider with".to_owned());
        }
        let (digest, parts) = counts.finish();
        Self { server: server.to_owned(), digest, parts, lines, warnings, is_unpinned, of_others: None }
    }

    /// What is not as it was when its pieces were `before`, in words; `None` when nothing is known of before.
    pub fn changes(&self, before: &BTreeMap<String, String>) -> Option<String> {
        changes(&self.parts, before, |part| self.as_it_is(part))
    }

    /// What a piece is now that changed, where that can be said in a few words: of what it was, a few digits are all that is kept.
    fn as_it_is(&self, part: &str) -> String {
        let program = self.lines.iter().find(|(label, _)| part == "the program" && *label == "program");
        program.map_or_else(String::new, |(_, text)| {
            format!(": it is now {} (a name is looked up in PATH, where another one may come first)", plain(text))
        })
    }

    /// What a person is shown. Everything foreign is escaped, and has one line.
    pub fn shown(&self) -> String {
        let mut text = format!("  {}\n", plain(&self.server));
        for (label, line) in &self.lines {
            text.push_str(&format!("    {label:<12} {}\n", plain(line).replace(['\n', '\t'], " ")));
        }
        for warning in &self.warnings {
            text.push_str(&format!("    ! {}\n", plain(warning).replace(['\n', '\t'], " ")));
        }
        text
    }
}

/// The first of these files that others may change, or of the folders by which one is reached, also where a link stands on the way.
fn of_others<'a>(
    files: impl Iterator<Item = &'a Path>,
    open: impl Fn(&Path) -> Option<&'static str>,
) -> Option<(PathBuf, &'static str)> {
    let mut ways = BTreeSet::new();
    for file in files {
        let real = file.canonicalize().unwrap_or_else(|_| file.to_path_buf());
        let named = std::path::absolute(file).unwrap_or_else(|_| file.to_path_buf());
        ways.extend([real, named].iter().flat_map(|path| path.ancestors()).map(Path::to_path_buf));
    }
    ways.into_iter().find_map(|path| open(&path).map(|why| (path, why)))
}

/// What every checkout has that version control made, in its first folder.
const CHECKOUTS: [&str; 4] = [".git", ".hg", ".jj", ".svn"];

/// The checkout that a folder lies in, as far as one can be seen; the folder itself where there is none.
pub(crate) fn checkout_of(folder: PathBuf) -> PathBuf {
    let is_first = |folder: &&Path| CHECKOUTS.iter().any(|name| folder.join(name).exists());
    let first = folder.ancestors().find(is_first).map(Path::to_path_buf);
    first.unwrap_or(folder)
}

/// Whether version control made something of a folder, or of one above it.
pub(crate) fn is_in_a_checkout(folder: &Path) -> bool {
    folder.ancestors().any(|folder| CHECKOUTS.iter().any(|name| folder.join(name).exists()))
}

/// What a server is looked at with.
struct Look<'a> {
    settings: &'a Settings,
    /// The folder in which relative paths are meant.
    base: &'a Path,
    /// Whether a file counts, told whether the words of the server name it as something that is run or loaded.
    counts: &'a dyn Fn(&Path, bool) -> bool,
    /// Whether nothing counts for the only reason that a word or a variable may be about code.
    is_strict: bool,
}

/// What of the pieces of a server is not `now` as it was `before`, in words; `None` when nothing is known of before. What a piece is that
/// changed, `as_it_is` adds.
pub(crate) fn changes(
    now: &BTreeMap<String, String>,
    before: &BTreeMap<String, String>,
    as_it_is: impl Fn(&str) -> String,
) -> Option<String> {
    if before.is_empty() {
        return None;
    }
    let changed = now.iter().filter_map(|(part, digits)| match before.get(part) {
        None => Some(format!("{part} is new")),
        Some(old) if old != digits => Some(format!("{part} changed{}", as_it_is(part))),
        Some(_) => None,
    });
    let gone = before.keys().filter(|part| !now.contains_key(*part)).map(|part| format!("{part} is gone"));
    let changes: Vec<String> = changed.chain(gone).collect();
    let more = changes.len().saturating_sub(SHOWN_CHANGES);
    let rest = if more == 0 { String::new() } else { format!(" and {more} more") };
    let shown: Vec<String> = changes.into_iter().take(SHOWN_CHANGES).collect();
    Some(format!("{}{rest}", shown.join(", ")))
}

/// The file that a command means: a path, or a name in the folders of `PATH`.
fn resolve(command: &str, path: Option<String>, folder: &Path) -> Option<PathBuf> {
    if command.contains('/') {
        return folder.join(command).canonicalize().ok();
    }
    let folders = path?;
    std::env::split_paths(&folders).map(|folder| folder.join(command)).find(|path| path.is_file())?.canonicalize().ok()
}

/// The digest of a file's size and content. Of a very large one it is that of its beginning, and of all that changes with any write to the file:
/// nobody sets the time of its last change. Such a file asks once more than was needed, where another one of the same content takes its place.
fn digest_of(path: &Path) -> Option<Sha256> {
    /// What was read before in this process, by what changes with a file: device, inode, size, and both of its times.
    static READ: Mutex<BTreeMap<[i64; 7], Sha256>> = Mutex::new(BTreeMap::new());
    let mut file = open(path).ok()?;
    let meta = file.metadata().ok().filter(std::fs::Metadata::is_file)?;
    let number = |number: u64| i64::from_ne_bytes(number.to_ne_bytes());
    let (dev, ino, size) = (number(meta.dev()), number(meta.ino()), number(meta.len()));
    let state = [dev, ino, size, meta.mtime(), meta.mtime_nsec(), meta.ctime(), meta.ctime_nsec()];
    if let Some(digest) = READ.lock().unwrap_or_else(PoisonError::into_inner).get(&state) {
        return Some(*digest);
    }
    let mut hasher = sha2::Sha256::new();
    hasher.update(meta.len().to_be_bytes());
    if meta.len() > MAX_BYTES {
        for number in state {
            hasher.update(number.to_be_bytes());
        }
    }
    let mut content = std::io::Read::by_ref(&mut file).take(MAX_BYTES);
    let mut buffer = vec![0; 256 * 1024];
    loop {
        match content.read(&mut buffer).ok()? {
            0 => break,
            read => hasher.update(&buffer[..read]),
        }
    }
    let digest = Sha256::from_bytes(hasher.finalize().into());
    READ.lock().unwrap_or_else(PoisonError::into_inner).insert(state, digest);
    Some(digest)
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "tests make the files that they look at")]
mod tests {
    use super::*;

    /// A program behind more zeros than are read, as a checkout packs them into a few bytes.
    #[test]
    fn s9_what_stands_behind_the_beginning_of_a_very_large_file_counts() {
        use std::os::unix::fs::FileExt as _;
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(MAX_BYTES + 4).unwrap();
        let before = digest_of(file.path()).unwrap();
        assert_eq!(digest_of(file.path()), Some(before));
        file.as_file().write_all_at(b"evil", MAX_BYTES).unwrap();
        assert_ne!(digest_of(file.path()), Some(before));
    }

    fn stdio(command: &str, args: &[&str], env: &[(&str, &str)]) -> Reach {
        let args = args.iter().map(|arg| (*arg).to_owned()).collect();
        let env = env.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        Reach::Stdio { command: command.to_owned(), args, env, cwd: None }
    }

    #[test]
    fn whatever_decides_what_happens_changes_the_digest() {
        let folder = tempfile::tempdir().unwrap();
        let (program, script) = (folder.path().join("server"), folder.path().join("server.py"));
        std::fs::write(&program, "one").unwrap();
        std::fs::write(&script, "one").unwrap();
        let (program, script) = (program.display().to_string(), script.display().to_string());
        let digest = |reach: &Reach| ServerReview::of(&Settings::of_process(), Path::new("/"), "a", reach).digest;
        let base = stdio(&program, &["--log", "x", &script], &[("K", "v")]);
        let first = digest(&base);
        assert_eq!(first, digest(&base.clone()));
        let http = |url: &str, header: &str| Reach::Http {
            url: url.to_owned(),
            headers: BTreeMap::from([("Authorization".to_owned(), header.to_owned())]),
            client: None,
        };
        let shared = || ClientSecret::Shared("${secret:S}".to_owned());
        let signed = |from: KeySource, id: Option<&str>, audience: Option<&str>| {
            ClientSecret::Key(ClientKey { from, id: id.map(str::to_owned), audience: audience.map(str::to_owned) })
        };
        let text = || KeySource::Text("${secret:S}".to_owned());
        let client = |id: &str, token_url: &str, secret: ClientSecret| {
            let client = ua_mcp::ClientCredentials {
                id: id.to_owned(),
                secret,
                token_url: Some(token_url.to_owned()),
                scopes: vec![],
                resource: None,
                proof: None,
                private_network: false,
            };
            let url = "https://a.example/mcp".to_owned();
            Reach::Http { url, headers: BTreeMap::new(), client: Some(Box::new(client)) }
        };
        let others = [
            stdio(&program, &["--log", "x"], &[("K", "v")]),
            stdio(&program, &["--log x", &script], &[("K", "v")]),
            stdio(&program, &["--log", "x", &script], &[("K", "w")]),
            stdio(&program, &["--log", "x", &script], &[("K", "v"), ("LD_PRELOAD", "evil.so")]),
            stdio("server", &["--log", "x", &script], &[("K", "v")]),
            http("https://a.example/mcp", "x"),
            http("https://b.example/mcp", "x"),
            http("https://a.example/mcp", "${ANTHROPIC_API_KEY}"),
            client("a", "https://a.example/token", shared()),
            client("b", "https://a.example/token", shared()),
            client("a", "https://b.example/token", shared()),
            client("a", "https://a.example/token", signed(text(), None, None)),
            client("a", "https://a.example/token", signed(text(), Some("k"), None)),
            client("a", "https://a.example/token", signed(text(), None, Some("k"))),
            client("a", "https://a.example/token", signed(KeySource::File("/k.pem".to_owned()), None, None)),
            client("a", "https://a.example/token", signed(KeySource::File("/l.pem".to_owned()), None, None)),
        ];
        let all: BTreeSet<String> = others.iter().map(digest).chain([first.clone()]).collect();
        assert_eq!(all.len(), others.len() + 1);
        assert_ne!(ServerReview::of(&Settings::of_process(), Path::new("/"), "b", &base).digest, first);
        std::fs::write(&script, "two").unwrap();
        let second = digest(&base);
        assert_ne!(second, first, "another script");
        std::fs::write(&program, "two").unwrap();
        assert_ne!(digest(&base), second, "another program");
    }

    #[test]
    fn what_changed_is_told_by_name_and_no_value_stands_in_the_record() {
        let folder = tempfile::tempdir().unwrap();
        let script = folder.path().join("server.py");
        std::fs::write(&script, "one").unwrap();
        let named = script.display().to_string();
        let review = |env: &[(&str, &str)]| {
            ServerReview::of(&Settings::of_process(), Path::new("/"), "a", &stdio("sh", &[&named], env))
        };
        let before = review(&[("TOKEN", "hush"), ("OLD", "x")]);
        assert!(!format!("{:?}", before.parts).contains("hush"), "{:?}", before.parts);
        assert_eq!(before.changes(&before.parts).as_deref(), Some(""));
        assert_eq!(before.changes(&BTreeMap::new()), None, "trusted by a version that did not record it");
        std::fs::write(&script, "two").unwrap();
        let now = review(&[("TOKEN", "hash"), ("NEW", "x")]);
        assert_eq!(
            now.changes(&before.parts).unwrap(),
            format!(
                "the file {named} changed, the variable NEW is new, the variable TOKEN changed, the variable OLD is gone"
            )
        );
    }

    #[test]
    fn s9_a_variable_that_a_word_sets_is_one_of_the_environment() {
        for args in [&["PYTHONPATH=lib", "python3", "s.py"][..], &["-c", "PYTHONPATH=lib exec python3 s.py"]] {
            let reach = stdio(if args.len() == 3 { "env" } else { "sh" }, args, &[]);
            let shown = ServerReview::of(&Settings::of_process(), Path::new("/"), "a", &reach).shown();
            assert!(shown.contains("! PYTHONPATH=lib decides what code it loads"), "{shown}");
        }
    }

    #[test]
    fn a_person_sees_names_and_no_values_and_nothing_drives_the_terminal() {
        let env = [("API_KEY", "hush"), ("LD_PRELOAD", "./evil.so"), ("X", "${ANTHROPIC_API_KEY}")];
        let review = ServerReview::of(
            &Settings::of_process(),
            Path::new("/"),
            "a",
            &stdio("no-such-program", &["a\u{1b}[2Jb\nfake: line"], &env),
        );
        let shown = review.shown();
        assert!(!shown.contains("hush") && !shown.contains('\u{1b}'), "{shown}");
        for word in ["API_KEY", "LD_PRELOAD=./evil.so", "${ANTHROPIC_API_KEY}", "model provider", "not found"] {
            assert!(shown.contains(word), "{word}: {shown}");
        }
        assert!(!shown.contains("\nfake"), "{shown}");
    }
}
