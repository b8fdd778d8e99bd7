//! A world for one test.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{Database, Live, Model, Output, ua_pdf_program, ua_program};

/// A temporary folder in which `ua` runs:
///
/// - `work/` — its working directory, with the job files and `.mcp.json`
/// - `root/` — the workspace root
/// - `home/` — its home and configuration
/// - `comments.log` — one line per effect of the tool server `forum`
#[derive(Debug)]
pub struct TestEnv {
    folder: TempDir,
    program: PathBuf,
    forum: PathBuf,
    variables: Vec<(String, String)>,
    started: AtomicU32,
}

#[track_caller]
fn must<T, E: std::fmt::Display>(result: Result<T, E>, what: &str) -> T {
    result.unwrap_or_else(|e| panic!("{what}: {e}"))
}

impl TestEnv {
    /// Makes a world. `forum` is the program of the tool server that misbehaves on request.
    ///
    /// # Panics
    ///
    /// When the folder cannot be made.
    pub fn new(forum: &Path) -> Self {
        let folder = must(tempfile::Builder::new().prefix("ua-e2e-").tempdir(), "make a folder");
        for name in ["work", "home/.config", "out"] {
            must(fs::create_dir_all(folder.path().join(name)), "make a folder");
        }
        Self {
            folder,
            program: ua_program().clone(),
            forum: forum.to_path_buf(),
            variables: Vec::new(),
            started: AtomicU32::new(0),
        }
    }

    /// The same world with a `ua` that renders PDF.
    #[must_use]
    pub fn with_pdf(mut self) -> Self {
        self.program.clone_from(ua_pdf_program());
        self
    }

    /// The same world with one more environment variable.
    #[must_use]
    pub fn with_env(mut self, name: &str, value: &str) -> Self {
        self.variables.push((name.to_owned(), value.to_owned()));
        self
    }

    /// The same world without a variable that it was given.
    #[must_use]
    pub fn without_env(mut self, name: &str) -> Self {
        self.variables.retain(|(given, _)| given != name);
        self
    }

    /// The value of a variable that was put into the environment.
    pub fn variable(&self, name: &str) -> Option<&str> {
        self.variables.iter().find(|(given, _)| given == name).map(|(_, value)| value.as_str())
    }

    /// The same world with the token of an approver, by which what its gateway asks is answered without a terminal.
    ///
    /// # Panics
    ///
    /// When it cannot be written.
    #[must_use]
    pub fn with_approver(self) -> Self {
        self.with_approver_in("root")
    }

    /// The same for a gateway in this folder.
    ///
    /// # Panics
    ///
    /// When it cannot be written.
    #[must_use]
    pub fn with_approver_in(self, folder: &str) -> Self {
        let token = "uag_of_a_test";
        let known = json!({ "test": ua_core::sha256(token).to_hex() });
        let file = self.write(&format!("{folder}/approvers.json"), known.to_string());
        must(fs::set_permissions(&file, fs::Permissions::from_mode(0o600)), "keep a file to its owner");
        self.with_env("UA_APPROVER_TOKEN", token)
    }

    /// The same world with a model server and a key for it.
    #[must_use]
    pub fn with_model(self, model: &Model) -> Self {
        self.with_env("ANTHROPIC_BASE_URL", model.base_url()).with_env("ANTHROPIC_API_KEY", "a-key")
    }

    /// The same world with a model server behind the Responses API, and a key for it.
    #[must_use]
    pub fn with_responses(self, model: &Model) -> Self {
        self.with_env("OPENAI_BASE_URL", model.base_url()).with_env("OPENAI_API_KEY", "a-key")
    }

    /// The same world with the tool server `forum` configured: `post_comment` is an effect that takes no key,
    /// `get_page` a read.
    #[must_use]
    pub fn with_forum(self) -> Self {
        self.mcp_config("work/.mcp.json", &json!({"forum": self.forum_entry(&[])}));
        self
    }

    /// A path in this world.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The same as text, for an argument.
    pub fn arg(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }

    /// The workspace root.
    pub fn root(&self) -> PathBuf {
        self.path("root")
    }

    /// Writes a file and the folders above it.
    ///
    /// # Panics
    ///
    /// When it cannot be written.
    pub fn write(&self, name: &str, text: impl AsRef<[u8]>) -> String {
        let path = self.path(name);
        if let Some(parent) = path.parent() {
            must(fs::create_dir_all(parent), "make a folder");
        }
        must(fs::write(&path, text), "write a file");
        path.display().to_string()
    }

    /// Reads a file.
    ///
    /// # Panics
    ///
    /// When it cannot be read.
    #[track_caller]
    pub fn read(&self, name: &str) -> String {
        must(fs::read_to_string(self.path(name)), name)
    }

    /// Writes a job and its script and returns the job's path. `fields` are laid over a job with an objective and the
    /// scripted model.
    ///
    /// # Panics
    ///
    /// When they cannot be written.
    pub fn job(&self, fields: &Value, turns: &Value) -> String {
        self.named_job("job", fields, turns)
    }

    /// The same under another name, for a world with several jobs.
    ///
    /// # Panics
    ///
    /// When they cannot be written.
    pub fn named_job(&self, name: &str, fields: &Value, turns: &Value) -> String {
        let script = format!("{name}.script.json");
        self.write(&format!("work/{script}"), json!({"turns": turns}).to_string());
        let mut job =
            json!({"objective": "Do what the test says.", "model": {"provider": "scripted", "script": script}});
        for (field, value) in fields.as_object().into_iter().flatten() {
            job[field] = value.clone();
        }
        // Tests write to addresses that no objective names; those that are about recipients say so themselves.
        if job["constraints"].get("allowed_recipients").is_none() {
            job["constraints"]["allowed_recipients"] = json!(["@example.test"]);
        }
        let file = self.write(&format!("work/{name}.json"), job.to_string());
        // Policies that are there are trusted, as their user would; tests about strangers' jobs write their own.
        let policies = job["policies"].as_array().into_iter().flatten().filter_map(Value::as_str);
        for policy in policies.filter(|policy| self.path("work").join(policy).is_file()) {
            self.trust_policy(policy);
        }
        file
    }

    /// Trusts a policy file of the folder of jobs as it is now, if it is one.
    pub fn trust_policy(&self, name: &str) {
        self.run_bare(&["trust", name, "--yes"]);
    }

    /// Writes an MCP configuration with these servers; one that is found without being named is let in, as its user would.
    ///
    /// # Panics
    ///
    /// When it cannot be written.
    pub fn mcp_config(&self, name: &str, servers: &Value) -> String {
        let path = self.write(name, json!({"mcpServers": servers}).to_string());
        if name == "work/.mcp.json" {
            self.run_bare(&["trust", "--yes", "--allow-unpinned"]).code(0);
        }
        path
    }

    /// The configuration of the server `forum`, started with these arguments as well.
    pub fn forum_entry(&self, args: &[&str]) -> Value {
        let mut all = vec!["--log".to_owned(), self.arg("comments.log")];
        all.extend(args.iter().map(|arg| (*arg).to_owned()));
        json!({"command": self.forum, "args": all})
    }

    /// Runs `ua` to its end.
    ///
    /// # Panics
    ///
    /// When it cannot be started or does not end.
    pub fn run(&self, args: &[&str]) -> Output {
        self.start(args).wait()
    }

    /// Runs `ua` until `point`, where it is killed.
    ///
    /// # Panics
    ///
    /// When it cannot be started or does not end.
    pub fn run_killed_at(&self, point: &str, args: &[&str]) -> Output {
        self.spawn(&self.command(&self.program, args), &[("UA_KILL_AT", point)]).wait().killed()
    }

    /// Runs `ua` with files limited to `blocks` of 512 bytes, which is what a full disk looks like to one process.
    ///
    /// # Panics
    ///
    /// When it cannot be started or does not end.
    pub fn run_with_file_limit(&self, blocks: u32, args: &[&str]) -> Output {
        // The signal that comes with the limit is ignored, so that the write fails as it does on a full disk.
        self.run_by_shell(&format!("trap '' XFSZ; ulimit -f {blocks}; exec \"$@\""), args)
    }

    /// Runs `ua` as a process that may have so many files open, with the workspace root of this world or with the one that it chooses by itself.
    ///
    /// # Panics
    ///
    /// When it cannot be started or does not end.
    pub fn run_with_open_files(&self, most: u32, is_root_named: bool, args: &[&str]) -> Output {
        let script = format!("ulimit -n {most}; exec \"$@\"");
        if is_root_named {
            return self.run_by_shell(&script, args);
        }
        let program = must(self.program.to_str().ok_or("it is no text"), "the path of ua");
        let all = ["-c", script.as_str(), "sh", program].iter().chain(args).map(OsString::from).collect();
        self.spawn(&(PathBuf::from("/bin/sh"), all), &[]).wait()
    }

    /// Runs `ua` with a standard error that takes nothing.
    ///
    /// # Panics
    ///
    /// When it cannot be started or does not end.
    pub fn run_without_stderr(&self, args: &[&str]) -> Output {
        self.run_by_shell("exec \"$@\" 2>/dev/full", args)
    }

    /// Runs `ua` with a standard output that takes nothing.
    ///
    /// # Panics
    ///
    /// When it cannot be started or does not end.
    pub fn run_without_stdout(&self, args: &[&str]) -> Output {
        self.run_by_shell("exec \"$@\" >/dev/full", args)
    }

    /// Starts `ua` so that a file which may not grow is an error for it, as on a full disk, and not its end.
    ///
    /// # Panics
    ///
    /// When it cannot be started.
    pub fn start_with_limits(&self, args: &[&str]) -> Live {
        self.start_by_shell("trap '' XFSZ; exec \"$@\"", args)
    }

    /// Starts `ua` with its root on a disk of its own of so many megabytes, which it alone sees, and which nobody keeps; with where that root is
    /// seen from here. `None` where no disk can be mounted.
    ///
    /// # Panics
    ///
    /// When it cannot be started.
    pub fn start_on_small_disk(&self, megabytes: u32, args: &[&str]) -> Option<(Live, PathBuf)> {
        let root = self.root();
        must(fs::create_dir_all(&root), "make the root");
        let mount = format!("mount -t tmpfs -o size={megabytes}m,mode=700 tmpfs '{}'", root.display());
        let alone = ["--user", "--map-root-user", "--mount", "sh", "-c"];
        let can = std::process::Command::new("unshare").args(alone).arg(&mount).output();
        if !can.is_ok_and(|tried| tried.status.success()) {
            return None;
        }
        let script =
            format!("exec unshare --user --map-root-user --mount sh -c \"{mount} && exec \\\"\\$@\\\"\" sh \"$@\"");
        let live = self.start_by_shell(&script, args);
        let seen = PathBuf::from(format!("/proc/{}/root{}", live.id(), root.display()));
        Some((live, seen))
    }

    fn run_by_shell(&self, script: &str, args: &[&str]) -> Output {
        self.start_by_shell(script, args).wait()
    }

    fn start_by_shell(&self, script: &str, args: &[&str]) -> Live {
        let program = must(self.program.to_str().ok_or("it is no text"), "the path of ua");
        let mut all = vec!["-c", script, "sh", program];
        all.extend(args);
        self.spawn(&self.command(Path::new("/bin/sh"), &all), &[])
    }

    /// Runs `ua` with these arguments and no other, hence with the workspace root that it chooses by itself.
    ///
    /// # Panics
    ///
    /// When it cannot be started or does not end.
    pub fn run_bare(&self, args: &[&str]) -> Output {
        self.start_bare(args).wait()
    }

    /// Starts `ua` with these arguments and no other, for commands that know no workspace root.
    ///
    /// # Panics
    ///
    /// When it cannot be started.
    pub fn start_bare(&self, args: &[&str]) -> Live {
        let args = args.iter().map(OsString::from).collect();
        self.spawn(&(self.program.clone(), args), &[])
    }

    /// Starts `ua` with these arguments and no other, and with more variables in its environment.
    ///
    /// # Panics
    ///
    /// When it cannot be started.
    pub fn start_bare_with(&self, variables: &[(&str, &str)], args: &[&str]) -> Live {
        let args = args.iter().map(OsString::from).collect();
        self.spawn(&(self.program.clone(), args), variables)
    }

    /// Runs another program than `ua` with these arguments, and with more variables in its environment.
    ///
    /// # Panics
    ///
    /// When it cannot be started or does not end.
    pub fn run_program(&self, program: &Path, variables: &[(&str, &str)], args: &[&str]) -> Output {
        self.start_program(program, variables, args).wait()
    }

    /// Starts another program than `ua` with these arguments, and with more variables in its environment.
    ///
    /// # Panics
    ///
    /// When it cannot be started.
    pub fn start_program(&self, program: &Path, variables: &[(&str, &str)], args: &[&str]) -> Live {
        let args = args.iter().map(OsString::from).collect();
        self.spawn(&(program.to_path_buf(), args), variables)
    }

    /// Runs a bash script in which `"$@"` is `ua` with the workspace root of this world.
    ///
    /// # Panics
    ///
    /// When it cannot be started or does not end.
    pub fn run_by_bash(&self, script: &str) -> Output {
        let program = self.program.clone().into_os_string();
        let root = [OsString::from("--root"), self.root().into_os_string()];
        let mut args: Vec<OsString> = ["-c", script, "bash"].iter().map(OsString::from).collect();
        args.push(program);
        args.extend(root);
        self.spawn(&(PathBuf::from("/bin/bash"), args), &[]).wait()
    }

    /// Starts `ua` in a process group of its own.
    ///
    /// # Panics
    ///
    /// When it cannot be started.
    pub fn start(&self, args: &[&str]) -> Live {
        self.spawn(&self.command(&self.program, args), &[])
    }

    /// Starts `ua` with one more environment variable.
    ///
    /// # Panics
    ///
    /// When it cannot be started.
    pub fn start_with(&self, variable: (&str, &str), args: &[&str]) -> Live {
        self.spawn(&self.command(&self.program, args), &[variable])
    }

    /// Runs `ua` with another workspace root, whose name need not be text.
    ///
    /// # Panics
    ///
    /// When it cannot be started or does not end.
    pub fn run_in(&self, root: &OsStr, args: &[&str]) -> Output {
        let mut all: Vec<OsString> = args.iter().map(OsString::from).collect();
        all.extend(["--root".into(), root.to_os_string()]);
        self.spawn(&(self.program.clone(), all), &[]).wait()
    }

    fn command(&self, program: &Path, args: &[&str]) -> (PathBuf, Vec<OsString>) {
        let mut all: Vec<OsString> = args.iter().map(OsString::from).collect();
        if !all.iter().any(|arg| arg == "--root") {
            all.extend(["--root".into(), self.root().into()]);
        }
        (program.to_path_buf(), all)
    }

    fn spawn(&self, (program, args): &(PathBuf, Vec<OsString>), more: &[(&str, &str)]) -> Live {
        let number = self.started.fetch_add(1, Ordering::SeqCst);
        let (stdout, stderr) = (self.path(&format!("out/{number}.stdout")), self.path(&format!("out/{number}.stderr")));
        let mut command = Command::new(program);
        command.args(args).current_dir(self.path("work")).process_group(0);
        command.env_clear().envs(self.environment()).env("COLUMNS", "160").envs(more.iter().copied());
        command.env(crate::ENDS_WITH, std::process::id().to_string());
        // Files, never pipes: a tool server that outlives the program must not keep the test waiting.
        command.stdin(Stdio::null());
        command.stdout(must(File::create(&stdout), "make a file")).stderr(must(File::create(&stderr), "make a file"));
        Live::new(must(command.spawn(), "start the program"), stdout, stderr)
    }

    /// The whole environment that `ua` sees in this world, but for the width of a terminal.
    pub fn environment(&self) -> Vec<(String, String)> {
        let fixed = [("PATH", "/usr/local/bin:/usr/bin:/bin"), ("LANG", "C.UTF-8"), ("USER", "tester")];
        let mut all: Vec<(String, String)> = fixed.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        all.push(("HOME".to_owned(), self.arg("home")));
        all.push(("XDG_CONFIG_HOME".to_owned(), self.arg("home/.config")));
        all.extend(self.variables.iter().cloned());
        all
    }

    /// The path of the runtime database.
    pub fn database_path(&self) -> PathBuf {
        self.root().join("runtime_state.db")
    }

    /// The rows of a query on the runtime database, the columns of each joined by a space; none while it cannot be asked.
    pub fn try_rows(&self, sql: &str) -> Vec<String> {
        Database::open(&self.database_path()).and_then(|database| database.try_rows(sql)).unwrap_or_default()
    }

    /// The rows of a query on the runtime database, the columns of each joined by a space.
    ///
    /// # Panics
    ///
    /// When the database does not answer.
    #[track_caller]
    pub fn rows(&self, sql: &str) -> Vec<String> {
        let database = Database::open(&self.database_path()).unwrap_or_else(|| panic!("there is no database"));
        database.try_rows(sql).unwrap_or_else(|| panic!("the database does not answer {sql}"))
    }

    /// Tool and status of every call, in order.
    ///
    /// # Panics
    ///
    /// When the database does not answer.
    #[track_caller]
    pub fn calls(&self) -> Vec<String> {
        self.rows("SELECT tool_name, status FROM tool_calls ORDER BY turn, ordinal")
    }

    /// The only value of a query.
    ///
    /// # Panics
    ///
    /// When there is none, or more than one.
    #[track_caller]
    pub fn value(&self, sql: &str) -> String {
        let mut rows = self.rows(sql);
        assert_eq!(rows.len(), 1, "{sql}: {rows:?}");
        rows.remove(0)
    }

    /// The status of the only run.
    ///
    /// # Panics
    ///
    /// When there is not exactly one.
    #[track_caller]
    pub fn run_status(&self) -> String {
        self.value("SELECT status FROM runs")
    }

    /// The workspace of the only run.
    ///
    /// # Panics
    ///
    /// When there is not exactly one.
    #[track_caller]
    pub fn workspace(&self) -> PathBuf {
        PathBuf::from(self.value("SELECT workspace_dir FROM runs"))
    }

    /// The command lines of the processes that name this world: those of `ua` and of its tool servers.
    ///
    /// # Panics
    ///
    /// When the system does not say which processes there are.
    pub fn processes(&self) -> Vec<String> {
        let mark = self.folder.path().display().to_string();
        let entries = must(fs::read_dir("/proc"), "list the processes").flatten();
        let lines = entries.filter_map(|entry| fs::read(entry.path().join("cmdline")).ok());
        let lines = lines.map(|line| String::from_utf8_lossy(&line).replace('\0', " "));
        lines.filter(|line| line.contains(&mark)).collect()
    }

    /// The messages in the outbox.
    pub fn mails(&self) -> Vec<PathBuf> {
        visible(&self.root().join("outbox/new"))
    }

    /// The uploaded objects.
    pub fn objects(&self) -> Vec<PathBuf> {
        visible(&self.root().join("objects"))
    }

    /// The notifications.
    pub fn notifications(&self) -> Vec<PathBuf> {
        visible(&self.root().join("notifications"))
    }

    /// The arguments of every comment, in order.
    pub fn comments(&self) -> Vec<String> {
        fs::read_to_string(self.path("comments.log"))
            .map_or_else(|_| Vec::new(), |text| text.lines().map(str::to_owned).collect())
    }

    /// How many messages, objects, notifications and comments there are.
    pub fn effects(&self) -> [usize; 4] {
        [self.mails().len(), self.objects().len(), self.notifications().len(), self.comments().len()]
    }
}

/// The files of a folder whose names do not start with a dot.
fn visible(folder: &Path) -> Vec<PathBuf> {
    let is_visible =
        |path: &Path| path.is_file() && !path.file_name().unwrap_or_default().to_string_lossy().starts_with('.');
    let mut files: Vec<PathBuf> = fs::read_dir(folder).map_or_else(
        |_| Vec::new(),
        |entries| entries.flatten().map(|entry| entry.path()).filter(|p| is_visible(p)).collect(),
    );
    files.sort();
    files
}
