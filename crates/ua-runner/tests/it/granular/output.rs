//! Results with a schema, and the folder of a run.

use std::sync::atomic::Ordering;

use serde_json::json;
use ua_core::Component;
use ua_runner::{StepError, StepOutcome};
use ua_store::{RequestStatus, Store as _};

use super::shop::{POLICY, SCRIPT, Shop, done, run_id};

fn schema() -> serde_json::Value {
    json!({"type": "object", "properties": {"cents": {"type": "integer", "minimum": 0}}, "required": ["cents"]})
}

#[tokio::test]
async fn a_result_is_asked_for_until_it_fits_its_schema_and_is_kept_as_a_value() {
    let script = json!({"turns": [
        {"text": "It is 900 cents."},
        {"text": "{\"cents\": \"many\"}", "expect": {"contains": ["not a JSON value"]}},
        {"text": "{\"cents\": -1}", "expect": {"contains": ["/cents"]}},
        {"text": "Here:\n```json\n{\"cents\": 900}\n```", "expect": {"contains": ["less than the minimum"]}},
    ]});
    let mut shop = Shop::new(&script.to_string(), POLICY, done);
    shop.step.output_schema = Some(schema());
    for _ in 0..2 {
        let outcome = shop.run().await.unwrap();
        let StepOutcome::Complete { final_output, turns, .. } = &outcome else { panic!("{outcome:?}") };
        assert_eq!((final_output, *turns), (&json!({"cents": 900}), 4));
    }
    let run = shop.records().await.run;
    assert_eq!(run.final_output.as_deref(), Some("{\"cents\":900}"));
    assert!(run.last_job_prompt.contains("\"cents\""), "the model reads the schema: {}", run.last_job_prompt);
    assert_eq!(shop.requests(), 4);
}

/// Text and JSON, cut after each character by a limit or a pause, by a process that is started again after each turn.
#[tokio::test]
async fn an_answer_that_came_in_pieces_is_all_of_them_wherever_it_was_cut() {
    let json = "{\"cents\": 900}";
    for (whole, is_typed) in [("Ein Stück, und noch eins.", false), (json, true)] {
        for (at, _) in whole.char_indices().skip(1) {
            for (reason, is_killed) in [("max_tokens", false), ("pause_turn", false), ("max_tokens", true)] {
                let script = json!({"turns": [
                    {"text": whole[..at], "stop_reason": reason},
                    {"text": whole[at..], "expect": {"contains": ["Continue exactly where it ends"]}},
                ]});
                let mut shop = Shop::new(&script.to_string(), POLICY, done);
                shop.step.output_schema = is_typed.then(schema);
                if is_killed {
                    shop.leave_after_turn(1).await;
                }
                let outcome = shop.run().await.unwrap();
                let StepOutcome::Complete { final_output, turns, .. } = &outcome else { panic!("{outcome:?}") };
                let wanted = if is_typed { json!({"cents": 900}) } else { json!(whole) };
                assert_eq!((final_output, *turns), (&wanted, 2), "cut at {at} by {reason}");
            }
        }
    }
}

#[tokio::test]
async fn pieces_that_are_no_value_together_are_asked_for_as_a_whole() {
    // One begins again instead of continuing, the other says a number of which nobody knows whether it did.
    for (schema, first, second, last) in [
        (schema(), "{\"cents\": 9", "{\"cents\": 900}", "{\"cents\": 900}"),
        (json!({"type": "integer"}), "12", "34", "1234"),
    ] {
        let script = json!({"turns": [
            {"text": first, "stop_reason": "max_tokens"},
            {"text": second},
            {"text": last, "expect": {"contains": [", and nothing beside it"]}},
        ]});
        let mut shop = Shop::new(&script.to_string(), POLICY, done);
        shop.step.output_schema = Some(schema);
        let outcome = shop.run().await.unwrap();
        let StepOutcome::Complete { final_output, turns, .. } = &outcome else { panic!("{outcome:?}") };
        assert_eq!((final_output.to_string(), *turns), (last.replace(' ', ""), 3));
    }
}

#[tokio::test]
async fn a_check_of_the_program_counts_as_the_schema_does() {
    let script = json!({"turns": [
        {"text": "{\"cents\": 900}"},
        {"text": "{\"cents\": 901}", "expect": {"contains": ["fits its schema and is refused all the same: it is even"]}},
    ]});
    let mut shop = Shop::new(&script.to_string(), POLICY, done);
    shop.step.output_schema = Some(schema());
    shop.step.accepts = Some(std::sync::Arc::new(|value| {
        if value["cents"].as_u64().is_some_and(|cents| cents % 2 == 1) { Ok(()) } else { Err("it is even".to_owned()) }
    }));
    let outcome = shop.run().await.unwrap();
    let StepOutcome::Complete { final_output, turns, .. } = &outcome else { panic!("{outcome:?}") };
    assert_eq!((final_output, *turns), (&json!({"cents": 901}), 2));
}

#[tokio::test]
async fn a_result_that_never_fits_asks_a_person() {
    let turn = json!({"text": "I would rather not."});
    let mut shop = Shop::new(&json!({ "turns": vec![turn; 9] }).to_string(), POLICY, done);
    shop.step.output_schema = Some(schema());
    let outcome = shop.run().await.unwrap();
    let StepOutcome::Waiting { question } = &outcome else { panic!("{outcome:?}") };
    assert!(question.text.contains("The result is missing"), "{}", question.text);
}

/// In whatever words a provider refuses the form of a result, the run gets its result without it, and asks once for that.
#[tokio::test]
async fn a_form_that_the_provider_does_not_take_is_left_out_and_the_result_is_checked_here() {
    for words in [
        "output_config.format.schema: Invalid schema: The compiled grammar is too large, reduce the number of strict tools",
        "output_config.format.schema: For 'string' type, format 'hostname' is not supported",
        "This model does not support the output_config.format parameter.",
        "output_format: Extra inputs are not permitted",
        "Invalid schema for response_format 'result': In context=('properties', 'tags'), 'uniqueItems' is not permitted.",
        "Invalid parameter: 'response_format' of type 'json_schema' is not supported with this model.",
        "[{'type': 'extra_forbidden', 'loc': ('body', 'response_format'), 'msg': 'Extra inputs are not permitted'}]",
        "Unsupported parameter: 'text.format' is not supported with this model.",
        "* GenerateContentRequest.generation_config.response_schema.properties: should be non-empty for OBJECT type",
        "json mode cannot be combined with tool/function calling",
        "Function calling with a response mime type: 'application/json' is unsupported",
        // What names no part may be for it as well.
        "Request contains an invalid argument.",
    ] {
        let turns = json!([{"text": "{\"cents\": \"many\"}"}, {"text": "{\"cents\": 1}"}]);
        let mut shop = Shop::new(&json!({ "turns": turns }).to_string(), POLICY, done);
        shop.step.output_schema = Some(schema());
        shop.step.agent.structured = true;
        *shop.model.refuses_schemas.lock().unwrap() = Some(words);
        let outcome = shop.run().await.unwrap();
        assert!(matches!(outcome, StepOutcome::Complete { .. }), "{words}: {outcome:?}");
        let asked = (shop.model.schemas.load(Ordering::SeqCst), shop.model.requests.load(Ordering::SeqCst));
        assert_eq!(asked, (1, 3), "{words}: once with it, then without, of which the first did not fit");
    }
}

#[tokio::test]
async fn the_schema_is_part_of_a_request_only_where_the_model_writes_by_one() {
    for structured in [false, true] {
        let mut shop = Shop::new(&json!({"turns": [{"text": "{\"cents\": 1}"}]}).to_string(), POLICY, done);
        shop.step.output_schema = Some(schema());
        shop.step.agent.structured = structured;
        let outcome = shop.run().await.unwrap();
        assert!(matches!(outcome, StepOutcome::Complete { .. }), "{outcome:?}");
        assert_eq!(shop.model.schemas.load(Ordering::SeqCst), u32::from(structured));
    }
}

#[tokio::test]
async fn a_definition_with_a_bad_schema_or_a_seed_that_nobody_reads_is_refused() {
    let mut shop = Shop::new(SCRIPT, POLICY, done);
    shop.step.output_schema = Some(json!({"type": "objekt"}));
    let told = format!("{:?}", shop.run().await.unwrap_err());
    assert!(told.contains("output_schema") && told.contains("not a valid JSON Schema"), "{told}");
    shop.step.output_schema = None;
    // `Counted` says of itself that it takes none.
    shop.step.agent.seed = Some(7);
    let error = shop.run().await.unwrap_err();
    assert!(matches!(&error, StepError::Definition(_)) && format!("{error:?}").contains("takes no seed"), "{error:?}");
    assert!(shop.store.run(&run_id()).await.is_err(), "nothing was stored");
}

#[tokio::test]
async fn a_reply_that_nobody_counted_is_charged_what_it_is_estimated_to_have_taken() {
    let script = json!({"turns": [{"text": "Nothing is to be ordered today, the shelves are full."}]});
    let shop = Shop::new(&script.to_string(), POLICY, done);
    shop.model.uncounted.store(true, Ordering::SeqCst);
    let _complete = shop.run().await.unwrap();
    let records = shop.records().await;
    let [request] = records.requests.as_slice() else { panic!("{:?}", records.requests) };
    assert!(records.brought_a_reply(request), "nothing broke off");
    assert_eq!(request.status, RequestStatus::Partial);
    assert_eq!((request.usage.input_tokens, request.usage.output_tokens), (request.estimated_tokens, 14));
}

#[tokio::test]
async fn the_folder_of_a_run_is_no_other_runs() {
    let shop = Shop::new(SCRIPT, POLICY, done);
    let _complete = shop.run().await.unwrap();
    let mut other = Shop::new(SCRIPT, POLICY, done);
    other.host.workspace.clone_from(&shop.host.workspace);
    let id = ua_core::RunId::parse("run_other").unwrap();
    let error = other.step.run(&other.host, &id).await.unwrap_err();
    let StepError::WorkspaceTaken { owner, .. } = &error else { panic!("{error}") };
    assert_eq!(owner, "run_restock");
    assert_eq!(other.requests(), 0);
    // A fork gets a folder of its own, and the files that are recorded, but not whose they were.
    assert!(std::fs::exists(shop.host.workspace.join(".run")).unwrap());
}

#[tokio::test]
async fn another_blob_threshold_is_accepted_and_the_run_keeps_its_own() {
    let mut shop = Shop::new(SCRIPT, POLICY, done);
    shop.step.max_turns = 1;
    let _stopped = shop.run().await.unwrap();
    shop.step.blob_threshold_bytes = 300;
    assert!(matches!(shop.run().await.unwrap_err(), StepError::AnotherDefinition { .. }));
    let plain = shop.host.clone();
    shop.host = shop.host.accepting([Component::BlobThreshold]);
    let outcome = shop.run().await.unwrap();
    assert!(matches!(outcome, StepOutcome::Stopped { .. }), "{outcome:?}");
    // What was accepted stays accepted; another value is not.
    shop.host = plain;
    let outcome = shop.run().await.unwrap();
    assert!(matches!(outcome, StepOutcome::Stopped { .. }), "{outcome:?}");
    assert_eq!(shop.records().await.run.spec.settings.blob_threshold_bytes, 20_000);
    shop.step.blob_threshold_bytes = 400;
    assert!(matches!(shop.run().await.unwrap_err(), StepError::AnotherDefinition { .. }));
}
