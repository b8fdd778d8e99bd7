use std::sync::Arc;

use async_trait::async_trait;
use serde_json::json;
use ua_core::{Block, Message, ModelTurn, Origin, Redactor};

use super::*;
use crate::provider::{LlmProvider, Silent, StreamObserver};
use crate::script::Script;
use crate::scripted::ScriptedProvider;

const SECRET: &str = "sk-secret-0123456789";

fn request(model: &str, texts: &[&str]) -> ModelRequest {
    ModelRequest {
        model: model.into(),
        system: "s".into(),
        messages: texts.iter().map(|text| Message::user(Origin::Prompt, *text)).collect(),
        tools: vec![].into(),
        max_output_tokens: 10,
        temperature_milli: None,
        seed: None,
        output_schema: None,
        wants_form: false,
    }
}

fn redactor() -> Redactor {
    Redactor::new([("KEY".to_owned(), SECRET.to_owned())])
}

fn places(workspace: &str) -> Places {
    Places::new([("workspace", workspace.to_owned())])
}

fn ask(provider: &dyn LlmProvider, request: &ModelRequest) -> Result<ModelTurn, LlmError> {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(provider.complete(request, &Silent))
}

/// Streams recorded events of Chat Completions.
struct Chat(Vec<String>);

#[async_trait]
impl LlmProvider for Chat {
    fn name(&self) -> &str {
        OPENAI_CHAT
    }

    async fn complete(&self, request: &ModelRequest, observer: &dyn StreamObserver) -> Result<ModelTurn, LlmError> {
        observer.sent();
        self.0.iter().for_each(|event| observer.event(event));
        decode_chat(request, &self.0)
    }
}

fn chat(pieces: &[&str]) -> Arc<dyn LlmProvider> {
    let delta = |text: &&str| json!({"choices": [{"index": 0, "delta": {"content": text}}]}).to_string();
    let mut events: Vec<String> = pieces.iter().map(delta).collect();
    events.push(json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}).to_string());
    events.push("[DONE]".to_owned());
    Arc::new(Chat(events))
}

fn scripted(json: &Value) -> Arc<dyn LlmProvider> {
    Arc::new(ScriptedProvider::new(Script::parse(&json.to_string()).unwrap()))
}

#[test]
fn what_was_recorded_in_one_folder_is_answered_in_another_without_secrets() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("deep/tape.jsonl");
    let inner = chat(&["It is in /runs/one/", "out.txt, and ", SECRET]);
    let recorder = RecordingProvider::new(inner, &file, redactor(), places("/runs/one")).unwrap();
    let asked = request("m", &["look into /runs/one/in.txt with sk-secret-0123456789"]);
    assert!(ask(&recorder, &asked).unwrap().text().contains(SECRET));

    let text = std::fs::read_to_string(&file).unwrap();
    assert!(!text.contains("sk-secret") && !text.contains("/runs/one"), "{text}");
    let stored: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(stored["request_sha256"], json!(asked.digest()));
    assert!(stored["events"].is_array() && stored["reply"].is_null());

    let replay = ReplayProvider::open(&file, redactor(), places("/elsewhere/two")).unwrap();
    let asked = request("m", &["look into /elsewhere/two/in.txt with [secret KEY]"]);
    assert_eq!(ask(&replay, &asked).unwrap().text(), "It is in /elsewhere/two/out.txt, and [secret KEY]");
}

#[test]
fn a_secret_that_came_in_two_pieces_is_not_kept_in_two_pieces() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("tape.jsonl");
    let recorder = RecordingProvider::new(chat(&["sk-secret-", "0123456789"]), &file, redactor(), places("/runs/one"));
    ask(&recorder.unwrap(), &request("m", &["go"])).unwrap();
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(!text.contains("0123456789") && !text.contains("sk-secret-"), "{text}");
    let replay = ReplayProvider::open(&file, redactor(), Places::default()).unwrap();
    assert_eq!(ask(&replay, &request("m", &["go"])).unwrap().text(), "[secret KEY]");
}

#[test]
fn the_same_request_is_answered_in_order_and_by_a_new_process_from_the_first_on() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("tape.jsonl");
    let inner = scripted(&json!({"turns": [{"text": "number {{request}}"}]}));
    let recorder = RecordingProvider::new(inner, &file, Redactor::default(), Places::default()).unwrap();
    let asked = request("m", &["go"]);
    ask(&recorder, &asked).unwrap();
    ask(&recorder, &asked).unwrap();
    let open = || ReplayProvider::open(folder.path(), Redactor::default(), Places::default()).unwrap();
    let replay = open();
    let told: Vec<String> = (0..3).map(|_| ask(&replay, &asked).unwrap().text()).collect();
    assert_eq!(told, ["number 1", "number 2", "number 2"]);
    // After a kill there is a note in the history that the recorded run did not have.
    let mut resumed = asked;
    resumed.messages.push(Message::user(Origin::Resume, "You were interrupted at 12:03."));
    assert_eq!(ask(&open(), &resumed).unwrap().text(), "number 1");
}

#[test]
fn another_request_is_not_answered_and_the_difference_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("tape.jsonl");
    let inner = scripted(&json!({"turns": [{"text": "hi"}]}));
    let recorder = RecordingProvider::new(inner, &file, Redactor::default(), Places::default()).unwrap();
    ask(&recorder, &request("m", &["write about tide mills"])).unwrap();
    let replay = ReplayProvider::open(&file, Redactor::default(), Places::default()).unwrap();
    let why = |request: ModelRequest| match ask(&replay, &request) {
        Err(error @ LlmError::NotRecorded { .. }) => {
            assert!(!error.left_us() && !error.may_retry());
            error.to_string()
        }
        other => panic!("{other:?}"),
    };
    let told = why(request("m", &["write about wind mills"]));
    assert!(told.contains("/messages/0/blocks/0/text, character 12") && told.contains("wind mills"), "{told}");
    let told = why(request("other", &["write about tide mills"]));
    assert!(told.contains("/model") && told.contains("\"other\""), "{told}");
}

#[test]
fn a_line_that_a_kill_cut_is_passed_over_and_any_other_damage_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("tape.jsonl");
    let record = |text: &str| {
        let inner = scripted(&json!({"turns": [{"text": text}]}));
        let recorder = RecordingProvider::new(inner, &file, Redactor::default(), Places::default()).unwrap();
        ask(&recorder, &request("m", &[text])).unwrap();
    };
    record("first");
    let whole = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, format!("{whole}{}", &whole[..40])).unwrap();
    record("second");
    let replay = ReplayProvider::open(&file, Redactor::default(), Places::default()).unwrap();
    for text in ["first", "second"] {
        assert_eq!(ask(&replay, &request("m", &[text])).unwrap().blocks, [Block::text(text)]);
    }
    let open = |text: String| {
        std::fs::write(&file, text).unwrap();
        ReplayProvider::open(&file, Redactor::default(), Places::default()).unwrap_err().to_string()
    };
    assert!(open(format!("{whole}{{\"version\": true}}\n")).contains("line 2"));
    assert!(open(whole.replace("\"version\":1", "\"version\":9")).contains("version 9"));
    assert!(open(String::new()).contains("no exchange"));
}

#[test]
fn a_failure_is_kept_for_people_and_not_answered() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("tape.jsonl");
    let broken: Arc<dyn LlmProvider> =
        Arc::new(Chat(vec!["{\"error\": \"busy with sk-secret-0123456789\"}".to_owned()]));
    let recorder = RecordingProvider::new(broken, &file, redactor(), Places::default()).unwrap();
    let asked = request("m", &["go"]);
    ask(&recorder, &asked).unwrap_err();
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(text.contains("busy with [secret KEY]") && !text.contains(SECRET), "{text}");
    assert!(matches!(ReplayProvider::open(&file, redactor(), Places::default()), Err(CassetteError::Empty { .. })));
}

#[test]
fn ids_that_the_server_did_not_give_are_the_same_when_it_is_played_again() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("tape.jsonl");
    let function = json!({"name": "t", "arguments": "{}"});
    let call = json!({"choices": [{"index": 0, "delta": {"tool_calls": [{"index": 0, "function": function}]}}]});
    let end = json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]});
    let inner = Arc::new(Chat(vec![call.to_string(), end.to_string(), "[DONE]".to_owned()]));
    let recorder = RecordingProvider::new(inner, &file, Redactor::default(), places("/runs/one")).unwrap();
    let recorded = ask(&recorder, &request("m", &["look into /runs/one/in.txt"])).unwrap();
    let replay = ReplayProvider::open(&file, Redactor::default(), places("/elsewhere/two")).unwrap();
    let played = ask(&replay, &request("m", &["look into /elsewhere/two/in.txt"])).unwrap();
    assert!(recorded.tool_uses().next().is_some());
    assert_eq!(played.blocks, recorded.blocks);
}

#[test]
fn ids_that_tools_made_for_one_run_are_those_of_the_other_when_it_is_played_again() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("tape.jsonl");
    let (one, two) = ("a4129f4ac6dd029eca7234007b1f74c1", "18babbaae17ec30f4fde405ec8b06021");
    let inner = chat(&[&format!("Notification {one} went out.")]);
    let recorder = RecordingProvider::new(inner, &file, Redactor::default(), Places::default()).unwrap();
    ask(&recorder, &request("m", &["go", &format!("sent: {one}")])).unwrap();
    let replay = ReplayProvider::open(&file, Redactor::default(), Places::default()).unwrap();
    let played = ask(&replay, &request("m", &["go", &format!("sent: {two}")])).unwrap();
    assert_eq!(played.text(), format!("Notification {two} went out."));
    // Two ids are not one, and a digest is no id.
    assert!(ask(&replay, &request("m", &[two, &format!("sent: {two}")])).is_err());
    assert!(ask(&replay, &request("m", &["go", &format!("sent: {two}{two}")])).is_err());
}

/// What lies in a folder may have come with a checkout, so nothing of it but a file is written to or read, and nothing is waited for.
#[test]
fn nothing_but_a_file_is_recorded_into_or_played_from_a_folder() {
    let there = tempfile::tempdir().unwrap();
    let (folder, mine) = (there.path().join("rec"), there.path().join("mine"));
    std::fs::create_dir(&folder).unwrap();
    let record = |file: &std::path::Path| {
        let inner = scripted(&json!({"turns": [{"text": "ok"}]}));
        RecordingProvider::new(inner, file, Redactor::default(), Places::default()).map(|_| ())
    };
    let file = folder.join("monthly.jsonl");
    let makers: [(&str, &dyn Fn()); 5] = [
        ("a link to nothing", &|| std::os::unix::fs::symlink(&mine, &file).unwrap()),
        ("a link to a file", &|| {
            std::fs::write(&mine, "").unwrap();
            std::os::unix::fs::symlink(&mine, &file).unwrap();
        }),
        ("a link to a device", &|| std::os::unix::fs::symlink("/dev/zero", &file).unwrap()),
        ("a pipe", &|| {
            assert!(std::process::Command::new("mkfifo").arg(&file).status().unwrap().success());
        }),
        ("a socket", &|| drop(std::os::unix::net::UnixListener::bind(&file).unwrap())),
    ];
    for (name, make) in makers {
        make();
        let said = std::fs::read(&mine).ok();
        assert_eq!(
            RecordingProvider::may_append_to(&file).unwrap_err().kind(),
            std::io::ErrorKind::InvalidInput,
            "{name}"
        );
        assert_eq!(record(&file).unwrap_err().kind(), std::io::ErrorKind::InvalidInput, "{name}");
        ReplayProvider::open(&folder, Redactor::default(), Places::default()).unwrap_err();
        assert_eq!(std::fs::read(&mine).ok(), said, "{name}");
        std::fs::remove_file(&file).unwrap();
    }
    // A device and a pipe that a person named have no end either.
    for endless in ["/dev/zero", "/dev/tty"] {
        ReplayProvider::open(endless.as_ref(), Redactor::default(), Places::default()).unwrap_err();
    }
    // The folders above are whatever a person says they are.
    std::os::unix::fs::symlink(&folder, there.path().join("link")).unwrap();
    record(&there.path().join("link/sub/new.jsonl")).unwrap();
    assert!(folder.join("sub/new.jsonl").is_file());
}
