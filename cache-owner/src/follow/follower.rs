//! The follower of a chain, which polls its node from the start of the owner to its end.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use sszip_core::cache::owner::tracker::{
    ChainChange, ChainRecord, ChainTracker, NodeResult, TrackerAction,
};
use sszip_core::config::head_source::HeadSource;
use tokio::task::spawn_blocking;
use tokio::time::{sleep, sleep_until, timeout, Instant};

use super::apply_steps::TrackerActionExecutor;
use super::chain::{FollowedChain, FollowedChainStatus};
use super::node::NodeClient;
use crate::clock::read_clocks;
use crate::engine::OwnerRequestExecutor;
use crate::log::LogFunction;

/// Maximum number of polls per interval when notifications arrive.
const MAX_POLLS_PER_INTERVAL: u32 = 8;

/// Pause after a failed attempt of the follower, or before a failed read is repeated.
const RETRY_PAUSE: Duration = Duration::from_secs(1);

/// Maximum time for which stored entries of a chain wait for a check of its node: a node that
/// cannot be queried sends no other responses either.
const MAX_UNCHECKED_TIME: Duration = Duration::from_secs(2);

/// Maximum duration of a poll.
const MAX_POLL_TIME: Duration = Duration::from_secs(60);

/// Follows a chain from the start of the owner to its end. Never returns: after a panic it starts
/// again.
pub async fn follow_chain(
    follow: HeadSource,
    chain: Arc<FollowedChain>,
    engine: Arc<OwnerRequestExecutor>,
    log: LogFunction,
) {
    loop {
        let follower = ChainFollower {
            follow: follow.clone(),
            chain: Arc::clone(&chain),
            engine: Arc::clone(&engine),
            steps: TrackerActionExecutor::new(
                Arc::clone(&engine),
                Arc::clone(&chain),
                Arc::clone(&log),
            ),
        };
        let mut attempt = TaskAbortGuard(tokio::spawn(follower.poll_node_forever()));
        if let Err(error) = (&mut attempt.0).await {
            let steps = TrackerActionExecutor::new(
                Arc::clone(&engine),
                Arc::clone(&chain),
                Arc::clone(&log),
            );
            steps.log_chain_line(
                true,
                &format!("the chain follower failed and starts again: {error}"),
            );
            engine
                .owner
                .apply_chain_change(&chain.namespace, ChainChange::Final(None));
            engine.owner.set_chain_identity(&chain.namespace, None);
            engine.wake_sessions();
        }
        sleep(RETRY_PAUSE).await;
    }
}

/// The handle of a task that is aborted when the handle is dropped.
struct TaskAbortGuard(tokio::task::JoinHandle<()>);

impl Drop for TaskAbortGuard {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// The follower of one chain: it polls the chain's node, and executes the steps of the tracker.
struct ChainFollower {
    follow: HeadSource,
    chain: Arc<FollowedChain>,
    engine: Arc<OwnerRequestExecutor>,
    steps: TrackerActionExecutor,
}

impl ChainFollower {
    /// Polls the node without end, at each interval and sooner after a notification.
    async fn poll_node_forever(mut self) {
        let _checking = TaskAbortGuard(tokio::spawn({
            let (engine, namespace) = (Arc::clone(&self.engine), self.chain.namespace);
            async move {
                sleep(MAX_UNCHECKED_TIME).await;
                engine.owner.set_identity_check_pending(&namespace, false);
            }
        }));
        let record = self.read_chain_record().await;
        let follow = &self.follow;
        let mut tracker = ChainTracker::new(
            follow.finality,
            follow.interval,
            record,
            read_clocks().monotonic,
        );
        let node = self.create_node_client(&mut tracker).await;
        self.chain.set_node_client(&node);
        let _listening = TaskAbortGuard(tokio::spawn({
            let (node, news) = (Arc::clone(&node), Arc::clone(&self.chain.news));
            async move { node.listen_for_heads(&news).await }
        }));
        let interval = Duration::from_millis(self.follow.interval);
        // queried until the node has reported it: it does not change
        let mut needs_slot_time = node.reports_slot_time();
        loop {
            let began = Instant::now();
            if self.chain.take_chain_record_purged() {
                self.steps.discard_deferred_steps();
                tracker.reset_tracker_after_purge(read_clocks().monotonic);
                needs_slot_time = node.reports_slot_time();
            }
            poll_node(&mut tracker, &node).await;
            self.run_tracker_steps(&mut tracker).await;
            if needs_slot_time && tracker.last_poll_error().is_none() {
                let slot_time = node.query_slot_time().await;
                needs_slot_time = slot_time.is_none();
                tracker.set_slot_time(slot_time);
            }
            self.engine
                .owner
                .set_identity_check_pending(&self.chain.namespace, false);
            self.backfill_window(&mut tracker, &node, began + interval)
                .await;
            tokio::select! {
                () = sleep_until(began + interval) => {}
                () = self.chain.news.notified() => {
                    sleep_until(began + interval / MAX_POLLS_PER_INTERVAL).await;
                }
            }
        }
    }

    /// Reads the record of the chain from the store; after an error it tries again.
    async fn read_chain_record(&mut self) -> ChainRecord {
        let namespace = self.chain.namespace;
        let mut has_failed = false;
        loop {
            let read = self
                .engine
                .try_store_write(move |owner| owner.owner_store().read_chain_record(&namespace));
            match read.await {
                Ok(record) => return record,
                Err(error) => {
                    let error =
                        format!("cannot read the record of the chain, trying again: {error}");
                    if !std::mem::replace(&mut has_failed, true) {
                        self.steps.log_chain_line(true, &error);
                    }
                    self.chain.set_follow_status(FollowedChainStatus {
                        error: Some(error),
                        ..self.chain.follow_status()
                    });
                }
            }
            sleep(RETRY_PAUSE).await;
        }
    }

    /// Creates the client of the chain's node; after an error, such as an unreadable certificate,
    /// it tries again.
    async fn create_node_client(&mut self, tracker: &mut ChainTracker) -> Arc<NodeClient> {
        loop {
            let (follow, news) = (self.follow.clone(), Arc::clone(&self.chain.news));
            // certificates are files
            let node = spawn_blocking(move || NodeClient::new(&follow, news)).await;
            match node.map_err(|error| error.to_string()).flatten() {
                Ok(node) => return Arc::new(node),
                Err(error) => tracker.fail_poll(&error, read_clocks().monotonic),
            }
            self.run_tracker_steps(tracker).await;
            sleep(RETRY_PAUSE).await;
        }
    }

    /// Queries the node for blocks that are older than the known ones, as far as the tracker
    /// requires it: one block, and further ones until the next poll is due.
    async fn backfill_window(
        &self,
        tracker: &mut ChainTracker,
        node: &NodeClient,
        next_poll: Instant,
    ) {
        while let Some(query) = tracker.next_backfill_query() {
            let answer = node.query_node(query).await;
            if tracker.handle_backfill_result(&answer.unwrap_or_else(NodeResult::Failed)) {
                self.publish_known_blocks(tracker);
            }
            if Instant::now() >= next_poll {
                return;
            }
        }
    }

    /// Sets the blocks that the tracker knows as the recent blocks of the chain, and their average
    /// time as its block time.
    fn publish_known_blocks(&self, tracker: &ChainTracker) {
        let blocks = tracker
            .window_blocks()
            .map(|block| (block.number, block.hash));
        let owner = &self.engine.owner;
        owner.set_recent_blocks(&self.chain.namespace, blocks);
        owner.set_block_time(&self.chain.namespace, tracker.block_time());
    }

    /// Runs the steps that the tracker requires after a poll, and publishes the state of the chain.
    async fn run_tracker_steps(&mut self, tracker: &mut ChainTracker) {
        self.publish_known_blocks(tracker);
        let mut from = None;
        while let Some(step) = tracker.take_next_tracker_step() {
            if let TrackerAction::ChainChange(ChainChange::Reorg { from: first }) = step {
                from = Some(first);
            }
            self.steps.apply_or_defer_tracker_step(step);
        }
        // no process waits for the disk before it is notified
        self.engine.wake_sessions();
        self.steps.run_deferred_tracker_steps().await;
        self.steps
            .publish_recorded_chain_identity(tracker.confirmed_identity());
        self.engine.wake_sessions();
        let next = FollowedChainStatus {
            state: tracker.tracker_state(),
            head: tracker.newest_known_block().map(|head| head.number),
            last_final: self.steps.published_final_block(),
            block_time: tracker.block_time(),
            reorgs: tracker.reorg_count(),
            error: tracker.last_poll_error().map(str::to_owned),
            ..FollowedChainStatus::default()
        };
        let before = self.chain.follow_status();
        let status = before.merge_history_into_status(next, from, read_clocks().monotonic);
        self.chain.set_follow_status(status);
    }
}

/// Performs one poll: queries the node until the tracker has no more queries, or the poll fails.
async fn poll_node(tracker: &mut ChainTracker, node: &NodeClient) {
    tracker.begin_poll(read_clocks().monotonic);
    let outcome = timeout(MAX_POLL_TIME, async {
        loop {
            let queries = tracker.next_queries();
            if queries.is_empty() {
                return Ok(());
            }
            let answers = join_all(queries.iter().map(|query| node.query_node(*query))).await;
            for (query, answer) in queries.into_iter().zip(answers) {
                tracker.handle_query_result(query, answer?);
            }
        }
    })
    .await;
    let error = match outcome {
        Ok(Ok(())) => return,
        Ok(Err(error)) => error,
        Err(_) => "the poll takes too long".to_owned(),
    };
    tracker.fail_poll(&error, read_clocks().monotonic);
}
