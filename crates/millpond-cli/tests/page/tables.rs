//! Tables, and who wins where.

use crate::tab::{DESKTOP, PHONE, Tab};
use crate::written::{TRACE, compare, replay, tiny};

/// The first column, from top to bottom.
const NAMES: &str =
    "[...document.querySelectorAll('.table-card tbody th')].map((cell) => cell.textContent).join()";

#[test]
fn tables_are_sorted_by_any_column() {
    let written = tiny();
    let Some(mut tab) = Tab::open(&written.page, DESKTOP) else { return };
    assert_eq!(tab.text(NAMES), "as recorded,pool,direct,bestfit,torch,arena");
    tab.click(".table-card thead th:nth-child(2) button");
    let sorted = tab.text(NAMES);
    assert!(sorted.starts_with("direct,pool,") && sorted.ends_with(",arena"), "{sorted}");
    // By keys, too, and the other way round.
    tab.evaluate("document.querySelector('.table-card thead th:nth-child(2) button').focus()");
    tab.key("Enter", false);
    assert!(tab.text(NAMES).starts_with("arena,"));
    let order = "document.querySelector('.table-card thead th:nth-child(2)').ariaSort";
    assert_eq!(tab.text(order), "descending");
    // What is missing comes last either way: what was recorded was not measured here.
    for _ in 0..2 {
        tab.click(".table-card thead th:nth-child(5) button");
        assert!(tab.text(NAMES).ends_with(",as recorded"));
    }
    tab.close();
}

#[test]
fn figures_say_where_they_come_from() {
    let Some(mut tab) = Tab::open(&tiny().page, DESKTOP) else { return };
    let headings = tab.text(
        "[...document.querySelectorAll('.table-card thead th')].map((cell) => cell.innerText.replace(/\\s+/g, ' ')).join('|')",
    );
    for part in ["Per call ns measured", "In the driver ms modelled", "counted"] {
        assert!(headings.contains(part), "{part} in {headings}");
    }
    // Nobody looked for the smallest device: no column for it.
    assert!(!headings.contains("Fits in"), "{headings}");
    tab.close();
}

#[test]
fn the_best_of_each_row_is_marked() {
    let written = tiny();
    let Some(mut tab) = Tab::open(&written.page, DESKTOP) else { return };
    let best =
        tab.number("document.querySelector('.matrix tr:nth-child(1) td.best').dataset.value");
    assert_eq!(best, written.figure("direct", "peak_reserved_bytes"));
    tab.close();
}

#[test]
fn several_traces_are_compared_by_one_measure_at_a_time() {
    let small = concat!(env!("CARGO_MANIFEST_DIR"), "/../millpond/tests/data/small_p4.pickle");
    // With so little memory somebody runs out, and does not win by it.
    let written =
        replay("two", &[TRACE, small, "--allocator", "pool,torch", "--capacity", "2400MiB"]);
    assert!(written.json["traces"][0]["results"][1]["oom"].is_string());
    let Some(mut tab) = Tab::open(&written.page, DESKTOP) else { return };
    let cells = "[...document.querySelectorAll('.matrix tbody tr')].map((row) => row.innerText.replace(/\\s+/g, ' ')).join('|')";
    let first = tab.text(cells);
    assert!(first.starts_with("gpt_tiny") && first.contains("ran out|small_p4"), "{first}");
    tab.click(".choice button:nth-child(4)");
    assert_ne!(tab.text(cells), first);
    assert_eq!(
        tab.text("document.querySelector('.choice button:nth-child(4)').ariaPressed"),
        "true"
    );
    let told = tab.text("document.querySelector('.table-card .warning').textContent");
    assert!(told.starts_with("torch stopped at event "), "{told}");
    let legend = tab.text("document.querySelector('.entry[data-name=torch]').textContent");
    assert!(legend.ends_with("ran out"), "{legend}");
    // The small one is of two devices.
    assert_eq!(tab.number("document.querySelectorAll('.chart-card').length"), 3.0);
    tab.screenshot("two.png");
    tab.close();
}

/// A comparison has scenarios where a replay has traces, and says what follows.
#[test]
fn comparisons_are_pages_too() {
    let arguments =
        ["--scenario", "interleaved,tight-memory", "--allocator", "pool,bestfit,async,arena,torch"];
    let written = compare("compare", &arguments);
    let Some(mut tab) = Tab::open(&written.page, DESKTOP) else { return };
    let scenarios = "[...document.querySelectorAll('.matrix tbody th')].map((cell) => cell.innerText.split(' ')[0]).join()";
    assert_eq!(tab.text(scenarios), "interleaved,tight-memory");
    let text = tab.text("document.body.innerText");
    let advice = written.json["advice"][0]["why"].as_str().expect("a text");
    for part in
        [advice, "ran out", "Ranking", "The seeds' figures beside ours", "modelled", "measured"]
    {
        assert!(text.contains(part), "{part} in {text}");
    }
    assert!(text.contains("measured + modelled"), "what a time is made of is said: {text}");
    // On a phone why something is advised is read without scrolling to the side.
    tab.resize(PHONE);
    tab.frame();
    let edge = "Math.max(...[...document.querySelectorAll('.texts td')].map((cell) => cell.getBoundingClientRect().right))";
    assert!(tab.number(edge) <= 360.0, "ends at {}", tab.number(edge));
    tab.close();
}
