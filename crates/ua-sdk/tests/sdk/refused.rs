//! What keeps a program's step from being run, by what the program does about it; and what can be looked at all the same.

use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex};

use serde_json::json;
use ua_sdk::crates::{ua_core, ua_runner};
use ua_sdk::prelude::*;
use ua_sdk::{Constraints, FailureClass, RunEvent, RunStatus};

use crate::{Invoice, invoices, sending};

#[tokio::test]
async fn each_cause_is_told_from_the_others_without_reading_its_text() {
    let folder = tempfile::tempdir().unwrap();
    let runs = Runs::open(folder.path()).unwrap();
    let step = invoices(&sending(), &Arc::new(AtomicUsize::new(0)));
    let stopped = runs.run(&step.clone().max_turns(1), "november").await.unwrap();
    assert!(matches!(stopped, Outcome::Stopped { .. }), "{stopped:?}");

    // No such run.
    let nowhere = [
        runs.get("nosuch").await.map(drop),
        runs.questions("nosuch").await.map(drop),
        runs.cancel("nosuch", "enough").await,
        runs.set_budget("nosuch", "max_turns", 5).await,
        runs.fork(&step, "brief", "nosuch", None).await.map(drop),
    ];
    for missing in nowhere.map(Result::unwrap_err) {
        assert!(matches!(&missing, Error::NoSuchRun { id } if id == "nosuch"), "{missing}");
        assert_eq!(missing.to_string(), "there is no run `nosuch`; `Runs::list` has those that there are");
    }
    // No such turn.
    let ahead = runs.fork(&step, "brief", "november", Some(9)).await.unwrap_err();
    assert!(matches!(&ahead, Error::Refused(why) if why.contains("turn 9")), "{ahead}");

    // Another definition, with the parts that are another one.
    let another = runs.run(&step.clone().max_turns(1).system("Be brief."), "november").await.unwrap_err();
    let Error::AnotherDefinition { differs, .. } = &another else { panic!("{another}") };
    assert_eq!(differs.iter().map(|part| part.part.as_str()).collect::<Vec<_>>(), ["system"]);
    assert!(another.to_string().contains("`Runs::fork`"), "{another}");

    // Driven by somebody else, who lets go of it.
    let run = ua_core::RunId::parse("november").unwrap();
    let owner = ua_runner::owner_stamp(ua_core::Trace::new(&ua_core::system::env()));
    let lock = ua_runner::RunLock::take(&folder.path().join("locks"), &run, &owner).unwrap();
    let held = runs.run(&step.clone().max_turns(1), "november").await.unwrap_err();
    assert!(matches!(&held, Error::DrivenElsewhere { run, .. } if run.as_str() == "november"), "{held}");
    assert!(
        held.to_string().contains("another task of this process") && held.to_string().contains("`Runs::wait`"),
        "{held}"
    );
    assert_eq!(held.class(), FailureClass::Transient);
    drop(lock);

    // Its files are gone.
    std::fs::remove_dir_all(runs.workspace("november").unwrap()).unwrap();
    let gone = runs.run(&step.clone().max_turns(1), "november").await.unwrap_err();
    assert!(matches!(&gone, Error::Files { why } if why.contains("november")), "{gone}");

    // What a program says of its tools is told by the tool, not by a line of a file that nobody has.
    let odd = tool("send_it", "Sends.", async |_: Call, (): ()| Ok::<_, Failure>(())).external("Invoice");
    let odd = runs.run(&step.tool(odd), "december").await.unwrap_err();
    assert!(matches!(&odd, Error::Step(why) if why.contains("`send_it`") && why.contains("email.send")), "{odd}");
}

#[tokio::test]
async fn runs_that_cannot_be_written_can_be_looked_at() {
    let folder = tempfile::tempdir().unwrap();
    let step = invoices(&sending(), &Arc::new(AtomicUsize::new(0)));
    let missing = Runs::open_read_only(folder.path()).unwrap_err();
    assert!(matches!(missing, Error::Store { .. }), "{missing}");
    // Its text has every cause, so what prints a chain of causes must find no other.
    assert!(std::error::Error::source(&missing).is_none() && missing.to_string().contains(": "), "{missing}");
    let runs = Runs::open(folder.path()).unwrap();
    assert!(matches!(runs.run(&step, "november").await.unwrap(), Outcome::Complete { .. }));
    drop(runs);

    let files = || {
        let mut names: Vec<_> = walk(folder.path());
        names.sort();
        names
    };
    let before = files();
    let runs = Runs::open_read_only(folder.path()).unwrap();
    assert_eq!(runs.list(5).await.unwrap().len(), 1);
    assert_eq!(runs.get("november").await.unwrap().status, RunStatus::Succeeded);
    assert!(runs.questions("november").await.unwrap().is_empty() && runs.unfinished().await.unwrap().is_empty());
    assert!(runs.forgotten("november").await.unwrap().is_empty());
    assert_eq!(runs.input("november").await.unwrap(), "Send the invoice.");
    let calls = runs.calls("november").await.unwrap();
    assert!(runs.receipt(calls[0].call_id.as_str()).await.unwrap().is_some());
    assert!(
        !runs.usage("november").await.unwrap().requests.is_empty() && runs.all_questions().await.unwrap().is_empty()
    );
    assert_eq!(runs.budgets("november").await.unwrap().max_turns, Some(20));
    for refused in [
        runs.run(&step, "november").await.map(drop).unwrap_err(),
        runs.fork(&step, "brief", "november", None).await.map(drop).unwrap_err(),
    ] {
        assert!(matches!(&refused, Error::Refused(why) if why.contains("`Runs::open`")), "{refused}");
    }
    for refused in [
        runs.cancel("november", "enough").await.unwrap_err(),
        runs.set_budget("november", "max_turns", 40).await.unwrap_err(),
        runs.raise_budget("november", "max_turns", 40).await.map(drop).unwrap_err(),
        runs.delete("november").await.unwrap_err(),
        runs.prune(std::time::Duration::ZERO).await.map(drop).unwrap_err(),
        runs.accept_forgotten("november").await.map(drop).unwrap_err(),
    ] {
        assert!(matches!(&refused, Error::Refused(why) if why.contains("`Runs::open`")), "{refused}");
        assert_eq!(refused.class(), FailureClass::Permanent, "{refused}");
    }
    drop(runs);
    assert_eq!(files(), before, "nothing is made by looking");
}

/// Every file below a folder, but for those that SQLite keeps beside an open database.
fn walk(folder: &std::path::Path) -> Vec<std::path::PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let below = |path: std::path::PathBuf| if path.is_dir() { walk(&path) } else { vec![path] };
    let is_of_sqlite = |path: &std::path::PathBuf| {
        path.to_string_lossy().ends_with(".db-wal") || path.to_string_lossy().ends_with(".db-shm")
    };
    entries.flat_map(below).filter(|path| !is_of_sqlite(path)).collect()
}

#[tokio::test]
async fn what_could_not_be_noted_beside_the_database_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let told = Arc::new(Mutex::new(Vec::new()));
    let heard = told.clone();
    let runs = Runs::open(folder.path()).unwrap().watched(move |event| {
        if let RunEvent::NotNoted { why } = event {
            heard.lock().unwrap().push(why);
        }
    });
    let log = folder.path().join("effects.log");
    let spoil = move |_: Call, (): ()| {
        let log = log.clone();
        async move { std::fs::create_dir(log).map(|()| "A-17 has no invoice").map_err(Failure::from) }
    };
    let turns = json!([
        {"tools": [{"name": "mcp__program__look", "input": {}}]},
        {"tools": [{"name": "mcp__program__send_invoice", "input": {"order": "A-17", "cents": 900}}]},
        {"text": "Sent."},
    ]);
    let send = tool("send_invoice", "Sends.", async |_: Call, invoice: Invoice| Ok::<_, Failure>(invoice.order));
    let step = Step::new("invoices")
        .model(crate::model(&turns))
        .tool(tool("look", "Looks.", spoil).reads())
        .tool(send.external("invoice.send").keyed())
        .input("Send the invoice.");
    assert_eq!(runs.unnoted(), None);
    assert!(matches!(runs.run(&step, "november").await.unwrap(), Outcome::Complete { .. }));
    let why = runs.unnoted().unwrap();
    assert!(why.contains("effects.log"), "{why}");
    assert_eq!(*told.lock().unwrap(), [why]);
}

/// What a step says is stored as it is and sent to the model, so a key that the program knows is not in it.
#[tokio::test]
async fn a_step_that_says_a_key_is_refused_before_anything_is_stored() {
    let folder = tempfile::tempdir().unwrap();
    let runs = Runs::open(folder.path()).unwrap().secret("SHOP_KEY", "shop-0123456789");
    let step = || Step::new("ask").model(crate::model(&json!([{"text": "Yes."}])).secret("MODEL_KEY", "sk-0123456789"));
    let look = |words: &str| tool("look", words, async |_: Call, (): ()| Ok::<_, Failure>(())).reads();
    let to = |address: &str| Constraints { allowed_recipients: vec![address.to_owned()], ..Constraints::default() };
    for (step, part, name) in [
        (step().input("Use sk-0123456789."), "its input", "MODEL_KEY"),
        (step().input(json!({"shop": {"key": "shop-0123456789"}})), "its input", "SHOP_KEY"),
        (step().system("Say shop-0123456789.").input("Go."), "its system prompt", "SHOP_KEY"),
        (step().input("Go.").output_schema(json!({"description": "sk-0123456789"})), "its output schema", "MODEL_KEY"),
        (step().input("Go.").tool(look("Uses shop-0123456789.")), "its tool `look`", "SHOP_KEY"),
        (step().input("Go.").constraints(to("sk-0123456789@a.example")), "its constraints", "MODEL_KEY"),
        (step().input("Go.").policy("# shop-0123456789"), "its policy", "SHOP_KEY"),
        (
            Step::new("shop-0123456789").model(crate::model(&json!([{"text": "Yes."}]))).input("Go."),
            "its name",
            "SHOP_KEY",
        ),
    ] {
        let refused = runs.run(&step, "november").await.unwrap_err();
        let (Error::Step(why) | Error::Input(why)) = &refused else { panic!("{refused}") };
        assert_eq!(matches!(refused, Error::Input(_)), part == "its input", "{refused}");
        assert!(why.contains(part) && why.contains(name) && !why.contains("0123456789"), "{why}");
        assert!(runs.list(10).await.unwrap().is_empty(), "nothing is stored");
    }
    assert!(matches!(runs.run(&step().input("Go."), "november").await.unwrap(), Outcome::Complete { .. }));
    let fork = runs.fork(&step().input("Use sk-0123456789."), "brief", "november", None).await.unwrap_err();
    assert!(matches!(&fork, Error::Input(why) if why.contains("MODEL_KEY")), "{fork}");
    let taken = runs.run(&step().input("Go on."), "another").await.unwrap();
    assert!(matches!(taken, Outcome::Complete { .. }), "{taken}");
    let taken = runs.fork(&step().input("Go on."), "another", "november", None).await.unwrap_err();
    assert!(matches!(&taken, Error::Refused(why) if why.contains("`another`")), "{taken}");
    let id = runs.run(&step().input("Go."), "sk-0123456789").await.unwrap_err();
    assert!(matches!(&id, Error::Step(why) if why.contains("its run id")), "{id}");
    // The reason of a cancel is kept, too.
    let waiting = tool("look", "Looks.", async |_: Call, (): ()| Ok::<_, Failure>(())).approved_by_a_person();
    let turns = json!([{"tools": [{"name": "mcp__program__look", "input": {}}]}]);
    let waiting = Step::new("wait").model(crate::model(&turns)).tool(waiting).input("Go.");
    assert!(matches!(runs.run(&waiting, "october").await.unwrap(), Outcome::Waiting { .. }));
    runs.cancel("october", "shop-0123456789 was stolen").await.unwrap();
    let reason = runs.get("october").await.unwrap().cancel_reason.unwrap();
    assert!(reason.contains("SHOP_KEY") && !reason.contains("0123456789"), "{reason}");
}

/// A program has no server that would look at what the runner cannot check, so a schema that it would not hold a model to is refused.
#[tokio::test]
async fn a_type_of_arguments_that_would_not_be_enforced_is_refused() {
    #[derive(Deserialize, JsonSchema)]
    struct Plain {
        #[schemars(extend("pattern" = "^[a-z]+$"))]
        name: String,
    }
    #[derive(Deserialize, JsonSchema)]
    struct Backtracking {
        #[schemars(extend("pattern" = "^(?!evil)[a-z]+$"))]
        name: String,
    }
    let folder = tempfile::tempdir().unwrap();
    let runs = Runs::open(folder.path()).unwrap();
    let step = || Step::new("look").model(crate::model(&json!([{"text": "Seen."}]))).input("Look.");
    let plain = tool("look", "Looks.", async |_: Call, given: Plain| Ok::<_, Failure>(given.name)).reads();
    let wrong = tool("look", "Looks.", async |_: Call, given: Backtracking| Ok::<_, Failure>(given.name)).reads();
    let refused = runs.run(&step().tool(wrong), "november").await.unwrap_err();
    assert!(matches!(&refused, Error::Step(why) if why.contains("`look`") && why.contains("(?!")), "{refused}");
    assert!(runs.list(10).await.unwrap().is_empty(), "nothing is stored");
    assert!(matches!(runs.run(&step().tool(plain), "november").await.unwrap(), Outcome::Complete { .. }));
}
