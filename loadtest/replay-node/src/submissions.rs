//! Submissions to the Beacon API for publication, or to the Engine API for a witness: whether
//! each is accepted, and how often the same bytes were submitted.

use std::collections::{BTreeMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use hyper::header::{self, HeaderValue};
use hyper::http::request;
use hyper::{HeaderMap, StatusCode};
use serde::Serialize;
use serde_json::value::RawValue;

use crate::page::{BodyFormat, CONSENSUS_VERSION};
use crate::served_formats::ServedFormats;
use crate::witness_submissions;

/// Maximum number of paths that are counted separately; further ones are counted together.
const MAX_PATHS: usize = 64;
const OTHER_PATHS: &str = "(other)";

/// The numbers of submissions to one path, accepted by format, repeated and refused.
#[derive(Clone, Debug, Default, Serialize)]
pub struct PathSubmissionCounts {
    json: u64,
    ssz: u64,
    /// Accepted although the same bytes had been accepted before.
    repeated: u64,
    refused: u64,
}

/// The body that was last accepted at a path, with its media type and fork.
#[derive(Clone, Debug)]
pub struct LastSubmission {
    pub media_type: HeaderValue,
    pub fork: Option<HeaderValue>,
    pub body: Bytes,
}

/// The recorded submissions to one path.
#[derive(Debug, Default)]
struct PathSubmissions {
    counts: PathSubmissionCounts,
    digests: HashSet<blake3::Hash>,
    last: Option<LastSubmission>,
}

/// The record of the bodies that clients published to the node, by path.
#[derive(Debug)]
pub struct ReceivedSubmissions {
    takes: ServedFormats,
    taken: Mutex<BTreeMap<String, PathSubmissions>>,
}

/// The decision on a submission: accepted, or refused with a status and the text or type of the
/// error.
pub type SubmissionVerdict = Result<(), (StatusCode, &'static str)>;

/// Whether a path belongs to the Beacon API or to a builder's API, so that bodies may be published
/// there.
pub fn is_publish_route(path: &str) -> bool {
    let version = path
        .strip_prefix("/eth/v")
        .and_then(|rest| rest.split_once('/'));
    version.is_some_and(|(number, rest)| number.parse::<u8>().is_ok() && !rest.is_empty())
}

impl ReceivedSubmissions {
    /// Creates the record of a node that accepts bodies in these formats.
    pub fn new(takes: ServedFormats) -> Self {
        Self {
            takes,
            taken: Mutex::default(),
        }
    }

    /// Accepts a body, or returns the reason of its refusal. An accepted one is counted even if
    /// its response is lost.
    pub fn accept_submission(&self, head: &request::Parts, body: &Bytes) -> SubmissionVerdict {
        let form = match witness_submissions::is_witness_route(head.uri.path()) {
            true => witness_submissions::check_payload_head(head, body),
            false => self.check_submission(head, body),
        };
        let mut all = self.lock_results();
        let key = counter_path(&all, head);
        let taken = all.entry(key).or_default();
        match form {
            Ok(form) => {
                match form {
                    BodyFormat::Json => taken.counts.json += 1,
                    BodyFormat::Ssz => taken.counts.ssz += 1,
                }
                if !taken.digests.insert(blake3::hash(body)) {
                    taken.counts.repeated += 1;
                }
                taken.last = Some(LastSubmission {
                    media_type: form.media_type(),
                    fork: head.headers.get(CONSENSUS_VERSION).cloned(),
                    body: body.clone(),
                });
                Ok(())
            }
            Err(why) => {
                taken.counts.refused += 1;
                Err(why)
            }
        }
    }

    /// Counts a submission that is refused by an option, whatever its content.
    pub fn count_refused_submission(&self, head: &request::Parts) {
        let mut all = self.lock_results();
        let key = counter_path(&all, head);
        all.entry(key).or_default().counts.refused += 1;
    }

    /// Returns the format of a valid submission, or the status and the message with which a node
    /// refuses it.
    fn check_submission(
        &self,
        head: &request::Parts,
        body: &[u8],
    ) -> Result<BodyFormat, (StatusCode, &'static str)> {
        let unsupported = |why| (StatusCode::UNSUPPORTED_MEDIA_TYPE, why);
        let text = |name| header_text(&head.headers, name);
        match text(header::CONTENT_ENCODING) {
            None | Some("identity") => (),
            Some(_) => return Err(unsupported("unsupported content coding")),
        }
        let form = BodyFormat::from_media_type(text(header::CONTENT_TYPE).unwrap_or_default());
        let form = form
            .filter(|form| self.takes.includes_format(*form))
            .ok_or(unsupported("unsupported content type"))?;
        let bad = |why| (StatusCode::BAD_REQUEST, why);
        if form == BodyFormat::Json && serde_json::from_slice::<&RawValue>(body).is_err() {
            return Err(bad("the body is not JSON"));
        }
        if form == BodyFormat::Ssz && body.is_empty() {
            return Err(bad("the body is empty"));
        }
        let is_versioned = head.uri.path().starts_with("/eth/v2/");
        if is_versioned && !head.headers.contains_key(CONSENSUS_VERSION) {
            return Err(bad("missing required header Eth-Consensus-Version"));
        }
        Ok(form)
    }

    /// Returns the counters by path.
    pub fn submission_counts_by_path(&self) -> BTreeMap<String, PathSubmissionCounts> {
        let of = |(path, taken): (&String, &PathSubmissions)| (path.clone(), taken.counts.clone());
        self.lock_results().iter().map(of).collect()
    }

    /// Returns the last accepted submission of a path.
    pub fn last_accepted_submission(&self, path: &str) -> Option<LastSubmission> {
        self.lock_results().get(path)?.last.clone()
    }

    fn lock_results(&self) -> MutexGuard<'_, BTreeMap<String, PathSubmissions>> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the path under which a submission is counted. Paths after the first [`MAX_PATHS`] are
/// counted as one.
fn counter_path(all: &BTreeMap<String, PathSubmissions>, head: &request::Parts) -> String {
    let path = head.uri.path();
    let known = all.len() < MAX_PATHS || all.contains_key(path);
    if known { path } else { OTHER_PATHS }.to_owned()
}

/// Returns the value of a header; `None` if it is absent or not printable ASCII.
pub fn header_text(headers: &HeaderMap, name: header::HeaderName) -> Option<&str> {
    headers.get(name)?.to_str().ok()
}
