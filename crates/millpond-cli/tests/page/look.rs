//! Light and dark, wide and narrow.

use crate::tab::{DESKTOP, PHONE, Screen, Tab};
use crate::written::tiny;

const BACKGROUND: &str = "getComputedStyle(document.body).backgroundColor";

/// Contrast of an element's text to what is behind it, as accessibility guidelines count it.
fn contrast(tab: &mut Tab, selector: &str) -> f64 {
    tab.number(&format!(
        "(() => {{
            const numbers = (colour) => colour.match(/[\\d.]+/g).map(Number);
            const light = (colour) => {{
                const [r, g, b] = numbers(colour).map((part) => (part /= 255) <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4);
                return 0.2126 * r + 0.7152 * g + 0.0722 * b;
            }};
            let behind = document.querySelector({selector:?});
            const ink = getComputedStyle(behind).color;
            while (behind && numbers(getComputedStyle(behind).backgroundColor)[3] === 0) behind = behind.parentElement;
            const pair = [light(ink), light(getComputedStyle(behind ?? document.body).backgroundColor)].sort((a, b) => b - a);
            return (pair[0] + 0.05) / (pair[1] + 0.05);
        }})()"
    ))
}

#[test]
fn it_is_dark_where_the_system_is_and_can_be_changed() {
    let Some(mut tab) = Tab::open(&tiny().page, DESKTOP) else { return };
    let light = tab.text(BACKGROUND);
    tab.screenshot("light.png");
    tab.resize(Screen { is_dark: true, ..DESKTOP });
    tab.frame();
    let dark = tab.text(BACKGROUND);
    assert_ne!(light, dark);
    tab.screenshot("dark.png");
    for is_dark in [true, false] {
        let texts =
            ["h1", ".subtitle", ".help", ".entry b", "td.best", ".origin.measured", ".unit"];
        for text in texts {
            let contrast = contrast(&mut tab, text);
            assert!(contrast >= 4.5, "{text}: {contrast:.2}, dark: {is_dark}");
        }
        tab.click("button.theme");
    }
    // Twice is back to dark, now by choice.
    assert_eq!(tab.text(BACKGROUND), dark);
    tab.resize(DESKTOP);
    assert_eq!(tab.text(BACKGROUND), dark);
    tab.evaluate("localStorage.clear()");
    tab.close();
}

#[test]
fn a_phone_is_wide_enough() {
    for is_dark in [false, true] {
        let Some(mut tab) = Tab::open(&tiny().page, Screen { is_dark, ..PHONE }) else { return };
        assert_eq!(tab.number("document.documentElement.scrollWidth"), 360.0);
        assert_eq!(tab.number("innerWidth"), 360.0);
        // Tables are wider, and scroll inside.
        assert!(tab.number("document.querySelector('.table-card .scroll').scrollWidth") > 360.0);
        tab.point(".plot.chart", 0.9, 0.5);
        let edge = tab
            .number("document.querySelector('.plot.chart .tooltip').getBoundingClientRect().right");
        assert!(edge <= 360.0, "the tooltip ends at {edge}");
        let least = tab.number(
            "Math.min(...[...document.querySelectorAll('.buttons button, .entry, .choice button, select')].map((e) => e.getBoundingClientRect().height))",
        );
        assert!(least >= 28.0, "a finger needs more than {least} pixels");
        tab.screenshot(if is_dark { "phone_dark.png" } else { "phone.png" });
        tab.close();
    }
}

/// From the first to the last, all that can be used can be reached by Tab and shows that it is.
#[test]
fn keys_reach_everything() {
    let Some(mut tab) = Tab::open(&tiny().page, DESKTOP) else { return };
    let all = tab.number(
        "document.querySelectorAll('a, button, select, input, summary, [tabindex=\"0\"]').length",
    );
    tab.evaluate("window.reached = new Set()");
    for _ in 0..all as usize {
        tab.key("Tab", false);
        let outline = tab.text(
            "(() => { reached.add(document.activeElement); return getComputedStyle(document.activeElement).outlineStyle; })()",
        );
        assert_ne!(outline, "none", "{}", tab.text("document.activeElement.outerHTML"));
    }
    assert_eq!(tab.number("reached.size"), all);
    let unnamed = tab.text(
        "[...reached].filter((e) => !(e.ariaLabel || e.textContent.trim())).map((e) => e.outerHTML).join()",
    );
    assert_eq!(unnamed, "");
    tab.close();
}

#[test]
fn nothing_moves_for_those_who_do_not_want_it() {
    let Some(mut tab) = Tab::open(&tiny().page, DESKTOP) else { return };
    tab.prefer("prefers-reduced-motion", "reduce");
    let scroll = tab.text("getComputedStyle(document.documentElement).scrollBehavior");
    assert_eq!(scroll, "auto");
    tab.close();
}
