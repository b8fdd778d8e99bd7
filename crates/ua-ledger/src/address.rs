//! What counts as an address among the arguments of a call, however it is spelled, and where it may stand.
//!
//! A fetcher of others takes `//host`, `\\host`, `[2001:db8::1]`, `3232235521`, a full-width or percent-encoded dot for an address as well, and
//! which of them it takes nobody here knows. So under a name that says it is an address every text is one; under other names a text is looked
//! at with its spelling folded. Where things go is not only under the names that recipients usually have: what an effect is given counts
//! wherever it stands, but for what is words for people. Proved by: this file's tests.

use serde_json::Value;
use ua_core::{MailAddress, is_unseen, narrow};

use crate::in_text::{addresses_in, begins_broken, each_quoted, without_breaks};
use crate::recipient::split;

/// What the name of an argument says about its value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Sound {
    /// Nothing.
    Other,
    /// Where something is, or what it is about: an address, if it looks like nothing else: `source`, `proxy`.
    Maybe,
    /// An address, if it looks like one: `site`, `location`.
    Perhaps,
    /// An address, whatever it looks like: `url`, `webhook`.
    Address,
}

/// One text among the arguments.
pub(crate) struct Leaf<'a> {
    pub(crate) text: &'a str,
    pub(crate) sound: Sound,
    /// It is words for people, and goes where the call goes.
    pub(crate) is_words: bool,
    /// These have one line.
    is_title: bool,
    /// It is said to be a number to call.
    is_phone: bool,
    /// It is said to be a number, of which nobody knows whether it is called: an issue has one, too.
    is_number: bool,
    /// It is said to be somebody who gets it, or a place where others read it.
    is_recipient: bool,
    /// It is said to be whose place it is, or which: an effect there is seen by them.
    is_place: bool,
    /// It says which message is meant.
    is_reference: bool,
}

impl Leaf<'_> {
    /// What nobody has a name for.
    const SAYS_NOTHING: Leaf<'static> = Leaf {
        text: "",
        sound: Sound::Other,
        is_words: false,
        is_title: false,
        is_phone: false,
        is_number: false,
        is_recipient: false,
        is_place: false,
        is_reference: false,
    };
}

/// Shows every text of `arguments` to `with`: values, names of fields (some tools take recipients so), and numbers that may be hosts.
pub(crate) fn each_leaf(arguments: &Value, with: &mut impl FnMut(&Leaf<'_>)) {
    leaves(&Leaf::SAYS_NOTHING, arguments, with);
}

fn leaves(around: &Leaf<'_>, value: &Value, with: &mut impl FnMut(&Leaf<'_>)) {
    match value {
        Value::String(text) => with(&Leaf { text, ..*around }),
        // As a fetcher reads it, `3232235521` is a host.
        Value::Number(number) => {
            let is_host = number.as_u64().is_some_and(|number| number >= 1 << 24) && around.sound >= Sound::Perhaps;
            if is_host || around.is_phone || around.is_number || around.is_recipient || around.is_place {
                with(&Leaf { text: &number.to_string(), ..*around });
            }
        }
        Value::Array(items) => {
            for text in written_in_numbers(items, around.sound) {
                with(&Leaf { text: &text, ..*around });
            }
            for item in items {
                leaves(around, item, with);
            }
        }
        Value::Object(fields) => {
            // `{"email": "bob@example.org", "name": "Bob"}`: what somebody is called says nothing beside where they are reached.
            let is_reached = around.is_recipient && fields.values().filter_map(Value::as_str).any(is_one_address);
            for (name, field) in fields {
                // `{"hosts": {"evil.example": 1}}`
                with(&Leaf { text: name, sound: around.sound.min(Sound::Maybe), ..Leaf::SAYS_NOTHING });
                let says = of_name(name);
                if (is_reached && is_what_somebody_is_called(name)) || is_one_address(name) {
                    leaves(&Leaf::SAYS_NOTHING, field, with);
                    continue;
                }
                // `{"type": "text/plain", "value": "…"}` is what its own name says.
                let is_shell = matches!(name.as_str(), "value" | "type" | "content_type" | "contentType" | "encoding");
                let within = if is_shell {
                    Leaf { text: "", ..*around }
                } else if says.is_words {
                    says
                } else {
                    Leaf {
                        sound: says.sound.max(around.sound),
                        is_phone: says.is_phone || around.is_phone,
                        is_number: says.is_number || around.is_number,
                        is_recipient: says.is_recipient || around.is_recipient,
                        is_place: says.is_place || around.is_place,
                        ..says
                    }
                };
                leaves(&within, field, with);
            }
        }
        Value::Null | Value::Bool(_) => {}
    }
}

/// What a list of numbers spells where an address is expected: the parts of a host (`[10, 0, 0, 1]`), which counts where whatever stands there is one,
/// or characters by their numbers.
fn written_in_numbers(items: &[Value], sound: Sound) -> Vec<String> {
    // A fraction of nothing is a number without one to many readers.
    let whole = |item: &Value| {
        item.as_u64().map(|number| number.to_string()).or_else(|| item.as_f64().map(|number| number.to_string()))
    };
    let numbers: Option<Vec<u32>> = items.iter().map(|item| whole(item)?.parse().ok()).collect();
    let Some(numbers) = numbers.filter(|numbers| numbers.len() > 1 && sound >= Sound::Perhaps) else {
        return Vec::new();
    };
    let letters: Option<String> = numbers.iter().map(|number| char::from_u32(*number)).collect();
    let letters = letters.filter(|letters| !letters.chars().any(char::is_control));
    let parts: Vec<String> = numbers.iter().map(u32::to_string).collect();
    let parts = (sound == Sound::Address).then(|| parts.join("."));
    letters.into_iter().chain(parts).collect()
}

/// Words in names of arguments that are addresses, whatever they look like. Whose bucket or server it is sees each read, with what was asked for.
const ADDRESS: [&str; 18] = [
    "bucket",
    "buckets",
    "callback",
    "callbacks",
    "conninfo",
    "dsn",
    "endpoint",
    "endpoints",
    "href",
    "hrefs",
    "link",
    "links",
    "src",
    "uri",
    "uris",
    "url",
    "urls",
    "webhook",
];
/// The same where a name is one word with others before it: `imageurl`.
const ADDRESS_ENDINGS: [&str; 11] = [
    "connectionstring",
    "connstr",
    "connstring",
    "endpoint",
    "href",
    "link",
    "storageaccount",
    "uri",
    "url",
    "urls",
    "webhook",
];
/// Parts of names of arguments that are addresses if they look like one.
const PERHAPS: [&str; 13] = [
    "address", "domain", "endpoint", "host", "href", "link", "location", "page", "site", "src", "target", "uri", "url",
];
/// Words in names of arguments that are addresses if they look like one and like nothing else: a word for a place, or for what is done there.
const MAYBE: [&str; 66] = [
    "addr",
    "addrs",
    "browse",
    "cdn",
    "crawl",
    "dns",
    "download",
    "feed",
    "feeds",
    "fetch",
    "forwarder",
    "fqdn",
    "gateway",
    "git",
    "goto",
    "image",
    "images",
    "img",
    "ip",
    "ips",
    "ipv4",
    "ipv6",
    "mirror",
    "mirrors",
    "nameserver",
    "nameservers",
    "navigate",
    "node",
    "nodes",
    "open",
    "origin",
    "origins",
    "peer",
    "peers",
    "ping",
    "probe",
    "proxies",
    "proxy",
    "redirect",
    "redirects",
    "referer",
    "referrer",
    "registry",
    "relay",
    "remote",
    "remotes",
    "repo",
    "repos",
    "repositories",
    "repository",
    "resolve",
    "resolver",
    "resolvers",
    "resource",
    "resources",
    "rss",
    "scrape",
    "server",
    "servers",
    "socket",
    "source",
    "sources",
    "upload",
    "upstream",
    "visit",
    "ws",
];
/// Endings of names of files that are no domains of the Internet: `a.report.pdf` is a file.
const FILES: [&str; 52] = [
    "avi", "bak", "bmp", "cfg", "conf", "cpp", "css", "csv", "db", "doc", "docx", "epub", "gif", "gz", "heic", "htm",
    "html", "ico", "ini", "ipynb", "java", "jpeg", "jpg", "js", "json", "jsonl", "jsx", "lock", "log", "mp3", "mp4",
    "odt", "parquet", "pdf", "png", "ppt", "pptx", "rtf", "sql", "svg", "tar", "toml", "tsv", "tsx", "txt", "wav",
    "webp", "xls", "xlsx", "xml", "yaml", "yml",
];
/// Those that are domains as well: `notes.md` is a file, and says nothing to anybody but whoever bought that name; `secret.evil.md` may be a host.
const FILES_AND_DOMAINS: [&str; 9] = ["cc", "md", "mov", "pl", "ps", "py", "rs", "sh", "zip"];
/// Names of arguments that are words for people.
const WORDS: [&str; 34] = [
    "body",
    "bodyhtml",
    "bodytext",
    "caption",
    "comment",
    "content",
    "contents",
    "description",
    "details",
    "emailbody",
    "footer",
    "headline",
    "html",
    "htmlbody",
    "htmlcontent",
    "instructions",
    "markdown",
    "message",
    "messagebody",
    "messagetext",
    "msg",
    "note",
    "notes",
    "plain",
    "plaintext",
    "preview",
    "prompt",
    "subject",
    "summary",
    "text",
    "textbody",
    "textcontent",
    "textmessage",
    "title",
];
/// Those of them that have one line.
const TITLES: [&str; 3] = ["headline", "subject", "title"];
/// Parts of names of arguments that are numbers to call.
const PHONE: [&str; 7] = ["fax", "mobile", "msisdn", "phone", "sms", "tel", "whatsapp"];
/// Names of arguments that are numbers to call, if they are long enough for one.
const NUMBER: [&str; 5] = ["callee", "cell", "dial", "number", "numbers"];
/// Words in names of arguments that say whose place something is, or which: nearly every tool of some services has one, and an effect there is
/// seen by whoever is there.
const PLACE: [&str; 24] = [
    "account",
    "accounts",
    "board",
    "calendar",
    "database",
    "dataset",
    "drive",
    "folder",
    "namespace",
    "org",
    "organisation",
    "organization",
    "orgs",
    "owner",
    "owners",
    "parent",
    "project",
    "projects",
    "repo",
    "repository",
    "space",
    "team",
    "tenant",
    "workspace",
];
/// Words in names of arguments that say who gets something, or where others read it: whatever stands there is a destination, however it is
/// spelled.
const RECIPIENT: [&str; 67] = [
    "addressee",
    "addressees",
    "approver",
    "approvers",
    "assignee",
    "assignees",
    "attendee",
    "attendees",
    "audience",
    "bcc",
    "cc",
    "channel",
    "channels",
    "chat",
    "chats",
    "collaborator",
    "collaborators",
    "contact",
    "contacts",
    "conversation",
    "conversations",
    "destination",
    "destinations",
    "device",
    "devices",
    "dm",
    "email",
    "emails",
    "follower",
    "followers",
    "group",
    "groups",
    "guests",
    "handle",
    "handles",
    "invitee",
    "invitees",
    "list",
    "lists",
    "member",
    "members",
    "participant",
    "participants",
    "peer",
    "peers",
    "queue",
    "queues",
    "receiver",
    "receivers",
    "recipient",
    "recipients",
    "reviewer",
    "reviewers",
    "room",
    "rooms",
    "share",
    "shared",
    "subscribers",
    "to",
    "topic",
    "topics",
    "user",
    "username",
    "usernames",
    "users",
    "watcher",
    "watchers",
];
/// Names of what somebody is called, beside where they are reached.
const CALLED: [&str; 9] = ["displayname", "firstname", "fullname", "label", "lastname", "name", "role", "type", "kind"];
/// Names of arguments that say which message is answered: an id of mail looks like an address.
const REFERENCES: [&str; 4] = ["inreplyto", "messageid", "references", "threadid"];

fn of_name(name: &str) -> Leaf<'static> {
    let lower = name.to_lowercase();
    let bare: String = lower.chars().filter(char::is_ascii_alphanumeric).collect();
    let words = words_of(name);
    let is_address = words.iter().any(|word| ADDRESS.contains(&word.as_str()))
        || ADDRESS_ENDINGS.iter().any(|end| bare.ends_with(end))
        || matches!(bare.as_str(), "target" | "targets");
    let sound = if is_address {
        Sound::Address
    } else if PERHAPS.iter().any(|part| lower.contains(part)) {
        Sound::Perhaps
    } else if words.iter().any(|word| MAYBE.contains(&word.as_str())) {
        Sound::Maybe
    } else {
        Sound::Other
    };
    let is_phone = words.iter().any(|word| PHONE.iter().any(|part| word.starts_with(part) || word.ends_with(part)));
    let is = |names: &[&str]| names.contains(&bare.as_str());
    Leaf {
        text: "",
        sound,
        is_words: is(&WORDS),
        is_title: is(&TITLES),
        is_phone,
        is_number: is(&NUMBER),
        is_place: words.iter().any(|word| PLACE.contains(&word.as_str())),
        is_recipient: words.iter().any(|word| RECIPIENT.contains(&word.as_str())),
        is_reference: is(&REFERENCES),
    }
}

fn is_what_somebody_is_called(name: &str) -> bool {
    let bare: String = name.to_lowercase().chars().filter(char::is_ascii_alphanumeric).collect();
    CALLED.contains(&bare.as_str())
}

/// Whether all of a text is where one person is reached by mail.
fn is_one_address(text: &str) -> bool {
    MailAddress::parse(text).is_ok() && is_one_mail_address(text)
}

/// `targetUrl` and `target_url` are two words.
pub(crate) fn words_of(name: &str) -> Vec<String> {
    let (mut words, mut is_small) = (vec![String::new()], false);
    for c in name.chars() {
        if !c.is_alphanumeric() || (is_small && c.is_uppercase()) {
            words.push(String::new());
        }
        is_small = c.is_lowercase();
        if let Some(word) = words.last_mut().filter(|_| c.is_alphanumeric()) {
            word.extend(c.to_lowercase());
        }
    }
    words
}

/// Schemes without slashes behind which a message is written or a call is made: `mailto:ana@example.org?body=…`.
const LETTERS: [&str; 19] = [
    "callto:",
    "discord:",
    "facetime-audio:",
    "facetime:",
    "mailto:",
    "matrix:",
    "msteams:",
    "sgnl:",
    "sip:",
    "sips:",
    "skype:",
    "slack:",
    "sms:",
    "smsto:",
    "tel:",
    "tg:",
    "viber:",
    "whatsapp:",
    "xmpp:",
];

/// Schemes without slashes whose addresses are programs or pages by themselves, or ask somebody for a name.
const PROGRAMS: [&str; 6] = ["dns:", "blob:", "jar:", "javascript:", "vbscript:", "view-source:"];
/// How an address of `data:` goes on, which is a word in prose as well.
const DATA: [&str; 7] = [",", ";", "application/", "audio/", "image/", "text/", "video/"];

/// The addresses in a text by which a program that opens them writes to somebody, calls them, or runs what stands in them.
pub(crate) fn letters_in(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let read = without_braces(text);
    for word in text.split(|c: char| c != '\\' && ends_an_address(c)).chain(read.split(ends_an_address)) {
        let folded = without_breaks(&folded(word)).to_ascii_lowercase();
        let is_there = |scheme: &str| {
            folded.match_indices(scheme).any(|(at, _)| {
                let is_scheme = !folded[..at].ends_with(|c: char| c.is_ascii_alphanumeric());
                is_scheme && begins_a_letter(&folded[at..])
            })
        };
        let is_letter = LETTERS.iter().chain(&PROGRAMS).chain(&["data:"]).any(|scheme| is_there(scheme));
        if is_letter || is_remote_path(&folded) {
            found.push(without_end_of_sentence(word).to_owned());
        }
    }
    // A reader of addresses leaves tabs and ends of lines out. In prose a line may end anywhere, so it counts where a value stands: in quotation
    // marks, and in a text that is nothing else.
    let is_one = !without_breaks(text.trim()).contains(char::is_whitespace);
    if is_one && begins_broken(text.trim(), begins_a_letter) {
        found.push(text.trim().to_owned());
    }
    each_quoted(text, &mut |value| {
        // With a space behind it no word of the text shows it.
        let beginning: String = without_surroundings(value).chars().take(500).collect();
        if begins_a_letter(&folded(&beginning).to_ascii_lowercase()) || begins_broken(value, begins_a_letter) {
            found.push(value.to_owned());
        }
    });
    found
}

/// `git@example.org:a/b`: what Git, `scp` and `rsync` take for a path of another machine, in the usual spelling.
fn is_remote_path(word: &str) -> bool {
    let Some((user, rest)) = word.split_once('@') else { return false };
    let Some((host, path)) = rest.split_once(':') else { return false };
    let is_user = !user.is_empty() && user.chars().all(|c| c.is_alphanumeric() || "._-".contains(c));
    // `ana@example.org:` ends a sentence, `root@10.0.0.1:22` is an address with a port.
    is_user && looks_like_host(host) && !host.contains(['/', '?', '#']) && path.contains(|c: char| c.is_alphanumeric())
}

/// Whether a text in the usual spelling and small letters begins by a scheme of [`LETTERS`], of [`PROGRAMS`] or that of `data:`, with something
/// behind it. A program may begin with a space, what stands behind `Tel: ` is a word.
fn begins_a_letter(text: &str) -> bool {
    let behind = |schemes: &[&str]| schemes.iter().find_map(|scheme| text.strip_prefix(*scheme));
    let is_data = |rest: &str| DATA.iter().any(|beginning| rest.starts_with(beginning));
    behind(&LETTERS).is_some_and(|rest| rest.starts_with(|c: char| !c.is_whitespace()))
        || behind(&PROGRAMS).is_some_and(|rest| !rest.trim_start().is_empty())
        || text.strip_prefix("data:").is_some_and(is_data)
}

/// `file:///…`: a file of this machine, and not one of another (`file:////host/…`).
pub(crate) fn is_file_of_this_machine(text: &str) -> bool {
    let lower = text.to_ascii_lowercase();
    lower.strip_prefix("file:///").is_some_and(|path| !path.starts_with(['/', '\\']))
}

/// Where an effect that is given `arguments` may go besides its recipients: addresses of pages, of mail, numbers to call and whatever has
/// an `@`. Words for people are left out.
#[derive(Debug, Default)]
pub(crate) struct Destinations {
    pub(crate) pages: Vec<String>,
    pub(crate) mail: Vec<MailAddress>,
    /// What is none of these, and not clear: a handle, a number, an address of mail in another spelling.
    pub(crate) others: Vec<String>,
    /// Whose place something is done in, or which.
    pub(crate) places: Vec<String>,
    /// Hosts of addresses of which the name of their argument, or what stands there, says that it goes there. Words for people say nothing of it.
    pub(crate) hosts: Vec<String>,
}

impl Destinations {
    pub(crate) fn of(arguments: &Value) -> Self {
        let mut all = Self::default();
        each_leaf(arguments, &mut |leaf| all.add(leaf));
        all
    }

    fn add(&mut self, leaf: &Leaf<'_>) {
        let text = leaf.text.trim();
        // A title of several lines is no title: what follows may be taken for the head of a mail.
        let is_head = leaf.is_title && text.contains(['\r', '\n']) && begins_a_header(text);
        if text.is_empty() || leaf.is_reference || (leaf.is_words && !is_head) {
            return;
        }
        if let Some(address) = MailAddress::parse(text).ok().filter(|_| is_one_mail_address(text)) {
            self.mail.push(address);
            return;
        }
        // One that is known does not speak for the others beside it.
        if leaf.is_recipient && !begins_an_address(text) {
            for part in split(text) {
                match MailAddress::parse(&part) {
                    Ok(address) if is_one_mail_address(&part) => self.mail.push(address),
                    // What somebody calls themselves may be another address.
                    Ok(_) if MailAddress::all_in(&part).len() == folded(&part).matches('@').count() => {
                        self.mail.extend(MailAddress::all_in(&part));
                    }
                    Ok(_) | Err(_) => self.others.push(part),
                }
            }
            return;
        }
        let pages = addresses_in(leaf.text, leaf.sound);
        if leaf.sound > Sound::Other || begins_an_address(text) {
            self.hosts.extend(pages.iter().filter_map(|page| hosts_in(page).pop()));
        }
        if leaf.is_place && pages.is_empty() {
            self.places.push(text.to_owned());
        }
        let mut rest = leaf.text.to_owned();
        for page in &pages {
            rest = rest.replacen(page.as_str(), " ", 1);
        }
        self.pages.extend(pages);
        let mail = MailAddress::all_in(&rest);
        let usual = folded(&rest);
        if mail.len() < usual.matches('@').count()
            || (leaf.is_phone && has_digits(&usual, 5))
            || (leaf.is_number && has_digits(&usual, 7) && !usual.contains(char::is_alphabetic))
            || is_number(&usual)
            || !letters_in(&rest).is_empty()
        {
            self.others.push(text.to_owned());
        }
        self.mail.extend(mail);
    }
}

/// The hosts of every address with a scheme in a text.
pub(crate) fn hosts_in(text: &str) -> Vec<String> {
    let mut hosts = Vec::new();
    for scheme in ["https://", "http://", "wss://", "ws://", "ftp://"] {
        hosts.extend(text.to_lowercase().split(scheme).skip(1).map(|rest| {
            let authority = rest.split(['/', '?', '#', ' ', '"', '\'', '<', '>', ')', '\n', '\t']).next();
            let host = authority.unwrap_or_default().rsplit('@').next().unwrap_or_default();
            // Behind a backslash another host may stand, which some take and others do not.
            let is_odd = authority.unwrap_or_default().contains('\\');
            if is_odd { String::new() } else { host.split(':').next().unwrap_or_default().to_owned() }
        }));
    }
    hosts
}

/// Whether a line behind the first begins as one in the head of a mail does that says who gets it.
fn begins_a_header(text: &str) -> bool {
    const HEADERS: [&str; 7] =
        ["bcc:", "cc:", "reply-to:", "resent-", "return-path:", "to:", "disposition-notification-to:"];
    let mut lines = text.split(['\r', '\n']).skip(1);
    lines.any(|line| HEADERS.iter().any(|header| line.trim_start().to_ascii_lowercase().starts_with(header)))
}

/// Whether all of a text is one address, in the usual characters.
fn is_one_mail_address(text: &str) -> bool {
    text.matches('@').count() == 1 && folded(text).matches('@').count() == 1
}

fn has_digits(text: &str, least: usize) -> bool {
    text.chars().filter(char::is_ascii_digit).count() >= least
}

/// `+49 30 1234`: a number to call, by the sign that begins one, also behind a scheme (`whatsapp:+49…`).
fn is_number(text: &str) -> bool {
    let is_scheme = |scheme: &str| !scheme.is_empty() && scheme.chars().all(|c| c.is_ascii_alphanumeric());
    let text = text.split_once(':').filter(|(scheme, _)| is_scheme(scheme)).map_or(text, |(_, rest)| rest).trim();
    text.starts_with('+') && has_digits(text, 6) && text.chars().all(|c| c.is_ascii_digit() || " +()-./".contains(c))
}

/// A text as a reader of addresses may take it: percent signs resolved, the usual forms of full-width characters, dots, colons and slashes
/// that only look like these, backslashes as slashes, and nothing that nobody sees.
pub(crate) fn folded(text: &str) -> String {
    let text = unescaped(&percent_decoded(&percent_decoded(text)));
    let usual = |c: char| match narrow(c) {
        '。' | '｡' | '․' | '﹒' | '・' => '.',
        '∶' | '﹕' | '︰' | '꞉' | 'ː' => ':',
        '⁄' | '∕' | '⧸' | '╱' | '\\' | '﹨' | '⧵' => '/',
        '﹫' => '@',
        '﹖' => '?',
        c => c,
    };
    text.chars().filter(|c| !is_unseen(*c)).map(usual).collect()
}

/// A text with the escapes read in which markup and programs write a colon, a slash, a dot, an `@`, quotation marks, or what a reader leaves out:
/// `&#58;`, `&#x2f;`, `&colon;`, `&Tab;`, `\u003a`, `\x3a`, `\u{3a}`, `\072`. Others stay: no address begins by them.
pub(crate) fn unescaped(text: &str) -> String {
    const NAMED: [(&str, char); 9] = [
        ("colon;", ':'),
        ("sol;", '/'),
        ("bsol;", '\\'),
        ("period;", '.'),
        ("commat;", '@'),
        ("quot;", '"'),
        ("apos;", '\''),
        ("Tab;", '\t'),
        ("NewLine;", '\n'),
    ];
    let mut read = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(['&', '\\']) {
        let (before, escape) = rest.split_at(at);
        read.push_str(before);
        let body = &escape[1..];
        let is_entity = escape.starts_with('&');
        let named = NAMED.iter().filter(|_| is_entity).find_map(|(name, c)| Some((*c, body.strip_prefix(name)?)));
        let (c, after) =
            named.or_else(|| numbered(is_entity, body)).unwrap_or((if is_entity { '&' } else { '\\' }, body));
        read.push(c);
        rest = after;
    }
    read.push_str(rest);
    read
}

/// A text with its escapes read, where a part of them stands in braces (`\u{3a}`), which end an address else; nothing of one without.
pub(crate) fn without_braces(text: &str) -> String {
    if text.contains("\\u{") { unescaped(text) } else { String::new() }
}

/// The character of ASCII that an escape has by its number, and what stands behind it.
fn numbered(is_entity: bool, body: &str) -> Option<(char, &str)> {
    let octal = body.bytes().take(3).take_while(|byte| matches!(byte, b'0'..=b'7')).count();
    if !is_entity && octal >= 2 {
        let code = u32::from_str_radix(&body[..octal], 8).ok()?;
        return Some((char::from_u32(code).filter(char::is_ascii)?, &body[octal..]));
    }
    let (digits, radix) = if is_entity {
        let body = body.strip_prefix('#')?;
        body.strip_prefix(['x', 'X']).map_or((body, 10), |hex| (hex, 16))
    } else {
        (body.strip_prefix("u{").or_else(|| body.strip_prefix(['u', 'x', 'U']))?, 16)
    };
    let most = if is_entity || body.starts_with("u{") || body.starts_with('U') {
        8
    } else if body.starts_with('x') {
        2
    } else {
        4
    };
    let end = digits.find(|c: char| !c.is_digit(radix)).unwrap_or(digits.len()).min(most);
    let code = u32::from_str_radix(&digits[..end], radix).ok()?;
    let after = &digits[end..];
    let after = after.strip_prefix(if is_entity { ';' } else { '}' }).unwrap_or(after);
    Some((char::from_u32(code).filter(char::is_ascii)?, after))
}

/// An address in prose without what ends a sentence or a bracket behind it. Two signs at most: more of them are no punctuation, but a number.
pub(crate) fn without_end_of_sentence(word: &str) -> &str {
    let one_less = |word| str::strip_suffix(word, follows_in_prose);
    one_less(word).map_or(word, |cut| one_less(cut).unwrap_or(cut))
}

/// A text with its percent signs read, as far as they can be.
pub(crate) fn percent_decoded(text: &str) -> String {
    let (bytes, mut read, mut at) = (text.as_bytes(), Vec::new(), 0);
    while let Some(byte) = bytes.get(at) {
        let digits = bytes.get(at + 1..at + 3).filter(|_| *byte == b'%').and_then(|two| std::str::from_utf8(two).ok());
        if let Some(decoded) = digits.and_then(|two| u8::from_str_radix(two, 16).ok()) {
            read.push(decoded);
            at += 3;
        } else {
            read.push(*byte);
            at += 1;
        }
    }
    String::from_utf8_lossy(&read).into_owned()
}

/// A text without what stands around it that a reader of addresses may leave out.
pub(crate) fn without_surroundings(text: &str) -> &str {
    text.trim_matches(|c: char| c.is_whitespace() || is_unseen(c))
}

pub(crate) fn ends_an_address(c: char) -> bool {
    c.is_whitespace() || c.is_control() || matches!(c, '"' | '\'' | '<' | '>' | '`' | '{' | '}' | '|' | '\\' | '^')
}

pub(crate) fn follows_in_prose(c: char) -> bool {
    matches!(c, '.' | ',' | ';' | ':' | '!' | '?' | ')' | ']' | '*' | '_' | '~' | '”' | '’' | '»' | '…')
}

/// Where the scheme begins whose `://` is at `at`.
pub(crate) fn scheme_before(text: &str, at: usize) -> usize {
    let is_scheme = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.');
    at - text.as_bytes()[..at].iter().rev().take_while(|byte| is_scheme(byte)).count()
}

/// Schemes whose addresses fetchers take without slashes, and with backslashes.
pub(crate) const SPECIAL: [&str; 5] = ["http:", "https:", "ftp:", "ws:", "wss:"];

/// Whether a text is an address from its beginning. Fetchers take `https:` without slashes as well.
pub(crate) fn begins_an_address(text: &str) -> bool {
    let lower: String = text.chars().take(8).collect::<String>().to_ascii_lowercase();
    SPECIAL.iter().any(|scheme| lower.starts_with(scheme))
        || text.find("://").is_some_and(|at| at > 0 && scheme_before(text, at) == 0)
}

/// Whether a text is an address without a scheme, or with one and no slashes (`view-source:example.org`).
pub(crate) fn looks_like_address(text: &str) -> bool {
    let text = text.trim_start_matches(['/', '\\']);
    let within = text.split_once(':').filter(|(scheme, _)| scheme_before(scheme, scheme.len()) == 0);
    looks_like_host(text)
        || text.strip_prefix('[').is_some_and(|rest| rest.split_once(']').is_some_and(|(host, _)| host.contains(':')))
        || is_host_number(host_of(text))
        || within.is_some_and(|(_, rest)| {
            let rest = rest.trim_start_matches(['/', '\\']);
            looks_like_host(rest) || rest.starts_with('[') || is_host_number(host_of(rest))
        })
}

/// Whether a text can hardly be anything but an address without a scheme: one word that is a name of a host, with a path or without one, a host
/// with a port, or the number of one. Not what is called as a file is, nor a version.
pub(crate) fn is_plainly_an_address(text: &str) -> bool {
    let text = text.trim_start_matches(['/', '\\']);
    if text.contains(char::is_whitespace) {
        return false;
    }
    let authority = text.split(['/', '?', '#', '\\']).next().unwrap_or_default();
    let has_more = authority.len() < text.len();
    let host = authority.rsplit('@').next().unwrap_or_default();
    let (name, port) = host.rsplit_once(':').map_or((host, ""), |(name, port)| (name, port));
    let is_port = (1..=5).contains(&port.len()) && port.bytes().all(|byte| byte.is_ascii_digit());
    let is_label = |label: &str| !label.is_empty() && label.chars().all(|c| c.is_alphanumeric() || "-_".contains(c));
    // `redis:7` is the version of something.
    let is_usual = port.parse::<u32>().is_ok_and(|port| port >= 80) || name.contains('.');
    if is_port && is_usual && name.split('.').all(is_label) && name.contains(char::is_alphabetic) {
        return true;
    }
    if authority.starts_with('[') {
        return looks_like_address(text);
    }
    let ending = host_of(text).rsplit('.').next().unwrap_or_default().to_ascii_lowercase();
    let is_numbers = host_of(text).split('.').all(|part| part.parse::<u8>().is_ok());
    let is_one_name = host_of(text).matches('.').count() == 1 && FILES_AND_DOMAINS.contains(&ending.as_str());
    let is_file = (FILES.contains(&ending.as_str()) || is_one_name) && !has_more && !is_port;
    // `1.2` is a version, `10.0.0.1` a host, and so is either with a port or a path; `v1.2` is none anywhere.
    let is_short = !has_more && !is_port && host_of(text).matches('.').count() != 3;
    let is_version = ending.parse::<u8>().is_ok() && (!is_numbers || is_short);
    looks_like_host(text) && !is_file && !is_version
}

/// A host as one number: `3232235521`, `0xc0a80001`, `030052000001`.
fn is_host_number(host: &str) -> bool {
    let is_hex =
        |digits: &str| !digits.is_empty() && digits.len() <= 8 && digits.bytes().all(|b| b.is_ascii_hexdigit());
    let is_long = host.len() >= 8 && host.len() <= 12 && host.bytes().all(|byte| byte.is_ascii_digit());
    is_long || host.strip_prefix("0x").or_else(|| host.strip_prefix("0X")).is_some_and(is_hex)
}

/// `example.org`, `example.org/a`, `10.0.0.1:80/x`: a name with a dot in it, or of this machine.
pub(crate) fn looks_like_host(text: &str) -> bool {
    let host = host_of(text);
    let is_name = |part: &str| !part.is_empty() && part.chars().all(|c| c.is_alphanumeric() || c == '-' || c == '_');
    let has_ending = host.rsplit('.').next().is_some_and(|ending| {
        (ending.chars().count() > 1 && ending.chars().all(char::is_alphabetic)) || ending.parse::<u8>().is_ok()
    });
    host == "localhost" || (host.contains('.') && host.split('.').all(is_name) && has_ending)
}

/// The host of an address without a scheme.
pub(crate) fn host_of(text: &str) -> &str {
    let authority = text.split(['/', '?', '#', '\\']).next().unwrap_or_default();
    let host = authority.rsplit('@').next().unwrap_or_default();
    host.split(':').next().unwrap_or_default()
}

/// Whether every program reads the same host off an address: no backslash, nothing unseen, no character that becomes another one.
pub(crate) fn is_plain(address: &str) -> bool {
    let authority = address.split_once("://").map_or(address, |(_, rest)| rest).split(['/', '?', '#']).next();
    let is_odd = |c: char| c == '\\' || is_unseen(c) || matches!(c, '\t' | '\r' | '\n');
    !address.contains(is_odd) && authority.is_some_and(|authority| folded(authority) == authority)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn asked(arguments: &Value) -> Vec<String> {
        let mut found = Vec::new();
        each_leaf(arguments, &mut |leaf| found.extend(addresses_in(leaf.text, leaf.sound)));
        found
    }

    #[test]
    fn s1_a_list_of_numbers_is_an_address_where_one_is_expected() {
        let spelled = |text: &str| Value::from(text.chars().map(u32::from).collect::<Vec<u32>>());
        let evil = spelled("https://evil.example/?d=1");
        for arguments in [
            json!({"url": [1, 2, 3, 4]}),
            json!({"url": [127.0, 0.0, 0.0, 1.0]}),
            json!({"endpoint": [[10, 0, 0, 1]]}),
            json!({"callback": {"value": [8193, 3512, 0, 0, 0, 0, 0, 1]}}),
            json!({"imageUrl": evil}),
            json!({"site": evil}),
            json!({"location": spelled("evil.example")}),
        ] {
            assert!(!asked(&arguments).is_empty(), "{arguments}");
        }
        assert_eq!(asked(&json!({"url": [1, 2, 3, 4]})), ["1.2.3.4"]);
        assert!(asked(&json!({"site": evil})).contains(&"https://evil.example/?d=1".to_owned()));
        for arguments in [
            json!({"pages": [1, 2, 3, 4]}),
            json!({"location": [52.52, 13.4]}),
            json!({"ids": [1, 2, 3, 4]}),
            json!({"url": []}),
        ] {
            assert_eq!(asked(&arguments), [""; 0], "{arguments}");
        }
    }

    #[test]
    fn hosts_are_told_from_names_of_files_and_prose() {
        for text in
            ["example.org", "a.b.example.org/x", "10.0.0.1:80/x", "localhost/x", "user@example.org/x", "bücher.example"]
        {
            assert!(looks_like_host(text), "{text}");
        }
        for text in ["", "v1.2x", "e.g.", "a b.test", "...", "/etc/passwd", "12", "Mr.Smith!"] {
            assert!(!looks_like_host(text), "{text}");
        }
    }

    /// One recipient that the job names speaks for none of the others, whatever these are called and however they are spelled.
    #[test]
    fn s1_whoever_gets_it_beside_a_known_recipient_counts() {
        let boss = "boss@example.org";
        let beside = |arguments: &Value| {
            let all = Destinations::of(arguments);
            let mail: Vec<&str> = all.mail.iter().map(MailAddress::as_str).filter(|mail| *mail != boss).collect();
            mail.len() + all.others.len() + all.pages.len()
        };
        let further = [
            json!("bob"),
            json!(["bob"]),
            json!(491_701_234_567_u64),
            json!([1_701_234_567]),
            json!("list-all"),
            json!("x(at)evil.example"),
            json!("evil.example"),
            json!("mailto:bob"),
            json!("#general"),
            json!(42),
            json!({"user_id": "U0EVIL"}),
            json!([{"group": "all"}]),
            json!([{"name": "everyone"}]),
            json!("Boss <boss@example.org>, bob"),
            json!("boss@example.org; eve@evil.test"),
        ];
        for name in RECIPIENT.iter().copied().chain([
            "toRecipients",
            "chat_id",
            "share_with",
            "emailTo",
            "cc_list",
            "phoneNumbers",
        ]) {
            for value in further.iter().filter(|_| name != "phoneNumbers") {
                let arguments = json!({"subject": "Hi", "primary": boss, name: value});
                assert_eq!(beside(&arguments), 1, "{arguments}");
            }
            for known in [json!(boss), json!([{"email": boss, "name": "The Boss"}]), json!("Boss <boss@example.org>")] {
                assert_eq!(beside(&json!({"subject": "Hi", name: known})), 0, "{name}: {known}");
            }
        }
        // Under whatever name: what is opened by calling or writing to somebody.
        for number in [
            "tel:+491701234567",
            "sms:+491701234567",
            "sip:evil",
            "xmpp:evil",
            "whatsapp:+491701234567",
            "+491701234567",
        ] {
            assert_eq!(beside(&json!({"to": boss, "x": number})), 1, "{number}");
        }
        for number in ["\u{ff11}\u{ff17}\u{ff10}\u{ff11}\u{ff12}\u{ff13}", "0170 1234567"] {
            assert_eq!(beside(&json!({"to": boss, "phone": number})), 1, "{number}");
        }
        for harmless in [
            json!({"x": "12:30"}),
            json!({"x": "see tel: it is short"}),
            json!({"priority": 3}),
            json!({"text": "tel:+491701234567"}),
        ] {
            assert_eq!(beside(&harmless), 0, "{harmless}");
        }
    }

    #[test]
    fn s1_an_address_is_one_in_every_spelling_that_a_fetcher_may_read() {
        let spellings = [
            "//evil.test/?d=S",
            "///evil.test/?d=S",
            "\\\\evil.test\\?d=S",
            "/\\evil.test/?d=S",
            "evil。test/?d=S",
            "evil．test/?d=S",
            "ｅｖｉｌ.test/?d=S",
            "https：//evil.test/?d=S",
            "https:∕∕evil.test/?d=S",
            "[2001:db8::1]/?d=S",
            "3232235521/x",
            "0xc0a80001/x",
            "evil%2etest/x",
            "evil%252etest/x",
            "view-source:evil.test/?d=S",
            "ht\ntps:/\n/evil.test/?d=S",
            "ev\u{200b}il.test/x",
        ];
        for spelled in spellings {
            for name in [
                "url",
                "target_url",
                "imageUrl",
                "href",
                "link",
                "endpoint",
                "uri",
                "src",
                "target",
                "webhook",
                "site",
                "host",
            ] {
                assert_eq!(asked(&json!({ name: spelled })), [spelled], "{name}");
                assert_eq!(asked(&json!({ name: [{"value": spelled}] })), [spelled], "{name}, inside");
            }
        }
        // Under a name that is one, whatever stands there; under other names what nobody takes for anything else.
        assert_eq!(asked(&json!({"url": "evil", "uri": 3_232_235_521_u64})).len(), 2);
        for spelled in
            ["//evil.test/?d=S", "https：//evil.test/?d=S", "https%3A%2F%2Fevil.test/?d=S", "http:\\\\evil.test\\x"]
        {
            assert_eq!(asked(&json!({ "query": format!("see {spelled} now") })), [spelled]);
        }
        for text in [
            "![x](//evil.test/S)",
            "<img src=//evil.test/S>",
            "a { b: url(//evil.test/S) }",
            "[a]:\u{2044}/evil.test/S",
        ] {
            assert_eq!(asked(&json!({ "query": text })).len(), 1, "{text}");
        }
        let harmless = json!({"query": "// a comment, 1/2 a//b.rs and c:\\temp 50% off", "path": "notes/a.md", "page": "2", "site": "Berlin", "id": 3_232_235_521_u64});
        assert_eq!(asked(&harmless), [""; 0]);
    }

    #[test]
    fn s1_whatever_could_be_a_destination_counts_under_any_name() {
        let found = |arguments: Value| {
            let all = Destinations::of(&arguments);
            let mail = all.mail.iter().map(|one| one.as_str().to_owned());
            all.pages.into_iter().chain(mail).chain(all.others).collect::<Vec<_>>()
        };
        let evil = "evil@evil.test";
        for (name, value) in [
            ("extra_recipients", json!([evil])),
            ("forward_to", json!(evil)),
            ("attendees", json!([{"email": evil}])),
            ("personalizations", json!([{"to": [{"email": evil}]}])),
            ("headers", json!({"Bcc": evil})),
            ("headers", json!("Bcc: evil@evil.test")),
            ("to", json!({evil: "Bob"})),
            ("message", json!({"toRecipients": [{"emailAddress": {"address": evil}}]})),
            ("subject", json!("Hello\r\nBcc: evil@evil.test")),
            ("reply_to", json!("Team <evil@evil.test>")),
        ] {
            assert_eq!(found(json!({ name: value })), [evil], "{name} {value}");
        }
        for (name, value) in [
            ("webhook", "https://evil.test/?d=S"),
            ("webhook", "evil.test/?d=S"),
            ("attachments", "https://evil.test/?d=S"),
            ("attachments", "//evil.test/?d=S"),
            ("mentions", "@evil"),
            ("x", "evil＠evil.test"),
            ("sms", "030 123 456"),
            ("also", "+49 30 123456"),
        ] {
            assert_eq!(found(json!({ name: [value] })), [value], "{name}");
        }
        let words = json!({
            "subject": "ask evil@evil.test", "body": "https://evil.test\n+49 30 123456", "html": "<a href='https://x.test'>@me</a>",
            "content": [{"type": "text/plain", "value": "mail evil@evil.test"}], "attachments": ["report.pdf"], "date": "2026-11-26",
            "in_reply_to": "<1@mail.test>", "count": 123_456_789,
        });
        assert_eq!(found(words), [""; 0]);
        assert_eq!(
            found(json!({"to": "Team <team@example.test>, boss@example.test"})),
            ["team@example.test", "boss@example.test"]
        );
        assert_eq!(found(json!({"to": "\"evil@evil.test\" <team@example.test>"})), [evil, "team@example.test"]);
    }

    #[test]
    fn s1_an_address_in_escapes_and_one_that_is_a_program_are_found_in_any_text() {
        for text in [
            "https&#58;&#47;&#47;evil.example/S",
            "https&#x3a;&#x2f;&#X2F;evil.example/S",
            "https&colon;&sol;&sol;evil.example/S",
            "https\\u003a\\u002f\\u002fevil.example/S",
            "https\\x3a\\x2f\\x2fevil.example/S",
            "https\\u{3a}\\u{2f}\\u{2f}evil.example/S",
            "https\\072\\057\\057evil.example/S",
            "skype:evil?chat",
            "whatsapp:send?text=S",
            "facetime:+49301",
            "matrix\\u{3a}u/evil:evil.example",
            "javascript:fetch(evil.example)",
            "JavaScript&#58;fetch(evil.example)",
            "data:text/html,<img src=//evil.example/S>",
            "dns:SECRET.evil.example",
            "view-source:evil.example/S",
        ] {
            let found = [addresses_in(text, Sound::Other), letters_in(text)].concat();
            assert!(!found.is_empty(), "{text}");
        }
        for text in [
            "data: 12 rows",
            "metadata:text",
            "what is javascript: a language",
            "R&D; a\\b",
            "AT&T &amp; others",
            "site:example",
        ] {
            let found = [addresses_in(text, Sound::Other), letters_in(text)].concat();
            assert!(found.is_empty(), "{text}: {found:?}");
        }
    }

    /// Every reading of a text in which a browser takes tabs and ends of lines out, and prose in which it does not.
    #[test]
    fn s1_a_scheme_with_a_break_in_it_is_found_in_quotation_marks() {
        let found = |text: &str| [addresses_in(text, Sound::Other), letters_in(text)].concat();
        let schemes: Vec<&str> =
            LETTERS.iter().chain(&PROGRAMS).copied().chain(["data:text/html,", "https://", "http:"]).collect();
        for scheme in schemes {
            for at in 1..=scheme.find(':').unwrap() + 1 {
                for broken in ["\t", "\n", "\r\n", "\t\n\t", "&Tab;", "&#10;", "&#x9;", "\\t", "\\u0009", "\\x0a"] {
                    let spelled = format!("{}{broken}{}", &scheme[..at], &scheme[at..]);
                    for place in [
                        "<a href=\"{}m@evil.example/S\">",
                        "<a href = '{}m@evil.example/S'>",
                        "<form action=\" {}m@evil.example/S\">",
                        "<p style=\"background: url({}m@evil.example/S)\">",
                        "<meta http-equiv=refresh content=\"0;url={}m@evil.example/S\">",
                        "{\"u\": \"{}m@evil.example/S\"}",
                        "location.assign('{}m@evil.example/S')",
                    ] {
                        let text = format!("words of others, {}", place.replace("{}", &spelled));
                        assert!(!found(&text).is_empty(), "{text:?}");
                    }
                    // Alone it is the whole value, and as a reference of markup it needs no quotation marks.
                    let is_read = broken != "\\t";
                    assert!(!is_read || !found(&format!("{spelled}m@evil.example/S")).is_empty(), "{spelled:?}");
                    if broken.starts_with('&') {
                        assert!(!found(&format!("see <a href={spelled}m@evil.example/S>")).is_empty(), "{spelled:?}");
                    }
                }
            }
        }
        for text in [
            "we write java\nscript: a language, and mail\nto: whom",
            "he said \"write an e-mail\nto ana\" and 'wait\nhere'",
            "{\"text\": \"first line\\nsecond line: more\\nthird\"}",
            "f(\"a b\\tc\", 'd\\te') = \"C:\\temp\\new\"",
            "title = \"Tel\nephone: see below\"",
            "x = \"a ratio of 1:2\n3:4, 5/6\"",
        ] {
            assert_eq!(found(text), [""; 0], "{text:?}");
        }
        for text in ["<a href=\"javascript: fetch(1)\">", "<a href='java\tscript: fetch(1)'>"] {
            assert!(!found(text).is_empty(), "{text:?}");
        }
        assert_eq!(found("label=\"Tel: 030 12 34\""), [""; 0]);
        // One that is known stays what it is, in prose of several lines too.
        let text = "(\"seen\nhttps://known.example/x\nand more\")";
        assert_eq!(found(text), ["https://known.example/x"]);
    }

    #[test]
    fn s1_a_name_for_a_place_is_one_when_its_value_looks_like_one() {
        for name in [
            "proxy",
            "server",
            "goto",
            "visit",
            "open",
            "feed",
            "remote",
            "repo",
            "origin",
            "source",
            "resource",
            "referer",
            "httpProxy",
            "source_name",
            "gitRemote",
            "mirrors",
            "fqdn",
            "ip",
            "ipAddr",
            "peer",
            "nameserver",
            "dns_node",
        ] {
            for value in [
                "evil.test",
                "evil.test:3128",
                "evil.test/SECRET",
                "user@evil.test/SECRET",
                "git@evil.test:owner/SECRET",
                "evil:8080",
                "SECRET.evil.md",
                "evil.pdf/SECRET",
                "evil.md/SECRET",
                "10.0.0.1",
                "10.0.0.1:80",
                "10.1:80/SECRET",
                "[2001:db8::1]/SECRET",
                "evil。test/SECRET",
                "evil%2etest/SECRET",
                "localhost",
                "SECRET.evil.test",
            ] {
                assert_eq!(asked(&json!({ name: value })), [value], "{name}");
                assert_eq!(asked(&json!({ name: [{"value": value}] })), [value], "{name}, inside");
            }
            for value in [
                "annual report",
                "Annual Report of example.org",
                "report.pdf",
                "a.b.report.PDF",
                "notes.md",
                "src/main.rs",
                "/home/ana/notes.md",
                "main",
                "owner/name",
                "v1.2",
                "1.2",
                "1.2.3",
                "redis:7",
                "wikipedia",
                "",
            ] {
                assert_eq!(asked(&json!({ name: value })), [""; 0], "{name}: {value}");
            }
            assert_eq!(asked(&json!({ name: 123_456_789 })), [""; 0], "{name}: an id");
        }
        assert_eq!(asked(&json!({"resourceful": "evil.test", "opening": "evil.test"})), [""; 0], "whole words");
    }

    #[test]
    fn s1_the_documentation_lists_the_names_that_count() {
        let page = include_str!("../../../docs/security.md");
        let start = page.find("Which names of arguments sound like an address").unwrap();
        let listed: std::collections::BTreeSet<&str> =
            page[start..].split("\n\n").next().unwrap().split('`').skip(1).step_by(2).collect();
        for name in ADDRESS.iter().chain(&ADDRESS_ENDINGS).chain(&PERHAPS).chain(&MAYBE) {
            assert!(listed.contains(name), "{name}");
        }
    }

    #[test]
    fn an_address_whose_host_is_read_in_two_ways_is_not_plain() {
        for address in
            ["https://example.org/a?b", "example.org", "https://bücher.example/x%20y", "https://a@example.org:1/"]
        {
            assert!(is_plain(address), "{address}");
        }
        for address in [
            "https://example.org\\@evil.test/",
            "https://example.org／@evil.test",
            "https://exa\tmple.org",
            "https://example.org%2f@evil.test",
        ] {
            assert!(!is_plain(address), "{address}");
        }
    }
}
