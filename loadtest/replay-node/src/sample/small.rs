//! Responses that are not about a block: mostly small ones, and pages of GET.

use serde::Serialize;
use serde_json::json;

use super::beacon;
use super::chain::random_code;
use super::values::{hex_prefixed, Address, FixedBytes, HexSerializedBytes, Quantity, Word};
use super::world::{SampleAccounts, SeededGenerator};
use super::{SampleResponsesBuilder, HEAD_NUMBER};
use crate::responses::RecordedResponse;

const NO_PARAMS: &str = "[]";
/// Number of contracts and accounts that can be queried.
const ACCOUNT_COUNT: usize = 4;
const VALIDATORS: u64 = 700;

/// The result of `eth_feeHistory`.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct FeeHistory {
    oldest_block: Quantity<u64>,
    reward: Vec<[Quantity<u64>; 3]>,
    base_fee_per_gas: Vec<Quantity<u64>>,
    gas_used_ratio: Vec<f64>,
}

/// The result of `eth_getProof`.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct AccountProof {
    address: Address,
    account_proof: Vec<HexSerializedBytes>,
    balance: Quantity<u128>,
    code_hash: Word,
    nonce: Quantity<u64>,
    storage_hash: Word,
    storage_proof: [(); 0],
}

/// Adds responses of few bytes, which are most of a node's traffic: state, fees, and account data.
pub fn add_small_responses(
    builder: &mut SampleResponsesBuilder,
    world: &SampleAccounts,
    dice: &mut SeededGenerator,
) {
    let none = [NO_PARAMS.to_owned()];
    builder.add_sample_result("eth_chainId", &none, &"0x1");
    builder.add_sample_result("net_version", &none, &"1");
    builder.add_sample_result("net_peerCount", &none, &"0x32");
    builder.add_sample_result("eth_syncing", &none, &false);
    builder.add_sample_result("eth_blockNumber", &none, &Quantity(HEAD_NUMBER));
    builder.add_sample_result("eth_gasPrice", &none, &Quantity(12_345_678_901u64));
    builder.add_sample_result("eth_maxPriorityFeePerGas", &none, &Quantity(50_000_000u64));
    builder.add_sample_result(
        "web3_clientVersion",
        &none,
        &"Geth/v1.15.11-stable/linux-amd64/go1.24.2",
    );
    // Some nodes omit the result of a method that returns nothing: the smallest possible
    // response, 24 B.
    if let Ok(void) = RecordedResponse::from_recorded_json(r#"{"jsonrpc":"2.0","id":1}"#) {
        builder.add_answer("debug_freeOSMemory", &none, void);
    }
    builder.add_sample_result(
        "eth_estimateGas",
        &[r#"[{"to":"0xdac17f958d2ee523a2206206994597c13d831ec7"}]"#.to_owned()],
        &"0x5208",
    );
    for blocks in [10, 100, 1000] {
        let params = [
            format!("[\"{blocks:#x}\",\"latest\",[10,50,90]]"),
            format!("[{blocks},\"latest\",[10,50,90]]"),
        ];
        builder.add_sample_result("eth_feeHistory", &params, &fee_history(dice, blocks));
    }
    for subject in 0..ACCOUNT_COUNT {
        add_account(builder, world, dice, subject);
    }
    add_small_beacon_pages(builder, dice);
    beacon::add_beacon_pages(builder, dice);
}

/// Adds responses about one account; subject 0 is a well-known token.
fn add_account(
    builder: &mut SampleResponsesBuilder,
    world: &SampleAccounts,
    dice: &mut SeededGenerator,
    subject: usize,
) {
    let contract = match subject {
        0 => super::world::decode_fixed_digits("dac17f958d2ee523a2206206994597c13d831ec7"),
        _ => world.random_contract(dice),
    };
    let address = hex_prefixed(&contract.0);
    let latest = [format!("[\"{address}\",\"latest\"]")];
    builder.add_sample_result("eth_getBalance", &latest, &Quantity(dice.random_amount()));
    builder.add_sample_result(
        "eth_getTransactionCount",
        &latest,
        &Quantity(dice.number_below(5000)),
    );
    // Contracts of 1.5 to 24 KB, the limit.
    let size = [11_000, 24_500, 1_500, 5_000][subject % 4];
    builder.add_sample_result(
        "eth_getCode",
        &latest,
        &HexSerializedBytes(random_code(dice, size)),
    );
    let slot = [format!("[\"{address}\",\"0x0\",\"latest\"]")];
    builder.add_sample_result("eth_getStorageAt", &slot, &Word::from(dice.random_amount()));
    let call = [format!(
        "[{{\"to\":\"{address}\",\"data\":\"0x18160ddd\"}},\"latest\"]"
    )];
    builder.add_sample_result("eth_call", &call, &Word::from(dice.random_amount()));
    let proof = [format!("[\"{address}\",[],\"latest\"]")];
    builder.add_sample_result("eth_getProof", &proof, &account_proof(dice, contract));
}

/// Returns the fee history of the last `blocks` blocks.
fn fee_history(dice: &mut SeededGenerator, blocks: u64) -> FeeHistory {
    let mut base_fee = 9_000_000_000;
    let base_fees = (0..=blocks).map(|_| {
        base_fee = base_fee * dice.number_between(900, 1110) / 1000;
        Quantity(base_fee)
    });
    FeeHistory {
        oldest_block: Quantity(HEAD_NUMBER - blocks + 1),
        base_fee_per_gas: base_fees.collect(),
        reward: (0..blocks)
            .map(|_| [dice.number_below(100_000_000), 1_000_000_000, 2_000_000_000].map(Quantity))
            .collect(),
        gas_used_ratio: (0..blocks)
            .map(|_| dice.number_below(30_000_000) as f64 / 30_000_000.0)
            .collect(),
    }
}

/// Generates seven full branches of 16 hashes, a short one, and the leaf.
fn account_proof(dice: &mut SeededGenerator, address: Address) -> AccountProof {
    let branch = |dice: &mut SeededGenerator, children: usize| {
        let mut node = vec![0xf9, 0x02, 0x11];
        for _ in 0..children {
            node.push(0xa0);
            node.extend(dice.random_bytes(32));
        }
        node.resize(node.len() + 17 - children, 0x80);
        HexSerializedBytes(node)
    };
    let mut account_proof: Vec<HexSerializedBytes> = (0..7).map(|_| branch(dice, 16)).collect();
    account_proof.push(branch(dice, 4));
    account_proof.push(HexSerializedBytes(dice.random_bytes(110)));
    AccountProof {
        address,
        account_proof,
        balance: Quantity(dice.random_amount()),
        code_hash: dice.random_fixed_bytes(),
        nonce: Quantity(1),
        storage_hash: dice.random_fixed_bytes(),
        storage_proof: [],
    }
}

/// Adds responses of the Beacon API.
fn add_small_beacon_pages(builder: &mut SampleResponsesBuilder, dice: &mut SeededGenerator) {
    let mut add = |path: &str, page: serde_json::Value| {
        builder
            .answers
            .insert_replay_page(path.to_owned(), &page.to_string());
    };
    add(
        "/eth/v1/node/version",
        json!({"data": {"version": "Lighthouse/v7.0.1/x86_64-linux"}}),
    );
    let root = |dice: &mut SeededGenerator| hex_prefixed(&dice.random_fixed_bytes::<32>().0);
    add(
        "/eth/v1/beacon/states/head/finality_checkpoints",
        json!({"execution_optimistic": false, "finalized": false, "data": {
            "previous_justified": {"epoch": "351000", "root": root(dice)},
            "current_justified": {"epoch": "351001", "root": root(dice)},
            "finalized": {"epoch": "351000", "root": root(dice)},
        }}),
    );
    let validators: Vec<_> = (0..VALIDATORS)
        .map(|index| validator_json(dice, index))
        .collect();
    add(
        "/eth/v1/beacon/states/head/validators",
        json!({"execution_optimistic": false, "finalized": false, "data": validators}),
    );
}

fn validator_json(dice: &mut SeededGenerator, index: u64) -> serde_json::Value {
    let FixedBytes(key) = dice.random_fixed_bytes::<48>();
    let credentials = [&[1][..], &[0; 11], &dice.random_fixed_bytes::<20>().0].concat();
    let balance = dice.number_between(32_000_000_000, 32_060_000_000);
    json!({
        "index": index.to_string(),
        "balance": balance.to_string(),
        "status": "active_ongoing",
        "validator": {
            "pubkey": hex_prefixed(&key),
            "withdrawal_credentials": hex_prefixed(&credentials),
            "effective_balance": "32000000000",
            "slashed": false,
            "activation_eligibility_epoch": "0",
            "activation_epoch": "0",
            "exit_epoch": "18446744073709551615",
            "withdrawable_epoch": "18446744073709551615",
        },
    })
}
