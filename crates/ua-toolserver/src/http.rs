//! The same server over Streamable HTTP, for clients that do not start it themselves.
//!
//! Durable Jobs v1 spec §3. Whoever reaches the address and has the token uses the tools: every user of a machine reaches its
//! own addresses. It is one of this machine unless the settings say otherwise; web pages are kept out by their `Host` and `Origin`. A call goes on when its client is
//! cut off, and its answer is kept for the client to come back for ([`crate::events`]).

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue, WWW_AUTHENTICATE};
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use rmcp::transport::StreamableHttpServerConfig;
use rmcp::transport::streamable_http_server::StreamableHttpService;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use secrecy::{ExposeSecret, SecretString};
use sha2::{Digest, Sha256};
use tokio::net::TcpListener;
use ua_core::Env;

use crate::error::ToolServerError;
use crate::events::Events;
use crate::server::ToolServer;
use crate::settings::Settings;

/// The one path that is served.
const PATH: &str = "/mcp";
/// How long a session without traffic is kept. Long, because a tool may run for hours without a word.
const SESSION_LIFE: Duration = Duration::from_hours(24);
/// When a client that was cut off is told to come back for its answer.
const COME_BACK: Duration = Duration::from_secs(1);
/// How long to wait when no connection can be taken (usually: too many open files).
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);

type Body = BoxBody<Bytes, std::convert::Infallible>;

/// A tool server that listens on an address.
pub struct HttpServer {
    listener: TcpListener,
    address: SocketAddr,
    door: Arc<Door>,
    env: Env,
}

/// What every request passes.
struct Door {
    token: SecretString,
    service: StreamableHttpService<ToolServer, LocalSessionManager>,
}

impl HttpServer {
    /// Opens the workspace and listens on `address`; port 0 takes a free one.
    ///
    /// # Errors
    ///
    /// What [`ToolServer::open`] says; the address is not one of this machine and the settings do not allow that; there is
    /// no token; the address is taken.
    pub async fn bind(settings: &Settings, address: SocketAddr, env: Env) -> Result<Self, ToolServerError> {
        // Blanks are none: no client could send them.
        let token = settings.http_token.clone().filter(|token| !token.expose_secret().trim().is_empty());
        let is_local = address.ip().is_loopback();
        let refuse =
            |why: &str| ToolServerError::Setting { flag: "http", value: address.to_string(), why: why.to_owned() };
        if !is_local && !settings.http_allow_remote {
            return Err(refuse(
                "other machines could use the tools; take an address like 127.0.0.1:0, or add --http-allow-remote",
            ));
        }
        // An address of this machine is one for all of its users.
        let Some(token) = token else {
            let who = if is_local { "every user of this machine" } else { "other machines" };
            return Err(refuse(&format!(
                "{who} could use the tools without a token; set UA_TOOLSERVER_TOKEN, for example to the output of `openssl rand -hex 32`"
            )));
        };
        let mut config = StreamableHttpServerConfig::default().enforce_origin_validation();
        config.sse_retry = Some(COME_BACK);
        if !is_local {
            config = config.disable_allowed_hosts(); // the token keeps out what the host name would
        }
        let events = Arc::new(Events::new(SESSION_LIFE, env.clone()));
        let mut sessions = LocalSessionManager::default().with_event_store(events);
        sessions.session_config.keep_alive = Some(SESSION_LIFE);
        sessions.session_config.sse_retry = Some(COME_BACK);
        let server = ToolServer::open(settings, env.clone())?;
        let service = StreamableHttpService::new(move || Ok(server.clone()), Arc::new(sessions), config);
        let listening = async {
            let listener = TcpListener::bind(address).await?;
            let address = listener.local_addr()?;
            Ok((listener, address))
        };
        let (listener, address) = listening.await.map_err(|source| ToolServerError::Listen { address, source })?;
        Ok(Self { listener, address, door: Arc::new(Door { token, service }), env })
    }

    /// The address to give to clients.
    pub fn url(&self) -> String {
        format!("http://{}{PATH}", self.address)
    }

    /// Serves whoever comes, for as long as the future is polled.
    pub async fn serve(self) {
        loop {
            let stream = match self.listener.accept().await {
                Ok((stream, _)) => stream,
                Err(error) => {
                    tracing::warn!(%error, "a connection could not be taken");
                    self.env.clock.sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            };
            let door = Arc::clone(&self.door);
            tokio::spawn(async move {
                let service = service_fn(|request| {
                    let door = Arc::clone(&door);
                    async move { Ok::<_, std::convert::Infallible>(door.pass(request).await) }
                });
                let connection = hyper::server::conn::http1::Builder::new()
                    .timer(TokioTimer::new())
                    .serve_connection(TokioIo::new(stream), service);
                if let Err(error) = connection.await {
                    tracing::debug!(%error, "a connection ended badly");
                }
            });
        }
    }
}

impl Door {
    async fn pass(&self, request: Request<Incoming>) -> Response<Body> {
        if !self.lets_in(request.headers()) {
            let mut response = refusal(StatusCode::UNAUTHORIZED, "send the token as `Authorization: Bearer …`");
            response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            return response;
        }
        if request.uri().path() != PATH {
            return refusal(StatusCode::NOT_FOUND, "the tool server is at /mcp");
        }
        self.service.handle(request).await
    }

    fn lets_in(&self, headers: &HeaderMap) -> bool {
        let given = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok());
        let given = given.and_then(|value| value.strip_prefix("Bearer "));
        // Digests are compared, so that the time it takes tells nothing about the token.
        given.is_some_and(|given| Sha256::digest(given.trim()) == Sha256::digest(self.token.expose_secret()))
    }
}

fn refusal(status: StatusCode, why: &'static str) -> Response<Body> {
    let mut response = Response::new(Full::new(Bytes::from_static(why.as_bytes())).boxed());
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain"));
    response
}
