//! What every server answers besides its own work: metrics, probes, health, reflection.
//!
//! [`Operations`] answers `/metrics`, `/livez` and `/readyz` over HTTP; [`Accompanied`] adds them, health and reflection to a service.

use std::convert::Infallible;
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method as Verb, request};
use prometheus_client::registry::Registry;

use crate::grpc::{
    Caller, Compression, Decompress, HttpAnswer, Peer, Requests, Responses, Service, Status, Stream, Unary,
};
use crate::health::{self, Health};
use crate::http::{Incoming, only_get};
use crate::metrics::Format;
use crate::probes::{self, Probe, Readiness};
use crate::reflection::{self, Reflection};

/// Metrics and probes. Clones are the same.
#[derive(Clone)]
pub struct Operations {
    /// What is counted.
    pub registry: Arc<Registry>,
    /// What is waited for.
    pub readiness: Readiness,
}

impl Operations {
    /// The answer to a request; `None`: it is for somebody else.
    pub fn answer(&self, head: &request::Parts) -> Option<HttpAnswer> {
        let probe = Probe::of(head.uri.path()).map(|(probe, name)| (probe, name.to_owned()));
        if probe.is_none() && head.uri.path() != "/metrics" {
            return None;
        }
        if head.method != Verb::GET {
            return Some(Box::pin(async { only_get() }));
        }
        let operations = self.clone();
        let query = head.uri.query().unwrap_or_default().to_owned();
        let format = Format::of(&head.headers);
        Some(Box::pin(async move {
            match probe {
                None => format.answer(&operations.registry),
                // Who can answer lives.
                Some((Probe::Live, name)) => probes::answer(&[], &name, &query, async |_| Ok(())).await,
                Some((Probe::Ready, name)) => operations.readiness.answer(&name, &query).await,
            }
        }))
    }
}

/// What is asked of health and reflection is no longer: names.
const REQUEST_BYTES_MAX: usize = 64 << 10;

/// A service and what goes with it.
pub struct Accompanied<S> {
    service: S,
    operations: Operations,
    health: Health,
    reflection: Reflection,
}

/// A method of the service, or of what goes with it.
#[derive(Clone, Copy)]
pub enum Method<M> {
    /// The service's own.
    Own(M),
    /// `grpc.health.v1.Health/Check`.
    HealthCheck,
    /// `grpc.health.v1.Health/Watch`.
    HealthWatch,
    /// `grpc.reflection.v1.ServerReflection/ServerReflectionInfo`.
    Reflection,
}

impl<S: Service> Accompanied<S> {
    /// With health of the services that reflection knows.
    pub fn new(service: S, operations: Operations, reflection: Reflection) -> Self {
        let known = reflection.clone();
        let health = Health::new(move |name| known.has_service(name), operations.readiness.clone());
        Self { service, operations, health, reflection }
    }
}

impl<S: Service> Service for Accompanied<S> {
    type Method = Method<S::Method>;

    fn method(&self, path: &str) -> Option<(Self::Method, bool)> {
        if let Some((method, is_stream)) = self.service.method(path) {
            return Some((Method::Own(method), is_stream));
        }
        match path {
            health::CHECK => Some((Method::HealthCheck, false)),
            health::WATCH => Some((Method::HealthWatch, true)),
            path if reflection::PATHS.contains(&path) => Some((Method::Reflection, true)),
            _ => None,
        }
    }

    fn admit(&self, method: &mut Self::Method, caller: &Caller) -> Result<usize, Status> {
        match method {
            Method::Own(method) => self.service.admit(method, caller),
            Method::HealthCheck | Method::HealthWatch | Method::Reflection => Ok(REQUEST_BYTES_MAX),
        }
    }

    fn unary(&self, method: Self::Method, caller: Caller, message: Bytes) -> Unary {
        match method {
            Method::Own(method) => self.service.unary(method, caller, message),
            Method::HealthCheck => self.health.check(message),
            Method::HealthWatch | Method::Reflection => Unary::Now(Err(Status::is_stream())),
        }
    }

    fn stream(&self, method: Self::Method, caller: Caller, requests: Requests, responses: Responses) -> Stream {
        match method {
            Method::Own(method) => self.service.stream(method, caller, requests, responses),
            Method::HealthWatch => self.health.watch(requests, responses),
            Method::Reflection => self.reflection.answer(requests, responses),
            Method::HealthCheck => Box::pin(async { Err(Status::is_no_stream()) }),
        }
    }

    fn http(&self, head: request::Parts, body: Incoming, peer: Rc<Peer>) -> Option<HttpAnswer> {
        match self.operations.answer(&head) {
            Some(answer) => Some(answer),
            None => self.service.http(head, body, peer),
        }
    }

    fn decompress(&self, encoding: &str) -> Option<Decompress> {
        self.service.decompress(encoding)
    }

    fn compression(&self, method: Self::Method, headers: &HeaderMap) -> Option<Compression> {
        match method {
            Method::Own(method) => self.service.compression(method, headers),
            Method::HealthCheck | Method::HealthWatch | Method::Reflection => None,
        }
    }

    fn accepted_encodings(&self) -> Option<HeaderValue> {
        self.service.accepted_encodings()
    }

    fn stopped(&self) -> Status {
        self.service.stopped()
    }
}

/// For a server that has no gRPC of its own: metrics and probes alone.
impl Service for Operations {
    type Method = Infallible;

    fn method(&self, _: &str) -> Option<(Infallible, bool)> {
        None
    }

    fn unary(&self, method: Infallible, _: Caller, _: Bytes) -> Unary {
        match method {}
    }

    fn stream(&self, method: Infallible, _: Caller, _: Requests, _: Responses) -> Stream {
        match method {}
    }

    fn http(&self, head: request::Parts, _: Incoming, _: Rc<Peer>) -> Option<HttpAnswer> {
        self.answer(&head)
    }
}
