//! `libsszip_owner.so`, which is installed next to the module: the owner of a
//! store in this process, on threads of its own.
//! `cache-owner/include/sszip_owner.h` documents its functions.

#![allow(unsafe_code)] // the C ABI

use std::ffi::{c_char, c_void, CStr, CString, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr;

use super::direct_owner::DirectOwnerFunctions;
use crate::abi::LogLevel;
use crate::envoy::write_envoy_log;

/// Version of the library's ABI, as in the header.
const ABI_VERSION: u32 = 7;

const NAME: &str = "libsszip_owner.so";

/// The settings with which the owner's library starts an owner, in the layout of its C struct
/// `sszip_owner_config`. A number that is 0 means the owner's default.
#[repr(C)]
#[derive(Debug)]
pub struct OwnerLibraryConfig {
    size: usize,
    socket: *const c_char,
    socket_len: usize,
    path: *const c_char,
    path_len: usize,
    max_size: u64,
    memory: u64,
    max_entry: u64,
    threads: u32,
    idle_timeout: u64,
    flush_interval: u64,
    inactive: u64,
    no_recompress: u8,
    heads: *const c_char,
    heads_len: usize,
    fleet: *const c_char,
    fleet_len: usize,
}

/// The C function type `sszip_owner_log`, with the levels of `sszip_owner_level`.
type OwnerLog = Option<unsafe extern "C" fn(level: u32, line: *const c_char)>;

/// The settings with which the owner's library starts an owner.
#[derive(Debug, Default, Eq, PartialEq)]
pub struct OwnerStartSettings {
    /// Path of the socket on which the owner listens.
    pub socket: String,
    /// Folder of the store.
    pub path: String,
    /// Settings with the meaning and unit of `sszip_owner_config`, as are those
    /// that follow.
    pub max_size: u64,
    pub memory: u64,
    pub max_entry: u64,
    pub inactive: u64,
    pub no_recompress: bool,
    pub heads: String,
    pub fleet: String,
}

/// The functions of the owner's library, which stays loaded until the process ends.
#[derive(Clone, Copy, Debug)]
pub struct OwnerLibrary {
    run: unsafe extern "C" fn(*const OwnerLibraryConfig, bool, OwnerLog, *mut bool) -> u64,
    exit_owner: unsafe extern "C" fn(OwnerLog) -> bool,
    direct: DirectOwnerFunctions,
}

impl OwnerLibrary {
    /// Loads the owner's library from the folder of this module, and checks its ABI version.
    ///
    /// # Errors
    /// The library does not exist, or is from another build.
    pub fn load_owner_library() -> Result<Self, String> {
        let path = module_path().with_file_name(NAME);
        let name = CString::new(path.as_os_str().as_bytes()).unwrap_or_default();
        // SAFETY: loading it runs the initialisers of Rust and RocksDB.
        let library = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        if library.is_null() {
            return Err(format!(
                "\"cache_path\" needs the library \"{}\" next to the module: {}",
                path.display(),
                last_load_error()
            ));
        }
        // SAFETY: the functions have the header's types; only functions that
        // were found are called.
        unsafe {
            let abi: unsafe extern "C" fn() -> u32 =
                find_library_function(library, c"sszip_owner_abi")?;
            let its = abi();
            if its != ABI_VERSION {
                return Err(format!(
                    "\"{}\" is from another build than the module (interface {its}, the module has \
                     {ABI_VERSION}); install both files of one build",
                    path.display()
                ));
            }
            Ok(Self {
                run: find_library_function(library, c"sszip_owner_run")?,
                exit_owner: find_library_function(library, c"sszip_owner_exit")?,
                direct: DirectOwnerFunctions {
                    lookup: find_library_function(library, c"sszip_owner_direct_lookup")?,
                    store: find_library_function(library, c"sszip_owner_direct_store")?,
                    release: find_library_function(library, c"sszip_owner_direct_release")?,
                },
            })
        }
    }

    /// Returns the functions for direct calls.
    pub fn direct_functions(&self) -> DirectOwnerFunctions {
        self.direct
    }

    /// Starts the owner unless it runs, and performs its next work. Returns the
    /// milliseconds after which to call again, and whether the owner serves.
    /// Only one thread calls this.
    pub fn run_owner_step(&self, settings: &OwnerStartSettings) -> (u64, bool) {
        let config = OwnerLibraryConfig::from_settings(settings);
        let mut serves = false;
        // SAFETY: the strings are valid during the call.
        let after = unsafe { (self.run)(&raw const config, true, Some(log_line), &raw mut serves) };
        (after, serves)
    }

    /// Stops the owner, and stores the entries of its memory. `false`: it is still ending.
    /// `is_exit`: the process ends as well, and has no log any more.
    pub fn exit_owner(&self, is_exit: bool) -> bool {
        // SAFETY: the function has no other arguments.
        unsafe { (self.exit_owner)(if is_exit { None } else { Some(log_line) }) }
    }
}

impl OwnerLibraryConfig {
    fn from_settings(settings: &OwnerStartSettings) -> Self {
        Self {
            size: size_of::<Self>(),
            socket: settings.socket.as_ptr().cast(),
            socket_len: settings.socket.len(),
            path: settings.path.as_ptr().cast(),
            path_len: settings.path.len(),
            max_size: settings.max_size,
            memory: settings.memory,
            max_entry: settings.max_entry,
            threads: 0,
            idle_timeout: 0,
            flush_interval: 0,
            inactive: settings.inactive,
            no_recompress: settings.no_recompress.into(),
            heads: settings.heads.as_ptr().cast(),
            heads_len: settings.heads.len(),
            fleet: settings.fleet.as_ptr().cast(),
            fleet_len: settings.fleet.len(),
        }
    }
}

/// Writes a line of the owner to Envoy's log.
unsafe extern "C" fn log_line(level: u32, line: *const c_char) {
    let level = match level {
        0 => LogLevel::Info,
        _ => LogLevel::Error,
    };
    // SAFETY: the header: the line is NUL-terminated, and valid during the
    // call.
    let line = unsafe { CStr::from_ptr(line) };
    // no panic may unwind into the library
    let _ = std::panic::catch_unwind(|| write_envoy_log(level, &line.to_string_lossy()));
}

/// Returns the path from which this module was loaded.
fn module_path() -> std::path::PathBuf {
    let mut info = libc::Dl_info {
        dli_fname: ptr::null(),
        dli_fbase: ptr::null_mut(),
        dli_sname: ptr::null(),
        dli_saddr: ptr::null_mut(),
    };
    let here = module_path as *const c_void;
    // SAFETY: any address is accepted; a name that is found is valid as long as
    // the module.
    unsafe {
        if libc::dladdr(here, &raw mut info) == 0 || info.dli_fname.is_null() {
            return NAME.into();
        }
        Path::new(OsStr::from_bytes(CStr::from_ptr(info.dli_fname).to_bytes())).into()
    }
}

/// # Safety
/// The library is open, and its function has the type `F`, a function pointer.
unsafe fn find_library_function<F: Copy>(library: *mut c_void, name: &CStr) -> Result<F, String> {
    const { assert!(size_of::<F>() == size_of::<*mut c_void>()) };
    // SAFETY: the function's contract.
    let found = unsafe { libc::dlsym(library, name.as_ptr()) };
    match found.is_null() {
        true => Err(format!(
            "cannot use the library of the owner: {}",
            last_load_error()
        )),
        // SAFETY: the function's contract.
        false => Ok(unsafe { std::mem::transmute_copy(&found) }),
    }
}

/// Returns the error of the last call of the dynamic linker.
fn last_load_error() -> String {
    // SAFETY: the text is NUL-terminated, and valid until the thread's next
    // call.
    unsafe {
        let error = libc::dlerror();
        match error.is_null() {
            true => "unknown error of the dynamic linker".into(),
            false => CStr::from_ptr(error).to_string_lossy().into_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::mem::offset_of;

    use super::{OwnerLibraryConfig, ABI_VERSION};

    #[test]
    fn struct_layout_equals_the_owner_header() {
        use sszip_owner::ffi::{sszip_owner_config as Its, SSZIP_OWNER_ABI};
        assert_eq!(ABI_VERSION, SSZIP_OWNER_ABI);
        assert_eq!(size_of::<OwnerLibraryConfig>(), size_of::<Its>());
        macro_rules! same {
            ($($field:ident)*) => {$(
                assert_eq!(offset_of!(OwnerLibraryConfig, $field), offset_of!(Its, $field), stringify!($field));
            )*};
        }
        same!(size socket socket_len path path_len max_size memory max_entry threads);
        same!(idle_timeout flush_interval inactive no_recompress heads heads_len fleet fleet_len);
    }
}
