//! The chart: peaks, zoom, tooltip, legend, keys.

use serde_json::json;

use crate::tab::{DESKTOP, Tab};
use crate::written::tiny;

const PLOT: &str = ".plot.chart";

/// The events that are seen, from and to.
fn view(tab: &mut Tab) -> (f64, f64) {
    let plot = "document.querySelector('.plot.chart').dataset";
    (tab.number(&format!("{plot}.from")), tab.number(&format!("{plot}.to")))
}

fn cursor(tab: &mut Tab) -> f64 {
    tab.number("document.querySelector('.plot.chart').getAttribute('aria-valuenow')")
}

/// The bytes at the uppermost pixel that has the colour of the series with this number.
fn drawn_peak(tab: &mut Tab, series: usize) -> f64 {
    tab.number(&format!(
        "(() => {{
            const plot = document.querySelector('.plot.chart');
            const canvas = plot.querySelector('canvas');
            const context = canvas.getContext('2d');
            const probe = document.createElement('canvas').getContext('2d');
            probe.fillStyle = styled('--series-{series}');
            probe.fillRect(0, 0, 1, 1);
            const [red, green, blue] = probe.getImageData(0, 0, 1, 1).data;
            const {{ data, width, height }} = context.getImageData(0, 0, canvas.width, canvas.height);
            const inner = canvas.clientHeight - EDGE.top - EDGE.bottom;
            for (let y = 0; y < height; y += 1) {{
                let same = 0;
                for (let x = EDGE.left; x < width - EDGE.right; x += 1) {{
                    const at = 4 * (y * width + x);
                    same += Math.abs(data[at] - red) + Math.abs(data[at + 1] - green) + Math.abs(data[at + 2] - blue) < 40;
                }}
                if (same > 0) return (1 - (y - EDGE.top) / inner) * plot.dataset.top;
            }}
            return 0;
        }})()"
    ))
}

#[test]
fn the_peaks_are_those_of_the_report() {
    let written = tiny();
    let Some(mut tab) = Tab::open(&written.page, DESKTOP) else { return };
    let shown = tab.number("document.querySelector('.entry.live b').dataset.peakBytes");
    assert_eq!(shown, written.peak_live_bytes());
    for allocator in ["pool", "direct", "bestfit", "torch", "arena"] {
        let shown = tab.number(&format!(
            "document.querySelector('.entry[data-name={allocator}] b').dataset.peakBytes"
        ));
        assert_eq!(shown, written.figure(allocator, "peak_reserved_bytes"), "{allocator}");
    }
    let text = tab.text("document.querySelector('.entry[data-name=bestfit] b').textContent");
    let gib = written.figure("bestfit", "peak_reserved_bytes") / f64::from(1 << 30);
    assert_eq!(text, format!("{gib:.2} GiB"));
    tab.close();
}

/// Not only what is written beside it: the line itself.
#[test]
fn the_line_reaches_the_peak() {
    let written = tiny();
    let Some(mut tab) = Tab::open(&written.page, DESKTOP) else { return };
    for (series, allocator) in [(0, "pool"), (2, "bestfit"), (3, "torch")] {
        let top = tab.number("document.querySelector('.plot.chart').dataset.top");
        let peak = written.figure(allocator, "peak_reserved_bytes");
        let drawn = drawn_peak(&mut tab, series);
        // The dot on the peak is 3 pixels high above it, of 268.
        assert!((drawn - peak).abs() < top * 5.0 / 268.0, "{allocator}: {drawn}, not {peak}");
    }
    tab.screenshot("chart.png");
    tab.close();
}

#[test]
fn dragging_the_wheel_keys_and_buttons_zoom() {
    let Some(mut tab) = Tab::open(&tiny().page, DESKTOP) else { return };
    let all = view(&mut tab);
    assert_eq!(all, (0.0, 2534.0));
    tab.drag(PLOT, 0.4, 0.6);
    let (from, to) = view(&mut tab);
    assert!(from > 700.0 && to < 1800.0 && to - from > 400.0, "{from} to {to}");
    tab.mouse("mouseWheel", PLOT, 0.5, 0.5, json!({"deltaX": 0, "deltaY": -240}));
    tab.frame();
    let wheeled = view(&mut tab);
    assert!(wheeled.0 >= from && wheeled.1 <= to && wheeled.1 - wheeled.0 < to - from);
    tab.evaluate("document.querySelector('.plot.chart').focus()");
    tab.key("+", false);
    let closer = view(&mut tab);
    assert!(closer.1 - closer.0 < 0.6 * (wheeled.1 - wheeled.0), "{closer:?} of {wheeled:?}");
    tab.screenshot("zoomed.png");
    tab.key("ArrowRight", true);
    assert!(view(&mut tab).0 > closer.0);
    tab.key("-", false);
    let wider = view(&mut tab);
    assert!(wider.1 - wider.0 > closer.1 - closer.0);
    tab.key("0", false);
    assert_eq!(view(&mut tab), all);
    tab.click("button[aria-label='Zoom in']");
    assert!(view(&mut tab).1 - view(&mut tab).0 < 1400.0);
    tab.click("button[aria-label='Show all events']");
    assert_eq!(view(&mut tab), all);
    let shown = tab.text("document.querySelector('.range').textContent");
    assert_eq!(shown, "All 2,534 events");
    tab.close();
}

#[test]
fn the_tooltip_has_the_figures_of_the_moment() {
    let written = tiny();
    let Some(mut tab) = Tab::open(&written.page, DESKTOP) else { return };
    let chart = &written.data()["sections"][1]["parts"][0];
    tab.drag(PLOT, 0.5, 0.52);
    tab.point(PLOT, 0.5, 0.4);
    assert_eq!(tab.text("document.querySelector('.plot.chart .tooltip').hidden"), "false");
    let event = tab.number("document.querySelector('.plot.chart .tooltip').dataset.from");
    assert_eq!(event, tab.number("document.querySelector('.plot.chart .tooltip').dataset.to"));
    // What the data says of that event, summed up here.
    let value = |series: &serde_json::Value| {
        let least = series["least"].as_array().unwrap().iter().map(|d| d.as_i64().unwrap());
        let least: i64 = least.take(event as usize + 1).sum();
        (least as f64, least as f64 + series["above"][event as usize].as_f64().unwrap())
    };
    let mut expected = vec![("live", value(&chart["live"]))];
    for (number, name) in [(0, "pool"), (1, "direct"), (2, "bestfit"), (3, "torch")] {
        expected.push((name, value(&chart["reserved"][number])));
    }
    for (name, (least, most)) in expected {
        let row = format!("document.querySelector('.tooltip tr[data-name={name}]').dataset");
        let shown = (tab.number(&format!("{row}.least")), tab.number(&format!("{row}.most")));
        assert_eq!(shown, (least, most), "{name} at event {event}");
    }
    let shown = tab.text("document.querySelector('.tooltip p').textContent");
    assert_eq!(shown.replace(',', ""), format!("event {event}"));
    tab.screenshot("tooltip.png");
    // Away from the chart it is gone.
    tab.point("h1", 0.1, 0.5);
    assert_eq!(tab.text("document.querySelector('.plot.chart .tooltip').hidden"), "true");
    tab.close();
}

#[test]
fn the_legend_switches_allocators() {
    let written = tiny();
    let Some(mut tab) = Tab::open(&written.page, DESKTOP) else { return };
    let top = |tab: &mut Tab| tab.number("document.querySelector('.plot.chart').dataset.top");
    let before = top(&mut tab);
    // It has eighteen times what is live, and would flatten the others.
    let arena = ".entry[data-name=arena]";
    let pressed =
        |tab: &mut Tab| tab.text(&format!("document.querySelector('{arena}').ariaPressed"));
    assert_eq!(pressed(&mut tab), "false");
    assert!(before < written.figure("arena", "peak_reserved_bytes"));
    tab.click(arena);
    assert_eq!(pressed(&mut tab), "true");
    assert!(top(&mut tab) > written.figure("arena", "peak_reserved_bytes"));
    tab.click(arena);
    assert_eq!(top(&mut tab), before);
    assert!(drawn_peak(&mut tab, 2) > 0.0);
    tab.click(".entry[data-name=bestfit]");
    assert_eq!(drawn_peak(&mut tab, 2), 0.0);
    tab.close();
}

#[test]
fn keys_move_the_moment_and_tell_it() {
    let written = tiny();
    let Some(mut tab) = Tab::open(&written.page, DESKTOP) else { return };
    tab.evaluate("document.querySelector('.plot.chart').focus()");
    let peak = written.data()["sections"][1]["parts"][0]["live"]["peak_event"].as_f64().unwrap();
    assert_eq!(cursor(&mut tab), peak);
    tab.key("Home", false);
    assert_eq!(cursor(&mut tab), 0.0);
    tab.key("ArrowRight", false);
    assert_eq!(cursor(&mut tab), 25.0);
    tab.key("End", false);
    assert_eq!(cursor(&mut tab), 2533.0);
    tab.key("PageUp", false);
    assert_eq!(cursor(&mut tab), 2533.0 - 250.0);
    let told = tab.text("document.querySelector('.plot.chart').ariaValueText");
    assert!(told.starts_with("Event 2,283: live ") && told.contains("pool "), "{told}");
    assert_eq!(tab.text("document.querySelector('.plot.chart .tooltip').hidden"), "false");
    tab.click("button[aria-label='Go to the peak of what is live']");
    assert_eq!(cursor(&mut tab), peak);
    tab.close();
}
