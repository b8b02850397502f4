//! Reads an nginx configuration with the files that it includes, or the output of `nginx -T`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use super::findings::{Finding, Position};
use super::nginx_syntax::{parse_nginx_text, Directive};
use super::text_file::read_text_file;
use super::wildcards::{has_wildcard, is_path_match, matching_files};
use crate::CommandError;

/// Blocks of a main file. A file without them is a part of a configuration.
const MAIN_BLOCKS: [&str; 2] = ["http", "events"];

/// Maximum nesting of includes.
const MAX_DEPTH: usize = 16;

/// Maximum number of bytes of all files and their names, each as often as it is included.
const MAX_BYTES: usize = 16 << 20;

/// Prefix of the line before each file in the output of `nginx -T`.
const DUMP_HEADER: &str = "# configuration file ";

/// An nginx configuration whose includes are replaced by the directives of their files.
#[derive(Debug, Default)]
pub struct NginxConfig {
    /// The directives of the main file.
    pub directives: Vec<Directive>,
    /// Warnings about files and folders that can't be read.
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
    /// The folder that relative names refer to: `nginx.conf`'s.
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
        self.bytes += text.len() + name.len();
        if self.bytes > MAX_BYTES || depth > MAX_DEPTH {
            return Err(CommandError::Data(format!(
                "{name} is included too often, or the configuration exceeds 16 MB; check that no \
                 file includes itself"
            )));
        }
        let directives = parse_nginx_text(&Rc::from(name), text)?;
        let is_main = directives.iter().any(|it| MAIN_BLOCKS.contains(&&*it.name));
        if depth == 0 && !is_main && matches!(self.source, ConfigSource::Disk) {
            if let Some(folder) = folder_of_main_file(path) {
                self.folder = folder;
            }
        }
        self.replace_includes(directives, depth)
    }

    fn replace_includes(
        &mut self,
        directives: Vec<Directive>,
        depth: usize,
    ) -> Result<Vec<Directive>, CommandError> {
        let mut all = Vec::with_capacity(directives.len());
        for mut directive in directives {
            let has_data = directive.has_data();
            match directive.block.take() {
                // includes of data are not read
                Some(block) if !has_data => {
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
                    Err(problem) => {
                        let finding = unread_include(&directive.at, &problem);
                        self.findings.push(finding);
                    }
                }
            }
        }
        Ok(all)
    }

    /// Returns the files that an include names, in nginx's order. Folders that can't be read become
    /// findings.
    fn included_paths(&mut self, include: &Directive) -> Vec<PathBuf> {
        let pattern = self.folder.join(include.first_word());
        if !has_wildcard(include.first_word()) {
            return vec![pattern];
        }
        match &self.source {
            ConfigSource::Disk => {
                let mut problems = Vec::new();
                let paths = matching_files(&pattern, &mut problems);
                let unread = problems.iter().map(|it| unread_include(&include.at, it));
                self.findings.extend(unread);
                paths
            }
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
            // a pipe would be waited for
            ConfigSource::Disk if path.exists() && !path.is_file() => {
                Err(format!("{} is not a regular file", path.display()))
            }
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

/// Rule `include`: returns the finding about a file or folder that can't be read.
fn unread_include(at: &Position, problem: &str) -> Finding {
    Finding::warning(
        "include",
        at,
        format!("{problem}: its directives are not checked"),
        "check nginx.conf on its machine as root, or the output of nginx -T",
    )
}

/// Returns the innermost folder around a file that has an `nginx.conf`.
fn folder_of_main_file(path: &Path) -> Option<PathBuf> {
    let path = std::path::absolute(path).ok()?;
    let mut folders = path.ancestors().skip(1);
    let folder = folders.find(|folder| folder.join("nginx.conf").is_file())?;
    Some(folder.to_owned())
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;
    use std::path::Path;

    use super::{load_nginx_config, parse_nginx_config};

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
    fn includes_of_a_site_are_relative_to_the_folder_of_nginx_conf() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("conf.d")).unwrap();
        std::fs::write(folder.path().join("part"), "two;").unwrap();
        let site = folder.path().join("conf.d/site.conf");
        for (main, text, expected) in [
            ("nginx.conf", "one; include part;", &["one", "two"][..]),
            ("nginx.conf", "http {} include part;", &["http"]),
            ("other.conf", "one; include part;", &["one"]),
        ] {
            let main = folder.path().join(main);
            std::fs::write(&main, "").unwrap();
            std::fs::write(&site, text).unwrap();
            let config = load_nginx_config(&site).unwrap();
            let names: Vec<_> = config.directives.iter().map(|it| &*it.name).collect();
            assert_eq!(names, expected, "{text}");
            let missing = usize::from(expected.len() == 1);
            assert_eq!(config.findings.len(), missing, "{:?}", config.findings);
            std::fs::remove_file(main).unwrap();
        }
    }

    #[test]
    fn folders_that_cannot_be_read_are_reported() {
        let folder = tempfile::tempdir().unwrap();
        let main = folder.path().join("nginx.conf");
        // root can't read a link to itself either
        std::os::unix::fs::symlink("loop", folder.path().join("loop")).unwrap();
        for (name, expected) in [
            ("loop/*.conf", Some("/loop: ")),
            ("l*p/a.conf", Some("/loop/a.conf: ")),
            ("none/*.conf", None),
            ("nginx.conf/*", None),
        ] {
            std::fs::write(&main, format!("include {name}; http {{}}")).unwrap();
            let findings = load_nginx_config(&main).unwrap().findings;
            let count = usize::from(expected.is_some());
            assert_eq!(findings.len(), count, "{name}: {findings:?}");
            for (finding, expected) in findings.iter().zip(expected) {
                assert!(finding.text.contains(expected), "{findings:?}");
            }
        }
    }

    #[test]
    fn included_socket_is_not_read() {
        let folder = tempfile::tempdir().unwrap();
        let main = folder.path().join("nginx.conf");
        let socket = UnixListener::bind(folder.path().join("socket")).unwrap();
        std::fs::write(&main, "include socket; http {}").unwrap();
        let config = load_nginx_config(&main).unwrap();
        drop(socket);
        assert!(config.findings[0].text.contains("is not a regular file"));
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
    fn empty_file_that_is_included_too_often_is_an_error() {
        let includes = "include a*;\n".repeat(40);
        let name = "a".repeat(500_000);
        let dump =
            format!("# configuration file /n:\n{includes}\n# configuration file /{name}:\n\n");
        let error = parse_nginx_config(Path::new("-"), &dump).unwrap_err();
        assert!(error.message().unwrap().contains("included too often"));
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
