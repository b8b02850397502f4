//! Routes of the Beacon API with SSZ responses, and their types (beacon-APIs).

use super::updates::UPDATE;
use crate::beacon;
use crate::ssz::Fork;

/// The type of a route's response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gives {
    /// The named type of the response's fork.
    Type(&'static str),
    /// The named type, which is the same in every fork since the given one: the response need not
    /// name its fork.
    Same(&'static str, Fork),
    /// A signed block, blinded from bellatrix on.
    Blinded,
    /// A block to be signed: the response's head says whether it is blinded.
    Produced,
    /// A block to be signed without a payload of its own: the response's head says whether the
    /// payload is included next to it.
    ProducedBeside,
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
pub static UNTYPED: Gives = Gives::Untyped;

const BLINDED: &str = "Eth-Execution-Payload-Blinded";
const INCLUDED: &str = "Eth-Execution-Payload-Included";

const PTC_DATA: Gives = Gives::Same("PayloadAttestationData", Fork::Gloas);

/// GET routes below `/eth`; `*` matches one segment.
pub(super) const ROUTES: &[(&str, Gives)] = &[
    ("v2/debug/beacon/states/*", Gives::Type("BeaconState")),
    ("v2/beacon/blocks/*", Gives::Type("SignedBeaconBlock")),
    ("v1/beacon/blinded_blocks/*", Gives::Blinded),
    (
        "v1/beacon/light_client/bootstrap/*",
        Gives::Type("LightClientBootstrap"),
    ),
    (
        "v1/beacon/light_client/finality_update",
        Gives::Type("LightClientFinalityUpdate"),
    ),
    (
        "v1/beacon/light_client/optimistic_update",
        Gives::Type("LightClientOptimisticUpdate"),
    ),
    ("v1/beacon/light_client/updates", Gives::Updates),
    ("v1/beacon/blob_sidecars/*", Gives::Type("BlobSidecars")),
    ("v1/beacon/blobs/*", Gives::Same("Blobs", Fork::Deneb)),
    (
        "v1/debug/beacon/data_column_sidecars/*",
        Gives::Type("DataColumnSidecars"),
    ),
    (
        "v1/beacon/states/*/pending_deposits",
        Gives::Type("PendingDeposits"),
    ),
    (
        "v1/beacon/states/*/pending_partial_withdrawals",
        Gives::Type("PendingPartialWithdrawals"),
    ),
    (
        "v1/beacon/states/*/pending_consolidations",
        Gives::Type("PendingConsolidations"),
    ),
    (
        "v1/beacon/states/*/proposer_lookahead",
        Gives::Type("ProposerLookahead"),
    ),
    (
        "v1/beacon/states/*/validator_balances",
        Gives::Same("ValidatorBalances", Fork::Phase0),
    ),
    (
        "v1/beacon/execution_payload_envelopes/*",
        Gives::Type("SignedExecutionPayloadEnvelope"),
    ),
    (
        "v1/beacon/pool/payload_attestations",
        Gives::Type("PayloadAttestations"),
    ),
    ("v3/validator/blocks/*", Gives::Produced),
    ("v4/validator/blocks/*", Gives::ProducedBeside),
    (
        "v1/validator/execution_payload_envelopes/*/*",
        Gives::Type("ExecutionPayloadEnvelope"),
    ),
    (
        "v1/validator/execution_payload_bids/*/*",
        Gives::Type("ExecutionPayloadBid"),
    ),
    ("v1/validator/payload_attestation_data", PTC_DATA),
    // until July 2026 the slot was a part of the path
    ("v1/validator/payload_attestation_data/*", PTC_DATA),
    (
        "v2/validator/aggregate_attestation",
        Gives::Type("Attestation"),
    ),
    (
        "v1/validator/attestation_data",
        Gives::Same("AttestationData", Fork::Phase0),
    ),
];

/// POST routes below `/eth` that only query: their bodies name validators or builders.
pub(super) const POSTS: &[(&str, Gives)] = &[
    (
        "v1/beacon/states/*/validator_balances",
        Gives::Same("ValidatorBalances", Fork::Phase0),
    ),
    (
        "v1/beacon/states/*/validator_identities",
        Gives::Same("ValidatorIdentities", Fork::Phase0),
    ),
    ("v4/validator/blocks/*", Gives::ProducedBeside),
];

/// Returns the response type for a target (path and query), or `None` if the route has no SSZ.
pub fn gives(method: &[u8], target: &[u8]) -> Option<&'static Gives> {
    let routes = match method {
        b"GET" | b"HEAD" => ROUTES,
        b"POST" => POSTS,
        _ => return None,
    };
    let (version, segments) = beacon::path(target)?;
    let mut routes = routes.iter();
    let route = routes.find(|(route, _)| beacon::is_path_of(route, version, segments.clone()));
    route.map(|(_, gives)| gives)
}

impl Gives {
    /// Header of the response, `true` or `false`, that names the kind of block.
    pub fn kind(self) -> Option<&'static str> {
        match self {
            Gives::Produced => Some(BLINDED),
            Gives::ProducedBeside => Some(INCLUDED),
            _ => None,
        }
    }

    /// Name of the type in a fork. `kind` is the value of [that header](Self::kind).
    pub fn name(self, fork: Fork, kind: Option<bool>) -> Option<&'static str> {
        match self {
            Gives::Type(name)
            | Gives::Same(name, _)
            | Gives::Result(name, _)
            | Gives::Status(name, ..)
            | Gives::Reply(name, _) => Some(name),
            Gives::Updates => Some(UPDATE),
            Gives::Blinded if fork < Fork::Bellatrix => Some("SignedBeaconBlock"),
            Gives::Blinded => Some("SignedBlindedBeaconBlock"),
            // v3 and v4 serve different forks
            Gives::Produced if fork > Fork::Fulu => None,
            Gives::ProducedBeside if fork <= Fork::Fulu => None,
            Gives::Produced => match kind? {
                true => Some("BlindedBeaconBlock"),
                false if fork < Fork::Deneb => Some("BeaconBlock"),
                false => Some("BlockContents"),
            },
            Gives::ProducedBeside => match kind? {
                true => Some("BlockContents"),
                false => Some("BeaconBlock"),
            },
            Gives::Untyped => None,
        }
    }

    /// The first fork that has the type, if it is the same in all later forks: the response need
    /// not name its fork.
    pub(super) fn first_fork(self) -> Option<Fork> {
        match self {
            Gives::Same(_, fork) => Some(fork),
            Gives::Result(..) | Gives::Status(..) | Gives::Reply(..) => Some(Fork::Phase0),
            Gives::Type(_) | Gives::Blinded | Gives::Updates => None,
            Gives::Produced | Gives::ProducedBeside | Gives::Untyped => None,
        }
    }

    /// Whether the envelope around the JSON may name a fork.
    pub(super) fn may_be_of_a_fork(self) -> bool {
        match self {
            Gives::Type(_) | Gives::Same(..) | Gives::Blinded => true,
            Gives::Produced | Gives::ProducedBeside => true,
            Gives::Result(..) | Gives::Status(..) | Gives::Reply(..) => false,
            Gives::Updates | Gives::Untyped => false,
        }
    }

    /// Whether the SSZ names its forks by digests.
    pub(super) fn names_forks(self) -> bool {
        self == Gives::Updates
    }

    /// Whether this is the result of a call.
    pub(super) fn is_result(self) -> bool {
        matches!(self, Gives::Result(..))
    }

    /// Type of a response for the header `Sszip-Type`, where the route does not determine it (RFC
    /// 9651).
    pub(super) fn label(self) -> Option<String> {
        match self {
            Gives::Result(name, version)
            | Gives::Status(_, name, version)
            | Gives::Reply(name, version) => Some(format!("{name};v={version}")),
            _ => None,
        }
    }

    /// Whether the JSON has members besides the value and the fork.
    pub(super) fn says_more(self) -> bool {
        matches!(self, Gives::Produced | Gives::ProducedBeside)
    }

    /// Name of the type where the fork is known later, or `None` if the name depends on the fork.
    pub(super) fn name_in_any(self) -> Option<&'static str> {
        match self {
            Gives::Type(name) => Some(name),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{gives, Gives, POSTS, ROUTES};
    use crate::ssz::{Fork, Preset, Schema};

    #[test]
    fn routes_are_matched_by_method_and_whole_path() {
        let of = |target: &str| gives(b"GET", target.as_bytes()).copied();
        assert_eq!(
            of("/eth/v2/beacon/blocks/head?x=1"),
            Some(Gives::Type("SignedBeaconBlock"))
        );
        assert_eq!(
            of("/a-key/eth/v2/beacon/blocks/head"),
            Some(Gives::Type("SignedBeaconBlock"))
        );
        assert_eq!(
            of("/eth/v1/beacon/states/head/pending_deposits"),
            Some(Gives::Type("PendingDeposits"))
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
        assert_eq!(gives(b"GET", identities), None);
        assert!(gives(b"POST", identities).is_some());
        assert_eq!(gives(b"POST", b"/eth/v2/beacon/blocks/head"), None);
        assert_eq!(gives(b"PUT", identities), None);
        for target in [
            "/eth/v1/validator/payload_attestation_data?slot=7",
            "/eth/v1/validator/payload_attestation_data/7",
        ] {
            let data = Gives::Same("PayloadAttestationData", Fork::Gloas);
            assert_eq!(of(target), Some(data), "{target}");
        }
        let block = b"/eth/v4/validator/blocks/7?randao_reveal=0x00&include_payload=true";
        assert_eq!(gives(b"POST", block), Some(&Gives::ProducedBeside));
        assert_eq!(gives(b"POST", b"/eth/v3/validator/blocks/7"), None);
    }

    /// A misspelled type name would make the response unavailable as SSZ.
    #[test]
    fn response_types_exist_in_their_forks() {
        for (pattern, gives) in ROUTES.iter().chain(POSTS) {
            let is_known = |fork: &Fork| {
                let name = gives.name(*fork, Some(false));
                let schema = Schema::of(*fork, Preset::Mainnet);
                name.is_some_and(|name| schema.find(name).is_some())
            };
            assert!(Fork::ALL.iter().any(is_known), "{pattern}");
            if let Gives::Same(_, fork) = gives {
                let later = Fork::ALL.iter().filter(|other| *other >= fork);
                assert!(later.clone().all(is_known), "{pattern}");
            }
        }
    }

    #[test]
    fn block_type_is_none_without_its_kind() {
        let gives = Gives::Produced;
        assert_eq!(gives.name(Fork::Electra, None), None);
        assert_eq!(
            gives.name(Fork::Electra, Some(false)),
            Some("BlockContents")
        );
        assert_eq!(gives.name(Fork::Capella, Some(false)), Some("BeaconBlock"));
        assert_eq!(
            gives.name(Fork::Electra, Some(true)),
            Some("BlindedBeaconBlock")
        );
        assert_eq!(gives.name(Fork::Gloas, Some(false)), None);
        let gives = Gives::ProducedBeside;
        assert_eq!(gives.name(Fork::Fulu, Some(true)), None);
        assert_eq!(gives.name(Fork::Gloas, None), None);
        assert_eq!(gives.name(Fork::Gloas, Some(true)), Some("BlockContents"));
        assert_eq!(gives.name(Fork::Gloas, Some(false)), Some("BeaconBlock"));
    }
}
