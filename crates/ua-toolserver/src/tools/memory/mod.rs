//! What an agent remembers between jobs (Durable Jobs v1 spec §7.3): a few short *core blocks* it always wants at hand,
//! and an *archive* of any number of items that is searched by words.

mod archive;
mod core;
mod database;

use std::sync::Arc;

use rmcp::model::Tool;
use ua_core::Env;

use self::database::Database;
use crate::settings::Settings;

pub(super) use self::archive::{INSERT, SEARCH};
pub(super) use self::core::{APPEND, BLOCKS, REPLACE};

/// The memory of one server.
#[derive(Debug)]
pub(super) struct Memory {
    database: Arc<Database>,
    env: Env,
}

impl Memory {
    /// The memory that the settings name; the file is made when it is first used.
    pub(super) fn new(workspace: &std::path::Path, settings: &Settings, env: Env) -> Self {
        let path = Settings::directory(workspace, settings.memory.as_ref(), ".ua/agent_core.db");
        Self { database: Arc::new(Database::new(path)), env }
    }

    /// The file.
    pub(super) fn path(&self) -> &std::path::Path {
        self.database.path()
    }
}

/// The tools, in the order they are listed in.
pub(super) fn describe() -> [Tool; 5] {
    [
        core::describe_blocks(),
        core::describe_append(),
        core::describe_replace(),
        archive::describe_insert(),
        archive::describe_search(),
    ]
}
