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

use std::collections::{BTreeMap, BTreeSet};

use ua_core::Env;

pub use command::clear_temporary_folders;
pub use crawl::serve_page;

use crate::context::{Context, Setup};
use crate::error::ToolServerError;
use crate::place::Place;
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

/// By tool, the variables that choose who receives its effect and as whose, for a server that is given these variables ([`environment`]
/// picks them). A tool that makes nothing outside its run's folder is not among them.
///
/// [`environment`]: crate::environment
pub fn receivers(variables: &BTreeMap<String, String>) -> BTreeMap<String, BTreeSet<String>> {
    let names = |entry: &Entry| (entry.receivers)(variables).iter().map(|name| (*name).to_owned()).collect();
    let all = TOOLS.iter().map(|entry| (entry.name.to_owned(), names(entry)));
    all.filter(|(_, names): &(String, BTreeSet<String>)| !names.is_empty()).collect()
}

/// The variables that say whether a tool is there, and what its description promises: where one of them is missing, the tool is another one. None of
/// a tool that is the same under all settings.
pub fn shaped_by(tool: &str) -> &'static [&'static str] {
    match tool {
        "send_email" => &["UA_MAIL", "UA_MAIL_API_KEY", "UA_MAIL_PROBE"],
        "notify" => &["UA_NOTIFY_WEBHOOK", "UA_NOTIFY_WEBHOOK_HONOURS_KEYS"],
        "web_search" => &["UA_SEARCH"],
        "describe_image" => &["UA_IMAGE_API"],
        "generate_image" => &["UA_IMAGE_API", "UA_IMAGE_GENERATION_MODEL", "UA_IMAGE_API_HONOURS_KEYS"],
        "upload_to_composio" => &["UA_COMPOSIO"],
        _ => &[],
    }
}

/// The tools that the settings offer, ready to be called.
#[derive(Debug)]
pub(crate) struct Toolbox {
    context: Context,
    tools: Vec<Box<dyn AnyTool>>,
    places: Vec<Place>,
}

impl Toolbox {
    /// Opens the workspace and what the settings name. Stores are created when they are first written to.
    pub(crate) fn open(settings: &Settings, env: Env) -> Result<Self, ToolServerError> {
        let workspace = Workspace::open(&settings.workspace).map_err(|source| ToolServerError::Directory {
            role: "workspace",
            path: settings.workspace.clone(),
            source,
        })?;
        let workspace = workspace.with_redactor(settings.secrets.redactor());
        let seals = Seals::new(settings.copy_key.as_ref()).map_err(|source| ToolServerError::Directory {
            role: "workspace",
            path: settings.workspace.clone(),
            source,
        })?;
        let context = Context { workspace: workspace.into(), env, seals: seals.into() };
        let setup = Setup::new(settings, &context);
        let opened = TOOLS.iter().filter_map(|entry| (entry.open)(&setup).transpose());
        let tools = opened.collect::<Result<_, _>>()?;
        let places = setup.places();
        Ok(Self { context, tools, places })
    }

    /// Refuses a place that the settings choose and that no call could use.
    pub(crate) fn look_at_places(&self) -> Result<(), ToolServerError> {
        self.places.iter().try_for_each(Place::look)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meta::HONOURS_KEYS;

    fn variables(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    /// Whatever makes a tool another one is said of it: each tool that differs between the folders of this machine and all services is named.
    #[test]
    fn a_tool_that_settings_make_another_one_names_them() {
        let known = crate::settings::variables();
        for tool in NAMES {
            let is_secret = |name: &str| name.ends_with("_API_KEY");
            let unknown = |name: &&&str| !is_secret(name) && !known.iter().any(|one| one == **name);
            let missing: Vec<_> = shaped_by(tool).iter().filter(unknown).collect();
            assert!(missing.is_empty(), "{tool}: {missing:?}");
        }
        let shaped: Vec<&str> = NAMES.iter().copied().filter(|tool| !shaped_by(tool).is_empty()).collect();
        assert_eq!(
            shaped,
            ["send_email", "notify", "web_search", "describe_image", "generate_image", "upload_to_composio"]
        );
    }

    /// Settings that say neither where a tool sends nor as whom, each with the reason.
    const CHOOSE_NOBODY: [(&str, &str); 14] = [
        ("UA_MAIL_CA_FILE", "says who vouches for the mail server, which is the same"),
        ("UA_MAIL_SETTLE_SECONDS", "says when the probe is believed"),
        ("UA_MAIL_PASSWORD", "belongs to a user, who counts"),
        ("UA_NOTIFY_WEBHOOK_HONOURS_KEYS", "says what the webhook does with a key"),
        (
            "AWS_ACCESS_KEY_ID",
            "an object is the same one whoever put it into its bucket; and it changes each hour where it is lent",
        ),
        ("AWS_SECRET_ACCESS_KEY", "belongs to that"),
        ("AWS_SESSION_TOKEN", "belongs to that"),
        ("UA_SEARCH", "nothing is sent but a question"),
        ("UA_SEARCH_API_KEY", "nothing is sent but a question"),
        ("UA_IMAGE_MODEL", "nothing is sent but a question"),
        ("UA_IMAGE_GENERATION_MODEL", "says what is made, and nobody receives it but the workspace"),
        ("UA_IMAGE_API_HONOURS_KEYS", "says what the API does with a key"),
        ("UA_TOOLSERVER_TOKEN", "clients of the server send it"),
        (crate::seal::COPY_KEY, "seals what lies in the workspace"),
    ];

    /// A setting is one or the other, but for those that confine programs, so that nobody adds one without a thought about it.
    #[test]
    fn every_setting_chooses_a_receiver_or_is_said_not_to() {
        let all = <Settings as clap::Args>::augment_args(clap::Command::new(""));
        let all = all.get_arguments().filter_map(|argument| argument.get_env()?.to_str().map(str::to_owned));
        let all: BTreeSet<String> = all.filter(|name| !name.starts_with("UA_COMMAND_")).collect();
        let of = |pairs: &[(&str, &str)]| receivers(&variables(pairs)).into_values().flatten();
        let remote = [("UA_MAIL", "m"), ("UA_NOTIFY_WEBHOOK", "w"), ("UA_OBJECTS", "s3://b"), ("UA_S3_ENDPOINT", "e")];
        let choose: BTreeSet<String> = of(&[]).chain(of(&remote)).chain(of(&[("UA_OBJECTS", "s3://b")])).collect();
        let nobody: BTreeSet<String> = CHOOSE_NOBODY.iter().map(|(name, _)| (*name).to_owned()).collect();
        assert!(choose.is_disjoint(&nobody), "{:?}", choose.intersection(&nobody));
        let classified: BTreeSet<String> = choose.union(&nobody).cloned().collect();
        assert_eq!(all.difference(&classified).collect::<Vec<_>>(), [""; 0], "where do these send, or as whom?");
        assert_eq!(classified.difference(&all).collect::<Vec<_>>(), [""; 0], "there are no such settings");
    }

    /// Under all settings that choose receivers, so that no tool is left out.
    #[test]
    fn every_tool_with_an_effect_outside_says_what_chooses_its_receiver() {
        let remote = variables(&[
            ("UA_MAIL", "resend+https://mail.example"),
            ("UA_MAIL_API_KEY", "k"),
            ("UA_NOTIFY_WEBHOOK", "https://hook.example/x"),
            ("UA_OBJECTS", "s3://bucket"),
            ("AWS_ACCESS_KEY_ID", "a"),
            ("AWS_SECRET_ACCESS_KEY", "b"),
            ("UA_IMAGE_API", "openai+https://images.example"),
            ("UA_IMAGE_API_KEY", "k"),
            ("UA_IMAGE_GENERATION_MODEL", "m"),
            ("UA_COMPOSIO", "https://backend.composio.dev"),
            ("COMPOSIO_API_KEY", "k"),
        ]);
        for variables in [BTreeMap::new(), remote] {
            let folder = tempfile::tempdir().unwrap();
            let settings = Settings::of_variables(folder.path(), &variables);
            let toolbox = Toolbox::open(&settings, Env::simulated(1)).unwrap();
            let receivers = receivers(&variables);
            let mut outside = 0;
            for tool in toolbox.tools() {
                let has_effect_outside = tool.listed().meta.is_some_and(|meta| meta.contains_key(HONOURS_KEYS));
                outside += usize::from(has_effect_outside);
                assert!(!has_effect_outside || receivers.contains_key(tool.name()), "{}", tool.name());
            }
            assert!(outside >= 4, "{outside}");
            assert!(!receivers.contains_key("write_local_file"));
        }
    }

    #[test]
    fn what_does_not_count_under_the_settings_chooses_nobody() {
        let hook = receivers(&variables(&[("UA_NOTIFY_WEBHOOK", "https://x"), ("UA_NOTIFICATIONS", "/n")]));
        assert_eq!(hook["notify"], BTreeSet::from(["UA_NOTIFY_WEBHOOK".to_owned()]));
        let folder = receivers(&variables(&[("UA_NOTIFICATIONS", "/n"), ("UA_OUTBOX", "/o")]));
        assert_eq!(folder["notify"], BTreeSet::from(["UA_NOTIFICATIONS".to_owned()]));
        assert_eq!(folder["send_email"], BTreeSet::from(["UA_MAIL_FROM".to_owned(), "UA_OUTBOX".to_owned()]));
    }
}
