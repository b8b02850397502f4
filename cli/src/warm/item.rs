//! One request of `warm`.

use hyper::body::Bytes;
use hyper::Method;
use sszip_core::jsonrpc::methods::find_method_row;

/// The name of all methods that have none in the table of methods.
const OTHER_METHOD: &str = "other";

/// A request, as clients send it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WarmRequest {
    /// The path and query of a GET; JSON-RPC is sent to the path of the URL.
    pub path: Option<String>,
    /// A JSON-RPC call, or empty.
    pub body: Bytes,
    /// The name by which requests are counted.
    pub name: &'static str,
}

/// A request and its position in the source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WarmItem {
    /// The number of requests before it.
    pub position: u64,
    /// The request.
    pub request: WarmRequest,
}

/// The next part of a source of requests.
#[derive(Debug, PartialEq, Eq)]
pub enum SourceEvent {
    /// A request.
    Item(WarmItem),
    /// A line without a request that can be cached, or a repetition.
    Skipped,
    /// A line that cannot be read.
    BadLine {
        /// The number of the line, counted from 1.
        line: u64,
        /// The cause.
        cause: String,
    },
    /// The source cannot be read any more.
    Failed(String),
}

impl WarmRequest {
    /// Creates a JSON-RPC request of one call.
    pub fn call(body: impl Into<Bytes>, method: &[u8]) -> Self {
        let name = match find_method_row(method).name {
            "" => OTHER_METHOD,
            name => name,
        };
        Self {
            path: None,
            body: body.into(),
            name,
        }
    }

    /// Creates a GET for a path and query.
    pub fn get(path: String) -> Self {
        Self {
            path: Some(path),
            body: Bytes::new(),
            name: "GET",
        }
    }

    /// Whether all requests with this name are calls of one method.
    pub fn is_of_known_method(&self) -> bool {
        self.path.is_none() && self.name != OTHER_METHOD
    }

    /// Returns the method of HTTP.
    pub fn http_method(&self) -> Method {
        match &self.path {
            Some(_) => Method::GET,
            None => Method::POST,
        }
    }

    /// Returns the request as a line for `--requests`.
    pub fn to_line(&self) -> String {
        match &self.path {
            Some(path) => format!("GET {path}\n"),
            // a line feed of JSON is white space between its tokens
            None => {
                let text = String::from_utf8_lossy(&self.body);
                format!("{}\n", text.replace(['\n', '\r'], " "))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_written_as_one_line() {
        let call = WarmRequest::call("{\n\"a\":1\r\n}", b"eth_call");
        assert_eq!(call.to_line(), "{ \"a\":1  }\n");
        assert_eq!((call.name, call.http_method()), ("eth_call", Method::POST));
        let other = WarmRequest::call("{}", b"acme_x");
        assert_eq!(other.name, "other");
        let get = WarmRequest::get("/a?b".into());
        assert_eq!(
            (get.to_line().as_str(), get.http_method()),
            ("GET /a?b\n", Method::GET)
        );
        assert!(call.is_of_known_method());
        assert!(!other.is_of_known_method() && !get.is_of_known_method());
    }
}
