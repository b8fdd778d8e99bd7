//! What a job is set up with: configuration, model, prices, tool servers.

use std::collections::BTreeSet;

use ua_core::{RunId, RunSpec, ShowPath as _};
use ua_host::check::{self, JobDoubts, JobLooked};
use ua_host::home::Home;
use ua_host::job::JobRequest;
use ua_host::launch::{Launch, LaunchOptions};
use ua_host::policies::{classifier_of_user, files_of_user};
use ua_host::{Host, Settings, claude_code, mcp_files, models, pricing, providers, servers as tool_servers};
use ua_llm::ModelExtras;

use super::DoctorArgs;
use super::Findings;
use crate::error::chain;
use crate::parts::Parts;
use crate::people::AtTerminal;
use crate::view::ToolRow;

/// A job file that was looked at.
pub(super) struct Job {
    /// The job itself, with what is in the files that it is given.
    spec: RunSpec,
    launch: Launch,
    /// Its file, as it was named.
    file: String,
    /// Whether nothing is wrong with it as far as it can be told without its tools.
    is_well: bool,
}

pub(super) fn configuration(settings: &Settings, findings: &mut Findings) {
    let problems = settings.problems();
    if !problems.is_empty() {
        for error in &problems {
            findings.refused("configuration", error);
        }
        return;
    }
    for note in settings.notes() {
        findings.warn(
            "configuration",
            note,
            "make it yours with `sudo chown`, or move it away; as root, run `ua` as that user instead",
        );
    }
    let files = settings.files();
    let detail = if files.is_empty() {
        "no file; defaults, environment and flags".to_owned()
    } else {
        files.iter().map(|file| file.shown().to_string()).collect::<Vec<_>>().join(", ")
    };
    findings.ok("configuration", detail);
}

/// Variables whose names begin as ours do and that nothing reads: what they were to say is not heard.
pub(super) fn environment(settings: &Settings, job: Option<&Job>, args: &DoctorArgs, findings: &mut Findings) {
    let file = match job {
        Some(job) => job.launch.mcp_file(),
        None => mcp_files::mcp_config_file(settings, args.mcp_config.as_deref()),
    };
    let of_servers = mcp_files::referred_to(file.as_ref());
    for (name, nearest) in settings.unread().into_iter().filter(|(name, _)| !of_servers.contains(name)) {
        let meant = nearest.map_or_else(String::new, |nearest| format!("did you mean `{nearest}`? otherwise "));
        findings.warn(
            "environment",
            format!("nothing reads the variable {}", crate::output::line(&name, 60)),
            format!(
                "{meant}unset it, or give it a name that does not begin with UA_; `ua config show` lists every setting"
            ),
        );
    }
}

/// Looks at the job that is named as `ua job --check` does, and finds all that it would be refused for.
pub(super) async fn job(host: &Host, args: &DoctorArgs, findings: &mut Findings) -> Option<Job> {
    let file = args.job.clone()?;
    let launch =
        LaunchOptions { mcp_config: args.mcp_config.clone(), policy: args.policy.clone(), ..LaunchOptions::default() };
    let request = JobRequest { file: file.clone(), launch, ..JobRequest::default() };
    // Nobody is asked: what is not trusted is a reason not to start.
    let people = AtTerminal::new(false, true);
    match check::look(host, &people, &request).await {
        Err(error) => {
            findings.refused("job", &error);
            None
        }
        Ok(JobLooked { spec, launch, refusal }) => {
            if let Some(error) = &refusal {
                findings.refused("job", error);
            }
            Some(Job { spec, launch, file: file.shown().to_string(), is_well: refusal.is_none() })
        }
    }
}

/// Whether the program of the provider `claude-code` is there. Nobody needs it who does not use that provider.
pub(super) fn claude_code(settings: &Settings, job: Option<&Job>, findings: &mut Findings) {
    let provider = job.map_or_else(|| Launch::default_model(settings), |job| job.launch.model()).0;
    if provider == claude_code::NAME
        && let Err(error) = claude_code::check(settings)
    {
        findings.refused("claude-code", &error);
        return;
    }
    match claude_code::program(settings) {
        None => findings.ok("claude-code", "`claude` is not installed; only the provider `claude-code` needs it"),
        Some(program) => match claude_code::version(settings, &program) {
            Some(version) => findings.ok("claude-code", format!("{} is {version}", program.shown())),
            None => findings.warn(
                "claude-code",
                format!("{} does not report its version", program.shown()),
                "run it with --version, and install it again if it cannot be run",
            ),
        },
    }
}

/// The provider's key, and the price of the model.
pub(super) fn model(host: &Host, job: Option<&Job>, findings: &mut Findings) {
    let settings = host.settings();
    let (provider, model) = match job {
        Some(job) => job.launch.model(),
        None => Launch::default_model(settings),
    };
    let key = providers::key_of(settings, &provider);
    let has_key = key.as_ref().is_none_or(|(variable, _)| settings.var(variable).is_some());
    // Whoever uses the gateway alone has an agent with a model of its own.
    let is_without_jobs = job.is_none() && !has_key && ua_host::gateway::is_all_that_is_used(host);
    let is_chosen = ["UA_PROVIDER", "ANTHROPIC_MODEL"].iter().any(|variable| settings.var(variable).is_some());
    let is_to_come = job.is_none() && !has_key && !is_without_jobs && !is_chosen;
    match key.filter(|(variable, _)| settings.var(variable).is_none()) {
        Some((variable, setting)) if is_without_jobs => findings.warn(
            "model",
            format!("there is no key for the provider {provider}: jobs need one, the gateway does not"),
            format!("to run jobs, set {variable}, or {setting} in the user's config.toml"),
        ),
        // Nobody has asked for a model yet: it is what comes next, and nothing that is wrong.
        Some((variable, setting)) if is_to_come => findings.warn(
            "model",
            format!(
                "no model is set up yet: there is no key for {provider}, which a job uses unless it names another provider; a job that plays a \
                 script, like the one that `ua init` creates, runs without a key"
            ),
            format!(
                "when you want a model to answer, set {variable}, or {setting} in the user's config.toml; for another provider, name it in UA_PROVIDER"
            ),
        ),
        Some((variable, setting)) if job.is_none() => findings.fail(
            "model",
            format!("there is no key for the provider {provider}"),
            format!(
                "set {variable}, or {setting} in the user's config.toml; where all jobs use another provider, name it in UA_PROVIDER; check a job that names its own model \
                 with --job FILE"
            ),
        ),
        // As a job makes it: what a job is refused for is found here, and once where a job was looked at.
        Some(_) | None => match providers::by_settings(settings, &provider, false, &ModelExtras::default(), host.env()) {
            Some(Err(error)) => findings.refused("model", &error),
            Some(Ok(_)) | None if key.is_some() => {
                findings.ok("model", format!("a key for {provider} is set; model {model}"));
            }
            Some(Ok(_)) | None => findings.ok("model", format!("{provider} {model} needs no key that ua knows of")),
        },
    }
    // Of a provider that does not exist no model and no price is missing.
    let is_provider = providers::check_name(&provider).is_ok();
    if let Some(doubt) = models::doubt(settings, &provider, &model).filter(|_| is_provider) {
        findings.warn("model", doubt, "correct the name, or describe the model in models.toml (docs/guide/models.md)");
    }
    if let Err(error) = models::table(settings) {
        findings.refused("models", &error);
    }
    let file = match job {
        Some(job) => Ok((job.launch.pricing.clone(), job.launch.pricing_is_the_projects)),
        None => pricing::file(settings, None).map(|file| (file, pricing::is_the_projects(settings, None))),
    };
    match file.and_then(|(file, of_project)| Ok((pricing::table(settings, file.as_deref(), of_project)?, file))) {
        Err(error) => findings.refused("prices", &error),
        Ok((table, file)) => match (pricing::price(&table, &provider, &model), file) {
            (Some(_), Some(file)) => {
                findings.ok("prices", format!("{} has a price for {model}", file.shown()));
            }
            _ if !is_provider => {}
            _ if is_without_jobs => findings.ok("prices", "jobs need prices, the gateway does not"),
            _ if is_to_come => findings.ok("prices", "no model is set up yet that costs something"),
            _ if provider == "scripted" => findings.ok("prices", "a scripted model costs nothing"),
            (_, file) => findings.warn(
                "prices",
                match &file {
                    Some(file) => format!(
                        "{} has no price for {model} of {provider}{}, so its cost is unknown and a max_cost is refused",
                        file.shown(),
                        pricing::slip(settings, &table, &provider, &model)
                            .map_or_else(String::new, |slip| format!(" ({slip})"))
                    ),
                    None => format!(
                        "there is no price table, so the cost of {model} of {provider} is not counted and a max_cost is refused"
                    ),
                },
                format!(
                    "write [providers.{provider}.\"{model}\"] with `input` and `output` per million tokens into {}; {} has the list price, \
                     if this version knows one",
                    file.map_or_else(
                        || "pricing.toml beside the user's config.toml".to_owned(),
                        |f| f.shown().to_string()
                    ),
                    ua_host::models::looked_up(&provider, &model)
                ),
            ),
        },
    }
}

/// Whether telemetry that is asked for is sent.
pub(super) fn telemetry(settings: &Settings, findings: &mut Findings) {
    match crate::telemetry::fault(settings) {
        None => {}
        Some(Ok(())) => findings.ok("telemetry", "traces and metrics go to the collector that is named"),
        Some(Err(why)) => findings.warn(
            "telemetry",
            format!("no telemetry is sent: {why}"),
            "correct OTEL_EXPORTER_OTLP_ENDPOINT (telemetry.otlp_endpoint), or unset it; docs/guide/telemetry.md says what it takes",
        ),
    }
}

/// Whether a person can be told that a run waits.
pub(super) fn alerts(settings: &Settings, home: &Home, findings: &mut Findings) {
    if let Err(error) = ua_host::check_alerts(settings, home) {
        findings.refused("alerts", &error);
    }
}

/// What our own tools work with.
pub(super) fn tools_of_ours(settings: &Settings, home: &Home, parts: &Parts, findings: &mut Findings) {
    #[cfg(feature = "toolserver")]
    if parts.pdf.is_some() {
        findings.ok("pdf", "render_pdf is built in");
    } else {
        findings.warn("pdf", "this build has no render_pdf", "build with the feature `pdf`");
    }
    if cfg!(not(feature = "toolserver")) {
        findings.warn("tools", "this build has no tool server of its own", "build with the feature `toolserver`");
        return;
    }
    let has = |name: &str| settings.var(name).is_some();
    // What a job would be refused for is said in the words of the refusal, and of nothing that is refused is said that it is well.
    if let Err(error) = tool_servers::check_builtin(settings, home.root()) {
        findings.refused("tools", &error);
        return;
    }
    let mail = settings.var("UA_MAIL");
    if mail.as_deref().is_none_or(|mail| mail.starts_with("maildir:")) {
        findings.ok("email", "send_email writes to a Maildir; set UA_MAIL (tools.mail) for a mail server");
    } else if !has("UA_MAIL_FROM") {
        findings.warn(
            "email",
            "a mail server is set, but no sender: each message says that it is from ua@localhost",
            "set UA_MAIL_FROM (tools.mail_from)",
        );
    } else if has("UA_MAIL_PROBE") || has("UA_MAIL_API_KEY") {
        findings.ok("email", "a mail service and a probe for it are set");
    } else {
        findings.warn(
            "email",
            "plain SMTP takes no idempotency key and cannot be asked afterwards: an interrupted call waits for a person",
            "set UA_MAIL_PROBE if the server's sent mail can be searched; docs/guide/tools.md says how",
        );
    }
    let place = if has("UA_OBJECTS") { "the configured place" } else { "a folder of the workspace root" };
    findings.ok("upload", format!("upload puts files into {place}"));
}

/// Starts each tool server by itself, so that one that is broken does not hide the others, and lists its tools.
pub(super) async fn servers(
    host: &Host,
    job: Option<&Job>,
    args: &DoctorArgs,
    findings: &mut Findings,
) -> Vec<ToolRow> {
    let mut rows = Vec::new();
    let folder = match ua_host::paths::temporary_folder() {
        Ok(folder) => folder,
        Err(error) => {
            findings.fail("tools", error.message(), error.hint_text().unwrap_or_default());
            return rows;
        }
    };
    let classifier = match job {
        Some(job) => job.launch.classifier(host.settings()),
        None => classifier_of_user(host.settings(), &args.policy, None, None),
    };
    let classifier = match classifier {
        Ok(classifier) => classifier,
        Err(error) => {
            findings.refused("policies", &error);
            return rows;
        }
    };
    let mut listed: Vec<ua_core::ToolSpec> = Vec::new();
    let mut names = BTreeSet::new();
    let mut servers = Vec::new();
    let mut are_all_listed = true;
    if cfg!(feature = "toolserver") && job.is_none_or(|job| job.spec.tools.builtin) {
        let launch = Launch::for_inspection(folder.path().to_path_buf());
        let workspace = folder.path().join("workspace");
        let made = std::fs::create_dir(&workspace);
        match tool_servers::builtin_server(host, folder.path(), &workspace, &launch, true) {
            Ok(server) if made.is_ok() => servers.push(server),
            Ok(_) => {
                are_all_listed = false;
                findings.fail(
                    "server ua",
                    "cannot make a folder for it",
                    "free space in the folder for temporary files",
                );
            }
            Err(error) => {
                are_all_listed = false;
                findings.refused("server ua", &error);
            }
        }
    }
    let configured = if let Some(job) = job {
        job.launch.configured_servers(host, &job.spec)
    } else {
        let file = mcp_files::mcp_config_file(host.settings(), args.mcp_config.as_deref());
        mcp_files::mcp_config(file.as_ref()).and_then(|config| mcp_files::mcp_servers(host, file.as_ref(), config))
    };
    match configured {
        Ok(more) => servers.extend(more),
        Err(error) => {
            are_all_listed = false;
            findings.refused("tool servers", &error);
        }
    }
    for server in servers {
        names.insert(server.name.clone());
        let check = format!("server {}", server.name);
        let named = tool_servers::names(std::slice::from_ref(&server));
        // In the words of the job that would be refused for it.
        if let Err(error) = mcp_files::check_programs(std::slice::from_ref(&server)) {
            are_all_listed = false;
            findings.refused(&check, &error);
            continue;
        }
        let started = tool_servers::transport(host, vec![server], &folder.path().join("locks"), RunId::new(host.env()));
        let transport = match started {
            Ok(transport) => transport,
            Err(error) => {
                are_all_listed = false;
                findings.refused(&check, &error);
                continue;
            }
        };
        match tool_servers::list(host, &transport, &named, |sentence| crate::output::tell(sentence)).await {
            Ok(specs) => {
                let speaks = transport
                    .about()
                    .pop()
                    .map_or_else(String::new, |(_, about)| format!(", speaks MCP {}", about.revision));
                // Once it is known what it says, and before it is ended.
                let stray = transport.strays().pop();
                let stray =
                    stray.map_or_else(String::new, |(_, said)| format!("; {said}; a log belongs on standard error"));
                let policies: Vec<_> = specs.iter().map(|spec| classifier.classify(spec, None)).collect();
                let unknown =
                    policies.iter().filter(|policy| policy.class_source == ua_core::ClassSource::Default).count();
                let by_name = policies.iter().filter(|policy| policy.is_read_by_name()).count();
                rows.extend(specs.iter().zip(&policies).map(|(spec, policy)| super::super::tools::row(spec, policy)));
                listed.extend(specs.iter().cloned());
                if unknown == 0 {
                    let guessed = match by_name {
                        0 => String::new(),
                        some => format!(", {some} of them read only as far as their names say"),
                    };
                    findings.ok(
                        &check,
                        format!("started, {}{speaks}{guessed}{stray}", ua_core::counted(specs.len(), "tool")),
                    );
                } else {
                    findings.warn(
                        &check,
                        format!("started, {}{speaks}, {unknown} of them not known to any rule{stray}", ua_core::counted(specs.len(), "tool")),
                        "declare in a policy what they do; `ua tools explain NAME` shows what is known, and docs/guide/policies.md explains how",
                    );
                }
            }
            Err(error) => {
                are_all_listed = false;
                findings.fail(&check, chain(&error), tool_servers::what_helps(&error));
            }
        }
        transport.shutdown().await;
    }
    let files = match job {
        Some(job) => Ok(job.launch.policy_files(host.settings())),
        None => files_of_user(host.settings()),
    };
    idle_rules(host.settings(), &classifier, &files.unwrap_or_default(), (&listed, &names), findings);
    if (job.is_none() || !are_all_listed)
        && let Some(error) = ua_host::selectors::misnamed(&classifier, &listed.iter().collect::<Vec<_>>())
    {
        findings.refused("policies", &error);
    }
    if let Some(job) = job {
        with_tools(host, job, are_all_listed.then_some(&listed), &classifier, findings).await;
    }
    rows
}

/// What a job says about its tools, of which it is known only with them whether it is right, and whether a run of it would begin now. `tools` are
/// all that it would be offered, where all of them could be listed.
async fn with_tools(
    host: &Host,
    job: &Job,
    tools: Option<&Vec<ua_core::ToolSpec>>,
    classifier: &ua_classify::Classifier,
    findings: &mut Findings,
) {
    let (settings, file) = (host.settings(), &job.file);
    let mut is_well = job.is_well && tools.is_some();
    if let Some(tools) = tools {
        if let Some(error) = ua_host::selectors::refused(settings, &job.launch, &job.spec, tools).unwrap_or_else(Some) {
            findings.refused("job", &error);
            is_well = false;
        }
        let tools: Vec<_> = tools.iter().map(|tool| (tool.clone(), classifier.classify(tool, None))).collect();
        // What they cannot be looked for without is a finding by now.
        let doubts = check::doubts(settings, &job.launch, &job.spec, &tools, classifier);
        let JobDoubts { budgets, script } = doubts.unwrap_or_default();
        for doubt in budgets {
            findings.warn("job", doubt, "raise that budget, or make the job ask for less");
        }
        for doubt in script {
            findings.warn("job", doubt, "correct the script that plays the model");
        }
    }
    match check::in_the_way(host, std::path::Path::new(file), &job.spec, &job.launch).await {
        Ok(None) if is_well => findings.ok("job", format!("{file} would start")),
        Ok(Some(error)) => {
            let lead = if is_well { format!("nothing is wrong with {file}, and it") } else { file.clone() };
            findings.warn("job", format!("{lead} would not start now: {error}"), super::fix_of(&error));
        }
        // What is wrong with the database is a finding of its own.
        Err(_) if is_well => findings.ok("job", format!("nothing is wrong with {file}")),
        Ok(None) | Err(_) => {}
    }
}

/// Rules and names that are about no tool: a misspelt one protects from nothing.
fn idle_rules(
    settings: &Settings,
    classifier: &ua_classify::Classifier,
    files: &[std::path::PathBuf],
    (tools, servers): (&[ua_core::ToolSpec], &BTreeSet<String>),
    findings: &mut Findings,
) {
    let tools: Vec<&ua_core::ToolSpec> = tools.iter().collect();
    let idle =
        ua_host::check::rules(settings, classifier, files, &tools).into_iter().filter(|rule| rule.tools.is_empty());
    for rule in idle {
        findings.warn(
            "policies",
            format!("`{}` ({}) matches no tool that is configured here", rule.rule, rule.place),
            "correct its name, or leave it for a project that has the tool; `ua tools list` shows the names",
        );
    }
    for entry in ua_host::check::idle_packs(settings, servers) {
        findings.warn(
            "packs",
            format!("`{entry}` in server_packs names a server that is not configured here"),
            "correct the server's name, or leave it for a project that has the server",
        );
    }
    for name in ua_host::check::idle_trust(settings, servers) {
        findings.warn(
            "settings",
            format!("`{name}` in trust_annotations names a server that is not configured here"),
            "correct the server's name, or leave it for a project that has the server",
        );
    }
    for folder in ua_host::check::idle_folders(settings) {
        findings.warn(
            "settings",
            format!("{}, which run_command.read opens for programs, is not a folder", folder.shown()),
            "correct its path, or make it; programs see nothing there until then",
        );
    }
}
