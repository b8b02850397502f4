//! Receipts and logs of a block's transactions.

use serde::Serialize;

use super::chain::{Transaction, TransactionPurpose};
use super::values::{Address, HexSerializedBytes, Quantity, Word};
use super::world::{self, SampleAccounts, SeededGenerator};

const BLOOM_BYTES: usize = 256;

/// A generated log of a transaction.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ReceiptLog {
    pub address: Address,
    pub topics: Vec<Word>,
    data: HexSerializedBytes,
    block_number: Quantity<u64>,
    transaction_hash: Word,
    transaction_index: Quantity<u64>,
    block_hash: Word,
    log_index: Quantity<u64>,
    removed: bool,
}

/// A generated receipt, as `eth_getTransactionReceipt` returns it.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Receipt {
    block_hash: Word,
    block_number: Quantity<u64>,
    contract_address: Option<Address>,
    pub cumulative_gas_used: Quantity<u64>,
    effective_gas_price: Quantity<u64>,
    from: Address,
    pub gas_used: Quantity<u64>,
    pub logs: Vec<ReceiptLog>,
    logs_bloom: HexSerializedBytes,
    status: Quantity<u8>,
    to: Option<Address>,
    transaction_hash: Word,
    transaction_index: Quantity<u64>,
    #[serde(rename = "type")]
    kind: Quantity<u8>,
}

/// The address, the topics and the words of data of a log.
type LogEvent = (Address, Vec<Word>, Vec<Word>);

/// Returns the receipts of a block's transactions, with their logs numbered in the block. About 3 %
/// of the calls have failed.
pub fn block_receipts(
    world: &SampleAccounts,
    dice: &mut SeededGenerator,
    transactions: &[Transaction],
) -> Vec<Receipt> {
    let mut log_index = 0;
    let mut cumulative = 0;
    transactions
        .iter()
        .map(|transaction| {
            let failed =
                transaction.kind != TransactionPurpose::Payment && dice.is_within_percent(3);
            let events = match failed {
                true => Vec::new(),
                false => transaction_logs(world, dice, transaction),
            };
            let logs = events.into_iter().map(|(address, topics, words)| {
                log_index += 1;
                ReceiptLog {
                    address,
                    topics,
                    data: HexSerializedBytes(words.iter().flat_map(|word| word.0).collect()),
                    block_number: transaction.block_number,
                    transaction_hash: transaction.hash,
                    transaction_index: transaction.transaction_index,
                    block_hash: transaction.block_hash,
                    log_index: Quantity(log_index - 1),
                    removed: false,
                }
            });
            let logs: Vec<ReceiptLog> = logs.collect();
            let gas_used = match transaction.kind {
                TransactionPurpose::Payment => 21_000,
                _ => transaction.gas.0 * dice.number_between(40, 95) / 100,
            };
            cumulative += gas_used;
            Receipt {
                block_hash: transaction.block_hash,
                block_number: transaction.block_number,
                contract_address: transaction.to.is_none().then(|| dice.random_fixed_bytes()),
                cumulative_gas_used: Quantity(cumulative),
                effective_gas_price: transaction.gas_price,
                from: transaction.from,
                gas_used: Quantity(gas_used),
                logs_bloom: compute_bloom(&logs),
                logs,
                status: Quantity(u8::from(!failed)),
                to: transaction.to,
                transaction_hash: transaction.hash,
                transaction_index: transaction.transaction_index,
                kind: transaction.kind_of_envelope,
            }
        })
        .collect()
}

/// Returns the logs that a transaction of this purpose usually has.
fn transaction_logs(
    world: &SampleAccounts,
    dice: &mut SeededGenerator,
    transaction: &Transaction,
) -> Vec<LogEvent> {
    let from = transaction.from;
    let to = transaction.to.unwrap_or(from);
    match transaction.kind {
        TransactionPurpose::Payment | TransactionPurpose::Deployment => Vec::new(),
        TransactionPurpose::TokenTransfer => vec![transfer_log(
            to,
            from,
            world.random_account(dice),
            dice.random_amount(),
        )],
        TransactionPurpose::Approval => {
            let topics = vec![
                world::decode_fixed_digits(world::APPROVAL),
                from.into(),
                world.random_router(dice).into(),
            ];
            vec![(to, topics, vec![world.random_word(dice)])]
        }
        TransactionPurpose::Swap => {
            let mut events = Vec::new();
            for _ in 0..dice.number_between(1, 3) {
                events.extend(token_swap_logs(world, dice, to, from));
            }
            events
        }
        TransactionPurpose::Call => (0..dice.number_below(5))
            .map(|_| {
                let mut topics = vec![world.random_topic(dice)];
                topics.extend(
                    (0..dice.number_below(4)).map(|_| Word::from(world.random_account(dice))),
                );
                let words = (0..dice.number_below(5))
                    .map(|_| world.random_word(dice))
                    .collect();
                (to, topics, words)
            })
            .collect(),
    }
}

/// Generates the logs of one pool's swap: two transfers, the swap, and before version 3 the
/// pool's new reserves.
fn token_swap_logs(
    world: &SampleAccounts,
    dice: &mut SeededGenerator,
    router: Address,
    caller: Address,
) -> Vec<LogEvent> {
    let pool = world.random_contract(dice);
    let (sold, bought) = (dice.random_balance(), dice.random_balance());
    let mut events = vec![
        transfer_log(world.random_token_contract(dice), pool, caller, bought),
        transfer_log(world.random_token_contract(dice), caller, pool, sold),
    ];
    let parties = [router.into(), caller.into()];
    if dice.is_within_percent(50) {
        let reserves = vec![dice.random_balance().into(), dice.random_balance().into()];
        events.push((
            pool,
            vec![world::decode_fixed_digits(world::SYNC)],
            reserves,
        ));
        let amounts = [sold, 0, 0, bought].map(Word::from).to_vec();
        events.push((
            pool,
            [&[world::decode_fixed_digits(world::SWAP_V2)], &parties[..]].concat(),
            amounts,
        ));
    } else {
        let amounts = vec![
            sold.into(),
            negative_number_word(bought),
            dice.random_amount().into(),
            dice.random_amount().into(),
            u128::from(dice.number_below(200_000)).into(),
        ];
        events.push((
            pool,
            [&[world::decode_fixed_digits(world::SWAP_V3)], &parties[..]].concat(),
            amounts,
        ));
    }
    events
}

fn transfer_log(token: Address, from: Address, to: Address, amount: u128) -> LogEvent {
    let topics = vec![
        world::decode_fixed_digits(world::TRANSFER),
        from.into(),
        to.into(),
    ];
    (token, topics, vec![amount.into()])
}

/// Returns a signed word: a negative number, with ones in place of leading zeros.
fn negative_number_word(amount: u128) -> Word {
    let mut word = Word::from(amount.wrapping_neg());
    word.0[..16].fill(0xff);
    word
}

/// Sets three bits for each address and topic, as in the yellow paper, but with any hash: only
/// the number of set bits matters.
fn compute_bloom(logs: &[ReceiptLog]) -> HexSerializedBytes {
    let mut bloom = vec![0; BLOOM_BYTES];
    for log in logs {
        set_bits(&mut bloom, &log.address.0);
        for topic in &log.topics {
            set_bits(&mut bloom, &topic.0);
        }
    }
    HexSerializedBytes(bloom)
}

/// Sets the three bits of an item in a bloom filter; their hash is not Ethereum's.
fn set_bits(bloom: &mut [u8], item: &[u8]) {
    // FNV-1a: the standard library's hasher may change between releases.
    let hash = item.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    });
    for shift in [0, 16, 32] {
        let bit = (hash >> shift) as usize % (BLOOM_BYTES * 8);
        bloom[bit / 8] |= 1 << (bit % 8);
    }
}

pub fn union_of_blooms(receipts: &[Receipt]) -> HexSerializedBytes {
    let mut union = vec![0; BLOOM_BYTES];
    for receipt in receipts {
        for (all, one) in union.iter_mut().zip(&receipt.logs_bloom.0) {
            *all |= one;
        }
    }
    HexSerializedBytes(union)
}
