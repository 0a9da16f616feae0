//! Text from outside, written so that a terminal shows it and does not obey it.
//!
//! Names of files, devices and programs, frames of traces and the messages of parsers come from outside. A terminal takes control
//! characters in them for commands, and characters without a width of their own reorder or hide what is beside them. Everything that is
//! printed goes through [`shown`] or [`shown_in_line`], which write these characters as numbers:
//!
//! ```
//! use millpond_text::{shown, shown_in_line};
//!
//! assert_eq!(shown("train.py:7 \u{1b}[2J"), r"train.py:7 \u{1b}[2J");
//! assert_eq!(shown("two\nlines"), "two\nlines");
//! assert_eq!(shown_in_line("two\nlines \u{202e}"), r"two\nlines \u{202e}");
//! ```

use std::borrow::Cow;
use std::fmt::Write as _;
use std::io::Write as _;

/// Whether a character does something other than to stand where it is written: a control character other than a line's end and a tab,
/// a separator of lines or paragraphs, or one of Unicode's format characters (category Cf), among them those that change the direction
/// of text.
pub fn is_commanding(letter: char) -> bool {
    match letter {
        '\n' | '\t' => false,
        '\u{00ad}'
        | '\u{0600}'..='\u{0605}'
        | '\u{061c}'
        | '\u{06dd}'
        | '\u{070f}'
        | '\u{0890}'..='\u{0891}'
        | '\u{08e2}'
        | '\u{180e}'
        | '\u{200b}'..='\u{200f}'
        | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}'
        | '\u{feff}'
        | '\u{fff9}'..='\u{fffb}'
        | '\u{110bd}'
        | '\u{110cd}'
        | '\u{13430}'..='\u{1343f}'
        | '\u{1bca0}'..='\u{1bca3}'
        | '\u{1d173}'..='\u{1d17a}'
        | '\u{e0000}'..='\u{e007f}' => true,
        other => other.is_control(),
    }
}

/// The text with [commanding](is_commanding) characters as `\u{…}`. Lines and tabs stay.
pub fn shown(text: &str) -> Cow<'_, str> {
    written(text, is_commanding)
}

/// The same in one line, for names and messages: an end of a line in them is `\n`, so that none of them can pass for two.
pub fn shown_in_line(text: &str) -> Cow<'_, str> {
    written(text, |letter| letter == '\n' || is_commanding(letter))
}

/// Writes a line to standard error. It stays one line, whatever is in it, and comes in one write, so that lines of several threads and
/// processes stay whole. Where no reader is left, it is dropped.
pub fn say(line: &str) {
    let line = format!("{}\n", shown_in_line(line));
    let _ = std::io::stderr().write_all(line.as_bytes());
}

fn written(text: &str, is_replaced: impl Fn(char) -> bool) -> Cow<'_, str> {
    let Some(first) = text.find(&is_replaced) else { return Cow::Borrowed(text) };
    let (before, rest) = text.split_at(first);
    let mut shown = before.to_owned();
    for letter in rest.chars() {
        match letter {
            '\n' if is_replaced('\n') => shown.push_str("\\n"),
            letter if is_replaced(letter) => {
                write!(shown, "\\u{{{:x}}}", u32::from(letter)).expect("a string takes everything");
            }
            letter => shown.push(letter),
        }
    }
    Cow::Owned(shown)
}

/// JSON with [commanding](is_commanding) characters as `\u…`, which every reader of JSON turns back into them. What is given must be JSON: these
/// characters stand in its texts only.
pub fn shown_json(json: &str) -> Cow<'_, str> {
    let Some(first) = json.find(is_commanding) else { return Cow::Borrowed(json) };
    let (before, rest) = json.split_at(first);
    let mut shown = before.to_owned();
    for letter in rest.chars() {
        if is_commanding(letter) {
            let mut units = [0; 2];
            for unit in letter.encode_utf16(&mut units) {
                write!(shown, "\\u{unit:04x}").expect("a string takes everything");
            }
        } else {
            shown.push(letter);
        }
    }
    Cow::Owned(shown)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOSTILE: [char; 14] = [
        '\0',
        '\u{7}',
        '\u{8}',
        '\r',
        '\u{1b}',
        '\u{7f}',
        '\u{80}',
        '\u{9b}',
        '\u{9f}',
        '\u{202e}',
        '\u{2066}',
        '\u{200f}',
        '\u{feff}',
        '\u{e0041}',
    ];

    #[test]
    fn nothing_that_commands_is_left() {
        for letter in HOSTILE {
            let text = format!("a{letter}b");
            for shown in [shown(&text), shown_in_line(&text), shown_json(&text)] {
                assert!(!shown.contains(is_commanding), "{shown:?}");
                assert!(shown.starts_with('a') && shown.ends_with('b') && shown.len() > 4);
            }
        }
    }

    #[test]
    fn what_can_be_read_stays_as_it_is() {
        for text in ["", "plain", "äöü – 中文 – 🦀 – x²", "a\tb\nc"] {
            assert!(matches!(shown(text), Cow::Borrowed(same) if same == text));
        }
        assert_eq!(shown_in_line("a\n\u{9b}31m"), r"a\n\u{9b}31m");
    }

    #[test]
    fn json_keeps_its_meaning() {
        assert_eq!(
            shown_json("{\n  \"a\": \"\u{9b}\u{e0041}\"\n}"),
            "{\n  \"a\": \"\\u009b\\udb40\\udc41\"\n}"
        );
    }
}
