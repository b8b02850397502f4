//! A simulated server of the Redis protocol, in the memory of the test.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::FutureExt;
use sszip_core::config::fleet::FleetNode;
use sszip_core::lock::lock_ignoring_poison;
use tokio::io::{duplex, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::time::sleep;

use super::super::stream_opener::StreamOpener;
use crate::fleet::connect::FleetByteStream;

/// Length of the buffers of a simulated connection in bytes, in each direction.
pub const BUFFER_BYTES: usize = 64 << 10;

/// The reaction of the server to a command.
#[derive(Clone, Debug)]
pub enum Reaction {
    /// Sends the bytes.
    Send(Vec<u8>),
    /// Sends the bytes after a time.
    Delay(Duration, Vec<u8>),
    /// Sends the first bytes, then the others again and again, for as long as the client reads.
    Flood(Vec<u8>, Vec<u8>),
    /// Never sends anything again on this connection.
    Stall,
    /// Closes the connection.
    Close,
}

impl From<&str> for Reaction {
    fn from(text: &str) -> Self {
        Self::Send(text.into())
    }
}

#[derive(Default)]
struct ServerState {
    reactions: BTreeMap<&'static str, Reaction>,
    refuses_connections: bool,
    attempts: usize,
    open_connections: usize,
    commands: Vec<Vec<String>>,
}

/// A server whose reactions the test sets.
#[derive(Clone, Default)]
pub struct SimulatedServer(Arc<Mutex<ServerState>>);

impl SimulatedServer {
    /// Sets the reaction to all commands of this name from now on.
    pub fn set_reaction(&self, command: &'static str, reaction: impl Into<Reaction>) {
        let mut state = lock_ignoring_poison(&self.0);
        state.reactions.insert(command, reaction.into());
    }

    pub fn refuse_connections(&self, refuses: bool) {
        lock_ignoring_poison(&self.0).refuses_connections = refuses;
    }

    /// Returns the number of attempts to connect.
    pub fn attempts(&self) -> usize {
        lock_ignoring_poison(&self.0).attempts
    }

    pub fn open_connections(&self) -> usize {
        lock_ignoring_poison(&self.0).open_connections
    }

    /// Returns the received commands of this name, with their arguments.
    pub fn commands(&self, name: &str) -> Vec<Vec<String>> {
        let state = lock_ignoring_poison(&self.0);
        let named = state.commands.iter().filter(|words| words[0] == name);
        named.cloned().collect()
    }

    /// Returns the names of all received commands, in order.
    pub fn command_names(&self) -> Vec<String> {
        let state = lock_ignoring_poison(&self.0);
        state
            .commands
            .iter()
            .map(|words| words[0].clone())
            .collect()
    }

    /// Returns the function that connects to the server.
    pub fn opener(&self) -> StreamOpener {
        let server = self.clone();
        Arc::new(move || {
            let server = server.clone();
            async move {
                {
                    let mut state = lock_ignoring_poison(&server.0);
                    state.attempts += 1;
                    if state.refuses_connections {
                        return Err(io::Error::from(io::ErrorKind::ConnectionRefused));
                    }
                    state.open_connections += 1;
                }
                let (client, stream) = duplex(BUFFER_BYTES);
                tokio::spawn(async move {
                    server.serve(stream).await;
                    lock_ignoring_poison(&server.0).open_connections -= 1;
                });
                Ok(Box::new(client) as Box<dyn FleetByteStream>)
            }
            .boxed()
        })
    }

    /// Starts to serve connections over TCP, and returns the address.
    pub async fn listen(&self) -> FleetNode {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let server = self.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let server = server.clone();
                tokio::spawn(async move {
                    lock_ignoring_poison(&server.0).open_connections += 1;
                    server.serve(stream).await;
                    lock_ignoring_poison(&server.0).open_connections -= 1;
                });
            }
        });
        FleetNode {
            host: "127.0.0.1".into(),
            port,
        }
    }

    async fn serve(&self, mut stream: impl AsyncRead + AsyncWrite + Unpin) {
        let (mut received, mut chunk) = (Vec::new(), vec![0; 16 << 10]);
        loop {
            while let Some((words, length)) = parse_command(&received) {
                received.drain(..length);
                let sent = match self.react(words) {
                    Reaction::Send(bytes) => stream.write_all(&bytes).await,
                    Reaction::Delay(time, bytes) => {
                        sleep(time).await;
                        stream.write_all(&bytes).await
                    }
                    Reaction::Flood(first, more) => {
                        let mut sent = stream.write_all(&first).await;
                        while sent.is_ok() {
                            sent = stream.write_all(&more).await;
                        }
                        sent
                    }
                    Reaction::Stall => {
                        while matches!(stream.read(&mut chunk).await, Ok(1..)) {}
                        return;
                    }
                    Reaction::Close => return,
                };
                if sent.is_err() {
                    return;
                }
            }
            match stream.read(&mut chunk).await {
                Ok(0) | Err(_) => return,
                Ok(length) => received.extend(&chunk[..length]),
            }
        }
    }

    fn react(&self, words: Vec<String>) -> Reaction {
        let mut state = lock_ignoring_poison(&self.0);
        let reaction = state.reactions.get(&words[0][..]).cloned();
        let reaction = reaction.unwrap_or_else(|| match &words[0][..] {
            "PING" => "+PONG\r\n".into(),
            "GET" => "$-1\r\n".into(),
            _ => "+OK\r\n".into(),
        });
        state.commands.push(words);
        reaction
    }
}

/// Returns the words of the first command, and its length in bytes; `None`: it is not complete.
fn parse_command(bytes: &[u8]) -> Option<(Vec<String>, usize)> {
    let mut position = 0;
    let count = parse_length(bytes, &mut position, b'*')?;
    let mut words = Vec::new();
    for _ in 0..count {
        let length = parse_length(bytes, &mut position, b'$')?;
        let word = bytes.get(position..position + length)?;
        words.push(String::from_utf8_lossy(word).into_owned());
        position += length + 2;
    }
    (position <= bytes.len()).then_some((words, position))
}

fn parse_length(bytes: &[u8], position: &mut usize, value_type: u8) -> Option<usize> {
    let line = bytes.get(*position..)?;
    let end = line.windows(2).position(|pair| pair == b"\r\n")?;
    assert_eq!(line[0], value_type);
    *position += end + 2;
    std::str::from_utf8(&line[1..end]).unwrap().parse().ok()
}
