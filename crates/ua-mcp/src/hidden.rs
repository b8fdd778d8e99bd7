//! Keeps what a process was given from the tool servers that it starts.

use std::io;

/// Keeps the environment of this process, with the keys in it, its memory and its open files from other processes of its user, as if it were
/// another user's (root reads everything). A program that it starts is open again. The system writes no core dump of it either, and lets no
/// debugger of this user look into it; what this process writes about itself in `/proc`, only root can.
///
/// Where a system has no such wall, this does nothing.
///
/// # Errors
///
/// The system refuses it.
pub fn hide_from_others() -> io::Result<()> {
    #[cfg(target_os = "linux")]
    rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable)?;
    Ok(())
}
