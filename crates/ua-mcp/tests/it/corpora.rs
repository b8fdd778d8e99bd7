//! The corpora of the fuzz targets about this crate, replayed.

#[path = "../../../../fuzz/bodies/mcp_config.rs"]
mod mcp_config;
#[expect(clippy::disallowed_methods, reason = "it reads the corpora of this checkout")]
#[path = "../../../../fuzz/bodies/replay.rs"]
mod replay;

#[test]
fn s9_no_configuration_makes_its_reader_fail_otherwise_than_by_an_error() {
    replay::replay("mcp_config", mcp_config::check);
}
