//! JSON-RPC methods whose results are available as SSZ, and their types. No specification covers
//! SSZ for JSON-RPC results: the format is this project's own (docs/transcoding.md).

use super::ssz_routes::ResponseType;
use crate::beacon;
use crate::negotiate::accept::{Accept, FormatPreference};
use crate::negotiate::{cache_control, media_type};

/// Version of the types that have not changed since they were introduced.
const V1: u8 = 1;

const BYTES: ResponseType = ResponseType::Result("ByteString", V1);
const LIST: ResponseType = ResponseType::Result("ByteStrings", V1);
const WITNESS: ResponseType = ResponseType::Result("ExecutionWitness", V1);
const NEW_PAYLOAD: ResponseType = ResponseType::Result("NewPayloadWithWitness", V1);
const FORKCHOICE: ResponseType = ResponseType::Result("ForkchoiceUpdatedWithWitness", V1);

/// Methods with SSZ results and their types, sorted by name.
#[rustfmt::skip]
static METHODS: &[(&str, ResponseType)] = &[
    ("debug_executionWitness", WITNESS),
    ("debug_executionWitnessByBlockHash", WITNESS),
    ("debug_getRawBlock", BYTES),
    ("debug_getRawBlockAccessList", BYTES),
    ("debug_getRawHeader", BYTES),
    ("debug_getRawReceipts", LIST),
    ("debug_getRawTransaction", BYTES),
    ("debug_getRawTransactions", LIST),
    ("engine_forkchoiceUpdatedWithWitnessV1", FORKCHOICE),
    ("engine_forkchoiceUpdatedWithWitnessV2", FORKCHOICE),
    ("engine_forkchoiceUpdatedWithWitnessV3", FORKCHOICE),
    ("engine_forkchoiceUpdatedWithWitnessV4", FORKCHOICE),
    ("engine_newPayloadWithWitnessV1", NEW_PAYLOAD),
    ("engine_newPayloadWithWitnessV2", NEW_PAYLOAD),
    ("engine_newPayloadWithWitnessV3", NEW_PAYLOAD),
    ("engine_newPayloadWithWitnessV4", NEW_PAYLOAD),
    ("engine_newPayloadWithWitnessV5", NEW_PAYLOAD),
    ("eth_call", BYTES),
    ("eth_getCode", BYTES),
    ("eth_getRawTransactionByBlockHashAndIndex", BYTES),
    ("eth_getRawTransactionByBlockNumberAndIndex", BYTES),
    ("eth_getRawTransactionByHash", BYTES),
];

/// Returns the type of a method's result, or `None` if the result is not available as SSZ.
pub fn result_type(method: &[u8]) -> Option<&'static ResponseType> {
    let found = METHODS.binary_search_by(|(name, _)| name.as_bytes().cmp(method));
    found.ok().map(|at| &METHODS[at].1)
}

/// Returns the client's format preference for a request that may be a JSON-RPC call, which only its
/// body shows. `None` if the request is no call, or if its response must not be transformed.
pub fn format_preference<'a>(
    method: &[u8],
    target: &[u8],
    fields: impl Iterator<Item = (&'a [u8], &'a [u8])>,
) -> Option<FormatPreference> {
    if method != b"POST" || beacon::is_route(target) {
        return None;
    }
    let mut accept = Accept::default();
    let mut is_json = false;
    for (name, value) in fields {
        let is = |known: &str| name.eq_ignore_ascii_case(known.as_bytes());
        if is("accept") {
            accept.read_line(value);
        } else if is("content-type") {
            is_json = media_type::is_json(value);
        } else if is("cache-control") && cache_control::has_no_transform(value) {
            return None;
        }
    }
    is_json.then(|| accept.format_preference())
}

#[cfg(test)]
mod tests {
    use super::{format_preference, result_type, METHODS};
    use crate::negotiate::accept::FormatPreference;
    use crate::transcode::ssz_routes::ResponseType;

    #[test]
    fn methods_are_sorted_and_found_by_name() {
        assert!(METHODS.is_sorted_by(|a, b| a.0 < b.0));
        for (name, response_type) in METHODS {
            assert_eq!(result_type(name.as_bytes()), Some(response_type), "{name}");
        }
        for name in [
            "",
            "eth_getcode",
            "eth_getCod",
            "eth_getCodes",
            "eth_chainId",
        ] {
            assert_eq!(result_type(name.as_bytes()), None, "{name}");
        }
    }

    /// A misspelled type name would make the result unavailable as SSZ.
    #[test]
    fn result_types_exist_in_every_fork() {
        for (method, response_type) in METHODS {
            let ResponseType::Result(name, _) = response_type else {
                panic!("{method}: {response_type:?}");
            };
            assert!(crate::ssz::Schema::is_fork_independent(name), "{method}");
        }
    }

    #[test]
    fn format_preference_is_read_only_from_posted_json() {
        let json: (&[u8], &[u8]) = (b"content-type", b"application/json; charset=utf-8");
        let octets: (&[u8], &[u8]) = (b"ACCEPT", b"application/octet-stream");
        let of = |method: &str, target: &str, fields: &[(&'static [u8], &'static [u8])]| {
            format_preference(method.as_bytes(), target.as_bytes(), fields.iter().copied())
        };
        assert_eq!(
            of("POST", "/", &[json, octets]),
            Some(FormatPreference::SszOnly)
        );
        assert_eq!(of("POST", "/key?x", &[json]), Some(FormatPreference::Json));
        assert_eq!(of("GET", "/", &[json, octets]), None);
        assert_eq!(of("POST", "/eth/v2/beacon/blocks", &[json, octets]), None);
        let below = of("POST", "/eth/v1/a-key", &[json, octets]);
        assert_eq!(below, Some(FormatPreference::SszOnly));
        assert_eq!(of("POST", "/", &[octets]), None);
        for field in [
            (&b"Cache-Control"[..], &b"no-transform"[..]),
            (b"Content-Type", b"application/octet-stream"),
        ] {
            assert_eq!(of("POST", "/", &[json, octets, field]), None);
        }
    }
}
