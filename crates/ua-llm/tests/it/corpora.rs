//! The corpora of the fuzz targets about this crate, replayed.

#[path = "../../../../fuzz/bodies/replay.rs"]
#[expect(clippy::disallowed_methods, reason = "tests make the files that they look at")]
mod replay;
#[path = "../../../../fuzz/bodies/sse.rs"]
mod sse;

#[test]
fn s15_no_stream_makes_its_reader_fail_otherwise_than_by_an_error() {
    replay::replay("sse", sse::check);
}
