//! A response body as a few shared slices, so that a 5 MB response with another id is sent
//! without a copy.

use std::io::Write;

use bytes::Bytes;
use flate2::write::GzEncoder;
use flate2::Compression;

/// Maximum bytes of a body that is joined into one slice: up to there a copy is cheaper than
/// another entry in the write vector.
const JOIN_LIMIT: usize = 4096;

/// The bytes of a response body as shared slices, which are sent without a copy.
#[derive(Clone, Debug, Default)]
pub struct SharedBodySlices {
    slices: Vec<Bytes>,
    len: usize,
}

impl SharedBodySlices {
    pub fn len(&self) -> usize {
        self.len
    }

    /// Appends a slice to the body.
    pub fn push(&mut self, slice: Bytes) {
        if !slice.is_empty() {
            self.len += slice.len();
            self.slices.push(slice);
        }
    }

    /// Appends all slices of another body.
    pub fn append_slices(&mut self, other: SharedBodySlices) {
        self.len += other.len;
        self.slices.extend(other.slices);
    }

    /// Shortens the body to its first `len` bytes.
    pub fn truncate_to_length(&mut self, len: usize) {
        while self.len > len {
            let excess = self.len - len;
            match self.slices.last_mut() {
                Some(last) if last.len() > excess => {
                    last.truncate(last.len() - excess);
                    self.len = len;
                }
                _ => self.len -= self.slices.pop().map_or(self.len, |slice| slice.len()),
            }
        }
    }

    /// Returns the body as one slice; several slices are copied.
    pub fn to_single_slice(&self) -> Bytes {
        match self.slices.as_slice() {
            [] => Bytes::new(),
            [only] => only.clone(),
            many => many.concat().into(),
        }
    }

    /// Returns the body, with short slices joined, in few enough slices for one write.
    pub fn into_fewer_slices(self) -> SharedBodySlices {
        if self.slices.len() > 1 && self.len <= JOIN_LIMIT || self.slices.len() > 16 {
            SharedBodySlices::from(self.to_single_slice())
        } else {
            self
        }
    }

    /// Returns the body as one gzip member, at geth's level.
    pub fn compress_to_gzip(&self) -> Bytes {
        let mut encoder = GzEncoder::new(Vec::with_capacity(self.len / 3), Compression::default());
        let written = self
            .slices
            .iter()
            .try_for_each(|slice| encoder.write_all(slice))
            .and_then(|()| encoder.finish());
        // A write into a Vec can't fail.
        written.map(Bytes::from).unwrap_or_default()
    }

    pub fn into_slices(self) -> Vec<Bytes> {
        self.slices
    }
}

impl From<Bytes> for SharedBodySlices {
    fn from(slice: Bytes) -> Self {
        Self {
            len: slice.len(),
            slices: vec![slice],
        }
    }
}

impl From<String> for SharedBodySlices {
    fn from(text: String) -> Self {
        Self::from(Bytes::from(text))
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    fn payload(parts: &[&'static str]) -> SharedBodySlices {
        let mut payload = SharedBodySlices::default();
        for part in parts {
            payload.push(Bytes::from_static(part.as_bytes()));
        }
        payload
    }

    #[test]
    fn truncated_payload_has_the_first_bytes_at_every_length() {
        let whole = b"abcdefgh";
        for len in 0..=9 {
            let mut cut = payload(&["abc", "d", "", "efgh"]);
            cut.truncate_to_length(len);
            assert_eq!(cut.len(), len.min(8));
            assert_eq!(cut.to_single_slice(), &whole[..len.min(8)]);
        }
    }

    #[test]
    fn many_slices_coalesce_without_loss() {
        let mut batch = SharedBodySlices::default();
        for index in 0..3000 {
            batch.append_slices(SharedBodySlices::from(format!("{index},")));
        }
        let before = batch.to_single_slice();
        let after = batch.into_fewer_slices();
        assert_eq!(after.to_single_slice(), before);
        assert_eq!(after.into_slices().len(), 1);
    }

    #[test]
    fn gzip_decodes_to_the_same_bytes() {
        let body = payload(&["{\"id\":", "7", ",\"result\":\"0x0000000000000000\"}"]);
        let mut decoded = String::new();
        flate2::read::GzDecoder::new(body.compress_to_gzip().as_ref())
            .read_to_string(&mut decoded)
            .unwrap();
        assert_eq!(decoded, "{\"id\":7,\"result\":\"0x0000000000000000\"}");
    }
}
