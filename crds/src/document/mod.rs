//! From the bytes of a file to typed objects, with one clear error for each mistake.
//!
//! The same rules as the API server's: structure from the generated schema ([`structure`]), then CEL, which is not asked about an object
//! of the wrong structure; and what CEL cannot put into words ([`sense`]), which is asked in any case. Every error names
//! the file, the field and the remedy, in one line. Nothing here reads files; bytes come in as an argument.

mod metadata;
mod sense;
mod structure;
mod text;

use std::sync::{LazyLock, OnceLock};

use kube::core::cel::{CompiledSchema, ValidationError, Validator, compile_schema};
use serde::de::DeserializeOwned;
use serde_json::Value;

pub use self::sense::of_run as sense_of_run;
pub use self::structure::nearest;
use self::text::{folded, shorten};
use crate::job::JobSpec;
use crate::{
    BenchmarkBaseline, BenchmarkRun, BenchmarkSchedule, BenchmarkSuite, ControlPlane, GROUP, StorageService, VERSION,
    WorkloadTemplate, schema,
};

/// Files above this size are refused, bytes. The API server's own limit for an object is 1.5 MiB.
pub const FILE_BYTES_MAX: usize = 1 << 20;
/// Documents in a file above this number are refused.
pub const DOCUMENTS_MAX: usize = 64;

macro_rules! kinds {
    ($($(#[$doc:meta])+ $Kind:ident is $Role:ident,)+) => {
        /// One object of a file.
        #[derive(Clone, Debug, PartialEq)]
        #[allow(clippy::large_enum_variant)]
        pub enum Object {
            $($(#[$doc])+ $Kind($Kind),)+
        }

        impl Object {
            /// Its kind.
            pub fn kind(&self) -> &'static str {
                match self {
                    $(Self::$Kind(_) => stringify!($Kind),)+
                }
            }

            /// Its name.
            pub fn name(&self) -> &str {
                let metadata = match self {
                    $(Self::$Kind(object) => &object.metadata,)+
                };
                metadata.name.as_deref().unwrap_or_default()
            }
        }

        /// How an object of a kind is read: the object, if nothing is wrong with it.
        type Read = fn(&'static str, Value, &mut Vec<Problem>) -> Option<Object>;

        /// The kinds that users write, what each is to others, and how it is read.
        const READ: &[(&str, Role, Read)] = &[
            $((stringify!($Kind), Role::$Role, |kind, value, problems| typed(kind, value, problems).map(Object::$Kind)),)+
        ];

        /// The kinds that users write.
        pub const KINDS: [&str; READ.len()] = [$(stringify!($Kind)),+];
    };
}

/// What an object is to others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Others refer to it by its name.
    Shared,
    /// It refers to others, and may have its name generated: nobody names it.
    Comparison,
    /// It refers to others, and has a name of its own.
    NamedComparison,
}

kinds! {
    /// A store to deploy.
    StorageService is Shared,
    /// Kubernetes on a store.
    ControlPlane is Shared,
    /// A workload that runs share.
    WorkloadTemplate is Shared,
    /// A comparison to run.
    BenchmarkRun is Comparison,
    /// What a run measured, kept.
    BenchmarkBaseline is NamedComparison,
    /// A matrix of comparisons.
    BenchmarkSuite is Comparison,
    /// Comparisons by the clock.
    BenchmarkSchedule is NamedComparison,
}

/// What objects of a kind are to others; `None`: users write no such kind.
pub fn role(kind: &str) -> Option<Role> {
    READ.iter().find(|(name, ..)| *name == kind).map(|(_, role, _)| *role)
}

/// Why a file, or an object in it, was refused. Displays as `file: field: problem`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{file}: {}{problem}", if field.is_empty() { String::new() } else { format!("{field}: ") })]
pub struct InputError {
    /// The file's name.
    pub file: String,
    /// The field, such as `BenchmarkRun/demo spec.arms[0].name`; empty where the file as a whole is meant.
    pub field: String,
    /// What is wrong, and the remedy, in one line.
    pub problem: String,
}

/// A problem at a field, before it is known which file and object it is in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Problem {
    pub(crate) field: String,
    pub(crate) text: String,
}

/// What a file holds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Parsed {
    /// The objects that can be understood, in the order written.
    pub objects: Vec<Object>,
    /// What is wrong with the others, or with the file.
    pub problems: Vec<InputError>,
    /// Kind and name of the others; the kind that was probably meant where it is misspelt, and no name where there is none that can be one.
    /// Whoever refers to one is not wrong in that.
    pub refused: Vec<(&'static str, String)>,
    /// Whether an object is of no kind that is known, and of none that resembles one: nobody can tell what it is to the others.
    pub has_unknown: bool,
}

/// Reads all objects of a file.
pub fn parse(file: &str, bytes: &[u8]) -> Parsed {
    match documents(file, bytes) {
        Err(error) => Parsed { problems: vec![error], ..Parsed::default() },
        Ok(documents) => {
            let mut parsed = Parsed::default();
            for (index, document) in documents.into_iter().enumerate() {
                object(file, index, document, &mut parsed);
            }
            parsed
        }
    }
}

fn documents(file: &str, bytes: &[u8]) -> Result<Vec<Value>, InputError> {
    let whole = |problem: String| InputError { file: file.into(), field: String::new(), problem };
    if bytes.len() > FILE_BYTES_MAX {
        return Err(whole(format!(
            "is larger than {} KiB, which no run needs: pass a smaller file",
            FILE_BYTES_MAX / 1024
        )));
    }
    let text = std::str::from_utf8(bytes).ok().filter(|text| !text.contains('\0'));
    let text = text.ok_or_else(|| whole("is not text: pass a YAML file in UTF-8".into()))?;
    // The parser would keep comments for us, and refuses a file with more than it can keep.
    let options = serde_yaml::options! { with_snippet: false, emit_comments: false };
    let documents: Vec<Value> =
        serde_yaml::from_multiple_with_options(text, options).map_err(|error| whole(text::not_yaml(&error)))?;
    let documents: Vec<Value> = documents.into_iter().filter(|document| !document.is_null()).collect();
    if documents.is_empty() {
        return Err(whole("holds no object: write a BenchmarkRun and its StorageServices".into()));
    }
    if documents.len() > DOCUMENTS_MAX {
        return Err(whole(format!("holds more than {DOCUMENTS_MAX} objects: split the file")));
    }
    Ok(documents)
}

fn object(file: &str, index: usize, mut value: Value, parsed: &mut Parsed) {
    let at = |object: &str, problem: Problem| InputError {
        file: file.into(),
        field: [object, problem.field.as_str()]
            .iter()
            .filter(|part| !part.is_empty())
            .copied()
            .collect::<Vec<_>>()
            .join(" "),
        problem: problem.text,
    };
    let document = format!("document {}", index + 1);
    let (kind, role, read) = match identify(&value) {
        Ok(known) => known,
        Err(problem) => {
            match meant(&value) {
                Some(kind) => parsed.refused.push((kind, name_of(&value).unwrap_or_default())),
                None => parsed.has_unknown = true,
            }
            return parsed.problems.push(at(&document, problem));
        }
    };
    if role == Role::Comparison {
        take_generated_name(&mut value);
    }
    let name = name_of(&value);
    let label = name.as_ref().map_or(document, |name| format!("{kind}/{name}"));
    let outside = metadata::check(value.get("metadata")).err().into_iter().chain(only_known_fields(&value).err());
    let mut problems: Vec<Problem> = outside.collect();
    let understood = read(kind, value, &mut problems);
    match understood.filter(|_| problems.is_empty()) {
        Some(object) => parsed.objects.push(object),
        None => parsed.refused.push((kind, name.unwrap_or_default())),
    }
    parsed.problems.extend(problems.into_iter().map(|problem| at(&label, problem)));
}

/// The object's name, if it can be one.
fn name_of(value: &Value) -> Option<String> {
    value["metadata"]["name"].as_str().filter(|name| metadata::is_name(name)).map(str::to_owned)
}

/// The kind that an object is probably of.
fn meant(value: &Value) -> Option<&'static str> {
    structure::nearest(value["kind"].as_str()?, KINDS)
}

/// The kind and how it is read, if apiVersion and kind are ours.
fn identify(value: &Value) -> Result<(&'static str, Role, Read), Problem> {
    let problem = |field: &str, text: String| Problem { field: field.into(), text };
    if !value.is_object() {
        let text = "is not an object: start with apiVersion, kind, metadata and spec";
        return Err(problem("", text.into()));
    }
    let api_version = format!("{GROUP}/{VERSION}");
    match &value["apiVersion"] {
        Value::String(found) if *found == api_version => {}
        Value::Null => {
            let text = format!("is missing: write apiVersion: {api_version}");
            return Err(problem("apiVersion", text));
        }
        found => {
            let text = format!("{} is not known: write {api_version}", quote(found));
            return Err(problem("apiVersion", text));
        }
    }
    let write = || format!("write {} or {}", KINDS[..KINDS.len() - 1].join(", "), KINDS[KINDS.len() - 1]);
    match &value["kind"] {
        Value::Null => Err(problem("kind", format!("is missing: {}", write()))),
        found => READ.iter().copied().find(|(kind, ..)| found == kind).ok_or_else(|| {
            let remedy = meant(value).map_or_else(write, |kind| format!("did you mean {kind}? Else {}", write()));
            problem("kind", format!("{} is not known: {remedy}", quote(found)))
        }),
    }
}

/// Where nobody generates names, what has only a `generateName` is called by it, without the dash at its end: a pipeline that creates a new
/// run each time keeps one history.
fn take_generated_name(value: &mut Value) {
    let metadata = &value["metadata"];
    if let (Value::Null, Some(prefix)) = (&metadata["name"], metadata["generateName"].as_str()) {
        value["metadata"]["name"] = prefix.trim_end_matches('-').into();
    }
}

fn quote(value: &Value) -> String {
    match value {
        Value::String(text) => format!("`{}`", shorten(text)),
        other => structure::describe(other),
    }
}

fn only_known_fields(value: &Value) -> Result<(), Problem> {
    let unknown = value
        .as_object()
        .into_iter()
        .flat_map(serde_json::Map::keys)
        .find(|key| !matches!(key.as_str(), "apiVersion" | "kind" | "metadata" | "spec" | "status"));
    match unknown {
        Some(key) => Err(Problem {
            field: shorten(key),
            text: "is not a field of an object: put it under spec, or remove it".into(),
        }),
        None => Ok(()),
    }
}

/// Reads a job, and holds it to the rules of a run: it can come from anywhere, and nothing that runs it may stumble over a value.
///
/// # Errors
/// One line that names the field, and the remedy.
pub fn job(text: &str) -> Result<JobSpec, JobError> {
    static RULES: LazyLock<Rules> = LazyLock::new(|| Rules::new(schema::of_job()));
    let refused = |Problem { field, text }: Problem| JobError(format!("{}: {text}", field.trim_start_matches('.')));
    let value: Value =
        serde_json::from_str(text).map_err(|error| JobError(folded(&format!("the job is not JSON: {error}"))))?;
    structure::check_whole(&RULES.schema, &value).map_err(refused)?;
    RULES.check(&value).into_iter().next().map_or(Ok(()), Err).map_err(refused)?;
    serde_json::from_value(value).map_err(|error| JobError(folded(&format!("the job does not fit: {error}"))))
}

/// Holds the spec of a template to the rules of its kind, as if it stood in an object of its own.
///
/// # Errors
/// All that is wrong with it: the field, such as `spec.arms[0].name`, and the text, with the remedy.
pub fn of_template<T: DeserializeOwned>(kind: &'static str, value: Value) -> Result<T, Vec<(String, String)>> {
    let mut problems: Vec<Problem> = metadata::check(value.get("metadata")).err().into_iter().collect();
    let object = typed(kind, value, &mut problems).filter(|_| problems.is_empty());
    object.ok_or_else(|| problems.into_iter().map(|Problem { field, text }| (field, text)).collect())
}

/// Why a job is refused: one line that begins with the field.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct JobError(String);

/// The object, if nothing is wrong with it.
fn typed<T: DeserializeOwned>(kind: &str, mut value: Value, problems: &mut Vec<Problem>) -> Option<T> {
    // As on the API server, status is not the user's to write.
    if let Some(fields) = value.as_object_mut() {
        fields.remove("status");
    }
    let Some(rules) = Rules::of(kind) else {
        let text = format!("{kind} has no schema: this is a defect of storebench");
        problems.push(Problem { field: "kind".into(), text });
        return None;
    };
    let mut found = structure::check(&rules.schema, &value);
    let is_whole = found.is_empty();
    let is_named = problems.is_empty();
    if kind == "BenchmarkRun" {
        let sense = sense::check("spec", &value["spec"]);
        // Who knows what a field means says it better, and once.
        found.retain(|problem| sense.iter().all(|said| !said.is_of_value || said.problem.field != problem.field));
        found.extend(sense.into_iter().map(|said| said.problem));
    }
    if is_whole {
        // What was said of one gate need not be said of gates, nor of the name what was said of metadata.
        let is_said = |problem: &Problem| match problem.field.as_str() {
            "" => !is_named,
            field => found.iter().any(|said| is_of(&said.field, field)),
        };
        let further: Vec<Problem> = rules.check(&value).into_iter().filter(|problem| !is_said(problem)).collect();
        found.extend(further);
    }
    let is_right = found.is_empty();
    problems.extend(found);
    if !is_right || !is_named {
        return None;
    }
    // What the schema leaves open in the types of Kubernetes itself.
    let read = serde_json::from_value(value).map_err(|error| Problem {
        field: "spec".into(),
        text: format!("does not fit: {}; correct it", folded(&error.to_string())),
    });
    read.map_err(|problem| problems.push(problem)).ok()
}

/// Whether a field is another one or a part of it.
fn is_of(field: &str, whole: &str) -> bool {
    field.strip_prefix(whole).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
}

/// The rules of a kind, compiled once in a process: it takes longer than everything else that is done with a file.
struct Rules {
    schema: Value,
    compiled: CompiledSchema,
}

impl Rules {
    fn new(schema: Value) -> Self {
        Self { compiled: compile_schema(&schema), schema }
    }

    /// Which rules in CEL do not hold.
    fn check(&self, value: &Value) -> Vec<Problem> {
        let broken = Validator::new().validate_compiled(&self.compiled, value, None).err();
        let problem = |error: ValidationError| Problem {
            field: error.field_path.trim_start_matches('.').into(),
            text: folded(&error.message),
        };
        let mut problems: Vec<Problem> = broken.into_iter().flatten().map(problem).collect();
        // One rule may be written in several ways.
        problems.dedup();
        problems
    }

    /// Those of a run stand in a suite and in a schedule once more: of each kind they are compiled when the first object of it is read.
    fn of(kind: &str) -> Option<&'static Self> {
        static ALL: [OnceLock<Option<Rules>>; KINDS.len()] = [const { OnceLock::new() }; KINDS.len()];
        let position = KINDS.iter().position(|one| *one == kind)?;
        let rules = || Some(Rules::new(schema::of_kind(kind)?));
        ALL[position].get_or_init(rules).as_ref()
    }
}
