//! What a client makes of an answer.

use std::io::Read;

use sszip_core::ssz::{Fork, Preset, Schema, TypeId};

use super::super::fields::joined;
use super::super::host::Answer;
use super::super::naive::Json;
use super::VERSION;

pub(super) fn gunzip(coded: &[u8]) -> Option<Vec<u8>> {
    let mut body = Vec::new();
    let mut decoder = flate2::bufread::GzDecoder::new(coded);
    decoder.read_to_end(&mut body).ok()?;
    decoder.into_inner().is_empty().then_some(body)
}

/// The body without its coding; the length that is said is that of what came.
pub(super) fn decoded(answer: &Answer) -> Vec<u8> {
    if let Some(length) = joined(&answer.fields, "Content-Length") {
        assert_eq!(length, answer.body.len().to_string(), "{:?}", answer.fields);
    }
    match joined(&answer.fields, "Content-Encoding").as_deref() {
        Some("gzip") => gunzip(&answer.body).expect("a gzip member"),
        None => answer.body.clone(),
        other => panic!("{other:?}"),
    }
}

pub(super) fn is_of(answer: &Answer, media_type: &str) -> bool {
    joined(&answer.fields, "Content-Type").as_deref() == Some(media_type)
}

/// The members of that name of a JSON object, as a naive reader finds them; `None`: it
/// reads nothing.
pub(super) fn members(text: &[u8], name: &str) -> Option<Vec<Json>> {
    match serde_json::from_slice(text).ok()? {
        Json::Object(all) => {
            let all = all.into_iter().filter(|(other, _)| other == name);
            Some(all.map(|(_, value)| value).collect())
        }
        _ => None,
    }
}

/// The fork that an answer is of, and its type in that.
pub(super) fn type_in(
    answer: &Answer,
    name: &str,
    first: Option<Fork>,
) -> (&'static Schema, TypeId) {
    let fork = match first {
        Some(fork) => fork,
        None => joined(&answer.fields, VERSION)
            .expect("a fork")
            .parse()
            .unwrap(),
    };
    let schema = Schema::of(fork, Preset::Minimal);
    (schema, schema.find(name).expect("a type of that fork"))
}
