//! `sszip warm`: fills the cache of a route, through the proxy (docs/warming.md).

pub mod block_range;
mod disk_writes;
mod fetch;
mod item;
mod line_source;
mod log_lines;
mod outcome;
mod progress;
mod rate_limit;
mod resume;
mod rpc_problem;
mod run;
mod source;
mod templates;
mod tracker;

use self::block_range::BlockNumbers;
use self::disk_writes::DiskWrites;
use self::fetch::Warmer;
use self::item::SourceEvent;
use self::line_source::is_standard_input;
use self::outcome::Summary;
use self::progress::write_to_stderr;
use self::rate_limit::RateLimiter;
use self::resume::{RecordedProgress, ResumeFile};
use self::run::{RunLimits, WarmRun};
use self::source::{spawn_reader, SourceEvents, WarmSource};
use self::tracker::PositionTracker;
use crate::args::WarmArguments;
use crate::http_client::{run_blocking, ConnectionOptions, HttpClient};
use crate::inspect::owner_entry::OwnerEntries;
use crate::inspect::MAX_RESPONSE_BYTES;
use crate::output::{print_text, CommandOutputWriter};
use crate::CommandError;

/// Runs `sszip warm`.
///
/// # Errors
/// The arguments are invalid, requests have failed, or the run has ended early.
pub fn run_warm(arguments: &WarmArguments) -> Result<(), CommandError> {
    let source = WarmSource::from_arguments(arguments)?;
    let options = ConnectionOptions {
        max_response: MAX_RESPONSE_BYTES,
        ..arguments.connection.options(arguments.concurrency.into())
    };
    let proxy = HttpClient::new(&arguments.url, &options)?;
    let resume = match &arguments.resume {
        Some(path) if is_standard_input(path) => {
            let text = "--resume needs the path of a file, not -";
            return Err(CommandError::Usage(text.into()));
        }
        Some(path) => Some(ResumeFile::new(
            path,
            &arguments.url.text,
            source.identity()?,
        )),
        None => None,
    };
    let recorded = match &resume {
        Some(file) => file.read()?,
        None => None,
    };
    if let (
        Some(RecordedProgress {
            is_finished: true, ..
        }),
        Some(path),
    ) = (&recorded, &arguments.resume)
    {
        let path = path.display();
        write_to_stderr(&format!(
            "sszip: nothing to do: {path} is finished; delete it to start again\n"
        ));
        return match arguments.json {
            true => report(arguments, &source, &Summary::default()),
            false => Ok(()),
        };
    }
    run_blocking(async {
        let blocks = find_blocks(&source, recorded.as_ref(), &proxy, arguments).await?;
        let tracker = match &recorded {
            Some(recorded) => {
                PositionTracker::continue_from(recorded.next, recorded.done.iter().copied())
            }
            None => PositionTracker::default(),
        };
        let (events, total) = source.events(blocks, tracker.next())?;
        if arguments.dry_run {
            return print_requests(events, &source.name());
        }
        let writes = open_owner(arguments)?;
        if let Some(writes) = &writes {
            writes.check_owner().await?;
        }
        let url = arguments.url.clone();
        let limiter = arguments.rate.map(RateLimiter::per_second);
        let warmer = Warmer::new(proxy.clone(), url, writes, limiter, source.is_of_clients());
        let limits = RunLimits {
            concurrency: arguments.concurrency.into(),
            max_errors: arguments.max_errors,
        };
        let mut run = WarmRun::new(warmer, limits, source.name(), tracker, total);
        if let Some(file) = &resume {
            run = run.with_resume_file(file, blocks);
        }
        let (summary, ending) = run.run(spawn_reader(events)?).await?;
        let reported = report(arguments, &source, &summary);
        let result = match ending {
            Some(error) => Err(error),
            None => check_summary(arguments, &source, &summary),
        };
        if let Err(CommandError::Interrupted(_)) = result {
            write_to_stderr(describe_interrupt(arguments));
        }
        result.and(reported)
    })
}

/// Returns the numbers of the source's blocks: the recorded ones of a resume file, or the present
/// ones.
async fn find_blocks(
    source: &WarmSource,
    recorded: Option<&RecordedProgress>,
    proxy: &HttpClient,
    arguments: &WarmArguments,
) -> Result<Option<BlockNumbers>, CommandError> {
    match (source, recorded.and_then(|recorded| recorded.blocks)) {
        (_, Some(blocks)) => Ok(Some(blocks)),
        (WarmSource::Blocks { range, .. }, None) => {
            range.resolve(proxy, &arguments.url).await.map(Some)
        }
        (WarmSource::Lines { .. }, None) => Ok(None),
    }
}

fn open_owner(arguments: &WarmArguments) -> Result<Option<DiskWrites>, CommandError> {
    let Some(socket) = &arguments.socket else {
        return Ok(None);
    };
    let timeout = arguments.connection.timeout;
    let owner = OwnerEntries::at_socket(socket, timeout, arguments.concurrency.into())?;
    Ok(Some(DiskWrites::new(owner)))
}

fn print_requests(events: SourceEvents, name: &str) -> Result<(), CommandError> {
    let mut output = CommandOutputWriter::open_output(None)?;
    for event in events {
        match event {
            SourceEvent::Item(item) => output.write(item.request.to_line().as_bytes())?,
            SourceEvent::Skipped => {}
            SourceEvent::BadLine { line, cause } => {
                write_to_stderr(&format!("sszip: {name}:{line}: {cause}\n"));
            }
            SourceEvent::Failed(cause) => {
                return Err(CommandError::Data(format!("cannot read {name}: {cause}")));
            }
        }
    }
    output.flush_and_commit_output()
}

fn report(
    arguments: &WarmArguments,
    source: &WarmSource,
    summary: &Summary,
) -> Result<(), CommandError> {
    if arguments.json {
        return print_text(&format!("{:#}\n", summary.to_json()));
    }
    write_to_stderr(&format!("{}\n{}", source.name(), summary.to_text()));
    Ok(())
}

fn describe_interrupt(arguments: &WarmArguments) -> &'static str {
    match arguments.resume {
        Some(_) => "sszip: interrupted; repeat the command to continue from the resume file\n",
        None => {
            "sszip: interrupted; repeat the command: cached requests are not sent to the node \
             again\n"
        }
    }
}

/// Checks that a complete run has found requests, and that none has failed.
fn check_summary(
    arguments: &WarmArguments,
    source: &WarmSource,
    summary: &Summary,
) -> Result<(), CommandError> {
    let totals = summary.totals();
    if let Some(cause) = &summary.last_failure {
        let file = match arguments.resume {
            Some(_) => "delete the resume file, and ",
            None => "",
        };
        return Err(CommandError::Data(format!(
            "{} of {} requests failed, the last: {cause}; {file}repeat the command: cached \
             requests are not sent to the node again",
            totals.failed,
            totals.total()
        )));
    }
    if totals.total() == 0 && arguments.resume.is_none() {
        return Err(CommandError::Data(format!(
            "{} has no request that can be cached; --log needs the member \"body\" or \"request\" \
             in each line",
            source.name()
        )));
    }
    Ok(())
}
