//! Entries that machines share: the ones that a writer may store in the fleet, and the ones that a
//! reader may use on its own chain.
//!
//! Finality and the choice of the branch differ from node to node, so a reader decides by its own
//! node, never by the writer's:
//!
//! | value                                | used if                                            | as          |
//! |--------------------------------------|----------------------------------------------------|-------------|
//! | immutable, up to the own final block | its anchor's block is not another one here         | immutable   |
//! | other value, anchor by the result    | the own node's chain has this block at this height | unfinalized |
//! | other value, anchor by the request   | its block is not above the own head                | as stored   |
//! | the same without a known height      | the own node's chain has the block                 | as stored   |
//!
//! The call of an anchor by the request names the block, so that its response is the same on all
//! branches: a reorganisation changes nothing, and the entry keeps its class, as if the own node
//! had sent it. It keeps its height as well, for purges of blocks. Above the own head it is not
//! used, since clients would see a block that the own node does not have yet, and then an older
//! head; a response of the own node about such a block is not immutable either.
//!
//! An unfinalized value never becomes immutable here, though its block may be final: the writer may
//! have stored it as unfinalized because the node will add to the response.

use std::time::Duration;

use super::value::{ChainIdentity, FleetValue};
use crate::cache::chain::{ChainState, NamespaceChain};
use crate::cache::class::LifetimeClass;
use crate::cache::entry::store_attributes::StoredEntryAttributes;
use crate::cache::freshness::BlockAnchor;

/// Minimum lifetime of a value in milliseconds. A value with a shorter one is not stored.
pub const MIN_VALUE_LIFETIME_MS: u64 = 2_000;

/// Maximum lifetime of an entry that is unfinalized here, in milliseconds. After that its block is
/// compared again, as the own node may have been silent meanwhile.
const MAX_UNFINALIZED_LIFETIME_MS: u64 = 60_000;

/// Divisor of a lifetime: its quotient is the maximum by which the lifetime is lengthened or
/// shortened, so that values that were stored together do not expire together.
const JITTER_DIVISOR: u64 = 10;

named_enum! {
    /// The reason why a valid value is not used: the state of the chain of this owner.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    NotServable
    /// This owner does not follow the chain, its node was not verified, or it has another chain
    /// than before.
    UnknownChain "unknown_chain",
    /// The value is about another chain than the chain of this owner.
    OtherChain "other_chain",
    /// The value has no anchor, and depends on a block that this owner does not know as final.
    NotFinal "not_final",
    /// The node of this owner has another block at the height of the value's anchor.
    OtherBranch "other_branch",
    /// This owner does not know whether its node has the block of the value's anchor: the block is
    /// above its head or too old, or its node lags, is syncing or does not respond.
    UnknownBlock "unknown_block",
}

/// A value that may be used on the chain of this owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServableValue {
    /// Attributes of the entry as one of this owner: with the class that it has here, with the epoch
    /// in which it was compared with the chain, and with generation 0.
    pub about: StoredEntryAttributes,
    /// Time at which the request was sent to the node, in milliseconds since 1970.
    pub requested_at: u64,
    /// Time from which on the entry is stale, in milliseconds since 1970.
    pub expires_at: u64,
    /// Serialized entry without a chain dependency, of the class that the writer has stored.
    pub entry: Vec<u8>,
}

/// Whether an entry may be stored in the fleet: the chain of its namespace was followed when it was
/// fetched, and it is an immutable one about a block, or an unfinalized one with an anchor.
pub fn is_shareable(about: &StoredEntryAttributes, anchor: Option<&BlockAnchor>) -> bool {
    // the epoch is 0 for a chain that was not followed
    about.epoch > 0
        && match about.class {
            // without either it can't be compared with the head of a reader
            LifetimeClass::Immutable => {
                anchor.is_some() || about.height.is_some() || about.block.is_some()
            }
            LifetimeClass::Unfinalized => anchor.is_some(),
            _ => false,
        }
}

/// Checks a value against the chain of this owner at `now_unix`, in milliseconds since 1970, and
/// returns it as a value of this owner.
///
/// # Errors
/// Returns [`NotServable`] if the chain does not permit the use of the value.
pub fn check_against_chain(
    value: FleetValue,
    chain: &NamespaceChain,
    now_unix: u64,
) -> Result<ServableValue, NotServable> {
    let state = chain.copy_chain_state();
    check_identity(&value, &state)?;
    let highest = value.about.height.max(value.about.block);
    let is_up_to = |limit: Option<u64>| {
        highest.is_none_or(|highest| limit.is_some_and(|limit| highest <= limit))
    };
    let class = value.about.class;
    let is_final =
        class == LifetimeClass::Immutable && highest.is_some() && is_up_to(state.last_final);
    let (class, epoch) = match value.anchor {
        Some(BlockAnchor::ByResult { height, hash })
            if chain.contradicts_recent_block(height, &hash) =>
        {
            return Err(NotServable::OtherBranch);
        }
        // it may be above the own head
        Some(BlockAnchor::ByRequest(hash)) if highest.is_none() && !chain.has_block(&hash) => {
            return Err(NotServable::UnknownBlock);
        }
        _ if is_final => (class, state.epoch),
        None => return Err(NotServable::NotFinal),
        // the blocks of a poll are known before its head
        Some(_) if !is_up_to(state.head) => return Err(NotServable::UnknownBlock),
        Some(BlockAnchor::ByRequest(_)) => (class, state.epoch),
        Some(BlockAnchor::ByResult { height, hash }) => {
            // the epoch of the comparison: a reorganisation after it invalidates the entry
            let epoch = chain.verify_block(height, &hash);
            (
                LifetimeClass::Unfinalized,
                epoch.ok_or(NotServable::UnknownBlock)?,
            )
        }
    };
    let latest_expiry = match class {
        LifetimeClass::Unfinalized => now_unix.saturating_add(MAX_UNFINALIZED_LIFETIME_MS),
        _ => u64::MAX,
    };
    Ok(ServableValue {
        about: StoredEntryAttributes {
            class,
            epoch,
            ..value.about
        },
        requested_at: value.requested_at,
        expires_at: value.expires_at.min(latest_expiry),
        entry: value.entry,
    })
}

/// Checks that a value is about the chain of this owner.
fn check_identity(value: &FleetValue, state: &ChainState) -> Result<(), NotServable> {
    let genesis = state
        .genesis
        .filter(|_| state.known && !state.wrong)
        .ok_or(NotServable::UnknownChain)?;
    let identity = ChainIdentity {
        chain_id: state.chain_id,
        genesis,
    };
    match value.heights == state.heights && value.identity == identity {
        true => Ok(()),
        false => Err(NotServable::OtherChain),
    }
}

/// Returns the lifetime of a value on the server: the remaining lifetime of its entry, at most
/// `max_ttl`, with a jitter of 10 % that never exceeds the entry's lifetime. `random` is uniformly
/// distributed. Returns `None` if the entry's lifetime is too short for a value.
pub fn value_lifetime(remaining_ms: u64, max_ttl: Duration, random: u64) -> Option<Duration> {
    let max_ms = u64::try_from(max_ttl.as_millis()).unwrap_or(u64::MAX);
    let limit = remaining_ms.min(max_ms);
    if limit < MIN_VALUE_LIFETIME_MS {
        return None;
    }
    let jitter = limit / JITTER_DIVISOR;
    // from 0 to twice the jitter
    let offset = (u128::from(jitter) * 2 * u128::from(random)) >> u64::BITS;
    let lifetime = u128::from(limit - jitter) + offset;
    let lifetime = u64::try_from(lifetime).unwrap_or(u64::MAX);
    Some(Duration::from_millis(lifetime.min(remaining_ms)))
}

#[cfg(test)]
mod tests;
