//! What comes in pieces: whoever is killed in the middle of what it says has not said it, on every way in and out.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::http::{HttpClient, read};
use crate::world::{GatewayWorld, cell, text, told, until};

/// A call as one line, without its end.
fn line(id: u64, text: &str) -> String {
    let params = json!({"name": "append_line", "arguments": {"text": text}});
    json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}).to_string()
}

/// Each place at which a line can be cut, and the one in front of its end; of most of them every `step`-th.
fn cuts(line: &str, step: usize) -> impl Iterator<Item = usize> {
    let length = line.len();
    (1..length).step_by(step).chain([length - 1, length])
}

/// A client is killed while it writes: at the bridge's input.
#[test]
fn a_line_of_a_client_without_its_end_is_no_request() {
    let world = GatewayWorld::new();
    let whole = line(7, "a");
    for cut in cuts(&whole, 40) {
        let client = world.client().greet();
        let told = client.ends_in_a_line(&whole.as_bytes()[..cut]);
        // Who is there to read it hears that nothing was sent.
        let refused: Vec<&Value> = told.iter().filter(|said| said["error"]["code"] == -32700).collect();
        assert!(refused.len() == 1 && told.iter().all(|said| said.get("result").is_none()), "{cut}: {told:?}");
    }
    let mut client = world.client().greet();
    assert_eq!(text(&client.result("append_line", &json!({"text": "b"}))), "done, 1 so far");
    assert_eq!(world.effects().len(), 1);
    client.done();
    world.check();
}

/// A bridge is killed while it writes: at the broker's socket. Its first line, a request, and the word that an answer was written.
#[test]
fn a_line_of_a_bridge_without_its_end_is_nothing() {
    let world = GatewayWorld::new();
    // There is a broker.
    world.client().greet().done();
    let connect = |bridge: &str| {
        let hello = json!({"wire": 1, "bridge": bridge, "name": "stub", "says_again": true, "env": {}, "cwd": world.path("project"),
            "command": [cell(), "server", world.path("stub")],
            "handshake": {"params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}}});
        (UnixStream::connect(world.path("gateway.sock")).unwrap(), format!("{hello}\n"))
    };
    let request = format!("R 01 {}", line(7, "a"));
    let mut count = 0;
    for cut in cuts(&request, 7) {
        for kind in ["R", "S"] {
            count += 1;
            let (mut stream, hello) = connect(&format!("torn{count}"));
            let said = format!("{hello}{kind}{}", &request[1..cut]);
            stream.write_all(said.as_bytes()).unwrap();
            stream.shutdown(Shutdown::Write).unwrap();
            // It is served to its end: nothing was answered.
            let answers: Vec<String> = BufReader::new(stream).lines().map_while(Result::ok).collect();
            assert_eq!(answers, [""; 0], "{cut}");
        }
    }
    let (mut stream, hello) = connect("torn");
    for cut in cuts(hello.trim_end(), 50) {
        let mut other = UnixStream::connect(world.path("gateway.sock")).unwrap();
        other.write_all(&hello.as_bytes()[..cut]).unwrap();
        other.shutdown(Shutdown::Write).unwrap();
        assert_eq!(BufReader::new(other).lines().count(), 0, "{cut}");
    }
    assert_eq!(world.effects(), [""; 0]);
    stream.write_all(format!("{hello}{request}\n").as_bytes()).unwrap();
    let answer = BufReader::new(&stream).lines().next().unwrap().unwrap();
    assert!(answer.starts_with("A 01 ") && answer.contains("done, 1 so far"), "{answer}");
    assert_eq!(world.effects().len(), 1);
    world.check();
}

/// A client over HTTP is killed while it writes: a body that is shorter than it says, or whose last part does not come.
#[test]
fn a_body_without_its_end_is_no_request() {
    let world = GatewayWorld::new();
    let client = HttpClient::new(&world, "codex").greet();
    let session = client.session.clone().unwrap();
    let whole = line(7, "a");
    // Who has closed its side of the line for good asks for nothing more.
    let post = |how: &str, written: &str, ends: bool| {
        let mut stream = std::net::TcpStream::connect(&client.address).unwrap();
        let (address, token) = (&client.address, &client.token);
        write!(
            stream,
            "POST /s/stub/mcp HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {token}\r\nContent-Type: application/json\r\n\
             Accept: application/json, text/event-stream\r\nMcp-Session-Id: {session}\r\nConnection: close\r\n{how}\r\n\r\n{written}"
        )
        .unwrap();
        if ends {
            stream.shutdown(Shutdown::Write).unwrap();
        }
        let mut said = String::new();
        BufReader::new(stream).read_to_string(&mut said).unwrap();
        said.lines().next().unwrap_or_default().to_owned()
    };
    for cut in cuts(&whole, 11) {
        let begun = &whole[..cut];
        let chunk = format!("{:x}\r\n{begun}\r\n", begun.len());
        for (how, written) in [
            (format!("Content-Length: {}", whole.len() + 1), begun.to_owned()),
            ("Transfer-Encoding: chunked".to_owned(), chunk.clone()),
            ("Transfer-Encoding: chunked".to_owned(), format!("{:x}\r\n{begun}", whole.len() + 1)),
            ("Transfer-Encoding: chunked".to_owned(), format!("{chunk}0\r\n")),
        ] {
            let said = post(&how, &written, true);
            assert!(said.is_empty() || said.starts_with("HTTP/1.1 400"), "{how} {cut}: {said}");
        }
    }
    assert_eq!(world.effects(), [""; 0]);
    let said = post("Transfer-Encoding: chunked", &format!("{:x}\r\n{whole}\r\n0\r\n\r\n", whole.len()), false);
    assert!(said.starts_with("HTTP/1.1 200"), "{said}");
    world.until_effects(1);
    let again = read(client.write("POST", &[], &whole));
    assert!(text(again.result()).starts_with("done, 1 so far"), "it is that request: {}", again.result());
    assert_eq!(world.effects().len(), 1);
    world.check();
}

/// A tool server dies while it answers. What is missing of the answer is not guessed; what is not missing is not lost.
#[test]
fn of_a_torn_answer_it_is_not_known_what_it_says() {
    let world = GatewayWorld::new();
    let mut client = world.client().greet();
    for (place, missing) in [100_000, 60, 3, 2, 1].into_iter().enumerate() {
        std::fs::write(world.path("stub/torn"), missing.to_string()).unwrap();
        let arguments = json!({"text": format!("{missing}")});
        for _ in 0..2 {
            // What is asked for again is that call.
            let result = client.result("append_line", &arguments);
            assert_eq!(world.effects().len(), place + 1, "{missing}");
            if missing == 1 {
                assert!(text(&result).starts_with(&format!("done, {} so far", place + 1)), "{result}");
                break;
            }
            assert_eq!(told(&result), "unknown", "{missing}: {result}");
        }
    }
    // A read that was answered so is made again.
    std::fs::write(world.path("stub/torn"), "5").unwrap();
    let page = until("the page", || {
        let read = client.result("read_page", &json!({"page": "1"}));
        read["structuredContent"]["page"].as_str().map(str::to_owned)
    });
    assert_eq!(page, "1");
    client.done();
    world.check();
}

/// A broker is killed while it answers: its client has the whole answer once, from the next one.
#[test]
fn a_torn_answer_of_a_broker_is_not_handed_to_the_client() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("gateway.sock");
    let listener = UnixListener::bind(&socket).unwrap();
    let answer = json!({"jsonrpc": "2.0", "id": 7, "result": {"content": []}}).to_string();
    let mut bridge = Command::new(cell());
    bridge.arg("bridge").arg("--socket").arg(&socket).args(["--name", "stub", "--start", "true", "--", "unused"]);
    let mut bridge = bridge.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut input = bridge.stdin.take().unwrap();
    writeln!(input, "{}", line(7, "a")).unwrap();
    let (mut name, mut cut) = (String::new(), 0);
    loop {
        let (mut stream, _) = listener.accept().unwrap();
        let mut lines = BufReader::new(stream.try_clone().unwrap()).lines().map(Result::unwrap);
        if lines.next().unwrap().contains("\"control\"") {
            stream.write_all(b"{}\n").unwrap();
            continue;
        }
        let asked = lines.find(|line| line.starts_with("R ") || line.starts_with("S ")).unwrap();
        let own = asked.split(' ').nth(1).unwrap().to_owned();
        // The first time no broker was told of it yet.
        let kind = if name.is_empty() { "R " } else { "S " };
        assert!((name.is_empty() || name == own) && asked.starts_with(kind), "{asked}");
        name = own;
        let said = format!("A {name} {answer}\n");
        if cut >= said.len() {
            stream.write_all(said.as_bytes()).unwrap();
            break;
        }
        stream.write_all(&said.as_bytes()[..cut]).unwrap();
        // Each place behind the name, and some in front of it.
        cut += if cut > name.len() { 1 } else { 9 };
    }
    let mut heard = BufReader::new(bridge.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert_eq!(heard.next().unwrap(), answer);
    drop(input);
    assert_eq!(heard.next(), None);
    bridge.wait().unwrap();
}
