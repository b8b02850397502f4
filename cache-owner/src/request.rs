//! Decoding of requests. Pure, and strict: a request that is not in `docs/owner-protocol.md` is
//! rejected, so that a mistake shows at once.

use hyper::http::request::Parts;
use hyper::{HeaderMap, Method, StatusCode};
use serde::Deserialize;
use sszip_core::cache::chain::ShownBlock;
use sszip_core::cache::class::LifetimeClass;
use sszip_core::cache::entry::store_attributes::MAX_METHOD_LENGTH;
use sszip_core::cache::entry::store_attributes::{PurgeScope, StoredEntryAttributes as EntryAbout};
use sszip_core::cache::freshness::FinalityUpgrade;
use sszip_core::cache::owner::processes::OwnerClientName;
use sszip_core::cache::{CacheKey, CacheNamespace};
use sszip_core::status::StatusReportFormat;

/// Default and maximum duration of a lease, in milliseconds.
pub const DEFAULT_LEASE_MS: u64 = 10_000;
const MAX_LEASE_MS: u64 = 60_000;

/// Maximum time for which a lookup waits for the end of another process's lease, in milliseconds.
const MAX_WAIT_MS: u64 = 60_000;

/// Maximum number of keys in one request.
const MAX_KEYS: usize = 1_000;

/// Maximum length in bytes of a request body that is no entry.
pub const MAX_SMALL_BODY_BYTES: usize = 66 * MAX_KEYS;

/// A request of the owner protocol (HTTP over the owner's socket), decoded from its head.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OwnerHttpRequest {
    /// Look up one entry.
    LookUp {
        /// Key of the entry.
        key: CacheKey,
        /// The lease to request if the entry is missing.
        lease: Option<LeaseRequest>,
    },
    /// Look up several entries, whose [keys](parse_keys) are in the body.
    LookUps,
    /// Store the entry in the body.
    Put(PutRequest),
    /// Release a lease.
    ReleaseLease {
        /// Key of the lease.
        key: CacheKey,
        /// Holder of the lease.
        process: OwnerClientName,
    },
    /// Purge entries; the body has the [scope](parse_purge_scope).
    Purge,
    /// Record that a block was shown to a client.
    ShowBlock {
        /// Namespace of the block's chain.
        namespace: CacheNamespace,
        /// The shown block.
        sighting: ShownBlock,
    },
    /// Acknowledge purges up to the [generation](parse_acknowledged_generation) in the body.
    Acknowledge(OwnerClientName),
    /// Open the event stream.
    Events(OwnerClientName),
    /// Handle the frame in the body, which is a callout of a process that polls.
    Frames,
    /// Query the status of the owner.
    Status(StatusReportFormat),
}

/// The head of a request to store an entry: key, attributes and lifetime.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PutRequest {
    /// Key of the entry.
    pub key: CacheKey,
    /// Attributes of the entry.
    pub about: EntryAbout,
    /// Remaining lifetime in milliseconds.
    pub fresh: u64,
    /// Milliseconds since the node was queried.
    pub age: u64,
    /// Process that stores the entry.
    pub process: Option<OwnerClientName>,
    /// Conditions under which the entry is final.
    pub if_final: Option<FinalityUpgrade>,
}

/// The lease that a process requests with its lookup, and its wait for another process's lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseRequest {
    /// The process that requests it.
    pub process: OwnerClientName,
    /// Duration in milliseconds.
    pub time: u64,
    /// Maximum wait for the end of another process's lease, in milliseconds.
    pub wait: u64,
}

/// The chain whose state a process requests with any reply, as the headers of its request name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChainStateRequest {
    /// Namespace of the chain.
    pub namespace: CacheNamespace,
    /// Number of the state that the client knows.
    pub known: Option<u64>,
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

/// Decodes a request of the owner protocol from its head.
///
/// # Errors
/// [`ProblemDetails`].
pub fn decode_owner_request(head: &Parts) -> Result<OwnerHttpRequest, ProblemDetails> {
    let query = QueryParameters::parse_query(head.uri.query())?;
    let nowhere = |detail| ProblemDetails::new(StatusCode::NOT_FOUND, detail);
    let path = head.uri.path();
    if (path, &head.method) == ("/v2/frames", &Method::POST) {
        query.check_names(&[])?;
        return Ok(OwnerHttpRequest::Frames);
    }
    let path = path
        .strip_prefix("/v1/")
        .ok_or_else(|| nowhere("paths of this version of the protocol begin with /v1/"))?;
    let (kind, text) = match path.split_once('/') {
        Some((kind, text)) => (kind, Some(text)),
        None => (path, None),
    };
    let is_put = head.method == Method::PUT;
    let (allowed, names): (_, &[&str]) = match (kind, text) {
        ("entries", Some(_)) if is_put => ("GET, PUT", &[]),
        ("entries", Some(_)) => ("GET, PUT", &["lease", "for", "wait"]),
        ("leases", Some(_)) => ("DELETE", &["process"]),
        ("acknowledgements", None) => ("POST", &["process"]),
        ("events", None) => ("GET", &["process"]),
        ("heads", None) => ("POST", &["namespace", "height", "shown"]),
        ("lookups" | "purges", None) => ("POST", &[]),
        ("status", None) => ("GET", &["format"]),
        _ => {
            return Err(nowhere(
                "unknown path; known are entries/KEY, lookups, leases/KEY, heads, purges, \
             acknowledgements, events and status",
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
    query.check_names(names)?;
    let key = || parse_key(text.unwrap_or_default());
    Ok(match kind {
        "entries" if is_put => decode_put_request(key()?, &head.headers)?,
        "entries" => {
            let (time, wait) = (
                query.number_parameter("for")?,
                query.number_parameter("wait")?,
            );
            let lease = match query.name_parameter("lease")? {
                Some(process) => Some(LeaseRequest {
                    process,
                    time: time.unwrap_or(DEFAULT_LEASE_MS).clamp(1, MAX_LEASE_MS),
                    wait: wait.unwrap_or(0).min(MAX_WAIT_MS),
                }),
                None if time.is_some() => {
                    return Err(bad_request_problem("for= needs lease=PROCESS"))
                }
                None if wait.is_some() => {
                    return Err(bad_request_problem("wait= needs lease=PROCESS"))
                }
                None => None,
            };
            OwnerHttpRequest::LookUp { key: key()?, lease }
        }
        "leases" => OwnerHttpRequest::ReleaseLease {
            key: key()?,
            process: query.process_parameter()?,
        },
        "acknowledgements" => OwnerHttpRequest::Acknowledge(query.process_parameter()?),
        "events" => OwnerHttpRequest::Events(query.process_parameter()?),
        "heads" => OwnerHttpRequest::ShowBlock {
            namespace: parse_namespace(query.find_parameter("namespace").unwrap_or_default())?,
            sighting: ShownBlock {
                height: (query.number_parameter("height")?)
                    .ok_or_else(|| bad_request_problem("height= is missing"))?,
                is_block: match query.find_parameter("shown") {
                    Some("block") => true,
                    Some("part") => false,
                    _ => return Err(bad_request_problem("shown= must be block or part")),
                },
            },
        },
        "lookups" => OwnerHttpRequest::LookUps,
        "purges" => OwnerHttpRequest::Purge,
        _ => OwnerHttpRequest::Status(match query.find_parameter("format") {
            // the format that processes query
            None => StatusReportFormat::Json,
            Some(_) => StatusReportFormat::from_format_query(
                head.uri.query().unwrap_or_default().as_bytes(),
            )
            .map_err(bad_request_problem)?,
        }),
    })
}

/// Decodes the chain that the headers of a request name, if any.
///
/// # Errors
/// [`ProblemDetails`].
pub fn decode_chain_query(fields: &HeaderMap) -> Result<Option<ChainStateRequest>, ProblemDetails> {
    let known = parse_header_number(fields, "sszip-chain-known")?;
    match header_text(fields, "sszip-namespace")?
        .map(parse_namespace)
        .transpose()?
    {
        Some(namespace) => Ok(Some(ChainStateRequest { namespace, known })),
        None if known.is_some() => Err(bad_request_problem(
            "sszip-chain-known needs sszip-namespace",
        )),
        None => Ok(None),
    }
}

fn decode_put_request(
    key: CacheKey,
    fields: &HeaderMap,
) -> Result<OwnerHttpRequest, ProblemDetails> {
    let class = header_text(fields, "sszip-class")?
        .ok_or_else(|| bad_request_problem("a PUT needs sszip-class"))?;
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
    let namespace = header_text(fields, "sszip-namespace")?
        .ok_or_else(|| bad_request_problem("a PUT needs sszip-namespace"))
        .and_then(parse_namespace)?;
    let method = header_text(fields, "sszip-method")?
        .map(|name| check_method_name(name.to_owned()))
        .transpose()?;
    let process = header_text(fields, "sszip-process")?
        .map(parse_process_name)
        .transpose()?;
    let needed = |name| {
        parse_header_number(fields, name)?
            .ok_or_else(|| bad_request_problem(format!("a PUT needs {name}")))
    };
    Ok(OwnerHttpRequest::Put(PutRequest {
        key,
        about: EntryAbout {
            class,
            namespace,
            method,
            block: parse_header_number(fields, "sszip-block")?,
            generation: needed("sszip-generation")?,
            epoch: parse_header_number(fields, "sszip-epoch")?.unwrap_or(0),
            height: parse_header_number(fields, "sszip-height")?,
        },
        fresh: needed("sszip-fresh")?,
        age: parse_header_number(fields, "sszip-age")?.unwrap_or(0),
        process,
        if_final: header_text(fields, "sszip-if-final")?
            .map(parse_final_upgrade)
            .transpose()?,
    }))
}

fn parse_final_upgrade(text: &str) -> Result<FinalityUpgrade, ProblemDetails> {
    let mut words = text.split(' ');
    let mut word = || words.next().unwrap_or_default();
    let (transaction, last, valid) = (
        decode_lower_hex(word()),
        parse_decimal(word()),
        parse_decimal(word()),
    );
    match (transaction, last, valid, words.next()) {
        (Some(transaction), Some(last), Some(valid), None) => Ok(FinalityUpgrade {
            transaction,
            last,
            valid,
        }),
        _ => Err(bad_request_problem(
            "sszip-if-final must have a transaction's hash (64 lower-case hex digits), a block and \
             milliseconds",
        )),
    }
}

/// Parses the keys in a body, one per line.
///
/// # Errors
/// [`ProblemDetails`].
pub fn parse_keys(body: &[u8]) -> Result<Vec<CacheKey>, ProblemDetails> {
    let text =
        std::str::from_utf8(body).map_err(|_| bad_request_problem("keys must be hex digits"))?;
    let keys: Vec<CacheKey> = text
        .lines()
        .take(MAX_KEYS + 1)
        .map(parse_key)
        .collect::<Result<_, _>>()?;
    match keys.len() {
        1..=MAX_KEYS => Ok(keys),
        _ => Err(bad_request_problem(format!(
            "the body must have 1 to {MAX_KEYS} keys"
        ))),
    }
}

/// Parses the generation in the body of an acknowledgement.
///
/// # Errors
/// [`ProblemDetails`].
pub fn parse_acknowledged_generation(body: &[u8]) -> Result<u64, ProblemDetails> {
    std::str::from_utf8(body)
        .ok()
        .map(|text| text.trim_ascii_end())
        .and_then(parse_decimal)
        .ok_or_else(|| bad_request_problem("the body must be a generation in decimal digits"))
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

fn parse_process_name(text: &str) -> Result<OwnerClientName, ProblemDetails> {
    OwnerClientName::new(text).ok_or_else(|| {
        bad_request_problem(
            "a process must be 1 to 64 letters, digits, dashes, dots and underscores",
        )
    })
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

fn parse_header_number(
    fields: &HeaderMap,
    name: &'static str,
) -> Result<Option<u64>, ProblemDetails> {
    header_text(fields, name)?
        .map(|text| {
            parse_decimal(text)
                .ok_or_else(|| bad_request_problem(format!("{name} is not a number")))
        })
        .transpose()
}

/// The parameters of a query string, in which nothing is escaped.
struct QueryParameters<'a>(Vec<(&'a str, &'a str)>);

impl<'a> QueryParameters<'a> {
    fn parse_query(query: Option<&'a str>) -> Result<Self, ProblemDetails> {
        let mut all: Vec<(&str, &str)> = Vec::new();
        for pair in query.unwrap_or_default().split('&') {
            if pair.is_empty() {
                continue;
            }
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            if all.iter().any(|(other, _)| *other == name) {
                return Err(bad_request_problem(format!(
                    "{name}= occurs more than once"
                )));
            }
            all.push((name, value));
        }
        Ok(Self(all))
    }

    fn check_names(&self, names: &[&str]) -> Result<(), ProblemDetails> {
        match self.0.iter().find(|(name, _)| !names.contains(name)) {
            Some((name, _)) => Err(bad_request_problem(format!("{name}= is not allowed here"))),
            None => Ok(()),
        }
    }

    fn find_parameter(&self, name: &str) -> Option<&'a str> {
        self.0
            .iter()
            .find(|(other, _)| *other == name)
            .map(|(_, value)| *value)
    }

    fn number_parameter(&self, name: &str) -> Result<Option<u64>, ProblemDetails> {
        self.find_parameter(name)
            .map(|text| {
                parse_decimal(text)
                    .ok_or_else(|| bad_request_problem(format!("{name}= is not a number")))
            })
            .transpose()
    }

    fn name_parameter(&self, name: &str) -> Result<Option<OwnerClientName>, ProblemDetails> {
        self.find_parameter(name)
            .map(parse_process_name)
            .transpose()
    }

    fn process_parameter(&self) -> Result<OwnerClientName, ProblemDetails> {
        self.name_parameter("process")?
            .ok_or_else(|| bad_request_problem("process=PROCESS is missing"))
    }
}
