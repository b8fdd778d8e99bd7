//! What all tools have in common: the workspace, the settings while they are set up, and what a request says of a call.
//!
//! Nothing here knows a tool. Clients that several tools use (a crawler, a store, a memory) belong to one of them, which
//! asks [`Setup::shared`] for it: the first to ask makes it.

use std::any::{Any, TypeId};
use std::cell::RefCell;
use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use ua_core::Env;

use crate::answer::Failure;
use crate::error::ToolServerError;
use crate::place::{Holds, Place};
use crate::seal::Seals;
use crate::sent::Said;
use crate::settings::Settings;
use crate::workspace::Workspace;

/// What every call is given.
#[derive(Debug, Clone)]
pub(crate) struct Context {
    /// The only place that paths may be named in.
    pub(crate) workspace: Arc<Workspace>,
    /// Dates messages, and names effects that have no key.
    pub(crate) env: Env,
    /// Tells files that this server wrote from those that others did.
    pub(crate) seals: Arc<Seals>,
}

/// Under which key a call comes, how often it has been tried, and for which run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Order<'a> {
    pub(crate) key: Option<&'a str>,
    /// From 1. A later attempt was ordered by a person, or by a runner that was told that keys are honoured.
    pub(crate) attempt: u64,
    /// The id of the run that asks, if the client said so.
    pub(crate) run: Option<&'a str>,
    /// What the files hold that it sends, as the client says; by it alone a tool opens them.
    pub(crate) files: &'a Said,
}

/// What tools are set up with, once, before the first call. They keep what they need of the settings.
pub(crate) struct Setup<'a> {
    pub(crate) settings: &'a Settings,
    pub(crate) context: &'a Context,
    shared: RefCell<HashMap<TypeId, Box<dyn Any>>>,
    places: RefCell<Vec<Place>>,
}

impl<'a> Setup<'a> {
    pub(crate) fn new(settings: &'a Settings, context: &'a Context) -> Self {
        Self { settings, context, shared: RefCell::default(), places: RefCell::default() }
    }

    /// Says that `tool` works at that absolute path, which the flag chooses: where it is in the workspace no other tool writes there.
    pub(crate) fn works_at(&self, tool: &'static str, flag: &'static str, path: &Path, holds: Holds) {
        self.context.workspace.reserve(path, tool);
        self.places.borrow_mut().push(Place { flag, path: path.to_path_buf(), holds });
    }

    /// Where the tools that were set up work.
    pub(crate) fn places(self) -> Vec<Place> {
        self.places.into_inner()
    }

    /// The one `T` of this server; made by the first tool that asks. Best an [`Arc`], because everybody gets a clone.
    pub(crate) fn shared<T: Clone + 'static>(
        &self,
        make: impl FnOnce(&Self) -> Result<T, ToolServerError>,
    ) -> Result<T, ToolServerError> {
        let known = self.shared.borrow().get(&TypeId::of::<T>()).and_then(|known| known.downcast_ref::<T>().cloned());
        if let Some(known) = known {
            return Ok(known);
        }
        let made = make(self)?;
        self.shared.borrow_mut().insert(TypeId::of::<T>(), Box::new(made.clone()));
        Ok(made)
    }
}

/// Runs work that waits for the disk where it does not hold up other calls. It is finished even when nobody waits.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Failure> + Send + 'static,
) -> Result<T, Failure> {
    let done = finish(Box::new(move || work().map(|done| Box::new(done) as Box<dyn Any + Send>))).await?;
    Ok(*done.downcast::<T>().unwrap_or_else(|_| unreachable!("work gives what it was asked for")))
}

/// Apart from [`blocking`], because the runtime's side of a task is long and would be compiled for each of some fifty works.
async fn finish(
    work: Box<dyn FnOnce() -> Result<Box<dyn Any + Send>, Failure> + Send>,
) -> Result<Box<dyn Any + Send>, Failure> {
    tokio::task::spawn_blocking(work)
        .await
        .unwrap_or_else(|error| Err(Failure::Unclear(format!("the tool stopped: {error}"))))
}

/// The 32 hexadecimal digits that name an effect: made from its key, or by chance when it has none.
pub(crate) fn effect_id(key: Option<&str>, env: &Env) -> String {
    // A person who is asked about a call is told what is made of its key: `found_by` in the policy of these tools.
    key.map_or_else(|| env.uuid_v7(), ua_core::key_id)
}
