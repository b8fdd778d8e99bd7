//! The built-in tool server, as a process of the program's own file.

use std::ffi::OsString;
use std::io::Write as _;
use std::path::Path;

use ua_core::{ShowPath as _, ToolNamespace, chain};
use ua_mcp::{Decides, Protocol, Reach, ServerSpec};

use crate::error::Error;

/// The word by which it is started.
pub(crate) const WORD: &str = "__toolserver";

/// Its name, by which the shipped policy knows its tools.
pub(crate) const NAME: &str = "ua";

/// Serves until the one who started it closes its input. Whether it served.
pub(crate) fn serve(args: impl Iterator<Item = OsString>) -> bool {
    let ended = ua_toolserver::Settings::from_arguments(args).and_then(|settings| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|why| format!("no runtime: {why}"))?;
        runtime.block_on(ua_toolserver::serve(settings)).map_err(|error| chain(&error))
    });
    match ended {
        Ok(()) => true,
        Err(why) => {
            // The program shows the last lines of this stream when a server does not start. Nobody may be left to read it.
            let _unread = writeln!(std::io::stderr(), "built-in tool server: {why}");
            false
        }
    }
}

/// The server of one run: it works in the run's folder, and what it sends lands in the folder of runs unless the environment says otherwise.
pub(crate) fn server(folder: &Path, workspace: &Path) -> Result<ServerSpec, Error> {
    let program = crate::servers::own_program()?.ok_or_else(|| {
        Error::Servers("the built-in tool server is this program: call `ua_sdk::helper` first in `main`".to_owned())
    })?;
    let text = |path: &Path| path.to_string_lossy().into_owned();
    let objects = url::Url::from_directory_path(folder.join("objects"))
        .map_err(|()| Error::Servers(format!("{} cannot be written as a file:// address", folder.shown())))?;
    let mut own = ua_toolserver::environment(crate::env::var);
    ua_toolserver::make_absolute(&mut own).map_err(|why| {
        Error::Servers(format!("a relative path in the environment of the built-in tools has no meaning: {why}"))
    })?;
    let ours = [
        ("UA_OUTBOX", text(&folder.join("outbox"))),
        ("UA_OBJECTS", objects.to_string()),
        ("UA_NOTIFICATIONS", text(&folder.join("notifications"))),
        ("UA_MEMORY", text(&folder.join("agent_core.db"))),
    ];
    let has_mail = own.contains_key("UA_MAIL");
    for (name, place) in ours.into_iter().filter(|(name, _)| *name != "UA_OUTBOX" || !has_mail) {
        own.entry(name.to_owned()).or_insert(place);
    }
    let receivers = ua_toolserver::receivers(&own);
    let locks = folder.join("locks");
    // Without it pages are fetched again by the next process; that is all.
    let key = ua_files::Folder::make_itself(&locks).ok().and_then(|_| ua_toolserver::copy_key(&locks));
    own.extend(key.map(|key| (ua_toolserver::COPY_KEY.to_owned(), key)));
    let mut env = crate::servers::passed_on();
    env.extend(own);
    let args = vec![WORD.to_owned(), "--workspace".to_owned(), text(workspace)];
    let reach = Reach::Stdio { command: text(&program), args, env, cwd: Some(workspace.to_path_buf()) };
    // A program that was replaced, and the run's folder, are no other receivers.
    let decides = Decides::Tools(receivers);
    // Of the same build, so nothing is to be found out about it.
    let protocol = Protocol::Handshake;
    Ok(ServerSpec { protocol, decides, ..ServerSpec::new(NAME, ToolNamespace::Local, reach) })
}
