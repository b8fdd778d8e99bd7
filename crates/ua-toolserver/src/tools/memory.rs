//! What an agent remembers between jobs (Durable Jobs v1 spec §7.3): a few short *core blocks* it always wants at hand,
//! and an *archive* of any number of items that is searched by words.

pub(super) mod append;
pub(super) mod blocks;
mod core;
mod database;
pub(super) mod insert;
pub(super) mod replace;
pub(super) mod search;

use std::sync::Arc;

use ua_core::Env;

use self::database::Database;
use crate::context::Setup;
use crate::error::ToolServerError;
use crate::place::Holds;
use crate::settings::Settings;
use crate::tool::Tool as _;

/// The memory of one server; clones share it.
#[derive(Debug, Clone)]
pub(super) struct Memory {
    database: Arc<Database>,
    env: Env,
}

impl Memory {
    /// The memory that the settings name; the file is made when it is first used. Where it is in the workspace, only these
    /// tools write to it.
    fn of(setup: &Setup<'_>) -> Result<Self, ToolServerError> {
        setup.shared(|setup| {
            let chosen = setup.settings.memory.as_ref();
            let path = Settings::directory(setup.context.workspace.area().path(), chosen, ".ua/agent_core.db");
            let path = std::path::absolute(&path).unwrap_or(path);
            setup.works_at(insert::ArchivalMemoryInsert::NAME, "memory", &path, Holds::Database);
            Ok(Self { database: Arc::new(Database::new(path)), env: setup.context.env.clone() })
        })
    }
}
