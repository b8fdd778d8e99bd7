//! Our own tool server, told by its arguments and environment what the user's settings say.

use std::path::Path;

use ua_core::ToolNamespace;
use ua_mcp::{Protocol, Reach, ServerSpec};

use crate::credentials::{
    COMPOSIO_CREDENTIALS, IMAGE_CREDENTIALS, MAIL_CREDENTIALS, PRIVATE_ADDRESSES, S3_CREDENTIALS, SEARCH_CREDENTIALS,
};
use crate::error::HostError;
use crate::host::Host;
use crate::launch::Launch;

/// Its name.
const BUILTIN: &str = "ua";

/// Our own tool server, as a process like any other.
pub fn builtin_server(
    host: &Host,
    root: &Path,
    workspace: &Path,
    launch: &Launch,
    run_command: bool,
) -> Result<ServerSpec, HostError> {
    let text = |path: &Path| path.display().to_string();
    let settings = host.settings();
    let setting = |name: &str, default: String| settings.var(name).unwrap_or(default);
    let mut args = vec!["toolserver".to_owned(), "--workspace".to_owned(), text(workspace)];
    args.extend(["--allow-root".to_owned(), text(launch.job_dir())]);
    if let Some(mail) = settings.var("UA_MAIL") {
        args.extend(["--mail".to_owned(), mail]);
    } else {
        args.extend(["--outbox".to_owned(), setting("UA_OUTBOX", text(&root.join("outbox")))]);
    }
    args.extend(["--objects".to_owned(), setting("UA_OBJECTS", file_url(&root.join("objects"))?)]);
    args.extend(["--notifications".to_owned(), setting("UA_NOTIFICATIONS", text(&root.join("notifications")))]);
    args.extend(["--memory".to_owned(), setting("UA_MEMORY", text(&root.join("agent_core.db")))]);
    let optional = [
        ("--mail-from", "UA_MAIL_FROM"),
        ("--mail-ca-file", "UA_MAIL_CA_FILE"),
        ("--mail-settle-seconds", "UA_MAIL_SETTLE_SECONDS"),
        ("--s3-endpoint", "UA_S3_ENDPOINT"),
        ("--s3-region", "UA_S3_REGION"),
        ("--search", "UA_SEARCH"),
        ("--image-api", "UA_IMAGE_API"),
        ("--composio", "UA_COMPOSIO"),
    ];
    for (flag, name) in optional {
        if let Some(value) = settings.var(name) {
            args.extend([flag.to_owned(), value]);
        }
    }
    if settings.var("UA_IMAGE_API").is_some() {
        for (flag, name) in
            [("--image-model", "UA_IMAGE_MODEL"), ("--image-generation-model", "UA_IMAGE_GENERATION_MODEL")]
        {
            args.extend(settings.var(name).into_iter().flat_map(|value| [flag.to_owned(), value]));
        }
        if settings.var("UA_IMAGE_API_HONOURS_KEYS").is_some_and(|value| value != "0") {
            args.push("--image-api-honours-keys".to_owned());
        }
    }
    if settings.var("UA_NOTIFY_WEBHOOK_HONOURS_KEYS").is_some_and(|value| value != "0") {
        args.push("--notify-webhook-honours-keys".to_owned());
    }
    if let Some(path) = settings.var("PATH") {
        args.extend(["--command-path".to_owned(), path]);
    }
    if run_command {
        args.push("--enable-command".to_owned());
        args.extend(crate::sandbox::flags(settings, root)?);
    }
    if launch.allows_private_addresses() {
        args.push("--allow-private-addresses".to_owned());
    }
    let mut env = settings.for_tool_servers();
    env.extend(host.spans().for_own_tool_server());
    for name in PRIVATE_ADDRESSES {
        env.extend(settings.var(name).map(|value| (name.to_owned(), value)));
    }
    let needs_s3 = settings.var("UA_OBJECTS").is_some_and(|objects| objects.starts_with("s3:"));
    let needs = [
        (settings.var("UA_MAIL").is_some(), MAIL_CREDENTIALS.as_slice()),
        (needs_s3, S3_CREDENTIALS.as_slice()),
        (settings.var("UA_SEARCH").is_some(), SEARCH_CREDENTIALS.as_slice()),
        (settings.var("UA_IMAGE_API").is_some(), IMAGE_CREDENTIALS.as_slice()),
        (settings.var("UA_COMPOSIO").is_some(), COMPOSIO_CREDENTIALS.as_slice()),
    ];
    for name in needs.into_iter().filter(|(needed, _)| *needed).flat_map(|(_, names)| names) {
        env.extend(settings.var(name).map(|value| ((*name).to_owned(), value)));
    }
    let reach = Reach::Stdio { command: text(&settings.program()?), args, env, cwd: Some(workspace.to_path_buf()) };
    // Of the same build, so nothing is to be found out about it.
    let protocol = Protocol::Handshake;
    Ok(ServerSpec { protocol, ..ServerSpec::new(BUILTIN, ToolNamespace::Local, reach) })
}

fn file_url(path: &Path) -> Result<String, HostError> {
    url::Url::from_directory_path(path)
        .map(String::from)
        .map_err(|()| HostError::usage(format!("{} cannot be written as a file:// address", path.display())))
}
