//! The corpus of the fuzz target `terminal`, replayed.

use crate::escape;

#[path = "../../../fuzz/bodies/terminal.rs"]
mod body;
#[expect(clippy::disallowed_methods, reason = "it reads the corpora of this checkout")]
#[path = "../../../fuzz/bodies/replay.rs"]
mod replay;

#[test]
fn s16_no_text_drives_a_terminal() {
    replay::replay("terminal", body::check);
}
