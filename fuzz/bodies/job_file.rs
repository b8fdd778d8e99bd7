//! A job file is read or refused; what was read and written again is the same job.

use ua_core::RunSpec;

pub(crate) fn check(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Ok(spec) = RunSpec::parse(text) {
        let written = serde_json::to_string(&spec).unwrap_or_else(|e| panic!("a job can be written: {e}"));
        let again = RunSpec::parse(&written).unwrap_or_else(|e| panic!("what was written can be read: {e}\n{written}"));
        assert_eq!(again, spec);
    }
}
