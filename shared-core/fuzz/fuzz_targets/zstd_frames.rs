//! zstd frames of texts and open blocks, which the library decompresses to their content; and
//! `decompress_zstd` compared with the library, under a limit of the length.
#![no_main]

use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;
use sszip_core::gzip::inflate::InflateError;
use sszip_core::zstd::open_blocks::{compress_to_open_blocks, OpenZstdBlocks};
use sszip_core::zstd::splice::{assemble_zstd_frame, ZstdFrameInput};
use sszip_core::zstd::{
    decompress_truncated_zstd, decompress_zstd, MAX_WINDOW_LOG, MAX_ZSTD_LEVEL,
};
use sszip_fuzz::FuzzBodyPiece;
use zstd::zstd_safe::{DCtx, DParameter, InBuffer, OutBuffer};

/// Maximum memory of the library in addition to the output of a complete body, in bytes.
const CONTEXT_MEMORY_BYTES: usize = 128 << 10;

#[derive(Arbitrary, Debug)]
enum Input<'a> {
    Frame(Vec<FramePart<'a>>),
    Bytes(u16, &'a [u8]),
}

/// Maximum number of parts of a frame: high levels take some ms each.
const MAX_PARTS: usize = 16;

/// A part of a frame: a text, or open blocks if it has a level.
#[derive(Arbitrary, Debug)]
struct FramePart<'a> {
    level: Option<u8>,
    content: FuzzBodyPiece<'a>,
}

fuzz_target!(|input: Input| {
    match input {
        Input::Frame(parts) => check_frame(&parts[..parts.len().min(MAX_PARTS)]),
        Input::Bytes(cap, bytes) => check_decompression(bytes, usize::from(cap) * 4),
    }
});

fn check_frame(parts: &[FramePart]) {
    let contents: Vec<Vec<u8>> = parts
        .iter()
        .map(|part| part.content.piece_bytes())
        .collect();
    let opens: Vec<Option<OpenZstdBlocks>> = parts
        .iter()
        .zip(&contents)
        .map(|(part, content)| {
            let level = part.level? % MAX_ZSTD_LEVEL + 1;
            Some(compress_to_open_blocks(content, level).expect("memory"))
        })
        .collect();
    let inputs = contents
        .iter()
        .zip(&opens)
        .map(|(content, open)| match open {
            Some(open) => ZstdFrameInput::Open(open),
            None => ZstdFrameInput::Text(content),
        });
    let body = assemble_zstd_frame(inputs).expect("memory");
    let frame = body.to_vec();
    let content = contents.concat();
    assert_eq!(body.byte_length(), frame.len() as u64);
    assert_eq!(body.plain_length(), content.len() as u64);
    let declared = zstd::zstd_safe::get_frame_content_size(&frame).expect("a frame");
    assert_eq!(declared, Some(content.len() as u64));
    assert!(decompress_zstd(&frame, content.len(), |_| true) == Ok(content.clone()));
    assert!(decompress_by_bytes(&frame) == Some(content));
}

fn check_decompression(bytes: &[u8], cap: usize) {
    let mut most = 0;
    let ours = decompress_zstd(bytes, cap, |length| {
        most = most.max(length);
        true
    });
    assert!(most <= cap + CONTEXT_MEMORY_BYTES, "{most} of {cap}");
    let mut theirs = Vec::with_capacity(cap);
    let is_decoded = DCtx::create().decompress(&mut theirs, bytes).is_ok();
    match &ours {
        Ok(body) => assert!(is_decoded && *body == theirs && body.len() <= cap),
        // the library also decompresses no frame at all, and frames with longer windows
        Err(InflateError::Bad) => {
            assert!(!is_decoded || bytes.is_empty() || decompress_by_bytes(bytes).is_none());
        }
        Err(_) => assert!(!is_decoded),
    }
    if let Ok(beginning) = decompress_truncated_zstd(bytes, cap, |_| true) {
        assert!(beginning.len() <= cap);
        if let Ok(body) = ours {
            assert!(beginning == body);
        }
    }
}

/// Decompresses frames that arrive byte by byte, with the longest window that is allowed. `None` if
/// they are damaged or end early.
fn decompress_by_bytes(bytes: &[u8]) -> Option<Vec<u8>> {
    let mut context = DCtx::create();
    let window = DParameter::WindowLogMax(MAX_WINDOW_LOG);
    context.set_parameter(window).expect("a parameter");
    let (mut plain, mut buffer) = (Vec::new(), vec![0; 64 << 10]);
    let mut is_ended = false;
    for byte in bytes.chunks(1) {
        let mut input = InBuffer::around(byte);
        loop {
            let mut output = OutBuffer::around(&mut buffer[..]);
            is_ended = context.decompress_stream(&mut output, &mut input).ok()? == 0;
            let written = output.pos();
            plain.extend_from_slice(&buffer[..written]);
            if is_ended || (written < buffer.len() && input.pos() == byte.len()) {
                break;
            }
        }
    }
    is_ended.then_some(plain)
}
