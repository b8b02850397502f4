//! Pages of the Beacon API that exist in SSZ: values of the newest fork's types; the type tables
//! specify everything except the lengths of lists.

use hyper::header::HeaderValue;
use sszip_core::ssz::schema::TypeKind;
use sszip_core::ssz::{Fork, Preset, Schema, TypeId};

use super::values::hex_prefixed;
use super::world::SeededGenerator;
use super::SampleResponsesBuilder;
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
const LIST_LENGTHS: [(&str, usize); 10] = [
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
const BITLIST_LENGTH: usize = 900;

/// Adds the sample pages of the Beacon API with random values, in SSZ only.
pub fn add_beacon_pages(builder: &mut SampleResponsesBuilder, dice: &mut SeededGenerator) {
    let schema = Schema::for_fork(FORK, PRESET);
    for (path, name) in PAGES {
        let Some(ty) = schema.find_type(name) else {
            continue;
        };
        let root = hex_prefixed(&dice.random_bytes(32));
        let mut ssz = Vec::new();
        SszGenerator { schema, dice }.append_random_ssz_value(ty, PAGE_COUNT, &mut ssz);
        let page = builder.answers.replay_page_mut(path.replace('*', &root));
        page.ssz = Some(ssz.into());
        let fork = HeaderValue::from_static(FORK.name());
        page.set_response_headers(vec![(CONSENSUS_VERSION, fork)]);
    }
}

/// The generator of random SSZ values of a schema's types.
struct SszGenerator<'a> {
    schema: &'static Schema,
    dice: &'a mut SeededGenerator,
}

impl SszGenerator<'_> {
    /// Appends a value, which has `count` elements if it is a list.
    fn append_random_ssz_value(&mut self, ty: TypeId, count: usize, out: &mut Vec<u8>) {
        let schema = self.schema;
        match &schema.type_by_id(ty).kind {
            TypeKind::Uint(8) | TypeKind::Quantity(8) => {
                out.extend(self.dice.number_below(40_000_000_000).to_le_bytes());
            }
            TypeKind::Uint(size) | TypeKind::Quantity(size) | TypeKind::ByteVector(size) => {
                out.extend(self.dice.random_bytes(*size));
            }
            TypeKind::Boolean => out.push(0),
            TypeKind::Enum(words) => out.push(self.dice.number_below(words.len() as u64) as u8),
            TypeKind::ByteList(limit) => {
                let len = self.dice.number_between(100, TRANSACTION_BYTES);
                out.extend(
                    self.dice
                        .random_bytes(len.min(limit.max_elements()) as usize),
                );
            }
            TypeKind::Text(limit) => out.resize(out.len() + 8.min(*limit as usize), b'x'),
            TypeKind::Bitvector(bits) => self.append_bits(*bits, out),
            TypeKind::Bitlist(limit) => {
                let count = BITLIST_LENGTH.min(limit.max_elements() as usize);
                let begin = out.len();
                self.append_bits(count, out);
                out.resize(begin + count / 8 + 1, 0);
                out[begin + count / 8] |= 1 << (count % 8);
            }
            TypeKind::Vector(of, count) => {
                self.append_sequence(std::iter::repeat_n((*of, 0), *count), out);
            }
            TypeKind::List(of, limit) => {
                let count = count.min(limit.max_elements() as usize);
                self.append_sequence(std::iter::repeat_n((*of, 0), count), out);
            }
            TypeKind::Optional(of) => self.append_random_ssz_value(*of, 0, out),
            TypeKind::Union(options) => {
                if let Some((selector, of)) = options.first() {
                    out.push(*selector);
                    self.append_random_ssz_value(*of, 0, out);
                }
            }
            TypeKind::Container(container) => {
                let counted: Vec<(TypeId, usize)> = container
                    .fields
                    .iter()
                    .map(|field| (field.ty, self.list_length(&field.name)))
                    .collect();
                self.append_sequence(counted.into_iter(), out);
            }
        }
    }

    /// Returns the number of elements of the list in `field`: a usual one for mainnet if it is
    /// known, or a random one.
    fn list_length(&mut self, field: &str) -> usize {
        let known = LIST_LENGTHS.iter().find(|(name, _)| *name == field);
        known.map_or_else(
            || self.dice.number_below(MOST_OTHERS + 1) as usize,
            |known| known.1,
        )
    }

    /// Appends values in sequence, values of variable size with offsets.
    fn append_sequence(
        &mut self,
        parts: impl Iterator<Item = (TypeId, usize)> + Clone,
        out: &mut Vec<u8>,
    ) {
        let sizes = parts.clone().map(|(ty, _)| self.schema.type_by_id(ty).size);
        let fixed_size: usize = sizes.map(|size| size.unwrap_or(4)).sum();
        let mut variable = Vec::new();
        for (ty, count) in parts {
            if self.schema.type_by_id(ty).size.is_some() {
                self.append_random_ssz_value(ty, count, out);
            } else {
                let offset = (fixed_size + variable.len()) as u32;
                out.extend(offset.to_le_bytes());
                self.append_random_ssz_value(ty, count, &mut variable);
            }
        }
        out.append(&mut variable);
    }

    /// Appends `count` random bits in whole bytes; padding bits are zero.
    fn append_bits(&mut self, count: usize, out: &mut Vec<u8>) {
        out.extend(self.dice.random_bytes(count.div_ceil(8)));
        if let (Some(last), true) = (out.last_mut(), !count.is_multiple_of(8)) {
            *last &= (1 << (count % 8)) - 1;
        }
    }
}
