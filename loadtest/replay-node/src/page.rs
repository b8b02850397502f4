//! A page, the response to GET at a path: a value as JSON, as SSZ, or as both, and the headers
//! that belong to it.

use std::sync::OnceLock;

use bytes::Bytes;
use hyper::header::{self, HeaderName, HeaderValue};
use hyper::HeaderMap;
use serde::Deserialize;

use crate::body_slices::SharedBodySlices;

/// Header that names the fork of a value of the Beacon API.
pub const CONSENSUS_VERSION: HeaderName = HeaderName::from_static("eth-consensus-version");

/// The format of a page's body: JSON or SSZ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyFormat {
    Json,
    Ssz,
}

impl BodyFormat {
    pub fn media_type(self) -> HeaderValue {
        match self {
            BodyFormat::Json => HeaderValue::from_static("application/json"),
            BodyFormat::Ssz => HeaderValue::from_static("application/octet-stream"),
        }
    }

    /// Returns the format that a media type names, whatever its parameters.
    pub fn from_media_type(media_type: &str) -> Option<Self> {
        let name = media_type.split(';').next().unwrap_or_default().trim();
        [BodyFormat::Json, BodyFormat::Ssz]
            .into_iter()
            .find(|form| name.eq_ignore_ascii_case(form.media_type_name()))
    }

    fn media_type_name(self) -> &'static str {
        match self {
            BodyFormat::Json => "application/json",
            BodyFormat::Ssz => "application/octet-stream",
        }
    }
}

/// The body of a page in one format, with its gzip form once that is used.
#[derive(Debug)]
pub struct PageRepresentation {
    body: Bytes,
    gzipped_body: OnceLock<Bytes>,
}

impl PageRepresentation {
    pub fn body_slices(&self) -> SharedBodySlices {
        SharedBodySlices::from(self.body.clone())
    }

    pub fn gzipped_body(&self) -> Bytes {
        self.gzipped_body
            .get_or_init(|| self.body_slices().compress_to_gzip())
            .clone()
    }

    pub fn body_bytes(&self) -> &[u8] {
        &self.body
    }
}

impl From<Vec<u8>> for PageRepresentation {
    fn from(body: Vec<u8>) -> Self {
        Self {
            body: body.into(),
            gzipped_body: OnceLock::new(),
        }
    }
}

/// The fork in the envelope of a Beacon API response.
#[derive(Deserialize)]
struct EnvelopeVersion {
    version: String,
}

/// The recorded response to a GET of one path, in each format that exists for it.
#[derive(Debug, Default)]
pub struct ReplayPage {
    pub json: Option<PageRepresentation>,
    pub ssz: Option<PageRepresentation>,
    /// Recorded headers; without any, only the JSON's `version` is known.
    response_headers: Option<Vec<(HeaderName, HeaderValue)>>,
}

impl ReplayPage {
    /// Sets the headers that are sent with each format.
    pub fn set_response_headers(&mut self, fields: Vec<(HeaderName, HeaderValue)>) {
        self.response_headers = Some(fields);
    }

    /// Returns the headers that were set, or the fork from the `version` of the JSON.
    pub fn page_response_headers(&self) -> Vec<(HeaderName, HeaderValue)> {
        match &self.response_headers {
            Some(fields) => fields.clone(),
            None => self.fork_header().into_iter().collect(),
        }
    }

    /// Returns `Eth-Consensus-Version` from the `version` of the JSON; `None` if the page has none.
    fn fork_header(&self) -> Option<(HeaderName, HeaderValue)> {
        let json = self.json.as_ref()?.body_bytes();
        let versioned: EnvelopeVersion = serde_json::from_slice(json).ok()?;
        let fork = HeaderValue::from_str(&versioned.version).ok()?;
        Some((CONSENSUS_VERSION, fork))
    }

    /// Determines the headers once, so that requests don't search for them.
    pub fn memoize_response_headers(&mut self) {
        self.response_headers = Some(self.page_response_headers());
    }

    pub fn find_header(&self, name: &HeaderName) -> Option<&HeaderValue> {
        let mut fields = self.response_headers.iter().flatten();
        fields
            .find(|(known, _)| known == name)
            .map(|(_, value)| value)
    }

    pub fn find_representation(&self, form: BodyFormat) -> Option<&PageRepresentation> {
        match form {
            BodyFormat::Json => self.json.as_ref(),
            BodyFormat::Ssz => self.ssz.as_ref(),
        }
    }

    /// Returns the size in bytes of the response to a request without Accept.
    pub fn default_response_size(&self) -> usize {
        let any = self.json.as_ref().or(self.ssz.as_ref());
        any.map_or(0, |one| one.body_bytes().len())
    }

    /// Returns the format that a request accepts (RFC 9110, 12.5.1), or `None` if it accepts no
    /// available one.
    pub fn negotiate_replay_page_format(&self, headers: &HeaderMap) -> Option<BodyFormat> {
        let there = [BodyFormat::Json, BodyFormat::Ssz]
            .into_iter()
            .filter(|form| self.find_representation(*form).is_some());
        negotiate_format(headers, there)
    }
}

/// Selects the format that a request accepts; without Accept, the first of `there`.
pub fn negotiate_format(
    headers: &HeaderMap,
    mut there: impl Iterator<Item = BodyFormat>,
) -> Option<BodyFormat> {
    let mut lines = headers.get_all(header::ACCEPT).iter().peekable();
    if lines.peek().is_none() {
        return there.next();
    }
    let lines: Vec<String> = lines
        .map(|line| String::from_utf8_lossy(line.as_bytes()).into_owned())
        .collect();
    let ranges: Vec<MediaRange<'_>> = lines
        .iter()
        .flat_map(|line| line.split(','))
        .map(MediaRange::parse_range)
        .collect();
    let weighed = there.filter_map(|form| Some((weight_of_format(&ranges, form)?, form)));
    // Among equal weights, the format that Accept names first, then the first available one.
    let best = weighed.reduce(|best, next| if next.0 > best.0 { next } else { best });
    best.map(|(_, form)| form)
}

/// A media range of an `Accept` header, with its weight.
struct MediaRange<'a> {
    name: &'a str,
    thousandths: u32,
}

impl<'a> MediaRange<'a> {
    /// Parses a media range with its weight, which is 1 unless a valid `q` follows.
    fn parse_range(text: &'a str) -> Self {
        let mut parts = text.split(';').map(str::trim);
        let name = parts.next().unwrap_or_default();
        let weight = parts.find_map(|part| {
            let (name, value) = part.split_once('=')?;
            let value: f64 = name
                .trim()
                .eq_ignore_ascii_case("q")
                .then_some(value)?
                .trim()
                .parse()
                .ok()?;
            Some((value * 1000.0) as u32)
        });
        Self {
            name,
            thousandths: weight.unwrap_or(1000),
        }
    }

    /// Returns how specifically the range names a format, or `None` if it does not match.
    fn specificity(&self, form: BodyFormat) -> Option<u8> {
        match self.name {
            "*/*" => Some(0),
            "application/*" => Some(1),
            name if name.eq_ignore_ascii_case(form.media_type_name()) => Some(2),
            _ => None,
        }
    }
}

/// Returns the weight of a format and its position in the list, or `None` if it is refused.
fn weight_of_format(ranges: &[MediaRange<'_>], form: BodyFormat) -> Option<(u32, usize)> {
    let named = ranges.iter().rev().enumerate();
    let (earliness, range, _) = named
        .filter_map(|(earliness, range)| Some((earliness, range, range.specificity(form)?)))
        .max_by_key(|(earliness, _, closeness)| (*closeness, *earliness))?;
    (range.thousandths > 0).then_some((range.thousandths, earliness))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(json: bool, ssz: bool) -> ReplayPage {
        let one = |there: bool| there.then(|| PageRepresentation::from(b"{}".to_vec()));
        ReplayPage {
            json: one(json),
            ssz: one(ssz),
            response_headers: None,
        }
    }

    fn accept(lines: &[&'static str]) -> HeaderMap {
        let lines = lines.iter().map(|line| HeaderValue::from_static(line));
        lines.map(|line| (header::ACCEPT, line)).collect()
    }

    #[test]
    fn format_is_negotiated_by_accept() {
        use BodyFormat::{Json, Ssz};
        let (json, ssz) = ("application/json", "application/octet-stream");
        let preferred = "application/octet-stream;q=1.0,application/json;q=0.9";
        let cases: [(&[&str], [Option<BodyFormat>; 3]); 13] = [
            (&[], [Some(Json), Some(Json), Some(Ssz)]),
            (&[json], [Some(Json), Some(Json), None]),
            (&[ssz], [Some(Ssz), None, Some(Ssz)]),
            (&[preferred], [Some(Ssz), Some(Json), Some(Ssz)]),
            (
                &["application/json , Application/Octet-Stream"],
                [Some(Json), Some(Json), Some(Ssz)],
            ),
            (&[ssz, json], [Some(Ssz), Some(Json), Some(Ssz)]),
            (&["*/*"], [Some(Json), Some(Json), Some(Ssz)]),
            (
                &["*/*;q=0.1, application/octet-stream"],
                [Some(Ssz), Some(Json), Some(Ssz)],
            ),
            (
                &["application/*, application/json;q=0.5"],
                [Some(Ssz), Some(Json), Some(Ssz)],
            ),
            (
                &["application/*;q=0.2, application/json;q=0"],
                [Some(Ssz), None, Some(Ssz)],
            ),
            (
                &["application/octet-stream;v=1;q=0.5,application/json;q=0.25"],
                [Some(Ssz), Some(Json), Some(Ssz)],
            ),
            (&["application/octet-stream;q=0"], [None, None, None]),
            (&["text/html"], [None, None, None]),
        ];
        for (lines, expected) in cases {
            let lines: Vec<&'static str> = lines
                .iter()
                .map(|line| line.to_string().leak() as &str)
                .collect();
            let of = |json, ssz| page(json, ssz).negotiate_replay_page_format(&accept(&lines));
            assert_eq!(
                [of(true, true), of(true, false), of(false, true)],
                expected,
                "{lines:?}"
            );
        }
    }

    #[test]
    fn fork_header_is_taken_from_the_json_unless_set() {
        let mut of = ReplayPage::default();
        assert!(of.page_response_headers().is_empty());
        of.json = Some(b"{\"data\":[],\"version\":\"electra\"}".to_vec().into());
        let fork = (CONSENSUS_VERSION, HeaderValue::from_static("electra"));
        assert_eq!(of.page_response_headers(), [fork]);
        of.set_response_headers(Vec::new());
        assert!(of.page_response_headers().is_empty());
    }
}
