//! The requests of the console, and their answers.

use super::{Desk, policy};
use crate::broker::BrokerError;
use crate::policy::apply::PolicyError;
use crate::report::{self, FleetReport, HostShown};
use crate::show::{self, GroupShown, LeaseShown};
use axum::extract::State;
use axum::http::StatusCode;
use axum::middleware;
use axum::routing::{get, post};
use axum::{Extension, Json, Router};
use jiff::Timestamp;
use longrun_api::model::Role;
use longrun_serve::{Failure, Highest, Sender, whole};
use serde::Serialize;
use std::sync::Arc;
use std::time::Duration;

/// So long may all that a request asks of the broker take: less than longrun-web and browsers wait.
const MOST: Duration = Duration::from_secs(20);

/// The answer to a request.
pub(super) type Answer<T> = Result<Json<T>, Failure>;

/// All routes.
pub(super) fn router(desk: Arc<Desk>) -> Router {
    Router::new()
        .route("/fleet/v1/session", get(session))
        .route("/fleet/v1/hosts", get(hosts))
        .route("/fleet/v1/groups", get(groups))
        .route("/fleet/v1/leases", get(leases))
        .route("/fleet/v1/report", get(report))
        .route("/fleet/v1/policy", get(policy::show).put(policy::begin))
        .route("/fleet/v1/policy/check", post(policy::check))
        .route("/fleet/v1/policy/resume", post(policy::resume))
        .route("/fleet/v1/policy/rollback", post(policy::rollback))
        .route("/fleet/v1/policy/{version}", get(policy::document))
        .fallback(nothing)
        .method_not_allowed_fallback(wrong_method)
        .layer(middleware::from_fn(|request, next| whole(policy::LARGEST_BODY, request, next)))
        .with_state(desk)
}

/// Who asks, and how this console stands. What is not for strangers is null for them.
#[derive(Debug, Serialize)]
struct Session {
    /// What they may do.
    role: Role,
    /// The address of the broker.
    server: Option<String>,
    /// When the broker answered last.
    answered: Option<Timestamp>,
    /// The version whose canaries this process watches.
    watching: Option<u64>,
}

async fn session(State(desk): State<Arc<Desk>>, sender: Sender) -> Json<Session> {
    let role = role(&desk, &sender);
    let known = role >= Role::Viewer;
    Json(Session {
        role,
        server: known.then(|| desk.server.clone()),
        answered: desk.answered().filter(|_| known),
        watching: policy::watching(&desk).filter(|_| known),
    })
}

async fn hosts(State(desk): State<Arc<Desk>>, sender: Sender) -> Answer<Vec<HostShown>> {
    admit(&desk, &sender, Role::Viewer)?;
    in_time(&desk, show::hosts(&desk.broker, &desk.office)).await.map(|(hosts, _)| Json(hosts))
}

async fn groups(State(desk): State<Arc<Desk>>, sender: Sender) -> Answer<Vec<GroupShown>> {
    admit(&desk, &sender, Role::Viewer)?;
    in_time(&desk, show::groups(&desk.broker)).await.map(Json)
}

async fn leases(State(desk): State<Arc<Desk>>, sender: Sender) -> Answer<Vec<LeaseShown>> {
    admit(&desk, &sender, Role::Viewer)?;
    in_time(&desk, show::leases(&desk.broker)).await.map(Json)
}

async fn report(State(desk): State<Arc<Desk>>, sender: Sender) -> Answer<FleetReport> {
    admit(&desk, &sender, Role::Viewer)?;
    in_time(&desk, show::hosts(&desk.broker, &desk.office)).await.map(|(hosts, _)| Json(report::report(&hosts)))
}

fn role(desk: &Desk, (Extension(peer), Extension(Highest(highest))): &Sender) -> Role {
    peer.role(desk.groups()).min(*highest)
}

/// Lets in who has at least the role `least`.
pub(super) fn admit(desk: &Desk, sender: &Sender, least: Role) -> Result<(), Failure> {
    let role = role(desk, sender);
    if role >= least {
        return Ok(());
    }
    let hint = match role {
        Role::Viewer => {
            "viewers may change nothing: operators are root and the members of the group that `longrun fleet console --group` names"
        }
        _ => {
            "ask the administrator for membership in the group that `longrun fleet console --group` or `--viewers` names"
        }
    };
    Err(Failure::new(StatusCode::FORBIDDEN, "permission denied", hint))
}

/// What the broker is asked, with a limit for all of it.
pub(super) async fn in_time<T, E: Into<PolicyError>>(
    desk: &Desk,
    asking: impl Future<Output = Result<T, E>>,
) -> Result<T, Failure> {
    let late = || PolicyError::from(BrokerError::Silent(format!("all of it took more than {} s", MOST.as_secs())));
    match tokio::time::timeout(MOST, asking).await {
        Ok(result) => result.map_err(|error| refusal(desk, &error.into())),
        Err(_) => Err(refusal(desk, &late())),
    }
}

fn refusal(desk: &Desk, error: &PolicyError) -> Failure {
    let (status, hint) = match error {
        PolicyError::Broker(BrokerError::NotConnected | BrokerError::Silent(_) | BrokerError::Connect(_)) => {
            let last = desk.answered().map_or_else(
                || "it has not answered since this console was started".to_owned(),
                |answered| format!("its last answer is of {answered:.0}"),
            );
            (StatusCode::SERVICE_UNAVAILABLE, format!("{last}; check nats-server at {}", desk.server))
        }
        PolicyError::Broker(_) => (StatusCode::BAD_GATEWAY, "see the log of nats-server".to_owned()),
        PolicyError::Wrong(_) => (StatusCode::UNPROCESSABLE_ENTITY, "nothing was changed".to_owned()),
        PolicyError::NoPolicy | PolicyError::NoDocument(_) => {
            (StatusCode::NOT_FOUND, "GET /fleet/v1/policy shows what is rolled out".to_owned())
        }
        _ => (StatusCode::CONFLICT, "nothing was changed; look at the policy again".to_owned()),
    };
    Failure::new(status, error.to_string(), hint)
}

async fn nothing() -> Failure {
    Failure::new(StatusCode::NOT_FOUND, "no such path", "see `man longrun-fleet`")
}

async fn wrong_method() -> Failure {
    Failure::new(StatusCode::METHOD_NOT_ALLOWED, "this path does not support the method", "see `man longrun-fleet`")
}
