//! The corpora of the fuzz targets about this crate, replayed.

#[path = "../../../../fuzz/bodies/policy_file.rs"]
mod policy_file;
#[path = "../../../../fuzz/bodies/replay.rs"]
mod replay;

#[test]
fn no_policy_file_makes_its_reader_fail_otherwise_than_by_an_error() {
    replay::replay("policy_file", policy_file::check);
}
