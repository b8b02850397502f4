//! Reads a response as a client does.

use sszip_core::ssz::{Fork, Preset, Schema, TypeId};
use sszip_core::zstd::decompress_zstd;

use super::super::fields::{decode_body, joined_header_values};
use super::super::host::ClientResponse;
use super::super::reference::Json;
use super::super::support::gunzip;
use super::VERSION;

/// Decompresses a body of the node, which may be damaged. Decoders may differ in damaged zstd.
pub(super) fn decompressed(coding: &str, coded: &[u8]) -> Option<Vec<u8>> {
    match coding {
        "zstd" => decompress_zstd(coded, 64 << 20, |_| true).ok(),
        _ => gunzip(coded).ok(),
    }
}

/// Returns the decompressed body; a declared length must be the length of the received body.
pub(super) fn decoded(answer: &ClientResponse) -> Vec<u8> {
    let length = joined_header_values(&answer.fields, "Content-Length");
    if let Some(length) = &length {
        assert_eq!(
            *length,
            answer.body.len().to_string(),
            "{:?}",
            answer.fields
        );
    }
    let coding = joined_header_values(&answer.fields, "Content-Encoding");
    let coding = coding.as_deref();
    assert!(matches!(coding, None | Some("gzip" | "zstd")), "{coding:?}");
    decode_body(coding, &answer.body, length.is_some()).unwrap()
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
