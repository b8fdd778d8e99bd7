//! `send_email`: puts one message into a Maildir outbox, from which a mail program sends it.
//!
//! File name and Message-ID come from the idempotency key, and a name in the outbox is never given twice: a message
//! found in `new/` or `cur/` has been sent as far as this tool is concerned (Durable Jobs v1 spec §8.2). Blind copies
//! stay in the message as a `Bcc` header, which the program that empties the outbox has to read and remove, as
//! `sendmail -t` does.

use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use lettre::Message;
use lettre::message::header::ContentType;
use lettre::message::{Attachment, Mailbox, MultiPart, SinglePart};
use rmcp::model::Tool;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use ua_core::{Env, Timestamp};

use super::{blocking, effect_id};
use crate::answer::{Answer, Failure, success};
use crate::area::{Area, Created};
use crate::error::ToolServerError;
use crate::media;
use crate::schema::{self, Effect};
use crate::settings::Settings;
use crate::workspace::Workspace;

pub(super) const NAME: &str = "send_email";
const LOCK: &str = ".lock";
const MAX_ATTACHED_BYTES: u64 = 25 * 1024 * 1024;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Arguments {
    /// Who gets the message: addresses, each with a name in front or without, as in `Ada <ada@example.org>`.
    #[schemars(length(min = 1))]
    to: Vec<String>,
    /// Who gets a copy.
    #[serde(default)]
    cc: Vec<String>,
    /// Who gets a copy without the others seeing it.
    #[serde(default)]
    bcc: Vec<String>,
    /// The subject, in one line.
    subject: String,
    /// The message as plain text.
    body: String,
    /// The same message as HTML, for readers that show it.
    html: Option<String>,
    /// Files to attach, relative to the workspace; 25 MiB in all.
    #[serde(default)]
    attachments: Vec<String>,
}

#[derive(Debug, Serialize)]
struct Receipt {
    message_id: String,
    path: String,
    recipients: Vec<String>,
    already_sent: bool,
}

pub(super) fn describe() -> Tool {
    schema::tool::<Arguments>(
        NAME,
        "Send an e-mail",
        "Sends an e-mail by putting it into the outbox. With an idempotency key in _meta it is sent exactly once.",
        Effect::Creates,
    )
}

pub(super) async fn run(
    workspace: &Arc<Workspace>,
    outbox: &Arc<Outbox>,
    given: Arguments,
    key: Option<&str>,
    env: &Env,
) -> Answer {
    let workspace = Arc::clone(workspace);
    let outbox = Arc::clone(outbox);
    let id = effect_id(key, env);
    let now = env.now();
    let sent = blocking(move || outbox.send(&workspace, &given, &id, now)).await?;
    let what = if sent.already_sent { "already in the outbox" } else { "in the outbox" };
    success(format!("{what}: {} to {}", sent.message_id, sent.recipients.join(", ")), &sent)
}

/// The Maildir and the sender.
#[derive(Debug)]
pub(super) struct Outbox {
    path: PathBuf,
    from: Mailbox,
}

impl Outbox {
    pub(super) fn new(path: &Path, settings: &Settings) -> Result<Self, ToolServerError> {
        let setting = |flag, value: String, why| ToolServerError::Setting { flag, value, why };
        let path = std::path::absolute(path)
            .map_err(|error| setting("outbox", path.display().to_string(), error.to_string()))?;
        let from = settings.mail_from.parse().map_err(|error| {
            setting("mail-from", settings.mail_from.clone(), format!("{error}; give an address such as ua@example.org"))
        })?;
        Ok(Self { path, from })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    fn send(&self, workspace: &Workspace, given: &Arguments, id: &str, now: Timestamp) -> Result<Receipt, Failure> {
        let people = Recipients::parse(given)?;
        let message_id = format!("<{id}@ua.invalid>");
        let could_not = |error: &std::io::Error| Failure::io("open the outbox", error);
        let area = Area::open(&self.path).map_err(|error| could_not(&error))?;
        for part in ["tmp", "new", "cur"] {
            area.create_dirs(Path::new(part)).map_err(|error| could_not(&error))?;
        }
        let _lock = area.lock(Path::new(LOCK)).map_err(|error| could_not(&error))?;
        // Looked up before anything can be refused: what was sent stays sent when an attachment is gone by now.
        let (path, already_sent) = if let Some(found) = find(&area, id).map_err(|error| could_not(&error))? {
            (found, true)
        } else {
            let message = self.compose(workspace, given, &people, id, &message_id, now)?;
            let target = Path::new("new").join(id);
            let (staged, ()) = area
                .stage(Path::new("tmp").join(id), |file| file.write_all(&message))
                .map_err(|error| error.into_failure("write to the outbox"))?;
            let created = staged.create(&target).map_err(|error| error.into_failure("deliver to the outbox"))?;
            (target, created == Created::Before)
        };
        if already_sent {
            // Its writer may have died before it synced the directory or removed the temporary name.
            area.discard(&Path::new("tmp").join(id))
                .and_then(|()| area.sync(Path::new("new")))
                .map_err(|error| Failure::Unclear(format!("could not sync the outbox: {error}")))?;
        }
        Ok(Receipt {
            message_id,
            path: area.path().join(path).display().to_string(),
            recipients: people.all().map(|person| person.email.to_string()).collect(),
            already_sent,
        })
    }

    fn compose(
        &self,
        workspace: &Workspace,
        given: &Arguments,
        people: &Recipients,
        id: &str,
        message_id: &str,
        now: Timestamp,
    ) -> Result<Vec<u8>, Failure> {
        if given.subject.contains(['\r', '\n', '\0']) {
            return Err(Failure::refused("the subject has a line break in it", "give the subject in one line"));
        }
        let millis = u64::try_from(now.as_millis()).unwrap_or(0);
        let mut builder = Message::builder()
            .message_id(Some(message_id.to_owned()))
            .date(UNIX_EPOCH + Duration::from_millis(millis))
            .from(self.from.clone())
            .subject(given.subject.clone())
            .keep_bcc();
        for person in &people.to {
            builder = builder.to(person.clone());
        }
        for person in &people.cc {
            builder = builder.cc(person.clone());
        }
        for person in &people.bcc {
            builder = builder.bcc(person.clone());
        }
        let text = SinglePart::plain(given.body.clone());
        let alternative = given.html.as_ref().map(|html| {
            let both = MultiPart::alternative().boundary(format!("alternative-{id}"));
            both.singlepart(text.clone()).singlepart(SinglePart::html(html.clone()))
        });
        let attachments = attach(workspace, &given.attachments)?;
        let message = if attachments.is_empty() {
            match alternative {
                Some(both) => builder.multipart(both),
                None => builder.singlepart(text),
            }
        } else {
            let mixed = MultiPart::mixed().boundary(format!("mixed-{id}"));
            let mixed = match alternative {
                Some(both) => mixed.multipart(both),
                None => mixed.singlepart(text),
            };
            builder.multipart(attachments.into_iter().fold(mixed, MultiPart::singlepart))
        };
        let message = message.map_err(|error| {
            Failure::refused(format!("the message can not be put together: {error}"), "check addresses and subject")
        })?;
        Ok(message.formatted())
    }
}

/// The message of that id, new or already seen by a mail program.
fn find(area: &Area, id: &str) -> std::io::Result<Option<PathBuf>> {
    for part in ["new", "cur"] {
        for entry in area.dir().read_dir(part)? {
            let name = entry?.file_name();
            let is_it = name.to_str().is_some_and(|name| name.split(":2,").next() == Some(id));
            if is_it {
                return Ok(Some(Path::new(part).join(name)));
            }
        }
    }
    Ok(None)
}

fn attach(workspace: &Workspace, paths: &[String]) -> Result<Vec<SinglePart>, Failure> {
    let mut left = MAX_ATTACHED_BYTES;
    let mut parts = Vec::with_capacity(paths.len());
    for given in paths {
        let could_not = |error: &std::io::Error| Failure::io(format_args!("attach {given:?}"), error);
        let path = workspace.readable(given)?;
        let file = workspace.area().dir().open(&path).map_err(|error| could_not(&error))?;
        let mut content = Vec::new();
        let count = file.take(left + 1).read_to_end(&mut content).map_err(|error| could_not(&error))?;
        left = left.checked_sub(count as u64).ok_or_else(|| {
            Failure::refused(
                format!("the attachments are larger than {} MiB, at {given:?}", MAX_ATTACHED_BYTES >> 20),
                "upload large files and put their URLs into the body",
            )
        })?;
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        if name.contains(['\r', '\n']) {
            return Err(Failure::refused(
                format!("the name of {given:?} has a line break in it"),
                "copy the file to another name",
            ));
        }
        let media = media::type_of(&path);
        let media = ContentType::parse(media)
            .map_err(|error| Failure::refused(format!("{media} can not be attached: {error}"), "rename the file"))?;
        parts.push(Attachment::new(name).body(content, media));
    }
    Ok(parts)
}

#[derive(Debug)]
struct Recipients {
    to: Vec<Mailbox>,
    cc: Vec<Mailbox>,
    bcc: Vec<Mailbox>,
}

impl Recipients {
    fn parse(given: &Arguments) -> Result<Self, Failure> {
        if given.to.is_empty() {
            return Err(Failure::refused("there are no recipients", "give at least one address in to"));
        }
        let parse = |addresses: &[String]| -> Result<Vec<Mailbox>, Failure> {
            let one = |address: &String| {
                if address.contains(['\r', '\n', '\0']) {
                    return Err(format!("the address {address:?} has a line break in it"));
                }
                address.parse::<Mailbox>().map_err(|error| format!("{address:?} is not an e-mail address: {error}"))
            };
            let hint = "give addresses such as ada@example.org or Ada <ada@example.org>, one per entry";
            addresses.iter().map(|address| one(address).map_err(|problem| Failure::refused(problem, hint))).collect()
        };
        Ok(Self { to: parse(&given.to)?, cc: parse(&given.cc)?, bcc: parse(&given.bcc)? })
    }

    fn all(&self) -> impl Iterator<Item = &Mailbox> {
        self.to.iter().chain(&self.cc).chain(&self.bcc)
    }
}
