//! A folder with a gateway, and clients of it.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Resource, Rlimit, Signal, kill_process};
use serde_json::{Value, json};
use ua_core::{CorrectedTo, RawReply, RunId};
use ua_dispatch::{LocalTools, Through};
use ua_ledger::NotTaken;
use ua_store::{
    Answer, ArrivalRecord, ArrivalsOf, AttemptRecord, CallRecord, Choice, Correction, GatewayStore as _,
    LedgerStore as _, NewAnswer, ProcessSpan, QuestionRecord, RunStore as _,
};
use ua_store_sqlite::{SqliteConfig, SqliteStore};

/// How long anything may take.
const LIMIT: Duration = Duration::from_mins(1);

pub(crate) fn cell() -> PathBuf {
    let own = std::env::current_exe().unwrap();
    own.parent().unwrap().parent().unwrap().join("examples/gateway_cell")
}

/// Waits until something is so.
pub(crate) fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    #[expect(clippy::disallowed_methods, reason = "processes live in real time")]
    let begun = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(begun.elapsed() < LIMIT, "waited for {what}");
        thread::sleep(Duration::from_millis(5));
    }
}

pub(crate) fn kill(pid: u32) {
    let pid = Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
    let _gone = kill_process(pid, Signal::KILL);
}

pub(crate) struct GatewayWorld {
    pub(crate) folder: tempfile::TempDir,
    /// How long a request waits for a person.
    pub(crate) hold_millis: u64,
    /// The tool server that is reached over HTTP, if it is.
    remote: Option<Child>,
}

impl GatewayWorld {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        for name in ["project", "stub", "logs"] {
            fs::create_dir(folder.path().join(name)).unwrap();
        }
        Self { folder, hold_millis: 0, remote: None }
    }

    /// One whose tool server is reached over HTTP.
    pub(crate) fn remote() -> Self {
        let mut world = Self::new();
        world.remote = Some(Command::new(cell()).arg("http").arg(world.path("stub")).spawn().unwrap());
        until("an address", || world.address());
        world
    }

    fn address(&self) -> Option<String> {
        self.lines("address").pop().filter(|address| address.contains(':'))
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// What a tool server has written; a line that it is at is not there yet.
    pub(crate) fn lines(&self, name: &str) -> Vec<String> {
        let text = fs::read_to_string(self.path("stub").join(name)).unwrap_or_default();
        text.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n')).map(str::to_owned).collect()
    }

    /// What tool servers did.
    pub(crate) fn effects(&self) -> Vec<String> {
        self.lines("effects")
    }

    /// What they were told.
    pub(crate) fn said(&self) -> Vec<Value> {
        self.lines("said").iter().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    pub(crate) fn until_effects(&self, count: usize) {
        until(&format!("{count} effects"), || (self.effects().len() >= count).then_some(()));
    }

    /// Makes tool servers behave in a way until [`GatewayWorld::let_go`].
    pub(crate) fn behave(&self, how: &str) {
        fs::write(self.path("stub").join(how), "").unwrap();
    }

    pub(crate) fn let_go(&self) {
        fs::remove_file(self.path("stub/hold")).unwrap();
    }

    pub(crate) fn broker_pid(&self) -> u32 {
        until("a broker", || fs::read_to_string(self.path("broker.pid")).ok()?.parse().ok())
    }

    /// Waits until so many wait for calls that are under way.
    pub(crate) fn until_askers(&self, count: u64) {
        self.until_status(&format!("{count} to wait"), |calls| {
            calls.iter().filter_map(|call| call["askers"].as_u64()).sum::<u64>() == count
        });
    }

    /// Waits until so many calls are under way.
    pub(crate) fn until_calls(&self, count: usize) {
        self.until_status(&format!("{count} calls"), |calls| calls.len() == count);
    }

    /// Waits until so many bridges and sessions over HTTP are connected.
    pub(crate) fn until_connected(&self, count: usize) {
        until(&format!("{count} to be connected"), || {
            (self.status()?["bridges"].as_array()?.len() == count).then_some(())
        });
    }

    /// Waits until the database says of so many requests that their answer was written to the client.
    pub(crate) fn until_answered(&self, count: usize) {
        until(&format!("{count} answers to be written"), || (self.answered() >= count).then_some(()));
    }

    /// Of how many requests the database says so by now.
    pub(crate) fn answered(&self) -> usize {
        self.arrivals().into_iter().filter(|arrival| arrival.answered_at.is_some()).count()
    }

    fn arrivals(&self) -> Vec<ArrivalRecord> {
        let (store, runtime) = self.store();
        runtime.block_on(async {
            let mut arrivals = Vec::new();
            for run in store.runs(1_000).await.unwrap() {
                arrivals.extend(store.arrivals_of(ArrivalsOf::Session(run.run_id)).await.unwrap());
            }
            arrivals
        })
    }

    /// Has the broker end once what is under way is over.
    pub(crate) fn stop_broker(&self) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let status = runtime.block_on(ua_broker::ask_broker(&self.path("gateway.sock"), true)).unwrap().unwrap();
        assert_eq!(status["is_ending"], true);
    }

    /// Waits until there is no broker.
    pub(crate) fn until_no_broker(&self) {
        until("the broker to end", || ua_broker::BrokerLock::take(&self.path("locks")).unwrap().map(drop));
    }

    /// What the broker says of how things stand.
    pub(crate) fn status(&self) -> Option<Value> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(ua_broker::ask_broker(&self.path("gateway.sock"), false)).ok()?
    }

    /// Starts the broker as one that serves clients over HTTP, and says where.
    pub(crate) fn over_http(&self) -> String {
        fs::write(self.path("over_http"), "").unwrap();
        until("a broker that listens", || {
            let started =
                Command::new(cell()).arg("start").arg(self.folder.path()).arg(self.hold_millis.to_string()).status();
            // One that was killed just now may have taken the connection.
            let status = self.status().filter(|_| started.is_ok_and(|status| status.success()))?;
            Some(status["http"].as_str()?.strip_prefix("http://")?.to_owned())
        })
    }

    pub(crate) fn token(&self, client: &str) -> String {
        ua_broker::Tokens::at(self.path("tokens.json")).make(client, &ua_core::system::env()).unwrap()
    }

    fn until_status(&self, what: &str, is_so: impl Fn(&[Value]) -> bool) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let socket = self.path("gateway.sock");
        until(what, || {
            let status = runtime.block_on(ua_broker::ask_broker(&socket, false)).ok()??;
            is_so(status["calls"].as_array()?).then_some(())
        });
    }

    pub(crate) fn kill_broker(&self) {
        kill(self.broker_pid());
    }

    pub(crate) fn kill_server(&self) {
        let last = self.lines("servers").pop().unwrap();
        kill(last.parse().unwrap());
    }

    /// The disk takes nothing more of what the broker writes, or takes it again.
    pub(crate) fn fill_the_disk(&self, is_full: bool) {
        let limit = Rlimit { current: is_full.then_some(0), maximum: None };
        let pid = Pid::from_raw(i32::try_from(self.broker_pid()).unwrap());
        rustix::process::prlimit(pid, Resource::Fsize, limit).unwrap();
    }

    pub(crate) fn client(&self) -> Client {
        Client::start(self, "project", &[])
    }

    /// A client that says in each call which session it is.
    pub(crate) fn session(&self, session: &str) -> Client {
        let mut client = self.client();
        client.session = Some(session.to_owned());
        client
    }

    fn store(&self) -> (SqliteStore, tokio::runtime::Runtime) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        (SqliteStore::open(SqliteConfig::new(self.path("runtime_state.db"))).unwrap(), runtime)
    }

    pub(crate) fn questions(&self) -> Vec<QuestionRecord> {
        let (store, runtime) = self.store();
        let mut questions = runtime.block_on(store.open_questions(None)).unwrap();
        questions.retain(|question| question.answer.is_none());
        questions
    }

    /// The brokers that drove the sessions, those of one session after those of another.
    pub(crate) fn processes(&self) -> Vec<ProcessSpan> {
        let (store, runtime) = self.store();
        let runs = runtime.block_on(store.runs(1_000)).unwrap();
        let records = runs.iter().map(|run| runtime.block_on(store.load(&run.run_id)).unwrap());
        records.flat_map(|records| records.run.processes).collect()
    }

    /// The calls of a tool, oldest first.
    pub(crate) fn calls(&self, tool: &str) -> Vec<CallRecord> {
        let (store, runtime) = self.store();
        let runs = runtime.block_on(store.runs(1_000)).unwrap();
        let records = runs.iter().map(|run| runtime.block_on(store.load(&run.run_id)).unwrap());
        let mut calls: Vec<CallRecord> = records.flat_map(|records| records.calls).collect();
        calls.retain(|call| call.name.tool == tool);
        calls.sort_by_key(|call| (call.created_at, call.position.turn));
        calls
    }

    pub(crate) fn attempts(&self, call: &CallRecord) -> Vec<AttemptRecord> {
        let (store, runtime) = self.store();
        runtime.block_on(ua_store::LedgerStore::attempts(&store, &call.call_id)).unwrap()
    }

    /// What its tool answered to a call, as the ledger has it.
    pub(crate) fn receipt(&self, call: &CallRecord) -> Option<Value> {
        let (store, runtime) = self.store();
        runtime.block_on(async {
            let receipt = ua_store::LedgerStore::receipt(&store, &call.call_id).await.unwrap()?;
            let reply = ua_store::whole_reply(&store, &receipt).await.unwrap();
            let RawReply::ToolResult { result } = reply else { panic!("{reply:?}") };
            Some(result)
        })
    }

    /// A person ends a session.
    pub(crate) fn end(&self, run: &RunId) {
        let (store, runtime) = self.store();
        let at = ua_core::system::env().now();
        runtime.block_on(store.request_cancel(run, "no more", at)).unwrap();
    }

    /// A person puts the record of a call right that nobody works on, as `ua calls resolve` does.
    pub(crate) fn put_right(&self, call: &CallRecord, outcome: CorrectedTo) {
        let (store, runtime) = self.store();
        let correction = Correction {
            outcome,
            was: call.status,
            reason: "I looked".to_owned(),
            proof: None,
            by: "ada".to_owned(),
            at: ua_core::system::env().now(),
            of: None,
            was_answered: false,
        };
        runtime.block_on(store.correct_call(ua_ledger::correct_call(call, correction, true))).unwrap();
    }

    pub(crate) fn answer(&self, question: &QuestionRecord, choice: Choice) {
        self.answer_in_words(question, choice.into());
    }

    /// With words beside the choice.
    pub(crate) fn answer_in_words(&self, question: &QuestionRecord, answer: Answer) {
        let (store, runtime) = self.store();
        let answer = NewAnswer {
            question_id: question.question_id.clone(),
            answer,
            by: "ada".to_owned(),
            at: ua_core::system::env().now(),
        };
        runtime.block_on(store.insert_answer(answer)).unwrap();
    }

    /// The same as `ua answer` gives it.
    pub(crate) fn gives(&self, question: &QuestionRecord, choice: Choice) -> Result<Vec<CallRecord>, NotTaken> {
        let (store, runtime) = self.store();
        let env = ua_core::system::env();
        let outside = Through::new(Arc::new(LocalTools::new(env.clone())), ua_runner::may_be_driven);
        runtime.block_on(ua_ledger::give_answer(&store, &env, question, choice.into(), "ada", &outside))
    }

    /// What is stored, held against what must hold of all that is stored. A broker may still write: rows and events are read one after the
    /// other, and once more where something was written in between.
    pub(crate) fn check(&self) {
        let (store, runtime) = self.store();
        runtime.block_on(async {
            for run in store.runs(1_000).await.unwrap() {
                loop {
                    let records = store.load(&run.run_id).await.unwrap();
                    let mut events = Vec::new();
                    for call in &records.calls {
                        events.extend(ua_store::LedgerStore::events(&store, &call.call_id).await.unwrap());
                    }
                    if store.load(&run.run_id).await.unwrap() == records {
                        let mut violations = ua_store::invariants::check(&records, &events);
                        violations.extend(ua_store::invariants::check_agreement(&records, &events));
                        assert!(violations.is_empty(), "{violations:?}");
                        break;
                    }
                }
            }
        });
    }
}

impl Drop for GatewayWorld {
    fn drop(&mut self) {
        if thread::panicking() {
            let log = fs::read_to_string(self.path("broker.log")).unwrap_or_default();
            eprintln!("--- broker.log\n{log}\n--- effects\n{:?}", self.effects());
        }
        if let Some(mut remote) = self.remote.take() {
            let _gone = remote.kill();
            let _gone = remote.wait();
        }
        if let Some(pid) = fs::read_to_string(self.path("broker.pid")).ok().and_then(|pid| pid.parse().ok()) {
            kill(pid);
        }
    }
}

pub(crate) struct Client {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: UnixStream,
    lines: Receiver<Value>,
    /// What came and was not asked for yet.
    pub(crate) heard: Vec<Value>,
    next: u64,
    pub(crate) session: Option<String>,
    pub(crate) info: Value,
    /// Whether each of its requests stands for itself.
    pub(crate) is_stateless: bool,
}

impl Client {
    pub(crate) fn start(world: &GatewayWorld, project: &str, env: &[(&str, &str)]) -> Self {
        Self::start_as(world, project, env, "stub", &[])
    }

    /// One whose entry has this name and these further arguments of its tool server.
    pub(crate) fn start_as(
        world: &GatewayWorld,
        project: &str,
        env: &[(&str, &str)],
        name: &str,
        more: &[&str],
    ) -> Self {
        Self::start_by("bridge", world, project, env, name, more)
    }

    /// One that is a process of its own, with the bridge below it.
    pub(crate) fn start_below(world: &GatewayWorld) -> Self {
        Self::start_by("client", world, "project", &[], "stub", &[])
    }

    fn start_by(
        mode: &str,
        world: &GatewayWorld,
        project: &str,
        env: &[(&str, &str)],
        name: &str,
        more: &[&str],
    ) -> Self {
        let cell = cell();
        let root = world.folder.path();
        let mut command = Command::new(&cell);
        command.arg(mode).arg("--socket").arg(root.join("gateway.sock")).args(["--name", name, "--env", "STUB_SECRET"]);
        for word in [cell.as_os_str(), "start".as_ref(), root.as_os_str(), world.hold_millis.to_string().as_ref()] {
            command.arg("--start").arg(word);
        }
        if world.remote.is_some() {
            let url = format!("http://{}/mcp", world.address().unwrap());
            command.args(["--header", "X-Key: <${STUB_SECRET}>", "--url", &url]).env("STUB_SECRET", "hush");
        } else {
            command.arg("--").arg(&cell).arg("server").arg(root.join("stub")).args(more);
        }
        let (stdout, theirs) = UnixStream::pair().unwrap();
        command.current_dir(world.path(project)).stdin(Stdio::piped()).envs(env.iter().copied());
        command.stdout(OwnedFd::from(theirs));
        // What it says to a person.
        command.stderr(fs::OpenOptions::new().create(true).append(true).open(world.path("bridge.log")).unwrap());
        let mut child = command.spawn().unwrap();
        // Its end is the bridge's alone.
        drop(command);
        let stdin = child.stdin.take();
        let (tell, lines) = channel();
        let said = stdout.try_clone().unwrap();
        thread::spawn(move || {
            for line in BufReader::new(said).lines().map_while(Result::ok) {
                let _gone = tell.send(serde_json::from_str(&line).unwrap());
            }
        });
        let info = json!({"name": "claude-code", "version": "2"});
        Self { child, stdin, stdout, lines, heard: Vec::new(), next: 0, session: None, info, is_stateless: false }
    }

    pub(crate) fn say(&mut self, message: &Value) {
        self.say_bytes(message.to_string().as_bytes());
    }

    /// A line, whatever it is.
    pub(crate) fn say_bytes(&mut self, line: &[u8]) {
        let stdin = self.stdin.as_mut().unwrap();
        stdin.write_all(line).and_then(|()| stdin.write_all(b"\n")).and_then(|()| stdin.flush()).unwrap();
    }

    /// The beginning of a line, behind which nothing comes: the client closes its input, and is there until the bridge has ended. What it was told
    /// meanwhile.
    pub(crate) fn ends_in_a_line(mut self, begun: &[u8]) -> Vec<Value> {
        let mut stdin = self.stdin.take().unwrap();
        stdin.write_all(begun).unwrap();
        drop(stdin);
        self.child.wait().unwrap();
        self.lines.iter().collect()
    }

    pub(crate) fn request(&mut self, method: &str, params: &Value) -> u64 {
        self.next += 1;
        let params =
            if self.is_stateless { &crate::eras::signed_by(&self.info, &json!({}), params.clone()) } else { params };
        self.say(&json!({"jsonrpc": "2.0", "id": self.next, "method": method, "params": params}));
        self.next
    }

    /// The message that `is_it`, whatever comes before.
    pub(crate) fn hear(&mut self, what: &str, is_it: impl Fn(&Value) -> bool) -> Value {
        if let Some(place) = self.heard.iter().position(&is_it) {
            return self.heard.remove(place);
        }
        loop {
            let message = self.lines.recv_timeout(LIMIT).unwrap_or_else(|error| panic!("{what}: {error}"));
            if is_it(&message) {
                return message;
            }
            self.heard.push(message);
        }
    }

    pub(crate) fn answer(&mut self, id: u64) -> Value {
        self.hear(&format!("the answer to {id}"), |message| message["id"] == id && message.get("method").is_none())
    }

    pub(crate) fn greet(mut self) -> Self {
        if self.is_stateless {
            return self;
        }
        let params =
            json!({"protocolVersion": "2025-11-25", "capabilities": {"elicitation": {}}, "clientInfo": self.info});
        let id = self.request("initialize", &params);
        let answer = self.answer(id);
        assert_eq!(answer["result"]["serverInfo"]["name"], "stub", "{answer}");
        self.say(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
        self
    }

    pub(crate) fn call(&mut self, tool: &str, arguments: &Value) -> u64 {
        let mut meta = json!({});
        if let Some(session) = &self.session {
            meta["dev.universal-agent/session"] = json!(session);
        }
        self.request("tools/call", &json!({"name": tool, "arguments": arguments, "_meta": meta}))
    }

    /// Calls and waits for the answer.
    pub(crate) fn result(&mut self, tool: &str, arguments: &Value) -> Value {
        let id = self.call(tool, arguments);
        self.answer(id)["result"].clone()
    }

    pub(crate) fn cancel(&mut self, id: u64) {
        self.cancel_since(id, "the user cancelled it");
    }

    pub(crate) fn cancel_since(&mut self, id: u64, reason: &str) {
        let params = json!({"requestId": id, "reason": reason});
        self.say(&json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params}));
    }

    /// The client is killed: its ends of both pipes are gone at once.
    pub(crate) fn killed(mut self) {
        self.stdout.shutdown(Shutdown::Both).unwrap();
        drop(self.stdin.take());
        self.child.wait().unwrap();
    }

    /// The client closes its input and is there until the bridge has ended.
    pub(crate) fn closed(mut self) {
        drop(self.stdin.take());
        self.child.wait().unwrap();
    }

    /// Its process.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The bridge is killed.
    pub(crate) fn bridge_killed(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// It goes on once more, so that it is known to have what it was told, and ends.
    pub(crate) fn done(mut self) {
        let id = self.request(if self.is_stateless { "tools/list" } else { "ping" }, &json!({}));
        self.answer(id);
        self.killed();
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let _gone = self.child.kill();
        let _gone = self.child.wait();
    }
}

/// What a model reads of a result.
pub(crate) fn text(result: &Value) -> String {
    let blocks = result["content"].as_array().unwrap_or_else(|| panic!("no content: {result}"));
    blocks.iter().map(|block| block["text"].as_str().unwrap_or_default()).collect::<Vec<_>>().join("\n")
}

/// What kind of answer of ours it is.
pub(crate) fn told(result: &Value) -> &str {
    result["_meta"]["dev.universal-agent/call"]["told"].as_str().unwrap_or_default()
}

/// What is said about a receipt that is handed out.
pub(crate) fn notice(result: &Value) -> &str {
    result["_meta"]["dev.universal-agent/call"]["notice"].as_str().unwrap_or_default()
}

pub(crate) fn mail() -> Value {
    json!({"to": "bob@example.com", "subject": "Report", "body": "Done."})
}
