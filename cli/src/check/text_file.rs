//! Reads the text of a configuration file.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use crate::CommandError;

/// Maximum length of a file.
const MAX_BYTES: u64 = 16 << 20;

/// Reads a file, or standard input if its path is `-`. Bytes that are not UTF-8 are replaced.
///
/// # Errors
/// The file can't be read, or is longer than 16 MB.
pub fn read_text_file(path: &Path) -> Result<String, CommandError> {
    let read = match path == Path::new("-") {
        true => read_at_most(io::stdin().lock()),
        false => File::open(path).and_then(read_at_most),
    };
    let bytes = read
        .map_err(|error| CommandError::Data(format!("cannot read {}: {error}", path.display())))?;
    if bytes.len() as u64 > MAX_BYTES {
        return Err(CommandError::Data(format!(
            "{} is longer than 16 MB: it is no configuration",
            path.display()
        )));
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Returns the remedy for a syntax error in a text.
pub fn syntax_remedy(text: &str) -> &'static str {
    let is_template = ["{{", "{%", "<%"].iter().any(|open| text.contains(open));
    match is_template {
        true => "render the template, and check the result",
        false => "correct the file",
    }
}

fn read_at_most(input: impl Read) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    input.take(MAX_BYTES + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}
