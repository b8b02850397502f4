//! gzip (RFC 1952) piece by piece, for bodies whose end nobody knows yet.
//!
//! Two coders behind one trait: ISA-L's igzip, where `libisal.so.2` is found
//! at run time, and zlib-rs elsewhere. Each takes input and output buffers of
//! any size, so the caller's buffers are the only bound that is needed, and
//! each can be flushed, so that a client sees what the node has flushed.

#[cfg(not(target_family = "wasm"))]
mod igzip;
mod zlib;

/// How far an encoder is to bring what it was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flush {
    /// It may keep some, to code it better with what follows.
    None,
    /// To the client: all that was given can be decoded from what is written.
    Sync,
    /// To the end: the trailer is written.
    Finish,
}

/// What a step of an encoder did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Bytes of input that were taken.
    pub consumed: usize,
    /// Bytes of output that were written.
    pub written: usize,
    /// All input was taken, and flushed as asked. If not, there was no room:
    /// call again with what is left and the same flush.
    pub complete: bool,
}

/// The encoder broke. Nothing more can be got from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamError;

/// An encoder of one gzip member.
pub trait Encoder: Send + std::fmt::Debug {
    /// Codes from `input` into `output`.
    ///
    /// # Errors
    /// [`StreamError`] if the library reports one; the stream must be cut.
    fn encode(
        &mut self,
        input: &[u8],
        flush: Flush,
        output: &mut [u8],
    ) -> Result<Progress, StreamError>;
}

/// How hard a stream is compressed: 1 (fastest) to 3.
pub type Level = u8;

/// A library that makes streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Coder {
    /// ISA-L's igzip, opened at run time.
    #[cfg(not(target_family = "wasm"))]
    Igzip,
    /// zlib-rs, always there.
    ZlibRs,
}

impl Coder {
    /// The fastest that this machine has.
    pub fn fastest() -> Self {
        #[cfg(not(target_family = "wasm"))]
        if igzip::is_available() {
            return Coder::Igzip;
        }
        Coder::ZlibRs
    }

    /// What an encoder takes, in bytes, for all of its life.
    pub fn size(self, level: Level) -> usize {
        match self {
            #[cfg(not(target_family = "wasm"))]
            Coder::Igzip => igzip::size(level),
            Coder::ZlibRs => zlib::size(level),
        }
    }

    /// A new encoder. `None` when memory is refused, or without the library.
    pub fn encoder(self, level: Level) -> Option<Box<dyn Encoder>> {
        match self {
            #[cfg(not(target_family = "wasm"))]
            Coder::Igzip => Some(Box::new(igzip::Igzip::new(level)?)),
            Coder::ZlibRs => Some(Box::new(zlib::Zlib::new(level)?)),
        }
    }
}

/// What an encoder of the fastest coder takes, in bytes.
pub fn size(level: Level) -> usize {
    Coder::fastest().size(level)
}

/// A new encoder of the fastest coder. `None` when memory is refused.
pub fn encoder(level: Level) -> Option<Box<dyn Encoder>> {
    Coder::fastest().encoder(level)
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::{Coder, Encoder, Flush};

    fn encoders() -> Vec<Box<dyn Encoder>> {
        // libisal.so.2 is installed by the set-up: its absence is a failure
        [Coder::Igzip, Coder::ZlibRs]
            .iter()
            .flat_map(|coder| (1..=3).map(|level| coder.encoder(level).expect("libisal.so.2")))
            .collect()
    }

    fn body(length: usize) -> Vec<u8> {
        (0..length as u32 / 4)
            .flat_map(|n| (n / 5 * 7919).to_be_bytes())
            .collect()
    }

    /// Codes `pieces` with output buffers of `room` bytes.
    fn encode(encoder: &mut dyn Encoder, pieces: &[&[u8]], flush: Flush, room: usize) -> Vec<u8> {
        let mut coded = Vec::new();
        for (n, piece) in pieces.iter().enumerate() {
            let flush = if n + 1 == pieces.len() {
                Flush::Finish
            } else {
                flush
            };
            let mut rest = *piece;
            loop {
                let mut output = vec![0; room];
                let progress = encoder.encode(rest, flush, &mut output).unwrap();
                coded.extend_from_slice(&output[..progress.written]);
                rest = &rest[progress.consumed..];
                if progress.complete {
                    break;
                }
                assert!(progress.consumed + progress.written > 0, "no progress");
            }
            assert!(rest.is_empty());
        }
        coded
    }

    /// All that can be decoded from what there is of a member.
    fn decoded(coded: &[u8]) -> Vec<u8> {
        let mut body = Vec::new();
        let mut buffer = [0; 1024];
        let mut decoder = flate2::read::GzDecoder::new(coded);
        while let Ok(read @ 1..) = decoder.read(&mut buffer) {
            body.extend_from_slice(&buffer[..read]);
        }
        body
    }

    #[test]
    fn any_pieces_and_any_room_make_one_member() {
        let body = body(300_000);
        for room in [16, 100, 4096, 1 << 20] {
            for size in [1000, 16_384, 300_000] {
                if room == 16 && size == 1000 {
                    continue;
                }
                for mut encoder in encoders() {
                    let pieces: Vec<&[u8]> = body.chunks(size).collect();
                    let coded = encode(&mut *encoder, &pieces, Flush::None, room);
                    let mut whole = Vec::new();
                    flate2::read::GzDecoder::new(&coded[..])
                        .read_to_end(&mut whole)
                        .unwrap();
                    assert!(whole == body, "{encoder:?} {size} in {room}");
                }
            }
        }
    }

    #[test]
    fn what_was_flushed_can_be_decoded() {
        let body = body(40_000);
        for mut encoder in encoders() {
            let mut coded = Vec::new();
            for (n, piece) in body.chunks(1000).enumerate() {
                let mut output = vec![0; 8192];
                let progress = encoder.encode(piece, Flush::Sync, &mut output).unwrap();
                assert!(progress.complete);
                coded.extend_from_slice(&output[..progress.written]);
                assert!(
                    decoded(&coded) == body[..1000 * (n + 1)],
                    "{encoder:?} after {n}"
                );
            }
        }
    }

    #[test]
    fn an_empty_body_is_a_member_too() {
        for mut encoder in encoders() {
            let coded = encode(&mut *encoder, &[b""], Flush::None, 100);
            assert!(coded.len() >= 18 && decoded(&coded).is_empty());
        }
    }
}
