//! Logins against an authorization server and a resource server of our own, over the wire: what is asked, what is kept, what is sent, and
//! that a call is posted once whatever becomes of its token.

mod client;
mod proving;
mod signed;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use reqwest::Url;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use ua_core::system::SystemClock;
use ua_core::{CallPolicy, Clock, Env, Handle, Outcome, RawReply, Sleep, Timestamp, ToolName, ToolNamespace};
use ua_dispatch::{ToolTransport as _, TransportError};

use super::http::{call, http, text};
use super::permitted::Run;
use super::servers::ServerBed;
use crate::logins::{LoginError, LoginFacts, LoginRequest, Logins, OwnClient, Vault, check_address};

/// One request as it came.
#[derive(Debug, Clone)]
struct Seen {
    target: String,
    headers: BTreeMap<String, String>,
    body: String,
}

impl Seen {
    fn path(&self) -> &str {
        self.target.split('?').next().unwrap_or_default()
    }

    /// A field of a form, or of the query.
    fn field(&self, name: &str) -> Option<String> {
        let text = if self.body.is_empty() { self.target.split_once('?')?.1 } else { &self.body };
        let url = Url::parse(&format!("http://form/?{text}")).unwrap();
        url.query_pairs().find(|(key, _)| key == name).map(|(_, value)| value.into_owned())
    }

    fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_default()
    }

    fn token(&self) -> Option<&str> {
        self.headers.get("authorization")?.strip_prefix("Bearer ")
    }
}

/// A tool server whose logins are made at the same address.
#[derive(Default)]
struct State {
    base: Mutex<String>,
    seen: Mutex<Vec<Seen>>,
    tokens: Mutex<BTreeSet<String>>,
    refresh: Mutex<BTreeSet<String>>,
    challenges: Mutex<BTreeMap<String, String>>,
    made: Mutex<u32>,
    /// How long tokens last, in seconds.
    lasts: Mutex<Value>,
    /// What a renewal is answered with instead.
    renewal: Mutex<Option<&'static str>>,
    /// What an exchange is answered with instead.
    exchange: Mutex<Option<&'static str>>,
    /// The token that is given instead of one that can be sent.
    gives: Mutex<Option<&'static str>>,
    /// How many requests for tokens fail from now on, for no reason of theirs.
    failing: Mutex<u32>,
    /// What is asked for here is never answered.
    silent_at: Mutex<Option<&'static str>>,
    /// Who is not let in is not told why.
    is_curt: AtomicBool,
    /// It wants another scope of the login before it says what it speaks, and takes no handshake.
    wants_scope: AtomicBool,
    /// What the metadata of the authorization server says otherwise.
    metadata: Mutex<serde_json::Map<String, Value>>,
    /// What it answers to a registration otherwise.
    registers: Mutex<serde_json::Map<String, Value>>,
}

struct Site {
    url: String,
    state: Arc<State>,
}

impl Site {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let base = format!("http://{}", listener.local_addr().unwrap());
        let state = Arc::new(State { lasts: Mutex::new(json!(3_600)), ..State::default() });
        base.clone_into(&mut state.base.lock().unwrap());
        let serving = Arc::clone(&state);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let state = Arc::clone(&serving);
                tokio::spawn(async move { state.serve(stream).await });
            }
        });
        Self { url: format!("{base}/mcp"), state }
    }

    fn seen(&self, path: &str) -> Vec<Seen> {
        self.state.seen.lock().unwrap().iter().filter(|seen| seen.path() == path).cloned().collect()
    }

    /// The calls of tools that arrived, let in or not.
    fn calls(&self) -> Vec<Seen> {
        self.seen("/mcp").into_iter().filter(|seen| seen.json()["method"] == "tools/call").collect()
    }

    /// Lets nobody in any more whose token is one of those that are out; with `renewal`, nobody renews one either.
    fn revoke(&self, renewal: bool) {
        self.state.tokens.lock().unwrap().clear();
        if renewal {
            self.state.refresh.lock().unwrap().clear();
        }
    }

    /// Lets nobody in any more but whoever logged in last.
    fn revoke_but_newest(&self) {
        let mut tokens = self.state.tokens.lock().unwrap();
        let newest = tokens.last().cloned();
        tokens.retain(|token| Some(token) == newest.as_ref());
    }

    fn let_tokens_last(&self, seconds: u64) {
        *self.state.lasts.lock().unwrap() = json!(seconds);
    }

    fn request(&self) -> LoginRequest {
        LoginRequest {
            address: self.url.clone(),
            headers: BTreeMap::new(),
            redirect_uri: "http://127.0.0.1:9/callback".to_owned(),
            scopes: Vec::new(),
            client: None,
            client_metadata: None,
            private_network: false,
            assume_pkce: false,
        }
    }

    /// Logs in as a person with a browser does.
    async fn log_in(&self, logins: &Logins, request: LoginRequest) -> Result<LoginFacts, LoginError> {
        let pending = Box::pin(logins.begin(request)).await?;
        let browser = ua_http::client(ua_http::Versions::One).build();
        let sent = browser.unwrap().get(pending.address()).send().await.unwrap();
        let back = sent.headers()["location"].to_str().unwrap().to_owned();
        assert!(pending.is_answered_by(&back) && !pending.is_answered_by("http://127.0.0.1:9/callback?code=x&state=y"));
        pending.finish(&back).await
    }
}

impl State {
    async fn serve(&self, stream: TcpStream) {
        let mut stream = BufReader::new(stream);
        while let Some(seen) = read(&mut stream).await {
            self.seen.lock().unwrap().push(seen.clone());
            if *self.silent_at.lock().unwrap() == Some(seen.path()) {
                std::future::pending::<()>().await;
            }
            let (status, headers, body) = self.answer(&seen);
            let head = format!("HTTP/1.1 {status}\r\n{headers}content-length: {}\r\n\r\n{body}", body.len());
            stream.get_mut().write_all(head.as_bytes()).await.unwrap_or_default();
        }
    }

    fn answer(&self, seen: &Seen) -> (&'static str, String, String) {
        let base = self.base.lock().unwrap().clone();
        let json_type = "content-type: application/json\r\n".to_owned();
        let ok = |body: Value| ("200 OK", json_type.clone(), body.to_string());
        match seen.path() {
            "/mcp" => self.tools(seen, &base),
            "/.well-known/oauth-protected-resource/mcp" => ok(json!({"resource": format!("{base}/mcp"),
                "authorization_servers": [base], "scopes_supported": ["tools"]})),
            "/.well-known/oauth-authorization-server" => {
                let mut metadata = json!({"issuer": base,
                "authorization_endpoint": format!("{base}/authorize"), "token_endpoint": format!("{base}/token"),
                "registration_endpoint": format!("{base}/register"), "response_types_supported": ["code"],
                "code_challenge_methods_supported": ["S256"], "authorization_response_iss_parameter_supported": true,
                "scopes_supported": ["tools", "offline_access"]});
                metadata.as_object_mut().unwrap().extend(self.metadata.lock().unwrap().clone());
                ok(metadata)
            }
            "/register" => {
                let redirects = seen.json()["redirect_uris"].clone();
                let mut client = json!({"client_id": "client-of-ua", "client_secret": "cs-canary-012345678",
                    "redirect_uris": redirects});
                client.as_object_mut().unwrap().extend(self.registers.lock().unwrap().clone());
                ok(client)
            }
            "/moved" => ("307 Temporary Redirect", format!("location: {base}/register\r\n"), String::new()),
            "/authorize" => {
                let code = format!("code-canary-{}", self.number());
                self.challenges.lock().unwrap().insert(code.clone(), seen.field("code_challenge").unwrap());
                let back = Url::parse_with_params(
                    &seen.field("redirect_uri").unwrap(),
                    [("code", code), ("state", seen.field("state").unwrap()), ("iss", base)],
                );
                ("302 Found", format!("location: {}\r\n", back.unwrap()), String::new())
            }
            "/token" if self.fails() => ("500 Internal Server Error", String::new(), "out of order".to_owned()),
            "/token" => self
                .token(seen)
                .map_or_else(|error| ("400 Bad Request", json_type.clone(), json!({"error": error}).to_string()), ok),
            _ => ("404 Not Found", String::new(), String::new()),
        }
    }

    fn fails(&self) -> bool {
        let mut failing = self.failing.lock().unwrap();
        let fails = *failing > 0;
        *failing = failing.saturating_sub(1);
        fails
    }

    fn number(&self) -> u32 {
        let mut made = self.made.lock().unwrap();
        *made += 1;
        *made
    }

    fn token(&self, seen: &Seen) -> Result<Value, &'static str> {
        if seen.field("resource").as_deref() != Some(&format!("{}/mcp", self.base.lock().unwrap())) {
            return Err("invalid_target");
        }
        match seen.field("grant_type").as_deref() {
            Some("authorization_code") => {
                if let Some(error) = *self.exchange.lock().unwrap() {
                    return Err(error);
                }
                let code = seen.field("code").ok_or("invalid_request")?;
                let challenge = self.challenges.lock().unwrap().remove(&code).ok_or("invalid_grant")?;
                let verifier = seen.field("code_verifier").ok_or("invalid_request")?;
                if base64url(&ua_core::sha256(verifier).to_hex()) != challenge {
                    return Err("invalid_grant");
                }
            }
            Some("refresh_token") => {
                if let Some(error) = *self.renewal.lock().unwrap() {
                    return Err(error);
                }
                let token = seen.field("refresh_token").ok_or("invalid_request")?;
                if !self.refresh.lock().unwrap().remove(&token) {
                    return Err("invalid_grant");
                }
            }
            Some("client_credentials") => {
                if let Some(error) = *self.exchange.lock().unwrap() {
                    return Err(error);
                }
                if !client::is_from_client(seen) && !signed::is_from_key(seen, &self.base.lock().unwrap()) {
                    return Err("invalid_client");
                }
            }
            _ => return Err("unsupported_grant_type"),
        }
        let number = self.number();
        let (token, refresh) = (format!("at-canary-{number:08}"), format!("rt-canary-{number:08}"));
        let token = self.gives.lock().unwrap().map_or(token, str::to_owned);
        self.tokens.lock().unwrap().insert(token.clone());
        self.refresh.lock().unwrap().insert(refresh.clone());
        Ok(json!({"access_token": token, "token_type": "Bearer", "refresh_token": refresh,
                  "expires_in": self.lasts.lock().unwrap().clone()}))
    }

    /// The tool server.
    fn tools(&self, seen: &Seen, base: &str) -> (&'static str, String, String) {
        let is_in = seen.token().is_some_and(|token| self.tokens.lock().unwrap().contains(token));
        if !is_in {
            let place = format!("{base}/.well-known/oauth-protected-resource/mcp");
            let challenge = format!("www-authenticate: Bearer resource_metadata=\"{place}\"\r\n");
            let challenge = if self.is_curt.load(Ordering::SeqCst) { String::new() } else { challenge };
            return ("401 Unauthorized", challenge, "who are you?".to_owned());
        }
        let message = seen.json();
        let wants_scope = self.wants_scope.load(Ordering::SeqCst);
        let result = match message["method"].as_str() {
            Some("server/discover") if wants_scope => {
                let challenge = "www-authenticate: Bearer error=\"insufficient_scope\", scope=\"mail:read\"\r\n";
                let body = json!({"jsonrpc": "2.0", "id": message["id"], "error": {"code": -32001, "message": "no"}});
                return ("403 Forbidden", challenge.to_owned(), body.to_string());
            }
            Some("initialize") if wants_scope => {
                return ("400 Bad Request", String::new(), "no handshake here".to_owned());
            }
            Some("initialize") => json!({"protocolVersion": "2025-06-18", "capabilities": {"tools": {}},
                "serverInfo": {"name": "site", "version": "1"}}),
            Some("tools/list") => json!({"tools": [{"name": "send", "inputSchema": {"type": "object"}}]}),
            Some("tools/call") if message["params"]["name"] == "forbidden" => {
                let challenge = "www-authenticate: Bearer error=\"insufficient_scope\", scope=\"mail:send\"\r\n";
                return ("403 Forbidden", challenge.to_owned(), "not with this login".to_owned());
            }
            Some("tools/call") => json!({"content": [{"type": "text", "text": "sent"}]}),
            _ if seen.body.is_empty() => return ("405 Method Not Allowed", String::new(), String::new()),
            _ => return ("202 Accepted", String::new(), String::new()),
        };
        let answer = json!({"jsonrpc": "2.0", "id": message["id"], "result": result});
        ("200 OK", "content-type: application/json\r\n".to_owned(), answer.to_string())
    }
}

/// The bytes that hexadecimal digits stand for, in the alphabet of addresses.
fn base64url(hex: &str) -> String {
    const ALPHABET: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let bytes: Vec<u8> =
        (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect();
    let mut out = String::new();
    for three in bytes.chunks(3) {
        let number =
            three.iter().fold(0_u32, |number, byte| (number << 8) | u32::from(*byte)) << (8 * (3 - three.len()));
        for place in 0..=three.len() {
            out.push(char::from(ALPHABET[(number >> (18 - 6 * place)) as usize & 63]));
        }
    }
    out
}

async fn read(stream: &mut BufReader<TcpStream>) -> Option<Seen> {
    let mut line = String::new();
    stream.read_line(&mut line).await.ok()?;
    let target = line.split(' ').nth(1)?.to_owned();
    let mut headers = BTreeMap::new();
    loop {
        let mut line = String::new();
        stream.read_line(&mut line).await.ok()?;
        let Some((name, value)) = line.split_once(':') else { break };
        headers.insert(name.to_ascii_lowercase(), value.trim().to_owned());
    }
    let mut body = vec![0; headers.get("content-length").map_or(0, |length| length.parse().unwrap())];
    stream.read_exact(&mut body).await.ok()?;
    Some(Seen { target, headers, body: String::from_utf8(body).unwrap() })
}

/// A vault in memory, for several processes.
#[derive(Debug, Default)]
struct Shelves {
    kept: Mutex<BTreeMap<String, String>>,
    learned: Mutex<Vec<String>>,
    taken: Arc<AtomicBool>,
}

struct Taken(Arc<AtomicBool>);

impl Drop for Taken {
    fn drop(&mut self) {
        self.0.store(false, Ordering::SeqCst);
    }
}

impl Vault for Shelves {
    fn load(&self, address: &str) -> Result<Option<String>, String> {
        Ok(self.kept.lock().unwrap().get(address).cloned())
    }

    fn save(&self, address: &str, login: &str, _facts: &LoginFacts) -> Result<(), String> {
        // Whatever is kept was learned before.
        let learned = self.learned.lock().unwrap();
        let kept: Value = serde_json::from_str(login).unwrap();
        let token = kept["credentials"]["token_response"]["access_token"].as_str();
        // A client's has no refresh token, and nothing else that would have to be kept with it.
        let token = token.or_else(|| kept["token"].as_str()).unwrap();
        assert!(learned.iter().any(|secret| secret == token), "{learned:?}");
        self.kept.lock().unwrap().insert(address.to_owned(), login.to_owned());
        Ok(())
    }

    fn lock(&self, _address: &str) -> Result<Box<dyn Send>, String> {
        while self.taken.swap(true, Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(Box::new(Taken(Arc::clone(&self.taken))))
    }

    fn learn(&self, secrets: Vec<(String, String)>) {
        self.learned.lock().unwrap().extend(secrets.into_iter().map(|(_, secret)| secret));
    }
}

fn logins(shelves: &Arc<Shelves>) -> Logins {
    Logins::new(Arc::<Shelves>::clone(shelves), ua_core::system::env())
}

/// A transport with these logins.
fn world(site: &Site, logins: &Logins) -> ServerBed {
    let mut world = ServerBed::new(http("web", &site.url, &[]));
    world.shared.logins = Some(logins.clone());
    world
}

#[tokio::test]
async fn a_person_logs_in_once_and_calls_go_out_with_the_token() {
    let (site, shelves) = (Site::start().await, Arc::new(Shelves::default()));
    let own = logins(&shelves);
    let facts = site.log_in(&own, site.request()).await.unwrap();
    assert_eq!((facts.client_id.as_str(), facts.renewable), ("client-of-ua", true));
    assert_eq!(facts.scopes, ["tools", "offline_access"], "what the server says it needs, and what renews it");
    let asked = &site.seen("/authorize")[0];
    assert_eq!(asked.field("code_challenge_method").as_deref(), Some("S256"));
    assert_eq!(asked.field("resource"), Some(site.url.clone()));
    assert_eq!(site.seen("/register")[0].json()["application_type"], "native");
    // The secret that the client was given goes with the exchange.
    assert!(site.seen("/token")[0].headers["authorization"].starts_with("Basic "));

    let world = world(&site, &own);
    let (_, connection) = world.ready().await;
    assert_eq!(text(call(&connection, "send", json!({})).await), "sent");
    assert_eq!(site.calls()[0].token(), Some("at-canary-00000002"));
    let shown = format!("{own:?} {world:?}", world = world.shared.logins);
    assert!(!shown.contains("canary"), "{shown}");
    for secret in ["at-canary-00000002", "rt-canary-00000002", "cs-canary-012345678", "code-canary-1"] {
        assert!(shelves.learned.lock().unwrap().iter().any(|learned| learned == secret), "{secret}");
    }
    // Another process of the user is let in without asking anybody.
    let other = logins(&shelves);
    assert_eq!(other.token(&site.url).await.unwrap().as_deref(), Some("at-canary-00000002"));
    assert_eq!(other.token("http://127.0.0.1:9/mcp").await.unwrap(), None, "the token is for one address");
}

#[tokio::test]
async fn a_server_that_wants_a_login_is_said_so_with_the_command() {
    let (site, shelves) = (Site::start().await, Arc::new(Shelves::default()));
    let why = world(&site, &logins(&shelves)).refusal().await;
    assert!(why.contains("HTTP status 401 Unauthorized; log in with `ua login web`"), "{why}");
}

#[tokio::test]
async fn a_token_that_is_about_to_end_is_renewed_before_it_is_sent_and_by_one_process() {
    let (site, shelves) = (Site::start().await, Arc::new(Shelves::default()));
    site.let_tokens_last(20); // less than the margin
    site.log_in(&logins(&shelves), site.request()).await.unwrap();
    site.let_tokens_last(3_600);
    let processes: Vec<Logins> = (0..5).map(|_| logins(&shelves)).collect();
    let tokens = futures_util::future::join_all(processes.iter().map(|one| one.token(&site.url))).await;
    let tokens: BTreeSet<Option<String>> = tokens.into_iter().map(Result::unwrap).collect();
    assert_eq!(tokens, BTreeSet::from([Some("at-canary-00000003".to_owned())]));
    let exchanges = site.seen("/token");
    let renewals = exchanges.iter().filter(|seen| seen.field("grant_type").as_deref() == Some("refresh_token"));
    assert_eq!(renewals.clone().count(), 1, "whoever came later found it renewed");
    assert!(
        renewals.clone().all(|seen| seen.headers["authorization"].starts_with("Basic ")),
        "with the client's secret"
    );
}

/// A server that refuses a token by a challenge has not begun with the call: it is one that never left, and whoever sent it decides.
#[tokio::test]
async fn a_call_whose_token_is_refused_is_posted_once_and_the_next_one_has_another() {
    let (site, shelves) = (Site::start().await, Arc::new(Shelves::default()));
    let own = logins(&shelves);
    site.log_in(&own, site.request()).await.unwrap();
    let world = world(&site, &own);
    let (_, connection) = world.ready().await;
    site.revoke(false);
    let refused = call(&connection, "send", json!({})).await;
    let Outcome::NotSent { why } = refused else { panic!("{refused:?}") };
    assert!(why.contains("its login had ended (HTTP status 401 Unauthorized) and was renewed"), "{why}");
    assert_eq!(site.calls().len(), 1);
    assert_eq!(text(call(&connection, "send", json!({})).await), "sent");
    let tokens: Vec<_> = site.calls().iter().map(|seen| seen.token().unwrap().to_owned()).collect();
    assert_eq!(tokens, ["at-canary-00000002", "at-canary-00000003"]);
    // What only asks is asked again at once.
    site.revoke(false);
    assert_eq!(world.server.list(&world.shared).await.unwrap().tools.len(), 1);
}

/// A 401 without a challenge may come from behind the door, where part of the work was done: such a call is in doubt, and not one that never left. The
/// login is renewed all the same. What may simply be repeated is, and what only asks is asked once more.
#[tokio::test]
async fn a_refusal_without_a_challenge_leaves_a_call_in_doubt() {
    let (site, shelves) = (Site::start().await, Arc::new(Shelves::default()));
    let own = logins(&shelves);
    site.log_in(&own, site.request()).await.unwrap();
    let world = world(&site, &own);
    let (_, connection) = world.ready().await;
    site.state.is_curt.store(true, Ordering::SeqCst);
    site.revoke(false);
    let refused = call(&connection, "send", json!({})).await;
    let Outcome::Lost { why } = refused else { panic!("{refused:?}") };
    assert!(why.contains("HTTP status 401") && why.ends_with("who are you?"), "{why}");
    assert_eq!(site.calls().len(), 1);
    assert_eq!(text(call(&connection, "send", json!({})).await), "sent");
    site.revoke(false);
    let sending = crate::exchange::Sending { may_repeat: true, ..super::http::sending("send", json!({})) };
    let refused = connection.call(sending, &ua_core::system::env()).await;
    assert!(matches!(refused, Outcome::NotSent { .. }), "{refused:?}");
    assert_eq!(text(call(&connection, "send", json!({})).await), "sent");
    site.revoke(false);
    assert_eq!(world.server.list(&world.shared).await.unwrap().tools.len(), 1);
}

/// Nor does it show that nothing was begun when the call's time is up while the login is renewed.
#[tokio::test]
async fn a_call_that_was_refused_without_a_challenge_and_whose_time_is_up_is_in_doubt() {
    let (site, shelves) = (Site::start().await, Arc::new(Shelves::default()));
    let own = logins(&shelves);
    site.log_in(&own, site.request()).await.unwrap();
    let world = world(&site, &own);
    let (_, connection) = world.ready().await;
    site.state.is_curt.store(true, Ordering::SeqCst);
    site.revoke(false);
    *site.state.silent_at.lock().unwrap() = Some("/token");
    let limit = Some(Duration::from_secs(1));
    let sending = crate::exchange::Sending { timeout: limit, ..super::http::sending("send", json!({})) };
    let given_up = connection.call(sending, &ua_core::system::env()).await;
    assert!(matches!(given_up, Outcome::Lost { .. }), "{given_up:?}");
    assert_eq!(site.calls().len(), 1);
}

#[tokio::test]
async fn a_login_that_has_ended_is_a_refusal_that_says_what_to_do() {
    let (site, shelves) = (Site::start().await, Arc::new(Shelves::default()));
    let own = logins(&shelves);
    site.log_in(&own, site.request()).await.unwrap();
    let world = world(&site, &own);
    let (_, connection) = world.ready().await;
    let forbidden = call(&connection, "forbidden", json!({})).await;
    let Outcome::Raw(RawReply::HttpStatus { status: 403, body, .. }) = forbidden else { panic!("{forbidden:?}") };
    assert!(body.contains("`ua login web --scope \"mail:send\"`"), "{body}");
    site.revoke(true);
    let ended = call(&connection, "send", json!({})).await;
    let Outcome::Raw(RawReply::HttpStatus { status: 401, body, .. }) = ended else { panic!("{ended:?}") };
    assert!(body.starts_with("who are you?") && body.contains("log in with `ua login web`"), "{body}");
    assert_eq!(site.calls().len(), 2, "each was posted once");
    // Somebody logs in anew in another terminal, and the run goes on, in another session.
    site.log_in(&logins(&shelves), site.request()).await.unwrap();
    assert!(matches!(call(&connection, "send", json!({})).await, Outcome::NotSent { .. }));
    assert!(connection.ended().is_some());
    let (_, connection) = world.ready().await;
    assert_eq!(text(call(&connection, "send", json!({})).await), "sent");
}

/// A server of the stateless era, which wants more of the login, is not asked for a handshake: what it says of that would stand in the place of what
/// helps.
#[tokio::test]
async fn a_login_that_may_not_ask_what_a_server_speaks_is_told_which_scope_it_lacks() {
    let (site, shelves) = (Site::start().await, Arc::new(Shelves::default()));
    let own = logins(&shelves);
    site.log_in(&own, site.request()).await.unwrap();
    site.state.wants_scope.store(true, Ordering::SeqCst);
    let mut world =
        ServerBed::new(crate::ServerSpec { protocol: crate::Protocol::Auto, ..http("web", &site.url, &[]) });
    world.shared.logins = Some(own.clone());
    let why = world.refusal().await;
    assert!(why.contains("`ua login web --scope \"mail:read\"`") && !why.contains("handshake"), "{why}");
}

/// Which login it is stays over every renewal, in every process, and is another one each time that a person logs in.
#[tokio::test]
async fn a_login_has_an_identity_that_outlives_its_tokens() {
    let (site, shelves) = (Site::start().await, Arc::new(Shelves::default()));
    site.let_tokens_last(20); // less than the margin
    let first = site.log_in(&logins(&shelves), site.request()).await.unwrap();
    let own = logins(&shelves);
    assert_eq!(own.identity(&site.url).unwrap(), Some(first.identity()), "before anybody has looked");
    site.let_tokens_last(3_600);
    assert_eq!(own.token(&site.url).await.unwrap().as_deref(), Some("at-canary-00000003"), "renewed");
    assert_eq!(own.identity(&site.url).unwrap(), Some(first.identity()));
    assert_eq!(logins(&shelves).identity(&site.url).unwrap(), Some(first.identity()));
    // Another process has logged in: this one goes on with what it has, and says so.
    let second = site.log_in(&logins(&shelves), site.request()).await.unwrap();
    assert_ne!(second.identity(), first.identity());
    assert_eq!(own.identity(&site.url).unwrap(), Some(first.identity()));
    assert_eq!(logins(&shelves).identity(&site.url).unwrap(), Some(second.identity()));
    assert_eq!(own.identity("http://127.0.0.1:9/mcp").unwrap(), None);
}

/// What an earlier version kept has an identity, too, and keeps it when it is renewed.
#[tokio::test]
async fn a_login_of_an_earlier_version_keeps_what_it_is_known_by() {
    let (site, shelves) = (Site::start().await, Arc::new(Shelves::default()));
    site.let_tokens_last(20);
    site.log_in(&logins(&shelves), site.request()).await.unwrap();
    {
        let mut kept = shelves.kept.lock().unwrap();
        let mut earlier: Value = serde_json::from_str(&kept[&site.url]).unwrap();
        assert!(earlier.as_object_mut().unwrap().remove("login").is_some());
        kept.insert(site.url.clone(), earlier.to_string());
    }
    let identity = logins(&shelves).identity(&site.url).unwrap();
    assert!(identity.as_ref().is_some_and(|identity| identity.starts_with("client-of-ua of ")), "{identity:?}");
    site.let_tokens_last(3_600);
    let own = logins(&shelves);
    own.token(&site.url).await.unwrap();
    assert_eq!(own.identity(&site.url).unwrap(), identity);
}

/// A person logs in as somebody else while a call is on its way to be sent: it is not, and what was decided for the one is nothing to the other.
#[tokio::test]
async fn a_call_goes_with_the_login_that_it_was_decided_for_or_not_at_all() {
    let (site, shelves) = (Site::start().await, Arc::new(Shelves::default()));
    let own = logins(&shelves);
    site.log_in(&own, site.request()).await.unwrap();
    let run = Run::with_logins(http("fake", &site.url, &[]), &own);
    let name = ToolName::qualified(ToolNamespace::Mcp, "fake", "send");
    let goes = || run.transport.destination(&name, &Value::Null).unwrap().unwrap();
    let first = run.transport.ready("fake").await.unwrap();
    let then = goes();
    let permit = || Box::pin(run.permit("send", json!({}), CallPolicy::unclassified(), &first));
    let (sent, held) = (permit().await, permit().await);
    assert_eq!(text(run.transport.invoke(&sent).await), "sent");
    // Another process has logged in, and this one's token ends.
    site.log_in(&logins(&shelves), site.request()).await.unwrap();
    site.revoke_but_newest();
    let handle = Handle { task: Some("t1".to_owned()), ..Handle::default() };
    let refused = run.transport.invoke(&held).await;
    assert!(matches!(refused, Outcome::NotSent { .. }), "{refused:?}");
    assert_eq!(then.changes(Some(&goes())), ["login"]);
    assert_eq!(run.transport.running("fake"), None, "the session was the other one's");
    let second = run.transport.ready("fake").await.unwrap();
    assert_ne!(first, second);
    // What was decided for the first login is not followed, nor ended, as the second.
    let before = site.seen("/mcp").len();
    let went = run.transport.go_on(&held, &handle).await;
    assert!(matches!(went, Err(TransportError::Elsewhere { .. })), "{went:?}");
    run.transport.give_up(&held, &handle).await;
    assert_eq!(site.seen("/mcp").len(), before);
    let anew = Box::pin(run.permit("send", json!({}), CallPolicy::unclassified(), &second)).await;
    assert_eq!(text(run.transport.invoke(&anew).await), "sent");
    run.transport.shutdown().await;
}

/// A server that takes no token, however new: one renewal for one refusal, and no circle.
#[tokio::test]
async fn a_server_that_takes_no_token_is_not_asked_for_ever() {
    let (site, shelves) = (Site::start().await, Arc::new(Shelves::default()));
    let own = logins(&shelves);
    site.log_in(&own, site.request()).await.unwrap();
    let world = world(&site, &own);
    let (_, connection) = world.ready().await;
    site.revoke(false);
    assert!(matches!(call(&connection, "send", json!({})).await, Outcome::NotSent { .. }));
    site.revoke(false);
    let second = call(&connection, "send", json!({})).await;
    let Outcome::Raw(RawReply::HttpStatus { status: 401, body, .. }) = second else { panic!("{second:?}") };
    assert!(body.contains("even one that was just renewed"), "{body}");
}

#[tokio::test]
async fn who_is_not_let_in_and_who_comes_back_from_elsewhere_has_no_login() {
    let (site, shelves) = (Site::start().await, Arc::new(Shelves::default()));
    let own = logins(&shelves);
    let pending = own.begin(site.request()).await.unwrap();
    let refused = pending.finish("http://127.0.0.1:9/callback?error=access_denied&error_description=no&state=x").await;
    assert_eq!(refused.unwrap_err(), LoginError::Denied("the login was refused (access_denied: no)".into()));
    for (error, is_for_a_while) in [("temporarily_unavailable", true), ("server_error", true), ("invalid_scope", false)]
    {
        let pending = own.begin(site.request()).await.unwrap();
        let refused = pending.finish(&format!("http://127.0.0.1:9/callback?error={error}&state=x")).await.unwrap_err();
        assert_eq!(matches!(refused, LoginError::Unreachable(_)), is_for_a_while, "{error}: {refused:?}");
        assert_eq!(matches!(refused, LoginError::Refused(_)), !is_for_a_while, "{error}: {refused:?}");
    }
    // An answer of another authorization server than the one that was asked.
    let pending = own.begin(site.request()).await.unwrap();
    let state = Url::parse(pending.address()).unwrap();
    let state = state.query_pairs().find(|(key, _)| key == "state").unwrap().1.into_owned();
    let back = format!("http://127.0.0.1:9/callback?code=c&state={state}&iss=http://elsewhere.example");
    let denied = pending.finish(&back).await.unwrap_err();
    let why = denied.to_string();
    assert!(matches!(denied, LoginError::Denied(_)) && why.contains("elsewhere.example"), "{why}");
    assert!(!why.contains("2025-03-26"), "its description was fine: {why}");
    assert!(site.seen("/token").is_empty(), "nothing was sent anywhere");
    assert_eq!(shelves.kept.lock().unwrap().len(), 0);
    let over_http = check_address("http://example.org/mcp").unwrap_err();
    assert!(over_http.to_string().contains("needs https"), "{over_http}");
    for address in ["https://example.org/mcp", "http://localhost:1/mcp", "http://[::1]:1/mcp"] {
        check_address(address).unwrap();
    }
}

#[tokio::test]
async fn a_client_that_a_person_has_already_is_not_registered_and_scopes_add_up() {
    let (site, shelves) = (Site::start().await, Arc::new(Shelves::default()));
    let own = logins(&shelves);
    let client = OwnClient { id: "team".into(), secret: Some("cs-of-team-0123".into()) };
    let request = LoginRequest { client: Some(client), ..site.request() };
    assert!(!format!("{request:?}").contains("cs-of-team"));
    assert_eq!(site.log_in(&own, request.clone()).await.unwrap().client_id, "team");
    assert_eq!(site.seen("/register").len(), 0);
    let more = LoginRequest { scopes: vec!["mail:send".into()], ..request };
    let facts = site.log_in(&own, more).await.unwrap();
    assert_eq!(facts.scopes, ["tools", "offline_access", "mail:send"]);
}

#[tokio::test]
async fn a_server_that_lets_everybody_in_and_names_no_place_has_no_login() {
    let site = super::hostile::Hostile::start().await;
    let own = logins(&Arc::new(Shelves::default()));
    let request = LoginRequest {
        address: site.url.clone(),
        headers: BTreeMap::new(),
        redirect_uri: "http://127.0.0.1:9/callback".to_owned(),
        scopes: Vec::new(),
        client: None,
        client_metadata: None,
        private_network: false,
        assume_pkce: false,
    };
    let why = own.begin(request).await.unwrap_err().to_string();
    assert!(why.contains("does not ask for a login"), "{why}");
}

/// What a server names is opened by a browser, and codes, secrets and tokens go there: nothing of another kind than the web, and nothing that a
/// network could read.
#[tokio::test]
async fn s10_a_login_opens_and_asks_nothing_but_https_and_this_machine() {
    let addresses = [
        "javascript:alert(1)",
        "file:///etc/passwd",
        "file://localhost/etc/passwd",
        "http://evil.example/authorize",
        "https://accounts.example@evil.example/authorize",
        "http://127.0.0.1@evil.example/authorize",
        "vscode://settings",
        "data:text/html,x",
    ];
    for place in ["authorization_endpoint", "token_endpoint", "registration_endpoint"] {
        for address in addresses {
            let site = Site::start().await;
            site.state.metadata.lock().unwrap().insert(place.to_owned(), address.into());
            let logins = logins(&Arc::default());
            let refused = logins.begin(site.request()).await.unwrap_err();
            assert!(matches!(refused, LoginError::Refused(_)), "{place} {address}: {refused}");
            assert_eq!((site.seen("/register").len(), site.seen("/token").len()), (0, 0), "{place} {address}");
        }
    }
    // A login that is there is not renewed at such a place either.
    let site = Site::start().await;
    site.let_tokens_last(1);
    let logins = logins(&Arc::default());
    site.log_in(&logins, site.request()).await.unwrap();
    let before = site.seen("/token").len();
    site.state.metadata.lock().unwrap().insert("token_endpoint".to_owned(), "http://evil.example/token".into());
    let refused = logins.token(&site.url).await.unwrap_err();
    assert!(refused.to_string().contains("must be https, or http on this machine"), "{refused}");
    assert_eq!(site.seen("/token").len(), before);
}

/// MCP's authorization specification: a client refuses to go on where the metadata does not say that PKCE is supported.
#[tokio::test]
async fn s10_a_server_that_does_not_say_that_it_supports_pkce_has_no_login() {
    for says in [json!(null), json!([]), json!(["plain"])] {
        let site = Site::start().await;
        site.state.metadata.lock().unwrap().insert("code_challenge_methods_supported".to_owned(), says.clone());
        let logins = logins(&Arc::default());
        let refused = logins.begin(site.request()).await.unwrap_err();
        assert!(refused.to_string().contains("PKCE"), "{says}: {refused}");
        assert_eq!(site.seen("/authorize").len(), 0);
        // A person may know better than a server that says nothing, and not better than one that says no.
        let request = LoginRequest { assume_pkce: true, ..site.request() };
        assert_eq!(site.log_in(&logins, request).await.is_ok(), says.is_null(), "{says}");
    }
}

/// What is sent to register goes where the metadata says, and nowhere else.
#[tokio::test]
async fn s10_a_registration_follows_no_redirect() {
    let site = Site::start().await;
    let moved = format!("{}/moved", site.state.base.lock().unwrap());
    site.state.metadata.lock().unwrap().insert("registration_endpoint".to_owned(), moved.into());
    let refused = logins(&Arc::default()).begin(site.request()).await.unwrap_err();
    assert!(refused.to_string().contains("which is not followed"), "{refused}");
    assert_eq!((site.seen("/moved").len(), site.seen("/register").len()), (1, 0));
}

/// What is out of order for a moment ends no login and asks nobody; what is refused is not asked again.
#[tokio::test]
async fn a_login_is_renewed_also_while_its_server_fails_for_a_moment() {
    let site = Site::start().await;
    site.let_tokens_last(1);
    let env = ua_core::Env::simulated(1);
    let logins = Logins::new(Arc::<Shelves>::default(), env.clone());
    site.log_in(&logins, site.request()).await.unwrap();
    // The client library goes by the clock on the wall. By this one each of its tokens has ended.
    env.clock.sleep(Duration::from_hours(100 * 365 * 24)).await;
    for failures in [1, 3] {
        let before = site.seen("/token").len();
        *site.state.failing.lock().unwrap() = failures;
        assert!(logins.token(&site.url).await.unwrap().is_some());
        assert_eq!(site.seen("/token").len() - before, failures as usize + 1);
    }
    *site.state.failing.lock().unwrap() = u32::MAX;
    assert!(matches!(logins.token(&site.url).await, Err(LoginError::Unreachable(_))));
    *site.state.failing.lock().unwrap() = 0;
    site.revoke(true);
    let before = site.seen("/token").len();
    assert!(matches!(logins.token(&site.url).await, Err(LoginError::Ended(_))));
    assert_eq!(site.seen("/token").len() - before, 1);
}

/// The clock of the system, whose waits are over sixty times sooner.
#[derive(Debug)]
struct Hurried(SystemClock);

impl Clock for Hurried {
    fn now(&self) -> Timestamp {
        self.0.now()
    }

    fn sleep(&self, span: Duration) -> Sleep {
        self.0.sleep(span / 60)
    }

    fn passes_by_itself(&self) -> bool {
        true
    }
}

/// Who begins a login is told of a server that does not answer, by its name and with the time that it had, whichever of them it is.
#[tokio::test]
async fn a_login_waits_for_nobody_for_ever() {
    for (silent_at, who) in [("/mcp", ""), ("/register", "the authorization server of ")] {
        let site = Site::start().await;
        *site.state.silent_at.lock().unwrap() = Some(silent_at);
        let env = Env { clock: Arc::new(Hurried(SystemClock)), ..ua_core::system::env() };
        let logins = Logins::new(Arc::<Shelves>::default(), env);
        let login = site.log_in(&logins, site.request());
        let Err(LoginError::Unreachable(why)) = login.await else { panic!("{silent_at}") };
        let host = crate::host_of(&site.url).unwrap();
        assert!(why.ends_with(&format!("{who}{host} did not answer within 30 s")), "{why}");
    }
}

/// A tool server whose login cannot be renewed in time was asked nothing. It is waited for as one that is away, and what is waited for has a name.
#[tokio::test]
async fn a_start_that_waits_for_an_authorization_server_says_so() {
    let (site, shelves) = (Site::start().await, Arc::new(Shelves::default()));
    site.let_tokens_last(1);
    site.log_in(&logins(&shelves), site.request()).await.unwrap();
    *site.state.silent_at.lock().unwrap() = Some("/token");
    let mut world = world(&site, &logins(&shelves));
    world.shared.start_timeout = Duration::from_secs(1);
    let refused = world.server.ready(&world.shared).await;
    let Err(TransportError::Away { why, .. }) = refused else { panic!("{:?}", refused.err()) };
    let renewal = "the login there was not renewed within 1 s: its authorization server did not answer, attempt 1 of 6";
    assert_eq!(why, renewal);
}

/// The time of a call may be up while its login is renewed, in front of the request or behind a refusal: it was not sent, and nobody is asked whether it
/// happened.
#[tokio::test]
async fn a_call_whose_time_is_up_while_its_login_is_renewed_was_not_sent() {
    for is_refused in [false, true] {
        let (site, shelves) = (Site::start().await, Arc::new(Shelves::default()));
        // A token that is always about to end is renewed in front of each request.
        site.let_tokens_last(if is_refused { 3_600 } else { 1 });
        let own = logins(&shelves);
        site.log_in(&own, site.request()).await.unwrap();
        let world = world(&site, &own);
        let (_, connection) = world.ready().await;
        if is_refused {
            site.revoke(false);
        }
        *site.state.silent_at.lock().unwrap() = Some("/token");
        let limit = Some(Duration::from_secs(1));
        let sending = crate::exchange::Sending { timeout: limit, ..super::http::sending("send", json!({})) };
        let given_up = connection.call(sending, &ua_core::system::env()).await;
        let Outcome::NotSent { why } = given_up else { panic!("{is_refused}: {given_up:?}") };
        assert!(why.contains("was not renewed within 1 s, so nothing was begun there"), "{is_refused}: {why}");
        assert_eq!(site.calls().len(), usize::from(is_refused), "posted once, and refused");
    }
}

/// What is said of this client, or of this login, only a person changes: it is no outage, and the person is told at once.
#[tokio::test]
async fn a_renewal_that_is_refused_for_good_ends_the_login_and_one_that_may_pass_does_not() {
    for (error, is_for_good) in [
        ("invalid_grant", true),
        ("invalid_client", true),
        ("unauthorized_client", true),
        ("unsupported_grant_type", true),
        ("invalid_scope", true),
        ("server_error", false),
        ("temporarily_unavailable", false),
        ("slow_down", false),
    ] {
        let site = Site::start().await;
        site.let_tokens_last(1);
        let env = ua_core::Env::simulated(1);
        let logins = Logins::new(Arc::<Shelves>::default(), env.clone());
        site.log_in(&logins, site.request()).await.unwrap();
        env.clock.sleep(Duration::from_hours(100 * 365 * 24)).await;
        *site.state.renewal.lock().unwrap() = Some(error);
        let before = site.seen("/token").len();
        let refused = logins.token(&site.url).await.unwrap_err();
        assert_eq!(matches!(refused, LoginError::Ended(_)), is_for_good, "{error}: {refused}");
        assert_eq!(matches!(refused, LoginError::Unreachable(_)), !is_for_good, "{error}: {refused}");
        assert!(refused.to_string().contains(error), "{refused}");
        assert_eq!(site.seen("/token").len() - before, if is_for_good { 1 } else { 6 }, "{error}");
    }
}

/// What comes of an exchange: what passes is told as that, what a person may do better the next time as that, and what is wrong for good as that.
#[tokio::test]
async fn an_exchange_without_a_token_says_what_to_do_about_it() {
    let site = Site::start().await;
    let own = logins(&Arc::default());
    let come_to = async |error: Option<&'static str>| {
        *site.state.exchange.lock().unwrap() = error;
        site.log_in(&own, site.request()).await.unwrap_err()
    };
    for error in ["temporarily_unavailable", "server_error", "slow_down"] {
        let refused = come_to(Some(error)).await;
        assert!(matches!(refused, LoginError::Unreachable(_)) && refused.to_string().contains(error), "{refused:?}");
    }
    for error in ["access_denied", "invalid_grant"] {
        let refused = come_to(Some(error)).await;
        assert!(matches!(refused, LoginError::Denied(_)) && refused.to_string().contains(error), "{refused:?}");
    }
    for error in ["invalid_client", "unauthorized_client", "invalid_target", "unsupported_grant_type"] {
        let refused = come_to(Some(error)).await;
        assert!(matches!(refused, LoginError::Refused(_)) && refused.to_string().contains(error), "{refused:?}");
    }
    // A server error with a page of its own.
    *site.state.failing.lock().unwrap() = 1;
    let refused = come_to(None).await;
    assert!(matches!(refused, LoginError::Unreachable(_)), "{refused:?}");
}

/// Whoever is told that they are logged in has a token that can be sent, and a renewal that brings none such leaves the login as it is.
#[tokio::test]
async fn a_token_that_no_request_can_carry_is_no_login() {
    for token in ["a\nb", "", " ", "a\u{7f}b", "t\u{f6}ken"] {
        let (site, shelves) = (Site::start().await, Arc::new(Shelves::default()));
        *site.state.gives.lock().unwrap() = Some(token);
        let refused = site.log_in(&logins(&shelves), site.request()).await.unwrap_err();
        assert!(matches!(refused, LoginError::Refused(_)), "{token:?}: {refused:?}");
        assert!(shelves.kept.lock().unwrap().is_empty(), "{token:?}");
    }
    let (site, shelves) = (Site::start().await, Arc::new(Shelves::default()));
    let own = logins(&shelves);
    site.log_in(&own, site.request()).await.unwrap();
    let before = shelves.kept.lock().unwrap().clone();
    *site.state.gives.lock().unwrap() = Some("a\nb");
    let token = own.token(&site.url).await.unwrap();
    let refused = own.another(&site.url, token.as_deref()).await.unwrap_err();
    assert!(refused.to_string().contains("no request can carry"), "{refused:?}");
    assert_eq!(*shelves.kept.lock().unwrap(), before);
}

/// How long a token lasts is said in many ways. What says nothing is used until it is refused; what cannot be read is told as that.
#[tokio::test]
async fn how_long_a_token_lasts_is_read_as_it_is_said() {
    for (lasts, is_told) in [(json!(3_600), true), (json!(null), false), (json!(0), false)] {
        let site = Site::start().await;
        *site.state.lasts.lock().unwrap() = lasts.clone();
        let own = logins(&Arc::default());
        let facts = site.log_in(&own, site.request()).await.unwrap();
        assert_eq!(facts.until.is_some(), is_told, "{lasts}");
        for _ in 0..3 {
            assert_eq!(own.token(&site.url).await.unwrap().as_deref(), Some("at-canary-00000002"), "{lasts}");
        }
        assert_eq!(site.seen("/token").len(), 1, "{lasts}: no request is preceded by a renewal");
    }
    for lasts in [json!("3600"), json!(3_600.5), json!(-1)] {
        let (site, shelves) = (Site::start().await, Arc::new(Shelves::default()));
        *site.state.lasts.lock().unwrap() = lasts.clone();
        let refused = site.log_in(&logins(&shelves), site.request()).await.unwrap_err().to_string();
        assert!(refused.contains("cannot be read") && refused.contains("`expires_in`"), "{lasts}: {refused}");
        assert!(!refused.contains("canary"), "{refused}");
        assert!(shelves.kept.lock().unwrap().is_empty(), "{lasts}");
    }
}
