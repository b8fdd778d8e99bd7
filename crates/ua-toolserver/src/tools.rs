//! The tools, one file or folder each, and the list of them.

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
mod render;
mod render_pdf;
mod research;
mod upload;
mod write;

use ua_core::Env;

pub use command::clear_temporary_folders;

use crate::context::{Context, Setup};
use crate::error::ToolServerError;
use crate::seal::Seals;
use crate::settings::Settings;
use crate::tool::{AnyTool, Entry};
use crate::workspace::Workspace;

/// All tools, in the order that they are listed in.
const TOOLS: [Entry; 27] = [
    Entry::of::<read::ReadLocalFile>(),
    Entry::of::<write::WriteLocalFile>(),
    Entry::of::<append::AppendToFile>(),
    Entry::of::<list::ListDirectory>(),
    Entry::of::<crawl::CrawlParallel>(),
    Entry::of::<research::corpus::FinalizeResearch>(),
    Entry::of::<research::read_many::ReadResearchFiles>(),
    Entry::of::<research::evidence::BuildEvidenceLedger>(),
    Entry::of::<render::RenderHtml>(),
    Entry::of::<render_pdf::RenderPdf>(),
    Entry::of::<compress::CompressFiles>(),
    Entry::of::<images::preview::PreviewImage>(),
    Entry::of::<upload::Upload>(),
    Entry::of::<upload::workbench::upload::WorkbenchUpload>(),
    Entry::of::<upload::workbench::download::WorkbenchDownload>(),
    Entry::of::<email::SendEmail>(),
    Entry::of::<notify::Notify>(),
    Entry::of::<memory::blocks::GetCoreMemoryBlocks>(),
    Entry::of::<memory::append::CoreMemoryAppend>(),
    Entry::of::<memory::replace::CoreMemoryReplace>(),
    Entry::of::<memory::insert::ArchivalMemoryInsert>(),
    Entry::of::<memory::search::ArchivalMemorySearch>(),
    Entry::of::<research::search::WebSearch>(),
    Entry::of::<images::describe::DescribeImage>(),
    Entry::of::<images::generate::GenerateImage>(),
    Entry::of::<upload::composio::UploadToComposio>(),
    Entry::of::<command::RunCommand>(),
];

/// Their names.
pub(crate) const NAMES: &[&str] = &{
    let mut names = [""; TOOLS.len()];
    let mut at = 0;
    while at < names.len() {
        names[at] = TOOLS[at].name;
        at += 1;
    }
    names
};

/// The tools that the settings offer, ready to be called.
#[derive(Debug)]
pub(crate) struct Toolbox {
    context: Context,
    tools: Vec<Box<dyn AnyTool>>,
}

impl Toolbox {
    /// Opens the workspace and what the settings name. Stores are created when they are first written to.
    pub(crate) fn open(settings: &Settings, env: Env) -> Result<Self, ToolServerError> {
        let workspace = Workspace::open(&settings.workspace).map_err(|source| ToolServerError::Directory {
            role: "workspace",
            path: settings.workspace.clone(),
            source,
        })?;
        let seals = Seals::new(settings.copy_key.as_ref()).map_err(|source| ToolServerError::Directory {
            role: "workspace",
            path: settings.workspace.clone(),
            source,
        })?;
        let context = Context { workspace: workspace.into(), env, seals: seals.into() };
        let setup = Setup::new(settings, &context);
        let opened = TOOLS.iter().filter_map(|entry| (entry.open)(&setup).transpose());
        let tools = opened.collect::<Result<_, _>>()?;
        drop(setup);
        Ok(Self { context, tools })
    }

    /// What every call is given.
    pub(crate) fn context(&self) -> &Context {
        &self.context
    }

    /// The tools on offer, in their order.
    pub(crate) fn tools(&self) -> impl Iterator<Item = &dyn AnyTool> {
        self.tools.iter().map(AsRef::as_ref)
    }

    /// The tool of that name, if it is on offer.
    pub(crate) fn find(&self, name: &str) -> Option<&dyn AnyTool> {
        self.tools().find(|tool| tool.name() == name)
    }
}
