//! The core, its C ABI (`shared-core/include/sszip.h`) and the allocator of an nginx process,
//! as one static library.

use sszip_core::allocator::ReserveAllocator;
pub use sszip_core::ffi;

#[global_allocator]
static ALLOCATOR: ReserveAllocator = ReserveAllocator;
