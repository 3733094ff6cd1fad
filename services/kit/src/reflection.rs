//! Server reflection: a client that knows nothing of the messages, such as `grpcurl`, asks for their description. Source: grpc/grpc
//! `doc/server-reflection.md`.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use bytes::Bytes;
use prost::Message;
use prost_types::{DescriptorProto, FileDescriptorProto, FileDescriptorSet};

use crate::grpc::{Code, Requests, Responses, Status, Stream, decode, encode};
use crate::proto::{self, grpc::reflection::v1 as pb};
use pb::server_reflection_request::MessageRequest as Ask;
use pb::server_reflection_response::MessageResponse as Say;

/// Paths of its method, of now and of before; the messages are the same.
pub const PATHS: [&str; 2] = [
    "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
    "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
];

/// The longest request, bytes: names of files and symbols are short. Each answer repeats what it answers, and who asks for much with a long
/// request, and reads nothing, would hold memory that nobody counts.
const REQUEST_BYTES_MAX: usize = 4 << 10;

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
    pub fn answer(&self, mut requests: Requests, responses: Responses) -> Stream {
        let known = Rc::clone(&self.0);
        Box::pin(async move {
            while let Some(message) = requests.next().await? {
                if message.len() > REQUEST_BYTES_MAX {
                    let length = message.len();
                    let what = format!("a request of reflection has {REQUEST_BYTES_MAX} bytes at most, not {length}");
                    return Err(Status::new(Code::ResourceExhausted, what));
                }
                let request: pb::ServerReflectionRequest = decode(message)?;
                let response = pb::ServerReflectionResponse {
                    valid_host: request.host.clone(),
                    message_response: Some(known.say(request.message_request.as_ref())),
                    original_request: Some(request),
                };
                if responses.send(encode(&response)).await.is_err() {
                    break;
                }
            }
            Ok(())
        })
    }
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
