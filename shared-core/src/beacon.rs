//! Routes of the Beacon API (ethereum/beacon-APIs), and the lifetime of their responses where
//! the node sends no cache directives.

use crate::cache::chain::{DispatchMark, HeightUnit};
use crate::cache::class::LifetimeClass;
use crate::cache::freshness::{CacheLifetimes, ResponseClassification};
use crate::cache::owner_protocol::call_kind::{resource_kind, NO_CALL_KIND};
use crate::jsonrpc::response::{classify_result_content, find_object_member, ResultEmptiness};
use crate::jsonrpc::scan;
use crate::ssz::EnvelopeFlags;

/// Prefix of all paths, before the version.
const API_PATH_ROOT: &[u8] = b"/eth/";

/// The kind of data that a route of the Beacon API returns, which determines the lifetime of the
/// response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BeaconRouteLifetimeKind {
    /// Constants of the chain: equal for every request.
    Constant,
    /// Build and settings of the node, including the scheduled forks.
    Config,
    /// An envelope with `execution_optimistic` and `finalized` for a state or block that is
    /// identified by a slot (or `genesis`) or by a root.
    Named(Option<u64>),
    /// An envelope for a state or block that changes with the head: `head`, or no identifier.
    Moving,
    /// An envelope for `justified` or `finalized`, which also change without a new head, at the
    /// end of an epoch.
    Checkpoint,
    /// Any other route: state of the node, or unknown.
    Other,
}

/// Whether a target (path and query) belongs to the Beacon API.
pub fn is_beacon_target(target: &[u8]) -> bool {
    split_api_path(target).is_some()
}

/// First segments of routes, after the version.
const ROUTE_GROUPS: [&[u8]; 7] = [
    b"beacon",
    b"builder",
    b"config",
    b"debug",
    b"events",
    b"node",
    b"validator",
];

/// Whether a target is a route: below one of the parts of the API. Other paths only look like
/// one (`/eth/v1/a-key`).
pub fn is_beacon_route(target: &[u8]) -> bool {
    let part = split_api_path(target).and_then(|(_, mut segments)| segments.next());
    part.is_some_and(|part| ROUTE_GROUPS.contains(&part))
}

/// Returns the kind of the requests of a target (path and query), by which the owner knows how long
/// they take the node: the route without identifiers, and whether there is a query.
/// [`NO_CALL_KIND`] for other targets.
pub fn beacon_request_kind(target: &[u8]) -> u32 {
    let Some((version, segments)) = split_api_path(target) else {
        return NO_CALL_KIND;
    };
    let is_name_byte = |byte: &u8| byte.is_ascii_lowercase() || *byte == b'_';
    let names = segments.filter(|segment| segment.iter().all(is_name_byte));
    let query = target.contains(&b'?').then_some(&b"?"[..]);
    resource_kind(std::iter::once(version).chain(names).chain(query))
}

/// Returns the version of a path of the Beacon API (`v1`), and the segments after it. A prefix
/// that the host removes may precede it: a name of the chain, a key.
pub(crate) fn split_api_path(
    target: &[u8],
) -> Option<(&[u8], impl Iterator<Item = &[u8]> + Clone)> {
    let path = target.split(|byte| *byte == b'?').next().unwrap_or(target);
    let mut segments = path.split(|byte| *byte == b'/').skip(1).peekable();
    while let Some(segment) = segments.next() {
        let version = segments.next_if(|next| segment == b"eth" && is_api_version(next));
        if let Some(version) = version {
            return Some((version, segments));
        }
    }
    None
}

/// Whether the version and the segments of a path match a route such as `v2/beacon/blocks/*`,
/// where `*` is any segment that is not empty.
pub(crate) fn matches_api_route<'a>(
    route: &str,
    version: &'a [u8],
    segments: impl Iterator<Item = &'a [u8]>,
) -> bool {
    let mut known = route.split('/').map(str::as_bytes);
    let mut segments = std::iter::once(version).chain(segments);
    loop {
        match (known.next(), segments.next()) {
            (None, None) => return true,
            (Some(b"*"), Some(segment)) if !segment.is_empty() => {}
            (Some(known), Some(segment)) if known == segment => {}
            _ => return false,
        }
    }
}

/// Returns the prefix of a target before the Beacon API's path; `None` if the target is not in
/// the API.
pub(crate) fn api_path_prefix(target: &[u8]) -> Option<&[u8]> {
    let (version, _) = split_api_path(target)?;
    let at = version.as_ptr() as usize - target.as_ptr() as usize;
    target.get(..at.checked_sub(API_PATH_ROOT.len())?)
}

/// Returns the path of another `route`, below `/eth/`, under the prefix of this target.
pub(crate) fn route_under_same_prefix(target: &[u8], route: &str) -> Option<Vec<u8>> {
    let before = api_path_prefix(target)?;
    Some([before, API_PATH_ROOT, route.as_bytes()].concat())
}

impl BeaconRouteLifetimeKind {
    /// Returns the kind of data that a target (path and query) requests, as the client sent it.
    pub fn classify_beacon_target(target: &[u8]) -> Self {
        let Some((_version, mut segments)) = split_api_path(target) else {
            return BeaconRouteLifetimeKind::Other;
        };
        let mut next = || segments.next().unwrap_or_default();
        match (next(), next()) {
            (b"config", b"deposit_contract") | (b"beacon", b"genesis") => {
                BeaconRouteLifetimeKind::Constant
            }
            (b"config", b"spec" | b"fork_schedule") => BeaconRouteLifetimeKind::Config,
            (
                b"beacon",
                b"states"
                | b"headers"
                | b"blocks"
                | b"blinded_blocks"
                | b"blob_sidecars"
                | b"blobs"
                | b"execution_payload_envelopes",
            ) => route_kind_of_block_id(next()),
            (b"beacon", b"rewards") => {
                let _kind = next();
                route_kind_of_block_id(next())
            }
            (b"debug", b"beacon") if next() == b"states" => route_kind_of_block_id(next()),
            _ => BeaconRouteLifetimeKind::Other,
        }
    }

    /// Returns the slot in the path of a target whose response shows a block. `None` for other
    /// targets; `Some(None)` without a slot. The response to other routes may contain a slot
    /// that the client chose.
    pub fn slot_in_block_target(target: &[u8]) -> Option<Option<u64>> {
        let (_version, mut segments) = split_api_path(target)?;
        let mut next = || segments.next().unwrap_or_default();
        let id = match (next(), next()) {
            (b"beacon", b"headers" | b"blocks" | b"blinded_blocks") => next(),
            (b"debug", b"beacon") if next() == b"heads" => b"",
            _ => return None,
        };
        match route_kind_of_block_id(id) {
            BeaconRouteLifetimeKind::Named(slot) => Some(slot),
            _ => Some(None),
        }
    }

    /// Returns the slot of the state or block, if the request names it: other machines may have the
    /// response once the slot is final.
    pub fn requested_slot(self) -> Option<u64> {
        match self {
            BeaconRouteLifetimeKind::Named(slot) => slot,
            _ => None,
        }
    }

    /// Whether the response depends on the head while the namespace follows an execution node,
    /// so that a new slot would not be noticed.
    pub fn depends_on_unfollowed_api(self, mark: Option<&DispatchMark>) -> bool {
        self == BeaconRouteLifetimeKind::Moving
            && mark.is_some_and(|mark| mark.heights != HeightUnit::Slots)
    }

    /// Returns the class and lifetime of a response's body; `None` if it is not cached. `mark` is
    /// the state of the chain when the request was sent to the node, if its slots are followed.
    pub fn classify_beacon_response(
        self,
        body: &[u8],
        valid: &CacheLifetimes,
        mark: Option<&DispatchMark>,
    ) -> Option<ResponseClassification> {
        if self == BeaconRouteLifetimeKind::Other || scan::check_json(body).is_err() {
            return None;
        }
        let flag = |name| match find_object_member(body, name) {
            Some(b"true") => Some(true),
            Some(b"false") => Some(false),
            _ => None,
        };
        let is_empty = match classify_result_content(find_object_member(body, "data")?) {
            ResultEmptiness::Null => return None,
            ResultEmptiness::EmptyArray => true,
            _ => false,
        };
        let flags = EnvelopeFlags {
            execution_optimistic: flag("execution_optimistic"),
            finalized: flag("finalized"),
        };
        self.classify_beacon_value(flags, is_empty, valid, mark)
    }

    /// Returns the class and lifetime of a value whose envelope is known; `is_empty`: the value is
    /// an empty list.
    pub fn classify_beacon_value(
        self,
        flags: EnvelopeFlags,
        is_empty: bool,
        valid: &CacheLifetimes,
        mark: Option<&DispatchMark>,
    ) -> Option<ResponseClassification> {
        if mark.is_some_and(|mark| mark.is_wrong) || self.depends_on_unfollowed_api(mark) {
            return None;
        }
        let known = mark.map(|mark| mark.is_known);
        let mark = mark.filter(|mark| mark.heights == HeightUnit::Slots);
        let class = match self {
            BeaconRouteLifetimeKind::Other => return None,
            BeaconRouteLifetimeKind::Constant => LifetimeClass::Immutable,
            BeaconRouteLifetimeKind::Config => LifetimeClass::Config,
            BeaconRouteLifetimeKind::Named(_)
            | BeaconRouteLifetimeKind::Moving
            | BeaconRouteLifetimeKind::Checkpoint => {
                // blocks that the execution client has not verified may be invalid
                let (false, finalized) = (flags.execution_optimistic?, flags.finalized?) else {
                    return None;
                };
                match self {
                    // the node may be syncing or lag; the members of an empty list may have been
                    // pruned
                    BeaconRouteLifetimeKind::Named(slot)
                        if finalized && !is_empty && is_slot_final(slot, mark) =>
                    {
                        LifetimeClass::Immutable
                    }
                    BeaconRouteLifetimeKind::Named(_) => LifetimeClass::Unfinalized,
                    _ => LifetimeClass::Tip,
                }
            }
        };
        // the chain of the response is not known
        let class = match (class, known) {
            (LifetimeClass::Immutable, Some(false)) => LifetimeClass::Unfinalized,
            (class, _) => class,
        };
        let slot = self.requested_slot();
        let milliseconds = match self {
            // no event reports a change of these
            BeaconRouteLifetimeKind::Checkpoint => valid
                .lifetime_on_chain(class, mark)
                .min(class.default_lifetime_ms()),
            _ => valid.lifetime_on_chain(class, mark),
        };
        (milliseconds > 0).then_some(ResponseClassification {
            class,
            valid: milliseconds,
            block: slot,
            height: match class {
                LifetimeClass::Tip => mark.map(|mark| mark.seen),
                _ => slot,
            },
            ..ResponseClassification::new(class, milliseconds, None)
        })
    }
}

/// Whether a slot that the node reports as final is considered final.
fn is_slot_final(slot: Option<u64>, mark: Option<&DispatchMark>) -> bool {
    match (slot, mark) {
        (_, None) => true,
        (Some(slot), Some(mark)) => mark.is_height_final(slot),
        // the slot of a root is not known
        (None, Some(mark)) => mark.last_final.is_some(),
    }
}

/// Whether a segment of a path is a version of the API, such as `v1`.
fn is_api_version(segment: &[u8]) -> bool {
    matches!(segment, [b'v', digits @ ..] if !digits.is_empty() && digits.iter().all(u8::is_ascii_digit))
}

/// Returns the kind of data for the identifier of a state or block in a path.
fn route_kind_of_block_id(id: &[u8]) -> BeaconRouteLifetimeKind {
    let is_slot = !id.is_empty() && id.iter().all(u8::is_ascii_digit);
    let is_root =
        id.len() == 66 && id.starts_with(b"0x") && id[2..].iter().all(u8::is_ascii_hexdigit);
    match std::str::from_utf8(id) {
        Ok("genesis") => BeaconRouteLifetimeKind::Named(Some(0)),
        Ok("justified" | "finalized") => BeaconRouteLifetimeKind::Checkpoint,
        Ok(slot) if is_slot => match slot.parse() {
            Ok(slot) => BeaconRouteLifetimeKind::Named(Some(slot)),
            // no such slot exists
            Err(_) => BeaconRouteLifetimeKind::Moving,
        },
        _ if is_root => BeaconRouteLifetimeKind::Named(None),
        _ => BeaconRouteLifetimeKind::Moving,
    }
}

#[cfg(test)]
mod tests {
    use super::{
        beacon_request_kind, BeaconRouteLifetimeKind, CacheLifetimes, HeightUnit, LifetimeClass,
        NO_CALL_KIND,
    };
    use crate::cache::chain::{ChainChange, ChainState, NamespaceChain};

    #[test]
    fn head_of_a_namespace_that_follows_an_execution_node_is_not_stored() {
        let mark = |heights| {
            NamespaceChain::new(ChainState::new_without_blocks(heights, 0)).chain_mark_at_dispatch()
        };
        let body = br#"{"execution_optimistic":false,"finalized":false,"data":{}}"#;
        for (target, heights, is_other) in [
            ("/eth/v1/beacon/headers/head", HeightUnit::Blocks, true),
            ("/eth/v1/beacon/headers/head", HeightUnit::Slots, false),
            ("/eth/v1/beacon/headers/7", HeightUnit::Blocks, false),
            ("/eth/v1/beacon/genesis", HeightUnit::Blocks, false),
        ] {
            let (route, mark) = (
                BeaconRouteLifetimeKind::classify_beacon_target(target.as_bytes()),
                mark(heights),
            );
            assert_eq!(
                route.depends_on_unfollowed_api(Some(&mark)),
                is_other,
                "{target}"
            );
            let classified =
                route.classify_beacon_response(body, &CacheLifetimes::default(), Some(&mark));
            assert_eq!(classified.is_none(), is_other, "{target}");
            assert!(!route.depends_on_unfollowed_api(None));
        }
    }

    const API_PATH_ROOT: &str =
        "0xaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";

    fn class(target: &str, body: &str) -> Option<LifetimeClass> {
        BeaconRouteLifetimeKind::classify_beacon_target(target.as_bytes())
            .classify_beacon_response(body.as_bytes(), &CacheLifetimes::default(), None)
            .map(|classified| classified.class)
    }

    #[test]
    fn request_kind_depends_on_the_route_and_not_on_its_identifiers() {
        let kind = |target: &str| beacon_request_kind(target.as_bytes());
        let validators = kind("/eth/v1/beacon/states/7/validators");
        for same in [
            "/eth/v1/beacon/states/123/validators",
            "/prefix/eth/v1/beacon/states/8/validators",
        ] {
            assert_eq!(kind(same), validators, "{same}");
        }
        for other in [
            "/eth/v2/beacon/states/7/validators",
            "/eth/v1/beacon/states/7/validators?id=1",
            "/eth/v1/beacon/states/7/committees",
            "/eth/v1/beacon/blob_sidecars/7",
            "/eth/v1/beacon/rewards/blocks/7",
        ] {
            assert!(kind(other) != validators && kind(other) != NO_CALL_KIND);
        }
        assert_eq!(kind("/beacon/states/7/validators"), NO_CALL_KIND);
    }

    #[test]
    fn response_is_immutable_if_it_is_final_and_identified_by_slot_or_root() {
        let body = |optimistic, finalized| {
            format!(
                "{{\"execution_optimistic\":{optimistic},\"finalized\":{finalized},\"data\":{{}}}}"
            )
        };
        for id in ["123", API_PATH_ROOT, "genesis"] {
            let target = format!("/eth/v2/beacon/blocks/{id}?x=1");
            assert_eq!(
                class(&target, &body(false, true)),
                Some(LifetimeClass::Immutable)
            );
            assert_eq!(
                class(&target, &body(false, false)),
                Some(LifetimeClass::Unfinalized)
            );
            assert_eq!(class(&target, &body(true, true)), None);
        }
        for id in ["head", "finalized", "justified", "", "0x12"] {
            let target = format!("/eth/v1/beacon/states/{id}/root");
            assert_eq!(
                class(&target, &body(false, true)),
                Some(LifetimeClass::Tip),
                "{id}"
            );
            assert_eq!(class(&target, &body(true, false)), None);
        }
    }

    #[test]
    fn routes_of_gloas_are_cached_by_their_state_or_block() {
        let body = "{\"execution_optimistic\":false,\"finalized\":true,\"data\":[{}]}";
        for route in [
            "execution_payload_envelopes/ID",
            "states/ID/builder_pending_payments",
            "states/ID/builder_pending_withdrawals",
            "states/ID/ptc?slot=7",
        ] {
            let class = |id| class(&format!("/eth/v1/beacon/{}", route.replace("ID", id)), body);
            assert_eq!(class("7"), Some(LifetimeClass::Immutable), "{route}");
            assert_eq!(class("head"), Some(LifetimeClass::Tip), "{route}");
        }
        assert_eq!(class("/eth/v1/beacon/proposer_preferences", body), None);
        assert_eq!(class("/eth/v1/beacon/execution_proofs/7", body), None);
    }

    #[test]
    fn default_lifetimes_equal_the_slot_time_of_a_followed_node() {
        let body = b"{\"execution_optimistic\":false,\"finalized\":false,\"data\":{}}";
        let mut state = ChainState::new_without_blocks(HeightUnit::Slots, 0);
        for change in [
            ChainChange::ChainVerified(true),
            ChainChange::Head(100),
            ChainChange::Final(Some(64)),
        ] {
            state.apply_chain_change(change);
        }
        state.block_time = Some(5_000);
        let mark = NamespaceChain::new(state).chain_mark_at_dispatch();
        for (id, expected) in [("head", 5_000), ("90", 5_000), ("justified", 1_000)] {
            let target = format!("/eth/v1/beacon/states/{id}/root");
            let classified = BeaconRouteLifetimeKind::classify_beacon_target(target.as_bytes())
                .classify_beacon_response(body, &CacheLifetimes::default(), Some(&mark));
            let lifetime = classified.map(|classified| classified.valid);
            assert_eq!(lifetime, Some(expected), "{id}");
        }
    }

    #[test]
    fn checkpoint_is_fresh_for_one_second_at_most() {
        let body = b"{\"execution_optimistic\":false,\"finalized\":true,\"data\":{}}";
        let mut valid = CacheLifetimes::default();
        valid
            .set_class_lifetime(LifetimeClass::Tip, 12_000)
            .unwrap();
        for (id, expected) in [("head", 12_000), ("justified", 1_000), ("finalized", 1_000)] {
            for route in ["states/ID/root", "headers/ID", "rewards/blocks/ID"] {
                let target = format!("/eth/v1/beacon/{}", route.replace("ID", id));
                let classified = BeaconRouteLifetimeKind::classify_beacon_target(target.as_bytes())
                    .classify_beacon_response(body, &valid, None);
                assert_eq!(
                    classified.map(|classified| classified.valid),
                    Some(expected),
                    "{target}"
                );
            }
        }
    }

    #[test]
    fn target_is_a_route_if_it_is_below_a_part_of_the_api() {
        for target in [
            "/eth/v1/events",
            "/eth/v2/beacon/blocks?x",
            "/gnosis/a-key/eth/v12/validator/duties/ptc/1",
        ] {
            assert!(super::is_beacon_route(target.as_bytes()), "{target}");
        }
        for target in [
            "/",
            "/eth/v1",
            "/eth/v1/",
            "/eth/v1/a-key",
            "/eth/v1/beacons",
            "/eth/v1?/beacon",
            "/eth/v1/mainnet/beacon",
            "/beacon/eth/v1",
        ] {
            assert!(!super::is_beacon_route(target.as_bytes()), "{target}");
        }
    }

    #[test]
    fn envelope_without_flags_is_not_cached() {
        let target = "/eth/v2/beacon/blocks/123";
        for body in [
            "{}",
            "{\"data\":{}}",
            "{\"finalized\":true}",
            "[]",
            "",
            "{\"finalized\":\"true\",\"execution_optimistic\":false}",
        ] {
            assert_eq!(class(target, body), None, "{body}");
        }
    }

    #[test]
    fn empty_list_is_not_immutable() {
        let envelope =
            |data| format!("{{\"execution_optimistic\":false,\"finalized\":true{data}}}");
        for (target, data, expected) in [
            (
                "blob_sidecars/1",
                ",\"data\":[{}]",
                Some(LifetimeClass::Immutable),
            ),
            (
                "blob_sidecars/1",
                ",\"data\":[]",
                Some(LifetimeClass::Unfinalized),
            ),
            (
                "blobs/genesis",
                ",\"data\":[ ]",
                Some(LifetimeClass::Unfinalized),
            ),
            ("blobs/1", ",\"data\":null", None),
            ("blobs/1", "", None),
            (
                "states/1/validators",
                ",\"data\":[]",
                Some(LifetimeClass::Unfinalized),
            ),
            (
                "states/head/validators",
                ",\"data\":[]",
                Some(LifetimeClass::Tip),
            ),
            ("states/head/validators", "", None),
        ] {
            let target = format!("/eth/v1/beacon/{target}");
            assert_eq!(class(&target, &envelope(data)), expected, "{target} {data}");
        }
    }

    #[test]
    fn path_of_another_route_has_the_same_prefix() {
        let route = "v1/config/spec";
        for (target, before) in [
            ("/eth/v2/beacon/blocks/head?x=/eth/v1/y", ""),
            ("/gnosis/a-key/eth/v1/beacon/blobs/1", "/gnosis/a-key"),
            ("/eth/eth/v1/x", "/eth"),
            ("//eth/v1/x", "/"),
        ] {
            let sibling = super::route_under_same_prefix(target.as_bytes(), route).unwrap();
            assert_eq!(sibling, format!("{before}/eth/{route}").into_bytes());
        }
        assert_eq!(super::route_under_same_prefix(b"/x?/eth/v1/y", route), None);
    }

    #[test]
    fn constants_are_immutable_and_node_state_is_not_cached() {
        for (target, expected) in [
            ("/eth/v1/config/deposit_contract", LifetimeClass::Immutable),
            ("/eth/v1/beacon/genesis", LifetimeClass::Immutable),
            (
                "/gnosis/a-key/eth/v1/beacon/genesis",
                LifetimeClass::Immutable,
            ),
            // a release of the node may change them
            ("/eth/v1/config/spec", LifetimeClass::Config),
            ("/eth/v1/config/fork_schedule", LifetimeClass::Config),
        ] {
            assert_eq!(class(target, "{\"data\":{}}"), Some(expected), "{target}");
            assert_eq!(class(target, "{\"code\":200}"), None);
        }
        let minutes = 10 * 60 * 1_000;
        assert!(CacheLifetimes::default().lifetime_for_class(LifetimeClass::Config) <= minutes);
        for target in [
            "/eth/v1/node/syncing",
            "/eth/v1/node/health",
            "/eth/v1/events",
            "/eth/v1/validator/duties/proposer/1",
            "/eth/v1/beacon/pool/attestations",
            "/other",
            "/eth/vx/beacon/genesis",
            "/eth/x/v1/beacon/genesis",
            "/x?/eth/v1/beacon/genesis",
        ] {
            assert_eq!(
                class(
                    target,
                    "{\"data\":{},\"execution_optimistic\":false,\"finalized\":true}"
                ),
                None,
                "{target}"
            );
        }
    }
}
