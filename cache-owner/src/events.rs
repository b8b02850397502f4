//! The event stream of a process (`text/event-stream`, WHATWG HTML, 9.2).

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{ready, Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use sszip_core::cache::owner::processes::{OwnerEventStreamAction, OwnerEventStreamId};
use tokio::time::{sleep, Sleep};

use crate::clock::read_clocks;
use crate::engine::OwnerRequestExecutor;
use crate::event_waker::EventWaker;

/// Maximum number of bytes of events that are sent at a time, apart from the last event.
const MAX_EVENT_BYTES: usize = 16 << 10;

/// The body of a response that stays open and sends the owner's events to one process. Dropping it
/// closes the stream.
pub struct OwnerEventStream {
    engine: Arc<OwnerRequestExecutor>,
    stream: OwnerEventStreamId,
    waker: Arc<EventWaker>,
    sleep: Pin<Box<Sleep>>,
}

impl OwnerEventStream {
    /// Creates the body of an event stream; `waker` is woken when there are events to send.
    pub fn new(
        engine: Arc<OwnerRequestExecutor>,
        stream: OwnerEventStreamId,
        waker: Arc<EventWaker>,
    ) -> Self {
        Self {
            engine,
            stream,
            waker,
            sleep: Box::pin(sleep(Duration::ZERO)),
        }
    }

    /// Polls the next events as `text/event-stream`; `None` when the owner stops or closes the
    /// stream.
    pub fn poll_event_stream_text(&mut self, context: &mut Context<'_>) -> Poll<Option<Bytes>> {
        // first, so that events that come in the meantime are not missed
        self.waker.register_task(context);
        let mut text = String::new();
        if self.engine.is_stopping() {
            return Poll::Ready(None);
        }
        loop {
            let now = read_clocks();
            match self.engine.owner.next_event_stream_action(self.stream, now) {
                OwnerEventStreamAction::Event(event) => {
                    event.append_event_text(&mut text);
                    if text.len() < MAX_EVENT_BYTES {
                        continue;
                    }
                }
                _ if !text.is_empty() => {}
                OwnerEventStreamAction::Close => return Poll::Ready(None),
                OwnerEventStreamAction::Idle(until) => {
                    let wait = Duration::from_millis(until.saturating_sub(now.monotonic));
                    self.sleep
                        .as_mut()
                        .reset(tokio::time::Instant::now() + wait);
                    ready!(self.sleep.as_mut().poll(context));
                    continue;
                }
            }
            return Poll::Ready(Some(text.into()));
        }
    }
}

impl Drop for OwnerEventStream {
    fn drop(&mut self) {
        self.engine.close_process_event_stream(self.stream);
    }
}
