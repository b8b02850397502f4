//! The follower of a chain, which polls its node from the start of the owner to its end.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use sszip_core::cache::owner::tracker::{ChainChange, ChainRecord, Tracker, TrackerStep};
use sszip_core::config::head_source::HeadSource;
use tokio::task::spawn_blocking;
use tokio::time::{sleep, sleep_until, timeout, Instant};

use super::apply_steps::StepRunner;
use super::chain::{Chain, FollowStatus};
use super::node::NodeClient;
use crate::clock::now;
use crate::engine::Engine;
use crate::log::Log;

/// Maximum number of polls per interval when notifications arrive.
const MAX_POLLS_PER_INTERVAL: u32 = 8;

/// Pause after a failed attempt of the follower, or before a failed read is repeated.
const RETRY_PAUSE: Duration = Duration::from_secs(1);

/// Maximum time for which stored entries of a chain wait for a check of its node: a node that
/// cannot be queried sends no other responses either.
const MAX_UNCHECKED_TIME: Duration = Duration::from_secs(2);

/// Maximum duration of a poll.
const LONGEST_POLL: Duration = Duration::from_secs(60);

/// Follows a chain from the start of the owner on. Never returns; a panic ends one attempt only.
pub async fn run(follow: HeadSource, chain: Arc<Chain>, engine: Arc<Engine>, log: Log) {
    loop {
        let follower = Follower {
            follow: follow.clone(),
            chain: Arc::clone(&chain),
            engine: Arc::clone(&engine),
            steps: StepRunner::new(Arc::clone(&engine), Arc::clone(&chain), Arc::clone(&log)),
        };
        let mut attempt = AbortOnDrop(tokio::spawn(follower.run()));
        if let Err(error) = (&mut attempt.0).await {
            let steps = StepRunner::new(Arc::clone(&engine), Arc::clone(&chain), Arc::clone(&log));
            steps.log(
                true,
                &format!("the chain follower failed and starts again: {error}"),
            );
            engine
                .owner
                .apply_change(&chain.namespace, ChainChange::Final(None));
            engine.owner.set_chain_id(&chain.namespace, None);
            engine.wake();
        }
        sleep(RETRY_PAUSE).await;
    }
}

/// The handle of a task that is aborted when the handle is dropped.
struct AbortOnDrop(tokio::task::JoinHandle<()>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

struct Follower {
    follow: HeadSource,
    chain: Arc<Chain>,
    engine: Arc<Engine>,
    steps: StepRunner,
}

impl Follower {
    async fn run(mut self) {
        let _checking = AbortOnDrop(tokio::spawn({
            let (engine, namespace) = (Arc::clone(&self.engine), self.chain.namespace);
            async move {
                sleep(MAX_UNCHECKED_TIME).await;
                engine.owner.set_awaiting_identity(&namespace, false);
            }
        }));
        let record = self.record().await;
        let follow = &self.follow;
        let mut tracker = Tracker::new(follow.finality, follow.interval, record, now().monotonic);
        let node = self.node(&mut tracker).await;
        self.chain.set_node(&node);
        let _listening = AbortOnDrop(tokio::spawn({
            let (node, news) = (Arc::clone(&node), Arc::clone(&self.chain.news));
            async move { node.listen(&news).await }
        }));
        let interval = Duration::from_millis(self.follow.interval);
        loop {
            let began = Instant::now();
            if self.chain.take_purged() {
                self.steps.discard_deferred();
                tracker.reset(now().monotonic);
            }
            poll(&mut tracker, &node).await;
            self.carry_out(&mut tracker).await;
            self.engine
                .owner
                .set_awaiting_identity(&self.chain.namespace, false);
            tokio::select! {
                () = sleep_until(began + interval) => {}
                () = self.chain.news.notified() => {
                    sleep_until(began + interval / MAX_POLLS_PER_INTERVAL).await;
                }
            }
        }
    }

    /// Reads the record of the chain from the store, again until it can be read.
    async fn record(&mut self) -> ChainRecord {
        let namespace = self.chain.namespace;
        let mut has_failed = false;
        loop {
            let read = self
                .engine
                .run_store_write(move |owner| owner.disk().chain(&namespace));
            match read.await {
                Ok(record) => return record,
                Err(error) => {
                    let error =
                        format!("cannot read the record of the chain, trying again: {error}");
                    if !std::mem::replace(&mut has_failed, true) {
                        self.steps.log(true, &error);
                    }
                    self.chain.publish_status(FollowStatus {
                        error: Some(error),
                        ..self.chain.status()
                    });
                }
            }
            sleep(RETRY_PAUSE).await;
        }
    }

    /// Creates the client of the chain's node, again until its certificates can be read.
    async fn node(&mut self, tracker: &mut Tracker) -> Arc<NodeClient> {
        loop {
            let (follow, news) = (self.follow.clone(), Arc::clone(&self.chain.news));
            // certificates are files
            let node = spawn_blocking(move || NodeClient::new(&follow, news)).await;
            match node.map_err(|error| error.to_string()).flatten() {
                Ok(node) => return Arc::new(node),
                Err(error) => tracker.fail_poll(&error, now().monotonic),
            }
            self.carry_out(tracker).await;
            sleep(RETRY_PAUSE).await;
        }
    }

    /// Runs the steps that the tracker requires after a poll.
    async fn carry_out(&mut self, tracker: &mut Tracker) {
        let blocks = tracker.blocks().map(|block| (block.number, block.hash));
        let owner = &self.engine.owner;
        owner.set_recent_blocks(&self.chain.namespace, blocks);
        let mut from = None;
        while let Some(step) = tracker.next_step() {
            if let TrackerStep::ChainChange(ChainChange::Reorg { from: first }) = step {
                from = Some(first);
            }
            self.steps.carry_out(step);
        }
        // no process waits for the disk before it is notified
        self.engine.wake();
        self.steps.run_deferred().await;
        self.steps.set_identified(tracker.identity());
        self.engine.wake();
        let next = FollowStatus {
            state: tracker.state(),
            head: tracker.head().map(|head| head.number),
            last_final: self.steps.published_head(),
            reorgs: tracker.reorgs(),
            error: tracker.last_error().map(str::to_owned),
            ..FollowStatus::default()
        };
        let before = self.chain.status();
        let status = before.followed_by(next, from, now().monotonic);
        self.chain.publish_status(status);
    }
}

/// Queries the node until the tracker has no more queries: one poll.
async fn poll(tracker: &mut Tracker, node: &NodeClient) {
    tracker.begin(now().monotonic);
    let outcome = timeout(LONGEST_POLL, async {
        loop {
            let queries = tracker.next_queries();
            if queries.is_empty() {
                return Ok(());
            }
            let answers = join_all(queries.iter().map(|query| node.query(*query))).await;
            for (query, answer) in queries.into_iter().zip(answers) {
                tracker.handle_result(query, answer?);
            }
        }
    })
    .await;
    let error = match outcome {
        Ok(Ok(())) => return,
        Ok(Err(error)) => error,
        Err(_) => "the poll takes too long".to_owned(),
    };
    tracker.fail_poll(&error, now().monotonic);
}
