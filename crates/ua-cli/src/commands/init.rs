//! `ua init`: a job, what plays its model, a policy and settings, which run offline as they are.

use std::path::{Path, PathBuf};

use clap::Args;
use ua_files::Folder;
use ua_host::placed::refuse_leading_out;

use crate::error::{HostError, OK};
use crate::output::{did, print, print_json};
use crate::view::ProjectMade;
use ua_core::ShowPath as _;

/// `ua init`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ua init                    in the current folder
  ua init tide-mills && cd tide-mills && ua job job.json

It writes job.json, job.script.json (which plays the model), policy.toml and ua.toml, and nothing if one of them exists.")]
pub struct InitArgs {
    /// The folder; created if it does not exist
    #[arg(default_value = ".", value_hint = clap::ValueHint::DirPath)]
    pub dir: PathBuf,
}

/// The files, and what each is.
pub(crate) const FILES: [(&str, &str, &str); 4] = [
    ("job.json", "the task, and how to check that it is done", include_str!("../init/job.json")),
    (
        "job.script.json",
        "a script that plays the model, so that the job runs offline",
        include_str!("../init/job.script.json"),
    ),
    ("policy.toml", "policy for the tools", include_str!("../init/policy.toml")),
    ("ua.toml", "settings of this project", include_str!("../init/ua.toml")),
];

/// The refusal of a folder in a place where none can be made.
fn nowhere(place: &str) -> HostError {
    HostError::storage(format!("cannot make the folder {place}: no folders can be made there"))
        .hint("choose another folder: `ua init DIR`")
}

#[expect(clippy::disallowed_methods, reason = "a person named the folder")]
pub(crate) fn run(args: &InitArgs) -> Result<u8, HostError> {
    let place = args.dir.shown().to_string();
    let fail = |doing: &str, error: std::io::Error| {
        HostError::storage(format!("cannot {doing} {place}: {error}")).hint("choose another folder: `ua init DIR`")
    };
    refuse_leading_out(&args.dir)?;
    if args.dir.metadata().is_ok_and(|there| !there.is_dir()) {
        return Err(HostError::usage(format!("{place} is a file, not a folder")).hint("name a folder: `ua init DIR`"));
    }
    std::fs::create_dir_all(&args.dir).map_err(|e| {
        // Some file systems say that nothing is there where nothing can be made (`/proc`).
        let is_refused = e.kind() == std::io::ErrorKind::NotFound;
        if is_refused { nowhere(&place) } else { fail("make the folder", e) }
    })?;
    let folder = Folder::open(&args.dir).map_err(|e| fail("open the folder", e))?;
    // All or nothing: a second `ua init` destroys nobody's job.
    let there: Vec<&str> = FILES.iter().map(|(name, ..)| *name).filter(|name| is_there(&args.dir, name)).collect();
    if !there.is_empty() {
        let whose = if place == "." { "in this folder".to_owned() } else { format!("in {place}") };
        return Err(HostError::usage(format!("these files exist already {whose}: {}", there.join(", ")))
            .hint("choose another folder: `ua init DIR`; nothing was written"));
    }
    for (name, _, text) in FILES {
        folder.replace(name, text.as_bytes()).map_err(|e| fail("write to", e))?;
    }
    did(format!("the files were created in {place}"));
    if crate::terminal::is_json() {
        let files = FILES.iter().map(|(name, ..)| args.dir.join(name)).collect();
        print_json(&ProjectMade { dir: args.dir.clone(), files })?;
        return Ok(OK);
    }
    let is_here = args.dir == Path::new(".");
    let mut out = format!("Created in {}:\n", if is_here { "the current folder" } else { &place });
    for (name, about, _) in FILES {
        out.push_str(&format!("  {name:<17}{about}\n"));
    }
    let go = if is_here { String::new() } else { format!("  cd {}\n", as_typed(&args.dir)) };
    out.push_str(&format!(
        "\nNext:\n{go}  ua job --check job.json   check what it would do, with which tools\n  ua job job.json           run it\n  \
         ua runs show last         show the result\n"
    ));
    print(out)?;
    Ok(OK)
}

/// A folder as `cd` takes it, typed into a shell.
fn as_typed(dir: &Path) -> String {
    // What begins like an option is none behind a folder.
    let is_option = dir.as_os_str().as_encoded_bytes().starts_with(b"-");
    if is_option { ua_core::shell_word(Path::new(".").join(dir)) } else { ua_core::shell_word(dir) }
}

/// Whether something has this name, a link that leads nowhere included.
fn is_there(dir: &Path, name: &str) -> bool {
    std::fs::symlink_metadata(dir.join(name)).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_folder_can_be_pasted() {
        for (dir, typed) in
            [("tide-mills", "tide-mills"), ("my dir", "'my dir'"), ("-x", "./-x"), ("it's", r"'it'\''s'")]
        {
            assert_eq!(as_typed(Path::new(dir)), typed);
        }
    }

    #[test]
    fn comments_of_a_new_project_fit_an_editor_window() {
        for (name, _, text) in FILES {
            let long = text.lines().find(|line| line.starts_with('#') && line.chars().count() > 100);
            assert_eq!(long, None, "{name}");
        }
    }
}
