//! Logs of a block that are derived from its stored receipts, and their comparison with the node's.

use super::logs_comparison::derived_logs_memory;
use super::target::FillTarget;
use super::CacheFill;
use crate::cache::entry::CacheEntry;
use crate::cache::reason::Reason;
use crate::cache::vary_key::{decode_namespace_name, truncated_blake3};
use crate::jsonrpc::batch_elements::OutOfMemory;
use crate::jsonrpc::log_filter::LogFilter;
use crate::jsonrpc::receipt_logs::{matching_logs, MatchingLogs};
use crate::jsonrpc::response::{classify_result_content, ResultEmptiness};
use crate::memory;

impl CacheFill {
    /// Derives the entry of the fill's call for logs from the receipts of its block, whose strict
    /// check is done, and returns it with the receipts' remaining lifetime in milliseconds. The
    /// caller has reserved [`derived_logs_memory`].
    ///
    /// # Errors
    /// [`Reason::Result`] if there is any doubt about the logs, [`Reason::Memory`] if memory is
    /// refused.
    pub(in crate::exchange) fn derive_logs_entry(
        &self,
        receipts: &CacheEntry,
    ) -> Result<(CacheEntry, u64), Reason> {
        let logs = self.derive_logs(receipts)?;
        let meta = receipts.response_metadata().clone();
        let valid = meta.expires_at.saturating_sub(self.settings.sent_at);
        let entry = CacheEntry::from_fetched_result(
            receipts.response_envelope().clone(),
            &logs.result,
            self.settings.gate,
            meta,
        );
        let entry = entry.ok_or(Reason::Memory)?;
        self.shared.derived_logs.record_derived_response();
        Ok((entry, valid))
    }

    /// Returns the logs in the receipts that the fill's call requests.
    fn derive_logs(&self, receipts: &CacheEntry) -> Result<MatchingLogs, Reason> {
        let text = receipts.decode_payload().ok_or(Reason::Memory)?;
        let params = match &self.target {
            FillTarget::Call(wanted) => wanted.params.as_deref(),
            FillTarget::Batch(_) | FillTarget::Resource(_) => None,
        };
        let filter = params.and_then(LogFilter::read).ok_or(Reason::Result)?;
        let logs = matching_logs(&text, &filter).map_err(|OutOfMemory| Reason::Memory)?;
        match logs.filter(|logs| !self.contradicts_known_chain(&logs.block)) {
            Some(logs) => Ok(logs),
            None if memory::is_memory_short() => Err(Reason::Memory),
            None => Err(Reason::Result),
        }
    }

    /// Records the node's result for the comparison with the receipts, if there is one. An empty list
    /// does not show how the node writes logs: there are none, or the node does not have the block.
    pub(super) fn record_result_to_compare(&self, result: &[u8]) {
        if classify_result_content(result) == ResultEmptiness::EmptyArray {
            return;
        }
        if let Some(compared) = &self.receipts {
            compared.result.set(Some(*blake3::hash(result).as_bytes()));
        }
    }

    /// Compares the node's logs with the logs in the receipts, if that is due. May take
    /// milliseconds for each megabyte.
    pub(super) fn compare_with_receipts(&mut self) {
        let Some(compared) = self.receipts.take() else {
            return;
        };
        let Some(result) = compared.result.get().filter(|_| !self.rekeyed) else {
            return;
        };
        if !self.reserve_build_memory(0, derived_logs_memory(&compared.receipts)) {
            return;
        }
        let Ok(logs) = self.derive_logs(&compared.receipts) else {
            return;
        };
        let is_equal = *blake3::hash(&logs.result).as_bytes() == result;
        let vary_key = truncated_blake3(self.scope.vary_key_bytes());
        let (trust, generation) = (&self.shared.derived_logs, self.settings.generation);
        if is_equal {
            trust.record_equal_response(&vary_key, generation);
        } else if trust.record_different_response(&vary_key, generation) {
            self.log_different_logs(logs.block.number);
        }
    }

    /// Logs that no logs are derived any more, after a difference in a block.
    fn log_different_logs(&self, block: u64) {
        let name = decode_namespace_name(self.scope.namespace_key_bytes()).escape_ascii();
        self.shared.verified.queue_log_line(format!(
            "logs of namespace \"{name}\" are not derived from receipts until the next purge or \
             reload: the node's logs of block {block} differ from the logs in its receipts"
        ));
    }
}
