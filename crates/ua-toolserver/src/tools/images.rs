//! Images: a small copy to look at, words for one, and new ones, by an API that a person configured and pays for.
//!
//! What costs money is never repeated silently. A request that was answered is known by its key and is not sent again; one
//! whose answer was lost is sent again only by order of a person, or where the API honours keys (Durable Jobs v1 spec §8.3).

mod api;
mod decode;
pub(super) mod describe;
pub(super) mod generate;
pub(super) mod preview;
