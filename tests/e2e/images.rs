//! Images by a paid API: paid for once, and never again without a person, wherever the run is killed.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use std::collections::BTreeMap;

use serde_json::{Value, json};
use tokio::runtime::Runtime;
use ua_e2e::TestEnv;
use ua_testkit::{HttpFault, ImageModelApi, ImageModelApiConfig};

use super::env;

/// A world whose tool server knows an image API.
struct Studio {
    env: TestEnv,
    api: ImageModelApi,
    _runtime: Runtime,
}

impl Studio {
    fn new(faults: &[(u64, HttpFault)]) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let env = env();
        let config = ImageModelApiConfig {
            log: env.path("charged.log"),
            api_key: "sk-image-secret".to_owned(),
            honours_keys: false,
            faults: faults.iter().copied().collect::<BTreeMap<_, _>>(),
        };
        let api = runtime.block_on(ImageModelApi::start(config)).unwrap();
        let env = env
            .with_env("UA_IMAGE_API", &format!("openai+{}/v1", api.base_url))
            .with_env("UA_IMAGE_API_KEY", "sk-image-secret")
            .with_env("UA_IMAGE_MODEL", "seeing-1")
            .with_env("UA_IMAGE_GENERATION_MODEL", "gpt-image-1");
        Self { env, api, _runtime: runtime }
    }

    fn charged(&self) -> usize {
        self.api.charged().unwrap().len()
    }

    fn answer(&self, choice: &str) {
        let question = self.env.value("SELECT question_id FROM questions WHERE status = 'open'");
        self.env.run(&["answer", &question, choice]).code(0);
    }
}

fn call(tool: &str, input: &Value) -> Value {
    json!({"tools": [{"name": format!("mcp__ua__{tool}"), "input": input}]})
}

fn turns() -> Value {
    json!([
        call("generate_image", &json!({"prompt": "a tide mill", "output": "work_products/mill.png"})),
        call("preview_image", &json!({"path": "work_products/mill.png", "output": "work_products/small.png", "max_side": 16})),
        call("describe_image", &json!({"path": "work_products/mill.png"})),
        {"text": "Drawn.", "expect": {"contains": ["A picture.", "input_tokens", "130"], "tool_result_ok": true}},
    ])
}

#[test]
fn an_image_is_drawn_shown_and_described() {
    let studio = Studio::new(&[]);
    studio.env.run(&["job", &studio.env.job(&json!({}), &turns()), "--run-id", "r"]).code(0);
    assert_eq!(studio.charged(), 2);
    assert_eq!(
        studio.env.rows("SELECT tool_name, side_effect_class, replay_policy, status FROM tool_calls ORDER BY turn"),
        [
            "generate_image external hold succeeded",
            "preview_image local redo succeeded",
            "describe_image read_only hold succeeded",
        ]
    );
    let workspace = studio.env.workspace();
    assert!(workspace.join("work_products/small.png").exists());
    for file in ["run.log", "transcript.md"] {
        let text = std::fs::read_to_string(workspace.join(file)).unwrap_or_default();
        assert!(!text.contains("sk-image-secret"), "{file}");
    }
}

#[test]
fn a_kill_while_somebody_is_paid_is_asked_about_and_never_paid_for_twice_silently() {
    for (tool, point, charged, then, in_the_end) in [
        ("generate_image", "before:tool.invoke:generate_image", 0, "execute", 2),
        ("generate_image", "after:tool.invoke:generate_image", 1, "execute", 2),
        ("describe_image", "before:tool.invoke:describe_image", 1, "execute", 2),
        ("describe_image", "after:tool.invoke:describe_image", 2, "execute", 2),
    ] {
        let studio = Studio::new(&[]);
        let job = studio.env.job(&json!({}), &turns());
        studio.env.run_killed_at(point, &["job", &job, "--run-id", "r"]);
        assert_eq!(studio.charged(), charged, "{point}");
        studio.env.run(&["resume", "r"]).code(75).shows(&[&format!("Did `{tool}` happen?")]);
        assert_eq!(studio.charged(), charged, "{point}: nothing is paid for by a resume");
        studio.answer(then);
        studio.env.run(&["resume", "r"]).code(0);
        // What the API had answered is known by its key: even the order to run it again does not pay twice.
        assert_eq!(studio.charged(), in_the_end, "{point}");
        studio.env.run(&["db", "check", "--invariants"]).code(0);
        // Each answer that came counts once, also one that the tool had kept from the life before.
        assert_eq!(paid(&studio.env), told(2), "{point}");
    }
}

/// What the run's tools were charged: how many of them, and the tokens by model.
fn paid(env: &TestEnv) -> (Value, BTreeMap<String, Value>) {
    let shown = env.run(&["runs", "show", "r", "--json"]).code(0).json();
    let usage = &shown["usage"];
    let models = usage["models"].as_array().unwrap().iter().filter(|model| model["provider"] == "openai");
    let models = models.map(|model| (model["model"].as_str().unwrap().to_owned(), model["tokens"].clone()));
    (usage["requests"]["by_tool"].clone(), models.collect())
}

/// What the receipts say.
fn told(looks: u32) -> (Value, BTreeMap<String, Value>) {
    let counts = |input: u64, output: u64| json!({"input_tokens": input, "output_tokens": output, "cache_read_tokens": 0, "cache_write_tokens": 0});
    (json!(looks), [("gpt-image-1".to_owned(), counts(12, 272)), ("seeing-1".to_owned(), counts(130, 4))].into())
}

#[test]
fn an_answer_that_refuses_is_told_to_the_model_and_counts() {
    let refusal = r#"{"choices": [{"message": {"content": null, "refusal": "no people"}, "finish_reason": "content_filter"}],
        "usage": {"prompt_tokens": 130.0, "completion_tokens": "4"}}"#;
    let nothing = r#"{"data": [], "usage": {"input_tokens": 12, "output_tokens": 0}}"#;
    let studio = Studio::new(&[(2, HttpFault::Say(refusal)), (3, HttpFault::Say(nothing))]);
    let mut again = call("generate_image", &json!({"prompt": "a windmill", "output": "work_products/windmill.png"}));
    again["expect"] = json!({"contains": ["no people", "content_filter"], "tool_result_ok": false});
    let turns = json!([
        call("generate_image", &json!({"prompt": "a tide mill", "output": "work_products/mill.png"})),
        call("describe_image", &json!({"path": "work_products/mill.png"})),
        again,
        {"text": "Not seen.", "expect": {"contains": ["without an image"], "tool_result_ok": false}},
    ]);
    studio.env.run(&["job", &studio.env.job(&json!({}), &turns), "--run-id", "r"]).code(0);
    let counts = |input: u64, output: u64| json!({"input_tokens": input, "output_tokens": output, "cache_read_tokens": 0, "cache_write_tokens": 0});
    let models = [("gpt-image-1".to_owned(), counts(12 + 12, 272)), ("seeing-1".to_owned(), counts(130, 4))];
    assert_eq!(paid(&studio.env), (json!(3), models.into()));
    assert_eq!((studio.api.posts(), studio.charged()), (3, 3));
    assert_eq!(studio.env.rows("SELECT count(*) FROM questions"), ["0"]);
}

#[test]
fn what_tools_pay_counts_in_the_budgets() {
    let studio = Studio::new(&[]);
    let job = studio.env.job(&json!({"budgets": {"max_tokens": 100_000}}), &turns());
    studio.env.run(&["job", &job, "--run-id", "r"]).code(0);
    assert_eq!(paid(&studio.env), told(2));
    let model = "SELECT sum(input_tokens + output_tokens + cache_read_tokens + cache_write_tokens) FROM usage";
    let of_model: u64 = studio.env.value(model).parse().unwrap();
    let shown = studio.env.run(&["runs", "show", "r", "--json"]).code(0).json();
    assert_eq!(shown["usage"]["total_tokens"], json!(of_model + 12 + 272 + 130 + 4));
    studio.env.run(&["runs", "show", "r"]).code(0).shows(&["(2 made by tools)"]);
}

#[test]
fn an_answer_that_got_lost_is_not_asked_for_again_by_itself() {
    let studio = Studio::new(&[(1, HttpFault::CutAfter)]);
    let job = studio.env.job(&json!({}), &turns());
    studio.env.run(&["job", &job, "--run-id", "r"]).code(75).shows(&["Did `generate_image` happen?"]);
    assert_eq!((studio.api.posts(), studio.charged()), (1, 1));
    studio.answer("execute");
    studio.env.run(&["resume", "r"]).code(0);
    assert_eq!(studio.charged(), 3, "by order of a person");
}

#[test]
fn a_refused_request_goes_to_the_model_and_costs_nothing() {
    let studio = Studio::new(&[(1, HttpFault::Refuse(429))]);
    let draw = call("generate_image", &json!({"prompt": "a tide mill", "output": "work_products/mill.png"}));
    let mut again = draw.clone();
    again["expect"] = json!({"contains": ["nothing was charged", "try again later"], "tool_result_ok": false});
    let turns = json!([draw, again, {"text": "Drawn.", "expect": {"tool_result_ok": true}}]);
    studio.env.run(&["job", &studio.env.job(&json!({}), &turns)]).code(0);
    assert_eq!((studio.api.posts(), studio.charged()), (2, 1));
}
