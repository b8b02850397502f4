//! Lists of logs whose range the node has proven to have.

use super::range_ends::CallBlockDependency;
use super::{CallLifetimeRules, ResponseClassification, ResponseClassificationInput};
use crate::cache::chain::HeightUnit;
use crate::cache::class::LifetimeClass;
use crate::jsonrpc::plausible::{self, ResultPlausibility};
use crate::jsonrpc::response::{classify_result_content, ResultEmptiness};

/// Maximum lifetime in milliseconds of an empty list. Some nodes have blocks and no receipts, and
/// respond with an empty list for each range.
const MAX_EMPTY_LIST_LIFETIME_MS: u64 = 3_600_000;

impl CallLifetimeRules {
    /// Classifies the result of a call for a range of final blocks, when the same response has
    /// shown that the node has both ends of the range: the result is complete, though it may be
    /// empty, and immutable. Returns `None` if the blocks are not final, or if the result was not
    /// read as a whole or contradicts itself.
    pub fn classify_proven_range(
        &self,
        result: &[u8],
        known: ResponseClassificationInput<'_>,
    ) -> Option<ResponseClassification> {
        let mark = known.mark?;
        let is_followed = mark.heights == HeightUnit::Blocks && mark.is_known && !mark.is_wrong;
        let named = CallBlockDependency::dependency_for_call(self.method_row, known.params);
        let CallBlockDependency::UpTo(last) = named else {
            return None;
        };
        let plausibility =
            plausible::check_result_plausibility(self.method_row, known.params, result);
        let is_complete =
            is_followed && mark.is_height_final(last) && plausibility == ResultPlausibility::Read;
        let class = LifetimeClass::Immutable;
        let classified = self.classification_for_class(class, Some(last), known.valid, Some(mark));
        let classified = classified.filter(|_| is_complete)?;
        let longest = match classify_result_content(result) {
            ResultEmptiness::EmptyArray => MAX_EMPTY_LIST_LIFETIME_MS,
            _ => u64::MAX,
        };
        Some(ResponseClassification {
            valid: classified.valid.min(longest),
            is_read: true,
            ..classified
        })
    }
}
