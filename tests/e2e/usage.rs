//! What requests to the model cost: each is charged once, whatever happens to it, and a budget of tokens or money holds over
//! kills and resumes.

use rustix::process::Signal;
use serde_json::{Value, json};
use ua_e2e::{Model, TestEnv, until};
use ua_testkit::{Fault, FaultKind};

use super::env;

/// Dollars per million tokens.
const PRICES: &str =
    "[providers.anthropic.scripted]\ninput = 3.00\noutput = 15.00\ncache_read = 0.30\ncache_write = 3.75\n";

fn usage(input: u64, output: u64, read: u64, write: u64) -> Value {
    json!({"input_tokens": input, "output_tokens": output, "cache_read_tokens": read, "cache_write_tokens": write})
}

/// A comment and a last word, of 1000 + 200 and 50 + 10 tokens and some from a cache.
fn turns() -> Value {
    json!([
        {"tools": [{"name": "mcp__forum__post_comment", "input": {"text": "request {{request}}"}}], "usage": usage(1_000, 200, 0, 400)},
        {"text": "Posted.", "usage": usage(50, 10, 5_000, 0)},
    ])
}

/// A job for the model of `env`, with the tool server `forum` only and these budgets.
fn job(env: &TestEnv, budgets: &Value) -> String {
    let model = json!({"provider": "anthropic", "name": "scripted", "max_output_tokens": 300});
    env.job(&json!({"tools": {"builtin": false}, "model": model, "budgets": budgets}), &json!([]))
}

const ROWS: &str =
    "SELECT status, network_attempted, input_tokens, output_tokens, cost_nanos FROM usage ORDER BY request_id";

/// The ends of all requests, in order.
fn ends(env: &TestEnv) -> Vec<String> {
    env.rows("SELECT status FROM usage ORDER BY request_id")
}

/// Each request that the server saw has one end, and those that say `actual` are what the server said.
fn agrees(env: &TestEnv, model: &Model) {
    assert_eq!(env.value("SELECT count(*) FROM usage WHERE status = 'reserved'"), "0");
    let seen = env.value("SELECT count(*) FROM usage WHERE network_attempted = 1");
    assert_eq!(seen, model.requests().to_string());
    let billed: Vec<String> = model
        .bill()
        .iter()
        .map(|usage| {
            format!(
                "{} {} {} {}",
                usage.input_tokens, usage.output_tokens, usage.cache_read_tokens, usage.cache_write_tokens
            )
        })
        .collect();
    let sql = "SELECT input_tokens, output_tokens, cache_read_tokens, cache_write_tokens FROM usage WHERE status = 'actual' ORDER BY request_id";
    assert_eq!(env.rows(sql), billed);
}

#[test]
fn each_request_is_charged_at_its_price_and_shown_to_people_and_programs() {
    let model = Model::start(&turns(), Vec::new());
    let env = env().with_forum().with_model(&model);
    let prices = env.write("prices.toml", PRICES);
    let output = env.run(&["job", &job(&env, &json!({})), "--run-id", "r", "--pricing", &prices]).code(0);
    // 1000 × 3 + 200 × 15 + 400 × 3.75 and 50 × 3 + 10 × 15 + 5000 × 0.30 dollars per million tokens.
    assert_eq!(env.rows(ROWS), ["actual 1 1000 200 7500000", "actual 1 50 10 1800000"]);
    assert_eq!(env.rows("SELECT currency FROM usage"), ["USD", "USD"]);
    agrees(&env, &model);
    output.says(&[
        "turn 1 · 1400 tokens in, 200 out · $0.0075 · used so far: 1600 tokens · $0.0075",
        "6660 tokens · $0.0093",
    ]);

    let requests = "Requests       2\n";
    let tokens = "Tokens         6660 (1050 in, 210 out, 5000 from cache, 400 to cache)";
    env.run(&["runs", "show", "r"]).code(0).shows(&[requests, tokens, "Cost           $0.0093"]);
    let shown = env.run(&["runs", "show", "r", "--json"]).code(0).json();
    assert_eq!((&shown["usage"]["cost"], &shown["usage"]["total_tokens"]), (&json!(["0.0093 USD"]), &json!(6_660)));
    assert_eq!(shown["usage"]["models"][0]["requests"], json!({"actual": 2}));
    assert_eq!(shown["usage"]["counted_input_tokens"], 6_450);
    assert_eq!(shown["requests"][0]["cost"], "0.0075 USD");
    assert_eq!(shown["requests"][0]["price"]["output_nanos_per_million"], 15_000_000_000_u64);
    assert!(shown["requests"][0]["estimated_tokens"].as_u64().is_some_and(|tokens| tokens > 50));
    env.run(&["runs", "list"]).code(0).shows(&["USED", "succeeded  $0.0093  2 "]);
    let listed = &env.run(&["runs", "list", "--json"]).code(0).json()[0];
    assert_eq!((&listed["cost"], &listed["total_tokens"]), (&json!(["0.0093 USD"]), &json!(6_660)));
    assert_eq!(listed["unpriced_requests"], 0);
    let completion = std::fs::read_to_string(env.workspace().join("job_completion_r.md")).unwrap();
    for words in
        ["- cost: $0.0093", "- requests to models: 2\n", "`anthropic/scripted`: 2 requests; 6660 tokens; cost $0.0093"]
    {
        assert!(completion.contains(words), "{completion}");
    }
}

#[test]
fn a_model_without_a_price_has_tokens_and_an_unknown_cost() {
    let model = Model::start(&turns(), Vec::new());
    let env = env().with_forum().with_model(&model);
    let hint = "what scripted of anthropic costs is not counted: there is no price table";
    let command = "ua models show scripted --provider anthropic";
    env.run(&["job", &job(&env, &json!({})), "--run-id", "r"]).code(0).says(&[hint, command]);
    // The place that counts is the one that is named, also where there is nothing yet.
    let elsewhere = env.arg("own-config");
    let shown = env.start_with(("XDG_CONFIG_HOME", elsewhere.as_str()), &["models", "show", "foo"]).wait().code(0);
    shown.shows(&[&format!("{elsewhere}/ua/pricing.toml has no price for it")]);
    assert_eq!(env.rows("SELECT status, input_tokens, cost_nanos, price_json FROM usage ORDER BY request_id").len(), 2);
    assert_eq!(env.value("SELECT count(*) FROM usage WHERE cost_nanos IS NULL AND price_json IS NULL"), "2");
    env.run(&["runs", "show", "r"])
        .code(0)
        .shows(&["Tokens         6660", "Cost           unknown (no price for the model)"]);
    env.run(&["runs", "list"]).code(0).shows(&["6660 tokens"]);
    // Once is enough, and a script that plays a model costs nothing of which anybody is to be told.
    let again = env.run(&["job", &job(&env, &json!({})), "--run-id", "again", "--new"]);
    assert!(!again.stderr.contains("is not counted"), "{}", again.stderr);
    let played = env.named_job("played", &json!({"tools": {"builtin": false}}), &json!([{"text": "Done."}]));
    let played = env.run(&["job", &played, "--run-id", "played"]).code(0);
    assert!(!played.stderr.contains("is not counted"), "{}", played.stderr);
    env.run(&["runs", "show", "played"]).code(0).shows(&["Cost           none (a script played the model)"]);
}

/// What failed in a night, and why, is one command, which `ua status` names.
#[test]
fn the_runs_that_failed_are_listed_with_their_reasons() {
    let env = env();
    let says = json!({"tools": [{"name": "mcp__ua__notify", "input": {"title": "Start", "message": "It starts."}}]});
    let asks = json!({"escalation": {"ask_human_before": ["notify"]}});
    let [good, bad] = [("good", json!({})), ("bad", asks)]
        .map(|(name, fields)| env.named_job(name, &fields, &json!([says, {"text": "Done."}])));
    env.run(&["job", &good, "--run-id", "good"]).code(0);
    assert!(!env.run(&["status"]).code(0).stdout.contains("runs list"), "nothing failed");
    env.run(&["job", &bad, "--run-id", "bad"]).code(75);
    env.run(&["answer", &env.value("SELECT question_id FROM questions"), "abort"]).code(0);
    assert_eq!(env.value("SELECT status FROM runs WHERE run_id = 'bad'"), "failed");
    env.run(&["status"]).code(0).shows(&["1 succeeded, 1 failed", "ua runs list --status failed", "and why"]);
    let why = env.value("SELECT status_detail FROM runs WHERE run_id = 'bad'");
    assert!(!why.is_empty());
    let listed = env.run(&["runs", "list", "--status", "failed"]).code(0).shows(&["WHY", "bad", &why]);
    assert!(!listed.stdout.contains("good"), "{}", listed.stdout);
    assert!(!env.run(&["runs", "list"]).code(0).stdout.contains("WHY"), "among all, what each is for");
}

#[test]
fn every_request_of_a_bad_day_is_charged_once() {
    let kinds = [
        FaultKind::RateLimited { retry_after: Some("1".to_owned()) },
        FaultKind::Overloaded529,
        FaultKind::CutMidStream,
    ];
    let faults = kinds.into_iter().zip(1..).map(|(kind, number)| Fault::at(number, kind)).collect();
    let model = Model::start(&turns(), faults);
    let env = env().with_forum().with_model(&model);
    let prices = env.write("prices.toml", PRICES);
    let env = env.with_env("UA_PRICING", &prices);
    let output = env.run(&["job", &job(&env, &json!({})), "--run-id", "r"]).code(0);
    output.says(&["attempt 1 failed", "trying again in 1 s", "attempt 3 failed", "the reply broke off, charged"]);
    assert_eq!(env.comments(), ["{\"text\":\"request 4\"}"]);
    assert_eq!(ends(&env), ["zero", "zero", "partial", "actual", "actual"], "what is refused is not billed");
    agrees(&env, &model);
    let at_least = "SELECT count(*) FROM usage WHERE status = 'partial' AND input_tokens >= estimated_tokens AND output_tokens > 0 \
                    AND cost_nanos > 3000 * estimated_tokens";
    assert_eq!(env.value(at_least), "1");
}

#[test]
fn a_model_that_is_silent_for_too_long_is_charged_as_estimated_and_asked_again() {
    let model = Model::start(&turns(), vec![Fault::at(1, FaultKind::Hang)]);
    let env = env().with_forum().with_model(&model).with_env("UA_MODEL_TIMEOUT", "1");
    env.run(&["job", &job(&env, &json!({}))]).code(0).says(&["attempt 1 failed"]);
    assert_eq!(ends(&env), ["baseline", "actual", "actual"]);
    agrees(&env, &model);
}

#[test]
fn a_request_that_a_kill_left_behind_is_charged_as_estimated() {
    for (point, seen) in [("before:model.complete", 2), ("after:model.complete", 3)] {
        let model = Model::start(&turns(), Vec::new());
        let env = env().with_forum().with_model(&model);
        env.run_killed_at(point, &["job", &job(&env, &json!({})), "--run-id", "r"]);
        assert_eq!(env.rows("SELECT status, network_attempted FROM usage"), ["reserved 1"], "{point}");
        env.run(&["resume", "r"]).code(0);
        // Whether it had left cannot be known, so it is taken to have; the process may have noted that its reply had begun.
        let ended = ends(&env);
        let [lost, rest @ ..] = &ended[..] else { panic!("{point}: no request") };
        let begun = point == "after:model.complete" && lost == "partial";
        assert!(lost == "baseline" || begun, "{point}: {lost}");
        assert_eq!(rest, ["actual", "actual"], "{point}");
        assert_eq!(model.requests(), seen, "{point}");
        assert_eq!(env.comments().len(), 1, "{point}");
    }
}

/// A server that counts nothing says so of every reply: nobody took nothing for a prompt, and no budget would ever be used up.
#[test]
fn a_count_of_no_tokens_at_all_is_no_count() {
    let turns = json!([{"text": "Hello.", "usage": usage(0, 0, 0, 0)}]);
    let model = Model::start(&turns, Vec::new());
    let env = env().with_forum().with_model(&model);
    let prices = env.write("prices.toml", PRICES);
    env.run(&["job", &job(&env, &json!({})), "--pricing", &prices]).code(0);
    let rows = env.rows(ROWS);
    let [status, _, input, output, cost] = rows[0].split(' ').collect::<Vec<_>>()[..] else { panic!("{rows:?}") };
    assert_eq!((status, output), ("partial", "2"), "{rows:?}");
    assert!([input, cost].iter().all(|count| count.parse::<u64>().unwrap() > 100), "{rows:?}");
    let log = std::fs::read_to_string(env.workspace().join("run.log")).unwrap();
    assert!(log.contains("no usage came back, charged") && log.contains("2 out as estimated"), "{log}");
    env.run(&["db", "check", "--invariants"]).code(0);
}

#[test]
fn a_budget_of_tokens_stops_the_run_before_the_request_that_may_exceed_it_and_holds_over_resumes() {
    let model = Model::start(&turns(), Vec::new());
    let env = env().with_forum().with_model(&model);
    // 1600 tokens of the first request and the 300 that a reply may have leave too little for what the second one says.
    let job = job(&env, &json!({"max_tokens": 2_000}));
    let output = env.run(&["job", &job, "--run-id", "r"]).code(75);
    output.shows(&[
        "stopped (budget)",
        "max_tokens (2000) is reached: 1600 tokens are used",
        "up to 300 for the reply",
    ]);
    assert_eq!((env.comments().len(), model.requests()), (1, 1));
    assert_eq!(env.value("SELECT turn_index FROM runs"), "1");
    env.run(&["resume", "r"]).code(75).shows(&["1600 tokens are used"]);
    assert_eq!((ends(&env), model.requests()), (vec!["actual".to_owned()], 1));
    let completion = std::fs::read_to_string(env.workspace().join("job_completion_r.md")).unwrap();
    assert!(completion.contains("max_tokens: 1600 of 2000 tokens"), "{completion}");
}

#[test]
fn a_budget_of_money_counts_what_a_killed_process_spent() {
    let model = Model::start(&turns(), Vec::new());
    let env = env().with_forum().with_model(&model);
    let prices = env.write("prices.toml", PRICES);
    // The first request may cost 300 × 15 and its input; it costs 7500 millionths of a dollar.
    let job = job(&env, &json!({"max_cost": "0.0110 USD"}));
    env.run_killed_at("after:tool.invoke:post_comment", &["job", &job, "--run-id", "r", "--pricing", &prices]);
    assert_eq!(env.rows(ROWS), ["actual 1 1000 200 7500000"]);
    env.run(&["resume", "r"]).code(75);
    let call = env.value("SELECT tool_call_id FROM tool_calls");
    env.run(&["calls", "resolve", &call, "--happened"]).code(0);
    let output = env.run(&["resume", "r"]).code(75);
    output.shows(&[
        "stopped (budget)",
        "max_cost ($0.011) is reached: $0.0075 is used, and the next request may cost up to",
    ]);
    assert_eq!(model.requests(), 1);
    let completion = std::fs::read_to_string(env.workspace().join("job_completion_r.md")).unwrap();
    assert!(completion.contains("max_cost: $0.0075 of $0.011"), "{completion}");
}

#[test]
fn more_than_was_reserved_is_recorded_and_the_next_request_is_refused() {
    let mut turns = turns();
    turns[0]["usage"] = usage(90_000, 9_000, 0, 0);
    let model = Model::start(&turns, Vec::new());
    let env = env().with_forum().with_model(&model);
    env.run(&["job", &job(&env, &json!({"max_tokens": 50_000})), "--run-id", "r"])
        .code(75)
        .shows(&["max_tokens (50000)"]);
    assert_eq!(env.rows("SELECT status, input_tokens, output_tokens FROM usage"), ["actual 90000 9000"]);
    assert_eq!((env.value("SELECT turn_index FROM runs"), env.comments().len()), ("1".to_owned(), 1));
    let shown = env.run(&["runs", "show", "r", "--json"]).code(0).json();
    assert_eq!(shown["usage"]["overruns"], 1);
}

#[test]
fn a_budget_of_money_that_cannot_be_kept_is_refused_before_anything_starts() {
    let model = Model::start(&turns(), Vec::new());
    let env = env().with_forum().with_model(&model);
    let job = job(&env, &json!({"max_cost": 2.5}));
    let pricing = |text: &str| env.write("prices.toml", text);
    env.run(&["job", &job]).refused(
        2,
        &[
            "no price table has a price for `scripted` of `anthropic`",
            "--pricing or UA_PRICING",
            "[providers.anthropic.\"scripted\"]",
        ],
    );
    let other = pricing("[providers.anthropic.another]\ninput = 1\noutput = 1\n");
    env.run(&["job", &job, "--pricing", &other])
        .refused(2, &["has no price for `scripted`", "add [providers.anthropic.\"scripted\"]"]);
    let euros = pricing(&format!("currency = \"EUR\"\n{PRICES}"));
    env.run(&["job", &job, "--pricing", &euros]).refused(2, &["max_cost is in USD", "is in EUR"]);
    let broken = pricing("[providers.anthropic.scripted]\ninput = 1\n");
    env.run(&["job", &job, "--pricing", &broken]).refused(2, &["needs `output`"]);
    assert_eq!(model.requests(), 0);
}

/// The same on a resume: the limit would stop the run at once, and every resume after it.
#[test]
fn a_budget_of_money_that_cannot_be_kept_is_not_put_on_a_run() {
    let mut turns = turns();
    turns[0]["usage"] = usage(90_000, 9_000, 0, 0);
    let model = Model::start(&turns, Vec::new());
    let env = env().with_forum().with_model(&model);
    env.run(&["job", &job(&env, &json!({"max_tokens": 50_000})), "--run-id", "r"]).code(75);
    env.run(&["resume", "r", "--max-cost", "5"])
        .refused(2, &["no price table has a price for `scripted` of `anthropic`", " --accept pricing` takes it"]);
    env.run(&["resume", "r", "--max-cost", "0"]).refused(2, &["no request would be possible", "+1.50 USD"]);
    assert_eq!(model.requests(), 1);
    env.run(&["resume", "r", "--max-tokens", "+500000"]).code(0);
}

/// What is printed after a reply that was far larger than both budgets is typed as it is printed, and is enough.
#[test]
fn the_command_that_is_printed_after_an_overshoot_is_enough_for_every_budget() {
    for budgets in
        [json!({"max_tokens": 50_000}), json!({"max_cost": 0.2}), json!({"max_tokens": 50_000, "max_cost": 0.2})]
    {
        let mut turns = turns();
        turns[0]["usage"] = usage(90_000, 9_000, 0, 0);
        let model = Model::start(&turns, Vec::new());
        let env = env().with_forum().with_model(&model);
        let prices = env.write("prices.toml", PRICES);
        let output = env.run(&["job", &job(&env, &budgets), "--run-id", "r", "--pricing", &prices]).code(75);
        let shown = output.shown();
        let (_, flags) = shown.split_once("ua resume r --").unwrap_or_else(|| panic!("no command: {shown}"));
        let flags = format!("--{}", flags.lines().next().unwrap_or_default());
        for budget in budgets.as_object().unwrap().keys() {
            assert!(flags.contains(&budget.replace('_', "-")), "{budgets}: {flags}");
        }
        // As a shell reads it: what is quoted is one word.
        let words = flags.split('\'').enumerate().flat_map(|(at, part)| match at % 2 {
            0 => part.split_whitespace().collect(),
            _ => vec![part],
        });
        let typed: Vec<&str> = ["resume", "r"].into_iter().chain(words).collect();
        env.run(&typed).code(0);
        assert_eq!((env.comments().len(), model.requests()), (1, 2), "{budgets}");
    }
}

#[test]
fn a_signal_and_a_cancel_end_a_wait_for_the_provider() {
    let limited = || vec![Fault::at(1, FaultKind::RateLimited { retry_after: Some("59".to_owned()) })];
    for is_signal in [true, false] {
        let model = Model::start(&turns(), limited());
        let env = env().with_forum().with_model(&model);
        let process = env.start(&["job", &job(&env, &json!({})), "--run-id", "r"]);
        until("the wait", || process.stderr().contains("again in 59 s"));
        if is_signal {
            process.signal(Signal::INT);
            process.wait().code(130).shows(&["stopped (interrupted)"]);
        } else {
            env.run(&["runs", "cancel", "r"]).code(0);
            process.wait().code(1).shows(&["cancelled"]);
        }
        assert_eq!((ends(&env), model.requests()), (vec!["zero".to_owned()], 1));
    }
}
