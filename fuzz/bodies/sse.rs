//! A stream of events is never two replies, however it is cut into pieces, and nothing that was cut short is a reply.
//!
//! What is broken behind the end of a message may be found before the message is handed out, when both came in one piece: then it is an
//! error, and in smaller pieces a reply. It is never another reply.

use ua_llm::fuzzing::read_reply;

pub(crate) fn check(data: &[u8]) {
    let whole = read_reply(data, data.len().max(1)).ok();
    let pieces: Vec<_> = [1, 2, 7, 64].into_iter().map(|piece| read_reply(data, piece).ok()).collect();
    if whole.is_some() {
        assert!(pieces.iter().all(|reply| *reply == whole), "{whole:?} {pieces:?}");
    }
    let replies: Vec<_> = pieces.into_iter().flatten().collect();
    assert!(replies.windows(2).all(|two| two[0] == two[1]), "{replies:?}");
    // The end of the message is what makes a reply of it, or an error that says that the model refused to answer.
    let is_refused =
        |reply: &ua_core::ModelTurn| reply.stop_reason == ua_core::StopReason::Refusal && reply.blocks.is_empty();
    let has_ended = data.windows(12).any(|window| window == b"message_stop");
    assert!(has_ended || replies.iter().all(is_refused), "{replies:?}");
}
