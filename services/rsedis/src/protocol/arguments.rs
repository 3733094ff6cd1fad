//! The arguments of one command: places in bytes that somebody else holds, or a copy that stands on its own.

/// Where an argument is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) from: u32,
    pub(super) to: u32,
}

/// The arguments of one command, its name first.
#[derive(Clone, Copy, Debug)]
pub struct Args<'a> {
    pub(super) bytes: &'a [u8],
    pub(super) spans: &'a [Span],
}

impl<'a> Args<'a> {
    /// Number of arguments.
    #[inline]
    pub fn len(&self) -> usize {
        self.spans.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    /// An argument that is there: arity was checked.
    #[inline]
    pub fn at(&self, index: usize) -> &'a [u8] {
        let span = self.spans[index];
        &self.bytes[span.from as usize..span.to as usize]
    }

    /// An argument, if it is there.
    #[inline]
    pub fn get(&self, index: usize) -> Option<&'a [u8]> {
        self.spans.get(index).map(|span| &self.bytes[span.from as usize..span.to as usize])
    }

    /// The arguments from an index on.
    pub fn from(&self, index: usize) -> Self {
        Self { bytes: self.bytes, spans: self.spans.get(index..).unwrap_or_default() }
    }

    /// The arguments up to an index.
    pub fn to(&self, index: usize) -> Self {
        Self { bytes: self.bytes, spans: self.spans.get(..index).unwrap_or(self.spans) }
    }

    /// All of them.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &'a [u8]> + Clone + use<'a> {
        let bytes = self.bytes;
        self.spans.iter().map(move |span| &bytes[span.from as usize..span.to as usize])
    }

    /// A copy that stands on its own.
    pub fn to_owned(&self) -> OwnedArgs {
        OwnedArgs::new(self.iter())
    }
}

/// Arguments that stand on their own: queued by MULTI, made by the server.
#[derive(Clone, Debug, Default)]
pub struct OwnedArgs {
    bytes: Vec<u8>,
    spans: Vec<Span>,
}

impl OwnedArgs {
    /// From strings.
    pub fn new<'a>(arguments: impl IntoIterator<Item = &'a [u8]>) -> Self {
        let mut owned = Self::default();
        for argument in arguments {
            owned.push(argument);
        }
        owned
    }

    fn push(&mut self, argument: &[u8]) {
        let from = self.bytes.len() as u32;
        self.bytes.extend_from_slice(argument);
        self.spans.push(Span { from, to: self.bytes.len() as u32 });
    }

    /// To look at.
    pub fn as_args(&self) -> Args<'_> {
        Args { bytes: &self.bytes, spans: &self.spans }
    }

    /// Memory it takes.
    pub fn memory(&self) -> usize {
        self.bytes.capacity() + self.spans.capacity() * size_of::<Span>()
    }
}
