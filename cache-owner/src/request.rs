//! What a request asks for. Pure, and strict: what is not in
//! `docs/owner-protocol.md` is refused, so that a mistake is not a surprise
//! later.

use hyper::http::request::Parts;
use hyper::{HeaderMap, Method, StatusCode};
use serde::Deserialize;
use sszip_core::cache::chain::Sighting;
use sszip_core::cache::class::Class;
use sszip_core::cache::entry::about::MAX_METHOD;
use sszip_core::cache::entry::about::{About as EntryAbout, Scope};
use sszip_core::cache::freshness::IfFinal;
use sszip_core::cache::owner::processes::Name;
use sszip_core::cache::{Key, Namespace};
use sszip_core::status::Format;

/// How long a lease lasts if nobody says otherwise, and at most. Milliseconds.
pub const LEASE: u64 = 10_000;
const LONGEST_LEASE: u64 = 60_000;

/// How long a look-up waits for the end of another's, at most. Milliseconds.
const LONGEST_WAIT: u64 = 60_000;

/// Keys of one request.
const MOST_KEYS: usize = 1_000;

/// The longest body of a request that is no entry, in bytes.
pub const LONGEST_BODY: usize = 66 * MOST_KEYS;

/// What is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// An entry.
    LookUp {
        /// Its key.
        key: Key,
        /// If it is missing.
        lease: Option<Wanted>,
    },
    /// Several entries; the body has their [`keys`].
    LookUps,
    /// To keep the entry that is the body.
    Put(Put),
    /// To end a lease.
    GiveBack {
        /// Of what.
        key: Key,
        /// Whose.
        process: Name,
    },
    /// To remove entries; the body has the [`scope`].
    Purge,
    /// A block was shown to a client.
    Shows {
        /// Of the chain behind which namespace.
        namespace: Namespace,
        /// Which one.
        sighting: Sighting,
    },
    /// A purge holds; the body has its [`generation`].
    Acknowledge(Name),
    /// The event stream.
    Events(Name),
    /// What the owner knows of itself.
    Status(Format),
}

/// What is said of an entry that is to be kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Put {
    /// Its key.
    pub key: Key,
    /// What it is.
    pub about: EntryAbout,
    /// For how many milliseconds it is fresh.
    pub fresh: u64,
    /// Who puts it.
    pub process: Option<Name>,
    /// What else it may be kept as.
    pub if_final: Option<IfFinal>,
}

/// A lease that is wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// By whom.
    pub process: Name,
    /// For how many milliseconds.
    pub time: u64,
    /// If it is another's, how long to wait for its end. Milliseconds.
    pub wait: u64,
}

/// The chain of which an answer is to tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct About {
    /// It is behind that.
    pub namespace: Namespace,
    /// The number of what is known of it.
    pub known: Option<u64>,
}

/// Why a request is refused (RFC 9457).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The status.
    pub status: StatusCode,
    /// What is wrong with this one.
    pub detail: String,
    /// For a 405: what is allowed.
    pub allow: Option<&'static str>,
}

impl Problem {
    /// One with a text for people.
    pub fn new(status: StatusCode, detail: impl Into<String>) -> Self {
        Self {
            status,
            detail: detail.into(),
            allow: None,
        }
    }
}

fn bad(detail: impl Into<String>) -> Problem {
    Problem::new(StatusCode::BAD_REQUEST, detail)
}

/// What the head of a request asks for.
///
/// # Errors
/// [`Problem`].
pub fn read(head: &Parts) -> Result<Request, Problem> {
    let query = Query::read(head.uri.query())?;
    let nowhere = |detail| Problem::new(StatusCode::NOT_FOUND, detail);
    let path = head.uri.path();
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
        _ => return Err(nowhere(
            "there is entries/KEY, lookups, leases/KEY, heads, purges, acknowledgements, events and status",
        )),
    };
    if !allowed.split(", ").any(|name| name == head.method.as_str()) {
        let detail = format!("{} is not allowed here, {allowed} is", head.method);
        return Err(Problem {
            allow: Some(allowed),
            ..Problem::new(StatusCode::METHOD_NOT_ALLOWED, detail)
        });
    }
    query.allows(names)?;
    let key = || key(text.unwrap_or_default());
    Ok(match kind {
        "entries" if is_put => put(key()?, &head.headers)?,
        "entries" => {
            let (time, wait) = (query.number("for")?, query.number("wait")?);
            let lease = match query.name("lease")? {
                Some(process) => Some(Wanted {
                    process,
                    time: time.unwrap_or(LEASE).clamp(1, LONGEST_LEASE),
                    wait: wait.unwrap_or(0).min(LONGEST_WAIT),
                }),
                None if time.is_some() => {
                    return Err(bad("for= is how long a lease=PROCESS lasts"))
                }
                None if wait.is_some() => {
                    return Err(bad("wait= is how long a lease=PROCESS is waited for"))
                }
                None => None,
            };
            Request::LookUp { key: key()?, lease }
        }
        "leases" => Request::GiveBack {
            key: key()?,
            process: query.process()?,
        },
        "acknowledgements" => Request::Acknowledge(query.process()?),
        "events" => Request::Events(query.process()?),
        "heads" => Request::Shows {
            namespace: namespace(query.get("namespace").unwrap_or_default())?,
            sighting: Sighting {
                height: (query.number("height")?).ok_or_else(|| bad("height= is missing"))?,
                is_block: match query.get("shown") {
                    Some("block") => true,
                    Some("part") => false,
                    _ => return Err(bad("shown= is block or part")),
                },
            },
        },
        "lookups" => Request::LookUps,
        "purges" => Request::Purge,
        _ => Request::Status(match query.get("format") {
            // as processes ask
            None => Format::Json,
            Some(_) => Format::of(head.uri.query().unwrap_or_default().as_bytes()).map_err(bad)?,
        }),
    })
}

/// The chain that a request names.
///
/// # Errors
/// [`Problem`].
pub fn about(fields: &HeaderMap) -> Result<Option<About>, Problem> {
    let known = number(fields, "sszip-chain-known")?;
    match text(fields, "sszip-namespace")?
        .map(namespace)
        .transpose()?
    {
        Some(namespace) => Ok(Some(About { namespace, known })),
        None if known.is_some() => Err(bad("sszip-chain-known is of an sszip-namespace")),
        None => Ok(None),
    }
}

fn put(key: Key, fields: &HeaderMap) -> Result<Request, Problem> {
    let class = text(fields, "sszip-class")?.ok_or_else(|| bad("a PUT needs sszip-class"))?;
    // nothing is nowhere kept
    let is_kept = |class: &Class| *class != Class::Nothing;
    let named = Class::named(class.as_bytes()).filter(is_kept);
    let class = named.ok_or_else(|| {
        let classes = Class::ALL.iter().copied().filter(is_kept);
        let names: Vec<_> = classes.map(Class::name).collect();
        bad(format!(
            "sszip-class: {class} is none of {}",
            names.join(" ")
        ))
    })?;
    let namespace = text(fields, "sszip-namespace")?
        .ok_or_else(|| bad("a PUT needs sszip-namespace"))
        .and_then(namespace)?;
    let method = text(fields, "sszip-method")?
        .map(|name| method_name(name.to_owned()))
        .transpose()?;
    let process = text(fields, "sszip-process")?.map(process).transpose()?;
    let needed = |name| number(fields, name)?.ok_or_else(|| bad(format!("a PUT needs {name}")));
    Ok(Request::Put(Put {
        key,
        about: EntryAbout {
            class,
            namespace,
            method,
            block: number(fields, "sszip-block")?,
            generation: needed("sszip-generation")?,
            epoch: number(fields, "sszip-epoch")?.unwrap_or(0),
            height: number(fields, "sszip-height")?,
        },
        fresh: needed("sszip-fresh")?,
        process,
        if_final: text(fields, "sszip-if-final")?.map(if_final).transpose()?,
    }))
}

fn if_final(text: &str) -> Result<IfFinal, Problem> {
    let mut words = text.split(' ');
    let mut word = || words.next().unwrap_or_default();
    let (transaction, last, valid) = (lower_hex(word()), decimal(word()), decimal(word()));
    match (transaction, last, valid, words.next()) {
        (Some(transaction), Some(last), Some(valid), None) => Ok(IfFinal {
            transaction,
            last,
            valid,
        }),
        _ => Err(bad(
            "sszip-if-final: a transaction's hash (64 lower-case hex digits), a block and milliseconds",
        )),
    }
}

/// The keys in a body, one a line.
///
/// # Errors
/// [`Problem`].
pub fn keys(body: &[u8]) -> Result<Vec<Key>, Problem> {
    let text = std::str::from_utf8(body).map_err(|_| bad("keys are hex digits"))?;
    let keys: Vec<Key> = text
        .lines()
        .take(MOST_KEYS + 1)
        .map(key)
        .collect::<Result<_, _>>()?;
    match keys.len() {
        1..=MOST_KEYS => Ok(keys),
        _ => Err(bad(format!("1 to {MOST_KEYS} keys at a time"))),
    }
}

/// The generation in a body.
///
/// # Errors
/// [`Problem`].
pub fn generation(body: &[u8]) -> Result<u64, Problem> {
    std::str::from_utf8(body)
        .ok()
        .map(|text| text.trim_ascii_end())
        .and_then(decimal)
        .ok_or_else(|| bad("the body is to be a generation, in decimal digits"))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PurgeObject {
    everything: Option<bool>,
    namespace: Option<String>,
    method: Option<String>,
    blocks: Option<(u64, u64)>,
    key: Option<String>,
    #[serde(rename = "wrong-chain")]
    wrong_chain: Option<String>,
}

/// The namespace that a purge suspends, since its node has another chain.
pub fn suspends(body: &[u8]) -> Option<Namespace> {
    let object: PurgeObject = serde_json::from_slice(body).ok()?;
    namespace(&object.wrong_chain?).ok()
}

/// The scope of the purge that a body describes.
///
/// # Errors
/// [`Problem`].
pub fn scope(body: &[u8]) -> Result<Scope, Problem> {
    let PurgeObject {
        everything,
        namespace: within,
        method,
        blocks,
        key: one,
        wrong_chain,
    } = serde_json::from_slice(body).map_err(|error| bad(format!("not a purge: {error}")))?;
    let within = within.or(wrong_chain);
    let within = within.as_deref().map(namespace).transpose()?;
    match (everything, within, method, blocks, one) {
        (Some(true), None, None, None, None) => Ok(Scope::Everything),
        (None, Some(namespace), None, None, None) => Ok(Scope::Namespace(namespace)),
        (None, namespace, Some(method), None, None) => Ok(Scope::Method {
            namespace,
            method: method_name(method)?,
        }),
        (None, Some(namespace), None, Some((from, to)), None) if from <= to => Ok(Scope::Blocks {
            namespace,
            from,
            to,
        }),
        (None, None, None, Some(_), None) => Err(bad("blocks are those of a namespace")),
        (None, None, None, None, Some(text)) => key(&text).map(Scope::Key),
        _ => Err(bad(
            "a purge is of everything (true), a namespace, a method (perhaps of a namespace), \
             blocks of a namespace (from and to) or a key",
        )),
    }
}

fn method_name(name: String) -> Result<Box<str>, Problem> {
    match name.len() {
        1..=MAX_METHOD => Ok(name.into()),
        _ => Err(bad(format!("a method has 1 to {MAX_METHOD} bytes"))),
    }
}

/// Lower-case hex only: a key has one spelling.
fn lower_hex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    let is_lower = !text.bytes().any(|byte| byte.is_ascii_uppercase());
    (is_lower && hex::decode_to_slice(text, &mut bytes).is_ok()).then_some(bytes)
}

fn key(text: &str) -> Result<Key, Problem> {
    lower_hex(text).ok_or_else(|| bad("a key is 64 lower-case hex digits"))
}

fn namespace(text: &str) -> Result<Namespace, Problem> {
    lower_hex(text).ok_or_else(|| bad("a namespace is 32 lower-case hex digits"))
}

fn process(text: &str) -> Result<Name, Problem> {
    Name::new(text)
        .ok_or_else(|| bad("a process is 1 to 64 letters, digits, dashes, dots and underscores"))
}

/// Digits only: `parse` takes a sign.
fn decimal(text: &str) -> Option<u64> {
    let is_digits = text.bytes().all(|byte| byte.is_ascii_digit());
    is_digits.then(|| text.parse().ok()).flatten()
}

fn text<'a>(fields: &'a HeaderMap, name: &'static str) -> Result<Option<&'a str>, Problem> {
    let mut values = fields.get_all(name).into_iter();
    match (values.next(), values.next()) {
        (None, _) => Ok(None),
        (Some(value), None) => value
            .to_str()
            .map(Some)
            .map_err(|_| bad(format!("{name} is not text"))),
        _ => Err(bad(format!("{name} is there more than once"))),
    }
}

fn number(fields: &HeaderMap, name: &'static str) -> Result<Option<u64>, Problem> {
    text(fields, name)?
        .map(|text| decimal(text).ok_or_else(|| bad(format!("{name} is not a number"))))
        .transpose()
}

/// Names and values, none of which needs an escape.
struct Query<'a>(Vec<(&'a str, &'a str)>);

impl<'a> Query<'a> {
    fn read(query: Option<&'a str>) -> Result<Self, Problem> {
        let mut all: Vec<(&str, &str)> = Vec::new();
        for pair in query.unwrap_or_default().split('&') {
            if pair.is_empty() {
                continue;
            }
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            if all.iter().any(|(other, _)| *other == name) {
                return Err(bad(format!("{name}= is there more than once")));
            }
            all.push((name, value));
        }
        Ok(Self(all))
    }

    fn allows(&self, names: &[&str]) -> Result<(), Problem> {
        match self.0.iter().find(|(name, _)| !names.contains(name)) {
            Some((name, _)) => Err(bad(format!("{name}= means nothing here"))),
            None => Ok(()),
        }
    }

    fn get(&self, name: &str) -> Option<&'a str> {
        self.0
            .iter()
            .find(|(other, _)| *other == name)
            .map(|(_, value)| *value)
    }

    fn number(&self, name: &str) -> Result<Option<u64>, Problem> {
        self.get(name)
            .map(|text| decimal(text).ok_or_else(|| bad(format!("{name}= is not a number"))))
            .transpose()
    }

    fn name(&self, name: &str) -> Result<Option<Name>, Problem> {
        self.get(name).map(process).transpose()
    }

    fn process(&self) -> Result<Name, Problem> {
        self.name("process")?
            .ok_or_else(|| bad("process=PROCESS is missing"))
    }
}
