//! A page in the browser: what a reader does with it, and what can be seen.

use std::path::Path;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use serde_json::{Value, json};

use crate::browser::{Browser, target};

/// One browser for all tests. Who has it is alone with it.
static BROWSER: OnceLock<Option<Mutex<Browser>>> = OnceLock::new();

/// How a reader sees the page.
#[derive(Clone, Copy)]
pub(crate) struct Screen {
    pub(crate) width: u32,
    pub(crate) height: u32,
    pub(crate) is_dark: bool,
}

pub(crate) const DESKTOP: Screen = Screen { width: 1200, height: 900, is_dark: false };
pub(crate) const PHONE: Screen = Screen { width: 360, height: 740, is_dark: false };

/// A page in the browser.
pub(crate) struct Tab {
    browser: MutexGuard<'static, Browser>,
    target: String,
    session: String,
}

impl Tab {
    /// Opens a file. `None`, and a word on standard error: there is no browser here.
    pub(crate) fn open(file: &Path, screen: Screen) -> Option<Tab> {
        let browser = BROWSER.get_or_init(|| Browser::start().map(Mutex::new));
        let Some(browser) = browser else {
            use std::io::Write;
            // Not by a macro, whose output tests keep to themselves.
            let _ = writeln!(
                std::io::stderr(),
                "skipped: there is no Chromium; `cargo xtask setup` installs it"
            );
            return None;
        };
        let mut browser = browser.lock().unwrap_or_else(PoisonError::into_inner);
        browser.events.clear();
        let text = |value: &Value| value.as_str().expect("a text").to_owned();
        let made = browser.call(None, "Target.createTarget", json!({"url": "about:blank"}));
        let target = text(&made["targetId"]);
        let attached = browser.call(
            None,
            "Target.attachToTarget",
            json!({"targetId": target, "flatten": true}),
        );
        let session = text(&attached["sessionId"]);
        let mut tab = Tab { browser, target, session };
        for domain in ["Page", "Runtime", "Log", "Network"] {
            tab.call(&format!("{domain}.enable"), json!({}));
        }
        tab.resize(screen);
        tab.call("Page.bringToFront", json!({}));
        let url = format!("file://{}", file.display().to_string().replace('%', "%25"));
        tab.call("Page.navigate", json!({"url": url.replace('#', "%23").replace('?', "%3f")}));
        tab.wait_for("document.documentElement?.dataset.ready === 'yes'");
        tab.frame();
        Some(tab)
    }

    pub(crate) fn resize(&mut self, screen: Screen) {
        let Screen { width, height, is_dark } = screen;
        self.call(
            "Emulation.setDeviceMetricsOverride",
            json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}),
        );
        self.prefer("prefers-color-scheme", if is_dark { "dark" } else { "light" });
    }

    /// What the system says that its user likes.
    pub(crate) fn prefer(&mut self, name: &str, value: &str) {
        let features = json!([{"name": name, "value": value}]);
        self.call("Emulation.setEmulatedMedia", json!({"features": features}));
    }

    fn call(&mut self, method: &str, params: Value) -> Value {
        self.browser.call(Some(&self.session), method, params)
    }

    /// What an expression of the page's language gives.
    pub(crate) fn evaluate(&mut self, expression: &str) -> Value {
        let answer = self.call(
            "Runtime.evaluate",
            json!({"expression": expression, "returnByValue": true, "awaitPromise": true}),
        );
        assert!(answer["exceptionDetails"].is_null(), "{expression}: {answer}");
        answer["result"]["value"].clone()
    }

    pub(crate) fn number(&mut self, expression: &str) -> f64 {
        let value = self.evaluate(&format!("Number({expression})"));
        value.as_f64().unwrap_or_else(|| panic!("{expression} is {value}"))
    }

    pub(crate) fn text(&mut self, expression: &str) -> String {
        self.evaluate(&format!("String({expression})")).as_str().expect("is a text").to_owned()
    }

    fn wait_for(&mut self, condition: &str) {
        for _ in 0..600 {
            if self.evaluate(condition) == true {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
        panic!("{condition} does not come about");
    }

    /// Lets the page draw what it has been told.
    pub(crate) fn frame(&mut self) {
        self.evaluate(
            "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => requestAnimationFrame(done))))",
        );
    }

    /// Moves the pointer to a part of an element, given from 0 to 1, and does something there.
    pub(crate) fn mouse(&mut self, kind: &str, selector: &str, x: f64, y: f64, more: Value) {
        let place = self.evaluate(&format!(
            "(() => {{ const e = document.querySelector({selector:?}); const b = e.getBoundingClientRect();
                if (b.top < 0 || b.bottom > innerHeight) e.scrollIntoView({{ behavior: 'instant', block: 'center' }});
                const {{ left, top, width, height }} = e.getBoundingClientRect(); return [left, top, width, height]; }})()"
        ));
        let at = |n: usize| place[n].as_f64().expect("a number");
        let mut params = json!({"type": kind, "x": at(0) + x * at(2), "y": at(1) + y * at(3)});
        for (key, value) in more.as_object().into_iter().flatten() {
            params[key] = value.clone();
        }
        self.call("Input.dispatchMouseEvent", params);
    }

    pub(crate) fn point(&mut self, selector: &str, x: f64, y: f64) {
        self.mouse("mouseMoved", selector, x, y, json!({}));
        self.frame();
    }

    /// Presses, moves and releases; both ends alike are a click.
    pub(crate) fn drag(&mut self, selector: &str, from: f64, to: f64) {
        let held = json!({"button": "left", "buttons": 1, "clickCount": 1});
        self.mouse("mousePressed", selector, from, 0.5, held.clone());
        for part in [0.5, 1.0] {
            let x = from + (to - from) * part;
            self.mouse("mouseMoved", selector, x, 0.5, json!({"button": "left", "buttons": 1}));
        }
        self.mouse("mouseReleased", selector, to, 0.5, json!({"button": "left", "clickCount": 1}));
        self.frame();
    }

    pub(crate) fn click(&mut self, selector: &str) {
        self.drag(selector, 0.5, 0.5);
    }

    /// Presses a key, as it is called by browsers.
    pub(crate) fn key(&mut self, key: &str, has_shift: bool) {
        let mut params = json!({"key": key, "modifiers": if has_shift { 8 } else { 0 }});
        if key.chars().count() == 1 {
            params["text"] = key.into();
        }
        let code = match key {
            "Tab" => 9,
            "Enter" => 13,
            "ArrowLeft" => 37,
            "ArrowRight" => 39,
            _ => 0,
        };
        if code > 0 {
            params["windowsVirtualKeyCode"] = code.into();
            params["code"] = key.into();
        }
        if key == "Enter" {
            params["text"] = "\r".into();
        }
        for kind in ["keyDown", "keyUp"] {
            params["type"] = kind.into();
            self.call("Input.dispatchKeyEvent", params.clone());
        }
        self.frame();
    }

    /// Keeps a picture of the whole page in `target/page`.
    pub(crate) fn screenshot(&mut self, name: &str) {
        let shot = self.call(
            "Page.captureScreenshot",
            json!({"format": "png", "captureBeyondViewport": true}),
        );
        let folder = target().join("page");
        std::fs::create_dir_all(&folder).expect("a folder for pictures");
        let picture = from_base64(shot["data"].as_str().expect("a picture"));
        std::fs::write(folder.join(name), picture).expect("a picture can be kept");
    }

    /// Closes it. Nothing may have gone wrong, and nothing may have been asked of the network.
    pub(crate) fn close(mut self) {
        self.frame();
        let of = |method: &str| {
            let events = self.browser.events.iter();
            let own = events.filter(|event| event["sessionId"] == self.session.as_str());
            own.filter(|event| event["method"] == method).collect::<Vec<_>>()
        };
        for trouble in ["Runtime.consoleAPICalled", "Runtime.exceptionThrown"] {
            assert!(of(trouble).is_empty(), "{trouble}: {:?}", of(trouble));
        }
        for entry in of("Log.entryAdded") {
            assert!(entry["params"]["entry"]["level"] != "error", "{entry}");
        }
        let requests = of("Network.requestWillBeSent");
        let urls: Vec<&str> = requests
            .iter()
            .filter_map(|request| request["params"]["request"]["url"].as_str())
            .filter(|url| !url.starts_with("data:"))
            .collect();
        assert!(urls.len() == 1 && urls[0].starts_with("file://"), "asked for {urls:?}");
    }
}

impl Drop for Tab {
    /// After a failure, too: a tab behind another would draw nothing.
    fn drop(&mut self) {
        let target = json!({"targetId": self.target});
        self.browser.call(None, "Target.closeTarget", target);
    }
}

fn from_base64(text: &str) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3);
    let (mut bits, mut count) = (0_u32, 0);
    for letter in text.bytes() {
        let value = match letter {
            b'A'..=b'Z' => letter - b'A',
            b'a'..=b'z' => letter - b'a' + 26,
            b'0'..=b'9' => letter - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => break,
        };
        bits = bits << 6 | u32::from(value);
        count += 6;
        if count >= 8 {
            count -= 8;
            bytes.push((bits >> count) as u8);
        }
    }
    bytes
}
