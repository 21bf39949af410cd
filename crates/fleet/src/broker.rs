//! The connection to the broker: keys are read and written in its buckets, each request with a time limit.
//!
//! Owns the connection, its identity, and when the broker last answered. Asks by key, without consumers, so that a host needs
//! permission for its own keys only. Never decides what an answer means for a lease.

use crate::host_config::HostConfig;
use crate::lease::{Connection, Found, Moment, Revision};
use crate::names;
use async_nats::connection::State;
use async_nats::header::{HeaderMap, HeaderValue, NATS_EXPECTED_LAST_SUBJECT_SEQUENCE, NATS_SEQUENCE, NATS_TIME_STAMP};
use async_nats::{Client, ConnectOptions, Message, Request};
use futures_util::future::join_all;
use jiff::Timestamp;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The error code of JetStream: the last sequence of the subject is another.
const WRONG_LAST_SEQUENCE: u64 = 10_071;
/// The error code of JetStream: there is a stream of this name with another configuration.
const NAME_IN_USE: u64 = 10_058;
/// So many keys are asked for at the same time: there may be thousands.
const AT_A_TIME: usize = 64;
/// The status of a direct read that found nothing.
const NOT_FOUND: u16 = 404;

/// Why the broker did not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum BrokerError {
    /// The seed of the nkey cannot be read.
    #[error("the key of this host cannot be read ({path}: {source}); run `longrun fleet enroll` for this host", path = path.display())]
    Seed {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The configuration does not lead to a connection.
    #[error("the connection cannot be made: {0}")]
    Connect(String),
    /// There is no connection.
    #[error("the broker cannot be reached")]
    NotConnected,
    /// No answer in time, or from another connection: what was asked may have been done, or may be yet.
    #[error("the broker has not answered: {0}")]
    Silent(String),
    /// It answered with an error.
    #[error("the broker refused: {0}")]
    Refused(String),
    /// The server itself answered with an error.
    #[error("the broker refused: {what}: {description}")]
    Api {
        /// What was asked.
        what: String,
        /// The number of the error.
        code: u64,
        /// Its text.
        description: String,
    },
}

/// What became of a writing that named the revision that it replaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Put {
    /// It was done, and has this revision.
    Written(Revision),
    /// It was not done: the revision is another one.
    Outdated,
}

/// A key of a bucket, what it holds, and when that was written, by the clock of the broker.
#[derive(Clone, Debug)]
pub struct Kept {
    /// The key.
    pub key: String,
    /// Its value and revision.
    pub found: Found,
    /// When it was written, where the broker says that.
    pub written: Option<Timestamp>,
}

/// What the broker answers to a writing.
#[derive(Deserialize)]
struct Acknowledged {
    #[serde(default)]
    seq: u64,
    error: Option<Fault>,
}

#[derive(Deserialize)]
struct Fault {
    #[serde(default)]
    err_code: u64,
    #[serde(default)]
    description: String,
}

/// What the server tells of a stream, as far as it is needed.
#[derive(Deserialize)]
struct StreamInfo {
    #[serde(default)]
    total: usize,
    state: StreamState,
}

#[derive(Deserialize)]
struct StreamState {
    subjects: Option<BTreeMap<String, u64>>,
}

/// When the broker answered.
#[derive(Debug, Default)]
struct Contact {
    /// The connection as the broker calls it, and as its number and moment are known here.
    known: Option<((String, u64), Connection)>,
    /// When the latest request was sent that it has answered.
    answered: Option<Moment>,
    /// A writing was not answered, and none since: a broker that only reads is of no use.
    mute: bool,
}

/// The broker.
#[derive(Debug)]
pub struct Broker {
    client: Client,
    patience: Duration,
    contact: Mutex<Contact>,
}

impl Broker {
    /// Begins to connect, and returns at once: the broker may be away now and later. Each request is waited for `patience`.
    ///
    /// # Errors
    /// What is wrong with the configuration.
    pub async fn connect(config: &HostConfig, patience: Duration) -> Result<Self, BrokerError> {
        let most = patience;
        // Not all hosts at the same moment, when a broker comes back.
        let delay = move |attempts: usize| match attempts {
            0 | 1 => Duration::ZERO,
            _ => most.min(Duration::from_millis(100 << attempts.min(8))).mul_f64(0.5 + fastrand::f64() / 2.0),
        };
        let mut options = ConnectOptions::new()
            .name(format!("longrun-fleet {}", config.host))
            .custom_inbox_prefix(config.inbox_prefix())
            .request_timeout(Some(patience))
            .connection_timeout(patience.max(Duration::from_secs(1)))
            .ping_interval(patience.max(Duration::from_secs(1)) * 2)
            .subscription_capacity(1024)
            .client_capacity(64)
            .read_buffer_capacity(8192)
            .reconnect_delay_callback(delay)
            .ignore_discovered_servers()
            .retry_on_initial_connect();
        if let Some(ca) = &config.ca {
            options = options.add_root_certificates(ca.clone()).require_tls(true);
        }
        if let Some(path) = &config.seed {
            let seed =
                std::fs::read_to_string(path).map_err(|source| BrokerError::Seed { path: path.clone(), source })?;
            options = options.nkey(seed.trim().to_owned());
        }
        let servers: Vec<_> = config.servers().map(str::to_owned).collect();
        let client = options.connect(servers).await.map_err(|error| BrokerError::Connect(error.to_string()))?;
        Ok(Self { client, patience, contact: Mutex::default() })
    }

    /// Waits until it is connected.
    ///
    /// # Errors
    /// [`BrokerError::NotConnected`] after so long.
    pub async fn connected_within(&self, time: Duration) -> Result<(), BrokerError> {
        let connected = async {
            while self.connection().is_none() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(time, connected).await.map_err(|_| BrokerError::NotConnected)
    }

    /// The present connection. Servers call each start of theirs, and each connection, another name.
    pub fn connection(&self) -> Option<Connection> {
        if self.client.connection_state() != State::Connected {
            return None;
        }
        let info = self.client.try_server_info()?;
        let clustered = info.cluster.is_some();
        let name = (info.server_id, info.client_id);
        let mut contact = self.contact();
        let number = match &contact.known {
            Some((known, connection)) if *known == name => return Some(*connection),
            Some((_, connection)) => connection.number + 1,
            None => 1,
        };
        let connection = Connection { number, since: Moment::now(), clustered };
        contact.known = Some((name, connection));
        Some(connection)
    }

    fn contact(&self) -> MutexGuard<'_, Contact> {
        self.contact.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// When the latest request was sent that was answered, while writings are answered too.
    pub fn answered(&self) -> Option<Moment> {
        self.contact().answered
    }

    /// Reads a key.
    ///
    /// # Errors
    /// [`BrokerError`].
    pub async fn get(&self, bucket: &str, key: &str) -> Result<Found, BrokerError> {
        self.read(bucket, key).await.map(|kept| kept.found)
    }

    /// Reads keys, several at the same time; the answers are in their order.
    ///
    /// # Errors
    /// [`BrokerError`], where one of them is not answered.
    pub async fn get_all(&self, bucket: &str, keys: &[&str]) -> Result<Vec<Kept>, BrokerError> {
        let mut all = Vec::with_capacity(keys.len());
        for some in keys.chunks(AT_A_TIME) {
            for kept in join_all(some.iter().map(|key| self.read(bucket, key))).await {
                all.push(kept?);
            }
        }
        Ok(all)
    }

    async fn read(&self, bucket: &str, key: &str) -> Result<Kept, BrokerError> {
        let subject = format!("$JS.API.DIRECT.GET.KV_{bucket}.$KV.{bucket}.{key}");
        let message = self.ask(subject, Request::new(), false).await?;
        match message.status.map(|status| status.as_u16()) {
            None => {}
            Some(NOT_FOUND) => return Ok(Kept { key: key.to_owned(), found: Found::default(), written: None }),
            Some(other) => return Err(BrokerError::Refused(format!("reading {bucket} {key}: status {other}"))),
        }
        let header = |name| message.headers.as_ref().and_then(|headers| headers.get(name)).map(HeaderValue::as_str);
        let revision = header(NATS_SEQUENCE).and_then(|sequence| sequence.parse().ok());
        let revision = revision.ok_or_else(|| BrokerError::Refused(format!("reading {bucket} {key}: no revision")))?;
        let written = header(NATS_TIME_STAMP).and_then(|time| time.parse().ok());
        let found = Found { revision: Revision(revision), value: message.payload.to_vec() };
        Ok(Kept { key: key.to_owned(), found, written })
    }

    /// Writes a key whose revision is `expected` (0: there is none).
    ///
    /// # Errors
    /// [`BrokerError`].
    pub async fn put(&self, bucket: &str, key: &str, expected: Revision, value: Vec<u8>) -> Result<Put, BrokerError> {
        let mut headers = HeaderMap::new();
        headers.insert(NATS_EXPECTED_LAST_SUBJECT_SEQUENCE, expected.0.to_string());
        self.publish(bucket, key, Request::new().headers(headers).payload(value.into())).await
    }

    /// Writes a key, whatever it holds.
    ///
    /// # Errors
    /// [`BrokerError`].
    pub async fn put_anyhow(&self, bucket: &str, key: &str, value: Vec<u8>) -> Result<Revision, BrokerError> {
        match self.publish(bucket, key, Request::new().payload(value.into())).await? {
            Put::Written(revision) => Ok(revision),
            Put::Outdated => Err(BrokerError::Refused(format!("writing {bucket} {key}: the revision is another one"))),
        }
    }

    async fn publish(&self, bucket: &str, key: &str, request: Request) -> Result<Put, BrokerError> {
        let message = self.ask(format!("$KV.{bucket}.{key}"), request, true).await?;
        let answer: Acknowledged = serde_json::from_slice(&message.payload)
            .map_err(|error| BrokerError::Refused(format!("writing {bucket} {key}: {error}")))?;
        match answer.error {
            None => Ok(Put::Written(Revision(answer.seq))),
            Some(Fault { err_code: WRONG_LAST_SEQUENCE, .. }) => Ok(Put::Outdated),
            Some(fault) => Err(BrokerError::Refused(format!("writing {bucket} {key}: {}", fault.description))),
        }
    }

    async fn ask(&self, subject: String, request: Request, writes: bool) -> Result<Message, BrokerError> {
        // Without a connection, requests would wait in a queue, and come as a surprise later.
        let connection = self.connection().ok_or(BrokerError::NotConnected)?;
        let sent = Moment::now();
        let answer = self.client.send_request(subject, request.timeout(Some(self.patience))).await;
        // An answer that came before another connection says nothing about what that one leads to.
        let same = self.connection() == Some(connection);
        let mut contact = self.contact();
        match answer {
            Ok(message) if same => {
                contact.mute &= !writes;
                if !contact.mute {
                    contact.answered = contact.answered.max(Some(sent));
                }
                Ok(message)
            }
            Ok(_) => Err(BrokerError::Silent("the connection was lost meanwhile".to_owned())),
            Err(error) => {
                contact.mute |= writes;
                Err(BrokerError::Silent(error.to_string()))
            }
        }
    }

    /// All keys of a bucket and what they hold; for administrators: hosts may not list.
    ///
    /// # Errors
    /// [`BrokerError`].
    pub async fn list(&self, bucket: &str) -> Result<Vec<Kept>, BrokerError> {
        let prefix = format!("$KV.{bucket}.");
        let mut subjects = BTreeMap::new();
        // The server tells so many at a time.
        loop {
            let asked = json!({ "subjects_filter": format!("{prefix}>"), "offset": subjects.len() });
            let told: StreamInfo = self.api(&format!("STREAM.INFO.KV_{bucket}"), &asked).await?;
            let before = subjects.len();
            subjects.extend(told.state.subjects.unwrap_or_default());
            if subjects.len() == before || subjects.len() >= told.total {
                break;
            }
        }
        let keys: Vec<&str> = subjects.keys().filter_map(|subject| subject.strip_prefix(&prefix)).collect();
        let mut all = self.get_all(bucket, &keys).await?;
        all.retain(|kept| kept.found.revision.0 > 0 && !kept.found.value.is_empty());
        Ok(all)
    }

    /// Makes the buckets of the fleet where they are missing, each kept by so many servers of a cluster, and gives those that
    /// exist the same limits.
    ///
    /// They are made as streams. A bucket that is made in the usual way takes the header `Nats-Rollup`: a user who may write one
    /// key of it can erase all others.
    ///
    /// # Errors
    /// [`BrokerError`].
    pub async fn make_buckets(&self, replicas: usize) -> Result<(), BrokerError> {
        for (bucket, largest) in [(names::LEASES, 4 << 10), (names::STATE, 20 << 10), (names::POLICY, 1 << 20)] {
            // As clients of NATS make buckets, so that its own tools know them; but without roll-up.
            let mut config = json!({
                "name": format!("KV_{bucket}"), "subjects": [format!("$KV.{bucket}.>")], "retention": "limits",
                "max_consumers": -1, "max_msgs": -1, "max_bytes": -1, "max_msgs_per_subject": 1,
                "discard": "new", "storage": "file", "num_replicas": replicas,
            });
            let limits = json!({
                "max_msg_size": largest, "allow_rollup_hdrs": false, "deny_delete": true, "deny_purge": true,
                "allow_direct": true,
            });
            merge(&mut config, &limits);
            match self.api::<Value>(&format!("STREAM.CREATE.KV_{bucket}"), &config).await {
                Ok(_) => {}
                // With other settings of the administrator, which stay.
                Err(BrokerError::Api { code: NAME_IN_USE, .. }) => {
                    let mut info: Value = self.api(&format!("STREAM.INFO.KV_{bucket}"), &json!({})).await?;
                    let mut config = info.get_mut("config").map(Value::take).unwrap_or_default();
                    merge(&mut config, &limits);
                    self.api::<Value>(&format!("STREAM.UPDATE.KV_{bucket}"), &config).await?;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Asks the server itself. It answers in the form of its version, so that only what is needed is read from it.
    async fn api<T: DeserializeOwned>(&self, what: &str, body: &Value) -> Result<T, BrokerError> {
        let body = serde_json::to_vec(body).unwrap_or_default();
        let message = self.ask(format!("$JS.API.{what}"), Request::new().payload(body.into()), false).await?;
        let unknown = |error: serde_json::Error| BrokerError::Refused(format!("{what}: {error}"));
        let answer: Value = serde_json::from_slice(&message.payload).map_err(unknown)?;
        if let Some(fault) = answer.get("error") {
            let Fault { err_code, description } = Fault::deserialize(fault).map_err(unknown)?;
            return Err(BrokerError::Api { what: what.to_owned(), code: err_code, description });
        }
        serde_json::from_value(answer).map_err(unknown)
    }
}

/// Replaces fields of an object.
fn merge(object: &mut Value, fields: &Value) {
    if let (Some(object), Some(fields)) = (object.as_object_mut(), fields.as_object()) {
        object.extend(fields.clone());
    }
}
