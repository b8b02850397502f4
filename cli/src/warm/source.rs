//! The source of the requests: templates for a range of blocks, or the lines of a file.

use std::fs;
use std::path::PathBuf;
use std::thread;

use serde_json::{json, Value};
use tokio::sync::mpsc;

use super::block_range::{BlockNumbers, BlockRange};
use super::item::SourceEvent;
use super::line_source::{hash_file_start, is_standard_input, open_lines, LineItems};
use super::log_lines::LineFormat;
use super::templates::{block_items, block_positions, templates_of, RequestTemplate};
use crate::args::WarmArguments;
use crate::CommandError;

/// Number of requests that are read in advance.
const READ_AHEAD: usize = 256;

/// The requests of a source, which are read from it one after the other.
pub type SourceEvents = Box<dyn Iterator<Item = SourceEvent> + Send>;

/// The source of the requests.
pub enum WarmSource {
    /// Requests for each block of a range.
    Blocks {
        /// The range.
        range: BlockRange,
        /// The requests for a block.
        templates: Vec<RequestTemplate>,
    },
    /// Requests of clients.
    Lines {
        /// A file, or `-`.
        path: PathBuf,
        /// The format of its lines.
        format: LineFormat,
        /// Methods that are not known to only read are sent, too.
        is_forced: bool,
    },
}

impl WarmSource {
    /// Creates the source that the arguments name.
    pub fn from_arguments(arguments: &WarmArguments) -> Result<Self, CommandError> {
        let (path, format) = match (arguments.blocks, &arguments.requests, &arguments.log) {
            (Some(range), _, _) => {
                let templates = templates_of(arguments)?;
                return Ok(Self::Blocks { range, templates });
            }
            (None, Some(path), _) => (path, LineFormat::Requests),
            (None, None, Some(path)) => (path, LineFormat::Log),
            (None, None, None) => {
                let text = "expected --blocks, --requests or --log";
                return Err(CommandError::Usage(text.into()));
            }
        };
        let is_stream =
            is_standard_input(path) || fs::metadata(path).is_ok_and(|metadata| !metadata.is_file());
        if is_stream && arguments.resume.is_some() {
            let text = "--resume needs the requests in a file: a stream cannot be read again";
            return Err(CommandError::Usage(text.into()));
        }
        Ok(Self::Lines {
            path: path.clone(),
            format,
            is_forced: arguments.force,
        })
    }

    /// Whether the requests are of clients, whose errors are not the node's.
    pub fn is_of_clients(&self) -> bool {
        matches!(self, Self::Lines { .. })
    }

    /// Returns the name of the source in messages.
    pub fn name(&self) -> String {
        match self {
            Self::Blocks { range, .. } => range.to_string(),
            Self::Lines { path, .. } if is_standard_input(path) => "standard input".into(),
            Self::Lines { path, .. } => path.display().to_string(),
        }
    }

    /// Returns the attributes by which a resume file identifies the source.
    pub fn identity(&self) -> Result<Value, CommandError> {
        Ok(match self {
            Self::Blocks { range, templates } => {
                let calls: Vec<_> = templates.iter().map(RequestTemplate::text).collect();
                json!({ "range": range.to_string(), "calls": calls })
            }
            Self::Lines {
                path,
                format,
                is_forced,
            } => {
                let member = match format {
                    LineFormat::Requests => "requests",
                    LineFormat::Log => "log",
                };
                json!({
                    member: path.display().to_string(),
                    "first_line": hash_file_start(path)?,
                    // without it, positions do not count the requests that it adds
                    "force": is_forced,
                })
            }
        })
    }

    /// Returns the requests from position `first` on, and the number of all positions if it is
    /// known. `blocks` are the numbers of the range.
    pub fn events(
        &self,
        blocks: Option<BlockNumbers>,
        first: u64,
    ) -> Result<(SourceEvents, Option<u64>), CommandError> {
        match (self, blocks) {
            (Self::Blocks { templates, .. }, Some((from, to))) => {
                let total = block_positions(templates, from, to).ok_or_else(|| {
                    CommandError::Usage(format!("--blocks {} has too many blocks", self.name()))
                })?;
                let positions = first.min(total)..total;
                let items: SourceEvents = Box::new(block_items(templates.clone(), from, positions));
                Ok((items, Some(total)))
            }
            (Self::Blocks { .. }, None) => {
                let text = "the numbers of the blocks are unknown";
                Err(CommandError::Data(text.into()))
            }
            (
                Self::Lines {
                    path,
                    format,
                    is_forced,
                },
                _,
            ) => {
                let lines = open_lines(path)?;
                let items: SourceEvents =
                    Box::new(LineItems::new(lines, *format, *is_forced, first));
                Ok((items, None))
            }
        }
    }
}

/// Reads a source in a thread, as a file or a pipe may block.
///
/// # Errors
/// The system cannot start a thread.
pub fn spawn_reader(events: SourceEvents) -> Result<mpsc::Receiver<SourceEvent>, CommandError> {
    let (sender, receiver) = mpsc::channel(READ_AHEAD);
    let reader = thread::Builder::new().spawn(move || {
        for event in events {
            if sender.blocking_send(event).is_err() {
                break;
            }
        }
    });
    reader.map_err(|error| CommandError::Data(format!("cannot start: {error}")))?;
    Ok(receiver)
}
