//! A host like a proxy-wasm sandbox: it has no connection and no threads, and reaches its owner by
//! callouts, which the host makes after each of its own calls.

use std::sync::{Arc, Mutex};

use sszip_core::cache::link::callouts::CalloutId;
use sszip_core::cache::link::OwnerLink;
use sszip_core::cache::owner::{ClockReading, Owner};
use sszip_core::cache::owner_protocol::client_name::OwnerClientName;
use sszip_core::cache::process::wake::{EventLoopId, WokenRequestQueue};
use sszip_core::cache::process::ProcessResources;
use sszip_core::cache::CacheKey;

use super::callout_owner::{CalloutNumber, CalloutOwner};
use super::host::{ClientResponse, HostRequest, NextAction, RequestTask, TestHost};
use super::memory_store::{MemoryStore, StoreContents};

/// A host in memory that reaches its owner by callouts, as a proxy-wasm sandbox does.
pub struct CalloutHost {
    pub process: ProcessResources,
    link: Arc<OwnerLink>,
    woken: Arc<WokenRequestQueue>,
    event_loop: EventLoopId,
    network: Mutex<CalloutNetwork>,
}

/// The owner, and the callouts in flight to it.
struct CalloutNetwork {
    owner: CalloutOwner,
    in_flight: Vec<(CalloutNumber, CalloutId)>,
    last_number: CalloutNumber,
}

/// Waiter of the only client.
const CLIENT: usize = 7;

fn clocks(monotonic: u64) -> ClockReading {
    ClockReading {
        monotonic,
        unix: 1_700_000_000_000 + monotonic,
    }
}

impl CalloutHost {
    /// Creates a host with a hot tier of `memory` bytes, if it has one.
    pub fn new(memory: Option<u64>) -> Self {
        let process = ProcessResources::default();
        if let Some(bytes) = memory {
            process.shared.start_hot_tier(bytes, bytes, 1);
        }
        let woken = Arc::new(WokenRequestQueue::default());
        let event_loop = process.shared.add_event_loop(woken.clone());
        let name = OwnerClientName::new("sandbox").unwrap();
        let link = Arc::new(OwnerLink::new(name, 1 << 30));
        process.shared.set_owner_client(link.clone());
        link.start_callouts();
        let store = MemoryStore {
            contents: Arc::new(StoreContents::default()),
            // late replies to lookups
            disk: Box::new(|_: &CacheKey| true),
        };
        let owner = Owner::new(Box::new(store), 64 << 20, clocks(0));
        Self {
            process,
            link,
            woken,
            event_loop,
            network: Mutex::new(CalloutNetwork {
                owner: CalloutOwner::new(owner),
                in_flight: Vec::new(),
                last_number: 0,
            }),
        }
    }

    /// Makes the callouts that are due, and handles their results, until none is due and only a poll
    /// is in flight.
    fn make_callouts(&self, now: u64) {
        let network = &mut *self.network.lock().unwrap();
        let shared = &self.process.shared;
        loop {
            while let Some(callout) = self.link.next_callout(shared, now) {
                network.last_number += 1;
                let number = network.last_number;
                network.in_flight.push((number, callout.id));
                network
                    .owner
                    .receive_callout(number, &callout.body, clocks(now));
            }
            let responses = network.owner.take_responses(clocks(now));
            if responses.is_empty() {
                break;
            }
            for (number, (status, body)) in responses {
                let at = network.in_flight.iter().position(|it| it.0 == number);
                let (_, id) = network.in_flight.swap_remove(at.unwrap());
                let response = Some((status, &*body));
                self.link.handle_callout_result(shared, id, response, now);
            }
        }
        assert_eq!(network.in_flight.len(), 1);
    }
}

impl TestHost for CalloutHost {
    fn request(&self, request: HostRequest) -> Result<ClientResponse, String> {
        let mut task = RequestTask::new(request)?;
        let waiter = self.event_loop.waiter_of_request(CLIENT);
        // the sandbox has polled since the last request
        self.make_callouts(task.now());
        let mut next = task.look_up(Some(waiter))?;
        let answer = loop {
            next = match next {
                NextAction::Wait => {
                    self.make_callouts(task.now());
                    let woken = self.woken.next_woken_id().ok_or("nobody wakes it")?;
                    assert_eq!(woken, CLIENT);
                    task.look_up(Some(waiter))?
                }
                NextAction::Run(mut job) => {
                    job.run_job();
                    task.done(job)?
                }
                NextAction::FetchFromNode(body) => {
                    break task.fetch_and_store(body)?;
                }
                NextAction::Respond(answer) => break answer,
            };
        };
        let now = task.now();
        drop(task);
        // entries to be stored wait for a moment
        self.make_callouts(now + self.link.ms_until_next_callout(now).unwrap_or(0));
        match self.process.shared.flights.flight_count() {
            0 => Ok(answer),
            count => Err(format!("{count} flights never end")),
        }
    }
}
