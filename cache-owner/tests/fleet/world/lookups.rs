//! Lookups of clients, and the checks of their responses.

use sszip_core::cache::class::LifetimeClass;
use sszip_core::cache::fleet::sharing::ServableValue;
use sszip_core::cache::fleet::value::decode_fleet_value;
use sszip_core::cache::freshness::BlockAnchor;
use sszip_core::cache::owner::session_tasks::OwnerTask;
use sszip_core::cache::owner_protocol::owner_message::OwnerMessage;
use sszip_core::cache::owner_protocol::process_message::ProcessMessage;

use super::{FinalityOfBranches, FleetWorld, BRANCHING, MAX_ENTRY};
use crate::calls::{ModelCall, ModelResult};
use crate::machine::{LookupStage, PendingLookup};
use crate::server::MACHINES;

impl FleetWorld {
    pub(super) fn random_call(&mut self) -> ModelCall {
        let of = self.random.below(MACHINES as u64) as usize;
        let path = &self.machines[of].path;
        // mostly near the head
        let farthest = if self.random.happens_once_in(4) {
            24
        } else {
            6
        };
        let distance = self.random.below(farthest);
        let height = (path.head() + 1).saturating_sub(distance);
        match self.random.below(8) {
            0..=2 => ModelCall::Block(height),
            3 | 4 => ModelCall::Logs(height),
            5 => ModelCall::State(height),
            _ => {
                let height = height.min(path.head());
                ModelCall::BlockByHash(path.block_at(height).unwrap_or(0))
            }
        }
    }

    pub(super) fn look_up(&mut self, at: usize) {
        let (call, now) = (self.random_call(), self.clocks(at));
        self.next_lookup += 1;
        let id = self.next_lookup;
        let machine = &mut self.machines[at];
        machine.update_gate(now);
        let message = ProcessMessage::Lookup {
            id,
            key: call.cache_key(),
            lease: None,
            fleet_wait: 20,
            call_kind: 0,
        };
        let session = &mut machine.session;
        let tasks = machine.owner.receive_message(session, message, now);
        machine.calls.insert(id, call);
        for task in tasks.unwrap() {
            match task {
                OwnerTask::QueryFleet(lookup) => {
                    let value = self.server.read_value(&call.cache_key(), &mut self.random);
                    self.coverage.count(match value {
                        Some(_) => "values read",
                        None => "no values",
                    });
                    machine.pending.push(PendingLookup {
                        lookup,
                        call,
                        stage: LookupStage::Received(value.cloned()),
                    });
                }
                // entries are not on disk in this model
                OwnerTask::WriteEntry(..) => {}
                other => panic!("{other:?}"),
            }
        }
        self.receive_replies(at, "own memory");
        // some take longer
        if !self.random.happens_once_in(4) {
            while self.advance_lookup(at) {}
        }
    }

    /// Continues with the next lookup that queries the fleet. Returns whether there was one.
    pub(super) fn advance_lookup(&mut self, at: usize) -> bool {
        let now = self.clocks(at);
        if self.machines[at].pending.is_empty() {
            return false;
        }
        let PendingLookup {
            lookup,
            call,
            stage,
        } = self.machines[at].pending.remove(0);
        match stage {
            LookupStage::Received(value) => {
                let checked = value.and_then(|value| self.check_value(at, call, &value));
                let stage = LookupStage::Checked(checked);
                let next = PendingLookup {
                    lookup,
                    call,
                    stage,
                };
                self.machines[at].pending.insert(0, next);
            }
            LookupStage::Checked(checked) => {
                let (value, case) = checked.unzip();
                let machine = &mut self.machines[at];
                let session = &mut machine.session;
                let tasks = machine
                    .owner
                    .complete_fleet_lookup(session, lookup, value, now);
                for task in tasks {
                    assert!(matches!(task, OwnerTask::WriteEntry(..)), "{task:?}");
                }
                self.receive_replies(at, case.unwrap_or("no value"));
            }
        }
        true
    }

    /// Checks a value as the owner's fleet tier does.
    pub(super) fn check_value(
        &mut self,
        at: usize,
        call: ModelCall,
        bytes: &[u8],
    ) -> Option<(ServableValue, &'static str)> {
        let (now, key) = (self.clocks(at), call.cache_key());
        let bytes = bytes.to_vec();
        let Ok(value) = decode_fleet_value(bytes, &self.keyring, &key, now.unix, MAX_ENTRY) else {
            self.coverage.count("rejected");
            return None;
        };
        let machine = &self.machines[at];
        let (position, anchor, stored_class) = (value.position, value.anchor, value.about.class);
        let value = match machine.owner.check_fleet_value(value, now) {
            Ok(value) => value,
            Err(reason) => {
                self.coverage.count(reason.name());
                return None;
            }
        };
        let is_current = machine.sync.is_current(now.monotonic);
        if !is_current || machine.sync.covers(position, &key, &value.about) {
            self.coverage.count("purged");
            return None;
        }
        let case = match (anchor, stored_class, value.about.class) {
            (None, ..) => "final, no anchor",
            (Some(BlockAnchor::ByRequest(_)), ..) => "anchor by request",
            (_, LifetimeClass::Immutable, LifetimeClass::Immutable) => "final, anchor by result",
            (_, LifetimeClass::Immutable, _) => "final for the writer only, anchor by result",
            _ => "unfinalized, anchor by result",
        };
        Some((value, case))
    }

    /// Checks the replies of an owner, and fetches the responses that are absent.
    pub(super) fn receive_replies(&mut self, at: usize, case: &'static str) {
        let now = self.clocks(at);
        for message in self.machines[at].take_messages(now) {
            match message {
                OwnerMessage::Found { id, entry, .. } => {
                    let bytes = entry.bytes.into_joined_bytes().unwrap();
                    let call = self.machines[at].calls.remove(&id).unwrap();
                    self.coverage.responses += 1;
                    self.coverage.count(case);
                    self.check_response(at, call, &bytes, case);
                }
                OwnerMessage::Missing { id, .. } => {
                    let call = self.machines[at].calls.remove(&id).unwrap();
                    if !["own memory", "no value"].contains(&case) {
                        self.coverage.count("replaced after the check");
                    }
                    self.fetch(at, call);
                }
                _ => {}
            }
        }
    }

    /// Asserts that a client of a machine may receive this entry now.
    pub(super) fn check_response(&mut self, at: usize, call: ModelCall, bytes: &[u8], case: &str) {
        let (result, class) = ModelResult::from_entry(bytes);
        let machine = &self.machines[at];
        let context = format!(
            "seed {}: machine {at} sends {result:?} for {call:?} ({case}, {class:?}), head {}, final {:?}",
            self.seed,
            machine.path.head(),
            machine.last_final
        );
        let is_right = match call {
            ModelCall::BlockByHash(block) => result.block == block,
            ModelCall::Block(height) | ModelCall::Logs(height) | ModelCall::State(height) => {
                let is_final = height <= machine.final_mark;
                assert!(is_final || class != LifetimeClass::Immutable, "{context}");
                result.height == height && machine.path.block_at(height) == Some(result.block)
            }
        };
        if !is_right {
            // by the finality of a node that is wrong, and the reader does not know the block
            let is_exempt = self.finality == FinalityOfBranches::Wrong
                && [result.machine, at].contains(&BRANCHING)
                && class == LifetimeClass::Immutable
                && (matches!(call, ModelCall::State(_)) || result.height <= machine.known_from);
            assert!(is_exempt, "{context}");
            self.coverage.count("exempt");
        }
        self.purges.check_response(at, call, &result, &context);
    }
}
