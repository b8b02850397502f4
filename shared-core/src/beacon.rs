//! Routes of the Beacon API (ethereum/beacon-APIs): how long what they give
//! may be kept, where the node does not say so itself.

use crate::cache::chain::{Heights, Mark};
use crate::cache::class::Class;
use crate::cache::freshness::{Judged, Valid};
use crate::jsonrpc::response::{content, member, Content};
use crate::jsonrpc::scan;
use crate::ssz::Flags;

/// What all paths have before the version.
const ROOT: &[u8] = b"/eth/";

/// What a route gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// The chain's constants: the same for every request.
    Constant,
    /// What the node was built and set up with, the forks to come among it.
    Config,
    /// What an envelope with `execution_optimistic` and `finalized` holds,
    /// named by a slot (or `genesis`), or by a root.
    Named(Option<u64>),
    /// The same, named by something that moves on with the head: `head`, or nothing.
    Moving,
    /// The same, named by `justified` or `finalized`: these move without a new head, too,
    /// at the end of an epoch.
    Checkpoint,
    /// Anything else: it is the node's own state, or unknown.
    Other,
}

/// Whether a target (path and query) is one of the Beacon API.
pub fn is_beacon(target: &[u8]) -> bool {
    path(target).is_some()
}

/// What routes begin with, after the version.
const PARTS: [&[u8]; 7] = [
    b"beacon",
    b"builder",
    b"config",
    b"debug",
    b"events",
    b"node",
    b"validator",
];

/// Whether a target is that of a route: below one of the parts of that API. Others are
/// paths that only look so (`/eth/v1/a-key`).
pub fn is_route(target: &[u8]) -> bool {
    let part = path(target).and_then(|(_, mut segments)| segments.next());
    part.is_some_and(|part| PARTS.contains(&part))
}

/// The version of a path of the Beacon API (`v1`), and the segments after it.
/// Before it there may be what the host takes off: a name of the chain, a key.
pub(crate) fn path(target: &[u8]) -> Option<(&[u8], impl Iterator<Item = &[u8]> + Clone)> {
    let path = target.split(|byte| *byte == b'?').next().unwrap_or(target);
    let mut segments = path.split(|byte| *byte == b'/').skip(1).peekable();
    while let Some(segment) = segments.next() {
        let version = segments.next_if(|next| segment == b"eth" && is_version(next));
        if let Some(version) = version {
            return Some((version, segments));
        }
    }
    None
}

/// Whether the version and the segments of a path are those of a route, such as
/// `v2/beacon/blocks/*`: `*` is any segment that is not empty.
pub(crate) fn is_path_of<'a>(
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

/// What is before that in a target; `None`: it is none of the Beacon API.
pub(crate) fn before(target: &[u8]) -> Option<&[u8]> {
    let (version, _) = path(target)?;
    let at = version.as_ptr() as usize - target.as_ptr() as usize;
    target.get(..at.checked_sub(ROOT.len())?)
}

/// The path of another route, which is below `/eth/`, beside that of a target.
pub(crate) fn beside(target: &[u8], route: &str) -> Option<Vec<u8>> {
    let before = before(target)?;
    Some([before, ROOT, route.as_bytes()].concat())
}

impl Route {
    /// The route of a target (path and query), as the client sent it.
    pub fn of(target: &[u8]) -> Self {
        let Some((_version, mut segments)) = path(target) else {
            return Route::Other;
        };
        let mut next = || segments.next().unwrap_or_default();
        match (next(), next()) {
            (b"config", b"deposit_contract") | (b"beacon", b"genesis") => Route::Constant,
            (b"config", b"spec" | b"fork_schedule") => Route::Config,
            (
                b"beacon",
                b"states" | b"headers" | b"blocks" | b"blinded_blocks" | b"blob_sidecars"
                | b"blobs",
            ) => named(next()),
            (b"beacon", b"rewards") => {
                let _what = next();
                named(next())
            }
            (b"debug", b"beacon") if next() == b"states" => named(next()),
            _ => Route::Other,
        }
    }

    /// Of a target whose answer shows a block: its slot, where the path has it. `None`: it is
    /// none such; of others the slot may be one that was asked for.
    pub fn shows_slot(target: &[u8]) -> Option<Option<u64>> {
        let (_version, mut segments) = path(target)?;
        let mut next = || segments.next().unwrap_or_default();
        let id = match (next(), next()) {
            (b"beacon", b"headers" | b"blocks" | b"blinded_blocks") => next(),
            (b"debug", b"beacon") if next() == b"heads" => b"",
            _ => return None,
        };
        match named(id) {
            Route::Named(slot) => Some(slot),
            _ => Some(None),
        }
    }

    /// Whether an answer depends on the head, and the namespace follows an execution node:
    /// it is not known then when there is a new slot.
    pub fn is_of_other_api(self, mark: Option<&Mark>) -> bool {
        self == Route::Moving && mark.is_some_and(|mark| mark.heights != Heights::Slots)
    }

    /// What a body is kept as; `None`: it is not kept. `mark` is what was known
    /// of the chain when the node was asked, if its slots are followed.
    pub fn judge(self, body: &[u8], valid: &Valid, mark: Option<&Mark>) -> Option<Judged> {
        if self == Route::Other || scan::check(body).is_err() {
            return None;
        }
        let flag = |name| match member(body, name) {
            Some(b"true") => Some(true),
            Some(b"false") => Some(false),
            _ => None,
        };
        let is_empty = match content(member(body, "data")?) {
            Content::Null => return None,
            Content::EmptyArray => true,
            _ => false,
        };
        let flags = Flags {
            execution_optimistic: flag("execution_optimistic"),
            finalized: flag("finalized"),
        };
        self.judge_value(flags, is_empty, valid, mark)
    }

    /// The same, where it is known what an envelope says; `is_empty`: its value is a
    /// list of nothing.
    pub fn judge_value(
        self,
        flags: Flags,
        is_empty: bool,
        valid: &Valid,
        mark: Option<&Mark>,
    ) -> Option<Judged> {
        if mark.is_some_and(|mark| mark.is_wrong) || self.is_of_other_api(mark) {
            return None;
        }
        let known = mark.map(|mark| mark.is_known);
        let mark = mark.filter(|mark| mark.heights == Heights::Slots);
        let class = match self {
            Route::Other => return None,
            Route::Constant => Class::Immutable,
            Route::Config => Class::Config,
            Route::Named(_) | Route::Moving | Route::Checkpoint => {
                // what the execution client has not verified may be wrong
                let (false, finalized) = (flags.execution_optimistic?, flags.finalized?) else {
                    return None;
                };
                match self {
                    // the node may be syncing, or lag; of a list that is empty it may
                    // have pruned what was in it
                    Route::Named(slot) if finalized && !is_empty && is_final(slot, mark) => {
                        Class::Immutable
                    }
                    Route::Named(_) => Class::Unfinalized,
                    _ => Class::Tip,
                }
            }
        };
        // nobody knows which chain it is of
        let class = match (class, known) {
            (Class::Immutable, Some(false)) => Class::Unfinalized,
            (class, _) => class,
        };
        let slot = match self {
            Route::Named(slot) => slot,
            _ => None,
        };
        let milliseconds = match self {
            // nobody is told when these move
            Route::Checkpoint => valid.class(class).min(class.default_valid()),
            _ => valid.class(class),
        };
        (milliseconds > 0).then_some(Judged {
            class,
            valid: milliseconds,
            block: slot,
            height: match class {
                Class::Tip => mark.map(|mark| mark.seen),
                _ => slot,
            },
            ..Judged::new(class, milliseconds, None)
        })
    }
}

/// Whether what the node calls final is taken for it.
fn is_final(slot: Option<u64>, mark: Option<&Mark>) -> bool {
    match (slot, mark) {
        (_, None) => true,
        (Some(slot), Some(mark)) => mark.is_final(slot),
        // of a root nobody knows the slot
        (None, Some(mark)) => mark.last_final.is_some(),
    }
}

fn is_version(segment: &[u8]) -> bool {
    matches!(segment, [b'v', digits @ ..] if !digits.is_empty() && digits.iter().all(u8::is_ascii_digit))
}

fn named(id: &[u8]) -> Route {
    let is_slot = !id.is_empty() && id.iter().all(u8::is_ascii_digit);
    let is_root =
        id.len() == 66 && id.starts_with(b"0x") && id[2..].iter().all(u8::is_ascii_hexdigit);
    match std::str::from_utf8(id) {
        Ok("genesis") => Route::Named(Some(0)),
        Ok("justified" | "finalized") => Route::Checkpoint,
        Ok(slot) if is_slot => match slot.parse() {
            Ok(slot) => Route::Named(Some(slot)),
            // there is no such slot
            Err(_) => Route::Moving,
        },
        _ if is_root => Route::Named(None),
        _ => Route::Moving,
    }
}

#[cfg(test)]
mod tests {
    use super::{Class, Heights, Route, Valid};
    use crate::cache::chain::{Chain, State};

    #[test]
    fn head_of_a_namespace_that_follows_an_execution_node_is_not_stored() {
        let mark = |heights| Chain::new(State::unknown(heights, 0)).mark();
        let body = br#"{"execution_optimistic":false,"finalized":false,"data":{}}"#;
        for (target, heights, is_other) in [
            ("/eth/v1/beacon/headers/head", Heights::Blocks, true),
            ("/eth/v1/beacon/headers/head", Heights::Slots, false),
            ("/eth/v1/beacon/headers/7", Heights::Blocks, false),
            ("/eth/v1/beacon/genesis", Heights::Blocks, false),
        ] {
            let (route, mark) = (Route::of(target.as_bytes()), mark(heights));
            assert_eq!(route.is_of_other_api(Some(&mark)), is_other, "{target}");
            let judged = route.judge(body, &Valid::default(), Some(&mark));
            assert_eq!(judged.is_none(), is_other, "{target}");
            assert!(!route.is_of_other_api(None));
        }
    }

    const ROOT: &str = "0xaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";

    fn class(target: &str, body: &str) -> Option<Class> {
        Route::of(target.as_bytes())
            .judge(body.as_bytes(), &Valid::default(), None)
            .map(|judged| judged.class)
    }

    #[test]
    fn only_what_is_final_and_named_is_immutable() {
        let body = |optimistic, finalized| {
            format!(
                "{{\"execution_optimistic\":{optimistic},\"finalized\":{finalized},\"data\":{{}}}}"
            )
        };
        for id in ["123", ROOT, "genesis"] {
            let target = format!("/eth/v2/beacon/blocks/{id}?x=1");
            assert_eq!(class(&target, &body(false, true)), Some(Class::Immutable));
            assert_eq!(
                class(&target, &body(false, false)),
                Some(Class::Unfinalized)
            );
            assert_eq!(class(&target, &body(true, true)), None);
        }
        for id in ["head", "finalized", "justified", "", "0x12"] {
            let target = format!("/eth/v1/beacon/states/{id}/root");
            assert_eq!(class(&target, &body(false, true)), Some(Class::Tip), "{id}");
            assert_eq!(class(&target, &body(true, false)), None);
        }
    }

    #[test]
    fn checkpoint_is_kept_for_a_second_at_most() {
        let body = b"{\"execution_optimistic\":false,\"finalized\":true,\"data\":{}}";
        let mut valid = Valid::default();
        valid.set_class(Class::Tip, 12_000).unwrap();
        for (id, expected) in [("head", 12_000), ("justified", 1_000), ("finalized", 1_000)] {
            for route in ["states/ID/root", "headers/ID", "rewards/blocks/ID"] {
                let target = format!("/eth/v1/beacon/{}", route.replace("ID", id));
                let judged = Route::of(target.as_bytes()).judge(body, &valid, None);
                assert_eq!(
                    judged.map(|judged| judged.valid),
                    Some(expected),
                    "{target}"
                );
            }
        }
    }

    #[test]
    fn a_route_is_below_one_of_the_parts() {
        for target in [
            "/eth/v1/events",
            "/eth/v2/beacon/blocks?x",
            "/gnosis/a-key/eth/v12/validator/duties/ptc/1",
        ] {
            assert!(super::is_route(target.as_bytes()), "{target}");
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
            assert!(!super::is_route(target.as_bytes()), "{target}");
        }
    }

    #[test]
    fn an_envelope_without_the_flags_says_nothing() {
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
    fn what_was_pruned_is_not_for_ever() {
        let envelope =
            |data| format!("{{\"execution_optimistic\":false,\"finalized\":true{data}}}");
        for (target, data, expected) in [
            ("blob_sidecars/1", ",\"data\":[{}]", Some(Class::Immutable)),
            ("blob_sidecars/1", ",\"data\":[]", Some(Class::Unfinalized)),
            ("blobs/genesis", ",\"data\":[ ]", Some(Class::Unfinalized)),
            ("blobs/1", ",\"data\":null", None),
            ("blobs/1", "", None),
            (
                "states/1/validators",
                ",\"data\":[]",
                Some(Class::Unfinalized),
            ),
            ("states/head/validators", ",\"data\":[]", Some(Class::Tip)),
            ("states/head/validators", "", None),
        ] {
            let target = format!("/eth/v1/beacon/{target}");
            assert_eq!(class(&target, &envelope(data)), expected, "{target} {data}");
        }
    }

    #[test]
    fn another_route_is_below_the_same_prefix() {
        let route = "v1/config/spec";
        for (target, before) in [
            ("/eth/v2/beacon/blocks/head?x=/eth/v1/y", ""),
            ("/gnosis/a-key/eth/v1/beacon/blobs/1", "/gnosis/a-key"),
            ("/eth/eth/v1/x", "/eth"),
            ("//eth/v1/x", "/"),
        ] {
            let beside = super::beside(target.as_bytes(), route).unwrap();
            assert_eq!(beside, format!("{before}/eth/{route}").into_bytes());
        }
        assert_eq!(super::beside(b"/x?/eth/v1/y", route), None);
    }

    #[test]
    fn constants_and_what_is_the_nodes_own() {
        for (target, expected) in [
            ("/eth/v1/config/deposit_contract", Class::Immutable),
            ("/eth/v1/beacon/genesis", Class::Immutable),
            ("/gnosis/a-key/eth/v1/beacon/genesis", Class::Immutable),
            // a release of the node changes them
            ("/eth/v1/config/spec", Class::Config),
            ("/eth/v1/config/fork_schedule", Class::Config),
        ] {
            assert_eq!(class(target, "{\"data\":{}}"), Some(expected), "{target}");
            assert_eq!(class(target, "{\"code\":200}"), None);
        }
        let minutes = 10 * 60 * 1_000;
        assert!(Valid::default().class(Class::Config) <= minutes);
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
