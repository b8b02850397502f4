//! What a whole configuration comes to.

use super::config::{free, sszip_config, values_of};
use super::files;
use super::panic::{borrow, borrow_mut, borrow_sized, boundary, give};
use super::types::{sszip_status, sszip_str};
use crate::config::follows::Named;
use crate::config::plan::{Place, Plan};
use crate::config::store::Store;

/// A whole configuration.
#[derive(Default)]
pub struct sszip_plan {
    plan: Plan,
    /// What the last call had to say.
    said: String,
    /// What `sszip_plan_store` gave out, each ended by NUL.
    store: [String; 4],
}

/// A place, once it has inherited.
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

/// Nothing yet.
///
/// # Safety
/// `out` points at memory of its type.
#[no_mangle]
pub unsafe extern "C" fn sszip_plan_new(out: *mut *mut sszip_plan) -> sszip_status {
    boundary(|| {
        give!(out, Box::into_raw(Box::default()));
        sszip_status::SSZIP_STATUS_OK
    })
}

/// Adds a place with its settings.
///
/// On `SSZIP_STATUS_INVALID` `said` is what is wrong, for the operator, with
/// the place in the configuration; on `SSZIP_STATUS_OK` what the operator should
/// know all the same, or empty. Valid until the next call.
///
/// # Safety
/// `plan` is NULL or from `sszip_plan_new` and not freed, `config` NULL or
/// from `sszip_config_new` and not freed; `place` is NULL or valid with all that
/// it points at; `said` points at memory of its type.
#[no_mangle]
pub unsafe extern "C" fn sszip_plan_add(
    plan: *mut sszip_plan,
    config: *const sszip_config,
    place: *const sszip_place,
    said: *mut sszip_str,
) -> sszip_status {
    boundary(|| {
        let plan = borrow_mut!(plan);
        let config = borrow!(config);
        let place = borrow_sized!(place);
        // SAFETY: the function's contract.
        let (name, name_space) = unsafe { (place.name.bytes(), place.name_space.bytes()) };
        let added = plan.plan.add(
            &config.0,
            Place {
                name: &String::from_utf8_lossy(name),
                named: match (place.per_request, place.name_space.data.is_null()) {
                    (true, _) => Named::PerRequest,
                    (false, true) => Named::No,
                    (false, false) => Named::Always(name_space),
                },
                answers: place.answers,
                purges: place.purges,
            },
        );
        // SAFETY: the function's contract.
        unsafe { plan.say(added, said) }
    })
}

/// Whether all of it goes together, once all places are added. `has_owner`:
/// there is an owner of a store. `said` is as of `sszip_plan_add`.
///
/// # Safety
/// `plan` is NULL or from `sszip_plan_new` and not freed; `said` points at
/// memory of its type.
#[no_mangle]
pub unsafe extern "C" fn sszip_plan_check(
    plan: *mut sszip_plan,
    has_owner: bool,
    said: *mut sszip_str,
) -> sszip_status {
    boundary(|| {
        let plan = borrow_mut!(plan);
        let checked = plan.plan.check(has_owner).map(|()| None);
        // SAFETY: the function's contract.
        unsafe { plan.say(checked, said) }
    })
}

/// Takes `sszip_cache_path`, with its arguments; a path that is not absolute is
/// one in `base`. The folder is made if need be, and is none of somebody else's.
/// `said` is as of `sszip_directives_set`.
///
/// # Safety
/// `plan` is NULL or from `sszip_plan_new` and not freed; `values` are `nvalues`
/// valid strings, and `base` is one; `said` points at memory of its type.
#[no_mangle]
pub unsafe extern "C" fn sszip_plan_set_store(
    plan: *mut sszip_plan,
    values: *const sszip_str,
    nvalues: usize,
    base: sszip_str,
    said: *mut sszip_str,
) -> sszip_status {
    boundary(|| {
        let plan = borrow_mut!(plan);
        // SAFETY: the function's contract.
        let (values, base) = unsafe { (values_of(values, nvalues), base.bytes()) };
        let base = String::from_utf8_lossy(base);
        let store = Store::parse(&values, &base).map_err(|error| error.to_string());
        let taken = store.and_then(|store| {
            files::take_folder(&store.folder)?;
            plan.plan.store = Some(store);
            Ok(None)
        });
        // SAFETY: the function's contract.
        unsafe { plan.say(taken, said) }
    })
}

/// The store that was taken last, and all that its owner is to know; valid until
/// the next call. `SSZIP_STATUS_MISUSE`: there is none.
///
/// # Safety
/// `plan` is NULL or from `sszip_plan_new` and not freed; `out` points at
/// memory of its type.
#[no_mangle]
pub unsafe extern "C" fn sszip_plan_store(
    plan: *mut sszip_plan,
    out: *mut sszip_store,
) -> sszip_status {
    boundary(|| {
        let sszip_plan { plan, store, .. } = borrow_mut!(plan);
        let Some(own) = &plan.store else {
            return sszip_status::SSZIP_STATUS_MISUSE;
        };
        let texts = [
            own.folder.clone(),
            own.socket(),
            own.data(),
            plan.follows.to_json(),
        ];
        *store = texts.map(|text| text + "\0");
        let [folder, socket, data, heads] = store
            .each_ref()
            .map(|text| sszip_str::of(&text.as_bytes()[..text.len() - 1]));
        give!(
            out,
            sszip_store {
                folder,
                socket,
                data,
                max_size: own.max_size.unwrap_or(0),
                memory: own.memory.unwrap_or(0),
                max_entry: plan.max_entry(),
                inactive: own.inactive.unwrap_or(0),
                no_recompress: own.recompress == Some(false),
                heads,
            }
        );
        sszip_status::SSZIP_STATUS_OK
    })
}

/// The longest entry that is kept anywhere, in bytes before compression. 0 for
/// NULL.
///
/// # Safety
/// `plan` is NULL or from `sszip_plan_new` and not freed.
#[no_mangle]
pub unsafe extern "C" fn sszip_plan_max_entry(plan: *const sszip_plan) -> u64 {
    // SAFETY: the function's contract.
    unsafe { plan.as_ref() }.map_or(0, |plan| plan.plan.max_entry())
}

/// # Safety
/// `plan` is NULL or from `sszip_plan_new` and not freed.
#[no_mangle]
pub unsafe extern "C" fn sszip_plan_free(plan: *mut sszip_plan) {
    // SAFETY: the function's contract.
    unsafe { free(plan) }
}

impl sszip_plan {
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
        let text = result.unwrap_or_else(Some).unwrap_or_default();
        self.said = in_hosts_words(&text);
        give!(said, sszip_str::of(self.said.as_bytes()));
        status
    }
}

/// The core calls directives as all hosts do; here they have a prefix.
fn in_hosts_words(message: &str) -> String {
    message.replace("\"cache", "\"sszip_cache")
}
