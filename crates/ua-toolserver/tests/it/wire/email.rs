//! E-mail: one message per key, and nothing from bad input.

use serde_json::{Value, json};

use super::{TestServer, names, sha256};

fn message() -> Value {
    json!({
        "to": ["Ada Lovelace <ada@example.org>"], "cc": ["bob@example.org"], "bcc": ["eve@example.org"],
        "subject": "Zahlen für März", "body": "Hello.\nIt is done.", "html": "<p>Hello.</p>",
        "attachments": ["out/report.pdf", "data.csv"],
    })
}

#[tokio::test]
async fn a_message_is_delivered_whole() {
    let world = TestServer::with(|settings| settings.mail_from = "Robot <ua@example.org>".into()).await;
    world.put("out/report.pdf", b"%PDF-1.7 \xff\xfe");
    world.put("data.csv", "a,b\n1,2\n");
    let sent = world.keyed("send_email", "k", message()).await.back();
    let id = &sha256("k")[..32];
    assert_eq!(
        sent,
        json!({
            "message_id": format!("<{id}@ua.invalid>"),
            "path": world.workspace().join("outbox/new").join(id),
            "recipients": ["ada@example.org", "bob@example.org", "eve@example.org"],
            "already_sent": false,
        })
    );
    let raw = world.text(&format!("outbox/new/{id}"));
    for line in [
        &format!("Message-ID: <{id}@ua.invalid>"),
        "From: Robot <ua@example.org>",
        "To: \"Ada Lovelace\" <ada@example.org>",
        "Cc: bob@example.org",
        "Bcc: eve@example.org",
        "Date: Fri, 02 Jan 2026 03:04:05 +0000",
        "MIME-Version: 1.0",
        "Content-Type: application/pdf",
        "Content-Disposition: attachment; filename=\"report.pdf\"",
        "Content-Disposition: attachment; filename=\"data.csv\"",
    ] {
        assert!(raw.contains(&format!("{line}\r\n")), "{line} in\n{raw}");
    }
    assert!(raw.contains("multipart/mixed") && raw.contains("multipart/alternative"), "{raw}");
    assert!(raw.contains("<p>Hello.</p>") && raw.contains("It is done."), "{raw}");
    assert_eq!(names(&world.workspace().join("outbox/tmp")), [""; 0]);
}

#[tokio::test]
async fn a_key_sends_once_even_after_the_mail_program_took_it() {
    let mut world = TestServer::new().await;
    let short = json!({ "to": ["ada@example.org"], "subject": "Hi", "body": "Hello." });
    world.keyed("send_email", "k", short.clone()).await.back();
    world = world.restarted().await;
    assert_eq!(world.keyed("send_email", "k", short.clone()).await.back()["already_sent"], true);
    let outbox = world.workspace().join("outbox");
    let id = names(&outbox.join("new"))[0].clone();
    std::fs::rename(outbox.join("new").join(&id), outbox.join("cur").join(format!("{id}:2,S"))).unwrap();
    let third = world.keyed("send_email", "k", short.clone()).await.back();
    assert_eq!(third["already_sent"], true);
    assert!(third["path"].as_str().unwrap().ends_with(":2,S"));
    assert_eq!(names(&outbox.join("new")), [""; 0]);

    for _ in 0..2 {
        assert_eq!(world.call("send_email", short.clone()).await.back()["already_sent"], false, "no key, no memory");
    }
    assert_eq!(names(&outbox.join("new")).len(), 2);
}

#[tokio::test]
async fn what_was_sent_stays_sent_when_its_attachment_is_gone() {
    let world = TestServer::new().await;
    world.put("out/report.pdf", "pdf");
    world.put("data.csv", "csv");
    world.keyed("send_email", "k", message()).await.back();
    std::fs::remove_file(world.workspace().join("data.csv")).unwrap();
    assert_eq!(world.keyed("send_email", "k", message()).await.back()["already_sent"], true);
}

#[tokio::test]
async fn a_message_half_written_by_a_dead_server_is_written_anew() {
    let world = TestServer::new().await;
    let id = sha256("k")[..32].to_owned();
    world.put(&format!("outbox/tmp/{id}"), "From: ha");
    let sent =
        world.keyed("send_email", "k", json!({ "to": ["a@example.org"], "subject": "s", "body": "b" })).await.back();
    assert_eq!(sent["already_sent"], false);
    assert!(world.text(&format!("outbox/new/{id}")).ends_with("\r\n\r\nb\r\n"));
    assert_eq!(names(&world.workspace().join("outbox/tmp")), [""; 0]);
}

#[tokio::test]
async fn bad_input_leaves_nothing() {
    let world = TestServer::new().await;
    for name in ["a.txt", "=?utf-8?q?a=2Eexe?=.txt", "a\r\nBcc: x"] {
        world.put(name, "x");
    }
    let cases = [
        (json!({ "attachments": ["=?utf-8?q?a=2Eexe?=.txt"] }), "encoded word"),
        (json!({ "attachments": ["a\r\nBcc: x"] }), "line break"),
        (json!({ "to": [] }), "no recipients"),
        (json!({ "to": ["nobody"] }), "\"nobody\" is not an e-mail address"),
        (json!({ "to": ["a@example.org\r\nBcc: x@example.org"] }), "line break"),
        (json!({ "cc": ["x@"] }), "is not an e-mail address"),
        (json!({ "subject": "Hi\r\nBcc: x@example.org" }), "line break"),
        (json!({ "subject": "=?utf-8?q?Invoice_17?=" }), "encoded word"),
        (json!({ "to": ["=?utf-8?b?QWRh?= <mallory@example.org>"] }), "encoded word"),
        (json!({ "attachments": ["gone.pdf"] }), "could not attach \"gone.pdf\""),
        (json!({ "attachments": ["../a.txt"] }), "\"..\""),
        (json!({ "attachment": ["a.txt"] }), "unknown field"),
    ];
    for (change, problem) in cases {
        let mut arguments = json!({ "to": ["ada@example.org"], "subject": "s", "body": "b" });
        arguments.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        world.keyed("send_email", "k", arguments).await.refused(problem);
    }
    for part in ["tmp", "new", "cur"] {
        assert_eq!(names(&world.workspace().join("outbox").join(part)), [""; 0], "{part}");
    }
}
