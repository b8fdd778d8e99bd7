//! Spans and metrics at a real collector: one tree per process, linked over resumes and joined by tool servers; sums that agree
//! with the database; no word of what was said; and a collector that is gone costs nothing but its own data.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use std::collections::BTreeSet;

use serde_json::{Value, json};
use ua_core::Trace;
use ua_e2e::{Collector, Model, TestEnv, until};
use ua_testkit::{CollectorMood, ReceivedPoint, ReceivedSpan};

use super::env;

const PRICES: &str = "[providers.anthropic.scripted]\ninput = 3.00\noutput = 15.00\n";

fn sending_to(env: TestEnv, collector: &Collector) -> TestEnv {
    env.with_env("OTEL_EXPORTER_OTLP_ENDPOINT", collector.base_url())
}

/// A page, a comment, a notification by our own tool server, and a last word.
fn turns() -> Value {
    let usage = |input: u64, output: u64| json!({"input_tokens": input, "output_tokens": output});
    json!([
        {"tools": [{"name": "mcp__forum__get_page", "input": {"text": "news"}}], "usage": usage(1_000, 20)},
        {"tools": [{"name": "mcp__forum__post_comment", "input": {"text": "hello"}},
                   {"name": "mcp__ua__notify", "input": {"title": "Posted", "message": "It is out."}}], "usage": usage(2_000, 40)},
        {"text": "Done.", "usage": usage(3_000, 5)},
    ])
}

/// A job for the model server of `env`.
fn job(env: &TestEnv, fields: &Value) -> String {
    let mut all = json!({"model": {"provider": "anthropic", "name": "scripted", "max_output_tokens": 300}});
    for (field, value) in fields.as_object().into_iter().flatten() {
        all[field] = value.clone();
    }
    env.job(&all, &json!([]))
}

fn traces(env: &TestEnv) -> Vec<String> {
    serde_json::from_str(&env.value("SELECT traces_json FROM runs")).unwrap()
}

fn text<'a>(span: &'a ReceivedSpan, name: &str) -> &'a str {
    span.attributes.get(name).and_then(Value::as_str).unwrap_or_default()
}

/// The names of the spans from `span` up to the root.
fn path_of(spans: &[ReceivedSpan], span: &ReceivedSpan) -> Vec<String> {
    let mut path = vec![span.name.clone()];
    let mut here = span.clone();
    while let Some(parent) = spans.iter().find(|other| other.span_id == here.parent_id) {
        path.push(parent.name.clone());
        here = parent.clone();
    }
    assert_eq!(here.parent_id, "", "{} has a parent that never arrived", here.name);
    path
}

#[test]
fn a_job_is_one_tree_from_the_run_to_what_its_tool_servers_do() {
    let collector = Collector::start(CollectorMood::Takes);
    let model = Model::start(&turns(), Vec::new());
    let env = sending_to(env().with_forum().with_model(&model), &collector)
        .with_env("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20a-token");
    env.run(&["job", &job(&env, &json!({})), "--run-id", "r"]).code(0);

    let spans = collector.spans();
    let root = collector.one("invoke_agent ua");
    let trace = traces(&env).remove(0);
    assert_eq!((root.trace_id.as_str(), root.parent_id.as_str()), (trace.as_str(), ""));
    assert_eq!(root.span_id, Trace::from_stored(trace.clone()).root_span());
    assert_eq!((text(&root, "run_id"), text(&root, "ua.run.status")), ("r", "succeeded"));
    assert_eq!((&root.resource["service.name"], &root.resource["service.version"]), (&json!("ua"), &json!("0.1.0")));

    let up = ["turn", "step", "invoke_agent ua"];
    let chats = collector.named("chat scripted");
    assert_eq!((chats.len(), collector.named("turn").len(), collector.named("step").len()), (3, 3, 1));
    for chat in &chats {
        assert_eq!(path_of(&spans, chat)[1..], up);
        assert_eq!((chat.kind.as_str(), text(chat, "gen_ai.provider.name")), ("client", "anthropic"));
    }
    let tokens: BTreeSet<i64> =
        chats.iter().filter_map(|chat| chat.attributes["gen_ai.usage.input_tokens"].as_i64()).collect();
    assert_eq!(tokens, BTreeSet::from([1_000, 2_000, 3_000]));

    for tool in ["get_page", "post_comment", "notify"] {
        let call = collector.one(&format!("execute_tool {tool}"));
        assert_eq!(path_of(&spans, &call)[1..], up, "{tool}");
        assert_eq!(text(&call, "ua.tool.status"), "succeeded");
        let id = env.value(&format!("SELECT tool_call_id FROM tool_calls WHERE tool_name = '{tool}'"));
        assert_eq!((text(&call, "tool_call_id"), text(&call, "run_id")), (id.as_str(), "r"));
        let events: Vec<&str> = call.events.iter().map(|(name, _)| name.as_str()).collect();
        for event in ["ua.ledger.admitted", "ua.ledger.started", "ua.call.sending", "ua.ledger.settled"] {
            assert!(events.contains(&event), "{tool}: {events:?}");
        }
    }

    for asked in spans.iter().filter(|span| span.name.starts_with("tools/call ") && span.kind == "client") {
        assert_eq!(text(asked, "network.transport"), "pipe");
        assert!(text(asked, "mcp.protocol.version").starts_with("20"), "{}", asked.name);
        assert!(text(asked, "jsonrpc.request.id").parse::<u64>().is_ok(), "{}", asked.name);
    }

    // What others read has names of ours or of the conventions, and no module of this program.
    for (name, attributes) in spans.iter().flat_map(|span| &span.events) {
        let is_named = |key: &str| key.contains('.') || ["run_id", "step_id", "tool_call_id"].contains(&key);
        let keys: Vec<&str> = attributes.keys().map(String::as_str).collect();
        assert!(keys.iter().all(|key| is_named(key)), "{name}: {keys:?}");
    }

    // Our own tool server is another process: its span hangs below the one that asked, and has its ids.
    let server = spans.iter().find(|span| span.name == "tools/call notify" && span.kind == "server").unwrap();
    assert_eq!(server.resource["service.name"], "ua-toolserver");
    assert_eq!(
        path_of(&spans, server),
        ["tools/call notify", "tools/call notify", "execute_tool notify", "turn", "step", "invoke_agent ua"]
    );
    let call = collector.one("execute_tool notify");
    assert_eq!(text(server, "tool_call_id"), text(&call, "tool_call_id"));
    assert_eq!((text(server, "run_id"), text(server, "step_id")), ("r", text(&call, "step_id")));

    for span in &spans {
        assert_eq!(span.trace_id, trace, "{} stands alone", span.name);
        assert_eq!(text(span, "run_id"), "r", "{} cannot be found by its run", span.name);
    }
    let headers = collector.receiver().headers();
    assert!(headers.iter().all(|all| all.get("authorization").is_some_and(|token| token == "Bearer a-token")));
}

/// A sub-agent that posts a comment.
const WITH_A_SUB_AGENT: &str = r#"{
  "turns": [
    {"tools": [{"name": "mcp__ua_agents__task", "input": {"description": "Tell the forum", "prompt": "ALPHA: post."}}]},
    {"text": "Done."}],
  "conversations": [
    {"when": "ALPHA", "turns": [
      {"tools": [{"name": "mcp__forum__post_comment", "input": {"text": "hello"}}]},
      {"text": "The forum knows."}]}]}"#;

#[test]
fn the_spans_of_a_sub_agent_hang_below_its_task_in_the_one_trace_of_its_process() {
    let collector = Collector::start(CollectorMood::Takes);
    let model = Model::with(WITH_A_SUB_AGENT, |_| ());
    let env = sending_to(env().with_forum().with_model(&model), &collector);
    let job = job(&env, &json!({"subagents": {}}));
    // Interrupted while its sub-agent works, and resumed: each process has a trace, and the sub-agent is in both.
    env.run_killed_at("after:tool.invoke:post_comment", &["job", &job, "--run-id", "r"]);
    let question = env.run(&["resume", "r"]).code(75);
    question.shows(&["Did `post_comment` happen?"]);
    for question in env.rows("SELECT question_id FROM questions WHERE status = 'open'") {
        env.run(&["answer", &question, "happened"]).code(0);
    }
    env.run(&["resume", "r"]).code(0);

    let spans = collector.spans();
    let child = env.value("SELECT run_id FROM runs WHERE run_mode = 'task'");
    let of = |run: &str| -> Vec<String> {
        serde_json::from_str(&env.value(&format!("SELECT traces_json FROM runs WHERE run_id = '{run}'"))).unwrap()
    };
    assert_eq!((of("r").len(), of("r")), (3, of(&child)), "a process has one trace for the whole tree");
    // Of the process that was killed only what had ended long before may have arrived, without what it was a part of.
    let killed = of("r").remove(0);
    let of_child = spans.iter().filter(|span| text(span, "run_id") == child && span.trace_id != killed);
    let of_child: Vec<&ReceivedSpan> = of_child.collect();
    let works: Vec<&&ReceivedSpan> = of_child.iter().filter(|span| span.name == "invoke_agent ua").collect();
    assert_eq!(works.len(), 2, "of the process that was killed nothing arrived: {works:?}");
    for work in works {
        assert!(of("r")[1..].contains(&work.trace_id), "{} is of no process of the run", work.trace_id);
        let path = path_of(&spans, work);
        assert_eq!(path.last().map(String::as_str), Some("invoke_agent ua"), "{path:?}");
        let task = spans.iter().find(|span| span.span_id == work.parent_id).unwrap();
        assert_eq!((task.name.as_str(), text(task, "run_id")), ("execute_tool task", "r"), "{path:?}");
        assert_eq!(task.trace_id, work.trace_id);
        assert_eq!(text(work, "ua.run.root"), "r");
    }
    for span in &of_child {
        let path = path_of(&spans, span);
        assert!(path.iter().any(|name| name == "execute_tool task"), "{} is not below its task: {path:?}", span.name);
    }
}

#[test]
fn our_own_tool_server_shows_what_it_asks_the_network_and_not_where() {
    let collector = Collector::start(CollectorMood::Takes);
    let env = sending_to(env(), &collector);
    // The collector has no such page, and no robots.txt.
    let page = format!("{}/canary-page", collector.base_url());
    let crawl = json!({"tools": [{"name": "mcp__ua__crawl_parallel", "input": {"urls": [page]}}]});
    let job = env.job(&json!({}), &json!([crawl, {"text": "Done."}]));
    env.run(&["job", &job, "--run-id", "r", "--allow-private-addresses"]).code(0);
    let spans = collector.spans();
    let requests = collector.named("GET");
    assert!(!requests.is_empty());
    for request in &requests {
        let path = path_of(&spans, request);
        assert_eq!(path[..4], ["GET", "fetch page", "tools/call crawl_parallel", "tools/call crawl_parallel"]);
        assert_eq!((request.kind.as_str(), text(request, "run_id")), ("client", "r"));
        assert_eq!(request.attributes["http.response.status_code"], 404);
    }
    assert!(!collector.has_seen("canary-page"));
}

#[test]
fn a_resumed_run_is_linked_to_every_earlier_trace() {
    let collector = Collector::start(CollectorMood::Takes);
    let model = Model::start(&turns(), Vec::new());
    let env = sending_to(env().with_forum().with_model(&model), &collector);
    let job = job(&env, &json!({"budgets": {"max_turns": 1}}));
    env.run(&["job", &job, "--run-id", "r"]).code(75);
    env.run(&["resume", "r", "--max-turns", "+9"]).code(0);

    let ids = traces(&env);
    let roots = collector.named("invoke_agent ua");
    let of = |trace: &str| roots.iter().find(|root| root.trace_id == trace).unwrap();
    let (first, second) = (of(&ids[0]), of(&ids[1]));
    assert_eq!((first.links.len(), text(first, "ua.run.stop_reason")), (0, "budget"));
    assert_eq!(second.links, [(first.trace_id.clone(), first.span_id.clone())]);
    let events: Vec<&str> = second.events.iter().map(|(name, _)| name.as_str()).collect();
    assert!(events.contains(&"ua.lease.taken") && events.contains(&"ua.run.resuming"), "{events:?}");
    assert_eq!(env.run(&["runs", "show", "r", "--json"]).code(0).json()["run"]["traces"], json!(ids));
}

#[test]
fn a_run_that_was_killed_is_linked_all_the_same() {
    let collector = Collector::start(CollectorMood::Takes);
    let env = sending_to(env(), &collector);
    let sleep = json!({"tools": [{"name": "mcp__ua__run_command", "input": {"argv": ["sleep", "0.1"]}}]});
    let job = env.job(&json!({"tools": {"run_command": true}}), &json!([sleep, {"text": "Slept."}]));
    env.run_killed_at("after:store.start_attempt:run_command", &["job", &job, "--run-id", "r"]);
    env.run(&["resume", "r"]).code(0);

    let ids = traces(&env);
    let killed = Trace::from_stored(ids[0].clone());
    let root = collector.one("invoke_agent ua");
    assert_eq!(root.trace_id, ids[1]);
    assert_eq!(root.links, [(ids[0].clone(), killed.root_span())]);
    let call = collector.one("execute_tool run_command");
    assert_eq!(text(&call, "ua.tool.replay"), "redone");
    let replayed = call.events.iter().find(|(name, _)| name == "ua.ledger.replayed").unwrap();
    assert_eq!(replayed.1["ua.replay"], "redone");
    env.run(&["runs", "show", "r", "-v"]).code(0).shows(&[&format!("Traces         {}, {}", ids[0], ids[1])]);
    let completion = std::fs::read_to_string(env.workspace().join("job_completion_r.json")).unwrap();
    let completion: Value = serde_json::from_str(&completion).unwrap();
    assert_eq!(completion["traces"], json!(ids));
}

#[test]
fn a_tool_server_is_told_where_a_call_comes_from() {
    let collector = Collector::start(CollectorMood::Takes);
    for with_collector in [true, false] {
        let env = env();
        let env = if with_collector { sending_to(env, &collector) } else { env };
        let entry = env.forum_entry(&["--meta", &env.arg("meta.log")]);
        env.mcp_config("work/.mcp.json", &json!({"forum": entry}));
        let post = json!({"tools": [{"name": "mcp__forum__post_comment", "input": {"text": "hello"}}]});
        let job = env.job(&json!({"tools": {"builtin": false}}), &json!([post, {"text": "Done."}]));
        env.run(&["job", &job, "--run-id", "r"]).code(0);
        let meta: Value = serde_json::from_str(env.read("meta.log").trim()).unwrap();
        let row = env.value("SELECT step_id, tool_call_id FROM tool_calls");
        let (step, call) = row.split_once(' ').unwrap();
        assert_eq!(meta["baggage"], json!(format!("run_id=r,step_id={step},tool_call_id={call}")));
        let parent: Vec<&str> = meta["traceparent"].as_str().unwrap().split('-').collect();
        assert_eq!((parent[0], parent[1], parent[3]), ("00", traces(&env)[0].as_str(), "01"));
        if with_collector {
            assert_eq!(parent[2], collector.one("tools/call post_comment").span_id);
        }
    }
}

#[test]
fn what_metrics_sum_up_to_is_what_the_database_says() {
    let collector = Collector::start(CollectorMood::Takes);
    let model = Model::start(&turns(), Vec::new());
    let env = sending_to(env().with_forum().with_model(&model), &collector);
    let prices = env.write("prices.toml", PRICES);
    let job = job(&env, &json!({"budgets": {"max_turns": 1}}));
    env.run(&["job", &job, "--run-id", "r", "--pricing", &prices]).code(75);
    env.run(&["resume", "r", "--max-turns", "+9"]).code(0);

    let number = |sql: &str| env.value(sql).parse::<f64>().unwrap();
    let is = |name: &'static str, value: &'static str| {
        move |point: &ReceivedPoint| point.attributes.get(name) == Some(&json!(value))
    };
    let all = |_: &ReceivedPoint| true;
    let close = |left: f64, right: f64| assert!((left - right).abs() < 1e-9, "{left} is not {right}");
    let tokens = "gen_ai.client.token.usage";
    close(
        collector.sum(tokens, is("gen_ai.token.type", "input")),
        number("SELECT sum(input_tokens + cache_read_tokens + cache_write_tokens) FROM usage"),
    );
    close(collector.sum(tokens, is("gen_ai.token.type", "output")), number("SELECT sum(output_tokens) FROM usage"));
    close(collector.sum("ua.model.cost", is("ua.currency", "USD")), number("SELECT sum(cost_nanos) FROM usage") / 1e9);
    close(collector.sum("ua.model.requests", is("ua.status", "actual")), number("SELECT count(*) FROM usage"));
    close(collector.sum("ua.tool.calls", is("ua.status", "succeeded")), number("SELECT count(*) FROM tool_calls"));
    close(collector.sum("ua.tool.attempts", all), number("SELECT count(*) FROM tool_attempts"));
    close(collector.sum("ua.tool.calls", is("ua.class", "read_only")), 1.0);
    let held = collector.sum("ua.run.held_time", all);
    close(held, number("SELECT held_millis FROM runs") / 1e3);

    let points = collector.receiver().points();
    let told = |name: &str| points.iter().filter(|point| point.name == name).map(|point| point.count).sum::<u64>();
    assert_eq!(told("gen_ai.client.operation.duration"), 3);
    assert_eq!(told("ua.turn.duration"), 3);
    assert_eq!(told("gen_ai.execute_tool.duration"), 3);
    let writes = points.iter().filter(|point| point.name == "ua.store.write.duration");
    // A write of several changes has all their names.
    let operations = writes.filter_map(|point| point.attributes["db.operation.name"].as_str());
    let names: BTreeSet<&str> = operations.flat_map(|operation| operation.split('+')).collect();
    for name in ["acquire_run", "record_turn", "start_attempt", "settle_attempt", "commit_turn", "end_run"] {
        assert!(names.contains(name), "{names:?}");
    }
}

/// A job whose every text is a canary: what it is to do, what the model says, arguments, results, and a failure's reason.
fn canary_job(env: &TestEnv) -> String {
    let turns = json!([
        {"text": "canary-said", "tools": [
            {"name": "mcp__forum__get_page", "input": {"text": "canary-argument"}},
            {"name": "mcp__forum__post_comment", "input": {"text": "canary-posted", "fail": "canary-failure"}}]},
        {"tools": [{"name": "mcp__ua__read_local_file", "input": {"path": "canary-path"}}]},
        {"text": "canary-output"},
    ]);
    env.job(&json!({"objective": "canary-objective", "prompt": "canary-prompt"}), &turns)
}

#[test]
fn what_was_said_is_sent_nowhere_unless_somebody_asks_for_it() {
    for (switch, is_wanted) in [("0", false), ("1", true)] {
        let collector = Collector::start(CollectorMood::Takes);
        let env = sending_to(env().with_forum(), &collector).with_env("UA_OTEL_CONTENT", switch);
        let job = canary_job(&env);
        env.run(&["job", &job, "--run-id", "r"]).code(0);
        assert!(!collector.spans().is_empty() && collector.has_seen("execute_tool"));
        assert_eq!(collector.has_seen("canary"), is_wanted);
        for canary in
            ["canary-prompt", "canary-said", "canary-argument", "canary-failure", "canary-path", "canary-output"]
        {
            assert_eq!(collector.has_seen(canary), is_wanted, "{canary}");
        }
        // Where the job lies is nobody's business either.
        assert!(!collector.has_seen("ua-e2e-"), "a path of this machine was sent");
    }
}

#[test]
fn a_collector_that_is_gone_refuses_or_hangs_costs_its_own_data_and_nothing_else() {
    let (refusing, hanging) = (Collector::start(CollectorMood::Refuses), Collector::start(CollectorMood::Hangs));
    // What is exported, and the headers that open the collector, are for that host alone.
    let sending_on = Collector::start(CollectorMood::SendsOn);
    let gone = {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        format!("http://{}", listener.local_addr().unwrap())
    };
    for (endpoint, why) in [
        (gone.as_str(), "span"),
        (refusing.base_url(), "503"),
        (hanging.base_url(), "within 3 s"),
        (sending_on.base_url(), "307"),
    ] {
        let env = env().with_forum().with_env("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint);
        let post = json!({"tools": [{"name": "mcp__forum__post_comment", "input": {"text": "hello"}}]});
        let job = env.job(&json!({}), &json!([post, {"text": "Done."}]));
        let output = env.run(&["job", &job, "--run-id", "r"]).code(0);
        output.says(&["telemetry was lost", why]).shows(&["succeeded · run r", "Done."]);
        assert_eq!(env.comments().len(), 1);
    }
    assert_eq!(sending_on.brought_elsewhere(), 0);
    // One that cannot be used at all is named, too.
    let env = env().with_env("OTEL_EXPORTER_OTLP_ENDPOINT", "no address");
    let job = env.job(&json!({"tools": {"builtin": false}}), &json!([{"text": "Done."}]));
    env.run(&["job", &job]).code(0).says(&["no telemetry is sent: its traces cannot be exported"]);
}

#[test]
fn telemetry_can_be_switched_off_and_sampled() {
    let collector = Collector::start(CollectorMood::Takes);
    let quiet = |name: &str, value: &str| {
        let env = sending_to(env(), &collector).with_env(name, value).with_env("OTEL_METRICS_EXPORTER", "none");
        let job = env.job(&json!({"tools": {"builtin": false}}), &json!([{"text": "Done."}]));
        env.run(&["job", &job, "--run-id", "r"]).code(0);
        assert_eq!(collector.spans(), [], "{name}");
        assert_eq!(traces(&env).len(), 1, "a run has its trace id whether or not anybody records it");
    };
    quiet("OTEL_SDK_DISABLED", "true");
    quiet("OTEL_TRACES_SAMPLER", "always_off");
    quiet("OTEL_TRACES_EXPORTER", "none");
    let env = sending_to(env(), &collector).with_env("OTEL_SERVICE_NAME", "mine").with_env("UA_OTEL_LEVEL", "debug");
    env.run(&["job", &env.job(&json!({"tools": {"builtin": false}}), &json!([{"text": "Done."}])), "--run-id", "r"])
        .code(0);
    assert_eq!(collector.one("invoke_agent ua").resource["service.name"], "mine");
    let spans = collector.spans();
    let commit = spans
        .iter()
        .find(|span| span.name == "store.write" && text(span, "db.operation.name").ends_with("+commit_turn"))
        .unwrap();
    assert_eq!(path_of(&spans, commit), ["store.write", "turn", "step", "invoke_agent ua"]);
}

#[test]
fn a_long_run_sends_its_spans_while_it_works() {
    let collector = Collector::start(CollectorMood::Takes);
    let env = sending_to(env().with_forum(), &collector);
    let gate = env.arg("gate");
    let wait = json!({"tools": [{"name": "mcp__forum__post_comment", "input": {"text": "hello", "until": gate}}]});
    let job = env.job(&json!({"tools": {"builtin": false}}), &json!([wait, {"text": "Done."}]));
    let process = env.start(&["job", &job, "--run-id", "r"]);
    until("the first request's span", || !collector.named("chat scripted").is_empty());
    env.write("gate", "");
    process.wait().code(0);
}

#[test]
fn diagnostics_are_lines_of_json_and_progress_stays_as_it_is() {
    let collector = Collector::start(CollectorMood::Takes);
    let env = sending_to(env().with_forum(), &collector).with_env("UA_LOG", "info");
    let post = json!({"tools": [{"name": "mcp__forum__post_comment", "input": {"text": "canary"}}]});
    let job = env.job(&json!({"tools": {"builtin": false}}), &json!([post, {"text": "Done."}]));
    let output = env.run(&["--log-format", "json", "job", &job, "--run-id", "r"]).code(0);
    let (logged, told): (Vec<&str>, Vec<&str>) = output.stderr.lines().partition(|line| line.starts_with('{'));
    assert!(told.iter().any(|line| line.contains("turn 1 · call 1 · post_comment")), "{told:?}");
    let logged: Vec<Value> = logged.iter().map(|line| serde_json::from_str(line).unwrap()).collect();
    let settled = logged.iter().find(|line| line["fields"]["message"] == "ua.ledger.settled").unwrap();
    assert_eq!((&settled["level"], &settled["fields"]["status"]), (&json!("INFO"), &json!("succeeded")));
    assert!(settled["timestamp"].is_string() && settled["spans"].is_array());
    assert!(
        logged
            .iter()
            .any(|line| line["fields"]["message"] == "input tokens as estimated and as the provider counted them")
    );
    assert!(collector.has_seen("ua.ledger.settled") && !collector.has_seen("as the provider counted them"));
    let run_log = std::fs::read_to_string(env.workspace().join("run.log")).unwrap();
    assert!(!run_log.contains('{') || !run_log.contains("ua.ledger"), "diagnostics in run.log: {run_log}");
}
