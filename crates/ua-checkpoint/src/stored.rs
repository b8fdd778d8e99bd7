//! Reading a stored part: its version first, then its shape.

use serde::de::DeserializeOwned;
use serde_json::Value;
use ua_core::CheckpointId;

use crate::CheckpointError;

/// The versions this build reads.
pub(crate) const KNOWN: [&str; 1] = ["1"];

/// Reads one part of the marker `id`. The version is looked at by itself, because "unknown version" asks the operator for
/// another build while "wrong shape" says that the row is damaged.
pub(crate) fn read<T: DeserializeOwned>(
    id: &CheckpointId,
    part: &'static str,
    value: &Value,
) -> Result<T, CheckpointError> {
    let version = value.get("version").unwrap_or(&Value::Null);
    if !version.as_str().is_some_and(|version| KNOWN.contains(&version)) {
        let version = version.as_str().map_or_else(|| version.to_string(), str::to_owned);
        return Err(CheckpointError::UnknownVersion { checkpoint: id.clone(), part, version });
    }
    T::deserialize(value).map_err(|e| CheckpointError::Malformed { checkpoint: id.clone(), part, why: e.to_string() })
}
