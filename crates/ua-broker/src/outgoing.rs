//! What goes to a client, and how much of it is carried.

use std::io;

use serde_json::{Value, json};

/// The longest answer that is handed to a bridge, which carries lines of 64 MiB with its own words in front of them.
pub(crate) const MOST_CARRIED: usize = 64 * 1024 * 1024 - 64 * 1024;

/// What goes to the client.
#[derive(Debug)]
pub(crate) enum ToClient {
    /// The answer to the request of this name; `None` when the client wants none any more.
    Answer { name: String, answer: Option<Value> },
    /// Anything else, with the request that it is about, where there is one.
    Tell { message: Value, about: Option<String> },
}

/// How many bytes a value has as text.
pub(crate) fn length(value: &Value) -> usize {
    struct Count(usize);
    impl io::Write for Count {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0 += bytes.len();
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let mut count = Count(0);
    // Nothing in it fails: a value is JSON, and counting takes all.
    let _counted = serde_json::to_writer(&mut count, value);
    count.0
}

/// What a request is answered with that has no result.
pub(crate) fn error(code: i64, message: &str, data: Value) -> Value {
    let mut error = json!({"error": {"code": code, "message": message}});
    if !data.is_null() {
        error["error"]["data"] = data;
    }
    error
}
