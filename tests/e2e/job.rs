//! Jobs from start to end: effects happen once, evidence decides, and what a model gets wrong it is told.

use std::fs;

use mail_parser::{MessageParser, MimeHeaders as _};
use serde_json::{Value, json};
use ua_core::sha256;
use ua_e2e::until;
use ua_testkit::workspace_root;

use super::env;

/// The research job of this repository.
fn research_job() -> String {
    workspace_root().join("fixtures/jobs/research_report.json").display().to_string()
}

fn mail() -> Value {
    json!({"to": ["team@example.test"], "subject": "News", "body": "It is done."})
}

fn tool(name: &str, input: &Value) -> Value {
    json!({"tools": [{"name": format!("mcp__ua__{name}"), "input": input}]})
}

#[test]
fn the_research_job_leaves_one_of_each_effect_and_a_receipt_for_each() {
    let env = env().with_pdf();
    let output = env.run(&["job", &research_job(), "--run-id", "research"]).code(0);
    assert_eq!(env.effects(), [1, 1, 1, 0]);
    assert_eq!(env.run_status(), "succeeded");
    let workspace = env.workspace();
    let report = fs::read(workspace.join("work_products/report.pdf")).unwrap();
    assert!(report.starts_with(b"%PDF-"));
    let page = fs::read_to_string(workspace.join("work_products/report.html")).unwrap();
    assert!(page.contains("<h1>Tide mills: power by appointment</h1>"), "{page}");

    let raw = fs::read(&env.mails()[0]).unwrap();
    let message = MessageParser::default().parse(&raw).unwrap();
    assert_eq!(message.subject(), Some("Report: tide mills"));
    assert_eq!(message.to().unwrap().first().unwrap().address(), Some("team@example.test"));
    assert!(message.body_text(0).unwrap().contains("the report about tide mills is done"));
    let attachments: Vec<_> = message.attachments().collect();
    assert_eq!(attachments.len(), 1);
    assert_eq!(attachments[0].attachment_name(), Some("report.pdf"));
    assert_eq!(sha256(attachments[0].contents()), sha256(&report));
    assert_eq!(fs::read(&env.objects()[0]).unwrap(), report);
    let notification: Value = serde_json::from_slice(&fs::read(&env.notifications()[0]).unwrap()).unwrap();
    assert!(notification.to_string().contains("Report sent"), "{notification}");

    let completion: Value =
        serde_json::from_slice(&fs::read(workspace.join("job_completion_research.json")).unwrap()).unwrap();
    let page = fs::read_to_string(workspace.join("job_completion_research.md")).unwrap();
    assert_eq!(completion["status"], "succeeded");
    let rows =
        env.rows("SELECT tool_call_id, external_correlation_id FROM tool_calls WHERE side_effect_class = 'external'");
    assert_eq!(rows.len(), 3);
    for row in rows {
        let (call, receipt) = row.split_once(' ').unwrap();
        for id in [call, receipt] {
            assert!(page.contains(id), "{id} is missing in\n{page}");
            assert!(completion.to_string().contains(id), "{id} is missing in\n{completion}");
        }
    }
    assert!(completion.to_string().contains(&sha256(&report).to_string()));

    let trace: Value = serde_json::from_slice(&fs::read(workspace.join("trace.json")).unwrap()).unwrap();
    assert!(trace.to_string().contains("send_email"));
    for line in fs::read_to_string(workspace.join("trace.jsonl")).unwrap().lines() {
        assert!(serde_json::from_str::<Value>(line).unwrap()["event"].is_string());
    }
    let transcript = fs::read_to_string(workspace.join("transcript.md")).unwrap();
    assert!(transcript.contains("send_email") && transcript.contains("The report is rendered. I publish it."));
    assert!(fs::read_to_string(workspace.join("session_summary.txt")).unwrap().contains("succeeded"));
    let restart = env.read("root/RESTART.md");
    assert!(
        restart.contains("research")
            && restart.contains(&workspace.display().to_string())
            && restart.contains("nothing to resume")
    );

    let root = env.root().display().to_string();
    insta::with_settings!({filters => vec![
        (root.as_str(), "[root]"),
        (r"session_\d{8}_\d{6}_", "session_[time]_"),
        (r"[0-9a-f]{32}", "[id]"),
        (r"[0-9a-f]{16}-report", "[digest]-report"),
    ]}, {
        insta::assert_snapshot!(output.stdout, @r"
        succeeded · run research

          The report about tide mills is written, published and mailed to the team.

        Effects
          upload                   succeeded       file://[root]/objects/[digest]-report.pdf
          send_email               succeeded       <[id]@ua.invalid>
          notify                   succeeded       [id]
          The built-in send_email put its mails into a folder; no mail server is set (UA_MAIL), so nothing left this machine by it

        Main artifact  [root]/session_[time]_research/work_products/report.pdf

        Workspace      [root]/session_[time]_research
        Details        [root]/session_[time]_research/job_completion_research.md
        ");
    });
}

#[test]
fn the_same_command_again_says_that_the_run_is_finished() {
    let env = env();
    let job = env.job(
        &json!({"stop_conditions": ["email_sent_once"]}),
        &json!([tool("send_email", &mail()), {"text": "Sent."}]),
    );
    env.run(&["job", &job, "--run-id", "once"]).code(0);
    let again = env.run(&["job", &job, "--run-id", "once"]).code(0);
    again.says(&["run once is already finished", "nothing was run"]).shows(&["succeeded · run once"]);
    env.run(&["resume", "last"]).code(0).says(&["already finished"]);
    env.run(&["job", "--resume", "--run-id", "once"]).code(0).says(&["already finished"]);
    assert_eq!(env.effects(), [1, 0, 0, 0]);
    assert_eq!(env.calls(), ["send_email succeeded"]);
}

#[test]
fn a_run_id_belongs_to_one_job() {
    let env = env();
    let turns = json!([tool("send_email", &mail()), {"text": "Sent."}]);
    env.run(&["job", &env.named_job("a", &json!({}), &turns), "--run-id", "r"]).code(0);
    let other = env.named_job("b", &json!({"objective": "Something else."}), &turns);
    env.run(&["job", &other, "--run-id", "r"]).refused(2, &["run r exists", "another job", "--run-id"]);
    assert_eq!(env.effects(), [1, 0, 0, 0]);
    assert_eq!(env.rows("SELECT run_id FROM runs"), ["r"]);
}

/// The line says which call it is about, as the lines around it do.
#[test]
fn what_comes_in_the_middle_of_a_call_is_told_with_the_place_of_the_call() {
    let env = env();
    env.mcp_config("work/.mcp.json", &json!({"forum": env.forum_entry(&["--print", "Sending..."])}));
    let post = json!({"name": "mcp__forum__post_comment", "input": {"text": "one", "until": env.arg("go")}});
    let job = env.job(&json!({"tools": {"builtin": false}}), &json!([{"tools": [post]}, {"text": "Done."}]));
    let live = env.start(&["job", &job]);
    let line = "] turn 1 · call 1 · post_comment · its server wrote something to its standard output that is not an MCP message: \"Sending...\"";
    until("the line about the call", || live.stderr().contains(line));
    env.write("go", "");
    live.wait().code(0);
}

/// Whichever stores the run first drives it; to the others it is what it is a moment later.
#[test]
fn of_several_starts_under_one_name_one_runs_and_the_others_say_who_has_it() {
    let env = env().with_forum();
    let input = json!({"text": "once", "until": env.arg("go")});
    let turns = json!([{"tools": [{"name": "mcp__forum__post_comment", "input": input}]}, {"text": "Posted."}]);
    let job = env.job(&json!({"tools": {"builtin": false}}), &turns);
    let started: Vec<_> = (0..4).map(|_| env.start(&["job", &job, "--run-id", "z"])).collect();
    let refused = || started.iter().filter(|start| start.stderr().contains("run z is already driven by")).count();
    until("three to be refused", || refused() == 3);
    env.write("go", "");
    let mut ended: Vec<_> = started.into_iter().map(ua_e2e::Live::wait).collect();
    let at_work = ended.iter().position(|output| output.stdout.contains("succeeded")).unwrap();
    ended.remove(at_work).code(0);
    for refused in ended {
        refused.refused(75, &["ua resume z --take-over"]);
    }
    assert_eq!(env.comments().len(), 1);
}

#[test]
fn a_job_key_is_used_once() {
    let env = env();
    let job = env.job(&json!({"job_key": "invoice 2026-11"}), &json!([tool("send_email", &mail()), {"text": "Sent."}]));
    env.run(&["job", &job, "--run-id", "r"]).code(0);
    env.run(&["job", &job]).code(0).says(&["\"invoice 2026-11\"", "--again"]).shows(&["succeeded · run r", "Sent."]);
    assert_eq!(env.effects(), [1, 0, 0, 0]);
    // The same run by its name is no second start; a copy of the job under another name is one.
    env.run(&["job", &job, "--run-id", "r"]).code(0).says(&["already finished"]);
}

/// A run of an older version may have its key as the file had it, with letters and their marks apart: it answers for that key however it is written.
#[test]
fn a_job_key_is_used_once_also_where_an_older_run_has_it_apart() {
    let env = env();
    let (together, apart) = ("caf\u{e9} 2026-11", "cafe\u{301} 2026-11");
    let job = |key: &str| env.job(&json!({"job_key": key}), &json!([tool("send_email", &mail()), {"text": "Sent."}]));
    env.run(&["job", &job(together), "--run-id", "r"]).code(0);
    let database = rusqlite::Connection::open(env.database_path()).unwrap();
    assert_eq!(database.execute("UPDATE runs SET job_key = ?1", [apart]).unwrap(), 1);
    drop(database);
    for key in [together, apart] {
        env.run(&["job", &job(key)]).code(0).says(&["--again"]).shows(&["succeeded · run r", "Sent."]);
    }
    assert_eq!(env.effects(), [1, 0, 0, 0]);
    assert_eq!(env.rows("SELECT run_id FROM runs"), ["r"]);
}

#[test]
fn the_quick_resume_job_ends_by_itself() {
    let env = env();
    let read = |name: &str| fs::read_to_string(workspace_root().join("fixtures").join(name)).unwrap();
    env.write("work/scripts/quick_resume_job.json", read("scripts/quick_resume_job.json").replace("\"30\"", "\"0.1\""));
    let job = env.write("work/jobs/quick.json", read("jobs/quick_resume_job.json"));
    env.run(&["job", &job]).code(0).shows(&["DONE"]);
    assert_eq!(
        env.calls(),
        ["run_command succeeded", "run_command succeeded", "write_local_file succeeded", "list_directory succeeded"]
    );
    assert!(
        fs::read_to_string(env.workspace().join("work_products/resume_test.txt"))
            .unwrap()
            .contains("resume test, written at 2")
    );
}

#[test]
fn the_same_email_asked_for_again_is_answered_by_the_first_receipt() {
    let env = env();
    let again =
        json!({"tools": [{"name": "mcp__ua__send_email", "input": mail()}], "expect": {"tool_result_ok": true}});
    let turns = json!([
        tool("send_email", &mail()),
        again,
        {"text": "Sent.", "expect": {"contains": ["[deduplicated]", "it was not repeated"], "tool_result_ok": true}},
    ]);
    let output = env.run(&["job", &env.job(&json!({"stop_conditions": ["email_sent_once"]}), &turns)]).code(0);
    output.shows(&["send_email               not repeated"]).says(&["done before, not repeated"]);
    assert_eq!(env.effects(), [1, 0, 0, 0]);
    assert_eq!(env.value("SELECT count(*) FROM tool_attempts"), "1");
    assert_eq!(env.value("SELECT count(*) FROM tool_calls WHERE deduplicated_from IS NOT NULL AND attempt = 0"), "1");
}

#[test]
fn a_model_that_stops_early_is_told_what_is_missing() {
    let env = env();
    let missing = json!({"contains": ["not finished", "email.send exactly 1×", "work_products/note.md"]});
    let note = json!({"path": "work_products/note.md", "content": "It is done."});
    let turns = json!([
        {"text": "I am done."},
        {"tools": [
            {"name": "mcp__ua__write_local_file", "input": note},
            {"name": "mcp__ua__send_email", "input": mail()},
        ], "expect": missing},
        {"text": "Now I am done."},
    ]);
    let conditions = json!(["email_sent_once", {"artifact": "work_products/note.md"}]);
    env.run(&["job", &env.job(&json!({"stop_conditions": conditions}), &turns)]).code(0).shows(&["Now I am done."]);
    assert_eq!(env.effects(), [1, 0, 0, 0]);
}

#[test]
fn a_model_that_only_claims_success_does_not_get_it() {
    let env = env();
    let job = env.job(&json!({"stop_conditions": ["email_sent_once"]}), &json!([{"text": "I sent the e-mail."}]));
    let output = env.run(&["job", &job, "--run-id", "r"]).code(75);
    output.shows(&["waiting for you", "this is missing", "email.send exactly 1×", "ua answer", "ua resume r"]);
    assert_eq!((env.run_status().as_str(), env.effects()), ("waiting_for_human", [0, 0, 0, 0]));
    let question = env.value("SELECT question_id FROM questions");
    env.run(&["answer", &question, "abort"]).code(0);
    env.run(&["resume", "r"]).code(1).shows(&["failed", "abort"]);
    assert_eq!(env.effects(), [0, 0, 0, 0]);
}

#[test]
fn a_turn_that_exceeds_the_budget_is_not_started() {
    let env = env();
    let two = json!({"tools": [
        {"name": "mcp__ua__send_email", "input": mail()},
        {"name": "mcp__ua__notify", "input": {"title": "News", "message": "It is done."}},
    ]});
    let list = tool("list_directory", &json!({"path": "."}));
    let job = env.job(&json!({"budgets": {"max_tool_calls": 2}}), &json!([list, two, {"text": "Done."}]));
    let output = env.run(&["job", &job, "--run-id", "r"]).code(75);
    output.shows(&["stopped (budget)", "max_tool_calls (2)", "ua resume r"]);
    assert_eq!(env.effects(), [0, 0, 0, 0]);
    assert_eq!(env.calls(), ["list_directory succeeded", "send_email prepared", "notify prepared"]);
    // Asked to go on without more budget, it stops again.
    env.run(&["resume", "r"]).code(75).shows(&["stopped (budget)"]);
    assert_eq!(env.effects(), [0, 0, 0, 0]);
    env.run(&["resume", "r", "--max-tool-calls", "many"]).refused(2, &["--max-tool-calls many"]);
    // With more, it goes on where it stopped. The contract stays as it is; the change is kept beside it.
    env.run(&["resume", "r", "--max-tool-calls", "+5"]).code(0).says(&["max_tool_calls is 7 now"]);
    assert_eq!(env.effects(), [1, 0, 1, 0]);
    env.run(&["runs", "show", "r"]).code(0).shows(&["Changed since the start", "max_tool_calls is 7 now"]);
    assert_eq!(env.value("SELECT json_extract(run_spec_json, '$.budgets.max_tool_calls') FROM runs"), "2");
}

#[test]
fn wrong_names_and_arguments_are_corrected_by_the_model() {
    let env = env();
    let wrong = json!({"tools": [
        {"name": "send_email", "input": mail()},
        {"name": "mcp__ua__send_email", "input": {"to": "team@example.test"}},
        {"name": "mcp__ua__send_email", "input": "{\"to\": [}"},
        {"name": "mcp__ua__sendmail", "input": {}},
    ]});
    let right = json!({"tools": [{"name": "mcp__ua__send_email", "input": mail()}], "expect": {
        "contains": ["Did you mean `mcp__ua__send_email`?", "do not fit the tool's schema", "a JSON object that cannot be read"],
        "tool_result_ok": false,
    }});
    env.run(&["job", &env.job(&json!({}), &json!([wrong, right, {"text": "Sent."}]))]).code(0);
    assert_eq!(env.effects(), [1, 0, 0, 0]);
    assert_eq!(env.value("SELECT count(*) FROM tool_calls WHERE status = 'cancelled'"), "4");
}

#[test]
fn a_forbidden_action_is_neither_offered_nor_done() {
    let env = env();
    let turns = json!([
        tool("send_email", &mail()),
        {"tools": [{"name": "mcp__ua__notify", "input": {"title": "News", "message": "It is done."}}],
         "expect": {"contains": ["This job forbids `send_email`"], "tool_result_ok": false}},
        {"text": "Only notified."},
    ]);
    env.run(&["job", &env.job(&json!({"constraints": {"forbidden_actions": ["email.*"]}}), &turns)]).code(0);
    assert_eq!(env.effects(), [0, 0, 1, 0]);
    assert_eq!(env.calls(), ["send_email cancelled", "notify succeeded"]);
}

#[test]
fn two_reads_and_an_effect_of_one_turn_all_happen() {
    let env = env();
    let note = |n: usize| json!({"path": format!("work_products/{n}.md"), "content": format!("note {n}")});
    let write = |n: usize| json!({"name": "mcp__ua__write_local_file", "input": note(n)});
    let read =
        |n: usize| json!({"name": "mcp__ua__read_local_file", "input": {"path": format!("work_products/{n}.md")}});
    let turns = json!([
        {"tools": [write(1), write(2)]},
        {"tools": [read(1), read(2), {"name": "mcp__ua__send_email", "input": mail()}]},
        {"text": "Done.", "expect": {"contains": ["note 1", "note 2"], "tool_result_ok": true}},
    ]);
    env.run(&["job", &env.job(&json!({}), &turns)]).code(0);
    assert_eq!(env.effects(), [1, 0, 0, 0]);
    assert!(env.calls().iter().all(|call| call.ends_with(" succeeded")), "{:?}", env.calls());
}

#[test]
fn after_an_effect_that_failed_the_later_ones_of_its_turn_are_not_run() {
    let env = env();
    let turns = json!([
        {"tools": [
            {"name": "mcp__ua__upload", "input": {"path": "work_products/gone.html"}},
            {"name": "mcp__ua__send_email", "input": mail()},
        ]},
        {"text": "It failed.", "expect": {"contains": ["Not run: the earlier call `upload`"], "tool_result_ok": false}},
    ]);
    env.run(&["job", &env.job(&json!({}), &turns)]).code(0);
    assert_eq!(env.effects(), [0, 0, 0, 0]);
    assert_eq!(env.calls(), ["upload failed", "send_email cancelled"]);
}

#[test]
fn the_tool_servers_of_a_run_end_with_it() {
    let env = env().with_forum();
    let turns =
        json!([{"tools": [{"name": "mcp__forum__post_comment", "input": {"text": "hello"}}]}, {"text": "Done."}]);
    env.run(&["job", &env.job(&json!({}), &turns)]).code(0);
    assert_eq!(env.processes(), [""; 0]);
}

#[test]
fn two_runs_of_one_root_do_not_disturb_each_other() {
    let env = env();
    let turns = json!([tool("send_email", &mail()), {"text": "Sent."}]);
    let job = env.job(&json!({}), &turns);
    let other = env.start(&["job", &job, "--run-id", "a"]);
    env.run(&["job", &job, "--run-id", "b"]).code(0);
    other.wait().code(0);
    // Two runs are two lineages: each sends its own.
    assert_eq!(env.effects(), [2, 0, 0, 0]);
    assert_eq!(env.rows("SELECT run_id, status FROM runs ORDER BY run_id"), ["a succeeded", "b succeeded"]);
}

#[test]
fn runs_are_kept_below_the_working_directory_unless_told_otherwise() {
    let env = env().with_forum();
    let job = env.job(&json!({"tools": {"builtin": false}}), &json!([{"text": "Nothing to do."}]));
    let output = env.run_bare(&["job", &job, "--run-id", "r"]).code(0);
    assert!(env.path("work/AGENT_RUN_WORKSPACES/runtime_state.db").exists(), "{}", output.shown());
    env.run_bare(&["runs", "show", "last"]).code(0).shows(&["succeeded · run r"]);
    assert!(!env.root().exists());
    // The database may lie elsewhere.
    let elsewhere = env.arg("state/runs.db");
    let output = env.start_with(("UA_RUNTIME_DB_PATH", &elsewhere), &["job", &job, "--run-id", "r"]).wait().code(0);
    assert!(env.path("state/runs.db").exists() && !env.database_path().exists(), "{}", output.shown());
    // Whoever forgets to name it is told where it is, and no other one is begun.
    let words = [elsewhere.as_str(), "(UA_RUNTIME_DB_PATH)", "`export UA_RUNTIME_DB_PATH="];
    for command in [&["resume", "r"][..], &["runs", "list"], &["job", &job]] {
        env.run(command).refused(74, &words);
    }
    assert!(!env.database_path().exists());
    let stops =
        env.job(&json!({"budgets": {"max_turns": 1}}), &json!([tool("send_email", &mail()), {"text": "Sent."}]));
    env.start_with(("UA_RUNTIME_DB_PATH", &elsewhere), &["job", &stops, "--run-id", "s"]).wait().code(75);
    let page = env.read("root/RESTART.md");
    assert!(page.contains(&format!("    UA_RUNTIME_DB_PATH={elsewhere} ua resume s --max-turns")), "{page}");
}

#[test]
fn the_same_command_after_a_crash_finds_the_run_and_starts_nothing() {
    let env = env();
    let job = env.job(&json!({}), &json!([tool("send_email", &mail()), {"text": "Sent."}]));
    env.run_killed_at("before:tool.invoke:send_email", &["job", &job]);
    let run = env.value("SELECT run_id FROM runs");
    // The same folder in a new container, which is called something else.
    let database = rusqlite::Connection::open(env.database_path()).unwrap();
    database.execute("UPDATE runs SET owner_json = json_set(owner_json, '$.host', 'another')", []).unwrap();
    drop(database);
    assert!(env.read("root/RESTART.md").contains(&run));
    let output = env.run(&["job", &job]).code(75);
    output.says(&[&run, "of the same job was killed", &format!("ua resume {run}"), "--new"]);
    let told: Value = serde_json::from_str(&env.run(&["job", &job, "--json"]).code(75).stderr).unwrap();
    assert_eq!((&told["error"]["kind"], &told["error"]["run_id"]), (&json!("unfinished_run"), &json!(run)));
    assert_eq!(env.value("SELECT count(*) FROM runs"), "1");
    // Another job, a name of its own, or a word for it: each is another run on purpose.
    env.run(&["job", &job, "--run-id", "named"]).code(0);
    env.run(&["job", &job, "--new"]).code(0);
    env.run(&["resume", &run]).code(0);
    // Nothing is left to finish, so it is started.
    env.run(&["job", &job]).code(0);
    assert_eq!(env.value("SELECT count(*) FROM runs"), "4");
}

/// Killed when its run is stored, before it is begun: there is one run of the job, which the same command finds, whoever was to drive it.
#[test]
fn a_run_that_is_stored_and_was_never_begun_is_found_by_the_same_command() {
    let env = env();
    let job = env.job(&json!({}), &json!([tool("send_email", &mail()), {"text": "Sent."}]));
    env.run_killed_at("before:store.acquire_run", &["job", &job]);
    let run = env.value("SELECT run_id FROM runs");
    let resume = format!("ua resume {run}");
    for args in [&["job", &job] as &[&str], &["job", "--check", &job]] {
        env.run(args).code(75).says(&[&run, "of the same job is stored, and was never begun", &resume, "--new"]);
    }
    env.run(&["submit", &job]).code(75).says(&["never begun", &format!("ua submit --run {run}")]);
    env.run(&["status"]).code(0).shows(&["not begun", &resume]);
    for word in ["not-begun", "not begun"] {
        env.run(&["runs", "list", "--status", word]).code(0).shows(&[&run]);
    }
    env.run(&["runs", "list", "--status", "queued"]).code(0).says(&["no such runs"]);
    env.run(&["runs", "show", &run]).code(0).shows(&["not begun"]);
    env.run(&["runs", "delete", &run, "--yes"]).refused(2, &["is not finished (not begun)"]);
    env.run(&["resume", &run]).code(0);
    assert_eq!((env.value("SELECT count(*) FROM runs").as_str(), env.mails().len()), ("1", 1));
}

/// A project's settings lead to another place than the one that the job was begun over: that is no word for doing it once more.
#[test]
fn a_run_that_was_begun_over_another_place_is_found_where_nobody_named_one() {
    let env = env().with_forum();
    let fields = json!({"tools": {"builtin": false}, "budgets": {"max_turns": 1}});
    let turns = json!([{"tools": [{"name": "mcp__forum__post_comment", "input": {"text": "one"}}]}, {"text": "Done."}]);
    let job = env.job(&fields, &turns);
    env.run_bare(&["job", &job]).code(75);
    let root = env.arg("work/AGENT_RUN_WORKSPACES");
    env.write("work/ua.toml", "root = \"kept/AGENT_RUN_WORKSPACES\"\n");
    for args in [&["job", &job] as &[&str], &["job", "--check", &job]] {
        env.run_bare(args).code(75).says(&["is not finished, in another place", &root, "--new"]);
    }
    let looked = env.run_bare(&["doctor", "--job", &job]).shows(&["it would not start now", "in another place"]);
    assert!(!looked.stdout.contains("nothing was started"), "a check starts nothing: {}", looked.shown());
    assert_eq!(env.comments().len(), 1);
    // Somebody names the place, or asks for another run.
    env.run_bare(&["job", "--check", "--new", &job]).code(0);
    env.run_bare(&["job", "--new", &job]).code(75);
    assert_eq!(env.comments().len(), 2);
}

#[test]
fn a_job_key_of_a_run_that_is_not_finished_leads_to_its_resume() {
    let env = env();
    let job =
        env.job(&json!({"job_key": "k", "stop_conditions": ["email_sent_once"]}), &json!([{"text": "I sent it."}]));
    env.run(&["job", &job, "--run-id", "r"]).code(75);
    env.run(&["job", &job]).refused(75, &["\"k\"", "run r", "not finished", "ua resume r"]);
    assert_eq!(env.rows("SELECT run_id FROM runs"), ["r"]);
}

#[test]
fn a_summary_that_cannot_be_written_is_no_success_and_the_run_is_as_it_was() {
    let env = env().with_forum();
    let turns =
        json!([{"tools": [{"name": "mcp__forum__post_comment", "input": {"text": "hello"}}]}, {"text": "Done."}]);
    let job = env.job(&json!({"tools": {"builtin": false}}), &turns);
    let told = ["cannot write to standard output", "all the same, run r succeeded", "ua runs show r"];
    env.run_without_stdout(&["job", &job, "--run-id", "r"]).refused(74, &told);
    assert_eq!((env.run_status().as_str(), env.comments().len()), ("succeeded", 1));
    env.run_without_stdout(&["job", &job, "--run-id", "other", "--new", "--json"])
        .code(74)
        .says(&["run other succeeded"]);
    // Whatever a command did before, whoever repeats it for that code alone does it twice.
    let backup = env.path("copy.db");
    for (args, told) in [
        (&["submit", &job, "--run-id", "s", "--new"][..], "run s is queued in default: `ua queue list"),
        (&["submit", &job, "--run-id", "t", "--new", "--json"], "run t is queued in default"),
        (&["queue", "move", "s", "--priority", "3"], "s waits in default with priority 3"),
        (&["runs", "cancel", "s", "--yes", "--json"], "run s is cancelled"),
        (&["runs", "delete", "s", "--yes"], "deleted"),
        (&["db", "backup", backup.to_str().unwrap()], "bytes in"),
        (&["db", "migrate", "--json"], "has schema"),
    ] {
        env.run_without_stdout(args).refused(74, &["cannot write to standard output", "all the same, ", told]);
    }
    assert!(backup.is_file());
    let listed = env.run_without_stdout(&["runs", "list"]).code(74).stderr;
    assert!(!listed.contains("all the same"), "nothing was done: {listed}");
}
