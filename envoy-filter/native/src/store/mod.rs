//! The store that all filters of the process have together: which one it is, the link
//! to its owner, and the owner itself, if that is to be in this process.

mod library;
mod link;
mod owner;

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};

use sszip_core::config::files;
use sszip_core::config::follows::Follows;
use sszip_core::config::plan::Plan;
use sszip_core::config::store::Store;

use self::library::Library;

static STATE: Mutex<State> = Mutex::new(State {
    socket: None,
    wanted: None,
    max_entry: 0,
    follows: None,
    library: None,
    users: 0,
});

/// What filters and routes have said so far. Nothing of it is taken back: a process has
/// one store.
struct State {
    /// Of the owner, once a filter has named one.
    socket: Option<String>,
    /// The owner's store, which this process is to open.
    wanted: Option<Store>,
    /// The longest entry, in bytes.
    max_entry: u64,
    /// The nodes that are followed.
    follows: Option<Follows>,
    library: Option<Library>,
    /// Filters that use the store of this process.
    users: usize,
}

/// As long as there is one, this process has an owner of its store.
#[derive(Debug)]
pub struct Use(ThreadId);

/// What the owner in this process is to be.
#[derive(Clone, Debug)]
struct Wanted {
    store: Store,
    max_entry: u64,
    follows: Follows,
}

/// What is looked at when a configuration is only checked, too.
///
/// # Errors
/// What is wrong, and what is allowed.
pub fn check(plan: &Plan) -> Result<(), String> {
    match &plan.store {
        Some(store) if !store.folder.starts_with('/') => Err(format!(
            "\"cache_path\" has an invalid value \"{}\": it must begin with an absolute path",
            store.folder
        )),
        _ => Ok(()),
    }
}

/// A filter uses the store that its configuration names, if it does.
///
/// # Errors
/// It can't be had, or the process has another one.
pub fn start(plan: &Plan) -> Result<Option<Use>, String> {
    let mut state = state();
    state.grow(plan);
    let Some(socket) = plan.owner() else {
        return Ok(None);
    };
    if let Some(known) = &state.socket {
        return match *known == socket && state.wanted == plan.store {
            true => state.add_user(),
            false => Err(format!(
                "a process has one store, and the owner of this one's is at unix:{known}: \
                 another one, or other parameters of its \"cache_path\", take a restart"
            )),
        };
    }
    if let Some(store) = &plan.store {
        files::take_folder(&store.folder).map_err(|error| format!("\"cache_path\" {error}"))?;
        state.library = Some(Library::beside_module()?);
    }
    link::start(&socket).map_err(|error| format!("there is no link to a store: {error}"))?;
    state.socket = Some(socket);
    state.wanted.clone_from(&plan.store);
    state.add_user()
}

/// A place has nodes to be followed, or longer entries.
pub fn grow(plan: &Plan) {
    state().grow(plan);
}

/// Whether an owner in this process follows nodes.
pub fn follows() -> bool {
    state().wanted.is_some()
}

impl State {
    fn add_user(&mut self) -> Result<Option<Use>, String> {
        let (Some(library), Some(wanted)) = (self.library, self.wanted()) else {
            return Ok(None);
        };
        if self.users == 0 {
            owner::start(library, wanted).map_err(|error| format!("there is no store: {error}"))?;
        }
        self.users += 1;
        Ok(Some(Use(thread::current().id())))
    }

    fn grow(&mut self, plan: &Plan) {
        let follows = self.follows.get_or_insert_default();
        let is_changed = follows.replace_by(&plan.follows) || plan.max_entry() > self.max_entry;
        self.max_entry = self.max_entry.max(plan.max_entry());
        let is_used = self.users > 0;
        if let (true, Some(wanted)) = (is_changed && is_used, self.wanted()) {
            owner::change(wanted);
        }
    }

    fn wanted(&self) -> Option<Wanted> {
        Some(Wanted {
            store: self.wanted.clone()?,
            max_entry: self.max_entry,
            follows: self.follows.clone().unwrap_or_default(),
        })
    }
}

impl Drop for Use {
    fn drop(&mut self) {
        let mut state = state();
        state.users -= 1;
        if state.users == 0 {
            // a worker has others to serve
            let is_main = thread::current().id() == self.0;
            if is_main {
                owner::end();
            } else {
                // refused: it ends with the process
                let _ = thread::Builder::new().spawn(end_unused);
            }
        }
    }
}

fn end_unused() {
    let state = state();
    if state.users == 0 {
        owner::end();
    }
}

fn state() -> MutexGuard<'static, State> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}
