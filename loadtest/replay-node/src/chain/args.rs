//! Options of the simulated chain: initial state, growth, unavailability.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Maximum number of the first head.
const MAX_FIRST_HEAD: u64 = 100_000;
/// Maximum number of transactions of a block.
const MAX_BLOCK_TRANSACTIONS: u64 = 10_000;

/// The command-line options of the simulated chain: its first head, id and genesis, how it grows,
/// and its outages.
#[derive(Clone, Debug, clap::Args)]
pub struct SimulatedChainArguments {
    /// Simulate a chain instead of serving recordings
    #[arg(long, conflicts_with_all = ["folders", "list", "lenient"])]
    pub chain: bool,

    /// Number of the first head
    #[arg(long, value_name = "N", default_value_t = 200, requires = "chain", value_parser = clap::value_parser!(u64).range(..=MAX_FIRST_HEAD))]
    pub chain_length: u64,

    /// The chain's id
    #[arg(long, value_name = "ID", default_value_t = 1, requires = "chain", value_parser = clap::value_parser!(u64).range(1..=1 << 52))]
    pub chain_id: u64,

    /// Start of slot 0, in Unix seconds; the time stamps of slots are 12 s apart, whatever
    /// --chain-slot-ms is
    #[arg(long, value_name = "SECONDS", default_value_t = 1_606_824_023, requires = "chain", value_parser = clap::value_parser!(u64).range(..=1 << 40))]
    pub chain_genesis_time: u64,

    /// Maximum number of transactions of a block
    #[arg(long, value_name = "N", default_value_t = 20, requires = "chain", value_parser = clap::value_parser!(u64).range(1..=MAX_BLOCK_TRANSACTIONS))]
    pub chain_transactions: u64,

    /// Duration of a slot in milliseconds; without it, only commands add blocks
    #[arg(long, value_name = "MS", requires = "chain", value_parser = clap::value_parser!(u64).range(1..=600_000))]
    pub chain_slot_ms: Option<u64>,

    /// Probability that a slot contains a reorg
    #[arg(long, value_name = "P", default_value_t = 0.0, requires = "chain_slot_ms", value_parser = parse_probability)]
    pub chain_reorgs: f64,

    /// Probability that a slot is missed
    #[arg(long, value_name = "P", default_value_t = 0.0, requires = "chain_slot_ms", value_parser = parse_probability)]
    pub chain_missed: f64,
}

fn parse_probability(text: &str) -> Result<f64, String> {
    let number = text.parse().ok();
    number
        .filter(|number| (0.0..=1.0).contains(number))
        .ok_or_else(|| "expected a probability from 0 to 1".to_owned())
}

/// The way in which the simulated node is unavailable, if it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OutageMode {
    #[default]
    No,
    /// Every request receives a 503.
    Unavailable,
    /// Every connection is closed when it sends a request.
    Closed,
}

impl Serialize for OutageMode {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self {
            OutageMode::No => to.serialize_bool(false),
            OutageMode::Unavailable => to.serialize_bool(true),
            OutageMode::Closed => to.serialize_str("close"),
        }
    }
}

impl<'de> Deserialize<'de> for OutageMode {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum OutageArgument {
            Flag(bool),
            Name(String),
        }
        match OutageArgument::deserialize(from)? {
            OutageArgument::Flag(false) => Ok(OutageMode::No),
            OutageArgument::Flag(true) => Ok(OutageMode::Unavailable),
            OutageArgument::Name(name) if name == "close" => Ok(OutageMode::Closed),
            OutageArgument::Name(_) => {
                Err(serde::de::Error::custom("expected true, false or close"))
            }
        }
    }
}
