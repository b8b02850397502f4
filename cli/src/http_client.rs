//! The HTTP/1.1 client of the commands, limited in time and memory; redirects are not followed.

use std::error::Error;
use std::fmt;
use std::future::Future;
use std::io;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::header::{HeaderMap, HeaderName, HeaderValue, HOST, USER_AGENT};
use hyper::{Method, Request, StatusCode};
use hyper_util::client::legacy::{Client, Error as ClientError};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use sszip_connect::connector::NodeConnector;
use sszip_connect::error_text::format_error_causes;
use sszip_core::config::endpoint::NodeEndpoint;
use tokio::time::timeout;

use crate::target::Target;
use crate::CommandError;

/// Time for which an unused connection is kept open.
const IDLE_TIMEOUT: Duration = Duration::from_secs(30);

/// The limits of a client, and the headers of all its requests.
pub struct ConnectionOptions {
    /// A file with the certificates of trusted authorities; `None`: the system's.
    pub ca: Option<PathBuf>,
    /// Headers of all requests. Their values are never printed.
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// Timeout of a request and its response.
    pub timeout: Duration,
    /// Maximum length of a response in bytes.
    pub max_response: usize,
    /// Maximum number of idle connections.
    pub connections: usize,
}

/// A complete response.
#[derive(Debug)]
pub struct HttpReply {
    /// The status code.
    pub status: StatusCode,
    /// The headers.
    pub headers: HeaderMap,
    /// The body.
    pub body: Bytes,
    /// Time from the start of the request to the end of the response.
    pub elapsed: Duration,
}

/// The cause for which there is no complete response.
#[derive(Debug)]
pub enum HttpError {
    /// The connection has failed.
    Connect(ConnectFailure),
    /// The response was not complete in time.
    Timeout(Duration),
    /// The connection ended early, or the response is not HTTP.
    Cut(String),
    /// The response is longer than the limit.
    TooLong(usize),
}

/// The cause for which there is no connection.
#[derive(Debug)]
pub struct ConnectFailure {
    /// The kind of the cause.
    pub kind: ConnectFailureKind,
    /// The text of the system, or of the TLS library.
    pub text: String,
}

/// The kind of a failed connection, which determines the remedy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectFailureKind {
    /// No process listens at the address or the socket.
    Refused,
    /// The user must not open the socket.
    Permission,
    /// The server does not use TLS, or its certificate is not accepted.
    Tls,
    /// Another error: the host is unknown or unreachable, or the socket does not exist.
    Other,
}

impl fmt::Display for ConnectFailure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.text)
    }
}

impl fmt::Display for HttpError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connect(failure) => failure.fmt(formatter),
            Self::Timeout(after) => write!(formatter, "no response within {after:?}"),
            Self::Cut(text) => formatter.write_str(text),
            Self::TooLong(limit) => write!(formatter, "the response exceeds {limit} bytes"),
        }
    }
}

/// An HTTP/1.1 client of one target, which keeps its connections open.
#[derive(Clone)]
pub struct HttpClient {
    client: Client<NodeConnector, Full<Bytes>>,
    endpoint: NodeEndpoint,
    headers: HeaderMap,
    timeout: Duration,
    max_response: usize,
}

impl HttpClient {
    /// Creates the client of a target.
    ///
    /// # Errors
    /// The file of trusted authorities, or the name of the host, is invalid.
    pub fn new(target: &Target, options: &ConnectionOptions) -> Result<Self, CommandError> {
        let connector =
            NodeConnector::new(&target.endpoint, options.ca.as_deref()).map_err(|error| {
                CommandError::Data(format!(
                    "cannot connect to {target}: {error}; --ca FILE names trusted certificates"
                ))
            })?;
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE_TIMEOUT)
            .pool_max_idle_per_host(options.connections)
            .set_host(false)
            .build(connector);
        let mut headers = HeaderMap::new();
        headers.extend(options.headers.iter().cloned());
        let software = concat!("sszip/", env!("CARGO_PKG_VERSION"));
        let agent = headers.entry(USER_AGENT);
        agent.or_insert(HeaderValue::from_static(software));
        Ok(Self {
            client,
            endpoint: target.endpoint.clone(),
            headers,
            timeout: options.timeout,
            max_response: options.max_response,
        })
    }

    /// Sends a request, and returns its complete response. `headers` replace the client's headers;
    /// `path`, a path and query, replaces the target's.
    ///
    /// # Errors
    /// The connection, the request or the response has failed.
    pub async fn send(
        &self,
        method: Method,
        path: Option<&str>,
        headers: &[(HeaderName, HeaderValue)],
        body: Bytes,
    ) -> Result<HttpReply, HttpError> {
        let begun = Instant::now();
        // the connector knows the address; the client requires a complete URI
        let authority = &self.endpoint.authority;
        let path = path.unwrap_or(&self.endpoint.path);
        let invalid = |error: hyper::http::Error| HttpError::Cut(format_error_causes(&error));
        let mut request = Request::builder()
            .method(method)
            .uri(format!("http://{authority}{path}"))
            .header(HOST, authority)
            .body(Full::new(body))
            .map_err(invalid)?;
        request.headers_mut().extend(self.headers.clone());
        for (name, value) in headers {
            request.headers_mut().insert(name, value.clone());
        }
        let exchange = async {
            let response = self.client.request(request).await;
            let (head, body) = response.map_err(|error| client_error(&error))?.into_parts();
            let body = Limited::new(body, self.max_response).collect().await;
            let body = body.map_err(|error| match error.is::<LengthLimitError>() {
                true => HttpError::TooLong(self.max_response),
                false => HttpError::Cut(format_error_causes(&*error)),
            })?;
            Ok(HttpReply {
                status: head.status,
                headers: head.headers,
                body: body.to_bytes(),
                elapsed: begun.elapsed(),
            })
        };
        let within_time = timeout(self.timeout, exchange).await;
        within_time.unwrap_or(Err(HttpError::Timeout(self.timeout)))
    }
}

/// Returns the cause of an error of the client, without its own texts.
fn client_error(error: &ClientError) -> HttpError {
    let cause = error.source().unwrap_or(error);
    let text = format_error_causes(cause);
    if !error.is_connect() {
        return HttpError::Cut(text);
    }
    let kind = cause.downcast_ref::<io::Error>().map(io::Error::kind);
    let kind = match kind {
        Some(io::ErrorKind::ConnectionRefused) => ConnectFailureKind::Refused,
        Some(io::ErrorKind::PermissionDenied) => ConnectFailureKind::Permission,
        // the TLS library reports its errors as invalid data, or as an early end of the handshake
        Some(io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof) => ConnectFailureKind::Tls,
        _ => ConnectFailureKind::Other,
    };
    HttpError::Connect(ConnectFailure { kind, text })
}

/// Returns the error of a command for a request without a complete response: the cause, and a
/// remedy.
pub fn connection_error(target: &Target, error: &HttpError) -> CommandError {
    let remedy = match error {
        HttpError::Connect(failure) => match failure.kind {
            ConnectFailureKind::Permission => "run the command as the user of the socket",
            _ if target.is_socket() => {
                "check that sszip-cached, nginx or Envoy runs, and the path of its socket"
            }
            ConnectFailureKind::Refused => "check that the proxy runs, and its port",
            ConnectFailureKind::Tls => {
                "check that the port is one of HTTPS; --ca FILE names trusted certificates"
            }
            ConnectFailureKind::Other => "check the name of the host and the network",
        },
        HttpError::Timeout(_) => "check the server's load and log, or allow more by --timeout",
        HttpError::Cut(_) => "check that the port is one of HTTP, and the server's log",
        HttpError::TooLong(_) => "check the path of the URL",
    };
    let failed = match error {
        HttpError::Connect(_) | HttpError::Timeout(_) => "cannot reach",
        HttpError::Cut(_) | HttpError::TooLong(_) => "unusable response of",
    };
    CommandError::Data(format!("{failed} {target}: {error}; {remedy}"))
}

/// Runs a future to its end, on this thread.
///
/// # Errors
/// The error of the future, or the system cannot create a runtime.
pub fn run_blocking<T>(
    future: impl Future<Output = Result<T, CommandError>>,
) -> Result<T, CommandError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| CommandError::Data(format!("cannot start: {error}")))?;
    let result = runtime.block_on(future);
    // a thread that resolves a name blocks for an unlimited time
    runtime.shutdown_background();
    result
}
