//! `libsszip_owner.so`, which is beside the module: the process's owner of a store, on
//! threads of its own. `cache-owner/include/sszip_owner.h` is its manual.

#![allow(unsafe_code)] // it is C's

use std::ffi::{c_char, c_void, CStr, CString, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr;

use crate::abi::LogLevel;
use crate::envoy::log;

/// That of the header.
const ABI: u32 = 5;

const NAME: &str = "libsszip_owner.so";

/// `sszip_owner_config`; where a number is 0 the owner has its default.
#[repr(C)]
#[derive(Debug)]
pub struct Config {
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
}

/// `sszip_owner_level`, `sszip_owner_say`.
type Say = Option<unsafe extern "C" fn(level: u32, line: *const c_char)>;

/// What an owner is told.
#[derive(Debug, Default, Eq, PartialEq)]
pub struct Settings {
    /// Where it listens.
    pub socket: String,
    /// The store's folder.
    pub path: String,
    /// `sszip_owner_config` says what the others are.
    pub max_size: u64,
    pub memory: u64,
    pub max_entry: u64,
    pub inactive: u64,
    pub no_recompress: bool,
    pub heads: String,
}

/// The library's functions. It stays as long as the process.
#[derive(Clone, Copy, Debug)]
pub struct Library {
    run: unsafe extern "C" fn(*const Config, bool, Say, *mut bool) -> u64,
    exit: unsafe extern "C" fn(Say) -> bool,
}

impl Library {
    /// Opens it.
    ///
    /// # Errors
    /// It is not there, or of another build.
    pub fn beside_module() -> Result<Self, String> {
        let path = own_path().with_file_name(NAME);
        let name = CString::new(path.as_os_str().as_bytes()).unwrap_or_default();
        // SAFETY: what it runs when it is opened are Rust's and RocksDB's initialisers.
        let library = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        if library.is_null() {
            return Err(format!(
                "\"cache_path\" needs \"{}\", beside the module: {}",
                path.display(),
                why_not()
            ));
        }
        // SAFETY: these are of the header's types; only what was found is called.
        unsafe {
            let abi = function(library, c"sszip_owner_abi")?;
            let abi: unsafe extern "C" fn() -> u32 = std::mem::transmute(abi);
            let its = abi();
            if its != ABI {
                return Err(format!(
                    "\"{}\" is of another build than the module, with interface {its} where the \
                     module has {ABI}: install both files of one build",
                    path.display()
                ));
            }
            let run = function(library, c"sszip_owner_run")?;
            let exit = function(library, c"sszip_owner_exit")?;
            Ok(Self {
                run: std::mem::transmute::<
                    *mut c_void,
                    unsafe extern "C" fn(*const Config, bool, Say, *mut bool) -> u64,
                >(run),
                exit: std::mem::transmute::<*mut c_void, unsafe extern "C" fn(Say) -> bool>(exit),
            })
        }
    }

    /// Starts the owner unless it runs, and takes it further. After how many
    /// milliseconds that is to be done again, and whether it serves. One thread calls
    /// this.
    pub fn run(&self, settings: &Settings) -> (u64, bool) {
        let config = Config::of(settings);
        let mut serves = false;
        // SAFETY: the strings are there for the time of the call.
        let after = unsafe { (self.run)(&raw const config, true, Some(say), &raw mut serves) };
        (after, serves)
    }

    /// Ends it: what it has in memory is stored. `false`: it goes on ending.
    /// `is_over`: so does the process, and has no log any more.
    pub fn exit(&self, is_over: bool) -> bool {
        // SAFETY: the function takes nothing else.
        unsafe { (self.exit)(if is_over { None } else { Some(say) }) }
    }
}

impl Config {
    fn of(settings: &Settings) -> Self {
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
        }
    }
}

/// A line of the owner's log.
unsafe extern "C" fn say(level: u32, line: *const c_char) {
    let level = match level {
        0 => LogLevel::Info,
        _ => LogLevel::Error,
    };
    // SAFETY: the header: it is ended by NUL, and valid during the call.
    let line = unsafe { CStr::from_ptr(line) };
    // nothing may unwind into the library
    let _ = std::panic::catch_unwind(|| log(level, &line.to_string_lossy()));
}

/// Where this module was loaded from.
fn own_path() -> std::path::PathBuf {
    let mut info = libc::Dl_info {
        dli_fname: ptr::null(),
        dli_fbase: ptr::null_mut(),
        dli_sname: ptr::null(),
        dli_saddr: ptr::null_mut(),
    };
    let here = own_path as *const c_void;
    // SAFETY: any address may be asked for; a name that is found lasts as long as the
    // module.
    unsafe {
        if libc::dladdr(here, &raw mut info) == 0 || info.dli_fname.is_null() {
            return NAME.into();
        }
        Path::new(OsStr::from_bytes(CStr::from_ptr(info.dli_fname).to_bytes())).into()
    }
}

/// # Safety
/// The library is open.
unsafe fn function(library: *mut c_void, name: &CStr) -> Result<*mut c_void, String> {
    // SAFETY: the function's contract.
    let found = unsafe { libc::dlsym(library, name.as_ptr()) };
    match found.is_null() {
        true => Err(format!("there is no store: {}", why_not())),
        false => Ok(found),
    }
}

/// What the last call of the linker has to say.
fn why_not() -> String {
    // SAFETY: it is ended by NUL, and there until the thread's next call.
    unsafe {
        let error = libc::dlerror();
        match error.is_null() {
            true => "the system does not say why".into(),
            false => CStr::from_ptr(error).to_string_lossy().into_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::mem::offset_of;

    use super::{Config, ABI};

    #[test]
    fn it_is_called_as_its_header_says() {
        use sszip_owner::ffi::{sszip_owner_config as Its, SSZIP_OWNER_ABI};
        assert_eq!(ABI, SSZIP_OWNER_ABI);
        assert_eq!(size_of::<Config>(), size_of::<Its>());
        macro_rules! same {
            ($($field:ident)*) => {$(
                assert_eq!(offset_of!(Config, $field), offset_of!(Its, $field), stringify!($field));
            )*};
        }
        same!(size socket socket_len path path_len max_size memory max_entry threads);
        same!(idle_timeout flush_interval inactive no_recompress heads heads_len);
    }
}
