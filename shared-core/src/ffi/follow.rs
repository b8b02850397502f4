//! Whose chains' heads the cache's owner follows.

use super::config::{free, say, sszip_config, sszip_directives};
use super::panic::{borrow, borrow_mut, boundary, give};
use super::types::{sszip_status, sszip_str};
use crate::config::follows::{Follows, Named};

/// The heads of a whole configuration.
pub struct sszip_heads {
    follows: Follows,
    json: String,
}

/// None yet.
///
/// # Safety
/// `out` points at memory of its type.
#[no_mangle]
pub unsafe extern "C" fn sszip_heads_new(out: *mut *mut sszip_heads) -> sszip_status {
    boundary(|| {
        let heads = sszip_heads {
            follows: Follows::default(),
            json: String::new(),
        };
        give!(out, Box::into_raw(Box::new(heads)));
        sszip_status::SSZIP_STATUS_OK
    })
}

/// Adds those of a place whose answers are cached, `config` being its settings.
/// `name_space` is the text of its `cache_namespace`; NULL `data`: there is
/// none. `per_request`: it has variables, whatever its text. `at` says where the
/// configuration has the heads, for people.
///
/// On `SSZIP_STATUS_INVALID` a text says what is wrong, as in
/// `sszip_directives_set`.
///
/// # Safety
/// `heads` is NULL or from `sszip_heads_new` and not freed, `config` NULL or
/// from `sszip_config_new` and not freed; the strings are valid; `text` has
/// room for `text_size` bytes; `text_len` points at memory of its type.
#[no_mangle]
pub unsafe extern "C" fn sszip_heads_add(
    heads: *mut sszip_heads,
    config: *const sszip_config,
    name_space: sszip_str,
    per_request: bool,
    at: sszip_str,
    text: *mut u8,
    text_size: usize,
    text_len: *mut usize,
) -> sszip_status {
    boundary(|| {
        let heads = borrow_mut!(heads);
        let config = borrow!(config);
        // SAFETY: the function's contract.
        let (name, at) = unsafe { (name_space.bytes(), at.bytes()) };
        let named = match (per_request, name_space.data.is_null()) {
            (true, _) => Named::PerRequest,
            (false, true) => Named::No,
            (false, false) => Named::Always(name),
        };
        let at = String::from_utf8_lossy(at);
        match heads.follows.add(&config.0.cache.follows, named, &at) {
            Ok(()) => {
                heads.json = heads.follows.to_json();
                sszip_status::SSZIP_STATUS_OK
            }
            // SAFETY: the function's contract.
            Err(error) => unsafe {
                say(
                    &in_hosts_words(&error.to_string()),
                    text,
                    text_size,
                    text_len,
                )
            },
        }
    })
}

/// All of them, as the cache's owner takes them (`sszip_owner_config`); empty
/// where there is none. There are secrets in it. Valid until the next
/// `sszip_heads_add` and `sszip_heads_free`.
///
/// # Safety
/// `heads` is NULL or from `sszip_heads_new` and not freed; `out` points at
/// memory of its type.
#[no_mangle]
pub unsafe extern "C" fn sszip_heads_json(
    heads: *const sszip_heads,
    out: *mut sszip_str,
) -> sszip_status {
    boundary(|| {
        give!(out, sszip_str::of(borrow!(heads).json.as_bytes()));
        sszip_status::SSZIP_STATUS_OK
    })
}

/// # Safety
/// `heads` is NULL or from `sszip_heads_new` and not freed.
#[no_mangle]
pub unsafe extern "C" fn sszip_heads_free(heads: *mut sszip_heads) {
    // SAFETY: the function's contract.
    unsafe { free(heads) }
}

/// Whether the block has a head that is to be followed, or one around it has
/// that it has inherited. `false` for NULL.
///
/// # Safety
/// `directives` is NULL or from `sszip_directives_new` and not freed.
#[no_mangle]
pub unsafe extern "C" fn sszip_directives_have_head(directives: *const sszip_directives) -> bool {
    // SAFETY: the function's contract.
    unsafe { directives.as_ref() }.is_some_and(|directives| directives.0.follows_any())
}

/// The core calls directives as all hosts do; here they have a prefix.
fn in_hosts_words(message: &str) -> String {
    message.replace("\"cache_", "\"sszip_cache_")
}
