//! Pages of the Beacon API that exist in SSZ: values of the newest fork's types; the type tables
//! specify everything except the lengths of lists.

use hyper::header::HeaderValue;
use sszip_core::ssz::schema::Kind;
use sszip_core::ssz::{Fork, Preset, Schema, TypeId};

use super::values::prefixed;
use super::world::Dice;
use super::Builder;
use crate::page::CONSENSUS_VERSION;

/// Fork of mainnet, so that a page for one client is valid for the others.
const FORK: Fork = Fork::Fulu;
const PRESET: Preset = Preset::Mainnet;

/// Path and type; `*` is a root.
const PAGES: [(&str, &str); 10] = [
    ("/eth/v2/beacon/blocks/head", "SignedBeaconBlock"),
    (
        "/eth/v1/beacon/blinded_blocks/head",
        "SignedBlindedBeaconBlock",
    ),
    ("/eth/v2/debug/beacon/states/head", "BeaconState"),
    (
        "/eth/v1/beacon/light_client/bootstrap/*",
        "LightClientBootstrap",
    ),
    (
        "/eth/v1/beacon/light_client/finality_update",
        "LightClientFinalityUpdate",
    ),
    (
        "/eth/v1/beacon/light_client/optimistic_update",
        "LightClientOptimisticUpdate",
    ),
    (
        "/eth/v1/beacon/states/head/pending_deposits",
        "PendingDeposits",
    ),
    (
        "/eth/v1/beacon/states/head/pending_consolidations",
        "PendingConsolidations",
    ),
    (
        "/eth/v1/beacon/states/head/proposer_lookahead",
        "ProposerLookahead",
    ),
    (
        "/eth/v1/beacon/states/head/validator_balances",
        "ValidatorBalances",
    ),
];

/// Number of elements of a list, by its field: a block is as long as mainnet's.
const COUNTS: [(&str, usize); 10] = [
    ("transactions", 150),
    ("withdrawals", 16),
    ("attestations", 8),
    ("blob_kzg_commitments", 6),
    ("validators", VALIDATORS),
    ("balances", VALIDATORS),
    ("previous_epoch_participation", VALIDATORS),
    ("current_epoch_participation", VALIDATORS),
    ("inactivity_scores", VALIDATORS),
    ("pending_deposits", 20),
];
const VALIDATORS: usize = 200;
/// Number of elements of a list that is itself a page.
const PAGE_COUNT: usize = 30;
/// Maximum number of elements of any other list.
const MOST_OTHERS: u64 = 2;
const TRANSACTION_BYTES: u64 = 700;
/// Number of bits, as long as the committees of a slot.
const BITS: usize = 900;

pub fn add(builder: &mut Builder, dice: &mut Dice) {
    let schema = Schema::for_fork(FORK, PRESET);
    for (path, name) in PAGES {
        let Some(ty) = schema.find(name) else {
            continue;
        };
        let root = prefixed(&dice.bytes(32));
        let mut ssz = Vec::new();
        Values { schema, dice }.value(ty, PAGE_COUNT, &mut ssz);
        let page = builder.answers.page_mut(path.replace('*', &root));
        page.ssz = Some(ssz.into());
        let fork = HeaderValue::from_static(FORK.name());
        page.set_fields(vec![(CONSENSUS_VERSION, fork)]);
    }
}

/// A generator of random values of SSZ types.
struct Values<'a> {
    schema: &'static Schema,
    dice: &'a mut Dice,
}

impl Values<'_> {
    /// Appends a value, which has `count` elements if it is a list.
    fn value(&mut self, ty: TypeId, count: usize, out: &mut Vec<u8>) {
        let schema = self.schema;
        match &schema.get(ty).kind {
            Kind::Uint(8) | Kind::Quantity(8) => {
                out.extend(self.dice.below(40_000_000_000).to_le_bytes());
            }
            Kind::Uint(size) | Kind::Quantity(size) | Kind::ByteVector(size) => {
                out.extend(self.dice.bytes(*size));
            }
            Kind::Boolean => out.push(0),
            Kind::Enum(words) => out.push(self.dice.below(words.len() as u64) as u8),
            Kind::ByteList(limit) => {
                let len = self.dice.between(100, TRANSACTION_BYTES);
                out.extend(self.dice.bytes(len.min(limit.max()) as usize));
            }
            Kind::Text(limit) => out.resize(out.len() + 8.min(*limit as usize), b'x'),
            Kind::Bitvector(bits) => self.bits(*bits, out),
            Kind::Bitlist(limit) => {
                let count = BITS.min(limit.max() as usize);
                let begin = out.len();
                self.bits(count, out);
                out.resize(begin + count / 8 + 1, 0);
                out[begin + count / 8] |= 1 << (count % 8);
            }
            Kind::Vector(of, count) => self.parts(std::iter::repeat_n((*of, 0), *count), out),
            Kind::List(of, limit) => {
                let count = count.min(limit.max() as usize);
                self.parts(std::iter::repeat_n((*of, 0), count), out);
            }
            Kind::Optional(of) => self.value(*of, 0, out),
            Kind::Union(options) => {
                if let Some((selector, of)) = options.first() {
                    out.push(*selector);
                    self.value(*of, 0, out);
                }
            }
            Kind::Container(container) => {
                let counted: Vec<(TypeId, usize)> = container
                    .fields
                    .iter()
                    .map(|field| (field.ty, self.count(&field.name)))
                    .collect();
                self.parts(counted.into_iter(), out);
            }
        }
    }

    fn count(&mut self, field: &str) -> usize {
        let known = COUNTS.iter().find(|(name, _)| *name == field);
        known.map_or_else(
            || self.dice.below(MOST_OTHERS + 1) as usize,
            |known| known.1,
        )
    }

    /// Appends values in sequence, values of variable size with offsets.
    fn parts(&mut self, parts: impl Iterator<Item = (TypeId, usize)> + Clone, out: &mut Vec<u8>) {
        let sizes = parts.clone().map(|(ty, _)| self.schema.get(ty).size);
        let fixed_size: usize = sizes.map(|size| size.unwrap_or(4)).sum();
        let mut variable = Vec::new();
        for (ty, count) in parts {
            if self.schema.get(ty).size.is_some() {
                self.value(ty, count, out);
            } else {
                let offset = (fixed_size + variable.len()) as u32;
                out.extend(offset.to_le_bytes());
                self.value(ty, count, &mut variable);
            }
        }
        out.append(&mut variable);
    }

    fn bits(&mut self, count: usize, out: &mut Vec<u8>) {
        out.extend(self.dice.bytes(count.div_ceil(8)));
        if let (Some(last), true) = (out.last_mut(), !count.is_multiple_of(8)) {
            *last &= (1 << (count % 8)) - 1;
        }
    }
}
