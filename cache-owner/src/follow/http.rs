//! HTTP requests to a node, limited in time and memory; redirects are not followed.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::Incoming;
use hyper::header::{HeaderMap, HeaderName, HeaderValue, ACCEPT, CONTENT_TYPE, HOST, USER_AGENT};
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::client::legacy::Client;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use sszip_connect::connector::NodeConnector;
use sszip_connect::error_text::format_error_causes;
use sszip_core::config::endpoint::NodeEndpoint;
use sszip_core::config::head_source::HeadSource;
use tokio::time::timeout;

/// Maximum length of a response in bytes: a block's header comes with the hashes of its
/// transactions.
const MAX_RESPONSE_BYTES: usize = 8 << 20;

/// Time for which an unused connection is kept open.
const IDLE_TIMEOUT: Duration = Duration::from_secs(30);

/// Maximum number of idle connections: the number of concurrent queries.
const MAX_IDLE_CONNECTIONS: usize = 6;

/// The HTTP/1.1 client of a followed node, with a timeout and a limit of the response length.
#[derive(Clone)]
pub struct HttpNodeClient {
    client: Client<NodeConnector, Full<Bytes>>,
    endpoint: NodeEndpoint,
    fields: HeaderMap,
    timeout: Duration,
}

/// Returns the headers of each request to a node: `User-Agent` and the configured ones.
///
/// # Errors
/// A configured header is invalid. The message does not contain its value.
pub fn node_request_headers(follow: &HeadSource) -> Result<HeaderMap, String> {
    let mut fields = HeaderMap::new();
    let software = concat!("sszip/", env!("CARGO_PKG_VERSION"));
    fields.insert(USER_AGENT, HeaderValue::from_static(software));
    for (name, value) in &follow.headers {
        let bad = |problem: &str| format!("invalid header \"{name}\": {problem}");
        let field = HeaderName::from_bytes(name.as_bytes())
            .map_err(|_| bad("its name must be a token (RFC 9110, 5.6.2)"))?;
        let mut value = HeaderValue::from_str(value)
            .map_err(|_| bad("its value must be one line of visible characters"))?;
        value.set_sensitive(true);
        fields.insert(field, value);
    }
    Ok(fields)
}

impl HttpNodeClient {
    /// Creates the client of the followed node.
    ///
    /// # Errors
    /// The configuration is invalid. The message is for operators.
    pub fn new(
        follow: &HeadSource,
        endpoint: &NodeEndpoint,
        timeout: Duration,
    ) -> Result<Self, String> {
        let connector = NodeConnector::new(endpoint, follow.ca.as_deref())?;
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE_TIMEOUT)
            .pool_max_idle_per_host(MAX_IDLE_CONNECTIONS)
            .set_host(false)
            .build(connector);
        Ok(Self {
            client,
            endpoint: endpoint.clone(),
            fields: node_request_headers(follow)?,
            timeout,
        })
    }

    /// Sends a JSON-RPC request, and returns the body of the response.
    ///
    /// # Errors
    /// The reason why there is no response. The message is for operators.
    pub async fn post_json(&self, body: String) -> Result<Bytes, String> {
        let mut request = self.build_request(Method::POST, &self.endpoint.path, body)?;
        let json = HeaderValue::from_static("application/json");
        request.headers_mut().insert(CONTENT_TYPE, json);
        let (status, body) = self.fetch_response(request).await?;
        match status {
            StatusCode::OK => Ok(body),
            status => Err(status_error(status)),
        }
    }

    /// Fetches the resource under `path`, relative to the path of the node's URL. Returns `None`
    /// for status 404.
    ///
    /// # Errors
    /// The reason why there is no response. The message is for operators.
    pub async fn fetch_resource(&self, path: &str) -> Result<Option<Bytes>, String> {
        let request = self.build_request(Method::GET, &self.resource_path(path), String::new())?;
        match self.fetch_response(request).await? {
            (StatusCode::OK, body) => Ok(Some(body)),
            (StatusCode::NOT_FOUND, _) => Ok(None),
            (status, _) => Err(status_error(status)),
        }
    }

    /// Opens an event stream under `path`. Its duration is not limited.
    ///
    /// # Errors
    /// The reason why there is no stream. The message is for operators.
    pub async fn open_node_event_stream(&self, path: &str) -> Result<Incoming, String> {
        let mut request =
            self.build_request(Method::GET, &self.resource_path(path), String::new())?;
        let events = HeaderValue::from_static("text/event-stream");
        request.headers_mut().insert(ACCEPT, events);
        let response = timeout(self.timeout, self.send_request(request))
            .await
            .map_err(|_| self.timeout_error())??;
        match response.status() {
            StatusCode::OK => Ok(response.into_body()),
            status => Err(status_error(status)),
        }
    }

    fn resource_path(&self, path: &str) -> String {
        format!("{}{path}", self.endpoint.path.trim_end_matches('/'))
    }

    fn build_request(
        &self,
        method: Method,
        path: &str,
        body: String,
    ) -> Result<Request<Full<Bytes>>, String> {
        // the connector knows the address; the client requires a complete URI
        let authority = &self.endpoint.authority;
        let mut request = Request::builder()
            .method(method)
            .uri(format!("http://{authority}{path}"))
            .body(Full::from(body))
            .map_err(|error| format_error_causes(&error))?;
        let host = HeaderValue::from_str(authority).map_err(|error| format_error_causes(&error))?;
        let fields = request.headers_mut();
        fields.insert(HOST, host);
        fields.insert(ACCEPT, HeaderValue::from_static("application/json"));
        // configured headers take precedence
        fields.extend(self.fields.clone());
        Ok(request)
    }

    async fn send_request(
        &self,
        request: Request<Full<Bytes>>,
    ) -> Result<Response<Incoming>, String> {
        let response = self.client.request(request).await;
        response.map_err(|error| format_error_causes(&error))
    }

    /// Sends a request, and returns status and body of the response if both arrive within the
    /// timeout.
    async fn fetch_response(
        &self,
        request: Request<Full<Bytes>>,
    ) -> Result<(StatusCode, Bytes), String> {
        let answer = async {
            let (head, body) = self.send_request(request).await?.into_parts();
            let body = Limited::new(body, MAX_RESPONSE_BYTES).collect().await;
            let body = body.map_err(|error| match error.is::<LengthLimitError>() {
                true => format!("the response is longer than {MAX_RESPONSE_BYTES} bytes"),
                false => format_error_causes(&*error),
            })?;
            Ok((head.status, body.to_bytes()))
        };
        timeout(self.timeout, answer)
            .await
            .unwrap_or_else(|_| Err(self.timeout_error()))
    }

    fn timeout_error(&self) -> String {
        format!("no response within {} ms", self.timeout.as_millis())
    }
}

fn status_error(status: StatusCode) -> String {
    match status.is_redirection() {
        true => format!("HTTP {status}: redirects are not followed"),
        false => format!("HTTP {status}"),
    }
}

/// Returns the error text for a malformed response, with its beginning.
pub(super) fn malformed_response_error(body: &[u8], error: &serde_json::Error) -> String {
    let start: String = String::from_utf8_lossy(&body[..body.len().min(40)])
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect();
    format!("invalid response ({error}): {start}")
}
