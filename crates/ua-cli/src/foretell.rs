//! What this program's own tool server will list, without starting it.
//!
//! It is started as this very program, so what it will say follows from the words and the variables that it is given. The server is asked all the
//! same before anything is called ([`ua_mcp::Foreteller`]): what is said here is never believed, only offered meanwhile.

use std::path::Path;
use std::sync::Arc;

use ua_core::ToolNamespace;
use ua_host::Settings;
use ua_host::servers::BUILTIN;
use ua_mcp::{Foreteller, Foretold, Reach, ServerSpec};
use ua_toolserver::ToolServer;

use crate::parts::Parts;

/// Knows what the built-in tool server says that is started as this program.
pub(crate) fn own_tools(settings: &Settings, parts: &Parts) -> Foreteller {
    let pdf = crate::layout::process(settings, parts);
    let program = settings.program().ok().filter(|program| is_this(program));
    Arc::new(move |spec: &ServerSpec| {
        let Reach::Stdio { command, args, env, cwd } = &spec.reach else { return None };
        let is_own = spec.name == BUILTIN && spec.namespace == ToolNamespace::Local;
        program.as_deref().filter(|program| is_own && Path::new(command) == *program)?;
        let mut settings = ua_toolserver::Settings::of_variables(cwd.as_ref()?, env);
        settings.enable_command = args.iter().any(|word| word == "--enable-command");
        settings.pdf.clone_from(&pdf);
        // What it cannot work with it says itself, and better.
        let own = ToolServer::open(&settings, ua_core::system::env()).ok()?.introduction()?;
        Some(Foretold { server_info: own.server_info, capabilities: own.capabilities, tools: own.tools })
    })
}

/// Whether a program is the one that this process runs, and not another that it was told to start helpers as.
fn is_this(program: &Path) -> bool {
    std::env::current_exe().is_ok_and(|this| this == program)
}
