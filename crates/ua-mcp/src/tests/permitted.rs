//! Calls as the dispatcher makes them: with a permit of a real ledger.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;
use ua_core::{
    Block, CallId, CallPolicy, CanonicalJson, Clock, Env, KeyChannel, Message, ModelTurn, OnUnknown, Origin, Outcome,
    PlannedCall, Position, RawReply, RunId, RunSpec, SideEffectClass, Sleep, StepId, StopReason, Timestamp, ToolName,
    ToolNamespace, ToolUse, Trace, Usage, sha256,
};
use ua_dispatch::{Fence, Payload, Permit, ToolTransport, TransportError, verify_key};
use ua_ledger::{Admission, Facts, Ledger, LedgerConfig, Lineage, Outbox};
use ua_store::{MemStore, NewRun, NewStep, OwnerStamp, RequestReservation, RunStore, TurnDraft};

use super::Later;
use super::hostile::Hostile;
use super::http::http;
use super::servers::{config, spec};
use crate::logins::Logins;
use crate::{McpTransport, ServerSpec};

/// The time limit of these tests.
const LIMIT: Duration = Duration::from_hours(77);

/// The horizon of these tests.
const HORIZON: Duration = Duration::from_hours(33);

/// The real clock, on which a wait of [`LIMIT`] is over at once, and so is one for [`HORIZON`], which is counted.
#[derive(Debug)]
struct LimitIsUp {
    env: Env,
    horizons: Arc<AtomicU32>,
}

impl Clock for LimitIsUp {
    fn now(&self) -> Timestamp {
        self.env.now()
    }

    fn uptime(&self) -> Duration {
        self.env.clock.uptime()
    }

    fn sleep(&self, span: Duration) -> Sleep {
        let is_horizon = span <= HORIZON && span + Duration::from_hours(1) > HORIZON;
        if is_horizon {
            self.horizons.fetch_add(1, Ordering::SeqCst);
        }
        if span == LIMIT || is_horizon { Box::pin(std::future::ready(())) } else { self.env.clock.sleep(span) }
    }
}

/// One run in its first turn, whose reply asked for the calls that a test plans.
pub(super) struct Run {
    dir: TempDir,
    pub(super) transport: McpTransport,
    env: Env,
    /// How often a horizon was waited for.
    horizons: Arc<AtomicU32>,
    /// By how many seconds its clock is ahead.
    later: Arc<AtomicU64>,
}

impl Run {
    fn new() -> Self {
        Self::with(spec("fake", &[]))
    }

    fn with(server: ServerSpec) -> Self {
        Self::within(server, LIMIT)
    }

    /// With logins for the server `fake` there.
    pub(super) fn with_logins(server: ServerSpec, logins: &Logins) -> Self {
        Self::of(server, LIMIT, Some(logins.clone()))
    }

    /// With another time limit, which passes on the real clock.
    fn within(server: ServerSpec, limit: Duration) -> Self {
        Self::of(server, limit, None)
    }

    fn of(server: ServerSpec, limit: Duration, logins: Option<Logins>) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mut config = config(dir.path(), vec![server]);
        config.call_timeout_for_reads = Some(limit);
        config.remote_horizon = HORIZON;
        config.logins = logins;
        let horizons = Arc::default();
        let later = Later::within(&mut config.env);
        config.env.clock = Arc::new(LimitIsUp { env: config.env.clone(), horizons: Arc::clone(&horizons) });
        Self { env: config.env.clone(), transport: McpTransport::new(config), dir, horizons, later }
    }

    /// Takes one call all the way to RUNNING.
    pub(super) async fn permit(&self, tool: &str, arguments: Value, policy: CallPolicy, generation: &str) -> Permit {
        let (env, store) = (&self.env, Arc::new(MemStore::new()));
        let (run_id, step_id, at) = (RunId::new(env), StepId::new(env), env.now());
        let new = NewRun {
            run_id: run_id.clone(),
            created_at: at,
            entrypoint: "library".into(),
            run_mode: "library".into(),
            spec: RunSpec::parse(r#"{"objective": "call a tool"}"#).unwrap(),
            files: Vec::new(),
            job_path: None,
            opening: Message::user(Origin::Prompt, "call a tool"),
            workspace_dir: self.dir.path().display().to_string(),
            launch: json!({}),
            parent_run_id: None,
        };
        store.submit_run(new).await.unwrap();
        let trace = Trace::new(env);
        let owner = OwnerStamp {
            pid: 1,
            start_ticks: 1,
            boot_id: "b".into(),
            host: "h".into(),
            trace: trace.clone(),
            ended_before: Vec::new(),
        };
        let (lease, _) = store.acquire_run(&run_id, &owner, at).await.unwrap();
        let step = NewStep { step_id: step_id.clone(), phase: "main".into(), created_at: at, fingerprint: None };
        store.open_step(&lease, step).await.unwrap();
        let reservation = RequestReservation {
            turn: 1,
            request_sha256: sha256("r"),
            provider: "p".into(),
            model: "m".into(),
            price: None,
            estimator: "e/1".into(),
            continued_from: None,
            estimated_tokens: 1,
            reserved_output_tokens: 1,
            at,
        };
        let request_id = store.reserve_request(&lease, reservation).await.unwrap();
        let name = ToolName::qualified(ToolNamespace::Mcp, "fake", tool);
        let tool_use = ToolUse { id: "use_1".into(), name: name.raw.clone(), input: arguments.clone() };
        let call = PlannedCall {
            call_id: CallId::new(env),
            tool_use_id: tool_use.id.clone(),
            position: Position { turn: 1, ordinal: 1 },
            name: name.clone(),
            args_hash: CanonicalJson::of(&arguments, &[]).unwrap().hash(),
            arguments: arguments.into(),
            tool_digest: None,
            policy: policy.into(),
            refusal: None,
        };
        let call_id = call.call_id.clone();
        let reply = ModelTurn {
            blocks: vec![Block::ToolUse(tool_use)],
            stop_reason: StopReason::ToolUse,
            usage: Some(Usage::default()),
            model: "m".into(),
            response_id: None,
        };
        let draft =
            TurnDraft { turn: 1, step_id, request_id, request_sha256: sha256("r"), reply, calls: vec![call], at };
        store.record_turn(&lease, draft).await.unwrap();
        let ledger = Ledger::new(
            Arc::new(Outbox::new(store, lease.clone())),
            lease,
            Lineage { database: "d".to_owned(), root: run_id, mark: None },
            LedgerConfig::default(),
            env.clone(),
            trace,
        );
        let destination = self.transport.destination(&name, &Value::Null).unwrap();
        let facts = Facts { destination, ..Facts::default() };
        let Admission::Ready(prepared) = ledger.admit(&call_id, facts).await.unwrap() else {
            panic!("a fresh call is ready")
        };
        ledger.start(prepared, generation).await.unwrap().expect("nothing else claims the key")
    }

    async fn invoke(&self, tool: &str, arguments: Value, policy: CallPolicy) -> Outcome {
        let generation = self.transport.ready("fake").await.unwrap();
        let permit = Box::pin(self.permit(tool, arguments, policy, &generation)).await;
        self.transport.invoke(&permit).await
    }

    fn path(&self, name: &str) -> String {
        self.dir.path().join(name).display().to_string()
    }
}

#[tokio::test]
async fn the_key_travels_as_an_argument_and_in_meta() {
    let run = Run::new();
    let policy = CallPolicy { key_channel: Some(KeyChannel::Argument("dedupe".into())), ..CallPolicy::unclassified() };
    let generation = run.transport.ready("fake").await.unwrap();
    let permit = run.permit("echo", json!({"a": 1}), policy, &generation).await;
    let Outcome::Raw(RawReply::ToolResult { result }) = run.transport.invoke(&permit).await else { panic!("answered") };
    let seen = &result["structuredContent"];
    assert_eq!(seen["arguments"], json!({"a": 1, "dedupe": permit.key().as_str()}));
    let mut meta = seen["meta"].as_object().unwrap().clone();
    meta.remove("progressToken");
    assert_eq!(meta.len(), permit.meta().len());
    assert_eq!(meta["dev.universal-agent/idempotency-key"], json!(permit.key().as_str()));
    run.transport.shutdown().await;
}

#[tokio::test]
async fn what_leaves_carries_the_committed_key_or_does_not_leave() {
    let run = Run::new();
    let generation = run.transport.ready("fake").await.unwrap();
    let with = |channel| CallPolicy { key_channel: Some(channel), ..CallPolicy::unclassified() };
    for channel in [KeyChannel::Argument("k".into()), KeyChannel::Header("K".into()), KeyChannel::Meta] {
        let permit = run.permit("echo", json!({}), with(channel.clone()), &generation).await;
        let (key, none) = (permit.key().as_str().to_owned(), serde_json::Map::new());
        let (arguments, meta) = (permit.arguments(), permit.meta());
        let whole = Payload { arguments: &arguments, meta: &meta, header: Some(("k", &key)) };
        assert_eq!(verify_key(&permit, whole), Ok(()), "{channel:?}");
        let bare = Payload { arguments: &none, meta: &none, header: None };
        assert!(verify_key(&permit, bare).unwrap_err().contains("does not carry"), "{channel:?}");
        let (mut arguments, mut meta) = (arguments, meta);
        arguments.insert("k".into(), json!("another"));
        meta.insert("dev.universal-agent/idempotency-key".into(), json!("another"));
        let swapped = Payload { arguments: &arguments, meta: &meta, header: Some(("k", "another")) };
        assert!(verify_key(&permit, swapped).unwrap_err().contains("another idempotency key"), "{channel:?}");
    }
    let policy = CallPolicy { requires_idempotency_key: true, ..CallPolicy::unclassified() };
    let why = run.invoke("echo", json!({}), policy).await;
    assert!(matches!(&why, Outcome::NotSent { why } if why.contains("no way to receive one")), "{why:?}");
    run.transport.shutdown().await;
}

/// Under its key it is sent again, which does no harm; what is simply done again is what its first answer says.
#[tokio::test]
async fn a_keyed_call_of_which_its_server_says_two_things_is_in_doubt() {
    let run = Run::new();
    let says =
        json!([{"error": {"code": -32601, "message": "no such method"}}, {"error": {"code": -32603, "message": "?"}}]);
    for on_unknown in [OnUnknown::Hold, OnUnknown::RedoKeyed, OnUnknown::Redo] {
        let key_channel = Some(KeyChannel::Meta);
        let policy = CallPolicy { on_unknown, key_channel, ..CallPolicy::unclassified() };
        let outcome = run.invoke("answer_twice", json!({"says": says, "progress": false}), policy).await;
        match outcome {
            Outcome::Lost { why } if on_unknown != OnUnknown::Redo => assert!(why.contains("was not begun"), "{why}"),
            Outcome::Raw(RawReply::RpcError { code: -32601, .. }) if on_unknown == OnUnknown::Redo => {}
            outcome @ (Outcome::NotSent { .. } | Outcome::Lost { .. } | Outcome::Raw(_) | Outcome::Continues(_)) => {
                panic!("{on_unknown:?}: {outcome:?}")
            }
        }
    }
    run.transport.shutdown().await;
}

#[tokio::test]
async fn a_permit_of_an_earlier_generation_is_not_sent_to_the_next() {
    let run = Run::new();
    let old = run.transport.ready("fake").await.unwrap();
    let permit = run.permit("slow", json!({"began": run.path("began")}), CallPolicy::unclassified(), &old).await;
    assert_eq!(run.transport.fence("fake", &old, None).await, Fence::Gone);
    let new = run.transport.ready("fake").await.unwrap();
    let why = format!("generation {old} of `fake` is no longer running here");
    assert_eq!(run.transport.invoke(&permit).await, Outcome::NotSent { why });
    assert_ne!(old, new);
    assert!(!std::path::Path::new(&run.path("began")).exists());
    run.transport.shutdown().await;
}

#[tokio::test]
async fn reads_and_calls_whose_policy_says_so_have_a_time_limit() {
    let read = CallPolicy { class: SideEffectClass::ReadOnly, ..CallPolicy::unclassified() };
    let limited = CallPolicy { timeout: Some(LIMIT), ..CallPolicy::unclassified() };
    for policy in [read, limited] {
        let run = Run::new();
        let arguments = json!({"began": run.path("began"), "until": run.path("never")});
        let lost = Outcome::Lost { why: format!("no answer within {} s", LIMIT.as_secs()) };
        assert_eq!(run.invoke("slow", arguments, policy).await, lost);
        let generation = run.transport.ready("fake").await.unwrap();
        assert_eq!(run.transport.fence("fake", &generation, None).await, Fence::Gone);
    }
}

#[tokio::test]
async fn s15_what_drips_for_ever_is_ended_by_a_deadline_that_no_byte_moves() {
    let limit = Duration::from_millis(300);
    let read = CallPolicy { class: SideEffectClass::ReadOnly, ..CallPolicy::unclassified() };
    for tool in ["drip_events", "drip_body"] {
        let hostile = Hostile::start().await;
        let run = Run::within(http("fake", &hostile.url, &[]), limit);
        let outcome = tokio::time::timeout(Duration::from_mins(1), run.invoke(tool, json!({}), read.clone())).await;
        assert_eq!(outcome, Ok(Outcome::Lost { why: "no answer within 0.3 s".to_owned() }), "{tool}");
        assert_eq!(hostile.calls(tool).len(), 1, "{tool}");
    }
}

#[tokio::test]
async fn a_call_with_an_effect_is_waited_for() {
    let run = Run::new();
    let arguments = json!({"began": run.path("began"), "until": run.path("until")});
    let release = async {
        super::wait_for_async("the call", || std::path::Path::new(&run.path("began")).exists().then_some(())).await;
        std::fs::write(run.path("until"), "").unwrap();
    };
    let (outcome, ()) = tokio::join!(run.invoke("slow", arguments, CallPolicy::unclassified()), release);
    assert!(matches!(outcome, Outcome::Raw(_)), "{outcome:?}");
    run.transport.shutdown().await;
}

/// Revision 2025-11-25: a server that wants a person at an address first has not begun with the call. It is made as if for the first time once they
/// were there, as often as it takes, and not at all if they will not go.
#[tokio::test]
async fn a_call_whose_server_wants_a_person_at_an_address_is_made_after_that() {
    let run = Run::new();
    let generation = run.transport.ready("fake").await.unwrap();
    let arguments = json!({"visited": run.path("visited")});
    let policy = CallPolicy::unclassified();
    let permit = Box::pin(run.permit("sign_in_first", arguments, policy, &generation)).await;
    let asked = |outcome: Outcome| {
        let Outcome::Continues(handle) = outcome else { panic!("{outcome:?}") };
        let (name, request) = handle.open_request().unwrap();
        assert_eq!((name, &request["params"]["url"]), ("e1", &json!("https://a.example/in")));
        assert!(handle.outlives_its_process());
        *handle
    };
    let first = asked(run.transport.invoke(&permit).await);
    let declined = first.clone().answered("e1", json!({"action": "decline"}));
    let refused = run.transport.go_on(&permit, &declined).await.unwrap();
    assert!(matches!(&refused, Outcome::Raw(RawReply::Refused { why }) if why.contains("not called")), "{refused:?}");
    let accepted = json!({"action": "accept"});
    let again = asked(run.transport.go_on(&permit, &first.answered("e1", accepted.clone())).await.unwrap());
    assert_eq!(again.input.as_ref().unwrap().round, 2);
    std::fs::write(run.path("visited"), "").unwrap();
    let done = run.transport.go_on(&permit, &again.answered("e1", accepted)).await.unwrap();
    let Outcome::Raw(RawReply::ToolResult { result }) = done else { panic!("{done:?}") };
    assert_eq!(result["content"][0]["text"], "signed in, true", "it is the call itself, without answers");
    run.transport.shutdown().await;
}

/// A server that was restarted knows none of its sessions. Something harmless finds that out, and the call is posted once, in a session that is known.
/// Who answers otherwise, or not as a server does that knows no session, is sent the call where it would have gone.
#[tokio::test]
async fn a_session_that_a_restarted_server_forgot_is_replaced_before_an_effect_is_posted() {
    for (ping, session) in
        [(None, "session-2"), (Some(202), "session-1"), (Some(503), "session-1"), (Some(405), "session-1")]
    {
        let hostile = Hostile::start().await;
        let run = Run::with(http("fake", &hostile.url, &[]));
        run.transport.ready("fake").await.unwrap();
        assert!(!run.transport.is_silent("fake"), "it has just answered");
        match ping {
            Some(status) => hostile.turn_away("ping", status),
            None => hostile.forget_sessions(),
        }
        run.later.fetch_add(5, Ordering::SeqCst);
        assert!(run.transport.is_silent("fake"));
        let outcome = Box::pin(run.invoke("echo", json!({}), CallPolicy::unclassified())).await;
        assert!(matches!(outcome, Outcome::Raw(RawReply::ToolResult { .. })), "{ping:?}: {outcome:?}");
        let of = |method: &str| -> Vec<String> {
            let seen = hostile.seen().into_iter().filter(|seen| seen.method() == method);
            seen.map(|seen| seen.header("mcp-session-id").unwrap_or_default().to_owned()).collect()
        };
        assert_eq!(
            (of("ping"), of("tools/call")),
            (vec!["session-1".to_owned()], vec![session.to_owned()]),
            "{ping:?}"
        );
        assert!(!run.transport.is_silent("fake"));
    }
}

/// Whatever a status says of the request for a task's result, it says nothing of the call, which was taken: it would be made a second time.
#[tokio::test]
async fn a_result_of_a_task_that_cannot_be_had_does_not_mean_that_the_call_did_not_happen() {
    for status in [400, 401, 403, 404, 405, 410, 413, 429, 500, 503] {
        let (hostile, tool) = (Hostile::start().await, format!("task-{status}"));
        let run = Run::with(http("fake", &hostile.url, &[]));
        let generation = run.transport.ready("fake").await.unwrap();
        let permit = Box::pin(run.permit(&tool, json!({}), CallPolicy::unclassified(), &generation)).await;
        let begun = run.transport.invoke(&permit).await;
        let Outcome::Continues(handle) = begun else { panic!("{begun:?}") };
        let went = run.transport.go_on(&permit, &handle).await;
        match &went {
            Ok(Outcome::Lost { why }) => {
                assert!([400, 404, 405, 410].contains(&status), "{status}: {why}");
                assert!(why.contains("no longer knows the task") && why.contains(&status.to_string()), "{why}");
            }
            Err(TransportError::NotReached { why, .. }) => {
                assert!([401, 403, 413, 429, 500, 503].contains(&status), "{status}");
                assert!(why.contains(&status.to_string()), "{why}");
            }
            other => panic!("{status}: {other:?}"),
        }
        assert_eq!(hostile.calls(&tool).len(), 1);
        run.transport.shutdown().await;
    }
}

#[tokio::test]
async fn a_lost_call_says_how_the_server_ended() {
    let run = Run::new();
    let outcome = run.invoke("die_before_reply", json!({}), CallPolicy::unclassified()).await;
    let Outcome::Lost { why } = outcome else { panic!("{outcome:?}") };
    assert!(
        why.starts_with("it closed its output; `") && why.ends_with("ended with exit code 9; it wrote:\nabout to die"),
        "{why}"
    );
    run.transport.shutdown().await;
}

#[tokio::test]
async fn over_http_the_key_travels_in_the_header_that_the_policy_names() {
    let hostile = Hostile::start().await;
    let run = Run::with(http("fake", &hostile.url, &[]));
    let policy =
        CallPolicy { key_channel: Some(KeyChannel::Header("Idempotency-Key".into())), ..CallPolicy::unclassified() };
    let generation = run.transport.ready("fake").await.unwrap();
    let permit = run.permit("echo", json!({"a": 1}), policy, &generation).await;
    assert!(matches!(run.transport.invoke(&permit).await, Outcome::Raw(RawReply::ToolResult { .. })));
    let calls = hostile.calls("echo");
    assert_eq!(calls.len(), 1);
    assert_eq!(calls[0].header("idempotency-key"), Some(permit.key().as_str()));
    assert_eq!(calls[0].body["params"]["_meta"]["dev.universal-agent/idempotency-key"], json!(permit.key().as_str()));
    run.transport.shutdown().await;
}

#[tokio::test]
async fn where_a_call_comes_from_stands_in_its_meta_and_over_http_in_its_headers() {
    let hostile = Hostile::start().await;
    let run = Run::with(http("fake", &hostile.url, &[]));
    let generation = run.transport.ready("fake").await.unwrap();
    let permit = run.permit("echo", json!({"a": 1}), CallPolicy::unclassified(), &generation).await;
    assert!(matches!(run.transport.invoke(&permit).await, Outcome::Raw(RawReply::ToolResult { .. })));
    let calls = hostile.calls("echo");
    let call = permit.call();
    let baggage = format!("run_id={},step_id={},tool_call_id={}", call.run_id, call.step_id, call.call_id);
    let meta = &calls[0].body["params"]["_meta"];
    assert_eq!((&meta["baggage"], calls[0].header("baggage")), (&json!(baggage), Some(baggage.as_str())));
    let parent = meta["traceparent"].as_str().unwrap();
    assert_eq!(calls[0].header("traceparent"), Some(parent));
    assert!(parent.starts_with("00-") && parent.ends_with("-01") && parent.len() == 55, "{parent}");
    assert_eq!(calls[0].header("tracestate"), None);
    run.transport.shutdown().await;
}

#[tokio::test]
async fn a_remote_server_is_fenced_by_waiting_for_the_horizon_and_keeps_its_session() {
    let hostile = Hostile::start().await;
    let run = Run::with(http("fake", &hostile.url, &[]));
    let mut fences = 0;
    for tool in ["cut", "rpc_error"] {
        let generation = run.transport.ready("fake").await.unwrap();
        let permit = run.permit(tool, json!({}), CallPolicy::unclassified(), &generation).await;
        let outcome = run.transport.invoke(&permit).await;
        assert!(!matches!(outcome, Outcome::Raw(RawReply::ToolResult { .. })), "{outcome:?}");
        for server in ["fake", "not-configured-any-more"] {
            assert_eq!(run.transport.fence(server, &generation, None).await, Fence::Gone);
            fences += 1;
            assert_eq!(run.horizons.load(Ordering::SeqCst), fences, "{tool}");
        }
        assert_eq!(run.transport.ready("fake").await.unwrap(), generation);
        assert_eq!(hostile.calls(tool).len(), 1);
    }
    run.transport.shutdown().await;
}

#[tokio::test]
async fn a_permit_of_an_earlier_session_is_not_sent_in_the_next() {
    let hostile = Hostile::start().await;
    let run = Run::with(http("fake", &hostile.url, &[]));
    let old = run.transport.ready("fake").await.unwrap();
    hostile.forget_sessions();
    run.transport.list().await.unwrap();
    let permit = run.permit("echo", json!({}), CallPolicy::unclassified(), &old).await;
    let why = format!("generation {old} of `fake` is no longer running here");
    assert_eq!(run.transport.invoke(&permit).await, Outcome::NotSent { why });
    assert_eq!(hostile.calls("echo").len(), 0);
    run.transport.shutdown().await;
}
