//! Targets of the REST Engine API (`/engine/v1/...`, execution-apis #793): their responses are never
//! cached, and GETs are denied with the JSON-RPC methods that they replace.

use super::query_calls::next_percent_decoded_byte;
use crate::config::CallAccessPolicy;
use crate::jsonrpc::method_rules::MethodAccessDecision;

/// JSON-RPC methods that are replaced by a GET: `capabilities`, `identity`, `payloads/{id}` and
/// `bodies`.
const REPLACED_METHODS: [&str; 10] = [
    "engine_exchangeCapabilities",
    "engine_getClientVersionV1",
    "engine_getPayloadV1",
    "engine_getPayloadV2",
    "engine_getPayloadV3",
    "engine_getPayloadV4",
    "engine_getPayloadV5",
    "engine_getPayloadV6",
    "engine_getPayloadBodiesByRangeV1",
    "engine_getPayloadBodiesByRangeV2",
];

/// Whether a request target may name a resource of the REST Engine API: its path contains
/// `/engine/v` and a digit, in any case and with any escapes.
pub(in crate::exchange) fn is_engine_target(target: &[u8]) -> bool {
    const ROOT: [u8; 9] = *b"/engine/v";
    let mut rest = target.split(|byte| *byte == b'?').next().unwrap_or(target);
    let mut last = [0; ROOT.len()];
    while let Some((byte, after)) = next_percent_decoded_byte(rest) {
        if last == ROOT && byte.is_ascii_digit() {
            return true;
        }
        last.rotate_left(1);
        last[ROOT.len() - 1] = byte.to_ascii_lowercase();
        rest = after;
    }
    false
}

/// Whether the rules deny a method that a GET of the REST Engine API replaces. The path of a GET is
/// not matched with the methods one by one, as nodes read paths differently.
pub(in crate::exchange) fn denies_engine_reads(policy: &CallAccessPolicy) -> bool {
    REPLACED_METHODS.iter().any(|method| {
        let decision = policy.evaluate_method_rules(method.as_bytes());
        matches!(decision, MethodAccessDecision::Denied)
    })
}

#[cfg(test)]
mod tests {
    use super::is_engine_target;

    #[test]
    fn engine_target_is_recognised_below_any_prefix_and_with_escapes() {
        for target in [
            "/engine/v1/capabilities",
            "/engine/v1/payloads/0x0000000000000001",
            "/key/engine/v2/bodies?from=1&count=2",
            "/ENGINE/V1/identity",
            "/%65ngine/%761/payloads/0x01",
            "/engine/v1",
        ] {
            assert!(is_engine_target(target.as_bytes()), "{target}");
        }
        for target in [
            "/",
            "/engine",
            "/engine/",
            "/engine/version",
            "/search-engine/v1/page",
            "/page?next=/engine/v1/identity",
            "/eth/v1/node/identity",
            "/engine/v",
        ] {
            assert!(!is_engine_target(target.as_bytes()), "{target}");
        }
    }
}
