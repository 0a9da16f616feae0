//! Text from outside that would command a terminal, break a line or end a script: the program shows it and does not pass it on.

use std::path::{Path, PathBuf};
use std::process::Output;

use serde_json::Value;

use crate::run::{command, stdout};
use crate::terminal::Terminal;

const DATA: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../millpond/tests/data/");

/// Each with letters around it, so that it can be told from what the program writes itself.
const HOSTILE: [&str; 14] = [
    "z\u{1b}[2Jz",
    "z\u{1b}[35;7mz",
    "z\u{1b}]0;t\u{7}z",
    "z\u{7}z",
    "z\rz",
    "z\u{8}z",
    "z\u{7f}z",
    "z\u{9b}2Jz",
    "z\u{85}z",
    "z\u{202e}z",
    "z\u{2066}z",
    "z\u{200b}z",
    "z\u{2028}z",
    "z\nz",
];
const TAME: &str = "zztame";

/// All of them in one name.
fn hostile() -> String {
    format!("zz{}", HOSTILE.concat())
}

/// Whether a character does more to a terminal than to stand where it is. Written down once more, for the program's own list is on trial.
fn commands(letter: char) -> bool {
    match letter {
        '\n' | '\t' => false,
        '\u{ad}' | '\u{61c}' | '\u{feff}' => true,
        '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' => true,
        other => other < ' ' || ('\u{7f}'..='\u{9f}').contains(&other),
    }
}

#[track_caller]
fn assert_tame(text: &[u8], of: &str) {
    let text = str::from_utf8(text).unwrap();
    let found = text.find(commands);
    assert_eq!(found, None, "{of}: {:?}", found.map(|place| &text[place..]));
}

/// Standard output and standard error after another.
fn said(output: &Output) -> Vec<u8> {
    [&output.stdout[..], &output.stderr].concat()
}

fn lines(output: &Output) -> [usize; 2] {
    [&output.stdout, &output.stderr].map(|text| text.iter().filter(|byte| **byte == b'\n').count())
}

/// A folder of a test's own.
fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("hostile-{name}"));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

/// The commands with `@` as a name that is hostile and as one that is not: both end alike and take as many lines.
#[track_caller]
fn compare_with_tame(folder: &Path, variables: &[(&str, &str)], arguments: &[&str]) -> Output {
    let run = |name: &str| {
        let arguments: Vec<_> = arguments.iter().map(|part| part.replace('@', name)).collect();
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let variables = variables.iter().map(|(key, value)| (key, value.replace('@', name)));
        command(&arguments).envs(variables).current_dir(folder).output().unwrap()
    };
    let (tame, hostile) = (run(TAME), run(&hostile()));
    let of = format!("{variables:?} {arguments:?}");
    assert_tame(&said(&hostile), &of);
    let text = String::from_utf8_lossy;
    assert_eq!(
        (hostile.status.code(), lines(&hostile)),
        (tame.status.code(), lines(&tame)),
        "{of}: {}{}\n{}{}",
        text(&hostile.stdout),
        text(&hostile.stderr),
        text(&tame.stdout),
        text(&tame.stderr)
    );
    hostile
}

#[test]
fn wrong_arguments_are_shown_and_not_obeyed() {
    let folder = folder("arguments");
    let trace = &format!("{DATA}framed.pickle.gz");
    let cases: &[&[&str]] = &[
        &["@"],
        &["--@"],
        &["devices", "@"],
        &["devices", "--@"],
        &["devices", "--json=/nowhere/@"],
        &["devices", "--device", "@"],
        &["devices", "--device", "sim:@"],
        &["devices", "--device", "sim:/nowhere/@.toml"],
        &["devices", "--device", "cuda:@"],
        &["allocators", "@"],
        &["bench", "--allocator", "@"],
        &["bench", "--workload", "@"],
        &["bench", "--device", "@"],
        &["replay", "@"],
        &["replay", "@.csv"],
        &["replay", trace, "--allocator", "@"],
        &["replay", trace, "--allocator", "pool:@=1"],
        &["replay", trace, "--allocator", "pool:slack=@"],
        &["replay", trace, "--allocator", "@/pool"],
        &["replay", trace, "--allocator", "trace:/nowhere/@.csv/direct"],
        &["replay", trace, "--device", "@"],
        &["replay", trace, "--capacity", "@"],
        &["replay", trace, "--addresses", "@"],
        &["replay", trace, "--allocator", "direct", "--quick", "--html", "/nowhere/@"],
        &["replay", trace, "--allocator", "direct", "--quick", "--json=/nowhere/@"],
        &["replay", trace, "--allocator", "direct", "--snapshot", "/nowhere/@"],
        &["recommend", "@"],
        &["recommend", trace, "--device", "@"],
        &["explain", "@"],
        &["explain", trace, "--at", "@"],
        &["explain", trace, "--allocator", "@"],
        &["convert", trace, "@"],
        &["convert", "@", "x.csv"],
        &["convert", trace, "x", "--to", "@"],
        &["convert", trace, "/nowhere/@.csv"],
        &["compare", "--scenario", "@"],
        &["compare", "--allocator", "@"],
        &["compare", "--device", "@"],
        &["compare", "--seed", "@"],
        &["share", "@"],
        &["share", "simulate", "--job", "@"],
        &["share", "simulate", "--job", "@=1"],
        &["share", "simulate", "--job", "bytes=@"],
        &["share", "simulate", "--device", "@"],
        &["share", "run", "--weight", "@", "--", "true"],
        &["share", "status", "--dir", "/nowhere/@"],
        &["share", "serve", "--quantum", "@"],
        &["share", "serve", "--metrics", "@"],
        &["share", "set", "@"],
        &["share", "set", "memory-limit", "@"],
        &["share", "set", "--dir", "/nowhere/@", "off"],
        &["completions", "@"],
        &["man", "--dir", "/nowhere/@"],
    ];
    for arguments in cases {
        let refused = compare_with_tame(&folder, &[], arguments);
        assert_eq!(refused.status.code(), Some(2), "{arguments:?}");
        let text = String::from_utf8(refused.stderr).unwrap();
        // `--metrics` says what can be given, and clap what was.
        assert!(text.contains(r"z\u{1b}[2Jz"), "{arguments:?}: {text}");
    }
    let run = ["share", "run", "--", "/nowhere/@"];
    compare_with_tame(&folder, &[("MILLPOND_HOOK", DATA)], &run);
    compare_with_tame(&folder, &[("MILLPOND_HOOK", "/nowhere/@")], &run);
    compare_with_tame(&folder, &[("MILLPOND_DEVICE", "@")], &["devices"]);
    compare_with_tame(&folder, &[("MILLPOND_LIBCUDA", "/nowhere/@")], &["devices"]);
    compare_with_tame(&folder, &[("MILLPOND_SHARE_DIR", "/nowhere/@")], &["share", "status"]);
    compare_with_tame(&folder, &[("MILLPOND_SHARE_DIR", "@")], &["share", "status", "--help"]);
}

#[test]
fn profiles_are_shown_and_not_obeyed() {
    let folder = folder("profiles");
    let toml = |name: &str| Value::from(name).to_string();
    for name in [TAME.to_owned(), hostile()] {
        let string = millpond_text::shown_json(&toml(&name)).into_owned();
        let write = |file: &str, text: String| {
            std::fs::write(folder.join(format!("{name}.{file}.toml")), text).unwrap();
        };
        write("title", format!("base = 'p100-16g'\ntitle = {string}\n"));
        write("base", format!("base = {string}\n"));
        write("key", format!("base = 'p100-16g'\n[memory]\n{string} = '8GiB'\n"));
        write("table", format!("base = 'p100-16g'\n[{string}]\nx = 1\n"));
        write("value", format!("base = 'p100-16g'\n[memory]\ncapacity = {string}\n"));
        write("source", format!("base = 'p100-16g'\n[sources]\nmemory = {string}\n"));
        // No string of TOML at all; the parser quotes the line.
        write("broken", format!("base = {}\n", name.replace('\n', "")));
        write("bare", format!("base = 'p100-16g'\n{} = 1\n", name.replace('\n', "")));
    }
    for file in ["base", "key", "table", "value", "broken", "bare"] {
        let device = format!("sim:{}/@.{file}.toml", folder.display());
        let refused = compare_with_tame(&folder, &[], &["devices", "--device", &device]);
        assert_eq!(refused.stdout, b"", "{file}");
    }
    let device = format!("sim:{}/@.title.toml", folder.display());
    let shown = compare_with_tame(&folder, &[], &["devices", "--device", &device]);
    assert!(stdout(&shown).starts_with(r"zzz\u{1b}[2Jz"));
    compare_with_tame(&folder, &[("MILLPOND_DEVICE", &device)], &["devices"]);
    let json = compare_with_tame(&folder, &[], &["devices", "--device", &device, "--json"]);
    let report: Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!(report["devices"][0]["title"], hostile());
    // The device's name is among what reports say below their tables.
    let trace = &format!("{DATA}framed.pickle.gz");
    let quick = ["replay", trace, "--allocator", "direct", "--quick", "--device", &device];
    assert!(stdout(&compare_with_tame(&folder, &[], &quick)).contains(r"z\u{2028}z"));
    let small = ["--jobs", "1", "--bytes", "1GB", "--work", "1s"];
    let simulate = [&["share", "simulate", "--device", &device], &small[..]].concat();
    assert!(stdout(&compare_with_tame(&folder, &[], &simulate)).contains(r"z\u{2028}z"));
    let compare = ["compare", "--scenario", "churn", "--allocator", "direct", "--device", &device];
    assert!(stdout(&compare_with_tame(&folder, &[], &compare)).contains(r"z\u{2028}z"));
}

/// The snapshot with call stacks, in which one text is another of the same length.
fn snapshot_with(path: &Path, replaced: &[(&str, &str)]) {
    use std::io::Read;
    let packed = std::fs::File::open(format!("{DATA}framed.pickle.gz")).unwrap();
    let mut bytes = Vec::new();
    flate2::read::GzDecoder::new(packed).read_to_end(&mut bytes).unwrap();
    for (before, after) in replaced {
        let filled = format!("{after}{}", "x".repeat(before.len() - after.len()));
        let mut found = 0;
        for at in 0..bytes.len() - before.len() {
            if bytes[at..].starts_with(before.as_bytes()) {
                bytes[at..at + before.len()].copy_from_slice(filled.as_bytes());
                found += 1;
            }
        }
        assert!(found > 0, "the snapshot has no {before}");
    }
    std::fs::write(path, bytes).unwrap();
}

const FILE: &str = "/home/user/job/model.py";
const FUNCTION: &str = "feed_forward";

#[test]
fn frames_and_names_of_traces_are_shown_and_not_obeyed() {
    let folder = folder("traces");
    for (number, &piece) in HOSTILE.iter().enumerate() {
        let frame = |name: &str| {
            let snapshot = format!("{number}{name}.pickle");
            let replaced = [(FILE, name), (FUNCTION, name)];
            snapshot_with(&folder.join(&snapshot), &replaced);
            snapshot
        };
        // As long, so that nothing else differs.
        let (tame, hostile) = (frame(&"y".repeat(piece.chars().count())), frame(piece));
        for at in [["--at", "peak"], ["--at", "30"]] {
            let run = |trace: &str| {
                let arguments = [&["explain", trace], &at[..]].concat();
                command(&arguments).current_dir(&folder).output().unwrap()
            };
            let shown = run(&hostile);
            assert_tame(&said(&shown), piece);
            assert_eq!(lines(&shown), lines(&run(&tame)), "{piece:?}");
            assert!(stdout(&shown).contains(&*millpond_text::shown_in_line(piece)), "{piece:?}");
        }
        // Through a file of Millpond's own, and as JSON, the frame is what it was.
        let compact = format!("{number}{piece}.mptrace");
        let convert = command(&["convert", &hostile, &compact, "--json"])
            .current_dir(&folder)
            .output()
            .unwrap();
        let report: Value = serde_json::from_str(&stdout(&convert)).unwrap();
        assert_eq!(report["files"][0], compact);
        let explain =
            command(&["explain", &compact, "--json"]).current_dir(&folder).output().unwrap();
        assert_tame(&explain.stdout, piece);
        let report: Value = serde_json::from_str(&stdout(&explain)).unwrap();
        let frames = report["by_frame"].as_array().unwrap().iter();
        let frames: Vec<&str> = frames.map(|of| of["frame"].as_str().unwrap()).collect();
        assert!(frames.iter().any(|frame| frame.starts_with(piece)), "{frames:?}");
        assert!(frames.iter().any(|frame| frame.contains(&format!(" {piece}"))), "{frames:?}");
    }
}

#[test]
fn traces_that_are_wrong_inside_are_shown_and_not_obeyed() {
    let folder = folder("wrong");
    let commands: [&[&str]; 4] = [&["replay"], &["recommend"], &["explain"], &["convert"]];
    for piece in HOSTILE.map(|piece| &piece[1..piece.len() - 1]) {
        // Of each kind of text in a snapshot: keys, actions, states, settings.
        for word in ["device_traces", "free_completed", "active_allocated", "segment_type"] {
            let path = folder.join("wrong.pickle");
            snapshot_with(&path, &[(word, piece)]);
            for arguments in commands {
                let mut arguments = arguments.to_vec();
                arguments.push("wrong.pickle");
                arguments.extend((arguments[0] == "convert").then_some("out.csv"));
                let output = command(&arguments).current_dir(&folder).output().unwrap();
                assert_tame(&said(&output), &format!("{word} {arguments:?}"));
            }
        }
    }
    let rows = |name: &str| {
        let header = "Thread,Time,Action,Pointer,Size,Stream\n";
        [
            format!("{name}\n1,0:0:0.1,allocate,0x10,5,0x0\n"),
            format!("{header}{name},0:0:0.1,allocate,0x10,5,0x0\n"),
            format!("{header}1,{name},allocate,0x10,5,0x0\n"),
            format!("{header}1,0:0:0.1,{name},0x10,5,0x0\n"),
            format!("{header}1,0:0:0.1,allocate,{name},5,0x0\n"),
            format!("{header}1,0:0:0.1,allocate,0x10,{name},0x0\n"),
            format!("{header}1,0:0:0.1,allocate,0x10,5,{name}\n"),
        ]
    };
    let names = [TAME.to_owned(), hostile(), hostile().replace('\n', "")];
    let [tame, hostile, in_one_line] = names.map(|name| rows(&name));
    for (log, tame) in hostile.iter().zip(&tame).chain(in_one_line.iter().zip(&tame)) {
        for arguments in commands {
            let run = |text: &str| {
                std::fs::write(folder.join("log.csv"), text).unwrap();
                let mut arguments = arguments.to_vec();
                arguments.push("log.csv");
                arguments.extend((arguments[0] == "convert").then_some("out.mptrace"));
                command(&arguments).current_dir(&folder).output().unwrap()
            };
            let (shown, tame) = (run(log), run(tame));
            assert_tame(&said(&shown), log);
            if shown.status.code() == tame.status.code() {
                assert_eq!(lines(&shown)[1], lines(&tame)[1], "{log:?} {arguments:?}");
            }
        }
    }
}

#[test]
fn file_names_stay_in_their_line_and_come_back_from_json_and_pages() {
    let folder = folder("names");
    for name in [TAME.to_owned(), hostile()] {
        std::fs::copy(format!("{DATA}framed.pickle.gz"), folder.join(format!("{name}.pickle.gz")))
            .unwrap();
    }
    let stack = "trace:@.log.csv/direct";
    let replay = ["replay", "@.pickle.gz", "--allocator", stack, "--quick"];
    let shown = stdout(&compare_with_tame(&folder, &[], &replay));
    assert!(shown.starts_with(r"zzz\u{1b}[2Jz") && shown.contains(r"log.csv/direct"), "{shown}");
    let small = [&replay[..], &["--capacity", "64MiB"]].concat();
    let shown = compare_with_tame(&folder, &[], &small);
    assert_eq!(shown.status.code(), Some(1));
    assert!(String::from_utf8(shown.stdout).unwrap().contains("stopped at"));
    let whole = [&replay[..], &["--json", "--html", "@.html"]].concat();
    let json = compare_with_tame(&folder, &[], &whole);
    let report: Value = serde_json::from_str(&stdout(&json)).unwrap();
    assert_eq!(report["traces"][0]["trace"], hostile());
    let allocator = report["traces"][0]["results"][0]["allocator"].as_str().unwrap();
    assert!(allocator.contains(&hostile()), "{allocator:?}");
    let read = |name: &str| std::fs::read(folder.join(format!("{name}.html"))).unwrap();
    let (page, tame) = (read(&hostile()), read(TAME));
    assert_tame(&page, "page");
    let scripts = |page: &[u8]| String::from_utf8_lossy(page).matches("</script").count();
    assert_eq!(scripts(&page), scripts(&tame));

    for arguments in [
        &["explain", "@.pickle.gz"][..],
        &["explain", "@.pickle.gz", "--allocator", stack],
        &["recommend", "@.pickle.gz"],
        &["convert", "@.pickle.gz", "@.csv"],
        &["convert", "@.pickle.gz", "@.pickle.gz"],
        &["replay", "@.pickle.gz", "--addresses", "recorded", "--allocator", "direct", "--quick"],
    ] {
        let shown = compare_with_tame(&folder, &[], arguments);
        let text = String::from_utf8(said(&shown)).unwrap();
        assert!(text.contains(r"zzz\u{1b}[2Jz"), "{arguments:?}: {text}");
    }
}

/// Without what the program itself tells a terminal: colours and the progress bar's way back to the beginning of its line.
fn without_own_sequences(screen: &str) -> String {
    let mut rest = screen;
    let mut left = String::new();
    while let Some((before, after)) = rest.split_once("\u{1b}[") {
        left += before;
        let end = after.find(|letter: char| !letter.is_ascii_digit() && letter != ';').unwrap();
        let sequence = &after[..=end];
        let is_own = matches!(sequence, "2K" | "K") || sequence.ends_with(['m', 'A', 'B']);
        assert!(is_own, "{sequence:?} in {screen:?}");
        rest = &after[end + 1..];
    }
    (left + rest).replace("\r\n", "\n").replace('\r', "")
}

#[test]
fn on_a_terminal_too() {
    let folder = folder("terminal");
    let name = format!("{}.pickle", hostile());
    for piece in HOSTILE {
        snapshot_with(&folder.join(&name), &[(FILE, piece), (FUNCTION, piece)]);
        for (arguments, shows) in [
            (&["explain", &name][..], "WHERE"),
            (&["replay", &name, "--allocator", "pool,direct", "--quick"], "RESERVED"),
            (&["replay", &name, "--allocator", &hostile()], "millpond: "),
            (&["devices", &hostile()], "error: "),
        ] {
            let screen = Terminal::start(command(arguments).current_dir(&folder), 160, 40).whole();
            assert!(screen.contains(shows), "{screen}");
            for piece in HOSTILE {
                assert!(!screen.contains(piece), "{piece:?} in {screen:?}");
                assert!(!screen.contains(&piece.replace('\n', "\r\n")), "{screen:?}");
            }
            assert_tame(without_own_sequences(&screen).as_bytes(), shows);
        }
    }
}
