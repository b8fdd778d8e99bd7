//! TLS to the server: the certificate and the name are always checked.

use std::path::Path;
use std::sync::Arc;

use rustls::crypto::ring;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, RootCertStore};
use tokio_postgres_rustls::MakeRustlsConnect;
use ua_store::{Retry, StoreError};

use crate::error::{refused, unavailable};
use ua_core::ShowPath as _;

/// Trusts what the system trusts, or the certificates in `roots` alone.
pub(crate) fn connector(roots: Option<&Path>) -> Result<MakeRustlsConnect, StoreError> {
    let Some(path) = roots else { return Ok(MakeRustlsConnect::new(ua_http::tls())) };
    let unreadable = |error| unavailable(format!("{} has no certificates", path.shown()), error, Retry::Never);
    let mut trusted = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(path).map_err(unreadable)? {
        let certificate = certificate.map_err(unreadable)?;
        trusted.add(certificate).map_err(|error| unavailable(path.shown().to_string(), error, Retry::Never))?;
    }
    if trusted.is_empty() {
        return Err(refused(format!("{} has no certificates", path.shown())));
    }
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| unavailable("TLS cannot be set up", error, Retry::Never))?
        .with_root_certificates(trusted)
        .with_no_client_auth();
    Ok(MakeRustlsConnect::new(config))
}
