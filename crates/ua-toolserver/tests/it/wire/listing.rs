//! What is on offer, and what happens to calls that fit nothing.

use serde_json::{Value, json};

use super::{Came, TestServer};

/// Settings under which every tool is on offer.
pub(super) fn everything(settings: &mut ua_toolserver::Settings) {
    settings.enable_command = true;
    settings.search = Some("searxng+http://127.0.0.1:9".to_owned());
    settings.image_api = Some("openai+http://127.0.0.1:9/v1".to_owned());
    settings.image_model = Some("seeing".to_owned());
    settings.image_generation_model = Some("drawing".to_owned());
    settings.composio = Some("http://127.0.0.1:9".to_owned());
    settings.secrets.composio_api_key = Some("key".into());
}

#[tokio::test]
async fn tools_are_listed_with_schemas_that_explain_every_argument() {
    let world = TestServer::with(everything).await;
    let tools = world.tools().await;
    assert_eq!(tools.iter().map(|tool| tool.name.as_ref()).collect::<Vec<_>>(), ua_toolserver::tool_names());
    for tool in tools {
        let schema = Value::Object(tool.input_schema.as_ref().clone());
        assert_eq!(schema["type"], "object", "{}", tool.name);
        assert_eq!(schema["additionalProperties"], false, "{}", tool.name);
        for (name, property) in schema["properties"].as_object().unwrap() {
            assert!(property["description"].is_string(), "{}.{name}: {property}", tool.name);
            assert!(
                property["type"].is_string() || property["oneOf"].is_array() || property["enum"].is_array(),
                "{property}"
            );
        }
        assert!(tool.title.is_some() && tool.description.is_some(), "{}", tool.name);
    }
}

#[tokio::test]
async fn annotations_tell_the_truth_about_effects() {
    let world = TestServer::with(everything).await;
    let hints: Vec<_> = world
        .tools()
        .await
        .into_iter()
        .map(|tool| {
            let hints = tool.annotations.unwrap();
            let all = [hints.read_only_hint, hints.destructive_hint, hints.idempotent_hint, hints.open_world_hint];
            (tool.name.into_owned(), all.map(Option::unwrap))
        })
        .collect();
    let expected = [
        ("read_local_file", [true, false, true, false]),
        ("write_local_file", [false, true, true, false]),
        ("append_to_file", [false, false, false, false]),
        ("list_directory", [true, false, true, false]),
        ("crawl_parallel", [false, false, true, true]),
        ("finalize_research", [false, false, true, true]),
        ("read_research_files", [true, false, true, false]),
        ("build_evidence_ledger", [false, true, true, false]),
        ("render_html", [false, true, true, false]),
        ("render_pdf", [false, true, true, false]),
        ("compress_files", [false, true, true, false]),
        ("preview_image", [false, true, true, false]),
        ("upload", [false, false, true, true]),
        ("workbench_upload", [false, true, true, true]),
        ("workbench_download", [false, true, true, true]),
        ("send_email", [false, false, false, true]),
        ("notify", [false, false, false, true]),
        ("get_core_memory_blocks", [true, false, true, false]),
        ("core_memory_append", [false, false, false, false]),
        ("core_memory_replace", [false, true, true, false]),
        ("archival_memory_insert", [false, false, false, false]),
        ("archival_memory_search", [true, false, true, false]),
        ("web_search", [false, false, true, true]),
        ("describe_image", [true, false, false, true]),
        ("generate_image", [false, false, false, true]),
        ("upload_to_composio", [false, false, true, true]),
        ("run_command", [false, true, false, true]),
    ];
    assert_eq!(hints, expected.map(|(name, hints)| (name.to_owned(), hints)));
}

#[tokio::test]
async fn a_schema_is_free_of_rust() {
    let world = TestServer::new().await;
    let tools = world.tools().await;
    let read = tools.iter().find(|tool| tool.name == "read_local_file").unwrap();
    assert_eq!(
        Value::Object(read.input_schema.as_ref().clone()),
        json!({
            "type": "object",
            "additionalProperties": false,
            "required": ["path"],
            "properties": {
                "path": { "type": "string", "description": "The file, relative to the workspace." },
                "offset": {
                    "type": "integer", "minimum": 0, "default": 0,
                    "description": "The byte to start at; 0 is the first. `next_offset` of an earlier result continues it.",
                },
                "limit": {
                    "type": "integer", "minimum": 4, "maximum": 1_048_576,
                    "description": "The most bytes to return; 65536 when left out.",
                },
            },
        })
    );
}

#[tokio::test]
async fn unknown_tools_arguments_and_keys_are_named() {
    let world = TestServer::new().await;
    assert!(matches!(world.call("fly", json!({})).await, Came::Broken(-32602, message) if message.contains("\"fly\"")));
    world.call("read_local_file", json!({ "file": "a" })).await.refused("unknown field `file`");
    world.call("read_local_file", json!({})).await.refused("missing field `path`");
    for key in [json!(7), json!(""), json!("a b")] {
        let came = world.send("append_to_file", json!({ "path": "a", "content": "x" }), Some(key)).await;
        assert!(matches!(came, Came::Broken(-32602, _)), "{came:?}");
    }
    assert!(!world.workspace().join("a").exists());
}

#[tokio::test]
async fn the_server_ends_when_its_client_leaves() {
    let world = TestServer::new().await;
    drop(world.client);
    world.server.await.unwrap().unwrap();
}

#[test]
fn settings_that_can_not_work_are_named_at_the_start() {
    let directory = tempfile::TempDir::new().unwrap();
    let problem = |change: &dyn Fn(&mut ua_toolserver::Settings)| {
        let mut settings = ua_toolserver::Settings::in_workspace(directory.path());
        change(&mut settings);
        ua_toolserver::ToolServer::open(&settings, ua_core::Env::simulated(1)).unwrap_err().to_string()
    };
    assert!(problem(&|s| s.objects = Some("s3://bucket".into())).contains("AWS_ACCESS_KEY_ID is not set"));
    assert!(problem(&|s| s.mail_from = "nobody".into()).starts_with("cannot use --mail-from \"nobody\""));
    assert!(problem(&|s| s.notify_webhook = Some("ftp://x".into())).contains("cannot be posted to"));
    let image = |api: &'static str| {
        move |s: &mut ua_toolserver::Settings| {
            s.image_api = Some(api.into());
            s.secrets.image_api_key = Some("hush".into());
            s.image_generation_model = Some("m".into());
        }
    };
    assert!(problem(&image("gemini")).contains("write anthropic or openai"));
    assert!(problem(&image("anthropic")).contains("draws nothing"));
    assert!(problem(&image("openai+http://example.org/v1")).contains("use https"));
    assert!(problem(&|s| s.image_api = Some("openai".into())).contains("UA_IMAGE_API_KEY"));
    assert!(problem(&|s| s.image_api = Some("openai+http://127.0.0.1:9".into())).contains("name a model"));
    assert!(problem(&|s| s.composio = Some("https://backend.composio.dev".into())).contains("COMPOSIO_API_KEY"));
    assert!(problem(&|s| s.composio = Some("http://backend.composio.dev".into())).contains("https"));
    assert!(problem(&|s| s.allow_roots = vec!["/no/such".into()]).starts_with("cannot open the allowed directory"));
}
