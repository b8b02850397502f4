//! A host in memory: sends the node's response through a driver, and executes its steps.

#![allow(dead_code)] // some test binaries do not store

use sszip_core::exchange::drive::{ExchangeDriver, HostStep};
use sszip_core::exchange::BodyStreamError;
use sszip_core::gzip::stream::FlushMode;

/// The way in which the node's body ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyEnd {
    /// Without a sign of truncation.
    Whole,
    /// Before its end, which the host detects.
    Cut,
}

/// Returns the body that the client receives after the head led to `step`; `None` if the response
/// is a 502.
///
/// # Errors
/// A stream that can only be aborted.
pub fn client_body<'a>(
    driver: &mut ExchangeDriver,
    step: HostStep,
    pieces: impl IntoIterator<Item = &'a [u8]>,
    end: BodyEnd,
) -> Result<Option<Vec<u8>>, BodyStreamError> {
    let mut body = Vec::new();
    let mut state = step;
    for piece in pieces {
        if let HostStep::Buffer = state {
            match driver.handle_body_piece(piece)? {
                HostStep::Await => continue,
                HostStep::SendThenPass => {
                    state = HostStep::Pass;
                    body.extend(body_to_send(driver));
                }
                other => state = other,
            }
        }
        match &state {
            HostStep::Stream => encode_whole_piece(driver, piece, FlushMode::None, &mut body)?,
            HostStep::Observe => {
                driver.handle_body_piece(piece)?;
                body.extend_from_slice(piece);
            }
            HostStep::Pass => body.extend_from_slice(piece),
            _ => return Ok(None),
        }
    }
    match (state, end) {
        (HostStep::Pass | HostStep::Observe, _) => {}
        (HostStep::Stream, BodyEnd::Cut) => driver.abort_response()?,
        (HostStep::Stream, BodyEnd::Whole) => {
            encode_whole_piece(driver, b"", FlushMode::Finish, &mut body)?;
        }
        (_, BodyEnd::Cut) => {
            let step = driver.handle_truncated_body()?;
            match run_job(driver, step) {
                HostStep::Send => body.extend(body_to_send(driver)),
                _ => return Ok(None),
            }
        }
        (_, BodyEnd::Whole) => {
            let step = driver.handle_body_end()?;
            match run_job(driver, step) {
                HostStep::Send => body.extend(body_to_send(driver)),
                HostStep::Stream => encode_whole_piece(driver, b"", FlushMode::Finish, &mut body)?,
                _ => return Ok(None),
            }
        }
    }
    Ok(Some(body))
}

/// Returns the step that follows once the job of `step`, if it has one, has run.
pub fn run_job(driver: &mut ExchangeDriver, step: HostStep) -> HostStep {
    match step {
        HostStep::RunJob(mut job) => {
            job.run_job();
            driver.resume_after_job(job)
        }
        step => step,
    }
}

/// Reports the response as sent, and stores the entry of its fill.
pub fn store_sent_response(driver: &mut ExchangeDriver, now: u64) {
    if let Some(mut job) = driver.handle_response_sent(now) {
        job.run_job();
        job.store_built_entry(now);
    }
}

/// Returns the body that the exchange has ready to send.
pub fn body_to_send(driver: &ExchangeDriver) -> Vec<u8> {
    let exchange = driver.available_exchange().into_iter();
    exchange
        .flat_map(|it| it.body_slices())
        .flatten()
        .copied()
        .collect()
}

/// Encodes one piece of the body into as many buffers as it needs.
fn encode_whole_piece(
    driver: &mut ExchangeDriver,
    piece: &[u8],
    flush: FlushMode,
    body: &mut Vec<u8>,
) -> Result<(), BodyStreamError> {
    let mut rest = piece;
    loop {
        let mut output = [0; 500];
        let step = driver.encode_body_piece(rest, flush, &mut output)?;
        body.extend_from_slice(&output[..step.written]);
        rest = &rest[step.consumed..];
        if step.complete {
            return Ok(());
        }
    }
}
