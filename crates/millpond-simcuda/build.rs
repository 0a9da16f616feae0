//! Every function of the public headers exists: those that no source file here defines answer "not supported".

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;
use std::{env, fs};

struct Name<'a> {
    symbol: &'a str,
    name: &'a str,
    version: u32,
    per_thread: bool,
}

fn main() {
    let root = env::var("CARGO_MANIFEST_DIR").expect("cargo sets it");
    let abi = Path::new(&root).join("src/abi");
    let table = Path::new(&root).join("names.tsv");
    for path in [&abi, &table] {
        println!("cargo::rerun-if-changed={}", path.display());
    }
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libcuda.so.1");
    // Its own calls stay its own, whatever a program puts before it.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-Bsymbolic");

    let text = fs::read_to_string(table).expect("names.tsv is part of the crate");
    let names: Vec<Name> = text.lines().filter(|line| !line.starts_with('#')).map(parse).collect();
    let defined = defined_in(&abi);
    let known: BTreeSet<&str> = names.iter().map(|name| name.symbol).collect();
    for symbol in &defined {
        assert!(known.contains(symbol.as_str()), "{symbol} is in no header (names.tsv)");
    }
    let out = Path::new(&env::var("OUT_DIR").expect("cargo sets it")).join("names.rs");
    fs::write(out, generated(&names, &known, &defined)).expect("OUT_DIR can be written");
}

fn parse(line: &str) -> Name<'_> {
    let fields: Vec<&str> = line.split('\t').collect();
    let [symbol, name, version, stream] = fields[..] else { panic!("names.tsv: {line}") };
    let version = version.parse().expect("a version is a number");
    Name { symbol, name, version, per_thread: stream != "-" }
}

/// The functions that files under `src/abi` define: `fn cuX(` or `fn cuX / cuX_ptsz(`.
fn defined_in(directory: &Path) -> BTreeSet<String> {
    let mut defined = BTreeSet::new();
    for entry in fs::read_dir(directory).expect("src/abi is part of the crate") {
        let text = fs::read_to_string(entry.expect("can be listed").path()).expect("can be read");
        for line in text.lines() {
            let Some(rest) = line.trim_start().strip_prefix("fn cu") else { continue };
            let Some((names, _)) = rest.split_once('(') else { continue };
            let mut names = names.split(" / ");
            defined.extend(names.next().map(|name| format!("cu{}", name.trim())));
            defined.extend(names.map(|name| name.trim().to_owned()));
        }
    }
    defined
}

fn generated(names: &[Name], known: &BTreeSet<&str>, defined: &BTreeSet<String>) -> String {
    let mut code = String::new();
    for symbol in known.iter().filter(|symbol| !defined.contains(**symbol)) {
        let _ = writeln!(
            code,
            "#[unsafe(no_mangle)] extern \"C\" fn {symbol}() -> i32 {{ crate::entry::not_supported({symbol:?}) }}"
        );
    }
    code.push_str("unsafe extern \"C\" {\n");
    for symbol in defined {
        let _ = writeln!(code, "fn {symbol}();");
    }
    code.push_str("}\n#[doc(hidden)] pub(crate) static NAMES: &[Name] = &[\n");
    for Name { symbol, name, version, per_thread } in names {
        let function = if defined.contains(*symbol) {
            format!("Function(({symbol}) as *const ())")
        } else {
            format!("Function(({symbol} as extern \"C\" fn() -> i32) as *const ())")
        };
        let _ = writeln!(
            code,
            "Name {{ name: {name:?}, version: {version}, per_thread: {per_thread}, function: {function} }},"
        );
    }
    code.push_str("];\n");
    code
}
