//! The socket of a connection that carries frames.
//!
//! It is registered for reading only: registered for writing, too, it would wake the thread once
//! more for each reply, when the client has read it.

use std::io::{Error, ErrorKind, IoSlice, Read, Write};
use std::os::unix::net::UnixStream as StdStream;
use std::task::{ready, Context, Poll};

use sszip_core::cache::owner_protocol::connection_output::ConnectionOutput;
use tokio::io::unix::AsyncFd;
use tokio::io::Interest;
use tokio::net::UnixStream;

/// Maximum number of pieces of one write.
const MAX_WRITE_PIECES: usize = 64;

/// The socket of a connection.
#[derive(Debug)]
pub(super) struct FrameSocket(AsyncFd<StdStream>);

impl FrameSocket {
    /// Takes over the socket of an accepted connection.
    ///
    /// # Errors
    /// The error of the system.
    pub(super) fn new(socket: UnixStream) -> Result<Self, Error> {
        register(socket.into_std()?, Interest::READABLE).map(Self)
    }

    /// Reads bytes. Is ready with their number, 0 if the client has closed the connection.
    ///
    /// # Errors
    /// The error of the system.
    pub(super) fn poll_read(
        &self,
        context: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<Result<usize, Error>> {
        loop {
            let mut guard = ready!(self.0.poll_read_ready(context))?;
            let mut socket = self.0.get_ref();
            match socket.read(buffer) {
                Ok(length) => {
                    // all that had arrived: the next bytes are reported again
                    if length > 0 && length < buffer.len() {
                        guard.clear_ready();
                    }
                    return Poll::Ready(Ok(length));
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => guard.clear_ready(),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }

    /// Writes as much of the output as the socket accepts. Returns the number of written bytes.
    ///
    /// # Errors
    /// The error of the system.
    pub(super) fn write_output(&self, output: &mut ConnectionOutput) -> Result<usize, Error> {
        let mut socket = self.0.get_ref();
        let mut total = 0;
        while !output.is_empty() {
            let mut slices = [IoSlice::new(&[]); MAX_WRITE_PIECES];
            let mut count = 0;
            for (slice, piece) in slices.iter_mut().zip(output.unwritten_pieces()) {
                *slice = IoSlice::new(piece);
                count += 1;
            }
            match socket.write_vectored(slices.get(..count).unwrap_or_default()) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(length) => {
                    output.record_written_bytes(length);
                    total += length;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(total)
    }

    /// Creates a handle that waits for room to write.
    ///
    /// # Errors
    /// The error of the system.
    pub(super) fn watch_room(&self) -> Result<SocketRoom, Error> {
        let socket = self.0.get_ref().try_clone()?;
        register(socket, Interest::WRITABLE).map(SocketRoom)
    }
}

/// Registers a socket for one kind of events.
#[allow(deprecated)] // its successor is unsafe, for types whose descriptor may change
fn register(socket: StdStream, interest: Interest) -> Result<AsyncFd<StdStream>, Error> {
    AsyncFd::with_interest(socket, interest)
}

/// A handle of a socket that waits for room to write.
#[derive(Debug)]
pub(super) struct SocketRoom(AsyncFd<StdStream>);

impl SocketRoom {
    /// Waits until the socket has room again, after a write that found none.
    ///
    /// # Errors
    /// The error of the system.
    pub(super) async fn wait_for_room(&self) -> Result<(), Error> {
        self.0.writable().await?.clear_ready();
        Ok(())
    }
}
