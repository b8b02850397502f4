//! Routes of the Beacon API with SSZ responses, and their types (beacon-APIs).

use super::light_client_updates::UPDATE_TYPE;
use crate::beacon;
use crate::ssz::Fork;

/// The SSZ type of the response of a route or a call, as far as it is known before the response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SszResponseType {
    /// The named type of the response's fork.
    Type(&'static str),
    /// The named type, which is the same in every fork since the given one: the response need not
    /// name its fork.
    Same(&'static str, Fork),
    /// A signed block, blinded from bellatrix on.
    Blinded,
    /// A block to be signed: the head of the response shows whether it is blinded.
    Produced,
    /// A block to be signed without a payload of its own: the head of the response shows whether the
    /// payload is included next to it.
    ProducedSeparatePayload,
    /// Light client updates, a list in which each update has its own fork.
    Updates,
    /// The result of a call: the named type, which is the same in every fork, and its version.
    Result(&'static str, u8),
    /// The result of a call, which is converted to a second type with a version: the payload status
    /// of JSON-RPC as REST has it.
    Status(&'static str, &'static str, u8),
    /// The response of REST, which is converted to the named type of JSON-RPC, or to JSON.
    Reply(&'static str, u8),
    /// A value without an SSZ type: neither format can be converted to the other.
    Untyped,
}

/// Response of a route of the Beacon API that is not in the tables.
pub static UNTYPED_RESPONSE: SszResponseType = SszResponseType::Untyped;

const BLINDED_HEADER: &str = "Eth-Execution-Payload-Blinded";
const PAYLOAD_INCLUDED_HEADER: &str = "Eth-Execution-Payload-Included";

const PTC_DATA: SszResponseType = SszResponseType::Same("PayloadAttestationData", Fork::Gloas);

/// GET routes below `/eth`; `*` matches one segment.
const GET_ROUTES: &[(&str, SszResponseType)] = &[
    (
        "v2/debug/beacon/states/*",
        SszResponseType::Type("BeaconState"),
    ),
    (
        "v2/beacon/blocks/*",
        SszResponseType::Type("SignedBeaconBlock"),
    ),
    ("v1/beacon/blinded_blocks/*", SszResponseType::Blinded),
    (
        "v1/beacon/light_client/bootstrap/*",
        SszResponseType::Type("LightClientBootstrap"),
    ),
    (
        "v1/beacon/light_client/finality_update",
        SszResponseType::Type("LightClientFinalityUpdate"),
    ),
    (
        "v1/beacon/light_client/optimistic_update",
        SszResponseType::Type("LightClientOptimisticUpdate"),
    ),
    ("v1/beacon/light_client/updates", SszResponseType::Updates),
    (
        "v1/beacon/blob_sidecars/*",
        SszResponseType::Type("BlobSidecars"),
    ),
    (
        "v1/beacon/blobs/*",
        SszResponseType::Same("Blobs", Fork::Deneb),
    ),
    (
        "v1/debug/beacon/data_column_sidecars/*",
        SszResponseType::Type("DataColumnSidecars"),
    ),
    (
        "v1/beacon/states/*/pending_deposits",
        SszResponseType::Type("PendingDeposits"),
    ),
    (
        "v1/beacon/states/*/pending_partial_withdrawals",
        SszResponseType::Type("PendingPartialWithdrawals"),
    ),
    (
        "v1/beacon/states/*/pending_consolidations",
        SszResponseType::Type("PendingConsolidations"),
    ),
    (
        "v1/beacon/states/*/proposer_lookahead",
        SszResponseType::Type("ProposerLookahead"),
    ),
    (
        "v1/beacon/states/*/builder_pending_payments",
        SszResponseType::Type("BuilderPendingPayments"),
    ),
    (
        "v1/beacon/states/*/builder_pending_withdrawals",
        SszResponseType::Type("BuilderPendingWithdrawals"),
    ),
    (
        "v1/beacon/states/*/validator_balances",
        SszResponseType::Same("ValidatorBalances", Fork::Phase0),
    ),
    (
        "v1/beacon/execution_payload_envelopes/*",
        SszResponseType::Type("SignedExecutionPayloadEnvelope"),
    ),
    (
        "v1/beacon/pool/payload_attestations",
        SszResponseType::Type("PayloadAttestations"),
    ),
    (
        "v1/beacon/proposer_preferences",
        SszResponseType::Type("KnownProposerPreferences"),
    ),
    ("v3/validator/blocks/*", SszResponseType::Produced),
    (
        "v4/validator/blocks/*",
        SszResponseType::ProducedSeparatePayload,
    ),
    (
        "v1/validator/execution_payload_envelopes/*/*",
        SszResponseType::Type("ExecutionPayloadEnvelope"),
    ),
    (
        "v1/validator/execution_payload_bids/*/*",
        SszResponseType::Type("ExecutionPayloadBid"),
    ),
    ("v1/validator/payload_attestation_data", PTC_DATA),
    // until July 2026 the slot was a part of the path
    ("v1/validator/payload_attestation_data/*", PTC_DATA),
    (
        "v2/validator/aggregate_attestation",
        SszResponseType::Type("Attestation"),
    ),
    (
        "v1/validator/attestation_data",
        SszResponseType::Same("AttestationData", Fork::Phase0),
    ),
];

/// POST routes below `/eth` that only query: their bodies name validators or builders.
const POST_ROUTES: &[(&str, SszResponseType)] = &[
    (
        "v1/beacon/states/*/validator_balances",
        SszResponseType::Same("ValidatorBalances", Fork::Phase0),
    ),
    (
        "v1/beacon/states/*/validator_identities",
        SszResponseType::Same("ValidatorIdentities", Fork::Phase0),
    ),
    (
        "v4/validator/blocks/*",
        SszResponseType::ProducedSeparatePayload,
    ),
];

/// Returns each route with SSZ responses: its method, its path below `/eth/`, in which `*` matches
/// one segment, and the type of its responses.
pub fn ssz_response_routes() -> impl Iterator<Item = (&'static str, &'static str, SszResponseType)>
{
    let gets = GET_ROUTES
        .iter()
        .map(|(route, gives)| ("GET", *route, *gives));
    gets.chain(
        POST_ROUTES
            .iter()
            .map(|(route, gives)| ("POST", *route, *gives)),
    )
}

/// Returns the response type for a target (path and query), or `None` if the route has no SSZ.
pub fn ssz_response_type(method: &[u8], target: &[u8]) -> Option<&'static SszResponseType> {
    let routes = match method {
        b"GET" | b"HEAD" => GET_ROUTES,
        b"POST" => POST_ROUTES,
        _ => return None,
    };
    let (version, segments) = beacon::split_api_path(target)?;
    let mut routes = routes.iter();
    let route =
        routes.find(|(route, _)| beacon::matches_api_route(route, version, segments.clone()));
    route.map(|(_, response)| response)
}

impl SszResponseType {
    /// Returns the header of the response whose value, `true` or `false`, names the kind of block;
    /// `None` for other types.
    pub fn block_kind_header_name(self) -> Option<&'static str> {
        match self {
            SszResponseType::Produced => Some(BLINDED_HEADER),
            SszResponseType::ProducedSeparatePayload => Some(PAYLOAD_INCLUDED_HEADER),
            _ => None,
        }
    }

    /// Returns the name of the SSZ type in a fork; `None` if the fork has no such type. `kind` is
    /// the value of [that header](Self::block_kind_header_name).
    pub fn type_name(self, fork: Fork, kind: Option<bool>) -> Option<&'static str> {
        match self {
            SszResponseType::Type(name)
            | SszResponseType::Same(name, _)
            | SszResponseType::Result(name, _)
            | SszResponseType::Status(name, ..)
            | SszResponseType::Reply(name, _) => Some(name),
            SszResponseType::Updates => Some(UPDATE_TYPE),
            SszResponseType::Blinded if fork < Fork::Bellatrix => Some("SignedBeaconBlock"),
            SszResponseType::Blinded => Some("SignedBlindedBeaconBlock"),
            // v3 and v4 serve different forks
            SszResponseType::Produced if fork > Fork::Fulu => None,
            SszResponseType::ProducedSeparatePayload if fork <= Fork::Fulu => None,
            SszResponseType::Produced => match kind? {
                true => Some("BlindedBeaconBlock"),
                false if fork < Fork::Deneb => Some("BeaconBlock"),
                false => Some("BlockContents"),
            },
            SszResponseType::ProducedSeparatePayload => match kind? {
                true => Some("BlockContents"),
                false => Some("BeaconBlock"),
            },
            SszResponseType::Untyped => None,
        }
    }

    /// Returns the first fork that has the type, if it is the same in all later forks: the response
    /// need not name its fork.
    pub(super) fn first_fork_if_unchanged(self) -> Option<Fork> {
        match self {
            SszResponseType::Same(_, fork) => Some(fork),
            SszResponseType::Result(..)
            | SszResponseType::Status(..)
            | SszResponseType::Reply(..) => Some(Fork::Phase0),
            SszResponseType::Type(_) | SszResponseType::Blinded | SszResponseType::Updates => None,
            SszResponseType::Produced
            | SszResponseType::ProducedSeparatePayload
            | SszResponseType::Untyped => None,
        }
    }

    /// Whether the envelope around the JSON may name a fork.
    pub(super) fn may_envelope_name_fork(self) -> bool {
        match self {
            SszResponseType::Type(_) | SszResponseType::Same(..) | SszResponseType::Blinded => true,
            SszResponseType::Produced | SszResponseType::ProducedSeparatePayload => true,
            SszResponseType::Result(..)
            | SszResponseType::Status(..)
            | SszResponseType::Reply(..) => false,
            SszResponseType::Updates | SszResponseType::Untyped => false,
        }
    }

    /// Whether the SSZ identifies forks by digests, as light client updates do.
    pub(super) fn names_forks_by_digest(self) -> bool {
        self == SszResponseType::Updates
    }

    /// Whether the response is the result of a JSON-RPC call.
    pub(super) fn is_call_result(self) -> bool {
        matches!(self, SszResponseType::Result(..))
    }

    /// Returns the value of the header `Sszip-Type` for a response, or `None` where the route
    /// determines the type (RFC 9651).
    pub(super) fn ssz_type_header_value(self) -> Option<String> {
        match self {
            SszResponseType::Result(name, version)
            | SszResponseType::Status(_, name, version)
            | SszResponseType::Reply(name, version) => Some(format!("{name};v={version}")),
            _ => None,
        }
    }

    /// Whether the JSON has members besides the value and the fork.
    pub(super) fn has_extra_json_members(self) -> bool {
        matches!(
            self,
            SszResponseType::Produced | SszResponseType::ProducedSeparatePayload
        )
    }

    /// Returns the name of the type if it is the same in all forks, or `None` if the fork must be
    /// known.
    pub(super) fn fork_independent_type_name(self) -> Option<&'static str> {
        match self {
            SszResponseType::Type(name) => Some(name),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{ssz_response_type, SszResponseType, GET_ROUTES, POST_ROUTES};
    use crate::ssz::{Fork, Preset, Schema};

    #[test]
    fn routes_are_matched_by_method_and_whole_path() {
        let of = |target: &str| ssz_response_type(b"GET", target.as_bytes()).copied();
        assert_eq!(
            of("/eth/v2/beacon/blocks/head?x=1"),
            Some(SszResponseType::Type("SignedBeaconBlock"))
        );
        assert_eq!(
            of("/a-key/eth/v2/beacon/blocks/head"),
            Some(SszResponseType::Type("SignedBeaconBlock"))
        );
        assert_eq!(
            of("/eth/v1/beacon/states/head/pending_deposits"),
            Some(SszResponseType::Type("PendingDeposits"))
        );
        assert_eq!(
            of("/eth/v1/beacon/proposer_preferences?slot=7"),
            Some(SszResponseType::Type("KnownProposerPreferences"))
        );
        for target in [
            "/eth/v1/beacon/blocks/head",
            "/eth/v2/beacon/blocks",
            "/eth/v2/beacon/blocks/",
            "/eth/v2/beacon/blocks/head/",
            "/eth/v2/beacon/blocks/head/root",
            "/eth/v1/beacon/blocks/head/attestations",
            "/eth/v1/beacon/states/head/validators",
            "/eth/v1/validator/payload_attestation_data/",
            "/eth/v1/beacon/light_client/updates/1",
            "/beacon/eth/head/v2/beacon/blocks/head",
            "/?/eth/v2/beacon/blocks/head",
            "/eth/v2",
            "/",
            "",
        ] {
            assert_eq!(of(target), None, "{target}");
        }
        let identities = b"/eth/v1/beacon/states/head/validator_identities";
        assert_eq!(ssz_response_type(b"GET", identities), None);
        assert!(ssz_response_type(b"POST", identities).is_some());
        assert_eq!(
            ssz_response_type(b"POST", b"/eth/v2/beacon/blocks/head"),
            None
        );
        assert_eq!(ssz_response_type(b"PUT", identities), None);
        for target in [
            "/eth/v1/validator/payload_attestation_data?slot=7",
            "/eth/v1/validator/payload_attestation_data/7",
        ] {
            let data = SszResponseType::Same("PayloadAttestationData", Fork::Gloas);
            assert_eq!(of(target), Some(data), "{target}");
        }
        let block = b"/eth/v4/validator/blocks/7?randao_reveal=0x00&include_payload=true";
        assert_eq!(
            ssz_response_type(b"POST", block),
            Some(&SszResponseType::ProducedSeparatePayload)
        );
        assert_eq!(
            ssz_response_type(b"POST", b"/eth/v3/validator/blocks/7"),
            None
        );
    }

    /// A misspelled type name would make the response unavailable as SSZ.
    #[test]
    fn response_types_exist_in_their_forks() {
        for (pattern, gives) in GET_ROUTES.iter().chain(POST_ROUTES) {
            let is_known = |fork: &Fork| {
                let name = gives.type_name(*fork, Some(false));
                let schema = Schema::for_fork(*fork, Preset::Mainnet);
                name.is_some_and(|name| schema.find_type(name).is_some())
            };
            assert!(Fork::ALL.iter().any(is_known), "{pattern}");
            if let SszResponseType::Same(_, fork) = gives {
                let later = Fork::ALL.iter().filter(|other| *other >= fork);
                assert!(later.clone().all(is_known), "{pattern}");
            }
        }
    }

    #[test]
    fn block_type_is_none_without_its_kind() {
        let gives = SszResponseType::Produced;
        assert_eq!(gives.type_name(Fork::Electra, None), None);
        assert_eq!(
            gives.type_name(Fork::Electra, Some(false)),
            Some("BlockContents")
        );
        assert_eq!(
            gives.type_name(Fork::Capella, Some(false)),
            Some("BeaconBlock")
        );
        assert_eq!(
            gives.type_name(Fork::Electra, Some(true)),
            Some("BlindedBeaconBlock")
        );
        assert_eq!(gives.type_name(Fork::Gloas, Some(false)), None);
        let gives = SszResponseType::ProducedSeparatePayload;
        assert_eq!(gives.type_name(Fork::Fulu, Some(true)), None);
        assert_eq!(gives.type_name(Fork::Gloas, None), None);
        assert_eq!(
            gives.type_name(Fork::Gloas, Some(true)),
            Some("BlockContents")
        );
        assert_eq!(
            gives.type_name(Fork::Gloas, Some(false)),
            Some("BeaconBlock")
        );
    }
}
