//! What fuzz targets call; no part of this crate's promise.

use ua_core::ModelTurn;

use crate::error::LlmError;

/// Reads one streamed reply that arrives in pieces of `piece` bytes.
///
/// # Errors
/// What is wrong with the stream.
pub fn read_reply(bytes: &[u8], piece: usize) -> Result<ModelTurn, LlmError> {
    crate::http::events::read_in_pieces(bytes, piece, crate::anthropic::Assembler::default())
}
