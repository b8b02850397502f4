//! `/chain`: commands by which tests change the chain and the behaviour of its node.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Deserialize;
use serde_json::{json, Value};

use crate::sample::values::Word;

use super::contents::Contents;
use super::model::{Chain, ChainError, Genesis, Index};
use super::params;
use super::{OutageMode, State};

/// Maximum number of blocks or missed slots that one command adds.
const MOST_BLOCKS: u64 = 100_000;
const LONGEST_HOLD_MS: u64 = 600_000;

/// Parses one command, or an array of commands.
pub fn read(body: &[u8]) -> Result<Vec<Command>, serde_json::Error> {
    match serde_json::from_slice(body)? {
        commands @ Value::Array(_) => serde_json::from_value(commands),
        command => Ok(vec![serde_json::from_value(command)?]),
    }
}

/// A command that changes the chain or the behaviour of the node.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Command {
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

/// Reason why a command is refused.
#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    #[error("{0}")]
    Chain(#[from] ChainError),
    #[error("{requested} is more than {most}")]
    TooMuch { requested: u64, most: u64 },
    #[error("{0:?} is no hash")]
    NoHash(String),
}

fn up_to(most: u64, requested: u64) -> Result<u64, CommandError> {
    match requested <= most {
        true => Ok(requested),
        false => Err(CommandError::TooMuch { requested, most }),
    }
}

impl Command {
    /// Executes the command; after an error, the state is unchanged.
    pub fn run(self, state: &mut State) -> Result<(), CommandError> {
        let chain = &mut state.chain;
        match self {
            Command::Extend(blocks) => chain.extend(up_to(MOST_BLOCKS, blocks)?),
            Command::Reorg { depth, length } => {
                chain.reorg(depth, up_to(MOST_BLOCKS, length)?)?;
            }
            Command::Rollback(depth) => chain.rollback(depth)?,
            Command::Adopt(hash) => {
                let read = params::fixed(&Value::from(hash.as_str()));
                let known: Word = read.map_err(|_| CommandError::NoHash(hash))?;
                chain.adopt(&known)?;
            }
            Command::Miss(slots) => chain.miss(up_to(MOST_BLOCKS, slots)?),
            Command::Finalize(number) => chain.finalize(number)?,
            Command::Unfinalize(number) => chain.unfinalize(number)?,
            Command::Replace {
                seed,
                chain_id,
                length,
            } => {
                let genesis = Genesis {
                    seed,
                    chain_id: chain_id.unwrap_or(chain.genesis.chain_id),
                    length: up_to(MOST_BLOCKS, length.unwrap_or(chain.head_number()))?,
                    ..chain.genesis
                };
                state.contents = Contents::new(&genesis);
                state.chain = Chain::new(genesis);
            }
            Command::Stall(stalled) => state.stalled = stalled,
            Command::Syncing(syncing) => state.syncing = syncing,
            Command::Finality(finality) => state.finality = finality,
            Command::Down(down) => state.down = down,
            Command::Lag(blocks) => state.lag = blocks,
            Command::Hold { method, ms: 0 } => {
                state.delays.remove(&method);
            }
            Command::Hold { method, ms } => {
                let time = Duration::from_millis(up_to(LONGEST_HOLD_MS, ms)?);
                let hold = state.delays.entry(method).or_default();
                hold.0 = time;
            }
        }
        Ok(())
    }
}

/// Returns the state of the chain as `/chain` shows it, whether or not the node lags.
pub fn shown(state: &State) -> Value {
    let chain = &state.chain;
    let holds = state.delays.iter();
    let holds: BTreeMap<_, _> = holds
        .map(|(method, (time, _))| (method, time.as_millis() as u64))
        .collect();
    let block = |index: Index| {
        let block = chain.block(index);
        json!({
            "number": block.number,
            "hash": block.hash,
            "slot": block.slot,
            "root": block.root,
        })
    };
    let at = |number: u64| {
        let there = chain.canonical(number).filter(|_| state.finality);
        there.map_or(Value::Null, block)
    };
    json!({
        "seed": chain.genesis.seed,
        "chain_id": chain.genesis.chain_id,
        "slot": chain.slot(),
        "head": block(chain.head()),
        "safe": at(chain.finality().safe),
        "finalized": at(chain.finality().finalized),
        "served_head": block(state.view().head),
        "blocks": chain.blocks(),
        "waiting": chain.pool().len(),
        "stall": state.stalled,
        "syncing": state.syncing,
        "finality": state.finality,
        "down": state.down,
        "lag": state.lag,
        "hold": holds,
    })
}
