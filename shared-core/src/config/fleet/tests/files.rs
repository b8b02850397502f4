//! Files that a fleet names, and warnings about what they protect.

use super::*;

#[test]
fn contents_of_files_are_read() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    write_private(folder, "pw", b"pass word\r\n");
    write_private(folder, "new", &[0xff_u8; 32]);
    write_private(folder, "old", &[7_u8; 4096]);
    write_private(folder, "cert.pem", CERTIFICATE.as_bytes());
    write_private(folder, "cert.key", PRIVATE_KEY.as_bytes());
    // certificates are public
    fs::write(folder.join("ca.pem"), CERTIFICATE.repeat(2)).unwrap();
    fs::set_permissions(folder.join("ca.pem"), Permissions::from_mode(0o644)).unwrap();
    let settings = read(
        "rediss://h|password_file=pw|key_file=new,old|ca=ca.pem|cert=cert.pem|cert_key=cert.key",
        folder,
    )
    .unwrap();
    let expected = FleetSettings {
        password: Some(Secret::new("pass word")),
        key_files: vec![Secret::new([0xff_u8; 32]), Secret::new([7_u8; 4096])],
        ca: Some(CERTIFICATE.repeat(2)),
        client_cert: Some((CERTIFICATE.into(), Secret::new(PRIVATE_KEY))),
        ..FleetSettings::new(endpoint("h", 6379, true, 0))
    };
    assert_eq!(settings, expected);
    let shown = format!("{settings:?}");
    assert!(
        !shown.contains("pass word") && !shown.contains("PRIVATE"),
        "{shown}"
    );
    assert_eq!(settings.password.unwrap().as_text(), Some("pass word"));
    assert_eq!(settings.key_files[0].as_text(), None);
}

#[test]
fn files_that_other_users_can_read_are_rejected() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    write_private(folder, "cert.pem", CERTIFICATE.as_bytes());
    for (line, name, contents) in [
        ("redis://h|password_file=f", "password file", &b"secret"[..]),
        ("redis://h|key_file=f", "key file", &[7_u8; 32][..]),
        (
            "rediss://h|cert=cert.pem|cert_key=f",
            "certificate key file",
            PRIVATE_KEY.as_bytes(),
        ),
    ] {
        write_private(folder, "f", contents);
        for (mode, is_rejected) in [(0o644, true), (0o604, true), (0o640, false), (0o602, false)] {
            let path = folder.join("f");
            fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            let shown = path.display();
            let expected = format!(
                "has a {name} that other users can read: \"{shown}\" (mode {mode:04o}); run chmod \
                 o-rwx on it"
            );
            let error = read(line, folder).map(|_| ());
            assert_eq!(error, if is_rejected { Err(expected) } else { Ok(()) });
        }
    }
}

#[test]
fn unusable_files_are_rejected_with_the_reason() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    fs::create_dir(folder.join("folder")).unwrap();
    write_private(folder, "empty", b"");
    write_private(folder, "lines", b"one\ntwo\n");
    write_private(folder, "short", &[7; 31]);
    write_private(folder, "long", &[b'x'; 4097]);
    write_private(folder, "binary", &[0xff; 40]);
    write_private(folder, "text", b"no PEM");
    write_private(folder, "cert.pem", CERTIFICATE.as_bytes());
    write_private(folder, "truncated.pem", &CERTIFICATE.as_bytes()[..40]);
    write_private(folder, "huge.pem", &vec![b' '; (4 << 20) + 1]);
    let line = "contain one line in UTF-8";
    let pem = "contain complete certificates in PEM";
    let private = "contain a private key in PEM without a passphrase";
    for (words, name, file, allowed) in [
        ("password_file=empty", "password file", "empty", line),
        ("password_file=lines", "password file", "lines", line),
        ("password_file=binary", "password file", "binary", line),
        (
            "password_file=long",
            "password file",
            "long",
            "be at most 1k long",
        ),
        (
            "password_file=folder",
            "password file",
            "folder",
            "be a regular file",
        ),
        (
            "key_file=empty",
            "key file",
            "empty",
            "have 32 to 4096 bytes",
        ),
        (
            "key_file=binary,short",
            "key file",
            "short",
            "have 32 to 4096 bytes",
        ),
        ("key_file=long", "key file", "long", "be at most 4k long"),
        ("ca=empty", "CA file", "empty", pem),
        ("ca=text", "CA file", "text", pem),
        ("ca=binary", "CA file", "binary", pem),
        ("ca=truncated.pem", "CA file", "truncated.pem", pem),
        ("ca=huge.pem", "CA file", "huge.pem", "be at most 4m long"),
        ("cert=text|cert_key=text", "certificate file", "text", pem),
        (
            "cert=cert.pem|cert_key=cert.pem",
            "certificate key file",
            "cert.pem",
            private,
        ),
    ] {
        let path = folder.join(file);
        let expected = format!(
            "has an invalid {name} \"{}\": it must {allowed}",
            path.display()
        );
        let error = read(&format!("rediss://h|{words}"), folder).map(|_| ());
        assert_eq!(error, Err(expected));
    }
    for (words, name) in [
        ("password_file=none", "password file"),
        ("key_file=binary,none", "key file"),
        ("ca=none", "CA file"),
        ("cert=none|cert_key=none", "certificate file"),
        ("cert=cert.pem|cert_key=none", "certificate key file"),
    ] {
        let expected = format!(
            "cannot read the {name} \"{}/none\" (2: No such file or directory); check the path \
             and its permissions",
            folder.display()
        );
        let error = read(&format!("rediss://h|{words}"), folder).map(|_| ());
        assert_eq!(error, Err(expected));
    }
}

#[test]
fn warnings_are_returned_for_connections_over_a_network_without_tls() {
    let secret = Some(Secret::new("pw"));
    let keys = vec![Secret::new([7_u8; 32])];
    for (url, password, keys, texts) in [
        ("redis://h", None, vec![], &["and without a key"][..]),
        ("redis://h", None, keys.clone(), &[]),
        (
            "redis://10.0.0.1/1",
            secret.clone(),
            vec![],
            &["its password to redis://10.0.0.1:6379/1", "without a key"],
        ),
        ("redis://h", secret.clone(), keys.clone(), &["its password"]),
        ("rediss://h", secret.clone(), vec![], &[]),
        ("redis://localhost", secret.clone(), vec![], &[]),
        ("redis://127.0.0.2", secret.clone(), vec![], &[]),
        ("redis://[::1]", secret.clone(), vec![], &[]),
        (
            "redis+cluster://localhost,127.0.0.2",
            secret.clone(),
            vec![],
            &[],
        ),
        ("rediss+sentinel://h/main", secret.clone(), vec![], &[]),
    ] {
        let settings = FleetSettings {
            password,
            key_files: keys,
            ..FleetSettings::new(FleetEndpoint::parse_url(url).unwrap())
        };
        let warnings = settings.transport_warnings();
        assert_eq!(warnings.len(), texts.len(), "{url}: {warnings:?}");
        for (warning, text) in warnings.iter().zip(texts) {
            assert!(warning.contains(text), "{warning}");
            assert!(warning.contains("use a \"rediss://\" URL"), "{warning}");
        }
    }
}

#[test]
fn warnings_name_the_scheme_with_tls() {
    for (url, scheme) in [
        (
            "redis+cluster://localhost,h",
            "use a \"rediss+cluster://\" URL",
        ),
        (
            "redis+sentinel://h/main",
            "use a \"rediss+sentinel://\" URL",
        ),
    ] {
        let settings = FleetSettings {
            sentinel_password: Some(Secret::new("pw")),
            ..FleetSettings::new(FleetEndpoint::parse_url(url).unwrap())
        };
        let warnings = settings.transport_warnings();
        assert_eq!(warnings.len(), 2, "{warnings:?}");
        assert!(
            warnings.iter().all(|text| text.contains(scheme)),
            "{warnings:?}"
        );
    }
}
