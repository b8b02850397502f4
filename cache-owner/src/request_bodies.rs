//! Request bodies, and the limit of their total size.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::{Body, Incoming};
use hyper::StatusCode;
use tokio::sync::Semaphore;
use tokio::time::timeout;

use crate::request::ProblemDetails;

/// The limits of a request body: the maximum length of an entry, and the maximum time.
#[derive(Clone, Copy, Debug)]
pub struct RequestBodyLimits {
    /// Maximum length of an entry in bytes.
    pub max_entry: usize,
    /// Maximum time for the body of a request.
    pub body_timeout: Duration,
}

/// Bytes per permit of the semaphore that counts the bodies in flight.
const BYTES_PER_PERMIT: usize = 1 << 10;

/// The reader of request bodies, which limits the bytes of all bodies in memory together.
#[derive(Debug)]
pub struct RequestBodyReader {
    /// The limits of each body.
    pub limits: RequestBodyLimits,
    room: Semaphore,
}

impl RequestBodyReader {
    /// Creates a reader with these limits.
    pub fn new(limits: RequestBodyLimits) -> Self {
        // four of the longest at a time, or very many short ones
        let room = limits.max_entry.saturating_mul(4).max(64 << 20);
        Self {
            limits,
            room: Semaphore::new((room / BYTES_PER_PERMIT).min(Semaphore::MAX_PERMITS)),
        }
    }

    /// Reads a whole body of at most `most` bytes, within its time.
    ///
    /// # Errors
    /// [`ProblemDetails`].
    pub async fn read_limited_body(
        &self,
        body: &mut Incoming,
        most: usize,
    ) -> Result<Vec<u8>, ProblemDetails> {
        let too_long = || {
            ProblemDetails::new(
                StatusCode::PAYLOAD_TOO_LARGE,
                format!("the body is longer than {most} bytes"),
            )
        };
        let hint = body.size_hint();
        if hint.lower() > most as u64 {
            return Err(too_long());
        }
        // all at once: a body without a length may be as long as allowed
        let exact = hint.exact().and_then(|exact| usize::try_from(exact).ok());
        let permits = u32::try_from(exact.unwrap_or(most).div_ceil(BYTES_PER_PERMIT))
            .map_err(|_| memory_exhausted_problem())?;
        let _room = self
            .room
            .try_acquire_many(permits)
            .map_err(|_| memory_exhausted_problem())?;
        let mut bytes = Vec::new();
        bytes
            .try_reserve_exact(exact.unwrap_or(0))
            .map_err(|_| memory_exhausted_problem())?;
        let all = async {
            while let Some(frame) = body.frame().await {
                let frame = frame.map_err(|error| {
                    ProblemDetails::new(StatusCode::BAD_REQUEST, error.to_string())
                })?;
                let data = frame.into_data().unwrap_or_default();
                if bytes.len() + data.len() > most {
                    return Err(too_long());
                }
                bytes
                    .try_reserve(data.len())
                    .map_err(|_| memory_exhausted_problem())?;
                bytes.extend_from_slice(&data);
            }
            Ok(())
        };
        timeout(self.limits.body_timeout, all).await.map_err(|_| {
            ProblemDetails::new(
                StatusCode::REQUEST_TIMEOUT,
                "the body was not received in time",
            )
        })??;
        bytes.shrink_to_fit();
        Ok(bytes)
    }

    /// Reads and drops the rest of a rejected request's body: most clients read the response only
    /// after they have sent everything, and would miss it if the connection were closed before. The
    /// rest of a much longer body is not read.
    pub async fn discard_body_rest(&self, body: &mut Incoming) {
        let most = self.limits.max_entry.saturating_mul(2);
        let all = async {
            let mut length = 0;
            while let Some(Ok(frame)) = body.frame().await {
                length += frame.data_ref().map_or(0, Bytes::len);
                if length > most {
                    return;
                }
            }
        };
        // then its connection is closed after the response
        let _ = timeout(self.limits.body_timeout, all).await;
    }
}

fn memory_exhausted_problem() -> ProblemDetails {
    ProblemDetails::new(
        StatusCode::SERVICE_UNAVAILABLE,
        "too many entries are being received; repeat the request",
    )
}
