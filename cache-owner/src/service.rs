//! The HTTP service: requests as calls of the engine, and their outcomes as responses.

use std::convert::Infallible;
use std::sync::Arc;

use hyper::body::Incoming;
use hyper::header::EXPECT;
use hyper::{Request as HttpRequest, Response, StatusCode};
use sszip_core::cache::owner::leases::LeaseDecision;
use sszip_core::cache::owner::state::EntryRejection;
use sszip_core::cache::owner_protocol::callout_envelope::MAX_CALLOUT_BYTES;

use crate::clock::read_clocks;
use crate::engine::OwnerRequestExecutor;
use crate::events::OwnerEventStream;
use crate::frames::callout::answer_callout;
use crate::frames::polled_session::PolledSessions;
use crate::operations::OwnerOperations;
use crate::peer::LeaseDeliveryMonitor;
use crate::request::{self, ChainStateRequest, OwnerHttpRequest, ProblemDetails};
use crate::request_bodies::{RequestBodyLimits, RequestBodyReader};
use crate::response::{self, OwnerResponseBody};

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

    /// Responds to a request, with the headers that every response of an owner has.
    ///
    /// # Errors
    /// Never.
    pub async fn respond_to_owner_request(
        self: Arc<Self>,
        peer: Arc<LeaseDeliveryMonitor>,
        request: HttpRequest<Incoming>,
    ) -> Result<Response<OwnerResponseBody>, Infallible> {
        peer.record_request_start();
        let (head, mut body) = request.into_parts();
        // first: an entry may be newer than a purge that the response does not report, but never
        // older than a purge that it reports
        let generation = self.operations.engine.purge_generation();
        let about = request::decode_chain_query(&head.headers);
        let read = about.and_then(|about| Ok((request::decode_owner_request(&head)?, about)));
        let (answer, about) = match read {
            Ok((request, about)) => (
                self.execute_owner_request(request, &peer, &mut body).await,
                Some(about),
            ),
            Err(problem) => (Err(problem), None),
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
        // a request that was not understood gets no headers of an owner: the client may need
        // an owner of another version
        if let Some(about) = about {
            let with_state = |about: ChainStateRequest| {
                (
                    about,
                    self.operations
                        .engine
                        .owner
                        .published_chain_state(&about.namespace),
                )
            };
            response::set_owner_reply_headers(
                answer.headers_mut(),
                generation,
                about.map(with_state),
            );
        }
        Ok(answer)
    }

    /// Executes a decoded request, and returns its response.
    async fn execute_owner_request(
        &self,
        request: OwnerHttpRequest,
        peer: &LeaseDeliveryMonitor,
        body: &mut Incoming,
    ) -> Result<Response<OwnerResponseBody>, ProblemDetails> {
        let engine = &self.operations.engine;
        match request {
            OwnerHttpRequest::LookUp { key, lease } => {
                let (generation, found) = engine.lookup_and_wait(key, lease.as_ref()).await?;
                let mut answer = match found {
                    Ok(found) => response::entry_response(found, read_clocks()),
                    Err(granted) => {
                        if let (Some(LeaseDecision::Granted), Some(wanted)) = (granted, lease) {
                            peer.record_lease_grant(key, wanted.process);
                        }
                        response::lookup_miss_response(granted)
                    }
                };
                response::set_generation_header(answer.headers_mut(), generation);
                Ok(answer)
            }
            OwnerHttpRequest::LookUps => {
                let body = self
                    .bodies
                    .read_limited_body(body, request::MAX_SMALL_BODY_BYTES)
                    .await?;
                let found = engine.lookup_keys(request::parse_keys(&body)?).await?;
                Ok(response::entries_response(found, read_clocks()))
            }
            OwnerHttpRequest::Put(put) => {
                let body = match self
                    .bodies
                    .read_limited_body(body, self.bodies.limits.max_entry)
                    .await
                {
                    Ok(body) => body,
                    Err(problem) => {
                        // the fetch has ended, even if its entry cannot be stored
                        if let Some(process) = &put.process {
                            engine.release_lease(&put.key, process);
                        }
                        return Err(problem);
                    }
                };
                engine
                    .put_entry(put, body)
                    .await?
                    .map_err(put_rejection_problem)?;
                Ok(response::empty_response(StatusCode::CREATED))
            }
            OwnerHttpRequest::ReleaseLease { key, process } => {
                engine.release_lease(&key, &process);
                Ok(response::empty_response(StatusCode::NO_CONTENT))
            }
            OwnerHttpRequest::Purge => {
                let body = self
                    .bodies
                    .read_limited_body(body, request::MAX_SMALL_BODY_BYTES)
                    .await?;
                let purged = self.operations.purge_by_json(&body).await?;
                Ok(response::purge_response(purged))
            }
            OwnerHttpRequest::Acknowledge(process) => {
                let body = self
                    .bodies
                    .read_limited_body(body, request::MAX_SMALL_BODY_BYTES)
                    .await?;
                let generation = request::parse_acknowledged_generation(&body)?;
                engine
                    .acknowledge_purges(&process, generation)
                    .map_err(|_| {
                        ProblemDetails::new(
                            StatusCode::CONFLICT,
                            "no purge has this generation yet",
                        )
                    })?;
                Ok(response::empty_response(StatusCode::NO_CONTENT))
            }
            OwnerHttpRequest::ShowBlock {
                namespace,
                sighting,
            } => {
                engine.record_shown_block(&namespace, sighting);
                Ok(response::empty_response(StatusCode::NO_CONTENT))
            }
            OwnerHttpRequest::Events(process) => {
                let (stream, waker) = engine.open_process_event_stream(&process).map_err(|_| {
                    ProblemDetails::new(
                        StatusCode::SERVICE_UNAVAILABLE,
                        "too many processes are connected",
                    )
                })?;
                let stream = OwnerEventStream::new(Arc::clone(engine), stream, waker);
                Ok(response::event_stream_response(stream))
            }
            OwnerHttpRequest::Frames => {
                let body = self
                    .bodies
                    .read_limited_body(body, MAX_CALLOUT_BYTES)
                    .await?;
                let answer = answer_callout(&self.operations, &self.polled, &body).await?;
                Ok(response::frames_response(answer))
            }
            OwnerHttpRequest::Status(format) => Ok(response::status_response(
                format,
                self.operations.format_status(format),
            )),
        }
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
