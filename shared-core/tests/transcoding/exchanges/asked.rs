//! Requests: their targets, and the formats that clients accept.

/// Targets, their types, and whether the type is the same in each fork.
pub(super) const ROUTES: [(&str, &str, bool); 10] = [
    (
        "/eth/v1/beacon/states/7/pending_consolidations",
        "PendingConsolidations",
        false,
    ),
    ("/eth/v2/beacon/blocks/7", "SignedBeaconBlock", false),
    (
        "/eth/v1/beacon/light_client/finality_update",
        "LightClientFinalityUpdate",
        false,
    ),
    (
        "/eth/v1/beacon/states/7/validator_balances",
        "ValidatorBalances",
        true,
    ),
    (
        "/eth/v2/validator/aggregate_attestation",
        "Attestation",
        false,
    ),
    (
        "/eth/v1/validator/attestation_data",
        "AttestationData",
        true,
    ),
    (
        "/eth/v1/beacon/pool/payload_attestations",
        "PayloadAttestations",
        false,
    ),
    (
        "/eth/v1/beacon/states/7/pending_deposits",
        "PendingDeposits",
        false,
    ),
    (
        "/eth/v1/beacon/states/7/proposer_lookahead",
        "ProposerLookahead",
        false,
    ),
    (
        "/eth/v1/beacon/execution_payload_envelopes/7",
        "SignedExecutionPayloadEnvelope",
        false,
    ),
];

/// The formats that a client accepts, with its preference.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Takes {
    Ssz,
    SszOnly,
    Json,
    JsonOnly,
    Other,
}

pub(super) const ACCEPTS: [(&str, Takes); 9] = [
    (
        "application/octet-stream;q=1.0,application/json;q=0.9",
        Takes::Ssz,
    ),
    ("application/octet-stream", Takes::SszOnly),
    (
        "application/json;q=0.1, application/octet-stream",
        Takes::Ssz,
    ),
    ("application/json", Takes::JsonOnly),
    (
        "application/json, application/octet-stream;q=0.5",
        Takes::Json,
    ),
    ("*/*", Takes::Json),
    ("application/octet-stream;q=0, */*", Takes::JsonOnly),
    ("", Takes::Json),
    ("text/event-stream", Takes::Other),
];

impl Takes {
    pub(super) fn wants_ssz(self) -> Option<bool> {
        match self {
            Takes::Ssz | Takes::SszOnly => Some(true),
            Takes::Json | Takes::JsonOnly => Some(false),
            Takes::Other => None,
        }
    }

    pub(super) fn takes(self, is_ssz: bool) -> bool {
        match self {
            Takes::SszOnly => is_ssz,
            Takes::JsonOnly => !is_ssz,
            _ => true,
        }
    }
}
