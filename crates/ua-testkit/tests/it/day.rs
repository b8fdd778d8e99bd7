//! A job that works for a day unattended, against a model provider that stumbles all day long.
//!
//! The worker is the one that ships, its database is on disk, and requests go over each real wire to a server of this process; only the
//! clock is simulated. The provider goes away for minutes at a time, limits the rate, breaks off in the middle of replies, answers with pages
//! and refuses what is longer than its context. The job ends as it should, and what it does outside it does once.

#![expect(clippy::unwrap_used, reason = "a helper of a test fails the test")]

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use ua_classify::{Classifier, Lists};
use ua_core::{Env, RunId, Timestamp, ToolAnnotations, ToolName, ToolNamespace, ToolSpec};
use ua_dispatch::{LocalCall, LocalTools};
use ua_llm::{
    AnthropicConfig, AnthropicProvider, ChatConfig, ChatProvider, LlmProvider, OpenAiConfig, OpenAiProvider, Script,
};
use ua_runner::{Agent, GranularStep, RunEvent, StepHost, StepOutcome};
use ua_store::{RunStore as _, Store};
use ua_store_sqlite::{SqliteConfig, SqliteStore};
use ua_testkit::{ModelServer, ModelServerConfig};

/// Rounds of work, and how long one takes.
const ROUNDS: usize = 36;
const WORK: Duration = Duration::from_mins(40);
/// The longest request that the provider takes, in bytes: about a third of what the job reads.
const MOST_BYTES: usize = 90_000;
/// What one page has.
const PAGE_BYTES: usize = 6_000;

/// A way in which the provider stumbles.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Stumble {
    /// For so many minutes nobody listens; the connection that found that out is closed.
    Away(u64),
    /// For so many minutes there is an error: with this status, and with a page for people.
    Errors(u64, u16),
    /// So many seconds have to pass first, said in seconds.
    LimitedSeconds(u64),
    /// The same, said in milliseconds.
    LimitedMillis(u64),
    /// For so many minutes each connection is accepted and closed without an answer.
    Closes(u64),
    /// For so many minutes each reply is cut in half.
    Cuts(u64),
    /// The reply is cut in half.
    Cut,
    /// What comes is no stream of events.
    Page,
    /// The answer is that it was too early (HTTP 425).
    TooEarly,
}

/// What happens at which request that the provider would have answered, from 1.
const DAY: [(u64, Stumble); 16] = [
    (2, Stumble::Cut),
    (5, Stumble::LimitedSeconds(75)),
    (9, Stumble::Away(4)),
    (16, Stumble::Errors(11, 529)),
    (21, Stumble::Page),
    (27, Stumble::LimitedMillis(2_500)),
    (34, Stumble::Errors(24, 503)),
    (40, Stumble::Cut),
    (48, Stumble::TooEarly),
    (55, Stumble::Away(25)),
    (63, Stumble::LimitedSeconds(1_200)),
    (71, Stumble::Errors(6, 500)),
    (76, Stumble::Closes(21)),
    (80, Stumble::Cut),
    (87, Stumble::Cuts(12)),
    (95, Stumble::Errors(19, 502)),
];

/// The provider: what stands in front of the server that follows the script.
struct Provider {
    env: Env,
    behind: SocketAddr,
    seen: Mutex<Seen>,
    goes_away: Notify,
}

#[derive(Default)]
struct Seen {
    /// Requests that met a provider that was there.
    arrived: u64,
    /// Until when it stumbles, and how.
    until: Option<(Timestamp, Stumble)>,
    /// How often it stumbled in which way.
    stumbled: BTreeMap<String, u32>,
    too_long: u32,
    longest: usize,
}

impl Provider {
    async fn start(env: &Env, behind: &ModelServer) -> (Arc<Self>, String) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let place = listener.local_addr().unwrap();
        let address = format!("http://{place}");
        let behind = behind.base_url.trim_start_matches("http://").parse().unwrap();
        let provider = Arc::new(Self { env: env.clone(), behind, seen: Mutex::default(), goes_away: Notify::new() });
        let serving = Arc::clone(&provider);
        tokio::spawn(async move {
            let mut listener = listener;
            loop {
                tokio::select! {
                    biased;
                    () = serving.goes_away.notified() => {
                        drop(listener);
                        while !serving.left().is_zero() {
                            ua_core::system::env().clock.sleep(Duration::from_millis(1)).await;
                        }
                        listener = TcpListener::bind(place).await.unwrap();
                    }
                    accepted = listener.accept() => {
                        let (stream, _) = accepted.unwrap();
                        let provider = Arc::clone(&serving);
                        tokio::spawn(async move { provider.serve(stream).await });
                    }
                }
            }
        });
        (provider, address)
    }

    /// What becomes of the request that comes now.
    fn meets(&self, bytes: usize) -> Option<Stumble> {
        let now = self.env.now();
        let mut seen = self.seen.lock().unwrap();
        seen.longest = seen.longest.max(bytes);
        let going_on = seen.until.filter(|(until, _)| now < *until).map(|(_, stumble)| stumble);
        if let Some(stumble) = going_on {
            *seen.stumbled.entry(format!("{stumble:?}")).or_default() += 1;
            return Some(stumble);
        }
        seen.arrived += 1;
        let arrived = seen.arrived;
        let stumble = DAY.iter().find(|(at, _)| *at == arrived).map(|(_, stumble)| *stumble)?;
        *seen.stumbled.entry(format!("{stumble:?}")).or_default() += 1;
        let lasts = match stumble {
            Stumble::Away(minutes)
            | Stumble::Closes(minutes)
            | Stumble::Cuts(minutes)
            | Stumble::Errors(minutes, _) => Duration::from_mins(minutes),
            Stumble::LimitedSeconds(seconds) => Duration::from_secs(seconds),
            Stumble::LimitedMillis(millis) => Duration::from_millis(millis),
            Stumble::Cut | Stumble::Page | Stumble::TooEarly => return Some(stumble),
        };
        seen.until = Some((now.plus(lasts), stumble));
        if matches!(stumble, Stumble::Away(_)) {
            self.goes_away.notify_one();
        }
        Some(stumble)
    }

    async fn serve(&self, mut stream: TcpStream) {
        let Some((head, body)) = read(&mut stream).await else { return };
        let answer = match self.meets(body.len()) {
            _ if body.len() > MOST_BYTES => {
                self.seen.lock().unwrap().too_long += 1;
                too_long(&head)
            }
            None => self.forwarded(&head, &body).await,
            Some(Stumble::Cut | Stumble::Cuts(_)) => {
                let whole = self.forwarded(&head, &body).await;
                whole[..whole.len() / 2].to_vec()
            }
            Some(Stumble::Away(_) | Stumble::Closes(_)) => Vec::new(),
            Some(Stumble::Errors(_, status)) => response(status, "", "text/html", "<html>come back later</html>"),
            Some(Stumble::LimitedSeconds(_)) => {
                let left = self.left().as_secs() + 1;
                response(
                    429,
                    &format!("retry-after: {left}\r\n"),
                    "application/json",
                    &error("rate_limit_error", "slow down"),
                )
            }
            Some(Stumble::LimitedMillis(_)) => {
                let left = self.left().as_millis();
                let header = format!("retry-after-ms: {left}\r\n");
                response(429, &header, "application/json", &error("rate_limit_error", "slow down"))
            }
            Some(Stumble::Page) => response(200, "", "text/html", "<html>sign in</html>"),
            Some(Stumble::TooEarly) => response(425, "", "application/json", &error("too_early", "not yet")),
        };
        // Whoever asked may be gone; then nobody misses the answer.
        stream.write_all(&answer).await.unwrap_or_default();
    }

    /// How long it goes on stumbling.
    fn left(&self) -> Duration {
        let until = self.seen.lock().unwrap().until.unwrap().0;
        until.since(self.env.now())
    }

    /// The answer of the server behind.
    async fn forwarded(&self, head: &str, body: &[u8]) -> Vec<u8> {
        let mut behind = TcpStream::connect(self.behind).await.unwrap();
        let lines = head.lines().filter(|line| !line.to_ascii_lowercase().starts_with("connection:"));
        let head = lines.fold(String::new(), |head, line| head + line + "\r\n");
        behind.write_all(format!("{head}connection: close\r\n\r\n").as_bytes()).await.unwrap();
        behind.write_all(body).await.unwrap();
        let mut answer = Vec::new();
        behind.read_to_end(&mut answer).await.unwrap();
        answer
    }
}

/// The head of a request, without the empty line, and its body.
async fn read(stream: &mut TcpStream) -> Option<(String, Vec<u8>)> {
    let mut bytes = Vec::new();
    let mut piece = vec![0; 64 * 1024];
    loop {
        let read = stream.read(&mut piece).await.ok().filter(|read| *read > 0)?;
        bytes.extend_from_slice(&piece[..read]);
        let Some(end) = bytes.windows(4).position(|end| end == b"\r\n\r\n") else { continue };
        let head = String::from_utf8(bytes[..end].to_vec()).unwrap();
        let length = head
            .lines()
            .find_map(|line| line.to_ascii_lowercase().strip_prefix("content-length:")?.trim().parse().ok());
        if bytes.len() >= end + 4 + length.unwrap_or(0_usize) {
            return Some((head, bytes[end + 4..].to_vec()));
        }
    }
}

fn response(status: u16, headers: &str, kind: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    let head =
        format!("HTTP/1.1 {status} x\r\ncontent-type: {kind}\r\ncontent-length: {length}\r\nconnection: close\r\n");
    format!("{head}{headers}\r\n{body}").into_bytes()
}

fn error(kind: &str, message: &str) -> String {
    json!({"type": "error", "error": {"type": kind, "message": message, "code": null}}).to_string()
}

/// The refusal of a request that is too long, in the words of its API.
fn too_long(head: &str) -> Vec<u8> {
    let body = if head.starts_with("POST /v1/messages") {
        error("invalid_request_error", "prompt is too long: 41000 tokens > 30000 maximum")
    } else {
        json!({"error": {"message": "This model's maximum context length is 30000 tokens.", "type": "invalid_request_error",
            "param": "messages", "code": "context_length_exceeded"}})
        .to_string()
    };
    response(400, "", "application/json", &body)
}

fn spec(tool: &str, properties: &Value, read_only: bool) -> ToolSpec {
    ToolSpec {
        name: ToolName::qualified(ToolNamespace::Local, "desk", tool),
        description: format!("The {tool} of a desk."),
        input_schema: json!({"type": "object", "properties": properties}),
        annotations: ToolAnnotations { read_only: Some(read_only), ..ToolAnnotations::default() },
    }
}

/// What the model does all day: it reads, works and reports, hour after hour.
fn script() -> Script {
    let round = |number: usize| {
        [
            json!({"text": "Reading.", "tools": [{"name": "mcp__desk__read_page", "input": {"number": number}}]}),
            json!({"tools": [{"name": "mcp__desk__read_long", "input": {"number": number}}]}),
            json!({"tools": [{"name": "mcp__desk__send_report", "input": {"number": number}}]}),
        ]
    };
    let turns: Vec<Value> = (1..=ROUNDS).flat_map(round).chain([json!({"text": "All reports are sent."})]).collect();
    Script::parse(&json!({ "turns": turns }).to_string()).unwrap()
}

/// The day over one wire.
async fn day(wire: impl FnOnce(&str, Env) -> Arc<dyn LlmProvider>) {
    let env = Env::simulated(19);
    let server = ModelServer::start(ModelServerConfig::new(script())).await.unwrap();
    let (provider, address) = Provider::start(&env, &server).await;

    let reports = Arc::new(Mutex::new(Vec::new()));
    let (sent, clock) = (Arc::clone(&reports), Arc::clone(&env.clock));
    let number = || json!({"number": {"type": "integer"}});
    let tools = LocalTools::new(env.clone())
        .with(spec("read_page", &number(), true), async |_: LocalCall| {
            Ok(json!({"page": "0123456789abcdef".repeat(PAGE_BYTES / 16)}))
        })
        .with(spec("read_long", &number(), true), move |_: LocalCall| {
            let clock = Arc::clone(&clock);
            async move {
                clock.sleep(WORK).await;
                Ok(json!({"read": true}))
            }
        })
        .with(spec("send_report", &number(), false), move |call: LocalCall| {
            sent.lock().unwrap().push(call.arguments["number"].clone());
            async { Ok(json!({"sent": true})) }
        });
    let classifier = Classifier::new(Vec::new(), &Lists::default(), tools.servers()).unwrap();

    let folder = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(SqliteConfig::new(folder.path().join("runtime_state.db"))).unwrap();
    let store: Arc<dyn Store> = Arc::new(store);
    let agent = Agent::new(wire(&address, env.clone()), "m", Arc::new(tools), Arc::new(classifier));
    let mut step = GranularStep::new("day", agent, "Read, work and report, hour after hour.");
    step.max_turns = 500;
    step.budgets.max_wallclock_minutes = 60 * 48;
    step.budgets.max_tool_calls = 500;
    let mut host = StepHost::new(Arc::clone(&store), folder.path().join("ws"), env.clone())
        .with_locks(folder.path().join("locks"));
    let waits = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&waits);
    host.watcher = Arc::new(move |event| {
        if let RunEvent::Retrying { wait_millis, .. } = event {
            noted.lock().unwrap().push(wait_millis);
        }
    });

    let began = env.now();
    let run = RunId::parse("day").unwrap();
    let outcome = step.run(&host, &run).await.unwrap();
    let StepOutcome::Complete { final_output, turns, usage } = &outcome else { panic!("{outcome:?}") };
    assert_eq!((final_output.as_str(), *turns as usize), (Some("All reports are sent."), 3 * ROUNDS + 1));
    let passed = env.now().since(began);
    assert!(passed >= Duration::from_hours(24), "{passed:?}");

    // Each effect once, in order.
    let expected: Vec<Value> = (1..=ROUNDS).map(|number| json!(number)).collect();
    assert_eq!(*reports.lock().unwrap(), expected);
    let records = store.load(&run).await.unwrap();
    assert_eq!(records.questions.len(), 0, "nobody was asked");

    // All of it happened, and nothing was waited for longer than it took.
    let seen = provider.seen.lock().unwrap();
    assert_eq!(
        seen.stumbled.len(),
        DAY.iter().map(|(_, stumble)| stumble).collect::<std::collections::BTreeSet<_>>().len(),
        "{:?}",
        seen.stumbled
    );
    assert!(seen.too_long > 0 && seen.longest > MOST_BYTES, "{} of {} bytes", seen.too_long, seen.longest);
    assert!(seen.too_long <= 8, "what was counted for earlier requests is heeded: {}", seen.too_long);
    let waited: u64 = waits.lock().unwrap().iter().sum();
    let stumbling = Duration::from_mins(4 + 11 + 24 + 25 + 6 + 21 + 12 + 19) + Duration::from_secs(75 + 1_200 + 3);
    assert!(Duration::from_millis(waited) + Duration::from_mins(10) >= stumbling, "{waited} ms of {stumbling:?}");
    assert!(usage.requests["actual"] as usize > 3 * ROUNDS, "{usage:?}");
}

fn key() -> secrecy::SecretString {
    "k".to_owned().into()
}

#[tokio::test]
async fn a_day_of_work_over_the_messages_api() {
    day(|address, env| {
        let config = AnthropicConfig { base_url: address.to_owned(), ..AnthropicConfig::new(key()) };
        Arc::new(AnthropicProvider::new(config, env).unwrap())
    })
    .await;
}

#[tokio::test]
async fn a_day_of_work_over_the_responses_api() {
    day(|address, env| {
        let config = OpenAiConfig { base_url: format!("{address}/v1"), ..OpenAiConfig::new(key()) };
        Arc::new(OpenAiProvider::new(config, env).unwrap())
    })
    .await;
}

#[tokio::test]
async fn a_day_of_work_over_chat_completions() {
    day(|address, env| {
        let config = ChatConfig { base_url: format!("{address}/v1"), ..ChatConfig::new(Some(key())) };
        Arc::new(ChatProvider::new(config, env).unwrap())
    })
    .await;
}
