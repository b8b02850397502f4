//! Output, input and errors of `sszip check`.

use std::fs;

use crate::check_rules::NGINX;
use crate::support::{failed_output, run_sszip};

#[test]
fn findings_are_lines_with_position_level_and_remedy() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("nginx.conf");
    fs::write(&path, NGINX.replacen("sszip_cache_path /s;", "", 1)).unwrap();
    let name = path.to_str().unwrap();
    for (arguments, code) in [(&["check", name][..], 0), (&["check", "--strict", name], 3)] {
        let output = run_sszip(arguments, b"");
        assert_eq!(output.status.code(), Some(code));
        let expected = format!(
            "{name}:7: warning[no-store]: the cache has no store: each worker has entries of its \
             own, which a restart loses; set \"sszip_cache_path\" or \"sszip_cache_owner\" in http\n"
        );
        assert_eq!(String::from_utf8_lossy(&output.stdout), expected);
        let summary = String::from_utf8_lossy(&output.stderr);
        assert_eq!(summary, "sszip: errors: 0, warnings: 1\n");
    }
}

#[test]
fn output_of_nginx_is_read_from_standard_input() {
    let dump = format!(
        "# configuration file /etc/nginx/nginx.conf:\n{}\n# configuration file /etc/nginx/a.conf:\n\
         sszip_memory x;\n",
        NGINX.replacen("sszip on;", "sszip on; include a.conf;", 1)
    );
    let output = run_sszip(&["check", "-"], dump.as_bytes());
    assert_eq!(output.status.code(), Some(3));
    let lines = String::from_utf8(output.stdout).unwrap();
    assert!(
        lines.starts_with(
            "/etc/nginx/a.conf:1: error[settings]: \"sszip_memory\" has an invalid value"
        ),
        "{lines}"
    );
}

#[test]
fn files_that_are_no_configuration_are_errors() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, bytes: &[u8]| {
        let path = folder.path().join(name);
        fs::write(&path, bytes).unwrap();
        path.to_str().unwrap().to_owned()
    };
    for (path, code, expected) in [
        (
            "/no/file".to_owned(),
            1,
            "cannot read /no/file: No such file",
        ),
        (
            write("a.conf", b"server {"),
            1,
            "a.conf:1: unexpected end of the file",
        ),
        (write("b.conf", b"\x00\xff"), 1, "b.conf:1: "),
        (write("c.yaml", b"a: [\n"), 1, "c.yaml:"),
        (
            write("d.yaml", b"a: 1\na: 2\n"),
            1,
            "d.yaml:2: the key \"a\" occurs twice",
        ),
        (write("cached.toml", b""), 2, "sszip-cached --check"),
        (
            folder.path().to_str().unwrap().to_owned(),
            1,
            "Is a directory",
        ),
    ] {
        let (status, error) = failed_output(&["check", &path], b"");
        assert_eq!(status, code, "{error}");
        assert!(error.contains(expected), "{error}");
    }
    let good = write("good.conf", b"sszip_cach on;");
    let output = run_sszip(&["check", "/no/a", &good, "/no/b"], b"");
    assert_eq!(output.status.code(), Some(1));
    let finding = String::from_utf8_lossy(&output.stdout);
    assert!(
        finding.contains("good.conf:1: error[settings]"),
        "{finding}"
    );
    let errors = String::from_utf8_lossy(&output.stderr);
    for name in ["/no/a", "/no/b"] {
        assert!(
            errors.contains(&format!("sszip: cannot read {name}")),
            "{errors}"
        );
    }
    let (status, error) = failed_output(&["check", "-"], b"");
    assert_eq!(status, 1);
    assert!(error.contains("run nginx -T as root"), "{error}");
    let (status, _) = failed_output(&["check"], b"");
    assert_eq!(status, 2);
}

#[test]
fn file_of_another_kind_does_not_hide_the_findings_of_the_others() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let (toml, good) = (
        write("cached.toml", ""),
        write("good.conf", "sszip_cach on;"),
    );
    let output = run_sszip(&["check", &toml, &good, "/no/a"], b"");
    assert_eq!(output.status.code(), Some(2));
    let finding = String::from_utf8_lossy(&output.stdout);
    assert!(
        finding.contains("good.conf:1: error[settings]"),
        "{finding}"
    );
    let errors = String::from_utf8_lossy(&output.stderr);
    for expected in ["sszip-cached --check", "sszip: cannot read /no/a"] {
        assert!(errors.contains(expected), "{errors}");
    }
}

#[test]
fn json_is_an_empty_list_if_no_file_can_be_read() {
    for (path, code) in [("/no/a", 1), ("/no/a.toml", 2)] {
        let output = run_sszip(&["check", "--json", path], b"");
        assert_eq!(output.status.code(), Some(code));
        assert_eq!(String::from_utf8_lossy(&output.stdout), "[]\n");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(!errors.contains("warnings: 0"), "{errors}");
    }
}
