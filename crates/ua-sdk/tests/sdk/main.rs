//! The facade: what a program writes comes to what the runner promises.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};
use ua_sdk::crates::ua_store::RunStore as _;
use ua_sdk::prelude::*;

#[cfg(any(feature = "anthropic", feature = "openai"))]
mod asked;
mod changed;
mod copied;
mod guidelines;
mod let_go;
mod looked_at;
#[path = "../../../ua-testkit/tests/it/one_binary.rs"]
mod one_binary;
mod refused;
mod resolved;
mod resumed;
mod speaks;
mod within;
mod words;

#[derive(Deserialize, Serialize, JsonSchema, Debug, PartialEq)]
struct Invoice {
    order: String,
    cents: u32,
}

fn model(turns: &Value) -> Model {
    Model::scripted(&json!({ "turns": turns }).to_string()).unwrap()
}

fn invoices(turns: &Value, sent: &Arc<AtomicUsize>) -> Step {
    let sent = sent.clone();
    let send = tool("send_invoice", "Sends an invoice.", async move |call: Call, invoice: Invoice| {
        assert!(!call.key().is_empty() && !call.run().is_empty());
        sent.fetch_add(1, Ordering::SeqCst);
        Ok::<_, Failure>(json!({"sent": invoice.order}))
    });
    Step::new("invoices").model(model(turns)).tool(send.external("invoice.send").keyed()).input("Send the invoice.")
}

fn sending() -> Value {
    json!([
        {"tools": [{"name": "mcp__program__send_invoice", "input": {"order": "A-17", "cents": 900}}]},
        {"text": "Sent."},
    ])
}

#[tokio::test]
async fn a_step_is_run_once_and_says_its_result_again() {
    let folder = tempfile::tempdir().unwrap();
    let sent = Arc::new(AtomicUsize::new(0));
    let step = invoices(&sending(), &sent);
    for _ in 0..2 {
        let outcome = Runs::open(folder.path()).unwrap().run(&step, "november").await.unwrap();
        let Outcome::Complete { final_output, turns, .. } = outcome else { panic!("{outcome:?}") };
        assert_eq!((final_output.as_str(), turns), (Some("Sent."), 2));
    }
    assert_eq!(sent.load(Ordering::SeqCst), 1);
    assert!(folder.path().join("workspaces/november").is_dir());
}

#[tokio::test]
async fn arguments_that_do_not_fit_never_reach_the_closure() {
    let folder = tempfile::tempdir().unwrap();
    let sent = Arc::new(AtomicUsize::new(0));
    let turns = json!([
        {"tools": [{"name": "mcp__program__send_invoice", "input": {"order": "A-17", "cents": -1}}]},
        {"tools": [{"name": "mcp__program__send_invoice", "input": {"order": "A-17", "cents": 900}}]},
        {"text": "Sent."},
    ]);
    let outcome = Runs::open(folder.path()).unwrap().run(&invoices(&turns, &sent), "november").await.unwrap();
    assert!(matches!(outcome, Outcome::Complete { turns: 3, .. }), "{outcome:?}");
    assert_eq!(sent.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_lost_call_of_a_tool_without_a_key_is_asked_about_and_answered_from_the_program() {
    let folder = tempfile::tempdir().unwrap();
    let runs = Runs::open(folder.path()).unwrap();
    let tries = Arc::new(AtomicUsize::new(0));
    let counted = tries.clone();
    // `?` on any error: nobody knows whether anything happened.
    let send = tool("send_invoice", "Sends an invoice.", async move |_call, _invoice: Invoice| {
        counted.fetch_add(1, Ordering::SeqCst);
        Err::<(), Failure>(std::io::Error::other("the line is dead").into())
    });
    let step = Step::new("invoices").model(model(&sending())).tool(send).input("Send the invoice.");
    let Outcome::Waiting { question } = runs.run(&step, "november").await.unwrap() else { panic!() };
    let open = runs.questions("november").await.unwrap();
    assert_eq!(open.len(), 1);
    let refused = runs.answer(&question, Choice::Continue).await.unwrap_err().to_string();
    assert!(refused.contains("happened"), "{refused}");
    runs.answer(&question, Answer::new(Choice::Happened).proof("invoice 4711")).await.unwrap();
    assert!(runs.questions("november").await.unwrap().is_empty());
    let outcome = runs.run(&step, "november").await.unwrap();
    assert!(matches!(outcome, Outcome::Complete { .. }), "{outcome:?}");
    assert_eq!(tries.load(Ordering::SeqCst), 1);
}

/// The commonest thing to forget: nothing is said of what the tool does.
#[tokio::test]
async fn a_tool_of_which_nothing_is_said_is_asked_about_before_it_repeats_itself() {
    for (name, said) in [
        ("create_invoice", None),
        ("order_pizza", None),
        ("transfer_usdc", None),
        ("place_order", Some("parcel.expedite")),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let runs = Runs::open(folder.path()).unwrap();
        let made = Arc::new(AtomicUsize::new(0));
        let counted = made.clone();
        let make = tool(name, "Makes it.", async move |_call, invoice: Invoice| {
            counted.fetch_add(1, Ordering::SeqCst);
            Ok::<_, Failure>(invoice.order)
        });
        let make = match said {
            Some(kind) => make.external(kind),
            None => make,
        };
        let call =
            json!({"tools": [{"name": format!("mcp__program__{name}"), "input": {"order": "A-17", "cents": 900}}]});
        let turns = json!([call.clone(), call, {"text": "Done."}]);
        let step = Step::new("orders").model(model(&turns)).tool(make.clone()).input("Order it.");
        let outcome = runs.run(&step, "november").await.unwrap();
        assert!(matches!(outcome, Outcome::Waiting { .. }), "{name}: {outcome:?}");
        assert_eq!(made.load(Ordering::SeqCst), 1, "{name}");
        // In words of a program, which has no job.
        let asked = runs.questions("november").await.unwrap();
        assert!(!asked.is_empty() && asked.iter().all(|question| !question.text.contains("job")), "{asked:?}");
        // A policy of the step says that each call is meant.
        let each = format!("[[rule]]\nid = \"each\"\nserver = \"program\"\nname = \"{name}\"\ncreates = false\n");
        let step = Step::new("orders").model(model(&turns)).tool(make).policy(each).input("Order it.");
        let outcome = runs.run(&step, "december").await.unwrap();
        assert!(matches!(outcome, Outcome::Complete { .. }), "{name}: {outcome:?}");
        assert_eq!(made.load(Ordering::SeqCst), 3, "{name}");
    }
}

#[tokio::test]
async fn a_fork_that_is_there_is_found_at_its_turn_and_at_no_other() {
    let folder = tempfile::tempdir().unwrap();
    let runs = Runs::open(folder.path()).unwrap();
    let step = invoices(&sending(), &Arc::default());
    assert!(matches!(runs.run(&step, "november").await.unwrap(), Outcome::Complete { turns: 2, .. }));
    let brief = step.clone().system("Be brief.");
    let made = runs.fork(&brief, "brief", "november", Some(1)).await.unwrap();
    for same in [None, Some(1)] {
        assert_eq!(runs.fork(&brief, "brief", "november", same).await.unwrap().run_id, made.run_id);
    }
    for other in [0, 2, 99] {
        let refused = runs.fork(&brief, "brief", "november", Some(other)).await.unwrap_err();
        assert!(matches!(&refused, Error::Refused(why) if why.contains("turn 1")), "{other}: {refused}");
    }
}

#[tokio::test]
async fn a_run_that_has_ended_is_not_to_be_changed_later_either() {
    let folder = tempfile::tempdir().unwrap();
    let runs = Runs::open(folder.path()).unwrap();
    let step = invoices(&sending(), &Arc::default());
    assert!(matches!(runs.run(&step, "november").await.unwrap(), Outcome::Complete { .. }));
    let cancelled = runs.cancel("november", "late").await.unwrap_err();
    let set = runs.set_budget("november", "max_turns", 9).await.unwrap_err();
    for refused in [cancelled, set] {
        assert_eq!(refused.class(), ua_sdk::FailureClass::Permanent, "{refused}");
        assert!(matches!(refused, Error::Refused(_)) && refused.to_string().contains("succeeded"), "{refused}");
    }
}

/// Every command that a person finds in the files of a run names the folder in which `ua` finds the run.
#[tokio::test]
async fn what_a_person_is_told_to_type_names_the_folder_of_the_runs() {
    let folder = tempfile::tempdir().unwrap();
    let state = std::fs::canonicalize(folder.path()).unwrap();
    let runs = Runs::open(&state).unwrap();
    let send = tool("send_invoice", "Sends an invoice.", async |_call, _invoice: Invoice| {
        Err::<(), Failure>(Failure::unknown("the line is dead"))
    });
    let step = Step::new("invoices").model(model(&sending())).tool(send).input("Send the invoice.");
    assert!(matches!(runs.run(&step, "november").await.unwrap(), Outcome::Waiting { .. }));
    let (mut folders, mut commands) = (vec![runs.workspace("november").unwrap()], 0);
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            if entry.is_dir() {
                folders.push(entry);
                continue;
            }
            let text = String::from_utf8_lossy(&std::fs::read(&entry).unwrap()).into_owned();
            for behind in text.split(" --root ").skip(1) {
                let named: String =
                    behind.chars().take_while(|c| !c.is_whitespace() && !"`\"'\\".contains(*c)).collect();
                assert_eq!(named, state.display().to_string(), "{}", entry.display());
                commands += 1;
            }
        }
    }
    assert!(commands > 0, "the files of a run that waits say how it is answered");
}

#[tokio::test]
async fn an_error_of_a_tool_that_only_reads_is_told_to_the_model() {
    let folder = tempfile::tempdir().unwrap();
    let look = tool("look", "Looks.", async |_call, (): ()| Err::<(), std::io::Error>(std::io::Error::other("gone")));
    let turns = json!([{"tools": [{"name": "mcp__program__look", "input": {}}]}, {"text": "{{result:toolu_1_1}}"}]);
    let step = Step::new("look").model(model(&turns)).tool(look.reads()).input("Look.");
    let outcome = Runs::open(folder.path()).unwrap().run(&step, "look").await.unwrap();
    let Outcome::Complete { final_output, .. } = outcome else { panic!("{outcome:?}") };
    assert_eq!(final_output, "gone");
}

/// An answer that is no JSON is none the next time either: the model of a tool that only reads is told at once, and of an effect a person is asked.
#[tokio::test]
async fn an_answer_that_is_no_json_is_not_waited_for() {
    let folder = tempfile::tempdir().unwrap();
    let runs = Runs::open(folder.path()).unwrap();
    let tries = Arc::new(AtomicUsize::new(0));
    let counted = tries.clone();
    let look = tool("look", "Looks.", async move |_: Call, (): ()| {
        counted.fetch_add(1, Ordering::SeqCst);
        Ok::<_, Failure>(std::collections::BTreeMap::from([((1, 2), "a pair is no name")]))
    });
    let turns = json!([{"tools": [{"name": "mcp__program__look", "input": {}}]}, {"text": "{{result:toolu_1_1}}"}]);
    let step = |look: Tool| Step::new("look").model(model(&turns)).tool(look).input("Look.");
    let outcome = runs.run(&step(look.clone().reads()), "read").await.unwrap();
    let Outcome::Complete { final_output, .. } = &outcome else { panic!("{outcome:?}") };
    assert!(final_output.as_str().is_some_and(|told| told.contains("not a JSON value")), "{final_output}");
    assert_eq!(tries.load(Ordering::SeqCst), 1);
    let outcome = runs.run(&step(look.external("row.update")), "effect").await.unwrap();
    assert!(
        matches!(&outcome, Outcome::Waiting { .. }) && outcome.to_string().contains("not a JSON value"),
        "{outcome}"
    );
    assert_eq!(tries.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn a_typed_result_is_checked_asked_for_again_and_kept() {
    let folder = tempfile::tempdir().unwrap();
    let runs = Runs::open(folder.path()).unwrap();
    let turns = json!([
        {"text": "It is 900 cents."},
        {"text": "{\"order\": \"A-17\", \"cents\": \"many\"}"},
        {"text": "{\"order\": \"A-17\", \"cents\": 900}"},
    ]);
    let step = Step::new("price").model(model(&turns)).input("What is the invoice of A-17?");
    for _ in 0..2 {
        let given: Invoice = runs.run_for(&step, "price").await.unwrap();
        assert_eq!(given, Invoice { order: "A-17".to_owned(), cents: 900 });
    }
    assert_eq!(runs.get("price").await.unwrap().turn_index, 3);
    // A step that says another form of its result is not run for this one.
    let another = runs.run_for::<Invoice>(&step.clone().output_schema(json!({"type": "string"})), "another").await;
    assert!(matches!(&another, Err(Error::Step(why)) if why.contains("output_schema")), "{another:?}");
    assert!(runs.get("another").await.is_err());
    // The schema belongs to the definition.
    let other = runs.run(&step, "price").await.unwrap_err().to_string();
    assert!(other.contains("output_schema"), "{other}");
}

/// An even number: its schema knows integers only.
#[derive(Debug, PartialEq, schemars::JsonSchema)]
#[schemars(transparent)]
struct Even(i64);

impl<'de> serde::Deserialize<'de> for Even {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let number = i64::deserialize(from)?;
        if number % 2 == 0 { Ok(Self(number)) } else { Err(serde::de::Error::custom(format!("{number} is odd"))) }
    }
}

#[tokio::test]
async fn a_result_that_fits_the_schema_and_not_the_type_is_asked_for_again() {
    let folder = tempfile::tempdir().unwrap();
    let runs = Runs::open(folder.path()).unwrap();
    let turns = json!([{"text": "3"}, {"text": "4", "expect": {"contains": ["refused all the same: 3 is odd"]}}]);
    let step = Step::new("even").model(model(&turns)).input("Give an even number.");
    for _ in 0..2 {
        assert_eq!(runs.run_for::<Even>(&step, "even").await.unwrap(), Even(4));
    }
    assert_eq!(runs.get("even").await.unwrap().turn_index, 2);
    // No result at all is one, too.
    let nothing = Step::new("nothing").model(model(&json!([{"text": "null"}]))).input("Give null.");
    runs.run_for::<()>(&nothing, "nothing").await.unwrap();
}

#[tokio::test]
async fn what_happens_in_a_run_is_a_stream_that_drives_it() {
    let folder = tempfile::tempdir().unwrap();
    let sent = Arc::new(AtomicUsize::new(0));
    let told = Arc::new(AtomicUsize::new(0));
    let counted = told.clone();
    let runs = Runs::open(folder.path()).unwrap().watched(move |_| {
        counted.fetch_add(1, Ordering::SeqCst);
    });
    let step = invoices(&sending(), &sent);
    let mut run = runs.stream(&step, "november");
    assert_eq!(sent.load(Ordering::SeqCst), 0, "nobody has read it");
    let mut events = Vec::new();
    while let Some(event) = run.next().await {
        events.push(event);
    }
    assert!(matches!(run.outcome().await.unwrap(), Outcome::Complete { turns: 2, .. }));
    let texts: Vec<&str> = events
        .iter()
        .filter_map(|event| if let RunEvent::Text { delta } = event { Some(delta.as_str()) } else { None })
        .collect();
    assert_eq!((texts, events.len()), (vec!["Sent."], told.load(Ordering::SeqCst)));
    assert!(events.iter().any(|event| matches!(event, RunEvent::Committed { turn: 2 })), "{events:?}");

    // Dropped in the middle it is a kill, and the next run goes on.
    let mut dropped = runs.stream(&step, "december");
    while !matches!(dropped.next().await, Some(RunEvent::Committed { turn: 1 }) | None) {}
    drop(dropped);
    let outcome = runs.run(&step, "december").await.unwrap();
    assert!(matches!(outcome, Outcome::Complete { turns: 2, .. }), "{outcome:?}");
    assert_eq!(sent.load(Ordering::SeqCst), 2);
}

/// Whatever the shape of an answer, what is large of it lies in one place.
#[tokio::test]
async fn a_large_text_is_stored_once() {
    let line = |number: usize| format!("a-line-of-{number}-that-is-long-enough-to-be-told-from-others ");
    let text = |lines: usize| (0..lines).map(line).collect::<String>();
    let shapes: [(&str, Value); 4] = [
        ("text", json!(text(3_000))),
        ("object with one large text", json!({"page": text(3_000), "found": true})),
        (
            "object",
            (0..30).map(|part| (format!("part_{part}"), json!(text(100)))).collect::<serde_json::Map<_, _>>().into(),
        ),
        ("list", (0..3_000).map(|number| json!(line(number))).collect::<Vec<_>>().into()),
    ];
    let kept = async |value: Value| {
        let folder = tempfile::tempdir().unwrap();
        let page = tool("page", "A page.", async move |_: Call, (): ()| Ok::<_, Failure>(value)).reads();
        let turns = json!([{"tools": [{"name": "mcp__program__page", "input": {}}]}, {"text": "Read."}]);
        let step = Step::new("page").model(model(&turns)).tool(page).input("Read.");
        let runs = Runs::open(folder.path()).unwrap();
        let outcome = runs.run(&step, "page").await.unwrap();
        assert!(matches!(outcome, Outcome::Complete { .. }), "{outcome:?}");
        drop(runs);
        ua_testkit::stored_bytes(&folder.path().join("runtime_state.db")).unwrap()
    };
    let nothing = kept(json!("short")).await;
    for (shape, value) in shapes {
        let size = value.to_string().len() as u64;
        let more = kept(value).await - nothing;
        assert!(more > size * 9 / 10 && more < size + size / 2, "{shape}: {size} bytes are kept as {more}");
    }
}

#[tokio::test]
async fn another_definition_is_refused_with_the_old_and_the_new_value() {
    let folder = tempfile::tempdir().unwrap();
    let runs = Runs::open(folder.path()).unwrap();
    let sent = Arc::new(AtomicUsize::new(0));
    let step = invoices(&sending(), &sent).max_turns(1);
    let stopped = runs.run(&step, "november").await.unwrap();
    assert!(matches!(stopped, Outcome::Stopped { .. }), "{stopped:?}");
    let error = runs.run(&step.clone().max_turns(7), "november").await.unwrap_err();
    let told = format!("{error:?}");
    assert!(told.contains("max_turns (stored: 1, now: 7)"), "{told}");
    let told = runs.set_budget("november", "max_turn", 5).await.unwrap_err().to_string();
    assert!(told.contains("max_tool_calls"), "{told}");
    runs.set_budget("november", "max_turns", 5).await.unwrap();
    let outcome = runs.run(&step, "november").await.unwrap();
    assert!(matches!(outcome, Outcome::Complete { turns: 2, .. }), "{outcome:?}");
    assert_eq!(sent.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn changed_tools_stop_a_run_until_the_program_accepts_them() {
    let folder = tempfile::tempdir().unwrap();
    let runs = Runs::open(folder.path()).unwrap();
    let sent = Arc::new(AtomicUsize::new(0));
    let first = invoices(&sending(), &sent).max_turns(1);
    let _stopped = runs.run(&first, "november").await.unwrap();
    runs.set_budget("november", "max_turns", 5).await.unwrap();
    let counted = sent.clone();
    let changed = tool("send_invoice", "Sends an invoice by post.", async move |_call, invoice: Invoice| {
        counted.fetch_add(1, Ordering::SeqCst);
        Ok::<_, Failure>(invoice.order)
    });
    let changed = Step::new("invoices")
        .model(model(&sending()))
        .tool(changed.external("invoice.send").keyed())
        .input("Send the invoice.")
        .max_turns(1);
    let stopped = runs.run(&changed, "november").await.unwrap();
    assert!(matches!(&stopped, Outcome::Stopped { detail, .. } if detail.contains("send_invoice")), "{stopped:?}");
    let refused = runs.run_accepting(&changed, "november", &[Component::Model]).await.unwrap_err().to_string();
    assert!(refused.contains("Runs::fork"), "{refused}");
    let refused = runs.stream_accepting(&changed, "november", &[Component::Model]).outcome().await.unwrap_err();
    assert!(refused.to_string().contains("Runs::fork"), "{refused}");
    let outcome = runs.stream_accepting(&changed, "november", &[Component::Tools]).outcome().await.unwrap();
    assert!(matches!(outcome, Outcome::Complete { .. }), "{outcome:?}");
    assert_eq!(sent.load(Ordering::SeqCst), 1);
}

/// A step is used under many ids: its tool finds the folder of the run that calls it, so each run has its own file.
#[tokio::test]
async fn a_tool_writes_into_the_folder_of_the_run_that_calls_it() {
    let folder = tempfile::tempdir().unwrap();
    let runs = Runs::open(folder.path()).unwrap();
    let there = runs.clone();
    let write = tool("write_page", "Writes the page.", async move |call: Call, (): ()| {
        let file = there.workspace(call.run())?.join("page.html");
        std::fs::write(file, call.run())?;
        Ok::<_, Failure>("Written.")
    });
    let turns = json!([{"tools": [{"name": "mcp__program__write_page", "input": {}}]}, {"text": "Done."}]);
    let step = Step::new("page")
        .model(model(&turns))
        .tool(write.local())
        .stop_when(serde_json::from_value(json!({"artifact": "page.html"})).unwrap())
        .input("Write the page.");
    for id in ["first", "second"] {
        let outcome = runs.run(&step, id).await.unwrap();
        assert!(matches!(outcome, Outcome::Complete { .. }), "{outcome:?}");
        let file = runs.workspace(id).unwrap().join("page.html");
        assert_eq!(std::fs::read_to_string(file).unwrap(), id);
    }
}

#[tokio::test]
async fn another_model_or_prompt_is_a_fork_that_does_not_send_again() {
    let folder = tempfile::tempdir().unwrap();
    let runs = Runs::open(folder.path()).unwrap();
    let sent = Arc::new(AtomicUsize::new(0));
    let step = invoices(&sending(), &sent).max_turns(1);
    let _stopped = runs.run(&step, "november").await.unwrap();
    let other = invoices(&sending(), &sent).system("Be brief.");
    assert!(runs.run(&other, "november").await.unwrap_err().to_string().contains("system (stored"));
    let none = runs.fork(&other, "brief", "november", Some(7)).await.unwrap_err().to_string();
    assert!(none.contains("1 committed"), "{none}");
    for _ in 0..2 {
        let fork = runs.fork(&other, "brief", "november", None).await.unwrap();
        assert_eq!(fork.parent_run_id.unwrap().as_str(), "november");
    }
    assert!(runs.fork(&other, "november", "brief", None).await.is_err(), "it is another run");
    let outcome = runs.run(&other, "brief").await.unwrap();
    assert!(matches!(&outcome, Outcome::Complete { final_output, .. } if final_output == "Sent."), "{outcome:?}");
    assert_eq!(sent.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_cancelled_run_ends_when_it_is_run_again_and_wait_sees_it() {
    let folder = tempfile::tempdir().unwrap();
    let runs = Runs::open(folder.path()).unwrap();
    let sent = Arc::new(AtomicUsize::new(0));
    let step = invoices(&sending(), &sent).max_turns(1);
    let _stopped = runs.run(&step, "november").await.unwrap();
    runs.cancel("november", "no more").await.unwrap();
    assert_eq!(runs.run(&step, "november").await.unwrap(), Outcome::Cancelled);
    assert!(runs.wait("november").await.unwrap().status.is_terminal());
    assert_eq!(runs.list(5).await.unwrap().len(), 1);
}

#[tokio::test]
async fn what_is_kept_has_no_secret_of_the_program() {
    let folder = tempfile::tempdir().unwrap();
    let runs = Runs::open(folder.path()).unwrap().secret("SHOP_KEY", "sk-0123456789");
    let leak = tool("look", "Looks.", async |_call, (): ()| Ok::<_, Failure>("the key is sk-0123456789"));
    let turns = json!([
        {"tools": [{"name": "mcp__program__look", "input": {}}]},
        {"text": "It says {{result:toolu_1_1}}"},
    ]);
    let step = Step::new("look").model(model(&turns)).tool(leak.reads()).input("Look.");
    let outcome = runs.run(&step, "look").await.unwrap();
    let Outcome::Complete { final_output, .. } = outcome else { panic!("{outcome:?}") };
    assert!(final_output.to_string().contains("[secret SHOP_KEY]"), "{final_output}");
}

/// What a program shares between its threads and tasks.
#[tokio::test]
async fn steps_runs_and_what_drives_them_go_from_thread_to_thread() {
    fn is_shared<T: Send + Sync + 'static>(_: &T) {}
    fn goes<T: Send>(going: T) -> T {
        going
    }
    let folder = tempfile::tempdir().unwrap();
    let runs = Runs::open(folder.path()).unwrap();
    let sent = Arc::new(AtomicUsize::new(0));
    let step = invoices(&sending(), &sent);
    is_shared(&runs);
    is_shared(&step);
    is_shared(&model(&sending()));
    drop(goes(runs.stream(&step, "never")));
    let outcome = tokio::spawn({
        let (runs, step) = (runs.clone(), step.clone());
        async move { goes(runs.run(&step, "november")).await }
    });
    assert!(matches!(outcome.await.unwrap().unwrap(), Outcome::Complete { .. }));
    let error: Box<dyn std::error::Error + Send + Sync> = runs.get("nobody").await.unwrap_err().into();
    assert!(error.to_string().contains("nobody"));
}

#[tokio::test]
async fn a_model_about_which_something_is_known_is_asked_within_it() {
    let folder = tempfile::tempdir().unwrap();
    let runs = Runs::open(folder.path()).unwrap();
    let page =
        tool("page", "A page.", async |_: Call, (): ()| Ok::<_, Failure>("words and words. ".repeat(500))).reads();
    let mut turns = vec![json!({"tools": [{"name": "mcp__program__page", "input": {}}]}); 8];
    turns.push(json!({"text": "Read.", "expect": {"contains": []}}));
    let facts = ua_sdk::ModelFacts { context: Some(16_000), max_output: Some(1_000), ..Default::default() };
    let step = Step::new("read").model(model(&json!(turns)).with_facts(facts)).tool(page).input("Read.");
    let outcome = runs.run(&step, "read").await.unwrap();
    let Outcome::Complete { usage, .. } = outcome else { panic!("{outcome:?}") };
    assert!(usage.requests["actual"] == 9, "{usage:?}");
    let records = runs.store().load(&ua_sdk::crates::ua_core::RunId::parse("read").unwrap()).await.unwrap();
    let largest = records.requests.iter().map(|request| request.estimated_tokens).max().unwrap();
    assert!((8_000..14_000).contains(&largest), "a request holds what the model takes: {largest}");
}

#[tokio::test]
async fn a_step_that_lacks_something_says_what() {
    let folder = tempfile::tempdir().unwrap();
    let runs = Runs::open(folder.path()).unwrap();
    let no_model = runs.run(&Step::new("empty").input("x"), "a").await.unwrap_err().to_string();
    assert!(no_model.contains("Step::model"), "{no_model}");
    let no_input = runs.run(&Step::new("empty").model(model(&json!([]))), "a").await.unwrap_err().to_string();
    assert!(no_input.contains("Step::input"), "{no_input}");
    let bad_id = runs.run(&Step::new("empty"), "a/b").await.unwrap_err().to_string();
    assert!(bad_id.contains("a/b"), "{bad_id}");
}

/// A database that is gone while workspaces are there is not made anew: it is what keeps effects from happening twice.
#[tokio::test]
async fn runs_whose_database_is_gone_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let sent = Arc::new(AtomicUsize::new(0));
    let runs = Runs::open(folder.path()).unwrap();
    let _done = runs.run(&invoices(&sending(), &sent), "november").await.unwrap();
    drop(runs);
    for file in ["runtime_state.db", "runtime_state.db-wal", "runtime_state.db-shm"] {
        let _may_be_missing = std::fs::remove_file(folder.path().join(file));
    }
    assert!(Runs::open(folder.path()).is_err());
}
