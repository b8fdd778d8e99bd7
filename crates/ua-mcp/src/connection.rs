//! One connection to one generation of a tool server, whatever it is reached over and whichever revision it speaks.

use std::sync::Arc;

use serde_json::{Map, Value};
use ua_core::{Env, Outcome};

use crate::dialect::Dialect;
use crate::effects::EffectUnderWay;
use crate::exchange::{Sending, Unanswered};
use crate::host::Host;
use crate::http::HttpConnection;
use crate::pages::Pages;
use crate::pipe::PipeConnection;
use crate::trace;
use crate::wire::DROPPED;

/// A connection that calls share. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) enum Connection {
    /// To a process, over its standard input and output.
    Pipe(PipeConnection),
    /// To an endpoint, over Streamable HTTP.
    Http(HttpConnection),
}

impl Connection {
    /// Why nothing more can be sent, if nothing can.
    pub(crate) fn ended(&self) -> Option<String> {
        match self {
            Self::Pipe(pipe) => pipe.ended(),
            Self::Http(http) => http.ended(),
        }
    }

    /// What was agreed on.
    pub(crate) fn dialect(&self) -> Arc<Dialect> {
        match self {
            Self::Pipe(pipe) => pipe.dialect(),
            Self::Http(http) => http.dialect(),
        }
    }

    /// Our side of it.
    pub(crate) fn host(&self) -> &Arc<Host> {
        match self {
            Self::Pipe(pipe) => pipe.host(),
            Self::Http(http) => http.host(),
        }
    }

    /// A call with an effect is under way over it until this is dropped. A server that is not ours is not ended for another call.
    pub(crate) fn effect(&self) -> Option<EffectUnderWay> {
        match self {
            Self::Pipe(pipe) => Some(pipe.effects().one()),
            Self::Http(_) => None,
        }
    }

    /// Asks something that changes nothing.
    pub(crate) async fn ask(&self, method: &'static str, params: Map<String, Value>) -> Result<Value, Unanswered> {
        match self {
            Self::Pipe(pipe) => pipe.ask(method, params).await,
            Self::Http(http) => http.ask(method, params).await,
        }
    }

    /// Lists everything of a kind, page by page, as it came. The error says what came instead.
    pub(crate) async fn all(&self, method: &'static str, field: &'static str) -> Result<Vec<Value>, String> {
        let mut all = Pages::of(field);
        let mut params = Map::new();
        loop {
            let mut page = self.ask(method, params.clone()).await.map_err(Unanswered::into_why)?;
            let Some(Value::Array(items)) = page.get_mut(field).map(Value::take) else {
                // One that is too large has come here as the sentence that says so.
                let text = page.pointer("/content/0/text").and_then(Value::as_str);
                let is_too_large = text.is_some_and(|text| text.contains(DROPPED));
                let why = if is_too_large { "it is too large".to_owned() } else { format!("it has no list `{field}`") };
                return Err(format!("its answer to {method} cannot be read: {why}"));
            };
            let next = page.get_mut("nextCursor").map(Value::take).unwrap_or_default();
            match all.add(items, next)? {
                Some(next) => params.insert("cursor".to_owned(), next),
                None => return Ok(all.into_items()),
            };
        }
    }

    /// Sends one request of a permitted attempt, once, and waits for its answer, at most for its time limit.
    pub(crate) async fn call(&self, sending: Sending, env: &Env) -> Outcome {
        match self {
            Self::Pipe(pipe) => {
                trace::goes_over("pipe", &self.dialect().version);
                pipe.call(sending, env).await
            }
            Self::Http(http) => {
                trace::goes_over("tcp", &self.dialect().version);
                http.call(sending, env).await
            }
        }
    }
}
