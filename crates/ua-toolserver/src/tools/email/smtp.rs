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

use super::outgoing::bytes;
use crate::answer::Failure;
use crate::web::root_cause;

/// How long the server is waited for.
#[derive(Debug, Clone, Copy)]
struct Patience {
    connect: Duration,
    step: Duration,
    /// For the message's text and the answer to its last line.
    last_line: Duration,
    /// For a goodbye, of which nothing depends.
    goodbye: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        // RFC 5321 §4.5.3.2.6 tells a client to wait so long for the answer to the last line.
        let last_line = Duration::from_mins(10);
        let (connect, goodbye) = (Duration::from_secs(30), Duration::from_secs(10));
        Self { connect, step: Duration::from_mins(2), last_line, goodbye }
    }
}

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
    patience: Patience,
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
                Some(builder.build().map_err(|error| format!("TLS cannot be set up: {}", root_cause(&error)))?)
            }
        };
        let credentials = credentials.map(|(user, password)| Credentials::new(user, password));
        Ok(Self { host, port, security, tls, credentials, patience: Patience::default() })
    }

    /// The server as it is shown and recorded.
    pub(super) fn address(&self) -> String {
        let scheme = if self.security == Security::Tls { "smtps" } else { "smtp" };
        format!("{scheme}://{}:{}", self.host, self.port)
    }

    /// Sends the message; `last_moment` runs after the server took all recipients and before the text leaves.
    /// Returns what the server said when it took the message.
    #[tracing::instrument(name = "send mail", skip_all, fields(otel.kind = "client", ua.mail.transport = "smtp"))]
    pub(super) async fn send(
        &self,
        message: &Message,
        last_moment: impl Future<Output = Result<(), Failure>>,
    ) -> Result<String, Failure> {
        let bytes = bytes(message)?;
        let mut connection = self.connect().await?;
        let prepared = async {
            self.announce(&mut connection, message).await?;
            last_moment.await
        };
        if let Err(failure) = prepared.await {
            self.hang_up(&mut connection).await;
            return Err(failure);
        }
        let begun = self.step("begin the message", connection.command(Data)).await;
        if let Err(failure) = begun {
            self.hang_up(&mut connection).await;
            return Err(failure);
        }
        let outcome = timeout(self.patience.last_line, connection.message(&bytes)).await;
        let answer = match outcome {
            Ok(Ok(response)) => Ok(response.message().collect::<Vec<_>>().join(" ")),
            Ok(Err(error)) => Err(self.after_the_text(&error)),
            Err(_) => Err(self.unclear("it did not answer in time")),
        };
        // Whatever comes of the goodbye, the message is where it is.
        if answer.is_ok() {
            timeout(self.patience.goodbye, connection.quit()).await.ok();
        } else {
            self.hang_up(&mut connection).await;
        }
        answer
    }

    /// Leaves a server that failed, which may be one that answers nothing any more.
    async fn hang_up(&self, connection: &mut AsyncSmtpConnection) {
        timeout(self.patience.goodbye, connection.abort()).await.ok();
    }

    async fn connect(&self) -> Result<AsyncSmtpConnection, Failure> {
        let hello = ClientId::default();
        let tls = self.tls.clone().filter(|_| self.security == Security::Tls);
        let server = (self.host.as_str(), self.port);
        let connecting = AsyncSmtpConnection::connect_tokio1(server, Some(self.patience.connect), &hello, tls, None);
        let mut connection = self.step("connect", connecting).await?;
        if let (Security::StartTls, Some(tls)) = (self.security, &self.tls) {
            self.step("encrypt the connection", connection.starttls(tls.clone(), &hello)).await?;
        }
        if let Some(credentials) = &self.credentials {
            let signing_in = connection.auth(DEFAULT_MECHANISMS, credentials);
            if let Err(failure) = self.step("sign in", signing_in).await {
                self.hang_up(&mut connection).await;
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
        let cause = match timeout(self.patience.step, work).await {
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

#[cfg(test)]
mod tests {
    use lettre::message::SinglePart;
    use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
    use tokio::net::TcpListener;

    use super::*;

    /// A server that answers until a line begins with `last`, and then only listens.
    async fn silent_after(last: &'static str) -> u16 {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        tokio::spawn(async move {
            let (stream, _) = listener.accept().await.unwrap();
            let (read, mut write) = stream.into_split();
            let mut read = BufReader::new(read);
            if last == "connect" {
                read.read_to_end(&mut Vec::new()).await.unwrap();
                return;
            }
            write.write_all(b"220 here\r\n").await.unwrap();
            let mut in_text = false;
            let mut line = String::new();
            while read.read_line(&mut line).await.is_ok_and(|count| count > 0) {
                let text = std::mem::take(&mut line);
                if text.starts_with(last) {
                    break;
                }
                if !in_text {
                    in_text = text.starts_with("DATA");
                    let answer: &[u8] = if in_text { b"354 go on\r\n" } else { b"250 yes\r\n" };
                    write.write_all(answer).await.unwrap();
                }
            }
            read.read_to_end(&mut Vec::new()).await.ok();
        });
        port
    }

    async fn send_to(port: u16) -> (Failure, bool) {
        let mut smtp = Smtp::new("127.0.0.1", port, Security::Plain, None, Vec::new()).unwrap();
        let short = Duration::from_millis(500);
        smtp.patience = Patience { connect: short, step: short, last_line: short, goodbye: short };
        let message = Message::builder()
            .from("a@example.org".parse().unwrap())
            .to("b@example.org".parse().unwrap())
            .singlepart(SinglePart::plain("Hello.".to_owned()))
            .unwrap();
        let mut was_last_moment = false;
        let last_moment = async {
            was_last_moment = true;
            Ok(())
        };
        let failure = smtp.send(&message, last_moment).await.unwrap_err();
        (failure, was_last_moment)
    }

    #[tokio::test]
    async fn silence_before_the_text_left_means_that_nothing_was_sent() {
        let steps = [
            ("connect", "connect"),
            ("EHLO", "connect"),
            ("MAIL", "name the sender"),
            ("RCPT", "name the recipient b@example.org"),
            ("DATA", "begin the message"),
        ];
        for (last, step) in steps {
            let (failure, was_last_moment) = send_to(silent_after(last).await).await;
            let Failure::Refused { problem, .. } = failure else { panic!("{last}: {failure:?}") };
            let is_named =
                problem.starts_with(&format!("could not {step} at smtp://")) && problem.contains("nothing was sent");
            assert!(is_named, "{last}: {problem}");
            assert_eq!(was_last_moment, last == "DATA", "{last}");
        }
    }

    #[tokio::test]
    async fn silence_after_the_text_left_leaves_it_open() {
        for last in ["Hello.", ".\r\n"] {
            let (failure, was_last_moment) = send_to(silent_after(last).await).await;
            let Failure::Unclear(problem) = failure else { panic!("{last}: {failure:?}") };
            assert!(problem.contains("did not say that it took it: it did not answer in time"), "{problem}");
            assert!(was_last_moment);
        }
    }
}
