//! A disk that hangs delays only the requests that need it.

#![allow(clippy::unwrap_used, clippy::panic)] // a test fails by panicking

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use sszip_core::cache::entry::store_attributes::{PurgeScope, StoredEntryAttributes};
use sszip_core::cache::owner::disk::{
    DiskEntry, EntryBytes, EntryRecordAttributes, OwnerStore, ReadWouldBlock, StoreStatus,
    StoreWriteRejection,
};
use sszip_core::cache::owner::tracker::{ChainIdentity, ChainRecord, FinalityMark};
use sszip_core::cache::owner::ClockReading;
use sszip_core::cache::{CacheKey, CacheNamespace};
use sszip_owner::config::OwnerConfig;
use sszip_owner::owner_lifecycle::{OwnerLifecycleStage, RunningOwnerHandle};

/// A gate that blocks the store's reads and writes until it is opened.
#[derive(Default)]
struct DiskGate {
    open: Mutex<bool>,
    opened: Condvar,
}

impl DiskGate {
    fn pass(&self) {
        let open = self.open.lock().unwrap();
        drop(self.opened.wait_while(open, |open| !*open).unwrap());
    }

    fn open(&self) {
        *self.open.lock().unwrap() = true;
        self.opened.notify_all();
    }
}

/// A store whose reads and writes wait at a gate.
struct SlowStore(Arc<DiskGate>);

impl OwnerStore for SlowStore {
    fn purge_generation(&self) -> u64 {
        5
    }

    fn read_entry(&self, _: &CacheKey, now: ClockReading) -> Option<DiskEntry> {
        self.0.pass();
        Some(DiskEntry {
            header: EntryRecordAttributes {
                about: StoredEntryAttributes {
                    class: sszip_core::cache::class::LifetimeClass::Immutable,
                    namespace: [0; 16],
                    method: None,
                    block: None,
                    generation: 5,
                    epoch: 0,
                    height: None,
                },
                stored_at: now.unix,
                expires_at: now.unix + 60_000,
            },
            body: EntryBytes::Pinned(Arc::new(b"from the disk")),
            is_old: false,
        })
    }

    fn read_entry_nonblocking(
        &self,
        key: &CacheKey,
        _: ClockReading,
    ) -> Result<Option<DiskEntry>, ReadWouldBlock> {
        match self.may_contain_key(key) {
            true => Err(ReadWouldBlock),
            false => Ok(None),
        }
    }

    fn may_contain_key(&self, key: &CacheKey) -> bool {
        key[0] == 0xdd
    }

    fn put_entry(
        &self,
        _: &CacheKey,
        _: &EntryRecordAttributes,
        _: &[u8],
    ) -> Result<(), StoreWriteRejection> {
        self.0.pass();
        Ok(())
    }

    fn purge_entries(&self, _: &PurgeScope) -> Result<u64, StoreWriteRejection> {
        self.0.pass();
        Ok(6)
    }

    fn read_chain_record(&self, _: &CacheNamespace) -> Result<ChainRecord, StoreWriteRejection> {
        Ok(ChainRecord::default())
    }

    fn record_chain_identity(
        &self,
        _: &CacheNamespace,
        _: &ChainIdentity,
    ) -> Result<(), StoreWriteRejection> {
        Ok(())
    }

    fn record_finality_mark(
        &self,
        _: &CacheNamespace,
        _: Option<&FinalityMark>,
    ) -> Result<(), StoreWriteRejection> {
        Ok(())
    }

    fn is_entry_purged(&self, _: &CacheKey, _: &StoredEntryAttributes) -> bool {
        false
    }

    fn record_fill_for_admission(&self, _: &CacheKey, _: ClockReading) -> bool {
        true
    }

    fn flush_memtables(&self) -> Result<(), StoreWriteRejection> {
        Ok(())
    }

    fn drop_entries_older_than(&self, _: u64, _: u64, _: ClockReading) {}

    fn next_log_line(&self) -> Option<String> {
        None
    }

    fn store_status(&self) -> StoreStatus {
        StoreStatus::default()
    }
}

fn send(socket: &Path, request: &str) -> UnixStream {
    let mut stream = UnixStream::connect(socket).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_secs(30)))
        .unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    stream
}

fn answer(mut stream: &UnixStream) -> String {
    let mut bytes = [0; 4096];
    let length = stream.read(&mut bytes).unwrap();
    String::from_utf8_lossy(&bytes[..length]).into_owned()
}

fn look_up(socket: &Path, key: &str) -> UnixStream {
    send(
        socket,
        &format!("GET /v1/entries/{key} HTTP/1.1\r\nhost: o\r\n\r\n"),
    )
}

fn put(socket: &Path, key: &str) -> UnixStream {
    let namespace = "00".repeat(16);
    send(
        socket,
        &format!(
            "PUT /v1/entries/{key} HTTP/1.1\r\nhost: o\r\nsszip-generation: 5\r\n\
             sszip-fresh: 60000\r\nsszip-class: immutable\r\n\
             sszip-namespace: {namespace}\r\ncontent-length: 4\r\n\r\nbody"
        ),
    )
}

#[test]
fn requests_that_need_no_disk_are_served_while_it_hangs() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("socket");
    let gate = Arc::new(DiskGate::default());
    let disk = Arc::clone(&gate);
    let config = OwnerConfig {
        memory: 1 << 20,
        max_entry: 1 << 20,
        ..OwnerConfig::from_socket_and_store_paths(socket.clone(), folder.path().join("store"))
    };
    let mut owner = RunningOwnerHandle::start_owner_threads(
        config,
        Box::new(move |_| Ok(Box::new(SlowStore(Arc::clone(&disk))))),
        Arc::new(|_, _| {}),
    )
    .unwrap();
    owner.wait_until_owner_serves(Duration::from_secs(120));
    assert_eq!(owner.owner_lifecycle_state(), OwnerLifecycleStage::Serving);

    // more than there are threads, of each kind
    let reads: Vec<_> = (0..100)
        .map(|n| look_up(&socket, &format!("dd{n:062x}")))
        .collect();
    let purges: Vec<_> = (0..30)
        .map(|_| {
            send(
                &socket,
                "POST /v1/purges HTTP/1.1\r\nhost: o\r\ncontent-length: 19\r\n\r\n{\"everything\":true}",
            )
        })
        .collect();
    // each fill is a second one, and is written to the disk
    for n in 0..400 {
        let key = format!("aa{n:062x}");
        assert!(answer(&put(&socket, &key)).starts_with("HTTP/1.1 201 "));
        assert!(answer(&look_up(&socket, &key)).starts_with("HTTP/1.1 200 "));
        let missing = answer(&look_up(&socket, &format!("bb{n:062x}")));
        assert!(missing.starts_with("HTTP/1.1 404 "));
    }
    let events = send(
        &socket,
        "GET /v1/events?process=a HTTP/1.1\r\nhost: o\r\n\r\n",
    );
    let mut received = String::new();
    while !received.contains("event: lease") {
        received += &answer(&events);
    }

    gate.open();
    for read in &reads {
        assert!(answer(read).contains("from the disk"));
    }
    for purge in &purges {
        assert!(answer(purge).starts_with("HTTP/1.1 200 "));
    }
    assert!(owner.stop_owner_within(Duration::from_secs(30)));
}
