//! `sszip inspect`: whether a request is a cache hit, the reason if it is none, and its entry
//! (docs/warming.md).

pub mod cache_status;
mod explain;
pub mod owner_entry;
mod report;
pub mod request_input;

use std::time::SystemTime;

use hyper::header::{HeaderName, HeaderValue, CONTENT_TYPE};
use hyper::{Method, StatusCode};

use self::cache_status::{is_cache_key, only_if_cached, CacheAnswer, CacheStatusMember};
use self::owner_entry::OwnerEntries;
use self::report::{InspectReport, OwnerFinding};
use self::request_input::{find_unsafe_method, CacheRequest};
use crate::args::InspectArguments;
use crate::http_client::{connection_error, run_blocking, ConnectionOptions, HttpClient};
use crate::output::print_text;
use crate::server_text::printable;
use crate::target::Target;
use crate::CommandError;

/// Maximum length of a response of a cached route, and of an entry.
pub const MAX_RESPONSE_BYTES: usize = 256 << 20;

/// Runs `sszip inspect`.
///
/// # Errors
/// The arguments are invalid, the proxy or the owner does not respond, or the proxy has no cache
/// for the request.
pub fn run_inspect(arguments: &InspectArguments) -> Result<(), CommandError> {
    let report = match (is_cache_key(&arguments.request), &arguments.url) {
        (true, _) => inspect_key(arguments)?,
        (false, Some(url)) => inspect_request(arguments, url)?,
        (false, None) => {
            let text = "a request needs --url; a key has 64 hex digits";
            return Err(CommandError::Usage(text.into()));
        }
    };
    let now = SystemTime::now();
    print_text(&match arguments.json {
        true => format!("{:#}\n", report.to_json(now)),
        false => report.to_text(now),
    })
}

fn inspect_key(arguments: &InspectArguments) -> Result<InspectReport, CommandError> {
    let Some(owner) = owner_of(arguments)? else {
        let text = "a key needs --socket PATH, the owner's socket";
        return Err(CommandError::Usage(text.into()));
    };
    let key = arguments.request.to_ascii_lowercase();
    let owner = run_blocking(find_at_owner(&owner, &key))?;
    Ok(InspectReport {
        key: Some(key),
        owner,
        ..Default::default()
    })
}

fn inspect_request(
    arguments: &InspectArguments,
    url: &Target,
) -> Result<InspectReport, CommandError> {
    let request = CacheRequest::from_argument(&arguments.request)?;
    if let Some(method) = find_unsafe_method(&request.rpc_methods).filter(|_| !arguments.force) {
        return Err(CommandError::Usage(format!(
            "{} is not known to only read; a proxy without support for only-if-cached sends it to \
             the node: --force inspects it nevertheless",
            printable(method)
        )));
    }
    let options = ConnectionOptions {
        max_response: MAX_RESPONSE_BYTES,
        ..arguments.connection.options(1)
    };
    let proxy = HttpClient::new(url, &options)?;
    let owner = owner_of(arguments)?;
    run_blocking(async {
        let cache = query_cache(&proxy, url, &request).await?;
        let owner = match (&owner, &cache.key) {
            (Some(owner), Some(key)) => find_at_owner(owner, key).await?,
            _ => OwnerFinding::NotQueried,
        };
        let method = match &request.rpc_methods[..] {
            [method] => Some(method.clone()),
            _ => None,
        };
        Ok(InspectReport {
            key: cache.key.clone(),
            cache: Some(cache),
            method,
            owner,
        })
    })
}

fn owner_of(arguments: &InspectArguments) -> Result<Option<OwnerEntries>, CommandError> {
    let socket = arguments.socket.as_deref();
    let timeout = arguments.connection.timeout;
    let owner = socket.map(|socket| OwnerEntries::at_socket(socket, timeout, 1));
    owner.transpose()
}

async fn find_at_owner(owner: &OwnerEntries, key: &str) -> Result<OwnerFinding, CommandError> {
    match owner.find(key).await {
        Ok(Some(entry)) => Ok(OwnerFinding::Found(entry)),
        Ok(None) => Ok(OwnerFinding::Absent),
        Err(failure) => Err(owner.command_error(&failure)),
    }
}

async fn query_cache(
    proxy: &HttpClient,
    url: &Target,
    request: &CacheRequest,
) -> Result<CacheStatusMember, CommandError> {
    let target = match &request.path {
        Some(path) => url.with_path(path),
        None => url.clone(),
    };
    let mut headers = request_headers(&request.method);
    headers.push(only_if_cached());
    let (method, path) = (request.method.clone(), request.path.as_deref());
    let sent = proxy.send(method, path, &headers, request.body.clone());
    let reply = sent
        .await
        .map_err(|error| connection_error(&target, &error))?;
    match CacheAnswer::from_head(reply.status, &reply.headers) {
        CacheAnswer::Hit(member) | CacheAnswer::NotCached(member) => Ok(member),
        CacheAnswer::Forwarded(reason) => Err(forwarded_error(&target, &reason)),
        CacheAnswer::NoCache(status) => Err(missing_cache_error(&target, status)),
    }
}

/// Returns the headers of a request of a client with this method.
pub fn request_headers(method: &Method) -> Vec<(HeaderName, HeaderValue)> {
    match *method == Method::POST {
        true => vec![(CONTENT_TYPE, HeaderValue::from_static("application/json"))],
        false => Vec::new(),
    }
}

/// Returns the error for a proxy without support for `only-if-cached`.
pub fn forwarded_error(target: &Target, reason: &str) -> CommandError {
    CommandError::Data(format!(
        "the proxy at {target} does not support only-if-cached: it has sent the request to the \
         node (fwd={}); update it to the version of this command",
        printable(reason)
    ))
}

/// Returns the error for a route without a cache.
pub fn missing_cache_error(target: &Target, status: StatusCode) -> CommandError {
    let remedy = match status {
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
            "set the client's key by --header, or allow this address"
        }
        StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED => "check the path of the URL",
        StatusCode::TOO_MANY_REQUESTS => "repeat the command later",
        status if status.is_server_error() => "check the proxy's log",
        _ => "check the URL, and sszip_cache (nginx) or cache (Envoy) of its route",
    };
    CommandError::Data(format!(
        "no cache of sszip at {target}: the response (HTTP {}) has no Cache-Status of sszip; {remedy}",
        status.as_u16()
    ))
}
