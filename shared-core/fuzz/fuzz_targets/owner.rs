//! Requests to the owner: any head and body, and sequences of valid requests and of messages in
//! sessions, compared with a model that stores all entries.
#![no_main]

use std::sync::Arc;

use arbitrary::Arbitrary;
use hyper::http::request::Builder;
use libfuzzer_sys::fuzz_target;
use sszip_core::cache::owner::processes::OwnerEventStreamAction;
use sszip_core::cache::owner::state::OwnerMemoryLookupResult;
use sszip_core::cache::owner::{ClockReading, Owner};
use sszip_owner::request::PutRequest;
use sszip_owner::request::{self, OwnerHttpRequest};

#[path = "../../tests/support/memory_store.rs"]
mod memory_store;
#[path = "owner/sessions.rs"]
mod sessions;

use memory_store::{MemoryStore, StoreContents};
use sessions::{SessionModels, SessionStep};

#[derive(Arbitrary, Debug)]
enum Step {
    /// A request with arbitrary parts.
    Raw {
        method: u8,
        path: String,
        fields: Vec<(u8, String)>,
        body: Vec<u8>,
    },
    /// A valid request, of few keys and processes, so that they coincide.
    LookUp {
        key: u8,
        lease: Option<u8>,
        time: u16,
    },
    Put {
        key: u8,
        class: u8,
        older: u8,
        fresh: u16,
        process: u8,
    },
    GiveBack {
        key: u8,
        process: u8,
    },
    Purge {
        body: u8,
        of: u8,
    },
    Acknowledge {
        process: u8,
    },
    Arrive {
        process: u8,
    },
    Read {
        stream: u8,
    },
    Leave {
        stream: u8,
    },
    Pass {
        time: u16,
    },
    Session(u8, SessionStep),
}

const METHODS: [&str; 5] = ["GET", "PUT", "POST", "DELETE", "HEAD"];
const FIELDS: [&str; 8] = [
    "sszip-generation",
    "sszip-fresh",
    "sszip-class",
    "sszip-namespace",
    "sszip-method",
    "sszip-block",
    "sszip-process",
    "sszip-chain-known",
];

fn hex(byte: u8) -> String {
    format!("{:02x}", byte % 8).repeat(32)
}

/// Parses the request, if it is valid HTTP.
fn parse_owner_request(
    method: &str,
    path: &str,
    fields: &[(&str, String)],
) -> Option<OwnerHttpRequest> {
    let builder = Builder::new().method(method).uri(path);
    let builder = fields.iter().fold(builder, |builder, (name, value)| {
        builder.header(*name, value)
    });
    let (head, ()) = builder.body(()).ok()?.into_parts();
    let about = request::decode_chain_query(&head.headers);
    match about.and_then(|_| request::decode_owner_request(&head)) {
        Ok(request) => Some(request),
        Err(problem) => {
            assert!(problem.status.is_client_error());
            None
        }
    }
}

struct OwnerModel {
    owner: Owner,
    now: ClockReading,
    streams: Vec<sszip_core::cache::owner::processes::OwnerEventStreamId>,
    /// Purges that are not complete, with their times.
    purges: Vec<(u64, u64)>,
}

impl OwnerModel {
    fn act(&mut self, request: OwnerHttpRequest, body: &[u8]) {
        let now = self.now;
        match request {
            OwnerHttpRequest::LookUp { key, lease } => {
                let found = match self.owner.lookup_without_disk_wait(&key, now) {
                    OwnerMemoryLookupResult::Found(found) => Some(found),
                    OwnerMemoryLookupResult::Missing => None,
                    OwnerMemoryLookupResult::QueryStore => self.owner.lookup_in_store(&key, now),
                };
                if let Some(found) = found {
                    assert!(found.kept.remaining_ttl(now) > 0);
                    if found.is_to_be_stored {
                        self.owner.write_to_store(&key, &found.kept, now).unwrap();
                    }
                    // the body that was stored
                    assert_eq!(found.kept.encoded_bytes(), key);
                } else if let Some(wanted) = lease {
                    assert!((1..=60_000).contains(&wanted.time) && wanted.wait <= 60_000);
                    let leased = self
                        .owner
                        .acquire_lease(&key, &wanted.process, wanted.time, now);
                    assert!(leased.is_ok());
                }
            }
            OwnerHttpRequest::Put(PutRequest {
                key,
                about,
                fresh,
                age,
                process,
                ..
            }) => {
                let entry = self.owner.new_memory_entry(about, key.to_vec(), fresh, now);
                let entry = Arc::new(entry.with_age(age));
                if self
                    .owner
                    .put_fetched_entry(&key, &entry, process.as_ref(), now)
                    == Ok(true)
                {
                    self.owner.write_to_store(&key, &entry, now).unwrap();
                }
            }
            OwnerHttpRequest::ReleaseLease { key, process } => {
                self.owner.release_lease(&key, &process, now)
            }
            OwnerHttpRequest::LookUps => {
                let _ = request::parse_keys(body);
            }
            OwnerHttpRequest::Purge => {
                if let Ok(scope) = request::parse_purge_scope(body) {
                    let generation = self.owner.purge_entries(&scope, || now).unwrap();
                    self.purges.push((generation, now.monotonic));
                }
            }
            OwnerHttpRequest::ShowBlock {
                namespace,
                sighting,
            } => self.owner.record_shown_block(&namespace, sighting),
            OwnerHttpRequest::Acknowledge(process) => {
                if let Ok(generation) = request::parse_acknowledged_generation(body) {
                    let known = self.owner.owner_store().purge_generation();
                    let done = self.owner.acknowledge_purges(&process, generation);
                    assert_eq!(done.is_ok(), generation <= known);
                }
            }
            OwnerHttpRequest::Events(process) => {
                if let Ok(stream) = self.owner.open_process_event_stream(&process, now) {
                    self.streams.push(stream);
                }
            }
            // its frames are the sessions' steps
            OwnerHttpRequest::Frames => {}
            OwnerHttpRequest::Status(format) => {
                drop(format.format_owner_report(self.owner.owner_status_json()))
            }
        }
    }
}

fuzz_target!(|steps: Vec<Step>| {
    let now = ClockReading {
        monotonic: 10_000,
        unix: 1_000_000,
    };
    let store = MemoryStore {
        contents: Arc::new(StoreContents::default()),
        // some are in the page cache
        read_waits: |key| key[0] & 1 == 0,
    };
    let mut world = OwnerModel {
        owner: Owner::new(Box::new(store), 4_000, now),
        now,
        streams: Vec::new(),
        purges: Vec::new(),
    };
    let mut sessions = SessionModels::default();
    for step in steps {
        let generation = world.owner.owner_store().purge_generation();
        let (method, path, fields, body) = match step {
            Step::Raw {
                method,
                path,
                fields,
                body,
            } => {
                let fields = fields
                    .into_iter()
                    .map(|(name, value)| (FIELDS[usize::from(name) % FIELDS.len()], value))
                    .collect();
                (
                    METHODS[usize::from(method) % METHODS.len()],
                    format!("/v1/{path}"),
                    fields,
                    body,
                )
            }
            Step::Session(index, step) => {
                sessions.act(&world.owner, index, step, world.now);
                continue;
            }
            Step::LookUp { key, lease, time } => {
                let query = lease.map_or(String::new(), |process| {
                    format!("?lease=p{}&for={time}&wait={time}", process % 4)
                });
                (
                    "GET",
                    format!("/v1/entries/{}{query}", hex(key)),
                    vec![],
                    vec![],
                )
            }
            Step::Put {
                key,
                class,
                older,
                fresh,
                process,
            } => {
                let classes = ["immutable", "unfinalized", "tip", "config", "resource"];
                let fields = vec![
                    (
                        FIELDS[0],
                        generation.saturating_sub(u64::from(older % 3)).to_string(),
                    ),
                    (FIELDS[1], fresh.to_string()),
                    (
                        FIELDS[2],
                        classes[usize::from(class) % classes.len()].to_owned(),
                    ),
                    (FIELDS[3], hex(key % 2)[..32].to_owned()),
                    (FIELDS[4], format!("m{}", key % 3)),
                    (FIELDS[5], (key % 4).to_string()),
                    (FIELDS[6], format!("p{}", process % 4)),
                ];
                ("PUT", format!("/v1/entries/{}", hex(key)), fields, vec![])
            }
            Step::GiveBack { key, process } => (
                "DELETE",
                format!("/v1/leases/{}?process=p{}", hex(key), process % 4),
                vec![],
                vec![],
            ),
            Step::Purge { body, of } => {
                let namespace = &hex(of % 2)[..32];
                let body = match body % 5 {
                    0 => r#"{"everything":true}"#.to_owned(),
                    1 => format!(r#"{{"namespace":"{namespace}"}}"#),
                    2 => format!(r#"{{"method":"m{}"}}"#, of % 3),
                    3 => format!(
                        r#"{{"namespace":"{namespace}","blocks":[{},{}]}}"#,
                        of % 4,
                        of % 4 + 1
                    ),
                    _ => format!(r#"{{"key":"{}"}}"#, hex(of)),
                };
                assert!(
                    request::parse_purge_scope(body.as_bytes()).is_ok(),
                    "{body}"
                );
                ("POST", "/v1/purges".to_owned(), vec![], body.into_bytes())
            }
            Step::Acknowledge { process } => (
                "POST",
                format!("/v1/acknowledgements?process=p{}", process % 4),
                vec![],
                generation.to_string().into_bytes(),
            ),
            Step::Arrive { process } => (
                "GET",
                format!("/v1/events?process=p{}", process % 4),
                vec![],
                vec![],
            ),
            Step::Read { stream } => {
                if let Some(stream) = world.streams.get(usize::from(stream)) {
                    if let OwnerEventStreamAction::Idle(until) =
                        world.owner.next_event_stream_action(*stream, world.now)
                    {
                        assert!(until > world.now.monotonic);
                    }
                }
                continue;
            }
            Step::Leave { stream } => {
                if usize::from(stream) < world.streams.len() {
                    world.owner.close_process_event_stream(
                        world.streams.swap_remove(usize::from(stream)),
                        world.now,
                    );
                }
                continue;
            }
            Step::Pass { time } => {
                world.now.monotonic += u64::from(time);
                world.now.unix += u64::from(time);
                for over in world.owner.end_leases_and_complete_purges(world.now) {
                    world.purges.retain(|(generation, _)| *generation != over);
                }
                for (_, since) in &world.purges {
                    // one second, for processes and for the start
                    assert!(world.now.monotonic <= since + 1_000);
                }
                continue;
            }
        };
        if let Some(request) = parse_owner_request(method, &path, &fields) {
            world.act(request, &body);
        }
        // the owner's memory stays within its capacity
        let memory = &world.owner.owner_status_json()["memory"];
        assert!(memory["bytes"].as_u64() <= memory["capacity"].as_u64());
        world.owner.take_notifications();
    }
});
