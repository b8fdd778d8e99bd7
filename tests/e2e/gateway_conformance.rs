//! G14: the conformance suites of MCP, at a server and through the gateway in front of it: nothing fails there that does not fail at the server
//! itself. Skipped with a message where they are not installed (`cargo xtask third-party`).
//!
//! The suites' own reference server passes all of the handshake era, and is in none of their packages. Where it lies in `conformance-server`
//! beside the installed packages, with what it needs, it is the server; else `mcp-server-everything` is, which fails some checks by itself.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests; only tests read the variable")]

use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;

use serde_json::{Value, json};
use ua_e2e::{eventually, until};
use ua_testkit::{ThirdParty, not_installed, skipped};

use super::env;

/// The suites run on no older Node.js.
const NODE: u32 = 22;

/// The suite of revision 2026-07-28 asks a tool for what its client does not have, and wants the tool server's refusal (−32021 with HTTP 400) within
/// half a minute. It is no proof that nothing was done: servers made with the official SDK for TypeScript give it where a tool that has begun asks
/// for what its client does not have, since that cannot be found any earlier. So the call is in doubt, and since nobody can kill a process on another
/// machine it is decided later.
const HELD: &str = "server-stateless";

struct Suites {
    installed: ThirdParty,
    node: PathBuf,
}

impl Suites {
    fn find(check: &str) -> Option<Self> {
        let installed = ThirdParty::at(std::env::var_os("UA_THIRD_PARTY").map(PathBuf::from));
        let node = installed.find_or_say("node", check)?;
        let said = Command::new(&node).arg("--version").output().unwrap();
        let said = String::from_utf8_lossy(&said.stdout).trim().to_owned();
        let major = said.trim_start_matches('v').split('.').next().and_then(|major| major.parse::<u32>().ok());
        if major.is_none_or(|major| major < NODE) {
            skipped(&format!("{check}: it runs on Node.js {NODE} or newer, and this is {said}"));
            return None;
        }
        let found = Self { installed, node };
        for suite in ["@modelcontextprotocol/conformance", "conformance-2026"] {
            if !found.script(suite).is_file() {
                not_installed(check, suite);
                return None;
            }
        }
        Some(found)
    }

    fn script(&self, suite: &str) -> PathBuf {
        self.installed.npm().join("node_modules").join(suite).join("dist/index.js")
    }

    fn path(&self) -> String {
        let inherited = std::env::var_os("PATH").unwrap_or_default();
        let all = self.installed.path().into_iter().chain(std::env::split_paths(&inherited));
        std::env::join_paths(all).unwrap().into_string().unwrap()
    }

    /// The checks that fail at this server, each with its scenario, and how many succeed.
    fn fails(&self, suite: &str, more: &[&str], url: &str) -> (BTreeSet<String>, usize) {
        let folder = tempfile::tempdir().unwrap();
        let mut command = Command::new(&self.node);
        command.arg(self.script(suite)).args(["server", "--url", url, "-o"]).arg(folder.path()).args(more);
        let output = command.current_dir(folder.path()).env("PATH", self.path()).output().unwrap();
        let (mut fails, mut succeed) = (BTreeSet::new(), 0);
        for entry in std::fs::read_dir(folder.path()).unwrap().map(Result::unwrap) {
            let Ok(text) = std::fs::read_to_string(entry.path().join("checks.json")) else { continue };
            let checks: Vec<Value> = serde_json::from_str(&text).unwrap();
            let name = entry.file_name().into_string().unwrap();
            // Behind the scenario's name stands the time.
            let scenario = name.split("-20").next().unwrap_or_default().to_owned();
            for check in checks {
                match check["status"].as_str().unwrap() {
                    "FAILURE" => {
                        fails.insert(format!("{scenario}: {}", check["id"].as_str().unwrap()));
                    }
                    "SUCCESS" => succeed += 1,
                    _ => {}
                }
            }
        }
        let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        assert!(succeed > 0, "{suite} ran nothing at {url}: {said}");
        (fails, succeed)
    }
}

/// The server, which ends with the test.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

/// Starts it; its address, and whether it is the suites' own.
fn serve(suites: &Suites) -> Option<(Server, String, bool)> {
    let own = suites.installed.root.join("conformance-server");
    let is_own = own.join("everything-server.ts").is_file();
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let mut command = if is_own {
        let mut command = Command::new(&suites.node);
        // Not by `tsx` itself, which would start another process and leave that behind.
        command.args(["--import", "tsx", "everything-server.ts"]).current_dir(&own);
        command
    } else {
        let mut command =
            Command::new(suites.installed.find_or_say("mcp-server-everything", "a server for the suites")?);
        command.arg("streamableHttp");
        command
    };
    command.env("PATH", suites.path()).env("PORT", port.to_string());
    let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let served = Server(child);
    until("the server listens", || TcpStream::connect(("127.0.0.1", port)).is_ok());
    Some((served, format!("http://127.0.0.1:{port}/mcp"), is_own))
}

/// Passes requests on to the gateway with its token, which the suites do not know: they speak to servers that want none. Its address.
fn with_token(gateway: &str, token: &str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let own = listener.local_addr().unwrap().to_string();
    let (gateway, token, here) = (gateway.to_owned(), token.to_owned(), own.clone());
    thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            let (gateway, token, here) = (gateway.clone(), token.clone(), here.clone());
            thread::spawn(move || pass(client, &gateway, &token, &here));
        }
    });
    own
}

/// One request and its answer, however long that streams.
fn pass(mut client: TcpStream, gateway: &str, token: &str, here: &str) -> Option<()> {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        if client.read(&mut byte).ok()? == 0 {
            return None;
        }
        head.push(byte[0]);
    }
    let text = String::from_utf8(head).ok()?;
    let is_ours = |line: &&str| !line.is_empty() && !line.to_ascii_lowercase().starts_with("connection:");
    // Whom it means is the gateway; whoever means somebody else still does.
    let lines = text.split("\r\n").filter(is_ours).map(|line| line.replace(here, gateway));
    let mut lines: Vec<String> = lines.collect();
    lines.extend([format!("Authorization: Bearer {token}"), "Connection: close".to_owned()]);
    let mut server = TcpStream::connect(gateway).ok()?;
    server.write_all(format!("{}\r\n\r\n", lines.join("\r\n")).as_bytes()).ok()?;
    let (mut body, mut to) = (client.try_clone().ok()?, server.try_clone().ok()?);
    thread::spawn(move || {
        let _gone = std::io::copy(&mut body, &mut to);
        let _gone = to.shutdown(std::net::Shutdown::Write);
    });
    let _gone = std::io::copy(&mut server, &mut client);
    client.shutdown(std::net::Shutdown::Both).ok()
}

fn write_settings(root: &Path, url: &str) {
    std::fs::create_dir_all(root).unwrap();
    let servers = json!({"mcpServers": {"everything": {"type": "http", "url": url}}});
    std::fs::write(root.join("servers.json"), servers.to_string()).unwrap();
    std::fs::write(root.join("gateway.toml"), "[http]\nlisten = \"127.0.0.1:0\"\n").unwrap();
}

#[test]
fn the_conformance_suites_find_nothing_at_the_gateway_that_they_do_not_find_at_its_tool_server() {
    let Some(suites) = Suites::find("the conformance suites through the gateway") else { return };
    let Some((_server, direct, is_own)) = serve(&suites) else { return };
    let env = env();
    write_settings(&env.root(), &direct);
    let token = env.run(&["gateway", "token", "suite"]).code(0).stdout.trim().to_owned();
    let broker = env.start(&["gateway", "serve"]);
    let address = eventually("an address", || {
        let status = env.run(&["gateway", "status", "--json"]).code(0).json();
        Some(status["broker"]["http"].as_str()?.strip_prefix("http://")?.to_owned())
    });
    let through = format!("http://{}/s/everything/mcp", with_token(&address, &token));
    let handshake: [(&str, &[&str]); 2] =
        [("@modelcontextprotocol/conformance", &[]), ("conformance-2026", &["--requirements", "2025-11-25"])];
    for (suite, more) in handshake.into_iter().chain([("conformance-2026", &["--requirements", "2026-07-28"][..])]) {
        let is_handshake = more.last() != Some(&"2026-07-28");
        if !is_handshake && !is_own {
            // It has the older era alone, so that most checks mean something only behind the gateway, which has both.
            skipped(&format!("{suite} {more:?}: it needs the suites' own server in `conformance-server`"));
            continue;
        }
        let (at_server, _) = suites.fails(suite, more, &direct);
        let (at_gateway, succeed) = suites.fails(suite, more, &through);
        let is_new = |check: &&String| !at_server.contains(*check) && !check.contains(HELD);
        let new: Vec<&String> = at_gateway.iter().filter(is_new).collect();
        assert!(new.is_empty(), "{suite} {more:?}: {new:#?}");
        if is_own && is_handshake {
            assert_eq!((at_server.len(), at_gateway.len()), (0, 0), "{suite} {more:?}");
        }
        eprintln!("{suite} {more:?}: {succeed} checks succeed through the gateway");
    }
    env.run(&["gateway", "stop"]).code(0);
    broker.wait().code(0);
}
