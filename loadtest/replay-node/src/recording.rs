//! Parser of recorded exchanges in folders.
//!
//! Every `*.json` below a folder is read. A file in the rpc-tests format, an array of `{request,
//! response}` objects or one such object, adds responses to calls; `request` and `response` may
//! be batches. Any other JSON file is a page, served by GET at its path below the folder without
//! `.json`. A `*.ssz` of the same name is the page in SSZ, a `*.headers` the headers of both. A
//! warning names each part that can't be used, and the rest is loaded.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use hyper::header::{HeaderName, HeaderValue};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::responses::{
    deserialize_present_member, RecordedResponse, RecordedResponseError, ResponseTable,
};

/// Maximum nesting of folders; deeper ones are assumed to be a loop of links.
const DEPTH_LIMIT: usize = 16;

/// The reason why a recorded exchange was skipped.
#[derive(Debug, thiserror::Error)]
pub enum RecordedExchangeError {
    #[error("the entry is not an object")]
    NotAnObject,
    #[error("the entry is not a request with its response: {0}")]
    Malformed(#[from] serde_json::Error),
    #[error("the entry has no response")]
    NoResponse,
    #[error("the request has no method")]
    NoMethod,
    #[error("a batch of {requests} requests has {responses} responses")]
    BatchLength { requests: usize, responses: usize },
    #[error(transparent)]
    Answer(#[from] RecordedResponseError),
}

/// A JSON-RPC request or batch and its response, as an entry of a recording file has them;
/// `response` is `None` if the entry lacks it.
#[derive(Deserialize)]
struct RecordedExchange<'a> {
    #[serde(borrow)]
    request: &'a RawValue,
    #[serde(borrow, default, deserialize_with = "deserialize_present_member")]
    response: Option<&'a RawValue>,
}

/// The members of a recorded request by which its response is found.
#[derive(Deserialize)]
struct RecordedCallKey<'a> {
    method: Option<String>,
    #[serde(borrow, default, deserialize_with = "deserialize_present_member")]
    params: Option<&'a RawValue>,
}

/// Reads all files below `folder` into `answers`; `warn` receives the skipped ones. Fails only if
/// the folder itself can't be read.
pub fn load_folder(
    folder: &Path,
    answers: &mut ResponseTable,
    warn: &mut dyn FnMut(String),
) -> io::Result<()> {
    let mut files = Vec::new();
    for path in sorted_entries(folder)? {
        find_files(path, DEPTH_LIMIT, &mut files, warn);
    }
    for file in files {
        let path = served_path_of_file(folder, &file);
        let warn = &mut |reason| warn(format!("{}: {reason}", file.display()));
        let read = match file_kind(&file) {
            Some(RecordedFileFormat::Ssz) => fs::read(&file).map(|ssz| {
                answers.replay_page_mut(path).ssz = Some(ssz.into());
            }),
            Some(RecordedFileFormat::Fields) => fs::read_to_string(&file).map(|text| {
                let (name, fields) = (path.clone(), parse_headers(&text, warn));
                answers.replay_page_mut(name).set_response_headers(fields);
            }),
            _ => fs::read_to_string(&file).map(|text| load_file(&text, &path, answers, warn)),
        };
        if let Err(error) = read {
            warn(error.to_string());
        }
    }
    Ok(())
}

/// Reads a file as the page at `path`, whatever its content, or as the headers of that page.
pub fn load_page_file(
    path: &str,
    file: &Path,
    answers: &mut ResponseTable,
    warn: &mut dyn FnMut(String),
) -> io::Result<()> {
    match file_kind(file) {
        Some(RecordedFileFormat::Ssz) => {
            answers.replay_page_mut(path.to_owned()).ssz = Some(fs::read(file)?.into());
        }
        Some(RecordedFileFormat::Fields) => {
            let fields = parse_headers(&fs::read_to_string(file)?, warn);
            answers
                .replay_page_mut(path.to_owned())
                .set_response_headers(fields);
        }
        _ => {
            let text = fs::read_to_string(file)?;
            let json: &RawValue = serde_json::from_str(&text)?;
            answers.insert_replay_page(path.to_owned(), json.get());
        }
    }
    Ok(())
}

/// The kind of a recorded file, by the extension of its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RecordedFileFormat {
    Json,
    Ssz,
    Fields,
}

/// Returns the format of a file by its extension, or `None` if it is not a recording.
fn file_kind(file: &Path) -> Option<RecordedFileFormat> {
    match file.extension()?.to_str()? {
        "json" => Some(RecordedFileFormat::Json),
        "ssz" => Some(RecordedFileFormat::Ssz),
        "headers" => Some(RecordedFileFormat::Fields),
        _ => None,
    }
}

/// Parses headers, `Name: value`, one per line.
fn parse_headers(text: &str, warn: &mut dyn FnMut(String)) -> Vec<(HeaderName, HeaderValue)> {
    let mut fields = Vec::new();
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        let field = line.split_once(':').and_then(|(name, value)| {
            Some((name.trim().parse().ok()?, value.trim().parse().ok()?))
        });
        match field {
            Some(field) => fields.push(field),
            None => warn(format!("{line:?} is no header field")),
        }
    }
    fields
}

fn sorted_entries(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder)?.map(|entry| entry.map(|entry| entry.path()));
    let mut paths = entries.collect::<io::Result<Vec<_>>>()?;
    paths.sort();
    Ok(paths)
}

/// Appends the recordings below `path`, in the order of their names, down to `depth` folders.
/// Unreadable folders are passed to `warn`.
fn find_files(path: PathBuf, depth: usize, files: &mut Vec<PathBuf>, warn: &mut dyn FnMut(String)) {
    if path.is_dir() {
        match sorted_entries(&path) {
            _ if depth == 0 => warn(format!("{}: nested too deeply", path.display())),
            Ok(entries) => entries
                .into_iter()
                .for_each(|entry| find_files(entry, depth - 1, files, warn)),
            Err(error) => warn(format!("{}: {error}", path.display())),
        }
    } else if file_kind(&path).is_some() {
        files.push(path);
    }
}

/// Returns the path of a page: `FOLDER/eth/v1/node/version.json` is served at
/// `/eth/v1/node/version`.
fn served_path_of_file(folder: &Path, file: &Path) -> String {
    let below = file.strip_prefix(folder).unwrap_or(file);
    format!("/{}", below.with_extension("").display())
}

/// Adds the exchanges of a file, or the file as the page at `path` if it contains none. Invalid
/// entries are passed to `warn`.
fn load_file(text: &str, path: &str, answers: &mut ResponseTable, warn: &mut dyn FnMut(String)) {
    // A byte order mark is not JSON, but some editors write one.
    let text = text.trim_start_matches('\u{feff}');
    let whole: &RawValue = match serde_json::from_str(text) {
        Ok(whole) => whole,
        Err(error) => return warn(format!("the file is not JSON: {error}")),
    };
    let entries: Vec<&RawValue> = if whole.get().starts_with('[') {
        serde_json::from_str(whole.get()).unwrap_or_default()
    } else {
        vec![whole]
    };
    if !entries.iter().any(|entry| is_recorded_exchange(entry)) {
        return answers.insert_replay_page(path.to_owned(), whole.get());
    }
    for (index, entry) in entries.into_iter().enumerate() {
        if let Err(error) = load_entry(entry.get(), answers) {
            warn(format!("entry {index}: {error}"));
        }
    }
}

/// Whether the entry is an object with a request, not a page.
fn is_recorded_exchange(entry: &RawValue) -> bool {
    entry.get().starts_with('{') && serde_json::from_str::<RecordedExchange>(entry.get()).is_ok()
}

/// Adds a recorded exchange; a batch is added call by call, and must have as many responses as
/// calls.
fn load_entry(text: &str, answers: &mut ResponseTable) -> Result<(), RecordedExchangeError> {
    // serde would read an array as a struct's members in order.
    if !text.starts_with('{') {
        return Err(RecordedExchangeError::NotAnObject);
    }
    let entry: RecordedExchange = serde_json::from_str(text)?;
    let response = entry.response.ok_or(RecordedExchangeError::NoResponse)?;
    if !entry.request.get().starts_with('[') {
        return load_pair(entry.request, response, answers);
    }
    let requests: Vec<&RawValue> = serde_json::from_str(entry.request.get())?;
    let responses: Vec<&RawValue> = serde_json::from_str(response.get())?;
    if requests.len() != responses.len() {
        return Err(RecordedExchangeError::BatchLength {
            requests: requests.len(),
            responses: responses.len(),
        });
    }
    for (request, response) in requests.into_iter().zip(responses) {
        match load_pair(request, response, answers) {
            // A batch may contain an invalid member on purpose; the node responds to it by
            // itself.
            Ok(()) | Err(RecordedExchangeError::NoMethod) => (),
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Adds the response to one call. A request without a method is an error.
fn load_pair(
    request: &RawValue,
    response: &RawValue,
    answers: &mut ResponseTable,
) -> Result<(), RecordedExchangeError> {
    if !request.get().starts_with('{') {
        return Err(RecordedExchangeError::NoMethod);
    }
    let request: RecordedCallKey = serde_json::from_str(request.get())?;
    let method = request.method.ok_or(RecordedExchangeError::NoMethod)?;
    let answer = RecordedResponse::from_recorded_json(response.get())?;
    answers.insert_recorded_response(&method, request.params, Arc::new(answer));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> (Vec<(String, String, usize)>, Vec<String>) {
        let mut answers = ResponseTable::new(false);
        let mut warnings = Vec::new();
        load_file(text, "/page", &mut answers, &mut |w| warnings.push(w));
        (answers.response_size_rows(), warnings)
    }

    #[test]
    fn single_objects_batches_and_byte_order_marks_are_read() {
        let pair = r#"{"request":{"method":"m","params":[1]},"response":{"id":1,"result":1},"test":{"id":"x"},"metadata":{}}"#;
        let batch = r#"{"request":[{"id":1},{"method":"m","params":[1]}],"response":[{"id":1,"error":{}},{"id":2,"result":1}]}"#;
        for text in [
            format!("[{pair}]"),
            pair.to_owned(),
            format!("\u{feff}[ {batch} ]"),
        ] {
            let (rows, warnings) = read(&text);
            assert_eq!(rows, [("m".to_owned(), "[1]".to_owned(), 19)], "{text}");
            assert_eq!(warnings, [""; 0], "{text}");
        }
    }

    #[test]
    fn json_that_is_not_a_recording_is_a_page() {
        for text in ["{ \"data\": [] }", "[{\"data\":1}]", "[ ]", "7"] {
            let (rows, warnings) = read(text);
            let size = text.replace(' ', "").len();
            assert_eq!(
                rows,
                [("GET".to_owned(), "/page".to_owned(), size)],
                "{text}"
            );
            assert_eq!(warnings, [""; 0], "{text}");
        }
    }

    #[test]
    fn unusable_entry_is_named_in_a_warning_and_the_rest_is_loaded() {
        let good = r#"{"request":{"method":"m"},"response":{"id":1,"result":1}}"#;
        let cases = [
            ("{\"request\":", "the file is not JSON"),
            (
                r#"[GOOD,{"request":{"method":"m"}}]"#,
                "entry 1: the entry has no response",
            ),
            (
                r#"[{"request":{"id":1},"response":{"id":1}},GOOD]"#,
                "entry 0: the request has no method",
            ),
            (
                r#"[GOOD,{"request":[{"method":"m"}],"response":[]}]"#,
                "entry 1: a batch of 1 requests has 0 responses",
            ),
            (
                r#"[GOOD,{"request":{"method":"x"},"response":{"result":1}}]"#,
                "entry 1: the response has no id",
            ),
            (
                r#"[GOOD,{"request":{"method":"x"},"response":null}]"#,
                "entry 1: the response is not a JSON object",
            ),
            (r#"[GOOD,[1]]"#, "entry 1: the entry is not an object"),
            (
                r#"[GOOD,{"response":1}]"#,
                "entry 1: the entry is not a request with its response",
            ),
        ];
        for (text, warning) in cases {
            let (rows, warnings) = read(&text.replace("GOOD", good));
            assert_eq!(rows.len(), usize::from(text.contains("GOOD")), "{text}");
            assert_eq!(warnings.len(), 1, "{text}");
            assert!(warnings[0].starts_with(warning), "{text}: {}", warnings[0]);
        }
    }
}
