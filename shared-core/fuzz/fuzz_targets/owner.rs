//! Requests to the owner: any head and body, and sequences of valid requests and of messages in
//! sessions, compared with a model that stores all entries.
#![no_main]

use std::sync::Arc;

use arbitrary::Arbitrary;
use hyper::http::request::Builder;
use libfuzzer_sys::fuzz_target;
use sszip_core::cache::owner::state::OwnerMemoryLookupResult;
use sszip_core::cache::owner::{ClockReading, Owner};
use sszip_core::cache::CacheKey;
use sszip_owner::request::{self, OwnerHttpRequest};

#[path = "../../tests/support/memory_store.rs"]
mod memory_store;
#[path = "owner/sessions.rs"]
mod sessions;

use memory_store::{MemoryStore, StoreContents};
use sessions::{connect_to_fleet, SessionModels, SessionStep};

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
    },
    Put {
        key: u8,
        class: u8,
        older: u8,
        fresh: u16,
    },
    Purge {
        body: u8,
        of: u8,
    },
    Pass {
        time: u16,
    },
    Session(u8, SessionStep),
}

const METHODS: [&str; 4] = ["GET", "PUT", "POST", "HEAD"];
const FIELDS: [&str; 6] = [
    "sszip-generation",
    "sszip-fresh",
    "sszip-class",
    "sszip-namespace",
    "sszip-method",
    "sszip-age",
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
    match request::decode_owner_request(&head) {
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
    /// Purges that are not complete, with their times.
    purges: Vec<(u64, u64)>,
}

impl OwnerModel {
    fn act(&mut self, request: OwnerHttpRequest, body: &[u8]) {
        let now = self.now;
        match request {
            OwnerHttpRequest::LookUp(key) => {
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
                }
            }
            OwnerHttpRequest::Put(put) => {
                let body = put.key.to_vec();
                if let Ok(stored) = self.owner.store_fetched_entry(None, *put, body, now) {
                    if stored.is_to_be_stored {
                        self.owner
                            .write_to_store(&stored.key, &stored.entry, now)
                            .unwrap();
                    }
                }
            }
            OwnerHttpRequest::Purge => {
                if let Ok(scope) = request::parse_purge_scope(body) {
                    let generation = self.owner.purge_entries(&scope, || now).unwrap();
                    self.purges.push((generation, now.monotonic));
                }
            }
            // its frames are the sessions' steps
            OwnerHttpRequest::Frames => {}
            // any length is parsed; there is no server
            OwnerHttpRequest::PingFleet => drop(request::parse_ping_length(body)),
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
        disk: Box::new(|key: &CacheKey| key[0] & 1 == 0),
    };
    let mut world = OwnerModel {
        owner: Owner::new(Box::new(store), 4_000, now),
        now,
        purges: Vec::new(),
    };
    connect_to_fleet(&world.owner);
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
            Step::LookUp { key } => ("GET", format!("/v1/entries/{}", hex(key)), vec![], vec![]),
            Step::Put {
                key,
                class,
                older,
                fresh,
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
                ];
                ("PUT", format!("/v1/entries/{}", hex(key)), fields, vec![])
            }
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
        world.owner.take_notified_sessions();
    }
});
