//! E-mail over TLS: who is trusted, that it is used before anything is said, and signing in through it.

#![expect(clippy::disallowed_methods, reason = "tests make the files that they look at")]

use serde_json::json;
use tempfile::TempDir;
use ua_core::Env;
use ua_testkit::{Encryption, SmtpSink, SmtpSinkConfig, TlsIdentity};
use ua_toolserver::{IDEMPOTENCY_KEY, Settings, ToolServer};

use super::{Came, TestServer, names};

/// A mail server that speaks TLS, and the certificate of its authority in a file.
struct Encrypted {
    sink: SmtpSink,
    encryption: Encryption,
    kept: TempDir,
}

impl Encrypted {
    async fn new(encryption: Encryption) -> Self {
        let kept = TempDir::new().unwrap();
        let identity = TlsIdentity::new().unwrap();
        std::fs::write(kept.path().join("ca.pem"), &identity.authority_pem).unwrap();
        let config = SmtpSinkConfig {
            directory: kept.path().join("mail"),
            credentials: Some(("ua".to_owned(), "right".to_owned())),
            unknown: Vec::new(),
            faults: [].into(),
        };
        Self { sink: SmtpSink::start_encrypted(config, encryption, identity).await.unwrap(), encryption, kept }
    }

    fn url(&self, address: &str) -> String {
        match self.encryption {
            Encryption::Implicit => format!("smtps://{address}"),
            Encryption::StartTls => format!("smtp://{address}?starttls=required"),
        }
    }

    /// A world that sends there, signs in with `password` and trusts the authority.
    async fn world(&self, password: &str, change: impl FnOnce(&mut Settings)) -> TestServer {
        TestServer::with(|settings| {
            settings.mail = Some(self.url(&self.sink.address));
            settings.mail_ca_file = Some(self.kept.path().join("ca.pem"));
            settings.secrets.mail_user = Some("ua".to_owned());
            settings.secrets.mail_password = Some(password.into());
            change(settings);
        })
        .await
    }

    fn delivered(&self) -> usize {
        self.sink.counts().unwrap().values().sum()
    }
}

async fn send(world: &TestServer) -> Came {
    let message = json!({ "to": ["ada@example.org"], "subject": "s", "body": "b" });
    world.send_with("send_email", message, json!({ IDEMPOTENCY_KEY: "k" })).await
}

const BOTH: [Encryption; 2] = [Encryption::Implicit, Encryption::StartTls];

#[tokio::test]
async fn a_message_goes_over_tls_to_a_server_that_a_named_authority_vouches_for() {
    for encryption in BOTH {
        let mail = Encrypted::new(encryption).await;
        let world = mail.world("right", |_| {}).await;
        assert_eq!(send(&world).await.back()["already_sent"], false, "{encryption:?}");
        assert_eq!(send(&world).await.back()["already_sent"], true, "{encryption:?}");
        assert_eq!((mail.delivered(), mail.sink.connections()), (1, 1), "{encryption:?}");
    }
}

#[tokio::test]
async fn wrong_credentials_are_refused_over_tls_too() {
    for encryption in BOTH {
        let mail = Encrypted::new(encryption).await;
        let world = mail.world("hunter2", |_| {}).await;
        let why = send(&world).await.refused("could not sign in");
        assert!(why.contains("535") && why.contains("UA_MAIL_PASSWORD") && !why.contains("hunter2"), "{why}");
        assert_eq!((mail.delivered(), names(&world.workspace().join(".ua/mail"))), (0, vec![".lock".to_owned()]));
    }
}

#[tokio::test]
async fn a_server_that_nobody_vouches_for_is_told_nothing() {
    for encryption in BOTH {
        let mail = Encrypted::new(encryption).await;
        let other = Encrypted::new(encryption).await;
        let strangers: [&dyn Fn(&mut Settings); 2] = [&|settings| settings.mail_ca_file = None, &|settings| {
            settings.mail_ca_file = Some(other.kept.path().join("ca.pem"));
        }];
        for stranger in strangers {
            let world = mail.world("right", stranger).await;
            let why = send(&world).await.refused("nothing was sent");
            assert!(why.contains("certificate") && why.contains("UA_MAIL_CA_FILE"), "{encryption:?}: {why}");
            assert_eq!(mail.delivered(), 0);
        }
        // The certificate is for 127.0.0.1, and only for that.
        let (_, port) = mail.sink.address.split_once(':').unwrap();
        let named = |settings: &mut Settings| settings.mail = Some(mail.url(&format!("localhost:{port}")));
        let why = send(&mail.world("right", named).await).await.refused("nothing was sent");
        assert!(why.contains("certificate"), "{encryption:?}: {why}");
        assert_eq!(mail.delivered(), 0);
    }
}

#[test]
fn a_file_of_authorities_that_can_not_be_used_is_named_at_the_start() {
    let directory = TempDir::new().unwrap();
    let problem = |mail: Option<&str>, content: Option<&str>| {
        let path = directory.path().join("ca.pem");
        match content {
            Some(content) => std::fs::write(&path, content).unwrap(),
            None => std::fs::remove_file(&path).unwrap_or_default(),
        }
        let mut settings = Settings::in_workspace(directory.path().join("w"));
        settings.mail = mail.map(str::to_owned);
        settings.mail_ca_file = Some(path);
        ToolServer::open(&settings, Env::simulated(1)).unwrap_err().to_string()
    };
    let broken = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    for (problem, expected) in [
        (problem(Some("smtps://mail.example.org"), None), "No such file"),
        (problem(Some("smtps://mail.example.org"), Some("text")), "there is no certificate in it"),
        (problem(Some("smtps://mail.example.org"), Some(broken)), "TLS cannot be set up"),
        (problem(Some("smtp://mail.example.org?starttls=never"), Some(broken)), "checks no certificate"),
        (problem(Some("maildir:out"), Some(broken)), "only smtps:// and smtp://"),
        (problem(None, Some(broken)), "only smtps:// and smtp://"),
    ] {
        assert!(problem.contains(expected), "{expected}: {problem}");
    }
}
