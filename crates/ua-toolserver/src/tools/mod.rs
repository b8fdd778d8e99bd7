//! The tools, one module each, and the table that finds them.

mod append;
mod command;
mod compress;
mod crawl;
mod email;
mod images;
mod list;
mod memory;
mod notify;
mod read;
mod record;
mod render;
mod render_pdf;
mod research;
mod upload;
mod write;

use std::sync::Arc;

use rmcp::model::{JsonObject, Tool};
use serde::de::DeserializeOwned;
use ua_core::Env;
use ua_pdf::Renderer;

use crate::answer::{Answer, Failure};
use crate::digest::sha256_hex;
use crate::error::ToolServerError;
use crate::settings::Settings;
use crate::workspace::Workspace;

/// The names of all tools, in the order they are listed in.
pub(crate) const NAMES: &[&str] = &[
    read::NAME,
    write::NAME,
    append::NAME,
    list::NAME,
    crawl::NAME,
    research::corpus::NAME,
    research::read_many::NAME,
    research::evidence::NAME,
    render::NAME,
    render_pdf::NAME,
    compress::NAME,
    images::preview::NAME,
    upload::NAME,
    upload::workbench::UPLOAD,
    upload::workbench::DOWNLOAD,
    email::NAME,
    notify::NAME,
    memory::BLOCKS,
    memory::APPEND,
    memory::REPLACE,
    memory::INSERT,
    memory::SEARCH,
    research::search::NAME,
    images::describe::NAME,
    images::generate::NAME,
    upload::composio::NAME,
    command::NAME,
];

/// What the tools share, set up once.
#[derive(Debug)]
pub(crate) struct Toolbox {
    workspace: Arc<Workspace>,
    crawler: crawl::Crawler,
    mailer: email::Mailer,
    store: upload::ObjectStore,
    notifier: notify::Notifier,
    memory: memory::Memory,
    search: Option<research::search::Engine>,
    images: Option<images::ImageApi>,
    composio: Option<upload::composio::Composio>,
    command: Option<Arc<command::Launcher>>,
    pdf: Option<Renderer>,
    env: Env,
}

impl Toolbox {
    /// Opens what the settings name. Stores are created when they are first written to.
    pub(crate) fn open(settings: &Settings, env: Env) -> Result<Self, ToolServerError> {
        let mut workspace = Workspace::open(&settings.workspace).map_err(|source| ToolServerError::Directory {
            role: "workspace",
            path: settings.workspace.clone(),
            source,
        })?;
        let root = workspace.area().path().to_path_buf();
        let mailer = email::Mailer::new(&root, settings)?;
        let store = upload::ObjectStore::new(&root, settings)?;
        let notifier = notify::Notifier::new(&root, settings)?;
        let memory = memory::Memory::new(&root, settings, env.clone());
        let directories = [(mailer.path(), email::NAME), (store.path(), upload::NAME), (notifier.path(), notify::NAME)];
        for (directory, tool) in directories {
            if let Some(directory) = directory {
                workspace.reserve(directory, tool);
            }
        }
        workspace.reserve(memory.path(), memory::INSERT);
        let workspace = Arc::new(workspace);
        Ok(Self {
            crawler: crawl::Crawler::new(Arc::clone(&workspace), settings, env.clone())?,
            mailer,
            store,
            notifier,
            memory,
            search: research::search::Engine::new(settings)?,
            images: images::ImageApi::new(settings)?,
            composio: upload::composio::Composio::new(settings)?,
            command: settings.enable_command.then(|| Arc::new(command::Launcher::new(settings))),
            pdf: settings.pdf,
            workspace,
            env,
        })
    }

    /// The tools on offer.
    pub(crate) fn list(&self) -> Vec<Tool> {
        let mut tools = vec![
            read::describe(),
            write::describe(),
            append::describe(),
            list::describe(),
            crawl::describe(),
            research::corpus::describe(),
            research::read_many::describe(),
            research::evidence::describe(),
            render::describe(),
        ];
        tools.extend(self.pdf.map(|_| render_pdf::describe()));
        tools.extend([compress::describe(), images::preview::describe(), upload::describe()]);
        tools.extend(upload::workbench::describe());
        tools.extend([self.mailer.describe(), self.notifier.describe()]);
        tools.extend(memory::describe());
        if self.search.is_some() {
            tools.push(research::search::describe());
        }
        if self.images.as_ref().is_some_and(|api| api.describes_with.is_some()) {
            tools.push(images::describe::describe());
        }
        tools.extend(self.images.as_ref().filter(|api| api.draws_with.is_some()).map(images::generate::describe));
        if self.composio.is_some() {
            tools.push(upload::composio::describe());
        }
        if self.command.is_some() {
            tools.push(command::describe());
        }
        tools
    }

    /// Whether giving up halfway does no harm, so that a cancelled call need not be finished.
    pub(crate) fn may_drop(name: &str) -> bool {
        matches!(name, crawl::NAME | research::corpus::NAME | research::search::NAME | command::NAME)
    }

    /// Runs one call, the `attempt`-th at it; `None` when no tool has that name.
    pub(crate) async fn call(
        &self,
        name: &str,
        arguments: JsonObject,
        key: Option<String>,
        attempt: u64,
        run: Option<&str>,
    ) -> Option<Answer> {
        let key = key.as_deref();
        let answer = match name {
            read::NAME => with(arguments, async |given| read::run(&self.workspace, given).await).await,
            write::NAME => with(arguments, async |given| write::run(&self.workspace, given).await).await,
            append::NAME => with(arguments, async |given| append::run(&self.workspace, given, key).await).await,
            list::NAME => with(arguments, async |given| list::run(&self.workspace, given).await).await,
            crawl::NAME => with(arguments, async |given| self.crawler.run(given, run).await).await,
            research::corpus::NAME => {
                let (workspace, crawler) = (&self.workspace, &self.crawler);
                with(arguments, async |given| research::corpus::run(workspace, crawler, given, run).await).await
            }
            research::read_many::NAME => {
                with(arguments, async |given| research::read_many::run(&self.workspace, given).await).await
            }
            research::evidence::NAME => {
                with(arguments, async |given| research::evidence::run(&self.workspace, given).await).await
            }
            research::search::NAME => match &self.search {
                Some(engine) => with(arguments, async |given| engine.run(&self.workspace, given, run).await).await,
                None => return None,
            },
            render::NAME => with(arguments, async |given| render::run(&self.workspace, given).await).await,
            render_pdf::NAME => {
                let renderer = self.pdf?;
                with(arguments, async |given| render_pdf::run(&self.workspace, renderer, given).await).await
            }
            compress::NAME => with(arguments, async |given| compress::run(&self.workspace, given).await).await,
            images::preview::NAME => {
                with(arguments, async |given| images::preview::run(&self.workspace, given).await).await
            }
            images::describe::NAME => {
                let (api, model) = self.images.as_ref().and_then(|api| Some((api, api.describes_with.as_deref()?)))?;
                let order = images::Order { key, attempt };
                let run =
                    async |given| images::describe::run(api, model, &self.workspace, given, order, &self.env).await;
                with(arguments, run).await
            }
            images::generate::NAME => {
                let (api, model) = self.images.as_ref().and_then(|api| Some((api, api.draws_with.as_deref()?)))?;
                let order = images::Order { key, attempt };
                let run =
                    async |given| images::generate::run(api, model, &self.workspace, given, order, &self.env).await;
                with(arguments, run).await
            }
            upload::workbench::UPLOAD => {
                with(arguments, async |given| upload::workbench::upload(&self.workspace, &self.store, given).await)
                    .await
            }
            upload::workbench::DOWNLOAD => {
                with(arguments, async |given| upload::workbench::download(&self.workspace, &self.store, given).await)
                    .await
            }
            upload::composio::NAME => {
                let composio = self.composio.as_ref()?;
                with(arguments, async |given| composio.run(&self.workspace, given, key).await).await
            }
            upload::NAME => with(arguments, async |given| upload::run(&self.workspace, &self.store, given).await).await,
            email::NAME => {
                let order = email::Order { key, attempt };
                with(arguments, async |given| self.mailer.run(&self.workspace, given, order, &self.env).await).await
            }
            notify::NAME => with(arguments, async |given| self.notifier.run(given, key, &self.env).await).await,
            memory::BLOCKS => with(arguments, async |given| self.memory.blocks(given).await).await,
            memory::APPEND => with(arguments, async |given| self.memory.append(given, key).await).await,
            memory::REPLACE => with(arguments, async |given| self.memory.replace(given, key).await).await,
            memory::INSERT => with(arguments, async |given| self.memory.insert(given, key).await).await,
            memory::SEARCH => with(arguments, async |given| self.memory.search(given).await).await,
            command::NAME => match &self.command {
                Some(launcher) => with(arguments, async |given| launcher.run(&self.workspace, given).await).await,
                None => return None,
            },
            _ => return None,
        };
        Some(answer)
    }
}

/// Reads the arguments, then runs the tool.
async fn with<A: DeserializeOwned>(arguments: JsonObject, tool: impl AsyncFnOnce(A) -> Answer) -> Answer {
    let given = serde_json::from_value(serde_json::Value::Object(arguments)).map_err(|error| {
        Failure::refused(
            format!("the arguments do not fit: {error}"),
            "compare them with the tool's input schema and call again",
        )
    })?;
    tool(given).await
}

/// Runs work that waits for the disk where it does not hold up other calls. It is finished even when nobody waits.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T, Failure> + Send + 'static) -> Result<T, Failure> {
    tokio::task::spawn_blocking(work)
        .await
        .unwrap_or_else(|error| Err(Failure::Unclear(format!("the tool stopped: {error}"))))
}

/// The 32 hexadecimal digits that name an effect: made from its key, or by chance when it has none.
fn effect_id(key: Option<&str>, env: &Env) -> String {
    key.map_or_else(|| env.uuid_v7(), |key| sha256_hex(key).chars().take(32).collect())
}
