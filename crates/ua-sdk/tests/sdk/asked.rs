//! How a model is asked: what a step says of that reaches the wire, and is part of the definition.

use serde_json::json;
use ua_sdk::crates::ua_llm::Script;
use ua_sdk::prelude::*;
use ua_testkit::{ModelServer, ModelServerConfig};

async fn server() -> ModelServer {
    let script = json!({"turns": [{"text": "Yes."}, {"text": "Yes."}]}).to_string();
    ModelServer::start(ModelServerConfig::new(Script::parse(&script).unwrap())).await.unwrap()
}

fn step(model: Model) -> Step {
    Step::new("ask").model(model).input("Is it so?")
}

#[cfg(feature = "anthropic")]
#[tokio::test]
async fn how_a_model_is_to_work_reaches_it_and_is_part_of_the_definition() {
    let server = server().await;
    let folder = tempfile::tempdir().unwrap();
    let runs = Runs::open(folder.path()).unwrap();
    let model = || Anthropic::at("m", &server.base_url, "sk-0123456789").unwrap();
    let look = tool("look", "Looks.", async |_: Call, (): ()| Ok::<_, Failure>("nothing")).reads();
    let asked = step(model())
        .tool(look)
        .effort(ua_sdk::Effort::High)
        .tool_choice(ua_sdk::ToolChoice::Auto)
        .header("x-team", "billing");
    assert!(matches!(runs.run(&asked, "november").await.unwrap(), Outcome::Complete { .. }));
    let body = server.last_request().unwrap();
    assert_eq!((&body["output_config"]["effort"], &body["tool_choice"]["type"]), (&json!("high"), &json!("auto")));
    let thinks = step(model()).thinking_tokens(2_000);
    assert!(matches!(runs.run(&thinks, "december").await.unwrap(), Outcome::Complete { .. }));
    assert_eq!(server.last_request().unwrap()["thinking"]["budget_tokens"], 2_000);

    let other = runs.run(&asked.clone().effort("low"), "november").await.unwrap_err();
    let Error::AnotherDefinition { differs, .. } = &other else { panic!("{other}") };
    let parts: Vec<_> = differs.iter().map(|part| (part.part.as_str(), part.now.as_str())).collect();
    assert_eq!(parts, [("effort", "\"low\"")]);
    let asks = server.requests();
    for (wrong, told) in [
        (step(model()).effort("hihg"), "did you mean \"high\""),
        (step(model()).header("x-api-key", "k"), "x-api-key"),
        (step(model()).thinking_tokens(2_000).tool_choice("any"), "`tool_choice`"),
    ] {
        let refused = runs.run(&wrong, "wrong").await.unwrap_err();
        assert!(refused.to_string().contains(told), "{told}: {refused}");
        assert!(matches!(refused, Error::Step(_) | Error::Model(_)), "{refused}");
    }
    assert_eq!((server.requests(), runs.list(9).await.unwrap().len()), (asks, 2));
    let clear = Anthropic::at("m", "http://models.example", "sk-0123456789").unwrap_err();
    assert!(clear.to_string().contains("clear text"), "{clear}");
}

/// A step is tried with a script as it is: its words belong to the definition, and change nothing of what the script says.
#[tokio::test]
async fn a_script_plays_a_step_that_says_how_its_model_is_to_work() {
    let folder = tempfile::tempdir().unwrap();
    let runs = Runs::open(folder.path()).unwrap();
    let played = || Model::scripted(r#"{"turns": [{"text": "Yes."}]}"#).unwrap();
    let asked =
        step(played()).effort("high").thinking_tokens(2_000).tool_choice("auto").header("x-team", "billing").seed(7);
    assert!(matches!(runs.run(&asked, "november").await.unwrap(), Outcome::Complete { .. }));
    for (other, part) in [(asked.clone().effort("low"), "effort"), (asked.clone().seed(8), "seed")] {
        let other = runs.run(&other, "november").await.unwrap_err();
        assert!(matches!(&other, Error::AnotherDefinition { .. }) && other.to_string().contains(part), "{other}");
    }
    let wrong = runs.run(&step(played()).header("x-api-key", "k"), "wrong").await.unwrap_err();
    assert!(wrong.to_string().contains("x-api-key"), "{wrong}");
}

#[cfg(feature = "openai")]
#[tokio::test]
async fn what_a_provider_does_not_read_is_refused() {
    let server = server().await;
    let folder = tempfile::tempdir().unwrap();
    let runs = Runs::open(folder.path()).unwrap();
    let chat = |name| OpenAi::chat(name, &format!("{}/v1", server.base_url), None).unwrap();
    assert!(matches!(runs.run(&step(chat("m")).effort("low"), "november").await.unwrap(), Outcome::Complete { .. }));
    assert_eq!(server.last_request().unwrap()["reasoning_effort"], "low");
    let responses = || OpenAi::at("m", &format!("{}/v1", server.base_url), "sk-0123456789").unwrap();
    let played = || Script::parse(r#"{"turns": [{"text": "Yes."}]}"#).unwrap();
    let own = Model::of(std::sync::Arc::new(ua_sdk::crates::ua_llm::ScriptedProvider::new(played())), "own");
    for (wrong, told) in [
        (step(chat("m")).thinking_tokens(9), "`thinking_tokens` is set"),
        (step(chat("")), "the name of the model is empty"),
        (step(own).effort("low"), "told that where it is made"),
        (step(responses()).seed(7), "takes no seed"),
    ] {
        let refused = runs.run(&wrong, "wrong").await.unwrap_err();
        assert!(refused.to_string().contains(told), "{told}: {refused}");
    }
    let responses = responses();
    assert!(matches!(runs.run(&step(responses).effort("low"), "december").await.unwrap(), Outcome::Complete { .. }));
    assert_eq!(server.last_request().unwrap()["reasoning"]["effort"], "low");
}
