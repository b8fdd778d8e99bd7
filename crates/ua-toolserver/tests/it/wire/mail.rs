//! E-mail through servers: what each transport promises, and what is said when something goes wrong.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use tempfile::TempDir;
use ua_testkit::{HttpFault, MailApi, MailApiConfig, SmtpFault, SmtpSink, SmtpSinkConfig};
use ua_toolserver::{ATTEMPT, FILES, IDEMPOTENCY_KEY, Settings};

use super::{Came, TestServer, names, sha256};

fn message() -> Value {
    json!({
        "to": ["Ada Lovelace <ada@example.org>"], "cc": ["bob@example.org"], "bcc": ["eve@example.org", "bob@example.org"],
        "subject": "Zahlen für März", "body": "Hello.\n.\n..dots stay", "attachments": ["data.csv"],
    })
}

/// A server of mail and a world that sends through it.
struct Mail {
    world: TestServer,
    sink: SmtpSink,
    _kept: TempDir,
}

impl Mail {
    async fn new(faults: impl IntoIterator<Item = (u64, SmtpFault)>) -> Self {
        Self::with(faults, |_, _| {}, |_| {}).await
    }

    async fn probed(faults: impl IntoIterator<Item = (u64, SmtpFault)>) -> Self {
        Self::with(faults, |settings, sink| settings.mail_probe = Some(sink.probe.clone()), |_| {}).await
    }

    async fn with(
        faults: impl IntoIterator<Item = (u64, SmtpFault)>,
        change: impl FnOnce(&mut Settings, &SmtpSink),
        arrange: impl FnOnce(&mut SmtpSinkConfig),
    ) -> Self {
        let kept = TempDir::new().unwrap();
        let mut config = SmtpSinkConfig {
            directory: kept.path().join("mail"),
            credentials: None,
            unknown: vec!["gone@example.org".to_owned()],
            faults: faults.into_iter().collect(),
        };
        arrange(&mut config);
        let sink = SmtpSink::start(config).await.unwrap();
        let world = TestServer::with(|settings| {
            settings.mail = Some(format!("smtp://{}?starttls=never", sink.address));
            change(settings, &sink);
        })
        .await;
        world.put("data.csv", "a,b\n");
        Self { world, sink, _kept: kept }
    }

    async fn send(&self, attempt: u64) -> Came {
        let meta = json!({ IDEMPOTENCY_KEY: "k", ATTEMPT: attempt });
        self.world.send_with("send_email", message(), meta).await
    }

    /// How many messages there are, all of the key's one Message-ID.
    #[track_caller]
    fn delivered(&self) -> usize {
        let counts = self.sink.counts().unwrap();
        let id = format!("{}@ua.invalid", &sha256("k")[..32]);
        assert!(counts.keys().all(|found| *found == id), "{counts:?}");
        counts.get(&id).copied().unwrap_or(0)
    }
}

#[tokio::test]
async fn smtp_delivers_the_message_whole_and_to_everybody_once() {
    let mail = Mail::new([]).await;
    let sent = mail.send(1).await.back();
    let id = sha256("k")[..32].to_owned();
    assert_eq!(
        sent,
        json!({
            "message_id": format!("<{id}@ua.invalid>"), "via": format!("smtp://{}", mail.sink.address),
            "recipients": ["ada@example.org", "bob@example.org", "eve@example.org", "bob@example.org"],
            "already_sent": false, "provider_reference": "2.0.0 queued as sink",
        })
    );
    let messages = mail.sink.messages().unwrap();
    let [raw] = messages.as_slice() else { panic!("{messages:?}") };
    for line in [
        "X-Envelope-From: ua@localhost",
        "X-Envelope-To: ada@example.org bob@example.org eve@example.org",
        &format!("Message-ID: <{id}@ua.invalid>"),
        "Date: Fri, 02 Jan 2026 03:04:05 +0000",
        "Content-Disposition: attachment; filename=\"data.csv\"",
        "..dots stay",
    ] {
        assert!(raw.contains(&format!("{line}\r\n")), "{line} in\n{raw}");
    }
    assert!(!raw.contains("Bcc"), "blind copies stay blind: {raw}");
}

#[tokio::test]
async fn what_the_server_took_is_not_sent_again_whoever_asks() {
    let mail = Mail::new([]).await;
    mail.send(1).await.back();
    for attempt in [1, 2] {
        let again = mail.send(attempt).await.back();
        assert_eq!(
            (&again["already_sent"], &again["provider_reference"]),
            (&json!(true), &json!("2.0.0 queued as sink"))
        );
    }
    std::fs::remove_file(mail.world.workspace().join("data.csv")).unwrap();
    assert_eq!(mail.send(1).await.back()["already_sent"], true, "even when its attachment is gone");
    assert_eq!((mail.delivered(), mail.sink.connections()), (1, 1));
}

#[tokio::test]
async fn a_withheld_answer_is_unclear_and_only_a_person_repeats_it() {
    let mail = Mail::new([(1, SmtpFault::WithholdAnswer)]).await;
    mail.send(1).await.unclear("did not say that it took it");
    mail.send(1).await.unclear("may have been delivered");
    assert_eq!((mail.delivered(), mail.sink.connections()), (1, 1), "nothing is repeated by itself");
    assert_eq!(mail.send(2).await.back()["already_sent"], false, "an order is carried out");
    assert_eq!(mail.delivered(), 2);
    assert_eq!(mail.send(3).await.back()["already_sent"], true);
}

#[tokio::test]
async fn a_probe_finds_what_arrived() {
    let mail = Mail::probed([(1, SmtpFault::WithholdAnswer)]).await;
    mail.send(1).await.unclear("did not say that it took it");
    let again = mail.send(2).await.back();
    assert_eq!((&again["already_sent"], &again["evidence"]), (&json!(true), &json!("found by probe")));
    assert_eq!((mail.delivered(), mail.sink.connections()), (1, 1));
    mail.sink.set_blind(true);
    assert_eq!(mail.send(3).await.back()["already_sent"], true, "what was found is known from then on");
}

#[tokio::test]
async fn a_probe_that_finds_nothing_lets_the_message_go() {
    let mail = Mail::probed([(1, SmtpFault::CutBefore)]).await;
    mail.send(1).await.unclear("did not say that it took it");
    assert_eq!(mail.send(2).await.back()["already_sent"], false);
    assert_eq!(mail.delivered(), 1);
    let raw = mail.sink.messages().unwrap().remove(0);
    assert!(raw.contains("Date: Fri, 02 Jan 2026 03:04:15 +0000"), "ten seconds were waited for it to arrive: {raw}");
}

#[tokio::test]
async fn a_probe_that_can_not_say_leaves_it_unclear() {
    let mail = Mail::probed([(1, SmtpFault::CutBefore)]).await;
    mail.send(1).await.unclear("did not say that it took it");
    mail.sink.set_blind(true);
    for attempt in [1, 2] {
        mail.send(attempt).await.unclear("status 503");
    }
    assert_eq!((mail.delivered(), mail.sink.connections()), (0, 1));
}

#[tokio::test]
async fn a_refusal_before_or_instead_of_the_message_says_so_and_leaves_no_trace() {
    let faults = [(1, SmtpFault::RefuseConnection), (2, SmtpFault::RefuseText(552)), (3, SmtpFault::RefuseText(451))];
    let mail = Mail::new(faults).await;
    mail.send(1).await.refused("could not connect");
    mail.send(1).await.refused("552");
    mail.send(1).await.refused("451");
    assert_eq!(mail.delivered(), 0);
    assert_eq!(mail.send(1).await.back()["already_sent"], false, "a refused attempt stands in nobody's way");
    assert_eq!(mail.delivered(), 1);
}

#[tokio::test]
async fn a_server_that_closes_down_over_a_message_has_not_refused_it() {
    let mail = Mail::new([(1, SmtpFault::RefuseText(421))]).await;
    mail.send(1).await.unclear("421");
    mail.send(1).await.unclear("may have been delivered");
}

#[tokio::test]
async fn one_unknown_recipient_keeps_the_message_from_all() {
    let mail = Mail::new([]).await;
    let arguments = json!({ "to": ["ada@example.org", "gone@example.org"], "subject": "s", "body": "b" });
    mail.world.keyed("send_email", "k", arguments).await.refused("gone@example.org is not known here");
    let arguments = json!({ "to": ["ada@example.org", "nobody"], "subject": "s", "body": "b" });
    mail.world.keyed("send_email", "k", arguments).await.refused("\"nobody\" is not an e-mail address");
    assert_eq!((mail.delivered(), mail.sink.connections()), (0, 1));
}

#[tokio::test]
async fn credentials_are_used_and_wrong_ones_are_refused() {
    let arrange = |config: &mut SmtpSinkConfig| config.credentials = Some(("ua".to_owned(), "right".to_owned()));
    for (password, is_right) in [("right", true), ("wrong", false)] {
        let sign_in = |settings: &mut Settings, _: &SmtpSink| {
            settings.secrets.mail_user = Some("ua".to_owned());
            settings.secrets.mail_password = Some(password.into());
        };
        let mail = Mail::with([], sign_in, arrange).await;
        let came = mail.send(1).await;
        if is_right {
            came.back();
        } else {
            assert!(!came.refused("could not sign in").contains("wrong user or password: wrong"));
        }
        assert_eq!(mail.delivered(), usize::from(is_right));
    }
    Mail::with([], |_, _| {}, arrange).await.send(1).await.refused("530");
}

#[tokio::test]
async fn encryption_that_was_asked_for_is_not_done_without() {
    for (scheme, query, problem) in [("smtp", "?starttls=required", "STARTTLS"), ("smtps", "", "could not connect")] {
        let address = |settings: &mut Settings, sink: &SmtpSink| {
            settings.mail = Some(format!("{scheme}://{}{query}", sink.address));
        };
        let mail = Mail::with([], address, |_| {}).await;
        mail.send(1).await.refused(problem);
        assert_eq!(mail.delivered(), 0);
    }
}

#[tokio::test]
async fn a_closed_door_means_nothing_was_sent() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let short = json!({ "to": ["ada@example.org"], "subject": "s", "body": "b" });
    let world = TestServer::with(|settings| settings.mail = Some(format!("smtp://{address}?starttls=never"))).await;
    world.keyed("send_email", "k", short.clone()).await.refused("nothing was sent");
    let world = TestServer::with(|settings| {
        settings.mail = Some(format!("resend+http://{address}"));
        settings.secrets.mail_api_key = Some("re_1".into());
    })
    .await;
    world.keyed("send_email", "k", short).await.refused("nothing was sent");
    assert_eq!(names(&world.workspace().join(".ua/mail")), [".lock"]);
}

async fn api(faults: BTreeMap<u64, HttpFault>, key: &'static str) -> (TestServer, MailApi, TempDir) {
    let kept = TempDir::new().unwrap();
    let config = MailApiConfig { directory: kept.path().join("sent"), api_key: "re_1".to_owned(), faults };
    let server = MailApi::start(config).await.unwrap();
    let world = TestServer::with(|settings| {
        settings.mail = Some(format!("resend+{}", server.base_url));
        settings.secrets.mail_api_key = Some(key.into());
    })
    .await;
    world.put("data.csv", "a,b\n");
    (world, server, kept)
}

#[tokio::test]
async fn an_api_gets_the_message_under_its_key() {
    let (world, server, _kept) = api(BTreeMap::new(), "re_1").await;
    let sent = world.keyed("send_email", "k", message()).await.back();
    assert_eq!((&sent["already_sent"], &sent["provider_reference"]), (&json!(false), &json!(sha256("k"))));
    let expected = json!({
        "from": "ua@localhost", "to": ["Ada Lovelace <ada@example.org>"], "cc": ["bob@example.org"],
        "bcc": ["eve@example.org", "bob@example.org"], "subject": "Zahlen für März", "text": "Hello.\n.\n..dots stay",
        "attachments": [{ "filename": "data.csv", "content": "YSxiCg==" }],
    });
    assert_eq!(server.messages().unwrap(), [expected]);
    assert_eq!(world.keyed("send_email", "k", message()).await.back()["already_sent"], true);
    assert_eq!(server.posts(), 1);
}

#[tokio::test]
async fn an_api_that_lost_its_answer_is_asked_again_under_the_same_key() {
    for fault in [HttpFault::CutAfter, HttpFault::AnswerWrongly(502), HttpFault::CutBefore, HttpFault::Refuse(409)] {
        let (world, server, _kept) = api(BTreeMap::from([(1, fault)]), "re_1").await;
        assert!(matches!(world.keyed("send_email", "k", message()).await, Came::Broken(-32603, _)), "{fault:?}");
        world.keyed("send_email", "k", message()).await.back();
        assert_eq!((server.messages().unwrap().len(), server.posts()), (1, 2), "{fault:?}");
    }
}

#[tokio::test]
async fn an_api_that_refuses_has_sent_nothing() {
    for status in [400, 402, 403, 410, 413, 422, 425, 429, 451] {
        let (world, server, _kept) = api(BTreeMap::from([(1, HttpFault::Refuse(status))]), "re_1").await;
        world.keyed("send_email", "k", message()).await.refused(&status.to_string());
        assert_eq!(server.messages().unwrap().len(), 0);
        world.keyed("send_email", "k", message()).await.back();
    }
    let (world, server, _kept) = api(BTreeMap::new(), "re_wrong").await;
    assert!(!world.keyed("send_email", "k", message()).await.refused("401").contains("re_wrong"));
    assert_eq!(server.messages().unwrap().len(), 0);
}

#[tokio::test]
async fn an_attempt_through_another_server_is_not_repeated_here() {
    let (world, server, _kept) = api(BTreeMap::from([(1, HttpFault::CutAfter)]), "re_1").await;
    assert!(matches!(world.keyed("send_email", "k", message()).await, Came::Broken(-32603, _)));
    let (_, other, _also_kept) = api(BTreeMap::new(), "re_1").await;
    let moved = TestServer::in_directory(world.directory, |settings| {
        settings.mail = Some(format!("resend+{}", other.base_url));
        settings.secrets.mail_api_key = Some("re_1".into());
    })
    .await;
    let meta = json!({ IDEMPOTENCY_KEY: "k", ATTEMPT: 2 });
    moved.send_with("send_email", message(), meta).await.unclear("may have been delivered");
    assert_eq!((server.messages().unwrap().len(), other.posts()), (1, 0));
}

#[tokio::test]
async fn each_transport_declares_what_it_can_promise() {
    type Change = fn(&mut Settings);
    let cases: [(Change, bool, Option<u64>); 4] = [
        (|_| {}, true, None),
        (|s| s.mail = Some("smtp://127.0.0.1:25?starttls=never".into()), false, None),
        (
            |s| {
                s.mail = Some("smtps://mail.example.org".into());
                s.mail_probe = Some("http://127.0.0.1/{message_id}".into());
            },
            true,
            None,
        ),
        (
            |s| {
                s.mail = Some("resend+https://api.example.org".into());
                s.secrets.mail_api_key = Some("re_1".into());
            },
            true,
            Some(86_400),
        ),
    ];
    for (change, honours_keys, ttl) in cases {
        let world = TestServer::with(change).await;
        let tool = world.tools().await.into_iter().find(|tool| tool.name == "send_email").unwrap();
        let says = |name: &str| tool.meta.as_ref().and_then(|meta| meta.get(name).cloned());
        assert_eq!(says(ua_toolserver::HONOURS_KEYS), Some(json!(honours_keys)));
        assert_eq!(says(ua_toolserver::KEY_TTL_SECONDS).and_then(|seconds| seconds.as_u64()), ttl);
    }
}

#[test]
fn mail_settings_that_can_not_work_are_named_at_the_start() {
    let directory = TempDir::new().unwrap();
    let problem = |mail: &str, change: &dyn Fn(&mut Settings)| {
        let mut settings = Settings::in_workspace(directory.path());
        settings.mail = Some(mail.to_owned());
        change(&mut settings);
        ua_toolserver::ToolServer::open(&settings, ua_core::Env::simulated(1)).unwrap_err().to_string()
    };
    let password = |settings: &mut Settings| {
        settings.secrets.mail_user = Some("ua".to_owned());
        settings.secrets.mail_password = Some("hunter2".into());
    };
    let probe = |settings: &mut Settings| settings.mail_probe = Some("http://127.0.0.1/x".to_owned());
    let cases = [
        (problem("smtp://mail.example.org", &|_| {}), "say how it is encrypted"),
        (problem("smtp://mail.example.org?starttls=maybe", &|_| {}), "starttls=maybe is not known"),
        (problem("smtp://mail.example.org?starttls=never", &password), "in the clear"),
        (problem("smtps://ua:hunter2@mail.example.org", &|_| {}), "UA_MAIL_PASSWORD"),
        (problem("resend+https://api.example.org", &|_| {}), "UA_MAIL_API_KEY is not set"),
        (problem("imap://mail.example.org", &|_| {}), "is not a way to send mail"),
        (problem("smtps://mail.example.org", &probe), "{message_id}"),
    ];
    for (problem, expected) in cases {
        assert!(problem.contains(expected) && !problem.contains("hunter2"), "{problem}");
    }
}

/// The first attempt may have arrived, the probe says that it has not, and by then the file is another one.
#[tokio::test]
async fn what_a_probe_lets_be_sent_again_is_what_was_sent_before_or_nothing() {
    let mail = Mail::probed([(1, SmtpFault::CutBefore)]).await;
    let send = async |attempt: u64| {
        let meta = json!({
            IDEMPOTENCY_KEY: "k", ATTEMPT: attempt, FILES: { "attachments[0]": sha256("a,b\n") },
        });
        mail.world.send_with("send_email", message(), meta).await
    };
    assert!(matches!(send(1).await, Came::Broken(..)), "nobody can tell");
    mail.world.put("data.csv", "c,d\n");
    send(2).await.refused("\"data.csv\" has changed since");
    assert_eq!(mail.delivered(), 0);
    mail.world.put("data.csv", "a,b\n");
    send(3).await.back();
    assert_eq!(mail.delivered(), 1);
}
