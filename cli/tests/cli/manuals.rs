//! `sszip completions` and `sszip generate-man`.

use crate::support::{failed_output, successful_output};

#[test]
fn completions_name_the_commands() {
    for shell in ["bash", "zsh", "fish"] {
        let script = String::from_utf8(successful_output(&["completions", shell], b"")).unwrap();
        for command in ["status", "purge", "check-ssz"] {
            assert!(script.contains(command), "{shell}: {command}");
        }
    }
    assert_eq!(failed_output(&["completions", "csh"], b"").0, 2);
}

#[test]
fn man_pages_are_written_to_a_folder() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_str().unwrap();
    assert_eq!(successful_output(&["generate-man", path], b""), b"");
    let page = std::fs::read_to_string(folder.path().join("sszip-status.1")).unwrap();
    assert!(page.contains(".SH \"EXIT STATUS\""), "{page}");
    let (code, error) = failed_output(&["generate-man", "/no/folder"], b"");
    assert_eq!(code, 1);
    assert!(
        error.contains("cannot write /no/folder/sszip.1: No such file"),
        "{error}"
    );
}
