//! Objects in a directory of this machine.

use std::path::{Path, PathBuf};

use url::Url;

use super::{Uploaded, object_name};
use crate::answer::Failure;
use crate::area::{Area, Created, STAGED};
use crate::digest::copy_hashing;
use crate::regular;
use crate::sent::Leaving;
use ua_core::ShowPath as _;

const LOCK: &str = ".lock";

pub(super) fn put(root: &Path, name: &str, file: Leaving, destination: Option<&str>) -> Result<Uploaded, Failure> {
    let could_not =
        |error: &std::io::Error| Failure::io(format_args!("write to the object store {}", root.shown()), error);
    let below = destination.map_or_else(|| Ok(PathBuf::new()), |text| below(root, text))?;
    let area = Area::open_store(root).map_err(|error| could_not(&error))?;
    let _lock = area.lock(Path::new(LOCK)).map_err(|error| could_not(&error))?;
    area.create_dirs(&below).map_err(|error| could_not(&error))?;

    // The name depends on the content, so the content is staged under a name of its own and hashed on the way.
    let (staged, (sha256, bytes)) = area
        .stage(below.join(format!("{STAGED}upload")), |temp| file.copy(temp))
        .map_err(|error| error.into_failure(format_args!("write to the object store {}", root.shown())))?;
    let object = below.join(object_name(&sha256, name));
    let created = staged
        .create(&object)
        .map_err(|error| error.into_failure(format_args!("name the object {}", area.path().join(&object).shown())))?;
    if created == Created::Before {
        let (theirs, _) = area
            .dir()
            .open(&object)
            .and_then(|mut found| copy_hashing(&mut found, &mut std::io::sink()))
            .map_err(|error| could_not(&error))?;
        if theirs != sha256 {
            return Err(Failure::refused(
                format!("an object with other content has the name {}", object.shown()),
                "objects are never replaced: rename the file, or ask a person to look at the store",
            ));
        }
    }
    let url = address(&area.path().join(&object))?;
    Ok(Uploaded { url, sha256, bytes, already_present: created == Created::Before })
}

/// Puts a file under a name of the caller's choice, in the place of what has it; its address, SHA-256 and length.
pub(super) fn put_at(root: &Path, path: &str, file: Leaving) -> Result<(String, String, u64), Failure> {
    let could_not =
        |error: &std::io::Error| Failure::io(format_args!("write to the object store {}", root.shown()), error);
    let area = Area::open_store(root).map_err(|error| could_not(&error))?;
    let _lock = area.lock(Path::new(LOCK)).map_err(|error| could_not(&error))?;
    let (sha256, bytes) = area
        .replace_with(Path::new(path), |temp| file.copy(temp))
        .map_err(|error| error.into_failure(format_args!("write to the object store {}", root.shown())))?;
    Ok((address(&area.path().join(path))?, sha256, bytes))
}

/// Opens the file that was put under that name, and its address.
pub(super) fn open_at(root: &Path, path: &str) -> Result<(String, cap_std::fs::File), Failure> {
    let missing = || {
        let hint = "check the name; workbench_upload says what it was called";
        Failure::refused(format!("there is no object {path}"), hint)
    };
    let area = Area::open_store(root)
        .map_err(|error| Failure::io(format_args!("open the object store {}", root.shown()), &error))?;
    let (file, metadata) = regular::open(area.dir(), Path::new(path)).map_err(|error| {
        let is_missing = error.kind() == std::io::ErrorKind::NotFound;
        if is_missing {
            missing()
        } else {
            Failure::io(format_args!("read {path:?} in the object store {}", root.shown()), &error)
        }
    })?;
    if !metadata.is_file() {
        return Err(missing());
    }
    Ok((address(&area.path().join(path))?, file))
}

fn address(path: &Path) -> Result<String, Failure> {
    let url = Url::from_file_path(path);
    url.map(String::from).map_err(|()| Failure::Unclear(format!("{} has no URL", path.shown())))
}

/// The path below the store that `destination` names.
fn below(root: &Path, destination: &str) -> Result<PathBuf, Failure> {
    let asked = directory_of(destination)?;
    let resolved = root.canonicalize().unwrap_or_else(|_| root.to_path_buf());
    let relative = [root, &resolved].iter().find_map(|root| asked.strip_prefix(root).ok().map(Path::to_path_buf));
    relative.filter(|path| path.components().all(|part| matches!(part, std::path::Component::Normal(_)))).ok_or_else(
        || {
            Failure::refused(
                format!("{destination:?} is not inside the object store"),
                format!(
                    "leave destination out, or name a directory below {}",
                    Url::from_directory_path(&resolved).map_or_else(|()| "it".to_owned(), String::from)
                ),
            )
        },
    )
}

/// The directory that a file:// URL names.
pub(super) fn directory_of(text: &str) -> Result<PathBuf, Failure> {
    let url = Url::parse(text).map_err(|error| {
        Failure::refused(format!("{text:?} is not a URL: {error}"), "give the file:// URL of a directory")
    })?;
    match url.scheme() {
        "file" => url.to_file_path().map_err(|()| {
            Failure::refused(format!("{text:?} names no directory of this machine"), "give file:///path/to/directory")
        }),
        scheme => Err(Failure::refused(
            format!("{scheme}:// names no directory of this machine"),
            "give the file:// URL of a directory",
        )),
    }
}
