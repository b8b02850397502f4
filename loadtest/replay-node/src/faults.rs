//! Responses that violate HTTP or their own head. An HTTP library rightly refuses to send them,
//! so they are written as bytes to the socket that the library returns.

use std::io;
use std::time::Duration;

use bytes::Bytes;
use hyper::header::{self, HeaderValue};
use hyper::http::response::Parts;
use hyper::{StatusCode, Version};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};

use crate::body_slices::SharedBodySlices;
use crate::options::{BodyFraming, ReplayResponseOptions};

/// Time for which a closed connection is still read, so that the bytes sent before the close are
/// not lost to a reset.
const LINGER_TIME: Duration = Duration::from_secs(2);

/// One operation on the socket of a response that violates HTTP.
#[derive(Clone, Debug, PartialEq, Eq)]
enum FaultySocketOperation {
    Write(Bytes),
    Pause(Duration),
    /// Send nothing more until the peer closes the connection.
    Hang,
    /// Close with a TCP reset; on a Unix socket, with an ordinary close.
    Reset,
}

/// The socket operations that send one response without the HTTP library.
#[derive(Clone, Debug, Default)]
pub struct FaultyResponsePlan {
    steps: Vec<FaultySocketOperation>,
    /// Number of body bytes among the written ones.
    pub body_bytes: usize,
}

impl FaultyResponsePlan {
    /// Plans a response for which [`ReplayResponseOptions::bypasses_http_library`] is true.
    pub fn new(
        parts: &Parts,
        payload: SharedBodySlices,
        client: Version,
        options: &ReplayResponseOptions,
    ) -> Self {
        let mut plan = FaultyResponsePlan::default();
        if options.lost {
            plan.steps
                .extend(options.reset.then_some(FaultySocketOperation::Reset));
            return plan;
        }
        if let Some(len) = options.garbage {
            plan.add_bytes(garbage_bytes(len).into());
            return plan;
        }
        let framing = match options.framing.unwrap_or(BodyFraming::Length) {
            BodyFraming::Chunked if client == Version::HTTP_10 => BodyFraming::Close10,
            framing => framing,
        };
        let promised = (payload.len() as i64 + options.length_off.unwrap_or(0)).max(0);
        plan.add_bytes(build_raw_response_head(parts, framing, promised).into());
        let complete = plan.add_body_operations(payload.to_single_slice(), framing, options);
        if complete && framing == BodyFraming::Chunked {
            plan.add_bytes(Bytes::from_static(b"0\r\n\r\n"));
        }
        if options.reset {
            plan.steps.push(FaultySocketOperation::Reset);
        }
        plan
    }

    /// Adds the body up to its cut; returns whether it is not cut.
    fn add_body_operations(
        &mut self,
        body: Bytes,
        framing: BodyFraming,
        options: &ReplayResponseOptions,
    ) -> bool {
        let cut = options.cut.filter(|cut| *cut < body.len());
        let end = cut.unwrap_or(body.len());
        let stall = options.stall.map(|at| at.min(end));
        let piece = options.piece.unwrap_or(usize::MAX);
        let mut start = 0;
        while start < body.len() {
            if start > 0 {
                self.steps
                    .extend(options.pause.map(FaultySocketOperation::Pause));
            }
            let size = piece.min(body.len() - start);
            if framing == BodyFraming::Chunked {
                self.add_bytes(format!("{size:x}\r\n").into());
            }
            // A stall within this piece splits it; a stall at the end of the body follows its
            // last byte.
            let stop = (start + size).min(end);
            let split = stall.filter(|at| (start..stop).contains(at) || *at == end && stop == end);
            if let Some(at) = split {
                self.add_bytes(body.slice(start..at));
                self.steps.push(match options.stall_for {
                    Some(wait) => FaultySocketOperation::Pause(wait),
                    None => FaultySocketOperation::Hang,
                });
                self.add_bytes(body.slice(at..stop));
            } else {
                self.add_bytes(body.slice(start..stop));
            }
            self.body_bytes += stop - start;
            if stop < start + size || cut == Some(stop) {
                return false;
            }
            start = stop;
            if framing == BodyFraming::Chunked {
                self.add_bytes(Bytes::from_static(b"\r\n"));
            }
        }
        true
    }

    fn add_bytes(&mut self, bytes: Bytes) {
        if !bytes.is_empty() {
            self.steps.push(FaultySocketOperation::Write(bytes));
        }
    }

    /// Executes the plan and closes the connection.
    pub async fn execute_socket_operations<S: ResettableSocket>(
        self,
        mut socket: S,
    ) -> io::Result<()> {
        for step in self.steps {
            match step {
                FaultySocketOperation::Write(bytes) => {
                    socket.write_all(&bytes).await?;
                    socket.flush().await?;
                }
                FaultySocketOperation::Pause(pause) => tokio::time::sleep(pause).await,
                FaultySocketOperation::Hang => return discard_until_closed(&mut socket).await,
                FaultySocketOperation::Reset => return socket.close_with_reset(),
            }
        }
        socket.shutdown().await?;
        // A peer that does not close is abandoned: the time-out is not reported to anyone.
        tokio::time::timeout(LINGER_TIME, discard_until_closed(&mut socket))
            .await
            .unwrap_or(Ok(()))
    }
}

/// Builds the status line and the headers, with those that belong to the framing.
fn build_raw_response_head(parts: &Parts, framing: BodyFraming, promised: i64) -> Vec<u8> {
    let version = match framing {
        BodyFraming::Close10 => "HTTP/1.0",
        _ => "HTTP/1.1",
    };
    let reason = parts.status.canonical_reason().unwrap_or("Unknown");
    let status = parts.status.as_u16();
    let mut head = format!("{version} {status} {reason}\r\n").into_bytes();
    let own = match framing {
        BodyFraming::Length => (header::CONTENT_LENGTH, HeaderValue::from(promised)),
        BodyFraming::Chunked => (
            header::TRANSFER_ENCODING,
            HeaderValue::from_static("chunked"),
        ),
        BodyFraming::Close | BodyFraming::Close10 => {
            (header::CONNECTION, HeaderValue::from_static("close"))
        }
    };
    let own = std::iter::once((&own.0, &own.1));
    for (name, value) in parts.headers.iter().chain(own) {
        head.extend_from_slice(name.as_str().as_bytes());
        head.extend_from_slice(b": ");
        head.extend_from_slice(value.as_bytes());
        head.extend_from_slice(b"\r\n");
    }
    head.extend_from_slice(b"\r\n");
    head
}

/// Returns bytes that no parser accepts as HTTP: no line end, no space, high bits set.
fn garbage_bytes(len: usize) -> Vec<u8> {
    (0..len)
        .map(|index| 0x80 | (index * 31 % 127) as u8)
        .collect()
}

/// Returns the HTML that a proxy in front of a dead node would send.
pub fn error_page(status: StatusCode) -> String {
    format!(
        "<html>\r\n<head><title>{status}</title></head>\r\n<body>\r\n<center><h1>{status}</h1></center>\r\n<hr><center>replay-node</center>\r\n</body>\r\n</html>\r\n"
    )
}

/// Reads and discards bytes until the peer closes.
async fn discard_until_closed<S: ResettableSocket>(socket: &mut S) -> io::Result<()> {
    let mut scratch = [0; 4096];
    while socket.read(&mut scratch).await? > 0 {}
    Ok(())
}

/// A client's socket, which can be closed with a reset.
pub trait ResettableSocket: AsyncRead + AsyncWrite + Unpin + Send + 'static {
    /// Closes so that the peer receives a reset, if the transport has one.
    fn close_with_reset(self) -> io::Result<()>;
}

impl ResettableSocket for TcpStream {
    fn close_with_reset(self) -> io::Result<()> {
        socket2::SockRef::from(&self).set_linger(Some(Duration::ZERO))
    }
}

impl ResettableSocket for UnixStream {
    fn close_with_reset(self) -> io::Result<()> {
        Ok(())
    }
}
