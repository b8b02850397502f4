//! `include/sszip.h` equals the output of cbindgen for the source of the C ABI, and the comments of
//! both headers name only what exists.
//!
//! After a change of the ABI: `SSZIP_WRITE_HEADER=1 cargo test --test abi`.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use sszip_core::ffi::SSZIP_ABI;

/// A section of the header: its title, its contents, and the files of `src/ffi` that are its
/// source.
struct Section {
    title: &'static str,
    contents: &'static str,
    files: &'static [&'static str],
}

const SECTIONS: [Section; 8] = [
    Section {
        title: "Common",
        contents: "version, status codes and strings, which all sections use",
        files: &["types"],
    },
    Section {
        title: "Config",
        contents: "directives, blocks and routes of a configuration, and its validation",
        files: &["config", "validated_config"],
    },
    Section {
        title: "Process",
        contents: "start of a worker process, its wakeups and its log lines",
        files: &["process"],
    },
    Section {
        title: "Exchange",
        contents: "requests, responses, lookups, jobs and log variables",
        files: &[
            "known_header",
            "exchange_types",
            "exchange",
            "cache",
            "job",
            "variable",
        ],
    },
    Section {
        title: "Owner link",
        contents: "connections to the owner of the store, for the event loop only",
        files: &["link"],
    },
    Section {
        title: "SSZ",
        contents: "conversion of values, whose results are thread results",
        files: &["ssz"],
    },
    Section {
        title: "Scripts",
        contents: "functions for programs in the host, with thread results",
        files: &["script"],
    },
    Section {
        title: "Status",
        contents: "metrics of all workers, and the status page",
        files: &["status"],
    },
];

impl Section {
    fn banner(&self) -> String {
        let line = "=".repeat(72);
        let Self {
            title, contents, ..
        } = self;
        format!("/* {line}\n * {title}: {contents}\n * {line} */")
    }
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn source(file: &str) -> PathBuf {
    root().join(format!("src/ffi/{file}.rs"))
}

/// Generates the header, each section by itself: cbindgen would write all types before the first
/// function.
fn generate() -> String {
    let config = cbindgen::Config::from_file(root().join("cbindgen.toml")).unwrap();
    let mut header = config.header.clone().unwrap();
    for section in &SECTIONS {
        let builder = cbindgen::Builder::new().with_config(cbindgen::Config {
            header: Some(section.banner()),
            trailer: None,
            ..config.clone()
        });
        // file by file: cbindgen would wrap a feature-gated module in #ifdef
        let add = |builder: cbindgen::Builder, file: &&str| builder.with_src(source(file));
        let bindings = section.files.iter().fold(builder, add).generate().unwrap();
        let mut text = Vec::new();
        bindings.write(&mut text);
        header.push('\n');
        header.push_str(&String::from_utf8(text).unwrap());
    }
    header.push('\n');
    header + config.trailer.as_deref().unwrap()
}

#[test]
fn committed_header_equals_the_generated_header() {
    let header = generate();
    let path = root().join("include/sszip.h");
    if std::env::var_os("SSZIP_WRITE_HEADER").is_some() {
        fs::write(&path, &header).unwrap();
    }
    assert!(
        fs::read_to_string(&path).unwrap_or_default() == header,
        "include/sszip.h is not what src/ffi says: SSZIP_WRITE_HEADER=1 cargo test --test abi"
    );
}

/// Each value of `SSZIP_ABI`, and the checksum of the declarations of its header.
const ABI_CHECKSUMS: &[(u32, &str)] = &[
    (1, "75e198776a6ed88a"),
    (2, "02e6115ccc24ba3f"),
    (3, "4af80dd3b71efcdb"),
    (4, "122e5d4154e62b4a"),
];

/// Returns the checksum of a header's declarations: the text without comments, white space and
/// `SSZIP_ABI`.
fn declarations_checksum(header: &str) -> String {
    let (code, _) = split_comments(header);
    let is_number = |line: &str| line.starts_with("#define SSZIP_ABI ");
    let words = code
        .lines()
        .filter(|line| !is_number(line))
        .flat_map(str::split_whitespace);
    let words: Vec<_> = words.collect();
    blake3::hash(words.join(" ").as_bytes()).to_hex()[..16].to_owned()
}

#[test]
fn changed_declarations_have_another_abi_number() {
    let header = fs::read_to_string(root().join("include/sszip.h")).unwrap();
    let checksum = declarations_checksum(&header);
    assert!(ABI_CHECKSUMS.is_sorted_by(|(former, _), (later, _)| former < later));
    let expected = ABI_CHECKSUMS.iter().find(|(abi, _)| *abi == SSZIP_ABI);
    assert_eq!(
        expected.map(|(_, checksum)| *checksum),
        Some(&*checksum),
        "the declarations of include/sszip.h are not those of SSZIP_ABI {SSZIP_ABI}. If a host must \
         be compiled again (a function, struct or number was changed or removed), increment \
         SSZIP_ABI in src/ffi/types.rs and add ({}, \"{checksum}\") to ABI_CHECKSUMS; if there are \
         only additions, replace the last checksum",
        SSZIP_ABI + 1,
    );
}

#[test]
fn checksum_of_declarations_depends_on_neither_comments_nor_the_number() {
    let checksum = declarations_checksum("/* a */\n#define SSZIP_ABI 1\nint sszip_a(void);\n");
    let same = "#define SSZIP_ABI 2\nint  sszip_a(void);/* b */\n";
    assert_eq!(declarations_checksum(same), checksum);
    assert_ne!(declarations_checksum("int sszip_a(int);"), checksum);
}

#[test]
fn every_file_of_the_abi_belongs_to_one_section() {
    let mut listed: Vec<_> = SECTIONS
        .iter()
        .flat_map(|section| section.files)
        .map(|file| source(file))
        .collect();
    listed.sort();
    let exports = |path: &PathBuf| {
        let text = fs::read_to_string(path).unwrap();
        text.contains("extern \"C\"") || text.contains("#[repr(C)]")
    };
    let files = fs::read_dir(root().join("src/ffi")).unwrap();
    let mut files: Vec<_> = files.map(|file| file.unwrap().path()).collect();
    files.retain(exports);
    files.sort();
    assert_eq!(files, listed);
}

/// Returns the text of a header outside comments, and its comments.
pub(crate) fn split_comments(header: &str) -> (String, Vec<&str>) {
    let mut parts = header.split("/*");
    let mut code = parts.next().unwrap_or_default().to_owned();
    let mut comments = Vec::new();
    for part in parts {
        let (comment, rest) = part.split_once("*/").unwrap();
        comments.push(comment);
        code.push_str(rest);
    }
    (code, comments)
}

/// Returns the names of the library in a text.
fn names(text: &str) -> impl Iterator<Item = &str> {
    text.split(|byte: char| !byte.is_ascii_alphanumeric() && byte != '_')
        .filter(|word| word.starts_with("sszip_") || word.starts_with("SSZIP_"))
}

/// Returns the faults of comments: names that are not `known`, and links of Rust or Markdown.
fn faults(comments: &[&str], known: &BTreeSet<&str>) -> Vec<String> {
    let mut faults = Vec::new();
    for comment in comments {
        let unknown = names(comment).filter(|name| !known.contains(name));
        faults.extend(unknown.map(str::to_owned));
        let is_link = |target: &str| {
            let (target, _) = target.split_once(']').unwrap_or_default();
            let is_name = |byte: char| byte.is_ascii_alphanumeric() || "_:`!()".contains(byte);
            !target.is_empty() && target.chars().all(is_name)
        };
        let (_, brackets) = comment.split_once('[').unwrap_or_default();
        let links = brackets.split('[').filter(|target| is_link(target));
        faults.extend(links.map(|target| format!("[{target}")));
        faults.extend(comment.contains("](").then(|| "](".to_owned()));
    }
    faults
}

#[test]
fn comments_of_both_headers_name_only_existing_items() {
    let headers = ["include/sszip.h", "../cache-owner/include/sszip_owner.h"]
        .map(|path| fs::read_to_string(root().join(path)).unwrap());
    let headers = headers.each_ref().map(|header| split_comments(header));
    let directives = fs::read_to_string(root().join("../docs/directives.md")).unwrap();
    let directives = directives
        .lines()
        .filter_map(|line| line.strip_prefix("### "));
    let declared = headers.iter().flat_map(|(code, _)| names(code));
    let known: BTreeSet<&str> = declared.chain(directives).collect();
    assert!(known.contains("sszip_abi") && known.contains("SSZIP_STATUS_OK"));
    assert!(known.contains("sszip_owner_abi") && known.contains("sszip_cache_head"));
    for (_, comments) in &headers {
        assert!(comments.len() > 20);
        assert_eq!(faults(comments, &known), [""; 0]);
    }
}

#[test]
fn unknown_names_and_links_in_comments_are_faults() {
    let header = "/* `sszip_a`, sszip_b; SSZIP_C. [\"x\"] */\nint sszip_a(void); /* [`sszip_a`] */
        /* [Name] and [a page](docs/a.md) */";
    let (code, comments) = split_comments(header);
    let known: BTreeSet<_> = names(&code).collect();
    assert_eq!(known, BTreeSet::from(["sszip_a"]));
    assert_eq!(faults(&comments[..1], &known), ["sszip_b", "SSZIP_C"]);
    assert_eq!(faults(&comments[1..2], &known), ["[`sszip_a`] "]);
    assert_eq!(faults(&comments[2..], &known), ["[Name] and ", "]("]);
}
