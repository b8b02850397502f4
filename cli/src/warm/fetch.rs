//! The steps of one request of `warm`: the cache is queried, then the node through the proxy, then
//! the cache again.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hyper::header::{HeaderName, HeaderValue, ACCEPT_ENCODING, CONTENT_ENCODING, RETRY_AFTER};
use hyper::StatusCode;
use tokio::time::sleep;

use super::disk_writes::DiskWrites;
use super::item::WarmRequest;
use super::outcome::{ItemResult, Outcome};
use super::rate_limit::RateLimiter;
use super::rpc_problem::{find_rpc_problem, RpcProblem, LIMIT_EXCEEDED};
use crate::http_client::{connection_error, HttpClient, HttpError, HttpReply};
use crate::inspect::cache_status::{
    only_if_cached, parse_sszip_member, CacheAnswer, CacheStatusMember,
};
use crate::inspect::{forwarded_error, missing_cache_error, request_headers};
use crate::server_text::printable;
use crate::target::Target;
use crate::CommandError;

/// Times before the repetitions of a failed request.
const RETRY_WAITS: [Duration; 3] = [
    Duration::from_secs(1),
    Duration::from_secs(2),
    Duration::from_secs(4),
];

/// Longest time of a `Retry-After` that is observed.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(60);

/// Times before the queries of the cache after a response: a worker stores the entry after it has
/// sent the response, and another worker receives it from the owner.
const QUERY_WAITS: [Duration; 6] = [
    Duration::ZERO,
    Duration::from_millis(1),
    Duration::from_millis(4),
    Duration::from_millis(20),
    Duration::from_millis(200),
    Duration::from_secs(1),
];

/// Sends requests to a route, so that their responses are cached.
pub struct Warmer {
    proxy: HttpClient,
    url: Target,
    writes: Option<DiskWrites>,
    limiter: Option<RateLimiter>,
    /// The requests are of clients: their errors are not the node's.
    is_of_clients: bool,
    has_responded: AtomicBool,
    /// Methods with a response that was stored.
    stored_methods: Mutex<HashSet<&'static str>>,
}

/// The failure of an attempt.
enum Failure {
    /// No request can succeed.
    Fatal(CommandError),
    /// The request may succeed after a time.
    Temporary { cause: String, wait: Duration },
    /// The request fails at each attempt.
    Permanent(String),
}

impl Warmer {
    /// Warms the route at `url`.
    pub fn new(
        proxy: HttpClient,
        url: Target,
        writes: Option<DiskWrites>,
        limiter: Option<RateLimiter>,
        is_of_clients: bool,
    ) -> Self {
        Self {
            proxy,
            url,
            writes,
            limiter,
            is_of_clients,
            has_responded: AtomicBool::new(false),
            stored_methods: Mutex::default(),
        }
    }

    /// Returns the requests to the owner, if there are any.
    pub fn writes(&self) -> Option<&DiskWrites> {
        self.writes.as_ref()
    }

    /// Sends a request until its response is cached, or can't be.
    ///
    /// # Errors
    /// No request can succeed.
    pub async fn warm(&self, request: &WarmRequest) -> Result<ItemResult, CommandError> {
        let mut node_time = None;
        let mut waits = RETRY_WAITS.iter();
        let outcome = loop {
            match self.try_to_warm(request, &mut node_time).await {
                Ok(outcome) => break outcome,
                Err(Failure::Fatal(error)) => return Err(error),
                Err(Failure::Permanent(cause)) => break Outcome::Failed(cause),
                Err(Failure::Temporary { cause, wait }) => match waits.next() {
                    Some(least) => sleep(wait.max(*least)).await,
                    None => break Outcome::Failed(cause),
                },
            }
        };
        Ok(ItemResult { outcome, node_time })
    }

    async fn try_to_warm(
        &self,
        request: &WarmRequest,
        node_time: &mut Option<Duration>,
    ) -> Result<Outcome, Failure> {
        if self.requires_first_query(request) {
            match self.query_cache(request).await? {
                CacheAnswer::Hit(member) => {
                    self.write_to_disk(&member).await?;
                    return Ok(match node_time {
                        // an earlier attempt has stored it
                        Some(_) => Outcome::Stored,
                        None => Outcome::AlreadyCached,
                    });
                }
                // it is never a hit: the node is not needed
                CacheAnswer::NotCached(member) if !member.is_looked_up() => {
                    return Ok(Outcome::NotStored(member.reason().into()));
                }
                CacheAnswer::NotCached(_) => {}
                CacheAnswer::Forwarded(reason) => {
                    let target = self.target(request);
                    return Err(Failure::Fatal(forwarded_error(&target, &reason)));
                }
                CacheAnswer::NoCache(status) => return self.outcome_without_cache(request, status),
            }
        }
        if let Some(limiter) = &self.limiter {
            limiter.wait().await;
        }
        let reply = self.send(request, Vec::new()).await?;
        let was_cached = node_time.is_none()
            && parse_sszip_member(&reply.headers).is_some_and(|member| member.is_hit);
        if !was_cached {
            *node_time = Some(reply.elapsed);
        }
        if let Some(reason) = self.check_reply(request, &reply)? {
            return Ok(Outcome::NotStored(reason));
        }
        let mut reason = String::from("miss");
        for wait in QUERY_WAITS {
            // even a sleep of no time takes a millisecond
            if wait > Duration::ZERO {
                sleep(wait).await;
            }
            match self.query_cache(request).await? {
                CacheAnswer::Hit(member) => {
                    self.write_to_disk(&member).await?;
                    let mut methods = self.lock_stored_methods();
                    methods.insert(request.name);
                    return Ok(match was_cached {
                        true => Outcome::AlreadyCached,
                        false => Outcome::Stored,
                    });
                }
                CacheAnswer::NotCached(member) => reason = member.reason().into(),
                CacheAnswer::Forwarded(_) | CacheAnswer::NoCache(_) => {}
            }
        }
        Ok(Outcome::NotStored(reason))
    }

    /// Whether the cache is queried before the request is sent as a client's. A call of a range is
    /// sent at once if the method has a stored response: the cache responds to it as well, and a
    /// miss would need the node after the query.
    fn requires_first_query(&self, request: &WarmRequest) -> bool {
        // the limit is of the node's requests only
        self.is_of_clients
            || self.limiter.is_some()
            || !request.is_of_known_method()
            || !self.lock_stored_methods().contains(request.name)
    }

    fn lock_stored_methods(&self) -> MutexGuard<'_, HashSet<&'static str>> {
        let guard = self.stored_methods.lock();
        guard.unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the URL of a request.
    fn target(&self, request: &WarmRequest) -> Target {
        match &request.path {
            Some(path) => self.url.with_path(path),
            None => self.url.clone(),
        }
    }

    async fn query_cache(&self, request: &WarmRequest) -> Result<CacheAnswer, Failure> {
        // a stored response is compressed: any other form costs the proxy time
        let coding = (ACCEPT_ENCODING, HeaderValue::from_static("gzip"));
        let mut reply = self.send(request, vec![only_if_cached(), coding]).await?;
        let mut answer = CacheAnswer::from_head(reply.status, &reply.headers);
        if answer.is_denied() && reply.headers.contains_key(CONTENT_ENCODING) {
            // another filter of the host has compressed the error
            reply = self.send(request, vec![only_if_cached()]).await?;
            answer = CacheAnswer::from_head(reply.status, &reply.headers);
        }
        if !matches!(answer, CacheAnswer::NoCache(_)) {
            self.has_responded.store(true, Ordering::Relaxed);
        }
        if answer.is_denied() {
            self.check_denial(request, &reply)?;
        }
        Ok(answer)
    }

    /// Returns the failure of a request that the policy of the route denies; none for a client's.
    fn check_denial(&self, request: &WarmRequest, reply: &HttpReply) -> Result<(), Failure> {
        let text = match find_rpc_problem(request, &reply.body) {
            Some(RpcProblem::Error {
                code: LIMIT_EXCEEDED,
                text,
            }) => return Err(temporary(text)),
            Some(RpcProblem::Error { text, .. }) => text,
            Some(RpcProblem::Null) | None => http_text(reply.status),
        };
        match self.is_of_clients {
            true => Ok(()),
            false => Err(Failure::Permanent(format!("denied: {text}"))),
        }
    }

    async fn send(
        &self,
        request: &WarmRequest,
        more_headers: Vec<(HeaderName, HeaderValue)>,
    ) -> Result<HttpReply, Failure> {
        let method = request.http_method();
        let mut headers = request_headers(&method);
        headers.extend(more_headers);
        let (path, body) = (request.path.as_deref(), request.body.clone());
        let sent = self.proxy.send(method, path, &headers, body).await;
        sent.map_err(|error| match error {
            HttpError::Connect(_) if !self.has_responded.load(Ordering::Relaxed) => {
                Failure::Fatal(connection_error(&self.url, &error))
            }
            HttpError::TooLong(_) => Failure::Permanent(error.to_string()),
            error => temporary(printable(&error.to_string())),
        })
    }

    /// Returns the outcome at a route that is no cached one.
    fn outcome_without_cache(
        &self,
        request: &WarmRequest,
        status: StatusCode,
    ) -> Result<Outcome, Failure> {
        let is_refused = matches!(status.as_u16(), 401 | 403 | 404 | 405);
        if is_temporary(status) {
            return Err(temporary(http_text(status)));
        }
        // a log has requests of other routes, too
        if self.is_of_clients && request.path.is_some() {
            return Ok(Outcome::NotStored("no cache at its route".into()));
        }
        let has_responded = self.has_responded.load(Ordering::Relaxed);
        match status.is_success() || is_refused && !has_responded {
            true => Err(Failure::Fatal(missing_cache_error(
                &self.target(request),
                status,
            ))),
            false => Err(Failure::Permanent(http_text(status))),
        }
    }

    /// Returns the reason for which a response of the node is not cached, as far as it shows.
    fn check_reply(
        &self,
        request: &WarmRequest,
        reply: &HttpReply,
    ) -> Result<Option<String>, Failure> {
        let status = reply.status;
        if is_temporary(status) {
            let wait = retry_after(reply).unwrap_or_default();
            let cause = http_text(status);
            return Err(Failure::Temporary { cause, wait });
        }
        if status.is_client_error() {
            // slots without a block are not found
            let is_absent = matches!(status, StatusCode::NOT_FOUND | StatusCode::GONE);
            return match is_absent || self.is_of_clients {
                true => Ok(Some("status".into())),
                false => Err(Failure::Permanent(http_text(status))),
            };
        }
        let member = parse_sszip_member(&reply.headers);
        match find_rpc_problem(request, &reply.body) {
            // a limit of the node, or of the policy, whose errors have no `Cache-Status`
            Some(RpcProblem::Error {
                code: LIMIT_EXCEEDED,
                text,
            }) if !self.is_of_clients || member.is_none() => Err(temporary(text)),
            Some(RpcProblem::Error { text, .. }) if !self.is_of_clients => {
                Err(Failure::Permanent(text))
            }
            Some(RpcProblem::Error { .. }) => Ok(Some("error".into())),
            Some(RpcProblem::Null) => Ok(Some("result".into())),
            None => Ok(member.and_then(|member| member.detail)),
        }
    }

    async fn write_to_disk(&self, member: &CacheStatusMember) -> Result<(), Failure> {
        let (Some(writes), Some(key)) = (&self.writes, &member.key) else {
            return Ok(());
        };
        let written = writes.write(key).await;
        written.map_err(|failure| temporary(format!("the owner: {}", printable(&failure.cause()))))
    }
}

fn temporary(cause: String) -> Failure {
    let wait = Duration::ZERO;
    Failure::Temporary { cause, wait }
}

fn is_temporary(status: StatusCode) -> bool {
    status.is_server_error()
        || matches!(
            status,
            StatusCode::TOO_MANY_REQUESTS | StatusCode::REQUEST_TIMEOUT
        )
}

fn http_text(status: StatusCode) -> String {
    format!("HTTP {}", status.as_u16())
}

/// Returns the time of `Retry-After` in seconds; dates are not read.
fn retry_after(reply: &HttpReply) -> Option<Duration> {
    let seconds = reply.headers.get(RETRY_AFTER)?.to_str().ok()?;
    Some(Duration::from_secs(seconds.parse().ok()?).min(MAX_RETRY_AFTER))
}

#[cfg(test)]
mod tests {
    use hyper::body::Bytes;
    use hyper::HeaderMap;

    use super::*;

    #[test]
    fn time_of_retry_after_is_limited() {
        let reply = |value: &'static str| HttpReply {
            status: StatusCode::SERVICE_UNAVAILABLE,
            headers: HeaderMap::from_iter([(RETRY_AFTER, HeaderValue::from_static(value))]),
            body: Bytes::new(),
            elapsed: Duration::ZERO,
        };
        assert_eq!(retry_after(&reply("3")), Some(Duration::from_secs(3)));
        assert_eq!(retry_after(&reply("100000")), Some(MAX_RETRY_AFTER));
        assert_eq!(retry_after(&reply("Sun, 29 Nov 2026 00:00:00 GMT")), None);
    }
}
