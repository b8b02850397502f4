//! The resume file: the progress of a run, which a later one continues.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use serde_json::{json, Value};

use super::block_range::BlockNumbers;
use super::tracker::PositionTracker;
use crate::output::CommandOutputWriter;
use crate::CommandError;

/// Version of the format.
const FORMAT: u64 = 1;

/// Maximum length of a resume file; it has some kilobytes.
const MAX_FILE_BYTES: u64 = 16 << 20;

/// A resume file, and the run to which it belongs.
pub struct ResumeFile<'a> {
    path: &'a Path,
    url: &'a str,
    /// The source of the requests, as an object.
    source: Value,
}

/// The progress that a resume file has recorded.
#[derive(Debug, PartialEq, Eq)]
pub struct RecordedProgress {
    /// The blocks of the source, whose tags were resolved at the first start.
    pub blocks: Option<BlockNumbers>,
    /// The first position that is not done.
    pub next: u64,
    /// Later positions that are done.
    pub done: Vec<u64>,
    /// Whether all requests are done.
    pub is_finished: bool,
}

impl<'a> ResumeFile<'a> {
    /// Names the file, and the run whose progress it records.
    pub fn new(path: &'a Path, url: &'a str, source: Value) -> Self {
        Self { path, url, source }
    }

    /// Reads the file; `None` if it does not exist.
    ///
    /// # Errors
    /// The file cannot be read, is incomplete, or belongs to another run.
    pub fn read(&self) -> Result<Option<RecordedProgress>, CommandError> {
        let name = self.path.display();
        let mut text = Vec::new();
        let read =
            File::open(self.path).and_then(|file| file.take(MAX_FILE_BYTES).read_to_end(&mut text));
        match read {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(CommandError::Data(format!("cannot read {name}: {error}"))),
        }
        let json: Option<Value> = serde_json::from_slice(&text).ok();
        let json = json.filter(|json| json["format"].is_u64()).ok_or_else(|| {
            CommandError::Data(format!(
                "{name} is no complete resume file; delete it to start from the beginning, or \
                 choose another --resume"
            ))
        })?;
        if json["format"] != FORMAT {
            return Err(self.foreign_error("format", &json["format"], &FORMAT.into()));
        }
        if json["url"] != self.url {
            return Err(self.foreign_error("url", &json["url"], &self.url.into()));
        }
        if json["source"] != self.source {
            return Err(self.foreign_error("source", &json["source"], &self.source));
        }
        let progress = parse_progress(&json);
        progress.map(Some).ok_or_else(|| {
            CommandError::Data(format!(
                "{name} has no valid progress; delete it to start from the beginning"
            ))
        })
    }

    fn foreign_error(&self, member: &str, recorded: &Value, expected: &Value) -> CommandError {
        CommandError::Usage(format!(
            "{} belongs to another run: its {member} is {recorded}, not {expected}; choose \
             another --resume, or repeat the arguments of that run",
            self.path.display()
        ))
    }

    /// Replaces the file by the present progress.
    pub fn write(
        &self,
        blocks: Option<BlockNumbers>,
        tracker: &PositionTracker,
        is_finished: bool,
    ) -> Result<(), CommandError> {
        let json = json!({
            "format": FORMAT,
            "software": concat!("sszip/", env!("CARGO_PKG_VERSION")),
            "url": self.url,
            "source": self.source,
            "blocks": blocks.map(|(from, to)| [from, to]),
            "next": tracker.next(),
            "done": tracker.done().collect::<Vec<_>>(),
            "finished": is_finished,
        });
        let mut output = CommandOutputWriter::open_output(Some(self.path))?;
        output.write(format!("{json}\n").as_bytes())?;
        output.flush_and_commit_output()
    }
}

fn parse_progress(json: &Value) -> Option<RecordedProgress> {
    let blocks = match &json["blocks"] {
        Value::Null => None,
        blocks => {
            let (from, to) = (blocks[0].as_u64()?, blocks[1].as_u64()?);
            Some((from, to)).filter(|(from, to)| from <= to)
        }
    };
    let done = json["done"].as_array()?.iter().map(Value::as_u64);
    Some(RecordedProgress {
        blocks,
        next: json["next"].as_u64()?,
        done: done.collect::<Option<_>>()?,
        is_finished: json["finished"].as_bool()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source() -> Value {
        json!({ "range": "1-9", "calls": ["GET /$NUMBER"] })
    }

    #[test]
    fn progress_is_written_and_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("resume");
        let file = ResumeFile::new(&path, "http://a/", source());
        assert_eq!(file.read().unwrap(), None);
        let mut tracker = PositionTracker::default();
        (0..5).for_each(|position| assert!(tracker.start(position)));
        tracker.finish([0, 1, 3]);
        for is_finished in [false, true] {
            file.write(Some((1, 9)), &tracker, is_finished).unwrap();
            let expected = RecordedProgress {
                blocks: Some((1, 9)),
                next: 2,
                done: vec![3],
                is_finished,
            };
            assert_eq!(file.read().unwrap(), Some(expected));
        }
        // the temporary file was renamed
        assert_eq!(folder.path().read_dir().unwrap().count(), 1);
    }

    #[test]
    fn file_of_another_run_is_rejected() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("resume");
        let tracker = PositionTracker::default();
        let written = ResumeFile::new(&path, "http://a/", source());
        written.write(None, &tracker, false).unwrap();
        let other_source = json!({ "range": "1-8", "calls": [] });
        for (url, source, expected) in [
            (
                "http://b/",
                source(),
                "its url is \"http://a/\", not \"http://b/\"",
            ),
            ("http://a/", other_source, "its source is"),
        ] {
            let error = ResumeFile::new(&path, url, source).read().unwrap_err();
            let CommandError::Usage(text) = error else {
                panic!("{error:?}");
            };
            assert!(text.contains(expected), "{text}");
        }
        std::fs::write(&path, r#"{"format":2}"#).unwrap();
        assert!(matches!(written.read(), Err(CommandError::Usage(_))));
    }

    #[test]
    fn incomplete_file_is_rejected() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("resume");
        let file = ResumeFile::new(&path, "http://a/", source());
        file.write(Some((1, 9)), &PositionTracker::default(), false)
            .unwrap();
        let complete = std::fs::read_to_string(&path).unwrap();
        let half = &complete[..complete.len() / 2];
        let odd = [
            complete.replace("\"next\":0", "\"next\":-1"),
            complete.replace("\"done\":[]", "\"done\":[\"a\"]"),
            complete.replace("[1,9]", "[1]"),
        ];
        let texts = ["", "\0", "[]", "{}", half];
        for text in texts.into_iter().chain(odd.iter().map(String::as_str)) {
            std::fs::write(&path, text).unwrap();
            let Err(CommandError::Data(error)) = file.read() else {
                panic!("{text} is accepted");
            };
            assert!(error.contains("delete it"), "{error}");
        }
        assert!(ResumeFile::new(Path::new("/"), "", source())
            .read()
            .is_err());
    }
}
