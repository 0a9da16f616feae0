//! A page of a million events: as small and as quick as any, and its one peak is there.

use crate::tab::{DESKTOP, Tab};
use crate::written::{folder, log_with_spike, replay};

const EVENTS: u64 = 1_000_000;
const SPIKE: u64 = 654_322;
const SPIKE_BYTES: u64 = 300 << 20;

#[test]
fn a_million_events_are_a_page_like_any_other() {
    let log = folder().join("million.csv");
    log_with_spike(&log, EVENTS, SPIKE, SPIKE_BYTES);
    let allocators = "direct,bestfit:initial_bytes=64MiB";
    let written = replay("million", &[log.to_str().unwrap(), "--allocator", allocators, "--quick"]);
    std::fs::remove_file(log).unwrap();
    assert_eq!(written.json["traces"][0]["events"], EVENTS);
    let bytes = std::fs::metadata(&written.page).unwrap().len();
    assert!(bytes < 1_000_000, "{bytes} bytes");
    let chart = &written.data()["sections"][1]["parts"][0];
    assert_eq!(chart["live"]["peak_bytes"], SPIKE_BYTES);
    assert_eq!(chart["live"]["peak_event"], SPIKE);
    assert!(chart["live"]["least"].as_array().unwrap().len() <= 4096);
    assert!(chart["maps"][0]["offset"].as_array().unwrap().len() <= 4096);

    let Some(mut tab) = Tab::open(&written.page, DESKTOP) else { return };
    let view = "document.querySelector('.plot.chart').dataset";
    // The peak is seen from afar …
    assert!(tab.number(&format!("{view}.top")) >= SPIKE_BYTES as f64);
    tab.screenshot("million.png");
    // … and from near: the moment is the peak's, and stays in view.
    tab.evaluate("document.querySelector('.plot.chart').focus()");
    for _ in 0..16 {
        tab.key("+", false);
    }
    let (from, to) = (tab.number(&format!("{view}.from")), tab.number(&format!("{view}.to")));
    assert!(from <= SPIKE as f64 && SPIKE as f64 <= to && to - from < 20.0, "{from} to {to}");
    let most = tab.number("document.querySelector('.tooltip tr[data-name=live]').dataset.most");
    assert_eq!(most, SPIKE_BYTES as f64);
    tab.close();
}
