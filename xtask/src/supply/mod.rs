//! What this program is made of: the bill of materials, and what may stand in a lock file.

pub(crate) mod lockfile;
pub(crate) mod sbom;
