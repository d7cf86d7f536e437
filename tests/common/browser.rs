//! A headless Chromium, driven over its DevTools protocol through a pipe.

use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

/// For an answer of the browser; it only detects hangs.
const HANG: Duration = Duration::from_secs(120);

pub struct Browser {
    process: Child,
    input: ChildStdin,
    messages: Receiver<Value>,
    session: Value,
    sent: u64,
    /// What the page wrote to its console, and errors that nothing caught.
    pub complaints: Vec<String>,
    _profile: tempfile::TempDir,
}

/// The name of a browser that is installed.
fn installed() -> Option<&'static str> {
    let answers = |name: &&str| {
        let version =
            Command::new(name).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
        version.is_ok_and(|status| status.success())
    };
    ["chromium", "chromium-browser", "google-chrome"].into_iter().find(answers)
}

impl Browser {
    /// `None`, with a printed line, where none is installed.
    pub fn start() -> Option<Self> {
        let Some(name) = installed() else {
            println!("skipped: neither chromium nor google-chrome is on this machine");
            return None;
        };
        let profile = tempfile::tempdir().unwrap();
        // The protocol runs over descriptors 3 and 4. The sandbox wants rights that containers lack; the page is our own.
        let mut process = Command::new("sh")
            .args(["-c", "exec \"$@\" 3<&0 4>&1 </dev/null >&2", "sh", name])
            .args([
                "--headless=new",
                "--no-sandbox",
                "--disable-gpu",
                "--disable-dev-shm-usage",
                "--no-first-run",
            ])
            .arg(format!("--user-data-dir={}", profile.path().display()))
            // What it leaves elsewhere when it is killed goes with its profile.
            .env("TMPDIR", profile.path())
            .args(["--remote-debugging-pipe", "about:blank"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let (input, output) = (process.stdin.take().unwrap(), process.stdout.take().unwrap());
        let (send, messages) = channel();
        // Ends with the browser.
        std::thread::spawn(move || {
            for message in BufReader::new(output).split(0).map_while(Result::ok) {
                let _ = send.send(serde_json::from_slice(&message).unwrap_or_default());
            }
        });
        let mut browser = Self {
            process,
            input,
            messages,
            session: Value::Null,
            sent: 0,
            complaints: Vec::new(),
            _profile: profile,
        };
        let target = browser.call("Target.createTarget", json!({ "url": "about:blank" }))["targetId"].clone();
        let attached = browser.call("Target.attachToTarget", json!({ "targetId": target, "flatten": true }));
        browser.session = attached["sessionId"].clone();
        for domain in ["Runtime", "Log", "Page"] {
            browser.call(&format!("{domain}.enable"), json!({}));
        }
        Some(browser)
    }

    /// The result of a command.
    fn call(&mut self, method: &str, params: Value) -> Value {
        let answer = self.ask(method, params);
        assert!(answer["error"].is_null(), "{method}: {}", answer["error"]);
        answer["result"].clone()
    }

    /// The answer to a command, which may be an error.
    fn ask(&mut self, method: &str, params: Value) -> Value {
        self.sent += 1;
        let mut message = json!({ "id": self.sent, "method": method, "params": params });
        if !self.session.is_null() {
            message["sessionId"] = self.session.clone();
        }
        self.input.write_all(format!("{message}\0").as_bytes()).expect("the browser listens");
        let id = self.sent;
        self.until(method, |message| message["id"] == id)
    }

    /// The next message for which `wanted` is true. Complaints before it are kept.
    fn until(&mut self, what: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        loop {
            let message = self.messages.recv_timeout(HANG).unwrap_or_else(|e| panic!("{what}: {e}"));
            let method = message["method"].as_str().unwrap_or_default();
            if ["Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded"].contains(&method) {
                self.complaints.push(message["params"].to_string());
            }
            if wanted(&message) {
                return message;
            }
        }
    }

    /// Opens a page in a window of this size.
    pub fn open(&mut self, page: &std::path::Path, window: [u32; 2], dark: bool) {
        self.visit(&format!("file://{}", page.display()), window, dark);
    }

    /// The same for the page at an address.
    pub fn visit(&mut self, address: &str, [width, height]: [u32; 2], dark: bool) {
        let window = json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": false });
        self.call("Emulation.setDeviceMetricsOverride", window);
        let scheme = json!({ "name": "prefers-color-scheme", "value": if dark { "dark" } else { "light" } });
        self.call("Emulation.setEmulatedMedia", json!({ "features": [scheme] }));
        self.call("Page.navigate", json!({ "url": address }));
        self.until("the page", |message| message["method"] == "Page.loadEventFired");
    }

    /// The value of a JavaScript expression.
    pub fn eval(&mut self, expression: &str) -> Value {
        let asked = json!({ "expression": expression, "returnByValue": true });
        let answer = self.call("Runtime.evaluate", asked);
        assert!(answer["exceptionDetails"].is_null(), "{expression}: {}", answer["exceptionDetails"]);
        answer["result"]["value"].clone()
    }

    /// Whether a JavaScript expression is true; not while the page loads itself again.
    pub fn holds(&mut self, expression: &str) -> bool {
        let asked = json!({ "expression": expression, "returnByValue": true });
        self.ask("Runtime.evaluate", asked)["result"]["result"]["value"] == true
    }

    /// Presses and releases a key, as a user does.
    pub fn press(&mut self, key: &str) {
        for kind in ["keyDown", "keyUp"] {
            self.call("Input.dispatchKeyEvent", json!({ "type": kind, "key": key }));
        }
    }

    /// Moves the mouse with its left button down.
    pub fn drag(&mut self, from: [f64; 2], to: [f64; 2]) {
        let at = |kind: &str, [x, y]: [f64; 2], buttons| json!({ "type": kind, "x": x, "y": y, "button": "left", "buttons": buttons, "clickCount": 1 });
        for event in [at("mousePressed", from, 1), at("mouseMoved", to, 1), at("mouseReleased", to, 0)] {
            self.call("Input.dispatchMouseEvent", event);
        }
    }

    /// Writes what the window shows, if the variable `REPORT_SCREENSHOTS` names a folder: for people who look at it.
    pub fn screenshot(&mut self, name: &str) {
        let Some(folder) = std::env::var_os("REPORT_SCREENSHOTS") else { return };
        let data = self.call("Page.captureScreenshot", json!({}))["data"].clone();
        let data = data_encoding::BASE64.decode(data.as_str().unwrap().as_bytes()).unwrap();
        std::fs::write(std::path::Path::new(&folder).join(format!("{name}.png")), data).unwrap();
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
