//! A message before it has a form: people, words and files, checked and read.

use std::time::{Duration, UNIX_EPOCH};

use lettre::Message;
use lettre::message::header::ContentType;
use lettre::message::{Attachment, Mailbox, MultiPart, SinglePart};
use ua_core::Timestamp;

use super::{Arguments, message_id};
use crate::answer::Failure;
use crate::error::ToolServerError;
use crate::media;
use crate::names::has_encoded_word;
use crate::sent::Said;
use crate::workspace::Workspace;

const MAX_ATTACHED_BYTES: u64 = 25 * 1024 * 1024;

/// The address that messages come from.
#[derive(Debug, Clone)]
pub(super) struct Sender(pub(super) Mailbox);

impl Sender {
    pub(super) fn new(text: &str) -> Result<Self, ToolServerError> {
        text.parse().map(Self).map_err(|error| ToolServerError::Setting {
            flag: "mail-from",
            value: text.to_owned(),
            why: format!("{error}; give an address such as ua@example.org"),
        })
    }
}

/// All that a message is made of.
#[derive(Debug)]
pub(super) struct OutgoingMail {
    pub(super) id: String,
    pub(super) from: Mailbox,
    pub(super) people: Recipients,
    pub(super) subject: String,
    pub(super) body: String,
    pub(super) html: Option<String>,
    pub(super) attachments: Vec<Attached>,
}

/// A file that goes along.
#[derive(Debug)]
pub(super) struct Attached {
    pub(super) name: String,
    pub(super) content: Vec<u8>,
    media: ContentType,
}

/// Whether blind copies are written into the message, for a program that reads them there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Bcc {
    Kept,
    Removed,
}

impl OutgoingMail {
    /// Reads what `given` names, if it is what is said of it.
    pub(super) fn read(
        workspace: &Workspace,
        files: &Said,
        from: &Sender,
        given: Arguments,
        people: Recipients,
        id: String,
    ) -> Result<Self, Failure> {
        if given.subject.contains(['\r', '\n', '\0']) {
            return Err(Failure::refused("the subject has a line break in it", "give the subject in one line"));
        }
        if has_encoded_word(&given.subject) {
            let hint = "write the subject as it is to be read; it is encoded where that is needed";
            return Err(Failure::refused("the subject has an encoded word (`=?…?=`) in it", hint));
        }
        Ok(Self {
            id,
            from: from.0.clone(),
            people,
            attachments: attach(workspace, files, &given.attachments)?,
            subject: given.subject,
            body: given.body,
            html: given.html,
        })
    }

    /// The message as mail programs read it, dated `now`. The same letter and date give the same bytes.
    pub(super) fn mime(&self, bcc: Bcc, now: Timestamp) -> Result<Message, Failure> {
        let millis = u64::try_from(now.as_millis()).unwrap_or(0);
        let mut builder = Message::builder()
            .message_id(Some(message_id(&self.id)))
            .date(UNIX_EPOCH + Duration::from_millis(millis))
            .from(self.from.clone())
            .subject(self.subject.clone());
        if bcc == Bcc::Kept {
            builder = builder.keep_bcc();
        }
        for person in &self.people.to {
            builder = builder.to(person.clone());
        }
        for person in &self.people.cc {
            builder = builder.cc(person.clone());
        }
        for person in &self.people.bcc {
            builder = builder.bcc(person.clone());
        }
        let text = SinglePart::plain(self.body.clone());
        let alternative = self.html.as_ref().map(|html| {
            let both = MultiPart::alternative().boundary(format!("alternative-{}", self.id));
            both.singlepart(text.clone()).singlepart(SinglePart::html(html.clone()))
        });
        let message = if self.attachments.is_empty() {
            match alternative {
                Some(both) => builder.multipart(both),
                None => builder.singlepart(text),
            }
        } else {
            let mixed = MultiPart::mixed().boundary(format!("mixed-{}", self.id));
            let mixed = match alternative {
                Some(both) => mixed.multipart(both),
                None => mixed.singlepart(text),
            };
            let part =
                |file: &Attached| Attachment::new(file.name.clone()).body(file.content.clone(), file.media.clone());
            builder.multipart(self.attachments.iter().map(part).fold(mixed, MultiPart::singlepart))
        };
        message.map_err(|error| {
            Failure::refused(format!("the message cannot be put together: {error}"), "check addresses and subject")
        })
    }
}

fn attach(workspace: &Workspace, said: &Said, paths: &[String]) -> Result<Vec<Attached>, Failure> {
    let mut left = MAX_ATTACHED_BYTES;
    let mut files = Vec::with_capacity(paths.len());
    for (index, given) in paths.iter().enumerate() {
        let file = said.open("attach", &format!("attachments[{index}]"), workspace, given)?;
        let name = file.name()?;
        let path = file.path().to_path_buf();
        let content = file.read(left, || {
            Failure::refused(
                format!("the attachments are larger than {} MiB, at {given:?}", MAX_ATTACHED_BYTES >> 20),
                "upload large files and put their URLs into the body",
            )
        })?;
        left = left.saturating_sub(content.len() as u64);
        let media = media::type_of(&path);
        let media = ContentType::parse(media)
            .map_err(|error| Failure::refused(format!("{media} cannot be attached: {error}"), "rename the file"))?;
        files.push(Attached { name, content, media });
    }
    Ok(files)
}

/// Who gets a message.
#[derive(Debug)]
pub(super) struct Recipients {
    pub(super) to: Vec<Mailbox>,
    pub(super) cc: Vec<Mailbox>,
    pub(super) bcc: Vec<Mailbox>,
}

impl Recipients {
    pub(super) fn parse(given: &Arguments) -> Result<Self, Failure> {
        if given.to.is_empty() {
            return Err(Failure::refused("there are no recipients", "give at least one address in to"));
        }
        let parse = |addresses: &[String]| -> Result<Vec<Mailbox>, Failure> {
            let one = |address: &String| {
                if address.contains(['\r', '\n', '\0']) {
                    return Err(format!("the address {address:?} has a line break in it"));
                }
                if has_encoded_word(address) {
                    return Err(format!("the address {address:?} has an encoded word (`=?…?=`) in it"));
                }
                address.parse::<Mailbox>().map_err(|error| format!("{address:?} is not an e-mail address: {error}"))
            };
            let hint = "give addresses such as ada@example.org or Ada <ada@example.org>, one per entry";
            addresses.iter().map(|address| one(address).map_err(|problem| Failure::refused(problem, hint))).collect()
        };
        Ok(Self { to: parse(&given.to)?, cc: parse(&given.cc)?, bcc: parse(&given.bcc)? })
    }

    /// All addresses, in order, as the caller's records show them.
    pub(super) fn addresses(&self) -> Vec<String> {
        self.to.iter().chain(&self.cc).chain(&self.bcc).map(|person| person.email.to_string()).collect()
    }
}
