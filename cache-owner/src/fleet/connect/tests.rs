//! Tests of connections to a real socket.

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use sszip_core::config::fleet::{FleetEndpoint, Secret};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{RootCertStore, ServerConfig};
use tokio_rustls::TlsAcceptor;

use super::*;

type Authority = CertifiedIssuer<'static, KeyPair>;

fn create_authority(name: &str) -> Authority {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

/// Issues a certificate for this name, with its key.
fn issue_certificate(authority: &Authority, name: &str) -> (rcgen::Certificate, KeyPair) {
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
    (params.signed_by(&key, authority).unwrap(), key)
}

/// Creates an acceptor for `localhost` that requires a certificate of `clients`.
fn create_acceptor(server: &Authority, clients: &Authority) -> TlsAcceptor {
    let (certificate, key) = issue_certificate(server, "localhost");
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let mut roots = RootCertStore::empty();
    let authority: &rcgen::Certificate = clients.as_ref();
    roots.add(authority.der().clone()).unwrap();
    let provider = Arc::new(default_provider());
    let verifier =
        WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider))
            .build()
            .unwrap();
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_client_cert_verifier(verifier)
        .with_single_cert(vec![certificate.der().clone()], key)
        .unwrap();
    TlsAcceptor::from(Arc::new(config))
}

/// Starts a server that answers each connection with `+PONG`, and returns its settings.
async fn start_server(acceptor: Option<TlsAcceptor>) -> FleetSettings {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let scheme = if acceptor.is_some() {
        "rediss"
    } else {
        "redis"
    };
    let endpoint = FleetEndpoint::parse_url(&format!("{scheme}://localhost:{port}")).unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            match &acceptor {
                None => {
                    let _ = stream.write_all(b"+PONG\r\n").await;
                }
                Some(acceptor) => {
                    if let Ok(mut stream) = acceptor.accept(stream).await {
                        let _ = stream.write_all(b"+PONG\r\n").await;
                        let _ = stream.shutdown().await;
                    }
                }
            }
        }
    });
    FleetSettings::new(endpoint)
}

/// Connects and reads all bytes of the server.
async fn read_from_server(settings: &FleetSettings) -> Result<String, String> {
    let connector = FleetConnector::new(settings)?;
    let stream = connector
        .open_node_stream(&settings.endpoint.nodes[0])
        .await;
    let mut text = String::new();
    let mut stream = stream.map_err(|error| error.to_string())?;
    stream
        .read_to_string(&mut text)
        .await
        .map_err(|error| error.to_string())?;
    Ok(text)
}

#[tokio::test]
async fn server_is_connected_by_name_over_tcp() {
    let settings = start_server(None).await;
    assert_eq!(read_from_server(&settings).await.unwrap(), "+PONG\r\n");
}

#[tokio::test]
async fn socket_of_an_unreachable_server_fails_soon() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let stream = TcpStream::connect(listener.local_addr().unwrap())
        .await
        .unwrap();
    set_socket_options(&stream).unwrap();
    assert!(sockopt::tcp_nodelay(&stream).unwrap());
    assert!(sockopt::socket_keepalive(&stream).unwrap());
    assert_eq!(sockopt::tcp_keepidle(&stream).unwrap(), KEEPALIVE_IDLE);
    assert_eq!(
        sockopt::tcp_user_timeout(&stream).unwrap(),
        UNACKNOWLEDGED_MS
    );
}

#[tokio::test]
async fn certificates_of_server_and_client_are_verified() {
    let (authority, other) = (create_authority("one"), create_authority("other"));
    let mut settings = start_server(Some(create_acceptor(&authority, &authority))).await;
    let identity = |authority: &Authority| {
        let (certificate, key) = issue_certificate(authority, "client");
        Some((certificate.pem(), Secret::new(key.serialize_pem())))
    };
    settings.ca = Some(authority.pem());
    settings.client_cert = identity(&authority);
    assert_eq!(read_from_server(&settings).await.unwrap(), "+PONG\r\n");

    for client_cert in [None, identity(&other)] {
        settings.client_cert = client_cert;
        assert!(read_from_server(&settings).await.is_err());
    }
    settings.client_cert = identity(&authority);
    for ca in [Some(other.pem()), None] {
        settings.ca = ca;
        let error = read_from_server(&settings).await.unwrap_err();
        assert!(error.contains("certificate"), "{error}");
    }
    settings.ca = Some(authority.pem());
    settings.endpoint.nodes[0].host = "127.0.0.1".into();
    assert!(read_from_server(&settings).await.is_err());
}

#[test]
fn invalid_certificates_are_rejected_without_their_key_in_the_message() {
    let authority = create_authority("one");
    let (certificate, key) = issue_certificate(&authority, "client");
    let (_, other_key) = issue_certificate(&authority, "other");
    let endpoint = FleetEndpoint::parse_url("rediss://localhost:1").unwrap();
    let settings = FleetSettings {
        ca: Some(authority.pem()),
        ..FleetSettings::new(endpoint)
    };
    let secret = key.serialize_pem();
    let truncated = secret[..secret.len() / 2].to_owned();
    for (certificates, key, expected) in [
        (
            certificate.pem(),
            "no key".to_owned(),
            "is not a private key",
        ),
        (certificate.pem(), truncated, "is not a private key"),
        ("no certificate".into(), secret.clone(), "is invalid"),
        (
            certificate.pem(),
            other_key.serialize_pem(),
            "are not accepted",
        ),
    ] {
        let settings = FleetSettings {
            client_cert: Some((certificates, Secret::new(key))),
            ..settings.clone()
        };
        let error = FleetConnector::new(&settings).err().unwrap();
        assert!(error.contains(expected), "{error}");
        for line in secret.lines().filter(|line| !line.starts_with("-----")) {
            assert!(!error.contains(line), "{error}");
        }
    }
    let settings = FleetSettings {
        ca: Some("no certificate".into()),
        ..settings
    };
    let error = FleetConnector::new(&settings).err().unwrap();
    assert_eq!(error, "the file of \"ca\" contains no certificate");
}
