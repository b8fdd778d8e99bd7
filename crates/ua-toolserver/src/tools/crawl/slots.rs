//! How many requests are under way at once, all in all and per host, and how far apart a host wants them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use ua_core::{Env, Timestamp};

/// Requests, and pages being read, at once.
const AT_ONCE: usize = 8;
/// Requests at once to one host, whatever its ports.
const PER_HOST: usize = 2;
/// Hosts that are remembered before those that nobody uses are forgotten.
const REMEMBERED: usize = 1000;

/// The limits of one server; all its calls share them.
#[derive(Debug)]
pub(super) struct Slots {
    all: Arc<Semaphore>,
    hosts: Mutex<HashMap<String, Arc<Host>>>,
    env: Env,
}

#[derive(Debug)]
struct Host {
    slots: Arc<Semaphore>,
    /// When the last request that had to keep a distance began.
    last: tokio::sync::Mutex<Option<Timestamp>>,
}

/// The right to make one request; ends when dropped.
#[derive(Debug)]
pub(super) struct Slot {
    _host: Option<OwnedSemaphorePermit>,
    _all: Option<OwnedSemaphorePermit>,
}

impl Slots {
    pub(super) fn new(env: Env) -> Self {
        Self { all: Arc::new(Semaphore::new(AT_ONCE)), hosts: Mutex::default(), env }
    }

    /// Waits until `host` may be asked, `delay` after the last request to it that had one.
    pub(super) async fn take(&self, host: &str, delay: Option<Duration>) -> Slot {
        let host = self.host(host);
        // The semaphores are never closed. A slot of all is taken last, so that one slow host holds up no other.
        let of_host = Arc::clone(&host.slots).acquire_owned().await.ok();
        if let Some(delay) = delay {
            let mut last = host.last.lock().await;
            if let Some(last) = *last {
                self.env.clock.sleep(delay.saturating_sub(self.env.now().since(last))).await;
            }
            *last = Some(self.env.now());
        }
        Slot { _host: of_host, ..self.any().await }
    }

    /// Waits for a slot that belongs to no host.
    pub(super) async fn any(&self) -> Slot {
        Slot { _host: None, _all: Arc::clone(&self.all).acquire_owned().await.ok() }
    }

    fn host(&self, name: &str) -> Arc<Host> {
        let mut hosts = self.hosts.lock().unwrap_or_else(PoisonError::into_inner);
        if hosts.len() >= REMEMBERED {
            hosts.retain(|_, host| Arc::strong_count(host) > 1);
        }
        Arc::clone(hosts.entry(name.to_owned()).or_insert_with(|| {
            Arc::new(Host { slots: Arc::new(Semaphore::new(PER_HOST)), last: tokio::sync::Mutex::default() })
        }))
    }
}
