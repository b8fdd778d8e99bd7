//! Servers and calls against a real process that misbehaves.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value, json};
use tempfile::TempDir;
use ua_core::{Env, Outcome, RawReply, Redactor, RunId, ToolNamespace};
use ua_dispatch::{Fence, LookAt, ToolTransport, TransportError};

use super::{example, is_alive, wait_for_async};
use crate::config::{Reach, ServerSpec};
use crate::connection::Connection;
use crate::exchange::Sending;
use crate::http::Horizon;
use crate::server::{Server, Shared};
use crate::{DefinitionLock, LockDir, McpTransport, McpTransportConfig, ProgressWatcher, Protocol, ShimCommand};

pub(super) fn spec(name: &str, args: &[&str]) -> ServerSpec {
    command(name, example("fake_server").to_str().unwrap(), args)
}

pub(super) fn command(name: &str, command: &str, args: &[&str]) -> ServerSpec {
    let args = args.iter().map(|arg| (*arg).to_owned()).collect();
    let env =
        BTreeMap::from([("PATH".to_owned(), "/usr/bin:/bin".to_owned()), ("ONLY_THIS".to_owned(), "1".to_owned())]);
    let reach = Reach::Stdio { command: command.to_owned(), args, env, cwd: None };
    ServerSpec { protocol: Protocol::Handshake, ..ServerSpec::new(name, ToolNamespace::Mcp, reach) }
}

pub(super) fn config(dir: &Path, servers: Vec<ServerSpec>) -> McpTransportConfig {
    let env = ua_core::system::env();
    let locks = LockDir::new(&dir.join("locks"), RunId::parse("run").unwrap(), env.clone()).unwrap();
    let shim = ShimCommand { program: example("shim"), args: vec![] };
    McpTransportConfig { servers, stderr_log: Some(dir.join("logs")), ..McpTransportConfig::new(shim, locks, env) }
}

/// One server, without a transport around it.
pub(super) struct ServerBed {
    dir: TempDir,
    pub(super) shared: Shared,
    pub(super) server: Server,
}

impl ServerBed {
    pub(super) fn new(spec: ServerSpec) -> Self {
        Self::with(spec, None)
    }

    pub(super) fn with(spec: ServerSpec, progress: Option<ProgressWatcher>) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let config = config(dir.path(), vec![]);
        let shared = Shared {
            shim: config.shim,
            locks: config.locks,
            horizon: Horizon::new(Duration::from_secs(30), config.env.clone()),
            env: config.env,
            start_timeout: Duration::from_secs(20),
            grace: Duration::from_millis(500),
            client: rmcp::model::Implementation::new("test", "1"),
            stderr_log: config.stderr_log,
            progress,
            redactor: Redactor::default(),
            logins: None,
            foreteller: None,
        };
        Self { dir, shared, server: Server::new(spec, Redactor::default()) }
    }

    fn fake() -> Self {
        Self::new(spec("fake", &[]))
    }

    pub(super) fn path(&self, name: &str) -> String {
        self.dir.path().join(name).to_str().unwrap().to_owned()
    }

    pub(super) async fn ready(&self) -> (String, Connection) {
        self.server.ready(&self.shared).await.unwrap()
    }

    pub(super) async fn refusal(&self) -> String {
        match self.server.ready(&self.shared).await {
            Ok(_) => panic!("it started"),
            Err(error) => error.to_string(),
        }
    }

    fn locks(&self) -> usize {
        std::fs::read_dir(self.dir.path().join("locks")).map_or(0, Iterator::count)
    }
}

async fn call(connection: &Connection, tool: &str, arguments: Value) -> Outcome {
    let Value::Object(arguments) = arguments else { panic!("arguments are an object") };
    let meta = Map::from_iter([("dev.universal-agent/attempt".to_owned(), json!(2))]);
    connection.call(Sending::call(tool, arguments, meta), &ua_core::system::env()).await
}

fn text(outcome: Outcome) -> String {
    let Outcome::Raw(RawReply::ToolResult { result }) = outcome else { panic!("{outcome:?}") };
    result["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{result}")).to_owned()
}

fn lost(outcome: Outcome) -> String {
    let Outcome::Lost { why } = outcome else { panic!("{outcome:?}") };
    why
}

#[tokio::test]
async fn a_call_carries_arguments_and_meta_and_its_result_comes_back_as_it_was() {
    let world = ServerBed::fake();
    let (_, connection) = world.ready().await;
    let outcome = call(&connection, "echo", json!({"n": 18_446_744_073_709_551_615_u64, "s": "ä"})).await;
    let Outcome::Raw(RawReply::ToolResult { mut result }) = outcome else { panic!("{outcome:?}") };
    let token = result["structuredContent"]["meta"].as_object_mut().unwrap().remove("progressToken");
    assert!(token.is_some());
    let echoed = json!({"arguments": {"n": u64::MAX, "s": "ä"}, "meta": {"dev.universal-agent/attempt": 2}});
    assert_eq!(result, json!({"content": [], "structuredContent": echoed, "unheardOf": 1}));
    world.server.shut_down(&world.shared).await;
    assert_eq!(world.locks(), 0);
}

#[tokio::test]
async fn a_server_sees_its_own_environment_and_session_only() {
    let world = ServerBed::fake();
    let (_, connection) = world.ready().await;
    let who: Value = serde_json::from_str(&text(call(&connection, "whoami", json!({})).await)).unwrap();
    assert_eq!(who["variables"], json!(["ONLY_THIS", "PATH", crate::process::MARK]));
    let me = i32::try_from(std::process::id()).unwrap();
    assert_ne!(who["session"], json!(crate::process::Process::find(me).unwrap().session));
    assert_ne!(who["session"], who["pid"]);
    world.server.shut_down(&world.shared).await;
}

#[tokio::test]
async fn an_error_of_the_protocol_is_an_answer() {
    let world = ServerBed::fake();
    let (_, connection) = world.ready().await;
    let outcome = call(&connection, "rpc_error", json!({"code": -32603})).await;
    assert_eq!(outcome, Outcome::Raw(RawReply::RpcError { code: -32603, message: "as asked".into() }));
    world.server.shut_down(&world.shared).await;
}

#[tokio::test]
async fn lines_that_are_no_messages_do_no_harm() {
    let world = ServerBed::fake();
    let (_, connection) = world.ready().await;
    assert_eq!(text(call(&connection, "noise", json!({})).await), "done");
    world.server.shut_down(&world.shared).await;
}

#[tokio::test]
async fn a_result_that_is_too_large_still_says_that_the_call_succeeded() {
    let world = ServerBed::fake();
    let (_, connection) = world.ready().await;
    let text = text(call(&connection, "huge", json!({})).await);
    assert!(text.starts_with("[the result of 94") && text.contains("too large"), "{text}");
    world.server.shut_down(&world.shared).await;
}

#[tokio::test]
async fn a_server_that_dies_before_it_answers_loses_the_call_and_is_replaced() {
    let world = ServerBed::fake();
    let (first, connection) = world.ready().await;
    let why = lost(call(&connection, "die_before_reply", json!({})).await);
    assert_eq!(why, "it closed its output");
    let end = world.server.exit_reason(&first, &world.shared).await.unwrap();
    assert!(end.contains("ended with exit code 9; it wrote:\nabout to die"), "{end}");

    assert!(world.server.connection(&first).await.is_err(), "a dead generation takes no calls");
    let (second, connection) = world.ready().await;
    assert_ne!(first, second);
    assert_eq!(text(call(&connection, "noise", json!({})).await), "done");
    assert!(world.server.connection(&first).await.unwrap_err().contains(&first));
    assert_eq!(world.server.fence(&first, None, &world.shared).await, Fence::Gone);
    assert!(world.server.connection(&second).await.is_ok(), "fencing the first leaves the second alone");
    world.server.shut_down(&world.shared).await;
}

/// A call that got no answer needs its process ended, but for a read; another call with an effect in it would be in doubt for that.
#[tokio::test]
async fn a_process_is_not_ended_while_a_call_with_an_effect_is_under_way_in_it() {
    let world = ServerBed::fake();
    let (first, connection) = world.ready().await;
    let (_, effect) = world.server.connection_for_effect(&first).await.unwrap();
    assert_eq!(world.server.renew(&first, None, &world.shared).await, Fence::Gone);
    assert_eq!(text(call(&connection, "noise", json!({})).await), "done", "a read leaves it alone");
    let mut fence = Box::pin(world.server.fence(&first, None, &world.shared));
    assert!(futures_util::poll!(&mut fence).is_pending());
    assert_eq!(text(call(&connection, "noise", json!({})).await), "done", "it is waited for");
    drop(effect);
    assert_eq!(fence.await, Fence::Gone);
    assert!(world.server.connection(&first).await.is_err(), "it was ended");
    // Without one, a read has it ended, so that one that hangs is replaced.
    let (second, _) = world.ready().await;
    assert_eq!(world.server.renew(&second, None, &world.shared).await, Fence::Gone);
    assert!(world.server.connection(&second).await.is_err());
    world.server.shut_down(&world.shared).await;
}

#[tokio::test]
async fn a_server_that_closes_its_output_and_lives_on_loses_the_call_at_once() {
    let world = ServerBed::fake();
    let (first, connection) = world.ready().await;
    let who: Value = serde_json::from_str(&text(call(&connection, "whoami", json!({})).await)).unwrap();
    let pid = i32::try_from(who["pid"].as_i64().unwrap()).unwrap();
    // It has no time limit: only the end of the output ends it.
    let called = call(&connection, "close_output", json!({}));
    let outcome = tokio::time::timeout(Duration::from_mins(1), called).await.unwrap();
    assert_eq!(lost(outcome), "it closed its output");
    assert!(world.server.connection(&first).await.is_err(), "it takes no calls any more");
    assert_eq!(world.server.fence(&first, None, &world.shared).await, Fence::Gone);
    assert!(!is_alive(pid));
    let end = world.server.exit_reason(&first, &world.shared).await.unwrap_or_default();
    assert!(!end.contains("exit code"), "it ended by itself: {end}");
    let (second, connection) = world.ready().await;
    assert_ne!(first, second);
    assert_eq!(text(call(&connection, "noise", json!({})).await), "done");
    world.server.shut_down(&world.shared).await;
}

#[tokio::test]
async fn a_line_that_is_no_message_is_told_and_stalls_nothing() {
    let told = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let heard = std::sync::Arc::clone(&told);
    let watcher: ProgressWatcher = std::sync::Arc::new(move |progress| heard.lock().unwrap().push(progress));
    let world = ServerBed::with(spec("fake", &[]), Some(watcher));
    let (_, connection) = world.ready().await;
    let stray = "it wrote something to its standard output that is not an MCP message: \"{not json\"";
    let (asks, _nobody_asks) = tokio::sync::mpsc::unbounded_channel();
    let call_id = ua_core::CallId::new(&world.shared.env);
    let sending = Sending {
        listener: Some(crate::host::Listener { call_id: call_id.clone(), asks }),
        ..Sending::call("torn_line", Map::new(), Map::new())
    };
    let torn = connection.call(sending, &world.shared.env);
    tokio::pin!(torn);
    let heard = wait_for_async("a word about the line", || (told.lock().unwrap().len() > 1).then_some(()));
    tokio::select! {
        outcome = &mut torn => panic!("{outcome:?}"),
        () = heard => {}
    }
    let words: Vec<String> = told.lock().unwrap().iter().map(ToString::to_string).collect();
    assert_eq!(words, [stray.replacen("it", "its server", 1), crate::host::WAITS_ON.to_owned()]);
    assert_eq!(text(call(&connection, "noise", json!({})).await), "done", "another call beside it");

    let timeout = Some(Duration::from_secs(1)); // the line comes long before
    let sending = Sending { timeout, ..Sending::call("torn_line", Map::new(), Map::new()) };
    let why = lost(connection.call(sending, &world.shared.env).await);
    assert_eq!(why, format!("no answer within 1 s; {stray}"));
    // Whoever looks at the servers is told which of them does so.
    assert_eq!(world.server.first_stray(), Some(stray.replacen("it", "tool server `fake`", 1)));
    world.server.shut_down(&world.shared).await;
}

#[tokio::test]
async fn an_answer_that_came_before_the_end_counts() {
    let world = ServerBed::fake();
    let (first, connection) = world.ready().await;
    assert_eq!(text(call(&connection, "die_after_reply", json!({})).await), "done");
    wait_for_async("the end of the output", || connection.ended()).await;
    assert_ne!(world.ready().await.0, first);
    world.server.shut_down(&world.shared).await;
}

#[tokio::test]
async fn a_broken_frame_loses_the_call_instead_of_waiting_for_ever() {
    let world = ServerBed::fake();
    let (_, connection) = world.ready().await;
    let why = lost(call(&connection, "broken_frame", json!({})).await);
    assert!(why.starts_with("it broke the protocol: a message cannot be read"), "{why}");
    world.server.shut_down(&world.shared).await;
}

#[tokio::test]
async fn a_call_on_a_closed_connection_was_not_sent() {
    let world = ServerBed::fake();
    let (generation, connection) = world.ready().await;
    assert_eq!(world.server.fence(&generation, None, &world.shared).await, Fence::Gone);
    wait_for_async("the connection's end", || connection.ended()).await;
    // The client's task ends a moment after the pipe; until then the answer is the cautious one.
    for _ in 0..1000 {
        match call(&connection, "echo", json!({})).await {
            Outcome::NotSent { .. } => return,
            Outcome::Lost { .. } => {}
            outcome @ (Outcome::Raw(_) | Outcome::Continues(_)) => panic!("{outcome:?}"),
        }
    }
    panic!("a closed connection goes on taking calls");
}

#[tokio::test]
async fn fencing_a_live_generation_loses_its_call_and_ends_its_process() {
    let world = ServerBed::fake();
    let (generation, connection) = world.ready().await;
    let who: Value = serde_json::from_str(&text(call(&connection, "whoami", json!({})).await)).unwrap();
    let pid = i32::try_from(who["pid"].as_i64().unwrap()).unwrap();
    let began = world.path("began");
    let arguments = json!({"began": began, "until": world.path("never")});
    let fenced = async {
        wait_for_async("the call to begin", || Path::new(&began).exists().then_some(())).await;
        world.server.fence(&generation, None, &world.shared).await
    };
    let (outcome, fence) = tokio::join!(call(&connection, "slow", arguments), fenced);
    assert_eq!(fence, Fence::Gone);
    let why = lost(outcome);
    assert!(["it closed its output", "the connection is closed"].contains(&why.as_str()), "{why}");
    assert!(!is_alive(pid));
    assert_eq!(world.locks(), 0);
}

#[tokio::test]
async fn a_call_with_a_timeout_is_lost_when_it_is_up() {
    let world = ServerBed::fake();
    let (generation, connection) = world.ready().await;
    let Value::Object(arguments) = json!({"began": world.path("began"), "until": world.path("never")}) else {
        panic!()
    };
    let timeout = Some(Duration::from_millis(30));
    let sending = Sending { timeout, ..Sending::call("slow", arguments, Map::new()) };
    let outcome = connection.call(sending, &world.shared.env).await;
    assert_eq!(lost(outcome), "no answer within 0.03 s");
    assert_eq!(world.server.fence(&generation, None, &world.shared).await, Fence::Gone);
}

#[tokio::test]
async fn a_server_that_ends_at_once_is_quoted() {
    let world = ServerBed::new(spec("fake", &["--exit", "ERROR: set NOTES_DIR"]));
    let why = world.refusal().await;
    assert!(why.starts_with("tool server `fake` did not start: it closed its output; "), "{why}");
    assert!(why.ends_with("ended with exit code 3; it wrote:\nERROR: set NOTES_DIR"), "{why}");
    assert_eq!(world.locks(), 0, "nothing is left of a server that did not start");
    assert_eq!(std::fs::read_to_string(world.path("logs/fake.stderr.log")).unwrap(), "ERROR: set NOTES_DIR\n");
}

#[tokio::test]
async fn what_a_server_prints_where_messages_belong_is_quoted() {
    let why = ServerBed::new(command("fake", "/bin/sh", &["-c", "echo listening on port 3000"])).refusal().await;
    assert!(why.starts_with("tool server `fake` did not start: it closed its output; "), "{why}");
    assert!(
        why.contains(
            "it wrote something to its standard output that is not an MCP message: \"listening on port 3000\""
        ),
        "{why}"
    );
}

/// What runs is taken over as it is, with its lock and its log: by a transport of the same run, in the same words, and once.
#[tokio::test]
async fn what_runs_is_taken_over_by_the_same_run_alone() {
    let dir = tempfile::tempdir().unwrap();
    let of = |place: &str, run: &str, servers: Vec<ServerSpec>| {
        let place = dir.path().join(place);
        std::fs::create_dir(&place).unwrap();
        let config = config(dir.path(), servers);
        let locks = LockDir::new(&dir.path().join("locks"), RunId::parse(run).unwrap(), config.env.clone()).unwrap();
        McpTransport::new(McpTransportConfig { locks, stderr_log: Some(place.join("logs")), ..config })
    };
    let listing = of("listing", "run", vec![spec("fake", &[]), spec("other", &[])]);
    let listed = listing.list().await.unwrap();
    let generation = listing.ready("fake").await.unwrap();
    let stranger = of("stranger", "another", vec![spec("fake", &[])]);
    stranger.take_over(&listing).await;
    assert_eq!(stranger.running("fake"), None, "the lock is in the name of another run");
    let run = of("run", "run", vec![spec("fake", &[]), spec("other", &["--silent"])]);
    run.take_over(&listing).await;
    assert_eq!((run.running("fake"), run.running("other")), (Some(generation.clone()), None));
    assert_eq!(listing.running("fake"), None, "one alone has it");
    assert!(dir.path().join("run/logs/fake.stderr.log").exists());
    // Whoever had it before ends what is left, and whoever has it takes it for nobody else's.
    listing.shutdown().await;
    assert_eq!(run.fence_earlier().await, Fence::Gone);
    assert_eq!(run.ready("fake").await.unwrap(), generation);
    let again = of("again", "run", vec![spec("fake", &[])]);
    again.take_over(&run).await;
    assert_eq!(again.list().await.unwrap().len() * 2, listed.len());
    assert_eq!((again.running("fake"), run.running("fake")), (Some(generation), None));
    run.shutdown().await;
    again.shutdown().await;
    assert_eq!(std::fs::read_dir(dir.path().join("locks")).unwrap().count(), 0);
}

#[tokio::test]
async fn an_unknown_command_is_named_in_the_error() {
    let world = ServerBed::new(command("fake", "no-such-tool-server", &[]));
    let why = world.refusal().await;
    let said = "`no-such-tool-server` was not run: cannot start `no-such-tool-server`: No such file or directory";
    assert!(why.contains(said) && !why.contains("exit code") && !why.contains("shim"), "{why}");
    assert_eq!(world.locks(), 0);
}

#[tokio::test]
async fn a_missing_working_directory_is_named_in_the_error() {
    let mut spec = spec("fake", &[]);
    let Reach::Stdio { cwd, .. } = &mut spec.reach else { panic!("stdio") };
    *cwd = Some("/no/such/folder".into());
    let why = ServerBed::new(spec).refusal().await;
    assert_eq!(why, "tool server `fake` did not start: its working directory /no/such/folder is not there");
}

#[tokio::test]
async fn a_server_that_does_not_answer_is_given_up_and_killed() {
    let mut world = ServerBed::new(spec("fake", &["--silent", "--outlive-input"]));
    world.shared.start_timeout = Duration::from_millis(50);
    let why = world.refusal().await;
    assert!(why.contains("it did not answer the handshake within 0.05 s"), "{why}");
    let refused = world.server.ready(&world.shared).await.err();
    let is_slow = |error| matches!(error, TransportError::NotStarted { look_at: LookAt::Start, may_pass: true, .. });
    assert!(refused.is_some_and(is_slow));
    assert_eq!(world.locks(), 0);
}

#[tokio::test]
async fn a_key_that_needs_a_header_is_not_sent_without_one() {
    let world = ServerBed::fake();
    let (_, connection) = world.ready().await;
    let key_header = Some(("Idempotency-Key".to_owned(), "k".to_owned()));
    let sending = Sending { key_header, ..Sending::call("echo", Map::new(), Map::new()) };
    let outcome = connection.call(sending, &world.shared.env).await;
    assert!(matches!(&outcome, Outcome::NotSent { why } if why.contains("`Idempotency-Key`")), "{outcome:?}");
    world.server.shut_down(&world.shared).await;
}

#[tokio::test]
async fn all_pages_of_all_servers_are_listed_and_what_is_left_out_is_noted() {
    let dir = tempfile::tempdir().unwrap();
    let servers = vec![spec("one", &["--tools", "a,b.c,d,e f,g;h"]), spec("two", &["--tools", "a"])];
    let transport = McpTransport::new(config(dir.path(), servers));
    let tools = transport.list().await.unwrap();
    let names: Vec<&str> = tools.iter().map(|tool| tool.name.raw.as_str()).collect();
    let of_dotted = names.iter().position(|name| name.starts_with("mcp__one__b_c_")).unwrap();
    assert_eq!(tools[of_dotted].name.tool, "b.c", "the server's own name for it stays");
    assert_eq!(names.len(), 5);
    assert_eq!([names[0], names[2], names[4]], ["mcp__one__a", "mcp__one__d", "mcp__two__a"]);
    assert!(names[3].starts_with("mcp__one__e_f_") && tools[3].name.tool == "e f", "{}", names[3]);
    assert_eq!(tools[0].description, "Does a.");
    assert_eq!(tools[0].annotations.read_only, Some(false));
    assert_eq!(
        transport.notes(),
        [
            "`g;h` of the tool server `one` is not offered: its name is not 1 to 256 bytes of letters, digits, spaces and _ - . / :"
        ]
    );
    assert_eq!(transport.ready("one").await, transport.ready("one").await, "a live generation stays");
    let unknown = TransportError::UnknownServer { server: "three".into() };
    assert_eq!(transport.ready("three").await, Err(unknown));
    transport.shutdown().await;
    assert_eq!(std::fs::read_dir(dir.path().join("locks")).unwrap().count(), 0);
}

#[tokio::test]
async fn names_that_collide_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let servers = vec![spec("o", &["--tools", "_a"]), spec("o_", &["--tools", "a"])];
    let transport = McpTransport::new(config(dir.path(), servers));
    let error = transport.list().await.unwrap_err().to_string();
    assert!(error.contains("another server offers `mcp__o___a` too"), "{error}");
    transport.shutdown().await;
    // A tool that a server lists twice in the same words is one tool.
    let transport = McpTransport::new(config(dir.path(), vec![spec("one", &["--tools", "a,b,a"])]));
    let names: Vec<String> = transport.list().await.unwrap().into_iter().map(|tool| tool.name.tool).collect();
    assert_eq!((names, transport.notes()), (vec!["a".to_owned(), "b".to_owned()], Vec::new()));
    transport.shutdown().await;
}

#[tokio::test]
async fn a_later_process_of_the_run_retires_what_this_one_left_and_not_its_own() {
    let dir = tempfile::tempdir().unwrap();
    let mine = config(dir.path(), vec![spec("fake", &["--outlive-input"])]);
    let (my_locks, theirs) = (mine.locks.clone(), config(dir.path(), vec![spec("fake", &[])]));
    let their_locks = theirs.locks.clone();
    let (mine, theirs) = (McpTransport::new(mine), McpTransport::new(theirs));
    let old = mine.ready("fake").await.unwrap();
    let new = theirs.ready("fake").await.unwrap();
    assert_eq!(my_locks.orphans(), [("fake".to_owned(), new.clone())]);
    assert_eq!(their_locks.retire_all_orphans().await, [("fake".to_owned(), old.clone(), Fence::Gone)]);
    assert_eq!(theirs.ready("fake").await.unwrap(), new, "its own generation lives on");
    wait_for_async("the loss to be noticed", || {
        let dead = !my_locks.path("fake", &old).exists();
        dead.then_some(())
    })
    .await;
    theirs.shutdown().await;
    mine.shutdown().await;
}

/// A listing that was begun ends what an earlier process left, and is the one that is asked for: nothing is started twice.
#[tokio::test]
async fn a_listing_that_was_begun_is_the_one_that_is_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    let mine = config(dir.path(), vec![spec("fake", &["--outlive-input"])]);
    let theirs = config(dir.path(), vec![spec("fake", &[])]);
    let (my_locks, their_locks) = (mine.locks.clone(), theirs.locks.clone());
    let (mine, theirs) = (McpTransport::new(mine), Arc::new(McpTransport::new(theirs)));
    let old = mine.ready("fake").await.unwrap();
    theirs.begin_listing();
    assert_eq!(theirs.fence_earlier().await, Fence::Gone);
    let listed = theirs.list().await.unwrap();
    assert!(!listed.is_empty() && !my_locks.path("fake", &old).exists());
    let new = theirs.ready("fake").await.unwrap();
    assert_eq!(my_locks.orphans(), [("fake".to_owned(), new)], "one process was started");
    assert_eq!(theirs.list().await.unwrap(), listed);
    theirs.shutdown().await;
    assert_eq!(their_locks.orphans(), []);
    mine.shutdown().await;
}

#[tokio::test]
async fn a_listing_that_nobody_asks_for_ends_with_its_transport() {
    let dir = tempfile::tempdir().unwrap();
    let config = config(dir.path(), vec![spec("fake", &[])]);
    let locks = config.locks.clone();
    let transport = Arc::new(McpTransport::new(config));
    transport.begin_listing();
    wait_for_async("the server to be started", || transport.running("fake")).await;
    transport.shutdown().await;
    assert_eq!((transport.running("fake"), locks.orphans()), (None, Vec::new()));
}

/// A server that does not answer has 30 s; whoever stops meanwhile does not wait for it.
#[tokio::test]
async fn a_listing_that_is_given_up_holds_up_no_end() {
    let dir = tempfile::tempdir().unwrap();
    let config = config(dir.path(), vec![command("silent", "sleep", &["1000"])]);
    let transport = Arc::new(McpTransport::new(config));
    transport.begin_listing();
    let begun = || std::fs::read_dir(dir.path().join("locks")).is_ok_and(|mut locks| locks.next().is_some());
    tokio::select! {
        listed = transport.list() => panic!("{listed:?}"),
        () = wait_for_async("the server to be started", || begun().then_some(())) => {}
    }
    let env = ua_core::system::env();
    tokio::select! {
        () = transport.shutdown() => {}
        () = env.clock.sleep(Duration::from_secs(20)) => panic!("the end waited for the server"),
    }
}

#[tokio::test]
async fn ids_of_generations_come_from_the_environment() {
    let dir = tempfile::tempdir().unwrap();
    let locks = |seed| LockDir::new(dir.path(), RunId::parse("run").unwrap(), Env::simulated(seed)).unwrap();
    assert_eq!(locks(1).begin("a").unwrap(), locks(1).begin("a").unwrap());
    assert_ne!(locks(1).begin("a").unwrap(), locks(2).begin("a").unwrap());
}

/// A server of a few lines that says of itself what its two arguments are: what `initialize` answers, and the end of what `tools/list` does.
const SAYS: &str = r#"
printf '%s\n' "$3" >&2
while read -r line; do
    id=${line##*'"id":'}; id=${id%%[!0-9]*}
    case $line in
        *'"initialize"'*) printf '{"jsonrpc":"2.0","id":%s,"result":%s}\n' "$id" "$1" ;;
        *'"tools/list"'*) printf '{"jsonrpc":"2.0","id":%s,%s}\n' "$id" "$2" ;;
    esac
done"#;

/// Wherever a server repeats a secret in what it says about itself, and whoever asks: list, facts, lock, notes and errors are without it.
#[tokio::test]
async fn nothing_that_a_server_says_about_itself_has_a_secret_in_it() {
    let secret = "nzQ7-kk31-secret-canary";
    let tool = json!({"name": "TOOL", "title": "TITLE", "description": "DESCRIPTION", "annotations": {"title": "HINT"},
        "inputSchema": {"type": "object", "properties": {"PROPERTY": {"description": "PART", "enum": ["VALUE"]}}}});
    let hello = json!({"protocolVersion": "2025-06-18", "capabilities": {"tools": {}},
        "serverInfo": {"name": "NAME", "version": "VERSION"}, "instructions": "WORDS"});
    let plain = json!({"tools": [tool]});
    let answer = format!("\"result\":{plain}");
    let refusal = "\"error\":{\"code\":-32000,\"message\":\"REFUSAL\"}".to_owned();
    let places = [
        "TOOL",
        "TITLE",
        "DESCRIPTION",
        "HINT",
        "PROPERTY",
        "PART",
        "VALUE",
        "NAME",
        "VERSION",
        "WORDS",
        "REFUSAL",
        "STDERR",
        "2025-06-18",
    ];
    for (place, answer) in places.iter().flat_map(|place| [(*place, &answer), (*place, &refusal)]) {
        let with = |text: &str| text.replace(place, &format!("x-{secret}"));
        let dir = tempfile::tempdir().unwrap();
        let (hello, answer, words) = (with(&hello.to_string()), with(answer), with("STDERR"));
        let server = command("says", "/bin/sh", &["-c", SAYS, "says", &hello, &answer, &words]);
        let redactor = Redactor::new([("TOK".to_owned(), secret.to_owned())]);
        let locked = |lock| {
            let server = ServerSpec { lock, ..server.clone() };
            McpTransport::new(McpTransportConfig { redactor: redactor.clone(), ..config(dir.path(), vec![server]) })
        };
        let transport = locked(None);
        let listed = transport.list().await;
        let said = format!("{listed:?} {:?} {:?}", transport.about(), transport.notes());
        let lock = transport.definitions();
        transport.shutdown().await;
        for text in [&said, &lock.to_text(), &lock.changes_since(None).concat()] {
            assert!(!text.contains(secret), "{place}: {text}");
        }
        let is_quoted = listed.is_err() || !matches!(place, "REFUSAL" | "WORDS" | "STDERR" | "TITLE" | "HINT");
        assert!(
            !is_quoted || said.contains("[secret TOK]") || place == "TOOL" || answer.contains("error"),
            "{place}: {said}"
        );
        // What was locked is what is there, and a lock of another server says so in clean words.
        let known = DefinitionLock::parse(&lock.to_text()).unwrap();
        if listed.is_ok() {
            let again = locked(Some(known.of("says", &server.reach)));
            assert!(again.list().await.is_ok(), "{place}");
            again.shutdown().await;
            let other =
                DefinitionLock::parse(&lock.to_text().replacen("\"name\": \"", "\"name\": \"other-", 1)).unwrap();
            let other = locked(Some(other.of("says", &server.reach)));
            let error = other.list().await.unwrap_err().to_string();
            other.shutdown().await;
            assert!(error.contains("other-") && !error.contains(secret), "{place}: {error}");
        }
    }
}
