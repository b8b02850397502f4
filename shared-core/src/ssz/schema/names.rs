//! A container's fields by what JSON calls them.

/// The bytes that a [`Lead`] is copied as.
pub const LEAD: usize = 48;

const WORD: usize = 8;

#[inline(always)]
fn word(bytes: &[u8]) -> u64 {
    bytes
        .first_chunk()
        .map_or(0, |word| u64::from_ne_bytes(*word))
}

/// The names of a container's fields in JSON. They are few: one that is looked
/// for is compared with each of its length.
#[derive(Clone, Debug, Default)]
pub struct Names {
    /// `"name":`, as it mostly comes.
    keys: Box<[Box<[u8]>]>,
    leads: Box<[Lead]>,
}

/// What is written before a field's value: `,"name":"0x`.
#[derive(Clone, Debug)]
pub struct Lead {
    /// As many as are copied at once; and all of them, if they are more.
    pub bytes: Box<[u8]>,
    /// How many it is made of.
    pub len: usize,
}

impl Names {
    /// Of names, each with what its value begins with.
    pub(super) fn new<'a>(names: impl Iterator<Item = (&'a str, &'static str)>) -> Self {
        let mut keys = Vec::new();
        let mut leads = Vec::new();
        for (n, (name, opening)) in names.enumerate() {
            let before = if n == 0 { '{' } else { ',' };
            let mut lead = format!("{before}\"{name}\":{opening}").into_bytes();
            let len = lead.len();
            lead.resize(len.max(LEAD), 0);
            let bytes = lead.into();
            leads.push(Lead { bytes, len });
            keys.push(format!("\"{name}\":").into_bytes().into());
        }
        Self {
            keys: keys.into(),
            leads: leads.into(),
        }
    }

    /// Whether `bytes` begin with `"name":` of a field, and how long that is.
    #[inline(always)]
    pub fn begins(&self, field: usize, bytes: &[u8]) -> Option<usize> {
        let key = self.keys.get(field)?;
        let begin = bytes.get(..key.len())?;
        // words, the last of which may overlap: a call to compare a few bytes
        // would take longer than that
        let (Some(last), Some(other)) = (key.last_chunk::<WORD>(), begin.last_chunk::<WORD>())
        else {
            return (begin == &**key).then_some(key.len());
        };
        let words = key.chunks_exact(WORD).zip(begin.chunks_exact(WORD));
        let mut differs = word(last) ^ word(other);
        for (key, begin) in words {
            differs |= word(key) ^ word(begin);
        }
        (differs == 0).then_some(key.len())
    }

    /// What comes before a field's value, after the field before it.
    ///
    /// # Panics
    /// If there is no such field.
    pub fn lead(&self, field: usize) -> &Lead {
        &self.leads[field]
    }

    /// The field of that name.
    pub fn find(&self, name: &[u8]) -> Option<usize> {
        self.keys
            .iter()
            .position(|key| key.len() == name.len() + 3 && &key[1..key.len() - 2] == name)
    }
}
