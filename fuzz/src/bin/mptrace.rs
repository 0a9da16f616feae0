//! A trace in Millpond's own format, whose checksums are not compared here.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| millpond_fuzz::read_trace(bytes));
