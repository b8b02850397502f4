//! What a whole configuration comes to.

use std::sync::Arc;

use super::config::{free, own_name, sszip_config, sszip_rules, values_of, PROCESS};
use super::link;
use super::panic::{borrow, borrow_mut, borrow_sized, boundary, give};
use super::types::{sszip_status, sszip_str};
use crate::allocator;
use crate::config::files;
use crate::config::follows::Named;
use crate::config::plan::{Place, Plan};
use crate::config::upstreams::{Destination, Upstreams};
use crate::config::{Config, Directives, Source};
use crate::exchange;

/// A whole configuration: what each block of it says, and what each place has
/// inherited.
#[derive(Default)]
pub struct sszip_plan {
    plan: Plan,
    blocks: Vec<Directives>,
    #[allow(clippy::vec_box)] // pointers to them are given out
    configs: Vec<Box<sszip_config>>,
    upstreams: Upstreams,
    /// What paths and files begin with that are not absolute.
    prefix: Vec<u8>,
    file_prefix: Vec<u8>,
    /// What the last call had to say.
    said: String,
    /// Folder, socket, data and heads of a store, and where its owner listens; each
    /// ended by NUL, once all was checked.
    store: [String; 4],
    owner: String,
}

/// A directive.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct sszip_directive {
    /// `sizeof(sszip_directive)`, so that the struct may grow.
    pub size: usize,
    /// As docs/directives.md has it.
    pub name: sszip_str,
    /// Its arguments.
    pub values: *const sszip_str,
    /// How many.
    pub nvalues: usize,
    /// The file that it is in.
    pub file: sszip_str,
    /// The line there.
    pub line: usize,
}

/// A place, once all of it was read.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct sszip_place {
    /// `sizeof(sszip_place)`, so that the struct may grow.
    pub size: usize,
    /// What people know it by.
    pub name: sszip_str,
    /// The text of its `sszip_cache_namespace`; NULL `data`: there is none.
    pub name_space: sszip_str,
    /// That has variables, whatever its text.
    pub per_request: bool,
    /// Requests end there.
    pub answers: bool,
    /// It purges.
    pub purges: bool,
    /// Which node its requests go to, as the configuration names it; NULL `data`:
    /// to none, or that is another one for each request.
    pub url: sszip_str,
    /// Fields of the node's answers that the host's own configuration hides from
    /// clients there. Places inside do not inherit them.
    pub hidden: *const sszip_str,
    /// How many.
    pub nhidden: usize,
    /// How long a request body may be that the host keeps in memory, in bytes; 0: as long as
    /// its other limits allow.
    pub body_buffer: u64,
    /// The node is asked by HTTP/1.0.
    pub is_http_1_0: bool,
}

/// A store of the host's own. Where a number is 0 the owner has its default.
/// The strings are ended by NUL.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct sszip_store {
    /// Its folder, an absolute path. The owner of a store is to have it to itself.
    pub folder: sszip_str,
    /// The owner's socket in it.
    pub socket: sszip_str,
    /// Where the data are in it.
    pub data: sszip_str,
    /// What it may take on disk, in bytes.
    pub max_size: u64,
    /// What entries may take in the owner's memory, in bytes.
    pub memory: u64,
    /// The longest entry, in bytes.
    pub max_entry: u64,
    /// For how long what nobody asks for is kept, in milliseconds.
    pub inactive: u64,
    /// Entries are not made smaller before they go to the disk.
    pub no_recompress: bool,
    /// The heads that are to be followed, as the owner takes them. There are
    /// secrets in it.
    pub heads: sszip_str,
}

/// Nothing yet. A folder that is not absolute is one in `prefix`, other files are
/// in `file_prefix`.
///
/// # Safety
/// The strings are valid; `out` points at memory of its type.
#[no_mangle]
pub unsafe extern "C" fn sszip_plan_new(
    prefix: sszip_str,
    file_prefix: sszip_str,
    out: *mut *mut sszip_plan,
) -> sszip_status {
    boundary(|| {
        // SAFETY: the function's contract.
        let (prefix, file_prefix) = unsafe { (prefix.bytes(), file_prefix.bytes()) };
        let plan = sszip_plan {
            prefix: prefix.to_vec(),
            file_prefix: file_prefix.to_vec(),
            ..sszip_plan::default()
        };
        give!(out, Box::into_raw(Box::new(plan)));
        sszip_status::SSZIP_STATUS_OK
    })
}

/// Takes a directive for the block `*block`; 0: that has said nothing yet, and gets
/// its number.
///
/// On `SSZIP_STATUS_INVALID` `said` goes on from the directive's name and says
/// what is allowed, for the operator; nothing has changed then. On
/// `SSZIP_STATUS_OK` it says what the operator should know of the directive all
/// the same, and is empty where there is nothing. Valid until the next call.
///
/// # Safety
/// `plan` is NULL or from `sszip_plan_new` and not freed; `block` points at a
/// number of that plan or 0; `directive` is NULL or valid with all that it points
/// at; `said` points at memory of its type.
#[no_mangle]
pub unsafe extern "C" fn sszip_plan_set(
    plan: *mut sszip_plan,
    block: *mut usize,
    directive: *const sszip_directive,
    said: *mut sszip_str,
) -> sszip_status {
    boundary(|| {
        let plan = borrow_mut!(plan);
        let block = borrow_mut!(block);
        let directive = borrow_sized!(directive);
        // SAFETY: the function's contract.
        let values = unsafe { values_of(directive.values, directive.nvalues) };
        // SAFETY: the function's contract.
        let (name, file) = unsafe { (directive.name.bytes(), directive.file.bytes()) };
        let at = format!("{}:{}", String::from_utf8_lossy(file), directive.line);
        let set = plan.set(block, own_name(name), &values, &at);
        // SAFETY: the function's contract.
        unsafe { plan.say(set, said) }
    })
}

/// Adds the place that the block `*block` makes, inside of the block `outer`, and
/// says what is to be known of it. 0: a block that says nothing; `*block` gets a
/// number then.
///
/// On `SSZIP_STATUS_INVALID` `said` is what is wrong, for the operator, with
/// the place in the configuration; on `SSZIP_STATUS_OK` what the operator should
/// know all the same, or empty. Valid until the next call.
///
/// # Safety
/// `plan` is NULL or from `sszip_plan_new` and not freed; `block` points at a
/// number of that plan or 0, which `outer` is, too; `place` is NULL or valid with
/// all that it points at; the results point at memory of their type.
#[no_mangle]
pub unsafe extern "C" fn sszip_plan_add(
    plan: *mut sszip_plan,
    block: *mut usize,
    outer: usize,
    place: *const sszip_place,
    rules: *mut sszip_rules,
    said: *mut sszip_str,
) -> sszip_status {
    boundary(|| {
        let plan = borrow_mut!(plan);
        let block = borrow_mut!(block);
        let place = borrow_sized!(place);
        // SAFETY: the function's contract.
        let hidden = unsafe { values_of(place.hidden, place.nhidden) };
        // SAFETY: the function's contract.
        let (name, name_space) = unsafe { (place.name.bytes(), place.name_space.bytes()) };
        // SAFETY: the function's contract.
        let url = (!place.url.data.is_null()).then(|| unsafe { place.url.bytes() });
        let Some(mut config) = plan.inherit(block, outer, &hidden) else {
            return sszip_status::SSZIP_STATUS_MISUSE;
        };
        config.destination = Destination::new(name, url, &plan.upstreams);
        let place = Place {
            name: &format!("location \"{}\"", String::from_utf8_lossy(name)),
            named: match (place.per_request, place.name_space.data.is_null()) {
                (true, _) => Named::PerRequest,
                (false, true) => Named::No,
                (false, false) => Named::Always(name_space),
            },
            answers: place.answers,
            purges: place.purges,
            body_buffer: (place.body_buffer > 0).then_some(place.body_buffer),
            is_http_1_0: place.is_http_1_0,
        };
        let added = plan.plan.add(&config, place);
        let added = added
            .map(|said| said.map(|said| in_hosts_words(&said)))
            .map_err(|error| in_hosts_words(&error));
        let config = Box::new(sszip_config(Arc::new(config)));
        give!(rules, sszip_rules::of(&config));
        plan.configs.push(config);
        // SAFETY: the function's contract.
        unsafe { plan.say(added, said) }
    })
}

/// Adds servers that the configuration names together, and `url`s of places by
/// that name.
///
/// # Safety
/// `plan` is NULL or from `sszip_plan_new` and not freed; `servers` are `nservers`
/// valid strings, and `name` is one.
#[no_mangle]
pub unsafe extern "C" fn sszip_plan_add_upstream(
    plan: *mut sszip_plan,
    name: sszip_str,
    servers: *const sszip_str,
    nservers: usize,
) -> sszip_status {
    boundary(|| {
        let plan = borrow_mut!(plan);
        // SAFETY: the function's contract.
        let (name, servers) = unsafe { (name.bytes(), values_of(servers, nservers)) };
        plan.upstreams.add(name, servers.into_iter());
        sszip_status::SSZIP_STATUS_OK
    })
}

/// Whether all of it goes together, once all was added. `said` is as of
/// `sszip_plan_add`.
///
/// # Safety
/// `plan` is NULL or from `sszip_plan_new` and not freed; `said` points at
/// memory of its type.
#[no_mangle]
pub unsafe extern "C" fn sszip_plan_check(
    plan: *mut sszip_plan,
    said: *mut sszip_str,
) -> sszip_status {
    boundary(|| {
        let plan = borrow_mut!(plan);
        let checked = plan.check().map(|()| {
            let warnings = plan.plan.warnings();
            (!warnings.is_empty()).then(|| in_hosts_words(&warnings.join("; ")))
        });
        let checked = checked.map_err(|error| in_hosts_words(&error));
        // SAFETY: the function's contract.
        unsafe { plan.say(checked, said) }
    })
}

/// After `sszip_plan_check`: where the owner of a store listens, "unix:" and a path,
/// ended by NUL; empty: there is none. Valid as long as the plan.
///
/// # Safety
/// `plan` is NULL or from `sszip_plan_new` and not freed.
#[no_mangle]
pub unsafe extern "C" fn sszip_plan_owner(plan: *const sszip_plan) -> sszip_str {
    // SAFETY: the function's contract.
    let plan = unsafe { plan.as_ref() };
    plan.map_or(sszip_str::ABSENT, |plan| ended(&plan.owner))
}

/// Prepares the process that will serve, one of `processes`, after any fork:
/// makes the hot tier, with its share of `cache_memory`, if there is a cache,
/// opens what would else be opened when it is needed first, and there may be no
/// memory, sets how the C library keeps what is freed, and joins the owner of a
/// store, to which `sszip_link_tick` opens the connections. A second call changes
/// nothing. Without it nothing is cached.
///
/// # Safety
/// `plan` is NULL or from `sszip_plan_new` and not freed.
#[no_mangle]
pub unsafe extern "C" fn sszip_plan_start(
    plan: *const sszip_plan,
    processes: usize,
) -> sszip_status {
    boundary(|| {
        let plan = borrow!(plan);
        let mut configs = plan.configs.iter().map(|config| &config.0);
        if let Some(config) = configs.find(|config| config.caches()) {
            let share = config.cache.memory / processes.max(1) as u64;
            config.process.shared.start(share, share, 1);
        }
        exchange::prepare();
        allocator::keep_freed();
        if plan.plan.owner().is_some() {
            link::join(&plan.plan);
        }
        sszip_status::SSZIP_STATUS_OK
    })
}

/// After `sszip_plan_check`: the host's own store, and all that its owner is to
/// know, valid as long as the plan. `SSZIP_STATUS_MISUSE`: there is none.
///
/// # Safety
/// `plan` is NULL or from `sszip_plan_new` and not freed; `out` points at
/// memory of its type.
#[no_mangle]
pub unsafe extern "C" fn sszip_plan_store(
    plan: *const sszip_plan,
    out: *mut sszip_store,
) -> sszip_status {
    boundary(|| {
        let plan = borrow!(plan);
        let Some(own) = &plan.plan.store else {
            return sszip_status::SSZIP_STATUS_MISUSE;
        };
        let [folder, socket, data, heads] = plan.store.each_ref().map(|text| ended(text));
        give!(
            out,
            sszip_store {
                folder,
                socket,
                data,
                max_size: own.max_size.unwrap_or(0),
                memory: own.memory.unwrap_or(0),
                max_entry: plan.plan.max_entry(),
                inactive: own.inactive.unwrap_or(0),
                no_recompress: own.recompress == Some(false),
                heads,
            }
        );
        sszip_status::SSZIP_STATUS_OK
    })
}

/// What was made from it goes on.
///
/// # Safety
/// `plan` is NULL or from `sszip_plan_new` and not freed.
#[no_mangle]
pub unsafe extern "C" fn sszip_plan_free(plan: *mut sszip_plan) {
    // SAFETY: the function's contract.
    unsafe { free(plan) }
}

impl sszip_plan {
    /// The block of that number; 0: a new one. `None`: there is no such block.
    fn block(&mut self, number: &mut usize) -> Option<&mut Directives> {
        if *number == 0 {
            self.blocks.push(Directives::default());
            *number = self.blocks.len();
        }
        self.blocks.get_mut(*number - 1)
    }

    /// What the operator should know is returned.
    fn set(
        &mut self,
        block: &mut usize,
        name: &str,
        values: &[&[u8]],
        at: &str,
    ) -> Result<Option<String>, String> {
        let prefix = String::from_utf8_lossy(&self.prefix);
        if let Some(set) = self.plan.set_at(name, values, &prefix, Source { at }) {
            set.map_err(|error| in_hosts_words(&error.to_string()))?;
            if name == "cache_path" {
                // one whose folder can't be had is none
                let store = self.plan.store.take();
                let folder = store.as_ref().map(|store| &store.folder);
                folder.map_or(Ok(()), |folder| files::take_folder(folder))?;
                self.plan.store = store;
            }
            return Ok(None);
        }
        let values = files::with_files(name, values, &self.file_prefix)?;
        let values: Vec<&[u8]> = values.iter().map(|value| &**value).collect();
        let directives = self.block(block).ok_or("is in no block")?;
        let set = directives.set_at(name, &values, Source { at });
        set.map_err(|error| error.to_string())?;
        let warning = directives.take_warning();
        Ok(warning.map(|warning| in_hosts_words(&warning)))
    }

    /// The settings of a place; `None`: there is no such block.
    fn inherit(&mut self, block: &mut usize, outer: usize, hidden: &[&[u8]]) -> Option<Config> {
        let outer = match outer {
            0 => Directives::default(),
            number => self.blocks.get(number - 1)?.clone(),
        };
        let directives = self.block(block)?;
        directives.inherit(&outer);
        directives.hide(hidden.iter().copied());
        Some(directives.resolve(PROCESS.clone()))
    }

    fn check(&mut self) -> Result<(), String> {
        self.upstreams.finish();
        self.plan.check()?;
        if let Some(own) = &self.plan.store {
            let heads = self.plan.follows.to_json();
            let texts = [own.folder.clone(), own.socket(), own.data(), heads];
            self.store = texts.map(|text| text + "\0");
        }
        let owner = self.plan.owner();
        self.owner = owner.map_or_else(String::new, |socket| format!("unix:{socket}\0"));
        Ok(())
    }

    /// # Safety
    /// `said` is NULL or points at memory of its type.
    unsafe fn say(
        &mut self,
        result: Result<Option<String>, String>,
        said: *mut sszip_str,
    ) -> sszip_status {
        let status = match result {
            Ok(_) => sszip_status::SSZIP_STATUS_OK,
            Err(_) => sszip_status::SSZIP_STATUS_INVALID,
        };
        self.said = result.unwrap_or_else(Some).unwrap_or_default();
        give!(said, sszip_str::of(self.said.as_bytes()));
        status
    }
}

/// A text without the NUL that ends it.
fn ended(text: &str) -> sszip_str {
    sszip_str::of(text.strip_suffix('\0').unwrap_or(text).as_bytes())
}

/// The core calls directives as all hosts do; here they have a prefix.
fn in_hosts_words(message: &str) -> String {
    message
        .replace("\"cache", "\"sszip_cache")
        .replace("\"method\"", "\"sszip_method\"")
        .replace("\"enable on\"", "\"sszip on\"")
}
