//! A persistent B-tree by key, with order statistics: clones share nodes, and writers copy what
//! clones hold.

use std::sync::Arc;

use crate::range::KeyRange;

/// Entries of a leaf and children of an inner node, at most.
const FANOUT: usize = 64;
/// A child with fewer is merged with a neighbour if both fit in three quarters of a node.
const SPARSE: usize = FANOUT / 4;

/// Entries that a full leaf grows by: doubling would waste half of each copied leaf.
const SPARE: usize = 4;

/// Where a key-value lies in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// The record.
    pub(crate) record: u64,
    /// The first byte in it.
    pub(crate) start: u32,
    /// Bytes; the top bit says that it is a deletion.
    length: u32,
}

const DELETED: u32 = 1 << 31;

impl Place {
    pub(crate) fn put(record: u64, start: u32, length: u32) -> Self {
        Self { record, start, length }
    }

    pub(crate) fn deletion(record: u64, start: u32, length: u32) -> Self {
        Self { record, start, length: length | DELETED }
    }

    pub(crate) fn from_raw(record: u64, start: u32, length: u32) -> Self {
        Self { record, start, length }
    }

    pub(crate) fn raw_length(self) -> u32 {
        self.length
    }

    pub(crate) fn is_deletion(self) -> bool {
        self.length & DELETED != 0
    }

    /// The bytes in the record.
    pub(crate) fn span(self) -> std::ops::Range<usize> {
        let start = self.start as usize;
        start..start + (self.length & !DELETED) as usize
    }
}

/// A key and its latest change.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) key: Arc<[u8]>,
    pub(crate) revision: i64,
    pub(crate) place: Place,
}

impl Entry {
    pub(crate) fn is_live(&self) -> bool {
        !self.place.is_deletion()
    }
}

#[derive(Clone, Debug)]
enum Node {
    Leaf(Vec<Entry>),
    Inner(Vec<Child>),
}

#[derive(Clone, Debug)]
struct Child {
    /// No key below is less.
    first: Arc<[u8]>,
    live: usize,
    node: Arc<Node>,
}

impl Node {
    fn live(&self) -> usize {
        match self {
            Self::Leaf(entries) => entries.iter().filter(|e| e.is_live()).count(),
            Self::Inner(children) => children.iter().map(|c| c.live).sum(),
        }
    }

    fn len(&self) -> usize {
        match self {
            Self::Leaf(entries) => entries.len(),
            Self::Inner(children) => children.len(),
        }
    }

    fn first(&self) -> Arc<[u8]> {
        match self {
            Self::Leaf(entries) => entries[0].key.clone(),
            Self::Inner(children) => children[0].first.clone(),
        }
    }

    /// Splits a full node; one that grows at its end stays full, as sorted input fills nodes.
    fn split(&mut self, at_end: bool) -> Option<Child> {
        if self.len() <= FANOUT {
            return None;
        }
        let at = if at_end { FANOUT } else { FANOUT / 2 };
        let right = match self {
            Self::Leaf(entries) => {
                let right = entries.split_off(at);
                entries.shrink_to_fit();
                Self::Leaf(right)
            }
            Self::Inner(children) => Self::Inner(children.split_off(at)),
        };
        Some(Child { first: right.first(), live: right.live(), node: Arc::new(right) })
    }

    fn absorb(&mut self, right: Self) {
        match (self, right) {
            (Self::Leaf(entries), Self::Leaf(more)) => entries.extend(more),
            (Self::Inner(children), Self::Inner(more)) => children.extend(more),
            _ => unreachable!("neighbours have one height"),
        }
    }
}

/// The child that holds a key, if any does.
fn child_of(children: &[Child], key: &[u8]) -> usize {
    children.partition_point(|c| c.first.as_ref() <= key).saturating_sub(1)
}

fn insert(node: &mut Arc<Node>, entry: Entry) -> Option<Child> {
    let node = Arc::make_mut(node);
    let at_end = match node {
        Node::Leaf(entries) => match entries.binary_search_by(|e| e.key.cmp(&entry.key)) {
            Ok(at) => {
                // The older key is kept, so that the key's bytes stay shared.
                entries[at].revision = entry.revision;
                entries[at].place = entry.place;
                false
            }
            Err(at) => {
                let at_end = at == entries.len();
                if entries.len() == entries.capacity() {
                    entries.reserve_exact(SPARE);
                }
                entries.insert(at, entry);
                at_end
            }
        },
        Node::Inner(children) => {
            let at = child_of(children, &entry.key);
            let child = &mut children[at];
            if entry.key < child.first {
                child.first = entry.key.clone();
            }
            let right = insert(&mut child.node, entry);
            child.live = child.node.live();
            let at_end = at + 1 == children.len();
            if let Some(right) = right {
                children.insert(at + 1, right);
            }
            at_end
        }
    };
    node.split(at_end)
}

fn remove(node: &mut Arc<Node>, key: &[u8]) {
    match Arc::make_mut(node) {
        Node::Leaf(entries) => {
            if let Ok(at) = entries.binary_search_by(|e| e.key.as_ref().cmp(key)) {
                entries.remove(at);
            }
        }
        Node::Inner(children) => {
            let at = child_of(children, key);
            remove(&mut children[at].node, key);
            children[at].live = children[at].node.live();
            if children[at].node.len() == 0 {
                children.remove(at);
            } else if children[at].node.len() < SPARSE {
                merge(children, at.saturating_sub(1));
            }
        }
    }
}

/// Merges a child with its right neighbour if they fit.
fn merge(children: &mut Vec<Child>, at: usize) {
    let fits = |c: &[Child]| c[0].node.len() + c[1].node.len() <= FANOUT / 4 * 3;
    if children.get(at..at + 2).is_some_and(fits) {
        let right = children.remove(at + 1);
        let left = &mut children[at];
        Arc::make_mut(&mut left.node).absorb(Arc::unwrap_or_clone(right.node));
        left.live += right.live;
    }
}

/// The tree.
#[derive(Clone, Debug)]
pub(crate) struct Tree {
    root: Arc<Node>,
}

impl Default for Tree {
    fn default() -> Self {
        Self { root: Arc::new(Node::Leaf(Vec::new())) }
    }
}

impl Tree {
    pub(crate) fn get(&self, key: &[u8]) -> Option<&Entry> {
        let mut node = self.root.as_ref();
        loop {
            match node {
                Node::Leaf(entries) => {
                    let at = entries.binary_search_by(|e| e.key.as_ref().cmp(key)).ok()?;
                    return Some(&entries[at]);
                }
                Node::Inner(children) => node = &children[child_of(children, key)].node,
            }
        }
    }

    /// Inserts or replaces.
    pub(crate) fn insert(&mut self, entry: Entry) {
        if let Some(right) = insert(&mut self.root, entry) {
            let left = self.root.clone();
            let left = Child { first: left.first(), live: left.live(), node: left };
            self.root = Arc::new(Node::Inner(vec![left, right]));
        }
    }

    pub(crate) fn remove(&mut self, key: &[u8]) {
        remove(&mut self.root, key);
        let only = match self.root.as_ref() {
            Node::Inner(children) if children.is_empty() => Arc::new(Node::Leaf(Vec::new())),
            Node::Inner(children) if children.len() == 1 => children[0].node.clone(),
            _ => return,
        };
        self.root = only;
    }

    /// Live keys in a range, in O(log n).
    pub(crate) fn count(&self, range: &KeyRange) -> usize {
        if let Some(key) = range.single() {
            return self.get(key).is_some_and(Entry::is_live).into();
        }
        let end = range.end().map_or_else(|| self.root.live(), |end| self.rank(&end));
        end.saturating_sub(self.rank(range.start()))
    }

    /// Live keys below a key.
    fn rank(&self, key: &[u8]) -> usize {
        let mut below = 0;
        let mut node = self.root.as_ref();
        loop {
            match node {
                Node::Leaf(entries) => {
                    let under = entries.iter().take_while(|e| e.key.as_ref() < key);
                    return below + under.filter(|e| e.is_live()).count();
                }
                Node::Inner(children) => {
                    let at = child_of(children, key);
                    below += children[..at].iter().map(|c| c.live).sum::<usize>();
                    node = &children[at].node;
                }
            }
        }
    }

    /// Entries of a range in order, deletions included.
    pub(crate) fn range<'a>(&'a self, range: &'a KeyRange) -> Iter<'a> {
        let mut iter = Iter { stack: Vec::new(), range };
        let mut node = self.root.as_ref();
        loop {
            match node {
                Node::Leaf(entries) => {
                    let start = range.start().as_ref();
                    iter.stack.push((node, entries.partition_point(|e| e.key.as_ref() < start)));
                    return iter;
                }
                Node::Inner(children) => {
                    let at = child_of(children, range.start());
                    iter.stack.push((node, at + 1));
                    node = &children[at].node;
                }
            }
        }
    }
}

/// Entries of a range, in order.
pub(crate) struct Iter<'a> {
    stack: Vec<(&'a Node, usize)>,
    range: &'a KeyRange,
}

impl<'a> Iterator for Iter<'a> {
    type Item = &'a Entry;

    fn next(&mut self) -> Option<&'a Entry> {
        loop {
            let (node, at) = self.stack.last_mut()?;
            let index = *at;
            *at += 1;
            match node {
                Node::Leaf(entries) => {
                    if let Some(entry) = entries.get(index) {
                        return self.range.ends_after(&entry.key).then_some(entry);
                    }
                    self.stack.pop();
                }
                Node::Inner(children) => match children.get(index) {
                    Some(child) => self.stack.push((&child.node, 0)),
                    None => drop(self.stack.pop()),
                },
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use bytes::Bytes;
    use proptest::prelude::*;

    use super::*;

    fn entry(key: u16, live: bool, revision: i64) -> Entry {
        let place = if live { Place::put(0, 0, 1) } else { Place::deletion(0, 0, 1) };
        Entry { key: key.to_be_bytes().as_slice().into(), revision, place }
    }

    fn bytes(key: u16) -> Bytes {
        Bytes::copy_from_slice(&key.to_be_bytes())
    }

    proptest! {
        #[test]
        fn it_equals_an_ordered_map(
            changes in prop::collection::vec((0u16..2000, 0u8..4), 0..6000),
            queries in prop::collection::vec((0u16..2000, 0u16..2000), 20),
        ) {
            let mut tree = Tree::default();
            let mut model = BTreeMap::new();
            let mut held = Vec::new();
            for (at, (key, kind)) in changes.iter().enumerate() {
                if *kind == 0 {
                    tree.remove(&key.to_be_bytes());
                    model.remove(key);
                } else {
                    tree.insert(entry(*key, *kind != 1, at as i64));
                    model.insert(*key, (*kind != 1, at as i64));
                }
                if at % 1500 == 7 {
                    held.push((tree.clone(), model.clone()));
                }
            }
            held.push((tree, model));
            for (tree, model) in held {
                for (from, to) in &queries {
                    let range = KeyRange::new(&bytes(*from), &bytes((*to).max(256)));
                    let to = (*to).max(256);
                    let want: Vec<_> =
                        model.iter().filter(|(k, _)| *k >= from && **k < to).collect();
                    let live = want.iter().filter(|(_, (live, _))| *live).count();
                    prop_assert_eq!(tree.count(&range), live);
                    let got: Vec<_> = tree.range(&range).map(|e| e.revision).collect();
                    let want: Vec<_> = want.iter().map(|(_, (_, at))| *at).collect();
                    prop_assert_eq!(got, want);
                }
                let all = KeyRange::all();
                prop_assert_eq!(tree.range(&all).count(), model.len());
                for (key, (_, at)) in &model {
                    prop_assert_eq!(tree.get(&key.to_be_bytes()).map(|e| e.revision), Some(*at));
                }
            }
        }
    }
}
