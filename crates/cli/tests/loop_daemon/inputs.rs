//! Requests that no client sends on purpose, to a running service that looks after a real volume: wrong numbers, times, paths and
//! bodies on every route of its own OpenAPI document, headers of all kinds, and bytes that are no HTTP at all.
//!
//! An ordinary run sends some thousands. `LONGRUN_API_SECONDS=600` goes on for so long, and `LONGRUN_SEED=N` repeats a run.

use super::dice::Dice;
use super::service::{PATIENCE, Service, of};
use longrun_lab::{LoopVolume, VolumeSpec};
use serde_json::Value;
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const REQUESTS: u64 = 6000;
/// The service has met every kind of request after so many: what it takes in memory then, it may keep.
const WARM: u64 = 2000;
/// So much may its memory grow after that, in KiB.
const GROWTH: u64 = 32 << 10;
/// No answer is longer, in bytes: what goes through Cockpit must not be.
const LONGEST_ANSWER: usize = 1 << 20;

/// A route, as the service describes it.
struct Route {
    method: String,
    path: String,
    /// The names of its parameters in the query.
    query: Vec<String>,
    /// The names of what its body may have.
    fields: Vec<String>,
}

fn routes(document: &Value) -> Vec<Route> {
    let mut found = Vec::new();
    for (path, methods) in document["paths"].as_object().unwrap() {
        for (method, about) in methods.as_object().unwrap() {
            let parameters = about["parameters"].as_array().into_iter().flatten();
            let query =
                parameters.filter(|one| one["in"] == "query").map(|one| one["name"].as_str().unwrap().to_owned());
            let schema = about["requestBody"]["content"]["application/json"]["schema"]["$ref"].as_str();
            let schema = schema.and_then(|name| document.pointer(name.trim_start_matches('#')));
            let fields = schema.and_then(|schema| schema["properties"].as_object());
            found.push(Route {
                method: method.to_uppercase(),
                path: path.clone(),
                query: query.collect(),
                fields: fields.map(|fields| fields.keys().cloned().collect()).unwrap_or_default(),
            });
        }
    }
    found
}

/// What is drawn from, beside chance: names that lead somewhere.
struct World {
    routes: Vec<Route>,
    id: String,
    file: String,
}

fn number(dice: &mut Dice) -> String {
    const EDGES: [&str; 18] = [
        "0",
        "1",
        "2",
        "4096",
        "4097",
        "65535",
        "65536",
        "65537",
        "4294967295",
        "4294967296",
        "9223372036854775807",
        "9223372036854775808",
        "18446744073709551615",
        "18446744073709551616",
        "-1",
        "1e3",
        "0x10",
        "NaN",
    ];
    match dice.below(4) {
        0 => dice.below(5).to_string(),
        1 => dice.below(40_000).to_string(),
        2 => "9".repeat(dice.below(40) as usize),
        _ => (*dice.one_of(&EDGES)).to_owned(),
    }
}

fn time(dice: &mut Dice) -> &'static str {
    const TIMES: [&str; 10] = [
        "2026-01-31T00:00:00Z",
        "2020-01-01T00:00:00+01:00",
        "-009999-01-02T01:59:59Z",
        "9999-12-30T22:00:00.999999999Z",
        "1970-01-01T00:00:00Z",
        "2016-12-31T23:59:60Z",
        "2026-02-30T00:00:00Z",
        "now",
        "2026-01-31",
        "T",
    ];
    dice.one_of::<&'static str>(&TIMES)
}

fn bytes(dice: &mut Dice, most: u64) -> Vec<u8> {
    (0..dice.below(most + 1)).map(|_| dice.below(256) as u8).collect()
}

/// Text as it may stand in a URL: what is no letter is written by its number, now and then wrongly.
fn escaped(dice: &mut Dice, text: &[u8]) -> String {
    let wrong = dice.below(20) == 0;
    let one = |byte: &u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'/' => char::from(*byte).to_string(),
        byte if wrong => format!("%{byte:x}"),
        byte => format!("%{byte:02X}"),
    };
    text.iter().map(one).collect()
}

fn text(dice: &mut Dice, world: &World) -> String {
    const WORDS: [&str; 8] =
        ["../../../etc/shadow", "/dev/zero", "/proc/self/mem", "' OR 1=1 --", "\u{1b}[2J\n\u{202e}", "\0", "", "/"];
    let word = match dice.below(6) {
        0 => return number(dice),
        1 => time(dice).as_bytes().to_vec(),
        2 => world.file.clone().into_bytes(),
        3 => vec![b'a'; dice.below(6000) as usize],
        4 => bytes(dice, 40),
        _ => dice.one_of(&WORDS).as_bytes().to_vec(),
    };
    escaped(dice, &word)
}

fn value(dice: &mut Dice, name: &str, world: &World) -> String {
    match (name, dice.below(4)) {
        (_, 0) => text(dice, world),
        ("since" | "from" | "to", 1) => {
            let time = time(dice);
            escaped(dice, time.as_bytes())
        }
        ("path", _) => escaped(dice, world.file.as_bytes()),
        ("volume", _) => world.id.clone(),
        _ => number(dice),
    }
}

fn target(dice: &mut Dice, route: &Route, world: &World) -> String {
    let id = if dice.below(5) == 0 { text(dice, world).replace('/', "%2F") } else { world.id.clone() };
    let mut target = route.path.replace("{id}", &id);
    if dice.below(20) == 0 {
        target.push_str(&text(dice, world));
    }
    let known = route.query.iter().filter(|_| dice.below(4) > 0).cloned().collect::<Vec<_>>();
    let mut pairs: Vec<String> = known.iter().map(|name| format!("{name}={}", value(dice, name, world))).collect();
    for _ in 0..dice.below(8).saturating_sub(5) {
        let name = if route.query.is_empty() { text(dice, world) } else { dice.one_of(&route.query).clone() };
        pairs.push(format!("{name}={}", text(dice, world)));
    }
    if !pairs.is_empty() {
        target = format!("{target}?{}", pairs.join("&"));
    }
    target
}

fn json(dice: &mut Dice, depth: u32) -> String {
    match dice.below(if depth > 3 { 5 } else { 7 }) {
        0 => number(dice),
        1 => "null".to_owned(),
        2 => "true".to_owned(),
        3 => serde_json::to_string(&String::from_utf8_lossy(&bytes(dice, 30))).unwrap(),
        4 => format!("-{}.5e{}", dice.below(1000), dice.below(400)),
        5 => format!("[{}]", (0..dice.below(4)).map(|_| json(dice, depth + 1)).collect::<Vec<_>>().join(",")),
        _ => format!("{{\"a\":{},\"a\":{}}}", json(dice, depth + 1), json(dice, depth + 1)),
    }
}

fn body(dice: &mut Dice, route: &Route) -> Vec<u8> {
    match dice.below(8) {
        0 => bytes(dice, 200),
        1 => "[".repeat(dice.below(60_000) as usize).into_bytes(),
        2 => json(dice, 0).into_bytes(),
        // Around the limit of bodies.
        3 if dice.below(10) == 0 => vec![b' '; (60_000 + dice.below(12_000)) as usize],
        4 | 5 if !route.fields.is_empty() => {
            let fields = route.fields.iter().map(|name| format!("{name:?}:{}", json(dice, 1))).collect::<Vec<_>>();
            format!("{{{}}}", fields.join(",")).into_bytes()
        }
        _ => Vec::new(),
    }
}

fn headers(dice: &mut Dice, world: &World) -> String {
    let mut lines = String::new();
    for _ in 0..dice.below(5) {
        let line = match dice.below(10) {
            0 => format!("if-none-match: \"{}\"", number(dice)),
            1 => "if-none-match: *".to_owned(),
            2 => "accept: application/openmetrics-text;version=1.0.0;q=0.5,*/*;q=99999999999".to_owned(),
            3 => format!("longrun-role: {}", dice.one_of(&["viewer", "operator", "root", ""])),
            4 => format!("content-type: {}", text(dice, world)),
            5 => "accept-encoding: gzip, br, identity;q=0".to_owned(),
            6 => format!("range: bytes={}-{}", number(dice), number(dice)),
            7 => format!("x-{}: {}", dice.below(10), "v".repeat(dice.below(9000) as usize)),
            8 => format!("cookie: {}", text(dice, world)),
            _ => "origin: http://elsewhere.example".to_owned(),
        };
        lines.push_str(&line);
        lines.push_str("\r\n");
    }
    lines
}

/// A request that is HTTP, whatever it asks for.
fn request(dice: &mut Dice, world: &World) -> (String, Vec<u8>) {
    const METHODS: [&str; 8] = ["GET", "POST", "HEAD", "PUT", "DELETE", "OPTIONS", "PATCH", "FROB"];
    let route = dice.one_of(&world.routes);
    let method = if dice.below(12) == 0 { *dice.one_of(&METHODS) } else { &route.method };
    let (target, body) = (target(dice, route, world), body(dice, route));
    let mut request = format!("{method} {target} HTTP/1.1\r\nhost: x\r\n{}", headers(dice, world)).into_bytes();
    if !body.is_empty() && dice.below(4) == 0 {
        request.extend_from_slice(b"transfer-encoding: chunked\r\n\r\n");
        for part in body.chunks(1 + dice.below(9000) as usize) {
            request.extend_from_slice(format!("{:x}\r\n", part.len()).as_bytes());
            request.extend_from_slice(part);
            request.extend_from_slice(b"\r\n");
        }
        request.extend_from_slice(b"0\r\n\r\n");
    } else {
        request.extend_from_slice(format!("content-length: {}\r\n\r\n", body.len()).as_bytes());
        request.extend_from_slice(&body);
    }
    (method.to_owned(), request)
}

fn damaged(dice: &mut Dice, mut request: Vec<u8>) -> Vec<u8> {
    for _ in 0..=dice.below(6) {
        let at = dice.below(request.len() as u64) as usize;
        match dice.below(4) {
            0 => request[at] = dice.below(256) as u8,
            1 => drop(request.remove(at)),
            2 => request.insert(at, *dice.one_of(b"\0\r\n :;%\xff")),
            _ => request.truncate(at + 1),
        }
        if request.is_empty() {
            break;
        }
    }
    request
}

/// A client that keeps its connection as long as the service does.
struct Client {
    socket: PathBuf,
    stream: Option<BufReader<UnixStream>>,
}

impl Client {
    fn connect(&self) -> BufReader<UnixStream> {
        let stream = UnixStream::connect(&self.socket).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        BufReader::new(stream)
    }

    /// Status, head and body. A connection that the service has closed (after 60 s, after an error) is opened again.
    fn ask(&mut self, method: &str, request: &[u8]) -> Result<(u16, String, Vec<u8>), String> {
        for _ in 0..20 {
            let mut stream = self.stream.take().unwrap_or_else(|| self.connect());
            // What it refuses to read it may close on; its answer is there all the same.
            _ = stream.get_mut().write_all(request);
            if let Ok(answer) = answer(&mut stream, method) {
                if !answer.1.contains("connection: close") {
                    self.stream = Some(stream);
                }
                return Ok(answer);
            }
        }
        Err("20 connections were closed without an answer".to_owned())
    }
}

fn answer(stream: &mut BufReader<UnixStream>, method: &str) -> std::io::Result<(u16, String, Vec<u8>)> {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if stream.read_line(&mut head)? == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
    }
    let head = head.to_lowercase();
    let status = head.get(9..12).and_then(|digits| digits.parse().ok()).unwrap_or(0);
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).map_or(0, |n| n.parse().unwrap());
    let mut body = vec![0; if method == "HEAD" || status == 304 { 0 } else { length }];
    stream.read_exact(&mut body)?;
    Ok((status, head, body))
}

/// Sends bytes and reads whatever comes back, to the end.
fn throw(socket: &Path, bytes: &[u8]) -> Vec<u8> {
    let mut stream = UnixStream::connect(socket).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    _ = stream.write_all(bytes);
    _ = stream.shutdown(Shutdown::Write);
    let mut answer = Vec::new();
    _ = stream.read_to_end(&mut answer);
    answer
}

/// KiB of memory of the service that no file backs.
fn memory(service: &Service) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", service.child.id())).unwrap();
    let line = status.lines().find(|line| line.starts_with("RssAnon:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

fn furnished(mount: &Path) -> String {
    for number in 0..200 {
        fs::write(mount.join(format!("file-{number}")), vec![1; 5000 * (number % 7)]).unwrap();
    }
    mount.join("file-3").to_str().unwrap().to_owned()
}

#[test]
fn loop_no_request_makes_the_service_fail_or_grow() {
    let volume = LoopVolume::create(&VolumeSpec::ext4(128).mkfs(&["-b", "4096"])).unwrap();
    let mount = volume.mount_point();
    let file = furnished(&mount);
    let mut service = Service::start(std::slice::from_ref(&mount));
    // Other tests have volumes, too.
    let ours = |status: &Value| of(status, &mount).cloned().unwrap_or_default();
    let id = ours(&service.wait(|status| ours(status)["prevention"] == true))["id"].as_str().unwrap().to_owned();
    assert_eq!(service.ask("POST", &format!("/v1/volumes/{id}/analyze")).0, 202);
    service.wait(|status| ours(status)["scan"].is_object());
    assert_eq!(service.ask("GET", "/v1/history?volume=none").0, 404);
    let world = World { routes: routes(&service.ask("GET", "/v1/openapi.json").1), id, file };
    assert!(world.routes.len() >= 19, "{}", world.routes.len());

    let seconds = std::env::var("LONGRUN_API_SECONDS").ok().map(|text| Duration::from_secs(text.parse().unwrap()));
    let mut dice = Dice::from_environment();
    eprintln!("repeat this run with LONGRUN_SEED={}", dice.seed());
    let (started, mut sent, mut warm) = (Instant::now(), 0, 0);
    let mut seen = std::collections::BTreeMap::<u16, u64>::new();
    let mut client = Client { socket: service.path("socket"), stream: None };
    while seconds.map_or(sent < REQUESTS, |seconds| started.elapsed() < seconds || sent < REQUESTS) {
        let (method, bytes) = request(&mut dice, &world);
        let shown = || String::from_utf8_lossy(&bytes[..bytes.len().min(2000)]).into_owned();
        if dice.below(5) == 0 {
            let bytes = damaged(&mut dice, bytes);
            let answer = throw(&client.socket, &bytes);
            assert!(!answer.starts_with(b"HTTP/1.1 5"), "{}", String::from_utf8_lossy(&answer));
        } else {
            let asked = client.ask(&method, &bytes);
            let (status, head, body) = asked.unwrap_or_else(|why| panic!("{why}\n{}\n{}", shown(), service.log()));
            let text = || String::from_utf8_lossy(&body[..body.len().min(2000)]).into_owned();
            assert!((200..500).contains(&status), "{}\n{head}{}", shown(), text());
            assert!(body.len() <= LONGEST_ANSWER, "{} bytes: {}", body.len(), shown());
            let json = head.contains("content-type: application/json") && !body.is_empty();
            assert!(!json || serde_json::from_slice::<Value>(&body).is_ok(), "{}\n{}", shown(), text());
            *seen.entry(status).or_default() += 1;
        }
        sent += 1;
        if sent == WARM {
            warm = memory(&service);
        }
    }
    let now = memory(&service);
    eprintln!("{sent} requests in {:?}, answers {seen:?}, memory {warm} KiB, then {now} KiB", started.elapsed());
    assert!(now < warm + GROWTH, "the memory grew from {warm} KiB to {now} KiB");
    // They reached the work behind the checks, and the checks.
    assert!([200, 202, 304, 400, 404, 405].iter().all(|status| seen.contains_key(status)), "{seen:?}");
    assert!(!service.log().contains("panicked"), "{}", service.log());
    let status = service.wait(|status| ours(status)["prevention"] == true);
    assert!(ours(&status)["trouble"].is_null(), "{status:#}");
    service.stop("TERM");
    volume.unmount().unwrap();
    volume.mount().unwrap();
    volume.check().unwrap();
}
