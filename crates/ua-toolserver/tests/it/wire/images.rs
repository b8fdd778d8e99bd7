//! Images: small copies without harm, and answers that are paid for once.

#![expect(clippy::disallowed_methods, reason = "tests make the files that they look at")]

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;
use tempfile::TempDir;
use ua_testkit::{DRAWN_PNG_BASE64, HttpFault, ImageModelApi, ImageModelApiConfig};
use ua_toolserver::{ATTEMPT, IDEMPOTENCY_KEY, Settings};

use super::{Came, TestServer, names, sha256};

/// A world with an image API, and the picture `a.png` of 8 by 8 pixels.
struct Studio {
    world: TestServer,
    api: ImageModelApi,
    _kept: TempDir,
}

impl Studio {
    async fn new(dialect: &str) -> Self {
        Self::with(dialect, [], false).await
    }

    async fn with(dialect: &str, faults: impl IntoIterator<Item = (u64, HttpFault)>, honours_keys: bool) -> Self {
        let kept = TempDir::new().unwrap();
        let config = ImageModelApiConfig {
            log: kept.path().join("charged.log"),
            api_key: "key".to_owned(),
            honours_keys,
            faults: faults.into_iter().collect(),
        };
        let api = ImageModelApi::start(config).await.unwrap();
        let base = if dialect == "openai" { format!("{}/v1", api.base_url) } else { api.base_url.clone() };
        let world = TestServer::with(|settings: &mut Settings| {
            settings.image_api = Some(format!("{dialect}+{base}"));
            settings.image_model = Some("seeing-1".to_owned());
            settings.image_generation_model = (dialect == "openai").then(|| "gpt-image-1".to_owned());
            settings.image_api_honours_keys = honours_keys;
            settings.secrets.image_api_key = Some("key".into());
        })
        .await;
        world.put("a.png", STANDARD.decode(DRAWN_PNG_BASE64).unwrap());
        Self { world, api, _kept: kept }
    }

    async fn draw(&self, attempt: u64) -> Came {
        let meta = json!({ IDEMPOTENCY_KEY: "k", ATTEMPT: attempt });
        self.world.send_with("generate_image", json!({"prompt": "a tide mill", "output": "out/mill.png"}), meta).await
    }

    async fn see(&self, attempt: u64) -> Came {
        let meta = json!({ IDEMPOTENCY_KEY: "k", ATTEMPT: attempt });
        self.world.send_with("describe_image", json!({"path": "a.png", "max_words": 20}), meta).await
    }

    fn charged(&self) -> usize {
        self.api.charged().unwrap().len()
    }
}

/// A PNG of this size.
fn picture(width: u32, height: u32) -> Vec<u8> {
    let mut file = std::io::Cursor::new(Vec::new());
    let picture =
        image::RgbImage::from_fn(width, height, |x, y| image::Rgb([x.to_le_bytes()[0], y.to_le_bytes()[0], 7]));
    picture.write_to(&mut file, image::ImageFormat::Png).unwrap();
    file.into_inner()
}

#[tokio::test]
async fn a_preview_is_smaller_shown_and_kept_where_it_is_wanted() {
    let world = TestServer::new().await;
    let original = picture(600, 300);
    world.put("big.png", &original);
    let arguments = json!({"path": "big.png", "max_side": 64, "format": "jpeg", "output": "thumbs/big.jpg"});
    let first = world.call("preview_image", arguments.clone()).await.back();
    let file = std::fs::read(world.workspace().join("thumbs/big.jpg")).unwrap();
    let expected = json!({
        "path": "thumbs/big.jpg", "media_type": "image/jpeg", "width": 64, "height": 32, "bytes": file.len(),
        "sha256": sha256(&file), "shown": true,
        "original": {
            "media_type": "image/png", "width": 600, "height": 300, "bytes": original.len(), "sha256": sha256(&original),
        },
    });
    assert_eq!(first, expected);
    assert_eq!(world.call("preview_image", arguments).await.back(), expected, "again, it is the same");
    let mut request = rmcp::model::CallToolRequestParams::new("preview_image");
    request.arguments = json!({"path": "big.png"}).as_object().cloned();
    let shown = world.client.call_tool(request).await.unwrap().content;
    let image = shown.iter().find_map(|block| block.as_image()).unwrap();
    assert_eq!(image.mime_type, "image/png");
    let shown = image::load_from_memory(&STANDARD.decode(&image.data).unwrap()).unwrap();
    assert_eq!((shown.width(), shown.height()), (512, 256));
}

#[tokio::test]
async fn what_can_not_be_a_preview_is_refused_and_writes_nothing() {
    let world = TestServer::new().await;
    world.put("page.html", "<p>no image</p>");
    world.put("cut.png", &picture(64, 64)[..90]);
    world
        .call("preview_image", json!({"path": "page.html", "output": "o.png"}))
        .await
        .refused("cannot be read as an image");
    world.call("preview_image", json!({"path": "cut.png", "output": "o.png"})).await.refused("cut.png");
    world.call("preview_image", json!({"path": "cut.png", "max_side": 5000})).await.refused("max_side 5000");
    world.call("preview_image", json!({"path": "../a.png"})).await.refused("..");
    world.call("preview_image", json!({"path": "cut.png", "output": "outbox/o.png"})).await.refused("only send_email");
    assert!(!world.workspace().join("o.png").exists());
}

#[tokio::test]
async fn a_description_says_what_it_cost() {
    for (dialect, description, model_usage) in [
        ("anthropic", "A picture, sent as \"image/png\".", json!({"input_tokens": 120, "output_tokens": 9})),
        ("openai", "A picture.", json!({"input_tokens": 130, "output_tokens": 4})),
    ] {
        let studio = Studio::new(dialect).await;
        let arguments = json!({"path": "a.png", "question": "What colour is it?", "max_words": 20});
        let described = studio.world.keyed("describe_image", "k", arguments).await.back();
        let picture = STANDARD.decode(DRAWN_PNG_BASE64).unwrap();
        let expected = json!({
            "path": "a.png", "description": description, "provider": dialect, "model": "seeing-1", "usage": model_usage,
            "sha256": sha256(picture), "cut": false, "already_answered": false,
        });
        assert_eq!(described, expected);
        let body = studio.api.charged().unwrap()[0]["body"].to_string();
        assert!(body.contains("What colour is it? Answer in at most 20 words.") && body.contains(DRAWN_PNG_BASE64));
    }
}

#[tokio::test]
async fn a_large_image_is_made_smaller_before_it_is_sent() {
    let studio = Studio::new("anthropic").await;
    studio.world.put("wide.png", picture(3000, 30));
    studio.world.call("describe_image", json!({"path": "wide.png"})).await.back();
    let charged = studio.api.charged().unwrap();
    let source = charged[0].pointer("/body/messages/0/content/0/source").unwrap();
    let sent = image::load_from_memory(&STANDARD.decode(source["data"].as_str().unwrap()).unwrap()).unwrap();
    assert_eq!((source["media_type"].as_str(), sent.width()), (Some("image/jpeg"), 1568));
}

#[tokio::test]
async fn a_drawing_becomes_a_new_file_and_says_what_it_cost() {
    let studio = Studio::new("openai").await;
    let bytes = STANDARD.decode(DRAWN_PNG_BASE64).unwrap();
    let drawn = studio.draw(1).await.back();
    let expected = json!({
        "path": "out/mill.png", "media_type": "image/png", "width": 8, "height": 8, "bytes": bytes.len(),
        "sha256": sha256(&bytes), "provider": "openai", "model": "gpt-image-1", "usage": {"input_tokens": 12, "output_tokens": 272},
        "already_paid": false,
    });
    assert_eq!(drawn, expected);
    assert_eq!(std::fs::read(studio.world.workspace().join("out/mill.png")).unwrap(), bytes);
    assert_eq!(studio.api.charged().unwrap()[0]["key"], "k");
    // Another format than the API's own is made of it.
    let arguments = json!({"prompt": "a mill", "output": "out/mill.jpg", "size": "1024x1024", "quality": "low"});
    let drawn = studio.world.keyed("generate_image", "k2", arguments).await.back();
    assert_eq!(drawn["media_type"], "image/jpeg");
    let body = studio.api.charged().unwrap()[1]["body"].clone();
    assert_eq!((&body["size"], &body["quality"], &body["n"]), (&json!("1024x1024"), &json!("low"), &json!(1)));
    // Nothing is paid for a file that could not be written.
    for (output, why) in [("out/mill.png", "exists already"), ("mill.gif", "does not end"), ("../m.png", "..")] {
        studio.world.call("generate_image", json!({"prompt": "x", "output": output})).await.refused(why);
    }
    studio.world.call("generate_image", json!({"prompt": " ", "output": "x.png"})).await.refused("characters");
    assert_eq!(studio.api.posts(), 2);
}

#[tokio::test]
async fn what_was_answered_is_not_paid_for_again_under_its_key() {
    let studio = Studio::new("openai").await;
    let (seen, drawn) = (studio.see(1).await.back(), {
        let meta = json!({ IDEMPOTENCY_KEY: "d" });
        let arguments = json!({"prompt": "a mill", "output": "mill.png"});
        let first = studio.world.send_with("generate_image", arguments.clone(), meta.clone()).await.back();
        // The picture is put in its place again, from what was kept.
        std::fs::remove_file(studio.world.workspace().join("mill.png")).unwrap();
        let again = studio.world.send_with("generate_image", arguments, meta).await.back();
        assert_eq!((&again["already_paid"], &again["sha256"]), (&json!(true), &first["sha256"]));
        again
    });
    let again = studio.see(2).await.back();
    assert_eq!((&again["already_answered"], &again["description"]), (&json!(true), &seen["description"]));
    let file = std::fs::read(studio.world.workspace().join("mill.png")).unwrap();
    assert_eq!(drawn["sha256"], sha256(file));
    assert_eq!((studio.api.posts(), studio.charged()), (2, 2));
}

#[tokio::test]
async fn a_lost_answer_is_never_paid_for_again_silently() {
    for (fault, charged) in [(HttpFault::CutAfter, 1), (HttpFault::AnswerWrongly(500), 1), (HttpFault::CutBefore, 0)] {
        let studio = Studio::with("openai", [(1, fault)], false).await;
        studio.draw(1).await.unclear("charged");
        assert_eq!((studio.api.posts(), studio.charged()), (1, charged), "{fault:?}: nothing is repeated by itself");
        studio.draw(1).await.unclear("an earlier request under this key");
        assert_eq!(studio.api.posts(), 1, "{fault:?}");
        // A later attempt is one that a person ordered.
        assert_eq!(studio.draw(2).await.back()["already_paid"], false);
        assert_eq!(studio.charged(), charged + 1);
    }
    let studio = Studio::with("anthropic", [(1, HttpFault::CutAfter)], false).await;
    studio.see(1).await.unclear("charged");
    studio.see(1).await.unclear("an earlier request under this key");
    assert_eq!(studio.charged(), 1);
}

/// What whole answers without what was asked for say, and what is told of it: (what the API says, what the failure says, what was paid).
const SEEN_NOTHING: [(&str, &str, &str, (u64, u64)); 7] = [
    (
        "openai",
        r#"{"choices": [{"message": {"content": null, "refusal": "no faces"}, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": 1000, "completion_tokens": 1}}"#,
        "refused to describe the image (stop): no faces",
        (1000, 1),
    ),
    (
        "openai",
        r#"{"model": "seeing-1", "choices": [{"message": {"content": "A ma"}, "finish_reason": "content_filter"}],
            "usage": {"prompt_tokens": 1000, "completion_tokens": 2}}"#,
        "refused to describe the image (content_filter): A ma",
        (1000, 2),
    ),
    (
        "openai",
        r#"{"choices": [{"message": {"content": ""}, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": 1000.0, "completion_tokens": "0"}}"#,
        "answered without a description (stop)",
        (1000, 0),
    ),
    (
        "openai",
        r#"{"choices": [{"message": {"content": []}, "finish_reason": "length"}],
            "usage": {"prompt_tokens": "1000", "completion_tokens": 296}}"#,
        "used up the tokens of its answer",
        (1000, 296),
    ),
    (
        "openai",
        r#"{"error": {"message": "the engine is asleep"}, "usage": {"prompt_tokens": -3}}"#,
        "answered with an error: the engine is asleep",
        (0, 0),
    ),
    (
        "anthropic",
        r#"{"content": [], "stop_reason": "refusal", "usage": {"input_tokens": 900, "output_tokens": 3}}"#,
        "refused to describe the image (refusal)",
        (900, 3),
    ),
    (
        "anthropic",
        r#"{"content": [{"type": "text", "text": " "}], "stop_reason": "end_turn", "usage": {"input_tokens": 900, "output_tokens": 1}}"#,
        "answered without a description (end_turn)",
        (900, 1),
    ),
];

/// The failure of a call: its text, and what it says was paid.
async fn failed(
    studio: &Studio,
    tool: &'static str,
    arguments: serde_json::Value,
    attempt: u64,
) -> (String, serde_json::Value) {
    let meta = json!({ IDEMPOTENCY_KEY: "k", ATTEMPT: attempt });
    let result = studio.world.result_of(tool, arguments, meta).await.unwrap();
    assert_eq!(result.is_error, Some(true), "{result:?}");
    let mut told = result.structured_content.unwrap();
    let problem = told["error"].as_str().unwrap().to_owned();
    told.as_object_mut().unwrap().retain(|field, _| !matches!(field.as_str(), "error" | "hint"));
    (problem, told)
}

#[tokio::test]
async fn a_whole_answer_without_a_description_is_a_failure_that_says_why_and_what_was_paid() {
    for (dialect, answer, why, (input, output)) in SEEN_NOTHING {
        let studio = Studio::with(dialect, [(1, HttpFault::Say(answer))], false).await;
        let look = || json!({"path": "a.png", "max_words": 20});
        let mut usage = json!({"input_tokens": input, "output_tokens": output});
        if answer.contains("-3") {
            usage = json!({"input_tokens": 0});
        }
        let paid = json!({"provider": dialect, "model": "seeing-1", "usage": usage});
        let (problem, told) = failed(&studio, "describe_image", look(), 1).await;
        assert!(problem.contains(why) && problem.contains("paid for all the same"), "{problem}");
        assert_eq!(told, paid, "{answer}");
        // A call whose answer did not arrive hears it again, and what was paid with it; another one in the same words is not paid for.
        assert_eq!(failed(&studio, "describe_image", look(), 2).await, (problem.clone(), paid));
        let (again, told) = failed(&studio, "describe_image", look(), 1).await;
        assert!(again.starts_with("the same request was made before") && again.ends_with(&problem), "{again}");
        assert_eq!(told, json!({}));
        assert_eq!((studio.api.posts(), studio.charged()), (1, 1), "{answer}");
    }
}

#[tokio::test]
async fn a_whole_answer_without_an_image_is_a_failure_that_says_why_and_what_was_paid() {
    for (answer, why) in [
        (r#"{"data": [], "usage": {"input_tokens": 12, "output_tokens": 0}}"#, "there is nothing in its `data`"),
        (
            r#"{"data": [{"url": "https://i.example/1.png"}], "usage": {"input_tokens": 12.0, "output_tokens": 0}}"#,
            "there is no `b64_json`",
        ),
        (
            r#"{"data": [{"b64_json": "aGVsbG8="}], "usage": {"prompt_tokens": "12", "completion_tokens": 0}}"#,
            "without an image: ",
        ),
        (
            r#"{"data": [], "error": "moderation_blocked", "usage": {"input_tokens": 12, "output_tokens": 0}}"#,
            "without an image: moderation_blocked",
        ),
        (
            r#"{"data": [{"error": {"message": "it was filtered"}}], "usage": {"input_tokens": 12, "output_tokens": 0}}"#,
            "without an image: it was filtered",
        ),
    ] {
        let studio = Studio::with("openai", [(1, HttpFault::Say(answer))], false).await;
        let draw = || json!({"prompt": "a tide mill", "output": "out/mill.png"});
        let (problem, told) = failed(&studio, "generate_image", draw(), 1).await;
        assert!(problem.contains(why), "{problem}");
        let usage = json!({"input_tokens": 12, "output_tokens": 0});
        assert_eq!(told, json!({"provider": "openai", "model": "gpt-image-1", "usage": usage}), "{answer}");
        assert_eq!(failed(&studio, "generate_image", draw(), 2).await.1["usage"], usage);
        assert_eq!((studio.api.posts(), studio.charged()), (1, 1), "{answer}");
        assert_eq!(names(&studio.world.workspace().join("out")), [""; 0]);
    }
}

/// An answer that is cut, or no answer of the API, says nothing of what became of the request.
#[tokio::test]
async fn what_is_no_answer_of_the_api_leaves_it_open() {
    for page in ["<html>Welcome</html>", r#"{"choices": [{"mess"#] {
        let studio = Studio::with("openai", [(1, HttpFault::Say(page))], false).await;
        studio.see(1).await.unclear("cannot be read");
    }
}

#[tokio::test]
async fn where_the_api_honours_keys_a_lost_answer_is_asked_for_again_and_charged_once() {
    let studio = Studio::with("openai", [(1, HttpFault::CutAfter)], true).await;
    studio.draw(1).await.unclear("charged");
    studio.draw(2).await.back();
    assert_eq!((studio.api.posts(), studio.charged()), (2, 1));
    let tools = studio.world.tools().await;
    let says = |name: &str| {
        let tool = tools.iter().find(|tool| tool.name == name).unwrap();
        tool.meta.as_ref().and_then(|meta| meta.get(ua_toolserver::HONOURS_KEYS).cloned())
    };
    assert_eq!((says("generate_image"), says("describe_image")), (Some(json!(true)), None));
}

#[tokio::test]
async fn a_refusal_costs_nothing_and_forgets_the_attempt() {
    for status in [400, 401, 402, 404, 413, 422, 425, 429, 451, 529] {
        let studio = Studio::with("openai", [(1, HttpFault::Refuse(status))], false).await;
        let said = studio.draw(1).await.refused("nothing was charged");
        assert!(!said.contains("key\""), "{said}");
        assert_eq!(names(&studio.world.workspace().join("out")), [""; 0]);
        assert_eq!(studio.draw(1).await.back()["already_paid"], false, "{status}: nothing stands in the way");
    }
    let stranger = TestServer::with(|settings: &mut Settings| {
        settings.image_api = Some("openai+http://127.0.0.1:9/v1".to_owned());
        settings.image_model = Some("m".to_owned());
    })
    .await;
    stranger.put("a.png", picture(8, 8));
    stranger.call("describe_image", json!({"path": "a.png"})).await.refused("could not reach");
}

#[tokio::test]
async fn only_what_is_set_up_is_offered() {
    let offered = |settings: fn(&mut Settings)| async move {
        let world = TestServer::with(settings).await;
        let names: Vec<String> = world.tools().await.into_iter().map(|tool| tool.name.into_owned()).collect();
        (names.contains(&"describe_image".to_owned()), names.contains(&"generate_image".to_owned()))
    };
    assert_eq!(offered(|_| {}).await, (false, false));
    assert_eq!(
        offered(|settings| {
            settings.image_api = Some("anthropic".to_owned());
            settings.image_model = Some("m".to_owned());
            settings.secrets.image_api_key = Some("key".into());
        })
        .await,
        (true, false)
    );
    let came = TestServer::new().await.call("generate_image", json!({"prompt": "x", "output": "x.png"})).await;
    assert!(matches!(came, Came::Broken(-32602, _)), "{came:?}");
}
