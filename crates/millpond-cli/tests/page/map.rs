//! The memory map at a moment.

use crate::tab::{DESKTOP, Tab};
use crate::written::{Written, tiny};

fn summary(tab: &mut Tab, key: &str) -> f64 {
    tab.number(&format!("document.querySelector('.map-summary').dataset.{key}"))
}

/// Bytes and number of the blocks that are live after an event, by the data of the page.
fn live_at(written: &Written, allocator: usize, event: u64) -> (f64, f64) {
    let map = &written.data()["sections"][1]["parts"][0]["maps"][allocator];
    let list = |key: &str| -> Vec<u64> {
        map[key].as_array().unwrap().iter().map(|value| value.as_u64().unwrap()).collect()
    };
    let (bytes, lasts) = (list("bytes"), list("lasts"));
    let mut from = 0;
    let (mut sum, mut count) = (0, 0);
    for (block, after) in list("from").into_iter().enumerate() {
        from += after;
        if from <= event && event < from + lasts[block] {
            sum += bytes[block];
            count += 1;
        }
    }
    (sum as f64, f64::from(count))
}

#[test]
fn it_shows_what_is_live_at_the_moment() {
    let written = tiny();
    let Some(mut tab) = Tab::open(&written.page, DESKTOP) else { return };
    // All blocks of so short a trace are kept, so at the peak all that is live is drawn.
    assert_eq!(summary(&mut tab, "drawnBytes"), written.peak_live_bytes());
    let said = tab.text("document.querySelector('.map-summary').textContent");
    assert!(said.starts_with("pool: ") && said.ends_with(" 100 % of what is live."), "{said}");
    for x in [0.2, 0.7] {
        tab.drag(".plot.chart", x, x);
        let event = summary(&mut tab, "event");
        let shown = (summary(&mut tab, "drawnBytes"), summary(&mut tab, "drawnBlocks"));
        assert_eq!(shown, live_at(written, 0, event as u64), "event {event}");
        let said = tab.text("document.querySelector('.map canvas').ariaLabel");
        assert!(said.starts_with("Memory map after event "), "{said}");
    }
    tab.screenshot("map.png");
    tab.close();
}

#[test]
fn another_allocator_and_another_moment_can_be_chosen() {
    let written = tiny();
    let Some(mut tab) = Tab::open(&written.page, DESKTOP) else { return };
    tab.evaluate(
        "(() => { const select = document.querySelector('.map-card select'); select.value = 3; select.dispatchEvent(new Event('change')); })()",
    );
    let said = tab.text("document.querySelector('.map-summary').textContent");
    assert!(said.starts_with("torch: "), "{said}");
    let note = tab.text("document.querySelector('.map-card > .help').textContent");
    assert!(note.contains(" of addresses, all at which torch ever put a block"), "{note}");
    // The slider is the chart's cursor, by keys, too.
    tab.evaluate("document.querySelector('.map-card input').focus()");
    let before = summary(&mut tab, "event");
    tab.key("ArrowRight", false);
    assert_eq!(summary(&mut tab, "event"), before + 1.0);
    let cursor = "document.querySelector('.plot.chart').ariaValueNow";
    assert_eq!(tab.number(cursor), before + 1.0);
    assert_eq!(summary(&mut tab, "drawnBytes"), live_at(written, 3, before as u64 + 1).0);
    tab.close();
}

#[test]
fn a_block_says_what_it_is() {
    let Some(mut tab) = Tab::open(&tiny().page, DESKTOP) else { return };
    tab.point(".plot.map canvas", 0.01, 0.02);
    let said = tab.text("document.querySelector('.plot.map .tooltip').textContent");
    assert!(said.contains("0x1"), "{said}");
    tab.close();
}

/// The history shows the events that the chart does, and a click there chooses the moment, too.
#[test]
fn the_history_goes_with_the_chart() {
    let Some(mut tab) = Tab::open(&tiny().page, DESKTOP) else { return };
    let cursor = "document.querySelector('.plot.chart').ariaValueNow";
    tab.click(".plot.history canvas");
    let middle = tab.number(cursor);
    assert!((1000.0..1500.0).contains(&middle), "{middle}");
    assert_eq!(summary(&mut tab, "event"), middle);
    tab.drag(".plot.chart", 0.8, 0.9);
    tab.click(".plot.history canvas");
    let later = tab.number(cursor);
    assert!((2000.0..2400.0).contains(&later), "{later}");
    tab.close();
}
