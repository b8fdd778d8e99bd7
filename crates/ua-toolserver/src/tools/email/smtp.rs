//! SMTP, one connection per message, step by step: which step failed decides what may be said about the message.
//!
//! Until the message's text leaves, every failure means that nothing was accepted: the text is sent only after the
//! server took all recipients, so a message never goes to some of them. After its last line only a refusal in so many
//! words counts as one; silence, a cut or the "I am closing" of code 421 leave it open (RFC 5321 §4.2.5, §4.5.3.2.6).

use std::fmt::Display;
use std::time::Duration;

use lettre::Message;
use lettre::address::Address;
use lettre::transport::smtp::Error;
use lettre::transport::smtp::authentication::{Credentials, DEFAULT_MECHANISMS};
use lettre::transport::smtp::client::{AsyncSmtpConnection, Certificate, TlsParameters, TlsParametersBuilder};
use lettre::transport::smtp::commands::{Data, Mail, Rcpt};
use lettre::transport::smtp::extension::{ClientId, Extension, MailParameter};
use tokio::time::timeout;

use crate::answer::Failure;
use crate::web::root_cause;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);
const STEP_TIMEOUT: Duration = Duration::from_mins(2);
/// How long RFC 5321 §4.5.3.2.6 tells a client to wait for the answer to the last line.
const LAST_LINE_TIMEOUT: Duration = Duration::from_mins(10);

/// "Service not available, closing transmission channel": may come at any moment, so it answers nothing.
const CLOSING: u16 = 421;

/// How the connection is kept private.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Security {
    /// TLS from the first byte.
    Tls,
    /// TLS after STARTTLS, or nothing is said.
    StartTls,
    /// No encryption, by order.
    Plain,
}

/// A server.
pub(super) struct Smtp {
    host: String,
    port: u16,
    security: Security,
    tls: Option<TlsParameters>,
    credentials: Option<Credentials>,
}

impl std::fmt::Debug for Smtp {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Smtp")
            .field("address", &self.address())
            .field("security", &self.security)
            .finish_non_exhaustive()
    }
}

impl Smtp {
    /// A server. Besides the authorities that this machine trusts, `authorities` may vouch for it.
    pub(super) fn new(
        host: &str,
        port: u16,
        security: Security,
        credentials: Option<(String, String)>,
        authorities: Vec<Certificate>,
    ) -> Result<Self, String> {
        let host = host.trim_matches(['[', ']']).to_owned();
        let tls = match security {
            Security::Plain => None,
            Security::Tls | Security::StartTls => {
                let builder = TlsParameters::builder(host.clone());
                let builder = authorities.into_iter().fold(builder, TlsParametersBuilder::add_root_certificate);
                Some(builder.build().map_err(|error| format!("TLS can not be set up: {}", root_cause(&error)))?)
            }
        };
        let credentials = credentials.map(|(user, password)| Credentials::new(user, password));
        Ok(Self { host, port, security, tls, credentials })
    }

    /// The server as it is shown and recorded.
    pub(super) fn address(&self) -> String {
        let scheme = if self.security == Security::Tls { "smtps" } else { "smtp" };
        format!("{scheme}://{}:{}", self.host, self.port)
    }

    /// Sends the message; `last_moment` runs after the server took all recipients and before the text leaves.
    /// Returns what the server said when it took the message.
    pub(super) async fn send(
        &self,
        message: &Message,
        last_moment: impl Future<Output = Result<(), Failure>>,
    ) -> Result<String, Failure> {
        let mut connection = self.connect().await?;
        let prepared = async {
            self.announce(&mut connection, message).await?;
            last_moment.await
        };
        if let Err(failure) = prepared.await {
            connection.abort().await;
            return Err(failure);
        }
        let bytes = message.formatted();
        let begun = self.step("begin the message", connection.command(Data)).await;
        if let Err(failure) = begun {
            connection.abort().await;
            return Err(failure);
        }
        let outcome = timeout(LAST_LINE_TIMEOUT, connection.message(&bytes)).await;
        let answer = match outcome {
            Ok(Ok(response)) => Ok(response.message().collect::<Vec<_>>().join(" ")),
            Ok(Err(error)) => Err(self.after_the_text(&error)),
            Err(_) => Err(self.unclear("it did not answer in time")),
        };
        // Whatever comes of the goodbye, the message is where it is.
        if answer.is_ok() {
            timeout(STEP_TIMEOUT, connection.quit()).await.ok();
        } else {
            timeout(STEP_TIMEOUT, connection.abort()).await.ok();
        }
        answer
    }

    async fn connect(&self) -> Result<AsyncSmtpConnection, Failure> {
        let hello = ClientId::default();
        let tls = self.tls.clone().filter(|_| self.security == Security::Tls);
        let server = (self.host.as_str(), self.port);
        let connecting = AsyncSmtpConnection::connect_tokio1(server, Some(CONNECT_TIMEOUT), &hello, tls, None);
        let mut connection = self.step("connect", connecting).await?;
        if let (Security::StartTls, Some(tls)) = (self.security, &self.tls) {
            self.step("encrypt the connection", connection.starttls(tls.clone(), &hello)).await?;
        }
        if let Some(credentials) = &self.credentials {
            let signing_in = connection.auth(DEFAULT_MECHANISMS, credentials);
            if let Err(failure) = self.step("sign in", signing_in).await {
                connection.abort().await;
                return Err(failure);
            }
        }
        Ok(connection)
    }

    /// Names sender and recipients. Each recipient once: a server may count a repeated one as two.
    async fn announce(&self, connection: &mut AsyncSmtpConnection, message: &Message) -> Result<(), Failure> {
        let envelope = message.envelope();
        let mut parameters = Vec::new();
        let mut addresses = envelope.to().iter().chain(envelope.from());
        if !addresses.all(|address| address.to_string().is_ascii()) {
            if !connection.server_info().supports_feature(Extension::SmtpUtfEight) {
                let problem = format!("{} takes only ASCII addresses, nothing was sent", self.address());
                return Err(Failure::refused(problem, "use the ASCII form of the address (xn--…)"));
            }
            parameters.push(MailParameter::SmtpUtfEight);
        }
        let sender = Mail::new(envelope.from().cloned(), parameters);
        self.step("name the sender", connection.command(sender)).await?;
        let mut named: Vec<&Address> = Vec::new();
        for recipient in envelope.to() {
            if named.contains(&recipient) {
                continue;
            }
            named.push(recipient);
            let command = Rcpt::new(recipient.clone(), Vec::new());
            self.step(format!("name the recipient {recipient}"), connection.command(command)).await?;
        }
        Ok(())
    }

    /// A step before the text leaves: when it fails, nothing was sent.
    async fn step<T>(&self, action: impl Display, work: impl Future<Output = Result<T, Error>>) -> Result<T, Failure> {
        let cause = match timeout(STEP_TIMEOUT, work).await {
            Ok(Ok(value)) => return Ok(value),
            Ok(Err(error)) => describe(&error),
            Err(_) => "it did not answer in time".to_owned(),
        };
        // The library's texts for a server that is not trusted all name its certificate.
        let hint = if cause.contains("certificate") {
            "ask a person to check --mail; UA_MAIL_CA_FILE names a certificate authority that this machine does not know"
        } else {
            "check the recipients; otherwise ask a person to check --mail, UA_MAIL_USER and UA_MAIL_PASSWORD"
        };
        let problem = format!("could not {action} at {}, nothing was sent: {cause}", self.address());
        Err(Failure::refused(problem, hint))
    }

    fn after_the_text(&self, error: &Error) -> Failure {
        match error.status().map(u16::from) {
            Some(code) if code != CLOSING => Failure::refused(
                format!("{} did not take the message: {}", self.address(), describe(error)),
                "change what the server complains about, or ask a person to check --mail",
            ),
            Some(_) | None => self.unclear(&describe(error)),
        }
    }

    fn unclear(&self, cause: &str) -> Failure {
        Failure::Unclear(format!("the message left for {}, which did not say that it took it: {cause}", self.address()))
    }
}

/// The server's words, or the machine's.
fn describe(error: &Error) -> String {
    match error.status() {
        Some(code) => format!("{code} {}", root_cause(error)),
        None => root_cause(error),
    }
}
