//! Crash plans, wrapped seams, a scripted model server and a world that counts effects

mod model_server;

pub use model_server::{Fault, FaultKind, ModelServer, ModelServerConfig, RequestRecord, serve_forever};
