//! A message before it has a form: people, words and files, checked and read.

use std::time::{Duration, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use lettre::Message;
use lettre::message::header::{ContentTransferEncoding, ContentType, HeaderName, HeaderValue};
use lettre::message::{Attachment, Body, Mailbox, MultiPart, SinglePart};
use ua_core::Timestamp;

use super::{Arguments, message_id};
use crate::answer::Failure;
use crate::error::ToolServerError;
use crate::media;
use crate::names::{driving, has_encoded_word, misread_in_a_mail};
use crate::sent::Said;
use crate::workspace::Workspace;

const MAX_ATTACHED_BYTES: u64 = 25 * 1024 * 1024;
/// The longest line of a message without its end, in bytes (RFC 5322 §2.1.1).
const LONGEST_LINE: usize = 998;
/// The longest word that is left as it is in a line of a header.
const LONGEST_WORD: usize = 900;
/// As many bytes as Base64 makes an encoded word of that has at most 75 characters (RFC 2047 §2).
const BYTES_OF_ENCODED_WORD: usize = 45;
/// The longest address together with the name in front of it: an address has at most 254 bytes, and with a longer name it is not one line any more.
const LONGEST_ADDRESS: usize = 600;

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

impl Attached {
    /// As it travels. What has a carriage return in it is encoded, since lines of a message have one at their end and nowhere else, and so is what has
    /// another control character.
    fn encoded(&self) -> Body {
        let content = self.content.clone();
        if !content.iter().any(|byte| byte.is_ascii_control() && !matches!(byte, b'\n' | b'\t')) {
            return Body::new(content);
        }
        match Body::new_with_encoding(content, ContentTransferEncoding::Base64) {
            Ok(body) => body,
            Err(_) => unreachable!("every content can be encoded in Base64"),
        }
    }
}

/// A text with one kind of line ends. A carriage return of its own is one: a server that mends it would end the message behind `\r.\r\n`, and take
/// what follows for commands.
fn in_lines(text: &str) -> String {
    text.replace("\r\n", "\n").replace('\r', "\n")
}

/// A subject as it travels, if a word in it is too long for a line: the library folds between words, and leaves those of ASCII as they are. So it is
/// encoded whole, in pieces of a line each.
fn long_subject(subject: &str) -> Option<HeaderValue> {
    if subject.split(' ').all(|word| word.len() <= LONGEST_WORD) {
        return None;
    }
    let mut pieces = vec![String::new()];
    for c in subject.chars() {
        match pieces.last_mut().filter(|piece| piece.len() + c.len_utf8() <= BYTES_OF_ENCODED_WORD) {
            Some(piece) => piece.push(c),
            None => pieces.push(c.to_string()),
        }
    }
    let encoded: Vec<String> = pieces.iter().map(|piece| format!("=?utf-8?b?{}?=", STANDARD.encode(piece))).collect();
    let name = HeaderName::new_from_ascii_str("Subject");
    Some(HeaderValue::dangerous_new_pre_encoded(name, subject.to_owned(), encoded.join("\r\n ")))
}

/// Whether all of a message is as RFC 5322 has it: a carriage return stands at the end of a line and nowhere else, no line is longer than a server takes,
/// and none has a character that drives a terminal. A line feed of its own, as in a file that is attached, gets its carriage return on the way.
fn is_well_formed(bytes: &[u8]) -> bool {
    let is_right = |line: &[u8]| {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        line.len() <= LONGEST_LINE && !line.iter().any(|byte| byte.is_ascii_control() && *byte != b'\t')
    };
    bytes.split(|byte| *byte == b'\n').all(is_right)
}

/// The bytes of a message.
///
/// # Errors
/// It is another message: nothing of it may be sent.
pub(super) fn bytes(message: &Message) -> Result<Vec<u8>, Failure> {
    let bytes = message.formatted();
    if is_well_formed(&bytes) {
        return Ok(bytes);
    }
    let why = "the message has line ends, control characters or a line of more than 998 bytes, which mail servers read in different ways";
    Err(Failure::refused(why, "use line feeds alone, shorter words and no control characters"))
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
        if given.subject.contains(['\r', '\n']) {
            return Err(Failure::refused("the subject has a line break in it", "give the subject in one line"));
        }
        let texts = [("subject", Some(&given.subject)), ("body", Some(&given.body)), ("html", given.html.as_ref())];
        for (what, text) in texts {
            if let Some(c) = text.and_then(|text| driving(text)) {
                let problem = format!("{what} has the control character U+{:04X} in it", u32::from(c));
                return Err(Failure::refused(problem, "leave it out, or attach the text as a file"));
            }
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
            .from(self.from.clone());
        builder = match long_subject(&self.subject) {
            Some(subject) => builder.raw_header(subject),
            None => builder.subject(self.subject.clone()),
        };
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
        let text = SinglePart::plain(in_lines(&self.body));
        let alternative = self.html.as_ref().map(|html| {
            let both = MultiPart::alternative().boundary(format!("alternative-{}", self.id));
            both.singlepart(text.clone()).singlepart(SinglePart::html(in_lines(html)))
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
            let part = |file: &Attached| Attachment::new(file.name.clone()).body(file.encoded(), file.media.clone());
            builder.multipart(self.attachments.iter().map(part).fold(mixed, MultiPart::singlepart))
        };
        message.map_err(|error| {
            Failure::refused(format!("the message cannot be put together: {error}"), "check addresses and subject")
        })
    }
}

/// The beginning of a text that is too long to be repeated.
fn begins(text: &str) -> String {
    text.chars().take(40).collect()
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
                if let Some(why) = misread_in_a_mail(address) {
                    return Err(format!("the address {address:?} {why}"));
                }
                if address.len() > LONGEST_ADDRESS {
                    return Err(format!("the address {:?}… is longer than {LONGEST_ADDRESS} bytes", begins(address)));
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Whatever stands in a text or a file: a server that mends carriage returns, and one that does not, find the end of the message at the same place.
    #[test]
    fn no_word_of_a_message_ends_it_for_a_server() {
        let ends = ["\r", "\n", "\r\n", "\r\r\n", "\n\r", ""];
        let mut seen = 0;
        for before in ends {
            for after in ends {
                let words = format!("hello{before}.{after}MAIL FROM:<a@b.example>{before}");
                for place in 0..3 {
                    let text = |nth| if nth == place { words.clone() } else { "plain".to_owned() };
                    let mail = OutgoingMail {
                        id: "1".to_owned(),
                        from: "a@example.org".parse().unwrap(),
                        people: Recipients {
                            to: vec!["b@example.org".parse().unwrap()],
                            cc: Vec::new(),
                            bcc: Vec::new(),
                        },
                        subject: "s".to_owned(),
                        body: text(0),
                        html: Some(text(1)),
                        attachments: vec![Attached {
                            name: "a.txt".to_owned(),
                            content: text(2).into_bytes(),
                            media: ContentType::parse("text/plain").unwrap(),
                        }],
                    };
                    let sent = bytes(&mail.mime(Bcc::Kept, Timestamp::from_millis(0)).unwrap()).unwrap();
                    let sent = String::from_utf8(sent).unwrap();
                    assert!(!sent.replace("\r\n", "").contains('\r'), "{words:?} {place}: {sent:?}");
                    seen += 1;
                }
            }
        }
        assert_eq!(seen, 108);
        let wrong = Message::builder()
            .from("a@example.org".parse().unwrap())
            .to("b@example.org".parse().unwrap())
            .body("hello\r.\r\nMAIL".to_owned())
            .unwrap();
        assert!(bytes(&wrong).is_err());
    }

    fn given(subject: &str, body: &str, html: Option<&str>, to: &str) -> Arguments {
        let given = serde_json::json!({"to": [to], "subject": subject, "body": body, "html": html});
        serde_json::from_value(given).unwrap()
    }

    fn read(given: Arguments) -> Result<Vec<u8>, Failure> {
        let folder = tempfile::tempdir().unwrap();
        let workspace = Workspace::open(folder.path()).unwrap();
        let people = Recipients::parse(&given)?;
        let from = Sender::new("ua@example.org").unwrap();
        let mail = OutgoingMail::read(&workspace, &Said::default(), &from, given, people, "1".to_owned())?;
        bytes(&mail.mime(Bcc::Kept, Timestamp::from_millis(0))?)
    }

    /// A mail program in a terminal shows what stands there, and a server takes each line as it is.
    #[test]
    fn no_word_of_a_message_drives_a_terminal_or_makes_a_line_that_a_server_cuts() {
        let ada = "Ada <ada@example.org>";
        for odd in ["\u{1b}]0;x\u{7}", "\0", "\u{b}", "\u{c}", "\u{7f}", "\u{9b}2J"] {
            let words = format!("a{odd}b");
            let name = format!("A{odd}da <ada@example.org>");
            for (given, what) in [
                (given(&words, "b", None, ada), "subject"),
                (given("s", &words, None, ada), "body"),
                (given("s", "b", Some(&words), ada), "html"),
                (given("s", "b", None, &name), "address"),
            ] {
                let why = read(given).unwrap_err().text();
                assert!(why.contains(what) && why.contains("control character"), "{odd:?}: {why}");
            }
        }
        for name in ["\u{202e}adA <ada@example.org>", "=?utf-8?q?Eve?= <ada@example.org>"] {
            assert!(read(given("s", "b", None, name)).is_err(), "{name:?}");
        }
        let long_name = format!("{} <ada@example.org>", "A".repeat(2_000));
        assert!(read(given("s", "b", None, &long_name)).unwrap_err().text().contains("longer than 600 bytes"));
        for subject in ["x".repeat(3_000), "\u{e9}".repeat(900), format!("a {} b", "y".repeat(950)), "z ".repeat(900)] {
            let sent = read(given(&subject, &"w".repeat(5_000), Some("<p>\thello\n"), ada)).unwrap();
            assert!(is_well_formed(&sent));
            let text = String::from_utf8(sent).unwrap();
            assert!(text.lines().all(|line| line.len() <= LONGEST_LINE && line.is_ascii()));
            // Each piece is a whole one: together they are what was given.
            let (_, rest) = text.split_once("Subject: ").unwrap();
            let words = rest.split("?=").map_while(|word| word.trim_start().strip_prefix("=?utf-8?b?"));
            let decoded: Vec<u8> = words.flat_map(|word| STANDARD.decode(word).unwrap()).collect();
            let is_encoded = subject.split(' ').any(|word| word.len() > LONGEST_WORD);
            assert!(!is_encoded || String::from_utf8(decoded).unwrap() == subject, "{text}");
        }
        for wrong in ["a\rb", "a\0b", "a\u{1b}b"] {
            assert!(!is_well_formed(wrong.as_bytes()), "{wrong:?}");
        }
        assert!(!is_well_formed(&[b'a'; 999]) && is_well_formed(&[b'a'; 998]) && is_well_formed(b"a\r\n\tb\n"));
    }
}
