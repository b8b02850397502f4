//! Request bodies in SSZ, converted for a node that accepts JSON only (beacon-APIs).

use super::error::TranscodeError;
use super::format::CONSENSUS_VERSION_HEADER;
use super::values::{
    find_type_in_fork, parse_fork, parse_header_bool, write_ssz_as_json, ReserveCallback,
};
use crate::beacon;
use crate::negotiate::{cache_control, media_type};
use crate::ssz::{Fork, Preset, Schema};

/// Header that declares whether the blobs of an envelope are included.
const BLOB_DATA_HEADER: &str = "Eth-Blob-Data-Included";

/// The SSZ type of the bodies that a route accepts, as far as the route determines it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SubmissionType {
    /// The named type of the request's fork.
    Type(&'static str),
    /// The named type, which is the same in every fork since the given one: the request need not
    /// name its fork.
    Same(&'static str, Fork),
    /// A signed block, with its blobs where the fork has them.
    Block,
    /// A signed block, blinded from bellatrix on.
    BlindedBlock,
    /// A payload envelope, with its blobs or without, as the head declares.
    Envelope,
}

/// POST routes below `/eth`; `*` matches one segment.
const SUBMISSION_ROUTES: &[(&str, SubmissionType)] = &[
    ("v2/beacon/blocks", SubmissionType::Block),
    ("v1/beacon/blocks", SubmissionType::Block),
    ("v2/beacon/blinded_blocks", SubmissionType::BlindedBlock),
    ("v1/beacon/blinded_blocks", SubmissionType::BlindedBlock),
    (
        "v2/beacon/pool/attestations",
        SubmissionType::Type("SubmittedAttestations"),
    ),
    (
        "v2/validator/aggregate_and_proofs",
        SubmissionType::Type("SignedAggregateAndProofs"),
    ),
    (
        "v1/validator/register_validator",
        SubmissionType::Same("SignedValidatorRegistrations", Fork::Bellatrix),
    ),
    (
        "v1/beacon/pool/payload_attestations",
        SubmissionType::Type("PayloadAttestationMessages"),
    ),
    (
        "v1/beacon/execution_payload_bids",
        SubmissionType::Type("SignedExecutionPayloadBid"),
    ),
    (
        "v1/beacon/execution_payload_envelopes",
        SubmissionType::Envelope,
    ),
    (
        "v1/validator/proposer_preferences",
        SubmissionType::Type("ManySignedProposerPreferences"),
    ),
    (
        "v1/beacon/pool/proposer_preferences",
        SubmissionType::Type("ManySignedProposerPreferences"),
    ),
    (
        "v4/validator/blocks/*",
        SubmissionType::Type("BuilderConfig"),
    ),
    (
        "v1/validator/builder_preferences",
        SubmissionType::Type("BuilderPreferencesEntries"),
    ),
];

/// Returns the paths of the POST routes that accept SSZ, below `/eth/`; `*` matches one segment.
pub fn submission_routes() -> impl Iterator<Item = &'static str> {
    SUBMISSION_ROUTES.iter().map(|(route, _)| *route)
}

/// Returns the type of the bodies that a route of [`submission_routes`] accepts in a fork, with the
/// blobs of an envelope or without; `None` for other routes, and if the fork has no such type.
pub fn submission_type_name(route: &str, fork: Fork, has_blobs: bool) -> Option<&'static str> {
    let (_, takes) = SUBMISSION_ROUTES
        .iter()
        .find(|(known, _)| *known == route)?;
    let (name, _) = takes.type_and_fork(Some(fork), Some(has_blobs))?;
    let schema = Schema::for_fork(fork, Preset::Mainnet);
    schema.find_type(name).map(|_| name)
}

/// The index of a route is a bit of a `u32`.
const _: () = assert!(SUBMISSION_ROUTES.len() <= u32::BITS as usize);

/// A request with a body in SSZ, as its head declares: its route, and the type of its body.
#[derive(Clone, Copy, Debug)]
pub struct SszSubmission {
    route_index: usize,
    /// The name of the body's type in `fork`.
    name: &'static str,
    fork: Fork,
}

impl SszSubmission {
    /// Reads the head of a request. Returns `None` if the route accepts no SSZ, if the body is no
    /// SSZ or must not be transformed, or if the head does not determine the type: the node then
    /// validates the request.
    pub fn from_head<'a>(
        method: &[u8],
        target: &[u8],
        fields: impl Iterator<Item = (&'a [u8], &'a [u8])>,
    ) -> Option<Self> {
        if method != b"POST" {
            return None;
        }
        let (version, segments) = beacon::split_api_path(target)?;
        let mut routes = SUBMISSION_ROUTES.iter();
        let route = routes
            .position(|(route, _)| beacon::matches_api_route(route, version, segments.clone()))?;
        let (mut is_ssz, mut fork, mut has_blobs) = (false, None, None);
        for (name, value) in fields {
            let is = |known: &str| name.eq_ignore_ascii_case(known.as_bytes());
            if is("content-type") {
                is_ssz = media_type::is_octet_stream(value);
            } else if is("cache-control") && cache_control::has_no_transform(value) {
                return None;
            } else if is(CONSENSUS_VERSION_HEADER) {
                fork = Some(parse_fork(value).ok()?);
            } else if is(BLOB_DATA_HEADER) {
                has_blobs = Some(parse_header_bool(value)?);
            }
        }
        let (_, takes) = &SUBMISSION_ROUTES[route];
        let (name, fork) = takes.type_and_fork(fork, has_blobs)?;
        is_ssz.then_some(Self {
            route_index: route,
            name,
            fork,
        })
    }

    /// Returns the index of the route in the table, below 32, which identifies the kind of body.
    pub fn route_index(self) -> usize {
        self.route_index
    }

    /// Returns the name of the body's SSZ type, for messages.
    pub fn type_name(self) -> &'static str {
        self.name
    }

    /// Converts the body to JSON, which has no envelope. `may_take` is called with its length
    /// before memory is allocated or grows.
    ///
    /// # Errors
    /// The body is not a valid value of its type in its fork, or memory is refused.
    pub fn to_json(
        self,
        preset: Preset,
        ssz: &[u8],
        may_take: ReserveCallback<'_>,
    ) -> Result<Vec<u8>, TranscodeError> {
        let (schema, ty) = find_type_in_fork(self.name, self.fork, preset)?;
        let mut body = Vec::new();
        write_ssz_as_json(schema, ty, ssz, &mut body, may_take)?;
        Ok(body)
    }
}

impl SubmissionType {
    /// Returns the name of the body's type and its fork, or `None` if the head does not determine
    /// them.
    fn type_and_fork(
        self,
        fork: Option<Fork>,
        has_blobs: Option<bool>,
    ) -> Option<(&'static str, Fork)> {
        let fork = match self {
            SubmissionType::Same(name, first) => return Some((name, first)),
            _ => fork?,
        };
        let name = match self {
            SubmissionType::Type(name) | SubmissionType::Same(name, _) => name,
            SubmissionType::Block if (Fork::Deneb..=Fork::Fulu).contains(&fork) => {
                "SignedBlockContents"
            }
            SubmissionType::Block => "SignedBeaconBlock",
            SubmissionType::BlindedBlock if fork < Fork::Bellatrix => "SignedBeaconBlock",
            SubmissionType::BlindedBlock => "SignedBlindedBeaconBlock",
            SubmissionType::Envelope => match has_blobs? {
                true => "SignedExecutionPayloadEnvelopeContents",
                false => "SignedExecutionPayloadEnvelope",
            },
        };
        Some((name, fork))
    }
}

#[cfg(test)]
mod tests {
    use super::{submission_type_name, SszSubmission, SubmissionType, SUBMISSION_ROUTES};
    use crate::ssz::{Fork, Preset, Schema};

    const OCTETS: (&[u8], &[u8]) = (b"Content-Type", b"application/octet-stream");

    fn read(target: &str, fields: &[(&str, &str)]) -> Option<SszSubmission> {
        let fields = fields.iter().map(|(n, v)| (n.as_bytes(), v.as_bytes()));
        SszSubmission::from_head(
            b"POST",
            target.as_bytes(),
            [OCTETS].into_iter().chain(fields),
        )
    }

    #[test]
    fn body_type_is_read_from_route_and_head() {
        let name = |target, fork: &str| {
            let found = read(target, &[("eth-consensus-version", fork)]);
            found.map(SszSubmission::type_name)
        };
        for (fork, block, blinded) in [
            ("phase0", "SignedBeaconBlock", "SignedBeaconBlock"),
            ("capella", "SignedBeaconBlock", "SignedBlindedBeaconBlock"),
            ("deneb", "SignedBlockContents", "SignedBlindedBeaconBlock"),
            ("Fulu", "SignedBlockContents", "SignedBlindedBeaconBlock"),
            ("gloas", "SignedBeaconBlock", "SignedBlindedBeaconBlock"),
        ] {
            let blocks = "/eth/v2/beacon/blocks?broadcast_validation=gossip";
            assert_eq!(name(blocks, fork), Some(block), "{fork}");
            assert_eq!(
                name("/key/eth/v2/beacon/blinded_blocks", fork),
                Some(blinded)
            );
        }
        assert_eq!(name("/eth/v2/beacon/blocks", "unknown"), None);
        assert!(read("/eth/v2/beacon/blocks", &[]).is_none());
        assert!(read("/eth/v1/validator/register_validator", &[]).is_some());
        let config = name("/eth/v4/validator/blocks/7?include_payload=true", "Gloas");
        assert_eq!(config, Some("BuilderConfig"));
        assert_eq!(name("/eth/v4/validator/blocks", "gloas"), None);
        let preferences = name("/eth/v1/validator/builder_preferences", "gloas");
        assert_eq!(preferences, Some("BuilderPreferencesEntries"));
        let envelopes = "/eth/v1/beacon/execution_payload_envelopes";
        let gloas = ("Eth-Consensus-Version", "gloas");
        assert!(read(envelopes, &[gloas]).is_none());
        assert!(read(envelopes, &[gloas, ("Eth-Blob-Data-Included", "yes")]).is_none());
        for (has_blobs, expected) in [
            ("true", "SignedExecutionPayloadEnvelopeContents"),
            ("True", "SignedExecutionPayloadEnvelopeContents"),
            ("false", "SignedExecutionPayloadEnvelope"),
        ] {
            let found = read(envelopes, &[gloas, ("Eth-Blob-Data-Included", has_blobs)]);
            assert_eq!(found.map(SszSubmission::type_name), Some(expected));
        }
    }

    #[test]
    fn requests_without_transformable_ssz_are_ignored() {
        let electra = (&b"Eth-Consensus-Version"[..], &b"electra"[..]);
        let read = |method: &str, target: &str, fields: &[(&'static [u8], &'static [u8])]| {
            let fields = fields.iter().copied();
            SszSubmission::from_head(method.as_bytes(), target.as_bytes(), fields)
        };
        let blocks = "/eth/v2/beacon/blocks";
        assert!(read("POST", blocks, &[OCTETS, electra]).is_some());
        assert!(read("GET", blocks, &[OCTETS, electra]).is_none());
        assert!(read("POST", "/eth/v2/beacon/blocks/", &[OCTETS, electra]).is_none());
        assert!(read("POST", "/eth/v2/beacon", &[OCTETS, electra]).is_none());
        let json = (&b"Content-Type"[..], &b"application/json"[..]);
        assert!(read("POST", blocks, &[json, electra]).is_none());
        assert!(read("POST", blocks, &[electra]).is_none());
        let as_it_is = (&b"Cache-Control"[..], &b"no-transform"[..]);
        assert!(read("POST", blocks, &[OCTETS, electra, as_it_is]).is_none());
    }

    #[test]
    fn submission_type_depends_on_fork_and_blobs() {
        let name = |route, fork| submission_type_name(route, fork, true);
        assert_eq!(
            name("v2/beacon/blocks", Fork::Fulu),
            Some("SignedBlockContents")
        );
        assert_eq!(
            name("v1/beacon/execution_payload_envelopes", Fork::Gloas),
            Some("SignedExecutionPayloadEnvelopeContents")
        );
        assert_eq!(name("v2/beacon/blinded_blocks", Fork::Gloas), None);
        assert_eq!(name("v2/beacon/unknown", Fork::Gloas), None);
    }

    /// A misspelled type name would make the body unavailable as JSON.
    #[test]
    fn submission_types_exist_in_their_forks() {
        for (path, takes) in SUBMISSION_ROUTES {
            for has_blobs in [false, true] {
                let is_known = |fork: &&Fork| {
                    let (name, fork) = takes.type_and_fork(Some(**fork), Some(has_blobs)).unwrap();
                    Schema::for_fork(fork, Preset::Mainnet)
                        .find_type(name)
                        .is_some()
                };
                assert!(Fork::ALL.iter().any(|fork| is_known(&fork)), "{path}");
                if *takes == SubmissionType::Block {
                    assert!(Fork::ALL.iter().all(|fork| is_known(&fork)), "{path}");
                }
            }
        }
    }
}
