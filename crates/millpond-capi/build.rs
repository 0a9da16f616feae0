//! What the linker is told.

fn main() {
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libmillpond.so.0");
    // Its own calls stay its own, whatever a program puts before it.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-Bsymbolic");
    // Once loaded it stays: threads that have used it have something of its to do when they end, and so has a fork.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
