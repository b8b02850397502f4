//! Reads a response as a client does.

use std::io::Read;

use sszip_core::ssz::{Fork, Preset, Schema, TypeId};

use super::super::fields::joined_header_values;
use super::super::host::ClientResponse;
use super::super::reference::Json;
use super::VERSION;

pub(super) fn gunzip(coded: &[u8]) -> Option<Vec<u8>> {
    let mut body = Vec::new();
    let mut decoder = flate2::bufread::GzDecoder::new(coded);
    decoder.read_to_end(&mut body).ok()?;
    decoder.into_inner().is_empty().then_some(body)
}

/// Returns the decompressed body; a declared length must be the length of the received body.
pub(super) fn decoded(answer: &ClientResponse) -> Vec<u8> {
    if let Some(length) = joined_header_values(&answer.fields, "Content-Length") {
        assert_eq!(length, answer.body.len().to_string(), "{:?}", answer.fields);
    }
    match joined_header_values(&answer.fields, "Content-Encoding").as_deref() {
        Some("gzip") => gunzip(&answer.body).expect("a gzip member"),
        None => answer.body.clone(),
        other => panic!("{other:?}"),
    }
}

pub(super) fn is_of(answer: &ClientResponse, media_type: &str) -> bool {
    joined_header_values(&answer.fields, "Content-Type").as_deref() == Some(media_type)
}

/// Returns the members of an object with this name, as a simple reader finds them; `None` if the
/// text is not a JSON object.
pub(super) fn members(text: &[u8], name: &str) -> Option<Vec<Json>> {
    match serde_json::from_slice(text).ok()? {
        Json::Object(all) => {
            let all = all.into_iter().filter(|(other, _)| other == name);
            Some(all.map(|(_, value)| value).collect())
        }
        _ => None,
    }
}

/// Returns the schema of the response's fork, and the type in it.
pub(super) fn type_in(
    answer: &ClientResponse,
    name: &str,
    first: Option<Fork>,
) -> (&'static Schema, TypeId) {
    let fork = match first {
        Some(fork) => fork,
        None => joined_header_values(&answer.fields, VERSION)
            .expect("a fork")
            .parse()
            .unwrap(),
    };
    let schema = Schema::for_fork(fork, Preset::Minimal);
    (schema, schema.find_type(name).expect("a type of that fork"))
}
