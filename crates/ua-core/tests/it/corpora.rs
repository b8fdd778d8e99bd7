//! The corpora of the fuzz targets about this crate, replayed.

#[path = "../../../../fuzz/bodies/canonical.rs"]
mod canonical;
#[path = "../../../../fuzz/bodies/job_file.rs"]
mod job_file;
#[path = "../../../../fuzz/bodies/redactor.rs"]
mod redactor;
#[path = "../../../../fuzz/bodies/replay.rs"]
mod replay;

#[test]
fn s17_no_job_file_makes_its_reader_fail_otherwise_than_by_an_error() {
    replay::replay("job_file", job_file::check);
}

#[test]
fn no_arguments_have_two_canonical_forms() {
    replay::replay("canonical", canonical::check);
}

#[test]
fn s3_no_text_keeps_a_secret() {
    replay::replay("redactor", redactor::check);
}
