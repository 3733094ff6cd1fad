//! Writes the tables of `src/gateway/schema.rs`: messages with their fields, enumerations, and methods.

use std::collections::BTreeMap;
use std::fmt::Write;

use prost_types::{DescriptorProto, EnumDescriptorProto, FieldDescriptorProto, FileDescriptorProto};

/// Everything by its full name, such as `.etcdserverpb.RangeRequest`.
#[derive(Default)]
struct Known<'a> {
    messages: BTreeMap<String, &'a DescriptorProto>,
    enums: BTreeMap<String, &'a EnumDescriptorProto>,
}

pub fn tables(files: &[FileDescriptorProto]) -> String {
    let mut known = Known::default();
    for file in files {
        known.take(&format!(".{}", file.package()), &file.message_type, &file.enum_type);
    }
    let mut out = String::from("/// All messages.\npub static MESSAGES: &[Message] = &[\n");
    for message in known.messages.values() {
        out.push_str("    Message { fields: &[\n");
        for field in &message.field {
            known.field(field, &mut out);
        }
        out.push_str("    ] },\n");
    }
    out.push_str("];\n/// All enumerations: names and numbers.\npub static ENUMS: &[&[(&str, i32)]] = &[\n");
    for names in known.enums.values() {
        let values = names.value.iter().map(|value| format!("({:?}, {})", value.name(), value.number()));
        line(&mut out, &format!("    &[{}],", values.collect::<Vec<_>>().join(", ")));
    }
    out.push_str("];\n/// All methods.\npub static CALLS: &[Call] = &[\n");
    for (file, service) in files.iter().flat_map(|file| file.service.iter().map(move |service| (file, service))) {
        for method in &service.method {
            let path = format!("/{}.{}/{}", file.package(), service.name(), method.name());
            let (request, response) =
                (place(&known.messages, method.input_type()), place(&known.messages, method.output_type()));
            line(&mut out, &format!("    Call {{ path: {path:?}, request: {request}, response: {response} }},"));
        }
    }
    out.push_str("];\n");
    out
}

fn line(out: &mut String, text: &str) {
    // A String takes everything.
    let _ = writeln!(out, "{text}");
}

fn place<T>(all: &BTreeMap<String, T>, name: &str) -> usize {
    all.keys().position(|known| known == name).unwrap_or_else(|| panic!("{name} is not defined"))
}

impl<'a> Known<'a> {
    fn take(&mut self, scope: &str, messages: &'a [DescriptorProto], enums: &'a [EnumDescriptorProto]) {
        for names in enums {
            self.enums.insert(format!("{scope}.{}", names.name()), names);
        }
        for message in messages {
            let name = format!("{scope}.{}", message.name());
            self.take(&name, &message.nested_type, &message.enum_type);
            self.messages.insert(name, message);
        }
    }

    fn field(&self, field: &FieldDescriptorProto, out: &mut String) {
        use prost_types::field_descriptor_proto::{Label, Type};
        let kind = match field.r#type() {
            Type::Int64 => "Int64".into(),
            Type::Uint64 => "Uint64".into(),
            Type::Uint32 => "Uint32".into(),
            Type::Bool => "Bool".into(),
            Type::String => "String".into(),
            Type::Bytes => "Bytes".into(),
            Type::Enum => format!("Enum({})", place(&self.enums, field.type_name())),
            Type::Message => format!("Message({})", place(&self.messages, field.type_name())),
            other => panic!("{} is of a type that the gateway does not know: {other:?}", field.name()),
        };
        let (name, json, number) = (field.name(), field.json_name(), field.number());
        let is_repeated = field.label() == Label::Repeated;
        line(
            out,
            &format!(
                "        Field {{ name: {name:?}, json: {json:?}, number: {number}, kind: Kind::{kind}, is_repeated: {is_repeated} }},"
            ),
        );
    }
}
