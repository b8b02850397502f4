//! A host in memory: sends the node's response through a driver, and executes its steps.

#![allow(dead_code)] // some test binaries do not store

use sszip_core::exchange::drive::{Driver, Step};
use sszip_core::exchange::BodyStreamError;
use sszip_core::gzip::stream::Flush;

/// The way in which the node's body ends: without a sign of truncation, or with one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
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
    driver: &mut Driver,
    step: Step,
    pieces: impl IntoIterator<Item = &'a [u8]>,
    end: End,
) -> Result<Option<Vec<u8>>, BodyStreamError> {
    let mut body = Vec::new();
    let mut state = step;
    for piece in pieces {
        if let Step::Buffer = state {
            match driver.piece(piece)? {
                Step::Await => continue,
                Step::SendThenPass => {
                    state = Step::Pass;
                    body.extend(sent(driver));
                }
                other => state = other,
            }
        }
        match &state {
            Step::Stream => stream(driver, piece, Flush::None, &mut body)?,
            Step::Observe => {
                driver.piece(piece)?;
                body.extend_from_slice(piece);
            }
            Step::Pass => body.extend_from_slice(piece),
            _ => return Ok(None),
        }
    }
    match (state, end) {
        (Step::Pass | Step::Observe, _) => {}
        (Step::Stream, End::Cut) => driver.abort()?,
        (Step::Stream, End::Whole) => stream(driver, b"", Flush::Finish, &mut body)?,
        (_, End::Cut) => {
            let step = driver.end_truncated()?;
            match run_job(driver, step) {
                Step::Send => body.extend(sent(driver)),
                _ => return Ok(None),
            }
        }
        (_, End::Whole) => {
            let step = driver.end()?;
            match run_job(driver, step) {
                Step::Send => body.extend(sent(driver)),
                Step::Stream => stream(driver, b"", Flush::Finish, &mut body)?,
                _ => return Ok(None),
            }
        }
    }
    Ok(Some(body))
}

/// Returns the step that follows once the job of `step`, if it has one, has run.
pub fn run_job(driver: &mut Driver, step: Step) -> Step {
    match step {
        Step::RunJob(mut job) => {
            job.run();
            driver.job_done(job)
        }
        step => step,
    }
}

/// Reports the response as sent, and stores its fill.
pub fn stored(driver: &mut Driver, now: u64) {
    if let Some(mut job) = driver.response_sent(now) {
        job.run();
        job.store(now);
    }
}

/// Returns the body that is sent right after the head.
pub fn sent(driver: &Driver) -> Vec<u8> {
    let exchange = driver.exchange().into_iter();
    exchange
        .flat_map(|it| it.body())
        .flatten()
        .copied()
        .collect()
}

/// Streams one piece into as many buffers as it needs.
fn stream(
    driver: &mut Driver,
    piece: &[u8],
    flush: Flush,
    body: &mut Vec<u8>,
) -> Result<(), BodyStreamError> {
    let mut rest = piece;
    loop {
        let mut output = [0; 500];
        let step = driver.stream(rest, flush, &mut output)?;
        body.extend_from_slice(&output[..step.written]);
        rest = &rest[step.consumed..];
        if step.complete {
            return Ok(());
        }
    }
}
