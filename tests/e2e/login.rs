//! `ua login`: a person logs in at a remote tool server with a browser, and runs are let in by that until the login ends.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use rustix::process::Signal;
use serde_json::{Value, json};
use ua_e2e::{TestEnv, eventually, until};

use super::env;

/// What a request asks for, with its body and its token.
struct Asked {
    target: String,
    body: String,
    token: Option<String>,
}

/// A tool server with the effect `post_comment`, whose logins are made at the same address.
struct Site {
    address: SocketAddr,
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    /// Tokens, and what renews them, that count.
    good: Mutex<BTreeSet<String>>,
    made: Mutex<u32>,
    posted: Mutex<Vec<Value>>,
    calls: Mutex<u32>,
    renewals: Mutex<u32>,
    /// Whether a call is carried out and never answered.
    is_silent: AtomicBool,
    /// Whether no client is known any more that asks without a person.
    refuses_clients: AtomicBool,
    /// What becomes of the token after so many calls, counted from 1.
    after: Mutex<Option<(u32, Ends)>>,
}

#[derive(Clone, Copy)]
enum Ends {
    /// It is not taken any more, and can be renewed.
    Token,
    /// Nor can it be renewed.
    Login,
}

impl Site {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let state = Arc::new(State::default());
        let serving = Arc::clone(&state);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let state = Arc::clone(&serving);
                std::thread::spawn(move || {
                    if let Some(asked) = read(&stream) {
                        state.answer(&stream, &asked, address);
                    }
                });
            }
        });
        Self { address, state }
    }

    fn ends_after(&self, calls: u32, ends: Ends) {
        let so_far = *self.state.calls.lock().unwrap();
        *self.state.after.lock().unwrap() = Some((so_far + calls, ends));
    }

    fn configure(&self, env: &TestEnv) -> String {
        let entry = json!({"type": "http", "url": format!("http://{}/mcp", self.address)});
        env.mcp_config("work/.mcp.json", &json!({ "web": entry }))
    }

    fn posted(&self) -> Vec<Value> {
        self.state.posted.lock().unwrap().clone()
    }
}

impl State {
    fn answer(&self, stream: &TcpStream, asked: &Asked, address: SocketAddr) {
        let base = format!("http://{address}");
        let (path, query) = asked.target.split_once('?').unwrap_or((&asked.target, ""));
        match path {
            "/mcp" => self.tools(stream, asked, &base),
            "/.well-known/oauth-protected-resource/mcp" => {
                write(stream, 200, "", &json!({"resource": format!("{base}/mcp"), "authorization_servers": [base]}));
            }
            "/.well-known/oauth-authorization-server" => write(
                stream,
                200,
                "",
                &json!({"issuer": base,
                "authorization_endpoint": format!("{base}/authorize"), "token_endpoint": format!("{base}/token"),
                "registration_endpoint": format!("{base}/register"), "response_types_supported": ["code"],
                "code_challenge_methods_supported": ["S256"]}),
            ),
            "/register" => write(stream, 200, "", &json!({"client_id": "ua-1", "redirect_uris": []})),
            "/authorize" => {
                let (back, state) = (field(query, "redirect_uri"), field(query, "state"));
                write(stream, 302, &format!("location: {back}?code=the-code-canary&state={state}\r\n"), &json!(null));
            }
            "/token"
                if self.refuses_clients.load(Ordering::SeqCst)
                    && field(&asked.body, "grant_type") == "client_credentials" =>
            {
                write(stream, 401, "", &json!({"error": "invalid_client"}));
            }
            "/token" => {
                let is_renewal = field(&asked.body, "grant_type") == "refresh_token";
                let old = if is_renewal { field(&asked.body, "refresh_token") } else { String::new() };
                if is_renewal && !self.good.lock().unwrap().remove(&old) {
                    return write(stream, 400, "", &json!({"error": "invalid_grant"}));
                }
                let mut made = self.made.lock().unwrap();
                *made += 1;
                *self.renewals.lock().unwrap() += u32::from(is_renewal);
                let (token, renews) = (format!("at-canary-{made:08}"), format!("rt-canary-{made:08}"));
                self.good.lock().unwrap().extend([token.clone(), renews.clone()]);
                let granted =
                    json!({"access_token": token, "refresh_token": renews, "token_type": "Bearer", "expires_in": 3600});
                write(stream, 200, "", &granted);
            }
            _ => write(stream, 404, "", &json!(null)),
        }
    }

    fn tools(&self, stream: &TcpStream, asked: &Asked, base: &str) {
        let message: Value = serde_json::from_str(&asked.body).unwrap_or_default();
        if message["method"] == "tools/call" {
            let mut calls = self.calls.lock().unwrap();
            *calls += 1;
            let mut after = self.after.lock().unwrap();
            if let Some((_, ends)) = after.filter(|(at, _)| *calls >= *at) {
                *after = None;
                let mut good = self.good.lock().unwrap();
                good.retain(|one| matches!(ends, Ends::Token) && one.starts_with("rt-"));
            }
        }
        let is_in = asked.token.as_ref().is_some_and(|token| self.good.lock().unwrap().contains(token));
        if !is_in {
            let place = format!("{base}/.well-known/oauth-protected-resource/mcp");
            let challenge = format!("www-authenticate: Bearer resource_metadata=\"{place}\"\r\n");
            return write(stream, 401, &challenge, &json!({"error": "who are you?"}));
        }
        let result = match message["method"].as_str().unwrap_or_default() {
            "initialize" => {
                json!({"protocolVersion": message["params"]["protocolVersion"], "capabilities": {"tools": {}},
                "serverInfo": {"name": "web", "version": "1"}})
            }
            "tools/list" => {
                let tool = |name: &str| {
                    json!({"name": name, "description": "Posts a comment.",
                    "inputSchema": {"type": "object", "properties": {"text": {"type": "string"}}}})
                };
                json!({"tools": [tool("post_comment"), tool("post_keyed")]})
            }
            "tools/call" => {
                self.posted.lock().unwrap().push(message["params"]["arguments"].clone());
                if self.is_silent.load(Ordering::SeqCst) {
                    return stay_silent(stream);
                }
                json!({"content": [{"type": "text", "text": "posted"}]})
            }
            _ => return write(stream, if asked.body.is_empty() { 405 } else { 202 }, "", &json!(null)),
        };
        write(stream, 200, "", &json!({"jsonrpc": "2.0", "id": message["id"], "result": result}));
    }
}

fn field(form: &str, name: &str) -> String {
    let pair = form.split('&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='));
    pair.unwrap_or_default().replace("%3A", ":").replace("%2F", "/")
}

fn read(stream: &TcpStream) -> Option<Asked> {
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line).ok()?;
    let target = line.split(' ').nth(1)?.to_owned();
    let (mut length, mut token) = (0, None);
    loop {
        line.clear();
        reader.read_line(&mut line).ok()?;
        let Some((name, value)) = line.trim_end().split_once(':') else { break };
        match name.to_ascii_lowercase().as_str() {
            "content-length" => length = value.trim().parse().ok()?,
            "authorization" => token = value.trim().strip_prefix("Bearer ").map(str::to_owned),
            _ => {}
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    Some(Asked { target, body: String::from_utf8(body).ok()?, token })
}

/// Says nothing until whoever asked is gone.
fn stay_silent(mut stream: &TcpStream) {
    stream.read_to_end(&mut Vec::new()).ok();
}

/// Whoever asked may be gone; then nobody misses the answer.
fn write(mut stream: &TcpStream, status: u16, headers: &str, body: &Value) {
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let head = format!("HTTP/1.1 {status} x\r\ncontent-type: application/json\r\ncontent-length: {}\r\n", body.len());
    stream.write_all(format!("{head}{headers}connection: close\r\n\r\n{body}").as_bytes()).ok();
}

/// What a browser does with an address: it asks, and goes where it is sent.
fn browse(address: &str) -> String {
    let rest = address.strip_prefix("http://").unwrap();
    let (host, path) = rest.split_once('/').unwrap();
    let mut stream = TcpStream::connect(host).unwrap();
    stream.write_all(format!("GET /{path} HTTP/1.1\r\nhost: {host}\r\n\r\n").as_bytes()).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

fn location(answer: &str) -> String {
    answer.lines().find_map(|line| line.strip_prefix("location: ")).unwrap().trim().to_owned()
}

/// Logs in as a person does.
fn log_in(env: &TestEnv) {
    let program = env.start(&["login", "web", "--no-browser"]);
    let address = eventually("the address to log in at", || {
        let shown = program.stderr();
        shown.split_whitespace().find(|word| word.starts_with("http://") && word.contains("state=")).map(str::to_owned)
    });
    // Somebody else's page sends the browser to the same port first; it is turned away.
    let back = location(&browse(&address));
    let forged = format!("{}?code=x&state=y", back.split('?').next().unwrap());
    assert!(browse(&forged).starts_with("HTTP/1.1 404"));
    assert!(browse(&back).contains("You can close this page"));
    program.wait().code(0).shows(&["logged in to `web`", "in a file that only you can read", "renewed automatically"]);
}

fn post(text: &str) -> Value {
    json!({"tools": [{"name": "mcp__web__post_comment", "input": {"text": text}}]})
}

/// Everything that was written below a folder.
fn written(folder: &std::path::Path) -> Vec<u8> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap().flatten() {
        let path = entry.path();
        if path.is_dir() {
            all.extend(written(&path));
        } else if path.is_file() {
            all.extend(std::fs::read(&path).unwrap());
        }
    }
    all
}

#[test]
fn a_login_lets_runs_in_is_renewed_in_the_middle_of_one_and_is_in_no_record() {
    let (env, site) = (env(), Site::start());
    site.configure(&env);
    let turns =
        json!([post("first"), post("second"), post("third"), {"text": "Posted.", "expect": {"tool_result_ok": true}}]);
    let job = env.job(&json!({"tools": {"builtin": false}}), &turns);
    env.run(&["job", &job]).code(75).shows(&["401", "log in with `ua login web`"]);

    log_in(&env);
    // The second call meets a token that is not taken any more. It is renewed, and the call goes out once more, since it was not read.
    site.ends_after(2, Ends::Token);
    env.run(&["job", &job, "--run-id", "r"]).code(0).shows(&["succeeded"]);
    assert_eq!(site.posted(), ["first", "second", "third"].map(|text| json!({"text": text})));
    assert_eq!(*site.state.calls.lock().unwrap(), 4, "one of them was turned away");
    assert_eq!(*site.state.renewals.lock().unwrap(), 1);
    assert_eq!(env.calls(), ["post_comment succeeded", "post_comment succeeded", "post_comment succeeded"]);
    assert_eq!(env.value("SELECT count(*) FROM tool_attempts"), "4");

    // A login is listed by its server, and where it is kept; one that was forgotten is not, and neither is a token.
    let listed = env.run(&["login", "--list", "--json"]).code(0).json();
    assert_eq!(
        (&listed[0]["server"], &listed[0]["kept_in"], &listed[0]["renewable"]),
        (&json!("web"), &json!("file"), &json!(true))
    );
    env.run(&["login", "--list"]).code(0).shows(&["web", "renewed automatically", "file"]);
    let records = String::from_utf8_lossy(&written(&env.root())).into_owned();
    assert!(!records.contains("canary"), "no token, no code and no secret is in a record");
    let shown = env.run(&["login", "--list"]).code(0).stdout;
    let heads: Vec<&str> =
        shown.lines().next().unwrap().split("  ").map(str::trim).filter(|head| !head.is_empty()).collect();
    assert_eq!(heads, ["SERVER", "ADDRESS", "SCOPES", "UNTIL", "KEPT IN"]);
    assert!(!shown.contains("canary"), "{shown}");
    env.run(&["logout", "wep"]).refused(2, &["you are not logged in to `wep`", "did you mean `web`?"]);
    env.run(&["logout", "web"]).code(0);
    env.run(&["login", "--list"]).code(0).says(&["no logins yet"]);
    assert_eq!(env.run(&["login", "--list", "--json"]).code(0).json(), json!([]));
}

#[test]
fn a_login_that_ends_in_a_run_is_a_question_that_names_the_command_and_a_new_one_answers_it() {
    let (env, site) = (env(), Site::start());
    site.configure(&env);
    log_in(&env);
    site.ends_after(1, Ends::Login);
    let job = env.job(&json!({"tools": {"builtin": false}}), &json!([post("first"), {"text": "Posted."}]));
    let output = env.run(&["job", &job, "--run-id", "r"]).code(75);
    output.shows(&["The tool server `web` refused the credentials", "`ua login web`"]);
    assert_eq!(site.posted(), [json!(null); 0]);
    log_in(&env);
    let question = env.value("SELECT question_id FROM questions WHERE kind = 'auth_failure'");
    env.run(&["answer", &question, "retry"]).code(0);
    env.run(&["resume", "r"]).code(0);
    assert_eq!(site.posted(), [json!({"text": "first"})]);
}

#[test]
fn logging_out_forgets_the_login_and_what_cannot_be_logged_in_at_says_why() {
    let (env, site) = (env(), Site::start());
    let file = site.configure(&env);
    log_in(&env);
    let logins = env.path("home").join(".local/state/ua/logins");
    let kept = std::fs::read_dir(&logins)
        .unwrap()
        .flatten()
        .find(|entry| entry.path().extension().is_some_and(|e| e == "json"));
    let mode = kept.unwrap().metadata().unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    env.run(&["logout", "web"]).code(0).shows(&["the login to `web` is forgotten"]);
    env.run(&["logout", "web"]).refused(2, &["you are not logged in to `web`"]);
    env.run(&["login", "nobody"]).refused(2, &["no tool server is called `nobody`", "web"]);
    env.run(&["login"]).code(2).says(&["SERVER"]);

    env.write(
        "work/.mcp.json",
        json!({"mcpServers": {"own": {"command": "true"},
        "token": {"type": "http", "url": format!("http://{}/mcp", site.address), "headers": {"Authorization": "Bearer hush-canary"}},
        "plain": {"type": "http", "url": "http://example.org/mcp"}}})
        .to_string(),
    );
    env.run(&["login", "own", "--mcp-config", &file]).refused(2, &["is a program, not a remote server"]);
    env.run(&["login", "token", "--mcp-config", &file]).refused(2, &["a token of its own"]);
    env.run(&["login", "plain", "--mcp-config", &file]).refused(1, &["needs https"]);
}

/// A job that nobody attends has a client of its own: no browser, another token when one ends, and no secret in a record.
#[test]
fn a_client_of_its_own_lets_runs_in_without_a_person() {
    let (env, site) = (env().with_env("WEB_CLIENT", "cs-canary-0123456"), Site::start());
    let client = json!({"id": "nightly", "secret": "${WEB_CLIENT}", "scope": "comments"});
    let entry = json!({"type": "http", "url": format!("http://{}/mcp", site.address), "client_credentials": client});
    env.mcp_config("work/.mcp.json", &json!({ "web": entry }));
    site.ends_after(2, Ends::Login);
    let turns = json!([post("first"), post("second"), {"text": "Posted.", "expect": {"tool_result_ok": true}}]);
    let job = env.job(&json!({"tools": {"builtin": false}}), &turns);
    env.run(&["job", &job, "--run-id", "r"]).code(0).shows(&["succeeded"]);
    assert_eq!(site.posted(), ["first", "second"].map(|text| json!({"text": text})));
    assert_eq!((*site.state.calls.lock().unwrap(), *site.state.made.lock().unwrap()), (3, 2), "one was turned away");

    let listed = env.run(&["login", "--list", "--json"]).code(0).json();
    assert_eq!(
        (&listed[0]["server"], &listed[0]["client_id"], &listed[0]["scopes"]),
        (&json!("web"), &json!("nightly"), &json!(["comments"]))
    );
    let records = String::from_utf8_lossy(&written(&env.root())).into_owned();
    let kept = String::from_utf8_lossy(&written(&env.path("home"))).into_owned();
    assert!(
        !records.contains("canary") && !kept.contains("cs-canary"),
        "the secret is kept nowhere, the token with logins"
    );
    env.run(&["login", "web"]).refused(2, &["lets the client `nightly` in without a person"]);
    env.run(&["logout", "web"]).code(0);
    site.state.refuses_clients.store(true, Ordering::SeqCst);
    env.run(&["job", &job, "--run-id", "s"]).code(75).shows(&["(invalid_client)", "client_credentials"]);
}

/// Who logs in anew may do so as anybody: what was sent as the one is not repeated as the other, and what was approved for the one is asked again.
#[test]
fn a_login_as_somebody_else_is_another_place_for_what_is_in_doubt_and_for_an_approval() {
    let rules = "[[rule]]\nid = \"keyed\"\nname = \"post_keyed\"\nserver = \"web\"\nside_effect_class = \"external\"\n\
                 on_unknown = \"redo_keyed\"\nkey_channel = \"meta\"\n";
    let keyed = json!({"tools": [{"name": "mcp__web__post_keyed", "input": {"text": "first"}}]});
    let killed = || {
        let (env, site) = (env(), Site::start());
        site.configure(&env);
        let policy = env.write("work/policy.toml", rules);
        log_in(&env);
        let job = env.job(&json!({"tools": {"builtin": false}}), &json!([keyed, {"text": "Posted."}]));
        site.state.is_silent.store(true, Ordering::SeqCst);
        let live = env.start(&["job", &job, "--run-id", "r", "--policy", &policy]);
        until("it is posted", || site.posted().len() == 1);
        live.signal(Signal::KILL);
        live.wait().killed();
        site.state.is_silent.store(false, Ordering::SeqCst);
        (env, site)
    };
    // With the same login, renewed meanwhile, it is repeated under its key.
    let (env_of_same, site) = killed();
    site.state.good.lock().unwrap().retain(|one| one.starts_with("rt-"));
    env_of_same.run(&["resume", "r"]).code(0).shows(&["succeeded"]);
    assert_eq!((site.posted().len(), *site.state.renewals.lock().unwrap()), (2, 1));
    // Another login is asked about, and named; so is one that is gone.
    let (env_of_other, site) = killed();
    env_of_other.run(&["logout", "web"]).code(0);
    log_in(&env_of_other);
    let output = env_of_other.run(&["resume", "r"]).code(75);
    output.shows(&["its tool server is another one now", "changed: login"]);
    assert_eq!(site.posted().len(), 1);
    let question = env_of_other.value("SELECT question_id FROM questions WHERE status = 'open'");
    // Nobody can end that server, which may begin the call a while longer.
    until("a look that counts", || {
        let answered = env_of_other.run(&["answer", &question, "retry"]);
        answered.stderr.is_empty() || !answered.stderr.contains("may still begin at the other side until")
    });
    env_of_other.run(&["resume", "r"]).code(0).shows(&["succeeded"]);
    assert_eq!(site.posted().len(), 2);
    // An approval.
    let (env, site) = (env(), Site::start());
    site.configure(&env);
    log_in(&env);
    let fields = json!({"tools": {"builtin": false}, "escalation": {"ask_human_before": ["post_comment"]}});
    let job = env.job(&fields, &json!([post("first"), {"text": "Posted."}]));
    env.run(&["job", &job, "--run-id", "r"]).code(75);
    let open = || env.value("SELECT question_id FROM questions WHERE status = 'open'");
    env.run(&["answer", &open(), "approve"]).code(0);
    log_in(&env);
    env.run(&["resume", "r"]).code(75).shows(&["than the one that you approved (changed: login)"]);
    assert_eq!(site.posted(), [json!(null); 0]);
    env.run(&["answer", &open(), "approve"]).code(0);
    env.run(&["resume", "r"]).code(0).shows(&["succeeded"]);
    assert_eq!(site.posted(), [json!({"text": "first"})]);
}
