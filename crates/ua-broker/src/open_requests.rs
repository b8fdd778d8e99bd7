//! The requests of one client that have no answer yet: which one comes again, which one is meant, and who waits for it.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use serde_json::Value;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::batches;
use crate::era::{self, Era};
use crate::posted::Came;
use crate::sync::lock;

/// Requests under way, by the name under which they came.
#[derive(Debug, Default)]
pub(crate) struct OpenRequests(Mutex<HashMap<String, Open>>);

#[derive(Debug)]
struct Open {
    name: String,
    /// What the client calls it.
    id: Value,
    /// Of a tool call: the name under which it came first, and what it says. The same one that comes again before it is answered is no other.
    came_as: Option<(String, Arc<Value>)>,
    cancel: CancellationToken,
    /// Whether that is since the client said so, for another reason than that its time was up.
    is_given_up: Arc<AtomicBool>,
    /// Whether the client has its end of the line in hand. One whose line was cut may take it up again, and waits for nothing until then.
    listens: watch::Sender<bool>,
    /// What it is called at the tool server, if it was passed on as it is.
    relayed: Relayed,
    /// Under which token its client wants to hear how far it is.
    token: Value,
    /// Whether its client wants logs of it.
    wants_logs: bool,
    is_call: bool,
}

/// What a request is called at the tool server, once it was passed on.
pub(crate) type Relayed = Arc<Mutex<Option<u64>>>;

/// Who waits for a tool call.
pub(crate) struct Asker {
    /// The name under which its request came: of one that has a name, the one under which it came first.
    pub(crate) name: String,
    /// How it came.
    pub(crate) came: Came,
    /// Cancelled when the client wants no answer any more.
    pub(crate) cancel: CancellationToken,
    /// Whether the client has its end of the line in hand.
    pub(crate) listens: watch::Receiver<bool>,
    is_given_up: Arc<AtomicBool>,
}

impl Asker {
    /// Whether the client said that it wants no answer any more, and not that its time was up; one that was killed says nothing.
    pub(crate) fn is_given_up(&self) -> bool {
        self.is_given_up.load(Ordering::Relaxed)
    }
}

/// A request that was opened.
pub(crate) struct Opened {
    /// Who waits for it.
    pub(crate) asker: Asker,
    /// Where it is noted what it is called at the tool server.
    pub(crate) relayed: Relayed,
}

impl OpenRequests {
    /// A request that came under this name. One that has a name, and whose very call is open already, is that call.
    pub(crate) fn open(
        &self,
        name: &str,
        id: &Value,
        era: Era,
        params: &Arc<Value>,
        is_call: bool,
        came: Came,
    ) -> Opened {
        let mut all = lock(&self.0);
        // A client has no two requests of one name open; without sessions several clients share this, and know nothing of each other's names.
        let is_named = matches!(came, Came::Named { .. });
        let may_be_open = era == Era::Handshake && is_call && is_named;
        let again = all.values().filter(|open| may_be_open && open.id == *id).find_map(|open| {
            let (came_as, said) = open.came_as.as_ref()?;
            (said == params).then(|| came_as.clone())
        });
        let came = if again.is_some() { Came::Named { is_first: false } } else { came };
        let first = again.unwrap_or_else(|| name.to_owned());
        let open = Open {
            came_as: (is_call && is_named).then(|| (first.clone(), params.clone())),
            token: params["_meta"]["progressToken"].clone(),
            wants_logs: era == Era::Handshake || params["_meta"].get(era::LOG_LEVEL).is_some(),
            ..Open::of(name, id, is_call)
        };
        let opened = open.opened(first, came);
        all.insert(name.to_owned(), open);
        opened
    }

    /// A tool call that an earlier broker was asked for, by the name under which it came.
    pub(crate) fn open_again(&self, name: &str, id: &Value) -> Opened {
        let open = Open { wants_logs: true, ..Open::of(name, id, true) };
        let opened = open.opened(name.to_owned(), Came::Named { is_first: false });
        lock(&self.0).insert(name.to_owned(), open);
        opened
    }

    /// It has its answer.
    pub(crate) fn close(&self, name: &str) {
        lock(&self.0).remove(name);
    }

    /// The client does not want the answer to this request any more.
    pub(crate) fn let_go_of(&self, name: &str) {
        for open in lock(&self.0).values().filter(|open| batches::whole(&open.name) == name) {
            open.cancel.cancel();
        }
    }

    /// The same, where the client names it by its own id, and says why. What it is called at the tool server, if it was passed on.
    pub(crate) fn cancelled(&self, id: &Value, reason: &Value) -> Option<u64> {
        // Whose time was up may ask again, as one that says nothing.
        let reason = reason.as_str().unwrap_or_default().to_lowercase();
        let is_given_up = !["timed out", "timeout", "time-out"].iter().any(|said| reason.contains(said));
        let mut found = None;
        for open in lock(&self.0).values().filter(|open| open.id == *id) {
            open.is_given_up.store(is_given_up, Ordering::Relaxed);
            open.cancel.cancel();
            found = *lock(&open.relayed);
        }
        found
    }

    /// The client's line for the answer to this request was cut, or taken up again.
    pub(crate) fn listens(&self, name: &str, listens: bool) {
        for open in lock(&self.0).values().filter(|open| batches::whole(&open.name) == name) {
            open.listens.send_replace(listens);
        }
    }

    /// The one that came last; a tool call, if there is one.
    pub(crate) fn newest(&self) -> Option<String> {
        self.newest_of(|_| true)
    }

    fn newest_of(&self, of: impl Fn(&Open) -> bool) -> Option<String> {
        let open = lock(&self.0);
        let newest = open.values().filter(|open| of(open)).max_by_key(|open| (open.is_call, &open.name));
        newest.map(|open| open.name.clone())
    }

    /// Which one a message of the tool server is about.
    pub(crate) fn about(&self, message: &Value) -> Option<String> {
        match message["method"].as_str().unwrap_or_default() {
            "notifications/progress" => {
                let token = &message["params"]["progressToken"];
                self.newest_of(|open| open.token == *token && !token.is_null())
            }
            "notifications/message" => self.newest_of(|open| open.wants_logs),
            _ => self.newest(),
        }
    }
}

impl Open {
    fn of(name: &str, id: &Value, is_call: bool) -> Self {
        Self {
            name: name.to_owned(),
            id: id.clone(),
            came_as: None,
            listens: watch::Sender::new(true),
            cancel: CancellationToken::new(),
            is_given_up: Arc::default(),
            relayed: Arc::default(),
            token: Value::Null,
            wants_logs: false,
            is_call,
        }
    }

    fn opened(&self, name: String, came: Came) -> Opened {
        let (cancel, listens) = (self.cancel.clone(), self.listens.subscribe());
        let is_given_up = self.is_given_up.clone();
        Opened { asker: Asker { name, came, cancel, listens, is_given_up }, relayed: self.relayed.clone() }
    }
}
