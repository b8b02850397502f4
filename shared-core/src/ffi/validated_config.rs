//! The configuration of a host as a whole: its directives, blocks, routes and
//! store.

use std::sync::Arc;

use super::config::{
    borrow_strings, core_directive_name, free_boxed_object, sszip_config, sszip_route_settings,
    PROCESS,
};
use super::panic::{
    borrow, borrow_mut, borrow_sized, catch_panic_status, check_results, write_result,
};
use super::types::{sszip_status, sszip_str};
use crate::config::files;
use crate::config::fleet::FleetSettings;
use crate::config::head_sources::NamespaceSource;
use crate::config::setting_error::replace_setting_names_by_directives;
use crate::config::upstreams::{RouteUpstreamIdentity, UpstreamGroups};
use crate::config::validated::{HostRouteDeclaration, ValidatedConfig};
use crate::config::{DirectiveLocation, RouteConfig, RouteConfigBlock};

/// A whole configuration: the directives of each block, and the inherited
/// settings of each route.
#[derive(Default)]
pub struct sszip_validated_config {
    pub(super) plan: ValidatedConfig,
    blocks: Vec<RouteConfigBlock>,
    #[allow(clippy::vec_box)] // the host has pointers to them
    pub(super) configs: Vec<Box<sszip_config>>,
    upstreams: UpstreamGroups,
    /// Prefix of folders that are not absolute; other files have
    /// `file_prefix`.
    prefix: Vec<u8>,
    file_prefix: Vec<u8>,
    /// Text of the last call: an error or a warning.
    message: String,
    /// Folder, socket, data, heads and fleet of a store, and the owner's
    /// address; each ends with NUL after the check.
    store: [String; 5],
    owner: String,
}

/// A directive of the configuration.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct sszip_directive {
    /// `sizeof(sszip_directive)`, so that the struct may grow.
    pub size: usize,
    /// Name, as in docs/directives.md.
    pub name: sszip_str,
    /// Arguments of the directive.
    pub values: *const sszip_str,
    /// Number of arguments.
    pub nvalues: usize,
    /// File that contains the directive.
    pub file: sszip_str,
    /// Line of the directive in the file.
    pub line: usize,
}

/// A route, after all its directives were read.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct sszip_route {
    /// `sizeof(sszip_route)`, so that the struct may grow.
    pub size: usize,
    /// Name of the route, for messages.
    pub name: sszip_str,
    /// Argument of its directive `cache_namespace`; NULL `data`: it has none.
    pub name_space: sszip_str,
    /// The namespace contains variables, so that it differs from request to
    /// request.
    pub per_request: bool,
    /// The host handles requests on the route itself; the route is not only a
    /// container of inner routes.
    pub handles_requests: bool,
    /// The route accepts purges.
    pub purges: bool,
    /// URL of the upstream as the configuration names it; NULL `data`: the
    /// route has none, or it differs from request to request.
    pub url: sszip_str,
    /// Response headers that the host's own configuration hides from clients
    /// on this route. Inner routes do not inherit them.
    pub hidden: *const sszip_str,
    /// Number of hidden headers.
    pub nhidden: usize,
    /// Maximum length of a request body that the host keeps in memory, in
    /// bytes; 0: only its other limits apply.
    pub body_buffer: u64,
    /// Upstream requests use HTTP/1.0.
    pub is_http_1_0: bool,
}

/// The host's own store. A number that is 0 means the owner's default. The
/// strings are NUL-terminated; `len` does not count the NUL.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct sszip_store {
    /// Folder of the store, an absolute path. One owner at a time may use it.
    pub folder: sszip_str,
    /// Path of the owner's socket in the folder.
    pub socket: sszip_str,
    /// Path of the database in the folder.
    pub data: sszip_str,
    /// Maximum size on disk, in bytes.
    pub max_size: u64,
    /// Maximum size of the entries in the owner's memory, in bytes.
    pub memory: u64,
    /// Maximum length of one entry, in bytes.
    pub max_entry: u64,
    /// Time without a request after which an entry is removed, in
    /// milliseconds.
    pub inactive: u64,
    /// Entries are not recompressed before they are written to disk.
    pub no_recompress: bool,
    /// Head sources that the owner follows, in the owner's format. Contains
    /// secrets.
    pub heads: sszip_str,
    /// Fleet through which the owner shares entries, in the owner's format;
    /// empty: none. Contains secrets.
    pub fleet: sszip_str,
}

/// Creates an empty configuration. Folders that are not absolute are relative
/// to `prefix`, other files to `file_prefix`. The host owns the configuration,
/// and ends it with `sszip_validated_config_free`.
///
/// # Safety
/// The strings are valid; `out` points at memory of its type.
#[no_mangle]
pub unsafe extern "C" fn sszip_validated_config_new(
    prefix: sszip_str,
    file_prefix: sszip_str,
    out: *mut *mut sszip_validated_config,
) -> sszip_status {
    catch_panic_status(|| {
        check_results!(out);
        // SAFETY: the function's contract.
        let (prefix, file_prefix) = unsafe { (prefix.borrow_bytes(), file_prefix.borrow_bytes()) };
        let config = sszip_validated_config {
            prefix: prefix.to_vec(),
            file_prefix: file_prefix.to_vec(),
            ..sszip_validated_config::default()
        };
        write_result!(out, Box::into_raw(Box::new(config)));
        sszip_status::SSZIP_STATUS_OK
    })
}

/// Adds a directive to the block `*block`; 0: a new block, whose number is
/// written to `*block` on `SSZIP_STATUS_OK`.
///
/// Writes a text for the operator to `text`, which continues the directive's
/// name: on `SSZIP_STATUS_OK` a warning, or an empty string; on
/// `SSZIP_STATUS_INVALID` the error and the accepted values, and the
/// configuration is unchanged. The text is valid until the next call for
/// `config`.
///
/// # Safety
/// `config` is NULL or valid; `block` points at a number of one of its blocks
/// or 0; `directive` is NULL or valid with all that it points at; `text`
/// points at memory of its type.
#[no_mangle]
pub unsafe extern "C" fn sszip_validated_config_set(
    config: *mut sszip_validated_config,
    block: *mut usize,
    directive: *const sszip_directive,
    text: *mut sszip_str,
) -> sszip_status {
    catch_panic_status(|| {
        check_results!(text);
        let config = borrow_mut!(config);
        let block = borrow_mut!(block);
        let directive = borrow_sized!(directive);
        // SAFETY: the function's contract.
        let values = unsafe { borrow_strings(directive.values, directive.nvalues) };
        // SAFETY: the function's contract.
        let (name, file) =
            unsafe { (directive.name.borrow_bytes(), directive.file.borrow_bytes()) };
        let at = format!("{}:{}", String::from_utf8_lossy(file), directive.line);
        let mut number = *block;
        let set = config.set_directive(&mut number, core_directive_name(name), &values, &at);
        if set.is_ok() {
            *block = number;
        }
        // SAFETY: the function's contract.
        unsafe { config.return_operator_text(set, text) }
    })
}

/// Adds a route with the directives of the block `*block`, which inherits
/// further directives from the block `outer`. Either number may be 0, for a
/// block without directives. On `SSZIP_STATUS_OK` writes the settings of the
/// route to `settings` and, if `*block` is 0, the number of a new block to
/// `*block`. The struct is the host's; `settings->config` is valid until
/// `sszip_validated_config_free`.
///
/// Writes a text for the operator to `text`: on `SSZIP_STATUS_OK` a warning,
/// or an empty string; on `SSZIP_STATUS_INVALID` the error with its position
/// in the configuration. The text is valid until the next call for `config`.
///
/// # Errors
/// `SSZIP_STATUS_MISUSE`: `config` has no block of that number.
///
/// # Safety
/// `config` is NULL or valid; `block` points at memory of its type; `route` is
/// NULL or valid with all that it points at; the results point at memory of
/// their type.
#[no_mangle]
pub unsafe extern "C" fn sszip_validated_config_add_route(
    config: *mut sszip_validated_config,
    block: *mut usize,
    outer: usize,
    route: *const sszip_route,
    settings: *mut sszip_route_settings,
    text: *mut sszip_str,
) -> sszip_status {
    catch_panic_status(|| {
        check_results!(settings, text);
        let config = borrow_mut!(config);
        let block = borrow_mut!(block);
        let route = borrow_sized!(route);
        // SAFETY: the function's contract.
        let hidden = unsafe { borrow_strings(route.hidden, route.nhidden) };
        // SAFETY: the function's contract.
        let (name, name_space) =
            unsafe { (route.name.borrow_bytes(), route.name_space.borrow_bytes()) };
        // SAFETY: the function's contract.
        let url = (!route.url.data.is_null()).then(|| unsafe { route.url.borrow_bytes() });
        let mut number = *block;
        let Some(mut route_config) = config.resolve_route_settings(&mut number, outer, &hidden)
        else {
            return sszip_status::SSZIP_STATUS_MISUSE;
        };
        route_config.destination = RouteUpstreamIdentity::new(name, url, &config.upstreams);
        let route = HostRouteDeclaration {
            name: &format!("location \"{}\"", String::from_utf8_lossy(name)),
            named: match (route.per_request, route.name_space.data.is_null()) {
                (true, _) => NamespaceSource::PerRequest,
                (false, true) => NamespaceSource::Derived,
                (false, false) => NamespaceSource::Fixed(name_space),
            },
            handles_requests: route.handles_requests,
            purges: route.purges,
            body_buffer: (route.body_buffer > 0).then_some(route.body_buffer),
            is_http_1_0: route.is_http_1_0,
        };
        let added = config.plan.validate_and_add_route(&route_config, route);
        let added = added
            .map(|text| text.map(|text| replace_setting_names_by_directives(&text)))
            .map_err(|error| replace_setting_names_by_directives(&error));
        if added.is_ok() {
            let route_config = Box::new(sszip_config(Arc::new(route_config)));
            write_result!(settings, sszip_route_settings::from_config(&route_config));
            config.configs.push(route_config);
            *block = number;
        }
        // SAFETY: the function's contract.
        unsafe { config.return_operator_text(added, text) }
    })
}

/// Adds a named group of servers, which the `url` of a route may refer to by
/// this name.
///
/// # Safety
/// `config` is NULL or valid; `servers` are `nservers` valid strings, and
/// `name` is one.
#[no_mangle]
pub unsafe extern "C" fn sszip_validated_config_add_upstream(
    config: *mut sszip_validated_config,
    name: sszip_str,
    servers: *const sszip_str,
    nservers: usize,
) -> sszip_status {
    catch_panic_status(|| {
        let config = borrow_mut!(config);
        // SAFETY: the function's contract.
        let (name, servers) = unsafe { (name.borrow_bytes(), borrow_strings(servers, nservers)) };
        config
            .upstreams
            .add_upstream_group(name, servers.into_iter());
        sszip_status::SSZIP_STATUS_OK
    })
}

/// Validates the configuration as a whole, after all its parts were added.
/// Writes a text for the operator to `text`: on `SSZIP_STATUS_OK` a warning, or
/// an empty string; on `SSZIP_STATUS_INVALID` the error. The text is valid
/// until the next call for `config`.
///
/// # Safety
/// `config` is NULL or valid; `text` points at memory of its type.
#[no_mangle]
pub unsafe extern "C" fn sszip_validated_config_check(
    config: *mut sszip_validated_config,
    text: *mut sszip_str,
) -> sszip_status {
    catch_panic_status(|| {
        check_results!(text);
        let config = borrow_mut!(config);
        let checked = config.check_config().map(|()| {
            let mut warnings = config.plan.cross_route_warnings();
            warnings.extend(config.plan.fleet_warnings());
            (!warnings.is_empty())
                .then(|| replace_setting_names_by_directives(&warnings.join("; ")))
        });
        let checked = checked.map_err(|error| replace_setting_names_by_directives(&error));
        // SAFETY: the function's contract.
        unsafe { config.return_operator_text(checked, text) }
    })
}

/// Returns the address of the owner of a store, after
/// `sszip_validated_config_check`: "unix:" and a path, NUL-terminated; empty:
/// there is no owner. Valid until `sszip_validated_config_free`, or another
/// `sszip_validated_config_check`.
///
/// # Safety
/// `config` is NULL or valid.
#[no_mangle]
pub unsafe extern "C" fn sszip_validated_config_owner_socket(
    config: *const sszip_validated_config,
) -> sszip_str {
    // SAFETY: the function's contract.
    let config = unsafe { config.as_ref() };
    config.map_or(sszip_str::ABSENT, |config| {
        strip_nul_terminator(&config.owner)
    })
}

/// Returns the host's own store and the settings of its owner, after
/// `sszip_validated_config_check`. The struct is the host's; its strings are
/// valid until `sszip_validated_config_free`, or another
/// `sszip_validated_config_check`.
///
/// # Errors
/// `SSZIP_STATUS_MISUSE`: the configuration has no store.
///
/// # Safety
/// `config` is NULL or valid; `out` points at memory of its type.
#[no_mangle]
pub unsafe extern "C" fn sszip_validated_config_store(
    config: *const sszip_validated_config,
    out: *mut sszip_store,
) -> sszip_status {
    catch_panic_status(|| {
        check_results!(out);
        let config = borrow!(config);
        let Some(own) = &config.plan.store else {
            return sszip_status::SSZIP_STATUS_MISUSE;
        };
        let [folder, socket, data, heads, fleet] = config
            .store
            .each_ref()
            .map(|text| strip_nul_terminator(text));
        write_result!(
            out,
            sszip_store {
                folder,
                socket,
                data,
                max_size: own.max_size.unwrap_or(0),
                memory: own.memory.unwrap_or(0),
                max_entry: config.plan.largest_entry_limit(),
                inactive: own.inactive.unwrap_or(0),
                no_recompress: own.recompress == Some(false),
                heads,
                fleet,
            }
        );
        sszip_status::SSZIP_STATUS_OK
    })
}

/// Frees a configuration, every `sszip_config` of it, and all its results.
/// Exchanges that were created with them continue.
///
/// # Safety
/// `config` is NULL or valid, and is not used after the call.
#[no_mangle]
pub unsafe extern "C" fn sszip_validated_config_free(config: *mut sszip_validated_config) {
    // SAFETY: the function's contract.
    unsafe { free_boxed_object(config) }
}

impl sszip_validated_config {
    /// Returns the block of that number; 0: a new block. `None`: there is no
    /// such block.
    fn find_or_add_config_block(&mut self, number: &mut usize) -> Option<&mut RouteConfigBlock> {
        if *number == 0 {
            self.blocks.push(RouteConfigBlock::default());
            *number = self.blocks.len();
        }
        self.blocks.get_mut(*number - 1)
    }

    /// Adds a directive, and returns a warning for the operator, if there is
    /// one.
    fn set_directive(
        &mut self,
        block: &mut usize,
        name: &str,
        values: &[&[u8]],
        at: &str,
    ) -> Result<Option<String>, String> {
        let prefix = String::from_utf8_lossy(match name {
            "cache_fleet" => &self.file_prefix,
            _ => &self.prefix,
        });
        if let Some(set) =
            self.plan
                .set_global_directive_at(name, values, &prefix, DirectiveLocation { at })
        {
            set.map_err(|error| replace_setting_names_by_directives(&error.to_string()))?;
            if name == "cache_path" {
                // a store whose folder cannot be used is removed from the plan
                let store = self.plan.store.take();
                let folder = store.as_ref().map(|store| &store.folder);
                folder.map_or(Ok(()), |folder| files::validate_store_folder(folder))?;
                self.plan.store = store;
            }
            return Ok(None);
        }
        let values = files::resolve_ca_files(name, values, &self.file_prefix)?;
        let values: Vec<&[u8]> = values.iter().map(|value| &**value).collect();
        let directives = self
            .find_or_add_config_block(block)
            .ok_or("is not in a configuration block")?;
        let set = directives.set_directive_with_location(name, &values, DirectiveLocation { at });
        set.map_err(|error| error.to_string())?;
        let warning = directives.take_directive_warning();
        Ok(warning.map(|warning| replace_setting_names_by_directives(&warning)))
    }

    /// Returns the settings of a route; `None`: there is no such block.
    fn resolve_route_settings(
        &mut self,
        block: &mut usize,
        outer: usize,
        hidden: &[&[u8]],
    ) -> Option<RouteConfig> {
        let outer = match outer {
            0 => RouteConfigBlock::default(),
            number => self.blocks.get(number - 1)?.clone(),
        };
        let directives = self.find_or_add_config_block(block)?;
        directives.inherit_unset_from(&outer);
        directives.set_hidden_headers(hidden.iter().copied());
        Some(directives.resolve_route_config(PROCESS.clone()))
    }

    /// Checks the settings of all routes together, and stores the texts that the host reads, each
    /// with a NUL.
    fn check_config(&mut self) -> Result<(), String> {
        self.upstreams.share_groups_with_routes();
        self.plan.check_across_routes()?;
        if let Some(own) = &self.plan.store {
            let heads = self.plan.follows.to_json();
            let fleet = self.plan.fleet.as_ref();
            let texts = [
                own.folder.clone(),
                own.owner_socket_path(),
                own.store_data_folder(),
                heads,
                fleet.map_or_else(String::new, FleetSettings::to_json),
            ];
            self.store = texts.map(|text| text + "\0");
        }
        let owner = self.plan.owner_socket();
        self.owner = owner.map_or_else(String::new, |socket| format!("unix:{socket}\0"));
        Ok(())
    }

    /// Keeps the text of a call, an error or a warning, and writes it to `text`.
    ///
    /// # Safety
    /// `text` is NULL or points at memory of its type.
    unsafe fn return_operator_text(
        &mut self,
        result: Result<Option<String>, String>,
        text: *mut sszip_str,
    ) -> sszip_status {
        let status = match result {
            Ok(_) => sszip_status::SSZIP_STATUS_OK,
            Err(_) => sszip_status::SSZIP_STATUS_INVALID,
        };
        self.message = result.unwrap_or_else(Some).unwrap_or_default();
        write_result!(text, sszip_str::from_bytes(self.message.as_bytes()));
        status
    }
}

/// Returns a text as a string of the C ABI, without the NUL that ends it.
fn strip_nul_terminator(text: &str) -> sszip_str {
    sszip_str::from_bytes(text.strip_suffix('\0').unwrap_or(text).as_bytes())
}
