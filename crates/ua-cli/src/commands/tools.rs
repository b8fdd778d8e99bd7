//! `ua tools`: what a job would be offered, and why each tool has its class.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use clap::Subcommand;
use clap_complete::engine::ArgValueCompleter;
use serde_json::json;
use ua_core::{RunId, ShowPath as _, ToolSpec, ToolsSpec};
use ua_host::launch::Launch;
use ua_host::mcp_files::{self, mcp_config_file};
use ua_host::policies::{self, classifier_of_user};
use ua_host::servers::{self, builtin_server};
use ua_host::trust::ConfigFile;
use ua_host::{Host, job_file, tool_lock, trust};
use ua_mcp::{DefinitionLock, ServerAbout, ServerSpec};

use crate::complete;
use crate::error::{FAILED, HostError, OK, chain};
use crate::output::{line, place, print, print_json, print_table, tell};
use crate::view::{ToolRow, ToolsLocked};

/// `ua tools …`.
#[derive(Debug, Subcommand)]
pub enum ToolsCommand {
    /// List the tools that a job would be offered, with their class
    #[command(after_help = "\
Examples:
  ua tools list
  ua tools list --policy policy.toml --job job.json
      the tools that this job would be offered
  ua tools list --json | jq -r '.[] | [.name, .policy.class] | @tsv'")]
    List {
        /// File with an `mcpServers` object [default: .mcp.json if there is one]
        #[arg(long, value_name = "FILE")]
        mcp_config: Option<PathBuf>,
        /// Policy file (TOML) that takes precedence over all others; may be repeated
        #[arg(long, value_name = "FILE")]
        policy: Vec<PathBuf>,
        /// Job file whose policies apply, as far as they are trusted
        #[arg(long, value_name = "FILE")]
        job: Option<PathBuf>,
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// Explain how a tool is classified, rule by rule
    #[command(after_help = "\
Examples:
  ua tools explain send_email
  ua tools explain mcp__forum__post_comment --policy policy.toml
  ua tools explain send_email --job job.json    include the job's own policies")]
    Explain {
        /// The tool's name, bare or as the model sees it
        #[arg(add = ArgValueCompleter::new(complete::tools))]
        name: String,
        /// File with an `mcpServers` object [default: .mcp.json if there is one]
        #[arg(long, value_name = "FILE")]
        mcp_config: Option<PathBuf>,
        /// Policy file (TOML) that takes precedence over all others; may be repeated
        #[arg(long, value_name = "FILE")]
        policy: Vec<PathBuf>,
        /// Job file whose policies apply, as far as they are trusted
        #[arg(long, value_name = "FILE")]
        job: Option<PathBuf>,
    },
    /// Record the tools of the configured servers, so that a job refuses those that changed since
    #[command(after_help = "\
Examples:
  ua tools lock          write mcp.lock beside .mcp.json
  ua tools lock --check  report differences from mcp.lock; exit code 1 if any

While mcp.lock is there, a server whose tools, version or command changed is not used, and a tool that is new is not offered.")]
    Lock {
        /// File with an `mcpServers` object [default: .mcp.json if there is one]
        #[arg(long, value_name = "FILE")]
        mcp_config: Option<PathBuf>,
        /// Only compare
        #[arg(long)]
        check: bool,
    },
    /// List the policy packs for widely used servers, or show one
    #[command(after_help = "\
Examples:
  ua tools packs
  ua tools packs github                      show every rule and its source

A pack applies to a server whose configuration names its package, program or address, or that `server_packs` names.")]
    Packs {
        /// The pack's name
        #[arg(add = ArgValueCompleter::new(complete::packs))]
        name: Option<String>,
    },
    /// List the tools of past runs that no rule knew, and how to write a policy for each
    #[command(after_help = "\
Examples:
  ua tools audit
  ua tools audit --policy policy.toml  check which of them this policy covers

Such a tool is treated as an external effect that takes no key: at most once, and a person is asked when its outcome is not known.")]
    Audit {
        /// Policy file (TOML) that takes precedence over all others; may be repeated
        #[arg(long, value_name = "FILE")]
        policy: Vec<PathBuf>,
    },
}

pub(crate) async fn run(host: &Host, command: ToolsCommand) -> Result<u8, HostError> {
    match command {
        ToolsCommand::List { mcp_config, policy, job, json } => {
            let Looked { specs, about, strays } = look(host, mcp_config.as_deref()).await?;
            let file = mcp_config_file(host.settings(), mcp_config.as_deref());
            let of_job = job.map(|job| policies::of_job(host.settings(), &job)).transpose()?;
            let classifier = classifier_of_user(host.settings(), &policy, of_job.as_ref(), file.as_ref())?;
            let policies: Vec<_> = specs.iter().map(|spec| (spec, classifier.classify(spec, None))).collect();
            if json {
                print_json(&policies.iter().map(|(spec, policy)| row(spec, policy)).collect::<Vec<_>>())?;
            } else {
                let rows = policies.iter().map(|(spec, policy)| {
                    vec![
                        shown_name(&specs, spec),
                        policy.class.to_string(),
                        policy.on_unknown.to_string(),
                        why(&policy.reason, &policy.class.to_string()),
                    ]
                });
                print_table(&crate::listings::TOOLS, rows.collect())?;
                let words: BTreeMap<String, &str> = policies
                    .iter()
                    .map(|(_, policy)| (policy.on_unknown.to_string(), ua_classify::when_in_doubt(policy.on_unknown)))
                    .collect();
                for (word, meaning) in words {
                    tell(format!("{word}: {meaning}"));
                }
                if crate::terminal::is_read_by_person() {
                    tell("`ua tools explain NAME` says why, in full");
                }
                for stray in &strays {
                    tell(format!("note: {stray}; a log belongs on standard error"));
                }
                for (server, about) in &about {
                    let (name, version) = (line(&about.name, 60), line(&about.version, 40));
                    tell(format!("server {server} · {name} {version} · speaks MCP {}", about.revision));
                }
            }
        }
        ToolsCommand::Explain { name, mcp_config, policy, job } => {
            let specs = offered(host, mcp_config.as_deref()).await?;
            let file = mcp_config_file(host.settings(), mcp_config.as_deref());
            let of_job = job.as_deref().map(|job| policies::of_job(host.settings(), job)).transpose()?;
            let classifier = classifier_of_user(host.settings(), &policy, of_job.as_ref(), file.as_ref())?;
            let found: Vec<&ToolSpec> =
                specs.iter().filter(|spec| spec.name.raw == name || spec.name.tool == name).collect();
            if found.is_empty() {
                return Err(no_such_tool(&name, &specs));
            }
            if crate::terminal::is_json() {
                print_json(&found.into_iter().map(|spec| classifier.explain(spec)).collect::<Vec<_>>())?;
                return Ok(OK);
            }
            // What would make a start fail stands with the tool that it is about.
            let problems = ua_dispatch::Catalog::problems(specs.clone(), &classifier, &ua_dispatch::Rules::default());
            for spec in found {
                print(format!("{}\n", classifier.explain(spec)))?;
                for problem in problems.iter().filter(|problem| problem.tool() == Some(&spec.name.raw)) {
                    print(format!("no job would start with this: {problem}\n"))?;
                }
                for problem in classifier.misnamed(spec, &specs.iter().collect::<Vec<_>>()) {
                    let (rule, file) = (line(&problem.rule_id, 60), place(&problem.file));
                    print(format!("no job would start with this: {problem}, in rule `{rule}` of {file}\n"))?;
                }
                if let Some(job) = &job
                    && let Some(why) = not_started(&job_file::read(host.settings(), job)?.tools, spec)
                {
                    print(format!("{} does not offer it: {why}\n", place(&job.shown().to_string())))?;
                }
            }
            // Whoever tries a rule of such a file looks here for what it does.
            let files: Vec<PathBuf> =
                policy.iter().chain(of_job.iter().flat_map(|of_job| &of_job.files)).cloned().collect();
            let rules = ua_host::check::rules(host.settings(), &classifier, &files, &specs.iter().collect::<Vec<_>>());
            let is_of_file = |rule: &&ua_host::check::RuleMatch| {
                files.iter().any(|file| rule.place == file.shown().to_string()) && rule.tools.is_empty()
            };
            for rule in rules.iter().filter(is_of_file) {
                tell(format!(
                    "note: `{}` ({}) matches no tool that is configured here: correct its name or server, if it is meant for one",
                    line(&rule.rule, 60),
                    place(&rule.place)
                ));
            }
        }
        ToolsCommand::Lock { mcp_config, check } => return lock(host, mcp_config.as_deref(), check).await,
        ToolsCommand::Packs { name } => return super::packs::run(name.as_deref()),
        ToolsCommand::Audit { policy } => return super::audit::run(host, &policy),
    }
    Ok(OK)
}

/// How many tools an error names.
const NAMED: usize = 6;

/// That nobody offers a tool of this name: which one may be meant, or what is offered where.
fn no_such_tool(name: &str, specs: &[ToolSpec]) -> HostError {
    let few = |of: Vec<&str>| {
        let names: Vec<String> = of.iter().take(NAMED).map(|name| format!("`{}`", line(name, 60))).collect();
        let more = of.len().saturating_sub(NAMED);
        if more == 0 { names.join(", ") } else { format!("{} and {more} more", names.join(", ")) }
    };
    let all = "`ua tools list` shows what is offered";
    let tools_of = |server: &str| {
        specs.iter().filter(|spec| spec.name.server == server).map(|spec| spec.name.tool.as_str()).collect()
    };
    let mut servers: Vec<&str> = specs.iter().map(|spec| spec.name.server.as_str()).collect();
    servers.sort_unstable();
    servers.dedup();
    if servers.contains(&name) {
        return HostError::usage(format!("`{}` is a tool server, not a tool", line(name, 100)))
            .hint(format!("its tools are {}; {all}", few(tools_of(name))));
    }
    let message = format!("no server offers a tool `{}`", line(name, 100));
    let holding: Vec<&str> =
        specs.iter().map(|spec| spec.name.tool.as_str()).filter(|tool| name.len() > 2 && tool.contains(name)).collect();
    let names = specs.iter().flat_map(|spec| [spec.name.tool.as_str(), spec.name.raw.as_str()]);
    if ua_host::text::nearest(name, names.clone()).is_some() || (holding.is_empty() && servers.is_empty()) {
        HostError::not_found(message, name, names, all)
    } else if holding.is_empty() {
        HostError::usage(message).hint(format!("the servers here are {}; {all}", few(servers)))
    } else {
        HostError::usage(message).hint(format!("similar names are {}; {all}", few(holding)))
    }
}

/// Why a job with these settings has no such tool, as far as it follows from which servers it starts.
fn not_started(tools: &ToolsSpec, spec: &ToolSpec) -> Option<String> {
    if spec.name.server == ua_host::servers::BUILTIN {
        return match (tools.builtin, spec.name.tool == "run_command" && !tools.run_command) {
            (false, _) => Some("its `tools.builtin` is false".to_owned()),
            (true, true) => Some("its `tools.run_command` is not true".to_owned()),
            (true, false) => None,
        };
    }
    let is_left_out = tools.servers.as_ref().is_some_and(|servers| !servers.contains(&spec.name.server));
    is_left_out.then(|| format!("its `tools.servers` does not name `{}`", line(&spec.name.server, 60)))
}

/// A tool's name in a list. Whoever reads it on a terminal has room for more than names there, and `ua tools explain` takes the short one; where
/// two servers have it, and for programs that read the list, it is the whole name.
fn shown_name(specs: &[ToolSpec], spec: &ToolSpec) -> String {
    let is_only = specs.iter().filter(|other| other.name.tool == spec.name.tool).count() == 1;
    if is_only && crate::terminal::is_read_by_person() { spec.name.tool.clone() } else { spec.name.raw.clone() }
}

/// Why a tool has its class, in a table: for a person at a terminal as short as it can be, and whole for whoever else reads. All of it is what
/// `ua tools explain` says.
pub(super) fn why(reason: &str, class: &str) -> String {
    if crate::terminal::is_read_by_person() { why_in_short(reason, class) } else { line(reason, usize::MAX) }
}

/// The first clause of a reason without what stands beside it: the class, and that a rule is one of ours.
fn why_in_short(reason: &str, class: &str) -> String {
    let first = reason.split([',', ';']).next().unwrap_or_default();
    let first = first.strip_suffix(&format!(" calls it {class}")).unwrap_or(first);
    let first = first.strip_suffix(" of the built-in policy").unwrap_or(first);
    let shorter = [
        ("its server says ", "server: "),
        ("its name contains the side-effect word ", "name: "),
        ("its name suggests a read ", "name: a read "),
        ("its name joins actions ", "name: joins "),
        ("nothing is known about this tool", "nothing is known"),
    ];
    let found = shorter.iter().find_map(|(long, short)| Some(format!("{short}{}", first.strip_prefix(long)?)));
    line(found.as_deref().unwrap_or(first), usize::MAX)
}

/// A tool as `--json` shows it.
pub(super) fn row(spec: &ToolSpec, policy: &ua_core::CallPolicy) -> ToolRow {
    ToolRow {
        name: spec.name.raw.clone(),
        server: spec.name.server.clone(),
        description: spec.description.clone(),
        digest: json!(spec.digest()),
        policy: json!(policy),
    }
}

/// What there is to see of tool servers.
struct Looked {
    specs: Vec<ToolSpec>,
    about: Vec<(String, ServerAbout)>,
    /// Which of them wrote to their standard output what is no message, in sentences.
    strays: Vec<String>,
}

/// `ua tools lock`: writes what the tools are now beside the MCP configuration, or compares with what was written.
async fn lock(host: &Host, mcp_config: Option<&Path>, check: bool) -> Result<u8, HostError> {
    let Some(file) = mcp_config_file(host.settings(), mcp_config) else {
        return Err(HostError::usage("there is no MCP configuration whose tools could be locked")
            .hint("name one with --mcp-config, or write a .mcp.json"));
    };
    let path = tool_lock::path_for(&file.path);
    let known = if check { tool_lock::read(&file.path)? } else { tool_lock::read(&file.path).unwrap_or_default() };
    let config = mcp_files::mcp_config(Some(&file))?;
    let digests = mcp_files::configured_reaches(&config);
    let unlocked = mcp_files::mcp_servers_with(host, Some(&file), config, None)?;
    let found = reached_by(start(host, unlocked).await?.1, &digests);
    if check && known.is_none() {
        return Err(HostError::failed(format!("{} is not there", path.shown()))
            .hint("look at the tools (`ua tools list`), then run `ua tools lock`"));
    }
    let changes = found.changes_since(known.map(|known| known.without_secrets(host.redactor())).as_ref());
    let is_json = crate::terminal::is_json();
    for change in changes.iter().filter(|_| !is_json) {
        print(format!("{}\n", line(change, 500)))?;
    }
    let shown = ToolsLocked { file: path.clone(), written: !check, changes: changes.clone() };
    if check {
        if is_json {
            print_json(&shown)?;
        }
        tell(&if changes.is_empty() {
            "the tools match mcp.lock".to_owned()
        } else {
            format!(
                "{}; `{}` accepts {}",
                ua_core::counted(changes.len(), "difference"),
                tool_lock::command(&file),
                if changes.len() == 1 { "it" } else { "them" }
            )
        });
        return Ok(if changes.is_empty() { OK } else { FAILED });
    }
    let text = found.to_text();
    tool_lock::write(&path, &text)?;
    if is_json {
        print_json(&shown)?;
    }
    let tools: usize = found.servers.values().map(|server| server.tools.len()).sum();
    tell(format!(
        "{}: {tools} of {}",
        path.shown(),
        ua_core::counted(found.servers.len(), "server"),
        tools = ua_core::counted(tools, "tool")
    ));
    Ok(OK)
}

/// Starts servers in a folder that is thrown away and looks at them.
async fn start(host: &Host, servers: Vec<ServerSpec>) -> Result<(Looked, DefinitionLock), HostError> {
    mcp_files::check_programs(&servers)?;
    let folder = ua_host::paths::temporary_folder()?;
    let names = servers::names(&servers);
    let transport = servers::transport(host, servers, &folder.path().join("locks"), RunId::new(host.env()))?;
    let listed = servers::list(host, &transport, &names, |sentence| tell(sentence)).await;
    let (about, definitions) = (transport.about(), transport.definitions());
    let strays = transport.strays().into_iter().map(|(_, sentence)| sentence).collect();
    transport.shutdown().await;
    let specs = listed.map_err(|e| HostError::usage(chain(&e)).hint(servers::what_helps(&e)))?;
    Ok((Looked { specs, about, strays }, definitions))
}

async fn offered(host: &Host, mcp_config: Option<&Path>) -> Result<Vec<ToolSpec>, HostError> {
    Ok(look(host, mcp_config).await?.specs)
}

/// Every tool of our own server and of the configured ones.
async fn look(host: &Host, mcp_config: Option<&Path>) -> Result<Looked, HostError> {
    let folder = ua_host::paths::temporary_folder()?;
    let file = mcp_config_file(host.settings(), mcp_config);
    let mut found = Vec::new();
    if cfg!(feature = "toolserver") {
        let launch = Launch::for_inspection(folder.path().to_path_buf());
        servers::check_builtin(host.settings(), folder.path())?;
        found.push(builtin_server(host, folder.path(), &folder.path().join("workspace"), &launch, true)?);
        let workspace = folder.path().join("workspace");
        std::fs::create_dir(&workspace)
            .map_err(|e| HostError::storage(format!("cannot create {}: {e}", workspace.shown())))?;
    }
    let mut config = mcp_files::mcp_config(file.as_ref())?;
    if let Some(file) = &file {
        // Looking is no reason to start what nobody let in.
        for review in trust::untrusted(host.settings(), file, &config.servers)? {
            config.servers.retain(|(name, _)| *name != review.server);
            crate::output::tell(format!(
                "skipped, not trusted: `{}` of {}; `ua trust` shows it",
                review.server,
                file.path.shown()
            ));
        }
    }
    let reaches = mcp_files::configured_reaches(&config);
    // What they are now is what somebody wants to see before `ua tools lock` accepts it, so they are not held to the lock.
    found.extend(mcp_files::mcp_servers_with(host, file.as_ref(), config, None)?);
    let (looked, now) = start(host, found).await?;
    if let Some(file) = &file {
        tell_of_lock(host, file, &reached_by(now, &reaches));
    }
    Ok(looked)
}

/// The definitions of the servers that are configured, each with how its configuration reaches it.
fn reached_by(mut found: DefinitionLock, reaches: &BTreeMap<String, String>) -> DefinitionLock {
    found.servers.retain(|server, _| reaches.contains_key(server));
    for (server, locked) in &mut found.servers {
        locked.reach = reaches.get(server).cloned().unwrap_or_default();
    }
    found
}

/// Says what of the tools that are shown is other than mcp.lock says, so that no job is offered it.
fn tell_of_lock(host: &Host, file: &ConfigFile, now: &DefinitionLock) {
    let mut known = match tool_lock::read(&file.path) {
        Ok(Some(known)) => known.without_secrets(host.redactor()),
        Ok(None) => return,
        Err(error) => return tell(format!("note: no job starts with these servers: {error}")),
    };
    // One that is not looked at now (that nobody trusts, or that is not configured any more) is no difference.
    known.servers.retain(|server, _| now.servers.contains_key(server));
    let changes = now.changes_since(Some(&known));
    for change in &changes {
        tell(format!("note: not as in mcp.lock: {}", line(change, 500)));
    }
    if !changes.is_empty() {
        tell(format!(
            "a job is offered only the tools that are as in mcp.lock; `ua tools list --json` has what each tool says of itself, and `{}` accepts it",
            tool_lock::command(file)
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// On a terminal of 80 columns the widest of our tools leave this much for the reason.
    const ROOM: usize = 33;

    #[test]
    fn a_reason_in_a_table_is_short_and_says_nothing_twice() {
        for (reason, class, wanted) in [
            ("rule own-replacing-writes of the built-in policy calls it local", "local", "rule own-replacing-writes"),
            ("rule mails of policy.toml calls it external", "external", "rule mails of policy.toml"),
            (
                "rule mails of the job's policy.toml, which is trusted, calls it external",
                "external",
                "rule mails of the job's policy.toml",
            ),
            ("its name contains the side-effect word \"order\"", "external", "name: \"order\""),
            ("its name suggests a read (\"get\")", "read_only", "name: a read (\"get\")"),
            ("its server says readOnlyHint = false", "external", "server: readOnlyHint = false"),
            (
                "its server says readOnlyHint = true, which is trusted where the name suggests the same",
                "read_only",
                "server: readOnlyHint = true",
            ),
            (
                "nothing is known about this tool, so it is treated as an external side effect",
                "external",
                "nothing is known",
            ),
            ("its name contains the side-effect word \"order\"; the job raises it", "external", "name: \"order\""),
        ] {
            let short = why_in_short(reason, class);
            assert_eq!(short, wanted);
            assert!(short.chars().count() <= ROOM + 2, "{short}");
        }
    }
}
