//! How a person logs in: where to, and what is done with what they bring back.

use std::collections::BTreeMap;
use std::net::{IpAddr, ToSocketAddrs as _};

use reqwest::header::{HeaderMap, WWW_AUTHENTICATE};
use reqwest::{StatusCode, Url};
use rmcp::transport::auth::{
    AuthorizationCallback, AuthorizationManager, AuthorizationMetadataSource, OAuthClientConfig,
};
use serde_json::json;
use ua_core::{Busy, span_in_words};

use super::kept::{Around, LoginFacts, Shelf, manager, proving, said, said_of_answer};
use super::{ANSWER, LoginError, Logins, a_request, blocking, check_address, check_endpoint, check_metadata, host_of};
use crate::http::{Endpoint, is_this_machine};

/// Why a login is refused of which a thief of its code could make one of their own.
const NO_PKCE: &str = "its authorization server does not say that it supports PKCE (`code_challenge_methods_supported` is missing in its metadata), \
    without which a stolen code is a login; if you know that it does, as Microsoft Entra and Amazon Cognito do, add --assume-pkce";

/// What this program calls itself where it registers.
const CLIENT_NAME: &str = "ua";

/// A client that the person has from the authorization server.
#[derive(Clone, PartialEq, Eq)]
pub struct OwnClient {
    /// Its id; the address of a client's metadata is one, too.
    pub id: String,
    /// Its secret, if it has one.
    pub secret: Option<String>,
}

impl std::fmt::Debug for OwnClient {
    /// Without the secret.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("OwnClient").field(&self.id).finish()
    }
}

/// What a person wants to log in to, and how.
#[derive(Debug, Clone)]
pub struct LoginRequest {
    /// The server's address, as the configuration has it.
    pub address: String,
    /// Headers that the server wants with every request.
    pub headers: BTreeMap<String, String>,
    /// Where the person comes back to.
    pub redirect_uri: String,
    /// What the login is to allow, beside what an earlier one does; empty takes what the server asks for.
    pub scopes: Vec<String>,
    /// A client that the person has already; without one, this program registers itself.
    pub client: Option<OwnClient>,
    /// The address of a document about this client, for authorization servers that read such.
    pub client_metadata: Option<String>,
    /// Whether servers may be in a private network.
    pub private_network: bool,
    /// Whether the person knows that the authorization server supports PKCE where it does not say so itself.
    pub assume_pkce: bool,
}

/// A login that a person is in the middle of.
pub struct PendingLogin {
    manager: AuthorizationManager,
    logins: Logins,
    server: String,
    address: String,
    state: String,
}

impl std::fmt::Debug for PendingLogin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PendingLogin").field("server", &self.server).finish_non_exhaustive()
    }
}

impl Logins {
    /// Finds out where the logins of a server are made and prepares one. Nothing is kept before [`PendingLogin::finish`].
    ///
    /// # Errors
    /// Nobody can log in there in a way that this program knows, or it cannot be found out now.
    pub async fn begin(&self, request: LoginRequest) -> Result<PendingLogin, LoginError> {
        check_address(&request.address)?;
        let host = host_of(&request.address).unwrap_or_default();
        let busy = Busy::with(format!("waiting for {host} to say where one logs in, {}", a_request()));
        let challenge = self.in_time(&host, challenge(&request)).await?;
        busy.now(format!("waiting for the authorization server of {host} to say how one logs in, {}", a_request()));
        // What is read in the clear says where the login page and the token endpoint are.
        if let Some(named) = challenge.as_deref().and_then(|words| metadata_named_in(words, &request.address)) {
            check_endpoint("description of its logins", &named)?;
        }
        let mut manager = manager(&request.address, request.private_network).await?;
        let found = manager.resolve_metadata_from_challenge(challenge.as_deref()).await;
        let found = found.map_err(|error| said(&error))?;
        if found.source == AuthorizationMetadataSource::LegacyEndpointFallback && challenge.is_none() {
            return Err(LoginError::Refused(
                "it does not ask for a login, and names no authorization server".to_owned(),
            ));
        }
        check_metadata(&found.metadata)?;
        // The specification: who does not say that PKCE is supported is taken not to support it. The client library goes on. Where there is no
        // description at all, as in the first revision, nobody could have said it.
        let says_nothing = found.metadata.code_challenge_methods_supported.is_none();
        let is_described = found.source != AuthorizationMetadataSource::LegacyEndpointFallback;
        if says_nothing && is_described && !request.assume_pkce {
            return Err(LoginError::Refused(NO_PKCE.to_owned()));
        }
        let also_offline = found.metadata.scopes_supported.iter().flatten().any(|scope| scope == OFFLINE);
        let reads_documents =
            found.metadata.additional_fields.get("client_id_metadata_document_supported") == Some(&json!(true));
        let registration = found.metadata.registration_endpoint.clone();
        manager.set_metadata(found.metadata.clone());
        let scopes = self.scopes(&manager, &request, also_offline).await?;
        let named: Vec<&str> = scopes.iter().map(String::as_str).collect();
        let document = request.client_metadata.clone().filter(|_| reads_documents);
        let document = document.map(|id| OwnClient { id, secret: None });
        let (id, secret, auth_method) = if let Some(own) = request.client.clone().or(document) {
            self.vault.learn(own.secret.iter().map(|secret| ("client secret".to_owned(), secret.clone())).collect());
            configure(&mut manager, &request, &own.id, own.secret.as_deref(), &scopes)?;
            (own.id, own.secret, None)
        } else {
            let of = format!("the authorization server of {host}");
            let registered = self.in_time(&of, register(&request, registration.as_deref(), &named)).await;
            let Registered { id, secret, auth_method } = registered.map_err(|error| match error {
                // It may work another time, without anybody's help.
                LoginError::Unreachable(why) => {
                    LoginError::Unreachable(format!("this program could not register: {why}"))
                }
                LoginError::Ended(_) | LoginError::Denied(_) | LoginError::Refused(_) | LoginError::Vault(_) => {
                    cannot_register(&error)
                }
            })?;
            manager.set_metadata(proving(found.metadata, auth_method.as_deref()));
            self.vault.learn(secret.iter().map(|secret| ("client secret".to_owned(), secret.clone())).collect());
            configure(&mut manager, &request, &id, secret.as_deref(), &scopes)?;
            (id, secret, auth_method)
        };
        tracing::debug!(client = id, "registered where a tool server has its logins made");
        let drawn = ua_files::unguessable();
        let drawn =
            drawn.map_err(|error| LoginError::Vault(format!("the system has no randomness to give: {error}")))?;
        let around = Around {
            login: Some(drawn),
            client_secret: secret,
            auth_method,
            redirect_uri: request.redirect_uri.clone(),
            private_network: request.private_network,
        };
        let shelf = Shelf { vault: std::sync::Arc::clone(&self.vault), address: request.address.clone(), around };
        manager.set_credential_store(shelf);
        let address = manager.get_authorization_url(&named).await.map_err(|error| said(&error))?;
        check_endpoint("login page", &address)?;
        let state = query(&address, "state").unwrap_or_default();
        Ok(PendingLogin { manager, logins: self.clone(), server: request.address, address, state })
    }

    /// What `asked` brings, if whoever it asks answers in time. A clock that does not pass by itself sets no limit.
    pub(super) async fn in_time<T>(
        &self,
        of: &str,
        asked: impl Future<Output = Result<T, LoginError>>,
    ) -> Result<T, LoginError> {
        tokio::select! {
            answered = asked => answered,
            () = self.env.sleep_or_never(self.env.clock.passes_by_itself().then_some(ANSWER)) => {
                Err(LoginError::Unreachable(format!("{of} did not answer within {}", span_in_words(ANSWER))))
            }
        }
    }

    /// What to ask for: what an earlier login allows and what is wanted besides; else what the server says.
    async fn scopes(
        &self,
        manager: &AuthorizationManager,
        request: &LoginRequest,
        also_offline: bool,
    ) -> Result<Vec<String>, LoginError> {
        if request.scopes.is_empty() {
            return Ok(manager.select_initial_scopes(&[]).await);
        }
        let earlier = self.facts(&request.address).await?.map(|facts| facts.scopes).unwrap_or_default();
        let mut scopes: Vec<String> = Vec::new();
        let offline = also_offline.then(|| OFFLINE.to_owned());
        for scope in earlier.into_iter().chain(request.scopes.iter().cloned()).chain(offline) {
            if !scopes.contains(&scope) {
                scopes.push(scope);
            }
        }
        Ok(scopes)
    }
}

/// The scope that makes some servers hand out what a login is renewed with.
const OFFLINE: &str = "offline_access";

/// The address that a refusal names for the description of the logins of the resource at `base`.
fn metadata_named_in(challenge: &str, base: &str) -> Option<String> {
    const NAME: &str = "resource_metadata";
    let at = challenge.to_ascii_lowercase().find(NAME)? + NAME.len();
    let value = challenge[at..].trim_start().strip_prefix('=')?.trim_start();
    let named = match value.strip_prefix('"') {
        Some(quoted) => quoted.split('"').next()?,
        None => value.split([',', ' ']).next()?,
    };
    Url::parse(base).ok()?.join(named).ok().map(|url| url.to_string())
}

/// Has the logins that are made from here on be those of this client.
fn configure(
    manager: &mut AuthorizationManager,
    request: &LoginRequest,
    id: &str,
    secret: Option<&str>,
    scopes: &[String],
) -> Result<(), LoginError> {
    let mut config = OAuthClientConfig::new(id, &request.redirect_uri).with_scopes(scopes.to_vec());
    if let Some(secret) = secret {
        config = config.with_client_secret(secret);
    }
    manager.configure_client(config).map_err(|error| said(&error))
}

/// As much of an answer of an authorization server is read.
pub(super) const MOST_OF_AN_ANSWER: usize = 64 * 1024;

/// What this program is registered as.
struct Registered {
    id: String,
    /// Its secret, if it is to prove with one who it is.
    secret: Option<String>,
    /// How it proves that, if the server says it.
    auth_method: Option<String>,
}

/// How a client proves to a token endpoint who it is that this program can do: not at all, in a header, in the body.
const METHODS: [&str; 3] = ["none", "client_secret_basic", "client_secret_post"];

/// Registers this program as a client. The client library would follow redirects with it,
/// also to another machine and in the clear (RFC 7591).
async fn register(request: &LoginRequest, endpoint: Option<&str>, scopes: &[&str]) -> Result<Registered, LoginError> {
    let refused = |why: &str| LoginError::Refused(why.to_owned());
    let address = endpoint.ok_or_else(|| refused("it registers nobody"))?;
    check_endpoint("registration endpoint", address)?;
    if !request.private_network {
        check_is_public("registration endpoint", address, &request.address).await?;
    }
    let mut said = json!({
        "client_name": CLIENT_NAME, "redirect_uris": [request.redirect_uri], "grant_types": ["authorization_code", "refresh_token"],
        "token_endpoint_auth_method": "none", "response_types": ["code"], "application_type": "native",
    });
    if !scopes.is_empty() {
        said["scope"] = json!(scopes.join(" "));
    }
    let user_agent = concat!("ua/", env!("CARGO_PKG_VERSION"));
    let endpoint = Endpoint::new(address, &BTreeMap::new(), user_agent, None).map_err(LoginError::Refused)?;
    let response = endpoint.post(HeaderMap::new(), said.to_string().into_bytes()).await;
    let mut response = response.map_err(|failure| LoginError::Unreachable(failure.into_why()))?;
    let status = response.status();
    if status.is_redirection() {
        return Err(refused("it sends the registration on to another address, which is not followed"));
    }
    let mut body = Vec::new();
    while let Some(piece) = response.chunk().await.map_err(|error| LoginError::Unreachable(error.to_string()))? {
        if body.len() + piece.len() > MOST_OF_AN_ANSWER {
            return Err(refused("its answer is too long"));
        }
        body.extend_from_slice(&piece);
    }
    if !status.is_success() {
        let words: String = String::from_utf8_lossy(&body).chars().take(300).collect();
        return Err(refused(&format!("HTTP status {status}: {words}")));
    }
    let client: serde_json::Value = serde_json::from_slice(&body).map_err(|_| refused("its answer is not JSON"))?;
    registered(&client)
}

/// What an answer to a registration says. The method that it names holds, whatever was asked for (RFC 7591 §3.2.1).
fn registered(client: &serde_json::Value) -> Result<Registered, LoginError> {
    let refused = |why: String| LoginError::Refused(why);
    let text = |field: &str| client[field].as_str().filter(|text| !text.is_empty()).map(str::to_owned);
    let number = client["client_id"].as_u64().map(|number| number.to_string());
    let id = text("client_id").or(number).ok_or_else(|| refused("its answer has no client id".to_owned()))?;
    let (secret, method) = (text("client_secret"), text("token_endpoint_auth_method"));
    match method.as_deref() {
        Some("none") => Ok(Registered { id, secret: None, auth_method: method }),
        // Some say what they do by default, of a client that they have given no secret.
        Some(_) if secret.is_none() => Ok(Registered { id, secret, auth_method: None }),
        Some(known) if METHODS.contains(&known) => Ok(Registered { id, secret, auth_method: method }),
        Some(unknown) => {
            let unknown = ua_core::in_a_sentence(unknown);
            Err(refused(format!("it wants clients to prove who they are by `{unknown}`, which this program cannot do")))
        }
        None => Ok(Registered { id, secret, auth_method: None }),
    }
}

/// Refuses an address in a private network, for `what`, that a server names which is not there itself.
pub(super) async fn check_is_public(what: &str, address: &str, of: &str) -> Result<(), LoginError> {
    let parsed = |address: &str| Url::parse(address).map_err(|error| LoginError::Refused(error.to_string()));
    let (url, of) = (parsed(address)?, parsed(of)?);
    if is_this_machine(&of) {
        return Ok(());
    }
    let (Some(host), Some(port)) = (url.host_str().map(str::to_owned), url.port_or_known_default()) else {
        return Ok(());
    };
    let host = host.trim_matches(['[', ']']).to_owned();
    let found = tokio::task::spawn_blocking(move || {
        (host.as_str(), port).to_socket_addrs().map(|found| found.map(|at| at.ip()).collect::<Vec<_>>())
    });
    let found = found.await.map_err(|error| LoginError::Unreachable(error.to_string()))?;
    let found = found.map_err(|error| LoginError::Unreachable(format!("{address}: {error}")))?;
    if found.into_iter().any(is_private) {
        return Err(LoginError::Refused(format!("its {what} is in a private network")));
    }
    Ok(())
}

/// Whether an address is of this machine or of a network that is nobody else's business.
fn is_private(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(address) => {
            address.is_private() || address.is_loopback() || address.is_link_local() || address.is_unspecified()
        }
        IpAddr::V6(address) => {
            address.is_loopback()
                || address.is_unspecified()
                || address.is_unique_local()
                || address.is_unicast_link_local()
        }
    }
}

fn cannot_register(error: &LoginError) -> LoginError {
    LoginError::Refused(format!(
        "this program cannot register with its authorization server ({error}): get a client id there, and name it with --client-id"
    ))
}

/// What the server says to somebody who is not logged in; `None` when it lets them in.
async fn challenge(request: &LoginRequest) -> Result<Option<String>, LoginError> {
    let unreachable = |why: String| LoginError::Unreachable(why);
    let user_agent = concat!("ua/", env!("CARGO_PKG_VERSION"));
    let endpoint = Endpoint::new(&request.address, &request.headers, user_agent, None).map_err(LoginError::Refused)?;
    let hello = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": "2025-11-25", "capabilities": {},
        "clientInfo": {"name": CLIENT_NAME, "version": env!("CARGO_PKG_VERSION")}}});
    let response = endpoint.post(HeaderMap::new(), hello.to_string().into_bytes()).await;
    let response = response.map_err(|failure| unreachable(failure.into_why()))?;
    if response.status() != StatusCode::UNAUTHORIZED {
        return Ok(None);
    }
    let words = response.headers().get_all(WWW_AUTHENTICATE).iter().filter_map(|value| value.to_str().ok());
    let mut words: Vec<&str> = words.collect();
    words.sort_by_key(|words| !words.to_ascii_lowercase().starts_with("bearer"));
    Ok(Some(words.first().copied().unwrap_or("Bearer").to_owned()))
}

/// What an authorization server means that sends a person back without a code (RFC 6749, 4.1.2.1; OpenID Connect Core, 3.1.2.6).
fn not_let_in(error: &str, why: String) -> LoginError {
    const ABOUT_THE_REQUEST: [&str; 6] = [
        "invalid_request",
        "invalid_scope",
        "invalid_target",
        "unauthorized_client",
        "unsupported_response_type",
        "request_not_supported",
    ];
    match error {
        "temporarily_unavailable" | "server_error" => LoginError::Unreachable(why),
        error if ABOUT_THE_REQUEST.contains(&error) => LoginError::Refused(why),
        // `access_denied`, `login_required`, `consent_required` and the like: a person may do better.
        _ => LoginError::Denied(why),
    }
}

fn query(address: &str, name: &str) -> Option<String> {
    let url = Url::parse(address).ok()?;
    url.query_pairs().find(|(key, _)| key == name).map(|(_, value)| value.into_owned())
}

impl PendingLogin {
    /// Where the person goes with a browser.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Whether an address that somebody came back to belongs to this login. Any page may send a browser to this machine.
    pub fn is_answered_by(&self, redirect: &str) -> bool {
        query(redirect, "state").is_some_and(|state| state == self.state)
    }

    /// Exchanges what the person brought back for a login, and keeps it.
    ///
    /// # Errors
    /// The person was not let in, or the servers do not keep to their words.
    pub async fn finish(self, redirect: &str) -> Result<LoginFacts, LoginError> {
        if let Some(error) = query(redirect, "error") {
            let words = query(redirect, "error_description").map(|words| format!(": {words}")).unwrap_or_default();
            return Err(not_let_in(&error, format!("the login was refused ({error}{words})")));
        }
        let back = AuthorizationCallback::from_redirect_url(redirect).map_err(|error| said(&error))?;
        self.logins.vault.learn(vec![("authorization code".to_owned(), back.code.clone())]);
        // Nobody renews the login that this one replaces while it does: what came of that would replace this one.
        let (vault, of) = (std::sync::Arc::clone(&self.logins.vault), self.server.clone());
        let _alone = blocking(move || vault.lock(&of)).await?;
        let host = host_of(&self.server).unwrap_or_default();
        let words = format!("waiting for the authorization server of {host} to make the login, {}", a_request());
        let _busy = Busy::with(words);
        let exchange =
            self.manager.exchange_code_for_token_with_issuer(&back.code, &back.csrf_token, back.issuer.as_deref());
        exchange.await.map_err(|error| said_of_answer(&error))?;
        let mut tokens = self.logins.tokens.lock().await;
        tokens.remove(&self.server);
        self.logins.identities().remove(&self.server);
        drop(tokens);
        let facts = self.logins.facts(&self.server).await?;
        facts.ok_or_else(|| LoginError::Vault("the login was not kept".to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_description_of_logins_is_not_read_in_the_clear_from_another_machine() {
        let of = |named: &str| {
            let challenge = format!("Bearer resource_metadata=\"{named}\", scope=\"x\"");
            let named = metadata_named_in(&challenge, "https://tools.example/mcp").unwrap();
            check_endpoint("description of its logins", &named).is_ok()
        };
        assert!(of("https://tools.example/.well-known/x") && of("/.well-known/x") && of("http://127.0.0.1:8951/x"));
        for address in ["http://192.0.2.2:8951/x", "http://tools.example/x", "http://127.0.0.1@evil.example/x"] {
            assert!(!of(address), "{address}");
        }
        assert_eq!(metadata_named_in("Bearer scope=\"x\"", "https://tools.example/mcp"), None);
    }

    #[test]
    fn the_answer_to_a_registration_says_how_the_client_proves_who_it_is() {
        let read = |client: serde_json::Value| {
            registered(&client)
                .map(|client| (client.id, client.secret, client.auth_method))
                .map_err(|why| why.to_string())
        };
        let of = |secret: Option<&str>, method: Option<&str>| {
            Ok(("a".to_owned(), secret.map(str::to_owned), method.map(str::to_owned)))
        };
        assert_eq!(read(json!({"client_id": "a"})), of(None, None));
        assert_eq!(read(json!({"client_id": 17})).unwrap().0, "17");
        for method in METHODS {
            let told = json!({"client_id": "a", "client_secret": "s", "token_endpoint_auth_method": method});
            assert_eq!(read(told), of((method != "none").then_some("s"), Some(method)));
            let told = json!({"client_id": "a", "token_endpoint_auth_method": method});
            assert_eq!(read(told), of(None, (method == "none").then_some(method)), "there is nothing to prove with");
        }
        let told = json!({"client_id": "a", "client_secret": "s", "token_endpoint_auth_method": "private_key_jwt"});
        assert!(read(told).unwrap_err().contains("private_key_jwt"));
        assert!(read(json!({"client_secret": "s"})).is_err());
    }

    #[test]
    fn addresses_of_private_networks_are_known() {
        for address in [
            "127.0.0.1",
            "10.1.2.3",
            "192.168.0.1",
            "172.16.0.1",
            "169.254.1.1",
            "::1",
            "fd00::1",
            "fe80::1",
            "::ffff:10.0.0.1",
        ] {
            assert!(is_private(address.parse().unwrap()), "{address}");
        }
        for address in ["192.0.2.2", "8.8.8.8", "2001:db8::1"] {
            assert!(!is_private(address.parse().unwrap()), "{address}");
        }
    }
}
