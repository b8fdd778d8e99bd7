//! The built-in MCP tool server: files, images, crawl, HTML, upload, e-mail, notify, memory, command.
//!
//! An agent job needs a few tools that are safe to resume. These are: each either changes nothing, replaces its output
//! in one step, or makes its effect exactly once per idempotency key, which arrives in the request's
//! `_meta["dev.universal-agent/idempotency-key"]` (Durable Jobs v1 spec §8.2, §8.3). They work in one directory, the
//! *workspace*, and cannot leave it.
//!
//! | tool | effect | asked again with the same key |
//! |---|---|---|
//! | `read_local_file`, `list_directory` | none | reads again |
//! | `write_local_file`, `render_html`, `render_pdf`, `compress_files`, `crawl_parallel` | replaces files in the workspace | replaces them again |
//! | `append_to_file` | adds to a file | completes the first append, once |
//! | `preview_image` | shows a small copy of an image, or replaces a file by it | does so again |
//! | `describe_image`, `generate_image` | asks a paid API; a new file | finds the answer that was paid for; see below |
//! | `workbench_upload`, `workbench_download` | replaces a shared object, or a file by it | replaces it again by the same |
//! | `upload_to_composio` | creates a file at Composio | puts the same bytes under the same name |
//! | `upload` | creates an object named by its content | finds it already there |
//! | `send_email` | sends one message: Maildir, SMTP, or a Resend-like API | what the transport can promise, see below |
//! | `notify` | creates one notification, or posts it with an `Idempotency-Key` | finds it there; the receiver decides |
//! | `core_memory_append`, `core_memory_replace`, `archival_memory_insert` | changes the memory, a SQLite file | finds the key beside the first change |
//! | `get_core_memory_blocks`, `archival_memory_search` | none | reads again |
//! | `run_command` | whatever the program does, confined ([`Sandbox`]) | runs it again; listed only when enabled |
//!
//! Not every transport can make an effect once. What the chosen one promises is declared in `tools/list`:
//! `_meta["dev.universal-agent/honours-keys"]` is true when a call may be sent again under its key, and
//! `_meta["dev.universal-agent/key-ttl-seconds"]` says for how long when the provider forgets keys. Bare SMTP (without `--mail-probe`) and a webhook that is not known
//! to honour keys declare false, and a durable runner holds such a call when its outcome is unknown.
//!
//! An answer with `isError: true` means that the effect did not happen. What cannot be told (a full disk at the
//! wrong moment, a cut connection after a request left) is a JSON-RPC error −32603, which a durable runner reads as
//! "outcome unknown".
//!
//! A caller that has decided about the files of a call says what they hold (`_meta["dev.universal-agent/files"]`). What leaves then is exactly
//! that; where a file is another one by now, the call is refused, and `_meta["dev.universal-agent/changed-files"]` of the refusal names it.
//!
//! Standard output belongs to the protocol; logging goes through `tracing`.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
//! use ua_toolserver::{Settings, ToolServer};
//!
//! # let directory = std::env::temp_dir().join(format!("ua-toolserver-doc-{}", std::process::id()));
//! let server = ToolServer::open(&Settings::in_workspace(&directory), ua_core::system::env())?;
//! let (ours, theirs) = tokio::io::duplex(4096);
//! let (read, write) = tokio::io::split(theirs);
//! let serving = tokio::spawn(server.serve(read, write));
//!
//! let (read, mut write) = tokio::io::split(ours);
//! let hello = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25",
//!     "capabilities":{},"clientInfo":{"name":"doc","version":"1"}}}"#.replace('\n', "");
//! write.write_all(format!("{hello}\n").as_bytes()).await?;
//! let answer = BufReader::new(read).lines().next_line().await?.unwrap_or_default();
//! assert!(answer.contains("ua-toolserver"));
//! # serving.abort();
//! # std::fs::remove_dir_all(&directory)?;
//! # Ok(())
//! # }
//! ```
//!
//! # The order of the modules
//!
//! A module uses only what stands on floors below its own; `tests/it/arrows.rs` compares this page with the sources. A
//! tool is one file of `tools` that implements `Tool` (`tool.rs`) and one line in its list (`tools.rs`).
//!
//! ```text
//! serve
//! http
//! server   events   alert
//! tools
//! tool   record
//! context
//! sent
//! settings   workspace
//! area
//! confine   place   regular   seal   secrets   trace   web
//! answer   digest   error   media   schema
//! meta   names   page_reader
//! ```

mod alert;
mod answer;
mod area;
mod confine;
mod context;
mod digest;
mod error;
mod events;
mod http;
mod media;
mod meta;
mod names;
mod page_reader;
mod place;
mod record;
mod regular;
mod schema;
mod seal;
mod secrets;
mod sent;
mod serve;
mod server;
mod settings;
mod tool;
mod tools;
mod trace;
mod web;
mod workspace;

pub use alert::post_alert;
pub use confine::{Confiner, Limits, Offers, Sandbox, run_confined};
pub use error::ToolServerError;
pub use http::HttpServer;
pub use meta::{ATTEMPT, CHANGED_FILES, FETCHES, FILES, HONOURS_KEYS, IDEMPOTENCY_KEY, KEY_TTL_SECONDS, RUN_ID};
pub use page_reader::PageReader;
pub use place::{Holds, look as look_at};
pub use seal::{COPY_KEY, copy_key};
pub use secrets::Secrets;
pub use serve::{serve, serve_stdio};
pub use server::{Introduction, ToolServer, tool_names};
pub use settings::{Settings, environment, make_absolute, path_variables, variables};
pub use tools::{clear_temporary_folders, receivers, serve_page, shaped_by};
pub use trace::AdoptParent;
