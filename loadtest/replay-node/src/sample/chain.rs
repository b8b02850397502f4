//! Blocks and transactions of the sample.

use serde::ser::SerializeSeq;
use serde::{Serialize, Serializer};

use super::receipts::{self, Receipt};
use super::values::{Address, BigQuantity, FixedBytes, HexSerializedBytes, Quantity, Word};
use super::world::{SampleAccounts, SeededGenerator};

/// A block after Paris, from which the slots of 12 s are counted.
const KNOWN_BLOCK: u64 = 17_000_000;
const KNOWN_TIMESTAMP: u64 = 1_680_911_891;
/// Number of withdrawals of a block.
pub const WITHDRAWALS: u64 = 16;

/// The purpose of a generated transaction, which determines its logs and traces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransactionPurpose {
    Payment,
    TokenTransfer,
    Approval,
    Swap,
    Call,
    Deployment,
}

impl TransactionPurpose {
    /// Returns a purpose with the frequency that it has on mainnet, about.
    fn random(dice: &mut SeededGenerator) -> Self {
        match dice.number_below(1000) {
            0..=279 => TransactionPurpose::Payment,
            280..=529 => TransactionPurpose::TokenTransfer,
            530..=599 => TransactionPurpose::Approval,
            600..=829 => TransactionPurpose::Swap,
            830..=995 => TransactionPurpose::Call,
            _ => TransactionPurpose::Deployment,
        }
    }
}

/// A generated transaction, as `eth_getTransactionByHash` returns it.
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
    pub input: HexSerializedBytes,
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
    pub kind: TransactionPurpose,
}

/// A generated withdrawal of a block.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Withdrawal {
    pub index: Quantity<u64>,
    pub validator_index: Quantity<u64>,
    pub address: Address,
    pub amount: Quantity<u64>,
}

/// The members of a generated block except its transactions and withdrawals.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct BlockHeader {
    pub base_fee_per_gas: Quantity<u64>,
    pub blob_gas_used: Quantity<u64>,
    pub difficulty: Quantity<u8>,
    pub excess_blob_gas: Quantity<u64>,
    pub extra_data: HexSerializedBytes,
    pub gas_limit: Quantity<u64>,
    pub gas_used: Quantity<u64>,
    pub hash: Word,
    pub logs_bloom: HexSerializedBytes,
    pub miner: Address,
    pub mix_hash: Word,
    pub nonce: FixedBytes<8>,
    pub number: Quantity<u64>,
    pub parent_beacon_block_root: Word,
    pub parent_hash: Word,
    pub receipts_root: Word,
    pub sha3_uncles: Word,
    pub size: Quantity<u64>,
    pub state_root: Word,
    pub timestamp: Quantity<u64>,
}

/// A block as `eth_getBlockByNumber` returns it, with full transactions or their hashes.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct RpcBlockResult<'a, T> {
    #[serde(flatten)]
    header: &'a BlockHeader,
    transactions: T,
    transactions_root: Word,
    uncles: [(); 0],
    withdrawals: &'a [Withdrawal],
    withdrawals_root: Word,
}

/// A generated block with its receipts.
#[derive(Debug)]
pub struct GeneratedBlock {
    pub header: BlockHeader,
    pub transactions: Vec<Transaction>,
    pub receipts: Vec<Receipt>,
    pub withdrawals: Vec<Withdrawal>,
    pub transactions_root: Word,
    pub withdrawals_root: Word,
}

/// The parameters from which a block is generated.
#[derive(Debug)]
pub struct BlockGenerationParameters {
    pub hash: Word,
    pub number: u64,
    pub timestamp: u64,
    pub base_fee: u64,
    /// Index of its first withdrawal.
    pub withdrawal: u64,
    /// Approximate bytes of its JSON with full transactions.
    pub size: usize,
}

/// The transactions of a block, serialized as their hashes.
struct TransactionsAsHashes<'a>(&'a [Transaction]);

impl Serialize for TransactionsAsHashes<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut seq = to.serialize_seq(Some(self.0.len()))?;
        for transaction in self.0 {
            seq.serialize_element(&transaction.hash)?;
        }
        seq.end()
    }
}

impl GeneratedBlock {
    /// Generates a block whose JSON with full transactions has about `target` bytes.
    pub fn generate_block(
        world: &SampleAccounts,
        dice: &mut SeededGenerator,
        number: u64,
        target: usize,
    ) -> Self {
        let hash = dice.random_fixed_bytes();
        let base_fee = dice.number_between(8_000_000_000, 30_000_000_000);
        let mut transactions = Vec::new();
        let mut size = 3500;
        while size < target {
            let index = transactions.len() as u64;
            let transaction = generate_transaction(world, dice, base_fee, hash, number, index);
            size += 700 + 2 * transaction.input.0.len();
            transactions.push(transaction);
        }
        let place = BlockGenerationParameters {
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
        world: &SampleAccounts,
        dice: &mut SeededGenerator,
        place: &BlockGenerationParameters,
        transactions: Vec<Transaction>,
    ) -> Self {
        let receipts = receipts::block_receipts(world, dice, &transactions);
        let gas_used = receipts
            .last()
            .map_or(0, |receipt| receipt.cumulative_gas_used.0);
        let withdrawals = generate_withdrawals(world, dice, place.withdrawal);
        let header = BlockHeader {
            base_fee_per_gas: Quantity(place.base_fee),
            blob_gas_used: Quantity(dice.number_below(7) * 131_072),
            difficulty: Quantity(0),
            excess_blob_gas: Quantity(dice.number_below(600) * 131_072),
            extra_data: HexSerializedBytes(b"beaverbuild.org".to_vec()),
            gas_limit: Quantity(30_000_000),
            gas_used: Quantity(gas_used),
            hash: place.hash,
            logs_bloom: receipts::union_of_blooms(&receipts),
            miner: world.random_contract(dice),
            mix_hash: dice.random_fixed_bytes(),
            nonce: FixedBytes([0; 8]),
            number: Quantity(place.number),
            parent_beacon_block_root: dice.random_fixed_bytes(),
            parent_hash: dice.random_fixed_bytes(),
            receipts_root: dice.random_fixed_bytes(),
            // Hash of the empty list of uncles.
            sha3_uncles: super::world::decode_fixed_digits(
                "1dcc4de8dec75d7aab85b567b6ccd41ad312451b948a7413f0a142fd40d49347",
            ),
            size: Quantity(place.size as u64 / 3),
            state_root: dice.random_fixed_bytes(),
            timestamp: Quantity(place.timestamp),
        };
        Self {
            header,
            transactions,
            receipts,
            withdrawals,
            transactions_root: dice.random_fixed_bytes(),
            withdrawals_root: dice.random_fixed_bytes(),
        }
    }

    pub fn view_with_transactions(&self) -> impl Serialize + '_ {
        self.serializable_view(self.transactions.as_slice())
    }

    pub fn view_with_hashes(&self) -> impl Serialize + '_ {
        self.serializable_view(TransactionsAsHashes(&self.transactions))
    }

    fn serializable_view<T: Serialize>(&self, transactions: T) -> RpcBlockResult<'_, T> {
        RpcBlockResult {
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
pub fn generate_transaction(
    world: &SampleAccounts,
    dice: &mut SeededGenerator,
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
    let kind = TransactionPurpose::random(dice);
    let (to, input, value) = transaction_call_parts(world, dice, kind);
    let dynamic = dice.is_within_percent(75);
    let tip = if dice.is_within_percent(70) {
        TIPS[dice.skewed_index(TIPS.len())]
    } else {
        dice.number_below(3_000_000_000)
    };
    let parity = dice.number_below(2) as u8;
    let nonce = match dice.is_within_percent(70) {
        true => dice.number_below(400),
        false => dice.number_below(8_000_000),
    };
    Transaction {
        block_hash,
        block_number: Quantity(number),
        from: world.random_account(dice),
        gas: Quantity(gas_limit(dice, kind)),
        gas_price: Quantity(base_fee + tip),
        max_fee_per_gas: dynamic.then(|| Quantity(base_fee * 2 + tip + dice.number_below(1 << 30))),
        max_priority_fee_per_gas: dynamic.then_some(Quantity(tip)),
        hash: dice.random_fixed_bytes(),
        input: HexSerializedBytes(input),
        nonce: Quantity(nonce),
        to,
        transaction_index: Quantity(index),
        value: Quantity(value),
        kind_of_envelope: Quantity(if dynamic { 2 } else { 0 }),
        access_list: dynamic.then_some([]),
        chain_id: Some(Quantity(1)),
        v: Quantity(u64::from(if dynamic { parity } else { 37 + parity })),
        r: BigQuantity(dice.random_fixed_bytes().0),
        s: BigQuantity(dice.random_fixed_bytes().0),
        y_parity: dynamic.then_some(Quantity(parity)),
        kind,
    }
}

/// Returns a plausible gas limit for a transaction.
fn gas_limit(dice: &mut SeededGenerator, kind: TransactionPurpose) -> u64 {
    match kind {
        TransactionPurpose::Payment => 21_000,
        TransactionPurpose::TokenTransfer | TransactionPurpose::Approval => {
            dice.number_between(6, 10) * 10_000
        }
        _ => dice.number_between(80_000, 900_000),
    }
}

/// Returns the recipient, the input and the value of a transaction.
fn transaction_call_parts(
    world: &SampleAccounts,
    dice: &mut SeededGenerator,
    kind: TransactionPurpose,
) -> (Option<Address>, Vec<u8>, u128) {
    match kind {
        TransactionPurpose::Payment => (
            Some(world.random_account(dice)),
            Vec::new(),
            dice.random_amount(),
        ),
        TransactionPurpose::TokenTransfer => {
            let words = [
                Word::from(world.random_account(dice)),
                Word::from(dice.random_amount()),
            ];
            (
                Some(world.random_token_contract(dice)),
                encode_call([0xa9, 0x05, 0x9c, 0xbb], &words),
                0,
            )
        }
        TransactionPurpose::Approval => {
            let words = [
                Word::from(world.random_router(dice)),
                FixedBytes([0xff; 32]),
            ];
            (
                Some(world.random_token_contract(dice)),
                encode_call([0x09, 0x5e, 0xa7, 0xb3], &words),
                0,
            )
        }
        TransactionPurpose::Swap => {
            let words = random_words(world, dice, 7, 24);
            let selector = world.random_selector(dice).0;
            let value = if dice.is_within_percent(40) {
                dice.random_amount()
            } else {
                0
            };
            (
                Some(world.random_router(dice)),
                encode_call(selector, &words),
                value,
            )
        }
        TransactionPurpose::Call => {
            let mut input = encode_call(
                world.random_selector(dice).0,
                &random_words(world, dice, 1, 14),
            );
            // Signatures and proofs, which don't compress.
            if dice.is_within_percent(12) {
                let len = dice.number_between(2, 20) as usize * 65;
                input.extend(dice.random_bytes(len));
            }
            (Some(world.random_contract(dice)), input, 0)
        }
        TransactionPurpose::Deployment => (None, random_code(dice, 6000), 0),
    }
}

/// Returns the ABI encoding of a call: the selector, and words of 32 bytes.
pub fn encode_call(selector: [u8; 4], words: &[Word]) -> Vec<u8> {
    let mut data = selector.to_vec();
    for word in words {
        data.extend_from_slice(&word.0);
    }
    data
}

/// Returns `low` to `high` words, both inclusive.
pub fn random_words(
    world: &SampleAccounts,
    dice: &mut SeededGenerator,
    low: u64,
    high: u64,
) -> Vec<Word> {
    (0..dice.number_between(low, high))
        .map(|_| world.random_word(dice))
        .collect()
}

/// Generates bytes that are as compressible as EVM code: opcodes from a skewed distribution, with
/// pushed constants between them.
pub fn random_code(dice: &mut SeededGenerator, len: usize) -> Vec<u8> {
    const OPCODES: [u8; 24] = [
        0x60, 0x80, 0x52, 0x90, 0x61, 0x50, 0x01, 0x81, 0x5b, 0x56, 0x82, 0x91, 0x60, 0x40, 0x51,
        0x83, 0x03, 0x57, 0x15, 0x92, 0x35, 0x73, 0x16, 0x1b,
    ];
    let mut code = vec![0x60, 0x80, 0x60, 0x40, 0x52, 0x34, 0x80, 0x15];
    while code.len() < len {
        match dice.number_below(100) {
            0..=5 => code.extend(dice.random_bytes(4)),
            6..=15 => code.extend([
                0x61,
                dice.number_below(24) as u8,
                dice.number_below(256) as u8,
            ]),
            16..=32 => code.extend([0x60, 0x04 * dice.skewed_index(64) as u8]),
            33..=38 => code.extend([0x60, 0x40, 0x51, 0x80, 0x91, 0x03, 0x90]),
            _ => code.push(OPCODES[dice.skewed_index(OPCODES.len())]),
        }
    }
    code
}

/// Returns [`WITHDRAWALS`] withdrawals with consecutive indices from `first` on.
fn generate_withdrawals(
    world: &SampleAccounts,
    dice: &mut SeededGenerator,
    first: u64,
) -> Vec<Withdrawal> {
    let validator = dice.number_below(900_000);
    (0..WITHDRAWALS)
        .map(|offset| Withdrawal {
            index: Quantity(first + offset),
            validator_index: Quantity(validator + offset),
            address: world.random_account(dice),
            amount: Quantity(dice.number_between(17_000_000, 19_500_000)),
        })
        .collect()
}
