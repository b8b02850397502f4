//! Fetches from the nodes, and the values that machines write.

use std::time::Duration;

use sszip_core::cache::chain::HeightUnit;
use sszip_core::cache::class::LifetimeClass;
use sszip_core::cache::fleet::sharing::{is_shareable, value_lifetime};
use sszip_core::cache::fleet::value::{encode_fleet_value, FleetValueParts};
use sszip_core::cache::owner::memory_tier::OwnerMemoryEntry;
use sszip_core::cache::owner::tracker::ChainIdentity;
use sszip_core::cache::owner_protocol::process_message::StoreRequest;

use super::FleetWorld;
use crate::calls::{ModelCall, ModelResult, NAMESPACE};

impl FleetWorld {
    /// Fetches a response from the node of a machine, and stores it.
    pub(super) fn fetch(&mut self, at: usize, call: ModelCall) {
        let (fetched_at, now) = (self.next_time(), self.clocks(at));
        let machine = &self.machines[at];
        let Some((height, block)) = call.block_on(&machine.path) else {
            return;
        };
        let result = ModelResult {
            height,
            block,
            fetched_at,
            machine: at,
        };
        let state = machine.owner.chain_state_of_namespace(&NAMESPACE).unwrap();
        let is_final = state.known && machine.last_final.is_some_and(|last| height <= last);
        let generation = machine.owner.owner_store().purge_generation();
        let response = result.to_response(call, is_final, generation, state.epoch);
        let fresh = match response.about.class {
            LifetimeClass::Immutable => 3_600_000,
            _ if self.random.happens_once_in(20) => 1_000,
            _ => 2_000 + self.random.below(60_000),
        };
        let store = StoreRequest {
            id: 0,
            key: call.cache_key(),
            about: response.about,
            fresh,
            age: 10,
            if_final: None,
            is_shareable: true,
            anchor: response.anchor,
            total: response.entry.len() as u64,
            entry: Vec::<u8>::new().into(),
        };
        let stored = machine
            .owner
            .store_fetched_entry(None, store, response.entry, now);
        if let Ok(stored) = stored {
            self.offer(at, call, &stored.entry);
            // some writes take longer
            if !self.random.happens_once_in(3) {
                self.write_value(at);
            }
        }
    }

    /// Offers an entry to the fleet, as the owner's queue of stores does.
    pub(super) fn offer(
        &mut self,
        at: usize,
        call: ModelCall,
        entry: &OwnerMemoryEntry,
    ) -> Option<()> {
        let (now, key) = (self.clocks(at), call.cache_key());
        let random = self.random.next();
        let machine = &mut self.machines[at];
        let (about, anchor) = (entry.entry_store_attributes(), entry.block_anchor());
        if !is_shareable(about, anchor.as_ref()) {
            return None;
        }
        let position = machine.sync.position()?;
        let state = machine.owner.chain_state_of_namespace(&NAMESPACE)?;
        let genesis = state.genesis.filter(|_| state.known && !state.wrong)?;
        let fresh = entry.remaining_ttl(now);
        if value_lifetime(fresh, Duration::from_secs(86_400), random).is_none() {
            self.coverage.count("not stored: short lifetime");
            return None;
        }
        if !machine.owner.is_entry_unpurged(&key, entry) || !entry.claim_fleet_offer() {
            return None;
        }
        let parts = FleetValueParts {
            key: &key,
            about,
            anchor,
            identity: ChainIdentity {
                chain_id: state.chain_id,
                // a machine with another chain under the same namespace
                genesis: if random.is_multiple_of(40) {
                    [8; 32]
                } else {
                    genesis
                },
            },
            heights: HeightUnit::Blocks,
            position,
            requested_at: now.unix - entry.age_ms(now),
            expires_at: now.unix + fresh,
            stored_at: now.unix,
            entry: entry.encoded_bytes(),
        };
        let value = encode_fleet_value(&parts, &self.keyring).unwrap();
        machine.writes.push((key, value));
        Some(())
    }

    pub(super) fn write_value(&mut self, at: usize) {
        let machine = &mut self.machines[at];
        let count = machine.writes.len() as u64;
        if machine.is_up && count > 0 {
            let (key, value) = machine
                .writes
                .swap_remove(self.random.below(count) as usize);
            self.server.write_value(key, value);
        }
    }
}
