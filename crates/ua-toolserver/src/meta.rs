//! The `_meta` fields that this server and a durable runner understand (Durable Jobs v1 spec §8.2).

/// The request `_meta` field in which an idempotency key arrives (Durable Jobs v1 spec §8.2).
pub const IDEMPOTENCY_KEY: &str = "dev.universal-agent/idempotency-key";

/// The request `_meta` field that names the run a call belongs to (Durable Jobs v1 spec §8.2). `crawl_parallel` takes
/// pages that the same run has stored before from their copies.
pub const RUN_ID: &str = "dev.universal-agent/run-id";

/// The request `_meta` field that counts the attempts at one call, from 1. A durable runner holds a call whose transport
/// cannot repeat it safely, so there a later attempt means that a person ordered it.
pub const ATTEMPT: &str = "dev.universal-agent/attempt";

/// The `_meta` field of a tool in `tools/list` that says whether two calls under one idempotency key are one effect.
pub const HONOURS_KEYS: &str = "dev.universal-agent/honours-keys";

/// The `_meta` field of a tool in `tools/list` that says for how many seconds an idempotency key is honoured.
pub const KEY_TTL_SECONDS: &str = "dev.universal-agent/key-ttl-seconds";

/// The `_meta` field of a tool in `tools/list` that says that it reads addresses, those in its arguments or others. A durable runner asks
/// before such a read carries something away.
pub const FETCHES: &str = "dev.universal-agent/fetches";

/// The request `_meta` field that says what the files hold that the call sends: an object with their SHA-256 by place in the arguments
/// (`attachments[0]`). What is sent then is that or nothing; a file that the object does not name is not sent.
pub const FILES: &str = "dev.universal-agent/files";

/// The `_meta` field of a refusal that names the files, as the arguments call them, which were not what [`FILES`] says. Nothing was sent.
pub const CHANGED_FILES: &str = "dev.universal-agent/changed-files";
