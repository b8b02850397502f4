//! JSON in the responses of proxies and owners, and what other responses mean.

use hyper::header::CONTENT_TYPE;
use serde_json::Value;

use crate::http_client::HttpReply;
use crate::server_text::printable;
use crate::target::Target;
use crate::CommandError;

/// Returns the JSON of a response with status 200.
///
/// # Errors
/// The server reports an error, or the response is no JSON.
pub fn json_reply(target: &Target, reply: &HttpReply) -> Result<Value, CommandError> {
    let media_type = reply.headers.get(CONTENT_TYPE);
    let media_type = media_type.map_or(&b""[..], |value| value.as_bytes());
    let json = serde_json::from_slice::<Value>(&reply.body).ok();
    let text = match (reply.status.as_u16(), json) {
        (200, Some(json)) => return Ok(json),
        (200, None) if media_type.starts_with(b"text/html") => {
            format!("{target} is a page; its JSON is at the path with ?format=json")
        }
        (200, None) => format!("{target} does not respond with JSON; check the path of the URL"),
        (_, Some(problem)) if problem["detail"].is_string() => {
            let detail = problem["detail"].as_str().unwrap_or_default();
            format!("{target}: {}", printable(detail))
        }
        (401 | 403, _) => format!(
            "{target}: HTTP {}; allow the address of this client at the location or route, or \
             send credentials by --header",
            reply.status
        ),
        (404, _) => format!("{target}: HTTP {}; check the path of the URL", reply.status),
        (300..=399, _) => format!(
            "{target}: HTTP {}; redirects are not followed: use the URL that it leads to",
            reply.status
        ),
        _ => format!("{target}: HTTP {}; check the server's log", reply.status),
    };
    Err(CommandError::Data(text))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bytes::Bytes;
    use hyper::header::{HeaderMap, HeaderValue};
    use hyper::StatusCode;

    use super::*;

    fn reply(status: u16, media_type: &'static str, body: &'static str) -> HttpReply {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(media_type));
        HttpReply {
            status: StatusCode::from_u16(status).unwrap(),
            headers,
            body: Bytes::from_static(body.as_bytes()),
            elapsed: Duration::ZERO,
        }
    }

    #[test]
    fn responses_without_json_are_reported_with_a_remedy() {
        let target: Target = "http://proxy/sszip".parse().unwrap();
        let ok = json_reply(&target, &reply(200, "application/json", "{\"a\":1}")).unwrap();
        assert_eq!(ok["a"], 1);
        for (status, media_type, body, expected) in [
            (200, "text/html; charset=utf-8", "<html>", "?format=json"),
            (200, "text/plain", "", "does not respond with JSON"),
            (
                403,
                "text/html",
                "<html>",
                "403 Forbidden; allow the address",
            ),
            (404, "text/html", "<html>", "404 Not Found; check the path"),
            (301, "text/html", "", "redirects are not followed"),
            (
                500,
                "application/json",
                "{}",
                "500 Internal Server Error; check the server's log",
            ),
            (
                507,
                "application/problem+json",
                "{\"detail\":\"the disk\\u001b is full\"}",
                "http://proxy/sszip: the disk\\u{1b} is full",
            ),
        ] {
            let error = json_reply(&target, &reply(status, media_type, body)).unwrap_err();
            let message = error.message().unwrap();
            assert!(message.contains(expected), "{message}");
        }
    }
}
