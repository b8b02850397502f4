//! The HTTP service: requests as calls of the engine, and their outcomes as responses.

use std::convert::Infallible;
use std::sync::Arc;

use hyper::body::Incoming;
use hyper::header::EXPECT;
use hyper::{Request as HttpRequest, StatusCode};
use sszip_core::cache::owner::state::EntryRejection;
use sszip_core::cache::owner_protocol::callout_envelope::MAX_CALLOUT_BYTES;

use crate::clock::read_clocks;
use crate::engine::OwnerRequestExecutor;
use crate::frames::callout::answer_callout;
use crate::frames::polled_session::PolledSessions;
use crate::operations::OwnerOperations;
use crate::request::{self, OwnerHttpRequest, ProblemDetails};
use crate::request_bodies::{RequestBodyLimits, RequestBodyReader};
use crate::response::{self, OwnerResponse};

/// The HTTP service of an owner: it decodes each request, calls the engine, and encodes the
/// response.
pub struct OwnerHttpService {
    /// The operations that the requests call.
    pub operations: Arc<OwnerOperations>,
    bodies: RequestBodyReader,
    polled: PolledSessions,
}

impl OwnerHttpService {
    /// Creates the HTTP service of an engine.
    pub fn new(engine: Arc<OwnerRequestExecutor>, limits: RequestBodyLimits) -> Self {
        Self {
            operations: Arc::new(OwnerOperations::new(engine, limits.max_entry as u64)),
            bodies: RequestBodyReader::new(limits),
            polled: PolledSessions::default(),
        }
    }

    /// Responds to a request, with the header that every response of an owner has.
    ///
    /// # Errors
    /// Never.
    pub async fn respond_to_owner_request(
        self: Arc<Self>,
        request: HttpRequest<Incoming>,
    ) -> Result<OwnerResponse, Infallible> {
        let (head, mut body) = request.into_parts();
        // first: an entry may be newer than a purge that the response does not report, but never
        // older than a purge that it reports
        let generation = self.operations.engine.purge_generation();
        let decoded = request::decode_owner_request(&head);
        // a request that was not understood gets no header of an owner: the client may need an
        // owner of another version
        let is_understood = decoded.is_ok();
        let answer = match decoded {
            Ok(request) => self.execute_owner_request(request, &mut body).await,
            Err(problem) => Err(problem),
        };
        let mut answer = match answer {
            Ok(answer) => answer,
            Err(problem) => {
                // a client that expects 100 (Continue) is not invited to send the body
                if !head.headers.contains_key(EXPECT) {
                    self.bodies.discard_body_rest(&mut body).await;
                }
                response::problem_response(&problem)
            }
        };
        if is_understood {
            response::set_generation_header(answer.headers_mut(), generation);
        }
        Ok(answer)
    }

    /// Executes a decoded request, and returns its response.
    async fn execute_owner_request(
        &self,
        request: OwnerHttpRequest,
        body: &mut Incoming,
    ) -> Result<OwnerResponse, ProblemDetails> {
        let (engine, bodies) = (&self.operations.engine, &self.bodies);
        Ok(match request {
            OwnerHttpRequest::LookUp(key) => match engine.lookup(key).await? {
                Some(found) => response::entry_response(found, read_clocks()),
                None => response::lookup_miss_response(),
            },
            OwnerHttpRequest::Put(put) => {
                let entry = bodies.read_limited_body(body, bodies.limits.max_entry);
                let stored = engine.store_entry(None, *put, entry.await?).await?;
                stored.map_err(put_rejection_problem)?;
                response::stored_response()
            }
            OwnerHttpRequest::Purge => {
                let scope = bodies.read_limited_body(body, request::MAX_PURGE_BYTES);
                let (purged, fleet) = self.operations.purge_by_json(&scope.await?).await?;
                response::purge_response(purged, fleet.as_ref())
            }
            OwnerHttpRequest::PingFleet => {
                let length = bodies.read_limited_body(body, request::MAX_PING_BYTES);
                let length = request::parse_ping_length(&length.await?)?;
                response::json_response(&self.operations.ping_fleet(length).await?)
            }
            OwnerHttpRequest::Frames => {
                let callout = bodies.read_limited_body(body, MAX_CALLOUT_BYTES).await?;
                let answer = answer_callout(&self.operations, &self.polled, &callout).await?;
                response::frames_response(answer)
            }
            OwnerHttpRequest::Status(format) => {
                response::status_response(format, self.operations.format_status(format))
            }
        })
    }
}

fn put_rejection_problem(why: EntryRejection) -> ProblemDetails {
    match why {
        EntryRejection::Purged => ProblemDetails::new(
            StatusCode::CONFLICT,
            "the entry was purged after its generation, or no purge has this generation yet",
        ),
        EntryRejection::Replaced => ProblemDetails::new(
            StatusCode::CONFLICT,
            "the entry depends on the head or on a block that was replaced after its epoch",
        ),
        EntryRejection::TooLong => ProblemDetails::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            "the entry is too long for memory, and entries of its class are not written to the disk",
        ),
        EntryRejection::Off(text) => ProblemDetails::new(StatusCode::INSUFFICIENT_STORAGE, text),
    }
}
