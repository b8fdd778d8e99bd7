//! The corpora of the fuzz targets about this crate, replayed.

#[path = "../../../../fuzz/bodies/checkpoint.rs"]
mod checkpoint;
#[path = "../../../../fuzz/bodies/replay.rs"]
mod replay;

#[test]
fn s2_no_stored_checkpoint_makes_its_reader_fail_otherwise_than_by_an_error() {
    replay::replay("checkpoint", checkpoint::check);
}
