//! PyTorch's caching allocator against what PyTorch did, and what only it can do.

mod addresses;
mod policy;
