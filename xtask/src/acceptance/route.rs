//! The ways on which the research job's effects leave the machine, and what each of them promises.

use ua_testkit::OPAQUE_TOOL;

use crate::serve::Kind;

/// What the job does outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Effect {
    Upload,
    Mail,
    Notification,
    /// A comment through a foreign tool that takes no key and cannot be asked afterwards.
    Comment,
}

impl Effect {
    pub(super) const ALL: [Self; 4] = [Self::Upload, Self::Mail, Self::Notification, Self::Comment];

    /// The tool that has it.
    pub(super) fn tool(self) -> &'static str {
        match self {
            Self::Upload => "upload",
            Self::Mail => "send_email",
            Self::Notification => "notify",
            Self::Comment => OPAQUE_TOOL,
        }
    }

    /// Its name in the table.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Upload => "the upload",
            Self::Mail => "the e-mail",
            Self::Notification => "the notification",
            Self::Comment => "the comment",
        }
    }

    pub(super) fn of_tool(tool: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|effect| effect.tool() == tool)
    }
}

/// One set of transports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Route {
    /// The defaults: a Maildir and folders; besides, one foreign tool that keeps no promise.
    Folders,
    /// SMTP with a page to ask afterwards, S3, a webhook that honours keys.
    ProbedSmtp,
    /// A mail API with `Idempotency-Key`, S3, a webhook that honours keys.
    MailApi,
    /// SMTP with nobody to ask, S3, a webhook that ignores keys.
    BareSmtp,
}

impl Route {
    pub(super) const ALL: [Self; 4] = [Self::Folders, Self::ProbedSmtp, Self::MailApi, Self::BareSmtp];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Folders => "folders",
            Self::ProbedSmtp => "SMTP with probe",
            Self::MailApi => "mail API",
            Self::BareSmtp => "plain SMTP",
        }
    }

    /// What it is made of and what is expected of it, in a sentence for the page.
    pub(super) fn describe(self) -> &'static str {
        match self {
            Self::Folders => {
                "A Maildir, a folder of objects, a folder of notifications: the defaults. Each takes the key, so nobody is asked. \
                 Besides, the job posts one comment through a foreign tool server that takes no key and cannot be asked afterwards: \
                 a kill between its intent and its receipt makes the run wait for a person."
            }
            Self::ProbedSmtp => {
                "An SMTP server with a page that knows each Message-ID (`UA_MAIL_PROBE`), an S3-compatible store, a webhook that honours \
                 keys. Everything is completed exactly once, and nobody is asked."
            }
            Self::MailApi => {
                "A mail API that honours `Idempotency-Key`, an S3-compatible store, a webhook that honours keys. Everything is completed \
                 exactly once, and nobody is asked."
            }
            Self::BareSmtp => {
                "An SMTP server that nobody can ask, an S3-compatible store, a webhook that ignores keys. A kill while a message or a \
                 notification is on its way leaves 0 or 1 of it and a run that waits (exit code 75). Told the truth with \
                 `ua calls resolve`, it ends with exactly 1."
            }
        }
    }

    /// The effects that a job has on this route.
    pub(super) fn effects(self) -> &'static [Effect] {
        match self {
            Self::Folders => &Effect::ALL,
            Self::ProbedSmtp | Self::MailApi | Self::BareSmtp => &[Effect::Upload, Effect::Mail, Effect::Notification],
        }
    }

    /// Whether a person has to say what became of an effect that was lost on its way.
    pub(super) fn asks_about(self, effect: Effect) -> bool {
        match self {
            Self::Folders => effect == Effect::Comment,
            Self::ProbedSmtp | Self::MailApi => false,
            Self::BareSmtp => matches!(effect, Effect::Mail | Effect::Notification),
        }
    }

    /// The server that takes an effect; `None` when that is a folder or a tool server.
    pub(super) fn server(self, effect: Effect) -> Option<Kind> {
        match (self, effect) {
            (Self::Folders, _) | (_, Effect::Comment) => None,
            (_, Effect::Upload) => Some(Kind::S3),
            (Self::MailApi, Effect::Mail) => Some(Kind::MailApi),
            (Self::ProbedSmtp | Self::BareSmtp, Effect::Mail) => Some(Kind::Smtp),
            (_, Effect::Notification) => Some(Kind::Webhook),
        }
    }
}
