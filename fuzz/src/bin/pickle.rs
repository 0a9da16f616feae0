//! A memory snapshot of PyTorch's.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| millpond_fuzz::read_trace(bytes));
