//! The same attacks once more as a user without rights: root may look into everything and is kept from little, so much of what is promised can be
//! seen by somebody else alone. The harness itself runs as that user, with copies of the programs that it can read.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::process::Command;

use anyhow::{Context as _, ensure};

use crate::scenario::Options;

/// Plays those of the attacks that are chosen as `user`.
///
/// # Errors
/// It cannot be done, or a verdict is not the expected one.
pub(super) fn play(user: &str, options: &Options) -> anyhow::Result<()> {
    ensure!(rustix::process::geteuid().is_root(), "only root can play the attacks as another user");
    let [uid, gid] = [id("-u", user)?, id("-g", user)?];
    ensure!(uid != 0, "{user} is root");
    // Paths of sockets have little room, so these are short.
    let folder = tempfile::Builder::new().prefix("ua-as-").tempdir().context("make a folder")?;
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755))?;
    let (ua, own, work) = (folder.path().join("ua"), folder.path().join("xtask"), folder.path().join("w"));
    for (from, to) in [(options.program()?, &ua), (std::env::current_exe().context("find this program")?, &own)] {
        fs::copy(&from, to).with_context(|| format!("copy {}", from.display()))?;
        fs::set_permissions(to, fs::Permissions::from_mode(0o755))?;
    }
    fs::create_dir(&work)?;
    fs::set_permissions(&work, fs::Permissions::from_mode(0o700))?;
    chown(&work, Some(uid), Some(gid))?;
    println!("as {user} (uid {uid}):");
    let status = Command::new("setpriv")
        .arg(format!("--reuid={uid}"))
        .arg(format!("--regid={gid}"))
        .args(["--clear-groups", "--inh-caps=-all", "--"])
        .arg(&own)
        .args(["attacks", "--ua"])
        .arg(&ua)
        .args(options.once_more())
        .current_dir(&work)
        .env("HOME", &work)
        .env("TMPDIR", &work)
        .status()
        .context("run setpriv")?;
    ensure!(status.success(), "as {user}, not every attack is as expected");
    Ok(())
}

fn id(which: &str, user: &str) -> anyhow::Result<u32> {
    let output = Command::new("id").args([which, "--", user]).output().context("run id")?;
    ensure!(output.status.success(), "there is no user {user}");
    String::from_utf8_lossy(&output.stdout).trim().parse().with_context(|| format!("read the number of {user}"))
}
