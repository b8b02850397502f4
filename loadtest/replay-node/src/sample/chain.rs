//! Blocks and transactions of the sample.

use serde::ser::SerializeSeq;
use serde::{Serialize, Serializer};

use super::receipts::{self, Receipt};
use super::values::{Address, BigQuantity, Data, Fixed, Quantity, Word};
use super::world::{Dice, World};

/// A block after Paris, from which the slots of 12 s are counted.
const KNOWN_BLOCK: u64 = 17_000_000;
const KNOWN_TIMESTAMP: u64 = 1_680_911_891;
/// Number of withdrawals of a block.
pub const WITHDRAWALS: u64 = 16;

/// Purpose of a transaction, which determines its logs and traces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Payment,
    TokenTransfer,
    Approval,
    Swap,
    Call,
    Deployment,
}

impl Kind {
    fn roll(dice: &mut Dice) -> Self {
        match dice.below(1000) {
            0..=279 => Kind::Payment,
            280..=529 => Kind::TokenTransfer,
            530..=599 => Kind::Approval,
            600..=829 => Kind::Swap,
            830..=995 => Kind::Call,
            _ => Kind::Deployment,
        }
    }
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Transaction {
    pub block_hash: Word,
    pub block_number: Quantity<u64>,
    pub from: Address,
    pub gas: Quantity<u64>,
    pub gas_price: Quantity<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_fee_per_gas: Option<Quantity<u64>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_priority_fee_per_gas: Option<Quantity<u64>>,
    pub hash: Word,
    pub input: Data,
    nonce: Quantity<u64>,
    pub to: Option<Address>,
    pub transaction_index: Quantity<u64>,
    pub value: Quantity<u128>,
    #[serde(rename = "type")]
    pub kind_of_envelope: Quantity<u8>,
    #[serde(skip_serializing_if = "Option::is_none")]
    access_list: Option<[(); 0]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub chain_id: Option<Quantity<u64>>,
    pub v: Quantity<u64>,
    r: BigQuantity,
    s: BigQuantity,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub y_parity: Option<Quantity<u8>>,
    #[serde(skip)]
    pub kind: Kind,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Withdrawal {
    pub index: Quantity<u64>,
    pub validator_index: Quantity<u64>,
    pub address: Address,
    pub amount: Quantity<u64>,
}

/// A block without its transactions.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Header {
    pub base_fee_per_gas: Quantity<u64>,
    pub blob_gas_used: Quantity<u64>,
    pub difficulty: Quantity<u8>,
    pub excess_blob_gas: Quantity<u64>,
    pub extra_data: Data,
    pub gas_limit: Quantity<u64>,
    pub gas_used: Quantity<u64>,
    pub hash: Word,
    pub logs_bloom: Data,
    pub miner: Address,
    pub mix_hash: Word,
    pub nonce: Fixed<8>,
    pub number: Quantity<u64>,
    pub parent_beacon_block_root: Word,
    pub parent_hash: Word,
    pub receipts_root: Word,
    pub sha3_uncles: Word,
    pub size: Quantity<u64>,
    pub state_root: Word,
    pub timestamp: Quantity<u64>,
}

/// A block as `eth_getBlockByNumber` returns it; `transactions` are full ones or hashes.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct BlockView<'a, T> {
    #[serde(flatten)]
    header: &'a Header,
    transactions: T,
    transactions_root: Word,
    uncles: [(); 0],
    withdrawals: &'a [Withdrawal],
    withdrawals_root: Word,
}

#[derive(Debug)]
pub struct Block {
    pub header: Header,
    pub transactions: Vec<Transaction>,
    pub receipts: Vec<Receipt>,
    pub withdrawals: Vec<Withdrawal>,
    pub transactions_root: Word,
    pub withdrawals_root: Word,
}

/// Parameters of a generated block.
#[derive(Debug)]
pub struct BlockParameters {
    pub hash: Word,
    pub number: u64,
    pub timestamp: u64,
    pub base_fee: u64,
    /// Index of its first withdrawal.
    pub withdrawal: u64,
    /// Approximate bytes of its JSON with full transactions.
    pub size: usize,
}

struct Hashes<'a>(&'a [Transaction]);

impl Serialize for Hashes<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut seq = to.serialize_seq(Some(self.0.len()))?;
        for transaction in self.0 {
            seq.serialize_element(&transaction.hash)?;
        }
        seq.end()
    }
}

impl Block {
    /// Generates a block whose JSON with full transactions has about `target` bytes.
    pub fn generate(world: &World, dice: &mut Dice, number: u64, target: usize) -> Self {
        let hash = dice.fixed();
        let base_fee = dice.between(8_000_000_000, 30_000_000_000);
        let mut transactions = Vec::new();
        let mut size = 3500;
        while size < target {
            let index = transactions.len() as u64;
            let transaction = transaction(world, dice, base_fee, hash, number, index);
            size += 700 + 2 * transaction.input.0.len();
            transactions.push(transaction);
        }
        let place = BlockParameters {
            hash,
            number,
            timestamp: KNOWN_TIMESTAMP + 12 * (number - KNOWN_BLOCK),
            base_fee,
            withdrawal: (number - KNOWN_BLOCK) * WITHDRAWALS,
            size: target,
        };
        Self::from_transactions(world, dice, &place, transactions)
    }

    /// Builds a block of these transactions, with receipts and all other data.
    pub fn from_transactions(
        world: &World,
        dice: &mut Dice,
        place: &BlockParameters,
        transactions: Vec<Transaction>,
    ) -> Self {
        let receipts = receipts::block_receipts(world, dice, &transactions);
        let gas_used = receipts
            .last()
            .map_or(0, |receipt| receipt.cumulative_gas_used.0);
        let withdrawals = withdrawals(world, dice, place.withdrawal);
        let header = Header {
            base_fee_per_gas: Quantity(place.base_fee),
            blob_gas_used: Quantity(dice.below(7) * 131_072),
            difficulty: Quantity(0),
            excess_blob_gas: Quantity(dice.below(600) * 131_072),
            extra_data: Data(b"beaverbuild.org".to_vec()),
            gas_limit: Quantity(30_000_000),
            gas_used: Quantity(gas_used),
            hash: place.hash,
            logs_bloom: receipts::union_of_blooms(&receipts),
            miner: world.contract(dice),
            mix_hash: dice.fixed(),
            nonce: Fixed([0; 8]),
            number: Quantity(place.number),
            parent_beacon_block_root: dice.fixed(),
            parent_hash: dice.fixed(),
            receipts_root: dice.fixed(),
            // Hash of the empty list of uncles.
            sha3_uncles: super::world::fixed(
                "1dcc4de8dec75d7aab85b567b6ccd41ad312451b948a7413f0a142fd40d49347",
            ),
            size: Quantity(place.size as u64 / 3),
            state_root: dice.fixed(),
            timestamp: Quantity(place.timestamp),
        };
        Self {
            header,
            transactions,
            receipts,
            withdrawals,
            transactions_root: dice.fixed(),
            withdrawals_root: dice.fixed(),
        }
    }

    pub fn with_transactions(&self) -> impl Serialize + '_ {
        self.view(self.transactions.as_slice())
    }

    pub fn with_hashes(&self) -> impl Serialize + '_ {
        self.view(Hashes(&self.transactions))
    }

    fn view<T: Serialize>(&self, transactions: T) -> BlockView<'_, T> {
        BlockView {
            header: &self.header,
            transactions,
            transactions_root: self.transactions_root,
            uncles: [],
            withdrawals: &self.withdrawals,
            withdrawals_root: self.withdrawals_root,
        }
    }
}

/// Generates a transaction at a position in a block.
pub fn transaction(
    world: &World,
    dice: &mut Dice,
    base_fee: u64,
    block_hash: Word,
    number: u64,
    index: u64,
) -> Transaction {
    const TIPS: [u64; 5] = [
        100_000_000,
        1_000_000_000,
        1_500_000_000,
        2_000_000_000,
        50_000_000,
    ];
    let kind = Kind::roll(dice);
    let (to, input, value) = call_data(world, dice, kind);
    let dynamic = dice.percent(75);
    let tip = if dice.percent(70) {
        TIPS[dice.skewed(TIPS.len())]
    } else {
        dice.below(3_000_000_000)
    };
    let parity = dice.below(2) as u8;
    let nonce = match dice.percent(70) {
        true => dice.below(400),
        false => dice.below(8_000_000),
    };
    Transaction {
        block_hash,
        block_number: Quantity(number),
        from: world.account(dice),
        gas: Quantity(gas_limit(dice, kind)),
        gas_price: Quantity(base_fee + tip),
        max_fee_per_gas: dynamic.then(|| Quantity(base_fee * 2 + tip + dice.below(1 << 30))),
        max_priority_fee_per_gas: dynamic.then_some(Quantity(tip)),
        hash: dice.fixed(),
        input: Data(input),
        nonce: Quantity(nonce),
        to,
        transaction_index: Quantity(index),
        value: Quantity(value),
        kind_of_envelope: Quantity(if dynamic { 2 } else { 0 }),
        access_list: dynamic.then_some([]),
        chain_id: Some(Quantity(1)),
        v: Quantity(u64::from(if dynamic { parity } else { 37 + parity })),
        r: BigQuantity(dice.fixed().0),
        s: BigQuantity(dice.fixed().0),
        y_parity: dynamic.then_some(Quantity(parity)),
        kind,
    }
}

fn gas_limit(dice: &mut Dice, kind: Kind) -> u64 {
    match kind {
        Kind::Payment => 21_000,
        Kind::TokenTransfer | Kind::Approval => dice.between(6, 10) * 10_000,
        _ => dice.between(80_000, 900_000),
    }
}

/// Returns the recipient, the input and the value of a transaction.
fn call_data(world: &World, dice: &mut Dice, kind: Kind) -> (Option<Address>, Vec<u8>, u128) {
    match kind {
        Kind::Payment => (Some(world.account(dice)), Vec::new(), dice.amount()),
        Kind::TokenTransfer => {
            let words = [Word::from(world.account(dice)), Word::from(dice.amount())];
            (
                Some(world.token(dice)),
                encode([0xa9, 0x05, 0x9c, 0xbb], &words),
                0,
            )
        }
        Kind::Approval => {
            let words = [Word::from(world.router(dice)), Fixed([0xff; 32])];
            (
                Some(world.token(dice)),
                encode([0x09, 0x5e, 0xa7, 0xb3], &words),
                0,
            )
        }
        Kind::Swap => {
            let words = words(world, dice, 7, 24);
            let selector = world.selector(dice).0;
            let value = if dice.percent(40) { dice.amount() } else { 0 };
            (Some(world.router(dice)), encode(selector, &words), value)
        }
        Kind::Call => {
            let mut input = encode(world.selector(dice).0, &words(world, dice, 1, 14));
            // Signatures and proofs, which don't compress.
            if dice.percent(12) {
                let len = dice.between(2, 20) as usize * 65;
                input.extend(dice.bytes(len));
            }
            (Some(world.contract(dice)), input, 0)
        }
        Kind::Deployment => (None, code(dice, 6000), 0),
    }
}

pub fn encode(selector: [u8; 4], words: &[Word]) -> Vec<u8> {
    let mut data = selector.to_vec();
    for word in words {
        data.extend_from_slice(&word.0);
    }
    data
}

pub fn words(world: &World, dice: &mut Dice, low: u64, high: u64) -> Vec<Word> {
    (0..dice.between(low, high))
        .map(|_| world.word(dice))
        .collect()
}

/// Generates bytes that are as compressible as EVM code: opcodes from a skewed distribution, with
/// pushed constants between them.
pub fn code(dice: &mut Dice, len: usize) -> Vec<u8> {
    const OPCODES: [u8; 24] = [
        0x60, 0x80, 0x52, 0x90, 0x61, 0x50, 0x01, 0x81, 0x5b, 0x56, 0x82, 0x91, 0x60, 0x40, 0x51,
        0x83, 0x03, 0x57, 0x15, 0x92, 0x35, 0x73, 0x16, 0x1b,
    ];
    let mut code = vec![0x60, 0x80, 0x60, 0x40, 0x52, 0x34, 0x80, 0x15];
    while code.len() < len {
        match dice.below(100) {
            0..=5 => code.extend(dice.bytes(4)),
            6..=15 => code.extend([0x61, dice.below(24) as u8, dice.below(256) as u8]),
            16..=32 => code.extend([0x60, 0x04 * dice.skewed(64) as u8]),
            33..=38 => code.extend([0x60, 0x40, 0x51, 0x80, 0x91, 0x03, 0x90]),
            _ => code.push(OPCODES[dice.skewed(OPCODES.len())]),
        }
    }
    code
}

fn withdrawals(world: &World, dice: &mut Dice, first: u64) -> Vec<Withdrawal> {
    let validator = dice.below(900_000);
    (0..WITHDRAWALS)
        .map(|offset| Withdrawal {
            index: Quantity(first + offset),
            validator_index: Quantity(validator + offset),
            address: world.account(dice),
            amount: Quantity(dice.between(17_000_000, 19_500_000)),
        })
        .collect()
}
