//! Names of a container's fields in JSON.

/// Number of bytes that are copied for a [`FieldPrefix`].
pub const FIELD_PREFIX_BYTES: usize = 48;

const WORD_LENGTH: usize = 8;

/// Reads the first eight bytes, padded with zeros, as a word for comparison.
#[inline(always)]
fn read_comparison_word(bytes: &[u8]) -> u64 {
    bytes
        .first_chunk()
        .map_or(0, |word| u64::from_ne_bytes(*word))
}

/// The JSON names of a container's fields, in which the fields of an object are searched. There are
/// few, so that a search compares all names of the same length.
#[derive(Clone, Debug, Default)]
pub struct FieldNames {
    /// Keys as most nodes write them: `"name":`.
    keys: Box<[Box<[u8]>]>,
    leads: Box<[FieldPrefix]>,
}

/// The constant text before a field's value in JSON, such as `,"name":"0x`, in an array that is
/// copied as a whole.
#[derive(Clone, Debug)]
pub struct FieldPrefix {
    /// The text, padded to the number of bytes that are copied at once.
    pub bytes: Box<[u8]>,
    /// Length of the text without padding.
    pub len: usize,
}

impl FieldNames {
    /// Creates the table from the fields' names and the beginnings of their values, in the order of
    /// the fields.
    pub(super) fn new<'a>(names: impl Iterator<Item = (&'a str, &'static str)>) -> Self {
        let mut keys = Vec::new();
        let mut leads = Vec::new();
        for (n, (name, opening)) in names.enumerate() {
            let before = if n == 0 { '{' } else { ',' };
            let mut lead = format!("{before}\"{name}\":{opening}").into_bytes();
            let len = lead.len();
            lead.resize(len.max(FIELD_PREFIX_BYTES), 0);
            let bytes = lead.into();
            leads.push(FieldPrefix { bytes, len });
            keys.push(format!("\"{name}\":").into_bytes().into());
        }
        Self {
            keys: keys.into(),
            leads: leads.into(),
        }
    }

    /// Returns the length of `"name":` if `bytes` begin with the field's key.
    #[inline(always)]
    pub fn match_field_key(&self, field: usize, bytes: &[u8]) -> Option<usize> {
        let key = self.keys.get(field)?;
        let begin = bytes.get(..key.len())?;
        // words, and the last may overlap: a call that compares a few bytes takes longer
        let (Some(last), Some(other)) = (
            key.last_chunk::<WORD_LENGTH>(),
            begin.last_chunk::<WORD_LENGTH>(),
        ) else {
            return (begin == &**key).then_some(key.len());
        };
        let words = key
            .chunks_exact(WORD_LENGTH)
            .zip(begin.chunks_exact(WORD_LENGTH));
        let mut differs = read_comparison_word(last) ^ read_comparison_word(other);
        for (key, begin) in words {
            differs |= read_comparison_word(key) ^ read_comparison_word(begin);
        }
        (differs == 0).then_some(key.len())
    }

    /// Returns the constant text that precedes the value of a field, by its index.
    ///
    /// # Panics
    /// Panics if the field does not exist.
    pub fn json_field_prefix(&self, field: usize) -> &FieldPrefix {
        &self.leads[field]
    }

    /// Returns the index of the field with this name in JSON.
    pub fn find_field(&self, name: &[u8]) -> Option<usize> {
        self.keys
            .iter()
            .position(|key| key.len() == name.len() + 3 && &key[1..key.len() - 2] == name)
    }
}
