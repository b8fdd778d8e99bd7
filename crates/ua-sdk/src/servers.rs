//! Tool servers of others, over MCP.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ua_classify::Classifier;
use ua_core::{Env, Redactor, RunId, ShowPath as _, chain};
use ua_mcp::{LockDir, McpConfig, McpTransport, McpTransportConfig, Reach, ServerSpec, ShimCommand, run_shim};

use crate::error::Error;
use crate::step::Step;

/// The word by which the helper is started. Others know a helper by it, so it is the program `ua`'s.
const SHIM: &str = "__shim";

/// What servers are given of this process's environment; everything else, keys and tokens above all, stays here. They do not read it from this
/// process either ([`ua_mcp::hide_from_others`]).
const PASSED_ON: [&str; 8] = ["PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "TZ", "TMPDIR"];

/// Whether this program can be its own helper.
static IS_HELPER: AtomicBool = AtomicBool::new(false);

/// Makes this program the helper that its tool servers are started below, which ends them when the program is gone. To be called first in
/// `main`. Where this process was started as that helper, it does the helper's work and ends here: nothing else of the program runs.
/// Without this, the program `ua` has to be in `PATH`.
///
/// ```no_run
/// #[tokio::main]
/// async fn main() -> Result<(), ua_sdk::Error> {
///     ua_sdk::helper();
///     // … the program …
///     Ok(())
/// }
/// ```
pub fn helper() {
    let mut args = std::env::args_os().skip(1);
    let first = args.next();
    if first.as_ref().is_some_and(|first| first == SHIM) {
        end(run_shim(args));
    }
    #[cfg(feature = "toolserver")]
    if first.as_ref().is_some_and(|first| first == crate::builtin::WORD) {
        // On a thread of its own: `main` may be in a runtime already, and in one no other can be waited for.
        let args: Vec<_> = args.collect();
        let served = std::thread::spawn(move || crate::builtin::serve(args.into_iter()));
        end(i32::from(!served.join().unwrap_or(false)));
    }
    IS_HELPER.store(true, Ordering::SeqCst);
}

/// Ends this process, which is a helper and not the program.
#[expect(
    clippy::disallowed_methods,
    reason = "a code that is handed back can be dropped without a word, and then the helper would run as a second copy of the program"
)]
fn end(code: i32) -> ! {
    std::process::exit(code)
}

/// The program's own file, where it is its own helper.
pub(crate) fn own_program() -> Result<Option<PathBuf>, Error> {
    if !IS_HELPER.load(Ordering::SeqCst) {
        return Ok(None);
    }
    let own = std::env::current_exe();
    own.map(Some).map_err(|why| Error::Servers(format!("this program's own file is not found: {why}")))
}

fn shim() -> Result<ShimCommand, Error> {
    let program = if let Some(own) = own_program()? {
        own
    } else {
        let path = crate::env::var("PATH").unwrap_or_default();
        let found = std::env::split_paths(&path).map(|folder| folder.join("ua")).find(|file| file.is_file());
        found.ok_or_else(|| {
            Error::Servers("call `ua_sdk::helper` first in `main`, or put the program `ua` into PATH".to_owned())
        })?
    };
    Ok(ShimCommand { program, args: vec![SHIM.into()] })
}

/// The largest configuration that is read, in bytes; theirs have a few thousand.
const MOST: u64 = 16 * 1024 * 1024;

/// Tool servers, as a configuration file names them. What their tools are is judged by their names until somebody says more:
/// [`Servers::vouch_for`], [`Servers::trust_annotations_of`], [`Step::policy`](crate::Step::policy).
#[derive(Debug, Clone)]
#[must_use = "servers are started when `Step::servers` has them"]
pub struct Servers {
    pub(crate) specs: Vec<ServerSpec>,
    /// Whether the built-in tool server is one of them.
    #[cfg(feature = "toolserver")]
    builtin: bool,
    packs: BTreeMap<String, Option<String>>,
    annotated: Vec<String>,
    /// Whether this program stays open to other processes of its user while they run.
    leaves_readable: bool,
}

impl Servers {
    /// The servers of a file `{"mcpServers": {…}}`. References to variables (`${NAME}`) in `args`, `env` and `headers`, and in
    /// `id`, `secret`, `private_key` and `private_key_file` of `client_credentials`, are replaced.
    ///
    /// # Errors
    /// [`Error::Servers`] when the file cannot be read or does not fit, names a variable that is not set, or has one where it is not replaced.
    pub fn file(path: impl AsRef<Path>) -> Result<Self, Error> {
        let path = path.as_ref();
        let text = ua_files::read_text(path, MOST)
            .map_err(|source| Error::Servers(format!("cannot read {}: {source}", path.shown())))?;
        Self::parse(&text, &path.shown().to_string())
    }

    /// The servers of such a text; `name` is what errors call it.
    ///
    /// # Errors
    /// [`Error::Servers`].
    pub fn parse(text: &str, name: &str) -> Result<Self, Error> {
        let fail = |error: ua_mcp::McpError| Error::Servers(chain(&error));
        let config = McpConfig::parse(text, name).map_err(fail)?;
        let protocols = config.protocols.clone();
        let config = config.expand(crate::env::var).map_err(fail)?;
        for (server, reach) in &config.servers {
            let (place, fixed) = match reach {
                Reach::Stdio { command, .. } => ("command", command),
                Reach::Http { url, .. } => ("url", url),
            };
            if fixed.contains("${") {
                let why =
                    "variables are replaced in `args`, `env`, `headers` and a client's `id`, `secret` and key only";
                return Err(Error::Servers(format!("`{place}` of the server `{server}` is {fixed:?}, and {why}")));
            }
        }
        let inherited = passed_on();
        let servers = config.servers.into_iter().map(|(name, reach)| {
            let protocol = protocols.get(&name).cloned().unwrap_or_default();
            let server = ServerSpec::configured(name, reach).with_inherited(&inherited);
            ServerSpec { protocol, ..server }
        });
        Ok(Self { specs: servers.collect(), ..Self::none() })
    }

    /// These and those of `other`.
    pub(crate) fn and(mut self, other: Self) -> Self {
        self.specs.extend(other.specs);
        #[cfg(feature = "toolserver")]
        {
            self.builtin |= other.builtin;
        }
        self.packs.extend(other.packs);
        self.annotated.extend(other.annotated);
        // The word of one is none about the others.
        self.leaves_readable &= other.leaves_readable;
        self
    }

    fn none() -> Self {
        Self {
            specs: Vec::new(),
            #[cfg(feature = "toolserver")]
            builtin: false,
            packs: BTreeMap::new(),
            annotated: Vec::new(),
            leaves_readable: false,
        }
    }

    /// The built-in tool server alone: files, pages, HTML, uploads, e-mail, notifications and memory, as `ua` has them but for
    /// `run_command`. This program is that server, too, so [`helper`] has to be the first call in `main`. What it sends lands in `outbox`,
    /// `objects` and `notifications` of the folder of runs, unless `UA_MAIL` and its like say otherwise.
    #[cfg(feature = "toolserver")]
    pub fn builtin() -> Self {
        Self { builtin: true, ..Self::none() }
    }

    /// The same with the built-in tool server beside them ([`Servers::builtin`]).
    #[cfg(feature = "toolserver")]
    pub fn with_builtin(mut self) -> Self {
        self.builtin = true;
        self
    }

    /// Says that a server is the package that the shipped pack of that name is about.
    pub fn vouch_for(mut self, server: &str, pack: &str) -> Self {
        self.packs.insert(server.to_owned(), Some(pack.to_owned()));
        self
    }

    /// Lets what a server says about its tools confirm what their names suggest.
    pub fn trust_annotations_of(mut self, server: &str) -> Self {
        self.annotated.push(server.to_owned());
        self
    }

    /// Leaves this program readable for other processes of its user, as it is without servers.
    ///
    /// A server is a process of the same user, and could read the keys in the environment of the program that started it. So before the first
    /// one is started, the program is closed to other processes (on Linux, `prctl(PR_SET_DUMPABLE)`), and stays so until it ends: no debugger
    /// or profiler of its user attaches to it, no core dump is written, and what it writes about itself in `/proc`, only root can. With this
    /// word that is not done for these servers; a program that was closed for others is not opened again.
    pub fn leave_program_readable(mut self) -> Self {
        self.leaves_readable = true;
        self
    }

    pub(crate) fn vouch(&self, classifier: Classifier) -> Result<Classifier, Error> {
        if self.specs.iter().any(|server| server.name == crate::tool::SERVER) {
            let name = crate::tool::SERVER;
            return Err(Error::Servers(format!("`{name}` is the name of the program's own tools; rename the server")));
        }
        #[cfg(feature = "toolserver")]
        if self.builtin && self.specs.iter().any(|server| server.name == crate::builtin::NAME) {
            let name = crate::builtin::NAME;
            return Err(Error::Servers(format!("`{name}` is the name of the built-in tools; rename the server")));
        }
        // A word about a server that is not there would count for nothing.
        for (word, name) in self
            .packs
            .keys()
            .map(|name| ("vouch_for", name))
            .chain(self.annotated.iter().map(|name| ("trust_annotations_of", name)))
        {
            if !self.names().any(|known| known == name) {
                let nearest = ua_core::nearest(name, self.names());
                let nearest = nearest.map_or_else(String::new, |name| format!(" (did you mean `{name}`?)"));
                return Err(Error::Servers(format!("`{word}` names `{name}`, which is none of the servers{nearest}")));
            }
        }
        Ok(classifier.with_packs(&self.packs)?.trusting_annotations_of(self.annotated.iter().cloned()))
    }
}

impl Servers {
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        let names = self.specs.iter().map(|server| server.name.as_str());
        #[cfg(feature = "toolserver")]
        let names = names.chain(self.builtin.then_some(crate::builtin::NAME));
        names
    }
}

/// Keys that servers are given.
pub(crate) fn secrets(servers: &[ServerSpec]) -> Vec<(String, String)> {
    servers.iter().flat_map(ServerSpec::secrets).collect()
}

/// What servers see of this process's environment.
pub(crate) fn passed_on() -> BTreeMap<String, String> {
    PASSED_ON.iter().filter_map(|name| Some(((*name).to_owned(), crate::env::var(name)?))).collect()
}

/// What knows the servers that earlier processes started for a run, and starts none.
pub(crate) fn left_behind(folder: &Path, run: &RunId, env: &Env, redactor: &Redactor) -> Result<McpTransport, Error> {
    let none = ShimCommand { program: PathBuf::new(), args: Vec::new() };
    let locks = folder.join("locks");
    let locks = LockDir::new(&locks, run.clone(), env.clone()).map_err(|cause| Error::Folder { path: locks, cause })?;
    let mut config = McpTransportConfig::new(none, locks, env.clone());
    config.redactor = redactor.clone();
    Ok(McpTransport::new(config))
}

/// The transport of the step's servers in one run. It is there without servers, too: what an earlier program started has to be gone.
pub(crate) fn transport(
    step: &Step,
    folder: &Path,
    workspace: &Path,
    run: &RunId,
    env: &Env,
    redactor: &Redactor,
) -> Result<Arc<McpTransport>, Error> {
    let mut servers = Vec::new();
    if let Some(wanted) = &step.servers {
        servers.clone_from(&wanted.specs);
        #[cfg(feature = "toolserver")]
        if wanted.builtin {
            servers.push(crate::builtin::server(folder, workspace)?);
        }
        redactor.learn(secrets(&servers));
    }
    let starts_any = servers.iter().any(|server| matches!(server.reach, Reach::Stdio { .. }));
    if starts_any && !step.servers.as_ref().is_some_and(|wanted| wanted.leaves_readable) {
        ua_mcp::hide_from_others().map_err(|why| {
            Error::Servers(format!(
                "this program's environment cannot be kept from its tool servers ({why}); `Servers::leave_program_readable` does without"
            ))
        })?;
    }
    let shim = if starts_any { shim()? } else { ShimCommand { program: PathBuf::new(), args: Vec::new() } };
    for server in &mut servers {
        server.reach.start_in(workspace);
    }
    let locks = folder.join("locks");
    let locks = LockDir::new(&locks, run.clone(), env.clone()).map_err(|cause| Error::Folder { path: locks, cause })?;
    let mut config = McpTransportConfig::new(shim, locks, env.clone());
    config.servers = servers;
    config.stderr_log = Some(workspace.join("logs"));
    config.redactor = redactor.clone();
    Ok(Arc::new(McpTransport::new(config)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_servers_are_known_and_paths_are_none() {
        let text = r#"{"mcpServers": {"notes": {"command": "notes", "env": {"NOTES_TOKEN": "t-0123456789", "KEY_FILE": "/k"}},
            "far": {"type": "http", "url": "https://far.example/mcp", "headers": {"Authorization": "Bearer b-0123456789"}}}}"#;
        let mut secrets: Vec<String> =
            secrets(&Servers::parse(text, "test").unwrap().specs).into_iter().map(|(_, value)| value).collect();
        secrets.sort();
        assert_eq!(secrets, ["Bearer b-0123456789", "b-0123456789", "t-0123456789"]);
    }

    /// A server is a process of the same user: it would read the keys in this program's environment.
    #[cfg(target_os = "linux")]
    #[test]
    fn s3_a_program_is_closed_to_the_servers_that_it_starts_unless_it_says_otherwise() {
        use rustix::process::{DumpableBehavior, dumpable_behavior, set_dumpable_behavior};
        IS_HELPER.store(true, Ordering::SeqCst);
        let dir = tempfile::tempdir().unwrap();
        let local = || Servers::parse(r#"{"mcpServers": {"notes": {"command": "notes"}}}"#, "test").unwrap();
        let far = r#"{"mcpServers": {"far": {"type": "http", "url": "https://far.example/mcp"}}}"#;
        let far = || Servers::parse(far, "test").unwrap();
        let prepared = |servers: Servers| {
            set_dumpable_behavior(DumpableBehavior::Dumpable).unwrap();
            let step = Step::new("notes").servers(servers);
            let (run, env) = (RunId::parse("r").unwrap(), Env::simulated(1));
            transport(&step, dir.path(), dir.path(), &run, &env, &Redactor::default()).unwrap();
            dumpable_behavior().unwrap()
        };
        for (servers, is_closed) in [
            (local(), true),
            (local().leave_program_readable().and(local()), true),
            (local().and(far().leave_program_readable()), true),
            (local().leave_program_readable(), false),
            (local().leave_program_readable().and(far().leave_program_readable()), false),
            // No process of this machine.
            (far(), false),
        ] {
            assert_eq!(prepared(servers.clone()) == DumpableBehavior::NotDumpable, is_closed, "{servers:?}");
        }
        set_dumpable_behavior(DumpableBehavior::Dumpable).unwrap();
    }

    /// Where a reference is not replaced it would be started as it stands.
    #[test]
    fn a_variable_where_none_is_replaced_is_refused() {
        for (entry, place) in [
            (r#""command": "${HOME}/notes""#, "`command`"),
            (r#""type": "http", "url": "https://${HOST}/mcp""#, "`url`"),
        ] {
            let error = Servers::parse(&format!(r#"{{"mcpServers": {{"notes": {{{entry}}}}}}}"#), "test").unwrap_err();
            assert!(matches!(&error, Error::Servers(why) if why.contains("${H")), "{place}: {error}");
        }
        // What helps is said once.
        let entry = r#"{"mcpServers": {"notes": {"command": "notes", "args": ["${UA_SDK_NOT_SET}"]}}}"#;
        let error = Servers::parse(entry, "test").unwrap_err();
        assert!(matches!(&error, Error::Servers(why) if why.matches("set the variable").count() == 1), "{error}");
        assert!(error.to_string().ends_with("set the variable UA_SDK_NOT_SET, or remove the reference"), "{error}");
        let error = Servers::file("nosuch.json").unwrap_err();
        assert!(matches!(&error, Error::Servers(why) if why.contains("cannot read nosuch.json")), "{error}");
        // What has no end is not read to it.
        let error = Servers::file("/dev/zero").unwrap_err();
        assert!(matches!(&error, Error::Servers(why) if why.contains("a device, not a file")), "{error}");
    }

    #[test]
    fn a_word_about_a_server_that_is_not_there_is_refused() {
        let servers = || Servers::parse(r#"{"mcpServers": {"notes": {"command": "notes"}}}"#, "test").unwrap();
        let vouched = |servers: Servers| servers.vouch(Classifier::shipped().unwrap()).map(drop);
        vouched(servers().trust_annotations_of("notes")).unwrap();
        for wrong in [servers().vouch_for("note", "github"), servers().trust_annotations_of("note")] {
            let error = vouched(wrong).unwrap_err();
            assert!(matches!(&error, Error::Servers(why) if why.contains("did you mean `notes`?")), "{error}");
        }
    }

    #[test]
    fn a_variable_that_is_not_set_is_named() {
        let text = r#"{"mcpServers": {"notes": {"command": "notes", "env": {"K": "${UA_SDK_NOT_SET}"}}}}"#;
        let error = Servers::parse(text, "test").unwrap_err().to_string();
        assert!(error.contains("set the variable UA_SDK_NOT_SET"), "{error}");
    }
}
