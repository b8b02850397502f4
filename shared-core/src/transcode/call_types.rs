//! JSON-RPC methods whose results are available as SSZ, and their types. No specification covers
//! SSZ for JSON-RPC results: the format is this project's own (docs/transcoding.md).

use super::ssz_routes::SszResponseType;
use crate::beacon;
use crate::negotiate::accept::{AcceptPreferences, FormatPreference};
use crate::negotiate::{cache_control, media_type};

/// Version of the types that have not changed since they were introduced.
const VERSION_1: u8 = 1;

const BYTES_RESULT: SszResponseType = SszResponseType::Result("ByteString", VERSION_1);
const BYTE_LISTS_RESULT: SszResponseType = SszResponseType::Result("ByteStrings", VERSION_1);
const WITNESS_RESULT: SszResponseType = SszResponseType::Result("ExecutionWitness", VERSION_1);
const NEW_PAYLOAD_RESULT: SszResponseType =
    SszResponseType::Result("NewPayloadWithWitness", VERSION_1);
const FORKCHOICE_RESULT: SszResponseType =
    SszResponseType::Result("ForkchoiceUpdatedWithWitness", VERSION_1);

/// Methods with SSZ results and their types, sorted by name.
#[rustfmt::skip]
static SSZ_METHODS: &[(&str, SszResponseType)] = &[
    ("debug_executionWitness", WITNESS_RESULT),
    ("debug_executionWitnessByBlockHash", WITNESS_RESULT),
    ("debug_getRawBlock", BYTES_RESULT),
    ("debug_getRawBlockAccessList", BYTES_RESULT),
    ("debug_getRawHeader", BYTES_RESULT),
    ("debug_getRawReceipts", BYTE_LISTS_RESULT),
    ("debug_getRawTransaction", BYTES_RESULT),
    ("debug_getRawTransactions", BYTE_LISTS_RESULT),
    ("engine_forkchoiceUpdatedWithWitnessV1", FORKCHOICE_RESULT),
    ("engine_forkchoiceUpdatedWithWitnessV2", FORKCHOICE_RESULT),
    ("engine_forkchoiceUpdatedWithWitnessV3", FORKCHOICE_RESULT),
    ("engine_forkchoiceUpdatedWithWitnessV4", FORKCHOICE_RESULT),
    ("engine_newPayloadWithWitnessV1", NEW_PAYLOAD_RESULT),
    ("engine_newPayloadWithWitnessV2", NEW_PAYLOAD_RESULT),
    ("engine_newPayloadWithWitnessV3", NEW_PAYLOAD_RESULT),
    ("engine_newPayloadWithWitnessV4", NEW_PAYLOAD_RESULT),
    ("engine_newPayloadWithWitnessV5", NEW_PAYLOAD_RESULT),
    ("eth_call", BYTES_RESULT),
    ("eth_getCode", BYTES_RESULT),
    ("eth_getRawTransactionByBlockHashAndIndex", BYTES_RESULT),
    ("eth_getRawTransactionByBlockNumberAndIndex", BYTES_RESULT),
    ("eth_getRawTransactionByHash", BYTES_RESULT),
];

/// Returns the type of a method's result, or `None` if the result is not available as SSZ.
pub fn ssz_result_type(method: &[u8]) -> Option<&'static SszResponseType> {
    let found = SSZ_METHODS.binary_search_by(|(name, _)| name.as_bytes().cmp(method));
    found.ok().map(|at| &SSZ_METHODS[at].1)
}

/// Returns the client's format preference for a request that may be a JSON-RPC call, which only its
/// body shows. `None` if the request is no call, or if its response must not be transformed.
pub fn call_format_preference<'a>(
    method: &[u8],
    target: &[u8],
    fields: impl Iterator<Item = (&'a [u8], &'a [u8])>,
) -> Option<FormatPreference> {
    if method != b"POST" || beacon::is_beacon_route(target) {
        return None;
    }
    let mut accept = AcceptPreferences::default();
    let mut is_json = false;
    for (name, value) in fields {
        let is = |known: &str| name.eq_ignore_ascii_case(known.as_bytes());
        if is("accept") {
            accept.read_accept_line(value);
        } else if is("content-type") {
            is_json = media_type::is_json_type(value);
        } else if is("cache-control") && cache_control::has_no_transform(value) {
            return None;
        }
    }
    is_json.then(|| accept.format_preference())
}

#[cfg(test)]
mod tests {
    use super::{call_format_preference, ssz_result_type, SSZ_METHODS};
    use crate::negotiate::accept::FormatPreference;
    use crate::transcode::ssz_routes::SszResponseType;

    #[test]
    fn methods_are_sorted_and_found_by_name() {
        assert!(SSZ_METHODS.is_sorted_by(|a, b| a.0 < b.0));
        for (name, response_type) in SSZ_METHODS {
            assert_eq!(
                ssz_result_type(name.as_bytes()),
                Some(response_type),
                "{name}"
            );
        }
        for name in [
            "",
            "eth_getcode",
            "eth_getCod",
            "eth_getCodes",
            "eth_chainId",
        ] {
            assert_eq!(ssz_result_type(name.as_bytes()), None, "{name}");
        }
    }

    /// A misspelled type name would make the result unavailable as SSZ.
    #[test]
    fn result_types_exist_in_every_fork() {
        for (method, response_type) in SSZ_METHODS {
            let SszResponseType::Result(name, _) = response_type else {
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
            call_format_preference(method.as_bytes(), target.as_bytes(), fields.iter().copied())
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
