//! Tests of leases, node times and waits, and a model of machines that share one server.

use proptest::prelude::*;

use super::*;
use crate::cache::fleet::keyring::FleetKeyring;
use crate::cache::fleet::value::{decode_fleet_value, FleetValueRejection};

const KIND: u32 = 7;

#[test]
fn lease_is_recognised_and_is_no_value() {
    let lease = FleetLease::new(&[0xab; 16]);
    assert_eq!(
        lease.as_bytes(),
        format!("sszip lease 1 {}", "ab".repeat(16)).as_bytes()
    );
    assert!(is_fleet_lease(lease.as_bytes()));
    assert!(!is_fleet_lease(b"SZF\x01"));
    assert!(!is_fleet_lease(b""));
    assert_ne!(lease, FleetLease::new(&[0xac; 16]));
    let keyring = FleetKeyring::unkeyed();
    let decoded = decode_fleet_value(lease.as_bytes().to_vec(), &keyring, &[7; 32], 0, 1 << 20);
    assert!(
        matches!(decoded, Err(FleetValueRejection::Truncated)),
        "{decoded:?}"
    );
}

#[test]
fn leases_last_twice_the_average_node_time() {
    let mut times = NodeTimes::default();
    assert_eq!(times.lease_time_ms(KIND, 100, 10_000), None);
    times.record(KIND, 400);
    assert_eq!(times.lease_time_ms(KIND, 100, 10_000), Some(800));
    assert_eq!(times.lease_time_ms(KIND, 400, 500), Some(500));
    assert_eq!(times.lease_time_ms(KIND, 401, 10_000), None);
    assert_eq!(times.lease_time_ms(KIND, 100, 0), None);
    assert_eq!(times.lease_time_ms(KIND + 1, 100, 10_000), None);
    times.record(KIND, 800);
    assert_eq!(times.lease_time_ms(KIND, 100, 10_000), Some(1_000));
}

#[test]
fn fast_and_unshared_responses_are_not_leased() {
    let mut times = NodeTimes::default();
    times.record(KIND, 49);
    assert_eq!(times.lease_time_ms(KIND, 0, 10_000), None);
    times.record(KIND, 1_000);
    assert!(times.lease_time_ms(KIND, 0, 10_000).is_some());
    for _ in 0..20 {
        times.record(KIND, 0);
    }
    assert_eq!(times.lease_time_ms(KIND, 0, 10_000), None);
}

#[test]
fn number_of_kinds_is_limited() {
    let mut times = NodeTimes::default();
    for kind in 0..2 * MAX_KINDS as u32 {
        times.record(kind, 100);
    }
    assert_eq!(times.averages.len(), MAX_KINDS);
    // a known one is recorded still
    times.record(0, 500);
    assert_eq!(times.lease_time_ms(0, 0, 10_000), Some(400));
}

#[test]
fn intervals_of_polls_double_up_to_the_maximum() {
    let mut wait = ValueWait::new(1_000);
    let mut elapsed = 0;
    let mut delays = Vec::new();
    while let Some(delay) = wait.next_delay_ms(elapsed) {
        delays.push(delay);
        elapsed += delay;
    }
    assert_eq!(delays, [20, 40, 80, 160, 200, 200, 200, 100]);
    assert_eq!(ValueWait::new(0).next_delay_ms(0), None);
}

/// Maximum wait of the machines of the model.
const MAX_WAIT_MS: u64 = 1_000;

/// The contents of the server under one name.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Stored {
    Absent,
    Lease { holder: usize, until: u64 },
    Value,
}

/// The state of one machine of the model.
#[derive(Clone, Debug)]
enum MachineState {
    Idle,
    /// The node of the machine responds at `until`; a lost response never comes.
    Fetching {
        until: u64,
        is_lost: bool,
    },
    Waiting {
        since: u64,
        poll_at: u64,
        wait: ValueWait,
    },
    Served,
}

/// Machines that request one response, and the server that they share.
struct LeaseModel {
    now: u64,
    stored: Stored,
    machines: Vec<MachineState>,
    node_time: u64,
    fetches: usize,
}

impl LeaseModel {
    fn expire_lease(&mut self) {
        if matches!(self.stored, Stored::Lease { until, .. } if until <= self.now) {
            self.stored = Stored::Absent;
        }
    }

    fn fetch(&mut self, at: usize, is_lost: bool) {
        self.fetches += 1;
        let until = self.now + self.node_time;
        self.machines[at] = MachineState::Fetching { until, is_lost };
    }

    /// A client of an idle machine requests the response.
    fn request(&mut self, at: usize, is_lost: bool, lease_ms: u64) {
        if !matches!(self.machines[at], MachineState::Idle) {
            return;
        }
        match self.stored {
            Stored::Value => self.machines[at] = MachineState::Served,
            Stored::Lease { holder, .. } if holder != at => {
                let mut wait = ValueWait::new(MAX_WAIT_MS);
                let poll_at = self.now + wait.next_delay_ms(0).unwrap();
                let since = self.now;
                self.machines[at] = MachineState::Waiting {
                    since,
                    poll_at,
                    wait,
                };
            }
            Stored::Lease { .. } => self.fetch(at, is_lost),
            Stored::Absent => {
                let until = self.now + lease_ms;
                self.stored = Stored::Lease { holder: at, until };
                self.fetch(at, is_lost);
            }
        }
    }

    /// Advances the clock by a millisecond. Returns the longest wait that has ended.
    fn tick(&mut self) -> u64 {
        self.now += 1;
        self.expire_lease();
        let mut longest = 0;
        for at in 0..self.machines.len() {
            match self.machines[at].clone() {
                MachineState::Fetching { until, is_lost } if until <= self.now => {
                    self.machines[at] = match is_lost {
                        true => MachineState::Idle,
                        false => MachineState::Served,
                    };
                    if !is_lost {
                        self.stored = Stored::Value;
                    }
                }
                MachineState::Waiting {
                    since,
                    poll_at,
                    mut wait,
                } if poll_at <= self.now => {
                    let elapsed = self.now - since;
                    let next = wait.next_delay_ms(elapsed);
                    match (self.stored, next) {
                        (Stored::Value, _) => self.machines[at] = MachineState::Served,
                        (Stored::Lease { .. }, Some(delay)) => {
                            let poll_at = self.now + delay;
                            self.machines[at] = MachineState::Waiting {
                                since,
                                poll_at,
                                wait,
                            };
                            continue;
                        }
                        _ => self.fetch(at, false),
                    }
                    longest = longest.max(elapsed);
                }
                _ => {}
            }
        }
        longest
    }
}

proptest! {
    /// Three machines request one response at any times; the fetches of some are lost. All are served
    /// in the end, no wait exceeds its maximum, and without losses and with a long lease one node
    /// request suffices.
    #[test]
    fn machines_are_served_within_their_bounds(
        starts in prop::collection::vec((0..300_u64, prop::bool::weighted(0.2)), 3),
        node_time in 50..1_500_u64,
        lease_ms in 50..1_000_u64,
    ) {
        let mut model = LeaseModel {
            now: 0,
            stored: Stored::Absent,
            machines: vec![MachineState::Idle; 3],
            node_time,
            fetches: 0,
        };
        let mut losses = 0;
        let mut pending: Vec<_> = starts.iter().map(|(at, is_lost)| (*at, *is_lost)).collect();
        let end = 300 + 2 * MAX_WAIT_MS + 4 * node_time;
        while model.now < end {
            for (at, (start, is_lost)) in pending.iter_mut().enumerate() {
                if *start <= model.now && matches!(model.machines[at], MachineState::Idle) {
                    let fetches = model.fetches;
                    model.request(at, *is_lost, lease_ms);
                    losses += usize::from(*is_lost && model.fetches > fetches);
                    // its client sends the request again, once
                    *is_lost = false;
                }
            }
            prop_assert!(model.tick() <= MAX_WAIT_MS);
        }
        for machine in &model.machines {
            prop_assert!(matches!(machine, MachineState::Served), "{machine:?}");
        }
        if losses == 0 && lease_ms > node_time {
            prop_assert_eq!(model.fetches, 1);
        }
        prop_assert!(model.fetches <= 3 + losses);
    }
}
