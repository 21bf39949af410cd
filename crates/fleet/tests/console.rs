//! Story: an administrator looks at a fleet and changes its policy through `longrun fleet console`. A real nats-server, the real
//! program; hosts are the records that they would have written.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on fails loudly, in its helpers too")]

mod support;

use longrun_fleet::broker::Broker;
use longrun_fleet::lease::{GroupLimits, Owner, Record};
use longrun_fleet::names::{LEASES, POLICY, STATE, slot_key};
use longrun_fleet::policy::apply;
use longrun_fleet::show;
use longrun_fleet::state::{HostState, Totals};
use serde_json::{Value, json};
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use support::{Server, has_server};

const PROGRAM: &str = env!("CARGO_BIN_EXE_longrun-fleet");
const GOOD: &str = "name = \"calm\"\n[defaults]\npace = \"invisible\"\n";

/// A console, ended with the test.
struct Console {
    child: Child,
    socket: PathBuf,
}

impl Console {
    fn start(server: &Server) -> Self {
        let socket = server.directory.path().join("run/console.sock");
        let mut command = Command::new(PROGRAM);
        command.arg("--config").arg(server.administrator_config()).arg("console").arg("--socket").arg(&socket);
        let child = command.stderr(Stdio::inherit()).spawn().unwrap();
        let console = Self { child, socket };
        for _ in 0..400 {
            if UnixStream::connect(&console.socket).is_ok() {
                return console;
            }
            std::thread::sleep(Duration::from_millis(25));
        }
        panic!("the console does not listen");
    }

    /// Status and JSON of an answer. `lines` are further headers, each ended.
    fn ask_raw(&self, method: &str, path: &str, lines: &str, body: &[u8]) -> (u16, Value) {
        let mut stream = UnixStream::connect(&self.socket).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(40))).unwrap();
        let length = body.len();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nhost: longrun\r\nconnection: close\r\ncontent-length: {length}\r\n{lines}\r\n"
        );
        stream.write_all(head.as_bytes()).unwrap();
        // Who sends too much may be answered before all of it is sent.
        _ = stream.write_all(body);
        let mut answer = Vec::new();
        _ = stream.read_to_end(&mut answer);
        let answer = String::from_utf8(answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{method} {path}: {answer:?}"));
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        (status, serde_json::from_str(body).unwrap_or_else(|error| panic!("{method} {path}: {error}: {body}")))
    }

    fn get(&self, path: &str) -> (u16, Value) {
        self.ask_raw("GET", path, "", b"")
    }

    fn send(&self, method: &str, path: &str, body: &Value) -> (u16, Value) {
        self.ask_raw(method, path, "", body.to_string().as_bytes())
    }

    fn until(&self, what: &str, path: &str, reached: impl Fn(&Value) -> bool) -> Value {
        let mut last = Value::Null;
        for _ in 0..400 {
            last = self.get(path).1;
            if reached(&last) {
                return last;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        panic!("it never came to that: {what}: {last}");
    }
}

impl Drop for Console {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

/// What a command prints with `--json`.
fn printed(server: &Server, words: &[&str]) -> Value {
    let output = Command::new(PROGRAM).arg("--config").arg(server.administrator_config()).args(words).output().unwrap();
    assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// A host that takes policies, and has this one.
fn state(policy: Option<u64>, alerts: &[&str]) -> HostState {
    let month = Totals { prevented: 7, ..Totals::default() };
    HostState {
        at: SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs(),
        version: "0.1.0".to_owned(),
        mode: "rest".to_owned(),
        policy,
        month,
        alerts: alerts.iter().map(|alert| (*alert).to_owned()).collect(),
        ..HostState::default()
    }
}

async fn tell(broker: &Broker, host: &str, state: HostState) {
    broker.put_anyhow(STATE, host, state.to_value()).await.unwrap();
}

#[tokio::test]
async fn each_route_answers_as_the_command_of_its_name_prints() {
    if !has_server() {
        return;
    }
    let server = Server::start();
    let broker = server.administrator().await;
    server.enroll("db-1", &["san"], &[("role", "database")]);
    server.enroll("silent-1", &[], &[]);
    tell(&broker, "db-1", state(None, &["space /srv"])).await;
    let limits = GroupLimits { slots: Some(2), bytes_per_day: Some(1 << 30), latency_limit_us: Some(2500.0) };
    show::set_limits(&broker, &"san".parse().unwrap(), limits).await.unwrap();
    let owner = Owner { host: "db-1".parse().unwrap(), instance: "1".to_owned() };
    let record = Record { owner, serial: 1, held: true, term_ms: 60_000 };
    broker.put_anyhow(LEASES, &slot_key(&"san".parse().unwrap(), 0), record.to_value()).await.unwrap();

    let console = Console::start(&server);
    console.until("a connection", "/fleet/v1/leases", |leases| leases.is_array());
    for what in ["hosts", "groups", "leases", "report"] {
        let (status, answer) = console.get(&format!("/fleet/v1/{what}"));
        assert_eq!((status, &answer), (200, &printed(&server, &[what, "--json"])), "{what}");
        assert!(answer.to_string().contains("db-1") || what == "report", "{what}: {answer}");
    }
    let hosts = console.get("/fleet/v1/hosts").1;
    assert_eq!((&hosts[0]["enrolled"], &hosts[0]["state"]["alerts"][0]), (&json!(true), &json!("space /srv")));
    assert_eq!((&hosts[1]["host"], &hosts[1]["silent"]), (&json!("silent-1"), &json!(true)));
    let until: jiff::Timestamp = console.get("/fleet/v1/leases").1[0]["until"].as_str().unwrap().parse().unwrap();
    let left = until.duration_since(jiff::Timestamp::now()).as_secs();
    assert!((0..=60).contains(&left), "a lease of a minute that was just taken ends in {left} s");

    assert_eq!(console.get("/fleet/v1/policy"), (200, Value::Null));
    let (status, answer) =
        console.send("PUT", "/fleet/v1/policy", &json!({ "source": GOOD, "replaces": null, "all_at_once": true }));
    assert_eq!(status, 202, "{answer}");
    let (status, shown) = console.get("/fleet/v1/policy");
    assert_eq!((status, &shown), (200, &printed(&server, &["policy", "show", "--json"])));
    assert_eq!(
        (&shown["version"], &shown["stage"], &shown["document"]["source"]),
        (&json!(1), &json!("all"), &json!(GOOD))
    );
    assert_eq!(console.get("/fleet/v1/policy/1"), (200, shown["document"].clone()));
    for missing in ["/fleet/v1/policy/2", "/fleet/v1/policy/-1", "/fleet/v1/policy/x", "/fleet/v1/", "/v1/status", "/"]
    {
        assert_eq!(console.get(missing).0, 404, "{missing}");
    }
    assert_eq!(console.send("DELETE", "/fleet/v1/policy", &Value::Null).0, 405);
    assert_eq!(console.get("/fleet/v1/session").1["server"], json!(server.address));
}

#[tokio::test]
async fn viewers_change_nothing_and_hostile_requests_neither() {
    if !has_server() {
        return;
    }
    let server = Server::start();
    let broker = server.administrator().await;
    tell(&broker, "db-1", state(None, &[])).await;
    let console = Console::start(&server);
    console.until("a connection", "/fleet/v1/leases", |leases| leases.is_array());

    let viewer = "longrun-role: viewer\r\n";
    let good = json!({ "source": GOOD, "replaces": null, "all_at_once": true }).to_string();
    let changes = [
        ("PUT", "/fleet/v1/policy", good.as_str()),
        ("POST", "/fleet/v1/policy/check", r#"{"source":""}"#),
        ("POST", "/fleet/v1/policy/resume", r#"{"version":1}"#),
        ("POST", "/fleet/v1/policy/rollback", r#"{"version":1}"#),
    ];
    for (method, path, body) in changes {
        let (status, answer) = console.ask_raw(method, path, viewer, body.as_bytes());
        assert_eq!(status, 403, "{method} {path}: {answer}");
        assert!(answer["hint"].as_str().unwrap().contains("viewers may change nothing"), "{answer}");
    }
    assert_eq!(console.ask_raw("GET", "/fleet/v1/session", viewer, b"").1["role"], json!("viewer"));
    for path in ["hosts", "groups", "leases", "report"] {
        assert_eq!(console.ask_raw("GET", &format!("/fleet/v1/{path}"), viewer, b"").0, 200, "{path}");
    }
    assert_eq!(console.get("/fleet/v1/session").1["role"], json!("operator"), "root is one");

    let deep = format!("{{\"source\":{}", "[".repeat(100_000));
    let long = json!({ "source": "#".repeat(300 << 10), "replaces": null }).to_string();
    let bodies: Vec<(u16, &[u8])> = vec![
        (400, b""),
        (400, b"{"),
        (400, b"\xff\xfe{}"),
        (400, b"[]"),
        (400, br#"{"source":"","replace":null}"#),
        (400, br#"{"source":7,"replaces":null}"#),
        (400, br#"{"source":"","replaces":-1}"#),
        (400, br#"{"source":"","replaces":null,"trial":{"canary":"101%"}}"#),
        (400, br#"{"source":"","replaces":null,"trial":{"watch":"soon"}}"#),
        (400, br#"{"source":"","replaces":null,"trial":{"share":1}}"#),
        (400, deep.as_bytes()),
        (413, long.as_bytes()),
        (409, br#"{"source":"","replaces":7,"all_at_once":true}"#),
        (422, br#"{"source":"[service]\n","replaces":null,"all_at_once":true}"#),
        (422, br#"{"source":"\u0000","replaces":null,"all_at_once":true}"#),
    ];
    for (wanted, body) in bodies {
        let (status, answer) = console.ask_raw("PUT", "/fleet/v1/policy", "", body);
        let start = String::from_utf8_lossy(&body[..body.len().min(80)]).into_owned();
        assert_eq!(status, wanted, "{start}: {answer}");
    }
    // As long as a document may be, and what is one byte longer is refused by the check of documents.
    for (length, wrong) in [(64 << 10, false), ((64 << 10) + 1, true)] {
        let source = "#\n".repeat(length / 2) + &"#".repeat(length % 2);
        let (status, checked) = console.send("POST", "/fleet/v1/policy/check", &json!({ "source": source }));
        assert_eq!((status, !checked["problems"].as_array().unwrap().is_empty()), (200, wrong), "{checked}");
    }
    let wrong =
        "[defaults]\npace = \"invisible\"\n\n[[rule]]\nwhere = { role = \"db\" }\nsettings = { pace = \"loud\" }\n";
    let (_, checked) = console.send("POST", "/fleet/v1/policy/check", &json!({ "source": wrong }));
    assert_eq!((&checked["problems"][0]["line"], &checked["says"]), (&json!(6), &Value::Null), "{checked}");
    let (_, checked) = console.send("POST", "/fleet/v1/policy/check", &json!({ "source": GOOD }));
    assert!(checked["says"].as_str().unwrap().contains("calm"), "{checked}");
    let reason = "x".repeat(301);
    let long_reason = json!({ "version": 1, "reason": reason });
    assert_eq!(console.send("POST", "/fleet/v1/policy/rollback", &long_reason).0, 400);
    assert_eq!(console.send("POST", "/fleet/v1/policy/rollback", &json!({ "version": 1 })).0, 409);
    assert!(broker.list(POLICY).await.unwrap().is_empty(), "nothing was written");
}

#[tokio::test]
async fn a_policy_is_tried_watched_taken_back_and_gone_on_with() {
    if !has_server() {
        return;
    }
    let server = Server::start();
    let broker = server.administrator().await;
    tell(&broker, "db-1", state(None, &["old"])).await;
    let mut console = Console::start(&server);
    console.until("a connection", "/fleet/v1/leases", |leases| leases.is_array());
    let begin = |replaces: Option<u64>, watch: &str| json!({ "source": GOOD, "replaces": replaces, "trial": { "canary": "1%", "watch": watch, "patience": "1h" } });
    let stage = |wanted: &'static str| move |policy: &Value| policy["stage"] == json!(wanted);

    // The canary raises an alert.
    assert_eq!(console.send("PUT", "/fleet/v1/policy", &begin(None, "1h")).0, 202);
    assert_eq!(console.get("/fleet/v1/session").1["watching"], json!(1));
    let (status, answer) = console.send("PUT", "/fleet/v1/policy", &begin(Some(1), "1h"));
    assert_eq!(status, 409, "one at a time: {answer}");
    assert_eq!(console.send("POST", "/fleet/v1/policy/resume", &json!({ "version": 1 })).0, 409, "it is watched");
    tell(&broker, "db-1", state(Some(1), &["old", "space /srv"])).await;
    let stopped = console.until("taken back", "/fleet/v1/policy", stage("stopped"));
    assert!(stopped["says"].as_str().unwrap().contains("db-1 has a new alert: space /srv"), "{stopped}");
    console.until("nothing is watched", "/fleet/v1/session", |session| session["watching"].is_null());

    // The console is killed in the middle of a trial, and another one goes on with it.
    assert_eq!(console.send("PUT", "/fleet/v1/policy", &begin(Some(1), "1h")).0, 202);
    drop(console);
    console = Console::start(&server);
    console.until("a connection", "/fleet/v1/leases", |leases| leases.is_array());
    let session = console.get("/fleet/v1/session").1;
    assert_eq!((&console.get("/fleet/v1/policy").1["stage"], &session["watching"]), (&json!("canary"), &Value::Null));
    assert_eq!(console.send("POST", "/fleet/v1/policy/resume", &json!({ "version": 1 })).0, 409, "it is version 2");
    let resume = json!({ "version": 2, "trial": { "watch": "1s", "patience": "1h" } });
    assert_eq!(console.send("POST", "/fleet/v1/policy/resume", &resume).0, 202);
    tell(&broker, "db-1", state(Some(2), &["old", "space /srv"])).await;
    console.until("for all", "/fleet/v1/policy", stage("all"));

    // Who has not seen that takes nothing back.
    assert_eq!(console.send("POST", "/fleet/v1/policy/rollback", &json!({ "version": 1 })).0, 409);
    let back = json!({ "version": 2, "reason": "it is too calm" });
    assert_eq!(console.send("POST", "/fleet/v1/policy/rollback", &back).0, 202);
    let rollout = apply::rollout(&broker).await.unwrap().0.unwrap();
    assert_eq!((rollout.reason.as_deref(), rollout.settled()), (Some("it is too calm"), None));

    // While a trial is watched, it is taken back by hand: the watch ends with it.
    assert_eq!(console.send("PUT", "/fleet/v1/policy", &begin(Some(2), "1h")).0, 202);
    assert_eq!(console.send("POST", "/fleet/v1/policy/rollback", &json!({ "version": 3 })).0, 202);
    assert_eq!(console.get("/fleet/v1/session").1["watching"], Value::Null);
}

#[tokio::test]
async fn a_broker_that_hangs_or_is_gone_is_told_and_since_when() {
    if !has_server() {
        return;
    }
    let mut server = Server::start();
    server.administrator().await;
    let console = Console::start(&server);
    console.until("a connection", "/fleet/v1/hosts", |hosts| hosts.is_array());
    let before = jiff::Timestamp::now();
    let told = |what: &str| {
        for path in ["hosts", "groups", "leases", "report", "policy"] {
            let (status, answer) = console.get(&format!("/fleet/v1/{path}"));
            assert_eq!(status, 503, "{what}: {path}: {answer}");
            let hint = answer["hint"].as_str().unwrap();
            assert!(hint.contains("its last answer is of 20") && hint.contains("nats-server"), "{what}: {answer}");
        }
        let answered: jiff::Timestamp =
            console.get("/fleet/v1/session").1["answered"].as_str().unwrap().parse().unwrap();
        assert!(answered <= before, "{what}: {answered} is later than {before}");
    };
    server.hold();
    told("it hangs");
    server.go_on();
    console.until("it answers again", "/fleet/v1/hosts", |hosts| hosts.is_array());
    let before = jiff::Timestamp::now();
    server.end();
    let (status, answer) = console.get("/fleet/v1/hosts");
    assert_eq!(status, 503, "{answer}");
    let answered: jiff::Timestamp = console.get("/fleet/v1/session").1["answered"].as_str().unwrap().parse().unwrap();
    assert!(answered <= before);
    // One that begins without a broker says so, and that it never answered.
    drop(console);
    let console = Console::start(&server);
    let (status, answer) = console.get("/fleet/v1/leases");
    assert_eq!(status, 503);
    assert!(answer["hint"].as_str().unwrap().contains("not answered since this console was started"), "{answer}");
}
