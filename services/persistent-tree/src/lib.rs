//! An ordered, persistent tree: a clone costs a reference, and keeps what it saw while the original goes on changing.
//!
//! A B+ tree whose nodes are shared. A change copies the nodes on its path that a clone shares, and changes the others in place,
//! so that a batch of changes between two clones copies each node once. A node is one allocation, with its entries or children
//! inside: a search takes one step through the memory for each. Every child is kept with its number of entries: how many entries
//! lie in a range takes two descents.
//!
//! There is no type of keys. [`Entry::order`] orders entries, and a search is a *probe*: a function that says how an entry
//! compares with what is sought, as in [`slice::binary_search_by`].
//!
//! Invariants: entries are in order, none equal; [`Inner::first`] is the first entry below it, so that no entry that has been
//! replaced stays alive; no node but the root is empty; all leaves have the same depth.
//!
//! Nodes are small, because copying one costs an atomic increment for each of its entries or children, and its end the same again.
//! With 32 of each, and beside every child its first entry, a put of one key again and again took 10.2 µs instead of 5.9, of random
//! keys 16.1 instead of 10.7 (`benches/store.rs` of `rusd` with 300,000 keys, batches of 1, processor time on a busy machine).

use std::cmp::Ordering;
use std::mem;
use std::sync::Arc;

use arrayvec::ArrayVec;

mod iterate;
#[cfg(test)]
mod tests;

pub use iterate::Iter;

/// Most entries of a leaf. Copying it touches the reference count of each, and those lie all over the memory.
const LEAF_MAX: usize = 16;
/// Most children of an inner node.
const INNER_MAX: usize = 16;

/// What stands in a tree. Clones are made when nodes are copied, and should cost a reference.
pub trait Entry: Clone {
    /// The place of an entry among the others; equal ones replace each other.
    fn order(&self, other: &Self) -> Ordering;
}

/// An ordered, persistent tree.
#[derive(Clone, Debug)]
pub struct Tree<E> {
    root: Node<E>,
    len: usize,
}

type Entries<E> = ArrayVec<E, LEAF_MAX>;
type Children<E> = ArrayVec<Child<E>, INNER_MAX>;

/// A reference to a node. A leaf takes no more than its entries need: that is why not both are in one allocation of one type.
#[derive(Clone, Debug)]
enum Node<E> {
    Leaf(Arc<Entries<E>>),
    Inner(Arc<Inner<E>>),
}

#[derive(Clone, Debug)]
struct Inner<E> {
    /// The first entry below.
    first: E,
    children: Children<E>,
}

#[derive(Clone, Debug)]
struct Child<E> {
    len: usize,
    node: Node<E>,
}

/// What an insertion did to a node.
struct Inserted<E> {
    replaced: Option<E>,
    /// What did not fit: the node's next neighbour.
    right: Option<Child<E>>,
    first_changed: bool,
}

/// What a removal did to a node.
struct Removed<E> {
    entry: E,
    first_changed: bool,
}

impl<E: Entry> Default for Tree<E> {
    fn default() -> Self {
        Self { root: Node::leaf(Entries::new()), len: 0 }
    }
}

impl<E: Entry> Tree<E> {
    /// How many entries it has.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The first entry.
    pub fn first(&self) -> Option<&E> {
        self.root.first()
    }

    /// The last entry.
    pub fn last(&self) -> Option<&E> {
        let mut node = &self.root;
        loop {
            match node {
                Node::Leaf(entries) => return entries.last(),
                Node::Inner(inner) => node = &inner.children.last()?.node,
            }
        }
    }

    /// The entry that compares equal.
    pub fn get(&self, probe: impl Fn(&E) -> Ordering) -> Option<&E> {
        self.floor(&probe).filter(|entry| probe(entry).is_eq())
    }

    /// The last entry that compares less or equal.
    pub fn floor(&self, probe: impl Fn(&E) -> Ordering) -> Option<&E> {
        let mut node = &self.root;
        loop {
            match node {
                Node::Leaf(entries) => {
                    let after = entries.partition_point(|entry| probe(entry).is_le());
                    return after.checked_sub(1).map(|at| &entries[at]);
                }
                Node::Inner(inner) => {
                    let children = &inner.children;
                    let after = children.partition_point(|child| child.begins(|first| probe(first).is_le()));
                    node = &children[after.checked_sub(1)?].node;
                }
            }
        }
    }

    /// How many entries compare less.
    pub fn rank(&self, probe: impl Fn(&E) -> Ordering) -> usize {
        let mut before = 0;
        let mut node = &self.root;
        loop {
            match node {
                Node::Leaf(entries) => return before + entries.partition_point(|entry| probe(entry).is_lt()),
                Node::Inner(inner) => {
                    let children = &inner.children;
                    let after = children.partition_point(|child| child.begins(|first| probe(first).is_lt()));
                    let Some(at) = after.checked_sub(1) else { return before };
                    before += children[..at].iter().map(|child| child.len).sum::<usize>();
                    node = &children[at].node;
                }
            }
        }
    }

    /// All entries in order.
    pub fn iter(&self) -> Iter<'_, E> {
        self.iter_from(|_| Ordering::Greater)
    }

    /// The entries that compare equal or greater, in order.
    pub fn iter_from(&self, probe: impl Fn(&E) -> Ordering) -> Iter<'_, E> {
        Iter::new(&self.root, probe)
    }

    /// Puts an entry in; what it replaced comes back.
    pub fn insert(&mut self, entry: E) -> Option<E> {
        let Inserted { replaced, right, .. } = insert(&mut self.root, entry);
        self.len += usize::from(replaced.is_none());
        if let Some(right) = right {
            let left = mem::replace(&mut self.root, Node::leaf(Entries::new()));
            let children = Children::from_iter([Child::of(left), right]);
            if let Some(root) = Node::inner(children) {
                self.root = root;
            }
        }
        replaced
    }

    /// Takes the entry out that compares equal.
    pub fn remove(&mut self, probe: impl Fn(&E) -> Ordering) -> Option<E> {
        // What is not there shall copy nothing.
        self.get(&probe)?;
        let Removed { entry, .. } = remove(&mut self.root, &probe)?;
        self.len -= 1;
        while let Node::Inner(inner) = &self.root
            && let [only] = inner.children.as_slice()
        {
            self.root = only.node.clone();
        }
        Some(entry)
    }
}

impl<E> Node<E> {
    fn leaf(entries: Entries<E>) -> Self {
        Self::Leaf(Arc::new(entries))
    }
}

impl<E: Entry> Node<E> {
    /// `None` without children.
    fn inner(children: Children<E>) -> Option<Self> {
        let first = children.first()?.node.first()?.clone();
        Some(Self::Inner(Arc::new(Inner { first, children })))
    }

    fn len(&self) -> usize {
        match self {
            Self::Leaf(entries) => entries.len(),
            Self::Inner(inner) => inner.children.iter().map(|child| child.len).sum(),
        }
    }

    fn first(&self) -> Option<&E> {
        match self {
            Self::Leaf(entries) => entries.first(),
            Self::Inner(inner) => Some(&inner.first),
        }
    }

    /// Whether one node has room for what is in both.
    fn fits(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Leaf(one), Self::Leaf(other)) => one.len() + other.len() <= LEAF_MAX,
            (Self::Inner(one), Self::Inner(other)) => one.children.len() + other.children.len() <= INNER_MAX,
            _ => false,
        }
    }

    fn is_small(&self) -> bool {
        match self {
            Self::Leaf(entries) => entries.len() < LEAF_MAX / 4,
            Self::Inner(inner) => inner.children.len() < INNER_MAX / 4,
        }
    }
}

impl<E: Entry> Child<E> {
    fn of(node: Node<E>) -> Self {
        Self { len: node.len(), node }
    }

    /// Asks for the first entry.
    fn begins(&self, asks: impl FnOnce(&E) -> bool) -> bool {
        self.node.first().is_none_or(asks)
    }
}

impl<E: Entry> Inner<E> {
    /// The first child has a new first entry.
    fn measure(&mut self) {
        if let Some(first) = self.children.first().and_then(|child| child.node.first()) {
            self.first = first.clone();
        }
    }
}

fn insert<E: Entry>(node: &mut Node<E>, entry: E) -> Inserted<E> {
    match node {
        Node::Leaf(entries) => {
            let entries = Arc::make_mut(entries);
            match entries.binary_search_by(|other| other.order(&entry)) {
                Ok(at) => {
                    let replaced = Some(mem::replace(&mut entries[at], entry));
                    Inserted { replaced, right: None, first_changed: at == 0 }
                }
                Err(at) => {
                    let right = put(entries, at, entry).map(|right| Child::of(Node::leaf(right)));
                    Inserted { replaced: None, right, first_changed: at == 0 }
                }
            }
        }
        Node::Inner(inner) => {
            let inner = Arc::make_mut(inner);
            let after = inner.children.partition_point(|child| child.begins(|first| first.order(&entry).is_le()));
            let at = after.saturating_sub(1);
            let child = &mut inner.children[at];
            let Inserted { replaced, right, first_changed } = insert(&mut child.node, entry);
            child.len += usize::from(replaced.is_none());
            let first_changed = first_changed && at == 0;
            if first_changed {
                inner.measure();
            }
            let right = right.and_then(|right| {
                inner.children[at].len -= right.len;
                put(&mut inner.children, at + 1, right)
            });
            let right = right.and_then(Node::inner).map(Child::of);
            Inserted { replaced, right, first_changed }
        }
    }
}

/// Puts an item in its place; what does not fit comes back. Who appends leaves full nodes behind.
fn put<T, const MAX: usize>(items: &mut ArrayVec<T, MAX>, at: usize, item: T) -> Option<ArrayVec<T, MAX>> {
    if items.len() < MAX {
        items.insert(at, item);
        return None;
    }
    let split = if at == MAX { MAX } else { MAX / 2 };
    let mut right: ArrayVec<T, MAX> = items.drain(split..).collect();
    if at <= split && at < MAX {
        items.insert(at, item);
    } else {
        right.insert(at - split, item);
    }
    Some(right)
}

fn remove<E: Entry>(node: &mut Node<E>, probe: &impl Fn(&E) -> Ordering) -> Option<Removed<E>> {
    match node {
        Node::Leaf(entries) => {
            let entries = Arc::make_mut(entries);
            let at = entries.binary_search_by(probe).ok()?;
            Some(Removed { entry: entries.remove(at), first_changed: at == 0 })
        }
        Node::Inner(inner) => {
            let inner = Arc::make_mut(inner);
            let after = inner.children.partition_point(|child| child.begins(|first| probe(first).is_le()));
            let at = after.checked_sub(1)?;
            let child = &mut inner.children[at];
            let Removed { entry, first_changed } = remove(&mut child.node, probe)?;
            child.len -= 1;
            if child.len == 0 {
                inner.children.remove(at);
            } else if child.node.is_small() {
                join(&mut inner.children, at);
            }
            let first_changed = first_changed && at == 0;
            if first_changed {
                inner.measure();
            }
            Some(Removed { entry, first_changed })
        }
    }
}

/// Joins a small child with a neighbour, if both fit into one.
fn join<E: Entry>(children: &mut Children<E>, at: usize) {
    let fits = |left: usize| {
        let right = children.get(left + 1);
        right.is_some_and(|right| children[left].node.fits(&right.node))
    };
    let Some(left) = [Some(at), at.checked_sub(1)].into_iter().flatten().find(|left| fits(*left)) else { return };
    let right = children.remove(left + 1);
    let left = &mut children[left];
    left.len += right.len;
    match (&mut left.node, right.node) {
        (Node::Leaf(into), Node::Leaf(from)) => Arc::make_mut(into).extend(Arc::unwrap_or_clone(from)),
        (Node::Inner(into), Node::Inner(from)) => {
            Arc::make_mut(into).children.extend(Arc::unwrap_or_clone(from).children);
        }
        // Neighbours have the same depth.
        (Node::Leaf(_), Node::Inner(_)) | (Node::Inner(_), Node::Leaf(_)) => unreachable!("leaves of different depth"),
    }
}
