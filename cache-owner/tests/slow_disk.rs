//! A disk that hangs delays only the requests that need it.

#![allow(clippy::unwrap_used, clippy::panic)] // a test fails by panicking

use std::collections::HashSet;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use sszip_core::cache::class::LifetimeClass;
use sszip_core::cache::entry::store_attributes::StoredEntryAttributes;
use sszip_core::cache::owner::disk::{DiskEntry, EntryBytes, EntryRecordAttributes};
use sszip_core::cache::owner_protocol::client_name::OwnerClientName;
use sszip_core::cache::owner_protocol::frame::{FrameDecoder, MAX_CONNECTION_FRAME_BYTES, PREFACE};
use sszip_core::cache::owner_protocol::message_body::MessageBody;
use sszip_core::cache::owner_protocol::outgoing_frame::OutgoingFrame;
use sszip_core::cache::owner_protocol::owner_message::{LeaseReply, OwnerMessage};
use sszip_core::cache::owner_protocol::process_message::{ProcessMessage, SessionRequest};
use sszip_core::cache::CacheKey;
use sszip_owner::clock::read_clocks;
use sszip_owner::config::OwnerConfig;
use sszip_owner::owner_lifecycle::{OwnerLifecycleStage, RunningOwnerHandle};

#[path = "../../shared-core/tests/support/memory_store.rs"]
mod memory_store;

use memory_store::{MemoryStore, SimulatedDisk, StoreContents};

/// First byte of the keys on the disk.
const ON_DISK: u8 = 0xdd;

/// Number of the entries on the disk. A session that looks all of them up at once is ended.
const STORED: u32 = 1_100;

/// A purge of another namespace than the entries': it needs the disk, and removes none of them.
const PURGE: &str = r#"{"namespace":"11111111111111111111111111111111"}"#;

/// A gate that blocks the store's reads and writes until it is opened.
#[derive(Default)]
struct DiskGate {
    open: Mutex<bool>,
    opened: Condvar,
    /// Number of reads and writes that have come to the gate.
    arrived: AtomicUsize,
}

impl DiskGate {
    fn open(&self) {
        *self.open.lock().unwrap() = true;
        self.opened.notify_all();
    }

    fn wait_for_arrival(&self) {
        while self.arrived.load(Ordering::Relaxed) == 0 {
            std::thread::yield_now();
        }
    }
}

impl SimulatedDisk for Arc<DiskGate> {
    fn would_block(&self, _: &CacheKey) -> bool {
        true
    }

    fn wait(&self) {
        let open = self.open.lock().unwrap();
        self.arrived.fetch_add(1, Ordering::Relaxed);
        drop(self.opened.wait_while(open, |open| !*open).unwrap());
    }
}

/// Returns a store with `STORED` entries, whose reads and writes wait at a gate.
fn store_behind_gate(gate: &Arc<DiskGate>) -> MemoryStore {
    let now = read_clocks().unix;
    let stored = DiskEntry {
        header: EntryRecordAttributes {
            about: StoredEntryAttributes {
                class: LifetimeClass::Immutable,
                generation: 5,
                ..StoredEntryAttributes::default()
            },
            requested_at: now,
            expires_at: now + 3_600_000,
            is_shareable: false,
        },
        body: EntryBytes::Pinned(Arc::new(b"from the disk")),
        is_old: false,
    };
    let contents = StoreContents::default();
    let entries = (0..STORED).map(|n| (key(ON_DISK, n), stored.clone()));
    contents.entries.lock().unwrap().extend(entries);
    MemoryStore {
        contents: Arc::new(contents),
        disk: Box::new(Arc::clone(gate)),
    }
}

fn key(first: u8, n: u32) -> CacheKey {
    let mut key = [first; 32];
    key[28..].copy_from_slice(&n.to_be_bytes());
    key
}

fn hex(key: &CacheKey) -> String {
    key.iter().map(|byte| format!("{byte:02x}")).collect()
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

fn look_up(socket: &Path, key: &CacheKey) -> UnixStream {
    let key = hex(key);
    send(
        socket,
        &format!("GET /v1/entries/{key} HTTP/1.1\r\nhost: o\r\n\r\n"),
    )
}

fn put(socket: &Path, key: &CacheKey) -> UnixStream {
    let (key, namespace) = (hex(key), "00".repeat(16));
    send(
        socket,
        &format!(
            "PUT /v1/entries/{key} HTTP/1.1\r\nhost: o\r\nsszip-generation: 5\r\n\
             sszip-fresh: 60000\r\nsszip-class: immutable\r\n\
             sszip-namespace: {namespace}\r\ncontent-length: 4\r\n\r\nbody"
        ),
    )
}

/// Starts an owner whose disk hangs until the gate is opened.
fn start_owner(folder: &Path) -> (RunningOwnerHandle, Arc<DiskGate>) {
    let gate = Arc::new(DiskGate::default());
    let disk = Arc::clone(&gate);
    let config = OwnerConfig {
        memory: 1 << 20,
        max_entry: 1 << 20,
        ..OwnerConfig::from_socket_and_store_paths(folder.join("socket"), folder.join("store"))
    };
    let owner = RunningOwnerHandle::start_owner_threads(
        config,
        Box::new(move |_| Ok(Box::new(store_behind_gate(&disk)))),
        Arc::new(|_, _| {}),
    )
    .unwrap();
    owner.wait_until_owner_serves(Duration::from_secs(120));
    assert_eq!(owner.owner_lifecycle_state(), OwnerLifecycleStage::Serving);
    (owner, gate)
}

/// A process that sends frames.
struct FrameClient {
    stream: UnixStream,
    decoder: FrameDecoder,
}

impl FrameClient {
    fn open(socket: &Path, process: &str) -> Self {
        // the owner refuses a message that is late on a busy machine
        for attempt in 1.. {
            let mut stream = UnixStream::connect(socket).unwrap();
            stream
                .set_read_timeout(Some(Duration::from_secs(30)))
                .unwrap();
            stream.write_all(&PREFACE).unwrap();
            let mut client = Self {
                stream,
                decoder: FrameDecoder::new(MAX_CONNECTION_FRAME_BYTES),
            };
            client.send(&[ProcessMessage::Hello(SessionRequest {
                process: OwnerClientName::new(process).unwrap(),
                attempt,
                clock: read_clocks().monotonic,
                polls: false,
            })]);
            let first = client.receive_until(|message| {
                let is_first = matches!(
                    message,
                    OwnerMessage::Welcome { .. } | OwnerMessage::Refused(_)
                );
                is_first.then(|| message.clone())
            });
            if let Some(OwnerMessage::Welcome { .. }) = first {
                return client;
            }
        }
        unreachable!()
    }

    fn send(&mut self, messages: &[ProcessMessage]) {
        for some in messages.chunks(512) {
            let mut frame = OutgoingFrame::new(MAX_CONNECTION_FRAME_BYTES).unwrap();
            for message in some {
                message.append_to_frame(&mut frame).unwrap();
            }
            // the owner may have closed the connection
            let _ = self.stream.write_all(&frame.try_join_pieces().unwrap());
        }
    }

    /// Receives messages until `found` returns a value; `None` if the owner closes the connection.
    fn receive_until<T>(&mut self, mut found: impl FnMut(&OwnerMessage) -> Option<T>) -> Option<T> {
        let mut bytes = [0; 65_536];
        loop {
            while let Some(messages) = self.decoder.next_frame().unwrap() {
                let mut value = None;
                for message in messages {
                    let message = OwnerMessage::decode_message(&message.unwrap()).unwrap();
                    value = value.or(found(&message.unwrap()));
                }
                if value.is_some() {
                    return value;
                }
            }
            match self.stream.read(&mut bytes) {
                Ok(0) => return None,
                Ok(length) => self.decoder.receive_bytes(&bytes[..length]).unwrap(),
                Err(error) if error.kind() == ErrorKind::ConnectionReset => return None,
                Err(error) => panic!("{error}"),
            }
        }
    }

    /// Receives the lease decision of a lookup that finds nothing.
    fn receive_lease(&mut self, lookup: u32) -> LeaseReply {
        let lease = self.receive_until(|message| match message {
            OwnerMessage::Missing { id, lease, .. } if *id == lookup => Some(*lease),
            _ => None,
        });
        lease.unwrap()
    }
}

fn lookup(id: u32, first: u8) -> ProcessMessage {
    ProcessMessage::Lookup {
        id,
        key: key(first, id),
        lease: Some(60_000),
        fleet_wait: 0,
        call_kind: 0,
    }
}

#[test]
fn messages_that_need_no_disk_are_answered_while_it_hangs() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("socket");
    let (mut owner, gate) = start_owner(folder.path());
    let mut a = FrameClient::open(&socket, "a");
    let mut gone = FrameClient::open(&socket, "gone");
    let mut flood = FrameClient::open(&socket, "flood");
    let reads: Vec<_> = (0..400).map(|n| lookup(n, ON_DISK)).collect();
    gone.send(&reads);
    a.send(&reads);
    a.send(&[ProcessMessage::Purge {
        id: 900,
        scope: PURGE.as_bytes().to_vec().into(),
    }]);
    for n in 1_000..1_200 {
        a.send(&[lookup(n, 0xbb)]);
        assert_eq!(a.receive_lease(n), LeaseReply::Granted);
    }
    // too many requests end the session
    let too_many: Vec<_> = (0..STORED).map(|n| lookup(n, ON_DISK)).collect();
    flood.send(&too_many);
    assert_eq!(flood.receive_until(|_| None::<()>), None);
    // a session that ends while its lookups read
    gone.send(&[lookup(2_000, 0xbb)]);
    assert_eq!(gone.receive_lease(2_000), LeaseReply::Granted);
    drop(gone);
    let mut b = FrameClient::open(&socket, "b");
    loop {
        b.send(&[lookup(2_000, 0xbb)]);
        match b.receive_lease(2_000) {
            LeaseReply::Granted => break,
            LeaseReply::Pending => std::thread::yield_now(),
            other => panic!("{other:?}"),
        }
    }

    gate.open();
    let mut missing: HashSet<u32> = (0..400).collect();
    let mut is_purged = false;
    let all = a.receive_until(|message| {
        match message {
            OwnerMessage::Found { id, entry, .. } => {
                assert_eq!(entry.bytes, MessageBody::from(b"from the disk".to_vec()));
                assert!(missing.remove(id));
            }
            OwnerMessage::AdminReply { id, status, .. } => {
                assert_eq!((*id, *status), (900, 200));
                is_purged = true;
            }
            _ => {}
        }
        (missing.is_empty() && is_purged).then_some(())
    });
    assert_eq!(all, Some(()));
    assert!(owner.stop_owner_within(Duration::from_secs(30)));
    assert_eq!(a.receive_until(|_| None::<()>), None);
}

#[test]
fn requests_that_need_no_disk_are_served_while_it_hangs() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("socket");
    let (mut owner, gate) = start_owner(folder.path());

    // more than there are threads, of each kind
    let reads: Vec<_> = (0..100)
        .map(|n| look_up(&socket, &key(ON_DISK, n)))
        .collect();
    let length = PURGE.len();
    let purge =
        format!("POST /v1/purges HTTP/1.1\r\nhost: o\r\ncontent-length: {length}\r\n\r\n{PURGE}");
    let purges: Vec<_> = (0..30).map(|_| send(&socket, &purge)).collect();
    // each fill is a second one, and is written to the disk
    for n in 0..400 {
        let filled = key(0xaa, n);
        assert!(answer(&put(&socket, &filled)).starts_with("HTTP/1.1 201 "));
        assert!(answer(&look_up(&socket, &filled)).starts_with("HTTP/1.1 200 "));
        let missing = answer(&look_up(&socket, &key(0xbb, n)));
        assert!(missing.starts_with("HTTP/1.1 404 "));
    }
    let mut client = FrameClient::open(&socket, "a");
    let lease = client.receive_until(|message| match message {
        OwnerMessage::SendLease { .. } => Some(()),
        _ => None,
    });
    assert_eq!(lease, Some(()));

    gate.open();
    for read in &reads {
        assert!(answer(read).contains("from the disk"));
    }
    for purge in &purges {
        assert!(answer(purge).starts_with("HTTP/1.1 200 "));
    }
    assert!(owner.stop_owner_within(Duration::from_secs(30)));
}

#[test]
fn owner_has_not_ended_while_a_thread_uses_its_store() {
    let folder = tempfile::tempdir().unwrap();
    let (mut owner, gate) = start_owner(folder.path());
    let _waiting = look_up(&folder.path().join("socket"), &key(ON_DISK, 0));
    gate.wait_for_arrival();
    // a process that exits now would destroy what the thread uses
    assert!(!owner.stop_owner_within(Duration::from_secs(2)));
    gate.open();
    assert!(owner.stop_owner_within(Duration::from_secs(30)));
}
