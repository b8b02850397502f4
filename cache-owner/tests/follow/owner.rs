//! An owner that follows a node, used through its socket.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::Value;
use sszip_core::config::head_source::{FinalizedBlockRule, HeadSource, NodeApi};
use sszip_owner::config::OwnerConfig;
use sszip_owner::log::LogFunction;
use sszip_owner::open_store::create_store_opener;
use sszip_owner::owner_lifecycle::RunningOwnerHandle;
use tempfile::TempDir;

/// The namespace "mainnet" in the protocol's notation.
pub const NAMESPACE: &str = "2cc87c4f2698b452bb101cdf6d09df88";

/// An owner on its own threads that follows one chain, until it is dropped.
pub struct FollowingOwner {
    running: RunningOwnerHandle,
    folder: Arc<TempDir>,
    lines: Arc<Mutex<Vec<String>>>,
}

pub fn head_source(url: &str) -> HeadSource {
    HeadSource {
        url: url.to_owned(),
        interval: 100,
        finality: FinalizedBlockRule::Tag,
        api: NodeApi::Execution,
        headers: Vec::new(),
        ca: None,
    }
}

impl FollowingOwner {
    pub fn start(head: HeadSource) -> Self {
        Self::start_in(Arc::new(tempfile::tempdir().unwrap()), head)
    }

    /// Starts an owner with the store of an earlier one.
    pub fn start_in(folder: Arc<TempDir>, head: HeadSource) -> Self {
        let lines: Arc<Mutex<Vec<String>>> = Arc::default();
        let log: LogFunction = Arc::new({
            let lines = Arc::clone(&lines);
            move |_, line| lines.lock().unwrap().push(line.to_owned())
        });
        let mut config = OwnerConfig::from_socket_and_store_paths(
            folder.path().join("socket"),
            folder.path().join("store"),
        );
        config.follows = vec![("mainnet".to_owned(), head)];
        let open = create_store_opener(&config.path, 64 << 20, Arc::clone(&log));
        let running = RunningOwnerHandle::start_owner_threads(config, open, log).unwrap();
        let owner = Self {
            running,
            folder,
            lines,
        };
        for _ in 0..12_000 {
            if owner.log_count("serving on") > 0 {
                return owner;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("it does not serve: {:?}", owner.lines());
    }

    /// Ends the owner, and returns its store.
    pub fn stop(self) -> Arc<TempDir> {
        Arc::clone(&self.folder)
    }

    pub fn lines(&self) -> Vec<String> {
        self.lines.lock().unwrap().clone()
    }

    /// Returns the number of log lines that contain `text`.
    pub fn log_count(&self, text: &str) -> usize {
        let lines = self.lines.lock().unwrap();
        lines.iter().filter(|line| line.contains(text)).count()
    }

    pub fn request(&self, request: &str) -> String {
        let mut stream = UnixStream::connect(self.folder.path().join("socket")).unwrap();
        let limit = Some(Duration::from_secs(30));
        stream.set_read_timeout(limit).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    pub fn purge(&self, scope: &str) {
        let length = scope.len();
        let answer = self.request(&format!(
            "POST /v1/purges HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\
             content-length: {length}\r\n\r\n{scope}"
        ));
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }

    pub fn status(&self) -> Value {
        let answer =
            self.request("GET /v1/status HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
        let (_, body) = answer.split_once("\r\n\r\n").unwrap();
        serde_json::from_str(body).unwrap()
    }

    pub fn chain(&self) -> Value {
        self.status()["chains"][0].clone()
    }

    /// Waits until the status of the chain satisfies a condition.
    pub fn wait_for_chain(&self, condition: &str, is_there: impl Fn(&Value) -> bool) -> Value {
        let mut chain = Value::Null;
        for _ in 0..6_000 {
            chain = self.chain();
            if is_there(&chain) {
                return chain;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        panic!("{condition}: {chain} {:?}", self.lines());
    }

    pub fn wait_for_state(&self, state: &str, head: u64, last: Option<u64>) {
        self.wait_for_chain(&format!("{state}, {head}, {last:?}"), |chain| {
            chain["state"] == state && chain["head"] == head && chain["final"] == Value::from(last)
        });
    }

    /// Waits until the last error contains all parts.
    pub fn wait_for_error(&self, parts: &[&str]) {
        self.wait_for_chain(&format!("{parts:?}"), |chain| {
            let error = chain["error"].as_str().unwrap_or_default();
            parts.iter().all(|part| error.contains(part))
        });
    }
}

impl Drop for FollowingOwner {
    fn drop(&mut self) {
        let has_ended = self.running.stop_owner_within(Duration::from_secs(30));
        assert!(has_ended || std::thread::panicking());
    }
}
