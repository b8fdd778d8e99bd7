//! A session of a client at the gateway, looked at as a run is.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use serde_json::{Value, json};

use super::env;

/// Asks through the gateway for one mail twice, and for another one.
pub(crate) const CLIENT: &str = r#"
coproc G { "$1" gateway "$2" "$3" --name mail -- "$1" toolserver --workspace . --outbox ./outbox; }
ask() { printf '%s\n' "$1" >&"${G[1]}"; read -r reply <&"${G[0]}"; echo "$reply"; }
ask '{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"probe","version":"1"}}}'
printf '%s\n' '{"jsonrpc":"2.0","method":"notifications/initialized"}' >&"${G[1]}"
mail() { ask '{"jsonrpc":"2.0","id":'"$1"',"method":"tools/call","params":{"name":"send_email","arguments":{"to":["a@example.test"],"subject":"'"$2"'","body":"x"}}}'; }
mail 2 One
mail 3 One
mail 4 Two
eval "exec ${G[1]}>&-"
wait "$G_PID"
"$1" "$2" "$3" gateway stop
"#;

#[test]
fn a_session_shows_who_asked_what_went_out_and_what_was_handed_out_again() {
    let env = env();
    let said = env.run_by_bash(CLIENT).code(0).stdout;
    assert_eq!(said.matches("\"isError\":true").count(), 0, "{said}");
    assert_eq!(std::fs::read_dir(env.path("work/outbox/new")).unwrap().count(), 2);

    let shown = env.run(&["runs", "show", "last"]).code(0);
    shown.shows(&["Tool calls of probe to `mail`", "a new call", "the same result was returned, nothing was sent"]);
    let text = env.run(&["runs", "show", "last"]).code(0).stdout;
    assert!(!text.contains("Resume with") && !text.contains("Workspace"), "{text}");

    let document = env.run(&["runs", "export", "last", "--json"]).code(0).json();
    let rules: Vec<&str> = document["arrivals"].as_array().unwrap().iter().filter_map(|a| a["rule"].as_str()).collect();
    assert_eq!(rules, ["new", "repeat", "new"]);
    assert_eq!(document["artifacts"], Value::Null, "the client's folder is not looked through");

    let page = env.path("page.html");
    env.run(&["runs", "export", "last", "--html", &page.display().to_string()]).code(0);
    let page = std::fs::read_to_string(page).unwrap();
    assert!(page.contains("the same result was returned, nothing was sent"));
    // Without a place for it the page has none: the client's folder is not ours to write to.
    env.run(&["runs", "export", "last", "--html"]).refused(2, &["has no folder of its own"]);
}

/// The broker is everybody's: what is in the environment of the client that has it started holds for no call.
#[test]
fn s20_no_client_lifts_a_rule_by_its_environment() {
    let env = env().with_env("UA_READ_ONLY_ALLOWLIST", "*");
    let said = env.run_by_bash(CLIENT).code(0).stdout;
    assert!(said.contains("\"notice\":\"duplicate\""), "{said}");
    assert_eq!(std::fs::read_dir(env.path("work/outbox/new")).unwrap().count(), 2, "one for each subject");
    // Who starts one by hand reads what does not reach it, and where it belongs.
    env.run(&["gateway", "start"]).code(0).says(&["does not get UA_READ_ONLY_ALLOWLIST", "[env]", "gateway.toml"]);
    env.run(&["gateway", "stop"]).code(0);
}

/// A client that forgets the handshake is told so, while a broker is only being started for it too: nothing was sent, and nothing may have happened.
#[test]
fn a_call_before_the_handshake_is_not_said_to_have_happened() {
    let env = env();
    let said = env.run_by_bash(
        r#"
coproc G { "$1" gateway "$2" "$3" --name mail -- "$1" toolserver --workspace . --outbox ./outbox; }
ask() { printf '%s\n' "$1" >&"${G[1]}"; read -r reply <&"${G[0]}"; echo "$reply"; }
mail() { ask '{"jsonrpc":"2.0","id":'"$1"',"method":"tools/call","params":{"name":"send_email","arguments":{"to":["a@example.test"],"subject":"One","body":"x"}}}'; }
mail 1
mail 2
eval "exec ${G[1]}>&-"
wait "$G_PID"
"$1" "$2" "$3" gateway stop
"#,
    );
    let said = said.code(0).stdout;
    assert_eq!(said.matches("Not sent").count(), 2, "{said}");
    assert!(!said.contains("may have") && said.contains("`initialize`"), "{said}");
}

/// The client's project is nobody's to delete, wherever it lies; and a call that may have happened is not forgotten by the way.
#[test]
fn a_session_is_deleted_without_the_folder_that_its_client_works_in() {
    let env = env().with_approver();
    let project = env.root().join("project");
    std::fs::create_dir_all(&project).unwrap();
    std::fs::write(project.join("thesis.tex"), "years of work").unwrap();
    let said = env.run_by_bash(&format!(
        "cd '{}'\n{CLIENT}\nwhile \"$1\" \"$2\" \"$3\" gateway status | grep -q '^broker'; do sleep 0.02; done",
        project.display()
    ));
    said.code(0);
    let session = env.value("SELECT run_id FROM runs");
    let dry = env.run(&["runs", "delete", &session, "--dry-run", "--force"]).code(0);
    dry.shows(&["the client's project stays"]);
    env.run(&["runs", "delete", &session, "--yes", "--force"]).code(0).shows(&["the client's project stays"]);
    assert_eq!(env.rows("SELECT run_id FROM runs"), Vec::<String>::new());
    assert_eq!(std::fs::read_to_string(project.join("thesis.tex")).unwrap(), "years of work");
}

/// Speaks with the gateway in front of all tool servers of the user, and asks a person.
const ALL: &str = r#"
coproc G { "$1" gateway "$2" "$3" --all; }
ask() { printf '%s\n' "$1" >&"${G[1]}"; read -r reply <&"${G[0]}"; echo "$reply"; }
ask '{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"probe","version":"1"}}}'
printf '%s\n' '{"jsonrpc":"2.0","method":"notifications/initialized"}' >&"${G[1]}"
ask '{"jsonrpc":"2.0","id":2,"method":"tools/list"}'
mail() { ask '{"jsonrpc":"2.0","id":'"$1"',"method":"tools/call","params":{"name":"'"$2"'__send_email","arguments":{"to":["a@example.test"],"subject":"'"$3"'","body":"x"}}}'; }
mail 3 work One
mail 4 work One
mail 5 nobody One
mail 6 work Two
eval "exec ${G[1]}>&-"
wait "$G_PID"
"$1" "$2" "$3" gateway stop
"#;

fn with_servers(env: &ua_e2e::TestEnv, config: &str) {
    let root = env.root();
    std::fs::create_dir_all(&root).unwrap();
    let work = serde_json::json!({"command": ua_e2e::ua_program(), "args": ["toolserver", "--workspace", env.arg("work"), "--outbox", env.arg("work/outbox")]});
    std::fs::write(root.join("servers.json"), serde_json::json!({"mcpServers": {"work": work}}).to_string()).unwrap();
    std::fs::write(root.join("gateway.toml"), config).unwrap();
}

#[test]
fn all_tool_servers_are_one_and_a_budget_holds() {
    let env = env();
    with_servers(&env, "[[budget]]\nserver = \"work\"\nper = \"session\"\ncalls = 1\n");
    let said = env.run_by_bash(ALL).code(0).stdout;
    let answers: Vec<Value> = said.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    assert_eq!(answers[0]["result"]["serverInfo"]["name"], "ua gateway", "{said}");
    let tools = answers[1]["result"]["tools"].as_array().unwrap();
    assert!(tools.iter().any(|tool| tool["name"] == "work__send_email"), "{said}");
    assert_eq!(answers[2]["result"]["isError"], false, "{said}");
    assert!(answers[3].to_string().contains("\"notice\":\"duplicate\""), "{said}");
    assert_eq!(answers[4]["error"]["code"], -32602, "{said}");
    assert!(
        answers[5].to_string().contains("the budget of 1 call with an effect of `work` per session is used up"),
        "{said}"
    );
    assert_eq!(std::fs::read_dir(env.path("work/outbox/new")).unwrap().count(), 1);
}

/// Sends one request for the server `work` over HTTP, and reads what comes back.
fn post(address: &str, token: &str, session: Option<&str>, message: &Value) -> String {
    post_to("work", address, token, session, message)
}

/// The same for the server of this name.
fn post_to(server: &str, address: &str, token: &str, session: Option<&str>, message: &Value) -> String {
    use std::io::{Read as _, Write as _};
    let mut stream = std::net::TcpStream::connect(address).unwrap();
    let body = message.to_string();
    let session = session.map_or_else(String::new, |session| format!("Mcp-Session-Id: {session}\r\n"));
    write!(
        stream,
        "POST /s/{server}/mcp HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {token}\r\nContent-Type: application/json\r\n\
         Accept: application/json, text/event-stream\r\nContent-Length: {}\r\n{session}Connection: close\r\n\r\n{body}",
        body.len()
    )
    .unwrap();
    let mut said = String::new();
    stream.read_to_string(&mut said).unwrap();
    said
}

#[test]
fn a_client_over_http_is_served_by_the_broker_as_a_service() {
    let env = env();
    with_servers(&env, "[http]\nlisten = \"127.0.0.1:0\"\n");
    let token = env.run(&["gateway", "token", "probe"]).code(0).stdout.trim().to_owned();
    assert!(token.starts_with("uag_"), "{token}");
    env.run(&["gateway", "token", "--list"]).code(0).shows(&["probe"]);
    let broker = env.start(&["gateway", "serve"]);
    let address = ua_e2e::eventually("an address", || {
        let status = env.run(&["gateway", "status", "--json"]).code(0).json();
        Some(status["broker"]["http"].as_str()?.strip_prefix("http://")?.to_owned())
    });
    let greeting = serde_json::json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": "2025-11-25",
        "capabilities": {}, "clientInfo": {"name": "probe", "version": "1"}}});
    assert!(post(&address, "uag_wrong", None, &greeting).starts_with("HTTP/1.1 401"));
    let greeted = post(&address, &token, None, &greeting).to_ascii_lowercase();
    let session = greeted.lines().find_map(|line| line.strip_prefix("mcp-session-id: ")).unwrap().trim().to_owned();
    let mail = |id: u32| {
        serde_json::json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": {"name": "send_email",
            "arguments": {"to": ["a@example.test"], "subject": "One", "body": "x"}}})
    };
    let sent = post(&address, &token, Some(&session), &mail(2));
    assert!(sent.contains("\"isError\":false"), "{sent}");
    let again = post(&address, &token, Some(&session), &mail(3));
    assert!(again.contains("\"notice\":\"duplicate\""), "{again}");
    assert_eq!(std::fs::read_dir(env.path("work/outbox/new")).unwrap().count(), 1);
    env.run(&["gateway", "status"]).code(0).shows(&["clients over HTTP", "http", "probe"]);
    // What was changed since is not in effect, which is told wherever somebody looks.
    let stale = |env: &ua_e2e::TestEnv| {
        let status = env.run(&["gateway", "status", "--json"]).code(0).json();
        let warnings = status["warnings"].as_array().unwrap().clone();
        warnings.iter().filter_map(Value::as_str).map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(stale(&env), [""; 0]);
    let file = env.root().join("servers.json");
    let servers = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, servers.replace("\"work\"", "\"shop\"")).unwrap();
    let told = format!("{} has changed since the broker read it, and is not in effect yet", file.display());
    assert_eq!(stale(&env).len(), 1, "{:?}", stale(&env));
    env.run(&["gateway", "status"]).code(0).shows(&["warning: ", &told, "`ua gateway restart`"]);
    env.run(&["gateway", "start"]).code(0).says(&[&told]);
    env.run(&["doctor"]).shows(&[&told]);
    let unknown = post_to("shop", &address, &token, None, &greeting);
    assert!(
        unknown.starts_with("HTTP/1.1 404") && unknown.contains("`ua gateway restart` reads the file again"),
        "{unknown}"
    );
    std::fs::write(&file, servers).unwrap();
    assert_eq!(stale(&env), [""; 0]);
    env.run(&["gateway", "token", "probe", "--remove"]).code(0);
    assert!(post(&address, &token, Some(&session), &mail(4)).starts_with("HTTP/1.1 401"));
    env.run(&["gateway", "token", "probe", "--remove"]).refused(2, &["has no token"]);
    env.run(&["gateway", "token", "a b"]).refused(2, &["is not a valid client name"]);
    env.run(&["gateway", "stop"]).code(0);
    broker.wait().code(0);
}

/// Greets, has the file put right, and greets again.
const GREETED: &str = r#"
coproc G { "$1" gateway "$2" "$3" --name mail -- "$1" toolserver --workspace . 2>/dev/null; }
greet() { printf '%s\n' '{"jsonrpc":"2.0","id":'"$1"',"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"probe","version":"1"}}}' >&"${G[1]}"; read -r reply <&"${G[0]}"; echo "$reply"; }
greet 1
: > "$3/gateway.toml"
greet 2
eval "exec ${G[1]}>&-"
wait "$G_PID"
"$1" "$2" "$3" gateway stop >/dev/null
"#;

#[test]
fn the_gateways_file_is_read_strictly_and_doctor_says_how_it_stands() {
    let env = env();
    with_servers(&env, "hold_wiat = \"5m\"\n");
    let said = "`hold_wiat` does not exist; did you mean `hold_wait`?";
    env.run(&["gateway", "restart"]).refused(2, &[said, "gateway.toml"]);
    env.run(&["gateway", "serve"]).refused(2, &[said]);
    env.run(&["gateway", "start"]).refused(2, &[said, "gateway.toml"]);
    let doctor = env.run(&["doctor", "--json"]).json();
    assert!(doctor.to_string().contains("`hold_wiat` does not exist"), "{doctor}");
    // A client is told at once, too, and its bridge is there for when it was put right.
    let told = env.run_by_bash(GREETED).code(0).stdout;
    let told: Vec<Value> = told.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    assert!(told[0]["error"]["message"].as_str().unwrap().contains("`hold_wiat` does not exist"), "{told:?}");
    assert_eq!(told[1]["result"]["protocolVersion"], "2025-06-18", "{told:?}");
    let budget = "[[budget]]\neffect = \"email.sned\"\nper = \"day\"\ncalls = 1\n";
    std::fs::write(env.root().join("gateway.toml"), budget).unwrap();
    env.run(&["gateway", "start"]).refused(2, &["`budget[1].effect`", "did you mean `email.send`?"]);
    std::fs::write(env.root().join("gateway.toml"), "hold_wait = \"5m\"\n").unwrap();
    env.run(&["gateway", "restart"]).code(0).shows(&["no broker was running; one is now"]);
    let first = env.run(&["gateway", "status", "--json"]).code(0).json()["broker"]["pid"].clone();
    env.run(&["gateway", "restart"]).code(0).shows(&["a new broker is running"]);
    assert_ne!(env.run(&["gateway", "status", "--json"]).code(0).json()["broker"]["pid"], first);
    env.run(&["gateway", "stop"]).code(0);
}

/// G12: an agent does not answer in a person's place. Approval is asked for by a policy that gateway.toml names.
#[test]
fn an_agent_is_not_a_person() {
    let env = env();
    with_servers(&env, "hold_wait = \"0s\"\npolicies = [\"asked.toml\"]\n");
    let policy = "[[rule]]\nid = \"asked\"\nname = \"send_email\"\napproval = \"ask\"\n";
    std::fs::write(env.root().join("asked.toml"), policy).unwrap();
    let said = env.run_by_bash(&CLIENT.replace("\"$1\" \"$2\" \"$3\" gateway stop", "true")).code(0).stdout;
    assert!(said.contains("A person has to decide first"), "{said}");
    let questions = env.run(&["questions", "--json"]).code(0).json();
    let question = questions[0]["question_id"].as_str().unwrap().to_owned();
    let live = env.start_with(("CLAUDECODE", "1"), &["answer", &question, "approve"]);
    live.wait().refused(2, &["must be answered by a person", "Claude Code"]);
    assert!(
        !env.path("work/outbox/new").exists() || std::fs::read_dir(env.path("work/outbox/new")).unwrap().count() == 0
    );
    env.run(&["gateway", "stop"]).code(0);
}

/// The broker that a client starts uses the database that the gateway's own file names; whoever looks at what it wrote, or answers, does so too.
#[test]
fn a_database_that_the_gateways_file_names_is_the_one_of_whoever_looks_and_answers() {
    let folder = "home/.local/state/ua/gateway";
    let env = env().with_approver_in(folder);
    let config = "hold_wait = \"0s\"\npolicies = [\"asked.toml\"]\n[env]\nUA_RUNTIME_DB_PATH = \"own.db\"\n";
    env.write(&format!("{folder}/gateway.toml"), config);
    let policy = "[[rule]]\nid = \"asked\"\nname = \"send_email\"\napproval = \"ask\"\n";
    env.write(&format!("{folder}/asked.toml"), policy);
    let client = CLIENT.replace("\"$1\" \"$2\" \"$3\" gateway stop", "true").replace("\"$2\" \"$3\" ", "");
    let said = env.run_by_bash(&client).code(0).stdout;
    assert!(said.contains("A person has to decide first"), "{said}");
    let (root, waits) = (env.arg(folder), "of the gateway wait");
    let is_there = |name: &str| env.path(&format!("{folder}/{name}")).exists();
    assert!(is_there("own.db") && !is_there("runtime_state.db"), "the broker uses it");
    let status = env.run(&["gateway", "status", "--root", &root]).code(0).shows(&["broker ", waits]);
    assert!(!status.stdout.contains("would not start"), "{}", status.stdout);
    // Whoever has jobs elsewhere is told as well, and their environment names no database of the gateway.
    let jobs = env.arg("jobs.db");
    let all = |args: &[&str]| {
        let plain = env.run(args).code(0).stdout;
        let other = env.start_with(("UA_RUNTIME_DB_PATH", jobs.as_str()), args).wait().code(0).stdout;
        [plain, other]
    };
    for looked in all(&["status"]) {
        assert!(looked.contains(waits) && !looked.contains("nothing waits"), "{looked}");
    }
    for asked in all(&["questions", "--json", "--root", &root]) {
        let asked: Vec<Value> = serde_json::from_str(&asked).unwrap();
        assert!(!asked.is_empty());
    }
    let questions = env.run(&["questions", "--json", "--root", &root]).code(0).json();
    let question = questions[0]["question_id"].as_str().unwrap().to_owned();
    env.start_with(("UA_RUNTIME_DB_PATH", jobs.as_str()), &["answer", &question, "skip", "--root", &root])
        .wait()
        .code(0);
    env.run(&["gateway", "stop", "--root", &root]).code(0);
}

/// A client whose entry says how long it waits reads what is known before it gives up, also one that is known to wait otherwise.
#[test]
fn how_long_an_entry_waits_is_how_long_its_client_is_kept_waiting() {
    let env = env();
    with_servers(&env, "policies = [\"asked.toml\"]\n");
    let policy = "[[rule]]\nid = \"asked\"\nname = \"send_email\"\napproval = \"ask\"\n";
    std::fs::write(env.root().join("asked.toml"), policy).unwrap();
    let known = |script: &str| script.replace("\"name\":\"probe\"", "\"name\":\"claude-code\"");
    let held = known(CLIENT).replace("--name mail", "--name mail --patience 5").replace("mail 3 One\nmail 4 Two\n", "");
    let said = env.run_by_bash(&held).code(0).stdout;
    assert!(said.contains("A person has to decide first"), "{said}");
    let running = format!(
        "{}{}",
        known(NOTES),
        r#"
coproc G { "$1" gateway "$2" "$3" --name notes --patience 3 -- bash notes.sh; }
greet
call post_note
hear
: > go
say '{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"post_note","arguments":{"text":"x"}}}'
hear
gone
"$1" "$2" "$3" gateway stop
wc -l < posts
"#
    );
    let said = env.run_by_bash(&running).code(0).stdout;
    let (first, then) = said.split_once("Still running").unwrap_or_else(|| panic!("{said}"));
    assert!(!first.contains("it is posted") && then.contains("it is posted"), "{said}");
    assert!(said.trim().ends_with('1'), "it was posted once: {said}");
}

/// A broker that has the database open would go on with what is not there any more.
#[test]
fn no_database_is_put_in_the_place_of_one_that_a_broker_has() {
    let env = env();
    let gone = "while \"$1\" \"$2\" \"$3\" gateway status | grep -q '^broker'; do sleep 0.02; done";
    env.run_by_bash(&format!("{CLIENT}\n{gone}")).code(0);
    let copy = env.arg("copy.db");
    env.run(&["db", "backup", &copy]).code(0);
    env.run(&["gateway", "start"]).code(0);
    let stop = format!("ua gateway stop --root {}", env.root().display());
    env.run(&["db", "restore", &copy]).refused(2, &["a broker of the gateway is running here", &stop]);
    env.run_by_bash(&format!("\"$1\" \"$2\" \"$3\" gateway stop\n{gone}")).code(0);
    env.run(&["db", "restore", &copy]).code(0);
}

/// G12: what a client starts has no person at it, whether or not the client is a known agent; and what is let go of has no terminal. A person's own
/// script has a token.
#[test]
fn a_client_that_nobody_knows_answers_nothing_by_what_it_starts() {
    let env = env();
    with_servers(&env, "hold_wait = \"0s\"\npolicies = [\"asked.toml\"]\n");
    let policy = "[[rule]]\nid = \"asked\"\nname = \"send_email\"\napproval = \"ask\"\n";
    std::fs::write(env.root().join("asked.toml"), policy).unwrap();
    // Without a shell in between, which would be what started the bridge.
    let script = CLIENT.replace("{ \"$1\" gateway", "{ exec \"$1\" gateway").replace(
        "eval \"exec ${G[1]}>&-\"",
        r#"
id=$("$1" "$2" "$3" questions --json | grep -oE 'q_[0-9a-f-]{20,}' | head -1)
answers() { echo "--- $1"; "${@:2}" answer "$id" approve </dev/null 2>&1; }
answers below "$1" "$2" "$3"
answers apart setsid -w "$1" "$2" "$3"
eval "exec ${G[1]}>&-""#,
    );
    let script = script.replace(
        "\"$1\" \"$2\" \"$3\" gateway stop",
        r#"
answers gone setsid -w "$1" "$2" "$3"
echo "--- make"; setsid -w "$1" "$2" "$3" gateway token me --approver 2>&1
answers wrong env UA_APPROVER_TOKEN=uag_wrong setsid -w "$1" "$2" "$3"
printf '{"me": "%s"}' "$(printf uag_mine | sha256sum | cut -d' ' -f1)" > "$3/approvers.json"
chmod 600 "$3/approvers.json"
answers right env UA_APPROVER_TOKEN=uag_mine CLAUDECODE=1 setsid -w "$1" "$2" "$3"
"$1" "$2" "$3" gateway stop"#,
    );
    let said = env.run_by_bash(&script).code(0).stdout;
    let of = |name: &str| said.split_once(&format!("--- {name}\n")).unwrap().1.split("--- ").next().unwrap().to_owned();
    for name in ["below", "apart"] {
        assert!(of(name).contains("which is a client of the gateway, or by one below it"), "{name}: {said}");
    }
    for name in ["gone", "make"] {
        assert!(of(name).contains("by a person, and this command has no terminal"), "{name}: {said}");
    }
    assert!(of("wrong").contains("is not the token of an approver"), "{said}");
    assert!(of("right").contains("answered"), "{said}");
    assert_eq!(env.value("SELECT count(*) FROM answers"), "1");
}

/// No resume finishes a session, so nobody is told to try one; and one that a person ended waits for nobody any more.
#[test]
fn a_session_is_ended_by_its_client_or_by_a_person_and_by_no_resume() {
    let env = env().with_approver();
    with_servers(&env, "hold_wait = \"0s\"\npolicies = [\"asked.toml\"]\n");
    let policy = "[[rule]]\nid = \"asked\"\nname = \"send_email\"\napproval = \"ask\"\n";
    std::fs::write(env.root().join("asked.toml"), policy).unwrap();
    let until_gone = "while \"$1\" \"$2\" \"$3\" gateway status | grep -q '^broker'; do sleep 0.02; done";
    env.run_by_bash(&format!("{}\n{until_gone}", CLIENT.replace("mail 3 One\nmail 4 Two\n", ""))).code(0);
    let session = env.value("SELECT run_id FROM runs");
    let refused = env.run(&["runs", "delete", &session, "--yes"]).refused(2, &["the client alone continues"]);
    assert!(!refused.stderr.contains("ua resume"), "{}", refused.stderr);
    let question = env.run(&["questions", "--json"]).code(0).json()[0]["question_id"].as_str().unwrap().to_owned();
    env.run(&["answer", &question, "abort"]).code(0);
    env.run(&["runs", "list"]).code(0).shows(&["ended session"]);
    env.run(&["runs", "delete", &session, "--yes"]).code(0);
    assert_eq!(env.rows("SELECT run_id FROM runs"), Vec::<String>::new());
}

/// A tool server of one tool that posts at once and answers when `go` is there; and a client that greets it and calls the tool.
const NOTES: &str = r#"
cat > notes.sh <<'END'
echo $$ > pid
while read -r line; do
  [[ $line =~ \"id\":([0-9]+) ]] || continue
  id=${BASH_REMATCH[1]} result='{}'
  case $line in
    *'"initialize"'*) result='{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"notes","version":"1"}}' ;;
    *'"tools/list"'*) result='{"tools":[{"name":"post_note","inputSchema":{"type":"object"}}]}' ;;
    *'"tools/call"'*)
      echo posted >> posts
      until [ -e go ]; do sleep 0.02; done
      result='{"content":[{"type":"text","text":"it is posted"}]}' ;;
  esac
  printf '{"jsonrpc":"2.0","id":%s,"result":%s}\n' "$id" "$result"
done
END
say() { printf '%s\n' "$1" >&"${G[1]}"; }
hear() { read -r -t 25 reply <&"${G[0]}" && echo "$reply"; }
greet() {
  say '{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"probe","version":"1"}}}'
  hear
  say '{"jsonrpc":"2.0","method":"notifications/initialized"}'
}
call() { say '{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"'"$1"'","arguments":{"text":"x"}}}'; }
gone() { eval "exec ${G[1]}>&-"; wait "$G_PID"; }
"#;

/// What is under way is said while the broker ends, and its client has the answer when the tool gives it: the limit of `hear` is shorter than the
/// half minute that a broker is waited for.
#[test]
fn a_broker_that_is_stopped_in_a_call_says_so_and_its_client_has_the_answer_in_time() {
    let env = env();
    let said = env.run_by_bash(&format!(
        "{NOTES}{}",
        r#"
coproc G { "$1" gateway "$2" "$3" --name notes -- bash notes.sh; }
greet
call post_note
until [ -s posts ]; do sleep 0.02; done
"$1" "$2" "$3" gateway status
"$1" "$2" "$3" gateway stop
"$1" "$2" "$3" gateway status
: > go
hear
gone
"$1" "$2" "$3" gateway start
"$1" "$2" "$3" gateway stop
wc -l < posts
"#
    ));
    let said = said.code(0).stdout;
    for words in [
        "post_note",
        "ends once 1 call under way is finished, within half a minute; a call without an answer by then is in doubt",
        " post_note of notes, since ",
        "; it ends once 1 call under way is finished, within half a minute",
        "it is posted",
    ] {
        assert!(said.contains(words), "{words}: {said}");
    }
    assert!(said.trim().ends_with('1'), "it was posted once: {said}");
}

/// A client that is connected is told, in its time, that the broker is stopped: what the broker was not told is not sent, then or later, and
/// what it was told has its answer when the client asks again.
#[test]
fn a_connected_client_is_told_that_the_broker_is_stopped_and_loses_nothing() {
    let env = env();
    std::fs::create_dir_all(env.root()).unwrap();
    std::fs::write(env.root().join("gateway.toml"), "[client.probe]\npatience = \"20s\"\n").unwrap();
    let said = env.run_by_bash(&format!(
        "{NOTES}{}",
        r#"
coproc G { "$1" gateway "$2" "$3" --name notes -- bash notes.sh; }
greet
broker=$("$1" "$2" "$3" gateway status --json | sed -n 's/.*"pid": *\([0-9]*\).*/\1/p' | head -1)
# A signal that was sent has not stopped each of its threads yet.
halt() { kill -STOP "$broker"; while sed 's/.*) //' "/proc/$broker/task"/*/stat | grep -qv '^T'; do sleep 0.01; done; }
halt
call post_note
hear
kill -CONT "$broker"
"$1" "$2" "$3" gateway status > status
if [ -e posts ]; then echo 'posted all the same'; fi
call post_note
until [ -s posts ]; do sleep 0.02; done
halt
hear
kill -CONT "$broker"
: > go
call post_note
hear
gone
"$1" "$2" "$3" gateway stop
wc -l < posts
"#
    ));
    let said = said.code(0).stdout;
    let answers: Vec<String> = said.lines().filter(|line| line.starts_with('{')).map(str::to_owned).collect();
    assert_eq!(answers.len(), 4, "{said}");
    for (answer, words) in answers[1..].iter().zip([
        ["kill -CONT", "this request was not sent"],
        ["kill -CONT", "what came of it is not known yet"],
        ["it is posted", "\"id\":2"],
    ]) {
        assert!(words.iter().all(|word| answer.contains(word)), "{words:?}: {answer}");
    }
    assert!(said.trim().ends_with("\n1") && !said.contains("all the same"), "it was posted once: {said}");
}

/// What a person records about a call in doubt whose client waits for it is what the client has as its result; it is settled once, by whoever
/// has the call. That it did not happen says nothing about whether it is sent, which is said in a word of its own.
#[test]
fn what_a_person_records_of_a_call_that_its_client_waits_for_is_its_result() {
    for (word, told, status) in
        [("happened", "This happened", "succeeded"), ("skipped", "its outcome is unknown", "unknown")]
    {
        let env = env().with_approver();
        let said = env.run_by_bash(&format!(
            "{NOTES}{}",
            r#"
coproc G { "$1" gateway "$2" "$3" --name notes -- bash notes.sh; }
greet
call post_note
until [ -s posts ]; do sleep 0.02; done
kill -9 "$(cat pid)"
until "$1" "$2" "$3" questions --json | grep -q call_; do sleep 0.05; done
id=$("$1" "$2" "$3" calls list --json | grep -oE 'call_[0-9a-f-]{20,}' | head -1)
record() { "$1" "$2" "$3" calls resolve "$id" --as "$4" --reason 'I looked' --yes 2>&1; }
record "$1" "$2" "$3" not_happened
record "$1" "$2" "$3" WORD
hear
record "$1" "$2" "$3" WORD
gone
"$1" "$2" "$3" gateway stop
wc -l < posts
"#
            .replace("WORD", word)
        ));
        let said = said.code(0).stdout;
        for words in [
            "if it did not happen, it is sent again or left",
            "answered; ",
            told,
            &format!("is already recorded as {word}"),
        ] {
            assert!(said.contains(words), "{words}: {said}");
        }
        assert!(said.trim().ends_with('1'), "it was posted once: {said}");
        let rows = env.rows(
            "SELECT c.status, q.status, a.note FROM tool_calls c JOIN questions q USING (tool_call_id) JOIN answers a USING (question_id)",
        );
        assert_eq!(rows, [format!("{status} closed I looked")]);
        assert_eq!(env.value("SELECT count(*) FROM tool_attempts"), "1");
        env.run(&["db", "check", "--invariants"]).code(0);
    }
}

/// The user's own gateway, whose questions are in a folder of its own.
#[test]
fn a_question_of_the_gateway_is_said_wherever_a_person_looks() {
    let env = env();
    let said = env.run_by_bash(&format!(
        "{NOTES}{}",
        r#"
mkdir -p "$HOME/.local/state/ua/gateway"
echo 'hold_wait = "0s"' > "$HOME/.local/state/ua/gateway/gateway.toml"
coproc G { "$1" gateway --name notes -- bash notes.sh; }
greet
call post_note
until [ -s posts ]; do sleep 0.02; done
kill -9 "$(cat pid)"
hear
gone
"$1" gateway status
"$1" gateway stop
while "$1" gateway status | grep -q '^broker'; do sleep 0.02; done
"$1" gateway status
"#
    ));
    let said = said.code(0).stdout;
    assert_eq!(said.matches("1 question of the gateway waits for you: q_").count(), 2, "{said}");
    assert!(said.contains("no broker is running; it starts with the first client"), "{said}");
    let folder = env.path("home/.local/state/ua/gateway");
    let command = format!("`ua questions --root {}`", folder.display());
    let status =
        env.run(&["status"]).code(0).shows(&["no job runs", "1 question of the gateway waits for you: q_", &command]);
    assert!(!status.stdout.contains("nothing waits"), "{}", status.stdout);
    assert!(status.stdout.contains("At the gateway in the last 24 hours: "), "{}", status.stdout);
    let asked = env.run(&["status", "--json"]).code(0).json()["gateway_questions"].clone();
    let id = asked[0]["question_id"].as_str().unwrap().to_owned();
    assert!(asked[0]["answer_with"][0].as_str().unwrap().contains("--root"), "{asked}");
    let listed = env.run(&["questions"]).code(0);
    assert!(listed.stderr.contains(&id) && listed.stderr.contains(&command), "{}", listed.stderr);
    // Where a person answers it is said to whoever tries it elsewhere.
    env.run(&["answer", &id, "skip"]).refused(2, &["belongs to the gateway", "--root"]);
}

/// Client, bridge, broker and tool server are killed in a call. Whoever looks before the next broker is there is not told that nothing waits, and the
/// next one asks, with no client.
#[test]
fn what_a_killed_broker_left_is_said_at_once_and_asked_by_the_next_one() {
    let env = env();
    let said = env.run_by_bash(&format!(
        "{NOTES}{}",
        r#"
coproc G { "$1" gateway --name notes -- bash notes.sh; }
greet
call post_note
until [ -s posts ]; do sleep 0.02; done
broker=$("$1" gateway status --json | sed -n 's/.*"pid": *\([0-9]*\).*/\1/p' | head -1)
gone
kill -9 "$broker" "$(cat pid)"
until "$1" gateway status | grep -q '^no broker'; do sleep 0.02; done
"$1" status
"$1" gateway status
"$1" questions 2>&1
echo --- next
"$1" gateway start
until "$1" questions 2>&1 | grep -q '1 question of the gateway'; do sleep 0.02; done
"$1" status
"$1" gateway stop
wc -l < posts
"#
    ));
    let said = said.code(0).stdout;
    let (before, after) = said.split_once("--- next").unwrap_or_else(|| panic!("{said}"));
    let left = "1 call of the gateway was under way when its broker ended, and what happened to it is not known: `post_note` of `notes`";
    assert_eq!(before.matches(left).count(), 3, "{said}");
    assert!(before.contains("`ua gateway start") && !before.contains("nothing waits"), "{said}");
    assert!(after.contains("1 question of the gateway waits for you: q_") && !after.contains(left), "{said}");
    assert!(!after.contains("nothing waits") && after.trim().ends_with('1'), "it was posted once: {said}");
}

/// A client has no job, its session no turns: whatever a person looks at says so in its own words.
#[test]
fn what_is_shown_of_a_session_speaks_of_no_job_and_no_turn() {
    let env = env().with_approver();
    with_servers(&env, "hold_wait = \"0s\"\n");
    let failing = NOTES
        .replace("      until [ -e go ]; do sleep 0.02; done\n", "")
        .replace(r#""text":"it is posted"}]}"#, r#""text":"it is not posted"}],"isError":true}"#);
    let said = env.run_by_bash(&format!(
        "{failing}{}",
        r#"
coproc G { "$1" gateway "$2" "$3" --name notes -- bash notes.sh; }
greet
call post_note
hear
say '{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"post_note","arguments":{"text":"x"}}}'
hear
gone
"$1" "$2" "$3" gateway stop
"#
    ));
    let said = said.code(0).stdout;
    assert!(said.contains("it is not posted") && said.contains("made before in this session"), "{said}");
    let asked = env.run(&["questions"]).code(0).shows(&["of this session (failed, asked for at "]);
    let held = env.value("SELECT tool_call_id FROM questions");
    let shown = env.run(&["calls", "show", &held]).code(0).shows(&["session  ", "of the session)"]);
    let tail = env.run(&["runs", "tail", "last", "--no-follow"]).stdout;
    assert!(tail.contains("call 1 · post_note") && tail.contains("the gateway's broker of this session"), "{tail}");
    let list = env.run(&["calls", "list"]).code(0);
    let rows: Vec<Value> = serde_json::from_str(&env.run(&["calls", "list", "--json"]).code(0).stdout).unwrap();
    assert!(rows.iter().all(|row| row["project"].as_str().is_some_and(|project| project.starts_with('/'))), "{rows:?}");
    let status = env.run(&["status"]).code(0);
    let show = env.run(&["runs", "show", "last"]).code(0);
    for text in [asked.stdout, shown.stdout, tail, list.stdout, status.stdout, show.stdout] {
        for word in ["this job", "turn ", " 1.1 ", "failed_reported", "of the run", "drives the run", "ua resume"] {
            assert!(!text.contains(word), "{word:?}: {text}");
        }
    }
    env.run(&["turns", "show", "last"]).refused(2, &["session of a client", "no turns"]);
    // Nor is anybody sent to a resume who puts a record right, or comes too late.
    let failed = env.value(&format!("SELECT tool_call_id FROM tool_calls WHERE tool_call_id <> '{held}'"));
    let put_right = ["calls", "resolve", &failed, "--as", "happened", "--reason", "seen", "--yes"];
    let put_right = env.run(&put_right).code(0);
    assert!(put_right.stderr.contains("made again by its client"), "{}", put_right.stderr);
    let question = env.value("SELECT question_id FROM questions");
    env.run(&["answer", &question, "skip"]).code(0);
    let late = env.run(&["answer", &question, "skip"]).refused(2, &["already been answered"]);
    for text in [put_right.stderr, late.stderr] {
        assert!(!text.contains("ua resume") && !text.contains("the run"), "{text}");
    }
}

/// What a client hears is true each time, and in its own names.
#[test]
fn a_program_that_is_not_there_and_a_tool_that_is_not_there_are_said_to_be_so() {
    let env = env();
    let said = env.run_by_bash(&format!(
        "{NOTES}{}",
        r#"
coproc G { "$1" gateway "$2" "$3" --name notes -- no-such-program-4711; }
greet
call post_note
hear
gone
coproc G { "$1" gateway "$2" "$3" --name notes -- bash notes.sh; }
greet
call pst_note
hear
gone
"$1" "$2" "$3" gateway stop >&2
"#
    ));
    let said = said.code(0).stdout;
    let answers: Vec<Value> = said.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    for told in &answers[..2] {
        assert!(told.to_string().contains("its program `no-such-program-4711` was not found"), "{told}");
    }
    let refused = answers[3].to_string();
    assert!(refused.contains("Did you mean `post_note`?") && !refused.contains("mcp__"), "{refused}");
    let shown = env.run(&["runs", "show", "last"]).code(0).stdout;
    assert!(!shown.contains("no delivery noted"), "{shown}");
}

#[test]
fn a_broker_that_runs_is_said_to_whoever_starts_another_one() {
    let env = env();
    with_servers(&env, "");
    env.run(&["gateway", "start"]).code(0);
    env.run(&["gateway", "start"]).code(0).shows(&["a broker is already running"]);
    let second = env.run(&["gateway", "serve"]).code(0);
    assert!(second.stderr.contains("a broker of this gateway is already running: process"), "{}", second.stderr);
    std::fs::write(env.root().join("gateway.toml"), "hold_wiat = \"5m\"\n").unwrap();
    env.run(&["gateway", "start"])
        .refused(1, &["a broker is running", "did you mean `hold_wait`?", "ua gateway restart"]);
    env.run(&["gateway", "stop"]).code(0);
    // An entry without a command is a mistake like any other.
    let code = env.run_by_bash("\"$1\" gateway --; echo \"code $?\"").code(0).shows(&["code 2"]);
    assert!(code.stderr.contains("the tool server's command is missing"), "{}", code.stderr);
    let neither = env.run(&["gateway", "install"]).code(2).stderr;
    assert!(neither.contains("needs one of --client CLIENT or --file FILE"), "{neither}");
    env.run(&["gateway", "install", "--client", "codex"]).refused(2, &["there is no configuration", "--file"]);
}

/// A broker that finds another one before it says so in the log.
#[test]
fn of_many_that_start_a_broker_one_does() {
    let env = env();
    with_servers(&env, "");
    let starting: Vec<_> = (0..8).map(|_| env.start(&["gateway", "start"])).collect();
    for one in starting {
        one.wait().code(0).shows(&["broker"]);
    }
    let log = std::fs::read_to_string(env.root().join("gateway.log")).unwrap();
    assert!(!log.contains("already running"), "{log}");
    env.run(&["gateway", "stop"]).code(0);
}

/// What a user's clients have, with a home of its own.
const HOME: &str = r#"
export HOME="$PWD/home" XDG_STATE_HOME= XDG_CONFIG_HOME= CODEX_HOME=
unset UA_ROOT
"#;

/// Entries that start a `ua` which is gone, or of another version, are found, and the command that is named corrects them.
#[test]
fn an_entry_whose_program_was_moved_is_found_with_what_helps() {
    let env = env();
    let said = env.run_by_bash(&format!(
        "{HOME}{}",
        r#"
mkdir -p "$HOME/.cursor" old
printf '#!/bin/sh\necho ua 0.0.1\n' > old/ua
chmod +x old/ua
entry() { printf '"%s": {"command": "%s", "args": ["gateway", "--name", "%s", "--", "cat"]}' "$1" "$2" "$1"; }
echo "{\"mcpServers\": {$(entry mail "$PWD/gone/ua"), $(entry crm "$PWD/gone/ua")}}" > "$HOME/.claude.json"
echo "{\"mcpServers\": {$(entry notes "$PWD/old/ua"), $(entry files "$1")}}" > "$HOME/.cursor/mcp.json"
"$1" doctor --json
"$1" gateway status --json
"#
    ));
    let said: Vec<Value> =
        serde_json::Deserializer::from_str(&said.code(0).stdout).into_iter().collect::<Result<_, _>>().unwrap();
    let findings = said[0]["findings"].as_array().unwrap().iter();
    let found: Vec<&Value> = findings.filter(|finding| finding["detail"].to_string().contains("through /")).collect();
    let texts = |field: &str| found.iter().map(|finding| finding[field].as_str().unwrap()).collect::<Vec<_>>();
    assert_eq!(texts("level"), ["fail", "warn"], "{found:?}");
    let details = texts("detail");
    assert!(
        details[0].starts_with("tool servers mail, crm of ") && details[0].contains("gone/ua, which does not exist")
    );
    assert!(details[1].starts_with("tool server notes of ") && details[1].contains("old/ua, which is ua 0.0.1; this"));
    let warnings = said[1]["warnings"].as_array().unwrap();
    assert!(warnings.len() == 2 && warnings[0].as_str().unwrap().starts_with(details[0]), "{warnings:?}");

    let fixes: String =
        texts("fix").iter().map(|fix| fix.trim_matches('`').replacen("ua ", "\"$1\" ", 1) + "\n").collect();
    let mended = env.run_by_bash(&format!("{HOME}{fixes}\"$1\" gateway status\ncat \"$HOME/.claude.json\""));
    let mended = mended.code(0).shows(&["goes through the gateway by this program now"]).stdout;
    assert!(!mended.contains("warning:") && !mended.contains("gone/ua"), "{mended}");
}

/// An upgrade that left the bridge's program as it was is noticed before a client is.
#[test]
fn a_bridge_of_another_version_beside_the_program_is_found() {
    let env = env();
    with_servers(&env, "");
    std::fs::create_dir_all(env.path("v")).unwrap();
    let (program, bridge) = (env.path("v/ua"), env.path("v/ua-bridge"));
    if std::fs::hard_link(ua_e2e::ua_program(), &program).is_err() {
        std::fs::copy(ua_e2e::ua_program(), &program).unwrap();
    }
    let found = || {
        let root = env.root().display().to_string();
        let said = env.run_program(&program, &[], &["--root", &root, "doctor", "--json"]).json();
        let findings = said["findings"].as_array().unwrap().iter();
        findings.filter(|finding| finding["detail"].to_string().contains("ua-bridge")).cloned().collect::<Vec<_>>()
    };
    assert_eq!(found(), Vec::<Value>::new());
    for (words, said) in [("echo ua-bridge 0.0.1", "is ua-bridge 0.0.1, and"), ("exit 2", "that it does not say")] {
        std::fs::write(&bridge, format!("#!/bin/sh\n{words}\n")).unwrap();
        std::fs::set_permissions(&bridge, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        let found = found();
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0]["level"] == "warn" && found[0]["detail"].as_str().unwrap().contains(said), "{found:?}");
    }
}

/// A trust is in one form of an entry, and the gateway in front of it is another: whoever changes it hears what that comes to.
#[test]
fn what_ends_a_trust_says_so() {
    let env = env().with_forum();
    let gateway =
        |word: &str, more: &[&str]| env.run(&[&["gateway", word, "--file", ".mcp.json"], more].concat()).code(0);
    let untrusted =
        |word: &str, more: &[&str]| gateway(word, &[more, &["--json"]].concat()).json()["untrusted"].clone();
    let offers = || env.run(&["tools", "list"]).code(0).stdout.contains("post_comment");
    assert!(offers());
    assert_eq!(untrusted("install", &["--dry-run"]), json!(["forum"]));
    gateway("install", &["--dry-run"]).shows(&["would not use `forum`", "ua trust"]);
    assert!(offers());
    gateway("install", &[]).shows(&["does not use `forum` before you trust", "ua trust"]);
    assert!(!offers());
    // As it was it is trusted, and nothing is said.
    assert_eq!(untrusted("uninstall", &[]), json!([]));
    assert!(offers());
    // What was never trusted has no trust to lose.
    env.run(&["trust", "--revoke"]).code(0);
    assert_eq!(untrusted("install", &[]), json!([]));
}

/// G16: an entry as a person wrote it, with the gateway in front of it as `install` writes that, is one that a client can start; and in the end the
/// file is what it was.
#[test]
fn g16_an_entry_that_was_wrapped_works_and_is_restored_to_the_byte() {
    let env = env();
    let said = env.run_by_bash(
        r#"
printf '// mine\n{\n  "mcpServers": { /* one */\n    "mail": {"command": "%s", "args": ["toolserver", "--workspace", ".", "--outbox", "./outbox"]},\n  },\n}\n' "$1" >mcp.json
cp mcp.json before.json
"$1" "$2" "$3" gateway install --file mcp.json
# Its words as the file has them, which are the shell's too.
eval "words=($(sed -n 's/.*"args": \[\([^]]*\)\].*/\1/p' mcp.json | tr ',' ' '))"
test "${words[0]}" = gateway && echo wrapped
coproc G { "$1" "${words[@]}"; }
ask() { printf '%s\n' "$1" >&"${G[1]}"; read -r reply <&"${G[0]}"; echo "$reply"; }
ask '{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"probe","version":"1"}}}'
printf '%s\n' '{"jsonrpc":"2.0","method":"notifications/initialized"}' >&"${G[1]}"
for id in 2 3; do
  ask '{"jsonrpc":"2.0","id":'"$id"',"method":"tools/call","params":{"name":"send_email","arguments":{"to":["a@example.test"],"subject":"One","body":"x"}}}'
done
eval "exec ${G[1]}>&-"
wait "$G_PID"
"$1" "$2" "$3" gateway stop
"$1" "$2" "$3" gateway uninstall --file mcp.json
cmp mcp.json before.json && echo restored
"#,
    );
    let said = said.code(0).shows(&["goes through the gateway now", "wrapped", "is restored", "restored"]).stdout;
    assert!(said.contains("\"notice\":\"duplicate\"") && !said.contains("\"isError\":true"), "{said}");
    assert_eq!(std::fs::read_dir(env.path("work/outbox/new")).unwrap().count(), 1);
}

/// The rules of a client come with its entries where a person asks for them, and both files are as they were in the end.
#[test]
fn rules_come_with_the_entries_and_go_with_them_to_the_byte() {
    let env = env();
    let said = env.run_by_bash(&format!(
        "{HOME}{}",
        r#"
unset CLAUDE_CONFIG_DIR
mkdir -p "$HOME/.claude" "$HOME/.codex"
config="$HOME/.claude.json" settings="$HOME/.claude/settings.json" rules="$HOME/.codex/rules/ua-gateway.rules"
printf '{"mcpServers": {"mail": {"command": "npx", "args": ["mail"]}}}\n' >"$config"
cp "$config" config.before
printf '{"permissions": "x"}\n' >"$settings"
"$1" "$2" "$3" gateway install --client claude-code --guard || echo "refused $?"
cmp "$config" config.before && echo untouched
printf '{\n  "permissions": {"deny": ["Bash(rm:*)"]} // mine\n}\n' >"$settings"
printf '[mcp_servers.mail]\ncommand = "npx"\n' >"$HOME/.codex/config.toml"
cp "$settings" settings.before
"$1" "$2" "$3" gateway install --client claude-code --guard --dry-run
cmp "$settings" settings.before && echo looked
"$1" "$2" "$3" gateway install --client claude-code --guard
grep -q 'Bash(claude mcp:\*)' "$settings" && grep -q 'gateway hook' "$settings" && echo ruled
"$1" "$2" "$3" gateway install --client claude-code --guard
"$1" "$2" "$3" gateway install --client codex --guard --json
test -f "$rules" && echo codex
"$1" "$2" "$3" gateway install --client goose --guard || echo "code $?"
"$1" "$2" "$3" gateway uninstall --client claude-code
"$1" "$2" "$3" gateway uninstall --client codex
cmp "$config" config.before && cmp "$settings" settings.before && test ! -e "$rules" && echo restored
"#
    ));
    let said = said.code(0).shows(&[
        "refused 2",
        "untouched",
        "would be written",
        "looked",
        "are written now",
        "ruled",
        "Its rules are written already.",
        "\"rules\"",
        "codex",
        "code 2",
        "without the rules of `--guard`",
        "is removed, since there was nothing in it",
        "restored",
    ]);
    assert!(said.stderr.contains("`--guard` is for claude-code and codex"), "{}", said.stderr);
}

/// Names of entries are a project's to choose: none of them writes a line of its own.
#[test]
fn s16_a_name_of_an_entry_forges_no_line() {
    let env = env();
    env.write(
        "work/mcp.json",
        r#"{"mcpServers": {"x\n  mail  goes through the gateway already\u001b[2J": {"command": "a"}}}"#,
    );
    for args in [
        &["gateway", "install", "--file", "mcp.json", "--dry-run"][..],
        &["gateway", "uninstall", "--file", "mcp.json", "--dry-run"],
    ] {
        let shown = env.run(args).code(0).shows(&[r"x\n  mail"]).stdout;
        assert!(!shown.contains("\n  mail") && !shown.contains('\u{1b}'), "{shown}");
    }
}

/// A client that waits as long as most do hears what is wrong, and so does whoever looks: not that there is no socket.
#[test]
fn a_database_that_cannot_be_used_is_said_wherever_a_person_looks() {
    const GREETS: &str = r#"
coproc G { "$1" gateway "$2" "$3" --name mail -- "$1" toolserver --workspace . 2>/dev/null; }
pid=$G_PID in=${G[1]} out=${G[0]} # it may end before the shell asks
printf '%s\n' '{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"probe","version":"1"}}}' >&"$in"
read -r -t 25 reply <&"$out" && echo "$reply"
eval "exec $in>&-"
wait "$pid" || true
"#;
    let env = env();
    env.run_by_bash(CLIENT).code(0);
    let stands = || env.run(&["gateway", "status", "--json"]).code(0).json();
    ua_e2e::until("the broker ends", || stands()["broker"].is_null());
    // What it closes then may be written into what is put in its place.
    let root = env.root().display().to_string();
    let is_there = |process: &std::fs::DirEntry| {
        let words = std::fs::read(process.path().join("cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&words).contains(&root)
    };
    ua_e2e::until("its process ends", || {
        !std::fs::read_dir("/proc").unwrap().flatten().any(|process| is_there(&process))
    });
    assert_eq!((&stands()["trouble"], &stands()["last_error"]), (&Value::Null, &Value::Null));
    env.run(&["gateway", "status"]).code(0).shows(&["no broker is running; it starts with the first client"]);

    let database = env.root().join("runtime_state.db");
    let kept = std::fs::read(&database).unwrap();
    for (is_there, words) in [(true, "not a database"), (false, "runtime_state.db")] {
        // What its log has would be read instead of what is broken.
        for name in ["runtime_state.db", "runtime_state.db-wal", "runtime_state.db-shm"] {
            let _not_there = std::fs::remove_file(env.root().join(name));
        }
        if is_there {
            let mut broken = kept.clone();
            broken[..100].fill(b'x');
            std::fs::write(&database, broken).unwrap();
        }
        let told = env.run_by_bash(GREETS).code(0).stdout;
        assert!(told.contains("the gateway does not run") && told.contains(words), "{told}");
        env.run(&["gateway", "start"]).refused(74, &[words]);
        let status = stands();
        assert!(status["broker"].is_null() && status["trouble"].to_string().contains(words), "{status}");
        assert!(status["last_error"]["message"].to_string().contains(words), "{status}");
        env.run(&["gateway", "status"]).code(0).shows(&["no broker is running, and none can start", words]);
        // `gateway.toml` says that this folder is the gateway's.
        std::fs::write(env.root().join("gateway.toml"), "").unwrap();
        let doctor = env.run(&["doctor", "--json"]).json();
        let of_gateway = doctor["findings"].as_array().unwrap().iter().filter(|finding| finding["check"] == "gateway");
        let found: Vec<String> = of_gateway.map(Value::to_string).collect();
        assert!(!found.concat().contains("the next client starts one"), "{found:?}");
        assert!(doctor["ok"] == false && doctor.to_string().contains(words), "{doctor}");
    }
    std::fs::write(&database, kept).unwrap();
    env.run(&["gateway", "start"]).code(0);
    assert_eq!((&stands()["trouble"], &stands()["last_error"]), (&Value::Null, &Value::Null));
    env.run(&["gateway", "stop"]).code(0);
}

/// A name that nobody has lifts a budget as a wrong effect does. It may be one that is still to come, so it is said, and no more.
#[test]
fn a_name_in_the_file_that_nobody_has_is_said_at_the_start_and_by_whoever_looks() {
    let env = env();
    with_servers(
        &env,
        "[client.\"Claude Code\"]\npatience = \"60s\"\n[[budget]]\nserver = \"wrok\"\nper = \"day\"\ncalls = 1\n\
         [[budget]]\nclient = \"prboe\"\neffect = \"mail.post\"\nper = \"day\"\ncalls = 1\n\
         [[budget]]\nclient = \"codex-mcp-client\"\nserver = \"work\"\neffect = \"email.send\"\nper = \"day\"\ncalls = 1\n",
    );
    let all = [
        "under `client` is \"Claude Code\"",
        "did you mean `claude-code`?",
        "`budget[1].server` is \"wrok\"",
        "did you mean `work`?",
        "`budget[2].client` is \"prboe\"",
        "`budget[2].effect` is \"mail.post\"",
    ];
    let said = env.run(&["gateway", "start"]).code(0).stderr;
    let restarted = env.run(&["gateway", "restart"]).code(0).stderr;
    let shown = env.run(&["gateway", "status"]).code(0).stdout.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(shown.contains("no client is connected"), "{shown}");
    let doctor = env.run(&["doctor", "--json"]).json();
    let listed = env.run(&["gateway", "status", "--json"]).code(0).json();
    assert_eq!(listed["warnings"].as_array().unwrap().len(), 4, "{listed}");
    let found = doctor["findings"].as_array().unwrap().iter().map(|finding| finding["detail"].as_str().unwrap());
    let found = found.collect::<Vec<_>>().join("\n");
    let listed = listed["warnings"].as_array().unwrap().iter().filter_map(Value::as_str).collect::<Vec<_>>().join("\n");
    for words in all {
        for (place, text) in
            [("start", &said), ("restart", &restarted), ("status", &shown), ("doctor", &found), ("json", &listed)]
        {
            let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
            assert!(text.contains(words), "{place}: {words}: {text}");
        }
    }
    env.run(&["gateway", "stop"]).code(0);
    for (effect, meant) in [("mail.send", "email.send"), ("issues.create", "issue.create")] {
        let budget = format!("[[budget]]\neffect = \"{effect}\"\nper = \"day\"\ncalls = 0\n");
        std::fs::write(env.root().join("gateway.toml"), budget).unwrap();
        env.run(&["gateway", "start"]).refused(2, &["which no tool can have", &format!("did you mean `{meant}`?")]);
    }
}

/// Packages put another version behind the same link and remove the old one. What runs of that finds the new one: a bridge, for the next broker,
/// and a broker, for the next tool server.
#[test]
fn an_upgrade_that_removes_the_old_version_is_noticed_by_no_client() {
    let env = env();
    for version in ["v1", "v2"] {
        std::fs::create_dir_all(env.path(version)).unwrap();
        let program = env.path(version).join("ua");
        if std::fs::hard_link(ua_e2e::ua_program(), &program).is_err() {
            std::fs::copy(ua_e2e::ua_program(), &program).unwrap();
        }
    }
    let said = env.run_by_bash(&format!(
        "{NOTES}{}",
        r#"
root="$3"
: > go
V=V_FOLDER
mkdir -p "$V/bin"
ln -s ../v1/ua "$V/bin/ua"
ua="$V/bin/ua"
coproc G { "$ua" gateway --root "$root" --name notes -- bash notes.sh; }
greet
call post_note
hear
ln -sfn ../v2/ua "$V/bin/ua"
rm "$V/v1/ua"
old=("${G[@]}") old_pid="$G_PID"
coproc H { "$ua" gateway --root "$root" --name other -- bash notes.sh; }
G=("${H[@]}") G_PID="$H_PID"
greet
gone
kill -9 "$("$ua" --root "$root" gateway status --json | sed -n 's/.*"pid": *\([0-9]*\).*/\1/p' | head -1)"
G=("${old[@]}") G_PID="$old_pid"
call post_note
hear
gone
"$ua" --root "$root" gateway stop
"#
        .replace("V_FOLDER", &as_a_word(&env.arg("")))
    ));
    let said = said.code(0).stdout;
    let answers: Vec<Value> = said.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    assert_eq!(answers.len(), 4, "{said}");
    assert_eq!(answers[2]["result"]["serverInfo"]["name"], "notes", "the broker starts another tool server: {said}");
    assert!(answers[3].to_string().contains("it is posted"), "the bridge starts the next broker: {said}");
}

/// A path as a word of bash.
fn as_a_word(path: &str) -> String {
    format!("'{}'", path.trim_end_matches('/').replace('\'', r"'\''"))
}

/// The folder that a client works in is its own: nothing is written there when a person ends its session, which no broker has any more.
#[test]
fn a_session_that_a_person_ends_leaves_nothing_in_the_folder_of_its_client() {
    // A person has a terminal.
    if std::process::Command::new("script").arg("--version").output().is_err() {
        return ua_testkit::skipped("`script` is not installed, which gives a command a terminal");
    }
    let env = env();
    let said = env.run_by_bash(
        r#"
export HOME="$PWD/../home" XDG_STATE_HOME=
unset UA_ROOT
mkdir -p "$HOME" project && cd project
coproc G { "$1" gateway --name mail -- "$1" toolserver --workspace . --outbox ../outbox; }
ask() { printf '%s\n' "$1" >&"${G[1]}"; read -r reply <&"${G[0]}"; }
ask '{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"probe","version":"1"}}}'
ask '{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"send_email","arguments":{"to":["a@example.test"],"subject":"One","body":"x"}}}'
eval "exec ${G[1]}>&-"
wait "$G_PID"
"$1" gateway stop
# It ends when its calls have.
while ! "$1" gateway status | grep -q "no broker is running"; do sleep 0.1; done
before=$(ls -A)
root="$HOME/.local/state/ua/gateway"
run=$("$1" runs list --root "$root" --json | sed -n 's/.*"run_id": *"\([^"]*\)".*/\1/p' | head -1)
script -qec "$1 runs cancel $run --yes --root $root" /dev/null
echo "before: [$before] after: [$(ls -A)]"
"#,
    );
    let told = said.code(0).stdout;
    let (before, after) = told.split_once("before: [").and_then(|(_, rest)| rest.split_once("] after: [")).unwrap();
    assert_eq!(after.trim_end().trim_end_matches(']'), before, "{told}");
    assert!(told.contains("cancelled run"), "{told}");
}

/// An agent of somebody who runs no jobs has a model of its own, and the gateway's sessions are no jobs that were run elsewhere.
#[test]
fn whoever_uses_the_gateway_alone_is_told_nothing_about_jobs() {
    let env = env();
    let said = env.run_by_bash(
        r#"
export HOME="$PWD/home" XDG_STATE_HOME=
unset UA_ROOT ANTHROPIC_API_KEY
mkdir -p "$HOME" elsewhere
"$1" doctor >/dev/null; echo "before: $?"
coproc G { "$1" gateway --name mail -- "$1" toolserver --workspace . --outbox ./outbox; }
ask() { printf '%s\n' "$1" >&"${G[1]}"; read -r reply <&"${G[0]}"; }
ask '{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"probe","version":"1"}}}'
ask '{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"send_email","arguments":{"to":["a@example.test"],"subject":"One","body":"x"}}}'
eval "exec ${G[1]}>&-"
wait "$G_PID"
"$1" gateway stop
cd elsewhere
"$1" questions 2>&1
"$1" doctor; echo "after: $?"
"#,
    );
    let said = said.code(0).stdout;
    assert!(said.contains("before: 0") && said.contains("after: 0"), "{said}");
    assert!(said.contains("jobs need one, the gateway does not") && !said.contains("your runs are in"), "{said}");
    let after = said.split("before: 0").nth(1).unwrap_or_default();
    assert!(!after.contains("price"), "prices are of models, and of that a word is enough: {said}");
}
