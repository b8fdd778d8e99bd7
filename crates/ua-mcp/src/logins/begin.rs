//! How a person logs in: where to, and what is done with what they bring back.

use std::collections::BTreeMap;

use reqwest::header::{HeaderMap, WWW_AUTHENTICATE};
use reqwest::{StatusCode, Url};
use rmcp::transport::auth::{
    AuthorizationCallback, AuthorizationManager, AuthorizationMetadataSource, OAuthClientConfig,
};
use serde_json::json;

use super::kept::{Around, LoginFacts, Shelf, manager, said};
use super::{LoginError, Logins, blocking, check_address, check_endpoint, check_metadata};
use crate::http::Endpoint;

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
        let challenge = challenge(&request).await?;
        let mut manager = manager(&request.address, request.private_network).await?;
        let found = manager.resolve_metadata_from_challenge(challenge.as_deref()).await;
        let found = found.map_err(|error| said(&error))?;
        if found.source == AuthorizationMetadataSource::LegacyEndpointFallback && challenge.is_none() {
            return Err(LoginError::Refused(
                "it does not ask for a login, and names no authorization server".to_owned(),
            ));
        }
        check_metadata(&found.metadata)?;
        let also_offline = found.metadata.scopes_supported.iter().flatten().any(|scope| scope == OFFLINE);
        let reads_documents =
            found.metadata.additional_fields.get("client_id_metadata_document_supported") == Some(&json!(true));
        manager.set_metadata(found.metadata);
        let scopes = self.scopes(&manager, &request, also_offline).await?;
        let named: Vec<&str> = scopes.iter().map(String::as_str).collect();
        let document = request.client_metadata.clone().filter(|_| reads_documents);
        let document = document.map(|id| OwnClient { id, secret: None });
        let (id, secret) = if let Some(own) = request.client.clone().or(document) {
            self.vault.learn(own.secret.iter().map(|secret| ("client secret".to_owned(), secret.clone())).collect());
            let mut config = OAuthClientConfig::new(&own.id, &request.redirect_uri).with_scopes(scopes.clone());
            if let Some(secret) = &own.secret {
                config = config.with_client_secret(secret);
            }
            manager.configure_client(config).map_err(|error| said(&error))?;
            (own.id, own.secret)
        } else {
            let registered = manager.register_client(CLIENT_NAME, &request.redirect_uri, &named).await;
            let registered = registered.map_err(|error| cannot_register(&said(&error)))?;
            (registered.client_id, registered.client_secret)
        };
        tracing::debug!(client = id, "registered where a tool server has its logins made");
        let drawn = ua_files::unguessable();
        let drawn =
            drawn.map_err(|error| LoginError::Vault(format!("the system has no randomness to give: {error}")))?;
        let around = Around {
            login: Some(drawn),
            client_secret: secret,
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
            return Err(LoginError::Refused(format!("the login was refused ({error}{words})")));
        }
        let back = AuthorizationCallback::from_redirect_url(redirect).map_err(|error| said(&error))?;
        self.logins.vault.learn(vec![("authorization code".to_owned(), back.code.clone())]);
        // Nobody renews the login that this one replaces while it does: what came of that would replace this one.
        let (vault, of) = (std::sync::Arc::clone(&self.logins.vault), self.server.clone());
        let _alone = blocking(move || vault.lock(&of)).await?;
        let exchange =
            self.manager.exchange_code_for_token_with_issuer(&back.code, &back.csrf_token, back.issuer.as_deref());
        exchange.await.map_err(|error| said(&error))?;
        let mut tokens = self.logins.tokens.lock().await;
        tokens.remove(&self.server);
        self.logins.identities().remove(&self.server);
        drop(tokens);
        let facts = self.logins.facts(&self.server).await?;
        facts.ok_or_else(|| LoginError::Vault("the login was not kept".to_owned()))
    }
}
