//! Start of an owner's fleet.

use std::path::Path;
use std::sync::Arc;

use sszip_core::cache::fleet::keyring::FleetKeyring;
use sszip_core::config::fleet::FleetSettings;
use tokio::task::JoinSet;

use super::client::FleetClient;
use super::lease_table::FleetLeases;
use super::purge::FleetPurges;
use super::store_queue::StoreQueue;
use super::stream;
use super::tier::{FleetTier, FleetTierCounters, FleetTierGate};
use crate::engine::OwnerRequestExecutor;
use crate::log::LogFunction;

/// Starts the fleet of an owner whose store is in the folder `store`. Nothing waits for its
/// connections: until they are open and its purges are known, lookups do not query it.
///
/// # Errors
/// The settings cannot be used. The message is for operators.
pub fn start_fleet_tier(
    settings: &FleetSettings,
    store: &Path,
    engine: &Arc<OwnerRequestExecutor>,
    tasks: &mut JoinSet<()>,
    log: LogFunction,
) -> Result<(), String> {
    let keys: Vec<_> = settings
        .key_files
        .iter()
        .map(|key| key.as_bytes().to_vec())
        .collect();
    let keyring = Arc::new(match keys.is_empty() {
        true => FleetKeyring::unkeyed(),
        false => FleetKeyring::from_key_files(&keys)?,
    });
    let client = FleetClient::new(settings, Arc::clone(&log))?;
    let purges = Arc::new(FleetPurges::new(
        settings,
        store,
        client.clone(),
        Arc::clone(&keyring),
    ));
    let tier = Arc::new(FleetTier {
        settings: settings.clone(),
        keyring,
        client,
        purges: Arc::clone(&purges),
        stores: StoreQueue::new(),
        leases: FleetLeases::new(),
        owner: Arc::clone(&engine.owner),
        counters: FleetTierCounters::default(),
    });
    let gate = FleetTierGate::new(&tier);
    engine.owner.set_fleet_gate(Arc::new(gate));
    tasks.spawn(Arc::clone(&tier).write_queued_values());
    tasks.spawn(Arc::clone(&tier).offer_queued_disk_entries());
    stream::start(tasks, purges, Arc::clone(engine), log);
    // an engine has one fleet
    let _ = engine.fleet.set(tier);
    Ok(())
}
