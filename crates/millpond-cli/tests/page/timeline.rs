//! The timeline of a simulation.

use crate::tab::{DESKTOP, Tab};
use crate::written::simulate;

#[test]
fn a_timeline_says_who_did_what_when() {
    let written = simulate("simulated", &["--work", "20s", "--quantum", "5s"]);
    let Some(mut tab) = Tab::open(&written.page, DESKTOP) else { return };
    tab.frame();
    let wall = written.json["wall_ms"].as_f64().unwrap() / 1e3;
    let shown = |tab: &mut Tab| {
        ["from", "to"].map(|end| {
            tab.number(&format!("Number(document.querySelector('.timeline').dataset.{end})"))
        })
    };
    let [from, to] = shown(&mut tab);
    assert_eq!(from, 0.0);
    assert!((to - wall).abs() < 0.01, "{to} {wall}");
    // At the beginning one computes and the other waits.
    tab.point(".timeline", 0.1, 0.3);
    let said = tab.text("document.querySelector('.timeline-card .readout').textContent");
    assert!(said.contains("computes") && said.contains("waits"), "{said}");
    // Less time is shown with every click, and all of it again with the last button.
    tab.click(".timeline-card .buttons button:nth-child(2)");
    tab.frame();
    let [from, to] = shown(&mut tab);
    assert!(to - from < 0.51 * wall, "{from} {to}");
    tab.click(".timeline-card .buttons button:last-child");
    tab.frame();
    let [from, to] = shown(&mut tab);
    assert!(from == 0.0 && (to - wall).abs() < 0.01, "{from} {to}");
    let jobs = tab.number("document.querySelectorAll('.table-card tbody tr').length");
    assert_eq!(jobs, 2.0);
    tab.screenshot("simulated.png");
    tab.close();
}
