//! Capabilities: what the kernel lets a program do besides, because its user is root.
//!
//! In namespaces of its own most of them reach nothing outside, but what is written into a file does: a file with capabilities of its own
//! (`CAP_SETFCAP`) in the workspace gives them to whoever runs it later, on the machine itself where the program's root is the machine's. Where the
//! kernel makes no namespaces they are the machine's as they are: its firewall, its clock, its modules. So a program of root keeps one, by which its
//! own files open whatever their modes say, and nobody else's program keeps any, however its user came by it.
//!
//! Invariants: nothing that the program starts gets one back, by `exec` or as somebody else. In a user namespace that it makes for itself it has all
//! of them, over nothing but that namespace: the kernel maps no user there as whom a file could get capabilities that count outside.

use rustix::thread::{CapabilitySet, CapabilitySets};

/// What a program of root keeps.
const KEPT: CapabilitySet = CapabilitySet::DAC_OVERRIDE;

/// Takes all others from this process, and from what it starts.
pub(super) fn give_up() -> Result<(), String> {
    take_away().map_err(|error| format!("its capabilities cannot be taken away: {error}"))
}

/// Takes from this thread what `exec` would hand on beside that; a kernel that knows no such set has nothing in it.
pub(super) fn clear_ambient() -> rustix::io::Result<()> {
    match rustix::thread::clear_ambient_capability_set() {
        Err(rustix::io::Errno::INVAL) => Ok(()),
        done => done,
    }
}

fn take_away() -> rustix::io::Result<()> {
    let has = rustix::thread::capabilities(None)?;
    let kept = if rustix::process::geteuid().is_root() { KEPT } else { CapabilitySet::empty() };
    clear_ambient()?;
    // What a program gets by `exec`. Who may not change it has little in it, and keeps by `no_new_privs` no more than it has.
    if has.effective.contains(CapabilitySet::SETPCAP) {
        for one in (0..u64::BITS).map(|number| CapabilitySet::from_bits_retain(1 << number)) {
            if kept.contains(one) {
                continue;
            }
            match rustix::thread::remove_capability_from_bounding_set(one) {
                // The kernel knows no more.
                Err(rustix::io::Errno::INVAL) => break,
                done => done?,
            }
        }
    }
    let (effective, permitted) = (has.effective & kept, has.permitted & kept);
    rustix::thread::set_capabilities(None, CapabilitySets { effective, permitted, inheritable: CapabilitySet::empty() })
}
