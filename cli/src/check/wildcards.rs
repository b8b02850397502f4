//! Wildcards in the names of nginx's includes, as glob(7) has them.

use std::ffi::OsString;
use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Component, Path, PathBuf};

/// Whether the name of an include has wildcards.
pub fn has_wildcard(text: &str) -> bool {
    text.contains(['*', '?', '['])
}

/// Returns the existing files that match a pattern, in the order of their names, and those that can't
/// be examined. Appends the errors of folders that can't be read.
pub fn matching_files(pattern: &Path, problems: &mut Vec<String>) -> Vec<PathBuf> {
    let mut found = vec![PathBuf::new()];
    for part in pattern.components() {
        let name = part.as_os_str().to_string_lossy();
        if !has_wildcard(&name) {
            found.iter_mut().for_each(|path| path.push(part));
            continue;
        }
        let mut next = Vec::new();
        for folder in found {
            let place = match folder.as_os_str().is_empty() {
                true => Path::new("."),
                false => folder.as_path(),
            };
            let mut names = match file_names(place) {
                Ok(names) => names,
                Err(error) if is_absence(&error) => continue,
                Err(error) => {
                    problems.push(format!("cannot read {}: {error}", place.display()));
                    continue;
                }
            };
            names.retain(|it| is_name_match(name.as_bytes(), it.to_string_lossy().as_bytes()));
            names.sort();
            next.extend(names.into_iter().map(|name| folder.join(name)));
        }
        found = next;
    }
    found.retain(|path| match fs::metadata(path) {
        Ok(metadata) => metadata.is_file(),
        Err(error) => !is_absence(&error),
    });
    found
}

/// Returns the names of the files in a folder.
fn file_names(folder: &Path) -> io::Result<Vec<OsString>> {
    let entries = fs::read_dir(folder)?;
    entries.map(|entry| Ok(entry?.file_name())).collect()
}

/// Whether an error means that the file or folder does not exist.
fn is_absence(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
}

/// Whether a path matches a pattern, each of its parts by itself.
pub fn is_path_match(pattern: &Path, path: &Path) -> bool {
    let text = |part: Component<'_>| part.as_os_str().to_string_lossy().into_owned();
    let (patterns, parts): (Vec<_>, Vec<_>) = (
        pattern.components().map(text).collect(),
        path.components().map(text).collect(),
    );
    patterns.len() == parts.len()
        && patterns
            .iter()
            .zip(&parts)
            .all(|(pattern, part)| is_name_match(pattern.as_bytes(), part.as_bytes()))
}

/// Whether a name matches a pattern with `*`, `?` and `[a-z]`, as in glob(7): a leading dot is matched
/// by a dot only.
fn is_name_match(pattern: &[u8], name: &[u8]) -> bool {
    if name.first() == Some(&b'.') && pattern.first() != Some(&b'.') {
        return false;
    }
    // positions to continue from if the text after the last star does not match
    let (mut at, mut place, mut star) = (0, 0, None);
    while place < name.len() {
        if pattern.get(at) == Some(&b'*') {
            star = Some((at, place));
            at += 1;
            continue;
        }
        match (match_byte(&pattern[at..], name[place]), star) {
            (Some(length), _) => {
                at += length;
                place += 1;
            }
            (None, Some((star_at, matched))) => {
                at = star_at + 1;
                place = matched + 1;
                star = Some((star_at, place));
            }
            (None, None) => return false,
        }
    }
    pattern[at..].iter().all(|byte| *byte == b'*')
}

/// Returns the length of the first part of a pattern, a byte, `?` or `[a-z]`, if it matches a byte.
fn match_byte(pattern: &[u8], byte: u8) -> Option<usize> {
    let first = *pattern.first()?;
    if first != b'[' {
        return (first == b'?' || first == byte).then_some(1);
    }
    let is_negated = matches!(pattern.get(1), Some(b'!' | b'^'));
    let start = 1 + usize::from(is_negated);
    // a bracket in the first place is a member
    let mut ends = pattern.iter().skip(start + 1);
    match ends.position(|it| *it == b']') {
        Some(others) => {
            let end = start + 1 + others;
            let is_member = has_member(&pattern[start..end], byte);
            (is_member != is_negated).then_some(end + 1)
        }
        None => (byte == b'[').then_some(1),
    }
}

/// Whether a byte is one of the members of `[...]`, or in a range of them.
fn has_member(mut members: &[u8], byte: u8) -> bool {
    loop {
        let (low, high, rest) = match members {
            [low, b'-', high, rest @ ..] => (low, high, rest),
            [only, rest @ ..] => (only, only, rest),
            [] => return false,
        };
        if (*low..=*high).contains(&byte) {
            return true;
        }
        members = rest;
    }
}

#[cfg(test)]
mod tests {
    use super::is_name_match;

    #[test]
    fn wildcards_match_as_in_a_shell() {
        for (pattern, name, expected) in [
            ("*.conf", "a.conf", true),
            ("*.conf", "a.conf.bak", false),
            ("*.conf", ".a.conf", false),
            ("a?c*", "abcd", true),
            ("*a*b", "xaxbxb", true),
            ("*a*b", "xaxbx", false),
            ("*", "", true),
            ("?", "", false),
            ("[0-9]*.conf", "10.conf", true),
            ("[0-9]*.conf", "a.conf", false),
            ("*-[!ab].conf", "a-b-c.conf", true),
            ("*-[!ab].conf", "c-a.conf", false),
            ("[]x]", "]", true),
            ("[x", "[x", true),
        ] {
            let is_match = is_name_match(pattern.as_bytes(), name.as_bytes());
            assert_eq!(is_match, expected, "{pattern} {name}");
        }
    }
}
