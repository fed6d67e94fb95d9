//! The typed tree: expressions of all filters, each once, children before parents.

use std::collections::HashMap;
use std::sync::Arc;

use crate::types::{Literal, Type};

/// An expression's place in a [`Tree`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct NodeId(u32);

impl NodeId {
    pub(crate) fn index(self) -> usize {
        self.0 as usize
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Arith {
    Add,
    Sub,
    Mul,
    Div,
    Rem,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Compare {
    Eq,
    Ne,
    Lt,
    Le,
}

/// Functions of one number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Math {
    Abs,
    Acos,
    Asin,
    Atan,
    Ceil,
    Cos,
    Degrees,
    Exp,
    Floor,
    Ln,
    Log10,
    Log2,
    Radians,
    Round,
    Sin,
    Sqrt,
    Tan,
}

/// Light-curve functions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Curve {
    CountIf,
    First,
    Last,
    Max,
    Mean,
    Min,
    Slope,
}

/// What an expression does with its arguments.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Op {
    /// A flat column of the catalog, by its index.
    Column(usize),
    /// A field of a history column, both by their index; within a [`Op::Curve`] only.
    Field {
        history: usize,
        field: usize,
    },
    Const(Literal),
    /// To the node's type; a failure is counted, or is just null.
    Cast {
        counted: bool,
    },
    Neg,
    Not,
    IsNull,
    IsTrue,
    Arith(Arith),
    Compare(Compare),
    And,
    Or,
    /// Sorted constants of the argument's type.
    InSet {
        values: Arc<[Literal]>,
        has_null: bool,
    },
    Like {
        pattern: Arc<str>,
        ignore_case: bool,
    },
    /// Condition, then, else.
    If,
    Math(Math),
    Power,
    Atan2,
    IsNan,
    /// AB magnitude of a flux in nJy.
    Magnitude,
    /// Of flux and its error.
    MagnitudeError,
    /// Of two positions, in arcseconds.
    Distance,
    /// Position, centre, radius in arcseconds.
    Cone,
    InRegion(Arc<str>),
    /// A radius in arcseconds (its bits) other than the list's.
    InWatchList(Arc<str>, Option<u64>),
    /// Of the points of a history column; a window of days (its bits) before the alert.
    Curve {
        function: Curve,
        history: usize,
        days: Option<u64>,
    },
}

impl Op {
    pub(crate) fn cost(&self) -> Cost {
        match self {
            Self::Curve { .. } | Self::Field { .. } => Cost::History,
            Self::Cone | Self::Distance | Self::InRegion(_) | Self::InWatchList(..) => Cost::Costly,
            _ => Cost::Cheap,
        }
    }
}

/// What an expression costs, and so when a filter's conjunct is evaluated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Cost {
    /// A few ns a row: evaluated for whole batches.
    Cheap,
    /// 100 ns a row and more: evaluated where cheap conjuncts left rows.
    Costly,
    /// Reads history columns, which are decoded for surviving rows only.
    History,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Node {
    pub(crate) op: Op,
    pub(crate) args: Box<[NodeId]>,
    pub(crate) ty: Type,
}

/// Expressions, equal ones once.
#[derive(Debug, Clone, Default)]
pub(crate) struct Tree {
    nodes: Vec<Node>,
    costs: Vec<Cost>,
    ids: HashMap<Node, NodeId>,
}

impl Tree {
    pub(crate) fn intern(&mut self, node: Node) -> NodeId {
        if let Some(id) = self.ids.get(&node) {
            return *id;
        }
        let id = NodeId(self.nodes.len() as u32);
        let costs = node.args.iter().map(|arg| self.cost(*arg));
        self.costs.push(costs.chain([node.op.cost()]).max().unwrap_or(Cost::Cheap));
        self.ids.insert(node.clone(), id);
        self.nodes.push(node);
        id
    }

    pub(crate) fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id.index()]
    }

    pub(crate) fn cost(&self, id: NodeId) -> Cost {
        self.costs[id.index()]
    }

    pub(crate) fn len(&self) -> usize {
        self.nodes.len()
    }

    pub(crate) fn constant(&self, id: NodeId) -> Option<&Literal> {
        match &self.node(id).op {
            Op::Const(literal) => Some(literal),
            _ => None,
        }
    }

    /// Takes in another tree's expressions; the result maps its identifiers to ours.
    pub(crate) fn absorb(&mut self, other: &Self) -> Vec<NodeId> {
        let mut ids: Vec<NodeId> = Vec::with_capacity(other.len());
        for node in &other.nodes {
            let args = node.args.iter().map(|arg| ids[arg.index()]).collect();
            ids.push(self.intern(Node { op: node.op.clone(), args, ty: node.ty }));
        }
        ids
    }

    /// All expressions that some expressions consist of.
    pub(crate) fn reachable(&self, roots: impl IntoIterator<Item = NodeId>) -> Vec<NodeId> {
        let mut found = vec![false; self.len()];
        let mut pending: Vec<NodeId> = roots.into_iter().collect();
        while let Some(id) = pending.pop() {
            if !std::mem::replace(&mut found[id.index()], true) {
                pending.extend(self.node(id).args.iter().copied());
            }
        }
        let ids = (0..self.len() as u32).map(NodeId);
        ids.filter(|id| found[id.index()]).collect()
    }
}
