//! Conversion and checks of SSZ values.

use super::panic::{catch_panic_status, check_results};
use super::script::return_thread_result;
use super::types::{sszip_status, sszip_str};
use crate::bytes::SharedBytes;
use crate::script::ssz_values::{self, SszTypeSelector};

/// Selects an SSZ type by name, fork and preset, and the part of a value that
/// is meant; an empty string leaves a member unspecified.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct sszip_ssz_type {
    /// Name of the type as the consensus specifications write it, or a
    /// JSON-RPC method or the path of a Beacon API route, whose result is
    /// meant.
    pub name: sszip_str,
    /// Name of the fork.
    pub fork: sszip_str,
    /// Name of the preset.
    pub preset: sszip_str,
    /// Form of a JSON input: "value", the value alone; "answer", the response of
    /// a node, which contains the value; or "auto", either of them.
    pub form: sszip_str,
    /// Path of a part of an SSZ value.
    pub path: sszip_str,
}

/// Converts JSON to SSZ. Writes the value to `out`; on `SSZIP_STATUS_INVALID`
/// an error text. `out` is a thread result.
///
/// # Safety
/// `ssz_type` is NULL or valid with all that it points at, `json` a valid
/// string; `out` points at memory of its type.
#[no_mangle]
pub unsafe extern "C" fn sszip_json_to_ssz(
    ssz_type: *const sszip_ssz_type,
    json: sszip_str,
    out: *mut sszip_str,
) -> sszip_status {
    // SAFETY: the function's contract.
    catch_panic_status(|| unsafe {
        call_with_ssz_type(ssz_type, out, |ssz_type, form, _| {
            ssz_values::json_value_to_ssz(ssz_type, form, json.borrow_bytes())
        })
    })
}

/// Converts SSZ to JSON. Writes the value to `out`; on `SSZIP_STATUS_INVALID`
/// an error text. `out` is a thread result.
///
/// # Safety
/// `ssz_type` is NULL or valid with all that it points at, `ssz` a valid
/// string; `out` points at memory of its type.
#[no_mangle]
pub unsafe extern "C" fn sszip_ssz_to_json(
    ssz_type: *const sszip_ssz_type,
    ssz: sszip_str,
    out: *mut sszip_str,
) -> sszip_status {
    // SAFETY: the function's contract.
    catch_panic_status(|| unsafe {
        call_with_ssz_type(ssz_type, out, |ssz_type, _, path| {
            ssz_values::ssz_value_to_json(ssz_type, path, ssz.borrow_bytes())
        })
    })
}

/// Checks that SSZ is a valid value of the type. Writes an empty string to
/// `out`; on `SSZIP_STATUS_INVALID` an error text. `out` is a thread result.
///
/// # Safety
/// `ssz_type` is NULL or valid with all that it points at, `ssz` a valid
/// string; `out` points at memory of its type.
#[no_mangle]
pub unsafe extern "C" fn sszip_ssz_check(
    ssz_type: *const sszip_ssz_type,
    ssz: sszip_str,
    out: *mut sszip_str,
) -> sszip_status {
    // SAFETY: the function's contract.
    catch_panic_status(|| unsafe {
        call_with_ssz_type(ssz_type, out, |ssz_type, _, _| {
            ssz_values::check_ssz_value(ssz_type, ssz.borrow_bytes()).map(|()| Vec::new())
        })
    })
}

/// Computes the hash tree root of SSZ. Writes it to `out`, as `0x` and 64
/// hexadecimal digits; on `SSZIP_STATUS_INVALID` an error text. `out` is a
/// thread result.
///
/// # Safety
/// `ssz_type` is NULL or valid with all that it points at, `ssz` a valid
/// string; `out` points at memory of its type.
#[no_mangle]
pub unsafe extern "C" fn sszip_ssz_root(
    ssz_type: *const sszip_ssz_type,
    ssz: sszip_str,
    out: *mut sszip_str,
) -> sszip_status {
    // SAFETY: the function's contract.
    catch_panic_status(|| unsafe {
        call_with_ssz_type(ssz_type, out, |ssz_type, _, path| {
            ssz_values::ssz_value_root(ssz_type, path, ssz.borrow_bytes()).map(String::into_bytes)
        })
    })
}

/// Calls a function with the host's SSZ type, its form and its path, and writes
/// the result to `out`.
///
/// # Safety
/// `ssz_type` is NULL or valid with all that it points at.
unsafe fn call_with_ssz_type<B: Into<SharedBytes>>(
    ssz_type: *const sszip_ssz_type,
    out: *mut sszip_str,
    run: impl FnOnce(&SszTypeSelector<'_>, &str, &str) -> Result<B, String>,
) -> sszip_status {
    check_results!(out);
    // SAFETY: the function's contract.
    let Some(names) = (unsafe { ssz_type.as_ref() }) else {
        return sszip_status::SSZIP_STATUS_NULL;
    };
    // SAFETY: the function's contract.
    let text = |text: sszip_str| std::str::from_utf8(unsafe { text.borrow_bytes() });
    let (Ok(name), Ok(fork), Ok(preset), Ok(form), Ok(path)) = (
        text(names.name),
        text(names.fork),
        text(names.preset),
        text(names.form),
        text(names.path),
    ) else {
        return return_thread_result::<Vec<u8>, _>(Err("a name is not UTF-8"), out);
    };
    let ssz_type = SszTypeSelector { name, fork, preset };
    return_thread_result(run(&ssz_type, form, path).map(Some), out)
}
