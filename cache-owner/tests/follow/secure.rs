//! TLS: accepted and rejected certificates.

use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use tempfile::TempDir;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::TlsAcceptor;

use super::node::SimulatedNode;
use super::owner::{head_source, FollowingOwner};

/// A certificate authority of a test, with its certificate in a file.
struct CertificateAuthority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    folder: TempDir,
}

impl CertificateAuthority {
    fn new(name: &str) -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("ca.pem"), issuer.pem()).unwrap();
        Self { issuer, folder }
    }

    fn file(&self) -> std::path::PathBuf {
        self.folder.path().join("ca.pem")
    }

    /// Creates a TLS acceptor with a certificate for this name.
    fn acceptor(&self, name: &str) -> TlsAcceptor {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], key)
            .unwrap();
        TlsAcceptor::from(Arc::new(config))
    }
}

#[test]
fn certificate_of_the_configured_authority_is_accepted() {
    let authority = CertificateAuthority::new("one");
    let mut node = SimulatedNode::new();
    let port = node
        .listen_with(Some(authority.acceptor("localhost")))
        .port();
    for scheme in ["https", "wss"] {
        let mut head = head_source(&format!("{scheme}://localhost:{port}"));
        head.ca = Some(authority.file());
        let owner = FollowingOwner::start(head);
        owner.wait_for_state("following", 100, Some(90));
    }
}

#[test]
fn certificates_of_other_authorities_and_names_are_rejected() {
    let (authority, other) = (
        CertificateAuthority::new("one"),
        CertificateAuthority::new("other"),
    );
    let mut node = SimulatedNode::new();
    let port = node
        .listen_with(Some(authority.acceptor("localhost")))
        .port();
    for scheme in ["https", "wss"] {
        let mut wrong = head_source(&format!("{scheme}://localhost:{port}"));
        wrong.ca = Some(other.file());
        FollowingOwner::start(wrong).wait_for_error(&["invalid peer certificate", "UnknownIssuer"]);
    }
    // the authorities of the system have not signed it
    let system = head_source(&format!("https://localhost:{port}"));
    FollowingOwner::start(system).wait_for_error(&["certificate"]);
    let mut name = head_source(&format!("https://127.0.0.1:{port}"));
    name.ca = Some(authority.file());
    FollowingOwner::start(name).wait_for_error(&["certificate not valid for name"]);
}

#[test]
fn invalid_ca_file_is_reported_and_read_again() {
    let authority = CertificateAuthority::new("one");
    let mut node = SimulatedNode::new();
    let port = node
        .listen_with(Some(authority.acceptor("localhost")))
        .port();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("ca.pem");
    let mut head = head_source(&format!("https://localhost:{port}"));
    head.ca = Some(file.clone());
    let owner = FollowingOwner::start(head);
    owner.wait_for_error(&["ca.pem", "No such file"]);
    std::fs::write(&file, "no certificate\n").unwrap();
    owner.wait_for_error(&["ca.pem contains no certificate"]);
    std::fs::copy(authority.file(), &file).unwrap();
    owner.wait_for_state("following", 100, Some(90));
}
