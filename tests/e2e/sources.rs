//! Constraints about the web: what may be reached, redirects included, and whether a report cites what was fetched.

#![expect(clippy::expect_used, reason = "helpers of tests fail like tests")]

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpListener};

use serde_json::{Value, json};
use ua_e2e::TestEnv;

use super::env;

/// A site whose page `/a` redirects to `/b` of the same server under its other name, `localhost`. It serves until the test ends.
fn site() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("bind a port");
    let address = listener.local_addr().expect("know the port");
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut line = String::new();
            let mut reader = BufReader::new(stream.try_clone().expect("share a connection"));
            reader.read_line(&mut line).ok();
            let mut header = line.clone();
            while header.trim_end() != "" {
                header.clear();
                if reader.read_line(&mut header).is_err() {
                    break;
                }
            }
            let port = address.port();
            let answer = match line.split(' ').nth(1) {
                Some("/a") => {
                    format!("HTTP/1.1 302 Found\r\nlocation: http://localhost:{port}/b\r\ncontent-length: 0\r\n")
                }
                Some("/b") => {
                    let page = "<html><body><article><p>The tide turns the wheel of the mill twice a day.</p></article></body></html>";
                    format!(
                        "HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{page}",
                        page.len()
                    )
                }
                _ => "HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n".to_owned(),
            };
            let end = if answer.contains("\r\n\r\n") { "" } else { "connection: close\r\n\r\n" };
            stream.write_all(format!("{answer}{end}").as_bytes()).ok();
        }
    });
    address
}

fn crawl(url: &str) -> Value {
    json!({"tools": [{"name": "mcp__ua__crawl_parallel", "input": {"urls": [url]}}]})
}

#[test]
fn allowed_domains_hold_for_what_a_page_redirects_to() {
    let address = site();
    for (domains, seen) in [(json!([]), "twice a day"), (json!(["127.0.0.1"]), "may not reach localhost")] {
        let env = env();
        let turns = json!([crawl(&format!("http://{address}/a")), {"text": "Done.", "expect": {"contains": [seen]}}]);
        let job = env.job(&json!({"constraints": {"allowed_domains": domains}}), &turns);
        env.run(&["job", &job, "--allow-private-addresses"]).code(0);
    }
    // Asked for outright it does not even reach the tool.
    let env = env();
    let turns = json!([crawl(&format!("http://localhost:{}/b", address.port())), {"text": "Done.", "expect": {"contains": ["may not reach http://localhost"]}}]);
    let job = env.job(&json!({"constraints": {"allowed_domains": ["127.0.0.1"]}}), &turns);
    env.run(&["job", &job, "--allow-private-addresses"]).code(0);
    assert_eq!(env.calls(), ["crawl_parallel cancelled"]);
}

/// A page of some length, longer than what is read where it came to.
fn long_page(paragraphs: usize) -> String {
    let one = "<p>The tide turns the wheel of the mill twice a day, and the stone grinds for some hours.</p>\n";
    format!(
        "<html><body><article>{}<p>The last word of it is quern.</p></article></body></html>",
        one.repeat(paragraphs)
    )
}

#[test]
fn a_long_page_is_read_whole() {
    let env = env();
    let page = env.write("work/page.html", long_page(2_000));
    let crawl = json!({"urls": [format!("file://{page}")], "max_chars_per_page": 200_000});
    let crawl = json!({"tools": [{"name": "mcp__ua__crawl_parallel", "input": crawl}]});
    env.job(&json!({}), &json!([crawl, {"text": "Done.", "expect": {"contains": ["1 pages fetched, 0 failed"]}}]));
    env.run(&["job", "job.json", "--run-id", "r"]).code(0);
    let found =
        std::process::Command::new("grep").arg("-rlF").arg("The last word of it is quern.").arg(env.root()).output();
    assert!(!found.expect("look for it").stdout.is_empty(), "its copy has all of it");
}

/// What reads a page ends by itself, and whoever waits for it need not.
#[cfg(target_os = "linux")]
#[test]
fn a_page_that_takes_too_long_ends_its_reader() {
    use std::os::unix::process::ExitStatusExt as _;
    use std::process::{Command, Stdio};

    let read = |paragraphs: usize, seconds: u64| {
        let mut reader = Command::new(ua_e2e::ua_program());
        reader.arg("__page").env_clear().stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut reader = reader.spawn().expect("start the reader");
        let order = json!({"source": "https://example.org/", "html": long_page(paragraphs), "seconds": seconds});
        let mut to = reader.stdin.take().expect("it has a pipe");
        to.write_all(order.to_string().as_bytes()).expect("it reads all");
        drop(to);
        reader.wait_with_output().expect("it ends")
    };
    let whole = read(1_000, 600);
    let said: Value = serde_json::from_slice(&whole.stdout).expect("it says what it read");
    assert!(said["read"][3].as_str().is_some_and(|text| text.contains("quern")), "{said:.300}");
    let ended = read(250_000, 1);
    assert_eq!((ended.status.signal(), ended.stdout.len()), (Some(rustix::process::Signal::XCPU.as_raw()), 0));
}

fn report(env: &TestEnv, source: &str) -> Value {
    let content = format!("# Tide mills\n\nThey grind twice a day.[^1]\n\n[^1]: {}\n", env.arg(source));
    let content = content.replace(&env.arg(source), &format!("file://{}", env.arg(source)));
    json!({"tools": [{"name": "mcp__ua__write_local_file", "input": {"path": "work_products/report.md", "content": content}}]})
}

#[test]
fn a_report_has_to_cite_what_was_fetched_and_nothing_else() {
    let env = env();
    env.write(
        "work/mill.html",
        "<html><body><article><p>The tide turns the wheel twice a day.</p></article></body></html>",
    );
    let page = format!("file://{}", env.arg("work/mill.html"));
    let missing = json!({"contains": ["which no call of this run fetched", "work/other.html"]});
    let turns = json!([
        crawl(&page), report(&env, "work/other.html"), {"text": "The report is written."},
        {"tools": report(&env, "work/mill.html")["tools"], "expect": missing}, {"text": "Now with its source."},
    ]);
    let cites = json!({"constraints": {"must_cite_sources": true}});
    env.run(&["job", &env.job(&cites, &turns), "--run-id", "r"]).code(0).says(&["the model stopped early; missing: "]);
    let summary = std::fs::read_to_string(env.workspace().join("job_completion_r.md")).unwrap();
    assert!(summary.contains("must_cite_sources"), "{summary}");

    // Not asked for, the same first report is fine.
    let first = json!([crawl(&page), report(&env, "work/other.html"), {"text": "The report is written."}]);
    let job = env.named_job("free", &json!({}), &first);
    env.run(&["job", &job, "--run-id", "free"]).code(0);
    // Never mended, it is for a person to decide.
    let words = json!({"text": "It is fine."});
    let stubborn = json!([crawl(&page), report(&env, "work/other.html"), words, words, words, words]);
    let job = env.named_job("stubborn", &cites, &stubborn);
    env.run(&["job", &job, "--run-id", "stubborn"]).code(75).shows(&["this is missing", "work/other.html"]);
}
