//! Recompression of stored entries, and the removal of inactive ones.

#![allow(clippy::unwrap_used, clippy::panic)] // a test fails by panicking

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use sszip_core::cache::entry::wire::{decode_cache_entry, EncodedEntry};
use sszip_core::cache::entry::{
    CacheEntry, CompressionGate, EntryMetadata, EntryPayload, EnvelopeBytes,
};
use sszip_owner::config::OwnerConfig;
use sszip_owner::log::LogFunction;
use sszip_owner::open_store::create_store_opener;
use sszip_owner::owner_lifecycle::{OwnerLifecycleStage, RunningOwnerHandle};

const LIMIT: Duration = Duration::from_secs(120);
/// A busy machine gives a thread of the lowest priority hardly any time.
const RECOMPRESSION_LIMIT: Duration = Duration::from_secs(1_200);

/// An owner that serves on its own threads, with its store in a temporary folder.
struct ServingOwner {
    folder: tempfile::TempDir,
    running: RunningOwnerHandle,
}

impl ServingOwner {
    fn start(change: impl Fn(&mut OwnerConfig)) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let running = Self::run(folder.path(), change);
        Self { folder, running }
    }

    fn run(folder: &Path, change: impl Fn(&mut OwnerConfig)) -> RunningOwnerHandle {
        let mut config =
            OwnerConfig::from_socket_and_store_paths(folder.join("socket"), folder.join("store"));
        config.max_size = 64 << 20;
        change(&mut config);
        let log: LogFunction = Arc::new(|_, _| {});
        let open = create_store_opener(&config.path, config.max_size, Arc::clone(&log));
        let running = RunningOwnerHandle::start_owner_threads(config, open, log).unwrap();
        wait_until(|| running.owner_lifecycle_state() == OwnerLifecycleStage::Serving);
        running
    }

    fn restart(&mut self) {
        assert!(self.running.stop_owner_within(LIMIT));
        self.running = Self::run(self.folder.path(), |_| {});
    }

    fn send(&self, head: &str, body: &[u8]) -> (u16, String, Vec<u8>) {
        let socket: PathBuf = self.folder.path().join("socket");
        let mut stream = UnixStream::connect(socket).unwrap();
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        let length = body.len();
        let head =
            format!("{head}\r\nhost: o\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n")
                .replacen("\r\n", " HTTP/1.1\r\n", 1);
        stream.write_all(head.as_bytes()).unwrap();
        stream.write_all(body).unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        let end = answer.windows(4).position(|four| four == b"\r\n\r\n");
        let body = answer.split_off(end.unwrap() + 4);
        let head = String::from_utf8(answer).unwrap();
        (head[9..12].parse().unwrap(), head, body)
    }

    fn get(&self, n: u8) -> Option<Vec<u8>> {
        match self.send(&format!("GET /v1/entries/{}", key(n)), b"") {
            (200, _, body) => Some(body),
            (404, ..) => None,
            other => panic!("{other:?}"),
        }
    }

    fn put(&self, n: u8, body: &[u8]) {
        let (status, ..) = self.send(
            &format!(
                "PUT /v1/entries/{}\r\nsszip-generation: {}\r\nsszip-fresh: 3600000\r\n\
                 sszip-class: immutable\r\nsszip-namespace: {}",
                key(n),
                self.status("generation"),
                "00".repeat(16)
            ),
            body,
        );
        assert_eq!(status, 201);
    }

    /// Returns a number of the status, by its first appearance after `name`.
    fn status(&self, name: &str) -> u64 {
        let (_, _, body) = self.send("GET /v1/status", b"");
        let value: serde_json::Value = serde_json::from_slice(&body).unwrap();
        let path = format!("/{}", name.replace('.', "/"));
        value.pointer(&path).unwrap().as_u64().unwrap()
    }
}

fn wait_until(mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + RECOMPRESSION_LIMIT;
    while !holds() {
        assert!(Instant::now() < end);
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Returns a key that looks like a hash.
fn key(n: u8) -> String {
    (0..32u32)
        .map(|at| format!("{:02x}", (u32::from(n) * 151 + at * 89 + at * at * 7) % 256))
        .collect()
}

fn text(n: u8, length: usize) -> Vec<u8> {
    let mut state = u32::from(n);
    let mut text = String::new();
    while text.len() < length {
        state = state.wrapping_mul(1_103_515_245).wrapping_add(12_345);
        text += &format!("0x{:08x}000000000000,", state >> 12);
    }
    text.into_bytes()
}

fn entry(n: u8, length: usize) -> Vec<u8> {
    let gate = CompressionGate {
        min_length: 0,
        level: 1,
    };
    let text = text(n, length);
    let entry = CacheEntry::from_fetched_result(
        EnvelopeBytes::envelope_without_bytes(),
        &text,
        gate,
        EntryMetadata::default(),
    )
    .unwrap();
    let encoded = EncodedEntry::from_entry(&entry).unwrap();
    [&encoded.head[..], &encoded.payload].concat()
}

fn decompress_entry(bytes: &[u8]) -> Vec<u8> {
    match decode_cache_entry(bytes, 0, 0, 1).unwrap().stored_payload() {
        EntryPayload::Open(open) => open.decompress_open_stream().unwrap(),
        EntryPayload::Raw(bytes) => bytes.to_vec(),
    }
}

/// Puts an entry and requests it, so that it is written to the store.
fn admit_entry(owner: &ServingOwner, n: u8, body: &[u8]) {
    owner.put(n, body);
    assert_eq!(owner.get(n).unwrap().len(), body.len());
}

#[test]
fn stored_entry_is_recompressed_once_and_stays_so_after_a_restart() {
    let mut owner = ServingOwner::start(|_| {});
    let before = entry(1, 200_000);
    admit_entry(&owner, 1, &before);
    owner.put(2, &entry(2, 200_000));
    wait_until(|| owner.status("stores.done") == 1);
    let after = owner.get(1).unwrap();
    assert!(after.len() < before.len());
    assert_eq!(decompress_entry(&after), text(1, 200_000));
    assert_eq!(owner.status("recompressed.entries"), 1);
    let saved = (before.len() - after.len()) as u64;
    assert_eq!(owner.status("recompressed.saved"), saved);
    owner.restart();
    for _ in 0..5 {
        assert_eq!(owner.get(1).unwrap(), after);
    }
    // it was requested once, and the end of an owner stores such entries
    assert_eq!(owner.get(2).unwrap(), entry(2, 200_000));
    assert_eq!(owner.status("recompressed.entries"), 0);
    assert!(owner.running.stop_owner_within(LIMIT));
}

#[test]
fn recompression_thread_has_the_lowest_priority() {
    let mut owner = ServingOwner::start(|_| {});
    let nice_of_coder = || {
        let tasks = std::fs::read_dir("/proc/self/task").unwrap();
        let stats = tasks
            .filter_map(|task| std::fs::read_to_string(task.unwrap().path().join("stat")).ok());
        let nice: Vec<i64> = stats
            .filter(|stat| stat.contains("(sszip-coder)"))
            .map(|stat| {
                let fields = stat.rsplit(") ").next().unwrap();
                fields.split(' ').nth(16).unwrap().parse().unwrap()
            })
            .collect();
        // other tests of this process have such a thread too
        !nice.is_empty() && nice.iter().all(|nice| *nice == 19)
    };
    wait_until(nice_of_coder);
    assert!(owner.running.stop_owner_within(LIMIT));
}

#[test]
fn entry_purged_during_its_recompression_is_not_found() {
    const ENTRIES: u8 = 6;
    let mut owner = ServingOwner::start(|_| {});
    for n in 0..ENTRIES {
        admit_entry(&owner, n, &entry(n, 1_000_000));
        // at different moments of the recompression, which takes some 25 ms
        std::thread::sleep(Duration::from_millis(u64::from(n) * 6));
        let purge = match n % 2 {
            0 => format!("{{\"key\":\"{}\"}}", key(n)),
            _ => r#"{"everything":true}"#.into(),
        };
        assert_eq!(owner.send("POST /v1/purges", purge.as_bytes()).0, 200);
        assert!(owner.get(n).is_none());
    }
    // the last entry is recompressed after all others
    admit_entry(&owner, ENTRIES, &entry(ENTRIES, 100_000));
    wait_until(|| owner.get(ENTRIES).unwrap().len() < entry(ENTRIES, 100_000).len());
    // an entry that was purged first is not counted; the first purge was sent at once
    let recompressed = owner.status("recompressed.entries");
    assert!(
        recompressed <= u64::from(ENTRIES),
        "no purge came during a recompression"
    );
    for n in 0..ENTRIES {
        assert!(owner.get(n).is_none(), "{n}");
    }
    owner.restart();
    for n in 0..ENTRIES {
        assert!(owner.get(n).is_none(), "{n} after a restart");
    }
    assert!(owner.get(ENTRIES).is_some());
    assert!(owner.running.stop_owner_within(LIMIT));
}

#[test]
fn entries_are_stored_under_load_recompressed_or_not() {
    let mut owner = ServingOwner::start(|_| {});
    for n in 0..100 {
        admit_entry(&owner, n, &entry(n, 60_000));
    }
    wait_until(|| owner.status("stores.done") == 100);
    let recompressed = owner.status("recompressed.entries");
    let smaller = |n: &u8| owner.get(*n).unwrap().len() < entry(*n, 60_000).len();
    assert_eq!((0..100).filter(smaller).count() as u64, recompressed);
    assert!(recompressed > 0);
    assert!(owner.running.stop_owner_within(LIMIT));
}

#[test]
fn stop_during_recompression_stores_the_waiting_entries() {
    for wait in [0, 100, 150] {
        let mut owner = ServingOwner::start(|_| {});
        for n in 0..4 {
            admit_entry(&owner, n, &entry(n, 4_000_000));
        }
        std::thread::sleep(Duration::from_millis(wait));
        owner.restart();
        for n in 0..4 {
            assert_eq!(decompress_entry(&owner.get(n).unwrap()), text(n, 4_000_000));
        }
        assert!(owner.running.stop_owner_within(LIMIT));
    }
}

#[test]
fn entry_is_stored_unchanged_without_recompression() {
    let mut owner = ServingOwner::start(|config| config.recompress = false);
    admit_entry(&owner, 1, &entry(1, 50_000));
    wait_until(|| owner.status("stores.done") == 1);
    assert_eq!(owner.get(1).unwrap(), entry(1, 50_000));
    assert_eq!(owner.status("recompressed.entries"), 0);
    assert!(owner.running.stop_owner_within(LIMIT));
}

#[test]
fn inactive_entry_leaves_memory_and_disk() {
    // a machine that stalls for seconds does not request in time, and tries again
    assert!((0..5).any(|_| requested_entry_stays_and_inactive_entry_leaves()));
}

/// Returns false if the machine was too busy to request often enough.
fn requested_entry_stays_and_inactive_entry_leaves() -> bool {
    let mut owner = ServingOwner::start(|config| {
        config.inactive = Some(4_000);
        config.flush_interval = 100;
        config.recompress = false;
    });
    let mut requested_at = Instant::now();
    for n in [1, 2] {
        owner.put(n, &entry(n, 50_000));
        // on the second request it is written to the disk
        owner.get(n).unwrap();
    }
    wait_until(|| owner.status("store.entries") >= 2);
    let begin = Instant::now();
    let mut memory_entries = 0;
    // seldom enough for SST files not to be compacted: the entries of a file are dropped together
    while begin.elapsed() < Duration::from_millis(8_500) {
        std::thread::sleep(Duration::from_millis(1_500));
        let now = Instant::now();
        let found = owner.get(1);
        memory_entries = owner.status("memory.entries");
        // at most this time has passed since the owner received the last request
        if requested_at.elapsed() >= Duration::from_millis(3_900) {
            assert!(owner.running.stop_owner_within(LIMIT));
            return false;
        }
        found.unwrap();
        requested_at = now;
    }
    assert_eq!(memory_entries, 1);
    assert!(owner.get(2).is_none(), "neither memory nor disk has it");
    // the requested entry was written again: only the disk has it
    let written = owner.status("stores.done");
    assert!((3..=2 + 6).contains(&written), "{written}");
    owner.restart();
    assert_eq!(owner.get(1).unwrap(), entry(1, 50_000));
    assert!(owner.get(2).is_none());
    assert!(owner.running.stop_owner_within(LIMIT));
    true
}
