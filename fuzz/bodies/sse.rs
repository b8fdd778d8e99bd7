//! A stream of events is one reply however it is cut into pieces, and nothing that was cut short is a reply.

use ua_llm::fuzzing::read_reply;

pub(crate) fn check(data: &[u8]) {
    let whole = read_reply(data, data.len().max(1));
    for piece in [1, 2, 7, 64] {
        let pieces = read_reply(data, piece);
        assert_eq!(pieces.as_ref().ok(), whole.as_ref().ok(), "in pieces of {piece}");
    }
    if let Ok(turn) = whole {
        // The end of the message is what makes a reply of it.
        assert!(data.windows(12).any(|window| window == b"message_stop"), "{turn:?}");
    }
}
