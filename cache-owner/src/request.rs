//! Decoding of requests. Pure, and strict: a request that is not in `docs/owner-protocol.md` is
//! rejected, so that a mistake shows at once.

use hyper::http::request::Parts;
use hyper::{HeaderMap, Method, StatusCode};
use serde::Deserialize;
use sszip_core::cache::class::LifetimeClass;
use sszip_core::cache::entry::store_attributes::{
    PurgeScope, StoredEntryAttributes, MAX_METHOD_LENGTH,
};
use sszip_core::cache::owner_protocol::message_body::MessageBody;
use sszip_core::cache::owner_protocol::process_message::StoreRequest;
use sszip_core::cache::{CacheKey, CacheNamespace};
use sszip_core::status::StatusReportFormat;

/// Maximum length of the JSON of a purge in bytes.
pub const MAX_PURGE_BYTES: usize = 64 << 10;

/// Maximum length of the JSON of a measurement of the fleet in bytes.
pub const MAX_PING_BYTES: usize = 1 << 10;

/// A request of the HTTP interface, decoded from its head.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OwnerHttpRequest {
    /// Look up the entry of a key.
    LookUp(CacheKey),
    /// Store the entry in the body.
    Put(Box<StoreRequest>),
    /// Purge entries; the body has the [scope](parse_purge_scope).
    Purge,
    /// Handle the frame in the body, which is a callout of a process that polls.
    Frames,
    /// Measure the latency of the fleet; the body has the [length of the value](parse_ping_length).
    PingFleet,
    /// Query the status of the owner.
    Status(StatusReportFormat),
}

/// The reason why the owner rejects a request, as problem details (RFC 9457).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProblemDetails {
    /// HTTP status.
    pub status: StatusCode,
    /// The error of this request.
    pub detail: String,
    /// Allowed methods, for status 405.
    pub allow: Option<&'static str>,
}

impl ProblemDetails {
    /// Creates a problem with a text for operators.
    pub fn new(status: StatusCode, detail: impl Into<String>) -> Self {
        Self {
            status,
            detail: detail.into(),
            allow: None,
        }
    }
}

fn bad_request_problem(detail: impl Into<String>) -> ProblemDetails {
    ProblemDetails::new(StatusCode::BAD_REQUEST, detail)
}

/// Decodes a request of the HTTP interface from its head.
///
/// # Errors
/// [`ProblemDetails`].
pub fn decode_owner_request(head: &Parts) -> Result<OwnerHttpRequest, ProblemDetails> {
    let nowhere = |detail| ProblemDetails::new(StatusCode::NOT_FOUND, detail);
    let (path, query) = (head.uri.path(), head.uri.query().unwrap_or_default());
    let reject_query = || match query {
        "" => Ok(()),
        _ => Err(bad_request_problem("no parameters are allowed here")),
    };
    if (path, &head.method) == ("/v5/frames", &Method::POST) {
        reject_query()?;
        return Ok(OwnerHttpRequest::Frames);
    }
    let path = path
        .strip_prefix("/v1/")
        .ok_or_else(|| nowhere("paths of the HTTP interface begin with /v1/"))?;
    let (kind, key) = match path.split_once('/') {
        Some((kind, key)) => (kind, Some(key)),
        None => (path, None),
    };
    let allowed = match (kind, key) {
        ("entries", Some(_)) => "GET, PUT",
        ("purges", None) | ("fleet", Some("ping")) => "POST",
        ("status", None) => "GET",
        _ => {
            return Err(nowhere(
                "unknown path; known are entries/KEY, purges, fleet/ping and status",
            ))
        }
    };
    if !allowed.split(", ").any(|name| name == head.method.as_str()) {
        let detail = format!("{} is not allowed here; allowed: {allowed}", head.method);
        return Err(ProblemDetails {
            allow: Some(allowed),
            ..ProblemDetails::new(StatusCode::METHOD_NOT_ALLOWED, detail)
        });
    }
    if kind != "status" {
        reject_query()?;
    }
    Ok(match (kind, key) {
        ("entries", Some(key)) if head.method == Method::PUT => OwnerHttpRequest::Put(Box::new(
            decode_put_request(parse_key(key)?, &head.headers)?,
        )),
        ("entries", Some(key)) => OwnerHttpRequest::LookUp(parse_key(key)?),
        ("purges", _) => OwnerHttpRequest::Purge,
        ("fleet", _) => OwnerHttpRequest::PingFleet,
        _ => OwnerHttpRequest::Status(match query {
            // the format that scripts query
            "" => StatusReportFormat::Json,
            _ => StatusReportFormat::from_format_query(query.as_bytes())
                .map_err(bad_request_problem)?,
        }),
    })
}

fn decode_put_request(key: CacheKey, fields: &HeaderMap) -> Result<StoreRequest, ProblemDetails> {
    let needed = |name: &'static str| {
        header_text(fields, name)?.ok_or_else(|| bad_request_problem(format!("a PUT needs {name}")))
    };
    let number = |name: &'static str, text| {
        parse_decimal(text).ok_or_else(|| bad_request_problem(format!("{name} is not a number")))
    };
    let class = needed("sszip-class")?;
    // entries of class `nothing` are never stored
    let is_cacheable = |class: &LifetimeClass| *class != LifetimeClass::Nothing;
    let named = LifetimeClass::from_class_name(class.as_bytes()).filter(is_cacheable);
    let class = named.ok_or_else(|| {
        let classes = LifetimeClass::ALL.iter().copied().filter(is_cacheable);
        let names: Vec<_> = classes.map(LifetimeClass::name).collect();
        bad_request_problem(format!(
            "sszip-class: {class} is not one of {}",
            names.join(" ")
        ))
    })?;
    let method = header_text(fields, "sszip-method")?;
    Ok(StoreRequest {
        id: 0,
        key,
        about: StoredEntryAttributes {
            class,
            namespace: parse_namespace(needed("sszip-namespace")?)?,
            method: method
                .map(|name| check_method_name(name.to_owned()))
                .transpose()?,
            generation: number("sszip-generation", needed("sszip-generation")?)?,
            ..StoredEntryAttributes::default()
        },
        fresh: number("sszip-fresh", needed("sszip-fresh")?)?,
        age: match header_text(fields, "sszip-age")? {
            Some(age) => number("sszip-age", age)?,
            None => 0,
        },
        if_final: None,
        is_shareable: false,
        anchor: None,
        total: 0,
        entry: MessageBody::default(),
    })
}

/// The JSON body of a purge request.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PurgeScopeJson {
    everything: Option<bool>,
    namespace: Option<String>,
    method: Option<String>,
    blocks: Option<(u64, u64)>,
    key: Option<String>,
    #[serde(rename = "wrong-chain")]
    wrong_chain: Option<String>,
}

/// Returns the namespace in the body of a purge that a process requests because its node has
/// another chain.
pub fn parse_wrong_chain_namespace(body: &[u8]) -> Option<CacheNamespace> {
    let object: PurgeScopeJson = serde_json::from_slice(body).ok()?;
    parse_namespace(&object.wrong_chain?).ok()
}

/// Parses the scope of the purge that a body describes.
///
/// # Errors
/// [`ProblemDetails`].
pub fn parse_purge_scope(body: &[u8]) -> Result<PurgeScope, ProblemDetails> {
    let PurgeScopeJson {
        everything,
        namespace: within,
        method,
        blocks,
        key: one,
        wrong_chain,
    } = serde_json::from_slice(body)
        .map_err(|error| bad_request_problem(format!("the body is not a purge: {error}")))?;
    let within = within.or(wrong_chain);
    let within = within.as_deref().map(parse_namespace).transpose()?;
    match (everything, within, method, blocks, one) {
        (Some(true), None, None, None, None) => Ok(PurgeScope::Everything),
        (None, Some(namespace), None, None, None) => Ok(PurgeScope::Namespace(namespace)),
        (None, namespace, Some(method), None, None) => Ok(PurgeScope::Method {
            namespace,
            method: check_method_name(method)?,
        }),
        (None, Some(namespace), None, Some((from, to)), None) if from <= to => {
            Ok(PurgeScope::Blocks {
                namespace,
                from,
                to,
            })
        }
        (None, None, None, Some(_), None) => Err(bad_request_problem("blocks need a namespace")),
        (None, None, None, None, Some(text)) => parse_key(&text).map(PurgeScope::Key),
        _ => Err(bad_request_problem(
            "a purge must have everything (true), a namespace, a method (optionally with a \
             namespace), a namespace with blocks (from and to), or a key",
        )),
    }
}

/// The JSON body of a request to measure the fleet.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FleetPingJson {
    bytes: u32,
}

/// Parses the length of the value that a measurement of the fleet stores and reads.
///
/// # Errors
/// [`ProblemDetails`].
pub fn parse_ping_length(body: &[u8]) -> Result<usize, ProblemDetails> {
    let FleetPingJson { bytes } = serde_json::from_slice(body).map_err(|error| {
        bad_request_problem(format!("the body is not {{\"bytes\":N}}: {error}"))
    })?;
    usize::try_from(bytes).map_err(|_| bad_request_problem("bytes is too large"))
}

fn check_method_name(name: String) -> Result<Box<str>, ProblemDetails> {
    match name.len() {
        1..=MAX_METHOD_LENGTH => Ok(name.into()),
        _ => Err(bad_request_problem(format!(
            "a method must have 1 to {MAX_METHOD_LENGTH} bytes"
        ))),
    }
}

/// Decodes hex digits in lower case only, so that a key has one notation.
fn decode_lower_hex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    let is_lower = !text.bytes().any(|byte| byte.is_ascii_uppercase());
    (is_lower && hex::decode_to_slice(text, &mut bytes).is_ok()).then_some(bytes)
}

fn parse_key(text: &str) -> Result<CacheKey, ProblemDetails> {
    decode_lower_hex(text)
        .ok_or_else(|| bad_request_problem("a key must be 64 lower-case hex digits"))
}

fn parse_namespace(text: &str) -> Result<CacheNamespace, ProblemDetails> {
    decode_lower_hex(text)
        .ok_or_else(|| bad_request_problem("a namespace must be 32 lower-case hex digits"))
}

/// Parses a number of decimal digits only: `parse` would accept a sign.
fn parse_decimal(text: &str) -> Option<u64> {
    let is_digits = text.bytes().all(|byte| byte.is_ascii_digit());
    is_digits.then(|| text.parse().ok()).flatten()
}

fn header_text<'a>(
    fields: &'a HeaderMap,
    name: &'static str,
) -> Result<Option<&'a str>, ProblemDetails> {
    let mut values = fields.get_all(name).into_iter();
    match (values.next(), values.next()) {
        (None, _) => Ok(None),
        (Some(value), None) => value
            .to_str()
            .map(Some)
            .map_err(|_| bad_request_problem(format!("{name} is not text"))),
        _ => Err(bad_request_problem(format!("{name} occurs more than once"))),
    }
}
