//! Pages of the Beacon API about the chain. A slot has one block or none; roots derive from the
//! block's hash and are not the hash tree roots of the containers.

use serde_json::{json, Value};

use crate::sample::values::{hex_prefixed, Address, FixedBytes, Word};

use super::contents::SECONDS_PER_SLOT;
use super::digest::{derive_generator, derive_hash};
use super::model::{self, BlockIndex, FinalityNumbers, SimulatedBlock, EPOCH_SLOTS};
use super::params;
use super::view::{ResolvedBlock, SimulatedNodeView};

/// Fork of every block.
pub const FORK: &str = "deneb";

/// A response of the simulated Beacon API: status and JSON.
#[derive(Debug, PartialEq)]
pub struct SimulatedBeaconPage {
    pub status: u16,
    pub body: Value,
    /// Whether `Eth-Consensus-Version` names the fork.
    pub versioned: bool,
}

impl SimulatedBeaconPage {
    fn ok_page(body: Value) -> Self {
        Self {
            status: 200,
            body,
            versioned: false,
        }
    }

    fn error_page(status: u16, message: &str) -> Self {
        Self {
            status,
            body: json!({"code": status, "message": message}),
            versioned: false,
        }
    }
}

/// Returns the response to a GET of a path, or `None` for an unknown path.
pub fn find_beacon_page(view: &SimulatedNodeView<'_>, path: &str) -> Option<SimulatedBeaconPage> {
    let parts: Vec<&str> = path.strip_prefix("/eth/")?.split('/').collect();
    let found =
        match parts[..] {
            ["v1", "beacon", "genesis"] => Ok(SimulatedBeaconPage::ok_page(genesis_json(view))),
            ["v1", "config", "spec"] => Ok(SimulatedBeaconPage::ok_page(spec_json(view))),
            ["v1", "node", "version"] => Ok(SimulatedBeaconPage::ok_page(version_json())),
            ["v1", "node", "syncing"] => Ok(SimulatedBeaconPage::ok_page(syncing_json(view))),
            ["v1", "beacon", "headers"] => find_block_by_id(view, "head").map(|at| {
                let mut page = header_json(view, at);
                page["data"] = json!([page["data"]]);
                SimulatedBeaconPage::ok_page(page)
            }),
            ["v1", "beacon", "headers", id] => find_block_by_id(view, id)
                .map(|at| SimulatedBeaconPage::ok_page(header_json(view, at))),
            ["v1", "beacon", "blocks", id, "root"] => find_block_by_id(view, id).map(|at| {
                let data = json!({"root": view.chain.block_by_index(at).root});
                SimulatedBeaconPage::ok_page(envelope_json(view, at, data))
            }),
            ["v2", "beacon", "blocks", id] => find_block_by_id(view, id).map(|at| {
                let mut body = envelope_json(view, at, signed_block(view, at));
                body["version"] = json!(FORK);
                SimulatedBeaconPage {
                    versioned: true,
                    ..SimulatedBeaconPage::ok_page(body)
                }
            }),
            ["v1", "beacon", "states", id, "finality_checkpoints"] => find_block_by_id(view, id)
                .map(|at| {
                    SimulatedBeaconPage::ok_page(envelope_json(
                        view,
                        at,
                        checkpoints_after_block(view, at),
                    ))
                }),
            _ => return None,
        };
    Some(found.unwrap_or_else(|page| page))
}

/// Returns the block to which the id of a block or a state in a path refers.
fn find_block_by_id(
    view: &SimulatedNodeView<'_>,
    id: &str,
) -> Result<BlockIndex, SimulatedBeaconPage> {
    let not_found = || SimulatedBeaconPage::error_page(404, "NOT_FOUND: beacon block not found");
    let found = match id {
        "head" => Some(view.head_block),
        "genesis" => view.canonical_at_number(0),
        "finalized" => view
            .finality_for_tag
            .and_then(|finality| view.canonical_at_number(finality.finalized)),
        "justified" => view
            .finality_for_tag
            .and_then(|finality| view.canonical_at_number(finality.safe)),
        id if id.starts_with("0x") => {
            let root = params::parse_fixed_bytes(&json!(id)).map_err(|_| invalid_id_page(id))?;
            // The root of a block and the root of its state are accepted for both.
            view.by_root(&root)
        }
        id => {
            let slot: u64 = id.parse().map_err(|_| invalid_id_page(id))?;
            view.chain
                .block_at_slot(slot)
                .filter(|at| view.is_canonical(*at))
        }
    };
    found.ok_or_else(not_found)
}

fn invalid_id_page(id: &str) -> SimulatedBeaconPage {
    SimulatedBeaconPage::error_page(400, &format!("BAD_REQUEST: invalid block ID: {id}"))
}

fn genesis_json(view: &SimulatedNodeView<'_>) -> Value {
    json!({"data": {
        "genesis_time": view.chain.genesis.time.to_string(),
        "genesis_validators_root": derive_hash("validators", &[&genesis_hash(view).0]),
        "genesis_fork_version": "0x00000000",
    }})
}

fn genesis_hash(view: &SimulatedNodeView<'_>) -> Word {
    view.canonical_at_number(0)
        .map_or_else(Word::default, |at| view.chain.block_by_index(at).hash)
}

fn spec_json(view: &SimulatedNodeView<'_>) -> Value {
    let chain_id = view.chain.genesis.chain_id.to_string();
    json!({"data": {
        "CONFIG_NAME": "replay",
        "PRESET_BASE": "mainnet",
        "SECONDS_PER_SLOT": SECONDS_PER_SLOT.to_string(),
        "SLOTS_PER_EPOCH": EPOCH_SLOTS.to_string(),
        "DEPOSIT_CHAIN_ID": chain_id,
        "DEPOSIT_NETWORK_ID": chain_id,
        "GENESIS_FORK_VERSION": "0x00000000",
        "ALTAIR_FORK_EPOCH": "0",
        "BELLATRIX_FORK_EPOCH": "0",
        "CAPELLA_FORK_EPOCH": "0",
        "DENEB_FORK_EPOCH": "0",
        "ELECTRA_FORK_EPOCH": u64::MAX.to_string(),
    }})
}

fn version_json() -> Value {
    let version = env!("CARGO_PKG_VERSION");
    json!({"data": {"version": format!("replay-node/v{version}/chain")}})
}

fn syncing_json(view: &SimulatedNodeView<'_>) -> Value {
    let distance = u64::from(view.syncing);
    json!({"data": {
        "head_slot": view.head_block().slot.to_string(),
        "sync_distance": distance.to_string(),
        "is_syncing": view.syncing,
        "is_optimistic": view.syncing,
        "el_offline": false,
    }})
}

/// Returns `data` in the envelope of the Beacon API, with the flags of the block.
fn envelope_json(view: &SimulatedNodeView<'_>, at: BlockIndex, data: Value) -> Value {
    json!({
        "execution_optimistic": view.syncing,
        "finalized": is_final(view, at),
        "data": data,
    })
}

/// Whether the block is canonical, and not above the finalized number that the node knows.
fn is_final(view: &SimulatedNodeView<'_>, at: BlockIndex) -> bool {
    let number = view.chain.block_by_index(at).number;
    let finality = view.finality_for_tag;
    finality.is_some_and(|finality| number <= finality.finalized) && view.is_canonical(at)
}

fn header_json(view: &SimulatedNodeView<'_>, at: BlockIndex) -> Value {
    let block = view.chain.block_by_index(at);
    let mut message = beacon_block_members(view, block);
    message["body_root"] = json!(derive_hash("body", &[&block.hash.0]));
    let data = json!({
        "root": block.root,
        "canonical": view.is_canonical(at),
        "header": {"message": message, "signature": block_signature(block)},
    });
    envelope_json(view, at, data)
}

/// Returns the members that a block and its header share.
fn beacon_block_members(view: &SimulatedNodeView<'_>, block: &SimulatedBlock) -> Value {
    let parent = block
        .parent
        .map(|parent| view.chain.block_by_index(parent).root);
    let proposer = derive_generator("proposer", &[&block.hash.0]).number_below(1_000_000);
    json!({
        "slot": block.slot.to_string(),
        "proposer_index": proposer.to_string(),
        "parent_root": parent.unwrap_or_default(),
        "state_root": model::beacon_state_root(&block.hash),
    })
}

/// Returns the signature of a block, which is derived from its hash and verifies nowhere.
fn block_signature(block: &SimulatedBlock) -> FixedBytes<96> {
    derive_generator("signature", &[&block.hash.0]).random_fixed_bytes()
}

/// Returns the checkpoints of the state after a block. A checkpoint refers to the finalized
/// block, even one in the middle of an epoch.
fn checkpoints_after_block(view: &SimulatedNodeView<'_>, at: BlockIndex) -> Value {
    let number = view.chain.block_by_index(at).number;
    let known = match view.finality_for_tag {
        // A state does not contain later finality.
        Some(_) if number < view.head_block().number => view.chain.finality_at_head(number),
        Some(finality) => finality,
        None => FinalityNumbers::default(),
    };
    let justified = checkpoint_json(view, known.safe);
    json!({
        "previous_justified": checkpoint_json(view, known.finalized),
        "current_justified": justified,
        "finalized": checkpoint_json(view, known.finalized),
    })
}

/// Builds a checkpoint; before any block is finalized, it is epoch 0 with a root of zeros.
fn checkpoint_json(view: &SimulatedNodeView<'_>, number: u64) -> Value {
    let block = Some(number)
        .filter(|number| *number > 0)
        .and_then(|number| view.canonical_at_number(number))
        .map(|at| view.chain.block_by_index(at));
    json!({
        "epoch": block.map_or(0, |block| block.slot / EPOCH_SLOTS).to_string(),
        "root": block.map_or_else(Word::default, |block| block.root),
    })
}

fn signed_block(view: &SimulatedNodeView<'_>, at: BlockIndex) -> Value {
    let block = view.chain.block_by_index(at);
    let mut message = beacon_block_members(view, block);
    let mut dice = derive_generator("beacon body", &[&block.hash.0]);
    message["body"] = json!({
        "randao_reveal": dice.random_fixed_bytes::<96>(),
        "eth1_data": {
            "deposit_root": dice.random_fixed_bytes::<32>(),
            "deposit_count": dice.number_below(1 << 20).to_string(),
            "block_hash": dice.random_fixed_bytes::<32>(),
        },
        "graffiti": dice.random_fixed_bytes::<32>(),
        "proposer_slashings": [],
        "attester_slashings": [],
        "attestations": [],
        "deposits": [],
        "voluntary_exits": [],
        "sync_aggregate": {
            "sync_committee_bits": dice.random_fixed_bytes::<64>(),
            "sync_committee_signature": dice.random_fixed_bytes::<96>(),
        },
        "execution_payload": payload_json(view, at),
        "bls_to_execution_changes": [],
        "blob_kzg_commitments": [],
    });
    json!({"message": message, "signature": block_signature(block)})
}

fn payload_json(view: &SimulatedNodeView<'_>, at: BlockIndex) -> Value {
    let block = view.generated_block_contents(ResolvedBlock::Block(at));
    let header = &block.header;
    // The sample has no raw transactions: hash and input are used instead.
    let transactions = block.transactions.iter().map(|transaction| {
        let raw = [&[2][..], &transaction.hash.0, &transaction.input.0].concat();
        hex_prefixed(&raw)
    });
    let withdrawals = block.withdrawals.iter().map(|withdrawal| {
        let address: Address = withdrawal.address;
        json!({
            "index": withdrawal.index.0.to_string(),
            "validator_index": withdrawal.validator_index.0.to_string(),
            "address": address,
            "amount": withdrawal.amount.0.to_string(),
        })
    });
    json!({
        "parent_hash": header.parent_hash,
        "fee_recipient": header.miner,
        "state_root": header.state_root,
        "receipts_root": header.receipts_root,
        "logs_bloom": header.logs_bloom,
        "prev_randao": header.mix_hash,
        "block_number": header.number.0.to_string(),
        "gas_limit": header.gas_limit.0.to_string(),
        "gas_used": header.gas_used.0.to_string(),
        "timestamp": header.timestamp.0.to_string(),
        "extra_data": header.extra_data,
        "base_fee_per_gas": header.base_fee_per_gas.0.to_string(),
        "block_hash": header.hash,
        "transactions": transactions.collect::<Vec<_>>(),
        "withdrawals": withdrawals.collect::<Vec<_>>(),
        "blob_gas_used": header.blob_gas_used.0.to_string(),
        "excess_blob_gas": header.excess_blob_gas.0.to_string(),
    })
}
