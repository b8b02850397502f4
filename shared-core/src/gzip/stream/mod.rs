//! Streaming gzip compression (RFC 1952), for bodies of unknown length.
//!
//! Two libraries implement one trait: ISA-L's igzip, if `libisal.so.2` is found at run time, and
//! zlib-rs otherwise. Both take input and output buffers of any size, so the caller's buffers
//! are the only limit that is needed, and both can be flushed, so that a client receives the
//! bytes that the upstream has flushed.

mod encoder;
#[cfg(not(target_family = "wasm"))]
mod igzip;
mod zlib;

pub use self::encoder::{
    EncodeProgress, FlushMode, StreamEncoder, StreamEncoderError, StreamLevel,
};

/// A library that implements streaming compression on this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CodecLibraryKind {
    /// ISA-L's igzip, opened at run time.
    #[cfg(not(target_family = "wasm"))]
    Igzip,
    /// zlib-rs, which every target has.
    ZlibRs,
}

impl CodecLibraryKind {
    /// Returns igzip if the machine has it, and zlib-rs otherwise.
    pub fn fastest_library() -> Self {
        #[cfg(not(target_family = "wasm"))]
        if igzip::is_igzip_stream_available() {
            return CodecLibraryKind::Igzip;
        }
        CodecLibraryKind::ZlibRs
    }

    /// Returns the memory that an encoder takes for its whole life, in bytes.
    pub fn encoder_size(self, level: StreamLevel) -> usize {
        match self {
            #[cfg(not(target_family = "wasm"))]
            CodecLibraryKind::Igzip => igzip::igzip_encoder_size(level),
            CodecLibraryKind::ZlibRs => zlib::zlib_encoder_size(level),
        }
    }

    /// Allocates an encoder of this library. `None` if memory is refused, or without the library.
    pub fn new_encoder(self, level: StreamLevel) -> Option<Box<dyn StreamEncoder>> {
        match self {
            #[cfg(not(target_family = "wasm"))]
            CodecLibraryKind::Igzip => Some(Box::new(igzip::IgzipEncoder::new(level)?)),
            CodecLibraryKind::ZlibRs => Some(Box::new(zlib::ZlibEncoder::new(level)?)),
        }
    }
}

/// Returns the memory that an encoder of the fastest library takes, in bytes.
pub fn fastest_encoder_size(level: StreamLevel) -> usize {
    CodecLibraryKind::fastest_library().encoder_size(level)
}

/// Allocates an encoder of the fastest library. `None` if memory is refused.
pub fn new_fastest_encoder(level: StreamLevel) -> Option<Box<dyn StreamEncoder>> {
    CodecLibraryKind::fastest_library().new_encoder(level)
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::{CodecLibraryKind, FlushMode, StreamEncoder};

    fn encoders() -> Vec<Box<dyn StreamEncoder>> {
        // libisal.so.2 is installed by the set-up: its absence is a failure
        [CodecLibraryKind::Igzip, CodecLibraryKind::ZlibRs]
            .iter()
            .flat_map(|coder| (1..=3).map(|level| coder.new_encoder(level).expect("libisal.so.2")))
            .collect()
    }

    fn body(length: usize) -> Vec<u8> {
        (0..length as u32 / 4)
            .flat_map(|n| (n / 5 * 7919).to_be_bytes())
            .collect()
    }

    /// Compresses `pieces` with output buffers of `room` bytes.
    fn encode_pieces(
        encoder: &mut dyn StreamEncoder,
        pieces: &[&[u8]],
        flush: FlushMode,
        room: usize,
    ) -> Vec<u8> {
        let mut coded = Vec::new();
        for (n, piece) in pieces.iter().enumerate() {
            let flush = if n + 1 == pieces.len() {
                FlushMode::Finish
            } else {
                flush
            };
            let mut rest = *piece;
            loop {
                let mut output = vec![0; room];
                let progress = encoder.compress_input(rest, flush, &mut output).unwrap();
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

    /// Decompresses as much as possible of an incomplete member.
    fn decompress(coded: &[u8]) -> Vec<u8> {
        let mut body = Vec::new();
        let mut buffer = [0; 1024];
        let mut decoder = flate2::read::GzDecoder::new(coded);
        while let Ok(read @ 1..) = decoder.read(&mut buffer) {
            body.extend_from_slice(&buffer[..read]);
        }
        body
    }

    #[test]
    fn pieces_of_any_size_become_one_member_with_any_room() {
        let body = body(300_000);
        for room in [16, 100, 4096, 1 << 20] {
            for size in [1000, 16_384, 300_000] {
                if room == 16 && size == 1000 {
                    continue;
                }
                for mut encoder in encoders() {
                    let pieces: Vec<&[u8]> = body.chunks(size).collect();
                    let coded = encode_pieces(&mut *encoder, &pieces, FlushMode::None, room);
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
    fn flushed_input_can_be_decompressed() {
        let body = body(40_000);
        for mut encoder in encoders() {
            let mut coded = Vec::new();
            for (n, piece) in body.chunks(1000).enumerate() {
                let mut output = vec![0; 8192];
                let progress = encoder
                    .compress_input(piece, FlushMode::Sync, &mut output)
                    .unwrap();
                assert!(progress.complete);
                coded.extend_from_slice(&output[..progress.written]);
                assert!(
                    decompress(&coded) == body[..1000 * (n + 1)],
                    "{encoder:?} after {n}"
                );
            }
        }
    }

    #[test]
    fn empty_body_becomes_a_member() {
        for mut encoder in encoders() {
            let coded = encode_pieces(&mut *encoder, &[b""], FlushMode::None, 100);
            assert!(coded.len() >= 18 && decompress(&coded).is_empty());
        }
    }
}
