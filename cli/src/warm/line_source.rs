//! The requests in the lines of a file or of standard input.

use std::collections::hash_map::RandomState;
use std::collections::{HashSet, VecDeque};
use std::fs::File;
use std::hash::BuildHasher;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

use super::item::{SourceEvent, WarmItem, WarmRequest};
use super::log_lines::{parse_line, LineFormat};
use crate::CommandError;

/// Maximum length of a line. Request bodies are shorter.
const MAX_LINE_BYTES: u64 = 16 << 20;

/// Number of the last requests among which repetitions are skipped.
const RECENT_REQUESTS: usize = 65_536;

/// The length of a file's start, by which a resume file identifies it.
const IDENTITY_BYTES: u64 = 4_096;

/// Whether a path stands for standard input.
pub fn is_standard_input(path: &Path) -> bool {
    path == Path::new("-")
}

/// Opens a file, or standard input if the path is `-`.
pub fn open_lines(path: &Path) -> Result<Box<dyn BufRead + Send>, CommandError> {
    if is_standard_input(path) {
        return Ok(Box::new(BufReader::new(io::stdin())));
    }
    let opened = File::open(path).and_then(|file| match file.metadata()?.is_dir() {
        true => Err(io::ErrorKind::IsADirectory.into()),
        false => Ok(file),
    });
    let file = opened.map_err(|error| read_error(path, &error))?;
    Ok(Box::new(BufReader::new(file)))
}

/// Returns the hash of a file's start, in hex digits.
pub fn hash_file_start(path: &Path) -> Result<String, CommandError> {
    let mut start = Vec::new();
    let read = File::open(path).and_then(|file| file.take(IDENTITY_BYTES).read_to_end(&mut start));
    read.map_err(|error| read_error(path, &error))?;
    // a log may have grown: only a full line is compared
    let end = start
        .iter()
        .position(|&byte| byte == b'\n')
        .unwrap_or(start.len());
    Ok(blake3::hash(&start[..end]).to_hex().to_string())
}

fn read_error(path: &Path, error: &io::Error) -> CommandError {
    CommandError::Data(format!("cannot read {}: {error}", path.display()))
}

/// The requests in the lines of a reader. Their positions count the requests of all lines,
/// repetitions included.
pub struct LineItems {
    reader: Box<dyn BufRead + Send>,
    format: LineFormat,
    is_forced: bool,
    /// Positions before this one are done.
    first: u64,
    line: u64,
    position: u64,
    events: VecDeque<SourceEvent>,
    recent: RecentRequests,
    is_ended: bool,
}

impl LineItems {
    /// Reads requests from position `first` on.
    pub fn new(
        reader: Box<dyn BufRead + Send>,
        format: LineFormat,
        is_forced: bool,
        first: u64,
    ) -> Self {
        Self {
            reader,
            format,
            is_forced,
            first,
            line: 0,
            position: 0,
            events: VecDeque::new(),
            recent: RecentRequests::default(),
            is_ended: false,
        }
    }

    /// Reads the next line, and appends its events.
    fn read_line(&mut self) {
        let mut line = Vec::new();
        let read = (&mut self.reader)
            .take(MAX_LINE_BYTES + 1)
            .read_until(b'\n', &mut line);
        self.line += 1;
        match read {
            Ok(0) => self.is_ended = true,
            Ok(length) if length as u64 > MAX_LINE_BYTES => {
                self.add_bad_line(format!("longer than {MAX_LINE_BYTES} bytes"));
                self.skip_rest_of_line(&line);
            }
            Ok(_) => match parse_line(self.format, &line, self.is_forced) {
                Ok(requests) if requests.is_empty() => self.events.push_back(SourceEvent::Skipped),
                Ok(requests) => requests.into_iter().for_each(|request| self.add(request)),
                Err(cause) => self.add_bad_line(cause),
            },
            Err(error) => self.fail(&error),
        }
    }

    fn add(&mut self, request: WarmRequest) {
        let position = self.position;
        self.position += 1;
        let is_new = self.recent.insert(&request);
        if position >= self.first {
            self.events.push_back(match is_new {
                true => SourceEvent::Item(WarmItem { position, request }),
                false => SourceEvent::Skipped,
            });
        }
    }

    fn add_bad_line(&mut self, cause: String) {
        let line = self.line;
        self.events.push_back(SourceEvent::BadLine { line, cause });
    }

    fn skip_rest_of_line(&mut self, start: &[u8]) {
        if start.ends_with(b"\n") {
            return;
        }
        if let Err(error) = self.reader.skip_until(b'\n') {
            self.fail(&error);
        }
    }

    fn fail(&mut self, error: &io::Error) {
        self.is_ended = true;
        self.events
            .push_back(SourceEvent::Failed(error.to_string()));
    }
}

impl Iterator for LineItems {
    type Item = SourceEvent;

    fn next(&mut self) -> Option<SourceEvent> {
        while self.events.is_empty() && !self.is_ended {
            self.read_line();
        }
        self.events.pop_front()
    }
}

/// The hashes of the last requests.
#[derive(Default)]
struct RecentRequests {
    hasher: RandomState,
    hashes: HashSet<u64>,
    order: VecDeque<u64>,
}

impl RecentRequests {
    /// Adds a request; returns whether it was absent.
    fn insert(&mut self, request: &WarmRequest) -> bool {
        let hash = self.hasher.hash_one((&request.path, &request.body));
        if !self.hashes.insert(hash) {
            return false;
        }
        self.order.push_back(hash);
        if self.order.len() > RECENT_REQUESTS {
            if let Some(oldest) = self.order.pop_front() {
                self.hashes.remove(&oldest);
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;

    fn events(text: impl Into<Vec<u8>>, first: u64) -> Vec<SourceEvent> {
        let reader = Box::new(Cursor::new(text.into()));
        LineItems::new(reader, LineFormat::Requests, false, first).collect()
    }

    fn item(position: u64, path: &str) -> SourceEvent {
        let request = WarmRequest::get(path.into());
        SourceEvent::Item(WarmItem { position, request })
    }

    #[test]
    fn positions_count_all_requests_and_repetitions_are_skipped() {
        let text = "GET /a\nGET /b\n\nGET /a\nGET /c";
        let all = [
            item(0, "/a"),
            item(1, "/b"),
            SourceEvent::Skipped,
            SourceEvent::Skipped,
            item(3, "/c"),
        ];
        assert_eq!(events(text, 0), all);
        assert_eq!(events(text, 3), [SourceEvent::Skipped, item(3, "/c")]);
        assert!(events("", 0).is_empty());
    }

    #[test]
    fn call_with_another_id_is_a_repetition() {
        let call = |id: u8| format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"eth_chainId"}}"#);
        let found = events(format!("{}\n{}\n", call(1), call(2)), 0);
        assert!(
            matches!(found[..], [SourceEvent::Item(_), SourceEvent::Skipped]),
            "{found:?}"
        );
    }

    #[test]
    fn bad_lines_have_their_number() {
        let found = events("GET /a\n\0\n\nGET /b\n", 0);
        assert!(
            matches!(&found[1], SourceEvent::BadLine { line: 2, .. }),
            "{found:?}"
        );
        assert_eq!((&found[0], &found[3]), (&item(0, "/a"), &item(1, "/b")));
    }

    #[test]
    fn too_long_line_is_bad_and_the_next_one_is_read() {
        for length in [MAX_LINE_BYTES, MAX_LINE_BYTES + 1, MAX_LINE_BYTES + 9] {
            let mut text = vec![b'x'; length as usize];
            text.extend_from_slice(b"\nGET /a\n");
            let found = events(text, 0);
            let [SourceEvent::BadLine { line: 1, cause }, last] = &found[..] else {
                panic!("{found:?}");
            };
            assert!(cause.contains("longer than"), "{cause}");
            assert_eq!(last, &item(0, "/a"));
        }
    }

    #[test]
    fn unreadable_input_ends_with_its_error() {
        struct Broken;
        impl Read for Broken {
            fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
                Err(io::Error::other("disk failed"))
            }
        }
        let reader = Box::new(BufReader::new(Broken));
        let found: Vec<_> = LineItems::new(reader, LineFormat::Log, false, 0).collect();
        assert_eq!(found, [SourceEvent::Failed("disk failed".into())]);
        assert!(open_lines(Path::new("/")).is_err());
    }

    #[test]
    fn repetition_is_found_among_the_last_requests_only() {
        let mut recent = RecentRequests::default();
        let get = |number: usize| WarmRequest::get(format!("/{number}"));
        assert!((0..=RECENT_REQUESTS).all(|number| recent.insert(&get(number))));
        assert!(!recent.insert(&get(RECENT_REQUESTS)) && recent.insert(&get(0)));
    }

    #[test]
    fn hash_of_a_file_is_of_its_first_line() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let hash = |text: &str| {
            std::fs::write(file.path(), text).unwrap();
            hash_file_start(file.path()).unwrap()
        };
        assert_eq!(hash("a\nb"), hash("a\nb\nc\n"));
        assert_ne!(hash("a\nb"), hash("b\nb"));
    }
}
