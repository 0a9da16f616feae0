//! What the linker is told.

fn main() {
    // The C ABI is in here, too: its own calls stay its own, whatever else of Millpond a program has loaded.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-Bsymbolic");
    // Once loaded it stays: threads that have used it have something of its to do when they end.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
