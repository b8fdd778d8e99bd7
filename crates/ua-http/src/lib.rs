//! How every part of `ua` speaks HTTPS, and reads streams of events.
//!
//! A client that is made by [`client`] reads the system's certificates when it first meets a TLS server, once per process: a run that
//! talks to this machine only never does, and starts where there are none. Why the cryptography is *ring*: docs/adr/0018.
//!
//! No client follows a redirect: what is sent, and the keys that go with it, are for the host that somebody named.

pub mod sse;

use std::error::Error as StdError;
use std::sync::{Arc, OnceLock};

use reqwest::ClientBuilder;
#[cfg(feature = "blocking")]
pub use reqwest::blocking::Client as BlockingClient;
use reqwest::redirect::Policy;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, Error, InvalidMessage, SignatureScheme};
use rustls_platform_verifier::Verifier;

/// The versions of HTTP that a client offers to a TLS server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Versions {
    /// HTTP/1.1 alone.
    One,
    /// HTTP/2, or HTTP/1.1 where the server knows no other.
    OneAndTwo,
}

/// A client to be set up further, which follows no redirect. Nothing is read or sent before its first request.
pub fn client(versions: Versions) -> ClientBuilder {
    let builder = ClientBuilder::new().tls_backend_preconfigured(configuration(versions)).redirect(Policy::none());
    match versions {
        Versions::One => builder.http1_only(),
        Versions::OneAndTwo => builder,
    }
}

/// The same for threads that wait for each answer, for at most `timeout`. To be made by such a thread.
///
/// # Errors
/// When the system gives no thread for it.
#[cfg(feature = "blocking")]
pub fn blocking(timeout: std::time::Duration) -> Result<BlockingClient, reqwest::Error> {
    let builder = BlockingClient::builder().tls_backend_preconfigured(configuration(Versions::OneAndTwo));
    builder.redirect(Policy::none()).timeout(timeout).build()
}

/// Gives libraries that make HTTP clients of their own the same cryptography; without it they panic. Doing it twice does nothing.
pub fn prepare() {
    // An error says that the process has one already.
    ring::default_provider().install_default().ok();
}

/// Why a request or a connection failed, by what lies at the bottom of its error; the outer texts repeat the address.
pub fn cause(error: &(dyn StdError + 'static)) -> String {
    let mut deepest = error;
    loop {
        if is_answered_without_tls(deepest) {
            return "what answers there does not speak TLS: is it an address without (`http://`), or another port?"
                .to_owned();
        }
        match deepest.source() {
            Some(inner) => deepest = inner,
            None => return deepest.to_string(),
        }
    }
}

/// Whether the first that came back was no TLS, as a plain port answers. The library's word for it is a corrupt message.
fn is_answered_without_tls(error: &(dyn StdError + 'static)) -> bool {
    if let Some(error) = error.downcast_ref::<Error>() {
        return matches!(error, Error::InvalidMessage(InvalidMessage::InvalidContentType));
    }
    // What an error of the system wraps is not among its sources.
    let wrapped = error.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref);
    wrapped.is_some_and(|wrapped| is_answered_without_tls(wrapped))
}

/// The same TLS for what speaks another protocol than HTTP.
pub fn tls() -> ClientConfig {
    let mut config = configuration(Versions::One);
    config.alpn_protocols.clear();
    config
}

fn configuration(versions: Versions) -> ClientConfig {
    static ROOTS: OnceLock<Arc<SystemRoots>> = OnceLock::new();
    let roots = ROOTS.get_or_init(|| {
        Arc::new(SystemRoots { provider: Arc::new(ring::default_provider()), verifier: OnceLock::new() })
    });
    #[expect(clippy::expect_used, reason = "the provider is ours, and knows both versions of TLS")]
    let builder = ClientConfig::builder_with_provider(Arc::clone(&roots.provider))
        .with_safe_default_protocol_versions()
        .expect("ring speaks the default versions of TLS");
    let verifier = Arc::clone(roots);
    let mut config = builder.dangerous().with_custom_certificate_verifier(verifier).with_no_client_auth();
    config.alpn_protocols = match versions {
        Versions::One => vec![b"http/1.1".to_vec()],
        Versions::OneAndTwo => vec![b"h2".to_vec(), b"http/1.1".to_vec()],
    };
    config
}

/// The system's verifier, made at the first handshake: it reads and parses every certificate that the system trusts.
#[derive(Debug)]
struct SystemRoots {
    provider: Arc<CryptoProvider>,
    verifier: OnceLock<Result<Verifier, Error>>,
}

impl ServerCertVerifier for SystemRoots {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let verifier = self.verifier.get_or_init(|| Verifier::new(Arc::clone(&self.provider)));
        let verifier = verifier.as_ref().map_err(Clone::clone)?;
        verifier.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, cert, signed, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, cert, signed, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
