//! The entry of a call for logs that is assembled from other entries, and the response from it.

use std::sync::Arc;

use super::assembly_input::{LogAssembly, LogAssemblySource};
use super::join::join_log_pieces;
use super::LOGS_METHOD;
use crate::cache::entry::CacheEntry;
use crate::cache::process::log_splits::LogSplitEvent;
use crate::cache::reason::Reason;
use crate::cache::status::CacheStatus;
use crate::exchange::cache::fill::CacheFill;
use crate::exchange::cache::lookup::request::LookupRequest;
use crate::exchange::cache::lookup::result::LookupResult;
use crate::exchange::cache::waiting::PurgeAndChainSnapshot;
use crate::exchange::machine::Exchange;
use crate::exchange::response::pipeline::EntryReservations;
use crate::exchange::response::ready_response::{ReadyResponse, StoredResponseToDecode};
use crate::memory;

/// An assembled entry, with its lifetime in milliseconds and the highest block that it shows.
#[derive(Debug)]
struct AssembledEntry {
    entry: CacheEntry,
    valid: u64,
    shown: Option<u64>,
}

impl Exchange {
    /// Responds with an entry that is assembled now, or by a job if that takes too long for an event
    /// loop. If the assembly fails, the call is a miss, whose response its fill stores.
    pub(in crate::exchange) fn respond_with_assembled_logs(
        &mut self,
        assembly: Box<LogAssembly>,
        lookup: &LookupRequest<'_>,
    ) -> LookupResult {
        let most = self.max_bytes_on_event_loop(self.hit_coding(None, lookup));
        if assembly.source.decoded_length() > most {
            let decoding = StoredResponseToDecode::Logs(assembly);
            return LookupResult::HitToDecode(Box::new(decoding));
        }
        match self.assemble_logs_response(*assembly, lookup) {
            Ok(answer) => LookupResult::Hit(answer),
            Err(fill) => {
                self.cache_status = CacheStatus::Miss;
                if let Some(reason) = self.lookup_findings.unusable_reason.take() {
                    self.cache_reason = reason;
                }
                self.storing.fill = fill;
                LookupResult::Miss
            }
        }
    }

    /// Assembles the entry, stores it for other clients, and responds with it. May take
    /// milliseconds for each megabyte. If that fails, the fill is returned, unless it has ended.
    pub(in crate::exchange) fn assemble_logs_response(
        &mut self,
        assembly: LogAssembly,
        lookup: &LookupRequest<'_>,
    ) -> Result<Box<ReadyResponse>, Option<Box<CacheFill>>> {
        let is_split = matches!(assembly.source, LogAssemblySource::Pieces(_));
        let response = self.publish_and_send_logs(assembly, lookup);
        if is_split {
            self.count_log_split(match response {
                Ok(_) => LogSplitEvent::Assembled,
                Err(_) => LogSplitEvent::Abandoned,
            });
        }
        response
    }

    /// Counts the end of a split.
    pub(in crate::exchange) fn count_log_split(&self, event: LogSplitEvent) {
        let shared = &self.route_config.process.shared;
        shared.log_splits.count_event(event as usize);
    }

    fn publish_and_send_logs(
        &mut self,
        assembly: LogAssembly,
        lookup: &LookupRequest<'_>,
    ) -> Result<Box<ReadyResponse>, Option<Box<CacheFill>>> {
        let LogAssembly {
            key,
            id,
            source,
            fill,
            since,
            has_fetched,
        } = assembly;
        let entry = self.publish_assembled_logs(source, fill, &since, lookup.now)?;
        self.mark_usable_when_stale(&entry);
        if has_fetched {
            self.lookup_findings.served_status = Some(CacheStatus::Miss);
        }
        let answer = match self.exceeds_response_limit(&entry, Some(&id[..])) {
            true => self.respond_with_limit_error(),
            false => {
                let coding = self.hit_coding(Some(&entry), lookup);
                let borrowed = EntryReservations::default();
                self.respond_with_entry(&entry, Some(&id[..]), coding, lookup, borrowed)
            }
        };
        if answer.is_none() {
            self.lookup_findings.served_status = None;
            self.lookup_findings.unusable_reason = Some(Reason::Memory);
        }
        if let Some(hot) = self.route_config.process.shared.hot_tier() {
            // the entry may have another form from now on
            hot.update_entry_weight(&key, &entry);
        }
        answer.ok_or(None)
    }

    /// Assembles the entry, stores it for other clients, and returns it. If that fails, the fill is
    /// returned, unless it has ended.
    pub(in crate::exchange) fn publish_assembled_logs(
        &mut self,
        source: LogAssemblySource,
        fill: Box<CacheFill>,
        since: &PurgeAndChainSnapshot,
        now: u64,
    ) -> Result<Arc<CacheEntry>, Option<Box<CacheFill>>> {
        let shared = Arc::clone(&self.route_config.process.shared);
        let assembled = self.assemble_logs_entry(&source, &fill, now);
        let assembled = match assembled {
            // memory has become short meanwhile, and nothing is stored
            Ok(_) if memory::is_memory_short() => Err(Reason::Memory),
            assembled => assembled,
        };
        let assembled = match assembled {
            Ok(assembled) if source.is_usable(&shared, since) => assembled,
            // purged, or replaced by a reorganisation meanwhile
            Ok(_) => return Err(Some(fill)),
            Err(reason) => {
                self.lookup_findings.unusable_reason = Some(reason);
                return Err(Some(fill));
            }
        };
        drop(source);
        let AssembledEntry {
            entry,
            valid,
            shown,
        } = assembled;
        let published = fill.publish_assembled_entry(entry, LOGS_METHOD, valid, shown, now);
        published.map_err(|reason| {
            self.lookup_findings.unusable_reason = Some(reason);
            None
        })
    }

    /// Assembles the entry from its sources. The error is the reason why it can't be; a source that
    /// is damaged is removed.
    fn assemble_logs_entry(
        &mut self,
        source: &LogAssemblySource,
        fill: &CacheFill,
        now: u64,
    ) -> Result<AssembledEntry, Reason> {
        let limit = usize::try_from(self.route_config.memory).unwrap_or(usize::MAX);
        let budget = self.route_config.process.budget.clone();
        if memory::is_memory_short() {
            return Err(Reason::Memory);
        }
        let memory = budget.reserve_bytes(source.required_memory(), limit);
        let _memory = memory.ok_or(Reason::Memory)?;
        match source {
            LogAssemblySource::Pieces(pieces) => {
                let joined = match join_log_pieces(pieces, &budget, limit) {
                    Ok(joined) => joined,
                    Err(failure) => {
                        let damaged = failure.damaged.and_then(|at| pieces.get(at));
                        if let Some(piece) = damaged.filter(|_| failure.reason != Reason::Memory) {
                            self.remove_damaged_entry(
                                &piece.key,
                                &piece.entry,
                                failure.reason,
                                now,
                            );
                            self.pause_log_split(now);
                        }
                        return Err(failure.reason);
                    }
                };
                let envelope = pieces.first().map(|piece| piece.entry.response_envelope());
                let valid = fill.lifetime_until(joined.meta.expires_at);
                let entry = CacheEntry::from_fetched_result(
                    envelope.ok_or(Reason::Result)?.clone(),
                    &joined.result,
                    self.compression_gate(),
                    joined.meta,
                );
                Ok(AssembledEntry {
                    entry: entry.ok_or(Reason::Memory)?.mark_range_proven(),
                    valid,
                    shown: joined.last_block,
                })
            }
            LogAssemblySource::Receipts(key, receipts) => {
                if let Err(reason) = receipts.check_strictly_within_budget(&budget, limit) {
                    if reason != Reason::Memory {
                        self.remove_damaged_entry(key, receipts, reason, now);
                    }
                    return Err(reason);
                }
                let (entry, valid) = fill.derive_logs_entry(receipts)?;
                Ok(AssembledEntry {
                    entry,
                    valid,
                    shown: None,
                })
            }
        }
    }

    /// Stops the splitting of calls on the route for some seconds.
    pub(super) fn pause_log_split(&self, now: u64) {
        if let Some(split) = &self.route_config.cache.logs_split {
            split.pauses.pause(now);
        }
    }
}
