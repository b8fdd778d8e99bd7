//! How the released program is linked.

#![expect(clippy::disallowed_methods, reason = "cargo tells a build script by its environment")]

use std::env;
use std::process::Command;

/// The first C library that reads packed relocations.
const SINCE: (u32, u32) = (2, 36);

/// Where the compiler links with an LLD that it comes with.
const COMES_WITH_LLD: &str = "x86_64-unknown-linux-gnu";

/// Where the C library of this machine reads them, relocations are packed: they are a tenth of a program that has tables of functions for
/// everything it may lay out. Functions that came out the same are one where the linker is the compiler's own, which can do that. A program
/// for another machine is linked as ever.
fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let is = |name: &str, value: &str| env::var(name).is_ok_and(|found| found == value);
    let is_for_here = env::var("HOST").is_ok_and(|host| is("TARGET", &host));
    let is_released =
        is("PROFILE", "release") && is("CARGO_CFG_TARGET_OS", "linux") && is("CARGO_CFG_TARGET_ENV", "gnu");
    if is_released && is_for_here && c_library().is_some_and(|version| version >= SINCE) {
        println!("cargo::rustc-link-arg-bins=-Wl,-z,pack-relative-relocs");
    }
    if is_released && is_for_here && is("TARGET", COMES_WITH_LLD) && !has_its_own_linker() {
        println!("cargo::rustc-link-arg-bins=-Wl,--icf=all");
        // Constants and tables of functions as well, of which each crate has its own: nothing is told apart by where such a one is. With them,
        // more functions are the same. What can be written to is never joined.
        println!("cargo::rustc-link-arg-bins=-Wl,--ignore-data-address-equality");
    }
}

/// Whether somebody chose another linker.
fn has_its_own_linker() -> bool {
    let flags = env::var("CARGO_ENCODED_RUSTFLAGS").unwrap_or_default();
    let is_chosen = ["fuse-ld", "linker"].iter().any(|word| flags.contains(word));
    is_chosen || env::var_os("RUSTC_LINKER").is_some()
}

/// The version of this machine's C library: `getconf` says `glibc 2.36`.
fn c_library() -> Option<(u32, u32)> {
    let output = Command::new("getconf").arg("GNU_LIBC_VERSION").output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    let (major, minor) = text.trim().strip_prefix("glibc ")?.split_once('.')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}
