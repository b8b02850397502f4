//! `/chain`: commands by which tests change the chain and the behaviour of its node.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Deserialize;
use serde_json::{json, Value};

use crate::sample::values::Word;

use super::contents::ExecutionBlockGenerator;
use super::model::{
    BlockIndex, SimulatedChain, SimulatedChainChangeError, SimulatedChainParameters,
};
use super::params;
use super::{OutageMode, SimulatedNodeState};

/// Maximum number of blocks or missed slots that one command adds.
const MAX_ADDED_BLOCKS: u64 = 100_000;
const MAX_HOLD_MS: u64 = 600_000;

/// Parses one command, or an array of commands.
pub fn parse_chain_commands(body: &[u8]) -> Result<Vec<SimulatedChainCommand>, serde_json::Error> {
    match serde_json::from_slice(body)? {
        commands @ Value::Array(_) => serde_json::from_value(commands),
        command => Ok(vec![serde_json::from_value(command)?]),
    }
}

/// A command of a test that changes the simulated chain or the behaviour of its node.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SimulatedChainCommand {
    /// Adds blocks on top of the head.
    Extend(u64),
    /// Replaces the last `depth` blocks by `length` others.
    Reorg { depth: u64, length: u64 },
    /// Removes this number of blocks from the head.
    Rollback(u64),
    /// Makes the block with this hash the head.
    Adopt(String),
    /// Lets slots pass without a block.
    Miss(u64),
    /// Finalizes a block; without a number, the one 32 below the head.
    Finalize(Option<u64>),
    /// Moves finality back to a block.
    Unfinalize(u64),
    /// Replaces the chain by another one.
    Replace {
        seed: u64,
        chain_id: Option<u64>,
        length: Option<u64>,
    },
    /// Sets whether the chain stops growing by itself.
    Stall(bool),
    /// Sets whether the node reports that it is syncing.
    Syncing(bool),
    /// Sets whether safe and finalized blocks exist.
    Finality(bool),
    /// Sets whether, and how, the node is unavailable.
    Down(OutageMode),
    /// Sets the number of blocks by which the node lags.
    Lag(u64),
    /// Delays the responses of a method after they are computed; 0 ends the delay and sends the
    /// delayed ones. `GET` refers to pages.
    Hold { method: String, ms: u64 },
}

/// The reason why a command is refused.
#[derive(Debug, thiserror::Error)]
pub enum SimulatedChainCommandError {
    #[error("{0}")]
    Chain(#[from] SimulatedChainChangeError),
    #[error("{requested} exceeds the maximum of {most}")]
    TooMuch { requested: u64, most: u64 },
    #[error("{0:?} is not a hash: expected 0x and 64 hexadecimal digits")]
    NoHash(String),
}

/// Returns `requested` unless it exceeds `most`.
fn check_requested_limit(most: u64, requested: u64) -> Result<u64, SimulatedChainCommandError> {
    match requested <= most {
        true => Ok(requested),
        false => Err(SimulatedChainCommandError::TooMuch { requested, most }),
    }
}

impl SimulatedChainCommand {
    /// Executes the command; after an error, the state is unchanged.
    pub fn run_chain_command(
        self,
        state: &mut SimulatedNodeState,
    ) -> Result<(), SimulatedChainCommandError> {
        let chain = &mut state.chain;
        match self {
            SimulatedChainCommand::Extend(blocks) => {
                chain.add_blocks(check_requested_limit(MAX_ADDED_BLOCKS, blocks)?);
            }
            SimulatedChainCommand::Reorg { depth, length } => {
                chain.reorg_blocks(depth, check_requested_limit(MAX_ADDED_BLOCKS, length)?)?;
            }
            SimulatedChainCommand::Rollback(depth) => chain.rollback_blocks(depth)?,
            SimulatedChainCommand::Adopt(hash) => {
                let read = params::parse_fixed_bytes(&Value::from(hash.as_str()));
                let known: Word = read.map_err(|_| SimulatedChainCommandError::NoHash(hash))?;
                chain.adopt_existing_head(&known)?;
            }
            SimulatedChainCommand::Miss(slots) => {
                chain.miss_slots(check_requested_limit(MAX_ADDED_BLOCKS, slots)?);
            }
            SimulatedChainCommand::Finalize(number) => chain.finalize_block(number)?,
            SimulatedChainCommand::Unfinalize(number) => chain.move_finality_back(number)?,
            SimulatedChainCommand::Replace {
                seed,
                chain_id,
                length,
            } => {
                let genesis = SimulatedChainParameters {
                    seed,
                    chain_id: chain_id.unwrap_or(chain.genesis.chain_id),
                    length: check_requested_limit(
                        MAX_ADDED_BLOCKS,
                        length.unwrap_or(chain.head_number()),
                    )?,
                    ..chain.genesis
                };
                state.contents = ExecutionBlockGenerator::new(&genesis);
                state.chain = SimulatedChain::new(genesis);
            }
            SimulatedChainCommand::Stall(stalled) => state.stalled = stalled,
            SimulatedChainCommand::Syncing(syncing) => state.syncing = syncing,
            SimulatedChainCommand::Finality(finality) => state.finality = finality,
            SimulatedChainCommand::Down(down) => state.down = down,
            SimulatedChainCommand::Lag(blocks) => state.lag = blocks,
            SimulatedChainCommand::Hold { method, ms: 0 } => {
                state.delays.remove(&method);
            }
            SimulatedChainCommand::Hold { method, ms } => {
                let time = Duration::from_millis(check_requested_limit(MAX_HOLD_MS, ms)?);
                let hold = state.delays.entry(method).or_default();
                hold.0 = time;
            }
        }
        Ok(())
    }
}

/// Returns the state of the chain for `GET /chain`, whether or not the node lags.
pub fn chain_report(state: &SimulatedNodeState) -> Value {
    let chain = &state.chain;
    let holds = state.delays.iter();
    let holds: BTreeMap<_, _> = holds
        .map(|(method, (time, _))| (method, time.as_millis() as u64))
        .collect();
    let block = |index: BlockIndex| {
        let block = chain.block_by_index(index);
        json!({
            "number": block.number,
            "hash": block.hash,
            "slot": block.slot,
            "root": block.root,
        })
    };
    let at = |number: u64| {
        let there = chain.canonical_at_number(number).filter(|_| state.finality);
        there.map_or(Value::Null, block)
    };
    json!({
        "seed": chain.genesis.seed,
        "chain_id": chain.genesis.chain_id,
        "slot": chain.simulated_current_slot(),
        "head": block(chain.head_index()),
        "safe": at(chain.finality_numbers().safe),
        "finalized": at(chain.finality_numbers().finalized),
        "served_head": block(state.node_view().head_block),
        "blocks": chain.block_count(),
        "waiting": chain.pool_transactions().len(),
        "stall": state.stalled,
        "syncing": state.syncing,
        "finality": state.finality,
        "down": state.down,
        "lag": state.lag,
        "hold": holds,
    })
}
