//! Reads an nginx configuration with the files that it includes, or the output of `nginx -T`.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Component, Path, PathBuf};
use std::rc::Rc;

use super::findings::Finding;
use super::nginx_syntax::{parse_nginx_text, Directive};
use super::text_file::read_text_file;
use crate::CommandError;

/// Maximum nesting of includes.
const MAX_DEPTH: usize = 16;

/// Maximum number of bytes of all files, each as often as it is included.
const MAX_BYTES: usize = 16 << 20;

/// Prefix of the line before each file in the output of `nginx -T`.
const DUMP_HEADER: &str = "# configuration file ";

/// Blocks with data in place of directives: keys of clients, for example. Their includes are not
/// read.
const DATA_BLOCKS: [&str; 4] = ["map", "geo", "types", "split_clients"];

/// An nginx configuration whose includes are replaced by the directives of their files.
#[derive(Debug, Default)]
pub struct NginxConfig {
    /// The directives of the main file.
    pub directives: Vec<Directive>,
    /// Warnings about files that can't be read.
    pub findings: Vec<Finding>,
}

/// The files from which a configuration is read.
enum ConfigSource {
    /// The file system.
    Disk,
    /// The output of `nginx -T`, by path.
    Dump(BTreeMap<PathBuf, String>),
}

struct Loader {
    source: ConfigSource,
    /// The folder that relative names refer to: the main file's.
    folder: PathBuf,
    bytes: usize,
    findings: Vec<Finding>,
}

/// Reads the configuration with the main file `path`, or the output of `nginx -T` in this file.
///
/// # Errors
/// A file is invalid, the main file can't be read, or standard input has no directives.
pub fn load_nginx_config(path: &Path) -> Result<NginxConfig, CommandError> {
    let config = parse_nginx_config(path, &read_text_file(path)?)?;
    // nginx -T without the permission to read its files prints none
    if path == Path::new("-") && config.directives.is_empty() {
        return Err(CommandError::Data(
            "standard input has no directives; run nginx -T as root, and see its errors".into(),
        ));
    }
    Ok(config)
}

fn parse_nginx_config(path: &Path, text: &str) -> Result<NginxConfig, CommandError> {
    let files = split_dump(text);
    match files.first().cloned() {
        Some((main, text)) => {
            let source = ConfigSource::Dump(files.into_iter().collect());
            load_with_source(source, &main, &text)
        }
        None => load_with_source(ConfigSource::Disk, path, text),
    }
}

/// Returns the files in the output of `nginx -T`, the main file first; of another text, none. Lines
/// before the first header are messages of nginx.
fn split_dump(text: &str) -> Vec<(PathBuf, String)> {
    let mut files: Vec<(PathBuf, String)> = Vec::new();
    for line in text.split_inclusive('\n') {
        let header = line.trim_end().strip_prefix(DUMP_HEADER);
        let path = header.and_then(|it| it.strip_suffix(':'));
        if let Some(path) = path.filter(|path| path.starts_with('/')) {
            files.push((path.into(), String::new()));
        } else if let Some((_, text)) = files.last_mut() {
            text.push_str(line);
        }
    }
    files
}

fn load_with_source(
    source: ConfigSource,
    path: &Path,
    text: &str,
) -> Result<NginxConfig, CommandError> {
    let mut loader = Loader {
        source,
        folder: path.parent().unwrap_or(Path::new("")).to_owned(),
        bytes: 0,
        findings: Vec::new(),
    };
    let directives = loader.parse_file(path, text, 0)?;
    Ok(NginxConfig {
        directives,
        findings: loader.findings,
    })
}

impl Loader {
    fn parse_file(
        &mut self,
        path: &Path,
        text: &str,
        depth: usize,
    ) -> Result<Vec<Directive>, CommandError> {
        let name = path.display().to_string();
        self.bytes += text.len();
        if self.bytes > MAX_BYTES || depth > MAX_DEPTH {
            return Err(CommandError::Data(format!(
                "{name} is included too often, or the configuration exceeds 16 MB; check that no \
                 file includes itself"
            )));
        }
        let directives = parse_nginx_text(&Rc::from(name), text)?;
        self.replace_includes(directives, depth)
    }

    fn replace_includes(
        &mut self,
        directives: Vec<Directive>,
        depth: usize,
    ) -> Result<Vec<Directive>, CommandError> {
        let mut all = Vec::with_capacity(directives.len());
        for mut directive in directives {
            let is_data = DATA_BLOCKS.contains(&&*directive.name);
            match directive.block.take() {
                Some(block) if !is_data => {
                    directive.block = Some(self.replace_includes(block, depth)?);
                }
                block => directive.block = block,
            }
            if directive.name != "include" || directive.block.is_some() {
                all.push(directive);
                continue;
            }
            for path in self.included_paths(&directive) {
                match self.read_file(&path) {
                    Ok(text) => all.extend(self.parse_file(&path, &text, depth + 1)?),
                    Err(problem) => self.findings.push(Finding::warning(
                        "include",
                        &directive.at,
                        format!("{problem}: its directives are not checked"),
                        "check nginx.conf on its machine, or the output of nginx -T",
                    )),
                }
            }
        }
        Ok(all)
    }

    /// Returns the files that an include names, in nginx's order.
    fn included_paths(&self, include: &Directive) -> Vec<PathBuf> {
        let pattern = self.folder.join(include.first_word());
        if !has_wildcard(include.first_word()) {
            return vec![pattern];
        }
        match &self.source {
            ConfigSource::Disk => matching_files(&pattern),
            ConfigSource::Dump(files) => {
                let paths = files.keys();
                paths
                    .filter(|path| is_path_match(&pattern, path))
                    .cloned()
                    .collect()
            }
        }
    }

    /// Reads a file, or returns the problem as text.
    fn read_file(&self, path: &Path) -> Result<String, String> {
        match &self.source {
            ConfigSource::Disk => {
                read_text_file(path).map_err(|error| error.message().unwrap_or_default().to_owned())
            }
            ConfigSource::Dump(files) => files
                .get(path)
                .cloned()
                .ok_or_else(|| format!("{} is not in the output of nginx -T", path.display())),
        }
    }
}

fn has_wildcard(text: &str) -> bool {
    text.contains(['*', '?'])
}

/// Returns the existing files that match a pattern, in the order of their names.
fn matching_files(pattern: &Path) -> Vec<PathBuf> {
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
            let entries = fs::read_dir(place).into_iter().flatten().flatten();
            let names = entries.map(|entry| entry.file_name());
            let mut names: Vec<_> = names
                .filter(|it| is_name_match(name.as_bytes(), it.to_string_lossy().as_bytes()))
                .collect();
            names.sort();
            next.extend(names.into_iter().map(|name| folder.join(name)));
        }
        found = next;
    }
    found.retain(|path| path.is_file());
    found
}

fn is_path_match(pattern: &Path, path: &Path) -> bool {
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

/// Whether a name matches a pattern with `*` and `?`, as in glob(7): a leading dot is matched by a
/// dot only.
fn is_name_match(pattern: &[u8], name: &[u8]) -> bool {
    if name.first() == Some(&b'.') && pattern.first() != Some(&b'.') {
        return false;
    }
    // positions to continue from if the text after the last star does not match
    let (mut at, mut place, mut star) = (0, 0, None);
    while place < name.len() {
        match pattern.get(at) {
            Some(b'*') => {
                star = Some((at, place));
                at += 1;
            }
            Some(byte) if *byte == b'?' || *byte == name[place] => {
                at += 1;
                place += 1;
            }
            _ => match star {
                Some((star_at, matched)) => {
                    at = star_at + 1;
                    place = matched + 1;
                    star = Some((star_at, place));
                }
                None => return false,
            },
        }
    }
    pattern[at..].iter().all(|byte| *byte == b'*')
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{is_name_match, load_nginx_config, parse_nginx_config};

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
        ] {
            let is_match = is_name_match(pattern.as_bytes(), name.as_bytes());
            assert_eq!(is_match, expected, "{pattern} {name}");
        }
    }

    #[test]
    fn includes_are_replaced_in_the_order_of_their_names() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            std::fs::write(folder.path().join(name), text).unwrap();
        };
        std::fs::create_dir(folder.path().join("d")).unwrap();
        write("d/2.conf", "two;");
        write("d/1.conf", "one;\ninclude d/3;");
        write("d/3", "three;");
        write(
            "nginx.conf",
            "include d/*.conf; http { include d/3; include d/4; }",
        );
        let config = load_nginx_config(&folder.path().join("nginx.conf")).unwrap();
        let names: Vec<_> = config.directives.iter().map(|it| &*it.name).collect();
        assert_eq!(names, ["one", "three", "two", "http"]);
        assert_eq!(config.directives[3].inner()[0].name, "three");
        assert_eq!(config.findings.len(), 1);
        assert!(config.findings[0].text.contains("d/4"));
    }

    #[test]
    fn file_that_includes_itself_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("nginx.conf");
        std::fs::write(&path, "include nginx.conf;").unwrap();
        let error = load_nginx_config(&path).unwrap_err();
        assert!(error.message().unwrap().contains("includes itself"));
    }

    #[test]
    fn dump_of_nginx_is_read_with_its_includes() {
        let dump = "nginx: the configuration file /e/nginx.conf syntax is ok\n\
                    # configuration file /e/nginx.conf:\nhttp { include c/*.conf; }\n\n\
                    # configuration file /e/c/a.conf:\n\nsszip on;\n";
        let path = Path::new("-");
        let config = parse_nginx_config(path, dump).unwrap();
        let inner = &config.directives[0].inner()[0];
        assert_eq!((&*inner.name, inner.at.line), ("sszip", 2));
        assert_eq!(&*inner.at.file, "/e/c/a.conf");
        let text = "# configuration file of a site:\nsszip on;";
        let single = parse_nginx_config(path, text).unwrap();
        assert_eq!(&*single.directives[0].at.file, "-");
    }
}
