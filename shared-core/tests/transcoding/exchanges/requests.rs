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
pub(super) enum AcceptedFormats {
    Ssz,
    SszOnly,
    Json,
    JsonOnly,
    Other,
}

pub(super) const ACCEPTS: [(&str, AcceptedFormats); 9] = [
    (
        "application/octet-stream;q=1.0,application/json;q=0.9",
        AcceptedFormats::Ssz,
    ),
    ("application/octet-stream", AcceptedFormats::SszOnly),
    (
        "application/json;q=0.1, application/octet-stream",
        AcceptedFormats::Ssz,
    ),
    ("application/json", AcceptedFormats::JsonOnly),
    (
        "application/json, application/octet-stream;q=0.5",
        AcceptedFormats::Json,
    ),
    ("*/*", AcceptedFormats::Json),
    (
        "application/octet-stream;q=0, */*",
        AcceptedFormats::JsonOnly,
    ),
    ("", AcceptedFormats::Json),
    ("text/event-stream", AcceptedFormats::Other),
];

impl AcceptedFormats {
    pub(super) fn prefers_ssz(self) -> Option<bool> {
        match self {
            AcceptedFormats::Ssz | AcceptedFormats::SszOnly => Some(true),
            AcceptedFormats::Json | AcceptedFormats::JsonOnly => Some(false),
            AcceptedFormats::Other => None,
        }
    }

    pub(super) fn accepts(self, is_ssz: bool) -> bool {
        match self {
            AcceptedFormats::SszOnly => is_ssz,
            AcceptedFormats::JsonOnly => !is_ssz,
            _ => true,
        }
    }
}
