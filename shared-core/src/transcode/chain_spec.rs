//! Specification of a node's chain (`/eth/v1/config/spec`, `/eth/v1/beacon/genesis`): the preset,
//! and the fork digests of light client updates (consensus-specs, `compute_fork_digest`).

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::ssz::{hash_tree_root, Fork, Preset, Schema};

/// The four bytes that identify a fork of one chain in light client updates (consensus-specs,
/// `ForkDigest`).
pub type ForkDigest = [u8; 4];

/// Maximum number of entries of the blob schedule. Mainnet has three; a test network may have more.
const MAX_BLOB_LIMITS: usize = 64;

/// Epoch of a fork that is not scheduled.
const FAR_FUTURE_EPOCH: u64 = u64::MAX;

/// The facts about a node's chain that a conversion needs: its preset and its fork digests.
#[derive(Clone, Debug)]
pub struct PresetAndForkDigests {
    /// The preset of the chain.
    pub preset: Preset,
    /// The fork digests, or `None` if they are not known.
    pub digests: Option<Arc<ForkDigests>>,
}

/// The facts that are read from a node's response to `/eth/v1/config/spec`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeChainSpec {
    /// The preset of the chain.
    pub preset: Preset,
    /// The fork schedule, or `None` if the response lacks a value that the schedule requires.
    pub forks: Option<ForkSchedule>,
}

/// The epochs at which the forks of a chain are activated, including future ones, and its blob
/// limits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForkSchedule {
    slots_per_epoch: u64,
    /// First epoch, fork and fork version, in ascending order of epochs.
    scheduled: Vec<(u64, Fork, [u8; 4])>,
    /// First epoch and maximum number of blobs per block, in ascending order of epochs after the
    /// first entry.
    blobs: Vec<(u64, u64)>,
}

/// The fork digests of a chain, each with the epoch from which on it is valid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForkDigests {
    slots_per_epoch: u64,
    /// First epoch, fork and digest, in ascending order of epochs.
    since: Vec<(u64, Fork, ForkDigest)>,
}

impl NodeChainSpec {
    /// Reads the body of a node's response to `/eth/v1/config/spec`. Returns `None` if it is not a
    /// spec, or if its constants contradict its preset.
    pub fn parse_spec_body(body: &[u8]) -> Option<Self> {
        let body: Value = serde_json::from_slice(body).ok()?;
        let spec = body.get("data")?;
        let preset: Preset = spec.get("PRESET_BASE")?.as_str()?.parse().ok()?;
        // a chain with other values has a preset of its own, whatever its name
        let (slots, committee) = match preset {
            Preset::Mainnet => (32, 512),
            Preset::Minimal => (8, 32),
            Preset::Gnosis => (16, 512),
        };
        let is = |name, expected| {
            spec.get(name)
                .is_none_or(|it| parse_spec_number(it) == Some(expected))
        };
        let agrees = is("SLOTS_PER_EPOCH", slots) && is("SYNC_COMMITTEE_SIZE", committee);
        agrees.then(|| Self {
            preset,
            forks: ForkSchedule::parse_fork_schedule(spec, slots),
        })
    }
}

/// Reads the genesis validators root from the body of a node's response to
/// `/eth/v1/beacon/genesis`.
pub fn parse_genesis_response_root(body: &[u8]) -> Option<[u8; 32]> {
    let body: Value = serde_json::from_slice(body).ok()?;
    parse_hex_bytes(body.get("data")?.get("genesis_validators_root")?)
}

impl ForkSchedule {
    /// Reads the fork schedule from the `data` of `/eth/v1/config/spec`; `None` if it lacks a value or
    /// one is malformed, the epochs descend, or the blob schedule is too long.
    fn parse_fork_schedule(spec: &Value, slots_per_epoch: u64) -> Option<Self> {
        let mut scheduled: Vec<(u64, Fork, [u8; 4])> = Vec::new();
        for fork in Fork::ALL {
            let name = match fork {
                Fork::Phase0 => "GENESIS".into(),
                _ => fork.name().to_ascii_uppercase(),
            };
            let epoch = match (fork, spec.get(format!("{name}_FORK_EPOCH"))) {
                (Fork::Phase0, _) => 0,
                (_, Some(epoch)) => parse_spec_number(epoch)?,
                // the node does not know this fork
                (_, None) => FAR_FUTURE_EPOCH,
            };
            if epoch == FAR_FUTURE_EPOCH {
                continue;
            }
            if scheduled.last().is_some_and(|(before, ..)| *before > epoch) {
                return None;
            }
            let version = parse_hex_bytes(spec.get(format!("{name}_FORK_VERSION"))?)?;
            scheduled.push((epoch, *fork, version));
        }
        let mut blobs = Vec::new();
        if scheduled.iter().any(|(_, fork, _)| *fork >= Fork::Fulu) {
            let of = |name| spec.get(name).and_then(parse_spec_number);
            // the limit before the first entry of the schedule
            blobs.push((
                of("ELECTRA_FORK_EPOCH")?,
                of("MAX_BLOBS_PER_BLOCK_ELECTRA")?,
            ));
            let schedule = spec.get("BLOB_SCHEDULE")?.as_array()?;
            if schedule.len() > MAX_BLOB_LIMITS {
                return None;
            }
            for entry in schedule {
                let of = |name| entry.get(name).and_then(parse_spec_number);
                blobs.push((of("EPOCH")?, of("MAX_BLOBS_PER_BLOCK")?));
            }
            blobs[1..].sort_unstable();
        }
        Some(Self {
            slots_per_epoch,
            scheduled,
            blobs,
        })
    }

    /// Computes the fork digests of the chain with the genesis validators root `genesis_root`.
    /// `None` if the schedule is not sufficient.
    pub fn compute_digests(&self, genesis_root: &[u8; 32]) -> Option<ForkDigests> {
        let fulu = self
            .scheduled
            .iter()
            .find(|(_, fork, _)| *fork >= Fork::Fulu);
        let fulu = fulu.map_or(FAR_FUTURE_EPOCH, |(epoch, ..)| *epoch);
        let mut epochs: BTreeSet<u64> = self.scheduled.iter().map(|(epoch, ..)| *epoch).collect();
        let blobs = self.blobs.iter().map(|(epoch, _)| *epoch);
        epochs.extend(blobs.filter(|epoch| *epoch >= fulu && *epoch < FAR_FUTURE_EPOCH));
        let mut since = Vec::new();
        for epoch in epochs {
            let mut so_far = self
                .scheduled
                .iter()
                .rev()
                .skip_while(|(at, ..)| *at > epoch);
            let (_, fork, version) = so_far.next()?;
            let limit = (epoch >= fulu)
                .then(|| self.blob_limit_at_epoch(epoch))
                .flatten();
            since.push((epoch, *fork, fork_digest(*version, genesis_root, limit)?));
        }
        Some(ForkDigests {
            slots_per_epoch: self.slots_per_epoch,
            since,
        })
    }

    /// Returns the blob limit of an epoch, after the first epoch in which it is valid
    /// (consensus-specs, `get_blob_parameters`).
    fn blob_limit_at_epoch(&self, epoch: u64) -> Option<(u64, u64)> {
        let (first, schedule) = self.blobs.split_first()?;
        let mut so_far = schedule.iter().rev().skip_while(|(at, _)| *at > epoch);
        Some(*so_far.next().unwrap_or(first))
    }
}

impl ForkDigests {
    /// Returns the fork that is active at a slot, and its digest; `None` before the first known
    /// fork.
    pub fn digest_at_slot(&self, slot: u64) -> Option<(Fork, ForkDigest)> {
        let epoch = slot / self.slots_per_epoch;
        let mut so_far = self.since.iter().rev().skip_while(|(at, ..)| *at > epoch);
        so_far.next().map(|(_, fork, digest)| (*fork, *digest))
    }

    /// Returns the fork that a digest identifies on this chain; `None` if none does.
    pub fn fork_of_digest(&self, digest: ForkDigest) -> Option<Fork> {
        let found = self.since.iter().find(|(.., known)| *known == digest);
        found.map(|(_, fork, _)| *fork)
    }
}

/// Computes a fork digest (consensus-specs, `compute_fork_digest`). From fulu on it includes the
/// blob limit and the limit's first epoch.
fn fork_digest(
    version: [u8; 4],
    genesis_root: &[u8; 32],
    limit: Option<(u64, u64)>,
) -> Option<ForkDigest> {
    let schema = Schema::for_fork(Fork::Phase0, Preset::Mainnet);
    let of_fork = [&version[..], genesis_root].concat();
    let root = hash_tree_root(schema, schema.find_type("ForkData")?, &of_fork).ok()?;
    let mut digest = *root.first_chunk()?;
    if let Some((epoch, most)) = limit {
        let of_limit = [epoch.to_le_bytes(), most.to_le_bytes()].concat();
        let mask = Sha256::digest(of_limit);
        for (byte, mask) in digest.iter_mut().zip(mask) {
            *byte ^= mask;
        }
    }
    Some(digest)
}

/// Reads a number that is a decimal string, as in the Beacon API, or a JSON number, as in the blob
/// schedule of some nodes.
fn parse_spec_number(value: &Value) -> Option<u64> {
    match value {
        Value::String(text) => text.parse().ok(),
        value => value.as_u64(),
    }
}

/// Decodes a member with `0x` and hex digits to exactly `LENGTH` bytes.
fn parse_hex_bytes<const LENGTH: usize>(value: &Value) -> Option<[u8; LENGTH]> {
    let hex = value.as_str()?.strip_prefix("0x")?;
    const_hex::decode_to_array(hex).ok()
}

#[cfg(test)]
mod tests {
    use super::{
        parse_genesis_response_root, parse_spec_number, Fork, ForkDigests, NodeChainSpec, Value,
    };
    use crate::ssz::Preset;
    use serde_json::json;

    const ROOT: &str = "0x4b363db94e286120d76eb905340fdd4e54bfe9f06bf33ff6cf5ad27f511bfe95";

    fn mainnet() -> Value {
        json!({"data": {
            "PRESET_BASE": "mainnet", "CONFIG_NAME": "mainnet",
            "SLOTS_PER_EPOCH": "32", "SYNC_COMMITTEE_SIZE": "512",
            "GENESIS_FORK_VERSION": "0x00000000",
            "ALTAIR_FORK_VERSION": "0x01000000", "ALTAIR_FORK_EPOCH": "74240",
            "BELLATRIX_FORK_VERSION": "0x02000000", "BELLATRIX_FORK_EPOCH": "144896",
            "CAPELLA_FORK_VERSION": "0x03000000", "CAPELLA_FORK_EPOCH": "194048",
            "DENEB_FORK_VERSION": "0x04000000", "DENEB_FORK_EPOCH": "269568",
            "ELECTRA_FORK_VERSION": "0x05000000", "ELECTRA_FORK_EPOCH": "364032",
            "FULU_FORK_VERSION": "0x06000000", "FULU_FORK_EPOCH": "411392",
            "GLOAS_FORK_VERSION": "0x07000000", "GLOAS_FORK_EPOCH": "18446744073709551615",
            "MAX_BLOBS_PER_BLOCK": "6", "MAX_BLOBS_PER_BLOCK_ELECTRA": "9",
            "BLOB_SCHEDULE": [
                {"EPOCH": "419072", "MAX_BLOBS_PER_BLOCK": "21"},
                {"EPOCH": "412672", "MAX_BLOBS_PER_BLOCK": "15"},
            ],
        }})
    }

    fn read(spec: &Value) -> Option<NodeChainSpec> {
        NodeChainSpec::parse_spec_body(spec.to_string().as_bytes())
    }

    fn root() -> [u8; 32] {
        let body = json!({"data": {"genesis_time": "1", "genesis_validators_root": ROOT}});
        parse_genesis_response_root(body.to_string().as_bytes()).unwrap()
    }

    fn digests(spec: &Value) -> Option<ForkDigests> {
        read(spec)?.forks?.compute_digests(&root())
    }

    /// The expected digests are computed by the specification's code (tests/ssz/test_updates.py).
    #[test]
    fn mainnet_digests_equal_those_of_the_specification() {
        let digests = digests(&mainnet()).unwrap();
        for (epoch, fork, digest) in [
            (74_240, Fork::Altair, [0xaf, 0xca, 0xab, 0xa0]),
            (144_896, Fork::Bellatrix, [0x4a, 0x26, 0xc5, 0x8b]),
            (194_048, Fork::Capella, [0xbb, 0xa4, 0xda, 0x96]),
            (269_568, Fork::Deneb, [0x6a, 0x95, 0xa1, 0xa9]),
            (364_032, Fork::Electra, [0xad, 0x53, 0x2c, 0xeb]),
            (411_392, Fork::Fulu, [0xcc, 0x2c, 0x5c, 0xdb]),
            (412_672, Fork::Fulu, [0xcb, 0x0d, 0x1a, 0xcc]),
            (419_072, Fork::Fulu, [0x8c, 0x9f, 0x62, 0xfe]),
        ] {
            let slot = epoch * 32;
            assert_eq!(digests.digest_at_slot(slot), Some((fork, digest)));
            assert_eq!(digests.digest_at_slot(slot + 31), Some((fork, digest)));
            assert_ne!(digests.digest_at_slot(slot - 1), Some((fork, digest)));
            assert_eq!(digests.fork_of_digest(digest), Some(fork));
        }
        assert_eq!(
            digests.digest_at_slot(u64::MAX),
            Some((Fork::Fulu, [0x8c, 0x9f, 0x62, 0xfe]))
        );
        assert_eq!(digests.digest_at_slot(0).unwrap().0, Fork::Phase0);
        assert_eq!(digests.fork_of_digest([0; 4]), None);
    }

    #[test]
    fn last_fork_is_used_when_forks_share_an_epoch() {
        let mut spec = mainnet();
        for fork in ["ALTAIR", "BELLATRIX", "CAPELLA", "DENEB", "ELECTRA"] {
            spec["data"][format!("{fork}_FORK_EPOCH")] = json!(0);
        }
        let digests = digests(&spec).unwrap();
        assert_eq!(digests.digest_at_slot(0).unwrap().0, Fork::Electra);
        assert_eq!(digests.digest_at_slot(31).unwrap().0, Fork::Electra);
        assert_eq!(digests.digest_at_slot(411_392 * 32).unwrap().0, Fork::Fulu);
    }

    /// The preset is read nevertheless.
    #[test]
    fn incomplete_fork_schedule_is_rejected() {
        for (name, value) in [
            ("CAPELLA_FORK_VERSION", Value::Null),
            ("CAPELLA_FORK_VERSION", json!("0x030000")),
            ("CAPELLA_FORK_EPOCH", json!("soon")),
            // before bellatrix
            ("CAPELLA_FORK_EPOCH", json!("1")),
            ("GENESIS_FORK_VERSION", Value::Null),
            ("BLOB_SCHEDULE", Value::Null),
            ("BLOB_SCHEDULE", json!("[]")),
            ("BLOB_SCHEDULE", json!([{"EPOCH": "412672"}])),
            (
                "BLOB_SCHEDULE",
                json!(vec![json!({"EPOCH": "1", "MAX_BLOBS_PER_BLOCK": "1"}); 65]),
            ),
            ("MAX_BLOBS_PER_BLOCK_ELECTRA", Value::Null),
        ] {
            let mut spec = mainnet();
            match value {
                Value::Null => drop(spec["data"].as_object_mut().unwrap().remove(name)),
                value => spec["data"][name] = value,
            }
            let read = read(&spec).unwrap();
            assert_eq!((read.preset, read.forks), (Preset::Mainnet, None), "{name}");
        }
        // before fulu there is no schedule
        let mut spec = mainnet();
        let data = spec["data"].as_object_mut().unwrap();
        for name in [
            "FULU_FORK_EPOCH",
            "BLOB_SCHEDULE",
            "MAX_BLOBS_PER_BLOCK_ELECTRA",
        ] {
            data.remove(name);
        }
        let digests = digests(&spec).unwrap();
        assert_eq!(digests.digest_at_slot(u64::MAX).unwrap().0, Fork::Electra);
    }

    #[test]
    fn preset_is_rejected_when_its_constants_differ() {
        for (name, slots, committee) in [
            ("mainnet", 32, 512),
            ("minimal", 8, 32),
            ("gnosis", 16, 512),
        ] {
            let spec = |slots: u32, committee: u32| {
                let read = read(&json!({"data": {
                    "PRESET_BASE": name, "SLOTS_PER_EPOCH": slots.to_string(),
                    "SYNC_COMMITTEE_SIZE": committee.to_string(),
                }}));
                read.map(|spec| spec.preset.preset_name())
            };
            assert_eq!(spec(slots, committee), Some(name));
            assert_eq!(spec(slots + 1, committee), None);
            assert_eq!(spec(slots, committee + 1), None);
        }
        assert!(read(&json!({"data": {"PRESET_BASE": "gnosis"}})).is_some());
        for body in [
            "",
            "{}",
            "[]",
            "null",
            "{\"data\":[]}",
            "{\"data\":{}}",
            "{\"data\":{\"PRESET_BASE\":1}}",
            "{\"data\":{\"PRESET_BASE\":\"main\"}}",
            "{\"data\":{\"PRESET_BASE\":\"mainnet\"",
            "{\"PRESET_BASE\":\"mainnet\"}",
            "<html>",
        ] {
            assert_eq!(
                NodeChainSpec::parse_spec_body(body.as_bytes()),
                None,
                "{body}"
            );
            assert_eq!(parse_genesis_response_root(body.as_bytes()), None, "{body}");
        }
        assert_eq!(parse_spec_number(&json!("1.5")), None);
        assert_eq!(parse_spec_number(&json!(-1)), None);
    }
}
