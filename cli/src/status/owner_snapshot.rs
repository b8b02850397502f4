//! The state of an owner, from its status (docs/owner-protocol.md).

use serde_json::Value;

use super::json_members::{parse_counts, rows_of, text_of};

/// The state of an owner at one time. Texts are printable.
#[derive(Clone, Debug, Default)]
pub struct OwnerSnapshot {
    /// Number of the last purge.
    pub generation: u64,
    /// Connected processes.
    pub processes: u64,
    /// Keys that a process fetches at present.
    pub leases: u64,
    /// Entries in memory.
    pub memory_entries: u64,
    /// Bytes of these entries.
    pub memory_bytes: u64,
    /// Limit of `memory_bytes`.
    pub memory_capacity: u64,
    /// Entries that were evicted from memory.
    pub evicted: u64,
    /// Lookups that found an entry in memory, found one on disk, or found none.
    pub lookups: [u64; 3],
    /// Entries that were written to the disk, and those that were not.
    pub stores: [u64; 2],
    /// Approximate number of entries on disk.
    pub disk_entries: u64,
    /// Bytes on disk.
    pub disk_bytes: u64,
    /// The reason why nothing is written to the disk at present.
    pub store_off: Option<String>,
    /// Followed chains.
    pub chains: Vec<ChainRow>,
    /// The fleet tier.
    pub fleet: Option<FleetSnapshot>,
}

/// The state of a followed chain.
#[derive(Clone, Debug, Default)]
pub struct ChainRow {
    /// The operator's name.
    pub name: String,
    /// `following`, `syncing` and the like.
    pub state: String,
    /// Number or slot of the newest block.
    pub head: Option<u64>,
    /// Seconds since the last new head.
    pub head_age: Option<f64>,
    /// The last final block.
    pub last_final: Option<u64>,
    /// Reorganisations since the start.
    pub reorgs: u64,
    /// The error of the last poll.
    pub error: Option<String>,
}

/// The state of the fleet tier.
#[derive(Clone, Debug, Default)]
pub struct FleetSnapshot {
    /// The server.
    pub endpoint: String,
    /// Whether the fleet is in use.
    pub is_up: bool,
    /// State of the circuit breakers of lookups and stores.
    pub breakers: [String; 2],
    /// Lookups by outcome.
    pub lookups: Vec<(String, u64)>,
    /// Seconds since the purge stream was read.
    pub stream_age: Option<f64>,
    /// Owners that use the fleet.
    pub owners: Option<u64>,
    /// Purges that are not published yet.
    pub pending: u64,
}

/// Parses the status of an owner.
pub fn parse_owner(json: &Value) -> OwnerSnapshot {
    let number = |pointer| json.pointer(pointer).and_then(Value::as_u64).unwrap_or(0);
    OwnerSnapshot {
        generation: number("/generation"),
        processes: json["processes"].as_array().map_or(0, |it| it.len() as u64),
        leases: number("/leases"),
        memory_entries: number("/memory/entries"),
        memory_bytes: number("/memory/bytes"),
        memory_capacity: number("/memory/capacity"),
        evicted: number("/memory/evicted"),
        lookups: ["/lookups/memory", "/lookups/store", "/lookups/missed"].map(number),
        stores: ["/stores/done", "/stores/failed"].map(number),
        disk_entries: number("/store/entries"),
        disk_bytes: number("/store/bytes"),
        store_off: text_of(&json["store"]["off"]),
        chains: rows_of(&json["chains"]).map(parse_chain).collect(),
        fleet: json["fleet"]
            .is_object()
            .then(|| parse_fleet(&json["fleet"])),
    }
}

fn parse_chain(chain: &Value) -> ChainRow {
    ChainRow {
        name: text_of(&chain["name"]).unwrap_or_default(),
        state: text_of(&chain["state"]).unwrap_or_default(),
        head: chain["head"].as_u64(),
        head_age: chain["head_age"].as_f64(),
        last_final: chain["final"].as_u64(),
        reorgs: chain["reorgs"].as_u64().unwrap_or(0),
        error: text_of(&chain["error"]),
    }
}

fn parse_fleet(fleet: &Value) -> FleetSnapshot {
    let stream = &fleet["stream"];
    let breaker = |name| text_of(&fleet["breakers"][name]).unwrap_or_default();
    FleetSnapshot {
        endpoint: text_of(&fleet["endpoint"]).unwrap_or_default(),
        is_up: fleet["up"].as_bool().unwrap_or(false),
        breakers: [breaker("lookups"), breaker("stores")],
        lookups: parse_counts(&fleet["lookups"]),
        stream_age: stream["age_seconds"].as_f64(),
        owners: stream["owners"].as_u64(),
        pending: stream["pending"].as_u64().unwrap_or(0),
    }
}
