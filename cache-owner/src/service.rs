//! The HTTP service: requests as calls of the engine, and their outcomes as responses.

use std::convert::Infallible;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;

use hyper::body::Incoming;
use hyper::header::EXPECT;
use hyper::{Request as HttpRequest, Response, StatusCode};
use sszip_core::cache::owner::leases::Lease;
use sszip_core::cache::owner::state::PutRejection;

use crate::clock::now;
use crate::engine::{Engine, Failure};
use crate::events::EventStream;
use crate::peer::Peer;
use crate::request::{self, ChainQuery, Problem, Request};
use crate::request_bodies::{BodyReader, Limits};
use crate::response::{self, ResponseBody};

/// The HTTP service of an owner: turns requests into calls of the engine, and outcomes into
/// responses.
pub struct Service {
    /// The engine that the requests call.
    pub engine: Arc<Engine>,
    bodies: BodyReader,
    started: u64,
    /// Number of open connections.
    pub connections: AtomicUsize,
}

impl Service {
    /// Creates the HTTP service of an engine.
    pub fn new(engine: Arc<Engine>, limits: Limits) -> Self {
        Self {
            engine,
            bodies: BodyReader::new(limits),
            started: now().monotonic,
            connections: AtomicUsize::new(0),
        }
    }

    /// Responds to a request.
    ///
    /// # Errors
    /// Never.
    pub async fn answer(
        self: Arc<Self>,
        peer: Arc<Peer>,
        request: HttpRequest<Incoming>,
    ) -> Result<Response<ResponseBody>, Infallible> {
        peer.begin_request();
        let (head, mut body) = request.into_parts();
        // first: an entry may be newer than a purge that the response does not report, but never
        // older than a purge that it reports
        let generation = self.engine.generation();
        let about = request::chain_query(&head.headers);
        let read = about.and_then(|about| Ok((request::decode_head(&head)?, about)));
        let (answer, about) = match read {
            Ok((request, about)) => (self.act(request, &peer, &mut body).await, Some(about)),
            Err(problem) => (Err(problem), None),
        };
        let mut answer = match answer {
            Ok(answer) => answer,
            Err(problem) => {
                // a client that expects 100 (Continue) is not invited to send the body
                if !head.headers.contains_key(EXPECT) {
                    self.bodies.discard(&mut body).await;
                }
                response::problem(&problem)
            }
        };
        // a request that was not understood gets no headers of an owner: the client may need
        // an owner of another version
        if let Some(about) = about {
            let with_state =
                |about: ChainQuery| (about, self.engine.owner.published_state(&about.namespace));
            response::set_reply_headers(answer.headers_mut(), generation, about.map(with_state));
        }
        Ok(answer)
    }

    async fn act(
        &self,
        request: Request,
        peer: &Peer,
        body: &mut Incoming,
    ) -> Result<Response<ResponseBody>, Problem> {
        let engine = &self.engine;
        match request {
            Request::LookUp { key, lease } => {
                let (generation, found) = engine.lookup(key, lease.as_ref()).await?;
                let mut answer = match found {
                    Ok(found) => response::entry(found, now()),
                    Err(granted) => {
                        if let (Some(Lease::Granted), Some(wanted)) = (granted, lease) {
                            peer.is_granted(key, wanted.process);
                        }
                        response::missing(granted)
                    }
                };
                response::set_generation_header(answer.headers_mut(), generation);
                Ok(answer)
            }
            Request::LookUps => {
                let body = self.bodies.read_body(body, request::LONGEST_BODY).await?;
                let found = engine.lookup_many(request::keys(&body)?).await?;
                Ok(response::entries(found, now()))
            }
            Request::Put(put) => {
                let body = match self
                    .bodies
                    .read_body(body, self.bodies.limits.max_entry)
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
                engine.put(put, body).await?.map_err(refused)?;
                Ok(response::empty(StatusCode::CREATED))
            }
            Request::ReleaseLease { key, process } => {
                engine.release_lease(&key, &process);
                Ok(response::empty(StatusCode::NO_CONTENT))
            }
            Request::Purge => {
                let body = self.bodies.read_body(body, request::LONGEST_BODY).await?;
                let scope = request::scope(&body)?;
                let suspends = request::suspends(&body);
                if let Some(namespace) = suspends {
                    engine.owner.suspend(namespace, now());
                    engine.wake();
                }
                let purged = engine.purge(scope.clone()).await?;
                if suspends.is_none() {
                    engine.owner.resume(&scope);
                    engine.wake();
                }
                Ok(response::purged(purged))
            }
            Request::Acknowledge(process) => {
                let body = self.bodies.read_body(body, request::LONGEST_BODY).await?;
                let generation = request::generation(&body)?;
                engine.acknowledge(&process, generation).map_err(|_| {
                    Problem::new(StatusCode::CONFLICT, "no purge has this generation yet")
                })?;
                Ok(response::empty(StatusCode::NO_CONTENT))
            }
            Request::ShowBlock {
                namespace,
                sighting,
            } => {
                engine.record_shown_block(&namespace, sighting);
                Ok(response::empty(StatusCode::NO_CONTENT))
            }
            Request::Events(process) => {
                let (stream, waker) = engine.connect(&process).map_err(|_| {
                    Problem::new(
                        StatusCode::SERVICE_UNAVAILABLE,
                        "too many processes are connected",
                    )
                })?;
                let stream = EventStream::new(Arc::clone(engine), stream, waker);
                Ok(response::events(stream))
            }
            Request::Status(format) => {
                // values in memory: the status of an owner whose disk hangs is available
                let status = engine.owner.status();
                let uptime = now().monotonic.saturating_sub(self.started);
                let connections = self.connections.load(Ordering::Relaxed);
                let counts = (connections, engine.waits.count());
                let status = response::status(status, &engine.chains, uptime, counts);
                Ok(response::status_response(format, status))
            }
        }
    }
}

impl From<Failure> for Problem {
    fn from(failure: Failure) -> Self {
        let status = match failure {
            Failure::Disk(_) => StatusCode::INSUFFICIENT_STORAGE,
            Failure::Broken(_) | Failure::Closed(_) => StatusCode::INTERNAL_SERVER_ERROR,
        };
        Self::new(status, failure.to_string())
    }
}

fn refused(why: PutRejection) -> Problem {
    match why {
        PutRejection::Purged => Problem::new(
            StatusCode::CONFLICT,
            "the entry was purged after its generation, or no purge has this generation yet",
        ),
        PutRejection::Replaced => Problem::new(
            StatusCode::CONFLICT,
            "the entry depends on the head or on a block that was replaced after its epoch",
        ),
        PutRejection::TooLong => Problem::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            "the entry is too long for memory, and entries of its class are not written to the disk",
        ),
        PutRejection::Off(text) => Problem::new(StatusCode::INSUFFICIENT_STORAGE, text),
    }
}
