//! A scripted HTTP server, and the model of a route with a cache.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::thread;

/// A request that the server has received.
#[derive(Clone, Debug)]
pub struct Received {
    /// Method and target.
    pub line: String,
    /// The header lines, in lower case.
    pub headers: String,
    pub body: String,
}

impl Received {
    pub fn is_only_if_cached(&self) -> bool {
        self.headers.contains("cache-control: only-if-cached")
    }

    /// Returns the key of the model.
    pub fn key(&self) -> String {
        let mut hasher = DefaultHasher::new();
        (&self.line, &self.body).hash(&mut hasher);
        format!("{:064x}", hasher.finish())
    }
}

/// A response of the scripted server.
pub struct Scripted {
    pub status: u16,
    pub headers: String,
    pub body: String,
}

impl Scripted {
    pub fn new(status: u16, headers: &str, body: &str) -> Self {
        Self {
            status,
            headers: headers.into(),
            body: body.into(),
        }
    }
}

/// A server whose threads end with the test.
pub struct ScriptedServer {
    pub url: String,
    received: Arc<Mutex<Vec<Received>>>,
}

type Respond = Arc<dyn Fn(&Received) -> Scripted + Send + Sync>;

impl ScriptedServer {
    pub fn at_port(respond: impl Fn(&Received) -> Scripted + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/node", listener.local_addr().unwrap());
        let accept = move || {
            let (stream, _) = listener.accept().unwrap();
            (BufReader::new(stream.try_clone().unwrap()), stream)
        };
        Self::start(url, accept, Arc::new(respond))
    }

    pub fn at_socket(
        socket: &Path,
        respond: impl Fn(&Received) -> Scripted + Send + Sync + 'static,
    ) -> Self {
        let listener = UnixListener::bind(socket).unwrap();
        let accept = move || {
            let (stream, _) = listener.accept().unwrap();
            (BufReader::new(stream.try_clone().unwrap()), stream)
        };
        Self::start(socket.display().to_string(), accept, Arc::new(respond))
    }

    fn start<R, W>(
        url: String,
        accept: impl Fn() -> (BufReader<R>, W) + Send + 'static,
        respond: Respond,
    ) -> Self
    where
        R: Read + Send + 'static,
        W: Write + Send + 'static,
    {
        let received = Arc::new(Mutex::new(Vec::new()));
        let all = Arc::clone(&received);
        thread::spawn(move || loop {
            let (reader, writer) = accept();
            let (all, respond) = (Arc::clone(&all), Arc::clone(&respond));
            thread::spawn(move || serve(reader, writer, &all, &respond));
        });
        Self { url, received }
    }

    /// Returns the requests that were received.
    pub fn received(&self) -> Vec<Received> {
        self.received.lock().unwrap().clone()
    }

    /// Returns the bodies of the requests that a cache would send to the node.
    pub fn node_bodies(&self) -> Vec<String> {
        let received = self.received().into_iter();
        let to_node = received.filter(|request| !request.is_only_if_cached());
        to_node.map(|request| request.body).collect()
    }
}

fn serve<R: Read>(
    mut reader: BufReader<R>,
    mut writer: impl Write,
    all: &Mutex<Vec<Received>>,
    respond: &Respond,
) {
    while let Some(request) = read_request(&mut reader) {
        all.lock().unwrap().push(request.clone());
        let Scripted {
            status,
            headers,
            body,
        } = respond(&request);
        let length = body.len();
        let head = format!("HTTP/1.1 {status} X\r\n{headers}content-length: {length}\r\n\r\n");
        if writer.write_all((head + &body).as_bytes()).is_err() {
            break;
        }
    }
}

fn read_request<R: Read>(reader: &mut BufReader<R>) -> Option<Received> {
    let (mut line, mut headers) = (String::new(), String::new());
    reader
        .read_line(&mut line)
        .ok()
        .filter(|length| *length > 0)?;
    while !headers.ends_with("\r\n\r\n") && headers != "\r\n" {
        reader
            .read_line(&mut headers)
            .ok()
            .filter(|length| *length > 0)?;
    }
    let headers = headers.to_lowercase();
    let length = headers.split("content-length: ").nth(1);
    let length = length.map_or(0, |rest| rest.lines().next().unwrap().parse().unwrap());
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    Some(Received {
        line: line.trim_end().trim_end_matches(" HTTP/1.1").into(),
        headers,
        body: String::from_utf8(body).unwrap(),
    })
}

/// Returns a route with a cache in front of `node`, whose responses of status 200 without an error
/// or `null` are cached.
pub fn cached_route(
    node: impl Fn(&Received) -> Scripted + Send + Sync + 'static,
) -> impl Fn(&Received) -> Scripted + Send + Sync + 'static {
    let cached = Mutex::new(HashSet::new());
    move |request| {
        let key = request.key();
        let is_cached = cached.lock().unwrap().contains(&key);
        if is_cached {
            let hit = format!("cache-status: sszip; hit; ttl=60; key=\"{key}\"\r\n");
            return Scripted::new(200, &hit, "{\"result\":1}");
        }
        if request.is_only_if_cached() {
            let miss = format!("cache-status: sszip; detail=miss; key=\"{key}\"\r\n");
            return Scripted::new(504, &miss, "{\"status\":504}");
        }
        let mut response = node(request);
        let is_value = !response.body.contains("error") && !response.body.contains("null");
        if response.status == 200 && is_value {
            cached.lock().unwrap().insert(key);
        }
        response.headers += "cache-status: sszip; fwd=miss\r\n";
        response
    }
}
