//! The Maildir outbox, from which a mail program sends.
//!
//! A name in the outbox is never given twice: a message found in `new/` or `cur/` has been sent as far as this tool is
//! concerned. Blind copies stay in the message as a `Bcc` header, which the program that empties the outbox has to read
//! and remove, as `sendmail -t` does.

use std::io::Write;
use std::path::{Path, PathBuf};

use ua_core::{ShowPath as _, Timestamp};

use super::outgoing::{Bcc, OutgoingMail, Recipients, Sender, bytes};
use super::{Arguments, Receipt, message_id};
use crate::answer::Failure;
use crate::area::{Area, Created};
use crate::sent::Said;
use crate::workspace::Workspace;

const LOCK: &str = ".lock";

/// The directory with `tmp/`, `new/` and `cur/`; created when it is first written to.
#[derive(Debug)]
pub(super) struct Outbox {
    path: PathBuf,
}

impl Outbox {
    pub(super) fn new(path: &Path) -> std::io::Result<Self> {
        Ok(Self { path: std::path::absolute(path)? })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn send(
        &self,
        workspace: &Workspace,
        files: &Said,
        from: &Sender,
        given: Arguments,
        id: &str,
        now: Timestamp,
    ) -> Result<Receipt, Failure> {
        let people = Recipients::parse(&given)?;
        let recipients = people.addresses();
        let could_not =
            |error: &std::io::Error| Failure::io(format_args!("open the outbox {}", self.path.shown()), error);
        let area = Area::open_store(&self.path).map_err(|error| could_not(&error))?;
        for part in ["tmp", "new", "cur"] {
            area.create_dirs(Path::new(part)).map_err(|error| could_not(&error))?;
        }
        let _lock = area.lock(Path::new(LOCK)).map_err(|error| could_not(&error))?;
        // Looked up before anything can be refused: what was sent stays sent when an attachment is gone by now.
        let (path, already_sent) = if let Some(found) = find(&area, id).map_err(|error| could_not(&error))? {
            (found, true)
        } else {
            let letter = OutgoingMail::read(workspace, files, from, given, people, id.to_owned())?;
            let message = bytes(&letter.mime(Bcc::Kept, now)?)?;
            let target = Path::new("new").join(id);
            let (staged, ()) = area
                .stage(Path::new("tmp").join(id), |file| file.write_all(&message))
                .map_err(|error| error.into_failure(format_args!("write to the outbox {}", self.path.shown())))?;
            let created = staged
                .create(&target)
                .map_err(|error| error.into_failure(format_args!("deliver to the outbox {}", self.path.shown())))?;
            (target, created == Created::Before)
        };
        if already_sent {
            // Its writer may have died before it synced the directory or removed the temporary name.
            area.discard(&Path::new("tmp").join(id)).and_then(|()| area.sync(Path::new("new"))).map_err(|error| {
                Failure::Unclear(format!("could not sync the outbox {}: {error}", self.path.shown()))
            })?;
        }
        Ok(Receipt {
            message_id: message_id(id),
            path: Some(area.path().join(path).to_string_lossy().into_owned()),
            via: None,
            recipients,
            already_sent,
            provider_reference: None,
            evidence: None,
        })
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
