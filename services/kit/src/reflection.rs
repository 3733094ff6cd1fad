//! Server reflection: a client that knows nothing of the messages, such as `grpcurl`, asks for their description. Source: grpc/grpc
//! `doc/server-reflection.md`.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use prost::Message;
use prost_types::{DescriptorProto, FileDescriptorProto, FileDescriptorSet};

use crate::grpc::{Code, Kept, Requests, Responses, Status, Stream, decode, encode};
use crate::health::PATIENCE;
use crate::proto::{self, grpc::reflection::v1 as pb};
use pb::server_reflection_request::MessageRequest as Ask;
use pb::server_reflection_response::MessageResponse as Say;

/// Paths of its method, of now and of before; the messages are the same.
pub const PATHS: [&str; 2] = [
    "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
    "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
];

/// The longest request, bytes: names of files and symbols are short. Each answer repeats what it answers, and who asks for much with a long
/// request, and reads nothing, would hold memory.
const REQUEST_BYTES_MAX: usize = 4 << 10;

/// Requests of a stream that came before the answers to those before them were taken, bytes.
const AHEAD_BYTES_MAX: usize = 64 << 10;

/// What it answers from. Clones are the same.
#[derive(Clone, Default)]
pub struct Reflection(Rc<Known>);

#[derive(Default)]
struct Known {
    services: BTreeSet<String>,
    /// By name.
    files: BTreeMap<String, File>,
    /// Names of files by what is in them.
    symbols: BTreeMap<String, String>,
}

struct File {
    bytes: Bytes,
    dependencies: Vec<String>,
}

impl Reflection {
    /// Of encoded `FileDescriptorSet`s, which a build script writes (`protox::compile(…)?.encode_to_vec()`); and of health and
    /// reflection themselves. What cannot be decoded is an error: the build made it.
    pub fn new(sets: &[&[u8]]) -> Result<Self, prost::DecodeError> {
        let mut known = Known::default();
        for set in sets.iter().chain([&proto::DESCRIPTORS]) {
            for file in FileDescriptorSet::decode(*set)?.file {
                known.take(&file);
            }
        }
        Ok(Self(Rc::new(known)))
    }

    /// Whether this service is described.
    pub fn has_service(&self, name: &str) -> bool {
        self.0.services.contains(name)
    }

    /// Answers the method under [`PATHS`].
    pub fn answer(&self, requests: Requests, responses: Responses) -> Stream {
        self.answer_within(PATIENCE, requests, responses)
    }

    fn answer_within(&self, patience: Duration, mut requests: Requests, responses: Responses) -> Stream {
        let known = Rc::clone(&self.0);
        Box::pin(async move {
            let mut ahead = Ahead { room: requests.room(), ..Ahead::default() };
            while let Some(message) = ahead.next(&mut requests).await? {
                let request: pb::ServerReflectionRequest = decode(message)?;
                let answer = || {
                    encode(&pb::ServerReflectionResponse {
                        valid_host: request.host.clone(),
                        message_response: Some(known.say(request.message_request.as_ref())),
                        original_request: Some(request),
                    })
                };
                let mut sent = pin!(responses.send_in_time(patience, answer));
                let sent = poll_fn(|context| match sent.as_mut().poll(context) {
                    Poll::Pending => ahead.poll_overrun(&mut requests, context).map(Err),
                    sent => sent,
                });
                sent.await?;
            }
            Ok(())
        })
    }
}

/// What was asked before the answer to what came before was taken. It is read at once: what is left unread fills what a connection may send ahead, and
/// counts nowhere.
#[derive(Default)]
struct Ahead {
    messages: VecDeque<Bytes>,
    bytes: usize,
    room: Option<Kept>,
    is_over: bool,
}

/// What one costs besides what it says.
const MESSAGE_BYTES: usize = 64;

impl Ahead {
    /// The next request.
    async fn next(&mut self, requests: &mut Requests) -> Result<Option<Bytes>, Status> {
        let Some(message) = self.messages.pop_front() else {
            let message = if self.is_over { None } else { requests.next().await? };
            return message.map(checked).transpose();
        };
        self.count(self.bytes - message.len() - MESSAGE_BYTES)?;
        Ok(Some(message))
    }

    /// Reads what comes; ready with what the call ends with, when that is too much.
    fn poll_overrun(&mut self, requests: &mut Requests, context: &mut Context<'_>) -> Poll<Status> {
        while !self.is_over {
            let taken = match ready!(requests.poll_next(context)) {
                Ok(Some(message)) => checked(message).and_then(|message| self.take(&message)),
                Ok(None) => {
                    self.is_over = true;
                    Ok(())
                }
                Err(status) => Err(status),
            };
            if let Err(status) = taken {
                return Poll::Ready(status);
            }
        }
        Poll::Pending
    }

    fn take(&mut self, message: &[u8]) -> Result<(), Status> {
        let bytes = self.bytes + message.len() + MESSAGE_BYTES;
        if bytes > AHEAD_BYTES_MAX {
            let what = format!(
                "requests of reflection whose answers are not taken may have {AHEAD_BYTES_MAX} bytes: read the answers before asking more"
            );
            return Err(Status::new(Code::ResourceExhausted, what));
        }
        self.count(bytes)?;
        // A part of what was read with it would keep all of that.
        self.messages.push_back(Bytes::copy_from_slice(message));
        Ok(())
    }

    fn count(&mut self, bytes: usize) -> Result<(), Status> {
        self.bytes = bytes;
        self.room.as_mut().map_or(Ok(()), |room| room.resize(bytes))
    }
}

/// One that is not too long.
fn checked(message: Bytes) -> Result<Bytes, Status> {
    if message.len() <= REQUEST_BYTES_MAX {
        return Ok(message);
    }
    let what = format!("a request of reflection has {REQUEST_BYTES_MAX} bytes at most, not {}", message.len());
    Err(Status::new(Code::ResourceExhausted, what))
}

impl Known {
    fn take(&mut self, file: &FileDescriptorProto) {
        let mut symbols = Vec::new();
        let scope = file.package();
        for message in &file.message_type {
            message_names(scope, message, &mut symbols);
        }
        symbols.extend(file.enum_type.iter().map(|kind| join(scope, kind.name())));
        for service in &file.service {
            let name = join(scope, service.name());
            symbols.extend(service.method.iter().map(|method| join(&name, method.name())));
            symbols.push(name.clone());
            self.services.insert(name);
        }
        let about = |symbol| (symbol, file.name().to_owned());
        self.symbols.extend(symbols.into_iter().map(about));
        let content = File { bytes: file.encode_to_vec().into(), dependencies: file.dependency.clone() };
        self.files.insert(file.name().to_owned(), content);
    }

    fn say(&self, ask: Option<&Ask>) -> Say {
        let refuse = |code: Code, message: String| {
            Say::ErrorResponse(pb::ErrorResponse { error_code: code as i32, error_message: message })
        };
        match ask {
            Some(Ask::ListServices(_)) => {
                let service = self.services.iter().map(|name| pb::ServiceResponse { name: name.clone() }).collect();
                Say::ListServicesResponse(pb::ListServiceResponse { service })
            }
            Some(Ask::FileByFilename(name)) => match self.with_dependencies(name) {
                Some(files) => Say::FileDescriptorResponse(files),
                None => refuse(Code::NotFound, format!("there is no file {name}")),
            },
            Some(Ask::FileContainingSymbol(name)) => {
                match self.symbols.get(name).and_then(|file| self.with_dependencies(file)) {
                    Some(files) => Say::FileDescriptorResponse(files),
                    None => refuse(Code::NotFound, format!("there is no symbol {name}")),
                }
            }
            Some(Ask::FileContainingExtension(_) | Ask::AllExtensionNumbersOfType(_)) => {
                refuse(Code::NotFound, "there are no extensions".into())
            }
            None => refuse(Code::InvalidArgument, "nothing is asked for".into()),
        }
    }

    /// A file, and those that it imports.
    fn with_dependencies(&self, name: &str) -> Option<pb::FileDescriptorResponse> {
        let mut names = vec![name];
        let mut file_descriptor_proto = vec![self.files.get(name)?.bytes.clone()];
        let mut next = 0;
        while let Some(file) = names.get(next).and_then(|name| self.files.get(*name)) {
            next += 1;
            for dependency in &file.dependencies {
                if let Some(file) = self.files.get(dependency)
                    && !names.contains(&dependency.as_str())
                {
                    names.push(dependency);
                    file_descriptor_proto.push(file.bytes.clone());
                }
            }
        }
        Some(pb::FileDescriptorResponse { file_descriptor_proto })
    }
}

fn join(scope: &str, name: &str) -> String {
    if scope.is_empty() { name.to_owned() } else { format!("{scope}.{name}") }
}

fn message_names(scope: &str, message: &DescriptorProto, names: &mut Vec<String>) {
    let name = join(scope, message.name());
    for nested in &message.nested_type {
        message_names(&name, nested, names);
    }
    names.extend(message.enum_type.iter().map(|kind| join(&name, kind.name())));
    names.push(name);
}

#[cfg(test)]
mod tests {
    use tokio::sync::mpsc;

    use super::*;
    use crate::grpc::content;

    /// What is answered to these, and how the call ends.
    fn ask(asked: &[pb::ServerReflectionRequest]) -> (Vec<pb::ServerReflectionResponse>, Result<(), Status>) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let (to, requests) = mpsc::channel(8);
        let (responses, mut from) = mpsc::channel(8);
        asked.iter().for_each(|request| to.try_send(content(encode(request))).unwrap());
        drop(to);
        let reflection = Reflection::new(&[]).unwrap();
        let ended = runtime.block_on(reflection.answer(Requests::of(requests), Responses::of(responses)));
        let mut said = Vec::new();
        while let Ok(response) = from.try_recv() {
            said.push(decode(content(response)).unwrap());
        }
        (said, ended)
    }

    #[test]
    fn a_request_that_is_long_is_refused_and_not_answered_with_what_it_said() {
        let long = |bytes: usize| pb::ServerReflectionRequest { host: "x".repeat(bytes), message_request: None };
        let (said, ended) = ask(&[long(4_000), long(8 << 20), long(1)]);
        assert_eq!((said.len(), said[0].valid_host.len()), (1, 4_000));
        let refused = ended.unwrap_err();
        assert_eq!(refused.code, Code::ResourceExhausted);
        assert_eq!(refused.message, "a request of reflection has 4096 bytes at most, not 8388613");
        let symbol = Some(Ask::FileContainingSymbol("y".repeat(5_000)));
        let (said, ended) = ask(&[pb::ServerReflectionRequest { host: String::new(), message_request: symbol }]);
        assert_eq!((said.len(), ended.unwrap_err().code), (0, Code::ResourceExhausted));
    }

    /// Four mebibytes of them waited for a client that took no answer, and counted nowhere.
    #[test]
    fn who_asks_far_ahead_of_the_answers_that_it_takes_is_refused() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        for (asked, is_refused) in [(10, false), (20, true)] {
            let (to, requests) = mpsc::channel(32);
            let (responses, mut answers) = mpsc::channel(1);
            let request = pb::ServerReflectionRequest { host: "h".repeat(3_900), message_request: None };
            (0..asked).for_each(|_| to.try_send(content(encode(&request))).unwrap());
            drop(to);
            let (requests, responses) = (Requests::of(requests), Responses::of(responses));
            let reflection = Reflection::new(&[]).unwrap();
            let (ended, answered) = runtime.block_on(async {
                let read = async {
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    let mut answered = 0;
                    while answers.recv().await.is_some() {
                        answered += 1;
                    }
                    answered
                };
                tokio::join!(reflection.answer(requests, responses), read)
            });
            match is_refused {
                true => assert_eq!(ended.unwrap_err().code, Code::ResourceExhausted),
                false => assert_eq!((ended, answered), (Ok(()), asked)),
            }
        }
    }

    #[test]
    fn who_does_not_take_an_answer_is_not_waited_for_without_end() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let (to, requests) = mpsc::channel(8);
        let (responses, _unread) = mpsc::channel(1);
        (0..2).for_each(|_| to.try_send(Bytes::new()).unwrap());
        let (requests, responses) = (Requests::of(requests), Responses::of(responses));
        let reflection = Reflection::new(&[]).unwrap();
        let ended = runtime.block_on(async {
            let ended = reflection.answer_within(Duration::from_millis(50), requests, responses);
            tokio::time::timeout(Duration::from_secs(20), ended).await.unwrap()
        });
        assert_eq!(ended.unwrap_err().code, Code::DeadlineExceeded);
    }

    #[test]
    fn what_is_not_known_and_what_asks_for_nothing_is_told_and_the_call_goes_on() {
        let unknown = pb::ServerReflectionRequest {
            host: "here".into(),
            message_request: Some(Ask::FileContainingSymbol("some.Thing".into())),
        };
        let asked = [pb::ServerReflectionRequest::default(), unknown.clone(), Default::default()];
        let (said, ended) = ask(&asked);
        assert_eq!((said.len(), ended), (3, Ok(())));
        let expected = [(3, "nothing is asked for"), (5, "there is no symbol some.Thing"), (3, "nothing is asked for")];
        for (response, (code, message)) in said.iter().zip(expected) {
            let Some(Say::ErrorResponse(error)) = &response.message_response else { panic!("{response:?}") };
            assert_eq!((error.error_code, &*error.error_message), (code, message));
        }
        assert_eq!((&*said[1].valid_host, &said[1].original_request), ("here", &Some(unknown)));
    }

    fn files(said: Say) -> Vec<FileDescriptorProto> {
        let Say::FileDescriptorResponse(files) = said else { panic!("{said:?}") };
        files.file_descriptor_proto.into_iter().map(|file| FileDescriptorProto::decode(file).unwrap()).collect()
    }

    #[test]
    fn services_and_what_describes_them_are_told() {
        let own = FileDescriptorSet {
            file: vec![
                FileDescriptorProto {
                    name: Some("a.proto".into()),
                    dependency: vec!["b.proto".into()],
                    ..Default::default()
                },
                FileDescriptorProto {
                    name: Some("b.proto".into()),
                    package: Some("b".into()),
                    message_type: vec![DescriptorProto { name: Some("Thing".into()), ..Default::default() }],
                    ..Default::default()
                },
            ],
        };
        let Reflection(known) = Reflection::new(&[&own.encode_to_vec()]).unwrap();
        let Say::ListServicesResponse(list) = known.say(Some(&Ask::ListServices(String::new()))) else { panic!() };
        let names = list.service.into_iter().map(|service| service.name).collect::<Vec<_>>();
        assert_eq!(names, ["grpc.health.v1.Health", "grpc.reflection.v1.ServerReflection"]);
        let health = files(known.say(Some(&Ask::FileContainingSymbol("grpc.health.v1.Health.Check".into()))));
        assert_eq!(health[0].package(), "grpc.health.v1");
        let status = "grpc.health.v1.HealthCheckResponse.ServingStatus";
        assert_eq!(files(known.say(Some(&Ask::FileContainingSymbol(status.into())))), health);
        let both = files(known.say(Some(&Ask::FileByFilename("a.proto".into()))));
        assert_eq!(both.iter().map(FileDescriptorProto::name).collect::<Vec<_>>(), ["a.proto", "b.proto"]);
        assert_eq!(files(known.say(Some(&Ask::FileContainingSymbol("b.Thing".into())))), both[1..]);
        for ask in [Ask::FileByFilename("c.proto".into()), Ask::FileContainingSymbol("b.Else".into())] {
            let Say::ErrorResponse(error) = known.say(Some(&ask)) else { panic!() };
            assert_eq!(error.error_code, 5);
        }
    }
}
