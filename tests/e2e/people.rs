//! People in the loop: approvals, `ask_user`, recipients that are not clear, alerts; each with the process killed where it hurts.

use std::path::Path;

use rustix::process::Signal;
use serde_json::{Value, json};
use ua_e2e::{Output, TestEnv, until};
use ua_testkit::{Webhook, WebhookConfig};

use super::env;

fn comment(text: &str) -> Value {
    json!({"name": "mcp__forum__post_comment", "input": {"text": text}})
}

fn run(env: &TestEnv, fields: &Value, turns: &Value) -> Output {
    env.run(&["job", &env.job(fields, turns), "--run-id", "r"])
}

fn open_questions(env: &TestEnv) -> Vec<String> {
    env.rows("SELECT question_id FROM questions WHERE status = 'open' ORDER BY seq")
}

fn answer_all(env: &TestEnv, choice: &str, more: &[&str]) {
    for question in open_questions(env) {
        env.run(&[&["answer", &question, choice], more].concat()).code(0);
    }
}

/// A run that wants to post two comments and waits for two approvals.
fn waits_for_approvals(env: &TestEnv, last: &Value) {
    let turns = json!([{"tools": [comment("first"), comment("second \u{1b}[2J")]}, last]);
    let fields = json!({"tools": {"builtin": false}, "escalation": {"ask_human_before": ["post_*"]}});
    let output = run(env, &fields, &turns).code(75);
    let output =
        output.shows(&["waiting for you", "May `post_comment` run?", "first", "second \\u001b[2J", " approve "]);
    assert!(!output.shown().contains('\u{1b}'), "{}", output.shown());
    assert_eq!((open_questions(env).len(), env.comments().len()), (2, 0));
}

/// Whoever comes back and reads the page in the root is not sent to questions that have their answers.
#[test]
fn the_page_in_the_root_knows_what_was_answered() {
    let env = super::env().with_forum();
    waits_for_approvals(&env, &json!({"text": "Posted."}));
    assert!(env.read("root/RESTART.md").contains("It waits for a person"));
    answer_all(&env, "approve", &[]);
    let page = env.read("root/RESTART.md");
    assert!(
        !page.contains("It waits for a person") && page.contains("answered") && page.contains("ua resume r"),
        "{page}"
    );
}

/// Every file of a run that tells how it stands, by its name.
#[expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]
fn files_of(env: &TestEnv) -> Vec<(String, String)> {
    let folder = env.workspace();
    let names = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let text = |name: String| Some((name.clone(), std::fs::read_to_string(folder.join(name)).ok()?));
    names.filter_map(text).collect()
}

/// Whatever is answered: no file of the run sends anybody to a question that has its answer, and all say the same of the run, also behind an export.
/// Its logs have the answer at once, and once.
#[test]
fn no_file_of_an_answered_run_says_that_it_waits() {
    for (point, choice) in [
        ("", "approve"),
        ("", "skip"),
        ("after:tool.invoke:post_comment", "happened"),
        ("after:tool.invoke:post_comment", "skip"),
        ("after:tool.invoke:post_comment", "retry"),
    ] {
        let env = env().with_forum();
        let asks = if point.is_empty() { json!(["post_*"]) } else { json!([]) };
        let fields = json!({"tools": {"builtin": false}, "escalation": {"ask_human_before": asks}});
        let job = env.job(&fields, &json!([{"tools": [comment("first")]}, {"text": "Posted."}]));
        if point.is_empty() {
            env.run(&["job", &job, "--run-id", "r"]).code(75);
        } else {
            env.run_killed_at(point, &["job", &job, "--run-id", "r"]);
            env.run(&["resume", "r"]).code(75);
        }
        let waits = ["job_completion_r.md", "job_completion_r.json", "resume_packet_r.md", "transcript.md"];
        let before = files_of(&env);
        for name in waits {
            assert!(before.iter().any(|(file, text)| file == name && text.contains("ua answer q_")), "{name}");
        }
        answer_all(&env, choice, &[]);
        for is_exported in [false, true] {
            if is_exported {
                let exported = env.run(&["runs", "export", "r"]).code(0);
                assert!(!exported.stderr.contains("more than the database knows"), "{}", exported.shown());
            }
            for (name, text) in files_of(&env) {
                assert!(!text.contains("ua answer q_"), "{choice}, {name}: {text}");
                let is_page = Path::new(&name).extension().is_some_and(|ending| ending == "md" || ending == "txt");
                assert!(!is_page || !text.contains("waiting for you"), "{choice}, {name}: {text}");
                let tells = name.starts_with("job_completion_r") || name.starts_with("resume_packet_r");
                assert!(!tells || text.contains("answered"), "{choice}, {name}: {text}");
            }
            let log = |name: &str| std::fs::read_to_string(env.workspace().join(name)).unwrap();
            assert_eq!(log("run.log").matches(" answered q_").count(), 1, "{choice}: {}", log("run.log"));
            assert_eq!(log("trace.jsonl").matches("\"answered\"").count(), 1, "{choice}: {}", log("trace.jsonl"));
            let packet: Value = serde_json::from_str(&log("resume_packet_r.json")).unwrap();
            assert_eq!(packet["shown_status"], "answered");
            // What the resume found is still told.
            assert_eq!(packet["in_flight"][0]["decision"]["was"] == "running", !point.is_empty(), "{packet}");
        }
        // The same command says so, too.
        let refused = env.run(&["job", &job]).code(75);
        let refused = refused.says(&[&format!("was answered ({choice}), and not resumed"), "ua resume r"]);
        assert_eq!(refused.stderr.contains("nobody knows"), choice == "retry", "{}", refused.shown());
        let told: Value = serde_json::from_str(&env.run(&["job", &job, "--json"]).code(75).stderr).unwrap();
        let told = &told["error"];
        assert_eq!((&told["status"], &told["shown_status"]), (&json!("waiting_for_human"), &json!("answered")));
        env.run(&["resume", "r"]).code(0);
        let log = std::fs::read_to_string(env.workspace().join("run.log")).unwrap();
        assert_eq!(log.matches(" answered q_").count(), 1, "{choice}: {log}");
    }
}

#[test]
fn approvals_of_a_turn_are_asked_for_at_once_and_each_lets_one_call_run() {
    for point in [
        "",
        "before:store.start_attempt:post_comment",
        "after:store.start_attempt:post_comment#2",
        "after:tool.invoke:post_comment",
    ] {
        let env = env().with_forum();
        waits_for_approvals(&env, &json!({"text": "Posted."}));
        // Nobody answered: the same questions, and nothing is sent.
        env.run(&["resume", "r"]).code(75);
        assert_eq!((open_questions(&env).len(), env.comments().len()), (2, 0));
        answer_all(&env, "approve", &[]);
        if !point.is_empty() {
            env.run_killed_at(point, &["resume", "r"]);
        }
        let first = env.run(&["resume", "r"]);
        // Posting takes no key: whoever dies between RUNNING and the receipt leaves a doubt, and the approval is used up.
        if point.starts_with("after") {
            first.code(75).shows(&["Did `post_comment` happen?"]);
            let posted = env.comments().len();
            let doubt = if point.contains("tool.invoke") { "happened" } else { "execute" };
            answer_all(&env, doubt, &[]);
            env.run(&["resume", "r"]).code(0);
            assert!(env.comments().len() >= posted, "{point}");
        } else {
            first.code(0);
        }
        assert_eq!(env.comments().len(), 2, "{point}");
        assert_eq!(env.value("SELECT count(*) FROM questions WHERE kind = 'approval'"), "2", "{point}");
        assert_eq!(env.value("SELECT count(*) FROM questions WHERE status <> 'closed'"), "0", "{point}");
    }
}

#[test]
fn a_call_that_a_person_declines_is_cancelled_and_the_model_is_told_why() {
    let env = env().with_forum();
    let last = json!({"text": "Not posted.", "expect": {"contains": ["not to be made", "the board decides first"], "tool_result_ok": false}});
    waits_for_approvals(&env, &last);
    answer_all(&env, "skip", &["--text", "the board decides first"]);
    // Who decided, and with which remark, stands with the call.
    let call = env.value("SELECT tool_call_id FROM tool_calls ORDER BY ordinal LIMIT 1");
    env.run(&["calls", "show", &call]).code(0).shows(&["skip, by ", "\"the board decides first\""]);
    let shown = env.run(&["calls", "show", &call, "--json"]).code(0).json();
    assert_eq!(shown["questions"][0]["answer"]["text"], "the board decides first", "{shown}");
    env.run(&["resume", "r"]).code(0);
    assert_eq!((env.calls(), env.comments().len()), (vec!["post_comment cancelled".to_owned(); 2], 0));
}

#[test]
fn an_approval_is_not_good_for_a_tool_that_was_redefined_since() {
    let env = env().with_forum();
    waits_for_approvals(&env, &json!({"text": "Posted."}));
    answer_all(&env, "execute", &[]);
    env.mcp_config("work/.mcp.json", &json!({"forum": env.forum_entry(&["--describe", "Posts to everybody."])}));
    env.run(&["resume", "r"]).code(75).shows(&["stopped (setup changed)"]);
    env.run(&["resume", "r", "--accept", "tools"]).code(75).shows(&["May `post_comment` run?"]);
    assert_eq!((open_questions(&env).len(), env.comments().len()), (1, 0));
    // Each is asked again when its turn comes.
    for left in [1, 0] {
        answer_all(&env, "execute", &[]);
        env.run(&["resume", "r"]).code(if left > 0 { 75 } else { 0 });
    }
    assert_eq!(env.comments().len(), 2);
}

/// An approval of a call behind one that failed lets nothing go. Whoever gave it reads so, and why they are asked once more for the same.
#[test]
fn an_approval_behind_a_failure_is_said_to_be_in_vain() {
    let env = env();
    env.mcp_config("work/.mcp.json", &json!({"forum": env.forum_entry(&["--with", "create_issue"])}));
    let fails = json!({"name": "mcp__forum__create_issue", "input": {"text": "one", "fail": "mailbox full"}});
    let fields = json!({"tools": {"builtin": false}, "escalation": {"ask_human_before": ["external"]}});
    let turns = json!([{"tools": [fails, comment("first")]}, {"tools": [comment("first")]}, {"text": "Posted."}]);
    run(&env, &fields, &turns).code(75);
    answer_all(&env, "approve", &[]);
    let resumed = env.run(&["resume", "r"]).code(75);
    resumed.says(&["post_comment not run: the earlier call `create_issue`", "A person had approved it"]);
    assert!(env.comments().iter().all(|comment| !comment.contains("first")), "{:?}", env.comments());
    let calls = "SELECT tool_call_id FROM tool_calls WHERE tool_name = 'post_comment' ORDER BY turn";
    let before = env.rows(calls).remove(0);
    env.run(&["questions"]).code(0).shows(&[
        "approved the same call at ",
        &format!("({before}, turn 1); it was not sent, because an earlier call of its turn did not succeed."),
    ]);
    answer_all(&env, "approve", &[]);
    env.run(&["resume", "r"]).code(0);
    assert_eq!(env.comments().iter().filter(|comment| comment.contains("first")).count(), 1);
    // Approved and sent since: nothing of it is in vain any more.
    assert_eq!(env.value("SELECT count(*) FROM questions WHERE text LIKE '%approved the same call%'"), "1");
}

#[test]
fn all_arguments_of_what_is_asked_can_be_seen() {
    let env = env().with_forum();
    let long = format!("{}END", "word ".repeat(400));
    let fields = json!({"tools": {"builtin": false}, "escalation": {"ask_human_before": ["external"]}});
    run(&env, &fields, &json!([{"tools": [comment(&long)]}, {"text": "Posted."}])).code(75);
    let short = env.run(&["questions"]).code(0).shows(&["ua questions --full"]);
    assert!(!short.shown().contains("END"), "{}", short.shown());
    env.run(&["questions", "--full"]).code(0).shows(&["Arguments", "text: ", "END"]);
}

#[test]
fn without_a_terminal_an_answer_needs_a_question_and_the_open_ones_are_listed() {
    let env = env().with_forum();
    waits_for_approvals(&env, &json!({"text": "Posted."}));
    let question = open_questions(&env).remove(0);
    let takes = "    takes approve, skip, abort";
    let open = ["name the question; these are open", &question, "May `post_comment` run?", takes];
    env.run(&["answer"]).refused(2, &open);
    // A name that nothing has leads to what can be answered, and not to another command that says nothing.
    let instead = ["there is no question", "2 are open (", &question, "`ua questions` shows what each takes"];
    env.run(&["answer", "q_none_of_these", "approve"]).refused(2, &instead);
    env.run(&["answer", &question]).code(2).says(&["needs an answer", "approve, skip, abort"]);
    // `last` is a run everywhere else; an answer cannot be taken back, so nothing is guessed.
    env.run(&["answer", "last", "approve"]).refused(2, &["`last` names a run, not a question", "ua questions"]);
    env.run(&["answer", "q_01a", "approve"]).refused(2, &["too short to name a question"]);
    assert_eq!(env.value("SELECT count(*) FROM answers"), "0");
    answer_all(&env, "skip", &[]);
    env.run(&["answer"]).code(0).says(&["nothing waits for an answer"]);
    let none = "no question is open; `ua questions --answered` lists those that were answered";
    env.run(&["answer", "q_none_of_these", "approve"]).refused(2, &["there is no question", none]);
    env.run(&["answer", "last", "approve"]).refused(2, &["`last` names a run, not a question", none]);
}

fn asks() -> Value {
    json!({"tools": [{"name": "mcp__ua_person__ask_user", "input": {"question": "Which colour?", "options": ["red", "blue"]}}]})
}

#[test]
fn the_model_may_ask_and_the_answer_is_the_result() {
    for point in ["", "after:store.raise_question", "before:store.end_run"] {
        let env = env();
        let turns =
            json!([asks(), {"text": "Blue it is.", "expect": {"contains": ["a deep blue"], "tool_result_ok": true}}]);
        let fields = json!({"tools": {"builtin": false}, "escalation": {"ask_user": true}});
        let job = env.job(&fields, &turns);
        if point.is_empty() {
            let output = env.run(&["job", &job, "--run-id", "r"]).code(75);
            output.shows(&["The model asks: Which colour?", "1. red", "2. blue"]);
        } else {
            env.run_killed_at(point, &["job", &job, "--run-id", "r"]);
            env.run(&["resume", "r"]).code(75);
        }
        let question = open_questions(&env);
        assert_eq!(question.len(), 1, "{point}");
        env.run(&["answer", &question[0], "continue"]).code(2).says(&["takes an answer in words"]);
        let own = ["none of the options 1 (red), 2 (blue)", "your own words"];
        env.run(&["answer", &question[0], "--text", "a deep blue"]).code(0).says(&own);
        env.run_killed_at("after:store.start_attempt:ask_user", &["resume", "r"]);
        env.run(&["resume", "r"]).code(0);
        assert_eq!(env.value("SELECT count(*) FROM questions"), "1", "{point}");
    }
}

/// A question says which answers it takes, the model's own among them, and takes these as the prompt does.
#[test]
fn what_the_model_proposes_is_an_answer_by_its_number_and_its_text() {
    for (typed, answered) in
        [("blue", "blue"), ("BLUE", "blue"), ("1", "red"), ("--text=BLUE", "blue"), ("--text=1", "red")]
    {
        let env = env();
        run(
            &env,
            &json!({"tools": {"builtin": false}, "escalation": {"ask_user": true}}),
            &json!([asks(), {"text": "x"}]),
        )
        .code(75);
        let question = open_questions(&env).remove(0);
        let refused = env.run(&["answer", &question, "purple"]);
        refused.refused(2, &["does not take `purple`", "1 (red), 2 (blue), --text 'YOUR ANSWER', skip, abort"]);
        env.run(&["answer", &question, "retry"]).refused(2, &["does not take `retry`", "1 (red)"]);
        let said = env.run(&["answer", &question, typed]).code(0);
        assert!(!said.stderr.contains("your own words"), "{}", said.shown());
        assert_eq!(env.rows("SELECT choice, note FROM answers"), [format!("continue {answered}")]);
    }
    let env = env().with_forum();
    waits_for_approvals(&env, &json!({"text": "Posted."}));
    env.run(&["answer", "approve"]).refused(2, &["`approve` is an answer", "ua answer QUESTION approve"]);
    let question = open_questions(&env).remove(0);
    env.run(&["answer", &question, "perhaps"])
        .refused(2, &["does not take `perhaps`", "it takes approve, skip, abort"]);
    answer_all(&env, "skip", &[]);
    env.run(&["answer", "retry"]).refused(2, &["`retry` is an answer", "no question is open"]);
}

/// An id of another kind is told from one that nothing has, by every command that takes one.
#[test]
fn an_id_of_another_kind_is_named_as_what_it_is() {
    let env = env().with_forum();
    let turns = json!([{"tools": [comment("first")]}, {"text": "Posted."}]);
    let fields = json!({"tools": {"builtin": false}, "escalation": {"ask_human_before": ["post_*"]}});
    env.run(&["job", &env.job(&fields, &turns)]).code(75);
    let [run, call, question] = ["run_id FROM runs", "tool_call_id FROM tool_calls", "question_id FROM questions"]
        .map(|what| env.value(&format!("SELECT {what}")));
    let end = |id: &str| id[id.len() - 8..].to_owned();
    for of in [&|id: &str| id.to_owned(), &end as &dyn Fn(&str) -> String] {
        let (run_id, call_id, question_id) = (of(&run), of(&call), of(&question));
        let its_question = format!("ua answer {question}");
        let answer = |id: &str, kind: &str, hint: &str| {
            env.run(&["answer", id, "approve"]).refused(2, &[&format!("`{id}` is a {kind}, not a question"), hint]);
        };
        answer(&run_id, "run", &its_question);
        answer(&call_id, "call", &its_question);
        for command in [&["resume"][..], &["runs", "show"], &["runs", "cancel"]] {
            for (id, kind, hint) in [(&question_id, "question", &its_question), (&call_id, "call", &run)] {
                let words = [command, &[id.as_str()]].concat();
                env.run(&words).refused(2, &[&format!("`{id}` is a {kind}, not a run"), &run, hint]);
            }
        }
        let show = |id: &str, kind: &str, hint: &str| {
            env.run(&["calls", "show", id]).refused(2, &[&format!("`{id}` is a {kind}, not a call"), hint]);
        };
        show(&run_id, "run", &format!("ua calls list --run {run}"));
        show(&question_id, "question", &call);
    }
    assert_eq!(env.value("SELECT count(*) FROM answers"), "0");
}

#[test]
fn a_question_that_is_left_to_the_model_and_a_job_that_allows_none_say_decide_yourself() {
    let env = env();
    let turns = json!([asks(), {"text": "Red.", "expect": {"contains": ["Decide yourself"], "tool_result_ok": false}}]);
    run(&env, &json!({"tools": {"builtin": false}, "escalation": {"ask_user": true}}), &turns).code(75);
    answer_all(&env, "skip", &[]);
    env.run(&["resume", "r"]).code(0);
    // Not offered unless the job wants it.
    let job = env.named_job("off", &json!({"tools": {"builtin": false}}), &turns);
    env.run(&["job", &job, "--run-id", "off"]).code(0);
    assert_eq!(env.value("SELECT count(*) FROM questions"), "1");
}

fn mail(to: &str) -> Value {
    json!({"tools": [{"name": "mcp__ua__send_email", "input": {"to": [to], "subject": "Hello", "body": "Dear all"}}]})
}

#[test]
fn an_address_that_nobody_named_is_asked_about_and_a_switch_leaves_it_to_the_model() {
    let turns = json!([mail("eve@elsewhere.test"), {"text": "Done."}]);
    let env = env();
    run(&env, &json!({}), &turns).code(75).shows(&["Neither the job nor a person named eve@elsewhere.test"]);
    assert_eq!(env.mails().len(), 0);
    answer_all(&env, "execute", &[]);
    env.run(&["resume", "r"]).code(0);
    assert_eq!(env.mails().len(), 1);

    let env = super::env();
    let named = json!({"inputs": {"recipients": ["Eve <eve@elsewhere.test>"]}});
    run(&env, &named, &turns).code(0);
    let env = super::env();
    run(&env, &json!({"escalation": {"ask_human_on_ambiguous_recipient": false}}), &turns).code(0);
    assert_eq!(env.mails().len(), 1);
}

#[test]
fn equal_refusals_in_a_row_are_bounded_too() {
    let env = env();
    let wrong = json!({"tools": [{"name": "no_such_tool", "input": {}}]});
    let turns = json!([wrong, wrong, wrong, {"text": "Done."}]);
    let fields = |ask: bool| {
        json!({"tools": {"builtin": false}, "budgets": {"max_same_error_repeats": 2},
               "escalation": {"ask_human_on_repeated_failures": ask}})
    };
    run(&env, &fields(true), &turns).code(75).shows(&["The same failure happened 3 times in a row", "no_such_tool"]);
    answer_all(&env, "continue", &[]);
    env.run(&["resume", "r"]).code(0);
    let env = super::env();
    run(&env, &fields(false), &turns).code(1).shows(&["The same failure happened 3 times in a row"]);
}

#[test]
fn a_person_is_told_once_that_a_run_waits_and_the_run_does_not_care_how_that_went() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let config = WebhookConfig { log: folder.path().join("log"), honours_keys: true, faults: [].into() };
    let webhook = runtime.block_on(Webhook::start(config)).unwrap();
    let env = env().with_forum();
    let told = env.arg("told.jsonl");
    let command = json!(["/bin/sh", "-c", format!("cat >> {told}")]).to_string();
    let env = env.with_env("UA_ALERT_COMMAND", &command).with_env("UA_ALERT_WEBHOOK", &webhook.url);
    let env = env.with_env("UA_ALERT_ON", "waiting,ended");
    waits_for_approvals(&env, &json!({"text": "Posted."}));
    env.run(&["resume", "r"]).code(75);
    let lines = |env: &TestEnv| -> Vec<Value> {
        env.read("told.jsonl").lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    let questions = open_questions(&env);
    let told: Vec<Value> = lines(&env).iter().map(|line| line["question_id"].clone()).collect();
    assert_eq!(told, questions);
    let keys: Vec<Value> = webhook.effects().unwrap().iter().map(|effect| effect["key"].clone()).collect();
    assert_eq!((keys, webhook.posts()), (questions.iter().map(|id| json!(id)).collect(), 2));
    answer_all(&env, "execute", &[]);
    env.run(&["resume", "r"]).code(0);
    assert_eq!(lines(&env).last().unwrap()["status"], "succeeded");
    assert_eq!((lines(&env).len(), webhook.posts()), (3, 3));

    let env = super::env().with_forum().with_env("UA_ALERT_COMMAND", "/bin/false");
    waits_for_approvals(&env, &json!({"text": "Posted."}));
    let env = super::env().with_forum().with_env("UA_ALERT_WEBHOOK", "not an address");
    run(&env, &json!({"tools": {"builtin": false}}), &json!([{"text": "Done."}])).code(2).says(&["UA_ALERT_WEBHOOK"]);
}

/// A job whose tool asks for a size in the middle of its call, over a connection.
fn asking_job(env: &TestEnv) -> String {
    env.mcp_config("work/.mcp.json", &json!({"forum": env.forum_entry(&["--ask", "Which size?"])}));
    let post = json!({"name": "mcp__forum__post_comment", "input": {"text": "one"}});
    env.job(&json!({"tools": {"builtin": false}}), &json!([{"tools": [post]}, {"text": "Done."}]))
}

/// A tool waits for minutes, on its connection: whoever is told when the run is left is told too late. Told it is also to whoever wants errors alone.
#[test]
fn a_tool_that_asks_where_nobody_is_raises_an_alert_while_it_waits() {
    let told = |env: &TestEnv| std::fs::read_to_string(env.path("told.jsonl")).unwrap_or_default();
    let env = env();
    let command = json!(["/bin/sh", "-c", format!("cat >> {}", env.arg("told.jsonl"))]).to_string();
    let env = env.with_env("UA_ALERT_COMMAND", &command);
    let live = env.start(&["job", &asking_job(&env), "--run-id", "r", "--quiet"]);
    until("the alert", || told(&env).ends_with('\n'));
    let question = env.value("SELECT question_id FROM questions");
    let alert: Value = serde_json::from_str(&told(&env)).unwrap();
    assert_eq!((&alert["event"], &alert["question_id"]), (&json!("waiting"), &json!(question)));
    until("its line", || live.stderr().contains(&format!("ua answer {question}")));
    env.run(&["answer", &question, "accept", "--values", r#"{"size": "large"}"#]).code(0);
    live.wait().code(0);
    assert_eq!(told(&env).lines().count(), 1, "{}", told(&env));
}

/// A tool that was told no because nobody answered in time is told of: the run goes on, and its call may say that all is well.
#[test]
fn a_tool_whose_question_nobody_answered_is_told_no_and_a_line_says_so() {
    let env = env().with_env("UA_ELICITATION_WAIT", "1");
    let job = asking_job(&env);
    let said = "post_comment asked a question, which was declined: ";
    env.run(&["job", &job, "--run-id", "late"]).code(0).says(&[said, "nobody answered within 1 s"]);
    let log = std::fs::read_to_string(env.workspace().join("run.log")).unwrap();
    assert!(log.contains("nobody answered within 1 s"), "{log}");
    // The second in which it waited uses up no budget.
    let rest = "SELECT CAST((unixepoch(updated_at, 'subsec') - unixepoch(created_at, 'subsec')) * 1000 - held_millis AS INTEGER) FROM runs";
    let rest: i64 = env.value(rest).parse().unwrap();
    assert!(rest >= 900, "{rest}");
    env.run(&["job", &job, "--run-id", "nobody", "--no-input"]).code(0).says(&[said]);
}

/// Once the process is gone on whose connection a tool waited, no answer is offered that could not reach it.
#[test]
fn a_question_whose_tool_is_gone_offers_only_what_is_taken() {
    let env = env();
    let job = asking_job(&env);
    let live = env.start(&["job", &job, "--run-id", "r"]);
    until("the question", || env.try_rows("SELECT status FROM questions") == ["open"]);
    let question = env.value("SELECT question_id FROM questions");
    let taken = ["accept", "decline", "cancel", "abort"].map(|word| format!("ua answer {question} {word}"));
    env.run(&["questions"]).code(0).shows(&taken.each_ref().map(String::as_str));
    live.signal(Signal::KILL);
    live.wait().killed();
    let left = env.run(&["questions"]).code(0);
    assert!(!left.stdout.contains("accept") && !left.stdout.contains("decline"), "{}", left.stdout);
    left.shows(&["no other answer reaches the tool", &taken[3]]);
    // Nor on a page that is made of the run.
    let page = env.run(&["runs", "export", "r", "--transcript"]).code(0).stdout;
    assert!(page.contains("no other answer reaches the tool") && page.contains(&taken[3]), "{page}");
    assert!(!page.contains(&taken[0]) && !page.contains(&taken[1]), "{page}");
    let listed = env.run(&["questions", "--json"]).code(0).json();
    assert_eq!(listed[0]["answer_with"].as_array().map(Vec::len), Some(1), "{listed}");
    env.run(&["answer", &question, "accept", "--values", r#"{"size": "large"}"#]).refused(2, &["no answer reaches it"]);
    // What is offered is taken.
    env.run(&["answer", &question, "abort"]).code(0).says(&["ended run r"]);
    assert_eq!(env.run_status(), "failed");
}

#[test]
fn whoever_watches_before_the_first_job_is_shown_its_question() {
    let env = env();
    let watching = env.start(&["questions", "--watch"]);
    until("it to wait", || watching.stderr().contains("no job was run yet in"));
    assert!(!env.root().exists(), "looking makes nothing");
    let live = env.start(&["job", &asking_job(&env), "--run-id", "r"]);
    until("the question", || env.try_rows("SELECT status FROM questions") == ["open"]);
    let question = env.value("SELECT question_id FROM questions");
    until("the question to be shown", || watching.stdout().contains(&question));
    watching.signal(Signal::KILL);
    watching.wait().killed();
    live.signal(Signal::KILL);
    live.wait().killed();
}

/// A tool that asks does nothing meanwhile: where a line says what is still being done, it says that somebody is waited for, and how to answer.
#[test]
fn a_tool_that_asks_is_not_said_to_run() {
    let env = env();
    let job = asking_job(&env);
    let live = env.start(&["job", &job, "--run-id", "r"]);
    until("the question", || env.try_rows("SELECT status FROM questions") == ["open"]);
    let question = env.value("SELECT question_id FROM questions");
    let waits = format!("] turn 1 · post_comment waits for an answer (`ua answer {question}");
    let is_told =
        |text: &str| text.lines().any(|line| line.contains(&waits) && line.contains(" · still waiting after "));
    until("a line that says who is waited for", || is_told(&live.stderr()));
    assert!(!live.stderr().contains("post_comment · still running"), "{}", live.stderr());
    env.run(&["answer", &question, "accept", "--values", r#"{"size": "large"}"#]).code(0);
    live.wait().code(0);
}

/// An answer that the process itself takes needs no resume.
#[test]
fn an_answer_to_a_run_at_work_is_taken_by_its_process() {
    let env = env();
    let live = env.start(&["job", &asking_job(&env), "--run-id", "r"]);
    until("the question", || env.try_rows("SELECT status FROM questions") == ["open"]);
    let question = env.value("SELECT question_id FROM questions");
    let answered = env.run(&["answer", &question, "accept", "--values", r#"{"size": "large"}"#]).code(0);
    assert!(!answered.stderr.contains("resume"), "{}", answered.stderr);
    answered.says(&["the process that drives run r takes it"]);
    live.wait().code(0);
    assert_eq!(env.comments().len(), 1);
}

/// A call that nobody declared may have been what a job is to do. A person who knows says so, or has the model asked, with a word that it reads.
#[test]
fn what_an_undeclared_call_did_is_said_by_a_person_or_left_to_the_model() {
    let last = json!({"text": "It is done.", "expect": {"contains": ["Leave it as it is.", "do not repeat it"]}});
    let turns = json!([{"tools": [comment("first")]}, {"text": "Posted."}, last]);
    let fields = json!({"tools": {"builtin": false}, "stop_conditions": [{"effect": "email.send"}]});
    for answer in [vec!["happened"], vec!["retry", "--text", "Leave it as it is."]] {
        let env = env().with_forum();
        env.run(&["job", &env.job(&fields, &turns), "--run-id", "r"]).code(75);
        let question = open_questions(&env).remove(0);
        let shown = env.run(&["questions"]).code(0).stdout;
        assert!(shown.contains(&format!("ua answer {question} happened")), "{shown}");
        env.run(&[&["answer", question.as_str()], answer.as_slice()].concat()).code(0);
        let output = env.run(&["resume", "r"]);
        if answer[0] == "happened" {
            output.code(0).shows(&["succeeded"]);
        } else {
            // The model was asked, and left it as it was: that is a person's matter again, who can say now that it was it.
            output.code(75);
            assert_eq!(env.value("SELECT count(*) FROM usage"), "3");
            env.run(&["answer", &open_questions(&env).remove(0), "happened"]).code(0);
            env.run(&["resume", "r"]).code(0);
        }
        assert_eq!(env.comments().len(), 1);
    }
}
