//! Reading of the input, and the progress bar.

use std::fs::File;
use std::io::{self, IsTerminal, Read};
use std::path::Path;

use indicatif::{ProgressBar, ProgressStyle};

use crate::CommandError;

/// Number of bytes read at a time.
pub const READ_BYTES: usize = 1 << 16;

/// Number of bytes from which on the progress is shown.
const PROGRESS_MIN_BYTES: u64 = 16 << 20;

/// Maximum number of bytes from the start of the input that are buffered, to describe an
/// invalid one.
const MAX_PREFIX: usize = 4 << 20;

/// The reader of the input file or standard input, which reads pieces and shows a progress bar for
/// large inputs.
pub struct InputFileReader {
    from: Box<dyn Read>,
    prefix: Vec<u8>,
    buffers_prefix: bool,
    name: String,
    room: Vec<u8>,
    read: u64,
    progress: Option<ProgressBar>,
}

impl InputFileReader {
    /// Opens a file, or standard input if `path` is `-` or absent.
    pub fn open_input(path: Option<&Path>) -> Result<Self, CommandError> {
        let path = path.filter(|path| *path != Path::new("-"));
        let name = path.map_or("the input".into(), |path| path.display().to_string());
        let failed = |error: io::Error| CommandError::Data(format!("cannot read {name}: {error}"));
        let (from, len): (Box<dyn Read>, u64) = match path {
            None => (Box::new(io::stdin().lock()), 0),
            Some(path) => {
                let file = File::open(path).map_err(failed)?;
                let len = file.metadata().map_err(failed)?.len();
                (Box::new(file), len)
            }
        };
        let progress =
            (len >= PROGRESS_MIN_BYTES && io::stderr().is_terminal()).then(|| progress_bar(len));
        Ok(Self {
            from,
            prefix: Vec::new(),
            buffers_prefix: false,
            name,
            room: vec![0; READ_BYTES],
            read: 0,
            progress,
        })
    }

    /// Reads the next piece, or `None` at the end of the input.
    pub fn read_input_piece(&mut self) -> Result<Option<&[u8]>, CommandError> {
        loop {
            match self.from.read(&mut self.room) {
                Ok(0) => {
                    if let Some(progress) = self.progress.take() {
                        progress.finish_and_clear();
                    }
                    return Ok(None);
                }
                Ok(len) => {
                    self.read += len as u64;
                    self.show_progress();
                    let piece = &self.room[..len];
                    if self.buffers_prefix {
                        let count = piece.len().min(MAX_PREFIX - self.prefix.len());
                        self.prefix.extend_from_slice(&piece[..count]);
                    }
                    return Ok(Some(piece));
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    return Err(CommandError::Data(format!(
                        "cannot read {}: {error}",
                        self.name
                    )))
                }
            }
        }
    }

    /// Buffers the first pieces for [`Self::read_input_start`], by which error messages
    /// describe an invalid input.
    pub fn buffer_input_prefix(mut self) -> Self {
        self.buffers_prefix = true;
        self
    }

    /// Returns the start of the input, and whether that is all of it. Reads on if needed.
    pub fn read_input_start(&mut self) -> (&[u8], bool) {
        while self.read <= MAX_PREFIX as u64 {
            match self.read_input_piece() {
                Ok(Some(_)) => {}
                Ok(None) => return (&self.prefix, true),
                Err(_) => break,
            }
        }
        (&self.prefix, false)
    }

    fn show_progress(&mut self) {
        // the length of standard input is not known in advance
        if self.progress.is_none()
            && self.read >= PROGRESS_MIN_BYTES
            && self.read < PROGRESS_MIN_BYTES + READ_BYTES as u64
        {
            self.progress = io::stderr().is_terminal().then(progress_spinner);
        }
        if let Some(progress) = &self.progress {
            progress.set_position(self.read);
        }
    }
}

/// Reads the whole input into memory.
pub fn read_input(path: Option<&Path>) -> Result<Vec<u8>, CommandError> {
    let mut pieces = InputFileReader::open_input(path)?;
    let mut all = Vec::new();
    while let Some(piece) = pieces.read_input_piece()? {
        all.extend_from_slice(piece);
    }
    Ok(all)
}

fn progress_bar(len: u64) -> ProgressBar {
    let style = ProgressStyle::with_template("{bar:40} {bytes}/{total_bytes} {eta}");
    let bar = ProgressBar::new(len);
    match style {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}

fn progress_spinner() -> ProgressBar {
    let style = ProgressStyle::with_template("{spinner} {bytes} {bytes_per_sec}");
    let spinner = ProgressBar::new_spinner();
    match style {
        Ok(style) => spinner.with_style(style),
        Err(_) => spinner,
    }
}
