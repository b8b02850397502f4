//! Writer of a witness as the RLP `[headers, codes, state]`, or `[headers, codes, state, keys]`
//! with an empty list of keys.

use std::ops::Range;

use crate::ssz::check::{ContainerFieldRanges, VariableElementRanges};
use crate::ssz::error::SszError;
use crate::ssz::rlp::{read_rlp_prefix, rlp_string_prefix, write_rlp_prefix};
use crate::ssz::schema::{ContainerLayout, Schema};

/// Lists in the order of the RLP, and whether their elements are RLP already.
const WITNESS_LISTS: [(&str, bool); 3] = [("headers", true), ("codes", false), ("state", false)];

/// A writer of one execution witness as RLP, prefix by prefix, and its progress.
#[derive(Debug)]
pub(super) struct WitnessRlpWriter {
    lists: [RlpWitnessList; 3],
    has_keys: bool,
    /// Index of the list that is being written.
    list: usize,
    /// Index of its next element, or `None` if its prefix is next.
    element: Option<usize>,
}

/// A list of a witness: its position in the SSZ, and the length of its RLP.
#[derive(Clone, Debug)]
struct RlpWitnessList {
    range: Range<usize>,
    is_rlp: bool,
    /// Length of the content after the prefix, in bytes.
    len: u64,
}

/// The part of the RLP that the caller must write next.
pub(super) enum NextRlpOutput {
    /// These bytes, followed by a range of the SSZ.
    Bytes(Vec<u8>, Range<usize>),
    Over,
}

impl WitnessRlpWriter {
    /// Creates a writer for a checked value, and returns it with the prefix of the RLP.
    ///
    /// # Errors
    /// The type lacks a field of a witness, or a header is not RLP.
    pub(super) fn new(
        schema: &Schema,
        container: &ContainerLayout,
        ssz: &[u8],
        range: Range<usize>,
        has_keys: bool,
    ) -> Result<(Self, Vec<u8>), SszError> {
        let at = range.start;
        let parts: Vec<Range<usize>> =
            ContainerFieldRanges::new(schema, container, ssz, range)?.collect::<Result<_, _>>()?;
        let list = |(name, is_rlp): (&str, bool)| {
            let part = container.names.find_field(name.as_bytes());
            let Some(range) = part.and_then(|part| parts.get(part)) else {
                return Err(SszError::from_message(
                    at,
                    format!("not a witness: it has no {name}"),
                ));
            };
            RlpWitnessList::new(ssz, range.clone(), is_rlp)
                .map_err(|error| error.prepend_field(name))
        };
        let [headers, codes, state] = WITNESS_LISTS.map(list);
        let lists = [headers?, codes?, state?];
        let whole = lists.iter().map(|list| rlp_prefix_len(list.len) + list.len);
        let whole = whole.sum::<u64>() + u64::from(has_keys);
        let mut begin = Vec::new();
        write_rlp_prefix(true, whole, &mut begin);
        let witness = Self {
            lists,
            has_keys,
            list: 0,
            element: None,
        };
        Ok((witness, begin))
    }

    /// Returns the next bytes to write, and the range of the SSZ to write after them;
    /// [`NextRlpOutput::Over`] at the end.
    pub(super) fn next_rlp_part(&mut self, ssz: &[u8]) -> Result<NextRlpOutput, SszError> {
        let mut bytes = Vec::new();
        let Some(list) = self.lists.get(self.list) else {
            if !std::mem::take(&mut self.has_keys) {
                return Ok(NextRlpOutput::Over);
            }
            write_rlp_prefix(true, 0, &mut bytes);
            return Ok(NextRlpOutput::Bytes(bytes, 0..0));
        };
        let Some(element) = self.element else {
            write_rlp_prefix(true, list.len, &mut bytes);
            self.element = Some(0);
            return Ok(NextRlpOutput::Bytes(bytes, 0..0));
        };
        match VariableElementRanges::new(ssz, list.range.clone())?.element_range(element)? {
            Some(range) => {
                self.element = Some(element + 1);
                if !list.is_rlp {
                    bytes = rlp_string_prefix(&ssz[range.clone()]).unwrap_or_default();
                }
                Ok(NextRlpOutput::Bytes(bytes, range))
            }
            None => {
                self.list += 1;
                self.element = None;
                Ok(NextRlpOutput::Bytes(bytes, 0..0))
            }
        }
    }
}

impl RlpWitnessList {
    /// Checks the offsets of the list in `range`, and adds up the length of its RLP. `is_rlp`: each
    /// element must be a list in RLP.
    fn new(ssz: &[u8], range: Range<usize>, is_rlp: bool) -> Result<Self, SszError> {
        let elements = VariableElementRanges::new(ssz, range.clone())?;
        let mut len = 0;
        for (n, element) in elements.enumerate() {
            let element = element?;
            let bytes = &ssz[element.clone()];
            len += bytes.len() as u64;
            if is_rlp {
                let is_list = |item: crate::ssz::rlp::RlpPrefix| {
                    item.is_list && item.len.saturating_add(item.size as u64) == bytes.len() as u64
                };
                if !read_rlp_prefix(bytes).is_ok_and(|item| item.is_some_and(is_list)) {
                    return Err(
                        SszError::from_message(element.start, "not the RLP of a list")
                            .prepend_element(n),
                    );
                }
            } else if let Some(prefix) = rlp_string_prefix(bytes) {
                len += prefix.len() as u64;
            }
        }
        Ok(Self { range, is_rlp, len })
    }
}

/// Returns the length in bytes of the prefix of a list with `len` bytes.
fn rlp_prefix_len(len: u64) -> u64 {
    let mut prefix = Vec::new();
    write_rlp_prefix(true, len, &mut prefix);
    prefix.len() as u64
}
