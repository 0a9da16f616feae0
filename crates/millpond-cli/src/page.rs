//! `--html FILE`: results as one self-contained page.
//!
//! ```text
//!   replay, compare, ──► Page: sections of charts, matrices, tables, ──► JSON ───┐
//!   share simulate       timelines                                               │
//!                        page/template.html, style.css, script/*.js ─────────────┴──► FILE
//! ```
//!
//! What a command found becomes a [`Page`], which is data only: what is drawn and how is the script's. The page asks the network for nothing, and
//! says so to the browser, too (its content security policy).

mod chart;
mod figure;
mod matrix;
mod table;
mod timeline;

use std::path::Path;

use anyhow::{Context, Result};
use millpond_text::{shown_in_line, shown_json};
use serde::Serialize;

pub(crate) use self::chart::{Chart, Watched};
pub(crate) use self::figure::Figure;
pub(crate) use self::matrix::{Matrix, MatrixCell, Measure};
pub(crate) use self::table::{Cell, Column, Row, Table};
pub(crate) use self::timeline::{Kind, Line, Timeline};

const TEMPLATE: &str = include_str!("page/template.html");
const STYLE: &str = include_str!("page/style.css");
/// In this order they are one script.
const SCRIPTS: [&str; 10] = [
    include_str!("page/script/element.js"),
    include_str!("page/script/unit.js"),
    include_str!("page/script/theme.js"),
    include_str!("page/script/table.js"),
    include_str!("page/script/matrix.js"),
    include_str!("page/script/map.js"),
    include_str!("page/script/history.js"),
    include_str!("page/script/chart.js"),
    include_str!("page/script/timeline.js"),
    include_str!("page/script/page.js"),
];

/// Everything on a page.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Page {
    /// What it is about: heading and title of the window.
    pub(crate) title: String,
    /// One line below: on what device, with what settings.
    pub(crate) subtitle: String,
    /// How to read it all, a paragraph each; at the page's end.
    pub(crate) notes: Vec<String>,
    /// What is shown, from top to bottom.
    pub(crate) sections: Vec<Section>,
}

/// A part of the page with a heading, and an entry in the list of contents.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Section {
    /// Its heading.
    pub(crate) title: String,
    /// One line below.
    pub(crate) subtitle: String,
    /// What is to be known of it all, a paragraph each; below the subtitle.
    pub(crate) notes: Vec<String>,
    /// What is in it, from top to bottom.
    pub(crate) parts: Vec<Part>,
}

/// One thing to look at.
#[derive(Debug, Serialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub(crate) enum Part {
    /// Live and reserved bytes over events, and where blocks lay.
    Chart(Chart),
    /// Who wins where.
    Matrix(Matrix),
    /// Rows that can be sorted.
    Table(Table),
    /// Who did what when.
    Timeline(Timeline),
}

/// What a number counts, which decides how it is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Unit {
    /// No number at all.
    Text,
    /// Bytes, written in MiB or GiB.
    Bytes,
    /// A whole number.
    Count,
    /// A quotient, with three decimals.
    Ratio,
    /// Nanoseconds.
    Ns,
    /// Milliseconds.
    Ms,
}

/// Where a figure comes from. The page says it wherever the figure is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Origin {
    /// A name, or the like: no figure.
    Given,
    /// Counted exactly: the same each time, where the allocator's decisions are.
    Counted,
    /// Measured on the machine that wrote the page, and noisy like it.
    Measured,
    /// From a device's profile: what a real one would be expected to take.
    Modelled,
    /// A part is measured, the rest modelled.
    Mixed,
}

/// Which of several numbers is the best.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Better {
    /// The least.
    Less,
    /// None: it is for information.
    Neither,
}

impl Page {
    /// Writes the page to a file.
    pub(crate) fn write(&self, path: &Path) -> Result<()> {
        std::fs::write(path, self.render()?)
            .with_context(|| format!("cannot write '{}'", path.display()))
    }

    /// The page as text.
    pub(crate) fn render(&self) -> Result<String> {
        let data = in_script(&shown_json(&serde_json::to_string(self)?));
        let script = SCRIPTS.concat();
        let parts = [
            ("title", in_markup(&self.title)),
            ("style", STYLE.to_owned()),
            ("data", data),
            ("script", script),
        ];
        let (mut page, mut rest) = (String::new(), TEMPLATE);
        // One pass, so that nothing that is put in can be taken for a place to put something.
        while let Some((before, after)) = rest.split_once("{{") {
            let (name, after) = after.split_once("}}").context("the template has an open brace")?;
            let part = parts.iter().find(|part| part.0 == name);
            page += before;
            page += &part.with_context(|| format!("the template wants '{name}'"))?.1;
            rest = after;
        }
        Ok(page + rest)
    }
}

/// A whole number with commas between thousands.
pub(crate) fn grouped(number: usize) -> String {
    let digits = number.to_string();
    let groups = digits.as_bytes().rchunks(3).rev();
    let groups: Vec<_> = groups.map(|group| String::from_utf8_lossy(group)).collect();
    groups.join(",")
}

/// JSON that can stand inside a script element: no text in it can end the element or begin another.
fn in_script(json: &str) -> String {
    let mut safe = String::with_capacity(json.len());
    for letter in json.chars() {
        match letter {
            // In JSON these stand in texts only, where they can be written as numbers.
            '<' | '>' | '&' => {
                safe += &format!("\\u{:04x}", u32::from(letter));
            }
            other => safe.push(other),
        }
    }
    safe
}

/// Text that can stand inside an element.
fn in_markup(text: &str) -> String {
    shown_in_line(text).replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_texts_stay_texts() {
        let hostile = "</script><script>alert(1)</script><!-- {{style}} \u{2028} \u{1b}[2J \u{9b} \u{202e} &amp; \"'";
        let page = Page { title: hostile.to_owned(), ..Page::default() };
        let text = page.render().unwrap();
        assert_eq!(text.matches("</script").count(), TEMPLATE.matches("</script").count());
        assert!(!text.contains("alert(1)</") && !text.contains("<!--"));
        assert!(!text.contains(millpond_text::is_commanding));
        let begin = text.find("application/json\">").unwrap() + "application/json\">".len();
        let json = &text[begin..begin + text[begin..].find("</script").unwrap()];
        let data: serde_json::Value = serde_json::from_str(json).unwrap();
        assert_eq!(data["title"], hostile);
    }

    #[test]
    fn thousands_are_grouped() {
        let grouped = [0, 999, 1000, 1_234_567].map(grouped);
        assert_eq!(grouped, ["0", "999", "1,000", "1,234,567"]);
    }

    #[test]
    fn nothing_is_fetched() {
        let text = Page::default().render().unwrap();
        for word in ["http://", "https://", " src=", "@import", "url(", "fetch("] {
            assert!(!text.contains(word), "{word}");
        }
        assert!(text.contains("default-src 'none'"));
    }
}
