//! TLS of connections: to nodes, to proxies, and to the fleet.

use std::error::Error;
use std::path::Path;
use std::sync::Arc;

use tokio_rustls::rustls::client::Resumption;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::pem::{Error as PemError, PemObject};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use crate::error_text::format_error_causes;

/// The authorities whose certificates are accepted.
#[derive(Clone, Copy, Debug)]
pub enum TrustedAuthorities<'a> {
    /// The authorities that the system trusts.
    System,
    /// The authorities in a file in PEM.
    File(&'a Path),
    /// The authorities in a text in PEM.
    Pem(&'a str),
}

/// The certificate chain with which the client identifies itself, and its private key, in PEM.
#[derive(Clone, Copy)]
pub struct ClientIdentity<'a> {
    /// The certificates, the client's own one first.
    pub certificates: &'a [u8],
    /// The private key of the first certificate.
    pub key: &'a [u8],
}

/// Creates a TLS configuration that accepts servers of the trusted authorities.
///
/// # Errors
/// The certificates or the key are invalid, or there is none. The message is for operators, and
/// contains no part of the key.
pub fn tls_config(
    authorities: TrustedAuthorities<'_>,
    identity: Option<ClientIdentity<'_>>,
) -> Result<ClientConfig, String> {
    // its own provider: other code of the process may choose another one
    let config = ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_root_certificates(trusted_roots(authorities)?);
    let mut config = match identity {
        None => config.with_no_client_auth(),
        Some(identity) => {
            let (certificates, key) = identity.parse_certificates_and_key()?;
            config
                .with_client_auth_cert(certificates, key)
                .map_err(|error| {
                    format!("the client certificate and its key are not accepted: {error}")
                })?
        }
    };
    // a resumed session would accept a certificate that has expired or was revoked meanwhile
    config.resumption = Resumption::disabled();
    Ok(config)
}

impl ClientIdentity<'_> {
    fn parse_certificates_and_key(
        &self,
    ) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), String> {
        let certificates: Vec<_> = CertificateDer::pem_slice_iter(self.certificates)
            .collect::<Result<_, _>>()
            .map_err(|error| format!("the client certificate is invalid: {error}"))?;
        if certificates.is_empty() {
            return Err(
                "the client certificate is invalid: it contains no certificate in PEM".into(),
            );
        }
        // the causes could contain a part of the key
        let key = PrivateKeyDer::from_pem_slice(self.key).map_err(|_| {
            "the key of the client certificate is not a private key in PEM".to_owned()
        })?;
        Ok((certificates, key))
    }
}

fn trusted_roots(authorities: TrustedAuthorities<'_>) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    let (subject, certificates): (_, Result<Vec<CertificateDer<'static>>, PemError>) =
        match authorities {
            TrustedAuthorities::System => {
                let found = rustls_native_certs::load_native_certs();
                roots.add_parsable_certificates(found.certs);
                if roots.is_empty() {
                    return Err(
                        "the system has no trusted certificates; set \"ca\" to a file of \
                                certificates"
                            .into(),
                    );
                }
                return Ok(roots);
            }
            TrustedAuthorities::File(path) => (
                path.display().to_string(),
                CertificateDer::pem_file_iter(path).and_then(|found| found.collect()),
            ),
            TrustedAuthorities::Pem(text) => (
                "the file of \"ca\"".to_owned(),
                CertificateDer::pem_slice_iter(text.as_bytes()).collect(),
            ),
        };
    let wrong = |error: &dyn Error| format!("{subject}: {}", format_error_causes(error));
    for certificate in certificates.map_err(|error| wrong(&error))? {
        roots.add(certificate).map_err(|error| wrong(&error))?;
    }
    if roots.is_empty() {
        return Err(format!("{subject} contains no certificate"));
    }
    Ok(roots)
}
