//! Writing of the output.
//!
//! A file is written under a temporary name in the same directory and renamed at the end: an
//! existing file does not change if anything fails.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use crate::{stdout_state, CommandError};

/// The output of a command: standard output, or a file that is replaced at the end.
pub struct CommandOutputWriter {
    writer: BufWriter<Box<dyn Write>>,
    name: String,
    temporary: Option<TemporaryFile>,
}

/// The temporary file that replaces the output file at the end, and is removed if the command
/// fails.
struct TemporaryFile {
    file: File,
    path: PathBuf,
    place: PathBuf,
}

impl CommandOutputWriter {
    /// Opens the output to a file, or to standard output if `path` is `-` or absent.
    pub fn open_output(path: Option<&Path>) -> Result<Self, CommandError> {
        let Some(path) = path.filter(|path| *path != Path::new("-")) else {
            if stdout_state::was_stdout_closed_at_start() {
                return Err(CommandError::Data(
                    "cannot write the output: it is closed".into(),
                ));
            }
            return Ok(Self {
                writer: BufWriter::new(Box::new(io::stdout().lock())),
                name: "the output".into(),
                temporary: None,
            });
        };
        let name = path.display().to_string();
        let (file, temporary) = open_output_file(path)
            .map_err(|error| CommandError::Data(format!("cannot write {name}: {error}")))?;
        Ok(Self {
            writer: BufWriter::new(Box::new(file)),
            name,
            temporary,
        })
    }

    /// Writes bytes to the output.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), CommandError> {
        let written = self.writer.write_all(bytes);
        written.map_err(|error| self.command_error(&error))
    }

    /// Flushes the output, and replaces the output file.
    pub fn flush_and_commit_output(mut self) -> Result<(), CommandError> {
        let mut written = self.writer.flush();
        if let Some(temporary) = &self.temporary {
            written = written.and_then(|()| temporary.replace_target());
        }
        written.map_err(|error| self.command_error(&error))
    }

    fn command_error(&self, error: &io::Error) -> CommandError {
        match error.kind() {
            io::ErrorKind::BrokenPipe => CommandError::Pipe,
            _ => CommandError::Data(format!("cannot write {}: {error}", self.name)),
        }
    }
}

/// Writes a report to standard output.
///
/// # Errors
/// Standard output is closed.
pub fn print_text(text: &str) -> Result<(), CommandError> {
    let mut output = CommandOutputWriter::open_output(None)?;
    output.write(text.as_bytes())?;
    output.flush_and_commit_output()
}

fn open_output_file(path: &Path) -> io::Result<(File, Option<TemporaryFile>)> {
    let place = match fs::metadata(path) {
        // a pipe or a device is written in place
        Ok(there) if !there.is_file() => {
            return Ok((OpenOptions::new().write(true).open(path)?, None));
        }
        // the target of a link, not the link
        Ok(_) => fs::canonicalize(path)?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => path.into(),
        Err(error) => return Err(error),
    };
    let temporary = TemporaryFile::create_for_target(place)?;
    Ok((temporary.file.try_clone()?, Some(temporary)))
}

impl TemporaryFile {
    fn create_for_target(place: PathBuf) -> io::Result<Self> {
        let Some(name) = place.file_name() else {
            return Err(io::ErrorKind::IsADirectory.into());
        };
        // it may be read-only
        if place.exists() {
            OpenOptions::new().append(true).open(&place)?;
        }
        let name = name.to_string_lossy();
        let mut number = std::process::id();
        loop {
            let path = place.with_file_name(format!(".{name}.{number}.sszip"));
            match OpenOptions::new().write(true).create_new(true).open(&path) {
                Ok(file) => return Ok(Self { file, path, place }),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                    number = number.wrapping_add(1);
                }
                Err(error) => return Err(error),
            }
        }
    }

    fn replace_target(&self) -> io::Result<()> {
        if let Ok(there) = fs::metadata(&self.place) {
            self.file.set_permissions(there.permissions())?;
        }
        // some file systems report only now that there is no space
        self.file.sync_all()?;
        fs::rename(&self.path, &self.place)
    }
}

impl Drop for TemporaryFile {
    fn drop(&mut self) {
        // the path does not exist after the rename
        let _ = fs::remove_file(&self.path);
    }
}
