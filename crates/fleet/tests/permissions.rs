//! Story: one host of the fleet was taken over. Whatever it sends to the broker, it can change and read nothing but its own state
//! and the leases of its own groups. A real nats-server with TLS.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on fails loudly, in its helpers too")]

mod support;

use async_nats::HeaderMap;
use futures_util::StreamExt as _;
use longrun_fleet::broker::{Broker, Put};
use longrun_fleet::host_config::HostConfig;
use longrun_fleet::lease::Revision;
use longrun_fleet::names::{LEASES, POLICY, STATE};
use std::time::Duration;
use support::{Server, client, has_server};

const PAUSE: Duration = Duration::from_millis(300);

#[tokio::test]
async fn a_host_reads_policy_and_writes_its_own_state_and_leases_and_nothing_else() {
    if !has_server() {
        return;
    }
    let server = Server::start();
    // A bucket that somebody made in the usual way becomes one that refuses roll-up.
    let usual = "{\"name\":\"KV_longrun_state\",\"subjects\":[\"$KV.longrun_state.>\"],\"retention\":\"limits\",\"max_consumers\":-1,\
        \"max_msgs\":-1,\"max_bytes\":-1,\"max_msg_size\":-1,\"max_msgs_per_subject\":1,\"discard\":\"new\",\"storage\":\"file\",\
        \"num_replicas\":1,\"allow_rollup_hdrs\":true,\"deny_delete\":true,\"allow_direct\":true}";
    let (before, _) = client(&HostConfig::read(&server.administrator_config()).unwrap()).await.unwrap();
    let made = before.request("$JS.API.STREAM.CREATE.KV_longrun_state", usual.into()).await.unwrap();
    assert!(String::from_utf8_lossy(&made.payload).contains("\"allow_rollup_hdrs\":true"), "{made:?}");
    let administrator = server.administrator().await;
    let own = server.enroll("db-1", &["san1"], &[]);
    let other = server.enroll("db-2", &["san2"], &[]);
    server.reload().await;

    let connect = async |config| {
        let broker = Broker::connect(config, Duration::from_secs(5)).await.unwrap();
        broker.connected_within(Duration::from_secs(10)).await.unwrap();
        broker
    };
    let (host, second) = (connect(&own).await, connect(&other).await);

    // What it may.
    for (bucket, key) in [(POLICY, "rollout"), (POLICY, "groups"), (POLICY, "document.1"), (POLICY, "watch")] {
        administrator.put_anyhow(bucket, key, b"{\"true\":1}".to_vec()).await.unwrap();
    }
    for key in ["rollout", "groups", "document.1"] {
        assert_eq!(host.get(POLICY, key).await.unwrap().value, b"{\"true\":1}");
    }
    host.put_anyhow(STATE, "db-1", b"one".to_vec()).await.unwrap();
    second.put_anyhow(STATE, "db-2", b"two".to_vec()).await.unwrap();
    let Put::Written(revision) = host.put(LEASES, "san1.0", Revision(0), b"mine".to_vec()).await.unwrap() else {
        panic!()
    };
    assert_eq!(host.get(LEASES, "san1.0").await.unwrap().revision, revision);
    assert_eq!(host.put(LEASES, "san1.0", Revision(0), b"again".to_vec()).await.unwrap(), Put::Outdated);
    host.put(LEASES, "san1.budget", Revision(0), b"0".to_vec()).await.unwrap();
    second.put(LEASES, "san2.0", Revision(0), b"theirs".to_vec()).await.unwrap();
    let before = everything(&administrator).await;
    assert_eq!(before.len(), 9, "{before:?}");

    // What it must not. The server says so each time.
    let (client, said) = client(&own).await.unwrap();
    let forbidden = [
        "$KV.longrun_state.db-2",
        "$KV.longrun_state.db-3",
        "$KV.longrun_policy.rollout",
        "$KV.longrun_policy.document.1",
        "$KV.longrun_policy.document.2",
        "$KV.longrun_policy.groups",
        "$KV.longrun_leases.san2.0",
        "$KV.longrun_leases.san2.budget",
        "$JS.API.DIRECT.GET.KV_longrun_state.$KV.longrun_state.db-2",
        "$JS.API.DIRECT.GET.KV_longrun_leases.$KV.longrun_leases.san2.0",
        "$JS.API.DIRECT.GET.KV_longrun_policy.$KV.longrun_policy.watch",
        "$JS.API.DIRECT.GET.KV_longrun_state",
        "$JS.API.DIRECT.GET.KV_longrun_policy",
        "$JS.API.DIRECT.GET.KV_longrun_leases",
        "$JS.API.STREAM.MSG.GET.KV_longrun_state",
        "$JS.API.STREAM.MSG.DELETE.KV_longrun_policy",
        "$JS.API.STREAM.CREATE.mine",
        "$JS.API.STREAM.CREATE.KV_longrun_policy",
        "$JS.API.STREAM.UPDATE.KV_longrun_policy",
        "$JS.API.STREAM.DELETE.KV_longrun_state",
        "$JS.API.STREAM.DELETE.KV_longrun_policy",
        "$JS.API.STREAM.PURGE.KV_longrun_leases",
        "$JS.API.STREAM.PURGE.KV_longrun_policy",
        "$JS.API.STREAM.INFO.KV_longrun_state",
        "$JS.API.STREAM.SNAPSHOT.KV_longrun_state",
        "$JS.API.STREAM.RESTORE.KV_longrun_state",
        "$JS.API.STREAM.NAMES",
        "$JS.API.STREAM.LIST",
        "$JS.API.CONSUMER.CREATE.KV_longrun_state",
        "$JS.API.CONSUMER.DURABLE.CREATE.KV_longrun_state.spy",
        "$JS.API.CONSUMER.CREATE.KV_longrun_leases",
        "$JS.API.CONSUMER.MSG.NEXT.KV_longrun_state.spy",
        "$JS.API.INFO",
        "$SYS.REQ.SERVER.PING",
        "$SYS.REQ.ACCOUNT.PING.CONNZ",
        "_INBOX_db-2.answer",
        "anything",
    ];
    for subject in forbidden {
        said.lock().unwrap().clear();
        let payload = "{\"name\":\"mine\",\"subjects\":[\"x\"],\"last_by_subj\":\"$KV.longrun_state.db-2\",\"seq\":1}";
        assert!(client.request(subject, payload.into()).await.is_err(), "{subject} was answered");
        let said = said.lock().unwrap().join(" ").to_lowercase();
        assert!(said.contains("permissions violation for publish"), "{subject}: {said}");
    }
    for subject in [">", "_INBOX_db-2.>", "_INBOX.>", "$KV.>", "$KV.longrun_state.db-2", "$SYS.>", "$JS.>"] {
        said.lock().unwrap().clear();
        let mut subscription = client.subscribe(subject).await.unwrap();
        client.flush().await.unwrap();
        second.put_anyhow(STATE, "db-2", b"two".to_vec()).await.unwrap();
        let heard = tokio::time::timeout(PAUSE, subscription.next()).await;
        assert!(!matches!(heard, Ok(Some(_))), "{subject} was heard");
        let said = said.lock().unwrap().join(" ").to_lowercase();
        assert!(said.contains("permissions violation for subscription"), "{subject}: {said}");
    }

    // Permitted requests that would have the server write for it: answers to subjects that are others'.
    let reads = "$JS.API.DIRECT.GET.KV_longrun_leases.$KV.longrun_leases.san1.0";
    for target in ["$KV.longrun_policy.rollout", "$KV.longrun_state.db-2", "$KV.longrun_leases.san2.0", "_INBOX_db-2.x"]
    {
        for from in [reads, "$KV.longrun_state.db-1"] {
            client.publish_with_reply(from, target, "".into()).await.unwrap();
        }
    }
    // And headers that erase more than the own key.
    for value in ["all", "sub"] {
        let mut headers = HeaderMap::new();
        headers.insert("Nats-Rollup", value);
        client.publish_with_headers("$KV.longrun_state.db-1", headers.clone(), "".into()).await.unwrap();
        client.publish_with_headers("$KV.longrun_leases.san1.0", headers, "".into()).await.unwrap();
    }
    client.flush().await.unwrap();
    tokio::time::sleep(PAUSE).await;
    host.put_anyhow(STATE, "db-1", b"one".to_vec()).await.unwrap();
    let large = host.put_anyhow(STATE, "db-1", vec![b'x'; 30 << 10]).await;
    assert!(large.unwrap_err().to_string().contains("maximum"), "a state of any size");
    assert_eq!(everything(&administrator).await, before);

    // Others than enrolled hosts.
    let nobody = HostConfig { seed: None, ..own.clone() };
    assert!(support::client(&nobody).await.is_err(), "without a key");
    let stranger = server.directory.path().join("stranger.nk");
    std::fs::write(&stranger, "SUACSSL3UAHUDXKFSNVUZRF5UHPMWZ6BFDTJ7M6USDXIEDNPPQYYYCU3VY").unwrap();
    let stranger = HostConfig { seed: Some(stranger), ..own.clone() };
    assert!(support::client(&stranger).await.is_err(), "with a key that nobody enrolled");
    server.office().revoke(&own.host).unwrap();
    // The bundle is gone with its seed; here it is kept by the connections.
    server.reload().await;
    assert!(host.put_anyhow(STATE, "db-1", b"late".to_vec()).await.is_err(), "revoked, and still connected");
    second.put_anyhow(STATE, "db-2", b"two".to_vec()).await.unwrap();
    assert_eq!(everything(&administrator).await, before);
}

/// All that lies at the broker, without the numbers of revisions.
async fn everything(administrator: &Broker) -> Vec<(String, Vec<u8>)> {
    let mut all = Vec::new();
    for bucket in [POLICY, STATE, LEASES] {
        all.extend(administrator.list(bucket).await.unwrap().into_iter().map(|kept| (kept.key, kept.found.value)));
    }
    all
}
