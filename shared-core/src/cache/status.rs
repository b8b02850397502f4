//! Cache status of responses.

named_enum! {
    /// The result of the cache for one response, hit, miss or other: `$sszip_cache_status` in
    /// nginx.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    CacheStatus
    /// The route has no cache, or the request is not one for a cache.
    #[default]
    None "",
    /// The request was not looked up: its response could not be stored.
    Bypass "BYPASS",
    /// The entry was not found.
    Miss "MISS",
    /// The entry was stale, and the node has confirmed it.
    Revalidated "REVALIDATED",
    /// The entry was stale, and was served because the node failed.
    Stale "STALE",
    /// The entry was stale, and was served while another request updates it.
    Updating "UPDATING",
    /// The entry was found.
    Hit "HIT",
}
