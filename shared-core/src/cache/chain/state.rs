//! State of a chain as the owner publishes it, and the changes of it.

use serde::{Deserialize, Serialize};

/// Maximum number of reorganisations that are recorded. An entry that was fetched before the first
/// of them is invalid.
pub(super) const MAX_REORGS: usize = 16;

/// Maximum number of the newest blocks whose hashes are known. Nodes disagree about few blocks.
const MAX_BLOCKS: usize = 8;

/// Maximum number of blocks by which a response may be ahead of the owner's head. A higher head is
/// ignored.
pub(super) const MAX_BLOCKS_AHEAD: u64 = 64;

/// Number of new heads after which a seen head that no node or response has confirmed is dropped.
/// Until then no new entry about the head would be valid.
const MAX_UNCONFIRMED_HEADS: u8 = 4;

/// Maximum number of blocks above the head that are recorded as shown. Beyond it the highest one,
/// which is the least plausible, is dropped.
pub(super) const MAX_SHOWN_BLOCKS: usize = 16;

/// The height of a block that a response has revealed to a client: responses about an older head
/// must not be sent after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct ShownBlock {
    /// Height of the block.
    pub height: u64,
    /// Whether the response was the block itself and not a part of it. A sequencer has receipts of
    /// a block before it is sealed; the block itself is new then.
    pub is_block: bool,
}

/// The unit in which a chain counts its blocks: block numbers, or slots of the Beacon API.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum HeightUnit {
    /// Block numbers.
    #[default]
    Blocks,
    /// Slots of the Beacon API.
    Slots,
}

/// The state of a chain as the owner publishes it to all processes: head, finality, recent
/// reorganisations and epoch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct ChainState {
    /// Kind of the chain's heights.
    pub heights: HeightUnit,
    /// Counter of epochs. It starts at the owner's start time in microseconds since 1970, so that
    /// no two owners use the same numbers.
    pub epoch: u64,
    /// Height of the head.
    pub head: Option<u64>,
    /// The highest head that the node or a response has reported.
    pub seen: u64,
    /// Height of the last finalized block; `None` if it is not known.
    #[serde(rename = "final")]
    pub last_final: Option<u64>,
    /// Whether the node is known to serve the chain of the namespace. Until it is, entries get a
    /// short lifetime only.
    pub known: bool,
    /// Whether the node serves another chain than before: no entry is stored or sent then.
    pub wrong: bool,
    /// The last reorganisations: the epoch that began with each, and the lowest height that was
    /// replaced.
    pub reorgs: Vec<(u64, u64)>,
    /// Epoch since which `reorgs` is complete.
    pub since: u64,
    /// Chain id of the node's chain (EIP-155), if the node's API reports it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chain_id: Option<u64>,
    /// Hash of the first block of the node's chain (Beacon API: `genesis_validators_root`), once
    /// the node has been queried.
    #[serde(with = "hash", default, skip_serializing_if = "Option::is_none")]
    pub genesis: Option<[u8; 32]>,
    /// Time between two blocks in milliseconds, if it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub block_time: Option<u64>,
    /// Heights and hashes of the newest blocks.
    #[serde(with = "hashes", default)]
    pub blocks: Vec<(u64, [u8; 32])>,
    /// Blocks above the head that responses have shown. Each of them has begun an epoch without a
    /// reorganisation.
    #[serde(default)]
    pub shown: Vec<ShownBlock>,
    /// The first epoch whose entries about the head are valid.
    #[serde(skip)]
    pub(super) tip_since: u64,
    /// Whether `epoch` comes from an entry of the owner that arrived before the event that begins
    /// this epoch.
    #[serde(skip)]
    pub(super) is_heard: bool,
    /// Number of new heads since `seen` was last confirmed.
    #[serde(skip)]
    pub(super) unconfirmed: u8,
}

/// Serialization of a hash as hex digits.
mod hash {
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    // serde passes a reference to the member
    #[allow(clippy::ref_option)]
    pub(super) fn serialize<S: Serializer>(
        hash: &Option<[u8; 32]>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        match hash {
            Some(hash) => to.serialize_str(&const_hex::encode(hash)),
            None => to.serialize_none(),
        }
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Option<[u8; 32]>, D::Error> {
        let text: Option<String> = Option::deserialize(from)?;
        let hash = text.map(|text| blake3::Hash::from_hex(text).map(|hash| *hash.as_bytes()));
        hash.transpose().map_err(Error::custom)
    }
}

/// Serialization of hashes as hex digits.
mod hashes {
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(
        blocks: &[(u64, [u8; 32])],
        to: S,
    ) -> Result<S::Ok, S::Error> {
        let blocks = blocks.iter();
        to.collect_seq(blocks.map(|(height, hash)| (height, const_hex::encode(hash))))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Vec<(u64, [u8; 32])>, D::Error> {
        let blocks: Vec<(u64, String)> = Vec::deserialize(from)?;
        let hash = |hash| blake3::Hash::from_hex(hash).map(|hash| *hash.as_bytes());
        let blocks = blocks.into_iter();
        let blocks = blocks.map(|(height, text)| hash(text).map(|hash| (height, hash)));
        blocks.collect::<Result<_, _>>().map_err(Error::custom)
    }
}

/// A new head, a reorganisation or a change of finality or identity, which the tracker reports and
/// the owner applies to its [`ChainState`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChainChange {
    /// The head has this height now: entries about the former head expire.
    Head(u64),
    /// The blocks from a height on were replaced or removed. A `Head` follows.
    Reorg {
        /// The lowest replaced height.
        from: u64,
    },
    /// Blocks up to this height are finalized. `None`: finality is not known, and no block counts
    /// as finalized.
    Final(Option<u64>),
    /// Blocks that counted as finalized were replaced: entries on disk from a height on have to be
    /// removed too. A `Reorg` from the same height is reported as well.
    FinalityReverted {
        /// The lowest replaced height.
        from: u64,
    },
    /// Whether the node is known to serve the chain of the namespace. A node that was unreachable
    /// may return with another chain.
    ChainVerified(bool),
    /// Whether the node serves another chain than the chain of the namespace.
    Wrong(bool),
}

impl ChainState {
    /// Creates the state of a chain with no known block, for an owner that started `unix`
    /// milliseconds after 1970.
    pub fn new_without_blocks(heights: HeightUnit, unix: u64) -> Self {
        let epoch = unix.saturating_mul(1_000).max(1);
        Self {
            heights,
            epoch,
            since: epoch,
            tip_since: epoch,
            ..Self::default()
        }
    }

    /// Applies a change that the tracker has found, and begins an epoch if the change invalidates
    /// entries.
    pub fn apply_chain_change(&mut self, by: ChainChange) {
        match by {
            ChainChange::Head(height) => {
                // lower than before if the node has reported a lower head for a while
                let is_lower = self.head.is_some_and(|head| height < head);
                let is_new = self.head != Some(height);
                self.head = Some(height);
                match is_lower {
                    true => self.shown.clear(),
                    false => self.shown.retain(|shown| shown.height > height),
                }
                if is_lower || height >= self.seen || is_new && !self.count_unconfirmed_head() {
                    if height < self.seen {
                        // entries that were fetched until now carry the former height, and would be
                        // valid until the chain reaches it again
                        self.lower_head(height.saturating_add(1));
                    }
                    self.seen = height;
                    self.unconfirmed = 0;
                }
            }
            ChainChange::Reorg { from } => {
                self.record_replaced_blocks(from);
                // other blocks have these heights now
                self.shown.clear();
            }
            ChainChange::Final(height) => self.last_final = height,
            ChainChange::FinalityReverted { .. } => {}
            ChainChange::ChainVerified(known) => self.known = known,
            ChainChange::Wrong(wrong) => {
                self.wrong = wrong;
                if wrong {
                    // entries that were fetched before this was noticed may belong to either chain
                    self.apply_chain_change(ChainChange::Reorg { from: 0 });
                }
            }
        }
    }

    /// Records a block that a response has shown to a client. A block above the head expires
    /// entries about the former head. Returns whether the block was new.
    pub fn record_shown_block(&mut self, sighting: ShownBlock) -> bool {
        let is_news = self.is_unseen_block(sighting);
        if is_news {
            self.insert_shown_block(sighting);
            self.begin_epoch();
        }
        is_news
    }

    /// Begins an epoch in which entries about the head, or about blocks from height `from` on, are
    /// invalid: other blocks have these heights, or none.
    fn record_replaced_blocks(&mut self, from: u64) {
        self.begin_epoch();
        if self.reorgs.len() == MAX_REORGS {
            let (epoch, _) = self.reorgs.remove(0);
            self.since = epoch;
        }
        self.reorgs.push((self.epoch, from));
    }

    /// Begins an epoch in which no block has height `from` or a higher one. The head after a
    /// reorganisation extends the record of that reorganisation, so that each takes one record.
    fn lower_head(&mut self, from: u64) {
        match self
            .reorgs
            .pop_if(|(epoch, since)| *epoch == self.epoch && *since <= from)
        {
            Some((_, since)) => self.record_replaced_blocks(since),
            None => self.record_replaced_blocks(from),
        }
    }

    /// Begins an epoch, which invalidates the entries about the former head.
    fn begin_epoch(&mut self) {
        self.epoch += 1;
        self.tip_since = self.epoch;
    }

    /// Whether the block is above the head and was not shown before.
    pub(super) fn is_unseen_block(&self, sighting: ShownBlock) -> bool {
        let covers = |shown: &ShownBlock| {
            shown.height == sighting.height && (shown.is_block || !sighting.is_block)
        };
        sighting.height > self.known_head() && !self.shown.iter().any(covers)
    }

    /// Height of the head, or the highest head that a response has reported while the head is not
    /// known.
    pub(super) fn known_head(&self) -> u64 {
        self.head.unwrap_or(self.seen)
    }

    /// Adds a shown block unless it is present. When the list is full, the new block replaces the
    /// highest one.
    pub(super) fn insert_shown_block(&mut self, sighting: ShownBlock) {
        if self.shown.contains(&sighting) {
            return;
        }
        if self.shown.len() == MAX_SHOWN_BLOCKS {
            let by_height = |at: &usize| self.shown[*at].height;
            if let Some(highest) = (0..MAX_SHOWN_BLOCKS).max_by_key(by_height) {
                self.shown.swap_remove(highest);
            }
        }
        self.shown.push(sighting);
    }

    /// Drops the members of the state that only the owner knows for certain, until an owner reports
    /// a state again.
    pub(super) fn discard_owner_state(&mut self) {
        self.begin_epoch();
        self.is_heard = false;
        self.since = self.epoch;
        self.shown.clear();
        self.head = None;
        self.last_final = None;
        self.known = false;
        self.chain_id = None;
        self.genesis = None;
        self.block_time = None;
    }

    /// Returns the block time in milliseconds, as long as the node reports each new head: it
    /// responds, does not lag, and has the chain of the namespace.
    pub(super) fn reliable_block_time(&self) -> Option<u64> {
        let is_current = self.known && !self.wrong && self.last_final.is_some();
        self.block_time.filter(|_| is_current)
    }

    /// Replaces the heights and hashes of the newest blocks; beyond a maximum number, further
    /// blocks are ignored.
    pub fn set_recent_blocks(&mut self, blocks: impl Iterator<Item = (u64, [u8; 32])>) {
        self.blocks.clear();
        self.blocks.extend(blocks.take(MAX_BLOCKS));
    }

    /// Counts a new head that differs from the seen one. Returns whether the seen head is still
    /// believed.
    pub(super) fn count_unconfirmed_head(&mut self) -> bool {
        self.unconfirmed += 1;
        self.unconfirmed < MAX_UNCONFIRMED_HEADS
    }

    /// Records the height of a head that a response has reported. Returns whether it is higher than
    /// all known heads, and near enough to be believed.
    pub(super) fn record_reported_head_height(&mut self, height: u64) -> bool {
        if height == self.seen {
            self.unconfirmed = 0;
        }
        let is_news = height > self.seen
            && self
                .head
                .is_some_and(|head| height <= head.saturating_add(MAX_BLOCKS_AHEAD));
        if is_news {
            self.seen = height;
            self.unconfirmed = 0;
            // the head's own block does not expire the entries about it once more
            self.insert_shown_block(ShownBlock {
                height,
                is_block: true,
            });
        }
        is_news
    }

    /// Whether `other` differs from this state only by a newer head and by shown blocks.
    pub(super) fn is_only_extended_by(&self, other: &Self) -> bool {
        self.epoch <= other.epoch
            && self.epoch >= other.since
            && self.head <= other.head
            && other.reorgs.iter().all(|(since, _)| *since <= self.epoch)
    }

    /// Whether an entry that was fetched in `epoch` and depends on the blocks up to `height` is
    /// unaffected by reorganisations. `None`: the blocks are not known.
    pub(super) fn is_unaffected_by_reorgs(&self, epoch: u64, height: Option<u64>) -> bool {
        let height = height.unwrap_or(u64::MAX);
        (self.since..=self.epoch).contains(&epoch)
            && self
                .reorgs
                .iter()
                .all(|(since, from)| *since <= epoch || *from > height)
    }
}
