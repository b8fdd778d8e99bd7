//! Where the user's logins at tool servers are kept: the keyring of the desktop where there is one, else files of the user's own.
//!
//! A folder of the user's state (`logins`) has a file for each address, named by its digest. It says what may be shown of the login; the
//! login itself is in it, or in the keyring, where other programs of the user cannot read it by reading a file. The keyring is that of
//! freedesktop.org, by the program `secret-tool` that comes with it.
//!
//! Invariants: a file is the user's alone (0600) from its first moment, and one that others can read or change is not used; a token is learned by the
//! redactor before anybody is given it; the name of a login is its address, so a configuration that gives a server another address has no
//! token for it. Proved by: this file's tests, and the end-to-end tests `login`.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use ua_core::{Env, Redactor, ShowPath as _, Timestamp};
use ua_files::Folder;
use ua_mcp::{LoginFacts, Vault};

use crate::roots::state_folder;
use crate::settings::Settings;

/// The folder, in the user's state folder.
const LOGINS: &str = "logins";
/// The most that is read of a login.
const MAX_BYTES: u64 = 256 * 1024;
/// The program that speaks with the keyring.
const SECRET_TOOL: &str = "secret-tool";
/// How long it may take, in steps of [`STEP`]; a person may have to unlock the keyring first.
const STEPS: u32 = 3_000;
const STEP: Duration = Duration::from_millis(20);

/// What is kept about one login.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct LoginEntry {
    version: u32,
    /// The server's name in the configuration when the login was made.
    pub server: String,
    /// The address it is for.
    pub address: String,
    /// When it was kept or renewed last.
    pub at: Timestamp,
    /// Whether the tokens are in the keyring; else they are in this file.
    pub in_keyring: bool,
    /// What may be shown of it.
    pub facts: LoginFacts,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    login: Option<Hidden>,
}

/// What is not shown.
#[derive(Clone, Serialize, Deserialize)]
#[serde(transparent)]
struct Hidden(String);

impl std::fmt::Debug for Hidden {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("[login]")
    }
}

const VERSION: u32 = 1;

/// The logins of one user.
#[derive(Debug)]
pub struct LoginFiles {
    /// The user's folder for them, if there is one.
    folder: Option<PathBuf>,
    keyring: Option<Keyring>,
    redactor: Redactor,
    env: Env,
    /// What the server of a new login is called.
    server: String,
}

impl LoginFiles {
    /// Those of the user that the settings are of.
    pub fn of_user(settings: &Settings, redactor: &Redactor, env: &Env) -> Self {
        Self {
            folder: state_folder(settings).map(|state| state.join(LOGINS)),
            keyring: Keyring::of(settings),
            redactor: redactor.clone(),
            env: env.clone(),
            server: String::new(),
        }
    }

    /// The same for a login at the server with this name.
    #[must_use]
    pub fn for_server(mut self, server: &str) -> Self {
        server.clone_into(&mut self.server);
        self
    }

    fn folder(&self) -> Result<Folder, String> {
        let path = self.folder.as_deref().ok_or("there is nowhere to keep it: set HOME or XDG_STATE_HOME")?;
        let unusable = |error: std::io::Error| format!("cannot use {}: {error}", path.shown());
        Folder::make_itself(path).map_err(unusable)
    }

    /// Every login that is kept, by server and address.
    ///
    /// # Errors
    /// The folder or a file of it cannot be used.
    pub fn all(&self) -> Result<Vec<LoginEntry>, String> {
        if self.folder.as_ref().is_none_or(|folder| !folder.exists()) {
            return Ok(Vec::new());
        }
        let folder = self.folder()?;
        let names = folder.entries().map_err(|error| format!("cannot read {}: {error}", folder.path().shown()))?;
        let names = names.into_iter().filter_map(|(name, _)| name.into_string().ok());
        let entries =
            names.filter(|name| !name.starts_with('.') && Path::new(name).extension().is_some_and(|it| it == "json"));
        let mut all: Vec<LoginEntry> =
            entries.map(|name| entry(&folder, &name)).filter_map(Result::transpose).collect::<Result<_, _>>()?;
        all.sort_by(|a, b| (&a.server, &a.address).cmp(&(&b.server, &b.address)));
        Ok(all)
    }

    /// What is kept about the login at an address.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn entry(&self, address: &str) -> Result<Option<LoginEntry>, String> {
        if self.folder.as_ref().is_none_or(|folder| !folder.exists()) {
            return Ok(None);
        }
        entry(&self.folder()?, &file_name(address))
    }

    /// Forgets the login at an address. Returns whether there was one.
    ///
    /// # Errors
    /// It cannot be removed.
    pub fn remove(&self, address: &str) -> Result<bool, String> {
        let Some(kept) = self.entry(address)? else { return Ok(false) };
        if kept.in_keyring {
            self.keyring()?.clear(address)?;
        }
        let folder = self.folder()?;
        folder.remove(file_name(address)).map_err(|error| format!("cannot remove the login: {error}"))?;
        Ok(true)
    }

    fn keyring(&self) -> Result<&Keyring, String> {
        self.keyring.as_ref().ok_or_else(|| {
            format!("it is in the keyring, which cannot be reached from here: `{SECRET_TOOL}` and DBUS_SESSION_BUS_ADDRESS are needed")
        })
    }
}

impl Vault for LoginFiles {
    fn load(&self, address: &str) -> Result<Option<String>, String> {
        let Some(kept) = self.entry(address)? else { return Ok(None) };
        if !kept.in_keyring {
            return Ok(kept.login.map(|login| login.0));
        }
        self.keyring()?.lookup(address)
    }

    /// The file says it, also where the login is in the keyring.
    fn facts(&self, address: &str) -> Result<Option<LoginFacts>, String> {
        Ok(self.entry(address)?.map(|kept| kept.facts))
    }

    fn save(&self, address: &str, login: &str, facts: &LoginFacts) -> Result<(), String> {
        self.save_of(&self.server, address, login, facts)
    }

    fn save_of(&self, server: &str, address: &str, login: &str, facts: &LoginFacts) -> Result<(), String> {
        let folder = self.folder()?;
        let before = entry(&folder, &file_name(address)).ok().flatten();
        let in_keyring = match &self.keyring {
            Some(keyring) => match keyring.store(address, login) {
                Ok(()) => true,
                Err(why) if keyring.is_wanted => return Err(why),
                Err(why) => {
                    tracing::debug!(why, "there is no keyring; the login is kept in a file");
                    false
                }
            },
            None => false,
        };
        let server = if server.is_empty() { before.map(|kept| kept.server) } else { Some(server.to_owned()) };
        let kept = LoginEntry {
            version: VERSION,
            server: server.unwrap_or_default(),
            address: address.to_owned(),
            at: self.env.now(),
            in_keyring,
            facts: facts.clone(),
            login: (!in_keyring).then(|| Hidden(login.to_owned())),
        };
        let text = serde_json::to_vec_pretty(&kept).map_err(|error| error.to_string())?;
        let written = folder.replace(file_name(address), &text).and_then(|()| folder.sync());
        written.map_err(|error| format!("cannot write the login into {}: {error}", folder.path().shown()))
    }

    fn lock(&self, address: &str) -> Result<Box<dyn Send>, String> {
        let unusable = |error: std::io::Error| format!("cannot lock the login: {error}");
        let file: File = self.folder()?.open_or_make(format!("{}.lock", digest(address))).map_err(unusable)?;
        file.lock().map_err(unusable)?;
        Ok(Box::new(file))
    }

    fn learn(&self, secrets: Vec<(String, String)>) {
        self.redactor.learn(secrets);
    }
}

fn digest(address: &str) -> String {
    ua_core::sha256(address).to_hex()
}

fn file_name(address: &str) -> String {
    format!("{}.json", digest(address))
}

fn entry(folder: &Folder, name: &str) -> Result<Option<LoginEntry>, String> {
    let unusable = |why: String| format!("cannot use {}: {why}", folder.path().join(name).shown());
    let file = match folder.open_file(name) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(unusable(error.to_string())),
    };
    let meta = file.metadata().map_err(|error| unusable(error.to_string()))?;
    if meta.uid() != rustix::process::geteuid().as_raw() {
        let (whose, path) = (crate::owner::named(meta.uid()), folder.path().join(name));
        let how = crate::owner::believe_own(meta.uid(), &path);
        return Err(unusable(format!("it belongs to another user ({whose}); {how}")));
    }
    if meta.mode() & 0o077 != 0 {
        return Err(unusable(
            "it holds a login, and others can read or change it; log in again, or `chmod 600` it".to_owned(),
        ));
    }
    let mut text = String::new();
    file.take(MAX_BYTES).read_to_string(&mut text).map_err(|error| unusable(error.to_string()))?;
    let kept: LoginEntry = serde_json::from_str(&text).map_err(|error| {
        unusable(format!("line {}, column {} is not in the form that ua writes", error.line(), error.column()))
    })?;
    if kept.version != VERSION {
        return Err(unusable(format!("it has version {}, and this program knows {VERSION}", kept.version)));
    }
    Ok(Some(kept))
}

/// The keyring of the desktop.
#[derive(Debug)]
struct Keyring {
    /// Whether the user wants it, and no file in its place.
    is_wanted: bool,
    program: PathBuf,
    environment: Vec<(String, String)>,
}

impl Keyring {
    /// The one of this session; `None` where the user wants files, or there is no session that could have one.
    fn of(settings: &Settings) -> Option<Self> {
        let wanted = settings.var("UA_LOGIN_STORE");
        let names = ["PATH", "HOME", "DBUS_SESSION_BUS_ADDRESS", "XDG_RUNTIME_DIR", "DISPLAY", "WAYLAND_DISPLAY"];
        let environment: Vec<(String, String)> =
            names.into_iter().filter_map(|name| Some((name.to_owned(), settings.of_environment(name)?))).collect();
        let path = environment.iter().find(|(name, _)| name == "PATH").map(|(_, path)| path.as_str());
        let places = std::env::split_paths(path.unwrap_or_default()).map(|place| place.join(SECRET_TOOL));
        let program = places.into_iter().find(|program| program.is_file());
        let has_session = environment.iter().any(|(name, _)| name == "DBUS_SESSION_BUS_ADDRESS");
        let is_wanted = wanted.as_deref() == Some("keyring");
        match program {
            _ if wanted.as_deref() == Some("file") => None,
            Some(program) if has_session || is_wanted => Some(Self { is_wanted, program, environment }),
            None if is_wanted => Some(Self { is_wanted, program: SECRET_TOOL.into(), environment }),
            _ => None,
        }
    }

    fn store(&self, address: &str, login: &str) -> Result<(), String> {
        let label = format!("ua: login at {address}");
        let digest = digest(address);
        self.say(&["store", "--label", &label, "service", "ua-login", "address", &digest], login).map(drop)
    }

    fn lookup(&self, address: &str) -> Result<Option<String>, String> {
        let said = self.say(&["lookup", "service", "ua-login", "address", &digest(address)], "")?;
        Ok(said.filter(|said| !said.is_empty()))
    }

    fn clear(&self, address: &str) -> Result<(), String> {
        self.say(&["clear", "service", "ua-login", "address", &digest(address)], "").map(drop)
    }

    /// What the program prints; `None` when it ends with 1 and says nothing, as it does of what is not there.
    fn say(&self, args: &[&str], input: &str) -> Result<Option<String>, String> {
        let failed = |why: String| format!("the keyring does not answer: {why}");
        let mut child = Command::new(&self.program)
            .args(args)
            .env_clear()
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| failed(format!("`{SECRET_TOOL}` cannot be run: {error}")))?;
        // A secret and an answer fit into a pipe many times over, so neither side waits for the other.
        // One that ends before it has read says itself why.
        if let Some(mut stdin) = child.stdin.take()
            && let Err(error) = stdin.write_all(input.as_bytes())
            && error.kind() != std::io::ErrorKind::BrokenPipe
        {
            child.kill().and_then(|()| child.wait()).map_err(|error| failed(error.to_string()))?;
            return Err(failed(error.to_string()));
        }
        let mut ended = None;
        for _ in 0..STEPS {
            ended = child.try_wait().map_err(|error| failed(error.to_string()))?;
            if ended.is_some() {
                break;
            }
            std::thread::sleep(STEP);
        }
        let Some(status) = ended else {
            child.kill().and_then(|()| child.wait()).map_err(|error| failed(error.to_string()))?;
            return Err(failed(format!("`{SECRET_TOOL}` did not end within {} s", (STEP * STEPS).as_secs())));
        };
        let (mut said, mut complained) = (String::new(), String::new());
        let read = |from: Option<&mut dyn std::io::Read>, into: &mut String| {
            from.map_or(Ok(0), |from| from.take(MAX_BYTES).read_to_string(into))
        };
        read(child.stdout.as_mut().map(|out| out as &mut dyn std::io::Read), &mut said)
            .and_then(|_| read(child.stderr.as_mut().map(|err| err as &mut dyn std::io::Read), &mut complained))
            .map_err(|error| failed(error.to_string()))?;
        if status.success() {
            return Ok(Some(said));
        }
        let complained = complained.trim();
        if complained.is_empty() { Ok(None) } else { Err(failed(complained.to_owned())) }
    }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "tests make the files that they look at")]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;
    use std::path::Path;

    use super::*;
    use crate::env::Process;

    const ADDRESS: &str = "https://example.org/mcp";
    const LOGIN: &str = r#"{"token": "at-canary-0123456789"}"#;

    fn facts() -> LoginFacts {
        LoginFacts { issuer: None, client_id: "ua".into(), scopes: vec![], until: None, renewable: true, login: None }
    }

    fn files(home: &Path, variables: &[(&str, &str)]) -> LoginFiles {
        let all = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let variables = all.chain([("HOME".to_owned(), home.display().to_string())]).collect();
        let settings = Settings::read(Process { variables, ..Process::default() });
        LoginFiles::of_user(&settings, &Redactor::default(), &Env::simulated(1))
    }

    #[test]
    fn a_login_is_kept_in_a_file_of_the_users_own_and_forgotten() {
        let home = tempfile::tempdir().unwrap();
        let own = files(home.path(), &[]).for_server("crm");
        assert_eq!((own.load(ADDRESS), own.all().unwrap().len()), (Ok(None), 0));
        own.save(ADDRESS, LOGIN, &facts()).unwrap();
        assert_eq!(own.load(ADDRESS).unwrap().as_deref(), Some(LOGIN));
        assert_eq!(own.load("https://example.org/other"), Ok(None), "an address is the name of its login");
        let kept = own.all().unwrap();
        assert_eq!((kept[0].server.as_str(), kept[0].address.as_str(), kept[0].in_keyring), ("crm", ADDRESS, false));
        assert!(!format!("{kept:?}").contains("canary"));
        let folder = home.path().join(".local/state/ua/logins");
        let file = folder.join(file_name(ADDRESS));
        assert_eq!(std::fs::metadata(&file).unwrap().mode() & 0o777, 0o600);
        assert_eq!(std::fs::metadata(&folder).unwrap().mode() & 0o777, 0o700);
        // Renewed by a process that does not know what the server is called.
        files(home.path(), &[]).save(ADDRESS, LOGIN, &facts()).unwrap();
        assert_eq!(own.all().unwrap()[0].server, "crm");
        // A token of a client lies beside it, under the name of its server.
        let of_client = format!("{ADDRESS} as client ua");
        files(home.path(), &[]).save_of("crm", &of_client, LOGIN, &facts()).unwrap();
        let servers: Vec<String> = own.all().unwrap().into_iter().map(|kept| kept.server).collect();
        assert_eq!(servers, ["crm", "crm"]);
        assert_eq!(own.remove(&of_client), Ok(true));
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644)).unwrap();
        assert!(own.load(ADDRESS).unwrap_err().contains("others can read"));
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
        assert_eq!((own.remove(ADDRESS), own.remove(ADDRESS)), (Ok(true), Ok(false)));
        assert_eq!(own.load(ADDRESS), Ok(None));
    }

    #[test]
    fn one_process_at_a_time_renews_a_login() {
        let home = tempfile::tempdir().unwrap();
        let (first, second) = (files(home.path(), &[]), files(home.path(), &[]));
        let held = first.lock(ADDRESS).unwrap();
        let waiting = std::thread::spawn(move || second.lock(ADDRESS).map(drop));
        drop(first.lock("https://example.org/other").unwrap());
        assert!(!waiting.is_finished());
        drop(held);
        waiting.join().unwrap().unwrap();
    }

    /// A stand-in for the program of the keyring, which keeps what it is told in a file of its own.
    fn keyring(folder: &Path, fails: bool) -> String {
        let kept = folder.join("kept");
        let script = if fails {
            "#!/bin/sh\necho 'no such interface' >&2\nexit 1\n".to_owned()
        } else {
            format!(
                "#!/bin/sh\ncase \"$1\" in\nstore) /bin/cat > {0};;\nlookup) test -f {0} && /bin/cat {0};;\nclear) /bin/rm {0};;\nesac\n",
                kept.display()
            )
        };
        let program = folder.join(SECRET_TOOL);
        std::fs::write(&program, script).unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
        format!("{}:/usr/bin:/bin", folder.display())
    }

    #[test]
    fn the_keyring_keeps_the_tokens_where_there_is_one() {
        let (home, bin) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let path = keyring(bin.path(), false);
        let session = [("PATH", path.as_str()), ("DBUS_SESSION_BUS_ADDRESS", "unix:path=/nowhere")];
        let own = files(home.path(), &session);
        own.save(ADDRESS, LOGIN, &facts()).unwrap();
        assert!(own.all().unwrap()[0].in_keyring);
        let file = home.path().join(".local/state/ua/logins").join(file_name(ADDRESS));
        assert!(!std::fs::read_to_string(file).unwrap().contains("canary"), "not in a file");
        assert_eq!(own.load(ADDRESS).unwrap().as_deref(), Some(LOGIN));
        // From where the keyring cannot be reached, that is said, and no other login is taken for it.
        let elsewhere = files(home.path(), &[]);
        assert!(elsewhere.load(ADDRESS).unwrap_err().contains("it is in the keyring"));
        assert_eq!(own.remove(ADDRESS), Ok(true));
        assert!(!bin.path().join("kept").exists());
    }

    #[test]
    fn without_a_keyring_that_answers_it_is_a_file_unless_the_user_wants_none() {
        let (home, bin) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let path = keyring(bin.path(), true);
        let session = [("PATH", path.as_str()), ("DBUS_SESSION_BUS_ADDRESS", "unix:path=/nowhere")];
        let automatic = files(home.path(), &session);
        automatic.save(ADDRESS, LOGIN, &facts()).unwrap();
        assert!(!automatic.all().unwrap()[0].in_keyring);
        let wanted = files(home.path(), &[session[0], session[1], ("UA_LOGIN_STORE", "keyring")]);
        let why = wanted.save(ADDRESS, LOGIN, &facts()).unwrap_err();
        assert!(why.contains("no such interface") && !why.contains("canary"), "{why}");
    }
}
