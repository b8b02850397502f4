//! Engines of the comparison: the core's own one-shot compression to gzip and zstd, the libdeflate
//! that it bundles, and other libraries.
//!
//! zlib, ISA-L's igzip and zstd are the system's shared libraries, loaded at run time: nginx's
//! gzip uses that zlib, and a machine without one of them still measures the rest. Each engine
//! keeps its state from body to body, an advantage for zlib: nginx sets up a new stream for each
//! response.

use libdeflate_sys as ld;
use libloading::{Library, Symbol};
use sszip_core::body_compressor::BodyCompressor;
use sszip_core::request_coding::SupportedContentCoding;
use std::ffi::{c_char, c_int, c_uint, c_ulong, c_void, CStr};
use std::mem::size_of;
use std::rc::Rc;

/// One codec at one level.
pub trait BenchmarkCodec {
    /// Name of the library.
    fn name(&self) -> &'static str;
    /// Level as the library counts it.
    fn level(&self) -> i32;
    /// Version of the library that was measured.
    fn library_version(&self) -> String;
    /// Writes one complete member or frame; `None` when it did not fit.
    fn compress(&mut self, body: &[u8], out: &mut [u8]) -> Option<usize>;
    /// Decompresses the output, for the check; gzip unless the engine overrides it.
    fn decompress(&mut self, data: &[u8], size: usize) -> Option<Vec<u8>> {
        gunzip(data, size)
    }
}

/// A library that could not be loaded.
pub struct UnavailableLibrary {
    pub engine: &'static str,
    pub why: String,
}

/// Loads the codecs of the comparison, one for each library and level, and returns the libraries
/// that could not be loaded, too.
pub fn load_benchmark_codecs() -> (Vec<Box<dyn BenchmarkCodec>>, Vec<UnavailableLibrary>) {
    let mut engines: Vec<Box<dyn BenchmarkCodec>> = Vec::new();
    let mut absent = Vec::new();
    let gzip = |level| BodyCompressor::Gzip {
        level,
        stream_level: 1,
    };
    let zstd = |level| BodyCompressor::Zstd {
        level,
        stream_level: 1,
    };
    let core = [1, 6].map(gzip).into_iter();
    for compressor in core.chain([1, 2, 3, 6, 9, 12, 19].map(zstd)) {
        engines.push(Box::new(CoreOneshotCodec { compressor }));
    }
    for level in [1, 2, 3, 4, 5, 6, 9, 12] {
        engines.extend(Libdeflate::new(level).map(|e| Box::new(e) as Box<dyn BenchmarkCodec>));
    }
    match Zlib::load() {
        Ok(loaded) => engines.extend(
            loaded
                .into_iter()
                .map(|e| Box::new(e) as Box<dyn BenchmarkCodec>),
        ),
        Err(error) => absent.push(missing("zlib", &error)),
    }
    match Igzip::load() {
        Ok(loaded) => engines.push(Box::new(loaded)),
        Err(error) => absent.push(missing("igzip", &error)),
    }
    match Zstd::load() {
        Ok(loaded) => engines.push(Box::new(loaded)),
        Err(error) => absent.push(missing("zstd", &error)),
    }
    (engines, absent)
}

fn missing(engine: &'static str, error: &libloading::Error) -> UnavailableLibrary {
    UnavailableLibrary {
        engine,
        why: error.to_string(),
    }
}

fn gunzip(data: &[u8], size: usize) -> Option<Vec<u8>> {
    let mut out = vec![0; size];
    let mut actual = 0;
    // SAFETY: the decompressor is freed before it goes out of scope, and both
    // buffers are passed with their own lengths.
    let result = unsafe {
        let decompressor = ld::libdeflate_alloc_decompressor();
        if decompressor.is_null() {
            return None;
        }
        let result = ld::libdeflate_gzip_decompress(
            decompressor,
            data.as_ptr().cast(),
            data.len(),
            out.as_mut_ptr().cast(),
            out.len(),
            &mut actual,
        );
        ld::libdeflate_free_decompressor(decompressor);
        result
    };
    (result == ld::libdeflate_result_LIBDEFLATE_SUCCESS && actual == size).then_some(out)
}

/// The function that hosts call: it pools compressors, and allocates and trims the output. The
/// difference to the bare library is the cost of that.
struct CoreOneshotCodec {
    compressor: BodyCompressor,
}

impl BenchmarkCodec for CoreOneshotCodec {
    fn name(&self) -> &'static str {
        match self.compressor {
            BodyCompressor::Gzip { .. } => "sszip-core",
            BodyCompressor::Zstd { .. } => "sszip-core zstd",
        }
    }

    fn level(&self) -> i32 {
        match self.compressor {
            BodyCompressor::Gzip { level, .. } | BodyCompressor::Zstd { level, .. } => level.into(),
        }
    }

    fn library_version(&self) -> String {
        env!("CARGO_PKG_VERSION").into()
    }

    fn compress(&mut self, body: &[u8], out: &mut [u8]) -> Option<usize> {
        let coded = self
            .compressor
            .compress_oneshot_into(body, body.len(), Vec::new())
            .ok()?;
        out.get_mut(..coded.len())?.copy_from_slice(&coded);
        Some(coded.len())
    }

    fn decompress(&mut self, data: &[u8], size: usize) -> Option<Vec<u8>> {
        match self.compressor.content_coding() {
            SupportedContentCoding::Gzip => gunzip(data, size),
            coding => coding.decompress_body(data, size, |_| true).ok(),
        }
    }
}

struct Libdeflate {
    level: i32,
    compressor: *mut ld::libdeflate_compressor,
}

impl Libdeflate {
    fn new(level: i32) -> Option<Self> {
        // SAFETY: any level is a valid argument; a bad one returns NULL.
        let compressor = unsafe { ld::libdeflate_alloc_compressor(level) };
        (!compressor.is_null()).then_some(Self { level, compressor })
    }
}

impl Drop for Libdeflate {
    fn drop(&mut self) {
        // SAFETY: allocated in `new`, freed once.
        unsafe { ld::libdeflate_free_compressor(self.compressor) }
    }
}

impl BenchmarkCodec for Libdeflate {
    fn name(&self) -> &'static str {
        "libdeflate"
    }

    fn level(&self) -> i32 {
        self.level
    }

    fn library_version(&self) -> String {
        "bundled".into()
    }

    fn compress(&mut self, body: &[u8], out: &mut [u8]) -> Option<usize> {
        // SAFETY: the compressor lives as long as `self`, and both buffers are
        // passed with their own lengths.
        let written = unsafe {
            ld::libdeflate_gzip_compress(
                self.compressor,
                body.as_ptr().cast(),
                body.len(),
                out.as_mut_ptr().cast(),
                out.len(),
            )
        };
        (written != 0).then_some(written)
    }
}

/// `z_stream` of zlib.h.
#[repr(C)]
struct ZStream {
    next_in: *const u8,
    avail_in: c_uint,
    total_in: c_ulong,
    next_out: *mut u8,
    avail_out: c_uint,
    total_out: c_ulong,
    msg: *const c_char,
    state: *mut c_void,
    zalloc: *mut c_void,
    zfree: *mut c_void,
    opaque: *mut c_void,
    data_type: c_int,
    adler: c_ulong,
    reserved: c_ulong,
}

type DeflateInit = unsafe extern "C" fn(
    *mut ZStream,
    c_int,
    c_int,
    c_int,
    c_int,
    c_int,
    *const c_char,
    c_int,
) -> c_int;

struct Zlib {
    library: Rc<Library>,
    version: String,
    level: i32,
    stream: Box<ZStream>,
    deflate: unsafe extern "C" fn(*mut ZStream, c_int) -> c_int,
    reset: unsafe extern "C" fn(*mut ZStream) -> c_int,
}

const Z_FINISH: c_int = 4;
const Z_STREAM_END: c_int = 1;
const Z_DEFLATED: c_int = 8;
/// 32 KB of window, 16 for the gzip wrapper; memory level as in nginx.
const WINDOW_BITS: c_int = 15 + 16;
const MEMORY_LEVEL: c_int = 8;

impl Zlib {
    fn load() -> Result<Vec<Self>, libloading::Error> {
        // SAFETY: zlib's initialisers have no preconditions, and the types equal zlib.h's. zlib
        // keeps a pointer to the stream, which is boxed and so never moves.
        unsafe {
            let library = Rc::new(Library::new("libz.so.1")?);
            let init: Symbol<DeflateInit> = library.get(b"deflateInit2_\0")?;
            let version: Symbol<unsafe extern "C" fn() -> *const c_char> =
                library.get(b"zlibVersion\0")?;
            let text = version();
            let mut engines = Vec::new();
            for level in [1, 6] {
                let mut stream: Box<ZStream> = Box::new(std::mem::zeroed());
                let size = size_of::<ZStream>() as c_int;
                let failed = init(
                    &mut *stream,
                    level,
                    Z_DEFLATED,
                    WINDOW_BITS,
                    MEMORY_LEVEL,
                    0,
                    text,
                    size,
                );
                assert_eq!(failed, 0, "deflateInit2 refused level {level}");
                engines.push(Self {
                    version: CStr::from_ptr(text).to_string_lossy().into_owned(),
                    level,
                    stream,
                    deflate: *library.get(b"deflate\0")?,
                    reset: *library.get(b"deflateReset\0")?,
                    library: Rc::clone(&library),
                });
            }
            Ok(engines)
        }
    }
}

impl Drop for Zlib {
    fn drop(&mut self) {
        // SAFETY: the library is still loaded, the stream was initialised.
        unsafe {
            if let Ok(end) = self
                .library
                .get::<unsafe extern "C" fn(*mut ZStream) -> c_int>(b"deflateEnd\0")
            {
                end(&mut *self.stream);
            }
        }
    }
}

impl BenchmarkCodec for Zlib {
    fn name(&self) -> &'static str {
        "zlib"
    }

    fn level(&self) -> i32 {
        self.level
    }

    fn library_version(&self) -> String {
        self.version.clone()
    }

    fn compress(&mut self, body: &[u8], out: &mut [u8]) -> Option<usize> {
        let stream = &mut *self.stream;
        stream.next_in = body.as_ptr();
        stream.avail_in = c_uint::try_from(body.len()).ok()?;
        stream.next_out = out.as_mut_ptr();
        stream.avail_out = c_uint::try_from(out.len()).ok()?;
        // SAFETY: the stream is initialised and describes both buffers, which
        // outlive the calls.
        let ended = unsafe {
            let ended = (self.deflate)(stream, Z_FINISH) == Z_STREAM_END;
            (self.reset)(stream);
            ended
        };
        ended.then(|| out.len() - stream.avail_out as usize)
    }
}

/// The caller's part of `isal_zstream` in igzip_lib.h; its internal state
/// follows and is only reserved here.
#[repr(C, align(64))]
struct RawIsalStream {
    next_in: *const u8,
    avail_in: u32,
    total_in: u32,
    next_out: *mut u8,
    avail_out: u32,
    total_out: u32,
    hufftables: *mut c_void,
    level: u32,
    level_buf_size: u32,
    level_buf: *mut u8,
    end_of_stream: u16,
    flush: u16,
    gzip_flag: u16,
    hist_bits: u16,
    // The real state is about 82 KB; half as much again is left to be safe.
    internal_state: [u8; 128 * 1024],
}

struct Igzip {
    // Keeps the functions below loaded.
    _library: Library,
    stream: Box<RawIsalStream>,
    level_buf: Vec<u8>,
    init: unsafe extern "C" fn(*mut RawIsalStream),
    deflate: unsafe extern "C" fn(*mut RawIsalStream) -> c_int,
}

/// `ISAL_DEF_LVL1_DEFAULT`: hash tables and room for 64 K tokens.
const ISAL_LEVEL_1_BUFFER: u32 = 4 * 1024 + 2 * 8 * 1024 + 4 * 64 * 1024;
const IGZIP_GZIP: u16 = 1;

impl Igzip {
    fn load() -> Result<Self, libloading::Error> {
        // SAFETY: the library's initialisers have no preconditions; the
        // functions have the types of igzip_lib.h; all-zero is a valid stream.
        unsafe {
            let library = Library::new("libisal.so.2")?;
            Ok(Self {
                stream: Box::new(std::mem::zeroed()),
                level_buf: vec![0; ISAL_LEVEL_1_BUFFER as usize],
                init: *library.get(b"isal_deflate_stateless_init\0")?,
                deflate: *library.get(b"isal_deflate_stateless\0")?,
                _library: library,
            })
        }
    }
}

impl BenchmarkCodec for Igzip {
    fn name(&self) -> &'static str {
        "igzip"
    }

    fn level(&self) -> i32 {
        1
    }

    fn library_version(&self) -> String {
        "libisal.so.2".into()
    }

    fn compress(&mut self, body: &[u8], out: &mut [u8]) -> Option<usize> {
        let stream = &mut *self.stream;
        // SAFETY: the stream and its level buffer live in `self`; both other
        // buffers are passed with their own lengths and outlive the call.
        let failed = unsafe {
            (self.init)(stream);
            stream.level = 1;
            stream.level_buf = self.level_buf.as_mut_ptr();
            stream.level_buf_size = ISAL_LEVEL_1_BUFFER;
            stream.gzip_flag = IGZIP_GZIP;
            stream.end_of_stream = 1;
            stream.next_in = body.as_ptr();
            stream.avail_in = u32::try_from(body.len()).ok()?;
            stream.next_out = out.as_mut_ptr();
            stream.avail_out = u32::try_from(out.len()).ok()?;
            (self.deflate)(stream)
        };
        (failed == 0).then_some(stream.total_out as usize)
    }
}

struct Zstd {
    // Keeps the functions below loaded.
    _library: Library,
    version: String,
    context: *mut c_void,
    compress: ZstdCompress,
    decompress: ZstdDecompress,
    free: unsafe extern "C" fn(*mut c_void) -> usize,
}

type ZstdCompress =
    unsafe extern "C" fn(*mut c_void, *mut c_void, usize, *const c_void, usize, c_int) -> usize;
type ZstdDecompress = unsafe extern "C" fn(*mut c_void, usize, *const c_void, usize) -> usize;

impl Zstd {
    fn load() -> Result<Self, libloading::Error> {
        // SAFETY: the library's initialisers have no preconditions; the
        // functions have the types of zstd.h.
        unsafe {
            let library = Library::new("libzstd.so.1")?;
            let create: Symbol<unsafe extern "C" fn() -> *mut c_void> =
                library.get(b"ZSTD_createCCtx\0")?;
            let version: Symbol<unsafe extern "C" fn() -> *const c_char> =
                library.get(b"ZSTD_versionString\0")?;
            Ok(Self {
                version: CStr::from_ptr(version()).to_string_lossy().into_owned(),
                context: create(),
                compress: *library.get(b"ZSTD_compressCCtx\0")?,
                decompress: *library.get(b"ZSTD_decompress\0")?,
                free: *library.get(b"ZSTD_freeCCtx\0")?,
                _library: library,
            })
        }
    }
}

impl Drop for Zstd {
    fn drop(&mut self) {
        // SAFETY: created in `load`, freed once; NULL is accepted.
        unsafe {
            (self.free)(self.context);
        }
    }
}

impl BenchmarkCodec for Zstd {
    fn name(&self) -> &'static str {
        "zstd"
    }

    fn level(&self) -> i32 {
        1
    }

    fn library_version(&self) -> String {
        self.version.clone()
    }

    fn compress(&mut self, body: &[u8], out: &mut [u8]) -> Option<usize> {
        // SAFETY: both buffers are passed with their own lengths; a NULL
        // context would return an error.
        let written = unsafe {
            (self.compress)(
                self.context,
                out.as_mut_ptr().cast(),
                out.len(),
                body.as_ptr().cast(),
                body.len(),
                1,
            )
        };
        // Errors are huge values (`ZSTD_isError`).
        (written <= out.len()).then_some(written)
    }

    fn decompress(&mut self, data: &[u8], size: usize) -> Option<Vec<u8>> {
        let mut out = vec![0; size];
        // SAFETY: both buffers are passed with their own lengths.
        let written = unsafe {
            (self.decompress)(
                out.as_mut_ptr().cast(),
                out.len(),
                data.as_ptr().cast(),
                data.len(),
            )
        };
        (written == size).then_some(out)
    }
}
