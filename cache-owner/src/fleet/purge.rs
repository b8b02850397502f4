//! Purges of this owner: their publication, and the confirmations of all owners.
//!
//! ```text
//!  begin_purge ─▶ local purge ─▶ publish: outbox ─▶ stream task: XADD ─▶ confirmations of all owners
//! ```
//!
//! A purge begins before the local purge: from then on no value in its scope is used, so that no
//! value from before it returns to this owner. An owner confirms a record when its local purge is
//! complete, and its position is stored.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::Duration;

use sszip_core::cache::entry::store_attributes::{PurgeScope, StoredEntryAttributes};
use sszip_core::cache::fleet::keyring::FleetKeyring;
use sszip_core::cache::fleet::stream_record::{PublishedPurge, PurgeName, PurgeRecordKind};
use sszip_core::cache::fleet::stream_sync::{StreamLimits, StreamSync, LEASE_MS};
use sszip_core::cache::CacheKey;
use sszip_core::config::fleet::FleetSettings;
use sszip_core::lock::lock_ignoring_poison;
use tokio::sync::Notify;
use tokio::task::spawn_blocking;
use tokio::time::{sleep, timeout_at, Instant};

use super::client::FleetClient;
use super::owner_identity::OwnerIdentity;
use super::owner_table::{ConfirmationCount, OwnerTable};
use super::position_file::FleetFiles;
use super::purge_report::{FleetPurgeCounts, FleetPurgeReport, FleetStreamStatus};
use super::random_name;
use super::stream_replies::parse_confirmations;
use crate::clock::read_clocks;
use crate::log::{LogFunction, LogLevel};

/// Timeout of a command about the purge stream.
pub(super) const STREAM_TIMEOUT: Duration = Duration::from_millis(500);

/// Maximum time for which the table of owners is incomplete after a loss: until all owners have
/// noticed that the server has lost it, and have confirmed a position again. In milliseconds.
const TABLE_LOSS_MS: u64 = 2 * LEASE_MS;

/// Time for which a purge waits longer, at most, while the table may be incomplete. With the
/// longest `purge_wait` it is below the 10 s after which proxies give up a purge.
const TABLE_LOSS_WAIT: Duration = Duration::from_millis(TABLE_LOSS_MS);

/// Interval between reads of the confirmations.
const CONFIRMATION_INTERVAL: Duration = Duration::from_millis(100);

/// Time for which a purge waits for its publication if the server was not reachable before.
const UNREACHABLE_WAIT: Duration = Duration::from_millis(250);

/// The purges of a fleet, as far as this owner knows them, and its own that are published.
pub struct FleetPurges {
    sync: Mutex<StreamSync>,
    pub(super) owners: Mutex<OwnerTable>,
    pub(super) client: FleetClient,
    pub(super) files: FleetFiles,
    /// Beginning of the log lines.
    pub(super) subject: String,
    pub(super) log: OnceLock<LogFunction>,
    /// Name of the stream on the server.
    pub(super) stream: String,
    /// Name of the table of owners on the server.
    pub(super) owner_table: String,
    /// Id of this owner, which is its name in that table.
    pub(super) identity: Mutex<OwnerIdentity>,
    purge_wait: Duration,
    /// Time of the start, in monotonic milliseconds.
    started_at: u64,
    /// Notifies the stream task of a purge to publish.
    pub(super) wake: Notify,
    /// Notifies purges of a publication.
    pub(super) published: Notify,
    /// Whether the last command about the stream has failed.
    pub(super) is_unreachable: AtomicBool,
    /// Whether there may be an outbox file, which is written by one task at a time.
    has_outbox_file: tokio::sync::Mutex<bool>,
}

impl FleetPurges {
    /// Creates the purges of an owner whose store is in the folder `store`, and reads its files.
    pub(crate) fn new(
        settings: &FleetSettings,
        store: &Path,
        client: FleetClient,
        keyring: Arc<FleetKeyring>,
    ) -> Self {
        let files = FleetFiles::new(store);
        let owner = files.read_or_create_owner_id();
        let outbox = files.read_outbox();
        let has_outbox_file = !outbox.is_empty();
        let sync = StreamSync::new(
            keyring,
            owner,
            StreamLimits::default(),
            files.read_position(),
            outbox,
            // higher than before the restart: it moves
            read_clocks().unix,
        );
        let prefix = &settings.prefix;
        Self {
            sync: Mutex::new(sync),
            owners: Mutex::default(),
            client,
            files,
            subject: format!("fleet {}", settings.endpoint),
            log: OnceLock::new(),
            stream: format!("{prefix}:purges"),
            owner_table: format!("{prefix}:owners"),
            identity: Mutex::new(OwnerIdentity::new(owner)),
            purge_wait: Duration::from_millis(settings.purge_wait_ms),
            started_at: read_clocks().monotonic,
            wake: Notify::new(),
            published: Notify::new(),
            is_unreachable: AtomicBool::new(false),
            has_outbox_file: tokio::sync::Mutex::new(has_outbox_file),
        }
    }

    pub(super) fn lock_sync(&self) -> MutexGuard<'_, StreamSync> {
        lock_ignoring_poison(&self.sync)
    }

    pub(super) fn log_line(&self, level: LogLevel, text: &str) {
        if let Some(log) = self.log.get() {
            log(level, &format!("{}: {text}", self.subject));
        }
    }

    /// Whether values may be used at `now`, in monotonic milliseconds.
    pub fn is_current(&self, now: u64) -> bool {
        self.lock_sync().is_current(now)
    }

    /// Returns the position for a value; `None` if no value may be stored. It is read before the
    /// entry is compared with the purges of the owner's store.
    pub fn position(&self) -> Option<u64> {
        self.lock_sync().position()
    }

    /// Whether a value must not be used. The purge generation of the entry that is made of it is
    /// read before.
    pub fn covers(&self, position: u64, key: &CacheKey, about: &StoredEntryAttributes) -> bool {
        self.lock_sync().covers(position, key, about)
    }

    /// Begins a purge, before the local one: values in its scope are not used from now on. The purge
    /// ends if the result is dropped.
    pub fn begin_purge(self: &Arc<Self>, scope: &PurgeScope) -> BegunFleetPurge {
        self.begin(PurgeRecordKind::Purge, scope)
    }

    /// Begins a purge of values only, before the local purge: the finality of their blocks was
    /// reverted on this owner's node, and the entries of other owners stay.
    pub fn begin_values_only(self: &Arc<Self>, scope: &PurgeScope) -> BegunFleetPurge {
        self.begin(PurgeRecordKind::ValuesOnly, scope)
    }

    fn begin(self: &Arc<Self>, kind: PurgeRecordKind, scope: &PurgeScope) -> BegunFleetPurge {
        let name = random_name();
        let scope = scope.clone();
        self.lock_sync()
            .begin_purge(PublishedPurge { kind, name, scope });
        BegunFleetPurge {
            purges: Arc::clone(self),
            name,
        }
    }

    /// Returns the state of the stream.
    pub fn status(&self) -> FleetStreamStatus {
        let complete_from = self.owners_complete_from();
        let owners = lock_ignoring_poison(&self.owners).owner_count(complete_from);
        let sync = self.lock_sync();
        let counters = sync.counters();
        let now = read_clocks().monotonic;
        let age = |at: u64| now.saturating_sub(at) as f64 / 1_000.0;
        FleetStreamStatus {
            age_seconds: sync.last_poll_time().map(age),
            fences: counters.fences,
            purges: FleetPurgeCounts {
                local: counters.published,
                fleet: counters.received,
            },
            unreadable: counters.unreadable,
            pending: sync.outbox().len(),
            owners,
            position: sync.position(),
        }
    }

    /// Returns the time from which on the table of owners has all live ones, in monotonic
    /// milliseconds. Another owner may have noticed a loss just before the start of this one.
    fn owners_complete_from(&self) -> u64 {
        let after_start = self.started_at.saturating_add(TABLE_LOSS_MS);
        self.lock_sync().owners_known_from().max(after_start)
    }

    /// Whether the table of owners is to be read, as it was not since it has all live ones.
    pub(super) fn is_owner_count_due(&self) -> bool {
        let complete_from = self.owners_complete_from();
        let is_counted = lock_ignoring_poison(&self.owners)
            .owner_count(complete_from)
            .is_some();
        !is_counted
            && read_clocks().monotonic >= complete_from
            && !self.is_unreachable.load(Ordering::Relaxed)
    }

    /// Waits until the server has accepted a purge, and returns its position.
    async fn wait_for_publication(&self, name: &PurgeName, deadline: Instant) -> Option<u64> {
        loop {
            let published = self.published.notified();
            tokio::pin!(published);
            // enabled first: a notification between the two is not missed
            published.as_mut().enable();
            let position = self.lock_sync().published_position(name);
            if position.is_some() {
                return position;
            }
            timeout_at(deadline, published).await.ok()?;
        }
    }

    /// Waits until all owners have confirmed a purge.
    async fn wait_for_confirmations(
        &self,
        name: &PurgeName,
        published: u64,
        since: u64,
        deadline: Instant,
    ) -> FleetPurgeReport {
        let (mut position, mut since) = (published, since);
        loop {
            self.read_owner_table().await;
            let present = self.lock_sync().published_position(name);
            if present.is_some_and(|present| present != position) {
                // the stream was lost, and the purge was published again
                position = present.unwrap_or(position);
                since = lock_ignoring_poison(&self.owners).update_count();
            }
            let (count, is_own_known) = {
                let own = lock_ignoring_poison(&self.identity).name().to_owned();
                let owners = lock_ignoring_poison(&self.owners);
                let is_own_known = owners.has_confirmed(own.as_bytes(), position, since);
                (owners.count_confirmations(position, since), is_own_known)
            };
            let ConfirmationCount {
                owners,
                confirmed,
                silent,
            } = count;
            // other owners confirm records of a new stream, which may lack this purge: after a loss
            // they wait until this owner has noticed it or its last poll is too old
            let now = read_clocks().monotonic;
            let (is_current, is_table_known) = {
                let sync = self.lock_sync();
                (sync.is_current(now), now >= sync.owners_known_from())
            };
            let is_complete = is_current
                && is_table_known
                && is_own_known
                && present.is_some()
                && confirmed == owners;
            if is_complete {
                self.lock_sync().record_purge_confirmed(name);
            }
            // without the other owners the report would seem complete
            let deadline = match is_table_known {
                true => deadline,
                false => deadline + TABLE_LOSS_WAIT,
            };
            if is_complete || Instant::now() + CONFIRMATION_INTERVAL > deadline {
                // this owner exists, though the table may not have it
                let owners = owners.max(confirmed + u64::from(!is_own_known));
                return FleetPurgeReport::Published {
                    position,
                    owners,
                    confirmed,
                    silent,
                };
            }
            sleep(CONFIRMATION_INTERVAL).await;
        }
    }

    /// Reads the table of owners.
    pub(super) async fn read_owner_table(&self) {
        let mut command = redis::cmd("HGETALL");
        command.arg(&self.owner_table);
        // before the command: the table has this one, or a later one
        let confirmed = self.lock_sync().confirmed_counter();
        let reply = self.client.command(command, STREAM_TIMEOUT).await;
        if let Some(confirmations) = reply.ok().and_then(parse_confirmations) {
            let now = read_clocks().monotonic;
            if let Some(confirmed) = confirmed {
                let mut identity = lock_ignoring_poison(&self.identity);
                identity.compare_with_table(&confirmations, confirmed, now);
            }
            lock_ignoring_poison(&self.owners).update(confirmations, now);
        }
    }

    /// Stores the purges that are not published yet, so that a restart does not lose them.
    pub(super) async fn save_outbox(&self) {
        let mut has_file = self.has_outbox_file.lock().await;
        let outbox = self.lock_sync().outbox();
        *has_file = !outbox.is_empty();
        let files = self.files.clone();
        let written = spawn_blocking(move || files.write_outbox(&outbox)).await;
        if let Ok(Err(error)) = written {
            let text = format!(
                "cannot write the purges that are not published: {error}; repeat them after a restart"
            );
            self.log_line(LogLevel::Error, &text);
        }
    }

    /// Updates the outbox file after a publication, if there is one.
    pub(super) async fn update_outbox_file(&self) {
        let has_file = *self.has_outbox_file.lock().await;
        if has_file {
            self.save_outbox().await;
        }
    }
}

/// A purge whose local part is running.
pub struct BegunFleetPurge {
    purges: Arc<FleetPurges>,
    name: PurgeName,
}

impl BegunFleetPurge {
    /// Queues the purge, whose local part is complete, and waits for its publication. Returns its
    /// position and the deadline for confirmations.
    async fn queue(&self) -> Option<(u64, Instant)> {
        let purges = &self.purges;
        let deadline = Instant::now() + purges.purge_wait;
        let until = match purges.is_unreachable.load(Ordering::Relaxed) {
            true => deadline.min(Instant::now() + UNREACHABLE_WAIT),
            false => deadline,
        };
        purges.lock_sync().queue_purge(&self.name);
        purges.wake.notify_one();
        let position = purges.wait_for_publication(&self.name, until).await?;
        Some((position, deadline))
    }

    /// Publishes the purge, whose local part is complete, and waits until all owners have confirmed
    /// it, for `purge_wait` at most.
    pub async fn publish(self) -> FleetPurgeReport {
        let purges = &self.purges;
        if !purges.is_unreachable.load(Ordering::Relaxed) {
            // owners that are alive change their confirmations after that
            purges.read_owner_table().await;
        }
        let since = lock_ignoring_poison(&purges.owners).update_count();
        match self.queue().await {
            Some((position, deadline)) => {
                purges
                    .wait_for_confirmations(&self.name, position, since, deadline)
                    .await
            }
            None => {
                purges.save_outbox().await;
                FleetPurgeReport::Pending
            }
        }
    }

    /// Publishes the purge, whose local part is complete, without waiting for other owners.
    pub async fn publish_unconfirmed(self) {
        if self.queue().await.is_none() {
            self.purges.save_outbox().await;
        }
    }
}

impl Drop for BegunFleetPurge {
    fn drop(&mut self) {
        // no effect if it was queued
        self.purges.lock_sync().cancel_purge(&self.name);
    }
}
