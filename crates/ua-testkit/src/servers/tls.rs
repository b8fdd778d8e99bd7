//! TLS for the receiving servers, with a certificate made on the spot.

use std::fmt;
use std::io;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::ServerConfig;
use rustls::pki_types::PrivateKeyDer;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

/// When a server begins to speak TLS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Encryption {
    /// With the first byte.
    Implicit,
    /// After STARTTLS, and nothing is taken before.
    StartTls,
}

/// A server's key and certificate for 127.0.0.1, and the authority that signed it.
#[derive(Clone)]
pub struct TlsIdentity {
    /// The authority's certificate in PEM form: what a client has to be given to trust the server.
    pub authority_pem: String,
    acceptor: TlsAcceptor,
}

/// A connection, encrypted or not.
pub(super) type Wire = Box<dyn Duplex>;

pub(super) trait Duplex: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Duplex for T {}

impl fmt::Debug for TlsIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsIdentity").finish_non_exhaustive()
    }
}

impl TlsIdentity {
    /// Makes an authority and a certificate that it signed.
    ///
    /// # Errors
    /// When no key can be made.
    pub fn new() -> io::Result<Self> {
        let mut authority = CertificateParams::new(Vec::new()).map_err(io::Error::other)?;
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority_key = KeyPair::generate().map_err(io::Error::other)?;
        let certificate = authority.self_signed(&authority_key).map_err(io::Error::other)?;
        let authority_pem = pem(certificate.der());
        let issuer = Issuer::new(authority, authority_key);

        let key = KeyPair::generate().map_err(io::Error::other)?;
        let own = CertificateParams::new(vec!["127.0.0.1".to_owned()]).map_err(io::Error::other)?;
        let own = own.signed_by(&key, &issuer).map_err(io::Error::other)?;
        let key = PrivateKeyDer::try_from(key.serialize_der()).map_err(io::Error::other)?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .and_then(|builder| builder.with_no_client_auth().with_single_cert(vec![own.der().clone()], key))
            .map_err(io::Error::other)?;
        Ok(Self { authority_pem, acceptor: TlsAcceptor::from(Arc::new(config)) })
    }

    /// Takes a client's connection.
    ///
    /// # Errors
    /// When the two do not agree, or the client does not believe the certificate.
    pub async fn accept(&self, stream: TcpStream) -> io::Result<TlsStream<TcpStream>> {
        self.acceptor.accept(stream).await
    }

    pub(super) async fn encrypt(&self, wire: Wire) -> io::Result<Wire> {
        Ok(Box::new(self.acceptor.accept(wire).await?))
    }
}

fn pem(der: &[u8]) -> String {
    let mut text = "-----BEGIN CERTIFICATE-----\n".to_owned();
    let encoded = STANDARD.encode(der);
    let mut left = encoded.as_str();
    while !left.is_empty() {
        let (line, rest) = left.split_at(left.len().min(64));
        text.push_str(line);
        text.push('\n');
        left = rest;
    }
    text.push_str("-----END CERTIFICATE-----\n");
    text
}
