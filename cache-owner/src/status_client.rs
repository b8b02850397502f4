//! Query of the status of a running daemon, for `sszip-cached --status`.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// Timeout of each read and write.
const IO_TIMEOUT: Duration = Duration::from_secs(2);

/// Queries the status, as JSON, of the daemon that listens on `socket`.
///
/// # Errors
/// No daemon listens there, or it does not respond in time, or with something else.
pub fn query_owner_status(socket: &Path) -> Result<String, io::Error> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(IO_TIMEOUT))?;
    stream.set_write_timeout(Some(IO_TIMEOUT))?;
    stream.write_all(b"GET /v1/status HTTP/1.1\r\nHost: sszip\r\nConnection: close\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    let line = head.lines().next().unwrap_or_default();
    match line.split(' ').nth(1) {
        Some("200") => Ok(body.to_owned()),
        _ => Err(io::Error::other(format!("unexpected response {line:?}"))),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    fn query_fake_daemon(answer: &'static str) -> Result<String, io::Error> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let listener = UnixListener::bind(&path).unwrap();
        let server = std::thread::spawn(move || {
            let (mut client, _) = listener.accept().unwrap();
            let mut request = [0; 512];
            assert!(client.read(&mut request).unwrap() > 0);
            client.write_all(answer.as_bytes()).unwrap();
        });
        let status = query_owner_status(&path);
        server.join().unwrap();
        status
    }

    #[test]
    fn status_is_read_from_a_200_response_only() {
        let good = query_fake_daemon("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}");
        assert_eq!(good.unwrap(), "{}");
        let other = query_fake_daemon("HTTP/1.1 404 Not Found\r\n\r\n{}").unwrap_err();
        assert!(other.to_string().contains("404"), "{other}");
        assert!(query_fake_daemon("").is_err());
        assert!(query_owner_status(Path::new("/nonexistent/socket")).is_err());
    }
}
