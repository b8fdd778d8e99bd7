//! What the tool servers of a named file were when the run was started.
//!
//! Naming a file trusts what it says then, and not whatever a checkout makes of it until the run is resumed. So its servers and their
//! program files are kept with the run, as digests, and whoever is to start one of them compares first: what changed is started only after
//! a person accepted it or named the file again. What no digest is stored of is not known, and asked about like what changed: nothing tells a run
//! of an older version from one whose digests somebody took away. One with a file that was found needs none (`trust`). The digests count by the
//! seal of what they are stored with ([`super::vouched`]).
//! Proved by: this file's tests.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use ua_core::{Component, RunId, RunSpec, ShowPath as _};
use ua_mcp::Reach;
use ua_store::{NewOverride, OverrideKind, OverrideRecord, RunRecord, RunStore};

use super::{Launch, SaidBy, Vouched};
use crate::database::Database;
use crate::error::HostError;
use crate::host::Host;
use crate::review::ServerReview;
use crate::settings::Settings;
use crate::text::plain;

/// What a refusal of changed servers is of: the kind that front doors tell by.
pub(crate) const SERVERS_CHANGED: &str = "servers_changed";

/// One server as it was.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct KnownServer {
    /// Of everything that counts.
    digest: String,
    /// The same piece by piece, so that a change can be named ([`ServerReview::parts`]).
    parts: BTreeMap<String, String>,
}

/// The servers of a named file that a job uses, as they were, by name.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct KnownServers(BTreeMap<String, KnownServer>);

impl KnownServers {
    /// Looks at servers as they are now, which start in `folder` and of which `file` says how.
    fn now(settings: &Settings, folder: &Path, file: &Path, servers: &[(String, Reach)]) -> Self {
        let of_file = file.parent().unwrap_or(Path::new("/"));
        let known = servers.iter().map(|(name, reach)| {
            let review = ServerReview::of_named(settings, folder, &[folder, of_file], name, reach);
            (name.clone(), KnownServer { digest: review.digest, parts: review.parts })
        });
        Self(known.collect())
    }

    /// What is not as it was of the servers that there are `now`, a sentence each.
    fn changes(&self, now: &Self) -> Vec<String> {
        let changed = now.0.iter().filter_map(|(name, server)| match self.0.get(name) {
            Some(before) if before.digest == server.digest => None,
            Some(before) => {
                let parts = crate::review::changes(&server.parts, &before.parts, |_| String::new());
                Some(format!("{} ({})", plain(name), plain(&parts.unwrap_or_else(|| "it changed".to_owned()))))
            }
            None => Some(format!("{} (it is new)", plain(name))),
        });
        changed.collect()
    }
}

impl Launch {
    /// How a stored run is started, with what a person accepted about it since.
    ///
    /// # Errors
    /// What is stored cannot be read.
    pub async fn of_run(host: &Host, store: &(impl RunStore + ?Sized), run: &RunRecord) -> Result<Self, HostError> {
        let mut launch = Self::from_stored(&run.launch)?;
        launch.run = Some(run.run_id.clone());
        let changes = store.overrides(&run.run_id).await;
        let changes = changes.map_err(|e| HostError::store("read what was accepted", &e))?;
        let vouched = Vouched::of(host);
        let changes = vouched.known(changes).await;
        launch.take_accepted(&changes);
        launch.take_accepted_policy(&changes);
        match vouched.word_on_run(run).await {
            SaidBy::User => {}
            SaidBy::BelievedNow => launch.is_for_now = true,
            SaidBy::Database => {
                launch.take_as_found(host.settings());
                // Programs of the run may read what lies beside its job.
                launch.job_dir = PathBuf::from(&run.workspace_dir);
            }
        }
        Ok(launch)
    }

    /// Of a stored launch: with a named file and no digests, no server is known. Nothing that is stored is believed for being silent.
    pub(super) fn know_no_more_than_is_stored(&mut self) {
        if self.named_file().is_some() {
            self.known_servers.get_or_insert_default();
        }
    }

    /// Takes over which servers a person accepted since the run was started.
    fn take_accepted(&mut self, changes: &[OverrideRecord]) {
        let is_theirs =
            |row: &&OverrideRecord| row.kind == OverrideKind::Pin && row.component == Component::Servers.as_str();
        let accepted = changes.iter().rev().find(is_theirs).map(|row| row.value["servers"].clone());
        // What no longer reads as one is passed over: what was known first is asked about then.
        if let Some(accepted) = accepted.and_then(|value| serde_json::from_value(value).ok()) {
            self.known_servers = Some(accepted);
        }
    }

    /// Keeps what a named file says now of the servers that the job uses. What cannot be read is refused where they are made ready.
    pub(super) fn know_servers(&mut self, settings: &Settings, spec: &RunSpec) {
        self.known_servers = self.servers_now(settings, spec).ok().flatten();
    }

    /// Keeps of the servers that the job did not use before what the file says of them now.
    pub(super) fn know_more_servers(&mut self, settings: &Settings, spec: &RunSpec) {
        let now = self.servers_now(settings, spec).ok().flatten();
        if let (Some(known), Some(now)) = (&mut self.known_servers, now) {
            now.0.into_iter().for_each(|(name, server)| {
                known.0.entry(name).or_insert(server);
            });
        }
    }

    /// Accepts the servers as they are now. What changed is stored with the run by who drives it.
    ///
    /// # Errors
    /// The file cannot be used.
    pub(crate) fn accept_servers(&mut self, settings: &Settings, spec: &RunSpec) -> Result<(), HostError> {
        let Some((known, now)) = self.known_servers.as_ref().zip(self.servers_now(settings, spec)?) else {
            return Ok(());
        };
        let differences = known.changes(&now);
        if !differences.is_empty() {
            self.accepted_servers = Some(json!({"servers": now, "differences": differences}));
            self.known_servers = Some(now);
        }
        Ok(())
    }

    /// Says in this user's name what was accepted of the servers of a run.
    pub(crate) fn seal_accepted(&mut self, host: &Host, run: &RunId) {
        let seal = |accepted| Vouched::of(host).seal_accepted(run, Component::Servers, accepted);
        self.accepted_servers = self.accepted_servers.take().map(seal);
    }

    /// Accepts the servers of a stored run as they are now, for whoever drives it next; what changed, a sentence each.
    ///
    /// # Errors
    /// The file cannot be used, or the database not written.
    pub async fn accept_servers_of(host: &Host, store: &Database, run: &RunRecord) -> Result<Vec<String>, HostError> {
        let mut launch = Self::of_run(host, store, run).await?;
        launch.accept_servers(host.settings(), &run.spec)?;
        launch.seal_accepted(host, &run.run_id);
        let Some(value) = launch.accepted_servers else { return Ok(Vec::new()) };
        let differences = value["differences"].as_array().into_iter().flatten().filter_map(Value::as_str);
        let differences = differences.map(str::to_owned).collect();
        let accepted = NewOverride {
            run_id: run.run_id.clone(),
            kind: OverrideKind::Pin,
            component: Component::Servers.as_str().to_owned(),
            value,
            made_by: host.settings().user(),
            at: host.env().now(),
        };
        store.insert_override(accepted).await.map_err(|e| HostError::store("store what was accepted", &e))?;
        Ok(differences)
    }

    /// What is stored about servers that a person accepts with this very command.
    pub(crate) fn accepted_servers(&self) -> Vec<(Component, Value)> {
        self.accepted_servers.iter().map(|value| (Component::Servers, value.clone())).collect()
    }

    /// Refuses servers of a named file that are not what they were when it was named.
    pub(super) fn check_known(&self, settings: &Settings, servers: &[(String, Reach)]) -> Result<(), HostError> {
        let (Some(known), Some(file)) = (&self.known_servers, self.named_file()) else { return Ok(()) };
        let changes = known.changes(&KnownServers::now(settings, self.start_folder(), file, servers));
        if changes.is_empty() {
            return Ok(());
        }
        let shown = file.shown().to_string();
        Err(HostError::waiting(format!(
            "what {shown} says of tool servers, or a program file of theirs, changed since the run was stored: {}",
            changes.join(", ")
        ))
        .field("kind", SERVERS_CHANGED)
        .hint(format!(
            "look at what changed, then {}name the file again with `--mcp-config {shown}`",
            match &self.run {
                _ if self.is_of_fork => String::new(),
                Some(run) => format!("accept it (`ua resume {run} --accept servers`), or "),
                None => "resume the run with `--accept servers`, or ".to_owned(),
            }
        ))
        .not_begun())
    }

    fn servers_now(&self, settings: &Settings, spec: &RunSpec) -> Result<Option<KnownServers>, HostError> {
        let Some(file) = self.named_file() else { return Ok(None) };
        Ok(Some(KnownServers::now(settings, self.start_folder(), file, &self.wanted_servers(spec)?.servers)))
    }

    /// The file with the tool servers, where a person named it.
    fn named_file(&self) -> Option<&Path> {
        self.mcp_config.as_deref().filter(|_| !self.mcp_config_is_found)
    }

    /// Where relative paths of servers are meant.
    pub(super) fn start_folder(&self) -> &Path {
        self.folder_of_servers().unwrap_or(Path::new("."))
    }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "tests make the files that they look at")]
mod tests {
    use std::fs;

    use super::*;

    /// Every word of an entry counts with the program file that it names, and every program file of the folder; whatever else changes does not:
    /// nothing that a server keeps beside its script, and nothing outside of the folder that no word names.
    #[test]
    fn s9_a_named_file_is_known_by_what_it_says_and_by_its_program_files() {
        let dir = tempfile::tempdir().unwrap();
        let (folder, outside) = (dir.path().join("checkout"), dir.path().join("outside.py"));
        fs::create_dir(&folder).unwrap();
        for name in ["server.py", "lib.py", "state.json", "counter", "run.log"] {
            fs::write(folder.join(name), "one").unwrap();
        }
        fs::write(&outside, "one").unwrap();
        fs::write(dir.path().join("beside.py"), "one").unwrap();
        let settings = Settings::of_process();
        let entry = |command: &str, args: &[&str], key: &str| {
            let args = args.iter().map(|arg| (*arg).to_owned()).collect();
            let env = BTreeMap::from([("KEY".to_owned(), key.to_owned())]);
            vec![("a".to_owned(), Reach::Stdio { command: command.to_owned(), args, env, cwd: None })]
        };
        let now =
            |servers: &[(String, Reach)]| KnownServers::now(&settings, &folder, &folder.join("servers.json"), servers);
        let outside_word = outside.display().to_string();
        let base = entry("sh", &["server.py", &outside_word], "v");
        let known = now(&base);
        assert_eq!(known.changes(&now(&base)), Vec::<String>::new());
        for other in [
            entry("bash", &["server.py", &outside_word], "v"),
            entry("sh", &["lib.py", &outside_word], "v"),
            entry("sh", &["server.py"], "v"),
            entry("sh", &["server.py", &outside_word], "w"),
        ] {
            assert_eq!(known.changes(&now(&other)).len(), 1, "{other:?}");
        }
        let mut more = base.clone();
        more.push(("b".to_owned(), base[0].1.clone()));
        assert_eq!(known.changes(&now(&more)), ["b (it is new)"]);
        // One that is not used any more is not started either.
        assert_eq!(now(&more).changes(&known), Vec::<String>::new());
        for name in ["state.json", "counter", "run.log"] {
            fs::write(folder.join(name), "two").unwrap();
        }
        fs::write(dir.path().join("beside.py"), "two").unwrap();
        assert_eq!(known.changes(&now(&base)), Vec::<String>::new(), "a server's own data, and what nobody named");
        fs::write(&outside, "two").unwrap();
        assert_eq!(known.changes(&now(&base)).len(), 1, "what its words name counts wherever it is");
        for name in ["server.py", "lib.py", "new.py"] {
            let before = now(&base);
            fs::write(folder.join(name), "two").unwrap();
            let changes = before.changes(&now(&base)).join(", ");
            assert!(changes.contains(name), "{name}: {changes}");
        }
        // A program of the folder is what it names, with whatever ending.
        fs::write(folder.join("tool"), "#!/bin/sh\n").unwrap();
        let program = entry("./tool", &[], "v");
        let before = now(&program);
        fs::write(folder.join("tool"), "#!/bin/sh\ntrue\n").unwrap();
        assert_eq!(before.changes(&now(&program)).len(), 1);
    }

    /// Of a job that lies below the program of its server, in a folder of one checkout: in each way in which an entry may name what lies beside.
    #[test]
    fn s9_what_an_entry_names_outside_of_its_folder_counts_and_all_code_of_the_checkout() {
        for is_checkout in [false, true] {
            for (command, args, cwd) in [
                ("python3", &["../tools/srv.py"][..], None),
                ("python3", &["{}/tools/srv.py"], None),
                ("python3", &["srv.py"], Some("../tools")),
                ("../tools/run.sh", &[], None),
                ("uv", &["--directory", "{}/tools", "run", "srv.py"], None),
                ("deno", &["run", "../tools/srv.py"], None),
            ] {
                let dir = tempfile::tempdir().unwrap();
                let (base, jobs) = (dir.path(), dir.path().join("jobs"));
                for folder in ["jobs", "tools", "far"] {
                    fs::create_dir(base.join(folder)).unwrap();
                }
                if is_checkout {
                    fs::create_dir(base.join(".git")).unwrap();
                }
                for (file, text) in [("srv.py", "one"), ("run.sh", "#!/bin/sh\none\n"), ("lib.py", "one")] {
                    fs::write(base.join("tools").join(file), text).unwrap();
                }
                fs::write(base.join("far/x.py"), "one").unwrap();
                let here = base.display().to_string();
                let args = args.iter().map(|arg| arg.replace("{}", &here)).collect();
                let reach =
                    Reach::Stdio { command: command.to_owned(), args, env: BTreeMap::new(), cwd: cwd.map(Into::into) };
                let (settings, servers) = (Settings::of_process(), [("a".to_owned(), reach)]);
                let now = || KnownServers::now(&settings, &jobs, &jobs.join("servers.json"), &servers);
                let shown = format!("{servers:?} {is_checkout}");
                let before = now();
                fs::write(base.join("tools/srv.py"), "two").unwrap();
                fs::write(base.join("tools/run.sh"), "#!/bin/sh\ntwo\n").unwrap();
                assert_eq!(before.changes(&now()).len(), 1, "{shown}");
                let before = now();
                fs::write(base.join("far/x.py"), "two").unwrap();
                assert_eq!(before.changes(&now()), Vec::<String>::new(), "{shown}");
                if is_checkout {
                    fs::write(base.join("tools/lib.py"), "two").unwrap();
                    assert_eq!(before.changes(&now()).len(), 1, "{shown}");
                }
            }
        }
    }

    /// How a server's words may begin, in whatever way it is started; what it works on is named behind them.
    const STARTS: [(&str, &[&str]); 9] = [
        ("python3", &["srv/srv.py"]),
        ("python3", &["-u", "./srv/srv.py"]),
        ("node", &["srv/srv.js"]),
        ("sh", &["srv/srv.sh"]),
        ("env", &["A=b", "python3", "srv/srv.py"]),
        ("uv", &["run", "srv/srv.py"]),
        ("npx", &["-y", "tsx@4.0.0", "srv/srv.ts"]),
        ("./srv/srv.sh", &[]),
        ("./srv/binary", &[]),
    ];

    /// A server keeps what it works on where it likes, beside its script too: new, changed or gone, named or not, it is not its program. A run that
    /// was killed is resumed without a word of anybody.
    #[test]
    fn whatever_a_server_keeps_beside_its_script_no_resume_asks_about_it() {
        const KINDS: [&str; 24] = [
            "effects",
            "state",
            ".state",
            "counter.1",
            "a.log",
            "a.log.1",
            "a.db",
            "a.db-wal",
            "a.db-journal",
            "a.sqlite3",
            "a.json",
            "a.jsonl",
            "a.csv",
            "a.txt",
            "a.pid",
            "a.lock",
            "a.tmp",
            "a.bak",
            "a.pkl",
            "a.cache",
            "a.parquet",
            "__pycache__/srv.cpython-312.pyc",
            ".cache/entry",
            "data/store",
        ];
        let mut number = 0;
        for (command, words) in STARTS {
            for kind in KINDS {
                for named in
                    [None, Some(("", "./srv/")), Some(("", "srv/")), Some(("--state=", "srv/")), Some(("", "/"))]
                {
                    number += 1;
                    if !crate::share::has(number) {
                        continue;
                    }
                    let dir = tempfile::tempdir().unwrap();
                    let base = dir.path();
                    let file = base.join("srv").join(kind);
                    fs::create_dir_all(file.parent().unwrap()).unwrap();
                    for (name, text) in [
                        ("srv.py", "import os"),
                        ("srv.js", "x"),
                        ("srv.ts", "x"),
                        ("srv.sh", "#!/bin/sh\n"),
                        ("binary", "\x7fELF"),
                        ("lib.py", ""),
                    ] {
                        fs::write(base.join("srv").join(name), text).unwrap();
                    }
                    let word = named.map(|(option, folder)| match folder {
                        "/" => file.display().to_string(),
                        folder => format!("{option}{folder}{kind}"),
                    });
                    let args: Vec<String> = words.iter().map(|word| (*word).to_owned()).chain(word).collect();
                    let env = BTreeMap::from([("STATE_FILE".to_owned(), format!("srv/{kind}"))]);
                    // What has the ending of code is code where a word names it.
                    let is_code = Path::new(kind).extension().is_some_and(|ending| ending == "pyc");
                    if is_code && named.is_some() {
                        continue;
                    }
                    let env = if named.is_none() && !is_code { env } else { BTreeMap::new() };
                    let shown = format!("{command} {args:?} {kind}");
                    let servers =
                        [("a".to_owned(), Reach::Stdio { command: command.to_owned(), args, env, cwd: None })];
                    let settings = Settings::of_process();
                    let now = || KnownServers::now(&settings, base, &base.join("servers.json"), &servers);
                    let at_start = now();
                    fs::write(&file, "one").unwrap();
                    let written = now();
                    assert_eq!(at_start.changes(&written), Vec::<String>::new(), "new: {shown}");
                    fs::write(&file, "two, and more").unwrap();
                    assert_eq!(written.changes(&now()), Vec::<String>::new(), "changed: {shown}");
                    fs::remove_file(&file).unwrap();
                    assert_eq!(written.changes(&now()), Vec::<String>::new(), "gone: {shown}");
                    // Its program counts all the while.
                    let of_script = ["srv.py", "lib.py", "srv.js", "srv.ts", "srv.sh", "new.py", "hook"];
                    // What lies beside a compiled program is not loaded by it.
                    let codes = if command.ends_with("binary") { &["binary"][..] } else { &of_script };
                    for code in codes {
                        let before = now();
                        fs::write(base.join("srv").join(code), "#!/bin/sh\nother\n").unwrap();
                        assert_eq!(before.changes(&now()).len(), 1, "{code}: {shown}");
                    }
                }
            }
        }
    }

    /// What a launcher builds where it starts is no other program; what it is built from is, and so is what is run of it by name.
    #[test]
    fn what_a_launcher_builds_is_no_other_program() {
        let dir = tempfile::tempdir().unwrap();
        let base = dir.path();
        let write = |name: &str, text: &str| {
            fs::create_dir_all(base.join(name).parent().unwrap()).unwrap();
            fs::write(base.join(name), text).unwrap();
        };
        write("Cargo.toml", "[package]");
        write("src/main.rs", "fn main() {}");
        let settings = Settings::of_process();
        let now = |command: &str, args: &[&str]| {
            let args = args.iter().map(|arg| (*arg).to_owned()).collect();
            let reach = Reach::Stdio { command: command.to_owned(), args, env: BTreeMap::new(), cwd: None };
            KnownServers::now(&settings, base, &base.join("servers.json"), &[("a".to_owned(), reach)])
        };
        let before = now("cargo", &["run"]);
        write("target/CACHEDIR.TAG", "Signature: 8a477f597d28d172789f06886806bc55\n# made by cargo");
        write("target/debug/build/a/out/made.rs", "x");
        write("target/debug/deps/liba.so", "x");
        write("target/debug/server", "#!/bin/sh\n");
        assert_eq!(before.changes(&now("cargo", &["run"])), Vec::<String>::new());
        write("src/main.rs", "fn main() { other() }");
        assert_eq!(before.changes(&now("cargo", &["run"])).len(), 1);
        let before = now("target/debug/server", &[]);
        write("target/debug/server", "#!/bin/sh\ntrue\n");
        assert_eq!(before.changes(&now("target/debug/server", &[])).len(), 1);
        // A folder that only calls itself one counts, whatever it says.
        for (folder, tag) in [
            ("lib", "Signature: 0"),
            ("src/requests", "Signature: 8a477f597d28d172789f06886806bc55"),
            ("src/target", "Signature: 8a477f597d28d172789f06886806bc55"),
        ] {
            let before = now("cargo", &["run"]);
            write(&format!("{folder}/CACHEDIR.TAG"), tag);
            write(&format!("{folder}/__init__.py"), "x");
            assert_eq!(before.changes(&now("cargo", &["run"])).len(), 1, "{folder}");
        }
        write("lib/CACHEDIR.TAG", "Signature: 0");
        write("lib/a.rs", "x");
        let before = now("cargo", &["run"]);
        write("lib/a.rs", "y");
        assert_eq!(before.changes(&now("cargo", &["run"])).len(), 1);
    }

    /// What a launcher decides by is its program, whatever ending it has; what the server keeps beside it is not.
    #[test]
    fn s9_whatever_a_launcher_decides_by_is_known_by_its_content() {
        const MAKE: (&str, &[&str]) = ("make", &["-s", "serve"]);
        const NPM: (&str, &[&str]) = ("npm", &["--silent", "start"]);
        for ((command, words), file, included) in [
            (MAKE, "Makefile", ""),
            (MAKE, "GNUmakefile", ""),
            (MAKE, "makefile", "include conf\n"),
            (("env", &["A=b", "make", "serve"]), "Makefile", "-include conf\n"),
            (("make", &["-C", "sub", "serve"]), "sub/Makefile", ""),
            (NPM, "package.json", ""),
            (NPM, ".npmrc", ""),
            (("node", &["."]), "package.json", ""),
            (("node", &["a.js"]), "x/package.json", ""),
            (("docker", &["compose", "run", "srv"]), "compose.yml", "env_file: conf\n"),
            (("docker", &["compose", "run", "srv"]), ".env", ""),
            (("task", &["serve"]), "Taskfile.yml", "includes:\n  a: conf\n"),
            (("just", &["serve"]), "justfile", "import 'conf'\n"),
            (("mvn", &["exec:java"]), "pom.xml", ""),
            (("dotnet", &["run"]), "srv.csproj", ""),
            (("foreman", &["start"]), "Procfile", ""),
            (("uv", &["run", "srv"]), "requirements.txt", ""),
            (("rake", &["serve"]), "Rakefile", ""),
        ] {
            let dir = tempfile::tempdir().unwrap();
            let base = dir.path();
            let write = |name: &str, text: &str| {
                fs::create_dir_all(base.join(name).parent().unwrap()).unwrap();
                fs::write(base.join(name), text).unwrap();
            };
            write("a.js", "x");
            write("package.json", "{}");
            fs::create_dir_all(base.join("sub")).unwrap();
            let args = words.iter().map(|word| (*word).to_owned()).collect();
            let reach = Reach::Stdio { command: command.to_owned(), args, env: BTreeMap::new(), cwd: None };
            let (settings, servers) = (Settings::of_process(), [("a".to_owned(), reach)]);
            let now = || KnownServers::now(&settings, base, &base.join("servers.json"), &servers);
            let said = |before: &KnownServers| before.changes(&now()).join(", ");
            let shown = format!("{command} {words:?} {file}");
            let before = now();
            write(file, included);
            assert!(said(&before).contains(file), "new: {shown}: {}", said(&before));
            let before = now();
            write(file, &format!("{included}\n# another\n"));
            assert!(said(&before).contains(file), "changed: {shown}: {}", said(&before));
            for content in ["one", "two"].iter().filter(|_| !included.is_empty()) {
                let before = now();
                write("conf", content);
                assert!(said(&before).contains("conf"), "{content}: {shown}: {}", said(&before));
            }
            // Its data.
            for kind in [
                "effects",
                "state",
                "a.log",
                "a.db",
                "a.db-wal",
                "a.json",
                "a.txt",
                "a.pid",
                "a.lock",
                "a.tmp",
                "data/store",
            ] {
                let before = now();
                write(kind, "one");
                write(&format!("sub/{kind}"), "one");
                assert_eq!(said(&before), "", "{kind}: {shown}");
            }
        }
    }

    #[test]
    fn what_was_accepted_last_is_what_is_known() {
        let mut launch = Launch::for_inspection("/".into());
        let row = |component: &str, servers: Value| OverrideRecord {
            run_id: ua_core::RunId::parse("r").unwrap(),
            kind: OverrideKind::Pin,
            component: component.to_owned(),
            value: json!({"servers": servers, "differences": []}),
            made_by: "somebody".to_owned(),
            created_at: ua_core::Timestamp::from_millis(0),
        };
        let server = |digest: &str| json!({"a": {"digest": digest, "parts": {}}});
        let rows = [row("servers", server("1")), row("servers", server("2")), row("tools", server("3"))];
        launch.take_accepted(&rows);
        assert_eq!(serde_json::to_value(&launch.known_servers).unwrap(), server("2"));
        launch.take_accepted(&[row("servers", json!("nothing"))]);
        assert_eq!(serde_json::to_value(&launch.known_servers).unwrap(), server("2"));
        // One without a file has none, and is stored as it was.
        let without = Launch::for_inspection("/".into()).to_stored();
        assert!(without.get("known_servers").is_none() && without.get("accepted_servers").is_none());
        assert_eq!(Launch::from_stored(&without).unwrap().known_servers, None);
    }

    /// Whoever may write the database could name another file and leave the digests out.
    #[test]
    fn s19_servers_of_a_named_file_of_which_no_digest_is_stored_are_not_known() {
        let dir = tempfile::tempdir().unwrap();
        let (file, settings) = (dir.path().join("servers.json"), Settings::of_process());
        fs::write(&file, r#"{"mcpServers": {"a": {"command": "sh", "args": ["a.sh"]}}}"#).unwrap();
        fs::write(dir.path().join("a.sh"), "true").unwrap();
        let spec = RunSpec::parse(r#"{"objective": "Look."}"#).unwrap();
        let mut launch = Launch::for_inspection(dir.path().to_path_buf());
        launch.mcp_config = Some(file);
        launch.know_servers(&settings, &spec);
        let servers = launch.wanted_servers(&spec).unwrap().servers;
        let complete = launch.to_stored();
        Launch::from_stored(&complete).unwrap().check_known(&settings, &servers).unwrap();
        for value in [None, Some(Value::Null), Some(json!({}))] {
            let mut stored = complete.clone();
            let fields = stored.as_object_mut().unwrap();
            match value {
                Some(value) => fields.insert("known_servers".to_owned(), value),
                None => fields.remove("known_servers"),
            };
            let mut launch = Launch::from_stored(&stored).unwrap();
            let refused = launch.check_known(&settings, &servers).unwrap_err().to_string();
            assert!(refused.contains("a (it is new)"), "{refused}");
            launch.accept_servers(&settings, &spec).unwrap();
            launch.check_known(&settings, &servers).unwrap();
            assert_eq!(launch.accepted_servers().len(), 1, "what was accepted is kept");
        }
        // One that was found is asked about by `trust`.
        let mut found = complete.clone();
        let fields = found.as_object_mut().unwrap();
        fields.remove("known_servers");
        fields.insert("mcp_config_is_found".to_owned(), json!(true));
        Launch::from_stored(&found).unwrap().check_known(&settings, &servers).unwrap();
    }
}
