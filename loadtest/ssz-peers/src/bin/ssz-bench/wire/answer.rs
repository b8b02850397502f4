//! Requests over one connection, and when the parts of the last answer came.

use std::error::Error;
use std::fs;
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use flate2::bufread::GzDecoder;
use serde::{Deserialize, Serialize};

/// What is read at once where the length is not known.
const PIECE: usize = 1 << 20;
/// A hang becomes an error after this.
const LIMIT: Duration = Duration::from_secs(120);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Request {
    path: String,
    /// Whole lines.
    #[serde(default)]
    headers: Vec<String>,
    /// A file with the body, of a POST.
    body: Option<String>,
    /// What that is.
    #[serde(default = "json")]
    media_type: String,
}

fn json() -> String {
    "application/json".into()
}

/// Of the last answer; times are from before the first request.
#[derive(Debug, Default, Serialize)]
pub struct Answer {
    status: u16,
    media_type: String,
    coding: String,
    /// The head was there.
    head_ns: u64,
    /// The last byte was there, decoded.
    done_ns: u64,
    /// Bytes of the body with its coding, without its framing.
    content: u64,
}

impl Answer {
    /// Whether it says so.
    pub fn is_ssz(&self) -> bool {
        self.media_type == "application/octet-stream"
    }
}

/// The last answer, and its body without its coding.
pub fn ask(to: &str, requests: &[Request]) -> Result<(Answer, Vec<u8>), Box<dyn Error>> {
    let texts: Result<Vec<_>, io::Error> = requests.iter().map(Request::text).collect();
    let texts = texts?;
    match to.strip_prefix("unix:") {
        Some(path) => {
            let stream = UnixStream::connect(path)?;
            stream.set_read_timeout(Some(LIMIT))?;
            over(stream, &texts)
        }
        None => {
            let stream = TcpStream::connect(to)?;
            stream.set_nodelay(true)?;
            stream.set_read_timeout(Some(LIMIT))?;
            over(stream, &texts)
        }
    }
}

impl Request {
    fn text(&self) -> io::Result<Vec<u8>> {
        let body = self.body.as_ref().map(fs::read).transpose()?;
        let method = if body.is_some() { "POST" } else { "GET" };
        let mut head = format!("{method} {} HTTP/1.1\r\nHost: node\r\n", self.path);
        for line in &self.headers {
            head += &format!("{line}\r\n");
        }
        if let Some(body) = &body {
            let (len, media_type) = (body.len(), &self.media_type);
            head += &format!("Content-Type: {media_type}\r\nContent-Length: {len}\r\n");
        }
        head += "\r\n";
        Ok([head.into_bytes(), body.unwrap_or_default()].concat())
    }
}

fn over<S: Read + Write>(
    stream: S,
    texts: &[Vec<u8>],
) -> Result<(Answer, Vec<u8>), Box<dyn Error>> {
    let mut stream = BufReader::with_capacity(PIECE, stream);
    let mut last = None;
    let begin = Instant::now();
    for text in texts {
        stream.get_mut().write_all(text)?;
        last = Some(read(&mut stream, begin)?);
    }
    Ok(last.ok_or("nothing was asked")?)
}

fn read<S: Read>(
    stream: &mut BufReader<S>,
    begin: Instant,
) -> Result<(Answer, Vec<u8>), Box<dyn Error>> {
    let mut answer = Answer::default();
    let mut framing = Framing::Close;
    let status = line(stream)?;
    answer.status = status.split(' ').nth(1).unwrap_or_default().parse()?;
    loop {
        let field = line(stream)?;
        let Some((name, value)) = field.split_once(':') else {
            break;
        };
        let value = value.trim().to_owned();
        match name.to_ascii_lowercase().as_str() {
            "content-type" => answer.media_type = value,
            "content-encoding" => answer.coding = value,
            "content-length" => framing = Framing::Length(value.parse()?),
            "transfer-encoding" => {
                framing = Framing::Chunks {
                    left: 0,
                    first: true,
                }
            }
            _ => (),
        }
    }
    answer.head_ns = begin.elapsed().as_nanos() as u64;
    let mut body = Vec::new();
    if let (Framing::Length(len), "") = (&framing, answer.coding.as_str()) {
        body.reserve_exact(*len as usize);
    }
    let mut content = Content {
        stream,
        framing,
        read: 0,
    };
    if answer.coding == "gzip" {
        let mut coded = BufReader::with_capacity(PIECE, content);
        GzDecoder::new(&mut coded).read_to_end(&mut body)?;
        // what ends the framing
        coded.read_to_end(&mut Vec::new())?;
        content = coded.into_inner();
    } else {
        content.read_to_end(&mut body)?;
    }
    answer.done_ns = begin.elapsed().as_nanos() as u64;
    answer.content = content.read;
    Ok((answer, body))
}

fn line(stream: &mut impl BufRead) -> io::Result<String> {
    let mut line = String::new();
    stream.read_line(&mut line)?;
    match line.strip_suffix("\r\n") {
        Some(line) => Ok(line.to_owned()),
        None => Err(ErrorKind::UnexpectedEof.into()),
    }
}

enum Framing {
    /// So much is left.
    Length(u64),
    /// So much is left of a chunk; before any but the first a line ends.
    Chunks {
        left: u64,
        first: bool,
    },
    Close,
}

/// A body without its framing.
struct Content<'s, S> {
    stream: &'s mut BufReader<S>,
    framing: Framing,
    read: u64,
}

impl<S: Read> Content<'_, S> {
    /// How much may be read; 0: the body ended.
    fn room(&mut self) -> io::Result<u64> {
        match &mut self.framing {
            Framing::Length(left) => Ok(*left),
            Framing::Close => Ok(u64::MAX),
            Framing::Chunks { left, first } => {
                if *left == 0 {
                    if !*first {
                        line(self.stream)?;
                    }
                    *first = false;
                    let size = line(self.stream)?;
                    *left = u64::from_str_radix(&size, 16).map_err(io::Error::other)?;
                    if *left == 0 {
                        line(self.stream)?;
                        self.framing = Framing::Length(0);
                        return Ok(0);
                    }
                }
                Ok(*left)
            }
        }
    }
}

impl<S: Read> Read for Content<'_, S> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let room = self.room()?;
        if room == 0 || to.is_empty() {
            return Ok(0);
        }
        let most = to.len().min(usize::try_from(room).unwrap_or(usize::MAX));
        let len = self.stream.read(&mut to[..most])?;
        match &mut self.framing {
            Framing::Length(left) | Framing::Chunks { left, .. } => {
                if len == 0 {
                    return Err(ErrorKind::UnexpectedEof.into());
                }
                *left -= len as u64;
            }
            Framing::Close => (),
        }
        self.read += len as u64;
        Ok(len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a peer sends, whatever it is asked.
    struct Sends(io::Cursor<Vec<u8>>);

    impl Read for Sends {
        fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
            // never a whole piece
            let most = to.len().min(7);
            self.0.read(&mut to[..most])
        }
    }

    impl Write for Sends {
        fn write(&mut self, from: &[u8]) -> io::Result<usize> {
            Ok(from.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn answers(bytes: &[u8], requests: usize) -> Result<(Answer, Vec<u8>), Box<dyn Error>> {
        over(
            Sends(io::Cursor::new(bytes.to_vec())),
            &vec![Vec::new(); requests],
        )
    }

    #[test]
    fn bodies_of_each_framing_and_coding() {
        let mut coder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        coder.write_all(b"coded").unwrap();
        let coded = coder.finish().unwrap();
        let head = "HTTP/1.1 200 OK\r\ncontent-type: a/b\r\n";
        let length = |len: usize| format!("{head}Content-Length: {len}\r\n");
        let chunks = format!("{head}Transfer-Encoding: chunked\r\n");
        let gzip = "Content-Encoding: gzip\r\n\r\n";
        let mut coded_chunks = format!("{chunks}{gzip}{:x}\r\n", coded.len()).into_bytes();
        coded_chunks.extend_from_slice(&coded);
        coded_chunks.extend_from_slice(b"\r\n0\r\n\r\n");
        let cases: [(Vec<u8>, &[u8], usize); 6] = [
            (format!("{}\r\nplain", length(5)).into(), b"plain", 5),
            (format!("{}\r\n", length(0)).into(), b"", 0),
            (
                format!("{chunks}\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n").into(),
                b"abcde",
                5,
            ),
            (format!("{head}\r\nto the end").into(), b"to the end", 10),
            (
                [format!("{}{gzip}", length(coded.len())).as_bytes(), &coded].concat(),
                b"coded",
                coded.len(),
            ),
            (coded_chunks, b"coded", coded.len()),
        ];
        for (sent, expected, content) in cases {
            let (answer, body) = answers(&sent, 1).unwrap();
            assert_eq!(body, expected);
            assert_eq!((answer.status, answer.media_type.as_str()), (200, "a/b"));
            assert_eq!(answer.content, content as u64);
        }
    }

    #[test]
    fn the_last_of_several_and_nothing_that_is_cut() {
        let two = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n\
            HTTP/1.1 404 No\r\nContent-Length: 1\r\n\r\nb";
        let (answer, body) = answers(two.as_bytes(), 2).unwrap();
        assert_eq!((answer.status, body.as_slice()), (404, &b"b"[..]));
        for cut in [0, 10, two.len() - 1, two.len() - 3] {
            assert!(answers(&two.as_bytes()[..cut], 2).is_err(), "{cut}");
        }
    }
}
