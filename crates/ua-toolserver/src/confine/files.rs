//! Files: what a program can open, by Landlock. Whatever is not named here is closed to it.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access as _, AccessFs, AccessNet, BitFlags, LandlockStatus, Ruleset, RulesetAttr as _, RulesetCreated,
    RulesetCreatedAttr as _, RulesetError, RulesetStatus, Scope, path_beneath_rules,
};

use super::Confinement;

/// The newest version of the interface that is known here; an older kernel keeps what it knows of it.
const NEWEST: ABI = ABI::V9;

/// What belongs to the machine and not to a user. `/etc` is opened entry by entry.
const SYSTEM: &[&str] = &[
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/opt",
    "/nix/store",
    "/snap",
    "/run/current-system",
    "/var/cache/fontconfig",
    "/var/lib/texmf",
    "/proc",
];
/// What of the machine's own tree a program asks about: processors, memory, its limits. Root, who may read all of it, gets this much.
const MACHINE: &[&str] = &["/sys/devices/system", "/sys/fs/cgroup", "/sys/kernel/mm/transparent_hugepage"];
/// Where the addresses of name servers are, which `/etc/resolv.conf` often points to.
const NAME_SERVERS: &[&str] = &["/run/systemd/resolve", "/run/resolvconf", "/run/NetworkManager"];
/// Devices that hold nothing of anybody.
const DEVICES: &[&str] = &["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty"];

/// Closes to this process, and to what it starts, whatever the confinement does not open. Nothing where the kernel has no Landlock.
pub(super) fn restrict(confinement: &Confinement) -> Result<(), String> {
    if confinement.offers.landlock == 0 {
        nix::sys::prctl::set_no_new_privs().map_err(|error| error.to_string())?;
        return Ok(());
    }
    let status = enforce(confinement).map_err(|error| format!("its files cannot be closed: {error}"))?;
    if status == RulesetStatus::NotEnforced {
        return Err("its files cannot be closed any more".to_owned());
    }
    Ok(())
}

fn enforce(confinement: &Confinement) -> Result<RulesetStatus, RulesetError> {
    let mut ruleset = Ruleset::default().handle_access(AccessFs::from_all(NEWEST))?.scope(Scope::from_all(NEWEST))?;
    if !confinement.network {
        ruleset = ruleset.handle_access(AccessNet::BindTcp | AccessNet::ConnectTcp)?;
    }
    let private = &confinement.private;
    let system = SYSTEM.iter().map(Path::new).flat_map(|folder| open_below(folder, private));
    let is_root = rustix::process::geteuid().is_root();
    let machine = if is_root { MACHINE } else { &["/sys"] };
    let machine = machine.iter().map(PathBuf::from);
    // The kernel keeps everybody else from what only root may read, at every depth.
    let configuration = if is_root { readable_by_others(Path::new("/etc"), 0).1 } else { children(Path::new("/etc")) };
    let named = confinement.read.iter().flat_map(|folder| open_below(folder, private));
    let names = NAME_SERVERS.iter().filter(|_| confinement.network).map(PathBuf::from);
    let readable: Vec<PathBuf> = system.chain(machine).chain(configuration).chain(named).chain(names).collect();
    let ruleset = open(ruleset.create()?, &readable, AccessFs::from_read(NEWEST))?;
    let devices: Vec<PathBuf> = DEVICES.iter().map(PathBuf::from).collect();
    let ruleset = open(ruleset, &devices, AccessFs::ReadFile | AccessFs::WriteFile)?;
    let no_devices = AccessFs::MakeChar | AccessFs::MakeBlock | AccessFs::IoctlDev;
    let ruleset = open(ruleset, &confinement.write, AccessFs::from_all(NEWEST) & !no_devices)?;
    Ok(ruleset.restrict_self()?.ruleset)
}

fn open(
    ruleset: RulesetCreated,
    paths: &[PathBuf],
    access: BitFlags<AccessFs>,
) -> Result<RulesetCreated, RulesetError> {
    // What is not there on this machine is passed over.
    ruleset.add_rules(path_beneath_rules(paths, access))
}

/// `folder`, or as much of it as has nothing private in it.
fn open_below(folder: &Path, private: &[PathBuf]) -> Vec<PathBuf> {
    let Ok(folder) = folder.canonicalize() else { return Vec::new() };
    if private.contains(&folder) {
        return Vec::new();
    }
    if !private.iter().any(|path| path.starts_with(&folder)) {
        return vec![folder];
    }
    // A link in here leads to what has a name of its own, or to something private.
    let inner = children(&folder).into_iter().filter(|path| !path.is_symlink());
    inner.flat_map(|path| open_below(&path, private)).collect()
}

fn children(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).collect()
}

/// How deep a folder of configuration is looked through.
const DEPTH: u32 = 16;

/// Whether everybody on this machine may read all of `path`; and as few paths as there are that are open to everybody and nothing else.
fn readable_by_others(path: &Path, depth: u32) -> (bool, Vec<PathBuf>) {
    let Ok(meta) = std::fs::symlink_metadata(path) else { return (true, Vec::new()) };
    // A link opens nothing by itself: what it leads to has a place of its own.
    if meta.is_symlink() {
        return (true, Vec::new());
    }
    let mode = meta.permissions().mode();
    let is_open = mode & 0o004 != 0 && (!meta.is_dir() || mode & 0o001 != 0);
    if !is_open || depth > DEPTH {
        return (false, Vec::new());
    }
    if !meta.is_dir() {
        return (true, vec![path.to_path_buf()]);
    }
    let (mut all, mut inner) = (true, Vec::new());
    for child in children(path) {
        let (whole, paths) = readable_by_others(&child, depth + 1);
        all &= whole;
        inner.extend(paths);
    }
    if all { (true, vec![path.to_path_buf()]) } else { (false, inner) }
}

/// The version of Landlock's interface that the kernel has, found by closing a process that is about to end; 0 where there is none.
pub(super) fn version() -> i32 {
    let tried = Ruleset::default().handle_access(AccessFs::from_all(ABI::V1)).and_then(Ruleset::create);
    match tried.and_then(RulesetCreated::restrict_self).map(|status| status.landlock) {
        Ok(LandlockStatus::Available { effective_abi, kernel_abi }) => kernel_abi.unwrap_or(effective_abi as i32),
        Ok(LandlockStatus::NotEnabled | LandlockStatus::NotImplemented) | Err(_) => 0,
    }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "tests make the files that they look at")]
mod tests {
    use super::*;

    #[test]
    fn what_only_root_reads_is_left_out_at_every_depth() {
        let etc = tempfile::TempDir::new().unwrap();
        let etc = etc.path().canonicalize().unwrap();
        for (file, mode) in [("open/a", 0o644), ("open/b", 0o644), ("ssl/certs/c", 0o644), ("ssl/private/key", 0o640)] {
            std::fs::create_dir_all(etc.join(file).parent().unwrap()).unwrap();
            std::fs::write(etc.join(file), "").unwrap();
            std::fs::set_permissions(etc.join(file), std::fs::Permissions::from_mode(mode)).unwrap();
        }
        for (folder, mode) in
            [("", 0o755), ("open", 0o755), ("ssl", 0o755), ("ssl/certs", 0o755), ("ssl/private", 0o755)]
        {
            std::fs::set_permissions(etc.join(folder), std::fs::Permissions::from_mode(mode)).unwrap();
        }
        let (all, mut paths) = readable_by_others(&etc, 0);
        paths.sort();
        assert_eq!((all, paths), (false, vec![etc.join("open"), etc.join("ssl/certs")]));
        std::fs::set_permissions(etc.join("ssl/private/key"), std::fs::Permissions::from_mode(0o644)).unwrap();
        assert_eq!(readable_by_others(&etc, 0), (true, vec![etc.clone()]));
        std::fs::set_permissions(etc.join("ssl/private"), std::fs::Permissions::from_mode(0o710)).unwrap();
        assert!(!readable_by_others(&etc, 0).0);
    }

    #[test]
    fn a_folder_is_opened_around_what_is_private_in_it() {
        let home = tempfile::TempDir::new().unwrap();
        let home = home.path().canonicalize().unwrap();
        for file in ["job/data.csv", "job/runs/runtime_state.db", "job/scripts/a.sh", ".ssh/id"] {
            std::fs::create_dir_all(home.join(file).parent().unwrap()).unwrap();
            std::fs::write(home.join(file), "").unwrap();
        }
        std::os::unix::fs::symlink(home.join(".ssh"), home.join("job/link")).unwrap();
        let private = [home.clone(), home.join("job/runs")];
        let mut opened = open_below(&home.join("job"), &private);
        opened.sort();
        assert_eq!(opened, [home.join("job/data.csv"), home.join("job/scripts")]);
        assert_eq!(open_below(&home, &private), [""; 0].map(PathBuf::from));
        assert_eq!(open_below(&home.join(".ssh"), &private), [home.join(".ssh")]);
        assert_eq!(open_below(&home.join("gone"), &private), [""; 0].map(PathBuf::from));
    }
}
