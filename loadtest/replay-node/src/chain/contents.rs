//! Contents of a block and of the state after it, derived from hashes at every request. Their
//! shapes equal the sample's; every value depends on the block's hash, so that two branches have
//! no value in common.

use serde_json::{json, Value};

use crate::sample::chain::{
    self as sample, BlockGenerationParameters, GeneratedBlock, Transaction, WITHDRAWALS,
};
use crate::sample::traces::{self, SampleTransactionTrace};
use crate::sample::values::{hex_prefixed, Address, Quantity, Word};
use crate::sample::world::SampleAccounts;

use super::digest::{derive_generator, derive_hash};
use super::model::{self, SimulatedChain, SimulatedChainParameters};

pub const SECONDS_PER_SLOT: u64 = 12;
/// Base fee for which transactions are priced, whichever block includes them.
const EXPECTED_BASE_FEE: u64 = 15_000_000_000;

/// The generator of the transactions, receipts and state of a chain's blocks, all derived from
/// hashes.
#[derive(Debug)]
pub struct ExecutionBlockGenerator {
    world: SampleAccounts,
    genesis: SimulatedChainParameters,
}

impl ExecutionBlockGenerator {
    /// Creates the generator for a chain, whose accounts are derived from its seed.
    pub fn new(genesis: &SimulatedChainParameters) -> Self {
        let seed = genesis.seed.to_be_bytes();
        Self {
            world: SampleAccounts::new(&mut derive_generator("world", &[&seed])),
            genesis: *genesis,
        }
    }

    /// Generates the full block of a stored one, with its transactions and receipts.
    pub fn block_with_receipts(
        &self,
        chain: &SimulatedChain,
        block: &model::SimulatedBlock,
    ) -> GeneratedBlock {
        let parent = block.parent.map(|parent| chain.block_by_index(parent));
        let parent_hash = parent.map_or_else(Word::default, |parent| parent.hash);
        let parent_root = parent.map_or_else(Word::default, |parent| parent.root);
        let mut made = self.build_block(block.hash, block.number, block.slot, &block.transactions);
        made.header.parent_hash = parent_hash;
        made.header.parent_beacon_block_root = parent_root;
        if block.number == 0 {
            made.withdrawals.clear();
        }
        made
    }

    /// Returns the pending block: the head's successor, with the transactions of the pool.
    pub fn pending_block(
        &self,
        chain: &SimulatedChain,
        head: &model::SimulatedBlock,
    ) -> GeneratedBlock {
        let (hash, slot) = (pending_block_hash(head), head.slot + 1);
        let mut made = self.build_block(hash, head.number + 1, slot, chain.pool_transactions());
        made.header.parent_hash = head.hash;
        made.header.parent_beacon_block_root = head.root;
        made
    }

    /// Builds a block with its transactions and receipts; the parent's hashes are zero.
    fn build_block(
        &self,
        hash: Word,
        number: u64,
        slot: u64,
        transactions: &[Word],
    ) -> GeneratedBlock {
        let base_fee = base_fee(&hash);
        let place = BlockGenerationParameters {
            hash,
            number,
            timestamp: self.genesis.time + slot * SECONDS_PER_SLOT,
            base_fee,
            withdrawal: number * WITHDRAWALS,
            size: 3500 + 900 * transactions.len(),
        };
        let placed = (0..).zip(transactions).map(|(index, transaction)| {
            let mut made = self.build_transaction(transaction, hash, number, index);
            if let (Some(most), Some(tip)) = (made.max_fee_per_gas, made.max_priority_fee_per_gas) {
                made.gas_price = Quantity(most.0.min(base_fee + tip.0));
            }
            made
        });
        let placed = placed.collect();
        let mut dice = derive_generator("contents", &[&hash.0]);
        GeneratedBlock::from_transactions(&self.world, &mut dice, &place, placed)
    }

    /// Builds a transaction at a position in a block; only the position depends on the block.
    fn build_transaction(&self, hash: &Word, block: Word, number: u64, index: u64) -> Transaction {
        let mut dice = derive_generator("transaction", &[&hash.0]);
        let mut made = sample::generate_transaction(
            &self.world,
            &mut dice,
            EXPECTED_BASE_FEE,
            block,
            number,
            index,
        );
        made.hash = *hash;
        made.chain_id = Some(Quantity(self.genesis.chain_id));
        if made.y_parity.is_none() {
            // EIP-155.
            let parity = made.v.0 & 1;
            made.v = Quantity(35 + 2 * self.genesis.chain_id + parity);
        }
        made
    }

    /// Returns a transaction of the pool, as geth shows it.
    pub fn pool_transaction(&self, hash: &Word) -> Value {
        let transaction = self.build_transaction(hash, Word::default(), 0, 0);
        let mut shown = json!(transaction);
        for name in ["blockHash", "blockNumber", "transactionIndex"] {
            shown[name] = Value::Null;
        }
        shown
    }

    /// Returns the call traces of a block's transactions.
    pub fn block_traces(&self, block: &GeneratedBlock) -> Vec<SampleTransactionTrace> {
        let mut dice = derive_generator("traces", &[&block.header.hash.0]);
        traces::block_traces(&self.world, &mut dice, block)
    }
}

/// Returns the hash from which the state of the pending block derives.
pub fn pending_block_hash(head: &model::SimulatedBlock) -> Word {
    derive_hash("pending", &[&head.hash.0])
}

/// Returns a header in the format of `newHeads`.
pub fn new_heads_header(block: &GeneratedBlock) -> Value {
    let mut header = json!(block.header);
    header["transactionsRoot"] = json!(block.transactions_root);
    header["withdrawalsRoot"] = json!(block.withdrawals_root);
    header
}

/// Returns the base fee of the block with this hash, in wei.
pub fn base_fee(hash: &Word) -> u64 {
    derive_generator("base fee", &[&hash.0]).number_between(8_000_000_000, 30_000_000_000)
}

/// Returns the base fee of blobs, in wei.
pub fn blob_base_fee(hash: &Word) -> u64 {
    derive_generator("blob base fee", &[&hash.0]).number_between(1, 1_000_000_000)
}

/// Whether an account was never used, as one in eight; it has no code either.
fn is_unused_account(address: &Address) -> bool {
    address.0[19].is_multiple_of(8)
}

/// Returns an account's balance after a block, in wei.
pub fn balance_after(block: &Word, address: &Address) -> u128 {
    match is_unused_account(address) {
        true => 0,
        false => derive_generator("balance", &[&block.0, &address.0]).random_balance(),
    }
}

/// Returns an account's transaction count after a block.
pub fn nonce_after(block: &Word, address: &Address) -> u64 {
    match is_unused_account(address) {
        true => 0,
        false => derive_generator("nonce", &[&block.0, &address.0]).number_below(1 << 20),
    }
}

/// Returns an account's code after a block: empty for one account in two. Unlike real code, its
/// last 32 bytes change with each block.
pub fn account_code_after(block: &Word, address: &Address) -> Vec<u8> {
    if address.0[19].is_multiple_of(2) {
        return Vec::new();
    }
    let mut dice = derive_generator("code", &[&address.0]);
    let len = dice.number_between(200, 2000) as usize;
    let mut code = sample::random_code(&mut dice, len);
    code.extend(derive_hash("code", &[&block.0, &address.0]).0);
    code
}

/// Returns a storage word after a block; one slot in four is empty.
pub fn storage_after(block: &Word, address: &Address, slot: &Word) -> Word {
    match slot.0[31] % 4 {
        3 => Word::default(),
        _ => derive_hash("storage", &[&block.0, &address.0, &slot.0]),
    }
}

/// Returns the result of a call in a block's state: one to four words.
pub fn simulated_call_result(block: &Word, call: &[u8]) -> String {
    let mut dice = derive_generator("call", &[&block.0, call]);
    let words = dice.number_between(1, 4) as usize;
    hex_prefixed(&dice.random_bytes(32 * words))
}
